//! Element operations on vectors of four lanes and on single elements, as CLIF.
//!
//! In: operations on elements, and operands in lanes. Out: results in lanes. A [`Lane`] is either
//! four elements or one:
//!
//! | element | four lanes | one lane |
//! |---|---|---|
//! | `f32` | `F32X4` | `F32` |
//! | `i32` | `I32X4` | `I32` |
//! | `i64` | - | `I64` |
//! | `bool` | `I32X4`, all ones for true | `I8`, 0 or 1 |
//!
//! `i64` and powers of integers are never computed in four lanes. A single `f32` goes through the
//! same vector code as four where that is a polynomial, so the bits of a result do not depend on
//! the element's position in a row.

use cranelift_codegen::ir::condcodes::{FloatCC, IntCC};
use cranelift_codegen::ir::{ConstantData, Endianness, InstBuilder, MemFlagsData, Type, Value, types};

use super::math::Lanes;
use crate::scalar::{BinaryOp, CmpOp, ReduceKind, Scalar, UnaryOp};
use crate::shape::Elem;
use crate::vector::{self, library};

/// Number of elements computed at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Width {
    One,
    Four,
}

/// One or four elements of `f32`, `i32`, `i64` or `bool`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lane {
    /// The CLIF value, of the type in the module's table.
    pub(super) value: Value,
    /// Element type.
    pub(super) elem: Elem,
    pub(super) width: Width,
}

/// The CLIF type of lanes.
pub(super) fn clif_type(elem: Elem, width: Width) -> Type {
    match (elem, width) {
        (Elem::F32 | Elem::BF16 | Elem::F16, Width::Four) => types::F32X4,
        (Elem::F32 | Elem::BF16 | Elem::F16, Width::One) => types::F32,
        (Elem::I32 | Elem::I8 | Elem::Bool | Elem::I64, Width::Four) => types::I32X4,
        (Elem::I32 | Elem::I8, Width::One) => types::I32,
        (Elem::I64, Width::One) => types::I64,
        (Elem::Bool, Width::One) => types::I8,
    }
}

/// Memory flags: cannot trap, no alignment assumed.
pub(super) fn plain() -> MemFlagsData {
    MemFlagsData::new().with_notrap()
}

pub(super) fn little() -> MemFlagsData {
    MemFlagsData::new().with_endianness(Endianness::Little)
}

impl Lanes<'_, '_> {
    fn ints(&mut self, x: i32) -> Value {
        let bytes: Vec<u8> = x.to_le_bytes().repeat(4);
        let constant = self.builder.func.dfg.constants.insert(ConstantData::from(bytes));
        self.builder.ins().vconst(types::I32X4, constant)
    }

    fn cast_bits(&mut self, to: Type, x: Value) -> Value {
        self.builder.ins().bitcast(to, little(), x)
    }

    /// Reinterprets `i32` as `f32`.
    pub(super) fn floats_of_bits(&mut self, x: Lane) -> Lane {
        let value = self.cast_bits(clif_type(Elem::F32, x.width), x.value);
        Lane { value, elem: Elem::F32, width: x.width }
    }

    /// Reinterprets `f32` as `i32`.
    pub(super) fn bits_of_floats(&mut self, x: Lane) -> Lane {
        let value = self.cast_bits(clif_type(Elem::I32, x.width), x.value);
        Lane { value, elem: Elem::I32, width: x.width }
    }

