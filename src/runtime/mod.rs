//! Everything of a compiled model except its code: the descriptor, the support library, linking,
//! and the interfaces for C, Python and Rust.
//!
//! In: a [`descriptor::ModelDescriptor`] and an object file with kernels and plans, both from
//! `codegen`. Out: `model.so`, `model.h`, `model.py`; and, for `attnc run`, a `model.so` loaded
//! into the process and called.
//!
//! The support library (`support/`) is a separate `no_std` crate: `build.rs` compiles it with the
//! same rustc, the compiler embeds it as bytes, and `link` links it into every `model.so`. The two
//! share only `abi`. Nothing here depends on an IR, on types or on Cranelift's functions.

pub mod abi;
pub mod cuda;
pub mod cuda_functions;
mod cuda_rows;
pub mod descriptor;
pub mod dlpack;
pub mod expr;
pub mod header;
pub mod link;
pub mod load;
pub mod npy;
pub mod object;
pub mod processor;
pub mod python;
pub mod weights;
