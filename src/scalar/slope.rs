//! Derivatives of operations on elements, as expressions.
//!
//! In: nothing; each row of the tables `unary` and `binary` has an expression for each operand.
//! Out: [`Slope`]s, from which `differentiate` makes operations. They know no tensors and no IR.

use std::ops::{Add, Mul, Sub};

use super::{BinaryOp, CmpOp, UnaryOp};

/// An expression of the operands and of the result of an operation.
#[derive(Clone, Debug, PartialEq)]
pub enum Slope {
    /// The first operand.
    X,
    /// The second operand.
    Y,
    /// The result.
    Z,
    /// A literal.
    Number(f64),
    /// An operation on one expression.
    Unary(UnaryOp, Box<Slope>),
    /// An operation on two expressions.
    Binary(BinaryOp, Box<[Slope; 2]>),
    /// The third expression where the comparison of the first two holds, else the fourth.
    Where(CmpOp, Box<[Slope; 4]>),
}

use Slope::{Number, X, Y, Z};

impl Add for Slope {
    type Output = Slope;

    fn add(self, o: Slope) -> Slope {
        Slope::Binary(BinaryOp::Add, Box::new([self, o]))
    }
}

impl Sub for Slope {
    type Output = Slope;

    fn sub(self, o: Slope) -> Slope {
        Slope::Binary(BinaryOp::Sub, Box::new([self, o]))
    }
}

impl Mul for Slope {
    type Output = Slope;

    fn mul(self, o: Slope) -> Slope {
        Slope::Binary(BinaryOp::Mul, Box::new([self, o]))
    }
}

impl Slope {
    /// An operation on this expression.
    pub(super) fn then(self, op: UnaryOp) -> Slope {
        Slope::Unary(op, Box::new(self))
    }

    /// The quotient.
    pub(super) fn over(self, o: Slope) -> Slope {
        Slope::Binary(BinaryOp::Div, Box::new([self, o]))
    }
}

/// `then` where `a op b` holds, else `otherwise`.
pub(super) fn choose(op: CmpOp, a: Slope, b: Slope, then: Slope, otherwise: Slope) -> Slope {
    Slope::Where(op, Box::new([a, b, then, otherwise]))
}

/// Of GELU, `x * Phi(x)`: `Phi(x) + x * phi(x)`.
pub(super) fn gelu() -> Slope {
    let phi = (Number(-0.5) * X * X).then(UnaryOp::Exp) * Number((0.5 * std::f64::consts::FRAC_1_PI).sqrt());
    let below = Number(0.5) * (Number(1.0) + (X * Number(std::f64::consts::FRAC_1_SQRT_2)).then(UnaryOp::Erf));
    below + X * phi
}

/// Of GELU with tanh, `0.5 * x * (1 + t)` where `t` is the tanh of a polynomial.
pub(super) fn gelu_tanh() -> Slope {
    let c = (2.0 / std::f64::consts::PI).sqrt();
    let t = (Number(c) * X * (Number(1.0) + Number(0.044_715) * X * X)).then(UnaryOp::Tanh);
    let inner = Number(c) * (Number(1.0) + Number(3.0 * 0.044_715) * X * X);
    Number(0.5) * (Number(1.0) + t.clone()) + Number(0.5) * X * (Number(1.0) - t.clone() * t) * inner
}

/// Of SiLU, `x * s` where `s` is the sigmoid: `s + z * (1 - s)`.
pub(super) fn silu() -> Slope {
    let s = X.then(UnaryOp::Sigmoid);
    s.clone() + Z * (Number(1.0) - s)
}

/// Of `x` to the power of `y`, with respect to `x`; 0 where the power is 1 for every `x`.
pub(super) fn power_of_base() -> Slope {
    let lower = Slope::Binary(BinaryOp::Pow, Box::new([X, Y - Number(1.0)]));
    choose(CmpOp::Eq, Y, Number(0.0), Number(0.0), Y * lower)
}

/// Of `x` to the power of `y`, with respect to `y`; 0 where `x` is.
pub(super) fn power_of_exponent() -> Slope {
    choose(CmpOp::Eq, X, Number(0.0), Number(0.0), Z * X.then(UnaryOp::Log))
}

/// Of the greater or lesser of two, with respect to `a`, which is chosen where `a op b`; two equal
/// operands share the gradient.
pub(super) fn chosen(op: CmpOp, a: Slope, b: Slope) -> Slope {
    let equal = choose(CmpOp::Eq, a.clone(), b.clone(), Number(0.5), Number(0.0));
    choose(op, a, b, Number(1.0), equal)
}
