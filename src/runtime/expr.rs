//! Dimension expressions in the form that the runtime evaluates: postfix programs over run-time
//! dimensions.
//!
//! In: a [`Dim`] and the order of an entry's run-time dimensions. Out: an [`Expr`], whose
//! operations are stored in the descriptor unchanged. The support library evaluates them
//! (`support/expr.rs`), checking every operation for overflow.

use super::abi::{ExprOp, op};
use crate::shape::{Dim, Factor};

/// Maximum nesting of quotients in [`Expr::from_dim`].
const MAX_NESTING: u32 = 64;

/// A postfix program with one result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expr {
    ops: Vec<ExprOp>,
}

impl Expr {
    /// A constant.
    pub fn constant(value: i64) -> Expr {
        Expr { ops: vec![ExprOp { op: op::CONST, value }] }
    }

    /// The run-time dimension with this index.
    pub fn symbol(index: usize) -> Expr {
        Expr { ops: vec![ExprOp { op: op::SYMBOL, value: i64::try_from(index).unwrap_or(i64::MAX) }] }
    }

    fn then(mut self, mut right: Expr, op: i64) -> Expr {
        self.ops.append(&mut right.ops);
        self.ops.push(ExprOp { op, value: 0 });
        self
    }

    /// `self + right`.
    pub fn plus(self, right: Expr) -> Expr {
        self.then(right, op::ADD)
    }

    /// `self - right`.
    pub fn minus(self, right: Expr) -> Expr {
        self.then(right, op::SUB)
    }

    /// `self * right`.
    pub fn times(self, right: Expr) -> Expr {
        self.then(right, op::MUL)
    }

    /// `self / right`, an error at run time if there is a remainder.
    pub fn div_exact(self, right: Expr) -> Expr {
        self.then(right, op::DIV_EXACT)
    }

    /// `self / right`, rounded down.
    pub fn div_floor(self, right: Expr) -> Expr {
        self.then(right, op::DIV_FLOOR)
    }

    /// Remainder of [`Expr::div_floor`].
    pub fn modulo(self, right: Expr) -> Expr {
        self.then(right, op::MOD)
    }

    /// The smaller of the two.
    pub fn min(self, right: Expr) -> Expr {
        self.then(right, op::MIN)
    }

    /// The larger of the two.
    pub fn max(self, right: Expr) -> Expr {
        self.then(right, op::MAX)
    }

    /// `self` rounded up to a multiple of `step` (at least 1), for buffer sizes in an arena.
    pub fn round_up(self, step: i64) -> Expr {
        let step = step.max(1);
        self.plus(Expr::constant(step - 1)).div_floor(Expr::constant(step)).times(Expr::constant(step))
    }

    /// Translates `dim`; symbols are numbered by their index in `symbols`. `None` if a symbol is
    /// missing, a coefficient does not fit, or quotients are nested too deeply.
    pub fn from_dim(dim: &Dim, symbols: &[impl AsRef<str>]) -> Option<Expr> {
        Expr::of_dim(dim, symbols, MAX_NESTING)
    }

    fn of_dim(dim: &Dim, symbols: &[impl AsRef<str>], depth: u32) -> Option<Expr> {
        let depth = depth.checked_sub(1)?;
        let product = |coefficient: i128, factors: &[(Factor, u32)]| -> Option<Expr> {
            let coefficient = i64::try_from(coefficient).ok()?;
            let mut product = (coefficient != 1).then(|| Expr::constant(coefficient));
            for (factor, exponent) in factors {
                let factor = match factor {
                    Factor::Symbol(name) => Expr::symbol(symbols.iter().position(|s| s.as_ref() == &**name)?),
                    Factor::Quotient(a, b) => {
                        Expr::of_dim(a, symbols, depth)?.div_exact(Expr::of_dim(b, symbols, depth)?)
                    }
                    Factor::Floor(a, b) => Expr::of_dim(a, symbols, depth)?.div_floor(Expr::of_dim(b, symbols, depth)?),
                    Factor::Min(all) | Factor::Max(all) => {
                        let least = matches!(factor, Factor::Min(_));
                        let mut exprs = all.iter().map(|d| Expr::of_dim(d, symbols, depth));
                        let first = exprs.next()??;
                        exprs.try_fold(first, |a, b| Some(if least { a.min(b?) } else { a.max(b?) }))?
                    }
                };
                for _ in 0..*exponent {
                    product = Some(match product {
                        None => factor.clone(),
                        Some(p) => p.times(factor.clone()),
                    });
                }
            }
            Some(product.unwrap_or(Expr::constant(1)))
        };
        let (terms, (divisor, divisor_factors)) = dim.as_fraction();
        let mut sum: Option<Expr> = None;
        for (coefficient, factors) in &terms {
            let term = product(*coefficient, factors)?;
            sum = Some(match sum {
                None => term,
                Some(s) => s.plus(term),
            });
        }
        let sum = sum.unwrap_or(Expr::constant(0));
        if divisor == 1 && divisor_factors.is_empty() {
            return Some(sum);
        }
        Some(sum.div_exact(product(divisor, &divisor_factors)?))
    }

    /// The operations in postfix order.
    pub fn ops(&self) -> &[ExprOp] {
        &self.ops
    }

    /// Does the program respect the stack limit, leave exactly one value, and use only `symbols`
    /// run-time dimensions?
    pub fn is_well_formed(&self, symbols: usize) -> bool {
        let mut depth = 0usize;
        for o in &self.ops {
            match o.op {
                op::CONST => depth += 1,
                op::SYMBOL if usize::try_from(o.value).is_ok_and(|i| i < symbols) => depth += 1,
                op::ADD..=op::MAX if depth >= 2 => depth -= 1,
                _ => return false,
            }
            if depth > op::STACK {
                return false;
            }
        }
        depth == 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dimensions_become_postfix() {
        let (s, d, h) = (Dim::symbol("S"), Dim::symbol("D"), Dim::symbol("H"));
        let dim = s.mul(&d).div(&h).unwrap().add(&Dim::from(3));
        let e = Expr::from_dim(&dim, &["S", "D", "H"]).unwrap();
        assert!(e.is_well_formed(3));
        assert!(!e.is_well_formed(2));
        assert!(Expr::from_dim(&dim, &["S", "D"]).is_none());
        assert_eq!(Expr::from_dim(&Dim::zero(), &["S"]), Some(Expr::constant(0)));
        assert_eq!(Expr::from_dim(&s, &["S"]), Some(Expr::symbol(0)));
        let opaque = s.div(&d.add(&h)).unwrap();
        assert!(Expr::from_dim(&opaque, &["S", "D", "H"]).unwrap().is_well_formed(3));
    }

    #[test]
    fn ill_formed_programs_are_seen() {
        let deep = (0..40).fold(Expr::constant(0), |e, _| Expr::constant(1).plus(e));
        assert!(!deep.is_well_formed(0));
        assert!(Expr::constant(5).round_up(64).is_well_formed(0));
        assert!(!Expr { ops: vec![] }.is_well_formed(0));
    }
}
