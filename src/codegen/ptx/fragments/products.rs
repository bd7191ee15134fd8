//! Matmuls: `mma.sync` on fragments, `wgmma` on tiles in shared memory.
//!
//! In: whole tiles. Out: an instruction for each block and step. A right operand used by only one
//! matmul is loaded from shared memory a step at a time (`copies`). Descriptors of `wgmma` follow
//! from swizzle and extents (PTX ISA, "Matrix Descriptor Format"; CuTe's `mma_sm90_desc.hpp` is
//! equivalent for tiles in panels):
//!
//! * inner index along the columns (K-major): 8 rows are `8 swizzle` bytes apart; a step of 16 is
//!   32 bytes further, in the next panel where a panel ends;
//! * inner index along the rows (MN-major): panels of columns follow each other at their size; 8
//!   rows again at `8 swizzle`, a step of 16 is twice that.

use super::code::{Code, Shared, ValueLocation, int, word};
use super::copies::{Side, side};
use super::layout::{Panels, steps_of};
use crate::ptx::words::{Columns, Matrices, Mma, Sat, Trans, Wgmma};
use crate::ptx::{Op as P, Operand, Reg, RegType, Type as W};
use crate::scalar::Scalar;
use crate::shape::Elem;
use crate::tile::{GpuOp, Inst, InstData, Op, TileType, Type, Value, ValueDef};

