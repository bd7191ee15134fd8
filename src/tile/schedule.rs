//! The schedule: chooses layouts of matmul operands, loop nests, and the memory of each tile.
//!
//! In: an unscheduled module, and a [`Machine`]. Out: the same module scheduled, by the steps of
//! one of two tables, for CPUs and for GPUs ([`pipeline`]), which are the text to read first. Each
//! step is a function in a file of its own, whose head has what it does, with the IR before and
//! after. A decision that a later step needs is in the IR: an unscheduled kernel may have tiles of
//! final sizes (`tiled`), operands read in place (`window`) and modes of matmuls.
//!
//! Limits: it does not choose the rows and columns of tiles on a CPU except for matmuls and
//! attention (lowering did).

mod attention;
mod formats;
mod gpu;
mod halves;
mod jam;
mod joined;
mod losses;
mod modes;
mod packing;
mod pairs;
mod panels;
mod pipeline;
mod place;
mod plans;
mod products;
mod quantise;
mod runs;
mod sharing;
mod sources;
mod split_sums;
mod step;
mod tensor_cores;
mod unpack;
mod windows;

use super::verify::VerifiedModule;
use super::{Cpu, GpuArch, Kernel, Machine, State};
use crate::observe::{Collected, Watch};
pub use formats::{WeightChoice, WeightFormat};
pub use losses::{Loss, PackedWeight};
pub use pipeline::{CPU_STEPS, GPU_STEPS, ScheduleError, find_step, run_steps, schedule_for, steps_named, steps_of};
pub use step::{Remark, ScheduleOptions, Step};
pub use tensor_cores::tensor_core_kernel;

/// Schedules a module for a CPU: layouts of matmul operands, kernels, and sharing of arena slots.
/// `weights` is the format of packed weights. Kernels that are already scheduled are unchanged.
///
/// # Errors
/// A message about what this schedule cannot express.
pub fn schedule(module: &VerifiedModule, level: Cpu, weights: &WeightChoice) -> Result<VerifiedModule, String> {
    let options = ScheduleOptions { weights: weights.clone(), ..ScheduleOptions::default() };
    unobserved(module, &Machine::from(level), &options)
}

/// Schedules a module for a GPU. Kernels that are already scheduled are unchanged.
///
/// # Errors
/// As [`schedule`].
pub fn schedule_for_gpu(module: &VerifiedModule, arch: GpuArch) -> Result<VerifiedModule, String> {
    schedule_for_gpu_with(module, arch, &ScheduleOptions::default())
}

/// The same with options.
///
/// # Errors
/// As [`schedule`].
pub fn schedule_for_gpu_with(
    module: &VerifiedModule,
    arch: GpuArch,
    options: &ScheduleOptions,
) -> Result<VerifiedModule, String> {
    unobserved(module, &Machine::from(arch), options)
}

/// Schedules a module with one verification, at the end.
fn unobserved(module: &VerifiedModule, machine: &Machine, options: &ScheduleOptions) -> Result<VerifiedModule, String> {
    let watch = Watch { verify_each: false, ..Watch::default() };
    schedule_for(module, machine, options, &watch, &mut Collected::default())
        .map_err(|e| e.to_string())
        .map(|made| made.0)
}

/// The parameters that a schedule for a CPU would pack in a narrower format, sorted by name, each
/// with its packed part.
///
/// # Errors
/// As [`schedule`].
pub fn packed_weights(
    module: &VerifiedModule,
    level: Cpu,
    weights: &WeightChoice,
) -> Result<Vec<PackedWeight>, String> {
    let chosen = panels::choose(&mut (**module).clone(), &Machine::from(level), weights)?;
    Ok(losses::packed(&chosen.packing))
}

/// Schedules a kernel for a CPU without changing operand layouts or tile sizes. An already
/// scheduled kernel is unchanged.
///
/// # Errors
/// A message about what this schedule cannot express.
pub fn schedule_kernel(kernel: &mut Kernel, level: Cpu) -> Result<(), String> {
    if kernel.state != State::Unscheduled {
        return Ok(());
    }
    let machine = Machine::from(level);
    split_sums::split(kernel, level);
    windows::make_windows(kernel, &machine);
    modes::choose(kernel, &machine, false);
    place::place(kernel, &machine)
}
