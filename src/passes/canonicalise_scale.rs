//! canonicalise-scale: merges all scales of an attention into one multiplication by one number,
//! next to `q @ k.T`.
//!
//! ```text
//! func @f(%0 "q": f32[S, 64], %1 "k.T": f32[64, S], %2 "v": f32[S, 64]) -> (f32[S, 64]) {
//! ^bb0:
//!   %3 = mul %0, 0.5                      : f32[S, 64]
//!   %4 = matmul %3, %1                    : f32[S, S]
//!   %5 = causal                           : bool[S, S]
//!   %6 = where %5, %4, -inf               : f32[S, S]
//!   %7 = div %6, 4.0                      : f32[S, S]
//!   %8 = softmax %7, axis=1               : f32[S, S]
//!   %9 = matmul %8, %2                    : f32[S, 64]
//!   return %9
//! }
//! ->
//! func @f(%0 "q": f32[S, 64], %1 "k.T": f32[64, S], %2 "v": f32[S, 64]) -> (f32[S, 64]) {
//! ^bb0:
//!   %3 = matmul %0, %1                    : f32[S, S]
//!   %4 = causal                           : bool[S, S]
//!   %5 = mul %3, 0.125                    : f32[S, S]
//!   %6 = where %4, %5, -inf               : f32[S, S]
//!   %7 = softmax %6, axis=1               : f32[S, S]
//!   %8 = matmul %7, %2                    : f32[S, 64]
//!   return %8
//! }
//! ```
//!
//! # Rewrites
//!
//! Only inside an attention whose other conditions hold (`scores`), so that no program changes for
//! nothing. With u = 2^-24 (2^-8 for bf16, 2^-11 for f16) and γ(n) = n u / (1 - n u):
//!
//! | name | rewrite | exact? |
//! |---|---|---|
//! | reciprocal-power | `x / c` to `x * (1/c)`, c a power of two, 1/c a normal number | yes |
//! | scale-into-select | `where(m, s, f) * c` to `where(m, s * c, f * c)` | yes |
//! | reciprocal | `x / c` to `x * (1/c)` | within γ(2) abs(x/c) of the quotient, which itself is within u |
//! | scale-into-sum | `(s + m) * c` to `s * c + m * c` | within γ(2) (abs(s c) + abs(m c)) |
//! | merge-scales | `(s * c1) * c2` to `s * (c1 c2)` | within γ(2) abs(s c1 c2), as before it |
//! | scale-over-matmul | `(q * c) @ k.T` to `(q @ k.T) * c`, and on `k` | within γ(D + 2) abs(c) Σ abs(q_d k_d), as before it; where `q * c` was rounded to a narrower type and cast, that rounding is gone |
//!
//! The rewrites that are not exact are the named rewrites that `--float contract` allows and
//! `strict` forbids. A scale of zero or infinity stays, and constants are not merged if their
//! product is not a normal number.
//!
//! # Limits
//!
//! A scale that is a tensor (one for each head) stays; so does every scale that is not part of an
//! attention. A scale does not move past a `tanh`: the scales on either side of it form a soft cap.

use super::rewrite::{Cursor, become_op, is_scalar, loc_of, made_by, round_to, splat};
use super::scores::{Site, Step, rewrite_sites};
use super::{Changed, Context, Float};
use crate::ir::{Function, Inst, Op, Scalar, Value};
use crate::scalar::BinaryOp;
use crate::shape::Elem;

/// The maximum number of movements and casts through which a scale is found.
const MAX_DEPTH: usize = 4;

pub(super) fn run(f: &mut Function, ctx: &mut Context) -> Changed {
    rewrite_sites(f, ctx, |f, site, ctx| rewrite(f, site, ctx.float))
}

/// Applies one rewrite; returns its name.
fn rewrite(f: &mut Function, site: &Site, float: Float) -> Result<Option<&'static str>, String> {
    for (i, below, step) in &site.steps {
        if let Step::Scale { by, divide: true } = *step
            && let Some(name) = reciprocal(f, site, *i, *below, by, float)?
        {
            return Ok(Some(name));
        }
    }
    for pair in site.steps.windows(2) {
        let [(lower, scores, first), (upper, _, Step::Scale { by, divide: false })] = pair else { continue };
        let name = match first {
            Step::Select { condition, fill, keep } => {
                into_select(f, site, (*lower, *upper), *scores, (*condition, *fill, *keep), *by)?
            }
            Step::Add { mask, subtract } if float != Float::Strict => {
                into_sum(f, site, (*lower, *upper), *scores, (*mask, *subtract), *by)?
            }
            Step::Scale { by: inner, divide: false } if float != Float::Strict => {
                merge(f, site, *upper, *scores, *inner, *by)?
            }
            Step::Add { .. } | Step::Scale { .. } | Step::Tanh | Step::Widen => None,
        };
        if name.is_some() {
            return Ok(name);
        }
    }
    if float == Float::Strict { Ok(None) } else { over_matmul(f, site) }
}

