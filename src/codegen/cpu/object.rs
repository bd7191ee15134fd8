//! From functions to an object file.
//!
//! In: modules scheduled for levels of processors, and the descriptor without code. Out: the object, in which everything is
//! local but the descriptor; on request the CLIF of each function and its machine code as text. A level is a variant of the
//! descriptor, with kernels and plans of its own; what is the same at two levels is there once. Same input, same bytes:
//! functions are compiled in the order of the modules.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use cranelift_codegen::ir::{AbiParam, FuncRef, Function, InstBuilder, Signature, UserFuncName, types};
use cranelift_codegen::isa::{self, OwnedTargetIsa};
use cranelift_codegen::settings::{self, Configurable};
use cranelift_codegen::{Context, ir};
use cranelift_entity::SecondaryMap;
use cranelift_frontend::{FunctionBuilder, FunctionBuilderContext};
use cranelift_module::{FuncId, Linkage, Module as _, default_libcall_names};
use cranelift_object::{ObjectBuilder, ObjectModule};
use target_lexicon::{Aarch64Architecture, Architecture, BinaryFormat, Environment, OperatingSystem, Triple, Vendor};

use super::clif::print_function;
use super::code::Code;
use super::math::Libm;
use super::plan::{Launching, arena};
use super::wide::{Leaves, Objects};
use crate::runtime::abi::feature;
use crate::runtime::descriptor::{ModelDescriptor, PlanCode, Variant, features_of};
use crate::runtime::expr::Expr;
use crate::runtime::object as runtime_object;
use crate::tile::text::print_kernel;
use crate::tile::{CpuLevel, Kernel, Module, Op, Plan, PlanVariant, State};

/// An architecture that code is made for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Machine {
    /// x86-64.
    #[cfg_attr(target_arch = "x86_64", default)]
    X86,
    /// aarch64, with NEON.
    #[cfg_attr(target_arch = "aarch64", default)]
    Aarch64,
}

impl Machine {
    /// That of this machine.
    pub fn host() -> Machine {
        Machine::default()
    }

    /// The target triple: of this machine, or of Linux on another one.
    pub fn triple(self) -> Triple {
        if self == Machine::host() {
            return Triple::host();
        }
        let architecture = match self {
            Machine::X86 => Architecture::X86_64,
            Machine::Aarch64 => Architecture::Aarch64(Aarch64Architecture::Aarch64),
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

/// What a caller wants besides the object.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wanted {
    /// What the code runs on.
    pub machine: Machine,
    /// The CLIF of each function, as text.
    pub clif: bool,
    /// The machine code of each function, as text.
    pub asm: bool,
    /// The level whose functions are shown; all levels' where there is none.
    pub level: Option<CpuLevel>,
    /// Are the kernels in objects of another back end, under [`kernel_name`]? Then they are only referred to.
    pub kernels_elsewhere: bool,
}

/// The symbol of a kernel.
pub(crate) fn kernel_name(level: CpuLevel, kernel: &str) -> String {
    format!("{}.kernel.{kernel}", level.name())
}

/// What comes out.
#[derive(Clone, Debug)]
pub struct Compiled {
    /// The object file.
    pub object: Vec<u8>,
    /// Objects that it refers to, to be linked with it.
    pub others: Vec<Vec<u8>>,
    /// CLIF, if wanted.
    pub clif: String,
    /// Assembly, if wanted.
    pub asm: String,
}

impl Compiled {
    /// Everything that is linked into a library.
    pub fn objects(&self) -> Vec<&[u8]> {
        std::iter::once(&self.object).chain(&self.others).map(Vec::as_slice).collect()
    }
}

/// The code generator for a machine. What it is given is verified where nobody waits for that: where the code does not run
/// here.
pub(super) fn target(machine: Machine) -> Result<OwnedTargetIsa, String> {
    let verify = if machine == Machine::host() { "false" } else { "true" };
    let mut flags = settings::builder();
    for (name, value) in
        [("opt_level", "speed"), ("is_pic", "true"), ("enable_verifier", verify), ("unwind_info", "false")]
    {
        flags.set(name, value).map_err(|e| e.to_string())?;
    }
    let builder =
        isa::lookup(machine.triple()).map_err(|e| format!("this machine is no target of the code generator: {e}"))?;
    builder.finish(settings::Flags::new(flags)).map_err(|e| e.to_string())
}

/// The levels above those of [`levels`] at which products of `bf16` alone are other code, best first.
pub fn bf16_levels() -> &'static [CpuLevel] {
    match Machine::host() {
        Machine::X86 => &[CpuLevel::Amx, CpuLevel::Avx512Bf16],
        Machine::Aarch64 => &[],
    }
}

/// The levels at which products by whole numbers with scales alone are other code than at those of [`levels`], best first.
pub fn byte_levels() -> &'static [CpuLevel] {
    match Machine::host() {
        Machine::X86 => &[CpuLevel::Avx2Vnni],
        Machine::Aarch64 => &[],
    }
}

