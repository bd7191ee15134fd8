//! Operations that combine many elements: reductions, softmax, matmul, attention.
//!
//! In: arrays. Out: an array. Sums go over rows in ascending order, in the accumulator of a
//! [`Real`], in blocks of [`BLOCK`] terms. The blocks of a reduction are added pairwise, the blocks
//! of a matmul in order. A float result is rounded to its element type once, at the end.

use std::cmp::Ordering;

use super::array::{Array, Data, broadcast_strides, count, positions, wrap};
use super::elementwise::{binary, cast, range, select, unary};
use super::{EvalError, Real};
use crate::ir::MaskKind;
use crate::scalar::{ARGMAX_LENGTH, BinaryOp, CmpOp, ReduceKind, UnaryOp};
use crate::shape::Elem;

/// Moves the reduced axes to the end, so that they form contiguous rows: the array, the row length,
/// the permutation.
fn rows<F: Real>(x: &Array<F>, axes: &[usize]) -> (Array<F>, usize, Vec<usize>) {
    let mut perm: Vec<usize> = (0..x.shape.len()).filter(|i| !axes.contains(i)).collect();
    perm.extend(axes);
    let length = axes.iter().map(|a| x.shape[*a]).product();
    let moved = if perm.is_sorted() { x.clone() } else { x.transpose(&perm) };
    (moved, length, perm)
}

/// Applies `f` to each of `n` rows; to an empty slice if rows are empty.
fn each_row<T, U>(v: &[T], length: usize, n: usize, mut f: impl FnMut(&[T]) -> U) -> Vec<U> {
    (0..n).map(|i| f(v.get(i * length..(i + 1) * length).unwrap_or_default())).collect()
}

pub(super) fn reduce<F: Real>(
    kind: ReduceKind,
    x: &Array<F>,
    axes: &[usize],
    shape: Vec<usize>,
    certain: &mut bool,
) -> Result<Array<F>, EvalError> {
    let (moved, length, _) = rows(x, axes);
    let (n, elem) = (count(&shape), x.elem);
    if kind == ReduceKind::ArgMax {
        if length == 0 {
            return Err(EvalError::new("argmax of an empty axis"));
        }
        if i64::try_from(length).is_ok_and(|n| n > ARGMAX_LENGTH) {
            return Err(EvalError::new(format!("argmax of {length} elements, and its indices are of i32")));
        }
        let data = match &moved.data {
            Data::Float(v) => each_row(v, length, n, |row| argmax_floats(row, certain)),
            Data::Int(v) => each_row(v, length, n, argmax_ints),
            Data::Bool(_) => return Err(EvalError::internal("argmax of bool")),
        };
        return Ok(Array { elem: Elem::I32, shape, data: Data::Int(data) });
    }
    let data = match &moved.data {
        Data::Float(v) => Data::Float(each_row(v, length, n, |row| reduce_floats(kind, row, elem, certain))),
        Data::Int(v) => Data::Int(each_row(v, length, n, |row| reduce_ints(kind, row, elem))),
        Data::Bool(v) => Data::Bool(each_row(v, length, n, |row| match kind {
            ReduceKind::All | ReduceKind::Min => row.iter().all(|b| *b),
            _ => row.iter().any(|b| *b),
        })),
    };
    Ok(Array { elem, shape, data })
}

fn argmax_floats<F: Real>(row: &[F], certain: &mut bool) -> i64 {
    let mut best = 0;
    for (i, x) in row.iter().enumerate().skip(1) {
        if row[best].value().is_nan() {
            *certain &= row[best].has_bound();
            break;
        }
        let (greater, _) = F::compare(CmpOp::Gt, *x, row[best]);
        *certain &= surely(*x, row[best]);
        if greater || x.value().is_nan() {
            best = i;
        }
    }
    best as i64
}

fn argmax_ints(row: &[i64]) -> i64 {
    let mut best = 0;
    for (i, n) in row.iter().enumerate() {
        if *n > row[best] {
            best = i;
        }
    }
    best as i64
}

/// The number of terms that are summed sequentially.
const BLOCK: usize = 512;

fn sum<F: Real>(row: &[F]) -> F::Sum {
    if row.len() <= BLOCK {
        let mut sum = F::zero();
        row.iter().for_each(|x| F::add(&mut sum, *x));
        return sum;
    }
    let (first, second) = row.split_at(row.len().div_ceil(2 * BLOCK) * BLOCK);
    let mut total = sum(first);
    F::join(&mut total, sum(second));
    total
}

