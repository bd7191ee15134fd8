//! Do all levels of processors compute the same, and does the environment choose among them as it is documented?

use crate::{fixtures, host};

use std::path::Path;
use std::process::Command;

use attnc::codegen::cpu;
use attnc::runtime::load::CompiledModel;
use attnc::runtime::npy;
use attnc::tensor::Tensor;
use host::host;
use safetensors::tensor::Dtype;

/// The levels of this machine's architecture, best first.
fn names() -> Vec<String> {
    cpu::levels().iter().map(|level| level.name()).collect()
}

const DOUBLE: &str = "model Double { pub fn forward(x: f32[S]) -> f32[S] { x + x } }\n";

/// A library made of a program with these options, in a folder that goes away with the returned guard.
fn library_of(text: &str, options: &[&str]) -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().expect("a folder");
    let so = folder.path().join("model.so").to_string_lossy().into_owned();
    let program = folder.path().join("double.attn");
    std::fs::write(&program, text).expect("a program");
    let mut command = Command::new(env!("CARGO_BIN_EXE_attnc"));
    let done = command.arg(&program).args(options).args(["-o", &so]).output().expect("attnc starts");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    (folder, so)
}

fn library(options: &[&str]) -> (tempfile::TempDir, String) {
    library_of(DOUBLE, options)
}

/// Not a question of its own: what the others start as a process, with an environment of its own. Prints the variant that
/// runs and the number of threads of the process, or why the model did not open.
#[test]
fn opened_in_another_process() {
    let Some(so) = std::env::var_os("ATTNC_TEST_SO") else { return };
    let weights = std::env::var_os("ATTNC_TEST_WEIGHTS");
    // SAFETY: the test that set the variable made the library.
    match unsafe { CompiledModel::open(Path::new(&so), weights.as_deref().map(Path::new), 0) } {
        Ok(model) => {
            let threads = std::fs::read_dir("/proc/self/task").map_or(0, Iterator::count);
            println!("variant {} threads {threads}", model.variant());
        }
        Err(error) => println!("error {}", error.text),
    }
}

/// What a process says that opens a library with these variables.
fn opened(so: &str, variables: &[(&str, &str)]) -> String {
    let mut command = Command::new(std::env::current_exe().expect("this test"));
    command.args(["--exact", "levels::opened_in_another_process", "--nocapture", "--test-threads", "1"]);
    command.env_remove("ATTNC_CPU").env_remove("ATTNC_THREADS").env("ATTNC_TEST_SO", so);
    let out = command.envs(variables.iter().copied()).output().expect("this test starts");
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    let line = text.lines().find_map(|l| l.find("variant ").or(l.find("error ")).map(|at| l[at..].to_string()));
    line.unwrap_or_else(|| panic!("{text}"))
}

#[test]
fn the_environment_may_only_lower_the_level() {
    let names = names();
    let (_folder, so) = library(&[]);
    let best = opened(&so, &[]);
    let rank = |text: &str| names.iter().rev().position(|n| text.contains(&format!("variant {n} "))).expect("a level");
    for (i, name) in names.iter().rev().enumerate() {
        let got = opened(&so, &[("ATTNC_CPU", name)]);
        assert_eq!(rank(&got), i.min(rank(&best)), "{name}: {got}");
    }
    assert_eq!(opened(&so, &[("ATTNC_CPU", "")]), best);
    let wrong = opened(&so, &[("ATTNC_CPU", "sse9")]);
    assert_eq!(wrong, "error ATTNC_CPU is `sse9`; expected portable, avx2, avx2vnni, avx512, avx512bf16, amx");
    // A level that is not in the library cannot be chosen.
    let (_folder, so) = library(&["--cpu", "portable"]);
    assert!(opened(&so, &[]).contains("variant portable "));
    assert!(opened(&so, &[("ATTNC_CPU", "avx512")]).contains("variant portable "));
}

/// A program that multiplies `bf16` by `bf16` has code for two more levels, and they are chosen as the others are.
#[test]
fn products_of_bf16_have_levels_of_their_own() {
    let own = ["avx512bf16", "amx"];
    let names: Vec<String> = names().into_iter().rev().chain(own.map(String::from)).collect();
    let text = "model Product { pub fn forward(a: bf16[S, 8], b: bf16[8, 40]) -> bf16[S, 40] { a @ b } }\n";
    let rank = |text: &str| names.iter().position(|n| text.contains(&format!("variant {n} "))).expect("a level");
    let (_folder, so) = library_of(text, &[]);
    let best = rank(&opened(&so, &[]));
    let mut before = 0;
    for (i, name) in names.iter().enumerate() {
        let got = rank(&opened(&so, &[("ATTNC_CPU", name)]));
        // Levels that this processor lacks are left out, and only the requested level is better than the best.
        assert!((before..=i).contains(&got) && (got <= best || got == i), "{name}: {}", names[got]);
        // A level that runs only where it is named is not included for those above it.
        before = got.min(best);
    }
    assert!(before >= best);
    // The others have none of that, nor has what is made for less.
    for (text, options) in [(DOUBLE, &[][..]), (text, &["--cpu", "avx512"])] {
        let (_folder, so) = library_of(text, options);
        let got = opened(&so, &[("ATTNC_CPU", "amx")]);
        assert!(!own.iter().any(|n| got.contains(&format!("variant {n} "))), "{got}");
    }
}

