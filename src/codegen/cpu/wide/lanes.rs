//! Instruction selection for operations on a vector of elements, at both widths.
//!
//! In: registers of a [`Builder`]. Out: registers. `f32` and `i32` are vectors; a boolean for each
//! lane ([`Builder::truth`]) is a mask register with AVX-512 and a vector of all ones or zeros with
//! AVX2. NaN is treated as in `codegen::cpu::lanes`.

use super::machine::{Builder, Class, Op, Operand, Reg};
use crate::scalar::{BinaryOp, CmpOp, ReduceKind, UnaryOp};
use crate::shape::Elem;
use crate::vector::{self, library};

/// Predicates of `vcmpps`: ordered and quiet, except that "not equal" is true for NaN.
const UNORDERED: i32 = 3;
const ORDERED: i32 = 7;
const NOT_LESS_OR_EQUAL: i32 = 0x16;

fn float_predicate(op: CmpOp) -> i32 {
    match op {
        CmpOp::Eq => 0x00,
        CmpOp::Ne => 0x04,
        CmpOp::Lt => 0x11,
        CmpOp::Le => 0x12,
        CmpOp::Gt => 0x1e,
        CmpOp::Ge => 0x1d,
    }
}

impl Builder {
    /// Register class of booleans.
    pub(super) fn truth(&self) -> Class {
        if self.wide() { Class::Mask } else { Class::Vector }
    }

    /// `a * b + c`, rounded once.
    pub(super) fn fma(&mut self, a: Reg, b: Reg, c: Reg) -> Reg {
        self.tied(Op::Fma, a, vec![b.into(), c.into()])
    }

    /// `c - a * b`, rounded once.
    pub(super) fn fnma(&mut self, a: Reg, b: Reg, c: Reg) -> Reg {
        self.tied(Op::Fnma, c, vec![a.into(), b.into()])
    }

    /// Compares floats with a `vcmpps` predicate.
    pub(super) fn test(&mut self, predicate: i32, x: Reg, y: Reg) -> Reg {
        let class = self.truth();
        self.make(class, Op::CompareF, vec![x.into(), y.into(), Operand::Imm(predicate)])
    }

    /// Is it NaN?
    pub(super) fn unordered(&mut self, x: Reg) -> Reg {
        self.test(UNORDERED, x, x)
    }

    /// Is either NaN?
    pub(super) fn unordered_pair(&mut self, x: Reg, y: Reg) -> Reg {
        self.test(UNORDERED, x, y)
    }

    /// `condition ? x : y`.
    pub(super) fn choose(&mut self, condition: Reg, x: Reg, y: Reg) -> Reg {
        if self.wide() {
            self.masked(Op::Blend, condition, false, vec![y.into(), x.into()])
        } else {
            self.vector(Op::Blend, vec![y.into(), x.into(), condition.into()])
        }
    }

    /// `x` where the condition holds, else zeros.
    pub(super) fn keep(&mut self, condition: Reg, x: Reg) -> Reg {
        if self.wide() {
            self.masked(Op::Copy, condition, true, vec![x.into()])
        } else {
            self.two(Op::And, condition, x)
        }
    }

    /// Negates a boolean.
    pub(super) fn not(&mut self, x: Reg) -> Reg {
        if self.wide() {
            self.make(Class::Mask, Op::MaskNot, vec![x.into()])
        } else {
            let ones = self.int(-1);
            self.two(Op::Xor, x, ones)
        }
    }

    fn logic(&mut self, mask: Op, vector: Op, x: Reg, y: Reg) -> Reg {
        let (class, op) = if self.wide() { (Class::Mask, mask) } else { (Class::Vector, vector) };
        self.make(class, op, vec![x.into(), y.into()])
    }

    pub(super) fn both(&mut self, x: Reg, y: Reg) -> Reg {
        self.logic(Op::MaskAnd, Op::And, x, y)
    }

    pub(super) fn either(&mut self, x: Reg, y: Reg) -> Reg {
        self.logic(Op::MaskOr, Op::Or, x, y)
    }

    /// Which integer lanes are not zero.
    pub(super) fn not_zero(&mut self, x: Reg) -> Reg {
        if self.wide() {
            self.make(Class::Mask, Op::TestI, vec![x.into(), x.into()])
        } else {
            let zero = self.int(0);
            let equal = self.two(Op::EqualI, x, zero);
            self.not(equal)
        }
    }

    /// A mask as a vector of `i32`, 0 or -1.
    pub(super) fn mask_to_vector(&mut self, x: Reg) -> Reg {
        if self.wide() { self.vector(Op::MaskToVector, vec![x.into()]) } else { x }
    }

