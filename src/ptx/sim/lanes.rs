//! Values of the 32 lanes of a warp.

/// One value for each lane, as bits.
pub(super) type V = [u64; 32];

/// The low bits of a value.
pub(super) fn zero(v: u64, bits: u32) -> u64 {
    if bits >= 64 { v } else { v & ((1 << bits) - 1) }
}

/// The low bits of a value, extended by their sign.
pub(super) fn sign(v: u64, bits: u32) -> i64 {
    let rest = 64 - bits.min(64);
    ((v << rest) as i64) >> rest
}

pub(super) fn one(x: &[V; 4], d: &mut V, f: impl Fn(u64) -> u64) {
    for (d, a) in d.iter_mut().zip(&x[0]) {
        *d = f(*a);
    }
}

pub(super) fn two(x: &[V; 4], d: &mut V, f: impl Fn(u64, u64) -> u64) {
    for ((d, a), b) in d.iter_mut().zip(&x[0]).zip(&x[1]) {
        *d = f(*a, *b);
    }
}

pub(super) fn three(x: &[V; 4], d: &mut V, f: impl Fn(u64, u64, u64) -> u64) {
    for (((d, a), b), c) in d.iter_mut().zip(&x[0]).zip(&x[1]).zip(&x[2]) {
        *d = f(*a, *b, *c);
    }
}
