//! The schedule for a GPU: a block of threads computes a grid point.
//!
//! In: an unscheduled module, and the kind of GPU. Out: the same module scheduled. What it does, in order:
//!
//! 0. **Tensor cores.** Products and attention of 16-bit floats that fit get kernels of fragments (`tensor_cores`), which are scheduled
//!    with that.
//! 1. **Variants.** Attention is computed by the kernels that `attention` writes for this machine: tiles of [`Numbers::queries`]
//!    queries meet blocks of [`Numbers::keys`] keys, which products read where they lie. Calls of few queries divide their keys among blocks
//!    (`attention::parts`).
//!
//!    Sorting, which goes from element to element, becomes counting ([`ranks`]; of the greatest few of many, within chunks first: [`candidates`]), running sums become sums of chunks ([`scans`]). Products of few rows and few columns are divided by their steps
//!    ([`divided`]). So are long rows that are reduced, if they are few ([`long_rows`]).
//!
//! Before both, weights that are to be kept in fewer bytes are packed into panels, and the products that read them get kernels of their own
//! (`panels`).
//!
//! Then, of each kernel:
//!
//! 2. **Tiles.** Points that take elements one after another become points of one ([`one_each`]). Elementwise work and reductions get tiles of the machine's sizes ([`cost`] has the numbers and the rules, [`tiles`] resizes).
//!    Where some of the elementwise work's operands and results lie along rows and others along columns, tiles are turned in shared memory ([`transposes`]).
//! 3. **Windows.** What only products read is not copied first: they read it in place, slice by slice through shared memory
//!    (`codegen::ptx`), whatever its type and order.
//! 4. **Group, place, share.** As for a CPU: operations of one iteration space form a `run`, whose elements the threads of the block
//!    divide among them; what lives longer than its run lies in the block's shared memory.
//! 5. **Sum.** Products of floats are chains of fused steps ([`DotMode::Fma`]); those of few rows divide the steps among threads, and have
//!    tiles of their own ([`few_rows`]).
//! 6. **Threads.** As many warps as the largest operation has work for ([`cost::warps`]), or a warp for each row.
//!
//! Last, loops of plans whose launches are small become one kernel each ([`persistent`]).
//!
//! What it does not do: choose tiles of other products from what the rest of the machine does.

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

/// Schedules a module for a GPU. Kernels that are scheduled already stay as they are.
///
/// # Errors
/// What this schedule cannot express, in words.
pub fn schedule_for_gpu(module: &VerifiedModule, arch: GpuArch) -> Result<VerifiedModule, String> {
    schedule_for_gpu_with(module, arch, &GpuOptions::default())
}

/// What may be less exact on a GPU than the program says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GpuOptions {
    /// What weights are kept as: those in fewer bytes than the program has are packed once for all calls (`panels`).
    pub weights: WeightChoice,
    /// May operands of products of `f32` be rounded to `tf32`, for tensor cores?
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

/// Why there is no schedule.
enum Refused {
    /// Too much shared memory, which smaller tiles may lack.
    TooLarge(String),
    /// Anything else.
    Other(String),
}

/// A GPU as the layout of operands sees it.
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

/// The parameters of kernels that are not scheduled yet to which every launch gives a buffer at a multiple of 16 bytes.
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

/// Schedules a kernel in runs. `in_chunks`: the operands of its products begin at multiples of 16 bytes. Were its tiles resized?
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

/// Schedules a kernel whose tiles have their sizes.
fn in_runs(kernel: &mut Kernel, arch: GpuArch, in_chunks: bool, choice: cost::Choice) -> Result<(), String> {
    make_windows(kernel);
    group_and_place(kernel, choice.grouping)?;
    let warps = choice.warps.and_then(|n| u32::try_from(n).ok());
    // A block with such a product has the most, if nothing else is chosen.
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

/// Makes windows of the loads that products alone use, of buffers that are only read.
fn make_windows(kernel: &mut Kernel) {
    let body = &kernel.body;
    let mut loads: BTreeMap<Value, Inst> = BTreeMap::new();
    let mut refused: BTreeSet<Value> = BTreeSet::new();
    // Panels of integers are always read in place.
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
