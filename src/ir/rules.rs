//! Shape rules: the type of an operation's result from the types of its operands.
//!
//! In: an operation, the types of its operands, and the declared type if the operands do not
//! determine the result. Out: the type of the result, or an error message. The builder, the parser
//! and the verifier all use these rules. The operation's row in the table (`op`) names its rule and
//! its number of operands.

use super::{Function, FusionKind, MaskKind, Op, Scalar, Terminator, Type};
use crate::scalar::{BinaryOp, CmpOp, ReduceKind, UnaryOp};
use crate::shape::{Dim, Elem, TensorType, broadcast};
use crate::table;

type Rule = Result<Option<Type>, String>;
type OperandTypes<'a> = table::OperandTypes<'a, Type>;

fn tensor(elem: Elem, shape: Vec<Dim>) -> Rule {
    Ok(Some(Type::Tensor(TensorType { elem, shape })))
}

fn operand<'a>(types: &[&'a Type], i: usize) -> Result<&'a TensorType, String> {
    match types.get(i) {
        Some(Type::Tensor(t)) => Ok(t),
        Some(Type::Index) => Err(format!("operand {} is an index; a tensor is required", i + 1)),
        None => Err(format!("operand {} is missing", i + 1)),
    }
}

fn count(types: &[&Type], n: usize) -> Result<(), String> {
    if types.len() == n { Ok(()) } else { Err(format!("takes {n} operands, has {}", types.len())) }
}

fn axis_of(axis: usize, t: &TensorType) -> Result<(), String> {
    if axis < t.rank() { Ok(()) } else { Err(format!("axis {axis} of a tensor of rank {}", t.rank())) }
}

fn broadcast_shapes(a: &[Dim], b: &[Dim]) -> Result<Vec<Dim>, String> {
    broadcast(a, b).map_err(|(x, y, i)| format!("dimensions {x} and {y} (axis {i} from the right) do not broadcast"))
}

fn same_elem(a: &TensorType, b: &TensorType) -> Result<(), String> {
    if a.elem == b.elem { Ok(()) } else { Err(format!("element types {} and {} differ", a.elem, b.elem)) }
}

fn indices(types: &[&Type]) -> Result<(), String> {
    if types.iter().all(|t| **t == Type::Index) { Ok(()) } else { Err("an array index must be an index".into()) }
}

fn float(t: &TensorType) -> Result<(), String> {
    if t.elem.is_float() { Ok(()) } else { Err(format!("needs floats, has {}", t.elem)) }
}

/// Leading axes and the last two axes.
fn matrix(t: &TensorType) -> Result<(&[Dim], &Dim, &Dim), String> {
    match t.shape.as_slice() {
        [lead @ .., m, n] => Ok((lead, m, n)),
        _ => Err(format!("needs at least two axes, has {t}")),
    }
}

/// Type of the result of `op`; `None` if it has no result.
///
/// # Errors
/// A message about the operands or the declared type.
pub fn result_type(op: &Op, types: &[&Type], declared: Option<&Type>) -> Rule {
    let rule = op.rule(OperandTypes { types, declared })?;
    match (&rule, declared) {
        (Some(computed), Some(written)) if computed != written => {
            Err(format!("the result is {computed}, not {written}"))
        }
        (None, Some(_)) => Err("has no result".into()),
        _ => Ok(rule),
    }
}

fn declared_tensor<'a>(given: OperandTypes<'a>) -> Result<&'a TensorType, String> {
    match given.declared {
        Some(Type::Tensor(t)) => Ok(t),
        Some(Type::Index) => Err("the result must be a tensor".to_string()),
        None => Err("the result's type must be given".to_string()),
    }
}

fn declared(given: OperandTypes<'_>) -> Rule {
    given.declared.cloned().map(Some).ok_or_else(|| "the result's type must be given".into())
}

pub(super) fn constant(given: OperandTypes<'_>, _value: &Scalar) -> Rule {
    declared(given)
}

pub(super) fn dimension(given: OperandTypes<'_>, _value: &Dim) -> Rule {
    match given.declared {
        Some(Type::Tensor(t)) if t.rank() != 0 || t.elem == Elem::Bool => {
            Err("a dimension's value is a scalar number".into())
        }
        _ => declared(given),
    }
}

