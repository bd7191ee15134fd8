//! Loops over blocks of keys: scores, masks, the update of the online softmax.
//!
//! In: an attention kernel under construction, with the builder before the loops. Out: the running
//! maximum, sum and result after the last block, with the builder after the loops. Queries are
//! columns, keys are rows. With one query per grid point, sums over the head and over keys are
//! reductions instead of matmuls.
//!
//! A weight of 0 times a NaN or infinite value is NaN, but a key that a mask hides must contribute
//! nothing. So where masks may hide keys, the result is checked: if any element is not finite, it
//! is computed again, and values with a weight of 0 are omitted instead of multiplied. A matmul
//! cannot do that, so the second pass processes one key at a time: each adds the outer product of
//! its value and a row of weights. That takes about four times as long, but it is little code, the
//! same for every instruction set, and does not run where all numbers are finite.

use std::f64::consts::LOG2_E;

use super::{
    AttentionKernel, CHUNK, Masks, ONE, QueryLayout, WIDTH, buffer_over_scores, exponent_of, first_hiding, in_place,
    is_causal, load_transposed,
};
use crate::scalar::{BinaryOp, CmpOp, ReduceKind, Scalar, UnaryOp};
use crate::shape::Elem;
use crate::tile::attention::{Formula, ScoreOp, Step};
use crate::tile::{Extent, KernelBuilder, Op, Value};

/// Loop-carried state.
#[derive(Clone)]
pub(super) struct Running {
    /// The next key.
    pub(super) next: Value,
    pub(super) heads: Vec<Softmax>,
}

/// State of a head's online softmax after the keys so far.
#[derive(Clone, Copy)]
pub(super) struct Softmax {
    /// Maximum score of each query: `[1, queries]`.
    highest: Value,
    /// Sum of the weights of each query: `[1, queries]`.
    sum: Value,
    /// Sum of the weighted values: `[E, queries]`, but `[1, E]` for a single query.
    result: Value,
}

impl Running {
    /// The loop-carried values; [`Running::of`] is the inverse.
    pub(super) fn carried(&self) -> Vec<Value> {
        let heads = self.heads.iter().flat_map(|head| [head.highest, head.sum, head.result]);
        std::iter::once(self.next).chain(heads).collect()
    }

    /// The state held in these values; `None` if their number does not fit.
    pub(super) fn from_values(values: &[Value]) -> Option<Running> {
        let (next, heads) = values.split_first()?;
        let heads = heads.chunks_exact(3).map(|head| match *head {
            [highest, sum, result] => Some(Softmax { highest, sum, result }),
            _ => None,
        });
        Some(Running { next: *next, heads: heads.collect::<Option<_>>()? })
    }

    /// The same state, continuing at another key.
    pub(super) fn from(&self, next: Value) -> Running {
        Running { next, heads: self.heads.clone() }
    }
}

/// A head's result over all keys of the kernel: each query's maximum score (only for a part of the
/// keys), its sum, and the weighted values.
#[derive(Clone, Copy)]
pub(super) struct Total {
    pub(super) highest: Option<Value>,
    pub(super) sum: Value,
    pub(super) result: Value,
}

/// The weights of a block of keys for a head, and its rescaled result before the block.
struct Weighted {
    weights: Value,
    so_far: Value,
}

/// How keys are processed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pass {
    /// In blocks, multiplied without regard to NaN and infinity.
    Quick,
    /// The second pass, after a result was not finite: a value whose weight is 0 is left out.
    Careful,
}

/// One loop over blocks.
#[derive(Clone, Copy)]
pub(super) struct Round {
    /// End of the keys.
    pub(super) end: Value,
    /// Keys of a block.
    pub(super) block: i64,
    /// Whether every block has `block` keys.
    pub(super) whole: bool,
    /// The masks that may hide keys here.
    pub(super) masks: Masks,
    pub(super) pass: Pass,
}

