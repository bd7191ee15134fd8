//! The steps of the schedule, in their order: one table for CPUs, one for GPUs.
//!
//! In: a module, a [`Machine`], and what is observed. Out: the module after the steps. A kernel
//! that was already scheduled stays as it is. Between two steps, a kernel is either not scheduled,
//! with the decisions so far in its text, or scheduled, and the module names the last step
//! (`scheduled "place"`); so every dump reads back, and scheduling it goes on where it stopped. It
//! must not know what a step does.
//!
//! The module is verified after the last step, or after each one with `--verify-each`.

use std::fmt;
use std::time::Instant;

use super::step::{Changed, Log, Remark, ScheduleOptions, Step};
use super::{attention, gpu, modes, panels, place, split_sums, tensor_cores, windows};
use crate::diagnostics::did_you_mean;
use crate::observe::{Observer, PrintChanged, Sink, Watch};
use crate::tile::verify::{VerifiedModule, recheck};
use crate::tile::{Machine, Module, State, share_slots, text};

/// Declares a table of steps.
macro_rules! steps {
    ($(#[$doc:meta])* $table:ident: $($name:literal, $required:literal, $run:path, $summary:literal;)*) => {
        $(#[$doc])*
        pub const $table: &[Step] =
            &[$(Step { name: $name, summary: $summary, required: $required, run: $run },)*];
    };
}

// Name, whether it is required, function, and the summary for `attnc list`.
steps! {
    /// The steps for a CPU, in order.
    CPU_STEPS:
    "expand-attention", false, attention::expand::run, "attention as kernels for the machine, by number of queries and mask";
    "pack-panels", false, panels::run, "matmul operands in panels, packed before all calls or just before one";
    "split-sums", false, split_sums::run, "matmuls with large K as loops over blocks of k";
    "read-in-place", false, windows::run, "matmul operands that need no copy in scratch";
    "choose-modes", false, modes::run, "the order in which each matmul adds its products";
    "share-slots", false, run_share_slots, "slots of plans with disjoint live ranges as one";
    "place", true, place::run, "operations grouped into loop nests, tiles in registers or scratch";
}

steps! {
    /// The steps for a GPU, in order.
    GPU_STEPS:
    "pack-panels", false, panels::run, "matmul operands in panels, packed before all calls or just before one";
    "use-tensor-cores", false, tensor_cores::run, "matmuls and attention of 16-bit floats on tensor cores";
    "expand-attention", false, attention::expand::run, "attention as kernels for the machine, by number of queries and mask";
    "select-candidates", false, gpu::candidates::run, "top-k along a long axis by candidates of its chunks";
    "count-ranks", false, gpu::ranks::run, "sorting by counting how many elements come first";
    "split-scans", false, gpu::scans::run, "running sums by chunks";
    "split-matmuls", false, gpu::divided::run, "matmuls with few rows and columns by parts of K";
    "split-rows", false, gpu::long_rows::run, "reductions of few long rows by parts of the rows";
    "size-tiles", false, gpu::run_size_tiles, "tiles with work for all threads and multiprocessors";
    "read-in-place", true, windows::run, "matmul operands that need no copy in scratch";
    "choose-modes", false, modes::run, "the order in which each matmul adds its products";
    "hoist-reads", false, gpu::reads::run, "numbers that plans read, once before loops";
    "share-slots", false, run_share_slots, "slots of plans with disjoint live ranges as one";
    "place", true, place::run, "operations grouped into loop nests, tiles in registers or scratch";
    "fuse-loops", false, gpu::persistent::run, "loops of plans with small launches as one kernel each";
}

/// The steps for a machine.
pub fn steps_of(machine: &Machine) -> &'static [Step] {
    if machine.gpu().is_some() { GPU_STEPS } else { CPU_STEPS }
}

/// The step with this name, of either table.
///
/// # Errors
/// The nearest name, if one is near.
pub fn find_step(name: &str) -> Result<Step, Option<&'static str>> {
    let all = || CPU_STEPS.iter().chain(GPU_STEPS);
    all().find(|s| s.name == name).copied().ok_or_else(|| did_you_mean(name, all().map(|s| s.name)))
}

/// Why a module could not be scheduled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ScheduleError {
    /// Something that the schedule cannot express.
    Unsupported(String),
    /// A step left an invalid module, which is a bug in attnc.
    Invalid {
        /// The name of the step; empty if only the result was verified.
        step: &'static str,
        /// The verifier's errors, below their lines.
        errors: String,
    },
}

