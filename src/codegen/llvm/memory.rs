//! Loads and stores of vectors: element types of buffers, masks for lanes past the end, tiles in
//! scratch.
//!
//! In: addresses, and a mask of active lanes (none: all). Out: lanes in the type of computation, or
//! bytes in memory; inactive lanes are not accessed and read as 0. Also rounding to narrow types,
//! in integer arithmetic that every instruction set has.

use inkwell::types::VectorType;
use inkwell::values::{BasicValue, IntValue, PointerValue, VectorValue};
use inkwell::{FloatPredicate, IntPredicate};

use super::emit::{Emit, EmitResult};
use super::lanes::Lane;
use crate::shape::Elem;

/// Alignment to assume, in bytes: buffers are at best aligned to their elements.
const ALIGNED: u32 = 1;

impl<'c> Emit<'_, 'c> {
    /// Elements as they are in memory.
    fn raw(&self, elem: Elem, n: u32) -> VectorType<'c> {
        match elem {
            Elem::F32 | Elem::I32 | Elem::I64 => self.lanes_of(elem, n),
            Elem::BF16 | Elem::F16 => self.cx.i16_type().vec_type(n),
            Elem::I8 | Elem::Bool => self.cx.i8_type().vec_type(n),
        }
    }

    /// Widens from the memory type to the type of computation.
    fn widened(&self, elem: Elem, raw: VectorValue<'c>) -> EmitResult<Lane<'c>> {
        let n = raw.get_type().get_size();
        let ints = self.lanes_of(Elem::I32, n);
        Ok(match elem {
            Elem::F32 | Elem::I32 | Elem::I64 => Lane { value: raw, elem },
            Elem::I8 => Lane { value: self.b.build_int_s_extend(raw, ints, "")?, elem: Elem::I32 },
            Elem::Bool => {
                let zero = raw.get_type().const_zero();
                Lane { value: self.b.build_int_compare(IntPredicate::NE, raw, zero, "")?, elem }
            }
            Elem::BF16 => {
                let bits = self.b.build_int_z_extend(raw, ints, "")?;
                let bits = self.b.build_left_shift(bits, self.ints(16, n), "")?;
                Lane { value: self.as_floats(bits)?, elem: Elem::F32 }
            }
            Elem::F16 => {
                let bits = self.b.build_int_z_extend(raw, ints, "")?;
                Lane { value: self.f16_value(bits)?, elem: Elem::F32 }
            }
        })
    }

    /// Narrows to the memory type, rounded to nearest even or wrapped.
    fn narrowed(&self, elem: Elem, x: Lane<'c>) -> EmitResult<VectorValue<'c>> {
        let ty = self.raw(elem, x.count());
        Ok(match elem {
            Elem::F32 | Elem::I32 | Elem::I64 => x.value,
            Elem::I8 => self.b.build_int_truncate(x.value, ty, "")?,
            Elem::Bool => self.b.build_int_z_extend(x.value, ty, "")?,
            Elem::BF16 => self.b.build_int_truncate(self.bf16_bits(x.value)?, ty, "")?,
            Elem::F16 => {
                let rounded = self.round_to_f16(x.value)?;
                self.b.build_int_truncate(self.f16_bits(rounded)?, ty, "")?
            }
        })
    }

    fn load_raw(
        &self,
        ty: VectorType<'c>,
        at: PointerValue<'c>,
        mask: Option<VectorValue<'c>>,
    ) -> EmitResult<VectorValue<'c>> {
        let Some(mask) = mask else {
            let loaded = self.b.build_load(ty, at, "")?;
            if let Some(i) = loaded.as_instruction_value() {
                i.set_alignment(ALIGNED).map_err(|e| e.to_string())?;
            }
            return Ok(loaded.into_vector_value());
        };
        let align = self.cx.i32_type().const_int(u64::from(ALIGNED), false);
        let args = [at.into(), align.into(), mask.into(), ty.const_zero().into()];
        self.vector_intrinsic("llvm.masked.load", &[ty.into(), self.pointer().into()], &args)
    }

    fn store_raw(&self, x: VectorValue<'c>, at: PointerValue<'c>, mask: Option<VectorValue<'c>>) -> EmitResult<()> {
        let Some(mask) = mask else {
            let stored = self.b.build_store(at, x)?;
            stored.set_alignment(ALIGNED).map_err(|e| e.to_string())?;
            return Ok(());
        };
        let align = self.cx.i32_type().const_int(u64::from(ALIGNED), false);
        let args = [x.into(), at.into(), align.into(), mask.into()];
        self.intrinsic("llvm.masked.store", &[x.get_type().into(), self.pointer().into()], &args)?;
        Ok(())
    }

    /// Prefetches a cache line for writing.
    pub(super) fn prefetch(&self, at: PointerValue<'c>) -> EmitResult<()> {
        let number = |n: u64| self.cx.i32_type().const_int(n, false).into();
        // rw = 1 (write), locality = 3 (all cache levels), data cache.
        self.intrinsic("llvm.prefetch", &[self.pointer().into()], &[at.into(), number(1), number(3), number(1)])?;
        Ok(())
    }

    /// Loads `n` contiguous bytes.
    pub(super) fn load_bytes(&self, at: PointerValue<'c>, n: u32) -> EmitResult<VectorValue<'c>> {
        self.load_raw(self.raw(Elem::I8, n), at, None)
    }

    /// `n` addresses, `step` bytes apart.
    fn places(&self, at: PointerValue<'c>, step: IntValue<'c>, n: u32) -> EmitResult<VectorValue<'c>> {
        let start = self.b.build_ptr_to_int(at, self.cx.i64_type(), "")?;
        let (start, step) = (self.spread_index(start, n)?, self.spread_index(step, n)?);
        let steps = self.b.build_int_mul(step, self.counting(Elem::I64, n).value, "")?;
        let places = self.b.build_int_add(start, steps, "")?;
        Ok(self.b.build_int_to_ptr(places, self.pointer().vec_type(n), "")?)
    }

    fn all_lanes(&self, n: u32) -> VectorValue<'c> {
        self.constant(crate::scalar::Scalar::Bool(true), Elem::Bool, n).value
    }

    /// Loads elements: contiguous, or `step` bytes apart.
    pub(super) fn load_memory(
        &self,
        elem: Elem,
        at: PointerValue<'c>,
        step: Option<IntValue<'c>>,
        n: u32,
        mask: Option<VectorValue<'c>>,
    ) -> EmitResult<Lane<'c>> {
        let ty = self.raw(elem, n);
        let raw = match step {
            Some(step) if n > 1 => {
                let places = self.places(at, step, n)?;
                let align = self.cx.i32_type().const_int(u64::from(ALIGNED), false);
                let mask = mask.unwrap_or_else(|| self.all_lanes(n));
                let args = [places.into(), align.into(), mask.into(), ty.const_zero().into()];
                self.vector_intrinsic("llvm.masked.gather", &[ty.into(), places.get_type().into()], &args)?
            }
            _ => self.load_raw(ty, at, mask)?,
        };
        self.widened(elem, raw)
    }

    /// Stores elements: contiguous, or `step` bytes apart.
    pub(super) fn store_memory(
        &self,
        elem: Elem,
        x: Lane<'c>,
        at: PointerValue<'c>,
        step: Option<IntValue<'c>>,
        mask: Option<VectorValue<'c>>,
    ) -> EmitResult<()> {
        let (raw, n) = (self.narrowed(elem, x)?, x.count());
        let Some(step) = step.filter(|_| n > 1) else { return self.store_raw(raw, at, mask) };
        let places = self.places(at, step, n)?;
        let align = self.cx.i32_type().const_int(u64::from(ALIGNED), false);
        let mask = mask.unwrap_or_else(|| self.all_lanes(n));
        let args = [raw.into(), places.into(), align.into(), mask.into()];
        self.intrinsic("llvm.masked.scatter", &[raw.get_type().into(), places.get_type().into()], &args)?;
        Ok(())
    }

    /// Loads lanes from scratch, where booleans are masks of 4 bytes.
    pub(super) fn load_scratch(&self, elem: Elem, at: PointerValue<'c>, n: u32) -> EmitResult<Lane<'c>> {
        let stored = if elem == Elem::Bool { Elem::I32 } else { elem };
        let value = self.load_raw(self.lanes_of(stored, n), at, None)?;
        if elem != Elem::Bool {
            return Ok(Lane { value, elem });
        }
        let zero = value.get_type().const_zero();
        Ok(Lane { value: self.b.build_int_compare(IntPredicate::NE, value, zero, "")?, elem })
    }

    /// Stores lanes to scratch.
    pub(super) fn store_scratch(&self, x: Lane<'c>, at: PointerValue<'c>) -> EmitResult<()> {
        let value = match x.elem {
            Elem::Bool => self.mask_bits(x)?.value,
            _ => x.value,
        };
        self.store_raw(value, at, None)
    }

    /// Rounds to a narrower type: `bf16` and `f16` to nearest even, `i8` wraps.
    pub(super) fn lane_narrow(&self, x: Lane<'c>, to: Elem) -> EmitResult<Lane<'c>> {
        let n = x.count();
        let value = match to {
            Elem::BF16 => {
                let bits = self.bf16_bits(x.value)?;
                self.as_floats(self.b.build_left_shift(bits, self.ints(16, n), "")?)?
            }
            Elem::F16 => self.round_to_f16(x.value)?,
            Elem::I8 => {
                let up = self.b.build_left_shift(x.value, self.ints(24, n), "")?;
                self.b.build_right_shift(up, self.ints(24, n), true, "")?
            }
            Elem::F32 | Elem::I32 | Elem::I64 | Elem::Bool => x.value,
        };
        Ok(Lane { value, ..x })
    }

    fn is_nan(&self, x: VectorValue<'c>) -> EmitResult<VectorValue<'c>> {
        Ok(self.b.build_float_compare(FloatPredicate::UNO, x, x, "")?)
    }

    /// Adds the bias that rounds to nearest even when shifting right by `by`:
    /// `bits + bias + (bits >> by & 1)`.
    fn biased(&self, bits: VectorValue<'c>, by: i32, bias: i32) -> EmitResult<VectorValue<'c>> {
        let n = bits.get_type().get_size();
        let odd = self.b.build_right_shift(bits, self.ints(by, n), false, "")?;
        let odd = self.b.build_and(odd, self.ints(1, n), "")?;
        let sum = self.b.build_int_add(bits, self.ints(bias, n), "")?;
        Ok(self.b.build_int_add(sum, odd, "")?)
    }

    /// Rounds to `bf16`: 16 bits in the low half of each lane. NaN stays NaN.
    fn bf16_bits(&self, x: VectorValue<'c>) -> EmitResult<VectorValue<'c>> {
        let (b, n) = (&self.b, x.get_type().get_size());
        let bits = self.as_ints(x)?;
        let rounded = b.build_right_shift(self.biased(bits, 16, 0x7fff)?, self.ints(16, n), false, "")?;
        let half = b.build_right_shift(bits, self.ints(16, n), false, "")?;
        let nan = b.build_or(half, self.ints(0x40, n), "")?;
        self.choose(self.is_nan(x)?, nan, rounded)
    }

    /// Rounds to the nearest `f16`, as `f32`: 11 significant bits, multiples of 2^-24 below 2^-14,
    /// infinity for 65520 and above.
    fn round_to_f16(&self, x: VectorValue<'c>) -> EmitResult<VectorValue<'c>> {
        let (b, n) = (&self.b, x.get_type().get_size());
        let a = self.absolute(x)?;
        let normal = b.build_and(self.biased(self.as_ints(a)?, 13, 0xfff)?, self.ints(!0x1fff, n), "")?;
        let normal = self.as_floats(normal)?;
        let half = self.floats(0.5, n);
        let small = b.build_float_sub(b.build_float_add(a, half, "")?, half, "")?;
        let is_small = b.build_float_compare(FloatPredicate::OLT, a, self.floats(6.103_515_6e-5, n), "")?;
        let y = self.choose(is_small, small, normal)?;
        let over = b.build_float_compare(FloatPredicate::OGT, y, self.floats(65504.0, n), "")?;
        let y = self.choose(over, self.floats(f32::INFINITY, n), y)?;
        let y = self.with_sign(y, x)?;
        self.choose(self.is_nan(x)?, x, y)
    }

    /// Encodes an `f32` that is exactly an `f16`: 16 bits in the low half of each lane.
    fn f16_bits(&self, x: VectorValue<'c>) -> EmitResult<VectorValue<'c>> {
        let (b, n) = (&self.b, x.get_type().get_size());
        let a = self.absolute(x)?;
        // Scaling by 2^-112 converts the exponent of f32 to that of f16, subnormals included.
        let scaled = b.build_float_mul(a, self.floats(f32::from_bits((127 - 112) << 23), n), "")?;
        let bits = b.build_right_shift(self.as_ints(scaled)?, self.ints(13, n), false, "")?;
        let (raw, top) = (self.as_ints(a)?, self.ints(0x7f80_0000, n));
        let special = b.build_int_compare(IntPredicate::SGE, raw, top, "")?;
        // Infinity, or a NaN: its upper payload bits plus the quiet bit.
        let payload = b.build_right_shift(raw, self.ints(13, n), false, "")?;
        let payload = b.build_and(payload, self.ints(0x3ff, n), "")?;
        let is_nan = b.build_int_compare(IntPredicate::SGT, raw, top, "")?;
        let quiet = self.choose(is_nan, self.ints(0x200, n), self.ints(0, n))?;
        let other = b.build_or(b.build_or(payload, quiet, "")?, self.ints(0x7c00, n), "")?;
        let bits = self.choose(special, other, bits)?;
        let sign = b.build_right_shift(self.as_ints(x)?, self.ints(16, n), false, "")?;
        Ok(b.build_or(bits, b.build_and(sign, self.ints(0x8000, n), "")?, "")?)
    }

    /// Decodes `f16` bits in the low half of each lane to `f32`.
    fn f16_value(&self, h: VectorValue<'c>) -> EmitResult<VectorValue<'c>> {
        let (b, n) = (&self.b, h.get_type().get_size());
        let magnitude = b.build_and(h, self.ints(0x7fff, n), "")?;
        let bits = b.build_left_shift(magnitude, self.ints(13, n), "")?;
        let scale = self.floats(f32::from_bits((127 + 112) << 23), n);
        let scaled = self.as_ints(b.build_float_mul(self.as_floats(bits)?, scale, "")?)?;
        let special = b.build_int_compare(IntPredicate::SGE, magnitude, self.ints(0x7c00, n), "")?;
        let other = b.build_or(bits, self.ints(0x7f80_0000, n), "")?;
        let bits = self.choose(special, other, scaled)?;
        let sign = b.build_and(h, self.ints(0x8000, n), "")?;
        let sign = b.build_left_shift(sign, self.ints(16, n), "")?;
        self.as_floats(b.build_or(bits, sign, "")?)
    }
}