fn maximum<F: Real>(row: &[F], elem: Elem) -> F {
    F::extreme(BinaryOp::Max, row, elem)
}

/// The mean of a row, whose terms are scaled by a power of two if their sum might overflow.
fn mean<F: Real>(row: &[F]) -> F {
    let n = F::from_int(row.len() as i64, Elem::F32);
    let by = |x: F, factor: f64| F::binary(BinaryOp::Mul, x, F::literal(factor, Elem::F32), Elem::F32);
    if !F::ROUNDS {
        return F::binary(BinaryOp::Div, F::total(sum(row), row.len(), Elem::F32), n, Elem::F32);
    }
    let factor = row.len().next_power_of_two() as f64;
    let terms: Vec<F> = row.iter().map(|x| by(*x, 1.0 / factor)).collect();
    by(F::binary(BinaryOp::Div, F::total(sum(&terms), row.len(), Elem::F32), n, Elem::F32), factor)
}

fn reduce_floats<F: Real>(kind: ReduceKind, row: &[F], elem: Elem, certain: &mut bool) -> F {
    match kind {
        ReduceKind::Sum => F::total(sum(row), row.len(), elem),
        ReduceKind::Mean => {
            let m = mean(row);
            if !F::ROUNDS {
                return m.cast(elem);
            }
            // Correct the mean by the mean of the residuals, i.e. by the rounding error of the sum.
            let rest: Vec<F> = row.iter().map(|x| F::binary(BinaryOp::Sub, *x, m, Elem::F32)).collect();
            let o = mean(&rest);
            if o.value().is_finite() { F::binary(BinaryOp::Add, m, o, Elem::F32).cast(elem) } else { m.cast(elem) }
        }
        ReduceKind::LogSumExp => log_sum_exp(row, certain).cast(elem),
        ReduceKind::Min => F::extreme(BinaryOp::Min, row, elem),
        ReduceKind::Max | ReduceKind::All | ReduceKind::Any | ReduceKind::ArgMax => maximum(row, elem),
    }
}

fn reduce_ints(kind: ReduceKind, row: &[i64], elem: Elem) -> i64 {
    let (low, high) = range(elem);
    match kind {
        ReduceKind::Min => row.iter().copied().fold(high, i64::min),
        ReduceKind::Max => row.iter().copied().fold(low, i64::max),
        ReduceKind::Sum
        | ReduceKind::Mean
        | ReduceKind::LogSumExp
        | ReduceKind::All
        | ReduceKind::Any
        | ReduceKind::ArgMax => wrap(row.iter().fold(0, |a: i64, n| a.wrapping_add(*n)), elem),
    }
}

/// Inverts the permutation of [`rows`].
fn moved_back<F: Real>(x: Array<F>, perm: &[usize]) -> Array<F> {
    if perm.is_sorted() {
        return x;
    }
    let mut back = vec![0; perm.len()];
    perm.iter().enumerate().for_each(|(i, p)| back[*p] = i);
    x.transpose(&back)
}

/// Inclusive prefix sums along an axis.
pub(super) fn cumsum<F: Real>(x: &Array<F>, axis: usize) -> Result<Array<F>, EvalError> {
    let (moved, length, perm) = rows(x, &[axis]);
    let elem = x.elem;
    let data = match &moved.data {
        Data::Float(v) => {
            let mut out = Vec::with_capacity(v.len());
            for row in v.chunks(length.max(1)) {
                let mut sum = F::zero();
                for (i, x) in row.iter().enumerate() {
                    F::add(&mut sum, *x);
                    out.push(F::total(sum, i + 1, elem));
                }
            }
            Data::Float(out)
        }
        Data::Int(v) => {
            let mut out = Vec::with_capacity(v.len());
            for row in v.chunks(length.max(1)) {
                let mut sum: i64 = 0;
                for n in row {
                    sum = sum.wrapping_add(*n);
                    out.push(wrap(sum, elem));
                }
            }
            Data::Int(out)
        }
        Data::Bool(_) => return Err(EvalError::internal("cumsum of bool")),
    };
    Ok(moved_back(Array { elem, shape: moved.shape, data }, &perm))
}

