//! The schedule for a GPU: a block of threads computes a grid point.
//!
//! In: an unscheduled module, and the GPU architecture. Out: the same module scheduled. Steps, in
//! order:
//!
//! 0. **Tensor cores.** Suitable matmuls and attentions of 16-bit floats get kernels with fragments
//!    (`tensor_cores`), which are scheduled by that.
//! 1. **Variants.** Attention is computed by the kernels that `attention` makes for this machine:
//!    tiles of [`Numbers::queries`] queries and blocks of [`Numbers::keys`] keys, which matmuls
//!    read in place. Calls with few queries split their keys among blocks (`attention::parts`).
//!
//!    Serial sorting becomes rank counting ([`ranks`]; top-k along a long axis first selects
//!    [`candidates`] in chunks), running sums become sums of chunks ([`scans`]). Matmuls with few
//!    rows and few columns are split along K ([`divided`]), and so are reductions of few long rows
//!    ([`long_rows`]).
//!
//! Before both, weights with a packed format are packed into panels, and the matmuls that read them
//! get kernels of their own (`panels`).
//!
//! Then, for each kernel:
//!
//! 2. **Tiles.** A grid point that loops over elements serially is split: one element per point
//!    ([`one_each`]). Elementwise work and reductions get the machine's tile sizes ([`cost`] has
//!    the parameters and heuristics, [`tiles`] resizes). If elementwise work has both
//!    row-contiguous and column-contiguous operands and results, tiles are transposed in shared
//!    memory ([`transposes`]).
//! 3. **Windows.** Tiles that only matmuls read are not copied first: they are read in place, slice
//!    by slice through shared memory (`codegen::ptx`), whatever their type and layout.
//! 4. **Group, place, share.** As for a CPU: operations with one iteration space form a `run`,
//!    whose elements are distributed over the threads of the block; a tile that lives longer than
//!    its run is in the block's shared memory.
//! 5. **Sum.** Float matmuls are chains of FMAs ([`DotMode::Fma`]); with few rows they split K
//!    among threads, and have other tiles ([`few_rows`]).
//! 6. **Threads.** As many warps as the largest operation needs ([`cost::warps`]), or one warp per
//!    row.
//!
//! Last, loops of plans with small launches become one kernel each ([`persistent`]).
//!
//! Limits: tile sizes of other matmuls do not depend on occupancy.

mod candidates;
mod cost;
mod divided;
mod few_rows;
mod forms;
mod in_steps;
mod long_rows;
mod one_each;
mod parts;
mod persistent;
mod ranks;
mod scans;
mod tiles;
mod transposes;

use std::collections::{BTreeMap, BTreeSet};

use cost::Numbers;
pub use forms::{GpuForm, gpu_forms};
pub use persistent::{GpuLoop, gpu_loops};

use super::sources::Grouping;
use super::{WeightChoice, WeightFormat, attention, choose_modes, group_and_place, panels, tensor_cores};
use crate::shape::Elem;
use crate::tile::alignment::{CHUNK, launches_give};
use crate::tile::verify::VerifiedModule;
use crate::tile::{
    DotMode, GpuArch, Inst, Kernel, Module, Op, ParamMode, Space, State, Target, TileType, Type, Value, share_slots,
};

/// Schedules a module for a GPU. Kernels that are already scheduled are unchanged.
///
/// # Errors
/// A message about what this schedule cannot express.
pub fn schedule_for_gpu(module: &VerifiedModule, arch: GpuArch) -> Result<VerifiedModule, String> {
    schedule_for_gpu_with(module, arch, &GpuOptions::default())
}

/// Options that reduce precision on a GPU.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GpuOptions {
    /// Format of weights: if narrower than in the program, they are packed once for all calls
    /// (`panels`).
    pub weights: WeightChoice,
    /// May operands of `f32` matmuls be rounded to `tf32`, for tensor cores?
    pub tf32: bool,
}

