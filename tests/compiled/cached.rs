//! Do the examples that keep keys and values (19_llama, 24_gemma, 33_translate; 29_generate is in `generate`) give, for any division of a text
//! among calls, what NumPy's float64 gives for all of it at once?

use crate::{everywhere, fixtures, front};

use attnc::shape::Elem;
use attnc::tensor::Tensor;
use everywhere::{Everywhere, Given};

fn ints(values: &[i64]) -> Tensor {
    Tensor::from_ints(Elem::I32, vec![values.len()], values).unwrap()
}

fn int(n: i64) -> Tensor {
    Tensor::from_ints(Elem::I32, Vec::new(), &[n]).unwrap()
}

/// An example with the dimensions and weights of a reference, but for `more` dimensions.
pub(crate) fn example(name: &str, reference: &str, more: &[(&str, i64)]) -> (Everywhere, fixtures::Fixture) {
    let source = std::fs::read_to_string(fixtures::program(name)).unwrap();
    of_source(&source, name, reference, more)
}

/// An example that keeps keys and values in f16, as `--dim Kept=f16` makes it.
fn in_half(name: &str, more: &[(&str, i64)]) -> (Everywhere, fixtures::Fixture) {
    let source = std::fs::read_to_string(fixtures::program(name)).unwrap();
    assert!(source.contains("Kept = f32"), "{name}");
    let (program, fixture) = of_source(&source.replace("Kept = f32", "Kept = f16"), name, name, more);
    (program.within(5e-3), fixture)
}

fn of_source(source: &str, name: &str, reference: &str, more: &[(&str, i64)]) -> (Everywhere, fixtures::Fixture) {
    let fixture = fixtures::load(reference);
    let own = fixture.dims.iter().map(|(n, v)| (n.as_str(), *v)).filter(|(n, _)| more.iter().all(|(m, _)| m != n));
    let dims: Vec<(&str, i64)> = own.chain(more.iter().copied()).collect();
    let module = front::module(name, source, &front::options(&dims)).unwrap_or_else(|e| panic!("{e}"));
    let weights = fixture.weights();
    let params: Vec<(&str, Tensor)> = weights
        .iter()
        .map(|(name, t)| (name.as_str(), Tensor::from_f32(t.shape.clone(), &t.to_f32()).unwrap()))
        .collect();
    (Everywhere::of_module(module, &params), fixture)
}

fn tokens(case: &fixtures::Case, argument: &str) -> Vec<i64> {
    let (_, tensor) = case.inputs.iter().find(|(name, _)| name == argument).unwrap();
    tensor.to_i32().into_iter().map(i64::from).collect()
}

/// Is a result these rows of the reference?
fn near(what: &str, case: &fixtures::Case, from: usize, to: usize, given: &Given) {
    let far = how_far(what, case, from, to, given);
    assert!(far <= case.tolerance, "{what}: {far}");
}

fn how_far(what: &str, case: &fixtures::Case, from: usize, to: usize, given: &Given) -> f64 {
    let width = *case.output.shape.last().unwrap();
    let got: Vec<f32> = given.as_ref().expect(what)[0].to_f64().iter().map(|x| *x as f32).collect();
    fixtures::difference(&got, &case.output.to_f32()[from * width..to * width])
}

/// In half the bytes a cache gives nearly the same, and not quite: what is kept is rounded once.
#[test]
fn caches_may_be_of_f16() {
    let (program, fixture) = in_half("19_llama", &[("T", 19)]);
    let case = fixture.cases.iter().find(|case| case.name == "b1_s19").unwrap();
    let text = tokens(case, "tokens");
    let mut calls = vec![("prefill", vec![ints(&text[..7])])];
    calls.extend(text[7..].iter().map(|token| ("step", vec![int(*token)])));
    let given = program.calls(&calls);
    let far: Vec<f64> = (6..19).map(|at| how_far("19_llama", case, at, at + 1, &given[at - 6])).collect();
    assert!(far.iter().all(|far| *far < 1e-2) && far.iter().any(|far| *far > case.tolerance), "{far:?}");

    let (program, fixture) = in_half("33_translate", &[]);
    let case = fixture.cases.iter().find(|case| case.name == "t5_s9").unwrap();
    let text = tokens(case, "target");
    let mut calls = vec![("encode", vec![ints(&tokens(case, "source"))]), ("decode", vec![ints(&text[..4])])];
    calls.extend(text[4..].iter().map(|token| ("decode", vec![ints(&[*token])])));
    let given = program.calls(&calls);
    let mut far = vec![how_far("33_translate", case, 0, 4, &given[1])];
    far.extend((4..text.len()).map(|at| how_far("33_translate", case, at, at + 1, &given[at - 2])));
    assert!(far.iter().all(|far| *far < 1e-2) && far.iter().any(|far| *far > case.tolerance), "{far:?}");
}

