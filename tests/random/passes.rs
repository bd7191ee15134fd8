//! Does every pass keep what a program computes?
//!
//! Random well-typed programs are interpreted before and after each pass, in the order of the pipeline: bit for bit for
//! passes that are exact, else within the bound of a running error analysis of the program in `f64`. On the way, every
//! program is printed and read back, and verified after every pass.

use crate::{gen_ir, seeds};

use crate::bounded::Bounded;
use attnc::ir::interp::{Array, Data, EvalError, Limits, Outcome, Real};
use attnc::ir::{Module, text, verify};
use attnc::passes::{Changed, Context, Float, PASSES, Pass, find_pass};
use gen_ir::{Program, program};

/// Programs in CI.
const PROGRAMS: u64 = 1000;

/// The bound of the analysis is for each operation alone; a named rewrite may add a few roundings of its own.
const SLACK: f64 = 4.0;

/// What the calls of a session give.
fn interpret<F: Real>(module: &Module, p: &Program) -> Result<Vec<Outcome<F>>, EvalError> {
    p.interpreted(module, Limits { elements: 1 << 16, work: 1 << 26 })
}

/// Are two arrays the same, bit for bit? All NaN are the same.
fn same(a: &Array<f32>, b: &Array<f32>) -> bool {
    let data = match (&a.data, &b.data) {
        (Data::Float(x), Data::Float(y)) => {
            x.len() == y.len() && x.iter().zip(y).all(|(x, y)| x.to_bits() == y.to_bits() || (x.is_nan() && y.is_nan()))
        }
        (x, y) => x == y,
    };
    data && a.shape == b.shape && a.elem == b.elem
}

fn within(a: &Array<f32>, bound: &Array<Bounded>) -> bool {
    let data = match (&a.data, &bound.data) {
        (Data::Float(x), Data::Float(y)) => {
            x.len() == y.len() && x.iter().zip(y).all(|(x, y)| y.admits(f64::from(*x), SLACK))
        }
        (Data::Int(x), Data::Int(y)) => x == y,
        (Data::Bool(x), Data::Bool(y)) => x == y,
        _ => false,
    };
    data && a.shape == bound.shape && a.elem == bound.elem
}

/// Every array of some calls with its name.
fn arrays<F: Clone>(calls: &[Outcome<F>]) -> Vec<(String, Array<F>)> {
    let of = |(n, o): (usize, &Outcome<F>)| {
        let results = o.results.iter().enumerate().map(|(i, a)| (format!("call {n}, result {i}"), a.clone()));
        let taps = o.taps.iter().map(|(path, a)| (format!("call {n}, {path}"), a.clone()));
        results.chain(taps).collect::<Vec<_>>()
    };
    calls.iter().enumerate().flat_map(of).collect()
}

fn agree<F: Clone>(
    what: &str,
    now: &[Outcome<f32>],
    then: &[Outcome<F>],
    alike: impl Fn(&Array<f32>, &Array<F>) -> bool,
) -> Result<(), String> {
    let (now, then) = (arrays(now), arrays(then));
    if now.len() != then.len() {
        return Err(format!("{what}: {} arrays, {} before", now.len(), then.len()));
    }
    for ((name, a), (other, b)) in now.iter().zip(&then) {
        if name != other || !alike(a, b) {
            return Err(format!("{what}: {name} differs: {a:?}"));
        }
    }
    Ok(())
}

/// The passes of `-O2`, in order, with those that clean up between them.
fn pipeline() -> Vec<Pass> {
    let mut list: Vec<Pass> = PASSES.to_vec();
    let clean = ["simplify", "fold-constants", "simplify-cfg", "cse", "licm", "dce"];
    let at = list.iter().position(|p| p.name == "fuse-attention").map_or(list.len(), |i| i + 1);
    list.splice(at..at, clean.iter().filter_map(|n| find_pass(n).ok()));
    list
}

#[derive(Default)]
struct Tally {
    failing: usize,
    changed: std::collections::BTreeMap<&'static str, usize>,
    bounded: usize,
    uncertain: usize,
}

