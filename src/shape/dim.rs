//! Dimension expressions in canonical form.
//!
//! A [`Dim`] is a Laurent polynomial ([`Poly`]) in named dimensions and opaque factors. So `2*S`
//! and `S+S` are the same value, and `H * (D / H)` is `D`. Whether a quotient is allowed at all (`D
//! / H` needs the fact `D % H == 0`) is not decided here but in the type checker. A quotient by a
//! sum that does not divide out stays an opaque factor, and so do rounded quotients, `min` and
//! `max` ([`super::rounding`]).
//!
//! The size of an expression is bounded: beyond that size, or where a coefficient exceeds 128 bits,
//! the result is one special unknown ([`Dim::is_too_long`]), so that no program makes the compiler
//! multiply out sums without end. A value that does not fit an `i64` is rejected when it is
//! evaluated or requested as a constant.

use std::fmt;
use std::sync::Arc;

use super::monomial::{self, MAX_POWER};
use super::poly::{Poly, gcd};

/// The symbol that replaces an expression that is too long; no author can write this name.
const TOO_LONG: &str = "<too long>";
/// The maximum number of numbers and names in an expression.
const MAX_WEIGHT: usize = 512;
/// The maximum nesting of opaque factors that the sign analysis looks into.
pub(super) const MAX_NESTED: usize = 8;
/// The maximum number of factors visited to find the sign of an expression.
const MAX_LOOKS: usize = 2000;

/// A factor of a term, apart from its integer coefficient.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Factor {
    /// A named dimension, bound at compile time or at run time.
    Symbol(Arc<str>),
    /// A quotient whose divisor is a sum and does not divide out; exact by a fact of the program.
    Quotient(Box<Dim>, Box<Dim>),
    /// A quotient rounded down; the divisor is at least 1.
    Floor(Box<Dim>, Box<Dim>),
    /// The minimum of a sorted list; made by [`Dim::min_with`].
    Min(Vec<Dim>),
    /// The maximum of a sorted list; made by [`Dim::max_with`].
    Max(Vec<Dim>),
}

/// A product of powers of factors.
pub type Monomial = monomial::Monomial<Factor>;

impl Monomial {
    /// Is the product non-negative because each of its factors is? Opaque factors nested deeper
    /// than `depth` count as unknown.
    pub(super) fn is_nonnegative(&self, depth: usize, looks: &mut usize) -> bool {
        self.factors().iter().all(|(f, e)| e % 2 == 0 || f.is_nonnegative(depth, looks))
    }
}

/// An integer coefficient and factors with positive exponents.
pub type Term = (i128, Vec<(Factor, u32)>);

/// Why a dimension has no value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DimError {
    /// A symbol has no value.
    Unbound(Arc<str>),
    /// A quotient is not an integer.
    NotWhole,
    /// A divisor is zero.
    DivisionByZero,
    /// The value does not fit an `i64`.
    Overflow,
}

/// A dimension expression in canonical form. Two dimensions are equal exactly if their canonical
/// forms are. Their order is arbitrary but fixed, for sorted containers; it says nothing about
/// sizes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Dim {
    /// Shared, because dimensions are copied far more often than made.
    poly: Arc<Poly<Factor>>,
}

impl From<i64> for Dim {
    fn from(n: i64) -> Dim {
        Dim { poly: Arc::new(Poly::int(i128::from(n))) }
    }
}

impl Dim {
    /// The dimension with this name.
    pub fn symbol(name: &str) -> Dim {
        Dim::factor(Factor::Symbol(Arc::from(name)))
    }

    /// The constant 0, which is also the default.
    pub fn zero() -> Dim {
        Dim::default()
    }

    /// The constant 1, the empty product.
    pub fn one() -> Dim {
        Dim::from(1)
    }

    pub(super) fn factor(f: Factor) -> Dim {
        Dim::of_poly(Some(Poly::variable(f)))
    }

    /// A number times a product of factors.
    pub fn term(product: Monomial, coefficient: i128) -> Dim {
        let high = product.factors().iter().any(|(_, e)| e.unsigned_abs() > MAX_POWER);
        Dim::of_poly((!high).then(|| Poly::term(product, coefficient)))
    }

    /// This polynomial; too long if it does not exist, or has too many numbers and names.
    pub(super) fn of_poly(poly: Option<Poly<Factor>>) -> Dim {
        match poly.map(|poly| Dim { poly: Arc::new(poly) }) {
            Some(d) if d.weight() <= MAX_WEIGHT => d,
            _ => Dim::too_long(),
        }
    }

