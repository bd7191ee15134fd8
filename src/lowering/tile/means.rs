//! Means of rows, and rows that are centred by them.
//!
//! In: means and differences in the body of a `rows` region. Out: sums and elementwise operations. Each element is scaled by a power
//! of two `s` of at most `1 / n` before it is added, so that a sum overflows only where the mean does; that is exact for elements of at
//! least `2^-126 / s`.
//!
//! ```text
//! mean(x)                    sum(s x) / n / s
//! x - mean(x)                c - o,  c = x - m,  m = mean(x),  o = sum(c) / n
//! mean((x - mean(x))^2)      max(mean(c c) - o o, 0)
//! ```
//!
//! `m` is off by the roundings of its sum: by up to some units in the last place of the mean, which is much where the elements differ
//! by less than that, and `1 / sqrt(eps)` times as much after a norm. `o` is what `m` is off by, found in the pass that sums the
//! squares. With `u = 2^-24` and `g` the relative error of a sum (`140 u`, see `rows`): `c` is exact where `x` is within a factor of 2 of `m`,
//! so the error of `c - o` is at most `g` times the mean of `|c|` and a rounding of the result, whatever the mean is; if all
//! elements are equal, so are all `c`, their sum is exact, and the difference is 0. That of the variance is at most `2 g` times itself and
//! `3 g o^2`, with `|o|` at most `g` times the mean of `|x|`.
//!
//! A mean that a kernel of another region subtracts is `m + o`, rounded once ([`corrected`]). Of elements that are not finite, or
//! whose differences overflow, nothing is corrected.

use cranelift_entity::SecondaryMap;

use super::build::{emit, operand, tensor};
use crate::ir::{Function, FusionKind, Inst, InstData, Loc, Op, Scalar, Terminator, Type, Use, Value};
use crate::scalar::{BinaryOp, CmpOp, ReduceKind, UnaryOp};
use crate::shape::{Dim, Elem, TensorType};

/// The exponent of the scale of rows whose length is known at run time only.
const LOG_OF_LENGTH: u32 = 20;

/// The means of a body that rows are centred by.
pub(super) struct Means {
    /// Is it such a mean?
    subtracted: SecondaryMap<Value, bool>,
    /// Of a mean, and of a row less its mean: `c` and `o`.
    centred: SecondaryMap<Value, Option<(Value, Value)>>,
}

impl Means {
    /// Those of a body. A difference that is only averaged is left as it is written: what it is averaged for is `o`.
    pub(super) fn of(body: &Function) -> Means {
        let uses = body.uses();
        let mut subtracted: SecondaryMap<Value, bool> = SecondaryMap::new();
        for (_, _, d) in body.insts() {
            let (Some(m), Some(c)) = (subtracted_mean(body, d), d.result) else { continue };
            subtracted[m] |=
                !uses[c].iter().all(|u| matches!(u, Use::Operand(i, _) if mean_of(body.inst(*i)).is_some()));
        }
        Means { subtracted, centred: SecondaryMap::new() }
    }

    /// Adds what computes a mean, or a difference from one, to `out`; nothing for other instructions.
    ///
    /// # Errors
    /// A rule's error, which is a bug in attnc.
    pub(super) fn expand(
        &mut self,
        body: &mut Function,
        data: &InstData,
        out: &mut Vec<Inst>,
    ) -> Result<Option<Value>, String> {
        let loc = data.loc;
        let Some(result) = data.result else { return Ok(None) };
        if let Some(m) = subtracted_mean(body, data) {
            let Some((c, o)) = self.centred[m] else { return Ok(None) };
            self.centred[result] = Some((c, o));
            return binary(body, BinaryOp::Sub, [c, o], loc, out).map(Some);
        }
        let Some(over) = mean_of(data) else { return Ok(None) };
        let x = operand(data, 0)?;
        if let Some((c, o)) = self.squared(body, x) {
            let squares = binary(body, BinaryOp::Mul, [c, c], loc, out)?;
            let all = mean(body, squares, over, true, loc, out)?;
            let own = binary(body, BinaryOp::Mul, [o, o], loc, out)?;
            // Where squares overflow, the variance is infinite, not NaN.
            let own = if_finite(body, own, loc, out)?;
            let rest = binary(body, BinaryOp::Sub, [all, own], loc, out)?;
            let zero = number(body, 0.0, loc, out)?;
            return binary(body, BinaryOp::Max, [rest, zero], loc, out).map(Some);
        }
        let elem = tensor(body, x)?.elem;
        let mut wide = x;
        if elem != Elem::F32 {
            wide = emit(body, Op::Cast { elem: Elem::F32 }, vec![x], None, loc, out)?;
        }
        // The largest `f16` is small.
        let mut y = mean(body, wide, over, elem != Elem::F16, loc, out)?;
        if self.subtracted[result] {
            let c = binary(body, BinaryOp::Sub, [x, y], loc, out)?;
            let o = mean(body, c, over, false, loc, out)?;
            let o = if_finite(body, o, loc, out)?;
            self.centred[result] = Some((c, o));
            y = binary(body, BinaryOp::Add, [y, o], loc, out)?;
        }
        if elem != Elem::F32 {
            y = emit(body, Op::Cast { elem }, vec![y], None, loc, out)?;
        }
        Ok(Some(y))
    }

    /// The parts of a centred row whose square this is.
    fn squared(&self, body: &Function, v: Value) -> Option<(Value, Value)> {
        let (_, d) = body.definition(v)?;
        let (Op::Binary(BinaryOp::Mul), [a, b]) = (&d.op, d.operands.as_slice()) else { return None };
        if a == b && !self.subtracted[*a] { self.centred[*a] } else { None }
    }
}

