//! attnc, an educational ahead-of-time compiler for attention graphs.
//!
//! # The way through
//!
//! ```text
//! model.attn
//!   tokens        syntax/        logos
//!   AST           syntax/        LALRPOP, grammar/attn.lalrpop
//!   typed AST     types/         names resolved, shapes inferred with symbolic dimensions (shape/)
//!   graph IR      ir/            SSA in CFG form, tensors as values (made by lowering/graph/)
//!     passes      passes/        simplify, CSE, DCE, LICM, fuse-attention, fuse-epilogues, ...
//!   tile IR       tile/          kernels and plans (made by lowering/tile/), then scheduled
//!   code          codegen/cpu/   Cranelift, 128-bit vectors
//!   object        runtime/       linked with the support library -> model.so, model.h, model.py
//! ```
//!
//! `driver` is that list as one straight-line function; `cli` turns a command line into its options.

pub mod cli;
pub mod codegen;
pub mod diagnostics;
pub mod driver;
pub mod ir;
pub mod irtext;
pub mod lowering;
pub mod passes;
pub mod runtime;
pub mod scalar;
pub mod shape;
pub mod stack;
pub mod syntax;
pub mod tensor;
pub mod tile;
pub mod types;
