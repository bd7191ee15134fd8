//! count-ranks: replaces serial sorting kernels by two parallel ones, which count ranks.
//!
//! In: an unscheduled module. Out: the same module, in which a launch of a kernel that orders the
//! elements of an axis ([`Order`]) becomes two: one counts for each element how many come before
//! it, the other finds for each position the element with that rank. The ranks are in the kernel's
//! scratch, of which they fill one half, or in a slot of their own. If the scratch has other uses,
//! the kernel is unchanged.
//!
//! A serial sort leaves all threads but one idle. The rank of an element is the number of elements
//! that come before it, and all ranks can be counted at the same time, with n^2 independent
//! comparisons:
//!
//! ```text
//! fn f(x: f32[100]) -> i32[100] { argsort(x) }
//! ...
//!   launch @top.0(%0, %1)
//! ->
//! kernel @ranks.0(%0: in f32[100], %1: out i32[1, 100]) grid(%2: ceil(100, 8)) {
//! ...
//! kernel @order.0(%0: in i32[1, 100], %1: out i32[100]) grid(%2: ceil(100, 8)) {
//! ...
//!   launch @ranks.0(%0, %2)
//!   launch @order.0(%2, %1)
//! ```

use std::collections::{BTreeMap, BTreeSet};

use super::super::step::{Changed, Log};
use super::in_steps::{bytes, free_name, have_slots};
use crate::shape::{Dim, Elem};
use crate::tile::schedule::plans::{LaunchPosition, in_entry, new_slot};
use crate::tile::sort::{self, Order};
use crate::tile::{BufferType, InstData, Kernel, Machine, Module, Op, Plan, PlanOp, Value, View, row_major};

/// The kernels that replace one.
struct Pair {
    /// Type of the ranks.
    ranks: BufferType,
    /// The launch has a scratch buffer for them.
    has_room: bool,
    /// Their names.
    names: [String; 2],
}

/// Applies the rewrite to sorting kernels; returns the names of kernels that are new or changed.
pub(in super::super) fn run(module: &mut Module, _: &Machine, log: &mut Log<'_>) -> Result<Changed, String> {
    let mut changed = BTreeSet::new();
    let mut pairs: BTreeMap<String, Pair> = BTreeMap::new();
    let mut taken: BTreeSet<String> = module.kernels.iter().map(|k| k.name.clone()).collect();
    let mut made: Vec<Kernel> = Vec::new();
    for n in 0..module.kernels.len() {
        let Some(kernel) = module.kernels.get(n) else { continue };
        let Some(found) = Order::of_kernel(kernel) else { continue };
        if !takes(module, kernel, &found) {
            let why = "there is no room for ranks";
            log.form(&kernel.name, &format!("elements are looked at one after another, each row by a thread: {why}"));
            continue;
        }
        let Some(ranks) = ranks_of(&found) else { continue };
        let has_room = found.room.is_some();
        // New names, because their buffers differ.
        let names = ["ranks", "order"].map(|kind| free_name(kind, &taken));
        let first = sort::ranks(&names[0], &found.x, found.descending, &ranks);
        let (Some(first), Some(second)) = (first, sort::order(&names[1], &ranks, &found.out)) else { continue };
        log.form(&kernel.name, "for each element the elements that come before it are counted, in 2 launches");
        taken.extend(names.clone());
        changed.extend(names.clone());
        pairs.insert(kernel.name.clone(), Pair { ranks, has_room, names });
        if let Some(kernel) = module.kernels.get_mut(n) {
            *kernel = first;
        }
        made.push(second);
    }
    module.kernels.extend(made);
    if !pairs.is_empty() {
        module.plans.iter_mut().for_each(|plan| launch_pairs(plan, &pairs));
    }
    Ok(changed)
}

/// Can a kernel be replaced, with memory for the ranks?
fn takes(module: &Module, kernel: &Kernel, found: &Order) -> bool {
    let Some(ranks) = ranks_of(found) else { return false };
    match &found.room {
        Some(_) => module.plans.iter().all(|plan| rooms_are_its_own(plan, &kernel.name)),
        None => have_slots(module, &kernel.name, std::slice::from_ref(&ranks)),
    }
}

/// The type of the ranks: the scratch, or as large as half of it would be.
fn ranks_of(found: &Order) -> Option<BufferType> {
    if let Some(room) = &found.room {
        return Some(room.clone());
    }
    let (length, before) = found.x.shape.split_last()?;
    let shape: Vec<Dim> = before.iter().cloned().chain([Dim::one(), length.clone()]).collect();
    Some(BufferType { elem: Elem::I32, strides: row_major(&shape), shape })
}

/// Is the scratch of each launch of a kernel a slot without other uses in the plan?
fn rooms_are_its_own(plan: &Plan, kernel: &str) -> bool {
    let body = &plan.body;
    let slot = |v: &Value| match View::trace(body, *v).and_then(|view| body.def_inst(view.root)).map(|d| &d.op) {
        Some(Op::Plan(PlanOp::Slot(n))) => Some(*n),
        _ => None,
    };
    let uses = |values: &[Value], room: u32| values.iter().filter(|v| slot(v) == Some(room)).count();
    body.insts().filter(|(_, _, d)| matches!(&d.op, Op::Plan(PlanOp::Launch { kernel: own }) if own == kernel)).all(
        |(_, _, launch)| {
            let Some(room) = launch.operands.get(1).and_then(slot) else { return false };
            let others = body.insts().filter(|(_, _, d)| !matches!(d.op, Op::Plan(PlanOp::View { .. })));
            let in_insts: usize = others.map(|(_, _, d)| uses(&d.operands, room)).sum();
            let at_ends = body.layout.iter().map(|b| uses(&body.block(*b).terminator.values(), room)).sum::<usize>();
            in_insts == 1 && at_ends == 0
        },
    )
}

/// Replaces launches by two each.
fn launch_pairs(plan: &mut Plan, pairs: &BTreeMap<String, Pair>) {
    let mut added = BTreeSet::new();
    let launches: Vec<_> = plan.body.insts().map(|(block, inst, data)| (block, inst, data.clone())).collect();
    for (block, inst, data) in launches {
        let Op::Plan(PlanOp::Launch { kernel }) = &data.op else { continue };
        let Some(pair) = pairs.get(kernel) else { continue };
        let (Some(x), Some(out)) = (data.operands.first().copied(), data.operands.last().copied()) else { continue };
        let at = LaunchPosition { block, inst, loc: data.loc, out: Some(out) };
        let ranks: Value = match data.operands.get(1) {
            Some(room) if pair.has_room => *room,
            _ => {
                let number = new_slot(plan, &bytes(&pair.ranks), at, 0);
                in_entry(plan, &mut added, Op::Plan(PlanOp::Slot(number)), pair.ranks.clone(), at)
            }
        };
        let body = &mut plan.body;
        let [first, second] = pair.names.clone();
        *body.inst_mut(inst) =
            InstData { op: Op::Plan(PlanOp::Launch { kernel: first }), operands: vec![x, ranks], ..data.clone() };
        let second = body.make_inst(Op::Plan(PlanOp::Launch { kernel: second }), vec![ranks, out], None, data.loc);
        let list = &mut body.block_mut(block).insts;
        let place = list.iter().position(|i| *i == inst).map_or(list.len(), |n| n + 1);
        list.insert(place, second);
    }
}
