//! Upper bounds of products of dimensions, derived from what every entry point checks.
//!
//! In: types of arguments, whose bytes are at most 2^[`ADDRESS_BITS`] with zero extents counted as
//! ones, and dimensions that a call evaluates with every step checked. Out: an upper bound of the
//! absolute value of a dimension and of each product in it.

use std::collections::BTreeMap;

use super::{Dim, Factor, Monomial, TensorType};

/// No machine addresses more than 2^47 bytes; larger arguments are rejected on entry.
pub const ADDRESS_BITS: u32 = 47;

/// Known bounds of dimensions. No dimension exceeds an `i64`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sizes {
    /// For each argument, the product of its symbolic extents, and its size in bytes where that
    /// product is 1.
    arguments: Vec<(Monomial, i128)>,
    /// Upper bounds of symbols.
    symbols: BTreeMap<String, i128>,
    /// Upper bounds of the absolute values of products.
    products: BTreeMap<Monomial, i128>,
    /// Upper bounds of the absolute values of whole dimensions.
    forms: BTreeMap<Dim, i128>,
}

impl Sizes {
    /// Adds the bounds that the checks of an argument imply.
    pub fn argument(&mut self, ty: &TensorType) {
        for d in &ty.shape {
            // A power of a symbol and a number: `c * S^e + k`.
            let (k, (m, c)) = match d.terms() {
                [term] => (0, term),
                [(one, k), term] if one.is_one() => (*k, term),
                _ => continue,
            };
            if d.denominator() == 1 && *c >= 1 {
                self.power(m, (1i128 << ADDRESS_BITS).saturating_sub(k) / c);
            }
        }
        self.arguments.push(smallest(ty));
    }

    /// Adds an upper bound of a symbol.
    pub fn symbol(&mut self, name: &str, most: i128) {
        let slot = self.symbols.entry(name.to_string()).or_insert(most);
        *slot = (*slot).min(most).max(0);
    }

    /// If a product is a power of a symbol, adds the bound of that symbol which a bound of the
    /// product implies.
    fn power(&mut self, product: &Monomial, most: i128) {
        if let [(Factor::Symbol(name), e)] = product.factors()
            && let Ok(e @ 1..) = u32::try_from(*e)
        {
            self.symbol(name, root(most.max(0), e));
        }
    }

    /// Adds an upper bound of the absolute value of a dimension and of the products that it sums.
    pub fn evaluated(&mut self, d: &Dim, most: i128) {
        let slot = self.forms.entry(d.clone()).or_insert(most);
        *slot = (*slot).min(most);
        for (coefficient, factors) in d.as_fraction().0 {
            let powers = factors.into_iter().map(|(f, e)| (f, i32::try_from(e).unwrap_or(i32::MAX)));
            let product: Monomial = powers.collect();
            if product.is_one() {
                continue;
            }
            let most = most / coefficient.saturating_abs().max(1);
            self.power(&product, most);
            let slot = self.products.entry(product).or_insert(most);
            *slot = (*slot).min(most);
        }
    }

    /// The bounds that concern these symbols only.
    pub fn only(&self, symbols: &[String]) -> Sizes {
        let named = |d: &Dim| d.symbols().iter().all(|s| symbols.iter().any(|own| **own == **s));
        let known = |f: &Factor| named(&Dim::factor(f.clone()));
        let forms = self.forms.iter().filter(|(d, _)| named(d));
        let forms = forms.map(|(d, most)| (d.clone(), *most)).collect();
        let arguments = self.arguments.iter().map(|(m, bytes)| {
            // Factors that are left out count as 1.
            let kept = m.factors().iter().filter(|(f, _)| known(f));
            (kept.cloned().collect::<Monomial>(), *bytes)
        });
        let mut arguments: Vec<(Monomial, i128)> = arguments.filter(|(m, _)| !m.is_one()).collect();
        arguments.sort();
        arguments.dedup();
        let named = self.symbols.iter().filter(|(name, _)| symbols.contains(name));
        let products = self.products.iter().filter(|(m, _)| m.variables().all(known));
        Sizes {
            arguments,
            symbols: named.map(|(name, most)| (name.clone(), *most)).collect(),
            products: products.map(|(m, most)| (m.clone(), *most)).collect(),
            forms,
        }
    }

    /// An upper bound of the absolute values of a dimension and all its intermediate results;
    /// `i128::MAX` if unknown.
    pub fn bound(&self, d: &Dim) -> i128 {
        if d.is_too_long() {
            return i128::MAX;
        }
        let (terms, divisor) = d.as_fraction();
        let size = |(coefficient, factors): &(i128, Vec<(Factor, u32)>)| {
            let powers = factors.iter().map(|(f, e)| (f.clone(), i32::try_from(*e).unwrap_or(i32::MAX)));
            coefficient.saturating_abs().saturating_mul(self.product(&powers.collect()))
        };
        let sum = terms.iter().map(size).fold(0, i128::saturating_add);
        let known = self.forms.get(d).copied().unwrap_or(i128::MAX);
        sum.max(size(&divisor)).min(known)
    }

    /// Can the dimension certainly be computed in 64 bits?
    pub fn fits(&self, d: &Dim) -> bool {
        self.bound(d) <= i128::from(i64::MAX)
    }

    /// An upper bound of the absolute value of a product. Its divisors are at least 1.
    pub fn product(&self, m: &Monomial) -> i128 {
        let m: Monomial = m.factors().iter().filter(|(_, e)| *e > 0).cloned().collect();
        let mut most = self.by_factors(&m);
        for (known, size) in &self.products {
            if let Some(rest) = m.over(known).filter(|_| is_part(known, &m)) {
                most = most.min(size.saturating_mul(self.by_factors(&rest)));
            }
        }
        most
    }

