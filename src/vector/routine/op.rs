//! The operations of routines, declared once.
//!
//! [`Op`] carries the attributes; the table below it has a row for each (the columns are explained
//! in `crate::table`): name, operands, attributes, class, effects, type rule, meaning. Every
//! `match` on [`Op`] lists all of them. An operand `address*` is an [`AddressMode`]: an address,
//! and possibly an index. The count of lanes of `load_apart` and `store_apart` is at least 1.

#![warn(clippy::wildcard_enum_match_arm, reason = "a new operation is reported as an error here")]

use std::fmt;

use super::attribute::{AddressMode, Reduction};
use super::{Type, rules};
use crate::scalar::{BinaryOp, CmpOp, Scalar, UnaryOp};
use crate::shape::Elem;
use crate::ssa::Effects;
use crate::table::operations;

/// Classification of operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Creates lanes from constants, scalars and indices.
    Source,
    /// Each lane of the result depends on the same lane of the operands. Also scalars and indices.
    Lanewise,
    /// A lane of the result depends on other lanes.
    CrossLane,
    /// Computes an address.
    Address,
    /// Loads, stores or prefetches.
    Memory,
}

impl Class {
    /// Name in the reference.
    pub fn text(self) -> &'static str {
        match self {
            Class::Source => "source: lanes from numbers, scalars and indices",
            Class::Lanewise => "lane by lane",
            Class::CrossLane => "across lanes",
            Class::Address => "address arithmetic",
            Class::Memory => "memory access",
        }
    }
}

/// An operation with its attributes.
#[derive(Clone, Debug, PartialEq, Hash)]
pub enum Op {
    /// A constant, the same in every lane; or an index.
    Const(Scalar),
    /// 0, 1, 2 ..: the index of each lane, as `i32`.
    Lanes,
    /// An operation on each lane.
    Unary(UnaryOp),
    /// An operation on pairs of lanes; of indices `add`, `mul`, `rem` and `min`; `add` of an
    /// address and an index.
    Binary(BinaryOp),
    /// A comparison of pairs of lanes, or of indices.
    Compare(CmpOp),
    /// `condition ? a : b` in each lane.
    Select,
    /// Conversion to the result's element type, as in the tile IR: float to integer truncates and
    /// saturates.
    Cast,
    /// Rounds to a narrower type, kept in the type of computation.
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
    /// The comparison of `argmax`: is the first greater, or NaN while the second is not?
    Beats,
    /// Broadcasts a scalar, or the low bits of an index.
    Splat,
    /// The mask of the lanes below an index.
    LanesBelow,
    /// A mask as `i32`: -1 for true, 0 for false.
    MaskBits,
    /// The mask of the lanes whose sign bit is set.
    MaskOfBits,
    /// Reduces all lanes: lanes at distance N/2 are combined, then at N/4, down to 1. `all` and
    /// `any` are bitwise, of `i32`.
    Reduce(Reduction),
    /// Lane 0, as a scalar.
    First,
    /// The lane with this index, as a scalar.
    Extract(u32),
    /// A vector of these scalars, one for each lane.
    Build,
    /// Exchanges lanes whose indices differ in one bit (the distance).
    Exchange(u32),
    /// Computes an address.
    Address(AddressMode),
    /// Loads contiguous elements; lanes outside of the mask are 0. Operands: address, mask if
    /// masked.
    Load {
        /// Type of elements in memory.
        elem: Elem,
        /// The addressing mode.
        place: AddressMode,
        /// Is there a mask?
        masked: bool,
    },
    /// Stores contiguous elements. Operands: address, lanes, mask if masked.
    Store {
        /// Type of elements in memory.
        elem: Elem,
        /// The addressing mode.
        place: AddressMode,
        /// Is there a mask?
        masked: bool,
    },
    /// Strided load; lanes past the count are 0. Operands: address, stride in bytes, optional
    /// count.
    LoadApart(Elem),
    /// Strided store. Operands: address, stride in bytes, lanes, optional count.
    StoreApart(Elem),
    /// Prefetches a cache line for writing. It never affects results.
    Prefetch(AddressMode),
}

const NONE: Effects = Effects::NONE;
const READS: Effects = Effects::READS;
const WRITES: Effects = Effects::WRITES;

