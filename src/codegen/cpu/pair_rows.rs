//! `pair_rows`: converts a tile in scratch to `bf16` and interleaves each two rows.
//!
//! In: two tiles in scratch; the result may overwrite the operand. Out: CLIF. A pair is written
//! after both of its rows have been read, so it overwrites only rows that have been read. Missing
//! rows of the operand are zeros.

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{InstBuilder, Value, types};

use super::code::Code;
use super::lanes::{Lane, Width};
use crate::shape::Elem;
use crate::tile::{InstData, Space};

impl Code<'_, '_> {
    /// Emits the conversion.
    ///
    /// # Errors
    /// Operands that are not in scratch.
    pub(super) fn pair_rows(&mut self, data: &InstData, scratch: Value) -> Result<(), String> {
        let tile = |v: Option<_>| {
            v.and_then(|v| self.body.ty(v).tile().cloned()).ok_or("an operand of `pair_rows` is not a tile")
        };
        let (from, to) = (tile(data.operands.first().copied())?, tile(data.result)?);
        let (Space::L1(source, _), Space::L1(target, _)) = (from.space, to.space) else {
            return Err("an operand of `pair_rows` is not in scratch".into());
        };
        let (there, rows, cols) = (self.extent(from.rows)?, self.extent(to.rows)?, self.extent(to.cols)?);
        let (width, lanes) = if to.cols.is_one() { (Width::One, 1) } else { (Width::Four, 4) };
        let (row, col) = (self.b.declare_var(types::I64), self.b.declare_var(types::I64));
        let zero = self.int(0);
        self.b.def_var(row, zero);
        self.counted(row, rows, 2, |code| {
            let r = code.b.use_var(row);
            let next = code.b.ins().iadd_imm_s(r, 1);
            let zero = code.int(0);
            code.b.def_var(col, zero);
            // A missing row loads the first row instead, and the result is discarded.
            let mut both = [(r, r); 2];
            for (place, n) in both.iter_mut().zip([r, next]) {
                let is_there = code.b.ins().icmp(IntCC::SignedLessThan, n, there);
                let zero = code.int(0);
                let read = code.b.ins().select(is_there, n, zero);
                let bytes = code.b.ins().imul_imm_s(read, i64::from(from.pitch()));
                let start = code.b.ins().iadd(scratch, bytes);
                *place = (code.b.ins().iadd_imm_s(start, i64::from(source)), is_there);
            }
            let pair = code.b.ins().ushr_imm_u(r, 1);
            let bytes = code.b.ins().imul_imm_s(pair, i64::from(to.pitch()));
            let start = code.b.ins().iadd(scratch, bytes);
            let start = code.b.ins().iadd_imm_s(start, i64::from(target));
            code.counted(col, cols, lanes, |code| {
                let c = code.b.use_var(col);
                let across = code.b.ins().imul_imm_s(c, 4);
                let mut bits = Vec::new();
                for (start, is_there) in both {
                    let at = code.b.ins().iadd(start, across);
                    bits.push(code.upper_half(at, is_there, width));
                }
                let [first, second] = bits.as_slice() else { return Err("a pair of two rows".into()) };
                let low = code.b.ins().ushr_imm_u(*first, 16);
                let value = code.b.ins().bor(low, *second);
                let at = code.b.ins().iadd(start, across);
                code.lanes().store(Elem::I32, Lane { value, elem: Elem::I32, width }, at, 0);
                Ok(())
            })
        })
    }

    /// Bits of `f32` rounded to `bf16`, in the low half; zero where the row is missing.
    fn upper_half(&mut self, at: Value, is_there: Value, width: Width) -> Value {
        let x = self.lanes().load(Elem::F32, width, at, 0);
        let x = self.lanes().lane_narrow(x, Elem::BF16);
        let bits = self.lanes().bits_of_floats(x);
        let mask = self.b.ins().ineg(is_there);
        let mask = self.b.ins().sextend(types::I32, mask);
        let mask = match width {
            Width::Four => self.b.ins().splat(types::I32X4, mask),
            Width::One => mask,
        };
        self.b.ins().band(bits.value, mask)
    }
}
