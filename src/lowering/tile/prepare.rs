//! Last rewrite before kernels: puts every computing instruction into a region.
//!
//! In: a function after the passes, where some operations are in fused regions and others are not.
//! Out: the same function with every computing instruction inside an [`Op::Fused`], so that the
//! lowering handles five kinds of regions and no single operations:
//!
//! * an elementwise operation becomes a `map` region, together with the constants and counters it
//!   uses;
//! * for a softmax or reduction over other axes than the last, these are moved to the end
//!   (`transpose` and `reshape`, which are views) and a `rows` region is put around it;
//! * matmuls and attentions get a region of their kind.
//!
//! Sources, movement, gathers, scatters, running sums, sorting and taps are unchanged.

use cranelift_entity::SecondaryMap;

use super::build::{emit, operand, tensor};
use super::means::{self, Means};
use crate::ir::{Class, Function, FusionKind, Inst, InstData, Loc, Op, Terminator, Type, Use, Value};
use crate::scalar::{BinaryOp, CmpOp, ReduceKind, UnaryOp};
use crate::shape::{Dim, Elem, TensorType};

/// # Errors
/// A type rule's error, which is a bug in attnc: the input was verified.
pub(super) fn run(f: &mut Function) -> Result<(), String> {
    let mut replaced: SecondaryMap<Value, Option<Value>> = SecondaryMap::new();
    let uses = f.uses();
    for block in f.layout.clone() {
        let insts = std::mem::take(&mut f.block_mut(block).insts);
        for inst in insts {
            let mut out = Vec::new();
            let data = f.inst(inst).clone();
            let result = prepare(f, inst, &data, &uses, &mut out)?;
            f.block_mut(block).insts.extend(out);
            if let (Some(old), Some(new)) = (data.result, result)
                && old != new
            {
                replaced[old] = Some(new);
            }
        }
    }
    f.replace_uses(&replaced);
    Ok(())
}

/// Appends the replacement of an instruction to `out`; returns the value that replaces its result.
fn prepare(
    f: &mut Function,
    inst: Inst,
    data: &InstData,
    uses: &SecondaryMap<Value, Vec<Use>>,
    out: &mut Vec<Inst>,
) -> Result<Option<Value>, String> {
    let is_tensor = data.result.is_some_and(|v| f.tensor(v).is_some());
    let on_tensors = data.operands.iter().all(|v| f.tensor(*v).is_some());
    match &data.op {
        Op::Cast { .. } if widens_parameter(f, data, uses) => {
            out.push(inst);
            Ok(data.result)
        }
        Op::Unary(_) | Op::Binary(_) | Op::Compare(_) | Op::Where | Op::Cast { .. } if is_tensor && on_tensors => {
            wrap(f, FusionKind::Map, data, out).map(Some)
        }
        Op::Matmul => wrap(f, FusionKind::Matmul, data, out).map(Some),
        Op::Attention { .. } => wrap(f, FusionKind::Attention, data, out).map(Some),
        Op::Softmax { axis } | Op::LogSoftmax { axis } => {
            let x = operand(data, 0)?;
            let rank = tensor(f, x)?.rank();
            if *axis + 1 == rank {
                return wrap(f, FusionKind::Rows, data, out).map(Some);
            }
            let mut perm: Vec<usize> = (0..rank).collect();
            perm.swap(*axis, rank - 1);
            let op = if matches!(data.op, Op::Softmax { .. }) {
                Op::Softmax { axis: rank - 1 }
            } else {
                Op::LogSoftmax { axis: rank - 1 }
            };
            let turned = emit(f, Op::Transpose { perm: perm.clone() }, vec![x], None, data.loc, out)?;
            let inner = InstData { op, operands: vec![turned], result: None, loc: data.loc, parts: Vec::new() };
            let y = wrap(f, FusionKind::Rows, &inner, out)?;
            emit(f, Op::Transpose { perm }, vec![y], None, data.loc, out).map(Some)
        }
        Op::Reduce { kind, axes, .. } => {
            let is_centring =
                *kind == ReduceKind::Mean && data.result.is_some_and(|v| means::is_subtracted(f, uses, v));
            reduce(f, *kind, axes, data, is_centring, out).map(Some)
        }
        Op::Unary(_)
        | Op::Binary(_)
        | Op::Compare(_)
        | Op::Where
        | Op::Cast { .. }
        | Op::Const(_)
        | Op::DimValue(_)
        | Op::Iota { .. }
        | Op::Causal
        | Op::Param { .. }
        | Op::State { .. }
        | Op::SetState { .. }
        | Op::Length { .. }
        | Op::Reshape
        | Op::Transpose { .. }
        | Op::Broadcast
        | Op::Slice { .. }
        | Op::Windows { .. }
        | Op::Index { .. }
        | Op::Extract { .. }
        | Op::Update { .. }
        | Op::Concat { .. }
        | Op::Pad { .. }
        | Op::Gather { .. }
        | Op::Scatter { .. }
        | Op::Cumsum { .. }
        | Op::Grad { .. }
        | Op::Stop
        | Op::Argsort { .. }
        | Op::Fused { .. }
        | Op::Tap { .. } => {
            out.push(inst);
            Ok(data.result)
        }
    }
}

