//! Attention whose result is not finite, again: one key after another, and a weight of 0 leaves its value out.
//!
//! In: what an attention on tensor cores gave for a tile of queries. Out: the same where all of it is finite; else what the formula of
//! `tile::attention` gives, in the same registers.
//!
//! A tile of weights times a tile of values multiplies all of them, and 0 times NaN is NaN; but a key that a mask hides contributes nothing,
//! whatever its value is. Which keys are hidden differs from query to query, so no product of tiles can leave them out. Therefore the result
//! is looked at when all keys are done, by all warps that share it. If there is something else than finite numbers, they read keys and
//! values once more, a row at a time, without shared memory: what others of the block do meanwhile does not matter. As the CPU's
//! schedule does (`schedule/attention/keys.rs`), and as it does not run where all numbers are finite, it is written to be short.

use super::attention::Parts;
use super::build::{self, ONE};
use super::scores::{Masks, Scores, Softmax};
use crate::scalar::{BinaryOp, CmpOp, ReduceKind, Scalar};
use crate::shape::Elem;
use crate::tile::attention::{KEYS, QUERIES, ScoreOp, VALUES};
use crate::tile::{Extent, KernelBuilder, Value};

/// Columns of queries that are read at a time.
const COLUMNS: usize = 64;

impl Parts<'_> {
    /// Maxima, sums and result of the keys from one to another, which were `before` those. If what there is `now` is not finite, they are
    /// computed again.
    pub(super) fn again_if_special(
        &self,
        kb: &mut KernelBuilder,
        scores: &Scores<'_>,
        (first, end): (Value, Value),
        before: Softmax,
        (now, result): (Softmax, Value),
    ) -> Option<(Softmax, Value)> {
        let may_hide = |op: &ScoreOp| !matches!(op, ScoreOp::Cap(_));
        if !scores.attention.steps.iter().any(|step| may_hide(&step.op)) {
            return Some((now, result));
        }
        kb.at(scores.attention.locations.values);
        let nothing = kb.scalar(Scalar::Float(0.0), Elem::F32);
        // 0 for a finite number, else NaN.
        let rest = kb.binary(BinaryOp::Sub, result, result);
        let rest = kb.reduce(ReduceKind::Max, 1, rest);
        let is_special = kb.compare(CmpOp::Ne, rest, nothing);
        let any = kb.reduce(ReduceKind::Any, 0, is_special);
        let again = kb.element(any);
        let given = [now.highest, now.sum, result];
        let (careful, _) = kb.new_block(Vec::new());
        let (finite, _) = kb.new_block(Vec::new());
        let (done, results) = kb.new_block(given.iter().map(|v| kb.ty(*v).clone()).collect());
        kb.br_if(again, (careful, &[]), (finite, &[]));
        kb.switch_to(finite);
        kb.br(done, &given);
        kb.switch_to(careful);
        let none = scores.no_result(kb, self.values);
        let keys = kb.begin_loop(&[first, before.highest, before.sum, none]);
        let [key, highest, sum, result] = *keys.args.as_slice() else { return None };
        let more = kb.compare_scalars(CmpOp::Lt, key, end);
        kb.enter_loop(&keys, more);
        let (softmax, result) = self.key(kb, scores, key, Softmax { highest, sum }, result)?;
        let next = kb.plus(key, 1);
        kb.br(keys.head, &[next, softmax.highest, softmax.sum, result]);
        kb.switch_to(keys.done);
        kb.br(done, &[highest, sum, keys.args.last().copied()?]);
        kb.switch_to(done);
        let [highest, sum, result] = *results.as_slice() else { return None };
        Some((Softmax { highest, sum }, result))
    }

    /// One key.
    fn key(
        &self,
        kb: &mut KernelBuilder,
        scores: &Scores<'_>,
        key: Value,
        before: Softmax,
        result: Value,
    ) -> Option<(Softmax, Value)> {
        let [q, k, v] = [kb.param(QUERIES)?, kb.param(KEYS)?, kb.param(VALUES)?];
        let locations = scores.attention.locations;
        let axes = (scores.points.len(), scores.points.len() + 1);
        let rows = Extent::Static(scores.rows);
        kb.at(locations.scores);
        let mut products = kb.full(Scalar::Float(0.0), Elem::F32, rows, ONE);
        for col in (0..self.width).step_by(COLUMNS) {
            let cols = Extent::Static((self.width - col).min(i64::try_from(COLUMNS).ok()?));
            let col = kb.index(col);
            let at = |row: Value| [scores.points.as_slice(), &[row, col]].concat();
            let queries = kb.load(q, &at(scores.row), (Some(scores.of_rows), Some(axes.1)), rows, cols);
            let of_key = kb.load(k, &at(key), (None, Some(axes.1)), ONE, cols);
            let each = kb.binary(BinaryOp::Mul, queries, of_key);
            let sum = kb.reduce(ReduceKind::Sum, 1, each);
            products = kb.binary(BinaryOp::Add, products, sum);
        }
        let of_one = Scores { keys: 1, ..scores.clone() };
        let score = of_one.masked(kb, products, key, Masks::All)?;
        kb.at(locations.softmax);
        let highest = kb.binary(BinaryOp::Max, before.highest, score);
        let base = scores.base(kb, highest);
        let (weight, kept) = (base.weight(kb, score), base.kept(kb, before.highest));
        let sum = kb.binary(BinaryOp::Mul, before.sum, kept);
        let sum = kb.binary(BinaryOp::Add, sum, weight);
        kb.at(locations.values);
        let zero = kb.index(0);
        let at = [scores.points.as_slice(), &[key, zero]].concat();
        let values = kb.load(v, &at, (None, Some(axes.1)), ONE, Extent::Static(self.values));
        let result = build::scaled(kb, result, kept);
        let more = build::scaled(kb, values, weight);
        let result = kb.binary(BinaryOp::Add, result, more);
        Some((Softmax { highest, sum }, result))
    }
}
