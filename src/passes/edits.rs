//! Proposed edits: how an author would change the program so that a missed rewrite is made.
//!
//! In: instructions, whose locations and operations say which expressions they were made from. Out:
//! edits as data, for remarks. The text of the program is not known here, so an edit may turn out
//! to have no counterpart in it, or an invalid one: callers try it before they show it.

use crate::ir::{Function, Inst, Loc};

/// An expression of the program: where it begins, and the name of its operation.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Written {
    /// Where it begins.
    pub loc: Loc,
    /// Name of the operation in graph IR.
    pub op: &'static str,
}

impl Written {
    pub(super) fn from(f: &Function, inst: Inst) -> Written {
        let data = f.inst(inst);
        Written { loc: data.loc, op: data.op.info().name }
    }
}

/// An edit of the program.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Edit {
    /// Writes another expression instead of one.
    Replace {
        /// The replaced expression.
        at: Written,
        /// The new text, in which `{n}` stands for operand `n` below, in parentheses where an
        /// operator needs them, and `{=n}` for the same as it is written.
        with: String,
        /// Operands as they are written now: an expression, and which operand of it.
        operands: Vec<(Written, usize)>,
    },
    /// Removes the statement that begins here.
    Remove(Loc),
    /// Exchanges the two statements that contain these locations.
    Swap(Loc, Loc),
}

impl Edit {
    /// Replaces an instruction's expression.
    pub(super) fn replace(f: &Function, at: Inst, with: impl Into<String>, operands: &[(Inst, usize)]) -> Edit {
        let operands = operands.iter().map(|(i, n)| (Written::from(f, *i), *n)).collect();
        Edit::Replace { at: Written::from(f, at), with: with.into(), operands }
    }
}
