//! The gradient of operations that move elements: where each came from, its gradient goes back to.
//!
//! In: a site of `rules`. Out: the gradients of its operands.

use super::Res;
use super::emit::Emitter;
use super::site::{OperandGradients, Site};
use crate::ir::{Op, Value};
use crate::passes::rewrite::splat;
use crate::scalar::{BinaryOp, CmpOp};
use crate::shape::{Dim, Elem, TensorType};

pub(super) fn concat(e: &mut Emitter<'_>, s: &Site<'_>, axis: usize) -> Res<OperandGradients> {
    let mut parts = Vec::new();
    let mut start = Dim::zero();
    for (k, x) in s.operands.iter().enumerate() {
        let stop = start.add(&e.ty(*x)?.shape[axis]);
        if s.wanted[k] {
            parts.push((k, e.slice(s.gradient, axis, &start, &stop)?));
        }
        start = stop;
    }
    Ok(parts)
}

pub(super) fn pad(e: &mut Emitter<'_>, s: &Site<'_>, axis: usize, (low, high): (&Dim, &Dim)) -> Res<OperandGradients> {
    let x = e.ty(s.operands[0])?;
    let end = low.add(&x.shape[axis]);
    let mut parts = Vec::new();
    if s.wanted[0] {
        parts.push((0, e.slice(s.gradient, axis, low, &end)?));
    }
    if s.wanted[1] {
        let all: Vec<usize> = (0..x.rank()).collect();
        let before = e.slice(s.gradient, axis, &Dim::zero(), low)?;
        let after = e.slice(s.gradient, axis, &end, &end.add(high))?;
        let (before, after) = (e.sum(before, all.clone(), false)?, e.sum(after, all, false)?);
        parts.push((1, e.binary(BinaryOp::Add, before, after)?));
    }
    Ok(parts)
}

pub(super) fn update(e: &mut Emitter<'_>, s: &Site<'_>, axes: &[usize]) -> Res<OperandGradients> {
    let (value, indices) = (e.ty(s.operands[1])?, &s.operands[2..]);
    let axes = axes.to_vec();
    let mut parts = Vec::new();
    if s.wanted[0] {
        let zeros = e.splat(0.0, value.clone())?;
        let operands = [&[s.gradient, zeros], indices].concat();
        parts.push((0, e.op(Op::Update { axes: axes.clone() }, &operands)?));
    }
    if s.wanted[1] {
        let operands = [&[s.gradient], indices].concat();
        parts.push((1, e.typed(Op::Extract { axes }, &operands, value)?));
    }
    Ok(parts)
}

/// The elements of an axis in reverse order: windows of one element, from the end.
pub(super) fn flip(e: &mut Emitter<'_>, x: Value, axis: usize) -> Res<Value> {
    let ty = e.ty(x)?;
    let mut shape = ty.shape.clone();
    shape.insert(axis + 1, Dim::one());
    let windows = e.typed(Op::Windows { axis, stride: -1 }, &[x], TensorType::new(ty.elem, shape))?;
    e.reshape(windows, ty.shape)
}

/// Windows may overlap: each element of each window is added where it came from.
pub(super) fn windows(e: &mut Emitter<'_>, s: &Site<'_>, axis: usize, stride: i64) -> Res<OperandGradients> {
    let (x, g) = (e.ty(s.operands[0])?, e.ty(s.gradient)?);
    let (count, length) = (g.shape[axis].clone(), g.shape[axis + 1].clone());
    let grid = TensorType::new(Elem::I64, vec![count.clone(), length.clone()]);
    let window = e.typed(Op::Iota { axis: 0 }, &[], grid.clone())?;
    let within = e.typed(Op::Iota { axis: 1 }, &[], grid)?;
    let step = e.number(stride as f64, Elem::I64)?;
    let start = e.binary(BinaryOp::Mul, window, step)?;
    let mut at = e.binary(BinaryOp::Add, start, within)?;
    if stride < 0 {
        let last = x.shape[axis].sub(&length);
        let last = e.typed(Op::DimValue(last), &[], TensorType::scalar(Elem::I64))?;
        at = e.binary(BinaryOp::Add, at, last)?;
    }
    let all = count.mul(&length);
    let at = e.reshape(at, vec![all.clone()])?;
    let mut shape = g.shape.clone();
    shape.splice(axis..=axis + 1, [all]);
    let values = e.reshape(s.gradient, shape)?;
    let zeros = e.splat(0.0, x)?;
    Ok(vec![(0, e.op(Op::Scatter { axis, add: true }, &[zeros, at, values])?)])
}