/// The indices of the first elements along an axis in sorted order.
pub(super) fn argsort<F: Real>(
    x: &Array<F>,
    axis: usize,
    descending: bool,
    first: usize,
    certain: &mut bool,
) -> Result<Array<F>, EvalError> {
    let (moved, length, perm) = rows(x, &[axis]);
    if first > length {
        return Err(EvalError::new(format!("the first {first} elements of an axis of {length}")));
    }
    if i64::try_from(length).is_ok_and(|n| n > ARGMAX_LENGTH) {
        return Err(EvalError::new(format!("{length} elements are sorted, and their indices are of i32")));
    }
    let mut shape = moved.shape.clone();
    let n = shape.split_last().map_or(0, |(_, lead)| count(lead));
    let mut out = Vec::with_capacity(n * first);
    let order = |o: Ordering| if descending { o.reverse() } else { o };
    for i in 0..n {
        let row = i * length..(i + 1) * length;
        let mut places: Vec<usize> = (0..length).collect();
        match &moved.data {
            // The sort must be stable.
            Data::Float(v) => {
                let v = &v[row];
                places.sort_by(|a, b| order(ordered(v[*a], v[*b])));
                // Every adjacent pair of the taken elements must be certain, and so must the last
                // of them against all others.
                let (taken, left) = places.split_at(first);
                let last = taken.last().map(|p| v[*p]);
                *certain &= taken.windows(2).all(|pair| surely(v[pair[0]], v[pair[1]]))
                    && last.is_none_or(|last| left.iter().all(|p| surely(last, v[*p])));
            }
            Data::Int(v) => {
                let v = &v[row];
                places.sort_by(|a, b| order(v[*a].cmp(&v[*b])));
            }
            Data::Bool(_) => return Err(EvalError::internal("argsort of bool")),
        }
        out.extend(places.iter().take(first).map(|p| *p as i64));
    }
    if let Some(last) = shape.last_mut() {
        *last = first;
    }
    Ok(moved_back(Array { elem: Elem::I32, shape, data: Data::Int(out) }, &perm))
}

/// The order of two floats: NaN after every number.
fn ordered<F: Real>(a: F, b: F) -> Ordering {
    let (a, b) = (a.value(), b.value());
    a.partial_cmp(&b).unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()))
}

/// Is the order of two floats the same at every precision?
fn surely<F: Real>(a: F, b: F) -> bool {
    let is_nan = a.value().is_nan() || b.value().is_nan();
    F::compare(CmpOp::Lt, a, b).1 || is_nan && a.has_bound() && b.has_bound()
}

/// `m + log(sum(exp(x - m)))`, with the maximum `m`, in `f32`; `-inf` if that is `-inf`.
fn log_sum_exp<F: Real>(row: &[F], certain: &mut bool) -> F {
    let op = |op: BinaryOp, a: F, b: F| F::binary(op, a, b, Elem::F32);
    let m = maximum(row, Elem::F32);
    let (hidden, sure) = F::compare(CmpOp::Eq, m, F::literal(f64::NEG_INFINITY, Elem::F32));
    *certain &= sure || m.value().is_nan();
    if hidden {
        return m;
    }
    let powers: Vec<F> = row.iter().map(|x| F::unary(UnaryOp::Exp, op(BinaryOp::Sub, *x, m), Elem::F32)).collect();
    let total = F::total(sum(&powers), row.len(), Elem::F32);
    op(BinaryOp::Add, m, F::unary(UnaryOp::Log, total, Elem::F32))
}

/// Softmax (or its logarithm) over an axis, computed in `f32`.
pub(super) fn softmax<F: Real>(
    x: &Array<F>,
    axis: usize,
    log: bool,
    certain: &mut bool,
) -> Result<Array<F>, EvalError> {
    let (moved, length, perm) = rows(x, &[axis]);
    let Data::Float(v) = &moved.data else { return Err(EvalError::internal("softmax of integers")) };
    let mut out = Vec::with_capacity(v.len());
    for row in v.chunks(length.max(1)) {
        softmax_row(row, None, log, x.elem, &mut out, certain);
    }
    Ok(moved_back(Array { elem: x.elem, shape: moved.shape, data: Data::Float(out) }, &perm))
}

