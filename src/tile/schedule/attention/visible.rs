//! Block skipping: blocks of keys that the masks hide from a whole tile of queries are not visited,
//! and fully visible blocks are computed without the mask.
//!
//! In: the masks that hide keys, a tile of queries and a block of keys. Out: bounds of the masks'
//! formulas (`spans`), and a loop over blocks that tests them first and then takes one of three
//! branches. Tensor core kernels, which copy blocks in the background, instead search for the next
//! visible block ([`Hiding::next_seen`]).
//!
//! ```text
//!   for each block:  i in [row, row + Q), j in [key, key + 64)     j <= i and i - j <= W
//!     ever   = key <= row + Q - 1  and  row - (key + 63) <= W      if false: the block is skipped
//!     always = key + 63 <= row     and  row + Q - 1 - key <= W     if true: scores as they are, else masked
//! ```
//!
//! On CPUs the hidden keys at the ends of a partly visible block are trimmed, by the same bounds
//! for parts of it; and where many blocks in a row are hidden, all of them are skipped at once.
//! With 4 heads of 64, a sliding window of the last 256 keys and 16,384 queries, this takes 0.925
//! of the time of whole blocks of 64 keys; trimmed blocks of 64, 96, 192 and 256 keys take 1.03,
//! 1.02, 1.01 and 1.01 times as long as trimmed blocks of 128.
//!
//! The bounds of a vector (document ids) are its minimum and maximum in the tile or block; vectors
//! of floats have them too, and where an element is not finite, or exceeds 1e28 in magnitude,
//! nothing is concluded for that block. Unknown operands (narrower floats, buffers read for each
//! pair) may have any value, so those blocks are visited. Skipping is exact: these masks come last
//! and replace scores by `-inf`, whose weight is 0.

use std::collections::{BTreeMap, BTreeSet};

use super::keys::{Pass, Round, Running};
use super::spans::{FAR, FAR_READ, I32, MAYBE, Number, Span, both, each, either, finite, integers};
use super::{AttentionKernel, Masks, ONE, QueryLayout, formula_of};
use crate::scalar::{BinaryOp, CmpOp, ReduceKind, Scalar, UnaryOp, round_to};
use crate::shape::{Dim, Elem};
use crate::tile::attention::{Formula, Node, ScoreOp, Step};
use crate::tile::{Extent, KernelBuilder, Op, Type, Value};

/// The masks of an attention that hide keys, and the tile of queries they apply to.
pub(in crate::tile::schedule) struct Hiding<'a> {
    /// The masks, in order: the last ones of the attention.
    pub(in crate::tile::schedule) steps: Vec<&'a Step>,
    /// Rank of the buffers; the last two axes are rows and columns.
    pub(in crate::tile::schedule) rank: usize,
    /// Indices along the leading axes.
    pub(in crate::tile::schedule) points: Vec<Value>,
    /// First query, queries of a tile, and the last valid query in it.
    pub(in crate::tile::schedule) row: Value,
    pub(in crate::tile::schedule) queries: Extent,
    pub(in crate::tile::schedule) last_query: Value,
    /// Number of keys, and the number of keys minus that of queries.
    pub(in crate::tile::schedule) keys: Dim,
    pub(in crate::tile::schedule) shift: Value,
    /// Keys of a block.
    pub(in crate::tile::schedule) block: i64,
    /// Whether tiles are whole, with zeros beyond the last query and key.
    pub(in crate::tile::schedule) whole_tiles: bool,
    /// Whether bounds read buffers that vary with queries or keys.
    pub(in crate::tile::schedule) reads: bool,
    /// Cached bounds of per-query buffers, by parameter index, with the conditions under which the
    /// bounds are invalid.
    pub(in crate::tile::schedule) of_queries: BTreeMap<usize, (Span, Vec<Value>)>,
}

/// A range of keys: the first, the last (inclusive), and how many are read.
#[derive(Clone, Copy)]
pub(in crate::tile::schedule) struct Keys {
    first: Value,
    pub(in crate::tile::schedule) last: Value,
    count: Extent,
}

