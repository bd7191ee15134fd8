//! The number types in which floats are computed.
//!
//! In: elements. Out: results of element operations and sums, in the numbers of a [`Real`]. `f32`
//! is the exact mode, bit for bit as the language defines it (`bf16` and `f16` are `f32`s rounded
//! after each operation; sums and matmuls accumulate in `f32`, in blocks that are summed in order).
//! `f64` computes everything in `f64` without rounding to element types.
//! [`Bounded`](super::bounded) computes in `f64` and carries an error bound for any compiled
//! program.

use std::fmt::Debug;

use crate::scalar::{BinaryOp, CmpOp, UnaryOp};
use crate::shape::Elem;

/// A number type in which floats are computed.
pub trait Real: Copy + Debug + 'static {
    /// The accumulator of sums.
    type Sum: Copy;
    /// Are operations rounded as in a compiled program? Then means are corrected and scaled as in
    /// compiled code.
    const ROUNDS: bool = false;

    /// A literal or an input, exactly: the element of type `elem` nearest to `x`.
    fn literal(x: f64, elem: Elem) -> Self;
    /// The value as `f64`.
    fn value(self) -> f64;
    /// Converts an integer to a float type.
    fn from_int(n: i64, elem: Elem) -> Self;
    /// Applies a unary operation.
    fn unary(op: UnaryOp, x: Self, elem: Elem) -> Self;
    /// Applies a binary operation.
    fn binary(op: BinaryOp, x: Self, y: Self, elem: Elem) -> Self;
    /// Compares; the second flag says whether the outcome is the same at every precision.
    fn compare(op: CmpOp, x: Self, y: Self) -> (bool, bool);
    /// Is there a known bound? If not, the value may be anything, NaN included.
    fn has_bound(self) -> bool {
        true
    }
    /// Passes an element through an operation that does not change it.
    fn passed_on(self, _elem: Elem) -> Self {
        self
    }
    /// Converts to a float type.
    fn cast(self, elem: Elem) -> Self;
    /// Truncates to an integer (saturating, NaN becomes 0); the flag says whether that is the same
    /// at every precision.
    fn to_int(self) -> (i64, bool);
    /// The empty sum.
    fn zero() -> Self::Sum;
    /// `sum += x`
    fn add(sum: &mut Self::Sum, x: Self);
    /// `sum += x * y`
    fn add_product(sum: &mut Self::Sum, x: Self, y: Self);
    /// Adds a weighted value in an attention with masks: weight 0 omits a hidden value, even NaN.
    fn add_weighted(sum: &mut Self::Sum, weight: Self, x: Self) {
        if weight.value() != 0.0 || x.value().is_finite() {
            Self::add_product(sum, weight, x);
        }
    }
    /// `sum += more`
    fn join(sum: &mut Self::Sum, more: Self::Sum);
    /// Rounds the sum of `n` terms to an element.
    fn total(sum: Self::Sum, n: usize, elem: Elem) -> Self;
    /// The greatest (`max`) or the least (`min`) of a row; that infinity of an empty row.
    fn extreme(op: BinaryOp, row: &[Self], elem: Elem) -> Self {
        let end = if op == BinaryOp::Max { f64::NEG_INFINITY } else { f64::INFINITY };
        row.iter().fold(Self::literal(end, elem), |m, x| Self::binary(op, m, *x, elem))
    }
    /// The same value, with respect to which a gradient is computed.
    fn variable(self) -> Self {
        self
    }
    /// The same value as a constant, through which no gradient goes.
    fn constant(self) -> Self {
        self
    }
    /// The derivatives of a number with respect to variables, if this type of numbers records how
    /// each was computed; else `grad` must be replaced by the operations that compute it.
    fn gradient(_loss: Self, _of: &[Self]) -> Option<Vec<Self>> {
        None
    }
}

fn round(x: f32, elem: Elem) -> f32 {
    match elem {
        Elem::BF16 => half::bf16::from_f32(x).to_f32(),
        Elem::F16 => half::f16::from_f32(x).to_f32(),
        Elem::F32 | Elem::I8 | Elem::I32 | Elem::I64 | Elem::Bool => x,
    }
}

impl Real for f32 {
    type Sum = f32;
    const ROUNDS: bool = true;

    fn literal(x: f64, elem: Elem) -> f32 {
        round(x as f32, elem)
    }

    fn value(self) -> f64 {
        f64::from(self)
    }

    fn from_int(n: i64, elem: Elem) -> f32 {
        round(n as f32, elem)
    }

    fn unary(op: UnaryOp, x: f32, elem: Elem) -> f32 {
        round(op.eval_f32(x), elem)
    }

    fn binary(op: BinaryOp, x: f32, y: f32, elem: Elem) -> f32 {
        let z = match op {
            BinaryOp::Add => x + y,
            BinaryOp::Sub => x - y,
            BinaryOp::Mul => x * y,
            BinaryOp::Div => x / y,
            _ => op.eval_f32(x, y),
        };
        round(z, elem)
    }

    fn compare(op: CmpOp, x: f32, y: f32) -> (bool, bool) {
        (op.eval(x, y), true)
    }

    fn cast(self, elem: Elem) -> f32 {
        round(self, elem)
    }

    fn to_int(self) -> (i64, bool) {
        (self as i64, true)
    }

    fn zero() -> f32 {
        0.0
    }

    fn add(sum: &mut f32, x: f32) {
        *sum += x;
    }

    fn add_product(sum: &mut f32, x: f32, y: f32) {
        *sum += x * y;
    }

    fn join(sum: &mut f32, more: f32) {
        *sum += more;
    }

    fn total(sum: f32, _: usize, elem: Elem) -> f32 {
        round(sum, elem)
    }
}

impl Real for f64 {
    type Sum = f64;

    fn literal(x: f64, elem: Elem) -> f64 {
        f64::from(f32::literal(x, elem))
    }

    fn value(self) -> f64 {
        self
    }

    fn from_int(n: i64, _: Elem) -> f64 {
        n as f64
    }

    fn unary(op: UnaryOp, x: f64, _: Elem) -> f64 {
        op.eval_f64(x)
    }

    fn binary(op: BinaryOp, x: f64, y: f64, _: Elem) -> f64 {
        op.eval_f64(x, y)
    }

    fn compare(op: CmpOp, x: f64, y: f64) -> (bool, bool) {
        (op.eval(x, y), true)
    }

    fn cast(self, _: Elem) -> f64 {
        self
    }

    fn to_int(self) -> (i64, bool) {
        (self as i64, true)
    }

    fn zero() -> f64 {
        0.0
    }

    fn add(sum: &mut f64, x: f64) {
        *sum += x;
    }

    fn add_product(sum: &mut f64, x: f64, y: f64) {
        *sum += x * y;
    }

    fn join(sum: &mut f64, more: f64) {
        *sum += more;
    }

    fn total(sum: f64, _: usize, _: Elem) -> f64 {
        sum
    }
}
