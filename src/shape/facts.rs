//! Facts about dimensions, from `where` clauses, and which inequalities ([`super::prove`]) and
//! divisibilities ([`super::lattice`]) they imply.

use std::collections::BTreeSet;
use std::fmt;

use super::prove::Prover;
use super::{Dim, lattice};

/// The relation that a fact states between two dimensions.
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
    /// Left side, as stated.
    pub left: Dim,
    /// How the sides compare.
    pub relation: Relation,
    /// Right side (the divisor for [`Relation::Divisible`]).
    pub right: Dim,
}

impl Fact {
    /// Does the fact mention one of these dimensions?
    pub fn names_any<T: AsRef<str>>(&self, names: &[T]) -> bool {
        let is_one = |s: &std::sync::Arc<str>| names.iter().any(|name| name.as_ref() == &**s);
        !names.is_empty() && [&self.left, &self.right].iter().any(|d| d.symbols().iter().any(is_one))
    }

    /// The truth of the fact if both sides are numbers.
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

    /// Is a side too long? Such a fact implies nothing.
    pub fn is_too_long(&self) -> bool {
        self.left.is_too_long() || self.right.is_too_long()
    }

    /// The fact that a size fits 64 bits.
    pub fn fits(size: Dim) -> Fact {
        Fact { left: size, relation: Relation::Le, right: Dim::from(i64::MAX) }
    }

    /// Is it only the fact that a size fits 64 bits? Evaluating such a size fails where it does
    /// not.
    pub fn is_fit(&self) -> bool {
        self.relation == Relation::Le && self.right.as_const() == Some(i64::MAX)
    }

    /// Dimensions that are non-negative wherever the fact holds.
    pub fn nonnegative(&self) -> Vec<Dim> {
        let slack = self.right.sub(&self.left);
        let below = |large: &Dim| vec![large.sub(&Dim::one())];
        match self.relation {
            _ if self.is_too_long() || self.is_fit() => Vec::new(),
            Relation::Le => vec![slack],
            Relation::Lt => below(&slack),
            Relation::Eq => vec![slack.neg(), slack],
            // A divisor is never 0, so a non-negative one is at least 1.
            Relation::Divisible if self.right.is_provably_nonnegative() => below(&self.right),
            Relation::Ne if slack.is_provably_nonnegative() => below(&slack),
            Relation::Ne if slack.neg().is_provably_nonnegative() => below(&slack.neg()),
            Relation::Ne | Relation::Divisible => Vec::new(),
        }
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

impl Fact {
    /// As an author writes it: `D % H == 0`, `D % 2 == 1`.
    pub fn as_written(&self) -> String {
        let group = |dim: &Dim| {
            let text = dim.to_string();
            let simple = text.chars().all(|c| c.is_alphanumeric() || c == '_');
            if simple { text } else { format!("({text})") }
        };
        match self.relation {
            Relation::Divisible => {
                let rest = self.left.poly().constant().saturating_neg();
                let most = self.right.as_const().map_or(1, i128::from);
                let (left, rest) = match i64::try_from(rest) {
                    Ok(n) if n > 0 && rest < most => (self.left.add(&Dim::from(n)), n),
                    _ => (self.left.clone(), 0),
                };
                format!("{} % {} == {rest}", group(&left), group(&self.right))
            }
            Relation::Eq | Relation::Ne | Relation::Le | Relation::Lt => self.to_string(),
        }
    }
}

/// The facts in force at one point of a program.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// The facts, in the order in which they were stated.
    pub known: Vec<Fact>,
}

impl Facts {
    /// Do the facts, or the expressions alone, prove that `b` divides `a`?
    pub fn divides(&self, a: &Dim, b: &Dim) -> bool {
        if b.poly().is_zero() || a.is_too_long() || b.is_too_long() {
            return false;
        }
        if let (Some(x), Some(y)) = (a.as_const(), b.as_const()) {
            return y != 0 && x.checked_rem(y) == Some(0);
        }
        let Some(q) = a.div(b) else { return false };
        lattice::is_integer(&q, &[]) || lattice::is_integer(&q, &self.integers())
    }

    /// Do the facts prove that `b` does not divide `a`, i.e. that the remainder is 1 to `b - 1`?
    pub fn never_divides(&self, a: &Dim, b: &Dim) -> bool {
        let Some(most) = b.as_const().filter(|n| (2..=64).contains(n)) else { return false };
        (1..most).any(|rest| self.divides(&a.sub(&Dim::from(rest)), b))
    }

