//! The search for a proof that a polynomial is non-negative.
//!
//! In: a polynomial and the facts in force. Out: was a proof found within the limits?
//!
//! * Atoms are eliminated one by one, newest first, as in Fourier-Motzkin elimination: an atom with
//!   a non-negative coefficient is replaced by a lower bound, one with a non-positive coefficient
//!   by an upper bound, and all bounds are tried. An atom that equals one of several polynomials (a
//!   `min`, a block argument) is also split into cases. Bounds are polynomials in older atoms, so
//!   this terminates.
//! * A common monomial factor of all terms is removed: the polynomial is 0 where the factor is 0,
//!   so elsewhere its atoms may be assumed to be at least 1.
//! * A rounded term is rewritten exactly as `lower bound + slack`, with `slack >= 0`: for `f = 1 +
//!   g`, `(f - 1)^2` becomes `g^2`.
//! * A negative term is cancelled by a multiple of a fact that contains it: `c*d - a*b >= 0`
//!   follows from `b*(c - a) >= 0` and `c*(d - b) >= 0`. A polynomial that a fact divides is
//!   divided by it.
//! * In a polynomial in symbols each symbol is replaced by its numeric lower bound plus a slack,
//!   and the polynomial is compared with combinations of facts (`symbols`).
//!
//! Each step is an implication, so the prover is sound. It is not complete.

use std::collections::{BTreeMap, BTreeSet};

use super::{Atom, AtomMonomial, Bounds, Poly, Prover, product};

/// Steps of one proof.
const MAX_STEPS: u32 = 2000;
/// Nesting depth of steps.
const DEPTH: u32 = 48;
/// Steps of one proof spent on signs of coefficients, and those for one sign.
const SIGNS: u32 = 1000;
const SIGN: u32 = 100;
/// Cancellation steps of one proof, those for one polynomial, and their nesting depth.
const COVERS: u32 = 1500;
const COVERS_OF_FORM: u32 = 200;
const COVER: u32 = 6;
/// Cancellation steps that may raise the degree, over all polynomials of one question.
const COVERS_OF_ANY_DEGREE: u32 = 400;
/// The depth that one cancellation costs.
const CANCEL: u32 = 12;
/// Attempts to use a fact in one proof, and the attempts that one exact division costs. Real
/// programs need a few hundred.
const TRIES: u32 = 10_000;
const DIVISION: u32 = 10;
/// Attempts in all proofs of a body, and attempts of each further proof once these are used up.
const ALL_TRIES: u32 = 400_000;
const FEW_TRIES: u32 = 500;

/// The state of one search: facts, caches and remaining budgets.
struct Search<'a> {
    facts: Vec<&'a Poly>,
    /// Facts that hold in the current case of a case split.
    chosen: Vec<Poly>,
    /// Polynomials that were not proved, with the case and the remaining depth.
    failed: BTreeMap<(Vec<Poly>, Poly), u32>,
    /// Known signs of coefficients: non-negative (`true`), non-positive (`false`), or not found.
    signs: BTreeMap<(Vec<Poly>, Poly), Option<bool>>,
    /// Polynomials whose negative terms could not be cancelled, with the remaining depth.
    uncovered: BTreeMap<Poly, u32>,
    /// Combinations of facts about each set of symbols.
    together: BTreeMap<BTreeSet<Atom>, Vec<Poly>>,
    /// Remaining steps: of the search, for signs, and for cancellation.
    left: u32,
    signing: u32,
    covers: u32,
    /// May a cancellation raise the degree?
    any_degree: bool,
    /// Remaining attempts to use a fact.
    tries: u32,
}

