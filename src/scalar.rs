//! Scalars: literal elements, and what `exp`, `add` or `lt` mean on one element, for every IR and interpreter.
//!
//! In: elements as `f32`, `f64` or `i64`. Out: their reference results. Nothing here knows of tensors. Operations on one element
//! are the table in `unary`; those on two, comparisons and reductions stand here.

mod unary;

use std::fmt;
use std::hash::{Hash, Hasher};

use crate::shape::Elem;
use crate::table::Family;

pub use unary::{Change, UnaryOp};

/// Declares an enum whose variants have a name in programs and dumps, and a meaning in a line. Where an operation of the IRs has
/// another name, it is in brackets.
macro_rules! named_enum {
    ($(#[$meta:meta])* $name:ident { $($(#[$vmeta:meta])* $variant:ident = $text:literal $([$operation:literal])?, $meaning:literal;)* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum $name { $(#[doc = $meaning] $(#[$vmeta])* $variant,)* }

        impl $name {
            /// Every variant, in the order of declaration.
            pub const ALL: &'static [$name] = &[$($name::$variant,)*];

            /// Name in programs and dumps.
            pub fn name(self) -> &'static str {
                match self { $($name::$variant => $text,)* }
            }

            /// The variant of this name, if there is one.
            pub fn from_name(name: &str) -> Option<$name> {
                match name { $($text => Some($name::$variant),)* _ => None }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.name())
            }
        }

        impl Family for $name {
            const MEMBERS: &'static [$name] = $name::ALL;

            fn operation(self) -> &'static str {
                match self { $($name::$variant => named_enum!(@operation $text $($operation)?),)* }
            }

            fn meaning(self) -> &'static str {
                match self { $($name::$variant => $meaning,)* }
            }
        }
    };
    (@operation $text:literal) => { $text };
    (@operation $text:literal $operation:literal) => { $operation };
}

named_enum! {
    /// Operations on two elements of one type, with a result of that type.
    BinaryOp {
        Add = "add", "the sum; integers wrap";
        Sub = "sub", "the difference; integers wrap";
        Mul = "mul", "the product; integers wrap";
        Div = "div", "the quotient; integers round down, and a zero divisor gives 0";
        /// Of floats it is exact, rounded once, and a zero has the divisor's sign too; what is finite by an infinite divisor is
        /// itself, or that infinity where the signs differ; by 0, or of an infinity, it is NaN. An integer zero divisor gives 0.
        Rem = "rem", "the remainder with the sign of the divisor";
        Pow = "pow", "x to the power of y";
        Max = "max", "the greater; NaN if either is NaN";
        Min = "min", "the lesser; NaN if either is NaN";
        And = "and", "are both true";
        Or = "or", "is one true";
    }
}

named_enum! {
    /// Comparisons of two elements of one type; the result is a truth value. NaN compares as in IEEE 754.
    CmpOp {
        Eq = "eq", "are they equal";
        Ne = "ne", "are they not equal";
        Lt = "lt", "is the first less";
        Le = "le", "is the first less or equal";
        Gt = "gt", "is the first greater";
        Ge = "ge", "is the first greater or equal";
    }
}

named_enum! {
    /// Reductions over axes. Of an empty axis: sum 0, max -inf, min +inf, all true, any false, mean NaN; argmax has none.
    ReduceKind {
        Sum = "sum" ["reduce_sum"], "the sum over axes";
        Mean = "mean" ["reduce_mean"], "the sum divided by the number of elements";
        Max = "max" ["reduce_max"], "the greatest element; NaN if any is NaN";
        Min = "min" ["reduce_min"], "the least element; NaN if any is NaN";
        All = "all" ["reduce_all"], "is every element true";
        Any = "any" ["reduce_any"], "is any element true";
        /// An index (i32). An axis of more than [`ARGMAX_LENGTH`] elements is an error of the call.
        ArgMax = "argmax", "where the greatest element is: the first of equals, the first NaN if there is one";
    }
}

/// A literal element.
#[derive(Clone, Copy, Debug)]
pub enum Scalar {
    /// A float, kept in `f64`; the element type of the constant says how it is rounded.
    Float(f64),
    /// An integer.
    Int(i64),
    /// A truth value.
    Bool(bool),
}

impl Scalar {
    /// The value as a float.
    pub fn as_f64(self) -> f64 {
        match self {
            Scalar::Float(x) => x,
            Scalar::Int(n) => n as f64,
            Scalar::Bool(b) => f64::from(u8::from(b)),
        }
    }

    /// The value as an integer; floats are truncated.
    pub fn as_i64(self) -> i64 {
        match self {
            Scalar::Float(x) => x as i64,
            Scalar::Int(n) => n,
            Scalar::Bool(b) => i64::from(b),
        }
    }

