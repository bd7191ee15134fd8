//! canonicalise-mask: turns every mask of an attention into `where(keep, scores, number)` or
//! `scores + mask`.
//!
//! ```text
//! func @f(%0 "q": f32[S, 64], %1 "k.T": f32[64, S], %2 "v": f32[S, 64], %3 "padding": bool[1, S]) -> (f32[S, 64]) {
//! ^bb0:
//!   %4 = matmul %0, %1                    : f32[S, S]
//!   %5 = causal                           : bool[S, S]
//!   %6 = not %5                           : bool[S, S]
//!   %7 = or %6, %3                        : bool[S, S]
//!   %8 = where %7, -inf, %4               : f32[S, S]
//!   %9 = softmax %8, axis=1               : f32[S, S]
//!   %10 = matmul %9, %2                   : f32[S, 64]
//!   return %10
//! }
//! ->
//! func @f(%0 "q": f32[S, 64], %1 "k.T": f32[64, S], %2 "v": f32[S, 64], %3 "padding": bool[1, S]) -> (f32[S, 64]) {
//! ^bb0:
//!   %4 = matmul %0, %1                    : f32[S, S]
//!   %5 = causal                           : bool[S, S]
//!   %6 = not %3                           : bool[1, S]
//!   %7 = where %6, %4, -inf               : f32[S, S]
//!   %8 = where %5, %7, -inf               : f32[S, S]
//!   %9 = softmax %8, axis=1               : f32[S, S]
//!   %10 = matmul %9, %2                   : f32[S, 64]
//!   return %10
//! }
//! ```
//!
//! so that `fuse-attention` recognises `causal`, and small masks stay small instead of being merged
//! into a large one.
//!
//! # Rewrites
//!
//! Only inside an attention whose other conditions hold (`scores`). All are exact but the last:
//!
//! | name | rewrite |
//! |---|---|
//! | keep-not-hide | `where(c, number, s)` to `where(not c, s, number)`; `not` goes through `not`, `or` and integer comparisons |
//! | split-and | `where(a and b, s, f)` to `where(a, where(b, s, f), f)`, where a side is `causal` or smaller than the whole |
//! | plain-view | a mask that is only broadcast, or has axes of 1 put before it, is taken as it was |
//! | add-not-subtract | `s - m` to `s + (-m)` |
//! | scores-first | `m + s` to `s + m` |
//! | causal-by-counting | `i >= j` and its likes, on counters of rows and columns, to `causal` |
//! | select-not-add | `s + where(c, 0, -inf)` to `where(c, s, -inf)`, under `fast` alone |
//!
//! The last one drops a NaN or `+inf` among the hidden scores, which the sum keeps; so under
//! `contract` the sum stays (and fuses as an additive mask), and a remark suggests the `where`.
//!
//! # Limits
//!
//! `scores * mask` is not a mask. A mask of large finite numbers stays additive: it has another
//! result for rows that it hides entirely.

use super::rewrite::{Cursor, become_op, made_by, splat};
use super::scores::{Site, Step, rewrite_sites};
use super::{Changed, Condition, Context, Edit, Float, counters};
use crate::ir::{Function, Inst, Op, Scalar, Value};
use crate::scalar::{BinaryOp, CmpOp, UnaryOp};
use crate::shape::{Dim, Elem, TensorType};

/// The maximum depth to which a condition is searched.
const MAX_DEPTH: usize = 16;

pub(super) fn run(f: &mut Function, ctx: &mut Context) -> Changed {
    rewrite_sites(f, ctx, rewrite)
}

type Rewritten = Result<Option<&'static str>, String>;

fn rewrite(f: &mut Function, site: &Site, ctx: &mut Context) -> Rewritten {
    for (i, scores, step) in &site.steps {
        let made = match *step {
            Step::Scale { .. } | Step::Tanh | Step::Widen => None,
            Step::Select { condition, fill, keep } => select(f, site, *i, *scores, condition, fill, keep)?,
            Step::Add { mask, subtract } => sum(f, site, *i, *scores, mask, subtract, ctx)?,
        };
        if made.is_some() {
            return Ok(made);
        }
    }
    Ok(None)
}

