//! The operations of routines, declared once.
//!
//! [`Op`] carries the attributes; its names and effects are here, types in `rules`, the text in `text`. The count of lanes that
//! `load_apart` and `store_apart` take is at least 1.

use std::fmt;

use crate::scalar::{BinaryOp, CmpOp, ReduceKind, Scalar, UnaryOp};
use crate::shape::Elem;
use crate::ssa::Effects;
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

/// An operation with its attributes.
#[derive(Clone, Debug, PartialEq, Hash)]
pub enum Op {
    /// A number, the same in every lane; or an index.
    Const(Scalar),
    /// 0, 1, 2 ..: the number of each lane, in `i32`.
    Lanes,
    /// An operation on each lane.
    Unary(UnaryOp),
    /// An operation on pairs of lanes; of indices `add`, `mul`, `rem` and `min`; `add` of an address and an index.
    Binary(BinaryOp),
    /// A comparison of pairs of lanes, or of indices.
    Compare(CmpOp),
    /// `condition ? a : b` in each lane.
    Select,
    /// Conversion to the elements of the result's type, as in the tile IR: float to integer truncates and saturates.
    Cast,
    /// The nearest value of a narrower type, still in the type of computation.
    Narrow(Elem),
    /// Bitwise and of `i32`.
    BitAnd,
    /// Bitwise or of `i32`.
    BitOr,
    /// The larger float; the second operand if either is NaN.
    MaxOrSecond,
    /// The smaller float; the second operand if either is NaN.
    MinOrSecond,
    /// Is either operand NaN?
    Unordered,
    /// What `argmax` asks: is the first greater, or a NaN where the second is none?
    Beats,
    /// A scalar in every lane, or the low bits of an index.
    Splat,
    /// The mask of the lanes whose number is below an index.
    LanesBelow,
    /// A mask as `i32`: -1 for true, 0 for false.
    MaskBits,
    /// The mask of the lanes whose sign is set.
    MaskOfBits,
    /// All lanes as one: neighbours at distance N/2 are combined, then at N/4, down to 1. `all` and `any` are bitwise, of
    /// `i32`.
    Reduce(ReduceKind),
    /// The first lane.
    First,
    /// The lane of a number.
    Extract(u32),
    /// A vector of these scalars, one for each lane.
    Build,
    /// Each lane gets that of the lane whose number differs in one bit.
    Exchange(u32),
    /// The address of a place.
    Address(AddressMode),
    /// Reads neighbours; other lanes than those of the mask are 0. Operands: place, mask where it is masked.
    Load {
        /// Type of elements in memory.
        elem: Elem,
        /// Where.
        place: AddressMode,
        /// Is there a mask?
        masked: bool,
    },
    /// Writes neighbours. Operands: place, lanes, mask where it is masked.
    Store {
        /// Type of elements in memory.
        elem: Elem,
        /// Where.
        place: AddressMode,
        /// Is there a mask?
        masked: bool,
    },
    /// Reads elements that lie apart; lanes beyond the count are 0. Operands: address, distance in bytes, and a count where not
    /// all lanes are read.
    LoadApart(Elem),
    /// Writes elements that lie apart. Operands: address, distance in bytes, lanes, and a count where not all are written.
    StoreApart(Elem),
    /// Fetches a line into the cache, to be written. It never affects results.
    Prefetch(AddressMode),
}

impl Op {
    /// Name in the text form.
    pub fn name(&self) -> &'static str {
        match self {
            Op::Const(_) => "const",
            Op::Lanes => "lanes",
            Op::Unary(op) => op.name(),
            Op::Binary(op) => op.name(),
            Op::Compare(op) => op.name(),
            Op::Select => "select",
            Op::Cast => "cast",
            Op::Narrow(_) => "narrow",
            Op::BitAnd => "bit_and",
            Op::BitOr => "bit_or",
            Op::MaxOrSecond => "max_or_second",
            Op::MinOrSecond => "min_or_second",
            Op::Unordered => "unordered",
            Op::Beats => "beats",
            Op::Splat => "splat",
            Op::LanesBelow => "lanes_below",
            Op::MaskBits => "mask_bits",
            Op::MaskOfBits => "mask_of_bits",
            Op::Reduce(kind) => kind.operation(),
            Op::First => "first",
            Op::Extract(_) => "extract",
            Op::Build => "build",
            Op::Exchange(_) => "exchange",
            Op::Address(_) => "address",
            Op::Load { .. } => "load",
            Op::Store { .. } => "store",
            Op::LoadApart(_) => "load_apart",
            Op::StoreApart(_) => "store_apart",
            Op::Prefetch(_) => "prefetch",
        }
    }

    /// What it reads and writes besides its operands.
    pub fn effects(&self) -> Effects {
        match self {
            Op::Load { .. } | Op::LoadApart(_) => Effects::READS,
            Op::Store { .. } | Op::StoreApart(_) | Op::Prefetch(_) => Effects::WRITES,
            _ => Effects::NONE,
        }
    }

    /// The place that it reads, writes or names.
    pub fn place(&self) -> Option<AddressMode> {
        match self {
            Op::Address(place) | Op::Prefetch(place) | Op::Load { place, .. } | Op::Store { place, .. } => Some(*place),
            _ => None,
        }
    }
}

impl fmt::Display for Op {
    /// The name alone; attributes are the text form's business.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