pub(super) fn iota(given: OperandTypes<'_>, axis: &usize) -> Rule {
    let t = declared_tensor(given)?;
    axis_of(*axis, t)?;
    if t.elem == Elem::Bool {
        return Err("iota needs a numeric type".into());
    }
    tensor(t.elem, t.shape.clone())
}

pub(super) fn causal(given: OperandTypes<'_>) -> Rule {
    let t = declared_tensor(given)?;
    if t.elem != Elem::Bool || t.rank() != 2 {
        return Err("causal is a bool tensor of rank 2".into());
    }
    tensor(t.elem, t.shape.clone())
}

pub(super) fn param(given: OperandTypes<'_>, name: &str) -> Rule {
    let types = given.types;
    indices(types)?;
    let stars = name.matches('*').count();
    if stars != types.len() {
        return Err(format!("the name has {stars} `*`, and there are {} indices", types.len()));
    }
    let t = declared_tensor(given)?;
    tensor(t.elem, t.shape.clone())
}

pub(super) fn state(given: OperandTypes<'_>, _name: &str) -> Rule {
    let t = declared_tensor(given)?;
    tensor(t.elem, t.shape.clone())
}

pub(super) fn set_state(given: OperandTypes<'_>, _name: &str) -> Rule {
    operand(given.types, 0)?;
    Ok(None)
}

pub(super) fn length(given: OperandTypes<'_>, name: &str, _most: &Dim) -> Rule {
    if name.is_empty() {
        return Err("a dimension has a name".into());
    }
    match given.types {
        [Type::Index] => Ok(None),
        [Type::Tensor(t)] if matches!(t.elem, Elem::I32 | Elem::I64) && t.rank() == 0 => Ok(None),
        _ => Err("takes an index or an integer scalar".into()),
    }
}

pub(super) fn unary(given: OperandTypes<'_>, op: &UnaryOp) -> Rule {
    let types = given.types;
    let t = operand(types, 0)?;
    if op.takes(t.elem) { tensor(t.elem, t.shape.clone()) } else { Err(format!("is not defined for {}", t.elem)) }
}

pub(super) fn binary(given: OperandTypes<'_>, op: &BinaryOp) -> Rule {
    let types = given.types;
    if types.iter().all(|t| **t == Type::Index) {
        return if op.is_of_bits() { Err("is not defined for indices".to_string()) } else { Ok(Some(Type::Index)) };
    }
    let (a, b) = (operand(types, 0)?, operand(types, 1)?);
    same_elem(a, b)?;
    if !op.takes(a.elem) {
        return Err(format!("is not defined for {}", a.elem));
    }
    tensor(a.elem, broadcast_shapes(&a.shape, &b.shape)?)
}

pub(super) fn compare(given: OperandTypes<'_>, _op: &CmpOp) -> Rule {
    let types = given.types;
    if types.iter().all(|t| **t == Type::Index) {
        return tensor(Elem::Bool, Vec::new());
    }
    let (a, b) = (operand(types, 0)?, operand(types, 1)?);
    same_elem(a, b)?;
    tensor(Elem::Bool, broadcast_shapes(&a.shape, &b.shape)?)
}

pub(super) fn select(given: OperandTypes<'_>) -> Rule {
    let types = given.types;
    let (c, a, b) = (operand(types, 0)?, operand(types, 1)?, operand(types, 2)?);
    if c.elem != Elem::Bool {
        return Err(format!("the condition is {}, not bool", c.elem));
    }
    same_elem(a, b)?;
    tensor(a.elem, broadcast_shapes(&broadcast_shapes(&c.shape, &a.shape)?, &b.shape)?)
}

pub(super) fn cast(given: OperandTypes<'_>, elem: &Elem) -> Rule {
    let types = given.types;
    tensor(*elem, operand(types, 0)?.shape.clone())
}

pub(super) fn reshape(given: OperandTypes<'_>) -> Rule {
    let types = given.types;
    let (x, t) = (operand(types, 0)?, declared_tensor(given)?);
    same_elem(x, t)?;
    // A dimension that is too long is never known to equal another.
    if x.count() != t.count() || x.count().is_too_long() {
        return Err(format!("{x} has {} elements, {t} has {}", x.count(), t.count()));
    }
    tensor(t.elem, t.shape.clone())
}