    pub(super) fn poly(&self) -> &Poly<Factor> {
        &self.poly
    }

    /// The terms, in canonical order: monomials and their coefficients before the division by
    /// [`Dim::denominator`].
    pub fn terms(&self) -> &[(Monomial, i128)] {
        self.poly.terms()
    }

    /// The integer that all terms are divided by, at least 1.
    pub fn denominator(&self) -> i128 {
        self.poly.denominator()
    }

    /// The factors of all terms.
    pub fn factors(&self) -> impl Iterator<Item = &Factor> {
        self.terms().iter().flat_map(|(m, _)| m.variables())
    }

    /// Is it a sum of integer multiples of products, without divisors?
    pub fn is_polynomial(&self) -> bool {
        self.poly.is_whole()
    }

    /// The value, if it is an integer that fits an `i64`.
    pub fn as_const(&self) -> Option<i64> {
        i64::try_from(self.poly.as_int()?).ok()
    }

    /// Is this a number, without symbols?
    pub fn is_const(&self) -> bool {
        self.terms().iter().all(|(m, _)| m.is_one())
    }

    /// The name if this is a bare symbol.
    pub fn as_symbol(&self) -> Option<&str> {
        match (self.poly.as_term()?, self.denominator()) {
            ((m, 1), 1) => match m.factors() {
                [(Factor::Symbol(s), 1)] => Some(s),
                _ => None,
            },
            _ => None,
        }
    }

    /// If this is `c * S + k` with integers `c != 0` and `k`: the symbol, `c` and `k`.
    pub fn as_linear(&self) -> Option<(&str, i64, i64)> {
        let (k, (m, c)) = match self.terms() {
            [term] => (0, term),
            [(one, k), term] if one.is_one() => (*k, term),
            _ => return None,
        };
        match (m.factors(), self.denominator()) {
            ([(Factor::Symbol(s), 1)], 1) => Some((s, i64::try_from(*c).ok()?, i64::try_from(k).ok()?)),
            _ => None,
        }
    }

    /// If this is `factor * name + rest`, with `name` in neither: the factor, which is one term,
    /// and the rest.
    pub fn linear_in(&self, name: &str) -> Option<(Dim, Dim)> {
        let symbol = Factor::Symbol(Arc::from(name));
        let (factor, rest) = self.poly.split(&symbol)?;
        factor.as_term()?;
        let over = |p: Poly<Factor>| Dim::of_poly(p.over(self.denominator()));
        let (factor, rest) = (over(factor), over(rest));
        let free = |d: &Dim| d.symbols().iter().all(|s| &**s != name);
        (free(&factor) && free(&rest)).then_some((factor, rest))
    }

    /// Sum. If an operand is too long, so is the result, here and in all operations below: such an
    /// expression equals nothing, itself included.
    pub fn add(&self, o: &Dim) -> Dim {
        self.with(o, |a, b| a.add(b))
    }

    /// Applies `f` to both polynomials; too long if an operand is.
    fn with(&self, o: &Dim, f: impl Fn(&Poly<Factor>, &Poly<Factor>) -> Option<Poly<Factor>>) -> Dim {
        if self.is_too_long() || o.is_too_long() { Dim::too_long() } else { Dim::of_poly(f(&self.poly, &o.poly)) }
    }

    /// Numbers and names in the expression, opaque factors included.
    pub(super) fn weight(&self) -> usize {
        let factor = |f: &Factor| f.inner().iter().map(|d| d.weight()).fold(1, usize::saturating_add);
        let term = |m: &Monomial| m.variables().map(factor).fold(1, usize::saturating_add);
        self.terms().iter().map(|(m, _)| term(m)).fold(0, usize::saturating_add)
    }

    /// Did the expression, or a part of it, outgrow the limits? Then it has no value, and is never
    /// known to equal anything.
    pub fn is_too_long(&self) -> bool {
        self.as_symbol() == Some(TOO_LONG)
    }

    /// `-self`
    pub fn neg(&self) -> Dim {
        self.mul(&Dim::from(-1))
    }

    /// `self - o`
    pub fn sub(&self, o: &Dim) -> Dim {
        self.with(o, |a, b| a.sub(b))
    }

