//! From functions to an object file.
//!
//! In: modules scheduled for several instruction sets, and the descriptor without code. Out: the
//! object, in which everything is local but the descriptor; on request the CLIF of each function,
//! its disassembly, and a line table in the object. Each instruction set is a variant of the
//! descriptor, with its own kernels and plans; identical code is emitted once.
//!
//! Three phases: all functions are declared, so that they can refer to each other; each is compiled
//! independently, then each leaf that they call, on all threads; finally all are defined in the
//! object in the order of the modules. So the same input gives the same bytes for any number of
//! threads.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::num::NonZero;

use cranelift_module::{FuncId, Linkage, Module as _, ModuleReloc, default_libcall_names};
use cranelift_object::{ObjectBuilder, ObjectModule};

use super::debug;
use super::function::{Callee, Job, Narrow};
use super::listing::{self, Shown};
use super::origins::{Kernels, Origin, Places, Source};
use super::plan::arena;
use super::target::{Arch, EmitOptions, Isas, kernel_name, plan_name};
use super::wide::{LeafOrigin, Leaves, Stages};
use crate::codegen::descriptor::check;
use crate::runtime::abi::feature;
use crate::runtime::cuda::Cuda;
use crate::runtime::descriptor::{ModelDescriptor, PlanCode, Variant};
use crate::runtime::expr::Expr;
use crate::runtime::object as runtime_object;
use crate::shape::Elem;
use crate::source::Loc;
use crate::threads;
use crate::tile::encode::{self, Encoding};
use crate::tile::fits;
use crate::tile::verify::Verified;
use crate::tile::{Body, Cpu, Feature, Inst, Kernel, KernelOrPlan, Module, Op, PlanVariant, State, Width};

/// The object and everything emitted with it.
#[derive(Clone, Debug)]
pub struct Compiled {
    /// The object file, in the target's format.
    pub object: Vec<u8>,
    /// Further objects to link with it, from other back ends.
    pub others: Vec<Vec<u8>>,
    /// CLIF of each function; empty if not requested.
    pub clif: String,
    /// Virtual-register code of the leaves; empty if not requested.
    pub mir: String,
    /// Assembly of each function; empty if not requested.
    pub asm: String,
    /// Operations computed with 128-bit vectors on instruction sets that have wider ones.
    pub narrow: Vec<Narrow>,
}

impl Compiled {
    /// A remark for each operation without wide code, with its kernels; `name` is the module's
    /// name, `files` the names of imported files.
    pub fn remarks(&self, name: &str, files: &[String]) -> String {
        let mut all: BTreeMap<(Loc, &str), Vec<&str>> = BTreeMap::new();
        for n in &self.narrow {
            all.entry((n.loc, &n.what)).or_default().push(&n.kernel);
        }
        let line = |((loc, what), kernels): ((Loc, &str), Vec<&str>)| {
            let place = loc.text(name, files);
            format!("remark: {place}: code of {}: 128-bit vectors, no wider code for {what}\n", kernels.join(", "))
        };
        all.into_iter().map(line).collect()
    }

    /// Everything that is linked into a library.
    pub fn objects(&self) -> Vec<&[u8]> {
        std::iter::once(&self.object).chain(&self.others).map(Vec::as_slice).collect()
    }
}

/// An instruction set (or a kind of GPU), and the module scheduled for it.
#[derive(Clone, Copy, Debug)]
pub struct Tier<'a> {
    /// The instruction set; for a GPU that of its plans, [`Cpu::PORTABLE`].
    pub level: Cpu,
    /// The module, scheduled and verified.
    pub module: Verified<'a>,
    /// GPU kernels of the module; `None` for a CPU.
    pub gpu: Option<&'a GpuKernels>,
}

/// Kernels for a kind of GPU, compiled by another back end: only their plans are compiled here.
#[derive(Clone, Debug)]
pub struct GpuKernels {
    /// Name of the variant: `sm_80`.
    pub name: String,
    /// The kernels, in module order.
    pub cuda: Cuda,
}

impl<'a> Tier<'a> {
    /// Name of the variant.
    fn name(&self) -> String {
        self.gpu.map_or(self.level.name().to_string(), |gpu| gpu.name.clone())
    }

