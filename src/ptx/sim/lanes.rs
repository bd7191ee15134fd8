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

/// The lanes of a mask.
pub(super) fn lanes(mask: u32) -> impl Iterator<Item = u32> {
    let mut rest = mask;
    std::iter::from_fn(move || {
        (rest != 0).then(|| {
            let lane = rest.trailing_zeros();
            rest &= rest - 1;
            lane
        })
    })
}

/// Extra passes of a warp's shared memory access due to bank conflicts: in each pass, each of the
/// 32 banks serves one 4-byte word.
pub(super) fn bank_conflicts(at: &V, mask: u32, bytes: u64) -> u64 {
    let lanes_of_pass = (128 / bytes.max(4)).clamp(1, 32) as u32;
    let mut more = 0;
    for first in (0..32).step_by(lanes_of_pass as usize) {
        let here = mask & ((((1u64 << lanes_of_pass) - 1) as u32) << first);
        let mut words: Vec<u64> = Vec::with_capacity(32);
        for lane in lanes(here) {
            let word = at[lane as usize] / 4;
            words.extend(word..word + bytes.div_ceil(4));
        }
        words.sort_unstable();
        words.dedup();
        let mut banks = [0u64; 32];
        for word in words {
            banks[(word % 32) as usize] += 1;
        }
        more += banks.iter().max().copied().unwrap_or(0).saturating_sub(1);
    }
    more
}
