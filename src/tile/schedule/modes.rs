//! choose-modes: gives each matmul the best mode that the machine has and its operands permit.
//!
//! ```text
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
//! ->
//! kernel @matmul.0(%0: in f32[4, 64], %1: in f32[1, 64, 32], %2: out f32[4, 32]) {
//! ^bb0:
//!   %3 = const 0                                : index
//!   %4 = const 0.0                              : f32
//!   %5 = full %4                                : tile f32[4, 32]
//!   %6 = window %0[%3, %3], rows=0, cols=1       : tile f32[4, 64]
//!   %7 = window %1[%3, %3, %3], rows=1, cols=2   : tile f32[64, 32]
//!   %8 = dot %6, %7, %4, mode=fma                     : tile f32[4, 32]
//!   store %2[%3, %3], %8, rows=0, cols=1
//!   return
//! }
//! ```
//!
//! The mode ([`DotMode`]) determines in which order the products of an element are added, and so
//! how its sum is rounded. On a CPU it is the one with the most k indices per instruction; on a
//! GPU, matmuls with few rows split K among the threads of a block.
//!
//! A matmul that already has a mode keeps it. It must not know how a back end computes a mode.

use super::gpu::few_rows::kernels_in_chunks;
use super::step::{Changed, Log, unscheduled};
use crate::tile::machine::MAX_WARPS;
use crate::tile::matmul;
use crate::tile::{Body, DotMode, InstData, Kernel, Machine, Module, Op, Processor};

/// Chooses the modes of all kernels.
pub(super) fn run(module: &mut Module, machine: &Machine, log: &mut Log<'_>) -> Result<Changed, String> {
    let chunks = machine.gpu().map(|_| kernels_in_chunks(module)).unwrap_or_default();
    for kernel in unscheduled(module) {
        let in_chunks = chunks.contains(&kernel.name);
        choose(kernel, machine, in_chunks);
        if let (Some(_), Some(Op::Dot { mode: Some(mode) })) = (machine.cpu(), matmul::dot(kernel).map(|d| &d.op)) {
            log.note(&kernel.name, &format!("products are added in mode `{}`", mode.name()));
        }
    }
    Ok(Changed::new())
}

/// Chooses the modes of one kernel. `in_chunks`: the operands of its matmuls are aligned to 16
/// bytes.
pub(super) fn choose(kernel: &mut Kernel, machine: &Machine, in_chunks: bool) {
    // A block with such a matmul has at least this number of warps, unless chosen otherwise.
    let warps = kernel.tiled.as_ref().and_then(|tiled| tiled.warps).unwrap_or(u32::try_from(MAX_WARPS).unwrap_or(1));
    let best = |body: &Body, dot: &InstData| match machine.processor {
        Processor::Cpu(cpu) => Some(DotMode::best(body, dot, cpu)),
        Processor::Gpu(_) => {
            Some(DotMode::Split).filter(|mode| in_chunks && mode.check_for_gpu(body, dot, warps).is_ok())
        }
    };
    set(kernel, best);
}

/// Gives the remaining matmuls of a kernel the mode that needs nothing.
pub(super) fn complete(kernel: &mut Kernel, machine: &Machine) {
    set(kernel, |body, dot| match machine.processor {
        Processor::Cpu(_) => Some(DotMode::Chain),
        Processor::Gpu(_) => Some(DotMode::own_of_gpu(body, dot)),
    });
}

/// Sets the mode of each matmul that has none.
fn set(kernel: &mut Kernel, of: impl Fn(&Body, &InstData) -> Option<DotMode>) {
    for inst in kernel.body.insts().map(|(_, i, _)| i).collect::<Vec<_>>() {
        if kernel.body.inst(inst).op == (Op::Dot { mode: None })
            && let Some(mode) = of(&kernel.body, kernel.body.inst(inst))
        {
            kernel.body.inst_mut(inst).op = Op::Dot { mode: Some(mode) };
            kernel.compute = None;
        }
    }
}
