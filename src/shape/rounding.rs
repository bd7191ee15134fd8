//! Rounded quotients, remainders, minima and maxima of dimensions, in canonical form.
//!
//! In: dimensions. Out: dimensions in which a [`Factor::Floor`], [`Factor::Min`] or [`Factor::Max`]
//! is an opaque factor of a polynomial. Each opaque factor is an integer. The identities used here
//! hold for non-negative symbols and divisors of at least 1, which every evaluation checks:
//!
//! * `floor_div(a + q*b, b)` is `floor_div(a, b) + q`; common factors cancel;
//!   `floor_div(floor_div(a, b), c)` is `floor_div(a, b*c)`;
//! * `ceil_div(a, b)` is `floor_div(a + b - 1, b)`, and `a % b` is `a - b * floor_div(a, b)`;
//! * `min` and `max` are flat lists without redundant entries; a common summand or positive factor
//!   of all entries is moved outside.

use super::dim::{Dim, Factor, Monomial};
use super::poly::{Poly, gcd};

/// The maximum number of entries of a `min` or `max`.
const MAX_ENTRIES: usize = 16;

impl Factor {
    /// Is it non-negative, judging by its operands, wherever it has a value? `false` if it is too
    /// long.
    pub fn is_provably_nonnegative(&self) -> bool {
        Dim::factor(self.clone()).is_provably_nonnegative()
    }

    /// [`Factor::is_provably_nonnegative`] for a factor that is not too long; `false` beyond
    /// `depth` levels or `looks` factors.
    pub(super) fn is_nonnegative(&self, depth: usize, looks: &mut usize) -> bool {
        if let Factor::Symbol(_) = self {
            return true;
        }
        let Some(depth) = depth.checked_sub(1) else { return false };
        let Some(left) = looks.checked_sub(1) else { return false };
        *looks = left;
        let mut seen = |d: &Dim| d.lacking(depth, looks).is_none();
        match self {
            Factor::Symbol(_) => true,
            Factor::Quotient(a, b) => seen(a) && seen(b),
            Factor::Floor(a, b) => {
                let Some(m) = a.lacking(depth, looks) else { return true };
                // The divisor is at least 1, so `a >= b - 1` implies `a >= 0`. That helps only if
                // subtracting the divisor changes the term that may be negative.
                let changes = m.is_one() || b.terms().iter().any(|(n, _)| n == m);
                changes && {
                    let above = a.sub(b).add(&Dim::one());
                    !above.is_too_long() && above.lacking(depth, looks).is_none()
                }
            }
            Factor::Min(all) => all.iter().all(seen),
            Factor::Max(all) => all.iter().any(seen),
        }
    }

    /// Upper bound of a non-negative factor, as for [`Dim::at_most`].
    fn at_most(&self, most: &dyn Fn(&str) -> Option<Dim>) -> Dim {
        match self {
            Factor::Symbol(name) => most(name).unwrap_or_else(|| Dim::symbol(name)),
            // A quotient of integers is at most the dividend.
            Factor::Quotient(a, _) | Factor::Floor(a, _) => a.at_most(most),
            Factor::Min(all) => all.iter().next().map_or(Dim::zero(), |d| d.at_most(most)),
            // A negative entry must not lower the bound.
            Factor::Max(all) => sum(all.iter().map(|d| d.size_at_most(most))),
        }
    }

    /// As [`Dim::size_at_most`].
    fn size_at_most(&self, most: &dyn Fn(&str) -> Option<Dim>) -> Dim {
        match self {
            Factor::Symbol(name) => most(name).unwrap_or_else(|| Dim::symbol(name)),
            // Evaluation computes all operands.
            Factor::Quotient(..) | Factor::Floor(..) | Factor::Min(_) | Factor::Max(_) => {
                sum(self.inner().into_iter().map(|d| d.size_at_most(most)))
            }
        }
    }

