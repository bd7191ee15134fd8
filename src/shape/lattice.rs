//! Proves that a dimension is an integer, from others that are.
//!
//! In: a dimension with divisors (`D/6`, `(D-1)*(D+1)/4`), and dimensions that facts state to be
//! integers (`D/2` and `D/3`, `(D-1)/2`). Out: whether the first must be an integer too.
//!
//! Integers are closed under sums and products, so a polynomial in symbols and generators with
//! integer coefficients is an integer. Products of a few generators, times symbols, span a lattice
//! over the monomials that matter: their integer combinations. The question is whether the
//! dimension lies in the lattice, whose basis is kept in Hermite normal form (the first non-zero
//! entry of each vector lies beyond that of the previous one; the entries above it are not
//! reduced). So `D/H` and `H/G` imply `D/G` (their product), `D/2` and `D/3` imply `D/6` (their
//! difference), and `(D-1)/2` implies `(D+1)/2` (add 1). If a non-integer number lies in the
//! lattice, the facts contradict each other.
//!
//! Sound, but limited: a dimension for which no combination is found within the limits counts as
//! unproved.

use std::collections::{BTreeMap, BTreeSet};

use super::dim::{Dim, Factor, Monomial};
use super::poly::gcd;

/// The maximum number of generators that are multiplied with each other.
const MAX_GENERATORS: usize = 12;
/// The maximum number of generators in one product.
const MAX_DEGREE: usize = 3;
/// The maximum numbers of products, columns and rows of the lattice.
const MAX_PRODUCTS: usize = 40;
const MAX_COLUMNS: usize = 64;
const MAX_ROWS: usize = 48;
/// Larger numbers are not computed with.
const MAX_COEFFICIENT: i128 = 1 << 60;

/// Are all exponents positive, and all factors integers? An opaque quotient may be a fraction.
fn is_whole(m: &Monomial) -> bool {
    m.factors().iter().all(|(f, e)| *e > 0 && !matches!(f, Factor::Quotient(..)))
}

/// Integer combinations of vectors, in Hermite normal form except that entries above a pivot are
/// not reduced.
struct Lattice {
    /// The monomials, greatest first; the monomial 1 is last.
    rows: Vec<Monomial>,
    /// The common denominator: all entries are multiplied by it.
    scale: i128,
    /// For each row, the basis vector whose first non-zero entry is in that row.
    basis: Vec<Option<Vec<i128>>>,
}

impl Lattice {
    /// The lattice spanned by products of `generators` over the monomials that matter to `wanted`.
    fn new(wanted: &Dim, generators: &[Dim]) -> Option<Lattice> {
        let products = products(generators);
        let mut rows: BTreeSet<Monomial> = wanted.terms().iter().map(|(m, _)| m.clone()).collect();
        rows.insert(Monomial::default());
        let mut columns: Vec<Dim> = Vec::new();
        for _ in 0..2 {
            let now: Vec<Monomial> = rows.iter().cloned().collect();
            for p in &products {
                for (mp, _) in p.terms() {
                    for target in &now {
                        let Some(by) = target.over(mp) else { continue };
                        if !is_whole(&by) || columns.len() >= MAX_COLUMNS || rows.len() >= MAX_ROWS {
                            continue;
                        }
                        let column = p.mul(&Dim::term(by, 1));
                        if !column.is_too_long() && !columns.contains(&column) {
                            rows.extend(column.terms().iter().map(|(m, _)| m.clone()));
                            columns.push(column);
                        }
                    }
                }
            }
        }
        let mut scale: i128 = 1;
        for den in columns.iter().chain([wanted]).map(Dim::denominator) {
            scale = scale.checked_mul(den / gcd(scale, den)).filter(|s| *s < MAX_COEFFICIENT)?;
        }
        let rows: Vec<Monomial> = rows.into_iter().rev().collect();
        let mut lattice = Lattice { basis: vec![None; rows.len()], rows, scale };
        for at in 0..lattice.rows.len() {
            if lattice.rows.get(at).is_some_and(is_whole) {
                let mut unit = vec![0; lattice.rows.len()];
                if let Some(slot) = unit.get_mut(at) {
                    *slot = scale;
                }
                lattice.insert(unit);
            }
        }
        for column in &columns {
            if let Some(v) = lattice.vector(column) {
                lattice.insert(v);
            }
        }
        Some(lattice)
    }

