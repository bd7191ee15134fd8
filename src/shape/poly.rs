//! Laurent polynomials over any ordered variables: the normal form of dimensions and of the indices
//! in the tile verifier.
//!
//! In: variables (factors of a [`Dim`](super::Dim), numbered atoms of a proof). Out: a sum of
//! integer multiples of monomials over one positive denominator, so that `64*i + (S - 64*i)` is
//! `S`. This is the distributed normal form of computer algebra (Geddes, Czapor, Labahn,
//! *Algorithms for Computer Algebra*, chapter 3): terms are sorted, equal monomials are merged,
//! zero terms are dropped and the fraction is in lowest terms, so that equality of values is
//! equality of polynomials.
//!
//! Arithmetic is exact. An operation returns `None` where a coefficient overflows 128 bits, an
//! exponent exceeds [`MAX_POWER`](super::monomial::MAX_POWER) or the number of terms [`MAX_TERMS`],
//! which also bounds the work of every operation.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use super::monomial::Monomial;

/// The maximum number of terms.
const MAX_TERMS: usize = 512;
/// The maximum number of term products in one multiplication.
const MAX_PRODUCTS: usize = 4096;
/// The maximum number of terms of an exact quotient.
const MAX_QUOTIENT: usize = 256;

/// A sum of terms over a denominator.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Poly<V> {
    /// Sorted, without duplicates; no coefficient is 0.
    terms: Vec<(Monomial<V>, i128)>,
    /// At least 1; has no common factor with all coefficients.
    den: i128,
}

impl<V: Ord> PartialOrd for Poly<V> {
    fn partial_cmp(&self, o: &Self) -> Option<Ordering> {
        Some(self.cmp(o))
    }
}

impl<V: Ord> Ord for Poly<V> {
    fn cmp(&self, o: &Self) -> Ordering {
        (&self.terms, self.den).cmp(&(&o.terms, o.den))
    }
}

impl<V> Default for Poly<V> {
    fn default() -> Self {
        Poly { terms: Vec::new(), den: 1 }
    }
}

/// The greatest common divisor; 1 if both are 0 or the result does not fit.
pub(super) fn gcd(a: i128, b: i128) -> i128 {
    let (mut a, mut b) = (a.unsigned_abs(), b.unsigned_abs());
    while b != 0 {
        // A 64-bit division is one instruction.
        (a, b) = match (u64::try_from(a), u64::try_from(b)) {
            (Ok(x), Ok(y)) => (b, u128::from(x % y)),
            _ => (b, a % b),
        };
    }
    i128::try_from(a).unwrap_or(1).max(1)
}

impl<V: Clone + Ord> Poly<V> {
    /// The constant polynomial `n`.
    pub(crate) fn int(n: i128) -> Self {
        Poly::term(Monomial::default(), n)
    }

    /// The polynomial `v`.
    pub(crate) fn variable(v: V) -> Self {
        Poly::term([(v, 1)].into_iter().collect(), 1)
    }

    /// The polynomial `c * m`.
    pub(crate) fn term(m: Monomial<V>, c: i128) -> Self {
        let terms = if c == 0 { Vec::new() } else { vec![(m, c)] };
        Poly { terms, den: 1 }
    }

    /// The terms: monomials, sorted, and their coefficients before division by
    /// [`Poly::denominator`].
    pub(crate) fn terms(&self) -> &[(Monomial<V>, i128)] {
        &self.terms
    }

    /// The divisor of the sum of terms, at least 1.
    pub(crate) fn denominator(&self) -> i128 {
        self.den
    }

    pub(crate) fn is_zero(&self) -> bool {
        self.terms.is_empty()
    }

    /// The value, if it is an integer constant.
    pub(crate) fn as_int(&self) -> Option<i128> {
        match self.terms.as_slice() {
            [] => Some(0),
            [(m, n)] if m.is_one() && self.den == 1 => Some(*n),
            _ => None,
        }
    }

    /// The only term, if there is one.
    pub(crate) fn as_term(&self) -> Option<(&Monomial<V>, i128)> {
        match self.terms.as_slice() {
            [(m, c)] => Some((m, *c)),
            _ => None,
        }
    }

    /// The constant term, if it is an integer; else 0.
    pub(crate) fn constant(&self) -> i128 {
        match self.terms.first() {
            Some((m, c)) if m.is_one() && c % self.den == 0 => c / self.den,
            _ => 0,
        }
    }

    /// Is it an integer wherever its variables are, having no denominator and no negative
    /// exponents?
    pub(crate) fn is_whole(&self) -> bool {
        self.den == 1 && self.has_whole_monomials()
    }

    /// Are all exponents positive?
    pub(crate) fn has_whole_monomials(&self) -> bool {
        self.terms.iter().all(|(m, _)| m.is_whole())
    }

    /// The variables of all terms, sorted.
    pub(crate) fn variables(&self) -> BTreeSet<V> {
        self.terms.iter().flat_map(|(m, _)| m.variables()).cloned().collect()
    }

