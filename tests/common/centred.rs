//! Rows that rounding spoils: equal and almost equal elements far from 0, elements whose sum or whose sum of squares overflows, one
//! large element. In: results for them. Out: a panic where these are not what norms, differences and variances are in `f64`.
//!
//! A test program takes it in by `#[path = "../common/centred.rs"] mod centred;`.

#![allow(dead_code, reason = "each test program that takes this module in uses its own part of it")]

use attnc::shape::Elem;

/// What an entry point computes of each row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Meaning {
    /// `(x - mean(x)) / sqrt(variance + 1e-5)`
    Norm,
    /// `x / sqrt(mean(x^2) + 1e-6)`
    Root,
    /// `x - mean(x)`
    Centred,
    /// `mean((x - mean(x))^2)`
    Variance,
    /// `mean(x)`
    Mean,
}

/// Rows of a width, of elements that the type has.
pub(crate) fn rows(width: usize, elem: Elem) -> Vec<Vec<f64>> {
    let equal: &[f64] = match elem {
        Elem::F16 => &[1000.1, 60000.0, -7.7],
        Elem::BF16 => &[1000.1, 12345.678, 2e38, -7.7],
        _ => &[1000.1, 12345.678, -7.7, 1e9, 2e38, 1e-30, 0.0],
    };
    let mut all: Vec<Vec<f64>> = equal.iter().map(|x| vec![*x; width]).collect();
    let mut row = |f: &dyn Fn(usize) -> f64| all.push((0..width).map(f).collect());
    let small = |i: usize| (i as f64 * 1.7).sin();
    row(&|i| 2.0 * small(i) + 0.5);
    row(&|i| if i == 0 { 3000.0 } else { small(i) });
    if elem != Elem::F16 {
        row(&|i| if i % 2 == 0 { 1e19 } else { -1e19 });
    }
    if elem == Elem::F32 {
        // Neighbours in f32.
        row(&|i| 1000.125 + 2f64.powi(-14) * (i % 3) as f64);
    }
    let round = |x: &f64| match elem {
        Elem::F16 => half::f16::from_f64(*x).to_f64(),
        Elem::BF16 => half::bf16::from_f64(*x).to_f64(),
        _ => f64::from(*x as f32),
    };
    all.iter().map(|row| row.iter().map(round).collect()).collect()
}

/// Is a result what it means? `is_apart`: the mean is rounded to an element of its own before anything else reads it.
pub(crate) fn check(what: &str, meaning: Meaning, row: &[f64], got: &[f64], elem: Elem, is_apart: bool) {
    let n = row.len() as f64;
    let mean = |f: &dyn Fn(f64) -> f64| row.iter().map(|x| f(*x) / n).sum::<f64>();
    let is_constant = row.iter().all(|x| *x == row[0]);
    let m = if is_constant { row[0] } else { mean(&|x| x) };
    // Of elements so large, the error of the mean overflows when it is squared.
    if meaning == Meaning::Variance && m.abs() > 1e26 && got == [f64::INFINITY] {
        return;
    }
    let variance = mean(&|x| (x - m).powi(2));
    let gain = 1.0 / (variance + 1e-5).sqrt();
    let want: Vec<f64> = match meaning {
        Meaning::Norm => row.iter().map(|x| (x - m) * gain).collect(),
        // A square that overflows is infinite, and then all of the row is 0.
        Meaning::Root if row.iter().any(|x| x * x > f64::from(f32::MAX)) => vec![0.0; row.len()],
        Meaning::Root => row.iter().map(|x| x / (mean(&|x| x * x) + 1e-6).sqrt()).collect(),
        Meaning::Centred => row.iter().map(|x| x - m).collect(),
        Meaning::Variance => vec![variance],
        Meaning::Mean => vec![m],
    };
    // The mean of equal elements is exact.
    let lost = if is_apart && !is_constant { m.abs() / 16_777_216.0 } else { 0.0 };
    let lost = match meaning {
        Meaning::Norm => lost * gain * 1.1,
        Meaning::Centred => lost,
        Meaning::Variance => lost * lost * 1.1,
        Meaning::Root | Meaning::Mean => 0.0,
    };
    let own = match elem {
        Elem::F16 => 1.0 / 1024.0,
        Elem::BF16 => 1.0 / 128.0,
        _ => 0.0,
    };
    let most = want.iter().fold(0.0, |most: f64, x| most.max(x.abs()));
    assert_eq!(got.len(), want.len(), "{what}");
    for (i, (g, v)) in got.iter().zip(&want).enumerate() {
        let allowed = lost * (1.0 + v.abs()) + own * v.abs() + 4e-6 * most;
        let first = row[0];
        assert!(
            (g - v).abs() <= allowed,
            "{what}, row of {first}, {}: element {i} is {g}, not {v}",
            row[row.len() - 1]
        );
    }
}
