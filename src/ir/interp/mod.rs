//! The interpreter: defines the results of the graph IR.
//!
//! In: a verified module, the name of an entry point, host tensors, parameters. Out: the results
//! and taps, or an error as a value: an index out of range, mismatched shapes, a failed check, work
//! beyond the limits. It is the oracle of every pass and every back end, so it is simple: each
//! operation follows its definition literally.
//!
//! It is generic over the numbers in which floats are computed ([`Real`]): `f32` yields the exact
//! result of the program, bit for bit; `f64` yields the mathematically expected result;
//! [`bounded::Bounded`] carries error bounds for compiled code.
//!
//! ```
//! use attnc::ir::{interp, text, verify};
//! use attnc::tensor::Tensor;
//!
//! let source = "module \"m\"\nfunc @twice(%0 \"x\": f32[S]) -> (f32[S]) {\n^bb0:\n  %1 = mul %0, 2.0 : f32[S]\n  return %1\n}";
//! let module = text::parse(source, Default::default()).unwrap().module;
//! let x = Tensor::from_f32(vec![2], &[1.0, 2.0]).unwrap();
//! let call = interp::Call { function: "twice", args: &[x], params: &interp::NoParams, limits: Default::default() };
//! let out = interp::run::<f32>(verify(&module).unwrap(), &call).unwrap();
//! assert_eq!(out.results[0].to_tensor().unwrap().to_f32(), [2.0, 4.0]);
//! ```

mod array;
pub mod bounded;
mod contraction;
mod elementwise;
mod entry;
mod gradients;
mod machine;
mod real;

use std::collections::{BTreeMap, BTreeSet};

pub use array::{Array, Data};
pub use real::Real;

use super::requirements::entry_checks;
use super::{Verified, sets_states};
pub use crate::interp::{EvalError, Limits, NoParams, Params};
use crate::tensor::Tensor;

/// A call of an entry point.
#[derive(Clone, Copy)]
pub struct Call<'a> {
    /// Name of the function.
    pub function: &'a str,
    /// The arguments. A `batch` argument may have any number of leading axes.
    pub args: &'a [Tensor],
    /// The source of the module's parameters.
    pub params: &'a dyn Params,
    /// Bounds on work and memory.
    pub limits: Limits,
}

/// The result of a call.
#[derive(Clone, Debug)]
pub struct Outcome<F> {
    /// Results, with their leading axes.
    pub results: Vec<Array<F>>,
    /// Tapped values, by path with array indices substituted.
    pub taps: BTreeMap<String, Array<F>>,
    /// For each tap, the number of iterations of loops over time that wrote it; 1 outside of loops.
    pub written: BTreeMap<String, u64>,
    /// Taps that the run did not reach, as zeros.
    pub silent: BTreeMap<String, Array<F>>,
    /// The taps that were written after the first comparison that is not certain.
    pub doubtful: BTreeSet<String>,
    /// Was every comparison, truncation and choice of a maximum the same at every precision?
    /// (Always true for `f32` and `f64`.)
    pub certain: bool,
    /// Work done, in the units of [`Limits`].
    pub work: u64,
}

/// Runs an entry point.
///
/// # Errors
/// Arguments that do not fit, and run-time errors.
pub fn run<F: Real>(module: Verified<'_>, call: &Call<'_>) -> Result<Outcome<F>, EvalError> {
    run_variant(module, call, false, &mut States::default())
}

/// The states of a session.
pub type States<F> = crate::interp::States<Array<F>>;

/// Runs an entry point in a session. [`States`](crate::interp::States) documents the states after a
/// failed call.
///
/// # Errors
/// As [`run`].
pub fn run_in<F: Real>(module: Verified<'_>, call: &Call<'_>, states: &mut States<F>) -> Result<Outcome<F>, EvalError> {
    run_variant(module, call, false, states)
}

/// Runs the variant of an entry point that computes taps, or the plain variant if there is no
/// other.
///
/// # Errors
/// As [`run`].
pub fn run_tapped<F: Real>(module: Verified<'_>, call: &Call<'_>) -> Result<Outcome<F>, EvalError> {
    run_variant(module, call, true, &mut States::default())
}

/// The same in a session.
///
/// # Errors
/// As [`run`].
pub fn run_tapped_in<F: Real>(
    module: Verified<'_>,
    call: &Call<'_>,
    states: &mut States<F>,
) -> Result<Outcome<F>, EvalError> {
    run_variant(module, call, true, states)
}

/// A call whose arguments were checked, for another executor.
pub struct Admitted {
    /// The arguments, of the declared types, leading axes collapsed.
    pub args: Vec<Tensor>,
    /// The value of each dimension.
    pub symbols: BTreeMap<String, i64>,
    batches: entry::Batches,
    results: Vec<super::ResultDecl>,
}

impl Admitted {
    /// The results with their leading axes restored.
    pub fn leave(&self, results: Vec<Tensor>) -> Vec<Tensor> {
        let out = |(r, decl): (Tensor, &super::ResultDecl)| {
            let shape = self.batches.leave(Array::<f32>::from_tensor(&r), decl).shape;
            r.clone().reshaped(shape).unwrap_or(r)
        };
        results.into_iter().zip(&self.results).map(out).collect()
    }
}

/// Checks a call on entry, exactly as [`run`] does.
///
/// # Errors
/// Arguments that do not fit.
pub fn admit(module: Verified<'_>, function: &str, args: &[Tensor]) -> Result<Admitted, EvalError> {
    let module = module.module();
    let Some(f) = module.functions.iter().find(|f| f.name == function && !f.tapped) else {
        return Err(EvalError::new(format!("there is no entry point `{function}`")));
    };
    let entered = entry::enter::<f32>(f, &entry_checks(module, &f.name), args)?;
    let args: Option<Vec<Tensor>> = entered.args.iter().map(Array::to_tensor).collect();
    let symbols = entered.symbols.iter().map(|(name, n)| (name.to_string(), *n)).collect();
    let args = args.ok_or_else(|| EvalError::internal("an argument's size"))?;
    Ok(Admitted { args, symbols, batches: entered.batches, results: f.results.clone() })
}

fn run_variant<F: Real>(
    module: Verified<'_>,
    call: &Call<'_>,
    tapped: bool,
    states: &mut States<F>,
) -> Result<Outcome<F>, EvalError> {
    let module = module.module();
    let mut variants = module.functions.iter().filter(|f| f.name == call.function);
    let Some(f) = variants.clone().find(|f| f.tapped == tapped).or_else(|| variants.next()) else {
        return Err(EvalError::new(format!("there is no entry point `{}`", call.function)));
    };
    let entered = entry::enter::<F>(f, &entry_checks(module, &f.name), call.args)?;
    let mut machine = machine::Interpreter::new(module, call, entered.symbols);
    let results = states.call(&f.name, sets_states(f), |kept| {
        machine.states = std::mem::take(kept);
        let results = machine.function(f, entered.args);
        *kept = std::mem::take(&mut machine.states);
        results
    })?;
    let results = results.into_iter().zip(&f.results).map(|(r, decl)| entered.batches.leave(r, decl)).collect();
    let silent = machine.silent_taps(f)?;
    let written = machine.written.iter().map(|(path, steps)| (path.clone(), steps.len() as u64)).collect();
    let (taps, doubtful) = (machine.taps, machine.doubtful);
    Ok(Outcome { results, taps, written, silent, doubtful, certain: machine.certain, work: machine.work })
}

#[cfg(test)]
mod tests;
