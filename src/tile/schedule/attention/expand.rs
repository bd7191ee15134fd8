//! expand-attention: replaces each attention by kernels for the machine.
//!
//! In: a module with unscheduled attentions. Out: the same with the kernels of `variants` and, on
//! tensor cores, of `tensor_cores`. It must not know how these are written.
//!
//! A graph has one operation for attention, and lowering one kernel, which goes through the keys
//! one by one. How many queries a tile should have, in which order keys are read, and whether calls
//! with few queries need another kernel depends on the machine, so it is decided here. The launches
//! are replaced too, by a branch if the number of queries is only known in a call:
//!
//! ```text
//! fn f(q: f32[S, 64], k: f32[T, 64], v: f32[T, 64]) -> f32[S, 64] { softmax(q @ k.T / 8) @ v }
//! ...
//!   %27 = dot %13, %26, %25 : tile f32[%10<=64, 1]
//! ...
//!   launch @attention.0(%0, %1, %2, %3)
//! ->
//!   %34 = dot %33, %17, %32 : tile f32[%31<=256, %10<=32]
//! ...
//!   %40 = exp2 %39 : tile f32[%31<=256, %10<=32]
//! ...
//!   %5 = const 5 : index
//!   %6 = ge %4, %5 : bool
//!   br_if %6, ^bb1, ^bb2
//! ^bb1:
//!   launch @attention.0(%0, %1, %2, %3)
//!   br ^bb3
//! ^bb2:
//!   launch @attention.1(%0, %1, %2, %3)
//!   br ^bb3
//! ```
//!
//! Here a tile has 32 queries, two vectors of 16, and 256 keys; `@attention.1` has one query, and
//! keys in the lanes. An attention whose result overwrites one of its inputs stays as it is.

use std::collections::BTreeMap;

use super::super::step::{Changed, Log};
use super::super::{gpu, tensor_cores};
use super::launches::{Expanded, expand};
use super::{remark_on_parts, visited};
use crate::tile::{Compute, Kernel, Machine, Module, State};

/// Replaces the attentions of a module by kernels for the machine. On a GPU, those on tensor cores
/// for calls with few queries come from there; for the others, a tile has as many queries as shared
/// memory permits. How much a kernel needs is only known when its tiles have their places, so that
/// is tried: with half as many queries each time, all attentions of the module alike.
pub(in crate::tile::schedule) fn run(
    module: &mut Module,
    machine: &Machine,
    log: &mut Log<'_>,
) -> Result<Changed, String> {
    let Some(gpu) = machine.gpu() else {
        if log.options.remarks {
            visited::counts(module, *machine).iter().for_each(|(name, blocks)| log.note(name, &blocks.to_string()));
        }
        let expanded = expand(module, *machine, &BTreeMap::new())?;
        remark(module, &expanded, log);
        return Ok(expanded.changed);
    };
    let divided = tensor_cores::divided(module, &gpu);
    let mut machine = *machine;
    loop {
        let mut tried = module.clone();
        let expanded = expand(&mut tried, machine, &divided)?;
        let fits = |k: &Kernel| !expanded.changed.contains(&k.name) || gpu::would_fit(k, &machine, gpu);
        if machine.queries == 1 || tried.kernels.iter().all(fits) {
            *module = tried;
            remark(module, &expanded, log);
            return Ok(expanded.changed);
        }
        machine.queries /= 2;
    }
}

/// Remarks on what became of each attention.
fn remark(module: &Module, expanded: &Expanded, log: &mut Log<'_>) {
    for (name, variants) in &expanded.attentions {
        let of = |made: &String| module.kernels.iter().find(|k| k.name == *made);
        let on_cores = variants.kernels.iter().filter_map(of).find_map(tensor_cores::remark_on_use);
        if let Some(form) = on_cores {
            log.form(name, &form);
        } else if variants.keys.is_some() && expanded.names.get(name).is_some_and(Vec::is_empty) {
            log.form(name, "it became several kernels, whose elements are divided among threads");
        }
        variants.keys.iter().for_each(|keys| log.note(name, &remark_on_parts(*keys)));
        log.made(name, &variants.kernels, &variants.of_keys);
    }
    log.replaced(&expanded.names);
    let is_whole = |k: &&Kernel| k.state == State::Unscheduled && matches!(k.compute, Some(Compute::Attention(_)));
    module.kernels.iter().filter(is_whole).for_each(|k| log.note(&k.name, "one key after another"));
}