/// Whether all pairs of a block of keys are visible (`always`), or any (`ever`); `None` where
/// unknown.
pub(in crate::tile::schedule) struct Seen {
    pub(in crate::tile::schedule) keys: Keys,
    pub(in crate::tile::schedule) always: Option<Value>,
    pub(in crate::tile::schedule) ever: Option<Value>,
}

/// Granularity, in keys, at which the ends of a partly visible block are trimmed.
const PART: i64 = 32;
/// Blocks that are skipped at once where all of them are hidden.
const SKIPPED: i64 = 8;

/// Whether a mask is a formula that reads a buffer.
pub(super) fn reads(step: &Step) -> bool {
    formula_of(step).is_some_and(|formula| formula.buffers().next().is_some())
}

impl AttentionKernel<'_> {
    /// The masks starting at index `from`, all of which hide keys.
    pub(super) fn hiding(&self, kb: &mut KernelBuilder, from: usize) -> Option<Hiding<'_>> {
        let count = match self.queries {
            Extent::Static(n) => kb.index(n),
            Extent::Bounded { value, .. } => value,
        };
        let after = kb.index_binary(BinaryOp::Add, self.row, count);
        let last_query = kb.plus(after, -1);
        Some(Hiding {
            steps: self.attention.steps.get(from..)?.iter().collect(),
            rank: self.rank,
            points: self.points().to_vec(),
            row: self.row,
            queries: if self.layout == QueryLayout::KeysInLanes { ONE } else { self.queries },
            last_query,
            keys: self.t.clone(),
            shift: self.shift,
            block: self.block,
            whole_tiles: false,
            reads: true,
            of_queries: BTreeMap::new(),
        })
    }

    /// One loop over blocks of keys that visits only visible ones; the masks starting at `from`
    /// hide keys.
    pub(super) fn visible_round(
        &self,
        kb: &mut KernelBuilder,
        queries: &[Value],
        now: Running,
        from: usize,
        pass: Pass,
    ) -> Option<Running> {
        let hiding = self.hiding(kb, from)?;
        let end = hiding.end(kb);
        let end = self.part.map_or(end, |part| part.end_before(kb, end));
        let rounds = kb.begin_loop(&now.carried());
        let now = Running::from_values(&rounds.args)?;
        let more = kb.compare_scalars(CmpOp::Lt, now.next, end);
        kb.enter_loop(&rounds, more);
        let Seen { keys: block, always, ever } = hiding.block_at(kb, now.next, end)?;
        if let Some(ever) = ever {
            let (visit, _) = kb.new_block(Vec::new());
            let (skip, _) = kb.new_block(Vec::new());
            kb.br_if(ever, (visit, &[]), (skip, &[]));
            kb.switch_to(skip);
            let to = |kb: &mut KernelBuilder, blocks: i64| {
                let next = kb.plus(now.next, blocks * self.block);
                kb.br(rounds.head, &now.from(next).carried());
            };
            // Skip many blocks at once where all are hidden.
            if let Some(near) = hiding.part(kb, now.next, 0, SKIPPED * self.block)? {
                let (far, _) = kb.new_block(Vec::new());
                let (one, _) = kb.new_block(Vec::new());
                kb.br_if(near, (one, &[]), (far, &[]));
                kb.switch_to(far);
                to(kb, SKIPPED);
                kb.switch_to(one);
            }
            to(kb, 1);
            kb.switch_to(visit);
        }
        let (size, keys) = if self.by_key(pass) { (1, ONE) } else { (self.block, block.count) };
        let round = Round { end, block: size, whole: false, masks: Masks::All, pass };
        let next = kb.plus(now.next, size);
        if let Some(always) = always.filter(|_| pass == Pass::Quick) {
            let (all, _) = kb.new_block(Vec::new());
            let (some, _) = kb.new_block(Vec::new());
            kb.br_if(always, (all, &[]), (some, &[]));
            kb.switch_to(all);
            let before = Round { masks: Masks::Before(from), ..round };
            let then = self.block_of_keys(kb, queries, &now, keys, before)?;
            kb.br(rounds.head, &then.from(next).carried());
            kb.switch_to(some);
        }
        let (first, keys) = match pass {
            // Panels of values are read whole.
            Pass::Quick if self.layout != QueryLayout::InLanePairs => hiding.trimmed(kb, block)?,
            Pass::Quick | Pass::Careful => (now.next, keys),
        };
        let then = self.block_of_keys(kb, queries, &now.from(first), keys, round)?;
        kb.br(rounds.head, &then.from(next).carried());
        kb.switch_to(rounds.done);
        Some(now)
    }
}

