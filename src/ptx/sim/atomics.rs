//! Semantics of atomic operations.

use super::lanes::{sign, zero};
use super::rounding::{nan, number, odd_unless_wide, rounded, sum};
use crate::ptx::Type;
use crate::ptx::words::{Atomic, Round};

/// The new value after an atomic operation.
pub(super) fn atomic(op: Atomic, ty: Type, old: u64, b: u64) -> u64 {
    let (x, y) = (sign(old, ty.bits()), sign(b, ty.bits()));
    match (op, ty) {
        (Atomic::Add, Type::F32 | Type::F16 | Type::Bf16 | Type::F64) => {
            let (s, missing) = sum(number(old, ty), number(b, ty));
            if s.is_nan() { nan(ty) } else { rounded(odd_unless_wide(s, missing, ty), ty, Round::Nearest) }
        }
        (Atomic::Add, _) => old.wrapping_add(b),
        (Atomic::Min, _) if ty.is_signed() => x.min(y) as u64,
        (Atomic::Max, _) if ty.is_signed() => x.max(y) as u64,
        (Atomic::Min, _) => old.min(zero(b, ty.bits())),
        (Atomic::Max, _) => old.max(zero(b, ty.bits())),
        (Atomic::And, _) => old & b,
        (Atomic::Or, _) => old | b,
        (Atomic::Xor, _) => old ^ b,
        (Atomic::Exchange, _) => b,
        (Atomic::Increment, _) => {
            if old >= zero(b, 32) {
                0
            } else {
                old + 1
            }
        }
        (Atomic::Decrement, _) => {
            if old == 0 || old > zero(b, 32) {
                b
            } else {
                old - 1
            }
        }
    }
}
