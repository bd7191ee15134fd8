//! Calls of the leaves of `bf16` products: both operands `bf16`, the right one in pairs of steps.
//!
//! In: a `dot` whose right operand is `load_pairs` or `pair_rows`, in a kernel for a wide level. Out: CLIF, and the leaf in
//! the object: tiles with [`Feature::Amx`], `vdpbf16ps` with [`Feature::Bf16`] alone. Anything else is declined, and the caller widens
//! step by step: another machine, a left operand in scratch, sums that start with another number than 0, panels with more
//! than two vectors of columns, a number of steps that may be odd for `vdpbf16ps`, which takes them in pairs alone.

use cranelift_codegen::ir::{InstBuilder, Value};

use super::super::code::{Code, Stride};
use super::super::pairs::{MOST_PITCH, starts_with_zero, takes_pairs};
use super::amx::TilesShape;
use super::call::{pitch, vectors};
use super::dot::{DotShape, Right};
use super::leaves::Kind;
use super::pair_rows::PairRowsShape;
use crate::shape::Elem;
use crate::tile::{self, Cpu, Feature, InstData, Op};

impl Code<'_, '_> {
    /// Emits a product with a panel of pairs as a call. False if there is no leaf for it.
    ///
    /// # Errors
    /// A form that the verifier refuses.
    pub(super) fn wide_pairs(&mut self, level: Cpu, data: &InstData, scratch: Value) -> Result<bool, String> {
        let [a, b, acc] = data.operands.as_slice() else { return Err("a product of three operands".into()) };
        let tile = |v| self.body.ty(v).tile().cloned().ok_or("a product of tiles");
        let ta = tile(*a)?;
        let result = tile(data.result.ok_or("a product without a result")?)?;
        if !level.has(Feature::Bf16) {
            return Ok(false);
        }
        let Some(vectors) = vectors(&result, level.width()).filter(|n| *n <= 2) else { return Ok(false) };
        let Some(acc_pitch) = pitch(&result) else { return Ok(false) };
        let zero = starts_with_zero(self.body, *acc);
        let filled = zero.is_some();
        if zero == Some(false) {
            return Ok(false);
        }
        let Some((b_start, b_pitch, far)) = self.panel_of_pairs(*b, vectors, scratch)? else { return Ok(false) };
        let Some((a_start, [rows_of_a, Stride::Const(1)], Elem::BF16)) = self.window(*a)? else { return Ok(false) };
        if !level.has(Feature::Amx) && !takes_pairs(self.body, data) {
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
        let target = self.in_scratch(&result, scratch)?;
        let nothing = self.int(0);
        if level.has(Feature::Amx) {
            let shape = TilesShape { b_pitch, acc_pitch, vectors, zero: filled };
            let leaf = self.leaves.of_kind(Kind::Tiles(shape));
            self.call_leaf(leaf, &[a_start, a_stride, b_start, target, rows, inner])?;
        } else {
            let pairs = self.b.ins().ushr_imm_u(inner, 1);
            let right = Right::Pairs;
            let shape = DotShape {
                inner_dense: true,
                b_pitch,
                acc_pitch,
                vectors,
                right,
                groups: false,
                filled,
                far,
                result: 0,
                direct: false,
            };
            self.call_dot(level.width(), shape, [a_start, a_stride, b_start, target, rows, pairs, nothing, nothing])?;
        }
        Ok(true)
    }

    /// The pairs of a right operand that whole registers can be read of: where they begin, bytes from pair to pair, and do
    /// they come from memory, with what is wanted next after them?
    fn panel_of_pairs(
        &mut self,
        v: tile::Value,
        vectors: i32,
        scratch: Value,
    ) -> Result<Option<(Value, i32, bool)>, String> {
        let small = |bytes: i64| i32::try_from(bytes).ok().filter(|p| *p <= MOST_PITCH);
        let Some(InstData { op, operands, .. }) = self.body.def_inst(v).cloned() else { return Ok(None) };
        if op == Op::PairRows {
            let t = self.body.ty(v).tile().cloned().ok_or("pairs of rows of a tile")?;
            let start = self.in_scratch(&t, scratch)?;
            return Ok(small(i64::from(t.pitch())).map(|pitch| (start, pitch, false)));
        }
        let [buffer, indices @ ..] = operands.as_slice() else { return Err("a panel without a buffer".into()) };
        let columns = self.body.ty(*buffer).buffer().and_then(|t| t.shape.iter().rev().nth(1)?.as_const());
        if columns.is_none_or(|n| n < i64::from(16 * vectors)) {
            return Ok(None);
        }
        let (_, strides, _) = self.buffer(*buffer)?;
        let Some(Stride::Const(pitch)) = strides.iter().rev().nth(2).copied() else { return Ok(None) };
        let Some(pitch) = small(pitch.saturating_mul(2)) else { return Ok(None) };
        // A kernel of several products comes back to its panel, and does not go on to the next one.
        let products = self.body.insts().filter(|(_, _, d)| d.op == Op::Dot);
        let far = products.count() == 1;
        Ok(Some((self.address(*buffer, indices)?, pitch, far)))
    }

    /// Emits pairs of rows as a call. False if there is no leaf for it.
    ///
    /// # Errors
    /// A form that the verifier refuses.
    pub(in crate::codegen::cpu) fn wide_pair_rows(
        &mut self,
        level: Cpu,
        data: &InstData,
        scratch: Value,
    ) -> Result<bool, String> {
        let (Some(x), Some(y)) = (data.operands.first(), data.result) else {
            return Err("pairs of rows have an operand and a result".into());
        };
        let tile = |v| self.body.ty(v).tile().cloned().ok_or("pairs of rows of a tile");
        let (from, to) = (tile(*x)?, tile(y)?);
        let (Some(vectors), Some(pitch), Some(result_pitch)) = (vectors(&to, level.width()), pitch(&from), pitch(&to))
        else {
            return Ok(false);
        };
        if !level.has(Feature::Bf16) || vectors > 16 {
            return Ok(false);
        }
        let (source, target) = (self.in_scratch(&from, scratch)?, self.in_scratch(&to, scratch)?);
        let (there, rows) = (self.extent(from.rows)?, self.extent(to.rows)?);
        let leaf = self.leaves.of_kind(Kind::PairRows(PairRowsShape { vectors, pitch, result_pitch }));
        self.call_leaf(leaf, &[source, target, there, rows])?;
        Ok(true)
    }
}
