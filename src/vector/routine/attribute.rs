//! What attributes of a routine's operations are made of: places in memory, reductions.

use crate::scalar::ReduceKind;
use crate::table::Family;

/// An address in memory: `%base + scale * %index + offset`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct AddressMode {
    /// What an index is multiplied by, 1, 2, 4 or 8; 0 where there is no index.
    pub scale: u8,
    /// Bytes further.
    pub offset: i32,
}

impl AddressMode {
    /// The address itself.
    pub const HERE: AddressMode = AddressMode { scale: 0, offset: 0 };

    /// How many operands it takes: the address, and perhaps an index.
    pub fn operands(self) -> usize {
        1 + usize::from(self.scale != 0)
    }
}

/// What a horizontal reduction computes of all lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reduction {
    /// The sum.
    Sum,
    /// The greatest; NaN if any is NaN.
    Max,
    /// The least; NaN if any is NaN.
    Min,
    /// Bitwise and.
    All,
    /// Bitwise or.
    Any,
}

impl Reduction {
    /// The reduction of tiles that it is part of.
    pub fn kind(self) -> ReduceKind {
        match self {
            Reduction::Sum => ReduceKind::Sum,
            Reduction::Max => ReduceKind::Max,
            Reduction::Min => ReduceKind::Min,
            Reduction::All => ReduceKind::All,
            Reduction::Any => ReduceKind::Any,
        }
    }

    /// The reduction of lanes that is part of this one; `None` for those that need more than one.
    pub fn of(kind: ReduceKind) -> Option<Reduction> {
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
