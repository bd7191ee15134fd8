//! The command's memory: where the system gives no more, the process ends with an exit code of its own.
//!
//! In: the exit code. Out: nothing. Code that can do without memory still gets an error; only
//! where Rust gives up (it aborts) is it decided here how the process ends.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

#[global_allocator]
static MEMORY: Memory = Memory;

/// The system's allocator, which takes note of what it refuses.
struct Memory;

/// Was memory refused?
static REFUSED: AtomicBool = AtomicBool::new(false);
/// How the process ends then.
static CODE: AtomicI32 = AtomicI32::new(0);

fn noted(given: *mut u8) -> *mut u8 {
    if given.is_null() {
        REFUSED.store(true, Ordering::Relaxed);
    }
    given
}

// SAFETY: every call goes to the system's allocator as it came, and its answer back.
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

/// From now on the process ends with this code where memory was refused and Rust aborts.
pub(crate) fn exit_when_it_is_used_up(code: u8) {
    CODE.store(i32::from(code), Ordering::Relaxed);
    // SAFETY: the handler only reads atomics, writes, and exits.
    unsafe { libc::signal(libc::SIGABRT, on_abort as *const () as libc::sighandler_t) };
}

extern "C" fn on_abort(_: libc::c_int) {
    if REFUSED.load(Ordering::Relaxed) {
        let text = b"error: there is not enough memory\n";
        // SAFETY: both may be called in a handler; the text is as long as it says. Whether it arrives does not matter.
        unsafe {
            let _ = libc::write(libc::STDERR_FILENO, text.as_ptr().cast(), text.len());
            libc::_exit(CODE.load(Ordering::Relaxed));
        }
    }
    // The abort continues when this returns.
}