    pub(super) fn constant(&mut self, s: Scalar, elem: Elem, width: Width) -> Lane {
        let value = match (elem, width) {
            (Elem::F32 | Elem::BF16 | Elem::F16, Width::Four) => self.splat(s.as_f64() as f32),
            (Elem::F32 | Elem::BF16 | Elem::F16, Width::One) => self.builder.ins().f32const(s.as_f64() as f32),
            (Elem::I32 | Elem::I8 | Elem::I64, Width::Four) => self.ints(s.as_i64() as i32),
            (Elem::I32 | Elem::I8, Width::One) => {
                self.builder.ins().iconst(types::I32, i64::from((s.as_i64() as i32).cast_unsigned()))
            }
            (Elem::I64, Width::One) => self.builder.ins().iconst(types::I64, s.as_i64()),
            (Elem::Bool, Width::Four) => self.ints(if s.as_f64() != 0.0 { -1 } else { 0 }),
            (Elem::Bool, Width::One) => self.builder.ins().iconst(types::I8, i64::from(s.as_f64() != 0.0)),
        };
        Lane { value, elem, width }
    }

    /// Broadcasts a single element to four lanes.
    pub(super) fn spread(&mut self, x: Lane) -> Lane {
        if x.width == Width::Four {
            return x;
        }
        let value = match x.elem {
            Elem::F32 | Elem::BF16 | Elem::F16 => self.builder.ins().splat(types::F32X4, x.value),
            Elem::I32 | Elem::I8 => self.builder.ins().splat(types::I32X4, x.value),
            Elem::I64 => {
                let low = self.builder.ins().ireduce(types::I32, x.value);
                self.builder.ins().splat(types::I32X4, low)
            }
            Elem::Bool => {
                let wide = self.builder.ins().uextend(types::I32, x.value);
                let mask = self.builder.ins().ineg(wide);
                self.builder.ins().splat(types::I32X4, mask)
            }
        };
        Lane { value, width: Width::Four, ..x }
    }

    /// Extracts lane `index`.
    pub(super) fn lane(&mut self, x: Lane, index: u8) -> Lane {
        if x.width == Width::One {
            return x;
        }
        let mut value = self.builder.ins().extractlane(x.value, index);
        if x.elem == Elem::Bool {
            let one = self.builder.ins().band_imm_u(value, 1);
            value = self.builder.ins().ireduce(types::I8, one);
        }
        Lane { value, width: Width::One, ..x }
    }

    /// Builds a vector of four single elements.
    pub(super) fn gather(&mut self, xs: [Lane; 4]) -> Lane {
        let first = self.spread(xs[0]);
        let mut value = first.value;
        for (i, x) in xs.iter().enumerate().skip(1) {
            let element = match x.elem {
                Elem::Bool => {
                    let wide = self.builder.ins().uextend(types::I32, x.value);
                    self.builder.ins().ineg(wide)
                }
                _ => x.value,
            };
            value = self.builder.ins().insertlane(value, element, i as u8);
        }
        Lane { value, ..first }
    }

    /// Applies vector code to floats of either width.
    fn through_vector(&mut self, xs: &[Lane], f: impl FnOnce(&mut Self, &[Value]) -> Value) -> Lane {
        let width = xs.first().map_or(Width::Four, |x| x.width);
        let wide: Vec<Value> = xs.iter().map(|x| self.spread(*x).value).collect();
        let value = f(self, &wide);
        self.narrowed(value, width)
    }

    /// The vector itself, or its first lane.
    fn narrowed(&mut self, value: Value, width: Width) -> Lane {
        let y = Lane { value, elem: Elem::F32, width: Width::Four };
        if width == Width::One { self.lane(y, 0) } else { y }
    }

    fn zero_like(&mut self, x: Lane) -> Value {
        self.constant(Scalar::Int(0), x.elem, x.width).value
    }

