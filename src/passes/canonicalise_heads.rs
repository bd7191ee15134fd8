//! canonicalise-heads: computes scores directly in the groups into which a `reshape` splits them.
//!
//! ```text
//! func @f(%0 "q": f32[2, 4*S, 64], %1 "k.T": f32[2, 64, T], %2 "v": f32[2, T, 64]) -> (f32[2, 4*S, 64]) {
//! ^bb0:
//!   %3 = matmul %0, %1                    : f32[2, 4*S, T]
//!   %4 = reshape %3                       : f32[2, 4, S, T]
//!   %5 = softmax %4, axis=3               : f32[2, 4, S, T]
//!   %6 = reshape %5                       : f32[2, 4*S, T]
//!   %7 = matmul %6, %2                    : f32[2, 4*S, 64]
//!   return %7
//! }
//! ->
//! func @f(%0 "q": f32[2, 4*S, 64], %1 "k.T": f32[2, 64, T], %2 "v": f32[2, T, 64]) -> (f32[2, 4*S, 64]) {
//! ^bb0:
//!   %3 = reshape %1                       : f32[2, 1, 64, T]
//!   %4 = reshape %0                       : f32[2, 4, S, 64]
//!   %5 = matmul %4, %3                    : f32[2, 4, S, T]
//!   %6 = softmax %5, axis=3               : f32[2, 4, S, T]
//!   %7 = reshape %2                       : f32[2, 1, T, 64]
//!   %8 = matmul %6, %7                    : f32[2, 4, S, 64]
//!   %9 = reshape %8                       : f32[2, 4*S, 64]
//!   return %9
//! }
//! ```
//!
//! The first program is what `einsum("g r s d, g t d -> g r s t", q, k)` lowers to, and what heads
//! folded into the batch look like.
//!
//! # Rewrites
//!
//! All are exact: each element of the result is the same sum, and `reshape` is a view.
//!
//! | name | rewrite | where |
//! |---|---|---|
//! | rows | `reshape(a @ b)` that splits the rows to `reshape(a) @ reshape(b)`, b with an axis of 1 | before a softmax |
//! | batch | `reshape(a @ b)` that regroups equal leading axes of a and b, likewise | before a softmax |
//! | weights | `reshape(w) @ v`, w from a softmax, to `reshape(w @ reshape(v))`, either way | after a softmax |
//! | repeated | `a @ broadcast(b)`, leading axes alone, to `a @ b` if the matmul broadcasts anyway | at a softmax |
//!
//! # Limits
//!
//! Scores are not regrouped if a mask or a scale stands between the matmul and the `reshape`. Keys
//! that were repeated and then folded into their heads stay as they are; `fuse-attention` accepts
//! them.

use super::rewrite::{Cursor, are_weights, become_op, feeds_softmax, made_by, remove_unused};
use super::{Changed, Context};
use crate::ir::{Block, Function, Inst, Op, Type, Value};
use crate::shape::{Dim, TensorType, broadcast};

pub(super) fn run(f: &mut Function, ctx: &mut Context) -> Changed {
    let mut changed = 0;
    for (block, inst) in f.insts().map(|(b, i, _)| (b, i)).collect::<Vec<_>>() {
        let made = match f.inst(inst).op {
            Op::Reshape => scores(f, block, inst),
            Op::Matmul => match weights(f, block, inst) {
                Ok(None) => repeated(f, block, inst),
                made => made,
            },
            _ => continue,
        };
        // An error of a rule means that the rewrite does not fit; the function is left unchanged.
        if let Ok(Some(name)) = made {
            changed += 1;
            ctx.count(name, 1);
        }
    }
    if changed > 0 {
        remove_unused(f);
    }
    Changed::from(changed > 0)
}

type Rewritten = Result<Option<&'static str>, String>;

/// How leading axes and rows `[lead.., m]` become `[lead'.., m']`.
enum Regroup {
    /// The leading axes stay, and the rows are split into several axes; the other operand gets this
    /// many axes of extent 1.
    Rows(usize),
    /// The leading axes become these; the rows stay.
    Batch(Vec<Dim>),
}

