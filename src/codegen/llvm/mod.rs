//! The LLVM back end (cargo feature `llvm`): the kernels of scheduled tile IR through LLVM 19, as
//! explicit vectors of the instruction set's width. It serves for comparison: same modules,
//! schedules and tests as `codegen::cpu`.
//!
//! In: modules scheduled for several instruction sets. Out: for each an object file that defines
//! its kernels as hidden symbols, `avx2.kernel.NAME`, of the runtime's `Kernel` type; on request
//! their assembly. Plans and the descriptor gain nothing from a second code generator:
//! `codegen::cpu` compiles them into an object that refers to the kernels by name, and the linker
//! joins the objects.
//!
//! * `object`: modules, target machines, LLVM's `default<O2>` pipeline, object files;
//! * `code`: run-time dimensions, indices, scalars, buffers; `kernel`: grid and blocks;
//! * `run`: routines of vector IR, to which `lowering::vector` lowers runs;
//! * `dot`, `transpose`, `pair_rows`: the other operations on tiles; `panels`, `dot_whole`: matmuls
//!   by narrow weights; `product`: code common to all matmuls;
//! * `lanes`, `memory`, `math`: operations on vectors of elements, built with the helpers of
//!   `emit`.
//!
//! Must not know: Cranelift, plans, the runtime beyond offsets in the context. Nothing is decided
//! here: LLVM's passes must preserve the meaning of each operation, so there are no fast-math
//! flags; only matmuls and polynomials use fused multiply-adds, if the instruction set has them.
//! Dot products of bytes and of `bf16` pairs are target intrinsics, if the instruction set has
//! them.

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
mod product;
mod run;
mod transpose;

pub use object::{Kernels, kernels};
