//! Which blocks of keys the masks show to a tile of queries: blocks of which nothing is seen are not visited, and blocks that
//! are seen as a whole are computed without the mask.
//!
//! In: the masks that hide keys and are formulas over positions, a tile of queries and a block of keys. Out: a loop over blocks
//! that tests bounds of the formulas first (interval arithmetic on single numbers), and goes on in one of three ways.
//!
//! ```text
//!   for each block:  i in [row, row + Q), j in [key, key + 64)     j <= i and i - j <= W
//!     ever   = key <= row + Q - 1  and  row - (key + 63) <= W      if false: the block is skipped
//!     always = key + 63 <= row     and  row + Q - 1 - key <= W     if true: scores as they are, else masked
//! ```
//!
//! A block that is seen in part loses the keys at its ends of which nothing is seen, by the same bounds for parts of it; and where
//! nothing is seen of many blocks, all of them are skipped at once. With 4 heads of 64, a window of the last 256 keys and 16,384
//! queries takes 0.925 of the time that it took with whole blocks of 64 keys; blocks of 64, 96, 192 and 256 keys without their hidden
//! ends take 1.03, 1.02, 1.01 and 1.01 times as long as those of 128.
//!
//! The bounds are those of what the kernel computes. Integers wrap: where a sum or product may overflow, its bounds are those of the
//! type. Floats are rounded as the kernel rounds them, which keeps order. The bounds of a vector (document ids) are its least and
//! greatest element in the tile or block; floats that are read have them too, and where one of them is not finite, or farther from 0
//! than 1e30, nothing is concluded of that block. What is unknown (narrower floats, what is read for each pair) may be anything, so
//! those blocks are visited. Skipping is exact: these masks come last and replace scores by `-inf`, whose weight is 0.

use super::keys::{Pass, Round, Running};
use super::{AttentionKernel, Mask, ONE, QueryLayout, Source};
use crate::scalar::{BinaryOp, Change, CmpOp, ReduceKind, Scalar, UnaryOp, round_to};
use crate::shape::Elem;
use crate::tile::attention::{Formula, Node, ScoreOp, Step};
use crate::tile::{Extent, KernelBuilder, Op, Type, Value};

/// The least and the greatest `i32`.
const I32: [i128; 2] = [i32::MIN as i128, i32::MAX as i128];
/// Bounds of `i64` are assumed to lie within this distance of 0.
const FAR: i128 = 1 << 61;
/// Bounds of floats are assumed to lie within this distance of 0: none of their sums overflows.
const FAR_FLOAT: f64 = 1e30;

/// Bounds of an operation of a formula.
#[derive(Clone, Copy)]
enum Span {
    /// Integers, as indices, and what is known of both bounds at compile time.
    Ints([Value; 2], [i128; 2]),
    /// Finite floats.
    Floats([Value; 2], [f64; 2]),
    /// Is it true for all elements, and for any? `None` where that is not known.
    Truth { always: Option<Value>, ever: Option<Value> },
    /// Anything.
    Unknown,
}

/// How many keys at a time are left out at the ends of a block that is seen in part.
const PART: i64 = 32;
/// How many blocks are skipped at a time where nothing is seen of them.
const SKIPPED: i64 = 8;

const MAYBE: Span = Span::Truth { always: None, ever: None };

/// Some keys: the first, the last, and how many.
#[derive(Clone, Copy)]
pub(super) struct Keys {
    first: Value,
    last: Value,
    count: Extent,
}

/// What masks show of a block of keys: all pairs, or any? `None` where that is not known.
pub(super) struct Seen {
    keys: Keys,
    pub(super) always: Option<Value>,
    pub(super) ever: Option<Value>,
}

