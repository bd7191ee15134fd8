//! Checks on entry: the preconditions of a call.
//!
//! In: an entry point and host tensors. Out: arrays of the declared types with leading axes
//! collapsed, and the value of each symbol; or an error. [`Batches::leave`] restores the leading
//! axes of results.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::array::Array;
use super::elementwise::range;
use super::{EvalError, Real};
use crate::ir::{ArgDecl, Function, Loc, ResultDecl};
use crate::shape::{ADDRESS_BITS, Dim, DimError, Elem, Fact};
use crate::tensor::Tensor;

pub(super) type Symbols = BTreeMap<Arc<str>, i64>;

/// The leading axes that were collapsed into each dimension.
pub(super) struct Batches(BTreeMap<Dim, Vec<usize>>);

/// A call whose arguments were checked.
pub(super) struct Entered<F> {
    pub args: Vec<Array<F>>,
    pub symbols: Symbols,
    pub batches: Batches,
}

/// The value of a dimension, which must not be negative.
pub(super) fn extent(d: &Dim, symbols: &Symbols) -> Result<usize, EvalError> {
    let n = value(d, symbols)?;
    usize::try_from(n).map_err(|_| EvalError::new(format!("the dimension {d} is {n}")))
}

/// The value of a dimension expression.
pub(super) fn value(d: &Dim, symbols: &Symbols) -> Result<i64, EvalError> {
    if let Some(n) = d.as_const() {
        return Ok(n);
    }
    d.eval(&|s| symbols.get(s).copied()).map_err(|e| {
        EvalError::new(match e {
            DimError::Unbound(s) => format!("the dimension {s} is not fixed by the arguments"),
            DimError::NotWhole => format!("the dimension {d} is not an integer"),
            DimError::DivisionByZero => format!("the dimension {d} divides by zero"),
            DimError::Overflow => format!("the dimension {d} is too large"),
        })
    })
}

/// Checks the arguments and binds the symbols; `checks` are the facts that the call must satisfy.
pub(super) fn enter<F: Real>(f: &Function, checks: &[(Fact, Loc)], args: &[Tensor]) -> Result<Entered<F>, EvalError> {
    if args.len() != f.args.len() {
        return Err(EvalError::new(format!("`{}` takes {} arguments, {} given", f.name, f.args.len(), args.len())));
    }
    let mut arrays = Vec::with_capacity(args.len());
    let mut batches: BTreeMap<Dim, Vec<usize>> = BTreeMap::new();
    for (t, decl) in args.iter().zip(&f.args) {
        let t = convert(t, decl)?;
        // Zeros count as ones, so that sizes derived from the extents of an argument fit 64 bits.
        let bytes = t.shape().iter().map(|n| (*n).max(1) as u64).try_fold(t.elem().size(), u64::checked_mul);
        if bytes.is_none_or(|n| n >> ADDRESS_BITS > 0) {
            return Err(wrong(decl, format!("has the shape {:?}, which is too large", t.shape())));
        }
        let fixed = decl.ty.rank() - usize::from(decl.batch);
        let fits = if decl.batch { t.shape().len() >= fixed } else { t.shape().len() == fixed };
        if !fits {
            let more = if decl.batch { " at least" } else { "" };
            return Err(wrong(decl, format!("has {} axes, not{more} {fixed}", t.shape().len())));
        }
        if decl.batch {
            let lead = &t.shape()[..t.shape().len() - fixed];
            let known = batches.entry(decl.ty.shape[0].clone()).or_default();
            *known = broadcast(known, lead).ok_or_else(|| {
                wrong(decl, format!("has leading axes {lead:?}, which do not fit {known:?} of another argument"))
            })?;
        }
        arrays.push(Array::from_tensor(&t));
    }
    for (a, decl) in arrays.iter_mut().zip(&f.args) {
        if decl.batch
            && let Some(lead) = batches.get(&decl.ty.shape[0])
        {
            let rest = a.shape[a.shape.len() + 1 - decl.ty.rank()..].to_vec();
            let full: Vec<usize> = lead.iter().chain(&rest).copied().collect();
            let collapsed: Vec<usize> = std::iter::once(lead.iter().product()).chain(rest).collect();
            *a = Array { shape: collapsed, ..a.broadcast(&full) };
        }
    }
    let symbols = solve(f, &arrays)?;
    for (a, decl) in arrays.iter().zip(&f.args) {
        for (axis, (d, n)) in decl.ty.shape.iter().zip(&a.shape).enumerate() {
            let wanted = value(d, &symbols)?;
            if i64::try_from(*n) != Ok(wanted) {
                let expected = if d.is_const() { d.to_string() } else { format!("{d}, which is {wanted}") };
                return Err(wrong(decl, format!("has extent {n} along axis {axis}, expected {expected}")));
            }
        }
    }
    for (fact, loc) in checks {
        check(fact, &symbols).map_err(|e| e.at(*loc))?;
    }
    Ok(Entered { args: arrays, symbols, batches: Batches(batches) })
}