operations! {
    Op of Class, types Type;

    Const(value) "const", [], own, Source NONE, Declared rules::constant, "a number in every lane, or an index";
    Lanes "lanes", [], [], Source NONE, Declared rules::lane_numbers, "0, 1, 2, ...: the number of each lane, as i32";
    Unary(op) each op: UnaryOp, ["x"], [], Lanewise NONE, Computed rules::unary,;
    Binary(op) each op: BinaryOp, ["a", "b"], [], Lanewise NONE, Computed rules::binary,;
    Compare(op) each op: CmpOp, ["a", "b"], [], Lanewise NONE, Computed rules::compare,;
    Select "select", ["condition", "a", "b"], [], Lanewise NONE, Computed rules::select, "condition ? a : b";
    Cast "cast", ["x"], [], Lanewise NONE, Declared rules::cast, "conversion to the elements of the result's type";
    Narrow(elem) "narrow", ["x"], [elem: Elem], Lanewise NONE, Computed rules::narrow,
        "the nearest value of a narrower type, still in the type of computation";
    BitAnd "bit_and", ["a", "b"], [], Lanewise NONE, Computed rules::bits, "bitwise and";
    BitOr "bit_or", ["a", "b"], [], Lanewise NONE, Computed rules::bits, "bitwise or";
    MaxOrSecond "max_or_second", ["a", "b"], [], Lanewise NONE, Computed rules::floats,
        "the greater; b if either is NaN";
    MinOrSecond "min_or_second", ["a", "b"], [], Lanewise NONE, Computed rules::floats,
        "the lesser; b if either is NaN";
    Unordered "unordered", ["a", "b"], [], Lanewise NONE, Computed rules::unordered, "is either NaN?";
    Beats "beats", ["a", "b"], [], Lanewise NONE, Computed rules::beats,
        "the comparison of argmax: is a > b, or NaN while b is not?";
    Splat "splat", ["x"], [], Source NONE, Declared rules::splat, "a scalar, or the low bits of an index, in every lane";
    LanesBelow "lanes_below", ["count"], [], Source NONE, Declared rules::lanes_below,
        "the mask of the lanes below an index";
    MaskBits "mask_bits", ["mask"], [], Lanewise NONE, Computed rules::mask_bits, "-1 for true, 0 for false, as i32";
    MaskOfBits "mask_of_bits", ["x"], [], Lanewise NONE, Computed rules::mask_of_bits,
        "the mask of the lanes whose sign bit is set";
    Reduce(kind) each kind: Reduction, ["x"], [], CrossLane NONE, Computed rules::reduce,;
    First "first", ["x"], [], CrossLane NONE, Computed rules::first, "the first lane";
    Extract(lane) "extract", ["x"], [lane: u32], CrossLane NONE, Computed rules::extract, "one lane";
    Build "build", ["x*"], [], Source NONE, Declared rules::build, "a vector of scalars, one for each lane";
    Exchange(distance) "exchange", ["x"], [distance: u32], CrossLane NONE, Computed rules::exchange,
        "each lane exchanged with the one at a distance, a power of two: n and n ^ distance";

    Address(place) "address", ["address*"], [] own, Address NONE, Computed rules::address, "the address of a place";
    Load { elem, place, masked } "load", ["address*", "mask?"], [elem: Elem] own, Memory READS, Declared rules::load,
        "consecutive elements, converted to the type of computation; lanes outside of the mask are 0";
    Store { elem, place, masked } "store", ["address*", "x", "mask?"], [elem: Elem] own, Memory WRITES, Nothing rules::store,
        "writes consecutive elements, under the mask";
    LoadApart(elem) "load_apart", ["start", "step", "count?"], [elem: Elem], Memory READS, Declared rules::load_apart,
        "strided elements; lanes at and above the count are 0";
    StoreApart(elem) "store_apart", ["start", "step", "x", "count?"], [elem: Elem], Memory WRITES,
        Nothing rules::store_apart, "writes strided elements, as many as the count";
    Prefetch(place) "prefetch", ["address*"], [] own, Memory WRITES, Nothing rules::prefetch,
        "prefetches a cache line for writing; never affects results";
}

/// Properties of a memory access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// Type of elements in memory.
    pub elem: Elem,
    /// Is it a store?
    pub is_store: bool,
    /// Addressing mode of contiguous elements; `None` if strided.
    pub place: Option<AddressMode>,
    /// Is there a mask?
    pub masked: bool,
}

impl Op {
    /// Its properties, if it is a memory access.
    pub fn access(&self) -> Option<Access> {
        let (elem, is_store, place, masked) = match self {
            Op::Load { elem, place, masked } => (elem, false, Some(*place), *masked),
            Op::Store { elem, place, masked } => (elem, true, Some(*place), *masked),
            Op::LoadApart(elem) => (elem, false, None, false),
            Op::StoreApart(elem) => (elem, true, None, false),
            Op::Const(_)
            | Op::Lanes
            | Op::Unary(_)
            | Op::Binary(_)
            | Op::Compare(_)
            | Op::Select
            | Op::Cast
            | Op::Narrow(_)
            | Op::BitAnd
            | Op::BitOr
            | Op::MaxOrSecond
            | Op::MinOrSecond
            | Op::Unordered
            | Op::Beats
            | Op::Splat
            | Op::LanesBelow
            | Op::MaskBits
            | Op::MaskOfBits
            | Op::Reduce(_)
            | Op::First
            | Op::Extract(_)
            | Op::Build
            | Op::Exchange(_)
            | Op::Address(_)
            | Op::Prefetch(_) => return None,
        };
        Some(Access { elem: *elem, is_store, place, masked })
    }

    /// Its addressing mode, if any.
    pub fn place(&self) -> Option<AddressMode> {
        if let Op::Address(place) | Op::Prefetch(place) = self {
            return Some(*place);
        }
        self.access()?.place
    }
}

impl fmt::Display for Op {
    /// Only the name; attributes are printed by the text form.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.info().name)
    }
}
