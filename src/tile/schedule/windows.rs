//! read-in-place: matmul operands are read in place, without a copy in scratch.
//!
//! ```text
//! kernel @matmul.0(%0: in f32[4, 64], %1: in f32[1, 64, 32], %2: out f32[4, 32]) {
//! ^bb0:
//!   %3 = const 0                                : index
//!   %4 = const 0.0                              : f32
//!   %5 = full %4                                : tile f32[4, 32]
//!   %6 = load %0[%3, %3], rows=0, cols=1       : tile f32[4, 64]
//!   %7 = load %1[%3, %3, %3], rows=1, cols=2   : tile f32[64, 32]
//!   %8 = dot %6, %7, %5                     : tile f32[4, 32]
//!   store %2[%3, %3], %8, rows=0, cols=1
//!   return
//! }
//! ->
//! kernel @matmul.0(%0: in f32[4, 64], %1: in f32[1, 64, 32], %2: out f32[4, 32]) {
//! ^bb0:
//!   %3 = const 0                                : index
//!   %4 = const 0.0                              : f32
//!   %5 = full %4                                : tile f32[4, 32]
//!   %6 = window %0[%3, %3], rows=0, cols=1       : tile f32[4, 64]
//!   %7 = window %1[%3, %3, %3], rows=1, cols=2   : tile f32[64, 32]
//!   %8 = dot %6, %7, %4                     : tile f32[4, 32]
//!   store %2[%3, %3], %8, rows=0, cols=1
//!   return
//! }
//! ```
//!
//! A load is turned into [`Op::Window`] if only matmuls use it, as left or right operand, and the
//! kernel does not write its buffer. On a GPU that is all: windows may have any type and layout,
//! and are read slice by slice through shared memory (`codegen::ptx`). On a CPU,
//! * as a left operand, its elements are `f32`, contiguous along its rows or along its columns; or
//!   they are `bf16`, contiguous along the columns (k), and the right operand has interleaved pairs
//!   of k indices (`load_pairs`, `pair_rows`);
//! * as a right operand, its elements are `f32` or `bf16` and its columns start a row of full
//!   registers, as in a packed panel.
//!
//! Panels of integers (`load_scaled`) and of pairs (`load_pairs`) are always read in place. An
//! accumulator with a constant initial value is not filled with it first: the matmul takes the
//! constant.
//!
//! It must not know registers, nor where other tiles live.

use std::collections::{BTreeMap, BTreeSet};

use super::step::{Changed, Log, unscheduled};
use crate::scalar::Scalar;
use crate::shape::Elem;
use crate::tile::{Body, Cpu, Inst, InstData, Kernel, Machine, Module, Op, ParamMode, Processor, Value};

/// Turns the loads of all kernels into windows where they can be.
pub(super) fn run(module: &mut Module, machine: &Machine, _: &mut Log<'_>) -> Result<Changed, String> {
    for kernel in unscheduled(module) {
        make_windows(kernel, machine);
    }
    Ok(Changed::new())
}

/// Turns eligible loads of a kernel into windows.
pub(super) fn make_windows(kernel: &mut Kernel, machine: &Machine) {
    for inst in candidates(kernel, machine) {
        let data = kernel.body.inst_mut(inst);
        if let Op::Load { rows, cols } = data.op {
            data.op = Op::Window { rows, cols };
            kernel.compute = None;
        }
    }
    if start_with_scalars(&mut kernel.body) {
        kernel.compute = None;
    }
}

/// Replaces an accumulator tile filled with a constant by the constant; returns whether there was
/// one.
fn start_with_scalars(body: &mut Body) -> bool {
    let mut any = false;
    for inst in body.insts().map(|(_, i, _)| i).collect::<Vec<_>>() {
        let data = body.inst(inst);
        let (Op::Dot { .. }, Some(acc)) = (&data.op, data.operands.get(2)) else { continue };
        let filled = body.def_inst(*acc).filter(|d| d.op == Op::Full).and_then(|d| d.operands.first().copied());
        if let (Some(x), Some(acc)) = (filled, body.inst_mut(inst).operands.get_mut(2)) {
            *acc = x;
            any = true;
        }
    }
    any
}