impl AttentionKernel {
    /// One loop over blocks of keys that visits those that are seen; the masks from `hiding` on hide keys.
    pub(super) fn visible_round(
        &self,
        kb: &mut KernelBuilder,
        queries: Option<Value>,
        now: Running,
        hiding: usize,
        pass: Pass,
    ) -> Option<Running> {
        let (last_query, end) = self.end_of_keys(kb, hiding)?;
        let carried = now.carried();
        let (head, args) = kb.new_block(carried.iter().map(|v| kb.ty(*v).clone()).collect());
        let (inner, _) = kb.new_block(Vec::new());
        let (done, _) = kb.new_block(Vec::new());
        kb.br(head, &carried);
        kb.switch_to(head);
        let now = Running::of(&args)?;
        let more = kb.compare_scalars(CmpOp::Lt, now.next, end);
        kb.br_if(more, (inner, &[]), (done, &[]));
        kb.switch_to(inner);
        let Seen { keys: block, always, ever } = self.block_at(kb, hiding, last_query, now.next, end)?;
        if let Some(ever) = ever {
            let (visit, _) = kb.new_block(Vec::new());
            let (skip, _) = kb.new_block(Vec::new());
            kb.br_if(ever, (visit, &[]), (skip, &[]));
            kb.switch_to(skip);
            let to = |kb: &mut KernelBuilder, blocks: i64| {
                let next = kb.plus(now.next, blocks * self.block);
                kb.br(head, &[next, now.highest, now.sum, now.result]);
            };
            // Where nothing is seen of many blocks, all of them are skipped.
            if !self.reads(hiding) {
                let last = kb.plus(now.next, SKIPPED * self.block - 1);
                let keys = Keys { first: now.next, last, count: Extent::Static(SKIPPED * self.block) };
                if let (_, Some(near)) = self.some_seen(kb, hiding, last_query, keys)? {
                    let (far, _) = kb.new_block(Vec::new());
                    let (one, _) = kb.new_block(Vec::new());
                    kb.br_if(near, (one, &[]), (far, &[]));
                    kb.switch_to(far);
                    to(kb, SKIPPED);
                    kb.switch_to(one);
                }
            }
            to(kb, 1);
            kb.switch_to(visit);
        }
        let (size, keys) = if self.by_key(pass) { (1, ONE) } else { (self.block, block.count) };
        let round = Round { end, block: size, whole: false, causal: true, pass };
        let next = kb.plus(now.next, size);
        if let Some(always) = always.filter(|_| pass == Pass::Quick) {
            let (all, _) = kb.new_block(Vec::new());
            let (some, _) = kb.new_block(Vec::new());
            kb.br_if(always, (all, &[]), (some, &[]));
            kb.switch_to(all);
            let then = self.block_of_keys(kb, queries, now, keys, round, self.masks.get(..hiding)?)?;
            kb.br(head, &Running { next, ..then }.carried());
            kb.switch_to(some);
        }
        let (first, keys) = match pass {
            Pass::Quick => self.trimmed(kb, hiding, last_query, block)?,
            Pass::Careful => (now.next, keys),
        };
        let then = self.block_of_keys(kb, queries, Running { next: first, ..now }, keys, round, &self.masks)?;
        kb.br(head, &Running { next, ..then }.carried());
        kb.switch_to(done);
        Some(now)
    }

    /// The last query of the tile, and where the keys end that it may see under the masks from `hiding` on.
    pub(super) fn end_of_keys(&self, kb: &mut KernelBuilder, hiding: usize) -> Option<(Value, Value)> {
        let mut end = kb.dim(&self.t);
        let last_query = self.last_query(kb);
        if self.masks.get(hiding..)?.iter().any(super::is_causal) {
            let seen = kb.index_binary(BinaryOp::Add, last_query, self.shift);
            let seen = kb.plus(seen, 1);
            end = kb.index_binary(BinaryOp::Min, end, seen);
        }
        Some((last_query, end))
    }

