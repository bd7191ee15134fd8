//! Access to a GPU for measurements: the required functions of NVIDIA's driver, from the library
//! that models use too.
//!
//! In: the number of a device, PTX, launches. Out: the seconds between two events. Models call the
//! driver through their own library; all other driver calls of this program are here.

use std::ffi::{CStr, CString, c_void};
use std::ptr::null_mut;

use libloading::Library;

use crate::runtime::cuda_functions::{Code, Event, Function, Functions, Module as ModuleName, attribute};

/// `CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE`.
const SECOND_CACHE: i32 = 38;
/// A symbol that only the simulator for tests exports; its times are meaningless.
const OF_STAND_IN: &[u8] = b"attnc_standin_live";

fn checked(code: Code, what: &str) -> Result<(), String> {
    if code == 0 { Ok(()) } else { Err(format!("{what}: CUDA error {code}")) }
}

/// A GPU whose context is current on this thread while the value lives.
pub(super) struct Gpu {
    /// The driver's name for it.
    pub(super) name: String,
    /// Is it simulated?
    pub(super) simulated: bool,
    /// Ten times the major number of its compute capability plus the minor number.
    pub(super) capability: i32,
    pub(super) multiprocessors: u32,
    /// Size of the L2 cache in bytes.
    pub(super) second_cache: u64,
    device: i32,
    events: [Event; 2],
    functions: Functions,
    /// Declared last, so that it is unloaded last.
    _library: Library,
}

impl Gpu {
    /// Opens the device of this number.
    pub(super) fn open(ordinal: i32) -> Result<Gpu, String> {
        let own = std::env::var_os("ATTNC_CUDA_LIB").filter(|name| !name.is_empty());
        let names = own.map_or(vec!["libcuda.so.1".into(), "libcuda.so".into()], |name| vec![name]);
        // SAFETY: the driver's library, which a model of this process has already loaded.
        let found = names.iter().find_map(|name| unsafe { Library::new(name) }.ok());
        let library = found.ok_or("no CUDA driver was found")?;
        // SAFETY: only the address of a symbol is read, which is valid while the library is loaded.
        let find = |name: &CStr| unsafe { library.get::<*mut c_void>(name.to_bytes_with_nul()).ok()?.try_as_raw_ptr() };
        // SAFETY: the driver's library has the driver's functions.
        let f = unsafe { Functions::find(find) }
            .map_err(|name| format!("the CUDA driver is too old: it has no function {}", name.to_string_lossy()))?;
        // SAFETY: only tests whether the symbol exists.
        let simulated = unsafe { library.get::<unsafe extern "C" fn() -> u64>(OF_STAND_IN) }.is_ok();
        let (mut device, mut context) = (0, null_mut());
        let mut name = [0u8; 128];
        // SAFETY: valid out pointers and buffers of the given lengths.
        unsafe {
            checked((f.init)(0), "the CUDA driver does not start")?;
            checked((f.device)(&mut device, ordinal), "the GPU")?;
            checked((f.device_name)(name.as_mut_ptr().cast(), name.len() as i32 - 1, device), "the GPU")?;
        }
        let attribute = |which: i32| {
            let mut value = 0;
            // SAFETY: an out pointer for a number.
            checked(unsafe { (f.device_attribute)(&mut value, which, device) }, "the GPU").map(|()| value)
        };
        let capability = 10 * attribute(attribute::MAJOR)? + attribute(attribute::MINOR)?;
        let multiprocessors = attribute(attribute::MULTIPROCESSORS)?.max(1).unsigned_abs();
        let second_cache = u64::from(attribute(SECOND_CACHE)?.max(0).unsigned_abs());
        let end = name.iter().position(|b| *b == 0).unwrap_or(0);
        let name = String::from_utf8_lossy(name.get(..end).unwrap_or_default()).into_owned();
        // SAFETY: valid out pointers; the context is retained until this value is dropped.
        unsafe {
            checked((f.retain_context)(&mut context, device), "the GPU's context")?;
            if let Err(why) = checked((f.push_context)(context), "the GPU's context") {
                (f.release_context)(device);
                return Err(why);
            }
        }
        // `Drop` releases everything from now on.
        let events = [null_mut(); 2];
        let mut gpu = Gpu {
            name,
            simulated,
            capability,
            multiprocessors,
            second_cache,
            device,
            events,
            functions: f,
            _library: library,
        };
        for event in &mut gpu.events {
            // SAFETY: an out pointer for an event.
            checked(unsafe { (gpu.functions.create_event)(event, 0) }, "an event")?;
        }
        Ok(gpu)
    }

