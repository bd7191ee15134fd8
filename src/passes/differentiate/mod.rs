//! differentiate: replaces `grad` by the operations that compute it, in reverse mode.
//!
//! ```text
//! func @f(%0 "x": f32[S, 8], %1 "w": f32[8, 4]) -> (f32[8, 4]) {
//! ^bb0:
//!   %2 = matmul %0, %1                    : f32[S, 4]
//!   %3 = tanh %2                          : f32[S, 4]
//!   %4 = reduce_sum %3, axes=[0, 1]       : f32[]
//!   %5 = grad %4, %1                      : f32[8, 4]
//!   return %5
//! }
//! ->
//! func @f(%0 "x": f32[S, 8], %1 "w": f32[8, 4]) -> (f32[8, 4]) {
//! ^bb0:
//!   %2 = matmul %0, %1                    : f32[S, 4]
//!   %3 = tanh %2                          : f32[S, 4]
//!   %4 = reshape 1.0                      : f32[1, 1]
//!   %5 = broadcast %4                     : f32[S, 4]
//!   %6 = mul %3, %3                       : f32[S, 4]
//!   %7 = sub 1.0, %6                      : f32[S, 4]
//!   %8 = mul %5, %7                       : f32[S, 4]
//!   %9 = transpose %0, perm=[1, 0]        : f32[8, S]
//!   %10 = matmul %9, %8                   : f32[8, 4]
//!   return %10
//! }
//! ```
//!
//! # Method
//!
//! The operations before the `grad` are read backwards (`structure`, `sweep`). The loss has the
//! gradient 1. Each operation passes the gradient of its result on to its operands (`rules`,
//! `elementwise`, `movement`); a value with several uses adds up the gradients that they pass on.
//! Only values on a path from a variable to the loss take part (`reach`).
//!
//! * A branch becomes a second branch on the same condition. Its arms compute their values again.
//! * A counted loop becomes a second loop, from the last iteration to the first (`loops`). The
//!   first one stacks the initial values of each iteration, and the results of its matmuls, except
//!   scores of attention; the second computes the rest again. Nothing is stacked unless
//!   a derivative needs it.
//! * Gradients of a parameter in an array of layers are written into one tensor, layer by layer.
//!
//! Gradients of the same loss in one block share a sweep. A gradient of a gradient is the same pass
//! on the result of the first sweep.
//!
//! # Conventions
//!
//! A gradient of zero contributes zero, whatever the derivative: `where(x > 0, log(x), 0)` has the
//! gradient 0 where `x` is 0, not NaN. (Matmuls compute with infinities as they are.) Equal
//! elements share the gradient of their maximum. `relu` passes nothing on at 0, nor does a softmax
//! in a row without a finite score. Casts pass gradients on between floats; `floor` and other step
//! functions pass nothing on. The values of states are constants.
//!
//! # Order
//!
//! It is the first pass: a gradient is taken with respect to one value, and a pass that merges
//! equal values would change which. So it sees neither fused operations nor folded constants; the
//! passes behind it remove what is redundant in its result.
//!
//! # Limits
//!
//! A `while`, a loop with a `break`, and one between computed values are refused if a gradient
//! would have to go through them; so is a gradient through the earlier iterations of a loop around
//! it.

mod elementwise;
mod emit;
mod loops;
mod movement;
mod reach;
mod rules;
mod site;
mod structure;
mod sweep;
mod weights;

use std::collections::BTreeMap;

use cranelift_entity::SecondaryMap;

use super::remarks::Refusal;
use super::{Changed, Context};
use crate::ir::{Block, Function, Inst, Op, Terminator, Type, Value, ValueDef};
use crate::ssa::remove_dead;
use emit::Emitter;
use reach::{Reach, Variables, ancestors};
use sweep::{Gradients, Here, Sweep};
use weights::Weights;

type Res<T> = Result<T, Refusal>;

pub(super) fn run(f: &mut Function, ctx: &mut Context) -> Changed {
    let mut sweeps = 0;
    while let Some(group) = next(f) {
        if let Err(refusal) = replace(f, &group) {
            ctx.refuse(f, refusal);
            return Changed::from(sweeps > 0);
        }
        sweeps += 1;
    }
    let stopped = forget_stops(f);
    if sweeps + stopped > 0 {
        remove_dead(&mut **f);
    }
    ctx.count("reverse sweeps", sweeps);
    Changed::from(sweeps + stopped > 0)
}

/// Has a function anything to differentiate?
pub(super) fn is_needed(f: &Function) -> bool {
    f.insts().any(|(_, _, d)| matches!(d.op, Op::Grad { .. } | Op::Stop))
}

/// Gradients of one loss, in one block.
struct Group {
    block: Block,
    /// The first of them comes first.
    grads: Vec<Inst>,
}

