//! licm: loop-invariant code motion: what is the same in every iteration of a loop is computed before it.
//!
//! ```text
//! param "h.*.w"[12]                       : f32[64, 64]
//! param "scale"                           : f32[64]
//!
//! func @f(%0 "x": f32[S, 64]) -> (f32[S, 64]) {
//! ^bb0:
//!   br ^bb1(0, %0)
//! ^bb1(%1: index, %2: f32[S, 64]):
//!   %3 = lt %1, 12                        : bool[]
//!   br_if %3, ^bb2, ^bb3
//! ^bb2:
//!   %4 = causal                           : bool[S, S]
//!   %5 = where %4, 0.0, -inf              : f32[S, S]
//!   %6 = param "h.*.w"[%1]                : f32[64, 64]
//!   %7 = param "scale"                    : f32[64]
//!   %8 = exp %7                           : f32[64]
//!   %9 = matmul %2, %6                    : f32[S, 64]
//!   %10 = mul %9, %8                      : f32[S, 64]
//!   %11 = matmul %5, %10                  : f32[S, 64]
//!   %12 = add %1, 1                       : index
//!   br ^bb1(%12, %11)
//! ^bb3:
//!   return %2
//! }
//! ->
//! param "h.*.w"[12]                       : f32[64, 64]
//! param "scale"                           : f32[64]
//!
//! func @f(%0 "x": f32[S, 64]) -> (f32[S, 64]) {
//! ^bb0:
//!   %1 = causal                           : bool[S, S]
//!   %2 = where %1, 0.0, -inf              : f32[S, S]
//!   %3 = param "scale"                    : f32[64]
//!   %4 = exp %3                           : f32[64]
//!   br ^bb1(0, %0)
//! ^bb1(%5: index, %6: f32[S, 64]):
//!   %7 = lt %5, 12                        : bool[]
//!   br_if %7, ^bb2, ^bb3
//! ^bb2:
//!   %8 = param "h.*.w"[%5]                : f32[64, 64]
//!   %9 = matmul %6, %8                    : f32[S, 64]
//!   %10 = mul %9, %4                      : f32[S, 64]
//!   %11 = matmul %2, %10                  : f32[S, 64]
//!   %12 = add %5, 1                       : index
//!   br ^bb1(%12, %11)
//! ^bb3:
//!   return %6
//! }
//! ```
//!
//! # Conditions
//!
//! The loop is natural (its header dominates the jumps back to it) and is entered by one unconditional jump, before which
//! the instruction goes. Its operands are defined outside of the loop. It has no effect. Either it stands in the header,
//! which is executed whenever the jump is; or it cannot fail, so that nothing is lost where the loop has no iteration: no
//! `index`, `gather` or `argmax`, no slice, padding, parameter or dimension whose numbers are only known at run time, and
//! every extent of its result is one of an operand's or cannot be negative. (Of a parameter whose index is the counter of a loop
//! around this one it is known at compile time that it is in range.) It names no
//! dimension that has its value in the loop (`length`). It is exact.
//!
//! # What it does not do
//!
//! A loop that is entered from several places, or conditionally, stays as it is: lowering makes none. Nothing is
//! moved after a loop. Memory is not considered: a hoisted value is live throughout the loop.

use std::collections::BTreeSet;

use cranelift_entity::SecondaryMap;

use super::{Changed, Context};
use crate::ir::{Block, Cfg, Function, InstData, Loop, Op, Terminator, Type, Value, in_range};
use crate::shape::{Dim, Factor};

/// Runs the pass.
pub(super) fn run(f: &mut Function, ctx: &mut Context) -> Changed {
    let cfg = f.cfg();
    let (mut moved, mut literals) = (0, 0);
    // Inner loops first: what leaves them may leave the loops around them too.
    for l in cfg.loops() {
        if let Some(before) = preheader(f, &cfg, &l) {
            hoist(f, &cfg, &l, before, ctx, &mut moved, &mut literals);
        }
    }
    // Literals are printed in their users' lines; a reader does not see that they moved.
    ctx.count("instructions hoisted", moved);
    Changed::from(moved + literals > 0)
}

/// The block that enters the loop, if there is one alone and it does nothing else.
pub(super) fn preheader(f: &Function, cfg: &Cfg, l: &Loop) -> Option<Block> {
    let mut outside = cfg.predecessors(l.header).iter().filter(|p| !l.blocks.contains(p) && cfg.is_reachable(**p));
    let block = *outside.next()?;
    let alone = outside.next().is_none() && matches!(f.block(block).terminator, Terminator::Br(_));
    alone.then_some(block)
}

