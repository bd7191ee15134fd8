//! From graph IR to a loaded `model.so`, as the driver does it.
//!
//! A test program takes it in by `#[path = "../common/compiled.rs"] mod compiled;`.

#![allow(dead_code, reason = "each test program that takes this module in uses its own part of it")]

use std::collections::BTreeMap;
use std::path::Path;

use crate::bounded::Bounded;
use attnc::codegen::{self, Generator, cpu, descriptor};
use attnc::ir::interp::{Array, Data};
use attnc::ir::{self, Module};
use attnc::lowering;
use attnc::passes::{self, Collected, Options};
use attnc::runtime::descriptor::{ModelDescriptor, features_of};
use attnc::runtime::load::CompiledModel;
use attnc::runtime::{link, processor};
use attnc::shape::Elem;
use attnc::tensor::Tensor;
use attnc::tile::verify::VerifiedModule;
use attnc::tile::{self, Cpu, GpuArch, WeightChoice, WeightFormat};
use safetensors::tensor::{Dtype, TensorView};

/// The module after the whole pipeline.
pub(crate) fn optimised(mut module: Module, options: &Options) -> Module {
    passes::optimise(&mut module, options, &mut Collected::default()).unwrap_or_else(|e| panic!("{e}"));
    module
}

/// The scheduled tile IR of a module after the passes, for a level.
pub(crate) fn scheduled(module: &Module, level: Cpu) -> tile::Module {
    scheduled_with(module, level, WeightFormat::F32)
}

/// The same, with packed weights in a format.
pub(crate) fn scheduled_with(module: &Module, level: Cpu, weights: impl Into<WeightChoice>) -> tile::Module {
    scheduled_and_verified(module, level, &weights.into()).into_module()
}

fn scheduled_and_verified(module: &Module, level: Cpu, weights: &WeightChoice) -> VerifiedModule {
    let verified = ir::verify(module).unwrap_or_else(|e| panic!("{e}"));
    let tiles = lowering::tile::lower(verified).unwrap_or_else(|e| panic!("lowering: {e}"));
    tile::schedule(&tiles, level, weights).unwrap_or_else(|e| panic!("schedule: {e}"))
}

/// A level and the module for it, which is verified.
pub(crate) fn tier(level: Cpu, module: &tile::Module) -> cpu::Tier<'_> {
    cpu::Tier { level, module: tile::verify::verify(module).unwrap_or_else(|e| panic!("{e}")), gpu: None }
}

/// The levels whose code this processor can run, best first. Says which are left out. Where `ATTNC_TEST_LEVELS` is `ends`, only
/// the first and the last.
pub(crate) fn levels() -> Vec<Cpu> {
    let mut levels: Vec<Cpu> = cpu::levels().iter().copied().filter(runs_here).collect();
    if std::env::var("ATTNC_TEST_LEVELS").is_ok_and(|which| which == "ends") && levels.len() > 2 {
        levels.drain(1..levels.len() - 1);
    }
    levels
}

/// The levels whose code for packed weights in a format this processor can run, among them all of [`levels`]. Says which are
/// left out.
pub(crate) fn levels_for(format: WeightFormat) -> Vec<Cpu> {
    let more = match format {
        WeightFormat::F32 => &[],
        WeightFormat::Bf16 => cpu::bf16_levels(),
        WeightFormat::Int8 | WeightFormat::Int4 => cpu::byte_levels(),
    };
    levels().into_iter().chain(more.iter().copied().filter(runs_here)).collect()
}

/// The levels whose code for products of `bf16` this processor can run, among them all of [`levels`]. Says which are left out.
pub(crate) fn bf16_levels() -> Vec<Cpu> {
    cpu::bf16_levels().iter().copied().filter(runs_here).chain(levels()).collect()
}

fn runs_here(level: &Cpu) -> bool {
    // LLVM makes no code for products in the tiles of AMX.
    if *level == Cpu::AMX && generator() == Generator::Llvm {
        return false;
    }
    let runs = features_of(&level.name()).is_some_and(processor::can_run);
    if !runs {
        println!("not run: this machine lacks {}", level.name());
    }
    runs
}

/// The back end that the environment asks for: `ATTNC_TEST_BACKEND=llvm`, where attnc is built with it; else the usual one.
pub(crate) fn generator() -> Generator {
    match std::env::var("ATTNC_TEST_BACKEND").as_deref() {
        Err(_) | Ok("" | "cranelift") => Generator::Cranelift,
        Ok("llvm") => Generator::Llvm,
        Ok(other) => panic!("ATTNC_TEST_BACKEND is {other}; it may be cranelift or llvm"),
    }
}