/// The levels that objects for this machine may have code for, best first.
pub fn levels() -> &'static [CpuLevel] {
    match Machine::host() {
        Machine::X86 => &[CpuLevel::Avx512, CpuLevel::Avx2, CpuLevel::Portable],
        Machine::Aarch64 => &[CpuLevel::Portable],
    }
}

/// A level of processors, and the module that is scheduled for it.
#[derive(Clone, Copy, Debug)]
pub struct Tier<'a> {
    /// The level.
    pub level: CpuLevel,
    /// The module.
    pub module: &'a Module,
}

/// Compiles a model that was lowered for several levels, best first, into one object. `model` has everything but sites
/// and code.
///
/// # Errors
/// A form that the verifier refuses, or that Cranelift does; a mistake of ours either way.
pub fn compile(tiers: &[Tier<'_>], model: &ModelDescriptor, wanted: Wanted) -> Result<Compiled, String> {
    let first = tiers.first().ok_or("a model without code")?;
    if tiers.iter().any(|t| t.module.sites != first.module.sites) {
        return Err("the levels of a model report different errors".into());
    }
    let isa = target(wanted.machine)?;
    let name = first.module.name.clone();
    let builder = ObjectBuilder::new(isa, name, default_libcall_names()).map_err(|e| e.to_string())?;
    let mut b = Builder {
        object: ObjectModule::new(builder),
        libm: BTreeMap::new(),
        wanted,
        level: first.level,
        texts: BTreeMap::new(),
        leaves_of: BTreeMap::new(),
        leaves_to_show: BTreeSet::new(),
        clif: String::new(),
        asm: String::new(),
        kernels: BTreeMap::new(),
        frontend: FunctionBuilderContext::new(),
        leaves: Leaves::new(wanted.asm),
    };
    let mut model = model.clone();
    model.sites = first.module.sites.clone();
    model.target = wanted.machine.triple().to_string();
    // The lowest level first: what a higher one shares with it goes by its name.
    for tier in tiers.iter().rev() {
        b.level = tier.level;
        let variant = b.tier(tier.module, &model)?;
        for leaf in std::mem::take(&mut b.leaves_to_show) {
            if let Some(text) = b.leaves.texts.remove(&leaf) {
                b.asm += &text;
            }
        }
        model.variants.insert(0, variant);
    }
    runtime_object::define(&mut b.object, &model)?;
    let Builder { object, clif, asm, .. } = b;
    let object = object.finish().emit().map_err(|e| e.to_string())?;
    Ok(Compiled { object, others: Vec::new(), clif, asm })
}

struct Builder {
    object: ObjectModule,
    libm: BTreeMap<&'static str, FuncId>,
    wanted: Wanted,
    /// The level that is being compiled.
    level: CpuLevel,
    /// The CLIF and machine code of each function so far, where they are wanted.
    texts: BTreeMap<FuncId, (String, String)>,
    /// The leaves of each function so far, and those of the functions that were shown at this level, each once.
    leaves_of: BTreeMap<FuncId, Vec<FuncId>>,
    leaves_to_show: BTreeSet<FuncId>,
    clif: String,
    asm: String,
    /// The kernels so far by what their code depends on: levels share those that are the same.
    kernels: BTreeMap<String, FuncId>,
    frontend: FunctionBuilderContext,
    leaves: Leaves,
}

impl Builder {
    fn signature(&self, params: usize, returns: bool) -> Signature {
        let mut s = self.object.make_signature();
        s.params.extend(vec![AbiParam::new(types::I64); params]);
        if returns {
            s.returns.push(AbiParam::new(types::I32));
        }
        s
    }

    fn libm_function(&mut self, name: &'static str, params: usize) -> Result<FuncId, String> {
        if let Some(id) = self.libm.get(name) {
            return Ok(*id);
        }
        let mut s = self.object.make_signature();
        s.params.extend(vec![AbiParam::new(types::F32); params]);
        s.returns.push(AbiParam::new(types::F32));
        let id = self.object.declare_function(name, Linkage::Import, &s).map_err(|e| e.to_string())?;
        self.libm.insert(name, id);
        Ok(id)
    }

    fn libm(&mut self, f: &mut Function) -> Result<Libm, String> {
        let mut get = |name, params| -> Result<FuncRef, String> {
            let id = self.libm_function(name, params)?;
            Ok(self.object.declare_func_in_func(id, f))
        };
        Ok(Libm { logf: get("logf", 1)?, sinf: get("sinf", 1)?, cosf: get("cosf", 1)?, powf: get("powf", 2)? })
    }

    /// Declares and compiles one function; `emit` fills it after its entry block.
    fn function(
        &mut self,
        name: &str,
        signature: Signature,
        body: &crate::tile::Body,
        emit: impl FnOnce(&mut Code<'_, '_>, &[ir::Value]) -> Result<(), String>,
        kernels: &BTreeMap<String, (usize, FuncId)>,
    ) -> Result<FuncId, String> {
        let returns = !signature.returns.is_empty();
        let id = self.object.declare_function(name, Linkage::Local, &signature).map_err(|e| e.to_string())?;
        let mut context =
            Context::for_function(Function::with_name_signature(UserFuncName::user(0, id.as_u32()), signature));
        let libm = self.libm(&mut context.func)?;
        let mut references = BTreeMap::new();
        for (kernel, (index, id)) in kernels {
            references.insert(kernel.clone(), (*index, self.object.declare_func_in_func(*id, &mut context.func)));
        }
        let fail = self.signature(5, false);
        let mut frontend = std::mem::take(&mut self.frontend);
        {
            let mut builder = FunctionBuilder::new(&mut context.func, &mut frontend);
            let fail = builder.import_signature(fail);
            let entry = builder.create_block();
            builder.append_block_params_for_function_params(entry);
            builder.switch_to_block(entry);
            builder.seal_block(entry);
            let params = builder.block_params(entry).to_vec();
            let stop = builder.create_block();
            let call_context = *if returns { params.first() } else { params.last() }.ok_or("no context")?;
            let mut code = Code {
                b: &mut builder,
                libm,
                body,
                symbols: BTreeMap::new(),
                values: SecondaryMap::new(),
                kernels: references,
                objects: Objects { object: &mut self.object, leaves: &mut self.leaves },
                context: call_context,
                fail,
                stop,
            };
            emit(&mut code, &params)?;
            let finish = |b: &mut FunctionBuilder<'_>, status: i64| {
                if returns {
                    let status = b.ins().iconst(types::I32, status);
                    b.ins().return_(&[status]);
                } else {
                    b.ins().return_(&[]);
                }
            };
            finish(&mut builder, 0);
            builder.switch_to_block(stop);
            builder.seal_block(stop);
            finish(&mut builder, 1);
            builder.finalize(self.object.target_config());
        }
        self.frontend = frontend;
        let clif = if self.wanted.clif { print_function(name, &context.func) } else { String::new() };
        context.set_disasm(self.wanted.asm);
        self.object.define_function(id, &mut context).map_err(|e| format!("{name}: {e:?}"))?;
        let mut asm = String::new();
        if self.wanted.asm
            && let Some(code) = context.compiled_code()
        {
            let _ = writeln!(asm, "{name}:\n{}", code.vcode.as_deref().unwrap_or_default());
        }
        self.texts.insert(id, (clif, asm));
        self.leaves_of.insert(id, std::mem::take(&mut self.leaves.used));
        self.show(id);
        Ok(id)
    }

    /// Is the text of the level that is being compiled wanted?
    fn is_shown(&self) -> bool {
        self.wanted.level.is_none_or(|level| level == self.level)
    }

    /// Shows a function if its level is wanted.
    fn show(&mut self, id: FuncId) {
        if self.is_shown()
            && let Some((clif, asm)) = self.texts.get(&id)
        {
            self.leaves_to_show.extend(self.leaves_of.get(&id).into_iter().flatten());
            self.clif += clif;
            self.asm += asm;
        }
    }

    /// All code of a level.
    fn tier(&mut self, module: &Module, model: &ModelDescriptor) -> Result<Variant, String> {
        let mut kernels = BTreeMap::new();
        for (i, k) in module.kernels.iter().enumerate() {
            kernels.insert(k.name.clone(), (i, self.kernel(k)?));
        }
        let mut plans = Plans::new();
        for p in &module.plans {
            let ending = match p.variant {
                PlanVariant::Plain => "",
                PlanVariant::Tapped => ".tapped",
                PlanVariant::Prepare => ".prepare",
            };
            let name = format!("{}.plan.{}{ending}", self.level.name(), p.name);
            self.plan(p, &name, module, &kernels)?;
            plans.insert((p.variant, p.name.clone()), name);
        }
        variant(self.level, module, model, &plans)
    }

    fn kernel(&mut self, kernel: &Kernel) -> Result<FuncId, String> {
        let signature = self.signature(5, false);
        let emit = |code: &mut Code<'_, '_>, params: &[ir::Value]| match params {
            [args, start, end, scratch, _] => code.kernel(kernel, [*args, *start, *end, *scratch]),
            _ => Err("a kernel has five parameters".into()),
        };
        let name = kernel_name(self.level, &kernel.name);
        if self.wanted.kernels_elsewhere {
            return self.object.declare_function(&name, Linkage::Import, &signature).map_err(|e| e.to_string());
        }
        let key = key(kernel);
        if let Some(id) = self.kernels.get(&key).copied() {
            self.show(id);
            return Ok(id);
        }
        let id = self
            .function(&name, signature, &kernel.body, emit, &BTreeMap::new())
            .map_err(|e| format!("kernel {}: {e}", kernel.name))?;
        self.kernels.insert(key, id);
        Ok(id)
    }

    fn plan(
        &mut self,
        plan: &Plan,
        name: &str,
        module: &Module,
        kernels: &BTreeMap<String, (usize, FuncId)>,
    ) -> Result<(), String> {
        let signature = self.signature(1, true);
        let launch = self.signature(4, true);
        let emit = |code: &mut Code<'_, '_>, _: &[ir::Value]| {
            let launch = code.b.import_signature(launch);
            code.plan(plan, &Launching { module, launch })
        };
        self.function(name, signature, &plan.body, emit, kernels).map_err(|e| format!("plan {name}: {e}"))?;
        Ok(())
    }
}