    /// The block from a key on, which is before the end, and what the masks from `hiding` on show of it.
    pub(super) fn block_at(
        &self,
        kb: &mut KernelBuilder,
        hiding: usize,
        last_query: Value,
        first: Value,
        end: Value,
    ) -> Option<Seen> {
        let rest = kb.index_binary(BinaryOp::Sub, end, first);
        let most = kb.index(self.block);
        let count = kb.index_binary(BinaryOp::Min, rest, most);
        let last = kb.index_binary(BinaryOp::Add, first, count);
        let last = kb.plus(last, -1);
        let keys = Keys { first, last, count: Extent::Bounded { value: count, max: self.block } };
        let (always, ever) = self.some_seen(kb, hiding, last_query, keys)?;
        Some(Seen { keys, always, ever })
    }

    /// What the masks from `hiding` on show of some keys: all pairs, or any?
    fn some_seen(
        &self,
        kb: &mut KernelBuilder,
        hiding: usize,
        last_query: Value,
        keys: Keys,
    ) -> Option<(Option<Value>, Option<Value>)> {
        let (mut always, mut ever) = (None, None);
        for (n, mask) in self.masks.get(hiding..)?.iter().enumerate() {
            let seen = kb.placed(mask.step.loc, |kb| self.seen(kb, mask, last_query, keys))?;
            // A mask of which nothing is known may hide any key, and may hide none.
            let (a, e) = match seen {
                Span::Truth { always, ever } => (always, ever),
                Span::Ints(..) | Span::Floats(..) | Span::Unknown => (None, None),
            };
            always = if n == 0 { a } else { both(kb, always, a, BinaryOp::And) };
            ever = either(kb, ever, e, BinaryOp::And);
        }
        Some((always, ever))
    }

    /// Do the masks from `hiding` on read anything? It would be read again for each of the bounds.
    fn reads(&self, hiding: usize) -> bool {
        self.masks.iter().skip(hiding).any(|mask| reads(&mask.step))
    }

    /// The keys of a block without those at its ends of which nothing is seen, in steps of [`PART`] keys: the first, and how many.
    fn trimmed(
        &self,
        kb: &mut KernelBuilder,
        hiding: usize,
        last_query: Value,
        block: Keys,
    ) -> Option<(Value, Extent)> {
        let parts = (self.block - 1) / PART + 1;
        let untouched = Some((block.first, block.count));
        if self.layout == QueryLayout::InLanePairs || parts < 2 || self.reads(hiding) {
            return untouched;
        }
        let Extent::Bounded { value: count, max } = block.count else { return untouched };
        let mut ever = Vec::new();
        for n in 0..parts {
            let first = kb.plus(block.first, n * PART);
            let last = kb.plus(block.first, (n + 1) * PART - 1);
            let keys = Keys { first, last, count: Extent::Static(PART) };
            let Some(seen) = self.some_seen(kb, hiding, last_query, keys)?.1 else { return untouched };
            ever.push((n, seen));
        }
        // The first part of which something is seen, and the end of the last one. Some part is left, and some key of it.
        let at = |kb: &mut KernelBuilder, n: i64| kb.index(n * PART);
        let (mut start, mut stop) = (at(kb, parts - 1), at(kb, 1));
        for (n, seen) in ever.iter().rev().skip(1) {
            let here = at(kb, *n);
            start = kb.value(Op::Select, vec![*seen, here, start], Type::Index);
        }
        for (n, seen) in ever.iter().skip(1) {
            let here = at(kb, n + 1);
            stop = kb.value(Op::Select, vec![*seen, here, stop], Type::Index);
        }
        let most = kb.plus(count, -1);
        let start = kb.index_binary(BinaryOp::Min, start, most);
        // As it is: so that the verifier sees it at once.
        let zero = kb.index(0);
        let start = kb.index_binary(BinaryOp::Max, start, zero);
        let stop = kb.index_binary(BinaryOp::Min, stop, count);
        let after = kb.plus(start, 1);
        let stop = kb.index_binary(BinaryOp::Max, stop, after);
        let first = kb.index_binary(BinaryOp::Add, block.first, start);
        let value = kb.index_binary(BinaryOp::Sub, stop, start);
        Some((first, Extent::Bounded { value, max }))
    }