    /// Do the facts contradict each other?
    pub fn are_contradictory(&self) -> bool {
        lattice::is_contradictory(&self.integers()) || self.prover(&Dim::zero()).is_contradictory()
    }

    /// The quotients that are integers by the facts.
    fn integers(&self) -> Vec<Dim> {
        let divisible = self.known.iter().filter(|f| f.relation == Relation::Divisible && !f.is_too_long());
        divisible.filter_map(|f| f.left.div(&f.right)).filter(|q| !q.poly().is_zero()).collect()
    }

    /// Do the facts, or the expressions alone, prove `a <= b`? `false` if either is too long.
    pub fn at_most(&self, a: &Dim, b: &Dim) -> bool {
        let slack = b.sub(a);
        if slack.is_too_long() {
            return false;
        }
        if slack.is_provably_nonnegative() {
            return true;
        }
        let mut prover = self.prover(&slack);
        prover.dim(&slack).is_some_and(|form| prover.proves_everywhere(&form))
    }

    /// A prover that knows these facts and the symbols in them and in `d`.
    fn prover(&self, d: &Dim) -> Prover {
        let forms: Vec<Dim> = self.known.iter().flat_map(Fact::nonnegative).filter(|d| !d.is_too_long()).collect();
        let symbols: BTreeSet<String> = forms.iter().chain([d]).flat_map(Dim::symbols).map(|s| s.to_string()).collect();
        Prover::of_dimensions(&symbols, &forms)
    }
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

    fn s(n: &str) -> Dim {
        Dim::symbol(n)
    }

    fn fact(left: Dim, relation: Relation, right: Dim) -> Fact {
        Fact { left, relation, right }
    }

    fn divisible(left: Dim, right: Dim) -> Fact {
        fact(left, Relation::Divisible, right)
    }

    #[test]
    fn what_must_be_proved() {
        let n = |n: i64| Dim::from(n);
        let (d, h, g) = (s("D"), s("H"), s("G"));
        let chain = Facts { known: vec![divisible(d.clone(), h.clone()), divisible(h.clone(), g.clone())] };
        assert!(chain.divides(&d, &g));
        assert!(chain.divides(&d.mul(&s("S")), &g));
        assert!(!chain.divides(&d, &h.mul(&g)));
        let longer = Facts { known: [chain.known.clone(), vec![divisible(g.clone(), n(4))]].concat() };
        assert!(longer.divides(&d, &n(4)) && longer.divides(&d, &n(2)) && !longer.divides(&d, &n(8)));
        assert!(longer.divides(&d.div(&h).unwrap().mul(&h), &n(4)));
        let six = Facts { known: vec![divisible(d.clone(), n(2)), divisible(d.clone(), n(3))] };
        assert!(six.divides(&d, &n(6)) && !six.divides(&d, &n(12)) && !six.divides(&d, &n(4)));
        let twelve = Facts { known: vec![divisible(d.clone(), n(4)), divisible(d.clone(), n(6))] };
        assert!(twelve.divides(&d, &n(12)) && !twelve.divides(&d, &n(24)));
        let odd = Facts { known: vec![divisible(d.sub(&n(1)), n(2))] };
        assert!(odd.divides(&d.add(&n(1)), &n(2)) && odd.divides(&d.add(&n(3)), &n(2)) && !odd.divides(&d, &n(2)));
        assert!(odd.divides(&d.mul(&d).sub(&n(1)), &n(4)) && odd.never_divides(&d, &n(2)));
        // If three times a number is even, the number is even.
        let triple = Facts { known: vec![divisible(d.mul(&n(3)), n(2))] };
        assert!(triple.divides(&d, &n(2)));
        let both = Facts { known: vec![divisible(s("S"), n(2)), divisible(s("T"), n(2))] };
        assert!(both.divides(&s("S").add(&s("T")), &n(2)) && both.divides(&s("S").mul(&s("T")), &n(4)));
        assert!(both.divides(&s("S").sub(&n(2)), &n(2)) && !both.divides(&s("S").sub(&n(1)), &n(2)));
    }

