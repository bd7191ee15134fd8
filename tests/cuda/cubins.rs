//! Machine code beside the PTX: made where there is an assembler, tried first, and no loss where the driver takes none. The assembler is
//! a script here, but for one test with NVIDIA's own.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::errors::opened;
use crate::standin::{attnc, complaint, file, folder, printed};

/// A script that is called as `ptxas` is: `-arch ARCH -o FILE INPUT`.
fn script(name: &str, text: &str) -> PathBuf {
    let path = folder().join(name);
    std::fs::write(&path, format!("#!/bin/sh\n{text}\n")).expect("written");
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).expect("executable");
    path
}

/// `small.attn` compiled into a folder of its own.
fn compile(name: &str, ptxas: &Path, more: &[&str]) -> (PathBuf, Command) {
    let place = folder().join(name);
    std::fs::create_dir_all(&place).expect("a folder");
    let mut command = attnc("");
    command.current_dir(&place).env("ATTNC_PTXAS", ptxas).arg(file("small.attn")).args(["--target", "cuda"]).args(more);
    command.args(["--emit", "so,header", "-o", "small"]);
    (place, command)
}

fn holds(library: &[u8], text: &str) -> bool {
    library.windows(text.len()).any(|part| part == text.as_bytes())
}

fn has_compiler() -> bool {
    let has = Command::new("cc").arg("--version").output().is_ok();
    if !has {
        eprintln!("no C compiler: not checked");
    }
    has
}

#[test]
fn machine_code_is_embedded_and_tried_first() {
    let ptxas = script(
        "assembles",
        r#"[ "$1" = -arch ] && grep -q '^\.visible \.entry' "$5" && grep -q 'entry attnc_copy(' "$5" && printf '\177ELF of %s' "$2" >"$4""#,
    );
    let (place, mut command) = compile("with", &ptxas, &["--cubins", "always"]);
    printed(&mut command);
    let library = std::fs::read(place.join("small.so")).expect("a library");
    assert!(holds(&library, "\x7fELF of sm_80\0"), "none for sm_80");
    assert!(holds(&library, "\x7fELF of sm_90"), "none for sm_90");
    let (again, mut command) = compile("again", &ptxas, &[]);
    printed(&mut command);
    assert!(std::fs::read(again.join("small.so")).expect("a library") == library, "not the same bytes");
    // Why two machines may make different libraries is told.
    let told = |options: &[&str]| {
        let done = compile("told", &ptxas, options).1.output().expect("attnc runs");
        String::from_utf8_lossy(&done.stderr).into_owned()
    };
    let text = told(&["--remarks"]);
    assert!(text.contains("assembles` makes the library's machine code for GPUs"), "{text}");
    assert!(!told(&[]).contains("machine code"));
    assert!(!told(&["--cubins", "never", "--remarks"]).contains("machine code"));
    let (without, mut command) = compile("without", &ptxas, &["--cubins", "never"]);
    printed(&mut command);
    assert!(!holds(&std::fs::read(without.join("small.so")).expect("a library"), "ELF of sm_"));
    if !has_compiler() {
        return;
    }
    // The driver cannot run it, and compiles the PTX.
    for settings in ["", "capability=80", "capability=86,cubin=209", "cubin=222", "cubin=300", "cubin=1"] {
        assert_eq!(opened(&place, "cuda", settings), "0 cuda:0 []\n", "{settings}");
    }
    // What is wrong otherwise is an error, where there is machine code for that GPU.
    for settings in ["cubin=2", "capability=80,cubin=2", "capability=86,cubin=2"] {
        let text = opened(&place, "cuda", settings);
        assert!(text.contains("loading the kernels: the GPU is out of memory"), "{settings}: {text}");
    }
    let text = opened(&place, "cuda", "cubin=226");
    assert!(text.contains("loading the kernels: CUDA error 226; the process cannot use this GPU any more"), "{text}");
    assert_eq!(opened(&place, "cuda", "capability=120,cubin=2"), "0 cuda:0 []\n");
    assert_eq!(opened(&without, "cuda", "cubin=2"), "0 cuda:0 []\n");
}

#[test]
fn what_the_assembler_rejects_is_a_bug() {
    let ptxas = script("rejects", "echo \"ptxas $5, line 7; error   : Unexpected instruction\" >&2; exit 255");
    let (place, mut command) = compile("rejected", &ptxas, &[]);
    let text = complaint(&mut command);
    assert!(text.contains("internal error: PTX: ptxas model.ptx, line 7; error   : Unexpected instruction"), "{text}");
    assert!(text.contains("reproduce with") && text.contains("/rejects -arch sm_"), "{text}");
    let kept = std::fs::read_to_string(place.join("attnc-bug-ptx.ptx")).expect("the PTX");
    assert!(kept.contains(".visible .entry"), "{kept}");
    assert!(!place.join("small.so").exists());
}