fn select(
    f: &mut Function,
    site: &Site,
    i: Inst,
    scores: Value,
    condition: Value,
    fill: Value,
    keep: bool,
) -> Rewritten {
    let at = Cursor::before(f, site.block, i);
    if let Some(x) = plain_view(f, condition) {
        become_op(f, i, Op::Where, if keep { vec![x, scores, fill] } else { vec![x, fill, scores] });
        return Ok(Some("plain-view"));
    }
    if !keep {
        let kept = negated(f, at, condition, MAX_DEPTH)?;
        become_op(f, i, Op::Where, vec![kept, scores, fill]);
        return Ok(Some("keep-not-hide"));
    }
    if let Some(x) = behind_not(f, condition)
        && takes_up_not(f, x)
    {
        let plain = negated(f, at, x, MAX_DEPTH)?;
        become_op(f, i, Op::Where, vec![plain, scores, fill]);
        return Ok(Some("keep-not-hide"));
    }
    if let Some((_, Op::Binary(BinaryOp::And), [a, b])) = made_by(f, condition) {
        let (a, b) = (*a, *b);
        if worth_splitting(f, condition, a, b) {
            let inner = at.insert(f, Op::Where, vec![b, scores, fill])?;
            become_op(f, i, Op::Where, vec![a, inner, fill]);
            return Ok(Some("split-and"));
        }
    }
    let shape = shape_of(f, scores);
    if shape.len() >= 2 && counters::is_causal(f, condition, &shape[shape.len() - 2..]) {
        let ty = TensorType::new(Elem::Bool, &shape[shape.len() - 2..]);
        let causal = at.insert_as(f, Op::Causal, Vec::new(), Some(ty))?;
        become_op(f, i, Op::Where, vec![causal, scores, fill]);
        return Ok(Some("causal-by-counting"));
    }
    Ok(None)
}

fn sum(
    f: &mut Function,
    site: &Site,
    i: Inst,
    scores: Value,
    mask: Value,
    subtract: bool,
    ctx: &mut Context,
) -> Rewritten {
    let at = Cursor::before(f, site.block, i);
    if subtract {
        let negative = at.insert(f, Op::Unary(UnaryOp::Neg), vec![mask])?;
        become_op(f, i, Op::Binary(BinaryOp::Add), vec![scores, negative]);
        return Ok(Some("add-not-subtract"));
    }
    let hidden = hides(f, mask);
    if let Some((made, _, keep)) = hidden.filter(|_| ctx.float != Float::Fast) {
        let text = "the mask stays additive: adding -inf keeps a NaN among hidden scores, `where(mask, scores, -inf)` \
                    does not";
        let at = f.inst(i).operands.iter().position(|v| *v == scores).unwrap_or(0);
        let with = if keep { "where({=0}, {=1}, -inf)" } else { "where({=0}, -inf, {=1})" };
        let edit = Edit::replace(f, i, with, &[(made, 0), (i, at)]);
        ctx.missed_with(f, f.inst(i).loc, Condition::Mask, text, Vec::new(), vec![edit]);
    }
    if f.inst(i).operands.first() != Some(&scores) {
        become_op(f, i, Op::Binary(BinaryOp::Add), vec![scores, mask]);
        return Ok(Some("scores-first"));
    }
    if let Some(x) = plain_view(f, mask) {
        become_op(f, i, Op::Binary(BinaryOp::Add), vec![scores, x]);
        return Ok(Some("plain-view"));
    }
    let Some((_, condition, keep)) = hidden.filter(|_| ctx.float == Float::Fast) else { return Ok(None) };
    let Some(elem) = f.tensor(scores).map(|t| t.elem) else { return Ok(None) };
    let fill = at.constant(f, Scalar::Float(f64::NEG_INFINITY), elem)?;
    let operands = if keep { vec![condition, scores, fill] } else { vec![condition, fill, scores] };
    become_op(f, i, Op::Where, operands);
    Ok(Some("select-not-add"))
}

