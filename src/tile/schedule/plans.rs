//! What steps of the schedule put into plans: buffers before a launch, and slots in the arena.
//!
//! In: a plan, and the place of a launch. Out: the plan with more operations. What it must not know: what the launch computes.

use std::collections::BTreeSet;

use crate::shape::Dim;
use crate::source::Loc;
use crate::tile::{Block, Body, BufferType, Inst, Op, Plan, SlotData, Type, Value, View, flat};

/// A launch: its block and place, and the buffer of its result.
#[derive(Clone, Copy)]
pub(super) struct At {
    pub(super) block: Block,
    pub(super) inst: Inst,
    pub(super) loc: Loc,
    pub(super) out: Option<Value>,
}

/// The result, of this type, of an operation that is inserted before a launch.
pub(super) fn value_before(body: &mut Body, at: At, op: Op, operands: Vec<Value>, ty: Type) -> Value {
    let made = body.make_inst(op, operands, Some(ty), at.loc);
    body.insert_before(at.block, at.inst, made);
    result_of(body, made)
}

/// The result of an instruction that was made with a type.
fn result_of(body: &Body, made: Inst) -> Value {
    match body.inst(made).result {
        Some(v) => v,
        None => unreachable!("an instruction that is given a type has a result"),
    }
}

/// Puts a view that was taken out before a launch, after those that it is a view of.
pub(super) fn put_back(body: &mut Body, at: At, taken: &mut Vec<Inst>, v: Value) {
    let Some(n) = taken.iter().position(|view| body.inst(*view).result == Some(v)) else { return };
    let view = taken.remove(n);
    for operand in body.inst(view).operands.clone() {
        put_back(body, at, taken, operand);
    }
    body.insert_before(at.block, at.inst, view);
}

/// The buffer of a window, before a launch: the root itself where it is the same, else a view of it.
pub(super) fn buffer(body: &mut Body, at: At, view: &View) -> Value {
    let ty = view.buffer_type();
    if body.ty(view.root).buffer() == Some(&ty) && view.offset == Dim::zero() && view.dynamic.is_empty() {
        return view.root;
    }
    let (indices, strides): (Vec<Value>, Vec<Dim>) = view.dynamic.iter().cloned().unzip();
    let operands = std::iter::once(view.root).chain(indices).collect();
    value_before(body, at, Op::View { offset: view.offset.clone(), strides }, operands, Type::Buffer(ty))
}

/// Adds a slot to the arena for a launch, after that of its result and so many others of its own; the number of the slot.
pub(super) fn new_slot(plan: &mut Plan, bytes: &Dim, at: At, others: u32) -> u32 {
    let body = &plan.body;
    let root = at.out.and_then(|v| View::of(body, v)).and_then(|v| body.def_inst(v.root));
    let number = match root.map(|d| &d.op) {
        Some(Op::Slot(n)) => n.saturating_add(1).saturating_add(others),
        _ => u32::try_from(plan.slots.len()).unwrap_or(u32::MAX),
    };
    for inst in plan.body.insts().map(|(_, i, _)| i).collect::<Vec<_>>() {
        if let Op::Slot(n) = &mut plan.body.inst_mut(inst).op
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

/// The most that a dimension can be, in those that are known before all launches: a length has its value later.
fn at_most(plan: &Plan, dim: &Dim) -> Dim {
    dim.at_most(&|name| plan.lengths().find(|(own, _)| *own == name).map(|(_, most)| most.clone()))
}

/// The type of a slot of so many bytes, which holds a buffer: the buffer's own, if its extents are known before all
/// launches (its size may be where they are not: nothing, for any length). Else launches are given views of it.
pub(super) fn slot_type(plan: &Plan, bytes: &Dim, ty: &BufferType) -> BufferType {
    let mut dims = std::iter::once(bytes).chain(&ty.shape).chain(&ty.strides);
    let is_later = |d: &Dim| d.symbols().iter().any(|s| plan.lengths().any(|(own, _)| *own == **s));
    if dims.any(is_later) { flat(ty.elem, &at_most(plan, bytes)) } else { ty.clone() }
}

/// A buffer made in the entry block, which dominates everything: after that of a launch's result and what was `added` there,
/// if it is there.
pub(super) fn in_entry(plan: &mut Plan, added: &mut BTreeSet<Inst>, op: Op, ty: BufferType, at: At) -> Value {
    let body = &mut plan.body;
    let entry = body.entry();
    let root = at.out.and_then(|v| View::of(body, v)).map(|v| v.root);
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
