//! Functions of NVIDIA's driver API with their signatures, for the support library, which runs
//! models, and for `bench`, which measures GPUs.
//!
//! In: a symbol lookup in the driver's library. Out: a table of functions. It does not load the
//! library, nor call the functions.

use core::ffi::{CStr, c_char, c_void};
use core::mem::transmute;

/// `CUresult`.
pub type Code = i32;
/// `CUcontext`.
pub type Context = *mut c_void;
/// `CUmodule`: loaded code.
pub type Module = *mut c_void;
/// `CUfunction`: a kernel of a module.
pub type Function = *mut c_void;
/// `CUstream`: a queue of launches and copies.
pub type Stream = *mut c_void;
/// `CUevent`: a point of a stream, with its time.
pub type Event = *mut c_void;
/// `CUgraph`, `CUgraphNode` or `CUgraphExec`.
pub type Object = *mut c_void;
/// `CUdeviceptr`: an address in GPU memory.
pub type Address = u64;

/// Attribute numbers.
pub mod attribute {
    /// Device: number of multiprocessors.
    pub const MULTIPROCESSORS: i32 = 16;
    /// Device: maximum shared memory per block, for kernels that opt in to more than 48 KiB.
    pub const MAX_SHARED: i32 = 97;
    /// Device: major number of its compute capability.
    pub const MAJOR: i32 = 75;
    /// Device: minor number of its compute capability.
    pub const MINOR: i32 = 76;
    /// Function: maximum dynamic shared memory per block, in bytes.
    pub const DYNAMIC_SHARED: i32 = 8;
    /// Launch: all blocks run concurrently (cooperative launch).
    pub const COOPERATIVE: i32 = 2;
}

/// Declares the functions, and how each is found.
macro_rules! functions {
    ($($name:ident = $symbol:literal: fn($($arg:ty),*);)*) => {
        /// Function table, each with the symbol under which it is looked up.
        pub struct Functions {
            $(#[doc = stringify!($name)] pub $name: unsafe extern "C" fn($($arg),*) -> Code,)*
        }

        impl Functions {
            /// Looks up all symbols.
            ///
            /// # Errors
            /// The name of the first missing symbol.
            ///
            /// # Safety
            /// The symbol found under a name must be the driver's function of that name.
            pub unsafe fn find(
                symbol: impl Fn(&'static CStr) -> Option<*mut c_void>,
            ) -> Result<Functions, &'static CStr> {
                let find = |name: &'static CStr| symbol(name).ok_or(name);
                // SAFETY: the signatures are copied from `cuda.h`.
                unsafe {
                    Ok(Functions {
                        $($name: transmute::<*mut c_void, unsafe extern "C" fn($($arg),*) -> Code>(find($symbol)?),)*
                    })
                }
            }
        }
    };
}

functions! {
    init = c"cuInit": fn(u32);
    driver_version = c"cuDriverGetVersion": fn(*mut i32);
    device_count = c"cuDeviceGetCount": fn(*mut i32);
    device = c"cuDeviceGet": fn(*mut i32, i32);
    device_name = c"cuDeviceGetName": fn(*mut c_char, i32, i32);
    device_attribute = c"cuDeviceGetAttribute": fn(*mut i32, i32, i32);
    retain_context = c"cuDevicePrimaryCtxRetain": fn(*mut Context, i32);
    release_context = c"cuDevicePrimaryCtxRelease_v2": fn(i32);
    push_context = c"cuCtxPushCurrent_v2": fn(Context);
    pop_context = c"cuCtxPopCurrent_v2": fn(*mut Context);
    wait_for_context = c"cuCtxSynchronize": fn();
    load_module = c"cuModuleLoadDataEx": fn(*mut Module, *const c_void, u32, *const i32, *const *mut c_void);
    unload_module = c"cuModuleUnload": fn(Module);
    function = c"cuModuleGetFunction": fn(*mut Function, Module, *const c_char);
    set_function_attribute = c"cuFuncSetAttribute": fn(Function, i32, i32);
    most_blocks = c"cuOccupancyMaxActiveBlocksPerMultiprocessor": fn(*mut i32, Function, i32, usize);
    allocate = c"cuMemAlloc_v2": fn(*mut Address, usize);
    free = c"cuMemFree_v2": fn(Address);
    copy_in = c"cuMemcpyHtoDAsync_v2": fn(Address, *const c_void, usize, Stream);
    copy_out = c"cuMemcpyDtoHAsync_v2": fn(*mut c_void, Address, usize, Stream);
    copy_within = c"cuMemcpyDtoDAsync_v2": fn(Address, Address, usize, Stream);
    fill_bytes = c"cuMemsetD8Async": fn(Address, u8, usize, Stream);
    create_stream = c"cuStreamCreate": fn(*mut Stream, u32);
    destroy_stream = c"cuStreamDestroy_v2": fn(Stream);
    wait_for_stream = c"cuStreamSynchronize": fn(Stream);
    create_event = c"cuEventCreate": fn(*mut Event, u32);
    destroy_event = c"cuEventDestroy_v2": fn(Event);
    record_event = c"cuEventRecord": fn(Event, Stream);
    wait_for_event = c"cuEventSynchronize": fn(Event);
    elapsed = c"cuEventElapsedTime": fn(*mut f32, Event, Event);
    launch = c"cuLaunchKernel":
        fn(Function, u32, u32, u32, u32, u32, u32, u32, Stream, *const *mut c_void, *const *mut c_void);
    launch_together = c"cuLaunchCooperativeKernel":
        fn(Function, u32, u32, u32, u32, u32, u32, u32, Stream, *const *mut c_void);
}