    /// The dimensions inside an opaque factor.
    pub fn inner(&self) -> Vec<&Dim> {
        match self {
            Factor::Symbol(_) => Vec::new(),
            Factor::Quotient(a, b) | Factor::Floor(a, b) => vec![&**a, &**b],
            Factor::Min(all) | Factor::Max(all) => all.iter().collect(),
        }
    }
}

impl Dim {
    /// Upper bound of `self`, given upper bounds for some symbols (all symbols are non-negative).
    /// Returns `self` if it contains none of them; too long on overflow.
    pub fn at_most(&self, most: &dyn Fn(&str) -> Option<Dim>) -> Dim {
        if !self.symbols().iter().any(|name| most(name).is_some()) {
            return self.clone();
        }
        sum(self.terms().iter().filter_map(|(m, c)| {
            // A factor of unknown sign makes the sign of the term unknown.
            let signed = m.variables().all(Factor::is_provably_nonnegative);
            if signed && *c < 0 {
                return None;
            }
            let of = |f: &Factor| if signed { f.at_most(most) } else { f.size_at_most(most) };
            let above = m.factors().iter().filter(|(_, e)| *e > 0);
            Some(product(c / gcd(*c, self.denominator()), above.map(|(f, e)| (of(f), e.unsigned_abs()))))
        }))
    }

    /// Upper bound of the absolute values of `self` and of all intermediate results of its
    /// evaluation, given upper bounds for some symbols. Too long on overflow.
    pub fn size_at_most(&self, most: &dyn Fn(&str) -> Option<Dim>) -> Dim {
        let (numerator, divisor) = self.as_fraction();
        let divisor = (divisor != (1, Vec::new())).then_some(&divisor);
        sum(numerator.iter().chain(divisor).map(|(coefficient, factors)| {
            product(*coefficient, factors.iter().map(|(f, e)| (f.size_at_most(most), *e)))
        }))
    }

    /// Does `self + 1` fit 64 bits where all symbols are 1?
    pub fn has_successor(&self) -> bool {
        let after = self.add(&Dim::one());
        !after.is_too_long() && after.magnitude() <= i128::from(i64::MAX)
    }

    /// `self / o`, rounded down. `None` if `o` is a number below 1; any other divisor is at least 1
    /// wherever this has a value.
    pub fn floor_div(&self, o: &Dim) -> Option<Dim> {
        if o.as_const().is_some_and(|n| n < 1) || *o == Dim::zero() {
            return None;
        }
        // As a quotient of polynomials: `floor((n/d) / (m/e))` is `floor(n*e / (d*m))`.
        let ((n, d), (m, e)) = (self.as_quotient(), o.as_quotient());
        if !d.is_provably_nonnegative() || !e.is_provably_nonnegative() {
            return Some(Dim::of_floor(self.clone(), o.clone()));
        }
        let (mut a, mut b) = (n.mul(&e), d.mul(&m));
        let mut quotient = Dim::zero();
        for _ in 0..8 {
            if a.is_too_long() || b.is_too_long() {
                return Some(Dim::of_floor(self.clone(), o.clone()));
            }
            let before = (a.clone(), b.clone());
            match b.poly().as_term() {
                Some((mono, n)) => {
                    let mut rest = Dim::zero();
                    for (m, c) in a.terms() {
                        let by = m.over(mono).filter(|by| by.is_whole() && n > 0);
                        let (q, left) = if by.is_some() { (c.div_euclid(n), c.rem_euclid(n)) } else { (0, *c) };
                        quotient = quotient.add(&Dim::term(by.unwrap_or_default(), q));
                        rest = rest.add(&Dim::term(m.clone(), left));
                    }
                    a = rest;
                }
                None => {
                    if let Some(exact) = a.multiple_of(&b).filter(Dim::is_polynomial) {
                        quotient = quotient.add(&exact);
                        a = Dim::zero();
                    } else if let Some(times) = b.terms().last().and_then(|(m, c)| a.times(m, *c)) {
                        quotient = quotient.add(&Dim::from(times));
                        a = a.sub(&b.mul(&Dim::from(times)));
                    }
                }
            }
            if a == Dim::zero() {
                return Some(quotient);
            }
            (a, b) = reduced(a, b);
            if (&a, &b) == (&before.0, &before.1) {
                break;
            }
        }
        // Adding one divisor makes a negative constant non-negative, so that `ceil_div` has one
        // canonical form.
        let takes = b.terms().last().is_some_and(|(m, c)| !m.is_one() && *c > 0);
        if b.as_const().is_none() && takes && a.poly().constant() < 0 {
            a = a.add(&b);
            quotient = quotient.sub(&Dim::one());
        }
        if let Some((x, y, rest)) = single_floor(&a)
            && let Some(inner) = x.add(&rest.mul(&y)).floor_div(&y.mul(&b))
        {
            return Some(inner.add(&quotient));
        }
        Some(Dim::of_floor(a, b).add(&quotient))
    }

