//! Alignment of buffers in GPU kernels: what kernels require, and what plans guarantee.
//!
//! In: kernels and plans. Out: the required alignment of an address in bytes, and whether a
//! buffer's address provably has it. The schedule queries it before it introduces 16-byte accesses;
//! the verifier requires it of every launch. It must not know how instructions are selected.

use super::{Body, DotMode, GpuOp, Kernel, Module, Op, Param, Plan, PlanOp, State, Value, View};
use crate::shape::Elem;

/// Size of a vectorised copy in bytes, and the alignment of everything that a view can be part of.
pub(crate) const CHUNK: u64 = 16;

/// The required alignment of a kernel's parameter in bytes: 16 if it says so or is accessed 16
/// bytes at a time, two elements if neighbours may be written together, else one element.
pub(crate) fn needed(kernel: &Kernel, param: Value) -> u64 {
    let Some(ty) = kernel.body.ty(param).buffer() else { return 1 };
    let size = ty.elem.size();
    if is_split(kernel, param) || kernel.params.iter().any(|p| p.value == param && p.aligned) {
        return CHUNK;
    }
    if !matches!(kernel.state, State::Gpu { .. }) || kernel.works_in_runs() || kernel.is_persistent() {
        return size;
    }
    let pairs = |cols: usize| {
        let mut others = ty.neighbours().filter(|(axis, _)| *axis != cols);
        matches!(ty.elem, Elem::F32 | Elem::BF16 | Elem::F16)
            && ty.is_dense(cols)
            && others.all(|(_, stride)| stride.is_multiple_of(2))
    };
    let accesses = kernel.body.insts().map(|(_, _, data)| match data.op {
        Op::Gpu(GpuOp::CopyAsync { .. } | GpuOp::TmaLoad { .. }) if data.operands.get(1) == Some(&param) => CHUNK,
        Op::Store { cols: Some(cols), .. } if data.operands.first() == Some(&param) && pairs(cols) => 2 * size,
        _ => size,
    });
    accesses.max().unwrap_or(size)
}

/// Is a buffer an operand of a matmul that reads it in 16-byte chunks?
fn is_split(kernel: &Kernel, param: Value) -> bool {
    let body = &kernel.body;
    let reads = |v: &Value| body.def_inst(*v).is_some_and(|d| d.operands.contains(&param));
    body.insts().any(|(_, _, d)| d.op == Op::Dot { mode: Some(DotMode::Split) } && d.operands.iter().take(2).any(reads))
}

/// Is a buffer of a plan provably aligned to `bytes`, at most 16? Arguments, parameters, results,
/// taps, slots, states and packed weights are; so is a view of one if its offset and strides are
/// multiples. The same holds for buffers of a kernel that launches others, if its `params` say so.
pub(crate) fn begins_at_multiple(body: &Body, params: &[Param], buffer: Value, bytes: u64) -> bool {
    let Some(view) = View::trace(body, buffer) else { return false };
    let elements = i64::try_from(bytes / view.elem.size().max(1)).unwrap_or(i64::MAX);
    if elements <= 1 {
        return true;
    }
    let skips = view.dynamic.iter().map(|(_, stride)| stride).chain([&view.offset]);
    let given = params.iter().any(|p| p.value == view.root && p.aligned);
    (given || body.def_inst(view.root).is_some()) && skips.into_iter().all(|d| d.is_multiple_of(elements))
}

/// Does every launch of a kernel pass a buffer with this alignment as parameter number `n`?
pub(crate) fn launches_give(module: &Module, kernel: &str, n: usize, bytes: u64) -> bool {
    let fits = |plan: &Plan| {
        plan.body.insts().all(|(_, _, data)| {
            !matches!(&data.op, Op::Plan(PlanOp::Launch { kernel: name }) if name == kernel)
                || data.operands.get(n).is_some_and(|v| begins_at_multiple(&plan.body, &[], *v, bytes))
        })
    };
    module.plans.iter().all(fits)
}
