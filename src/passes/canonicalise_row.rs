//! canonicalise-row: applies elementwise operations to a one-row matmul before its result is
//! reshaped to a vector.
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
//! The language multiplies vectors, `x[t] @ w + b`; a `matmul` has rows. So a `reshape` separates
//! the matmul from its bias, which would keep the bias out of the matmul's kernel
//! (`fuse-epilogue`). In the attention of a single query, `einsum("h d, t h d -> h t", q, k)`, it
//! separates the scores from their softmax (`fuse-attention`).
//!
//! # Conditions
//!
//! * The operation is elementwise, or a softmax. Its result has the shape of the vector, and the
//!   `reshape` only drops axes of 1 before the last axis. The operand of the `reshape` is a matmul,
//!   or such an operation on one.
//! * Another operand that is such a `reshape` from the same shape is replaced by its source too. An
//!   operand that extends beyond a dropped axis of 1 gets that axis back; the others broadcast to
//!   the longer shape as they do to the shorter one.
//! * A `reshape` that restores the dropped axes of such a row is replaced by the row.
//!
//! It is exact: the operations are the same on each element.
//!
//! # Limits
//!
//! Axes of 1 after the last axis (`f32[32, 1]` as `f32[32]`: a matrix by a vector) stay: there the
//! bias belongs to the rows of the matmul, not to its columns.

use cranelift_entity::SecondaryMap;

use super::rewrite::{Cursor, become_op, made_by, remove_unused};
use super::{Changed, Context};
use crate::ir::{Block, Class, Function, Inst, Op, Value};
use crate::shape::{Dim, TensorType};

pub(super) fn run(f: &mut Function, ctx: &mut Context) -> Changed {
    let mut changed = 0;
    // Results of matmuls, and of elementwise operations and softmaxes on them.
    let mut products: SecondaryMap<Value, bool> = SecondaryMap::new();
    // Reshapes that restore the axes of a row, with that row.
    let mut same: SecondaryMap<Value, Option<Value>> = SecondaryMap::new();
    for (block, inst) in f.insts().map(|(b, i, _)| (b, i)).collect::<Vec<_>>() {
        if let Some((restored, row)) = restored(f, inst, &products) {
            same[restored] = same[row].or(Some(row));
            products[restored] = true;
            changed += 1;
            continue;
        }
        // An error of a rule means that the rewrite does not fit; the function is left unchanged.
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

/// Can this operation be applied to the row instead of the vector?
fn moves(op: &Op) -> bool {
    op.info().class == Class::Elementwise || matches!(op, Op::Softmax { .. } | Op::LogSoftmax { .. })
}

fn shape(f: &Function, v: Value) -> Option<&[Dim]> {
    f.tensor(v).map(|t| t.shape.as_slice())
}

/// For a `reshape` that restores the axes of a row: its result, and the row.
fn restored(f: &Function, inst: Inst, products: &SecondaryMap<Value, bool>) -> Option<(Value, Value)> {
    let d = f.inst(inst);
    let (Op::Reshape, [dropped], result) = (&d.op, d.operands.as_slice(), d.result?) else { return None };
    let (_, Op::Reshape, [row]) = made_by(f, *dropped)? else { return None };
    (products[*row] && f.ty(*row) == f.ty(result)).then_some((result, *row))
}

/// For each axis of `to`, its index in `from`, if `from` only has additional axes of 1 before its
/// last axis.
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

/// Applies an operation before the `reshape` of an operand; returns the new result.
fn rewrite(
    f: &mut Function,
    block: Block,
    inst: Inst,
    products: &SecondaryMap<Value, bool>,
) -> Result<Option<Value>, String> {
    let d = f.inst(inst).clone();
    let result = d.result.and_then(|v| f.tensor(v)).cloned();
    let (true, Some(result)) = (moves(&d.op), result) else { return Ok(None) };
    // The source of a reshape that drops axes of 1.
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
        return Err("a rule infers another shape".into());
    }
    become_op(f, inst, Op::Reshape, vec![new]);
    Ok(Some(new))
}

/// Inserts axes of 1 into an operand, so that it broadcasts to the longer shape of `rank` axes.
/// `kept` maps the axes of the shorter shape to it; the operand's axes are the last of these.
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
