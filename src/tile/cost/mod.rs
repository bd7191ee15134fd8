//! The cost of a plan's kernels: floating-point operations, and the least number of bytes to move.
//!
//! In: a verified module, the name of a plan, values of its run-time dimensions and of counts that a session keeps. Out: for each launch, in
//! order, what it costs. Loops and branches are evaluated on indices and on these counts (`contents`), so the numbers are exact without any
//! data; where they depend on data (the rows that a gather takes), they are bounds and marked as such. It knows no machine and no time.
//!
//! # What is counted
//!
//! * **Operations.** `dot`: two for each product, `2 * rows * inner * columns`, of whatever element type. `neg`, `exp`,
//!   `add`, `max`, .. on tiles of floats: one for each element of the result, however many instructions an `exp`
//!   takes. A reduction of floats: one for each element that it takes in. Nothing else counts: neither comparing,
//!   choosing, converting and copying, nor integers, nor what is computed once for a whole tile.
//!   It is what the kernel does, not what the formula requires: half of a block that a causal mask crosses is counted,
//!   a block that is skipped is not.
//! * **Bytes.** What must be moved if caches were infinite: of each buffer of a launch the smallest box around all
//!   elements that are read, once, and around those that are written, once. Rows that a gather takes by data count each
//!   time, up to the whole buffer. A buffer that comes in twice is read once.

mod contents;
mod kernel;
mod plan;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use super::{Kernel, Module, PlanVariant};
pub use contents::is_count;

/// What a launch has to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Floating-point operations.
    pub flops: u64,
    /// Bytes that must be read.
    pub read: u64,
    /// Bytes that must be written.
    pub written: u64,
    /// Are the numbers exact? Else data decides, and they are what it can be at most.
    pub exact: bool,
    /// Was it too long to count? Then operations are 0, and bytes those of all buffers.
    pub uncounted: bool,
}

impl Cost {
    /// Bytes moved at least.
    pub fn bytes(&self) -> u64 {
        self.read.saturating_add(self.written)
    }
}

/// A launch of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launch {
    /// Which launch instruction of the plan, counted from 0 in the order of its text. In a loop it comes again and again.
    pub site: usize,
    /// The kernel.
    pub kernel: String,
    /// Points of its grid.
    pub points: i64,
    /// What they cost together.
    pub cost: Cost,
    /// Of the bytes that are read, those of parameters: other launches of a call have others, so they come from farther away
    /// than what was just computed.
    pub weights: u64,
}

/// What a plan does.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlanCost {
    /// The launches in the order in which they happen.
    pub launches: Vec<Launch>,
    /// Arguments whose elements are used as indices: by number, with the smallest bound that they must stay below.
    pub bounds: BTreeMap<u32, i64>,
}

/// What a plan is walked in besides its sizes.
#[derive(Clone, Debug, Default)]
pub struct Setting<'a> {
    /// Of a module whose kernels are scheduled for a GPU, the same module before it was scheduled. What a launch costs is what its kernel
    /// costs there; a kernel that only the schedule has is counted itself, and if neither can be, the cost says so.
    pub work: Option<&'a Module>,
    /// What states of integers are, by name: each of their elements is this number, or 0 as in a new session. How much of a cache is read
    /// depends on them.
    pub states: BTreeMap<String, i64>,
}

/// Walks a plan as the first call of a session, on a processor.
///
/// # Errors
/// A dimension without a value, a plan whose way depends on data, or one that is too long to walk, in words.
pub fn plan(
    module: &Module,
    name: &str,
    variant: PlanVariant,
    symbols: &BTreeMap<String, i64>,
) -> Result<PlanCost, String> {
    plan_in(module, name, variant, symbols, &Setting::default())
}

/// The same in a setting.
///
/// # Errors
/// As [`plan`]; also a state whose value makes a dimension larger than there is room for.
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

/// Walks a kernel over its grid. `indices` are the values of its parameters that are indices, in their order.
///
/// # Errors
/// As [`plan`].
pub fn kernel(kernel: &Kernel, symbols: &BTreeMap<String, i64>, indices: &[i64]) -> Result<Cost, String> {
    let mut steps = STEPS;
    let done = kernel::walk(kernel, symbols, indices, &mut steps)?;
    Ok(done.cost(&[]))
}

/// Instructions that a walk may do, some seconds.
const STEPS: u64 = 50_000_000;

/// The value of a dimension.
fn dim(d: &crate::shape::Dim, symbols: &BTreeMap<String, i64>) -> Result<i64, String> {
    if let Some(n) = d.as_const() {
        return Ok(n);
    }
    d.eval(&|s| symbols.get(s).copied()).map_err(|_| format!("the dimension {d} has no value"))
}
