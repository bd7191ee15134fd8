//! Element operations on vectors of any number of lanes.
//!
//! In: operations of the tile IR and operands in lanes. Out: results in lanes. A scalar is a vector
//! of one lane, so all widths share the code, and the bits of a result do not depend on the
//! element's position in a row. A boolean is one bit.

use inkwell::types::VectorType;
use inkwell::values::{BasicValueEnum, IntValue, VectorValue};
use inkwell::{FloatPredicate, IntPredicate};

use super::emit::{Emit, EmitResult};
use crate::scalar::{BinaryOp, CmpOp, ReduceKind, Scalar, UnaryOp};
use crate::shape::Elem;

/// A vector of `f32`, `i32`, `i64` or `bool`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lane<'c> {
    pub(super) value: VectorValue<'c>,
    /// Element type.
    pub(super) elem: Elem,
}

/// The predicate of a signed comparison.
fn signed(op: CmpOp) -> IntPredicate {
    match op {
        CmpOp::Eq => IntPredicate::EQ,
        CmpOp::Ne => IntPredicate::NE,
        CmpOp::Lt => IntPredicate::SLT,
        CmpOp::Le => IntPredicate::SLE,
        CmpOp::Gt => IntPredicate::SGT,
        CmpOp::Ge => IntPredicate::SGE,
    }
}

/// The predicate of an unsigned comparison.
fn unsigned(op: CmpOp) -> IntPredicate {
    match op {
        CmpOp::Eq => IntPredicate::EQ,
        CmpOp::Ne => IntPredicate::NE,
        CmpOp::Lt => IntPredicate::ULT,
        CmpOp::Le => IntPredicate::ULE,
        CmpOp::Gt => IntPredicate::UGT,
        CmpOp::Ge => IntPredicate::UGE,
    }
}

impl Lane<'_> {
    pub(super) fn count(&self) -> u32 {
        self.value.get_type().get_size()
    }
}

