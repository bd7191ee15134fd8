//! Attention scores in fragments: masks and the online softmax.
//!
//! In: the operations of an attention on its scores (`tile::attention`), a tile of queries by keys
//! from the matmul. Out: the same with masks applied, and the weights, which are powers of 2.
//! Queries are rows, keys are columns.
//!
//! If masks only replace scores by `-inf` and the scale is a positive constant, the raw scores are
//! kept, and the scale goes into the exponents, with `f` = scale times log2 e. Otherwise scores are
//! scaled first, and `f` is log2 e.
//!
//! # Exponents
//!
//! A weight is `2^(s f - b)` with `b` = `m f` rounded, one FMA before the power: the difference is
//! exact except for its own rounding. The base differs from `m f` by up to half a unit in its last
//! place, so all weights of a row share the factor `2^(m f - b)`. It also occurs in the weighted
//! values and in the sum by which they are divided, because earlier weights are rescaled by
//! `2^(b' - b)`, the exact difference of the bases, which is exactly 1 while the maximum is
//! unchanged. So it cancels, as long as it is in range. From [`LARGE`] on it would not be, and is
//! not needed: scores below the maximum are then so far below that it only matters that they are
//! less, and `f` is 1, with `b` = `m`. A mask value of `-1e30`, in a row where all keys have it, is
//! an ordinary maximum.
//!
//! Maxima start at the lowest finite number: relative to it, `-inf`, the score of a masked key in a
//! row that has seen nothing, has weight 0.

use std::collections::BTreeMap;
use std::f64::consts::LOG2_E;

use super::super::attention::{Hiding, KeyRange, Masks, first_hiding, hides};
use super::build::{self, ONE};
use crate::scalar::{BinaryOp, CmpOp, ReduceKind, Scalar, UnaryOp, round_to};
use crate::shape::{Dim, Elem};
use crate::tile::attention::{Attention, Formula, ScoreOp};
use crate::tile::{Extent, KernelBuilder, Op, Value};

/// Exponents of this magnitude have a unit in the last place of 32: a score below the highest is at
/// least 16 lower in the exponent. Below this limit, the common factor of a row's weights is
/// between 2^-8 and 2^8.
const LARGE: f64 = 268_435_456.0;
/// Initial value of maxima.
const LOWEST: f64 = -(f32::MAX as f64);

/// Parameters of the scores of a tile of queries.
#[derive(Clone)]
pub(super) struct Scores<'a> {
    pub(super) attention: &'a Attention,
    /// Rank of the buffers; the last two axes are rows and columns.
    pub(super) rank: usize,
    /// Index along the leading axes.
    pub(super) points: Vec<Value>,
    /// The first query, and the number of rows of a tile: queries, or heads of one query along
    /// another axis.
    pub(super) row: Value,
    pub(super) rows: i64,
    /// The axis along which rows of a tile go: queries, or heads that share keys and values.
    pub(super) of_rows: usize,
    /// Keys per tile.
    pub(super) keys: i64,
    /// Number of queries, number of keys, and the latter minus the former.
    pub(super) s: Dim,
    pub(super) t: Dim,
    pub(super) shift: Value,
    /// The scale of scores before the masks, and then of exponents of 2.
    pub(super) scale: Option<Value>,
    pub(super) exponents: Value,
    /// Scalars of the operations: replacements of scores, or factors.
    pub(super) numbers: Vec<Option<Value>>,
}

/// Maxima, sums and results of a tile of queries so far.
#[derive(Clone, Copy)]
pub(super) struct Softmax {
    pub(super) highest: Value,
    pub(super) sum: Value,
}

/// Contribution of a tile of keys.
pub(super) struct Weights {
    /// Maxima and sums including it.
    pub(super) now: Softmax,
    /// The weights of its keys.
    pub(super) weights: Value,
    /// Factor of all earlier weights.
    pub(super) kept: Value,
}

/// The scale that goes into the exponents, if any.
fn scale_of_exponents(what: &Attention) -> Option<f64> {
    match what.scale.literal() {
        Some((x, elem))
            if what.sink.is_none() && what.steps.iter().all(hides) && (2f64.powi(-20)..=1.0).contains(&x.as_f64()) =>
        {
            Some(round_to(elem, x.as_f64()))
        }
        _ => None,
    }
}

/// Factor from differences of scores to exponents of 2.
pub(super) fn exponents(what: &Attention) -> f64 {
    scale_of_exponents(what).unwrap_or(1.0) * LOG2_E
}

