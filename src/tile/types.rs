//! Types of values: indices, scalars, tiles and buffers.

use std::fmt;

use super::Value;
use crate::shape::{Dim, Elem};

/// The largest extent of a tile along an axis that the verifier accepts.
pub const MAX_EXTENT: i64 = 1 << 20;

/// Extent of a tile along an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Extent {
    /// A constant.
    Static(i64),
    /// The value of an index, which is between 0 and `max`. Two bounded extents are equal exactly
    /// if their values are.
    Bounded {
        /// The run-time extent.
        value: Value,
        /// Its maximum, for which memory is reserved.
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

    /// The index value of a bounded extent.
    pub fn bound(self) -> Option<Value> {
        match self {
            Extent::Static(_) => None,
            Extent::Bounded { value, .. } => Some(value),
        }
    }

    /// The same, mutable.
    pub fn bound_mut(&mut self) -> Option<&mut Value> {
        match self {
            Extent::Static(_) => None,
            Extent::Bounded { value, .. } => Some(value),
        }
    }

    /// Is it always 1, so that the axis broadcasts?
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

/// The memory space of a scheduled tile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Space {
    /// Undecided: the tile is unscheduled.
    Any,
    /// In vector registers, within one `run`.
    Reg,
    /// In the worker's scratch (on a GPU, the block's shared memory), at this byte offset. Rows are
    /// [`TileType::pitch`] bytes apart.
    L1(u32, Pitch),
    /// In place in a buffer, loaded where it is used.
    Window,
    /// GPU: in shared memory of the block, at an offset only known at run time, so that tiles can
    /// alternate. Its rows are swizzled so that columns are read without bank conflicts: 16-byte
    /// chunks are permuted within this many bytes (0, 32, 64 or 128). A tile with longer rows is
    /// stored as consecutive panels of this width.
    Shared {
        /// Width of the swizzle pattern in bytes.
        swizzle: u32,
    },
    /// GPU: distributed over the registers of the warps.
    Fragment(Fragment),
}

/// Alignment of rows of a tile in scratch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Pitch {
    /// Rows are aligned to 64 bytes.
    #[default]
    Aligned,
    /// GPU: an odd number of elements, so that the elements of a column are in different banks of
    /// shared memory, as are the elements of a row.
    Padded,
}

/// Distribution of a tile's elements over the registers of a warp (`mma`) or of a warpgroup
/// (`wgmma`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fragment {
    /// The accumulator's layout: a row is in the four lanes of a quad.
    Acc,
    /// The accumulator of matmuls by integers (`mma_scaled`): like `Acc`, but a lane has four
    /// adjacent columns of every 16.
    Quads,
    /// The left operand's layout; an accumulator packed to 16 bits already has it.
    A,
    /// The right operand's layout (`mma` only), for a tile whose k axis is along the rows.
    B,
    /// The right operand's layout (`mma` only), for a tile whose k axis is along the columns.
    BT,
    /// One element per row of an accumulator, the same in the four lanes of its quad.
    Row,
    /// One element per column of an accumulator.
    Col,
}

impl Fragment {
    /// Every layout.
    pub const ALL: [Fragment; 7] =
        [Fragment::Acc, Fragment::Quads, Fragment::A, Fragment::B, Fragment::BT, Fragment::Row, Fragment::Col];

    /// Name in the text form.
    pub fn name(self) -> &'static str {
        match self {
            Fragment::Acc => "acc",
            Fragment::Quads => "quads",
            Fragment::A => "a",
            Fragment::B => "b",
            Fragment::BT => "bt",
            Fragment::Row => "row",
            Fragment::Col => "col",
        }
    }
}

/// An asynchronous unit of a GPU; each has a queue of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Queue {
    /// `cp.async` copies.
    Copy,
    /// `wgmma` matmuls.
    Mma,
}

impl Queue {
    /// Name in the text form.
    pub fn name(self) -> &'static str {
        match self {
            Queue::Copy => "copy",
            Queue::Mma => "mma",
        }
    }
}

impl fmt::Display for Space {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Space::Any => Ok(()),
            Space::Reg => f.write_str(" @reg"),
            Space::L1(offset, Pitch::Aligned) => write!(f, " @l1({offset})"),
            Space::L1(offset, Pitch::Padded) => write!(f, " @l1({offset}, padded)"),
            Space::Window => f.write_str(" @window"),
            Space::Shared { swizzle } => write!(f, " @shared({swizzle})"),
            Space::Fragment(layout) => write!(f, " @fragment({})", layout.name()),
        }
    }
}