    /// What a reduction of no elements gives: the least or greatest value of the type for `max` and `min` of integers.
    pub fn identity(kind: ReduceKind, elem: Elem) -> Scalar {
        let (low, high) = match elem {
            Elem::F32 | Elem::BF16 | Elem::F16 => (Scalar::Float(f64::NEG_INFINITY), Scalar::Float(f64::INFINITY)),
            Elem::I64 => (Scalar::Int(i64::MIN), Scalar::Int(i64::MAX)),
            Elem::I8 => (Scalar::Int(i64::from(i8::MIN)), Scalar::Int(i64::from(i8::MAX))),
            Elem::I32 | Elem::Bool => (Scalar::Int(i64::from(i32::MIN)), Scalar::Int(i64::from(i32::MAX))),
        };
        match kind {
            ReduceKind::Sum | ReduceKind::Mean if elem.is_float() => Scalar::Float(0.0),
            ReduceKind::Sum | ReduceKind::Mean => Scalar::Int(0),
            ReduceKind::Max | ReduceKind::ArgMax => low,
            ReduceKind::Min => high,
            ReduceKind::All => Scalar::Bool(true),
            ReduceKind::Any => Scalar::Bool(false),
        }
    }
}

/// Floats are equal if their bits are, so that NaN equals itself and `-0.0` differs from `0.0`.
impl PartialEq for Scalar {
    fn eq(&self, o: &Scalar) -> bool {
        match (self, o) {
            (Scalar::Float(a), Scalar::Float(b)) => a.to_bits() == b.to_bits(),
            (Scalar::Int(a), Scalar::Int(b)) => a == b,
            (Scalar::Bool(a), Scalar::Bool(b)) => a == b,
            (Scalar::Float(_) | Scalar::Int(_) | Scalar::Bool(_), _) => false,
        }
    }
}

impl Eq for Scalar {}

impl Hash for Scalar {
    fn hash<H: Hasher>(&self, state: &mut H) {
        match self {
            Scalar::Float(x) => (0_u8, x.to_bits()).hash(state),
            Scalar::Int(x) => (1_u8, x).hash(state),
            Scalar::Bool(x) => (2_u8, x).hash(state),
        }
    }
}

/// The longest axis whose indices are `i32`.
pub const ARGMAX_LENGTH: i64 = 1 << 31;

/// Rounds to the nearest value of a float type, ties to even.
pub fn round_to(elem: Elem, x: f64) -> f64 {
    match elem {
        Elem::F32 => f64::from(x as f32),
        Elem::BF16 => half::bf16::from_f64(x).to_f64(),
        Elem::F16 => half::f16::from_f64(x).to_f64(),
        Elem::I8 | Elem::I32 | Elem::I64 | Elem::Bool => x,
    }
}

/// The error function in `f64`, to about 1e-15 (series below 3, continued fraction above; Abramowitz & Stegun 7.1.5
/// and 7.1.14).
pub fn erf(x: f64) -> f64 {
    if x.is_nan() {
        return x;
    }
    let a = x.abs();
    let magnitude = if a < 3.0 {
        let (mut term, mut sum, mut n) = (a, a, 0.0);
        while term.abs() > 1e-18 * sum.abs() {
            n += 1.0;
            term *= -a * a / n;
            sum += term / (2.0 * n + 1.0);
            if n > 200.0 {
                break;
            }
        }
        sum * std::f64::consts::FRAC_2_SQRT_PI
    } else if a < 6.5 {
        let mut fraction = a;
        for k in (1..=120).rev() {
            fraction = a + f64::from(k) / 2.0 / fraction;
        }
        1.0 - (-a * a).exp() / fraction / std::f64::consts::PI.sqrt()
    } else {
        1.0
    };
    magnitude.copysign(x)
}

/// Maximum that keeps a NaN.
fn max_nan(x: f64, y: f64) -> f64 {
    if x.is_nan() || x > y { x } else { y }
}

/// Minimum that keeps a NaN.
fn min_nan(x: f64, y: f64) -> f64 {
    if x.is_nan() || x < y { x } else { y }
}

impl BinaryOp {
    /// Is it defined for elements of this type?
    pub fn takes(self, elem: Elem) -> bool {
        matches!(self, BinaryOp::And | BinaryOp::Or) == (elem == Elem::Bool)
    }

    /// The result for floats, computed in `f64`. `and` and `or` take anything but 0 as true.
    pub fn eval_f64(self, x: f64, y: f64) -> f64 {
        match self {
            BinaryOp::Add => x + y,
            BinaryOp::Sub => x - y,
            BinaryOp::Mul => x * y,
            BinaryOp::Div => x / y,
            BinaryOp::Rem => {
                // Exact, with the sign of `x`.
                let r = x % y;
                match (r == 0.0, (r < 0.0) != (y < 0.0)) {
                    (true, _) => 0f64.copysign(y),
                    (false, true) => r + y,
                    (false, false) => r,
                }
            }
            BinaryOp::Pow => x.powf(y),
            BinaryOp::Max => max_nan(x, y),
            BinaryOp::Min => min_nan(x, y),
            BinaryOp::And => f64::from(u8::from(x != 0.0 && y != 0.0)),
            BinaryOp::Or => f64::from(u8::from(x != 0.0 || y != 0.0)),
        }
    }

