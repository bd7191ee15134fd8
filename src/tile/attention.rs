//! The unscheduled kernel of fused attention: how it is written, and how the schedule recognises it.
//!
//! In: what an attention does to its scores, and where its operands are. Out: a kernel with the algorithm, independent of any
//! machine: a tile of queries meets one key after another, with an online softmax (Milakov & Gimelshein 2018,
//! arXiv:1805.02867), so that the score matrix never exists.
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
//! A row that has seen only masked keys takes 0 for `m'`, so nothing becomes NaN, and one that ends with `l = 0` gives zeros. What
//! has a weight of 0 is left out, not multiplied: a key that a mask hides contributes nothing, even if its value is NaN or
//! infinite.
//!
//! How this is computed is the schedule's (`schedule/attention.rs`): keys in blocks, without those that a causal mask
//! hides, scores in other orders, `e^x` as a power of 2. It does so with every kernel of this form, wherever it comes from: [`Attention::find`]
//! reads what a kernel does to its scores, writes the kernel for that again, and takes it only if it is the same, operation by
//! operation. What follows the attention in the kernel (the epilogue) may be any elementwise work on its tile. The results differ
//! by rounding, and in one more case: where no mask may hide a key that is visited (a causal one hides none that a single query visits),
//! the schedule's kernels multiply by a weight of 0, of a score that is `-inf` or far below the others, like by any other, so an infinite
//! or NaN value of such a key reaches the result there.

mod formula;

use std::collections::{BTreeMap, BTreeSet};

use super::body::InstData;
use super::encode::{self, Encoding};
use super::{
    AxisRole, Body, Extent, Inst, Kernel, KernelBuilder, Op, ParamMode, Position, State, Terminator, TileType, Type,
    Value, numbered_kind, simplify,
};
use crate::scalar::{BinaryOp, CmpOp, Scalar, UnaryOp, round_to};
use crate::shape::{Dim, Elem};
use crate::source::Loc;
pub(crate) use formula::{Formula, Node, literal};

/// Queries and columns of a tile of the result.
const TILE: i64 = 64;
/// Width of the part of a head that is read at a time where the whole width is not known, or too long for a tile.
const STEPS: i64 = 512;
/// The widest head of one tile, as the verifier has it.
const MOST_AT_ONCE: i64 = 1 << 20;
/// The places of queries, keys and values among the parameters.
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

/// What a mask, a cap or the scale is: in a buffer, or the same everywhere.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Source {
    /// A parameter of the kernel, by its place: over the axes of the scores, or of a single element.
    Buffer(usize),
    /// A literal of a type.
    Literal(Scalar, Elem),
    /// The value of a dimension, as that type.
    Dim(Dim, Elem),
    /// Computed for each query and key.
    Formula(Formula),
}

/// What is done to the scores.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ScoreOp {
    /// Queries see no later keys: the last query sees all.
    Causal,
    /// Something is added.
    Add(Source),
    /// Where it is not kept, a score is the fill.
    Keep {
        /// Where scores are kept.
        kept: Source,
        /// The score elsewhere.
        fill: Source,
    },
    /// `tanh`, times the cap.
    Cap(Source),
}

/// What is done to the scores, and the place in the source text.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Step {
    pub(crate) op: ScoreOp,
    pub(crate) loc: Loc,
}

/// Places in the source text of the parts of an attention.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Locations {
    /// The product of queries and keys.
    pub(crate) scores: Loc,
    pub(crate) scale: Loc,
    pub(crate) sink: Loc,
    pub(crate) softmax: Loc,
    /// The product with the values. Also the place of every operation that has no other.
    pub(crate) values: Loc,
}

/// What an attention does. Its queries, keys and values are the first three parameters of its kernel, `[batch.., S, D]`, `[batch..,
/// T, D]` and `[batch.., T, E]`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Attention {
    pub(crate) locations: Locations,
    /// What the scores are multiplied by.
    pub(crate) scale: Source,
    /// What is done to them then, in order.
    pub(crate) steps: Vec<Step>,
    /// One more score in each row, which has no value.
    pub(crate) sink: Option<Source>,
}

