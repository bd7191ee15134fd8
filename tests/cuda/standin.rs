//! The stand-in driver, and what runs with it: `attnc`, C programs, Python.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

/// The library that cargo made of `tests/standin`. `cargo test` makes it; with `--test cuda` alone, `cargo build --example standin` in the
/// same profile does.
pub(crate) fn driver() -> PathBuf {
    let program = std::env::current_exe().expect("this program");
    let made = program.ancestors().nth(2).expect("the folder of the profile").join("examples/libstandin.so");
    assert!(made.is_file(), "{} is not there: `cargo build --example standin` makes it", made.display());
    made
}

/// Is this machine's own GPU to be tested, not the stand-in? See [`crate`].
pub(crate) fn is_real_gpu() -> bool {
    std::env::var_os("ATTNC_TEST_GPU").is_some()
}

/// A command that finds the stand-in, which is as `settings` say; or the machine's driver.
pub(crate) fn with_driver(program: impl AsRef<std::ffi::OsStr>, settings: &str) -> Command {
    let mut command = Command::new(program);
    command.env_remove("ATTNC_DEVICE");
    if !is_real_gpu() {
        command.env("ATTNC_CUDA_LIB", driver()).env("ATTNC_STANDIN", settings);
    }
    command
}

/// `attnc`, with the stand-in.
pub(crate) fn attnc(settings: &str) -> Command {
    with_driver(env!("CARGO_BIN_EXE_attnc"), settings)
}

/// What a command that succeeds prints.
pub(crate) fn printed(command: &mut Command) -> String {
    let done = ended(command);
    let (out, err) = (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    assert!(done.status.success(), "{command:?}: {}\n{out}{err}", done.status);
    out.into_owned()
}

/// What a command that fails says.
pub(crate) fn complaint(command: &mut Command) -> String {
    let done = ended(command);
    let err = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(!done.status.success(), "{command:?} succeeds: {err}");
    err
}

fn ended(command: &mut Command) -> Output {
    command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"))
}

/// A folder that lives as long as the tests run.
pub(crate) fn folder() -> &'static Path {
    static FOLDER: OnceLock<tempfile::TempDir> = OnceLock::new();
    FOLDER.get_or_init(|| tempfile::tempdir().expect("a temporary folder")).path()
}

/// A file of this folder.
pub(crate) fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cuda").join(name)
}

/// The weights of `small.attn`: the table is 0, 1, 2 and so on, the weight half of the identity.
pub(crate) fn weights() -> PathBuf {
    static WEIGHTS: OnceLock<PathBuf> = OnceLock::new();
    let made = WEIGHTS.get_or_init(|| {
        let table: Vec<u8> = (0..20).flat_map(|i| (i as f32).to_le_bytes()).collect();
        let half = |i: usize| if i.is_multiple_of(5) { 0.5f32 } else { 0.0 };
        let weight: Vec<u8> = (0..16).flat_map(|i| half(i).to_le_bytes()).collect();
        let view = |shape: [usize; 2], bytes: &'static [u8]| {
            safetensors::tensor::TensorView::new(safetensors::Dtype::F32, shape.to_vec(), bytes).expect("a tensor")
        };
        let path = folder().join("small.safetensors");
        let tensors = [("table", view([5, 4], table.leak())), ("weight", view([4, 4], weight.leak()))];
        safetensors::serialize_to_file(tensors, None, &path).expect("a file");
        path
    });
    made.clone()
}

/// `small.attn`, compiled for a target: a folder with library, header and Python wrapper, all called `small`.
pub(crate) fn small(target: &str) -> PathBuf {
    static MADE: std::sync::Mutex<Vec<String>> = std::sync::Mutex::new(Vec::new());
    let mut made = MADE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let folder = folder().join(target);
    if !made.iter().any(|t| t == target) {
        std::fs::create_dir_all(&folder).expect("a folder");
        let mut compile = attnc("");
        compile.arg(file("small.attn")).args(["--target", target, "--emit", "so,header,python", "-o"]);
        printed(compile.arg(folder.join("small")));
        made.push(target.to_string());
    }
    folder
}

/// A Python with NumPy, or `None` with a note.
pub(crate) fn python() -> Option<PathBuf> {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join(".venv/bin/python");
    let python = std::env::var_os("ATTNC_TEST_PYTHON").map_or(own, PathBuf::from);
    let python = if python.is_file() { python } else { PathBuf::from("python3") };
    if Command::new(&python).args(["-c", "import numpy"]).output().is_ok_and(|o| o.status.success()) {
        return Some(python);
    }
    eprintln!("no Python with NumPy: not checked");
    None
}