impl AttentionKernel<'_> {
    /// Processes all keys of the kernel that a query of the tile may see; returns each head's
    /// result.
    pub(super) fn all_keys(&self, kb: &mut KernelBuilder) -> Option<Vec<Total>> {
        // Only partial results need their maxima later.
        let given = |now: &Running| -> Vec<Value> {
            let of = |head: &Softmax| self.part.map(|_| head.highest).into_iter().chain([head.sum, head.result]);
            now.heads.iter().flat_map(of).collect()
        };
        let totals = |given: &[Value]| -> Option<Vec<Total>> {
            let each = given.chunks_exact(2 + usize::from(self.part.is_some())).map(|head| {
                let (highest, [sum, result]) = head.split_last_chunk::<2>()?;
                Some(Total { highest: highest.first().copied(), sum: *sum, result: *result })
            });
            each.collect()
        };
        let queries = kb.placed(self.attention.locations.scores, |kb| self.whole_queries(kb, Pass::Quick));
        let quick = self.rounds(kb, &queries, Pass::Quick)?;
        if !self.may_hide() {
            return totals(&given(&quick));
        }
        let nothing = kb.scalar(Scalar::Float(0.0), Elem::F32);
        let mut any = None;
        for head in &quick.heads {
            // 0 for a finite number, else NaN.
            let rest = kb.binary(BinaryOp::Sub, head.result, head.result);
            let mut is_special = kb.compare(CmpOp::Ne, rest, nothing);
            if self.layout != QueryLayout::KeysInLanes {
                is_special = kb.reduce(ReduceKind::Any, 0, is_special);
            }
            let is_special = kb.reduce(ReduceKind::Any, 1, is_special);
            any = Some(match any {
                Some(others) => kb.binary(BinaryOp::Or, others, is_special),
                None => is_special,
            });
        }
        let again = kb.element(any?);
        let of_quick = given(&quick);
        let (careful, _) = kb.new_block(Vec::new());
        let (finite, _) = kb.new_block(Vec::new());
        let (done, results) = kb.new_block(of_quick.iter().map(|v| kb.ty(*v).clone()).collect());
        kb.br_if(again, (careful, &[]), (finite, &[]));
        kb.switch_to(finite);
        kb.br(done, &of_quick);
        kb.switch_to(careful);
        let queries = match self.layout {
            QueryLayout::InLanes | QueryLayout::KeysInLanes => queries,
            // Reloaded, without pairing.
            QueryLayout::InLanePairs => {
                kb.placed(self.attention.locations.scores, |kb| self.whole_queries(kb, Pass::Careful))
            }
        };
        let now = self.rounds(kb, &queries, Pass::Careful)?;
        kb.br(done, &given(&now));
        kb.switch_to(done);
        totals(&results)
    }

    /// Stores the partial results: weighted values, maxima and sums.
    pub(super) fn store_part(&self, kb: &mut KernelBuilder, totals: &[Total]) -> Option<()> {
        let part = self.part?;
        let (zero, one) = (kb.index(0), kb.index(1));
        let (query, col) = (self.rank - 2, self.rank);
        let at = |points: &[Value], col: Value| [points, &[self.row, part.number, col]].concat();
        kb.at(self.attention.locations.values);
        for (Total { result, .. }, points) in totals.iter().zip(&self.heads) {
            let at = at(points, self.col);
            match self.layout {
                QueryLayout::KeysInLanes => kb.store(part.sums, &at, (None, Some(col)), *result),
                QueryLayout::InLanes | QueryLayout::InLanePairs => {
                    let result = kb.transpose(*result);
                    kb.store(part.sums, &at, (Some(query), Some(col)), result);
                }
            }
        }
        // Equal for all column tiles: the first one stores them.
        kb.at(self.attention.locations.softmax);
        let is_first = kb.compare_scalars(CmpOp::Eq, self.col, zero);
        let (first, _) = kb.new_block(Vec::new());
        let (done, _) = kb.new_block(Vec::new());
        kb.br_if(is_first, (first, &[]), (done, &[]));
        kb.switch_to(first);
        for (Total { highest, sum, .. }, points) in totals.iter().zip(&self.heads) {
            for (col, x) in [(zero, (*highest)?), (one, *sum)] {
                kb.store(part.statistics, &at(points, col), (None, Some(query)), x);
            }
        }
        kb.br(done, &[]);
        kb.switch_to(done);
        Some(())
    }

    /// Whether a mask may hide keys that are visited.
    fn may_hide(&self) -> bool {
        let steps = &self.attention.steps;
        let last = steps.len().saturating_sub(1);
        // A single query does not visit keys that a causal mask hides, if that mask is the last
        // one.
        let visited = |n: usize, m: &Step| !(self.layout == QueryLayout::KeysInLanes && is_causal(m) && n == last);
        steps.iter().enumerate().any(|(n, m)| !matches!(m.op, ScoreOp::Cap(_)) && visited(n, m))
    }

    /// Whether a pass processes one key at a time.
    pub(super) fn by_key(&self, pass: Pass) -> bool {
        pass == Pass::Careful && self.layout != QueryLayout::KeysInLanes
    }

    /// The loops over keys.
    fn rounds(&self, kb: &mut KernelBuilder, queries: &[Value], pass: Pass) -> Option<Running> {
        let empty = |kb: &mut KernelBuilder| match self.layout {
            QueryLayout::InLanes | QueryLayout::InLanePairs => {
                kb.full(Scalar::Float(0.0), Elem::F32, self.width, self.queries)
            }
            QueryLayout::KeysInLanes => kb.full(Scalar::Float(0.0), Elem::F32, ONE, self.width),
        };
        // A sink is the initial maximum, so its weight is 1.
        let mut heads = Vec::new();
        for points in &self.heads {
            let (highest, weight, loc) = match &self.attention.sink {
                Some(sink) => {
                    let scores = kb.placed(self.attention.locations.sink, |kb| self.sink_scores(kb, sink, points))?;
                    (scores, 1.0, self.attention.locations.sink)
                }
                None => {
                    let bottom = Scalar::Float(f64::NEG_INFINITY);
                    let fill = |kb: &mut KernelBuilder| kb.full(bottom, Elem::F32, ONE, self.queries);
                    (kb.placed(self.attention.locations.softmax, fill), 0.0, self.attention.locations.softmax)
                }
            };
            let sum = kb.placed(loc, |kb| kb.full(Scalar::Float(weight), Elem::F32, ONE, self.queries));
            let first = match self.part.filter(|_| self.attention.sink.is_some()) {
                Some(part) => kb.placed(loc, |kb| part.of_first(kb, [highest, sum])),
                None => [highest, sum],
            };
            let [highest, sum] = first;
            heads.push(Softmax { highest, sum, result: empty(kb) });
        }
        let next = match self.part {
            Some(part) => part.start,
            None => kb.index(0),
        };
        let mut now = Running { next, heads };
        if let Some(hiding) = first_hiding(self.attention.steps.iter()) {
            return self.visible_round(kb, queries, now, hiding, pass);
        }
        let steps = &self.attention.steps;
        let last_is_causal = steps.last().is_some_and(is_causal);
        // A single query sees all keys before the end.
        let causal = steps.iter().any(is_causal) && !(last_is_causal && self.layout == QueryLayout::KeysInLanes);
        let block = if self.by_key(pass) { 1 } else { self.block };
        // A separate loop without the mask is not worth it where all keys fit in one block, or
        // where the kernel processes only a part of the keys.
        let one_loop = self.part.is_some();
        if pass == Pass::Quick && causal && !one_loop && self.t.as_const().is_none_or(|n| n > block) {
            // The first query sees the fewest keys.
            let seen = kb.index_binary(BinaryOp::Add, self.row, self.shift);
            let seen = kb.plus(seen, 1);
            let size = kb.index(block);
            let blocks = kb.index_binary(BinaryOp::Div, seen, size);
            let end = kb.index_binary(BinaryOp::Mul, blocks, size);
            now = self.round(kb, queries, now, Round { end, block, whole: true, masks: Masks::NotCausal, pass })?;
        }
        let mut end = kb.dim(&self.t);
        // Skipping is exact only if nothing is added after the causal mask: a NaN there would show.
        if last_is_causal {
            let count = match self.queries {
                Extent::Static(n) => kb.index(n),
                Extent::Bounded { value, .. } => value,
            };
            let seen = kb.index_binary(BinaryOp::Add, self.row, count);
            let seen = kb.index_binary(BinaryOp::Add, seen, self.shift);
            end = kb.index_binary(BinaryOp::Min, end, seen);
        }
        if let Some(part) = self.part {
            end = part.end_before(kb, end);
        }
        let masks = if causal { Masks::All } else { Masks::NotCausal };
        self.round(kb, queries, now, Round { end, block, whole: self.by_key(pass), masks, pass })
    }

    /// The sink of each query, `[1, queries]`, in the same units as the scores.
    fn sink_scores(&self, kb: &mut KernelBuilder, sink: &Formula, points: &[Value]) -> Option<Value> {
        let sink = match buffer_over_scores(kb, sink) {
            Some(b) => {
                let query = self.rank - 2;
                let varies = kb.ty(b).buffer().is_some_and(|b| b.strides[query].as_const() != Some(0));
                let zero = kb.index(0);
                let at = [points, &[self.row, zero]].concat();
                let x = match varies && self.layout != QueryLayout::KeysInLanes {
                    true => kb.load(b, &at, (None, Some(query)), ONE, self.queries),
                    false => kb.load(b, &at, (None, None), ONE, ONE),
                };
                match self.scale.exponents {
                    Some(_) => x,
                    None => {
                        let factor = kb.scalar(Scalar::Float(LOG2_E), Elem::F32);
                        kb.binary(BinaryOp::Mul, x, factor)
                    }
                }
            }
            None if self.scale.exponents.is_some() => sink.scalar(kb)?,
            None => exponent_of(kb, sink)?,
        };
        let zeros = kb.full(Scalar::Float(0.0), Elem::F32, ONE, self.queries);
        Some(kb.binary(BinaryOp::Add, zeros, sink))
    }

    /// The queries of each head, transposed and scaled, if a head is one tile; else an empty list.
    fn whole_queries(&self, kb: &mut KernelBuilder, pass: Pass) -> Vec<Value> {
        let Some(n) = self.d.as_const().filter(|n| (1..=WIDTH).contains(n)) else { return Vec::new() };
        let zero = kb.index(0);
        self.some_queries(kb, zero, Extent::Static(n), pass)
    }

    /// The queries of each head, for a part of its width: `[part, queries]`, or `[1, part]` for a
    /// single query.
    fn some_queries(&self, kb: &mut KernelBuilder, start: Value, part: Extent, pass: Pass) -> Vec<Value> {
        let axes = (self.rank - 1, self.rank - 2);
        let of_head = |points: &Vec<Value>| {
            let at = [points.as_slice(), &[self.row, start]].concat();
            match self.layout {
                QueryLayout::InLanes => {
                    let factor = self.scale.queries.map(|factor| (factor, self.attention.locations.scale));
                    load_transposed(kb, self.q, &at, axes, (part, self.queries), factor)
                }
                QueryLayout::InLanePairs => {
                    let q = load_transposed(kb, self.q, &at, axes, (part, self.queries), None);
                    if pass == Pass::Careful { q } else { kb.pair_rows(q) }
                }
                QueryLayout::KeysInLanes => {
                    let q = kb.load(self.q, &at, (Some(axes.1), Some(axes.0)), ONE, part);
                    match self.scale.queries {
                        Some(factor) => {
                            kb.placed(self.attention.locations.scale, |kb| kb.binary(BinaryOp::Mul, q, factor))
                        }
                        None => q,
                    }
                }
            }
        };
        self.heads.iter().map(of_head).collect()
    }

    /// The index along the leading axes of the first head; all heads share its keys and values.
    pub(super) fn points(&self) -> &[Value] {
        self.heads.first().map_or(&[], Vec::as_slice)
    }

    /// Indices of an element of keys or values.
    fn at(&self, row: Value, col: Value) -> Vec<Value> {
        [self.points(), &[row, col]].concat()
    }

    /// Loads keys or values as a left operand, in place if possible: rows and columns along `axes`.
    fn left(
        &self,
        kb: &mut KernelBuilder,
        b: Value,
        at: &[Value],
        axes: (usize, usize),
        of: (Extent, Extent),
    ) -> Value {
        if self.reads_in_place || in_place(kb, b) {
            kb.load(b, at, (Some(axes.0), Some(axes.1)), of.0, of.1)
        } else {
            load_transposed(kb, b, at, axes, of, None)
        }
    }

    /// One loop over blocks of keys.
    fn round(&self, kb: &mut KernelBuilder, queries: &[Value], now: Running, round: Round) -> Option<Running> {
        let blocks = kb.begin_loop(&now.carried());
        let now = Running::from_values(&blocks.args)?;
        let more = kb.compare_scalars(CmpOp::Lt, now.next, round.end);
        kb.enter_loop(&blocks, more);
        let keys = if round.whole {
            Extent::Static(round.block)
        } else if self.attention.steps.last().is_some_and(is_causal) {
            let rest = kb.index_binary(BinaryOp::Sub, round.end, now.next);
            let max = kb.index(round.block);
            Extent::Bounded { value: kb.index_binary(BinaryOp::Min, rest, max), max: round.block }
        } else {
            kb.extent_at(&self.t, now.next, round.block)
        };
        let then = self.block_of_keys(kb, queries, &now, keys, round)?;
        kb.br(blocks.head, &then.carried());
        kb.switch_to(blocks.done);
        Some(now)
    }

    /// Processes one block of keys.
    pub(super) fn block_of_keys(
        &self,
        kb: &mut KernelBuilder,
        queries: &[Value],
        now: &Running,
        keys: Extent,
        round: Round,
    ) -> Option<Running> {
        let mut all =
            kb.placed(self.attention.locations.scores, |kb| self.scores(kb, queries, now.next, keys, round.pass));
        for (scores, points) in all.iter_mut().zip(&self.heads) {
            if let Some(scale) = self.scale.scores {
                *scores = kb.placed(self.attention.locations.scale, |kb| kb.binary(BinaryOp::Mul, *scores, scale));
            }
            let steps = self.attention.steps.iter().zip(&self.numbers).enumerate();
            for (_, (step, number)) in steps.filter(|(n, (step, _))| round.masks.have(*n, &step.op)) {
                let first = [points.as_slice(), &[self.row, now.next]].concat();
                *scores = kb.placed(step.loc, |kb| self.masked(kb, (step, *number), *scores, &first, keys))?;
            }
        }
        Some(kb.placed(self.attention.locations.softmax, |kb| self.softmax_step(kb, now, &all, keys, round)))
    }

    /// The scores of a block: `[keys, queries]` of each head.
    fn scores(&self, kb: &mut KernelBuilder, queries: &[Value], first: Value, keys: Extent, pass: Pass) -> Vec<Value> {
        let none = kb.full(Scalar::Float(0.0), Elem::F32, keys, self.queries);
        if let (false, Some(n)) = (queries.is_empty(), self.d.as_const()) {
            let zero = kb.index(0);
            return self.add_scores(kb, queries, &self.at(first, zero), (keys, Extent::Static(n)), none, pass);
        }
        // Heads this wide are not grouped (`parts::Group`).
        let sum = kb.summed(&self.d, CHUNK, false, none, |kb, start, part, sum| {
            let q = self.some_queries(kb, start, part, pass);
            let added = self.add_scores(kb, &q, &self.at(first, start), (keys, part), sum, pass);
            added.first().copied().unwrap_or(sum)
        });
        vec![sum]
    }

    /// The scores of a block over a part of the width of the heads.
    fn add_scores(
        &self,
        kb: &mut KernelBuilder,
        queries: &[Value],
        at: &[Value],
        of: (Extent, Extent),
        sum: Value,
        pass: Pass,
    ) -> Vec<Value> {
        let axes = (self.rank - 2, self.rank - 1);
        let each = |kb: &mut KernelBuilder, k: Value, axis: usize| {
            let of_head = |q: &Value| {
                let (a, b) = if axis == 0 { (*q, k) } else { (k, *q) };
                let products = kb.binary(BinaryOp::Mul, a, b);
                let more = kb.reduce(ReduceKind::Sum, axis, products);
                kb.binary(BinaryOp::Add, sum, more)
            };
            queries.iter().map(of_head).collect()
        };
        if self.by_key(pass) {
            let k = kb.load(self.k, at, (Some(axes.1), None), of.1, ONE);
            return each(kb, k, 0);
        }
        match self.layout {
            QueryLayout::InLanes => {
                let k = self.left(kb, self.k, at, axes, of);
                queries.iter().map(|q| kb.dot(k, *q, sum)).collect()
            }
            QueryLayout::InLanePairs => {
                let steps = queries.first().and_then(|q| kb.ty(*q).tile()).map_or(of.1, |t| t.rows);
                let k = kb.load(self.k, at, (Some(axes.0), Some(axes.1)), of.0, steps);
                queries.iter().map(|q| kb.dot(k, *q, sum)).collect()
            }
            QueryLayout::KeysInLanes => {
                let k = kb.load(self.k, at, (Some(axes.0), Some(axes.1)), of.0, of.1);
                each(kb, k, 1)
            }
        }
    }

    /// Adds a block of values, weighted per key, to the result of each head.
    fn add_values(&self, kb: &mut KernelBuilder, heads: &[Weighted], first: Value, keys: Extent) -> Vec<Value> {
        let (row, col) = (self.rank - 2, self.rank - 1);
        let at = self.at(first, self.col);
        match self.layout {
            QueryLayout::InLanes => {
                let values = self.left(kb, self.v, &at, (col, row), (self.width, keys));
                heads.iter().map(|head| kb.dot(values, head.weights, head.so_far)).collect()
            }
            QueryLayout::InLanePairs => {
                let of_head = |head: &Weighted| {
                    let weights = kb.pair_rows(head.weights);
                    let steps = kb.ty(weights).tile().map_or(keys, |t| t.rows);
                    let (block, zero) = (kb.index(self.block), kb.index(0));
                    let panel = kb.index_binary(BinaryOp::Div, first, block);
                    let at = [self.points(), &[panel, self.col, zero]].concat();
                    let values = kb.load(self.v, &at, (Some(row + 1), Some(col + 1)), self.width, steps);
                    kb.dot(values, weights, head.so_far)
                };
                heads.iter().map(of_head).collect()
            }
            QueryLayout::KeysInLanes => {
                let values = kb.load(self.v, &at, (Some(row), Some(col)), keys, self.width);
                let of_head = |head: &Weighted| {
                    let products = kb.binary(BinaryOp::Mul, values, head.weights);
                    let more = kb.reduce(ReduceKind::Sum, 0, products);
                    kb.binary(BinaryOp::Add, head.so_far, more)
                };
                heads.iter().map(of_head).collect()
            }
        }
    }

    /// [`Self::add_values`] where values may be infinite or NaN: those with a weight of 0 are left
    /// out. The block is a single key, except with keys in lanes.
    fn add_values_carefully(
        &self,
        kb: &mut KernelBuilder,
        heads: &[Weighted],
        first: Value,
        keys: Extent,
    ) -> Vec<Value> {
        let (row, col) = (self.rank - 2, self.rank - 1);
        let at = self.at(first, self.col);
        let values = match self.layout {
            QueryLayout::InLanes => kb.load(self.v, &at, (Some(col), None), self.width, ONE),
            QueryLayout::InLanePairs => {
                let block = kb.index(self.block);
                let panel = kb.index_binary(BinaryOp::Div, first, block);
                let key = kb.index_binary(BinaryOp::Rem, first, block);
                let at = [self.points(), &[panel, self.col, key]].concat();
                kb.load(self.v, &at, (Some(row + 1), None), self.width, ONE)
            }
            QueryLayout::KeysInLanes => kb.load(self.v, &at, (Some(row), Some(col)), keys, self.width),
        };
        let of_head = |head: &Weighted| {
            let mut more = self.scaled_carefully(kb, values, head.weights);
            if self.layout == QueryLayout::KeysInLanes {
                more = kb.reduce(ReduceKind::Sum, 0, more);
            }
            kb.binary(BinaryOp::Add, head.so_far, more)
        };
        heads.iter().map(of_head).collect()
    }

    /// `x * factor`, but 0 where the factor is 0, even if `x` is infinite or NaN.
    fn scaled_carefully(&self, kb: &mut KernelBuilder, x: Value, factor: Value) -> Value {
        let nothing = kb.scalar(Scalar::Float(0.0), Elem::F32);
        let none = kb.compare(CmpOp::Eq, factor, nothing);
        let product = kb.binary(BinaryOp::Mul, x, factor);
        kb.select(none, nothing, product)
    }

    /// Applies a mask to the scores of the block at indices `at`.
    fn masked(
        &self,
        kb: &mut KernelBuilder,
        (step, number): (&Step, Option<Value>),
        scores: Value,
        at: &[Value],
        keys: Extent,
    ) -> Option<Value> {
        Some(match &step.op {
            ScoreOp::Causal => {
                let start = kb.index_binary(BinaryOp::Add, self.row, self.shift);
                let last = kb.iota(1, start, Elem::I32, ONE, self.queries);
                let key = kb.iota(0, *at.last()?, Elem::I32, keys, ONE);
                let seen = kb.compare(CmpOp::Le, key, last);
                let bottom = kb.scalar(Scalar::Float(f64::NEG_INFINITY), Elem::F32);
                kb.select(seen, scores, bottom)
            }
            ScoreOp::Add(x) => {
                let x = self.mask_tile(kb, x, at, keys)?;
                kb.binary(BinaryOp::Add, scores, x)
            }
            ScoreOp::Keep { kept, .. } => {
                let kept = self.mask_tile(kb, kept, at, keys)?;
                kb.select(kept, scores, number?)
            }
            ScoreOp::Cap(_) => {
                let x = kb.unary(UnaryOp::Tanh, scores);
                kb.binary(BinaryOp::Mul, x, number?)
            }
        })
    }

    /// An operand of a mask for a block: a transposed tile, or a column or row that broadcasts
    /// where it does not depend on queries or keys.
    fn mask_tile(&self, kb: &mut KernelBuilder, what: &Formula, at: &[Value], keys: Extent) -> Option<Value> {
        let in_lanes = self.layout == QueryLayout::KeysInLanes;
        let (query, key) = (self.rank - 2, self.rank - 1);
        what.write(
            kb,
            |kb, axis, elem| {
                let start = *at.get(axis)?;
                Some(match self.rank.checked_sub(axis)? {
                    1 => kb.iota(0, start, elem, keys, ONE),
                    2 if !in_lanes => kb.iota(1, start, elem, ONE, self.queries),
                    _ => kb.each(Op::Cast, vec![start], elem),
                })
            },
            |kb, b| {
                let ty = kb.ty(b).buffer()?;
                let same = |axis: usize| ty.strides.get(axis).is_some_and(|d| d.as_const() == Some(0));
                let (same_queries, same_keys) = (same(query), same(key));
                Some(match (same_queries || in_lanes, same_keys) {
                    (_, true) if in_lanes => kb.load(b, at, (None, None), ONE, ONE),
                    (true, _) => kb.load(b, at, (Some(key), None), keys, ONE),
                    (false, true) => kb.load(b, at, (None, Some(query)), ONE, self.queries),
                    (false, false) => load_transposed(kb, b, at, (key, query), (keys, self.queries), None),
                })
            },
        )
    }

    /// `e^(score - base)`, in units of the unscaled scores.
    fn power(&self, kb: &mut KernelBuilder, scores: Value, base: Value) -> Value {
        let mut x = kb.binary(BinaryOp::Sub, scores, base);
        if let Some(factor) = self.scale.exponents {
            x = kb.binary(BinaryOp::Mul, x, factor);
        }
        kb.unary(UnaryOp::Exp2, x)
    }

    /// One step of the online softmax: the scores of a block of keys for each head, and its values.
    fn softmax_step(
        &self,
        kb: &mut KernelBuilder,
        now: &Running,
        scores: &[Value],
        keys: Extent,
        round: Round,
    ) -> Running {
        let one_key = self.by_key(round.pass);
        let (mut heads, mut weighted) = (Vec::new(), Vec::new());
        for (scores, before) in scores.iter().zip(&now.heads) {
            let highest = if one_key { *scores } else { kb.reduce(ReduceKind::Max, 0, *scores) };
            let highest = kb.binary(BinaryOp::Max, before.highest, highest);
            let bottom = kb.scalar(Scalar::Float(f64::NEG_INFINITY), Elem::F32);
            let nothing = kb.scalar(Scalar::Float(0.0), Elem::F32);
            let unseen = kb.compare(CmpOp::Eq, highest, bottom);
            let base = kb.select(unseen, nothing, highest);
            let weights = self.power(kb, *scores, base);
            let kept = self.power(kb, before.highest, base);
            let more = if one_key { weights } else { kb.reduce(ReduceKind::Sum, 0, weights) };
            let sum = kb.binary(BinaryOp::Mul, before.sum, kept);
            let sum = kb.binary(BinaryOp::Add, sum, more);
            let so_far = match round.pass {
                Pass::Quick => kb.binary(BinaryOp::Mul, before.result, kept),
                Pass::Careful => self.scaled_carefully(kb, before.result, kept),
            };
            weighted.push(Weighted { weights, so_far });
            heads.push(Softmax { highest, sum, result: so_far });
        }
        let results = kb.placed(self.attention.locations.values, |kb| match round.pass {
            Pass::Quick => self.add_values(kb, &weighted, now.next, keys),
            Pass::Careful => self.add_values_carefully(kb, &weighted, now.next, keys),
        });
        for (head, result) in heads.iter_mut().zip(results) {
            head.result = result;
        }
        Running { next: kb.plus(now.next, round.block), heads }
    }
}
