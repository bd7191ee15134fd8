//! The operations of elementary functions, declared once.
//!
//! [`Op`] carries the attributes; the table below it has a row for each (the columns are explained
//! in `crate::table`): name, operands, required feature, type rule, meaning. Floats follow IEEE
//! 754, rounding to nearest with ties to even, with subnormals. Operands are `a`, `b` and `c`.

#![warn(clippy::wildcard_enum_match_arm, reason = "a new operation is reported as an error here")]

use super::{Features, Type, rules};
use crate::ssa::Effects;
use crate::table::{Attributes, OperandTypes, operations};

/// The feature that an operation requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    /// None. (`fma` and `fnma` are expanded on machines without them.)
    Plain,
    /// [`Features::round`].
    Round,
    /// [`Features::scale`].
    Scale,
}

impl Needs {
    /// As a feature set.
    pub fn features(self) -> Features {
        match self {
            Needs::Plain => Features::PLAIN,
            Needs::Round => Features { round: true, ..Features::PLAIN },
            Needs::Scale => Features { scale: true, ..Features::PLAIN },
        }
    }
}

/// An operation on each lane.
#[derive(Clone, Debug, PartialEq)]
pub enum Op {
    /// `a + b`.
    Add,
    /// `a - b`.
    Sub,
    /// `a * b`.
    Mul,
    /// `a / b`.
    Div,
    /// `a * b + c`, rounded once with FMA, else twice.
    Fma,
    /// `c - a * b`, rounded once with FMA, else twice.
    Fnma,
    /// `a < b ? a : b`.
    Min,
    /// `a > b ? a : b`.
    Max,
    /// Square root, correctly rounded.
    Sqrt,
    /// `-a`, of zeros and NaN too.
    Neg,
    /// The magnitude of `a`.
    Abs,
    /// `-|a|`.
    NegAbs,
    /// The magnitude of `a` with the sign of `b`.
    CopySign,
    /// The largest integer at most the operand.
    Floor,
    /// `a - floor(a)`, rounded down.
    Fraction,
    /// `a * 2^floor(b)`, rounded once.
    Scale,
    /// The nearest integer, ties to even.
    Nearest,
    /// Converts to an integer, rounding towards 0.
    Truncate,
    /// The nearest float of an integer.
    ToFloat,
    /// The bits of a float.
    Bits,
    /// The float of these bits.
    FromBits,
    /// The sum of integers, wrapping.
    AddI,
    /// The difference of integers, wrapping.
    SubI,
    /// The low half of the product of integers.
    MulI,
    /// The high half of the product of unsigned integers.
    MulHigh,
    /// Bitwise and of integers.
    AndI,
    /// Bitwise exclusive or of integers.
    XorI,
    /// Shifted left by a constant.
    ShiftLeft,
    /// Shifted right by a constant, arithmetically.
    ShiftSigned,
    /// Shifted right by a constant, logically.
    ShiftRight,
    /// Is a float less?
    Less,
    /// `a == b` of floats.
    Equal,
    /// Is a signed integer less?
    LessI,
    /// `a ? b : c` of floats.
    Select,
    /// `a ? b : c` of integers.
    SelectI,
    /// The same 32 bits in every lane, of type `f32` or `i32`.
    Const(u32),
    /// `c[0] + c[1] a + c[2] a^2 + ..` by Horner's scheme, each step a `fma` (or a product and a
    /// sum).
    Polynomial(Vec<f32>),
    /// A function of the library.
    Call(String),
}

const NONE: Effects = Effects::NONE;