fn hoist(f: &mut Function, cfg: &Cfg, l: &Loop, before: Block, ctx: &Context, moved: &mut usize, literals: &mut usize) {
    let mut inside: SecondaryMap<Value, bool> = SecondaryMap::new();
    for b in &l.blocks {
        f.block(*b).args.iter().for_each(|v| inside[*v] = true);
        f.block(*b).insts.iter().filter_map(|i| f.inst(*i).result).for_each(|v| inside[v] = true);
    }
    let lengths = f.lengths_in(&l.blocks);
    // Definitions come before uses in this order, so one walk finds chains.
    for b in cfg.dominator_order().into_iter().filter(|b| l.blocks.contains(b)) {
        for i in f.block(b).insts.clone() {
            let inst = f.inst(i);
            let invariant = inst.op.info().effects.is_repeatable() && inst.operands.iter().all(|v| !inside[*v]);
            let is_named = !lengths.is_empty() && !f.dimensions_of(inst).is_disjoint(&lengths);
            if !invariant || is_named || !(b == l.header || cannot_fail(f, inst) || is_there(f, cfg, before, inst, ctx))
            {
                continue;
            }
            if let Some(v) = inst.result {
                inside[v] = false;
            }
            *(if is_literal(f, inst) { &mut *literals } else { &mut *moved }) += 1;
            f.block_mut(b).insts.retain(|j| *j != i);
            f.block_mut(before).insts.push(i);
        }
    }
}

fn is_literal(f: &Function, inst: &InstData) -> bool {
    matches!(inst.op, Op::Const(_)) && inst.result.is_some_and(|v| f.tensor(v).is_none_or(|t| t.rank() == 0))
}

/// Is it a parameter of an array of layers, and are the indices those of a layer whenever the block is reached: the counters of loops over
/// the array around it?
fn is_there(f: &Function, cfg: &Cfg, at: Block, inst: &InstData, ctx: &Context) -> bool {
    let Op::Param { name } = &inst.op else { return false };
    let Some(counts) = ctx.arrays.get(name).filter(|counts| counts.len() == inst.operands.len()) else { return false };
    let extents = counts.iter().map(|n| Dim::from(i64::try_from(*n).unwrap_or(0)));
    inst.operands.iter().zip(extents).all(|(v, n)| in_range(f, cfg, at, *v, &n))
}

/// Can the instruction be executed where the program would not, without an error?
fn cannot_fail(f: &Function, inst: &InstData) -> bool {
    let known: BTreeSet<&Dim> =
        inst.operands.iter().filter_map(|v| f.tensor(*v)).flat_map(|t| &t.shape).collect::<BTreeSet<&Dim>>();
    let safe = |d: &Dim| known.contains(d) || is_plain(d);
    let extents = match inst.result.map(|v| f.ty(v)) {
        Some(Type::Tensor(t)) => t.shape.iter().all(safe),
        Some(Type::Index) | None => true,
    };
    extents && (!inst.op.info().effects.fails || never_fails(f, inst))
}

/// Does an operation that may fail not fail with these attributes and operands?
fn never_fails(f: &Function, inst: &InstData) -> bool {
    match &inst.op {
        Op::DimValue(d) => is_plain(d),
        // The rule has compared numbers with the axis.
        Op::Slice { axis, start, stop } => {
            let axis = inst.operands.first().and_then(|v| f.tensor(*v)).and_then(|t| t.shape.get(*axis));
            [Some(start), Some(stop), axis].iter().all(|d| d.is_some_and(|d| d.as_const().is_some()))
        }
        Op::Pad { axis: _, low, high } => is_plain(low) && is_plain(high),
        // An index that is a number was checked against the extents where the loop's own index was.
        Op::Param { .. } => inst.operands.is_empty(),
        Op::Fused { body, .. } => body.insts().all(|(_, _, d)| cannot_fail(body, d)),
        // Indices are elements, taps are written, and an axis of `argmax` may be empty: such an operation stays where it is.
        _ => false,
    }
}

/// An integer that cannot be negative, by its form.
fn is_plain(d: &Dim) -> bool {
    let is_symbol = |f: &Factor| matches!(f, Factor::Symbol(_));
    d.is_provably_nonnegative() && d.is_polynomial() && d.factors().all(is_symbol)
}
