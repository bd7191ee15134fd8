//! Do broken programs get a diagnostic, and never a panic or an internal error?
//!
//! Words of the examples and of random programs are removed, repeated, exchanged or replaced; what is left goes through
//! the parser, the checker, lowering and the verifier; what is still a program runs.

use crate::{fixtures, front, gen_source};

use attnc::ir::{ArgDecl, Function, interp, verify};
use attnc::lowering::graph::Options;
use attnc::random::Random;
use attnc::shape::{Dim, Elem};
use attnc::tensor::Tensor;
use gen_source::stream;

/// Splits a text into words and what stands between them; joined they are the text.
fn words(text: &str) -> Vec<String> {
    let mut out: Vec<String> = Vec::new();
    for c in text.chars() {
        let word = |c: char| c.is_alphanumeric() || c == '_';
        match out.last_mut() {
            Some(last) if word(c) && last.chars().next_back().is_some_and(word) => last.push(c),
            Some(last) if c == ' ' && last.ends_with(' ') => last.push(c),
            Some(_) | None => out.push(c.to_string()),
        }
    }
    out
}

/// A program that differs from another one in a few places.
fn mutate(text: &str, random: &mut Random) -> String {
    let mut words = words(text);
    for _ in 0..random.below(3) + 1 {
        let (i, j) = (random.below(words.len()), random.below(words.len()));
        match random.below(6) {
            0 => drop(words.remove(i)),
            1 => words.insert(i, words[j].clone()),
            2 => words.swap(i, j),
            3 => words[i] = words[j].clone(),
            4 => {
                let odd =
                    ["0", "-1", "1", "2", "D", "S", "H", "..", "inf", "x", "18446744073709551615", "i32", "[", "("];
                words[i] = random.pick(&odd).to_string();
            }
            _ => {
                // A number, if there is one nearby: the program is then likely to stay well-typed.
                let at = (i..words.len()).find(|k| words[*k].bytes().all(|b| b.is_ascii_digit()));
                if let Some(at) = at {
                    words[at] = random.pick(&["0", "1", "2", "3", "5", "100000"]).to_string();
                }
            }
        }
        if words.is_empty() {
            break;
        }
    }
    words.concat()
}

/// Some arguments that fit, or nearly.
fn arguments(f: &Function, seed: u64) -> Vec<Tensor> {
    let mut random = stream(seed);
    let sizes: Vec<i64> = (0..4).map(|_| random.pick(&[0, 1, 2, 3, 5])).collect();
    let size = |name: &str| sizes.get(name.len() % 4).copied();
    let mut tensor = |decl: &ArgDecl| {
        let extent = |d: &Dim| d.eval(&|name| size(name)).ok().and_then(|n| usize::try_from(n).ok());
        let shape: Vec<usize> = decl.ty.shape.iter().map(|d| extent(d).unwrap_or(1).min(4096)).collect();
        let count: usize = shape.iter().product::<usize>().min(1 << 20);
        let values: Vec<i64> = (0..count).map(|_| random.below(3) as i64).collect();
        let floats: Vec<f64> = values.iter().map(|n| *n as f64 - 1.0).collect();
        let made = match decl.ty.elem {
            Elem::F32 | Elem::BF16 | Elem::F16 => Tensor::from_floats(decl.ty.elem, shape, &floats),
            elem => Tensor::from_ints(elem, shape, &values),
        };
        made.or_else(|| Tensor::from_f32(vec![0], &[]))
    };
    f.args.iter().filter_map(&mut tensor).collect()
}

#[test]
fn mutated_programs_are_refused_or_right() {
    let count: u64 = std::env::var("ATTNC_SEEDS").ok().and_then(|n| n.parse().ok()).unwrap_or(400);
    let examples: Vec<String> =
        fixtures::EXAMPLES.iter().map(|name| std::fs::read_to_string(fixtures::program(name)).unwrap()).collect();
    let mut accepted = 0;
    let mut wrong = Vec::new();
    for seed in 0..count {
        let mut random = stream(seed);
        let original = if seed % 3 == 0 {
            examples[random.below(examples.len())].clone()
        } else {
            gen_source::generate(seed).source
        };
        let source = mutate(&original, &mut random);
        let outcome = std::panic::catch_unwind(|| {
            let module = front::module("m.attn", &source, &Options::default())?;
            let verified = verify(&module).map_err(|errors| format!("internal error: {errors}"))?;
            let large = |n: &Dim| n.as_const().is_none_or(|n| n > 10_000);
            if module.params.iter().any(|p| large(&p.ty.count()) || p.counts.iter().any(|n| *n > 9)) {
                return Ok(());
            }
            for f in module.functions.iter().filter(|f| f.tapped || !f.args.is_empty()) {
                let args = arguments(f, seed);
                let params = gen_source::inputs::parameters(&module, seed);
                let limits = interp::Limits { elements: 1 << 20, work: 1 << 24 };
                let call = interp::Call { function: &f.name, args: &args, params: &params, limits };
                match interp::run_tapped::<f32>(verified, &call) {
                    Err(failure) if failure.internal => return Err(failure.to_string()),
                    Ok(_) | Err(_) => {}
                }
            }
            Ok(())
        });
        match outcome {
            Ok(Ok(())) => accepted += 1,
            Ok(Err(message)) if message.starts_with("internal error") || message.is_empty() => {
                wrong.push(format!("seed {seed}\n{source}\n{message}"));
            }
            Ok(Err(_)) => {}
            Err(_) => wrong.push(format!("seed {seed} panics\n{source}")),
        }
    }
    println!("{accepted} of {count} are still right");
    assert!(
        wrong.is_empty(),
        "{} of {count}\n{}",
        wrong.len(),
        wrong.iter().take(4).cloned().collect::<Vec<_>>().join("\n")
    );
}
