//! Cost model of tensor core kernels: tile sizes that follow from the numbers of a GPU.
//!
//! In: a [`Gpu`], extents. Out: tiles, stages, warps. The model, for a matmul of `M x N x
//! K`:
//!
//! * **Shared memory.** A stage has a tile of A and one of B. Two stages hide a copy behind the
//!   work on one tile; one more hides variations of copy times. As many stages as fit are used, at
//!   most [`MAX_STAGES`].
//! * **Registers.** A thread's sums are `rows x cols / threads`; with operands and addresses a
//!   thread should need no more than its share of the registers.
//! * **Bytes.** A block reads `(rows + cols) K` elements for `rows cols K` multiply-adds, so the
//!   largest tile is best, as long as
//! * **Waves.** there are blocks for all multiprocessors: smaller tiles are chosen if larger ones
//!   leave more than half of the multiprocessors without a block. If the number of rows is only
//!   known at run time, there is a kernel with the smallest tile and one with the largest, and each
//!   call chooses ([`Gpu::least_rows`]); any other extent that is not a constant is assumed to be
//!   large.
//! * **Order.** Concurrent blocks should read the same rows and columns: on Hopper they go through
//!   the tiles in groups of rows ([`Gpu::group`]), so that their operands fit the L2 cache.
//!   (For `mma.sync` tiles stay in grid order, from which it follows that they are in bounds, and
//!   copies need no masks.)
//!
//! For attention, a block has 16 queries per warp with `mma.sync`, and 64 per warpgroup with
//! `wgmma`; a tile of keys is as long as the registers for its scores permit. If there are few
//! queries, the keys are split into parts (`schedule::attention`).

use crate::shape::Dim;
use crate::tile::{Gpu, GpuArch};

/// Maximum number of stages.
const MAX_STAGES: i64 = 4;
/// Assumed extent if it is not a constant.
const UNKNOWN: i64 = 4096;

/// The tile of a matmul, and its pipeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ProductTile {
    pub(super) rows: i64,
    pub(super) cols: i64,
    /// k indices per stage: a panel of 64 or 128 bytes.
    pub(super) steps: i64,
    pub(super) stages: i64,
    /// Number of warps that multiply.
    pub(super) warps: i64,
}

/// Number of points of some axes, saturating; an extent that is not a constant counts as 1.
fn count(extents: &[Dim]) -> i64 {
    let counts = extents.iter().map(|d| d.as_const().unwrap_or(1).max(1));
    counts.fold(1, i64::saturating_mul)
}

/// Number of tiles along an extent.
fn parts_of(extent: i64, size: i64) -> i64 {
    extent.saturating_add(size - 1) / size
}

impl Gpu {
    /// The tile of a matmul with these points, rows and columns, and elements of this size;
    /// `reads`: its epilogue has further tiles in registers.
    pub(super) fn product(&self, points: &[Dim], [rows, cols]: [&Dim; 2], bytes: i64, reads: bool) -> ProductTile {
        let size = |d: &Dim| d.as_const().unwrap_or(UNKNOWN).max(1);
        let points = count(points);
        let (m, n) = (size(rows), size(cols));
        let tiles: &[(i64, i64, i64)] = match self.arch {
            GpuArch::Sm80 if reads => &[(128, 64, 4), (64, 64, 4)],
            GpuArch::Sm80 => &[(128, 128, 4), (128, 64, 4), (64, 64, 4)],
            GpuArch::Sm90a => &[(128, 256, 8), (128, 128, 8), (128, 64, 8)],
        };
        let blocks =
            |(rows, cols): (i64, i64)| points.saturating_mul(parts_of(m, rows)).saturating_mul(parts_of(n, cols));
        let enough = |t: &&(i64, i64, i64)| blocks((t.0, t.1)).saturating_mul(2) >= self.processors && t.1 <= n.max(64);
        let (rows, cols, warps) = tiles.iter().find(enough).or(tiles.last()).copied().unwrap_or((64, 64, 4));
        // Smaller stages if the threads that multiply also start the copies.
        let row = if self.arch == GpuArch::Sm80 { 64 } else { 128 };
        let steps = row / bytes;
        let stage = (rows + cols) * steps * bytes;
        // Space for the barriers of rings.
        let room = self.shared - 1024;
        ProductTile { rows, cols, steps, warps, stages: (room / stage).clamp(2, MAX_STAGES) }
    }