    /// The kernels to compile here: none for a GPU.
    fn own_kernels(&self) -> &'a [Kernel] {
        if self.gpu.is_some() { &[] } else { &self.module.module().kernels }
    }
}

/// Compiles a model that was scheduled for several instruction sets, best first, into one object.
/// `model` has everything but diagnostics sites and code.
///
/// # Errors
/// A form that the verifier refuses, or that Cranelift does; a bug in attnc either way.
pub fn compile(tiers: &[Tier<'_>], model: &ModelDescriptor, wanted: EmitOptions) -> Result<Compiled, String> {
    let threads = wanted.threads.map_or_else(threads::all, NonZero::get);
    let first = tiers.first().ok_or("a model without code")?;
    if tiers.iter().any(|t| t.module.sites != first.module.sites) {
        return Err("the variants of a model report different errors".into());
    }
    let isas = Isas::new(wanted.arch)?;
    let name = first.module.name.clone();
    let builder = ObjectBuilder::new(isas.kernels.clone(), name, default_libcall_names()).map_err(|e| e.to_string())?;
    let mut object = ObjectModule::new(builder);

    // Declare; compile functions, then leaves; define everything in order.
    let (levels, jobs) = declare(&mut object, threads, tiers, wanted)?;
    let sources: BTreeMap<FuncId, Job<'_>> = match wanted.places() {
        true => jobs.iter().map(|job| (job.id, job.clone())).collect(),
        false => BTreeMap::new(),
    };
    let made = threads::each(jobs, threads, |job| Ok((job.id, job.make(isas.for_symbol(&job.name), wanted)?)));
    let made = made.into_iter().collect::<Result<Vec<_>, String>>()?;
    let mut leaves = Leaves::make(made.iter().map(|(_, function)| &function.leaves), threads)?;
    let mut texts = BTreeMap::new();
    let mut narrow = Vec::new();
    for (id, function) in made {
        narrow.extend(function.narrow);
        let called = leaves.define(&mut object, id, function.leaves)?;
        let relocations = resolve(function.relocations, &called)?;
        object
            .define_function_bytes(id, function.alignment, &function.bytes, &relocations)
            .map_err(|e| format!("{e:?}"))?;
        let (clif, vcode, alignment) = (function.clif, function.vcode, function.alignment);
        texts.insert(id, Text { clif, vcode, alignment, places: function.places, leaves: called });
    }

    let mut model = model.clone();
    model.sites = first.module.sites.clone();
    model.target = wanted.arch.triple().to_string();
    for e in &mut model.entries {
        let names: Vec<String> = e.symbols.iter().map(|s| s.name.clone()).collect();
        for fact in tiers.iter().flat_map(|tier| fits::unstated(&tier.module, &e.name)) {
            let check = check(&fact, String::new(), &names)?;
            if !e.checks.contains(&check) {
                e.checks.push(check);
            }
        }
    }
    for (tier, functions) in tiers.iter().zip(&levels) {
        model.variants.push(variant(tier, &model, &functions.plans)?);
    }
    runtime_object::define(&mut object, &model)?;
    let mut stages = BTreeMap::new();
    for (id, leaf) in &mut leaves.origins {
        stages.insert(*id, leaf.stages.take());
    }
    let origins = origins(&sources, &texts, leaves.origins);
    let mut product = object.finish();
    if wanted.debug_lines {
        debug::add(&mut product, &origins, &first.module)?;
    }
    let object = product.emit().map_err(|e| e.to_string())?;
    let shown = shown(tiers, &levels, &texts, wanted);
    let clif = shown.iter().filter_map(|id| texts.get(id)).map(|text| text.clif.as_str()).collect();
    let mir =
        if wanted.mir { virtual_registers(&shown, &stages, &origins, &first.module, wanted)? } else { String::new() };
    let asm =
        if wanted.asm { assembly(&object, &shown, &texts, &origins, &first.module, wanted)? } else { String::new() };
    narrow.sort();
    narrow.dedup();
    Ok(Compiled { object, others: Vec::new(), clif, mir, asm, narrow })
}

