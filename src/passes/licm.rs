//! licm: loop-invariant code motion: computes an operation before a loop if its operands do not
//! change in it.
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
//! The loop is natural (its header dominates the back edges) and is entered by one unconditional
//! jump, before which the instruction is moved. Its operands are defined outside of the loop, and
//! it has no effect. Either it is in the header, which is executed whenever the jump is; or it
//! cannot fail, so that hoisting is safe for a loop without iterations. These may fail: `index`,
//! `gather`, `argmax`, and slices, padding, parameters and dimensions with numbers that are only
//! known at run time, as well as any result whose extent is not one of an operand's and might be
//! negative. (A parameter indexed by the counter of an enclosing loop is known to be in range at
//! compile time.) It does not mention a dimension whose value is set in the loop (`length`). It is
//! exact.
//!
//! # Limits
//!
//! A loop with several entries, or a conditional one, stays as it is: lowering does not generate
//! such loops. Nothing is sunk below a loop. Memory is not considered: a hoisted value is live
//! throughout the loop.

use std::collections::BTreeSet;

use cranelift_entity::SecondaryMap;

use super::{Changed, Context};
use crate::ir::{Block, Cfg, Function, InstData, Loop, Op, Terminator, Type, Value, in_range};
use crate::shape::{Dim, Factor};

pub(super) fn run(f: &mut Function, ctx: &mut Context) -> Changed {
    let cfg = f.cfg();
    let (mut moved, mut literals) = (0, 0);
    // Inner loops first: a hoisted instruction may be invariant in the outer loops too.
    for l in cfg.loops() {
        if let Some(before) = preheader(f, &cfg, &l) {
            hoist(f, &cfg, &l, before, ctx, &mut moved, &mut literals);
        }
    }
    // Literals are printed inline, so a reader does not see that they moved; they are not counted.
    ctx.count("instructions hoisted", moved);
    Changed::from(moved + literals > 0)
}

/// The only block that enters the loop, if it does nothing else at its end.
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
    // In dominator order, definitions come before uses, so one walk hoists chains.
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

/// Is it a parameter of an array of layers whose indices are in range whenever the block is
/// reached, being counters of loops over that array?
fn is_there(f: &Function, cfg: &Cfg, at: Block, inst: &InstData, ctx: &Context) -> bool {
    let Op::Param { name } = &inst.op else { return false };
    let Some(counts) = ctx.arrays.get(name).filter(|counts| counts.len() == inst.operands.len()) else { return false };
    let extents = counts.iter().map(|n| Dim::from(i64::try_from(*n).unwrap_or(0)));
    inst.operands.iter().zip(extents).all(|(v, n)| in_range(f, cfg, at, *v, &n))
}

/// Can the instruction be executed where the program would not execute it, without an error?
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

/// Does an operation that may fail certainly succeed with these attributes and operands?
fn never_fails(f: &Function, inst: &InstData) -> bool {
    match &inst.op {
        Op::DimValue(d) => is_plain(d),
        // The shape rule has compared constants with the axis.
        Op::Slice { axis, start, stop } => {
            let axis = inst.operands.first().and_then(|v| f.tensor(*v)).and_then(|t| t.shape.get(*axis));
            [Some(start), Some(stop), axis].iter().all(|d| d.is_some_and(|d| d.as_const().is_some()))
        }
        Op::Pad { axis: _, low, high } => is_plain(low) && is_plain(high),
        // A constant index was checked against the extents together with the loop's own index.
        Op::Param { .. } => inst.operands.is_empty(),
        Op::Fused { body, .. } => body.insts().all(|(_, _, d)| cannot_fail(body, d)),
        // Indices are elements, taps are written, and an axis of `argmax` may be empty: such
        // operations may fail and stay.
        _ => false,
    }
}

/// Is it an integer without negative terms?
fn is_plain(d: &Dim) -> bool {
    let is_symbol = |f: &Factor| matches!(f, Factor::Symbol(_));
    d.is_provably_nonnegative() && d.is_polynomial() && d.factors().all(is_symbol)
}
