//! share-slots: slots of a plan that are never live at the same time share memory.
//!
//! In: a plan in which every buffer between kernels has a slot of its own. Out: the same plan with
//! fewer slots. Two slots may be merged if their live ranges are disjoint, and one of the two sizes
//! is provably the larger for all run-time dimensions.
//!
//! A slot is live from a write to the last launch that may read it. Liveness is computed backwards:
//! a launch that writes a whole slot kills it; one that writes part of it does not, so a slot
//! written in parts inside a loop is live throughout the loop. The inputs and outputs of a launch
//! never share memory, because kernels read while they write.
//!
//! A step of the schedule for CPUs and GPUs, which runs when all launches are known:
//!
//! ```text
//! fn f(x: f32[S, 64], w: f32[64, 64]) -> f32[S, 64] { x @ w @ w @ w @ w }
//! ...
//! plan @f symbols(S) slots(256*S, 256*S, 256*S) {
//! ->
//! plan @f symbols(S) slots(256*S, 256*S) {
//! ...
//!   %2 = slot 0 : buf f32[S, 64]
//!   launch @matmul.0(%0, %1, %2)
//!   %3 = slot 1 : buf f32[S, 64]
//!   launch @matmul.0(%2, %1, %3)
//!   %4 = slot 0 : buf f32[S, 64]
//!   launch @matmul.0(%3, %1, %4)
//! ```
//!
//! The third matmul may overwrite the result of the first, which the second has read.

use std::collections::{BTreeMap, BTreeSet};

use super::{Block, Body, Kernel, Op, ParamMode, Plan, PlanOp, Type, Value};
use crate::shape::{Dim, Factor, Facts};

/// Accesses of a launch or another operation to slots.
#[derive(Default)]
struct Access {
    reads: BTreeSet<usize>,
    /// Written slots, and whether they are written in full.
    writes: BTreeMap<usize, bool>,
}

/// Merges slots.
pub fn share_slots(plan: &mut Plan, kernels: &[Kernel]) {
    let accesses = accesses(plan, kernels);
    let conflicts = conflicts(&plan.body, &accesses, plan.slots.len());
    // A plan has many slots of few sizes, so each two sizes are compared once.
    let sizes: Vec<Dim> = plan.slots.iter().map(|s| s.bytes.clone()).collect::<BTreeSet<_>>().into_iter().collect();
    let number = |bytes: &Dim| sizes.binary_search(bytes).unwrap_or_default();
    let mut proofs: BTreeMap<[usize; 2], bool> = BTreeMap::new();
    let facts = Facts::default();
    let mut fits = |small: usize, large: usize| {
        let prove = || lies_in(&facts, &sizes[small], &sizes[large]);
        small == large || *proofs.entry([small, large]).or_insert_with(prove)
    };
    // Groups of slots, each with its largest size.
    let mut groups: Vec<(usize, Set)> = Vec::new();
    let mut group_of = Vec::new();
    for (slot, data) in plan.slots.iter().enumerate() {
        let own = number(&data.bytes);
        let found = groups
            .iter()
            .position(|(bytes, members)| !conflicts[slot].meets(members) && (fits(own, *bytes) || fits(*bytes, own)));
        let g = found.unwrap_or(groups.len());
        if g == groups.len() {
            groups.push((own, Set::default()));
        }
        if let Some((bytes, members)) = groups.get_mut(g) {
            if fits(*bytes, own) {
                *bytes = own;
            }
            members.insert(slot);
        }
        group_of.push(g);
    }
    let bytes = groups.into_iter().filter_map(|(bytes, _)| sizes.get(bytes));
    plan.slots = bytes.map(|bytes| super::SlotData { bytes: bytes.clone() }).collect();
    for block in plan.body.layout.clone() {
        for inst in plan.body.block(block).insts.clone() {
            if let Op::Plan(PlanOp::Slot(n)) = &mut plan.body.inst_mut(inst).op
                && let Some(g) = usize::try_from(*n).ok().and_then(|n| group_of.get(n))
            {
                *n = u32::try_from(*g).unwrap_or(u32::MAX);
            }
        }
    }
}

/// Is a size at most another one, by a proof that the verifier finds too? It finds none for a
/// symbol below one that occurs only inside a rounding: `3*S` below `9*floor_div(S, 3) + 6`.
fn lies_in(facts: &Facts, small: &Dim, large: &Dim) -> bool {
    let symbols =
        |d: &Dim| -> BTreeSet<Factor> { d.factors().filter(|f| matches!(f, Factor::Symbol(_))).cloned().collect() };
    facts.at_most(small, large) && symbols(small).is_subset(&symbols(large))
}

/// The slot of a buffer, through views.
fn slot_of(body: &Body, mut v: Value) -> Option<usize> {
    loop {
        let d = body.def_inst(v)?;
        match &d.op {
            Op::Plan(PlanOp::Slot(n)) => return usize::try_from(*n).ok(),
            Op::Plan(PlanOp::View { .. }) => v = *d.operands.first()?,
            _ => return None,
        }
    }
}

