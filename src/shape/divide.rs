//! Exact division of dimensions: `(S*S - S*T) / (S - T)` is `S`.
//!
//! In: two dimensions. Out: the quotient. By a sum that is what times the divisor is the dividend, if there is such a
//! dimension, else an opaque quotient. A dimension is a Laurent polynomial over the rationals: exponents may be negative, and an
//! opaque quotient counts as one more variable.
//!
//! Long division by leading terms. The order of terms is lexicographic in the exponents (of `m` and `n` that one is
//! greater whose factor has the greater exponent, for the first factor in which they differ), so that the leading term of a
//! product is the product of the leading terms. In each factor, the degrees of a product are the sums of the
//! degrees: a term beyond the degrees that the quotient must have shows that there is none, and ends the division.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use super::dim::{Dim, Factor, Monomial, Ratio};

/// The most terms of a quotient; one of more is too long a form anyway.
const MOST_TERMS: usize = 256;

fn exponent(m: &Monomial, f: &Factor) -> i32 {
    m.0.get(f).copied().unwrap_or(0)
}

fn order(m: &Monomial, n: &Monomial) -> Ordering {
    let factors: BTreeSet<&Factor> = m.0.keys().chain(n.0.keys()).collect();
    let differ = factors.into_iter().map(|f| exponent(m, f).cmp(&exponent(n, f))).find(|o| o.is_ne());
    differ.unwrap_or(Ordering::Equal)
}

fn leading(d: &Dim) -> Option<(&Monomial, &Ratio)> {
    d.terms().max_by(|(m, _), (n, _)| order(m, n))
}

/// The lowest and the highest exponent of a factor.
fn degrees(d: &Dim, f: &Factor) -> (i32, i32) {
    let exponents = || d.terms().map(|(m, _)| exponent(m, f));
    (exponents().min().unwrap_or(0), exponents().max().unwrap_or(0))
}

impl Dim {
    /// Exact quotient. `None` if `o` is zero. Whether the program may divide here is for the caller to prove.
    pub fn div(&self, o: &Dim) -> Option<Dim> {
        if *o == Dim::zero() {
            return None;
        }
        if self.is_too_long() || o.is_too_long() {
            return Some(Dim::too_long());
        }
        let mut terms = o.terms();
        if let (Some((m, r)), None) = (terms.next(), terms.next()) {
            return Some(self.mul(&Dim::of_term(m.inverse(), Ratio::new(r.den, r.num))));
        }
        // A multiple of the divisor divides out; anything else stays an opaque factor.
        if let Some(quotient) = exact(self, o) {
            return Some(quotient);
        }
        Some(Dim::factor(Factor::Quotient(Box::new(self.clone()), Box::new(o.clone()))).bounded())
    }

    /// The dimension that times the sum `o` is this one, if there is one.
    pub fn multiple_of(&self, o: &Dim) -> Option<Dim> {
        exact(self, o)
    }
}

