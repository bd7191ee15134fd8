//! Error bounds of elementary functions.
//!
//! In: a result, and its exact value. Out: the error, relative to the bound that a function states.

/// Maximum error of a function's result, against its exact value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Bound {
    /// Units in the last place of the correctly rounded result.
    Ulp(f64),
    /// Either this many units in the last place, or this absolute error.
    UlpOr(f64, f64),
    /// Either this part of the result, or this absolute error.
    RelativeOr(f64, f64),
}

impl Bound {
    /// The error divided by the bound: at most 1 if the bound holds. NaN if exactly one of both is
    /// NaN; zeros must have the same sign.
    pub fn excess(self, got: f32, want: f64) -> f64 {
        let rounded = want as f32;
        if got.is_nan() && want.is_nan() || got.to_bits() == rounded.to_bits() {
            return 0.0;
        }
        if got == 0.0 && want == 0.0 {
            return f64::INFINITY;
        }
        let off = (f64::from(got) - want).abs();
        let exponent = rounded.abs().max(f32::MIN_POSITIVE).to_bits() >> 23;
        let ulps = off / 2f64.powi(exponent.cast_signed() - 127 - 23);
        match self {
            Bound::Ulp(0.0) => f64::INFINITY,
            Bound::Ulp(n) => ulps / n,
            Bound::UlpOr(n, absolute) => (ulps / n).min(off / absolute),
            Bound::RelativeOr(part, absolute) => (off / want.abs() / part).min(off / absolute),
        }
    }
}
