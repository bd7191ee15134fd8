//! The SSA body that all IRs share: blocks with arguments, instructions, values, jumps.
//!
//! Contents: [`Body`] with its edits (`edits`), jumps ([`Terminator`]), structural verification
//! (`verify`), and passes that only need the [`Effects`] of operations (`cse`, `dce`). In: a
//! [`Dialect`], which defines operations and types. Out: bodies for all IRs. Must not know: any
//! operation, any type.
//!
//! A body is in control-flow-graph form: a list of blocks, each a list of instructions that ends in
//! a terminator. Blocks have arguments instead of phi instructions; a jump passes a value for each.
//! An instruction has at most one result. The definition of instructions is separate from their
//! order ([`BlockData::insts`]) and of blocks ([`Body::layout`]), so that moving an instruction
//! only moves its id. An instruction in no block is dead: nothing refers to it, and printing
//! renumbers.
//!
//! [`crate::cfg`] computes block orders, dominators and loops from jumps alone.

mod body;
mod cse;
mod dce;
mod dialect;
mod edits;
mod entities;
mod terminator;
#[cfg(test)]
mod tests;
pub mod verify;

pub use body::{BlockData, Body, InstData, ValueDef};
pub use cse::{Simplified, fold_and_merge, merge_common};
pub use dce::{live, remove_dead};
pub use dialect::{Dialect, Effects, Touches};
pub use edits::Use;
pub use entities::{Block, Inst, Value};
pub use terminator::{BlockCall, Jumps, Terminator};
