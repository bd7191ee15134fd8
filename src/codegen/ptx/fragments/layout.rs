//! Register layout: which element of a tile each register of each thread holds.
//!
//! In: extents of a tile and the number of warps that share it. Out: the number of registers per
//! thread, and their rows and columns. Must not know: instructions.
//!
//! The warps of a group divide the rows of an accumulator: each has `rows / warps` of them, in
//! blocks of 16. Within a block this is the fragment of `mma.m16n8` ("Matrix Fragments for
//! mma.m16n8k16 with floating point type"), repeated for each 8 columns; four warps with a block
//! each form the layout of `wgmma` ("Matrix Fragments for wgmma.mma_async.m64nNk16"). With `g` =
//! lane / 4 and `q` = lane % 4, the four elements of 16 x 8 are
//!
//! ```text
//!   (g, 2q)  (g, 2q + 1)  (g + 8, 2q)  (g + 8, 2q + 1)
//! ```
//!
//! So a row is spread over the four lanes of a quad. Two of these fragments, 8 columns apart and
//! rounded to 16 bits, are the left operand of a step of 16 (`pack`), without any exchange between
//! threads.

use crate::shape::Elem;

/// Rows of a block.
pub(super) const BLOCK_ROWS: i64 = 16;
/// Columns of a block of an accumulator.
pub(super) const BLOCK_COLS: i64 = 8;
/// Bytes of an operand's row per tensor core instruction: 16 elements of 16 bits, or 8 of `tf32`.
const STEP_BYTES: i64 = 32;

/// `k` steps of one tensor core instruction.
pub(super) fn steps_of(elem: Elem) -> i64 {
    STEP_BYTES / i64::try_from(elem.size()).unwrap_or(1)
}

/// Extents of a tile, and the number of warps that share it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Share {
    pub(super) rows: i64,
    pub(super) cols: i64,
    pub(super) warps: i64,
}

/// Position of a register's element: row `row + lane / 4` of the warp's rows, column
/// `col + 2 (lane % 4)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FragmentPosition {
    pub(super) row: i64,
    pub(super) col: i64,
}

impl Share {
    /// Rows of a warp.
    pub(super) fn warp_rows(self) -> i64 {
        self.rows / self.warps
    }

    /// Blocks of 16 rows per warp.
    pub(super) fn row_blocks(self) -> i64 {
        self.warp_rows() / BLOCK_ROWS
    }

    /// Blocks of 8 columns.
    pub(super) fn col_blocks(self) -> i64 {
        self.cols / BLOCK_COLS
    }

    /// Are the extents multiples of the block size?
    pub(super) fn is_whole(self) -> bool {
        self.rows > 0
            && self.cols > 0
            && self.warps > 0
            && self.rows % (self.warps * BLOCK_ROWS) == 0
            && self.cols % BLOCK_COLS == 0
    }

    /// Registers of an accumulator, per thread.
    pub(super) fn registers(self) -> usize {
        usize::try_from(self.row_blocks() * self.col_blocks() * 4).unwrap_or(0)
    }

    /// The position of an accumulator register's element.
    pub(super) fn place(self, register: usize) -> FragmentPosition {
        let n = i64::try_from(register).unwrap_or(0);
        let (block, e) = (n / 4, n % 4);
        let (rows, cols) = (block / self.col_blocks(), block % self.col_blocks());
        FragmentPosition { row: rows * BLOCK_ROWS + (e >> 1) * 8, col: cols * BLOCK_COLS + (e & 1) }
    }

    /// The index of an accumulator register: block of rows, block of columns, element (0 to 3).
    pub(super) fn register(self, rows: i64, cols: i64, e: i64) -> usize {
        usize::try_from((rows * self.col_blocks() + cols) * 4 + e).unwrap_or(0)
    }

    /// The index, in a column of per-row elements, that belongs to an accumulator register.
    pub(super) fn row_of(self, register: usize) -> usize {
        let place = self.place(register);
        usize::try_from(place.row / 8).unwrap_or(0)
    }

    /// The index in a row of per-column elements.
    pub(super) fn col_of(self, register: usize) -> usize {
        let place = self.place(register);
        usize::try_from(place.col / BLOCK_COLS * 2 + place.col % BLOCK_COLS).unwrap_or(0)
    }

    /// Rows that a thread has elements of.
    pub(super) fn row_count(self) -> usize {
        usize::try_from(self.row_blocks() * 2).unwrap_or(0)
    }

    /// Columns that a thread has elements of.
    pub(super) fn col_count(self) -> usize {
        usize::try_from(self.col_blocks() * 2).unwrap_or(0)
    }

    /// Row offset of a thread's row number `row`.
    pub(super) fn row_place(row: usize) -> i64 {
        i64::try_from(row).unwrap_or(0) * 8
    }

