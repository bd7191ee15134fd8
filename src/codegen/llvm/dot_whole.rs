//! Matmuls by quantised weights with byte dot products (AVX-512 VNNI, AVX-VNNI).
//!
//! In: a matmul in the mode [`DotMode::Groups`](crate::tile::DotMode), with a multiple of the group
//! as inner extent. Out: LLVM IR with the processor's intrinsic. Interleaving four steps of a
//! column is left to LLVM, as a shuffle of four rows.

use inkwell::types::VectorType;
use inkwell::values::{IntValue, VectorValue};

use super::code::Code;
use super::emit::{Emit, EmitResult};
use super::lanes::Lane;
use super::product::{Count, DotValues, RegisterTile, Scaled};
use crate::scalar::{BinaryOp, Scalar};
use crate::shape::Elem;

/// `k` steps of a group.
const GROUP: u32 = crate::tile::GROUP.unsigned_abs();
/// Vectors of columns of a panel.
const VECTORS: u32 = 2;
/// Rows at a time, by the number of vector registers.
const ROWS: i64 = 4;
const FEW_ROWS: i64 = 2;

/// 1.5 * 2^23: adding it rounds an `f32` of magnitude below 2^22 to an integer in the low bits.
const ROUND: f32 = 12_582_912.0;

impl<'c> Emit<'_, 'c> {
    /// A vector of `n` equal bytes.
    fn bytes(&self, x: u8, n: u32) -> VectorValue<'c> {
        let x = self.cx.i8_type().const_int(u64::from(x), false);
        VectorType::const_vector(&vec![x; n as usize])
    }

    /// Adds to each sum the dot product of four unsigned and four signed bytes.
    fn add_bytes(&self, sum: VectorValue<'c>, a: VectorValue<'c>, b: VectorValue<'c>) -> EmitResult<VectorValue<'c>> {
        let name = format!("llvm.x86.avx512.vpdpbusd.{}", 32 * sum.get_type().get_size());
        self.vector_intrinsic(&name, &[], &[sum.into(), a.into(), b.into()])
    }

    /// Bitcasts bytes to 32-bit lanes.
    fn fours(&self, bytes: VectorValue<'c>) -> EmitResult<VectorValue<'c>> {
        let ty = self.lanes_of(Elem::I32, bytes.get_type().get_size() / 4);
        Ok(self.b.build_bit_cast(bytes, ty, "")?.into_vector_value())
    }
}

impl<'c> Code<'_, '_, 'c> {
    /// Computes all rows.
    pub(super) fn whole(&mut self, p: &DotValues<'c>, s: Scaled<'c>, rows: IntValue<'c>) -> EmitResult<()> {
        let most = if self.e.level.registers() == 32 { ROWS } else { FEW_ROWS };
        self.in_steps(Count::Value(rows), &[(most, 0), (1, 0)], |code, height, row| {
            let place = RegisterTile { height, vectors: i64::from(VECTORS), row, col: code.e.int(0) };
            let sums = code.start_sums(p, place)?;
            let a = code.steps(p.a.start, row, p.a.row)?;
            let ty = code.e.lanes_of(Elem::F32, p.lanes);
            code.counted(code.e.int(0), p.inner, i64::from(GROUP), |code, k| {
                let mut units = Vec::new();
                let mut left = Vec::new();
                for r in 0..height {
                    let at = code.steps(code.steps(a, k, p.a.col)?, code.e.int(r), p.a.row)?;
                    let (numbers, unit) = code.rounded(code.e.load_memory(Elem::F32, at, None, GROUP, None)?, s)?;
                    left.push(numbers);
                    units.push(code.e.spread(unit, p.lanes)?);
                }
                let scales = code.scales(p, place, s, k)?;
                let zero = code.e.ints(0, p.lanes);
                let mut whole = vec![zero; sums.len()];
                let mut offsets = [zero; VECTORS as usize];
                let halves = code.e.fours(code.e.bytes(128, 4 * p.lanes))?;
                for four in 0..GROUP / 4 {
                    let columns = code.four_steps(p, s, k, four)?;
                    for (offset, column) in offsets.iter_mut().zip(&columns) {
                        *offset = code.e.add_bytes(*offset, halves, *column)?;
                    }
                    for (numbers, sums) in left.iter().zip(whole.chunks_mut(VECTORS as usize)) {
                        let x = code.e.shuffle(*numbers, *numbers, &vec![four; p.lanes as usize])?;
                        for (sum, column) in sums.iter_mut().zip(&columns) {
                            *sum = code.e.add_bytes(*sum, x, *column)?;
                        }
                    }
                }
                let all = units.iter().flat_map(|unit| scales.iter().zip(&offsets).map(move |s| (unit, s)));
                for (((unit, (scale, offset)), whole), (_, sum)) in all.zip(whole).zip(&sums) {
                    let value = code.e.b.build_int_sub(whole, *offset, "")?;
                    let x = code.e.lane_cast(Lane { value, elem: Elem::I32 }, Elem::F32)?;
                    let unit = code.e.lane_binary(BinaryOp::Mul, *scale, *unit)?;
                    let value = code.e.b.build_load(ty, *sum, "")?.into_vector_value();
                    let next = code.e.lane_mul_add(x, unit, Lane { value, elem: Elem::F32 })?;
                    code.e.b.build_store(*sum, next.value)?;
                }
                Ok(())
            })?;
            code.store_sums(p, &sums)
        })
    }

    /// Quantises a group of a row: `q + 128`, four bytes per lane, and `t`, divided by 16 for 4-bit
    /// weights (which are computed as 16 times their value).
    fn rounded(&self, x: Lane<'c>, s: Scaled<'c>) -> EmitResult<(VectorValue<'c>, Lane<'c>)> {
        let e = &self.e;
        let number = |x: f32| e.constant(Scalar::Float(f64::from(x)), Elem::F32, 1);
        let magnitudes = e.b.build_and(e.as_ints(x.value)?, e.ints(i32::MAX, GROUP), "")?;
        let types = [magnitudes.get_type().into()];
        let largest = match e.intrinsic("llvm.vector.reduce.umax", &types, &[magnitudes.into()])? {
            inkwell::values::ValueKind::Basic(v) => v.into_int_value(),
            inkwell::values::ValueKind::Instruction(_) => return Err("a maximum without a value".into()),
        };
        let i32s = e.cx.i32_type();
        let least = i32s.const_int(u64::from(1e-30_f32.to_bits()), false);
        let most = match e.intrinsic("llvm.umax", &[i32s.into()], &[largest.into(), least.into()])? {
            inkwell::values::ValueKind::Basic(v) => v.into_int_value(),
            inkwell::values::ValueKind::Instruction(_) => return Err("a maximum without a value".into()),
        };
        let most = Lane { value: e.as_floats(e.one(most, Elem::I32)?.value)?, elem: Elem::F32 };
        // max - max is NaN if the maximum is infinite or NaN, else 0; it is added to `t`.
        let part = 1.0 / if s.bits == 4 { 127.0 * 16.0 } else { 127.0_f32 };
        let unit = e.lane_mul_add(most, number(part), e.lane_binary(BinaryOp::Sub, most, most)?)?;
        let factor = e.spread(e.lane_binary(BinaryOp::Div, number(127.0), most)?, GROUP)?;
        let q = e.lane_mul_add(x, factor, e.spread(number(128.0), GROUP)?)?;
        // Round to the nearest integer, which is then in the lowest byte.
        let q = e.lane_binary(BinaryOp::Add, q, e.spread(number(ROUND), GROUP)?)?;
        let q = e.b.build_int_truncate(e.as_ints(q.value)?, e.cx.i8_type().vec_type(GROUP), "")?;
        Ok((e.fours(q)?, unit))
    }

    /// Four adjacent steps of each column, in the group that begins at step `k`.
    fn four_steps(
        &self,
        p: &DotValues<'c>,
        s: Scaled<'c>,
        k: IntValue<'c>,
        four: u32,
    ) -> EmitResult<Vec<VectorValue<'c>>> {
        let (e, columns) = (&self.e, VECTORS * p.lanes);
        let (rows_of_four, shift) = if s.bits == 4 { (2, 1) } else { (4, 0) };
        let row = e.b.build_right_shift(k, e.int(shift), true, "")?;
        let row = e.b.build_int_add(row, e.int(i64::from(four * rows_of_four)), "")?;
        let n = rows_of_four * columns;
        let rows = e.load_bytes(self.steps(p.b.start, row, p.b.row)?, n)?;
        // 4-bit weights in the upper half of a byte: 16 times their value, sign included.
        let (first, second) = if s.bits == 4 {
            (e.b.build_left_shift(rows, e.bytes(4, n), "")?, e.b.build_and(rows, e.bytes(0xf0, n), "")?)
        } else {
            (rows, rows)
        };
        let step = |i: u32| if s.bits == 4 { i % 2 * n + i / 2 * columns } else { i * columns };
        let vector = |v: u32| {
            let lanes: Vec<u32> = (0..4 * p.lanes).map(|i| step(i % 4) + v * p.lanes + i / 4).collect();
            e.fours(e.shuffle(first, second, &lanes)?)
        };
        (0..VECTORS).map(vector).collect()
    }
}
