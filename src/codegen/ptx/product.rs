//! Data of a SIMT matmul: its operands, and the division of its result among threads.
//!
//! Computed by [`super::dot`], and shared with [`super::slices`].

use super::kernel::Code;
use super::lanes::Lane;
use super::scales::Scaled;
use crate::ptx::Operand;
use crate::shape::Elem;
use crate::tile::{Extent, TileType};

/// Source of an operand's elements at a step.
pub(super) enum Source {
    /// A slice in shared memory: offset, and bytes from step to step.
    Slice { offset: u32, pitch: u32 },
    /// A tile in shared memory.
    Tile(TileType),
}

/// A window: address of its first element, strides in bytes, element type.
pub(super) struct Window {
    pub(super) base: Operand,
    pub(super) strides: [Operand; 2],
    pub(super) dense: [bool; 2],
    /// The axis along which vector loads are possible.
    pub(super) wide: Option<usize>,
    pub(super) elem: Elem,
    pub(super) read_only: bool,
    pub(super) scaled: Option<Scaled>,
}

/// How the rows (or columns) of the result are divided.
pub(super) struct Side {
    /// Threads that share them, and how many each processes at a time.
    pub(super) threads: u32,
    pub(super) own: i64,
    /// Are a thread's rows adjacent? Else their distance is the number of threads.
    pub(super) neighbours: bool,
    /// This thread's index among them.
    pub(super) thread: Operand,
    pub(super) extent: Extent,
    pub(super) limit: Operand,
}

impl Side {
    /// Rows that all threads together process at a time.
    pub(super) fn stride(&self) -> i64 {
        i64::from(self.threads) * self.own
    }
}

/// Bytes of a computed element in shared memory.
pub(super) fn size(elem: Elem) -> u32 {
    if elem == Elem::I64 { 8 } else { 4 }
}

/// Rows of a side, rounded up to a multiple of a thread's rows.
pub(super) fn whole(side: &Side) -> i64 {
    let own = side.own.max(1);
    (side.extent.capacity() + own - 1) / own * own
}

pub(super) struct DotEmitter<'c, 'a> {
    pub(super) code: &'c mut Code<'a>,
    pub(super) elem: Elem,
    /// Rows, columns.
    pub(super) sides: [Side; 2],
    pub(super) windows: [Option<Window>; 2],
    pub(super) sources: Vec<Source>,
    /// Steps of a slice.
    pub(super) depth: i64,
    /// Byte distance from the first to the second slices; 0 without double-buffering.
    pub(super) other: u32,
    pub(super) steps: Operand,
    pub(super) step_extent: Extent,
    /// Initial value of each sum.
    pub(super) first: Lane,
    pub(super) result: TileType,
    /// The accumulator tile to add.
    pub(super) adds: Option<TileType>,
}