    /// `self * o`
    pub fn mul(&self, o: &Dim) -> Dim {
        match (self.as_const(), o.as_const()) {
            (Some(1), _) => o.clone(),
            (_, Some(1)) => self.clone(),
            _ => self.with(o, |a, b| a.mul(b)),
        }
    }

    /// Product of all `dims`.
    pub fn product<'a>(dims: impl IntoIterator<Item = &'a Dim>) -> Dim {
        let (mut number, mut rest) = (Dim::one(), Dim::one());
        for d in dims {
            let slot = if d.as_const().is_some() { &mut number } else { &mut rest };
            *slot = slot.mul(d);
        }
        rest.mul(&number)
    }

    /// All symbols, sorted by name, without duplicates.
    pub fn symbols(&self) -> Vec<Arc<str>> {
        fn walk(d: &Dim, out: &mut Vec<Arc<str>>) {
            for f in d.factors() {
                match f {
                    Factor::Symbol(s) => out.push(s.clone()),
                    _ => f.inner().into_iter().for_each(|d| walk(d, out)),
                }
            }
        }
        let mut out = Vec::new();
        walk(self, &mut out);
        out.sort();
        out.dedup();
        out
    }

    /// Replaces symbols by `f`; a symbol for which `f` returns `None` stays. `None` if a divisor
    /// becomes zero.
    pub fn substitute(&self, f: &dyn Fn(&str) -> Option<Dim>) -> Option<Dim> {
        let mut out = Dim::zero();
        for (m, c) in self.terms() {
            let mut t = Dim::of_poly(Poly::int(*c).over(self.denominator()));
            for (factor, e) in m.factors() {
                let v = match factor {
                    Factor::Symbol(s) => f(s).unwrap_or_else(|| Dim::factor(factor.clone())),
                    Factor::Quotient(a, b) => a.substitute(f)?.div(&b.substitute(f)?)?,
                    Factor::Floor(a, b) => a.substitute(f)?.floor_div(&b.substitute(f)?)?,
                    Factor::Min(all) | Factor::Max(all) => {
                        let all = all.iter().map(|d| d.substitute(f)).collect::<Option<Vec<Dim>>>()?;
                        Dim::extremum(all, matches!(factor, Factor::Min(_)))
                    }
                };
                for _ in 0..e.unsigned_abs() {
                    t = if *e > 0 { t.mul(&v) } else { t.div(&v)? };
                }
            }
            out = out.add(&t);
        }
        Some(out)
    }

    /// Value under a binding of the symbols. Every step is checked, in the order in which compiled
    /// models evaluate the expression ([`Dim::as_fraction`]), so that both reject the same calls.
    ///
    /// # Errors
    /// An unbound symbol, a quotient that is not an integer, a zero divisor, a step beyond `i64`.
    pub fn eval(&self, f: &dyn Fn(&str) -> Option<i64>) -> Result<i64, DimError> {
        fn exact(a: i64, b: i64) -> Result<i64, DimError> {
            match (a.checked_rem(b), a.checked_div(b)) {
                _ if b == 0 => Err(DimError::DivisionByZero),
                (Some(0), Some(q)) => Ok(q),
                (Some(_), Some(_)) => Err(DimError::NotWhole),
                _ => Err(DimError::Overflow),
            }
        }
        let product = |(coefficient, factors): &Term| -> Result<i64, DimError> {
            let coefficient = i64::try_from(*coefficient).map_err(|_| DimError::Overflow)?;
            let mut product = (coefficient != 1).then_some(coefficient);
            for (factor, exponent) in factors {
                let value = match factor {
                    Factor::Symbol(s) => f(s).ok_or_else(|| DimError::Unbound(s.clone()))?,
                    Factor::Quotient(a, b) => exact(a.eval(f)?, b.eval(f)?)?,
                    Factor::Floor(a, b) => {
                        let (a, b) = (a.eval(f)?, b.eval(f)?);
                        if b < 1 {
                            return Err(DimError::DivisionByZero);
                        }
                        a.div_euclid(b)
                    }
                    Factor::Min(all) | Factor::Max(all) => {
                        let all = all.iter().map(|d| d.eval(f)).collect::<Result<Vec<i64>, DimError>>()?;
                        let found = if matches!(factor, Factor::Min(_)) { all.iter().min() } else { all.iter().max() };
                        found.copied().unwrap_or(0)
                    }
                };
                for _ in 0..*exponent {
                    product = Some(match product {
                        None => value,
                        Some(p) => p.checked_mul(value).ok_or(DimError::Overflow)?,
                    });
                }
            }
            Ok(product.unwrap_or(1))
        };
        let (terms, divisor) = self.as_fraction();
        let mut sum: i64 = 0;
        for term in &terms {
            sum = sum.checked_add(product(term)?).ok_or(DimError::Overflow)?;
        }
        if divisor == (1, Vec::new()) { Ok(sum) } else { exact(sum, product(&divisor)?) }
    }

    /// Size of the numbers in the expression: the sum of the absolute values of its coefficients,
    /// which bounds the value where every symbol is 1.
    pub fn magnitude(&self) -> i128 {
        let inner = |m: &Monomial| {
            let of = |f: &Factor| f.inner().iter().map(|d| d.magnitude()).max().unwrap_or(0);
            m.variables().map(of).max().unwrap_or(0)
        };
        let term = |(m, c): &(Monomial, i128)| {
            let common = gcd(*c, self.denominator());
            (c.saturating_abs() / common).max(self.denominator() / common).max(inner(m))
        };
        self.terms().iter().map(term).fold(0, i128::saturating_add)
    }

    /// Is `self >= 0` for all non-negative symbols, as each term shows? `false` if it is too long.
    pub fn is_provably_nonnegative(&self) -> bool {
        self.is_nonnegative(&mut MAX_LOOKS.clone())
    }

    /// [`Dim::is_provably_nonnegative`], visiting at most `looks` factors, which it counts down.
    pub(super) fn is_nonnegative(&self, looks: &mut usize) -> bool {
        !self.is_too_long() && self.lacking(MAX_NESTED, looks).is_none()
    }

    /// A term that may be negative. Coefficients are tested before factors, which cost more.
    pub(super) fn lacking(&self, depth: usize, looks: &mut usize) -> Option<&Monomial> {
        let negative = self.terms().iter().find(|(_, c)| *c < 0).map(|(m, _)| m);
        negative.or_else(|| self.terms().iter().map(|(m, _)| m).find(|m| !m.is_nonnegative(depth, looks)))
    }

    /// The result of an operation that exceeds the limits.
    pub(super) fn too_long() -> Dim {
        Dim { poly: Arc::new(Poly::variable(Factor::Symbol(Arc::from(TOO_LONG)))) }
    }

    /// Is each term of `o - self` non-negative? `false` if either is too long.
    pub fn at_most_by_form(&self, o: &Dim) -> bool {
        o.sub(self).is_provably_nonnegative()
    }

    /// Is it a multiple of `n` for all values of its symbols, because all coefficients are?
    pub fn is_multiple_of(&self, n: i64) -> bool {
        self.poly.divided(i128::from(n)).is_some()
    }

    /// As one fraction: integer-coefficient numerator terms and a one-term divisor, for code that
    /// evaluates dimensions (`numerator / divisor` is exact). Terms are `(coefficient, factors with
    /// positive exponents)`.
    pub fn as_fraction(&self) -> (Vec<Term>, Term) {
        let scale = self.divisors();
        let powers = |m: &Monomial| m.factors().iter().map(|(f, e)| (f.clone(), e.unsigned_abs())).collect::<Vec<_>>();
        let whole = |m: &Monomial| {
            if scale.is_one() {
                powers(m)
            } else {
                powers(&m.factors().iter().chain(scale.factors()).cloned().collect())
            }
        };
        let numerator = self.terms().iter().map(|(m, c)| (*c, whole(m))).collect();
        (numerator, (self.denominator(), powers(&scale)))
    }

    /// Numerator and one-term divisor, as dimensions.
    pub fn as_quotient(&self) -> (Dim, Dim) {
        let scale = self.divisors();
        let numerator = Dim::of_poly(self.poly.numerator().mul_monomial(&scale));
        (numerator, Dim::term(scale, self.denominator()))
    }

    /// The least monomial that times each monomial has no negative exponents.
    fn divisors(&self) -> Monomial {
        let mut all: Vec<(Factor, i32)> = Vec::new();
        for (f, e) in self.terms().iter().flat_map(|(m, _)| m.factors()).filter(|(_, e)| *e < 0) {
            match all.iter_mut().find(|(own, _)| own == f) {
                Some((_, most)) => *most = (*most).max(-e),
                None => all.push((f.clone(), -e)),
            }
        }
        all.into_iter().collect()
    }
}

