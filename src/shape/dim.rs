//! Dimension expressions in canonical form.
//!
//! A [`Dim`] is a sum of terms, each a rational coefficient times a product of factors with integer exponents (a Laurent
//! polynomial), kept sorted with equal terms merged. So `2*S` and `S+S` are the same value, and `H * (D / H)` is `D`.
//! Whether a quotient is allowed at all (`D / H` needs the fact `D % H == 0`) is not decided here but in the type checker.
//! A quotient by a sum that does not divide out stays an opaque factor, and so do rounded quotients, `min` and `max`
//! ([`super::rounding`]).
//!
//! A form has a bounded size: what would grow beyond it becomes one unknown ([`Dim::is_too_long`]), so that no program makes
//! the compiler multiply out sums without end. Arithmetic never panics: coefficients are `i128` and saturate; a value that no longer fits an `i64` is refused when
//! it is evaluated or requested as a constant.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// What stands for a form that is too long; no author can write this name.
const TOO_LONG: &str = "<too long>";
/// The most numbers and names in a form.
const MAX_WEIGHT: usize = 512;
/// The highest power of a factor.
const MAX_POWER: u32 = 64;
/// How deep opaque factors lie in one another at most where something is concluded from them.
pub(super) const MOST_NESTED: usize = 8;
/// How many factors are looked at to see the sign of a form.
const MOST_LOOKS: usize = 2000;
/// Numerators below this, over denominators below [`EXACT_DENOMINATOR`], are added without saturating.
const EXACT_NUMERATOR: i128 = 1 << 64;
const EXACT_DENOMINATOR: i128 = 1 << 60;
/// The most products of terms that a multiplication makes.
const MAX_PRODUCTS: usize = 4096;

/// A rational number in lowest terms with a positive denominator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ratio {
    /// Numerator.
    pub num: i128,
    /// Denominator, at least 1.
    pub den: i128,
}

pub(super) fn gcd(a: i128, b: i128) -> i128 {
    let (mut a, mut b) = (a.unsigned_abs(), b.unsigned_abs());
    while b != 0 {
        (a, b) = (b, a % b);
    }
    i128::try_from(a).unwrap_or(i128::MAX).max(1)
}

impl Ratio {
    /// The integer `n`.
    pub fn int(n: i128) -> Ratio {
        Ratio { num: n, den: 1 }
    }

    /// `num / den` in lowest terms; `den` must not be 0 (a zero is taken as 1).
    pub fn new(num: i128, den: i128) -> Ratio {
        let den = if den == 0 { 1 } else { den };
        let g = gcd(num, den);
        let s = if den < 0 { -1 } else { 1 };
        Ratio { num: (num / g).saturating_mul(s), den: (den / g).saturating_mul(s) }
    }

    fn add(self, o: Ratio) -> Ratio {
        Ratio::new(
            self.num.saturating_mul(o.den).saturating_add(o.num.saturating_mul(self.den)),
            self.den.saturating_mul(o.den),
        )
    }

    pub(super) fn mul(self, o: Ratio) -> Ratio {
        let (g, h) = (gcd(self.num, o.den), gcd(o.num, self.den));
        Ratio::new((self.num / g).saturating_mul(o.num / h), (self.den / h).saturating_mul(o.den / g))
    }
}

/// What a dimension is made of, besides numbers.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Factor {
    /// A named dimension, bound at compile time or at run time.
    Symbol(Arc<str>),
    /// A quotient whose divisor is a sum and does not divide out; exact by a fact of the program.
    Quotient(Box<Dim>, Box<Dim>),
    /// A quotient that is rounded down; the divisor is at least 1.
    Floor(Box<Dim>, Box<Dim>),
    /// The smallest of some, in order; made by [`Dim::min_with`].
    Min(Vec<Dim>),
    /// The largest of some, in order; made by [`Dim::max_with`].
    Max(Vec<Dim>),
}

/// A product of factors with non-zero exponents; the empty product is 1.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Monomial(pub BTreeMap<Factor, i32>);

