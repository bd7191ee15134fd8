//! Elementwise operations with broadcasting.
//!
//! In: arrays whose shapes broadcast. Out: an array. Operations whose outcome depends on rounding
//! report it.

use super::array::{Array, Data, broadcast_strides, count, positions, wrap};
use super::{EvalError, Real};
use crate::scalar::{BinaryOp, CmpOp, UnaryOp};
use crate::shape::Elem;

/// Maps an element of the result to the element of an operand.
enum Walk {
    Same,
    One,
    At(Vec<usize>),
}

impl Walk {
    fn new(from: &[usize], to: &[usize]) -> Walk {
        if from == to {
            Walk::Same
        } else if count(from) == 1 {
            Walk::One
        } else {
            Walk::At(positions(to, &broadcast_strides(from, to)))
        }
    }

    #[inline]
    fn at(&self, i: usize) -> usize {
        match self {
            Walk::Same => i,
            Walk::One => 0,
            Walk::At(p) => p[i],
        }
    }
}

fn zip<A: Copy, B: Copy, C>(a: &[A], wa: &Walk, b: &[B], wb: &Walk, n: usize, mut f: impl FnMut(A, B) -> C) -> Vec<C> {
    match (wa, wb) {
        (Walk::Same, Walk::Same) => a.iter().zip(b).map(|(x, y)| f(*x, *y)).collect(),
        (Walk::Same, Walk::One) => a.iter().map(|x| f(*x, b[0])).collect(),
        _ => (0..n).map(|i| f(a[wa.at(i)], b[wb.at(i)])).collect(),
    }
}

fn mismatch<T>() -> Result<T, EvalError> {
    Err(EvalError::internal("operands of different kinds"))
}

pub(super) fn unary<F: Real>(op: UnaryOp, x: &Array<F>) -> Result<Array<F>, EvalError> {
    let elem = x.elem;
    let undefined = || EvalError::internal(format!("`{op}` is not defined for {elem}"));
    let data = match &x.data {
        Data::Float(v) => Data::Float(v.iter().map(|x| F::unary(op, *x, elem)).collect()),
        Data::Int(v) => Data::Int(
            v.iter()
                .map(|n| op.eval_int(*n).map(|n| wrap(n, elem)).ok_or_else(undefined))
                .collect::<Result<Vec<i64>, EvalError>>()?,
        ),
        Data::Bool(v) => Data::Bool(
            v.iter()
                .map(|b| op.eval_int(i64::from(*b)).map(|n| n != 0).ok_or_else(undefined))
                .collect::<Result<Vec<bool>, EvalError>>()?,
        ),
    };
    Ok(Array { elem, shape: x.shape.clone(), data })
}

pub(super) fn binary<F: Real>(
    op: BinaryOp,
    a: &Array<F>,
    b: &Array<F>,
    shape: &[usize],
) -> Result<Array<F>, EvalError> {
    let (wa, wb, n) = (Walk::new(&a.shape, shape), Walk::new(&b.shape, shape), count(shape));
    let elem = a.elem;
    let data = match (&a.data, &b.data) {
        (Data::Float(x), Data::Float(y)) => Data::Float(zip(x, &wa, y, &wb, n, |x, y| F::binary(op, x, y, elem))),
        (Data::Int(x), Data::Int(y)) => Data::Int(zip(x, &wa, y, &wb, n, |x, y| wrap(op.eval_int(x, y), elem))),
        (Data::Bool(x), Data::Bool(y)) => {
            Data::Bool(zip(x, &wa, y, &wb, n, |x, y| op.eval_int(i64::from(x), i64::from(y)) != 0))
        }
        (Data::Float(_) | Data::Int(_) | Data::Bool(_), _) => return mismatch(),
    };
    Ok(Array { elem, shape: shape.to_vec(), data })
}

pub(super) fn compare<F: Real>(
    op: CmpOp,
    a: &Array<F>,
    b: &Array<F>,
    shape: &[usize],
    certain: &mut bool,
) -> Result<Array<F>, EvalError> {
    let (wa, wb, n) = (Walk::new(&a.shape, shape), Walk::new(&b.shape, shape), count(shape));
    let data = match (&a.data, &b.data) {
        (Data::Float(x), Data::Float(y)) => zip(x, &wa, y, &wb, n, |x, y| {
            let (outcome, sure) = F::compare(op, x, y);
            *certain &= sure;
            outcome
        }),
        (Data::Int(x), Data::Int(y)) => zip(x, &wa, y, &wb, n, |x, y| op.eval(x, y)),
        (Data::Bool(x), Data::Bool(y)) => zip(x, &wa, y, &wb, n, |x, y| op.eval(x, y)),
        (Data::Float(_) | Data::Int(_) | Data::Bool(_), _) => return mismatch(),
    };
    Ok(Array { elem: Elem::Bool, shape: shape.to_vec(), data: Data::Bool(data) })
}

