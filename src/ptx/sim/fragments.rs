//! Fragments: which matrix elements the lanes of a warp hold.

use super::lanes::{V, lanes, sign};
use super::rounding::{nan, number, rounded};
use crate::ptx::Type;
use crate::ptx::words::Round;

/// Element `n` of a register as `f64`, exactly.
pub(super) fn element(register: u64, n: u32, ty: Type) -> f64 {
    let bits = ty.bits();
    let v = super::lanes::zero(register >> (n * bits), bits);
    match ty {
        Type::S8 => sign(v, 8) as f64,
        Type::U8 => v as f64,
        _ => number(v, ty),
    }
}

/// Converts an exact sum to the result type: rounded once, or modulo 2^32.
pub(super) fn result(x: f64, ty: Type) -> u64 {
    match ty {
        Type::S32 => x as i64 as u64 & 0xffff_ffff,
        _ if x.is_nan() => nan(ty),
        _ => rounded(x, ty, Round::Nearest),
    }
}

/// The value of an accumulator.
pub(super) fn accumulator(bits: u64, ty: Type) -> f64 {
    if ty == Type::S32 { sign(bits, 32) as f64 } else { number(bits, ty) }
}

/// The 16 rows of A that a warp's registers hold.
pub(super) fn rows_of_a(registers: &[V], ty: Type, depth: usize) -> Vec<f64> {
    let mut rows = vec![0.0; 16 * depth];
    let e = 32 / ty.bits();
    for (r, values) in registers.iter().enumerate() {
        for lane in lanes(u32::MAX) {
            let row = (lane / 4) as usize + 8 * (r % 2);
            for n in 0..e {
                let column = (e * (lane % 4) + 4 * e * (r as u32 / 2) + n) as usize;
                rows[row * depth + column] = element(values[lane as usize], n, ty);
            }
        }
    }
    rows
}

/// The dot product.
pub(super) fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}
