//! Tile and block sizes on a GPU: the machine's parameters, and heuristics based on them.
//!
//! In: an unscheduled kernel. Out: the same with other tile sizes, and the number of warps per
//! block. It must not know instructions.
//!
//! # The machine
//!
//! A multiprocessor holds 2048 threads (1536 on 8.6 and 8.9), 65536 registers and 32 blocks, and
//! gives a block up to [`Gpu::shared`](crate::tile::Gpu) bytes of shared memory; occupancy is the
//! least of what these permit, and other blocks hide the latency of one. An A100 has 108
//! multiprocessors, an H100 132. Memory is read in sectors of 32 bytes, best with 16 bytes per
//! thread: then a warp's access is four whole lines. L1 latency is some 30 cycles, L2 200,
//! memory 500 to 800. A barrier of a block of 8 warps costs some 30 cycles, plus the wait for
//! the slowest warp; within a warp it is nearly free.
//!
//! # Heuristics
//!
//! | kernel | tile | block |
//! |---|---|---|
//! | elementwise | [`MAP`] elements, some rows of 256 columns | a thread for each [`ELEMENTS`] |
//! | elementwise, some tensors contiguous along rows, others along columns | [`TURNED`] rows and columns, twice as many of narrow elements | a thread for each [`ELEMENTS`] |
//! | reductions of rows of at most [`WARP_ROW`] elements | [`ROWS`] rows | a warp for each row, without block barriers |
//! | of longer rows that fit one tile | one row | [`MAX_WARPS`] warps |
//! | of longer rows of constant length, in chunks | one row, chunks of [`CHUNK`] | [`MAX_WARPS`] warps |
//! | of rows of any length | [`ROWS`] rows, chunks of [`WARP_ROW`] | a warp for each row |
//! | reductions of rows that all read the same columns | unchanged, 8 rows, chunks of [`WARP_ROW`] | a warp for each row |
//! | reductions whose neighbours are rows | unchanged | by work |
//! | strict products of at least [`MANY_COLUMNS`] columns | twice [`PRODUCT`] rows and columns | 8 warps, a thread for 64 sums |
//! | attention of few queries, with split keys (`attention::parts`) | unchanged | by work: [`MAX_WARPS`] warps for heads of 32 elements and more |
//! | products of few rows (`DotMode::Split`) | see [`super::few_rows`] | up to [`SPLIT_THREADS`] threads if there are few blocks |
//! | other products, and everything else | unchanged | a thread for each [`SUMS`] sums |
//!
//! A row of 768 elements reduced by one warp is 6 accesses of 16 bytes per lane, which overlap:
//! some 2000 cycles, while each multiprocessor processes up to 64 such rows. A row of 50,000
//! reduced by 8 warps is 13 chunks of 4 accesses per lane; several blocks on one row need another
//! launch to combine their results, which costs as much as 3 or 4 chunks, so this is done only if
//! there are few rows ([`super::long_rows`]).
//!
//! A thread of a matmul reads 8 elements for 16 sums, or 16 for 64: in the time in which a
//! multiprocessor reads 16 bytes per thread of 4 warps from shared memory, it computes 16 to 32
//! multiply-adds per thread, so the first is bound by shared memory and the second is not. But the
//! second has a quarter of the blocks: for 1024 rows and 768 columns it is 48, on 132
//! multiprocessors.
//!
//! A strided access takes a sector per element: for `f32` 8 times what it needs, for bytes 32
//! times. A tile transposed in shared memory costs a barrier, and two shared memory accesses per
//! element. Rows and columns of [`TURNED`] 4-byte elements are a line each, and of narrower
//! elements whole sectors; twice as many of these are a line too, provided that enough blocks
//! remain ([`ENOUGH_BLOCKS`]) and at most [`TURNED_BYTES`] of shared memory are used, so that a
//! multiprocessor holds several blocks ([`super::transposes`]). An axis of fewer than [`SHORT`]
//! elements fits one or two sectors: after reading the first element, a warp has the others in L1,
//! which takes less time than the barrier.
//!
//! Whether the columns of a kernel are contiguous is decided by the majority of its accesses, as in
//! code generation.

use super::tiles::{Along, Axes, Axis};
use crate::shape::Elem;
use crate::tile::machine::{ENOUGH_BLOCKS, MAX_WARPS, WARP};
use crate::tile::{Body, DotMode, Gpu, InstData, Kernel, Op, Tiled, alignment};

