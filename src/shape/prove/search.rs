//! The search for a proof that a form is at least 0.
//!
//! In: a form, and the facts that hold. Out: was a proof found in so many steps?
//!
//! * As in Fourier-Motzkin elimination, atoms are eliminated one by one, the newest first. Where its coefficient is at least 0 an atom is
//!   replaced by a lower bound, where it is at most 0 by an upper one, and of several bounds each is tried. What is one of several forms (a
//!   `min`, or what a block is given) must be right for each of them, unless it is bounded by any of them. As bounds are forms of earlier
//!   atoms, this ends.
//! * What all terms have in common is left out: a product is at least 0 where it is 0, and where its factors are at least 1.
//! * What is rounded is replaced by what it is more than something that it is at least, exactly: of `f = 1 + g`, the square of `f - 1` is that
//!   of `g`, whose terms are all at least 0.
//! * A negative term is cancelled by a multiple of a fact that has it too: `c*d - a*b` is at least 0 where `b*(c - a)` and `c*(d - b)` are.
//!   What is a multiple of a fact is divided by it.
//! * A form of symbols is counted from the numbers that these are at least, and compared with what facts say together (`symbols`).
//!
//! Each step is an implication: the prover is sound, but not complete.

use std::collections::{BTreeMap, BTreeSet};

use super::{Atom, AtomMonomial, Bounds, Poly, Prover, product};

/// Steps for one proof.
const STEPS: u32 = 2000;
/// Nesting of steps.
const DEPTH: u32 = 48;
/// Steps for one proof that find signs of coefficients, and for one sign.
const SIGNS: u32 = 1000;
const SIGN: u32 = 100;
/// Steps for one proof that cover a negative term, for one form of it, and how many in a row.
const COVERS: u32 = 1500;
const COVERS_OF_FORM: u32 = 200;
const COVER: u32 = 6;
/// What a step that cancels a term by a fact counts in that: there are few in a row.
const CANCEL: u32 = 12;
/// How often facts are tried in one proof, and what an exact division by one counts. Programs need some hundreds.
const TRIES: u32 = 10_000;
const DIVISION: u32 = 10;
/// How often that is in all proofs of a body before those that follow have a few alone.
const ALL_TRIES: u32 = 400_000;
const FEW_TRIES: u32 = 500;

/// What a search knows, and the steps that are left to it.
struct Search<'a> {
    facts: Vec<&'a Poly>,
    /// Facts that hold where one of several forms was chosen.
    chosen: Vec<Poly>,
    /// Forms that were tried in vain with what was chosen, and how deep.
    failed: BTreeMap<(Vec<Poly>, Poly), u32>,
    /// Which coefficients are at least 0, or at most, with what was chosen; `None` where neither was found.
    signs: BTreeMap<(Vec<Poly>, Poly), Option<bool>>,
    /// Forms whose negative terms are not covered, and in how many steps that was tried.
    uncovered: BTreeMap<Poly, u32>,
    /// What the facts say together of some symbols.
    together: BTreeMap<BTreeSet<Atom>, Vec<Poly>>,
    /// Steps that are left; those to find signs, which do not count among them, and those that cover.
    left: u32,
    signing: u32,
    covers: u32,
    /// How often facts may still be tried.
    tries: u32,
}

impl Search<'_> {
    /// May facts be tried so many times more?
    fn tries(&mut self, many: u32) -> bool {
        self.tries = self.tries.saturating_sub(many);
        self.tries > 0
    }
}

