//! Recognises `causal` masks that an author writes with counters of rows and columns.
//!
//! In: a condition over scores `[.., S, T]`. Out: whether it is `j <= i + T - S` for row i and
//! column j. Only integers are traced, through `iota`, views that only add axes of 1 or repeat,
//! sums, differences, and values of dimensions.
//!
//! ```text
//!   rearrange(iota(S), "s -> s 1") >= iota(S)          // causal(S, S)
//! ```
//!
//! Counters are `i32` or `i64` and must not wrap: constants beyond 2^30 are rejected, and S + T is
//! assumed to fit an `i32`, because the matrix has S * T elements.

use super::rewrite::made_by;
use crate::ir::{Function, Op, Scalar, Value};
use crate::scalar::{BinaryOp, CmpOp};
use crate::shape::{Dim, Elem, TensorType};

/// `row * i + column * j + offset` over a matrix whose rows are counted by i, columns by j.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Counter {
    row: i64,
    column: i64,
    offset: Dim,
}

/// The maximum depth of a counter's expression.
const MAX_DEPTH: usize = 8;
/// The largest constant that is accepted.
const LARGEST: u64 = 1 << 30;

/// Is the condition `causal` over a matrix of this shape?
pub(super) fn is_causal(f: &Function, condition: Value, matrix: &[Dim]) -> bool {
    let Some((_, Op::Compare(cmp), [a, b])) = made_by(f, condition) else { return false };
    let [rows, columns] = matrix else { return false };
    let Some(t) = f.tensor(condition) else { return false };
    if !is_matrix(t, matrix) {
        return false;
    }
    let (Some(a), Some(b)) = (counter(f, *a, MAX_DEPTH), counter(f, *b, MAX_DEPTH)) else { return false };
    // As `low <= high` or `low < high`.
    let (low, high, strict) = match cmp {
        CmpOp::Le => (a, b, false),
        CmpOp::Lt => (a, b, true),
        CmpOp::Ge => (b, a, false),
        CmpOp::Gt => (b, a, true),
        CmpOp::Eq | CmpOp::Ne => return false,
    };
    // high - low = i - j + offset >= 0, or >= 1 if strict.
    let offset = high.offset.sub(&low.offset).sub(&Dim::from(i64::from(strict)));
    high.row - low.row == 1 && high.column - low.column == -1 && offset == columns.sub(rows)
}

/// Are the last axes of the tensor this matrix, and all axes before them 1?
fn is_matrix(t: &TensorType, matrix: &[Dim]) -> bool {
    match t.rank().checked_sub(matrix.len()) {
        Some(extra) => t.shape[..extra].iter().all(|d| d.as_const() == Some(1)) && &t.shape[extra..] == matrix,
        None => false,
    }
}

/// The index of an axis counted from the right: 0 is the last.
fn from_right(axis: usize, rank: usize) -> Option<usize> {
    rank.checked_sub(axis + 1)
}

fn counter(f: &Function, v: Value, depth: usize) -> Option<Counter> {
    let depth = depth.checked_sub(1)?;
    let t = f.tensor(v)?;
    if !matches!(t.elem, Elem::I32 | Elem::I64) {
        return None;
    }
    let constant = |offset: Dim| Some(Counter { row: 0, column: 0, offset });
    match made_by(f, v)? {
        (_, Op::Const(Scalar::Int(n)), _) if n.unsigned_abs() <= LARGEST => constant(Dim::from(*n)),
        (_, Op::DimValue(d), _) => constant(d.clone()),
        // An axis of extent 1 is broadcast, so its counter is always 0.
        (_, Op::Iota { axis }, _) if t.shape.get(*axis)?.as_const() == Some(1) => constant(Dim::zero()),
        (_, Op::Iota { axis }, _) => match from_right(*axis, t.rank())? {
            0 => Some(Counter { row: 0, column: 1, offset: Dim::zero() }),
            1 => Some(Counter { row: 1, column: 0, offset: Dim::zero() }),
            _ => None,
        },
        (_, Op::Broadcast, [x]) => counter(f, *x, depth),
        (_, Op::Reshape, [x]) => reshaped(counter(f, *x, depth)?, f.tensor(*x)?, t),
        (_, Op::Binary(op @ (BinaryOp::Add | BinaryOp::Sub)), [a, b]) => {
            let (a, b) = (counter(f, *a, depth)?, counter(f, *b, depth)?);
            Some(if *op == BinaryOp::Add {
                Counter { row: a.row + b.row, column: a.column + b.column, offset: a.offset.add(&b.offset) }
            } else {
                Counter { row: a.row - b.row, column: a.column - b.column, offset: a.offset.sub(&b.offset) }
            })
        }
        _ => None,
    }
}

/// A vector of counters, reshaped to the only column of a matrix, counts rows.
fn reshaped(c: Counter, from: &TensorType, to: &TensorType) -> Option<Counter> {
    let one = |d: &Dim| d.as_const() == Some(1);
    let [n] = from.shape.as_slice() else { return None };
    if one(n) || c.row != 0 {
        return None;
    }
    match to.shape.as_slice() {
        [lead @ .., m] if m == n && lead.iter().all(one) => Some(c),
        [lead @ .., m, last] if m == n && one(last) && lead.iter().all(one) => {
            Some(Counter { row: c.column, column: 0, offset: c.offset })
        }
        _ => None,
    }
}
