//! Calls of the leaves of `bf16` products: both operands `bf16`, the right one in panels of pairs of steps.
//!
//! In: a `dot` whose right operand is `load_pairs`, in a kernel for a wide level. Out: CLIF, and the leaf in the object:
//! tiles at [`CpuLevel::Amx`], `vdpbf16ps` at [`CpuLevel::Avx512Bf16`]. Anything else is declined, and the caller widens
//! step by step: another level, a left operand in scratch, sums that start with another number than 0, panels with more
//! than two vectors of columns, a number of steps that may be odd for `vdpbf16ps`, which takes them in pairs alone.

use cranelift_codegen::ir::{InstBuilder, Value};

use super::super::code::{Code, Stride};
use super::super::pairs::{MOST_PITCH, starts_with_zero, takes_pairs};
use super::amx::TilesShape;
use super::call::vectors;
use super::dot::{DotShape, Right};
use super::leaves::Kind;
use crate::shape::Elem;
use crate::tile::{CpuLevel, InstData};

impl Code<'_, '_> {
    /// Emits a product with a panel of pairs as a call. False if there is no leaf for it.
    ///
    /// # Errors
    /// A form that the verifier refuses.
    pub(super) fn wide_pairs(&mut self, level: CpuLevel, data: &InstData, scratch: Value) -> Result<bool, String> {
        let [a, b, acc] = data.operands.as_slice() else { return Err("a product of three operands".into()) };
        let tile = |v| self.body.ty(v).tile().cloned().ok_or("a product of tiles");
        let ta = tile(*a)?;
        let result = tile(data.result.ok_or("a product without a result")?)?;
        if !matches!(level, CpuLevel::Avx512Bf16 | CpuLevel::Amx) {
            return Ok(false);
        }
        let Some(vectors) = vectors(&result, level.vectors()).filter(|n| *n <= 2) else { return Ok(false) };
        let small = |bytes: i64| i32::try_from(bytes).ok().filter(|p| *p < 1 << 24);
        let Some(acc_pitch) = small(i64::from(result.pitch())) else { return Ok(false) };
        let zero = starts_with_zero(self.body, *acc);
        let filled = zero.is_some();
        if zero == Some(false) {
            return Ok(false);
        }
        let Some(panel) = self.body.def_inst(*b).map(|d| d.operands.clone()) else { return Ok(false) };
        let [buffer, indices @ ..] = panel.as_slice() else { return Err("a panel without a buffer".into()) };
        let columns = self.body.ty(*buffer).buffer().and_then(|t| t.shape.iter().rev().nth(1)?.as_const());
        // Whole registers are read of each row.
        if columns.is_none_or(|n| n < i64::from(16 * vectors)) {
            return Ok(false);
        }
        let (_, strides, _) = self.buffer(*buffer)?;
        let b_pitch = match strides.iter().rev().nth(2) {
            Some(Stride::Const(n)) => small(n.saturating_mul(2)),
            _ => None,
        };
        let Some(b_pitch) = b_pitch.filter(|p| *p <= MOST_PITCH) else { return Ok(false) };
        let Some((a_start, [rows_of_a, Stride::Const(1)], Elem::BF16)) = self.window(*a)? else { return Ok(false) };
        if level == CpuLevel::Avx512Bf16 && !takes_pairs(self.body, data) {
            return Ok(false);
        }
        let (rows, inner) = (self.extent(result.rows)?, self.extent(ta.cols)?);
        if !filled {
            let from = tile(*acc)?;
            if result.space != from.space {
                self.copy_rows(&from, &result, rows, scratch)?;
            }
        }
        let a_stride = self.stride_bytes(rows_of_a, Elem::BF16);
        let b_start = self.address(*buffer, indices)?;
        let target = self.in_scratch(&result, scratch)?;
        let nothing = self.int(0);
        if level == CpuLevel::Amx {
            let shape = TilesShape { b_pitch, acc_pitch, vectors, zero: filled };
            let leaf = self.objects.leaf(Kind::Tiles(shape))?;
            self.call_leaf(leaf, &[a_start, a_stride, b_start, target, rows, inner])?;
        } else {
            let pairs = self.b.ins().ushr_imm_u(inner, 1);
            let right = Right::Pairs;
            let shape =
                DotShape { inner_dense: true, b_pitch, acc_pitch, vectors, right, filled, far: true, result: 0 };
            self.call_dot(level, shape, [a_start, a_stride, b_start, target, rows, pairs, nothing, nothing])?;
        }
        Ok(true)
    }
}
