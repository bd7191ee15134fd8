//! Replaces one kernel by a sequence of kernels that communicate through slots.
//!
//! In: an unscheduled module, and the replacements of kernels ([`Steps`]). Out: the same module
//! with the new kernels and their launches; if both versions are useful for some sizes, the kernel
//! stays, and each call chooses. It must not know what a kernel computes.

use std::collections::{BTreeMap, BTreeSet};

use crate::shape::Dim;
use crate::tile::schedule::plans::{
    Choice, LaunchPosition, Variant, buffer, choose_by_count, in_entry, new_slot, slot_type, writes_apart_from,
};
use crate::tile::{BufferType, Inst, Kernel, Module, Op, ParamMode, Plan, PlanOp, Value, View};

/// An operand of one of the launches.
pub(in super::super) enum Operand {
    /// An operand of the original launch, by number.
    Own(usize),
    /// A slot, by number.
    Slot(usize),
    /// A slot viewed as a buffer of another shape.
    As(usize, BufferType),
}

/// In which calls the sequence is launched: in all, or if one dimension is below a constant and
/// another is at least a constant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in super::super) struct When {
    pub(in super::super) below: Option<(Dim, i64)>,
    pub(in super::super) from: Option<(Dim, i64)>,
}

impl When {
    /// Is it launched in all calls?
    fn is_always(&self) -> bool {
        self.below.is_none() && self.from.is_none()
    }
}

/// The replacement of a kernel.
pub(in super::super) struct Steps {
    /// In which calls.
    pub(in super::super) when: When,
    /// Slots between the kernels.
    pub(in super::super) slots: Vec<BufferType>,
    /// The kernels with their operands, in launch order; a kernel's name is the prefix of its final
    /// name.
    pub(in super::super) kernels: Vec<(Kernel, Vec<Operand>)>,
}

/// The launches that replace one.
struct Launches {
    when: When,
    slots: Vec<BufferType>,
    /// The names of the kernels, and their operands.
    list: Vec<(String, Vec<Operand>)>,
}

/// Replaces kernels by their sequences, whose slots all plans can allocate ([`have_slots`]).
/// Returns the names of the new kernels.
///
/// # Errors
/// A launch that is in no block, which is a bug in attnc.
pub(in super::super) fn replace(
    module: &mut Module,
    mut steps: impl FnMut(&Module, &Kernel) -> Option<Steps>,
) -> Result<BTreeSet<String>, String> {
    let mut changed = BTreeSet::new();
    let mut all: BTreeMap<String, Launches> = BTreeMap::new();
    let mut taken: BTreeSet<String> = module.kernels.iter().map(|k| k.name.clone()).collect();
    let mut made: Vec<Kernel> = Vec::new();
    for n in 0..module.kernels.len() {
        let Some(kernel) = module.kernels.get(n) else { continue };
        let name = kernel.name.clone();
        let Some(Steps { when, slots, kernels }) = steps(module, kernel) else { continue };
        let mut list = Vec::new();
        for (number, (mut kernel, operands)) in kernels.into_iter().enumerate() {
            kernel.name = free_name(&kernel.name, &taken);
            taken.insert(kernel.name.clone());
            changed.insert(kernel.name.clone());
            list.push((kernel.name.clone(), operands));
            match module.kernels.get_mut(n) {
                Some(own) if number == 0 && when.is_always() => *own = kernel,
                _ => made.push(kernel),
            }
        }
        all.insert(name, Launches { when, slots, list });
    }
    module.kernels.extend(made);
    if !all.is_empty() {
        for plan in &mut module.plans {
            launch_all(plan, &all)?;
        }
    }
    Ok(changed)
}

/// The first unused name with this prefix.
pub(in super::super) fn free_name(kind: &str, taken: &BTreeSet<String>) -> String {
    let number = (0..).find(|n| !taken.contains(&format!("{kind}.{n}"))).unwrap_or(0);
    format!("{kind}.{number}")
}

/// The size of a contiguous buffer in bytes.
pub(in super::super) fn bytes(ty: &BufferType) -> Dim {
    let size = i64::try_from(ty.elem.size()).unwrap_or(8);
    Dim::product(&ty.shape).mul(&size.into())
}