    /// The result for `f32`s: the `f64` result, rounded, which for `+ - * /` is the IEEE 754 `f32` result.
    pub fn eval_f32(self, x: f32, y: f32) -> f32 {
        self.eval_f64(f64::from(x), f64::from(y)) as f32
    }

    /// The result for integers (before wrapping to the element type) or truth values.
    pub fn eval_int(self, x: i64, y: i64) -> i64 {
        match self {
            BinaryOp::Add => x.wrapping_add(y),
            BinaryOp::Sub => x.wrapping_sub(y),
            BinaryOp::Mul => x.wrapping_mul(y),
            BinaryOp::Div if y == 0 => 0,
            BinaryOp::Div => {
                let (q, r) = (x.wrapping_div(y), x.wrapping_rem(y));
                if r != 0 && (r < 0) != (y < 0) { q.wrapping_sub(1) } else { q }
            }
            BinaryOp::Rem if y == 0 => 0,
            BinaryOp::Rem => {
                let r = x.wrapping_rem(y);
                if r != 0 && (r < 0) != (y < 0) { r.wrapping_add(y) } else { r }
            }
            BinaryOp::Pow => {
                let exponent = u32::try_from(y.max(0)).unwrap_or(u32::MAX);
                x.wrapping_pow(exponent)
            }
            BinaryOp::Max => x.max(y),
            BinaryOp::Min => x.min(y),
            BinaryOp::And => i64::from(x != 0 && y != 0),
            BinaryOp::Or => i64::from(x != 0 || y != 0),
        }
    }

    /// Is `x op y` the same bits as `y op x`?
    pub fn is_commutative(self) -> bool {
        match self {
            BinaryOp::Add | BinaryOp::Mul | BinaryOp::And | BinaryOp::Or => true,
            // `max(-0, 0)` and NaN payloads depend on the order.
            BinaryOp::Max | BinaryOp::Min => false,
            BinaryOp::Sub | BinaryOp::Div | BinaryOp::Rem | BinaryOp::Pow => false,
        }
    }
}

impl CmpOp {
    /// The result for two ordered things.
    pub fn eval<T: PartialOrd>(self, x: T, y: T) -> bool {
        match self {
            CmpOp::Eq => x == y,
            CmpOp::Ne => x != y,
            CmpOp::Lt => x < y,
            CmpOp::Le => x <= y,
            CmpOp::Gt => x > y,
            CmpOp::Ge => x >= y,
        }
    }
}

impl ReduceKind {
    /// Its name as an operation of both IRs (`max` and `min` are the binary operations).
    pub fn op_name(self) -> &'static str {
        match self {
            ReduceKind::Sum => "reduce_sum",
            ReduceKind::Mean => "reduce_mean",
            ReduceKind::Max => "reduce_max",
            ReduceKind::Min => "reduce_min",
            ReduceKind::All => "reduce_all",
            ReduceKind::Any => "reduce_any",
            ReduceKind::ArgMax => "argmax",
        }
    }

    /// How two partial results are combined; `None` for `argmax`, which is no operation on two values alone.
    pub fn combination(self) -> Option<BinaryOp> {
        match self {
            ReduceKind::Sum | ReduceKind::Mean => Some(BinaryOp::Add),
            ReduceKind::Max => Some(BinaryOp::Max),
            ReduceKind::Min => Some(BinaryOp::Min),
            ReduceKind::All => Some(BinaryOp::And),
            ReduceKind::Any => Some(BinaryOp::Or),
            ReduceKind::ArgMax => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn erf_at_known_points() {
        // Abramowitz & Stegun, table 7.1.
        for (x, y) in [(0.5, 0.520_499_877_813_046_5), (1.0, 0.842_700_792_949_714_9), (2.0, 0.995_322_265_018_952_7)] {
            assert!((erf(x) - y).abs() < 1e-15);
            assert!((erf(-x) + y).abs() < 1e-15);
        }
        assert!((erf(3.5) - 0.999_999_256_901_627_7).abs() < 1e-15);
        assert!(erf(f64::NAN).is_nan());
    }

    #[test]
    fn nan_passes_through() {
        assert!(BinaryOp::Max.eval_f32(f32::NAN, 1.0).is_nan());
        assert!(BinaryOp::Max.eval_f32(1.0, f32::NAN).is_nan());
        assert!(BinaryOp::Min.eval_f32(1.0, f32::NAN).is_nan());
        assert!(UnaryOp::Relu.eval_f32(f32::NAN).is_nan());
    }

    #[test]
    fn integer_division_floors() {
        assert_eq!(BinaryOp::Div.eval_int(-7, 2), -4);
        assert_eq!(BinaryOp::Rem.eval_int(-7, 2), 1);
        assert_eq!(BinaryOp::Div.eval_int(7, 0), 0);
        assert_eq!(BinaryOp::Div.eval_int(i64::MIN, -1), i64::MIN);
    }
}
