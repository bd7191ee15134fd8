//! The driver's functions, looked up by name in the installed library.
//!
//! In: `ATTNC_CUDA_LIB`, else `libcuda.so.1`, else `libcuda.so`. Out: a [`Driver`], a function
//! table shared by the whole process; and names of its error codes. It must not contain devices,
//! memory, or any order of calls.

use alloc::string::String;
use alloc::vec::Vec;
use core::ffi::{CStr, c_char, c_void};
use core::mem::transmute;
use core::ops::Deref;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, Ordering};

pub(crate) use super::functions::{
    Address, Code, Context, Event, Function, Functions, Module, Object, Stream, attribute,
};
use crate::error::{Error, Result, fail};
use crate::sys::{self, Library, try_box};

/// Error codes that are handled specially.
pub(crate) mod code {
    pub(crate) const OUT_OF_MEMORY: i32 = 2;
    pub(crate) const DEINITIALIZED: i32 = 4;
    pub(crate) const STUB_LIBRARY: i32 = 34;
    pub(crate) const NO_DEVICE: i32 = 100;
    pub(crate) const INVALID_IMAGE: i32 = 200;
    pub(crate) const NO_BINARY_FOR_GPU: i32 = 209;
    pub(crate) const INVALID_PTX: i32 = 218;
    pub(crate) const JIT_COMPILER_NOT_FOUND: i32 = 221;
    pub(crate) const UNSUPPORTED_PTX_VERSION: i32 = 222;
    pub(crate) const SYSTEM_DRIVER_MISMATCH: i32 = 803;
    pub(crate) const COMPAT_NOT_SUPPORTED: i32 = 804;

    /// Does the error make all later calls on this context fail? `cuda.h` says so for failing
    /// kernels (700 to 719, with gaps), tensor core memory that was not released (721), contained
    /// errors (226) and MPS servers that exit (810). Uncorrectable memory and link errors (214,
    /// 220) persist in practice.
    pub(crate) fn is_sticky(code: i32) -> bool {
        matches!(code, 214 | 220 | 226 | 700 | 702 | 710 | 714..=719 | 721 | 810)
    }
}

/// Options of `cuModuleLoadDataEx`.
pub(crate) mod jit {
    pub(crate) const INFO_LOG: i32 = 3;
    pub(crate) const INFO_LOG_SIZE: i32 = 4;
    pub(crate) const ERROR_LOG: i32 = 5;
    pub(crate) const ERROR_LOG_SIZE: i32 = 6;
}

/// A stream that does not synchronise with the legacy default stream.
pub(crate) const NON_BLOCKING: u32 = 1;

/// An encoded tensor map; must be aligned to 64 bytes.
#[repr(C, align(64))]
#[derive(Clone, Copy)]
pub(crate) struct TensorMap(pub(crate) [u8; 128]);

/// The functions of the driver; functions that every driver has are available through [`Deref`].
pub(crate) struct Driver {
    functions: Functions,
    /// Available in drivers for CUDA 12.0 and later.
    pub(crate) encode_tiled: Option<EncodeTiled>,
    /// Available in drivers for CUDA 11.4 and later.
    pub(crate) graphs: Option<GraphFunctions>,
    /// Names and descriptions of error codes.
    error_name: ErrorText,
    error_string: ErrorText,
    /// Keeps the library loaded.
    _library: Library,
}

impl Deref for Driver {
    type Target = Functions;

    fn deref(&self) -> &Functions {
        &self.functions
    }
}

/// `CUDA_KERNEL_NODE_PARAMS`, version 1: a launch as a graph node.
#[repr(C)]
pub(crate) struct KernelNode {
    pub(crate) function: Function,
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    pub(crate) shared: u32,
    pub(crate) params: *mut *mut c_void,
    pub(crate) extra: *mut *mut c_void,
}

const _: () = assert!(size_of::<KernelNode>() == 56);

/// `CUlaunchAttributeValue`, of which only an integer is set.
#[repr(C, align(8))]
pub(crate) struct NodeAttribute(pub(crate) [i32; 16]);

