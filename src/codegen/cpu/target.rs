//! The target and the options of code generation: the architecture, its instruction sets, Cranelift's settings.

use std::num::NonZero;

use cranelift_codegen::ir::{AbiParam, Signature, types};
use cranelift_codegen::isa::{self, CallConv, OwnedTargetIsa, TargetIsa};
use cranelift_codegen::settings::{self, Configurable};
use target_lexicon::{Aarch64Architecture, Architecture, BinaryFormat, Environment, OperatingSystem, Triple, Vendor};

use crate::tile::{Cpu, Part, PlanVariant};

/// An architecture that code is made for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Arch {
    /// x86-64.
    #[cfg_attr(target_arch = "x86_64", default)]
    X86,
    /// aarch64, with NEON.
    #[cfg_attr(target_arch = "aarch64", default)]
    Aarch64,
}

impl Arch {
    /// That of this machine.
    pub fn host() -> Arch {
        Arch::default()
    }

    /// The target triple: of this machine, or of Linux on another one.
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

/// What the object is for, and what is emitted beside it.
#[derive(Clone, Copy, Debug, Default)]
pub struct EmitOptions {
    /// What the code runs on.
    pub arch: Arch,
    /// The CLIF of each function, as text.
    pub clif: bool,
    /// The machine code of each function, as text.
    pub asm: bool,
    /// The bytes of each instruction in that text.
    pub asm_bytes: bool,
    /// The virtual-register code of each leaf function that has it, as text.
    pub mir: bool,
    /// Its code with registers, too.
    pub mir_registers: bool,
    /// A line table in the object: which line of the program each piece of code comes from.
    pub debug_lines: bool,
    /// The kernel or plan that is shown alone, with the leaves that it calls.
    pub only: Option<Part>,
    /// The level whose functions are shown; all levels' where there is none.
    pub level: Option<Cpu>,
    /// Are the kernels in objects of another back end, under [`kernel_name`]? Then they are only referred to.
    pub kernels_elsewhere: bool,
    /// Does it report what is computed with vectors of 128 bits though there are wider ones?
    pub remarks: bool,
    /// At most this many threads make it; as many as this machine runs at once where there is no number. What comes out is
    /// the same.
    pub threads: Option<NonZero<usize>>,
}

impl EmitOptions {
    /// Is it kept which operation each piece of code comes from?
    pub(super) fn places(&self) -> bool {
        self.asm || self.mir || self.debug_lines
    }
}

/// What the symbol of a plan has after its level.
const PLAN: &str = "plan";

/// The symbol of a kernel.
pub(crate) fn kernel_name(level: Cpu, kernel: &str) -> String {
    format!("{}.kernel.{kernel}", level.name())
}

/// The symbol of a plan; `level` is the name of a level or of a kind of GPU.
pub(super) fn plan_name(level: &str, plan: &str, variant: PlanVariant) -> String {
    format!("{level}.{PLAN}.{plan}{}", variant.suffix())
}

/// Cranelift for a machine, as kernels need it and as plans do.
pub(super) struct Isas {
    /// The whole of Cranelift: kernels have the inner loops.
    pub kernels: OwnedTargetIsa,
    /// With the register allocator that goes over a function once. A plan is a list of launches, and what it spills is nothing
    /// beside what they do; but its values live long, and the other allocator took a tenth of GPT-2's compile time for them.
    pub plans: OwnedTargetIsa,
}

impl Isas {
    /// Both.
    ///
    /// # Errors
    /// A machine that Cranelift was built without.
    pub(super) fn new(arch: Arch) -> Result<Self, String> {
        Ok(Self { kernels: isa(arch, "backtracking")?, plans: isa(arch, "single_pass")? })
    }

    /// The one for a function, by its symbol: [`kernel_name`] or [`plan_name`].
    pub(super) fn of(&self, function: &str) -> &dyn TargetIsa {
        if function.split('.').nth(1) == Some(PLAN) { self.plans.as_ref() } else { self.kernels.as_ref() }
    }
}

/// The code generator for a machine. What it is given is verified where nobody waits for that: where the code does not run
/// here.
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
        isa::lookup(arch.triple()).map_err(|e| format!("this machine is no target of the code generator: {e}"))?;
    builder.finish(settings::Flags::new(flags)).map_err(|e| e.to_string())
}

/// The levels above those of [`levels`] at which products of `bf16` alone are other code, best first.
pub fn bf16_levels() -> &'static [Cpu] {
    match Arch::host() {
        Arch::X86 => &[Cpu::AMX, Cpu::AVX512_BF16],
        Arch::Aarch64 => &[],
    }
}

/// The levels at which products by integers with scales alone are other code than at those of [`levels`], best first.
pub fn byte_levels() -> &'static [Cpu] {
    match Arch::host() {
        Arch::X86 => &[Cpu::AVX2_VNNI],
        Arch::Aarch64 => &[],
    }
}

/// The levels that objects for this machine may have code for, best first.
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
