//! Alignment analysis of addresses.
//!
//! For each register the analysis tracks a number of known low bits, valid for all its reads: the
//! common bits of all its writes. It starts from pointers (`.ptr .global .align 16`), shared
//! variables and immediates, and handles sums, products, shifts and masks.
//!
//! A vector access, or one of 16 bytes, must be proved to be aligned, since it would otherwise
//! fault at run time. An access to one element must not be provably misaligned.

use super::Fault;
use crate::ptx::operand::{OperandKind, Role};
use crate::ptx::words::{Half, Space};
use crate::ptx::{Address, Base, Inst, Kernel, Module, Op, Operand, ParamType, Reg};

/// Known low bits of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Low {
    /// Number of known bits.
    bits: u32,
    /// Value of these bits.
    value: u64,
}

const UNKNOWN: Low = Low { bits: 0, value: 0 };

fn mask(bits: u32) -> u64 {
    if bits >= 64 { u64::MAX } else { (1 << bits) - 1 }
}

impl Low {
    fn new(bits: u32, value: u64) -> Low {
        let bits = bits.min(64);
        Low { bits, value: value & mask(bits) }
    }

    fn multiple_of(n: u64) -> Low {
        Low::new(n.trailing_zeros(), 0)
    }

    /// Limits the number of known bits.
    fn within(self, bits: u32) -> Low {
        Low::new(self.bits.min(bits), self.value)
    }

    fn both(self, other: Low, f: impl Fn(u64, u64) -> u64) -> Low {
        Low::new(self.bits.min(other.bits), f(self.value, other.value))
    }

    /// Number of low bits known to be 0.
    fn zeros(self) -> u32 {
        self.value.trailing_zeros().min(self.bits)
    }

    fn times(self, other: Low) -> Low {
        let bits = (self.bits + other.zeros()).min(other.bits + self.zeros());
        Low::new(bits, self.value.wrapping_mul(other.value))
    }

    fn and(self, other: Low) -> Low {
        let known = |n: u32| {
            let is_zero = |x: Low| x.bits > n && x.value >> n & 1 == 0;
            (self.bits > n && other.bits > n) || is_zero(self) || is_zero(other)
        };
        let bits = (0..64).take_while(|n| known(*n)).count() as u32;
        // A bit that only one operand knows is 0 there.
        Low::new(bits, self.value & other.value)
    }

    fn shl(self, n: u64) -> Low {
        if n >= 64 { Low::new(64, 0) } else { Low::new(self.bits + n as u32, self.value << n) }
    }

    fn shr(self, n: u64) -> Low {
        if n >= u64::from(self.bits) { UNKNOWN } else { Low::new(self.bits - n as u32, self.value >> n) }
    }

    /// The common low bits.
    fn common(self, other: Low) -> Low {
        let bits = self.bits.min(other.bits).min((self.value ^ other.value).trailing_zeros());
        Low::new(bits, self.value)
    }
}

struct Ctx<'a> {
    module: &'a Module,
    kernel: &'a Kernel,
    /// For each register; `None` if no write was seen yet.
    known: Vec<Option<Low>>,
}

pub(super) fn check(module: &Module, kernel: &Kernel, faults: &mut Vec<Fault>) {
    let mut ctx = Ctx { module, kernel, known: vec![None; kernel.registers.len()] };
    // Each round removes bits of some register, so it terminates.
    loop {
        let mut changed = false;
        for (_, inst) in kernel.insts() {
            changed |= ctx.step(inst);
        }
        if !changed {
            break;
        }
    }
    for (at, inst) in kernel.insts() {
        let slots = inst.op.slots();
        let is_vector = slots.iter().any(|s| matches!(s.kind, OperandKind::Vector(..) | OperandKind::Fragment(..)));
        for (slot, o) in slots.iter().zip(&inst.operands) {
            let (bytes, space) = match slot.kind {
                OperandKind::Address(space, bytes) => (u64::from(bytes), space),
                OperandKind::Sized(space, n) => match inst.operands.get(n) {
                    Some(Operand::Int(n)) => (n.unsigned_abs(), space),
                    _ => continue,
                },
                _ => continue,
            };
            let Operand::Address(a) = o else { continue };
            let low = ctx.place(a, space);
            let need = bytes.trailing_zeros();
            if low.value & mask(need) != 0 {
                faults.push((
                    Some(at),
                    format!(
                        "operand {}: the address is {} more than a multiple of {}, but {bytes} bytes are accessed; move the data or access less at a time",
                        slot.name,
                        low.value & mask(need),
                        1u64 << low.bits.min(need)
                    ),
                ));
            } else if low.bits < need && (is_vector || matches!(slot.kind, OperandKind::Sized(..))) {
                faults.push((
                    Some(at),
                    format!(
                        "operand {}: the address must be a multiple of {bytes}, but is only known to be a multiple of {}; declare the parameter `.ptr .global .align {bytes}`, scale what is added, or clear its low bits (`and`)",
                        slot.name,
                        1u64 << low.bits
                    ),
                ));
            }
        }
    }
}

