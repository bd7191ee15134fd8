//! Outlining: moves some instructions of a block into the body of one `fused` instruction.
//!
//! In: the members, i.e. the instructions to move. The last one computes the result; results of the
//! others are used by members only. Out: the function with the last member replaced by `fused`, the
//! others removed, and constants and counters that the members use copied into the body. The
//! calling passes choose the members; outlining itself does not change any result.

use std::collections::BTreeMap;

use cranelift_entity::SecondaryMap;

use super::rewrite::Uses;
use crate::ir::{Block, Class, Function, FusionKind, Inst, Loc, Op, Terminator, Type, Use, Value};
use crate::shape::{Dim, TensorType, broadcast};

/// The maximum number of operations in a region: beyond it, a kernel has more intermediate results
/// than a processor has registers.
pub(super) const MAX_OPERATIONS: usize = 48;
/// The maximum number of tensors that a region reads.
pub(super) const MAX_OPERANDS: usize = 16;

/// Uses of all values, and positions of instructions in the current block; updated as regions are
/// made, so that it is computed once for all blocks. Outlined instructions leave their block at
/// [`Index::leave`].
pub(super) struct Index {
    block: Block,
    uses: Uses,
    /// Block and position in it; `None` once outlined.
    position: SecondaryMap<Inst, Option<(Block, usize)>>,
}

impl Index {
    pub(super) fn new(f: &Function) -> Index {
        let mut position: SecondaryMap<Inst, Option<(Block, usize)>> = SecondaryMap::new();
        for b in &f.layout {
            for (at, i) in f.block(*b).insts.iter().enumerate() {
                position[*i] = Some((*b, at));
            }
        }
        Index { block: f.entry(), uses: f.uses(), position }
    }

    /// Enters a block; returns its instructions.
    pub(super) fn enter(&mut self, f: &Function, block: Block) -> Vec<Inst> {
        self.block = block;
        f.block(block).insts.clone()
    }

    /// Removes outlined instructions from the current block.
    pub(super) fn leave(&self, f: &mut Function) {
        f.block_mut(self.block).insts.retain(|i| self.position[*i].is_some());
    }

    /// Updates the index after members were outlined at the last of them.
    fn outlined(&mut self, f: &Function, members: &[Inst]) {
        let Some((root, others)) = members.split_last() else { return };
        for i in others {
            self.position[*i] = None;
        }
        for (k, v) in f.inst(*root).operands.iter().enumerate() {
            self.uses[*v].retain(|u| !matches!(u, Use::Operand(i, _) if members.contains(i)));
            self.uses[*v].push(Use::Operand(*root, k));
        }
    }
}

/// The view that decides which operations a region of the current block may contain.
pub(super) struct Scene<'a> {
    pub(super) f: &'a Function,
    index: &'a Index,
}