/// The loads that are used, by matmuls alone, and can be their operands in place.
fn candidates(kernel: &Kernel, machine: &Machine) -> Vec<Inst> {
    let body = &kernel.body;
    let mut loads: BTreeMap<Value, Inst> = BTreeMap::new();
    let mut used: BTreeSet<Value> = BTreeSet::new();
    let mut refused: BTreeSet<Value> = BTreeSet::new();
    let is_load = |data: &InstData| match machine.processor {
        Processor::Cpu(_) => is_read_only(kernel, data) && is_float(kernel, data),
        Processor::Gpu(_) => is_read_only(kernel, data),
    };
    loads.extend(body.insts().filter(|(_, _, d)| is_load(d)).filter_map(|(_, i, d)| Some((d.result?, i))));
    for block in &body.layout {
        let block = body.block(*block);
        refused.extend(block.terminator.values());
        for i in &block.insts {
            let user = body.inst(*i);
            for (n, v) in user.operands.iter().enumerate() {
                let fits = |load: &Inst| match machine.processor {
                    Processor::Cpu(cpu) => fits_cpu(kernel, (user, n), body.inst(*load), cpu),
                    Processor::Gpu(_) => matches!((&user.op, n), (Op::Dot { .. }, 0 | 1)),
                };
                used.insert(*v);
                if !loads.get(v).is_some_and(fits) {
                    refused.insert(*v);
                }
            }
        }
    }
    loads.into_iter().filter(|(v, _)| used.contains(v) && !refused.contains(v)).map(|(_, i)| i).collect()
}

/// Can a load be this operand of an operation in place, on a CPU?
fn fits_cpu(kernel: &Kernel, (user, n): (&InstData, usize), load: &InstData, cpu: Cpu) -> bool {
    let body: &Body = &kernel.body;
    match (&user.op, n) {
        (Op::Dot { .. }, 0) => {
            let right = user.operands.get(1).and_then(|b| body.def_inst(*b));
            let in_pairs = right.is_some_and(|d| matches!(d.op, Op::LoadPairs | Op::PairRows));
            is_left(kernel, load, in_pairs)
        }
        (Op::Dot { .. }, 1) => is_right(kernel, load, cpu),
        _ => false,
    }
}

/// Is it a load from a buffer that the kernel does not write?
fn is_read_only(kernel: &Kernel, data: &InstData) -> bool {
    let reads = |b: &Value| kernel.params.iter().any(|p| p.value == *b && p.mode == ParamMode::In);
    matches!(data.op, Op::Load { .. }) && data.operands.first().is_some_and(reads)
}

/// Does it read `f32` or `bf16`?
fn is_float(kernel: &Kernel, data: &InstData) -> bool {
    let buffer = data.operands.first().and_then(|b| kernel.body.ty(*b).buffer());
    buffer.is_some_and(|b| matches!(b.elem, Elem::F32 | Elem::BF16))
}

/// Can a load be the left operand of a matmul as a window? `in_pairs`: the right one has
/// interleaved pairs of k indices.
fn is_left(kernel: &Kernel, data: &InstData, in_pairs: bool) -> bool {
    let (Op::Load { rows, cols }, Some(b)) = (&data.op, data.operands.first()) else { return false };
    let Some(buffer) = kernel.body.ty(*b).buffer() else { return false };
    // A missing axis has a single row or column.
    let none = buffer.strides.len();
    let (rows, cols) = (rows.unwrap_or(none), cols.unwrap_or(none));
    buffer.is_left_operand(rows, cols) || buffer.elem == Elem::BF16 && in_pairs && buffer.is_dense(cols)
}

/// Can a load be the right operand of a matmul as a window?
fn is_right(kernel: &Kernel, data: &InstData, cpu: Cpu) -> bool {
    let (Op::Load { rows: Some(rows), cols: Some(cols) }, [b, indices @ ..]) = (&data.op, data.operands.as_slice())
    else {
        return false;
    };
    let Some(buffer) = kernel.body.ty(*b).buffer() else { return false };
    let stride = |axis: usize| buffer.strides.get(axis).and_then(|d| d.as_const());
    let first = indices.get(*cols).and_then(|v| kernel.body.def_inst(*v));
    buffer.is_dense(*cols)
        && stride(*rows).is_some()
        && first.is_some_and(|d| d.op == Op::Const(Scalar::Int(0)))
        && buffer.shape.get(*cols).and_then(|d| d.as_const()) == Some(i64::from(cpu.dot_cols()))
}
