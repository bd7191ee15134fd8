//! expand-attention: replaces each attention by kernels for the machine.
//!
//! In: a module with unscheduled attentions. Out: the same with the kernels of `variants` and, on
//! tensor cores, of `tensor_cores`. It must not know how these are written.

use std::collections::BTreeMap;

use super::super::step::{Changed, Log};
use super::super::{gpu, tensor_cores};
use super::launches::expand;
use crate::tile::{Kernel, Machine, Module};

/// Replaces the attentions of a module by kernels for the machine. On a GPU, those on tensor cores
/// for calls with few queries come from there; for the others, a tile has as many queries as shared
/// memory permits. How much a kernel needs is only known when its tiles have their places, so that
/// is tried: with half as many queries each time, all attentions of the module alike.
pub(in crate::tile::schedule) fn run(
    module: &mut Module,
    machine: &Machine,
    _: &mut Log<'_>,
) -> Result<Changed, String> {
    let Some(gpu) = machine.gpu() else { return expand(module, *machine, &BTreeMap::new()) };
    let divided = tensor_cores::divided(module, &gpu);
    let mut machine = *machine;
    loop {
        let mut tried = module.clone();
        let changed = expand(&mut tried, machine, &divided)?;
        let fits = |k: &Kernel| !changed.contains(&k.name) || gpu::would_fit(k, &machine, gpu);
        if machine.queries == 1 || tried.kernels.iter().all(fits) {
            *module = tried;
            return Ok(changed);
        }
        machine.queries /= 2;
    }
}
