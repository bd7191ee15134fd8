//! Slots of a plan that share memory.
//!
//! In: a plan in which every buffer between kernels has a slot of its own. Out: the same plan with fewer slots. Two slots
//! may be one if they never hold something that is still needed at the same time; one of the two sizes must provably be
//! the larger for all run-time dimensions.
//!
//! A slot is live where a later launch may read what an earlier one wrote. A launch that writes a whole slot ends its
//! life backwards; one that writes part of it does not, so a slot that is put together from parts inside a loop lives
//! through all of the loop. What a launch reads and what it writes never share, for kernels read while they write.

use std::collections::{BTreeMap, BTreeSet};

use super::{Block, Body, Kernel, Op, ParamMode, Plan, Type, Value};
use crate::shape::{Dim, Facts};

/// What a launch or another operation does with the slots.
#[derive(Default)]
struct Access {
    reads: BTreeSet<usize>,
    /// Written, and whether in full.
    writes: BTreeMap<usize, bool>,
}

/// Lets slots share memory.
pub fn share_slots(plan: &mut Plan, kernels: &[Kernel]) {
    let accesses = accesses(plan, kernels);
    let conflicts = conflicts(&plan.body, &accesses);
    // Groups of slots, each with the size of its largest.
    let mut groups: Vec<(Dim, Vec<usize>)> = Vec::new();
    let mut group_of = vec![0; plan.slots.len()];
    let facts = Facts::default();
    for (slot, data) in plan.slots.iter().enumerate() {
        let free = |members: &[usize]| members.iter().all(|m| !conflicts.contains(&((*m).min(slot), (*m).max(slot))));
        let found = groups.iter().position(|(bytes, members)| {
            free(members) && (facts.at_most(&data.bytes, bytes) || facts.at_most(bytes, &data.bytes))
        });
        let g = match found {
            Some(g) => g,
            None => {
                groups.push((data.bytes.clone(), Vec::new()));
                groups.len() - 1
            }
        };
        if let Some((bytes, members)) = groups.get_mut(g) {
            if facts.at_most(bytes, &data.bytes) {
                *bytes = data.bytes.clone();
            }
            members.push(slot);
        }
        group_of[slot] = g;
    }
    plan.slots = groups.into_iter().map(|(bytes, _)| super::SlotData { bytes }).collect();
    for block in plan.body.layout.clone() {
        for inst in plan.body.block(block).insts.clone() {
            if let Op::Slot(n) = &mut plan.body.inst_mut(inst).op
                && let Some(g) = usize::try_from(*n).ok().and_then(|n| group_of.get(n))
            {
                *n = u32::try_from(*g).unwrap_or(u32::MAX);
            }
        }
    }
}

/// The slot behind a buffer, through views.
fn slot_of(body: &Body, mut v: Value) -> Option<usize> {
    loop {
        let d = body.def_inst(v)?;
        match &d.op {
            Op::Slot(n) => return usize::try_from(*n).ok(),
            Op::View { .. } => v = *d.operands.first()?,
            _ => return None,
        }
    }
}

/// For each block what each of its instructions does with the slots.
fn accesses(plan: &Plan, kernels: &[Kernel]) -> BTreeMap<Block, Vec<Access>> {
    let body = &plan.body;
    let mut out = BTreeMap::new();
    for block in &body.layout {
        let mut list = Vec::new();
        for inst in &body.block(*block).insts {
            let d = body.inst(*inst);
            let mut access = Access::default();
            match &d.op {
                Op::Launch { kernel } => {
                    let kernel = kernels.iter().find(|k| k.name == *kernel);
                    for (i, v) in d.operands.iter().enumerate() {
                        let Some(slot) = slot_of(body, *v) else { continue };
                        match kernel.and_then(|k| k.params.get(i)).map(|p| p.mode) {
                            Some(ParamMode::In) => {
                                access.reads.insert(slot);
                            }
                            Some(ParamMode::Out) => {
                                let whole = is_whole(plan, *v, slot);
                                access.writes.insert(slot, whole);
                            }
                            Some(ParamMode::InOut) | None => {
                                access.reads.insert(slot);
                                access.writes.insert(slot, false);
                            }
                        }
                    }
                }
                Op::Slot(_) | Op::Packed { .. } | Op::View { .. } => {}
                _ => access.reads.extend(d.operands.iter().filter_map(|v| slot_of(body, *v))),
            }
            list.push(access);
        }
        out.insert(*block, list);
    }
    out
}

/// Does a buffer have as many elements as its slot has room for?
fn is_whole(plan: &Plan, v: Value, slot: usize) -> bool {
    let Type::Buffer(ty) = plan.body.ty(v) else { return false };
    let size = i64::try_from(ty.elem.size()).unwrap_or(1);
    let repeats = ty.shape.iter().zip(&ty.strides).any(|(d, s)| *s == Dim::zero() && d.as_const() != Some(1));
    let bytes = Dim::product(&ty.shape).mul(&Dim::from(size));
    !repeats && plan.slots.get(slot).is_some_and(|s| s.bytes == bytes)
}

/// One instruction backwards.
fn step(access: &Access, live: &mut BTreeSet<usize>) {
    for (slot, whole) in &access.writes {
        if *whole {
            live.remove(slot);
        } else {
            live.insert(*slot);
        }
    }
    live.extend(&access.reads);
}

/// Pairs of slots that must not share.
fn conflicts(body: &Body, accesses: &BTreeMap<Block, Vec<Access>>) -> BTreeSet<(usize, usize)> {
    let list = |b: &Block| accesses.get(b).map(Vec::as_slice).unwrap_or_default();
    let mut live_in: BTreeMap<Block, BTreeSet<usize>> = BTreeMap::new();
    let live_out = |live_in: &BTreeMap<Block, BTreeSet<usize>>, b: &Block| {
        let targets = body.block(*b).terminator.targets().into_iter().map(|c| c.block).collect::<Vec<_>>();
        targets.iter().filter_map(|t| live_in.get(t)).flatten().copied().collect::<BTreeSet<usize>>()
    };
    let mut changed = true;
    while changed {
        changed = false;
        for b in body.layout.iter().rev() {
            let mut live = live_out(&live_in, b);
            list(b).iter().rev().for_each(|a| step(a, &mut live));
            if live_in.get(b) != Some(&live) {
                live_in.insert(*b, live);
                changed = true;
            }
        }
    }
    let mut out = BTreeSet::new();
    for b in &body.layout {
        let mut live = live_out(&live_in, b);
        for a in list(b).iter().rev() {
            for slot in a.writes.keys() {
                for other in live.iter().chain(&a.reads).chain(a.writes.keys()).filter(|o| *o != slot) {
                    out.insert((*slot.min(other), *slot.max(other)));
                }
            }
            step(a, &mut live);
        }
        // What is live together at the start of a block (parts of something, in a loop) was written in any order.
        for x in &live {
            for y in live.iter().filter(|y| *y > x) {
                out.insert((*x, *y));
            }
        }
    }
    out
}