pub(super) fn select<F: Real>(
    c: &Array<F>,
    a: &Array<F>,
    b: &Array<F>,
    shape: &[usize],
) -> Result<Array<F>, EvalError> {
    let Data::Bool(c_data) = &c.data else { return mismatch() };
    let wc = Walk::new(&c.shape, shape);
    let (wa, wb, n) = (Walk::new(&a.shape, shape), Walk::new(&b.shape, shape), count(shape));
    fn pick<T: Copy>(n: usize, c: impl Fn(usize) -> bool, a: impl Fn(usize) -> T, b: impl Fn(usize) -> T) -> Vec<T> {
        (0..n).map(|i| if c(i) { a(i) } else { b(i) }).collect()
    }
    let c = |i: usize| c_data[wc.at(i)];
    let data = match (&a.data, &b.data) {
        (Data::Float(x), Data::Float(y)) => {
            let picked = pick(n, c, |i| x[wa.at(i)], |i| y[wb.at(i)]);
            Data::Float(picked.into_iter().map(|x| x.passed_on(a.elem)).collect())
        }
        (Data::Int(x), Data::Int(y)) => Data::Int(pick(n, c, |i| x[wa.at(i)], |i| y[wb.at(i)])),
        (Data::Bool(x), Data::Bool(y)) => Data::Bool(pick(n, c, |i| x[wa.at(i)], |i| y[wb.at(i)])),
        (Data::Float(_) | Data::Int(_) | Data::Bool(_), _) => return mismatch(),
    };
    Ok(Array { elem: a.elem, shape: shape.to_vec(), data })
}

/// Smallest and largest value of an integer type.
pub(super) fn range(elem: Elem) -> (i64, i64) {
    match elem {
        Elem::I8 => (i64::from(i8::MIN), i64::from(i8::MAX)),
        Elem::I32 => (i64::from(i32::MIN), i64::from(i32::MAX)),
        Elem::I64 | Elem::F32 | Elem::BF16 | Elem::F16 => (i64::MIN, i64::MAX),
        Elem::Bool => (0, 1),
    }
}

pub(super) fn cast<F: Real>(x: &Array<F>, elem: Elem, certain: &mut bool) -> Array<F> {
    let (low, high) = range(elem);
    let data = match (&x.data, elem) {
        (Data::Float(v), Elem::F32 | Elem::BF16 | Elem::F16) => Data::Float(v.iter().map(|x| x.cast(elem)).collect()),
        (Data::Float(v), Elem::I8 | Elem::I32 | Elem::I64) => Data::Int(
            v.iter()
                .map(|x| {
                    let (n, sure) = x.to_int();
                    *certain &= sure;
                    n.clamp(low, high)
                })
                .collect(),
        ),
        (Data::Float(v), Elem::Bool) => Data::Bool(
            v.iter()
                .map(|x| {
                    let (truth, sure) = F::compare(CmpOp::Ne, *x, F::literal(0.0, Elem::F32));
                    *certain &= sure;
                    truth
                })
                .collect(),
        ),
        (Data::Int(v), Elem::F32 | Elem::BF16 | Elem::F16) => {
            Data::Float(v.iter().map(|n| F::from_int(*n, elem)).collect())
        }
        (Data::Int(v), Elem::I8 | Elem::I32 | Elem::I64) => Data::Int(v.iter().map(|n| wrap(*n, elem)).collect()),
        (Data::Int(v), Elem::Bool) => Data::Bool(v.iter().map(|n| *n != 0).collect()),
        (Data::Bool(v), Elem::F32 | Elem::BF16 | Elem::F16) => {
            Data::Float(v.iter().map(|b| F::from_int(i64::from(*b), elem)).collect())
        }
        (Data::Bool(v), Elem::I8 | Elem::I32 | Elem::I64) => Data::Int(v.iter().map(|b| i64::from(*b)).collect()),
        (Data::Bool(v), Elem::Bool) => Data::Bool(v.clone()),
    };
    Array { elem, shape: x.shape.clone(), data }
}
