//! Proves that forms are at least 0, from bounds of atoms and facts.
//!
//! In: atoms with bounds (`i` of a grid is at least 0, and `64*i` at most `S - 1`), facts (forms that are at least 0 at a
//! place), a form. Out: is the form at least 0 for all values of the atoms that obey them? "No" means: not found.
//!
//! Atoms and what is known of them are here, the search for a proof in `search`, what it asks of forms of symbols alone in `symbols`.
//!
//! A dimension that is rounded, a `min` or a `max` is an atom ([`Prover::dim`]). What facts say of its symbols is lost in it, so it is
//! also written as something that it is at least, and what it is more ([`Prover::least`]): `ceil_div(S, 2)` as 1 and what it is more, where
//! `S` is at least 2.

mod search;
mod symbols;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::{Dim, Factor, Monomial, Sizes, poly};

/// A variable of a proof, by number. The bounds of an atom are polynomials in atoms with smaller numbers.
pub(crate) type Atom = u32;
/// What is proved to be at least 0: a polynomial in atoms.
pub(crate) type AtomPoly = poly::Poly<Atom>;
type Poly = AtomPoly;
type AtomMonomial = poly::Monomial<Atom>;

/// The maximum number of term products in one multiplication.
const MAX_PRODUCTS: usize = 64;

/// How many forms a quotient, `min` or `max` is found to be at least.
const MOST_LEAST: usize = 4;
/// Between what an atom lies.
#[derive(Clone, Debug, Default)]
pub(crate) struct Bounds {
    /// Is it at least 0 in any case?
    pub(crate) natural: bool,
    /// What it is at most in size, if that is more than 64 bits hold, or a number of rounds.
    pub(crate) most: Option<i128>,
    /// `c * x >= p` with `c > 0`.
    pub(crate) lower: Vec<(i128, Poly)>,
    /// `c * x <= p` with `c > 0`.
    pub(crate) upper: Vec<(i128, Poly)>,
    /// It is one of these, if there are any.
    pub(crate) one_of: Vec<Poly>,
    /// Is it a dimension, or made of dimensions alone?
    pub(crate) dimension: bool,
    /// What it is at least, and an atom for what it is more.
    pub(crate) least: Vec<(Poly, Atom)>,
}

/// Atoms and what is known of them.
#[derive(Debug)]
pub(crate) struct Prover {
    atoms: Vec<Bounds>,
    symbols: Vec<(String, Atom)>,
    quotients: Vec<(Factor, Atom)>,
    /// Atoms below this number are symbols.
    first: Atom,
    /// What is at least 0 everywhere.
    known: Vec<Poly>,
    /// What of that is of dimensions.
    dimensions: Vec<Dim>,
    /// What dimensions are at most.
    sizes: Sizes,
    /// What products were found to be at most in size.
    most: BTreeMap<AtomMonomial, i128>,
    /// Forms that calls have computed, every step checked, and what they are at most in size.
    computed: BTreeMap<Poly, i128>,
    /// How often proofs have tried facts.
    tried: u32,
}

/// What a number of 64 bits is at most in size.
const MACHINE: i128 = 1 << 63;

