//! Polynomials over atoms: what an index, an extent or a size is, exactly.
//!
//! In: dimensions and atoms (symbols, indices of the grid, counters of loops, results of `min` and the like), numbered in
//! the order in which they are made. Out: sums of integer multiples of products of atoms over one positive divisor, with equal
//! terms merged, so that `64*i + (S - 64*i)` is `S`. Arithmetic that leaves 127 bits gives up (`None`), and so does a form
//! that is too long, or of too high a power; nothing is proved of it then.

use std::cmp::Ordering;
use std::collections::BTreeMap;

/// The most terms of a form: those of any dimension (`Dim::bounded`), a start and an extent besides.
const MAX_TERMS: usize = 512;
/// The most terms of a product, before equal ones are merged.
const MAX_PRODUCTS: usize = 64;
/// The highest power of an atom, as of a dimension.
const MAX_POWER: u32 = 64;

/// What a form is made of, by number. An atom's bounds are forms of atoms with smaller numbers.
pub(super) type Atom = u32;

/// A product of atoms with exponents, by number in a [`Table`]; 0 is the empty product. One with an exponent below 0 has the
/// highest bit: its value may be no integer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Mono(u32);

/// The bit of a product that is divided by something.
const DIVIDED: u32 = 1 << 31;

impl Mono {
    /// Is its value an integer, because it is divided by nothing?
    fn is_whole(self) -> bool {
        self.0 & DIVIDED == 0
    }

    fn place(self) -> usize {
        (self.0 & !DIVIDED) as usize
    }
}

/// The empty product.
pub(super) const ONE: Mono = Mono(0);

/// A sum of terms over a divisor.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Poly {
    /// Products, in order, each once, with coefficients that are not 0.
    terms: Vec<(Mono, i128)>,
    /// What all of it is divided by, at least 1.
    den: i128,
}

