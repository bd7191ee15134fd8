//! Products, squares and loops of rounded extents and lengths, and numbers as places (`rounded/*.air`): nothing of them is refused, and what they become computes
//! what they say, for each small value of the dimensions.

use std::collections::{BTreeMap, BTreeSet};

use attnc::ir::{Module, text};
use attnc::passes::Options;
use attnc::random::Random;
use attnc::runtime::load::CompiledModel;
use attnc::shape::Elem;
use attnc::tensor::Tensor;
use attnc::tile::Cpu;

use crate::gen_ir::Program;
use crate::{compiled, graph_ir};

const PROGRAMS: [(&str, &str); 9] = [
    ("keys", include_str!("rounded/keys.air")),
    ("lengths", include_str!("rounded/lengths.air")),
    ("never", include_str!("rounded/never.air")),
    ("panels", include_str!("rounded/panels.air")),
    ("places", include_str!("rounded/places.air")),
    ("shared", include_str!("rounded/shared.air")),
    ("slices", include_str!("rounded/slices.air")),
    ("sorted", include_str!("rounded/sorted.air")),
    ("squares", include_str!("rounded/squares.air")),
];

/// A program of a text, with arguments for some value of its dimension; `None` where an extent has no value.
fn program(source: &str, extent: i64) -> Option<Program> {
    let module = text::parse(source, Default::default()).unwrap_or_else(|d| panic!("{:?}", d.sorted())).module;
    let names: BTreeSet<_> =
        module.functions[0].args.iter().flat_map(|a| &a.ty.shape).flat_map(|d| d.symbols()).collect();
    let symbols: BTreeMap<String, i64> = names.iter().map(|name| (name.to_string(), extent)).collect();
    let mut random = Random::new(extent.unsigned_abs());
    let mut args = Vec::new();
    for a in &module.functions[0].args {
        let shape = a.ty.shape.iter().map(|d| d.eval(&|name| symbols.get(name).copied()).ok()?.try_into().ok());
        let shape: Vec<usize> = shape.collect::<Option<_>>()?;
        assert_eq!(a.ty.elem, Elem::F32);
        let values: Vec<f64> = (0..shape.iter().product()).map(|_| random.below(2001) as f64 / 1000.0 - 1.0).collect();
        args.push(Tensor::from_floats(Elem::F32, shape, &values)?);
    }
    Some(Program { module, calls: vec![args], params: BTreeMap::new(), symbols, tame: true })
}

/// The programs as they are written and after the passes, for extents up to 9, in tile IR and in compiled code.
#[test]
fn what_is_rounded_is_computed() {
    let folder = tempfile::tempdir().unwrap();
    for (name, source) in PROGRAMS {
        let programs: Vec<Program> = (0..10).filter_map(|extent| program(source, extent)).collect();
        let written = &programs[0].module;
        let optimised = compiled::optimised(written.clone(), &Options::default());
        let mut computed = 0;
        for (what, module) in [("as written", written), ("after passes", &optimised)] {
            let tiles = |p: &Program, cpu: Cpu| {
                let wrong = graph_ir::tiles(module, p, cpu, &graph_ir::expected(written, p));
                assert_eq!(wrong, None, "{name}, {what}, {:?}", p.symbols);
            };
            programs.iter().for_each(|p| tiles(p, if computed % 2 == 0 { Cpu::PORTABLE } else { Cpu::AVX512 }));
            let levels = compiled::levels();
            for level in [levels[0], levels[levels.len() - 1]] {
                let folder = folder.path().join(format!("{name} {what} {}", level.name()));
                std::fs::create_dir_all(&folder).unwrap();
                let model = compiled::load_at(level, module, &BTreeMap::new(), &folder);
                computed += programs.iter().filter(|p| is_computed(name, p, written, &model)).count();
            }
        }
        assert!(computed >= 4, "{name} fails for all extents");
    }
}

/// Does compiled code compute what a program says? Not where it fails.
fn is_computed(name: &str, p: &Program, written: &Module, model: &CompiledModel) -> bool {
    let want = graph_ir::expected(written, p);
    let mut session = model.session().unwrap();
    let got = session.call(model.entry("main").unwrap(), &p.calls[0]);
    assert_eq!(want.is_ok(), got.is_ok(), "{name}, {:?}: {:?}", p.symbols, got.err().map(|e| e.to_string()));
    let is_ok = want.is_ok();
    let wrong = graph_ir::compare(&want, got.map(|got| vec![got]).map_err(|e| e.to_string()));
    assert_eq!(wrong, None, "{name}, {:?}", p.symbols);
    is_ok
}