/// Softmax of a row. The sink is an additional score that takes part in the sum but is not in the
/// result.
fn softmax_row<F: Real>(row: &[F], sink: Option<F>, log: bool, elem: Elem, out: &mut Vec<F>, certain: &mut bool) {
    let op = |op: BinaryOp, a: F, b: F| F::binary(op, a, b, Elem::F32);
    let mut m = maximum(row, Elem::F32);
    if let Some(sink) = sink {
        m = op(BinaryOp::Max, m, sink);
    }
    let (hidden, sure) = F::compare(CmpOp::Eq, m, F::literal(f64::NEG_INFINITY, Elem::F32));
    *certain &= sure || m.value().is_nan();
    if hidden {
        // Zeros, or their logarithms.
        let all = if log { f64::NEG_INFINITY } else { 0.0 };
        out.extend(row.iter().map(|_| F::literal(all, elem)));
        return;
    }
    let centred: Vec<F> = row.iter().map(|x| op(BinaryOp::Sub, *x, m)).collect();
    let powers: Vec<F> = centred.iter().map(|x| F::unary(UnaryOp::Exp, *x, Elem::F32)).collect();
    let mut total = F::total(sum(&powers), row.len(), Elem::F32);
    if let Some(sink) = sink {
        let power = F::unary(UnaryOp::Exp, op(BinaryOp::Sub, sink, m), Elem::F32);
        total = op(BinaryOp::Add, total, power);
    }
    if log {
        let total = F::unary(UnaryOp::Log, total, Elem::F32);
        out.extend(centred.iter().map(|x| op(BinaryOp::Sub, *x, total).cast(elem)));
    } else {
        out.extend(powers.iter().map(|e| op(BinaryOp::Div, *e, total).cast(elem)));
    }
}

/// Softmax over the last axis, with an additional score per row whose weight is dropped.
fn softmax_with_sink<F: Real>(x: &Array<F>, sink: &Array<F>, certain: &mut bool) -> Result<Array<F>, EvalError> {
    let Some((length, lead)) = x.shape.split_last() else { return Err(EvalError::internal("softmax of a scalar")) };
    let sinks = sink.broadcast(&[lead, &[1]].concat());
    let (Data::Float(v), Data::Float(sinks)) = (&x.data, &sinks.data) else {
        return Err(EvalError::internal("softmax of integers"));
    };
    let mut out = Vec::with_capacity(v.len());
    for (row, sink) in v.chunks(*length.max(&1)).zip(sinks) {
        softmax_row(row, Some(*sink), false, x.elem, &mut out, certain);
    }
    Ok(Array { elem: x.elem, shape: x.shape.clone(), data: Data::Float(out) })
}

/// Rows of the left matrix that are multiplied together, so that a row of the right matrix is read
/// once for all of them.
const ROWS: usize = 4;

/// Matmul over the last two axes; `shape` is the result's, `elem` its element type.
pub(super) fn matmul<F: Real>(
    a: &Array<F>,
    b: &Array<F>,
    shape: Vec<usize>,
    elem: Elem,
) -> Result<Array<F>, EvalError> {
    let (Some((m, k)), Some(n)) = (last_two(&a.shape), b.shape.last().copied()) else {
        return Err(EvalError::internal("a matmul of vectors"));
    };
    let lead = |s: &[usize]| s[..s.len() - 2].to_vec();
    let (la, lb, lo) = (lead(&a.shape), lead(&b.shape), lead(&shape));
    let pairs: Vec<(usize, usize)> = positions(&lo, &broadcast_strides(&la, &lo))
        .into_iter()
        .zip(positions(&lo, &broadcast_strides(&lb, &lo)))
        .map(|(i, j)| (i * m * k, j * k * n))
        .collect();
    let data = match (&a.data, &b.data) {
        (Data::Float(x), Data::Float(y)) => {
            let mut out = Vec::with_capacity(count(&shape));
            for (i, j) in pairs {
                let finish = |sum: F::Sum| F::total(sum, k, elem);
                let sums = Sums { zero: F::zero(), add: F::add_product, join: F::join };
                product(&x[i..i + m * k], &y[j..j + k * n], (m, k, n), &sums, finish, &mut out);
            }
            Data::Float(out)
        }
        (Data::Int(x), Data::Int(y)) => {
            let mut out = Vec::with_capacity(count(&shape));
            for (i, j) in pairs {
                let add = |sum: &mut i64, x: i64, y: i64| *sum = sum.wrapping_add(x.wrapping_mul(y));
                let join = |sum: &mut i64, more: i64| *sum = sum.wrapping_add(more);
                let sums = Sums { zero: 0, add, join };
                product(&x[i..i + m * k], &y[j..j + k * n], (m, k, n), &sums, |n| wrap(n, elem), &mut out);
            }
            Data::Int(out)
        }
        (Data::Float(_) | Data::Int(_) | Data::Bool(_), _) => {
            return Err(EvalError::internal("operands of different kinds"));
        }
    };
    Ok(Array { elem, shape, data })
}

