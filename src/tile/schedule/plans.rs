//! Insertions into plans: buffers before a launch, and slots in the arena.
//!
//! In: a plan, and a launch in it. Out: the plan with more operations. It must not know what the
//! launch computes.

use std::collections::BTreeSet;

use crate::scalar::{CmpOp, Scalar};
use crate::shape::{Dim, Elem};
use crate::source::Loc;
use crate::tile::{
    Block, BlockCall, Body, BufferType, Inst, Kernel, Module, Op, ParamMode, Plan, PlanOp, PlanVariant, SlotData,
    Terminator, Type, Value, View, flat,
};

/// A launch: its block and index, and the buffer of its result.
#[derive(Clone, Copy)]
pub(super) struct LaunchPosition {
    pub(super) block: Block,
    pub(super) inst: Inst,
    pub(super) loc: Loc,
    pub(super) out: Option<Value>,
}

/// Inserts an operation before a launch; returns its result, of type `ty`.
pub(super) fn value_before(body: &mut Body, at: LaunchPosition, op: Op, operands: Vec<Value>, ty: Type) -> Value {
    let made = body.make_inst(op, operands, Some(ty), at.loc);
    body.insert_before(at.block, at.inst, made);
    result_of(body, made)
}

/// The result of an instruction that has one.
fn result_of(body: &Body, made: Inst) -> Value {
    match body.inst(made).result {
        Some(v) => v,
        None => unreachable!("an instruction that is given a type has a result"),
    }
}

/// Is what a kernel writes disjoint, in every launch, from its parameters with the numbers `read`?
/// Then it may read these in any order. Not in a plan that prepares parameters, which has no slots.
pub(super) fn writes_apart_from(read: &BTreeSet<usize>, module: &Module, kernel: &Kernel) -> bool {
    let is_written = |n: &usize| kernel.params.get(*n).is_some_and(|p| p.mode != ParamMode::In);
    let written: Vec<usize> = (0..kernel.params.len()).filter(is_written).collect();
    module.plans.iter().all(|plan| {
        let body = &plan.body;
        body.insts().all(|(_, _, d)| {
            if !matches!(&d.op, Op::Plan(PlanOp::Launch { kernel: own }) if *own == kernel.name) {
                return true;
            }
            let memory = |n: usize| {
                let view = View::trace(body, *d.operands.get(n)?)?;
                body.def_inst(view.root).map(|root| (&root.op, &root.operands))
            };
            let apart = |to: usize, from: usize| match (memory(to), memory(from)) {
                (Some(to), Some(from)) => to != from,
                _ => false,
            };
            plan.variant != PlanVariant::Prepare && written.iter().all(|to| read.iter().all(|from| apart(*to, *from)))
        })
    })
}

/// A choice between launches, depending on a dimension whose value is known in a call.
pub(super) struct Choice {
    /// The launch for values below the minimum of every variant.
    pub(super) launch: Inst,
    /// The dimension.
    pub(super) count: Dim,
    /// The others, in order of their minimum.
    pub(super) variants: Vec<Variant>,
}

/// Launches for values of a dimension that are at least a minimum.
pub(super) struct Variant {
    pub(super) least: i64,
    /// Kernels and their operands, which must be available at the original launch.
    pub(super) launches: Vec<(String, Vec<Value>)>,
}

/// Replaces a launch by a choice.
///
/// ```text
///   launch @matmul.0(..)       ->      %c = ge (dim S), 65;  br_if %c, ^many, ^other
///                                    ^other:
///                                      %d = ge (dim S), 2;  br_if %d, ^some, ^few
/// ```
///
/// # Errors
/// A launch that is in no block, which is a bug in attnc.
pub(super) fn choose_by_count(plan: &mut Plan, choice: Choice) -> Result<(), String> {
    let Choice { launch, count, variants } = choice;
    let body = &mut plan.body;
    let loc = body.inst(launch).loc;
    let home = body.block_of(launch).ok_or("a launch has gone")?;
    let here = body.block(home).insts.iter().position(|i| *i == launch).ok_or("a launch has gone")?;
    let mut rest = body.block_mut(home).insts.split_off(here);
    rest.remove(0);
    let terminator = body.block(home).terminator.clone();
    let to = |block: Block| BlockCall { block, args: Vec::new() };
    let made = |body: &mut Body, block: Block, op: Op, operands: Vec<Value>, ty: Option<Type>| {
        let made = body.make_inst(op, operands, ty, loc);
        body.block_mut(block).insts.push(made);
        made
    };
    let (mut block, mut ends) = (home, Vec::new());
    for Variant { least, launches } in variants.into_iter().rev() {
        let count = made(body, block, Op::DimValue(count.clone()), Vec::new(), Some(Type::Index));
        let least = made(body, block, Op::Const(Scalar::Int(least)), Vec::new(), Some(Type::Index));
        let both = [count, least].map(|i| result_of(body, i)).to_vec();
        let enough = made(body, block, Op::Compare(CmpOp::Ge), both, Some(Type::Scalar(Elem::Bool)));
        let [then, otherwise] = [body.add_block(), body.add_block()];
        let condition = result_of(body, enough);
        body.terminate(block, Terminator::BrIf { condition, then: to(then), otherwise: to(otherwise) });
        for (kernel, operands) in launches {
            made(body, then, Op::Plan(PlanOp::Launch { kernel }), operands, None);
        }
        ends.push(then);
        block = otherwise;
    }
    body.block_mut(block).insts.push(launch);
    ends.push(block);
    let done = body.add_block();
    for end in ends {
        body.terminate(end, Terminator::Br(to(done)));
    }
    // Buffers that exist for the whole plan stay in the entry block.
    if home == body.entry() {
        let is_place = |i: &Inst| matches!(body.inst(*i).op, Op::Plan(PlanOp::Slot(_) | PlanOp::Out(_)));
        let places: Vec<Inst> = rest.iter().copied().filter(is_place).collect();
        rest.retain(|i| !places.contains(i));
        let list = &mut body.block_mut(home).insts;
        list.splice(here..here, places);
    }
    body.block_mut(done).insts.extend(rest);
    body.terminate(done, terminator);
    Ok(())
}

