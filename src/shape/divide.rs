//! Exact division of dimensions: `(S*S - S*T) / (S - T)` is `S` ([`Poly::exact_div`]). A quotient
//! by a sum that does not divide out stays an opaque factor, which counts as one more variable.

use super::dim::{Dim, Factor};
use super::poly::Poly;

impl Dim {
    /// Exact quotient. `None` if `o` is zero. Whether the program may divide here is for the caller
    /// to prove.
    pub fn div(&self, o: &Dim) -> Option<Dim> {
        if o.poly().is_zero() {
            return None;
        }
        if self.is_too_long() || o.is_too_long() {
            return Some(Dim::too_long());
        }
        if let Some((m, c)) = o.poly().as_term() {
            // `self * den / (c * m)`
            let sign = if c < 0 { -o.denominator() } else { o.denominator() };
            let divided = self.poly().scale(sign).and_then(|p| p.over(c.checked_abs()?)?.mul_monomial(&m.inverse()));
            return Some(Dim::of_poly(divided));
        }
        if let Some(quotient) = self.multiple_of(o) {
            return Some(quotient);
        }
        let quotient = Factor::Quotient(Box::new(self.clone()), Box::new(o.clone()));
        Some(Dim::of_poly(Some(Poly::variable(quotient))))
    }

    /// The dimension whose product with the sum `o` is `self`, if there is one.
    pub fn multiple_of(&self, o: &Dim) -> Option<Dim> {
        let quotient = self.poly().exact_div(o.poly()).map(|q| Dim::of_poly(Some(q)))?;
        (!quotient.is_too_long()).then_some(quotient)
    }
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
        // An opaque quotient is a variable like any other.
        let q = a.div(&b).unwrap();
        assert_eq!(q.mul(&q).sub(&n(1)).div(&q.add(&n(1))).unwrap(), q.sub(&n(1)));
    }

    /// A product of random sums divides out, and the product plus one does not; both evaluate
    /// correctly.
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

    /// Division that fails ends soon, however large the operands are.
    #[test]
    fn division_ends() {
        let large = (0..6).fold(n(1), |d, i| d.mul(&s(&format!("A{i}")).add(&s("S"))));
        let begin = std::time::Instant::now();
        assert!(large.multiple_of(&s("S").add(&s("T"))).is_none());
        assert!(large.add(&n(1)).multiple_of(&s("S").add(&s("A3"))).is_none());
        assert_eq!(large.multiple_of(&s("S").add(&s("A3"))).map(|q| q.mul(&s("S").add(&s("A3")))), Some(large));
        let high = (0..40).fold(s("S"), |d, _| d.mul(&s("S")));
        assert!(high.add(&n(1)).multiple_of(&s("S").sub(&n(1))).is_none());
        assert!(begin.elapsed().as_secs() < 100);
    }
}
