//! use-tensor-cores: gives matmuls and attention of 16-bit floats kernels with fragments.
//!
//! In: an unscheduled module and a GPU architecture. Out: the same module, in which suitable
//! kernels are scheduled for the GPU: their tiles are register fragments and shared memory tiles,
//! copied asynchronously. Other kernels are unchanged, for the generic schedule. It must not know
//! instructions, nor how fragments are laid out in registers.
//!
//! ```text
//! fn f(x: bf16[64, 64], w: bf16[64, 64]) -> bf16[64, 64] { x @ w }
//! ...
//!   %13 = dot %11, %12, %9 : tile f32[64, 64]
//! ->
//!   %14 = copy_async %13, %0[%6, %12], rows=0, cols=1 : pending(copy) tile bf16[64, 32] @shared(64)
//! ...
//!   %55 = load_fragment %47 : tile bf16[64, 32] @fragment(a)
//!   %56 = load_fragment %48 : tile bf16[32, 64] @fragment(b)
//!   %57 = mma %55, %56, %36 : tile f32[64, 64] @fragment(acc)
//! ```
//!
//! Suitable are:
//!
//! * a matmul of two `bf16` operands, or of two `f16` operands, with constant K, and an elementwise
//!   epilogue ([`products`]). `f32` stays exact, in chains of FMAs, unless `tf32` is permitted;
//!   then it is suitable too;
//! * a matmul of 16-bit floats by quantised panels, packed before all calls, with at least
//!   [`FEW_ROWS`] rows, or a number of rows that is only known at run time ([`by_integers`]);
//! * attention whose queries, keys and values are all `bf16`, or all `f16`, with a constant head
//!   width of at most 256 ([`attention`]); calls with few queries and possibly many keys split the
//!   keys among blocks ([`split`]);
//! * in both cases, operands whose rows consist of 16-byte chunks, at addresses that the plan's
//!   views prove to be aligned to 16.
//!
//! # Numerics
//!
//! Products of 16-bit floats are exact; sums are `f32`, over all of K, in the hardware's order,
//! which may drop bits below the precision of the largest term that it adds at a time. So the error
//! of an element is at most `K 2^-23` times the sum of the magnitudes of its products. With `tf32`,
//! `f32` operands are first rounded to 11 significant bits, ties away from zero, which adds at most
//! `2^-10 (1 + 2^-12)` times that sum. Integers are multiplied exactly, and the sum over a group by
//! its scale, which rounds once per group. Attention's softmax is `f32`, powers of 2 have a
//! relative error of 2.5 * 2^-23; weights are rounded to 16 bits before the division by their sum,
//! and the sum is of the unrounded weights, as on a CPU with dot products of pairs
//! (`schedule/attention.rs`). A row that sees no key yields zeros. The weights of one query share
//! an error, the rounding of its highest score, which the division by their sum cancels, however
//! large the scores are ([`scores`]).
//!
//! A masked key contributes nothing, even if its value is NaN or infinite ([`careful`]).

mod attention;
mod build;
mod careful;
mod products;
mod remarks;
mod roles;
mod scores;
mod sizes;
mod split;

use std::collections::BTreeMap;

use super::attention::{Divided, may_be_replaced, remark_on_parts};
use super::gpu::in_steps::{self, Operand, Steps, When};
use super::step::{Changed, Log};
use crate::shape::Elem;
use crate::tile::alignment::{CHUNK, launches_give, needed};
use crate::tile::{BufferType, Gpu, GpuArch, InstData, Kernel, Machine, Module, Op, Param, State};
pub(super) use products::{FEW_COLS, FEW_ROWS, Integers, by_integers, unpacked_rows};
pub(super) use remarks::remark_on_use;

/// Gives suitable kernels of a module their tensor core variants, except for attentions with
/// separate kernels for calls with few queries ([`divided`]).
pub(super) fn run(module: &mut Module, machine: &Machine, log: &mut Log<'_>) -> Result<Changed, String> {
    let Some(gpu) = machine.gpu() else { return Ok(Changed::new()) };
    let divided = divided(module, &gpu);
    let tf32 = log.options.tf32;
    let mut changed = in_steps::replace(module, |module, k| {
        let (least, steps) = many_rows(module, k, &gpu, tf32)?;
        log.note(&k.name, &format!("calls with at least {least} rows have larger tiles"));
        Some(steps)
    })?;
    let mut made = Vec::new();
    for k in module.kernels.iter().filter(|k| k.state == State::Unscheduled && !divided.contains_key(&k.name)) {
        let aligned = |param: &Param| gives(module, k, param, CHUNK);
        let new = attention::kernel(k, &gpu, &aligned);
        let new = new.or_else(|| products::kernel(k, &gpu, log.options.tf32, &aligned));
        let is_aligned = |n: usize| k.params.get(n).is_some_and(&aligned);
        made.extend(new.map(|new| reads_in_pairs(new, &is_aligned)).filter(|new| fits(module, k, new)));
    }
    changed.extend(made.iter().map(|k| k.name.clone()));
    for k in module.kernels.iter().chain(&made) {
        remark_on_use(k).iter().for_each(|form| log.form(&k.name, form));
    }
    for k in module.kernels.iter().filter(|k| k.state == State::Unscheduled) {
        if changed.contains(&k.name) {
            let aligned = |param: &Param| gives(module, k, param, CHUNK);
            let keys = attention::parts(k, &gpu, &aligned);
            keys.iter().for_each(|keys| log.note(&k.name, &remark_on_parts(*keys)));
        } else if !divided.contains_key(&k.name) && !log.has_form(&k.name) {
            let why = remarks::why_not(module, k);
            why.iter().for_each(|why| log.note(&k.name, &format!("not on tensor cores: {why}")));
        }
    }
    for new in made {
        if let Some(k) = module.kernels.iter_mut().find(|k| k.name == new.name) {
            *k = new;
        }
    }
    Ok(changed)
}

