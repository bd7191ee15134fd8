//! Polynomials in symbols: steps of a proof that need no search.
//!
//! In: a polynomial and the facts in force. Out: whether it is non-negative once each symbol is
//! replaced by its numeric lower bound plus a slack; combinations of facts from which other symbols
//! are eliminated.

use std::collections::{BTreeMap, BTreeSet};

use super::{Atom, Poly, Prover, product};

/// The maximum number of combined facts.
const MAX_TOGETHER: usize = 64;

impl Prover {
    /// Is each term non-negative after `x = number + slack` for every symbol with a numeric lower
    /// bound? Where `S >= 3` and `T >= 2`, `S*T*T - 2*T*T - T - 1` is `(s+3)*(t+2)*(t+2) -
    /// 2*(t+2)*(t+2) - (t+2) - 1`, which has no negative term.
    pub(super) fn is_above_numbers<'a>(&mut self, p: &Poly, facts: impl IntoIterator<Item = &'a Poly>) -> bool {
        let mut least: BTreeMap<Atom, i128> = BTreeMap::new();
        for fact in facts {
            // `k*x - n >= 0`
            let [(one, n), (m, k)] = fact.terms() else { continue };
            let ([(x, 1)], true) = (m.factors(), one.is_one()) else { continue };
            let Some(n) = n.checked_neg().filter(|n| *n > 0 && *k > 0) else { continue };
            let number = (n - 1) / k + 1;
            least.entry(*x).and_modify(|own| *own = number.max(*own)).or_insert(number);
        }
        let mut form = p.clone();
        for x in p.variables() {
            if let Some(number) = least.get(&x) {
                let Some(next) = self.shifted(&form, x, *number) else { return false };
                form = next;
            }
        }
        form != *p && self.plain(&form)
    }

    /// The numerator of a polynomial with `x + number` for `x`.
    fn shifted(&self, p: &Poly, x: Atom, number: i128) -> Option<Poly> {
        // The coefficients of the powers of `x`, then Horner's rule.
        let (mut coefficients, mut rest) = (Vec::new(), p.clone());
        while !rest.terms().is_empty() {
            let (higher, own) = rest.split_once(&x)?;
            coefficients.push(own);
            rest = higher;
        }
        let by = Poly::variable(x).add(&Poly::int(number))?;
        let mut sum = Poly::int(0);
        for own in coefficients.iter().rev() {
            sum = product(&sum, &by)?.add(own)?;
        }
        Some(sum)
    }

    /// Combinations of facts about these symbols alone: Fourier-Motzkin elimination of all other
    /// atoms, each between a fact that bounds it below and one that bounds it above. `N - 4 >= 0`
    /// and `S + 3 - N >= 0` imply `S - 1 >= 0`. The bounds of a rounded term are facts too.
    pub(super) fn together(&mut self, symbols: &BTreeSet<Atom>, facts: &[&Poly]) -> Vec<Poly> {
        let mut now: Vec<Poly> = facts.iter().copied().filter(|f| self.is_of_dimensions(f)).cloned().collect();
        let mut others: BTreeSet<Atom> = now.iter().flat_map(|f| f.variables()).collect();
        let mut rounded: Vec<Atom> = others.iter().copied().filter(|x| *x >= self.first).collect();
        while let Some(x) = rounded.pop() {
            let own = Poly::variable(x);
            let Some(bounds) = self.atoms.get(x as usize).cloned() else { continue };
            let upper = bounds.upper.iter().map(|(c, p)| p.combine(1, &own, c.checked_neg()?));
            let lower = bounds.lower.iter().map(|(c, p)| own.combine(*c, p, -1));
            for fact in upper.chain(lower).flatten().filter(|f| self.is_of_dimensions(f)).map(Poly::tightened) {
                let more: Vec<Atom> = fact.variables().into_iter().filter(|y| others.insert(*y)).collect();
                rounded.extend(more.into_iter().filter(|y| *y >= self.first));
                now.push(fact);
            }
        }
        others.retain(|x| !symbols.contains(x));
        let mut made = 0;
        // The newest first: its bounds are older.
        for x in others.into_iter().rev() {
            let (with, without): (Vec<Poly>, Vec<Poly>) = now.into_iter().partition(|f| f.variables().contains(&x));
            now = without;
            let (mut lower, mut upper) = (Vec::new(), Vec::new());
            if self.atoms.get(x as usize).is_some_and(|b| b.natural) {
                lower.push((Poly::int(1), Poly::int(0)));
            }
            for fact in with {
                // `a*x + b` with a non-negative or a non-positive `a`.
                let Some((a, b)) = fact.split(&x) else { continue };
                if self.plain(&a) {
                    lower.push((a, b));
                } else if let Some(a) = a.scale(-1).filter(|a| self.plain(a)) {
                    upper.push((a, b));
                }
            }
            for ((a, b), (c, d)) in lower.iter().flat_map(|l| upper.iter().map(move |u| (l, u))) {
                let both = product(c, b).and_then(|cb| cb.add(&product(a, d)?)).map(Poly::tightened);
                if let Some(both) = both.filter(|both| !self.plain(both) && !now.contains(both)) {
                    now.push(both);
                    made += 1;
                }
                if made == MAX_TOGETHER {
                    return now;
                }
            }
        }
        now
    }
}
