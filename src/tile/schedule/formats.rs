//! Formats of packed weights: the caller's choice, with exceptions for some parameters.
//!
//! In: options. Out: the format of each parameter. It must not know how a format is packed.

use std::collections::BTreeSet;

use crate::shape::Elem;

/// Format of packed weights. Computation stays in `f32`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum WeightFormat {
    /// Unchanged.
    #[default]
    F32,
    /// Rounded to `bf16`.
    Bf16,
    /// Integers from -127 to 127, with a scale per column and 32 k indices.
    Int8,
    /// Integers from -7 to 7, with a scale per column and 32 k indices.
    Int4,
}

impl WeightFormat {
    /// Every format.
    pub const ALL: [WeightFormat; 4] = [WeightFormat::F32, WeightFormat::Bf16, WeightFormat::Int8, WeightFormat::Int4];

    /// Element type in the packed area.
    pub(super) fn elem(self) -> Elem {
        match self {
            WeightFormat::F32 => Elem::F32,
            WeightFormat::Bf16 => Elem::BF16,
            WeightFormat::Int8 | WeightFormat::Int4 => Elem::I8,
        }
    }

    /// Width of the integers, if it has integers.
    pub(super) fn bits(self) -> Option<u8> {
        match self {
            WeightFormat::F32 | WeightFormat::Bf16 => None,
            WeightFormat::Int8 => Some(8),
            WeightFormat::Int4 => Some(4),
        }
    }
}

/// The format of packed weights, and the exceptions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WeightChoice {
    /// The format of all weights that are not in `kept`.
    pub format: WeightFormat,
    /// Parameters that are not converted: names as in the IR, with `*` for the layers of an array.
    pub kept: BTreeSet<String>,
}

impl From<WeightFormat> for WeightChoice {
    fn from(format: WeightFormat) -> WeightChoice {
        WeightChoice { format, kept: BTreeSet::new() }
    }
}

impl WeightChoice {
    /// The format of an `f32` parameter when it is packed.
    pub fn format_of(&self, parameter: &str) -> WeightFormat {
        if self.kept.contains(parameter) { WeightFormat::F32 } else { self.format }
    }
}
