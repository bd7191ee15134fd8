//! Calls of the `bf16` matmul leaves: both operands `bf16`, the right one in pairs of `k` steps.
//!
//! In: a `dot` in the modes [`DotMode::Pairs`](crate::tile::DotMode) or
//! [`DotMode::Tiles`](crate::tile::DotMode), or a `pair_rows`, in a kernel for 512 bits. Out: CLIF,
//! and the leaf in the object: `vdpbf16ps`, or AMX tiles. Must not know: which matmuls have these
//! modes (`tile::dot`).

use cranelift_codegen::ir::{InstBuilder, Value};

use super::super::code::{Code, Stride};
use super::amx::TilesShape;
use super::call::{UNFIT, pitch, vectors};
use super::dot::{Ahead, DotShape, Right};
use super::leaves::LeafKind;
use super::pair_rows::PairRowsShape;
use crate::shape::Elem;
use crate::tile::{self, Cpu, Feature, InstData, Op, Type};

/// A matmul of pairs: arguments common to the leaves of both modes.
struct OfPairs {
    /// The left operand and its row stride in bytes, the right one, the result, rows, steps.
    words: [Value; 6],
    /// Strides in bytes: from pair to pair of the right operand, from row to row of the result.
    b_pitch: i32,
    acc_pitch: i32,
    vectors: i32,
    /// Do the sums start with 0? Else they are added to the result's previous contents.
    filled: bool,
    /// Does the right operand come from memory, followed by the panel that is read next?
    far: bool,
}

impl Code<'_, '_> {
    /// The common arguments, with the accumulator copied to the result's location.
    fn product_of_pairs(&mut self, level: Cpu, data: &InstData, scratch: Value) -> Result<OfPairs, String> {
        let [a, b, acc] = data.operands.as_slice() else { return Err("a matmul needs three operands".into()) };
        let tile = |v| self.body.ty(v).tile().cloned().ok_or("a matmul operand is not a tile");
        let ta = tile(*a)?;
        let result = tile(data.result.ok_or("a matmul without a result")?)?;
        let vectors = vectors(&result, level.width()).ok_or(UNFIT)?;
        let acc_pitch = pitch(&result).ok_or(UNFIT)?;
        let filled = matches!(self.body.ty(*acc), Type::Scalar(_));
        let (b, b_pitch, far) = self.panel_of_pairs(*b, scratch)?.ok_or(UNFIT)?;
        let (a, [rows_of_a, _], _) = self.window(*a)?.ok_or(UNFIT)?;
        let (rows, inner) = (self.extent(result.rows)?, self.extent(ta.cols)?);
        if !filled {
            let from = tile(*acc)?;
            if result.space != from.space {
                self.copy_rows(&from, &result, rows, scratch)?;
            }
        }
        let a_stride = self.stride_bytes(rows_of_a, Elem::BF16);
        let target = self.in_scratch(&result, scratch)?;
        Ok(OfPairs { words: [a, a_stride, b, target, rows, inner], b_pitch, acc_pitch, vectors, filled, far })
    }

    /// Emits an AMX matmul as a call.
    ///
    /// # Errors
    /// A form that the verifier refuses.
    pub(in crate::codegen::cpu) fn wide_tiles(
        &mut self,
        level: Cpu,
        data: &InstData,
        scratch: Value,
    ) -> Result<(), String> {
        let p = self.product_of_pairs(level, data, scratch)?;
        let shape = TilesShape { b_pitch: p.b_pitch, acc_pitch: p.acc_pitch, vectors: p.vectors, zero: p.filled };
        let leaf = self.leaves.of_kind(LeafKind::Tiles(shape));
        self.call_leaf(leaf, &p.words)
    }

    /// Emits a `vdpbf16ps` matmul as a call.
    ///
    /// # Errors
    /// A form that the verifier refuses.
    pub(in crate::codegen::cpu) fn wide_pairs(
        &mut self,
        level: Cpu,
        data: &InstData,
        scratch: Value,
    ) -> Result<(), String> {
        let p = self.product_of_pairs(level, data, scratch)?;
        let [a, a_stride, b, target, rows, inner] = p.words;
        let nothing = self.int(0);
        let pairs = self.b.ins().ushr_imm_u(inner, 1);
        let shape = DotShape {
            inner_dense: true,
            b_pitch: p.b_pitch,
            acc_pitch: p.acc_pitch,
            vectors: p.vectors,
            right: Right::Pairs,
            groups: false,
            filled: p.filled,
            ahead: if p.far { Ahead::Panel } else { Ahead::Nothing },
            result: 0,
            direct: false,
        };
        self.call_dot(level.width(), shape, [a, a_stride, b, target, rows, pairs, nothing, nothing], None)
    }

    /// The panel of a right operand, if full vectors can be loaded from it: start address, bytes
    /// from pair to pair, and is it in memory, followed by the panel that is read next?
    fn panel_of_pairs(&mut self, v: tile::Value, scratch: Value) -> Result<Option<(Value, i32, bool)>, String> {
        let Some(InstData { op, operands, .. }) = self.body.def_inst(v).cloned() else { return Ok(None) };
        if op == Op::PairRows {
            let t = self.body.ty(v).tile().cloned().ok_or("an operand of `pair_rows` is not a tile")?;
            let start = self.in_scratch(&t, scratch)?;
            return Ok(pitch(&t).map(|pitch| (start, pitch, false)));
        }
        let [buffer, indices @ ..] = operands.as_slice() else { return Err("a panel without a buffer".into()) };
        let (_, strides, _) = self.buffer(*buffer)?;
        let Some(Stride::Const(stride)) = strides.iter().rev().nth(2).copied() else { return Ok(None) };
        let Ok(pitch) = i32::try_from(stride.saturating_mul(2)) else { return Ok(None) };
        // A kernel with several matmuls reuses its panel instead of continuing with the next one.
        let products = self.body.insts().filter(|(_, _, d)| matches!(d.op, Op::Dot { .. }));
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
            return Err("`pair_rows` needs an operand and a result".into());
        };
        let tile = |v| self.body.ty(v).tile().cloned().ok_or("an operand of `pair_rows` is not a tile");
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
        let leaf = self.leaves.of_kind(LeafKind::PairRows(PairRowsShape { vectors, pitch, result_pitch }));
        self.call_leaf(leaf, &[source, target, there, rows])?;
        Ok(true)
    }
}