    pub(super) fn col_place(col: usize) -> i64 {
        let n = i64::try_from(col).unwrap_or(0);
        n / 2 * BLOCK_COLS + n % 2
    }
}

/// Layout of a tile in shared memory: consecutive panels with rows of `swizzle` bytes, or one panel
/// of whole rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Panels {
    /// Rows of a panel.
    pub(super) rows: i64,
    /// Bytes of a row of the tile.
    pub(super) row_bytes: i64,
    /// Swizzle width in bytes; 0 for no swizzle.
    pub(super) swizzle: i64,
}

impl Panels {
    /// Row stride in bytes.
    pub(super) fn pitch(self) -> i64 {
        if self.swizzle == 0 { self.row_bytes } else { self.swizzle }
    }

    /// Bytes of a panel.
    pub(super) fn panel_bytes(self) -> i64 {
        self.rows * self.pitch()
    }

    /// Chunks of 16 bytes in a row of a panel.
    pub(super) fn chunks(self) -> i64 {
        self.pitch() / 16
    }

    /// The number of panels.
    pub(super) fn count(self) -> i64 {
        self.row_bytes / self.pitch()
    }

    /// Splits a chunk number of a tile's row into panel and chunk.
    pub(super) fn panel_of(self, chunk: i64) -> (i64, i64) {
        (chunk / self.chunks(), chunk % self.chunks())
    }

    /// Shift and mask applied to a row number to get its swizzle bits: address bits 7 and up are
    /// combined with bits 4 and up (PTX ISA, "Tensor swizzling modes").
    pub(super) fn exchange(self) -> (i64, i64) {
        match self.swizzle {
            128 => (0, 7),
            64 => (1, 3),
            32 => (2, 1),
            _ => (0, 0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Row and column of element `i` of lane `l` of warp `w`, as the PTX ISA defines it for
    /// `wgmma`'s D.
    fn described(w: i64, l: i64, i: i64) -> (i64, i64) {
        (16 * w + l / 4 + 8 * ((i >> 1) & 1), 8 * (i >> 2) + 2 * (l & 3) + (i & 1))
    }

    #[test]
    fn an_accumulator_of_a_warp_group_is_that_of_wgmma() {
        for cols in [8, 64, 128, 176, 256] {
            let share = Share { rows: 64, cols, warps: 4 };
            assert!(share.is_whole());
            assert_eq!(share.registers() as i64, cols / 2);
            let mut seen = std::collections::BTreeSet::new();
            for (w, l) in (0..4).flat_map(|w| (0..32).map(move |l| (w, l))) {
                for i in 0..share.registers() {
                    let place = share.place(i);
                    let at = (w * share.warp_rows() + place.row + l / 4, place.col + 2 * (l % 4));
                    assert_eq!(at, described(w, l, i as i64));
                    assert!(seen.insert(at));
                    assert_eq!(Share::row_place(share.row_of(i)), place.row);
                    assert_eq!(Share::col_place(share.col_of(i)), place.col);
                }
            }
            assert_eq!(seen.len() as i64, 64 * cols);
        }
    }

    #[test]
    fn registers_of_several_blocks_are_all_different() {
        let share = Share { rows: 128, cols: 24, warps: 4 };
        let all = (0..2).flat_map(|r| (0..3).flat_map(move |c| (0..4).map(move |e| (r, c, e))));
        let numbers: Vec<usize> = all.map(|(r, c, e)| share.register(r, c, e)).collect();
        assert_eq!(numbers, (0..share.registers()).collect::<Vec<_>>());
        assert_eq!(share.place(share.register(1, 2, 3)), FragmentPosition { row: 24, col: 17 });
        assert!(!Share { rows: 96, cols: 24, warps: 4 }.is_whole());
        assert!(!Share { rows: 64, cols: 12, warps: 4 }.is_whole());
    }

    /// The swizzle matches the address bits: 4 to 6 are combined with 7 to 9, 4 and 5 with 7 and 8,
    /// or 4 with 7.
    #[test]
    fn chunks_are_exchanged_as_addresses_are() {
        for (swizzle, bits) in [(128, 7), (64, 3), (32, 1)] {
            let panels = Panels { rows: 64, row_bytes: 256, swizzle };
            let (shift, mask) = panels.exchange();
            let mut seen = std::collections::BTreeSet::new();
            for (row, chunk) in (0..64).flat_map(|row| (0..16).map(move |c| (row, c))) {
                let (panel, c) = panels.panel_of(chunk);
                let plain = panel * panels.panel_bytes() + row * panels.pitch() + 16 * c;
                let exchanged = plain ^ (((plain >> 7) & bits) << 4);
                let ours = panel * panels.panel_bytes() + row * panels.pitch() + 16 * (c ^ ((row >> shift) & mask));
                assert_eq!(ours, exchanged);
                assert!(seen.insert(ours));
            }
            assert_eq!(seen.len() as i64 * 16, panels.count() * panels.panel_bytes());
        }
    }
}
