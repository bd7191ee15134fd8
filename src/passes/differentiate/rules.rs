//! The gradient of each operation: how it goes from the result to the operands.
//!
//! In: an instruction, the values that its operands and result have here, and the gradient of the
//! result. Out: the gradients of the operands that have one. The `match` lists every operation: a
//! new one is not compiled until it says its own gradient.

use super::Res;
use super::elementwise::{self, Applied};
use super::emit::Emitter;
use super::movement;
use super::site::{OperandGradients, Site};
use crate::ir::{Op, Value};
use crate::scalar::{BinaryOp, CmpOp, ReduceKind, UnaryOp};
use crate::shape::{Dim, Elem, TensorType};

#[warn(clippy::wildcard_enum_match_arm, reason = "a new operation is met by an error here")]
pub(super) fn parts(e: &mut Emitter<'_>, s: &Site<'_>) -> Res<OperandGradients> {
    let g = s.gradient;
    let first = |v: Value| Ok(vec![(0, v)]);
    match &s.inst.op {
        Op::Unary(op) => {
            let applied = Applied { x: s.operands[0], y: None, z: s.result, gradient: g, again: s.again };
            Ok(elementwise::product(e, &applied, &op.slope())?.map(|v| (0, v)).into_iter().collect())
        }
        Op::Binary(op) => binary(e, s, *op),
        Op::Where => select(e, s),
        Op::Cast { .. } => {
            let elem = e.ty(s.operands[0])?.elem;
            first(e.cast(g, elem)?)
        }
        Op::Reshape => {
            let shape = e.ty(s.operands[0])?.shape;
            first(e.reshape(g, shape)?)
        }
        Op::Transpose { perm } => {
            let mut back = vec![0; perm.len()];
            perm.iter().enumerate().for_each(|(i, p)| back[*p] = i);
            first(e.transpose(g, back)?)
        }
        Op::Broadcast => {
            let shape = e.ty(s.operands[0])?.shape;
            first(e.sum_to(g, &shape)?)
        }
        Op::Slice { axis, start, stop } => {
            let n = e.ty(s.operands[0])?.shape[*axis].clone();
            let zero = e.number(0.0, e.ty(g)?.elem)?;
            first(e.op(Op::Pad { axis: *axis, low: start.clone(), high: n.sub(stop) }, &[g, zero])?)
        }
        Op::Concat { axis } => movement::concat(e, s, *axis),
        Op::Pad { axis, low, high } => movement::pad(e, s, *axis, (low, high)),
        Op::Index { axis } => {
            let x = e.ty(s.operands[0])?;
            let mut shape = x.shape.clone();
            if shape[*axis] == Dim::zero() {
                // The index is out of range: no call comes here.
                return first(e.splat(0.0, x)?);
            }
            shape[*axis] = Dim::one();
            let (g, zeros) = (e.reshape(g, shape)?, e.splat(0.0, x)?);
            first(e.op(Op::Update { axes: vec![*axis] }, &[zeros, g, s.operands[1]])?)
        }
        Op::Extract { axes } => {
            let zeros = e.zeros_like(s.operands[0])?;
            let operands = [&[zeros, g], &s.operands[1..]].concat();
            first(e.op(Op::Update { axes: axes.clone() }, &operands)?)
        }
        Op::Update { axes } => movement::update(e, s, axes),
        Op::Windows { axis, stride } => movement::windows(e, s, *axis, *stride),
        Op::Gather { axis, batch } => movement::gather(e, s, (*axis, *batch)),
        Op::Scatter { axis, add } => movement::scatter(e, s, *axis, *add),
        Op::Reduce { kind, axes, keep: _ } => reduce(e, s, *kind, axes),
        Op::Softmax { axis } => in_f32(e, s, |e, [_, y, g]| softmax(e, y, g, s.row_sums, *axis)),
        Op::LogSoftmax { axis } => in_f32(e, s, |e, [_, y, g]| log_softmax(e, y, g, *axis)),
        Op::Cumsum { axis } => {
            let flipped = movement::flip(e, g, *axis)?;
            let sums = e.op(Op::Cumsum { axis: *axis }, &[flipped])?;
            first(movement::flip(e, sums, *axis)?)
        }
        Op::Matmul => matmul(e, s),
        Op::Attention { .. } | Op::Fused { .. } | Op::Grad { .. } => {
            e.refuse(format!("no gradient goes through `{}`: it is taken before operations are fused", s.inst.op))
        }
        // Sources: a variable among them has its gradient now.
        Op::Const(_) | Op::DimValue(_) | Op::Iota { .. } | Op::Causal | Op::Param { .. } | Op::State { .. } => {
            Ok(Vec::new())
        }
        // Nothing goes through: by definition, or because results are no floats, or without result.
        Op::Stop | Op::Compare(_) | Op::Argsort { .. } | Op::SetState { .. } | Op::Length { .. } | Op::Tap { .. } => {
            Ok(Vec::new())
        }
    }
}