/// The same with options.
///
/// # Errors
/// As [`schedule_for_gpu`].
pub fn schedule_for_gpu_with(
    module: &VerifiedModule,
    arch: GpuArch,
    options: &GpuOptions,
) -> Result<VerifiedModule, String> {
    let weights = &options.weights;
    let is_packed = weights.format != WeightFormat::F32;
    let module = &match is_packed && module.kernels.iter().any(|k| k.state == State::Unscheduled) {
        false => module.clone(),
        true => {
            let target = Target { columns: tensor_cores::PANEL, ..target(arch, Numbers::of(arch)) };
            let packed = module.clone().changed(|module| Ok(panels::choose(module, &target, weights)?.1));
            packed.map_err(|(_, why)| why)?
        }
    };
    let numbers = Numbers::of(arch);
    let mut queries = numbers.queries;
    loop {
        match with_queries(module, arch, Numbers { queries, ..numbers }, options.tf32) {
            Err(Refused::TooLarge(_)) if queries > 1 => queries /= 2,
            Err(Refused::TooLarge(why) | Refused::Other(why)) => return Err(why),
            Ok(scheduled) => {
                let was_open = module.kernels.iter().any(|k| k.state == State::Unscheduled);
                return Ok(if was_open { persistent::put_loops(scheduled, arch) } else { scheduled });
            }
        }
    }
}

/// Why scheduling failed.
enum Refused {
    /// Too much shared memory; smaller tiles may fit.
    TooLarge(String),
    /// Any other reason.
    Other(String),
}

/// The parameters of a GPU that determine operand layouts.
fn target(arch: GpuArch, numbers: Numbers) -> Target {
    Target {
        columns: numbers.queries,
        pairs: None,
        single_queries: 4,
        few_rows: 0,
        keys: numbers.keys,
        reads_in_place: true,
        gpu: Some(arch),
    }
}

fn with_queries(
    module: &VerifiedModule,
    arch: GpuArch,
    numbers: Numbers,
    tf32: bool,
) -> Result<VerifiedModule, Refused> {
    let is_open = module.kernels.iter().any(|k| k.state == State::Unscheduled);
    let target = target(arch, numbers);
    let mut too_large = false;
    let scheduled = module.clone().changed(|module: &mut Module| {
        let (mut changed, divided) = tensor_cores::expand(module, arch, tf32);
        changed.extend(attention::expand(module, target, &divided)?);
        changed.extend(candidates::expand(module)?);
        changed.extend(ranks::expand(module));
        changed.extend(scans::expand(module)?);
        changed.extend(divided::divide(module)?);
        changed.extend(long_rows::expand(module)?);
        let aligned = aligned(module);
        let unscheduled = module.kernels.iter().filter(|k| k.state == State::Unscheduled);
        let chunks = unscheduled.filter(|k| few_rows::begin_with_chunks(module, k)).map(|k| k.name.clone());
        let chunks: BTreeSet<String> = chunks.collect();
        for kernel in module.kernels.iter_mut().filter(|k| k.state == State::Unscheduled) {
            for (n, p) in kernel.params.iter_mut().enumerate() {
                p.aligned = aligned.contains(&(kernel.name.clone(), n));
            }
            let in_chunks = chunks.contains(&kernel.name);
            let resized = schedule_kernel(kernel, arch, in_chunks);
            if *resized.as_ref().unwrap_or(&false) {
                changed.insert(kernel.name.clone());
            }
            resized.map_err(|e| format!("kernel @{} has no schedule: {e}", kernel.name))?;
            if kernel.scratch + numbers.transient > numbers.shared {
                too_large = true;
                let (name, needs, most) = (&kernel.name, kernel.scratch + numbers.transient, numbers.shared);
                return Err(format!("kernel @{name} needs {needs} bytes of shared memory, a block has {most}"));
            }
        }
        if is_open {
            module.plans.iter_mut().for_each(|plan| share_slots(plan, &module.kernels));
        }
        Ok(changed)
    });
    scheduled.map_err(|(_, why)| if too_large { Refused::TooLarge(why) } else { Refused::Other(why) })
}

/// The parameters of unscheduled kernels for which every launch passes a buffer aligned to 16
/// bytes.
fn aligned(module: &Module) -> BTreeSet<(String, usize)> {
    let mut out = BTreeSet::new();
    for kernel in module.kernels.iter().filter(|k| k.state == State::Unscheduled) {
        for (n, p) in kernel.params.iter().enumerate() {
            let is_buffer = kernel.body.ty(p.value).buffer().is_some();
            if is_buffer && launches_give(module, &kernel.name, n, CHUNK) {
                out.insert((kernel.name.clone(), n));
            }
        }
    }
    out
}

