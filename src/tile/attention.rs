//! The unscheduled kernel of fused attention, generated from its description.
//!
//! In: the operations on the scores, and the operands' buffers. Out: a target-independent kernel: a
//! tile of queries visits one key after another with an online softmax (Milakov & Gimelshein 2018,
//! arXiv:1805.02867), so the score matrix is never materialised.
//!
//! ```text
//! grid (batch and heads.., ceil(S, 64), ceil(E, 64))
//!   m = -inf, l = 0, acc = 0                               with a sink: m = its score, l = 1
//!   for each key t:
//!     s  = q tile @ k[t] * scale;  masks, soft caps         [64, 1]
//!     m' = max(m, s);  p = e^(s - m');  c = e^(m - m')
//!     l  = l c + p;    acc = acc c + p v[t]                 [64, 1], [64, 64]
//!   y = acc / l;  epilogue;  store                          [64, 64]
//! ```
//!
//! As long as a row has seen only masked keys, `m'` is replaced by 0, which avoids NaN; a row that
//! ends with `l = 0` is zero. Terms with a weight of 0 are skipped, not multiplied: a masked key
//! contributes nothing, even if its value is NaN or infinite.
//!
//! The scheduler replaces this kernel by faster ones (`schedule/attention.rs`), which process keys
//! in blocks, skip keys that a causal mask hides, sum scores in another order, and compute `e^x` as
//! a power of 2. The kernel carries its description (`Compute::Attention`), and any elementwise
//! work on the result tile may follow (the epilogue); [`Described::from_kernel`] passes both to the
//! scheduler. The results differ by rounding, and in one more case. If no mask can hide a visited
//! key (a causal mask hides no key that a single query visits), scheduled kernels do multiply by
//! weights of 0, from scores that are `-inf` or far below the others. An infinite or NaN value of
//! such a key then reaches the result.

mod formula;

use std::collections::BTreeSet;

pub(crate) use super::description::{Attention, Formula, Locations, Node, ScoreOp, Step};
use super::epilogue::{Epilogue, ResultTile};
use super::matmul::{STEPS, whole_steps};
use super::{Compute, Extent, InstData, Kernel, KernelBuilder, Matmul, Op, ParamMode, Position, Value};
use crate::scalar::{BinaryOp, CmpOp, Scalar, UnaryOp};
use crate::shape::Elem;

/// The parameters that hold queries, keys and values.
pub(crate) const QUERIES: usize = 0;
pub(crate) const KEYS: usize = 1;
pub(crate) const VALUES: usize = 2;

const ONE: Extent = Extent::Static(1);

/// A kernel's description as an attention, with its epilogue.
pub(crate) struct Described {
    pub(crate) attention: Attention,
    pub(crate) epilogue: Epilogue,
}

