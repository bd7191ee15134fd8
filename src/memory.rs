//! Memory allocation: if memory runs out, the process ends with a distinct exit code.
//!
//! In: the exit code. Out: nothing. Fallible allocations still return errors; this only replaces
//! the abort of infallible ones.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

#[global_allocator]
static MEMORY: Memory = Memory;

/// The system's allocator, which records failures.
struct Memory;

/// An allocation has failed.
static REFUSED: AtomicBool = AtomicBool::new(false);
/// Exit code for that case.
static CODE: AtomicI32 = AtomicI32::new(0);

fn noted(given: *mut u8) -> *mut u8 {
    if given.is_null() {
        REFUSED.store(true, Ordering::Relaxed);
    }
    given
}

// SAFETY: forwards every call to the system's allocator unchanged.
unsafe impl GlobalAlloc for Memory {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as the caller promises.
        noted(unsafe { System.alloc(layout) })
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as the caller promises.
        noted(unsafe { System.alloc_zeroed(layout) })
    }

    unsafe fn realloc(&self, old: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: as the caller promises.
        noted(unsafe { System.realloc(old, layout, size) })
    }

    unsafe fn dealloc(&self, old: *mut u8, layout: Layout) {
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(old, layout) }
    }
}

/// Makes the process exit with this code, instead of SIGABRT, if it aborts after an allocation
/// failure.
pub(crate) fn exit_when_it_is_used_up(code: u8) {
    CODE.store(i32::from(code), Ordering::Relaxed);
    // SAFETY: the handler only reads atomics, writes, and exits.
    unsafe { libc::signal(libc::SIGABRT, on_abort as *const () as libc::sighandler_t) };
}

extern "C" fn on_abort(_: libc::c_int) {
    if REFUSED.load(Ordering::Relaxed) {
        let text = b"error: there is not enough memory\n";
        // SAFETY: both functions are async-signal-safe; the pointer and length match. Write errors
        // are ignored.
        unsafe {
            let _ = libc::write(libc::STDERR_FILENO, text.as_ptr().cast(), text.len());
            libc::_exit(CODE.load(Ordering::Relaxed));
        }
    }
    // Returning lets the abort proceed.
}