/// If this is `where(c, 0, -inf)`, or the opposite: the `where`, its condition, and whether that
/// keeps.
fn hides(f: &Function, mask: Value) -> Option<(Inst, Value, bool)> {
    let (inst, Op::Where, [c, a, b]) = made_by(f, mask)? else { return None };
    const HIDE: Option<f64> = Some(f64::NEG_INFINITY);
    match (splat(f, *a).map(Scalar::as_f64), splat(f, *b).map(Scalar::as_f64)) {
        (Some(0.0), HIDE) => Some((inst, *c, true)),
        (HIDE, Some(0.0)) => Some((inst, *c, false)),
        _ => None,
    }
}

fn shape_of(f: &Function, v: Value) -> Vec<Dim> {
    f.tensor(v).map(|t| t.shape.clone()).unwrap_or_default()
}

fn behind_not(f: &Function, v: Value) -> Option<Value> {
    match made_by(f, v)? {
        (_, Op::Unary(UnaryOp::Not), [x]) => Some(*x),
        _ => None,
    }
}

/// Can `not v` be formed without a new `not`, or by moving it further up?
fn takes_up_not(f: &Function, v: Value) -> bool {
    match made_by(f, v) {
        Some((_, Op::Unary(UnaryOp::Not) | Op::Binary(BinaryOp::Or), _)) => true,
        Some((_, Op::Compare(_), operands)) => counts(f, operands),
        _ => false,
    }
}

/// Are all operands integers? The negation of a float comparison is not a comparison: NaN is
/// neither less nor greater.
fn counts(f: &Function, operands: &[Value]) -> bool {
    operands.iter().all(|x| f.tensor(*x).is_some_and(|t| t.elem.is_int()))
}

/// The negation of a condition: by De Morgan, by the opposite comparison where that is exact
/// (integers only, since a float may be NaN), else by `not`.
fn negated(f: &mut Function, at: Cursor, v: Value, depth: usize) -> Result<Value, String> {
    if let Some(x) = behind_not(f, v) {
        return Ok(x);
    }
    let found = made_by(f, v).map(|(_, op, operands)| (op.clone(), operands.to_vec()));
    match found {
        Some((Op::Binary(BinaryOp::Or), ab)) if depth > 0 && ab.len() == 2 => {
            let (a, b) = (negated(f, at, ab[0], depth - 1)?, negated(f, at, ab[1], depth - 1)?);
            at.insert(f, Op::Binary(BinaryOp::And), vec![a, b])
        }
        Some((Op::Compare(cmp), ab)) if counts(f, &ab) => at.insert(f, Op::Compare(opposite(cmp)), ab),
        _ => at.insert(f, Op::Unary(UnaryOp::Not), vec![v]),
    }
}

fn opposite(cmp: CmpOp) -> CmpOp {
    match cmp {
        CmpOp::Eq => CmpOp::Ne,
        CmpOp::Ne => CmpOp::Eq,
        CmpOp::Lt => CmpOp::Ge,
        CmpOp::Ge => CmpOp::Lt,
        CmpOp::Le => CmpOp::Gt,
        CmpOp::Gt => CmpOp::Le,
    }
}

/// The mask before it was broadcast or got leading axes of 1, if the `where` or sum broadcasts it
/// to the same shape anyway.
fn plain_view(f: &Function, mask: Value) -> Option<Value> {
    let leading_ones = |shape: &[Dim], of: &[Dim]| {
        let extra = shape.len().checked_sub(of.len())?;
        (shape[..extra].iter().all(|d| d.as_const() == Some(1)) && &shape[extra..] == of).then_some(())
    };
    match made_by(f, mask)? {
        (_, Op::Broadcast, [x]) => Some(*x),
        (_, Op::Reshape, [x]) => leading_ones(&shape_of(f, mask), &shape_of(f, *x)).map(|()| *x),
        _ => None,
    }
}

/// Is it better to use two masks than their conjunction: because that exposes `causal`, or because
/// the conjunction is larger than each?
fn worth_splitting(f: &Function, whole: Value, a: Value, b: Value) -> bool {
    let shape = shape_of(f, whole);
    let counts =
        |v: Value| matches!(made_by(f, v), Some((_, Op::Causal | Op::Compare(_) | Op::Binary(BinaryOp::And), _)));
    counts(a) || counts(b) || shape_of(f, a) != shape || shape_of(f, b) != shape
}