/// Is this a normal number: not zero, infinite or subnormal?
fn is_ordinary(elem: Elem, x: f64) -> bool {
    match elem {
        Elem::F32 => (x as f32).is_normal(),
        Elem::BF16 => half::bf16::from_f64(x).is_normal(),
        Elem::F16 => half::f16::from_f64(x).is_normal(),
        Elem::I8 | Elem::I32 | Elem::I64 | Elem::Bool => false,
    }
}

fn is_power_of_two(x: f64) -> bool {
    x.is_normal() && x.to_bits() & ((1 << 52) - 1) == 0
}

fn elem_of(f: &Function, v: Value) -> Result<Elem, String> {
    f.tensor(v).map(|t| t.elem).ok_or_else(|| "a scale is not a tensor".to_string())
}

/// A scalar as a tensor of rank 0, even if it is splatted over a larger shape.
fn scalar(f: &mut Function, at: Cursor, v: Value) -> Result<Value, String> {
    match splat(f, v) {
        Some(s) if f.tensor(v).is_some_and(|t| t.rank() > 0) => {
            let elem = elem_of(f, v)?;
            at.constant(f, s, elem)
        }
        _ => Ok(v),
    }
}

fn reciprocal(
    f: &mut Function,
    site: &Site,
    div: Inst,
    x: Value,
    by: Value,
    float: Float,
) -> Result<Option<&'static str>, String> {
    let at = Cursor::before(f, site.block, div);
    let elem = elem_of(f, by)?;
    let (name, factor) = match splat(f, by).map(Scalar::as_f64) {
        Some(c) => {
            let inverse = round_to(elem, 1.0 / c);
            let exact = is_power_of_two(c);
            if !is_ordinary(elem, c) || !is_ordinary(elem, inverse) || (!exact && float == Float::Strict) {
                return Ok(None);
            }
            let name = if exact { "reciprocal-power" } else { "reciprocal" };
            (name, at.constant(f, Scalar::Float(inverse), elem)?)
        }
        None if float == Float::Strict => return Ok(None),
        None => {
            let one = at.constant(f, Scalar::Float(1.0), elem)?;
            ("reciprocal", at.insert(f, Op::Binary(BinaryOp::Div), vec![one, by])?)
        }
    };
    become_op(f, div, Op::Binary(BinaryOp::Mul), vec![x, factor]);
    Ok(Some(name))
}

/// `a * b` for scalars, folded if both are constants; `None` if the result is not a normal number.
fn product(f: &mut Function, at: Cursor, a: Value, b: Value) -> Result<Option<Value>, String> {
    let elem = elem_of(f, a)?;
    match (splat(f, a), splat(f, b)) {
        (Some(x), Some(y)) => {
            let p = round_to(elem, x.as_f64() * y.as_f64());
            if is_ordinary(elem, p) { at.constant(f, Scalar::Float(p), elem).map(Some) } else { Ok(None) }
        }
        _ => {
            let (a, b) = (scalar(f, at, a)?, scalar(f, at, b)?);
            at.insert(f, Op::Binary(BinaryOp::Mul), vec![a, b]).map(Some)
        }
    }
}

fn into_select(
    f: &mut Function,
    site: &Site,
    (select, mul): (Inst, Inst),
    scores: Value,
    (condition, fill, keep): (Value, Value, bool),
    by: Value,
) -> Result<Option<&'static str>, String> {
    let at = Cursor::before(f, site.block, mul);
    let elem = elem_of(f, fill)?;
    let scaled_fill = match (splat(f, fill), splat(f, by)) {
        // The same value that the program computes for each masked score, even if it is infinite or
        // NaN.
        (Some(x), Some(c)) => at.constant(f, Scalar::Float(round_to(elem, x.as_f64() * c.as_f64())), elem)?,
        _ => {
            let (fill, by) = (scalar(f, at, fill)?, scalar(f, at, by)?);
            at.insert(f, Op::Binary(BinaryOp::Mul), vec![fill, by])?
        }
    };
    let scaled = at.insert(f, Op::Binary(BinaryOp::Mul), vec![scores, by])?;
    let operands = if keep { vec![condition, scaled, scaled_fill] } else { vec![condition, scaled_fill, scaled] };
    become_op(f, mul, Op::Where, operands);
    f.inst_mut(mul).loc = f.inst(select).loc;
    Ok(Some("scale-into-select"))
}