/// Each slice that was taken is added where it came from. Axes that table and indices share are
/// made one with the axis that is indexed.
pub(super) fn gather(e: &mut Emitter<'_>, s: &Site<'_>, (axis, batch): (usize, usize)) -> Res<OperandGradients> {
    let (x, at) = (e.ty(s.operands[0])?, e.ty(s.operands[1])?);
    let rank = e.ty(s.gradient)?.rank();
    let own = at.rank() - batch;
    // [shared, middle, own, rest] -> [middle, shared, own, rest]
    let perm: Vec<usize> = (batch..axis).chain(0..batch).chain(axis..rank).collect();
    let moved = e.transpose(s.gradient, perm)?;
    let (middle, rest) = (&x.shape[batch..axis], &x.shape[axis + 1..]);
    let shared = Dim::product(&x.shape[..batch]);
    let flat = |n: Dim| middle.iter().cloned().chain([n]).chain(rest.iter().cloned()).collect::<Vec<Dim>>();
    let count = shared.mul(&Dim::product(&at.shape[batch..]));
    let values = e.reshape(moved, flat(count.clone()))?;
    let mut indices = s.operands[1];
    if batch > 0 {
        indices = e.cast(indices, Elem::I64)?;
        let per = Dim::product(&at.shape[batch..]);
        let grid = TensorType::new(Elem::I64, vec![shared.clone(), per]);
        indices = e.reshape(indices, grid.shape.clone())?;
        let row = e.typed(Op::Iota { axis: 0 }, &[], grid)?;
        let n = e.typed(Op::DimValue(x.shape[axis].clone()), &[], TensorType::scalar(Elem::I64))?;
        let start = e.binary(BinaryOp::Mul, row, n)?;
        indices = e.binary(BinaryOp::Add, indices, start)?;
    }
    let _ = own;
    let indices = e.reshape(indices, vec![count])?;
    let zeros = e.splat(0.0, TensorType::new(x.elem, flat(shared.mul(&x.shape[axis]))))?;
    let sums = e.op(Op::Scatter { axis: middle.len(), add: true }, &[zeros, indices, values])?;
    // [middle, shared * n, rest] -> [middle, shared, n, rest] -> [shared, middle, n, rest]
    let apart: Vec<Dim> = middle.iter().chain(&x.shape[..batch]).chain(&x.shape[axis..]).cloned().collect();
    let sums = e.reshape(sums, apart)?;
    let m = middle.len();
    let back: Vec<usize> = (m..m + batch).chain(0..m).chain(m + batch..x.rank()).collect();
    Ok(vec![(0, e.transpose(sums, back)?)])
}

/// Of slices that were written to one index, the last has the gradient.
pub(super) fn scatter(e: &mut Emitter<'_>, s: &Site<'_>, axis: usize, add: bool) -> Res<OperandGradients> {
    let (target, at, g) = (e.ty(s.operands[0])?, s.operands[1], s.gradient);
    let value = e.ty(s.operands[2])?;
    let mut parts = Vec::new();
    if s.wanted[0] {
        let part = if add {
            g
        } else {
            let zeros = e.splat(0.0, value.clone())?;
            e.op(Op::Scatter { axis, add: false }, &[g, at, zeros])?
        };
        parts.push((0, part));
    }
    if !s.wanted[2] {
        return Ok(parts);
    }
    let mut part = e.op(Op::Gather { axis, batch: 0 }, &[g, at])?;
    if !add {
        let count = e.ty(at)?.shape;
        let order = e.typed(Op::Iota { axis: 0 }, &[], TensorType::new(Elem::I64, count.clone()))?;
        let none = e.splat(-1.0, TensorType::new(Elem::I64, vec![target.shape[axis].clone()]))?;
        let last = e.op(Op::Scatter { axis: 0, add: false }, &[none, at, order])?;
        let last = e.op(Op::Gather { axis: 0, batch: 0 }, &[last, at])?;
        let remains = e.compare(CmpOp::Eq, last, order)?;
        let spread = value.shape.iter().enumerate().map(|(i, _)| if i == axis { count[0].clone() } else { Dim::one() });
        let remains = e.reshape(remains, spread.collect())?;
        let zero = e.number(0.0, target.elem)?;
        part = e.select(remains, part, zero)?;
    }
    parts.push((2, part));
    Ok(parts)
}

/// The sum of the gradients of two neighbouring slices of a value: both, side by side. Slices that
/// a value was divided into so give their gradients back without additions of zeros.
pub(super) fn side_by_side(e: &mut Emitter<'_>, a: Value, b: Value) -> Res<Option<Value>> {
    let padded = |e: &Emitter<'_>, v: Value| {
        let d = e.f.def_inst(v)?;
        let (Op::Pad { axis, low, high }, [x, zero]) = (&d.op, d.operands.as_slice()) else { return None };
        let is_zero = splat(e.f, *zero).is_some_and(|s| s.as_f64() == 0.0);
        is_zero.then(|| (*axis, low.clone(), high.clone(), *x, *zero))
    };
    let (Some(a), Some(b)) = (padded(e, a), padded(e, b)) else { return Ok(None) };
    for (first, second) in [(&a, &b), (&b, &a)] {
        let (axis, low, _, x, zero) = first;
        let (_, start, high, y, _) = second;
        let extent = e.ty(*x)?.shape[*axis].clone();
        if *axis == second.0 && low.add(&extent) == *start {
            let both = e.op(Op::Concat { axis: *axis }, &[*x, *y])?;
            let pad = Op::Pad { axis: *axis, low: low.clone(), high: high.clone() };
            let whole = *low == Dim::zero() && *high == Dim::zero();
            return Ok(Some(if whole { both } else { e.op(pad, &[both, *zero])? }));
        }
    }
    Ok(None)
}
