//! `--target cuda`: from graph IR or tile IR to kernels for an NVIDIA GPU, as text.
//!
//! In: the options of `compile`, and a program or one of its dumps. Out: tile IR scheduled for a GPU, PTX. As `compile`, a straight line.

use super::bugs::{Saved, bug};
use super::outputs::{Outputs, Source};
use super::session::{CommandError, Session, command_line_error};
use super::{graph_ir, stages};
use crate::cli::{CompileOptions, EmitKind, Gpu};
use crate::codegen::ptx;
use crate::ptx::sim::Mode;
use crate::simulated::Simulated;
use crate::source::FileId;
use crate::tile::verify::VerifiedModule;
use crate::tile::{self, GpuArch, Part};

/// The formats that are for processors alone.
const OF_CPUS: [EmitKind; 8] = [
    EmitKind::Vector,
    EmitKind::Clif,
    EmitKind::Mir,
    EmitKind::Asm,
    EmitKind::Obj,
    EmitKind::So,
    EmitKind::Header,
    EmitKind::Python,
];

/// The kind of GPU that an option names.
fn arch(gpu: Gpu) -> GpuArch {
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
    let tiles = match source {
        Source::Program | Source::Graph => match graph_ir(s, options, source, file, out)? {
            Some(graph) => stages::tiles_of(s, &graph)?.0,
            None => return Ok(()),
        },
        Source::Tile => {
            s.stage("parse");
            stages::tile_text(s, file)?
        }
        Source::Vector | Source::Clif => {
            return Err(command_line_error("`--target cuda` compiles programs, graph IR and tile IR"));
        }
    };
    let arch = arch(options.target.gpu);
    s.stage("schedule");
    let scheduled = schedule(s, &tiles, arch, source)?;
    let only = stages::only(options.kernel.as_deref(), Some(&scheduled))?;
    out.emit(s, EmitKind::Tile, |_| match only {
        Some(part) => tile::text::print_part(&scheduled, part),
        None => tile::text::print(&scheduled),
    })?;
    if !out.has(EmitKind::Ptx) {
        return Ok(());
    }
    s.stage("generate code");
    let (mut module, infos) = ptx::compile(&scheduled, arch).map_err(|complaint| match source {
        Source::Tile => stages::no_code(s, &complaint),
        _ => {
            let text = tile::text::print(&scheduled);
            let saved = Saved { text: &text, ending: "tir", arguments: "--target cuda --emit ptx" };
            bug("code generation", &complaint, Some(&saved))
        }
    })?;
    match only {
        Some(Part::Kernel(n)) => {
            let name = infos.get(n).map(|info| info.name.clone()).unwrap_or_default();
            module.kernels.retain(|k| k.name == name);
        }
        Some(Part::Plan(_)) => {
            return Err(command_line_error("`--emit ptx` shows kernels; that is a plan, which runs on the host"));
        }
        None => {}
    }
    out.emit(s, EmitKind::Ptx, |_| crate::ptx::text::print(&module))
}

fn schedule(
    s: &mut Session,
    tiles: &VerifiedModule,
    arch: GpuArch,
    source: Source,
) -> Result<VerifiedModule, CommandError> {
    tile::schedule_for_gpu(tiles, arch).map_err(|complaint| match source {
        Source::Tile => stages::no_code(s, &complaint),
        _ => {
            let text = tile::text::print(tiles);
            let saved = Saved { text: &text, ending: "tir", arguments: "--target cuda --emit tile=-" };
            bug("scheduling", &complaint, Some(&saved))
        }
    })
}

/// Schedules a module for a GPU, and compiles its kernels for the simulator.
pub(super) fn simulated(
    s: &mut Session,
    tiles: &VerifiedModule,
    gpu: Gpu,
) -> Result<(VerifiedModule, Simulated), CommandError> {
    let arch = arch(gpu);
    s.stage("schedule");
    let scheduled = schedule(s, tiles, arch, Source::Program)?;
    s.stage("generate code");
    let failed = |complaint: &str| {
        let text = tile::text::print(&scheduled);
        let saved = Saved { text: &text, ending: "tir", arguments: "--target cuda --emit ptx" };
        bug("code generation", complaint, Some(&saved))
    };
    let (module, infos) = ptx::compile(&scheduled, arch).map_err(|complaint| failed(&complaint))?;
    let text = crate::ptx::text::print(&module);
    let made = Simulated::new(&text, infos, &[Mode::EAGER, Mode::LATEST]).map_err(|complaint| failed(&complaint))?;
    Ok((scheduled, made))
}
