//! The element types of the language.

use std::fmt;

/// Type of one element of a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Elem {
    /// IEEE 754 binary32.
    F32,
    /// bfloat16: the upper half of an `f32`.
    BF16,
    /// IEEE 754 binary16.
    F16,
    /// 8-bit two's complement integer.
    I8,
    /// 32-bit two's complement integer.
    I32,
    /// 64-bit two's complement integer.
    I64,
    /// Truth value, one byte, 0 or 1.
    Bool,
}

impl Elem {
    /// Every element type, in the order of the language reference.
    pub const ALL: [Elem; 7] = [Elem::F32, Elem::BF16, Elem::F16, Elem::I8, Elem::I32, Elem::I64, Elem::Bool];

    /// Name in programs and dumps.
    pub fn name(self) -> &'static str {
        match self {
            Elem::F32 => "f32",
            Elem::BF16 => "bf16",
            Elem::F16 => "f16",
            Elem::I8 => "i8",
            Elem::I32 => "i32",
            Elem::I64 => "i64",
            Elem::Bool => "bool",
        }
    }

    /// The type with this name, if there is one.
    pub fn from_name(name: &str) -> Option<Elem> {
        Elem::ALL.into_iter().find(|e| e.name() == name)
    }

    /// Size of an element in bytes.
    pub fn size(self) -> u64 {
        match self {
            Elem::F32 | Elem::I32 => 4,
            Elem::BF16 | Elem::F16 => 2,
            Elem::I8 | Elem::Bool => 1,
            Elem::I64 => 8,
        }
    }

    /// The type in which loaded elements are computed: small floats as `f32`, `i8` as `i32`.
    pub fn computed(self) -> Elem {
        match self {
            Elem::F32 | Elem::BF16 | Elem::F16 => Elem::F32,
            Elem::I8 | Elem::I32 => Elem::I32,
            Elem::I64 => Elem::I64,
            Elem::Bool => Elem::Bool,
        }
    }

    /// Is this a floating-point type?
    pub fn is_float(self) -> bool {
        matches!(self, Elem::F32 | Elem::BF16 | Elem::F16)
    }

    /// Is this an integer type (not `bool`)?
    pub fn is_int(self) -> bool {
        matches!(self, Elem::I8 | Elem::I32 | Elem::I64)
    }

    /// Type in which sums and matmuls over this type accumulate, and result type of an `i8` matmul:
    /// `f32` for floats, `i32` for `i8`, the type itself for other integers.
    pub fn accumulator(self) -> Elem {
        match self {
            Elem::F32 | Elem::BF16 | Elem::F16 => Elem::F32,
            Elem::I8 | Elem::I32 | Elem::Bool => Elem::I32,
            Elem::I64 => Elem::I64,
        }
    }
}

impl fmt::Display for Elem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
