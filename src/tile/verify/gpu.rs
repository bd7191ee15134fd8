//! What holds of kernels for a GPU.

use super::Sink;
use crate::tile::{GpuArch, Kernel};

/// Rules 16 to 19.
pub(super) fn scheduled(_k: &Kernel, _arch: GpuArch, _warps: u32, _sink: &mut Sink) {}