operations! {
    Op of Needs, types Type;

    Add "add", ["a", "b"], [], Plain NONE, Computed rules::floats, "`a + b`";
    Sub "sub", ["a", "b"], [], Plain NONE, Computed rules::floats, "`a - b`";
    Mul "mul", ["a", "b"], [], Plain NONE, Computed rules::floats, "`a * b`";
    Div "div", ["a", "b"], [], Plain NONE, Computed rules::floats, "`a / b`";
    Fma "fma", ["a", "b", "c"], [], Plain NONE, Computed rules::floats,
        "`a * b + c`, rounded once where the machine can, else twice";
    Fnma "fnma", ["a", "b", "c"], [], Plain NONE, Computed rules::floats,
        "`c - a * b`, rounded once where the machine can, else twice";
    Min "min", ["a", "b"], [], Plain NONE, Computed rules::floats, "`a < b ? a : b`: `b` where either is NaN";
    Max "max", ["a", "b"], [], Plain NONE, Computed rules::floats, "`a > b ? a : b`: `b` where either is NaN";
    Sqrt "sqrt", ["a"], [], Plain NONE, Computed rules::floats, "the square root";
    Neg "neg", ["a"], [], Plain NONE, Computed rules::floats, "`-a`";
    Abs "abs", ["a"], [], Plain NONE, Computed rules::floats, "`a` without its sign";
    NegAbs "neg_abs", ["a"], [], Plain NONE, Computed rules::floats, "`-|a|`";
    CopySign "copysign", ["a", "b"], [], Plain NONE, Computed rules::floats, "the magnitude of `a` with the sign of `b`";
    Floor "floor", ["a"], [], Round NONE, Computed rules::floats, "the largest integer at most `a`";
    Fraction "fraction", ["a"], [], Scale NONE, Computed rules::floats,
        "`a - floor(a)`, rounded down, so that it is below 1; -0 of integers, 0 of infinities";
    Scale "scale", ["a", "b"], [], Scale NONE, Computed rules::floats, "`a * 2^floor(b)`, rounded once";
    Nearest "nearest", ["a"], [], Round NONE, Computed rules::float_to_int,
        "the nearest integer, ties to even; the least `i32` of NaN and of what does not fit";
    Truncate "truncate", ["a"], [], Plain NONE, Computed rules::float_to_int,
        "rounded towards 0; the nearest `i32` of what does not fit, 0 of NaN";
    ToFloat "to_float", ["a"], [], Plain NONE, Computed rules::int_to_float, "the nearest float of an integer";
    Bits "bits", ["a"], [], Plain NONE, Computed rules::float_to_int, "the bits of a float";
    FromBits "from_bits", ["a"], [], Plain NONE, Computed rules::int_to_float, "the float of these bits";
    AddI "iadd", ["a", "b"], [], Plain NONE, Computed rules::ints, "`a + b`, wrapping";
    SubI "isub", ["a", "b"], [], Plain NONE, Computed rules::ints, "`a - b`, wrapping";
    MulI "imul", ["a", "b"], [], Plain NONE, Computed rules::ints, "`a * b`, wrapping: the low 32 bits of the product";
    MulHigh "umulh", ["a", "b"], [], Plain NONE, Computed rules::ints,
        "the high 32 bits of the product of `a` and `b` as unsigned integers";
    AndI "iand", ["a", "b"], [], Plain NONE, Computed rules::ints, "bitwise and";
    XorI "ixor", ["a", "b"], [], Plain NONE, Computed rules::ints, "bitwise exclusive or";
    ShiftLeft "shl", ["a", "b"], [], Plain NONE, Computed rules::ints, "`a` shifted left by the constant `b`";
    ShiftSigned "ashr", ["a", "b"], [], Plain NONE, Computed rules::ints,
        "`a` shifted right by the constant `b`, filled with the sign";
    ShiftRight "lshr", ["a", "b"], [], Plain NONE, Computed rules::ints,
        "`a` shifted right by the constant `b`, filled with zeros";
    Less "lt", ["a", "b"], [], Plain NONE, Computed rules::compare_floats, "`a < b`";
    Equal "eq", ["a", "b"], [], Plain NONE, Computed rules::compare_floats, "`a == b`";
    LessI "ilt", ["a", "b"], [], Plain NONE, Computed rules::compare_ints, "`a < b`, signed";
    Select "select", ["a", "b", "c"], [], Plain NONE, Computed rules::select_floats, "`a ? b : c`";
    SelectI "iselect", ["a", "b", "c"], [], Plain NONE, Computed rules::select_ints, "`a ? b : c`";

    Const(bits) "const", [], own, Plain NONE, Declared rules::constant, "the same number in every lane";
    Polynomial(coefficients) "polynomial", ["a"], own, Plain NONE, Computed rules::polynomial,
        "a polynomial of `a`, lowest coefficient first, by Horner's scheme";
    Call(name) "call", ["x*"], own, Plain NONE, Declared rules::call, "a function of the library";
}

impl Op {
    /// Name in the text form.
    pub fn name(&self) -> &'static str {
        self.info().name
    }

    /// Is it a shift, whose second operand is a constant?
    pub fn is_shift(&self) -> bool {
        matches!(self, Op::ShiftLeft | Op::ShiftSigned | Op::ShiftRight)
    }

    /// The operation of this name without attributes.
    pub fn plain(name: &str) -> Option<Op> {
        Op::read(name, &mut Attributes::none(name)).ok().flatten()
    }

    /// Operand types and result type, if its rule allows only one choice.
    pub fn signature(&self) -> Option<(Vec<Type>, Type)> {
        let count = u32::try_from(self.info().operands.len()).ok()?;
        let choice = |n: usize| (0..count).map(|i| Type::ALL[n / Type::ALL.len().pow(i) % Type::ALL.len()]).collect();
        let choices = (0..Type::ALL.len().pow(count)).map(choice);
        let mut taken = choices.filter_map(|operands: Vec<Type>| {
            let types: Vec<&Type> = operands.iter().collect();
            let result = self.rule(OperandTypes { types: &types, declared: None }).ok()??;
            Some((operands, result))
        });
        let first = taken.next()?;
        taken.next().is_none().then_some(first)
    }
}
