//! Operations on one element, one row each: everything but their code generation.
//!
//! In: nothing. Out: [`UnaryOp`] and its rows, which define the names in programs and dumps, the
//! operand types, the reference results, the bounds of the interpreter's error analysis, and the
//! operation reference. Functions are implemented in `vector/functions/NAME.vec`; so a new function
//! is a row here and a file there.
//!
//! The columns of a row:
//!
//! * variant and name, the same in programs, graph IR, tile IR and as a file of vector IR;
//! * its syntax ([`Written`]);
//! * how floats are computed: by an `instruction` of every machine, or by a `function` of vector
//!   IR;
//! * how a result changes with its element ([`Change`]);
//! * can the result be `-inf` ([`Bottom`]; NaN does not count)?
//! * the result for a float, and for an integer or boolean ([`Integers`]);
//! * the derivative, an expression of the element X and of the result Z ([`Slope`]);
//! * its meaning, in one line.

use std::fmt;

use super::slope::Slope::{Number, X, Z};
use super::slope::{self, Slope, choose};
use super::{CmpOp, Written, erf};
use crate::shape::Elem;
use crate::table::Family;

/// How floats are computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    /// By an instruction or two, on every machine.
    Instruction,
    /// By a function of vector IR.
    Function,
}

/// Can a result be `-inf`?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bottom {
    Never,
    Maybe,
}

/// How errors of the element propagate to the result, for the error analysis.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Change {
    /// At most by as much as the element; the result is exact.
    Exact,
    /// A step function: exact, monotone, and constant between a few points.
    Steps,
    /// In proportion to the result: an absolute error of the element becomes a relative one.
    Exponential,
    /// Monotonic for elements above this number; elsewhere nothing is known.
    Above(f64),
    /// Monotonically.
    Monotone,
    /// Monotonic everywhere.
    Periodic,
    /// At most 1.13 times as much as the element; the result is the element times a factor with
    /// absolute error.
    Gated,
}

/// The result for integers.
#[derive(Clone, Copy, Debug)]
enum Integers {
    /// Not defined for integers.
    Refused,
    /// The integer clamped to a range, from which all back ends compute it.
    Clamped(i64, i64),
    /// The integer itself, which is already rounded.
    Unchanged,
    /// An instruction that each back end has.
    By(fn(i64) -> i64),
}

/// A row, without the operation itself.
struct Row {
    name: &'static str,
    written: Written,
    by: By,
    change: Change,
    bottom: Bottom,
    float: fn(f64) -> f64,
    int: Integers,
    slope: fn() -> Slope,
    meaning: &'static str,
}

/// Declares the operations and their rows.
macro_rules! rows {
    ($($variant:ident $name:literal $written:ident$(($symbol:literal))? $by:ident $change:ident$(($bound:literal))? $bottom:ident $float:expr, $int:expr, $slope:expr, $meaning:literal;)*) => {
        /// Operations on one element.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum UnaryOp {
            $(#[doc = $meaning] $variant,)*
        }

        impl UnaryOp {
            /// Every operation, in the order of the table.
            pub const ALL: &'static [UnaryOp] = &[$(UnaryOp::$variant,)*];

            fn row(self) -> &'static Row {
                const ROWS: &[Row] = &[$(Row {
                    name: $name,
                    written: Written::$written$(($symbol))?,
                    by: By::$by,
                    change: Change::$change$(($bound))?,
                    bottom: Bottom::$bottom,
                    float: $float,
                    int: $int,
                    slope: || $slope,
                    meaning: $meaning,
                },)*];
                &ROWS[self as usize]
            }
        }
    };
}

