//! Elementary functions on a vector of `f32`.
//!
//! In: a register of a [`Machine`]. Out: a register. Each function keeps to the error bound that stands in
//! `codegen::cpu::math`. `tanh` and `erf` have the polynomials from there, evaluated with FMA; with FMA one term less is
//! enough for `exp`. Both GELUs are of one piece: `max(x, 0) - |x| 2^P(|x|)`, where `2^P(a)` is the function's factor at `-a`,
//! so that nothing cancels and nothing is divided. All are fitted by Lawson's iteration. `log`, `sin`, `cos` have no leaf.

use super::machine::{Machine, Op, Operand, Reg};
use crate::codegen::cpu::math::{ERF, ERFC, EXP2, TANH};
use crate::scalar::UnaryOp;

/// `e^r = 1 + r + r^2 P(r)` on `|r| <= ln 2 / 2`, lowest coefficient first.
const EXP: [f32; 5] = [0.499_999_94, 0.166_665_21, 0.041_668_39, 0.008_368_726, 0.001_381_459_2];
/// `2^r = 1 + r P(r)` on `0 <= r <= 1`, nearer where more is rounded, towards 1; with the rounding 1.9 ulp.
const EXP2_UPWARDS: [f32; 5] = [0.693_154, 0.240_138_93, 0.055_877_01, 0.008_925_202, 0.001_904_834_9];
/// `log2 Phi(-a)`, of the normal distribution, on `0 <= a <= 8`.
const GELU: [f32; 9] = [
    -0.999_999_8,
    -1.151_115,
    -0.459_128_44,
    -0.052_736_297,
    0.007_409_071_5,
    -0.000_400_732_62,
    -7.725_230_5e-5,
    1.650_289_2e-5,
    -9.287_675e-7,
];
/// `log2 sigmoid(-2 sqrt(2 / pi) (a + 0.044715 a^3))` on `0 <= a <= 6`.
const GELU_TANH: [f32; 11] = [
    -1.000_000_1,
    -1.151_095_6,
    -0.459_299_92,
    -0.051_246_09,
    0.007_456_106,
    -0.000_241_891_95,
    0.000_216_407_18,
    -0.000_632_110_34,
    0.000_229_971_3,
    -3.294_543_8e-5,
    1.725_760_6e-6,
];
/// How to round: to the next whole number down, without the exception for inexact results.
const DOWNWARDS: i32 = 9;
/// Adding this rounds an `f32` of magnitude below 2^22 to a whole number.
const ROUND: f32 = 12_582_912.0;

impl Machine {
    /// Horner's scheme, lowest coefficient first.
    fn polynomial(&mut self, x: Reg, coefficients: &[f32]) -> Reg {
        let mut rest = coefficients.iter().rev();
        let mut sum = self.float(rest.next().copied().unwrap_or(0.0));
        for c in rest {
            let c = self.float(*c);
            sum = self.fma(sum, x, c);
        }
        sum
    }

    /// A comparison, then a selection.
    fn where_less(&mut self, x: Reg, y: Reg, yes: Reg, no: Reg) -> Reg {
        let less = self.test(0x11, x, y);
        self.choose(less, yes, no)
    }

    /// The magnitude of `a` with the sign of `x`.
    fn with_sign(&mut self, a: Reg, x: Reg) -> Reg {
        let sign = self.float(-0.0);
        let s = self.two(Op::And, x, sign);
        let m = self.two(Op::AndNot, sign, a);
        self.two(Op::Or, m, s)
    }

    /// `e^x`: `x = n ln 2 + r` with `ln 2` in two parts (Cody & Waite 1980, chapter 6). Overflow gives inf, underflow is
    /// gradual.
    fn exp(&mut self, x: Reg) -> Reg {
        // The bound comes first, so that a NaN in `x` stays.
        let (high, low) = (self.float(89.0), self.float(-104.5));
        let x = self.two(Op::Min, high, x);
        let x = self.two(Op::Max, low, x);
        self.exp_bounded(x)
    }