/// The tile of the result that a kernel computes.
#[derive(Clone, Debug)]
pub(crate) struct ResultTile {
    /// The result: queries by columns.
    pub(crate) result: Value,
    /// Where it is along each axis, and how many queries and columns it has.
    pub(crate) at: Position,
}

/// An attention that was found in a kernel, with what the kernel does to its result.
pub(crate) struct Found {
    pub(crate) attention: Attention,
    tile: ResultTile,
    epilogue: Vec<Inst>,
}

/// A scalar of a kernel.
pub(crate) fn scalar_of(kb: &mut KernelBuilder, source: &Source) -> Option<Value> {
    Some(match source {
        Source::Buffer(n) => {
            let buffer = kb.param(*n)?;
            kb.load_scalar(buffer, &[])
        }
        Source::Literal(x, elem) => kb.literal(*x, *elem),
        Source::Dim(d, elem) => kb.dim_literal(d, *elem),
        Source::Formula(_) => return None,
    })
}

impl Attention {
    /// Writes the unscheduled form into a kernel that has its parameters but no grid yet; `None` where the parameters are not
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
                let sink = self.score_operand(kb, sink, &index(row, zero), at.rows)?;
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
        let scale = scalar_of(kb, &self.scale)?;
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
                    let x = self.score_operand(kb, x, &index(row, key), at.rows)?;
                    kb.binary(BinaryOp::Add, scores, x)
                }
                ScoreOp::Keep { kept, fill } => {
                    let kept = self.score_operand(kb, kept, &index(row, key), at.rows)?;
                    let fill = scalar_of(kb, fill)?;
                    kb.select(kept, scores, fill)
                }
                ScoreOp::Cap(cap) => {
                    let cap = scalar_of(kb, cap)?;
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

    /// What is read for the scores of a tile of queries, or is the same for all.
    fn score_operand(&self, kb: &mut KernelBuilder, source: &Source, at: &[Value], rows: Extent) -> Option<Value> {
        let n = match source {
            Source::Buffer(n) => n,
            Source::Formula(formula) => return formula.write(kb, |kb, node| self.leaf(kb, node, at, rows)),
            Source::Literal(..) | Source::Dim(..) => return scalar_of(kb, source),
        };
        let buffer = kb.param(*n)?;
        if kb.ty(buffer).buffer()?.shape.is_empty() {
            return scalar_of(kb, source);
        }
        Some(kb.load(buffer, at, (at.len().checked_sub(2), None), rows, ONE))
    }

    /// What a formula is computed of, for queries from a place on and one key.
    fn leaf(&self, kb: &mut KernelBuilder, node: &Node, at: &[Value], rows: Extent) -> Option<Value> {
        match node {
            Node::Position(axis, elem) => {
                let start = *at.get(*axis)?;
                Some(match at.len().checked_sub(*axis)? {
                    1 => kb.iota(1, start, *elem, ONE, ONE),
                    2 => kb.iota(0, start, *elem, rows, ONE),
                    _ => kb.each(Op::Cast, vec![start], *elem),
                })
            }
            Node::Read(source) => self.score_operand(kb, source, at, rows),
            Node::Each(..) => None,
        }
    }

    /// The attention that a kernel computes, if [`Attention::write`] would write the same kernel.
    pub(crate) fn find(kernel: &Kernel) -> Option<Found> {
        let exps = |op: &Op| *op == Op::Unary(UnaryOp::Exp);
        if kernel.state != State::Unscheduled || !kernel.body.insts().any(|(_, _, d)| exps(&d.op)) {
            return None;
        }
        let found = read(kernel)?;
        let mut kb = KernelBuilder::new(&kernel.name);
        for p in &kernel.params {
            kb.buffer(kernel.body.ty(p.value).buffer()?.clone(), p.mode);
        }
        let tile = found.attention.write(&mut kb)?;
        found.copy_epilogue(kernel, &mut kb, &tile)?;
        let mut again = kb.finish();
        simplify(&mut again.body);
        let how = Encoding { name: false, places: false, state: State::Unscheduled };
        let same = encode::kernel(&again, how) == encode::kernel(kernel, how);
        (same && found.is_elementwise(kernel) && found.only_reads(kernel)).then_some(found)
    }

    /// Parameters of a kernel from which the scores and the result are computed, not counting those of the epilogue only.
    pub(crate) fn inputs(&self) -> BTreeSet<usize> {
        let of_steps = self.steps.iter().flat_map(|step| match &step.op {
            ScoreOp::Causal => [None, None],
            ScoreOp::Add(x) | ScoreOp::Cap(x) => [Some(x), None],
            ScoreOp::Keep { kept, fill } => [Some(kept), Some(fill)],
        });
        let sources = of_steps.chain([Some(&self.scale), self.sink.as_ref()]).flatten();
        let buffers = sources.flat_map(|source| match source {
            Source::Buffer(n) => vec![*n],
            Source::Formula(formula) => formula.buffers().collect(),
            Source::Literal(..) | Source::Dim(..) => Vec::new(),
        });
        buffers.chain([QUERIES, KEYS, VALUES]).collect()
    }
}