/// Slot accesses of each instruction, per block.
fn accesses(plan: &Plan, kernels: &[Kernel]) -> BTreeMap<Block, Vec<Access>> {
    let body = &plan.body;
    let by_name: BTreeMap<&str, &Kernel> = kernels.iter().map(|k| (k.name.as_str(), k)).collect();
    let mut out = BTreeMap::new();
    for block in &body.layout {
        let mut list = Vec::new();
        for inst in &body.block(*block).insts {
            let d = body.inst(*inst);
            let mut access = Access::default();
            match &d.op {
                Op::Plan(PlanOp::Launch { kernel }) => {
                    let kernel = by_name.get(kernel.as_str());
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
                Op::Plan(PlanOp::Slot(_) | PlanOp::Packed { .. } | PlanOp::View { .. }) => {}
                _ => access.reads.extend(d.operands.iter().filter_map(|v| slot_of(body, *v))),
            }
            list.push(access);
        }
        out.insert(*block, list);
    }
    out
}

/// Does a buffer cover its whole slot?
fn is_whole(plan: &Plan, v: Value, slot: usize) -> bool {
    let Type::Buffer(ty) = plan.body.ty(v) else { return false };
    let size = i64::try_from(ty.elem.size()).unwrap_or(1);
    let repeats = ty.shape.iter().zip(&ty.strides).any(|(d, s)| *s == Dim::zero() && d.as_const() != Some(1));
    let bytes = Dim::product(&ty.shape).mul(&Dim::from(size));
    !repeats && plan.slots.get(slot).is_some_and(|s| s.bytes == bytes)
}

/// A bit set of slots. (With a thousand loop-carried variables, all are live at once.)
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Set(Vec<u64>);

impl Set {
    fn insert(&mut self, slot: usize) {
        let word = slot / 64;
        if self.0.len() <= word {
            self.0.resize(word + 1, 0);
        }
        self.0[word] |= 1 << (slot % 64);
    }

    fn remove(&mut self, slot: usize) {
        if let Some(word) = self.0.get_mut(slot / 64) {
            *word &= !(1 << (slot % 64));
        }
    }

    fn union(&mut self, other: &Set) {
        if self.0.len() < other.0.len() {
            self.0.resize(other.0.len(), 0);
        }
        self.0.iter_mut().zip(&other.0).for_each(|(word, more)| *word |= more);
    }

    fn meets(&self, other: &Set) -> bool {
        self.0.iter().zip(&other.0).any(|(a, b)| a & b != 0)
    }

    fn iter(&self) -> impl Iterator<Item = usize> {
        let word = |(at, word): (usize, &u64)| {
            let word = *word;
            (0..64).filter(move |bit| word >> bit & 1 == 1).map(move |bit| at * 64 + bit)
        };
        self.0.iter().enumerate().flat_map(word)
    }
}

/// Transfer function of one instruction, backwards.
fn step(access: &Access, live: &mut Set) {
    for (slot, whole) in &access.writes {
        if *whole {
            live.remove(*slot);
        } else {
            live.insert(*slot);
        }
    }
    access.reads.iter().for_each(|slot| live.insert(*slot));
}

/// For each slot, the slots that must not share memory with it.
fn conflicts(body: &Body, accesses: &BTreeMap<Block, Vec<Access>>, slots: usize) -> Vec<Set> {
    let list = |b: &Block| accesses.get(b).map(Vec::as_slice).unwrap_or_default();
    let mut live_in: BTreeMap<Block, Set> = BTreeMap::new();
    let live_out = |live_in: &BTreeMap<Block, Set>, b: &Block| {
        let mut live = Set::default();
        let targets = body.block(*b).terminator.targets().into_iter();
        targets.filter_map(|c| live_in.get(&c.block)).for_each(|set| live.union(set));
        live
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
    let mut out = vec![Set::default(); slots];
    for b in &body.layout {
        let mut live = live_out(&live_in, b);
        for a in list(b).iter().rev() {
            for written in a.writes.keys() {
                if let Some(set) = out.get_mut(*written) {
                    set.union(&live);
                    a.reads.iter().chain(a.writes.keys()).for_each(|slot| set.insert(*slot));
                }
            }
            step(a, &mut live);
        }
        // Slots that are live together at the start of a block (parts of loop-carried data) may
        // have been written in any order.
        for slot in live.iter() {
            if let Some(set) = out.get_mut(slot) {
                set.union(&live);
            }
        }
    }
    // Make it symmetric and irreflexive.
    for slot in 0..slots {
        out[slot].remove(slot);
        for other in out[slot].iter().collect::<Vec<_>>() {
            if let Some(set) = out.get_mut(other) {
                set.insert(slot);
            }
        }
    }
    out
}
