//! The target and the options of code generation: the architecture, its instruction sets,
//! Cranelift's settings.

use std::num::NonZero;

use cranelift_codegen::ir::{AbiParam, Signature, types};
use cranelift_codegen::isa::{self, CallConv, OwnedTargetIsa, TargetIsa};
use cranelift_codegen::settings::{self, Configurable};
use target_lexicon::{Aarch64Architecture, Architecture, BinaryFormat, Environment, OperatingSystem, Triple, Vendor};

use crate::tile::{Cpu, KernelOrPlan, PlanVariant};

/// A target architecture.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Arch {
    /// x86-64; the baseline is SSE2.
    #[cfg_attr(target_arch = "x86_64", default)]
    X86,
    /// aarch64, with NEON.
    #[cfg_attr(target_arch = "aarch64", default)]
    Aarch64,
}

impl Arch {
    /// The architecture of this machine.
    pub fn host() -> Arch {
        Arch::default()
    }

    /// The target triple: this machine's, or for another architecture that of Linux.
    pub fn triple(self) -> Triple {
        if self == Arch::host() {
            return Triple::host();
        }
        let architecture = match self {
            Arch::X86 => Architecture::X86_64,
            Arch::Aarch64 => Architecture::Aarch64(Aarch64Architecture::Aarch64),
        };
        let (operating_system, environment) = (OperatingSystem::Linux, Environment::Gnu);
        Triple {
            architecture,
            vendor: Vendor::Unknown,
            operating_system,
            environment,
            binary_format: BinaryFormat::Elf,
        }
    }
}

/// Options of code generation: the target, and what to emit beside the object.
#[derive(Clone, Copy, Debug, Default)]
pub struct EmitOptions {
    /// The target architecture.
    pub arch: Arch,
    /// The CLIF of each function, as text.
    pub clif: bool,
    /// The machine code of each function, as text.
    pub asm: bool,
    /// The bytes of each instruction in that text.
    pub asm_bytes: bool,
    /// The virtual-register code of each leaf function that has it, as text.
    pub mir: bool,
    /// In the `mir` text, also the code after register allocation.
    pub mir_registers: bool,
    /// A line table in the object: which line of the program each piece of code comes from.
    pub debug_lines: bool,
    /// Show only this kernel or plan, and the leaves that it calls.
    pub only: Option<KernelOrPlan>,
    /// Show only functions for this instruction set; `None` shows all.
    pub level: Option<Cpu>,
    /// Are kernels compiled by another back end, under [`kernel_name`]? Then they are only
    /// declared.
    pub kernels_elsewhere: bool,
    /// Report operations computed with 128-bit vectors although there are wider ones?
    pub remarks: bool,
    /// Maximum number of compiler threads; `None` uses all of the machine's. The output does not
    /// depend on it.
    pub threads: Option<NonZero<usize>>,
}

impl EmitOptions {
    /// Must the origin of each piece of code be recorded?
    pub(super) fn places(&self) -> bool {
        self.asm || self.mir || self.debug_lines
    }
}

/// The part of a plan's symbol after the instruction set.
const PLAN: &str = "plan";

/// The symbol of a kernel.
pub(crate) fn kernel_name(level: Cpu, kernel: &str) -> String {
    format!("{}.kernel.{kernel}", level.name())
}

/// The symbol of a plan; `level` names an instruction set or a kind of GPU.
pub(super) fn plan_name(level: &str, plan: &str, variant: PlanVariant) -> String {
    format!("{level}.{PLAN}.{plan}{}", variant.suffix())
}

/// Cranelift code generators for kernels and for plans.
pub(super) struct Isas {
    /// Full optimisation: kernels contain the inner loops.
    pub kernels: OwnedTargetIsa,
    /// With the single-pass register allocator. A plan is a list of launches, so the cost of spills
    /// is negligible; but its live ranges are long, and the backtracking allocator took a tenth of
    /// GPT-2's compile time for them.
    pub plans: OwnedTargetIsa,
}

impl Isas {
    /// Creates both.
    ///
    /// # Errors
    /// An architecture that Cranelift was built without.
    pub(super) fn new(arch: Arch) -> Result<Self, String> {
        Ok(Self { kernels: isa(arch, "backtracking")?, plans: isa(arch, "single_pass")? })
    }

    /// The code generator for a function, by its symbol: [`kernel_name`] or [`plan_name`].
    pub(super) fn for_symbol(&self, function: &str) -> &dyn TargetIsa {
        if function.split('.').nth(1) == Some(PLAN) { self.plans.as_ref() } else { self.kernels.as_ref() }
    }
}

/// A code generator. CLIF is verified only in cross compilation, where compile time matters less.
fn isa(arch: Arch, allocator: &str) -> Result<OwnedTargetIsa, String> {
    let verify = if arch == Arch::host() { "false" } else { "true" };
    let mut flags = settings::builder();
    for (name, value) in [
        ("opt_level", "speed"),
        ("regalloc_algorithm", allocator),
        ("is_pic", "true"),
        ("enable_verifier", verify),
        ("unwind_info", "false"),
    ] {
        flags.set(name, value).map_err(|e| e.to_string())?;
    }
    let builder =
        isa::lookup(arch.triple()).map_err(|e| format!("Cranelift cannot generate code for this machine: {e}"))?;
    builder.finish(settings::Flags::new(flags)).map_err(|e| e.to_string())
}

/// Instruction sets above [`levels`] that only change `bf16` matmuls, best first.
pub fn bf16_levels() -> &'static [Cpu] {
    match Arch::host() {
        Arch::X86 => &[Cpu::AMX, Cpu::AVX512_BF16],
        Arch::Aarch64 => &[],
    }
}

/// Instruction sets that only change matmuls by quantised weights, compared with [`levels`]; best
/// first.
pub fn byte_levels() -> &'static [Cpu] {
    match Arch::host() {
        Arch::X86 => &[Cpu::AVX2_VNNI],
        Arch::Aarch64 => &[],
    }
}

/// Instruction sets that objects for this architecture may have code for, best first.
pub fn levels() -> &'static [Cpu] {
    match Arch::host() {
        Arch::X86 => &[Cpu::AVX512, Cpu::AVX2, Cpu::PORTABLE],
        Arch::Aarch64 => &[Cpu::PORTABLE],
    }
}

/// `void (int64_t, ...)`, or with a status as the result.
pub(super) fn signature(convention: CallConv, params: usize, returns: bool) -> Signature {
    let mut s = Signature::new(convention);
    s.params.extend(vec![AbiParam::new(types::I64); params]);
    if returns {
        s.returns.push(AbiParam::new(types::I32));
    }
    s
}
