//! Accumulators of a run's reductions: registers carried by a loop.
//!
//! In: partial results from `reduce`. Out: the loop-carried values.

use crate::ssa::Value as Operand;
use crate::tile::Inst;

/// The accumulators of a reduction.
#[derive(Clone, Default)]
pub(super) struct Sum {
    /// One per vector; if rows go in pairs, followed by one per vector for the second rows.
    pub(super) parts: Vec<Operand>,
    /// Per vector, the mask of lanes that had a NaN.
    pub(super) nans: Vec<Operand>,
    /// Per vector, the element of the first row of a pair, until the second is tested with it.
    pub(super) first: Vec<Option<Operand>>,
    /// For `argmax`: per vector, the indices of the maxima.
    pub(super) places: Vec<Operand>,
    /// The sum of the blocks before this one.
    pub(super) before: Option<Operand>,
    /// The sum of the elements beyond the last full vector.
    pub(super) last: Option<Operand>,
}

/// The accumulators of reduction `i`.
pub(super) fn sum_of(sums: &mut [(Inst, Sum)], i: Inst) -> Option<&mut Sum> {
    sums.iter_mut().find(|(of, _)| *of == i).map(|(_, sum)| sum)
}

impl Sum {
    /// The loop-carried values.
    pub(super) fn accumulators(&mut self) -> impl Iterator<Item = &mut Operand> {
        self.parts
            .iter_mut()
            .chain(&mut self.nans)
            .chain(&mut self.places)
            .chain(&mut self.before)
            .chain(&mut self.last)
    }
}