    /// The last query of the tile.
    fn last_query(&self, kb: &mut KernelBuilder) -> Value {
        let count = match self.queries {
            Extent::Static(n) => kb.index(n),
            Extent::Bounded { value, .. } => value,
        };
        let after = kb.index_binary(BinaryOp::Add, self.row, count);
        kb.plus(after, -1)
    }

    /// Does a mask show all pairs of a block, or any?
    fn seen(&self, kb: &mut KernelBuilder, mask: &Mask, last_query: Value, keys: Keys) -> Option<Span> {
        match &mask.step.op {
            ScoreOp::Causal => {
                let [first, last] = [self.row, last_query].map(|i| kb.index_binary(BinaryOp::Add, i, self.shift));
                let always = kb.compare_scalars(CmpOp::Le, keys.last, first);
                let ever = kb.compare_scalars(CmpOp::Le, keys.first, last);
                Some(Span::Truth { always: Some(always), ever: Some(ever) })
            }
            ScoreOp::Keep { kept: Source::Formula(formula), .. } => self.span(kb, formula, last_query, keys),
            ScoreOp::Keep { .. } => Some(MAYBE),
            ScoreOp::Add(_) | ScoreOp::Cap(_) => None,
        }
    }

    /// Bounds of a formula over a block.
    fn span(&self, kb: &mut KernelBuilder, formula: &Formula, last_query: Value, keys: Keys) -> Option<Span> {
        let (mut spans, mut doubts): (Vec<Span>, Vec<Value>) = (Vec::new(), Vec::new());
        for node in formula.nodes() {
            let span = match node {
                Node::Position(axis, _) => {
                    let bounds = match self.rank.checked_sub(*axis)? {
                        1 => [keys.first, keys.last],
                        2 => [self.row, last_query],
                        _ => [*self.points.get(*axis)?; 2],
                    };
                    Span::Ints(bounds, [0, I32[1]])
                }
                Node::Read(source) => self.span_of(kb, source, keys, &mut doubts)?,
                Node::Each(op, operands, elem) => {
                    let x = operands.iter().map(|n| spans.get(*n).copied()).collect::<Option<Vec<Span>>>()?;
                    each(kb, op, &x, *elem)
                }
            };
            spans.push(span);
        }
        let Some(Span::Truth { mut always, mut ever }) = spans.last().copied() else { return spans.last().copied() };
        for doubt in doubts {
            let sure = kb.unary(UnaryOp::Not, doubt);
            always = both(kb, always, Some(sure), BinaryOp::And);
            ever = both(kb, ever, Some(doubt), BinaryOp::Or);
        }
        Some(Span::Truth { always, ever })
    }