    /// Minimum number of rows for which a tile leaves at most half of the multiprocessors without a
    /// block.
    pub(super) fn least_rows(&self, tile: &ProductTile, points: &[Dim], cols: &Dim) -> i64 {
        let each = count(points).saturating_mul(parts_of(cols.as_const().unwrap_or(UNKNOWN).max(1), tile.cols));
        let tiles = parts_of(self.processors, each.saturating_mul(2));
        (tiles - 1) * tile.rows + 1
    }

    /// The same for a matmul by integers of this width, computed with `mma.sync`: few rows get
    /// narrow tiles, so that all multiprocessors read weights. Stages are longer, since a k index
    /// of B has a half or a quarter of the bytes.
    pub(super) fn product_by_integers(
        &self,
        points: &[Dim],
        [rows, cols]: [&Dim; 2],
        bits: u8,
        reads: bool,
    ) -> ProductTile {
        let steps = 64;
        // With more sums than these, integers and scales of a stage do not fit the registers.
        let tiles: &[(i64, i64)] = if reads { &[(64, 64), (64, 32)] } else { &[(128, 64), (64, 64), (64, 32)] };
        let (rows, cols) = self.tile_of(tiles, points, [rows, cols]);
        let bytes = |n: i64| (n + 1023) / 1024 * 1024;
        let stage = bytes(2 * rows * steps) + bytes(cols * steps * i64::from(bits) / 8) + bytes(cols * steps / 8);
        ProductTile { rows, cols, steps, warps: 4, stages: (self.shared / stage).clamp(2, MAX_STAGES) }
    }

    /// Minimum number of rows for converting integers to a matrix first: with `wgmma`, which is
    /// nearly twice as fast as `mma.sync`. Per element, it writes and reads 5 bytes, 1.5 ps at 3.35
    /// TB/s, and saves 2 operations per row, 2.7 fs at 600 TFLOP/s instead of 330.
    pub(super) fn unpacked_rows(&self) -> Option<i64> {
        (self.arch == GpuArch::Sm90a).then_some(1024)
    }

    /// The largest tile with enough blocks for the multiprocessors, or else the smallest.
    fn tile_of(&self, tiles: &[(i64, i64)], points: &[Dim], [rows, cols]: [&Dim; 2]) -> (i64, i64) {
        let size = |d: &Dim| d.as_const().unwrap_or(UNKNOWN).max(1);
        let (points, m, n) = (count(points), size(rows), size(cols));
        let blocks =
            |(rows, cols): (i64, i64)| points.saturating_mul(parts_of(m, rows)).saturating_mul(parts_of(n, cols));
        let least = tiles.last().copied().unwrap_or((64, 64));
        // Few rows are bound by memory, which all multiprocessors should read.
        let idle = if m <= least.0 { 1 } else { 2 };
        let enough = |t: &&(i64, i64)| {
            blocks(**t).saturating_mul(idle) >= self.processors && t.1 <= n.max(least.1) && t.0 < 2 * m.max(least.0)
        };
        tiles.iter().find(enough).copied().unwrap_or(least)
    }

    /// Rows of tiles per group of blocks (1: grid order). Concurrent blocks read least if they
    /// cover about as many rows as columns: a group is the largest power of two whose square is at
    /// most the number of concurrent blocks. Matmuls with fewer blocks than that, or with a single
    /// row or column of tiles, have only one order.
    pub(super) fn group(&self, tile: &ProductTile, [rows, cols]: [&Dim; 2]) -> i64 {
        let is_one = |d: &Dim, size: i64| d.as_const().is_some_and(|n| parts_of(n, size) == 1);
        if is_one(rows, tile.rows) || is_one(cols, tile.cols) || !self.has_waves(tile, [rows, cols]) {
            return 1;
        }
        let mut group = 1;
        while 4 * group * group * tile.rows <= self.processors * tile.cols {
            group *= 2;
        }
        group
    }

