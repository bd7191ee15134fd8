//! The LLVM back end (cargo feature `llvm`): the kernels of scheduled tile IR through LLVM 19, as explicit vectors of the
//! level's width. It is there to compare with: the same modules, the same schedules, the same tests as `codegen::cpu`.
//!
//! In: modules scheduled for instruction set levels. Out: for each level an object file that defines its kernels as hidden
//! symbols, `avx2.kernel.NAME`, of the runtime's `Kernel` type; on request their assembly. Plans and the descriptor are
//! host programs and data, which gain nothing from a second code generator: `codegen::cpu` makes them here too, in an
//! object of its own that refers to the kernels by name, and the linker brings them together.
//!
//! * `object`: modules, target machines, LLVM's `default<O2>` pipeline, object files;
//! * `code`: run-time dimensions, indices, scalars, buffers; `kernel`: grid and blocks;
//! * `run`: routines of vector IR, which `lowering::vector` makes of runs;
//! * `dot`, `transpose`, `pair_rows`: the other operations on tiles; `panels`, `dot_whole`: products by narrow numbers;
//! * `lanes`, `memory`, `math`: operations on vectors of elements, on which `emit` has the grip.
//!
//! What it must not know: Cranelift, plans, the runtime beyond offsets in the context. Nothing is decided here: LLVM's
//! passes may do what keeps the meaning of each operation, so there are no fast-math flags; only a product of tiles and
//! a polynomial are said to be fused multiply-adds, at levels that have the instruction. Sums of products of bytes and of
//! pairs of `bf16` are intrinsics of the processor, where its level is said to have them.

mod code;
mod dot;
mod dot_whole;
mod emit;
mod kernel;
mod lanes;
mod math;
mod memory;
mod object;
mod pair_rows;
mod panels;
mod run;
mod transpose;

pub use object::{Kernels, kernels};