rows! {
    Neg "neg" Operator("-") Instruction Exact Maybe |x| -x, Integers::By(i64::wrapping_neg),
        Number(-1.0),
        "each element negated";
    Abs "abs" Call Instruction Exact Never f64::abs, Integers::By(i64::wrapping_abs),
        X.then(UnaryOp::Sign),
        "the absolute value of each element";
    Exp "exp" Call Function Exponential Never f64::exp, Integers::Refused,
        Z,
        "e to the power of each element";
    Exp2 "exp2" Made Function Exponential Never f64::exp2, Integers::Refused,
        Z * Number(std::f64::consts::LN_2),
        "2 to the power of each element";
    Expm1 "expm1" Call Function Exponential Never f64::exp_m1, Integers::Refused,
        X.then(UnaryOp::Exp),
        "exp(x) - 1 for each element, accurate near 0";
    Log "log" Call Function Above(0.0) Maybe f64::ln, Integers::Refused,
        Number(1.0).over(X),
        "the natural logarithm of each element";
    Log1p "log1p" Call Function Above(-1.0) Maybe f64::ln_1p, Integers::Refused,
        Number(1.0).over(Number(1.0) + X),
        "log(1 + x) for each element, accurate near 0";
    Sqrt "sqrt" Call Instruction Above(0.0) Never f64::sqrt, Integers::Refused,
        Number(0.5).over(Z),
        "the square root of each element";
    Rsqrt "rsqrt" Call Function Above(0.0) Maybe |x| 1.0 / x.sqrt(), Integers::Refused,
        Number(-0.5) * Z.over(X),
        "1 / sqrt(x) for each element";
    Sin "sin" Call Function Periodic Never f64::sin, Integers::Refused,
        X.then(UnaryOp::Cos),
        "the sine of each element";
    Cos "cos" Call Function Periodic Never f64::cos, Integers::Refused,
        Number(-1.0) * X.then(UnaryOp::Sin),
        "the cosine of each element";
    Tanh "tanh" Call Function Monotone Never f64::tanh, Integers::Refused,
        Number(1.0) - Z * Z,
        "the hyperbolic tangent of each element";
    Erf "erf" Call Function Monotone Never erf, Integers::Refused,
        Number(std::f64::consts::FRAC_2_SQRT_PI) * (Number(-1.0) * X * X).then(UnaryOp::Exp),
        "the error function of each element";
    Sigmoid "sigmoid" Call Function Monotone Never |x| 1.0 / (1.0 + (-x).exp()), Integers::Refused,
        Z * (Number(1.0) - Z),
        "1 / (1 + exp(-x)) for each element";
    Softplus "softplus" Call Function Monotone Never |x| x.max(0.0) + (-x.abs()).exp().ln_1p(), Integers::Refused,
        X.then(UnaryOp::Sigmoid),
        "log(1 + exp(x)) for each element";
    // Not `x.max(0.0)`, which would drop NaN.
    Relu "relu" Call Function Exact Never |x| if x < 0.0 { 0.0 } else { x }, Integers::Clamped(0, i64::MAX),
        choose(CmpOp::Gt, X, Number(0.0), Number(1.0), Number(0.0)),
        "maximum(x, 0) for each element";
    Gelu "gelu" Call Function Gated Never gelu, Integers::Refused,
        slope::gelu(),
        "x * Phi(x) for each element, with erf";
    GeluTanh "gelu_tanh" Call Function Gated Never gelu_tanh, Integers::Refused,
        slope::gelu_tanh(),
        "the tanh approximation of gelu";
    Silu "silu" Call Function Gated Never silu, Integers::Refused,
        slope::silu(),
        "x * sigmoid(x) for each element";
    Floor "floor" Call Function Steps Maybe f64::floor, Integers::Unchanged,
        Number(0.0),
        "each element rounded down";
    Ceil "ceil" Call Function Steps Maybe f64::ceil, Integers::Unchanged,
        Number(0.0),
        "each element rounded up";
    Trunc "trunc" Call Function Steps Maybe f64::trunc, Integers::Unchanged,
        Number(0.0),
        "each element rounded towards 0";
    Round "round" Call Function Steps Maybe f64::round_ties_even, Integers::Unchanged,
        Number(0.0),
        "each element rounded to the nearest integer, ties to even";
    Sign "sign" Call Function Steps Never sign, Integers::Clamped(-1, 1),
        Number(0.0),
        "-1, 0 or 1 by the sign of each element; of a zero or NaN, itself";
    Not "not" Operator("not") Instruction Exact Maybe |x| f64::from(u8::from(x == 0.0)), Integers::By(|x| i64::from(x == 0)),
        Number(0.0),
        "logical negation";
}

