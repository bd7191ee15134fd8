//! The GPU variants of a library: kernels scheduled for each GPU architecture, and their PTX.
//!
//! In: unscheduled tile IR. Out: the scheduled module and its kernels for each GPU architecture
//! that makes a difference; or a diagnostic or bug report. It must not know what else is in the
//! library.

use super::bugs::{Saved, broken_schedule, bug};
use super::dumps::print_steps;
use super::observed::Observed;
use super::session::{CommandError, Session, command_line_error};
use crate::codegen::cpu::GpuKernels;
use crate::codegen::ptx::{self, KernelInfo};
use crate::diagnostics::Diagnostic;
use crate::diagnostics::codes::ir as ir_codes;
use crate::observe::Collected;
use crate::ptx::Module;
use crate::threads;
use crate::tile::verify::VerifiedModule;
use crate::tile::{self, GpuArch, Machine, ScheduleOptions, State};

/// A module for one GPU architecture.
pub(super) struct GpuTier {
    /// Its plans, and its kernels as tile IR.
    pub(super) module: VerifiedModule,
    /// Its kernels as PTX.
    pub(super) kernels: GpuKernels,
    /// The remarks of its schedule, as lines.
    pub(super) remarks: String,
}

/// Every GPU architecture that a library has code for, most specific first.
pub(super) const ALL: [GpuArch; 2] = [GpuArch::Sm90a, GpuArch::Sm80];

/// The architectures of a module's kernels; all of them if no kernel is scheduled yet.
pub(super) fn kinds_of(tiles: &VerifiedModule) -> Vec<GpuArch> {
    let own = |k: &tile::Kernel| match k.state {
        State::Gpu { arch, .. } => Some(arch),
        State::Unscheduled | State::Cpu(_) => None,
    };
    let some: Vec<GpuArch> = tiles.kernels.iter().filter_map(own).collect();
    ALL.into_iter().filter(|kind| some.is_empty() || some.contains(kind)).collect()
}

/// Why there is no code.
enum Failure {
    /// Code generation does not support something in the given IR; not reported yet.
    Unsupported(String),
    /// A bug, which was already reported.
    Bug(CommandError),
}

impl Failure {
    fn report(self, s: &mut Session) -> CommandError {
        match self {
            Failure::Unsupported(complaint) => no_code(s, &complaint),
            Failure::Bug(error) => error,
        }
    }
}

/// Schedules kernels for a GPU architecture; also returns the remarks, as lines. `is_text`: the
/// kernels were given by the user as tile IR.
pub(super) fn scheduled(
    s: &mut Session,
    tiles: &VerifiedModule,
    kind: GpuArch,
    options: &ScheduleOptions,
    is_text: bool,
) -> Result<(VerifiedModule, String), CommandError> {
    let (made, out) = schedule(&s.observed, tiles, kind, options, is_text);
    print_steps(s, out)?;
    made.map_err(|failure| failure.report(s))
}

/// The remarks of a schedule, as lines.
pub(super) fn remark_lines(tiles: &tile::Module, remarks: &[tile::Remark]) -> String {
    let line =
        |remark: &tile::Remark| format!("remark: {}: {}\n", remark.loc.text(&tiles.name, &tiles.files), remark.text);
    remarks.iter().map(line).collect()
}

fn schedule(
    observed: &Observed,
    tiles: &VerifiedModule,
    kind: GpuArch,
    options: &ScheduleOptions,
    is_text: bool,
) -> (Result<(VerifiedModule, String), Failure>, Collected) {
    let (made, out) = observed.schedule(tiles, &Machine::from(kind), options, false);
    let made = made.map(|(module, remarks)| (module, remark_lines(tiles, &remarks)));
    let made = made.map_err(|e| match is_text {
        true => Failure::Unsupported(e.to_string()),
        false => Failure::Bug(broken_schedule(tiles, &e, "--target cuda --emit tile=-")),
    });
    (made, out)
}

/// The PTX of scheduled kernels.
pub(super) fn compiled(
    s: &mut Session,
    module: &VerifiedModule,
    kind: GpuArch,
    is_text: bool,
) -> Result<(Module, Vec<KernelInfo>), CommandError> {
    generate(module, kind, is_text).map_err(|failure| failure.report(s))
}

fn generate(module: &VerifiedModule, kind: GpuArch, is_text: bool) -> Result<(Module, Vec<KernelInfo>), Failure> {
    is_scheduled(module).map_err(Failure::Bug)?;
    ptx::compile(module, kind).map_err(|complaint| {
        if is_text {
            return Failure::Unsupported(complaint);
        }
        let text = tile::text::print(module);
        let saved = Saved { text: &text, ending: "tir", arguments: "--target cuda --emit ptx" };
        Failure::Bug(bug("code generation", &complaint, Some(&saved)))
    })
}

/// Kernels for several GPU architectures. A variant is omitted if its kernels need nothing beyond
/// another variant that exists.
pub(super) fn variants(
    s: &mut Session,
    tiles: &VerifiedModule,
    kinds: &[GpuArch],
    options: &ScheduleOptions,
    is_text: bool,
) -> Result<Vec<GpuTier>, CommandError> {
    s.stage("generate PTX");
    let observed = &s.observed;
    let scheduled =
        threads::each(kinds.to_vec(), kinds.len(), |kind| schedule(observed, tiles, kind, options, is_text));
    let mut modules = Vec::new();
    for (kind, (made, out)) in kinds.iter().zip(scheduled) {
        print_steps(s, out)?;
        modules.push((*kind, made.map_err(|failure| failure.report(s))?));
    }
    let made = threads::each(modules, kinds.len(), |(kind, (module, remarks))| {
        let (ptx, infos) = generate(&module, kind, is_text)?;
        if kinds.len() > 1 && ptx.target.alone && !ptx.lowest().1.alone {
            return Ok(None);
        }
        let kernels = ptx::variant(kind.name(), &ptx, &infos).map_err(Failure::Unsupported)?;
        Ok(Some(GpuTier { module, kernels, remarks }))
    });
    let made: Result<Vec<Option<GpuTier>>, Failure> = made.into_iter().collect();
    Ok(made.map_err(|failure| failure.report(s))?.into_iter().flatten().collect())
}

/// Reports valid tile IR that code generation does not support.
pub(super) fn no_code(s: &mut Session, complaint: &str) -> CommandError {
    s.diagnostics
        .push(Diagnostic::error(ir_codes::INVALID, format!("code generation does not support this: {complaint}")));
    CommandError::Program
}

/// Fails if `--stop-after` has left kernels that are not scheduled, for which there is no code.
pub(super) fn is_scheduled(module: &tile::Module) -> Result<(), CommandError> {
    match module.kernels.iter().find(|k| k.state == tile::State::Unscheduled) {
        None => Ok(()),
        Some(k) => Err(command_line_error(&format!(
            "kernel @{} is not scheduled to the end: with `--stop-after` one of its steps, there is only `--emit tile`",
            k.name
        ))),
    }
}
