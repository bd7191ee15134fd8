//! Semantics of conversions, lane by lane.

use super::lanes::{V, one, sign, two, zero};
use super::rounding::{directed, flushed, integral, nan, number, odd, rounded, sum};
use crate::ptx::words::{Ftz, Relu, Round, RoundInt, Sat};
use crate::ptx::{Op, Type};

fn direction(round: RoundInt) -> Round {
    match round {
        RoundInt::Nearest => Round::Nearest,
        RoundInt::Zero => Round::Zero,
        RoundInt::Down => Round::Down,
        RoundInt::Up => Round::Up,
    }
}

fn integer(v: u64, ty: Type) -> i128 {
    if ty.is_signed() { i128::from(sign(v, ty.bits())) } else { i128::from(zero(v, ty.bits())) }
}

/// The least and the greatest integer of a type.
fn range(ty: Type) -> (i128, i128) {
    if ty.is_signed() { (-(1 << (ty.bits() - 1)), (1 << (ty.bits() - 1)) - 1) } else { (0, (1 << ty.bits()) - 1) }
}

/// Executes an instruction of this kind. False for all others.
pub(super) fn eval(op: Op, x: &[V; 4], d: &mut V) -> bool {
    match op {
        Op::CvtInt { sat, to, from } => one(x, d, |a| {
            let n = integer(a, from);
            if sat == Sat::Clamp {
                let (least, most) = range(to);
                return n.clamp(least, most) as u64;
            }
            // Truncate, then extend to the register.
            if to.is_signed() { sign(n as u64, to.bits()) as u64 } else { zero(n as u64, to.bits()) }
        }),
        Op::CvtToFloat { round, to, from } => one(x, d, |a| {
            let n = integer(a, from);
            let (s, missing) = sum((n >> 32) as f64 * 4_294_967_296.0, (n & 0xffff_ffff) as f64);
            if to == Type::F64 { directed(s, missing, round).to_bits() } else { rounded(odd(s, missing), to, round) }
        }),
        Op::CvtToInt { round, ftz, to, from } => one(x, d, |a| {
            let v = number(if ftz == Ftz::Flush { flushed(a) } else { a }, from);
            if v.is_nan() {
                return if to.bits() == 64 { 1 << 63 } else { 0 };
            }
            let (least, most) = range(to);
            (integral(v, direction(round)) as i128).clamp(least, most) as u64
        }),
        Op::CvtRoundInt { round, ftz, ty } => one(x, d, |a| {
            let v = number(if ftz == Ftz::Flush { flushed(a) } else { a }, ty);
            if v.is_nan() {
                return nan(ty);
            }
            rounded(integral(v, direction(round)).copysign(v), ty, Round::Nearest)
        }),
        Op::CvtNarrow { round, ftz, relu, to, from } => one(x, d, |a| {
            let a = if ftz == Ftz::Flush && from == Type::F32 { flushed(a) } else { a };
            let d = narrowed(number(a, from), to, round, relu);
            if ftz == Ftz::Flush && to == Type::F32 { flushed(d) } else { d }
        }),
        Op::CvtWiden { ftz, to, from } => one(x, d, |a| {
            let a = if ftz == Ftz::Flush && from == Type::F32 { flushed(a) } else { a };
            rounded(number(a, from), to, Round::Nearest)
        }),
        Op::CvtPack { round, relu, to } => {
            let half = if to == Type::F16x2 { Type::F16 } else { Type::Bf16 };
            two(x, d, |a, b| {
                let part = |v: u64| narrowed(number(v, Type::F32), half, round, relu);
                part(a) << 16 | part(b)
            });
        }
        Op::CvtTf32 {} => one(x, d, |a| {
            let bits = a as u32;
            // Ties away from zero; infinities and NaN are unchanged.
            u64::from(if bits & 0x7f80_0000 == 0x7f80_0000 { bits } else { (bits + 0x1000) & !0x1fff })
        }),
        _ => return false,
    }
    true
}

fn narrowed(v: f64, to: Type, round: Round, relu: Relu) -> u64 {
    if relu == Relu::Yes && v <= 0.0 { 0 } else { rounded(v, to, round) }
}
