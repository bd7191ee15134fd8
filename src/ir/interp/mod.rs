//! The interpreter: what a function of the graph IR computes, by definition.
//!
//! In: a verified module, the name of an entry point, host tensors, parameters. Out: the results and taps, or an error
//! as a value: an index out of range, shapes that do not fit, a check that fails, work beyond the limits. It is the
//! oracle of every pass and every back end, so it is plain: each operation is done as its definition says, in order.
//!
//! It is generic over the numbers that floats are computed in ([`Real`]): `f32` gives the exact result of the program,
//! bit for bit; `f64` and [`Bounded`] give what it should be, and how far off compiled code may be.
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
mod bounded;
mod contraction;
mod door;
mod elementwise;
mod machine;
mod real;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

pub use array::{Array, Data};
pub use bounded::Bounded;
pub use real::Real;

use super::requirements::entry_checks;
use super::{Loc, Verified};
use crate::tensor::Tensor;

/// Where the tensors of a model come from.
pub trait Params {
    /// The tensor of this path, array indices filled in: `h.3.ln_1.weight`.
    fn tensor(&self, path: &str) -> Option<Cow<'_, Tensor>>;
}

/// A model without parameters.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoParams;

impl Params for NoParams {
    fn tensor(&self, _: &str) -> Option<Cow<'_, Tensor>> {
        None
    }
}

impl Params for BTreeMap<String, Tensor> {
    fn tensor(&self, path: &str) -> Option<Cow<'_, Tensor>> {
        self.get(path).map(Cow::Borrowed)
    }
}

/// How much a run may do, so that no program takes the machine down.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Elements of one tensor.
    pub elements: u64,
    /// Element operations and multiplications of the whole run; instructions count too.
    pub work: u64,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { elements: 1 << 30, work: 1 << 42 }
    }
}

/// A call of an entry point.
#[derive(Clone, Copy)]
pub struct Call<'a> {
    /// Name of the function.
    pub function: &'a str,
    /// The arguments. Those with `batch` may have any number of leading axes.
    pub args: &'a [Tensor],
    /// The parameters.
    pub params: &'a dyn Params,
    /// How much it may do.
    pub limits: Limits,
}

/// What a call gives.
#[derive(Clone, Debug)]
pub struct Outcome<F> {
    /// The results.
    pub results: Vec<Array<F>>,
    /// What was tapped, by path with array indices filled in.
    pub taps: BTreeMap<String, Array<F>>,
    /// In how many steps of the loops over time each of them was written; 1 outside of loops.
    pub written: BTreeMap<String, u64>,
    /// Taps that the run did not come to, as zeros.
    pub silent: BTreeMap<String, Array<F>>,
    /// Was every comparison, truncation and choice of a maximum certain in every precision? (Always, but for
    /// [`Bounded`].)
    pub certain: bool,
    /// The work that was done.
    pub work: u64,
}

/// Why a call fails.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// What is wrong, in one line.
    pub message: String,
    /// Place in the source of the instruction that failed, if one did.
    pub loc: Loc,
    /// Is it a mistake of the compiler, not of the call?
    pub internal: bool,
}

impl Failure {
    fn new(message: impl Into<String>) -> Failure {
        Failure { message: message.into(), loc: Loc::default(), internal: false }
    }

    fn internal(message: impl Into<String>) -> Failure {
        Failure { internal: true, ..Failure::new(message) }
    }

    /// At a place, if it has none yet.
    fn at(self, loc: Loc) -> Failure {
        if self.loc.line == 0 { Failure { loc, ..self } } else { self }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.internal {
            f.write_str("internal error: ")?;
        }
        f.write_str(&self.message)?;
        if self.loc.line > 0 {
            write!(f, " (at {}:{})", self.loc.line, self.loc.column)?;
        }
        Ok(())
    }
}

/// Runs an entry point.
///
/// # Errors
/// Arguments that do not fit, and what goes wrong on the way.
pub fn run<F: Real>(module: Verified<'_>, call: &Call<'_>) -> Result<Outcome<F>, Failure> {
    run_variant(module, call, false)
}

/// Runs the variant of an entry point that fills its taps; the plain one where there is no other.
///
/// # Errors
/// As [`run`].
pub fn run_tapped<F: Real>(module: Verified<'_>, call: &Call<'_>) -> Result<Outcome<F>, Failure> {
    run_variant(module, call, true)
}

fn run_variant<F: Real>(module: Verified<'_>, call: &Call<'_>, tapped: bool) -> Result<Outcome<F>, Failure> {
    let module = module.module();
    let mut variants = module.functions.iter().filter(|f| f.name == call.function);
    let Some(f) = variants.clone().find(|f| f.tapped == tapped).or_else(|| variants.next()) else {
        return Err(Failure::new(format!("there is no entry point `{}`", call.function)));
    };
    let door = door::enter::<F>(f, &entry_checks(module, &f.name), call.args)?;
    let mut machine = machine::Machine::new(module, call, door.symbols);
    let results = machine.function(f, door.args)?;
    let results = results.into_iter().zip(&f.results).map(|(r, decl)| door.batches.leave(r, decl)).collect();
    let silent = machine.silent_taps(f)?;
    let written = machine.written.iter().map(|(path, steps)| (path.clone(), steps.len() as u64)).collect();
    Ok(Outcome { results, taps: machine.taps, written, silent, certain: machine.certain, work: machine.work })
}

#[cfg(test)]
mod tests;
