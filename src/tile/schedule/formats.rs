//! What packed weights are kept as: the caller's choice, for all parameters or all but some.
//!
//! In: options. Out: for each parameter its format. What it must not know: how a format is packed.

use std::collections::BTreeSet;

use crate::shape::Elem;

/// What packed weights are kept as. Computation stays in `f32`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum WeightFormat {
    /// As they are.
    #[default]
    F32,
    /// The nearest `bf16`.
    Bf16,
    /// Integers from -127 to 127, times a scale for each column of 32 steps.
    Int8,
    /// Integers from -7 to 7, times a scale for each column of 32 steps.
    Int4,
}

impl WeightFormat {
    /// Every format.
    pub const ALL: [WeightFormat; 4] = [WeightFormat::F32, WeightFormat::Bf16, WeightFormat::Int8, WeightFormat::Int4];

    /// Elements in the packed area.
    pub(super) fn elem(self) -> Elem {
        match self {
            WeightFormat::F32 => Elem::F32,
            WeightFormat::Bf16 => Elem::BF16,
            WeightFormat::Int8 | WeightFormat::Int4 => Elem::I8,
        }
    }

    /// Bits of the integers, if it has them.
    pub(super) fn bits(self) -> Option<u8> {
        match self {
            WeightFormat::F32 | WeightFormat::Bf16 => None,
            WeightFormat::Int8 => Some(8),
            WeightFormat::Int4 => Some(4),
        }
    }
}

/// What packed weights are kept as, and which stay as they are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WeightChoice {
    /// What they are kept as.
    pub format: WeightFormat,
    /// The parameters that stay as they are: names as in the IR, with `*` for the layers of an array.
    pub kept: BTreeSet<String>,
}

impl From<WeightFormat> for WeightChoice {
    fn from(format: WeightFormat) -> WeightChoice {
        WeightChoice { format, kept: BTreeSet::new() }
    }
}

impl WeightChoice {
    /// What a parameter of `f32` is kept as where it is packed.
    pub fn of(&self, parameter: &str) -> WeightFormat {
        if self.kept.contains(parameter) { WeightFormat::F32 } else { self.format }
    }
}
