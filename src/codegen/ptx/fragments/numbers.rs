//! Indices and dimensions: 64-bit integers, folded if known at compile time.
//!
//! In: operations on indices, dimension expressions. Out: instructions, unless all operands are
//! constants.

use super::code::{Code, Number, ValueLocation, int, word};
use crate::ptx::words::{Compare, Ftz, Half, Sat};
use crate::ptx::{Op as P, Operand, Reg, RegType, Type as W};
use crate::scalar::BinaryOp;
use crate::shape::{Dim, Factor};
use crate::tile::{Op, Value, ValueDef};

impl Code<'_> {
    pub(super) fn operand(&self, n: Number) -> Operand {
        match n {
            Number::Known(n) => int(n),
            Number::Reg(r) => word(r),
        }
    }

    pub(super) fn in_register(&mut self, name: &str, n: Number) -> Reg {
        match n {
            Number::Reg(r) => r,
            Number::Known(n) => self.make(name, RegType::B64, P::Mov { ty: W::B64 }, &[int(n)]),
        }
    }

    /// A value as an index.
    pub(super) fn index(&self, v: Value) -> Result<Number, String> {
        match self.held.get(&v) {
            Some(ValueLocation::Number(n)) => Ok(*n),
            _ => Err(format!("{v} is not an index")),
        }
    }

    fn two(&mut self, name: &str, op: P, a: Number, b: Number) -> Number {
        // In some instructions only the second operand can be an immediate.
        let a = word(self.in_register(name, a));
        let b = self.operand(b);
        Number::Reg(self.make(name, RegType::B64, op, &[a, b]))
    }

    /// An operation on two indices; `div` and `rem` round down.
    pub(super) fn arithmetic(&mut self, name: &str, op: BinaryOp, a: Number, b: Number) -> Result<Number, String> {
        if let (Number::Known(x), Number::Known(y)) = (a, b) {
            return Ok(Number::Known(op.eval_int(x, y)));
        }
        Ok(match (op, a, b) {
            (BinaryOp::Add, Number::Known(0), x) | (BinaryOp::Mul, Number::Known(1), x) => x,
            (BinaryOp::Add | BinaryOp::Sub, x, Number::Known(0))
            | (BinaryOp::Mul | BinaryOp::Div, x, Number::Known(1)) => x,
            (BinaryOp::Mul, Number::Known(0), _) | (BinaryOp::Mul, _, Number::Known(0)) => Number::Known(0),
            (BinaryOp::Add, ..) => self.two(name, P::Add { sat: Sat::Wrap, ty: W::S64 }, a, b),
            (BinaryOp::Sub, ..) => self.two(name, P::Sub { sat: Sat::Wrap, ty: W::S64 }, a, b),
            (BinaryOp::Mul, ..) => self.two(name, P::Mul { half: Half::Low, ty: W::S64 }, a, b),
            (BinaryOp::Min, ..) => self.two(name, P::Min { ty: W::S64 }, a, b),
            (BinaryOp::Max, ..) => self.two(name, P::Max { ty: W::S64 }, a, b),
            (BinaryOp::Div, _, Number::Known(n)) if n > 0 && n.count_ones() == 1 => {
                let shift = Number::Known(i64::from(n.trailing_zeros()));
                self.two(name, P::Shr { ty: W::S64 }, a, shift)
            }
            (BinaryOp::Rem, _, Number::Known(n)) if n > 0 && n.count_ones() == 1 => {
                self.two(name, P::And { ty: W::B64 }, a, Number::Known(n - 1))
            }
            (BinaryOp::Div | BinaryOp::Rem, ..) => {
                let q = self.floor_divide(name, a, b)?;
                if op == BinaryOp::Div {
                    return Ok(q);
                }
                let back = self.arithmetic(name, BinaryOp::Mul, q, b)?;
                return self.arithmetic(name, BinaryOp::Sub, a, back);
            }
            _ => return Err(format!("{} of indices", op.name())),
        })
    }

    /// Floor division; by 0 the result is 0.
    fn floor_divide(&mut self, name: &str, a: Number, b: Number) -> Result<Number, String> {
        let (x, y) = (self.in_register(name, a), self.in_register(name, b));
        let none = self.compare64(name, Compare::Eq, Number::Reg(y), Number::Known(0));
        let safe = self.make(name, RegType::B64, P::SelP { ty: W::B64 }, &[int(1), word(y), word(none)]);
        let q = self.make(name, RegType::B64, P::Div { ty: W::S64 }, &[word(x), word(safe)]);
        let back = self.make(name, RegType::B64, P::Mul { half: Half::Low, ty: W::S64 }, &[word(q), word(safe)]);
        let rest = self.make(name, RegType::B64, P::Sub { sat: Sat::Wrap, ty: W::S64 }, &[word(x), word(back)]);
        // One less if the remainder is not zero and its sign differs from the divisor's.
        let signs = self.make(name, RegType::B64, P::Xor { ty: W::B64 }, &[word(rest), word(safe)]);
        let below = self.compare64(name, Compare::Lt, Number::Reg(signs), Number::Known(0));
        let some = self.compare64(name, Compare::Ne, Number::Reg(rest), Number::Known(0));
        let less = self.make(name, RegType::Pred, P::And { ty: W::Pred }, &[word(below), word(some)]);
        let down = self.make(name, RegType::B64, P::Sub { sat: Sat::Wrap, ty: W::S64 }, &[word(q), int(1)]);
        let q = self.make(name, RegType::B64, P::SelP { ty: W::B64 }, &[word(down), word(q), word(less)]);
        Ok(Number::Reg(self.make(name, RegType::B64, P::SelP { ty: W::B64 }, &[int(0), word(q), word(none)])))
    }

    pub(super) fn compare64(&mut self, name: &str, op: Compare, a: Number, b: Number) -> Reg {
        let a = word(self.in_register(name, a));
        let b = self.operand(b);
        self.make(name, RegType::Pred, P::SetP { compare: op, ftz: Ftz::Keep, ty: W::S64 }, &[a, b])
    }

    /// Evaluates a dimension.
    pub(super) fn dim(&mut self, d: &Dim) -> Result<Number, String> {
        if let Some(n) = d.as_const() {
            return Ok(Number::Known(n));
        }
        let (terms, (divisor, factors)) = d.as_fraction();
        let mut sum = Number::Known(0);
        for (coefficient, factors) in &terms {
            let term = self.dim_product(*coefficient, factors)?;
            sum = self.arithmetic("dim", BinaryOp::Add, sum, term)?;
        }
        if divisor == 1 && factors.is_empty() {
            return Ok(sum);
        }
        let divisor = self.dim_product(divisor, &factors)?;
        self.arithmetic("dim", BinaryOp::Div, sum, divisor)
    }

    fn dim_product(&mut self, coefficient: i128, factors: &[(Factor, u32)]) -> Result<Number, String> {
        let n = i64::try_from(coefficient).map_err(|_| "a coefficient of a dimension is too large")?;
        let mut out = Number::Known(n);
        for (f, exponent) in factors {
            let x = match f {
                Factor::Symbol(s) => {
                    *self.symbols.get(&**s).ok_or_else(|| format!("the dimension {s} is not known"))?
                }
                Factor::Quotient(a, b) | Factor::Floor(a, b) => {
                    let (a, b) = (self.dim(a)?, self.dim(b)?);
                    self.arithmetic("dim", BinaryOp::Div, a, b)?
                }
                Factor::Min(all) | Factor::Max(all) => {
                    let op = if matches!(f, Factor::Min(_)) { BinaryOp::Min } else { BinaryOp::Max };
                    let mut found = None;
                    for d in all {
                        let d = self.dim(d)?;
                        found = Some(match found {
                            None => d,
                            Some(x) => self.arithmetic("dim", op, x, d)?,
                        });
                    }
                    found.ok_or("a `min` or `max` without dimensions")?
                }
            };
            for _ in 0..*exponent {
                out = self.arithmetic("dim", BinaryOp::Mul, out, x)?;
            }
        }
        Ok(out)
    }

    /// Is a value known to be a multiple of `n`?
    pub(super) fn is_multiple(&self, v: Value, n: i64) -> bool {
        let ValueDef::Result(i) = self.body.def(v) else { return n == 1 };
        let data = self.body.inst(i);
        let operand = |k: usize| data.operands.get(k).is_some_and(|v| self.is_multiple(*v, n));
        match &data.op {
            Op::Const(x) => x.as_i64() % n == 0,
            Op::DimValue(d) => d.is_multiple_of(n),
            Op::Binary(BinaryOp::Mul) => operand(0) || operand(1),
            Op::Binary(BinaryOp::Add | BinaryOp::Sub | BinaryOp::Min | BinaryOp::Max) => operand(0) && operand(1),
            _ => n == 1,
        }
    }
}
