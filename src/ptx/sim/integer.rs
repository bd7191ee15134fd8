//! Semantics of integer and bit instructions, lane by lane. Signedness comes from the instruction;
//! results are truncated to their registers later.

use super::lanes::{V, one, sign, three, two, zero};
use crate::ptx::words::{Funnel, Half, Sat};
use crate::ptx::{Op, Type};

/// The value of an operand, sign- or zero-extended according to its type.
fn wide(v: u64, ty: Type) -> i128 {
    if ty.is_signed() { i128::from(sign(v, ty.bits())) } else { i128::from(zero(v, ty.bits())) }
}

/// Executes an instruction of this kind. False for all others.
pub(super) fn eval(op: Op, x: &[V; 4], d: &mut V) -> bool {
    match op {
        Op::Mov { .. } => *d = x[0],
        Op::Add { sat: Sat::Wrap, .. } => two(x, d, |a, b| a.wrapping_add(b)),
        Op::Sub { sat: Sat::Wrap, .. } => two(x, d, |a, b| a.wrapping_sub(b)),
        Op::Add { sat: Sat::Clamp, .. } => two(x, d, |a, b| i64::from((a as i32).saturating_add(b as i32)) as u64),
        Op::Sub { sat: Sat::Clamp, .. } => two(x, d, |a, b| i64::from((a as i32).saturating_sub(b as i32)) as u64),
        Op::Mul { half: Half::Low, .. } => two(x, d, |a, b| a.wrapping_mul(b)),
        Op::Mul { half: Half::High, ty } => two(x, d, |a, b| high(a, b, ty)),
        Op::MulWide { ty } => two(x, d, |a, b| (wide(a, ty) * wide(b, ty)) as u64),
        Op::Mad { half: Half::Low, .. } => three(x, d, |a, b, c| a.wrapping_mul(b).wrapping_add(c)),
        Op::Mad { half: Half::High, ty } => three(x, d, |a, b, c| high(a, b, ty).wrapping_add(c)),
        Op::MadWide { ty } => three(x, d, |a, b, c| ((wide(a, ty) * wide(b, ty)) as u64).wrapping_add(c)),
        // Division by zero is unspecified: all ones, an unlikely expectation.
        Op::Div { ty } => two(x, d, |a, b| wide(a, ty).checked_div(wide(b, ty)).map_or(u64::MAX, |q| q as u64)),
        Op::Rem { ty } => two(x, d, |a, b| wide(a, ty).checked_rem(wide(b, ty)).map_or(u64::MAX, |q| q as u64)),
        Op::Abs { ty } => one(x, d, |a| sign(a, ty.bits()).wrapping_abs() as u64),
        Op::Neg { .. } => one(x, d, |a| a.wrapping_neg()),
        Op::Min { ty } => two(x, d, |a, b| wide(a, ty).min(wide(b, ty)) as u64),
        Op::Max { ty } => two(x, d, |a, b| wide(a, ty).max(wide(b, ty)) as u64),
        Op::Popc { ty } => one(x, d, |a| u64::from(zero(a, ty.bits()).count_ones())),
        Op::Clz { ty } => one(x, d, |a| u64::from(zero(a, ty.bits()).leading_zeros() - (64 - ty.bits()))),
        Op::Brev { ty } => one(x, d, |a| zero(a, ty.bits()).reverse_bits() >> (64 - ty.bits())),
        Op::Bfe { ty } => three(x, d, |a, b, c| extract(a, b as u32 & 0xff, c as u32 & 0xff, ty)),
        Op::Bfi { ty } => {
            for i in 0..32 {
                d[i] = insert(x[0][i], x[1][i], x[2][i] as u32 & 0xff, x[3][i] as u32 & 0xff, ty.bits());
            }
        }
        Op::Dp4a { at, bt } => three(x, d, |a, b, c| {
            let byte = |v: u64, n: u32, ty: Type| {
                let v = v >> (8 * n) & 0xff;
                if ty.is_signed() { sign(v, 8) } else { v as i64 }
            };
            let sum: i64 = (0..4).map(|n| byte(a, n, at) * byte(b, n, bt)).sum();
            (c as i64).wrapping_add(sum) as u64
        }),
        Op::And { .. } => two(x, d, |a, b| a & b),
        Op::Or { .. } => two(x, d, |a, b| a | b),
        Op::Xor { .. } => two(x, d, |a, b| a ^ b),
        Op::Not { .. } => one(x, d, |a| !a),
        Op::Shl { ty } => two(x, d, |a, b| {
            let n = zero(b, 32);
            if n >= u64::from(ty.bits()) { 0 } else { a << n }
        }),
        Op::Shr { ty } => two(x, d, |a, b| {
            let n = zero(b, 32).min(u64::from(ty.bits()));
            (wide(a, ty) >> n) as u64
        }),
        Op::ShfLeft { mode } => {
            three(x, d, |a, b, c| (zero(b, 32) << 32 | zero(a, 32)).checked_shl(distance(mode, c)).unwrap_or(0) >> 32)
        }
        Op::ShfRight { mode } => three(x, d, |a, b, c| (zero(b, 32) << 32 | zero(a, 32)) >> distance(mode, c)),
        Op::Lop3 {} => {
            for i in 0..32 {
                let (a, b, c, table) = (x[0][i], x[1][i], x[2][i], x[3][i]);
                d[i] = (0..8).filter(|row| table >> row & 1 == 1).fold(0, |all, row| {
                    let pick = |v: u64, bit: u32| if row >> bit & 1 == 1 { v } else { !v };
                    all | pick(a, 2) & pick(b, 1) & pick(c, 0)
                });
            }
        }
        Op::Prmt {} => three(x, d, |a, b, c| {
            let bytes = zero(b, 32) << 32 | zero(a, 32);
            (0..4).fold(0, |all, n| {
                let choice = c >> (4 * n) & 0xf;
                let byte = bytes >> (8 * (choice & 7)) & 0xff;
                let byte = if choice & 8 == 0 { byte } else { 0xff * (byte >> 7) };
                all | byte << (8 * n)
            })
        }),
        _ => return false,
    }
    true
}

fn high(a: u64, b: u64, ty: Type) -> u64 {
    if ty == Type::U64 {
        return ((u128::from(a) * u128::from(b)) >> 64) as u64;
    }
    ((wide(a, ty) * wide(b, ty)) >> ty.bits()) as u64
}

fn distance(mode: Funnel, c: u64) -> u32 {
    match mode {
        Funnel::Clamp => zero(c, 32).min(32) as u32,
        Funnel::Wrap => c as u32 & 31,
    }
}

/// `bfe`: bits past the highest, and bits above the field, are the sign, or 0.
fn extract(a: u64, from: u32, length: u32, ty: Type) -> u64 {
    let bits = ty.bits();
    let bit = |n: u32| a >> n & 1;
    let fill = if ty.is_signed() && length > 0 { bit((from + length - 1).min(bits - 1)) } else { 0 };
    (0..bits).fold(0, |all, n| {
        let this = if n < length && from + n < bits { bit(from + n) } else { fill };
        all | this << n
    })
}

/// `bfi`
fn insert(a: u64, b: u64, from: u32, length: u32, bits: u32) -> u64 {
    (0..length).take_while(|n| from + n < bits).fold(b, |all, n| all & !(1 << (from + n)) | (a >> n & 1) << (from + n))
}
