//! The unscheduled kernel of fused attention, and the description that it is written from.
//!
//! In: the operations on the scores, and the operands' buffers. Out: a kernel with the algorithm,
//! independent of any machine: a tile of queries meets one key after another, with an online
//! softmax (Milakov & Gimelshein 2018, arXiv:1805.02867), so that the score matrix never exists.
//!
//! ```text
//! grid (batch and heads.., ceil(S, 64), ceil(E, 64))
//!   m = -inf, l = 0, acc = 0                               a sink: m = its score, l = 1
//!   for each key t:
//!     s  = q tile @ k[t] * scale;  masks, soft caps         [64, 1]
//!     m' = max(m, s);  p = e^(s - m');  c = e^(m - m')
//!     l  = l c + p;    acc = acc c + p v[t]                 [64, 1], [64, 64]
//!   y = acc / l;  epilogue;  store                          [64, 64]
//! ```
//!
//! A row that has seen only masked keys takes 0 for `m'`, so nothing becomes NaN, and one that ends
//! with `l = 0` gives zeros. Terms with a weight of 0 are left out, not multiplied: a key that a
//! mask hides contributes nothing, even if its value is NaN or infinite.
//!
//! The schedule replaces this kernel by faster ones (`schedule/attention.rs`): keys in blocks,
//! without those that a causal mask hides, scores in other orders, `e^x` as a power of 2. The
//! kernel carries the description that it was written from (`Compute::Attention`), and what follows
//! the attention in it (the epilogue) may be any elementwise work on its tile: [`Described::of`]
//! gives both to the schedule. The results differ by rounding, and in one more case: where no mask
//! may hide a key that is visited (a causal one hides none that a single query visits), the
//! schedule's kernels multiply by a weight of 0, of a score that is `-inf` or far below the others,
//! like by any other, so an infinite or NaN value of such a key reaches the result there.

mod formula;

use std::collections::BTreeSet;

pub(crate) use super::description::{Attention, Formula, Locations, Node, ScoreOp, Step};
use super::epilogue::{Epilogue, ResultTile};
use super::{Compute, Extent, Kernel, KernelBuilder, Op, ParamMode, Position, Value, numbered_kind};
use crate::scalar::{BinaryOp, CmpOp, Scalar, UnaryOp};
use crate::shape::Elem;

/// Queries and columns of a tile of the result.
const TILE: i64 = 64;
/// Width of the part of a head that is read at a time where the whole width is not known, or too
/// long for a tile.
const STEPS: i64 = 512;
/// The widest head of one tile, as the verifier has it.
const MOST_AT_ONCE: i64 = 1 << 20;
/// The parameters that hold queries, keys and values.
pub(crate) const QUERIES: usize = 0;
pub(crate) const KEYS: usize = 1;
pub(crate) const VALUES: usize = 2;

/// Is a kernel that of a part of an attention's keys, which a schedule makes of it?
pub(crate) fn is_part(part: &Kernel, attention: &Kernel) -> bool {
    let ty = |k: &Kernel, n: usize| k.params.get(n).map(|p| k.body.ty(p.value).clone());
    numbered_kind(&part.name) == Some("attention_part")
        && [QUERIES, KEYS, VALUES].iter().all(|n| ty(part, *n) == ty(attention, *n))
}

const ONE: Extent = Extent::Static(1);

/// A kernel's description as an attention, with its epilogue.
pub(crate) struct Described {
    pub(crate) attention: Attention,
    pub(crate) epilogue: Epilogue,
}

impl Attention {
    /// Writes the unscheduled form into a kernel that has its parameters but no grid yet; `None`
    /// where the parameters are not operands of an attention.
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
        let at = Position::over(kb, &[lead, &[s.clone(), width.clone()]].concat(), [TILE, TILE]);
        let starts = at.starts();
        let (points, row, col) = (starts.get(..query)?, *starts.get(query)?, *starts.get(inner)?);
        let index = |row: Value, col: Value| [points, &[row, col]].concat();
        let locations = self.locations;

        // The queries are a tile where the width of a head is known.
        let zero = kb.index(0);
        let whole = d.as_const().filter(|n| (1..=MOST_AT_ONCE).contains(n)).map(Extent::Static);
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

        // The scores of a key.
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

        // The step of the softmax.
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
        // The value of the key; what has no weight is left out.
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

    /// What follows it in a kernel that is written from this description: the queries and the
    /// values are loaded at the tile's rows and columns, and the block that returns begins with the
    /// division by the sum of weights.
    pub(super) fn epilogue(kernel: &Kernel) -> Option<Epilogue> {
        let body = &kernel.body;
        let load_of = |n: usize| {
            let buffer = kernel.params.get(n)?.value;
            body.insts().map(|(_, _, d)| d).find(|d| d.operands.first() == Some(&buffer))
        };
        let insts = Epilogue::last_insts(body)?;
        let last = insts.iter().position(|i| body.inst(*i).op == Op::Select)?;
        let result = body.inst(*insts.get(last)?).result?;
        Epilogue::of(kernel, [load_of(QUERIES)?, load_of(VALUES)?], result, insts.get(last + 1..)?)
    }

    /// Parameters of a kernel from which the scores and the result are computed, not counting those
    /// of the epilogue only.
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

/// Writes an operand of the scores, for a tile of queries at a position and one key.
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
    /// The attention that a kernel computes, if its epilogue can follow the kernels of a schedule.
    pub(crate) fn of(kernel: &Kernel) -> Option<Described> {
        let Some(Compute::Attention(attention)) = &kernel.compute else { return None };
        let found = Described { attention: (**attention).clone(), epilogue: Attention::epilogue(kernel)? };
        (found.epilogue.is_elementwise(kernel) && found.only_reads(kernel)).then_some(found)
    }

    /// Does the kernel write nothing that the attention reads? A variant of it reads in another
    /// order, and may read keys and values from copies, so the epilogue must not need these.
    fn only_reads(&self, kernel: &Kernel) -> bool {
        let is_read = |n: &usize| kernel.params.get(*n).is_some_and(|p| p.mode == ParamMode::In);
        self.attention.inputs().iter().all(is_read) && !self.epilogue.uses(kernel, &[KEYS, VALUES])
    }
}