/// The first gradients of the function, which depend on no others.
fn next(f: &Function) -> Option<Group> {
    let is_grad = |i: &&Inst| matches!(f.inst(**i).op, Op::Grad { .. });
    for block in f.reverse_postorder() {
        let insts = &f.block(block).insts;
        let Some(first) = insts.iter().find(is_grad) else { continue };
        let loss = *f.inst(*first).operands.first()?;
        let grads = insts.iter().filter(is_grad).filter(|i| f.inst(**i).operands.first() == Some(&loss));
        return Some(Group { block, grads: grads.copied().collect() });
    }
    None
}

fn replace(f: &mut Function, group: &Group) -> Res<()> {
    let first = group.grads[0];
    let mut variables = Variables::default();
    let mut stacked = BTreeMap::new();
    for i in &group.grads {
        let (x, op) = (f.inst(*i).operands.get(1).copied(), f.inst(*i).op.clone());
        match (x, op) {
            (Some(x), _) => _ = variables.values.insert(x),
            (None, Op::Grad { of }) => {
                let ty = f.inst(*i).result.and_then(|v| f.tensor(v)).cloned();
                stacked.extend(ty.map(|ty| (of.clone(), ty)));
                variables.params.insert(of);
            }
            (None, _) => {}
        }
    }
    let after: Vec<Value> = variables.values.iter().copied().collect();
    for x in after {
        let moved = after_its_loop(f, group.block, x);
        if moved != x {
            variables.values.remove(&x);
            variables.values.insert(moved);
        }
    }
    let around: Vec<Block> =
        f.cfg().loops().iter().filter(|l| l.blocks.contains(&group.block)).map(|l| l.header).collect();
    for x in &variables.values {
        let is_one = match f.def(*x) {
            ValueDef::Result(i) => matches!(f.inst(i).op, Op::State { .. }),
            ValueDef::Arg(block, _) => around.contains(&block),
            ValueDef::Param => false,
        };
        if let Some(ty) = f.tensor(*x).filter(|_| is_one) {
            variables.whole.insert(*x);
            stacked.insert(slices_of(*x), ty.clone());
        }
    }
    let loss = f.inst(first).operands[0];
    let nodes = structure::before(f, group.block, first)?;
    let reach = Reach::new(f, &nodes, &variables);
    if !reach.active[loss] {
        let grad = f.inst(first).clone();
        return Err(unreached(f, &grad, &reach, loss));
    }
    let active = reach.active.clone();
    let stop = reach.stops(f, loss);
    let again = is_used_by_another(f, group);

    // The rest of the block moves behind the sweep.
    let at = f.block(group.block).insts.iter().position(|i| *i == first).unwrap_or_default();
    let rest = f.block_mut(group.block).insts.split_off(at);
    let end = std::mem::replace(&mut f.block_mut(group.block).terminator, Terminator::Return(Vec::new()));
    let loc = f.inst(first).loc;
    let weights = Weights::of_attention(f);
    let e = Emitter { f, block: group.block, loc, made: Vec::new() };
    let mut sweep = Sweep { e, active, variables, stacked, weights, results: BTreeMap::new(), again };
    let swept = sweep_back(&mut sweep, &nodes, loss, &group.grads, stop);
    let Sweep { e: Emitter { block, made, .. }, .. } = sweep;
    f.block_mut(block).insts.extend(rest);
    f.terminate(block, end);
    in_order(f, group.block, &made);
    let mut by: SecondaryMap<Value, Option<Value>> = SecondaryMap::new();
    for (i, g) in group.grads.iter().zip(swept?) {
        if let Some(v) = f.inst(*i).result {
            by[v] = Some(g);
        }
    }
    f.replace_uses(&by);
    f.remove_insts(|i, _| group.grads.contains(&i));
    Ok(())
}

/// The name under which gradients of slices of a variable are collected, as for the parameter of
/// an array of layers.
fn slices_of(variable: Value) -> String {
    format!("slices of {variable}")
}