pub(super) fn transpose(given: OperandTypes<'_>, perm: &[usize]) -> Rule {
    let types = given.types;
    let x = operand(types, 0)?;
    let mut sorted = perm.to_vec();
    sorted.sort_unstable();
    if sorted != (0..x.rank()).collect::<Vec<_>>() {
        return Err(format!("{perm:?} is not a permutation of {} axes", x.rank()));
    }
    tensor(x.elem, perm.iter().filter_map(|i| x.shape.get(*i).cloned()).collect())
}

pub(super) fn broadcast_to(given: OperandTypes<'_>) -> Rule {
    let types = given.types;
    let (x, t) = (operand(types, 0)?, declared_tensor(given)?);
    same_elem(x, t)?;
    if broadcast_shapes(&x.shape, &t.shape)? != t.shape {
        return Err(format!("{x} does not broadcast to {t}"));
    }
    tensor(t.elem, t.shape.clone())
}

pub(super) fn slice(given: OperandTypes<'_>, axis: &usize, start: &Dim, stop: &Dim) -> Rule {
    let types = given.types;
    let x = operand(types, 0)?;
    axis_of(*axis, x)?;
    let mut shape = x.shape.clone();
    if let (Some(a), Some(b), Some(n)) = (start.as_const(), stop.as_const(), shape[*axis].as_const())
        && !(0 <= a && a <= b && b <= n)
    {
        return Err(format!("{a}..{b} is outside of an axis of {n}"));
    }
    shape[*axis] = stop.sub(start);
    tensor(x.elem, shape)
}

/// The minimum extent of an axis with `count` windows of this length.
pub(super) fn reach(count: &Dim, length: &Dim, stride: i64) -> Dim {
    let stride = Dim::from(stride.saturating_abs());
    count.sub(&Dim::one()).mul(&stride).add(length)
}

pub(super) fn windows(given: OperandTypes<'_>, axis: &usize, stride: &i64) -> Rule {
    let (x, t) = (operand(given.types, 0)?, declared_tensor(given)?);
    axis_of(*axis, x)?;
    same_elem(x, t)?;
    if *stride == 0 || i32::try_from(*stride).is_err() {
        return Err(format!("{stride} is not a valid stride"));
    }
    let mut shape = t.shape.clone();
    if t.rank() != x.rank() + 1 {
        return Err(format!("{t} does not hold windows of {x}: it must have one more axis"));
    }
    let (count, length) = (shape.remove(*axis), shape.remove(*axis));
    shape.insert(*axis, x.shape[*axis].clone());
    if shape != x.shape {
        return Err(format!("{t} does not hold windows of {x} along axis {axis}"));
    }
    let reach = reach(&count, &length, *stride);
    if let (Some(needed), Some(n)) = (reach.as_const(), x.shape[*axis].as_const())
        && needed > n
    {
        return Err(format!("{count} windows of {length} need {needed} elements, but the axis has {n}"));
    }
    tensor(t.elem, t.shape.clone())
}

pub(super) fn index(given: OperandTypes<'_>, axis: &usize) -> Rule {
    let types = given.types;
    let x = operand(types, 0)?;
    axis_of(*axis, x)?;
    index_or_scalar(types[1])?;
    let mut shape = x.shape.clone();
    shape.remove(*axis);
    tensor(x.elem, shape)
}

pub(super) fn concat(given: OperandTypes<'_>, axis: &usize) -> Rule {
    let types = given.types;
    let first = operand(types, 0)?;
    axis_of(*axis, first)?;
    let mut shape = first.shape.clone();
    shape[*axis] = Dim::zero();
    for i in 0..types.len() {
        let x = operand(types, i)?;
        same_elem(first, x)?;
        if x.rank() != first.rank() {
            return Err(format!("{first} and {x} differ in rank"));
        }
        for (k, (d, e)) in first.shape.iter().zip(&x.shape).enumerate() {
            if k != *axis && d != e {
                return Err(format!("dimensions {d} and {e} of axis {k} differ"));
            }
        }
        shape[*axis] = shape[*axis].add(&x.shape[*axis]);
    }
    tensor(first.elem, shape)
}