impl Found {
    /// Applies the epilogue to the tile of the result of another kernel with the same parameters.
    pub(crate) fn copy_epilogue(&self, kernel: &Kernel, kb: &mut KernelBuilder, to: &ResultTile) -> Option<()> {
        let mut made: BTreeMap<Value, Value> = BTreeMap::new();
        for (n, p) in kernel.params.iter().enumerate() {
            made.insert(p.value, kb.param(n)?);
        }
        let (old, new) = (&self.tile.at, &to.at);
        made.extend(old.axes.iter().zip(&new.axes).map(|((_, old), (_, new))| (*old, *new)));
        made.insert(self.tile.result, to.result);
        for inst in &self.epilogue {
            let data = kernel.body.inst(*inst);
            let mut operands = Vec::new();
            for v in &data.operands {
                operands.push(copied(kernel, kb, &mut made, *v)?);
            }
            let ty = data.result.map(|v| match kernel.body.ty(v) {
                Type::Tile(t) => {
                    let rows = if t.rows == old.rows { new.rows } else { t.rows };
                    let cols = if t.cols == old.cols { new.cols } else { t.cols };
                    Type::Tile(TileType { rows, cols, ..t.clone() })
                }
                other => other.clone(),
            });
            kb.at(data.loc);
            let result = kb.push(data.op.clone(), operands, ty);
            made.extend(data.result.zip(result));
        }
        Some(())
    }

    /// Does the kernel write nothing that the attention reads? A variant of it reads in another order, and may read keys and values
    /// from copies, so the epilogue must not need these.
    fn only_reads(&self, kernel: &Kernel) -> bool {
        let is_read = |n: &usize| kernel.params.get(*n).is_some_and(|p| p.mode == ParamMode::In);
        let copied = [KEYS, VALUES].map(|n| kernel.params.get(n).map(|p| p.value));
        let uses = |inst: &Inst| kernel.body.inst(*inst).operands.iter().any(|v| copied.contains(&Some(*v)));
        self.attention.inputs().iter().all(is_read) && !self.epilogue.iter().any(uses)
    }

    /// Is what follows the attention elementwise work on its tile, whatever rows and columns this has?
    fn is_elementwise(&self, kernel: &Kernel) -> bool {
        let body = &kernel.body;
        let at = &self.tile.at;
        let axes = [(AxisRole::Rows, at.rows), (AxisRole::Cols, at.cols)].map(|(role, extent)| {
            let number = at.axis(role);
            (number, number.and_then(|n| at.axes.get(n)).map(|(_, start)| *start), extent)
        });
        self.epilogue.iter().all(|inst| {
            let data = body.inst(*inst);
            let tile = match data.op {
                Op::Store { .. } => data.operands.last().copied(),
                _ => data.result,
            };
            let tile = tile.and_then(|v| body.ty(v).tile()).map(|t| [t.rows, t.cols]);
            let along = |n: usize| match data.op {
                Op::Load { rows, cols } | Op::Store { rows, cols } => Some(([rows, cols][n], 1)),
                Op::Iota { axis } => Some(((axis == n).then_some(0), 0)),
                _ => None,
            };
            data.op.is_elementwise()
                && axes.iter().enumerate().all(|(n, (number, start, extent))| {
                    let own = tile.map(|t| t[n]);
                    let fits = own.is_none_or(|own| own.is_one() || own == *extent);
                    // The operand that is the start, where the operation goes along this axis from there.
                    let place = along(n).and_then(|(axis, first)| match data.op {
                        Op::Iota { .. } => axis.map(|_| 0),
                        _ => (axis == *number).then(|| axis.map(|axis| axis + first)).flatten(),
                    });
                    let place = place.filter(|_| own == Some(*extent));
                    let is_there = place.is_some_and(|place| data.operands.get(place).copied() == *start);
                    let begins = |i: usize| Some(i) == place;
                    let elsewhere = data.operands.iter().enumerate().any(|(i, v)| Some(*v) == *start && !begins(i));
                    let moves = along(n).is_some_and(|(axis, _)| axis.is_some());
                    fits && !elsewhere && (is_there || !moves || own.is_some_and(Extent::is_one))
                })
        })
    }
}

