//! Operations on integers that take several PTX instructions: floor division, shifts by any number
//! of bits, powers.
//!
//! In: integers of one type. Out: the result that the language defines.

use super::emit::Emit;
use crate::ptx::words::{Compare, Half};
use crate::ptx::{Op, Operand, RegType, Type};
use crate::shape::Elem;

const ZERO: Operand = Operand::Int(0);
const ONE: Operand = Operand::Int(1);

impl Emit {
    /// Floor division: quotient and remainder; both are 0 for a zero divisor.
    pub(super) fn divide(&mut self, name: &str, ty: Type, x: &Operand, y: &Operand) -> (Operand, Operand) {
        if let (Operand::Int(n), true) = (y, ty == Type::S64 || ty == Type::S32)
            && *n > 0
            && n.count_ones() == 1
        {
            // Shifting rounds down.
            let bits = if ty.bits() == 64 { Type::B64 } else { Type::B32 };
            let q = self.make(name, Op::Shr { ty }, ty, &[x.clone(), Operand::Int(i64::from(n.trailing_zeros()))]);
            let r = self.make(name, Op::And { ty: bits }, ty, &[x.clone(), Operand::Int(n - 1)]);
            return (q, r);
        }
        let is_zero = self.compare("zero", Compare::Eq, ty, y, &ZERO);
        // A divisor of -1 is a negation, which wraps where the instruction is unspecified.
        let is_minus = self.compare("minus", Compare::Eq, ty, y, &Operand::Int(-1));
        let special = self.make("special", Op::Or { ty: Type::Pred }, Type::Pred, &[is_zero.clone(), is_minus.clone()]);
        let safe = self.select("divisor", ty, &special, &ONE, y);
        let q = self.make("q", Op::Div { ty }, ty, &[x.clone(), safe.clone()]);
        let p = self.make("product", Op::Mul { half: Half::Low, ty }, ty, &[q.clone(), safe.clone()]);
        let r = self.sub("r", ty, x, &p);
        let inexact = self.compare("inexact", Compare::Ne, ty, &r, &ZERO);
        let bits = if ty.bits() == 64 { Type::B64 } else { Type::B32 };
        let signs = self.make("signs", Op::Xor { ty: bits }, ty, &[r.clone(), safe.clone()]);
        let differ = self.compare("differ", Compare::Lt, ty, &signs, &ZERO);
        let down = self.make("down", Op::And { ty: Type::Pred }, Type::Pred, &[inexact, differ]);
        let less = self.add("q", ty, &q, &Operand::Int(-1));
        let q = self.select("q", ty, &down, &less, &q);
        let more = self.add("r", ty, &r, &safe);
        let r = self.select("r", ty, &down, &more, &r);
        let negated = self.sub("negated", ty, &ZERO, x);
        let q = self.select("q", ty, &is_minus, &negated, &q);
        let q = self.select(name, ty, &is_zero, &ZERO, &q);
        let r = self.select(name, ty, &special, &ZERO, &r);
        (q, r)
    }

    /// Shifts an integer by any number of bits; a negative count is treated as a large one.
    pub(super) fn shifted(&mut self, name: &str, left: bool, elem: Elem, x: &Operand, y: &Operand) -> Operand {
        let (ty, unsigned, bits) = match elem {
            Elem::I64 => (Type::S64, Type::U64, Type::B64),
            _ => (Type::S32, Type::U32, Type::B32),
        };
        // The instruction takes a 32-bit count and clamps it to the width, as the language defines.
        let most = Operand::Int(i64::from(ty.bits()));
        let near = self.make("n", Op::Min { ty: unsigned }, unsigned, &[y.clone(), most]);
        let near = if ty.bits() == 64 { self.low("n", &near) } else { near };
        let op = if left { Op::Shl { ty: bits } } else { Op::Shr { ty } };
        self.make(name, op, ty, &[x.clone(), near])
    }

    /// `x^y` by repeated squaring, wrapping; a negative exponent is treated as 0.
    pub(super) fn power(&mut self, name: &str, ty: Type, x: &Operand, y: &Operand) -> Operand {
        let regs = ["result", "base", "rest"].map(|n| self.reg(n, RegType::for_type(ty)));
        let [result, base, rest] = regs;
        let (head, done) = (self.new_label("power"), self.new_label("power_done"));
        self.assign(result, ty, &ONE);
        self.assign(base, ty, x);
        let y = self.make("rest", Op::Max { ty }, ty, &[y.clone(), ZERO]);
        self.assign(rest, ty, &y);
        self.label(&head);
        let [r, b, n] = regs.map(Operand::Reg);
        let none = self.compare("none", Compare::Eq, ty, &n, &ZERO);
        self.jump_if(&none, false, false, &done);
        let bits = if ty.bits() == 64 { Type::B64 } else { Type::B32 };
        let odd = self.make("odd", Op::And { ty: bits }, ty, &[n.clone(), ONE]);
        let is_odd = self.compare("odd", Compare::Ne, ty, &odd, &ZERO);
        let product = self.mul("product", ty, &r, &b);
        let next = self.select("result", ty, &is_odd, &product, &r);
        self.assign(result, ty, &next);
        let square = self.mul("square", ty, &b, &b);
        self.assign(base, ty, &square);
        let half = self.make("half", Op::Shr { ty }, ty, &[n, ONE]);
        self.assign(rest, ty, &half);
        self.push(Op::Bra {}, [Operand::Label(head)]);
        self.label(&done);
        self.make(name, Op::Mov { ty }, ty, &[r])
    }
}