    /// `e^x` of what is at least -104.5 and at most 89, or NaN.
    fn exp_bounded(&mut self, x: Reg) -> Reg {
        let (per_ln2, round) = (self.float(std::f32::consts::LOG2_E), self.float(ROUND));
        let shifted = self.fma(x, per_ln2, round);
        let n = self.two(Op::Sub, shifted, round);
        let (hi, lo) = (self.float(0.693_359_4), self.float(-2.121_944_4e-4));
        let r = self.fnma(n, hi, x);
        let r = self.fnma(n, lo, r);
        let one = self.float(1.0);
        let p = self.polynomial(r, &EXP);
        let p = self.fma(p, r, one);
        let p = self.fma(p, r, one);
        self.scaled(p, n)
    }

    /// `p 2^n` for a whole number `n`.
    fn scaled(&mut self, p: Reg, n: Reg) -> Reg {
        if self.wide() {
            return self.two(Op::Scale, p, n);
        }
        // In two steps: the first changes the exponent of `p`, which is near 1, the second may underflow.
        let n = self.vector(Op::Nearest, vec![n.into()]);
        let half = self.shift(Op::ShiftSigned, n, 1);
        let rest = self.two(Op::SubI, n, half);
        let half = self.shift(Op::ShiftLeft, half, 23);
        let p = self.two(Op::AddI, p, half);
        let rest = self.shift(Op::ShiftLeft, rest, 23);
        let one = self.float(1.0);
        let scale = self.two(Op::AddI, rest, one);
        self.two(Op::Mul, p, scale)
    }

    /// `2^x`. At AVX-512 two instructions part `x` at the next whole number down: one gives the rest above it, the other
    /// scales by two to it. Both know of infinities, overflow and underflow.
    fn exp2(&mut self, x: Reg) -> Reg {
        let one = self.float(1.0);
        if self.wide() {
            let r = self.vector(Op::Reduce, vec![x.into(), Operand::Imm(DOWNWARDS)]);
            let p = self.polynomial(r, &EXP2_UPWARDS);
            let p = self.fma(p, r, one);
            return self.two(Op::Scale, p, x);
        }
        let (high, low, round) = (self.float(129.0), self.float(-151.0), self.float(ROUND));
        let x = self.two(Op::Min, high, x);
        let x = self.two(Op::Max, low, x);
        let shifted = self.two(Op::Add, x, round);
        let n = self.two(Op::Sub, shifted, round);
        let r = self.two(Op::Sub, x, n);
        let p = self.polynomial(r, &EXP2);
        let p = self.fma(p, r, one);
        self.scaled(p, n)
    }

    fn tanh(&mut self, x: Reg) -> Reg {
        let z = self.two(Op::Mul, x, x);
        let p = self.polynomial(z, &TANH);
        let p = self.two(Op::Mul, p, z);
        let near = self.fma(p, x, x);
        let a = self.magnitude(x);
        let two_a = self.two(Op::Add, a, a);
        let e = self.exp(two_a);
        let (one, two) = (self.float(1.0), self.float(2.0));
        let d = self.two(Op::Add, e, one);
        let q = self.two(Op::Div, two, d);
        let far = self.two(Op::Sub, one, q);
        let far = self.with_sign(far, x);
        let limit = self.float(0.625);
        self.where_less(a, limit, near, far)
    }

    /// `erf` near 0, `erfc |x|` beyond, `|x|`, and 1.
    fn erf_parts(&mut self, x: Reg) -> (Reg, Reg, Reg, Reg) {
        let z = self.two(Op::Mul, x, x);
        let p = self.polynomial(z, &ERF);
        let near = self.two(Op::Mul, p, x);
        let a = self.magnitude(x);
        let four = self.float(4.0);
        let clamped = self.two(Op::Min, four, a);
        let q = self.polynomial(clamped, &ERFC);
        let sign = self.float(-0.0);
        let q = self.two(Op::Xor, q, sign);
        let e = self.exp_bounded(q);
        let zero = self.float(0.0);
        let erfc = self.where_less(four, a, zero, e);
        let one = self.float(1.0);
        (near, erfc, a, one)
    }

