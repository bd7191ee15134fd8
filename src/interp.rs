//! Common parts of all interpreters: parameters by path, states of a session, limits, and errors of
//! calls.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use crate::source::Loc;
use crate::tensor::Tensor;

/// The source of a model's tensors.
pub trait Params {
    /// The tensor at this path, with array indices substituted: `h.3.ln_1.weight`.
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

/// The states of a session, by name; a missing state is zero.
/// A call that is rejected because of its arguments changes nothing. If a call fails later and its
/// entry point sets states, the states are lost: no call runs until [`States::reset`]. Compiled
/// code has the same rule, because the order of its writes and checks is not the program's.
#[derive(Clone, Debug)]
pub struct States<T> {
    kept: BTreeMap<String, T>,
    /// The entry point whose failed call lost the states.
    lost_in: Option<String>,
}

impl<T> Default for States<T> {
    fn default() -> States<T> {
        States { kept: BTreeMap::new(), lost_in: None }
    }
}

impl<T> States<T> {
    /// Sets all states to zero.
    pub fn reset(&mut self) {
        *self = States::default();
    }

    /// Executes a call of `entry`, whose arguments were accepted; `sets` says whether it sets
    /// states.
    ///
    /// # Errors
    /// The states are lost, or the call fails.
    pub(crate) fn call<R>(
        &mut self,
        entry: &str,
        sets: bool,
        call: impl FnOnce(&mut BTreeMap<String, T>) -> Result<R, EvalError>,
    ) -> Result<R, EvalError> {
        if let Some(failed) = &self.lost_in {
            return Err(EvalError::new(format!(
                "the states of this session were lost when a call of `{failed}` failed: reset the session"
            )));
        }
        let done = call(&mut self.kept);
        if done.is_err() && sets {
            self.lost_in = Some(entry.to_string());
        }
        done
    }
}

/// Limits of a run, so that no program exhausts the machine.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The maximum number of elements of one tensor.
    pub elements: u64,
    /// The maximum number of element operations and multiplications of the entire run; instructions
    /// count too.
    pub work: u64,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { elements: 1 << 30, work: 1 << 42 }
    }
}

/// The reason why a call failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EvalError {
    /// One line.
    pub message: String,
    /// Location of the instruction that failed, if any.
    pub loc: Loc,
    /// Is it a bug of the compiler rather than of the call?
    pub internal: bool,
}

impl EvalError {
    /// An error of the caller or the program, without a location.
    pub(crate) fn new(message: impl Into<String>) -> EvalError {
        EvalError { message: message.into(), loc: Loc::default(), internal: false }
    }

    /// An error of the compiler.
    pub(crate) fn internal(message: impl Into<String>) -> EvalError {
        EvalError { internal: true, ..EvalError::new(message) }
    }

    /// Sets the location, if it has none yet.
    pub(crate) fn at(self, loc: Loc) -> EvalError {
        if self.loc.line == 0 { EvalError { loc, ..self } } else { self }
    }
}

impl fmt::Display for EvalError {
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