impl Attention {
    /// Adds the grid and the loops to a kernel that has only parameters. `None` if these are not
    /// operands of an attention.
    pub(crate) fn write(&self, kb: &mut KernelBuilder) -> Option<ResultTile> {
        kb.at(self.locations.values);
        let [q, k, v] = [kb.param(QUERIES)?, kb.param(KEYS)?, kb.param(VALUES)?];
        let shape = |v: Value| kb.ty(v).buffer().map(|b| b.shape.clone());
        let [of_q, of_k, of_v] = [shape(q)?, shape(k)?, shape(v)?];
        let rank = of_q.len();
        let (lead, [s, d]) = of_q.split_last_chunk::<2>()?;
        let (_, [t, _]) = of_k.split_last_chunk::<2>()?;
        let width = of_v.last()?;
        let (query, inner) = (rank - 2, rank - 1);
        let at = Position::over(kb, &[lead, &[s.clone(), width.clone()]].concat(), Matmul::TILE);
        let starts = at.starts();
        let (points, row, col) = (starts.get(..query)?, *starts.get(query)?, *starts.get(inner)?);
        let index = |row: Value, col: Value| [points, &[row, col]].concat();
        let locations = self.locations;

        // The queries are loaded once, as a tile, if the width of a head is constant.
        let zero = kb.index(0);
        let whole = whole_steps(d).map(Extent::Static);
        let queries = whole.map(|d| {
            kb.placed(locations.scores, |kb| kb.load(q, &index(row, zero), (Some(query), Some(inner)), at.rows, d))
        });
        let first = match &self.sink {
            Some(sink) => {
                kb.at(locations.sink);
                let zeros = kb.full(Scalar::Float(0.0), Elem::F32, at.rows, ONE);
                let sink = score_operand(kb, sink, &index(row, zero), at.rows)?;
                kb.binary(BinaryOp::Add, zeros, sink)
            }
            None => {
                kb.at(locations.softmax);
                kb.full(Scalar::Float(f64::NEG_INFINITY), Elem::F32, at.rows, ONE)
            }
        };
        let weight = if self.sink.is_some() { 1.0 } else { 0.0 };
        let sum = kb.full(Scalar::Float(weight), Elem::F32, at.rows, ONE);
        kb.at(locations.values);
        let result = kb.full(Scalar::Float(0.0), Elem::F32, at.rows, at.cols);
        let carried = [zero, first, sum, result];
        let keys = kb.begin_loop(&carried);
        let [key, highest, sum, result] = *keys.args.as_slice() else { return None };
        let end = kb.dim(t);
        let more = kb.compare_scalars(CmpOp::Lt, key, end);
        kb.enter_loop(&keys, more);

        // The scores of the key.
        kb.at(locations.scores);
        let none = kb.full(Scalar::Float(0.0), Elem::F32, at.rows, ONE);
        let product = |kb: &mut KernelBuilder, q: Value, start: Value, steps: Extent, sum: Value| {
            let k = kb.load(k, &index(key, start), (Some(inner), None), steps, ONE);
            kb.dot(q, k, sum)
        };
        let scores = match (queries, whole) {
            (Some(q), Some(d)) => product(kb, q, zero, d, none),
            _ => kb.summed(d, STEPS, false, none, |kb, start, steps, sum| {
                let q = kb.load(q, &index(row, start), (Some(query), Some(inner)), at.rows, steps);
                product(kb, q, start, steps, sum)
            }),
        };
        kb.at(locations.scale);
        let scale = self.scale.scalar(kb)?;
        let mut scores = kb.binary(BinaryOp::Mul, scores, scale);
        for step in &self.steps {
            kb.at(step.loc);
            scores = match &step.op {
                ScoreOp::Causal => {
                    let shift = kb.dim(&t.sub(s));
                    let start = kb.index_binary(BinaryOp::Add, row, shift);
                    let last = kb.iota(0, start, Elem::I32, at.rows, ONE);
                    let key = kb.iota(1, key, Elem::I32, ONE, ONE);
                    let seen = kb.compare(CmpOp::Le, key, last);
                    let bottom = kb.scalar(Scalar::Float(f64::NEG_INFINITY), Elem::F32);
                    kb.select(seen, scores, bottom)
                }
                ScoreOp::Add(x) => {
                    let x = score_operand(kb, x, &index(row, key), at.rows)?;
                    kb.binary(BinaryOp::Add, scores, x)
                }
                ScoreOp::Keep { kept, fill } => {
                    let kept = score_operand(kb, kept, &index(row, key), at.rows)?;
                    let fill = fill.scalar(kb)?;
                    kb.select(kept, scores, fill)
                }
                ScoreOp::Cap(cap) => {
                    let cap = cap.scalar(kb)?;
                    let x = kb.unary(UnaryOp::Tanh, scores);
                    kb.binary(BinaryOp::Mul, x, cap)
                }
            };
        }

        // One iteration of the online softmax.
        kb.at(locations.softmax);
        let raised = kb.binary(BinaryOp::Max, highest, scores);
        let bottom = kb.scalar(Scalar::Float(f64::NEG_INFINITY), Elem::F32);
        let nothing = kb.scalar(Scalar::Float(0.0), Elem::F32);
        let unseen = kb.compare(CmpOp::Eq, raised, bottom);
        let base = kb.select(unseen, nothing, raised);
        let power = |kb: &mut KernelBuilder, x: Value| {
            let x = kb.binary(BinaryOp::Sub, x, base);
            kb.unary(UnaryOp::Exp, x)
        };
        let (weight, kept) = (power(kb, scores), power(kb, highest));
        let sum_kept = kb.binary(BinaryOp::Mul, sum, kept);
        let new_sum = kb.binary(BinaryOp::Add, sum_kept, weight);
        // Adds the weighted value of the key; terms of weight 0 are skipped.
        kb.at(locations.values);
        let weighted = |kb: &mut KernelBuilder, x: Value, weight: Value| {
            let none = kb.compare(CmpOp::Eq, weight, nothing);
            let product = kb.binary(BinaryOp::Mul, x, weight);
            kb.select(none, nothing, product)
        };
        let value = kb.load(v, &index(key, col), (None, Some(inner)), ONE, at.cols);
        let so_far = weighted(kb, result, kept);
        let value = weighted(kb, value, weight);
        let new_result = kb.binary(BinaryOp::Add, so_far, value);
        let next = kb.plus(key, 1);
        kb.br(keys.head, &[next, raised, new_sum, new_result]);

        kb.switch_to(keys.done);
        kb.at(locations.softmax);
        let zero = kb.scalar(Scalar::Float(0.0), Elem::F32);
        let empty = kb.compare(CmpOp::Eq, sum, zero);
        let mean = kb.binary(BinaryOp::Div, result, sum);
        let result = kb.select(empty, zero, mean);
        kb.at(locations.values);
        Some(ResultTile { result, at })
    }

