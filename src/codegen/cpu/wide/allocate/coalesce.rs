//! Coalescing: arguments of jumps with block parameters, and loop-carried values.
//!
//! In: live ranges. Out: bundles of registers with disjoint live ranges, so that each bundle can
//! have one location. Tried in order: the arguments of jumps with the parameters, where the
//! argument is not a constant (constants are better left in memory); then, for a loop-carried
//! value, the chain of tied operations that computes the next one, such as a sum that several
//! instructions add to. Copies are not considered here: `scan` tries to give both the same
//! register.
//!
//! A simple version of Boissinot, Darte, Rastello, de Dinechin & Guillon (2009, "Revisiting
//! Out-of-SSA Translation for Correctness, Code Quality, and Efficiency"): interfering ranges are
//! never coalesced, even if they hold the same value.

use super::liveness::{Range, Segment};
use super::{Registers, Step};
use crate::codegen::cpu::wide::machine::{Function, Op, Operand, Reg};

/// A union-find forest of virtual registers.
pub(super) struct Bundles {
    /// Parent of each register; a bundle's representative is its own parent.
    parents: Vec<u32>,
    /// Live ranges of the representatives.
    ranges: Vec<Range>,
}

impl Bundles {
    /// The representative of a register's bundle.
    pub(super) fn representative(&self, r: Reg) -> Reg {
        let mut r = r.0;
        while self.parents[r as usize] != r {
            r = self.parents[r as usize];
        }
        Reg(r)
    }

    /// Live range of a bundle, given its representative.
    pub(super) fn range(&self, r: Reg) -> &[Segment] {
        &self.ranges[r.index()]
    }

    /// Merges two bundles if their ranges are disjoint.
    fn unite(&mut self, a: Reg, b: Reg) -> bool {
        let (a, b) = (self.representative(a), self.representative(b));
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

/// Do two ranges overlap?
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

/// The step that defines each register, not counting copies for tied operands.
fn makers<'a>(function: &Function, blocks: &'a [Vec<Step>]) -> Vec<Option<&'a Step>> {
    let mut makers = vec![None; function.classes.len()];
    for step in blocks.iter().flatten() {
        if let Some(dst) = step.inst.dst.filter(|_| step.inst.tied.is_none()) {
            makers[dst.index()] = Some(step);
        }
    }
    makers
}

/// Longest chain that is searched.
const MAX_CHAIN: usize = 64;

/// The chain of registers from a parameter to its next value, if each is computed from the previous
/// one by the same operation or a copy.
fn way(makers: &[Option<&Step>], bundles: &Bundles, param: Reg, arg: Reg) -> Vec<Reg> {
    let goal = bundles.representative(param);
    let mut way = Vec::new();
    let mut now = arg;
    let mut operation: Option<Op> = None;
    while let Some(step) = makers[now.index()].filter(|_| way.len() < MAX_CHAIN) {
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
        if sources.clone().any(|r| bundles.representative(r) == goal) {
            return way;
        }
        let Some(next) = sources.clone().find(goes_on) else { break };
        way.push(next);
        now = next;
    }
    Vec::new()
}