/// `a / b`, `b` a sum, if there is a dimension that times `b` is `a`.
fn exact(a: &Dim, b: &Dim) -> Option<Dim> {
    let (divisor, s) = leading(b)?;
    if *a == Dim::zero() {
        return Some(Dim::zero());
    }
    let factors: BTreeSet<&Factor> = a.terms().chain(b.terms()).flat_map(|(m, _)| m.0.keys()).collect();
    let mut bounds: BTreeMap<&Factor, (i32, i32)> = BTreeMap::new();
    for f in factors {
        let ((low, high), (least, most)) = (degrees(a, f), degrees(b, f));
        let (low, high) = (low.saturating_sub(least), high.saturating_sub(most));
        if low > high {
            return None;
        }
        bounds.insert(f, (low, high));
    }
    let (mut rest, mut quotient) = (a.clone(), Dim::zero());
    for _ in 0..=MOST_TERMS {
        let Some((m, r)) = leading(&rest) else {
            // Coefficients saturate: it is a quotient only if multiplying it out gives the dividend.
            return (quotient.mul(b) == *a).then_some(quotient);
        };
        let term = Dim::of_term(m.mul(&divisor.inverse()), r.mul(Ratio::new(s.den, s.num)));
        let (k, _) = term.terms().next()?;
        if bounds.iter().any(|(f, (low, high))| !(*low..=*high).contains(&exponent(k, f))) {
            return None;
        }
        rest = rest.sub(&term.mul(b));
        quotient = quotient.add(&term);
        // A form that is too long is not known to equal anything.
        if rest.is_too_long() {
            return None;
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;
    use crate::shape::Facts;

    fn s(n: &str) -> Dim {
        Dim::symbol(n)
    }

    fn n(n: i64) -> Dim {
        Dim::from(n)
    }

    #[test]
    fn multiples_of_sums_divide_out() {
        let (a, b, t) = (s("S").sub(&s("T")), s("S").add(&s("T")), s("T"));
        for (x, y, quotient) in [
            (s("S").mul(&a), a.clone(), "S"),
            (a.mul(&b), a.clone(), "S+T"),
            (a.mul(&b), b.clone(), "S-T"),
            (a.mul(&a).mul(&a), a.clone(), "-2*S*T+S*S+T*T"),
            (a.mul(&b).mul(&s("K").add(&n(1))), b.mul(&a), "K+1"),
            (a.mul(&t).mul(&n(3)), a.mul(&n(2)), "3*T/2"),
            (a.mul(&b), a.mul(&s("K")), "(S+T)/K"),
            (s("S").mul(&s("S")).sub(&n(1)), s("S").add(&n(1)), "S-1"),
            (Dim::zero(), a.clone(), "0"),
        ] {
            assert_eq!(x.div(&y).unwrap().to_string(), quotient, "({x}) / ({y})");
            assert_eq!(x.neg().div(&y.neg()).unwrap().to_string(), quotient, "({x}) / ({y}), both negated");
        }
        assert!(Facts::default().divides(&a.mul(&b), &b));
    }

    #[test]
    fn other_quotients_stay_opaque() {
        let (a, b) = (s("S").sub(&s("T")), s("S").add(&s("T")));
        for (x, y) in [
            (s("S").mul(&a).add(&n(1)), a.clone()),
            (a.clone(), b.clone()),
            (a.clone(), a.mul(&b)),
            (s("S").mul(&s("S")).add(&n(1)), s("S").add(&n(1))),
            (s("S").add(&n(1)), s("T").add(&n(1))),
            (s("S").add(&s("T")), s("T").add(&n(1))),
            (n(1), a.clone()),
        ] {
            let q = x.div(&y).unwrap();
            assert_eq!(q.to_string(), format!("(({x})/({y}))"));
            assert!(!Facts::default().divides(&x, &y), "({x}) / ({y})");
        }
        // Opaque quotients are variables like others.
        let q = a.div(&b).unwrap();
        assert_eq!(q.mul(&q).sub(&n(1)).div(&q.add(&n(1))).unwrap(), q.sub(&n(1)));
    }

    /// Products of random sums divide out, and one more than a product does not; both are worth what they say.
    #[test]
    fn random_products_divide_out() {
        let mut random = Random::new(5);
        let names = ["A", "B", "C"];
        let mut exact = 0;
        for _ in 0..300 {
            let sum = |random: &mut Random| {
                (0..1 + random.below(4)).fold(n(0), |d, _| {
                    let c = n(random.below(7) as i64 - 3);
                    d.add(&(0..random.below(3)).fold(c, |t, _| t.mul(&s(random.pick(&names)))))
                })
            };
            let (x, y) = (sum(&mut random), sum(&mut random));
            if y == Dim::zero() {
                continue;
            }
            let product = x.mul(&y);
            assert_eq!(product.div(&y).as_ref(), Some(&x), "({product}) / ({y})");
            exact += 1;
            let more = product.add(&n(1)).div(&y).unwrap();
            let at: Vec<i64> = (0..3).map(|_| random.below(9) as i64).collect();
            let value = |d: &Dim| d.eval(&|name| names.iter().position(|n| *n == name).map(|i| at[i]));
            let (p, q) = (value(&product).unwrap() + 1, value(&y).unwrap());
            if q != 0 && p % q == 0 {
                assert_eq!(value(&more), Ok(p / q), "({product} + 1) / ({y}) at {at:?}");
            } else {
                assert!(value(&more).is_err(), "({product} + 1) / ({y}) at {at:?}");
            }
        }
        assert!(exact > 200, "{exact}");
    }

    /// What cannot divide out is given up soon, however large it is.
    #[test]
    fn division_ends() {
        let large = (0..6).fold(n(1), |d, i| d.mul(&s(&format!("A{i}")).add(&s("S"))));
        let begin = std::time::Instant::now();
        assert!(exact(&large, &s("S").add(&s("T"))).is_none());
        assert!(exact(&large.add(&n(1)), &s("S").add(&s("A3"))).is_none());
        assert_eq!(exact(&large, &s("S").add(&s("A3"))).map(|q| q.mul(&s("S").add(&s("A3")))), Some(large));
        let high = (0..40).fold(s("S"), |d, _| d.mul(&s("S")));
        assert!(exact(&high.add(&n(1)), &s("S").sub(&n(1))).is_none());
        assert!(begin.elapsed().as_secs() < 5);
    }
}
