//! Remarks on tensor cores: how a kernel uses them, or why it does not.
//!
//! In: a kernel with fragments, or an unscheduled one that has none. Out: a part of its remark. The
//! reason most likely to be actionable comes first. It must not know how kernels are made.

use std::collections::BTreeSet;

use super::super::attention::may_be_replaced;
use super::super::products::MatmulParts;
use crate::shape::Elem;
use crate::tile::alignment::{CHUNK, launches_give};
use crate::tile::attention::{Described, KEYS, QUERIES, VALUES};
use crate::tile::matmul::{LEFT, RIGHT};
use crate::tile::{BufferType, GpuOp, Kernel, Module, Op, State};

/// Maximum head width of attention on tensor cores.
const WIDTH: i64 = 256;

/// How a kernel uses tensor cores, if it does.
pub(in super::super) fn remark_on_use(k: &Kernel) -> Option<String> {
    let State::Gpu { warps, .. } = k.state else { return None };
    let has = |op: &dyn Fn(&Op) -> bool| k.body.insts().any(|(_, _, d)| op(&d.op));
    let (unit, copies) = if has(&|op| matches!(op, Op::Gpu(GpuOp::Wgmma { .. }))) {
        ("wgmma", "TMA")
    } else if has(&|op| matches!(op, Op::Gpu(GpuOp::Mma | GpuOp::MmaScaled { .. }))) {
        ("mma.sync", if has(&|op| matches!(op, Op::Gpu(GpuOp::CopyAsync { .. }))) { "cp.async" } else { "loads" })
    } else {
        return None;
    };
    let mut roles: Vec<(String, usize)> = Vec::new();
    for name in k.warp_names() {
        match roles.last_mut() {
            Some((last, n)) if *last == name => *n += 1,
            _ => roles.push((name, 1)),
        }
    }
    let roles: Vec<String> = roles.iter().map(|(name, n)| format!("{n} {name}")).collect();
    let roles = if roles.is_empty() { String::new() } else { format!(" ({})", roles.join(", ")) };
    let shared = k.scratch.div_ceil(1024);
    let s = if warps == 1 { "" } else { "s" };
    Some(format!("tensor cores by {unit}, tiles by {copies}, {warps} warp{s}{roles}, {shared} KiB of shared memory"))
}

/// Why an unscheduled kernel with a matmul does not use tensor cores.
pub(super) fn why_not(module: &Module, k: &Kernel) -> Option<String> {
    let buffer = |n: usize| k.params.get(n).and_then(|p| k.body.ty(p.value).buffer());
    if Described::from_kernel(k).is_some() {
        let operands = [QUERIES, KEYS, VALUES];
        let wide = operands.iter().filter_map(|n| buffer(*n)?.shape.last()?.as_const()).find(|n| *n > WIDTH);
        let over = "its result is written over what it reads, or it is computed before all calls";
        let replaced = may_be_replaced(module, k);
        return (!replaced)
            .then(|| over.to_string())
            .or_else(|| of_operands(module, k, &operands))
            .or_else(|| wide.map(|n| format!("heads of {n} elements are wider than {WIDTH}")))
            .or_else(|| Some("its form of attention has none there".to_string()));
    }
    let dots = k.body.insts().filter(|(_, _, d)| matches!(d.op, Op::Dot { .. })).count();
    if dots == 0 {
        return None;
    }
    // The right operand of a matmul with packed weights is integers.
    let operands: &[usize] = if k.loads_scaled() { &[LEFT] } else { &[LEFT, RIGHT] };
    if !k.loads_scaled() && MatmulParts::find(k).is_none() {
        return Some("it is not one product of two buffers with elementwise work on its result".to_string());
    }
    if let Some(why) = of_operands(module, k, operands) {
        return Some(why);
    }
    let steps = buffer(LEFT).and_then(|b| b.shape.last()).map(|d| (d.as_const(), d.to_string()));
    if let Some((None, steps)) = steps {
        return Some(format!("the number of its steps, {steps}, is known only at run time"));
    }
    let [.., rows, cols] = k.grid.as_slice() else { return None };
    Some(format!("it has {} rows and {} columns, or an epilogue that has no form there", rows.extent, cols.extent))
}

/// Properties of operands that prevent tensor cores: types, row strides, alignment.
fn of_operands(module: &Module, k: &Kernel, operands: &[usize]) -> Option<String> {
    let all: Vec<(usize, &BufferType)> =
        operands.iter().filter_map(|n| Some((*n, k.body.ty(k.params.get(*n)?.value).buffer()?))).collect();
    let types: BTreeSet<&str> = all.iter().map(|(_, b)| b.elem.name()).collect();
    let names: Vec<&str> = types.iter().copied().collect();
    if types.len() > 1 || all.iter().any(|(_, b)| !matches!(b.elem, Elem::BF16 | Elem::F16)) {
        let exact = if types.contains("f32") { "; products of f32 stay exact" } else { "" };
        return Some(format!("operands of {}, where all must be bf16, or all f16{exact}", names.join(" and ")));
    }
    for (n, b) in &all {
        let size = i64::try_from(b.elem.size()).unwrap_or(1);
        let chunk = i64::try_from(CHUNK).unwrap_or(1) / size;
        let apart = b.neighbours().filter(|(_, d)| !d.is_multiple_of(chunk)).count();
        if apart > 1 || (apart == 1 && !(0..b.shape.len()).any(|axis| b.is_dense(axis))) {
            return Some(format!("rows of an operand ({}) are not a multiple of {CHUNK} bytes apart", shown(b)));
        }
        if !launches_give(module, &k.name, *n, CHUNK) {
            return Some(format!("an operand ({}) may not begin at a multiple of {CHUNK} bytes", shown(b)));
        }
    }
    None
}

fn shown(b: &BufferType) -> String {
    let shape: Vec<String> = b.shape.iter().map(ToString::to_string).collect();
    format!("{}[{}]", b.elem, shape.join(", "))
}