    #[test]
    fn orders_add_up() {
        let n = |n: i64| Dim::from(n);
        let (a, b, c) = (s("A"), s("B"), s("C"));
        let le = |x: &Dim, y: &Dim| fact(x.clone(), Relation::Le, y.clone());
        let facts = Facts { known: vec![le(&a, &b), fact(b.clone(), Relation::Lt, c.clone())] };
        assert!(facts.at_most(&a, &c) && facts.at_most(&a.add(&n(1)), &c) && !facts.at_most(&c, &a));
        assert!(facts.at_most(&a.mul(&n(2)), &b.add(&c)) && facts.at_most(&a.mul(&s("D")), &b.mul(&s("D"))));
        assert!(!facts.at_most(&a.add(&n(2)), &c));
        let none = Facts::default();
        let half = a.floor_div(&n(2)).unwrap();
        assert!(none.at_most(&half.mul(&n(2)), &a) && none.at_most(&a, &half.mul(&n(2)).add(&n(1))));
        assert!(none.at_most(&half, &a) && !none.at_most(&a, &half));
        assert!(none.at_most(&a.min_with(&b), &a) && none.at_most(&b, &a.max_with(&b)));
        assert!(none.at_most(&a.rem(&n(8)).unwrap(), &n(7)) && none.at_most(&n(0), &a.rem(&n(8)).unwrap()));
        let windows = a.ceil_div(&b).unwrap();
        assert!(none.at_most(&a, &windows.mul(&b)));
        // Divisors are at least 1.
        assert!(none.at_most(&a.sub(&n(1)).floor_div(&a).unwrap(), &a) && !none.at_most(&a, &n(1)));
        assert!(none.at_most(&windows, &b.mul(&n(2)).add(&a)) && none.at_most(&n(1), &windows.add(&b)));
        let last = Facts { known: vec![fact(a.rem(&b).unwrap(), Relation::Ne, b.clone())] };
        assert!(last.at_most(&a.mul(&n(3)), &a.floor_div(&b).unwrap().mul(&b).mul(&n(3)).add(&b.mul(&b).mul(&n(3)))));
        // A chain of facts that is longer than the search for multiples is deep.
        let names: Vec<Dim> = (0..9).map(|i| s(&format!("N{i}"))).collect();
        let chain = Facts { known: names.windows(2).map(|w| le(&w[0], &w[1])).collect() };
        assert!(chain.at_most(&names[0], &names[8]) && !chain.at_most(&names[8], &names[0]));
        let heads = Facts { known: vec![divisible(a.clone(), b.clone())] };
        assert!(heads.at_most(&n(1), &b));
    }

    #[test]
    fn contradictions_are_seen() {
        let n = |n: i64| Dim::from(n);
        let d = s("D");
        let all = |known: Vec<Fact>| Facts { known }.are_contradictory();
        let is = |rest: i64, of: i64| divisible(d.sub(&n(rest)), n(of));
        assert!(all(vec![is(0, 2), is(1, 2)]));
        assert!(all(vec![is(1, 4), is(2, 6)]));
        assert!(!all(vec![is(1, 4), is(3, 6)]));
        assert!(all(vec![is(0, 2), is(0, 3), is(3, 6)]));
        let below = |x: &Dim, y: &Dim| fact(x.clone(), Relation::Lt, y.clone());
        assert!(all(vec![below(&s("A"), &s("B")), below(&s("B"), &s("C")), below(&s("C"), &s("A"))]));
        assert!(all(vec![below(&d, &n(4)), below(&n(8), &d)]));
        assert!(all(vec![fact(d.mul(&d), Relation::Eq, n(-2))]));
        // A divisor is at least 1, and a square at least its root.
        assert!(all(vec![
            fact(s("A").floor_div(&d).unwrap(), Relation::Le, s("A")),
            fact(d.clone(), Relation::Eq, n(0))
        ]));
        assert!(!all(vec![
            fact(s("A").floor_div(&d).unwrap(), Relation::Le, s("A")),
            fact(d.clone(), Relation::Eq, n(1))
        ]));
        assert!(!all(vec![below(&d, &n(4)), below(&n(2), &d)]));
        assert!(!all(vec![]));
    }

    /// A product of `many` sums, none of which cancels another.
    fn long(name: &str, many: usize) -> Dim {
        let sum = |i: usize| s(&format!("{name}{i}")).add(&s(&format!("other{name}{i}")));
        (0..many).fold(Dim::one(), |product, i| product.mul(&sum(i)))
    }

