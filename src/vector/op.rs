//! The operations of elementary functions, declared once.
//!
//! [`Op`] carries the attributes; the table below it has a row for each (the columns are explained in `crate::table`): name,
//! operands, what a machine must have for it, type rule, meaning. Floats follow IEEE 754, rounding to nearest with ties to
//! even; subnormals count. Operands are `a`, `b` and `c`.

#![warn(clippy::wildcard_enum_match_arm, reason = "a new operation is met by an error here")]

use super::{Features, Type, rules};
use crate::ssa::Effects;
use crate::table::{Attributes, Given, operations};

/// What a machine must have for an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    /// What every machine has. (`fma` and `fnma` are expanded where there is no such instruction.)
    Plain,
    /// Rounding to integers.
    Round,
    /// Scaling by powers of two.
    Scale,
}

impl Needs {
    /// As features.
    pub fn features(self) -> Features {
        match self {
            Needs::Plain => Features::PLAIN,
            Needs::Round => Features { round: true, ..Features::PLAIN },
            Needs::Scale => Features { scale: true, ..Features::PLAIN },
        }
    }
}

/// What is done to each lane.
#[derive(Clone, Debug, PartialEq)]
pub enum Op {
    /// The sum.
    Add,
    /// The difference.
    Sub,
    /// The product.
    Mul,
    /// The quotient.
    Div,
    /// `a * b + c`, rounded once where the machine can, else twice.
    Fma,
    /// `c - a * b`, rounded once where the machine can, else twice.
    Fnma,
    /// `a < b ? a : b`.
    Min,
    /// `a > b ? a : b`.
    Max,
    /// The square root.
    Sqrt,
    /// The opposite.
    Neg,
    /// Without its sign.
    Abs,
    /// With the sign of a negative number.
    NegAbs,
    /// The magnitude of one with the sign of the other.
    CopySign,
    /// The largest integer at most the operand.
    Floor,
    /// What is left above [`Op::Floor`].
    Fraction,
    /// Times a power of two.
    Scale,
    /// The nearest integer.
    Nearest,
    /// Rounded towards 0.
    Truncate,
    /// The nearest float of an integer.
    ToFloat,
    /// The bits of a float.
    Bits,
    /// The float of these bits.
    FromBits,
    /// The sum of integers, wrapping.
    AddI,
    /// Their difference, wrapping.
    SubI,
    /// The low half of their product.
    MulI,
    /// The high half of their product, unsigned.
    MulHigh,
    /// Bitwise and.
    AndI,
    /// Bitwise exclusive or.
    XorI,
    /// Shifted left by a constant.
    ShiftLeft,
    /// Shifted right by a constant, arithmetically.
    ShiftSigned,
    /// Shifted right by a constant, logically.
    ShiftRight,
    /// Is a float less?
    Less,
    /// Are floats equal?
    Equal,
    /// Is a signed integer less?
    LessI,
    /// One of two floats.
    Select,
    /// One of two integers.
    SelectI,
    /// The same 32 bits in every lane, of type `f32` or `i32`.
    Const(u32),
    /// `c[0] + c[1] a + c[2] a^2 + ..` by Horner's scheme, each step a `fma` (or a product and a sum).
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

    /// The types that it takes and gives, where its rule allows one choice of them.
    pub fn signature(&self) -> Option<(Vec<Type>, Type)> {
        let count = u32::try_from(self.info().operands.len()).ok()?;
        let choice = |n: usize| (0..count).map(|i| Type::ALL[n / Type::ALL.len().pow(i) % Type::ALL.len()]).collect();
        let choices = (0..Type::ALL.len().pow(count)).map(choice);
        let mut taken = choices.filter_map(|operands: Vec<Type>| {
            let types: Vec<&Type> = operands.iter().collect();
            let result = self.rule(Given { types: &types, declared: None }).ok()??;
            Some((operands, result))
        });
        let first = taken.next()?;
        taken.next().is_none().then_some(first)
    }
}