pub(super) fn pad(given: OperandTypes<'_>, axis: &usize, low: &Dim, high: &Dim) -> Rule {
    let types = given.types;
    let (x, value) = (operand(types, 0)?, operand(types, 1)?);
    axis_of(*axis, x)?;
    same_elem(x, value)?;
    if value.rank() != 0 {
        return Err("the padding is a scalar".into());
    }
    if low.as_const().is_some_and(|n| n < 0) || high.as_const().is_some_and(|n| n < 0) {
        return Err("padding is not negative".into());
    }
    let mut shape = x.shape.clone();
    shape[*axis] = shape[*axis].add(low).add(high);
    tensor(x.elem, shape)
}

fn integers(at: &TensorType) -> Result<(), String> {
    if !matches!(at.elem, Elem::I32 | Elem::I64) {
        return Err(format!("indices are i32 or i64, not {}", at.elem));
    }
    Ok(())
}

pub(super) fn gather(given: OperandTypes<'_>, axis: &usize, batch: &usize) -> Rule {
    let types = given.types;
    let (x, at) = (operand(types, 0)?, operand(types, 1)?);
    axis_of(*axis, x)?;
    integers(at)?;
    if batch > axis || *batch > at.rank() {
        return Err(format!("{batch} shared axes, of indices with {} and before axis {axis}", at.rank()));
    }
    let (shared, own) = at.shape.split_at(*batch);
    if shared != &x.shape[..*batch] {
        return Err(format!("the first {batch} axes of {x} and {at} differ"));
    }
    let mut shape = x.shape.clone();
    shape.splice(*axis..=*axis, own.iter().cloned());
    tensor(x.elem, shape)
}

pub(super) fn scatter(given: OperandTypes<'_>, axis: &usize, add: &bool) -> Rule {
    let types = given.types;
    let (x, at, value) = (operand(types, 0)?, operand(types, 1)?, operand(types, 2)?);
    axis_of(*axis, x)?;
    integers(at)?;
    same_elem(x, value)?;
    if *add && x.elem == Elem::Bool {
        return Err("is not defined for bool".into());
    }
    let [count] = at.shape.as_slice() else {
        return Err(format!("the indices have one axis, not {}", at.rank()));
    };
    let mut shape = x.shape.clone();
    shape[*axis] = count.clone();
    if value.shape != shape {
        return Err(format!("{value} is written, expected {}", TensorType::new(x.elem, shape)));
    }
    tensor(x.elem, x.shape.clone())
}

/// Checks that a tensor can have a window of this type at indices along these axes.
fn window(x: &TensorType, of: &TensorType, axes: &[usize], indices: &[&Type]) -> Result<(), String> {
    same_elem(x, of)?;
    if axes.is_empty() || !axes.is_sorted_by(|a, b| a < b) {
        return Err("axes must be given, ascending and different".into());
    }
    axes.iter().try_for_each(|a| axis_of(*a, x))?;
    if indices.len() != axes.len() {
        return Err(format!("{} axes need as many indices, not {}", axes.len(), indices.len()));
    }
    indices.iter().try_for_each(|t| index_or_scalar(t))?;
    if of.rank() != x.rank() {
        return Err(format!("{of} is not a window of {x}: they differ in rank"));
    }
    for (i, (n, all)) in of.shape.iter().zip(&x.shape).enumerate() {
        if axes.contains(&i) {
            if n.as_const().zip(all.as_const()).is_some_and(|(n, all)| n > all) {
                return Err(format!("{n} elements exceed axis {i} of {x}"));
            }
        } else if n != all {
            return Err(format!("{of} is not a window of {x}: axis {i} has no index"));
        }
    }
    Ok(())
}

pub(super) fn extract(given: OperandTypes<'_>, axes: &[usize]) -> Rule {
    let types = given.types;
    let (x, t) = (operand(types, 0)?, declared_tensor(given)?);
    window(x, t, axes, types.get(1..).unwrap_or_default())?;
    tensor(t.elem, t.shape.clone())
}