    /// The epilogue of a kernel that was generated by [`Attention::write`]. The loads of queries
    /// and values give the tile's rows and columns; the epilogue begins after the division by the
    /// sum of weights, which ends with the first `select` of the block that returns.
    pub(super) fn epilogue(kernel: &Kernel) -> Option<Epilogue> {
        let body = &kernel.body;
        let load_of = |n: usize| {
            let buffer = kernel.params.get(n)?.value;
            body.insts().map(|(_, _, d)| d).find(|d| d.operands.first() == Some(&buffer))
        };
        let insts = Epilogue::last_insts(body)?;
        let last = insts.iter().position(|i| body.inst(*i).op == Op::Select)?;
        let result = body.inst(*insts.get(last)?).result?;
        let (queries, values, n) = (load_of(QUERIES)?, load_of(VALUES)?, kernel.grid.len());
        let starts = [*queries.operands.get(n.checked_sub(1)?)?, *values.operands.get(n)?];
        let tile = |d: &InstData| d.result.and_then(|v| body.ty(v).tile());
        let extents = [tile(queries)?.rows, tile(values)?.cols];
        Epilogue::from_insts(kernel, starts, extents, result, insts.get(last + 1..)?)
    }

    /// The parameters that the attention reads, without those used only by the epilogue.
    pub(crate) fn inputs(&self) -> BTreeSet<usize> {
        let of_steps = self.steps.iter().flat_map(|step| match &step.op {
            ScoreOp::Causal => [None, None],
            ScoreOp::Add(x) | ScoreOp::Cap(x) => [Some(x), None],
            ScoreOp::Keep { kept, fill } => [Some(kept), Some(fill)],
        });
        let sources = of_steps.chain([Some(&self.scale), self.sink.as_ref()]).flatten();
        let buffers = sources.flat_map(Formula::buffers);
        buffers.chain([QUERIES, KEYS, VALUES]).collect()
    }
}

/// Computes an operand of the scores for one key and a tile of queries at the indices `at`.
fn score_operand(kb: &mut KernelBuilder, what: &Formula, at: &[Value], rows: Extent) -> Option<Value> {
    what.write(
        kb,
        |kb, axis, elem| {
            let start = *at.get(axis)?;
            Some(match at.len().checked_sub(axis)? {
                1 => kb.iota(1, start, elem, ONE, ONE),
                2 => kb.iota(0, start, elem, rows, ONE),
                _ => kb.each(Op::Cast, vec![start], elem),
            })
        },
        |kb, buffer| Some(kb.load(buffer, at, (at.len().checked_sub(2), None), rows, ONE)),
    )
}

impl Described {
    /// The attention that a kernel computes, if its epilogue can be appended to scheduled kernels.
    pub(crate) fn from_kernel(kernel: &Kernel) -> Option<Described> {
        let Some(Compute::Attention(attention)) = &kernel.compute else { return None };
        let found = Described { attention: (**attention).clone(), epilogue: Attention::epilogue(kernel)? };
        (found.epilogue.is_elementwise(kernel) && found.only_reads(kernel)).then_some(found)
    }

    /// Does the kernel write no buffer that the attention reads, and does the epilogue not use keys
    /// and values? Scheduled variants read in another order, and keys and values possibly from
    /// copies.
    fn only_reads(&self, kernel: &Kernel) -> bool {
        let is_read = |n: &usize| kernel.params.get(*n).is_some_and(|p| p.mode == ParamMode::In);
        self.attention.inputs().iter().all(is_read) && !self.epilogue.uses(kernel, &[KEYS, VALUES])
    }
}