/// The kernel with large tiles for calls with many rows of a matmul, beside the one with small
/// tiles, and the minimum of rows.
fn many_rows(module: &Module, kernel: &Kernel, gpu: &Gpu, tf32: bool) -> Option<(i64, Steps)> {
    if kernel.state != State::Unscheduled {
        return None;
    }
    let aligned = |param: &Param| gives(module, kernel, param, CHUNK);
    let (rows, least, new) = products::many_rows(kernel, gpu, tf32, &aligned)?;
    let mut new = reads_in_pairs(new, &|n| kernel.params.get(n).is_some_and(&aligned));
    new.name = "matmul".to_string();
    new.find_symbols();
    let operands = (0..kernel.params.len()).map(Operand::Own).collect();
    let when = When { from: Some((rows, least)), ..When::default() };
    fits(module, kernel, &new).then(|| (least, Steps { when, slots: Vec::new(), kernels: vec![(new, operands)] }))
}

/// The replacements of attentions with separate kernels for calls with few queries, by the names of
/// their kernels: `expand-attention` inserts these into plans.
pub(super) fn divided(module: &Module, gpu: &Gpu) -> BTreeMap<String, Divided> {
    let of = |k: &Kernel| {
        let aligned = |param: &Param| gives(module, k, param, CHUNK);
        let is_aligned = |n: usize| k.params.get(n).is_some_and(&aligned);
        let made = attention::divided(k, gpu, &aligned)?;
        let made = Divided { whole: reads_in_pairs(made.whole, &is_aligned), ..made };
        (fits(module, k, &made.whole) && may_be_replaced(module, k)).then_some(made)
    };
    let open = module.kernels.iter().filter(|k| k.state == State::Unscheduled);
    open.filter_map(|k| Some((k.name.clone(), of(k)?))).collect()
}

/// Do all launches of a kernel pass what its variant demands? Pairwise stores need an alignment of
/// a pair.
fn fits(module: &Module, kernel: &Kernel, new: &Kernel) -> bool {
    kernel.params.iter().zip(&new.params).all(|(old, p)| gives(module, kernel, old, needed(new, p.value)))
}

/// Marks tensors read by elementwise work as aligned to 16 bytes, if the parameters of these
/// numbers are: then code generation loads neighbours together. Others are loaded element by
/// element.
pub(super) fn reads_in_pairs(mut kernel: Kernel, is_aligned: &dyn Fn(usize) -> bool) -> Kernel {
    let body = &kernel.body;
    let is_read = |p: &Param| {
        let buffer = body.ty(p.value).buffer().filter(|b| matches!(b.elem, Elem::F32 | Elem::BF16 | Elem::F16));
        let reads = |data: &InstData| match data.op {
            Op::Load { cols: Some(cols), .. } if data.operands.first() == Some(&p.value) => {
                buffer.is_some_and(|b| b.is_dense(cols))
            }
            _ => false,
        };
        body.insts().any(|(_, _, data)| reads(data))
    };
    let read: Vec<bool> = kernel.params.iter().map(is_read).collect();
    for (n, (p, read)) in kernel.params.iter_mut().zip(read).enumerate() {
        p.aligned |= read && is_aligned(n);
    }
    kernel
}

/// Do all launches of a kernel pass a buffer with this alignment for a parameter?
fn gives(module: &Module, kernel: &Kernel, param: &Param, bytes: u64) -> bool {
    let n = kernel.params.iter().position(|p| p == param);
    n.is_some_and(|n| launches_give(module, &kernel.name, n, bytes))
}

/// Can tiles of a left operand be copied to shared memory?
pub(super) fn is_left_operand(b: &BufferType) -> bool {
    build::has_rows_of_chunks(b, b.shape.len().saturating_sub(1))
}

/// The tensor core variant of a kernel on its own, assuming that its parameters are aligned to 16
/// bytes; `None` if it has none.
pub fn tensor_core_kernel(kernel: &Kernel, arch: GpuArch) -> Option<Kernel> {
    let gpu = Gpu::for_arch(arch);
    let aligned = |_: &Param| true;
    attention::kernel(kernel, &gpu, &aligned).or_else(|| products::kernel(kernel, &gpu, false, &aligned))
}
