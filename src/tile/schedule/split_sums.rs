//! split-sums: a matmul with large K becomes a loop over blocks of k, whose sums are added.
//!
//! ```text
//! kernel @matmul.0(%0: in f32[4, 2048], %1: in f32[1, 2048, 32], %2: out f32[4, 32]) grid(%3: ceil(4, 4), %4: ceil(32, 32)) computes(matmul, plain=true, tile(64, 32), panels(), single) {
//! ^bb0:
//!   %5 = const 4 : index
//!   %6 = mul %3, %5 : index
//!   %7 = const 32 : index
//!   %8 = mul %4, %7 : index
//!   %9 = const 0.0 : f32
//!   %10 = full %9 : tile f32[4, 32]
//!   %11 = const 0 : index
//!   %12 = load %0[%6, %11], rows=0, cols=1 : tile f32[4, 2048]
//!   %13 = load %1[%4, %11, %11], rows=1, cols=2 : tile f32[2048, 32]
//!   %14 = dot %12, %13, %10 : tile f32[4, 32]
//!   store %2[%6, %8], %14, rows=0, cols=1
//!   return
//! }
//! ->
//! kernel @matmul.0(%0: in f32[4, 2048], %1: in f32[1, 2048, 32], %2: out f32[4, 32]) grid(%3: ceil(4, 4), %4: ceil(32, 32)) computes(matmul, plain=true, tile(64, 32), block(256), panels(), single) {
//! ^bb0:
//!   %5 = const 4                              : index
//!   %6 = mul %3, %5                           : index
//!   %7 = const 32                             : index
//!   %8 = mul %4, %7                           : index
//!   %9 = const 0.0                            : f32
//!   %10 = full %9                             : tile f32[4, 32]
//!   %11 = const 0                             : index
//!   br ^bb1(%11, %10)
//! ^bb1(%12: index, %13: tile f32[4, 32]):
//!   %14 = const 2048                          : index
//!   %15 = const 256                           : index
//!   %16 = add %12, %15                        : index
//!   %17 = lt %16, %14                         : bool
//!   br_if %17, ^bb2, ^bb3
//! ^bb2:
//!   %18 = load %0[%6, %12], rows=0, cols=1    : tile f32[4, 256]
//!   %19 = load %1[%4, %12, %11], rows=1, cols=2 : tile f32[256, 32]
//!   %20 = dot %18, %19, %13                   : tile f32[4, 32]
//!   br ^bb1(%16, %20)
//! ^bb3:
//!   %21 = load %0[%6, %12], rows=0, cols=1    : tile f32[4, 256]
//!   %22 = load %1[%4, %12, %11], rows=1, cols=2 : tile f32[256, 32]
//!   %23 = dot %21, %22, %13                   : tile f32[4, 32]
//!   store %2[%6, %8], %23, rows=0, cols=1
//!   return
//! }
//! ```
//!
//! It takes kernels whose description is a matmul of constant K (`tile::matmul` makes a loop itself
//! if K is not a constant), and writes them again by a description that has a block.
//!
//! The length of a block is
//!
//! * 256: a panel of 32 columns then takes 32 KiB, which stays in an L1 cache of 48 KiB from one
//!   register tile of rows to the next. Each partial sum costs a register tile of 14 rows some 50
//!   cycles of some 3,600. Up to 1024 are one chain: 256 for these, too, were no faster;
//! * 1024 for integers that are summed exactly in groups of 32: a chain of 32 sums;
//! * 2048 for `bf16` tiles, which add 32 k indices at a time: a chain of 64 sums of two of 16.
//!
//! If the result is stored directly, or rounded, as above, the last block comes after the loop,
//! next to the store, so that the sums need not go through scratch. A block of k is a part of the
//! kernel's original accesses, so it stays in bounds.
//!
//! It must not know where tiles live, nor the modes of matmuls.

use super::step::{Changed, Log, unscheduled};
use crate::tile::matmul::{self, LEFT};
use crate::tile::{Compute, Cpu, Feature, GROUP, Kernel, Machine, Matmul, Module, PanelLayout, simplify};

const CHAIN: i64 = 256;
const ONE_CHAIN: i64 = 1024;
const OF_GROUPS: i64 = 1024;
const OF_TILES: i64 = 2048;

// A block must begin at a group of integers, and at a pair.
const _: () =
    assert!(CHAIN % GROUP as i64 == 0 && OF_GROUPS % GROUP as i64 == 0 && CHAIN % 2 == 0 && OF_TILES % 2 == 0);

/// Puts the matmuls of all kernels into loops where K is too large; they are the changed kernels.
pub(super) fn run(module: &mut Module, machine: &Machine, log: &mut Log<'_>) -> Result<Changed, String> {
    let Some(cpu) = machine.cpu() else { return Ok(Changed::new()) };
    let mut changed = Changed::new();
    for kernel in unscheduled(module) {
        if let Some(block) = split(kernel, cpu) {
            log.note(&kernel.name, &format!("{block} k indices are summed at a time"));
            changed.insert(kernel.name.clone());
        }
    }
    Ok(changed)
}

/// Puts a kernel's matmul into a loop over blocks of k, if K is too large; returns their length.
pub(super) fn split(kernel: &mut Kernel, cpu: Cpu) -> Option<i64> {
    let Some(Compute::Matmul(matmul @ Matmul { block: None, .. })) = &kernel.compute else { return None };
    let types = kernel.buffer_types()?;
    let steps = matmul::whole_steps(types.get(LEFT)?.shape.last()?)?;
    let block = match matmul.panels.as_ref().map(|panels| panels.layout) {
        Some(PanelLayout::Pairs) if cpu.has(Feature::Amx) => OF_TILES,
        Some(PanelLayout::Scaled { .. }) if cpu.sums_bytes() => OF_GROUPS,
        _ if steps <= ONE_CHAIN => ONE_CHAIN,
        _ => CHAIN,
    };
    let epilogue = matmul::epilogue(kernel).filter(|_| steps > block)?;
    let matmul = Matmul { plain: epilogue.is_plain(kernel), block: Some(block), ..matmul.clone() };
    *kernel = matmul::rewrite(kernel, &epilogue, matmul, types)?;
    simplify(&mut kernel.body);
    Some(block)
}
