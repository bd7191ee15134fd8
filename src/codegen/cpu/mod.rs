//! The CPU back end: scheduled tile IR to CLIF, to an object.
//!
//! In: verified, scheduled tile IR. Out: an object file with kernels, plans and the model's descriptor. It makes no
//! decision that the tile IR could carry; 128-bit vectors are all that Cranelift has on x86-64.

pub mod math;
