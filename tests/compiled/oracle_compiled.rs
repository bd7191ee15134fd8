//! Does compiled code compute what the program means? Random programs and the examples' references.

use crate::{compiled, fixtures, front, gen_source, host};

use std::collections::BTreeMap;

use attnc::ir::interp::{self, Data};
use attnc::ir::verify;
use attnc::lowering::graph::Options;
use attnc::passes;
use attnc::tensor::Tensor;
use attnc::threads;
use host::host;

/// How often each of them is called, in one session.
const CALLS: u64 = 4;

/// How many random programs each of the tests below compiles; `ATTNC_SEEDS` says otherwise, `ATTNC_FIRST_SEED` where to
/// start. Fewer without optimisation, where the compiler is slow.
fn seeds(part: u64) -> std::ops::Range<u64> {
    let number = |name: &str| std::env::var(name).ok().and_then(|n| n.parse::<u64>().ok());
    let count = number("ATTNC_SEEDS").unwrap_or(if cfg!(debug_assertions) { 15 } else { 260 });
    let first = number("ATTNC_FIRST_SEED").unwrap_or(0) + part * count;
    first..first + count
}

#[test]
fn random_programs_compute_what_they_mean_1() {
    compute_what_they_mean(seeds(0));
}

#[test]
fn random_programs_compute_what_they_mean_2() {
    compute_what_they_mean(seeds(1));
}

#[test]
fn random_programs_compute_what_they_mean_3() {
    compute_what_they_mean(seeds(2));
}

#[test]
fn random_programs_compute_what_they_mean_4() {
    compute_what_they_mean(seeds(3));
}

/// Compiled code is within the bound that running error analysis gives for the program as written, and fails where the
/// interpreter does.
fn compute_what_they_mean(seeds: std::ops::Range<u64>) {
    let mut wrong = Vec::new();
    let count = seeds.clone().count();
    for seed in seeds {
        let before = wrong.len();
        let program = gen_source::generate(seed);
        let module = match front::module("random.attn", &program.source, &Options::default()) {
            Ok(module) => module,
            Err(e) => {
                wrong.push(format!("seed {seed}: {e}\n{}", program.source));
                continue;
            }
        };
        let params = gen_source::inputs::parameters(&module, seed);
        let folder = tempfile::tempdir().unwrap();
        // The levels alternate.
        let levels = compiled::levels();
        let level = levels[usize::try_from(seed).unwrap() % levels.len()];
        let load = || {
            let optimised = compiled::optimised(module.clone(), &passes::Options::default());
            compiled::load_at(level, &optimised, &params, folder.path())
        };
        let Ok(model) = std::panic::catch_unwind(std::panic::AssertUnwindSafe(load)) else {
            wrong.push(format!("seed {seed} ({}) does not compile\n{}", level.name(), program.source));
            continue;
        };
        let mut session = model.session().unwrap();
        let mut states = interp::States::<interp::Bounded>::new();
        // What a session keeps is compared by what later calls give.
        for given in program.calls(seed, CALLS) {
            let call =
                interp::Call { function: given.entry, args: &given.args, params: &params, limits: Default::default() };
            let expected = interp::run_in(verify(&module).unwrap(), &call, &mut states);
            let got = session.call(model.entry(given.entry).unwrap(), &given.args);
            let ends = expected.as_ref().map_or(true, |e| !e.certain);
            let complaint = match (expected, got) {
                (Ok(expected), Ok(got)) => differ(&expected, &got),
                (Err(_), Err(_)) => None,
                (Err(e), Ok(_)) => Some(format!("should have failed: {e}")),
                (Ok(_), Err(e)) => Some(format!("failed: {e}")),
            };
            if let Some(text) = complaint {
                let what = format!("seed {seed} ({}), {} {:?}", level.name(), given.entry, given.sizes);
                wrong.push(format!("{what}: {text}\n{}", program.source));
            }
            // After an error, and where rounding has decided something, the states may be others.
            if wrong.len() > before || ends && !program.is_stateless() {
                break;
            }
        }
        if wrong.len() == 3 {
            break;
        }
    }
    assert!(wrong.is_empty(), "{} of {count} are wrong\n{}", wrong.len(), wrong[..wrong.len().min(4)].join("\n"));
}

/// The first element that is not within its bound.
fn differ(expected: &interp::Outcome<interp::Bounded>, got: &[Tensor]) -> Option<String> {
    if !expected.certain {
        return None;
    }
    for (n, (want, have)) in expected.results.iter().zip(got).enumerate() {
        if want.shape != have.shape() {
            return Some(format!("result {n} has shape {:?}, not {:?}", have.shape(), want.shape));
        }
        let have = have.to_f64();
        for (i, h) in have.iter().enumerate() {
            let (fits, means) = match &want.data {
                Data::Float(xs) => (xs[i].admits(*h, 1.0), format!("{} +- {:e}", xs[i].value, xs[i].error)),
                Data::Int(xs) => (xs[i] as f64 == *h, xs[i].to_string()),
                Data::Bool(xs) => (f64::from(u8::from(xs[i])) == *h, xs[i].to_string()),
            };
            if !fits {
                return Some(format!("result {n}, element {i}: {h}, not {means}"));
            }
        }
    }
    None
}

/// The compiled examples compute what PyTorch and NumPy compute, taps included.
#[test]
fn examples_compute_their_references() {
    threads::each(fixtures::EXAMPLES, threads::all(), computes_its_references);
}

fn computes_its_references(example: &str) {
    let fixture = fixtures::load(example);
    let source = std::fs::read_to_string(fixtures::program(example)).unwrap();
    let options = Options { model: None, dims: fixture.dims.iter().cloned().collect() };
    let module = front::module(example, &source, &options).unwrap_or_else(|e| panic!("{example}\n{e}"));
    let module = compiled::optimised(module, &passes::Options::default());
    let params: BTreeMap<String, Tensor> =
        fixture.weights().iter().map(|(name, tensor)| (name.clone(), host(tensor))).collect();
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
            let plain = session.call(entry, &args).unwrap_or_else(|e| panic!("{example} {}: {e}", case.name));
            check("result", &plain[0], &case.output);
            if case.taps.is_empty() {
                continue;
            }
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