    /// A unary operation.
    ///
    /// # Errors
    /// As [`Lanes::unary`].
    pub(super) fn lane_unary(&mut self, op: UnaryOp, x: Lane) -> Result<Lane, String> {
        let b = &mut *self.builder;
        let value = match (x.elem, op) {
            (Elem::F32, UnaryOp::Neg) => b.ins().fneg(x.value),
            (Elem::F32, UnaryOp::Abs) => b.ins().fabs(x.value),
            (Elem::F32, UnaryOp::Sqrt) => b.ins().sqrt(x.value),
            (Elem::F32, _) => {
                let wide = self.spread(x).value;
                let value = self.unary(op, wide)?;
                return Ok(self.narrowed(value, x.width));
            }
            (Elem::Bool, _) if x.width == Width::One => b.ins().bxor_imm_u(x.value, 1),
            (Elem::Bool, _) => b.ins().bnot(x.value),
            (_, UnaryOp::Neg) => b.ins().ineg(x.value),
            (_, UnaryOp::Abs) => b.ins().iabs(x.value),
            (_, _) => {
                let [low, high] = op.integer_range().ok_or_else(|| format!("{op} is not defined for integers"))?;
                let mut value = x.value;
                if let Some(low) = low {
                    let low = self.constant(Scalar::Int(low), x.elem, x.width).value;
                    value = self.builder.ins().smax(value, low);
                }
                if let Some(high) = high {
                    let high = self.constant(Scalar::Int(high), x.elem, x.width).value;
                    value = self.builder.ins().smin(value, high);
                }
                value
            }
        };
        Ok(Lane { value, ..x })
    }

    /// A binary operation.
    ///
    /// # Errors
    /// As [`Lanes::unary`].
    pub(super) fn lane_binary(&mut self, op: BinaryOp, x: Lane, y: Lane) -> Result<Lane, String> {
        let ty = match (x.elem, x.width) {
            (Elem::F32, _) => Some(vector::Type::F32),
            (Elem::I32, Width::Four) => Some(vector::Type::I32),
            (_, _) => None,
        };
        let Some(name) = ty.and_then(|ty| library::binary(op, ty)) else {
            return Ok(self.lane_arithmetic(op, x, y));
        };
        let (a, b) = (self.spread(x).value, self.spread(y).value);
        let value = self.function(name, &[a, b])?;
        let all = Lane { value, width: Width::Four, ..x };
        Ok(if x.width == Width::One { self.lane(all, 0) } else { all })
    }

    /// A binary operation that takes one or a few instructions.
    pub(super) fn lane_arithmetic(&mut self, op: BinaryOp, x: Lane, y: Lane) -> Lane {
        let b = &mut *self.builder;
        let value = match (x.elem, op) {
            (Elem::F32, BinaryOp::Add) => b.ins().fadd(x.value, y.value),
            (Elem::F32, BinaryOp::Sub) => b.ins().fsub(x.value, y.value),
            (Elem::F32, BinaryOp::Mul) => b.ins().fmul(x.value, y.value),
            (Elem::F32, BinaryOp::Div) => b.ins().fdiv(x.value, y.value),
            (Elem::F32, BinaryOp::Max | BinaryOp::Min) => {
                return self.through_vector(&[x, y], |s, v| s.extreme(op == BinaryOp::Max, v[0], v[1]));
            }
            // The rest are functions, or not defined for floats and rejected by the verifier.
            (Elem::F32, _) => x.value,
            (Elem::Bool, BinaryOp::Or | BinaryOp::Max | BinaryOp::Add) => b.ins().bor(x.value, y.value),
            (Elem::Bool, _) => b.ins().band(x.value, y.value),
            (_, BinaryOp::Add) => b.ins().iadd(x.value, y.value),
            (_, BinaryOp::Sub) => b.ins().isub(x.value, y.value),
            (_, BinaryOp::Mul) => b.ins().imul(x.value, y.value),
            (_, BinaryOp::Max) => b.ins().smax(x.value, y.value),
            (_, BinaryOp::Min) => b.ins().smin(x.value, y.value),
            (_, BinaryOp::And | BinaryOp::BitAnd) => b.ins().band(x.value, y.value),
            (_, BinaryOp::Or | BinaryOp::BitOr) => b.ins().bor(x.value, y.value),
            (_, BinaryOp::BitXor) => b.ins().bxor(x.value, y.value),
            (_, BinaryOp::ShiftLeft) => self.shift(true, x.value, y.value),
            (_, BinaryOp::ShiftRight) => self.shift(false, x.value, y.value),
            (_, BinaryOp::Div) => self.divide(x.value, y.value).0,
            (_, BinaryOp::Rem) => self.divide(x.value, y.value).1,
            (_, BinaryOp::Pow) => self.power(x.value, y.value),
        };
        Lane { value, ..x }
    }

