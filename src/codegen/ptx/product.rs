//! What a product is made of: its operands, and how its result is divided among the threads.
//!
//! In: nothing; [`super::dot`] finds it out. Out: data that it and [`super::slices`] share.

use super::kernel::Code;
use super::lanes::Lane;
use super::scales::Scaled;
use crate::ptx::Operand;
use crate::shape::Elem;
use crate::tile::{Extent, TileType};

/// How an operand is read at a step.
pub(super) enum Source {
    /// From a slice at this place in shared memory, so many bytes from step to step.
    Slice { offset: u32, pitch: u32 },
    /// From a tile in shared memory.
    Tile(TileType),
}

/// A window: its first element, the bytes between its rows and between its columns, and its elements.
pub(super) struct Window {
    pub(super) base: Operand,
    pub(super) strides: [Operand; 2],
    pub(super) dense: [bool; 2],
    /// The axis along which neighbours can be loaded together.
    pub(super) wide: Option<usize>,
    pub(super) elem: Elem,
    pub(super) read_only: bool,
    /// Integers times scales.
    pub(super) scaled: Option<Scaled>,
}

/// How the rows (or columns) of the result are divided.
pub(super) struct Side {
    /// Threads that share them, and how many each takes at a time.
    pub(super) threads: u32,
    pub(super) own: i64,
    /// Are a thread's rows neighbours? Else they are as far apart as there are threads.
    pub(super) neighbours: bool,
    /// The thread's place among them.
    pub(super) thread: Operand,
    pub(super) extent: Extent,
    pub(super) limit: Operand,
}

impl Side {
    /// Rows that all threads together take at a time.
    pub(super) fn stride(&self) -> i64 {
        i64::from(self.threads) * self.own
    }
}

/// Bytes of a computed element in shared memory.
pub(super) fn size(elem: Elem) -> u32 {
    if elem == Elem::I64 { 8 } else { 4 }
}

/// Rows of a side, up to a whole number of a thread's.
pub(super) fn whole(side: &Side) -> i64 {
    let own = side.own.max(1);
    (side.extent.capacity() + own - 1) / own * own
}

pub(super) struct Product<'c, 'a> {
    pub(super) code: &'c mut Code<'a>,
    pub(super) elem: Elem,
    /// Rows, columns.
    pub(super) sides: [Side; 2],
    pub(super) windows: [Option<Window>; 2],
    pub(super) sources: Vec<Source>,
    /// Steps of a slice.
    pub(super) depth: i64,
    /// How far behind the first slices the second ones lie; 0, if there are none.
    pub(super) other: u32,
    pub(super) steps: Operand,
    pub(super) step_extent: Extent,
    /// What each sum starts with.
    pub(super) first: Lane,
    pub(super) result: TileType,
    /// The tile that is added.
    pub(super) adds: Option<TileType>,
}
