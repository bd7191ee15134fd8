//! Live ranges: where each register is live, between its definition and its last uses, along every
//! path through the function.
//!
//! In: a function, and its instructions with ties as copies. Out: for each register its range, as
//! points of the code in order. Live-in sets are computed by backward data-flow analysis to a fixed
//! point (Aho, Lam, Sethi & Ullman, *Compilers*, 9.2.5).
//!
//! An instruction has two points: it reads at the first and writes at the second, so an operand
//! whose last use it is and its result may share a register. The arguments of a jump are read at
//! the last point of its block; the parameters are written at the first point of theirs.

use super::Step;
use crate::codegen::cpu::wide::machine::{Function, Inst, Reg};

/// Points of the code, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Segment {
    pub(super) start: u32,
    pub(super) end: u32,
}

/// The points at which a register is live, in order.
pub(super) type Range = Vec<Segment>;

/// First and last point of a block.
#[derive(Clone, Copy)]
struct Points {
    /// Point at which its parameters are written.
    start: u32,
    /// Point at which its terminator compares; the last point is the next one.
    end: u32,
}

impl Points {
    /// Point at which instruction `n` reads.
    fn read(self, n: usize) -> u32 {
        self.start + 2 * u32::try_from(n + 1).unwrap_or(0)
    }
}

/// A bit set of registers.
type Set = Vec<u64>;

fn insert(set: &mut Set, r: Reg) {
    set[r.index() / 64] |= 1 << (r.index() % 64);
}

fn remove(set: &mut Set, r: Reg) {
    set[r.index() / 64] &= !(1 << (r.index() % 64));
}

fn members(set: &Set) -> impl Iterator<Item = usize> {
    set.iter().enumerate().flat_map(|(n, word)| {
        let mut left = *word;
        std::iter::from_fn(move || {
            let bit = left.trailing_zeros() as usize;
            (left != 0).then(|| {
                left &= left - 1;
                64 * n + bit
            })
        })
    })
}

/// Computes the live range of each register.
pub(super) fn ranges(function: &Function, blocks: &[Vec<Step>]) -> Vec<Range> {
    let points = points(blocks);
    let outs = live_outs(function, blocks);
    let mut ranges: Vec<Range> = vec![Vec::new(); function.classes.len()];
    // Scanning backwards: the last use of each register that is live here.
    let mut ends: Vec<Option<u32>> = vec![None; function.classes.len()];
    // Registers that are live anywhere in the block.
    let mut seen: Vec<usize> = Vec::new();
    for (b, block) in function.blocks.iter().enumerate().rev() {
        let p = points[b];
        let mut read = |ends: &mut Vec<Option<u32>>, r: usize, at: u32| {
            if ends[r].is_none() {
                ends[r] = Some(at);
                seen.push(r);
            }
        };
        for r in members(&outs[b]) {
            read(&mut ends, r, p.end + 1);
        }
        for r in block.end.targets().iter().flat_map(|t| &t.args) {
            read(&mut ends, r.index(), p.end + 1);
        }
        for r in block.end.compare().into_iter().flat_map(Inst::reads) {
            read(&mut ends, r.index(), p.end);
        }
        for (n, step) in blocks[b].iter().enumerate().rev() {
            let at = p.read(n);
            if let Some(dst) = step.inst.dst.filter(|_| step.inst.tied.is_none()) {
                let end = ends[dst.index()].take().unwrap_or(at + 1);
                add(&mut ranges[dst.index()], Segment { start: at + 1, end });
            }
            step.inst.reads().for_each(|r| read(&mut ends, r.index(), at));
        }
        for r in &block.params {
            let end = ends[r.index()].take().unwrap_or(p.start);
            add(&mut ranges[r.index()], Segment { start: p.start, end });
        }
        for r in seen.drain(..) {
            if let Some(end) = ends[r].take() {
                add(&mut ranges[r], Segment { start: p.start, end });
            }
        }
    }
    ranges.iter_mut().for_each(|range| range.reverse());
    ranges
}

/// Prepends a segment: ranges are built backwards.
fn add(range: &mut Range, new: Segment) {
    match range.last_mut() {
        Some(next) if new.end + 1 >= next.start => next.start = new.start,
        _ => range.push(new),
    }
}

fn points(blocks: &[Vec<Step>]) -> Vec<Points> {
    let mut at = 0;
    let all = blocks.iter().map(|steps| {
        let start = at;
        let end = start + 2 * (u32::try_from(steps.len()).unwrap_or(u32::MAX / 4) + 1);
        at = end + 2;
        Points { start, end }
    });
    all.collect()
}

/// Registers live at the end of each block, without the arguments of its jumps.
fn live_outs(function: &Function, blocks: &[Vec<Step>]) -> Vec<Set> {
    let empty: Set = vec![0; function.classes.len().div_ceil(64)];
    // Upward-exposed uses and definitions of each block.
    let mut reads = vec![empty.clone(); blocks.len()];
    let mut writes = vec![empty.clone(); blocks.len()];
    for (b, block) in function.blocks.iter().enumerate() {
        let end = block.end.targets().iter().flat_map(|t| t.args.iter().copied());
        end.chain(block.end.compare().into_iter().flat_map(Inst::reads)).for_each(|r| insert(&mut reads[b], r));
        for step in blocks[b].iter().rev() {
            if let Some(dst) = step.inst.dst.filter(|_| step.inst.tied.is_none()) {
                remove(&mut reads[b], dst);
                insert(&mut writes[b], dst);
            }
            step.inst.reads().for_each(|r| insert(&mut reads[b], r));
        }
        for r in &block.params {
            remove(&mut reads[b], *r);
            insert(&mut writes[b], *r);
        }
    }
    let mut ins = reads.clone();
    let mut outs = vec![empty; blocks.len()];
    loop {
        let mut changed = false;
        for (b, block) in function.blocks.iter().enumerate().rev() {
            for target in block.end.targets() {
                let to = target.block.as_u32() as usize;
                for n in 0..outs[b].len() {
                    outs[b][n] |= ins[to][n];
                    let new = ins[b][n] | (outs[b][n] & !writes[b][n]);
                    changed |= new != ins[b][n];
                    ins[b][n] = new;
                }
            }
        }
        if !changed {
            return outs;
        }
    }
}
