//! Does the example that writes (29_generate) give from its cache what it gives without one, however the tokens are divided among
//! calls; and does its loop choose the tokens that one finds by computing everything anew for each of them?

use crate::{everywhere, fixtures, front};

use attnc::ir::{self, interp};
use attnc::shape::Elem;
use attnc::tensor::Tensor;
use everywhere::Everywhere;

fn ints(values: &[i64]) -> Tensor {
    Tensor::from_ints(Elem::I32, vec![values.len()], values).unwrap()
}

fn int(n: i64) -> Tensor {
    Tensor::from_ints(Elem::I32, Vec::new(), &[n]).unwrap()
}

/// The example with the dimensions and weights of its reference.
fn example(name: &str) -> (Everywhere, fixtures::Fixture) {
    let fixture = fixtures::load("29_generate");
    let dims: Vec<(&str, i64)> = fixture.dims.iter().map(|(n, v)| (n.as_str(), *v)).collect();
    let source = std::fs::read_to_string(fixtures::program(name)).unwrap();
    let module = front::module(name, &source, &front::options(&dims)).unwrap_or_else(|e| panic!("{e}"));
    let weights = fixture.weights();
    let params: Vec<(&str, Tensor)> = weights
        .iter()
        .map(|(name, t)| (name.as_str(), Tensor::from_f32(t.shape.clone(), &t.to_f32()).unwrap()))
        .collect();
    (Everywhere::of_module(module, &params), fixture)
}

/// The last row of what NumPy's float64 gives for all tokens is what any division of them among calls gives.
#[test]
fn every_division_among_calls_gives_the_same() {
    let (program, fixture) = example("29_generate");
    for case in fixture.cases.iter().filter(|case| ["s1", "s7"].contains(&case.name.as_str())) {
        let tokens: Vec<i64> = case.inputs[0].1.to_i32().into_iter().map(i64::from).collect();
        let vocabulary = *case.output.shape.last().unwrap();
        let reference = case.output.to_f32();
        let near = |what: &str, upto: usize, given: &everywhere::Given| {
            let got: Vec<f32> =
                given.as_ref().expect(what).first().unwrap().to_f64().iter().map(|x| *x as f32).collect();
            let far = fixtures::difference(&got, &reference[(upto - 1) * vocabulary..upto * vocabulary]);
            assert!(far <= case.tolerance, "{what}: {far}");
        };
        for k in 1..=tokens.len() {
            let mut calls = vec![("prefill", vec![ints(&tokens[..k])])];
            calls.extend(tokens[k..].iter().map(|token| ("step", vec![int(*token)])));
            calls.push(("forget", Vec::new()));
            if k < tokens.len() {
                calls.push(("prefill", vec![ints(&tokens[..k])]));
                calls.push(("prefill", vec![ints(&tokens[k..])]));
            }
            let given = program.calls(&calls);
            let steps = tokens.len() - k + 1;
            (0..steps).for_each(|at| near("one by one", k + at, &given[at]));
            assert_eq!(given[steps].as_ref().unwrap()[0].to_f64(), [tokens.len() as f64]);
            if k < tokens.len() {
                near("the first part", k, &given[steps + 1]);
                near("the rest", tokens.len(), &given[steps + 2]);
            }
        }
    }
    // The cache is full after 64.
    let most: Vec<i64> = (0..64).collect();
    let given = program.calls(&[("prefill", vec![ints(&most)]), ("step", vec![int(1)])]);
    assert!(given[0].is_ok() && given[1].is_err(), "{given:?}");
}

/// The tokens of the greedy loop are those of the model without a cache (08_gpt2) in float64, everything computed anew for each.
#[test]
fn the_greedy_loop_chooses_the_most_probable() {
    let (program, fixture) = example("29_generate");
    let (without_cache, _) = example("08_gpt2");
    let verified = ir::verify(&without_cache.written).unwrap();
    let weights = fixture.weights();
    let params: std::collections::BTreeMap<String, Tensor> = weights
        .iter()
        .map(|(name, t)| (name.clone(), Tensor::from_f32(t.shape.clone(), &t.to_f32()).unwrap()))
        .collect();
    let next = |tokens: &[i64]| {
        let args = [ints(tokens)];
        let call = interp::Call { function: "forward", args: &args, params: &params, limits: Default::default() };
        let out = interp::run::<f64>(verified, &call).unwrap().results.remove(0).to_tensor().unwrap().to_f64();
        let row = &out[out.len() - 97..];
        (0..97).fold(0, |best, i| if row[i] > row[best] { i } else { best }) as i64
    };
    for length in [1usize, 58] {
        let prompt: Vec<i64> = (0..length as i64).map(|i| (i * 31 + 5) % 97).collect();
        let mut tokens = prompt.clone();
        // One more than there is room for: it is chosen, but not read.
        while tokens.len() <= if length == 1 { 9 } else { 64 } {
            let token = next(&tokens);
            tokens.push(token);
        }
        let chosen = &tokens[length..];
        // It stops before the first of these that is a token that did not come before.
        let stop = chosen.iter().enumerate().skip(1).rfind(|(at, token)| !chosen[..*at].contains(token));
        let (at, stop) = if length == 1 { stop.map_or((0, chosen[0]), |(at, t)| (at, *t)) } else { (chosen.len(), -1) };
        let given = program.calls(&[("greedy", vec![ints(&prompt), int(stop)])]).remove(0).unwrap();
        assert_eq!(given[1].to_f64(), [at as f64], "{chosen:?}");
        let mut want = vec![stop as f64; 64];
        chosen[..at].iter().enumerate().for_each(|(i, token)| want[i] = *token as f64);
        assert_eq!(given[0].to_f64(), want);
    }
}
