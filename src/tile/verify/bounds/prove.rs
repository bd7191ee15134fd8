//! Proves that forms are at least 0, from bounds of atoms and facts.
//!
//! In: atoms with bounds (`i` of a grid is at least 0, and `64*i` at most `S - 1`), facts (forms that are at least 0 at a
//! place), a form. Out: is the form at least 0 for all values of the atoms that obey them? "No" means: not found.
//!
//! As in Fourier-Motzkin elimination, atoms are eliminated one by one, the newest first. Where its coefficient is at least 0 it is replaced
//! by a lower bound, where it is at most 0 by an upper one, and of several bounds each is tried. What is one of several forms (a `min`, or what a
//! block is given) must be right for each of them, unless it is bounded by any of them. As bounds are forms of earlier atoms, this ends.
//! What is left has symbols alone; a negative term is then cancelled by a multiple of a fact that has it too, and what is a
//! multiple of a fact is divided by it. Each step is an implication: the prover is sound, but not complete.

use std::collections::{BTreeMap, BTreeSet};

use super::poly::{Atom, Mono, ONE, Poly, Table};
use crate::shape::{Dim, Factor, Monomial, Sizes};

/// Steps for one proof.
const STEPS: u32 = 2000;
/// Nesting of steps.
const DEPTH: u32 = 48;
/// What a step that cancels a term by a fact counts in that: there are few in a row.
const CANCEL: u32 = 12;

/// Between what an atom lies.
#[derive(Clone, Debug, Default)]
pub(super) struct Bounds {
    /// Is it at least 0 in any case?
    pub(super) natural: bool,
    /// What it is at most in size, if that is more than 64 bits hold, or a number of rounds.
    pub(super) most: Option<i128>,
    /// `c * x >= p` with `c > 0`.
    pub(super) lower: Vec<(i128, Poly)>,
    /// `c * x <= p` with `c > 0`.
    pub(super) upper: Vec<(i128, Poly)>,
    /// It is one of these, if there are any.
    pub(super) one_of: Vec<Poly>,
}

/// Atoms and what is known of them.
#[derive(Debug)]
pub(super) struct Prover {
    table: Table,
    atoms: Vec<Bounds>,
    symbols: Vec<(String, Atom)>,
    quotients: Vec<(Factor, Atom)>,
    /// Atoms below this number are symbols.
    first: Atom,
    /// What dimensions are at most.
    sizes: Sizes,
    /// What products were found to be at most in size.
    most: BTreeMap<Mono, i128>,
    /// Forms that calls have computed, every step checked, and what they are at most in size.
    computed: BTreeMap<Poly, i128>,
}

/// What a number of 64 bits is at most in size.
const MACHINE: i128 = 1 << 63;

/// The steps that are left to a search.
struct Search<'a> {
    facts: Vec<&'a Poly>,
    /// Facts that hold where one of several forms was chosen.
    chosen: Vec<Poly>,
    /// Forms that were tried in vain, where nothing was chosen.
    failed: BTreeSet<Poly>,
    left: u32,
}

