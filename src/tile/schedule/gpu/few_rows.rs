//! Products of few rows, as in writing token by token: bound by the bytes of the right operand, which is read once.
//!
//! In: an unscheduled kernel. Out: the same with tiles of as many columns as leave work for all multiprocessors, where the operand lies in
//! chunks of 16 bytes (`DotMode::Split` then says how threads divide it).
//!
//! # What it costs
//!
//! By Little's law a GPU of 3.35 TB/s, whose memory answers after some 700 ns, has 2.3 MB under way, 18 KiB a multiprocessor: a block of
//! 256 threads that load 4 chunks of 16 bytes each has 16 KiB. So a block for each multiprocessor is enough, and more do no harm: of the
//! numbers of columns, the largest that gives that many blocks is taken, since the left operand is read once for each block. Fewer than 16
//! columns side by side would be less than the 32 bytes that memory gives at a time.
//!
//! A product of 512 columns has 32 or 64 blocks: too few, so if it has many steps they are divided among blocks (`divided`).

use super::super::products::{LEAST_ROWS, Product};
use crate::shape::Dim;
use crate::tile::alignment::{CHUNK, launches_give};
use crate::tile::{Kernel, Module, Op, Value};

/// The most rows.
pub(super) const ROWS: i64 = 8;
/// Multiprocessors of an A100; an H100 has 132.
const PROCESSORS: i64 = 108;
/// Columns of a tile.
const COLUMNS: [i64; 4] = [64, 32, 16, 8];

/// Do all launches of a kernel give its products operands that begin at multiples of 16 bytes?
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

/// Gives a product of few rows its tiles; any other kernel stays as it is.
pub(super) fn retile(kernel: &mut Kernel) {
    let Some(product) = Product::of(kernel) else { return };
    let (Some([_, b]), [points @ .., rows, cols]) = (product.operands(kernel), kernel.grid.as_slice()) else { return };
    if rows.extent.as_const().is_none_or(|n| !(1..=ROWS).contains(&n)) {
        return;
    }
    let along_steps = b.is_dense(b.shape.len().saturating_sub(2));
    let points = points.iter().map(|g| g.extent.as_const().unwrap_or(1).max(1)).fold(1, i64::saturating_mul);
    let columns = columns(points, &cols.extent, along_steps);
    product.retile(kernel, LEAST_ROWS, columns);
}

/// Columns of a tile.
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
        // Heads side by side have blocks of their own.
        assert_eq!(columns(32, &Dim::from(512), false), 64);
    }
}
