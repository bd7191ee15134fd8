//! A kernel becomes several, launched one after another, which give each other what lies in slots.
//!
//! In: an unscheduled module, and what becomes of a kernel ([`Steps`]). Out: the same module with those kernels and their launches. What it must not
//! know: what a kernel computes.

use std::collections::{BTreeMap, BTreeSet};

use crate::shape::Dim;
use crate::tile::schedule::plans::{At, buffer, in_entry, new_slot, slot_type};
use crate::tile::{BufferType, Kernel, Module, Op, Plan, View};

/// What a launch of one of the steps is given.
pub(super) enum Operand {
    /// The first operand of the launch that it was.
    First,
    /// The last.
    Last,
    /// A slot, by its number.
    Slot(usize),
    /// A slot as a buffer of another shape.
    As(usize, BufferType),
}

/// What takes a kernel's place.
pub(super) struct Steps {
    /// What the kernels give each other.
    pub(super) slots: Vec<BufferType>,
    /// The kernels, whose names are their kinds, in the order in which they are launched.
    pub(super) kernels: Vec<(Kernel, Vec<Operand>)>,
}

/// The launches that take the place of one.
struct Launches {
    slots: Vec<BufferType>,
    /// The names of the kernels, and what they are given.
    list: Vec<(String, Vec<Operand>)>,
}

/// Puts steps in the place of the kernels that have some and whose plans can give all launches their slots: not where the size of these is known
/// late. The names of the new kernels.
pub(super) fn replace(module: &mut Module, steps: impl Fn(&Module, &Kernel) -> Option<Steps>) -> BTreeSet<String> {
    let mut changed = BTreeSet::new();
    let mut all: BTreeMap<String, Launches> = BTreeMap::new();
    let mut taken: BTreeSet<String> = module.kernels.iter().map(|k| k.name.clone()).collect();
    let mut made: Vec<Kernel> = Vec::new();
    for n in 0..module.kernels.len() {
        let Some(kernel) = module.kernels.get(n) else { continue };
        let name = kernel.name.clone();
        let Some(Steps { slots, kernels }) = steps(module, kernel) else { continue };
        if !module.plans.iter().all(|plan| launches_with_slots(plan, &name, &slots)) {
            continue;
        }
        let mut list = Vec::new();
        for (number, (mut kernel, operands)) in kernels.into_iter().enumerate() {
            kernel.name = free_name(&kernel.name, &taken);
            taken.insert(kernel.name.clone());
            changed.insert(kernel.name.clone());
            list.push((kernel.name.clone(), operands));
            match module.kernels.get_mut(n) {
                Some(own) if number == 0 => *own = kernel,
                _ => made.push(kernel),
            }
        }
        all.insert(name, Launches { slots, list });
    }
    module.kernels.extend(made);
    if !all.is_empty() {
        module.plans.iter_mut().for_each(|plan| launch_all(plan, &all));
    }
    changed
}

/// The first name of a kind that no kernel has.
pub(super) fn free_name(kind: &str, taken: &BTreeSet<String>) -> String {
    let number = (0..).find(|n| !taken.contains(&format!("{kind}.{n}"))).unwrap_or(0);
    format!("{kind}.{number}")
}

/// The bytes of a buffer whose elements lie one after another.
pub(super) fn bytes(ty: &BufferType) -> Dim {
    let size = i64::try_from(ty.elem.size()).unwrap_or(8);
    Dim::product(&ty.shape).mul(&size.into())
}

/// Can a plan give every launch of a kernel slots of these types?
pub(super) fn launches_with_slots(plan: &Plan, kernel: &str, slots: &[BufferType]) -> bool {
    !plan.launched().contains(kernel) || slots.iter().all(|ty| slot_type(plan, &bytes(ty), ty) == *ty)
}

/// Launches the steps instead of the kernels that they are of.
fn launch_all(plan: &mut Plan, all: &BTreeMap<String, Launches>) {
    let mut added = BTreeSet::new();
    let launches: Vec<_> = plan.body.insts().map(|(block, inst, data)| (block, inst, data.clone())).collect();
    for (block, inst, data) in launches {
        let Op::Launch { kernel } = &data.op else { continue };
        let Some(Launches { slots, list }) = all.get(kernel) else { continue };
        let (Some(first), Some(last)) = (data.operands.first().copied(), data.operands.last().copied()) else {
            continue;
        };
        let at = At { block, inst, loc: data.loc, out: Some(last) };
        let slots: Vec<_> = (0..)
            .zip(slots)
            .map(|(others, ty)| {
                let number = new_slot(plan, &bytes(ty), at, others);
                in_entry(plan, &mut added, Op::Slot(number), ty.clone(), at)
            })
            .collect();
        let body = &mut plan.body;
        for (number, (kernel, operands)) in list.iter().enumerate() {
            let operands = operands.iter().filter_map(|operand| match operand {
                Operand::First => Some(first),
                Operand::Last => Some(last),
                Operand::Slot(n) => slots.get(*n).copied(),
                Operand::As(n, ty) => slots.get(*n).map(|root| {
                    let BufferType { elem, shape, strides } = ty.clone();
                    let (offset, dynamic) = (Dim::zero(), Vec::new());
                    buffer(body, at, &View { root: *root, elem, offset, dynamic, shape, strides })
                }),
            });
            let (op, operands) = (Op::Launch { kernel: kernel.clone() }, operands.collect());
            // The last one is the launch that it was.
            if number + 1 == list.len() {
                let launch = body.inst_mut(inst);
                (launch.op, launch.operands) = (op, operands);
            } else {
                let launch = body.make_inst(op, operands, None, data.loc);
                body.insert_before(block, inst, launch);
            }
        }
    }
}