/// What the code of a kernel depends on: its text, but for its name. The level matters where there may be leaves, those for
/// `bf16` where steps lie in pairs, and that for bytes where numbers have scales.
fn key(kernel: &Kernel) -> String {
    let mut k = kernel.clone();
    k.name.clear();
    let has_leaves = |i| matches!(k.body.inst(i).op, Op::Run { .. } | Op::Dot | Op::Transpose | Op::PairRows);
    if !k.body.insts().into_iter().any(has_leaves) {
        k.state = State::Cpu(CpuLevel::Portable);
    } else if let State::Cpu(level) = k.state
        && !k.body.insts().into_iter().any(|i| match k.body.inst(i).op {
            Op::LoadPairs | Op::PairRows => level.is_for_bf16(),
            Op::LoadScaled { .. } => level == CpuLevel::Avx2Vnni,
            _ => false,
        })
    {
        k.state = State::Cpu(level.vectors());
    }
    print_kernel(&k, &[])
}

/// The functions of plans, by what they are plans of.
type Plans = BTreeMap<(PlanVariant, String), String>;

/// A level in the descriptor, with the functions of its plans.
fn variant(level: CpuLevel, module: &Module, model: &ModelDescriptor, plans: &Plans) -> Result<Variant, String> {
    let scratch = module.kernels.iter().map(|k| k.scratch).max().unwrap_or(0).next_multiple_of(64);
    let arena_of = |name: &str, variant: PlanVariant| {
        let plan = module.plans.iter().find(|p| p.name == name && p.variant == variant);
        plan.map_or(Some(Expr::constant(0)), arena).ok_or("the arena's size is too large an expression")
    };
    let mut code = Vec::new();
    for e in &model.entries {
        let plan = plans.get(&(PlanVariant::Plain, e.name.clone())).cloned();
        code.push(PlanCode {
            plan: plan.ok_or_else(|| format!("no plan for {}", e.name))?,
            tapped: plans.get(&(PlanVariant::Tapped, e.name.clone())).cloned(),
            arena: arena_of(&e.name, PlanVariant::Plain)?,
            tapped_arena: arena_of(&e.name, PlanVariant::Tapped)?,
            scratch,
            taps_together: true,
        });
    }
    let prepare = plans.iter().find(|((variant, _), _)| *variant == PlanVariant::Prepare);
    let mut features = features_of(level.name()).ok_or("a level without features")?;
    // Texts may have kernels of several levels, and a greater one has not all that a lower one has.
    for k in &module.kernels {
        if let State::Cpu(own) = k.state {
            features |= features_of(own.name()).ok_or("a level without features")?;
        }
    }
    if level.vectors() == CpuLevel::Avx512 && module.kernels.iter().any(Kernel::loads_scaled) {
        // Sums of bytes, see `wide::dot_whole`.
        features |= feature::AVX512_VNNI;
    }
    Ok(Variant {
        name: level.name().to_string(),
        features,
        prepare: prepare.map(|(_, function)| function.clone()),
        packed_bytes: module.packed.next_multiple_of(64),
        plans: code,
    })
}
