//! Targets for programs and the text forms of all IRs.

use std::collections::BTreeMap;

use attnc::codegen::cpu::{Arch, clif as cranelift_text};
use attnc::diagnostics::Diagnostics;
use attnc::interface::ArgDecl;
use attnc::ir::interp::{self, Data, Limits};
use attnc::ir::{self, Module};
use attnc::lowering::graph::{self, LowerError};
use attnc::passes::{self, Level, Options};
use attnc::shape::{Dim, Elem};
use attnc::source::SourceMap;
use attnc::ssa::Value;
use attnc::tensor::Tensor;
use attnc::vector::routine::{self, interp::Memory, interp::Pointer, interp::RuntimeValue};
use attnc::{syntax, tile, types, vector};

use super::library;
use crate::bounded::Bounded;

/// What one call of an interpreter may cost.
const LIMITS: Limits = Limits { elements: 1 << 18, work: 1 << 20 };

/// The most elements that arguments and parameters are made for.
const ELEMENTS: i64 = 1 << 14;

fn text(data: &[u8]) -> Option<&str> {
    std::str::from_utf8(data).ok()
}

/// A program to graph IR; `None` if it is refused.
pub(super) fn lowered(source: &str) -> Option<Module> {
    let mut sources = SourceMap::new();
    let mut diagnostics = Diagnostics::new();
    let file = sources.add("fuzz.attn", source);
    let tree = syntax::parse(file, source, &mut diagnostics);
    let program = types::check(&tree, &mut sources, &mut diagnostics);
    let module = match diagnostics.has_errors() {
        true => None,
        false => match graph::lower(&program, &sources, &graph::Options::default(), &mut diagnostics) {
            Ok(module) => Some(module),
            Err(LowerError::Reported) => None,
            Err(LowerError::Bug(text)) => panic!("lowering: {text}"),
        },
    };
    let is_refused = diagnostics.has_errors();
    attnc::diagnostics::render_all(&diagnostics, &sources, false);
    module.filter(|_| !is_refused)
}

/// Does the type checker accept a program?
pub(super) fn checks(source: &str) -> bool {
    let mut sources = SourceMap::new();
    let mut diagnostics = Diagnostics::new();
    let file = sources.add("fuzz.attn", source);
    let tree = syntax::parse(file, source, &mut diagnostics);
    types::check(&tree, &mut sources, &mut diagnostics);
    !diagnostics.has_errors()
}

/// A program: parsed, checked, lowered, interpreted.
pub(super) fn attn(data: &[u8]) {
    let Some(module) = text(data).and_then(lowered) else { return };
    if let Err(errors) = ir::verify(&module) {
        panic!("lowering made graph IR that does not verify: {errors}");
    }
    interpreted::<f32>(&module);
}

/// Graph IR: read, verified, printed, interpreted.
pub(super) fn air(data: &[u8]) {
    let Some(module) = verified_air(data) else { return };
    let printed = ir::text::print(&module);
    match ir::text::parse(&printed, Default::default()) {
        Ok(again) => assert_eq!(ir::text::print(&again.module), printed, "printed text reads back as another module"),
        Err(_) => panic!("printed text does not read back:\n{printed}"),
    }
    interpreted::<f32>(&module);
}

fn verified_air(data: &[u8]) -> Option<Module> {
    let module = ir::text::parse(text(data)?, Default::default()).ok()?.module;
    ir::verify(&module).ok()?;
    Some(module)
}

/// Graph IR: the same results, within bounds, after all passes.
pub(super) fn passes(data: &[u8]) {
    let Some(module) = verified_air(data) else { return };
    let before = interpreted::<Bounded>(&module);
    for level in [Level::O1, Level::O2] {
        let mut after = module.clone();
        let options = Options { level, ..Options::default() };
        if let Err(error) = passes::optimise(&mut after, &options, &mut passes::Collected::default()) {
            panic!("{error}");
        }
        for (want, got) in before.iter().zip(interpreted::<Bounded>(&after)) {
            same(want, &got, level);
        }
    }
}

/// Results of a call, if it was within limits: `Err` if it fails.
type Called = Option<Result<Vec<interp::Array<Bounded>>, String>>;

