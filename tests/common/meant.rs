//! Random programs of the language, compiled: do they compute what they mean?
//!
//! In: seeds, and what compiles a module for a machine. Out: a panic with the programs that are wrong. A test program takes it in by
//! `#[path = "../common/meant.rs"] mod meant;`, beside `front`, `gen_source` and `grouped`.

#![allow(dead_code, reason = "each test program that takes this module in uses its own part of it")]

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use attnc::ir::interp::{self, Data};
use attnc::ir::{Module, verify};
use attnc::lowering::graph::Options;
use attnc::passes::{self, Collected};
use attnc::runtime::load::CompiledModel;
use attnc::tensor::Tensor;

use crate::bounded::Bounded;
use crate::grouped::{self, Member};
use crate::{front, gen_source};

/// How often each of them is called, in one session.
const CALLS: u64 = 4;

/// Programs in a library.
const GROUP: usize = 20;

/// What compiles and loads a module, as [`grouped::Load`].
pub(crate) type Loader = Box<dyn Fn(&Module, &BTreeMap<String, Tensor>, &Path) -> CompiledModel>;

/// A random program as it is written.
struct Written {
    program: gen_source::Generated,
    module: Module,
}

/// Compiled code is within the bound that running error analysis gives for the program as written, and fails where the
/// interpreter does. Programs come in groups, each of a library; `machine` gives the name of a group's machine, and what compiles for it.
pub(crate) fn compute_what_they_mean(seeds: std::ops::Range<u64>, machine: &dyn Fn(u64) -> (String, Loader)) {
    let mut wrong = Vec::new();
    let count = seeds.clone().count();
    let all: Vec<u64> = seeds.collect();
    for group in all.chunks(GROUP) {
        let (machine, load) = machine(group[0] / GROUP as u64);
        let (mut written, mut members) = (BTreeMap::new(), Vec::new());
        for seed in group {
            let program = gen_source::generate(*seed);
            match front::module("random.attn", &program.source, &Options::default()) {
                Ok(module) => {
                    let params = gen_source::inputs::parameters(&module, *seed);
                    match optimised(module.clone()) {
                        Some(module) => members.push(Member { number: *seed, module, params }),
                        None => wrong.push(format!("seed {seed} is not optimised\n{}", program.source)),
                    }
                    written.insert(*seed, Written { program, module });
                }
                Err(e) => wrong.push(format!("seed {seed}: {e}\n{}", program.source)),
            }
        }
        let mut refused = Vec::new();
        grouped::each(
            &*load,
            &members,
            |member, model| wrong.extend(means_something_else(&machine, &written[&member.number], member, model)),
            |member| refused.push(member.number),
        );
        for seed in refused {
            wrong.push(format!("seed {seed} ({machine}) does not compile\n{}", written[&seed].program.source));
        }
        if wrong.len() >= 3 {
            break;
        }
    }
    assert!(wrong.is_empty(), "{} of {count} are wrong\n{}", wrong.len(), wrong[..wrong.len().min(4)].join("\n"));
}

fn optimised(mut module: Module) -> Option<Module> {
    let mut remarks = Collected::default();
    let passes = || passes::optimise(&mut module, &passes::Options::default(), &mut remarks).is_ok();
    catch_unwind(AssertUnwindSafe(passes)).is_ok_and(|done| done).then_some(module)
}

/// What is wrong with a program, if anything is.
fn means_something_else(machine: &str, written: &Written, member: &Member, model: &CompiledModel) -> Option<String> {
    let (program, seed) = (&written.program, member.number);
    let mut session = model.session().unwrap();
    let mut states = interp::States::<Bounded>::default();
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
            (Ok(expected), Ok(got)) => differ(&expected, &got).err(),
            (Err(_), Err(_)) => None,
            (Err(e), Ok(_)) => Some(format!("should have failed: {e}")),
            (Ok(_), Err(e)) => Some(format!("failed: {e}")),
        };
        if let Some(text) = complaint {
            let what = format!("seed {seed} ({machine}), {} {:?}", given.entry, given.sizes);
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
pub(crate) fn differ(expected: &interp::Outcome<Bounded>, got: &[Tensor]) -> Result<(), String> {
    if !expected.certain {
        return Ok(());
    }
    for (n, (want, have)) in expected.results.iter().zip(got).enumerate() {
        if want.shape != have.shape() {
            return Err(format!("result {n} has shape {:?}, not {:?}", have.shape(), want.shape));
        }
        for (i, h) in have.to_f64().iter().enumerate() {
            let (fits, means) = match &want.data {
                Data::Float(xs) => (xs[i].admits(*h, 1.0), format!("{} +- {:e}", xs[i].value, xs[i].error)),
                Data::Int(xs) => (xs[i] as f64 == *h, xs[i].to_string()),
                Data::Bool(xs) => (f64::from(u8::from(xs[i])) == *h, xs[i].to_string()),
            };
            if !fits {
                return Err(format!("result {n}, element {i}: {h}, not {means}"));
            }
        }
    }
    Ok(())
}
