//! Cost model of a plan's kernels: floating-point operations, and the least number of bytes to
//! move.
//!
//! In: a verified module, the name of a plan, values of its run-time dimensions and of a session's
//! counters. Out: the cost of each launch, in order. Loops and branches are evaluated on indices
//! and counters (`contents`), so the numbers are exact without any data; where they depend on data
//! (the rows selected by a gather), they are upper bounds and marked as such. It does not know any
//! machine or time.
//!
//! # Counts
//!
//! * **Operations.** `dot`: two for each product, `2 * rows * inner * columns`, of whatever element
//!   type. `neg`, `exp`, `add`, `max`, .. on float tiles: one per element of the result, however
//!   many instructions an `exp` takes. A float reduction: one per element of its operand. Nothing
//!   else counts: neither comparisons, selects, conversions and copies, nor integers, nor scalars.
//!   The count is that of the kernel, not of the formula: half of a block that is crossed by a
//!   causal mask is counted, a skipped block is not.
//! * **Bytes.** What must be moved with infinite caches: for each buffer of a launch, the bounding
//!   box of all elements that are read, once, and of all that are written, once. Rows selected by a
//!   gather count each time, up to the whole buffer. A buffer passed twice is read once.

mod axes;
mod contents;
mod kernel;
mod plan;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use super::{Kernel, Module, PlanVariant};
pub use contents::is_count;

/// Cost of a launch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Floating-point operations.
    pub flops: u64,
    /// Bytes that must be read.
    pub read: u64,
    /// Bytes that must be written.
    pub written: u64,
    /// Are the numbers exact? Otherwise they depend on data, and are upper bounds.
    pub exact: bool,
    /// Too long to evaluate: operations are 0, and bytes include all buffers in full.
    pub uncounted: bool,
}

impl Cost {
    /// Total bytes to move.
    pub fn bytes(&self) -> u64 {
        self.read.saturating_add(self.written)
    }
}

/// A launch of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launch {
    /// Number of the launch instruction in the plan, from 0 in textual order. In a loop it occurs
    /// repeatedly.
    pub site: usize,
    /// Name of the kernel.
    pub kernel: String,
    /// Number of grid points.
    pub points: i64,
    /// Their total cost.
    pub cost: Cost,
    /// The part of `cost.read` that is parameters: each launch of a call reads different ones, so
    /// they come from farther away than recently computed data.
    pub weights: u64,
}

/// Cost of a plan.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlanCost {
    /// In execution order.
    pub launches: Vec<Launch>,
    /// Arguments whose elements are used as indices: by number, with their smallest exclusive
    /// bound.
    pub bounds: BTreeMap<u32, i64>,
}

/// Settings for a plan's evaluation besides its sizes.
#[derive(Clone, Debug, Default)]
pub struct Setting<'a> {
    /// For a module scheduled for a GPU, the module before scheduling. The cost of a launch is then
    /// the cost of the kernel there that its own comes from (`Module::origins`); kernels that only
    /// the schedule introduces are evaluated themselves, and if that is not possible either, the
    /// cost is marked as uncounted.
    pub work: Option<&'a Module>,
    /// Values of integer states, by name: all elements of a state have this value, or 0 as in a new
    /// session. They determine how much of a cache is read.
    pub states: BTreeMap<String, i64>,
}

/// Evaluates a plan as the first call of a session, on a CPU.
///
/// # Errors
/// A dimension without a value, a plan whose control flow depends on data, or one that is too long
/// to evaluate.
pub fn plan(
    module: &Module,
    name: &str,
    variant: PlanVariant,
    symbols: &BTreeMap<String, i64>,
) -> Result<PlanCost, String> {
    plan_in(module, name, variant, symbols, &Setting::default())
}

/// The same with other settings.
///
/// # Errors
/// As [`plan`]; also a state whose value makes a dimension exceed its maximum.
pub fn plan_in(
    module: &Module,
    name: &str,
    variant: PlanVariant,
    symbols: &BTreeMap<String, i64>,
    setting: &Setting<'_>,
) -> Result<PlanCost, String> {
    let found = module.plans.iter().find(|p| p.name == name && p.variant == variant);
    plan::walk(module, found.ok_or_else(|| format!("there is no plan `{name}`"))?, symbols, setting)
}

/// The work of a kernel over its grid. `indices` are the values of its index parameters, in order.
///
/// # Errors
/// As [`plan`].
pub fn kernel(kernel: &Kernel, symbols: &BTreeMap<String, i64>, indices: &[i64]) -> Result<Cost, String> {
    let mut steps = MAX_STEPS;
    let done = kernel::walk(kernel, symbols, indices, &mut steps)?;
    Ok(done.cost(&[]))
}

/// Limit on evaluated instructions, which take some seconds.
const MAX_STEPS: u64 = 50_000_000;

/// The value of a dimension.
fn dim(d: &crate::shape::Dim, symbols: &BTreeMap<String, i64>) -> Result<i64, String> {
    if let Some(n) = d.as_const() {
        return Ok(n);
    }
    d.eval(&|s| symbols.get(s).copied()).map_err(|_| format!("the dimension {d} has no value"))
}
