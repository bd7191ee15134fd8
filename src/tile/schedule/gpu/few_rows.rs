//! Matmuls with few rows, as in token-by-token generation: bound by the bytes of the right operand,
//! which is read once.
//!
//! In: an unscheduled kernel. Out: the same with a tile width that leaves work for all
//! multiprocessors, if the operand is in 16-byte chunks (`DotMode::Split` then defines how threads
//! share it).
//!
//! # Cost
//!
//! By Little's law, a GPU with 3.35 TB/s and a memory latency of some 700 ns needs 2.3 MB in
//! flight, 18 KiB per multiprocessor: a block of 256 threads that load 4 chunks of 16 bytes each
//! has 16 KiB. So one block per multiprocessor is enough, and more do no harm: the widest tile that
//! yields that many blocks is chosen, since each block reads the left operand once. Fewer than 16
//! contiguous columns would be less than the 32 bytes of a sector.
//!
//! A matmul with 512 columns has 32 or 64 blocks: too few, so a large K is split among blocks
//! (`divided`).

use std::collections::BTreeSet;

use super::super::products::{LEAST_ROWS, MatmulParts};
use crate::shape::Dim;
use crate::tile::alignment::{CHUNK, launches_give};
use crate::tile::{Gpu, GpuArch, Kernel, Module, Op, State, Value, simplify};

/// Maximum number of rows.
pub(super) const ROWS: i64 = 8;
/// Multiprocessors of the smallest GPU.
const PROCESSORS: i64 = Gpu::for_arch(GpuArch::Sm80).processors;
/// Possible tile widths.
const COLUMNS: [i64; 4] = [64, 32, 16, 8];

/// The names of the unscheduled kernels whose operands are aligned so ([`begin_with_chunks`]).
pub(in super::super) fn kernels_in_chunks(module: &Module) -> BTreeSet<String> {
    let open = module.kernels.iter().filter(|k| k.state == State::Unscheduled);
    open.filter(|k| begin_with_chunks(module, k)).map(|k| k.name.clone()).collect()
}

/// Do all launches of a kernel pass operands of its matmuls that are aligned to 16 bytes?
pub(super) fn begin_with_chunks(module: &Module, kernel: &Kernel) -> bool {
    let body = &kernel.body;
    let param = |v: &Value| kernel.params.iter().position(|p| p.value == *v);
    let mut dots = body.insts().filter(|(_, _, d)| matches!(d.op, Op::Dot { .. })).peekable();
    let mut of_dots = |v: &Value| {
        let read = body.def_inst(*v).map(|d| d.operands.iter().filter_map(param).collect::<Vec<_>>());
        read.is_some_and(|read| read.into_iter().all(|n| launches_give(module, &kernel.name, n, CHUNK)))
    };
    dots.peek().is_some() && dots.all(|(_, _, d)| d.operands.iter().take(2).all(&mut of_dots))
}

/// Chooses the tile width of a matmul with few rows; any other kernel is unchanged.
pub(super) fn retile(kernel: &mut Kernel) {
    let Some(product) = MatmulParts::find(kernel) else { return };
    let (Some([_, b]), [points @ .., rows, cols]) = (product.operands(kernel), kernel.grid.as_slice()) else { return };
    if rows.extent.as_const().is_none_or(|n| !(1..=ROWS).contains(&n)) {
        return;
    }
    let along_steps = b.is_dense(b.shape.len().saturating_sub(2));
    let points = points.iter().map(|g| g.extent.as_const().unwrap_or(1).max(1)).fold(1, i64::saturating_mul);
    let columns = columns(points, &cols.extent, along_steps);
    let mut loops = product.loops(kernel);
    loops.matmul.tile = [LEAST_ROWS, columns];
    if let Ok(made) = product.with(kernel, loops) {
        *kernel = made;
        simplify(&mut kernel.body);
    }
}

/// Tile width.
pub(super) fn columns(points: i64, cols: &Dim, along_steps: bool) -> i64 {
    let Some(all) = cols.as_const() else { return COLUMNS[1] };
    let choices = if along_steps { &COLUMNS[..] } else { &COLUMNS[..3] };
    let enough = |n: &&i64| points.saturating_mul(all.saturating_add(**n - 1) / **n) >= PROCESSORS;
    choices.iter().find(enough).or(choices.last()).copied().unwrap_or(COLUMNS[0])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_enough_for_all_multiprocessors() {
        let of = |n: i64, along_steps| columns(1, &Dim::from(n), along_steps);
        assert_eq!(
            [of(128_256, true), of(8192, true), of(4096, true), of(2048, true), of(512, true)],
            [64, 64, 32, 16, 8]
        );
        assert_eq!([of(8192, false), of(2048, false), of(512, false)], [64, 16, 16]);
        // Heads are separate points, so they have blocks of their own.
        assert_eq!(columns(32, &Dim::from(512), false), 64);
    }
}
