//! `--target cuda`: from graph IR or tile IR to kernels for NVIDIA GPUs, as dumps or in a library.
//!
//! In: the options of `compile`, and a program or one of its dumps. Out: tile IR scheduled for a
//! GPU, PTX; a library with a variant per GPU architecture, and variants for CPUs if requested too.
//! Like `compile`, it is a straight line.

use super::bugs::{Saved, bug};
use super::levels::Levels;
use super::outputs::{Outputs, Source};
use super::session::{CommandError, Session, command_line_error, tell};
use super::stages::{self, Tiers};
use super::{graph_ir, library, nvidia, observe_text, record, variants};
use crate::cli::{CompileOptions, EmitKind, Gpu, Target};
use crate::codegen::cpu::EmitOptions;
use crate::ptx::sim::Mode;
use crate::record::Format;
use crate::simulated::{Simulated, schedule};
use crate::source::FileId;
use crate::tile::verify::VerifiedModule;
use crate::tile::{self, GpuArch, KernelOrPlan, ScheduleOptions};
use std::path::Path;

/// Formats for CPUs only.
const OF_CPUS: [EmitKind; 4] = [EmitKind::Vector, EmitKind::Clif, EmitKind::Mir, EmitKind::Asm];
/// Formats that show kernels for one GPU architecture.
const DUMPS: [EmitKind; 3] = [EmitKind::Tile, EmitKind::Ptx, EmitKind::Sass];
/// Formats that concern the whole library.
const OF_LIBRARY: [EmitKind; 4] = [EmitKind::Obj, EmitKind::So, EmitKind::Header, EmitKind::Python];

/// The GPU architecture of an option.
pub(super) fn arch(gpu: Gpu) -> GpuArch {
    match gpu {
        Gpu::Sm80 => GpuArch::Sm80,
        Gpu::Sm90a => GpuArch::Sm90a,
    }
}

/// Compiles for a GPU.
pub(super) fn compile(
    s: &mut Session,
    options: &CompileOptions,
    source: Source,
    file: FileId,
    out: &Outputs,
) -> Result<(), CommandError> {
    if let Some(kind) = OF_CPUS.into_iter().find(|kind| out.has(*kind)) {
        let message = format!("`--target cuda` supports no `--emit {}`; write `--emit ptx`, or `tile`", kind.name());
        return Err(command_line_error(&message));
    }
    let is_library = OF_LIBRARY.into_iter().any(|kind| out.has(kind));
    let is_dump = DUMPS.into_iter().any(|kind| out.has(kind)) || record::is_asked(out);
    let mut levels = Levels::from_options(&options.target);
    s.observed.shown = Some(arch(options.target.gpu).name().to_string());
    if out.has(EmitKind::So) {
        levels.run_here()?;
    }
    let (mut tiers, mut model) = match source {
        Source::Program | Source::Graph => {
            let Some(graph) = graph_ir(s, options, source, file, out)? else { return Ok(()) };
            levels = levels.for_graph(&graph, stages::generator(options.backend)).keeping(&options.target, &graph)?;
            if is_dump {
                let (tiles, _) = stages::tiles_of(s, &graph)?;
                dumps(s, options, &tiles, (&levels.gpu_options(), false), out)?;
            }
            if !is_library {
                return Ok(());
            }
            let model = stages::describe(s, &graph.interface(), &graph.model, &graph.doc)?;
            (Tiers::for_library(s, &graph, &levels)?, model)
        }
        Source::Tile => {
            s.stage("parse");
            let tiles = stages::tile_text(s, file)?;
            observe_text(s, options)?;
            if is_dump {
                dumps(s, options, &tiles, (&levels.gpu_options(), true), out)?;
            }
            if !is_library {
                return Ok(());
            }
            if options.target.is_for(Target::Cpu) {
                return Err(command_line_error("tile IR is for processors or for GPUs: give one `--target`"));
            }
            let model = stages::describe(s, &tiles.interface(), &tiles.model, &tiles.doc)?;
            (Tiers::given_for_gpus(s, &tiles, &levels.gpu_options())?, model)
        }
        Source::Vector | Source::Clif => {
            return Err(command_line_error("`--target cuda` compiles programs, graph IR and tile IR"));
        }
    };
    model.id = tiers.id(&model, &levels, stages::generator(options.backend));
    if [EmitKind::Obj, EmitKind::So].into_iter().any(|kind| out.has(kind)) {
        nvidia::add_cubins(s, options.cubins, options.passes.remarks, tiers.gpus_mut())?;
    }
    let wanted =
        EmitOptions { debug_lines: options.debug_lines, remarks: options.passes.remarks, ..Default::default() };
    library(s, out, &model, |s| {
        s.stage("generate code");
        stages::machine_code(s, stages::generator(options.backend), &tiers, &model, wanted)
    })
}