/// The two scales: before the masks, and in the exponents.
pub(super) fn scale(kb: &mut KernelBuilder, what: &Attention) -> Option<(Option<Value>, Value)> {
    kb.at(what.locations.scale);
    let before = match scale_of_exponents(what) {
        Some(_) => None,
        None => Some(what.scale.scalar(kb)?),
    };
    Some((before, kb.scalar(Scalar::Float(exponents(what)), Elem::F32)))
}

/// Loads the scalars of the operations, once.
pub(super) fn numbers(kb: &mut KernelBuilder, what: &Attention) -> Option<Vec<Option<Value>>> {
    let mut out = Vec::new();
    for step in &what.steps {
        kb.at(step.loc);
        out.push(match &step.op {
            ScoreOp::Keep { fill: x, .. } | ScoreOp::Cap(x) => Some(x.scalar(kb)?),
            ScoreOp::Causal | ScoreOp::Add(_) => None,
        });
    }
    Some(out)
}

impl Scores<'_> {
    /// Are the rows of a tile consecutive queries?
    pub(super) fn is_of_queries(&self) -> bool {
        self.of_rows + 2 == self.rank
    }

    /// Is the causal mask the last one, so that keys that no query of the tile sees can be skipped?
    pub(super) fn ends_causal(&self) -> bool {
        self.attention.steps.last().is_some_and(|s| s.op == ScoreOp::Causal)
    }

    /// End of the keys that, by the causal mask, all queries of the tile see, in full tiles.
    pub(super) fn whole_end(&self, kb: &mut KernelBuilder) -> Value {
        let mut end = kb.dim(&self.t);
        if self.attention.steps.iter().any(|s| s.op == ScoreOp::Causal) {
            let seen = kb.index_binary(BinaryOp::Add, self.row, self.shift);
            let seen = kb.plus(seen, 1);
            end = kb.index_binary(BinaryOp::Min, end, seen);
            let zero = kb.index(0);
            end = kb.index_binary(BinaryOp::Max, end, zero);
        }
        let size = kb.index(self.keys);
        let tiles = kb.index_binary(BinaryOp::Div, end, size);
        kb.index_binary(BinaryOp::Mul, tiles, size)
    }

    /// End of the keys that any of `queries` queries, starting at the first, sees.
    pub(super) fn end(&self, kb: &mut KernelBuilder, queries: i64) -> Value {
        let end = kb.dim(&self.t);
        if !self.ends_causal() {
            return end;
        }
        let seen = kb.plus(self.row, queries);
        let seen = kb.index_binary(BinaryOp::Add, seen, self.shift);
        kb.index_binary(BinaryOp::Min, end, seen)
    }

    /// Initial maxima and sums: of the sink, if there is one, which counts only in the first part
    /// of split keys.
    pub(super) fn begin(&self, kb: &mut KernelBuilder, part: Option<KeyRange>) -> Option<Softmax> {
        let rows = Extent::Static(self.rows);
        let fill = |kb: &mut KernelBuilder, x: f64| kb.full(Scalar::Float(x), Elem::F32, rows, ONE);
        let Some(sink) = &self.attention.sink else {
            kb.at(self.attention.locations.softmax);
            return Some(Softmax { highest: fill(kb, LOWEST), sum: fill(kb, 0.0) });
        };
        kb.at(self.attention.locations.sink);
        let sink = self.read(kb, sink, None)?;
        let zeros = fill(kb, 0.0);
        let sink = kb.binary(BinaryOp::Add, zeros, sink);
        let lowest = kb.scalar(Scalar::Float(LOWEST), Elem::F32);
        let highest = kb.binary(BinaryOp::Max, sink, lowest);
        let base = self.base(kb, highest);
        let sum = base.weight(kb, sink);
        let Some(part) = part else { return Some(Softmax { highest, sum }) };
        let [highest, sum] = part.of_first(kb, [highest, sum]);
        Some(Softmax { highest: kb.binary(BinaryOp::Max, highest, lowest), sum })
    }

    /// The formula masks, for tiles of `queries` queries, with the position of the first of them;
    /// `None` if no mask is a formula.
    pub(super) fn hiding(&self, kb: &mut KernelBuilder) -> Option<(Hiding<'_>, usize)> {
        self.hiding_that(kb, true)
    }

    /// The same without data that differs between queries or keys, which only whole warps can read.
    pub(super) fn hiding_without_vectors(&self, kb: &mut KernelBuilder) -> Option<(Hiding<'_>, usize)> {
        self.hiding_that(kb, false)
    }

    fn hiding_that(&self, kb: &mut KernelBuilder, reads: bool) -> Option<(Hiding<'_>, usize)> {
        let steps = &self.attention.steps;
        let from = first_hiding(steps.iter())?;
        let end = kb.dim(&self.s);
        let after = kb.plus(self.row, self.rows);
        let after = kb.index_binary(BinaryOp::Min, after, end);
        let hiding = Hiding {
            steps: steps.get(from..)?.iter().collect(),
            rank: self.rank,
            points: self.points.clone(),
            row: self.row,
            queries: Extent::Static(self.rows),
            last_query: kb.plus(after, -1),
            keys: self.t.clone(),
            shift: self.shift,
            block: self.keys,
            whole_tiles: true,
            reads,
            of_queries: BTreeMap::new(),
        };
        Some((hiding.with_queries(kb)?, from))
    }

    /// Is the tile of keys that starts at `from` full, and entirely visible under the masks? `None`
    /// if there are no bounds.
    pub(super) fn all_seen(
        &self,
        kb: &mut KernelBuilder,
        hiding: &Hiding<'_>,
        first: Value,
        end: Value,
    ) -> Option<Value> {
        let always = hiding.block_at(kb, first, end)?.always?;
        let after = kb.plus(first, self.keys);
        let is_whole = kb.compare_scalars(CmpOp::Le, after, end);
        Some(kb.binary(BinaryOp::And, always, is_whole))
    }

    /// The scores of the keys starting at `first`, with masks applied; with fewer than all, the
    /// tile of keys is full.
    pub(super) fn masked(&self, kb: &mut KernelBuilder, products: Value, first: Value, masks: Masks) -> Option<Value> {
        let mut scores = products;
        if let Some(scale) = self.scale {
            kb.at(self.attention.locations.scale);
            scores = kb.binary(BinaryOp::Mul, scores, scale);
        }
        let bottom = |kb: &mut KernelBuilder| kb.scalar(Scalar::Float(f64::NEG_INFINITY), Elem::F32);
        let keys = Extent::Static(self.keys);
        let steps = self.attention.steps.iter().zip(&self.numbers).enumerate();
        for (_, (step, number)) in steps.filter(|(n, (step, _))| masks.have(*n, &step.op)) {
            kb.at(step.loc);
            scores = match &step.op {
                ScoreOp::Causal => {
                    let start = kb.index_binary(BinaryOp::Add, self.row, self.shift);
                    let last = match self.is_of_queries() {
                        true => kb.iota(0, start, Elem::I32, Extent::Static(self.rows), ONE),
                        false => kb.each(Op::Cast, vec![start], Elem::I32),
                    };
                    let key = kb.iota(1, first, Elem::I32, ONE, keys);
                    let seen = kb.compare(CmpOp::Le, key, last);
                    let bottom = bottom(kb);
                    kb.select(seen, scores, bottom)
                }
                ScoreOp::Add(x) => {
                    let x = self.read(kb, x, Some(first))?;
                    kb.binary(BinaryOp::Add, scores, x)
                }
                ScoreOp::Keep { kept, .. } => {
                    let kept = self.read(kb, kept, Some(first))?;
                    kb.select(kept, scores, (*number)?)
                }
                ScoreOp::Cap(_) => {
                    let x = kb.unary(UnaryOp::Tanh, scores);
                    kb.binary(BinaryOp::Mul, x, (*number)?)
                }
            };
        }
        if masks != Masks::All {
            return Some(scores);
        }
        // Mask columns beyond the last key.
        kb.at(self.attention.locations.scores);
        let key = kb.iota(1, first, Elem::I32, ONE, keys);
        let end = kb.dim_scalar(&self.t, Elem::I32);
        let inside = kb.compare(CmpOp::Lt, key, end);
        let bottom = bottom(kb);
        Some(kb.select(inside, scores, bottom))
    }

    /// Loads an operand of the tile of scores that starts at the key `first`; a sink has no keys,
    /// and is a column.
    fn read(&self, kb: &mut KernelBuilder, what: &Formula, first: Option<Value>) -> Option<Value> {
        let (query, key) = (self.of_rows, self.rank - 1);
        let start = first.unwrap_or_else(|| kb.index(0));
        let at = [self.points.as_slice(), &[self.row, start]].concat();
        let (rows, keys) = (Extent::Static(self.rows), Extent::Static(self.keys));
        what.write(
            kb,
            |kb, axis, elem| {
                let start = *at.get(axis)?;
                Some(match axis {
                    axis if axis == key => kb.iota(1, start, elem, ONE, keys),
                    axis if axis == query => kb.iota(0, start, elem, rows, ONE),
                    _ => kb.each(Op::Cast, vec![start], elem),
                })
            },
            |kb, buffer| {
                let ty = kb.ty(buffer).buffer()?;
                let varies = |axis: usize| ty.strides.get(axis).is_some_and(|d| d.as_const() != Some(0));
                Some(match (varies(query), varies(key) && first.is_some()) {
                    (true, true) => kb.load(buffer, &at, (Some(query), Some(key)), rows, keys),
                    (true, false) => kb.load(buffer, &at, (Some(query), None), rows, ONE),
                    (false, true) => kb.load(buffer, &at, (None, Some(key)), ONE, keys),
                    (false, false) => kb.load_scalar(buffer, &at),
                })
            },
        )
    }

    /// The online softmax step for a tile of scores.
    pub(super) fn step(&self, kb: &mut KernelBuilder, before: Softmax, scores: Value) -> Weights {
        kb.at(self.attention.locations.softmax);
        let highest = kb.reduce(ReduceKind::Max, 1, scores);
        let highest = kb.binary(BinaryOp::Max, before.highest, highest);
        let base = self.base(kb, highest);
        let (weights, kept) = (base.weight(kb, scores), base.kept(kb, before.highest));
        let more = kb.reduce(ReduceKind::Sum, 1, weights);
        let sum = kb.binary(BinaryOp::Mul, before.sum, kept);
        let sum = kb.binary(BinaryOp::Add, sum, more);
        Weights { now: Softmax { highest, sum }, weights, kept }
    }

    /// The base of the exponents of rows, given their highest scores.
    pub(super) fn base(&self, kb: &mut KernelBuilder, highest: Value) -> Base {
        let product = kb.binary(BinaryOp::Mul, highest, self.exponents);
        let size = kb.unary(UnaryOp::Abs, product);
        let large = kb.scalar(Scalar::Float(LARGE), Elem::F32);
        let is_large = kb.compare(CmpOp::Ge, size, large);
        let one = kb.scalar(Scalar::Float(1.0), Elem::F32);
        let factor = kb.select(is_large, one, self.exponents);
        let base = kb.select(is_large, highest, product);
        Base { exponents: self.exponents, is_large, factor, base }
    }

    /// Rescales sums and results so that the highest score of a row has a weight of exactly 1, for
    /// comparing parts of the keys.
    pub(super) fn with_weights_of_1(&self, kb: &mut KernelBuilder, now: Softmax, result: Value) -> (Value, Value) {
        let base = self.base(kb, now.highest);
        let weight = base.weight(kb, now.highest);
        let one = kb.scalar(Scalar::Float(1.0), Elem::F32);
        let inverse = kb.binary(BinaryOp::Div, one, weight);
        (kb.binary(BinaryOp::Mul, now.sum, inverse), kb.binary(BinaryOp::Mul, result, inverse))
    }

    /// The result: weighted values divided by the sum of weights; zeros if the sum is 0.
    pub(super) fn end_of_rows(&self, kb: &mut KernelBuilder, sum: Value, result: Value) -> Value {
        kb.at(self.attention.locations.softmax);
        let zero = kb.scalar(Scalar::Float(0.0), Elem::F32);
        let one = kb.scalar(Scalar::Float(1.0), Elem::F32);
        let empty = kb.compare(CmpOp::Eq, sum, zero);
        let inverse = kb.binary(BinaryOp::Div, one, sum);
        let inverse = kb.select(empty, zero, inverse);
        let mean = kb.binary(BinaryOp::Mul, result, inverse);
        kb.select(empty, zero, mean)
    }

    /// Zero results with this number of columns.
    pub(super) fn no_result(&self, kb: &mut KernelBuilder, cols: i64) -> Value {
        kb.at(self.attention.locations.values);
        build::zeros(kb, self.rows, cols)
    }
}

/// The base of the exponents of rows.
#[derive(Clone, Copy)]
pub(super) struct Base {
    exponents: Value,
    /// Is the highest score so large that all lower ones have no weight?
    is_large: Value,
    /// Factor of scores, and the number that is then subtracted.
    factor: Value,
    base: Value,
}

impl Base {
    /// The weights of scores; rounded once before the power.
    pub(super) fn weight(&self, kb: &mut KernelBuilder, scores: Value) -> Value {
        let x = kb.binary(BinaryOp::Mul, scores, self.factor);
        let x = kb.binary(BinaryOp::Sub, x, self.base);
        kb.unary(UnaryOp::Exp2, x)
    }

    /// Factor of weights relative to another maximum: its base is rounded as it was then.
    pub(super) fn kept(&self, kb: &mut KernelBuilder, highest: Value) -> Value {
        let product = kb.binary(BinaryOp::Mul, highest, self.exponents);
        let before = kb.select(self.is_large, highest, product);
        let x = kb.binary(BinaryOp::Sub, before, self.base);
        kb.unary(UnaryOp::Exp2, x)
    }
}
