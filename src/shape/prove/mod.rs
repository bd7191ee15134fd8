//! An automatic prover for inequalities between integer polynomials: is `p >= 0`?
//!
//! In: variables with bounds, called atoms (a grid index `i` with `i >= 0` and `64*i <= S - 1`),
//! assumptions (polynomials that are non-negative), a polynomial. Out: whether it is non-negative
//! for all values of the atoms that satisfy bounds and assumptions. "No" means that no proof was
//! found: polynomial inequalities over the integers are undecidable, and the search is bounded.
//!
//! The type checker uses it for dimensions ([`Facts`](super::Facts)), the tile verifier also for
//! the indices of a kernel. This file has the atoms and their bounds, `search` the search for a
//! proof, `symbols` the steps that need no search.
//!
//! A rounded quotient, `min` or `max` is an atom ([`Prover::dim`]), which hides the assumptions
//! about the symbols in it. So it is also split into a lower bound and a non-negative remainder,
//! its slack ([`Prover::lower_bounds`]): where `S >= 2`, `ceil_div(S, 2)` is `1 + slack`.

mod magnitude;
mod search;
mod symbols;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::{Dim, Factor, Sizes, monomial, poly};

/// A variable of a proof, by number. The bounds of an atom are polynomials in atoms with smaller
/// numbers.
pub(crate) type Atom = u32;
/// A polynomial in atoms.
pub(crate) type AtomPoly = poly::Poly<Atom>;
type Poly = AtomPoly;
type AtomMonomial = monomial::Monomial<Atom>;

/// The maximum number of term products in one multiplication.
const MAX_PRODUCTS: usize = 64;

/// The maximum number of lower bounds computed for a rounded quotient, `min` or `max`.
const MAX_LEAST: usize = 4;
/// The maximum nesting of lower bounds of rounded terms inside lower bounds of others.
const MAX_OPEN: usize = 2;
/// Attempts to use facts while the assumptions of one query are added, and for the query itself.
const ASSUMING: u32 = 5_000;
const ASKING: u32 = 20_000;
/// The range of an atom.
#[derive(Clone, Debug, Default)]
pub(crate) struct Bounds {
    /// Is it non-negative?
    pub(crate) natural: bool,
    /// An upper bound of its absolute value, if that exceeds 64 bits or is a trip count.
    pub(crate) most: Option<i128>,
    /// `c * x >= p` with `c > 0`.
    pub(crate) lower: Vec<(i128, Poly)>,
    /// `c * x <= p` with `c > 0`.
    pub(crate) upper: Vec<(i128, Poly)>,
    /// If not empty, the atom equals one of these.
    pub(crate) one_of: Vec<Poly>,
    /// Is it computed from dimensions alone?
    pub(crate) dimension: bool,
    /// Lower bounds, each with the atom that is the slack above it.
    pub(crate) least: Vec<(Poly, Atom)>,
}

/// Atoms, their bounds, and the assumptions that hold everywhere.
#[derive(Debug)]
pub(crate) struct Prover {
    atoms: Vec<Bounds>,
    symbols: Vec<(String, Atom)>,
    quotients: Vec<(Factor, Atom)>,
    /// Rounded terms whose lower bounds are being computed, outermost first.
    open: Vec<Factor>,
    /// May divisors of rounded quotients be assumed to be at least 1?
    positive_divisors: bool,
    /// Atoms below this number are symbols.
    first: Atom,
    /// Global assumptions: each is non-negative.
    known: Vec<Poly>,
    /// The global assumptions about dimensions.
    dimensions: Vec<Dim>,
    /// Upper bounds of dimensions.
    sizes: Sizes,
    /// Upper bounds of the absolute values of monomials, cached.
    most: BTreeMap<AtomMonomial, i128>,
    /// Polynomials that calls evaluate with every step checked, with upper bounds of their absolute
    /// values.
    computed: BTreeMap<Poly, i128>,
    /// Attempts to use facts so far.
    tried: u32,
    /// The maximum of `tried` in a prover for a single query, whose proofs are not worth more.
    most_tried: Option<u32>,
}

