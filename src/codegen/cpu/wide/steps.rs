//! Instruction selection of a `run`: its single instructions.
//!
//! In: an instruction, the depth that is being emitted, some vectors of columns. Out: machine instructions, if it stands
//! at that depth. What it must not know: how the loops go.

use super::Word;
use super::access::{Distance, Spot};
use super::frame::{Access, Along, Step, Varies};
use super::machine::{Class, Constant, Mem, Op as Do, Reg};
use super::run::{Chunk, Select};
use crate::scalar::ReduceKind;
use crate::shape::Elem;
use crate::tile::{Inst, InstData, Op, Space, Value};

/// Rows from the line that is written to the one that is fetched for it: fewer than a set of the first-level cache has
/// lines, since rows may be pages apart.
const AHEAD: u8 = 8;

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
        if let (Spot::Unit(place), Some(row)) = (spot, access.row)
            && self.f.stores_a_product()
        {
            self.fetch_ahead(place, row);
        }
        self.m.store(access.elem, x, spot, lanes)
    }

    /// Fetches the line of the result that is as many rows further, for writing: a processor writes one line after another,
    /// and each that is not there keeps all that follow. What is fetched after the last row is fetched in vain.
    fn fetch_ahead(&mut self, place: Mem, row: Distance) {
        let further = match row {
            Distance::Bytes(n) => place.plus(n.wrapping_mul(i32::from(AHEAD))),
            Distance::Word(w) => {
                let pitch = self.m.make(Class::General, Do::Mov, vec![Mem::word(w).into()]);
                let start = self.m.make(Class::General, Do::Lea, vec![place.into()]);
                Mem::at(start).indexed(pitch, AHEAD)
            }
        };
        self.m.effect(Do::Fetch, vec![further.into()]);
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
            // A store rounds too.
            (Op::Narrow { elem }, [x]) if self.is_only_stored(data, *elem) => Some(*x),
            (Op::Narrow { elem }, [x]) => self.m.narrow(*x, *elem),
            (Op::Reduce { kind: ReduceKind::ArgMax, .. }, [_]) => Some(self.m.int(0)),
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

    /// Is a result that stays in registers used by nothing but stores as elements of a type?
    fn is_only_stored(&self, data: &InstData, elem: Elem) -> bool {
        let Some(v) = data.result else { return false };
        let is_store = |d: &InstData| {
            let buffer = d.operands.first().and_then(|b| self.f.body.ty(*b).buffer());
            matches!(d.op, Op::Store { .. }) && buffer.is_some_and(|b| b.elem == elem)
        };
        let users = self.f.insts.iter().map(|i| self.f.body.inst(*i)).filter(|d| d.operands.contains(&v));
        self.f.body.ty(v).tile().is_some_and(|t| t.space == Space::Reg) && users.into_iter().all(is_store)
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
}
