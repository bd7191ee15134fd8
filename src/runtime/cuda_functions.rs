//! The functions of NVIDIA's driver, with their signatures: for the support library, which runs models, and for `bench`, which measures GPUs.
//!
//! In: what finds a function in the driver's library. Out: a table of functions. It knows no library, and no order of calls.

use core::ffi::{CStr, c_char, c_void};
use core::mem::transmute;

/// `CUresult`.
pub type Code = i32;
/// A device's context.
pub type Context = *mut c_void;
/// Code that is loaded.
pub type Module = *mut c_void;
/// A kernel of a module.
pub type Function = *mut c_void;
/// A queue of launches and copies.
pub type Stream = *mut c_void;
/// A point of a stream, with its time.
pub type Event = *mut c_void;
/// A graph, a node of one, or what can be launched of one.
pub type Object = *mut c_void;
/// An address in a GPU's memory.
pub type Address = u64;

/// Numbers of attributes.
pub mod attribute {
    /// Of a device: multiprocessors.
    pub const MULTIPROCESSORS: i32 = 16;
    /// Of a device: the most shared memory that a block may have, where the kernel says that it wants more than 48 KiB.
    pub const MOST_SHARED: i32 = 97;
    /// Of a device: the major number of its compute capability.
    pub const MAJOR: i32 = 75;
    /// And the minor one.
    pub const MINOR: i32 = 76;
    /// Of a function: bytes of shared memory that launches may give its blocks.
    pub const DYNAMIC_SHARED: i32 = 8;
    /// Of a launch: all blocks run at the same time.
    pub const COOPERATIVE: i32 = 2;
}

/// Declares the functions, and how each is found.
macro_rules! functions {
    ($($name:ident = $symbol:literal: fn($($arg:ty),*);)*) => {
        /// A table of the functions, each found under the name that stands beside it.
        pub struct Functions {
            $(#[doc = stringify!($name)] pub $name: unsafe extern "C" fn($($arg),*) -> Code,)*
        }

        impl Functions {
            /// Looks all of them up.
            ///
            /// # Errors
            /// The name of the first that is not there.
            ///
            /// # Safety
            /// What is found under a name is the driver's function of that name.
            pub unsafe fn find(
                symbol: impl Fn(&'static CStr) -> Option<*mut c_void>,
            ) -> Result<Functions, &'static CStr> {
                let find = |name: &'static CStr| symbol(name).ok_or(name);
                // SAFETY: the signatures are those of `cuda.h`.
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