/// Can all plans allocate slots of these types at every launch of a kernel? Not if their size
/// depends on a dimension bound later.
pub(in super::super) fn have_slots(module: &Module, kernel: &str, slots: &[BufferType]) -> bool {
    let has = |plan: &Plan, ty: &BufferType| slot_type(plan, &bytes(ty), ty) == *ty;
    let launches = |plan: &&Plan| plan.launched().contains(kernel);
    module.plans.iter().filter(launches).all(|plan| slots.iter().all(|ty| has(plan, ty)))
}

/// Are inputs and outputs disjoint in every launch of a kernel? Then it may be reordered.
pub(in super::super) fn writes_elsewhere(module: &Module, kernel: &Kernel) -> bool {
    let is_read = |n: &usize| kernel.params.get(*n).is_some_and(|p| p.mode == ParamMode::In);
    writes_apart_from(&(0..kernel.params.len()).filter(is_read).collect(), module, kernel)
}

/// Replaces launches of kernels by their sequences.
fn launch_all(plan: &mut Plan, all: &BTreeMap<String, Launches>) -> Result<(), String> {
    let mut added = BTreeSet::new();
    let launches: Vec<Inst> = plan.body.insts().map(|(_, inst, _)| inst).collect();
    for inst in launches {
        let data = plan.body.inst(inst).clone();
        let Op::Plan(PlanOp::Launch { kernel }) = &data.op else { continue };
        let Some(launches) = all.get(kernel) else { continue };
        let block = plan.body.block_of(inst).ok_or("a launch has gone")?;
        let at = LaunchPosition { block, inst, loc: data.loc, out: data.operands.last().copied() };
        let steps = launches.with_operands(plan, &mut added, (at, &data.operands));
        let mut choose = |(count, least): &(Dim, i64), launches: Vec<(String, Vec<Value>)>| {
            let variants = vec![Variant { least: *least, launches }];
            choose_by_count(plan, Choice { launch: inst, count: count.clone(), variants })
        };
        if let Some(below) = &launches.when.below {
            choose(below, vec![(kernel.clone(), data.operands.clone())])?;
        }
        if let Some(from) = &launches.when.from {
            choose(from, steps)?;
            continue;
        }
        let block = plan.body.block_of(inst).ok_or("a launch has gone")?;
        let body = &mut plan.body;
        for (number, (kernel, operands)) in steps.into_iter().enumerate() {
            let op = Op::Plan(PlanOp::Launch { kernel });
            // The last launch reuses the original instruction.
            if number + 1 == launches.list.len() {
                let launch = body.inst_mut(inst);
                (launch.op, launch.operands) = (op, operands);
            } else {
                let launch = body.make_inst(op, operands, None, data.loc);
                body.insert_before(block, inst, launch);
            }
        }
    }
    Ok(())
}

impl Launches {
    /// The kernels with their operands for one original launch; new operands are defined before it.
    fn with_operands(
        &self,
        plan: &mut Plan,
        added: &mut BTreeSet<Inst>,
        (at, own): (LaunchPosition, &[Value]),
    ) -> Vec<(String, Vec<Value>)> {
        let slots: Vec<Value> = (0..)
            .zip(&self.slots)
            .map(|(others, ty)| {
                let number = new_slot(plan, &bytes(ty), at, others);
                in_entry(plan, added, Op::Plan(PlanOp::Slot(number)), ty.clone(), at)
            })
            .collect();
        let body = &mut plan.body;
        let mut given = |operand: &Operand| match operand {
            Operand::Own(n) => own.get(*n).copied(),
            Operand::Slot(n) => slots.get(*n).copied(),
            Operand::As(n, ty) => slots.get(*n).map(|root| {
                let BufferType { elem, shape, strides } = ty.clone();
                let (offset, dynamic) = (Dim::zero(), Vec::new());
                buffer(body, at, &View { root: *root, elem, offset, dynamic, shape, strides })
            }),
        };
        let operands = |list: &[Operand], given: &mut dyn FnMut(&Operand) -> Option<Value>| -> Vec<Value> {
            list.iter().filter_map(given).collect()
        };
        self.list.iter().map(|(kernel, list)| (kernel.clone(), operands(list, &mut given))).collect()
    }
}