#[test]
fn an_old_assembler_makes_nothing() {
    let ptxas = script(
        "old",
        "echo 'ptxas model.ptx, line 5; fatal   : Unsupported .version 7.8; current version is 7.0' >&2; exit 255",
    );
    let (place, mut command) = compile("old_one", &ptxas, &[]);
    let done = command.output().expect("attnc runs");
    let text = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(done.status.success(), "{text}");
    assert!(text.contains("note: the library has no machine code for sm_"), "{text}");
    assert!(place.join("small.so").is_file());
    let text = complaint(&mut compile("old_always", &ptxas, &["--cubins", "always"]).1);
    assert!(text.contains("/old` is too old for the kernels"), "{text}");
}

#[test]
fn no_assembler() {
    let nowhere = Path::new("/nowhere/ptxas");
    let text = complaint(&mut compile("nowhere", nowhere, &[]).1);
    assert!(text.contains("cannot run `/nowhere/ptxas`"), "{text}");
    // Programs that are not `ptxas`, or none that can make anything, belong to the environment.
    for program in ["/nowhere/ptxas", "/bin/cat", "/bin/true", "/bin/false"] {
        let (place, mut command) = compile("another", Path::new(program), &[]);
        let done = command.output().expect("attnc runs");
        assert_eq!(done.status.code(), Some(3), "{program}: {}", String::from_utf8_lossy(&done.stderr));
        assert_eq!(std::fs::read_dir(place).expect("a folder").count(), 0, "{program}");
    }
    let hidden = |command: &mut Command| {
        // The linker is there, and nothing else.
        command.env_remove("ATTNC_PTXAS").env_remove("ATTNC_NVDISASM").env_remove("CUDA_HOME").env("PATH", "/nowhere");
        complaint(command)
    };
    let text = hidden(&mut compile("hidden", nowhere, &["--cubins", "always"]).1);
    assert!(text.contains("`--cubins always` needs NVIDIA's `ptxas`"), "{text}");
    let mut sass = attnc("");
    sass.arg(file("small.attn")).args(["--target", "cuda", "--emit", "sass=-"]);
    let text = hidden(&mut sass);
    assert!(text.contains("`--emit sass` needs NVIDIA's `ptxas`"), "{text}");
}

/// The folder of NVIDIA's tools that `tests/run.sh` fetches.
pub(crate) fn tools() -> Option<PathBuf> {
    let lib = Path::new(env!("CARGO_MANIFEST_DIR")).join(".venv/lib");
    let pythons = std::fs::read_dir(lib).ok()?.flatten();
    let found =
        pythons.map(|python| python.path().join("site-packages/nvidia/cu13")).find(|p| p.join("bin/ptxas").is_file());
    if found.is_none() {
        eprintln!("ptxas is not installed (tests/run.sh fetches it): not checked");
    }
    found
}

#[test]
fn with_the_real_assembler() {
    let Some(home) = tools() else { return };
    let compiled = |name: &str| {
        let (place, mut command) = compile(name, Path::new(""), &["--cubins", "always"]);
        printed(command.env("CUDA_HOME", &home));
        (std::fs::read(place.join("small.so")).expect("a library"), place)
    };
    let (library, place) = compiled("real");
    // The number of the machine in the head of an ELF file for a GPU, EM_CUDA.
    let images = library.windows(20).filter(|part| part.starts_with(b"\x7fELF") && part.ends_with(&[190, 0])).count();
    assert_eq!(images, 2);
    assert!(compiled("real_again").0 == library, "not the same bytes");
    if has_compiler() {
        assert_eq!(opened(&place, "cuda", ""), "0 cuda:0 []\n");
    }
    if !home.join("bin/nvdisasm").is_file() {
        eprintln!("nvdisasm is not installed (tests/run.sh fetches it): not checked");
        return;
    }
    for (gpu, shower) in
        [("sm_80", "nvdisasm"), ("sm_90a", "nvdisasm"), ("sm_80", "cuobjdump"), ("sm_90a", "cuobjdump")]
    {
        let shower = home.join("bin").join(shower);
        if !shower.is_file() {
            eprintln!("{} is not installed (tests/run.sh fetches it): not checked", shower.display());
            continue;
        }
        let mut sass = attnc("");
        sass.env("CUDA_HOME", &home).env("ATTNC_NVDISASM", &shower).arg(file("small.attn"));
        sass.args(["--target", "cuda", "--gpu", gpu, "--kernel", "matmul.3", "--emit", "sass=-"]);
        let text = printed(&mut sass);
        assert!(text.starts_with("// attnc small.attn --target cuda"), "{text}");
        // The product of f16 runs on tensor cores; the kernel is there by its name, and no other.
        let product = if gpu == "sm_80" { "HMMA." } else { "HGMMA." };
        assert!(text.contains(product) && text.contains("EXIT ;"), "{}: {text}", shower.display());
        assert!(text.contains("matmul_3") && !text.contains("gather_0"), "{}: {text}", shower.display());
    }
}
