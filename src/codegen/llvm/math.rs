//! Elementary functions on vectors of `f32`, of any number of lanes.
//!
//! In: vectors. Out: vectors. The functions, their ranges and coefficients are those of `codegen::cpu::math`, where their
//! errors are stated; Horner's scheme and the reduction of the argument of `exp` use fused multiply-adds at the levels that
//! have them. `log`, `sin`, `cos` and `pow` are LLVM's intrinsics, and the remainder its `frem`, which become calls of libm
//! lane by lane.

use inkwell::FloatPredicate;
use inkwell::values::VectorValue;

use super::emit::{Emit, Made};
use crate::codegen::cpu::math::{ERF, ERFC, EXP, EXP2, ROUND, TANH};
use crate::scalar::{BinaryOp, UnaryOp};
use crate::tile::CpuLevel;

impl<'c> Emit<'_, 'c> {
    fn plus(&self, a: VectorValue<'c>, b: VectorValue<'c>) -> Made<VectorValue<'c>> {
        Ok(self.b.build_float_add(a, b, "")?)
    }

    fn minus(&self, a: VectorValue<'c>, b: VectorValue<'c>) -> Made<VectorValue<'c>> {
        Ok(self.b.build_float_sub(a, b, "")?)
    }

    fn times(&self, a: VectorValue<'c>, b: VectorValue<'c>) -> Made<VectorValue<'c>> {
        Ok(self.b.build_float_mul(a, b, "")?)
    }

    fn over(&self, a: VectorValue<'c>, b: VectorValue<'c>) -> Made<VectorValue<'c>> {
        Ok(self.b.build_float_div(a, b, "")?)
    }

    fn scale(&self, a: VectorValue<'c>, by: f32) -> Made<VectorValue<'c>> {
        self.times(a, self.floats(by, a.get_type().get_size()))
    }

    /// `a * b + c`, rounded once at the levels that have the instruction.
    pub(super) fn mul_add(&self, a: VectorValue<'c>, b: VectorValue<'c>, c: VectorValue<'c>) -> Made<VectorValue<'c>> {
        match self.level {
            CpuLevel::Portable => self.plus(self.times(a, b)?, c),
            _ => self.floats_intrinsic("llvm.fma", &[a, b, c]),
        }
    }

    fn floats_intrinsic(&self, name: &str, args: &[VectorValue<'c>]) -> Made<VectorValue<'c>> {
        let ty = args.first().ok_or("a function of nothing")?.get_type();
        let args: Vec<_> = args.iter().map(|x| (*x).into()).collect();
        self.vector_intrinsic(name, &[ty.into()], &args)
    }

    /// `a` where `x CC y`, else `b`.
    fn where_is(
        &self,
        (predicate, x, y): (FloatPredicate, VectorValue<'c>, VectorValue<'c>),
        a: VectorValue<'c>,
        b: VectorValue<'c>,
    ) -> Made<VectorValue<'c>> {
        let holds = self.b.build_float_compare(predicate, x, y, "")?;
        self.choose(holds, a, b)
    }

    /// `|x|`
    pub(super) fn absolute(&self, x: VectorValue<'c>) -> Made<VectorValue<'c>> {
        self.floats_intrinsic("llvm.fabs", &[x])
    }

    /// The magnitude of `a` with the sign of `x`.
    pub(super) fn with_sign(&self, a: VectorValue<'c>, x: VectorValue<'c>) -> Made<VectorValue<'c>> {
        self.floats_intrinsic("llvm.copysign", &[a, x])
    }

    /// Horner's scheme, lowest coefficient first.
    fn polynomial(&self, x: VectorValue<'c>, coefficients: &[f32]) -> Made<VectorValue<'c>> {
        let n = x.get_type().get_size();
        let mut rest = coefficients.iter().rev();
        let mut sum = self.floats(rest.next().copied().unwrap_or(0.0), n);
        for c in rest {
            sum = self.mul_add(sum, x, self.floats(*c, n))?;
        }
        Ok(sum)
    }

    /// `2^k` for whole numbers between -126 and 127.
    fn power_of_two(&self, k: VectorValue<'c>) -> Made<VectorValue<'c>> {
        let n = k.get_type().get_size();
        let e = self.b.build_int_add(k, self.ints(127, n), "")?;
        self.as_floats(self.b.build_left_shift(e, self.ints(23, n), "")?)
    }

    /// `e^x`.
    fn exp(&self, x: VectorValue<'c>) -> Made<VectorValue<'c>> {
        let n = x.get_type().get_size();
        let (high, low) = (self.floats(89.0, n), self.floats(-104.5, n));
        // NaN fails both comparisons and stays.
        let x = self.where_is((FloatPredicate::OGT, x, high), high, x)?;
        let x = self.where_is((FloatPredicate::OLT, x, low), low, x)?;
        let round = self.floats(ROUND, n);
        let shifted = self.plus(self.scale(x, std::f32::consts::LOG2_E)?, round)?;
        let whole = self.minus(shifted, round)?;
        let r = self.mul_add(whole, self.floats(-0.693_359_4, n), x)?;
        let r = self.mul_add(whole, self.floats(2.121_944_4e-4, n), r)?;
        let p = self.polynomial(r, &EXP)?;
        let p = self.mul_add(p, self.times(r, r)?, r)?;
        let p = self.plus(p, self.floats(1.0, n))?;
        self.scaled(p, shifted)
    }

    /// `p 2^k` in two steps, `k` being in the low bits of a number that [`ROUND`] was added to.
    fn scaled(&self, p: VectorValue<'c>, shifted: VectorValue<'c>) -> Made<VectorValue<'c>> {
        let (b, n) = (&self.b, p.get_type().get_size());
        let k = b.build_int_sub(self.as_ints(shifted)?, self.ints(ROUND.to_bits().cast_signed(), n), "")?;
        let half = b.build_right_shift(k, self.ints(1, n), true, "")?;
        let rest = b.build_int_sub(k, half, "")?;
        let p = self.times(p, self.power_of_two(half)?)?;
        self.times(p, self.power_of_two(rest)?)
    }

    /// `2^x`.
    fn exp2(&self, x: VectorValue<'c>) -> Made<VectorValue<'c>> {
        let n = x.get_type().get_size();
        let (high, low) = (self.floats(129.0, n), self.floats(-151.0, n));
        let x = self.where_is((FloatPredicate::OGT, x, high), high, x)?;
        let x = self.where_is((FloatPredicate::OLT, x, low), low, x)?;
        let round = self.floats(ROUND, n);
        let shifted = self.plus(x, round)?;
        let r = self.minus(x, self.minus(shifted, round)?)?;
        let p = self.mul_add(self.polynomial(r, &EXP2)?, r, self.floats(1.0, n))?;
        self.scaled(p, shifted)
    }

    fn tanh(&self, x: VectorValue<'c>) -> Made<VectorValue<'c>> {
        let n = x.get_type().get_size();
        let z = self.times(x, x)?;
        let p = self.times(self.times(self.polynomial(z, &TANH)?, z)?, x)?;
        let near = self.plus(p, x)?;
        let a = self.absolute(x)?;
        let d = self.plus(self.exp(self.plus(a, a)?)?, self.floats(1.0, n))?;
        let far = self.minus(self.floats(1.0, n), self.over(self.floats(2.0, n), d)?)?;
        let far = self.with_sign(far, x)?;
        self.where_is((FloatPredicate::OLT, a, self.floats(0.625, n)), near, far)
    }

    /// `erf` near 0, `erfc |x|` beyond, and `|x|`.
    fn erf_parts(&self, x: VectorValue<'c>) -> Made<[VectorValue<'c>; 3]> {
        let n = x.get_type().get_size();
        let near = self.times(self.polynomial(self.times(x, x)?, &ERF)?, x)?;
        let (a, four) = (self.absolute(x)?, self.floats(4.0, n));
        let clamped = self.where_is((FloatPredicate::OGT, a, four), four, a)?;
        let q = self.polynomial(clamped, &ERFC)?;
        let e = self.exp(self.b.build_float_neg(q, "")?)?;
        let erfc = self.where_is((FloatPredicate::OGT, a, four), self.floats(0.0, n), e)?;
        Ok([near, erfc, a])
    }

    fn erf(&self, x: VectorValue<'c>) -> Made<VectorValue<'c>> {
        let one = self.floats(1.0, x.get_type().get_size());
        let [near, erfc, a] = self.erf_parts(x)?;
        let far = self.with_sign(self.minus(one, erfc)?, x)?;
        self.where_is((FloatPredicate::OLT, a, one), near, far)
    }

    fn sigmoid(&self, x: VectorValue<'c>) -> Made<VectorValue<'c>> {
        let n = x.get_type().get_size();
        let (zero, one) = (self.floats(0.0, n), self.floats(1.0, n));
        let e = self.exp(self.b.build_float_neg(self.absolute(x)?, "")?)?;
        let top = self.where_is((FloatPredicate::OLT, x, zero), e, one)?;
        self.over(top, self.plus(e, one)?)
    }

    /// -0 where `x` is -inf, else `y`.
    fn zero_at_minus_infinity(&self, x: VectorValue<'c>, y: VectorValue<'c>) -> Made<VectorValue<'c>> {
        let n = x.get_type().get_size();
        self.where_is((FloatPredicate::OEQ, x, self.floats(f32::NEG_INFINITY, n)), self.floats(-0.0, n), y)
    }

    fn gelu(&self, x: VectorValue<'c>) -> Made<VectorValue<'c>> {
        let n = x.get_type().get_size();
        let one = self.floats(1.0, n);
        let [near, erfc, a] = self.erf_parts(self.scale(x, std::f32::consts::FRAC_1_SQRT_2)?)?;
        let near = self.plus(near, one)?;
        let positive = self.minus(self.floats(2.0, n), erfc)?;
        let far = self.where_is((FloatPredicate::OLT, x, self.floats(0.0, n)), erfc, positive)?;
        let sum = self.where_is((FloatPredicate::OLT, a, one), near, far)?;
        let y = self.times(self.scale(x, 0.5)?, sum)?;
        self.zero_at_minus_infinity(x, y)
    }

    fn gelu_tanh(&self, x: VectorValue<'c>) -> Made<VectorValue<'c>> {
        let n = x.get_type().get_size();
        let cubic = self.plus(self.scale(self.times(x, x)?, 0.044_715)?, self.floats(1.0, n))?;
        // 2 sqrt(2 / pi)
        let doubled = self.scale(self.times(cubic, x)?, 1.595_769)?;
        let y = self.times(x, self.sigmoid(doubled)?)?;
        self.zero_at_minus_infinity(x, y)
    }

    /// Any unary operation on floats.
    pub(super) fn float_unary(&self, op: UnaryOp, x: VectorValue<'c>) -> Made<VectorValue<'c>> {
        let n = x.get_type().get_size();
        let (zero, one) = (self.floats(0.0, n), self.floats(1.0, n));
        match op {
            UnaryOp::Neg => Ok(self.b.build_float_neg(x, "")?),
            UnaryOp::Abs => self.absolute(x),
            UnaryOp::Exp => self.exp(x),
            UnaryOp::Exp2 => self.exp2(x),
            UnaryOp::Log => self.floats_intrinsic("llvm.log", &[x]),
            UnaryOp::Sqrt => self.floats_intrinsic("llvm.sqrt", &[x]),
            UnaryOp::Rsqrt => self.over(one, self.floats_intrinsic("llvm.sqrt", &[x])?),
            UnaryOp::Sin => self.floats_intrinsic("llvm.sin", &[x]),
            UnaryOp::Cos => self.floats_intrinsic("llvm.cos", &[x]),
            UnaryOp::Tanh => self.tanh(x),
            UnaryOp::Erf => self.erf(x),
            UnaryOp::Sigmoid => self.sigmoid(x),
            UnaryOp::Relu => self.where_is((FloatPredicate::OLT, x, zero), zero, x),
            UnaryOp::Gelu => self.gelu(x),
            UnaryOp::GeluTanh => self.gelu_tanh(x),
            UnaryOp::Silu => {
                let y = self.times(x, self.sigmoid(x)?)?;
                self.zero_at_minus_infinity(x, y)
            }
            UnaryOp::Floor => self.floats_intrinsic("llvm.floor", &[x]),
            UnaryOp::Not => self.where_is((FloatPredicate::OEQ, x, zero), one, zero),
        }
    }

    /// Any binary operation on floats.
    pub(super) fn float_binary(&self, op: BinaryOp, x: VectorValue<'c>, y: VectorValue<'c>) -> Made<VectorValue<'c>> {
        match op {
            BinaryOp::Add => self.plus(x, y),
            BinaryOp::Sub => self.minus(x, y),
            BinaryOp::Mul | BinaryOp::And => self.times(x, y),
            BinaryOp::Div => self.over(x, y),
            BinaryOp::Rem => {
                // As in `codegen::cpu::math`.
                let r = self.b.build_float_rem(x, y, "")?;
                let n = x.get_type().get_size();
                let (zero, minus_zero, more) = (self.floats(0.0, n), self.floats(-0.0, n), self.plus(r, y)?);
                let by_positive = self.where_is((FloatPredicate::OLT, r, zero), more, r)?;
                let by_negative = self.where_is((FloatPredicate::OGT, r, zero), more, r)?;
                let signed = self.where_is((FloatPredicate::OLT, y, zero), by_negative, by_positive)?;
                let nothing = self.where_is((FloatPredicate::OLT, y, zero), minus_zero, zero)?;
                self.where_is((FloatPredicate::OEQ, r, zero), nothing, signed)
            }
            BinaryOp::Pow => self.floats_intrinsic("llvm.pow", &[x, y]),
            // A comparison with NaN is false, which takes `y`; a NaN in `x` is put back.
            BinaryOp::Max | BinaryOp::Min | BinaryOp::Or => {
                let predicate = if op == BinaryOp::Min { FloatPredicate::OLT } else { FloatPredicate::OGT };
                let m = self.where_is((predicate, x, y), x, y)?;
                self.where_is((FloatPredicate::UNO, x, x), x, m)
            }
        }
    }
}
