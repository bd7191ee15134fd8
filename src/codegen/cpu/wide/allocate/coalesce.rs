//! Coalescing: arguments of jumps with block parameters, and loop-carried values.
//!
//! In: live ranges. Out: bundles of registers that are never live at once, so that each bundle can have one location. Tried in
//! order: the arguments of jumps with the parameters, where the argument is not a constant (constants are better left in
//! memory); then, for a loop-carried value, the chain of tied operations that computes the next one, such as a sum that several
//! instructions add to. Copies are not considered here: `scan` tries to give both the same register.
//!
//! This is the plain form of what Boissinot, Darte, Rastello, de Dinechin & Guillon (2009, "Revisiting Out-of-SSA Translation
//! for Correctness, Code Quality, and Efficiency") do: ranges that interfere are never coalesced, even where the values are the
//! same.

use super::liveness::{Range, Segment};
use super::{Registers, Step};
use crate::codegen::cpu::wide::machine::{Function, Op, Operand, Reg};

/// Which registers are one.
pub(super) struct Bundles {
    /// A register of the same bundle, or itself for the one that stands for it.
    parents: Vec<u32>,
    /// Where those that stand for bundles are live.
    ranges: Vec<Range>,
}

impl Bundles {
    /// The register that stands for a register's bundle.
    pub(super) fn of(&self, r: Reg) -> Reg {
        let mut r = r.0;
        while self.parents[r as usize] != r {
            r = self.parents[r as usize];
        }
        Reg(r)
    }

    /// Where a bundle is live, by the register that stands for it.
    pub(super) fn range(&self, r: Reg) -> &[Segment] {
        &self.ranges[r.index()]
    }

    /// Makes two registers one, if they are never live at once.
    fn unite(&mut self, a: Reg, b: Reg) -> bool {
        let (a, b) = (self.of(a), self.of(b));
        if a == b {
            return true;
        }
        if meet(&self.ranges[a.index()], &self.ranges[b.index()]) {
            return false;
        }
        let (kept, other) = if a < b { (a, b) } else { (b, a) };
        self.parents[other.index()] = kept.0;
        let mut more = std::mem::take(&mut self.ranges[other.index()]);
        let range = &mut self.ranges[kept.index()];
        range.append(&mut more);
        range.sort_unstable_by_key(|s| s.start);
        true
    }
}

/// Have two ranges a point in common?
fn meet(a: &[Segment], b: &[Segment]) -> bool {
    let (mut i, mut j) = (0, 0);
    while let (Some(x), Some(y)) = (a.get(i), b.get(j)) {
        if x.end < y.start {
            i += 1;
        } else if y.end < x.start {
            j += 1;
        } else {
            return true;
        }
    }
    false
}

/// Puts registers together.
pub(super) fn coalesce(
    function: &Function,
    blocks: &[Vec<Step>],
    registers: &Registers,
    ranges: Vec<Range>,
) -> Bundles {
    let parents = (0u32..).take(ranges.len()).collect();
    let mut bundles = Bundles { parents, ranges };
    let mut returns = Vec::new();
    for (n, block) in function.blocks.iter().enumerate() {
        for target in block.end.targets() {
            let to = target.block.as_u32() as usize;
            for (param, arg) in function.blocks[to].params.iter().zip(&target.args) {
                let united = registers.constants[arg.index()].is_none() && bundles.unite(*param, *arg);
                if united && to <= n {
                    returns.push((*param, *arg));
                }
            }
        }
    }
    if !returns.is_empty() {
        let makers = makers(function, blocks);
        for (param, arg) in returns {
            for r in way(&makers, &bundles, param, arg) {
                bundles.unite(param, r);
            }
        }
    }
    bundles
}

/// For each register, the step that makes it, copies for ties aside.
fn makers<'a>(function: &Function, blocks: &'a [Vec<Step>]) -> Vec<Option<&'a Step>> {
    let mut makers = vec![None; function.classes.len()];
    for step in blocks.iter().flatten() {
        if let Some(dst) = step.inst.dst.filter(|_| step.inst.tied.is_none()) {
            makers[dst.index()] = Some(step);
        }
    }
    makers
}

/// The most values on a way that is looked for.
const LONGEST: usize = 64;

/// The registers between a parameter and what it is in the next iteration, if each comes from the one before by the same
/// operation or a copy.
fn way(makers: &[Option<&Step>], bundles: &Bundles, param: Reg, arg: Reg) -> Vec<Reg> {
    let goal = bundles.of(param);
    let mut way = Vec::new();
    let mut now = arg;
    let mut operation: Option<Op> = None;
    while let Some(step) = makers[now.index()].filter(|_| way.len() < LONGEST) {
        let op = step.inst.op;
        if !op.is_copy() && *operation.get_or_insert(op) != op {
            break;
        }
        let sources = step.inst.srcs.iter().filter_map(|s| match s {
            Operand::Reg(r) => Some(*r),
            Operand::Mem(_) | Operand::Imm(_) => None,
        });
        let goes_on = |r: &Reg| {
            let maker = makers[r.index()].map(|s| s.inst.op);
            maker.is_some_and(|op| op.is_copy() || Some(op) == operation)
        };
        if sources.clone().any(|r| bundles.of(r) == goal) {
            return way;
        }
        let Some(next) = sources.clone().find(goes_on) else { break };
        way.push(next);
        now = next;
    }
    Vec::new()
}
