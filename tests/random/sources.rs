//! Does compiled code compute what the program means? Random programs of the language, beside the interpreter with running error bounds.

use crate::{compiled, front, gen_source, grouped, seeds};

use std::collections::BTreeMap;

use attnc::ir::interp::{self, Data};
use attnc::ir::{Module, verify};
use attnc::lowering::graph::Options;
use attnc::passes;
use attnc::runtime::load::CompiledModel;
use attnc::tensor::Tensor;
use attnc::tile::Cpu;
use grouped::Member;

/// How often each of them is called, in one session.
const CALLS: u64 = 4;

/// Programs in CI.
const PROGRAMS: u64 = if cfg!(debug_assertions) { 60 } else { 1040 };

/// A quarter of the programs, since tests run beside each other.
fn quarter(part: u64) -> std::ops::Range<u64> {
    let all = seeds(PROGRAMS);
    let count = all.end - all.start;
    all.start + part * count / 4..all.start + (part + 1) * count / 4
}

#[test]
fn random_programs_compute_what_they_mean_1() {
    compute_what_they_mean(quarter(0));
}

#[test]
fn random_programs_compute_what_they_mean_2() {
    compute_what_they_mean(quarter(1));
}

#[test]
fn random_programs_compute_what_they_mean_3() {
    compute_what_they_mean(quarter(2));
}

#[test]
fn random_programs_compute_what_they_mean_4() {
    compute_what_they_mean(quarter(3));
}

/// Programs in a library.
const GROUP: usize = 20;

/// A random program as it is written.
struct Written {
    program: gen_source::Generated,
    module: Module,
}

/// Compiled code is within the bound that running error analysis gives for the program as written, and fails where the
/// interpreter does.
fn compute_what_they_mean(seeds: std::ops::Range<u64>) {
    let mut wrong = Vec::new();
    let levels = compiled::levels();
    let count = seeds.clone().count();
    let all: Vec<u64> = seeds.collect();
    for group in all.chunks(GROUP) {
        // The levels alternate.
        let level = levels[usize::try_from(group[0]).unwrap() / GROUP % levels.len()];
        let (mut written, mut members) = (BTreeMap::new(), Vec::new());
        for seed in group {
            let program = gen_source::generate(*seed);
            match front::module("random.attn", &program.source, &Options::default()) {
                Ok(module) => {
                    let params = gen_source::inputs::parameters(&module, *seed);
                    let optimised =
                        std::panic::catch_unwind(|| compiled::optimised(module.clone(), &passes::Options::default()));
                    match optimised {
                        Ok(module) => members.push(Member { number: *seed, module, params }),
                        Err(_) => wrong.push(format!("seed {seed} is not optimised\n{}", program.source)),
                    }
                    written.insert(*seed, Written { program, module });
                }
                Err(e) => wrong.push(format!("seed {seed}: {e}\n{}", program.source)),
            }
        }
        let mut refused = Vec::new();
        grouped::each(
            level,
            &members,
            |member, model| wrong.extend(means_something_else(level, &written[&member.number], member, model)),
            |member| refused.push(member.number),
        );
        for seed in refused {
            wrong.push(format!("seed {seed} ({}) does not compile\n{}", level.name(), written[&seed].program.source));
        }
        if wrong.len() >= 3 {
            break;
        }
    }
    assert!(wrong.is_empty(), "{} of {count} are wrong\n{}", wrong.len(), wrong[..wrong.len().min(4)].join("\n"));
}

/// What is wrong with a program, if anything is.
fn means_something_else(level: Cpu, written: &Written, member: &Member, model: &CompiledModel) -> Option<String> {
    let (program, seed) = (&written.program, member.number);
    let mut session = model.session().unwrap();
    let mut states = interp::States::<interp::Bounded>::new();
    // What a session keeps is compared by what later calls give.
    for given in program.calls(seed, CALLS) {
        let call = interp::Call {
            function: given.entry,
            args: &given.args,
            params: &member.params,
            limits: Default::default(),
        };
        let expected = interp::run_in(verify(&written.module).unwrap(), &call, &mut states);
        let got = session.call(model.entry(&member.name(given.entry)).unwrap(), &given.args);
        let ends = expected.as_ref().map_or(true, |e| !e.certain);
        let complaint = match (expected, got) {
            (Ok(expected), Ok(got)) => differ(&expected, &got),
            (Err(_), Err(_)) => None,
            (Err(e), Ok(_)) => Some(format!("should have failed: {e}")),
            (Ok(_), Err(e)) => Some(format!("failed: {e}")),
        };
        if let Some(text) = complaint {
            let what = format!("seed {seed} ({}), {} {:?}", level.name(), given.entry, given.sizes);
            return Some(format!("{what}: {text}\n{}", program.source));
        }
        // After an error, and where rounding has decided something, the states may be others.
        if ends && !program.is_stateless() {
            break;
        }
    }
    None
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
