//! GPU memory and streams, released on drop, in whatever order handles are closed.

use alloc::sync::Arc;
use core::cell::UnsafeCell;
use core::ffi::c_void;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicBool, Ordering};

use super::device::Gpu;
use super::driver::{self, Address, Driver, NON_BLOCKING, code};
use crate::error::{Error, Result, Status};

/// Alignment of the pieces of one allocation. Tensor maps and vectors need less.
pub(crate) const ALIGN: u64 = 256;

/// Required alignment of arguments and results in GPU memory, or else they are copied: kernels copy
/// 16 bytes at a time, and store pairs of elements.
pub(crate) const ARGUMENT_ALIGN: u64 = 16;

/// `size` rounded up to [`ALIGN`], saturating.
pub(crate) fn aligned(size: u64) -> u64 {
    size.checked_next_multiple_of(ALIGN).unwrap_or(u64::MAX)
}

pub(crate) struct DeviceBuffer {
    gpu: Arc<Gpu>,
    address: Address,
    size: u64,
    /// Kept for another result when it is released ([`SpareMemory`])?
    is_result: bool,
}

/// Memory of released results, for later results of the same size: the driver takes 70 to 150
/// microseconds to allocate and free a megabyte or more (H200, driver 580), longer than many a call.
#[derive(Default)]
pub(crate) struct SpareMemory {
    is_locked: AtomicBool,
    /// The latest first; size 0 where there is none.
    list: UnsafeCell<[Spare; 4]>,
}

// SAFETY: the list is only accessed under the lock.
unsafe impl Sync for SpareMemory {}

/// An allocation.
#[derive(Clone, Copy, Default)]
struct Spare {
    address: Address,
    size: u64,
}

/// Larger results are freed: computing them takes far longer.
const MAX_SPARE: u64 = 128 << 20;

impl SpareMemory {
    /// Accesses the list, unless another thread does at this moment.
    fn with<R>(&self, access: impl FnOnce(&mut [Spare; 4]) -> R) -> Option<R> {
        if self.is_locked.swap(true, Ordering::Acquire) {
            return None;
        }
        // SAFETY: this thread has the lock.
        let result = access(unsafe { &mut *self.list.get() });
        self.is_locked.store(false, Ordering::Release);
        Some(result)
    }

    /// Takes memory of this size, if there is any.
    fn take(&self, size: u64) -> Option<Address> {
        let spare = self.with(|list| list.iter_mut().find(|s| s.size == size).map(core::mem::take));
        spare.flatten().map(|s| s.address)
    }

    /// Adds memory; returns what must be freed instead.
    fn add(&self, new: Spare) -> Option<Address> {
        let replaced = self.with(|list| {
            list.rotate_right(1);
            core::mem::replace(&mut list[0], new)
        });
        let freed = replaced.unwrap_or(new);
        (freed.size > 0).then_some(freed.address)
    }

    /// Frees all of it; the context must be current.
    pub(crate) fn clear(&self, driver: &Driver) {
        for spare in self.with(core::mem::take).unwrap_or_default().iter().filter(|s| s.size > 0) {
            // SAFETY: allocated once and no longer used.
            unsafe { (driver.free)(spare.address) };
        }
    }
}

impl DeviceBuffer {
    /// Allocates `size` bytes, uninitialised; the address is never 0, even for 0 bytes. The context
    /// must be current.
    pub(crate) fn new(gpu: &Arc<Gpu>, size: u64, what: &str) -> Result<DeviceBuffer> {
        let mut address = 0;
        let bytes = usize::try_from(size.max(1)).unwrap_or(usize::MAX);
        // SAFETY: an out pointer for an address.
        let allocate = |address: &mut Address| unsafe { (gpu.driver.allocate)(address, bytes) };
        let mut code = allocate(&mut address);
        if code == code::OUT_OF_MEMORY {
            gpu.spare.clear(gpu.driver);
            code = allocate(&mut address);
        }
        gpu.check(code, what).map_err(|e| match e.status {
            Status::Memory => {
                Error { status: e.status, text: alloc::format!("the GPU is out of memory: {size} bytes for {what}") }
            }
            _ => e,
        })?;
        Ok(DeviceBuffer { gpu: gpu.clone(), address, size, is_result: false })
    }

    /// The same for a result that the caller will release, with the memory of an earlier one if
    /// possible.
    pub(crate) fn for_result(gpu: &Arc<Gpu>, size: u64) -> Result<DeviceBuffer> {
        let size = size.max(1);
        if let Some(address) = gpu.spare.take(size) {
            return Ok(DeviceBuffer { gpu: gpu.clone(), address, size, is_result: true });
        }
        let mut made = DeviceBuffer::new(gpu, size, "a result")?;
        made.is_result = true;
        Ok(made)
    }

