//! fuse-mask: computes a mask or bias of an attention in its kernel, if it is a formula over
//! positions.
//!
//! ```text
//! func @f(%0 "q": f32[H, S, 64], %1 "k": f32[H, S, 64], %2 "v": f32[H, S, 64], %3 "document": i32[S]) -> (f32[H, S, 64]) {
//! ^bb0:
//!   %4 = iota axis=0                      : i32[S, 1]
//!   %5 = iota axis=0                      : i32[S]
//!   %6 = sub %4, %5                       : i32[S, S]
//!   %7 = le %6, i32(256)                  : bool[S, S]
//!   %8 = reshape %3                       : i32[S, 1]
//!   %9 = eq %8, %3                        : bool[S, S]
//!   %10 = and %7, %9                      : bool[S, S]
//!   %11 = attention %0, %1, %2, scale=0.125, mask=[keep(%10, -inf), causal] : f32[H, S, 64]
//!   return %11
//! }
//! ->
//! func @f(%0 "q": f32[H, S, 64], %1 "k": f32[H, S, 64], %2 "v": f32[H, S, 64], %3 "document": i32[S]) -> (f32[H, S, 64]) {
//! ^bb0:
//!   %4 = reshape %3                       : i32[S, 1]
//!   %5 = fused attention(%6 = %4, %7 = %3, %8 = %0, %9 = %1, %10 = %2, %11 = 0.125, %12 = -inf) : f32[H, S, 64] {
//!     %13 = iota axis=0                   : i32[S, 1]
//!     %14 = iota axis=0                   : i32[S]
//!     %15 = sub %13, %14                  : i32[S, S]
//!     %16 = le %15, i32(256)              : bool[S, S]
//!     %17 = eq %6, %7                     : bool[S, S]
//!     %18 = and %16, %17                  : bool[S, S]
//!     %19 = attention %8, %9, %10, scale=%11, mask=[keep(%18, %12), causal] : f32[H, S, 64]
//!     yield %19
//!   }
//!   return %5
//! }
//! ```
//!
//! The mask, which would have an element for each query and key, is never stored: the kernel
//! computes it tile by tile. The schedule also derives which keys the formula hides from a tile of
//! queries (`tile/schedule/attention/visible.rs`): these are skipped, so a sliding window costs
//! time linear in the sequence. A remark gives the number of skipped blocks.
//!
//! # Conditions
//!
//! * The mask is a condition that keeps scores, or is added to them. It is computed by elementwise
//!   operations and `broadcast` alone, and has an element for each pair of query and key; if it
//!   counts positions, one for each query or each key is enough.
//! * It counts positions (`iota`, `causal`), or all values that it reads have one element for each
//!   query or each key (document ids), not for each pair.
//! * A value without an element for each pair is computed outside, unless it counts positions by
//!   cheap operations: bounds of these show which keys are hidden. A lookup in a table is always
//!   outside.
//! * `size`: at most 48 operations and 16 operands.
//!
//! Attentions that share a mask each compute it. The result is exact: the operations are the same,
//! in the same order on each element.
//!
//! # Limits
//!
//! It does not fuse a mask that is read from memory for each pair, directly or through operations
//! on it; nor one that contains data movement, which other passes reduce to counters and views
//! where they can.

use std::collections::{BTreeMap, BTreeSet};

use super::outline::{Index, MAX_OPERANDS, MAX_OPERATIONS, is_copied, names, outline};
use super::rewrite::remove_unused;
use super::{Changed, Condition, Context};
use crate::ir::{Block, Class, Function, FusionKind, Inst, Op, Value, mask_operands};
use crate::scalar::{BinaryOp, Change};
use crate::shape::{Dim, Elem, TensorType};

