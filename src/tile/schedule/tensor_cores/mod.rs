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

use super::attention::{Divided, Whole, may_be_replaced, remark_on_parts};
use super::gpu::in_steps::{self, Operand, Steps, When};
use super::step::{Changed, Log};
use crate::shape::{Dim, Elem};
use crate::tile::alignment::{CHUNK, launches_give, needed};
use crate::tile::{BufferType, Compute, Gpu, GpuArch, InstData, Kernel, Machine, Module, Op, Param, State};
pub(super) use products::{Integers, by_integers, takes_integers, unpacked_rows};
pub(super) use remarks::remark_on_use;

/// Why a matmul or an attention does not use tensor cores, for a remark.
pub(super) type Reason = String;

/// The tensor core kernels of a matmul or an attention.
struct CoreKernels {
    kernel: Kernel,
    /// A matmul whose number of rows is only known at run time: that number, its minimum for the
    /// kernel with larger tiles, and that kernel.
    many_rows: Option<(Dim, i64, Kernel)>,
    /// An attention: into how many parts calls with few queries divide the keys, if they do, and
    /// the kernels for these calls, if there are any.
    keys: Option<Result<i64, Whole>>,
    divided: Option<Divided>,
}

/// Gives suitable kernels of a module their tensor core variants, except for attentions with
/// separate kernels for calls with few queries: `expand-attention` inserts these into plans.
pub(super) fn run(module: &mut Module, machine: &Machine, log: &mut Log<'_>) -> Result<Changed, String> {
    let Some(gpu) = machine.gpu() else { return Ok(Changed::new()) };
    let (mut made, mut refused) = (BTreeMap::new(), Vec::new());
    for k in module.kernels.iter().filter(|k| k.state == State::Unscheduled) {
        match kernels_of(module, k, &gpu, log.options.tf32) {
            Some(Ok(CoreKernels { divided: Some(_), .. })) | None => {}
            Some(Ok(kernels)) => drop(made.insert(k.name.clone(), kernels)),
            Some(Err(why)) => refused.push((k.name.clone(), why)),
        }
    }
    let mut of_many = Vec::new();
    let mut changed = in_steps::replace(module, |_, k| {
        let (rows, least, new) = made.get_mut(&k.name)?.many_rows.take()?;
        log.note(&k.name, &format!("calls with at least {least} rows have larger tiles"));
        let operands = (0..k.params.len()).map(Operand::Own).collect();
        let when = When { from: Some((rows, least)), ..When::default() };
        of_many.push(k.name.clone());
        Some(Steps { when, slots: Vec::new(), kernels: vec![(new, operands)] })
    })?;
    // New kernels follow all others, in this order.
    let first = module.kernels.len() - of_many.len();
    for (name, new) in of_many.iter().zip(module.kernels.iter().skip(first)) {
        log.made(name, std::slice::from_ref(&new.name), &[]);
    }
    for k in &mut module.kernels {
        if let Some(CoreKernels { kernel, keys, .. }) = made.remove(&k.name) {
            keys.iter().for_each(|keys| log.note(&k.name, &remark_on_parts(*keys)));
            changed.insert(k.name.clone());
            *k = kernel;
        }
        remark_on_use(k).iter().for_each(|form| log.form(&k.name, form));
    }
    for (name, why) in refused {
        if !log.has_form(&name) {
            log.note(&name, &format!("not on tensor cores: {why}"));
        }
    }
    Ok(changed)
}

/// The replacements of attentions with separate kernels for calls with few queries, by the names of
/// their kernels.
pub(super) fn divided(module: &Module, gpu: &Gpu) -> BTreeMap<String, Divided> {
    let is_open = |k: &&Kernel| k.state == State::Unscheduled && matches!(k.compute, Some(Compute::Attention(_)));
    let of = |k: &Kernel| Some((k.name.clone(), kernels_of(module, k, gpu, false)?.ok()?.divided?));
    module.kernels.iter().filter(is_open).filter_map(of).collect()
}

