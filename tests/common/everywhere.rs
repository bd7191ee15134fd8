//! A program run wherever programs run: the interpreter of the graph IR as written and after the passes, that of the tile IR
//! before and after the schedule, and compiled code, with optimisation and without. All must agree.
//!
//! A test program takes it in by `#[path = "../common/everywhere.rs"] mod everywhere;`, beside `compiled` and `front`.

#![allow(dead_code, reason = "each test program that takes this module in uses its own part of it")]

use std::collections::BTreeMap;
use std::sync::OnceLock;

use attnc::ir::{self, Module, interp};
use attnc::lowering::graph::Options;
use attnc::passes::{self, Level};
use attnc::runtime::load::CompiledModel;
use attnc::tensor::Tensor;
use attnc::tile::verify::VerifiedModule;
use attnc::tile::{self, Cpu, PlanVariant};

use crate::{compiled, front};

/// What a call gives, or its error.
pub(crate) type Given = Result<Vec<Tensor>, String>;

/// How far results of two ways may differ, relative to 1 or to the larger of them.
const NEAR: f64 = 1e-5;

/// What is made of a program once, however often it is called: its tile IR, and compiled code.
struct Made {
    /// By what they are in a message: as written and after the passes, before and after the schedule.
    tiles: Vec<(String, VerifiedModule)>,
    /// With optimisation and without.
    compiled: Vec<(String, CompiledModel)>,
}

/// A program as written and after the passes, with its parameters.
pub(crate) struct Everywhere {
    /// As written, with its gradients.
    pub(crate) written: Module,
    /// After all passes.
    pub(crate) optimised: Module,
    params: BTreeMap<String, Tensor>,
    /// How far results of two ways may differ.
    allowed: f64,
    made: OnceLock<Made>,
}

impl Everywhere {
    /// Of a source text and its parameters.
    pub(crate) fn of(source: &str, params: &[(&str, Tensor)]) -> Everywhere {
        let written = front::module("m.attn", source, &Options::default()).unwrap_or_else(|e| panic!("{source}\n{e}"));
        Everywhere::of_module(written, params)
    }

    /// Of a module.
    pub(crate) fn of_module(written: Module, params: &[(&str, Tensor)]) -> Everywhere {
        let params = params.iter().map(|(name, x)| ((*name).to_string(), x.clone())).collect();
        let written = front::differentiated(written);
        let optimised = compiled::optimised(written.clone(), &passes::Options::default());
        Everywhere { written, optimised, params, allowed: NEAR, made: OnceLock::new() }
    }

    /// The same where results of two ways may differ by this much: what they round to fewer bits in the middle may come out one step apart.
    pub(crate) fn within(self, allowed: f64) -> Everywhere {
        Everywhere { allowed, ..self }
    }

    /// The results of a sequence of calls, each of an entry point: in compiled code those of one session. Every way but the first
    /// must agree with it.
    pub(crate) fn calls(&self, calls: &[(&str, Vec<Tensor>)]) -> Vec<Given> {
        let want = self.interpreted(&self.written, calls);
        let same = |what: &str, got: &[Given]| same(what, &want, got, self.allowed);
        same("the interpreter after the passes", &self.interpreted(&self.optimised, calls));
        let made = self.made.get_or_init(|| self.make());
        for (what, tiles) in &made.tiles {
            same(what, &self.tiled(tiles, calls));
        }
        for (what, model) in &made.compiled {
            let mut session = model.session().unwrap();
            let call = |(name, args): &(&str, Vec<Tensor>)| {
                session.call(model.entry(name).unwrap(), args).map_err(|e| e.to_string())
            };
            let got: Vec<Given> = calls.iter().map(call).collect();
            same(what, &got);
        }
        want
    }

