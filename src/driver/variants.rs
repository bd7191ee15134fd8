//! The variants of a library that are for GPUs: kernels scheduled for each kind, and their PTX.
//!
//! In: unscheduled tile IR. Out: for each kind of GPU that makes a difference the scheduled module and its kernels, or a diagnostic, or a
//! bug report. What it must not know: what else is in the library.

use super::bugs::{Saved, bug};
use super::session::{CommandError, Session};
use crate::codegen::cpu::GpuKernels;
use crate::codegen::ptx::{self, KernelInfo};
use crate::diagnostics::Diagnostic;
use crate::diagnostics::codes::ir as ir_codes;
use crate::ptx::Module;
use crate::tile::verify::VerifiedModule;
use crate::tile::{self, GpuArch, State};

/// A module for a kind of GPU.
pub(super) struct GpuTier {
    /// Its plans, and its kernels as tile IR.
    pub(super) module: VerifiedModule,
    /// Its kernels as PTX.
    pub(super) kernels: GpuKernels,
}

/// Every kind of GPU that a library has code for, the most particular first.
pub(super) const ALL: [GpuArch; 2] = [GpuArch::Sm90a, GpuArch::Sm80];

/// The kinds that the kernels of a text are for: all where none is scheduled yet.
pub(super) fn kinds_of(tiles: &VerifiedModule) -> Vec<GpuArch> {
    let own = |k: &tile::Kernel| match k.state {
        State::Gpu { arch, .. } => Some(arch),
        State::Unscheduled | State::Cpu(_) => None,
    };
    let some: Vec<GpuArch> = tiles.kernels.iter().filter_map(own).collect();
    ALL.into_iter().filter(|kind| some.is_empty() || some.contains(kind)).collect()
}

/// Schedules kernels for a kind of GPU. `is_text`: did someone else write them?
pub(super) fn scheduled(
    s: &mut Session,
    tiles: &VerifiedModule,
    kind: GpuArch,
    is_text: bool,
) -> Result<VerifiedModule, CommandError> {
    tile::schedule_for_gpu(tiles, kind).map_err(|complaint| {
        if is_text {
            return no_code(s, &complaint);
        }
        let text = tile::text::print(tiles);
        bug(
            "scheduling",
            &complaint,
            Some(&Saved { text: &text, ending: "tir", arguments: "--target cuda --emit tile=-" }),
        )
    })
}

/// The PTX of scheduled kernels.
pub(super) fn compiled(
    s: &mut Session,
    module: &VerifiedModule,
    kind: GpuArch,
    is_text: bool,
) -> Result<(Module, Vec<KernelInfo>), CommandError> {
    ptx::compile(module, kind).map_err(|complaint| {
        if is_text {
            return no_code(s, &complaint);
        }
        let text = tile::text::print(module);
        bug(
            "code generation",
            &complaint,
            Some(&Saved { text: &text, ending: "tir", arguments: "--target cuda --emit ptx" }),
        )
    })
}

/// Kernels for some kinds of GPUs. One whose kernels need nothing that others lack is left out if there is code for those.
pub(super) fn variants(
    s: &mut Session,
    tiles: &VerifiedModule,
    kinds: &[GpuArch],
    is_text: bool,
) -> Result<Vec<GpuTier>, CommandError> {
    let mut tiers = Vec::new();
    for kind in kinds {
        s.stage("schedule for GPUs");
        let module = scheduled(s, tiles, *kind, is_text)?;
        s.stage("generate PTX");
        let (ptx, infos) = compiled(s, &module, *kind, is_text)?;
        if kinds.len() > 1 && ptx.target.alone && !ptx.lowest().1.alone {
            continue;
        }
        let kernels = ptx::variant(kind.name(), &ptx, &infos).map_err(|complaint| no_code(s, &complaint))?;
        tiers.push(GpuTier { module, kernels });
    }
    Ok(tiers)
}

/// Reports tile IR that is valid but that code generation does not support.
pub(super) fn no_code(s: &mut Session, complaint: &str) -> CommandError {
    s.diagnostics
        .push(Diagnostic::error(ir_codes::INVALID, format!("code generation does not support this: {complaint}")));
    CommandError::Program
}