/// Scores after some tokens, in one call or one by one, and then after the rest; a full cache takes no more.
#[test]
fn llama_goes_on_from_its_cache() {
    let (program, fixture) = example("19_llama", "19_llama", &[("T", 19)]);
    let case = fixture.cases.iter().find(|case| case.name == "b1_s19").unwrap();
    let text = tokens(case, "tokens");
    let n = text.len();
    let mut calls = Vec::new();
    for k in 1..n {
        calls.push(("prefill", vec![ints(&text[..k])]));
        calls.push(("prefill", vec![ints(&text[k..])]));
        calls.push(("forget", Vec::new()));
    }
    let divided = calls.len();
    calls.extend(text.iter().map(|token| ("step", vec![int(*token)])));
    let given = program.calls(&calls);
    for k in 1..n {
        let at = 3 * (k - 1);
        near(&format!("the first {k}"), case, k - 1, k, &given[at]);
        near(&format!("the rest after {k}"), case, n - 1, n, &given[at + 1]);
        assert_eq!(given[at + 2].as_ref().unwrap()[0].to_f64(), [n as f64]);
    }
    for at in 0..n {
        near(&format!("one by one, {at}"), case, at, at + 1, &given[divided + at]);
    }
    let full = program.calls(&[("prefill", vec![ints(&text)]), ("step", vec![int(1)])]);
    assert!(full[0].is_ok() && full[1].is_err(), "{full:?}");
}

/// A text in two parts of any length; one by one; and several words at once behind any number that came one by one, so that they begin at
/// any place of the ring and go round it up to three times.
#[test]
fn gemma_goes_on_from_its_rings() {
    let (program, fixture) = example("24_gemma", "24_gemma", &[("T", 13)]);
    let case = fixture.cases.iter().find(|case| case.name == "b1_s13").unwrap();
    let text = tokens(case, "tokens");
    let n = text.len();
    let mut calls = Vec::new();
    // After which calls the scores of which word are given.
    let mut ends = Vec::new();
    for k in 1..n {
        for one_by_one in [false, true] {
            if one_by_one {
                for (at, token) in text[..k].iter().enumerate() {
                    ends.push((calls.len(), at));
                    calls.push(("step", vec![int(*token)]));
                }
            } else {
                ends.push((calls.len(), k - 1));
                calls.push(("prefill", vec![ints(&text[..k])]));
            }
            ends.push((calls.len(), n - 1));
            calls.push(("prefill", vec![ints(&text[k..])]));
            calls.push(("forget", Vec::new()));
        }
    }
    let given = program.calls(&calls);
    for (call, at) in ends {
        near(&format!("word {at} by call {call}, {}", calls[call].0), case, at, at + 1, &given[call]);
    }
    let full = program.calls(&[("prefill", vec![ints(&text)]), ("step", vec![int(1)])]);
    assert!(full[0].is_ok() && full[1].is_err(), "{full:?}");
}

