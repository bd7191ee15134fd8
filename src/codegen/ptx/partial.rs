//! Partial results of reductions, in registers of each thread.

use super::lanes::Lane;
use crate::ptx::{Operand, Reg};
use crate::scalar::ReduceKind;
use crate::shape::Elem;
use crate::tile::{Inst, Value};

#[derive(Clone, Debug)]
pub(super) struct Accumulator {
    pub(super) inst: Inst,
    pub(super) kind: ReduceKind,
    /// Element type.
    pub(super) elem: Elem,
    pub(super) value: Reg,
    /// For argmax: index of the greatest element.
    pub(super) index: Option<Reg>,
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
