//! Does beam search (31_beam) find what the greedy loop finds where it keeps one text, and what the exhaustive search finds where it
//! keeps all? Does a large model with a small one that proposes tokens (32_speculative) write what it writes alone? (What it finds otherwise is among the references of the examples.)

use attnc::random::Random;
use attnc::shape::Elem;
use attnc::tensor::Tensor;

use crate::everywhere::Everywhere;
use crate::{fixtures, front};

/// An example with these dimensions, and random weights that depend on names and shapes alone.
fn example(name: &str, dims: &[(&str, i64)]) -> Everywhere {
    example_named(name, dims, str::to_owned)
}

/// The same with weights by what `seed` makes of their names.
fn example_named(name: &str, dims: &[(&str, i64)], seed: impl Fn(&str) -> String) -> Everywhere {
    let source = std::fs::read_to_string(fixtures::program(name)).unwrap();
    let module = front::module(name, &source, &front::options(dims)).unwrap_or_else(|e| panic!("{e}"));
    let mut params = Vec::new();
    for decl in &module.params {
        let shape: Vec<usize> = decl.ty.shape.iter().map(|d| usize::try_from(d.as_const().unwrap()).unwrap()).collect();
        let layers = decl.counts.first().copied();
        for layer in 0..layers.unwrap_or(1) {
            let name = decl.name.replace('*', &layer.to_string());
            let seed = seed(&name).bytes().fold(7, |seed: u64, b| seed.wrapping_mul(31).wrapping_add(b.into()));
            let mut random = Random::new(seed);
            let count = shape.iter().product();
            let values: Vec<f32> = (0..count).map(|_| random.below(2001) as f32 * 1e-3 - 1.0).collect();
            params.push((name, Tensor::from_f32(shape.clone(), &values).unwrap()));
        }
    }
    let params: Vec<(&str, Tensor)> = params.iter().map(|(name, x)| (name.as_str(), x.clone())).collect();
    Everywhere::of_module(module, &params)
}

fn ints(values: &[i64]) -> Tensor {
    Tensor::from_ints(Elem::I32, vec![values.len()], values).unwrap()
}

fn search(tokens: &[i64], stop: i64, alpha: f64) -> (&'static str, Vec<Tensor>) {
    let stop = Tensor::from_ints(Elem::I32, Vec::new(), &[stop]).unwrap();
    ("search", vec![ints(tokens), stop, Tensor::from_floats(Elem::F32, Vec::new(), &[alpha]).unwrap()])
}

/// A text with a NaN among its scores does not go on, and an infinite score is certain.
#[test]
fn scores_that_are_no_numbers_do_not_win() {
    let source = "use std.decode\nmodel M {\n    pub fn step(sums: f32[W], lengths: i32[W], done: bool[W], logits: f32[W, V]) -> \
                  (f32[W], i32[W], i32[W]) where W >= 1, V >= 1 {\n        decode.beam(sums, lengths, done, logits, -1, 0.0)\n    }\n}\n";
    let program = Everywhere::of(source, &[]);
    let floats = |shape: &[usize], values: &[f32]| Tensor::from_f32(shape.to_vec(), values).unwrap();
    let done = Tensor::from_ints(Elem::Bool, vec![3], &[0; 3]).unwrap();
    let step = |logits: &[f32]| {
        let args = [floats(&[3], &[-1.0, -2.0, -3.0]), ints(&[1; 3]), done.clone(), floats(&[3, 3], logits)];
        program.call("step", &args).unwrap()
    };
    let inf = f32::INFINITY;
    let found = step(&[f32::NAN, 0.0, 0.0, 0.0, inf, 0.0, 0.0, 0.0, -inf]);
    let half = -3.0 + f64::from(0.5f32.ln());
    for (found, want) in found[0].to_f64().into_iter().zip([-2.0, half, half]) {
        assert!((found - want).abs() < 1e-6, "{found}, not {want}");
    }
    assert_eq!((found[1].to_i64(), found[2].to_i64()), (vec![1, 2, 2], vec![1, 0, 1]));
    // Where all have one, nothing is left.
    let found = step(&[f32::NAN; 9]);
    assert_eq!(found[0].to_f32(), [-inf; 3]);
}

