//! Rust's global allocator on top of the C library's, with a reserve for when that fails.
//!
//! Large allocations, and allocations that live as long as a handle, are fallible (`try_reserve`,
//! [`Buffer`](crate::sys::Buffer), [`try_box`](crate::sys::try_box)). Small allocations that live
//! as long as a call, such as short lists of pointers and an error message, cannot fail in Rust:
//! they fall back to the reserve, so a call that runs out of memory ends with a status and a
//! message.

use core::alloc::{GlobalAlloc, Layout};
use core::cell::UnsafeCell;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicBool, Ordering};

use crate::sys;

/// Size of the reserve. The operating system commits its pages only when they are written.
const SIZE: usize = 1 << 20;
/// Log2 of the smallest piece.
const SMALLEST: u32 = 4;
/// Number of size classes, each twice the previous one, up to 128 KiB.
const KINDS: usize = 14;

/// An allocator with size classes; freed pieces go to the free list of their class.
#[repr(C, align(16))]
struct Reserve {
    memory: UnsafeCell<[u8; SIZE]>,
    /// Bytes allocated so far; protected by `taken`, like the next field.
    used: UnsafeCell<usize>,
    /// Free list of each size class; a free piece begins with the address of the next one.
    free: UnsafeCell<[*mut u8; KINDS]>,
    taken: AtomicBool,
}

// SAFETY: `taken` is a lock for the other fields.
unsafe impl Sync for Reserve {}

static RESERVE: Reserve = Reserve {
    memory: UnsafeCell::new([0; SIZE]),
    used: UnsafeCell::new(0),
    free: UnsafeCell::new([null_mut(); KINDS]),
    taken: AtomicBool::new(false),
};

/// The size class for this many bytes.
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

    /// Allocates at least `size` bytes; null if the reserve is exhausted.
    fn take(&self, size: usize) -> *mut u8 {
        let Some(kind) = kind_of(size) else { return null_mut() };
        let bytes = 1usize << (SMALLEST as usize + kind);
        // SAFETY: locked; a free piece begins with the address of the next, and memory beyond
        // `used` is unallocated.
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

    /// Frees a piece.
    ///
    /// # Safety
    /// It came from [`Reserve::take`] with this size.
    unsafe fn give(&self, piece: *mut u8, size: usize) {
        let Some(kind) = kind_of(size) else { return };
        // SAFETY: locked; the piece has space for an address, and is no longer in use.
        self.locked(|| unsafe {
            let first = self.free.get().cast::<*mut u8>().add(kind);
            piece.cast::<*mut u8>().write(*first);
            *first = piece;
        });
    }
}

struct LibcAllocator;

// SAFETY: malloc and free have the contract of a global allocator up to an alignment of 16, which
// is checked; pieces of the reserve have this alignment too, and are returned to it.
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
        // SAFETY: the pointer came from `alloc` for this layout; the copied bytes fit both.
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
