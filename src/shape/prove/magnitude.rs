//! Upper bounds of absolute values, by interval arithmetic: does a polynomial fit 64 bits, so that
//! the machine computes it exactly?
//!
//! In: a polynomial. Out: a bound from the bounds of its atoms, from known sizes of dimensions, and
//! from polynomials that calls have evaluated with every step checked.

use super::{Atom, AtomMonomial, Poly, Prover};
use crate::shape::{Dim, Monomial};

/// The largest absolute value of a 64-bit integer.
const MACHINE: i128 = 1 << 63;

impl Prover {
    /// A dimension that code evaluates; every call has checked that it fits 64 bits.
    pub(crate) fn computed(&mut self, d: &Dim) -> Option<Poly> {
        let form = self.dim(d)?;
        self.computed.insert(form.clone(), self.sizes.bound(d).min(MACHINE - 1));
        Some(form)
    }

    /// Does the value fit 64 bits, so that the machine's arithmetic modulo 2^64 is exact?
    pub(crate) fn fits(&mut self, p: &Poly) -> bool {
        let machine = |a: Atom| self.atoms.get(a as usize).is_some_and(|b| b.most.is_none());
        self.computed.contains_key(p) || is_atom(p) && p.latest().is_some_and(|a| machine(*a)) || self.most(p) < MACHINE
    }

    /// An upper bound of the absolute value: by its monomials, or by a checked polynomial and the
    /// difference from it.
    pub(crate) fn most(&mut self, p: &Poly) -> i128 {
        let mut most = self.most_of_products(p);
        // The factor of 16 leaves slack for comparisons, which add a few such bounds.
        if most >= MACHINE / 16 {
            for (known, size) in self.computed.clone() {
                for rest in [p.sub(&known), p.add(&known)].into_iter().flatten() {
                    most = most.min(self.most_of_products(&rest).saturating_add(size));
                }
            }
        }
        most
    }

    fn most_of_products(&mut self, p: &Poly) -> i128 {
        let terms = p.terms().iter();
        terms.fold(0, |sum, (m, c)| sum.saturating_add(c.saturating_abs().saturating_mul(self.most_of(m))))
    }

    /// An upper bound of the absolute value of a monomial.
    fn most_of(&mut self, m: &AtomMonomial) -> i128 {
        if let Some(known) = self.most.get(m) {
            return *known;
        }
        let factors = m.factors();
        let found = match factors.iter().rev().find(|(a, _)| self.as_factor(*a).is_none()) {
            None => {
                let named = factors.iter().filter_map(|(a, e)| Some((self.as_factor(*a)?, *e)));
                self.sizes.product(&named.collect::<Monomial>())
            }
            Some((x, e)) => {
                let rest: AtomMonomial = factors.iter().filter(|(a, _)| a != x).copied().collect();
                let own = self.most_of_atom(*x);
                let power = (0..*e).fold(1i128, |product, _| product.saturating_mul(own));
                let mut most = power.saturating_mul(self.most_of(&rest));
                let bounds = self.atoms.get(*x as usize).filter(|b| b.natural && *e == 1);
                // The atom's upper bound times the rest: `S*T` for a row index below `S`, times
                // `T`.
                for (c, upper) in bounds.map(|b| b.upper.clone()).unwrap_or_default() {
                    let above = upper.mul_monomial(&rest).map_or(i128::MAX, |above| self.most(&above));
                    most = most.min(over(above, c));
                }
                most
            }
        };
        self.most.insert(m.clone(), found);
        found
    }

    /// An upper bound of the absolute value of an atom that is not a dimension.
    fn most_of_atom(&mut self, x: Atom) -> i128 {
        let Some(b) = self.atoms.get(x as usize).cloned() else { return MACHINE };
        let mut most = b.most.unwrap_or(MACHINE);
        let above = b.upper.iter().map(|(c, p)| over(self.most(p), *c)).min();
        let below = b.lower.iter().map(|(c, p)| over(self.most(p), *c).saturating_add(1)).min();
        let below = if b.natural { Some(0) } else { below };
        if let (Some(above), Some(below)) = (above, below) {
            most = most.min(above.max(below));
        }
        let forms = b.one_of.iter().map(|p| self.most(p)).max();
        most.min(forms.unwrap_or(i128::MAX))
    }
}

/// Divides a bound; `i128::MAX` (no bound) stays.
fn over(most: i128, c: i128) -> i128 {
    if most == i128::MAX { most } else { most / c }
}

/// Is it a single atom?
fn is_atom(p: &Poly) -> bool {
    p.denominator() == 1 && p.as_term().is_some_and(|(m, c)| c == 1 && matches!(m.factors(), [(_, 1)]))
}