    /// Bounds of what a formula reads.
    fn span_of(&self, kb: &mut KernelBuilder, source: &Source, keys: Keys, doubts: &mut Vec<Value>) -> Option<Span> {
        Some(match source {
            Source::Literal(Scalar::Int(n), Elem::I32 | Elem::I64) => {
                Span::Ints([kb.index(*n); 2], [i128::from(*n); 2])
            }
            Source::Literal(Scalar::Float(x), elem) if elem.is_float() => {
                let x = round_to(*elem, *x);
                finite([kb.scalar(Scalar::Float(x), Elem::F32); 2], [x; 2])
            }
            Source::Dim(d, Elem::I32) => match d.as_const() {
                Some(n) => integers(kb, [Number::Literal(n); 2], [i128::from(n); 2], Elem::I32),
                None => {
                    let n = Number::Value(kb.dim(d));
                    integers(kb, [n, n], [-FAR, FAR], Elem::I32)
                }
            },
            Source::Buffer(n) => {
                let buffer = kb.param(*n)?;
                let ty = kb.ty(buffer).buffer()?.clone();
                if !matches!(ty.elem, Elem::I32 | Elem::F32) {
                    return Some(Span::Unknown);
                }
                let (query, key) = (self.rank - 2, self.rank - 1);
                let varies = |axis: usize| ty.strides.get(axis).is_some_and(|d| d.as_const() != Some(0));
                let at = self.at(self.row, keys.first);
                let one = self.layout == QueryLayout::KeysInLanes;
                let (all, axis) = match (ty.shape.is_empty(), varies(query) && !one, varies(key)) {
                    (true, ..) => (kb.load_scalar(buffer, &[]), None),
                    (_, false, false) => (kb.load_scalar(buffer, &at), None),
                    (_, true, true) => return Some(Span::Unknown),
                    (_, true, _) => (kb.load(buffer, &at, (None, Some(query)), ONE, self.queries), Some(1)),
                    _ => (kb.load(buffer, &at, (Some(key), None), keys.count, ONE), Some(0)),
                };
                let reduced = |kb: &mut KernelBuilder, kind: ReduceKind, x: Value| match axis {
                    Some(axis) => {
                        let bound = kb.reduce(kind, axis, x);
                        kb.element(bound)
                    }
                    None => x,
                };
                let [least, most] = [ReduceKind::Min, ReduceKind::Max].map(|kind| reduced(kb, kind, all));
                if ty.elem == Elem::I32 {
                    return Some(Span::Ints([least, most].map(|x| kb.to_index(x)), I32));
                }
                // 0 where it is finite, else NaN.
                let zero = kb.scalar(Scalar::Float(0.0), Elem::F32);
                let rest = kb.binary(BinaryOp::Sub, all, all);
                let is_special = kb.compare(CmpOp::Ne, rest, zero);
                doubts.push(reduced(kb, ReduceKind::Any, is_special));
                for (bound, far, op) in [(least, -FAR_FLOAT, CmpOp::Lt), (most, FAR_FLOAT, CmpOp::Gt)] {
                    let far = kb.scalar(Scalar::Float(far), Elem::F32);
                    doubts.push(kb.compare_scalars(op, bound, far));
                }
                Span::Floats([least, most], [-FAR_FLOAT, FAR_FLOAT])
            }
            Source::Literal(..) | Source::Dim(..) | Source::Formula(_) => Span::Unknown,
        })
    }
}

/// Is a mask a formula that reads something?
pub(super) fn reads(step: &Step) -> bool {
    match &step.op {
        ScoreOp::Keep { kept: Source::Formula(formula), .. } => formula.buffers().next().is_some(),
        ScoreOp::Keep { .. } | ScoreOp::Causal | ScoreOp::Add(_) | ScoreOp::Cap(_) => false,
    }
}

/// An index: a value, or a number that has no value yet.
#[derive(Clone, Copy)]
enum Number {
    Value(Value),
    Literal(i64),
}

/// Two conditions, where both are known.
fn both(kb: &mut KernelBuilder, a: Option<Value>, b: Option<Value>, op: BinaryOp) -> Option<Value> {
    Some(kb.binary(op, a?, b?))
}

/// Two conditions, or the one that is known.
fn either(kb: &mut KernelBuilder, a: Option<Value>, b: Option<Value>, op: BinaryOp) -> Option<Value> {
    match (a, b) {
        (Some(a), Some(b)) => Some(kb.binary(op, a, b)),
        (a, b) => a.or(b),
    }
}

/// Bounds of integers of a type, which wrap.
fn integers(kb: &mut KernelBuilder, bounds: [Number; 2], known: [i128; 2], elem: Elem) -> Span {
    let [low, high] = bounds.map(|n| match n {
        Number::Value(v) => v,
        Number::Literal(n) => kb.index(n),
    });
    let [least, most] = known;
    if elem == Elem::I64 {
        return if least >= -FAR && most <= FAR { Span::Ints([low, high], known) } else { Span::Unknown };
    }
    if least >= I32[0] && most <= I32[1] {
        return Span::Ints([low, high], known);
    }
    let [bottom, top] = [i32::MIN, i32::MAX].map(|n| kb.index(i64::from(n)));
    let above = kb.compare_scalars(CmpOp::Ge, low, bottom);
    let below = kb.compare_scalars(CmpOp::Le, high, top);
    let fits = kb.binary(BinaryOp::And, above, below);
    let bounds = [(low, bottom), (high, top)].map(|(x, end)| kb.value(Op::Select, vec![fits, x, end], Type::Index));
    // Where it wraps it may be anything.
    Span::Ints(bounds, I32)
}