fn binary(e: &mut Emitter<'_>, s: &Site<'_>, op: BinaryOp) -> Res<OperandGradients> {
    let (x, y) = (s.operands[0], s.operands[1]);
    let applied = Applied { x, y: Some(y), z: s.result, gradient: s.gradient, again: s.again };
    let mut parts = Vec::new();
    for (k, slope) in op.slopes().iter().enumerate() {
        if !s.wanted[k] {
            continue;
        }
        if let Some(v) = elementwise::product(e, &applied, slope)? {
            let shape = e.ty(s.operands[k])?.shape;
            parts.push((k, e.sum_to(v, &shape)?));
        }
    }
    Ok(parts)
}

/// A hidden element has a gradient of zero, not the product of a zero with anything.
fn select(e: &mut Emitter<'_>, s: &Site<'_>) -> Res<OperandGradients> {
    let zero = e.number(0.0, e.ty(s.gradient)?.elem)?;
    let mut parts = Vec::new();
    for (k, [a, b]) in [(1, [s.gradient, zero]), (2, [zero, s.gradient])] {
        if s.wanted[k] {
            let part = e.select(s.operands[0], a, b)?;
            let shape = e.ty(s.operands[k])?.shape;
            parts.push((k, e.sum_to(part, &shape)?));
        }
    }
    Ok(parts)
}