#[test]
fn one_text_is_the_greedy_one() {
    let dims = [("L", 1), ("D", 8), ("H", 2), ("V", 11), ("T", 9)];
    let greedy = example("29_generate", &dims);
    let beam = example("31_beam", &[&dims[..], &[("W", 1)]].concat());
    for prompt in [&[3][..], &[1, 7, 0, 10], &[2; 9]] {
        let stop = Tensor::from_ints(Elem::I32, Vec::new(), &[-1]).unwrap();
        let want = greedy.call("greedy", &[ints(prompt), stop]).unwrap();
        let float = |x: f32| Tensor::from_f32(Vec::new(), &[x]).unwrap();
        let k = Tensor::from_ints(Elem::I32, Vec::new(), &[11]).unwrap();
        let seed = Tensor::from_ints(Elem::I64, Vec::new(), &[3]).unwrap();
        let args = [ints(prompt), float(0.0), k, float(1.0), float(1.0), seed];
        let drawn = greedy.call("next", &args).unwrap();
        for alpha in [0.0, 1.0] {
            let (name, args) = search(prompt, -1, alpha);
            let found = beam.call(name, &args).unwrap();
            assert_eq!(found[1].to_i64(), want[0].to_i64(), "{prompt:?}");
            assert_eq!(found[2].to_i64(), want[1].to_i64(), "{prompt:?}");
            assert_eq!(found[1].to_i64()[0], drawn[0].to_i64()[0], "{prompt:?}");
        }
    }
}

#[test]
fn all_texts_are_the_exhaustive_search() {
    let prompt = [2, 0];
    let program = example("31_beam", &[("L", 1), ("D", 8), ("H", 2), ("V", 3), ("T", 4), ("W", 27)]);
    let found = program.calls(&[search(&prompt, -1, 0.0), ("exhaustive", vec![ints(&prompt)])]);
    let (beam, best) = (found[0].as_ref().unwrap(), found[1].as_ref().unwrap());
    let (sums, texts) = (beam[0].to_f64(), beam[1].to_i64());
    assert_eq!(texts[..3], best[1].to_i64()[..]);
    assert!((sums[0] - best[0].to_f64()[0]).abs() < 1e-5);
    // Each of the 27 once, best first, and together they are certain.
    let mut all: Vec<Vec<i64>> = texts.chunks(4).map(|text| text[..3].to_vec()).collect();
    assert!(sums.is_sorted_by(|a, b| a >= b), "{sums:?}");
    assert!((sums.iter().map(|x| x.exp()).sum::<f64>() - 1.0).abs() < 1e-5);
    all.sort();
    all.dedup();
    assert_eq!(all.len(), 27);
}

/// Whether the small model is right never, at times or always: only how often the large one is asked depends on it.
#[test]
fn a_draft_changes_nothing_but_the_calls() {
    let (room, k) = (20, 3);
    let own = [("L", 2), ("D", 8), ("H", 2), ("V", 5), ("T", room)];
    let alone = example("29_generate", &own);
    let small = [("M", 1), ("E", 4), ("G", 1), ("K", k)];
    let twin = [("M", 2), ("E", 8), ("G", 2), ("K", k)];
    let without = |prefix: &str, name: &str| name.strip_prefix(prefix).unwrap_or(name).to_owned();
    let others = example_named("32_speculative", &[&own[..], &small].concat(), |name| without("large.", name));
    let twins = example_named("32_speculative", &[&own[..], &twin].concat(), |name| {
        without("small.", &without("large.", name))
    });
    for prompt in [&[3][..], &[1, 4, 0, 2, 2, 1, 3], &[2; 17], &[0; 20]] {
        let stop = Tensor::from_ints(Elem::I32, Vec::new(), &[-1]).unwrap();
        let want = alone.call("greedy", &[ints(prompt), stop]).unwrap()[0].to_i64();
        let mut asked = Vec::new();
        for program in [&others, &twins] {
            let given = program.call("greedy", &[ints(prompt)]).unwrap();
            let count = given[1].to_i64()[0];
            let rest = usize::try_from(room).unwrap() - prompt.len();
            // It ends where there is no room for k + 1 more.
            let tokens = given[0].to_i64();
            let (written, filled) = tokens.split_at(usize::try_from(count).unwrap());
            assert!(written.len() + usize::try_from(k).unwrap() >= rest, "{prompt:?}: {count}");
            assert_eq!(written, &want[..written.len()], "{prompt:?}");
            assert!(filled.iter().all(|token| *token == -1), "{tokens:?}");
            asked.push((given[2].to_i64()[0], count));
        }
        // A twin is always right: each time k tokens and one more.
        let (times, count) = asked[1];
        assert_eq!(1 + (times - 1) * (k + 1), count, "{prompt:?}");
        let (times, count) = asked[0];
        assert!((1..=count).contains(&times), "{prompt:?}");
    }
}
