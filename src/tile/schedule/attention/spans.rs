//! Interval arithmetic: scalar bounds of a formula over a block of query-key pairs.
//!
//! In: an operation of a formula, and bounds of its operands. Out: IR that computes the bounds of
//! its result. This must not know masks, queries or keys.
//!
//! The bounds hold for the values as the kernel computes them. Integers wrap: where a sum or
//! product may overflow, its bounds are the range of the type. Floats are rounded as the kernel
//! rounds them, which is monotone; where they may exceed 1e30 in magnitude, nothing is known.

use crate::scalar::{BinaryOp, Change, CmpOp, Scalar, UnaryOp};
use crate::shape::Elem;
use crate::tile::{KernelBuilder, Op, Type, Value};

/// Smallest and largest `i32`.
pub(super) const I32: [i128; 2] = [i32::MIN as i128, i32::MAX as i128];
/// Limit of the magnitude of `i64` bounds; beyond it the span is unknown.
pub(super) const FAR: i128 = 1 << 61;
/// Limit of the magnitude of float bounds, so that none of their sums overflows; beyond it the span
/// is unknown.
pub(super) const FAR_FLOAT: f64 = 1e30;
/// Limit of the magnitude of floats read from a buffer, which leaves slack for sums and widened
/// bounds.
pub(super) const FAR_READ: f64 = 1e28;

/// Bounds of the result of an operation.
#[derive(Clone, Copy)]
pub(in crate::tile::schedule) enum Span {
    /// Integers: both bounds as run-time indices, and compile-time limits of these bounds.
    Ints([Value; 2], [i128; 2]),
    /// Finite floats: run-time bounds, and compile-time limits of them.
    Floats([Value; 2], [f64; 2]),
    /// Whether a condition is true for all elements, and for any. `None` where unknown.
    Truth { always: Option<Value>, ever: Option<Value> },
    /// Anything.
    Unknown,
}

pub(super) const MAYBE: Span = Span::Truth { always: None, ever: None };

/// An index: a value, or a literal not yet in the IR.
#[derive(Clone, Copy)]
pub(super) enum Number {
    Value(Value),
    Literal(i64),
}

/// Combines two conditions; `None` unless both are known.
pub(super) fn both(kb: &mut KernelBuilder, a: Option<Value>, b: Option<Value>, op: BinaryOp) -> Option<Value> {
    Some(kb.binary(op, a?, b?))
}

/// Combines two conditions; if only one is known, returns that one.
pub(super) fn either(kb: &mut KernelBuilder, a: Option<Value>, b: Option<Value>, op: BinaryOp) -> Option<Value> {
    match (a, b) {
        (Some(a), Some(b)) => Some(kb.binary(op, a, b)),
        (a, b) => a.or(b),
    }
}

/// Bounds of integers that wrap at the range of `elem`.
pub(super) fn integers(kb: &mut KernelBuilder, bounds: [Number; 2], known: [i128; 2], elem: Elem) -> Span {
    let [low, high] = bounds.map(|n| match n {
        Number::Value(v) => v,
        Number::Literal(n) => kb.index(n),
    });
    let [least, most] = known;
    if elem == Elem::I64 {
        return if least >= -FAR && most <= FAR { Span::Ints([low, high], known) } else { Span::Unknown };
    }
    if least >= I32[0] && most <= I32[1] {
        return Span::Ints([low, high], known);
    }
    let [bottom, top] = [i32::MIN, i32::MAX].map(|n| kb.index(i64::from(n)));
    let above = kb.compare_scalars(CmpOp::Ge, low, bottom);
    let below = kb.compare_scalars(CmpOp::Le, high, top);
    let fits = kb.binary(BinaryOp::And, above, below);
    let bounds = [(low, bottom), (high, top)].map(|(x, end)| kb.value(Op::Select, vec![fits, x, end], Type::Index));
    // Where it wraps it may be anything.
    Span::Ints(bounds, I32)
}

/// Bounds of floats, if within [`FAR_FLOAT`]; else unknown.
pub(super) fn finite(bounds: [Value; 2], known: [f64; 2]) -> Span {
    if known.iter().all(|x| x.abs() <= FAR_FLOAT) { Span::Floats(bounds, known) } else { Span::Unknown }
}

