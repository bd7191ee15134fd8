//! Running error analysis (Wilkinson 1963; Higham, "Accuracy and Stability of Numerical Algorithms", 2nd ed., 3.3).
//!
//! [`Bounded`] is the `f64` result of a computation with a bound on how far a result in the program's own precision may
//! be from it, whoever computes it: sums in any order, with or without fused multiply-add, functions off by a few units
//! in the last place, intermediates kept in `f32` where the program rounds them to less. Zero times NaN or infinity may
//! count or not. A comparison whose outcome such
//! errors can change is reported as uncertain; what depends on it has no bound.

use super::Real;
use crate::scalar::{BinaryOp, CmpOp, UnaryOp};
use crate::shape::Elem;

/// A value and a bound on the distance of any computed one; an infinite bound says that anything goes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bounded {
    /// The result in `f64`.
    pub value: f64,
    /// The bound.
    pub error: f64,
}

/// A sum with what its bound is made of.
#[derive(Clone, Copy, Debug)]
pub struct BoundedSum {
    value: f64,
    error: f64,
    /// Sum of the magnitudes.
    magnitude: f64,
}

/// Unit roundoff of `f32`, the accumulator of sums and products.
const U32: f64 = 1.0 / 16_777_216.0;

/// How many units a compiled function of one element may be off, besides its conditioning.
const FUNCTION: f64 = 8.0;

/// Unit roundoff of an element type, the largest finite value, and the smallest normal one.
fn precision(elem: Elem) -> (f64, f64, f64) {
    match elem {
        Elem::BF16 => (1.0 / 256.0, f64::from(half::bf16::MAX.to_f32()), f64::from(f32::MIN_POSITIVE)),
        Elem::F16 => (1.0 / 2048.0, 65504.0, f64::from(half::f16::MIN_POSITIVE.to_f32())),
        Elem::F32 | Elem::I8 | Elem::I32 | Elem::I64 | Elem::Bool => {
            (U32, f64::from(f32::MAX), f64::from(f32::MIN_POSITIVE))
        }
    }
}

/// `value` with the error of its inputs, `units` roundings in `f32`, and one to the element type.
fn made(value: f64, error: f64, units: f64, elem: Elem) -> Bounded {
    let (u, max, tiny) = precision(elem);
    if value.is_nan() || error.is_nan() {
        // A NaN is as certain as what it was made of.
        return Bounded { value, error: if error == 0.0 { 0.0 } else { f64::INFINITY } };
    }
    if value.is_infinite() {
        return Bounded { value, error };
    }
    let error = error + (units * U32 + u) * (value.abs() + error) + tiny;
    // What may overflow in the program's precision has no bound.
    if value.abs() + error > max { Bounded { value, error: f64::INFINITY } } else { Bounded { value, error } }
}

impl Bounded {
    /// A value that every computation has exactly.
    fn exact(value: f64) -> Bounded {
        Bounded { value, error: 0.0 }
    }

    fn is_exact(self) -> bool {
        self.error == 0.0
    }

    /// Error of `f` over the interval for a monotone `f`.
    fn spread(self, f: impl Fn(f64) -> f64) -> f64 {
        if self.is_exact() {
            return 0.0;
        }
        // It may be a NaN too.
        if self.error.is_infinite() {
            return f64::INFINITY;
        }
        let middle = f(self.value);
        let (low, high) = (f(self.value - self.error) - middle, f(self.value + self.error) - middle);
        low.abs().max(high.abs())
    }

    /// Is a result within the bound? NaN must meet NaN, infinities their like.
    pub fn admits(self, computed: f64, slack: f64) -> bool {
        if self.error.is_infinite() || self.error.is_nan() {
            return true;
        }
        if self.value.is_nan() || computed.is_nan() {
            return self.value.is_nan() && computed.is_nan();
        }
        self.value == computed || (self.value - computed).abs() <= slack * self.error
    }
}

impl Real for Bounded {
    type Sum = BoundedSum;

    fn literal(x: f64, elem: Elem) -> Bounded {
        Bounded::exact(f64::literal(x, elem))
    }

    fn value(self) -> f64 {
        self.value
    }

    fn from_int(n: i64, elem: Elem) -> Bounded {
        let x = n as f64;
        if f32::from_int(n, elem).value() == x { Bounded::exact(x) } else { made(x, 0.0, 1.0, elem) }
    }

    fn unary(op: UnaryOp, x: Bounded, elem: Elem) -> Bounded {
        let value = op.eval_f64(x.value);
        let f = |v: f64| op.eval_f64(v);
        match op {
            UnaryOp::Neg | UnaryOp::Abs | UnaryOp::Relu | UnaryOp::Not => Bounded { value, error: x.error },
            UnaryOp::Floor => {
                let jumps = x.error > 0.0 && (x.value - x.error).floor() != (x.value + x.error).floor();
                Bounded { value, error: if jumps { x.error + 1.0 } else { 0.0 } }
            }
            UnaryOp::Exp | UnaryOp::Exp2 => {
                let reduction = if x.value.is_finite() { x.value.abs() } else { 0.0 };
                made(value, x.spread(f), FUNCTION + reduction, elem)
            }
            UnaryOp::Log | UnaryOp::Sqrt | UnaryOp::Rsqrt => {
                // Where the interval leaves the domain, nothing is known.
                let open = !x.is_exact() && x.value - x.error <= 0.0;
                let error = if open { f64::INFINITY } else { x.spread(f) };
                made(value, error, FUNCTION, elem)
            }
            UnaryOp::Tanh | UnaryOp::Erf | UnaryOp::Sigmoid => made(value, x.spread(f), FUNCTION, elem),
            // Lipschitz constant 1, and an argument reduction that loses absolute precision.
            UnaryOp::Sin | UnaryOp::Cos => {
                made(value, x.error + FUNCTION * U32 * (1.0 + x.value.abs()), FUNCTION, elem)
            }
            // Lipschitz constants 1.13 and 1.10; one factor is off by units of 1.
            UnaryOp::Gelu | UnaryOp::GeluTanh | UnaryOp::Silu => {
                let factor = if x.value.is_finite() { FUNCTION * U32 * x.value.abs() } else { 0.0 };
                made(value, 1.13 * x.error + factor, FUNCTION, elem)
            }
        }
    }