impl Monomial {
    pub(super) fn mul(&self, o: &Monomial) -> Monomial {
        let mut out = self.0.clone();
        for (f, e) in &o.0 {
            let slot = out.entry(f.clone()).or_insert(0);
            *slot = slot.saturating_add(*e);
            if *slot == 0 {
                out.remove(f);
            }
        }
        Monomial(out)
    }

    /// Is the product at least 0 by its form? Of opaque factors deeper than `depth` nothing is said.
    pub(super) fn is_nonnegative(&self, depth: usize, looks: &mut usize) -> bool {
        self.0.iter().all(|(f, e)| e % 2 == 0 || f.is_nonnegative(depth, looks))
    }

    pub(super) fn inverse(&self) -> Monomial {
        Monomial(self.0.iter().map(|(f, e)| (f.clone(), e.saturating_neg())).collect())
    }
}

/// An integer coefficient and factors with positive exponents.
pub type Product = (i128, Vec<(Factor, u32)>);

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

/// A dimension expression in canonical form. Two dimensions are equal exactly if their forms are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Dim {
    /// Shared, for dimensions are copied far more often than made.
    terms: Arc<BTreeMap<Monomial, Ratio>>,
}

impl PartialOrd for Dim {
    fn partial_cmp(&self, o: &Dim) -> Option<std::cmp::Ordering> {
        Some(self.cmp(o))
    }
}

/// An arbitrary but fixed order, for sorted containers; it says nothing about sizes.
impl Ord for Dim {
    fn cmp(&self, o: &Dim) -> std::cmp::Ordering {
        if Arc::ptr_eq(&self.terms, &o.terms) {
            return std::cmp::Ordering::Equal;
        }
        fn key<'a>((m, r): (&'a Monomial, &'a Ratio)) -> (&'a Monomial, i128, i128) {
            (m, r.num, r.den)
        }
        self.terms.iter().map(key).cmp(o.terms.iter().map(key))
    }
}

impl From<i64> for Dim {
    fn from(n: i64) -> Dim {
        Dim::of_term(Monomial::default(), Ratio::int(i128::from(n)))
    }
}

impl Dim {
    /// The named dimension.
    pub fn symbol(name: &str) -> Dim {
        Dim::factor(Factor::Symbol(Arc::from(name)))
    }

    /// The number 0.
    pub fn zero() -> Dim {
        Dim::default()
    }

    /// The number 1.
    pub fn one() -> Dim {
        Dim::from(1)
    }

    pub(super) fn factor(f: Factor) -> Dim {
        Dim::of_term(Monomial(BTreeMap::from([(f, 1)])), Ratio::int(1))
    }

    /// One term.
    pub(super) fn of_term(m: Monomial, r: Ratio) -> Dim {
        let mut terms = BTreeMap::new();
        if r.num != 0 {
            terms.insert(m, r);
        }
        Dim { terms: Arc::new(terms) }
    }

    /// A number times a product of factors.
    pub fn term(product: Monomial, coefficient: i128) -> Dim {
        Dim::of_term(product, Ratio::int(coefficient)).bounded()
    }

    /// The terms, in canonical order.
    pub fn terms(&self) -> impl Iterator<Item = (&Monomial, &Ratio)> {
        self.terms.iter()
    }

    /// The value if it is an integer that fits `i64`.
    pub fn as_const(&self) -> Option<i64> {
        match self.terms.len() {
            0 => Some(0),
            1 => {
                let (m, r) = self.terms.iter().next()?;
                if m.0.is_empty() && r.den == 1 { i64::try_from(r.num).ok() } else { None }
            }
            _ => None,
        }
    }

    /// Is this a number, without symbols?
    pub fn is_const(&self) -> bool {
        self.terms.keys().all(|m| m.0.is_empty())
    }

    /// The name if this is a bare symbol.
    pub fn as_symbol(&self) -> Option<&str> {
        let (m, r) = self.terms.iter().next()?;
        let (f, e) = m.0.iter().next()?;
        match f {
            Factor::Symbol(s) if self.terms.len() == 1 && m.0.len() == 1 && *e == 1 && *r == Ratio::int(1) => Some(s),
            _ => None,
        }
    }