/// Compares `whole = [lead.., m, n]` with `split = [lead'.., m', n]`.
fn regroup(whole: &[Dim], split: &[Dim]) -> Option<(Regroup, &'static str)> {
    let ([lead @ .., m, n], [other @ .., last]) = (whole, split) else { return None };
    let (other_m, other_lead) = other.split_last()?;
    if n != last {
        return None;
    }
    if other.len() > lead.len() && &other[..lead.len()] == lead && Dim::product(&other[lead.len()..]) == *m {
        return Some((Regroup::Rows(other.len() - lead.len() - 1), "rows"));
    }
    (other_m == m && Dim::product(other_lead) == Dim::product(lead))
        .then(|| (Regroup::Batch(other_lead.to_vec()), "batch"))
}

fn ty(f: &Function, v: Value) -> Result<TensorType, String> {
    f.tensor(v).cloned().ok_or_else(|| "no tensor".to_string())
}

/// The type of the right operand of a regrouped matmul: `[lead.., k, n]` with axes of 1 inserted,
/// or with the new leading axes.
fn right(t: &TensorType, lead: &[Dim], how: &Regroup) -> Option<TensorType> {
    let [own @ .., k, n] = t.shape.as_slice() else { return None };
    let new_lead = match how {
        Regroup::Rows(ones) => [own, &vec![Dim::one(); *ones]].concat(),
        Regroup::Batch(to) if own == lead => to.clone(),
        Regroup::Batch(_) => return None,
    };
    Some(TensorType::new(t.elem, [new_lead, vec![k.clone(), n.clone()]].concat()))
}

/// The value reshaped to `shape`; the value itself if it has that shape.
fn reshape(f: &mut Function, at: Cursor, v: Value, shape: Vec<Dim>) -> Result<Value, String> {
    let t = ty(f, v)?;
    if t.shape == shape {
        return Ok(v);
    }
    // A reshape of a reshape is a single reshape, or none if it restores the original shape.
    let mut from = v;
    if let Some((_, Op::Reshape, [x])) = made_by(f, v) {
        from = *x;
    }
    if ty(f, from)?.shape == shape {
        return Ok(from);
    }
    at.insert_as(f, Op::Reshape, vec![from], Some(TensorType::new(t.elem, shape)))
}

/// Regroups `reshape(a @ b)` that feeds a softmax.
fn scores(f: &mut Function, block: Block, inst: Inst) -> Rewritten {
    let Some(product) = f.inst(inst).operands.first().copied() else { return Ok(None) };
    let Some((matmul, Op::Matmul, [a, b])) = made_by(f, product) else { return Ok(None) };
    let (a, b) = (*a, *b);
    let uses = f.uses();
    if uses[product].len() != 1 || !f.block(block).insts.contains(&matmul) || !feeds_softmax(f, &uses, inst) {
        return Ok(None);
    }
    let Some(split) = f.inst(inst).result.and_then(|v| f.tensor(v)).cloned() else { return Ok(None) };
    let whole = ty(f, product)?;
    let Some((how, name)) = regroup(&whole.shape, &split.shape) else { return Ok(None) };
    let lead = &whole.shape[..whole.rank() - 2];
    let at = Cursor { loc: f.inst(matmul).loc, ..Cursor::before(f, block, inst) };

    let left = ty(f, a)?;
    let ([own @ .., _, k], [other @ .., _]) = (left.shape.as_slice(), split.shape.as_slice()) else { return Ok(None) };
    let rows = match &how {
        // `a` may have fewer leading axes than the result of the matmul; the axes after them are
        // the same.
        Regroup::Rows(_) => [own, &other[lead.len()..]].concat(),
        Regroup::Batch(_) if own == lead => other.to_vec(),
        Regroup::Batch(_) => return Ok(None),
    };
    let new_a = TensorType::new(left.elem, [rows, vec![k.clone()]].concat());
    let Some(new_b) = right(&ty(f, b)?, lead, &how) else { return Ok(None) };
    if product_shape(&new_a, &new_b)? != split.shape {
        return Ok(None);
    }
    let new_b = reshape(f, at, b, new_b.shape)?;
    let new_a = reshape(f, at, a, new_a.shape)?;
    become_op(f, inst, Op::Matmul, vec![new_a, new_b]);
    f.inst_mut(inst).loc = at.loc;
    Ok(Some(name))
}

