//! Replaces launches of attention kernels by launches of their variants.
//!
//! In: a module with unscheduled attention kernels, and a machine's parameters. Out: the same
//! module, with each of their launches replaced by the launches of its variants for the machine
//! (`variants`), and with a branch where the choice depends on a number of queries that is known
//! only at run time.
//!
//! ```text
//!   launch @attention.0(%q, %k, %v, %y)        ->      %c = ge (dim S), 257
//!                                                      br_if %c, ^many, ^few
//!                                                    ^many:
//!                                                      launch @heads.0(%k, %copy);  launch @attention.0(%q, %copy, %v, %y)
//!                                                    ^few:
//!                                                      launch @attention.1(%q, %k, %v, %y)
//! ```

use std::collections::{BTreeMap, BTreeSet};

use super::variants::{Divided, ScratchSlot, Variant, Variants};
use crate::scalar::{CmpOp, Scalar};
use crate::shape::Elem;
use crate::tile::attention::{Described, KEYS, VALUES};
use crate::tile::schedule::plans::{
    LaunchPosition, buffer, in_entry, new_slot, slot_type, value_before, writes_apart_from,
};
use crate::tile::schedule::step::Replacements;
use crate::tile::{
    Block, BlockCall, Body, Inst, Kernel, Kernels, Machine, Module, Op, Plan, PlanOp, Terminator, Type, Value, View,
    simplify,
};

/// The replacements of the attentions of a module.
#[derive(Default)]
pub(super) struct Expanded {
    /// The names of the new kernels.
    pub(super) changed: BTreeSet<String>,
    /// The variants of each attention.
    pub(super) attentions: Vec<(String, Variants)>,
    /// The kernels that have other names now.
    pub(super) names: Replacements,
}

/// Replaces each attention by its variants for a machine, or by kernels that were made for it
/// before (`divided`, by the name of its kernel).
///
/// # Errors
/// A variant that cannot be written, a bug in attnc.
pub(super) fn expand(
    module: &mut Module,
    machine: Machine,
    divided: &BTreeMap<String, Divided>,
) -> Result<Expanded, String> {
    let mut found: BTreeMap<String, Described> = BTreeMap::new();
    for k in &module.kernels {
        found.extend(replaceable(module, k).map(|f| (k.name.clone(), f)));
    }
    // Where one buffer is both keys and values, it is copied once.
    let mut launched: BTreeMap<String, BTreeSet<bool>> = BTreeMap::new();
    for plan in &module.plans {
        for (_, _, data) in plan.body.insts() {
            if let Op::Plan(PlanOp::Launch { kernel }) = &data.op
                && found.contains_key(kernel)
            {
                launched.entry(kernel.clone()).or_default().insert(keys_are_values(&plan.body, &data.operands));
            }
        }
    }
    if launched.is_empty() {
        return Ok(Expanded::default());
    }
    // A copy of keys may equal a kernel that something else launches.
    let mut kernels = Kernels::among(module.kernels.iter().filter(|k| !launched.contains_key(&k.name)));
    let mut variants: BTreeMap<(String, bool), Variants> = BTreeMap::new();
    let mut names = Replacements::new();
    let mut changed = BTreeSet::new();
    for k in std::mem::take(&mut module.kernels) {
        if let (Some(found), Some(sharing)) = (found.get(&k.name), launched.get(&k.name)) {
            for same in sharing {
                let made = Variants::choose(&k, found, machine, *same, divided.get(&k.name), &mut kernels)?;
                changed.extend(made.kernels.iter().cloned());
                let is_whole = |kernel: &&Kernel| kernel.buffer_types() == k.buffer_types();
                let of = made.kernels.iter().filter_map(|name| kernels.list.iter().find(|k| k.name == *name));
                names.insert(k.name.clone(), of.filter(is_whole).take(1).map(|k| k.name.clone()).collect());
                variants.insert((k.name.clone(), *same), made);
            }
        } else {
            kernels.keep(&k);
        }
    }
    module.kernels = kernels.list;
    for plan in &mut module.plans {
        let mut of_launches: BTreeMap<Inst, &Variants> = BTreeMap::new();
        for inst in plan.body.insts().map(|(_, i, _)| i).collect::<Vec<_>>() {
            let data = plan.body.inst(inst);
            let Op::Plan(PlanOp::Launch { kernel }) = &data.op else { continue };
            if found.contains_key(kernel) {
                let key = (kernel.clone(), keys_are_values(&plan.body, &data.operands));
                of_launches.extend(variants.get(&key).map(|variants| (inst, variants)));
            }
        }
        if !of_launches.is_empty() {
            Walk { variants: of_launches, plan, added: BTreeSet::new() }.run()?;
            simplify(&mut plan.body);
        }
    }
    let attentions = variants.into_iter().map(|((name, _), variants)| (name, variants)).collect();
    Ok(Expanded { changed, attentions, names })
}