pub(super) fn run(f: &mut Function, ctx: &mut Context) -> Changed {
    let mut found: Vec<(Block, Inst, Vec<Inst>)> = Vec::new();
    for block in f.layout.clone() {
        for inst in f.block(block).insts.clone() {
            let formulas = formulas(f, inst);
            let members = members(f, inst, &formulas);
            if members.is_empty() {
                continue;
            }
            if members.len() >= MAX_OPERATIONS || reads(f, inst, &members) > MAX_OPERANDS {
                let text = "the formula of the mask would make the kernel too large";
                ctx.missed(f, f.inst(inst).loc, Condition::Size, text, Vec::new());
                continue;
            }
            let members = own_copies(f, block, inst, &formulas, &members);
            found.push((block, inst, members));
        }
    }
    let mut index = Index::new(f);
    let fused = found.len();
    for (block, inst, mut members) in found {
        index.enter(f, block);
        ctx.done(f, f.inst(inst).loc, format!("the mask is computed in the kernel: {}", names(f, &members)));
        let own: Vec<Value> = members.iter().filter_map(|i| f.inst(*i).result).collect();
        members.push(inst);
        let mut outside = f.inst(inst).operands.clone();
        outside.retain(|v| !own.contains(v));
        outline(f, &mut index, &members, FusionKind::Attention, &outside);
        index.leave(f);
    }
    if fused > 0 {
        // The original operations of the formulas, if nothing else uses them.
        remove_unused(f);
    }
    ctx.count("masks computed in their kernels", fused);
    Changed::from(fused > 0)
}

/// The number of tensors that an attention reads together with its formulas.
fn reads(f: &Function, inst: Inst, members: &[Inst]) -> usize {
    let made = |v: &Value| f.definition(*v).is_some_and(|(i, _)| members.contains(&i));
    let all = members.iter().chain([&inst]).flat_map(|i| &f.inst(*i).operands);
    all.filter(|v| !made(v) && !is_copied(f, **v)).collect::<BTreeSet<_>>().len()
}

/// The operations of some formulas of an attention, in topological order.
fn members(f: &Function, inst: Inst, formulas: &[usize]) -> Vec<Inst> {
    let (mut members, mut order) = (BTreeMap::new(), Vec::new());
    let Some(pairs) = pairs(f, inst) else { return order };
    for n in formulas {
        if let Some(v) = f.inst(inst).operands.get(*n) {
            slice(f, *v, &pairs, &mut members, &mut order);
        }
    }
    order
}

/// The masks of an attention that are computed in its kernel, as indices of its operands.
fn formulas(f: &Function, inst: Inst) -> Vec<usize> {
    let data = f.inst(inst);
    let (Op::Attention { masks }, Some(pairs)) = (&data.op, pairs(f, inst)) else { return Vec::new() };
    let is_one = |n: &usize| data.operands.get(*n).is_some_and(|v| is_formula(f, *v, &pairs));
    mask_operands(masks).into_iter().filter(is_one).collect()
}

/// The numbers of queries and keys of an attention.
fn pairs(f: &Function, attention: Inst) -> Option<[Dim; 2]> {
    let rows = |n: usize| f.tensor(*f.inst(attention).operands.get(n)?)?.shape.iter().nth_back(1).cloned();
    Some([rows(0)?, rows(1)?])
}

/// Is a value a formula over positions or vectors, with an element for each query and key?
fn is_formula(f: &Function, v: Value, pairs: &[Dim; 2]) -> bool {
    let (mut members, mut order) = (BTreeMap::new(), Vec::new());
    let is_computed = is_matrix(f, v, pairs) || is_cheap_counter(f, v, MAX_DEPTH);
    if !(is_computed && slice(f, v, pairs, &mut members, &mut order)) {
        return false;
    }
    // A formula that is too large is reported as such by the caller.
    if members.len() > MAX_OPERATIONS {
        return true;
    }
    let mut read = order.iter().flat_map(|i| &f.inst(*i).operands).filter(|x| !members.contains_key(x));
    let is_stored = |x: &Value| !counts(f, *x) && f.tensor(*x).is_some_and(|t| t.rank() > 1);
    let reads_pairs = read.clone().any(|x| is_stored(x) && is_matrix(f, *x, pairs));
    !reads_pairs || read.any(|x| counts(f, *x))
}

