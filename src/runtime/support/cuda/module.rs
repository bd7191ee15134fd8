//! Loads a variant's GPU code: machine code that matches the GPU if there is some, else PTX, which
//! the driver compiles.
//!
//! In: a [`CudaDesc`] and a GPU. Out: its functions, in the order of their numbers in plans. If the
//! driver rejects the PTX, the error includes its compiler's log.

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ffi::{CStr, c_void};
use core::ptr::null_mut;

use super::device::Gpu;
use super::driver::{self, Code, Function, attribute, code, jit};
use crate::abi::cuda::{CubinDesc, CudaDesc, CudaKernelDesc, MAX_WORDS};
use crate::error::{Error, Result, fail, push};

/// Maximum length of the driver compiler's log in a message.
const LONGEST_LOG: usize = 8 << 10;

/// Shared memory per block that needs no opt-in.
const LITTLE_SHARED: u64 = 48 << 10;

/// The kernel that copies tensors (`copier`).
const COPIES: &CStr = c"attnc_copy";

/// A loaded module.
pub(crate) struct Module {
    pub(super) gpu: Arc<Gpu>,
    module: driver::Module,
    functions: Vec<Loaded>,
    /// The kernel that copies tensors.
    pub(super) copies: Function,
}

/// A loaded kernel.
#[derive(Clone, Copy)]
pub(crate) struct Loaded {
    pub(crate) function: Function,
    pub(crate) desc: &'static CudaKernelDesc,
    /// For a persistent kernel, the number of blocks that run concurrently.
    pub(crate) at_once: i64,
}

// SAFETY: driver handles, which any thread may use.
unsafe impl Send for Module {}
// SAFETY: as above.
unsafe impl Sync for Module {}

impl Module {
    /// Loads the module. The context must be current.
    pub(crate) fn load(gpu: &Arc<Gpu>, desc: &'static CudaDesc) -> Result<Module> {
        let module = Module::image(gpu, desc)?;
        // `Drop` unloads it from now on, also after an error.
        let mut out = Module { gpu: gpu.clone(), module, functions: Vec::new(), copies: null_mut() };
        // SAFETY: an out pointer for a function; a string with its NUL.
        let code = unsafe { (gpu.driver.function)(&mut out.copies, module, COPIES.as_ptr()) };
        gpu.check(code, "the kernel that copies tensors")?;
        for kernel in desc.kernels.get() {
            let name = kernel.name.get();
            let mut function = null_mut();
            // SAFETY: an out pointer for a function; a string with its NUL.
            let code = unsafe { (gpu.driver.function)(&mut function, out.module, kernel.name.ptr.cast()) };
            gpu.check(code, &alloc::format!("kernel {name}"))?;
            let (needs, most) = (kernel.shared.saturating_add(kernel.static_shared), gpu.most_shared);
            if needs > most {
                fail!(
                    Device,
                    "kernel {name} needs {needs} bytes of shared memory; a block of {} has at most {most}",
                    gpu.name
                );
            }
            if needs > LITTLE_SHARED {
                // SAFETY: a function of this module.
                let code = unsafe {
                    (gpu.driver.set_function_attribute)(function, attribute::DYNAMIC_SHARED, kernel.shared as i32)
                };
                gpu.check(code, &alloc::format!("shared memory of kernel {name}"))?;
            }
            if kernel.symbols.saturating_add(kernel.params) > MAX_WORDS as u64 {
                fail!(Internal, "kernel {name} has too many parameters");
            }
            let mut at_once = i64::MAX;
            if kernel.persistent != 0 {
                let (mut blocks, threads) = (0, kernel.threads.iter().product::<u64>());
                // SAFETY: an out pointer for a number; a function of this module.
                let code =
                    unsafe { (gpu.driver.most_blocks)(&mut blocks, function, threads as i32, kernel.shared as usize) };
                gpu.check(code, &alloc::format!("kernel {name}"))?;
                at_once = i64::from(blocks.max(1)).saturating_mul(gpu.multiprocessors.max(1));
            }
            push(&mut out.functions, Loaded { function, desc: kernel, at_once }, "the kernels")?;
        }
        Ok(out)
    }

    /// The kernel of this number.
    pub(crate) fn kernel(&self, index: u64) -> Option<Loaded> {
        self.functions.get(usize::try_from(index).ok()?).copied()
    }

