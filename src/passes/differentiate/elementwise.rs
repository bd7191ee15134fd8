//! The gradient of operations on elements, from the derivatives in their tables (`scalar::Slope`).
//!
//! In: an operation with its operands, and the gradient of its result. Out: the gradient of an
//! operand. A gradient of zero contributes zero, even where the derivative is infinite or NaN: what
//! a `where` hides must not make a NaN of 0 * inf.

use super::Res;
use super::emit::Emitter;
use crate::ir::{Op, Value};
use crate::passes::rewrite::splat;
use crate::scalar::{BinaryOp, CmpOp, Slope, UnaryOp};
use crate::shape::Elem;

/// The operands and the result of an operation, and the gradient of the result.
pub(super) struct Applied {
    pub x: Value,
    pub y: Option<Value>,
    pub z: Value,
    pub gradient: Value,
    /// Is the result differentiated again?
    pub again: bool,
}

/// The product of the result's gradient with a derivative; `None` for zero. Of small float types it
/// is computed in `f32`.
pub(super) fn product(e: &mut Emitter<'_>, applied: &Applied, slope: &Slope) -> Res<Option<Value>> {
    let elem = e.ty(applied.gradient)?.elem;
    let is_narrow = matches!(elem, Elem::BF16 | Elem::F16);
    if !is_narrow || matches!(slope, Slope::Number(_)) {
        return ScaledGradient { e, applied, elem }.times(applied.gradient, slope);
    }
    let wide = Applied {
        x: e.cast(applied.x, Elem::F32)?,
        y: applied.y.map(|y| e.cast(y, Elem::F32)).transpose()?,
        z: e.cast(applied.z, Elem::F32)?,
        gradient: e.cast(applied.gradient, Elem::F32)?,
        again: applied.again,
    };
    let made = ScaledGradient { e, applied: &wide, elem: Elem::F32 }.times(wide.gradient, slope)?;
    made.map(|v| e.cast(v, elem)).transpose()
}

struct ScaledGradient<'a, 'f> {
    e: &'a mut Emitter<'f>,
    applied: &'a Applied,
    elem: Elem,
}

impl ScaledGradient<'_, '_> {
    /// `g * slope`, simplified where the derivative is a number, a quotient or a choice.
    fn times(&mut self, g: Value, slope: &Slope) -> Res<Option<Value>> {
        match slope {
            Slope::Number(0.0) => Ok(None),
            Slope::Number(1.0) => Ok(Some(g)),
            Slope::Number(-1.0) => self.e.unary(UnaryOp::Neg, g).map(Some),
            Slope::Where(op, parts) => {
                let [a, b, then, otherwise] = parts.as_ref();
                let (a, b) = (self.value(a)?, self.value(b)?);
                let condition = self.e.compare(*op, a, b)?;
                let zero = self.e.number(0.0, self.elem)?;
                let then = self.times(g, then)?.unwrap_or(zero);
                let otherwise = self.times(g, otherwise)?.unwrap_or(zero);
                self.e.select(condition, then, otherwise).map(Some)
            }
            Slope::Binary(BinaryOp::Mul, parts) if matches!(parts[0], Slope::Number(_)) => {
                match self.times(g, &parts[0])? {
                    Some(g) => self.times(g, &parts[1]),
                    None => Ok(None),
                }
            }
            Slope::Binary(BinaryOp::Div, parts) => {
                let Some(g) = self.times(g, &parts[0])? else { return Ok(None) };
                let by = self.value(&parts[1])?;
                self.guarded(BinaryOp::Div, g, by).map(Some)
            }
            Slope::X | Slope::Y | Slope::Z | Slope::Number(_) | Slope::Unary(..) | Slope::Binary(..) => {
                let d = self.value(slope)?;
                self.guarded(BinaryOp::Mul, g, d).map(Some)
            }
        }
    }

    /// `g op d`, and 0 where `g` is 0.
    fn guarded(&mut self, op: BinaryOp, g: Value, d: Value) -> Res<Value> {
        let is_never_zero = splat(self.e.f, g).is_some_and(|s| s.as_f64() != 0.0);
        // The product with a number, and the quotient by one that is not 0, are 0 anyway.
        let is_divisor = op != BinaryOp::Div || splat(self.e.f, d).is_some_and(|s| s.as_f64() != 0.0);
        if is_never_zero || is_finite(self.e, d) && is_divisor {
            return self.e.binary(op, g, d);
        }
        let zero = self.e.number(0.0, self.elem)?;
        if !self.applied.again {
            let made = self.e.binary(op, g, d)?;
            let is_zero = self.e.compare(CmpOp::Eq, g, zero)?;
            return self.e.select(is_zero, zero, made);
        }
        // The derivative of the product is that of `g` times `d`, also where `g` happens to be 0.
        let one = self.e.number(1.0, self.elem)?;
        let d = if op == BinaryOp::Div { self.e.binary(op, one, d)? } else { d };
        let size = self.e.unary(UnaryOp::Abs, d)?;
        let infinite = self.e.number(f64::INFINITY, self.elem)?;
        let (finite, counts) = (self.e.compare(CmpOp::Lt, size, infinite)?, self.e.compare(CmpOp::Ne, g, zero)?);
        let valid = self.e.binary(BinaryOp::Or, finite, counts)?;
        let d = self.e.select(valid, d, zero)?;
        self.e.binary(BinaryOp::Mul, g, d)
    }

    fn value(&mut self, slope: &Slope) -> Res<Value> {
        match slope {
            Slope::X => Ok(self.applied.x),
            Slope::Y => match self.applied.y {
                Some(y) => Ok(y),
                None => self.e.refuse("a derivative names an operand that does not exist"),
            },
            Slope::Z => Ok(self.applied.z),
            Slope::Number(x) => self.e.number(*x, self.elem),
            Slope::Unary(op, x) => {
                let x = self.value(x)?;
                self.e.unary(*op, x)
            }
            Slope::Binary(op, parts) => {
                let (a, b) = (self.value(&parts[0])?, self.value(&parts[1])?);
                self.e.binary(*op, a, b)
            }
            Slope::Where(op, parts) => {
                let [a, b, then, otherwise] = parts.as_ref();
                let (a, b) = (self.value(a)?, self.value(b)?);
                let condition = self.e.compare(*op, a, b)?;
                let (then, otherwise) = (self.value(then)?, self.value(otherwise)?);
                self.e.select(condition, then, otherwise)
            }
        }
    }
}

/// Is a value certainly finite: a literal, a count, or moved from one?
fn is_finite(e: &Emitter<'_>, mut v: Value) -> bool {
    loop {
        let Some(d) = e.f.def_inst(v) else { return false };
        match (&d.op, d.operands.as_slice()) {
            (Op::Const(s), _) => return s.as_f64().is_finite(),
            (Op::DimValue(_) | Op::Iota { .. }, _) => return true,
            (Op::Cast { .. }, [x]) => return e.f.tensor(*x).is_some_and(|t| !t.elem.is_float()),
            (Op::Reshape | Op::Broadcast | Op::Transpose { .. } | Op::Slice { .. }, [x]) => v = *x,
            _ => return false,
        }
    }
}