    fn erf(&mut self, x: Reg) -> Reg {
        let (near, erfc, a, one) = self.erf_parts(x);
        let far = self.two(Op::Sub, one, erfc);
        let far = self.with_sign(far, x);
        self.where_less(a, one, near, far)
    }

    fn sigmoid(&mut self, x: Reg) -> Reg {
        let sign = self.float(-0.0);
        let n = self.two(Op::Or, x, sign);
        let e = self.exp(n);
        let (zero, one) = (self.float(0.0), self.float(1.0));
        let d = self.two(Op::Add, e, one);
        let top = self.where_less(x, zero, e, one);
        self.two(Op::Div, top, d)
    }

    fn silu(&mut self, x: Reg) -> Reg {
        let s = self.sigmoid(x);
        let y = self.two(Op::Mul, x, s);
        self.zero_at_minus_infinity(x, y)
    }

    /// -0 where `x` is -inf, else `y`.
    fn zero_at_minus_infinity(&mut self, x: Reg, y: Reg) -> Reg {
        let (bottom, zero) = (self.float(f32::NEG_INFINITY), self.float(-0.0));
        let is = self.test(0, x, bottom);
        self.choose(is, zero, y)
    }

    /// `max(x, 0) - a 2^P(a)`, `a` being `|x|` up to a limit; below its negative, where so little is left that it does not
    /// count, -0, as of -inf.
    fn gelu(&mut self, x: Reg, coefficients: &[f32], limit: f32) -> Reg {
        let a = self.magnitude(x);
        let (most, least) = (self.float(limit), self.float(-limit));
        let a = self.two(Op::Min, most, a);
        let p = self.polynomial(a, coefficients);
        let round = self.float(ROUND);
        let shifted = self.two(Op::Add, p, round);
        let n = self.two(Op::Sub, shifted, round);
        let r = self.two(Op::Sub, p, n);
        let one = self.float(1.0);
        let q = self.polynomial(r, &EXP2);
        let q = self.fma(q, r, one);
        let q = if self.wide() {
            self.two(Op::Scale, q, n)
        } else {
            // Nothing underflows here: the exponent is changed in place.
            let n = self.shift(Op::ShiftLeft, shifted, 23);
            self.two(Op::AddI, q, n)
        };
        let zero = self.float(0.0);
        let positive = self.two(Op::Max, zero, x);
        let y = self.fnma(a, q, positive);
        let nothing = self.float(-0.0);
        self.where_less(x, least, nothing, y)
    }

    fn floor(&mut self, x: Reg) -> Reg {
        self.vector(Op::Round, vec![x.into(), Operand::Imm(DOWNWARDS)])
    }

    /// A function of floats; `None` for those that have no leaf.
    pub(super) fn function(&mut self, op: UnaryOp, x: Reg) -> Option<Reg> {
        Some(match op {
            UnaryOp::Exp => self.exp(x),
            UnaryOp::Exp2 => self.exp2(x),
            UnaryOp::Rsqrt => {
                let root = self.vector(Op::Sqrt, vec![x.into()]);
                let one = self.float(1.0);
                self.two(Op::Div, one, root)
            }
            UnaryOp::Tanh => self.tanh(x),
            UnaryOp::Erf => self.erf(x),
            UnaryOp::Sigmoid => self.sigmoid(x),
            UnaryOp::Gelu => self.gelu(x, &GELU, 8.0),
            UnaryOp::GeluTanh => self.gelu(x, &GELU_TANH, 6.0),
            UnaryOp::Silu => self.silu(x),
            UnaryOp::Floor => self.floor(x),
            UnaryOp::Neg
            | UnaryOp::Abs
            | UnaryOp::Sqrt
            | UnaryOp::Relu
            | UnaryOp::Log
            | UnaryOp::Sin
            | UnaryOp::Cos
            | UnaryOp::Not => return None,
        })
    }
}