    #[test]
    fn what_is_too_long_proves_nothing() {
        let (n, none) = (|n: i64| Dim::from(n), Facts::default());
        let (x, y) = (s("X"), s("Y"));
        let (p, q) = (long("P", 10), long("Q", 10));
        assert!(p.is_too_long() && q.is_too_long());
        for (a, b) in [(&p, &q), (&p, &p), (&n(0), &p), (&p, &n(0)), (&x, &p), (&p, &x)] {
            assert!(!none.at_most(a, b) && !a.at_most_by_form(b), "{a} <= {b}");
            assert!(!none.divides(a, b) && !none.never_divides(a, b), "{a} % {b}");
            for relation in [Relation::Eq, Relation::Ne, Relation::Le, Relation::Lt, Relation::Divisible] {
                let stated = Facts { known: vec![fact(a.clone(), relation, b.clone())] };
                assert!(!stated.are_contradictory() && !stated.at_most(&x, &y) && !stated.at_most(a, b), "{a} {b}");
            }
        }
        assert!(!p.is_provably_nonnegative() && !p.mul(&p).is_provably_nonnegative());
        assert!(p.sub(&p).is_too_long() && p.div(&p).unwrap().is_too_long());
        assert!(p.min_with(&x).is_too_long() && p.max_with(&p).is_too_long());
        assert!(!p.floor_div(&x).unwrap().is_provably_nonnegative());
        // A clause whose multiples outgrow the limit, beside an unrelated one.
        let stated =
            Facts { known: vec![fact(n(1), Relation::Le, long("P", 4)), fact(x.clone(), Relation::Le, y.clone())] };
        assert!(!stated.are_contradictory() && stated.at_most(&x, &y) && !stated.at_most(&y, &x));
        for many in 1..8 {
            let (p, q) = (long("P", many), long("Q", many));
            assert!(!none.at_most(&p, &q) && !stated.at_most(&p, &q), "{many}");
        }
    }

    #[test]
    fn deep_forms_are_soon_answered() {
        let n = |n: i64| Dim::from(n);
        let nested = |depth: usize| {
            let start = s("S").sub(&s("T")).floor_div(&s("P")).unwrap();
            let by = s("z").floor_div(&s("y")).unwrap();
            (0..depth).fold(start, |d, _| d.mul(&n(3)).add(&s("U")).floor_div(&by).unwrap())
        };
        let start = std::time::Instant::now();
        for depth in [1, 4, 12, 20] {
            let d = nested(depth);
            let stated =
                Facts { known: vec![fact(n(0), Relation::Le, d.clone()), fact(n(1), Relation::Le, d.clone())] };
            assert!(!Facts::default().at_most(&n(0), &d) && !stated.are_contradictory(), "{depth}");
        }
        assert!(start.elapsed().as_secs() < 100, "{:?}", start.elapsed());
        // Shallow nesting is proved; beyond some depth nothing is.
        let sum =
            |depth: usize| (0..depth).fold(s("S"), |d, _| d.add(&s("U")).floor_div(&s("P")).unwrap().min_with(&s("T")));
        assert!(sum(1).is_provably_nonnegative() && sum(3).is_provably_nonnegative());
        assert!(!sum(20).is_provably_nonnegative());
    }

    /// A query costs a bounded amount of work, whatever rounded terms the facts contain.
    #[test]
    fn many_facts_are_soon_answered() {
        let mut random = crate::random::Random::new(3);
        let names: Vec<Dim> = (0..24).map(|i| s(&format!("N{i}"))).collect();
        let mut stated = Facts::default();
        for _ in 0..120 {
            let [a, b, c, d] = [0; 4].map(|_: i32| random.pick(&names).clone());
            let left = a.mul(&b).add(&c).floor_div(&d.add(&Dim::from(2))).unwrap();
            let third = c.floor_div(&Dim::from(3)).unwrap();
            let right = a.max_with(&third).mul(&b).add(&d.min_with(&c));
            stated.known.push(fact(left, Relation::Le, right));
        }
        let start = std::time::Instant::now();
        for pair in names.windows(2) {
            assert!(!stated.at_most(&pair[0], &pair[1]) && !stated.are_contradictory());
        }
        assert!(start.elapsed().as_secs() < 100, "{:?}", start.elapsed());
    }