/// Whether a kernel is an attention all of whose launches can be replaced by a variant. Not where a
/// result overwrites an input of the attention, since variants read in other orders.
pub(in crate::tile::schedule) fn may_be_replaced(module: &Module, kernel: &Kernel) -> bool {
    replaceable(module, kernel).is_some()
}

fn replaceable(module: &Module, kernel: &Kernel) -> Option<Described> {
    Described::from_kernel(kernel).filter(|found| writes_apart_from(&found.attention.inputs(), module, kernel))
}

/// Whether a launch of an attention has one view for both keys and values.
fn keys_are_values(body: &Body, operands: &[Value]) -> bool {
    let view = |n: usize| operands.get(n).and_then(|v| View::trace(body, *v));
    view(KEYS).is_some_and(|k| view(VALUES) == Some(k))
}

/// Rewrites the launches of one plan.
struct Walk<'a> {
    /// The variants of each launch.
    variants: BTreeMap<Inst, &'a Variants>,
    plan: &'a mut Plan,
    /// Instructions added to the entry block.
    added: BTreeSet<Inst>,
}

impl Walk<'_> {
    /// Replaces all launches of attentions.
    fn run(&mut self) -> Result<(), String> {
        for block in self.plan.body.reverse_postorder() {
            // Instructions after a launch may move to another block.
            let mut rest = Some(block);
            while let Some(block) = rest {
                rest = self.next(block)?;
            }
        }
        Ok(())
    }

    /// Replaces the first launch of an attention in a block; returns the block that then holds the
    /// instructions after it, or `None` if there is no such launch.
    fn next(&mut self, block: Block) -> Result<Option<Block>, String> {
        let body = &self.plan.body;
        let found = body.block(block).insts.iter().find_map(|inst| Some((*inst, *self.variants.get(inst)?)));
        let Some((inst, variants)) = found else { return Ok(None) };
        let data = body.inst(inst).clone();
        let mut at = LaunchPosition { block, inst, loc: data.loc, out: data.operands.last().copied() };
        let mut roots = Vec::new();
        for v in &data.operands {
            roots.push(View::trace(body, *v).ok_or("an operand of an attention is not a buffer")?);
        }
        let numbers =
            (0u32..).zip(&variants.slots).map(|(others, of)| new_slot(self.plan, &of.bytes, at, others)).collect();
        // The launch marks the insertion point until all else is emitted.
        let body = &mut self.plan.body;
        let here = body.block(block).insts.iter().position(|i| *i == at.inst).ok_or("a launch is not in its block")?;
        let rest = body.block_mut(block).insts.split_off(here);
        body.block_mut(block).insts.push(at.inst);
        let terminator = body.block(block).terminator.clone();
        let mut launch = Expansion { variants, from: block, numbers, operands: roots.len(), roots };
        self.emit(&variants.variant, &mut launch, &mut at)?;
        let body = &mut self.plan.body;
        body.block_mut(at.block).insts.retain(|i| *i != at.inst);
        // Buffers of the whole plan stay in the entry block.
        let (entry, mut rest) = (body.entry(), rest.get(1..).unwrap_or_default().to_vec());
        if block == entry && at.block != entry {
            let is_place = |i: &Inst| matches!(body.inst(*i).op, Op::Plan(PlanOp::Slot(_) | PlanOp::Out(_)));
            let places: Vec<Inst> = rest.iter().copied().filter(is_place).collect();
            rest.retain(|i| !places.contains(i));
            body.block_mut(entry).insts.extend(places);
        }
        body.block_mut(at.block).insts.extend(rest);
        body.terminate(at.block, terminator);
        Ok(Some(at.block))
    }

    /// Creates the slots up to root `last`, if that is a slot.
    fn make_slots(&mut self, what: &mut Expansion<'_>, last: Value, at: LaunchPosition) -> Result<(), String> {
        while usize::try_from(last.as_u32()).is_ok_and(|last| last >= what.roots.len()) {
            let others = what.roots.len() - what.operands;
            let ScratchSlot { bytes, ty } = what.variants.slots.get(others).ok_or("an attention without its slot")?;
            let ty = slot_type(self.plan, bytes, ty);
            let number = *what.numbers.get(others).ok_or("an attention without its slot")?;
            let (entry, op) = (self.plan.body.entry(), Op::Plan(PlanOp::Slot(number)));
            let made = if what.from == entry {
                // Before the launch, or at the end of the entry block if the launch has moved on.
                let body = &mut self.plan.body;
                let made = body.make_inst(op, Vec::new(), Some(Type::Buffer(ty)), at.loc);
                let list = &mut body.block_mut(entry).insts;
                let place = list.iter().position(|i| *i == at.inst).unwrap_or(list.len());
                list.insert(place, made);
                body.inst(made).result.ok_or("a slot is not a buffer")?
            } else {
                in_entry(self.plan, &mut self.added, op, ty, at)
            };
            what.roots.push(View::trace(&self.plan.body, made).ok_or("a slot is not a buffer")?);
        }
        Ok(())
    }

    /// Emits a variant before the launch; if the variant branches, the launch moves to the block
    /// where the branches meet.
    fn emit(&mut self, variant: &Variant, what: &mut Expansion<'_>, at: &mut LaunchPosition) -> Result<(), String> {
        match variant {
            Variant::Launches(list) => {
                for launch in list {
                    for view in &launch.buffers {
                        self.make_slots(what, view.root, *at)?;
                    }
                    let mut operands = Vec::new();
                    for view in &launch.buffers {
                        let root = usize::try_from(view.root.as_u32()).ok().and_then(|n| what.roots.get(n));
                        let root = root.ok_or("an attention without its operand")?;
                        let offset = root.offset.add(&view.offset);
                        let (shape, strides) = (view.shape.clone(), view.strides.clone());
                        let place = View { offset, shape, strides, ..root.clone() };
                        operands.push(buffer(&mut self.plan.body, *at, &place));
                    }
                    let body = &mut self.plan.body;
                    let op = Op::Plan(PlanOp::Launch { kernel: launch.kernel.clone() });
                    let made = body.make_inst(op, operands, None, at.loc);
                    body.insert_before(at.block, at.inst, made);
                }
            }
            Variant::Either { count, least, more, less } => {
                let body = &mut self.plan.body;
                let count = value_before(body, *at, Op::DimValue(count.clone()), Vec::new(), Type::Index);
                let least = value_before(body, *at, Op::Const(Scalar::Int(*least)), Vec::new(), Type::Index);
                let enough =
                    value_before(body, *at, Op::Compare(CmpOp::Ge), vec![count, least], Type::Scalar(Elem::Bool));
                let [then, otherwise, done] = [body.add_block(), body.add_block(), body.add_block()];
                body.block_mut(at.block).insts.retain(|i| *i != at.inst);
                let to = |block: Block| BlockCall { block, args: Vec::new() };
                let parts = Terminator::BrIf { condition: enough, then: to(then), otherwise: to(otherwise) };
                body.terminate(at.block, parts);
                for (block, variant) in [(then, more), (otherwise, less)] {
                    at.block = block;
                    self.plan.body.block_mut(block).insts.push(at.inst);
                    self.emit(variant, what, at)?;
                    let body = &mut self.plan.body;
                    body.block_mut(at.block).insts.retain(|i| *i != at.inst);
                    body.terminate(at.block, Terminator::Br(to(done)));
                }
                at.block = done;
                self.plan.body.block_mut(done).insts.push(at.inst);
            }
        }
        Ok(())
    }
}

/// A launch that is replaced.
struct Expansion<'a> {
    variants: &'a Variants,
    /// The block of the original launch.
    from: Block,
    /// Slot numbers, in the order of `variants.slots`.
    numbers: Vec<u32>,
    /// Number of operands: later roots are slots.
    operands: usize,
    /// Views of the operands, then of the slots created so far.
    roots: Vec<View>,
}