/// Schedules a kernel in runs. `in_chunks`: the operands of its matmuls are aligned to 16 bytes.
/// Returns whether its tiles were resized.
fn schedule_kernel(kernel: &mut Kernel, arch: GpuArch, in_chunks: bool) -> Result<bool, String> {
    if in_chunks {
        few_rows::retile(kernel);
    }
    if one_each::one_each(kernel) {
        in_runs(kernel, arch, in_chunks, cost::Choice::default())?;
        return Ok(true);
    }
    if let Some(apart) = transposes::turn(kernel) {
        let grouping = Grouping { apart, ..Grouping::default() };
        in_runs(kernel, arch, in_chunks, cost::Choice { grouping, ..cost::Choice::default() })?;
        return Ok(true);
    }
    let numbers = Numbers::of(arch);
    let before = kernel.clone();
    if cost::enlarge(kernel) {
        in_runs(kernel, arch, in_chunks, cost::Choice::default())?;
        if kernel.scratch + numbers.transient <= numbers.shared {
            return Ok(true);
        }
        *kernel = before;
    }
    let choice = cost::choose(kernel);
    let resized = choice.resized;
    in_runs(kernel, arch, in_chunks, choice)?;
    Ok(resized)
}

/// Schedules a kernel whose tile sizes are final.
fn in_runs(kernel: &mut Kernel, arch: GpuArch, in_chunks: bool, choice: cost::Choice) -> Result<(), String> {
    make_windows(kernel);
    group_and_place(kernel, choice.grouping)?;
    let warps = choice.warps.and_then(|n| u32::try_from(n).ok());
    // A block with such a matmul has the maximum, unless chosen otherwise.
    let most = warps.unwrap_or(u32::try_from(cost::MOST_WARPS).unwrap_or(1));
    choose_modes(&mut kernel.body, |body, dot| {
        if in_chunks && DotMode::Split.check_for_gpu(body, dot, most).is_ok() {
            return DotMode::Split;
        }
        let is_float = dot.result.and_then(|v| body.ty(v).elem()) == Some(Elem::F32);
        if is_float { DotMode::Fma } else { DotMode::Chain }
    });
    kernel.state = State::Gpu { arch, warps: warps.unwrap_or_else(|| cost::warps(&kernel.body)) };
    kernel.compute = None;
    Ok(())
}

/// Turns loads that only matmuls use into windows, if the buffer is read-only.
fn make_windows(kernel: &mut Kernel) {
    let body = &kernel.body;
    let mut loads: BTreeMap<Value, Inst> = BTreeMap::new();
    let mut refused: BTreeSet<Value> = BTreeSet::new();
    // Quantised panels are always read in place.
    let mut panels = Vec::new();
    for block in &body.layout {
        let data = body.block(*block);
        refused.extend(data.terminator.values());
        for i in &data.insts {
            let inst = body.inst(*i);
            let reads = |b: &Value| kernel.params.iter().any(|p| p.value == *b && p.mode == ParamMode::In);
            if let (Op::LoadScaled { .. }, Some(v)) = (&inst.op, inst.result) {
                panels.push(v);
            }
            if let (Op::Load { .. }, Some(v), true) = (&inst.op, inst.result, inst.operands.first().is_some_and(reads))
            {
                loads.insert(v, *i);
            }
            for (n, v) in inst.operands.iter().enumerate() {
                if !matches!(inst.op, Op::Dot { .. }) || n > 1 {
                    refused.insert(*v);
                }
            }
        }
    }
    let used: BTreeSet<Value> = body.insts().flat_map(|(_, _, d)| d.operands.clone()).collect();
    for (v, i) in loads.into_iter().filter(|(v, _)| used.contains(v) && !refused.contains(v)) {
        let data = kernel.body.inst_mut(i);
        if let Op::Load { rows, cols } = data.op {
            data.op = Op::Window { rows, cols };
        }
        panels.push(v);
    }
    for v in panels {
        if let Type::Tile(t) = kernel.body.ty(v).clone() {
            kernel.body.set_ty(v, Type::Tile(TileType { space: Space::Window, ..t }));
        }
    }
}