fn into_sum(
    f: &mut Function,
    site: &Site,
    (add, mul): (Inst, Inst),
    scores: Value,
    (mask, subtract): (Value, bool),
    by: Value,
) -> Result<Option<&'static str>, String> {
    let at = Cursor::before(f, site.block, mul);
    let scaled_mask = at.insert(f, Op::Binary(BinaryOp::Mul), vec![mask, by])?;
    let scaled = at.insert(f, Op::Binary(BinaryOp::Mul), vec![scores, by])?;
    let op = if subtract { BinaryOp::Sub } else { BinaryOp::Add };
    become_op(f, mul, Op::Binary(op), vec![scaled, scaled_mask]);
    f.inst_mut(mul).loc = f.inst(add).loc;
    Ok(Some("scale-into-sum"))
}

fn merge(
    f: &mut Function,
    site: &Site,
    outer: Inst,
    scores: Value,
    inner_by: Value,
    outer_by: Value,
) -> Result<Option<&'static str>, String> {
    let at = Cursor::before(f, site.block, outer);
    let Some(by) = product(f, at, inner_by, outer_by)? else { return Ok(None) };
    become_op(f, outer, Op::Binary(BinaryOp::Mul), vec![scores, by]);
    Ok(Some("merge-scales"))
}

/// A scale found on an operand of the matmul: the scaled value, the scale, and whether it divides.
type Scaled = (Value, Value, bool);

/// A movement or a cast between a scale and the matmul.
enum Over {
    Transpose(Vec<usize>),
    Widen,
}

fn scaled(f: &Function, v: Value) -> Option<Scaled> {
    let shape = |v: Value| f.tensor(v).map(|t| t.shape.clone());
    match made_by(f, v)? {
        (_, Op::Binary(BinaryOp::Mul), [x, c]) if is_scalar(f, *c) && shape(*x) == shape(v) => Some((*x, *c, false)),
        (_, Op::Binary(BinaryOp::Mul), [c, x]) if is_scalar(f, *c) && shape(*x) == shape(v) => Some((*x, *c, false)),
        (_, Op::Binary(BinaryOp::Div), [x, c]) if is_scalar(f, *c) && shape(*x) == shape(v) => Some((*x, *c, true)),
        _ => None,
    }
}

fn over_matmul(f: &mut Function, site: &Site) -> Result<Option<&'static str>, String> {
    let at = Cursor::before(f, site.block, site.scores);
    for side in 0..2 {
        let mut operands = f.inst(site.scores).operands.clone();
        let Some(operand) = operands.get(side).copied() else { continue };
        // A scale may be behind a transpose, since `(k * c).T` is `k.T * c`, and behind a cast,
        // which then rounds less.
        let mut inner = operand;
        let mut over = Vec::new();
        while over.len() < MAX_DEPTH {
            let (step, x) = match made_by(f, inner) {
                Some((_, Op::Transpose { perm }, [x])) => (Over::Transpose(perm.clone()), *x),
                Some((_, Op::Cast { elem: Elem::F32 }, [x])) if elem_of(f, *x)?.is_float() => (Over::Widen, *x),
                _ => break,
            };
            over.push(step);
            inner = x;
        }
        let Some((mut x, mut by, divide)) = scaled(f, inner) else { continue };
        let loc = loc_of(f, inner);
        if let Some(c) = splat(f, by)
            && !is_ordinary(elem_of(f, by)?, c.as_f64())
        {
            continue;
        }
        by = scalar(f, at, by)?;
        for step in over.into_iter().rev() {
            match step {
                Over::Transpose(perm) => x = at.insert(f, Op::Transpose { perm }, vec![x])?,
                Over::Widen => {
                    x = at.insert(f, Op::Cast { elem: Elem::F32 }, vec![x])?;
                    by = match splat(f, by) {
                        Some(c) => {
                            let c = round_to(elem_of(f, by)?, c.as_f64());
                            at.constant(f, Scalar::Float(c), Elem::F32)?
                        }
                        None => at.insert(f, Op::Cast { elem: Elem::F32 }, vec![by])?,
                    };
                }
            }
        }
        operands[side] = x;
        let bare = at.insert(f, Op::Matmul, operands)?;
        let op = if divide { BinaryOp::Div } else { BinaryOp::Mul };
        become_op(f, site.scores, Op::Binary(op), vec![bare, by]);
        f.inst_mut(site.scores).loc = loc;
        return Ok(Some("scale-over-matmul"));
    }
    Ok(None)
}
