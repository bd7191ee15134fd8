//! Linear scan: a register for each bundle, or a spill.
//!
//! In: bundles with their ranges. Out: for each a register number, or a spill. Bundles are visited
//! by start point, and each holds its register from its first point to its last. If no register is
//! free, the bundle with the lowest spill weight is spilled: the number of its uses, times eight
//! for each loop around them, divided by its length.

use super::coalesce::Bundles;
use super::{GENERAL, Registers, Step, depths};
use crate::codegen::cpu::wide::machine::{Class, Function, Inst, Operand, Reg};

/// Registers reserved per class for spilled values.
const CARRIERS: usize = 3;

pub(super) struct Assignment {
    /// Register of each bundle, indexed by its representative.
    pub(super) numbers: Vec<Option<u8>>,
    /// Representatives of spilled bundles, in the order of spilling.
    pub(super) spilled: Vec<Reg>,
    /// Registers reserved for reloads, by class.
    pub(super) carriers: [Vec<u8>; 3],
}

/// The interval of a bundle.
#[derive(Clone, Copy)]
struct Interval {
    /// Its representative.
    bundle: Reg,
    start: u32,
    end: u32,
    /// Spill cost: uses, weighted by loop depth.
    weight: f64,
    /// A bundle that it is copied from; sharing its register saves the copy.
    hint: Option<Reg>,
}

impl Interval {
    /// Spill weight: cost divided by length.
    fn cost(&self) -> f64 {
        self.weight / f64::from(self.end - self.start + 8)
    }
}

fn physical(class: Class, vectors: u32) -> Vec<u8> {
    match class {
        Class::Vector => (0..u8::try_from(vectors).unwrap_or(16)).collect(),
        Class::Mask => (1..8).collect(),
        Class::General => GENERAL.to_vec(),
    }
}

pub(super) fn assign(
    function: &Function,
    blocks: &[Vec<Step>],
    registers: &Registers,
    bundles: &Bundles,
) -> Assignment {
    let intervals = intervals(function, blocks, registers, bundles);
    let numbers = vec![None; function.classes.len()];
    let mut out = Assignment { numbers, spilled: Vec::new(), carriers: Default::default() };
    for class in Class::ALL {
        let mine = |i: &&Interval| registers.classes[i.bundle.index()] == class;
        let mine: Vec<Interval> = intervals.iter().filter(mine).copied().collect();
        let all = physical(class, function.width.registers());
        let mut left = scan(&mine, &all, &mut out.numbers);
        if !left.is_empty() {
            let (free, kept) = all.split_at(all.len() - CARRIERS);
            mine.iter().for_each(|i| out.numbers[i.bundle.index()] = None);
            left = scan(&mine, free, &mut out.numbers);
            out.carriers[class as usize] = kept.to_vec();
        }
        out.spilled.extend(left);
    }
    out
}

/// The intervals of all bundles, by start point.
fn intervals(function: &Function, blocks: &[Vec<Step>], registers: &Registers, bundles: &Bundles) -> Vec<Interval> {
    let mut found: Vec<Option<Interval>> = vec![None; registers.classes.len()];
    for r in (0u32..).map(Reg).take(registers.classes.len()) {
        if let (true, [first, ..], [.., last]) = (bundles.representative(r) == r, bundles.range(r), bundles.range(r)) {
            let (start, end) = (first.start, last.end);
            found[r.index()] = Some(Interval { bundle: r, start, end, weight: 0.0, hint: None });
        }
    }
    let mut depths = depths(function).into_iter();
    for (block, steps) in function.blocks.iter().zip(blocks) {
        let once = 8f64.powi(depths.next().unwrap_or(0));
        let mut touch = |r: Reg, weight: f64| {
            if let Some(interval) = &mut found[bundles.representative(r).index()] {
                interval.weight += if registers.constants[r.index()].is_some() { 0.4 * weight } else { weight };
            }
        };
        for Step { inst, .. } in steps {
            if copied(inst).is_some_and(|(to, from)| bundles.representative(to) == bundles.representative(from)) {
                continue;
            }
            inst.reads().for_each(|r| touch(r, once));
            inst.dst.into_iter().for_each(|r| touch(r, 1.5 * once));
        }
        block.end.compare().into_iter().flat_map(Inst::reads).for_each(|r| touch(r, once));
        for target in block.end.targets() {
            let params = &function.blocks[target.block.as_u32() as usize].params;
            for (param, arg) in params
                .iter()
                .zip(&target.args)
                .filter(|(p, a)| bundles.representative(**p) != bundles.representative(**a))
            {
                touch(*arg, once);
                touch(*param, 1.5 * once);
            }
        }
        for Step { inst, .. } in steps.iter().filter(|s| s.inst.op.is_copy()) {
            let (Some(to), [Operand::Reg(from)]) = (inst.dst, inst.srcs.as_slice()) else { continue };
            let (to, from) = (bundles.representative(to), bundles.representative(*from));
            if let Some(interval) = found[to.index()].as_mut().filter(|_| to != from) {
                interval.hint = interval.hint.or(Some(from));
            }
        }
    }
    let mut intervals: Vec<Interval> = found.into_iter().flatten().collect();
    intervals.sort_by_key(|i| (i.start, i.bundle));
    intervals
}

/// Destination and source, if `inst` is a register copy.
pub(super) fn copied(inst: &Inst) -> Option<(Reg, Reg)> {
    match (inst.op.is_copy() && inst.mask.is_none(), inst.dst, inst.srcs.as_slice()) {
        (true, Some(to), [Operand::Reg(from)]) => Some((to, *from)),
        _ => None,
    }
}

/// Assigns registers to the bundles of one class; returns the spilled bundles.
fn scan(intervals: &[Interval], physical: &[u8], numbers: &mut [Option<u8>]) -> Vec<Reg> {
    // Live intervals, with their registers.
    let mut active: Vec<(Interval, u8)> = Vec::new();
    let mut spilled = Vec::new();
    for interval in intervals {
        active.retain(|(a, _)| a.end >= interval.start);
        let taken = active.iter().fold(0_u64, |set, (_, n)| set | 1 << n);
        let is_free = |n: &u8| taken >> n & 1 == 0;
        let hinted = interval.hint.and_then(|h| numbers[h.index()]).filter(is_free);
        if let Some(n) = hinted.or_else(|| physical.iter().copied().find(is_free)) {
            numbers[interval.bundle.index()] = Some(n);
            active.push((*interval, n));
            continue;
        }
        let all = active.iter().enumerate();
        let cheapest = all.min_by(|(_, (a, _)), (_, (b, _))| a.cost().total_cmp(&b.cost()));
        match cheapest.map(|(i, (victim, n))| (i, *victim, *n)).filter(|(_, v, _)| v.cost() < interval.cost()) {
            Some((i, victim, n)) => {
                active.swap_remove(i);
                numbers[victim.bundle.index()] = None;
                numbers[interval.bundle.index()] = Some(n);
                active.push((*interval, n));
                spilled.push(victim.bundle);
            }
            None => spilled.push(interval.bundle),
        }
    }
    spilled
}