impl Prover {
    /// A prover with these symbols, each non-negative, and upper bounds of their sizes.
    pub(crate) fn new<'a>(symbols: impl IntoIterator<Item = &'a String>, sizes: Sizes) -> Prover {
        let mut p = Prover {
            atoms: Vec::new(),
            symbols: Vec::new(),
            quotients: Vec::new(),
            open: Vec::new(),
            positive_divisors: false,
            first: 0,
            known: Vec::new(),
            dimensions: Vec::new(),
            sizes,
            most: BTreeMap::new(),
            computed: BTreeMap::new(),
            tried: 0,
            most_tried: None,
        };
        for s in symbols {
            let a = p.atom(Bounds { natural: true, dimension: true, ..Bounds::default() });
            p.symbols.push((s.clone(), a));
        }
        p.first = u32::try_from(p.atoms.len()).unwrap_or(u32::MAX);
        p
    }

    /// A prover for one query about dimensions that have values, given these global assumptions.
    /// Since they have values, divisors of rounded quotients are at least 1.
    pub(super) fn of_dimensions<'a>(symbols: impl IntoIterator<Item = &'a String>, known: &[Dim]) -> Prover {
        let mut p = Prover::new(symbols, Sizes::default());
        (p.positive_divisors, p.most_tried) = (true, Some(ASSUMING));
        p.assume_dimensions(known);
        (p.tried, p.most_tried) = (0, Some(ASKING));
        p
    }

    /// Takes `tries` attempts from the budget; `false` if fewer are left. There may be no budget.
    fn spend(&mut self, tries: usize) -> bool {
        let Some(most) = self.most_tried else { return true };
        self.tried = self.tried.saturating_add(u32::try_from(tries).unwrap_or(u32::MAX));
        self.tried <= most
    }

    /// Adds global assumptions: each polynomial is non-negative.
    pub(crate) fn assume(&mut self, known: impl IntoIterator<Item = Poly>) {
        self.known.extend(known);
    }

    /// Adds global assumptions about dimensions. Assumptions about bare symbols come first, because
    /// lower bounds of rounded terms use them.
    pub(crate) fn assume_dimensions(&mut self, known: &[Dim]) {
        let is_of_symbols = |d: &Dim| d.factors().all(|f| matches!(f, Factor::Symbol(_)));
        let (of_symbols, others): (Vec<&Dim>, Vec<&Dim>) = known.iter().partition(|d| is_of_symbols(d));
        let ordered = || of_symbols.iter().chain(&others).copied();
        // A dimension with an unknown symbol has no value here.
        let is_named = |d: &&Dim| d.symbols().iter().all(|s| self.symbols.iter().any(|(own, _)| **own == **s));
        let usable = ordered().filter(|d| !d.is_too_long()).filter(|d| d.is_polynomial()).filter(is_named);
        self.dimensions.extend(usable.cloned().collect::<Vec<Dim>>());
        for d in ordered() {
            let form = self.dim(d).map(Poly::tightened);
            self.assume(form);
        }
    }

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

    /// A new atom as a polynomial.
    pub(crate) fn fresh(&mut self, bounds: Bounds) -> Poly {
        let a = self.atom(bounds);
        Poly::variable(a)
    }

    /// The number of the next atom.
    pub(crate) fn next(&self) -> Atom {
        u32::try_from(self.atoms.len()).unwrap_or(u32::MAX)
    }

    /// Are all atoms of a polynomial older than `than`?
    pub(crate) fn is_older(&self, p: &Poly, than: Atom) -> bool {
        p.latest().is_none_or(|a| *a < than)
    }

    /// Do two polynomials share an atom?
    pub(crate) fn has_atom_of(&self, p: &Poly, other: &Poly) -> bool {
        // Rounded terms contain the symbols inside them.
        let wanted = other.variables();
        let inside = |f: &Factor| f.inner().iter().any(|d| d.symbols().iter().any(|s| self.is_symbol(s, &wanted)));
        p.variables()
            .iter()
            .any(|a| wanted.contains(a) || self.quotients.iter().any(|(f, atom)| atom == a && inside(f)))
    }

    fn is_symbol(&self, name: &str, atoms: &BTreeSet<Atom>) -> bool {
        self.symbols.iter().any(|(own, atom)| own == name && atoms.contains(atom))
    }

    /// The factor of dimensions that an atom stands for, if any.
    fn as_factor(&self, a: Atom) -> Option<Factor> {
        let named = self.symbols.iter().find(|(_, own)| *own == a).map(|(s, _)| Factor::Symbol(s.as_str().into()));
        named.or_else(|| self.quotients.iter().find(|(_, own)| *own == a).map(|(f, _)| f.clone()))
    }

    /// A dimension as a polynomial in atoms; `None` if it is too long or has an unknown symbol.
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

    /// The atom for a rounded quotient, one that does not divide out, a `min` or a `max`.
    fn opaque(&mut self, f: &Factor) -> Option<Atom> {
        if let Some((_, atom)) = self.quotients.iter().find(|(known, _)| known == f) {
            return Some(*atom);
        }
        if self.open.contains(f) {
            return None;
        }
        let mut bounds = Bounds { natural: f.is_provably_nonnegative(), dimension: true, ..Bounds::default() };
        // Dividend and divisor of a rounded quotient, if the divisor is not a number.
        let mut divided = None;
        match f {
            Factor::Symbol(_) => return None,
            // Bounded from both sides if the divisor is a positive number.
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
                } else {
                    divided = self.dim(b).map(|b| (p.clone(), b)).filter(|_| self.positive_divisors);
                    if a.is_provably_nonnegative() || self.positive_divisors && bounds.natural {
                        bounds.upper.push((1, p));
                    }
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
        // A lower bound may contain rounded terms for which this one is a lower bound.
        let found = if self.spend(self.dimensions.len()) { self.lower_bounds(f) } else { Vec::new() };
        self.open.push(f.clone());
        for least in found {
            let more = self.dim(&least).and_then(|least| Some((self.slack_above(&bounds, &least)?, least)));
            if let Some((more, least)) = more {
                bounds.natural |= self.proves(&least, []);
                bounds.lower.push((1, least.clone()));
                bounds.least.push((least, more));
            }
        }
        self.open.pop();
        let atom = self.atom(bounds);
        self.quotients.push((f.clone(), atom));
        if let Some((a, b)) = divided {
            // `b >= 1`, and the remainder is in `0..b`.
            let last = b.sub(&Poly::int(1))?;
            let remainder = product(&b, &Poly::variable(atom)).and_then(|multiple| a.sub(&multiple));
            let below = remainder.as_ref().and_then(|remainder| last.sub(remainder));
            self.assume([Some(last), remainder, below].into_iter().flatten().map(Poly::tightened));
        }
        Some(atom)
    }

    /// Lower bounds of a rounded quotient, `min` or `max` by the global assumptions, such that each
    /// term of the slack is non-negative. Where `S >= K + 3`, substituting `S = K + 3 + R` turns
    /// `ceil_div(S + K, 2)` into `K + 2 + floor_div(R, 2)`, so `K + 2` is a lower bound.
    fn lower_bounds(&self, f: &Factor) -> Vec<Dim> {
        if self.open.len() >= MAX_OPEN {
            return Vec::new();
        }
        let whole = Dim::factor(f.clone());
        let mut found: Vec<Dim> = Vec::new();
        // Each symbol is substituted by a lower bound plus its slack.
        let mut replaced: Vec<(Arc<str>, Dim)> = Vec::new();
        let mut now = whole.clone();
        for fact in &self.dimensions {
            if found.len() == MAX_LEAST {
                break;
            }
            // An assumption may bound the term itself.
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
            // The slack: a single rounded term that is non-negative.
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
            // `A/2` is a lower bound of `min((A+3)/2, (A+B)/2)`, but not an integer for odd `A`,
            // and the slack must be one.
            found.extend(least.filter(|d| d.is_polynomial() && !d.is_too_long() && !found.contains(d)));
        }
        found
    }

    /// An atom for the slack of an atom with these bounds above a lower bound.
    fn slack_above(&mut self, bounds: &Bounds, least: &Poly) -> Option<Atom> {
        let beyond = |(c, p): &(i128, Poly)| Some((*c, p.combine(1, least, c.checked_neg()?)?));
        let one_of = bounds.one_of.iter().map(|p| p.sub(least)).collect::<Option<_>>()?;
        let lower = bounds.lower.iter().map(beyond).collect::<Option<_>>()?;
        let upper = bounds.upper.iter().map(beyond).collect::<Option<_>>()?;
        Some(self.atom(Bounds { natural: true, dimension: true, lower, upper, one_of, ..Bounds::default() }))
    }

    /// Is a monomial non-negative because its atoms are?
    fn natural(&self, m: &AtomMonomial) -> bool {
        let natural = |a: &Atom| self.atoms.get(*a as usize).is_some_and(|b| b.natural);
        m.factors().iter().all(|(a, e)| e % 2 == 0 || natural(a))
    }

    /// Is each term non-negative?
    pub(crate) fn plain(&self, p: &Poly) -> bool {
        p.terms().iter().all(|(m, c)| *c >= 0 && self.natural(m))
    }

    /// Is each term at most 0?
    fn plainly_below(&self, p: &Poly) -> bool {
        p.terms().iter().all(|(m, c)| *c <= 0 && self.natural(m))
    }

    /// Is it computed from dimensions alone?
    fn is_of_dimensions(&self, p: &Poly) -> bool {
        p.terms()
            .iter()
            .flat_map(|(m, _)| m.variables())
            .all(|a| self.atoms.get(*a as usize).is_some_and(|b| b.dimension))
    }

    /// Is `p >= 0` under these facts and the global assumptions?
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

    /// Is `p >= 0` under the global assumptions? After [`Prover::proves`] it tries multiples of
    /// facts of any degree.
    pub(crate) fn proves_everywhere(&mut self, p: &Poly) -> bool {
        self.proves(p, []) || self.with_known(|own, facts| own.is_combined(std::slice::from_ref(p), facts))
    }

    /// Do the global assumptions contradict each other? Then Fourier-Motzkin elimination of all
    /// atoms leaves a negative number, or the negation of an assumption follows from the others.
    pub(crate) fn is_contradictory(&mut self) -> bool {
        self.with_known(|own, facts| {
            let together = own.together(&BTreeSet::new(), &facts);
            // The latest assumption comes first: those before it were checked when they were added.
            let opposite = |f: &&Poly| Poly::int(-1).sub(f);
            let opposites: Vec<Poly> = facts.iter().rev().filter_map(opposite).collect();
            together.iter().any(|f| f.as_int().is_some_and(|n| n < 0)) || own.is_combined(&opposites, facts)
        })
    }

    /// Calls `f` with the global assumptions that are not trivial.
    fn with_known(&mut self, f: impl FnOnce(&mut Prover, Vec<&Poly>) -> bool) -> bool {
        let known = std::mem::take(&mut self.known);
        let facts: Vec<&Poly> = known.iter().filter(|fact| !self.plain(fact)).collect();
        let found = f(self, facts);
        self.known = known;
        found
    }

    /// Bounds a non-negative atom by `max(p / c, 0)`.
    pub(crate) fn limit(&mut self, a: Atom, c: i128, p: Poly) {
        // Cached bounds may be weaker than the new ones.
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

/// `a * b`, if it has few terms.
pub(crate) fn product(a: &AtomPoly, b: &AtomPoly) -> Option<AtomPoly> {
    let few = a.terms().len().saturating_mul(b.terms().len()) <= MAX_PRODUCTS;
    if few || a.as_int().is_some() || b.as_int().is_some() { a.mul(b) } else { None }
}

#[cfg(test)]
mod tests;