fn check(seed: u64, passes: &[Pass], tally: &mut Tally) -> Result<(), String> {
    let p = program(seed);
    let printed = text::print(&p.module);
    let module = text::parse(&printed, Default::default())
        .map_err(|d| format!("does not read back: {:?}\n{printed}", d.sorted()))?
        .module;
    if text::print(&module) != printed {
        return Err(format!("reads back otherwise\n{printed}"));
    }
    let float = if seed.is_multiple_of(2) { Float::Contract } else { Float::Strict };
    let mut now = p.module.clone();
    let mut baseline = interpret::<f32>(&now, &p);
    tally.failing += usize::from(baseline.is_err());
    if let Err(e) = &baseline
        && e.internal
    {
        return Err(format!("{e}\n{printed}"));
    }
    for pass in passes {
        let before = text::print(&now);
        let mut ctx = Context::new(float);
        ctx.pass = pass.name;
        let changed = now.functions.iter_mut().map(|f| (pass.run)(f, &mut ctx)).fold(Changed::No, Changed::or);
        let after = text::print(&now);
        if changed == Changed::No {
            if before != after {
                return Err(format!("{} says that it changed nothing\n{before}\n{after}", pass.name));
            }
            continue;
        }
        *tally.changed.entry(pass.name).or_default() += 1;
        let story =
            |e: String| format!("seed {seed}, {} ({float}): {e}\nbefore:\n{before}\nafter:\n{after}", pass.name);
        verify(&now).map_err(|e| story(e.to_string()))?;
        let Ok(old) = &baseline else { continue };
        let new = interpret::<f32>(&now, &p).map_err(|e| story(e.to_string()))?;
        if pass.exact {
            agree("bits", &new, old, same).map_err(story)?;
        } else {
            let bounds = interpret::<Bounded>(&p.module, &p).map_err(|e| story(e.to_string()))?;
            if bounds.iter().all(|o| o.certain) {
                tally.bounded += 1;
                agree("bounds", &new, &bounds, within).map_err(story)?;
            } else {
                tally.uncertain += 1;
            }
        }
        baseline = Ok(new);
    }
    Ok(())
}

#[test]
fn passes_keep_what_programs_compute() {
    let all = seeds(PROGRAMS);
    let is_usual = all.start == 0;
    let n = all.end - all.start;
    let passes = pipeline();
    let mut tally = Tally::default();
    let failures: Vec<String> = all.filter_map(|seed| check(seed, &passes, &mut tally).err()).take(3).collect();
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
    println!(
        "{n} programs, {} fail; bounds compared {} times, uncertain {}",
        tally.failing, tally.bounded, tally.uncertain
    );
    println!("changed: {:?}", tally.changed);
    // The programs are worth running: few fail, and every pass finds something to do.
    assert!(tally.failing * 4 < n as usize, "{} of {n} programs fail", tally.failing);
    // Of the usual ones: others need not have something for the rarest pass.
    if is_usual && n >= PROGRAMS {
        // Canonical forms need what an author writes; they have tests of their own.
        // Gradients, and the products of formulas that they consist of, are in programs of their own
        // (`gradients_of_programs`, `compiled::gradients_compiled`).
        let is_written =
            |name: &str| name.starts_with("canonicalise") || ["differentiate", "fuse-chain"].contains(&name);
        for pass in PASSES.iter().filter(|p| !is_written(p.name)) {
            assert!(tally.changed.contains_key(pass.name), "{} never changes anything", pass.name);
        }
        assert!(tally.bounded * 2 > tally.uncertain, "most bounds are uncertain");
    }
}

/// The plain `f32` result is itself within the bounds, and these are not so wide that they say nothing.
#[test]
fn the_interpreter_is_within_its_own_bounds() {
    let seeds = seeds(PROGRAMS);
    let count = (seeds.end - seeds.start) / 4;
    let quarter = seeds.start..seeds.start + count;
    let (mut tight, mut all) = (0usize, 0usize);
    for seed in quarter {
        let p = program(seed);
        let (Ok(exact), Ok(bounds)) = (interpret::<f32>(&p.module, &p), interpret::<Bounded>(&p.module, &p)) else {
            continue;
        };
        if !bounds.iter().all(|o| o.certain) {
            continue;
        }
        if let Err(e) = agree("bounds", &exact, &bounds, within) {
            panic!("seed {seed}: {e}\n{}", text::print(&p.module));
        }
        for (_, a) in arrays(&bounds) {
            if let Data::Float(v) = a.data {
                all += v.len();
                tight += v.iter().filter(|b| b.error <= 1e-2 * (1.0 + b.value.abs())).count();
            }
        }
    }
    // Of few programs one with many elements may decide.
    assert!(count < PROGRAMS / 4 || tight * 2 > all, "{tight} of {all} elements have tight bounds");
}