impl Ctx<'_> {
    fn reg(&self, r: Reg) -> Option<Low> {
        self.known.get(r.0 as usize).copied().flatten()
    }

    /// The alignment of a variable.
    fn symbol(&self, name: &str) -> Low {
        let shared = self.kernel.shared.iter().chain(&self.module.shared).find(|s| s.name == name).map(|s| s.align);
        let param = || self.kernel.params.iter().find(|p| p.name == name).map(|p| p.ty.align());
        shared.or_else(param).map_or(UNKNOWN, |align| Low::multiple_of(u64::from(align)))
    }

    fn value(&self, o: &Operand) -> Option<Low> {
        Some(match o {
            Operand::Reg(r) => return self.reg(*r),
            Operand::Int(n) => Low::new(64, *n as u64),
            Operand::Symbol(s) => self.symbol(s),
            _ => UNKNOWN,
        })
    }

    fn place(&self, a: &Address, space: Space) -> Low {
        let base = match &a.base {
            Base::Reg(r) => self.reg(*r).unwrap_or(UNKNOWN),
            Base::Symbol(s) => self.symbol(s),
        };
        // Shared addresses wrap modulo 2^32, which does not affect low bits.
        let _ = space;
        base.both(Low::new(64, i64::from(a.offset) as u64), u64::wrapping_add)
    }

    /// Applies an instruction; returns whether known bits changed.
    fn step(&mut self, inst: &Inst) -> bool {
        let slots = inst.op.slots();
        let written = slots.iter().zip(&inst.operands).filter(|(s, _)| s.role != Role::Use).flat_map(|(_, o)| o.regs());
        let written: Vec<Reg> = written.collect();
        let result = self.result(inst);
        let mut changed = false;
        for r in written {
            let Some(result) = result else { continue };
            if let Some(place) = self.known.get_mut(r.0 as usize) {
                let new = place.map_or(result, |old| old.common(result));
                changed |= *place != Some(new);
                *place = Some(new);
            }
        }
        changed
    }

    /// Known bits of the result; `None` if an operand is not known yet.
    fn result(&self, inst: &Inst) -> Option<Low> {
        let operand = |n: usize| inst.operands.get(n).map_or(Some(UNKNOWN), |o| self.value(o));
        let shift = |n: usize| match inst.operands.get(n) {
            Some(Operand::Int(n)) => u64::try_from(*n).ok(),
            _ => None,
        };
        Some(match inst.op {
            Op::Mov { .. } | Op::CvtaToGlobal {} | Op::CvtaParam {} => operand(1)?,
            Op::LdParam { .. } => match inst.operands.get(1) {
                Some(Operand::Address(Address { base: Base::Symbol(s), offset: 0 })) => {
                    match self.kernel.params.iter().find(|p| p.name == *s).map(|p| p.ty) {
                        Some(ParamType::Pointer(align)) => Low::multiple_of(u64::from(align)),
                        _ => UNKNOWN,
                    }
                }
                _ => UNKNOWN,
            },
            Op::Add { ty, .. } => operand(1)?.both(operand(2)?, u64::wrapping_add).within(ty.bits()),
            Op::Sub { ty, .. } => operand(1)?.both(operand(2)?, u64::wrapping_sub).within(ty.bits()),
            Op::Mul { half: Half::Low, ty } => operand(1)?.times(operand(2)?).within(ty.bits()),
            Op::MulWide { ty } => operand(1)?.within(ty.bits()).times(operand(2)?.within(ty.bits())),
            Op::Mad { half: Half::Low, ty } => {
                operand(1)?.times(operand(2)?).both(operand(3)?, u64::wrapping_add).within(ty.bits())
            }
            Op::MadWide { ty } => {
                let product = operand(1)?.within(ty.bits()).times(operand(2)?.within(ty.bits()));
                product.both(operand(3)?, u64::wrapping_add)
            }
            Op::Shl { ty } => match shift(2) {
                Some(n) => operand(1)?.shl(n).within(ty.bits()),
                None => Low::multiple_of(1 << operand(1)?.zeros().min(63)),
            },
            Op::Shr { ty } => match shift(2) {
                Some(n) => operand(1)?.within(ty.bits()).shr(n),
                None => UNKNOWN,
            },
            Op::And { ty } => operand(1)?.and(operand(2)?).within(ty.bits()),
            Op::Or { ty } => operand(1)?.both(operand(2)?, |a, b| a | b).within(ty.bits()),
            Op::Xor { ty } => operand(1)?.both(operand(2)?, |a, b| a ^ b).within(ty.bits()),
            // The result is one of the operands.
            Op::SelP { .. } | Op::Min { .. } | Op::Max { .. } => operand(1)?.common(operand(2)?),
            Op::CvtInt { to, from, sat: crate::ptx::words::Sat::Wrap } => {
                operand(1)?.within(to.bits().min(from.bits()))
            }
            _ => UNKNOWN,
        })
    }
}
