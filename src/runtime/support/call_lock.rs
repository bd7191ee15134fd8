//! The lock of a handle: one call at a time holds it, and whom it can never be given gets an error.
//!
//! That is a thread that holds it already, as where the handler of a signal calls the session whose call it interrupted; and a
//! forked process for which another thread held it, since that thread did not come along and will not give it back.
//!
//! The C library's lock lies in memory that is zeros in a forked process, which is a lock that is free. That somebody held it
//! shows in `held`, which is copied. Where the system has no such memory (Linux before 4.14), a forked process waits for ever.

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
/// Bytes of a mapping, which the system rounds up to pages.
const BYTES: usize = 4096;

/// See the head of this file.
pub(crate) struct CallLock {
    place: *mut Place,
    held: AtomicBool,
}

/// What is zeros in a forked process.
#[repr(C)]
struct Place {
    /// 64 bytes are space for `pthread_mutex_t`, as for [`crate::sys::Mutex`]. Zeros are a mutex that is free.
    mutex: UnsafeCell<[u64; 8]>,
    /// The thread that holds it; 0 where none does.
    owner: AtomicUsize,
}

/// Why a [`CallLock`] is not taken.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refused {
    /// This thread holds it.
    Nested,
    /// A thread held it that does not exist in this process.
    Forked,
}

// SAFETY: the place belongs to the lock, and is used through atomics and the C library's lock.
unsafe impl Send for CallLock {}
// SAFETY: as above.
unsafe impl Sync for CallLock {}

impl CallLock {
    /// A lock that is free; `None` where there is no memory.
    pub(crate) fn new() -> Option<CallLock> {
        const { assert!(size_of::<Place>() <= BYTES) };
        // SAFETY: a new mapping touches no other memory. Where the advice is not taken, nothing happens.
        let place = unsafe {
            let place = mmap(null_mut(), BYTES, READ_WRITE, PRIVATE_ANONYMOUS, -1, 0);
            if place.is_null() || place as isize == -1 {
                return None;
            }
            madvise(place, BYTES, WIPE_ON_FORK);
            place.cast::<Place>()
        };
        Some(CallLock { place, held: AtomicBool::new(false) })
    }

    fn place(&self) -> &Place {
        // SAFETY: the mapping lives as long as `self`; zeros are valid for all that is in it.
        unsafe { &*self.place }
    }

    /// Waits for the lock, and holds it as long as the guard lives.
    pub(crate) fn lock(&self) -> Result<CallGuard<'_>, Refused> {
        // SAFETY: gives the number of this thread, which is not 0.
        let (place, this) = (self.place(), unsafe { pthread_self() });
        let mutex = place.mutex.get().cast();
        // SAFETY: an initialised mutex that does not move. A thread that holds it does not wait for it.
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
        // SAFETY: exactly what mmap gave; nobody holds the lock or waits for it.
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
        // SAFETY: this thread holds it. In a forked process it may be free already, which is no error where it is zeros.
        unsafe { pthread_mutex_unlock(place.mutex.get().cast()) };
    }
}
