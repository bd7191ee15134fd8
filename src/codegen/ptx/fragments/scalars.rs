//! Operations that compute an index or a scalar, uniform in all threads.
//!
//! In: an operation. Out: its instructions, and the location of its result.

use super::code::{Code, Number, ValueLocation, comparison, float, int, word};
use crate::ptx::words::{Compare, Round, Sat};
use crate::ptx::{Op as P, Operand, Reg, RegType, Special, Type as W};
use crate::scalar::Scalar;
use crate::shape::Elem;
use crate::tile::{GpuOp, Inst, InstData, Op, Type};

impl Code<'_> {
    /// Compiles an operation that computes an index or scalar; false if it computes neither.
    pub(super) fn simple(&mut self, inst: Inst, data: &InstData) -> Result<bool, String> {
        let Some(v) = data.result else { return Ok(false) };
        let name = self.name(v);
        let number = |code: &Code<'_>, n: usize| -> Result<Number, String> {
            code.index(*data.operands.get(n).ok_or("an operand is missing")?)
        };
        let of_indices =
            data.operands.first().is_some_and(|v| *self.body.ty(*v) == Type::Index) && data.operands.len() > 1;
        let held = match (&data.op, self.body.ty(v)) {
            (Op::Const(x), Type::Index) => ValueLocation::Number(Number::Known(x.as_i64())),
            (Op::DimValue(d), Type::Index) => ValueLocation::Number(self.dim(d)?),
            (Op::Gpu(GpuOp::Blocks), Type::Index) => {
                let blocks = Operand::Special(Special::Nctaid(0));
                let blocks = self.make(&name, RegType::B32, P::Mov { ty: W::U32 }, &[blocks]);
                ValueLocation::Number(Number::Reg(self.widened(&name, blocks)))
            }
            (Op::Binary(op), Type::Index) => {
                let (a, b) = (number(self, 0)?, number(self, 1)?);
                ValueLocation::Number(self.arithmetic(&name, *op, a, b)?)
            }
            (Op::Select, Type::Index) => {
                let condition = self.scalar(*data.operands.first().ok_or("an operand is missing")?)?;
                let (a, b) = (number(self, 1)?, number(self, 2)?);
                let a = self.in_register(&name, a);
                let b = self.operand(b);
                ValueLocation::Number(Number::Reg(self.make(
                    &name,
                    RegType::B64,
                    P::SelP { ty: W::B64 },
                    &[word(a), b, word(condition)],
                )))
            }
            (Op::Cast, Type::Index) => {
                let x = *data.operands.first().ok_or("an operand is missing")?;
                let r = self.scalar(x)?;
                let wide = match self.body.ty(x).elem() {
                    Some(Elem::I64) => r,
                    _ => self.make(
                        &name,
                        RegType::B64,
                        P::CvtInt { sat: Sat::Wrap, to: W::S64, from: W::S32 },
                        &[word(r)],
                    ),
                };
                ValueLocation::Number(Number::Reg(wide))
            }
            (Op::Compare(op), Type::Scalar(Elem::Bool)) if of_indices => {
                let (a, b) = (number(self, 0)?, number(self, 1)?);
                if let (Number::Known(x), Number::Known(y)) = (a, b) {
                    let holds = op.eval(x, y);
                    let one = self.make(&name, RegType::B32, P::Mov { ty: W::U32 }, &[int(i64::from(holds))]);
                    ValueLocation::Scalar(self.compare32(&name, Compare::Ne, one, 0))
                } else {
                    ValueLocation::Scalar(self.compare64(&name, comparison(*op, false), a, b))
                }
            }
            (Op::Const(x), Type::Scalar(elem)) => ValueLocation::Scalar(self.literal(&name, *x, *elem)),
            (Op::DimValue(d), Type::Scalar(elem)) => {
                let n = self.dim(d)?;
                ValueLocation::Scalar(self.number_as(&name, n, *elem)?)
            }
            (Op::Cast, Type::Scalar(elem))
                if data.operands.first().is_some_and(|v| *self.body.ty(*v) == Type::Index) =>
            {
                let n = number(self, 0)?;
                ValueLocation::Scalar(self.number_as(&name, n, *elem)?)
            }
            (Op::Element, Type::Scalar(_)) => {
                let list = self.elements(*data.operands.first().ok_or("an operand is missing")?)?;
                ValueLocation::Scalar(*list.first().ok_or("a tile without elements")?)
            }
            (Op::LoadScalar, Type::Scalar(_)) => ValueLocation::Scalar(self.load_scalar(&name, data)?),
            (_, Type::Scalar(_)) if data.op.is_elementwise() => {
                let mut regs = Vec::new();
                for v in &data.operands {
                    regs.push(self.scalar(*v)?);
                }
                let from = data.operands.first().and_then(|v| self.body.ty(*v).elem()).unwrap_or(Elem::F32);
                let to = self.body.ty(v).elem().unwrap_or(Elem::F32);
                self.note(inst);
                ValueLocation::Scalar(self.apply(&name, &data.op, from, to, &regs)?)
            }
            _ => return Ok(false),
        };
        self.held.insert(v, held);
        Ok(true)
    }

    /// A literal in a register.
    pub(super) fn literal(&mut self, name: &str, x: Scalar, elem: Elem) -> Reg {
        match elem {
            Elem::F32 | Elem::BF16 | Elem::F16 => {
                self.make(name, RegType::F32, P::Mov { ty: W::F32 }, &[float(x.as_f64() as f32)])
            }
            Elem::I8 | Elem::I32 => self.make(name, RegType::B32, P::Mov { ty: W::B32 }, &[int(x.as_i64())]),
            Elem::I64 => self.make(name, RegType::B64, P::Mov { ty: W::B64 }, &[int(x.as_i64())]),
            Elem::Bool => {
                let one = self.make(name, RegType::B32, P::Mov { ty: W::U32 }, &[int(i64::from(x.as_i64() != 0))]);
                self.compare32(name, Compare::Ne, one, 0)
            }
        }
    }

    /// An index as a scalar.
    pub(super) fn number_as(&mut self, name: &str, n: Number, elem: Elem) -> Result<Reg, String> {
        Ok(match elem {
            Elem::I32 => {
                let low = self.low32(name, n);
                self.in_register32(name, low)
            }
            Elem::I64 => self.in_register(name, n),
            Elem::F32 => {
                let r = self.in_register(name, n);
                self.make(
                    name,
                    RegType::F32,
                    P::CvtToFloat { round: Round::Nearest, to: W::F32, from: W::S64 },
                    &[word(r)],
                )
            }
            _ => return Err(format!("an index as {elem}")),
        })
    }
}