pub(super) fn update(given: OperandTypes<'_>, axes: &[usize]) -> Rule {
    let (x, value) = (operand(given.types, 0)?, operand(given.types, 1)?);
    window(x, value, axes, given.types.get(2..).unwrap_or_default())?;
    tensor(x.elem, x.shape.clone())
}

pub(super) fn reduce(given: OperandTypes<'_>, kind: &ReduceKind, axes: &[usize], keep: &bool) -> Rule {
    let types = given.types;
    let x = operand(types, 0)?;
    if axes.is_empty() || !axes.is_sorted_by(|a, b| a < b) {
        return Err("axes must be given, ascending and different".into());
    }
    axes.iter().try_for_each(|a| axis_of(*a, x))?;
    let elem = match kind {
        ReduceKind::All | ReduceKind::Any if x.elem == Elem::Bool => Elem::Bool,
        ReduceKind::ArgMax if axes.len() != 1 => return Err("argmax takes one axis".into()),
        ReduceKind::ArgMax if x.elem != Elem::Bool => Elem::I32,
        ReduceKind::Mean | ReduceKind::LogSumExp if x.elem.is_float() => x.elem,
        ReduceKind::Sum | ReduceKind::Max | ReduceKind::Min if x.elem != Elem::Bool => x.elem,
        _ => return Err(format!("is not defined for {}", x.elem)),
    };
    let shape = x.shape.iter().enumerate().filter_map(|(i, d)| match (axes.contains(&i), *keep) {
        (true, true) => Some(Dim::one()),
        (true, false) => None,
        (false, _) => Some(d.clone()),
    });
    tensor(elem, shape.collect())
}

pub(super) fn softmax(given: OperandTypes<'_>, axis: &usize) -> Rule {
    let types = given.types;
    let x = operand(types, 0)?;
    axis_of(*axis, x)?;
    float(x)?;
    tensor(x.elem, x.shape.clone())
}

pub(super) fn cumsum(given: OperandTypes<'_>, axis: &usize) -> Rule {
    let x = operand(given.types, 0)?;
    axis_of(*axis, x)?;
    if x.elem == Elem::Bool {
        return Err("is not defined for bool".into());
    }
    tensor(x.elem, x.shape.clone())
}

pub(super) fn argsort(given: OperandTypes<'_>, axis: &usize, _descending: &bool, first: &Dim) -> Rule {
    let x = operand(given.types, 0)?;
    axis_of(*axis, x)?;
    if x.elem == Elem::Bool {
        return Err("is not defined for bool".into());
    }
    if let (Some(k), Some(n)) = (first.as_const(), x.shape[*axis].as_const())
        && !(0..=n).contains(&k)
    {
        return Err(format!("the first {k} elements of an axis of {n}"));
    }
    let mut shape = x.shape.clone();
    shape[*axis] = first.clone();
    tensor(Elem::I32, shape)
}

pub(super) fn matmul(given: OperandTypes<'_>) -> Rule {
    let types = given.types;
    let (a, b) = (operand(types, 0)?, operand(types, 1)?);
    same_elem(a, b)?;
    let ((la, m, k), (lb, l, n)) = (matrix(a)?, matrix(b)?);
    if k != l {
        return Err(format!("inner dimensions {k} and {l} differ"));
    }
    let elem = match a.elem {
        Elem::I8 => Elem::I32,
        Elem::Bool => return Err("is not defined for bool".into()),
        e => e,
    };
    let mut shape = broadcast_shapes(la, lb)?;
    shape.extend([m.clone(), n.clone()]);
    tensor(elem, shape)
}

pub(super) fn grad(given: OperandTypes<'_>, of: &str) -> Rule {
    let loss = operand(given.types, 0)?;
    float(loss)?;
    if loss.rank() != 0 {
        return Err(format!("the loss is {loss}, not a scalar"));
    }
    let x = match given.types {
        [_] if of.is_empty() => return Err("takes a value or the name of a parameter".into()),
        [_] => declared_tensor(given)?,
        [_, _] => operand(given.types, 1)?,
        types => return Err(format!("takes a loss and one value, has {} operands", types.len())),
    };
    float(x)?;
    tensor(x.elem, x.shape.clone())
}

pub(super) fn stop(given: OperandTypes<'_>) -> Rule {
    let x = operand(given.types, 0)?;
    float(x)?;
    tensor(x.elem, x.shape.clone())
}