    /// The last variable in the order of variables.
    pub(crate) fn latest(&self) -> Option<&V> {
        self.terms.iter().filter_map(|(m, _)| m.factors().last()).map(|(v, _)| v).max()
    }

    /// Sorts and merges terms over a denominator, which is at least 1.
    fn sum(mut terms: Vec<(Monomial<V>, i128)>, den: i128) -> Option<Self> {
        terms.sort_unstable_by(|(m, _), (n, _)| m.cmp(n));
        let mut merged: Vec<(Monomial<V>, i128)> = Vec::with_capacity(terms.len());
        for (m, c) in terms {
            match merged.last_mut() {
                Some((last, sum)) if *last == m => *sum = sum.checked_add(c)?,
                _ => merged.push((m, c)),
            }
        }
        merged.retain(|(_, c)| *c != 0);
        (merged.len() <= MAX_TERMS).then(|| Poly { terms: merged, den }.reduced())
    }

    /// Cancels the common factor of denominator and coefficients.
    fn reduced(mut self) -> Self {
        if self.den != 1 {
            let common = self.terms.iter().fold(self.den, |g, (_, c)| gcd(g, *c));
            self.den /= common;
            self.terms.iter_mut().for_each(|(_, c)| *c /= common);
        }
        self
    }

    /// `self * by`
    pub(crate) fn scale(&self, by: i128) -> Option<Self> {
        match by {
            0 => return Some(Poly::default()),
            1 => return Some(self.clone()),
            _ => {}
        }
        let scaled = self.terms.iter().map(|(m, c)| Some((m.clone(), c.checked_mul(by)?)));
        Some(Poly { terms: scaled.collect::<Option<_>>()?, den: self.den }.reduced())
    }

    /// `self + o`
    pub(crate) fn add(&self, o: &Self) -> Option<Self> {
        self.combine(1, o, 1)
    }

    /// `self - o`
    pub(crate) fn sub(&self, o: &Self) -> Option<Self> {
        self.combine(1, o, -1)
    }

    /// `self * x + o * y`
    pub(crate) fn combine(&self, x: i128, o: &Self, y: i128) -> Option<Self> {
        let (x, y, den) = if self.den == o.den {
            (x, y, self.den)
        } else {
            let common = gcd(self.den, o.den);
            let (own, other) = (self.den / common, o.den / common);
            (x.checked_mul(other)?, y.checked_mul(own)?, self.den.checked_mul(other)?)
        };
        let mut terms = Vec::with_capacity(self.terms.len() + o.terms.len());
        let (mut a, mut b) = (self.terms.iter().peekable(), o.terms.iter().peekable());
        loop {
            let order = match (a.peek(), b.peek()) {
                (None, None) => break,
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (Some((m, _)), Some((n, _))) => m.cmp(n),
            };
            let own = if order.is_le() { a.next() } else { None };
            let other = if order.is_ge() { b.next() } else { None };
            let scaled = |term: Option<&(Monomial<V>, i128)>, by| term.map_or(Some(0), |(_, c)| c.checked_mul(by));
            let c = scaled(own, x)?.checked_add(scaled(other, y)?)?;
            if let (Some((m, _)), true) = (own.or(other), c != 0) {
                terms.push((m.clone(), c));
            }
        }
        (terms.len() <= MAX_TERMS).then(|| Poly { terms, den }.reduced())
    }

    /// `self * o`
    pub(crate) fn mul(&self, o: &Self) -> Option<Self> {
        if let Some(n) = self.as_int() {
            return o.scale(n);
        }
        if let Some(n) = o.as_int() {
            return self.scale(n);
        }
        if self.terms.len().saturating_mul(o.terms.len()) > MAX_PRODUCTS {
            return None;
        }
        let mut all = Vec::with_capacity(self.terms.len() * o.terms.len());
        for (m, c) in &self.terms {
            for (n, d) in &o.terms {
                all.push((m.times(n)?, c.checked_mul(*d)?));
            }
        }
        Poly::sum(all, self.den.checked_mul(o.den)?)
    }

    /// `self * by`
    pub(crate) fn mul_monomial(&self, by: &Monomial<V>) -> Option<Self> {
        if by.is_one() {
            return Some(self.clone());
        }
        let terms = self.terms.iter().map(|(m, c)| Some((m.times(by)?, *c)));
        Poly::sum(terms.collect::<Option<_>>()?, self.den)
    }

    /// `self / n`; `None` if `n` is less than 1.
    pub(crate) fn over(mut self, n: i128) -> Option<Self> {
        self.den = self.den.checked_mul(n).filter(|d| *d > 0)?;
        Some(self.reduced())
    }

    /// `self / n`, if it has integer coefficients and no negative exponents.
    pub(crate) fn divided(&self, n: i128) -> Option<Self> {
        let exact = n != 0 && self.is_whole() && self.terms.iter().all(|(_, c)| c.checked_rem(n) == Some(0));
        exact.then(|| Poly { terms: self.terms.iter().map(|(m, c)| (m.clone(), c / n)).collect(), den: 1 })
    }