/// The axes of a mean, and whether they stay.
fn mean_of(data: &InstData) -> Option<(&[usize], bool)> {
    let Op::Reduce { kind: ReduceKind::Mean, axes, keep } = &data.op else { return None };
    Some((axes, *keep))
}

/// The mean of a row of `f32`, where this is the row less that.
fn subtracted_mean(body: &Function, data: &InstData) -> Option<Value> {
    let (Op::Binary(BinaryOp::Sub), [x, m]) = (&data.op, data.operands.as_slice()) else { return None };
    let (_, mean) = body.definition(*m)?;
    let is_own = mean_of(mean).is_some_and(|(_, keep)| keep) && mean.operands.as_slice() == [*x];
    (is_own && body.tensor(*x)?.elem == Elem::F32).then_some(*m)
}

fn binary(
    body: &mut Function,
    op: BinaryOp,
    [a, b]: [Value; 2],
    loc: Loc,
    out: &mut Vec<Inst>,
) -> Result<Value, String> {
    emit(body, Op::Binary(op), vec![a, b], None, loc, out)
}

fn number(body: &mut Function, x: f64, loc: Loc, out: &mut Vec<Inst>) -> Result<Value, String> {
    let ty = Some(Type::Tensor(TensorType::scalar(Elem::F32)));
    emit(body, Op::Const(Scalar::Float(x)), Vec::new(), ty, loc, out)
}

/// The mean of rows of `f32`, whose sum cannot overflow if it is scaled.
fn mean(
    body: &mut Function,
    x: Value,
    (axes, keep): (&[usize], bool),
    is_scaled: bool,
    loc: Loc,
    out: &mut Vec<Inst>,
) -> Result<Value, String> {
    let shape = tensor(body, x)?.shape;
    let count = Dim::product(axes.iter().filter_map(|a| shape.get(*a)));
    let length = count.as_const().and_then(|n| u64::try_from(n).ok()).map(|n| n.max(1));
    let power = length.map_or(LOG_OF_LENGTH, |n| n.next_power_of_two().trailing_zeros());
    let factor = f64::from(power).exp2();
    let is_scaled = is_scaled && power > 0;
    let mut terms = x;
    if is_scaled {
        let by = number(body, 1.0 / factor, loc, out)?;
        terms = binary(body, BinaryOp::Mul, [x, by], loc, out)?;
    }
    let sum = Op::Reduce { kind: ReduceKind::Sum, axes: axes.to_vec(), keep };
    let sum = emit(body, sum, vec![terms], None, loc, out)?;
    let scalar = Some(Type::Tensor(TensorType::scalar(Elem::F32)));
    let count = emit(body, Op::DimValue(count), Vec::new(), scalar, loc, out)?;
    let mut y = binary(body, BinaryOp::Div, [sum, count], loc, out)?;
    if is_scaled {
        let by = number(body, factor, loc, out)?;
        y = binary(body, BinaryOp::Mul, [y, by], loc, out)?;
    }
    Ok(y)
}

/// A number, or 0 if it is infinite or NaN.
fn if_finite(body: &mut Function, x: Value, loc: Loc, out: &mut Vec<Inst>) -> Result<Value, String> {
    let size = emit(body, Op::Unary(UnaryOp::Abs), vec![x], None, loc, out)?;
    let top = number(body, f64::INFINITY, loc, out)?;
    let is_finite = emit(body, Op::Compare(CmpOp::Lt), vec![size, top], None, loc, out)?;
    let zero = number(body, 0.0, loc, out)?;
    emit(body, Op::Where, vec![is_finite, x, zero], None, loc, out)
}

/// Is a value subtracted from something, itself or a view of it, here or in a region?
pub(super) fn is_subtracted(f: &Function, uses: &SecondaryMap<Value, Vec<Use>>, v: Value) -> bool {
    let mut views = vec![v];
    while let Some(v) = views.pop() {
        for u in &uses[v] {
            let Use::Operand(i, k) = u else { continue };
            let d = f.inst(*i);
            let in_region = |body: &Function| {
                let arg = body.block(body.entry()).args.get(*k).copied();
                arg.is_some_and(|arg| is_subtracted(body, &body.uses(), arg))
            };
            if d.op == Op::Binary(BinaryOp::Sub) && *k == 1
                || matches!(&d.op, Op::Fused { body, .. } if in_region(body))
            {
                return true;
            }
            if matches!(d.op, Op::Reshape | Op::Transpose { .. } | Op::Broadcast) {
                views.extend(d.result);
            }
        }
    }
    false
}

/// A region of its own for the means of rows of `f32`: `m + o`.
///
/// # Errors
/// A rule's error, which is a bug in attnc.
pub(super) fn corrected(
    f: &mut Function,
    x: Value,
    axis: usize,
    loc: Loc,
    out: &mut Vec<Inst>,
) -> Result<Value, String> {
    let mut body = Function::new("");
    let entry = body.entry();
    let row = body.add_block_arg(entry, f.ty(x).clone());
    let mean = || Op::Reduce { kind: ReduceKind::Mean, axes: vec![axis], keep: true };
    let mut insts = Vec::new();
    let m = emit(&mut body, mean(), vec![row], None, loc, &mut insts)?;
    let c = binary(&mut body, BinaryOp::Sub, [row, m], loc, &mut insts)?;
    let o = emit(&mut body, mean(), vec![c], None, loc, &mut insts)?;
    let o = if_finite(&mut body, o, loc, &mut insts)?;
    let y = binary(&mut body, BinaryOp::Add, [m, o], loc, &mut insts)?;
    body.block_mut(entry).insts = insts;
    body.terminate(entry, Terminator::Return(vec![y]));
    emit(f, Op::Fused { kind: FusionKind::Rows, body: Box::new(body) }, vec![x], None, loc, out)
}
