//! Register allocation: linear scan (Poletto & Sarkar 1999, "Linear Scan Register Allocation") over live ranges from the control flow.
//!
//! In: a function over virtual registers, without unread ones. Out: the same over physical registers, with spills and moves
//! written out and no parameters of blocks. In steps, each a file:
//!
//! 1. here, an operand that is tied to a result is copied into the result's register first ([`two_address`]);
//! 2. `liveness`: where each register is live;
//! 3. `coalesce`: *bundles* of registers that share a location, so that jumps and copies need no moves;
//! 4. `scan`: a register for each bundle, or none;
//! 5. `rewrite`: the code, with spills and the remaining moves.
//!
//! `check` proves an allocation correct; tests run it on every leaf, and on random functions.
//!
//! Where registers run out, the bundle that costs least for its length is spilled whole: a constant to the
//! pool, from where its uses fold it as an operand, anything else to the frame. Only if something is spilled, a few registers are
//! reserved for reloads.

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

/// General registers in the order in which they are handed out: those that a function may use freely come first. `rdi`
/// holds the words, `rbp` and `rsp` the frame.
const GENERAL: [u8; 13] = [0, 1, 2, 6, 8, 9, 10, 11, 3, 12, 13, 14, 15];
/// General registers that a function must give back as they were, `rbp` aside.
const SAVED: [u8; 5] = [3, 12, 13, 14, 15];

/// A function with its registers.
#[derive(Clone, Debug)]
pub(super) struct Allocated {
    /// What it does.
    pub(super) function: Function<Physical>,
    /// General registers to save.
    pub(super) saved: Vec<u8>,
    /// For each instruction, which of its block's it was; none for spills and moves.
    #[cfg(test)]
    pub(super) from: Vec<Vec<Option<u32>>>,
}

/// An instruction on its way, and which of its block's it was; none for a copy of ours.
#[derive(Clone, Debug)]
struct Step {
    inst: Inst,
    from: Option<u32>,
}

/// What each virtual register is to the allocator.
struct Registers {
    /// Its class.
    classes: Vec<Class>,
    /// The constant that it holds, if its value is the same in all lanes: it can be read in the pool.
    constants: Vec<Option<u32>>,
}

/// Gives every register a place; `None` if that cannot be done. In tests it is proved that the result does what was given.
pub(super) fn allocate(function: &Function) -> Option<Allocated> {
    let allocated = allocated(function);
    #[cfg(test)]
    proved(function, allocated.as_ref());
    allocated
}

/// What is given keeps the rules, and what comes out does the same.
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

/// Which registers hold constants that every lane has.
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

/// The blocks' instructions, with a copy before each that reads what it writes: from here on the operand is the result's
/// register. The copy goes where both get one place.
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

/// How often a block is done, as the depth of loops around it: from where a jump goes back to where it comes from, in the
/// order of the code.
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
