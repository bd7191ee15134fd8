//! Right operands of matmuls: in scratch, in place, or panels of elements that are narrower in
//! memory.
//!
//! In: a `dot`'s right operand (`load_scaled`: integers of 8 or 4 bits with a scale for each column
//! of a group of steps; `load_pairs`, `pair_rows`: `bf16`, two steps interleaved). Out: vectors of
//! its columns at a step, as `f32`: an integer is multiplied by its scale, with one rounding. In
//! the mode of pairs they are not widened: one instruction adds the products of two steps
//! (`vdpbf16ps`).

use inkwell::values::{IntValue, PointerValue, VectorValue};

use super::code::{Code, Stride};
use super::emit::EmitResult;
use super::lanes::Lane;
use super::product::{DotValues, RegisterTile, Right, RightOperand, Scaled, Sums};
use crate::scalar::BinaryOp;
use crate::shape::Elem;
use crate::tile::{self, InstData, Op, TileType};

/// log2 of the number of `k` steps that share a scale.
const GROUP_BITS: i64 = tile::GROUP.ilog2() as i64;

impl<'c> Code<'_, '_, 'c> {
    pub(super) fn right_operand(
        &self,
        v: tile::Value,
        t: &TileType,
        scratch: PointerValue<'c>,
    ) -> EmitResult<RightOperand<'c>> {
        match self.body.def_inst(v) {
            Some(data) if matches!(data.op, Op::LoadScaled { .. }) => self.scaled_panel(data),
            Some(InstData { op: Op::LoadPairs, operands, .. }) => {
                let [buffer, indices @ ..] = operands.as_slice() else { return Err("a panel without a buffer".into()) };
                let (_, strides, elem) = self.buffer(*buffer)?;
                let pitch = strides.iter().rev().nth(2).copied().ok_or("a panel has fewer than three axes")?;
                let row = self.stride_bytes(pitch, elem)?;
                Ok(RightOperand { start: self.address(*buffer, indices)?, row, kind: Right::Pairs })
            }
            Some(InstData { op: Op::PairRows, .. }) => {
                let f = self.factor(v, t, scratch)?;
                Ok(RightOperand { start: f.start, row: f.row, kind: Right::Pairs })
            }
            _ => {
                let f = self.factor(v, t, scratch)?;
                Ok(RightOperand { start: f.start, row: f.row, kind: Right::Elements(f.elem) })
            }
        }
    }

    fn scaled_panel(&self, data: &InstData) -> EmitResult<RightOperand<'c>> {
        let (Op::LoadScaled { bits }, [buffer, indices @ .., scales]) = (&data.op, data.operands.as_slice()) else {
            return Err("a panel without scales".into());
        };
        let axis = indices.len().checked_sub(2).ok_or("a panel needs two axes")?;
        let distance = |strides: &[Stride<'c>], size: i64| match strides.get(axis) {
            Some(Stride::Const(n)) => Ok(n.wrapping_mul(size)),
            _ => Err("a panel's row stride is not constant"),
        };
        let pitch = distance(&self.buffer(*buffer)?.1, 1)?;
        let (mut at, strides, elem) = self.buffer(*scales)?;
        let group = distance(&strides, 4)?;
        for (n, (stride, i)) in strides.into_iter().zip(indices).enumerate() {
            let mut i = self.index(*i)?;
            if n == axis {
                // From panel rows to groups of `k` steps.
                let rows_of_a_group = if *bits == 4 { GROUP_BITS - 1 } else { GROUP_BITS };
                i = self.e.b.build_right_shift(i, self.e.int(rows_of_a_group), true, "")?;
            }
            at = self.steps(at, i, self.stride_bytes(stride, elem)?)?;
        }
        let kind = Right::Scaled(Scaled { bits: *bits, scales: at, group });
        Ok(RightOperand { start: self.address(*buffer, indices)?, row: self.e.int(pitch), kind })
    }

    /// The scales of the group of step `k`, for each vector of columns.
    pub(super) fn scales(
        &self,
        p: &DotValues<'c>,
        place: RegisterTile<'c>,
        s: Scaled<'c>,
        k: IntValue<'c>,
    ) -> EmitResult<Vec<Lane<'c>>> {
        let group = self.e.b.build_right_shift(k, self.e.int(GROUP_BITS), true, "")?;
        let at = self.steps(s.scales, group, self.e.int(s.group))?;
        let at = self.steps(at, place.col, self.e.int(4))?;
        let vector = |v: i64| {
            let at = self.e.offset(at, self.e.int(4 * v * i64::from(p.lanes)))?;
            self.e.load_memory(Elem::F32, at, None, p.lanes, None)
        };
        (0..place.vectors).map(vector).collect()
    }

    /// The vectors of columns of step `k` of a right operand that begins at `b`.
    pub(super) fn columns(
        &self,
        p: &DotValues<'c>,
        place: RegisterTile<'c>,
        b: PointerValue<'c>,
        k: IntValue<'c>,
        scales: &[Lane<'c>],
    ) -> EmitResult<Vec<Lane<'c>>> {
        let half = self.e.b.build_right_shift(k, self.e.int(1), true, "")?;
        let row = match p.b.kind {
            Right::Pairs | Right::Scaled(Scaled { bits: 4, .. }) => half,
            Right::Elements(_) | Right::Scaled(_) => k,
        };
        let b = self.steps(b, row, p.b.row)?;
        let odd = self.e.b.build_and(k, self.e.int(1), "")?;
        let mut out = Vec::new();
        for v in 0..place.vectors {
            let at = self.e.offset(b, self.e.int(v * i64::from(p.lanes) * p.b.bytes()))?;
            let load = |elem| self.e.load_memory(elem, at, None, p.lanes, None);
            out.push(match p.b.kind {
                Right::Elements(elem) => load(elem)?,
                Right::Pairs => {
                    // Shift the requested half to the top, and the other one out.
                    let top = self.part_to_top(load(Elem::I32)?.value, odd, 16)?;
                    let kept = self.e.b.build_and(top, self.e.ints(-1 << 16, p.lanes), "")?;
                    Lane { value: self.e.as_floats(kept)?, elem: Elem::F32 }
                }
                Right::Scaled(s) => {
                    let mut x = load(Elem::I8)?;
                    if s.bits == 4 {
                        // Shift up to drop the bits above, then arithmetically back down.
                        let eight = self.e.b.build_left_shift(x.value, self.e.ints(24, p.lanes), "")?;
                        let top = self.part_to_top(eight, odd, 4)?;
                        x.value = self.e.b.build_right_shift(top, self.e.ints(28, p.lanes), true, "")?;
                    }
                    let scale = usize::try_from(v).ok().and_then(|v| scales.get(v)).ok_or("a scale is missing")?;
                    self.e.lane_binary(BinaryOp::Mul, self.e.lane_cast(x, Elem::F32)?, *scale)?
                }
            });
        }
        Ok(out)
    }

    /// Lanes have two parts of `bits` bits at the top: moves the lower part to the top if `odd` is
    /// 0, else leaves the upper one.
    fn part_to_top(&self, x: VectorValue<'c>, odd: IntValue<'c>, bits: i64) -> EmitResult<VectorValue<'c>> {
        let even = self.e.b.build_xor(odd, self.e.int(1), "")?;
        let up = self.e.b.build_int_mul(even, self.e.int(bits), "")?;
        let up = self.e.lane_cast(self.e.one(up, Elem::I64)?, Elem::I32)?;
        Ok(self.e.b.build_left_shift(x, self.e.spread(up, x.get_type().get_size())?.value, "")?)
    }

    /// All steps of a register tile whose operands begin at `a` and `b`, two at a time; their
    /// number is even.
    pub(super) fn pairs_of_steps(
        &mut self,
        p: &DotValues<'c>,
        place: RegisterTile<'c>,
        (a, b): (PointerValue<'c>, PointerValue<'c>),
        sums: &Sums<'c>,
    ) -> EmitResult<()> {
        const SUM: &str = "llvm.x86.avx512bf16.dpbf16ps.512";
        let (ty, pairs) = (self.e.lanes_of(p.elem, p.lanes), self.e.parameter_of(SUM, 1)?);
        let count = self.e.b.build_right_shift(p.inner, self.e.int(1), true, "")?;
        self.counted(self.e.int(0), count, 1, |code, pair| {
            let as_pairs = |x: Lane<'c>| Ok::<_, super::emit::Error>(code.e.b.build_bit_cast(x.value, pairs, "")?);
            let (a, b) = (code.steps(a, pair, code.e.int(4))?, code.steps(b, pair, p.b.row)?);
            let mut columns = Vec::new();
            for v in 0..place.vectors {
                let at = code.e.offset(b, code.e.int(v * i64::from(4 * p.lanes)))?;
                columns.push(as_pairs(code.e.load_memory(Elem::I32, at, None, p.lanes, None)?)?);
            }
            let mut rest = sums.iter();
            for r in 0..place.height {
                let at = code.steps(a, code.e.int(r), p.a.row)?;
                let x = code.e.load_memory(Elem::I32, at, None, 1, None)?;
                let x = as_pairs(code.e.spread(x, p.lanes)?)?;
                for (y, (_, sum)) in columns.iter().zip(&mut rest) {
                    let args = [code.e.b.build_load(ty, *sum, "")?.into(), x.into(), (*y).into()];
                    let next = code.e.vector_intrinsic(SUM, &[], &args)?;
                    code.e.b.build_store(*sum, next)?;
                }
            }
            Ok(())
        })?;
        Ok(())
    }
}