    /// `self / o`, rounded up. `None` if `o` is a number below 1.
    pub fn ceil_div(&self, o: &Dim) -> Option<Dim> {
        self.add(o).sub(&Dim::one()).floor_div(o)
    }

    /// The remainder of [`Dim::floor_div`]. `None` if `o` is a number below 1.
    pub fn rem(&self, o: &Dim) -> Option<Dim> {
        Some(self.sub(&o.mul(&self.floor_div(o)?)))
    }

    /// The smaller of the two.
    pub fn min_with(&self, o: &Dim) -> Dim {
        extremum(vec![self.clone(), o.clone()], true)
    }

    /// The larger of the two.
    pub fn max_with(&self, o: &Dim) -> Dim {
        extremum(vec![self.clone(), o.clone()], false)
    }

    /// The minimum (if `least`) or maximum of a list; 0 if it is empty.
    pub(super) fn extremum(all: Vec<Dim>, least: bool) -> Dim {
        extremum(all, least)
    }

    fn of_floor(a: Dim, b: Dim) -> Dim {
        if a.is_too_long() || b.is_too_long() {
            return Dim::too_long();
        }
        Dim::factor(Factor::Floor(Box::new(a), Box::new(b)))
    }

    /// The coefficient of a monomial divided by `n`, rounded down.
    fn times(&self, m: &Monomial, n: i128) -> Option<i64> {
        let c = self.terms().iter().find(|(own, _)| own == m).map(|(_, c)| c)?;
        if n > 0 { i64::try_from(c.div_euclid(n)).ok() } else { None }
    }
}

/// Cancels common factors of dividend and divisor. If the divisor is a number, the constant of the
/// dividend is rounded down.
fn reduced(a: Dim, b: Dim) -> (Dim, Dim) {
    let number = b.as_const().is_some();
    let varying = a.terms().iter().filter(|(m, _)| !number || !m.is_one()).chain(b.terms());
    let common = common_divisor(varying.map(|(_, c)| *c));
    let (mut a, mut b) = (a, b);
    if common > 1 {
        let over = |d: &Dim| {
            d.terms().iter().fold(Dim::zero(), |sum, (m, c)| sum.add(&Dim::term(m.clone(), c.div_euclid(common))))
        };
        (a, b) = (over(&a), over(&b));
    }
    let shared = shared_symbols(a.terms().iter().chain(b.terms()).map(|(m, _)| m));
    if !shared.is_one() {
        let by = Dim::term(shared.inverse(), 1);
        (a, b) = (a.mul(&by), b.mul(&by));
    }
    (a, b)
}

/// The greatest common divisor; 0 if there are no numbers.
fn common_divisor(all: impl Iterator<Item = i128>) -> i128 {
    all.fold(0, |common: i128, c| if common == 0 { c.saturating_abs() } else { gcd(common, c) })
}

/// The symbols that all of these monomials share, with their powers.
fn shared_symbols<'m>(all: impl Iterator<Item = &'m Monomial>) -> Monomial {
    let common = all.cloned().reduce(|a, b| a.common(&b)).unwrap_or_default();
    let symbols = common.factors().iter().filter(|(f, e)| *e > 0 && matches!(f, Factor::Symbol(_)));
    symbols.cloned().collect()
}

