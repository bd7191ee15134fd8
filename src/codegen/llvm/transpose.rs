//! `transpose` of a tile in scratch, in square blocks of a vector's lanes.
//!
//! In: two tiles in scratch that do not overlap. Out: LLVM IR. A block is transposed in registers:
//! first within pairs of rows, then of pairs of pairs, and so on. Edges and elements of 8 bytes are
//! moved one by one: no element past the last row or column is read or written.

use inkwell::values::{IntValue, PointerValue};

use super::code::Code;
use super::emit::EmitResult;
use super::lanes::Lane;
use crate::shape::Elem;
use crate::tile::{InstData, TileType};

/// A tile in scratch.
#[derive(Clone, Copy)]
struct ScratchTile<'c> {
    start: PointerValue<'c>,
    pitch: i64,
    bytes: i64,
}

impl<'c> Code<'_, '_, 'c> {
    /// Emits `result = x^T`.
    pub(super) fn transpose(&mut self, data: &InstData, scratch: PointerValue<'c>) -> EmitResult<()> {
        let from = self.tile(data.operands.first().copied().ok_or("`transpose` without an operand")?)?;
        let to = self.tile(data.result.ok_or("`transpose` without a result")?)?;
        let (rows, cols) = (self.extent(from.rows)?, self.extent(from.cols)?);
        let place = |code: &Self, t: &TileType| -> EmitResult<ScratchTile<'c>> {
            let (pitch, bytes) = (i64::from(t.pitch()), i64::from(t.element_bytes()));
            Ok(ScratchTile { start: code.in_scratch(t, scratch)?, pitch, bytes })
        };
        let (x, y) = (place(self, &from)?, place(self, &to)?);
        // Booleans are moved as masks.
        let elem = if from.elem == Elem::I64 { Elem::I64 } else { Elem::I32 };
        let zero = self.e.int(0);
        let side = if elem == Elem::I64 { 1 } else { self.e.level.lanes() };
        let n = i64::from(side);
        let whole_cols = self.e.b.build_and(cols, self.e.int(-n), "")?;
        let mut row = zero;
        if n > 1 {
            let whole_rows = self.e.b.build_and(rows, self.e.int(-n), "")?;
            row = self.counted(zero, whole_rows, n, |code, r| {
                let rest = code.counted(zero, whole_cols, n, |code, c| {
                    code.square(elem, side, code.element(x, r, c)?, x.pitch, code.element(y, c, r)?, y.pitch)
                })?;
                let end = code.e.b.build_int_add(r, code.e.int(n), "")?;
                code.counted(rest, cols, 1, |code, c| {
                    code.counted(r, end, 1, |code, r| code.single(elem, x, y, r, c)).map(|_| ())
                })?;
                Ok(())
            })?;
        }
        self.counted(row, rows, 1, |code, r| {
            code.counted(zero, cols, 1, |code, c| code.single(elem, x, y, r, c)).map(|_| ())
        })?;
        Ok(())
    }

    /// The address of an element.
    fn element(&self, p: ScratchTile<'c>, row: IntValue<'c>, col: IntValue<'c>) -> EmitResult<PointerValue<'c>> {
        let at = self.steps(p.start, row, self.e.int(p.pitch))?;
        self.steps(at, col, self.e.int(p.bytes))
    }

    fn single(
        &self,
        elem: Elem,
        x: ScratchTile<'c>,
        y: ScratchTile<'c>,
        r: IntValue<'c>,
        c: IntValue<'c>,
    ) -> EmitResult<()> {
        let element = self.e.load_scratch(elem, self.element(x, r, c)?, 1)?;
        self.e.store_scratch(element, self.element(y, c, r)?)
    }

    /// Transposes a square block: in each round, rows at some distance exchange the parts at that
    /// distance.
    fn square(
        &self,
        elem: Elem,
        side: u32,
        from: PointerValue<'c>,
        pitch: i64,
        to: PointerValue<'c>,
        to_pitch: i64,
    ) -> EmitResult<()> {
        let mut rows = Vec::new();
        for i in 0..i64::from(side) {
            let at = self.e.offset(from, self.e.int(i * pitch))?;
            rows.push(self.e.load_scratch(elem, at, side)?.value);
        }
        let mut distance = 1;
        while distance < side {
            let low: Vec<u32> = (0..side).map(|k| if k & distance == 0 { k } else { side + k - distance }).collect();
            let high: Vec<u32> = (0..side).map(|k| if k & distance == 0 { k + distance } else { side + k }).collect();
            for i in (0..side).filter(|i| i & distance == 0) {
                let (i, j) = (i as usize, (i + distance) as usize);
                let (a, b) = (rows[i], rows[j]);
                rows[i] = self.e.shuffle(a, b, &low)?;
                rows[j] = self.e.shuffle(a, b, &high)?;
            }
            distance *= 2;
        }
        for (i, value) in (0..).zip(rows) {
            let at = self.e.offset(to, self.e.int(i * to_pitch))?;
            self.e.store_scratch(Lane { value, elem }, at)?;
        }
        Ok(())
    }
}