fn last_two(shape: &[usize]) -> Option<(usize, usize)> {
    match shape {
        [.., m, n] => Some((*m, *n)),
        _ => None,
    }
}

/// The accumulator of a matmul: the empty sum, adding a term, adding another sum.
struct Sums<S, Add, Join> {
    zero: S,
    add: Add,
    join: Join,
}

/// A single matmul of two matrices; each sum goes over `k` in ascending order, in blocks.
fn product<T: Copy, S: Copy>(
    a: &[T],
    b: &[T],
    (m, k, n): (usize, usize, usize),
    sums: &Sums<S, impl Fn(&mut S, T, T), impl Fn(&mut S, S)>,
    finish: impl Fn(S) -> T,
    out: &mut Vec<T>,
) {
    let (mut totals, mut parts) = (vec![sums.zero; ROWS * n], vec![sums.zero; ROWS * n]);
    for first in (0..m).step_by(ROWS) {
        let height = ROWS.min(m - first);
        totals.fill(sums.zero);
        for block in (0..k).step_by(BLOCK) {
            parts.fill(sums.zero);
            for p in block..k.min(block + BLOCK) {
                let right = &b[p * n..(p + 1) * n];
                for r in 0..height {
                    let x = a[(first + r) * k + p];
                    for (sum, y) in parts[r * n..(r + 1) * n].iter_mut().zip(right) {
                        (sums.add)(sum, x, *y);
                    }
                }
            }
            totals.iter_mut().zip(&parts).for_each(|(total, part)| (sums.join)(total, *part));
        }
        out.extend(totals[..height * n].iter().map(|s| finish(*s)));
    }
}

/// `softmax(mask(q @ k^T * scale)) @ v`, of this shape, computed in `f32`; the weights are rounded
/// to the type of the values before the second matmul, as the definition says, and so is the
/// result. With masks, a key whose weight is 0 contributes nothing, even if its value is NaN or
/// infinite; for a key that no mask hides, [`Real::add_weighted`] may report that this is
/// uncertain.
pub(super) fn attention<F: Real>(
    [q, k, v, scale]: [&Array<F>; 4],
    result_shape: &[usize],
    masks: &[MaskKind],
    operands: &[&Array<F>],
    certain: &mut bool,
) -> Result<Array<F>, EvalError> {
    let missing = || EvalError::internal("an operand of the attention is missing");
    let elem = v.elem;
    let wide = |a: &Array<F>, certain: &mut bool| cast(a, Elem::F32, certain);
    let (q, k, v) = (wide(q, certain), wide(k, certain), wide(v, certain));
    let rank = k.shape.len();
    let mut perm: Vec<usize> = (0..rank).collect();
    perm.swap(rank - 1, rank - 2);
    let keys = k.transpose(&perm);
    let (s, t) = (q.shape[q.shape.len() - 2], k.shape[rank - 2]);
    let mut shape = result_shape[..result_shape.len() - 2].to_vec();
    shape.extend([s, t]);
    let mut scores = matmul(&q, &keys, shape.clone(), Elem::F32)?;
    scores = binary(BinaryOp::Mul, &scores, scale, &shape)?;
    let mut rest = operands.iter();
    let mut sink = None;
    // A score may be -inf without a mask; whether the value of such a key counts is left open.
    // Apply the masks to scores of 0 too, to see which keys they hide.
    let zero = Array::splat(Elem::F32, Vec::new(), F::literal(0.0, Elem::F32), 0);
    let mut both = [scores, zero];
    for mask in masks {
        match mask {
            MaskKind::Causal => {
                let seen = causal(s, t);
                let hidden = Array::splat(Elem::F32, Vec::new(), F::literal(f64::NEG_INFINITY, Elem::F32), 0);
                for x in &mut both {
                    *x = select(&seen, x, &hidden, &shape)?;
                }
            }
            MaskKind::Add => {
                let m = wide(rest.next().ok_or_else(missing)?, certain);
                for x in &mut both {
                    *x = binary(BinaryOp::Add, x, &m, &shape)?;
                }
            }
            MaskKind::Keep => {
                let c = rest.next().ok_or_else(missing)?;
                let fill = wide(rest.next().ok_or_else(missing)?, certain);
                for x in &mut both {
                    *x = select(c, x, &fill, &shape)?;
                }
            }
            MaskKind::Cap => {
                let most = rest.next().ok_or_else(missing)?;
                for x in &mut both {
                    *x = binary(BinaryOp::Mul, &unary(UnaryOp::Tanh, x)?, most, &shape)?;
                }
            }
            MaskKind::Sink => sink = Some(wide(rest.next().ok_or_else(missing)?, certain)),
        }
    }
    let [scores, of_zeros] = both;
    let weights = match sink {
        None => softmax(&scores, shape.len() - 1, false, certain)?,
        Some(sink) => softmax_with_sink(&scores, &sink, certain)?,
    };
    let weights = cast(&weights, elem, certain);
    let y = if masks.iter().all(|m| matches!(m, MaskKind::Cap | MaskKind::Sink)) {
        matmul(&weights, &v, result_shape.to_vec(), Elem::F32)?
    } else {
        let hidden = minus_infinite(&scores)?.into_iter().zip(minus_infinite(&of_zeros)?);
        let hidden: Vec<bool> = hidden.map(|(score, of_zero)| score && of_zero).collect();
        weighted(&weights, &hidden, &v, result_shape.to_vec())?
    };
    Ok(cast(&y, elem, certain))
}