/// The functions for one instruction set.
struct Level {
    /// Kernels and plans, in listing order.
    functions: Vec<FuncId>,
    /// Symbols of the plans.
    plans: Plans,
}

/// Declares kernels and plans. Returns the functions of each instruction set, in order, and the
/// jobs, lowest instruction set first: code that a higher one shares has the lower one's name.
fn declare<'a>(
    object: &mut ObjectModule,
    threads: usize,
    tiers: &[Tier<'a>],
    wanted: EmitOptions,
) -> Result<(Vec<Level>, Vec<Job<'a>>), String> {
    let convention = object.isa().default_call_conv();
    let mut keys = threads::each(tiers.iter().flat_map(Tier::own_kernels).collect::<Vec<_>>(), threads, key);
    let mut shared: HashMap<Vec<u8>, FuncId> = HashMap::new();
    let (mut levels, mut jobs) = (Vec::new(), Vec::new());
    for tier in tiers.iter().rev() {
        let mut add = |name: String, source: Source<'a>| -> Result<FuncId, String> {
            let elsewhere = wanted.kernels_elsewhere && matches!(source, Source::Kernel(_));
            let linkage = if elsewhere { Linkage::Import } else { Linkage::Local };
            let id =
                object.declare_function(&name, linkage, &source.signature(convention)).map_err(|e| e.to_string())?;
            if !elsewhere {
                jobs.push(Job { id, name, source });
            }
            Ok(id)
        };
        let mut functions = Vec::new();
        let own_keys = keys.split_off(keys.len() - tier.own_kernels().len());
        for (kernel, key) in tier.own_kernels().iter().zip(own_keys) {
            let id = match shared.get(&key) {
                Some(id) if !wanted.kernels_elsewhere => *id,
                _ => add(kernel_name(tier.level, &kernel.name), Source::Kernel(kernel))?,
            };
            shared.insert(key, id);
            functions.push(id);
        }
        let kernels = match tier.gpu {
            None => Kernels::Functions(functions.as_slice().into()),
            Some(_) => Kernels::OfGpu,
        };
        let mut plans = Plans::new();
        for plan in &tier.module.module().plans {
            let name = plan_name(&tier.name(), &plan.name, plan.variant);
            plans.insert((plan.variant, plan.name.clone()), name.clone());
            functions.push(add(name, Source::Plan { plan, module: tier.module.module(), kernels: kernels.clone() })?);
        }
        levels.insert(0, Level { functions, plans });
    }
    Ok((levels, jobs))
}

/// Replaces leaf indices in relocations by the object's function ids. `leaves`: the leaves that the
/// function requested.
fn resolve(mut relocations: Vec<ModuleReloc>, leaves: &[FuncId]) -> Result<Vec<ModuleReloc>, String> {
    for r in &mut relocations {
        if let Some(Callee::Leaf(place)) = Callee::from_relocation(&r.name) {
            let leaf = usize::try_from(place).ok().and_then(|n| leaves.get(n));
            r.name = (*leaf.ok_or("a leaf that was not requested")?).into();
        }
    }
    Ok(relocations)
}

/// Listings of a function, the offsets of its operations' code, and its leaves.
struct Text {
    clif: String,
    vcode: String,
    alignment: u64,
    places: Places,
    leaves: Vec<FuncId>,
}

/// Origins of all functions, leaves included, in the order of declaration.
fn origins<'a>(
    sources: &BTreeMap<FuncId, Job<'a>>,
    texts: &BTreeMap<FuncId, Text>,
    leaves: BTreeMap<FuncId, LeafOrigin>,
) -> BTreeMap<FuncId, Origin<'a>> {
    let mut origins = BTreeMap::new();
    for (id, job) in sources {
        let places = texts.get(id).map_or(Places::new(), |text| text.places.clone());
        let (name, source) = (job.name.clone(), job.source.clone());
        origins.insert(*id, Origin { id: *id, name, source, leaf: None, places, comments: Vec::new() });
    }
    for (id, leaf) in leaves {
        let callers = leaf.callers.iter().filter_map(|caller| sources.get(caller));
        let Some(first) = callers.clone().next() else { continue };
        let whole = Some((leaf.inst, callers.map(|job| job.name.clone()).collect()));
        let (source, places, comments) = (first.source.clone(), leaf.places, leaf.comments);
        origins.insert(id, Origin { id, name: leaf.name, source, leaf: whole, places, comments });
    }
    origins
}

