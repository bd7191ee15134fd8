//! The reverse sweep: reads operations backwards, and adds up the gradient of each value.
//!
//! In: nodes, and the gradients of values after them. Out: the gradients of values before them. How
//! an operation passes a gradient on is in `rules`; loops are in `loops`.

use std::collections::{BTreeMap, BTreeSet};

use cranelift_entity::SecondaryMap;

use super::emit::Emitter;
use super::movement;
use super::reach::Variables;
use super::rules;
use super::site::Site;
use super::structure::{Arm, Node, Region};
use super::weights::Weights;
use super::{Refusal, Res, slices_of};
use crate::ir::{Block, BlockCall, Function, Inst, InstData, Op, Terminator, Value};
use crate::scalar::BinaryOp;
use crate::shape::TensorType;

/// A part of the gradient of a parameter.
#[derive(Clone, Debug)]
pub(super) enum ParamGradient {
    /// For all tensors of the parameter.
    Whole(Value),
    /// For one, at these indices.
    At(Vec<Value>, Value),
}

/// Gradients so far, by the value of the function that they belong to.
#[derive(Clone, Debug, Default)]
pub(super) struct Gradients {
    pub values: BTreeMap<Value, Value>,
    pub params: BTreeMap<String, Vec<ParamGradient>>,
}

/// The values of the function at the place where its gradient is computed: the same ones, or copies
/// that were computed again.
#[derive(Clone, Debug, Default)]
pub(super) struct Here {
    pub values: BTreeMap<Value, Value>,
    pub blocks: BTreeMap<Block, Block>,
}

impl Here {
    pub(super) fn current(&self, v: Value) -> Value {
        self.values.get(&v).copied().unwrap_or(v)
    }

    pub(super) fn block(&self, b: Block) -> Block {
        self.blocks.get(&b).copied().unwrap_or(b)
    }

    /// The same, without copies of what is computed in these blocks.
    pub(super) fn without(&self, f: &Function, blocks: &[Block]) -> Here {
        let mut out = self.clone();
        for b in blocks {
            out.blocks.remove(b);
            let results = f.block(*b).insts.iter().filter_map(|i| f.inst(*i).result);
            for v in f.block(*b).args.iter().copied().chain(results) {
                out.values.remove(&v);
            }
        }
        out
    }
}

/// The state of a sweep.
pub(super) struct Sweep<'f> {
    pub e: Emitter<'f>,
    pub active: SecondaryMap<Value, bool>,
    pub variables: Variables,
    /// The type of all tensors of each parameter, stacked.
    pub stacked: BTreeMap<String, TensorType>,
    pub weights: Weights,
    /// The gradients of the variables.
    pub results: BTreeMap<Value, Value>,
    /// Are the gradients differentiated again?
    pub again: bool,
}

