//! Evaluates dimensions in a kernel: expressions over its run-time dimensions, in 64 bits.
//!
//! In: a dimension. Out: a register or a constant.

use super::kernel::Code;
use crate::ptx::words::Compare;
use crate::ptx::{Op as P, Operand, Type as PtxType};
use crate::shape::{Dim, Factor};

impl Code<'_> {
    /// Evaluates a dimension.
    pub(super) fn dim(&mut self, d: &Dim) -> Result<Operand, String> {
        if let Some(n) = d.as_const() {
            return Ok(Operand::Int(n));
        }
        let (terms, (divisor, factors)) = d.as_fraction();
        let mut sum = Operand::Int(0);
        for (coefficient, factors) in &terms {
            let term = self.product(*coefficient, factors)?;
            sum = self.e.add("dim", PtxType::S64, &sum, &term);
        }
        if divisor == 1 && factors.is_empty() {
            return Ok(sum);
        }
        let divisor = self.product(divisor, &factors)?;
        Ok(self.divide_exactly(&sum, &divisor))
    }

    /// A division known to be exact; by zero (a dimension of size 0) it yields zero.
    fn divide_exactly(&mut self, x: &Operand, y: &Operand) -> Operand {
        let ty = PtxType::S64;
        if let Operand::Int(n) = y
            && *n != 0
        {
            return self.e.make("dim", P::Div { ty }, ty, &[x.clone(), y.clone()]);
        }
        let is_zero = self.e.compare("zero", Compare::Eq, ty, y, &Operand::Int(0));
        let safe = self.e.select("divisor", ty, &is_zero, &Operand::Int(1), y);
        let q = self.e.make("q", P::Div { ty }, ty, &[x.clone(), safe]);
        self.e.select("dim", ty, &is_zero, &Operand::Int(0), &q)
    }

    fn product(&mut self, coefficient: i128, factors: &[(Factor, u32)]) -> Result<Operand, String> {
        let ty = PtxType::S64;
        let n = i64::try_from(coefficient).map_err(|_| "a coefficient of a dimension is too large")?;
        let mut out = Operand::Int(n);
        for (f, exponent) in factors {
            let x = match f {
                Factor::Symbol(s) => {
                    self.symbols.get(&**s).cloned().ok_or_else(|| format!("the dimension {s} is not known"))?
                }
                Factor::Quotient(a, b) => {
                    let (a, b) = (self.dim(a)?, self.dim(b)?);
                    self.divide_exactly(&a, &b)
                }
                Factor::Floor(a, b) => {
                    // The entry point has checked that the divisor is at least 1; else the result
                    // is unspecified.
                    let (a, b) = (self.dim(a)?, self.dim(b)?);
                    self.e.divide("dim", ty, &a, &b).0
                }
                Factor::Min(all) | Factor::Max(all) => {
                    let op = if matches!(f, Factor::Min(_)) { P::Min { ty } } else { P::Max { ty } };
                    let mut found: Option<Operand> = None;
                    for d in all {
                        let d = self.dim(d)?;
                        found = Some(match found {
                            None => d,
                            Some(x) => self.e.make("dim", op, ty, &[x, d]),
                        });
                    }
                    found.ok_or("a `min` or `max` without dimensions")?
                }
            };
            for _ in 0..*exponent {
                out = self.e.mul("dim", ty, &out, &x);
            }
        }
        Ok(out)
    }
}
