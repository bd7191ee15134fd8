//! Register allocation: linear scan (Poletto & Sarkar 1999, "Linear Scan Register Allocation") over
//! exact live ranges.
//!
//! In: a function over virtual registers, without dead ones. Out: the same over physical registers,
//! with explicit spills and moves, and without block parameters. The phases, each a file:
//!
//! 1. here: operands tied to a result are first copied ([`two_address`]);
//! 2. `liveness`: live ranges;
//! 3. `coalesce`: *bundles* of registers that share a location, so that jumps and copies need no
//!    moves;
//! 4. `scan`: a register or a spill for each bundle;
//! 5. `rewrite`: the code, with spills and the remaining moves.
//!
//! `check` proves an allocation correct; tests run it on every leaf, and on random functions.
//!
//! Where registers run out, the bundle with the lowest spill weight is spilled whole: a constant to
//! the pool, where its uses fold it as a memory operand, anything else to the frame. A few
//! registers are reserved for reloads only if something is spilled.
//!
//! regalloc2 has no rematerialisation: it would store constants that do not fit to the frame and
//! reload them. With 16 registers that is up to 14 times as many frame accesses
//! (`docs/notes/2026-11-27-register-allocation.md`).

#[cfg(test)]
mod check;
mod coalesce;
mod liveness;
mod rewrite;
mod scan;

#[cfg(test)]
use super::machine::verify;
use super::machine::{Base, Class, Function, Inst, Mem, Op, Operand, Physical, Reg};
use scan::Assignment;

/// General registers in allocation order, caller-saved first. `rdi` points to the arguments, `rbp`
/// and `rsp` to the frame.
const GENERAL: [u8; 13] = [0, 1, 2, 6, 8, 9, 10, 11, 3, 12, 13, 14, 15];
/// Callee-saved general registers, except `rbp`.
const SAVED: [u8; 5] = [3, 12, 13, 14, 15];

/// An allocated function.
#[derive(Clone, Debug)]
pub(super) struct Allocated {
    pub(super) function: Function<Physical>,
    /// General registers to save.
    pub(super) saved: Vec<u8>,
    /// For each instruction, its original index in the block; `None` for spills and moves.
    #[cfg(test)]
    pub(super) from: Vec<Vec<Option<u32>>>,
}

/// An instruction and its original index in the block; `None` for an inserted copy.
#[derive(Clone, Debug)]
struct Step {
    inst: Inst,
    from: Option<u32>,
}

/// Properties of virtual registers.
struct Registers {
    classes: Vec<Class>,
    /// The constant that it holds, if it is the same in all lanes and so can be read from the pool.
    constants: Vec<Option<u32>>,
}

/// Allocates registers; `None` if there are too few. In tests the result is checked.
pub(super) fn allocate(function: &Function) -> Option<Allocated> {
    let allocated = allocated(function);
    #[cfg(test)]
    proved(function, allocated.as_ref());
    allocated
}

/// Verifies the input and checks the allocation.
#[cfg(test)]
fn proved(function: &Function, allocated: Option<&Allocated>) {
    if let Err(complaint) = verify(function) {
        panic!("{complaint}");
    }
    if let Some(Err(complaint)) = allocated.map(|a| check::check(function, a)) {
        panic!("{complaint}");
    }
}

fn allocated(function: &Function) -> Option<Allocated> {
    let registers = Registers { classes: function.classes.clone(), constants: constants(function) };
    let blocks = two_address(function);
    let ranges = liveness::ranges(function, &blocks);
    let bundles = coalesce::coalesce(function, &blocks, &registers, ranges);
    let assignments = scan::assign(function, &blocks, &registers, &bundles);
    rewrite::rewrite(function, &blocks, &registers, &bundles, &assignments)
}

/// The registers that hold a constant that is the same in all lanes.
fn constants(function: &Function) -> Vec<Option<u32>> {
    let mut constants = vec![None; function.classes.len()];
    for inst in function.blocks.iter().flat_map(|b| &b.insts) {
        if let (Op::Spread, Some(dst), [Operand::Mem(Mem { base: Base::Pool(n), .. })]) =
            (inst.op, inst.dst, inst.srcs.as_slice())
        {
            constants[dst.index()] = Some(*n);
        }
    }
    constants
}

/// Inserts a copy before each instruction with a tied operand, so that the operand is the result's
/// register. The copy disappears if both are allocated to the same location.
fn two_address(function: &Function) -> Vec<Vec<Step>> {
    let steps = |insts: &[Inst]| {
        let mut steps = Vec::with_capacity(insts.len());
        for (n, inst) in (0u32..).zip(insts) {
            let mut inst = inst.clone();
            if let (Some(dst), Some(tied)) = (inst.dst, inst.tied) {
                let op = function.class(tied).copy();
                let srcs = vec![Operand::Reg(tied)];
                let copy = Inst { op, dst: Some(dst), tied: None, srcs, mask: None, origin: inst.origin };
                steps.push(Step { inst: copy, from: None });
                inst.tied = Some(dst);
            }
            steps.push(Step { inst, from: Some(n) });
        }
        steps
    };
    function.blocks.iter().map(|b| steps(&b.insts)).collect()
}

/// Loop depth of each block. A loop spans, in code order, the target of a backward jump to the
/// jump.
fn depths(function: &Function) -> Vec<i32> {
    let mut last = vec![0; function.blocks.len()];
    for (n, (_, block)) in function.named_blocks().enumerate() {
        for target in block.end.targets() {
            let top = target.block.as_u32() as usize;
            if top <= n {
                last[top] = n + 1;
            }
        }
    }
    let mut depths = vec![0; function.blocks.len()];
    for (top, end) in last.into_iter().enumerate().filter(|(_, end)| *end > 0) {
        depths[top..end].iter_mut().for_each(|d| *d += 1);
    }
    depths
}
