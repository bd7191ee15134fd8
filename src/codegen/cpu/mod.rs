//! The CPU back end: scheduled tile IR to CLIF, to an object.
//!
//! In: verified, scheduled tile IR and the model's interface. Out: an object file with kernels,
//! plans and the model's descriptor, and on request their CLIF and assembly. It makes no decision
//! that the tile IR could express. Cranelift has only 128-bit vectors on x86-64; wider code is in
//! `wide`.

mod ahead;
pub mod clif;
mod code;
mod debug;
mod dot;
mod function;
mod integers;
mod kernel;
mod lanes;
mod listing;
pub mod math;
mod object;
mod origins;
mod pair_rows;
mod plan;
mod run;
mod target;
mod transpose;
mod wide;

pub use function::Narrow;

/// Operations of virtual-register code: name, operands and result as text; meaning.
pub fn machine_operations() -> Vec<(String, &'static str)> {
    wide::machine_operations()
}

pub use object::{Compiled, GpuKernels, Tier, compile};
#[cfg(feature = "llvm")]
pub(crate) use target::kernel_name;
pub use target::{Arch, EmitOptions, bf16_levels, byte_levels, levels};
