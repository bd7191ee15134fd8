//! Types of attributes of a routine's operations: addressing modes, reductions.

use crate::scalar::ReduceKind;
use crate::table::Family;

/// An address in memory: `%base + scale * %index + offset`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct AddressMode {
    /// Scale of the index: 1, 2, 4 or 8; 0 without an index.
    pub scale: u8,
    /// Constant offset in bytes.
    pub offset: i32,
}

impl AddressMode {
    /// The base address alone.
    pub const HERE: AddressMode = AddressMode { scale: 0, offset: 0 };

    /// Number of operands: the base address, and possibly an index.
    pub fn operands(self) -> usize {
        1 + usize::from(self.scale != 0)
    }
}

/// Horizontal reductions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reduction {
    /// Pairwise sum.
    Sum,
    /// The greatest; NaN if any is NaN.
    Max,
    /// The least; NaN if any is NaN.
    Min,
    /// Bitwise and of `i32`.
    All,
    /// Bitwise or of `i32`.
    Any,
}

impl Reduction {
    /// The corresponding reduction of tiles.
    pub fn kind(self) -> ReduceKind {
        match self {
            Reduction::Sum => ReduceKind::Sum,
            Reduction::Max => ReduceKind::Max,
            Reduction::Min => ReduceKind::Min,
            Reduction::All => ReduceKind::All,
            Reduction::Any => ReduceKind::Any,
        }
    }

    /// The horizontal reduction for a reduction of tiles; `None` if it needs more than one.
    pub fn from_kind(kind: ReduceKind) -> Option<Reduction> {
        Reduction::MEMBERS.iter().copied().find(|reduction| reduction.kind() == kind)
    }
}

impl Family for Reduction {
    const MEMBERS: &'static [Reduction] =
        &[Reduction::Sum, Reduction::Max, Reduction::Min, Reduction::All, Reduction::Any];

    fn operation(self) -> &'static str {
        self.kind().operation()
    }

    fn meaning(self) -> &'static str {
        match self {
            Reduction::Sum => "the sum of all lanes, in halves",
            Reduction::Max => "the greatest of all lanes; NaN if any is NaN",
            Reduction::Min => "the least of all lanes; NaN if any is NaN",
            Reduction::All => "bitwise and of all lanes",
            Reduction::Any => "bitwise or of all lanes",
        }
    }
}
