//! Operations on two elements, one row each: everything but their code generation.
//!
//! In: nothing. Out: [`BinaryOp`] and its rows, which define the names in programs and dumps, the
//! operand types, the reference results, and the operation reference. The columns of a row:
//!
//! * variant and name in dumps;
//! * its syntax ([`Written`]): an operator, or a call, possibly of another name;
//! * does it accept numbers, integers or booleans ([`Takes`])?
//! * does `x op y` have the same bits as `y op x` ([`Order`])?
//! * the result for floats, and for integers or booleans;
//! * the derivatives with respect to the first and to the second, expressions of both elements X
//!   and Y and of the result Z ([`Slope`]);
//! * its meaning, in one line.

use std::fmt;

use super::slope::Slope::{Number, X, Y, Z};
use super::slope::{self, Slope, chosen};
use super::{CmpOp, UnaryOp, Written};
use crate::shape::Elem;
use crate::table::Family;

/// The elements that an operation is defined for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Takes {
    Numbers,
    Integers,
    Truth,
}

/// Does the order of the operands matter?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    /// No bit of a result depends on it.
    Free,
    /// It does. (For `max` and `min` it selects between zeros of different signs, and between
    /// NaNs.)
    Fixed,
}

/// A row, without the operation itself.
struct Row {
    name: &'static str,
    written: Written,
    takes: Takes,
    order: Order,
    float: fn(f64, f64) -> f64,
    int: fn(i64, i64) -> i64,
    slopes: fn() -> [Slope; 2],
    meaning: &'static str,
}