/// A tile of rank 2.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TileType {
    /// Computation type: `f32`, `i32`, `i64` or `bool`.
    pub elem: Elem,
    /// Rows.
    pub rows: Extent,
    /// Columns.
    pub cols: Extent,
    /// Its memory space.
    pub space: Space,
}

impl TileType {
    /// The extent along a side: 0 for the rows, 1 for the columns.
    pub(crate) fn extent(&self, side: usize) -> Extent {
        [self.rows, self.cols][side]
    }

    /// Size of an element in scratch; truth values are 4-byte masks there, all ones for true.
    pub fn element_bytes(&self) -> u32 {
        if self.elem == Elem::I64 { 8 } else { 4 }
    }

    /// Row pitch in scratch: the columns rounded up to 64 bytes, the widest vector, except that a
    /// single column is contiguous. If that were a multiple of 4096 bytes, so that all rows map to
    /// the same cache sets, 64 bytes are added. Padding may be read and written, and has no
    /// meaning. A tile with [`Pitch::Padded`] has its number of columns, or one more to make it
    /// odd.
    pub fn pitch(&self) -> u32 {
        let (cols, size) = (self.cols.capacity().max(0).unsigned_abs(), u64::from(self.element_bytes()));
        let bytes = cols.saturating_mul(size);
        let bytes = match bytes.checked_next_multiple_of(64) {
            _ if matches!(self.space, Space::L1(_, Pitch::Padded)) => (cols | 1).saturating_mul(size),
            _ if self.cols.is_one() => bytes,
            Some(padded) if padded > 0 && padded % 4096 == 0 => padded + 64,
            Some(padded) => padded,
            None => u64::MAX,
        };
        u32::try_from(bytes).unwrap_or(u32::MAX)
    }

    /// Size in scratch, a multiple of 64.
    pub fn scratch_bytes(&self) -> u64 {
        u64::from(self.pitch()).saturating_mul(self.rows.capacity().max(0).unsigned_abs()).next_multiple_of(64)
    }
}

impl fmt::Display for TileType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "tile {}[{}, {}]{}", self.elem, self.rows, self.cols, self.space)
    }
}

/// The strides of a row-major tensor of this shape.
pub fn row_major(shape: &[Dim]) -> Vec<Dim> {
    let mut next = Dim::one();
    let mut strides: Vec<Dim> = Vec::with_capacity(shape.len());
    for d in shape.iter().rev() {
        strides.push(next.clone());
        next = next.mul(d);
    }
    strides.reverse();
    strides
}

/// A one-dimensional buffer that fills this many bytes.
pub fn flat(elem: Elem, bytes: &Dim) -> BufferType {
    let size = Dim::from(i64::try_from(elem.size()).unwrap_or(1));
    BufferType { elem, shape: vec![bytes.div(&size).unwrap_or_else(|| bytes.clone())], strides: vec![Dim::one()] }
}

/// A strided view of memory. Strides are in elements; 0 repeats.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct BufferType {
    /// Element type in memory.
    pub elem: Elem,
    /// Extents.
    pub shape: Vec<Dim>,
    /// Stride of each axis, in elements.
    pub strides: Vec<Dim>,
}

impl BufferType {
    /// Is the axis contiguous?
    pub fn is_dense(&self, axis: usize) -> bool {
        self.strides.get(axis).is_some_and(|d| d.as_const() == Some(1))
    }

    /// Are all elements along an axis the same one (stride 0)?
    pub fn repeats(&self, axis: usize) -> bool {
        self.strides.get(axis).is_some_and(|d| d.as_const() == Some(0))
    }

    /// The axes with more than one element, and their strides. The stride of an axis with one
    /// element is meaningless: it is only multiplied by 0.
    pub fn neighbours(&self) -> impl Iterator<Item = (usize, &Dim)> {
        let of_axes = self.shape.iter().zip(&self.strides).enumerate();
        of_axes.filter(|(_, (extent, _))| extent.as_const() != Some(1)).map(|(axis, (_, stride))| (axis, stride))
    }

    /// Can a matmul read `f32` tiles along two axes in place, as its left operand?
    pub fn is_left_operand(&self, rows: usize, cols: usize) -> bool {
        self.elem == Elem::F32 && (self.is_dense(rows) || self.is_dense(cols))
    }
}