impl<'a> Scene<'a> {
    pub(super) fn new(f: &'a Function, index: &'a Index) -> Scene<'a> {
        Scene { f, index }
    }

    pub(super) fn uses(&self, v: Value) -> &'a [Use] {
        &self.index.uses[v]
    }

    /// The position of an instruction in this block; `None` if it is in another.
    pub(super) fn position(&self, i: Inst) -> Option<usize> {
        self.index.position[i].filter(|(block, _)| *block == self.index.block).map(|(_, at)| at)
    }

    /// The type of an instruction's result, if that is a tensor.
    pub(super) fn result(&self, i: Inst) -> Option<&'a TensorType> {
        self.f.tensor(self.f.inst(i).result?)
    }

    /// Is it an elementwise operation on tensors (not on loop counters)?
    pub(super) fn is_elementwise(&self, i: Inst) -> bool {
        let d = self.f.inst(i);
        d.op.info().class == Class::Elementwise
            && self.result(i).is_some()
            && d.operands.iter().all(|v| self.f.tensor(*v).is_some())
    }

    /// Is it a cast of a smaller value that is broadcast to `shape`, such as a norm's weight? It
    /// costs nothing where the value is loaded, so it need not be a kernel of its own.
    pub(super) fn is_cast_to(&self, i: Inst, shape: &[Dim]) -> bool {
        matches!(self.f.inst(i).op, Op::Cast { .. })
            && self.result(i).is_some_and(|t| broadcast(&t.shape, shape).is_ok_and(|all| all == shape))
    }

    /// Is every use of the instruction's result an operand of a member?
    pub(super) fn used_only_by(&self, i: Inst, members: &[Inst]) -> bool {
        self.f.inst(i).result.is_some_and(|v| {
            let uses = self.uses(v);
            !uses.is_empty() && uses.iter().all(|u| matches!(u, Use::Operand(user, _) if members.contains(user)))
        })
    }

    /// The tensors that the members read from outside, except constants and counters.
    pub(super) fn operands(&self, members: &[Inst]) -> Vec<Value> {
        let mut out = Vec::new();
        for i in members {
            for v in &self.f.inst(*i).operands {
                let inside = self.f.definition(*v).is_some_and(|(d, _)| members.contains(&d));
                if !inside && !is_copied(self.f, *v) && !out.contains(v) {
                    out.push(*v);
                }
            }
        }
        out
    }

    /// Is the region small enough for one kernel?
    pub(super) fn fits(&self, members: &[Inst]) -> bool {
        members.len() <= MAX_OPERATIONS && self.operands(members).len() <= MAX_OPERANDS
    }

    /// Members of a region that ends at `root`: instructions of this block that `accept` admits and
    /// that are used by members alone. In the order of the block, `root` last.
    pub(super) fn grow_up(&self, root: Inst, mut accept: impl FnMut(&Self, Inst) -> bool) -> Vec<Inst> {
        let mut members = vec![root];
        // The latest candidate first, so that all users of a candidate have been decided before it.
        let mut candidates: BTreeMap<usize, Inst> = BTreeMap::new();
        let mut next = Some(root);
        while let Some(i) = next {
            for v in &self.f.inst(i).operands {
                if let Some((d, _)) = self.f.definition(*v)
                    && let Some(at) = self.position(d)
                {
                    candidates.insert(at, d);
                }
            }
            next = loop {
                match candidates.pop_last() {
                    None => break None,
                    Some((_, i)) => {
                        if self.used_only_by(i, &members) && accept(self, i) {
                            members.push(i);
                            if self.fits(&members) {
                                break Some(i);
                            }
                            members.pop();
                        }
                    }
                }
            };
        }
        members.sort_by_key(|i| self.position(*i));
        members
    }
}

/// Is the value a constant or counter that a region copies?
pub(super) fn is_copied(f: &Function, v: Value) -> bool {
    f.definition(v).is_some_and(|(_, d)| d.op.is_copied()) && f.tensor(v).is_some()
}