/// Is this the `f32` of a parameter with 16 bits, which its readers widen as they load it? The
/// readers are gathers from it, and matmuls that have it on the right.
pub(super) fn widens_parameter(f: &Function, data: &InstData, uses: &SecondaryMap<Value, Vec<Use>>) -> bool {
    let (Op::Cast { elem: Elem::F32 }, [from], Some(result)) = (&data.op, data.operands.as_slice(), data.result) else {
        return false;
    };
    if !f.tensor(*from).is_some_and(|ty| matches!(ty.elem, Elem::BF16 | Elem::F16)) {
        return false;
    }
    let mut source = *from;
    while let Some((_, made)) = f.definition(source).filter(|(_, made)| is_movement(&made.op)) {
        let Some(moved) = made.operands.first() else { return false };
        source = *moved;
    }
    if !f.definition(source).is_some_and(|(_, made)| matches!(made.op, Op::Param { .. })) {
        return false;
    }
    let mut open = vec![result];
    while let Some(v) = open.pop() {
        for one in &uses[v] {
            let Use::Operand(inst, at) = one else { return false };
            let reader = f.inst(*inst);
            match (&reader.op, reader.result) {
                (Op::Gather { .. }, _) if *at == 0 => {}
                (Op::Matmul, _) if *at == 1 => {}
                (Op::Fused { kind: FusionKind::Matmul, body }, _) => {
                    let Some(arg) = body.block(body.entry()).args.get(*at) else { return false };
                    let is_right =
                        |d: &InstData| d.op == Op::Matmul && d.operands.iter().rposition(|v| v == arg) == Some(1);
                    if body.insts().any(|(_, _, d)| d.operands.contains(arg) && (!is_right(d) || d.operands[0] == *arg))
                    {
                        return false;
                    }
                }
                (op, Some(moved)) if is_movement(op) => open.push(moved),
                _ => return false,
            }
        }
    }
    true
}

fn is_movement(op: &Op) -> bool {
    matches!(op, Op::Reshape | Op::Transpose { .. } | Op::Slice { .. })
}