    /// Loads the first image that the driver accepts.
    fn image(gpu: &Gpu, desc: &CudaDesc) -> Result<driver::Module> {
        let fits = |c: &&CubinDesc| c.capability / 10 == gpu.capability / 10 && c.capability <= gpu.capability;
        for cubin in desc.cubins.get().iter().filter(fits) {
            let mut module = null_mut();
            // SAFETY: an image written by the compiler, whose format contains its length.
            let code = unsafe {
                (gpu.driver.load_module)(&mut module, cubin.image.ptr.cast(), 0, core::ptr::null(), core::ptr::null())
            };
            match code {
                0 => return Ok(module),
                code::OUT_OF_MEMORY | code::DEINITIALIZED => gpu.check(code, "loading the kernels")?,
                code if code::is_sticky(code) => gpu.check(code, "loading the kernels")?,
                // Made by a compiler newer than the driver (which may report this in several ways):
                // fall back to PTX.
                _ => {}
            }
        }
        let mut log = Log::new()?;
        let mut module = null_mut();
        let (options, mut values) = log.options();
        // SAFETY: a string with its NUL; as many options as said, each with its value.
        let code = unsafe {
            (gpu.driver.load_module)(
                &mut module,
                desc.ptx.ptr.cast(),
                options.len() as u32,
                options.as_ptr(),
                values.as_mut_ptr(),
            )
        };
        match code {
            0 => Ok(module),
            _ => Err(rejected(gpu, desc, code, &log.text())),
        }
    }
}

/// The error for PTX that the driver rejected.
fn rejected(gpu: &Gpu, desc: &CudaDesc, code: Code, log: &str) -> Error {
    use crate::error::Status;
    let text = gpu.driver.text(code);
    let version = gpu.driver.version().unwrap_or(0);
    let shown = alloc::format!("{}.{}", version / 1000, version % 1000 / 10);
    let why = match code {
        code::UNSUPPORTED_PTX_VERSION => {
            let needs = alloc::format!("{}.{}", desc.driver / 1000, desc.driver % 1000 / 10);
            alloc::format!("the driver, for CUDA {shown}, is too old for the kernels, which need {needs}: {text}")
        }
        code::JIT_COMPILER_NOT_FOUND => alloc::format!("the driver's compiler of PTX is not installed: {text}"),
        code::INVALID_PTX | code::NO_BINARY_FOR_GPU | code::INVALID_IMAGE => {
            alloc::format!("the driver, for CUDA {shown}, rejects the kernels on {}: {text}", gpu.name)
        }
        code::OUT_OF_MEMORY => {
            return Error { status: Status::Memory, text: alloc::format!("loading the kernels: {text}") };
        }
        _ => alloc::format!("loading the kernels: {text}"),
    };
    let log = if log.is_empty() { String::new() } else { alloc::format!("\n{log}") };
    Error { status: Status::Device, text: why + &log }
}

impl Drop for Module {
    fn drop(&mut self) {
        if let Some(_entered) = self.gpu.enter_to_free() {
            // SAFETY: loaded once, and no session that could launch is left.
            unsafe { (self.gpu.driver.unload_module)(self.module) };
        }
    }
}

/// Buffers for the messages of the driver's compiler.
struct Log {
    errors: Vec<u8>,
    notes: Vec<u8>,
}

impl Log {
    fn new() -> Result<Log> {
        let (mut errors, mut notes) = (Vec::new(), Vec::new());
        if errors.try_reserve_exact(LONGEST_LOG).is_err() || notes.try_reserve_exact(LONGEST_LOG).is_err() {
            return Err(Error::memory(LONGEST_LOG as u64, "the messages of the driver"));
        }
        // The last byte stays a NUL.
        errors.resize(LONGEST_LOG, 0);
        notes.resize(LONGEST_LOG, 0);
        Ok(Log { errors, notes })
    }

    /// Options for the driver and their values; numbers are passed as addresses.
    fn options(&mut self) -> ([i32; 4], [*mut c_void; 4]) {
        let size = core::ptr::without_provenance_mut(LONGEST_LOG - 1);
        (
            [jit::ERROR_LOG, jit::ERROR_LOG_SIZE, jit::INFO_LOG, jit::INFO_LOG_SIZE],
            [self.errors.as_mut_ptr().cast(), size, self.notes.as_mut_ptr().cast(), size],
        )
    }

    /// The compiler's errors, or its notes if it reported no errors.
    fn text(&self) -> String {
        let of = |bytes: &[u8]| {
            let end = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len());
            String::from(String::from_utf8_lossy(bytes.get(..end).unwrap_or(&[])).trim_end())
        };
        let errors = of(&self.errors);
        if errors.is_empty() { of(&self.notes) } else { errors }
    }
}
