//! Float formats: decoding bits, and rounding a number once to any format.
//!
//! Sums and products are computed exactly, as an `f64` and its error, and rounded to odd: the last
//! bit of the `f64` is set if the result is inexact. Rounding that to a format of at most 24 bits
//! equals rounding the exact number, in each direction.

use crate::ptx::Type;
use crate::ptx::words::Round;

/// Decodes bits exactly.
pub(super) fn number(bits: u64, ty: Type) -> f64 {
    match ty {
        Type::F64 => f64::from_bits(bits),
        Type::F16 => half::f16::from_bits(bits as u16).to_f64(),
        Type::Bf16 => f64::from(f32::from_bits((bits as u32 & 0xffff) << 16)),
        Type::Tf32 => f64::from(f32::from_bits(bits as u32 & !0x1fff)),
        _ => f64::from(f32::from_bits(bits as u32)),
    }
}

/// The canonical NaN of results.
pub(super) fn nan(ty: Type) -> u64 {
    match ty {
        Type::F64 => 0x7ff8_0000_0000_0000,
        Type::F16 | Type::Bf16 => 0x7fff,
        _ => 0x7fff_ffff,
    }
}

/// A sum and its rounding error (two-sum).
pub(super) fn sum(a: f64, b: f64) -> (f64, f64) {
    let s = a + b;
    let t = s - a;
    (s, (a - (s - t)) + (b - t))
}

/// Rounds to odd: sets the last bit if there is an error.
pub(super) fn odd(s: f64, missing: f64) -> f64 {
    if missing == 0.0 || !s.is_finite() || missing.is_nan() || s.to_bits() & 1 == 1 {
        return s;
    }
    if s == 0.0 {
        return missing;
    }
    f64::from_bits(if (missing > 0.0) == (s > 0.0) { s.to_bits() + 1 } else { s.to_bits() - 1 })
}

/// The same, except for sums in `f64` itself, which are already rounded.
pub(super) fn odd_unless_wide(s: f64, missing: f64, ty: Type) -> f64 {
    if ty == Type::F64 { s } else { odd(s, missing) }
}

/// 2 to a power within the range of `f64`.
fn power(n: i32) -> f64 {
    f64::from_bits(((n.clamp(-1022, 1023) + 1023) as u64) << 52)
}

/// Rounds to an integer.
pub(super) fn integral(x: f64, round: Round) -> f64 {
    match round {
        Round::Nearest => x.round_ties_even(),
        Round::Zero => x.trunc(),
        Round::Down => x.floor(),
        Round::Up => x.ceil(),
    }
}

/// Rounds a number to `f32`, `f16` or `bf16` and encodes it. `f64` is only encoded.
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

/// Directed rounding of an `f64`, from the nearest one and the sign of its error.
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

/// Flushes subnormal `f32` to zeros of the same sign.
pub(super) fn flushed(bits: u64) -> u64 {
    if bits & 0x7f80_0000 == 0 { bits & 0x8000_0000 } else { bits }
}