    /// A dimension as a vector; `None` if a number is too large or a monomial has no row.
    fn vector(&self, d: &Dim) -> Option<Vec<i128>> {
        let terms: BTreeMap<&Monomial, i128> = d.terms().iter().map(|(m, c)| (m, *c)).collect();
        let v: Vec<i128> = self
            .rows
            .iter()
            .map(|m| match terms.get(m) {
                None => Some(0),
                Some(c) if c.checked_abs()? < MAX_COEFFICIENT => c.checked_mul(self.scale / d.denominator()),
                Some(_) => None,
            })
            .collect::<Option<_>>()?;
        terms.keys().all(|m| self.rows.contains(m)).then_some(v)
    }

    /// Adds a vector to the basis. A vector whose numbers grow too large is dropped.
    fn insert(&mut self, mut v: Vec<i128>) {
        for at in 0..v.len() {
            if v.get(at) == Some(&0) {
                continue;
            }
            let Some(slot) = self.basis.get_mut(at) else { return };
            let Some(mut pivot) = slot.take() else {
                *slot = Some(v);
                return;
            };
            let old = pivot.clone();
            // Euclid's algorithm on the two entries.
            while v.get(at).is_some_and(|n| *n != 0) {
                let (Some(x), Some(y)) = (pivot.get(at), v.get(at)) else { return };
                let Some(next) = minus(&pivot, x.div_euclid(*y), &v) else {
                    *slot = Some(old);
                    return;
                };
                pivot = std::mem::replace(&mut v, next);
            }
            *slot = Some(pivot);
        }
    }

    fn contains(&self, d: &Dim) -> bool {
        let Some(mut v) = self.vector(d) else { return false };
        for at in 0..v.len() {
            let Some(x) = v.get(at).copied().filter(|x| *x != 0) else { continue };
            let Some(Some(pivot)) = self.basis.get(at) else { return false };
            let Some(p) = pivot.get(at).copied().filter(|p| *p != 0 && x % p == 0) else { return false };
            match minus(&v, x / p, pivot) {
                Some(next) => v = next,
                None => return false,
            }
        }
        true
    }

    /// Does the lattice contain a number that is not an integer?
    fn is_contradictory(&self) -> bool {
        let last = self.rows.len().saturating_sub(1);
        let pivot = self.basis.get(last).and_then(|b| b.as_ref()?.get(last));
        pivot.is_some_and(|p| p % self.scale != 0)
    }
}

/// `a - times * b`
fn minus(a: &[i128], times: i128, b: &[i128]) -> Option<Vec<i128>> {
    let entry = |(x, y): (&i128, &i128)| x.checked_sub(times.checked_mul(*y)?).filter(|n| n.checked_abs().is_some());
    a.iter().zip(b).map(entry).collect()
}

/// Products of one to [`MAX_DEGREE`] generators.
fn products(generators: &[Dim]) -> Vec<Dim> {
    let few = generators.get(..MAX_GENERATORS).unwrap_or(generators);
    let mut all: Vec<Dim> = Vec::new();
    let mut last = vec![(0, Dim::one())];
    for _ in 0..MAX_DEGREE {
        let mut next = Vec::new();
        for (from, p) in &last {
            for (at, g) in few.iter().enumerate().skip(*from) {
                if all.len() >= MAX_PRODUCTS {
                    return all;
                }
                let product = p.mul(g);
                if !product.is_too_long() && !all.contains(&product) {
                    all.push(product.clone());
                    next.push((at, product));
                }
            }
        }
        last = next;
    }
    all
}

/// Is `d` an integer wherever the generators are?
pub(super) fn is_integer(d: &Dim, generators: &[Dim]) -> bool {
    if d.is_too_long() {
        return false;
    }
    d.denominator() == 1 && d.terms().iter().all(|(m, _)| is_whole(m))
        || !generators.is_empty() && Lattice::new(d, generators).is_some_and(|lattice| lattice.contains(d))
}

/// Do the generators contradict each other, as integers?
pub(super) fn is_contradictory(generators: &[Dim]) -> bool {
    let each = |g: &Dim| Lattice::new(g, generators).is_some_and(|lattice| lattice.is_contradictory());
    generators.iter().any(each)
}
