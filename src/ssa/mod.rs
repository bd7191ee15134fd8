//! The SSA body that all IRs share: blocks with arguments, instructions, values, jumps.
//!
//! What lives here: [`Body`] with its edits (`edits`), its jumps ([`Terminator`]), what holds of every body's structure
//! (`verify`), and the passes that need no more of an operation than its [`Effects`] (`cse`, `dce`). What comes in:
//! a [`Dialect`], which says what operations and types are. What goes out: bodies that graph IR and tile IR build on. What
//! it must not know: any operation, any type.
//!
//! A body is in control-flow-graph form: a list of blocks, each a list of instructions that ends in a terminator. Blocks
//! have arguments in place of phi instructions; a jump gives a value for each. An instruction has one result at most.
//! What an instruction *is* stands apart from the *order* of instructions ([`BlockData::insts`]) and of blocks
//! ([`Body::layout`]), so that an instruction is moved by moving its number. One that is in no block any more is dead:
//! nothing points to it, and printing renumbers.
//!
//! [`crate::cfg`] computes orders of blocks, dominators and loops; it knows only of jumps.

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
pub use cse::{Known, fold_and_merge, merge_common};
pub use dce::{live, remove_dead};
pub use dialect::{Dialect, Effects, Touches};
pub use edits::Use;
pub use entities::{Block, Inst, Value};
pub use terminator::{BlockCall, Jumps, Terminator};