    /// Makes a buffer at least `size` long; its contents are lost. The context must be current.
    pub(crate) fn reserve(buffer: &mut Option<DeviceBuffer>, gpu: &Arc<Gpu>, size: u64, what: &str) -> Result<Address> {
        if let Some(b) = buffer.as_ref().filter(|b| b.size >= size) {
            return Ok(b.address);
        }
        // Free first, so that both need not fit.
        *buffer = None;
        let made = DeviceBuffer::new(gpu, size, what)?;
        let address = made.address;
        *buffer = Some(made);
        Ok(address)
    }

    pub(crate) fn address(&self) -> Address {
        self.address
    }
}

impl Drop for DeviceBuffer {
    fn drop(&mut self) {
        let Some(_entered) = self.gpu.enter_to_free() else { return };
        let driver = self.gpu.driver;
        let mut freed = Some(self.address);
        // Like freeing, this waits for all work on the GPU: another library may have queued some
        // that reads the result.
        // SAFETY: no arguments.
        if self.is_result && self.size <= MAX_SPARE && unsafe { (driver.wait_for_context)() } == 0 {
            freed = self.gpu.spare.add(Spare { address: self.address, size: self.size });
        }
        if let Some(address) = freed {
            // SAFETY: allocated once and no longer used.
            unsafe { (driver.free)(address) };
        }
    }
}

/// A stream owned by the library.
pub(crate) struct OwnStream {
    gpu: Arc<Gpu>,
    stream: driver::Stream,
}

// SAFETY: a stream may be used by any thread.
unsafe impl Send for OwnStream {}
// SAFETY: as above.
unsafe impl Sync for OwnStream {}

impl OwnStream {
    /// The context must be current.
    pub(crate) fn new(gpu: &Arc<Gpu>) -> Result<OwnStream> {
        let mut stream = null_mut();
        // SAFETY: an out pointer for a stream.
        gpu.check(unsafe { (gpu.driver.create_stream)(&mut stream, NON_BLOCKING) }, "a stream of the GPU")?;
        Ok(OwnStream { gpu: gpu.clone(), stream })
    }

    pub(crate) fn get(&self) -> driver::Stream {
        self.stream
    }
}

impl Drop for OwnStream {
    fn drop(&mut self) {
        if let Some(_entered) = self.gpu.enter_to_free() {
            // SAFETY: created once and no longer used.
            unsafe { (self.gpu.driver.destroy_stream)(self.stream) };
        }
    }
}

/// Asynchronous copies and waiting, on one stream.
#[derive(Clone, Copy)]
pub(crate) struct Queue<'a> {
    pub(crate) gpu: &'a Gpu,
    pub(crate) stream: driver::Stream,
}

impl Queue<'_> {
    /// Host to device.
    ///
    /// # Safety
    /// `from` has `bytes` bytes, which do not change until the copy has completed; `to` is large
    /// enough.
    pub(crate) unsafe fn copy_in(&self, to: Address, from: *const u8, bytes: u64, what: &str) -> Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        // SAFETY: by the contract above.
        let code = unsafe { (self.gpu.driver.copy_in)(to, from.cast::<c_void>(), bytes as usize, self.stream) };
        self.gpu.check(code, what)
    }

    /// Device to host.
    ///
    /// # Safety
    /// `from` has `bytes` bytes; `to` is large enough, and is not read until the copy has
    /// completed.
    pub(crate) unsafe fn copy_out(&self, to: *mut u8, from: Address, bytes: u64, what: &str) -> Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        // SAFETY: by the contract above.
        let code = unsafe { (self.gpu.driver.copy_out)(to.cast::<c_void>(), from, bytes as usize, self.stream) };
        self.gpu.check(code, what)
    }

    /// Device to device.
    ///
    /// # Safety
    /// Both have `bytes` bytes, and do not overlap.
    pub(crate) unsafe fn copy_within(&self, to: Address, from: Address, bytes: u64, what: &str) -> Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        // SAFETY: by the contract above.
        let code = unsafe { (self.gpu.driver.copy_within)(to, from, bytes as usize, self.stream) };
        self.gpu.check(code, what)
    }

    /// Zeroes bytes.
    ///
    /// # Safety
    /// `at` has `bytes` bytes.
    pub(crate) unsafe fn clear(&self, at: Address, bytes: u64, what: &str) -> Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        // SAFETY: by the contract above.
        let code = unsafe { (self.gpu.driver.fill_bytes)(at, 0, bytes as usize, self.stream) };
        self.gpu.check(code, what)
    }

    /// Waits until the stream is idle.
    pub(crate) fn wait(&self, what: &str) -> Result<()> {
        // SAFETY: an existing stream.
        self.gpu.check(unsafe { (self.gpu.driver.wait_for_stream)(self.stream) }, what)
    }
}