impl Hiding<'_> {
    /// End (exclusive) of the keys that a query of the tile may see.
    pub(in crate::tile::schedule) fn end(&self, kb: &mut KernelBuilder) -> Value {
        let end = kb.dim(&self.keys);
        if !self.steps.iter().any(|step| step.op == ScoreOp::Causal) {
            return end;
        }
        let seen = kb.index_binary(BinaryOp::Add, self.last_query, self.shift);
        let seen = kb.plus(seen, 1);
        kb.index_binary(BinaryOp::Min, end, seen)
    }

    /// The block that starts at key `first < end`, and its visibility.
    pub(in crate::tile::schedule) fn block_at(&self, kb: &mut KernelBuilder, first: Value, end: Value) -> Option<Seen> {
        let rest = kb.index_binary(BinaryOp::Sub, end, first);
        let most = kb.index(self.block);
        let count = kb.index_binary(BinaryOp::Min, rest, most);
        let last = kb.index_binary(BinaryOp::Add, first, count);
        let last = kb.plus(last, -1);
        let count = match self.whole_tiles {
            true => Extent::Static(self.block),
            false => Extent::Bounded { value: count, max: self.block },
        };
        let keys = Keys { first, last, count };
        let (always, ever) = self.seen_of(kb, keys)?;
        Some(Seen { keys, always, ever })
    }

    /// Whether the masks show all pairs of these keys, and any.
    fn seen_of(&self, kb: &mut KernelBuilder, keys: Keys) -> Option<(Option<Value>, Option<Value>)> {
        let (mut always, mut ever) = (None, None);
        for (n, step) in self.steps.iter().enumerate() {
            let seen = kb.placed(step.loc, |kb| self.seen(kb, step, keys))?;
            // A mask with an unknown result may hide any key, or no key.
            let (a, e) = match seen {
                Span::Truth { always, ever } => (always, ever),
                Span::Ints(..) | Span::Floats(..) | Span::Unknown => (None, None),
            };
            always = if n == 0 { a } else { both(kb, always, a, BinaryOp::And) };
            ever = either(kb, ever, e, BinaryOp::And);
        }
        Some((always, ever))
    }

    /// Whether any of `count` keys, starting `after` keys after `key`, is visible; `Some(None)` if
    /// masks read memory, since each part would read it again.
    fn part(&self, kb: &mut KernelBuilder, key: Value, after: i64, count: i64) -> Option<Option<Value>> {
        if self.steps.iter().any(|step| reads(step)) {
            return Some(None);
        }
        let first = kb.plus(key, after);
        let last = kb.plus(key, after + count - 1);
        Some(self.seen_of(kb, Keys { first, last, count: Extent::Static(count) })?.1)
    }

    /// Trims the hidden keys at the ends of a block, in units of [`PART`] keys; returns the first
    /// key and the count.
    fn trimmed(&self, kb: &mut KernelBuilder, block: Keys) -> Option<(Value, Extent)> {
        let parts = (self.block - 1) / PART + 1;
        let untouched = Some((block.first, block.count));
        let Extent::Bounded { value: count, max } = block.count else { return untouched };
        if parts < 2 {
            return untouched;
        }
        let mut ever = Vec::new();
        for n in 0..parts {
            let Some(seen) = self.part(kb, block.first, n * PART, PART)? else { return untouched };
            ever.push((n, seen));
        }
        // Start of the first visible part, and end of the last one. At least one key is left.
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
        // A no-op that makes the bound obvious to the verifier.
        let zero = kb.index(0);
        let start = kb.index_binary(BinaryOp::Max, start, zero);
        let stop = kb.index_binary(BinaryOp::Min, stop, count);
        let after = kb.plus(start, 1);
        let stop = kb.index_binary(BinaryOp::Max, stop, after);
        let first = kb.index_binary(BinaryOp::Add, block.first, start);
        let value = kb.index_binary(BinaryOp::Sub, stop, start);
        Some((first, Extent::Bounded { value, max }))
    }

    /// The first visible block, starting the search at `first`; `end` or more if there is no such
    /// block.
    pub(in crate::tile::schedule) fn next_seen(
        &self,
        kb: &mut KernelBuilder,
        first: Value,
        end: Value,
    ) -> Option<Value> {
        let search = kb.begin_loop(&[first]);
        let [at] = *search.args.as_slice() else { return None };
        let more = kb.compare_scalars(CmpOp::Lt, at, end);
        kb.enter_loop(&search, more);
        let seen = self.block_at(kb, at, end)?;
        match seen.ever {
            Some(ever) => {
                let next = kb.plus(at, self.block);
                kb.br_if(ever, (search.done, &[]), (search.head, &[next]));
            }
            None => kb.br(search.done, &[]),
        }
        kb.switch_to(search.done);
        Some(at)
    }

    /// Whether a mask shows all pairs of a block, and any.
    fn seen(&self, kb: &mut KernelBuilder, step: &Step, keys: Keys) -> Option<Span> {
        match &step.op {
            ScoreOp::Causal => {
                let of_queries = [self.row, self.last_query];
                let [first, last] = of_queries.map(|i| kb.index_binary(BinaryOp::Add, i, self.shift));
                let always = kb.compare_scalars(CmpOp::Le, keys.last, first);
                let ever = kb.compare_scalars(CmpOp::Le, keys.first, last);
                Some(Span::Truth { always: Some(always), ever: Some(ever) })
            }
            ScoreOp::Keep { .. } => formula_of(step).map_or(Some(MAYBE), |formula| self.span(kb, formula, keys)),
            ScoreOp::Add(_) | ScoreOp::Cap(_) => None,
        }
    }

    /// Bounds of a formula over a block.
    fn span(&self, kb: &mut KernelBuilder, formula: &Formula, keys: Keys) -> Option<Span> {
        let (mut spans, mut doubts): (Vec<Span>, Vec<Value>) = (Vec::new(), Vec::new());
        for node in formula.nodes() {
            let span = match node {
                Node::Position(axis, _) => {
                    let bounds = match self.rank.checked_sub(*axis)? {
                        1 => [keys.first, keys.last],
                        2 => [self.row, self.last_query],
                        _ => [*self.points.get(*axis)?; 2],
                    };
                    Span::Ints(bounds, [0, I32[1]])
                }
                Node::Literal(..) | Node::Dim(..) | Node::Buffer(_) => self.span_of(kb, node, keys, &mut doubts)?,
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

    /// Bounds of a leaf of a formula.
    fn span_of(&self, kb: &mut KernelBuilder, node: &Node, keys: Keys, doubts: &mut Vec<Value>) -> Option<Span> {
        Some(match node {
            Node::Literal(Scalar::Int(n), Elem::I32 | Elem::I64) => Span::Ints([kb.index(*n); 2], [i128::from(*n); 2]),
            Node::Literal(Scalar::Float(x), elem) if elem.is_float() => {
                let x = round_to(*elem, *x);
                finite([kb.scalar(Scalar::Float(x), Elem::F32); 2], [x; 2])
            }
            Node::Dim(d, Elem::I32) => match d.as_const() {
                Some(n) => integers(kb, [Number::Literal(n); 2], [i128::from(n); 2], Elem::I32),
                None => {
                    let n = Number::Value(kb.dim(d));
                    integers(kb, [n, n], [-FAR, FAR], Elem::I32)
                }
            },
            Node::Buffer(n) => match self.of_queries.get(n) {
                Some((span, of_queries)) => {
                    doubts.extend(of_queries);
                    *span
                }
                None => {
                    let axis = match self.varies(kb, *n)? {
                        Varies::No => None,
                        Varies::WithKeys if self.reads => Some((self.rank - 1, keys.count)),
                        Varies::WithQueries if self.reads => Some((self.rank - 2, self.queries)),
                        Varies::WithQueries | Varies::WithKeys | Varies::WithBoth => return Some(Span::Unknown),
                    };
                    self.read(kb, *n, keys.first, axis, doubts)?
                }
            },
            Node::Literal(..) | Node::Dim(..) | Node::Position(..) | Node::Each(..) => Span::Unknown,
        })
    }

    /// Caches the bounds of buffers that vary only with queries, so that they are read once, before
    /// the loops. They are read at key 0, which is out of bounds in a call without keys.
    pub(in crate::tile::schedule) fn with_queries(mut self, kb: &mut KernelBuilder) -> Option<Self> {
        for n in self.buffers() {
            if self.reads && self.varies(kb, n)? == Varies::WithQueries {
                let (mut doubts, zero) = (Vec::new(), kb.index(0));
                let span = self.read(kb, n, zero, Some((self.rank - 2, self.queries)), &mut doubts)?;
                self.of_queries.insert(n, (span, doubts));
            }
        }
        Some(self)
    }

    /// Whether bounds read vectors: buffers that vary only with queries or only with keys.
    pub(in crate::tile::schedule) fn reads_vectors(&self, kb: &KernelBuilder) -> bool {
        let vector = |n: usize| matches!(self.varies(kb, n), Some(Varies::WithQueries | Varies::WithKeys));
        self.buffers().into_iter().any(vector)
    }

    /// The buffers of the formulas.
    fn buffers(&self) -> BTreeSet<usize> {
        self.steps.iter().filter_map(|step| formula_of(step)).flat_map(Formula::buffers).collect()
    }

    /// The axes along which a buffer varies.
    fn varies(&self, kb: &KernelBuilder, n: usize) -> Option<Varies> {
        let ty = kb.ty(kb.param(n)?).buffer()?;
        let varies = |axis: usize| ty.strides.get(axis).is_some_and(|d| d.as_const() != Some(0));
        Some(match (varies(self.rank - 2) && self.queries != ONE, varies(self.rank - 1)) {
            (false, false) => Varies::No,
            (true, false) => Varies::WithQueries,
            (false, true) => Varies::WithKeys,
            (true, true) => Varies::WithBoth,
        })
    }

    /// Bounds of a buffer at key `first`: of one element, or of a number of elements along an axis.
    fn read(
        &self,
        kb: &mut KernelBuilder,
        n: usize,
        first: Value,
        axis: Option<(usize, Extent)>,
        doubts: &mut Vec<Value>,
    ) -> Option<Span> {
        let buffer = kb.param(n)?;
        let ty = kb.ty(buffer).buffer()?.clone();
        if !matches!(ty.elem, Elem::I32 | Elem::F32) {
            return Some(Span::Unknown);
        }
        let at = match ty.shape.is_empty() {
            true => Vec::new(),
            false => [self.points.as_slice(), &[self.row, first]].concat(),
        };
        let all = match axis {
            None => kb.load_scalar(buffer, &at),
            // Side by side, so that lanes of vectors share a reduction.
            Some((axis, count)) => kb.load(buffer, &at, (None, Some(axis)), ONE, count),
        };
        let reduced = |kb: &mut KernelBuilder, kind: ReduceKind, x: Value| match axis {
            Some(_) => {
                let bound = kb.reduce(kind, 1, x);
                kb.element(bound)
            }
            None => x,
        };
        let [least, most] = [ReduceKind::Min, ReduceKind::Max].map(|kind| reduced(kb, kind, all));
        if ty.elem == Elem::I32 {
            return Some(Span::Ints([least, most].map(|x| kb.to_index(x)), I32));
        }
        // 0 for a finite number, else NaN.
        let zero = kb.scalar(Scalar::Float(0.0), Elem::F32);
        let rest = kb.binary(BinaryOp::Sub, all, all);
        let is_special = kb.compare(CmpOp::Ne, rest, zero);
        doubts.push(reduced(kb, ReduceKind::Any, is_special));
        for (bound, far, op) in [(least, -FAR_READ, CmpOp::Lt), (most, FAR_READ, CmpOp::Gt)] {
            let far = kb.scalar(Scalar::Float(far), Elem::F32);
            doubts.push(kb.compare_scalars(op, bound, far));
        }
        Some(Span::Floats([least, most], [-FAR_READ, FAR_READ]))
    }
}

/// Which of queries and keys a buffer varies with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Varies {
    No,
    WithQueries,
    WithKeys,
    WithBoth,
}