/// Moves the reduced axes to the end, merges them, reduces the last axis, and reshapes the result.
/// A mean that is subtracted from something is corrected (see `means`).
fn reduce(
    f: &mut Function,
    kind: ReduceKind,
    axes: &[usize],
    data: &InstData,
    is_centring: bool,
    out: &mut Vec<Inst>,
) -> Result<Value, String> {
    let x = operand(data, 0)?;
    let ty = tensor(f, x)?;
    let result = match data.result {
        Some(v) => f.ty(v).clone(),
        None => return Err("a reduction without a result".into()),
    };
    let kept: Vec<usize> = (0..ty.rank()).filter(|i| !axes.contains(i)).collect();
    let perm: Vec<usize> = kept.iter().chain(axes).copied().collect();
    let mut rows = x;
    if !perm.is_sorted() {
        rows = emit(f, Op::Transpose { perm }, vec![rows], None, data.loc, out)?;
    }
    let pick = |list: &[usize]| list.iter().filter_map(|i| ty.shape.get(*i).cloned()).collect::<Vec<Dim>>();
    let mut shape = pick(&kept);
    if axes.len() > 1 {
        let mut merged = shape.clone();
        merged.push(Dim::product(&pick(axes)));
        let merged = Type::Tensor(TensorType::new(ty.elem, merged));
        rows = emit(f, Op::Reshape, vec![rows], Some(merged), data.loc, out)?;
    }
    let y = if is_centring && ty.elem == Elem::F32 {
        means::corrected(f, rows, kept.len(), data.loc, out)?
    } else {
        let op = Op::Reduce { kind, axes: vec![kept.len()], keep: true };
        let inner = InstData { op, operands: vec![rows], result: None, loc: data.loc, parts: Vec::new() };
        wrap(f, FusionKind::Rows, &inner, out)?
    };
    shape.push(Dim::one());
    if result.tensor().is_some_and(|t| t.shape == shape) {
        return Ok(y);
    }
    emit(f, Op::Reshape, vec![y], Some(result), data.loc, out)
}

/// Wraps one operation in a region, together with the constants and counters that it uses.
fn wrap(f: &mut Function, kind: FusionKind, data: &InstData, out: &mut Vec<Inst>) -> Result<Value, String> {
    let mut body = Function::new("");
    let entry = body.entry();
    let mut outer = Vec::new();
    let mut inner: Vec<Value> = Vec::new();
    for v in &data.operands {
        let source = f.definition(*v).map(|(_, d)| d.clone()).filter(|d| {
            d.op.info().class == Class::Source
                && d.operands.is_empty()
                && !matches!(d.op, Op::Param { .. } | Op::State { .. })
        });
        // The operands of a matmul or an attention must be arguments of the region.
        let takes_sources = matches!(kind, FusionKind::Map | FusionKind::Rows);
        inner.push(match source {
            Some(d) if takes_sources => {
                let ty = f.ty(*v).clone();
                body.push(entry, d.op, Vec::new(), Some(ty), d.loc).ok_or("a source without a result")?
            }
            _ => match outer.iter().position(|w| w == v) {
                Some(i) => body.block(entry).args[i],
                None => {
                    outer.push(*v);
                    body.add_block_arg(entry, f.ty(*v).clone())
                }
            },
        });
    }
    let y = body.append(entry, data.op.clone(), inner, None, data.loc)?.ok_or("an operation without a result")?;
    body.set_parts(y, &data.parts);
    body.terminate(entry, Terminator::Return(vec![y]));
    emit(f, Op::Fused { kind, body: Box::new(body) }, outer, None, data.loc, out)
}

/// `exp(x - m)` of rows, in `f32`.
struct Powers {
    zero: Value,
    /// `m`: the greatest element, 0 if that is `-inf`.
    greatest: Value,
    centred: Value,
    powers: Value,
    sum: Value,
}

fn powers(body: &mut Function, x: Value, axes: &[usize], loc: Loc, out: &mut Vec<Inst>) -> Result<Powers, String> {
    let floats = Elem::F32;
    let mut wide = x;
    if tensor(body, x)?.elem != floats {
        wide = emit(body, Op::Cast { elem: floats }, vec![x], None, loc, out)?;
    }
    let scalar = |body: &mut Function, v: f64, out: &mut Vec<Inst>| {
        let ty = Some(Type::Tensor(TensorType::scalar(floats)));
        emit(body, Op::Const(crate::ir::Scalar::Float(v)), Vec::new(), ty, loc, out)
    };
    let over = |kind| Op::Reduce { kind, axes: axes.to_vec(), keep: true };
    let m = emit(body, over(ReduceKind::Max), vec![wide], None, loc, out)?;
    let bottom = scalar(body, f64::NEG_INFINITY, out)?;
    let zero = scalar(body, 0.0, out)?;
    let none = emit(body, Op::Compare(CmpOp::Eq), vec![m, bottom], None, loc, out)?;
    let greatest = emit(body, Op::Where, vec![none, zero, m], None, loc, out)?;
    let centred = emit(body, Op::Binary(BinaryOp::Sub), vec![wide, greatest], None, loc, out)?;
    let powers = emit(body, Op::Unary(UnaryOp::Exp), vec![centred], None, loc, out)?;
    let sum = emit(body, over(ReduceKind::Sum), vec![powers], None, loc, out)?;
    Ok(Powers { zero, greatest, centred, powers, sum })
}