/// Declares the operations and their rows.
macro_rules! rows {
    ($($(#[$note:meta])* $variant:ident $name:literal $written:ident($symbol:literal) $takes:ident $order:ident $float:expr, $int:expr, $slopes:expr, $meaning:literal;)*) => {
        /// Operations on two elements of one type, with a result of that type.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum BinaryOp {
            $(#[doc = $meaning] $(#[$note])* $variant,)*
        }

        impl BinaryOp {
            /// Every operation, in the order of the table.
            pub const ALL: &'static [BinaryOp] = &[$(BinaryOp::$variant,)*];

            fn row(self) -> &'static Row {
                const ROWS: &[Row] = &[$(Row {
                    name: $name,
                    written: Written::$written($symbol),
                    takes: Takes::$takes,
                    order: Order::$order,
                    float: $float,
                    int: $int,
                    slopes: || $slopes,
                    meaning: $meaning,
                },)*];
                &ROWS[self as usize]
            }
        }
    };
}

rows! {
    Add "add" Operator("+") Numbers Free |x, y| x + y, i64::wrapping_add,
        [Number(1.0), Number(1.0)],
        "the sum; integers wrap";
    Sub "sub" Operator("-") Numbers Fixed |x, y| x - y, i64::wrapping_sub,
        [Number(1.0), Number(-1.0)],
        "the difference; integers wrap";
    Mul "mul" Operator("*") Numbers Free |x, y| x * y, i64::wrapping_mul,
        [Y, X],
        "the product; integers wrap";
    Div "div" Operator("/") Numbers Fixed |x, y| x / y, divide,
        [Number(1.0).over(Y), Number(-1.0) * Z.over(Y)],
        "the quotient; integers round down, and a zero divisor gives 0";
    /// For floats it is exact, rounded once, and a zero also has the divisor's sign; a finite
    /// number by an infinite divisor is itself, or that infinity if the signs differ; by 0, or of
    /// an infinity, it is NaN. An integer zero divisor gives 0.
    Rem "rem" Operator("%") Numbers Fixed remainder, integer_remainder,
        [Number(1.0), Number(-1.0) * X.over(Y).then(UnaryOp::Floor)],
        "the remainder with the sign of the divisor";
    Pow "pow" CallOf("pow") Numbers Fixed f64::powf, power,
        [slope::power_of_base(), slope::power_of_exponent()],
        "x to the power of y";
    Max "max" CallOf("maximum") Numbers Fixed max_nan, i64::max,
        [chosen(CmpOp::Gt, X, Y), chosen(CmpOp::Gt, Y, X)],
        "the greater; NaN if either is NaN";
    Min "min" CallOf("minimum") Numbers Fixed min_nan, i64::min,
        [chosen(CmpOp::Lt, X, Y), chosen(CmpOp::Lt, Y, X)],
        "the lesser; NaN if either is NaN";
    And "and" Operator("and") Truth Free |x, y| truth(x != 0.0 && y != 0.0), |x, y| i64::from(x != 0 && y != 0),
        [Number(0.0), Number(0.0)],
        "true where both are";
    Or "or" Operator("or") Truth Free |x, y| truth(x != 0.0 || y != 0.0), |x, y| i64::from(x != 0 || y != 0),
        [Number(0.0), Number(0.0)],
        "true where either is";
    BitAnd "bitwise_and" CallOf("bitwise_and") Integers Free nothing, |x, y| x & y,
        [Number(0.0), Number(0.0)],
        "the bits that both have; negative numbers in two's complement";
    BitOr "bitwise_or" CallOf("bitwise_or") Integers Free nothing, |x, y| x | y,
        [Number(0.0), Number(0.0)],
        "the bits that either has";
    BitXor "bitwise_xor" CallOf("bitwise_xor") Integers Free nothing, |x, y| x ^ y,
        [Number(0.0), Number(0.0)],
        "the bits that one of both has";
    /// The result is 0 if the count is negative or at least the bit width.
    ShiftLeft "left_shift" CallOf("left_shift") Integers Fixed nothing, shifted_left,
        [Number(0.0), Number(0.0)],
        "x with its bits shifted left by y, zeros coming in";
    /// All bits are the sign bit if the count is negative or at least the bit width.
    ShiftRight "right_shift" CallOf("right_shift") Integers Fixed nothing, shifted_right,
        [Number(0.0), Number(0.0)],
        "x with its bits shifted right by y, the sign coming in";
}

/// Placeholder: not defined for floats.
fn nothing(_: f64, _: f64) -> f64 {
    f64::NAN
}

/// As if of unlimited width: excess bits are dropped when the result is wrapped.
fn shifted_left(x: i64, y: i64) -> i64 {
    u32::try_from(y).ok().and_then(|n| x.checked_shl(n)).unwrap_or(0)
}

fn shifted_right(x: i64, y: i64) -> i64 {
    x >> u32::try_from(y).map_or(63, |n| n.min(63))
}

fn truth(x: bool) -> f64 {
    f64::from(u8::from(x))
}

/// Maximum that propagates NaN.
fn max_nan(x: f64, y: f64) -> f64 {
    if x.is_nan() || x > y { x } else { y }
}

/// Minimum that propagates NaN.
fn min_nan(x: f64, y: f64) -> f64 {
    if x.is_nan() || x < y { x } else { y }
}

fn remainder(x: f64, y: f64) -> f64 {
    // Exact, with the sign of `x`.
    let r = x % y;
    match (r == 0.0, (r < 0.0) != (y < 0.0)) {
        (true, _) => 0f64.copysign(y),
        (false, true) => r + y,
        (false, false) => r,
    }
}

fn divide(x: i64, y: i64) -> i64 {
    if y == 0 {
        return 0;
    }
    let (q, r) = (x.wrapping_div(y), x.wrapping_rem(y));
    if r != 0 && (r < 0) != (y < 0) { q.wrapping_sub(1) } else { q }
}

fn integer_remainder(x: i64, y: i64) -> i64 {
    if y == 0 {
        return 0;
    }
    let r = x.wrapping_rem(y);
    if r != 0 && (r < 0) != (y < 0) { r.wrapping_add(y) } else { r }
}

/// By repeated squaring, for exponents of any size; a negative exponent is treated as 0.
fn power(x: i64, y: i64) -> i64 {
    let (mut result, mut base, mut rest) = (1i64, x, y.max(0));
    while rest > 0 {
        if rest % 2 == 1 {
            result = result.wrapping_mul(base);
        }
        base = base.wrapping_mul(base);
        rest /= 2;
    }
    result
}

impl BinaryOp {
    /// Name in dumps.
    pub fn name(self) -> &'static str {
        self.row().name
    }

    /// The operation of this name.
    pub fn from_name(name: &str) -> Option<BinaryOp> {
        BinaryOp::ALL.iter().copied().find(|op| op.name() == name)
    }

    /// The operator in programs, if it has one.
    pub fn symbol(self) -> Option<&'static str> {
        self.row().written.symbol()
    }

    /// The name in calls, if it is written as a call.
    pub fn call(self) -> Option<&'static str> {
        match self.row().written {
            Written::CallOf(name) => Some(name),
            Written::Call | Written::Operator(_) | Written::Made => None,
        }
    }

    /// Is it only defined for booleans?
    pub fn is_logical(self) -> bool {
        self.row().takes == Takes::Truth
    }

    /// Is it defined for elements of this type?
    pub fn takes(self, elem: Elem) -> bool {
        match self.row().takes {
            Takes::Numbers => elem != Elem::Bool,
            Takes::Integers => elem != Elem::Bool && !elem.is_float(),
            Takes::Truth => elem == Elem::Bool,
        }
    }

    /// Is it only defined for integers?
    pub fn is_of_bits(self) -> bool {
        self.row().takes == Takes::Integers
    }

    /// The result for floats, computed in `f64`. `and` and `or` treat anything but 0 as true.
    pub fn eval_f64(self, x: f64, y: f64) -> f64 {
        (self.row().float)(x, y)
    }

    /// Its derivatives with respect to the first and to the second element.
    pub fn slopes(self) -> [Slope; 2] {
        (self.row().slopes)()
    }

    /// The result for `f32`s: the `f64` result, rounded, which for `+ - * /` is the IEEE 754 `f32`
    /// result.
    pub fn eval_f32(self, x: f32, y: f32) -> f32 {
        self.eval_f64(f64::from(x), f64::from(y)) as f32
    }

    /// The result for integers (before wrapping to the element type) or booleans.
    pub fn eval_int(self, x: i64, y: i64) -> i64 {
        (self.row().int)(x, y)
    }

    /// Is `x op y` the same bits as `y op x`?
    pub fn is_commutative(self) -> bool {
        self.row().order == Order::Free
    }
}

impl fmt::Display for BinaryOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Family for BinaryOp {
    const MEMBERS: &'static [BinaryOp] = BinaryOp::ALL;

    fn operation(self) -> &'static str {
        self.name()
    }

    fn meaning(self) -> &'static str {
        self.row().meaning
    }
}
