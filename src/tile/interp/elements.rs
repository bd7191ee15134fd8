//! Elements in their computation types, and scalar operations on them.

use super::{EvalError, broken, fail};
use crate::scalar::{BinaryOp, CmpOp, ReduceKind, Scalar, UnaryOp};
use crate::shape::Elem;

/// An element: `f32`, or an integer or truth value of the value's type.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::tile) enum Element {
    Float(f32),
    Int(i64),
}

/// Wraps an integer to a type; for `bool`, `!= 0`.
pub(super) fn wrap(n: i64, elem: Elem) -> i64 {
    match elem {
        Elem::I8 => i64::from(n as i8),
        Elem::I32 => i64::from(n as i32),
        Elem::Bool => i64::from(n != 0),
        Elem::I64 | Elem::F32 | Elem::BF16 | Elem::F16 => n,
    }
}

impl Element {
    pub(super) fn zero(elem: Elem) -> Element {
        if elem.is_float() { Element::Float(0.0) } else { Element::Int(0) }
    }

    pub(super) fn from_scalar(s: Scalar, elem: Elem) -> Element {
        if elem.is_float() { Element::Float(s.as_f64() as f32) } else { Element::Int(wrap(s.as_i64(), elem)) }
    }

    pub(in crate::tile) fn from_bytes(elem: Elem, b: &[u8]) -> Element {
        let four = || b.first_chunk().copied().unwrap_or_default();
        let two = || b.first_chunk().copied().unwrap_or_default();
        match elem {
            Elem::F32 => Element::Float(f32::from_le_bytes(four())),
            Elem::BF16 => Element::Float(half::bf16::from_le_bytes(two()).to_f32()),
            Elem::F16 => Element::Float(half::f16::from_le_bytes(two()).to_f32()),
            Elem::I8 => Element::Int(b.first().map_or(0, |x| i64::from(*x as i8))),
            Elem::I32 => Element::Int(i64::from(i32::from_le_bytes(four()))),
            Elem::I64 => Element::Int(i64::from_le_bytes(b.first_chunk().copied().unwrap_or_default())),
            Elem::Bool => Element::Int(b.first().map_or(0, |x| i64::from(*x != 0))),
        }
    }

    /// The bytes of an element in memory, and their number.
    pub(in crate::tile) fn to_bytes(self, elem: Elem) -> ([u8; 8], usize) {
        let mut out = [0; 8];
        let mut put = |b: &[u8]| {
            out[..b.len()].copy_from_slice(b);
            b.len()
        };
        let n = match (elem, self) {
            (Elem::F32, x) => put(&x.float().to_le_bytes()),
            (Elem::BF16, x) => put(&half::bf16::from_f32(x.float()).to_le_bytes()),
            (Elem::F16, x) => put(&half::f16::from_f32(x.float()).to_le_bytes()),
            (Elem::I8, x) => put(&(x.int() as i8).to_le_bytes()),
            (Elem::I32, x) => put(&(x.int() as i32).to_le_bytes()),
            (Elem::I64, x) => put(&x.int().to_le_bytes()),
            (Elem::Bool, x) => put(&[u8::from(x.int() != 0)]),
        };
        (out, n)
    }

    pub(super) fn float(self) -> f32 {
        match self {
            Element::Float(x) => x,
            Element::Int(n) => n as f32,
        }
    }

    pub(in crate::tile) fn int(self) -> i64 {
        match self {
            Element::Float(x) => x as i64,
            Element::Int(n) => n,
        }
    }

    pub(super) fn truth(self) -> bool {
        match self {
            Element::Float(x) => x != 0.0,
            Element::Int(n) => n != 0,
        }
    }

    /// Conversion: float to integer truncates towards zero and saturates, NaN becomes 0; integer to
    /// integer wraps.
    pub(super) fn cast(self, to: Elem) -> Element {
        match (self, to) {
            (x, Elem::Bool) => Element::Int(i64::from(x.truth())),
            (x, Elem::F32 | Elem::BF16 | Elem::F16) => Element::Float(x.float()),
            (Element::Float(x), Elem::I8) => Element::Int(i64::from(x as i8)),
            (Element::Float(x), Elem::I32) => Element::Int(i64::from(x as i32)),
            (Element::Float(x), Elem::I64) => Element::Int(x as i64),
            (Element::Int(n), elem) => Element::Int(wrap(n, elem)),
        }
    }