/// Bounds of an operation, from the bounds of its operands.
pub(super) fn each(kb: &mut KernelBuilder, op: &Op, x: &[Span], elem: Elem) -> Span {
    match (op, x) {
        (Op::Compare(op), [a, b]) => compared(kb, *op, *a, *b),
        (Op::Unary(UnaryOp::Not), [Span::Truth { always, ever }]) => {
            let mut not = |x: Option<Value>| x.map(|x| kb.unary(UnaryOp::Not, x));
            let (always, ever) = (not(*ever), not(*always));
            Span::Truth { always, ever }
        }
        (Op::Binary(op @ BinaryOp::And), [Span::Truth { always: a, ever: c }, Span::Truth { always: b, ever: d }]) => {
            let always = both(kb, *a, *b, *op);
            Span::Truth { always, ever: either(kb, *c, *d, *op) }
        }
        (Op::Binary(op @ BinaryOp::Or), [Span::Truth { always: a, ever: c }, Span::Truth { always: b, ever: d }]) => {
            let always = either(kb, *a, *b, *op);
            Span::Truth { always, ever: both(kb, *c, *d, *op) }
        }
        (Op::Unary(op), [Span::Ints([low, high], [least, most])]) => match op {
            UnaryOp::Neg => {
                let zero = kb.index(0);
                let [a, b] = [high, low].map(|x| Number::Value(kb.index_binary(BinaryOp::Sub, zero, *x)));
                integers(kb, [a, b], [-most, -least], elem)
            }
            UnaryOp::Abs => {
                let zero = kb.index(0);
                let [up, down] = [low, high].map(|x| kb.index_binary(BinaryOp::Sub, zero, *x));
                let nearest = kb.index_binary(BinaryOp::Max, *low, down);
                let nearest = kb.index_binary(BinaryOp::Max, nearest, zero);
                let farthest = kb.index_binary(BinaryOp::Max, *high, up);
                let known = [0, (*most).max(-least)];
                integers(kb, [Number::Value(nearest), Number::Value(farthest)], known, elem)
            }
            _ => Span::Unknown,
        },
        (Op::Unary(op), [Span::Floats([low, high], [least, most])]) => match op {
            UnaryOp::Neg => finite([kb.unary(*op, *high), kb.unary(*op, *low)], [-most, -least]),
            UnaryOp::Abs => {
                let zero = kb.scalar(Scalar::Float(0.0), Elem::F32);
                let [up, down] = [low, high].map(|x| kb.unary(UnaryOp::Neg, *x));
                let nearest = kb.binary(BinaryOp::Max, *low, down);
                let nearest = kb.binary(BinaryOp::Max, nearest, zero);
                finite([nearest, kb.binary(BinaryOp::Max, *high, up)], [0.0, most.max(-least)])
            }
            // Monotone, and in -1..1.
            UnaryOp::Sign => finite([kb.unary(*op, *low), kb.unary(*op, *high)], [-1.0, 1.0]),
            // Monotone, and rounding changes its operand by at most 1.
            op if op.change() == Change::Steps => {
                finite([kb.unary(*op, *low), kb.unary(*op, *high)], [least - 1.0, most + 1.0])
            }
            _ => Span::Unknown,
        },
        (Op::Binary(op), [Span::Ints(a, of_a), Span::Ints(b, of_b)]) => {
            of_integers(kb, *op, (*a, *of_a), (*b, *of_b), elem)
        }
        (Op::Binary(op), [Span::Floats(a, of_a), Span::Floats(b, of_b)]) => {
            of_floats(kb, *op, (*a, *of_a), (*b, *of_b))
        }
        (Op::Select, [_, Span::Ints(a, of_a), Span::Ints(b, of_b)]) => {
            let low = kb.index_binary(BinaryOp::Min, a[0], b[0]);
            let high = kb.index_binary(BinaryOp::Max, a[1], b[1]);
            Span::Ints([low, high], [of_a[0].min(of_b[0]), of_a[1].max(of_b[1])])
        }
        (Op::Cast, [Span::Ints(bounds, known)]) => match elem {
            Elem::F32 if known[0] >= I32[0] && known[1] <= I32[1] => {
                let bounds = bounds.map(|x| {
                    let x = kb.each(Op::Cast, vec![x], Elem::I32);
                    kb.cast(x, Elem::F32)
                });
                finite(bounds, known.map(|n| n as f64))
            }
            Elem::I32 | Elem::I64 => integers(kb, bounds.map(Number::Value), *known, elem),
            _ => Span::Unknown,
        },
        (Op::Cast, [Span::Floats(bounds, known)]) if elem == Elem::I32 => {
            let fits = known.iter().all(|x| x.abs() < 2e9);
            let bounds = bounds.map(|x| {
                let x = kb.cast(x, Elem::I32);
                kb.to_index(x)
            });
            if fits { Span::Ints(bounds, [known[0].floor() as i128, known[1].ceil() as i128]) } else { Span::Unknown }
        }
        (Op::Select, _) if elem == Elem::Bool => MAYBE,
        _ => {
            if elem == Elem::Bool {
                MAYBE
            } else {
                Span::Unknown
            }
        }
    }
}

