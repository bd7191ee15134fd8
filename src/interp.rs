//! What the interpreters of both IRs share: parameters by path, limits on the work, and why a call fails.

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