/// Elements of a run per thread, if there are enough.
const ELEMENTS: i64 = 4;
/// Sums of a matmul per thread, if there are enough.
const SUMS: i64 = 16;
/// Threads per multiprocessor that read a matrix in mode [`DotMode::Split`], and the maximum of a
/// block: each has 4 chunks of 16 bytes in flight, together 64 KiB. On an H200, 64 blocks of 256
/// threads read 2048 columns at 1.2 TB/s, 4008 such blocks at 4.3 TB/s.
const SPLIT_THREADS: i64 = 1024;
/// Chunks that a thread of such a block loads at least.
const SPLIT_CHUNKS: i64 = 4;
/// Elements per tile of elementwise work.
const MAP: i64 = 1024;
/// The longest row that one warp reduces, and the chunk size for rows of unknown length.
const WARP_ROW: i64 = 1024;
/// Rows per block if each warp has one.
const ROWS: i64 = 4;
/// Elements of a long row that a block processes at a time.
const CHUNK: i64 = 4096;
/// Rows and columns of a tile that is transposed in shared memory.
const TURNED: i64 = 32;
/// Limit on shared memory for such tiles: a multiprocessor of an A100 fits three such blocks, of an
/// H100 four.
const TURNED_BYTES: i64 = 48 << 10;
/// A shorter axis is accessed directly.
pub(super) const SHORT: i64 = 8;
/// Rows and columns of a matmul tile, as made by lowering.
const PRODUCT: i64 = 64;
/// Matmuls with at least this many columns double both tile sizes, if they have at least as many
/// rows.
const MANY_COLUMNS: i64 = 2048;
const FEW_ROWS: i64 = 256;

/// A loop whose launches have at most this many points becomes one kernel ([`super::persistent`]):
/// two waves on an A100 with [`MAX_WARPS`] warps per block. A launch in a graph takes one to two
/// microseconds, a grid barrier about one, a point of a matmul with 64 rows, columns and 256 k
/// indices about as much as ten of these.
pub(super) const MAX_POINTS: i64 = 2 * 2 * 108;

/// Rows and columns of tiles that are transposed in shared memory. `all`: extents of the two axes,
/// if known; `points`: points of the other axes; `bytes`: size of the narrowest element; `shared`:
/// bytes per tile position. `None` if direct access along both axes is cheaper.
pub(super) fn turned_tile(all: [Option<i64>; 2], points: i64, bytes: u64, shared: i64) -> Option<[i64; 2]> {
    if all.iter().flatten().any(|n| *n < SHORT) {
        return None;
    }
    let of = |size: i64| all.map(|n| n.map_or(size, |n| n.min(size)));
    let fits = |size: i64| {
        let [rows, cols] = of(size);
        shared.saturating_mul(rows * (cols | 1)) <= TURNED_BYTES
    };
    let blocks = |size: i64| {
        let along = all.map(|n| n.map_or(1, |n| (n + size - 1) / size));
        points.saturating_mul(along[0]).saturating_mul(along[1])
    };
    let large = 2 * TURNED;
    let size = if bytes < 4 && blocks(large) >= ENOUGH_BLOCKS && fits(large) { large } else { TURNED };
    fits(size).then(|| of(size))
}

/// Known number of points of a kernel's grid: an axis whose extent is only known at run time, such
/// as a batch, counts as one.
pub(super) fn points(kernel: &Kernel) -> i64 {
    let count = |n: i64, step: i64| (n.max(0).saturating_add(step - 1)) / step;
    let axes = kernel.grid.iter().map(|g| g.extent.as_const().map_or(1, |n| count(n, g.step.max(1))));
    axes.fold(1, i64::saturating_mul)
}

/// Gives a matmul with many columns large tiles, if possible.
pub(super) fn enlarge(kernel: &mut Kernel) -> bool {
    let mut dots = kernel.body.insts().filter(|(_, _, d)| matches!(d.op, Op::Dot { .. }));
    let float = dots.next().and_then(|(_, _, d)| d.result).and_then(|v| kernel.body.ty(v).elem()) == Some(Elem::F32);
    let several = dots.next().is_some();
    drop(dots);
    if !float || several {
        return false;
    }
    let Some(mut axes) = Axes::find(kernel) else { return false };
    let of = |side| {
        let fits = |a: &Axis| a.side == Some(side) && matches!(a.along, Along::Grid(_)) && a.step == PRODUCT;
        axes.0.iter().position(fits)
    };
    let (Some(rows), Some(cols)) = (of(0), of(1)) else { return false };
    let all = |n: usize| axes.0.get(n).and_then(|a| a.all);
    if all(cols).is_none_or(|n| n < MANY_COLUMNS) || all(rows).is_some_and(|n| n < FEW_ROWS) {
        return false;
    }
    let before = kernel.clone();
    let done = axes.resize(kernel, rows, 2 * PRODUCT) && axes.resize(kernel, cols, 2 * PRODUCT);
    if !done {
        *kernel = before;
    }
    done
}

