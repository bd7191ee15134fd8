//! Loads and stores of a vector of elements.
//!
//! In: the location of a tile, and the number of lanes. Out: instructions. Contiguous vectors are
//! accessed whole; at the end of a row, under a mask. Strided elements, and types without masked
//! instructions at this width, go one by one through the frame. In a buffer nothing beyond the
//! requested lanes is touched; in scratch, the padding of a row may be.

use super::machine::{Builder, Class, Mem, Op, Operand, Reg, When};
use crate::shape::Elem;

/// A distance in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Distance {
    Bytes(i32),
    /// In a word of the argument array.
    Word(usize),
}

/// Location of the vector's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Spot {
    Unit(Mem),
    /// Strided, starting at the address in the register.
    Apart(Reg, Distance),
}

impl Builder {
    fn zeroed(&mut self, op: Op, mask: Option<Reg>, srcs: Vec<Operand>) -> Reg {
        match mask {
            Some(k) => self.masked(op, k, true, srcs),
            None => self.vector(op, srcs),
        }
    }

    /// Loads elements, converted to the type in which they are computed: contiguous, under `mask`
    /// if there is one; or strided, `count` of them if not all.
    pub(super) fn load(&mut self, elem: Elem, spot: Spot, mask: Option<Reg>, count: Option<Operand>) -> Option<Reg> {
        match (spot, mask) {
            (Spot::Unit(m), Some(mask)) if !self.wide() => {
                (elem.size() == 4).then(|| self.vector(Op::MaskLoad, vec![mask.into(), m.into()]))
            }
            (Spot::Unit(m), _) => self.load_unit(elem, m, mask),
            (Spot::Apart(start, step), _) => self.load_apart(elem, start, step, count),
        }
    }

    fn load_unit(&mut self, elem: Elem, m: Mem, mask: Option<Reg>) -> Option<Reg> {
        let from = |op| (op, vec![Operand::Mem(m)]);
        let (op, srcs) = match elem {
            Elem::F32 | Elem::I32 => from(Op::Load),
            Elem::BF16 => from(Op::Unsigned16),
            Elem::F16 => from(Op::FromHalf),
            Elem::I8 => from(Op::Signed8),
            Elem::Bool => from(Op::Unsigned8),
            Elem::I64 => return None,
        };
        let x = self.zeroed(op, mask, srcs);
        Some(match elem {
            Elem::BF16 => {
                let y = self.shift(Op::ShiftLeft, x, 16);
                self.short.insert(y);
                y
            }
            Elem::Bool => self.not_zero(x),
            _ => x,
        })
    }

    /// Loads one element and broadcasts it.
    pub(super) fn load_same(&mut self, elem: Elem, m: Mem) -> Option<Reg> {
        let op = match elem {
            Elem::F32 | Elem::I32 => Op::Spread,
            Elem::BF16 | Elem::F16 => Op::Spread16,
            Elem::I8 | Elem::Bool => Op::Spread8,
            Elem::I64 => return None,
        };
        let x = self.vector(op, vec![m.into()]);
        Some(match elem {
            Elem::BF16 => {
                let y = self.shift(Op::ShiftLeft, x, 16);
                self.short.insert(y);
                y
            }
            Elem::F16 => self.vector(Op::FromHalf, vec![x.into()]),
            Elem::I8 => {
                let up = self.shift(Op::ShiftLeft, x, 24);
                self.shift(Op::ShiftSigned, up, 24)
            }
            Elem::Bool => self.not_zero(x),
            _ => x,
        })
    }

    /// Stores elements; the counterpart of [`Builder::load`].
    pub(super) fn store(
        &mut self,
        elem: Elem,
        x: Reg,
        spot: Spot,
        mask: Option<Reg>,
        count: Option<Operand>,
    ) -> Option<()> {
        match (spot, mask) {
            (Spot::Unit(m), _) if self.wide() => self.store_unit(elem, x, m, mask),
            (Spot::Unit(m), None) if elem.size() == 4 || elem == Elem::F16 => self.store_unit(elem, x, m, None),
            (Spot::Unit(m), Some(mask)) if elem.size() == 4 => {
                self.effect(Op::MaskStore, vec![m.into(), mask.into(), x.into()]);
                Some(())
            }
            (Spot::Unit(_), _) => None,
            (Spot::Apart(start, step), _) => self.store_apart(elem, x, start, step, count),
        }
    }

