//! The variables of `grad`: what a function's gradients are taken with respect to.
//!
//! In: a function, and the arrays that its instructions make. Out: the same arrays as variables of
//! a [`Real`] that records how numbers are computed, and derivatives with respect to them. It does
//! not know how a derivative is computed.

use std::collections::{BTreeMap, BTreeSet};

use cranelift_entity::SecondaryMap;

use super::array::{Array, Data};
use super::{EvalError, Real};
use crate::ir::{Function, Op, Value};

/// The variables of a function's gradients.
pub(super) struct Gradients<F> {
    /// The values with respect to which it takes gradients.
    values: SecondaryMap<Value, bool>,
    /// The parameters, by name.
    pub params: BTreeSet<String>,
    /// The tensors of these parameters that were read, by path: each read yields the same
    /// variables.
    pub reads: BTreeMap<String, Array<F>>,
    /// Does it have any `grad`?
    any: bool,
}

impl<F> Default for Gradients<F> {
    fn default() -> Self {
        Gradients { values: SecondaryMap::new(), params: BTreeSet::new(), reads: BTreeMap::new(), any: false }
    }
}

impl<F: Real> Gradients<F> {
    pub(super) fn wanted(f: &Function) -> Gradients<F> {
        let mut out = Gradients::default();
        for (_, _, d) in f.insts() {
            let Op::Grad { of } = &d.op else { continue };
            out.any = true;
            match d.operands.get(1) {
                Some(x) => out.values[*x] = true,
                None => _ = out.params.insert(of.clone()),
            }
        }
        out
    }

    /// Does the function take a gradient with respect to this value? (A region has no `grad`, but
    /// values of the same numbers.)
    pub(super) fn are_wanted(&self, f: &Function, v: Value) -> bool {
        self.any && self.values[v] && !f.name.is_empty()
    }

    /// A tensor of a parameter that was read: the same variables each time.
    pub(super) fn read(&mut self, path: String, tensor: Array<F>) -> Array<F> {
        self.reads.entry(path).or_insert_with(|| variables(&tensor)).clone()
    }
}

fn each<F: Real>(a: &Array<F>, f: impl Fn(F) -> F) -> Array<F> {
    match &a.data {
        Data::Float(v) => {
            let data = Data::Float(v.iter().map(|x| f(*x)).collect());
            Array { elem: a.elem, shape: a.shape.clone(), data }
        }
        Data::Int(_) | Data::Bool(_) => a.clone(),
    }
}

/// The same values, with respect to which gradients are taken.
pub(super) fn variables<F: Real>(a: &Array<F>) -> Array<F> {
    each(a, F::variable)
}

/// The same values, through which no gradient goes.
pub(super) fn constants<F: Real>(a: &Array<F>) -> Array<F> {
    each(a, F::constant)
}

pub(super) fn gradient<F: Real>(loss: F, of: &[F]) -> Result<Vec<F>, EvalError> {
    F::gradient(loss, of).ok_or_else(|| EvalError::new("`grad` has no value before the pass `differentiate`"))
}

pub(super) fn floats<F>(a: &Array<F>) -> Result<&[F], EvalError> {
    match &a.data {
        Data::Float(v) => Ok(v),
        Data::Int(_) | Data::Bool(_) => Err(EvalError::internal("a gradient of integers")),
    }
}
