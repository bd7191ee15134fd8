//! An operation whose gradient is computed: an instruction with the values that it has here.
//!
//! In: from `sweep`. Out: read by `rules` and `movement`. It knows no derivatives.

use crate::ir::{InstData, Value};

/// An instruction at the place where its gradient is computed.
pub(super) struct Site<'a> {
    pub inst: &'a InstData,
    /// Its operands here.
    pub operands: Vec<Value>,
    /// Its result here.
    pub result: Value,
    /// The gradient of the result.
    pub gradient: Value,
    /// Does the operand have a gradient?
    pub wanted: Vec<bool>,
    /// Of a softmax: the sum of `gradient * result` for each row, if it is known.
    pub row_sums: Option<Value>,
    pub again: bool,
}

/// The gradients of operands, by their numbers.
pub(super) type OperandGradients = Vec<(usize, Value)>;
