//! fuse-attention: fuses a softmax and the two matmuls around it into one `attention`.
//!
//! ```text
//! func @f(%0 "q": f32[12, S, 64], %1 "k": f32[12, S, 64], %2 "v": f32[12, S, 64]) -> (f32[12, S, 64]) {
//! ^bb0:
//!   %3 = transpose %1, perm=[0, 2, 1]     : f32[12, 64, S]
//!   %4 = matmul %0, %3                    : f32[12, S, S]
//!   %5 = mul %4, 0.125                    : f32[12, S, S]
//!   %6 = causal                           : bool[S, S]
//!   %7 = where %6, %5, -inf               : f32[12, S, S]
//!   %8 = softmax %7, axis=2               : f32[12, S, S]
//!   %9 = matmul %8, %2                    : f32[12, S, 64]
//!   return %9
//! }
//! ->
//! func @f(%0 "q": f32[12, S, 64], %1 "k": f32[12, S, 64], %2 "v": f32[12, S, 64]) -> (f32[12, S, 64]) {
//! ^bb0:
//!   %3 = attention %0, %1, %2, scale=0.125, mask=[causal] : f32[12, S, 64]
//!   return %3
//! }
//! ```
//!
//! The score matrix, which grows with the square of the sequence length, never exists in the fused
//! kernel: it combines tiles of queries with tiles of keys and keeps a running maximum and sum for
//! each query (Milakov & Gimelshein 2018, arXiv:1805.02867; Dao et al. 2022, arXiv:2205.14135).
//!
//! # Conditions
//!
//! All are proved, or a remark names the first that fails, and its location:
//!
//! * `axis`: the softmax is over the last axis, the keys. (Over another axis the shapes may fit all
//!   the same.)
//! * `uses`: the scores, each step on them, and the weights have one use, the next step. A `tap` is
//!   a use.
//! * `scale`: at most one multiplication of the scores by one number, next to the matmul
//!   (`canonicalise-scale` moves it there).
//! * `mask`: then any number of `where(condition, scores, number)` and `scores + mask` that keep
//!   the shape of the scores (`canonicalise-mask`), in the order of the program. `causal` over
//!   exactly the last two dimensions of the scores with `-inf` becomes part of the kernel, which
//!   then skips hidden tiles; any other mask is an operand.
//! * A soft cap, `c * tanh(scores)` with one number `c` (1 if absent), may stand anywhere among the
//!   masks. A division of the scores before it, by `c` in `c * tanh(s / c)` or any other number, is
//!   part of the scale.
//! * `shape`: a sink, one column joined to the masked scores by `concat` or `pad`, before or after
//!   them, if a slice of the weights drops exactly that column. It becomes the last mask;
//!   operations that only broadcast it are removed.
//! * `transposition`: always holds. Whatever the right operand of the first matmul is, its
//!   transpose is `k`, a view.
//! * `types`: queries, keys and values are floats. A cast to `f32` may stand between queries or
//!   keys and the matmul, and casts to any float type between the softmax and the values, but none
//!   among the scores (`canonicalise-cast`). The result has the type of the values.
//! * `block`: all in one block, or work would move into a loop or out of a branch.
//! * `size`: heads and values whose width is known are at most 1024 wide. The kernel recomputes the
//!   scores for each block of columns of the result, so beyond that a score matrix is cheaper.
//! * `float`: not under `strict`, because the division by the sum comes last and partial sums are
//!   rescaled.
//!
//! Keys and values may have fewer leading dimensions than the queries, or 1 where the queries have
//! more (grouped heads); their length may differ from the queries' (cross-attention), and the width
//! of the values from the keys'.
//!
//! # Error
//!
//! Normalisation is delayed and partial sums are rescaled; `bf16` and `f16` also round at other
//! points. The bound is against exact arithmetic on the inputs, where nothing overflows (fused, the
//! sums with the values are up to T times larger before the division) and no input is a subnormal
//! `bf16`. Let u = 2^-24; w and t the unit roundoff and the underflow error of the type, or of the
//! narrowest if scores, weights and values have several (`f32`: 2^-24 and 2^-126; `bf16`: 2^-8 and
//! 2^-126; `f16`: 2^-11 and 2^-25); T keys in n tiles, a sink counted as one; `exp` within 4 u,
//! `tanh` within 6 u; D the head width; r the number of operations that compute a score (matmul,
//! scale, each added mask); c the scale; and B the largest value of `abs(c) Σ abs(q_d k_d)` plus
//! the magnitudes of the finite numbers that masks add or substitute, and of sinks. Each score is
//! then within
//!
//! ```text
//! a = ((1 + x)^r (1 + u)^(D + 8) - 1) B + 2 (r + D) t max(1, abs(c))      x = w as written, u fused
//! ```
//!
//! of the exact one: as written, it is rounded to the type after each of the r operations; fused,
//! it stays `f32`. (The 8 covers operations before `exp`: the maximum is subtracted, and the fused
//! kernel changes the base to 2.) After a cap h, with a the bound for the argument of `tanh`, r'
//! operations after the cap, and M the largest sum of magnitudes that these add or substitute,
//! including a sink, it is
//!
//! ```text
//! (1 + x)^r' (1 + u)^8 (abs(h) (a + (1 + x)^2 (1 + 6u)) + M + 2 (r' + 2) t max(1, abs(h))) - abs(h) - M
//! ```
//!
//! because `tanh` changes by no more than its argument, and is at most 1. With the exact weights p
//! of a row and its exact result y, the computed result is within
//!
//! ```text
//! (1 + w) E + w abs(y) + t      of y, where
//! E = ((1 + w) F - 1) Σ p abs(v) + F t (Σ abs(v) + 2T)
//! F = (1 + u)^(2T + 10) e^(2a) as written, (1 + u)^(2T + 10n + 10) e^(2a) fused
//! ```
//!
//! F has T additions each for the sum of the row and for the matmul with the values, `exp` twice, a
//! division, and a multiplication; fused, each later tile rescales the sum and the result so far by
//! one `exp` and one multiplication. 1 + w and t in E are for the weights: as written they are
//! rounded after the division by their sum; fused they are rounded before it, or not at all, and
//! the sum is at least 1. The terms outside E are the rounding of the result itself. So the two
//! programs differ by at most the sum of both bounds, most of which is the bound of the program
//! as written: its scores between 64 and 128 are rounded by up to 0.25 in `bf16`, which changes
//! weights by factors of up to e^0.5.
//!
//! The interpreter, which defines `attention`, uses a single tile and rounds weights after the
//! division. Tests hold compiled code to running error bounds, and both programs to this formula.
//!
//! # Limits
//!
//! It does not move scales or invert masks; it does not fuse dropout, several consecutive sinks, a
//! sink that is added to the denominator of a hand-written softmax, or a hand-written softmax
//! itself (`canonicalise-softmax`).

