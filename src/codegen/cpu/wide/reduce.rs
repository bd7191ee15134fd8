//! Instruction selection of a `run`: its reductions.
//!
//! In: the vectors that a reduction takes in, one after another. Out: accumulators in registers, put together and written
//! at the end of a row, or of all rows where it is rows that are reduced. A maximum or minimum leaves NaN aside and
//! remembers which lanes had one, so that the chain from vector to vector is a single instruction. Where rows are reduced
//! and little else is done, two rows go by at a time, with accumulators of their own and one test for NaN for both; sums
//! stay one chain over the rows.

use super::access::Lanes;
use super::frame::Along;
use super::machine::{Constant, Op as Do, Reg};
use super::run::{Chunk, Select, Turn};
use crate::scalar::ReduceKind;
use crate::shape::Elem;
use crate::tile::{Inst, Op, Value};

/// The accumulators of a reduction.
#[derive(Clone, Default)]
pub(super) struct Sum {
    /// One for each vector, then, if rows go in pairs, one for each vector of the second rows.
    parts: Vec<Reg>,
    /// For each vector, which lanes had a NaN.
    nans: Vec<Reg>,
    /// For each vector, what the first of two rows brought.
    first: Vec<Option<Reg>>,
    /// Of an `argmax`, for each vector where its maxima stand.
    places: Vec<Reg>,
}

/// Is it a maximum or minimum of floats? Then its instruction.
fn extreme(kind: ReduceKind, elem: Elem) -> Option<Do> {
    match (kind, elem) {
        (ReduceKind::Max, Elem::F32) => Some(Do::Max),
        (ReduceKind::Min, Elem::F32) => Some(Do::Min),
        _ => None,
    }
}

impl Sum {
    /// What changes from turn to turn.
    pub(super) fn accumulators(&mut self) -> impl Iterator<Item = &mut Reg> {
        self.parts.iter_mut().chain(&mut self.nans).chain(&mut self.places)
    }
}