impl fmt::Display for ScheduleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ScheduleError::Unsupported(why) => f.write_str(why),
            ScheduleError::Invalid { step: "", errors } => f.write_str(errors),
            ScheduleError::Invalid { step, errors } => write!(f, "the step `{step}` left an invalid module:\n{errors}"),
        }
    }
}

/// The steps of this machine with these names, in this order.
///
/// # Errors
/// A line about the first unknown name.
pub fn steps_named(names: &[String], machine: &Machine) -> Result<Vec<Step>, String> {
    let all = steps_of(machine);
    let step = |name: &str| {
        let near = || did_you_mean(name, all.iter().map(|s| s.name)).map(|near| format!("; did you mean `{near}`?"));
        let found = all.iter().find(|s| s.name == name).copied();
        found.ok_or_else(|| format!("{} has no step `{name}`{}", machine.name(), near().unwrap_or_default()))
    };
    names.iter().map(|name| name.trim()).filter(|name| !name.is_empty()).map(step).collect()
}

/// Schedules a module for a machine, up to the step of `watch.stop_after`; also returns the remarks
/// of the steps.
///
/// # Errors
/// A message about something that this schedule cannot express, or the verifier's errors.
pub fn schedule_for(
    module: &VerifiedModule,
    machine: &Machine,
    options: &ScheduleOptions,
    watch: &Watch,
    sink: &mut dyn Sink,
) -> Result<(VerifiedModule, Vec<Remark>), ScheduleError> {
    let steps = steps_of(machine);
    let next = module.scheduled.as_ref().map(|last| steps.iter().position(|s| s.name == last).map_or(0, |n| n + 1));
    let is_open = module.kernels.iter().any(|k| k.state == State::Unscheduled);
    let Some(next) = next.or(is_open.then_some(0)) else { return Ok((module.clone(), Vec::new())) };
    run_steps(module, machine, steps.get(next..).unwrap_or_default(), options, watch, sink)
}

/// Runs these steps alone, whatever the module's last step was.
///
/// # Errors
/// As [`schedule_for`].
pub fn run_steps(
    module: &VerifiedModule,
    machine: &Machine,
    steps: &[Step],
    options: &ScheduleOptions,
    watch: &Watch,
    sink: &mut dyn Sink,
) -> Result<(VerifiedModule, Vec<Remark>), ScheduleError> {
    let mut observer = Observer::new(watch, sink, "tir");
    observer.begin("lowering", || text::print(module));
    let mut log = Log::new(options, module, machine);
    let mut step = "";
    let mut refused = None;
    let scheduled = module.clone().changed(|module| {
        let mut changed = Changed::new();
        for s in steps {
            if observer.is_stopped() {
                return Ok(changed);
            }
            let made = run(s, module, machine, (watch, &mut observer, &mut log));
            let made = made.inspect_err(|_| refused = Some(s.name))?;
            if watch.verify_each {
                step = s.name;
                recheck(module, &made).map_err(|errors| errors.to_string())?;
            }
            changed.extend(made);
            step = "";
        }
        module.origins = log.origins(module);
        let last = steps_of(machine).last().map(|s| s.name);
        module.scheduled.take_if(|name| Some(name.as_str()) == last);
        Ok(changed)
    });
    observer.finish(&format!("the schedule for {}", machine.name()));
    let scheduled = scheduled.map_err(|(_, text)| match refused {
        Some(_) => ScheduleError::Unsupported(text),
        None => ScheduleError::Invalid { step, errors: text },
    })?;
    Ok((scheduled, log.finish()))
}

/// Runs one step, with the dumps requested before and after it.
fn run(
    step: &Step,
    module: &mut Module,
    machine: &Machine,
    (watch, observer, log): (&Watch, &mut Observer<'_>, &mut Log<'_>),
) -> Result<Changed, String> {
    observer.before(step.name, || text::print(module));
    let before = (watch.print_changed != PrintChanged::No).then(|| text::print(module));
    let start = Instant::now();
    let skipped = !step.required && observer.skips(|n| format!("step ({n}) {} for {}", step.name, machine.name()));
    let changed = if skipped { Changed::new() } else { (step.run)(module, machine, log)? };
    observer.timed(step.name, start);
    log.forget(module);
    let differs = before.as_ref().is_some_and(|before| *before != text::print(module));
    module.scheduled = Some(step.name.to_string());
    observer.report(step.name, differs, || before.clone().unwrap_or_default(), || text::print(module));
    observer.stop_at(step.name);
    Ok(changed)
}

/// share-slots: see `tile::arena`.
fn run_share_slots(module: &mut Module, _: &Machine, _: &mut Log<'_>) -> Result<Changed, String> {
    module.plans.iter_mut().for_each(|plan| share_slots(plan, &module.kernels));
    Ok(Changed::new())
}
