//! Kernels of running sums: each element is the sum along an axis up to there (`tile::scan`).

use super::Call;
use super::region::buffer_type;
use crate::tile::{Compute, View};

/// Is there another axis than the sum's, along which sums go side by side?
pub(super) fn has_lanes(x: &View, axis: usize) -> bool {
    x.shape.iter().enumerate().any(|(i, extent)| i != axis && extent.as_const() != Some(1))
}

/// The kernel that writes the running sums of `x` along `axis` to `out`.
pub(super) fn cumsum(name: &str, x: &View, axis: usize, out: &View) -> Option<Call> {
    let kernel = Compute::Scan { axis }.expand(name, &[buffer_type(x), buffer_type(out)])?;
    Some(Call { kernel, buffers: vec![x.clone(), out.clone()] })
}
