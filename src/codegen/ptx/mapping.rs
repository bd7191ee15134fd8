//! Maps rows and columns of a run to the threads of a block.
//!
//! In: the extents of a run and the accesses in it; a kernel. Out: the axis of adjacent threads,
//! the number of threads along each axis, and whether each warp can own its rows throughout. Must
//! not know: instructions.

use crate::tile::{Body, Extent, Inst, Kernel, Op, ParamMode, Space};

/// Rows, columns.
pub(super) const AXES: [usize; 2] = [0, 1];

/// Rounds up to a power of two.
pub(super) fn power_of_two(n: i64) -> u32 {
    u32::try_from(n.max(1)).ok().and_then(u32::checked_next_power_of_two).unwrap_or(1 << 31)
}

/// The mapping of one run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mapping {
    /// The axis along which adjacent threads are placed.
    pub(super) fast: usize,
    /// Threads along each axis; their product is the block size.
    pub(super) threads: [u32; 2],
}

impl Mapping {
    /// As many threads along the fast axis as it has elements, the rest along the other axis.
    pub(super) fn new(fast: usize, capacity: i64, threads: u32) -> Mapping {
        let along = power_of_two(capacity).min(threads);
        let mut all = [threads / along; 2];
        all[fast] = along;
        Mapping { fast, threads: all }
    }
}

/// The axis along which most buffer accesses are contiguous; columns by default. Accesses that are
/// uniform along an axis do not count.
pub(super) fn fast_axis(body: &Body, extents: [Extent; 2], insts: &[Inst]) -> usize {
    let mut votes = AXES.map(|_| 0);
    for i in insts {
        let data = body.inst(*i);
        let (Op::Load { rows, cols } | Op::Store { rows, cols }) = data.op else { continue };
        let buffer = data.operands.first().and_then(|b| body.ty(*b).buffer());
        let tile = data.result.or(data.operands.last().copied()).and_then(|v| body.ty(v).tile());
        let repeats = |axis: Option<usize>| axis.is_some_and(|axis| buffer.is_some_and(|b| b.repeats(axis)));
        if repeats(rows) || repeats(cols) || tile.is_none_or(|t| [t.rows, t.cols] != extents) {
            continue;
        }
        for (axis, along) in AXES.into_iter().zip([rows, cols]) {
            let dense = along.is_some_and(|along| buffer.is_some_and(|b| b.is_dense(along)));
            votes[axis] += u32::from(dense && extents[axis].capacity() > 1);
        }
    }
    let single = |axis: usize| extents[axis].capacity() <= 1;
    usize::from(single(0) || !single(1) && votes[0] <= votes[1])
}

/// Can each warp own its row from the first run to the last, so that no warp waits for another?
/// Requires: as many rows as warps, all tiles have these rows, adjacent threads are along columns,
/// and the kernel does not read memory that it writes.
pub(super) fn rows_by_warp(kernel: &Kernel, warps: u32) -> bool {
    let body = &kernel.body;
    let mut shared = None;
    for block in &body.layout {
        let args = body.block(*block).args.iter().filter_map(|v| body.ty(*v).tile());
        let mut all: Vec<Extent> = args.map(|t| t.rows).collect();
        for i in &body.block(*block).insts {
            let data = body.inst(*i);
            match &data.op {
                Op::Run { rows, cols, insts } => {
                    let tiles = insts.iter().filter_map(|i| body.inst(*i).result).filter_map(|v| body.ty(v).tile());
                    // A tile shared by all rows would be written by one warp for all.
                    all.extend(tiles.filter(|t| matches!(t.space, Space::L1(..))).map(|t| t.rows));
                    all.push(*rows);
                    let reduces_rows = |i: &Inst| matches!(body.inst(*i).op, Op::Reduce { axis: 0, .. });
                    let across = cols.capacity() > 1 && fast_axis(body, [*rows, *cols], insts) == 0;
                    if across || insts.iter().any(reduces_rows) {
                        return false;
                    }
                }
                Op::Dot { .. } | Op::Transpose | Op::Element | Op::Window { .. } | Op::LoadScalar => return false,
                _ => {}
            }
        }
        for rows in all {
            if *shared.get_or_insert(rows) != rows {
                return false;
            }
        }
    }
    let fits = |rows: Extent| rows.capacity() == i64::from(warps) && !rows.is_one();
    shared.is_some_and(fits) && kernel.params.iter().all(|p| p.mode != ParamMode::InOut)
}
