//! Dot products, bit for bit as each [`DotMode`] defines them.
//!
//! In: a row of the left operand, a column of the right one, the initial value. Out: the sum. It
//! must not know where operands are stored, nor which CPU has which mode.

use crate::tile::{DotMode, GROUP};

/// Block length in [`DotMode::Tiles`].
const TILE_STEPS: usize = 32;
/// Group size.
const GROUP_STEPS: usize = GROUP.unsigned_abs() as usize;

/// A column of a quantised panel.
pub(super) struct Numbers<'a> {
    /// The integers, one per k index.
    pub(super) numbers: &'a [i64],
    /// A scale per group.
    pub(super) scales: &'a [f32],
}

/// A quantised row of the left operand: integers, and a scale per group.
pub(super) struct Rounded {
    numbers: Vec<i64>,
    units: Vec<f32>,
    /// Factor of the right operand's integers.
    factor: i64,
}

/// The dot product of floats. [`DotMode::Groups`] comes here only if K is not a multiple of the
/// group size; [`DotMode::Split`] has no fixed order, and is summed like [`DotMode::Fma`].
pub(super) fn sum(mode: DotMode, row: &[f32], column: &[f32], start: f32) -> f32 {
    let steps = row.iter().zip(column);
    match mode {
        DotMode::Chain => steps.fold(start, |s, (a, b)| s + a * b),
        DotMode::Fma | DotMode::Groups | DotMode::Split => steps.fold(start, |s, (a, b)| a.mul_add(*b, s)),
        DotMode::Pairs => pairs(row, column).fold(start, |s, ([a, a1], [b, b1])| fma(a, b, fma(a1, b1, s))),
        DotMode::Tiles => {
            let all: Vec<_> = pairs(row, column).collect();
            all.chunks(TILE_STEPS / 2).fold(start, |s, tile| {
                let even = tile.iter().fold(0.0, |e, ([a, _], [b, _])| fma(*a, *b, e));
                let odd = tile.iter().fold(0.0, |o, ([_, a], [_, b])| fma(*a, *b, o));
                normal(s + normal(even + odd))
            })
        }
    }
}

/// Pairs of k indices; zeros complete an odd number.
fn pairs<'a>(row: &'a [f32], column: &'a [f32]) -> impl Iterator<Item = ([f32; 2], [f32; 2])> + 'a {
    let pair = |x: &[f32]| [0, 1].map(|i| normal(x.get(i).copied().unwrap_or(0.0)));
    row.chunks(2).zip(column.chunks(2)).map(move |(a, b)| (pair(a), pair(b)))
}

/// Flushes subnormals to zero, keeping the sign.
fn normal(x: f32) -> f32 {
    if x.is_subnormal() { 0.0_f32.copysign(x) } else { x }
}

/// `a b + s`, rounded once; 0 if it is subnormal before rounding to reduced precision.
fn fma(a: f32, b: f32, s: f32) -> f32 {
    let sum = a.mul_add(b, s);
    if sum.abs() != f32::MIN_POSITIVE {
        return normal(sum);
    }
    // In the normal range it has full precision.
    let up = 2f32.powi(64);
    let larger = (a * up).mul_add(b, s * up);
    if larger.abs() < f32::MIN_POSITIVE * up { 0.0_f32.copysign(sum) } else { sum }
}

/// Quantises a row, whose length is a multiple of the group size, for integers of this many bits.
pub(super) fn rounded(row: &[f32], bits: u8) -> Rounded {
    let factor: u8 = if bits == 4 { 16 } else { 1 };
    let (mut numbers, mut units) = (Vec::with_capacity(row.len()), Vec::new());
    for group in row.chunks(GROUP_STEPS) {
        let largest = group.iter().map(|x| x.abs().to_bits()).fold(1e-30_f32.to_bits(), u32::max);
        let most = f32::from_bits(largest);
        // 0, or NaN if the maximum is not finite.
        let finite = most * 0.0;
        units.push(most.mul_add(1.0 / (127.0 * f32::from(factor)), finite));
        numbers.extend(group.iter().map(|x| x.mul_add(127.0 / most, 128.0).round_ties_even() as i64 - 128));
    }
    Rounded { numbers, units, factor: i64::from(factor) }
}

/// The dot product of a quantised row and a quantised column.
pub(super) fn sum_of_groups(row: &Rounded, column: &Numbers<'_>, start: f32) -> f32 {
    let groups = row.numbers.chunks(GROUP_STEPS).zip(column.numbers.chunks(GROUP_STEPS));
    let scales = row.units.iter().zip(column.scales);
    groups.zip(scales).fold(start, |s, ((a, w), (unit, scale))| {
        let whole: i64 = a.iter().zip(w).map(|(a, w)| a * w * row.factor).sum();
        (whole as f32).mul_add(scale * unit, s)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A result that subnormal rounding would raise to the smallest normal number is 0.
    #[test]
    fn subnormal_sums_are_zero() {
        let least = f32::MIN_POSITIVE;
        let below = 1.0 - f32::EPSILON / 2.0;
        assert_eq!(least.mul_add(below, 0.0), least, "it is rounded up");
        assert_eq!(fma(least, below, 0.0).to_bits(), 0);
        assert_eq!(fma(-least, below, 0.0).to_bits(), (-0.0_f32).to_bits());
        assert_eq!(fma(least, 1.0, 0.0), least);
        assert_eq!(sum(DotMode::Pairs, &[1e-39, 1.0], &[3e38, 1.0], 0.0), 1.0);
        assert!(sum(DotMode::Chain, &[1e-39, 1.0], &[1e38, 1.0], 0.0) > 1.09);
    }

    /// The order of summation: the odd index before the even one, or two chains.
    #[test]
    fn modes_have_orders_of_their_own() {
        let (big, one) = (2f32.powi(24), 1.0);
        // 2^24 + 1 rounds to 2^24.
        let (row, column) = ([one, one, big, -big], [one; 4]);
        assert_eq!(sum(DotMode::Chain, &row, &column, 0.0), 2.0);
        assert_eq!(sum(DotMode::Pairs, &row, &column, 0.0), 2.0);
        let row = [one, big, one, -big];
        assert_eq!(sum(DotMode::Chain, &row, &column, 0.0), 0.0);
        assert_eq!(sum(DotMode::Pairs, &row, &column, 0.0), 1.0);
        assert_eq!(sum(DotMode::Tiles, &row, &column, 0.0), 2.0);
    }

    #[test]
    fn groups_are_summed_exactly() {
        let row: Vec<f32> = (0..64u8).map(|k| if k < 32 { f32::from(k) / 31.0 } else { 127.0 }).collect();
        let numbers: Vec<i64> = (0..64).map(|k| k % 15 - 7).collect();
        let scales = [1.0, 0.5];
        let column = Numbers { numbers: &numbers, scales: &scales };
        let part = |of: std::ops::Range<usize>| -> f32 {
            let step = |k: usize| (row[k] / row[of.end - 1] * 127.0).round_ties_even() as i64 * numbers[k];
            of.clone().map(step).sum::<i64>() as f32
        };
        let expected = part(0..32).mul_add(1.0 / 127.0, 0.0);
        let expected = part(32..64).mul_add(0.5 * (127.0_f32 * (1.0 / 127.0)), expected);
        assert_eq!(sum_of_groups(&rounded(&row, 8), &column, 0.0), expected);
        assert_eq!(sum_of_groups(&rounded(&row, 4), &column, 0.0), expected);
        let mut special = row.clone();
        special[40] = f32::INFINITY;
        assert!(sum_of_groups(&rounded(&special, 8), &column, 0.0).is_nan());
    }
}