/// The gradient of the first operand from operand, result and the result's gradient, computed in
/// `f32`.
fn in_f32(
    e: &mut Emitter<'_>,
    s: &Site<'_>,
    make: impl FnOnce(&mut Emitter<'_>, [Value; 3]) -> Res<Value>,
) -> Res<OperandGradients> {
    let elem = e.ty(s.operands[0])?.elem;
    let mut values = [s.operands[0], s.result, s.gradient];
    for v in &mut values {
        *v = e.cast(*v, Elem::F32)?;
    }
    let made = make(e, values)?;
    Ok(vec![(0, e.cast(made, elem)?)])
}

fn reduce(e: &mut Emitter<'_>, s: &Site<'_>, kind: ReduceKind, axes: &[usize]) -> Res<OperandGradients> {
    let x = e.ty(s.operands[0])?;
    match kind {
        ReduceKind::Sum => {
            let g = e.kept(s.gradient, &x, axes)?;
            Ok(vec![(0, e.broadcast(g, x.shape)?)])
        }
        ReduceKind::Mean => in_f32(e, s, |e, [_, _, g]| {
            let count = Dim::product(axes.iter().map(|a| &x.shape[*a]));
            let n = match count.as_const() {
                Some(n) => e.number(n as f64, Elem::F32)?,
                None => e.typed(Op::DimValue(count), &[], TensorType::scalar(Elem::F32))?,
            };
            let g = e.binary(BinaryOp::Div, g, n)?;
            let g = e.kept(g, &x, axes)?;
            e.broadcast(g, x.shape.clone())
        }),
        // Equal elements share the gradient.
        ReduceKind::Max | ReduceKind::Min => in_f32(e, s, |e, [v, y, g]| {
            let (y, g) = (e.kept(y, &x, axes)?, e.kept(g, &x, axes)?);
            let chosen = e.compare(CmpOp::Eq, v, y)?;
            let ones = e.cast(chosen, Elem::F32)?;
            let count = e.sum(ones, axes.to_vec(), true)?;
            let share = e.binary(BinaryOp::Div, g, count)?;
            let zero = e.number(0.0, Elem::F32)?;
            e.select(chosen, share, zero)
        }),
        ReduceKind::LogSumExp if axes.len() == 1 => in_f32(e, s, |e, [v, _, g]| {
            let g = e.kept(g, &x, axes)?;
            let weights = e.op(Op::Softmax { axis: axes[0] }, &[v])?;
            e.binary(BinaryOp::Mul, g, weights)
        }),
        // The softmax: nothing in a row whose elements are all `-inf`.
        ReduceKind::LogSumExp => in_f32(e, s, |e, [v, y, g]| {
            let (y, g) = (e.kept(y, &x, axes)?, e.kept(g, &x, axes)?);
            let (bottom, zero) = (e.number(f64::NEG_INFINITY, Elem::F32)?, e.number(0.0, Elem::F32)?);
            let hidden = e.compare(CmpOp::Eq, y, bottom)?;
            let y = e.select(hidden, zero, y)?;
            let centred = e.binary(BinaryOp::Sub, v, y)?;
            let weights = e.unary(UnaryOp::Exp, centred)?;
            e.binary(BinaryOp::Mul, g, weights)
        }),
        ReduceKind::All | ReduceKind::Any | ReduceKind::ArgMax => Ok(Vec::new()),
    }
}

/// `y * (g - sum(g * y))`
fn softmax(e: &mut Emitter<'_>, y: Value, g: Value, sums: Option<Value>, axis: usize) -> Res<Value> {
    let sum = match sums {
        Some(sum) => sum,
        None => {
            let weighted = e.binary(BinaryOp::Mul, g, y)?;
            e.sum(weighted, vec![axis], true)?
        }
    };
    let centred = e.binary(BinaryOp::Sub, g, sum)?;
    e.binary(BinaryOp::Mul, y, centred)
}

/// `g - exp(y) * sum(g)`; 0 in a row whose elements are all `-inf`.
fn log_softmax(e: &mut Emitter<'_>, y: Value, g: Value, axis: usize) -> Res<Value> {
    let sum = e.sum(g, vec![axis], true)?;
    let weights = e.unary(UnaryOp::Exp, y)?;
    let shared = e.binary(BinaryOp::Mul, weights, sum)?;
    let made = e.binary(BinaryOp::Sub, g, shared)?;
    let greatest = e.op(Op::Reduce { kind: ReduceKind::Max, axes: vec![axis], keep: true }, &[y])?;
    let (bottom, zero) = (e.number(f64::NEG_INFINITY, Elem::F32)?, e.number(0.0, Elem::F32)?);
    let hidden = e.compare(CmpOp::Eq, greatest, bottom)?;
    e.select(hidden, zero, made)
}

fn matmul(e: &mut Emitter<'_>, s: &Site<'_>) -> Res<OperandGradients> {
    let (a, b, g) = (s.operands[0], s.operands[1], s.gradient);
    let (ta, tb, tg) = (e.ty(a)?, e.ty(b)?, e.ty(g)?);
    let mut parts = Vec::new();
    if s.wanted[0] {
        let turned = e.transposed(b)?;
        let full = e.op(Op::Matmul, &[g, turned])?;
        parts.push((0, e.sum_to(full, &ta.shape)?));
    }
    if s.wanted[1] {
        let rows = |t: &TensorType| {
            let (last, lead) = t.shape.split_last().map_or((Dim::one(), &[][..]), |(d, lead)| (d.clone(), lead));
            vec![Dim::product(lead), last]
        };
        // One matrix for all rows: one product over all of them.
        let (a, g) =
            if tb.rank() == 2 && ta.rank() > 2 { (e.reshape(a, rows(&ta))?, e.reshape(g, rows(&tg))?) } else { (a, g) };
        let turned = e.transposed(a)?;
        let full = e.op(Op::Matmul, &[turned, g])?;
        parts.push((1, e.sum_to(full, &tb.shape)?));
    }
    Ok(parts)
}