/// Expands softmaxes, `logsumexp` and means in a `rows` region into reductions and elementwise
/// operations; for means see `means`. Softmax, with `m` the maximum: `e = exp(x - m)`, `e /
/// sum(e)`. For a row that is all `-inf`, `m = 0` and the sum is 0; the result is zeros, or `-inf`
/// for log-softmax.
///
/// # Errors
/// A type rule's error, which is a bug in attnc.
pub(super) fn expand_rows(body: &mut Function) -> Result<(), String> {
    let mut replaced: SecondaryMap<Value, Option<Value>> = SecondaryMap::new();
    let mut means = Means::analyse(body);
    let block = body.entry();
    let insts = std::mem::take(&mut body.block_mut(block).insts);
    for inst in insts {
        let data = body.inst(inst).clone();
        let mut out = Vec::new();
        let loc = data.loc;
        let new = match &data.op {
            Op::Softmax { axis } | Op::LogSoftmax { axis } => {
                let x = operand(&data, 0)?;
                let elem = tensor(body, x)?.elem;
                let Powers { zero, centred, powers, sum, .. } = powers(body, x, &[*axis], loc, &mut out)?;
                let empty = emit(body, Op::Compare(CmpOp::Eq), vec![sum, zero], None, loc, &mut out)?;
                let mut y = if matches!(data.op, Op::Softmax { .. }) {
                    let q = emit(body, Op::Binary(BinaryOp::Div), vec![powers, sum], None, loc, &mut out)?;
                    emit(body, Op::Where, vec![empty, zero, q], None, loc, &mut out)?
                } else {
                    // For such a row nothing is subtracted from -inf.
                    let log = emit(body, Op::Unary(UnaryOp::Log), vec![sum], None, loc, &mut out)?;
                    let log = emit(body, Op::Where, vec![empty, zero, log], None, loc, &mut out)?;
                    emit(body, Op::Binary(BinaryOp::Sub), vec![centred, log], None, loc, &mut out)?
                };
                if elem != Elem::F32 {
                    y = emit(body, Op::Cast { elem }, vec![y], None, loc, &mut out)?;
                }
                Some(y)
            }
            Op::Reduce { kind: ReduceKind::LogSumExp, axes, .. } => {
                let x = operand(&data, 0)?;
                let elem = tensor(body, x)?.elem;
                let Powers { greatest, sum, .. } = powers(body, x, axes, loc, &mut out)?;
                // The logarithm of an empty sum is -inf.
                let log = emit(body, Op::Unary(UnaryOp::Log), vec![sum], None, loc, &mut out)?;
                let mut y = emit(body, Op::Binary(BinaryOp::Add), vec![greatest, log], None, loc, &mut out)?;
                if elem != Elem::F32 {
                    y = emit(body, Op::Cast { elem }, vec![y], None, loc, &mut out)?;
                }
                Some(y)
            }
            _ => {
                let new = means.expand(body, &data, &mut out)?;
                if new.is_none() {
                    out.push(inst);
                }
                new
            }
        };
        body.block_mut(block).insts.extend(out);
        if let (Some(old), Some(new)) = (data.result, new) {
            replaced[old] = Some(new);
        }
    }
    body.replace_uses(&replaced);
    Ok(())
}