/// A value of a kernel in a copy of it: one that is there already, or a constant.
fn copied(kernel: &Kernel, kb: &mut KernelBuilder, made: &mut BTreeMap<Value, Value>, v: Value) -> Option<Value> {
    if let Some(v) = made.get(&v) {
        return Some(*v);
    }
    let data = kernel.body.def_inst(v)?;
    let ty = kernel.body.ty(v).clone();
    if !matches!(data.op, Op::Const(_) | Op::DimValue(_)) || !matches!(ty, Type::Index | Type::Scalar(_)) {
        return None;
    }
    let copy = kb.placed(data.loc, |kb| kb.value(data.op.clone(), Vec::new(), ty));
    made.insert(v, copy);
    Some(copy)
}

/// What a kernel does, on the assumption that it is an attention; the caller checks that.
fn read(kernel: &Kernel) -> Option<Found> {
    let body = &kernel.body;
    // A loop over keys, and one over parts of a head in it where its width is not known.
    let (start, after, within, scores) = match *body.layout.as_slice() {
        [start, _, keys, after] => {
            let dot = body.block(keys).insts.iter().position(|i| matches!(body.inst(*i).op, Op::Dot { .. }))?;
            let dot = *body.block(keys).insts.get(dot)?;
            (start, after, keys, (body.inst(dot).result?, body.inst(dot).loc))
        }
        [start, _, _, after, head, parts, keys] => {
            let dots = body.block(parts).insts.iter().map(|i| body.inst(*i));
            let dot = dots.into_iter().find(|d| matches!(d.op, Op::Dot { .. }))?;
            (start, after, keys, (*body.block(head).args.get(1)?, dot.loc))
        }
        _ => return None,
    };
    let reader = Reader { kernel };
    let (scores, scores_loc) = scores;
    // Where the tile is.
    let q = kernel.params.get(QUERIES)?.value;
    let queries = body.insts().map(|(_, _, d)| d).find(|d| d.operands.first() == Some(&q))?;
    let n = kernel.grid.len();
    let (lead, row) = (n.checked_sub(2)?, *queries.operands.get(n.checked_sub(1)?)?);
    // What is done to the scores, from the maximum back to the product.
    let list = &body.block(within).insts;
    let operand = |d: &InstData, n: usize| d.operands.get(n).copied();
    let made_here = |i: &Inst| body.inst(*i).result == Some(scores);
    let first = list.iter().position(made_here).unwrap_or_default();
    let rest = || list.iter().skip(first).map(|i| body.inst(*i));
    let softmax = rest().find(|d| {
        let is_of = |n: usize| operand(d, n).is_some_and(|v| body.def_inst(v).is_none());
        d.op == Op::Binary(BinaryOp::Max) && is_of(0)
    })?;
    let key = *body.block(body.layout.get(1).copied()?).args.first()?;
    let mask = |v: Value| match reader.source(v) {
        Some(source) => Some(source),
        None => Formula::read(kernel, (row, key), v, |v| reader.source(v)).map(Source::Formula),
    };
    let (mut steps, mut now) = (Vec::new(), operand(softmax, 1)?);
    let (scale, scale_loc) = loop {
        let data = body.def_inst(now)?;
        let op = match (&data.op, data.operands.as_slice()) {
            (Op::Binary(BinaryOp::Mul), [x, scale]) if *x == scores => break (reader.source(*scale)?, data.loc),
            (Op::Binary(BinaryOp::Mul), [tanh, cap]) => {
                let tanh = body.def_inst(*tanh).filter(|d| d.op == Op::Unary(UnaryOp::Tanh))?;
                now = operand(tanh, 0)?;
                ScoreOp::Cap(reader.source(*cap)?)
            }
            (Op::Binary(BinaryOp::Add), [x, more]) => {
                now = *x;
                ScoreOp::Add(mask(*more)?)
            }
            (Op::Select, [kept, x, fill]) => {
                now = *x;
                match is_causal(body, *kept) {
                    true => ScoreOp::Causal,
                    false => ScoreOp::Keep { kept: mask(*kept)?, fill: reader.source(*fill)? },
                }
            }
            _ => return None,
        };
        steps.push(Step { op, loc: data.loc });
        if steps.len() > list.len() {
            return None;
        }
    };
    steps.reverse();
    let value = rest().skip_while(|d| d.result != softmax.result).find(|d| matches!(d.op, Op::Load { .. }))?;
    let softmax = softmax.loc;
    // The first maximum is of a sink, if there is one.
    let Terminator::Br(call) = &body.block(start).terminator else { return None };
    let highest = body.def_inst(*call.args.get(1)?)?;
    let sink = match highest.op {
        Op::Binary(BinaryOp::Add) => Some(reader.source(*highest.operands.get(1)?)?),
        _ => None,
    };
    let locations = Locations { scores: scores_loc, scale: scale_loc, sink: highest.loc, softmax, values: value.loc };
    let mut axes: Vec<(AxisRole, Value)> = kernel.grid.iter().take(lead).map(|g| (AxisRole::Point, g.value)).collect();
    axes.extend([(AxisRole::Rows, row), (AxisRole::Cols, *value.operands.get(n)?)]);
    let tile = |v: Option<Value>| v.and_then(|v| body.ty(v).tile());
    let (rows, cols) = (tile(queries.result)?.rows, tile(value.result)?.cols);
    let insts = &body.block(after).insts;
    let last = insts.iter().position(|i| body.inst(*i).op == Op::Select)?;
    let result = body.inst(*insts.get(last)?).result?;
    let tile = ResultTile { result, at: Position { axes, rows, cols } };
    let epilogue = insts.get(last + 1..)?.to_vec();
    Some(Found { attention: Attention { locations, scale, steps, sink }, tile, epilogue })
}

