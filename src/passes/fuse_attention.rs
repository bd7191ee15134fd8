//! fuse-attention: a softmax and the two matmuls around it become one `attention`.
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
//! The score matrix, which grows with the square of the sequence, never exists in the fused kernel: tiles of queries meet
//! tiles of keys, with a running maximum and sum for each query (Milakov & Gimelshein 2018, arXiv:1805.02867; Dao et al.
//! 2022, arXiv:2205.14135).
//!
//! # Conditions
//!
//! All are proved, or a remark names the first that is not, and where:
//!
//! * `axis`: the softmax is over the last axis, the keys. (Over another axis the shapes may fit all the same.)
//! * `uses`: the scores, each step on them and the weights have one use: the next step. A `tap` is a use.
//! * `scale`: one multiplication of the scores by one number, next to the matmul (`canonicalise-scale` brings it there);
//!   none is a scale of 1.
//! * `mask`: after it any number of `where(condition, scores, number)` and `scores + mask` that leave the scores' shape
//!   (`canonicalise-mask`). Order is kept. `causal` over just the scores' two last dimensions with `-inf` becomes part of
//!   the kernel, which then never visits hidden tiles; any other mask is an operand.
//! * A soft cap, `c * tanh(scores)` with one number `c` (1 if there is none), may stand anywhere among the masks. What the
//!   scores are divided by before it, `c` in `c * tanh(s / c)` or any other number, is in the scale.
//! * `shape`: a sink, one column joined to the masked scores by `concat` or `pad`, before or after them, if a slice of the
//!   weights drops just that column. It becomes the last of the masks, without what only broadcast it.
//! * `transposition`: nothing to prove. Whatever the right operand of the first matmul is, its transpose is `k`, a view.
//! * `types`: queries, keys and values are floats. A cast to `f32` may stand between queries or keys and the product, and casts
//!   to any type of floats between the softmax and the values; none among the scores (`canonicalise-cast`). The result has
//!   the values' type.
//! * `block`: all in one block, or work would move into a loop or out of a branch.
//! * `size`: heads, and values, of known widths are at most 1024 wide. The kernel computes the scores again for each block of
//!   columns of the result, so beyond that a matrix of scores costs less.
//! * `float`: not under `strict`, for the sum is divided by last and rescaled on the way.
//!
//! Keys and values may have fewer leading dimensions than the queries, or 1 where these have more (grouped heads); other
//! lengths than the queries (cross-attention); and values another width.
//!
//! # Error
//!
//! Delayed normalisation and rescaling; and for `bf16` and `f16` other roundings. Against exact arithmetic on the inputs, where
//! nothing overflows (fused, the sums with the values are up to T times as large before they are divided) and no input is a
//! subnormal `bf16`: let u = 2^-24; w and t the type's unit and what underflow may cost, the narrowest type's if scores, weights
//! and values are of several (`f32`: 2^-24 and 2^-126; `bf16`: 2^-8 and 2^-126; `f16`: 2^-11 and 2^-25); T keys in n tiles, a
//! sink counted as one; `exp` within 4 u, `tanh` within 6 u; D the width of a head; r the number of operations that make a
//! score (the product, the scale, each added mask); c the scale; and B the largest of `abs(c) Σ abs(q_d k_d)` plus the sizes of
//! the finite numbers that masks add or put there, and of sinks. Each score is then within
//!
//! ```text
//! a = ((1 + x)^r (1 + u)^(D + 8) - 1) B + 2 (r + D) t max(1, abs(c))      x = w as written, u fused
//! ```
//!
//! of the exact one: as written it is rounded to the type after each of the r operations, fused it stays `f32`. (The 8 is
//! for what comes before `exp`: the maximum is subtracted, and fused the base is changed to 2.) After a cap h, with a of what
//! was given to `tanh`, r' operations after the cap, and M the largest sum of the sizes of what these add or put there, a sink's
//! too, it is
//!
//! ```text
//! (1 + x)^r' (1 + u)^8 (abs(h) (a + (1 + x)^2 (1 + 6u)) + M + 2 (r' + 2) t max(1, abs(h))) - abs(h) - M
//! ```
//!
//! for `tanh` changes by no more than its argument, and is at most 1. With the exact weights p of a row and its exact result y,
//! what is computed is within
//!
//! ```text
//! (1 + w) E + w abs(y) + t      of y, where
//! E = ((1 + w) F - 1) Σ p abs(v) + F t (Σ abs(v) + 2T)
//! F = (1 + u)^(2T + 10) e^(2a) as written, (1 + u)^(2T + 10n + 10) e^(2a) fused
//! ```
//!
//! F has T additions each for the sum of the row and for the product with the values, `exp` twice, a division, a product;
//! fused, each later tile rescales what is there by one `exp` and one product, of the sum and of the result. 1 + w and t in E
//! are for the weights: as written they are rounded after the division by their sum; fused before it, or not at all, and
//! the sum is at least 1. What stands outside E is the result's own rounding. So the two programs may be as far apart as both
//! bounds together, of which most is that of what was written: its scores between 64 and 128 are rounded by up to 0.25 in
//! `bf16`, which changes weights by factors of up to e^0.5.
//!
//! The interpreter, which defines `attention`, does it in one tile, and rounds weights after the division. Compiled code is held
//! to running bounds by tests, and both programs to this formula.
//!
//! # What it does not do
//!
//! It moves no scale and inverts no mask; it does not fuse dropout, several sinks in a row, a sink that is added to the
//! denominator of a softmax written out by hand, or such a softmax itself (`canonicalise-softmax`).

