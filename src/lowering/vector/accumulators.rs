//! Accumulators of a run's reductions: registers that a loop carries.
//!
//! In: what `reduce` puts into them. Out: the values that change from iteration to iteration.

use crate::ssa::Value as Operand;
use crate::tile::Inst;

/// The accumulators of a reduction.
#[derive(Clone, Default)]
pub(super) struct Sum {
    /// One for each vector, then, if rows go in pairs, one for each vector of the second rows.
    pub(super) parts: Vec<Operand>,
    /// For each vector, which lanes had a NaN.
    pub(super) nans: Vec<Operand>,
    /// For each vector, what the first of two rows brought.
    pub(super) first: Vec<Option<Operand>>,
    /// Of an `argmax`, for each vector where its maxima stand.
    pub(super) places: Vec<Operand>,
    /// The sum of the blocks before this one.
    pub(super) before: Option<Operand>,
    /// The sum of the elements beyond the last full vector.
    pub(super) last: Option<Operand>,
}

/// The accumulators of a reduction.
pub(super) fn sum_of(sums: &mut [(Inst, Sum)], i: Inst) -> Option<&mut Sum> {
    sums.iter_mut().find(|(of, _)| *of == i).map(|(_, sum)| sum)
}

impl Sum {
    /// What changes from iteration to iteration.
    pub(super) fn accumulators(&mut self) -> impl Iterator<Item = &mut Operand> {
        self.parts
            .iter_mut()
            .chain(&mut self.nans)
            .chain(&mut self.places)
            .chain(&mut self.before)
            .chain(&mut self.last)
    }
}