/// Chooses the tile sizes of a kernel; also returns whether they changed.
pub(super) fn choose(kernel: &mut Kernel) -> (Tiled, bool) {
    let mut choice = Tiled::default();
    let stands_alone = |op: &Op| {
        matches!(
            op,
            Op::Dot { .. } | Op::Transpose | Op::Element | Op::LoadScalar | Op::LoadScaled { .. } | Op::LoadPairs
        )
    };
    if kernel.body.insts().any(|(_, _, d)| stands_alone(&d.op)) {
        return (choice, false);
    }
    let Some(mut axes) = Axes::find(kernel) else { return (choice, false) };
    let reduced =
        kernel.body.insts().find_map(|(_, _, d)| if let Op::Reduce { axis, .. } = d.op { Some(axis) } else { None });
    let before = axes.clone();
    let resized = |axes: &Axes| axes.0.iter().zip(&before.0).any(|(a, b)| a.step != b.step);
    let on_side = |axes: &Axes, side: usize, along: Along| {
        let is = |n: &usize| {
            axes.0.get(*n).is_some_and(|a| {
                a.side == Some(side)
                    && matches!((a.along, along), (Along::Grid(_), Along::Grid(_)) | (Along::Loop, Along::Loop))
            })
        };
        (0..axes.0.len()).filter(is).collect::<Vec<usize>>()
    };
    let grid = Along::Grid(0);
    let loops = on_side(&axes, 1, Along::Loop);
    let (dense, others) = dense_columns(&kernel.body);
    match reduced {
        None if loops.is_empty() && on_side(&axes, 0, Along::Loop).is_empty() && others == 0 => {
            let (rows, cols) = (on_side(&axes, 0, grid), on_side(&axes, 1, grid));
            match (rows.as_slice(), cols.as_slice()) {
                ([], [cols]) if axes.0[*cols].step == 256 => {
                    axes.resize(kernel, *cols, MAP);
                }
                ([rows], [cols]) => {
                    let now = axes.0[*cols].step.max(1);
                    if axes.0[*rows].step * now > MAP {
                        axes.resize(kernel, *rows, (MAP / now).max(1));
                    }
                }
                _ => {}
            }
        }
        Some(1) if dense >= others => {
            let Some(row) = row_length(&kernel.body, &axes, &loops) else { return (choice, false) };
            choice.loads_once = true;
            let rows = on_side(&axes, 0, grid).first().copied();
            if let Some(rows) = rows.filter(|n| axes.0[*n].step == MAX_WARPS && shares_columns(&kernel.body)) {
                choice.warps = u32::try_from(axes.0[rows].step).ok();
                resize_all(&mut axes, kernel, &loops, WARP_ROW);
                return (choice, resized(&axes));
            }
            let short = row.is_none_or(|n| n <= WARP_ROW);
            let enough = rows.is_some_and(|n| axes.0[n].step >= ROWS);
            if let (true, true, Some(rows)) = (short, enough, rows) {
                if axes.resize(kernel, rows, ROWS) {
                    choice.warps = u32::try_from(ROWS).ok();
                    resize_all(&mut axes, kernel, &loops, WARP_ROW);
                }
            } else if !short || rows.is_none() {
                if let Some(rows) = rows {
                    axes.resize(kernel, rows, 1);
                }
                resize_all(&mut axes, kernel, &loops, CHUNK);
            }
        }
        _ => {}
    }
    let is_resized = resized(&axes);
    (choice, is_resized)
}

/// Resizes several axes to `step`, if possible; otherwise to half of it, and so on, where tiles
/// that are full would become partial.
fn resize_all(axes: &mut Axes, kernel: &mut Kernel, which: &[usize], step: i64) {
    for n in which {
        let now = axes.0.get(*n).map_or(step, |a| a.step);
        let mut steps = std::iter::successors(Some(step), |step| Some(step / 2)).take_while(|s| *s >= now.min(step));
        steps.any(|step| axes.resize(kernel, *n, step));
    }
}

/// Tile sizes for a kernel that goes through its rows in chunks, when several blocks share each
/// row: one row, and large chunks; unchanged if neighbours are rows.
pub(super) fn take_long_rows(kernel: &mut Kernel, axes: &mut Axes) {
    let (dense, others) = dense_columns(&kernel.body);
    if dense < others {
        return;
    }
    let along = |n: &usize, side: usize, of: fn(Along) -> bool| {
        axes.0.get(*n).is_some_and(|a| a.side == Some(side) && of(a.along))
    };
    let rows: Vec<usize> = (0..axes.0.len()).filter(|n| along(n, 0, |along| matches!(along, Along::Grid(_)))).collect();
    let loops: Vec<usize> = (0..axes.0.len()).filter(|n| along(n, 1, |along| along == Along::Loop)).collect();
    resize_all(axes, kernel, &rows, 1);
    resize_all(axes, kernel, &loops, CHUNK);
}

