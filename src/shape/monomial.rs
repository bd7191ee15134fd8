//! Products of powers of variables, the keys of the terms of a polynomial.
//!
//! In: any ordered variables. Out: monomials that are cheap to copy and compare. An operation
//! returns `None` where an exponent would exceed [`MAX_POWER`].

use std::cmp::Ordering;
use std::sync::Arc;

/// The highest absolute value of an exponent.
pub(super) const MAX_POWER: u32 = 64;

/// A product of variables with non-zero exponents, sorted by variable; the empty product is 1. The
/// order of monomials is arbitrary but fixed, and 1 comes first.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Monomial<V>(Arc<[(V, i32)]>);

impl<V: Ord> PartialOrd for Monomial<V> {
    fn partial_cmp(&self, o: &Self) -> Option<Ordering> {
        Some(self.cmp(o))
    }
}

impl<V: Ord> Ord for Monomial<V> {
    fn cmp(&self, o: &Self) -> Ordering {
        if Arc::ptr_eq(&self.0, &o.0) { Ordering::Equal } else { self.0.cmp(&o.0) }
    }
}

impl<V> Default for Monomial<V> {
    fn default() -> Self {
        Monomial(Arc::default())
    }
}

/// Multiplies powers of variables, given in any order.
impl<V: Clone + Ord> FromIterator<(V, i32)> for Monomial<V> {
    fn from_iter<I: IntoIterator<Item = (V, i32)>>(powers: I) -> Self {
        let mut all: Vec<(V, i32)> = powers.into_iter().collect();
        all.sort_unstable();
        all.dedup_by(|next, kept| {
            let same = next.0 == kept.0;
            if same {
                kept.1 = kept.1.saturating_add(next.1);
            }
            same
        });
        all.retain(|(_, e)| *e != 0);
        Monomial(all.into())
    }
}

impl<V: Clone + Ord> Monomial<V> {
    /// The variables, in order, with their exponents.
    pub fn factors(&self) -> &[(V, i32)] {
        &self.0
    }

    /// The variables, in order.
    pub fn variables(&self) -> impl Iterator<Item = &V> {
        self.0.iter().map(|(v, _)| v)
    }

    /// Is it the empty product, 1?
    pub fn is_one(&self) -> bool {
        self.0.is_empty()
    }

    /// Are all exponents positive? Then the value is an integer wherever the variables are.
    pub fn is_whole(&self) -> bool {
        self.0.iter().all(|(_, e)| *e > 0)
    }

    /// The sum of the exponents.
    pub fn degree(&self) -> i32 {
        self.0.iter().fold(0, |sum, (_, e)| sum.saturating_add(*e))
    }

    /// The exponent of a variable; 0 if it does not occur.
    pub fn exponent(&self, v: &V) -> i32 {
        self.0.binary_search_by(|(own, _)| own.cmp(v)).map_or(0, |at| self.0.get(at).map_or(0, |(_, e)| *e))
    }

    /// `self * o`
    pub fn times(&self, o: &Self) -> Option<Self> {
        self.merged(o, 1)
    }

    /// `self / o`
    pub fn over(&self, o: &Self) -> Option<Self> {
        self.merged(o, -1)
    }

    fn merged(&self, o: &Self, sign: i32) -> Option<Self> {
        if o.is_one() {
            return Some(self.clone());
        }
        if self.is_one() && sign == 1 {
            return Some(o.clone());
        }
        let mut out = Vec::with_capacity(self.0.len() + o.0.len());
        let (mut a, mut b) = (self.0.iter().peekable(), o.0.iter().peekable());
        loop {
            let order = match (a.peek(), b.peek()) {
                (None, None) => break,
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (Some((v, _)), Some((w, _))) => v.cmp(w),
            };
            let own = if order.is_le() { a.next() } else { None };
            let other = if order.is_ge() { b.next() } else { None };
            let e = other.map_or(0, |(_, e)| e.saturating_mul(sign)).checked_add(own.map_or(0, |(_, e)| *e))?;
            if e.unsigned_abs() > MAX_POWER {
                return None;
            }
            if let (Some((v, _)), true) = (own.or(other), e != 0) {
                out.push((v.clone(), e));
            }
        }
        Some(Monomial(out.into()))
    }

    /// `1 / self`
    pub fn inverse(&self) -> Self {
        Monomial(self.0.iter().map(|(v, e)| (v.clone(), -e)).collect())
    }

    /// `self / o`, unless a variable with a positive exponent in `o` would have a negative one in
    /// the quotient.
    pub fn quotient(&self, o: &Self) -> Option<Self> {
        let fits = o.0.iter().all(|(v, e)| *e < 0 || self.exponent(v) >= *e);
        if fits { self.over(o) } else { None }
    }

    /// The greatest monomial with positive exponents that divides both.
    pub fn common(&self, o: &Self) -> Self {
        let least = self.0.iter().map(|(v, e)| (v, (*e).min(o.exponent(v))));
        Monomial(least.filter(|(_, e)| *e > 0).map(|(v, e)| (v.clone(), e)).collect())
    }

    /// `self / v`
    pub(super) fn lowered(&self, v: &V) -> Self {
        let lower = self.0.iter().map(|(own, e)| (own, if own == v { e - 1 } else { *e }));
        Monomial(lower.filter(|(_, e)| *e != 0).map(|(own, e)| (own.clone(), e)).collect())
    }

    /// Lexicographic order of the exponents: a monomial order, for which the leading monomial of a
    /// product is the product of the leading monomials.
    pub(super) fn lexicographic(&self, o: &Self) -> Ordering {
        let (mut a, mut b) = (self.0.iter().peekable(), o.0.iter().peekable());
        loop {
            let order = match (a.peek(), b.peek()) {
                (None, None) => return Ordering::Equal,
                (Some((v, e)), Some((w, f))) if v == w => e.cmp(f),
                (Some((v, e)), Some((w, _))) if v < w => e.cmp(&0),
                (Some((_, e)), None) => e.cmp(&0),
                (_, Some((_, f))) => 0.cmp(f),
            };
            if order.is_ne() {
                return order;
            }
            _ = (a.next(), b.next());
        }
    }
}