impl Code<'_> {
    /// Compiles a matmul of fragments.
    pub(super) fn mma(&mut self, data: &InstData) -> Result<(), String> {
        let (a, b, acc) = match data.operands.as_slice() {
            [a, b, acc] => (*a, *b, *acc),
            _ => return Err("an operand is missing".into()),
        };
        let v = data.result.ok_or("no result")?;
        let (left, right) = (self.tile(a)?.clone(), self.tile(b)?.clone());
        let share = self.share(self.tile(v)?)?;
        if !share.is_whole() {
            return Err(format!("a matmul of {} x {} by {} warps", share.rows, share.cols, share.warps));
        }
        let steps = super::code::known(left.cols)? / steps_of(left.elem);
        let kind = match left.elem {
            Elem::F32 => Mma::F32Tf32K8,
            Elem::F16 => Mma::F32F16K16,
            _ => Mma::F32Bf16K16,
        };
        let mut sums = self.elements(acc)?;
        let name = self.name(v);
        let side_of_b = side(right.space)?;
        let Some(ValueLocation::Unread(of_b)) = self.held.get(&b).cloned() else {
            return Err("a right operand in registers is not supported".into());
        };
        let panels = self.stored(b)?;
        // `ldmatrix` cannot transpose 32-bit elements; they are loaded one by one.
        let words = (left.elem == Elem::F32 && side_of_b == Side::B).then(|| self.words(panels, of_b));
        let right_lines = if words.is_none() { Some(self.lines(panels, of_b, side_of_b)?) } else { None };
        let left_lines = match self.held.get(&a).cloned() {
            Some(ValueLocation::Unread(of_a)) => {
                let panels = self.stored(a)?;
                Some(self.lines(panels, of_a, Side::A)?)
            }
            _ => None,
        };
        let (names_a, names_b) = (self.name(a), self.name(b));
        for step in 0..steps {
            let mut blocks = Vec::new();
            for block in 0..share.row_blocks() {
                blocks.push(match (&left_lines, self.held.get(&a).cloned()) {
                    (Some(lines), _) => {
                        let list = self.matrices(&names_a, lines, block * 16, step * 2, Matrices::Four, Trans::No)?;
                        self.as_operands(&names_a, left.elem, list)
                    }
                    (None, Some(ValueLocation::Operand(list))) => {
                        let first = usize::try_from((block * steps + step) * 4).unwrap_or(0);
                        list.get(first..first + 4).ok_or("a fragment is missing")?.to_vec()
                    }
                    _ => return Err(format!("{a} is not a left operand")),
                });
            }
            let mut col = 0;
            while col < share.col_blocks() {
                let two = col + 1 < share.col_blocks() && words.is_none();
                let count = if two { Matrices::Four } else { Matrices::Two };
                let list = match (side_of_b, &words, &right_lines) {
                    (_, Some(words), _) => self.step_of_words(&names_b, words, step, col)?,
                    (Side::BT, None, Some(lines)) => {
                        let list = self.matrices(&names_b, lines, col * 8, step * 2, count, Trans::No)?;
                        self.as_operands(&names_b, left.elem, list)
                    }
                    (_, None, Some(lines)) => self.matrices(&names_b, lines, step * 16, col, count, Trans::Yes)?,
                    (_, None, None) => return Err("a right operand is missing".into()),
                };
                for (n, pair) in list.chunks(2).enumerate() {
                    for (row, block) in blocks.iter().enumerate() {
                        let at = share.register(row as i64, col + n as i64, 0);
                        let c = sums.get(at..at + 4).ok_or("an element is missing")?.to_vec();
                        let d: Vec<Reg> = (0..4).map(|_| self.reg(&name, RegType::F32)).collect();
                        let operands = [d.clone(), block.clone(), pair.to_vec(), c].map(Operand::Vector);
                        self.push(P::Mma { kind }, operands);
                        sums.splice(at..at + 4, d);
                    }
                }
                col += if two { 2 } else { 1 };
            }
        }
        self.held.insert(v, ValueLocation::Elements(sums));
        Ok(())
    }

    /// Layout of the tile that fragments are loaded from.
    pub(super) fn stored(&self, fragments: Value) -> Result<Panels, String> {
        let data = self.body.def_inst(fragments).filter(|d| d.op == Op::Gpu(GpuOp::LoadFragment));
        let from = *data.and_then(|d| d.operands.first()).ok_or("fragments without a tile")?;
        self.panels(self.tile(from)?)
    }

    /// Starts an asynchronous matmul of four warps.
    pub(super) fn wgmma(&mut self, inst: Inst, data: &InstData, trans_b: bool) -> Result<(), String> {
        let (a, b, acc) = match data.operands.as_slice() {
            [a, b, acc] => (*a, *b, *acc),
            _ => return Err("an operand is missing".into()),
        };
        let v = data.result.ok_or("no result")?;
        let (left, right) = (self.tile(a)?.clone(), self.tile(b)?.clone());
        let share = self.share(self.tile(v)?)?;
        let name = self.name(v);
        let kind = if left.elem == Elem::F16 { Wgmma::F32F16 } else { Wgmma::F32Bf16 };
        let columns = Columns(u16::try_from(share.cols).map_err(|_| "a matmul has too many columns")?);
        let steps = super::code::known(left.cols)? / steps_of(left.elem);

        // Accumulate in place if the previous sums are not used elsewhere.
        let is_zero = self.is_zero(acc);
        let sums = if is_zero {
            (0..share.registers()).map(|_| self.reg(&name, RegType::F32)).collect()
        } else if self.is_last_use(inst, acc) {
            self.elements(acc)?
        } else {
            let mut copy = Vec::new();
            for r in self.elements(acc)? {
                copy.push(self.make(&name, RegType::F32, P::Mov { ty: W::F32 }, &[word(r)]));
            }
            self.push(P::WgmmaFence {}, []);
            copy
        };
        let right_tile = self.shared(b)?;
        let right_panels = self.panels(&right)?;
        let right = self.descriptor(&right, right_tile, trans_b)?;
        let left_descriptor = match self.held.get(&a).cloned() {
            Some(ValueLocation::Operand(_)) => None,
            _ => {
                let tile = self.shared(a)?;
                Some((self.descriptor(&left, tile, true)?, self.panels(&left)?))
            }
        };
        for step in 0..steps {
            let scale = int(i64::from(!(is_zero && step == 0)));
            let b = self.moved(right, step_bytes(right_panels, step, trans_b));
            let d = Operand::Vector(sums.clone());
            let trans = int(i64::from(!trans_b));
            match (&left_descriptor, self.held.get(&a).cloned()) {
                (Some((left, panels)), _) => {
                    let a = self.moved(*left, step_bytes(*panels, step, true));
                    let operands = [d, word(a), word(b), scale, int(1), int(1), int(0), trans];
                    self.push(P::Wgmma { columns, kind }, operands);
                }
                (None, Some(ValueLocation::Operand(list))) => {
                    let first = usize::try_from(step * 4).unwrap_or(0);
                    let a = list.get(first..first + 4).ok_or("a fragment is missing")?.to_vec();
                    let operands = [d, Operand::Vector(a), word(b), scale, int(1), int(1), trans];
                    self.push(P::WgmmaRegisters { columns, kind }, operands);
                }
                _ => return Err(format!("{a} is not a left operand")),
            }
        }
        self.held.insert(v, ValueLocation::Elements(sums));
        Ok(())
    }

    /// The descriptor of a tile in shared memory; `along_cols`: the inner index is along its
    /// columns.
    fn descriptor(&mut self, t: &TileType, tile: Shared, along_cols: bool) -> Result<Reg, String> {
        let panels = self.panels(t)?;
        let layout: i64 = match panels.swizzle {
            128 => 1,
            64 => 2,
            other => return Err(format!("a matmul of a tile with {other}-byte swizzle")),
        };
        let stride = 8 * panels.swizzle;
        let leading = if along_cols { 16 } else { panels.panel_bytes() };
        let high = (layout << 62) | ((stride >> 4) << 32) | ((leading >> 4) << 16);
        let at = self.shr32("tile", tile.at, 4);
        let at = self.and32("tile", at, 0x3fff);
        let at = self.widened("tile", at);
        Ok(self.make("matrix", RegType::B64, P::Or { ty: W::B64 }, &[word(at), int(high)]))
    }

    /// A descriptor advanced by `bytes`.
    fn moved(&mut self, descriptor: Reg, bytes: i64) -> Reg {
        if bytes == 0 {
            return descriptor;
        }
        self.make("matrix", RegType::B64, P::Add { sat: Sat::Wrap, ty: W::S64 }, &[word(descriptor), int(bytes >> 4)])
    }

    /// Is an accumulator zero everywhere?
    fn is_zero(&self, v: Value) -> bool {
        let full = self.body.def_inst(v).filter(|d| d.op == Op::Full);
        let x = full.and_then(|d| d.operands.first()).and_then(|v| self.body.def_inst(*v));
        x.is_some_and(|d| matches!(d.op, Op::Const(Scalar::Float(x)) if x.to_bits() == 0))
    }

    /// Is the instruction the last use of a value's registers?
    fn is_last_use(&self, inst: Inst, v: Value) -> bool {
        let is_under_way = matches!(self.body.ty(v), Type::Pending(..));
        if is_under_way {
            return true;
        }
        // A constant for all elements, or registers shared with another value, must not be
        // overwritten.
        let own = match self.body.def(v) {
            ValueDef::Result(i) => !matches!(self.body.inst(i).op, Op::Full | Op::Select),
            ValueDef::Arg(..) => true,
            ValueDef::Param => false,
        };
        own && !self.is_live_after(inst, v)
    }

    /// Is a value used on some path after an instruction, before its redefinition?
    fn is_live_after(&self, inst: Inst, v: Value) -> bool {
        let body = self.body;
        let Some(home) = body.block_of(inst) else {
            return true;
        };
        let used_in = |insts: &[Inst]| insts.iter().any(|i| body.inst(*i).operands.contains(&v));
        let list = &body.block(home).insts;
        let after = list.iter().position(|i| *i == inst).map_or(0, |n| n + 1);
        let rest = list.get(after..).unwrap_or_default();
        if used_in(rest) || body.block(home).terminator.values().contains(&v) {
            return true;
        }
        let defined_in = match body.def(v) {
            ValueDef::Result(i) => body.block_of(i),
            ValueDef::Arg(b, _) => Some(b),
            ValueDef::Param => None,
        };
        let mut seen = std::collections::BTreeSet::new();
        let mut open: Vec<_> = body.block(home).terminator.targets().into_iter().map(|c| c.block).collect();
        while let Some(b) = open.pop() {
            // A redefinition (in a loop) starts another value.
            if Some(b) == defined_in || !seen.insert(b) {
                continue;
            }
            let data = body.block(b);
            if used_in(&data.insts) || data.terminator.values().contains(&v) {
                return true;
            }
            open.extend(data.terminator.targets().into_iter().map(|c| c.block));
        }
        false
    }

    /// Keeps work on one matmul's result overlapped with another asynchronous matmul. ptxas would
    /// move it after the wait for the latter, unless a loop precedes the wait: here one that waits
    /// for an already completed barrier phase, of a tile that the matmul still reads.
    pub(super) fn keep_work_before(&mut self, wait: Inst, group: Value) -> Result<(), String> {
        let Some((commit, data)) = self.body.definition(group) else { return Ok(()) };
        let Some(product) = data.operands.first().and_then(|v| self.body.def_inst(*v)) else { return Ok(()) };
        let Some(tile) = product.operands.get(1).copied() else { return Ok(()) };
        let list = self.body.layout.iter().map(|b| &self.body.block(*b).insts).find(|list| list.contains(&wait));
        let between = list.into_iter().flatten().skip_while(|i| **i != commit).take_while(|i| **i != wait);
        let has_work = between.into_iter().any(|i| self.is_element_work(*i));
        let barriers = self.shared(tile).ok().and_then(|s| s.barriers);
        if let (true, Some(barriers)) = (has_work, barriers) {
            self.e.kernel.comment("a scheduling barrier: ptxas moves nothing across this loop, which ends at once");
            self.wait_for_phase(barriers.full, 0, word(barriers.parity))?;
        }
        Ok(())
    }
}

/// Byte offset of a step of 16 in a tile.
fn step_bytes(panels: Panels, step: i64, along_cols: bool) -> i64 {
    if along_cols {
        let (panel, chunk) = panels.panel_of(2 * step);
        panel * panels.panel_bytes() + 16 * chunk
    } else {
        step * 16 * panels.swizzle
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_of_descriptors() {
        let keys = Panels { rows: 128, row_bytes: 256, swizzle: 128 };
        let along: Vec<i64> = (0..8).map(|n| step_bytes(keys, n, true)).collect();
        assert_eq!(along, [0, 32, 64, 96, 16384, 16416, 16448, 16480]);
        assert_eq!((0..3).map(|n| step_bytes(keys, n, false)).collect::<Vec<_>>(), [0, 2048, 4096]);
        let narrow = Panels { rows: 64, row_bytes: 192, swizzle: 64 };
        assert_eq!((0..3).map(|n| step_bytes(narrow, n, true)).collect::<Vec<_>>(), [0, 32, 4096]);
        assert_eq!(step_bytes(narrow, 1, false), 1024);
    }
}
