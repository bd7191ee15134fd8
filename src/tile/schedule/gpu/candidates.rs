//! The greatest few of many: only the greatest of each chunk are compared with each other.
//!
//! In: an unscheduled module. Out: the same module; a launch of a kernel that finds the first few elements of an axis, greatest first ([`sort::find`]), is
//! four, where the axis may be long ([`pays`]): ranks within chunks, candidates, their ranks, and the indices of those whose ranks are asked for. What each gives
//! the next lies in slots of its own. Other orders, and shorter axes, have ranks among all ([`super::ranks`]).

use std::collections::{BTreeMap, BTreeSet};

use crate::shape::{Dim, Elem};
use crate::tile::schedule::plans::{At, buffer, in_entry, new_slot, slot_type};
use crate::tile::sort::{self, CANDIDATES_OF, Found};
use crate::tile::{BufferType, Kernel, Module, Op, Plan, View, computed, row_major};

/// From so many elements on there are candidates: of fewer, all comparisons take less time than two more launches.
const MANY: i64 = 8 * CANDIDATES_OF;

/// The buffers between the kernels, and the names of these.
struct Four {
    /// Ranks in chunks, candidates and their indices by chunk, ranks of candidates.
    slots: [BufferType; 4],
    /// Candidates and their indices, one chunk after another.
    flat: [BufferType; 2],
    names: [String; 4],
}

/// Does it; the names of the kernels that are new.
pub(super) fn expand(module: &mut Module) -> BTreeSet<String> {
    let mut changed = BTreeSet::new();
    let mut all: BTreeMap<String, Four> = BTreeMap::new();
    let mut taken: BTreeSet<String> = module.kernels.iter().map(|k| k.name.clone()).collect();
    let mut made: Vec<Kernel> = Vec::new();
    for n in 0..module.kernels.len() {
        let Some(kernel) = module.kernels.get(n) else { continue };
        let Some(found) = sort::find(kernel).filter(pays) else { continue };
        let Some((four, kernels)) = four(&found, &taken) else { continue };
        if !module.plans.iter().all(|plan| launches_with_slots(plan, &kernel.name, &four)) {
            continue;
        }
        taken.extend(four.names.clone());
        changed.extend(four.names.clone());
        all.insert(kernel.name.clone(), four);
        let [first, rest @ ..] = kernels;
        made.extend(rest);
        if let Some(kernel) = module.kernels.get_mut(n) {
            *kernel = first;
        }
    }
    module.kernels.extend(made);
    if !all.is_empty() {
        module.plans.iter_mut().for_each(|plan| launch_all(plan, &all));
    }
    changed
}

/// Are the greatest few wanted, of many as far as is known?
fn pays(found: &Found) -> bool {
    let is_long = found.x.shape.last().is_some_and(|d| d.as_const().is_none_or(|n| n >= MANY));
    found.room.is_none() && found.descending && is_long
}

/// The kernels, and what is between them.
fn four(found: &Found, taken: &BTreeSet<String>) -> Option<(Four, [Kernel; 4])> {
    let (length, lead) = found.x.shape.split_last()?;
    let (count, chunks) = (found.out.shape.last()?, sort::chunks(length)?);
    let all = chunks.mul(count);
    let of = |elem: Elem, rest: &[&Dim]| {
        let shape: Vec<Dim> = lead.iter().chain(rest.iter().copied()).cloned().collect();
        BufferType { elem, strides: row_major(&shape), shape }
    };
    let elem = computed(found.x.elem);
    let one = Dim::one();
    let ranks = of(Elem::I32, &[&one, length]);
    let by_chunk = [elem, Elem::I32].map(|elem| of(elem, &[&chunks, count]));
    let flat = [elem, Elem::I32].map(|elem| of(elem, &[&all]));
    let of_candidates = of(Elem::I32, &[&one, &all]);
    let names = ["ranks_in_chunks", "candidates", "ranks", "chosen"].map(|kind| {
        let number = (0..).find(|n| !taken.contains(&format!("{kind}.{n}"))).unwrap_or(0);
        format!("{kind}.{number}")
    });
    let [values, indices] = &by_chunk;
    let kernels = [
        sort::ranks_in_chunks(&names[0], &found.x, &ranks)?,
        sort::candidates(&names[1], &found.x, &ranks, [values, indices])?,
        sort::ranks(&names[2], &flat[0], true, &of_candidates)?,
        sort::chosen(&names[3], &of_candidates, &flat[1], &found.out)?,
    ];
    let [values, indices] = by_chunk;
    Some((Four { slots: [ranks, values, indices, of_candidates], flat, names }, kernels))
}

fn bytes(ty: &BufferType) -> Dim {
    let size = i64::try_from(ty.elem.size()).unwrap_or(8);
    Dim::product(&ty.shape).mul(&size.into())
}

/// Can a plan give every launch of a kernel its slots? Not where their size is known late.
fn launches_with_slots(plan: &Plan, kernel: &str, four: &Four) -> bool {
    !plan.launched().contains(kernel) || four.slots.iter().all(|ty| slot_type(plan, &bytes(ty), ty) == *ty)
}

/// Launches four kernels instead of one.
fn launch_all(plan: &mut Plan, all: &BTreeMap<String, Four>) {
    let mut added = BTreeSet::new();
    let launches: Vec<_> = plan.body.insts().map(|(block, inst, data)| (block, inst, data.clone())).collect();
    for (block, inst, data) in launches {
        let Op::Launch { kernel } = &data.op else { continue };
        let Some(four) = all.get(kernel) else { continue };
        let (Some(x), Some(out)) = (data.operands.first().copied(), data.operands.last().copied()) else { continue };
        let at = At { block, inst, loc: data.loc, out: Some(out) };
        let mut others = 0;
        let [ranks, values, indices, of_candidates] = four.slots.each_ref().map(|ty| {
            let number = new_slot(plan, &bytes(ty), at, others);
            others += 1;
            in_entry(plan, &mut added, Op::Slot(number), ty.clone(), at)
        });
        let body = &mut plan.body;
        let [flat_values, flat_indices] = [(values, &four.flat[0]), (indices, &four.flat[1])].map(|(root, ty)| {
            let BufferType { elem, shape, strides } = ty.clone();
            buffer(body, at, &View { root, elem, offset: Dim::zero(), dynamic: Vec::new(), shape, strides })
        });
        let [first, second, third, fourth] = four.names.clone();
        for (kernel, operands) in [
            (first, vec![x, ranks]),
            (second, vec![x, ranks, values, indices]),
            (third, vec![flat_values, of_candidates]),
        ] {
            let launch = body.make_inst(Op::Launch { kernel }, operands, None, data.loc);
            body.insert_before(block, inst, launch);
        }
        let launch = body.inst_mut(inst);
        launch.op = Op::Launch { kernel: fourth };
        launch.operands = vec![of_candidates, flat_indices, out];
    }
}