    /// Rounds to a narrower type.
    pub(super) fn narrow(self, to: Elem) -> Element {
        match to {
            Elem::BF16 => Element::Float(half::bf16::from_f32(self.float()).to_f32()),
            Elem::F16 => Element::Float(half::f16::from_f32(self.float()).to_f32()),
            Elem::I8 => Element::Int(wrap(self.int(), Elem::I8)),
            Elem::F32 | Elem::I32 | Elem::I64 | Elem::Bool => self,
        }
    }
}

pub(super) fn unary(op: UnaryOp, x: Element, elem: Elem) -> Result<Element, EvalError> {
    match x {
        Element::Float(x) => Ok(Element::Float(op.eval_f32(x))),
        Element::Int(n) => match op.eval_int(n) {
            Some(n) => Ok(Element::Int(wrap(n, elem))),
            None => broken(format!("{op} of an integer")),
        },
    }
}

pub(super) fn binary(op: BinaryOp, a: Element, b: Element, elem: Elem) -> Element {
    match (a, b) {
        (Element::Int(a), Element::Int(b)) => Element::Int(wrap(op.eval_int(a, b), elem)),
        (a, b) => Element::Float(op.eval_f32(a.float(), b.float())),
    }
}

pub(super) fn compare(op: CmpOp, a: Element, b: Element) -> Element {
    Element::Int(i64::from(match (a, b) {
        (Element::Int(a), Element::Int(b)) => op.eval(a, b),
        (a, b) => op.eval(a.float(), b.float()),
    }))
}

/// Reduces a line of elements, in order.
pub(super) fn reduce(
    kind: ReduceKind,
    elem: Elem,
    mut line: impl Iterator<Item = Element>,
) -> Result<Element, EvalError> {
    let lowest = match elem {
        Elem::I8 => i64::from(i8::MIN),
        Elem::I32 => i64::from(i32::MIN),
        _ => i64::MIN,
    };
    let highest = match elem {
        Elem::I8 => i64::from(i8::MAX),
        Elem::I32 => i64::from(i32::MAX),
        _ => i64::MAX,
    };
    let fold = |op, first, line: &mut dyn Iterator<Item = Element>| line.fold(first, |a, x| binary(op, a, x, elem));
    Ok(match kind {
        ReduceKind::Sum => fold(BinaryOp::Add, Element::zero(elem), &mut line),
        ReduceKind::Max if elem.is_float() => fold(BinaryOp::Max, Element::Float(f32::NEG_INFINITY), &mut line),
        ReduceKind::Max => fold(BinaryOp::Max, Element::Int(lowest), &mut line),
        ReduceKind::Min if elem.is_float() => fold(BinaryOp::Min, Element::Float(f32::INFINITY), &mut line),
        ReduceKind::Min => fold(BinaryOp::Min, Element::Int(highest), &mut line),
        ReduceKind::All => Element::Int(i64::from(line.all(Element::truth))),
        ReduceKind::Any => Element::Int(i64::from(line.any(Element::truth))),
        ReduceKind::ArgMax => {
            let mut best: Option<(i64, Element)> = None;
            for (i, x) in (0i64..).zip(line) {
                let better = best.is_none_or(|(_, b)| match (x, b) {
                    (Element::Int(x), Element::Int(b)) => x > b,
                    (x, b) => !b.float().is_nan() && (x.float().is_nan() || x.float() > b.float()),
                });
                if better {
                    best = Some((i, x));
                }
            }
            match best {
                Some((i, _)) => Element::Int(i),
                None => return fail("argmax of an empty axis"),
            }
        }
        ReduceKind::Mean | ReduceKind::LogSumExp => return broken("a reduction that the tile IR does not have"),
    })
}
