//! canonicalise-row: what is done to a product of one row is done before the row becomes a vector.
//!
//! ```text
//! func @f(%0 "x": f32[64], %1 "w": f32[64, 32], %2 "b": f32[32]) -> (f32[32]) {
//! ^bb0:
//!   %3 = reshape %0                       : f32[1, 64]
//!   %4 = matmul %3, %1                    : f32[1, 32]
//!   %5 = reshape %4                       : f32[32]
//!   %6 = add %5, %2                       : f32[32]
//!   %7 = tanh %6                          : f32[32]
//!   return %7
//! }
//! ->
//! func @f(%0 "x": f32[64], %1 "w": f32[64, 32], %2 "b": f32[32]) -> (f32[32]) {
//! ^bb0:
//!   %3 = reshape %0                       : f32[1, 64]
//!   %4 = matmul %3, %1                    : f32[1, 32]
//!   %5 = add %4, %2                       : f32[1, 32]
//!   %6 = tanh %5                          : f32[1, 32]
//!   %7 = reshape %6                       : f32[32]
//!   return %7
//! }
//! ```
//!
//! The language multiplies vectors, `x[t] @ w + b`; a `matmul` has rows. Between the product and its bias then stands a `reshape`,
//! which would keep the bias out of the product's kernel (`fuse-epilogue`). In the attention of one query,
//! `einsum("h d, t h d -> h t", q, k)`, it stands between the scores and their softmax (`fuse-attention`).
//!
//! # Conditions
//!
//! * The operation is elementwise, or a softmax; its result has the shape of the vector, and what the vector was made of has
//!   that shape with axes of 1 in front of the last one: a product, or such work on one.
//! * Other operands that were made so of the same shape are taken without their `reshape` too. Of the others, one that has an axis
//!   before an axis of 1 that was dropped gets this axis of 1; they are then broadcast to the longer shape as to the shorter one.
//! * A `reshape` of such a row that gives it back the axes which another one dropped is the row.
//!
//! It is exact: the operations are the same on each element.
//!
//! # What it does not do
//!
//! Axes of 1 behind all others (`f32[32, 1]` as `f32[32]`: a matrix by a vector) stay: the bias of a matrix by a vector is one of
//! its rows, not of its columns.

use cranelift_entity::SecondaryMap;

use super::rewrite::{Cursor, become_op, made_by, remove_unused};
use super::{Changed, Context};
use crate::ir::{Block, Class, Function, Inst, Op, Value};
use crate::shape::{Dim, TensorType};

/// Runs the pass.
pub(super) fn run(f: &mut Function, ctx: &mut Context) -> Changed {
    let mut changed = 0;
    // Products, and elementwise work and softmaxes of them.
    let mut products: SecondaryMap<Value, bool> = SecondaryMap::new();
    // Rows that got their axes back, and what they are.
    let mut same: SecondaryMap<Value, Option<Value>> = SecondaryMap::new();
    for (block, inst) in f.insts().map(|(b, i, _)| (b, i)).collect::<Vec<_>>() {
        if let Some((restored, row)) = restored(f, inst, &products) {
            same[restored] = same[row].or(Some(row));
            products[restored] = true;
            changed += 1;
            continue;
        }
        // A rule's error means that the rewrite does not fit; the program stays.
        if let Ok(Some(row)) = rewrite(f, block, inst, &products) {
            products[row] = true;
            changed += 1;
            continue;
        }
        let d = f.inst(inst);
        let Some(v) = d.result else { continue };
        let of_product = |x: &Value| products[*x] && shape(f, *x) == shape(f, v);
        products[v] = d.op == Op::Matmul || (moves(&d.op) && d.operands.iter().any(of_product));
    }
    if changed > 0 {
        f.replace_uses(&same);
        remove_unused(f);
    }
    ctx.count("operations on rows", changed);
    Changed::from(changed > 0)
}

/// Is it an operation that this pass does to the row?
fn moves(op: &Op) -> bool {
    op.info().class == Class::Elementwise || matches!(op, Op::Softmax { .. } | Op::LogSoftmax { .. })
}

fn shape(f: &Function, v: Value) -> Option<&[Dim]> {
    f.tensor(v).map(|t| t.shape.as_slice())
}