    pub(super) fn lane_compare(&mut self, op: CmpOp, x: Lane, y: Lane) -> Lane {
        let b = &mut *self.builder;
        let value = if x.elem == Elem::F32 {
            let cc = match op {
                CmpOp::Eq => FloatCC::Equal,
                CmpOp::Ne => FloatCC::NotEqual,
                CmpOp::Lt => FloatCC::LessThan,
                CmpOp::Le => FloatCC::LessThanOrEqual,
                CmpOp::Gt => FloatCC::GreaterThan,
                CmpOp::Ge => FloatCC::GreaterThanOrEqual,
            };
            b.ins().fcmp(cc, x.value, y.value)
        } else if x.elem == Elem::Bool && x.width == Width::Four {
            // Masks: true is -1, so the order is reversed.
            b.ins().icmp(int_condition(op), y.value, x.value)
        } else {
            b.ins().icmp(int_condition(op), x.value, y.value)
        };
        Lane { value, elem: Elem::Bool, width: x.width }
    }

    /// `condition ? x : y`.
    pub(super) fn lane_select(&mut self, condition: Lane, x: Lane, y: Lane) -> Lane {
        let value = match x.width {
            Width::One => self.builder.ins().select(condition.value, x.value, y.value),
            Width::Four if x.elem == Elem::F32 => {
                let mask = self.cast_bits(types::F32X4, condition.value);
                self.builder.ins().bitselect(mask, x.value, y.value)
            }
            Width::Four => self.builder.ins().bitselect(condition.value, x.value, y.value),
        };
        Lane { value, ..x }
    }

    /// Conversion between element types: float to integer truncates and saturates (NaN gives 0).
    pub(super) fn lane_cast(&mut self, x: Lane, to: Elem) -> Lane {
        let four = x.width == Width::Four;
        let b = &mut *self.builder;
        let value = match (x.elem, to) {
            (a, c) if a == c => x.value,
            (Elem::F32, Elem::I32) => b.ins().fcvt_to_sint_sat(clif_type(Elem::I32, x.width), x.value),
            (Elem::F32, Elem::I64) => b.ins().fcvt_to_sint_sat(types::I64, x.value),
            (Elem::F32, _) => {
                let zero = self.zero_like(x);
                self.builder.ins().fcmp(FloatCC::NotEqual, x.value, zero)
            }
            (Elem::I32 | Elem::I64, Elem::F32) => b.ins().fcvt_from_sint(clif_type(Elem::F32, x.width), x.value),
            (Elem::I32, Elem::I64) => b.ins().sextend(types::I64, x.value),
            (Elem::I64, Elem::I32) => b.ins().ireduce(types::I32, x.value),
            (Elem::Bool, Elem::F32) if four => {
                let one = self.splat(1.0);
                let mask = self.cast_bits(types::F32X4, x.value);
                self.builder.ins().band(mask, one)
            }
            (Elem::Bool, Elem::F32) => {
                let wide = b.ins().uextend(types::I32, x.value);
                b.ins().fcvt_from_sint(types::F32, wide)
            }
            (Elem::Bool, Elem::I32) if four => b.ins().ineg(x.value),
            (Elem::Bool, Elem::I64) => b.ins().uextend(types::I64, x.value),
            (Elem::Bool, _) => b.ins().uextend(types::I32, x.value),
            (_, Elem::Bool) => {
                let zero = self.zero_like(x);
                self.builder.ins().icmp(IntCC::NotEqual, x.value, zero)
            }
            // Other types are converted when loaded and stored.
            (_, _) => x.value,
        };
        Lane { value, elem: to, width: x.width }
    }