    /// If this is `c * S + k` with integers `c != 0` and `k`: the symbol, `c` and `k`.
    pub fn as_linear(&self) -> Option<(&str, i64, i64)> {
        let (mut symbol, mut c, mut k) = (None, 0, 0);
        for (m, r) in self.terms.iter() {
            if r.den != 1 {
                return None;
            }
            let n = i64::try_from(r.num).ok()?;
            match m.0.iter().next() {
                None => k = n,
                Some((Factor::Symbol(s), 1)) if m.0.len() == 1 && symbol.is_none() => {
                    symbol = Some(&**s);
                    c = n;
                }
                Some(_) => return None,
            }
        }
        symbol.map(|s| (s, c, k))
    }

    /// If this is `factor * name + rest`, both without the name: the factor, which is one term, and the rest.
    pub fn linear_in(&self, name: &str) -> Option<(Dim, Dim)> {
        let symbol = Factor::Symbol(Arc::from(name));
        let mut with = self.terms.iter().filter(|(m, _)| m.0.contains_key(&symbol));
        let (m, r) = with.next().filter(|_| with.next().is_none()).filter(|(m, _)| m.0.get(&symbol) == Some(&1))?;
        let mut factor = m.clone();
        factor.0.remove(&symbol);
        let (factor, rest) = (Dim::of_term(factor, *r), self.sub(&Dim::of_term(m.clone(), *r)));
        let free = |d: &Dim| d.symbols().iter().all(|s| &**s != name);
        (free(&factor) && free(&rest)).then_some((factor, rest))
    }

    /// Sum. Of a form that is too long it is too long, as are all results below: such a form equals nothing, itself included.
    pub fn add(&self, o: &Dim) -> Dim {
        if self.is_too_long() || o.is_too_long() {
            return Dim::too_long();
        }
        let mut terms = (*self.terms).clone();
        for (m, r) in o.terms.iter() {
            let slot = terms.entry(m.clone()).or_insert(Ratio::int(0));
            *slot = slot.add(*r);
            if slot.num == 0 {
                terms.remove(m);
            }
        }
        Dim { terms: Arc::new(terms) }.bounded()
    }

    /// Numbers and names in the form, those of opaque quotients included.
    pub(super) fn weight(&self) -> usize {
        let factor = |f: &Factor| f.inner().iter().map(|d| d.weight()).fold(1, usize::saturating_add);
        let term = |m: &Monomial| m.0.keys().map(factor).fold(1, usize::saturating_add);
        self.terms.keys().map(term).fold(0, usize::saturating_add)
    }

    /// The form itself, or the unknown if it is too long.
    pub(super) fn bounded(self) -> Dim {
        let high = |m: &Monomial| m.0.values().any(|e| e.unsigned_abs() > MAX_POWER);
        if self.weight() > MAX_WEIGHT || self.terms.keys().any(high) { Dim::too_long() } else { self }
    }

    /// Did the form, or a part of it, grow beyond what is kept? Then it has no value, and equals nothing for certain.
    pub fn is_too_long(&self) -> bool {
        self.terms.keys().any(|m| {
            m.0.keys().any(|f| match f {
                Factor::Symbol(s) => &**s == TOO_LONG,
                _ => f.inner().iter().any(|d| d.is_too_long()),
            })
        })
    }

    /// Negation.
    pub fn neg(&self) -> Dim {
        self.mul(&Dim::from(-1))
    }

    /// Difference.
    pub fn sub(&self, o: &Dim) -> Dim {
        self.add(&o.neg())
    }

