//! Limits of a placed kernel on a GPU: shared memory, and the alignment of buffers.
//!
//! In: kernels and the launches of a module. Out: whether they fit, and which parameters are
//! aligned. It must not know how tiles are chosen.

use std::collections::BTreeSet;

use super::super::step::unscheduled;
use crate::tile::alignment::{CHUNK, launches_give};
use crate::tile::{Gpu, Kernel, Module, State};

/// Does a placed kernel need no more shared memory than a block has?
///
/// # Errors
/// The number of bytes that it needs.
pub(in crate::tile::schedule) fn fits(kernel: &Kernel, gpu: Gpu) -> Result<(), String> {
    let bytes = |n: i64| u64::try_from(n).unwrap_or_default();
    let (needs, most) = (kernel.scratch + bytes(gpu.transient), bytes(gpu.shared));
    if needs <= most {
        return Ok(());
    }
    Err(format!("kernel @{} needs {needs} bytes of shared memory, a block has {most}", kernel.name))
}

/// Marks the parameters of unscheduled kernels for which every launch passes a buffer aligned to 16
/// bytes.
pub(in crate::tile::schedule) fn mark_aligned(module: &mut Module) {
    let aligned = aligned(module);
    for kernel in unscheduled(module) {
        for (n, p) in kernel.params.iter_mut().enumerate() {
            p.aligned = aligned.contains(&(kernel.name.clone(), n));
        }
    }
}

/// The parameters of unscheduled kernels for which every launch passes a buffer aligned to 16
/// bytes.
fn aligned(module: &Module) -> BTreeSet<(String, usize)> {
    let mut out = BTreeSet::new();
    for kernel in module.kernels.iter().filter(|k| k.state == State::Unscheduled) {
        for (n, p) in kernel.params.iter().enumerate() {
            let is_buffer = kernel.body.ty(p.value).buffer().is_some();
            if is_buffer && launches_give(module, &kernel.name, n, CHUNK) {
                out.insert((kernel.name.clone(), n));
            }
        }
    }
    out
}
