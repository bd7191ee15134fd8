//! Kernels for gather and scatter: slices of a tensor at integers that are only known at run time;
//! each is checked.
//!
//! ```text
//! gather: grid (axes before, axes of the indices, axes after but the last.., ceil(last, 1024))
//!   i = indices[..] checked against the table's extent;  copy one row of the table
//! scatter: grid (axes before, axes after but the last.., ceil(last, 1024))
//!   for k in 0..indices:  i = indices[k] checked against the extent;  write row k, or add it, at i
//! ```
//!
//! If no axes follow the indexed one, a grid point of a gather handles several indices, one after
//! another. Each grid point of a scatter goes through all indices in order, so slices for the same
//! index are added in that order, whatever the number of threads.

use super::region::{buffer_type, tile_size};
use super::{Call, output_buffer};
use crate::scalar::BinaryOp;
use crate::tile::loops::counted;
use crate::tile::{Extent, KernelBuilder, ParamMode, Value, View};

const COLS: i64 = 1024;
/// Indices per grid point where each selects a single element.
const INDICES: i64 = 256;

/// The kernel that copies slices of `table` along `axis`, selected by the integers of `at`, into
/// `out`. The first `batch` axes of both operands are batch axes; `site` is the message for an
/// index out of range.
pub(super) fn gather(
    name: &str,
    table: &View,
    at: &View,
    (axis, batch): (usize, usize),
    out: &View,
    site: u32,
) -> Call {
    let mut kb = KernelBuilder::new(name);
    let table_buffer = kb.buffer(buffer_type(table), ParamMode::In);
    let at_buffer = kb.buffer(buffer_type(at), ParamMode::In);
    let target = output_buffer(&mut kb, out);
    let rank = out.shape.len();
    let own = at.shape.len().saturating_sub(batch);
    // Is there an axis after the indexed one, to vectorise along?
    let has_cols = rank > axis + own;
    let most = if has_cols { COLS } else { INDICES };
    let mut starts = Vec::new();
    let mut last = Extent::Static(1);
    for (i, extent) in out.shape.iter().enumerate() {
        let max = if i + 1 == rank && (has_cols || own > 0) { tile_size(extent, most) } else { 1 };
        let point = kb.grid_axis(extent, max);
        let start = kb.times(point, max);
        if max != 1 {
            last = kb.extent_at(extent, start, max);
        }
        starts.push(start);
    }
    let bound = table.shape.get(axis).cloned().unwrap_or_default();
    let one = |kb: &mut KernelBuilder, starts: &[Value], cols: Extent| {
        let slice = |from: usize, to: usize| starts.get(from..to).unwrap_or_default();
        let place = [slice(0, batch), slice(axis, axis + own)].concat();
        let index = kb.load_scalar(at_buffer, &place);
        let index = kb.to_index(index);
        let bound = kb.dim(&bound);
        let index = kb.check_index(index, bound, site);
        let from = [slice(0, axis), &[index], slice(axis + own, rank)].concat();
        let along = |rank: usize| if has_cols { rank.checked_sub(1) } else { None };
        let tile = kb.load(table_buffer, &from, (None, along(table.shape.len())), Extent::Static(1), cols);
        kb.store(target, starts, (None, along(rank)), tile);
    };
    match (has_cols, starts.split_last()) {
        (false, Some((first, before))) if last != Extent::Static(1) => {
            let before = before.to_vec();
            let length = length(&mut kb, last);
            let end = kb.index_binary(BinaryOp::Add, *first, length);
            counted(&mut kb, (*first, end, 1), &[], |kb, i, _| {
                one(kb, &[before.as_slice(), &[i]].concat(), Extent::Static(1));
                Vec::new()
            });
        }
        _ => one(&mut kb, &starts, last),
    }
    Call { kernel: kb.finish(), buffers: vec![table.clone(), at.clone(), out.clone()] }
}

fn length(kb: &mut KernelBuilder, extent: Extent) -> Value {
    match extent {
        Extent::Static(n) => kb.index(n),
        Extent::Bounded { value, .. } => value,
    }
}

/// The kernel that writes slices of `value` along `axis` into `out` at the integers of `at`, or
/// adds them; `site` is the message for an index out of range.
pub(super) fn scatter(name: &str, at: &View, value: &View, axis: usize, add: bool, out: &View, site: u32) -> Call {
    let mut kb = KernelBuilder::new(name);
    let at_buffer = kb.buffer(buffer_type(at), ParamMode::In);
    let value_buffer = kb.buffer(buffer_type(value), ParamMode::In);
    let target = kb.buffer(buffer_type(out), if add { ParamMode::InOut } else { ParamMode::Out });
    let rank = out.shape.len();
    let has_cols = rank > axis + 1;
    let mut starts = Vec::new();
    let mut cols = Extent::Static(1);
    for (i, extent) in out.shape.iter().enumerate() {
        if i == axis {
            starts.push(kb.index(0));
            continue;
        }
        let is_last = i + 1 == rank;
        let max = if is_last { tile_size(extent, COLS) } else { 1 };
        let point = kb.grid_axis(extent, max);
        let start = kb.times(point, max);
        if is_last {
            cols = kb.extent_at(extent, start, max);
        }
        starts.push(start);
    }
    let along = (None, if has_cols { rank.checked_sub(1) } else { None });
    let count = at.shape.first().cloned().unwrap_or_default();
    let bound = out.shape.get(axis).cloned().unwrap_or_default();
    let (zero, end) = (kb.index(0), kb.dim(&count));
    counted(&mut kb, (zero, end, 1), &[], |kb, k, _| {
        let index = kb.load_scalar(at_buffer, &[k]);
        let index = kb.to_index(index);
        let bound = kb.dim(&bound);
        let index = kb.check_index(index, bound, site);
        let place = |i: Value| {
            let mut place = starts.clone();
            place[axis] = i;
            place
        };
        let (from, to) = (place(k), place(index));
        let mut tile = kb.load(value_buffer, &from, along, Extent::Static(1), cols);
        if add {
            let before = kb.load(target, &to, along, Extent::Static(1), cols);
            let sum = kb.binary(BinaryOp::Add, before, tile);
            tile = kb.narrow(sum, out.elem);
        }
        kb.store(target, &to, along, tile);
        Vec::new()
    });
    Call { kernel: kb.finish(), buffers: vec![at.clone(), value.clone(), out.clone()] }
}
