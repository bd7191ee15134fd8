//! Means of rows, and rows centred by subtracting them.
//!
//! In: means and differences in the body of a `rows` region. Out: sums and elementwise operations.
//! Each element is scaled by a power of two `s <= 1 / n` before it is added, so that a sum
//! overflows only where the mean does; the scaling is exact for elements of magnitude at least
//! `2^-126 / s`.
//!
//! ```text
//! mean(x)                    sum(s x) / n / s
//! x - mean(x)                c - o,  c = x - m,  m = mean(x),  o = sum(c) / n
//! mean((x - mean(x))^2)      max(mean(c c) - o o, 0)
//! ```
//!
//! `m` has the rounding error of its sum: up to a few units in the last place of the mean, which is
//! a lot where the elements differ by less than that, and is amplified by `1 / sqrt(eps)` in a
//! norm. `o` is the error of `m`, computed in the pass that sums the squares. With `u = 2^-24` and
//! `g` the relative error of a sum (`140 u`, see `rows`): `c` is exact where `x` is within a factor
//! of 2 of `m`, so the error of `c - o` is at most `g` times the mean of `|c|` plus one rounding of
//! the result, whatever the mean is. If all elements are equal, so are all `c`, their sum is exact,
//! and the difference is 0. The error of the variance is at most `2 g` times the variance plus `3 g
//! o^2`, with `|o|` at most `g` times the mean of `|x|`.
//!
//! A mean that a kernel of another region subtracts is `m + o`, rounded once ([`corrected`]). No
//! correction is made if elements or their differences are not finite.

use cranelift_entity::SecondaryMap;

use super::build::{emit, operand, tensor};
use crate::ir::{Function, FusionKind, Inst, InstData, Loc, Op, Scalar, Terminator, Type, Use, Value};
use crate::scalar::{BinaryOp, CmpOp, ReduceKind, UnaryOp};
use crate::shape::{Dim, Elem, TensorType};

/// The exponent of the scale of rows whose length is known at run time only.
const LOG_OF_LENGTH: u32 = 20;

/// The means of a body by which rows are centred.
pub(super) struct Means {
    /// Is the value a mean that is subtracted from its row?
    subtracted: SecondaryMap<Value, bool>,
    /// `c` and `o`, for a mean and for the row minus its mean.
    centred: SecondaryMap<Value, Option<(Value, Value)>>,
}

impl Means {
    /// Analyses a body. A difference that is only averaged is left unchanged: its average is `o`.
    pub(super) fn analyse(body: &Function) -> Means {
        let uses = body.uses();
        let mut subtracted: SecondaryMap<Value, bool> = SecondaryMap::new();
        for (_, _, d) in body.insts() {
            let (Some(m), Some(c)) = (subtracted_mean(body, d), d.result) else { continue };
            subtracted[m] |=
                !uses[c].iter().all(|u| matches!(u, Use::Operand(i, _) if mean_of(body.inst(*i)).is_some()));
        }
        Means { subtracted, centred: SecondaryMap::new() }
    }

    /// Appends the expansion of a mean, or of a difference from one, to `out`; `None` for other
    /// instructions.
    ///
    /// # Errors
    /// A type rule's error, which is a bug in attnc.
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
            // Where squares overflow, the variance must be infinite, not NaN.
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
        // `f16` overflows early.
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

    /// `c` and `o` of the centred row whose square this is.
    fn squared(&self, body: &Function, v: Value) -> Option<(Value, Value)> {
        let (_, d) = body.definition(v)?;
        let (Op::Binary(BinaryOp::Mul), [a, b]) = (&d.op, d.operands.as_slice()) else { return None };
        if a == b && !self.subtracted[*a] { self.centred[*a] } else { None }
    }
}

/// The axes of a mean, and whether they are kept.
fn mean_of(data: &InstData) -> Option<(&[usize], bool)> {
    let Op::Reduce { kind: ReduceKind::Mean, axes, keep } = &data.op else { return None };
    Some((axes, *keep))
}

/// The mean of an `f32` row, if this instruction subtracts it from that row.
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

/// The mean of `f32` rows; with scaling, the sum cannot overflow.
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

/// `x`, or 0 if it is infinite or NaN.
fn if_finite(body: &mut Function, x: Value, loc: Loc, out: &mut Vec<Inst>) -> Result<Value, String> {
    let size = emit(body, Op::Unary(UnaryOp::Abs), vec![x], None, loc, out)?;
    let top = number(body, f64::INFINITY, loc, out)?;
    let is_finite = emit(body, Op::Compare(CmpOp::Lt), vec![size, top], None, loc, out)?;
    let zero = number(body, 0.0, loc, out)?;
    emit(body, Op::Where, vec![is_finite, x, zero], None, loc, out)
}

/// Is the value, or a view of it, subtracted from something, in this function or in a region?
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

/// A separate region for the means of `f32` rows: `m + o`.
///
/// # Errors
/// A type rule's error, which is a bug in attnc.
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
