//! What the interpreters of both IRs share: parameters by path, what a session keeps, limits on the work, and why a call fails.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use crate::source::Loc;
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

/// What a session keeps between calls, by name; what is not there is zero.
///
/// A call that is refused because of its arguments changes nothing. Where one fails later and its entry point sets states, they are
/// lost: no call runs until [`States::reset`]. Compiled code has the same rule: the order of its writes and checks is not the program's.
#[derive(Clone, Debug)]
pub struct States<T> {
    kept: BTreeMap<String, T>,
    /// The entry point whose call failed.
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

    /// Makes a call of `entry`, whose arguments were accepted; `sets` says whether it sets states.
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

/// How much a run may do, so that no program takes the machine down.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Elements of one tensor.
    pub elements: u64,
    /// Element operations and multiplications of the entire run; instructions count too.
    pub work: u64,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { elements: 1 << 30, work: 1 << 42 }
    }
}

/// Why a call fails.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EvalError {
    /// What is wrong, in one line.
    pub message: String,
    /// Location of the instruction that failed, if one did.
    pub loc: Loc,
    /// Is it a bug of the compiler, not of the call?
    pub internal: bool,
}

impl EvalError {
    /// A mistake of the caller or the program, without a location.
    pub(crate) fn new(message: impl Into<String>) -> EvalError {
        EvalError { message: message.into(), loc: Loc::default(), internal: false }
    }

    /// A mistake of the compiler.
    pub(crate) fn internal(message: impl Into<String>) -> EvalError {
        EvalError { internal: true, ..EvalError::new(message) }
    }

    /// At a location, if it has none yet.
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