    /// Does a matmul have more tiles than multiprocessors, so that some would compute several in
    /// turn? Extents that are not constants are assumed to be large.
    pub(super) fn has_waves(&self, tile: &ProductTile, [rows, cols]: [&Dim; 2]) -> bool {
        let count = |d: &Dim, size: i64| d.as_const().map(|n| parts_of(n, size));
        let all = count(rows, tile.rows).zip(count(cols, tile.cols)).map(|(a, b)| a.saturating_mul(b));
        all.is_none_or(|n| n > self.processors)
    }

    /// Keys per tile of attention, for heads and values of this width.
    pub(super) fn keys(&self, width: i64) -> i64 {
        match (self.arch, width) {
            (GpuArch::Sm80, ..=128) => 64,
            (GpuArch::Sm80, _) => 32,
            (GpuArch::Sm90a, ..=128) => 128,
            (GpuArch::Sm90a, _) => 80,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_squares_of_bytes() {
        let gpu = Gpu::for_arch(GpuArch::Sm90a);
        let of = |m: &Dim, n: &Dim| gpu.group(&gpu.product(&[], [m, n], 2, false), [m, n]);
        // 132 blocks of 128 x 256: 16 rows of tiles by 8 columns.
        assert_eq!(of(&8192.into(), &8192.into()), 16);
        assert_eq!(of(&Dim::symbol("M"), &4096.into()), 16);
        // One wave; a single column of tiles.
        assert_eq!(of(&1024.into(), &1024.into()), 1);
        assert_eq!(of(&Dim::symbol("M"), &64.into()), 1);
    }

    #[test]
    fn more_points_than_a_number_can_count() {
        // The number of points is 2^64 + ..., or 0 where it wraps.
        let points = [Dim::from(1 << 32), Dim::from(1 << 32)];
        for arch in [GpuArch::Sm80, GpuArch::Sm90a] {
            let gpu = Gpu::for_arch(arch);
            let of = |points: &[Dim], n: i64| gpu.product(points, [&n.into(), &n.into()], 2, false);
            assert_eq!(of(&points, 512), of(&[Dim::from(1 << 20)], 512));
            assert_eq!(of(&points, i64::MAX), of(&[], 1 << 20));
        }
    }

    #[test]
    fn tiles_follow_from_extents() {
        let of = |arch, m: i64, n: i64| {
            let t = Gpu::for_arch(arch).product(&[], [&m.into(), &n.into()], 2, false);
            (t.rows, t.cols, t.stages)
        };
        // Large matmuls get the largest tiles; small ones enough blocks.
        assert_eq!(of(GpuArch::Sm80, 4096, 4096), (128, 128, 4));
        assert_eq!(of(GpuArch::Sm80, 512, 768), (64, 64, 4));
        assert_eq!(of(GpuArch::Sm80, 1024, 1024), (128, 128, 4));
        assert_eq!(of(GpuArch::Sm90a, 8192, 8192), (128, 256, 4));
        assert_eq!(of(GpuArch::Sm90a, 512, 768), (128, 64, 4));
        let unknown = Gpu::for_arch(GpuArch::Sm90a).product(&[], [&Dim::symbol("M"), &1024.into()], 2, false);
        assert_eq!((unknown.rows, unknown.cols), (128, 256));
        // All stages fit shared memory.
        for arch in GpuArch::ALL {
            for (m, n) in [(4096, 4096), (512, 768), (64, 64), (8192, 64)] {
                let gpu = Gpu::for_arch(arch);
                let t = gpu.product(&[], [&m.into(), &n.into()], 2, false);
                assert!(t.stages * (t.rows + t.cols) * t.steps * 2 <= gpu.shared, "{t:?}");
            }
        }
    }
}