pub(super) fn fused(given: OperandTypes<'_>, _kind: &FusionKind, body: &Function) -> Rule {
    let types = given.types;
    let entry = body.block(body.entry());
    let params: Vec<&Type> = entry.args.iter().map(|v| body.ty(*v)).collect();
    if params != types {
        return Err("the operands do not fit the region's arguments".into());
    }
    match &entry.terminator {
        Terminator::Return(vs) if vs.len() == 1 && body.layout.len() == 1 => Ok(Some(body.ty(vs[0]).clone())),
        _ => Err("a region is one block that yields one value".into()),
    }
}

pub(super) fn tap(given: OperandTypes<'_>, name: &str, extents: &[Dim]) -> Rule {
    let types = given.types;
    operand(types, 0)?;
    let rest = types.get(1..).unwrap_or_default();
    indices(rest)?;
    let stars = name.matches('*').count();
    if stars > rest.len() || extents.len() != rest.len() {
        return Err(format!(
            "the name has {stars} `*`, and there are {} indices and {} extents",
            rest.len(),
            extents.len()
        ));
    }
    if extents.iter().take(stars).any(|d| d.as_const().is_none()) {
        return Err("the extents of arrays of layers are numbers".into());
    }
    if extents.iter().any(|d| d.as_const().is_some_and(|n| n < 0)) {
        return Err("an extent is not negative".into());
    }
    Ok(None)
}

fn index_or_scalar(t: &Type) -> Result<(), String> {
    match t {
        Type::Index => Ok(()),
        Type::Tensor(t) if t.rank() == 0 && matches!(t.elem, Elem::I32 | Elem::I64) => Ok(()),
        Type::Tensor(t) => Err(format!("the index is {t}, not an integer scalar")),
    }
}

pub(super) fn attention(given: OperandTypes<'_>, masks: &[MaskKind]) -> Rule {
    let types = given.types;
    count(types, 4 + masks.iter().map(|m| m.operands()).sum::<usize>())?;
    let (q, k, v, scale) = (operand(types, 0)?, operand(types, 1)?, operand(types, 2)?, operand(types, 3)?);
    [q, k, v].into_iter().try_for_each(float)?;
    if *scale != TensorType::scalar(Elem::F32) {
        return Err(format!("the scale is {scale}, not f32[]"));
    }
    let ((lq, s, d), (lk, t, d2), (lv, t2, e)) = (matrix(q)?, matrix(k)?, matrix(v)?);
    if d != d2 {
        return Err(format!("the widths of queries and keys, {d} and {d2}, differ"));
    }
    if t != t2 {
        return Err(format!("there are {t} keys and {t2} values"));
    }
    let lead = broadcast_shapes(&broadcast_shapes(lq, lk)?, lv)?;
    let mut scores = lead.clone();
    scores.extend([s.clone(), t.clone()]);
    let column: Vec<Dim> = lead.iter().cloned().chain([s.clone(), Dim::one()]).collect();
    let mut next = 4;
    for (n, mask) in masks.iter().enumerate() {
        if *mask == MaskKind::Causal {
            continue;
        }
        let m = operand(types, next)?;
        let whole = if *mask == MaskKind::Sink { &column } else { &scores };
        if broadcast_shapes(&m.shape, whole)? != *whole {
            return Err(format!("the mask {m} does not broadcast to the scores"));
        }
        let fits = match mask {
            MaskKind::Add => m.elem.is_float(),
            MaskKind::Keep => {
                let fill = operand(types, next + 1)?;
                m.elem == Elem::Bool && fill.elem.is_float() && fill.rank() == 0
            }
            MaskKind::Cap => *m == TensorType::scalar(Elem::F32),
            MaskKind::Sink if n + 1 < masks.len() => return Err("a sink is the last step".into()),
            MaskKind::Sink => m.elem.is_float(),
            MaskKind::Causal => true,
        };
        if !fits {
            return Err(format!("the mask {m} does not fit its kind, {}", mask.name()));
        }
        next += mask.operands();
    }
    let mut shape = lead;
    shape.extend([s.clone(), e.clone()]);
    tensor(v.elem, shape)
}