/// Bounds of floats, if they are far from infinite.
fn finite(bounds: [Value; 2], known: [f64; 2]) -> Span {
    if known.iter().all(|x| x.abs() <= FAR_FLOAT) { Span::Floats(bounds, known) } else { Span::Unknown }
}

/// Bounds of an operation, from those of its operands.
fn each(kb: &mut KernelBuilder, op: &Op, x: &[Span], elem: Elem) -> Span {
    match (op, x) {
        (Op::Compare(op), [a, b]) => compared(kb, *op, *a, *b),
        (Op::Unary(UnaryOp::Not), [Span::Truth { always, ever }]) => {
            let mut not = |x: Option<Value>| x.map(|x| kb.unary(UnaryOp::Not, x));
            let (always, ever) = (not(*ever), not(*always));
            Span::Truth { always, ever }
        }
        (Op::Binary(op @ BinaryOp::And), [Span::Truth { always: a, ever: c }, Span::Truth { always: b, ever: d }]) => {
            let always = both(kb, *a, *b, *op);
            Span::Truth { always, ever: either(kb, *c, *d, *op) }
        }
        (Op::Binary(op @ BinaryOp::Or), [Span::Truth { always: a, ever: c }, Span::Truth { always: b, ever: d }]) => {
            let always = either(kb, *a, *b, *op);
            Span::Truth { always, ever: both(kb, *c, *d, *op) }
        }
        (Op::Unary(op), [Span::Ints([low, high], [least, most])]) => match op {
            UnaryOp::Neg => {
                let zero = kb.index(0);
                let [a, b] = [high, low].map(|x| Number::Value(kb.index_binary(BinaryOp::Sub, zero, *x)));
                integers(kb, [a, b], [-most, -least], elem)
            }
            UnaryOp::Abs => {
                let zero = kb.index(0);
                let [up, down] = [low, high].map(|x| kb.index_binary(BinaryOp::Sub, zero, *x));
                let nearest = kb.index_binary(BinaryOp::Max, *low, down);
                let nearest = kb.index_binary(BinaryOp::Max, nearest, zero);
                let farthest = kb.index_binary(BinaryOp::Max, *high, up);
                let known = [0, (*most).max(-least)];
                integers(kb, [Number::Value(nearest), Number::Value(farthest)], known, elem)
            }
            _ => Span::Unknown,
        },
        (Op::Unary(op), [Span::Floats([low, high], [least, most])]) => match op {
            UnaryOp::Neg => finite([kb.unary(*op, *high), kb.unary(*op, *low)], [-most, -least]),
            UnaryOp::Abs => {
                let zero = kb.scalar(Scalar::Float(0.0), Elem::F32);
                let [up, down] = [low, high].map(|x| kb.unary(UnaryOp::Neg, *x));
                let nearest = kb.binary(BinaryOp::Max, *low, down);
                let nearest = kb.binary(BinaryOp::Max, nearest, zero);
                finite([nearest, kb.binary(BinaryOp::Max, *high, up)], [0.0, most.max(-least)])
            }
            // Monotone, and in -1..1.
            UnaryOp::Sign => finite([kb.unary(*op, *low), kb.unary(*op, *high)], [-1.0, 1.0]),
            // Monotone, and rounding changes its operand by at most 1.
            op if op.change() == Change::Steps => {
                finite([kb.unary(*op, *low), kb.unary(*op, *high)], [least - 1.0, most + 1.0])
            }
            _ => Span::Unknown,
        },
        (Op::Binary(op), [Span::Ints(a, of_a), Span::Ints(b, of_b)]) => {
            of_integers(kb, *op, (*a, *of_a), (*b, *of_b), elem)
        }
        (Op::Binary(op), [Span::Floats(a, of_a), Span::Floats(b, of_b)]) => {
            of_floats(kb, *op, (*a, *of_a), (*b, *of_b))
        }
        (Op::Select, [_, Span::Ints(a, of_a), Span::Ints(b, of_b)]) => {
            let low = kb.index_binary(BinaryOp::Min, a[0], b[0]);
            let high = kb.index_binary(BinaryOp::Max, a[1], b[1]);
            Span::Ints([low, high], [of_a[0].min(of_b[0]), of_a[1].max(of_b[1])])
        }
        (Op::Cast, [Span::Ints(bounds, known)]) => match elem {
            Elem::F32 if known[0] >= I32[0] && known[1] <= I32[1] => {
                let bounds = bounds.map(|x| {
                    let x = kb.each(Op::Cast, vec![x], Elem::I32);
                    kb.cast(x, Elem::F32)
                });
                finite(bounds, known.map(|n| n as f64))
            }
            Elem::I32 | Elem::I64 => integers(kb, bounds.map(Number::Value), *known, elem),
            _ => Span::Unknown,
        },
        (Op::Cast, [Span::Floats(bounds, known)]) if elem == Elem::I32 => {
            let fits = known.iter().all(|x| x.abs() < 2e9);
            let bounds = bounds.map(|x| {
                let x = kb.cast(x, Elem::I32);
                kb.to_index(x)
            });
            if fits { Span::Ints(bounds, [known[0].floor() as i128, known[1].ceil() as i128]) } else { Span::Unknown }
        }
        (Op::Select, _) if elem == Elem::Bool => MAYBE,
        _ => {
            if elem == Elem::Bool {
                MAYBE
            } else {
                Span::Unknown
            }
        }
    }
}

