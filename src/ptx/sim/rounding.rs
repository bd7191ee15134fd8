//! Floats as numbers: reading them from bits, and rounding a number once to any of the formats.
//!
//! Sums and products are found exactly, as an `f64` and what is missing from it, and made odd: an `f64` whose last bit says that
//! more follows. Rounding that to a format of 24 bits or less is rounding the exact number, in each direction.

use crate::ptx::Type;
use crate::ptx::words::Round;

/// The number of some bits, exactly.
pub(super) fn number(bits: u64, ty: Type) -> f64 {
    match ty {
        Type::F64 => f64::from_bits(bits),
        Type::F16 => half::f16::from_bits(bits as u16).to_f64(),
        Type::Bf16 => f64::from(f32::from_bits((bits as u32 & 0xffff) << 16)),
        Type::Tf32 => f64::from(f32::from_bits(bits as u32 & !0x1fff)),
        _ => f64::from(f32::from_bits(bits as u32)),
    }
}

/// The bits of NaN that results have.
pub(super) fn nan(ty: Type) -> u64 {
    match ty {
        Type::F64 => 0x7ff8_0000_0000_0000,
        Type::F16 | Type::Bf16 => 0x7fff,
        _ => 0x7fff_ffff,
    }
}

/// A sum and what is missing from it.
pub(super) fn sum(a: f64, b: f64) -> (f64, f64) {
    let s = a + b;
    let t = s - a;
    (s, (a - (s - t)) + (b - t))
}

/// An `f64` for a number and what is missing from it, whose last bit is set if anything is.
pub(super) fn odd(s: f64, missing: f64) -> f64 {
    if missing == 0.0 || !s.is_finite() || missing.is_nan() || s.to_bits() & 1 == 1 {
        return s;
    }
    if s == 0.0 {
        return missing;
    }
    f64::from_bits(if (missing > 0.0) == (s > 0.0) { s.to_bits() + 1 } else { s.to_bits() - 1 })
}

/// The same, but for sums in `f64` itself, which are rounded already.
pub(super) fn odd_unless_wide(s: f64, missing: f64, ty: Type) -> f64 {
    if ty == Type::F64 { s } else { odd(s, missing) }
}

/// 2 to a power, of those that an `f64` has.
fn power(n: i32) -> f64 {
    f64::from_bits(((n.clamp(-1022, 1023) + 1023) as u64) << 52)
}

/// A number that is rounded to a multiple of 1.
pub(super) fn integral(x: f64, round: Round) -> f64 {
    match round {
        Round::Nearest => x.round_ties_even(),
        Round::Zero => x.trunc(),
        Round::Down => x.floor(),
        Round::Up => x.ceil(),
    }
}

/// The bits of a number, rounded to `f32`, `f16` or `bf16`. For `f64` nothing is to be rounded.
pub(super) fn rounded(x: f64, ty: Type, round: Round) -> u64 {
    if x.is_nan() {
        return nan(ty);
    }
    let (precision, least, most) = match ty {
        Type::F64 => return x.to_bits(),
        Type::F16 => (11, -14, 65504.0),
        Type::Bf16 => (8, -126, f64::from(f32::from_bits(0x7f7f_0000))),
        _ => (24, -126, f64::from(f32::MAX)),
    };
    let mut y = x;
    if x != 0.0 && x.is_finite() {
        let exponent = ((x.to_bits() >> 52 & 0x7ff) as i32 - 1023).max(least);
        let quantum = exponent - (precision - 1);
        y = integral(x * power(-quantum), round) * power(quantum);
        if y == 0.0 {
            y = 0f64.copysign(x);
        }
        if y.abs() > most {
            let stays = match round {
                Round::Nearest => false,
                Round::Zero => true,
                Round::Down => x > 0.0,
                Round::Up => x < 0.0,
            };
            y = if stays { most.copysign(x) } else { f64::INFINITY.copysign(x) };
        }
    }
    match ty {
        Type::F16 => u64::from(half::f16::from_f64(y).to_bits()),
        Type::Bf16 => u64::from((y as f32).to_bits() >> 16),
        _ => u64::from((y as f32).to_bits()),
    }
}

/// An `f64` in another direction than to nearest, from the nearest one and the sign of what is missing from it.
pub(super) fn directed(nearest: f64, missing: f64, round: Round) -> f64 {
    if missing == 0.0 || missing.is_nan() || !nearest.is_finite() {
        return nearest;
    }
    let up = missing > 0.0;
    match round {
        Round::Nearest => nearest,
        Round::Up if up => nearest.next_up(),
        Round::Down if !up => nearest.next_down(),
        Round::Zero if up && nearest < 0.0 => nearest.next_up(),
        Round::Zero if !up && nearest > 0.0 => nearest.next_down(),
        Round::Up | Round::Down | Round::Zero => nearest,
    }
}

/// Subnormal numbers of `f32` become zeros of their sign.
pub(super) fn flushed(bits: u64) -> u64 {
    if bits & 0x7f80_0000 == 0 { bits & 0x8000_0000 } else { bits }
}