impl<'a> Search<'a> {
    fn new(facts: Vec<&'a Poly>, tries: u32) -> Search<'a> {
        Search {
            facts,
            chosen: Vec::new(),
            failed: BTreeMap::new(),
            signs: BTreeMap::new(),
            uncovered: BTreeMap::new(),
            together: BTreeMap::new(),
            left: MAX_STEPS,
            signing: SIGNS,
            covers: COVERS,
            any_degree: false,
            tries,
        }
    }

    /// Takes attempts from the budget; `false` when it is used up.
    fn tries(&mut self, many: u32) -> bool {
        self.tries = self.tries.saturating_sub(many);
        self.tries > 0
    }
}

impl Prover {
    /// Is `p >= 0` under these facts?
    pub(super) fn follows(&mut self, p: &Poly, facts: Vec<&Poly>) -> bool {
        // A contradiction: this code is never reached.
        if facts.iter().any(|f| f.as_int().is_some_and(|n| n < 0)) {
            return true;
        }
        if !self.spend(facts.len()) {
            return false;
        }
        // One fact suffices.
        if facts.iter().any(|f| p.sub(f).is_some_and(|rest| self.plain(&rest))) {
            return true;
        }
        let tries = if self.tried < ALL_TRIES { TRIES } else { FEW_TRIES };
        let mut search = Search::new(facts, tries);
        let found = self.search(p, &mut search, DEPTH);
        self.tried = self.tried.saturating_add(tries - search.tries);
        found || contradict(&search.facts)
    }

    /// Is `p >= 0`, within the remaining budgets?
    fn search(&mut self, p: &Poly, s: &mut Search<'_>, depth: u32) -> bool {
        // For integers `256 - 2*x >= 0` and `128 - x >= 0` are equivalent, and rounding the latter
        // loses less.
        let p = &if p.is_whole() { p.clone().tightened() } else { p.clone() };
        if self.plain(p) {
            return true;
        }
        let Some(x) = p.latest().copied() else { return false };
        let key = (s.chosen.clone(), p.clone());
        if depth == 0 || s.left == 0 || s.tries == 0 || s.failed.get(&key).is_some_and(|deep| depth <= *deep) {
            return false;
        }
        s.left -= 1;
        if self.without_content(p, s, depth) == Some(true) {
            return true;
        }
        let found = if x < self.first { self.cancel(p, s, depth) } else { self.eliminate(p, x, s, depth) };
        if !found {
            s.failed.insert(key, depth);
        }
        found
    }

    /// Removes a common monomial factor. The polynomial is 0 where an atom of the factor is 0, so
    /// each of them may be assumed to be at least 1.
    fn without_content(&mut self, p: &Poly, s: &mut Search<'_>, depth: u32) -> Option<bool> {
        let (first, others) = p.terms().split_first().filter(|(_, others)| !others.is_empty())?;
        let natural = |a: &Atom| self.atoms.get(*a as usize).is_some_and(|b| b.natural);
        let common = others.iter().fold(first.0.clone(), |common, (m, _)| common.common(m));
        let common: AtomMonomial = common.factors().iter().filter(|(a, _)| natural(a)).copied().collect();
        if common.is_one() {
            return None;
        }
        let kept = s.chosen.len();
        for a in common.variables() {
            let present = Poly::variable(*a).sub(&Poly::int(1))?;
            if !s.chosen.contains(&present) {
                s.chosen.push(present);
            }
        }
        let found = p.mul_monomial(&common.inverse()).is_some_and(|rest| self.search(&rest, s, depth - 1));
        s.chosen.truncate(kept);
        Some(found)
    }

    /// The sign of a coefficient: non-negative (`true`), non-positive (`false`) or unknown. `T - 1`
    /// needs a fact.
    fn sign(&mut self, a: &Poly, s: &mut Search<'_>, depth: u32) -> Option<bool> {
        if self.plain(a) {
            return Some(true);
        }
        if self.plainly_below(a) {
            return Some(false);
        }
        if !self.is_of_dimensions(a) {
            return None;
        }
        let key = (s.chosen.clone(), a.clone());
        if let Some(known) = s.signs.get(&key) {
            return *known;
        }
        let left = s.left;
        let mut found = None;
        for (sign, by) in [(true, 1), (false, -1)] {
            let mine = left.min(SIGN).min(s.signing);
            s.left = mine;
            let of = a.scale(by);
            if found.is_none() && of.is_some_and(|a| self.search(&a, s, (CANCEL + 1).min(depth - 1))) {
                found = Some(sign);
            }
            s.signing = s.signing.saturating_sub(mine - s.left);
        }
        s.left = left;
        // Near the depth limit a failure is not cached: with more steps, a sign might be found.
        if found.is_some() || depth > CANCEL + 1 {
            s.signs.insert(key, found);
        }
        found
    }

