//! The lock of a handle: one call at a time holds it; a thread that would wait for ever gets an
//! error instead.
//!
//! There are two such cases: a thread that already holds it, such as a signal handler that calls
//! the session whose call it interrupted; and a forked process in whose parent another thread held
//! it, since that thread does not exist in the child and will never unlock.
//!
//! The mutex is in memory that is zeroed on fork, which is an unlocked mutex. That it was held in
//! the parent shows in `held`, which is copied. Where the system does not support such memory
//! (Linux before 4.14), a forked process would wait for ever.

use core::cell::UnsafeCell;
use core::ffi::{c_int, c_void};
use core::ptr::null_mut;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

unsafe extern "C" {
    fn mmap(at: *mut c_void, size: usize, protection: c_int, flags: c_int, file: c_int, offset: i64) -> *mut c_void;
    fn munmap(at: *mut c_void, size: usize) -> c_int;
    fn madvise(at: *mut c_void, size: usize, advice: c_int) -> c_int;
    fn pthread_mutex_lock(mutex: *mut c_void) -> c_int;
    fn pthread_mutex_trylock(mutex: *mut c_void) -> c_int;
    fn pthread_mutex_unlock(mutex: *mut c_void) -> c_int;
    fn pthread_self() -> usize;
}

const READ_WRITE: c_int = 3;
const PRIVATE_ANONYMOUS: c_int = 0x22;
const WIPE_ON_FORK: c_int = 18;
/// Size of the mapping; the system rounds it up to pages.
const BYTES: usize = 4096;

/// See the head of this file.
pub(crate) struct CallLock {
    place: *mut LockMemory,
    held: AtomicBool,
}

/// Memory that is zeroed in a forked process.
#[repr(C)]
struct LockMemory {
    /// 64 bytes have space for `pthread_mutex_t`, as in [`crate::sys::Mutex`]. All zeros is an
    /// unlocked mutex.
    mutex: UnsafeCell<[u64; 8]>,
    /// Thread that holds it, or 0.
    owner: AtomicUsize,
}

/// Why a [`CallLock`] cannot be acquired.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refused {
    /// This thread already holds it.
    Nested,
    /// It was held at the fork by a thread that does not exist in this process.
    Forked,
}

// SAFETY: the mapping belongs to the lock, and is accessed only through atomics and the C library's
// mutex.
unsafe impl Send for CallLock {}
// SAFETY: as above.
unsafe impl Sync for CallLock {}

impl CallLock {
    /// An unlocked lock; `None` if out of memory.
    pub(crate) fn new() -> Option<CallLock> {
        const { assert!(size_of::<LockMemory>() <= BYTES) };
        // SAFETY: a new mapping does not affect other memory. If the advice is rejected, nothing
        // happens.
        let place = unsafe {
            let place = mmap(null_mut(), BYTES, READ_WRITE, PRIVATE_ANONYMOUS, -1, 0);
            if place.is_null() || place as isize == -1 {
                return None;
            }
            madvise(place, BYTES, WIPE_ON_FORK);
            place.cast::<LockMemory>()
        };
        Some(CallLock { place, held: AtomicBool::new(false) })
    }

    fn place(&self) -> &LockMemory {
        // SAFETY: the mapping lives as long as `self`; all-zero bytes are valid for every field.
        unsafe { &*self.place }
    }

    /// Acquires the lock until the guard is dropped.
    pub(crate) fn lock(&self) -> Result<CallGuard<'_>, Refused> {
        // SAFETY: returns this thread's id, which is not 0.
        let (place, this) = (self.place(), unsafe { pthread_self() });
        let mutex = place.mutex.get().cast();
        // SAFETY: an initialised mutex that does not move. A thread that holds it does not block on
        // it.
        unsafe {
            if pthread_mutex_trylock(mutex) != 0 {
                if place.owner.load(Ordering::Relaxed) == this {
                    return Err(Refused::Nested);
                }
                pthread_mutex_lock(mutex);
            }
        }
        if self.held.swap(true, Ordering::Relaxed) {
            // SAFETY: this thread holds it.
            unsafe { pthread_mutex_unlock(mutex) };
            return Err(Refused::Forked);
        }
        place.owner.store(this, Ordering::Relaxed);
        Ok(CallGuard(self))
    }
}

impl Drop for CallLock {
    fn drop(&mut self) {
        // SAFETY: exactly the mapping from mmap; nobody holds the lock or waits for it.
        unsafe { munmap(self.place.cast(), BYTES) };
    }
}

/// Holds a [`CallLock`].
pub(crate) struct CallGuard<'a>(&'a CallLock);

impl Drop for CallGuard<'_> {
    fn drop(&mut self) {
        let place = self.0.place();
        place.owner.store(0, Ordering::Relaxed);
        self.0.held.store(false, Ordering::Relaxed);
        // SAFETY: this thread holds it. In a forked process it may already be zeroed, and unlocking
        // a zeroed mutex is harmless.
        unsafe { pthread_mutex_unlock(place.mutex.get().cast()) };
    }
}
