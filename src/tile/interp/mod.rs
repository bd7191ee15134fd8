//! The reference interpreter, which defines the semantics of plans and kernels.
//!
//! In: a verified module, the name of a plan, values of its run-time dimensions, host tensors. Out:
//! results and taps, or an error. It is the oracle for the schedule and every back end, so it is
//! simple: grid points run one after another, each instruction follows its definition, floats are
//! `f32`, sums are in order. If the schedule is correct, a kernel yields the same bits before and
//! after it: scheduled kernels use their scratch, so a tile that is overwritten too early is
//! noticed.
//!
//! Every access is checked: indices against the buffer's extents, bytes against their storage, and
//! that memory is initialised before it is read. Kernels scheduled for a GPU are not executed.
//!
//! A `run` first reads the scratch tiles that were written before it, and stores its own results at
//! its end: a result may overlap an operand that only this run reads.

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
use super::{Inst, Kernel, PlanVariant};

/// A call of a plan.
pub struct Call<'a> {
    /// Name of the plan.
    pub plan: &'a str,
    /// Plain or tapped.
    pub variant: PlanVariant,
    /// The run-time dimensions, by name.
    pub symbols: &'a BTreeMap<String, i64>,
    /// The arguments; the leading axes of a batch are collapsed.
    pub args: &'a [Tensor],
    /// The parameters.
    pub params: &'a dyn Params,
    /// Limits on the work.
    pub limits: Limits,
}

/// Result of a call.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The results; the leading axes of a batch are collapsed.
    pub results: Vec<Tensor>,
    /// The taps, by path, stacked over the arrays of layers in it.
    pub taps: BTreeMap<String, Tensor>,
    /// The work done.
    pub work: u64,
    /// The number of floating-point operations, as [`super::cost`] counts them.
    pub flops: u64,
}

/// Runs a plan.
///
/// # Errors
/// Invalid arguments, or a failure during execution.
pub fn run(module: Verified<'_>, call: &Call<'_>) -> Result<Outcome, EvalError> {
    plan::run(module.module(), call, Others::none(), &mut States::default())
}

/// The states of a session, as bytes.
pub type States = crate::interp::States<Vec<u8>>;

/// Runs a plan in a session. [`States`](crate::interp::States) specifies the effect of a call that
/// fails.
///
/// # Errors
/// As [`run`].
pub fn run_in(module: Verified<'_>, call: &Call<'_>, states: &mut States) -> Result<Outcome, EvalError> {
    plan::run(module.module(), call, Others::none(), states)
}

/// The same, but `runs` may return another executor for the runs of a kernel, given its name.
///
/// # Errors
/// As [`run`].
pub fn run_in_by<'a>(
    module: Verified<'a>,
    call: &'a Call<'a>,
    states: &mut States,
    runs: RunsOf<'a>,
) -> Result<Outcome, EvalError> {
    plan::run(module.module(), call, Others { runs, ..Others::none() }, states)
}

/// The same, but launches are executed by other means, such as a GPU simulator. Kernels may be
/// scheduled for a GPU.
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

/// Called after each launch of a plan, with the launch, and each buffer that its kernel writes: the
/// number of the parameter, and its elements.
pub type Watch<'a> = &'a dyn Fn(Inst, usize, Tensor);

/// The same as [`run_in`]; `watch` is called after each launch of the plan.
///
/// # Errors
/// As [`run`].
pub fn run_watched<'a>(
    module: Verified<'a>,
    call: &'a Call<'a>,
    states: &mut States,
    watch: Watch<'a>,
) -> Result<Outcome, EvalError> {
    plan::run(module.module(), call, Others { watch: Some(watch), ..Others::none() }, states)
}

/// Executors that replace parts of the interpreter, and what watches it.
#[derive(Clone, Copy)]
struct Others<'a> {
    runs: RunsOf<'a>,
    launches: Option<&'a dyn Launches>,
    watch: Option<Watch<'a>>,
}

impl<'a> Others<'a> {
    /// No replacements.
    fn none() -> Others<'a> {
        Others { runs: &|_| None, launches: None, watch: None }
    }
}

/// An operand of a kernel that is run on its own.
#[derive(Clone, Debug, PartialEq)]
pub enum Argument {
    /// The storage of a buffer, starting at its first element.
    Buffer(Vec<u8>),
    /// An index.
    Index(i64),
}

/// Runs one kernel over its grid, updating the arguments. The kernel must have been verified.
///
/// # Errors
/// Invalid arguments, or a failure during execution.
pub fn run_kernel(
    kernel: &Kernel,
    symbols: &BTreeMap<String, i64>,
    args: &mut [Argument],
    limits: Limits,
) -> Result<(), EvalError> {
    plan::run_kernel(kernel, symbols, args, limits, None).map(|_| ())
}

/// The same, with another executor for its runs.
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

/// The same as [`run_kernel`]; returns which bytes of each buffer are initialised.
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

/// Adds a location to an error that has none.
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

/// The remaining work.
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
