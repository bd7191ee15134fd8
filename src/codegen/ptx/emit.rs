//! Builder of a PTX kernel: named registers, labels, and instructions with constant folding.
//!
//! In: operations on registers and constants. Out: lines of a [`ptx::Kernel`]. Must not know:
//! tiles.

use std::collections::{BTreeMap, BTreeSet};

use crate::ptx::operand::RESERVED;
use crate::ptx::words::{Compare, Ftz, Half, Sat};
use crate::ptx::{self, Address, Base, Op, Operand, Reg, RegType, Register, Type};

/// A kernel's lines so far.
pub(super) struct Emit {
    pub(super) kernel: ptx::Kernel,
    /// Threads that take part in barriers, if not the whole block.
    pub(super) meeting: Option<u32>,
    taken: BTreeSet<String>,
    next: BTreeMap<String, u32>,
}

impl Emit {
    /// An empty kernel.
    pub(super) fn new(name: &str) -> Emit {
        Emit { kernel: ptx::Kernel::new(name), meeting: None, taken: BTreeSet::new(), next: BTreeMap::new() }
    }

    /// A unique name: `wish`, or `wish` with a number appended.
    fn unique(&mut self, wish: String) -> String {
        if self.taken.insert(wish.clone()) {
            return wish;
        }
        let next = self.next.entry(wish.clone()).or_insert(1);
        loop {
            let name = format!("{wish}_{next}");
            *next += 1;
            if self.taken.insert(name.clone()) {
                return name;
            }
        }
    }

    pub(super) fn reg(&mut self, name: &str, ty: RegType) -> Reg {
        let clean: String = name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
        let full = if clean.is_empty() { "%t".to_string() } else { format!("%{clean}") };
        let full = if RESERVED.contains(&full.as_str()) { format!("{full}_") } else { full };
        let name = self.unique(full);
        self.kernel.registers.push(Register { name, ty });
        Reg(u32::try_from(self.kernel.registers.len() - 1).unwrap_or(u32::MAX))
    }

    /// A unique label name.
    pub(super) fn new_label(&mut self, name: &str) -> String {
        self.unique(format!("${name}"))
    }

    /// Defines a label here.
    pub(super) fn label(&mut self, name: &str) {
        self.kernel.label(name);
    }

    /// An instruction without a result.
    pub(super) fn push(&mut self, op: Op, operands: impl Into<Vec<Operand>>) {
        self.kernel.push(op, operands);
    }

    /// An instruction with a result, in a new register.
    pub(super) fn make(&mut self, name: &str, op: Op, ty: Type, operands: &[Operand]) -> Operand {
        let d = self.reg(name, RegType::for_type(ty));
        self.kernel.push(op, [&[Operand::Reg(d)], operands].concat());
        Operand::Reg(d)
    }

    pub(super) fn assign(&mut self, to: Reg, ty: Type, x: &Operand) {
        if *x != Operand::Reg(to) {
            self.kernel.push(Op::Mov { ty }, [Operand::Reg(to), x.clone()]);
        }
    }

    /// The operand's register, or a new one for a constant.
    pub(super) fn in_reg(&mut self, x: &Operand, ty: Type) -> Operand {
        match x {
            Operand::Reg(_) => x.clone(),
            _ => self.make("c", Op::Mov { ty }, ty, std::slice::from_ref(x)),
        }
    }

    /// Jumps unconditionally (`bra.uni`).
    pub(super) fn jump(&mut self, label: &str) {
        self.kernel.push(Op::BraUniform {}, [Operand::Label(label.to_string())]);
    }

    /// Branches if a predicate holds, or if it does not (`negated`). `uniform`: it is the same in
    /// all threads.
    pub(super) fn jump_if(&mut self, predicate: &Operand, negated: bool, uniform: bool, label: &str) {
        let op = if uniform { Op::BraUniform {} } else { Op::Bra {} };
        if let Operand::Reg(p) = predicate {
            self.kernel.push_if(*p, negated, op, [Operand::Label(label.to_string())]);
        }
    }

    /// A predicated instruction.
    pub(super) fn push_if(&mut self, predicate: &Operand, op: Op, operands: impl Into<Vec<Operand>>) {
        match predicate {
            Operand::Reg(p) => self.kernel.push_if(*p, false, op, operands),
            _ => self.kernel.push(op, operands),
        }
    }

    /// A barrier of the block, or of its first `meeting` threads.
    pub(super) fn barrier(&mut self) {
        match self.meeting {
            // The other threads wait at barrier 0.
            Some(threads) => self.kernel.push(Op::BarSync {}, [Operand::Int(1), Operand::Int(i64::from(threads))]),
            None => self.kernel.push(Op::BarSync {}, [Operand::Int(0)]),
        }
    }

    /// A barrier of the warp, which also orders memory (`bar.warp.sync`).
    pub(super) fn barrier_of_warp(&mut self) {
        self.kernel.push(Op::BarWarp {}, [Operand::Int(-1)]);
    }

    /// Adds integers.
    pub(super) fn add(&mut self, name: &str, ty: Type, a: &Operand, b: &Operand) -> Operand {
        match (a, b) {
            (Operand::Int(x), Operand::Int(y)) => Operand::Int(x.wrapping_add(*y)),
            (Operand::Int(0), x) | (x, Operand::Int(0)) => x.clone(),
            (Operand::Int(_), x) => self.make(name, Op::Add { sat: Sat::Wrap, ty }, ty, &[x.clone(), a.clone()]),
            _ => self.make(name, Op::Add { sat: Sat::Wrap, ty }, ty, &[a.clone(), b.clone()]),
        }
    }