/// Outlines the region that `find` returns for each possible last instruction, from the end of the
/// block; returns the number of regions.
pub(super) fn outline_all(
    f: &mut Function,
    index: &mut Index,
    block: Block,
    kind: FusionKind,
    find: impl Fn(&Scene<'_>, Inst) -> Vec<Inst>,
    mut tell: impl FnMut(&Function, &[Inst]),
) -> usize {
    let mut made = 0;
    for root in index.enter(f, block).into_iter().rev() {
        let scene = Scene::new(f, index);
        // Members of a region are no longer in the block.
        let members = if scene.position(root).is_some() { find(&scene, root) } else { Vec::new() };
        if !members.is_empty() {
            tell(f, &members);
            outline(f, index, &members, kind, &[]);
            made += 1;
        }
    }
    index.leave(f);
    made
}

/// Outlines members as a region; the others leave the block at [`Index::leave`]. `keep_outside`
/// lists operands that must be arguments of the region though a region could copy them, i.e. those
/// of its matmul or attention.
pub(super) fn outline(f: &mut Function, index: &mut Index, members: &[Inst], kind: FusionKind, keep_outside: &[Value]) {
    let Some(root) = members.last() else { return };
    let mut body = Function::new("");
    let entry = body.entry();
    // A sparse map: a dense one would be as large as the function for each region.
    let mut inside: BTreeMap<Value, Value> = BTreeMap::new();
    let mut operands: Vec<Value> = Vec::new();
    // Arguments first, in order of appearance, so that the body reads like the block did.
    for i in members {
        for v in &f.inst(*i).operands {
            let made_inside = f.definition(*v).is_some_and(|(d, _)| members.contains(&d));
            if !made_inside && (!is_copied(f, *v) || keep_outside.contains(v)) && !operands.contains(v) {
                operands.push(*v);
                inside.insert(*v, body.add_block_arg(entry, f.ty(*v).clone()));
            }
        }
    }
    let mut result = None;
    for i in members {
        let d = f.inst(*i).clone();
        let mut mapped = Vec::with_capacity(d.operands.len());
        for v in &d.operands {
            let value = match inside.get(v) {
                Some(value) => Some(*value),
                None => f.definition(*v).and_then(|(_, source)| {
                    let ty: Type = f.ty(*v).clone();
                    let copy = body.push(entry, source.op.clone(), Vec::new(), Some(ty), source.loc);
                    inside.extend(copy.map(|copy| (*v, copy)));
                    copy
                }),
            };
            mapped.extend(value);
        }
        let ty = d.result.map(|v| f.ty(v).clone());
        let made = match &d.op {
            Op::Fused { body: inner, .. } => copy_region(&mut body, inner, &mapped),
            _ => body.push(entry, d.op, mapped, ty, d.loc),
        };
        if let Some(v) = made
            && !d.parts.is_empty()
        {
            body.set_parts(v, &d.parts);
        }
        if let Some(v) = d.result {
            inside.extend(made.map(|made| (v, made)));
        }
        result = made;
    }
    body.terminate(entry, Terminator::Return(result.into_iter().collect()));
    let data = f.inst_mut(*root);
    data.op = Op::Fused { kind, body: Box::new(body) };
    data.operands = operands;
    data.parts = Vec::new();
    index.outlined(f, members);
}

/// Inlines a region at the end of another body, with these operands; returns its result there.
fn copy_region(body: &mut Function, inner: &Function, operands: &[Value]) -> Option<Value> {
    let entry = body.entry();
    let from = inner.block(inner.entry());
    let mut copies: BTreeMap<Value, Value> = from.args.iter().copied().zip(operands.iter().copied()).collect();
    for i in &from.insts {
        let d = inner.inst(*i);
        let mapped = d.operands.iter().filter_map(|v| copies.get(v).copied()).collect();
        let ty = d.result.map(|v| inner.ty(v).clone());
        let made = body.push(entry, d.op.clone(), mapped, ty, d.loc);
        if let Some(v) = made {
            body.set_parts(v, &d.parts);
        }
        copies.extend(d.result.zip(made));
    }
    match &from.terminator {
        Terminator::Return(results) => results.first().and_then(|v| copies.get(v).copied()),
        _ => None,
    }
}

/// The names of the operations, for remarks: `matmul, add, gelu`.
pub(super) fn names(f: &Function, members: &[Inst]) -> String {
    members.iter().map(|i| f.inst(*i).op.info().name).collect::<Vec<_>>().join(", ")
}

/// The source location of the first member that has one.
pub(super) fn first_loc(f: &Function, members: &[Inst]) -> Loc {
    members.iter().map(|i| f.inst(*i).loc).find(|l| l.line > 0).unwrap_or_default()
}

/// The leading dimensions, and the last.
pub(super) fn rows_of(t: &TensorType) -> Option<(&[Dim], &Dim)> {
    t.shape.split_last().map(|(last, lead)| (lead, last))
}
