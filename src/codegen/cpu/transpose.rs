//! `transpose` of a tile in scratch, in blocks of four by four.
//!
//! In: two tiles in scratch that do not overlap. Out: CLIF. Edges and elements of 8 bytes are moved
//! one by one: no element past the last row or column is read or written.

use cranelift_codegen::ir::{ConstantData, InstBuilder, Type, Value, types};

use super::code::Code;
use super::lanes::plain;
use crate::tile::{InstData, Space, TileType};

/// A tile in scratch.
#[derive(Clone, Copy)]
struct ScratchTile {
    start: Value,
    pitch: i64,
}

impl Code<'_, '_> {
    /// Emits `result = x^T`.
    ///
    /// # Errors
    /// Operands that are not in scratch.
    pub(super) fn transpose(&mut self, data: &InstData, scratch: Value) -> Result<(), String> {
        let tile = |v: Option<_>| {
            v.and_then(|v| self.body.ty(v).tile().cloned()).ok_or("an operand of `transpose` is not a tile")
        };
        let (from, to) = (tile(data.operands.first().copied())?, tile(data.result)?);
        let (rows, cols) = (self.extent(from.rows)?, self.extent(from.cols)?);
        let (x, y) = (self.place(&from, scratch)?, self.place(&to, scratch)?);
        let bytes = i64::from(from.element_bytes());
        let ty = if bytes == 8 { types::I64 } else { types::I32 };
        let whole = |code: &mut Self, n: Value| if bytes == 8 { code.int(0) } else { code.b.ins().band_imm_s(n, -4) };
        let (fours_down, fours_across) = (whole(self, rows), whole(self, cols));
        let (row, col) = (self.b.declare_var(types::I64), self.b.declare_var(types::I64));
        let zero = self.int(0);
        self.b.def_var(row, zero);
        self.counted(row, fours_down, 4, |code| {
            let r = code.b.use_var(row);
            let zero = code.int(0);
            code.b.def_var(col, zero);
            code.counted(col, fours_across, 4, |code| {
                let c = code.b.use_var(col);
                let (source, target) = (code.element(x, r, c, bytes), code.element(y, c, r, bytes));
                code.block_of_four(source, x.pitch, target, y.pitch)
            })?;
            code.counted(col, cols, 1, |code| {
                let c = code.b.use_var(col);
                let (source, target) = (code.element(x, r, c, bytes), code.element(y, c, r, bytes));
                for i in 0..4 {
                    code.move_element(ty, source, i * x.pitch, target, i * bytes)?;
                }
                Ok(())
            })
        })?;
        self.counted(row, rows, 1, |code| {
            let r = code.b.use_var(row);
            let zero = code.int(0);
            code.b.def_var(col, zero);
            code.counted(col, cols, 1, |code| {
                let c = code.b.use_var(col);
                let (source, target) = (code.element(x, r, c, bytes), code.element(y, c, r, bytes));
                code.move_element(ty, source, 0, target, 0)
            })
        })
    }

    fn place(&mut self, t: &TileType, scratch: Value) -> Result<ScratchTile, String> {
        let Space::L1(offset, _) = t.space else { return Err("an operand of `transpose` is not in scratch".into()) };
        let start = self.b.ins().iadd_imm_s(scratch, i64::from(offset));
        Ok(ScratchTile { start, pitch: i64::from(t.pitch()) })
    }

    /// The address of an element.
    fn element(&mut self, p: ScratchTile, row: Value, col: Value, bytes: i64) -> Value {
        let down = self.b.ins().imul_imm_s(row, p.pitch);
        let across = self.b.ins().imul_imm_s(col, bytes);
        let at = self.b.ins().iadd(p.start, down);
        self.b.ins().iadd(at, across)
    }

    fn move_element(&mut self, ty: Type, from: Value, at: i64, to: Value, there: i64) -> Result<(), String> {
        let x = self.b.ins().load(ty, plain(), from, small(at)?);
        self.b.ins().store(plain(), x, to, small(there)?);
        Ok(())
    }

    /// Transposes a 4x4 block of 4-byte elements in registers.
    fn block_of_four(&mut self, from: Value, pitch: i64, to: Value, to_pitch: i64) -> Result<(), String> {
        let mut rows = Vec::new();
        for i in 0..4 {
            rows.push(self.b.ins().load(types::I8X16, plain(), from, small(i * pitch)?));
        }
        let [p, q, r, s] = rows.as_slice() else { return Err("a block of four rows".into()) };
        // Interleave single elements, then pairs.
        let (low, high) = ([0, 4, 1, 5], [2, 6, 3, 7]);
        let (ab, cd) = (self.shuffled(*p, *q, low), self.shuffled(*r, *s, low));
        let (ef, gh) = (self.shuffled(*p, *q, high), self.shuffled(*r, *s, high));
        let columns = [
            self.shuffled(ab, cd, [0, 1, 4, 5]),
            self.shuffled(ab, cd, [2, 3, 6, 7]),
            self.shuffled(ef, gh, [0, 1, 4, 5]),
            self.shuffled(ef, gh, [2, 3, 6, 7]),
        ];
        for (i, x) in (0..).zip(columns) {
            self.b.ins().store(plain(), x, to, small(i * to_pitch)?);
        }
        Ok(())
    }

    /// Selects four of the eight elements of two vectors.
    fn shuffled(&mut self, x: Value, y: Value, elements: [u8; 4]) -> Value {
        let bytes: Vec<u8> = elements.iter().flat_map(|e| (0..4).map(move |b| 4 * e + b)).collect();
        let mask = self.b.func.dfg.immediates.push(ConstantData::from(bytes));
        self.b.ins().shuffle(x, y, mask)
    }
}

fn small(n: i64) -> Result<i32, String> {
    i32::try_from(n).map_err(|_| "a tile in scratch is too large".into())
}