/// Rings of one word, of an odd number and of more than there are: `forward`, which has no ring, gives the same scores.
#[test]
fn rings_of_any_size_see_what_windows_see() {
    for window in [1, 3, 20] {
        let (program, fixture) = example("24_gemma", "24_gemma", &[("W", window), ("T", 13)]);
        let case = fixture.cases.iter().find(|case| case.name == "b1_s13").unwrap();
        let text = tokens(case, "tokens");
        let whole = Tensor::from_ints(Elem::I32, vec![1, text.len()], &text).unwrap();
        let wanted = program.call("forward", &[whole]).unwrap()[0].to_f64();
        let wanted: Vec<f32> = wanted.iter().map(|x| *x as f32).collect();
        let width = wanted.len() / text.len();
        for k in [1, 2, 5] {
            let mut calls = vec![("prefill", vec![ints(&text[..k])]), ("step", vec![int(text[k])])];
            calls.push(("prefill", vec![ints(&text[k + 1..12])]));
            calls.push(("step", vec![int(text[12])]));
            for (end, given) in [k, k + 1, 12, 13].into_iter().zip(program.calls(&calls)) {
                let got: Vec<f32> = given.unwrap()[0].to_f64().iter().map(|x| *x as f32).collect();
                let far = fixtures::difference(&got, &wanted[(end - 1) * width..end * width]);
                assert!(far <= case.tolerance, "window {window}, {k}, after {end}: {far}");
            }
        }
    }
}

/// `next`, which `attnc generate` calls, takes the most probable token at temperature 0.
#[test]
fn llama_gives_the_next_token() {
    let (program, fixture) = example("19_llama", "19_llama", &[("T", 19)]);
    let case = fixture.cases.iter().find(|case| case.name == "b1_s19").unwrap();
    let float = |x: f64| Tensor::from_floats(Elem::F32, Vec::new(), &[x]).unwrap();
    let seed = Tensor::from_ints(Elem::I64, Vec::new(), &[0]).unwrap();
    let args = vec![ints(&tokens(case, "tokens")), float(0.0), int(1), float(1.0), float(1.0), seed];
    let given = program.call("next", &args).unwrap();
    let row = &case.output.to_f32()[18 * 43..];
    let best = (0..43).fold(0, |best, i| if row[i] > row[best] { i } else { best });
    assert_eq!(given[0].to_f64(), [best as f64]);
}

/// Scores of a text that is written in two parts, or token by token; and of another one after that, in the same session.
#[test]
fn a_translation_goes_on_from_its_cache() {
    let (program, fixture) = example("33_translate", "33_translate", &[]);
    let case = |name: &str| fixture.cases.iter().find(|case| case.name == name).unwrap();
    let (long, short) = (case("t5_s9"), case("t9_s4"));
    let text = tokens(long, "target");
    let n = text.len();
    let encode = |case: &fixtures::Case| ("encode", vec![ints(&tokens(case, "source"))]);
    let mut calls = Vec::new();
    for k in 0..=n {
        calls.extend([encode(long), ("decode", vec![ints(&text[..k])]), ("decode", vec![ints(&text[k..])])]);
        calls.extend([encode(short), ("decode", vec![ints(&tokens(short, "target"))])]);
    }
    let divided = calls.len();
    calls.push(encode(long));
    calls.extend(text.iter().map(|token| ("decode", vec![ints(&[*token])])));
    let given = program.calls(&calls);
    for k in 0..=n {
        near(&format!("the first {k}"), long, 0, k, &given[5 * k + 1]);
        near(&format!("the rest after {k}"), long, k, n, &given[5 * k + 2]);
        near(&format!("another text after {k}"), short, 0, 4, &given[5 * k + 4]);
    }
    for at in 0..n {
        near(&format!("one by one, {at}"), long, at, at + 1, &given[divided + 1 + at]);
    }
    // There is room for nine.
    let full = program.calls(&[encode(long), ("decode", vec![ints(&text)]), ("decode", vec![ints(&[1])])]);
    assert!(full[1].is_ok() && full[2].is_err(), "{full:?}");
}

/// `next` gives, token by token, what `translate` gives in one call.
#[test]
fn a_translation_is_its_tokens_one_by_one() {
    let (program, fixture) = example("33_translate", "33_translate", &[]);
    let case = fixture.cases.iter().find(|case| case.name == "greedy_t3").unwrap();
    let want: Vec<i64> = case.output.to_f32().into_iter().map(|token| token as i64).collect();
    let mut calls = vec![("encode", vec![ints(&tokens(case, "source"))])];
    calls.extend([0].iter().chain(&want[..want.len() - 1]).map(|token| ("next", vec![int(*token)])));
    let given = program.calls(&calls);
    for (at, token) in want.iter().enumerate() {
        assert_eq!(given[1 + at].as_ref().unwrap()[0].to_f64(), [*token as f64], "{at}");
    }
}