use super::canonicalise_cast::before_cast;
use super::rewrite::{Cursor, become_op, made_by, remove_unused, round_to, splat, swap_last};
use super::scores::{Mismatch, Site, Step, sites};
use super::{Changed, Condition, Context, Float};
use crate::ir::{Function, Loc, MaskKind, Op, Scalar, Value};
use crate::scalar::BinaryOp;
use crate::shape::{Elem, TensorType};

/// The widest head that is fused, and the widest values.
const WIDEST: i64 = 1024;

/// Runs the pass.
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
                ctx.missed(f, loc, why.condition, why.message, notes);
            }
        }
    }
    if fused > 0 {
        remove_unused(f);
    }
    ctx.count("attentions fused", fused);
    Changed::from(fused > 0)
}

/// What the kernel takes, read off a site.
struct Parts {
    scale: Option<Value>,
    /// The place of the scale.
    scale_at: Loc,
    masks: Vec<MaskKind>,
    /// Their places.
    masks_at: Vec<Loc>,
    /// Operands of the masks, in order; none for a cap of 1.
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
    // All is computed in `f32` whatever the types are: a cast to it changes nothing.
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
    // The rule decides: the result must have exactly the type that the matmul had.
    let types: Vec<&crate::ir::Type> = operands.iter().map(|v| f.ty(*v)).collect();
    let declared = f.inst(site.output).result.map(|v| f.ty(v).clone());
    crate::ir::result_type(&op, &types, declared.as_ref()).map_err(broken)?;
    let text = describe(f, &parts, scale);
    let ends = [f.inst(site.scores).loc, parts.scale_at, f.inst(site.softmax).loc];
    become_op(f, site.output, op, operands);
    f.inst_mut(site.output).parts = [&ends[..2], &parts.masks_at, &ends[2..]].concat();
    Ok(text)
}

/// A number where a value is one, splatted over some shape; else the value.
fn number(f: &mut Function, at: Cursor, v: Value) -> Result<Value, String> {
    match (splat(f, v), f.tensor(v).map(|t| (t.elem, t.rank()))) {
        (Some(s), Some((elem, rank))) if rank > 0 => at.constant(f, s, elem),
        _ => Ok(v),
    }
}

/// What a column of sinks was before it was broadcast to all rows, cast to `f32`, or added to zeros.
fn plain_logit(f: &Function, v: Value) -> Value {
    let mut v = v;
    loop {
        let is_zero = |v: Value| splat(f, v).is_some_and(|s| s.as_f64() == 0.0);
        v = match made_by(f, v) {
            // The attention broadcasts it in the same way.
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

/// Reads the steps, which must stand in canonical form, and their places.
fn parts(f: &Function, site: &Site) -> Result<Parts, Mismatch> {
    let none = Loc::default();
    let mut parts =
        Parts { scale: None, scale_at: none, masks: Vec::new(), masks_at: Vec::new(), operands: Vec::new() };
    let mut after_tanh = false;
    for (n, (i, below, step)) in site.steps.iter().enumerate() {
        let loc = f.inst(*i).loc;
        let caps = std::mem::replace(&mut after_tanh, *step == Step::Tanh);
        match *step {
            Step::Scale { by, divide: false } if n == 0 => (parts.scale, parts.scale_at) = (Some(by), loc),
            // The cap: what `tanh`, which is pushed with a cap of 1, is multiplied by.
            Step::Scale { by, divide: false } if caps => {
                if let Some(last) = parts.operands.last_mut() {
                    *last = Some(by);
                }
            }
            Step::Scale { divide: true, .. } => {
                let text = "the scores are divided; only a product with one number is fused";
                return Err(Mismatch::new(Condition::Scale, loc, text));
            }
            Step::Scale { divide: false, .. } => {
                let text = "a second scale, or one after a mask, is not next to the matmul";
                return Err(Mismatch::new(Condition::Scale, loc, text));
            }
            Step::Select { keep: false, .. } => {
                let text = "the mask says what is hidden, not what is kept";
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
                return Err(Mismatch::new(Condition::Mask, loc, "the mask is subtracted; only an added one is fused"));
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

/// `causal` aligned with just these scores: a square one over other dimensions hides other pairs.
fn is_causal(f: &Function, condition: Value, scores: Value) -> bool {
    let (Some((_, Op::Causal, _)), Some(c), Some(s)) = (made_by(f, condition), f.tensor(condition), f.tensor(scores))
    else {
        return false;
    };
    s.rank() >= 2 && c.shape == s.shape[s.rank() - 2..]
}

/// The transpose of the last two axes: of a transpose, the view it was made from.
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

/// The scale, or a cap, as the scalar `f32` that the kernel takes; 1 where there is none.
fn scale(f: &mut Function, at: Cursor, scale: Option<Value>) -> Result<Value, String> {
    let Some(v) = scale else { return at.constant(f, Scalar::Float(1.0), Elem::F32) };
    let elem = f.tensor(v).map(|t| t.elem);
    match (splat(f, v), elem) {
        // Rounded as the constant was in its own type, which `f32` holds exactly.
        (Some(s), Some(e)) => at.constant(f, Scalar::Float(round_to(e, s.as_f64())), Elem::F32),
        (None, Some(Elem::F32)) => Ok(v),
        _ => at.insert(f, Op::Cast { elem: Elem::F32 }, vec![v]),
    }
}

fn describe(f: &Function, parts: &Parts, scale: Value) -> String {
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
