//! A GPU: its compute capability, its primary context, and the meaning of its errors.
//!
//! In: the number of a device. Out: a [`Gpu`]. Before calling the driver, a thread must enter
//! ([`Gpu::enter`]), which pushes the context and pops it when the guard is dropped. Results of
//! driver calls go through [`Gpu::check`], which remembers errors that break the context.

use alloc::string::String;
use alloc::sync::Arc;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicI32, Ordering};

use super::driver::{Code, Context, Driver, attribute, code};
use super::spare::SpareMemory;
use crate::error::{Error, Result, Status, fail};

/// A device that is in use.
pub(crate) struct Gpu {
    pub(crate) driver: &'static Driver,
    device: i32,
    /// Device number, as in DLPack and in `cuda:N`.
    pub(crate) ordinal: i32,
    /// The driver's name for it.
    pub(crate) name: String,
    /// Ten times the major number of its compute capability plus the minor number.
    pub(crate) capability: u64,
    pub(crate) multiprocessors: i64,
    /// Maximum shared memory per block, in bytes.
    pub(crate) most_shared: u64,
    context: Context,
    /// Memory of released results.
    pub(super) spare: SpareMemory,
    /// The error code that broke the context, or 0.
    broken: AtomicI32,
}

// SAFETY: the driver's functions may be called by any thread; a context is a handle.
unsafe impl Send for Gpu {}
// SAFETY: as above.
unsafe impl Sync for Gpu {}

impl Gpu {
    /// Opens the device of this number, with its primary context.
    pub(crate) fn open(ordinal: i32) -> Result<Arc<Gpu>> {
        let driver = Driver::get()?;
        let mut count = 0;
        // SAFETY: an out pointer for a number.
        driver.require(unsafe { (driver.device_count)(&mut count) }, "the CUDA driver finds no GPU")?;
        if count < 1 {
            fail!(Device, "the CUDA driver finds no GPU that this process may use");
        }
        if !(0..count).contains(&ordinal) {
            fail!(Device, "there is no device cuda:{ordinal}: the last of this machine is cuda:{}", count - 1);
        }
        let mut device = 0;
        // SAFETY: an out pointer for a device.
        driver.require(unsafe { (driver.device)(&mut device, ordinal) }, "the GPU cannot be used")?;
        let attribute = |which: i32| {
            let mut value = 0;
            // SAFETY: an out pointer for a number.
            let code = unsafe { (driver.device_attribute)(&mut value, which, device) };
            driver.require(code, "the GPU cannot be used").map(|()| u64::try_from(value).unwrap_or(0))
        };
        let capability = 10 * attribute(attribute::MAJOR)? + attribute(attribute::MINOR)?;
        let multiprocessors = attribute(attribute::MULTIPROCESSORS)?.cast_signed();
        let most_shared = attribute(attribute::MAX_SHARED)?;
        let mut name = [0u8; 128];
        // SAFETY: an out pointer for a string of this length; its last byte stays 0.
        let named = unsafe { (driver.device_name)(name.as_mut_ptr().cast(), name.len() as i32 - 1, device) };
        let end = name.iter().position(|b| *b == 0).unwrap_or(0);
        let name = if named == 0 {
            String::from_utf8_lossy(name.get(..end).unwrap_or(&[])).into_owned()
        } else {
            String::new()
        };
        let mut context = null_mut();
        // SAFETY: an out pointer for a context.
        let code = unsafe { (driver.retain_context)(&mut context, device) };
        driver.require(code, "the GPU's context cannot be created")?;
        let (spare, broken) = (SpareMemory::default(), AtomicI32::new(0));
        let gpu =
            Gpu { driver, device, ordinal, name, capability, multiprocessors, most_shared, context, spare, broken };
        Ok(Arc::new(gpu))
    }

    /// Makes the context current on this thread while the guard lives.
    pub(crate) fn enter(&self) -> Result<Entered<'_>> {
        let broken = self.broken.load(Ordering::Relaxed);
        if broken != 0 {
            return Err(self.sticky(broken));
        }
        // SAFETY: the context is retained as long as this value lives.
        self.check(unsafe { (self.driver.push_context)(self.context) }, "the GPU's context cannot be used")?;
        Ok(Entered(self))
    }

    /// The same for freeing resources, where no error can be reported. `None` if the driver has
    /// shut down.
    pub(crate) fn enter_to_free(&self) -> Option<Entered<'_>> {
        // SAFETY: as above.
        (unsafe { (self.driver.push_context)(self.context) } == 0).then_some(Entered(self))
    }

    /// Converts an error code of the driver.
    pub(crate) fn check(&self, code: Code, what: &str) -> Result<()> {
        match code {
            0 => Ok(()),
            code::OUT_OF_MEMORY => {
                // For the caller's next attempt.
                self.spare.clear(self.driver);
                fail!(Memory, "{what}: the GPU is out of memory")
            }
            code if code::is_sticky(code) => {
                self.broken.store(code, Ordering::Relaxed);
                let text = self.driver.text(code);
                fail!(Gpu, "{what}: {text}; the process cannot use this GPU any more")
            }
            code::DEINITIALIZED => fail!(Gpu, "{what}: the CUDA driver has stopped, because the process ends"),
            _ => fail!(Gpu, "{what}: {}", self.driver.text(code)),
        }
    }

    /// Has an error occurred after which all calls fail?
    pub(crate) fn is_broken(&self) -> bool {
        self.broken.load(Ordering::Relaxed) != 0
    }

    fn sticky(&self, code: Code) -> Error {
        let text = alloc::format!(
            "an earlier call broke the GPU's context ({}); the process cannot use this GPU any more",
            self.driver.text(code)
        );
        Error { status: Status::Gpu, text }
    }
}

impl Drop for Gpu {
    fn drop(&mut self) {
        if let Some(_entered) = self.enter_to_free() {
            self.spare.clear(self.driver);
        }
        // SAFETY: it was retained once by this value.
        unsafe { (self.driver.release_context)(self.device) };
    }
}

/// The context is current on this thread.
pub(crate) struct Entered<'a>(&'a Gpu);

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        let mut before = null_mut();
        // SAFETY: an out pointer for a context; this thread pushed one.
        unsafe { (self.0.driver.pop_context)(&mut before) };
    }
}