/// Bounds of an operation on two integers.
fn of_integers(
    kb: &mut KernelBuilder,
    op: BinaryOp,
    (a, of_a): ([Value; 2], [i128; 2]),
    (b, of_b): ([Value; 2], [i128; 2]),
    elem: Elem,
) -> Span {
    let mut made = |op: BinaryOp, pairs: [(Value, Value); 2], known: [i128; 2]| {
        let bounds = pairs.map(|(x, y)| Number::Value(kb.index_binary(op, x, y)));
        integers(kb, bounds, known, elem)
    };
    let straight = [(a[0], b[0]), (a[1], b[1])];
    // Products have bounds only where one factor is constant.
    let (x, of_x, y, number) = if of_a[0] == of_a[1] { (b, of_b, a, of_a[0]) } else { (a, of_a, b, of_b[0]) };
    let is_number = of_a[0] == of_a[1] || of_b[0] == of_b[1];
    let fits = |x: i128| x.abs() <= 1 << 31;
    match op {
        BinaryOp::Add => made(op, straight, [of_a[0] + of_b[0], of_a[1] + of_b[1]]),
        BinaryOp::Sub => made(op, [(a[0], b[1]), (a[1], b[0])], [of_a[0] - of_b[1], of_a[1] - of_b[0]]),
        BinaryOp::Min => made(op, straight, [of_a[0].min(of_b[0]), of_a[1].min(of_b[1])]),
        BinaryOp::Max => made(op, straight, [of_a[0].max(of_b[0]), of_a[1].max(of_b[1])]),
        BinaryOp::Mul if is_number && fits(number) && of_x.iter().all(|x| fits(*x)) => {
            let order = if number >= 0 { [0, 1] } else { [1, 0] };
            made(op, order.map(|n| (x[n], y[0])), order.map(|n| of_x[n] * number))
        }
        BinaryOp::Div if of_b[0] == of_b[1] && of_b[0] > 0 => {
            made(op, [(a[0], b[0]), (a[1], b[0])], of_a.map(|n| n.div_euclid(of_b[0])))
        }
        BinaryOp::Rem if of_b[0] == of_b[1] && of_b[0] > 0 && fits(of_b[0]) => {
            let most = of_b[0] - 1;
            let bounds = [0, most].map(|n| kb.index(i64::try_from(n).unwrap_or_default()));
            Span::Ints(bounds, [0, most])
        }
        _ => Span::Unknown,
    }
}

/// Bounds of an operation on two floats; rounding is monotone.
fn of_floats(
    kb: &mut KernelBuilder,
    op: BinaryOp,
    (a, of_a): ([Value; 2], [f64; 2]),
    (b, of_b): ([Value; 2], [f64; 2]),
) -> Span {
    let mut made = |pairs: [(Value, Value); 2], known: [f64; 2]| {
        // The known bounds are computed in f64, so their rounding errors differ.
        let wide = [known[0] - known[0].abs() * 1e-3, known[1] + known[1].abs() * 1e-3];
        finite(pairs.map(|(x, y)| kb.binary(op, x, y)), wide)
    };
    let straight = [(a[0], b[0]), (a[1], b[1])];
    let number = if of_a[0] == of_a[1] { of_a[0] } else { of_b[0] };
    let order = |number: f64| if number >= 0.0 { [0, 1] } else { [1, 0] };
    match op {
        BinaryOp::Add => made(straight, [of_a[0] + of_b[0], of_a[1] + of_b[1]]),
        BinaryOp::Sub => made([(a[0], b[1]), (a[1], b[0])], [of_a[0] - of_b[1], of_a[1] - of_b[0]]),
        BinaryOp::Min => made(straight, [of_a[0].min(of_b[0]), of_a[1].min(of_b[1])]),
        BinaryOp::Max => made(straight, [of_a[0].max(of_b[0]), of_a[1].max(of_b[1])]),
        BinaryOp::Mul if of_b[0] == of_b[1] => {
            made(order(number).map(|n| (a[n], b[0])), order(number).map(|n| of_a[n] * number))
        }
        BinaryOp::Mul if of_a[0] == of_a[1] => {
            made(order(number).map(|n| (a[0], b[n])), order(number).map(|n| of_b[n] * number))
        }
        BinaryOp::Div if of_b[0] == of_b[1] && of_b[0].abs() > 1e-6 => {
            let number = of_b[0];
            made(order(number).map(|n| (a[n], b[0])), order(number).map(|n| of_a[n] / number))
        }
        _ => Span::Unknown,
    }
}

/// Whether a comparison holds for all pairs, and for any.
fn compared(kb: &mut KernelBuilder, op: CmpOp, a: Span, b: Span) -> Span {
    let (a, b) = match (a, b) {
        (Span::Ints(a, _), Span::Ints(b, _)) | (Span::Floats(a, _), Span::Floats(b, _)) => (a, b),
        _ => return MAYBE,
    };
    let ([least, most], [from, to]) = (a, b);
    let mut holds = |op: CmpOp, x: Value, y: Value| kb.compare_scalars(op, x, y);
    let (always, ever) = match op {
        CmpOp::Lt | CmpOp::Le => (holds(op, most, from), holds(op, least, to)),
        CmpOp::Gt | CmpOp::Ge => (holds(op, least, to), holds(op, most, from)),
        CmpOp::Eq | CmpOp::Ne => {
            // All are the same number.
            let (down, up) = (holds(CmpOp::Ge, least, to), holds(CmpOp::Le, most, from));
            let (meets, reaches) = (holds(CmpOp::Le, least, to), holds(CmpOp::Ge, most, from));
            let same = kb.binary(BinaryOp::And, down, up);
            let some = kb.binary(BinaryOp::And, meets, reaches);
            match op {
                CmpOp::Eq => (same, some),
                _ => (kb.unary(UnaryOp::Not, some), kb.unary(UnaryOp::Not, same)),
            }
        }
    };
    Span::Truth { always: Some(always), ever: Some(ever) }
}