impl Prover {
    /// With these symbols, each at least 0, and what is known of their sizes.
    pub(crate) fn new<'a>(symbols: impl IntoIterator<Item = &'a String>, sizes: Sizes) -> Prover {
        let mut p = Prover {
            atoms: Vec::new(),
            symbols: Vec::new(),
            quotients: Vec::new(),
            first: 0,
            known: Vec::new(),
            dimensions: Vec::new(),
            sizes,
            most: BTreeMap::new(),
            computed: BTreeMap::new(),
            tried: 0,
        };
        for s in symbols {
            let a = p.atom(Bounds { natural: true, dimension: true, ..Bounds::default() });
            p.symbols.push((s.clone(), a));
        }
        p.first = u32::try_from(p.atoms.len()).unwrap_or(u32::MAX);
        p
    }

    /// Takes for known from here on that these forms are at least 0, everywhere.
    pub(crate) fn learn(&mut self, known: impl IntoIterator<Item = Poly>) {
        self.known.extend(known);
    }

    /// The same of dimensions. What is known of symbols comes first, for it says something of what is rounded.
    pub(crate) fn learn_dimensions(&mut self, known: &[Dim]) {
        let is_of_symbols = |d: &Dim| d.factors().all(|f| matches!(f, Factor::Symbol(_)));
        let (of_symbols, others): (Vec<&Dim>, Vec<&Dim>) = known.iter().partition(|d| is_of_symbols(d));
        let ordered = || of_symbols.iter().chain(&others).copied();
        // Of what has no value here nothing is known.
        let is_named = |d: &&Dim| d.symbols().iter().all(|s| self.symbols.iter().any(|(own, _)| **own == **s));
        let usable = ordered().filter(|d| !d.is_too_long()).filter(|d| d.is_polynomial()).filter(is_named);
        self.dimensions.extend(usable.cloned().collect::<Vec<Dim>>());
        for d in ordered() {
            let form = self.dim(d).map(Poly::tightened);
            self.learn(form);
        }
    }

    /// A new atom.
    pub(crate) fn atom(&mut self, mut bounds: Bounds) -> Atom {
        let strongest = |(c, p): (i128, Poly)| p.tightened_bound(c);
        bounds.upper = std::mem::take(&mut bounds.upper).into_iter().filter_map(strongest).collect();
        let negative =
            |(c, p): (i128, Poly)| p.scale(-1)?.tightened_bound(c).and_then(|(c, p)| Some((c, p.scale(-1)?)));
        bounds.lower = std::mem::take(&mut bounds.lower).into_iter().filter_map(negative).collect();
        let a = self.next();
        self.atoms.push(bounds);
        a
    }

    /// A new atom as a form.
    pub(crate) fn fresh(&mut self, bounds: Bounds) -> Poly {
        let a = self.atom(bounds);
        Poly::variable(a)
    }

    /// The number of the next atom.
    pub(crate) fn next(&self) -> Atom {
        u32::try_from(self.atoms.len()).unwrap_or(u32::MAX)
    }

    /// Has a form atoms alone that were there before this one?
    pub(crate) fn is_older(&self, p: &Poly, than: Atom) -> bool {
        p.latest().is_none_or(|a| *a < than)
    }

    /// Does a form have an atom of another?
    pub(crate) fn has_atom_of(&self, p: &Poly, other: &Poly) -> bool {
        // What is rounded may have it inside.
        let wanted = other.variables();
        let inside = |f: &Factor| f.inner().iter().any(|d| d.symbols().iter().any(|s| self.is_symbol(s, &wanted)));
        p.variables()
            .iter()
            .any(|a| wanted.contains(a) || self.quotients.iter().any(|(f, atom)| atom == a && inside(f)))
    }

    fn is_symbol(&self, name: &str, atoms: &BTreeSet<Atom>) -> bool {
        self.symbols.iter().any(|(own, atom)| own == name && atoms.contains(atom))
    }

    /// A dimension that code computes; every call has checked that it fits.
    pub(crate) fn computed(&mut self, d: &Dim) -> Option<Poly> {
        let form = self.dim(d)?;
        self.computed.insert(form.clone(), self.sizes.of(d).min(MACHINE - 1));
        Some(form)
    }

    /// Is a form what a machine computes, not just modulo 2^64?
    pub(crate) fn fits(&mut self, p: &Poly) -> bool {
        let machine = |a: Atom| self.atoms.get(a as usize).is_some_and(|b| b.most.is_none());
        self.computed.contains_key(p) || is_atom(p) && p.latest().is_some_and(|a| machine(*a)) || self.most(p) < MACHINE
    }

    /// What a form is at most in size: the sum of what its products are, or what is computed whole and the rest.
    pub(crate) fn most(&mut self, p: &Poly) -> i128 {
        let mut most = self.most_of_products(p);
        // Some are added to each other before they are compared.
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

    /// What a product is at most in size.
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
                // What it is at most, times the rest: `S*T` for a row of `S`, times `T`.
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

    /// What an atom that is no dimension is at most in size.
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

    /// What an atom is of dimensions, if it is one.
    fn as_factor(&self, a: Atom) -> Option<Factor> {
        let named = self.symbols.iter().find(|(_, own)| *own == a).map(|(s, _)| Factor::Symbol(s.as_str().into()));
        named.or_else(|| self.quotients.iter().find(|(_, own)| *own == a).map(|(f, _)| f.clone()))
    }

    /// A dimension as a form; `None` where it is too long, or names what is no symbol here.
    pub(crate) fn dim(&mut self, d: &Dim) -> Option<Poly> {
        if let Some(n) = d.as_const() {
            return Some(Poly::int(i128::from(n)));
        }
        let mut sum = Poly::int(0);
        for (m, c) in d.terms() {
            let mut powers = Vec::new();
            for (f, e) in m.factors() {
                let atom = match f {
                    Factor::Symbol(s) => self.symbols.iter().find(|(name, _)| **name == **s)?.1,
                    Factor::Quotient(..) | Factor::Floor(..) | Factor::Min(_) | Factor::Max(_) => self.opaque(f)?,
                };
                powers.push((atom, *e));
            }
            sum = sum.add(&Poly::term(powers.into_iter().collect(), *c))?;
        }
        sum.over(d.denominator())
    }

    /// A quotient that does not divide out or is rounded, a `min` or `max`.
    fn opaque(&mut self, f: &Factor) -> Option<Atom> {
        if let Some((_, atom)) = self.quotients.iter().find(|(known, _)| known == f) {
            return Some(*atom);
        }
        let mut bounds = Bounds { natural: f.is_provably_nonnegative(), dimension: true, ..Bounds::default() };
        match f {
            Factor::Symbol(_) => return None,
            // Of a sum over a number of at least 1 both sides are known.
            Factor::Quotient(a, b) => {
                if let (Some(n), Some(p)) = (b.as_const().filter(|n| *n > 0), self.dim(a)) {
                    bounds.lower.push((i128::from(n), p.clone()));
                    bounds.upper.push((i128::from(n), p));
                }
            }
            Factor::Floor(a, b) => {
                let p = self.dim(a)?;
                if let Some(n) = b.as_const().map(i128::from).filter(|n| *n > 0) {
                    bounds.lower.push((n, p.sub(&Poly::int(n - 1))?));
                    bounds.upper.push((n, p));
                } else if a.is_provably_nonnegative() {
                    bounds.upper.push((1, p));
                }
            }
            Factor::Min(all) | Factor::Max(all) => {
                let forms = all.iter().map(|d| self.dim(d)).collect::<Option<Vec<Poly>>>()?;
                let limits = forms.iter().map(|p| (1, p.clone())).collect();
                *(if matches!(f, Factor::Min(_)) { &mut bounds.upper } else { &mut bounds.lower }) = limits;
                bounds.one_of = forms;
            }
        }
        bounds.natural |= matches!(f, Factor::Floor(a, _) if self.dim(a).is_some_and(|a| self.proves(&a, [])));
        for least in self.least(f) {
            let more = self.dim(&least).and_then(|least| Some((self.more_than(&bounds, &least)?, least)));
            if let Some((more, least)) = more {
                bounds.natural |= self.proves(&least, []);
                bounds.lower.push((1, least.clone()));
                bounds.least.push((least, more));
            }
        }
        let atom = self.atom(bounds);
        self.quotients.push((f.clone(), atom));
        Some(atom)
    }

    /// What a quotient, `min` or `max` is at least, by what is known everywhere, with what is more than that at least 0 by its form: where
    /// `S` is at least `K + 3`, `ceil_div(S + K, 2)` is `K + 2` and `floor_div(R, 2)` for what `S` is more, and at least `K + 2`.
    fn least(&self, f: &Factor) -> Vec<Dim> {
        let whole = Dim::factor(f.clone());
        let mut found: Vec<Dim> = Vec::new();
        // Each symbol is replaced by what it is more than something that it is at least: which symbols, and what that is.
        let mut replaced: Vec<(Arc<str>, Dim)> = Vec::new();
        let mut now = whole.clone();
        for fact in &self.dimensions {
            if found.len() == MOST_LEAST {
                break;
            }
            // The fact may be of the form itself.
            let rest = fact.sub(&whole);
            if rest.terms().len() < fact.terms().len() && !rest.factors().any(|own| own == f) {
                found.push(rest.neg());
                continue;
            }
            let step = |d: Dim, (name, least): &(Arc<str>, Dim)| {
                d.substitute(&|s| (*s == **name).then(|| Dim::symbol(s).add(least)))
            };
            let Some(fact) = replaced.iter().try_fold(fact.clone(), step) else { continue };
            let solved = now.symbols().into_iter().find_map(|name| {
                let (times, rest) = fact.linear_in(&name)?;
                (times == Dim::one() && !fact.is_provably_nonnegative()).then(|| (name, rest.neg()))
            });
            let Some(solved) = solved else { continue };
            let Some(next) = step(now.clone(), &solved).filter(|d| !d.is_too_long()) else { continue };
            replaced.push(solved);
            now = next;
            // What is more than a sum of symbols.
            let is_rounded = |f: &Factor| !matches!(f, Factor::Symbol(_) | Factor::Quotient(..));
            let term = now
                .terms()
                .iter()
                .find(|(m, c)| *c == now.denominator() && matches!(m.factors(), [(f, 1)] if is_rounded(f)));
            let Some(more) = term.map(|(m, _)| Dim::term(m.clone(), 1)).filter(Dim::is_provably_nonnegative) else {
                continue;
            };
            let back = |d: Dim, (name, least): &(Arc<str>, Dim)| {
                d.substitute(&|s| (*s == **name).then(|| Dim::symbol(s).sub(least)))
            };
            let least = replaced.iter().rev().try_fold(now.sub(&more), back);
            // Of `min((A+3)/2, (A+B)/2)` that is `A/2`, and no integer where `A` is odd; what it is more must be one.
            found.extend(least.filter(|d| d.is_polynomial() && !d.is_too_long() && !found.contains(d)));
        }
        found
    }

    /// An atom for what an atom with these bounds is more than something that it is at least.
    fn more_than(&mut self, bounds: &Bounds, least: &Poly) -> Option<Atom> {
        let beyond = |(c, p): &(i128, Poly)| Some((*c, p.combine(1, least, c.checked_neg()?)?));
        let one_of = bounds.one_of.iter().map(|p| p.sub(least)).collect::<Option<_>>()?;
        let lower = bounds.lower.iter().map(beyond).collect::<Option<_>>()?;
        let upper = bounds.upper.iter().map(beyond).collect::<Option<_>>()?;
        Some(self.atom(Bounds { natural: true, dimension: true, lower, upper, one_of, ..Bounds::default() }))
    }

    /// Is a product at least 0 by its atoms alone?
    fn natural(&self, m: &AtomMonomial) -> bool {
        let natural = |a: &Atom| self.atoms.get(*a as usize).is_some_and(|b| b.natural);
        m.factors().iter().all(|(a, e)| e % 2 == 0 || natural(a))
    }

    /// Is a form at least 0 by its terms alone?
    pub(crate) fn plain(&self, p: &Poly) -> bool {
        p.terms().iter().all(|(m, c)| *c >= 0 && self.natural(m))
    }

    /// Is a form at most 0 by its terms alone?
    fn plainly_below(&self, p: &Poly) -> bool {
        p.terms().iter().all(|(m, c)| *c <= 0 && self.natural(m))
    }

    /// Has a form dimensions alone, and what is made of them?
    fn is_of_dimensions(&self, p: &Poly) -> bool {
        p.terms()
            .iter()
            .flat_map(|(m, _)| m.variables())
            .all(|a| self.atoms.get(*a as usize).is_some_and(|b| b.dimension))
    }

    /// Is `p >= 0` where these facts hold, beside what holds everywhere?
    pub(crate) fn proves<'a>(&mut self, p: &Poly, facts: impl IntoIterator<Item = &'a Poly>) -> bool {
        if self.plain(p) {
            return true;
        }
        let given: Vec<&Poly> = facts.into_iter().collect();
        let known = std::mem::take(&mut self.known);
        let mut all: Vec<&Poly> = Vec::new();
        for fact in given.into_iter().chain(&known) {
            if !all.contains(&fact) && !self.plain(fact) {
                all.push(fact);
            }
        }
        let found = self.follows(p, all);
        self.known = known;
        found
    }

    /// Says of an atom that is at least 0 that it is at most `p / c`, or 0.
    pub(crate) fn limit(&mut self, a: Atom, c: i128, p: Poly) {
        // What was found before knew less.
        self.most.clear();
        let forms = vec![Poly::int(0), p];
        let lower = forms.iter().map(|p| (1, p.clone())).collect();
        let any = Some(i128::MAX);
        let most = self.fresh(Bounds { natural: true, most: any, lower, one_of: forms, ..Bounds::default() });
        if let Some(b) = self.atoms.get_mut(a as usize) {
            b.upper.push((c, most));
        }
    }
}

/// A size over a number: nothing is known where nothing is known of the size.
fn over(most: i128, c: i128) -> i128 {
    if most == i128::MAX { most } else { most / c }
}

/// The product, where it is not too much work.
pub(crate) fn product(a: &AtomPoly, b: &AtomPoly) -> Option<AtomPoly> {
    let few = a.terms().len().saturating_mul(b.terms().len()) <= MAX_PRODUCTS;
    if few || a.as_int().is_some() || b.as_int().is_some() { a.mul(b) } else { None }
}

/// Is it a single atom?
fn is_atom(p: &AtomPoly) -> bool {
    p.denominator() == 1 && p.as_term().is_some_and(|(m, c)| c == 1 && matches!(m.factors(), [(_, 1)]))
}

#[cfg(test)]
mod tests;