impl fmt::Display for Factor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Factor::Symbol(s) => f.write_str(s),
            Factor::Quotient(a, b) => write!(f, "(({a})/({b}))"),
            Factor::Floor(a, b) => {
                // `ceil_div(x, b)` is kept as `floor_div(x + b - 1, b)`.
                let x = a.sub(b).add(&Dim::one());
                let up = **b != Dim::one() && x.poly().constant() == 0 && !x.poly().is_zero();
                if up && x.terms().len() <= a.terms().len() {
                    write!(f, "ceil_div({x}, {b})")
                } else {
                    write!(f, "floor_div({a}, {b})")
                }
            }
            Factor::Min(all) | Factor::Max(all) => {
                let mut list: Vec<String> = all.iter().map(Dim::to_string).collect();
                list.sort();
                let name = if matches!(self, Factor::Min(_)) { "min" } else { "max" };
                write!(f, "{name}({})", list.join(", "))
            }
        }
    }
}

/// If `d` contains `k * (a % b)`: `k`, `a`, `b`, and the remaining terms, which are fewer.
fn remainder(d: &Dim) -> Option<(i128, Dim, Dim, Dim)> {
    d.factors().find_map(|factor| {
        let Factor::Floor(a, b) = factor else { return None };
        let (m, n) = b.poly.as_term().filter(|_| b.denominator() == 1)?;
        let at = m.times(&[(factor.clone(), 1)].into_iter().collect())?;
        let (_, c) = d.terms().iter().find(|(m, _)| *m == at).filter(|(_, c)| d.denominator() == 1 && c % n == 0)?;
        let k = c.checked_div(n)?.checked_neg().filter(|k| *k > 0)?;
        let whole = a.sub(&b.mul(&Dim::factor(factor.clone())));
        let rest = d.sub(&whole.mul(&Dim::term(Monomial::default(), k)));
        (rest.terms().len() < d.terms().len()).then(|| (k, (**a).clone(), (**b).clone(), rest))
    })
}

