//! Types of values: indices, scalars, tiles and buffers.

use std::fmt;

use super::Value;
use crate::shape::{Dim, Elem};

/// How many elements a tile has along an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Extent {
    /// As many as this.
    Static(i64),
    /// As many as the index value says, which is between 0 and `max`. Two bounded extents are the same exactly if their
    /// values are.
    Bounded {
        /// The run-time extent.
        value: Value,
        /// Its largest value: what room is made for.
        max: i64,
    },
}

impl Extent {
    /// The largest extent.
    pub fn capacity(self) -> i64 {
        match self {
            Extent::Static(n) => n,
            Extent::Bounded { max, .. } => max,
        }
    }

    /// Is this 1 whatever happens, so that the axis broadcasts?
    pub fn is_one(self) -> bool {
        self == Extent::Static(1)
    }
}

impl fmt::Display for Extent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Extent::Static(n) => write!(f, "{n}"),
            Extent::Bounded { value, max } => write!(f, "{value}<={max}"),
        }
    }
}

/// Where a tile lives once it is scheduled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Space {
    /// Not decided: the tile is unscheduled.
    Any,
    /// In vector registers, within one `run`.
    Reg,
    /// In the worker's scratch, this many bytes from its start. Rows are [`TileType::pitch`] bytes apart.
    L1(u32),
}

impl fmt::Display for Space {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Space::Any => Ok(()),
            Space::Reg => f.write_str(" @reg"),
            Space::L1(offset) => write!(f, " @l1+{offset}"),
        }
    }
}

/// A tile of rank 2.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TileType {
    /// Element type in computation: `f32`, `i32`, `i64` or `bool`.
    pub elem: Elem,
    /// Rows.
    pub rows: Extent,
    /// Columns.
    pub cols: Extent,
    /// Where it lives.
    pub space: Space,
}

impl TileType {
    /// Bytes of an element in scratch; truth values are masks of 4 bytes there, all ones for true.
    pub fn element_bytes(&self) -> u32 {
        if self.elem == Elem::I64 { 8 } else { 4 }
    }

    /// Bytes from one row to the next in scratch: the columns rounded up to 16 bytes, except that a single column is
    /// kept dense.
    pub fn pitch(&self) -> u32 {
        let bytes = self.cols.capacity().max(0).unsigned_abs().saturating_mul(u64::from(self.element_bytes()));
        let bytes = if self.cols.is_one() { bytes } else { bytes.next_multiple_of(16) };
        u32::try_from(bytes).unwrap_or(u32::MAX)
    }

    /// Bytes that it takes in scratch, a multiple of 64.
    pub fn scratch_bytes(&self) -> u64 {
        u64::from(self.pitch()).saturating_mul(self.rows.capacity().max(0).unsigned_abs()).next_multiple_of(64)
    }
}

impl fmt::Display for TileType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "tile {}[{}, {}]{}", self.elem, self.rows, self.cols, self.space)
    }
}

/// A strided window into memory. Strides count elements; 0 repeats.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct BufferType {
    /// Element type in memory.
    pub elem: Elem,
    /// Extents.
    pub shape: Vec<Dim>,
    /// Distance between neighbours along each axis.
    pub strides: Vec<Dim>,
}

impl fmt::Display for BufferType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |ds: &[Dim]| ds.iter().map(Dim::to_string).collect::<Vec<_>>().join(", ");
        write!(f, "buf {}[{}] strides [{}]", self.elem, list(&self.shape), list(&self.strides))
    }
}

/// Type of a value.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Type {
    /// A 64-bit integer for positions and extents.
    Index,
    /// A scalar in computation: `f32`, `i32`, `i64` or `bool`.
    Scalar(Elem),
    /// A tile.
    Tile(TileType),
    /// A buffer.
    Buffer(BufferType),
}

impl Type {
    /// The tile type, if it is one.
    pub fn tile(&self) -> Option<&TileType> {
        match self {
            Type::Tile(t) => Some(t),
            Type::Index | Type::Scalar(_) | Type::Buffer(_) => None,
        }
    }

    /// The buffer type, if it is one.
    pub fn buffer(&self) -> Option<&BufferType> {
        match self {
            Type::Buffer(b) => Some(b),
            Type::Index | Type::Scalar(_) | Type::Tile(_) => None,
        }
    }

    /// Element type in computation; `None` for indices and buffers.
    pub fn elem(&self) -> Option<Elem> {
        match self {
            Type::Scalar(e) => Some(*e),
            Type::Tile(t) => Some(t.elem),
            Type::Index | Type::Buffer(_) => None,
        }
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Type::Index => f.write_str("index"),
            Type::Scalar(e) => e.fmt(f),
            Type::Tile(t) => t.fmt(f),
            Type::Buffer(b) => b.fmt(f),
        }
    }
}

/// The type in which elements of memory are computed: small floats as `f32`, `i8` as `i32`.
pub(super) fn computed(elem: Elem) -> Elem {
    match elem {
        Elem::F32 | Elem::BF16 | Elem::F16 => Elem::F32,
        Elem::I8 | Elem::I32 => Elem::I32,
        Elem::I64 => Elem::I64,
        Elem::Bool => Elem::Bool,
    }
}