/// The number of accesses, of tiles with several columns, that are contiguous along columns, and of
/// those contiguous along rows only.
fn dense_columns(body: &Body) -> (usize, usize) {
    let mut counts = (0, 0);
    for (_, _, data) in body.insts() {
        let (Op::Load { rows, cols } | Op::Store { rows, cols }) = data.op else { continue };
        let tile = data.result.or(data.operands.last().copied()).and_then(|v| body.ty(v).tile());
        let buffer = data.operands.first().and_then(|b| body.ty(*b).buffer());
        let (Some(t), Some(b)) = (tile, buffer) else { continue };
        let dense = |axis: Option<usize>| axis.is_some_and(|axis| b.is_dense(axis));
        if dense(cols) && !t.cols.is_one() {
            counts.0 += 1;
        } else if dense(rows) && !t.rows.is_one() && !t.cols.is_one() {
            counts.1 += 1;
        }
    }
    counts
}

/// Do all rows read the same columns, which a single-row tile would read repeatedly?
fn shares_columns(body: &Body) -> bool {
    body.insts().any(|(_, _, d)| {
        let cols = d.result.and_then(|v| body.ty(v).tile()).is_some_and(|t| !t.cols.is_one());
        matches!(d.op, Op::Load { rows: None, cols: Some(_) }) && cols
    })
}

/// Length of the rows that a kernel reduces: `Some(None)` if it is only known at run time. `None`
/// if they are neither whole nor processed in loops.
fn row_length(body: &Body, axes: &Axes, loops: &[usize]) -> Option<Option<i64>> {
    if let Some(first) = loops.first() {
        return Some(axes.0.get(*first)?.all);
    }
    let cols = body.insts().filter(|(_, _, d)| matches!(d.op, Op::Reduce { .. }));
    let cols = cols.filter_map(|(_, _, d)| body.ty(*d.operands.first()?).tile().map(|t| t.cols));
    match cols.map(crate::tile::Extent::capacity).max() {
        Some(n) if n >= WARP => Some(Some(n)),
        _ => None,
    }
}

/// Warps per block: enough for the largest operation between runs, a power of two.
pub(in super::super) fn warps(kernel: &Kernel, gpu: Gpu) -> u32 {
    let body = &kernel.body;
    let (mut most, mut limit) = (1, MAX_WARPS);
    for (_, _, data) in body.insts() {
        let threads = match &data.op {
            Op::Run { rows, cols, .. } => rows.capacity().saturating_mul(cols.capacity()) / ELEMENTS,
            Op::Dot { mode: Some(DotMode::Split) } => {
                limit = split_warps(kernel, data, gpu);
                limit * WARP
            }
            Op::Dot { .. } | Op::Transpose => {
                let tile = data.result.and_then(|v| body.ty(v).tile());
                tile.map_or(1, |t| t.rows.capacity().saturating_mul(t.cols.capacity()) / SUMS)
            }
            _ => continue,
        };
        most = most.max(threads);
    }
    let warps = ((most + WARP - 1) / WARP).clamp(1, limit);
    u32::try_from(warps).unwrap_or(1).next_power_of_two()
}

/// Warps per block of a matmul in mode [`DotMode::Split`]: [`MAX_WARPS`], or more, up to the
/// maximum of a block, where there are too few blocks to give every multiprocessor
/// [`SPLIT_THREADS`], as long as each thread has [`SPLIT_CHUNKS`] to load.
fn split_warps(kernel: &Kernel, dot: &InstData, gpu: Gpu) -> i64 {
    let of_right = || {
        let right = *dot.operands.get(1)?;
        let tile = kernel.body.ty(right).tile()?;
        let memory = kernel.body.ty(*kernel.body.def_inst(right)?.operands.first()?).buffer()?;
        let bits = if matches!(kernel.body.def_inst(right)?.op, Op::LoadScaled { bits: 4 }) { 4 } else { 8 };
        let elements = tile.rows.capacity().saturating_mul(tile.cols.capacity()) * bits / 8;
        Some(elements.saturating_mul(i64::try_from(memory.elem.size()).ok()?) / i64::try_from(alignment::CHUNK).ok()?)
    };
    let chunks = of_right().unwrap_or(0);
    let wanted = gpu.processors * SPLIT_THREADS / points(kernel).max(1);
    let threads = wanted.min(chunks / SPLIT_CHUNKS).clamp(MAX_WARPS * WARP, SPLIT_THREADS);
    1 << (threads / WARP).ilog2()
}
