//! Recomputes attention results that are not finite: one key after another, skipping values with
//! weight 0.
//!
//! In: the result of a tensor core attention for a tile of queries. Out: the same if all of it is
//! finite; otherwise the result according to `tile::attention`, in the same registers.
//!
//! A tile of weights times a tile of values multiplies all of them, and 0 times NaN is NaN; but a
//! masked key must contribute nothing, whatever its value is. Which keys are masked differs between
//! queries, so no matmul of tiles can skip them. Therefore the result is checked when all keys are
//! done, by all warps that share it. If it is not finite, they read keys and values again, a row at
//! a time, without shared memory, so it does not matter what other warps of the block are doing. As
//! in the CPU's schedule (`schedule/attention/keys.rs`), it is optimised for size, since it does
//! not run if all values are finite.

use super::super::attention::Masks;
use super::attention::AttentionTiles;
use super::build::{self, ONE};
use super::scores::{Scores, Softmax};
use crate::scalar::{BinaryOp, CmpOp, ReduceKind, Scalar};
use crate::shape::Elem;
use crate::tile::attention::{KEYS, QUERIES, ScoreOp, VALUES};
use crate::tile::{Extent, KernelBuilder, Value};

/// Columns of queries read at a time.
const COLUMNS: usize = 64;

impl AttentionTiles<'_> {
    /// Maxima, sums and result over a range of keys, which had the values `before`. If the values
    /// `now` are not finite, they are recomputed.
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

    /// Processes one key.
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
