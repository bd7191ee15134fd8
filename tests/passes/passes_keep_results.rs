//! Does every pass leave the results of programs as they were?
//!
//! Random programs and all examples go through the pipeline, and the interpreter runs what each pass leaves. After a pass
//! that says it is exact every bit is as before it; after the others results are within a bound that is derived from a
//! float64 run of the program as written. Under `--float strict` every pass is exact.

use crate::{fixtures, front, gen_source, host};

use std::collections::BTreeMap;

use crate::bounded::Bounded;
use attnc::ir::interp::{self, Array, Data, Real};
use attnc::ir::{Module, Verified, text, verify};
use attnc::lowering::graph;
use attnc::passes::{Collected, Float, Options, Outcome, Remark, Watch, find_pass, optimise};
use attnc::tensor::Tensor;
use host::host;

/// How much larger than its bound an error may be: the bound is of the program as written, whose scales stand elsewhere.
const SLACK: f64 = 4.0;

/// A call of one entry point.
struct Case<'a> {
    function: &'a str,
    args: &'a [Tensor],
    params: &'a BTreeMap<String, Tensor>,
    tapped: bool,
}

/// Results and taps, in one list, or why there are none (an index out of range, say).
fn outcome<F: Real>(verified: Verified<'_>, case: &Case) -> Result<Vec<Array<F>>, String> {
    let call = interp::Call {
        function: case.function,
        args: case.args,
        params: case.params,
        limits: interp::Limits::default(),
    };
    let run = if case.tapped { interp::run_tapped::<F> } else { interp::run::<F> };
    match run(verified, &call) {
        Ok(out) => Ok(out.results.into_iter().chain(out.taps.into_values()).collect()),
        Err(failure) if failure.internal => panic!("{failure}"),
        Err(failure) => Err(failure.message),
    }
}

/// Is every element the same, or where that is allowed within its bound?
fn agree(now: &[Array<f32>], last: &[Array<f32>], bounds: Option<&[Array<Bounded>]>) -> Result<(), String> {
    if now.len() != last.len() {
        return Err("another number of results".to_string());
    }
    for (n, (a, b)) in now.iter().zip(last).enumerate() {
        let same = |x: f32, y: f32| x.to_bits() == y.to_bits() || (x.is_nan() && y.is_nan());
        let all = match (&a.data, &b.data) {
            (Data::Float(x), Data::Float(y)) => {
                let bound = |i: usize| match bounds.and_then(|all| all.get(n)).map(|b| &b.data) {
                    Some(Data::Float(b)) => b.get(i).copied(),
                    _ => None,
                };
                let bad =
                    x.iter().zip(y).enumerate().find(|(i, (x, y))| {
                        !same(**x, **y) && !bound(*i).is_some_and(|b| b.admits(f64::from(**x), SLACK))
                    });
                if let Some((i, (x, y))) = bad {
                    return Err(format!("result {n}, element {i}: {x} was {y}, bound {:?}", bound(i)));
                }
                true
            }
            (Data::Int(x), Data::Int(y)) => x == y,
            (Data::Bool(x), Data::Bool(y)) => x == y,
            (Data::Float(_) | Data::Int(_) | Data::Bool(_), _) => false,
        };
        if !all || a.shape != b.shape || a.elem != b.elem {
            return Err(format!("result {n} differs"));
        }
    }
    Ok(())
}

