//! GPU memory of released results, for later results of the same size.
//!
//! The driver takes 70 to 150 microseconds to allocate and free a megabyte or more (H200, driver
//! 580), longer than short calls. In: memory that the caller has released, for which all work on
//! the GPU has ended. Out: the same memory, or what must be freed in its place. It must not know
//! what a result is.

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicBool, Ordering};

use super::driver::{Address, Driver};

/// Memory of released results; see the head of this file.
#[derive(Default)]
pub(crate) struct SpareMemory {
    is_locked: AtomicBool,
    /// The latest first; empty entries have size 0.
    list: UnsafeCell<[Spare; 4]>,
}

// SAFETY: the list is only accessed under the lock.
unsafe impl Sync for SpareMemory {}

/// An allocation.
#[derive(Clone, Copy, Default)]
pub(super) struct Spare {
    pub(super) address: Address,
    pub(super) size: u64,
}

/// Larger results are freed: computing them takes far longer.
pub(super) const MAX_SPARE: u64 = 64 << 20;

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
    pub(super) fn take(&self, size: u64) -> Option<Address> {
        let spare = self.with(|list| list.iter_mut().find(|s| s.size == size).map(core::mem::take));
        spare.flatten().map(|s| s.address)
    }

    /// Adds memory; returns what must be freed instead.
    pub(super) fn add(&self, new: Spare) -> Option<Address> {
        let replaced = self.with(|list| {
            let last = list.iter().position(|s| s.size == 0).unwrap_or(list.len() - 1);
            if let Some(part) = list.get_mut(..=last) {
                part.rotate_right(1);
            }
            core::mem::replace(&mut list[0], new)
        });
        let freed = replaced.unwrap_or(new);
        (freed.size > 0).then_some(freed.address)
    }

    /// Frees all of it; the context must be current.
    pub(super) fn clear(&self, driver: &Driver) {
        let list = loop {
            // Other threads hold the lock for a few instructions.
            match self.with(core::mem::take) {
                Some(list) => break list,
                None => core::hint::spin_loop(),
            }
        };
        for spare in list.iter().filter(|s| s.size > 0) {
            // SAFETY: allocated once and no longer used.
            unsafe { (driver.free)(spare.address) };
        }
    }
}