    /// Product.
    pub fn mul(&self, o: &Dim) -> Dim {
        // Most are numbers, or multiplied by one.
        match (self.as_const(), o.as_const()) {
            (Some(1), _) => return o.clone(),
            (_, Some(1)) => return self.clone(),
            (Some(a), Some(b)) => return Dim::term(Monomial::default(), i128::from(a).saturating_mul(i128::from(b))),
            _ => {}
        }
        let products = self.terms.len().saturating_mul(o.terms.len());
        if products > MAX_PRODUCTS || self.is_too_long() || o.is_too_long() {
            return Dim::too_long();
        }
        let mut terms: BTreeMap<Monomial, Ratio> = BTreeMap::new();
        for (m, r) in self.terms.iter() {
            for (n, s) in o.terms.iter() {
                let slot = terms.entry(m.mul(n)).or_insert(Ratio::int(0));
                *slot = slot.add(r.mul(*s));
            }
        }
        terms.retain(|_, r| r.num != 0);
        Dim { terms: Arc::new(terms) }.bounded()
    }

    /// Product of many.
    pub fn product<'a>(dims: impl IntoIterator<Item = &'a Dim>) -> Dim {
        let (mut number, mut rest) = (1_i128, Dim::one());
        for d in dims {
            match d.as_const() {
                Some(n) => number = number.saturating_mul(i128::from(n)),
                None => rest = rest.mul(d),
            }
        }
        rest.mul(&Dim::term(Monomial::default(), number))
    }

    /// Every symbol, in order of name, each once.
    pub fn symbols(&self) -> Vec<Arc<str>> {
        fn walk(d: &Dim, out: &mut Vec<Arc<str>>) {
            for m in d.terms.keys() {
                for f in m.0.keys() {
                    match f {
                        Factor::Symbol(s) => out.push(s.clone()),
                        _ => f.inner().into_iter().for_each(|d| walk(d, out)),
                    }
                }
            }
        }
        let mut out = Vec::new();
        walk(self, &mut out);
        out.sort();
        out.dedup();
        out
    }

    /// Replaces symbols; `None` from `f` leaves a symbol as it is. `None` if a divisor becomes zero.
    pub fn substitute(&self, f: &dyn Fn(&str) -> Option<Dim>) -> Option<Dim> {
        let mut out = Dim::zero();
        for (m, r) in self.terms.iter() {
            let mut t = Dim::of_term(Monomial::default(), *r);
            for (factor, e) in &m.0 {
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

    /// Value under a binding of the symbols. Every step is checked, in the order in which compiled models evaluate the
    /// form ([`Dim::as_fraction`]), so that both refuse the same calls.
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
        let product = |(coefficient, factors): &Product| -> Result<i64, DimError> {
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

    /// How large the numbers in the form are: the sum of its coefficients' magnitudes, which is what the form is worth at
    /// most where every symbol is 1.
    pub fn magnitude(&self) -> i128 {
        let inner = |m: &Monomial| {
            let of = |f: &Factor| f.inner().iter().map(|d| d.magnitude()).max().unwrap_or(0);
            m.0.keys().map(of).max().unwrap_or(0)
        };
        let term = |(m, r): (&Monomial, &Ratio)| r.num.saturating_abs().max(r.den).max(inner(m));
        self.terms.iter().map(term).fold(0, i128::saturating_add)
    }

    /// Can `self >= 0` be seen from the form alone, all symbols being at least 0? Not of one that is too long.
    pub fn is_provably_nonnegative(&self) -> bool {
        self.is_nonnegative(&mut MOST_LOOKS.clone())
    }

    /// [`Dim::is_provably_nonnegative`], with as many factors looked at as there are `looks` left.
    pub(super) fn is_nonnegative(&self, looks: &mut usize) -> bool {
        !self.is_too_long() && self.lacking(MOST_NESTED, looks).is_none()
    }

    /// A term that may be negative. The numbers are looked at before the factors.
    pub(super) fn lacking(&self, depth: usize, looks: &mut usize) -> Option<&Monomial> {
        let negative = self.terms.iter().find(|(_, r)| r.num < 0);
        negative.map(|(m, _)| m).or_else(|| self.terms.keys().find(|m| !m.is_nonnegative(depth, looks)))
    }

    /// Are the numbers small enough that adding another such form does not saturate?
    pub(super) fn is_exact(&self) -> bool {
        let small = |r: &Ratio| r.num.saturating_abs() < EXACT_NUMERATOR && r.den < EXACT_DENOMINATOR;
        self.terms.values().all(small)
    }

    /// What stands for a form that is too long.
    pub(super) fn too_long() -> Dim {
        Dim::symbol(TOO_LONG)
    }

    /// Can `self <= o` be seen from the forms alone? Not of forms that are too long.
    pub fn at_most_by_form(&self, o: &Dim) -> bool {
        self.is_exact() && o.is_exact() && o.sub(self).is_provably_nonnegative()
    }

    /// Is it a multiple of `n` whatever its symbols are, as its form shows?
    pub fn is_multiple_of(&self, n: i64) -> bool {
        let (terms, divisor) = self.as_fraction();
        n != 0 && divisor == (1, Vec::new()) && terms.iter().all(|(c, _)| c % i128::from(n) == 0)
    }

    /// As one fraction: integer-coefficient numerator terms and a one-term divisor, for code that evaluates dimensions
    /// (`numerator / divisor` is exact). Terms are `(coefficient, factors with positive exponents)`.
    pub fn as_fraction(&self) -> (Vec<Product>, Product) {
        let mut den: BTreeMap<Factor, i32> = BTreeMap::new();
        let mut lcm: i128 = 1;
        for (m, r) in self.terms.iter() {
            lcm = (lcm / gcd(lcm, r.den)).saturating_mul(r.den);
            for (f, e) in &m.0 {
                if *e < 0 {
                    let slot = den.entry(f.clone()).or_insert(0);
                    *slot = (*slot).max(-*e);
                }
            }
        }
        let scale = Monomial(den.clone());
        let numerator = self
            .terms
            .iter()
            .map(|(m, r)| {
                let m = m.mul(&scale);
                (
                    r.num.saturating_mul(lcm / r.den),
                    m.0.into_iter().map(|(f, e)| (f, e.unsigned_abs())).collect::<Vec<_>>(),
                )
            })
            .collect();
        (numerator, (lcm, den.into_iter().map(|(f, e)| (f, e.unsigned_abs())).collect()))
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
                let up = **b != Dim::one() && x.constant() == 0 && x.terms().next().is_some();
                if up && x.terms().count() <= a.terms().count() {
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

/// `k * (a % b)` in a form: `k`, `a`, `b`, and the rest, which is shorter.
fn remainder(d: &Dim) -> Option<(i128, Dim, Dim, Dim)> {
    let floors = d.terms.keys().flat_map(|m| m.0.keys()).filter(|f| matches!(f, Factor::Floor(..)));
    floors.into_iter().find_map(|factor| {
        let Factor::Floor(a, b) = factor else { return None };
        let mut terms = b.terms.iter();
        let (m, r) = terms.next().filter(|_| terms.next().is_none())?;
        let at = m.mul(&Monomial(BTreeMap::from([(factor.clone(), 1)])));
        let c = d.terms.get(&at).filter(|c| c.den == 1 && r.den == 1 && r.num != 0 && c.num % r.num == 0)?;
        let k = c.num.checked_div(r.num)?.checked_neg().filter(|k| *k > 0)?;
        let whole = a.sub(&b.mul(&Dim::factor(factor.clone())));
        let rest = d.sub(&whole.mul(&Dim::term(Monomial::default(), k)));
        (rest.terms.len() < d.terms.len()).then(|| (k, (**a).clone(), (**b).clone(), rest))
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

/// Prints as an author would write it (`3*D`, `D/H`, `S+1`, `(S+1)/2`); the text reads back to the same form.
impl fmt::Display for Dim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.terms.is_empty() {
            return f.write_str("0");
        }
        if let Some((k, a, b, rest)) = remainder(self) {
            let grouped = |d: &Dim| {
                if d.terms.len() > 1 || d.as_symbol().is_none() && !d.is_const() {
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