/// Reinserts a view that was removed before a launch, after the views that it depends on.
pub(super) fn put_back(body: &mut Body, at: LaunchPosition, taken: &mut Vec<Inst>, v: Value) {
    let Some(n) = taken.iter().position(|view| body.inst(*view).result == Some(v)) else { return };
    let view = taken.remove(n);
    for operand in body.inst(view).operands.clone() {
        put_back(body, at, taken, operand);
    }
    body.insert_before(at.block, at.inst, view);
}

/// The buffer of a view, before a launch: the root itself if they are identical, else a view of it.
pub(super) fn buffer(body: &mut Body, at: LaunchPosition, view: &View) -> Value {
    let ty = view.buffer_type();
    if body.ty(view.root).buffer() == Some(&ty) && view.offset == Dim::zero() && view.dynamic.is_empty() {
        return view.root;
    }
    let (indices, strides): (Vec<Value>, Vec<Dim>) = view.dynamic.iter().cloned().unzip();
    let operands = std::iter::once(view.root).chain(indices).collect();
    value_before(body, at, Op::Plan(PlanOp::View { offset: view.offset.clone(), strides }), operands, Type::Buffer(ty))
}

/// Adds a slot for a launch to the arena, after its result's slot and `others` more; returns its
/// number.
pub(super) fn new_slot(plan: &mut Plan, bytes: &Dim, at: LaunchPosition, others: u32) -> u32 {
    let body = &plan.body;
    let root = at.out.and_then(|v| View::trace(body, v)).and_then(|v| body.def_inst(v.root));
    let number = match root.map(|d| &d.op) {
        Some(Op::Plan(PlanOp::Slot(n))) => n.saturating_add(1).saturating_add(others),
        _ => u32::try_from(plan.slots.len()).unwrap_or(u32::MAX),
    };
    for inst in plan.body.insts().map(|(_, i, _)| i).collect::<Vec<_>>() {
        if let Op::Plan(PlanOp::Slot(n)) = &mut plan.body.inst_mut(inst).op
            && *n >= number
        {
            *n += 1;
        }
    }
    let place = usize::try_from(number).unwrap_or(usize::MAX).min(plan.slots.len());
    let bytes = at_most(plan, bytes);
    plan.slots.insert(place, SlotData { bytes });
    number
}

/// Upper bound of a dimension, in terms of dimensions known before all launches.
fn at_most(plan: &Plan, dim: &Dim) -> Dim {
    dim.at_most(&|name| plan.lengths().find(|(own, _)| *own == name).map(|(_, most)| most.clone()))
}

/// The type of a slot of `bytes` that holds a buffer: the buffer's own, if its extents are known
/// before all launches (its size may be known even if they are not: 0 elements, for any length).
/// Otherwise, launches use views of it.
pub(super) fn slot_type(plan: &Plan, bytes: &Dim, ty: &BufferType) -> BufferType {
    let mut dims = std::iter::once(bytes).chain(&ty.shape).chain(&ty.strides);
    let is_later = |d: &Dim| d.symbols().iter().any(|s| plan.lengths().any(|(own, _)| *own == **s));
    if dims.any(is_later) { flat(ty.elem, &at_most(plan, bytes)) } else { ty.clone() }
}

/// Defines a buffer in the entry block, which dominates everything: after a launch's result and the
/// instructions in `added`, if these are there.
pub(super) fn in_entry(
    plan: &mut Plan,
    added: &mut BTreeSet<Inst>,
    op: Op,
    ty: BufferType,
    at: LaunchPosition,
) -> Value {
    let body = &mut plan.body;
    let entry = body.entry();
    let root = at.out.and_then(|v| View::trace(body, v)).map(|v| v.root);
    let made = body.make_inst(op, Vec::new(), Some(Type::Buffer(ty)), at.loc);
    let list = &body.block(entry).insts;
    let after = root.and_then(|v| body.definition(v)).and_then(|(i, _)| list.iter().position(|x| *x == i));
    let launch = if at.block == entry { list.iter().position(|i| *i == at.inst) } else { None };
    let is_added = |i: &&Inst| added.contains(i);
    let after = after.map(|i| i + 1 + list.iter().skip(i + 1).take_while(is_added).count());
    let place = after.or(launch).unwrap_or(list.len());
    added.insert(made);
    body.block_mut(entry).insts.insert(place, made);
    result_of(body, made)
}