    fn by_factors(&self, m: &Monomial) -> i128 {
        let power = |(f, e): &(Factor, i32)| {
            let own = self.factor(f);
            (0..*e).try_fold(1i128, |product, _| product.checked_mul(own)).unwrap_or(i128::MAX)
        };
        let alone = m.factors().iter().map(power).fold(1, i128::saturating_mul);
        let inside = self.arguments.iter().filter(|(of, _)| is_part(m, of));
        inside.map(|(_, bytes)| (1i128 << ADDRESS_BITS) / bytes).fold(alone, i128::min)
    }

    fn factor(&self, f: &Factor) -> i128 {
        let largest = |all: &[Dim]| all.iter().map(|d| self.bound(d)).max().unwrap_or(0);
        let most = match f {
            Factor::Symbol(name) => self.symbols.get(&**name).copied().unwrap_or(i128::from(i64::MAX)),
            // Divisors are at least 1; for smaller ones the machine's result is not larger either.
            Factor::Quotient(a, b) | Factor::Floor(a, b) if self.fits(b) => self.bound(a),
            Factor::Quotient(..) | Factor::Floor(..) => i128::MAX,
            Factor::Min(all) | Factor::Max(all) => largest(all),
        };
        // A value that does not fit may wrap to any 64-bit value.
        if most > i128::from(i64::MAX) { i128::MAX } else { most }
    }

    /// An upper bound of a term in multiples of 2^[`ADDRESS_BITS`] bytes, from an argument whose
    /// extents contain its factors.
    pub fn times_an_argument(&self, m: &Monomial, coefficient: i128) -> Option<i128> {
        let coefficient = coefficient.saturating_abs();
        if m.is_one() {
            return Some(coefficient >> ADDRESS_BITS);
        }
        let times = |bytes: &i128| coefficient.saturating_add(bytes - 1) / bytes;
        self.arguments.iter().filter(|(of, _)| is_part(m, of)).map(|(_, bytes)| times(bytes)).min()
    }
}

/// The largest 64-bit number whose `e`-th power is at most `most`.
fn root(most: i128, e: u32) -> i128 {
    let fits = |n: i128| n.checked_pow(e).is_some_and(|power| power <= most);
    let (mut low, mut high) = (0, i128::from(i64::MAX));
    while low < high {
        let middle = low + (high - low + 1) / 2;
        if fits(middle) { low = middle } else { high = middle - 1 }
    }
    low
}

/// Does `of` contain all factors of `m`?
fn is_part(m: &Monomial, of: &Monomial) -> bool {
    m.factors().iter().all(|(factor, e)| of.factors().iter().any(|(own, most)| factor == own && e <= most))
}

/// The minimum memory of an argument of this type: the powers of its symbols, and its size in bytes
/// where these are 1.
fn smallest(ty: &TensorType) -> (Monomial, i128) {
    let mut powers = Vec::new();
    let mut bytes = i128::from(ty.elem.size()).max(1);
    for d in &ty.shape {
        if let Some(n) = d.as_const() {
            bytes = bytes.saturating_mul(i128::from(n.max(1)));
            continue;
        }
        // Each term is a lower bound if no term is negative.
        let whole = d.is_polynomial() && d.terms().iter().all(|(_, c)| *c >= 0);
        // A single factor: where it is 0, so is the product.
        let power = d.terms().iter().find_map(|(m, _)| match m.factors() {
            [power] if power.0.is_provably_nonnegative() => Some(power),
            _ => None,
        });
        powers.extend(power.filter(|_| whole).cloned());
    }
    (powers.into_iter().collect(), bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shape::Elem;

    #[test]
    fn what_entries_check_bounds_products() {
        let (s, t) = (Dim::symbol("S"), Dim::symbol("T"));
        let mut sizes = Sizes::default();
        assert!(sizes.fits(&s) && !sizes.fits(&s.add(&Dim::one())) && !sizes.fits(&s.mul(&t)));
        sizes.argument(&TensorType::new(Elem::F32, vec![s.clone(), t.clone()]));
        assert_eq!(sizes.bound(&s.mul(&t)), 1 << 45);
        assert!(sizes.fits(&s.mul(&t).mul(&Dim::from(1 << 17))) && !sizes.fits(&s.mul(&t).mul(&Dim::from(1 << 18))));
        // Negative coefficients, and nested expressions.
        assert!(!sizes.fits(&s.mul(&Dim::from(i64::MIN))) && !sizes.fits(&s.mul(&s)));
        let half = s.mul(&s).floor_div(&t.add(&Dim::one())).unwrap();
        assert!(!sizes.fits(&half));
        sizes.evaluated(&s.mul(&s).mul(&Dim::from(4)), i128::from(i64::MAX));
        assert!(sizes.fits(&s.mul(&s).mul(&Dim::from(4))) && !sizes.fits(&s.mul(&s).mul(&Dim::from(5))));
        assert!(sizes.fits(&half));
        // A dimension that is larger than the extent of the argument.
        let mut shifted = Sizes::default();
        shifted.argument(&TensorType::new(Elem::F32, vec![s.sub(&Dim::from(1 << 62))]));
        assert!(!shifted.fits(&s.mul(&Dim::from(2))) && shifted.fits(&s));
        assert_eq!(sizes.only(&["T".to_string()]).bound(&t), 1 << 45);
        assert!(!sizes.only(&["T".to_string()]).fits(&s.mul(&Dim::from(2))));
    }
}