impl<'c> Emit<'_, 'c> {
    /// The LLVM type of `n` lanes.
    pub(super) fn lanes_of(&self, elem: Elem, n: u32) -> VectorType<'c> {
        match elem {
            Elem::F32 | Elem::BF16 | Elem::F16 => self.cx.f32_type().vec_type(n),
            Elem::I32 | Elem::I8 => self.cx.i32_type().vec_type(n),
            Elem::I64 => self.cx.i64_type().vec_type(n),
            Elem::Bool => self.cx.bool_type().vec_type(n),
        }
    }

    /// Broadcasts a float constant.
    pub(super) fn floats(&self, x: f32, n: u32) -> VectorValue<'c> {
        let x = self.cx.f32_type().const_float(f64::from(x));
        VectorType::const_vector(&vec![x; n as usize])
    }

    /// Broadcasts an integer constant.
    pub(super) fn ints(&self, x: i32, n: u32) -> VectorValue<'c> {
        let x = self.cx.i32_type().const_int(u64::from(x.cast_unsigned()), false);
        VectorType::const_vector(&vec![x; n as usize])
    }

    /// Bitcasts lanes to 32-bit integers.
    pub(super) fn as_ints(&self, x: VectorValue<'c>) -> EmitResult<VectorValue<'c>> {
        let ty = self.lanes_of(Elem::I32, x.get_type().get_size());
        Ok(self.b.build_bit_cast(x, ty, "")?.into_vector_value())
    }

    /// Bitcasts lanes to floats.
    pub(super) fn as_floats(&self, x: VectorValue<'c>) -> EmitResult<VectorValue<'c>> {
        let ty = self.lanes_of(Elem::F32, x.get_type().get_size());
        Ok(self.b.build_bit_cast(x, ty, "")?.into_vector_value())
    }

    /// Shuffles the lanes of `x` and `y`, which are numbered consecutively.
    pub(super) fn shuffle(&self, x: VectorValue<'c>, y: VectorValue<'c>, lanes: &[u32]) -> EmitResult<VectorValue<'c>> {
        let i32s = self.cx.i32_type();
        let lanes: Vec<IntValue<'c>> = lanes.iter().map(|i| i32s.const_int(u64::from(*i), false)).collect();
        Ok(self.b.build_shuffle_vector(x, y, VectorType::const_vector(&lanes), "")?)
    }

    /// Lanes of `a` where the condition holds, else of `b`.
    pub(super) fn choose(
        &self,
        condition: VectorValue<'c>,
        a: VectorValue<'c>,
        b: VectorValue<'c>,
    ) -> EmitResult<VectorValue<'c>> {
        Ok(self.b.build_select(condition, a, b, "")?.into_vector_value())
    }

    pub(super) fn constant(&self, s: Scalar, elem: Elem, n: u32) -> Lane<'c> {
        let fill = |x: IntValue<'c>| VectorType::const_vector(&vec![x; n as usize]);
        let value = match elem {
            Elem::F32 | Elem::BF16 | Elem::F16 => self.floats(s.as_f64() as f32, n),
            Elem::I32 | Elem::I8 => self.ints(s.as_i64() as i32, n),
            Elem::I64 => fill(self.int(s.as_i64())),
            Elem::Bool => fill(self.cx.bool_type().const_int(u64::from(s.as_f64() != 0.0), false)),
        };
        Lane { value, elem }
    }

    /// 0, 1, 2 and so on.
    pub(super) fn counting(&self, elem: Elem, n: u32) -> Lane<'c> {
        let ty = if elem == Elem::I64 { self.cx.i64_type() } else { self.cx.i32_type() };
        let xs: Vec<IntValue<'c>> = (0..n).map(|i| ty.const_int(u64::from(i), false)).collect();
        Lane { value: VectorType::const_vector(&xs), elem }
    }

    /// A single value as a vector of one lane.
    pub(super) fn one(&self, x: IntValue<'c>, elem: Elem) -> EmitResult<Lane<'c>> {
        let poison = x.get_type().vec_type(1).get_poison();
        Ok(Lane { value: self.b.build_insert_element(poison, x, self.int(0), "")?, elem })
    }

    /// The first lane.
    pub(super) fn first(&self, x: Lane<'c>) -> EmitResult<BasicValueEnum<'c>> {
        Ok(self.b.build_extract_element(x.value, self.int(0), "")?)
    }

    /// The first lane of integers or booleans.
    pub(super) fn first_int(&self, x: Lane<'c>) -> EmitResult<IntValue<'c>> {
        Ok(self.first(x)?.into_int_value())
    }

    /// Broadcasts a single element to `n` lanes.
    pub(super) fn spread(&self, x: Lane<'c>, n: u32) -> EmitResult<Lane<'c>> {
        if x.count() == n {
            return Ok(x);
        }
        Ok(Lane { value: self.shuffle(x.value, x.value, &vec![0; n as usize])?, ..x })
    }

    /// Broadcasts an index to `n` lanes.
    pub(super) fn spread_index(&self, x: IntValue<'c>, n: u32) -> EmitResult<VectorValue<'c>> {
        let one = self.one(x, Elem::I64)?;
        Ok(self.spread(one, n)?.value)
    }

    pub(super) fn lane_unary(&self, op: UnaryOp, x: Lane<'c>) -> EmitResult<Lane<'c>> {
        let number = |n: i64| self.constant(Scalar::Int(n), x.elem, x.count()).value;
        let value = match (x.elem, op) {
            (Elem::F32, _) => self.float_unary(op, x.value)?,
            (Elem::Bool, _) => self.b.build_not(x.value, "")?,
            (_, UnaryOp::Neg) => self.b.build_int_neg(x.value, "")?,
            (_, UnaryOp::Abs) => {
                let below = self.b.build_int_compare(IntPredicate::SLT, x.value, number(0), "")?;
                self.choose(below, self.b.build_int_neg(x.value, "")?, x.value)?
            }
            (_, _) => {
                let [low, high] = op.integer_range().ok_or_else(|| format!("{op} is not defined for integers"))?;
                let mut value = x.value;
                for (beyond, bound) in [(IntPredicate::SLT, low), (IntPredicate::SGT, high)] {
                    if let Some(bound) = bound.map(number) {
                        let is_beyond = self.b.build_int_compare(beyond, value, bound, "")?;
                        value = self.choose(is_beyond, bound, value)?;
                    }
                }
                value
            }
        };
        Ok(Lane { value, ..x })
    }

    /// An operation on two indices; division and remainder round down.
    pub(super) fn index_binary(&self, op: BinaryOp, a: IntValue<'c>, b: IntValue<'c>) -> EmitResult<IntValue<'c>> {
        match (op, b.get_sign_extended_constant()) {
            (BinaryOp::Add, _) => Ok(self.b.build_int_add(a, b, "")?),
            (BinaryOp::Sub, _) => Ok(self.b.build_int_sub(a, b, "")?),
            (BinaryOp::Mul, _) => Ok(self.b.build_int_mul(a, b, "")?),
            (BinaryOp::Min | BinaryOp::Max, _) => {
                let is_first = self.compare_ints(if op == BinaryOp::Min { CmpOp::Lt } else { CmpOp::Gt }, a, b)?;
                Ok(self.b.build_select(is_first, a, b, "")?.into_int_value())
            }
            (BinaryOp::Rem, Some(n)) if n > 0 && n & (n - 1) == 0 => Ok(self.b.build_and(a, self.int(n - 1), "")?),
            _ => self.first_int(self.lane_binary(op, self.one(a, Elem::I64)?, self.one(b, Elem::I64)?)?),
        }
    }

    pub(super) fn lane_binary(&self, op: BinaryOp, x: Lane<'c>, y: Lane<'c>) -> EmitResult<Lane<'c>> {
        let (b, v, w) = (&self.b, x.value, y.value);
        let better = |predicate| -> EmitResult<VectorValue<'c>> {
            let holds = b.build_int_compare(predicate, v, w, "")?;
            self.choose(holds, v, w)
        };
        let value = match (x.elem, op) {
            (Elem::F32, _) => self.float_binary(op, v, w)?,
            (Elem::Bool, BinaryOp::Or | BinaryOp::Max | BinaryOp::Add) => b.build_or(v, w, "")?,
            (Elem::Bool, _) => b.build_and(v, w, "")?,
            (_, BinaryOp::Add) => b.build_int_add(v, w, "")?,
            (_, BinaryOp::Sub) => b.build_int_sub(v, w, "")?,
            (_, BinaryOp::Mul) => b.build_int_mul(v, w, "")?,
            (_, BinaryOp::Max) => better(IntPredicate::SGT)?,
            (_, BinaryOp::Min) => better(IntPredicate::SLT)?,
            (_, BinaryOp::And | BinaryOp::BitAnd) => b.build_and(v, w, "")?,
            (_, BinaryOp::Or | BinaryOp::BitOr) => b.build_or(v, w, "")?,
            (_, BinaryOp::BitXor) => b.build_xor(v, w, "")?,
            (_, BinaryOp::ShiftLeft | BinaryOp::ShiftRight) => {
                // A shift by the bit width or more is poison in LLVM.
                let bits = if x.elem == Elem::I64 { 64 } else { 32 };
                let number = |k: i64| self.constant(Scalar::Int(k), x.elem, x.count()).value;
                let is_far = b.build_int_compare(IntPredicate::UGT, w, number(bits - 1), "")?;
                let near = self.choose(is_far, number(bits - 1), w)?;
                if op == BinaryOp::ShiftLeft {
                    self.choose(is_far, number(0), b.build_left_shift(v, near, "")?)?
                } else {
                    b.build_right_shift(v, near, true, "")?
                }
            }
            (_, BinaryOp::Div) => self.divide(x, y)?.0,
            (_, BinaryOp::Rem) => self.divide(x, y)?.1,
            (_, BinaryOp::Pow) => self.power(x, y)?,
        };
        Ok(Lane { value, ..x })
    }

    /// `x * y + z` of floats, rounded once if the instruction set has FMA.
    pub(super) fn lane_mul_add(&self, x: Lane<'c>, y: Lane<'c>, z: Lane<'c>) -> EmitResult<Lane<'c>> {
        Ok(Lane { value: self.mul_add(x.value, y.value, z.value)?, ..x })
    }

    /// Floor division of integers: quotient and remainder; both are 0 for a zero divisor.
    fn divide(&self, x: Lane<'c>, y: Lane<'c>) -> EmitResult<(VectorValue<'c>, VectorValue<'c>)> {
        let (b, n) = (&self.b, x.count());
        let number = |k: i64| self.constant(Scalar::Int(k), x.elem, n).value;
        let (zero, one) = (number(0), number(1));
        let is_zero = b.build_int_compare(IntPredicate::EQ, y.value, zero, "")?;
        // A divisor of -1 is a negation, which wraps where the instruction would trap.
        let is_minus = b.build_int_compare(IntPredicate::EQ, y.value, number(-1), "")?;
        let is_special = b.build_or(is_zero, is_minus, "")?;
        let safe = self.choose(is_special, one, y.value)?;
        let q = b.build_int_signed_div(x.value, safe, "")?;
        let r = b.build_int_sub(x.value, b.build_int_mul(q, safe, "")?, "")?;
        let inexact = b.build_int_compare(IntPredicate::NE, r, zero, "")?;
        let differ = b.build_int_compare(IntPredicate::SLT, b.build_xor(r, safe, "")?, zero, "")?;
        let down = b.build_and(inexact, differ, "")?;
        let q = self.choose(down, b.build_int_sub(q, one, "")?, q)?;
        let r = self.choose(down, b.build_int_add(r, safe, "")?, r)?;
        let q = self.choose(is_minus, b.build_int_neg(x.value, "")?, q)?;
        Ok((self.choose(is_zero, zero, q)?, self.choose(is_special, zero, r)?))
    }

    /// `x^y` of integers by repeated squaring, wrapping; a negative exponent is treated as 0. The
    /// loop ends when the remaining exponents of all lanes are 0.
    fn power(&self, x: Lane<'c>, y: Lane<'c>) -> EmitResult<VectorValue<'c>> {
        let (b, ty) = (&self.b, x.value.get_type());
        let number = |k: i64| self.constant(Scalar::Int(k), x.elem, x.count()).value;
        let (zero, one) = (number(0), number(1));
        let negative = b.build_int_compare(IntPredicate::SLT, y.value, zero, "")?;
        let exponent = self.choose(negative, zero, y.value)?;
        let (before, head, body, done) = (self.here()?, self.block(), self.block(), self.block());
        b.build_unconditional_branch(head)?;
        b.position_at_end(head);
        let (result, base, rest) = (b.build_phi(ty, "")?, b.build_phi(ty, "")?, b.build_phi(ty, "")?);
        let (p, q, e) = (result.as_basic_value(), base.as_basic_value(), rest.as_basic_value());
        let (p, q, e) = (p.into_vector_value(), q.into_vector_value(), e.into_vector_value());
        let mut any = self.cx.bool_type().const_zero();
        for i in 0..x.count() {
            let element = b.build_extract_element(e, self.int(i64::from(i)), "")?.into_int_value();
            let left = b.build_int_compare(IntPredicate::NE, element, element.get_type().const_zero(), "")?;
            any = b.build_or(any, left, "")?;
        }
        b.build_conditional_branch(any, body, done)?;
        b.position_at_end(body);
        let odd = b.build_int_compare(IntPredicate::NE, b.build_and(e, one, "")?, zero, "")?;
        let next = self.choose(odd, b.build_int_mul(p, q, "")?, p)?;
        let square = b.build_int_mul(q, q, "")?;
        let half = b.build_right_shift(e, one, false, "")?;
        b.build_unconditional_branch(head)?;
        result.add_incoming(&[(&one, before), (&next, body)]);
        base.add_incoming(&[(&x.value, before), (&square, body)]);
        rest.add_incoming(&[(&exponent, before), (&half, body)]);
        b.position_at_end(done);
        Ok(p)
    }

    /// A comparison of two integers.
    pub(super) fn compare_ints(&self, op: CmpOp, x: IntValue<'c>, y: IntValue<'c>) -> EmitResult<IntValue<'c>> {
        Ok(self.b.build_int_compare(signed(op), x, y, "")?)
    }

    pub(super) fn lane_compare(&self, op: CmpOp, x: Lane<'c>, y: Lane<'c>) -> EmitResult<Lane<'c>> {
        let value = if x.elem == Elem::F32 {
            let predicate = match op {
                CmpOp::Eq => FloatPredicate::OEQ,
                CmpOp::Ne => FloatPredicate::UNE,
                CmpOp::Lt => FloatPredicate::OLT,
                CmpOp::Le => FloatPredicate::OLE,
                CmpOp::Gt => FloatPredicate::OGT,
                CmpOp::Ge => FloatPredicate::OGE,
            };
            self.b.build_float_compare(predicate, x.value, y.value, "")?
        } else {
            // Booleans compare as unsigned.
            let predicate = if x.elem == Elem::Bool { unsigned(op) } else { signed(op) };
            self.b.build_int_compare(predicate, x.value, y.value, "")?
        };
        Ok(Lane { value, elem: Elem::Bool })
    }

    /// `condition ? x : y`.
    pub(super) fn lane_select(&self, condition: Lane<'c>, x: Lane<'c>, y: Lane<'c>) -> EmitResult<Lane<'c>> {
        Ok(Lane { value: self.choose(condition.value, x.value, y.value)?, ..x })
    }

    /// Conversion between element types: float to integer truncates and saturates (NaN gives 0).
    pub(super) fn lane_cast(&self, x: Lane<'c>, to: Elem) -> EmitResult<Lane<'c>> {
        let (b, ty) = (&self.b, self.lanes_of(to, x.count()));
        let zero = self.constant(Scalar::Int(0), x.elem, x.count()).value;
        let value = match (x.elem, to) {
            (from, to) if from == to => x.value,
            (Elem::F32, Elem::Bool) => b.build_float_compare(FloatPredicate::UNE, x.value, zero, "")?,
            (Elem::F32, _) => {
                let types = [ty.into(), x.value.get_type().into()];
                self.vector_intrinsic("llvm.fptosi.sat", &types, &[x.value.into()])?
            }
            (Elem::Bool, Elem::F32) => b.build_unsigned_int_to_float(x.value, ty, "")?,
            (_, Elem::F32) => b.build_signed_int_to_float(x.value, ty, "")?,
            (Elem::Bool, _) => b.build_int_z_extend(x.value, ty, "")?,
            (_, Elem::Bool) => b.build_int_compare(IntPredicate::NE, x.value, zero, "")?,
            (_, Elem::I64) => b.build_int_s_extend(x.value, ty, "")?,
            (Elem::I64, _) => b.build_int_truncate(x.value, ty, "")?,
            // Other types are converted when loaded and stored.
            (_, _) => x.value,
        };
        Ok(Lane { value, elem: to })
    }

    /// Booleans to `i32`, -1 for true.
    pub(super) fn mask_bits(&self, x: Lane<'c>) -> EmitResult<Lane<'c>> {
        let ty = self.lanes_of(Elem::I32, x.count());
        Ok(Lane { value: self.b.build_int_s_extend(x.value, ty, "")?, elem: Elem::I32 })
    }

    /// `i32` to booleans: is the sign bit set?
    pub(super) fn mask_of_bits(&self, x: Lane<'c>) -> EmitResult<Lane<'c>> {
        let zero = x.value.get_type().const_zero();
        Ok(Lane { value: self.b.build_int_compare(IntPredicate::SLT, x.value, zero, "")?, elem: Elem::Bool })
    }

    /// Reduces all lanes to one: repeatedly combines the upper half with the lower half.
    pub(super) fn fold(&self, kind: ReduceKind, mut x: Lane<'c>) -> EmitResult<Lane<'c>> {
        let op = kind.combination().ok_or("this reduction is not defined on lanes")?;
        while x.count() > 1 {
            let half = x.count() / 2;
            let low: Vec<u32> = (0..half).collect();
            let high: Vec<u32> = (half..2 * half).collect();
            let part = |lanes: &[u32]| {
                Ok::<_, super::emit::Error>(Lane { value: self.shuffle(x.value, x.value, lanes)?, ..x })
            };
            x = self.lane_binary(op, part(&low)?, part(&high)?)?;
        }
        Ok(x)
    }
}