impl Prover {
    /// With these symbols, each at least 0, and what is known of their sizes.
    pub(super) fn new<'a>(symbols: impl IntoIterator<Item = &'a String>, sizes: Sizes) -> Prover {
        let mut p = Prover {
            table: Table::new(),
            atoms: Vec::new(),
            symbols: Vec::new(),
            quotients: Vec::new(),
            first: 0,
            sizes,
            most: BTreeMap::new(),
            computed: BTreeMap::new(),
        };
        for s in symbols {
            let a = p.atom(Bounds { natural: true, ..Bounds::default() });
            p.symbols.push((s.clone(), a));
        }
        p.first = u32::try_from(p.atoms.len()).unwrap_or(u32::MAX);
        p
    }

    /// A new atom.
    pub(super) fn atom(&mut self, mut bounds: Bounds) -> Atom {
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
    pub(super) fn fresh(&mut self, bounds: Bounds) -> Poly {
        let a = self.atom(bounds);
        self.table.atom(a)
    }

    /// The number of the next atom.
    pub(super) fn next(&self) -> Atom {
        u32::try_from(self.atoms.len()).unwrap_or(u32::MAX)
    }

    /// Has a form atoms alone that were there before this one?
    pub(super) fn is_older(&self, p: &Poly, than: Atom) -> bool {
        self.table.latest(p).is_none_or(|a| a < than)
    }

    /// A form as `a * x + b` for an atom.
    pub(super) fn split(&mut self, p: &Poly, x: Atom) -> Option<(Poly, Poly)> {
        self.table.split(p, x)
    }

    /// An atom as a form.
    pub(super) fn of_atom(&mut self, a: Atom) -> Poly {
        self.table.atom(a)
    }

    /// Is a form a single atom?
    pub(super) fn is_atom(&self, p: &Poly) -> bool {
        let single = |m: Mono| matches!(self.table.factors(m), [(_, 1)]);
        p.divisor() == 1 && matches!(p.terms(), [(m, 1)] if single(*m))
    }

    /// Does a form have an atom of another?
    pub(super) fn has_atom_of(&self, p: &Poly, other: &Poly) -> bool {
        let atoms = |p: &Poly| -> BTreeSet<Atom> {
            p.terms().iter().flat_map(|(m, _)| self.table.factors(*m)).map(|(a, _)| *a).collect()
        };
        // What is rounded may have it inside.
        let wanted = atoms(other);
        let inside = |f: &Factor| f.inner().iter().any(|d| d.symbols().iter().any(|s| self.is_symbol(s, &wanted)));
        atoms(p).iter().any(|a| wanted.contains(a) || self.quotients.iter().any(|(f, atom)| atom == a && inside(f)))
    }

    fn is_symbol(&self, name: &str, atoms: &BTreeSet<Atom>) -> bool {
        self.symbols.iter().any(|(own, atom)| own == name && atoms.contains(atom))
    }

    /// A dimension that code computes; every call has checked that it fits.
    pub(super) fn computed(&mut self, d: &Dim) -> Option<Poly> {
        let form = self.dim(d)?;
        self.computed.insert(form.clone(), self.sizes.of(d).min(MACHINE - 1));
        Some(form)
    }

    /// Is a form what a machine computes, not just modulo 2^64?
    pub(super) fn fits(&mut self, p: &Poly) -> bool {
        let machine = |a: Atom| self.atoms.get(a as usize).is_some_and(|b| b.most.is_none());
        self.computed.contains_key(p)
            || self.is_atom(p) && self.table.latest(p).is_some_and(machine)
            || self.most(p) < MACHINE
    }

    /// What a form is at most in size: the sum of what its products are, or what is computed whole and the rest.
    pub(super) fn most(&mut self, p: &Poly) -> i128 {
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
        terms.fold(0, |sum, (m, c)| sum.saturating_add(c.saturating_abs().saturating_mul(self.most_of(*m))))
    }

    /// What a product is at most in size.
    fn most_of(&mut self, m: Mono) -> i128 {
        if let Some(known) = self.most.get(&m) {
            return *known;
        }
        let factors = self.table.factors(m).to_vec();
        let found = match factors.iter().rev().find(|(a, _)| self.as_factor(*a).is_none()) {
            None => {
                let named = factors.iter().filter_map(|(a, e)| Some((self.as_factor(*a)?, *e)));
                self.sizes.product(&Monomial(named.collect()))
            }
            Some((x, e)) => {
                let rest: Vec<(Atom, i32)> = factors.iter().filter(|(a, _)| a != x).copied().collect();
                let rest = self.table.product(rest);
                let own = self.most_of_atom(*x);
                let power = (0..*e).fold(1i128, |product, _| product.saturating_mul(own));
                let mut most = power.saturating_mul(self.most_of(rest));
                let bounds = self.atoms.get(*x as usize).filter(|b| b.natural && *e == 1);
                // What it is at most, times the rest: `S*T` for a row of `S`, times `T`.
                for (c, upper) in bounds.map(|b| b.upper.clone()).unwrap_or_default() {
                    let above = self.table.mul_mono(rest, &upper);
                    most = most.min(self.most(&above) / c);
                }
                most
            }
        };
        self.most.insert(m, found);
        found
    }

    /// What an atom that is no dimension is at most in size.
    fn most_of_atom(&mut self, x: Atom) -> i128 {
        let Some(b) = self.atoms.get(x as usize).cloned() else { return MACHINE };
        let mut most = b.most.unwrap_or(MACHINE);
        let above = b.upper.iter().map(|(c, p)| self.most(p) / c).min();
        let below = b.lower.iter().map(|(c, p)| self.most(p) / c + 1).min();
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
    pub(super) fn dim(&mut self, d: &Dim) -> Option<Poly> {
        if let Some(n) = d.as_const() {
            return Some(Poly::int(i128::from(n)));
        }
        let mut sum = Poly::int(0);
        for (m, r) in d.terms() {
            let mut factors = Vec::new();
            for (f, e) in &m.0 {
                let atom = match f {
                    Factor::Symbol(s) => self.symbols.iter().find(|(name, _)| **name == **s)?.1,
                    Factor::Quotient(..) | Factor::Floor(..) | Factor::Min(_) | Factor::Max(_) => self.opaque(f)?,
                };
                factors.push((atom, *e));
            }
            factors.sort_unstable();
            let product = self.table.product(factors);
            let term = self.table.mul_mono(product, &Poly::int(r.num)).over(r.den)?;
            sum = sum.add(&term)?;
        }
        Some(sum)
    }

    /// A quotient that does not divide out or is rounded, a `min` or `max`.
    fn opaque(&mut self, f: &Factor) -> Option<Atom> {
        if let Some((_, atom)) = self.quotients.iter().find(|(known, _)| known == f) {
            return Some(*atom);
        }
        let mut bounds = Bounds { natural: f.is_provably_nonnegative(), ..Bounds::default() };
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
        let atom = self.atom(bounds);
        self.quotients.push((f.clone(), atom));
        Some(atom)
    }

    /// Product.
    pub(super) fn mul(&mut self, a: &Poly, b: &Poly) -> Option<Poly> {
        self.table.mul(a, b)
    }

    /// Is a product at least 0 by its atoms alone?
    fn natural(&self, m: Mono) -> bool {
        let natural = |a: &Atom| self.atoms.get(*a as usize).is_some_and(|b| b.natural);
        m == ONE || self.table.factors(m).iter().all(|(a, e)| e % 2 == 0 || natural(a))
    }

    /// Is a form at least 0 by its terms alone?
    pub(super) fn plain(&self, p: &Poly) -> bool {
        p.terms().iter().all(|(m, c)| *c >= 0 && self.natural(*m))
    }

    /// Is a form at most 0 by its terms alone?
    fn plainly_below(&self, p: &Poly) -> bool {
        p.terms().iter().all(|(m, c)| *c <= 0 && self.natural(*m))
    }

    /// Is `p >= 0` where these facts hold?
    pub(super) fn proves<'a>(&mut self, p: &Poly, facts: impl IntoIterator<Item = &'a Poly>) -> bool {
        if self.plain(p) {
            return true;
        }
        let facts: Vec<&Poly> = facts.into_iter().collect();
        // A number below 0 that is at least 0: this code is never reached.
        if facts.iter().any(|f| f.as_int().is_some_and(|n| n < 0)) {
            return true;
        }
        let mut search = Search { facts, chosen: Vec::new(), failed: BTreeSet::new(), left: STEPS };
        self.search(p, &mut search, DEPTH)
    }

    fn search(&mut self, p: &Poly, s: &mut Search<'_>, depth: u32) -> bool {
        // Of integers `256 - 2*x >= 0` says no more and no less than `128 - x >= 0`, where less is lost by rounding.
        let p = &if is_whole(p) { p.clone().tightened() } else { p.clone() };
        if self.plain(p) {
            return true;
        }
        let Some(x) = self.table.latest(p) else { return false };
        if depth == 0 || s.left == 0 || s.chosen.is_empty() && s.failed.contains(p) {
            return false;
        }
        s.left -= 1;
        let found = if x < self.first { self.cancel(p, s, depth) } else { self.eliminate(p, x, s, depth) };
        if !found && s.chosen.is_empty() {
            s.failed.insert(p.clone());
        }
        found
    }

    /// Replaces the last atom of a form by what bounds it; of a power, one factor.
    fn eliminate(&mut self, p: &Poly, x: Atom, s: &mut Search<'_>, depth: u32) -> bool {
        let Some((a, b)) = self.table.split_once(p, x) else { return false };
        let Some(bounds) = self.atoms.get(x as usize).cloned() else { return false };
        let (mut up, mut down) = (self.plain(&a), self.plainly_below(&a));
        // A factor like `T-1` has a sign by a fact.
        if !up && !down && self.table.latest(&a).is_some_and(|y| y < self.first) {
            up = self.search(&a, s, CANCEL + 1);
            down = !up && a.scale(-1).is_some_and(|a| self.search(&a, s, CANCEL + 1));
        }
        let limits = if up {
            &bounds.lower[..]
        } else if down {
            &bounds.upper[..]
        } else {
            &[]
        };
        // What is immediate is tried before a search.
        for (c, limit) in limits {
            if self.replaced(&a, &b, *c, limit).is_some_and(|next| self.plain(&next)) {
                return true;
            }
        }
        for (c, limit) in limits {
            if let Some(next) = self.replaced(&a, &b, *c, limit)
                && self.search(&next, s, depth - 1)
            {
                return true;
            }
        }
        if up || down {
            // A fact `c*x + rest >= 0` bounds it as well.
            for n in 0..s.facts.len() + s.chosen.len() {
                let fact = match n.checked_sub(s.facts.len()) {
                    None => s.facts[n].clone(),
                    Some(n) => s.chosen[n].clone(),
                };
                let Some((c, rest)) = self.table.split(&fact, x) else { continue };
                let Some(c) = c.as_int().filter(|c| if up { *c > 0 } else { *c < 0 }) else { continue };
                let Some(limit) = rest.scale(if up { -1 } else { 1 }) else { continue };
                if self.table.latest(&rest).is_some_and(|y| y > x) {
                    continue;
                }
                if let Some(next) = self.replaced(&a, &b, c.abs(), &limit)
                    && self.search(&next, s, depth - 1)
                {
                    return true;
                }
            }
            if up && bounds.natural && self.search(&b, s, depth - 1) {
                return true;
            }
        }
        !bounds.one_of.is_empty() && self.each(&a, &b, &bounds, s, depth)
    }

    /// Is `a*x + b` at least 0 whichever form `x` is?
    fn each(&mut self, a: &Poly, b: &Poly, bounds: &Bounds, s: &mut Search<'_>, depth: u32) -> bool {
        bounds.one_of.iter().enumerate().all(|(n, form)| {
            let kept = s.chosen.len();
            // Of a `min` the form is the smallest of its bounds, of a `max` the largest.
            for (_, other) in bounds.upper.iter().enumerate().filter(|(m, _)| *m != n).map(|(_, o)| o) {
                s.chosen.extend(other.sub(form).map(Poly::tightened));
            }
            for (_, other) in bounds.lower.iter().enumerate().filter(|(m, _)| *m != n).map(|(_, o)| o) {
                s.chosen.extend(form.sub(other).map(Poly::tightened));
            }
            let found = match self.replaced(a, b, 1, form) {
                Some(next) => self.search(&next, s, depth - 1),
                None => false,
            };
            s.chosen.truncate(kept);
            found
        })
    }

    /// `c * (a*x + b)` with `limit` for `c*x`. An integer greater than -1 is at least 0, so of an integer form the multiple
    /// may be down to `1 - c`.
    fn replaced(&mut self, a: &Poly, b: &Poly, c: i128, limit: &Poly) -> Option<Poly> {
        let next = self.mul(a, limit)?.combine(1, b, c)?;
        if c > 1 && is_whole(a) && is_whole(b) { next.add(&Poly::int(c - 1)) } else { Some(next) }
    }

    /// Says of an atom that is at least 0 that it is at most `p / c`, or 0.
    pub(super) fn limit(&mut self, a: Atom, c: i128, p: Poly) {
        let forms = vec![Poly::int(0), p];
        let lower = forms.iter().map(|p| (1, p.clone())).collect();
        let any = Some(i128::MAX);
        let most = self.fresh(Bounds { natural: true, most: any, lower, one_of: forms, ..Bounds::default() });
        if let Some(b) = self.atoms.get_mut(a as usize) {
            b.upper.push((c, most));
        }
    }

    /// A form of symbols alone as a dimension.
    fn as_dim(&self, p: &Poly) -> Option<Dim> {
        let term = |(m, c): &(Mono, i128)| {
            let factors = self.table.factors(*m).iter().map(|(a, e)| {
                let (name, _) = self.symbols.iter().find(|(_, atom)| atom == a)?;
                Some((Factor::Symbol(name.as_str().into()), *e))
            });
            Some(Dim::term(Monomial(factors.collect::<Option<_>>()?), *c))
        };
        let sum = p.terms().iter().try_fold(Dim::zero(), |sum, t| Some(sum.add(&term(t)?)))?;
        sum.div(&Dim::from(i64::try_from(p.divisor()).ok()?))
    }

    /// Is a form of symbols alone a multiple of a fact, `(T-1)*(T-1)` of `T-1`, by what is at least 0 too?
    fn multiple(&mut self, p: &Poly, s: &mut Search<'_>, depth: u32) -> bool {
        let Some(whole) = self.as_dim(p).filter(|d| d.terms().count() > 2) else { return false };
        for n in 0..s.facts.len() {
            let fact = s.facts[n];
            if fact.terms().len() < 2 || self.table.latest(fact).is_none_or(|x| x >= self.first) {
                continue;
            }
            let rest = self.as_dim(fact).and_then(|fact| whole.multiple_of(&fact));
            // Of what is divided by a symbol nothing is known where the symbol is 0.
            let rest = rest.filter(|rest| rest.terms().all(|(m, _)| m.0.values().all(|e| *e > 0)));
            if let Some(rest) = rest.and_then(|rest| self.dim(&rest))
                && self.search(&rest, s, depth.saturating_sub(CANCEL))
            {
                return true;
            }
        }
        false
    }

    /// A form of symbols alone: cancels its last negative term by a fact.
    fn cancel(&mut self, p: &Poly, s: &mut Search<'_>, depth: u32) -> bool {
        let Some((m, c)) = p.terms().iter().rev().find(|(_, c)| *c < 0).copied() else { return false };
        if self.multiple(p, s, depth) {
            return true;
        }
        for n in 0..s.facts.len() + s.chosen.len() {
            let fact = match n.checked_sub(s.facts.len()) {
                None => s.facts[n].clone(),
                Some(n) => s.chosen[n].clone(),
            };
            if self.table.latest(&fact).is_none_or(|x| x >= self.first) {
                continue;
            }
            for (own, d) in fact.terms().iter().filter(|(_, d)| *d < 0) {
                let Some(by) = self.table.quotient(m, *own).filter(|by| self.natural(*by)) else { continue };
                let multiple = self.table.mul_mono(by, &fact);
                // Divisors do not matter to a sign.
                let (Some(p), Some(multiple)) = (numerator(p), numerator(&multiple)) else { continue };
                if let Some(next) = p.combine(-d, &multiple, c)
                    && self.search(&next, s, depth.saturating_sub(CANCEL))
                {
                    return true;
                }
            }
        }
        false
    }
}

/// Are the values of a form integers?
fn is_whole(p: &Poly) -> bool {
    p.divisor() == 1 && p.has_whole_products()
}

/// The form without its divisor.
fn numerator(p: &Poly) -> Option<Poly> {
    p.scale(p.divisor())
}
