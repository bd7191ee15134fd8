//! Instruction selection of a `run`: its single instructions.
//!
//! In: an instruction, the depth that is being emitted, some vectors of columns. Out: machine instructions, if it stands
//! at that depth. What it must not know: how the loops go.

use super::Word;
use super::access::{Lanes, Spot};
use super::frame::{Access, Along, Step, Varies};
use super::machine::{Constant, Inst as Code, Mem, Op as Do, Reg};
use super::run::{Chunk, Select};
use crate::scalar::ReduceKind;
use crate::shape::Elem;
use crate::tile::{Inst, InstData, Op, Space, Value};

impl Select<'_> {
    /// An instruction and, where its result belongs into scratch, the writing of it, as far as they stand at this depth.
    pub(super) fn instruction(
        &mut self,
        i: Inst,
        data: &InstData,
        depth: usize,
        chunk: &Chunk,
        vector: usize,
    ) -> Option<()> {
        match &data.op {
            Op::Store { .. } | Op::Reduce { .. } if self.single => return Some(()),
            Op::Store { .. } => return self.store(i, data, depth, chunk, vector),
            Op::Reduce { kind, axis } if self.f.along(*axis) != Along::One => {
                let x = *data.operands.first()?;
                return if depth == 2 { self.accumulate(i, *kind, x, chunk, vector) } else { Some(()) };
            }
            _ => {}
        }
        let result = data.result?;
        let t = self.f.body.ty(result).tile()?;
        let varies = self.f.operand(result);
        if self.single && varies.cols {
            return Some(());
        }
        if self.depth(varies) == depth && (varies.cols || vector == 0) {
            let x = self.compute(i, data, depth, chunk, vector)?;
            self.know(result, vector, depth, x);
        }
        let extents = self.f.extents(t);
        let now = self.depth(extents) == depth && (extents.cols || vector == 0);
        // Where columns are the outer loop, single columns have been written before it.
        let single = self.f.cols_outside && extents.rows && !extents.cols;
        if matches!(t.space, Space::L1(_)) && now && single == self.single {
            let x = self.known(result, vector)?;
            self.write(result, x, extents, chunk, vector)?;
        }
        Some(())
    }

    /// Writes a vector, or one element, to scratch.
    fn write(&mut self, v: Value, x: Reg, extents: Varies, chunk: &Chunk, vector: usize) -> Option<()> {
        let t = self.f.body.ty(v).tile()?;
        let (place, lanes) = self.scratch_place(t, chunk, vector)?;
        if extents.cols {
            return self.m.store_scratch(t.elem, x, place, lanes);
        }
        let x = if t.elem == Elem::Bool { self.m.spelled(x) } else { x };
        self.m.effect(Do::StoreLow, vec![place.into(), x.into()]);
        Some(())
    }

    fn store(&mut self, i: Inst, data: &InstData, depth: usize, chunk: &Chunk, vector: usize) -> Option<()> {
        let x = *data.operands.last()?;
        let extents = self.f.extents(self.f.body.ty(x).tile()?);
        if self.depth(extents) != depth || (vector > 0 && !extents.cols) {
            return Some(());
        }
        let x = self.operand(x, depth, chunk, vector)?;
        let access = self.f.accesses.get(&i).copied()?;
        let spot = self.spot(i, &access, chunk, vector)?;
        // Of a single column the last vector is the only one.
        let lanes = if extents.cols { chunk.lanes } else { self.tail? };
        self.m.store(access.elem, x, spot, lanes)
    }

    fn compute(&mut self, i: Inst, data: &InstData, depth: usize, chunk: &Chunk, vector: usize) -> Option<Reg> {
        let mut xs = Vec::new();
        let operands = match data.op {
            Op::Load { .. } | Op::Iota { .. } => &[],
            _ => data.operands.as_slice(),
        };
        for v in operands {
            xs.push(self.operand(*v, depth, chunk, vector)?);
        }
        let of = |n: usize| data.operands.get(n).and_then(|v| self.f.body.ty(*v).elem());
        let elem = self.f.body.ty(data.result?).elem()?;
        match (&data.op, xs.as_slice()) {
            (Op::Load { .. }, _) => {
                let access: Access = self.f.accesses.get(&i).copied()?;
                let spot = self.spot(i, &access, chunk, vector)?;
                match (access.col, spot) {
                    (Step::Same, Spot::Unit(m)) => self.m.load_same(access.elem, m),
                    _ => self.m.load(access.elem, spot, chunk.lanes),
                }
            }
            (Op::Iota { .. }, _) => self.iota(i, self.f.operand(data.result?), chunk, vector),
            (Op::Full | Op::Copy, [x]) => Some(*x),
            (Op::Unary(op), [x]) => self.m.unary(*op, elem, *x),
            (Op::Binary(op), [x, y]) => self.m.binary(*op, elem, *x, *y),
            (Op::Compare(op), [x, y]) => {
                let of = of(0)?;
                self.m.compare(*op, of, *x, *y)
            }
            (Op::Select, [condition, x, y]) => Some(self.m.select(elem, *condition, *x, *y)),
            (Op::Cast, [x]) => {
                let of = of(0)?;
                self.m.cast(of, elem, *x)
            }
            (Op::Narrow { elem }, [x]) => self.m.narrow(*x, *elem),
            // Of one element.
            (Op::Reduce { kind, .. }, [x]) => {
                let of = of(0)?;
                let x = if of == Elem::Bool { self.m.spelled(*x) } else { *x };
                let first = self.m.identity(*kind, of)?;
                let y = self.m.combine(*kind, of, first, x)?;
                Some(if of == Elem::Bool { self.m.unspelled(y) } else { y })
            }
            _ => None,
        }
    }

    fn iota(&mut self, i: Inst, varies: Varies, chunk: &Chunk, vector: usize) -> Option<Reg> {
        let start = *self.starts.get(&i)?;
        if !varies.cols {
            return Some(match self.row.filter(|_| varies.rows) {
                Some(row) => {
                    let n = self.m.spread(row);
                    self.m.two(Do::AddI, start, n)
                }
                None => start,
            });
        }
        let mut x = start;
        if let Some(c) = chunk.at {
            let n = self.m.spread(c);
            x = self.m.two(Do::AddI, x, n);
        }
        let first = chunk.offset + i64::try_from(vector).ok()? * self.m.lanes();
        if first != 0 {
            let first = self.m.int(i32::try_from(first).ok()?);
            x = self.m.two(Do::AddI, x, first);
        }
        Some(x)
    }

    /// What each `iota` starts from, before the loops.
    pub(super) fn start_iotas(&mut self) -> Option<()> {
        for i in self.f.insts {
            let data = self.f.body.inst(*i);
            let Op::Iota { .. } = data.op else { continue };
            if self.f.body.ty(data.result?).elem() != Some(Elem::I32) {
                return None;
            }
            let w = self.f.word(Word::Index(*data.operands.first()?));
            let mut start = self.m.vector(Do::Spread, vec![Mem::word(w).into()]);
            if self.f.operand(data.result?).cols {
                let lane = self.m.constant(Constant::Count);
                start = self.m.two(Do::AddI, start, lane);
            }
            self.starts.insert(*i, start);
        }
        Some(())
    }

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
            let sums = (0..vectors).map(|_| self.m.copy(first)).collect();
            self.sums.insert(i, sums);
        }
        Some(())
    }

    fn accumulate(&mut self, i: Inst, kind: ReduceKind, v: Value, chunk: &Chunk, vector: usize) -> Option<()> {
        let elem = self.f.body.ty(v).elem()?;
        let mut x = self.operand(v, 2, chunk, vector)?;
        if elem == Elem::Bool {
            x = self.m.spelled(x);
        }
        if let (Lanes::Some { mask, .. }, false) = (chunk.lanes, self.f.cols_outside) {
            let nothing = self.m.identity(kind, elem)?;
            x = self.m.choose(mask, x, nothing);
        }
        let sums = self.sums.get(&i)?;
        let sum = *sums.get(vector % sums.len().max(1))?;
        let op = match (kind, elem) {
            (ReduceKind::Sum, Elem::F32) => Do::Add,
            (ReduceKind::Sum, Elem::I32) => Do::AddI,
            (ReduceKind::Max, Elem::I32) => Do::MaxI,
            (ReduceKind::Min, Elem::I32) => Do::MinI,
            (ReduceKind::All, Elem::Bool) => Do::And,
            (ReduceKind::Any, Elem::Bool) => Do::Or,
            (ReduceKind::Max | ReduceKind::Min, Elem::F32) => {
                // The instruction gives the accumulator if either is NaN; a NaN in `x` is put in.
                let op = if kind == ReduceKind::Max { Do::Max } else { Do::Min };
                let nan = self.m.unordered(x);
                if self.m.wide() {
                    self.m.set(op, sum, false, vec![x.into(), sum.into()]);
                    let put = Code {
                        op: Do::Copy,
                        dst: Some(sum),
                        tied: true,
                        srcs: vec![x.into()],
                        mask: Some((nan, false)),
                    };
                    self.m.push(put);
                } else {
                    let best = self.m.two(op, x, sum);
                    self.m.set(Do::Blend, sum, false, vec![best.into(), x.into(), nan.into()]);
                }
                return Some(());
            }
            _ => return None,
        };
        self.m.set(op, sum, false, vec![sum.into(), x.into()]);
        Some(())
    }

    /// Puts a row's reductions together and writes them.
    pub(super) fn finish_row(&mut self) -> Option<()> {
        for (i, kind, elem) in self.reductions() {
            let sums = self.sums.get(&i)?.clone();
            let mut all = *sums.first()?;
            for other in sums.iter().skip(1) {
                all = self.m.combine(kind, elem, all, *other)?;
            }
            let x = self.m.across(kind, elem, all)?;
            let v = self.f.body.inst(i).result?;
            let whole = Chunk { at: None, offset: 0, vectors: 1, lanes: Lanes::All };
            let (place, _) = self.scratch_place(self.f.body.ty(v).tile()?, &whole, 0)?;
            self.m.effect(Do::StoreLow, vec![place.into(), x.into()]);
        }
        Some(())
    }

    /// Writes the reductions of some columns.
    pub(super) fn finish_columns(&mut self, chunk: &Chunk) -> Option<()> {
        for (i, _, _) in self.reductions() {
            let sums = self.sums.get(&i)?.clone();
            let v = self.f.body.inst(i).result?;
            let t = self.f.body.ty(v).tile()?;
            for (vector, x) in sums.iter().enumerate().take(chunk.vectors) {
                let (place, lanes) = self.scratch_place(t, chunk, vector)?;
                // Truth values are spelled as they stand in scratch.
                self.m.store_scratch(if t.elem == Elem::Bool { Elem::I32 } else { t.elem }, *x, place, lanes)?;
            }
        }
        Some(())
    }
}