/// Compiles with the back end that the environment asks for.
pub(crate) fn compile(tiers: &[cpu::Tier<'_>], model: &ModelDescriptor) -> cpu::Compiled {
    codegen::compile(generator(), tiers, model, cpu::EmitOptions::default()).unwrap_or_else(|e| panic!("{e}"))
}

/// Compiles and links a module after the passes for the best level that runs here, and loads it.
pub(crate) fn load(module: &Module, params: &BTreeMap<String, Tensor>, folder: &Path) -> CompiledModel {
    load_at(levels()[0], module, params, folder)
}

/// Compiles and links a module after the passes for one level into `folder`, with its weights, and loads it.
pub(crate) fn load_at(level: Cpu, module: &Module, params: &BTreeMap<String, Tensor>, folder: &Path) -> CompiledModel {
    let tiles = scheduled_and_verified(module, level, &WeightFormat::F32.into());
    let tier = cpu::Tier { level, module: tiles.verified(), gpu: None };
    load_tier(generator(), tier, module, params, folder)
}

/// Compiles and links scheduled tile IR of a module for its level into `folder`, with its weights, and loads it.
pub(crate) fn load_tiles(
    level: Cpu,
    module: &Module,
    tiles: &tile::Module,
    params: &BTreeMap<String, Tensor>,
    folder: &Path,
) -> CompiledModel {
    load_made_by(generator(), level, module, tiles, params, folder)
}

/// The same with a back end that the caller chooses.
pub(crate) fn load_made_by(
    generator: Generator,
    level: Cpu,
    module: &Module,
    tiles: &tile::Module,
    params: &BTreeMap<String, Tensor>,
    folder: &Path,
) -> CompiledModel {
    load_tier(generator, tier(level, tiles), module, params, folder)
}

/// Compiles and links a module after the passes for a kind of GPU into `folder`, with its weights, and opens it on the GPU that the driver has.
pub(crate) fn load_on_gpu(
    kind: GpuArch,
    module: &Module,
    params: &BTreeMap<String, Tensor>,
    folder: &Path,
) -> CompiledModel {
    let verified = ir::verify(module).unwrap_or_else(|e| panic!("{e}"));
    let tiles = lowering::tile::lower(verified).unwrap_or_else(|e| panic!("lowering: {e}"));
    let tiles = tile::schedule_for_gpu(&tiles, kind).unwrap_or_else(|e| panic!("schedule: {e}"));
    let (ptx, infos) = codegen::ptx::compile(&tiles, kind).unwrap_or_else(|e| panic!("PTX: {e}"));
    let kernels = codegen::ptx::variant(kind.name(), &ptx, &infos).unwrap_or_else(|e| panic!("PTX: {e}"));
    let tier = cpu::Tier { level: Cpu::PORTABLE, module: tiles.verified(), gpu: Some(&kernels) };
    load_tier(generator(), tier, module, params, folder)
}

fn load_tier(
    generator: Generator,
    tier: cpu::Tier<'_>,
    module: &Module,
    params: &BTreeMap<String, Tensor>,
    folder: &Path,
) -> CompiledModel {
    let device = tier.gpu.map(|_| "cuda");
    let model = descriptor::describe(&module.interface(), "Test", "", &cpu::Arch::host().triple().to_string()).unwrap();
    let compiled =
        codegen::compile(generator, &[tier], &model, cpu::EmitOptions::default()).unwrap_or_else(|e| panic!("{e}"));
    let so = folder.join("model.so");
    link::link(&compiled.objects(), &so).unwrap_or_else(|e| panic!("{e}"));
    let weights = folder.join("weights.safetensors");
    let views: Vec<(String, TensorView<'_>)> = params
        .iter()
        .map(|(name, t)| (name.clone(), TensorView::new(dtype(t.elem()), t.shape().to_vec(), t.bytes()).unwrap()))
        .collect();
    safetensors::serialize_to_file(views, None, &weights).unwrap();
    // SAFETY: linked just above.
    unsafe { CompiledModel::open_on(&so, Some(&weights), 1, device) }.unwrap_or_else(|e| panic!("{e}"))
}

/// Is every element of a result within the bound of what is expected?
pub(crate) fn agree(what: &str, want: &Array<Bounded>, got: &Tensor) {
    assert_eq!(want.shape, got.shape(), "{what}");
    let Data::Float(xs) = &want.data else { panic!("floats") };
    for (i, (x, h)) in xs.iter().zip(got.to_f64()).enumerate() {
        assert!(x.admits(h, 1.0), "{what}: element {i}: {h}, not {} +- {:e}", x.value, x.error);
    }
}

/// Are two results the same to the bit, but for what a NaN looks like?
pub(crate) fn same_bits(what: &str, want: &Tensor, got: &Tensor) {
    if let Some(difference) = other_bits(want, got) {
        panic!("{what}: {difference}");
    }
}

/// The first element whose bits differ, but for what a NaN looks like.
pub(crate) fn other_bits(want: &Tensor, got: &Tensor) -> Option<String> {
    if (want.elem(), want.shape()) != (got.elem(), got.shape()) {
        return Some(format!("{:?} {:?}, not {:?} {:?}", got.elem(), got.shape(), want.elem(), want.shape()));
    }
    let mut pairs = want.to_f64().into_iter().zip(got.to_f64()).enumerate();
    let other = pairs.find(|(_, (x, y))| x.to_bits() != y.to_bits() && !(x.is_nan() && y.is_nan()));
    other.map(|(i, (x, y))| format!("element {i}: {y:e}, not {x:e}"))
}

fn dtype(elem: Elem) -> Dtype {
    match elem {
        Elem::F32 => Dtype::F32,
        Elem::BF16 => Dtype::BF16,
        Elem::F16 => Dtype::F16,
        Elem::I8 => Dtype::I8,
        Elem::I32 => Dtype::I32,
        Elem::I64 => Dtype::I64,
        Elem::Bool => Dtype::BOOL,
    }
}
