//! canonicalise-softmax: replaces a hand-written softmax by `softmax`, where both can be proved
//! equal.
//!
//! ```text
//! func @f(%0 "x": f32[S, T]) -> (f32[S, T]) {
//! ^bb0:
//!   %1 = sigmoid %0                       : f32[S, T]
//!   %2 = reduce_max %1, axes=[1], keep=true : f32[S, 1]
//!   %3 = sub %1, %2                       : f32[S, T]
//!   %4 = exp %3                           : f32[S, T]
//!   %5 = reduce_sum %4, axes=[1], keep=true : f32[S, 1]
//!   %6 = div %4, %5                       : f32[S, T]
//!   return %6
//! }
//! ->
//! func @f(%0 "x": f32[S, T]) -> (f32[S, T]) {
//! ^bb0:
//!   %1 = sigmoid %0                       : f32[S, T]
//!   %2 = softmax %1, axis=1               : f32[S, T]
//!   return %2
//! }
//! ```
//!
//! # Conditions
//!
//! * The type is `f32`: in a narrower type each hand-written operation rounds, while `softmax`
//!   rounds once.
//! * The maximum and the sum are over one and the same axis; the reduced axis may be kept, or
//!   dropped and put back by a `reshape`.
//! * `uses`: the maximum, the difference, the exponential and the sum are used for nothing else.
//! * `rows`: no row is all `-inf`. The hand-written formula yields NaN for such a row (`-inf -
//!   -inf`), `softmax` zeros. This is proved if no element can be `-inf`: results of `sigmoid`,
//!   `tanh`, `exp`, `abs`, `relu`, `gelu`, `silu`, `softmax`, casts from integers and booleans, and
//!   `where` and `max` of such values and numbers. Under `fast` it is assumed. Otherwise a remark
//!   explains it: the author most likely wants `softmax(x)`.
//!
//! It is exact: `softmax` is defined by this formula.
//!
//! # Limits
//!
//! It does not match `exp(x) / sum(exp(x))`, which overflows where `softmax` does not, nor a
//! multiplication by the reciprocal of the sum, which rounds differently.

use super::rewrite::{Uses, become_op, loc_of, made_by, remove_unused, round_to, splat};
use super::{Changed, Condition, Context, Edit, Float};
use crate::ir::{Function, Inst, Loc, Op, Scalar, Use, Value};
use crate::scalar::{BinaryOp, ReduceKind, UnaryOp};
use crate::shape::Elem;

/// The maximum depth to which a value is searched for a proof.
const MAX_DEPTH: usize = 16;

pub(super) fn run(f: &mut Function, ctx: &mut Context) -> Changed {
    let mut found = 0;
    for inst in f.insts().map(|(_, i, _)| i).collect::<Vec<_>>() {
        let Some(softmax) = by_hand(f, inst) else { continue };
        let loc = f.inst(inst).loc;
        if let Some((what, v)) = used_elsewhere(&f.uses(), &softmax) {
            let text = format!("a hand-written softmax stays: its {what} is used elsewhere");
            ctx.missed(f, loc, Condition::Uses, text, vec![(loc_of(f, v), "made here".to_string())]);
        } else if ctx.float != Float::Fast && !never_minus_infinity(f, softmax.x, MAX_DEPTH) {
            let text = "a hand-written softmax stays: for a row of -inf it yields NaN, `softmax(x)` zeros";
            let place: Loc = loc_of(f, softmax.x);
            let notes = if place.line > 0 { vec![(place, "this may be -inf".to_string())] } else { Vec::new() };
            let rank = f.tensor(softmax.x).map_or(0, |t| t.rank());
            let with = match rank - softmax.axis {
                1 => "softmax({=0})".to_string(),
                n => format!("softmax({{=0}}, axis = -{n})"),
            };
            let edit = Edit::replace(f, inst, with, &[(softmax.sub, 0)]);
            ctx.missed_with(f, loc, Condition::Rows, text, notes, vec![edit]);
        } else {
            become_op(f, inst, Op::Softmax { axis: softmax.axis }, vec![softmax.x]);
            found += 1;
            ctx.done(f, loc, "replaced a hand-written softmax by `softmax`");
            remove_unused(f);
        }
    }
    ctx.count("softmaxes found", found);
    Changed::from(found > 0)
}

