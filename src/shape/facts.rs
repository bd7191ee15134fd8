//! Facts about dimensions, from `where` clauses: what they prove, and what has to be checked at a call.

use std::fmt;

use super::Dim;

/// How the two sides of a fact relate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Relation {
    /// `a == b`
    Eq,
    /// `a != b`
    Ne,
    /// `a <= b`
    Le,
    /// `a < b`
    Lt,
    /// `a % b == 0`
    Divisible,
}

/// `a RELATION b`. `a >= b` is kept as `b <= a`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Fact {
    /// Left side.
    pub left: Dim,
    /// The relation.
    pub relation: Relation,
    /// Right side (the divisor for [`Relation::Divisible`]).
    pub right: Dim,
}

impl Fact {
    /// Decides the fact where both sides are numbers.
    pub fn decide(&self) -> Option<bool> {
        let (a, b) = (self.left.as_const()?, self.right.as_const()?);
        Some(match self.relation {
            Relation::Eq => a == b,
            Relation::Ne => a != b,
            Relation::Le => a <= b,
            Relation::Lt => a < b,
            Relation::Divisible => b != 0 && a.checked_rem(b) == Some(0),
        })
    }

    /// That a size fits 64 bits.
    pub fn fits(size: Dim) -> Fact {
        Fact { left: size, relation: Relation::Le, right: Dim::from(i64::MAX) }
    }

    /// Does it say only that a size fits 64 bits? Evaluating such a size fails where it does not.
    pub fn is_fit(&self) -> bool {
        self.relation == Relation::Le && self.right.as_const() == Some(i64::MAX)
    }

    /// The fact with symbols replaced; `None` if a divisor becomes zero.
    pub fn substitute(&self, f: &dyn Fn(&str) -> Option<Dim>) -> Option<Fact> {
        Some(Fact { left: self.left.substitute(f)?, relation: self.relation, right: self.right.substitute(f)? })
    }
}

impl fmt::Display for Fact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (a, b) = (&self.left, &self.right);
        match self.relation {
            Relation::Eq => write!(f, "{a} == {b}"),
            Relation::Ne => write!(f, "{a} != {b}"),
            Relation::Le => write!(f, "{a} <= {b}"),
            Relation::Lt => write!(f, "{a} < {b}"),
            Relation::Divisible => write!(f, "({a}) % ({b}) == 0"),
        }
    }
}

/// The facts in force at one place of a program.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// The facts, in the order in which they were stated.
    pub known: Vec<Fact>,
}

impl Facts {
    /// Does a stated fact, or the form of the expressions, prove that `b` divides `a`?
    pub fn divides(&self, a: &Dim, b: &Dim) -> bool {
        if b.terms().next().is_none() {
            return false;
        }
        if let (Some(x), Some(y)) = (a.as_const(), b.as_const()) {
            return y != 0 && x.checked_rem(y) == Some(0);
        }
        let Some(q) = a.div(b) else { return false };
        let (_, (den, factors)) = q.as_fraction();
        if den == 1 && factors.is_empty() && !has_quotient(&q) {
            return true;
        }
        // A fact `x % y == 0` makes `x / y` whole; so is any whole multiple of it, and a sum of such terms.
        q.terms().all(|(m, r)| {
            let term = Dim::of_term(m.clone(), *r);
            if whole(&term) {
                return true;
            }
            self.known.iter().any(|f| {
                f.relation == Relation::Divisible
                    && f.left
                        .div(&f.right)
                        .filter(|known| known.terms().next().is_some())
                        .and_then(|known| term.div(&known))
                        .is_some_and(|rest| whole(&rest))
            })
        }) || self.known.iter().any(|f| {
            f.relation == Relation::Divisible
                && f.left
                    .div(&f.right)
                    .filter(|known| known.terms().next().is_some())
                    .and_then(|known| q.div(&known))
                    .is_some_and(|rest| whole(&rest))
        })
    }

    /// Does a stated fact, or the form of the expressions, prove `a <= b`?
    pub fn at_most(&self, a: &Dim, b: &Dim) -> bool {
        let slack = b.sub(a);
        slack.is_provably_nonnegative()
            || self.known.iter().any(|f| {
                matches!(f.relation, Relation::Le | Relation::Lt | Relation::Eq)
                    && slack.sub(&f.right.sub(&f.left)).is_provably_nonnegative()
            })
    }
}

fn has_quotient(d: &Dim) -> bool {
    d.terms().any(|(m, _)| m.0.keys().any(|f| matches!(f, super::Factor::Quotient(..))))
}

/// Whole by form: no divisor is left.
fn whole(d: &Dim) -> bool {
    let (_, (den, factors)) = d.as_fraction();
    den == 1 && factors.is_empty() && !has_quotient(d)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn divisibility_follows_from_facts() {
        let (d, h) = (Dim::symbol("D"), Dim::symbol("H"));
        let none = Facts::default();
        assert!(!none.divides(&d, &h));
        assert!(none.divides(&d.mul(&Dim::from(3)), &d));
        assert!(!none.divides(&d, &Dim::zero()));
        let facts = Facts { known: vec![Fact { left: d.clone(), relation: Relation::Divisible, right: h.clone() }] };
        assert!(facts.divides(&d, &h));
        assert!(facts.divides(&d.mul(&Dim::from(3)), &h));
        assert!(!facts.divides(&h, &d));
        assert!(!facts.divides(&d, &h.mul(&Dim::from(2))));
    }

    #[test]
    fn order_follows_from_facts() {
        let (s, t) = (Dim::symbol("S"), Dim::symbol("T"));
        assert!(Facts::default().at_most(&s, &s.add(&t)));
        assert!(!Facts::default().at_most(&s, &t));
        let facts = Facts { known: vec![Fact { left: s.clone(), relation: Relation::Le, right: t.clone() }] };
        assert!(facts.at_most(&s, &t.add(&Dim::one())));
        assert!(!facts.at_most(&t, &s));
    }
}