/// A program with quantised weights has code for AVX-VNNI, which runs where it is the best that the processor has.
#[test]
fn whole_numbers_have_a_level_of_their_own() {
    let folder = tempfile::tempdir().expect("a folder");
    let weights = folder.path().join("w.safetensors").to_string_lossy().into_owned();
    let bytes = vec![0; 4 * 32 * 40];
    let view = safetensors::tensor::TensorView::new(Dtype::F32, vec![32, 40], &bytes).expect("a tensor");
    safetensors::serialize_to_file([("w", view)], None, Path::new(&weights)).expect("weights");
    let text = "model Product {\n    w: f32[32, 40]\n    pub fn forward(x: f32[S, 32]) -> f32[S, 40] { x @ w }\n}\n";
    let runs = |so: &str, most: &str| -> String {
        let text = opened(so, &[("ATTNC_CPU", most), ("ATTNC_TEST_WEIGHTS", &weights)]);
        let name = text.strip_prefix("variant ").and_then(|rest| rest.split(' ').next());
        name.unwrap_or_else(|| panic!("{text}")).to_string()
    };
    #[cfg(target_arch = "x86_64")]
    let here = is_x86_feature_detected!("avx2")
        && std::arch::x86_64::__cpuid_count(7, 0).eax >= 1
        && std::arch::x86_64::__cpuid_count(7, 1).eax >> 4 & 1 == 1;
    #[cfg(not(target_arch = "x86_64"))]
    let here = false;
    for pack in ["int8", "int4"] {
        let (_folder, so) = library_of(text, &["--pack", pack]);
        let below = runs(&so, "avx2");
        assert_eq!(runs(&so, "avx2vnni"), if here { "avx2vnni" } else { &below }, "{pack}");
        assert_ne!(below, "avx2vnni");
        assert_eq!(runs(&so, "portable"), "portable");
        // Code for it may use all features below.
        let (_folder, so) = library_of(text, &["--pack", pack, "--cpu", "avx2vnni"]);
        assert_eq!(runs(&so, "amx"), if here { "avx2vnni" } else { &below }, "{pack}");
        assert_eq!(runs(&so, "avx2"), below);
    }
    // Others have no such code: weights that are not integers, lower levels, a program without weights or products.
    let sum = "model Sum {\n    w: f32[32, 40]\n    pub fn forward(x: f32[32, 40]) -> f32[32, 40] { x + w }\n}\n";
    for (text, options) in [
        (text, &["--pack", "bf16"][..]),
        (text, &["--pack", "int8", "--cpu", "avx2"]),
        (DOUBLE, &["--pack", "int8"]),
        (sum, &["--pack", "int8"]),
    ] {
        let (_folder, so) = library_of(text, options);
        assert_ne!(runs(&so, "avx2vnni"), "avx2vnni", "{options:?}");
    }
}

/// Lines of a result are fetched for writing, far ahead by the product and close ahead by what stores it.
#[cfg(target_arch = "x86_64")]
#[test]
fn lines_of_a_product_are_fetched_for_writing() {
    let program =
        "model Product { pub fn forward(x: f32[M, K], y: f32[K, N], z: f32[N]) -> f32[M, N] { x @ y + z } }\n";
    let folder = tempfile::tempdir().expect("a folder");
    let (path, text) = (folder.path().join("product.attn"), folder.path().join("product.s"));
    std::fs::write(&path, program).expect("a program");
    for level in ["avx512", "avx2"] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_attnc"));
        let command = command.arg(&path).args(["--cpu", level, "--backend", "cranelift", "--emit"]);
        let done = command.arg(format!("asm={}", text.display())).output().expect("attnc starts");
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        let text = std::fs::read_to_string(&text).expect("assembly");
        let leaves = text.split("\nleaf.").skip(1);
        let fetching: Vec<&str> = leaves.filter(|leaf| leaf.contains("prefetchw")).collect();
        let one = |kind: &str, what: &str| {
            fetching.iter().filter(|leaf| leaf.starts_with(kind) && leaf.contains(what)).count() == 1
        };
        assert!(one("dot.", " = dot ") && one("run.", "store ") && fetching.len() == 2, "{level}: {fetching:#?}");
    }
}

#[test]
fn the_environment_may_say_how_many_threads() {
    let (_folder, so) = library(&[]);
    let threads = |n: &str| -> usize {
        let text = opened(&so, &[("ATTNC_THREADS", n)]);
        text.rsplit(' ').next().and_then(|n| n.parse().ok()).unwrap_or_else(|| panic!("{text}"))
    };
    let one = threads("1");
    assert_eq!(threads("3"), one + 2);
    assert_eq!(threads("0"), threads(""));
    for wrong in ["two", "-1", "1.5", " 2"] {
        let text = opened(&so, &[("ATTNC_THREADS", wrong)]);
        assert_eq!(text, format!("error ATTNC_THREADS is `{wrong}`; expected a number of threads"));
    }
}

