//! Elementary functions on a vector of `f32`: vector IR, translated to machine instructions.
//!
//! In: a function of `vector::library` and a register of a [`Builder`]. Out: a register. The
//! definition of a function and its error bound are in its source; here is one case for each
//! operation.

#![warn(clippy::wildcard_enum_match_arm, reason = "a new operation is reported as an error here")]

use super::super::math::features;
use super::machine::{Builder, Op, Operand, Reg};
use crate::scalar::CmpOp;
use crate::shape::Elem;
use crate::vector::Op as VectorOp;
use crate::vector::expand::{self, Expanded, Need};
use crate::vector::{Function, Inst, Type, Value};

/// Rounding mode: down, without the inexact exception.
const DOWNWARDS: i32 = 9;
/// Comparison predicates: equal, less; ordered and quiet.
const EQUAL: i32 = 0x00;
const LESS: i32 = 0x11;

impl Builder {
    /// Emits a function of the library. An error in it is recorded, so that generating the leaf
    /// fails.
    pub(super) fn function(&mut self, name: &str, args: &[Reg]) -> Option<Reg> {
        match expand::expanded(name, features(self.width())) {
            Ok(f) => self.printed(f, args),
            Err(message) => {
                self.wrong = Some(message);
                None
            }
        }
    }

    /// Emits the operations of a function in order.
    fn printed(&mut self, Expanded { function: f, needs }: &Expanded, args: &[Reg]) -> Option<Reg> {
        let mut values: Vec<Option<Reg>> = args.iter().copied().map(Some).collect();
        for (inst, need) in f.insts.iter().zip(needs) {
            let register = match need {
                Need::Value => {
                    let made = self.operation(f, inst, &values);
                    if made.is_none() {
                        self.wrong =
                            Some(format!("@{}: {} is not supported in leaf functions", f.name, inst.op.name()));
                    }
                    Some(made?)
                }
                Need::Number | Need::Nothing => None,
            };
            values.push(register);
        }
        values.get(f.result.index()).copied().flatten()
    }

    /// The high halves of unsigned products: of the even lanes, then of the odd ones.
    fn high_product(&mut self, x: Reg, y: Reg) -> Reg {
        let even = self.two(Op::MulEven, x, y);
        let (x, y) = (self.vector(Op::OddTwice, vec![x.into()]), self.vector(Op::OddTwice, vec![y.into()]));
        let odd = self.two(Op::MulEven, x, y);
        let low = self.shift(Op::ShiftRight64, even, 32);
        let high = self.shift(Op::ShiftRight64, odd, 32);
        let high = self.shift(Op::ShiftLeft64, high, 32);
        self.two(Op::Or, low, high)
    }

    fn operation(&mut self, f: &Function, inst: &Inst, values: &[Option<Reg>]) -> Option<Reg> {
        let get = |i: usize| inst.operands.get(i).and_then(|v: &Value| values.get(v.index()).copied().flatten());
        let bits = |i: usize| inst.operands.get(i).and_then(|v| expand::shift(f, *v)).map(i32::from);
        let plain = match &inst.op {
            VectorOp::Add => Op::Add,
            VectorOp::Sub => Op::Sub,
            VectorOp::Mul => Op::Mul,
            VectorOp::Div => Op::Div,
            VectorOp::Min => Op::Min,
            VectorOp::Max => Op::Max,
            VectorOp::Scale => Op::Scale,
            VectorOp::AddI => Op::AddI,
            VectorOp::SubI => Op::SubI,
            VectorOp::MulI => Op::MulI,
            VectorOp::AndI => Op::And,
            VectorOp::XorI => Op::Xor,
            VectorOp::MulHigh => return Some(self.high_product(get(0)?, get(1)?)),
            VectorOp::Truncate => return self.cast(Elem::F32, Elem::I32, get(0)?),
            VectorOp::Fma => return Some(self.fma(get(0)?, get(1)?, get(2)?)),
            VectorOp::Fnma => return Some(self.fnma(get(0)?, get(1)?, get(2)?)),
            VectorOp::Sqrt => return Some(self.vector(Op::Sqrt, vec![get(0)?.into()])),
            VectorOp::Nearest => return Some(self.vector(Op::Nearest, vec![get(0)?.into()])),
            VectorOp::ToFloat => return Some(self.vector(Op::FromInt, vec![get(0)?.into()])),
            VectorOp::Floor => return Some(self.vector(Op::Round, vec![get(0)?.into(), Operand::Imm(DOWNWARDS)])),
            VectorOp::Fraction => return Some(self.vector(Op::Reduce, vec![get(0)?.into(), Operand::Imm(DOWNWARDS)])),
            VectorOp::Neg => {
                let sign = self.float(-0.0);
                return Some(self.two(Op::Xor, get(0)?, sign));
            }
            VectorOp::NegAbs => {
                let sign = self.float(-0.0);
                return Some(self.two(Op::Or, get(0)?, sign));
            }
            VectorOp::Abs => return Some(self.magnitude(get(0)?)),
            VectorOp::CopySign => {
                let sign = self.float(-0.0);
                let s = self.two(Op::And, get(1)?, sign);
                let m = self.two(Op::AndNot, sign, get(0)?);
                return Some(self.two(Op::Or, m, s));
            }
            VectorOp::Bits | VectorOp::FromBits => return get(0),
            VectorOp::ShiftLeft => return Some(self.shift(Op::ShiftLeft, get(0)?, bits(1)?)),
            VectorOp::ShiftSigned => return Some(self.shift(Op::ShiftSigned, get(0)?, bits(1)?)),
            VectorOp::ShiftRight => return Some(self.shift(Op::ShiftRight, get(0)?, bits(1)?)),
            VectorOp::Less => return Some(self.test(LESS, get(0)?, get(1)?)),
            VectorOp::Equal => return Some(self.test(EQUAL, get(0)?, get(1)?)),
            VectorOp::LessI => return self.compare(CmpOp::Lt, Elem::I32, get(0)?, get(1)?),
            VectorOp::Select | VectorOp::SelectI => return Some(self.choose(get(0)?, get(1)?, get(2)?)),
            VectorOp::Const(bits) if inst.ty == Type::F32 => return Some(self.float(f32::from_bits(*bits))),
            VectorOp::Const(bits) => return Some(self.int(bits.cast_signed())),
            VectorOp::Polynomial(_) | VectorOp::Call(_) => return None,
        };
        Some(self.two(plain, get(0)?, get(1)?))
    }
}
