//! canonicalise-cast: moves casts to `f32` below the scores, so that scores whose softmax is in
//! `f32` are `f32` throughout.
//!
//! ```text
//! func @f(%0 "q": bf16[S, 64], %1 "k.T": bf16[64, S], %2 "v": bf16[S, 64]) -> (bf16[S, 64]) {
//! ^bb0:
//!   %3 = matmul %0, %1                    : bf16[S, S]
//!   %4 = mul %3, bf16(0.125)              : bf16[S, S]
//!   %5 = causal                           : bool[S, S]
//!   %6 = where %5, %4, bf16(-inf)         : bf16[S, S]
//!   %7 = cast %6                          : f32[S, S]
//!   %8 = softmax %7, axis=1               : f32[S, S]
//!   %9 = cast %8                          : bf16[S, S]
//!   %10 = matmul %9, %2                   : bf16[S, 64]
//!   return %10
//! }
//! ->
//! func @f(%0 "q": bf16[S, 64], %1 "k.T": bf16[64, S], %2 "v": bf16[S, 64]) -> (bf16[S, 64]) {
//! ^bb0:
//!   %3 = causal                           : bool[S, S]
//!   %4 = cast %0                          : f32[S, 64]
//!   %5 = cast %1                          : f32[64, S]
//!   %6 = matmul %4, %5                    : f32[S, S]
//!   %7 = mul %6, 0.125                    : f32[S, S]
//!   %8 = where %3, %7, -inf               : f32[S, S]
//!   %9 = softmax %8, axis=1               : f32[S, S]
//!   %10 = cast %9                         : bf16[S, S]
//!   %11 = matmul %10, %2                  : bf16[S, 64]
//!   return %11
//! }
//! ```
//!
//! so that `fuse-attention`, which computes scores in `f32` whatever the type of queries and keys,
//! finds no cast among the scores. (It takes queries and keys as they were before the casts.)
//!
//! # Rewrites
//!
//! Only inside an attention whose other conditions hold (`scores`), and only casts from `bf16` or
//! `f16` to `f32`. Each rewrite moves a cast one step towards `q @ k.T`. Let w = 2^-8 for `bf16`
//! and 2^-11 for `f16`, and let t bound the error of underflow (2^-126, 2^-25). Where nothing
//! overflows:
//!
//! | name | rewrite | by how much an element may differ |
//! |---|---|---|
//! | cast-into-select | `cast(where(m, s, f))` to `where(m, cast(s), cast(f))` | not at all |
//! | cast-into-join | `cast(concat(s, x))` to `concat(cast(s), cast(x))`, and of `pad` | not at all |
//! | cast-into-scale | `cast(s * c)` to `cast(s) * cast(c)`, and of `/` | w abs(s c) + t: it is not rounded to the type |
//! | cast-into-sum | `cast(s + m)` to `cast(s) + cast(m)`, and of `-` | w abs(s + m) |
//! | cast-into-tanh | `cast(tanh(s))` to `tanh(cast(s))` | w abs(tanh(s)) + t |
//! | cast-over-matmul | `cast(q @ k.T)` to `cast(q) @ cast(k.T)` | w abs(q @ k.T) + t |
//!
//! Each inexact rewrite removes one rounding that the program has, so the scores come closer to the
//! exact ones; `--float strict` forbids them all.
//!
//! # Limits
//!
//! A cast to a narrower type stays, and attention with such a cast among its scores is not fused.
//! Casts of the weights need not move: they are part of the pattern that `fuse-attention` matches.

use super::rewrite::{Cursor, become_op, round_to, splat};
use super::scores::{Site, Step, rewrite_sites};
use super::{Changed, Context, Float};
use crate::ir::{Function, Op, Scalar, Value};
use crate::shape::Elem;

pub(super) fn run(f: &mut Function, ctx: &mut Context) -> Changed {
    if ctx.float == Float::Strict {
        return Changed::No;
    }
    rewrite_sites(f, ctx, |f, site, _| rewrite(f, site))
}

/// Moves the lowest cast one step down; returns the name of the rewrite.
fn rewrite(f: &mut Function, site: &Site) -> Result<Option<&'static str>, String> {
    let Some(n) = site.steps.iter().position(|(_, _, step)| *step == Step::Widen) else { return Ok(None) };
    let cast = site.steps[n].0;
    // The producer of the cast value: the join of a sink, the step below, or the matmul.
    let joined = site.sink.filter(|(_, below)| *below == n).map(|(sink, _)| sink.join);
    let below = joined.or_else(|| site.steps.get(n.checked_sub(1)?).map(|(i, ..)| *i)).unwrap_or(site.scores);
    let (op, operands) = (f.inst(below).op.clone(), f.inst(below).operands.clone());
    let name = match op {
        Op::Where => "cast-into-select",
        Op::Concat { .. } | Op::Pad { .. } => "cast-into-join",
        Op::Unary(_) => "cast-into-tanh",
        Op::Matmul => "cast-over-matmul",
        Op::Binary(_) if matches!(site.steps.get(n.wrapping_sub(1)), Some((_, _, Step::Scale { .. }))) => {
            "cast-into-scale"
        }
        Op::Binary(_) => "cast-into-sum",
        _ => return Ok(None),
    };
    let at = Cursor { loc: f.inst(below).loc, ..Cursor::before(f, site.block, cast) };
    let mut wide = Vec::with_capacity(operands.len());
    for v in operands {
        wide.push(widened(f, at, v)?);
    }
    become_op(f, cast, op, wide);
    f.inst_mut(cast).loc = at.loc;
    Ok(Some(name))
}

/// The value as `f32`. A literal stays a literal; a condition is returned unchanged.
fn widened(f: &mut Function, at: Cursor, v: Value) -> Result<Value, String> {
    let Some(ty) = f.tensor(v).filter(|t| t.elem.is_float()) else { return Ok(v) };
    let (elem, rank) = (ty.elem, ty.rank());
    match splat(f, v) {
        Some(s) if rank == 0 => at.constant(f, Scalar::Float(round_to(elem, s.as_f64())), Elem::F32),
        _ => at.insert(f, Op::Cast { elem: Elem::F32 }, vec![v]),
    }
}

/// The operand of a cast to `f32`, or the value itself.
pub(super) fn before_cast(f: &Function, v: Value) -> Value {
    match super::rewrite::made_by(f, v) {
        Some((_, Op::Cast { elem: Elem::F32 }, [x])) if f.tensor(*x).is_some_and(|t| t.elem.is_float()) => *x,
        _ => v,
    }
}
