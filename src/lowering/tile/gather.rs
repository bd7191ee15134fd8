//! Kernels of gathers: slices of a table at integers that are known at run time, each checked.
//!
//! ```text
//! grid (axes before, axes of the indices, axes after but the last.., ceil(last, 1024))
//!   i = indices[..] checked against the table's extent;  copy one row of the table
//! ```

use super::region::{buffer_type, tile_size};
use super::{Call, output_buffer};
use crate::tile::{Extent, KernelBuilder, ParamMode, View};

/// Columns of a tile.
const COLS: i64 = 1024;

/// The kernel that copies slices of `table` along `axis` at the integers of `at` into `out`; `site` is what is reported
/// of an integer out of range.
pub(super) fn gather(name: &str, table: &View, at: &View, axis: usize, out: &View, site: u32) -> Call {
    let mut kb = KernelBuilder::new(name);
    let table_buffer = kb.buffer(buffer_type(table), ParamMode::In);
    let at_buffer = kb.buffer(buffer_type(at), ParamMode::In);
    let target = output_buffer(&mut kb, out);
    let rank = out.shape.len();
    let at_rank = at.shape.len();
    // Is there an axis after the indices, for columns to go along?
    let has_cols = rank > axis + at_rank;
    let mut starts = Vec::new();
    let mut cols = Extent::Static(1);
    for (i, extent) in out.shape.iter().enumerate() {
        let max = if has_cols && i + 1 == rank { tile_size(extent, COLS) } else { 1 };
        let point = kb.grid_axis(extent, max);
        let start = kb.times(point, max);
        if has_cols && i + 1 == rank {
            cols = kb.extent_at(extent, start, max);
        }
        starts.push(start);
    }
    let index = kb.load_scalar(at_buffer, starts.get(axis..axis + at_rank).unwrap_or_default());
    let index = kb.to_index(index);
    let bound = table.shape.get(axis).cloned().unwrap_or_default();
    let bound = kb.dim(&bound);
    let index = kb.check_index(index, bound, site);
    let mut from = starts.get(..axis).unwrap_or_default().to_vec();
    from.push(index);
    from.extend_from_slice(starts.get(axis + at_rank..).unwrap_or_default());
    let along = |rank: usize| if has_cols { rank.checked_sub(1) } else { None };
    let one = Extent::Static(1);
    let tile = kb.load(table_buffer, &from, (None, along(table.shape.len())), one, cols);
    kb.store(target, &starts, (None, along(rank)), tile);
    Call { kernel: kb.finish(), buffers: vec![table.clone(), at.clone(), out.clone()] }
}