/// If `d` is `floor_div(x, y) + rest`, with no rounded quotient in the rest: `x`, `y` and the rest.
fn single_floor(d: &Dim) -> Option<(Dim, Dim, Dim)> {
    let is_floor = |m: &Monomial| m.variables().any(|f| matches!(f, Factor::Floor(..)));
    let mut with = d.terms().iter().filter(|(m, _)| is_floor(m));
    let (m, c) = with.next().filter(|_| with.next().is_none())?;
    match m.factors() {
        [(Factor::Floor(x, y), 1)] if *c == 1 && d.denominator() == 1 => {
            Some(((**x).clone(), (**y).clone(), d.sub(&Dim::term(m.clone(), 1))))
        }
        _ => None,
    }
}

fn sum(all: impl Iterator<Item = Dim>) -> Dim {
    all.fold(Dim::zero(), |sum, d| sum.add(&d))
}

/// The absolute value of a number, times powers of dimensions.
fn product(coefficient: i128, factors: impl Iterator<Item = (Dim, u32)>) -> Dim {
    let number = Dim::term(Monomial::default(), coefficient.saturating_abs());
    let each = factors.flat_map(|(d, e)| (0..e).map(move |_| d.clone()));
    each.fold(number, |product, d| product.mul(&d))
}

fn extremum(all: Vec<Dim>, least: bool) -> Dim {
    if all.iter().any(Dim::is_too_long) {
        return Dim::too_long();
    }
    let mut flat: Vec<Dim> = Vec::new();
    for d in all {
        match entries(&d, least) {
            Some(list) => flat.extend(list),
            None => flat.push(d),
        }
    }
    flat.sort();
    flat.dedup();
    let decided = |x: &Dim, by: &Dim| if least { by.at_most_by_form(x) } else { x.at_most_by_form(by) };
    let mut kept: Vec<Dim> = Vec::new();
    for (at, x) in flat.iter().enumerate() {
        // Of two entries that imply each other, and so are equal, the first is kept.
        let by = flat.iter().enumerate().any(|(n, y)| n != at && decided(x, y) && (n < at || !decided(y, x)));
        if !by {
            kept.push(x.clone());
        }
    }
    if kept.len() > MAX_ENTRIES || kept.iter().any(Dim::is_too_long) {
        return Dim::too_long();
    }
    let (first, rest) = match kept.split_first() {
        None => return Dim::zero(),
        Some((only, [])) => return only.clone(),
        Some((first, rest)) => (first.clone(), rest.to_vec()),
    };
    // Move common summands outside; the least constant is one of them.
    let mut common = Dim::zero();
    for (m, c) in first.terms() {
        let own = Dim::of_poly(Poly::term(m.clone(), *c).over(first.denominator()));
        let same = |d: &Dim| {
            let scaled = |(n, s): &(Monomial, i128)| if m == n { s.checked_mul(first.denominator()) } else { None };
            d.terms().iter().filter_map(scaled).any(|s| Some(s) == c.checked_mul(d.denominator()))
        };
        if !m.is_one() && rest.iter().all(same) {
            common = common.add(&own);
        }
    }
    let constant = kept.iter().map(|d| d.poly().constant()).min().unwrap_or(0);
    common = common.add(&Dim::term(Monomial::default(), constant));
    let mut kept: Vec<Dim> = kept.iter().map(|d| d.sub(&common)).collect();
    // Move a common positive factor outside.
    let terms = || kept.iter().flat_map(|d| d.terms());
    let whole = kept.iter().all(|d| d.denominator() == 1);
    let number = if whole { common_divisor(terms().map(|(_, c)| *c)).max(1) } else { 1 };
    let scale = Dim::term(shared_symbols(terms().map(|(m, _)| m)), number);
    if scale != Dim::one()
        && let Some(scaled) = kept.iter().map(|d| d.div(&scale)).collect::<Option<Vec<Dim>>>()
    {
        // Without the factor there may be more common summands.
        return extremum(scaled, least).mul(&scale).add(&common);
    }
    if kept.iter().any(Dim::is_too_long) {
        return Dim::too_long();
    }
    kept.sort();
    let factor = if least { Factor::Min(kept) } else { Factor::Max(kept) };
    Dim::factor(factor).add(&common)
}

