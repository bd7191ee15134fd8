//! Routines: vector IR with control flow and memory, the lowered form of loop nests over tiles.
//!
//! In: a `run` of a scheduled kernel, lowered by `lowering::vector` for vectors of N lanes; or
//! text. Out: routines that back ends translate one to one. Must not know: tiles, machine
//! instructions.
//!
//! A [`Routine`] is a body of [`crate::ssa`]: blocks with arguments, instructions with one result
//! at most. Its parameters have 64 bits each. A value is
//!
//! * some lanes, `f32x16`, `i32x8`, `boolx16` (a mask, however a machine stores it); one lane is a
//!   scalar, `f32`;
//! * an `index`, 64 bits, for counts and distances in bytes;
//! * an `address`: a byte of memory.
//!
//! Elementwise operations are shared with [`crate::scalar`], with the same meaning: `max` is NaN if
//! either operand is. An elementary function (`exp`) is defined by its file in `functions/`, for
//! the routine's [`Features`]. Loads and stores name the type of elements in memory:
//! `load %p, elem=bf16` gives `f32`. They access contiguous elements, optionally under a mask, or
//! strided elements.
//!
//! ```text
//! run @scale.0(%0 "scratch": address, %1 "%n": index, %2: f32) lanes(16) features(fma, round, scale) {
//! ^bb0:
//!   %3 = const 0                              : index
//!   %4 = splat %2                             : f32x16
//!   br ^bb1(%3)
//! ^bb1(%5: index):
//!   %6 = load %0 + 4*%5, elem=f32             : f32x16
//!   %7 = mul %6, %4                           : f32x16
//!   store %0 + 4*%5, %7, elem=f32
//!   ..
//! ```
//!
//! The operations are the table in [`op`], `rules` types them, [`verify()`] checks the rules,
//! [`text`] prints and parses, [`interp`] executes a routine on checked memory. [`legalise`]
//! replaces operations that a machine does not support well.

mod attribute;
mod builder;
pub mod interp;
pub mod legalise;
pub mod op;
mod rules;
#[cfg(test)]
mod tests;
pub mod text;
mod verify;

use std::convert::Infallible;
use std::fmt;
use std::hash::{Hash, Hasher};

pub use attribute::{AddressMode, Reduction};
pub use builder::{Builder, MemoryOperand};
pub use op::Op;
pub use verify::{Error, verify};

use super::Features;
use crate::shape::Elem;
use crate::ssa::{self, Dialect, Effects, Value};
use crate::table::OperandTypes;

/// The type of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Type {
    /// This many lanes of `f32`, `i32`, `i64` or `bool`; one lane is a scalar.
    Lanes(Elem, u32),
    /// A 64-bit integer, for counts and byte offsets.
    Index,
    /// The address of a byte.
    Address,
}

impl Type {
    /// Element type of lanes.
    pub fn elem(self) -> Option<Elem> {
        match self {
            Type::Lanes(elem, _) => Some(elem),
            Type::Index | Type::Address => None,
        }
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Type::Lanes(elem, 1) => elem.fmt(f),
            Type::Lanes(elem, lanes) => write!(f, "{elem}x{lanes}"),
            Type::Index => f.write_str("index"),
            Type::Address => f.write_str("address"),
        }
    }
}

/// The dialect of vector IR.
#[derive(Clone, Copy, Debug)]
pub struct VectorIr;

/// Blocks, instructions and values of a routine. The entry has no arguments.
pub type Body = ssa::Body<VectorIr>;
/// An instruction of a routine.
pub type InstData = ssa::InstData<Op>;
/// A terminator of a routine's block.
pub type Terminator = ssa::Terminator<Infallible>;

/// A function over vectors, with control flow and memory. It has no result; it stores its results
/// to memory.
#[derive(Clone, Debug)]
pub struct Routine {
    /// Its name: `softmax.0.1`, the second run of a kernel.
    pub name: String,
    /// Lanes per vector.
    pub lanes: u32,
    /// Features of the machine, which select the versions of elementary functions.
    pub features: Features,
    /// Its parameters in order: scalars, indices and addresses, each with a label (possibly empty).
    pub params: Vec<(Value, String)>,
    /// Blocks and instructions.
    pub body: Body,
}

impl Dialect for VectorIr {
    type Op = Op;
    type Type = Type;
    type Roles = Infallible;

    const CONDITION: &'static str = "bool";

    fn is_condition(ty: &Type) -> bool {
        *ty == Type::Lanes(Elem::Bool, 1)
    }

    fn result_type(op: &Op, operands: &[&Type], declared: Option<&Type>) -> Result<Option<Type>, String> {
        op.rule(OperandTypes { types: operands, declared })
    }

    fn effects(op: &Op) -> Effects {
        op.info().effects
    }

    fn name(op: &Op) -> &'static str {
        op.info().name
    }

    fn digest(op: &Op, h: &mut impl Hasher) {
        op.hash(h);
    }

    fn is_commutative(op: &Op) -> bool {
        matches!(op, Op::Binary(b) if b.is_commutative())
    }
}
