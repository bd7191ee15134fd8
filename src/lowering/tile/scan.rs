//! Kernels of running sums: each element is the sum along an axis up to there.
//!
//! ```text
//! grid (other axes but one.., ceil(that one, 64))
//!   for j in 0..axis:  sum += a row of x at j;  store it
//! ```
//!
//! The columns of a tile go along another axis than the sum, so that each lane has a sum of its own; a tensor of one axis is one lane.
//! A sum of floats keeps what its roundings lose in a second one (Neumaier 1974), so the error of an element does not grow
//! with its place.

use super::region::{buffer_type, tile_size};
use super::rows::two_sum;
use super::{Call, output_buffer};
use crate::scalar::{BinaryOp, CmpOp, Scalar};
use crate::tile::loops::counted;
use crate::tile::{Extent, KernelBuilder, ParamMode, View, computed};

/// Columns of a tile.
const COLS: i64 = 64;

/// Is there another axis than the sum's, along which sums go side by side?
pub(super) fn has_lanes(x: &View, axis: usize) -> bool {
    x.shape.iter().enumerate().any(|(i, extent)| i != axis && extent.as_const() != Some(1))
}

/// The kernel that writes the running sums of `x` along `axis` to `out`.
pub(super) fn cumsum(name: &str, x: &View, axis: usize, out: &View) -> Call {
    let mut kb = KernelBuilder::new(name);
    let source = kb.buffer(buffer_type(x), ParamMode::In);
    let target = output_buffer(&mut kb, out);
    // Neighbours in memory are neighbours in a tile, if they may be.
    let others = (0..x.shape.len()).rev().filter(|i| *i != axis);
    let lanes = others.clone().find(|i| x.strides.get(*i).and_then(|s| s.as_const()) == Some(1));
    let lanes = lanes.or_else(|| others.clone().next());
    let (mut starts, mut cols) = (Vec::new(), Extent::Static(1));
    for (i, extent) in x.shape.iter().enumerate() {
        if i == axis {
            starts.push(kb.index(0));
            continue;
        }
        let max = if Some(i) == lanes { tile_size(extent, COLS) } else { 1 };
        let point = kb.grid_axis(extent, max);
        let start = kb.times(point, max);
        if Some(i) == lanes {
            cols = kb.extent_at(extent, start, max);
        }
        starts.push(start);
    }
    let one = Extent::Static(1);
    let elem = computed(x.elem);
    let zero = if elem.is_float() { Scalar::Float(0.0) } else { Scalar::Int(0) };
    let mut sums = vec![kb.full(zero, elem, one, cols)];
    if elem.is_float() {
        sums.push(kb.full(zero, elem, one, cols));
    }
    let length = x.shape.get(axis).cloned().unwrap_or_default();
    let (start, end) = (kb.index(0), kb.dim(&length));
    counted(&mut kb, (start, end, 1), &sums, |kb, j, sums| {
        starts[axis] = j;
        let tile = kb.load(source, &starts, (None, lanes), one, cols);
        let (result, next) = match sums {
            [sum, lost] => {
                let (sum, more) = two_sum(kb, *sum, tile);
                let lost = kb.binary(BinaryOp::Add, *lost, more);
                let both = kb.binary(BinaryOp::Add, sum, lost);
                // What was lost of an infinite sum is no number.
                let known = kb.compare(CmpOp::Eq, lost, lost);
                (kb.select(known, both, sum), vec![sum, lost])
            }
            sums => {
                let sum = kb.binary(BinaryOp::Add, sums[0], tile);
                (sum, vec![sum])
            }
        };
        let result = kb.narrow(result, out.elem);
        kb.store(target, &starts, (None, lanes), result);
        next
    });
    Call { kernel: kb.finish(), buffers: vec![x.clone(), out.clone()] }
}