    /// `self * denominator`
    pub(crate) fn numerator(&self) -> Self {
        Poly { terms: self.terms.clone(), den: 1 }
    }

    /// The strongest equivalent of the fact `self >= 0`: coefficients without a common factor, and
    /// the constant rounded down accordingly (a Chvátal-Gomory cut). Only if all monomials are
    /// integers.
    pub(crate) fn tightened(mut self) -> Self {
        // A fraction is non-negative where its numerator is.
        self.den = 1;
        if !self.has_whole_monomials() {
            return self;
        }
        let mut varying = self.terms.iter().filter(|(m, _)| !m.is_one()).map(|(_, c)| *c);
        let Some(first) = varying.next() else { return self };
        let common = varying.fold(first, gcd);
        self.round_down(gcd(common, common));
        self
    }

    /// The strongest equivalent of the bound `c * x <= self` of an integer `x`, with `c > 0`.
    pub(crate) fn tightened_bound(mut self, c: i128) -> Option<(i128, Self)> {
        let c = c.checked_mul(self.den)?;
        self.den = 1;
        if !self.has_whole_monomials() {
            return Some((c, self));
        }
        let varying = self.terms.iter().filter(|(m, _)| !m.is_one());
        let common = varying.fold(c, |g, (_, c)| gcd(g, *c));
        self.round_down(common);
        Some((c / common, self))
    }

    /// Divides all coefficients, rounding down.
    fn round_down(&mut self, by: i128) {
        if by > 1 {
            self.terms.iter_mut().for_each(|(_, c)| *c = c.div_euclid(by));
            self.terms.retain(|(_, c)| *c != 0);
        }
    }

    /// `a` and `b` in `self * denominator = a * x + b`, where `b` is free of `x`: `3*x*x + 2*x + 1`
    /// is `(3*x + 2) * x + 1`. `None` if `x` has a negative exponent.
    pub(crate) fn split_once(&self, x: &V) -> Option<(Self, Self)> {
        let (mut a, mut b) = (Vec::new(), Vec::new());
        for (m, c) in &self.terms {
            match m.exponent(x) {
                0 => b.push((m.clone(), *c)),
                1.. => a.push((m.lowered(x), *c)),
                _ => return None,
            }
        }
        a.sort_unstable_by(|(m, _), (n, _)| m.cmp(n));
        Some((Poly { terms: a, den: 1 }, Poly { terms: b, den: 1 }))
    }

    /// Like [`Poly::split_once`], but `a` must be free of `x` too.
    pub(crate) fn split(&self, x: &V) -> Option<(Self, Self)> {
        self.split_once(x).filter(|(a, _)| a.terms.iter().all(|(m, _)| m.exponent(x) == 0))
    }

    /// The greatest term in lexicographic order.
    fn leading(&self) -> Option<&(Monomial<V>, i128)> {
        self.terms.iter().max_by(|(m, _), (n, _)| m.lexicographic(n))
    }

    /// The polynomial `q` with `q * o == self`, if there is one.
    ///
    /// Division by leading terms (Cox, Little, O'Shea, *Ideals, Varieties, and Algorithms*, section
    /// 2.3). In each variable the lowest and the highest degree of a product are the sums of those
    /// of its factors; a term of the quotient beyond these degrees shows that there is no exact
    /// quotient, and ends the division.
    pub(crate) fn exact_div(&self, o: &Self) -> Option<Self> {
        let (divisor, s) = o.leading()?;
        let degrees = |p: &Self, v: &V| {
            let exponents = || p.terms.iter().map(|(m, _)| m.exponent(v));
            Some((exponents().min()?, exponents().max()?))
        };
        if self.is_zero() {
            return Some(Poly::default());
        }
        let mut bounds: BTreeMap<V, (i32, i32)> = BTreeMap::new();
        for v in self.variables().into_iter().chain(o.variables()) {
            let ((low, high), (least, most)) = (degrees(self, &v)?, degrees(o, &v)?);
            let (low, high) = (low.saturating_sub(least), high.saturating_sub(most));
            if low > high {
                return None;
            }
            bounds.insert(v, (low, high));
        }
        let (mut rest, mut quotient) = (self.clone(), Poly::default());
        for _ in 0..=MAX_QUOTIENT {
            let Some((m, c)) = rest.leading() else { return Some(quotient) };
            let m = m.over(divisor)?;
            if bounds.iter().any(|(v, (low, high))| !(*low..=*high).contains(&m.exponent(v))) {
                return None;
            }
            // `(c / rest.den) / (s / o.den)`
            let sign = if *s < 0 { -1 } else { 1 };
            let c = c.checked_mul(o.den)?.checked_mul(sign)?;
            let term = Poly::term(m, c).over(rest.den.checked_mul(s.checked_abs()?)?)?;
            rest = rest.sub(&term.mul(o)?)?;
            quotient = quotient.add(&term)?;
        }
        None
    }
}