/// The tensor core kernels of an unscheduled one, or why it has no such kernels; `None` if it is
/// neither a matmul nor an attention.
fn kernels_of(module: &Module, k: &Kernel, gpu: &Gpu, tf32: bool) -> Option<Result<CoreKernels, Reason>> {
    let aligned = |n: usize| launches_give(module, &k.name, n, CHUNK);
    let made = made(k, gpu, tf32, &aligned)?;
    Some(made.and_then(|made| {
        if matches!(k.compute, Some(Compute::Attention(_))) && !may_be_replaced(module, k) {
            return Err("its result is written over what it reads, or it is computed before all calls".to_string());
        }
        let finished = |new: Kernel| reads_in_pairs(new, &aligned);
        let kernel = finished(made.kernel);
        let many_rows = made.many_rows.map(|(rows, least, new)| {
            let mut new = Kernel { name: "matmul".to_string(), ..finished(new) };
            new.find_symbols();
            (rows, least, new)
        });
        check_alignment(&kernel, |n, bytes| launches_give(module, &k.name, n, bytes))?;
        let divided = made.divided.map(|divided| Divided { whole: kernel.clone(), ..divided });
        Ok(CoreKernels { kernel, many_rows, divided, ..made })
    }))
}

/// The same before it is known what launches pass, with parameters that are aligned to 16 bytes if
/// `aligned` says so.
fn made(k: &Kernel, gpu: &Gpu, tf32: bool, aligned: &dyn Fn(usize) -> bool) -> Option<Result<CoreKernels, Reason>> {
    match &k.compute {
        Some(Compute::Matmul(matmul)) if matmul.panels.is_none() => Some(products::made(k, gpu, tf32, aligned)),
        Some(Compute::Attention(_)) => Some(attention::made(k, gpu, aligned)),
        Some(Compute::Copy | Compute::Scan { .. } | Compute::Sort { .. } | Compute::Matmul(_)) | None => None,
    }
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

/// Checks the types of operands: all `bf16`, or all `f16`, or all `f32` if that may be rounded to
/// `tf32`.
fn check_types(operands: &[&BufferType], tf32: bool) -> Result<(), Reason> {
    let is_one = |elem: Elem| operands.iter().all(|b| b.elem == elem);
    if is_one(Elem::BF16) || is_one(Elem::F16) || tf32 && is_one(Elem::F32) {
        return Ok(());
    }
    Err(remarks::not_halves(operands))
}

/// Checks that a new kernel gets operands with the alignment that it needs: pairwise stores need
/// that of a pair.
pub(super) fn check_alignment(k: &Kernel, is_aligned: impl Fn(usize, u64) -> bool) -> Result<(), Reason> {
    let needs = k.params.iter().enumerate().map(|(n, p)| (n, needed(k, p.value)));
    let unaligned = needs.into_iter().find(|(n, bytes)| !is_aligned(*n, *bytes));
    unaligned.map_or(Ok(()), |(n, bytes)| Err(remarks::not_aligned(k, n, bytes)))
}

/// Checks that tiles of operand `n` can be copied in 16-byte chunks, along its axis `dense`.
fn check_chunks(k: &Kernel, n: usize, dense: usize, aligned: &dyn Fn(usize) -> bool) -> Result<(), Reason> {
    match k.buffer_type(n) {
        Some(b) if !build::has_rows_of_chunks(b, dense) => Err(remarks::not_apart(b)),
        _ if !aligned(n) => Err(remarks::not_aligned(k, n, CHUNK)),
        _ => Ok(()),
    }
}

/// The tensor core variant of a kernel on its own, assuming that its parameters are aligned to 16
/// bytes; `None` if it has none.
pub fn tensor_core_kernel(kernel: &Kernel, arch: GpuArch) -> Option<Kernel> {
    Some(made(kernel, &Gpu::for_arch(arch), false, &|_| true)?.ok()?.kernel)
}