/// The functions to show, lowest instruction set first; the functions of each are followed by its
/// leaves that were not shown before.
fn shown(tiers: &[Tier<'_>], levels: &[Level], texts: &BTreeMap<FuncId, Text>, wanted: EmitOptions) -> Vec<FuncId> {
    let (mut out, mut before) = (Vec::new(), BTreeSet::new());
    for (tier, level) in tiers.iter().zip(levels).rev() {
        if wanted.level.is_some_and(|level| level != tier.level) {
            continue;
        }
        let only = wanted.only.map(|part| match part {
            KernelOrPlan::Kernel(n) => {
                if tier.gpu.is_some() {
                    usize::MAX
                } else {
                    n
                }
            }
            KernelOrPlan::Plan(n) => tier.own_kernels().len() + n,
        });
        let functions = level.functions.iter().enumerate().filter(|(n, _)| only.is_none_or(|only| only == *n));
        let functions: Vec<FuncId> = functions.map(|(_, id)| *id).filter(|id| texts.contains_key(id)).collect();
        let leaves: BTreeSet<FuncId> =
            functions.iter().filter_map(|id| texts.get(id)).flat_map(|t| &t.leaves).copied().collect();
        out.extend(&functions);
        out.extend(leaves.into_iter().filter(|leaf| before.insert(*leaf)));
    }
    out
}

/// The virtual-register code of the given leaves, as text.
fn virtual_registers(
    shown: &[FuncId],
    stages: &BTreeMap<FuncId, Option<Box<Stages>>>,
    origins: &BTreeMap<FuncId, Origin<'_>>,
    module: &Module,
    wanted: EmitOptions,
) -> Result<String, String> {
    let mut out = String::new();
    for (leaf, stages) in shown.iter().filter_map(|id| Some((origins.get(id)?, stages.get(id)?))) {
        out += "\n";
        for line in leaf.of_leaf(module) {
            out += &format!("// {line}\n");
        }
        match stages {
            Some(stages) => {
                let lines = leaf.lines();
                let note = |inst: Inst| leaf.operation(inst, &lines, module);
                out += &stages.text(&leaf.name, wanted.mir_registers, &note)?;
            }
            None => {
                out += &format!(
                    "// generated from its shape without virtual registers: `--emit asm` shows {}\n",
                    leaf.name
                )
            }
        }
    }
    if out.is_empty() {
        out += "// no leaf functions: `--cpu avx2` and those above have some\n";
    }
    Ok(out)
}

/// Disassembles functions of an object.
fn assembly(
    object: &[u8],
    shown: &[FuncId],
    texts: &BTreeMap<FuncId, Text>,
    origins: &BTreeMap<FuncId, Origin<'_>>,
    module: &Module,
    wanted: EmitOptions,
) -> Result<String, String> {
    if wanted.arch == Arch::Aarch64 {
        let text = |id: &FuncId| Some(listing::arm_text(&origins.get(id)?.name, &texts.get(id)?.vcode));
        return Ok(shown.iter().filter_map(text).collect());
    }
    let functions = listing::functions(object)?;
    let mut out = listing::HEAD.to_string();
    for (number, id) in shown.iter().enumerate() {
        let origin = origins.get(id).ok_or("a function without an origin")?;
        let function =
            functions.get(origin.name.as_str()).ok_or_else(|| format!("{} is missing from the object", origin.name))?;
        let own = texts.get(id);
        let starts = origin.places.iter().map(|(at, _)| *at).collect();
        // Leaves are aligned to the longest vector.
        let alignment = own.map_or(64, |text| text.alignment);
        let how = Shown { alignment, starts, notes: origin.notes(module) };
        out += &listing::function(number, function, &how, wanted.asm_bytes);
    }
    Ok(out)
}

/// A key for deduplicating kernels: everything that the code depends on, but the name. The
/// instruction set matters where there may be leaves, its `bf16` features where the kernel rounds
/// to `bf16`. The mode of a matmul is part of its text.
fn key(kernel: &Kernel) -> Vec<u8> {
    let has_leaves = |op: &Op| matches!(op, Op::Run { .. } | Op::Dot { .. } | Op::Transpose | Op::PairRows);
    let mut state = kernel.state;
    if !kernel.body.insts().any(|(_, _, d)| has_leaves(&d.op)) {
        state = State::Cpu(Cpu::PORTABLE);
    } else if let State::Cpu(level) = state
        && !kernel.body.insts().any(|(_, i, d)| match d.op {
            Op::PairRows | Op::Narrow { elem: Elem::BF16 } => level.has(Feature::Bf16),
            Op::Store { .. } => level.has(Feature::Bf16) && stores_bf16(&kernel.body, i),
            _ => false,
        })
    {
        state = State::Cpu(level.vectors());
    }
    encode::kernel(kernel, Encoding { name: false, places: true, state })
}

/// Does an instruction store to a `bf16` buffer?
fn stores_bf16(body: &Body, i: Inst) -> bool {
    body.inst(i).operands.first().and_then(|b| body.ty(*b).buffer()).is_some_and(|b| b.elem == Elem::BF16)
}

/// Symbols of plans, by variant and entry point.
type Plans = BTreeMap<(PlanVariant, String), String>;

/// Features required by any code for `cpu`. VNNI is left out with 512-bit vectors: few libraries
/// use it, and the first AVX-512 processors lack it.
fn asked(cpu: Cpu) -> u64 {
    let base = match cpu.width() {
        Width::V128 => 0,
        Width::V256 => feature::SSE42 | feature::AVX2 | feature::FMA,
        Width::V512 => feature::SSE42 | feature::AVX2 | feature::FMA | feature::AVX512,
    };
    let own = [
        (Feature::Vnni, if cpu.width() == Width::V256 { feature::AVX_VNNI } else { 0 }),
        (Feature::Bf16, feature::AVX512_BF16),
        (Feature::Amx, feature::AMX_BF16),
    ];
    own.iter().filter(|(f, _)| cpu.has(*f)).fold(base, |all, (_, bits)| all | bits)
}

/// A variant of the descriptor, with the symbols of its plans.
fn variant(tier: &Tier<'_>, model: &ModelDescriptor, plans: &Plans) -> Result<Variant, String> {
    let (level, module, kernels) = (tier.level, tier.module.module(), tier.own_kernels());
    let scratch = kernels.iter().map(|k| k.scratch).max().unwrap_or(0).next_multiple_of(64);
    let arena_of = |name: &str, variant: PlanVariant| {
        let plan = module.plans.iter().find(|p| p.name == name && p.variant == variant);
        plan.map_or(Some(Expr::constant(0)), arena).ok_or("the expression for the arena's size is too large")
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
        });
    }
    let prepare = plans.iter().find(|((variant, _), _)| *variant == PlanVariant::Prepare);
    let mut features = asked(level);
    // A tile IR file may have kernels for several machines.
    for k in kernels {
        if let State::Cpu(own) = k.state {
            features |= asked(own);
        }
    }
    if level.width() == Width::V512 && kernels.iter().any(Kernel::loads_scaled) {
        // Byte dot products, see `wide::dot_whole`.
        features |= feature::AVX512_VNNI;
    }
    Ok(Variant {
        name: tier.name(),
        features,
        prepare: prepare.map(|(_, function)| function.clone()),
        packed_bytes: module.packed.next_multiple_of(64),
        plans: code,
        cuda: tier.gpu.map(|gpu| gpu.cuda.clone()),
    })
}

#[cfg(test)]
mod tests {
    use super::{Cpu, asked};
    use crate::runtime::{abi::level, descriptor::features_of};

    /// The runtime's table of instruction set names and required features matches the named
    /// machines.
    #[test]
    fn named_machines_ask_for_what_the_runtime_knows_by_their_names() {
        assert_eq!(Cpu::NAMED.map(Cpu::name), level::NAMES);
        for cpu in Cpu::NAMED {
            assert_eq!(Some(asked(cpu)), features_of(&cpu.name()), "{cpu}");
        }
    }
}
