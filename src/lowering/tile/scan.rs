//! Kernels of running sums along an axis, inclusive (`tile::scan`).

use super::Call;
use super::region::buffer_type;
use crate::tile::{Compute, View};

/// Is there an axis other than the summed one, to vectorise along?
pub(super) fn has_lanes(x: &View, axis: usize) -> bool {
    x.shape.iter().enumerate().any(|(i, extent)| i != axis && extent.as_const() != Some(1))
}

/// The kernel that writes the running sums of `x` along `axis` to `out`.
pub(super) fn cumsum(name: &str, x: &View, axis: usize, out: &View) -> Option<Call> {
    let kernel = Compute::Scan { axis }.expand(name, &[buffer_type(x), buffer_type(out)])?;
    Some(Call { kernel, buffers: vec![x.clone(), out.clone()] })
}