/// Bounds of an operation on two integers.
fn of_integers(
    kb: &mut KernelBuilder,
    op: BinaryOp,
    (a, of_a): ([Value; 2], [i128; 2]),
    (b, of_b): ([Value; 2], [i128; 2]),
    elem: Elem,
) -> Span {
    let mut made = |op: BinaryOp, pairs: [(Value, Value); 2], known: [i128; 2]| {
        let bounds = pairs.map(|(x, y)| Number::Value(kb.index_binary(op, x, y)));
        integers(kb, bounds, known, elem)
    };
    let straight = [(a[0], b[0]), (a[1], b[1])];
    // Products have bounds only where one factor is a number.
    let (x, of_x, y, number) = if of_a[0] == of_a[1] { (b, of_b, a, of_a[0]) } else { (a, of_a, b, of_b[0]) };
    let is_number = of_a[0] == of_a[1] || of_b[0] == of_b[1];
    let fits = |x: i128| x.abs() <= 1 << 31;
    match op {
        BinaryOp::Add => made(op, straight, [of_a[0] + of_b[0], of_a[1] + of_b[1]]),
        BinaryOp::Sub => made(op, [(a[0], b[1]), (a[1], b[0])], [of_a[0] - of_b[1], of_a[1] - of_b[0]]),
        BinaryOp::Min => made(op, straight, [of_a[0].min(of_b[0]), of_a[1].min(of_b[1])]),
        BinaryOp::Max => made(op, straight, [of_a[0].max(of_b[0]), of_a[1].max(of_b[1])]),
        BinaryOp::Mul if is_number && fits(number) && of_x.iter().all(|x| fits(*x)) => {
            let order = if number >= 0 { [0, 1] } else { [1, 0] };
            made(op, order.map(|n| (x[n], y[0])), order.map(|n| of_x[n] * number))
        }
        BinaryOp::Div if of_b[0] == of_b[1] && of_b[0] > 0 => {
            made(op, [(a[0], b[0]), (a[1], b[0])], of_a.map(|n| n.div_euclid(of_b[0])))
        }
        BinaryOp::Rem if of_b[0] == of_b[1] && of_b[0] > 0 && fits(of_b[0]) => {
            let most = of_b[0] - 1;
            let bounds = [0, most].map(|n| kb.index(i64::try_from(n).unwrap_or_default()));
            Span::Ints(bounds, [0, most])
        }
        _ => Span::Unknown,
    }
}

