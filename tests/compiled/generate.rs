//! Does the example that writes (29_generate) give from its cache what it gives without one, however the tokens are divided among
//! calls; and does its loop choose the tokens that one finds by computing everything anew for each of them?

use std::collections::BTreeMap;

use crate::{cached, decode, everywhere, fixtures};

use attnc::ir::{self, Module, interp};
use attnc::shape::Elem;
use attnc::tensor::Tensor;
use everywhere::Everywhere;

fn ints(values: &[i64]) -> Tensor {
    Tensor::from_ints(Elem::I32, vec![values.len()], values).unwrap()
}

fn int(n: i64) -> Tensor {
    Tensor::from_ints(Elem::I32, Vec::new(), &[n]).unwrap()
}

/// A variant of the example with the dimensions and weights of its reference.
fn example(name: &str) -> (Everywhere, fixtures::Fixture) {
    cached::example(name, "29_generate", &[])
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

/// The scores of the token after some, by the model without a cache (08_gpt2) in float64.
struct Anew {
    module: Module,
    params: BTreeMap<String, Tensor>,
}

impl Anew {
    fn new() -> Anew {
        let (program, fixture) = example("08_gpt2");
        let weights = fixture.weights();
        let tensor = |t: &fixtures::Tensor| Tensor::from_f32(t.shape.clone(), &t.to_f32()).unwrap();
        let params = weights.iter().map(|(name, t)| (name.clone(), tensor(t))).collect();
        Anew { module: program.written, params }
    }

    fn scores(&self, tokens: &[i64]) -> Vec<f64> {
        let args = [ints(tokens)];
        let call = interp::Call { function: "forward", args: &args, params: &self.params, limits: Default::default() };
        let verified = ir::verify(&self.module).unwrap();
        let out = interp::run::<f64>(verified, &call).unwrap().results.remove(0).to_tensor().unwrap().to_f64();
        out[out.len() - 97..].to_vec()
    }
}

/// The tokens of the greedy loop are those of the model without a cache, everything computed anew for each.
#[test]
fn the_greedy_loop_chooses_the_most_probable() {
    let (program, _) = example("29_generate");
    let anew = Anew::new();
    let next = |tokens: &[i64]| {
        let row = anew.scores(tokens);
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

/// The tokens that are drawn are those that loops in float64 draw, with as many tokens as there are for a counter; at temperature 0
/// they are those of the greedy loop.
#[test]
fn the_loop_that_draws() {
    let (program, _) = example("29_generate");
    let anew = Anew::new();
    let (temperature, p) = (0.75, 0.875);
    let prompt = [5, 36, 67];
    // None where a rounding may decide.
    let drawn = |seed: i64, count: usize| {
        let mut tokens = prompt.to_vec();
        for _ in 0..count {
            let scores: Vec<f64> = anew.scores(&tokens).iter().map(|x| x / temperature).collect();
            let (kept, margin) = decode::nucleus(&scores, p);
            let (token, sure) = decode::drawn(&kept, seed, tokens.len() as i64);
            if margin.min(sure) < 3e-5 {
                return None;
            }
            tokens.push(token as i64);
        }
        Some(tokens.split_off(prompt.len()))
    };
    let (seed, tokens) = (1..).find_map(|seed| Some((seed, drawn(seed, 8)?))).unwrap();
    // It stops before the first token that comes for the first time after some others.
    let at = (2..8).find(|at| !tokens[..*at].contains(&tokens[*at])).unwrap();
    let call = |temperature: f64, stop: i64| {
        let float = |x: f64| Tensor::from_floats(Elem::F32, Vec::new(), &[x]).unwrap();
        let seed = Tensor::from_ints(Elem::I64, Vec::new(), &[seed]).unwrap();
        ("generate", vec![ints(&prompt), int(stop), float(temperature), float(p), seed])
    };
    let calls = [
        call(temperature, tokens[at]),
        ("forget", Vec::new()),
        call(0.0, -1),
        ("forget", Vec::new()),
        ("greedy", vec![ints(&prompt), int(-1)]),
    ];
    let given: Vec<Vec<Tensor>> = program.calls(&calls).into_iter().map(Result::unwrap).collect();
    assert_eq!(given[0][1].to_i64(), [at as i64]);
    let mut want = vec![tokens[at]; 64];
    want[..at].copy_from_slice(&tokens[..at]);
    assert_eq!(given[0][0].to_i64(), want);
    assert_eq!(given[2][0].to_i64(), given[4][0].to_i64());
    assert_eq!(given[2][1].to_i64(), [62]);
}

/// `next` by itself, called with the prompt and then with each token that it gave, draws the same tokens: at temperature 0 the
/// greedy ones. Its penalty is on all tokens that it has read.
#[test]
fn one_token_after_another() {
    let (program, _) = example("29_generate");
    let float = |x: f64| Tensor::from_floats(Elem::F32, Vec::new(), &[x]).unwrap();
    let seed = Tensor::from_ints(Elem::I64, Vec::new(), &[11]).unwrap();
    let prompt = [5, 36, 67];
    let next = |tokens: &[i64], t: f64, k: i64, penalty: f64| {
        ("next", vec![ints(tokens), float(t), int(k), float(0.875), float(penalty), seed.clone()])
    };
    for t in [0.0, 0.75] {
        let whole = ("generate", vec![ints(&prompt), int(-1), float(t), float(0.875), seed.clone()]);
        let given = program.calls(&[whole]).remove(0).unwrap();
        let tokens = &given[0].to_i64()[..7];
        let mut calls = vec![next(&prompt, t, i64::from(i32::MAX), 1.0)];
        calls.extend(tokens.iter().map(|token| next(&[*token], t, 97, 1.0)));
        let drawn = program.calls(&calls);
        let drawn: Vec<i64> = drawn.into_iter().map(|given| given.unwrap()[0].to_i64()[0]).collect();
        assert_eq!(drawn[..7], *tokens, "{t}");
        // One of one.
        calls.iter_mut().for_each(|(_, args)| args[2] = int(1));
        let greedy = [("greedy", vec![ints(&prompt), int(-1)]), ("forget", Vec::new()), calls.remove(0)];
        let given = program.calls(&greedy);
        assert_eq!(given[2].as_ref().unwrap()[0].to_i64()[0], given[0].as_ref().unwrap()[0].to_i64()[0]);
    }
    // What the model would say after these tokens, with a penalty on them and on those before: by scores in float64.
    let anew = Anew::new();
    let (first, second) = ([5, 36, 67, 9], [40, 41]);
    let all: Vec<i64> = first.iter().chain(&second).copied().collect();
    for penalty in [1.5, 4.0, 30.0] {
        let scores = anew.scores(&all).into_iter().enumerate().map(|(i, x)| match all.contains(&(i as i64)) {
            true if x > 0.0 => x / penalty,
            true => x * penalty,
            false => x,
        });
        let scores: Vec<f64> = scores.collect();
        let best = (0..97).fold(0, |best, i| if scores[i] > scores[best] { i } else { best });
        let calls = [next(&first, 0.0, 97, penalty), next(&second, 0.0, 97, penalty)];
        let given = program.calls(&calls);
        assert_eq!(given[1].as_ref().unwrap()[0].to_i64(), [best as i64], "{penalty}");
    }
}
