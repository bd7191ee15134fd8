//! The texts of remarks on tensor cores: how a kernel uses them, and reasons why one does not.
//!
//! In: a kernel with fragments, or the operand that prevents them. Out: a part of its remark. It
//! must not decide anything, nor know how kernels are made.

use std::collections::BTreeSet;

use super::Reason;
use crate::tile::alignment::CHUNK;
use crate::tile::{BufferType, GpuOp, Kernel, Op, State};

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

/// The reason for operands of other types than tensor cores multiply.
pub(super) fn not_halves(operands: &[&BufferType]) -> Reason {
    let types: BTreeSet<&str> = operands.iter().map(|b| b.elem.name()).collect();
    let exact = if types.contains("f32") { "; products of f32 stay exact" } else { "" };
    let names: Vec<&str> = types.into_iter().collect();
    format!("operands of {}, where all must be bf16, or all f16{exact}", names.join(" and "))
}

/// The reason for an operand whose rows cannot be copied in chunks.
pub(super) fn not_apart(b: &BufferType) -> Reason {
    format!("rows of an operand ({}) are not a multiple of {CHUNK} bytes apart", shown(b))
}

/// The reason for a parameter of a kernel that is accessed this many bytes at a time.
pub(super) fn not_aligned(k: &Kernel, n: usize, bytes: u64) -> Reason {
    let operand = k.buffer_type(n).map(shown).unwrap_or_default();
    format!("an operand ({operand}) may not begin at a multiple of {bytes} bytes")
}

fn shown(b: &BufferType) -> String {
    let shape: Vec<String> = b.shape.iter().map(ToString::to_string).collect();
    format!("{}[{}]", b.elem, shape.join(", "))
}