fn same(want: &Called, got: &Called, level: Level) {
    match (want, got) {
        (Some(Ok(want)), Some(Ok(got))) => {
            for (a, b) in want.iter().zip(got) {
                assert_eq!(a.shape, b.shape, "{level:?}: another shape");
                match (&a.data, &b.data) {
                    (Data::Float(a), Data::Float(b)) => {
                        for (x, y) in a.iter().zip(b) {
                            let width = 4.0 * (x.error + y.error) + f64::MIN_POSITIVE;
                            let near = (x.value - y.value).abs() <= width || x.value.is_nan() || y.value.is_nan();
                            let far = !x.error.is_finite() || !y.error.is_finite();
                            assert!(near || far || x.value == y.value, "{level:?}: {x:?} became {y:?}");
                        }
                    }
                    (a, b) => assert_eq!(format!("{a:?}"), format!("{b:?}"), "{level:?}"),
                }
            }
        }
        (Some(Err(a)), Some(Ok(_))) => panic!("{level:?}: no longer fails: {a}"),
        (Some(Ok(_)), Some(Err(b))) => panic!("{level:?}: fails now: {b}"),
        _ => {}
    }
}

/// Some value of an extent: small, and not the same for all names.
fn size_of(name: &str) -> i64 {
    [3, 1, 2, 0, 5][name.bytes().map(usize::from).sum::<usize>() % 5]
}

/// A tensor for a type, if it is not large.
fn tensor(ty: &attnc::shape::TensorType) -> Option<Tensor> {
    let extent = |d: &Dim| d.eval(&|name| Some(size_of(name))).ok().filter(|n| (0..=ELEMENTS).contains(n));
    let shape: Vec<i64> = ty.shape.iter().map(extent).collect::<Option<_>>()?;
    let count = shape.iter().try_fold(1i64, |n, d| n.checked_mul(*d)).filter(|n| *n <= ELEMENTS)?;
    let shape: Vec<usize> = shape.iter().map(|n| usize::try_from(*n).unwrap_or(0)).collect();
    let numbers: Vec<i64> = (0..count).map(|i| i * 7 % 3).collect();
    match ty.elem {
        Elem::F32 | Elem::BF16 | Elem::F16 => {
            let floats: Vec<f64> = numbers.iter().map(|n| *n as f64 - 0.75).collect();
            Tensor::from_floats(ty.elem, shape, &floats)
        }
        elem => Tensor::from_ints(elem, shape, &numbers.iter().map(|n| n % 2).collect::<Vec<_>>()),
    }
}

/// All parameters of a module, if they are small.
fn parameters(module: &Module) -> Option<BTreeMap<String, Tensor>> {
    let mut all = BTreeMap::new();
    for param in &module.params {
        if param.counts.iter().try_fold(1u64, |n, c| n.checked_mul(*c)).is_none_or(|n| n > 64) {
            return None;
        }
        for name in attnc::runtime::weights::members(&param.name, &param.counts) {
            all.insert(name, tensor(&param.ty)?);
        }
    }
    Some(all)
}

/// Calls every function once.
fn interpreted<F: interp::Real>(module: &Module) -> Vec<Option<Result<Vec<interp::Array<F>>, String>>> {
    let Some(params) = parameters(module) else { return Vec::new() };
    let verified = ir::verify(module).unwrap_or_else(|errors| panic!("{errors}"));
    let call = |f: &ir::Function| {
        let args: Option<Vec<Tensor>> = f.args.iter().map(|a: &ArgDecl| tensor(&a.ty)).collect();
        let call = interp::Call { function: &f.name, args: &args?, params: &params, limits: LIMITS };
        match interp::run_tapped::<F>(verified, &call) {
            Ok(outcome) => Some(Ok(outcome.results)),
            Err(error) if error.internal => panic!("the interpreter found a bug: {error}"),
            Err(error) if error.message.contains("the limit allows") => None,
            Err(error) => Some(Err(error.message)),
        }
    };
    let mut found: BTreeMap<&str, _> = BTreeMap::new();
    for f in &module.functions {
        found.entry(f.name.as_str()).or_insert_with(|| call(f));
    }
    found.into_values().collect()
}