/// GELU (Hendrycks & Gimpel 2016, arXiv:1606.08415).
fn gelu(x: f64) -> f64 {
    if x == f64::NEG_INFINITY { -0.0 } else { 0.5 * x * (1.0 + erf(x * std::f64::consts::FRAC_1_SQRT_2)) }
}

/// Its approximation with tanh, of the same paper.
fn gelu_tanh(x: f64) -> f64 {
    let inner = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044_715 * x * x * x);
    if x == f64::NEG_INFINITY { -0.0 } else { 0.5 * x * (1.0 + inner.tanh()) }
}

/// SiLU (Elfwing et al. 2017, arXiv:1702.03118).
fn silu(x: f64) -> f64 {
    if x == f64::NEG_INFINITY { -0.0 } else { x / (1.0 + (-x).exp()) }
}

fn sign(x: f64) -> f64 {
    if x.abs() > 0.0 { x.signum() } else { x }
}

impl UnaryOp {
    /// Name in programs and dumps.
    pub fn name(self) -> &'static str {
        self.row().name
    }

    /// The operation of this name.
    pub fn from_name(name: &str) -> Option<UnaryOp> {
        UnaryOp::ALL.iter().copied().find(|op| op.name() == name)
    }

    /// Is it written as a call of its name?
    pub fn is_call(self) -> bool {
        self.row().written == Written::Call
    }

    /// The operator in programs, if it has one.
    pub fn symbol(self) -> Option<&'static str> {
        self.row().written.symbol()
    }

    /// Is it computed by a function of vector IR, of its name? Else it is an instruction on every
    /// machine.
    pub fn is_function(self) -> bool {
        self.row().by == By::Function
    }

    /// Its error propagation.
    pub fn change(self) -> Change {
        self.row().change
    }

    /// Is no result `-inf`?
    pub fn is_above_bottom(self) -> bool {
        self.row().bottom == Bottom::Never
    }

    /// Is it defined for elements of this type?
    pub fn takes(self, elem: Elem) -> bool {
        match elem {
            Elem::Bool => self == UnaryOp::Not,
            Elem::I8 | Elem::I32 | Elem::I64 => self != UnaryOp::Not && self.eval_int(0).is_some(),
            Elem::F32 | Elem::BF16 | Elem::F16 => self != UnaryOp::Not,
        }
    }

    /// The result for a float, computed in `f64`.
    pub fn eval_f64(self, x: f64) -> f64 {
        (self.row().float)(x)
    }

    /// Its derivative.
    pub fn slope(self) -> Slope {
        (self.row().slope)()
    }

    /// The result for an `f32`: the `f64` result, rounded.
    pub fn eval_f32(self, x: f32) -> f32 {
        self.eval_f64(f64::from(x)) as f32
    }

    /// The result for an integer or boolean; `None` if it is only defined for floats.
    pub fn eval_int(self, x: i64) -> Option<i64> {
        match self.row().int {
            Integers::Refused => None,
            Integers::Clamped(low, high) => Some(x.clamp(low, high)),
            Integers::Unchanged => Some(x),
            Integers::By(f) => Some(f(x)),
        }
    }

    /// The range that integers are clamped to, if that is its only effect on them; a `None` bound
    /// is unlimited.
    pub fn integer_range(self) -> Option<[Option<i64>; 2]> {
        match self.row().int {
            Integers::Clamped(low, high) => {
                Some([Some(low).filter(|n| *n != i64::MIN), Some(high).filter(|n| *n != i64::MAX)])
            }
            Integers::Unchanged => Some([None, None]),
            Integers::Refused | Integers::By(_) => None,
        }
    }
}

impl fmt::Display for UnaryOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Family for UnaryOp {
    const MEMBERS: &'static [UnaryOp] = UnaryOp::ALL;

    fn operation(self) -> &'static str {
        self.name()
    }

    fn meaning(self) -> &'static str {
        self.row().meaning
    }
}
