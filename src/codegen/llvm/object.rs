//! From kernels to object files: modules, target machines, LLVM's passes.
//!
//! In: modules scheduled for several instruction sets. Out: an object file for each, which defines
//! the kernels as hidden symbols under the names that `codegen::cpu` refers to, and their assembly
//! on request. Output is deterministic.

use inkwell::attributes::{Attribute, AttributeLoc};
use inkwell::context::Context;
use inkwell::passes::PassBuilderOptions;
use inkwell::targets::{CodeModel, FileType, InitializationConfig, RelocMode, Target, TargetMachine, TargetTriple};
use inkwell::values::BasicValueEnum;
use inkwell::{AddressSpace, GlobalVisibility, OptimizationLevel};

use std::collections::BTreeMap;

use cranelift_entity::SecondaryMap;

use super::code::Code;
use super::emit::{Emit, EmitResult};
use super::kernel::KernelParams;
use crate::codegen::cpu::{Arch, EmitOptions, Tier, kernel_name};
use crate::tile::{Cpu, Feature, Kernel, Op, State, Width};

/// Compiled kernels.
#[derive(Clone, Debug)]
pub struct Kernels {
    /// One object file for each tier, in order.
    pub objects: Vec<Vec<u8>>,
    /// Assembly of all kernels; empty if not requested.
    pub asm: String,
}

/// Compiles the kernels of all tiers.
///
/// # Errors
/// IR that the verifier or LLVM rejects: a bug in attnc either way.
pub fn kernels(tiers: &[Tier<'_>], wanted: EmitOptions) -> Result<Kernels, String> {
    Target::initialize_native(&InitializationConfig::default())?;
    let mut out = Kernels { objects: Vec::new(), asm: String::new() };
    for tier in tiers.iter().filter(|tier| tier.gpu.is_none()) {
        let is_shown = wanted.asm && wanted.level.is_none_or(|level| level == tier.level);
        let (object, asm) = compile(tier, is_shown).map_err(|e| e.0)?;
        out.objects.push(object);
        out.asm += &asm;
    }
    Ok(out)
}

/// A target machine with exactly the features that a tier's variant requires
/// (`runtime::descriptor::features_of`): x86-64-v3 or -v4, AVX512-BF16 for its instruction set,
/// VNNI if there are quantised weights.
fn machine(tier: &Tier<'_>) -> EmitResult<TargetMachine> {
    let name = Arch::host().triple();
    let cpu = match (name.architecture, tier.level.width()) {
        (target_lexicon::Architecture::X86_64, Width::V128) => "x86-64",
        (target_lexicon::Architecture::X86_64, Width::V256) => "x86-64-v3",
        (target_lexicon::Architecture::X86_64, Width::V512) => "x86-64-v4",
        (_, _) => "generic",
    };
    let scaled = |k: &Kernel| k.body.insts().any(|(_, _, d)| matches!(d.op, Op::LoadScaled { .. }));
    let mut features = Vec::new();
    if tier.level.width() == Width::V512 {
        features.push("-prefer-256-bit");
        if tier.module.kernels.iter().any(scaled) {
            features.extend(["+avx512vnni", "+avx512vbmi"]);
        }
    }
    // This back end supports `bf16` pairs, but not AMX tiles.
    if tier.level.has(Feature::Bf16) {
        features.push("+avx512bf16");
    }
    if tier.level.has(Feature::Vnni) && tier.level.width() == Width::V256 {
        features.push("+avxvnni");
    }
    let features = features.join(",");
    let triple = TargetTriple::create(&name.to_string());
    let target = Target::from_triple(&triple).map_err(|e| e.to_string())?;
    let level = OptimizationLevel::Default;
    let made = target.create_target_machine(&triple, cpu, &features, level, RelocMode::PIC, CodeModel::Default);
    Ok(made.ok_or("LLVM does not know this machine")?)
}

/// The object of a tier, and its assembly if requested.
fn compile(tier: &Tier<'_>, with_asm: bool) -> EmitResult<(Vec<u8>, String)> {
    let machine = machine(tier)?;
    let cx = Context::create();
    let module = cx.create_module(&tier.module.name);
    module.set_triple(&machine.get_triple());
    module.set_data_layout(&machine.get_target_data().get_data_layout());
    for kernel in &tier.module.kernels {
        define(&cx, &module, tier.level, kernel).map_err(|e| format!("kernel {}: {}", kernel.name, e.0))?;
    }
    module.verify().map_err(|e| e.to_string())?;
    let options = PassBuilderOptions::create();
    module.run_passes("default<O2>", &machine, options).map_err(|e| e.to_string())?;
    let write = |kind| machine.write_to_memory_buffer(&module, kind).map_err(|e| e.to_string());
    let asm = match with_asm {
        true => String::from_utf8_lossy(write(FileType::Assembly)?.as_slice()).trim_end_matches('\0').to_string(),
        false => String::new(),
    };
    Ok((write(FileType::Object)?.as_slice().to_vec(), asm))
}

/// Defines the function of a kernel, for the kernel's own instruction set, which is part of its
/// variant's.
fn define<'c>(cx: &'c Context, module: &inkwell::module::Module<'c>, variant: Cpu, kernel: &Kernel) -> EmitResult<()> {
    let State::Cpu(level) = kernel.state else { return Err("is not scheduled for a CPU".into()) };
    if !variant.includes(level) {
        let (own, variant) = (level.name(), variant.name());
        return Err(format!("is scheduled for {own}, which is not part of {variant}").into());
    }
    let (pointer, number) = (cx.ptr_type(AddressSpace::default()).into(), cx.i64_type().into());
    let ty = cx.void_type().fn_type(&[pointer, number, number, pointer, pointer], false);
    let function = module.add_function(&kernel_name(variant, &kernel.name), ty, None);
    function.as_global_value().set_visibility(GlobalVisibility::Hidden);
    let nounwind = Attribute::get_named_enum_kind_id("nounwind");
    function.add_attribute(AttributeLoc::Function, cx.create_enum_attribute(nounwind, 0));
    let e = Emit::new(cx, module, level, function);
    let params = function.get_params();
    let [
        BasicValueEnum::PointerValue(args),
        BasicValueEnum::IntValue(start),
        BasicValueEnum::IntValue(end),
        BasicValueEnum::PointerValue(scratch),
        BasicValueEnum::PointerValue(context),
    ] = params.as_slice()
    else {
        return Err("a kernel has five parameters".into());
    };
    let stop = e.block();
    let (symbols, values) = (BTreeMap::new(), SecondaryMap::new());
    let mut code = Code { e, body: &kernel.body, symbols, values, context: *context, stop };
    code.kernel(kernel, KernelParams { args: *args, start: *start, end: *end, scratch: *scratch })?;
    code.e.b.build_unconditional_branch(stop)?;
    code.e.b.position_at_end(stop);
    code.e.b.build_return(None)?;
    code.e.finish()
}
