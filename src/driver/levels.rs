//! The instruction sets that code is generated for.
//!
//! In: `--cpu`, `--pack` and `--keep`, and the features of the host. Out: the instruction sets,
//! best first, and the format of packed weights.

use super::keep;
use super::session::{CommandError, command_line_error};
use super::variants;
use crate::cli::{CpuTier, MatmulPrecision, Target, TargetOptions, WeightPacking};
use crate::codegen::Generator;
use crate::codegen::cpu::{self, Arch};
use crate::ir;
use crate::lowering;
use crate::runtime::descriptor::features_of;
use crate::runtime::processor::can_run;
use crate::tile::{Cpu, Feature, GpuArch, ScheduleOptions, WeightChoice, WeightFormat};

/// The best instruction set that the host supports.
pub(super) fn native() -> Cpu {
    let runs = |level: &Cpu| features_of(&level.name()).is_some_and(can_run);
    Cpu::NAMED.into_iter().rev().find(runs).unwrap_or(Cpu::PORTABLE)
}

/// The instruction set of each value of `--cpu`.
const TIERS: [(CpuTier, Cpu); 7] = [
    (CpuTier::Portable, Cpu::PORTABLE),
    (CpuTier::Avx2, Cpu::AVX2),
    (CpuTier::Avx2vnni, Cpu::AVX2_VNNI),
    (CpuTier::Avx512, Cpu::AVX512),
    (CpuTier::Avx512bf16, Cpu::AVX512_BF16),
    (CpuTier::Amx, Cpu::AMX),
    (CpuTier::Neon, Cpu::PORTABLE),
];

/// Resolves `native`.
pub(super) fn tier(asked: CpuTier) -> CpuTier {
    match asked {
        CpuTier::Native => TIERS.into_iter().find(|(_, cpu)| *cpu == native()).map_or(CpuTier::Portable, |(t, _)| t),
        _ => asked,
    }
}

/// The instruction set of an option.
pub(super) fn level(asked: CpuTier) -> Cpu {
    let own = TIERS.into_iter().find(|(t, _)| *t == tier(asked));
    own.map_or(Cpu::PORTABLE, |(_, cpu)| cpu)
}

/// The targets of a compilation.
#[derive(Clone, Debug)]
pub(super) struct Levels {
    /// Every instruction set that code is generated for, best first.
    pub(super) all: Vec<Cpu>,
    /// The instruction set of dumps: by default the same on every host.
    pub(super) shown: Cpu,
    /// GPU architectures that code is generated for.
    pub(super) gpus: Vec<GpuArch>,
    /// The format of packed weights.
    pub(super) weights: WeightChoice,
    /// May `f32` matmuls on GPUs round operands to `tf32`?
    pub(super) tf32: bool,
    /// The architecture.
    pub(super) arch: Arch,
}

impl Levels {
    /// All instruction sets up to the one of `--cpu`.
    pub(super) fn from_options(target: &TargetOptions) -> Levels {
        let asked = target.cpu.map(level);
        let arch = if target.cpu == Some(CpuTier::Neon) { Arch::Aarch64 } else { Arch::host() };
        let every = [cpu::bf16_levels(), cpu::byte_levels(), cpu::levels()].concat();
        let is_wanted = |l: &Cpu| every.contains(l) && asked.is_none_or(|a| a.includes(*l));
        let all: Vec<Cpu> = Cpu::NAMED.into_iter().rev().filter(is_wanted).collect();
        let shown = asked.and_then(|_| all.first().copied()).unwrap_or(Cpu::PORTABLE);
        let weights = match target.pack {
            WeightPacking::F32 => WeightFormat::F32,
            WeightPacking::Bf16 => WeightFormat::Bf16,
            WeightPacking::Int8 => WeightFormat::Int8,
            WeightPacking::Int4 => WeightFormat::Int4,
        };
        // A library for GPUs only has no CPU kernels.
        let all = if target.is_for(Target::Cpu) { all } else { Vec::new() };
        let gpus = if target.is_for(Target::Cuda) { variants::ALL.to_vec() } else { Vec::new() };
        let tf32 = target.matmul_precision == MatmulPrecision::Tf32;
        Levels { all, shown, gpus, weights: weights.into(), tf32, arch }
    }

    /// Adds the parameters that `--keep` excludes from packing.
    pub(super) fn keeping(mut self, target: &TargetOptions, graph: &ir::Module) -> Result<Levels, CommandError> {
        self.weights.kept = keep::parameters(&target.keep, &graph.params).map_err(|text| command_line_error(&text))?;
        Ok(self)
    }

    /// Options for GPU kernels that reduce precision.
    pub(super) fn gpu_options(&self) -> ScheduleOptions {
        ScheduleOptions { weights: self.weights.clone(), tf32: self.tf32, ..ScheduleOptions::default() }
    }

    /// Fails if the code could not be linked and run on the host.
    pub(super) fn run_here(&self) -> Result<(), CommandError> {
        if self.arch == Arch::host() {
            return Ok(());
        }
        let message = "`--cpu neon` is for aarch64; on this machine it supports only `--emit obj`, `asm` and `clif`";
        Err(command_line_error(message))
    }

    /// Drops instruction sets that make no difference: the `bf16` ones are needed only if there are
    /// `bf16` matmuls or weights packed as bf16, AMX only if the back end supports it, byte dot
    /// products only if weights are packed as integers.
    pub(super) fn for_graph(mut self, graph: &ir::Module, generator: Generator) -> Levels {
        let halves = self.weights.format == WeightFormat::Bf16 && !graph.params.is_empty();
        let bf16 = halves || lowering::tile::multiplies_bf16(graph);
        let whole = matches!(self.weights.format, WeightFormat::Int8 | WeightFormat::Int4) && !graph.params.is_empty();
        self.all.retain(|cpu| {
            let tiles = !cpu.has(Feature::Amx) || generator == Generator::Cranelift;
            *cpu == cpu.vectors() || (if cpu.has(Feature::Bf16) { bf16 && tiles } else { whole })
        });
        // The best of the remaining instruction sets.
        self.shown = self.all.iter().copied().find(|cpu| self.shown.includes(*cpu)).unwrap_or(self.shown);
        self
    }
}
