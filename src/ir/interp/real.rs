//! The number types that floats are computed in.
//!
//! In: elements. Out: the results of element operations and sums, in the numbers of a [`Real`]: `f32` is the exact mode,
//! bit for bit what the language says (`bf16` and `f16` are `f32`s that were rounded after each operation; sums and
//! products accumulate in `f32`, in blocks that are summed in order); `f64` computes everything in `f64` and rounds nothing. The
//! `Bounded` of the tests computes in `f64` and carries how far off any compiled program may be.

use std::fmt::Debug;

use crate::scalar::{BinaryOp, CmpOp, UnaryOp};
use crate::shape::Elem;

/// A kind of number that floats are computed in.
pub trait Real: Copy + Debug + 'static {
    /// What sums are accumulated in.
    type Sum: Copy;
    /// Is each operation rounded to what a program computes in? Then means are corrected and scaled as in compiled code.
    const ROUNDS: bool = false;

    /// A literal or an input of an element type: its nearest element, exactly.
    fn literal(x: f64, elem: Elem) -> Self;
    /// The value.
    fn value(self) -> f64;
    /// An integer as a float of an element type.
    fn from_int(n: i64, elem: Elem) -> Self;
    /// An operation on one element.
    fn unary(op: UnaryOp, x: Self, elem: Elem) -> Self;
    /// An operation on two elements.
    fn binary(op: BinaryOp, x: Self, y: Self, elem: Elem) -> Self;
    /// A comparison, and whether its outcome is certain in every precision.
    fn compare(op: CmpOp, x: Self, y: Self) -> (bool, bool);
    /// Is it known within some bound? What is not may be anything, NaN too.
    fn has_bound(self) -> bool {
        true
    }
    /// An element of a type that an operation passes on as it is.
    fn passed_on(self, _elem: Elem) -> Self {
        self
    }
    /// Conversion to a float type.
    fn cast(self, elem: Elem) -> Self;
    /// Truncation to an integer (saturating, NaN gives 0), and whether it is certain.
    fn to_int(self) -> (i64, bool);
    /// An empty sum.
    fn zero() -> Self::Sum;
    /// Adds an element.
    fn add(sum: &mut Self::Sum, x: Self);
    /// Adds a product.
    fn add_product(sum: &mut Self::Sum, x: Self, y: Self);
    /// Adds a value times its weight in an attention with masks: a weight of 0 omits what it hides, even NaN.
    fn add_weighted(sum: &mut Self::Sum, weight: Self, x: Self) {
        if weight.value() != 0.0 || x.value().is_finite() {
            Self::add_product(sum, weight, x);
        }
    }
    /// Adds another sum.
    fn join(sum: &mut Self::Sum, more: Self::Sum);
    /// The sum of `n` things as an element.
    fn total(sum: Self::Sum, n: usize, elem: Elem) -> Self;
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