    pub(super) fn sub(&mut self, name: &str, ty: Type, a: &Operand, b: &Operand) -> Operand {
        match (a, b) {
            (Operand::Int(x), Operand::Int(y)) => Operand::Int(x.wrapping_sub(*y)),
            (x, Operand::Int(0)) => x.clone(),
            _ => self.make(name, Op::Sub { sat: Sat::Wrap, ty }, ty, &[a.clone(), b.clone()]),
        }
    }

    /// Multiplies integers, low half.
    pub(super) fn mul(&mut self, name: &str, ty: Type, a: &Operand, b: &Operand) -> Operand {
        let (a, b) = if matches!(a, Operand::Int(_)) { (b, a) } else { (a, b) };
        match (a, b) {
            (Operand::Int(x), Operand::Int(y)) => Operand::Int(x.wrapping_mul(*y)),
            (_, Operand::Int(0)) => Operand::Int(0),
            (x, Operand::Int(1)) => x.clone(),
            (x, Operand::Int(n)) if *n > 0 && n.count_ones() == 1 => {
                let bits = if ty.bits() == 64 { Type::B64 } else { Type::B32 };
                self.make(name, Op::Shl { ty: bits }, ty, &[x.clone(), Operand::Int(i64::from(n.trailing_zeros()))])
            }
            _ => self.make(name, Op::Mul { half: Half::Low, ty }, ty, &[a.clone(), b.clone()]),
        }
    }

    /// `a b + c`, of 64 bits.
    pub(super) fn mad(&mut self, name: &str, a: &Operand, b: &Operand, c: &Operand) -> Operand {
        let (a, b) = if matches!(a, Operand::Int(_)) { (b, a) } else { (a, b) };
        match (a, b, c) {
            (Operand::Int(_), _, _) | (_, Operand::Int(0 | 1), _) | (_, _, Operand::Int(0)) => {
                let product = self.mul(name, Type::S64, a, b);
                self.add(name, Type::S64, &product, c)
            }
            _ => {
                let c = self.in_reg(c, Type::S64);
                self.make(name, Op::Mad { half: Half::Low, ty: Type::S64 }, Type::S64, &[a.clone(), b.clone(), c])
            }
        }
    }

    /// `a b + c`, of 32 bits.
    pub(super) fn mad32(&mut self, name: &str, a: &Operand, n: u32, c: &Operand) -> Operand {
        match (a, n, c) {
            (Operand::Int(_), _, _) | (_, 0 | 1, _) | (_, _, Operand::Int(_)) => {
                let product = self.mul(name, Type::S32, a, &Operand::Int(i64::from(n)));
                self.add(name, Type::S32, &product, c)
            }
            _ => self.make(
                name,
                Op::Mad { half: Half::Low, ty: Type::S32 },
                Type::S32,
                &[a.clone(), Operand::Int(i64::from(n)), c.clone()],
            ),
        }
    }

    /// A comparison of integers or floats.
    pub(super) fn compare(&mut self, name: &str, compare: Compare, ty: Type, a: &Operand, b: &Operand) -> Operand {
        self.make(name, Op::SetP { compare, ftz: Ftz::Keep, ty }, Type::Pred, &[a.clone(), b.clone()])
    }

    /// `condition ? a : b`
    pub(super) fn select(&mut self, name: &str, ty: Type, condition: &Operand, a: &Operand, b: &Operand) -> Operand {
        let bits = match ty {
            Type::F32 | Type::F64 => ty,
            _ if ty.bits() == 64 => Type::B64,
            _ if ty.bits() == 16 => Type::B16,
            _ => Type::B32,
        };
        self.make(name, Op::SelP { ty: bits }, ty, &[a.clone(), b.clone(), condition.clone()])
    }

    pub(super) fn both(&mut self, a: Option<Operand>, b: Option<Operand>) -> Option<Operand> {
        match (a, b) {
            (Some(a), Some(b)) => Some(self.make("in", Op::And { ty: Type::Pred }, Type::Pred, &[a, b])),
            (a, b) => a.or(b),
        }
    }

    /// Sign-extends 32 bits to 64.
    pub(super) fn widen(&mut self, x: &Operand) -> Operand {
        match x {
            Operand::Reg(_) => {
                let op = Op::CvtInt { sat: Sat::Wrap, to: Type::S64, from: Type::S32 };
                self.make("w", op, Type::S64, std::slice::from_ref(x))
            }
            _ => x.clone(),
        }
    }

    /// The low 32 bits.
    pub(super) fn low(&mut self, name: &str, x: &Operand) -> Operand {
        match x {
            Operand::Int(n) => Operand::Int(i64::from(*n as i32)),
            _ => {
                let op = Op::CvtInt { sat: Sat::Wrap, to: Type::U32, from: Type::U64 };
                self.make(name, op, Type::U32, std::slice::from_ref(x))
            }
        }
    }
}

/// A memory operand `[base + offset]`.
pub(super) fn at(base: &Operand, offset: i32) -> Operand {
    match base {
        Operand::Reg(r) => Operand::Address(Address { base: Base::Reg(*r), offset }),
        Operand::Symbol(name) => Operand::Address(Address { base: Base::Symbol(name.clone()), offset }),
        other => other.clone(),
    }
}