/// The parts of `exp(x - max(x)) / sum(exp(x - max(x)))`.
struct ByHand {
    x: Value,
    axis: usize,
    /// The subtraction of the maximum.
    sub: Inst,
    /// The intermediate results, which must have no other use: name, value, and number of uses in
    /// the formula.
    parts: Vec<(&'static str, Value, usize)>,
}

fn by_hand(f: &Function, div: Inst) -> Option<ByHand> {
    let d = f.inst(div);
    let (Op::Binary(BinaryOp::Div), [e, total]) = (&d.op, d.operands.as_slice()) else { return None };
    let (_, Op::Unary(UnaryOp::Exp), [difference]) = made_by(f, *e)? else { return None };
    let (sub, Op::Binary(BinaryOp::Sub), [x, largest]) = made_by(f, *difference)? else { return None };
    let (summed, sum_axis, mut parts) = reduced(f, *total, ReduceKind::Sum, "sum")?;
    let (maximised, axis, more) = reduced(f, *largest, ReduceKind::Max, "maximum")?;
    // In a narrower type each hand-written operation rounds; `softmax` rounds once.
    let exact = f.tensor(*x)?.elem == Elem::F32;
    if !exact || summed != *e || maximised != *x || axis != sum_axis || f.tensor(*x)?.shape != f.tensor(*e)?.shape {
        return None;
    }
    parts.extend(more);
    parts.extend([("difference", *difference, 1), ("exponential", *e, 2)]);
    Some(ByHand { x: *x, axis, sub, parts })
}

type Reduced = (Value, usize, Vec<(&'static str, Value, usize)>);

/// Matches a reduction over one axis that keeps the axis with extent 1.
fn reduced(f: &Function, v: Value, wanted: ReduceKind, name: &'static str) -> Option<Reduced> {
    let mut parts = vec![(name, v, 1)];
    let mut inner = v;
    if let (_, Op::Reshape, [x]) = made_by(f, v)? {
        inner = *x;
        parts.push((name, inner, 1));
    }
    let (_, Op::Reduce { kind, axes, .. }, [x]) = made_by(f, inner)? else { return None };
    let [axis] = axes.as_slice() else { return None };
    let mut kept = f.tensor(*x)?.shape.clone();
    *kept.get_mut(*axis)? = crate::shape::Dim::one();
    (*kind == wanted && f.tensor(v)?.shape == kept).then_some((*x, *axis, parts))
}

fn used_elsewhere(uses: &Uses, softmax: &ByHand) -> Option<(&'static str, Value)> {
    let own = |u: &Use| matches!(u, Use::Operand(..));
    softmax
        .parts
        .iter()
        .find(|(_, v, expected)| uses[*v].len() != *expected || !uses[*v].iter().all(own))
        .map(|(what, v, _)| (*what, *v))
}

/// Can no element be `-inf`? NaN does not matter: the result is NaN in both programs.
fn never_minus_infinity(f: &Function, v: Value, depth: usize) -> bool {
    let Some(depth) = depth.checked_sub(1) else { return false };
    if let Some(s) = splat(f, v) {
        let elem = f.tensor(v).map_or(Elem::F32, |t| t.elem);
        return !matches!(s, Scalar::Float(x) if round_to(elem, x) == f64::NEG_INFINITY);
    }
    let Some((_, op, operands)) = made_by(f, v) else { return false };
    let operands: &[Value] = operands;
    let all = || operands.iter().all(|x| never_minus_infinity(f, *x, depth));
    match op {
        Op::Unary(op) if op.is_above_bottom() => true,
        Op::Softmax { .. } => true,
        Op::Cast { .. } => match operands.first().and_then(|x| f.tensor(*x)) {
            Some(t) if t.elem.is_float() => false,
            Some(_) => true,
            None => false,
        },
        Op::Binary(BinaryOp::Max) => operands.iter().any(|x| never_minus_infinity(f, *x, depth)),
        Op::Binary(BinaryOp::Min) => all(),
        Op::Where => match operands {
            [_, a, b] => never_minus_infinity(f, *a, depth) && never_minus_infinity(f, *b, depth),
            _ => false,
        },
        Op::Reshape | Op::Broadcast | Op::Transpose { .. } | Op::Slice { .. } => all(),
        _ => false,
    }
}