    fn binary(op: BinaryOp, x: Bounded, y: Bounded, elem: Elem) -> Bounded {
        let value = op.eval_f64(x.value, y.value);
        let exact = x.is_exact() && y.is_exact();
        let product = || {
            let cross = |a: Bounded, b: Bounded| if b.is_exact() { 0.0 } else { a.value.abs() * b.error };
            let both = if exact { 0.0 } else { x.error * y.error };
            cross(x, y) + cross(y, x) + both
        };
        match op {
            BinaryOp::Add | BinaryOp::Sub => made(value, x.error + y.error, 1.0, elem),
            BinaryOp::Mul => made(value, product(), 1.0, elem),
            BinaryOp::Div => {
                let room = y.value.abs() - y.error;
                let error = if exact {
                    0.0
                } else if room > 0.0 && x.value.is_finite() && y.value.is_finite() {
                    (x.error + value.abs() * y.error) / room
                } else {
                    f64::INFINITY
                };
                made(value, error, 2.0, elem)
            }
            BinaryOp::Rem => {
                let q = Bounded::binary(BinaryOp::Div, x, y, Elem::F32);
                let floor = Bounded::unary(UnaryOp::Floor, q, Elem::F32);
                let error = if floor.is_exact() && value.is_finite() {
                    x.error + floor.value.abs() * y.error + 2.0 * U32 * (x.value.abs() + (y.value * floor.value).abs())
                } else {
                    f64::INFINITY
                };
                made(value, error, 1.0, elem)
            }
            BinaryOp::Pow => {
                let error = if exact {
                    0.0
                } else if x.value - x.error > 0.0 {
                    [-1.0, 1.0]
                        .into_iter()
                        .flat_map(|a| [-1.0, 1.0].map(|b| (x.value + a * x.error).powf(y.value + b * y.error)))
                        .fold(0.0, |m: f64, corner| m.max((corner - value).abs()))
                } else {
                    f64::INFINITY
                };
                let exponent = (y.value * x.value.abs().ln()).abs();
                made(value, error, FUNCTION + if exponent.is_finite() { exponent } else { 0.0 }, elem)
            }
            BinaryOp::Max | BinaryOp::Min => {
                // An infinite side that is exact decides, or never does.
                let error = match (x.value.is_infinite() && x.is_exact(), y.value.is_infinite() && y.is_exact()) {
                    (true, _) if value == y.value => y.error,
                    (_, true) if value == x.value => x.error,
                    _ => x.error.max(y.error),
                };
                Bounded { value, error }
            }
            BinaryOp::And | BinaryOp::Or => Bounded::exact(value),
        }
    }

    fn compare(op: CmpOp, x: Bounded, y: Bounded) -> (bool, bool) {
        let outcome = op.eval(x.value, y.value);
        let unordered = x.value.is_nan() || y.value.is_nan();
        let apart = (x.value - y.value).abs() > x.error + y.error;
        let certain = (x.is_exact() && y.is_exact()) || (!unordered && apart);
        (outcome, certain)
    }

    fn cast(self, elem: Elem) -> Bounded {
        if f32::literal(self.value, elem).value() == self.value {
            return self;
        }
        made(self.value, self.error, 1.0, elem)
    }

    fn to_int(self) -> (i64, bool) {
        let certain = self.is_exact() || (self.value - self.error) as i64 == (self.value + self.error) as i64;
        (self.value as i64, certain)
    }

    fn zero() -> BoundedSum {
        BoundedSum { value: 0.0, error: 0.0, magnitude: 0.0 }
    }

    fn add(sum: &mut BoundedSum, x: Bounded) {
        sum.value += x.value;
        sum.error += x.error;
        sum.magnitude += x.value.abs();
    }

    fn add_product(sum: &mut BoundedSum, x: Bounded, y: Bounded) {
        let p = x.value * y.value;
        // Compiled code may leave out what is hidden by a weight of 0, whatever it is.
        if p.is_nan() && (x.value == 0.0 || y.value == 0.0) {
            sum.error = f64::INFINITY;
        }
        sum.value += p;
        sum.magnitude += p.abs();
        if !x.is_exact() {
            sum.error += x.error * (y.value.abs() + y.error);
        }
        if !y.is_exact() {
            sum.error += x.value.abs() * y.error;
        }
    }

    fn total(sum: BoundedSum, n: usize, elem: Elem) -> Bounded {
        if sum.value.is_infinite() || sum.value.is_nan() {
            return Bounded { value: sum.value, error: sum.error };
        }
        let own = (n as f64 + 4.0) * U32 * (sum.magnitude + sum.error);
        made(sum.value, sum.error + own, 1.0, elem)
    }
}