    /// Rounds to a narrower type: `bf16` and `f16` to nearest even, `i8` wraps.
    pub(super) fn lane_narrow(&mut self, x: Lane, to: Elem) -> Lane {
        match to {
            Elem::BF16 => self.through_vector(&[x], |s, v| {
                let top = s.bf16_top(v[0]);
                let mask = s.ints(0xffff_0000_u32.cast_signed());
                let bits = s.builder.ins().band(top, mask);
                s.cast_bits(types::F32X4, bits)
            }),
            Elem::F16 => self.through_vector(&[x], |s, v| s.round_to_f16(v[0])),
            Elem::I8 => {
                let up = self.builder.ins().ishl_imm_u(x.value, 24);
                let value = self.builder.ins().sshr_imm_u(up, 24);
                Lane { value, ..x }
            }
            Elem::F32 | Elem::I32 | Elem::I64 | Elem::Bool => x,
        }
    }

    /// The bits of the nearest `bf16` in the upper half of each lane; the lower half is
    /// unspecified. NaN stays NaN.
    fn bf16_top(&mut self, x: Value) -> Value {
        let bits = self.cast_bits(types::I32X4, x);
        let half = self.builder.ins().ushr_imm_u(bits, 16);
        let one = self.ints(1);
        let odd = self.builder.ins().band(half, one);
        let bias = self.ints(0x7fff);
        let sum = self.builder.ins().iadd(bits, bias);
        let sum = self.builder.ins().iadd(sum, odd);
        let quiet = self.ints(0x40_0000);
        let nan = self.builder.ins().bor(bits, quiet);
        let unordered = self.builder.ins().fcmp(FloatCC::Unordered, x, x);
        self.builder.ins().bitselect(unordered, nan, sum)
    }

    /// Rounds to the nearest `f16`, as `f32`: 11 significant bits, multiples of 2^-24 below 2^-14,
    /// infinity for 65520 and above.
    fn round_to_f16(&mut self, x: Value) -> Value {
        let a = self.builder.ins().fabs(x);
        let bits = self.cast_bits(types::I32X4, a);
        let shifted = self.builder.ins().ushr_imm_u(bits, 13);
        let one = self.ints(1);
        let odd = self.builder.ins().band(shifted, one);
        let bias = self.ints(0xfff);
        let sum = self.builder.ins().iadd(bits, bias);
        let sum = self.builder.ins().iadd(sum, odd);
        let mask = self.ints(!0x1fff);
        let normal = self.builder.ins().band(sum, mask);
        let normal = self.cast_bits(types::F32X4, normal);
        let half = self.splat(0.5);
        let small = self.builder.ins().fadd(a, half);
        let small = self.builder.ins().fsub(small, half);
        let limit = self.splat(6.103_515_6e-5);
        let is_small = self.builder.ins().fcmp(FloatCC::LessThan, a, limit);
        let is_small = self.cast_bits(types::F32X4, is_small);
        let y = self.builder.ins().bitselect(is_small, small, normal);
        let (largest, infinity) = (self.splat(65504.0), self.splat(f32::INFINITY));
        let over = self.builder.ins().fcmp(FloatCC::GreaterThan, y, largest);
        let over = self.cast_bits(types::F32X4, over);
        let y = self.builder.ins().bitselect(over, infinity, y);
        let sign = self.splat(-0.0);
        let y = self.builder.ins().bitselect(sign, x, y);
        let nan = self.builder.ins().fcmp(FloatCC::Unordered, x, x);
        let nan = self.cast_bits(types::F32X4, nan);
        self.builder.ins().bitselect(nan, x, y)
    }