/// Tile IR: read, verified, printed, interpreted; compiled and called on guarded memory.
pub(super) fn tir(data: &[u8]) {
    let Some(source) = text(data) else { return };
    let Ok(parsed) = tile::text::parse(source, Default::default()) else { return };
    let module = parsed.module;
    let Ok(verified) = tile::verify::verify(&module) else { return };
    let printed = tile::text::print(&module);
    match tile::text::parse(&printed, Default::default()) {
        Ok(again) => assert_eq!(tile::text::print(&again.module), printed, "printed text reads back as another module"),
        Err(_) => panic!("printed text does not read back:\n{printed}"),
    }
    let mut outcomes = BTreeMap::new();
    for entry in module.interface().entries.iter() {
        let symbols: BTreeMap<String, i64> =
            entry.run_time_dims().into_iter().map(|d| (d.clone(), size_of(&d))).collect();
        let args: Option<Vec<Tensor>> = entry.args.iter().map(|a| tensor(&a.ty)).collect();
        let Some(args) = args else { continue };
        let params = BTreeMap::new();
        let call = tile::interp::Call {
            plan: &entry.name,
            variant: tile::PlanVariant::Plain,
            symbols: &symbols,
            args: &args,
            params: &params,
            limits: LIMITS,
        };
        match tile::interp::run(verified, &call) {
            Ok(_) => drop(outcomes.insert(entry.name.clone(), (args, true))),
            Err(error) if error.internal => panic!("the interpreter found a bug: {error}"),
            Err(error) if error.message.contains("the limit allows") => {}
            Err(_) => drop(outcomes.insert(entry.name.clone(), (args, false))),
        }
    }
    if !outcomes.is_empty() && module.interface().params.is_empty() {
        library::called_alike(&module, &outcomes);
    }
}

/// 64 bytes for each storage.
struct Buffers(Vec<[u8; 64]>);

impl Buffers {
    fn range(&self, at: Pointer, count: usize) -> Result<std::ops::Range<usize>, String> {
        let start = usize::try_from(at.at).map_err(|_| "below the start")?;
        let end = start.checked_add(count).filter(|end| *end <= 64).ok_or("beyond the end")?;
        if at.storage < self.0.len() { Ok(start..end) } else { Err("no such storage".to_string()) }
    }
}

impl Memory for Buffers {
    fn read(&self, from: Pointer, bytes: &mut [u8]) -> Result<(), String> {
        let range = self.range(from, bytes.len())?;
        bytes.copy_from_slice(&self.0[from.storage][range]);
        Ok(())
    }

    fn write(&mut self, to: Pointer, bytes: &[u8]) -> Result<(), String> {
        let range = self.range(to, bytes.len())?;
        self.0[to.storage][range].copy_from_slice(bytes);
        Ok(())
    }
}

/// Vector IR: routines and elementary functions, read, verified, printed, interpreted.
pub(super) fn vir(data: &[u8]) {
    let Some(source) = text(data) else { return };
    for parsed in routine::text::parse(source).unwrap_or_default() {
        let r = parsed.routine;
        if routine::verify(&r).is_err() {
            continue;
        }
        let printed = routine::text::print(&r);
        let again = routine::text::parse(&printed).unwrap_or_else(|_| panic!("does not read back:\n{printed}"));
        assert_eq!(routine::text::print(&again[0].routine), printed, "printed text reads back as another routine");
        let value = |(i, (v, _)): (usize, &(Value, String))| match r.body.ty(*v) {
            routine::Type::Index => RuntimeValue::Index(i as i64),
            routine::Type::Address => RuntimeValue::Address(Pointer { storage: i, at: 0 }),
            routine::Type::Lanes(_, lanes) => RuntimeValue::Lanes(vec![0; *lanes as usize]),
        };
        let args: Vec<RuntimeValue> = r.params.iter().enumerate().map(value).collect();
        let mut memory = Buffers(vec![[0; 64]; r.params.len()]);
        // Accesses outside of the buffers are errors, and so is too much work.
        let _ = routine::interp::run(&r, &args, &mut memory, &mut 10_000);
    }
    for function in vector::text::parse(source).unwrap_or_default() {
        vector::text::print(&function);
    }
}

/// Cranelift's IR: read and compiled.
pub(super) fn clif(data: &[u8]) {
    let Some(source) = text(data) else { return };
    for arch in [Arch::X86, Arch::Aarch64] {
        if let Ok(functions) = cranelift_text::read(source, arch) {
            let _ = cranelift_text::assembly(&functions, arch, true);
        }
    }
}
