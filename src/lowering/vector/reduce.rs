//! Lowering of a `run`: reductions.
//!
//! In: the vectors that a reduction combines, one after another. Out: accumulators in registers,
//! combined and stored at the end of a row, or at the end of all rows where rows are reduced. A
//! maximum or minimum ignores NaN and records in a mask which lanes had one, so that the chain from
//! vector to vector is a single instruction. Where rows are reduced and there is little other work,
//! rows are processed in pairs, with separate accumulators and a single NaN test for both; sums
//! remain one chain over the rows. Truth values are reduced as `i32`, 0 and -1.
//!
//! Without unrolling, float sums along long rows are computed in blocks of columns, whose sums are
//! added. Without masks, elements beyond the last full vector are added separately, in order, and
//! their sum is added at the end.

use super::accumulators::{Sum, sum_of};
use super::frame::{Along, Count};
use super::run::{Chunk, Counter, Lanes, Lower, RowOfPair};
use crate::scalar::Scalar;
use crate::scalar::{BinaryOp, CmpOp, ReduceKind, UnaryOp};
use crate::shape::Elem;
use crate::ssa::Value as Operand;
use crate::tile::{Inst, Op, Value};
use crate::vector::routine::{Op as Do, Reduction, Type};

/// Columns per block of a sum with one accumulator per lane; bounds the accumulated rounding error.
const BLOCK: i64 = 512;

/// The instruction for a float maximum or minimum.
fn extreme(kind: ReduceKind, elem: Elem) -> Option<Do> {
    match (kind, elem) {
        (ReduceKind::Max, Elem::F32) => Some(Do::MaxOrSecond),
        (ReduceKind::Min, Elem::F32) => Some(Do::MinOrSecond),
        _ => None,
    }
}

