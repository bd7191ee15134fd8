//! Do the examples that train, from an LSTM to distillation, lose as much in ten steps as PyTorch in `f64`?
//! `tests/fixtures/make_systems.py` made the numbers.

use crate::oracle_compiled::example_of;
use crate::{compiled, fixtures, host};

use attnc::shape::Elem;
use attnc::tensor::Tensor;
use attnc::threads;
use host::host;

/// Relative, and to 0.1 where a loss is less.
const NEAR: f64 = 1e-4;

#[test]
fn ten_steps_are_those_of_pytorch() {
    threads::each(fixtures::SYSTEMS, threads::all(), takes_its_steps);
}

fn takes_its_steps(example: &str) {
    let fixture = fixtures::load(example);
    let (module, params) = example_of(&fixture, example);
    let folder = tempfile::tempdir().unwrap();
    let model = compiled::load_at(compiled::levels()[0], &module, &params, folder.path());
    let mut session = model.session().unwrap();
    for case in &fixture.cases {
        let f = module.functions.iter().find(|f| f.name == case.entry).unwrap();
        let mut call = |step: i64| {
            let input = |name: &str| match case.inputs.iter().find(|(n, _)| n == name) {
                Some((_, tensor)) => host(tensor),
                None => Tensor::from_ints(Elem::I64, Vec::new(), &[step]).unwrap(),
            };
            let args: Vec<Tensor> = f.args.iter().map(|arg| input(&arg.name)).collect();
            let entry = model.entry(&case.entry).unwrap();
            let given = session.call(entry, &args).unwrap_or_else(|e| panic!("{example} {}: {e}", case.name));
            given[0].to_f64()
        };
        let (got, shape) = match case.entry.as_str() {
            "learn" => ((1..=10).flat_map(&mut call).collect(), vec![10]),
            _ => (call(1), case.output.shape.clone()),
        };
        session.reset().unwrap();
        assert_eq!(shape, case.output.shape, "{example} {}", case.name);
        for (got, want) in got.iter().zip(case.output.to_f32()) {
            let want = f64::from(want);
            let near = (got - want).abs() <= NEAR * want.abs().max(0.1);
            assert!(near, "{example} {}: {got}, not {want}", case.name);
        }
        assert_eq!(got.len(), case.output.to_f32().len(), "{example} {}", case.name);
    }
}