    /// Encodes an `f32` that is exactly an `f16`: 16 bits in the low half of each lane.
    fn f16_bits(&mut self, x: Value) -> Value {
        let a = self.builder.ins().fabs(x);
        // Scaling by 2^-112 converts the exponent of f32 to that of f16, subnormals included.
        let scale = self.splat(f32::from_bits((127 - 112) << 23));
        let scaled = self.builder.ins().fmul(a, scale);
        let bits = self.cast_bits(types::I32X4, scaled);
        let bits = self.builder.ins().ushr_imm_u(bits, 13);
        let raw = self.cast_bits(types::I32X4, a);
        let top = self.ints(0x7f80_0000);
        let special = self.builder.ins().icmp(IntCC::SignedGreaterThanOrEqual, raw, top);
        // Infinity, or a NaN: its upper payload bits plus the quiet bit.
        let payload = self.builder.ins().ushr_imm_u(raw, 13);
        let low = self.ints(0x3ff);
        let payload = self.builder.ins().band(payload, low);
        let is_nan = self.builder.ins().icmp(IntCC::SignedGreaterThan, raw, top);
        let quiet = self.ints(0x200);
        let quiet = self.builder.ins().band(is_nan, quiet);
        let payload = self.builder.ins().bor(payload, quiet);
        let infinity = self.ints(0x7c00);
        let other = self.builder.ins().bor(payload, infinity);
        let bits = self.builder.ins().bitselect(special, other, bits);
        let sign = self.cast_bits(types::I32X4, x);
        let sign = self.builder.ins().ushr_imm_u(sign, 16);
        let mask = self.ints(0x8000);
        let sign = self.builder.ins().band(sign, mask);
        self.builder.ins().bor(bits, sign)
    }

    /// Decodes `f16` bits in the low half of each lane to `f32`.
    fn f16_value(&mut self, h: Value) -> Value {
        let magnitude = self.ints(0x7fff);
        let em = self.builder.ins().band(h, magnitude);
        let bits = self.builder.ins().ishl_imm_u(em, 13);
        let float = self.cast_bits(types::F32X4, bits);
        let scale = self.splat(f32::from_bits((127 + 112) << 23));
        let scaled = self.builder.ins().fmul(float, scale);
        let scaled = self.cast_bits(types::I32X4, scaled);
        let infinity = self.ints(0x7c00);
        let special = self.builder.ins().icmp(IntCC::SignedGreaterThanOrEqual, em, infinity);
        let top = self.ints(0x7f80_0000);
        let other = self.builder.ins().bor(bits, top);
        let bits = self.builder.ins().bitselect(special, other, scaled);
        let sign_mask = self.ints(0x8000);
        let sign = self.builder.ins().band(h, sign_mask);
        let sign = self.builder.ins().ishl_imm_u(sign, 16);
        let bits = self.builder.ins().bor(bits, sign);
        self.cast_bits(types::F32X4, bits)
    }

    /// Loads 16 bytes, at any alignment, as a vector. They are loaded as bytes and then bitcast,
    /// because Cranelift 0.135 folds a load into `cmpps`, which faults on unaligned memory.
    pub(super) fn load_vector(&mut self, ty: Type, address: Value, offset: i32) -> Value {
        let bytes = self.builder.ins().load(types::I8X16, plain(), address, offset);
        self.cast_bits(ty, bytes)
    }

    /// Loads four contiguous elements, or one, from `address + offset` (bytes), converted to the
    /// type in which they are computed. `i64` is loaded one at a time.
    pub(super) fn load(&mut self, elem: Elem, width: Width, address: Value, offset: i32) -> Lane {
        let value = match width {
            Width::One => self.load_element(elem, address, offset),
            Width::Four => self.load_four(elem, address, offset),
        };
        Lane { value, elem: elem.computed(), width }
    }