/// If `d` is a `min` (or `max`) plus a rest: its entries, each with the rest added.
fn entries(d: &Dim, least: bool) -> Option<Vec<Dim>> {
    d.terms().iter().find_map(|(m, c)| {
        let list = match m.factors() {
            [(Factor::Min(list), 1)] if least => list,
            [(Factor::Max(list), 1)] if !least => list,
            _ => return None,
        };
        if *c != d.denominator() {
            return None;
        }
        let rest = d.sub(&Dim::term(m.clone(), 1));
        Some(list.iter().map(|x| x.add(&rest)).collect())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    fn s(n: &str) -> Dim {
        Dim::symbol(n)
    }

    fn n(n: i64) -> Dim {
        Dim::from(n)
    }

    /// By hand: products whose factors may be negative, maxima with negative entries, differences.
    #[test]
    fn bounds_hold_whatever_the_signs() {
        let names = ["S", "T", "N"];
        let most = |name: &str| (name == "N").then(|| n(16));
        let half = |name: &str| s(name).sub(&s("N")).floor_div(&n(2)).unwrap();
        let forms = [
            half("S").mul(&half("T")),
            half("S").mul(&half("S")).neg().add(&n(9)),
            half("S").mul(&half("T")).mul(&half("T")).neg(),
            s("N").max_with(&s("S").sub(&n(100))),
            s("S").sub(&s("N")).mul(&s("S").sub(&s("N"))),
            s("S").sub(&s("N").mul(&s("T")).mul(&s("T"))),
            s("N").rem(&s("T").add(&n(1))).unwrap(),
        ];
        let mut compared = 0;
        for form in forms {
            let (above, size) = (form.at_most(&most), form.size_at_most(&most));
            assert!(
                above.symbols().iter().chain(&size.symbols()).all(|name| **name != *"N"),
                "{form}: {above}, {size}"
            );
            for at in (0..7 * 7 * 17_i64).map(|i| [i % 7 * 30, i / 7 % 7, i / 49]) {
                let value = |name: &str| names.iter().position(|x| *x == name).map(|i| at[i]);
                let found = form.eval(&value).unwrap();
                assert!(found <= above.eval(&value).unwrap(), "{form} is {found} at {at:?}, not at most {above}");
                assert!(found.abs() <= size.eval(&value).unwrap(), "{form} is {found} at {at:?}, beyond {size}");
                compared += 1;
            }
        }
        assert_eq!(compared, 7 * 7 * 7 * 17);
        assert_eq!(s("S").sub(&s("N").mul(&s("T"))).size_at_most(&most).to_string(), "S+16*T");
        assert_eq!(s("S").sub(&s("N").mul(&s("T"))).at_most(&most).to_string(), "S");
        // A saturated number is not a bound.
        let huge = Dim::term(Monomial::default(), i128::MAX).mul(&s("N"));
        assert!(huge.at_most(&most).is_too_long() && huge.size_at_most(&most).is_too_long());
    }

    #[test]
    fn forms_are_canonical() {
        let (a, b, p) = (s("S"), s("T"), s("P"));
        let floor = |x: &Dim, y: &Dim| x.floor_div(y).unwrap();
        let ceil = |x: &Dim, y: &Dim| x.ceil_div(y).unwrap();
        for (x, text) in [
            (floor(&a, &n(2)), "floor_div(S, 2)"),
            (floor(&a.mul(&n(4)).add(&n(3)), &n(2)), "2*S+1"),
            (floor(&a.mul(&n(5)), &n(2)), "2*S+floor_div(S, 2)"),
            (floor(&a.mul(&n(2)).add(&n(3)), &n(4)), "ceil_div(S, 2)"),
            (floor(&a.mul(&p), &p), "S"),
            (floor(&a.mul(&p).add(&b), &p), "S+floor_div(T, P)"),
            (floor(&floor(&a, &n(2)), &n(3)), "floor_div(S, 6)"),
            (floor(&floor(&a, &n(2)).add(&n(1)), &n(3)), "floor_div(S+2, 6)"),
            (floor(&n(-7), &n(2)), "-4"),
            (ceil(&a, &p), "ceil_div(S, P)"),
            (floor(&a.sub(&n(1)), &p).add(&n(1)), "ceil_div(S, P)"),
            (ceil(&a, &n(16)), "ceil_div(S, 16)"),
            (a.rem(&n(2)).unwrap(), "(S % 2)"),
            (a.mul(&n(3)).rem(&n(2)).unwrap(), "(S % 2)"),
            (a.rem(&p).unwrap().add(&n(1)), "(S % P)+1"),
            (a.min_with(&b), "min(S, T)"),
            (b.min_with(&a).min_with(&p), "min(P, S, T)"),
            (a.add(&n(1)).min_with(&b.add(&n(3))), "min(S, T+2)+1"),
            (a.mul(&n(2)).max_with(&b.mul(&n(2))), "2*max(S, T)"),
            (a.mul(&p).max_with(&b.mul(&p)), "P*max(S, T)"),
            (a.min_with(&a.add(&b)), "S"),
            (a.max_with(&n(0)), "S"),
            (n(3).min_with(&n(5)), "3"),
            (a.min_with(&n(64)), "min(64, S)"),
        ] {
            assert_eq!(x.to_string(), text);
        }
        assert_eq!(a.floor_div(&n(0)), None);
        assert_eq!(a.rem(&n(-2)), None);
    }

    /// A random dimension, and its value computed independently, one operation at a time.
    fn random(random: &mut Random, depth: usize, at: &[i128; 3]) -> Option<(Dim, i128)> {
        if depth == 0 || random.below(6) == 0 {
            let i = random.below(5);
            return Some(match i {
                0..3 => (s(["A", "B", "C"][i]), at[i]),
                _ => {
                    let k = random.below(9) as i64 - 2;
                    (n(k), i128::from(k))
                }
            });
        }
        let (x, v) = self::random(random, depth - 1, at)?;
        let (y, w) = self::random(random, depth - 1, at)?;
        Some(match random.below(8) {
            0 => (x.add(&y), v + w),
            1 => (x.sub(&y), v - w),
            2 => (x.mul(&y), v * w),
            3 if w > 0 => (x.floor_div(&y)?, v.div_euclid(w)),
            4 if w > 0 => (x.ceil_div(&y)?, (v + w - 1).div_euclid(w)),
            5 if w > 0 => (x.rem(&y)?, v.rem_euclid(w)),
            6 => (x.min_with(&y), v.min(w)),
            _ => (x.max_with(&y), v.max(w)),
        })
    }

    /// The canonical form has the value of its operations, parses back, and is non-negative where
    /// it claims to be.
    #[test]
    fn random_forms_are_worth_what_they_say() {
        let mut rng = Random::new(11);
        let (mut rounded, mut seen) = (0, 0);
        for _ in 0..2500 {
            let at = [0; 3].map(|_: i32| rng.below(12) as i128);
            let depth = 1 + rng.below(4);
            let Some((dim, value)) = random(&mut rng, depth, &at) else { continue };
            if dim.is_too_long() {
                continue;
            }
            let given = dim.eval(&|name| i64::try_from(at[(name.as_bytes()[0] - b'A') as usize]).ok());
            assert_eq!(given.map(i128::from), Ok(value), "{dim} at {at:?}");
            assert!(value >= 0 || !dim.is_provably_nonnegative(), "{dim} at {at:?}");
            let again = dim.substitute(&|_| None).unwrap();
            assert_eq!(again, dim, "{dim} rebuilt is {again}");
            seen += 1;
            rounded += usize::from(dim.factors().any(|f| !matches!(f, Factor::Symbol(_))));
        }
        assert!(seen > 1200 && rounded > 400, "{seen} {rounded}");
    }
}