impl fmt::Display for BufferType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |ds: &[Dim]| ds.iter().map(Dim::to_string).collect::<Vec<_>>().join(", ");
        write!(f, "buf {}[{}]", self.elem, list(&self.shape))?;
        if self.strides == row_major(&self.shape) { Ok(()) } else { write!(f, " strides[{}]", list(&self.strides)) }
    }
}

/// Type of a value.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Type {
    /// A 64-bit integer for positions and extents.
    Index,
    /// A scalar in its computation type: `f32`, `i32`, `i64` or `bool`.
    Scalar(Elem),
    /// A tile.
    Tile(TileType),
    /// A buffer.
    Buffer(BufferType),
    /// GPU: an empty slot for a tile in shared memory. It is used at most once: filled.
    Slot(TileType),
    /// GPU: a tile in progress. It is used exactly once: committed.
    Pending(Queue, TileType),
    /// GPU: a committed group that produces a tile. It is used exactly once: waited for.
    Group(Queue, TileType),
    /// GPU: several shared memory tiles, passed between warps by barriers in memory.
    Ring {
        /// Number of tiles.
        stages: u32,
        /// Type of each.
        tile: TileType,
    },
}

impl Type {
    /// Is such a value consumed by a use?
    pub fn is_linear(&self) -> bool {
        match self {
            Type::Slot(_) | Type::Pending(..) | Type::Group(..) => true,
            Type::Index | Type::Scalar(_) | Type::Tile(_) | Type::Buffer(_) | Type::Ring { .. } => false,
        }
    }

    /// The tile type in this type, for tiles and for values that hold or become one.
    pub fn any_tile(&self) -> Option<&TileType> {
        match self {
            Type::Tile(t) | Type::Slot(t) | Type::Pending(_, t) | Type::Group(_, t) | Type::Ring { tile: t, .. } => {
                Some(t)
            }
            Type::Index | Type::Scalar(_) | Type::Buffer(_) => None,
        }
    }

    /// The values that the type depends on: the bounds of extents.
    pub fn bounds(&self) -> impl Iterator<Item = Value> {
        let extents = self.any_tile().map(|t| [t.rows, t.cols]);
        extents.into_iter().flatten().filter_map(Extent::bound)
    }

    /// The same, mutable.
    pub fn bounds_mut(&mut self) -> impl Iterator<Item = &mut Value> {
        let tile = match self {
            Type::Tile(t) | Type::Slot(t) | Type::Pending(_, t) | Type::Group(_, t) | Type::Ring { tile: t, .. } => {
                Some(t)
            }
            Type::Index | Type::Scalar(_) | Type::Buffer(_) => None,
        };
        tile.into_iter().flat_map(|t| [&mut t.rows, &mut t.cols]).filter_map(Extent::bound_mut)
    }

    /// The tile type, if it is one.
    pub fn tile(&self) -> Option<&TileType> {
        match self {
            Type::Tile(t) => Some(t),
            Type::Index
            | Type::Scalar(_)
            | Type::Buffer(_)
            | Type::Slot(_)
            | Type::Pending(..)
            | Type::Group(..)
            | Type::Ring { .. } => None,
        }
    }

    /// The buffer type, if it is one.
    pub fn buffer(&self) -> Option<&BufferType> {
        match self {
            Type::Buffer(b) => Some(b),
            Type::Index
            | Type::Scalar(_)
            | Type::Tile(_)
            | Type::Slot(_)
            | Type::Pending(..)
            | Type::Group(..)
            | Type::Ring { .. } => None,
        }
    }

    /// Computation type; `None` for indices and buffers.
    pub fn elem(&self) -> Option<Elem> {
        match self {
            Type::Scalar(e) => Some(*e),
            Type::Tile(t) => Some(t.elem),
            Type::Index | Type::Buffer(_) | Type::Slot(_) | Type::Pending(..) | Type::Group(..) | Type::Ring { .. } => {
                None
            }
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
            Type::Slot(t) => write!(f, "slot {t}"),
            Type::Pending(q, t) => write!(f, "pending({}) {t}", q.name()),
            Type::Group(q, t) => write!(f, "group({}) {t}", q.name()),
            Type::Ring { stages, tile } => write!(f, "ring({stages}) {tile}"),
        }
    }
}

/// The computation type of elements in memory: small floats as `f32`, `i8` as `i32`.
pub(super) fn computed(elem: Elem) -> Elem {
    elem.computed()
}