impl Lower<'_> {
    /// The reductions that the inner loop carries, with the type in which they are computed.
    fn reductions(&self) -> Vec<(Inst, ReduceKind, Elem)> {
        let all = self.f.insts.iter().filter_map(|i| {
            let data = self.f.body.inst(*i);
            let Op::Reduce { kind, axis } = data.op else { return None };
            let elem = data.operands.first().and_then(|v| self.f.body.ty(*v).elem())?;
            let elem = if elem == Elem::Bool { Elem::I32 } else { elem };
            (self.f.along(axis) != Along::One).then_some((*i, kind, elem))
        });
        all.collect()
    }

    /// The identity of a reduction.
    pub(super) fn identity(&mut self, kind: ReduceKind, elem: Elem) -> Operand {
        let ty = self.b.vector(elem);
        let s = match Scalar::identity(kind, elem) {
            Scalar::Bool(truth) => Scalar::Int(-i64::from(truth)),
            number => number,
        };
        self.b.constant(s, ty)
    }

    /// Combines two partial results.
    pub(super) fn combine(&mut self, kind: ReduceKind, x: Operand, y: Operand) -> Option<Operand> {
        let op = match kind {
            ReduceKind::Sum => Do::Binary(BinaryOp::Add),
            ReduceKind::Max => Do::Binary(BinaryOp::Max),
            ReduceKind::Min => Do::Binary(BinaryOp::Min),
            ReduceKind::All => Do::BitAnd,
            ReduceKind::Any => Do::BitOr,
            ReduceKind::Mean | ReduceKind::LogSumExp | ReduceKind::ArgMax => return None,
        };
        Some(self.b.inst(op, &[x, y]))
    }

    /// Is it a float sum along a row, whose rounding depends on the order?
    fn rounds(&self, kind: ReduceKind, elem: Elem) -> bool {
        kind == ReduceKind::Sum && elem == Elem::F32 && !self.f.cols_outside
    }

    /// Are there sums in blocks of columns?
    fn sums_in_blocks(&self) -> bool {
        let is_long = self.shape.unroll == 1 && self.f.cols.most() > BLOCK;
        is_long && self.reductions().into_iter().any(|(_, kind, elem)| self.rounds(kind, elem))
    }

    /// The loop over columns up to an end that is not yet reached, in blocks if there are sums.
    pub(super) fn in_blocks(
        &mut self,
        step: i64,
        end: Operand,
        body: &mut dyn FnMut(&mut Self) -> Option<()>,
    ) -> Option<()> {
        if !self.sums_in_blocks() {
            return self.repeat(Counter::Cols, step, end, body);
        }
        let block = self.b.index(BLOCK);
        let top = self.after(Counter::Cols);
        self.join(Counter::Cols, top);
        let next = self.b.add(self.col?, block);
        let block_end = self.b.inst(Do::Binary(BinaryOp::Min), &[next, end]);
        self.repeat(Counter::Cols, step, block_end, body)?;
        self.finish_block()?;
        let carried = self.carried(Counter::Cols);
        let more = self.b.inst(Do::Compare(CmpOp::Lt), &[self.col?, end]);
        let done = self.b.block_for(&[]);
        self.b.branch(more, (top, &carried), (done, &[]));
        self.b.start(done);
        Some(())
    }

    /// Adds the sums of a block to the sums of the blocks before it.
    fn finish_block(&mut self) -> Option<()> {
        for (i, kind, elem) in self.reductions() {
            if !self.rounds(kind, elem) {
                continue;
            }
            let nothing = self.identity(kind, elem);
            let sum = sum_of(&mut self.sums, i)?;
            let (before, part) = (sum.before.as_mut()?, sum.parts.first_mut()?);
            *before = self.b.add(*before, *part);
            *part = nothing;
        }
        Some(())
    }

    /// Initialises the accumulators.
    pub(super) fn start_sums(&mut self, vectors: usize) -> Option<()> {
        for (i, kind, elem) in self.reductions() {
            let first = self.identity(kind, elem);
            let mut sum = Sum { first: vec![None; vectors], ..Sum::default() };
            let both = if extreme(kind, elem).is_some() && self.pairs { 2 } else { 1 };
            sum.parts = vec![first; vectors * both];
            if self.rounds(kind, elem) {
                sum.before = self.sums_in_blocks().then_some(first);
                let zero = Scalar::identity(kind, elem);
                let is_apart = !self.shape.masks && self.tail.is_some();
                sum.last = is_apart.then(|| self.b.constant(zero, Type::Lanes(elem, 1)));
            }
            if kind == ReduceKind::ArgMax {
                sum.places = vec![self.b.int(0); vectors];
            }
            if extreme(kind, elem).is_some() {
                let none = self.b.inst(Do::Unordered, &[first, first]);
                sum.nans = vec![none; vectors];
            }
            self.sums.push((i, sum));
        }
        Some(())
    }

    /// Combines a vector with the accumulators.
    pub(super) fn accumulate(
        &mut self,
        i: Inst,
        kind: ReduceKind,
        v: Value,
        chunk: &Chunk,
        vector: usize,
    ) -> Option<()> {
        let mut elem = self.f.body.ty(v).elem()?;
        let mut x = self.operand(v, 2, chunk, vector)?;
        if elem == Elem::Bool {
            (x, elem) = (self.b.inst(Do::MaskBits, &[x]), Elem::I32);
        }
        if let (Lanes::Some { mask, .. }, false) = (chunk.lanes, self.f.cols_outside) {
            if self.rounds(kind, elem) && !self.shape.masks {
                return self.add_last(i, x, mask);
            }
            let nothing = self.identity(kind, elem);
            x = self.b.inst(Do::Select, &[mask, x, nothing]);
        }
        if kind == ReduceKind::ArgMax {
            let place = self.place(chunk, vector)?;
            let sum = sum_of(&mut self.sums, i)?;
            let (best, at) = (sum.parts.get_mut(vector)?, sum.places.get_mut(vector)?);
            let beats = self.b.inst(Do::Beats, &[x, *best]);
            *best = self.b.inst(Do::Select, &[beats, x, *best]);
            *at = self.b.inst(Do::Select, &[beats, place, *at]);
            return Some(());
        }
        if let Some(op) = extreme(kind, elem) {
            let Sum { parts, nans, first, .. } = sum_of(&mut self.sums, i)?;
            let vectors = nans.len();
            let second = self.row_of_pair == RowOfPair::Second;
            let sum = parts.get_mut(if second { vectors + vector } else { vector })?;
            let tested = if self.row_of_pair == RowOfPair::First {
                None
            } else {
                Some(first.get(vector).copied()?.unwrap_or(x))
            };
            *first.get_mut(vector)? = tested.is_none().then_some(x);
            // `MaxOrSecond` returns the accumulator if either is NaN.
            *sum = self.b.inst(op, &[x, *sum]);
            if let Some(y) = tested {
                let found = self.b.inst(Do::Unordered, &[x, y]);
                let nan = nans.get_mut(vector)?;
                *nan = self.b.inst(Do::Binary(BinaryOp::Or), &[*nan, found]);
            }
            return Some(());
        }
        let sum = *sum_of(&mut self.sums, i)?.parts.get(vector)?;
        let next = self.combine(kind, sum, x)?;
        *sum_of(&mut self.sums, i)?.parts.get_mut(vector)? = next;
        Some(())
    }

    /// Adds the elements beyond the last full vector.
    fn add_last(&mut self, i: Inst, x: Operand, mask: Operand) -> Option<()> {
        let (x, count) = match self.f.cols {
            Count::Static(n) => (x, n % self.lanes()),
            Count::Word(..) => {
                let nothing = self.identity(ReduceKind::Sum, Elem::F32);
                (self.b.inst(Do::Select, &[mask, x, nothing]), self.lanes() - 1)
            }
        };
        for lane in 0..u32::try_from(count).ok()? {
            let element = self.b.inst(Do::Extract(lane), &[x]);
            let last = sum_of(&mut self.sums, i)?.last.as_mut()?;
            *last = self.b.add(*last, element);
        }
        Some(())
    }

    /// Index of each element along the reduced axis: its column, or its row.
    fn place(&mut self, chunk: &Chunk, vector: usize) -> Option<Operand> {
        let ty = self.b.vector(Elem::I32);
        if self.f.cols_outside {
            let row = self.row?;
            return Some(self.b.typed(Do::Splat, &[row], ty));
        }
        let first = chunk.offset + i64::try_from(vector).ok()? * self.lanes();
        let lane = self.lane_numbers();
        let first = self.b.int(i32::try_from(first).ok()?);
        let place = self.b.inst(Do::Binary(BinaryOp::Add), &[lane, first]);
        Some(match chunk.at {
            Some(c) => {
                let c = self.b.typed(Do::Splat, &[c], ty);
                self.b.inst(Do::Binary(BinaryOp::Add), &[place, c])
            }
            None => place,
        })
    }

    /// Combines the accumulators of a vector; NaN where the mask says so.
    fn total(&mut self, kind: ReduceKind, elem: Elem, sum: &Sum, vector: usize) -> Option<Operand> {
        if kind == ReduceKind::ArgMax {
            return sum.places.get(vector).copied();
        }
        let mut x = match sum.before {
            Some(before) => before,
            None => *sum.parts.get(vector)?,
        };
        let Some(op) = extreme(kind, elem) else { return Some(x) };
        if let Some(y) = sum.parts.get(sum.nans.len() + vector) {
            x = self.b.inst(op, &[x, *y]);
        }
        let ty = self.b.vector(elem);
        let nan = self.b.constant(Scalar::Float(f64::NAN), ty);
        Some(self.b.inst(Do::Select, &[*sum.nans.get(vector)?, nan, x]))
    }

    /// Combines the accumulators of a row to one element.
    fn whole(&mut self, kind: ReduceKind, elem: Elem, sum: &Sum) -> Option<Operand> {
        let mut all = self.total(kind, elem, sum, 0)?;
        for vector in 1..sum.first.len() {
            let other = self.total(kind, elem, sum, vector)?;
            all = self.combine(kind, all, other)?;
        }
        let all = self.b.inst(Do::Reduce(Reduction::from_kind(kind)?), &[all]);
        Some(match sum.last {
            Some(last) => self.b.add(all, last),
            None => all,
        })
    }

    /// Of two elements with their indices, the one that `argmax` prefers: the one that beats the
    /// other, or else the earlier one.
    fn better(&mut self, (x, i): (Operand, Operand), (y, j): (Operand, Operand)) -> (Operand, Operand) {
        let (first, second) = (self.b.inst(Do::Beats, &[x, y]), self.b.inst(Do::Beats, &[y, x]));
        let earlier = self.b.inst(Do::Compare(CmpOp::Lt), &[j, i]);
        let not_beaten = self.b.inst(Do::Unary(UnaryOp::Not), &[first]);
        let tied = self.b.inst(Do::Binary(BinaryOp::And), &[not_beaten, earlier]);
        let taken = self.b.inst(Do::Binary(BinaryOp::Or), &[second, tied]);
        (self.b.inst(Do::Select, &[taken, y, x]), self.b.inst(Do::Select, &[taken, j, i]))
    }

    /// The index of a row's maximum.
    fn best(&mut self, sum: &Sum) -> Option<Operand> {
        let mut all = sum.parts.iter().copied().zip(sum.places.iter().copied());
        let mut best = all.next()?;
        for other in all {
            best = self.better(best, other);
        }
        let mut distance = self.shape.lanes / 2;
        while distance > 0 {
            let other = [best.0, best.1].map(|x| self.b.inst(Do::Exchange(distance), &[x]));
            best = self.better(best, (other[0], other[1]));
            distance /= 2;
        }
        Some(self.b.inst(Do::First, &[best.1]))
    }

    /// Combines a row's reductions and stores them.
    pub(super) fn finish_row(&mut self) -> Option<()> {
        for (i, kind, elem) in self.reductions() {
            self.b.code_of(Some(i));
            let sum = sum_of(&mut self.sums, i)?.clone();
            let x = if kind == ReduceKind::ArgMax { self.best(&sum)? } else { self.whole(kind, elem, &sum)? };
            let v = self.f.body.inst(i).result?;
            let whole = Chunk { at: None, offset: 0, vectors: 1, lanes: Lanes::All };
            let (at, _) = self.scratch_place(self.f.body.ty(v).tile()?, &whole, 0)?;
            let result = self.computed_in(v)?;
            self.b.store(result, &at, x, None);
            self.b.code_of(None);
        }
        self.sums.clear();
        Some(())
    }

    /// The element type of a reduction's result in scratch; truth values are 4-byte masks.
    fn computed_in(&self, v: Value) -> Option<Elem> {
        let elem = self.f.body.ty(v).elem()?;
        Some(if elem == Elem::Bool { Elem::I32 } else { elem })
    }

    /// Stores the reductions of some columns.
    pub(super) fn finish_columns(&mut self, chunk: &Chunk) -> Option<()> {
        for (i, kind, elem) in self.reductions() {
            self.b.code_of(Some(i));
            let sum = sum_of(&mut self.sums, i)?.clone();
            let v = self.f.body.inst(i).result?;
            let t = self.f.body.ty(v).tile()?;
            for vector in 0..chunk.vectors {
                let x = self.total(kind, elem, &sum, vector)?;
                let (at, lanes) = self.scratch_place(t, chunk, vector)?;
                let result = self.computed_in(v)?;
                self.b.store(result, &at, x, lanes.mask());
            }
            self.b.code_of(None);
        }
        self.sums.clear();
        Some(())
    }
}
