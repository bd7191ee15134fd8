//! The support library: the part of a `model.so` that is the same for every model.
//!
//! In: the model's descriptor (`../abi.rs`), which the linker places in the same library; calls
//! from C. Out: a table of functions (`table.rs`), implemented in `api.rs`, `entry.rs`,
//! `introspect.rs`, `states.rs` and `python.rs`. It opens weights, checks the arguments of calls,
//! allocates memory for the model's plans and runs them. It does not know any tensor operation.
//!
//! It is a separate `no_std`, `panic = "abort"` crate that needs only libc: `build.rs` compiles it
//! to one object file, which the compiler embeds. It must not panic on any input: untrusted data is
//! never indexed unchecked, its arithmetic is checked, and running out of memory is an error
//! (`memory.rs`).

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
mod arguments;
mod bind;
mod call;
mod call_lock;
mod cpu;
mod cuda;
mod desc;
mod dlpack;
mod entry;
mod environment;
mod error;
mod expr;
mod float_mode;
mod glob;
mod handle;
mod header;
mod introspect;
mod memory;
mod pool;
mod profile;
mod python;
mod ranges;
mod request;
mod safetensors;
mod states;
mod sys;
mod table;
mod taps;
mod weight_files;
mod weights;

/// A bug in this library: prints a message and aborts.
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

/// `core` is compiled for unwinding and refers to this symbol; with `panic = "abort"` it is never
/// called.
#[unsafe(no_mangle)]
extern "C" fn rust_eh_personality() {}

/// As [`rust_eh_personality`].
#[unsafe(no_mangle)]
extern "C" fn _Unwind_Resume() -> ! {
    sys::abort_process()
}