/// Adds the operations that compute a value in the kernel, operands first; `false` if the value
/// must be read from memory. It stops once there are more operations than a kernel may have, so
/// that a long chain is not traversed for each attention.
fn slice(f: &Function, v: Value, pairs: &[Dim; 2], members: &mut BTreeMap<Value, Inst>, order: &mut Vec<Inst>) -> bool {
    if members.contains_key(&v) {
        return true;
    }
    if members.len() > MAX_OPERATIONS {
        return false;
    }
    let Some((inst, d)) = f.definition(v) else { return false };
    let tensors = d.operands.iter().chain([&v]).all(|x| f.tensor(*x).is_some_and(|t| t.elem != Elem::I8));
    let spreads = d.op == Op::Broadcast;
    let is_number = |x: &Value| f.tensor(*x).is_some_and(|t| t.rank() == 0);
    let is_inside =
        is_matrix(f, v, pairs) || is_cheap_counter(f, v, MAX_DEPTH) || spreads && d.operands.iter().all(is_number);
    if !(d.op.info().class == Class::Elementwise || spreads) || !tensors || !is_inside {
        return false;
    }
    members.insert(v, inst);
    for x in &d.operands {
        slice(f, *x, pairs, members, order);
    }
    order.push(inst);
    true
}

/// The maximum depth to which the definition of a vector is searched.
const MAX_DEPTH: usize = 8;

/// Does a vector count positions, by cheap operations?
fn is_cheap_counter(f: &Function, v: Value, depth: usize) -> bool {
    let Some((_, d)) = f.definition(v) else { return false };
    let is_cheap = match &d.op {
        Op::Unary(op) => !op.is_function() || op.change() == Change::Steps,
        Op::Binary(op) => *op != BinaryOp::Pow,
        Op::Compare(_) | Op::Where | Op::Cast { .. } => true,
        _ => false,
    };
    is_cheap && depth > 0 && d.operands.iter().any(|x| counts(f, *x) || is_cheap_counter(f, *x, depth - 1))
}

fn counts(f: &Function, v: Value) -> bool {
    f.definition(v).is_some_and(|(_, d)| matches!(d.op, Op::Iota { .. } | Op::Causal))
}

/// Does a value have an element for each query and key?
fn is_matrix(f: &Function, v: Value, [queries, keys]: &[Dim; 2]) -> bool {
    let one = Dim::one();
    let is_long = |t: &TensorType| {
        let last = |n: usize| t.shape.iter().nth_back(n).unwrap_or(&one);
        last(0) == keys && last(1) == queries
    };
    f.tensor(v).is_some_and(is_long)
}

/// Copies the operations of an attention's formulas, since their results may be used elsewhere;
/// returns the copies in order.
fn own_copies(f: &mut Function, block: Block, inst: Inst, formulas: &[usize], members: &[Inst]) -> Vec<Inst> {
    let mut copies: BTreeMap<Value, Value> = BTreeMap::new();
    let mut made = Vec::new();
    for i in members {
        let d = f.inst(*i).clone();
        let operands = d.operands.iter().map(|v| copies.get(v).copied().unwrap_or(*v)).collect();
        let ty = d.result.map(|v| f.ty(v).clone());
        let copy = f.make_inst(d.op, operands, ty, d.loc);
        f.insert_before(block, inst, copy);
        copies.extend(d.result.zip(f.inst(copy).result));
        made.push(copy);
    }
    for n in formulas {
        if let Some(v) = f.inst_mut(inst).operands.get_mut(*n) {
            *v = copies.get(v).copied().unwrap_or(*v);
        }
    }
    made
}