use super::canonicalise_cast::before_cast;
use super::rewrite::{Cursor, become_op, made_by, remove_unused, round_to, splat, swap_last};
use super::scores::{Mismatch, Site, Step, sites};
use super::{Changed, Condition, Context, Float};
use crate::ir::{Function, Loc, MaskKind, Op, Scalar, Value};
use crate::scalar::BinaryOp;
use crate::shape::{Elem, TensorType};

/// The maximum width of a head, and of its values, that is fused.
const WIDEST: i64 = 1024;

pub(super) fn run(f: &mut Function, ctx: &mut Context) -> Changed {
    let mut fused = 0;
    for (softmax, found) in sites(f) {
        let loc = f.inst(softmax).loc;
        match found.and_then(|site| fuse(f, &site, ctx.float)) {
            Ok(what) => {
                fused += 1;
                ctx.done(f, loc, what);
            }
            Err(why) => {
                let mut notes = why.notes;
                if why.loc != loc {
                    notes.insert(0, (why.loc, "here".to_string()));
                }
                ctx.missed_with(f, loc, why.condition, why.message, notes, why.edits);
            }
        }
    }
    if fused > 0 {
        remove_unused(f);
    }
    ctx.count("attentions fused", fused);
    Changed::from(fused > 0)
}

/// The arguments of the kernel, read off a site.
struct AttentionArgs {
    scale: Option<Value>,
    /// The source location of the scale.
    scale_at: Loc,
    masks: Vec<MaskKind>,
    /// Their source locations.
    masks_at: Vec<Loc>,
    /// Operands of the masks, in order; `None` for a cap of 1.
    operands: Vec<Option<Value>>,
}