    /// A vector of `i32`, 0 or -1, as a mask.
    pub(super) fn vector_to_mask(&mut self, x: Reg) -> Reg {
        if self.wide() { self.make(Class::Mask, Op::MaskFromVector, vec![x.into()]) } else { x }
    }

    /// Broadcasts the low 32 bits of a general register.
    pub(super) fn spread(&mut self, x: Reg) -> Reg {
        if self.wide() {
            self.vector(Op::SpreadGeneral, vec![x.into()])
        } else {
            let low = self.vector(Op::FromGeneral, vec![x.into()]);
            self.vector(Op::SpreadLow, vec![low.into()])
        }
    }

    /// Shifts each lane by a constant.
    pub(super) fn shift(&mut self, op: Op, x: Reg, bits: i32) -> Reg {
        self.vector(op, vec![x.into(), Operand::Imm(bits)])
    }

    pub(super) fn magnitude(&mut self, x: Reg) -> Reg {
        let mask = self.int(i32::MAX);
        self.two(Op::And, x, mask)
    }

    /// Maximum or minimum; NaN if either is NaN.
    fn extreme(&mut self, op: Op, x: Reg, y: Reg) -> Reg {
        // The instruction returns `y` if either is NaN.
        let m = self.two(op, x, y);
        let nan = self.unordered(x);
        self.choose(nan, x, m)
    }

    /// A unary operation; `None` if it has no leaf.
    pub(super) fn unary(&mut self, op: UnaryOp, elem: Elem, x: Reg) -> Option<Reg> {
        Some(match (elem, op) {
            (Elem::F32, UnaryOp::Neg) => {
                let sign = self.float(-0.0);
                let y = self.two(Op::Xor, x, sign);
                self.as_short_as(&[x], y)
            }
            (Elem::F32, UnaryOp::Abs) => {
                let y = self.magnitude(x);
                self.as_short_as(&[x], y)
            }
            (Elem::F32, UnaryOp::Sqrt) => self.vector(Op::Sqrt, vec![x.into()]),
            (Elem::F32, _) => return self.function(library::unary(op)?, &[x]),
            (Elem::Bool, UnaryOp::Not) => self.not(x),
            (Elem::I32, UnaryOp::Neg) => {
                let zero = self.int(0);
                self.two(Op::SubI, zero, x)
            }
            (Elem::I32, UnaryOp::Abs) => self.vector(Op::AbsI, vec![x.into()]),
            (Elem::I32, _) => {
                let [low, high] = op.integer_range()?;
                let mut y = x;
                for (op, bound) in [(Op::MaxI, low), (Op::MinI, high)] {
                    if let Some(bound) = bound {
                        let bound = self.int(i32::try_from(bound).ok()?);
                        y = self.two(op, y, bound);
                    }
                }
                y
            }
            _ => return None,
        })
    }

    /// A binary operation; `None` if it has no leaf.
    pub(super) fn binary(&mut self, op: BinaryOp, elem: Elem, x: Reg, y: Reg) -> Option<Reg> {
        let ty = match elem {
            Elem::F32 => Some(vector::Type::F32),
            Elem::I32 => Some(vector::Type::I32),
            Elem::Bool | Elem::I8 | Elem::I64 | Elem::F16 | Elem::BF16 => None,
        };
        if let Some(name) = ty.and_then(|ty| library::binary(op, ty)) {
            return self.function(name, &[x, y]);
        }
        let op = match (elem, op) {
            (Elem::F32, BinaryOp::Add) => Op::Add,
            (Elem::F32, BinaryOp::Sub) => Op::Sub,
            (Elem::F32, BinaryOp::Mul) => Op::Mul,
            (Elem::F32, BinaryOp::Div) => Op::Div,
            (Elem::F32, BinaryOp::Max | BinaryOp::Min) => {
                let z = self.extreme(if op == BinaryOp::Max { Op::Max } else { Op::Min }, x, y);
                return Some(self.as_short_as(&[x, y], z));
            }
            (Elem::Bool, BinaryOp::And) => return Some(self.both(x, y)),
            (Elem::Bool, BinaryOp::Or) => return Some(self.either(x, y)),
            (Elem::I32, BinaryOp::Add) => Op::AddI,
            (Elem::I32, BinaryOp::Sub) => Op::SubI,
            (Elem::I32, BinaryOp::Mul) => Op::MulI,
            (Elem::I32, BinaryOp::Max) => Op::MaxI,
            (Elem::I32, BinaryOp::Min) => Op::MinI,
            (Elem::I32, BinaryOp::BitAnd) => Op::And,
            (Elem::I32, BinaryOp::BitOr) => Op::Or,
            (Elem::I32, BinaryOp::BitXor) => Op::Xor,
            _ => return None,
        };
        Some(self.two(op, x, y))
    }