impl Select<'_> {
    /// The reductions of the run that go through the inner loop.
    fn reductions(&self) -> Vec<(Inst, ReduceKind, Elem)> {
        let all = self.f.insts.iter().filter_map(|i| {
            let data = self.f.body.inst(*i);
            let Op::Reduce { kind, axis } = data.op else { return None };
            let elem = data.operands.first().and_then(|v| self.f.body.ty(*v).elem())?;
            (self.f.along(axis) != Along::One).then_some((*i, kind, elem))
        });
        all.collect()
    }

    /// Empties the accumulators.
    pub(super) fn start_sums(&mut self, vectors: usize) -> Option<()> {
        for (i, kind, elem) in self.reductions() {
            let first = self.m.identity(kind, elem)?;
            let mut sum = Sum { first: vec![None; vectors], ..Sum::default() };
            let both = if extreme(kind, elem).is_some() && self.pairs { 2 } else { 1 };
            sum.parts = (0..vectors * both).map(|_| self.m.copy(first)).collect();
            if kind == ReduceKind::ArgMax {
                let start = self.m.int(0);
                sum.places = (0..vectors).map(|_| self.m.copy(start)).collect();
            }
            if extreme(kind, elem).is_some() {
                let none = self.m.unordered(first);
                sum.nans = (0..vectors).map(|_| self.m.copy(none)).collect();
            }
            self.sums.insert(i, sum);
        }
        Some(())
    }

    /// Takes in a vector.
    pub(super) fn accumulate(
        &mut self,
        i: Inst,
        kind: ReduceKind,
        v: Value,
        chunk: &Chunk,
        vector: usize,
    ) -> Option<()> {
        let elem = self.f.body.ty(v).elem()?;
        let mut x = self.operand(v, 2, chunk, vector)?;
        if elem == Elem::Bool {
            x = self.m.spelled(x);
        }
        if let (Lanes::Some { mask, .. }, false) = (chunk.lanes, self.f.cols_outside) {
            let nothing = self.m.identity(kind, elem)?;
            x = self.m.choose(mask, x, nothing);
        }
        if kind == ReduceKind::ArgMax {
            let place = self.place(chunk, vector)?;
            let sum = self.sums.get_mut(&i)?;
            let (best, at) = (sum.parts.get_mut(vector)?, sum.places.get_mut(vector)?);
            let beats = self.m.beats(elem, x, *best)?;
            *best = self.m.choose(beats, x, *best);
            *at = self.m.choose(beats, place, *at);
            return Some(());
        }
        let Sum { parts, nans, first, .. } = self.sums.get_mut(&i)?;
        let op = match (kind, elem) {
            (ReduceKind::Sum, Elem::F32) => Do::Add,
            (ReduceKind::Sum, Elem::I32) => Do::AddI,
            (ReduceKind::Max, Elem::I32) => Do::MaxI,
            (ReduceKind::Min, Elem::I32) => Do::MinI,
            (ReduceKind::All, Elem::Bool) => Do::And,
            (ReduceKind::Any, Elem::Bool) => Do::Or,
            _ => {
                let op = extreme(kind, elem)?;
                let vectors = nans.len();
                let second = self.turn == Turn::Second;
                let sum = parts.get_mut(if second { vectors + vector } else { vector })?;
                let tested =
                    if self.turn == Turn::First { None } else { Some(first.get(vector).copied()?.unwrap_or(x)) };
                *first.get_mut(vector)? = tested.is_none().then_some(x);
                // It gives the accumulator if either is NaN.
                *sum = self.m.two(op, x, *sum);
                if let Some(y) = tested {
                    let found = self.m.unordered_pair(x, y);
                    let nan = nans.get_mut(vector)?;
                    *nan = self.m.either(*nan, found);
                }
                return Some(());
            }
        };
        let sum = parts.get_mut(vector)?;
        *sum = self.m.two(op, *sum, x);
        Some(())
    }

    /// The number of each element along what is reduced: of its column, or of its row.
    fn place(&mut self, chunk: &Chunk, vector: usize) -> Option<Reg> {
        if self.f.cols_outside {
            let row = self.row?;
            return Some(self.m.spread(row));
        }
        let first = chunk.offset + i64::try_from(vector).ok()? * self.m.lanes();
        let lane = self.m.constant(Constant::Count);
        let first = self.m.int(i32::try_from(first).ok()?);
        let place = self.m.two(Do::AddI, lane, first);
        Some(match chunk.at {
            Some(c) => {
                let c = self.m.spread(c);
                self.m.two(Do::AddI, place, c)
            }
            None => place,
        })
    }

    /// The accumulators of a vector as one, NaN where there was one.
    fn total(&mut self, kind: ReduceKind, elem: Elem, sum: &Sum, vector: usize) -> Option<Reg> {
        if kind == ReduceKind::ArgMax {
            return sum.places.get(vector).copied();
        }
        let mut x = *sum.parts.get(vector)?;
        let Some(op) = extreme(kind, elem) else { return Some(x) };
        if let Some(y) = sum.parts.get(sum.nans.len() + vector) {
            x = self.m.two(op, x, *y);
        }
        let nan = self.m.float(f32::NAN);
        Some(self.m.choose(*sum.nans.get(vector)?, nan, x))
    }

    /// The accumulators of a row as one element, in every lane.
    fn whole(&mut self, kind: ReduceKind, elem: Elem, sum: &Sum) -> Option<Reg> {
        let mut all = self.total(kind, elem, sum, 0)?;
        for vector in 1..sum.first.len() {
            let other = self.total(kind, elem, sum, vector)?;
            all = self.m.combine(kind, elem, all, other)?;
        }
        self.m.across(kind, elem, all)
    }

    /// The place of a row's maximum, in every lane.
    fn best(&mut self, elem: Elem, sum: &Sum) -> Option<Reg> {
        let mut all = sum.parts.iter().copied().zip(sum.places.iter().copied());
        let mut best = all.next()?;
        for other in all {
            best = self.m.better(elem, best, other)?;
        }
        self.m.best_across(elem, best)
    }

    /// Puts a row's reductions together and writes them.
    pub(super) fn finish_row(&mut self) -> Option<()> {
        for (i, kind, elem) in self.reductions() {
            self.m.code_of(Some(i));
            let sum = self.sums.get(&i)?.clone();
            let x = if kind == ReduceKind::ArgMax { self.best(elem, &sum)? } else { self.whole(kind, elem, &sum)? };
            let v = self.f.body.inst(i).result?;
            let whole = Chunk { at: None, offset: 0, vectors: 1, lanes: Lanes::All };
            let (place, _) = self.scratch_place(self.f.body.ty(v).tile()?, &whole, 0)?;
            self.m.effect(Do::StoreLow, vec![place.into(), x.into()]);
            self.m.code_of(None);
        }
        self.sums.clear();
        Some(())
    }

    /// Writes the reductions of some columns.
    pub(super) fn finish_columns(&mut self, chunk: &Chunk) -> Option<()> {
        for (i, kind, elem) in self.reductions() {
            self.m.code_of(Some(i));
            let sum = self.sums.get(&i)?.clone();
            let v = self.f.body.inst(i).result?;
            let t = self.f.body.ty(v).tile()?;
            for vector in 0..chunk.vectors {
                let x = self.total(kind, elem, &sum, vector)?;
                let (place, lanes) = self.scratch_place(t, chunk, vector)?;
                // Truth values are spelled as they stand in scratch.
                self.m.store_scratch(if t.elem == Elem::Bool { Elem::I32 } else { t.elem }, x, place, lanes)?;
            }
            self.m.code_of(None);
        }
        self.sums.clear();
        Some(())
    }
}