/// Does a condition compare the positions of keys and queries as a causal mask does?
fn is_causal(body: &Body, condition: Value) -> bool {
    let Some(InstData { op: Op::Compare(CmpOp::Le), operands, .. }) = body.def_inst(condition) else { return false };
    let counts = |v: Option<&Value>, axis: usize| {
        let of = v.and_then(|v| Some((body.def_inst(*v)?, body.ty(*v).elem())));
        of.is_some_and(|(d, elem)| d.op == Op::Iota { axis } && elem == Some(Elem::I32))
    };
    counts(operands.first(), 1) && counts(operands.get(1), 0)
}

/// Reads the values of a kernel.
struct Reader<'a> {
    kernel: &'a Kernel,
}

impl Reader<'_> {
    /// Where an operand of the scores comes from: loaded, a literal or a dimension.
    fn source(&self, v: Value) -> Option<Source> {
        let body = &self.kernel.body;
        let mut data = body.def_inst(v)?;
        let computed = body.ty(v).elem()?;
        let mut elem = computed;
        if let Op::Narrow { elem: narrow } = data.op {
            elem = narrow;
            data = body.def_inst(*data.operands.first()?)?;
        }
        Some(match &data.op {
            // The text form prints as many digits as the type needs.
            Op::Const(Scalar::Float(x)) => Source::Literal(Scalar::Float(round_to(computed, *x)), elem),
            Op::Const(x) => Source::Literal(*x, elem),
            Op::DimValue(d) => Source::Dim(d.clone(), elem),
            Op::Load { .. } | Op::LoadScalar if elem == computed => {
                let buffer = data.operands.first()?;
                Source::Buffer(self.kernel.params.iter().position(|p| p.value == *buffer)?)
            }
            _ => return None,
        })
    }
}
