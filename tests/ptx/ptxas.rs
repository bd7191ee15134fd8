//! NVIDIA's assembler, where it is installed: `tests/run.sh` fetches it into the tests' own environment.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Where it is: what `ATTNC_PTXAS` says, or in the tests' environment.
pub(crate) fn find() -> Option<PathBuf> {
    if let Some(path) = std::env::var_os("ATTNC_PTXAS") {
        return Some(PathBuf::from(path));
    }
    let lib = Path::new(env!("CARGO_MANIFEST_DIR")).join(".venv/lib");
    let pythons = std::fs::read_dir(lib).ok()?.flatten();
    pythons.map(|python| python.path().join("site-packages/nvidia/cu13/bin/ptxas")).find(|path| path.is_file())
}

/// Runs a test with the assembler, or says that it was left out.
pub(crate) fn with(what: &str, test: impl FnOnce(&Path)) {
    match find() {
        Some(ptxas) => test(&ptxas),
        None => eprintln!("ptxas is not installed (tests/run.sh fetches it): left out {what}"),
    }
}

/// What the assembler says of a text, for a processor.
pub(crate) struct Said {
    pub(crate) ok: bool,
    pub(crate) text: String,
}

/// Assembles a text.
pub(crate) fn assemble(ptxas: &Path, text: &str, processor: &str, options: &[&str]) -> Said {
    let folder = tempfile::tempdir().expect("a folder");
    let input = folder.path().join("module.ptx");
    std::fs::write(&input, text).expect("written");
    let out = Command::new(ptxas)
        .args(["-arch", processor, "-v"])
        .args(options)
        .arg("-o")
        .arg(folder.path().join("module.cubin"))
        .arg(&input)
        .output()
        .expect("ptxas runs");
    Said { ok: out.status.success(), text: String::from_utf8_lossy(&out.stderr).into_owned() }
}

/// The processor's own instructions for a text, one a line; `None` where the disassembler is not installed.
pub(crate) fn disassemble(ptxas: &Path, text: &str, processor: &str) -> Option<Vec<String>> {
    let nvdisasm = ptxas.with_file_name("nvdisasm");
    if !nvdisasm.is_file() {
        eprintln!("nvdisasm is not installed (tests/run.sh fetches it): left out the shape of the code");
        return None;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let (input, cubin) = (folder.path().join("module.ptx"), folder.path().join("module.cubin"));
    std::fs::write(&input, text).expect("written");
    let made =
        Command::new(ptxas).args(["-arch", processor, "-o"]).arg(&cubin).arg(&input).output().expect("ptxas runs");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let out = Command::new(nvdisasm).arg("-c").arg(&cubin).output().expect("nvdisasm runs");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    let is_code = |l: &&str| l.trim_start().starts_with("/*") && l.contains("*/") && l.contains(';');
    Some(text.lines().filter(is_code).map(str::to_string).collect())
}
