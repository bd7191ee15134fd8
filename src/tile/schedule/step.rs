//! The signature of the steps of the schedule, and their context.
//!
//! In: the options of the schedule. Out: types that each step uses. It must not know any step.

use std::collections::BTreeSet;

use super::formats::WeightChoice;
use crate::tile::{Kernel, Machine, Module, State};

/// The names of kernels whose accesses changed: these are proved again to stay in bounds.
pub(super) type Changed = BTreeSet<String>;

/// Options of a schedule that reduce precision.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScheduleOptions {
    /// Format of weights: if narrower than in the program, they are packed once for all calls
    /// (`panels`).
    pub weights: WeightChoice,
    /// May operands of `f32` matmuls on a GPU be rounded to `tf32`, for tensor cores?
    pub tf32: bool,
}

/// Context of a step.
pub(super) struct Log<'a> {
    pub(super) options: &'a ScheduleOptions,
}

/// A step: name, summary and function.
#[derive(Clone, Copy)]
pub struct Step {
    /// Name on the command line and in dumps. Steps of both tables with one name are one function.
    pub name: &'static str,
    /// One line for `attnc list passes`.
    pub summary: &'static str,
    /// Is there no code without it? Then `--bisect-limit` does not count it.
    pub required: bool,
    pub(super) run: fn(&mut Module, &Machine, &mut Log<'_>) -> Result<Changed, String>,
}

/// The kernels that are not scheduled yet.
pub(super) fn unscheduled(module: &mut Module) -> impl Iterator<Item = &mut Kernel> {
    module.kernels.iter_mut().filter(|k| k.state == State::Unscheduled)
}