    fn load_element(&mut self, elem: Elem, address: Value, offset: i32) -> Value {
        let b = &mut *self.builder;
        match elem {
            Elem::F32 => b.ins().load(types::F32, plain(), address, offset),
            Elem::I32 => b.ins().load(types::I32, plain(), address, offset),
            Elem::I64 => b.ins().load(types::I64, plain(), address, offset),
            Elem::I8 => b.ins().sload8(types::I32, plain(), address, offset),
            Elem::Bool => {
                let byte = b.ins().load(types::I8, plain(), address, offset);
                b.ins().icmp_imm_u(IntCC::NotEqual, byte, 0)
            }
            Elem::BF16 => {
                let bits = b.ins().uload16(types::I32, plain(), address, offset);
                let bits = b.ins().ishl_imm_u(bits, 16);
                b.ins().bitcast(types::F32, little(), bits)
            }
            Elem::F16 => {
                let bits = b.ins().uload16(types::I32, plain(), address, offset);
                let wide = b.ins().splat(types::I32X4, bits);
                let value = self.f16_value(wide);
                self.builder.ins().extractlane(value, 0)
            }
        }
    }

    fn load_four(&mut self, elem: Elem, address: Value, offset: i32) -> Value {
        match elem {
            Elem::F32 => self.load_vector(types::F32X4, address, offset),
            Elem::I32 | Elem::I64 => self.load_vector(types::I32X4, address, offset),
            Elem::BF16 => {
                let bits = self.builder.ins().uload16x4(plain(), address, offset);
                let bits = self.builder.ins().ishl_imm_u(bits, 16);
                self.cast_bits(types::F32X4, bits)
            }
            Elem::F16 => {
                let bits = self.builder.ins().uload16x4(plain(), address, offset);
                self.f16_value(bits)
            }
            Elem::I8 | Elem::Bool => {
                let bytes = self.builder.ins().load(types::I32, plain(), address, offset);
                let bytes = self.builder.ins().scalar_to_vector(types::I32X4, bytes);
                let bytes = self.cast_bits(types::I8X16, bytes);
                if elem == Elem::I8 {
                    let half = self.builder.ins().swiden_low(bytes);
                    return self.builder.ins().swiden_low(half);
                }
                let half = self.builder.ins().uwiden_low(bytes);
                let whole = self.builder.ins().uwiden_low(half);
                let zero = self.ints(0);
                self.builder.ins().icmp(IntCC::NotEqual, whole, zero)
            }
        }
    }

    /// Stores four contiguous elements, or one, as `elem` at `address + offset` (bytes).
    pub(super) fn store(&mut self, elem: Elem, x: Lane, address: Value, offset: i32) {
        match x.width {
            Width::One => self.store_element(elem, x, address, offset),
            Width::Four => self.store_four(elem, x.value, address, offset),
        }
    }

    fn store_element(&mut self, elem: Elem, x: Lane, address: Value, offset: i32) {
        let b = &mut *self.builder;
        match elem {
            Elem::F32 | Elem::I32 | Elem::I64 | Elem::Bool => {
                b.ins().store(plain(), x.value, address, offset);
            }
            Elem::I8 => {
                b.ins().istore8(plain(), x.value, address, offset);
            }
            Elem::BF16 | Elem::F16 => {
                let wide = self.spread(x).value;
                let bits = if elem == Elem::BF16 {
                    let top = self.bf16_top(wide);
                    self.builder.ins().ushr_imm_u(top, 16)
                } else {
                    let rounded = self.round_to_f16(wide);
                    self.f16_bits(rounded)
                };
                let low = self.builder.ins().extractlane(bits, 0);
                self.builder.ins().istore16(plain(), low, address, offset);
            }
        }
    }