fn fuse(f: &mut Function, site: &Site, float: Float) -> Result<String, Mismatch> {
    let loc = f.inst(site.softmax).loc;
    if float == Float::Strict {
        let text = "`--float strict` forbids delayed normalisation and rescaling";
        return Err(Mismatch::new(Condition::Float, loc, text));
    }
    let parts = parts(f, site)?;
    let broken = |text: String| Mismatch::new(Condition::Shape, loc, text);
    let (q, k_transposed, v) = match (f.inst(site.scores).operands.as_slice(), f.inst(site.output).operands.as_slice())
    {
        ([q, k], [_, v]) => (*q, *k, *v),
        _ => return Err(broken("a matmul takes two operands".to_string())),
    };
    let width = |v: Value| f.tensor(v).and_then(|t| t.shape.last()?.as_const()).unwrap_or_default();
    let widest = width(q).max(width(v));
    if widest > WIDEST {
        let text = format!("a head is {widest} wide, more than {WIDEST}: its scores would be computed several times");
        return Err(Mismatch::new(Condition::Size, loc, text));
    }

    let at = Cursor { loc: f.inst(site.output).loc, block: site.block, before: site.output };
    // The kernel computes in `f32` for all types, so a cast to it changes nothing.
    let q = before_cast(f, q);
    let k = transposed(f, at, before_cast(f, k_transposed)).map_err(broken)?;
    let k = before_cast(f, k);
    let scale = scale(f, at, parts.scale).map_err(broken)?;
    let mut operands = vec![q, k, v, scale];
    let mut next = parts.operands.iter();
    for kind in &parts.masks {
        let missing = || broken("a mask has too few operands".to_string());
        let mut operand = || next.next().copied().flatten().ok_or_else(missing);
        match kind {
            MaskKind::Causal => {}
            MaskKind::Cap => {
                let most = next.next().copied().flatten();
                operands.push(self::scale(f, at, most).map_err(broken)?);
            }
            MaskKind::Add => operands.push(before_cast(f, operand()?)),
            MaskKind::Keep => {
                let (condition, fill) = (operand()?, operand()?);
                operands.extend([condition, number(f, at, fill).map_err(broken)?]);
            }
            MaskKind::Sink => {
                let logit = plain_logit(f, operand()?);
                operands.push(number(f, at, logit).map_err(broken)?);
            }
        }
    }
    let op = Op::Attention { masks: parts.masks.clone() };
    // The shape rule decides: the result must have exactly the type of the matmul.
    let types: Vec<&crate::ir::Type> = operands.iter().map(|v| f.ty(*v)).collect();
    let declared = f.inst(site.output).result.map(|v| f.ty(v).clone());
    crate::ir::result_type(&op, &types, declared.as_ref()).map_err(broken)?;
    let text = describe(f, &parts, scale);
    let ends = [f.inst(site.scores).loc, parts.scale_at, f.inst(site.softmax).loc];
    become_op(f, site.output, op, operands);
    f.inst_mut(site.output).parts = [&ends[..2], &parts.masks_at, &ends[2..]].concat();
    Ok(text)
}

/// If all elements of a value are one number, splatted over some shape: that number; else the
/// value.
fn number(f: &mut Function, at: Cursor, v: Value) -> Result<Value, String> {
    match (splat(f, v), f.tensor(v).map(|t| (t.elem, t.rank()))) {
        (Some(s), Some((elem, rank))) if rank > 0 => at.constant(f, s, elem),
        _ => Ok(v),
    }
}

/// A column of sinks before it was broadcast to all rows, cast to `f32`, or added to zeros.
fn plain_logit(f: &Function, v: Value) -> Value {
    let mut v = v;
    loop {
        let is_zero = |v: Value| splat(f, v).is_some_and(|s| s.as_f64() == 0.0);
        v = match made_by(f, v) {
            // The attention broadcasts it the same way.
            Some((_, Op::Broadcast, [x])) => *x,
            Some((_, Op::Binary(BinaryOp::Add), [zero, x])) if is_zero(*zero) && !is_zero(*x) => *x,
            Some((_, Op::Binary(BinaryOp::Add), [x, zero])) if is_zero(*zero) && !is_zero(*x) => *x,
            _ => match before_cast(f, v) {
                same if same == v => return v,
                x => x,
            },
        };
    }
}

