//! Does lowering make the graph IR that a program means?

#[path = "common/fixtures.rs"]
mod fixtures;
#[path = "common/front.rs"]
mod front;
#[path = "common/gen_source/mod.rs"]
mod gen_source;

use std::collections::BTreeMap;

use attnc::ir::{interp, text, verify};
use attnc::lowering::graph::Options;
use attnc::shape::Elem;
use attnc::tensor::Tensor;
use safetensors::tensor::Dtype;

#[test]
fn the_generator_says_the_same_again() {
    for seed in 0..20 {
        assert_eq!(gen_source::generate(seed).source, gen_source::generate(seed).source);
    }
}

/// How many random programs a test looks at; `ATTNC_SEEDS` says otherwise.
fn seeds(default: u64) -> u64 {
    std::env::var("ATTNC_SEEDS").ok().and_then(|n| n.parse().ok()).unwrap_or(default)
}

/// Random programs are right by construction; what lowering makes of them passes the verifier.
#[test]
fn random_programs_lower() {
    let count = seeds(150);
    let mut wrong = Vec::new();
    for seed in 0..count {
        let program = gen_source::generate(seed);
        match front::module("random.attn", &program.source, &Options::default()) {
            Ok(module) => {
                if let Err(errors) = verify(&module) {
                    wrong.push(format!("seed {seed}:\n{}\n{errors}", program.source));
                }
            }
            Err(message) => wrong.push(format!("seed {seed}:\n{}\n{message}", program.source)),
        }
    }
    assert!(
        wrong.is_empty(),
        "{} of {count} programs are refused\n{}",
        wrong.len(),
        wrong.join("\n").chars().take(6000).collect::<String>()
    );
}

/// Random programs run, for sizes of 0 and 1 too; what is tapped changes no result.
#[test]
fn random_programs_run() {
    for seed in 0..seeds(100) {
        let program = gen_source::generate(seed);
        let module = front::module("random.attn", &program.source, &Options::default()).unwrap();
        let verified = verify(&module).unwrap();
        let params = gen_source::inputs::parameters(&module, seed);
        let sizes = program.sizes(seed);
        let args = program.inputs(seed, &sizes);
        let call = interp::Call { function: "forward", args: &args, params: &params, limits: Default::default() };
        let fail = |failure: interp::Failure| panic!("seed {seed}, {sizes:?}: {failure}\n{}", program.source);
        let plain = interp::run::<f32>(verified, &call).unwrap_or_else(fail);
        let tapped = interp::run_tapped::<f32>(verified, &call).unwrap_or_else(fail);
        for (a, b) in plain.results.iter().zip(&tapped.results) {
            assert_eq!(a.to_tensor(), b.to_tensor(), "seed {seed}");
        }
    }
}

/// Every example lowers, and the verifier is content.
#[test]
fn examples_lower() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/examples");
    let mut names: Vec<_> = std::fs::read_dir(folder).unwrap().filter_map(|e| Some(e.ok()?.path())).collect();
    names.retain(|path| path.extension().is_some_and(|e| e == "attn"));
    names.sort();
    for path in names {
        let name = path.file_name().unwrap().to_str().unwrap();
        let source = std::fs::read_to_string(&path).unwrap();
        let module = front::module(name, &source, &Options::default()).unwrap_or_else(|e| panic!("{name}\n{e}"));
        verify(&module).unwrap_or_else(|errors| panic!("{name}\n{errors}"));
        println!("{}", text::print(&module));
    }
}

fn host(tensor: &fixtures::Tensor) -> Tensor {
    let elem = match tensor.dtype {
        Dtype::F32 => Elem::F32,
        Dtype::I32 => Elem::I32,
        Dtype::BOOL => Elem::Bool,
        other => panic!("{other:?} in a fixture"),
    };
    Tensor::new(elem, tensor.shape.clone(), tensor.bytes.clone()).unwrap()
}

/// What lowering makes of the examples computes what PyTorch and NumPy compute, taps included.
#[test]
fn examples_compute_their_references() {
    for example in fixtures::EXAMPLES {
        let fixture = fixtures::load(example);
        let source = std::fs::read_to_string(fixtures::program(example)).unwrap();
        let options = Options { model: None, dims: fixture.dims.iter().cloned().collect() };
        let module = front::module(example, &source, &options).unwrap_or_else(|e| panic!("{example}\n{e}"));
        let verified = verify(&module).unwrap_or_else(|errors| panic!("{example}\n{errors}"));
        let params: BTreeMap<String, Tensor> =
            fixture.weights().iter().map(|(name, tensor)| (name.clone(), host(tensor))).collect();
        for case in &fixture.cases {
            let f = module.functions.iter().find(|f| f.name == case.entry).unwrap();
            let input = |name: &str| host(&case.inputs.iter().find(|(n, _)| n == name).unwrap().1);
            let args: Vec<Tensor> = f.args.iter().map(|arg| input(&arg.name)).collect();
            let call = interp::Call { function: &case.entry, args: &args, params: &params, limits: Default::default() };
            let out = interp::run_tapped::<f32>(verified, &call)
                .unwrap_or_else(|failure| panic!("{example} {}: {failure}", case.name));
            let check = |what: &str, result: &interp::Array<f32>, reference: &fixtures::Tensor| {
                let result = result.to_tensor().unwrap();
                assert_eq!(result.shape(), reference.shape, "{example} {} {what}", case.name);
                let far = fixtures::difference(&result.to_f32(), &reference.to_f32());
                assert!(far <= case.tolerance, "{example} {} {what}: {far} > {}", case.name, case.tolerance);
            };
            check("result", &out.results[0], &case.output);
            for (path, reference) in &case.taps {
                let tap =
                    out.taps.get(path).unwrap_or_else(|| panic!("{example}: no tap {path}: {:?}", out.taps.keys()));
                check(path, tap, reference);
            }
        }
    }
}
