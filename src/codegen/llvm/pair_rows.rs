//! `pair_rows`: converts a tile in scratch to `bf16` and interleaves each two rows.
//!
//! In: two tiles in scratch; the result may overwrite the operand. Out: LLVM IR. A pair is written
//! after both of its rows have been read, so it overwrites only rows that have been read. Missing
//! rows of the operand are zeros.

use inkwell::IntPredicate;
use inkwell::values::PointerValue;

use super::code::Code;
use super::emit::EmitResult;
use super::lanes::Lane;
use crate::shape::Elem;
use crate::tile::InstData;

impl<'c> Code<'_, '_, 'c> {
    pub(super) fn pair_rows(&mut self, data: &InstData, scratch: PointerValue<'c>) -> EmitResult<()> {
        let from = self.tile(data.operands.first().copied().ok_or("pairs of nothing")?)?;
        let to = self.tile(data.result.ok_or("pairs without a result")?)?;
        let (there, rows, cols) = (self.extent(from.rows)?, self.extent(to.rows)?, self.extent(to.cols)?);
        let (source, target) = (self.in_scratch(&from, scratch)?, self.in_scratch(&to, scratch)?);
        let lanes = if to.cols.is_one() { 1 } else { self.e.level.lanes() };
        let zero = self.e.int(0);
        self.counted(zero, rows, 2, |code, row| {
            let next = code.e.b.build_int_add(row, code.e.int(1), "")?;
            let mut both = Vec::new();
            for n in [row, next] {
                // A missing row loads the first row instead, and the result is discarded.
                let is_there = code.e.b.build_int_compare(IntPredicate::SLT, n, there, "")?;
                let read = code.e.b.build_select(is_there, n, zero, "")?.into_int_value();
                let mask = code.e.b.build_int_s_extend(is_there, code.e.cx.i64_type(), "")?;
                let mask = code.e.lane_cast(code.e.one(mask, Elem::I64)?, Elem::I32)?;
                let mask = code.e.spread(mask, lanes)?;
                both.push((code.steps(source, read, code.e.int(i64::from(from.pitch())))?, mask));
            }
            let pair = code.e.b.build_right_shift(row, code.e.int(1), true, "")?;
            let to = code.steps(target, pair, code.e.int(i64::from(to.pitch())))?;
            code.counted(zero, cols, i64::from(lanes), |code, col| {
                let mut bits = Vec::new();
                for (start, mask) in &both {
                    let x = code.e.load_scratch(Elem::F32, code.steps(*start, col, code.e.int(4))?, lanes)?;
                    let x = code.e.as_ints(code.e.lane_narrow(x, Elem::BF16)?.value)?;
                    bits.push(code.e.b.build_and(x, mask.value, "")?);
                }
                let [first, second] = bits.as_slice() else { return Err("a pair of two rows".into()) };
                let low = code.e.b.build_right_shift(*first, code.e.ints(16, lanes), false, "")?;
                let value = code.e.b.build_or(low, *second, "")?;
                let at = code.steps(to, col, code.e.int(4))?;
                code.e.store_scratch(Lane { value, elem: Elem::I32 }, at)
            })?;
            Ok(())
        })?;
        Ok(())
    }
}
