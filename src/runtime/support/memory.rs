//! Rust's global allocator, on top of the C library's; with a reserve for when that is exhausted.
//!
//! What may be large, and what lives as long as a handle, is allocated fallibly (`try_reserve`,
//! [`Buffer`](crate::sys::Buffer), [`try_box`](crate::sys::try_box)). Small allocations that live as long
//! as a call, such as lists of a few pointers and the message of an error, cannot fail in Rust: they come from the reserve, and
//! return to it, so a call that runs out of memory ends with a status and a message.

use core::alloc::{GlobalAlloc, Layout};
use core::cell::UnsafeCell;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicBool, Ordering};

use crate::sys;

/// Bytes of the reserve. They lie in memory that the system gives only once it is written to.
const SIZE: usize = 1 << 20;
/// The smallest piece, 2 to this power.
const SMALLEST: u32 = 4;
/// Sizes of pieces, each twice the one before: up to 128 KiB.
const KINDS: usize = 14;

/// Memory that is handed out in pieces of some sizes; what comes back waits for the next of its size.
#[repr(C, align(16))]
struct Reserve {
    memory: UnsafeCell<[u8; SIZE]>,
    /// Bytes that were handed out at some time; a thread at a time has this and what follows.
    used: UnsafeCell<usize>,
    /// The first free piece of each size, which begins with the address of the next.
    free: UnsafeCell<[*mut u8; KINDS]>,
    taken: AtomicBool,
}

// SAFETY: who has set `taken` has the rest alone.
unsafe impl Sync for Reserve {}

static RESERVE: Reserve = Reserve {
    memory: UnsafeCell::new([0; SIZE]),
    used: UnsafeCell::new(0),
    free: UnsafeCell::new([null_mut(); KINDS]),
    taken: AtomicBool::new(false),
};

/// The kind of piece for this many bytes.
fn kind_of(size: usize) -> Option<usize> {
    let power = size.max(1 << SMALLEST).checked_next_power_of_two()?.trailing_zeros();
    usize::try_from(power - SMALLEST).ok().filter(|kind| *kind < KINDS)
}

impl Reserve {
    fn locked<T>(&self, f: impl FnOnce() -> T) -> T {
        while self.taken.swap(true, Ordering::Acquire) {
            core::hint::spin_loop();
        }
        let out = f();
        self.taken.store(false, Ordering::Release);
        out
    }

    fn owns(&self, pointer: *mut u8) -> bool {
        let start = self.memory.get() as usize;
        (start..start + SIZE).contains(&(pointer as usize))
    }

    /// A piece of at least this many bytes; null where there is none.
    fn take(&self, size: usize) -> *mut u8 {
        let Some(kind) = kind_of(size) else { return null_mut() };
        let bytes = 1usize << (SMALLEST as usize + kind);
        // SAFETY: locked; a free piece begins with the address of the next, and what is beyond `used` nobody has.
        self.locked(|| unsafe {
            let first = self.free.get().cast::<*mut u8>().add(kind);
            if !(*first).is_null() {
                let piece = *first;
                *first = piece.cast::<*mut u8>().read();
                return piece;
            }
            let used = self.used.get();
            if SIZE - *used < bytes {
                return null_mut();
            }
            let piece = self.memory.get().cast::<u8>().add(*used);
            *used += bytes;
            piece
        })
    }

    /// Takes a piece back.
    ///
    /// # Safety
    /// It came from [`Reserve::take`] for this size.
    unsafe fn give(&self, piece: *mut u8, size: usize) {
        let Some(kind) = kind_of(size) else { return };
        // SAFETY: locked; the piece has space for an address, and is nobody's now.
        self.locked(|| unsafe {
            let first = self.free.get().cast::<*mut u8>().add(kind);
            piece.cast::<*mut u8>().write(*first);
            *first = piece;
        });
    }
}

/// The allocator.
struct LibcAllocator;

// SAFETY: malloc and free have the contract of a global allocator, up to their alignment of 16, which is checked; pieces of
// the reserve are aligned to that too, and go back to it.
unsafe impl GlobalAlloc for LibcAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if layout.align() > 16 {
            return null_mut();
        }
        // SAFETY: malloc takes any size.
        let found = unsafe { sys::malloc(layout.size().max(1)) };
        if found.is_null() { RESERVE.take(layout.size()) } else { found }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the pointer came from `alloc` for this layout.
        unsafe { if RESERVE.owns(pointer) { RESERVE.give(pointer, layout.size()) } else { sys::free(pointer) } }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the pointer came from `alloc` for this layout; what is copied fits both.
        unsafe {
            if !RESERVE.owns(pointer) {
                let found = sys::realloc(pointer, size.max(1));
                if !found.is_null() {
                    return found;
                }
            }
            let Ok(wanted) = Layout::from_size_align(size, layout.align()) else { return null_mut() };
            let found = self.alloc(wanted);
            if !found.is_null() {
                core::ptr::copy_nonoverlapping(pointer, found, layout.size().min(size));
                self.dealloc(pointer, layout);
            }
            found
        }
    }
}

#[global_allocator]
static ALLOCATOR: LibcAllocator = LibcAllocator;