    /// Replaces the newest atom of a polynomial by its bounds; one factor of a power.
    fn eliminate(&mut self, p: &Poly, x: Atom, s: &mut Search<'_>, depth: u32) -> bool {
        let Some((a, b)) = p.split_once(&x) else { return false };
        let Some(bounds) = self.atoms.get(x as usize).cloned() else { return false };
        let sign = self.sign(&a, s, depth);
        let (up, down) = (sign == Some(true), sign == Some(false));
        let limits = if up {
            &bounds.lower[..]
        } else if down {
            &bounds.upper[..]
        } else {
            &[]
        };
        // Immediate successes first.
        for (c, limit) in limits {
            if self.replaced(&a, &b, *c, limit).is_some_and(|next| self.plain(&next)) {
                return true;
            }
        }
        if up && bounds.natural && self.sign(&b, s, depth) == Some(true) {
            return true;
        }
        for (c, limit) in limits {
            if let Some(next) = self.replaced(&a, &b, *c, limit)
                && self.search(&next, s, depth - 1)
            {
                return true;
            }
        }
        if up || down {
            // A fact `c*x + rest >= 0` is a bound too.
            for n in 0..s.facts.len() + s.chosen.len() {
                if !s.tries(1) {
                    return false;
                }
                let fact = match n.checked_sub(s.facts.len()) {
                    None => s.facts[n].clone(),
                    Some(n) => s.chosen[n].clone(),
                };
                let Some((c, rest)) = fact.split(&x) else { continue };
                let Some(c) = c.as_int().filter(|c| if up { *c > 0 } else { *c < 0 }) else { continue };
                let Some(c) = c.checked_abs() else { continue };
                let Some(limit) = rest.scale(if up { -1 } else { 1 }) else { continue };
                if rest.latest().is_some_and(|y| *y > x) {
                    continue;
                }
                if let Some(next) = self.replaced(&a, &b, c, &limit)
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
            || bounds.least.iter().any(|(least, more)| self.counted_from(p, x, (least, *more), s, depth))
            || self.is_of_dimensions(p) && (self.is_covered(p, s) || self.multiple(p, s, depth))
    }

    /// Is it non-negative with `lower bound + slack` in place of the atom `x`?
    fn counted_from(
        &mut self,
        p: &Poly,
        x: Atom,
        (least, more): (&Poly, Atom),
        s: &mut Search<'_>,
        depth: u32,
    ) -> bool {
        let Some(form) = Poly::variable(more).add(least) else { return false };
        let mut next = p.clone();
        // Each round lowers the highest power by one.
        while let Some((a, b)) = next.split_once(&x)
            && !a.terms().is_empty()
        {
            let Some(replaced) = product(&a, &form).and_then(|a| a.add(&b)) else { return false };
            next = replaced;
        }
        next.latest().is_none_or(|y| *y < x) && self.search(&next, s, depth - 1)
    }

    /// Is `a*x + b` non-negative in each case of `x`?
    fn each(&mut self, a: &Poly, b: &Poly, bounds: &Bounds, s: &mut Search<'_>, depth: u32) -> bool {
        bounds.one_of.iter().enumerate().all(|(n, form)| {
            let kept = s.chosen.len();
            // In each case of a `min`, that operand is the smallest; in each case of a `max`, the
            // largest.
            for (_, (c, other)) in bounds.upper.iter().enumerate().filter(|(m, _)| *m != n) {
                let less = c.checked_neg().and_then(|c| other.combine(1, form, c));
                s.chosen.extend(less.map(Poly::tightened));
            }
            for (_, (c, other)) in bounds.lower.iter().enumerate().filter(|(m, _)| *m != n) {
                s.chosen.extend(form.combine(*c, other, -1).map(Poly::tightened));
            }
            let found = match self.replaced(a, b, 1, form) {
                Some(next) => self.search(&next, s, depth - 1),
                None => false,
            };
            s.chosen.truncate(kept);
            found
        })
    }

    /// `c * (a*x + b)` with `limit` for `c*x`. An integer greater than -1 is non-negative, so the
    /// multiple of an integer polynomial may be as low as `1 - c`.
    fn replaced(&mut self, a: &Poly, b: &Poly, c: i128, limit: &Poly) -> Option<Poly> {
        let next = product(a, limit)?.combine(1, b, c)?;
        if c > 1 && a.is_whole() && b.is_whole() { next.add(&Poly::int(c - 1)) } else { Some(next) }
    }

    /// Is a polynomial in dimensions the product of a fact, such as `T-1` in `(T-1)*(T-1)`, and a
    /// non-negative quotient?
    fn multiple(&mut self, p: &Poly, s: &mut Search<'_>, depth: u32) -> bool {
        if p.terms().len() < 3 {
            return false;
        }
        for n in 0..s.facts.len() {
            let fact = s.facts[n];
            if fact.terms().len() < 2 || !self.is_of_dimensions(fact) {
                continue;
            }
            if !s.tries(DIVISION) {
                return false;
            }
            // A quotient by a symbol is undefined where the symbol is 0.
            if let Some(rest) = p.exact_div(fact).filter(Poly::has_whole_monomials)
                && self.search(&rest, s, depth.saturating_sub(CANCEL))
            {
                return true;
            }
        }
        false
    }

    /// A polynomial in symbols: compares it with numbers and combined facts, else cancels a
    /// negative term by a fact.
    fn cancel(&mut self, p: &Poly, s: &mut Search<'_>, depth: u32) -> bool {
        if self.is_above_facts(p, s) || self.multiple(p, s, depth) {
            return true;
        }
        let nexts = self.cancelled(p, s, false);
        // Polynomials in symbols alone first.
        let is_of_symbols = |t: &Self, next: &Poly| next.latest().is_none_or(|x| *x < t.first);
        let (first, others): (Vec<Poly>, Vec<Poly>) = nexts.into_iter().partition(|next| is_of_symbols(self, next));
        first.iter().any(|next| self.search(next, s, depth.saturating_sub(CANCEL)))
            || others.iter().any(|next| self.search(next, s, depth.saturating_sub(2 * CANCEL)))
    }

    /// Is a polynomial in symbols at least a combination of facts, or non-negative by the numeric
    /// lower bounds of its symbols?
    fn is_above_facts(&mut self, p: &Poly, s: &mut Search<'_>) -> bool {
        let symbols = p.variables();
        if !s.together.contains_key(&symbols) {
            let pairs = s.facts.len().saturating_mul(s.facts.len());
            if !s.tries(u32::try_from(pairs).unwrap_or(u32::MAX)) {
                return false;
            }
            let together = self.together(&symbols, &s.facts);
            s.together.insert(symbols.clone(), together);
        }
        let together = s.together.get(&symbols).map(Vec::as_slice).unwrap_or_default();
        if !together.iter().all(|f| f.as_int().is_none_or(|n| n >= 0))
            || together.iter().any(|f| p.sub(f).is_some_and(|rest| self.plain(&rest)))
        {
            return true;
        }
        self.is_above_numbers(p, s.facts.iter().copied().chain(&s.chosen).chain(together))
    }

    /// Can all negative terms of a polynomial in dimensions be cancelled by facts and upper bounds
    /// in a few steps?
    fn is_covered(&mut self, p: &Poly, s: &mut Search<'_>) -> bool {
        let left = s.covers;
        s.covers = left.min(COVERS_OF_FORM);
        let mine = s.covers;
        // Iterative deepening: the shortest proof first.
        let found = (1..=COVER).any(|few| self.covered(p, s, few));
        s.covers = left - (mine - s.covers);
        found
    }

    /// Is one of these polynomials a sum of non-negative multiples of facts and of non-negative
    /// terms? A certificate like Handelman's (*Representing polynomials by positive linear
    /// functions on compact convex polyhedra*, 1988), except that facts are multiplied by monomials
    /// only.
    pub(super) fn is_combined(&mut self, forms: &[Poly], facts: Vec<&Poly>) -> bool {
        let mut s = Search { any_degree: true, covers: COVERS_OF_ANY_DEGREE, ..Search::new(facts, TRIES) };
        forms.iter().any(|p| (1..=COVER).any(|few| self.covered(p, &mut s, few)))
    }

    /// As [`Prover::is_covered`], in at most `depth` steps.
    fn covered(&mut self, p: &Poly, s: &mut Search<'_>, depth: u32) -> bool {
        if self.plain(p) {
            return true;
        }
        if depth == 0 || s.covers == 0 || s.tries == 0 || s.uncovered.get(p).is_some_and(|deep| depth <= *deep) {
            return false;
        }
        s.covers -= 1;
        let nexts = self.cancelled(p, s, true);
        let found = nexts.iter().any(|next| self.covered(next, s, depth - 1));
        if !found {
            s.uncovered.insert(p.clone(), depth);
        }
        found
    }

    /// Cancels a term that may be negative by a multiple of a fact, or of a bound of one of its
    /// atoms, in all possible ways. If one of the results is non-negative, so is the polynomial.
    fn cancelled(&mut self, p: &Poly, s: &mut Search<'_>, bounds: bool) -> Vec<Poly> {
        // The highest degree first: its replacement often has a lower degree.
        let negative = p.terms().iter().filter(|(_, c)| *c < 0);
        let of_any_sign = || p.terms().iter().find(|(m, _)| !self.natural(m));
        let Some((m, c)) = negative.max_by_key(|(m, _)| m.degree()).or_else(of_any_sign) else { return Vec::new() };
        let positive = p.terms().iter().filter(|(_, c)| *c > 0).map(|(m, _)| m.degree()).max();
        let most = if s.any_degree { i32::MAX } else { positive.unwrap_or(0).max(m.degree() - 1) };
        // The denominator does not change the sign.
        let p = p.numerator();
        let mut out = Vec::new();
        if !s.tries(u32::try_from(s.facts.len() + s.chosen.len()).unwrap_or(u32::MAX)) {
            return out;
        }
        let facts = s.facts.iter().copied().chain(&s.chosen);
        facts.for_each(|fact| self.cancel_by(&p, (m, *c), (fact, most), &mut out));
        for x in m.variables().filter(|_| bounds) {
            let own = Poly::variable(*x);
            // The fact `limit - c_x * x >= 0`, or its negation for a lower bound.
            let (side, limits) = match self.atoms.get(*x as usize) {
                Some(b) if *c < 0 => (1, b.upper.clone()),
                Some(b) => (-1, b.lower.clone()),
                None => continue,
            };
            for (c_x, limit) in limits {
                let fact = c_x.checked_mul(-side).and_then(|c| limit.combine(side, &own, c));
                fact.iter().for_each(|fact| self.cancel_by(&p, (m, *c), (fact, most), &mut out));
            }
        }
        out
    }

    /// Cancels a term of a polynomial by a fact. Terms that this adds must not exceed the degree
    /// `most`.
    fn cancel_by(&mut self, p: &Poly, (m, c): (&AtomMonomial, i128), (fact, most): (&Poly, i32), out: &mut Vec<Poly>) {
        for (own, d) in fact.terms().iter().filter(|(_, d)| (*d < 0) == (c < 0)) {
            let Some(by) = m.quotient(own).filter(|by| self.natural(by)) else { continue };
            if !self.is_of_dimensions(fact) {
                return;
            }
            let added = fact.terms().iter().filter(|(_, e)| (*e > 0) == (c < 0)).map(|(m, _)| m.degree()).max();
            if added.is_some_and(|added| by.degree().saturating_add(added) > most) {
                continue;
            }
            let multiple = fact.numerator().mul_monomial(&by);
            out.extend(multiple.and_then(|multiple| p.combine(d.checked_abs()?, &multiple, -c.checked_abs()?)));
        }
    }
}

/// Do two of these facts contradict each other? Then code under these facts is unreachable.
fn contradict(facts: &[&Poly]) -> bool {
    let below = |f: &Poly, g: &Poly| f.add(g).and_then(|sum| sum.as_int()).is_some_and(|n| n < 0);
    facts.iter().enumerate().any(|(n, f)| facts.iter().skip(n + 1).any(|g| below(f, g)))
}