    /// A comparison; `None` if it has no leaf.
    pub(super) fn compare(&mut self, op: CmpOp, elem: Elem, x: Reg, y: Reg) -> Option<Reg> {
        Some(match elem {
            Elem::F32 => self.test(float_predicate(op), x, y),
            Elem::I32 if self.wide() => {
                let predicate = match op {
                    CmpOp::Eq => 0,
                    CmpOp::Lt => 1,
                    CmpOp::Le => 2,
                    CmpOp::Ne => 4,
                    CmpOp::Ge => 5,
                    CmpOp::Gt => 6,
                };
                self.make(Class::Mask, Op::CompareI, vec![x.into(), y.into(), Operand::Imm(predicate)])
            }
            Elem::I32 => match op {
                CmpOp::Eq => self.two(Op::EqualI, x, y),
                CmpOp::Gt => self.two(Op::GreaterI, x, y),
                CmpOp::Lt => self.two(Op::GreaterI, y, x),
                CmpOp::Ne | CmpOp::Le | CmpOp::Ge => {
                    let opposite = match op {
                        CmpOp::Ne => self.two(Op::EqualI, x, y),
                        CmpOp::Le => self.two(Op::GreaterI, x, y),
                        _ => self.two(Op::GreaterI, y, x),
                    };
                    self.not(opposite)
                }
            },
            Elem::Bool => match op {
                CmpOp::Eq | CmpOp::Ne => {
                    let differ = self.logic(Op::MaskXor, Op::Xor, x, y);
                    if op == CmpOp::Ne { differ } else { self.not(differ) }
                }
                CmpOp::Lt => self.logic(Op::MaskAndNot, Op::AndNot, x, y),
                CmpOp::Gt => self.logic(Op::MaskAndNot, Op::AndNot, y, x),
                CmpOp::Le => {
                    let greater = self.logic(Op::MaskAndNot, Op::AndNot, y, x);
                    self.not(greater)
                }
                CmpOp::Ge => {
                    let less = self.logic(Op::MaskAndNot, Op::AndNot, x, y);
                    self.not(less)
                }
            },
            Elem::BF16 | Elem::F16 | Elem::I8 | Elem::I64 => return None,
        })
    }

    /// `condition ? x : y` of elements of any type.
    pub(super) fn select(&mut self, elem: Elem, condition: Reg, x: Reg, y: Reg) -> Reg {
        if elem == Elem::Bool && self.wide() {
            let yes = self.both(condition, x);
            let no = self.logic(Op::MaskAndNot, Op::AndNot, condition, y);
            self.either(yes, no)
        } else {
            let z = self.choose(condition, x, y);
            self.as_short_as(&[x, y], z)
        }
    }

    /// Records that `to` holds `bf16` values if all of `from` do: it has their bits except for the
    /// sign.
    fn as_short_as(&mut self, from: &[Reg], to: Reg) -> Reg {
        if from.iter().all(|x| self.short.contains(x)) {
            self.short.insert(to);
        }
        to
    }

    /// Converts; float to integer truncates and saturates, NaN gives 0.
    pub(super) fn cast(&mut self, from: Elem, to: Elem, x: Reg) -> Option<Reg> {
        Some(match (from, to) {
            (a, b) if a == b => x,
            (Elem::F32, Elem::I32) => {
                let n = self.vector(Op::Truncate, vec![x.into()]);
                let limit = self.float(2_147_483_648.0);
                let over = self.test(float_predicate(CmpOp::Ge), x, limit);
                let largest = self.int(i32::MAX);
                let n = self.choose(over, largest, n);
                let number = self.test(ORDERED, x, x);
                self.keep(number, n)
            }
            (Elem::F32, Elem::Bool) => {
                let zero = self.float(0.0);
                self.test(float_predicate(CmpOp::Ne), x, zero)
            }
            (Elem::I32, Elem::F32) => self.vector(Op::FromInt, vec![x.into()]),
            (Elem::I32, Elem::Bool) => self.not_zero(x),
            (Elem::Bool, Elem::F32) => {
                let one = self.float(1.0);
                self.keep(x, one)
            }
            (Elem::Bool, Elem::I32) => {
                let one = self.int(1);
                self.keep(x, one)
            }
            _ => return None,
        })
    }