impl Prover {
    /// Is `p >= 0` where these facts hold?
    pub(super) fn follows(&mut self, p: &Poly, facts: Vec<&Poly>) -> bool {
        // A number below 0 that is at least 0: this code is never reached.
        if facts.iter().any(|f| f.as_int().is_some_and(|n| n < 0)) {
            return true;
        }
        // What a fact alone says.
        if facts.iter().any(|f| p.sub(f).is_some_and(|rest| self.plain(&rest))) {
            return true;
        }
        let tries = if self.tried < ALL_TRIES { TRIES } else { FEW_TRIES };
        let mut search = Search {
            facts,
            chosen: Vec::new(),
            failed: BTreeMap::new(),
            signs: BTreeMap::new(),
            uncovered: BTreeMap::new(),
            together: BTreeMap::new(),
            left: STEPS,
            signing: SIGNS,
            covers: COVERS,
            tries,
        };
        let found = self.search(p, &mut search, DEPTH);
        self.tried = self.tried.saturating_add(tries - search.tries);
        found || contradict(&search.facts)
    }

    /// The same, in the steps that are left.
    fn search(&mut self, p: &Poly, s: &mut Search<'_>, depth: u32) -> bool {
        // Of integers `256 - 2*x >= 0` says no more and no less than `128 - x >= 0`, where less is lost by rounding.
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

    /// Where all terms have factors in common: is the form at least 0 without them? With them it is 0 where one of them is, so each may be
    /// taken to be at least 1.
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

    /// Is a coefficient at least 0 (`true`) or at most 0 (`false`)? A factor like `T-1` is by a fact.
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
        // What was not found in a few steps may be in more.
        if found.is_some() || depth > CANCEL + 1 {
            s.signs.insert(key, found);
        }
        found
    }

    /// Replaces the last atom of a form by what bounds it; of a power, one factor.
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
        // What is immediate is tried before a search.
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
            // A fact `c*x + rest >= 0` bounds it as well.
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