    fn make(&self) -> Made {
        let unoptimised = passes::Options { level: Level::O0, ..passes::Options::default() };
        let plain = compiled::optimised(self.written.clone(), &unoptimised);
        // Plans take leading axes collapsed to one, which only entry points do.
        let batched = self.written.functions.iter().any(|f| f.args.iter().any(|arg| arg.batch));
        let mut tiles = Vec::new();
        for (what, module) in [("as written", &plain), ("after the passes", &self.optimised)] {
            if batched {
                continue;
            }
            let verified = ir::verify(module).unwrap_or_else(|e| panic!("{e}"));
            let lowered = attnc::lowering::tile::lower(verified).unwrap_or_else(|e| panic!("{e}"));
            let weights = tile::WeightChoice::default();
            let scheduled = tile::schedule(&lowered, Cpu::PORTABLE, &weights).unwrap_or_else(|e| panic!("{e}"));
            tiles.push((format!("tile IR {what}"), lowered));
            tiles.push((format!("tile IR {what}, scheduled"), scheduled));
        }
        let levels = compiled::levels();
        let load = |(what, module, level): (&str, &Module, Cpu)| {
            let folder = tempfile::tempdir().unwrap();
            let model = compiled::load_at(level, module, &self.params, folder.path());
            (format!("compiled code {what} for {}", level.name()), model)
        };
        let ways = [("-O0", &plain, levels[levels.len() - 1]), ("-O2", &self.optimised, levels[0])];
        Made { tiles, compiled: ways.into_iter().map(load).collect() }
    }

    /// The results of one call.
    pub(crate) fn call(&self, name: &str, args: &[Tensor]) -> Given {
        self.calls(&[(name, args.to_vec())]).remove(0)
    }

    fn interpreted(&self, module: &Module, calls: &[(&str, Vec<Tensor>)]) -> Vec<Given> {
        let verified = ir::verify(module).unwrap_or_else(|e| panic!("{e}"));
        let mut states = interp::States::default();
        let run = |(function, args): &(&str, Vec<Tensor>)| {
            let call = interp::Call { function, args, params: &self.params, limits: Default::default() };
            let out = interp::run_in::<f32>(verified, &call, &mut states).map_err(|e| e.to_string())?;
            Ok(out.results.iter().map(|x| x.to_tensor().unwrap()).collect())
        };
        calls.iter().map(run).collect()
    }

    fn tiled(&self, tiles: &VerifiedModule, calls: &[(&str, Vec<Tensor>)]) -> Vec<Given> {
        let mut states = tile::interp::States::default();
        let run = |(plan, args): &(&str, Vec<Tensor>)| {
            let f = self.written.functions.iter().find(|f| f.name == *plan && !f.tapped).expect("an entry point");
            let mut symbols = BTreeMap::new();
            for (decl, arg) in f.args.iter().zip(args) {
                for (dim, n) in decl.ty.shape.iter().zip(arg.shape()) {
                    if let [only] = dim.symbols().iter().collect::<Vec<_>>().as_slice() {
                        symbols.insert(only.to_string(), i64::try_from(*n).unwrap());
                    }
                }
            }
            let call = tile::interp::Call {
                plan,
                variant: PlanVariant::Plain,
                symbols: &symbols,
                args,
                params: &self.params,
                limits: Default::default(),
            };
            tile::interp::run_in(tiles.verified(), &call, &mut states).map(|o| o.results).map_err(|e| e.to_string())
        };
        calls.iter().map(run).collect()
    }
}

/// Two ways give the same: both errors, or results that are nearly equal.
fn same(what: &str, want: &[Given], got: &[Given], allowed: f64) {
    for (n, (want, got)) in want.iter().zip(got).enumerate() {
        match (want, got) {
            (Ok(want), Ok(got)) => {
                assert_eq!(want.len(), got.len(), "{what}, call {n}");
                for (x, y) in want.iter().zip(got) {
                    within(&format!("{what}, call {n}"), x, y, allowed);
                }
            }
            (Err(_), Err(_)) => {}
            (want, got) => panic!("{what}, call {n}: expected {want:?}, found {got:?}"),
        }
    }
}

/// Two tensors are nearly equal.
pub(crate) fn near(what: &str, x: &Tensor, y: &Tensor) {
    within(what, x, y, NEAR);
}

fn within(what: &str, x: &Tensor, y: &Tensor, allowed: f64) {
    assert_eq!((x.elem(), x.shape()), (y.elem(), y.shape()), "{what}");
    for (i, (a, b)) in x.to_f64().into_iter().zip(y.to_f64()).enumerate() {
        let fits = a == b || a.is_nan() && b.is_nan() || (a - b).abs() <= allowed * a.abs().max(1.0);
        assert!(fits, "{what}: element {i}: {b}, not {a}");
    }
}
