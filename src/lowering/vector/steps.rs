//! Lowering of a `run`: single instructions.
//!
//! In: an instruction, the current depth, a group of vectors of columns. Out: instructions of the
//! routine, if it belongs to that depth. It must not know how the loops are structured.

use super::Word;
use super::frame::{Access, Along, Distance, Step, Varies};
use super::run::{Chunk, Lanes, Lower, Spot};
use crate::scalar::Scalar;
use crate::scalar::{BinaryOp, ReduceKind};
use crate::shape::Elem;
use crate::ssa::Value as Operand;
use crate::tile::{Inst, InstData, Op, Space, Value};
use crate::vector::routine::{MemoryOperand, Op as Do};

/// Prefetch distance in rows: less than the associativity of the L1 cache, since rows may be pages
/// apart and so map to the same set.
const AHEAD: u8 = 8;

impl Lower<'_> {
    /// Emits an instruction and, if its result is stored in scratch, the store, as far as they
    /// belong to this depth.
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
        // Where columns are the outer loop, single columns were stored before it.
        let single = self.f.cols_outside && extents.rows && !extents.cols;
        if matches!(t.space, Space::L1(..)) && now && single == self.single {
            let x = self.known(result, vector)?;
            self.write(result, x, extents, chunk, vector)?;
        }
        Some(())
    }

    /// Stores a vector, or one element, to scratch.
    fn write(&mut self, v: Value, x: Operand, extents: Varies, chunk: &Chunk, vector: usize) -> Option<()> {
        let t = self.f.body.ty(v).tile()?;
        let (at, lanes) = self.scratch_place(t, chunk, vector)?;
        // Truth values are stored as 4-byte masks.
        let (x, elem) = match t.elem {
            Elem::Bool => (self.b.inst(Do::MaskBits, &[x]), Elem::I32),
            elem => (x, elem),
        };
        if extents.cols {
            self.b.store(elem, &at, x, lanes.mask());
        } else {
            let x = self.b.inst(Do::First, &[x]);
            self.b.store(elem, &at, x, None);
        }
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
        // A single column has only the last vector, and one lane of it.
        let lanes = if extents.cols { chunk.lanes } else { self.tail.unwrap_or(Lanes::All) };
        if let (Spot::Unit(at), Some(row)) = (spot, access.row)
            && self.f.stores_a_product()
        {
            // `None` if the offset is out of range: a prefetch may be omitted.
            let _ = self.fetch_ahead(at, row);
        }
        match spot {
            Spot::Unit(at) => self.b.store(access.elem, &at, x, lanes.mask()),
            Spot::Apart(start, step) => {
                let mut operands = vec![start, step, x];
                operands.extend(lanes.count());
                self.b.effect(Do::StoreApart(access.elem), &operands);
            }
        }
        Some(())
    }

    /// Prefetches, for writing, the line of the result `AHEAD` rows further on: stores retire in
    /// order, and a store that misses delays all later ones. Prefetches beyond the last row are
    /// wasted, but harmless.
    fn fetch_ahead(&mut self, at: MemoryOperand, row: Distance) -> Option<()> {
        let further = match row {
            Distance::Bytes(n) => at.plus(i32::try_from(n.checked_mul(i64::from(AHEAD))?).ok()?),
            Distance::Word(w) => {
                let start = self.b.inst(Do::Address(at.place), &at.operands());
                MemoryOperand::new(start).indexed(self.word(w)?, AHEAD)
            }
        };
        self.b.effect(Do::Prefetch(further.place), &further.operands());
        Some(())
    }

    fn compute(&mut self, i: Inst, data: &InstData, depth: usize, chunk: &Chunk, vector: usize) -> Option<Operand> {
        let mut xs = Vec::new();
        let operands = match data.op {
            Op::Load { .. } | Op::Iota { .. } => &[],
            _ => data.operands.as_slice(),
        };
        for v in operands {
            xs.push(self.operand(*v, depth, chunk, vector)?);
        }
        let elem = self.f.body.ty(data.result?).elem()?;
        let ty = self.b.vector(elem);
        match (&data.op, xs.as_slice()) {
            (Op::Load { .. }, _) => {
                let access: Access = self.f.accesses.get(&i).copied()?;
                let spot = self.spot(i, &access, chunk, vector)?;
                Some(match (access.col, spot) {
                    (Step::Same, Spot::Unit(at)) => self.load_one(access.elem, &at),
                    (_, Spot::Unit(at)) => self.b.load(access.elem, &at, chunk.lanes.mask(), ty),
                    (_, Spot::Apart(start, step)) => {
                        let mut operands = vec![start, step];
                        operands.extend(chunk.lanes.count());
                        self.b.typed(Do::LoadApart(access.elem), &operands, ty)
                    }
                })
            }
            (Op::Iota { .. }, _) => self.iota(i, self.f.operand(data.result?), chunk, vector),
            (Op::Full | Op::Copy, [x]) => Some(*x),
            (Op::Unary(op), [x]) => Some(self.b.inst(Do::Unary(*op), &[*x])),
            (Op::Binary(op), [x, y]) => Some(self.b.inst(Do::Binary(*op), &[*x, *y])),
            (Op::Compare(op), [x, y]) => Some(self.b.inst(Do::Compare(*op), &[*x, *y])),
            (Op::Select, [condition, x, y]) => Some(self.b.inst(Do::Select, &[*condition, *x, *y])),
            (Op::Cast, [x]) if self.b.ty(*x) == ty => Some(*x),
            (Op::Cast, [x]) => Some(self.b.typed(Do::Cast, &[*x], ty)),
            // The store rounds as well.
            (Op::Narrow { elem }, [x]) if self.is_only_stored(data, *elem) => Some(*x),
            (Op::Narrow { elem }, [x]) => Some(self.b.inst(Do::Narrow(*elem), &[*x])),
            (Op::Reduce { kind: ReduceKind::ArgMax, .. }, [_]) => Some(self.b.int(0)),
            // A reduction over one element.
            (Op::Reduce { kind, .. }, [x]) if elem == Elem::Bool => {
                let x = self.b.inst(Do::MaskBits, &[*x]);
                let first = self.identity(*kind, Elem::I32);
                let y = self.combine(*kind, first, x)?;
                Some(self.b.inst(Do::MaskOfBits, &[y]))
            }
            (Op::Reduce { kind, .. }, [x]) => {
                let first = self.identity(*kind, elem);
                self.combine(*kind, first, *x)
            }
            _ => None,
        }
    }

    /// Is a result that stays in registers used only by stores of this element type?
    fn is_only_stored(&self, data: &InstData, elem: Elem) -> bool {
        let Some(v) = data.result else { return false };
        let is_store = |d: &InstData| {
            let buffer = d.operands.first().and_then(|b| self.f.body.ty(*b).buffer());
            matches!(d.op, Op::Store { .. }) && buffer.is_some_and(|b| b.elem == elem)
        };
        let users = self.f.insts.iter().map(|i| self.f.body.inst(*i)).filter(|d| d.operands.contains(&v));
        self.f.body.ty(v).tile().is_some_and(|t| t.space == Space::Reg) && users.into_iter().all(is_store)
    }

    fn iota(&mut self, i: Inst, varies: Varies, chunk: &Chunk, vector: usize) -> Option<Operand> {
        let start = *self.starts.get(&i)?;
        let ty = self.b.ty(start);
        if !varies.cols {
            return Some(match self.row.filter(|_| varies.rows) {
                Some(row) => {
                    let n = self.b.typed(Do::Splat, &[row], ty);
                    self.b.inst(Do::Binary(BinaryOp::Add), &[start, n])
                }
                None => start,
            });
        }
        let mut x = start;
        if let Some(c) = chunk.at {
            let n = self.b.typed(Do::Splat, &[c], ty);
            x = self.b.inst(Do::Binary(BinaryOp::Add), &[x, n]);
        }
        let first = chunk.offset + i64::try_from(vector).ok()? * self.lanes();
        if first != 0 {
            let first = self.b.constant(Scalar::Int(first), ty);
            x = self.b.inst(Do::Binary(BinaryOp::Add), &[x, first]);
        }
        Some(x)
    }

    /// Emits the invariant part of each `iota`, before the loops.
    pub(super) fn start_iotas(&mut self) -> Option<()> {
        for i in self.f.insts {
            let data = self.f.body.inst(*i);
            let Op::Iota { .. } = data.op else { continue };
            let ty = self.b.vector(self.f.body.ty(data.result?).elem()?);
            let n = self.word_of(Word::Index(*data.operands.first()?))?;
            let mut start = self.b.typed(Do::Splat, &[n], ty);
            if self.f.operand(data.result?).cols {
                let lane = self.lane_numbers();
                let lane = if self.b.ty(lane) == ty { lane } else { self.b.typed(Do::Cast, &[lane], ty) };
                start = self.b.inst(Do::Binary(BinaryOp::Add), &[start, lane]);
            }
            self.starts.insert(*i, start);
        }
        Some(())
    }

    /// The lane numbers 0, 1, ..
    pub(super) fn lane_numbers(&mut self) -> Operand {
        let ty = self.b.vector(Elem::I32);
        self.b.typed(Do::Lanes, &[], ty)
    }
}