    /// Is a form at least 0, written in what an atom is more than something that it is at least? The square of `x - 1` is that of what
    /// `x` is more than 1.
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
        // Each time one factor less is left of the highest power.
        while let Some((a, b)) = next.split_once(&x)
            && !a.terms().is_empty()
        {
            let Some(replaced) = product(&a, &form).and_then(|a| a.add(&b)) else { return false };
            next = replaced;
        }
        next.latest().is_none_or(|y| *y < x) && self.search(&next, s, depth - 1)
    }

    /// Is `a*x + b` at least 0 whichever form `x` is?
    fn each(&mut self, a: &Poly, b: &Poly, bounds: &Bounds, s: &mut Search<'_>, depth: u32) -> bool {
        bounds.one_of.iter().enumerate().all(|(n, form)| {
            let kept = s.chosen.len();
            // Of a `min` the form is the smallest of its bounds, of a `max` the largest.
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

    /// `c * (a*x + b)` with `limit` for `c*x`. An integer greater than -1 is at least 0, so of an integer form the multiple
    /// may be down to `1 - c`.
    fn replaced(&mut self, a: &Poly, b: &Poly, c: i128, limit: &Poly) -> Option<Poly> {
        let next = product(a, limit)?.combine(1, b, c)?;
        if c > 1 && a.is_whole() && b.is_whole() { next.add(&Poly::int(c - 1)) } else { Some(next) }
    }

    /// Is a form of dimensions a multiple of a fact, `(T-1)*(T-1)` of `T-1`, by what is at least 0 too?
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
            // Nothing is known of a form that is divided by a symbol where the symbol is 0.
            if let Some(rest) = p.exact_div(fact).filter(Poly::has_whole_monomials)
                && self.search(&rest, s, depth.saturating_sub(CANCEL))
            {
                return true;
            }
        }
        false
    }

    /// A form of symbols alone: is it plain from numbers or from what facts say together? Else cancels a negative term by a fact.
    fn cancel(&mut self, p: &Poly, s: &mut Search<'_>, depth: u32) -> bool {
        if self.is_above_facts(p, s) || self.multiple(p, s, depth) {
            return true;
        }
        let nexts = self.cancelled(p, s, false);
        // Of symbols alone first.
        let is_of_symbols = |t: &Self, next: &Poly| next.latest().is_none_or(|x| *x < t.first);
        let (first, others): (Vec<Poly>, Vec<Poly>) = nexts.into_iter().partition(|next| is_of_symbols(self, next));
        first.iter().any(|next| self.search(next, s, depth.saturating_sub(CANCEL)))
            || others.iter().any(|next| self.search(next, s, depth.saturating_sub(2 * CANCEL)))
    }

    /// Is a form of symbols more than what the facts say together of these, or is it plain from the numbers that they are at least?
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

    /// A form of dimensions alone: is each of its negative terms cancelled by a fact or by the upper bound of a factor, in a few steps?
    fn is_covered(&mut self, p: &Poly, s: &mut Search<'_>) -> bool {
        let left = s.covers;
        s.covers = left.min(COVERS_OF_FORM);
        let mine = s.covers;
        // The shortest way first.
        let found = (1..=COVER).any(|few| self.covered(p, s, few));
        s.covers = left - (mine - s.covers);
        found
    }

    /// The same in so many steps.
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

    /// What is left of a form where a negative term is cancelled by a multiple of a fact, or of an upper bound of one of its
    /// factors: if that is at least 0, so is the form.
    fn cancelled(&mut self, p: &Poly, s: &mut Search<'_>, bounds: bool) -> Vec<Poly> {
        // Of the highest degree: what is put in its place is perhaps of a lower one.
        let negative = p.terms().iter().filter(|(_, c)| *c < 0);
        let Some((m, c)) = negative.max_by_key(|(m, _)| m.degree()) else { return Vec::new() };
        let positive = p.terms().iter().filter(|(_, c)| *c > 0).map(|(m, _)| m.degree()).max();
        let most = positive.unwrap_or(0).max(m.degree() - 1);
        // Divisors do not matter to a sign.
        let p = p.numerator();
        let mut out = Vec::new();
        if !s.tries(u32::try_from(s.facts.len() + s.chosen.len()).unwrap_or(u32::MAX)) {
            return out;
        }
        let facts = s.facts.iter().copied().chain(&s.chosen);
        facts.for_each(|fact| self.cancel_by(&p, (m, *c), (fact, most), &mut out));
        for x in m.variables().filter(|_| bounds) {
            let upper = self.atoms.get(*x as usize).map(|b| b.upper.clone()).unwrap_or_default();
            let own = Poly::variable(*x);
            for (c_x, limit) in upper {
                let fact = c_x.checked_neg().and_then(|c| limit.combine(1, &own, c));
                fact.iter().for_each(|fact| self.cancel_by(&p, (m, *c), (fact, most), &mut out));
            }
        }
        out
    }

    /// Cancels a term of a form by a fact. What of the fact is to be cancelled next is of no higher degree than `most`.
    fn cancel_by(&mut self, p: &Poly, (m, c): (&AtomMonomial, i128), (fact, most): (&Poly, i32), out: &mut Vec<Poly>) {
        for (own, d) in fact.terms().iter().filter(|(_, d)| *d < 0) {
            let Some(by) = m.quotient(own).filter(|by| self.natural(by)) else { continue };
            if !self.is_of_dimensions(fact) {
                return;
            }
            let added = fact.terms().iter().filter(|(_, c)| *c > 0).map(|(m, _)| m.degree()).max();
            if added.is_some_and(|added| by.degree().saturating_add(added) > most) {
                continue;
            }
            let multiple = fact.numerator().mul_monomial(&by);
            out.extend(multiple.and_then(|multiple| p.combine(d.checked_neg()?, &multiple, c)));
        }
    }
}

/// Are two of some forms never both at least 0? Then code where all are is never reached.
fn contradict(facts: &[&Poly]) -> bool {
    let below = |f: &Poly, g: &Poly| f.add(g).and_then(|sum| sum.as_int()).is_some_and(|n| n < 0);
    facts.iter().enumerate().any(|(n, f)| facts.iter().skip(n + 1).any(|g| below(f, g)))
}