    fn store_unit(&mut self, elem: Elem, x: Reg, m: Mem, mask: Option<Reg>) -> Option<()> {
        let (op, mut srcs) = match elem {
            Elem::F32 | Elem::I32 => (Op::Store, vec![m.into(), x.into()]),
            Elem::F16 => (Op::ToHalf, vec![m.into(), x.into()]),
            // A value loaded as `bf16` in this run keeps its subnormals.
            Elem::BF16 if self.shortens && (self.halves.contains_key(&x) || !self.short.contains(&x)) => {
                let half = match self.halves.get(&x) {
                    Some(half) => *half,
                    None => self.vector(Op::Shorten, vec![x.into()]),
                };
                (Op::StoreShort, vec![m.into(), half.into()])
            }
            Elem::BF16 | Elem::I8 | Elem::Bool => {
                let bits = self.low_bits(elem, x);
                (if elem == Elem::BF16 { Op::Store16 } else { Op::Store8 }, vec![m.into(), bits.into()])
            }
            Elem::I64 => return None,
        };
        if op == Op::ToHalf {
            srcs.push(Operand::Imm(0));
        }
        self.masked_effect(op, mask, srcs);
        Some(())
    }

    /// Converts to `elem`, in the low bits of each lane.
    fn low_bits(&mut self, elem: Elem, x: Reg) -> Reg {
        match elem {
            Elem::BF16 => {
                let bits = self.rounded(x);
                self.shift(Op::ShiftRight, bits, 16)
            }
            Elem::Bool => {
                let one = self.int(1);
                self.keep(x, one)
            }
            _ => x,
        }
    }

    /// Emits a loop over the lanes: `body` gets the lane number and a pointer, and returns the
    /// advanced pointer.
    fn each(&mut self, count: Option<Operand>, start: Reg, body: impl FnOnce(&mut Self, Reg, Reg) -> Reg) {
        let first = self.number(0);
        let (top, carried) = self.begin_loop(&[first, start]);
        let [i, at] = carried[..] else { return };
        let further = body(self, i, at);
        let next = self.tied(Op::PlusImm, i, vec![Operand::Imm(1)]);
        let end = count.unwrap_or(Operand::Imm(i32::try_from(self.lanes()).unwrap_or(16)));
        self.end_loop(top, (next, When::Less, end), &[next, further]);
    }

    /// Advances a pointer by a stride.
    fn advance(&mut self, pointer: Reg, step: Distance) -> Reg {
        match step {
            Distance::Bytes(0) => pointer,
            Distance::Bytes(n) => self.tied(Op::PlusImm, pointer, vec![Operand::Imm(n)]),
            Distance::Word(w) => self.tied(Op::Plus, pointer, vec![Mem::word(w).into()]),
        }
    }

    fn load_apart(&mut self, elem: Elem, start: Reg, step: Distance, count: Option<Operand>) -> Option<Reg> {
        let (get, put, size) = match elem.size() {
            1 => (Op::Get8, Op::Put8, 1),
            2 => (Op::Get16, Op::Put16, 2),
            4 => (Op::Get32, Op::Put32, 4),
            _ => return None,
        };
        let room = self.staging();
        self.each(count, start, |m, i, at| {
            let x = m.make(Class::General, get, vec![Mem::at(at).into()]);
            m.effect(put, vec![room.indexed(i, size).into(), x.into()]);
            m.advance(at, step)
        });
        self.load_unit(elem, room, None)
    }

    fn store_apart(&mut self, elem: Elem, x: Reg, start: Reg, step: Distance, count: Option<Operand>) -> Option<()> {
        let room = self.staging();
        // In the frame, lanes are 4 bytes apart; 2 for f16.
        let between = if elem == Elem::F16 {
            self.store_unit(Elem::F16, x, room, None)?;
            2
        } else {
            let bits = self.low_bits(elem, x);
            self.store_unit(Elem::I32, bits, room, None)?;
            4
        };
        let (get, put) = match elem.size() {
            1 => (Op::Get8, Op::Put8),
            2 => (Op::Get16, Op::Put16),
            4 => (Op::Get32, Op::Put32),
            _ => return None,
        };
        self.each(count, start, |m, i, at| {
            let x = m.make(Class::General, get, vec![room.indexed(i, between).into()]);
            m.effect(put, vec![Mem::at(at).into(), x.into()]);
            m.advance(at, step)
        });
        Some(())
    }
}
