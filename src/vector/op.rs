//! The operations of the vector IR: one row each, from which the text form, the verifier and the list are made.
//!
//! Floats follow IEEE 754, rounding to nearest with ties to even; subnormals count.

use super::{Features, Type};

/// The types of operands and of the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Signature {
    /// Of the operands, in order.
    pub operands: &'static [Type],
    /// Of the result.
    pub result: Type,
}

/// Declares the operations without attributes: variant, name, operands, result, meaning.
macro_rules! operations {
    ($($variant:ident $name:literal ($($operand:ident)*) $result:ident $meaning:literal;)*) => {
        /// What is done to each lane.
        #[derive(Clone, Debug, PartialEq)]
        pub enum Op {
            $(#[doc = $meaning] $variant,)*
            /// `const`: the same 32 bits in every lane, of type `f32` or `i32`.
            Const(u32),
            /// `polynomial`: `c[0] + c[1] a + c[2] a^2 + ..` by Horner's scheme, each step a `fma` (or a product and a sum).
            Polynomial(Vec<f32>),
            /// `call`: a function of the library.
            Call(String),
        }

        impl Op {
            /// Every operation without attributes.
            pub const PLAIN: &'static [Op] = &[$(Op::$variant,)*];

            /// Name in the text form.
            pub fn name(&self) -> &'static str {
                match self {
                    $(Op::$variant => $name,)*
                    Op::Const(_) => "const",
                    Op::Polynomial(_) => "polynomial",
                    Op::Call(_) => "call",
                }
            }

            /// What it means, in a line.
            pub fn meaning(&self) -> &'static str {
                match self {
                    $(Op::$variant => $meaning,)*
                    Op::Const(_) => "the same number in every lane",
                    Op::Polynomial(_) => "a polynomial of `a`, lowest coefficient first, by Horner's scheme",
                    Op::Call(_) => "a function of the library",
                }
            }

            /// The types, where the operation alone decides them: of `const` and `call` something else does.
            pub fn signature(&self) -> Option<Signature> {
                match self {
                    $(Op::$variant => {
                        Some(Signature { operands: &[$(Type::$operand,)*], result: Type::$result })
                    })*
                    Op::Polynomial(_) => Some(Signature { operands: &[Type::F32], result: Type::F32 }),
                    Op::Const(_) | Op::Call(_) => None,
                }
            }
        }
    };
}

operations! {
    Add "add" (F32 F32) F32 "`a + b`";
    Sub "sub" (F32 F32) F32 "`a - b`";
    Mul "mul" (F32 F32) F32 "`a * b`";
    Div "div" (F32 F32) F32 "`a / b`";
    Fma "fma" (F32 F32 F32) F32 "`a * b + c`, rounded once where the machine can, else twice";
    Fnma "fnma" (F32 F32 F32) F32 "`c - a * b`, rounded once where the machine can, else twice";
    Min "min" (F32 F32) F32 "`a < b ? a : b`: `b` where either is NaN";
    Max "max" (F32 F32) F32 "`a > b ? a : b`: `b` where either is NaN";
    Sqrt "sqrt" (F32) F32 "the square root";
    Neg "neg" (F32) F32 "`-a`";
    Abs "abs" (F32) F32 "`a` without its sign";
    NegAbs "neg_abs" (F32) F32 "`-|a|`";
    CopySign "copysign" (F32 F32) F32 "the magnitude of `a` with the sign of `b`";
    Floor "floor" (F32) F32 "the largest integer at most `a`; needs `round`";
    Fraction "fraction" (F32) F32 "`a - floor(a)`, rounded down, so that it is below 1; -0 of integers, 0 of infinities; needs `scale`";
    Scale "scale" (F32 F32) F32 "`a * 2^floor(b)`, rounded once; needs `scale`";
    Nearest "nearest" (F32) I32 "the nearest integer, ties to even; the least `i32` of NaN and of what does not fit; needs `round`";
    Truncate "truncate" (F32) I32 "rounded towards 0; the nearest `i32` of what does not fit, 0 of NaN";
    ToFloat "to_float" (I32) F32 "the nearest float of an integer";
    Bits "bits" (F32) I32 "the bits of a float";
    FromBits "from_bits" (I32) F32 "the float of these bits";
    AddI "iadd" (I32 I32) I32 "`a + b`, wrapping";
    SubI "isub" (I32 I32) I32 "`a - b`, wrapping";
    MulI "imul" (I32 I32) I32 "`a * b`, wrapping: the low 32 bits of the product";
    MulHigh "umulh" (I32 I32) I32 "the high 32 bits of the product of `a` and `b` as unsigned integers";
    AndI "iand" (I32 I32) I32 "bitwise and";
    XorI "ixor" (I32 I32) I32 "bitwise exclusive or";
    ShiftLeft "shl" (I32 I32) I32 "`a` shifted left by the constant `b`";
    ShiftSigned "ashr" (I32 I32) I32 "`a` shifted right by the constant `b`, the sign coming in";
    ShiftRight "lshr" (I32 I32) I32 "`a` shifted right by the constant `b`, zeros coming in";
    Less "lt" (F32 F32) Mask "`a < b`";
    Equal "eq" (F32 F32) Mask "`a == b`";
    LessI "ilt" (I32 I32) Mask "`a < b`, signed";
    Select "select" (Mask F32 F32) F32 "`a ? b : c`";
    SelectI "iselect" (Mask I32 I32) I32 "`a ? b : c`";
}

impl Op {
    /// What a machine must have for it. (`fma` is expanded where there is none.)
    pub fn needs(&self) -> Features {
        match self {
            Op::Floor | Op::Nearest => Features { round: true, ..Features::PLAIN },
            Op::Fraction | Op::Scale => Features { scale: true, ..Features::PLAIN },
            _ => Features::PLAIN,
        }
    }

    /// The operation of this name without attributes.
    pub fn plain(name: &str) -> Option<Op> {
        Op::PLAIN.iter().find(|op| op.name() == name).cloned()
    }
}