/// Bounds of an operation on two floats; rounding keeps their order.
fn of_floats(
    kb: &mut KernelBuilder,
    op: BinaryOp,
    (a, of_a): ([Value; 2], [f64; 2]),
    (b, of_b): ([Value; 2], [f64; 2]),
) -> Span {
    let mut made = |pairs: [(Value, Value); 2], known: [f64; 2]| {
        // The known bounds are computed in f64, so their rounding errors differ.
        let wide = [known[0] - known[0].abs() * 1e-3, known[1] + known[1].abs() * 1e-3];
        finite(pairs.map(|(x, y)| kb.binary(op, x, y)), wide)
    };
    let straight = [(a[0], b[0]), (a[1], b[1])];
    let number = if of_a[0] == of_a[1] { of_a[0] } else { of_b[0] };
    let order = |number: f64| if number >= 0.0 { [0, 1] } else { [1, 0] };
    match op {
        BinaryOp::Add => made(straight, [of_a[0] + of_b[0], of_a[1] + of_b[1]]),
        BinaryOp::Sub => made([(a[0], b[1]), (a[1], b[0])], [of_a[0] - of_b[1], of_a[1] - of_b[0]]),
        BinaryOp::Min => made(straight, [of_a[0].min(of_b[0]), of_a[1].min(of_b[1])]),
        BinaryOp::Max => made(straight, [of_a[0].max(of_b[0]), of_a[1].max(of_b[1])]),
        BinaryOp::Mul if of_b[0] == of_b[1] => {
            made(order(number).map(|n| (a[n], b[0])), order(number).map(|n| of_a[n] * number))
        }
        BinaryOp::Mul if of_a[0] == of_a[1] => {
            made(order(number).map(|n| (a[0], b[n])), order(number).map(|n| of_b[n] * number))
        }
        BinaryOp::Div if of_b[0] == of_b[1] && of_b[0].abs() > 1e-6 => {
            let number = of_b[0];
            made(order(number).map(|n| (a[n], b[0])), order(number).map(|n| of_a[n] / number))
        }
        _ => Span::Unknown,
    }
}

/// Does a comparison hold for all pairs, or for any?
fn compared(kb: &mut KernelBuilder, op: CmpOp, a: Span, b: Span) -> Span {
    let (a, b) = match (a, b) {
        (Span::Ints(a, _), Span::Ints(b, _)) | (Span::Floats(a, _), Span::Floats(b, _)) => (a, b),
        _ => return MAYBE,
    };
    let ([least, most], [from, to]) = (a, b);
    let mut holds = |op: CmpOp, x: Value, y: Value| kb.compare_scalars(op, x, y);
    let (always, ever) = match op {
        CmpOp::Lt | CmpOp::Le => (holds(op, most, from), holds(op, least, to)),
        CmpOp::Gt | CmpOp::Ge => (holds(op, least, to), holds(op, most, from)),
        CmpOp::Eq | CmpOp::Ne => {
            // All are the same number.
            let (down, up) = (holds(CmpOp::Ge, least, to), holds(CmpOp::Le, most, from));
            let (meets, reaches) = (holds(CmpOp::Le, least, to), holds(CmpOp::Ge, most, from));
            let same = kb.binary(BinaryOp::And, down, up);
            let some = kb.binary(BinaryOp::And, meets, reaches);
            match op {
                CmpOp::Eq => (same, some),
                _ => (kb.unary(UnaryOp::Not, some), kb.unary(UnaryOp::Not, same)),
            }
        }
    };
    Span::Truth { always: Some(always), ever: Some(ever) }
}