/// Reads the steps, which must be in canonical form, and their source locations.
fn parts(f: &Function, site: &Site) -> Result<AttentionArgs, Mismatch> {
    let none = Loc::default();
    let mut parts =
        AttentionArgs { scale: None, scale_at: none, masks: Vec::new(), masks_at: Vec::new(), operands: Vec::new() };
    let mut after_tanh = false;
    for (n, (i, below, step)) in site.steps.iter().enumerate() {
        let loc = f.inst(*i).loc;
        let caps = std::mem::replace(&mut after_tanh, *step == Step::Tanh);
        match *step {
            Step::Scale { by, divide: false } if n == 0 => (parts.scale, parts.scale_at) = (Some(by), loc),
            // The multiplication after `tanh` is the cap; `tanh` alone pushed a cap of 1.
            Step::Scale { by, divide: false } if caps => {
                if let Some(last) = parts.operands.last_mut() {
                    *last = Some(by);
                }
            }
            Step::Scale { divide: true, .. } => {
                let text = "the scores are divided; only a multiplication by one number is fused";
                return Err(Mismatch::new(Condition::Scale, loc, text));
            }
            Step::Scale { divide: false, .. } => {
                let text = "a second scale, or one after a mask, is not next to the matmul";
                return Err(Mismatch::new(Condition::Scale, loc, text));
            }
            Step::Select { keep: false, .. } => {
                let text = "the mask selects hidden scores, not kept ones";
                return Err(Mismatch::new(Condition::Mask, loc, text));
            }
            Step::Select { condition, fill, keep: true } => {
                if is_causal(f, condition, *below) && splat(f, fill) == Some(Scalar::Float(f64::NEG_INFINITY)) {
                    parts.masks.push(MaskKind::Causal);
                } else {
                    parts.masks.push(MaskKind::Keep);
                    parts.operands.extend([Some(condition), Some(fill)]);
                }
            }
            Step::Add { mask, subtract: false } => {
                parts.masks.push(MaskKind::Add);
                parts.operands.push(Some(mask));
            }
            Step::Add { subtract: true, .. } => {
                return Err(Mismatch::new(Condition::Mask, loc, "the mask is subtracted; only an added mask is fused"));
            }
            Step::Tanh => {
                parts.masks.push(MaskKind::Cap);
                parts.operands.push(None);
            }
            Step::Widen => {
                let text = "the scores are cast between the matmul and the softmax";
                return Err(Mismatch::new(Condition::Types, loc, text));
            }
        }
        parts.masks_at.resize(parts.masks.len(), loc);
    }
    if let Some((sink, _)) = site.sink {
        parts.masks.push(MaskKind::Sink);
        parts.masks_at.push(f.inst(sink.join).loc);
        parts.operands.push(Some(sink.logit));
    }
    Ok(parts)
}

/// Is it `causal` aligned with exactly these scores? A square one over other dimensions hides other
/// pairs.
fn is_causal(f: &Function, condition: Value, scores: Value) -> bool {
    let (Some((_, Op::Causal, _)), Some(c), Some(s)) = (made_by(f, condition), f.tensor(condition), f.tensor(scores))
    else {
        return false;
    };
    s.rank() >= 2 && c.shape == s.shape[s.rank() - 2..]
}

/// The transpose of the last two axes; if the value is a transpose, its source.
fn transposed(f: &mut Function, at: Cursor, v: Value) -> Result<Value, String> {
    let rank = f.tensor(v).map_or(0, TensorType::rank);
    let swap = swap_last(rank);
    match made_by(f, v) {
        Some((_, Op::Transpose { perm }, [x])) => {
            let x = *x;
            let perm: Vec<usize> = swap.iter().filter_map(|i| perm.get(*i).copied()).collect();
            if perm.is_sorted() { Ok(x) } else { at.insert(f, Op::Transpose { perm }, vec![x]) }
        }
        _ => at.insert(f, Op::Transpose { perm: swap }, vec![v]),
    }
}

/// The scale, or a cap, as the scalar `f32` operand of the kernel; 1 if absent.
fn scale(f: &mut Function, at: Cursor, scale: Option<Value>) -> Result<Value, String> {
    let Some(v) = scale else { return at.constant(f, Scalar::Float(1.0), Elem::F32) };
    let elem = f.tensor(v).map(|t| t.elem);
    match (splat(f, v), elem) {
        // Rounded to the constant's own type first; `f32` holds the result exactly.
        (Some(s), Some(e)) => at.constant(f, Scalar::Float(round_to(e, s.as_f64())), Elem::F32),
        (None, Some(Elem::F32)) => Ok(v),
        _ => at.insert(f, Op::Cast { elem: Elem::F32 }, vec![v]),
    }
}

fn describe(f: &Function, parts: &AttentionArgs, scale: Value) -> String {
    let scale = match f.as_const(scale) {
        Some(s) => (s.as_f64() as f32).to_string(),
        None => "computed".to_string(),
    };
    let masks = match parts.masks.as_slice() {
        [] => "none".to_string(),
        some => some.iter().map(|m| m.name()).collect::<Vec<_>>().join(", "),
    };
    format!("fused a softmax with its two matmuls (scale: {scale}; masks: {masks})")
}
