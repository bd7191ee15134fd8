//! Partial results of reductions, in registers of each thread.

use super::lanes::Lane;
use crate::ptx::{Operand, Reg};
use crate::scalar::ReduceKind;
use crate::shape::Elem;
use crate::tile::{Inst, Value};

/// A partial result.
#[derive(Clone, Debug)]
pub(super) struct Accumulator {
    /// The reduction.
    pub(super) inst: Inst,
    /// What is computed.
    pub(super) kind: ReduceKind,
    /// Type of the elements.
    pub(super) elem: Elem,
    /// Its register.
    pub(super) value: Reg,
    /// Of the greatest element its index.
    pub(super) index: Option<Reg>,
    /// The result.
    pub(super) result: Value,
}

impl Accumulator {
    /// The partial result as an element.
    pub(super) fn lane(&self) -> Lane {
        Lane { value: Operand::Reg(self.value), elem: self.elem }
    }

    /// The index as an element.
    pub(super) fn index_lane(&self) -> Option<Lane> {
        self.index.map(|r| Lane { value: Operand::Reg(r), elem: Elem::I32 })
    }
}