/// Functions for graphs.
#[derive(Clone, Copy)]
pub(crate) struct GraphFunctions {
    pub(crate) create: unsafe extern "C" fn(*mut Object, u32) -> Code,
    pub(crate) add_kernel: unsafe extern "C" fn(*mut Object, Object, *const Object, usize, *const KernelNode) -> Code,
    pub(crate) instantiate: unsafe extern "C" fn(*mut Object, Object, u64) -> Code,
    pub(crate) set_attribute: unsafe extern "C" fn(Object, i32, *const NodeAttribute) -> Code,
    pub(crate) set_kernel: unsafe extern "C" fn(Object, Object, *const KernelNode) -> Code,
    pub(crate) launch: unsafe extern "C" fn(Object, Stream) -> Code,
    pub(crate) destroy_executable: unsafe extern "C" fn(Object) -> Code,
    pub(crate) destroy: unsafe extern "C" fn(Object) -> Code,
}

impl GraphFunctions {
    /// Looks up all symbols.
    fn look_up(library: &Library) -> Option<GraphFunctions> {
        // SAFETY: the signatures match `cuda.h`, for the versions without a suffix.
        unsafe {
            Some(GraphFunctions {
                create: transmute::<*mut c_void, unsafe extern "C" fn(*mut Object, u32) -> Code>(
                    library.symbol(c"cuGraphCreate")?,
                ),
                add_kernel: transmute::<
                    *mut c_void,
                    unsafe extern "C" fn(*mut Object, Object, *const Object, usize, *const KernelNode) -> Code,
                >(library.symbol(c"cuGraphAddKernelNode")?),
                instantiate: transmute::<*mut c_void, unsafe extern "C" fn(*mut Object, Object, u64) -> Code>(
                    library.symbol(c"cuGraphInstantiateWithFlags")?,
                ),
                set_attribute: transmute::<*mut c_void, unsafe extern "C" fn(Object, i32, *const NodeAttribute) -> Code>(
                    library.symbol(c"cuGraphKernelNodeSetAttribute")?,
                ),
                set_kernel: transmute::<*mut c_void, unsafe extern "C" fn(Object, Object, *const KernelNode) -> Code>(
                    library.symbol(c"cuGraphExecKernelNodeSetParams")?,
                ),
                launch: transmute::<*mut c_void, unsafe extern "C" fn(Object, Stream) -> Code>(
                    library.symbol(c"cuGraphLaunch")?,
                ),
                destroy_executable: transmute::<*mut c_void, unsafe extern "C" fn(Object) -> Code>(
                    library.symbol(c"cuGraphExecDestroy")?,
                ),
                destroy: transmute::<*mut c_void, unsafe extern "C" fn(Object) -> Code>(
                    library.symbol(c"cuGraphDestroy")?,
                ),
            })
        }
    }
}

type ErrorText = unsafe extern "C" fn(Code, *mut *const c_char) -> Code;

/// `cuTensorMapEncodeTiled`.
pub(crate) type EncodeTiled = unsafe extern "C" fn(
    *mut TensorMap,
    i32,
    u32,
    Address,
    *const u64,
    *const u64,
    *const u32,
    *const u32,
    i32,
    i32,
    i32,
    i32,
) -> Code;

/// The table, once it has been loaded.
static DRIVER: AtomicPtr<Driver> = AtomicPtr::new(null_mut());

/// The names that are tried if `ATTNC_CUDA_LIB` is not set.
const NAMES: [&CStr; 2] = [c"libcuda.so.1", c"libcuda.so"];

