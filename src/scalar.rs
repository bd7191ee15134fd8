//! Scalars: literal elements, and the reference semantics of `exp`, `add` or `lt` on one element,
//! for every IR and interpreter.
//!
//! In: elements as `f32`, `f64` or `i64`. Out: their reference results. Must not know: tensors.
//! Operations on one element are the table in `unary`, operations on two the table in `binary`;
//! comparisons, reductions and operations along an axis are here.

mod binary;
mod slope;
mod unary;

use std::fmt;
use std::hash::{Hash, Hasher};

use crate::shape::Elem;
use crate::table::Family;

pub use binary::BinaryOp;
pub use slope::Slope;
pub use unary::{Change, UnaryOp};

/// The syntax of an operation in programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Written {
    /// A call of its name.
    Call,
    /// A call of this name.
    CallOf(&'static str),
    Operator(&'static str),
    /// None: only the compiler creates it.
    Made,
}

impl Written {
    fn symbol(self) -> Option<&'static str> {
        match self {
            Written::Operator(symbol) => Some(symbol),
            Written::Call | Written::CallOf(_) | Written::Made => None,
        }
    }
}

/// Declares an enum whose variants have a name in programs and dumps, and a one-line meaning. A
/// different operation name in the IRs is in brackets.
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
    /// Comparisons of two elements of one type; the result is a boolean. NaN compares as in IEEE
    /// 754.
    CmpOp {
        Eq = "eq", "true where the two are equal";
        Ne = "ne", "true where they are not equal";
        Lt = "lt", "true where the first is less";
        Le = "le", "true where the first is at most the second";
        Gt = "gt", "true where the first is greater";
        Ge = "ge", "true where the first is at least the second";
    }
}

named_enum! {
    /// Predicates on floats, written as calls. They are lowered to comparisons.
    FloatTest {
        IsNan = "isnan", "true where the element is NaN";
        IsInf = "isinf", "true where the element is infinite";
        IsFinite = "isfinite", "true where the element is neither infinite nor NaN";
    }
}

named_enum! {
    /// Reductions over axes. Of an empty axis: sum 0, max -inf, min +inf, all true, any false, mean
    /// NaN, logsumexp -inf; argmax has none.
    ReduceKind {
        Sum = "sum" ["reduce_sum"], "the sum over axes";
        Mean = "mean" ["reduce_mean"], "the mean over axes";
        Max = "max" ["reduce_max"], "the greatest element; NaN if any is NaN";
        Min = "min" ["reduce_min"], "the least element; NaN if any is NaN";
        All = "all" ["reduce_all"], "true if every element is";
        Any = "any" ["reduce_any"], "true if any element is";
        LogSumExp = "logsumexp" ["reduce_logsumexp"], "log(sum(exp(x))), without overflow; -inf if all elements are";
        /// An index (i32). An axis of more than [`ARGMAX_LENGTH`] elements is an error of the call.
        ArgMax = "argmax", "the index of the greatest element: of the first among equals, or of the first NaN";
    }
}

named_enum! {
    /// Operations along an axis whose result has the shape of the operand.
    AxisOp {
        Softmax = "softmax", "exp(x - max) / sum over an axis";
        LogSoftmax = "log_softmax", "the logarithm of the softmax over an axis";
        Cumsum = "cumsum", "the sum along an axis up to each element";
    }
}

/// A literal element, independent of its element type.
#[derive(Clone, Copy, Debug)]
pub enum Scalar {
    /// A float, kept in `f64`; the element type of the constant says how it is rounded.
    Float(f64),
    /// An integer, at most 64 bits.
    Int(i64),
    /// A boolean.
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

    /// The least and the greatest value of a type; `bool` has the range of `i32`, in which it is
    /// reduced.
    pub fn extremes(elem: Elem) -> (Scalar, Scalar) {
        match elem {
            Elem::F32 | Elem::BF16 | Elem::F16 => (Scalar::Float(f64::NEG_INFINITY), Scalar::Float(f64::INFINITY)),
            Elem::I64 => (Scalar::Int(i64::MIN), Scalar::Int(i64::MAX)),
            Elem::I8 => (Scalar::Int(i64::from(i8::MIN)), Scalar::Int(i64::from(i8::MAX))),
            Elem::I32 | Elem::Bool => (Scalar::Int(i64::from(i32::MIN)), Scalar::Int(i64::from(i32::MAX))),
        }
    }

    /// The zero of a type.
    pub fn zero(elem: Elem) -> Scalar {
        match elem {
            Elem::F32 | Elem::BF16 | Elem::F16 => Scalar::Float(0.0),
            Elem::I8 | Elem::I32 | Elem::I64 => Scalar::Int(0),
            Elem::Bool => Scalar::Bool(false),
        }
    }

    /// The result of an empty reduction: for `max` and `min` of integers the least or greatest
    /// value of the type.
    pub fn identity(kind: ReduceKind, elem: Elem) -> Scalar {
        let (low, high) = Scalar::extremes(elem);
        match kind {
            ReduceKind::Sum | ReduceKind::Mean if elem.is_float() => Scalar::Float(0.0),
            ReduceKind::Sum | ReduceKind::Mean => Scalar::Int(0),
            ReduceKind::Max | ReduceKind::ArgMax | ReduceKind::LogSumExp => low,
            ReduceKind::Min => high,
            ReduceKind::All => Scalar::Bool(true),
            ReduceKind::Any => Scalar::Bool(false),
        }
    }
}

/// Floats compare by bits, so that NaN equals itself and `-0.0` differs from `0.0`.
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

/// Maximum length of an axis with `i32` indices.
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

/// The error function in `f64`, to about 1e-15 (series below 3, continued fraction above;
/// Abramowitz & Stegun 7.1.5 and 7.1.14).
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

impl CmpOp {
    /// The operator in programs.
    pub fn symbol(self) -> &'static str {
        match self {
            CmpOp::Eq => "==",
            CmpOp::Ne => "!=",
            CmpOp::Lt => "<",
            CmpOp::Le => "<=",
            CmpOp::Gt => ">",
            CmpOp::Ge => ">=",
        }
    }

    /// Evaluates the comparison.
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
    /// The operation that combines two partial results; `None` for `argmax`, which also needs
    /// indices, and `logsumexp`, which needs a maximum.
    pub fn combination(self) -> Option<BinaryOp> {
        match self {
            ReduceKind::Sum | ReduceKind::Mean => Some(BinaryOp::Add),
            ReduceKind::Max => Some(BinaryOp::Max),
            ReduceKind::Min => Some(BinaryOp::Min),
            ReduceKind::All => Some(BinaryOp::And),
            ReduceKind::Any => Some(BinaryOp::Or),
            ReduceKind::ArgMax | ReduceKind::LogSumExp => None,
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