/// Moves the reshape in `reshape(w) @ v` after a softmax.
fn weights(f: &mut Function, block: Block, inst: Inst) -> Rewritten {
    let [joined, v] = f.inst(inst).operands.as_slice() else { return Ok(None) };
    let (joined, v) = (*joined, *v);
    let Some((_, Op::Reshape, [w])) = made_by(f, joined) else { return Ok(None) };
    let w = *w;
    if !are_weights(f, w) {
        return Ok(None);
    }
    let uses = f.uses();
    if uses[w].len() != 1 || uses[joined].len() != 1 {
        return Ok(None);
    }
    let (whole, split) = (ty(f, joined)?, ty(f, w)?);
    let Some((how, _)) = regroup(&whole.shape, &split.shape) else { return Ok(None) };
    let lead = &whole.shape[..whole.rank() - 2];
    let values = ty(f, v)?;
    // The values must not add leading axes to the leading axes of the weights.
    let fits = values.rank() >= 2
        && broadcast(lead, &values.shape[..values.rank() - 2]).is_ok_and(|both| both.as_slice() == lead);
    if !fits {
        return Ok(None);
    }
    let Some(new_v) = right(&values, lead, &how) else { return Ok(None) };
    product_shape(&split, &new_v)?;
    let at = Cursor::before(f, block, inst);
    let new_v = reshape(f, at, v, new_v.shape)?;
    let product = at.insert(f, Op::Matmul, vec![w, new_v])?;
    become_op(f, inst, Op::Reshape, vec![product]);
    Ok(Some("weights"))
}

/// Removes the broadcast in `a @ broadcast(b)` inside an attention, also behind a transpose of the
/// last two axes.
fn repeated(f: &mut Function, block: Block, inst: Inst) -> Rewritten {
    let [a, b] = f.inst(inst).operands.as_slice() else { return Ok(None) };
    let (a, b) = (*a, *b);
    let (perm, repeated) = match made_by(f, b) {
        Some((_, Op::Transpose { perm }, [x])) => (Some(perm.clone()), *x),
        _ => (None, b),
    };
    let Some((_, Op::Broadcast, [x])) = made_by(f, repeated) else { return Ok(None) };
    let x = *x;
    if !are_weights(f, a) && !feeds_softmax(f, &f.uses(), inst) {
        return Ok(None);
    }
    let (from, to) = (ty(f, x)?, ty(f, repeated)?);
    let rank = to.rank();
    if from.rank() != rank || rank < 2 || from.shape[rank - 2..] != to.shape[rank - 2..] {
        return Ok(None);
    }
    if perm.as_ref().is_some_and(|p| p.iter().take(rank - 2).enumerate().any(|(i, p)| i != *p)) {
        return Ok(None);
    }
    let result = f.inst(inst).result.map(|v| ty(f, v)).transpose()?;
    let plain = match &perm {
        Some(perm) => {
            TensorType::new(from.elem, perm.iter().filter_map(|p| from.shape.get(*p).cloned()).collect::<Vec<_>>())
        }
        None => from,
    };
    if Some(product_shape(&ty(f, a)?, &plain)?) != result.map(|t| t.shape) {
        return Ok(None);
    }
    let at = Cursor::before(f, block, inst);
    let plain = match perm {
        Some(perm) => at.insert(f, Op::Transpose { perm }, vec![x])?,
        None => x,
    };
    become_op(f, inst, Op::Matmul, vec![a, plain]);
    Ok(Some("repeated"))
}

/// The shape of `a @ b`. Computed before anything is inserted, so that a rewrite that does not fit
/// leaves no garbage.
fn product_shape(a: &TensorType, b: &TensorType) -> Result<Vec<Dim>, String> {
    let (a, b) = (Type::Tensor(a.clone()), Type::Tensor(b.clone()));
    let product = crate::ir::result_type(&Op::Matmul, &[&a, &b], None)?;
    Ok(product.as_ref().and_then(|t| t.tensor()).map(|t| t.shape.clone()).unwrap_or_default())
}