/// A value that is the row from which a `reshape` dropped axes, and that row.
fn restored(f: &Function, inst: Inst, products: &SecondaryMap<Value, bool>) -> Option<(Value, Value)> {
    let d = f.inst(inst);
    let (Op::Reshape, [dropped], result) = (&d.op, d.operands.as_slice(), d.result?) else { return None };
    let (_, Op::Reshape, [row]) = made_by(f, *dropped)? else { return None };
    (products[*row] && f.ty(*row) == f.ty(result)).then_some((result, *row))
}

/// Where the axes of `to` are in `from`, which has axes of 1 more, all of them before its last axis; none if it is not so.
fn kept(from: &[Dim], to: &[Dim]) -> Option<Vec<usize>> {
    let mut kept = Vec::with_capacity(to.len());
    let mut left = to.iter().rev().peekable();
    for (at, d) in from.iter().enumerate().rev() {
        if left.next_if(|own| *own == d).is_some() {
            kept.push(at);
        } else if kept.is_empty() || d.as_const() != Some(1) {
            return None;
        }
    }
    kept.reverse();
    (left.next().is_none() && kept.len() < from.len()).then_some(kept)
}

/// Does an operation before the `reshape` of an operand; the new result, if it is one of these.
fn rewrite(
    f: &mut Function,
    block: Block,
    inst: Inst,
    products: &SecondaryMap<Value, bool>,
) -> Result<Option<Value>, String> {
    let d = f.inst(inst).clone();
    let result = d.result.and_then(|v| f.tensor(v)).cloned();
    let (true, Some(result)) = (moves(&d.op), result) else { return Ok(None) };
    // An operand before axes of 1 were dropped.
    let longer = |f: &Function, v: Value| -> Option<Value> {
        let (_, Op::Reshape, [x]) = made_by(f, v)? else { return None };
        (shape(f, v)? == result.shape.as_slice()).then_some(*x)
    };
    let found = d.operands.iter().find_map(|v| {
        let x = longer(f, *v).filter(|x| products[*x])?;
        let from = shape(f, x)?.to_vec();
        Some((kept(&from, &result.shape)?, from))
    });
    let Some((kept, from)) = found else { return Ok(None) };
    let cursor = Cursor::before(f, block, inst);
    let mut operands = Vec::with_capacity(d.operands.len());
    for v in &d.operands {
        operands.push(match longer(f, *v).filter(|x| shape(f, *x) == Some(from.as_slice())) {
            Some(x) => x,
            None => with_ones(f, cursor, *v, &kept, from.len())?,
        });
    }
    let op = match d.op {
        Op::Softmax { axis } => Op::Softmax { axis: *kept.get(axis).ok_or("no such axis")? },
        Op::LogSoftmax { axis } => Op::LogSoftmax { axis: *kept.get(axis).ok_or("no such axis")? },
        op => op,
    };
    let declared = matches!(op, Op::Cast { .. }).then(|| TensorType::new(result.elem, from.clone()));
    let new = cursor.insert_as(f, op, operands, declared)?;
    if shape(f, new) != Some(from.as_slice()) {
        return Err("a rule gives another shape".into());
    }
    become_op(f, inst, Op::Reshape, vec![new]);
    Ok(Some(new))
}

/// An operand that is broadcast from its last axis on, with the axes of 1 that stand behind its first one in a shape of `rank`
/// axes, of which its own are the last of `kept`.
fn with_ones(f: &mut Function, cursor: Cursor, v: Value, kept: &[usize], rank: usize) -> Result<Value, String> {
    let Some(t) = f.tensor(v).cloned() else { return Ok(v) };
    let own = kept.get(kept.len().saturating_sub(t.rank())..).unwrap_or_default();
    let Some(first) = own.first() else { return Ok(v) };
    if rank - first == own.len() {
        return Ok(v);
    }
    let mut shape = vec![Dim::one(); rank - first];
    for (at, d) in own.iter().zip(&t.shape) {
        shape[at - first] = d.clone();
    }
    cursor.insert_as(f, Op::Reshape, vec![v], Some(TensorType::new(t.elem, shape)))
}