fn wrong(decl: &ArgDecl, what: String) -> EvalError {
    EvalError::new(format!("the argument `{}: {}` {what}", decl.name, decl.ty))
}

/// Converts integers between `i32` and `i64` if they fit.
fn convert(t: &Tensor, decl: &ArgDecl) -> Result<Tensor, EvalError> {
    if t.elem() == decl.ty.elem {
        return Ok(t.clone());
    }
    if !matches!((t.elem(), decl.ty.elem), (Elem::I32, Elem::I64) | (Elem::I64, Elem::I32)) {
        return Err(wrong(decl, format!("has elements of type {}", t.elem())));
    }
    let (low, high) = range(decl.ty.elem);
    let values = t.to_i64();
    if let Some(n) = values.iter().find(|n| **n < low || **n > high) {
        return Err(wrong(decl, format!("has the element {n}, which is not an {}", decl.ty.elem)));
    }
    Tensor::from_ints(decl.ty.elem, t.shape().to_vec(), &values).ok_or_else(|| EvalError::internal("a tensor's size"))
}

/// NumPy's broadcasting rule; `None` if the shapes do not broadcast.
fn broadcast(a: &[usize], b: &[usize]) -> Option<Vec<usize>> {
    let rank = a.len().max(b.len());
    let at = |s: &[usize], i: usize| (i + s.len()).checked_sub(rank).map_or(1, |k| s[k]);
    (0..rank)
        .map(|i| match (at(a, i), at(b, i)) {
            (x, y) if x == y => Some(x),
            (1, y) => Some(y),
            (x, 1) => Some(x),
            _ => None,
        })
        .collect()
}

/// Solves `c * S + k = extent` for the symbols in the arguments' types.
fn solve<F>(f: &Function, arrays: &[Array<F>]) -> Result<Symbols, EvalError> {
    let mut symbols = Symbols::new();
    for (a, decl) in arrays.iter().zip(&f.args) {
        for (d, n) in decl.ty.shape.iter().zip(&a.shape) {
            let Some((s, c, k)) = d.as_linear() else { continue };
            let n = i64::try_from(*n).unwrap_or(i64::MAX);
            match n.checked_sub(k).map(|rest| (rest.checked_div(c), rest.checked_rem(c))) {
                Some((Some(v), Some(0))) if v >= 0 => {
                    symbols.entry(Arc::from(s)).or_insert(v);
                }
                _ => return Err(wrong(decl, format!("has an extent of {n}, expected {d}"))),
            }
        }
    }
    Ok(symbols)
}

/// Checks a fact under a binding of the symbols.
pub(super) fn check(fact: &Fact, symbols: &Symbols) -> Result<(), EvalError> {
    let at = |d: &Dim| value(d, symbols).map(Dim::from);
    let bound = Fact { left: at(&fact.left)?, relation: fact.relation, right: at(&fact.right)? };
    if bound.decide() == Some(true) {
        return Ok(());
    }
    Err(EvalError::new(format!("`{fact}` does not hold: {} and {}", bound.left, bound.right)))
}

impl Batches {
    /// Restores the leading axes that the first axis of a result stands for.
    pub(super) fn leave<F: Real>(&self, r: Array<F>, decl: &ResultDecl) -> Array<F> {
        match decl.ty.shape.first().and_then(|d| self.0.get(d)) {
            Some(lead) if decl.batch => {
                let shape = lead.iter().copied().chain(r.shape.into_iter().skip(1)).collect();
                Array { shape, ..Array { elem: r.elem, shape: Vec::new(), data: r.data } }
            }
            _ => r,
        }
    }
}