/// For each score: is it `-inf`?
fn minus_infinite<F: Real>(scores: &Array<F>) -> Result<Vec<bool>, EvalError> {
    match &scores.data {
        Data::Float(scores) => Ok(scores.iter().map(|s| s.value() == f64::NEG_INFINITY).collect()),
        Data::Int(_) | Data::Bool(_) => Err(EvalError::internal("scores that are not floats")),
    }
}

/// `weights @ values`, where hidden keys contribute nothing.
fn weighted<F: Real>(
    weights: &Array<F>,
    hidden: &[bool],
    values: &Array<F>,
    shape: Vec<usize>,
) -> Result<Array<F>, EvalError> {
    let (Some((s, t)), Some(e)) = (last_two(&weights.shape), values.shape.last().copied()) else {
        return Err(EvalError::internal("an attention of vectors"));
    };
    let (Data::Float(w), Data::Float(v)) = (&weights.data, &values.data) else {
        return Err(EvalError::internal("an attention of integers"));
    };
    let lead = |s: &[usize]| s[..s.len() - 2].to_vec();
    let (lw, lv, lo) = (lead(&weights.shape), lead(&values.shape), lead(&shape));
    let places = positions(&lo, &broadcast_strides(&lw, &lo));
    let of_values = positions(&lo, &broadcast_strides(&lv, &lo));
    let mut out = Vec::with_capacity(count(&shape));
    for (i, j) in places.into_iter().zip(of_values) {
        for row in i * s..(i + 1) * s {
            let mut totals = vec![F::zero(); e];
            for block in (0..t).step_by(BLOCK) {
                let mut parts = vec![F::zero(); e];
                for key in (block..t.min(block + BLOCK)).filter(|key| !hidden[row * t + key]) {
                    let value = &v[(j * t + key) * e..(j * t + key + 1) * e];
                    parts.iter_mut().zip(value).for_each(|(sum, x)| F::add_weighted(sum, w[row * t + key], *x));
                }
                totals.iter_mut().zip(&parts).for_each(|(total, part)| F::join(total, *part));
            }
            out.extend(totals.into_iter().map(|sum| F::total(sum, t, Elem::F32)));
        }
    }
    Ok(Array { elem: Elem::F32, shape, data: Data::Float(out) })
}

/// Query `i` sees key `j` if `j <= i + t - s`.
pub(super) fn causal<F: Real>(s: usize, t: usize) -> Array<F> {
    let data = (0..s).flat_map(|i| (0..t).map(move |j| j + s <= i + t)).collect();
    Array { elem: Elem::Bool, shape: vec![s, t], data: Data::Bool(data) }
}
