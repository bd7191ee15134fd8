//! The interpreter: what plans and kernels of the tile IR do, by definition.
//!
//! In: a verified module, the name of a plan, values of its run-time dimensions, host tensors. Out: results and taps, or an
//! error as a value. It is the oracle for the schedule and every back end, so it is plain: grid points one after another, each
//! instruction as its definition says, floats in `f32`, sums in order. If the schedule is correct, a kernel gives the same bits
//! before and after it: scheduled kernels read and write their scratch, so a tile that is overwritten too early shows.
//!
//! Every access is checked: indices against the buffer's extents, bytes against their storage, and that what is read was
//! written before. Kernels scheduled for a GPU are not run.
//!
//! A `run` reads tiles in scratch that were made before it first, and writes those that it makes at its end: a tile may take the
//! place of another that only this run reads.

mod dot;
mod elements;
mod frame;
mod kernel;
mod launches;
mod memory;
mod plan;
mod runs;

use std::collections::BTreeMap;

pub use crate::interp::{EvalError, Limits, Params};
use crate::shape::{Dim, DimError};
use crate::source::Loc;
use crate::tensor::Tensor;

pub(in crate::tile) use elements::Element;
pub use launches::{LaunchArgument, LaunchError, LaunchMemory, Launches};
pub use runs::{RunMemory, Runs, RunsOf, SCRATCH};

use super::verify::Verified;
use super::{Kernel, PlanVariant};

/// A call of a plan.
pub struct Call<'a> {
    /// Name of the plan.
    pub plan: &'a str,
    /// Which variant.
    pub variant: PlanVariant,
    /// The run-time dimensions, by name.
    pub symbols: &'a BTreeMap<String, i64>,
    /// The arguments, leading axes of a batch collapsed.
    pub args: &'a [Tensor],
    /// The parameters.
    pub params: &'a dyn Params,
    /// How much it may do.
    pub limits: Limits,
}

/// What a call gives.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The results, leading axes of a batch collapsed.
    pub results: Vec<Tensor>,
    /// The taps, by path, stacked over the arrays of layers on it.
    pub taps: BTreeMap<String, Tensor>,
    /// The work that was done.
    pub work: u64,
    /// The floating-point operations among it, as [`super::cost`] counts them.
    pub flops: u64,
}

/// Runs a plan.
///
/// # Errors
/// Arguments that do not fit, and what goes wrong on the way.
pub fn run(module: Verified<'_>, call: &Call<'_>) -> Result<Outcome, EvalError> {
    plan::run(module.module(), call, Others::none(), &mut States::default())
}

/// What a session keeps, as bytes.
pub type States = crate::interp::States<Vec<u8>>;

/// Runs a plan as one of the calls of a session. [`States`](crate::interp::States) says what a call that fails leaves behind.
///
/// # Errors
/// As [`run`].
pub fn run_in(module: Verified<'_>, call: &Call<'_>, states: &mut States) -> Result<Outcome, EvalError> {
    plan::run(module.module(), call, Others::none(), states)
}

/// The same, with the runs of kernels done by others: `runs` says who does those of a kernel, by its name, or nobody.
///
/// # Errors
/// As [`run`].
pub fn run_in_by<'a>(
    module: Verified<'a>,
    call: &'a Call<'a>,
    states: &mut States,
    runs: RunsOf<'a>,
) -> Result<Outcome, EvalError> {
    plan::run(module.module(), call, Others { runs, launches: None }, states)
}

/// The same, with launches done by others, such as a GPU's simulator. Kernels may be scheduled for a GPU.
///
/// # Errors
/// As [`run`].
pub fn run_on<'a>(
    module: Verified<'a>,
    call: &'a Call<'a>,
    states: &mut States,
    launches: &'a dyn Launches,
) -> Result<Outcome, EvalError> {
    plan::run(module.module(), call, Others { launches: Some(launches), ..Others::none() }, states)
}

/// Who does what of a call in the interpreter's place.
#[derive(Clone, Copy)]
struct Others<'a> {
    runs: RunsOf<'a>,
    launches: Option<&'a dyn Launches>,
}

impl<'a> Others<'a> {
    /// Nobody.
    fn none() -> Others<'a> {
        Others { runs: &|_| None, launches: None }
    }
}

/// An operand of a kernel that is run alone.
#[derive(Clone, Debug, PartialEq)]
pub enum Argument {
    /// The storage of a buffer: bytes from its first element on.
    Buffer(Vec<u8>),
    /// An index.
    Index(i64),
}

/// Runs one kernel over its grid; what it writes is in the arguments then. The kernel must have been verified.
///
/// # Errors
/// Arguments that do not fit, and what goes wrong on the way.
pub fn run_kernel(
    kernel: &Kernel,
    symbols: &BTreeMap<String, i64>,
    args: &mut [Argument],
    limits: Limits,
) -> Result<(), EvalError> {
    plan::run_kernel(kernel, symbols, args, limits, None).map(|_| ())
}

/// The same, with its runs done by someone else.
///
/// # Errors
/// As [`run_kernel`].
pub fn run_kernel_by(
    kernel: &Kernel,
    symbols: &BTreeMap<String, i64>,
    args: &mut [Argument],
    limits: Limits,
    runs: &dyn Runs,
) -> Result<(), EvalError> {
    plan::run_kernel(kernel, symbols, args, limits, Some(runs)).map(|_| ())
}

/// The same as [`run_kernel`]; of each buffer, which bytes were given or written.
///
/// # Errors
/// As [`run_kernel`].
pub(in crate::tile) fn run_small_kernel(
    kernel: &Kernel,
    symbols: &BTreeMap<String, i64>,
    args: &mut [Argument],
    limits: Limits,
) -> Result<Vec<Vec<bool>>, EvalError> {
    plan::run_kernel(kernel, symbols, args, limits, None)
}

/// An error of the call.
fn fail<T>(message: impl Into<String>) -> Result<T, EvalError> {
    Err(EvalError { message: message.into(), loc: Loc::default(), internal: false })
}

/// A bug in attnc.
fn broken<T>(message: impl Into<String>) -> Result<T, EvalError> {
    Err(EvalError { message: message.into(), loc: Loc::default(), internal: true })
}

/// The failure at a place, if it has none yet.
fn located(f: EvalError, loc: Loc) -> EvalError {
    if f.loc.line == 0 { EvalError { loc, ..f } } else { f }
}

/// The value of a dimension.
fn dim(d: &Dim, symbols: &BTreeMap<String, i64>) -> Result<i64, EvalError> {
    if let Some(n) = d.as_const() {
        return Ok(n);
    }
    match d.eval(&|s| symbols.get(s).copied()) {
        Ok(n) => Ok(n),
        Err(DimError::Unbound(s)) => fail(format!("the dimension {s} is not given")),
        Err(DimError::NotWhole) => fail(format!("the dimension {d} is not an integer")),
        Err(DimError::DivisionByZero) => fail(format!("the dimension {d} divides by zero")),
        Err(DimError::Overflow) => fail(format!("the dimension {d} is too large")),
    }
}

/// The work that is left.
struct Budget {
    left: u64,
    spent: u64,
    flops: u64,
}

impl Budget {
    fn new(limits: Limits) -> Budget {
        Budget { left: limits.work, spent: 0, flops: 0 }
    }

    fn spend(&mut self, work: u64) -> Result<(), EvalError> {
        self.spent = self.spent.saturating_add(work);
        match self.left.checked_sub(work) {
            Some(left) => {
                self.left = left;
                Ok(())
            }
            None => fail("the work is beyond the limit"),
        }
    }
}