/// The gradients, in the order of the instructions.
fn sweep_back(
    s: &mut Sweep<'_>,
    nodes: &[structure::Node],
    loss: Value,
    grads: &[Inst],
    stop: Option<(crate::ir::Loc, &'static str)>,
) -> Res<Vec<Value>> {
    let mut all = Gradients::default();
    let ty = s.e.ty(loss)?;
    let one = s.e.splat(1.0, ty)?;
    s.add(&mut all, loss, one)?;
    s.nodes(nodes, &Here::default(), &mut all)?;
    for v in s.e.f.block(s.e.f.entry()).args.clone() {
        s.take(&mut all, v);
    }
    let mut out = Vec::new();
    for i in grads {
        let grad = s.e.f.inst(*i).clone();
        s.e.loc = grad.loc;
        let Op::Grad { of } = &grad.op else { continue };
        let made = match grad.operands.get(1) {
            // The gradients of the whole value, and of slices of it.
            Some(x) => match (s.results.get(x).copied(), all.params.remove(&slices_of(*x))) {
                (whole, None) => whole,
                (whole, Some(parts)) => Some(s.sum_of_parts(&slices_of(*x), whole, &parts, false)?),
            },
            None => match all.params.remove(of) {
                Some(parts) => Some(s.sum_of_parts(of, None, &parts, false)?),
                None => None,
            },
        };
        match made {
            Some(g) => out.push(g),
            None => return Err(no_gradient(&grad, of, stop)),
        }
    }
    Ok(out)
}

fn unreached(f: &Function, grad: &crate::ir::InstData, reach: &Reach<'_>, loss: Value) -> Refusal {
    let of = match &grad.op {
        Op::Grad { of } => of.as_str(),
        _ => "",
    };
    no_gradient(grad, of, reach.stops(f, loss))
}

fn no_gradient(grad: &crate::ir::InstData, of: &str, stop: Option<(crate::ir::Loc, &'static str)>) -> Refusal {
    let name = if of.is_empty() { "the variable".to_string() } else { format!("`{of}`") };
    let mut refusal = Refusal::new(grad.loc, format!("no gradient reaches {name}: the loss does not depend on it"));
    if let Some((loc, op)) = stop {
        refusal.message = format!("no gradient reaches {name}");
        refusal.notes.push((loc, format!("it stops at `{op}`, which passes none on")));
    }
    refusal
}

/// Is a gradient of the group used by the loss of another `grad`?
fn is_used_by_another(f: &Function, group: &Group) -> bool {
    let others = f.insts().filter(|(_, i, d)| matches!(d.op, Op::Grad { .. }) && !group.grads.contains(i));
    let losses: Vec<Value> = others.filter_map(|(_, _, d)| d.operands.first().copied()).collect();
    let needed = ancestors(f, losses, |_| true);
    group.grads.iter().any(|i| f.inst(*i).result.is_some_and(|v| needed[v]))
}

/// A value of the header of a loop that has ended, as an argument of the block after it: earlier
/// iterations have other values.
fn after_its_loop(f: &mut Function, block: Block, x: Value) -> Value {
    let home = match f.def(x) {
        ValueDef::Arg(home, _) => home,
        ValueDef::Result(i) => match f.block_of(i) {
            Some(home) => home,
            None => return x,
        },
        ValueDef::Param => return x,
    };
    let cfg = f.cfg();
    let Some(l) = cfg.loops().into_iter().find(|l| l.header == home && !l.blocks.contains(&block)) else { return x };
    let targets: Vec<Block> = f.block(home).terminator.targets().iter().map(|c| c.block).collect();
    let Some(exit) = targets.into_iter().find(|b| !l.blocks.contains(b)) else { return x };
    if cfg.predecessors(exit).len() > 1 {
        return x;
    }
    let ty: Type = f.ty(x).clone();
    let moved = f.add_block_arg(exit, ty);
    for c in f.block_mut(home).terminator.targets_mut() {
        if c.block == exit {
            c.args.push(x);
        }
    }
    let outside: Vec<Block> = f.layout.iter().copied().filter(|b| !l.blocks.contains(b)).collect();
    let mut by: SecondaryMap<Value, Option<Value>> = SecondaryMap::new();
    by[x] = Some(moved);
    f.replace_uses_in(&outside, &by);
    moved
}

/// Moves the added blocks behind the one that they were added to, each after its dominators.
fn in_order(f: &mut Function, block: Block, made: &[Block]) {
    let order: Vec<Block> = f.reverse_postorder().into_iter().filter(|b| made.contains(b)).collect();
    f.layout.retain(|b| !made.contains(b));
    let at = f.layout.iter().position(|b| *b == block).map_or(f.layout.len(), |at| at + 1);
    f.layout.splice(at..at, order);
}

/// Replaces each `stop` by its operand.
fn forget_stops(f: &mut Function) -> usize {
    let stops: Vec<Inst> = f.insts().filter(|(_, _, d)| d.op == Op::Stop).map(|(_, i, _)| i).collect();
    let mut by: SecondaryMap<Value, Option<Value>> = SecondaryMap::new();
    for i in &stops {
        if let (Some(v), Some(x)) = (f.inst(*i).result, f.inst(*i).operands.first()) {
            by[v] = Some(*x);
        }
    }
    if !stops.is_empty() {
        f.replace_uses(&by);
        f.remove_insts(|i, _| stops.contains(&i));
    }
    stops.len()
}