    #[test]
    fn numbers_that_overflow_prove_nothing() {
        let n = |n: i64| Dim::from(n);
        // Each is at most three times the next plus a little: the product of the fractions is 29,
        // which needs more bits than there are.
        let names = ["A", "B", "C", "E"].map(s);
        let le =
            |i: usize| fact(names[i].mul(&n(274_877_906_944)), Relation::Le, names[i + 1].mul(&n(847_288_609_443)));
        let last = fact(names[3].clone(), Relation::Le, s("D").mul(&n(1_048_577)));
        let facts = Facts { known: vec![le(0), le(1), le(2), last] };
        for most in [1, 8191, 8192, 1 << 20, 1 << 24] {
            assert!(!facts.at_most(&names[0], &s("D").mul(&n(most))), "{most}");
        }
        assert!(!facts.are_contradictory());
        let huge = (0..4).fold(s("D"), |d, _| d.mul(&n(i64::MAX)));
        assert!(!Facts::default().at_most(&huge.mul(&n(2)), &huge) && !huge.at_most_by_form(&huge.mul(&n(2))));
        let small = Facts { known: vec![fact(s("A").mul(&n(2)), Relation::Le, s("B").mul(&n(3)))] };
        assert!(small.at_most(&s("A").mul(&n(4)), &s("B").mul(&n(6))));
    }

    /// Random facts and claims: each claim proved holds for all small values that satisfy the
    /// facts.
    #[test]
    fn what_is_proved_holds() {
        use crate::random::Random;
        let mut rng = Random::new(23);
        let names = ["A", "B", "C"];
        const MAX: i64 = 7;
        let (mut divisions, mut orders, mut contradictions) = (0, 0, 0);
        for _ in 0..40 {
            let atom = |rng: &mut Random| match rng.below(4) {
                0 => Dim::from(1 + rng.below(6) as i64),
                _ => s(rng.pick(&names)),
            };
            let form = |rng: &mut Random| -> Dim {
                let mut d = atom(rng);
                for _ in 0..rng.below(3) {
                    let x = atom(rng);
                    d = match rng.below(7) {
                        0 | 1 => d.mul(&x),
                        2 => d.add(&x),
                        3 => d.sub(&x),
                        4 => d.floor_div(&x).unwrap_or(d),
                        5 => d.min_with(&x),
                        _ => d.max_with(&x),
                    };
                }
                d
            };
            let claim = |rng: &mut Random| {
                let relation = rng.pick(&[Relation::Le, Relation::Lt, Relation::Divisible, Relation::Divisible]);
                let right = if relation == Relation::Divisible { atom(rng) } else { form(rng) };
                fact(form(rng), relation, right)
            };
            let known: Vec<Fact> = (0..1 + rng.below(4)).map(|_| claim(&mut rng)).collect();
            let facts = Facts { known: known.clone() };
            let holds = |f: &Fact, at: &[i64; 3]| -> Option<bool> {
                let value = |d: &Dim| d.eval(&|name| Some(at[(name.as_bytes()[0] - b'A') as usize])).ok();
                let (a, b) = (value(&f.left)?, value(&f.right)?);
                Fact { left: Dim::from(a), relation: f.relation, right: Dim::from(b) }.decide()
            };
            let all = || (0..MAX.pow(3)).map(|i| [i % MAX, i / MAX % MAX, i / MAX / MAX]);
            let models: Vec<[i64; 3]> = all().filter(|at| known.iter().all(|f| holds(f, at) == Some(true))).collect();
            if facts.are_contradictory() {
                contradictions += 1;
                assert!(models.is_empty(), "{known:?} hold at {:?}", models[0]);
            }
            for _ in 0..4 {
                let c = claim(&mut rng);
                let (proved, count) = match c.relation {
                    Relation::Divisible => (facts.divides(&c.left, &c.right), &mut divisions),
                    Relation::Lt => (facts.at_most(&c.left.add(&Dim::one()), &c.right), &mut orders),
                    _ => (facts.at_most(&c.left, &c.right), &mut orders),
                };
                if proved {
                    *count += usize::from(c.decide().is_none());
                    for at in &models {
                        // No call evaluates an expression without a value, such as a division by 0.
                        let given = holds(&c, at);
                        let zero = given == Some(false)
                            && c.relation == Relation::Divisible
                            && c.right.eval(&|name| Some(at[(name.as_bytes()[0] - b'A') as usize])) == Ok(0);
                        assert!(given != Some(false) || zero, "{c} does not follow from {known:?} at {at:?}");
                    }
                }
                if c.relation == Relation::Divisible && facts.never_divides(&c.left, &c.right) {
                    assert!(models.iter().all(|at| holds(&c, at) != Some(true)), "{c} may hold with {known:?}");
                }
            }
        }
        assert!(divisions > 5 && orders > 15 && contradictions > 1, "{divisions} {orders} {contradictions}");
    }
}