fn write_product(f: &mut fmt::Formatter<'_>, coef: i128, factors: &[(Factor, u32)]) -> fmt::Result {
    let mut first = true;
    if coef != 1 || factors.is_empty() {
        write!(f, "{coef}")?;
        first = false;
    }
    for (x, e) in factors {
        for _ in 0..*e {
            if !first {
                f.write_str("*")?;
            }
            write!(f, "{x}")?;
            first = false;
        }
    }
    Ok(())
}

/// Prints as an author would write it (`3*D`, `D/H`, `S+1`, `(S+1)/2`). Parsing the output yields
/// the same dimension.
impl fmt::Display for Dim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.poly.is_zero() {
            return f.write_str("0");
        }
        if let Some((k, a, b, rest)) = remainder(self) {
            let grouped = |d: &Dim| {
                if d.terms().len() > 1 || d.as_symbol().is_none() && !d.is_const() {
                    format!("({d})")
                } else {
                    d.to_string()
                }
            };
            if k != 1 {
                write!(f, "{k}*")?;
            }
            write!(f, "({} % {})", grouped(&a), grouped(&b))?;
            return match rest.to_string() {
                zero if zero == "0" => Ok(()),
                rest if rest.starts_with('-') => f.write_str(&rest),
                rest => write!(f, "+{rest}"),
            };
        }
        let (mut numerator, (den, den_factors)) = self.as_fraction();
        // Higher degrees first; among equals the canonical order.
        let degree = |factors: &[(Factor, u32)]| factors.iter().map(|(_, e)| *e).sum::<u32>();
        numerator.sort_by_key(|(_, factors)| std::cmp::Reverse(degree(factors)));
        let has_den = den != 1 || !den_factors.is_empty();
        let parens = has_den && numerator.len() > 1;
        if parens {
            f.write_str("(")?;
        }
        for (i, (coef, factors)) in numerator.iter().enumerate() {
            if *coef < 0 {
                f.write_str("-")?;
            } else if i > 0 {
                f.write_str("+")?;
            }
            write_product(f, coef.saturating_abs(), factors)?;
        }
        if parens {
            f.write_str(")")?;
        }
        if has_den {
            f.write_str("/")?;
            let simple = (den == 1 && degree(&den_factors) == 1) || den_factors.is_empty();
            if !simple {
                f.write_str("(")?;
            }
            write_product(f, den, &den_factors)?;
            if !simple {
                f.write_str(")")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