#[test]
fn levels_that_do_not_exist_are_refused() {
    let out =
        Command::new(env!("CARGO_BIN_EXE_attnc")).args(["m.attn", "--cpu", "avx10"]).output().expect("attnc starts");
    assert_eq!(out.status.code(), Some(2));
    let text = String::from_utf8_lossy(&out.stderr);
    assert!(text.contains("portable, avx2, avx2vnni, avx512"), "{text}");
}

/// An encoder at each level, through `attnc run`, against the interpreter.
#[test]
fn every_level_computes_the_same() {
    let fixture = fixtures::load("07_encoder");
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
    let weights = path("weights.safetensors");
    fixture.write_weights(Path::new(&weights));
    let case = &fixture.cases[0];
    let mut args = vec!["run".to_string(), fixtures::program("07_encoder").to_string_lossy().into_owned()];
    args.extend(fixture.dims.iter().map(|(name, value)| format!("--dim={name}={value}")));
    args.extend(["--function", &case.entry, "--weights", &weights].map(String::from));
    for (name, tensor) in &case.inputs {
        let file = path(&format!("{name}.npy"));
        std::fs::write(&file, npy::to_bytes(&host(tensor))).expect("an input");
        args.extend(["--input".to_string(), format!("{name}={file}")]);
    }
    let run = |level: &str, how: &[&str], set: bool| -> Tensor {
        let out = path("out.npy");
        let mut command = Command::new(env!("CARGO_BIN_EXE_attnc"));
        command.args(&args).args(how).args(["--output", &out]).env_remove("ATTNC_CPU");
        if set {
            command.env("ATTNC_CPU", level);
        }
        let done = command.output().expect("attnc starts");
        assert!(done.status.success(), "{level}: {}", String::from_utf8_lossy(&done.stderr));
        npy::parse(&std::fs::read(&out).expect("a result")).expect("a NumPy file")
    };
    let expected = run("none", &["--backend", "interp"], false);
    for level in names() {
        for got in [run(&level, &[], true), run(&level, &["--cpu", &level], false)] {
            assert_eq!(got.shape(), expected.shape());
            let far = fixtures::difference(&got.to_f32(), &expected.to_f32());
            assert!(far <= case.tolerance, "{level}: {far}");
        }
    }
}

/// Code for aarch64 is made on any machine, and Cranelift's verifier has nothing against it; it runs only there.
#[test]
fn neon_is_an_object_for_another_machine() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
    let mut examples = 0;
    for entry in std::fs::read_dir("examples").expect("examples") {
        let program = entry.expect("an example").path();
        if program.extension().is_none_or(|e| e != "attn") {
            continue;
        }
        for pack in ["f32", "bf16", "int8", "int4"] {
            let (object, text) = (path("model.o"), path("model.s"));
            let mut command = Command::new(env!("CARGO_BIN_EXE_attnc"));
            command.arg(&program).args(["--cpu", "neon", "--pack", pack, "--emit"]);
            let done = command.arg(format!("obj={object},asm={text}")).output().expect("attnc starts");
            assert!(done.status.success(), "{}: {}", program.display(), String::from_utf8_lossy(&done.stderr));
            let bytes = std::fs::read(&object).expect("an object");
            // ELF, and the machine that the header names: EM_AARCH64.
            assert_eq!(bytes.get(..4), Some(b"\x7fELF".as_slice()));
            assert_eq!(bytes.get(18..20), Some([183, 0].as_slice()));
            let asm = std::fs::read_to_string(&text).expect("assembly");
            assert!(asm.contains(".4s, ") && asm.contains("ret"), "{} has no vectors", program.display());
        }
        examples += 1;
    }
    assert!(examples > 5);
    let attnc = |args: &[&str]| {
        let done = Command::new(env!("CARGO_BIN_EXE_attnc")).args(args).output().expect("attnc starts");
        (
            done.status.code(),
            String::from_utf8_lossy(&done.stdout).into_owned() + &String::from_utf8_lossy(&done.stderr),
        )
    };
    // So is code of a later stage.
    let (clif, tile) = (path("model.clif"), path("model.tir"));
    let program = "examples/01_linear.attn";
    assert_eq!(attnc(&[program, "--emit", &format!("clif={clif}")]).0, Some(0));
    let (code, asm) = attnc(&[&clif, "--cpu", "neon", "--emit", "asm=-"]);
    assert!(code == Some(0) && asm.contains(".4s, "), "{asm}");
    if cfg!(target_arch = "x86_64") {
        let (code, text) = attnc(&[program, "--cpu", "neon", "-o", &path("model.so")]);
        assert!(code == Some(2) && text.contains("`--cpu neon` is for aarch64"), "{text}");
        assert_eq!(attnc(&[program, "--cpu", "avx2", "--emit", &format!("tile={tile}")]).0, Some(0));
        let (code, text) = attnc(&[&tile, "--cpu", "neon", "--emit", &format!("obj={}", path("model.o"))]);
        assert!(code == Some(2) && text.contains("scheduled for avx2"), "{text}");
    }
}