impl Driver {
    /// Looks up all functions; returns the name of the first missing one on failure.
    fn look_up(library: Library) -> core::result::Result<Driver, &'static CStr> {
        let find = |name: &'static CStr| library.symbol(name).ok_or(name);
        // SAFETY: the signatures match `cuda.h`.
        unsafe {
            Ok(Driver {
                functions: Functions::find(|name| library.symbol(name))?,
                encode_tiled: library
                    .symbol(c"cuTensorMapEncodeTiled")
                    .map(|f| transmute::<*mut c_void, EncodeTiled>(f)),
                graphs: GraphFunctions::look_up(&library),
                error_name: transmute::<*mut c_void, ErrorText>(find(c"cuGetErrorName")?),
                error_string: transmute::<*mut c_void, ErrorText>(find(c"cuGetErrorString")?),
                _library: library,
            })
        }
    }

    /// The initialised driver. Retries in each call until it has been found once.
    pub(crate) fn get() -> Result<&'static Driver> {
        // SAFETY: null, or a table that is never freed.
        if let Some(found) = unsafe { DRIVER.load(Ordering::Acquire).as_ref() } {
            return Ok(found);
        }
        let driver = Driver::open()?;
        // SAFETY: `cuInit` may be called any number of times.
        driver.require(unsafe { (driver.init)(0) }, "the CUDA driver does not start")?;
        let Some(driver) = try_box(driver) else { return Err(Error::memory(size_of::<Driver>() as u64, "the driver")) };
        let made = alloc::boxed::Box::into_raw(driver);
        match DRIVER.compare_exchange(null_mut(), made, Ordering::AcqRel, Ordering::Acquire) {
            // SAFETY: nobody frees it any more.
            Ok(_) => Ok(unsafe { &*made }),
            // SAFETY: another thread was first; only this thread has `made`, and `first` is never
            // freed.
            Err(first) => unsafe {
                drop(alloc::boxed::Box::from_raw(made));
                Ok(&*first)
            },
        }
    }

    fn open() -> Result<Driver> {
        let mut tried: Vec<String> = Vec::new();
        let own = sys::variable(c"ATTNC_CUDA_LIB");
        let named = own.as_ref().map(|name| {
            let mut bytes: Vec<u8> = name.bytes().collect();
            bytes.push(0);
            bytes
        });
        let named = named.as_ref().and_then(|bytes| CStr::from_bytes_with_nul(bytes).ok());
        let names = match named {
            Some(name) => alloc::vec![name],
            None => NAMES.to_vec(),
        };
        for name in names {
            match Library::open(name) {
                Ok(library) => {
                    return Driver::look_up(library).or_else(|missing| {
                        let (name, missing) = (name.to_string_lossy(), missing.to_string_lossy());
                        fail!(Device, "the CUDA driver `{name}` is too old: it has no function {missing}")
                    });
                }
                Err(why) => tried.push(why),
            }
        }
        fail!(Device, "no CUDA driver was found: {}", tried.join("; "))
    }

    /// CUDA version: 1000 times the major number plus ten times the minor one.
    pub(crate) fn version(&self) -> Result<u64> {
        let mut version = 0;
        // SAFETY: an out pointer for a number.
        self.require(unsafe { (self.driver_version)(&mut version) }, "the CUDA driver does not report its version")?;
        Ok(u64::try_from(version).unwrap_or(0))
    }

    /// Name and description of an error code.
    pub(crate) fn text(&self, code: Code) -> String {
        let of = |function: ErrorText| {
            let mut text = core::ptr::null();
            // SAFETY: an out pointer for a string; what it gives is a string of the driver's.
            unsafe {
                if function(code, &mut text) != 0 || text.is_null() {
                    return String::new();
                }
                String::from_utf8_lossy(sys::c_bytes(text)).into_owned()
            }
        };
        match (of(self.error_name), of(self.error_string)) {
            (name, _) if name.is_empty() => alloc::format!("CUDA error {code}"),
            (name, why) => alloc::format!("{name}: {why}"),
        }
    }

    /// Converts an error code of a call that looks for devices or loads code.
    pub(crate) fn require(&self, code: Code, what: &str) -> Result<()> {
        let why = match code {
            0 => return Ok(()),
            code::OUT_OF_MEMORY => fail!(Memory, "{what}: the GPU is out of memory"),
            code::NO_DEVICE => "there is no NVIDIA GPU, or none that this process may use",
            code::STUB_LIBRARY => "the library is the stub that programs are linked with, not a driver",
            code::SYSTEM_DRIVER_MISMATCH => "the driver of the system and its library are of different versions",
            code::COMPAT_NOT_SUPPORTED => {
                "the library is of a newer driver than the system's, and this GPU does not allow that"
            }
            _ => fail!(Device, "{what}: {}", self.text(code)),
        };
        fail!(Device, "{what}: {why} ({})", self.text(code))
    }
}