/// Tile IR and PTX for the architecture of `--gpu`.
fn dumps(
    s: &mut Session,
    options: &CompileOptions,
    tiles: &VerifiedModule,
    (gpu_options, is_text): (&ScheduleOptions, bool),
    out: &Outputs,
) -> Result<(), CommandError> {
    let kind = arch(options.target.gpu);
    s.stage("schedule");
    let (scheduled, remarks) = variants::scheduled(s, tiles, kind, gpu_options, is_text)?;
    // The library, if there is one, is made of the same steps.
    s.observed.shown = Some(String::new());
    // For a library, remarks are printed for all variants.
    if options.passes.remarks && !OF_LIBRARY.into_iter().any(|kind| out.has(kind)) {
        tell(&remarks);
    }
    let only = stages::only(options.kernel.as_deref(), Some(&scheduled))?;
    out.emit(s, EmitKind::Tile, |_| match only {
        Some(part) => tile::text::print_part(&scheduled, part),
        None => tile::text::print(&scheduled),
    })?;
    if record::is_asked(out) {
        record::tiles(s, (Some(tiles), &scheduled), (kind.name(), true), ("", &remarks));
    }
    let Some(last) = [EmitKind::Sass, EmitKind::Ptx].into_iter().find(|kind| out.has(*kind) || record::is_asked(out))
    else {
        return Ok(());
    };
    s.stage("generate code");
    let (mut module, infos) = variants::compiled(s, &scheduled, kind, is_text)?;
    match only {
        Some(KernelOrPlan::Kernel(n)) => {
            let named = scheduled.kernels.get(n).map(|k| k.name.as_str()).unwrap_or_default();
            let Some(info) = infos.iter().find(|info| info.kernel == named) else {
                let message =
                    format!("`--emit {}`: only kernels launch @{named}, whose code is in theirs", last.name());
                return Err(command_line_error(&message));
            };
            module.kernels.retain(|k| k.name == info.name);
        }
        Some(KernelOrPlan::Plan(_)) => {
            let message = format!("`--emit {}` shows kernels; that is a plan, which runs on the host", last.name());
            return Err(command_line_error(&message));
        }
        None => {}
    }
    let text = crate::ptx::text::print(&module);
    record::code(s, Format::Ptx, &text);
    out.emit(s, EmitKind::Ptx, |_| &text)?;
    if !out.has(EmitKind::Sass) {
        return Ok(());
    }
    let shown = nvidia::disassembled(s, &text, kind.name())?;
    out.emit(s, EmitKind::Sass, |_| shown)
}

/// Schedules a module for a GPU, and compiles its kernels for the simulator.
pub(super) fn simulated(
    s: &mut Session,
    tiles: &VerifiedModule,
    gpu_options: &ScheduleOptions,
    gpu: Gpu,
) -> Result<(VerifiedModule, Simulated), CommandError> {
    let kind = arch(gpu);
    s.stage("schedule");
    let (scheduled, _) = variants::scheduled(s, tiles, kind, gpu_options, false)?;
    s.stage("generate code");
    let (module, infos) = variants::compiled(s, &scheduled, kind, false)?;
    let text = crate::ptx::text::print(&module);
    let made = Simulated::new(&text, infos, &[Mode::EAGER, Mode::LATEST]).map_err(|complaint| {
        let text = tile::text::print(&scheduled);
        let saved = Saved { text: &text, ending: "tir", arguments: "--target cuda --emit ptx" };
        bug("code generation", &complaint, Some(&saved))
    })?;
    Ok((scheduled, made))
}

/// Writes the timeline of a block of the longest watched launch.
pub(super) fn draw_schedule(
    s: &mut Session,
    tiles: &tile::Module,
    simulated: &Simulated,
    path: &Path,
) -> Result<(), CommandError> {
    let Some((name, timeline)) = simulated.longest() else {
        return Err(command_line_error("`--schedule`: the call launches no such kernel, or none with a block"));
    };
    let kernel = tiles.kernels.iter().find(|kernel| kernel.name == name);
    let roles: Vec<String> = kernel.map(tile::Kernel::warp_names).unwrap_or_default();
    let is_text = path == Path::new("-") || path.extension().is_some_and(|ending| ending == "txt");
    let drawn =
        if is_text { schedule::schedule_text(&timeline, &roles) } else { schedule::schedule_svg(&timeline, &roles) };
    s.write(path, drawn.as_bytes())
}