fn gcd(a: u128, b: u128) -> u128 {
    let (mut a, mut b) = (a, b);
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

impl Poly {
    /// A number.
    pub(super) fn int(n: i128) -> Poly {
        let terms = if n == 0 { Vec::new() } else { vec![(ONE, n)] };
        Poly { terms, den: 1 }
    }

    /// The terms: integer coefficients, to be divided by the divisor.
    pub(super) fn terms(&self) -> &[(Mono, i128)] {
        &self.terms
    }

    /// The number, if it is an integer.
    pub(super) fn as_int(&self) -> Option<i128> {
        match self.terms.as_slice() {
            [] => Some(0),
            [(ONE, n)] if self.den == 1 => Some(*n),
            _ => None,
        }
    }

    /// Lowest terms.
    fn reduced(mut self) -> Poly {
        if self.den != 1 {
            let all = self.terms.iter().fold(self.den.unsigned_abs(), |g, (_, c)| gcd(g, c.unsigned_abs()));
            if let Ok(all) = i128::try_from(all)
                && all > 1
            {
                self.den /= all;
                self.terms.iter_mut().for_each(|(_, c)| *c /= all);
            }
        }
        self
    }

    /// The form with `m`'s coefficients `scaled` by a number.
    pub(super) fn scale(&self, by: i128) -> Option<Poly> {
        if by == 0 {
            return Some(Poly::int(0));
        }
        let scaled = |(m, c): &(Mono, i128)| Some((*m, c.checked_mul(by)?));
        let terms = self.terms.iter().map(scaled).collect::<Option<_>>()?;
        Some(Poly { terms, den: self.den }.reduced())
    }

    /// Sum.
    pub(super) fn add(&self, o: &Poly) -> Option<Poly> {
        self.combine(1, o, 1)
    }

    /// Difference.
    pub(super) fn sub(&self, o: &Poly) -> Option<Poly> {
        self.combine(1, o, -1)
    }

    /// `self * x + o * y`.
    pub(super) fn combine(&self, x: i128, o: &Poly, y: i128) -> Option<Poly> {
        let (x, y, den) = if self.den == o.den {
            (x, y, self.den)
        } else {
            (x.checked_mul(o.den)?, y.checked_mul(self.den)?, self.den.checked_mul(o.den)?)
        };
        let mut terms = Vec::with_capacity(self.terms.len() + o.terms.len());
        let (mut a, mut b) = (self.terms.iter().peekable(), o.terms.iter().peekable());
        loop {
            let order = match (a.peek(), b.peek()) {
                (None, None) => break,
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (Some(p), Some(q)) => p.0.cmp(&q.0),
            };
            let mut term = None;
            if order != Ordering::Greater
                && let Some((m, c)) = a.next()
            {
                term = Some((*m, c.checked_mul(x)?));
            }
            if order != Ordering::Less
                && let Some((m, c)) = b.next()
            {
                let own = c.checked_mul(y)?;
                term = Some((*m, term.map_or(Some(own), |(_, c): (Mono, i128)| c.checked_add(own))?));
            }
            terms.extend(term.filter(|(_, c)| *c != 0));
        }
        (terms.len() <= MAX_TERMS).then(|| Poly { terms, den }.reduced())
    }

    /// Of a form that is at least 0 and has integer values: the strongest such form with these terms. The number is rounded
    /// down to a multiple of what the other coefficients have in common, which products that may be no integers have not.
    pub(super) fn tightened(mut self) -> Poly {
        // A form over a divisor is at least 0 where its numerator is, which is whole.
        self.den = 1;
        if !self.has_whole_products() {
            return self;
        }
        let others = self.terms.iter().filter(|(m, _)| *m != ONE);
        let common = i128::try_from(others.fold(0, |g, (_, c)| gcd(g, c.unsigned_abs()))).unwrap_or(1);
        if common > 1 {
            self.terms.iter_mut().for_each(|(_, c)| *c = c.div_euclid(common));
            self.terms.retain(|(_, c)| *c != 0);
        }
        self
    }

    /// Of a bound `c * x <= self` of an integer `x`, with `c > 0`: the strongest such bound.
    pub(super) fn tightened_bound(mut self, c: i128) -> Option<(i128, Poly)> {
        let c = c.checked_mul(self.den)?;
        self.den = 1;
        if !self.has_whole_products() {
            return Some((c, self));
        }
        let others = self.terms.iter().filter(|(m, _)| *m != ONE);
        let common = i128::try_from(others.fold(c.unsigned_abs(), |g, (_, c)| gcd(g, c.unsigned_abs()))).ok()?;
        if common > 1 {
            self.terms.iter_mut().for_each(|(_, c)| *c = c.div_euclid(common));
            self.terms.retain(|(_, c)| *c != 0);
        }
        Some((c / common.max(1), self))
    }

    /// Is each product an integer, because it is divided by nothing?
    pub(super) fn has_whole_products(&self) -> bool {
        self.terms.iter().all(|(m, _)| m.is_whole())
    }

    /// `self / n`, if each term is an integer.
    pub(super) fn divided(&self, n: i128) -> Option<Poly> {
        let whole = self.den == 1
            && n != 0
            && self.has_whole_products()
            && self.terms.iter().all(|(_, c)| c.checked_rem(n) == Some(0));
        whole.then(|| Poly { terms: self.terms.iter().map(|(m, c)| (*m, c / n)).collect(), den: 1 })
    }

    /// What it is divided by.
    pub(super) fn divisor(&self) -> i128 {
        self.den
    }

    /// `self / den`.
    pub(super) fn over(mut self, den: i128) -> Option<Poly> {
        self.den = self.den.checked_mul(den).filter(|d| *d > 0)?;
        Some(self.reduced())
    }
}

/// The products that occur.
#[derive(Debug)]
pub(super) struct Table {
    monos: Vec<Vec<(Atom, i32)>>,
    numbers: BTreeMap<Vec<(Atom, i32)>, Mono>,
}

impl Table {
    /// The empty product alone.
    pub(super) fn new() -> Table {
        Table { monos: vec![Vec::new()], numbers: BTreeMap::from([(Vec::new(), ONE)]) }
    }

    /// The product of these atoms, sorted, with exponents that are not 0.
    pub(super) fn product(&mut self, factors: Vec<(Atom, i32)>) -> Mono {
        if let Some(m) = self.numbers.get(&factors) {
            return *m;
        }
        let divided = if factors.iter().any(|(_, e)| *e < 0) { DIVIDED } else { 0 };
        let m = Mono(u32::try_from(self.monos.len()).unwrap_or(DIVIDED - 1) | divided);
        self.monos.push(factors.clone());
        self.numbers.insert(factors, m);
        m
    }

    /// The atoms of a product, sorted.
    pub(super) fn factors(&self, m: Mono) -> &[(Atom, i32)] {
        self.monos.get(m.place()).map(Vec::as_slice).unwrap_or_default()
    }

    /// The sum of a product's exponents.
    pub(super) fn degree(&self, m: Mono) -> i32 {
        self.factors(m).iter().fold(0, |sum, (_, e)| sum.saturating_add(*e))
    }

    /// An atom.
    pub(super) fn atom(&mut self, a: Atom) -> Poly {
        Poly { terms: vec![(self.product(vec![(a, 1)]), 1)], den: 1 }
    }

    /// `m` times atoms to these powers (sorted): of two sorted lists the merged one. `None` where a power is too high.
    fn merged(&self, m: Mono, by: &[(Atom, i32)], sign: i32) -> Option<Vec<(Atom, i32)>> {
        let mut out = self.factors(m).to_vec();
        for (atom, e) in by {
            let e = e.checked_mul(sign)?;
            match out.binary_search_by_key(atom, |(a, _)| *a) {
                Ok(at) => {
                    let (_, own) = out.get_mut(at)?;
                    *own = own.checked_add(e).filter(|e| e.unsigned_abs() <= MAX_POWER)?;
                }
                Err(at) => out.insert(at, (*atom, e)),
            }
        }
        out.retain(|(_, e)| *e != 0);
        Some(out)
    }

    /// The product of two products.
    pub(super) fn times(&mut self, a: Mono, b: Mono) -> Option<Mono> {
        if a == ONE {
            return Some(b);
        }
        let all = self.merged(b, self.factors(a), 1)?;
        Some(self.product(all))
    }

    /// `a / b`, if no exponent that was at least 0 falls below it.
    pub(super) fn quotient(&mut self, a: Mono, b: Mono) -> Option<Mono> {
        let by = self.factors(b).to_vec();
        let all = self.merged(a, &by, -1)?;
        let fits = |atom: &Atom| all.binary_search_by_key(atom, |(x, _)| *x).is_ok_and(|at| all[at].1 < 0);
        if by.iter().any(|(atom, e)| *e > 0 && fits(atom)) { None } else { Some(self.product(all)) }
    }

    /// Product.
    pub(super) fn mul(&mut self, a: &Poly, b: &Poly) -> Option<Poly> {
        if let Some(n) = a.as_int() {
            return b.scale(n);
        }
        if let Some(n) = b.as_int() {
            return a.scale(n);
        }
        if a.terms.len().saturating_mul(b.terms.len()) > MAX_PRODUCTS {
            return None;
        }
        let mut all: BTreeMap<Mono, i128> = BTreeMap::new();
        for (m, c) in &a.terms {
            for (n, d) in &b.terms {
                let slot = all.entry(self.times(*m, *n)?).or_insert(0);
                *slot = slot.checked_add(c.checked_mul(*d)?)?;
            }
        }
        let terms = all.into_iter().filter(|(_, c)| *c != 0).collect();
        Some(Poly { terms, den: a.den.checked_mul(b.den)? }.reduced())
    }

    /// `by * p` for a product.
    pub(super) fn mul_mono(&mut self, by: Mono, p: &Poly) -> Option<Poly> {
        if by == ONE {
            return Some(p.clone());
        }
        let term = |(m, c): &(Mono, i128)| Some((self.times(by, *m)?, *c));
        let mut terms = p.terms.iter().map(term).collect::<Option<Vec<(Mono, i128)>>>()?;
        terms.sort_unstable_by_key(|(m, _)| *m);
        Some(Poly { terms, den: p.den })
    }

    /// The largest atom of a form.
    pub(super) fn latest(&self, p: &Poly) -> Option<Atom> {
        p.terms.iter().filter_map(|(m, _)| self.factors(*m).last().map(|(a, _)| *a)).max()
    }

    /// `p` as `a * x + b` for an atom, both over `p`'s divisor; `None` where the atom has another power.
    pub(super) fn split(&mut self, p: &Poly, x: Atom) -> Option<(Poly, Poly)> {
        let (mut a, mut b) = (Vec::new(), Vec::new());
        for (m, c) in &p.terms {
            match self.factors(*m).binary_search_by_key(&x, |(atom, _)| *atom) {
                Err(_) => b.push((*m, *c)),
                Ok(at) => {
                    let mut rest = self.factors(*m).to_vec();
                    if rest.remove(at).1 != 1 {
                        return None;
                    }
                    a.push((self.product(rest), *c));
                }
            }
        }
        a.sort_unstable_by_key(|(m, _)| *m);
        Some((Poly { terms: a, den: 1 }, Poly { terms: b, den: 1 }))
    }

    /// A form as `a * x + b` for an atom, where `a` has what is left of its powers: `3*x*x + 2*x + 1` is `(3*x + 2) * x + 1`.
    pub(super) fn split_once(&mut self, p: &Poly, x: Atom) -> Option<(Poly, Poly)> {
        let (mut a, mut b) = (Vec::new(), Vec::new());
        for (m, c) in &p.terms {
            let mut rest = self.factors(*m).to_vec();
            match rest.binary_search_by_key(&x, |(atom, _)| *atom) {
                Err(_) => b.push((*m, *c)),
                Ok(at) => {
                    let power = rest.get(at).map_or(0, |(_, power)| *power);
                    if power < 1 {
                        return None;
                    }
                    if power == 1 {
                        _ = rest.remove(at)
                    } else {
                        rest[at].1 -= 1
                    }
                    a.push((self.product(rest), *c));
                }
            }
        }
        a.sort_unstable_by_key(|(m, _)| *m);
        Some((Poly { terms: a, den: 1 }, Poly { terms: b, den: 1 }))
    }
}