impl Sweep<'_> {
    /// Adds to the gradient of a value, if it is active.
    pub(super) fn add(&mut self, to: &mut Gradients, v: Value, more: Value) -> Res<()> {
        if !self.active[v] {
            return Ok(());
        }
        let sum = match to.values.get(&v) {
            Some(so_far) => match movement::side_by_side(&mut self.e, *so_far, more)? {
                Some(both) => both,
                None => self.e.binary(BinaryOp::Add, *so_far, more)?,
            },
            None => more,
        };
        to.values.insert(v, sum);
        Ok(())
    }

    /// The gradient of a value, which is complete: all uses of the value are behind.
    pub(super) fn take(&mut self, from: &mut Gradients, v: Value) -> Option<Value> {
        let g = from.values.remove(&v)?;
        if self.variables.values.contains(&v) {
            self.results.insert(v, g);
        }
        Some(g)
    }

    pub(super) fn nodes(&mut self, nodes: &[Node], here: &Here, to: &mut Gradients) -> Res<()> {
        for node in nodes.iter().rev() {
            match node {
                Node::Inst(i) => self.inst(*i, here, to)?,
                Node::Same(pairs) => {
                    for (arg, passed) in pairs {
                        if let Some(g) = self.take(to, *arg) {
                            self.add(to, *passed, g)?;
                        }
                    }
                }
                Node::Branch(region, condition, arms) => self.branch(region, *condition, arms, here, to)?,
                Node::Loop(region, counted) => self.counted(region, counted, here, to)?,
                Node::Opaque(region, why) => {
                    let inside = region.blocks.iter().flat_map(|b| {
                        let data = self.e.f.block(*b);
                        let results = data.insts.iter().filter_map(|i| self.e.f.inst(*i).result);
                        data.args.iter().copied().chain(results).collect::<Vec<Value>>()
                    });
                    let values: Vec<Value> = region.args.iter().copied().chain(inside).collect();
                    if values.iter().any(|v| to.values.contains_key(v)) {
                        return Err(Refusal::new(region.loc, format!("no gradient goes through this: {why}")));
                    }
                }
                Node::Around(args, _, loc) => self.around(args, *loc, to)?,
            }
        }
        Ok(())
    }

    /// The loop around the gradient: its variables belong to one iteration.
    fn around(&mut self, args: &[Value], loc: crate::ir::Loc, to: &mut Gradients) -> Res<()> {
        for v in args {
            let is_variable = self.variables.values.contains(v);
            if self.take(to, *v).is_some() && !is_variable {
                let message = "the gradient would have to go through the earlier iterations of the loop around it: take \
                               it after the loop, or with respect to a value of this iteration";
                return Err(Refusal::new(loc, message));
            }
        }
        Ok(())
    }

    fn inst(&mut self, i: Inst, here: &Here, to: &mut Gradients) -> Res<()> {
        let inst = self.e.f.inst(i).clone();
        let Some(result) = inst.result else { return Ok(()) };
        let Some(gradient) = self.take(to, result) else { return Ok(()) };
        self.e.loc = inst.loc;
        if let Op::Param { name } = &inst.op
            && self.variables.params.contains(name)
        {
            let indices = inst.operands.iter().map(|v| here.current(*v)).collect();
            to.params.entry(name.clone()).or_default().push(ParamGradient::At(indices, gradient));
            return Ok(());
        }
        if let Some((variable, indices)) = self.slice_of_variable(&inst, here) {
            to.params.entry(slices_of(variable)).or_default().push(ParamGradient::At(indices, gradient));
            return Ok(());
        }
        let wanted: Vec<bool> = inst.operands.iter().map(|v| self.active[*v]).collect();
        if !wanted.contains(&true) {
            return Ok(());
        }
        let operands = inst.operands.iter().map(|v| here.current(*v)).collect();
        self.weights.sum_rows(&mut self.e, i, here.current(result), gradient)?;
        let site = Site {
            inst: &inst,
            operands,
            result: here.current(result),
            gradient,
            wanted,
            row_sums: self.weights.take_sums(result),
            again: self.again,
        };
        for (k, part) in rules::parts(&mut self.e, &site)? {
            self.add(to, inst.operands[k], part)?;
        }
        Ok(())
    }

    /// The variable of which an `index` along its first axes takes a slice.
    fn slice_of_variable(&self, inst: &InstData, here: &Here) -> Option<(Value, Vec<Value>)> {
        let (Op::Index { axis: 0 }, [x, at]) = (&inst.op, inst.operands.as_slice()) else { return None };
        let (variable, mut indices) = match self.e.f.def_inst(*x) {
            Some(outer) if !self.variables.whole.contains(x) => self.slice_of_variable(outer, here)?,
            _ => (*x, Vec::new()),
        };
        indices.push(here.current(*at));
        self.variables.whole.contains(&variable).then_some((variable, indices))
    }

    /// All parts of the gradient of a parameter, added to `base`, or else to zeros.
    pub(super) fn sum_of_parts(
        &mut self,
        name: &str,
        base: Option<Value>,
        parts: &[ParamGradient],
        once: bool,
    ) -> Res<Value> {
        let Some(ty) = self.stacked.get(name).cloned() else {
            return self.e.refuse(format!("there is no parameter `{name}`"));
        };
        let mut sum = base;
        let is_empty = ty.shape.contains(&crate::shape::Dim::zero());
        for part in parts.iter().filter(|_| !is_empty) {
            sum = Some(match (part, sum) {
                (ParamGradient::Whole(g), None) => *g,
                (ParamGradient::At(indices, g), None) if indices.is_empty() => *g,
                (ParamGradient::Whole(g), Some(sum)) => self.e.binary(BinaryOp::Add, sum, *g)?,
                (ParamGradient::At(indices, g), Some(sum)) if indices.is_empty() => {
                    self.e.binary(BinaryOp::Add, sum, *g)?
                }
                (ParamGradient::At(indices, g), sum) => {
                    let (is_empty, own) = (sum.is_none() || once, self.e.ty(*g)?);
                    let sum = match sum {
                        Some(sum) => sum,
                        None => self.e.splat(0.0, ty.clone())?,
                    };
                    let ones = std::iter::repeat_n(crate::shape::Dim::one(), indices.len());
                    let window: Vec<_> = ones.chain(own.shape.iter().cloned()).collect();
                    let axes: Vec<usize> = (0..indices.len()).collect();
                    let mut value = self.e.reshape(*g, window.clone())?;
                    if !is_empty {
                        let operands = [&[sum], indices.as_slice()].concat();
                        let window = TensorType::new(ty.elem, window);
                        let before = self.e.typed(Op::Extract { axes: axes.clone() }, &operands, window)?;
                        value = self.e.binary(BinaryOp::Add, before, value)?;
                    }
                    let operands = [&[sum, value], indices.as_slice()].concat();
                    self.e.op(Op::Update { axes }, &operands)?
                }
            });
        }
        match sum {
            Some(sum) => Ok(sum),
            None => self.e.splat(0.0, ty),
        }
    }

    /// A branch: the same one again, whose arms compute their values again and then their
    /// gradients.
    fn branch(
        &mut self,
        region: &Region,
        condition: Value,
        arms: &[Arm; 2],
        here: &Here,
        to: &mut Gradients,
    ) -> Res<()> {
        let gradients: Vec<Option<Value>> = region.args.iter().map(|v| self.take(to, *v)).collect();
        if gradients.iter().all(Option::is_none) {
            return Ok(());
        }
        self.e.loc = region.loc;
        let (from, blocks) = (self.e.block, [self.e.add_block(&[]).0, self.e.add_block(&[]).0]);
        let [then, otherwise] = blocks.map(|block| BlockCall { block, args: Vec::new() });
        self.e.f.terminate(from, Terminator::BrIf { condition: here.current(condition), then, otherwise });
        let mut ends = Vec::new();
        for (arm, block) in arms.iter().zip(blocks) {
            self.e.block = block;
            let mut inside = here.without(self.e.f, &region.blocks);
            self.copy(&arm.nodes, &mut inside)?;
            let mut own = Gradients::default();
            for (passed, g) in arm.passed.iter().zip(&gradients) {
                if let Some(g) = g {
                    self.add(&mut own, *passed, *g)?;
                }
            }
            self.nodes(&arm.nodes, &inside, &mut own)?;
            ends.push((self.e.block, own));
        }
        let values: BTreeSet<Value> = ends.iter().flat_map(|(_, own)| own.values.keys().copied()).collect();
        let params: BTreeSet<String> = ends.iter().flat_map(|(_, own)| own.params.keys().cloned()).collect();
        let mut passed = Vec::new();
        for (block, own) in &ends {
            self.e.block = *block;
            let mut all = Vec::new();
            for v in &values {
                all.push(match own.values.get(v) {
                    Some(g) => *g,
                    None => self.e.zeros_like(*v)?,
                });
            }
            for name in &params {
                let parts = own.params.get(name).map_or(&[][..], Vec::as_slice);
                all.push(self.sum_of_parts(name, None, parts, false)?);
            }
            passed.push(all);
        }
        let (join, args) = self.e.add_block(passed.first().map_or(&[][..], Vec::as_slice));
        for ((block, _), args) in ends.iter().zip(passed) {
            self.e.f.terminate(*block, Terminator::Br(BlockCall { block: join, args }));
        }
        self.e.block = join;
        let mut args = args.into_iter();
        for (v, g) in values.into_iter().zip(args.by_ref()) {
            self.add(to, v, g)?;
        }
        for (name, g) in params.into_iter().zip(args) {
            to.params.entry(name).or_default().push(ParamGradient::Whole(g));
        }
        Ok(())
    }

    /// Computes nodes again, at the end of the current block.
    pub(super) fn copy(&mut self, nodes: &[Node], here: &mut Here) -> Res<()> {
        for node in nodes {
            match node {
                Node::Inst(i) => self.copy_inst(*i, here)?,
                Node::Same(pairs) => {
                    for (arg, passed) in pairs {
                        here.values.insert(*arg, here.current(*passed));
                    }
                }
                Node::Branch(region, ..) | Node::Loop(region, _) | Node::Opaque(region, _) => {
                    self.copy_region(region, here)?;
                }
                Node::Around(_, _, loc) => {
                    return Err(Refusal::new(*loc, "a loop is computed again that has not ended"));
                }
            }
        }
        Ok(())
    }

    fn copy_inst(&mut self, i: Inst, here: &mut Here) -> Res<()> {
        let inst = self.e.f.inst(i).clone();
        match &inst.op {
            // An observer of the value, not of its copy.
            Op::Tap { .. } => return Ok(()),
            Op::SetState { .. } | Op::Length { .. } => {
                return Err(Refusal::new(
                    inst.loc,
                    format!("no gradient goes through a loop or branch with `{}`", inst.op),
                ));
            }
            _ => {}
        }
        if inst.result.is_some_and(|v| here.values.contains_key(&v)) {
            return Ok(());
        }
        let operands = inst.operands.iter().map(|v| here.current(*v)).collect();
        let ty = inst.result.map(|v| self.e.f.ty(v).clone());
        let made = self.e.f.push(self.e.block, inst.op, operands, ty, inst.loc);
        if let (Some(old), Some(new)) = (inst.result, made) {
            here.values.insert(old, new);
        }
        Ok(())
    }

    /// Copies the blocks of a branch or loop; the code after it goes on in a new block.
    fn copy_region(&mut self, region: &Region, here: &mut Here) -> Res<()> {
        for b in &region.blocks {
            let old = self.e.f.block(*b).args.clone();
            let (new, args) = self.e.add_block(&old);
            here.blocks.insert(*b, new);
            here.values.extend(old.into_iter().zip(args));
        }
        let (after, args) = self.e.add_block(&region.args);
        here.values.extend(region.args.iter().copied().zip(args));
        here.blocks.insert(region.enter, self.e.block);
        let mut targets = here.clone();
        targets.blocks.insert(region.exit, after);
        self.copy_jump(region.enter, &targets);
        // Values come before their uses in reverse postorder, as they do in the layout.
        for b in self.e.f.reverse_postorder() {
            if region.blocks.contains(&b) {
                self.e.block = here.block(b);
                for i in self.e.f.block(b).insts.clone() {
                    self.copy_inst(i, here)?;
                }
            }
        }
        targets.values.clone_from(&here.values);
        for b in &region.blocks {
            self.e.block = here.block(*b);
            self.copy_jump(*b, &targets);
        }
        self.e.block = after;
        Ok(())
    }

    /// Ends the current block as `b` ends.
    fn copy_jump(&mut self, b: Block, here: &Here) {
        let mut terminator = self.e.f.block(b).terminator.clone();
        for c in terminator.targets_mut() {
            c.block = here.block(c.block);
        }
        terminator.for_each_value_mut(|v| *v = here.current(*v));
        self.e.f.terminate(self.e.block, terminator);
    }
}