    /// Loads PTX.
    pub(super) fn load(&self, text: &str) -> Result<Module<'_>, String> {
        let text = CString::new(text).map_err(|e| e.to_string())?;
        let mut module = null_mut();
        let none = std::ptr::null();
        // SAFETY: an out pointer for a module, a string, no options.
        let code = unsafe { (self.functions.load_module)(&mut module, text.as_ptr().cast(), 0, none, none.cast()) };
        checked(code, "the driver takes no kernels")?;
        Ok(Module { gpu: self, module })
    }

    /// Allocates memory, filled with a constant byte.
    pub(super) fn allocate(&self, bytes: usize) -> Result<Memory<'_>, String> {
        let mut address = 0;
        // SAFETY: an out pointer for an address; the memory has `bytes` bytes.
        unsafe {
            checked((self.functions.allocate)(&mut address, bytes), "memory of the GPU")?;
            let memory = Memory { gpu: self, address };
            checked((self.functions.fill_bytes)(address, 0x5a, bytes, null_mut()), "memory of the GPU")?;
            Ok(memory)
        }
    }

    /// Seconds that a launch takes, by the GPU's clock.
    ///
    /// # Safety
    /// The kernel accesses only allocated memory in this number of steps.
    pub(super) unsafe fn time(
        &self,
        kernel: &LoadedKernel<'_>,
        launch: &Launch<'_>,
        steps: u32,
    ) -> Result<f64, String> {
        let f = &self.functions;
        // A NaN bit pattern that no sum has.
        let (mut data, mut out, mut count) = (launch.data.address, launch.out.address, launch.count);
        let (mut steps, mut never) = (steps, 0x7fc0_1234u32);
        let params: [*mut c_void; 5] = [
            (&raw mut data).cast(),
            (&raw mut out).cast(),
            (&raw mut count).cast(),
            (&raw mut steps).cast(),
            (&raw mut never).cast(),
        ];
        let (none, [begin, end]) = (std::ptr::null(), self.events);
        let mut milliseconds = 0f32;
        // SAFETY: these are the parameters of all the kernels, which the driver copies; existing
        // events; the contract above.
        unsafe {
            checked((f.record_event)(begin, null_mut()), "timing")?;
            let (x, blocks) = (launch.threads, launch.blocks);
            let code = (f.launch)(kernel.function, blocks, 1, 1, x, 1, 1, 0, null_mut(), params.as_ptr(), none);
            checked(code, "a launch")?;
            checked((f.record_event)(end, null_mut()), "timing")?;
            checked((f.wait_for_event)(end), "a launch")?;
            checked((f.elapsed)(&mut milliseconds, begin, end), "timing")?;
        }
        Ok(f64::from(milliseconds) / 1e3)
    }
}

impl Drop for Gpu {
    fn drop(&mut self) {
        let mut before = null_mut();
        // SAFETY: pushed and retained once by this value; events created by it.
        unsafe {
            for event in self.events.into_iter().filter(|event| !event.is_null()) {
                (self.functions.destroy_event)(event);
            }
            (self.functions.pop_context)(&mut before);
            (self.functions.release_context)(self.device);
        }
    }
}

/// Parameters of a launch.
pub(super) struct Launch<'a> {
    pub(super) blocks: u32,
    pub(super) threads: u32,
    pub(super) data: &'a Memory<'a>,
    /// Its number of 16-byte pieces.
    pub(super) count: u64,
    pub(super) out: &'a Memory<'a>,
}

/// A loaded module.
pub(super) struct Module<'a> {
    gpu: &'a Gpu,
    module: ModuleName,
}

impl Module<'_> {
    /// A kernel of the module.
    pub(super) fn kernel(&self, name: &str) -> Result<LoadedKernel<'_>, String> {
        let text = CString::new(name).map_err(|e| e.to_string())?;
        let mut function = null_mut();
        // SAFETY: an out pointer for a function, a string.
        let code = unsafe { (self.gpu.functions.function)(&mut function, self.module, text.as_ptr()) };
        checked(code, "a kernel")?;
        Ok(LoadedKernel { function, _module: self })
    }
}

impl Drop for Module<'_> {
    fn drop(&mut self) {
        // SAFETY: loaded once and no longer used.
        unsafe { (self.gpu.functions.unload_module)(self.module) };
    }
}

/// A kernel of a loaded module.
pub(super) struct LoadedKernel<'a> {
    function: Function,
    _module: &'a Module<'a>,
}

/// Memory of the GPU.
pub(super) struct Memory<'a> {
    gpu: &'a Gpu,
    address: u64,
}

impl Drop for Memory<'_> {
    fn drop(&mut self) {
        // SAFETY: allocated once and no longer used.
        unsafe { (self.gpu.functions.free)(self.address) };
    }
}
