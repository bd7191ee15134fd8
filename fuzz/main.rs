//! The fuzz targets as one libFuzzer program: `ATTNC_FUZZ` names the target, all arguments are libFuzzer's.
//!
//! `fuzz/run.sh` builds and runs it. `ATTNC_FUZZ_SEEDS=DIR` writes the seeds of the target and its dictionary
//! (`DIR/NAME.dict`) instead.

use attnc::ir::interp::bounded;
mod targets;

use std::ffi::{CString, c_char, c_int};
use std::process::ExitCode;
use std::sync::OnceLock;

use targets::{TARGETS, Target, dictionary};

static TARGET: OnceLock<&'static Target> = OnceLock::new();

/// What libfuzzer-sys calls with each input. Its macro would set a hook that aborts at panics which attnc catches: those of
/// Cranelift's reader.
#[unsafe(no_mangle)]
#[allow(improper_ctypes_definitions, reason = "libfuzzer-sys declares it so")]
extern "C" fn rust_fuzzer_test_input(data: &[u8]) -> i32 {
    if let Some(target) = TARGET.get() {
        (target.run)(data);
    }
    0
}

unsafe extern "C" {
    /// libFuzzer as a library: its usual `main`.
    fn LLVMFuzzerRunDriver(
        count: *mut c_int,
        arguments: *mut *mut *mut c_char,
        run: unsafe extern "C" fn(*const u8, usize) -> c_int,
    ) -> c_int;
    /// Of libfuzzer-sys: calls `rust_fuzzer_test_input`, and aborts when that panics.
    fn LLVMFuzzerTestOneInput(data: *const u8, size: usize) -> c_int;
}

// It is linked for the functions above.
use libfuzzer_sys as _;

fn main() -> ExitCode {
    let name = std::env::var("ATTNC_FUZZ").unwrap_or_default();
    let Some(target) = TARGETS.iter().find(|target| target.name == name) else {
        let names: Vec<&str> = TARGETS.iter().map(|target| target.name).collect();
        eprintln!("ATTNC_FUZZ must name one of {}", names.join(", "));
        return ExitCode::from(2);
    };
    if let Some(folder) = std::env::var_os("ATTNC_FUZZ_SEEDS") {
        return match write_seeds(target, folder.as_ref()) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("{error}");
                ExitCode::FAILURE
            }
        };
    }
    TARGET.get_or_init(|| target);
    // All inputs run on one thread that has the stack which the compiler wants.
    let status = attnc::stack::with_large_stack(|| {
        let arguments: Vec<CString> = std::env::args().filter_map(|argument| CString::new(argument).ok()).collect();
        let mut pointers: Vec<*mut c_char> = arguments.iter().map(|argument| argument.as_ptr().cast_mut()).collect();
        let mut count = c_int::try_from(pointers.len()).unwrap_or(0);
        pointers.push(std::ptr::null_mut());
        let mut list = pointers.as_mut_ptr();
        // SAFETY: a list of C strings that ends with a null pointer, and their count.
        unsafe { LLVMFuzzerRunDriver(&mut count, &mut list, LLVMFuzzerTestOneInput) }
    });
    ExitCode::from(u8::try_from(status).unwrap_or(1))
}

fn write_seeds(target: &Target, folder: &std::path::Path) -> std::io::Result<()> {
    let corpus = folder.join(target.name);
    std::fs::create_dir_all(&corpus)?;
    let seeds = (target.seeds)();
    for (n, seed) in seeds.iter().enumerate() {
        std::fs::write(corpus.join(format!("seed-{n:04}")), seed)?;
    }
    std::fs::write(folder.join(format!("{}.dict", target.name)), dictionary(&seeds))
}