    fn store_four(&mut self, elem: Elem, x: Value, address: Value, offset: i32) {
        // Narrow elements are 32-bit integers whose value fits 16 signed bits: packing them
        // saturates.
        let words = match elem {
            Elem::F32 | Elem::I32 | Elem::I64 => {
                self.builder.ins().store(plain(), x, address, offset);
                return;
            }
            Elem::BF16 => {
                let top = self.bf16_top(x);
                self.builder.ins().sshr_imm_u(top, 16)
            }
            Elem::F16 => {
                let rounded = self.round_to_f16(x);
                let bits = self.f16_bits(rounded);
                let up = self.builder.ins().ishl_imm_u(bits, 16);
                self.builder.ins().sshr_imm_u(up, 16)
            }
            Elem::I8 | Elem::Bool => {
                let low = self.ints(if elem == Elem::I8 { 0xff } else { 1 });
                self.builder.ins().band(x, low)
            }
        };
        let halves = self.builder.ins().snarrow(words, words);
        let (ty, packed) = if elem.size() == 2 {
            (types::F64X2, halves)
        } else {
            (types::F32X4, self.builder.ins().unarrow(halves, halves))
        };
        let packed = self.cast_bits(ty, packed);
        let low = self.builder.ins().extractlane(packed, 0);
        self.builder.ins().store(plain(), low, address, offset);
    }

    /// The index of each lane: 0, 1, 2, 3.
    pub(super) fn numbers(&mut self, width: Width) -> Value {
        match width {
            Width::One => self.builder.ins().iconst(types::I32, 0),
            Width::Four => {
                let bytes: Vec<u8> = (0..4_i32).flat_map(i32::to_le_bytes).collect();
                let constant = self.builder.func.dfg.constants.insert(ConstantData::from(bytes));
                self.builder.ins().vconst(types::I32X4, constant)
            }
        }
    }

    /// Booleans to `i32`, -1 for true.
    pub(super) fn mask_bits(&mut self, x: Lane) -> Lane {
        let value = match x.width {
            Width::Four => x.value,
            Width::One => {
                let wide = self.builder.ins().uextend(types::I32, x.value);
                self.builder.ins().ineg(wide)
            }
        };
        Lane { value, elem: Elem::I32, ..x }
    }

    /// `i32` to booleans: is the sign bit set?
    pub(super) fn mask_of_bits(&mut self, x: Lane) -> Lane {
        let value = match x.width {
            Width::Four => self.builder.ins().sshr_imm_u(x.value, 31),
            Width::One => self.builder.ins().icmp_imm_s(IntCC::SignedLessThan, x.value, 0),
        };
        Lane { value, elem: Elem::Bool, ..x }
    }

    /// Exchanges lanes whose indices differ by `distance`, a power of two.
    pub(super) fn exchange(&mut self, x: Lane, distance: u32) -> Lane {
        let lanes = (0..4_u32).map(|lane| 4 * (lane ^ distance & 3));
        let bytes: Vec<u8> = lanes.flat_map(|first| (first..first + 4).map(|byte| byte as u8)).collect();
        let mask = self.builder.func.dfg.immediates.push(ConstantData::from(bytes));
        let all = self.cast_bits(types::I8X16, x.value);
        let all = self.builder.ins().shuffle(all, all, mask);
        Lane { value: self.cast_bits(clif_type(x.elem, x.width), all), ..x }
    }

    /// Maximum or minimum of floats; `y` if either is NaN.
    pub(super) fn or_second(&mut self, is_max: bool, x: Lane, y: Lane) -> Lane {
        // Cranelift matches this operand order to `maxps` or `minps`.
        let (a, b) = if is_max { (y, x) } else { (x, y) };
        let first = self.lane_compare(CmpOp::Lt, a, b);
        self.lane_select(first, x, y)
    }

    /// Combines two partial results of a reduction.
    pub(super) fn combine(&mut self, kind: ReduceKind, x: Lane, y: Lane) -> Lane {
        self.lane_arithmetic(kind.combination().unwrap_or(BinaryOp::Max), x, y)
    }
}

fn int_condition(op: CmpOp) -> IntCC {
    match op {
        CmpOp::Eq => IntCC::Equal,
        CmpOp::Ne => IntCC::NotEqual,
        CmpOp::Lt => IntCC::SignedLessThan,
        CmpOp::Le => IntCC::SignedLessThanOrEqual,
        CmpOp::Gt => IntCC::SignedGreaterThan,
        CmpOp::Ge => IntCC::SignedGreaterThanOrEqual,
    }
}