    /// Rounds to a narrower type; where one instruction rounds to `bf16`, subnormals become 0.
    pub(super) fn narrow(&mut self, x: Reg, to: Elem) -> Option<Reg> {
        Some(match to {
            Elem::BF16 if self.shortens => self.rounded(x),
            Elem::BF16 => {
                let bits = self.rounded(x);
                let high = self.int(-0x1_0000);
                let y = self.two(Op::And, bits, high);
                self.short.insert(y);
                y
            }
            Elem::F16 => {
                let half = self.vector(Op::ToHalf, vec![x.into(), Operand::Imm(0)]);
                self.vector(Op::FromHalf, vec![half.into()])
            }
            Elem::I8 => {
                let up = self.shift(Op::ShiftLeft, x, 24);
                self.shift(Op::ShiftSigned, up, 24)
            }
            Elem::F32 | Elem::I32 | Elem::Bool => x,
            Elem::I64 => return None,
        })
    }

    /// Bits whose upper half is the nearest `bf16`; NaN stays NaN.
    pub(super) fn rounded(&mut self, x: Reg) -> Reg {
        if self.short.contains(&x) {
            return x;
        }
        if self.shortens {
            let half = self.vector(Op::Shorten, vec![x.into()]);
            let words = self.vector(Op::Unsigned16, vec![half.into()]);
            let y = self.shift(Op::ShiftLeft, words, 16);
            self.short.insert(y);
            self.halves.insert(y, half);
            return y;
        }
        let half = self.shift(Op::ShiftRight, x, 16);
        let one = self.int(1);
        let odd = self.two(Op::And, half, one);
        let bias = self.int(0x7fff);
        let sum = self.two(Op::AddI, x, bias);
        let sum = self.two(Op::AddI, sum, odd);
        let quiet = self.int(0x40_0000);
        let nan = self.two(Op::Or, x, quiet);
        let is_nan = self.unordered(x);
        self.choose(is_nan, nan, sum)
    }

    /// Combines two partial results of a reduction.
    fn combine(&mut self, kind: ReduceKind, elem: Elem, x: Reg, y: Reg) -> Option<Reg> {
        match (kind, elem) {
            (ReduceKind::Sum, _) => self.binary(BinaryOp::Add, elem, x, y),
            (ReduceKind::Max, _) => self.binary(BinaryOp::Max, elem, x, y),
            (ReduceKind::Min, _) => self.binary(BinaryOp::Min, elem, x, y),
            (ReduceKind::All, Elem::Bool) => Some(self.two(Op::And, x, y)),
            (ReduceKind::Any, Elem::Bool) => Some(self.two(Op::Or, x, y)),
            _ => None,
        }
    }

    /// The butterfly exchanges of a horizontal reduction: instruction and immediate.
    fn exchanges(&self) -> &'static [(Op, i32)] {
        if self.wide() {
            &[(Op::Parts, 0x4e), (Op::Parts, 0xb1), (Op::Within, 0x4e), (Op::Within, 0xb1)]
        } else {
            &[(Op::Parts, 1), (Op::Within, 0x4e), (Op::Within, 0xb1)]
        }
    }

    fn exchanged(&mut self, (op, how): (Op, i32), x: Reg) -> Reg {
        let both = vec![x.into(), x.into(), Operand::Imm(how)];
        self.vector(op, if op == Op::Parts { both } else { both[1..].to_vec() })
    }

    /// Exchanges lanes at a distance: half the lanes, a quarter, .., 1.
    pub(super) fn exchange(&mut self, distance: u32, x: Reg) -> Option<Reg> {
        let from_last = usize::try_from(distance.trailing_zeros()).ok()?;
        let exchange = *self.exchanges().iter().rev().nth(from_last)?;
        Some(self.exchanged(exchange, x))
    }

    /// Reduces all lanes; the result is in every lane.
    pub(super) fn across(&mut self, kind: ReduceKind, elem: Elem, x: Reg) -> Option<Reg> {
        let mut x = x;
        for exchange in self.exchanges() {
            let other = self.exchanged(*exchange, x);
            x = self.combine(kind, elem, x, other)?;
        }
        Some(x)
    }

    /// Is `x` greater than `y`, or NaN while `y` is not?
    pub(super) fn beats(&mut self, elem: Elem, x: Reg, y: Reg) -> Option<Reg> {
        if elem != Elem::F32 {
            return self.compare(CmpOp::Gt, elem, x, y);
        }
        let not_at_most = self.test(NOT_LESS_OR_EQUAL, x, y);
        let number = self.test(ORDERED, y, y);
        Some(self.both(not_at_most, number))
    }
}
