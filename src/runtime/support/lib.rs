//! The support library: the part of a `model.so` that is the same for every model.
//!
//! In: the model's descriptor (`../abi.rs`), which the linker puts beside it; calls from C. Out: the exported `attnc_`
//! functions of `api.rs`, `entry.rs`, `introspect.rs` and `profile.rs`. It opens weights, checks what comes in at the door, gives the
//! model's plans their memory and runs them. It knows no tensor operation.
//!
//! A `no_std`, `panic = "abort"` program of its own that needs libc alone: `build.rs` compiles it, and the compiler
//! carries the one object file that comes out. Nothing in it may panic on any input: what comes from outside is never
//! indexed, and its arithmetic is checked. Memory whose size comes from outside is asked for with an error on refusal.

#![no_std]
#![deny(unsafe_op_in_unsafe_fn)]

extern crate alloc;

#[path = "../abi.rs"]
mod abi;
#[path = "../dlpack.rs"]
mod dlpack_abi;
#[path = "../processor.rs"]
mod processor;

mod ahead;
mod api;
mod bind;
mod call;
mod cpu;
mod desc;
mod dlpack;
mod door;
mod entry;
mod environment;
mod error;
mod expr;
mod float_mode;
mod glob;
mod handle;
mod header;
mod introspect;
mod pool;
mod profile;
mod python;
mod ranges;
mod safetensors;
mod sys;
mod taps;
mod weights;

/// Rust's allocator is the C library's.
struct LibcAllocator;

// SAFETY: malloc and free have the contract of a global allocator, up to their alignment of 16, which is checked.
unsafe impl core::alloc::GlobalAlloc for LibcAllocator {
    unsafe fn alloc(&self, layout: core::alloc::Layout) -> *mut u8 {
        if layout.align() > 16 {
            return core::ptr::null_mut();
        }
        // SAFETY: malloc takes any size.
        unsafe { sys::malloc(layout.size().max(1)) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, _: core::alloc::Layout) {
        // SAFETY: the pointer came from `alloc`.
        unsafe { sys::free(pointer) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, _: core::alloc::Layout, size: usize) -> *mut u8 {
        // SAFETY: the pointer came from `alloc`.
        unsafe { sys::realloc(pointer, size.max(1)) }
    }
}

#[global_allocator]
static ALLOCATOR: LibcAllocator = LibcAllocator;

/// A bug in this library, or no memory left for a small allocation: says so and stops the process.
#[panic_handler]
fn panic(info: &core::panic::PanicInfo<'_>) -> ! {
    struct Stderr;
    impl core::fmt::Write for Stderr {
        fn write_str(&mut self, s: &str) -> core::fmt::Result {
            sys::write_stderr(s.as_bytes());
            Ok(())
        }
    }
    let _ = core::fmt::Write::write_fmt(&mut Stderr, format_args!("attnc runtime: internal error: {info}\n"));
    sys::abort_process()
}

/// `core` is compiled for unwinding and names this; with `panic = "abort"` it is never called.
#[unsafe(no_mangle)]
extern "C" fn rust_eh_personality() {}

/// As [`rust_eh_personality`].
#[unsafe(no_mangle)]
extern "C" fn _Unwind_Resume() -> ! {
    sys::abort_process()
}
