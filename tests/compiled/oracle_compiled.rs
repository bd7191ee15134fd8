//! Does compiled code compute what the examples' references say? Random programs are in `tests/random`.

use crate::{compiled, fixtures, front, host};

use std::collections::BTreeMap;

use attnc::ir::Module;
use attnc::lowering::graph::Options;
use attnc::passes;
use attnc::tensor::Tensor;
use attnc::threads;
use host::host;

/// The compiled examples compute what PyTorch and NumPy compute, taps included.
#[test]
fn examples_compute_their_references() {
    threads::each(fixtures::EXAMPLES, threads::all(), computes_its_references);
}

/// An example after the passes, and its weights, with the dimensions of its references.
pub(crate) fn example_of(fixture: &fixtures::Fixture, example: &str) -> (Module, BTreeMap<String, Tensor>) {
    let source = std::fs::read_to_string(fixtures::program(example)).unwrap();
    let options = Options { model: None, dims: fixture.dims.iter().cloned().collect() };
    let module = front::module(example, &source, &options).unwrap_or_else(|e| panic!("{example}\n{e}"));
    let params = fixture.weights().iter().map(|(name, tensor)| (name.clone(), host(tensor))).collect();
    (compiled::optimised(module, &passes::Options::default()), params)
}

fn computes_its_references(example: &str) {
    let fixture = fixtures::load(example);
    let (module, params) = example_of(&fixture, example);
    for level in compiled::levels() {
        let folder = tempfile::tempdir().unwrap();
        let model = compiled::load_at(level, &module, &params, folder.path());
        let mut session = model.session().unwrap();
        for case in &fixture.cases {
            let entry = model.entry(&case.entry).unwrap();
            let f = module.functions.iter().find(|f| f.name == case.entry).unwrap();
            let input = |name: &str| host(&case.inputs.iter().find(|(n, _)| n == name).unwrap().1);
            let args: Vec<Tensor> = f.args.iter().map(|arg| input(&arg.name)).collect();
            let check = |what: &str, result: &Tensor, reference: &fixtures::Tensor| {
                assert_eq!(result.shape(), reference.shape, "{example} {} {what}", case.name);
                let far = fixtures::difference(&result.to_f32(), &reference.to_f32());
                assert!(far <= case.tolerance, "{example} {} {what}: {far} > {}", case.name, case.tolerance);
            };
            // Each case is told of a model that has not learnt anything yet.
            session.reset().unwrap();
            let plain = session.call(entry, &args).unwrap_or_else(|e| panic!("{example} {}: {e}", case.name));
            check("result", &plain[0], &case.output);
            if case.taps.is_empty() {
                continue;
            }
            session.reset().unwrap();
            let (tapped, taps) =
                session.call_with_taps(entry, &args, &["*"]).unwrap_or_else(|e| panic!("{example} {}: {e}", case.name));
            check("result with taps", &tapped[0], &case.output);
            for (path, reference) in &case.taps {
                let tap = taps.iter().find(|(name, _)| name == path).map(|(_, t)| t);
                let tap = tap.unwrap_or_else(|| panic!("{example}: no tap {path}"));
                check(path, tap, reference);
            }
        }
    }
}

/// A loop that carries a transposition of its own variable: what a jump copies must not overwrite what it reads.
#[test]
fn a_loop_may_carry_a_transposition_of_itself() {
    let source = "model M<N = 37> {
    pub fn forward(x: f32[N, N]) -> f32[N, N] {
        var y = x
        for i in 0..3 { y = y.T }
        y
    }
}";
    let module = front::module("turn.attn", source, &Options::default()).unwrap();
    let module = compiled::optimised(module, &passes::Options::default());
    let folder = tempfile::tempdir().unwrap();
    let model = compiled::load(&module, &BTreeMap::new(), folder.path());
    let values: Vec<f32> = (0..37 * 37).map(|i| i as f32).collect();
    let x = Tensor::from_f32(vec![37, 37], &values).unwrap();
    let out = model.session().unwrap().call(model.entry("forward").unwrap(), &[x]).unwrap();
    let turned: Vec<f32> = (0..37 * 37).map(|i| values[i % 37 * 37 + i / 37]).collect();
    assert_eq!(out[0].to_f32(), turned);
}

/// A column beside a row's reduction, with a row short enough to be one tile.
#[test]
fn a_reduction_may_meet_a_column() {
    let source = "model M {
    pub fn forward(x: f32[S, 64], y: f32[S, 1]) -> f32[S, 1] {
        sqrt(sum(x * x, axis = -1, keep = true)) * y + y
    }
}";
    let module = front::module("column.attn", source, &Options::default()).unwrap();
    let module = compiled::optimised(module, &passes::Options::default());
    let folder = tempfile::tempdir().unwrap();
    let model = compiled::load(&module, &BTreeMap::new(), folder.path());
    let xs: Vec<f32> = (0..5 * 64).map(|i| (i % 7) as f32 - 3.0).collect();
    let ys: Vec<f32> = (0..5).map(|i| i as f32 * 0.5 - 1.0).collect();
    let args = [Tensor::from_f32(vec![5, 64], &xs).unwrap(), Tensor::from_f32(vec![5, 1], &ys).unwrap()];
    let out = model.session().unwrap().call(model.entry("forward").unwrap(), &args).unwrap();
    for (row, y) in ys.iter().enumerate() {
        let sum: f64 = xs[row * 64..][..64].iter().map(|x| f64::from(*x).powi(2)).sum();
        let want = sum.sqrt() * f64::from(*y) + f64::from(*y);
        let got = f64::from(out[0].to_f32()[row]);
        assert!((got - want).abs() <= 1e-6 * want.abs().max(1.0), "row {row}: {got}, not {want}");
    }
}