/// Runs the pipeline and checks what each pass leaves; its remarks.
fn check(name: &str, module: &Module, cases: &[Case], float: Float) -> Vec<Remark> {
    let before = text::print(module);
    let mut optimised = module.clone();
    let options = Options { float, watch: Watch { dump_files: true, ..Watch::default() }, ..Options::default() };
    let mut sink = Collected::default();
    let remarks = optimise(&mut optimised, &options, &mut sink).unwrap_or_else(|e| panic!("{name}: {e}\n{}", e.before));
    let mut stages = Vec::new();
    let mut last = before.as_str();
    for (file, text) in &sink.files {
        if text != last {
            let pass = find_pass(file[3..].trim_end_matches(".air")).expect("files are named by their passes");
            let module = text::parse(text, Default::default()).expect("a dump reads back").module;
            stages.push((pass, module, last, text));
            last = text;
        }
    }
    let verified = |module| verify(module).unwrap_or_else(|e| panic!("{name}: {e}"));
    let differentiated = front::differentiated(module.clone());
    let written = verified(&differentiated);
    let stages: Vec<_> =
        stages.iter().map(|(pass, module, before, after)| (pass, verified(module), before, after)).collect();
    for case in cases {
        let mut last = outcome::<f32>(written, case);
        let bounds = outcome::<Bounded>(written, case).ok();
        for (pass, module, before, after) in &stages {
            let now = outcome::<f32>(*module, case);
            let bounds = bounds.as_deref().filter(|_| !pass.exact && float != Float::Strict);
            let verdict = match (&now, &last) {
                (Ok(now), Ok(last)) => agree(now, last, bounds),
                (Err(now), Err(last)) if now == last => Ok(()),
                (now, last) => Err(format!("{:?} was {:?}", now.as_ref().err(), last.as_ref().err())),
            };
            if let Err(difference) = verdict {
                let what =
                    format!("{name} {}, {:?}", case.function, case.args.iter().map(Tensor::shape).collect::<Vec<_>>());
                panic!("{what} after {}: {difference}\nbefore the pass:\n{before}\nafter it:\n{after}", pass.name);
            }
            last = now;
        }
    }
    remarks
}

/// How many random programs a test looks at; `ATTNC_SEEDS` says otherwise.
fn seeds(default: u64) -> u64 {
    std::env::var("ATTNC_SEEDS").ok().and_then(|n| n.parse().ok()).unwrap_or(default)
}

#[test]
fn random_programs_compute_the_same_after_each_pass() {
    let count = seeds(300);
    let mut done: BTreeMap<&str, u64> = BTreeMap::new();
    for seed in 0..count {
        let program = gen_source::generate(seed);
        let module = front::module("random.attn", &program.source, &graph::Options::default()).expect("a program");
        let params = gen_source::inputs::parameters(&module, seed);
        let sizes = program.sizes(seed);
        let args = program.inputs(seed, &sizes);
        let case = Case { function: "forward", args: &args, params: &params, tapped: seed % 4 == 0 };
        let float = if seed % 5 == 0 { Float::Strict } else { Float::Contract };
        let remarks = check(&format!("seed {seed}, {sizes:?}\n{}", program.source), &module, &[case], float);
        for remark in remarks.iter().filter(|r| r.outcome == Outcome::Done) {
            *done.entry(remark.pass).or_default() += 1;
        }
    }
    // The programs must give each fusion something to do.
    for pass in ["fuse-attention", "fuse-epilogue", "fuse-rows", "fuse-map"] {
        assert!(done.get(pass).is_some_and(|n| *n > count / 10), "{pass}: {done:?}");
    }
}

#[test]
fn examples_compute_the_same_after_each_pass() {
    for example in fixtures::EXAMPLES {
        let fixture = fixtures::load(example);
        let source = std::fs::read_to_string(fixtures::program(example)).expect("an example");
        let options = graph::Options { model: None, dims: fixture.dims.iter().cloned().collect() };
        let module = front::module(example, &source, &options).expect("an example compiles");
        let params: BTreeMap<String, Tensor> =
            fixture.weights().iter().map(|(name, tensor)| (name.clone(), host(tensor))).collect();
        let arguments = |case: &fixtures::Case| -> Vec<Tensor> {
            let f = module.functions.iter().find(|f| f.name == case.entry).expect("an entry point");
            let input = |name: &str| host(&case.inputs.iter().find(|(n, _)| n == name).expect("an input").1);
            f.args.iter().map(|arg| input(&arg.name)).collect()
        };
        let given: Vec<(&str, Vec<Tensor>)> = fixture.cases.iter().map(|c| (c.entry.as_str(), arguments(c))).collect();
        let calls = given
            .iter()
            .flat_map(|(function, args)| [false, true].map(|tapped| Case { function, args, params: &params, tapped }));
        check(example, &module, &calls.collect::<Vec<_>>(), Float::Contract);
    }
}
