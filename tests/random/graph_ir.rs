//! Does what the graph IR becomes compute what the graph IR says?
//!
//! Random well-typed programs of the graph IR, which reach further than any source text does (empty axes, narrow types,
//! operations at odd places), as tile IR under its interpreter, with the runs of kernels under that of vector IR, and as
//! compiled code: within the bound of a running error analysis of the program as written, and failing where it fails.

use crate::{compiled, gen_ir, grouped, seeds};

use std::collections::{BTreeMap, BTreeSet};

use crate::bounded::Bounded;
use attnc::ir::interp::{Data, EvalError, Limits, Outcome};
use attnc::ir::{Module, Op, text, verify};
use attnc::lowering::vector::execute::Routines;
use attnc::passes::Options;
use attnc::runtime::load::CompiledModel;
use attnc::tensor::Tensor;
use attnc::tile::interp::{Runs, RunsOf};
use attnc::tile::{self, Cpu, PlanVariant, WeightChoice};
use gen_ir::{Program, program};
use grouped::Member;

/// The bound is for each operation alone; a named rewrite may add a few roundings of its own.
const SLACK: f64 = 4.0;

/// What the calls of a session give.
pub(crate) type Expected = Result<Vec<Outcome<Bounded>>, EvalError>;

/// So many wrong programs are enough.
const ENOUGH: usize = 3;

/// Programs in CI; fewer without optimisation, where all of it is slow.
const PROGRAMS: u64 = if cfg!(debug_assertions) { 100 } else { 1000 };

fn limits() -> Limits {
    Limits { elements: 1 << 16, work: 1 << 26 }
}

pub(crate) fn expected(module: &Module, p: &Program) -> Expected {
    p.interpreted(module, limits())
}

/// The first element that is not within its bound.
fn differ(want: &Outcome<Bounded>, got: &[Tensor]) -> Option<String> {
    for (n, (want, have)) in want.results.iter().zip(got).enumerate() {
        if want.shape != have.shape() {
            return Some(format!("result {n} has shape {:?}, not {:?}", have.shape(), want.shape));
        }
        for (i, h) in have.to_f64().iter().enumerate() {
            let (fits, means) = match &want.data {
                Data::Float(xs) => (xs[i].admits(*h, SLACK), format!("{} +- {:e}", xs[i].value, xs[i].error)),
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

/// What is wrong, if anything is.
pub(crate) fn compare(want: &Expected, got: Result<Vec<Vec<Tensor>>, String>) -> Option<String> {
    // An operation that fails may be dead, and removed.
    let Ok(want) = want else { return None };
    let certain = want.iter().take_while(|o| o.certain).count();
    match got {
        Ok(got) => want.iter().zip(&got).take(certain).find_map(|(want, got)| differ(want, got)),
        Err(e) if certain == want.len() => Some(format!("failed: {e}")),
        Err(_) => None,
    }
}

/// The calls of a session by the interpreter of tile IR, with the runs of kernels done by others.
fn session<'a>(
    verified: tile::verify::Verified<'a>,
    calls: &'a [tile::interp::Call<'a>],
    runs: RunsOf<'a>,
) -> Result<Vec<Vec<Tensor>>, String> {
    let mut states = tile::interp::States::default();
    let run = |call| tile::interp::run_in_by(verified, call, &mut states, runs);
    calls.iter().map(run).map(|out| out.map(|o| o.results).map_err(|e| e.to_string())).collect()
}

/// Tile IR of a module, unscheduled, and scheduled with slots that share memory; then with its runs as vector IR for a CPU.
pub(crate) fn tiles(module: &Module, p: &Program, cpu: Cpu, want: &Expected) -> Option<String> {
    let mut tiles = match attnc::lowering::tile::lower(verify(module).unwrap_or_else(|e| panic!("{e}"))) {
        Ok(t) => t,
        Err(e) => return Some(format!("is not lowered: {e}")),
    };
    let call = |args| tile::interp::Call {
        plan: "main",
        variant: PlanVariant::Plain,
        symbols: &p.symbols,
        args,
        params: &p.params,
        limits: limits(),
    };
    let calls: Vec<tile::interp::Call<'_>> = p.calls.iter().map(|args| call(args.as_slice())).collect();
    for scheduled in [false, true] {
        if scheduled {
            tiles = match tile::schedule(&tiles, Cpu::PORTABLE, &WeightChoice::default()) {
                Ok(tiles) => tiles,
                Err(e) => return Some(format!("is not scheduled: {e}")),
            };
        }
        let verified = tiles.verified();
        let got = session(verified, &calls, &|_| None);
        if let Some(e) = compare(want, got) {
            return Some(format!("scheduled: {scheduled}: {e}"));
        }
        if !scheduled {
            continue;
        }
        let mut routines: BTreeMap<&str, Routines> = BTreeMap::new();
        for k in &tiles.kernels {
            match Routines::lower(k, cpu) {
                Ok(found) => routines.extend(found.map(|found| (k.name.as_str(), found))),
                Err(e) => return Some(e),
            }
        }
        let runs = |kernel: &str| routines.get(kernel).map(|r| r as &dyn Runs);
        let got = session(verified, &calls, &runs);
        if let Some(e) = compare(want, got) {
            return Some(format!("vector IR for {}: {e}", cpu.name()));
        }
    }
    None
}

fn report(wrong: &[String], count: usize) {
    for w in wrong {
        println!("{}", w.lines().take_while(|l| !l.starts_with('{')).collect::<Vec<_>>().join(" | "));
    }
    let shown: Vec<String> = wrong.iter().take(3).map(|w| w.chars().take(6000).collect()).collect();
    assert!(wrong.is_empty(), "{} of {count} are wrong\n{}", wrong.len(), shown.join("\n"));
}

#[test]
fn tile_ir_computes_what_graph_ir_says() {
    let range = seeds(PROGRAMS);
    let count = range.clone().count();
    let mut wrong = Vec::new();
    for seed in range {
        let p = program(seed);
        let written = p.untapped();
        let want = expected(&written, &p);
        // Kernels of the portable level have runs for any number of lanes.
        let cpu = [Cpu::PORTABLE, Cpu::AVX2, Cpu::AVX512][usize::try_from(seed % 3).unwrap()];
        // Compiled code, below, is always that of programs after the passes.
        let (what, module) = match seed % 2 {
            0 => ("as written", written),
            _ => ("after passes", compiled::optimised(written, &Options::default())),
        };
        if let Some(e) = tiles(&module, &p, cpu, &want) {
            wrong.push(format!("seed {seed}, {what}: {e}\n{:?}\n{}", p.symbols, text::print(&module)));
        }
        if wrong.len() == ENOUGH {
            break;
        }
    }
    report(&wrong, count);
}

/// Programs in a library.
const GROUP: usize = 20;

#[test]
fn compiled_code_computes_what_graph_ir_says() {
    let levels = compiled::levels();
    let all: Vec<u64> = seeds(PROGRAMS).collect();
    let mut wrong = Vec::new();
    for group in all.chunks(GROUP) {
        // The levels alternate.
        let level = levels[usize::try_from(group[0]).unwrap() / GROUP % levels.len()];
        let programs: BTreeMap<u64, Program> = group.iter().map(|seed| (*seed, program(*seed))).collect();
        let member = |(seed, p): (&u64, &Program)| Member {
            number: *seed,
            module: compiled::optimised(p.untapped(), &Options::default()),
            params: p.params.clone(),
        };
        let members: Vec<Member> = programs.iter().map(member).collect();
        let mut refused = Vec::new();
        let says = |seed: u64, what: &str, module: &Module| {
            format!("seed {seed} ({}): {what}\n{:?}\n{}", level.name(), programs[&seed].symbols, text::print(module))
        };
        grouped::each(
            &|module, params, folder| compiled::load_at(level, module, params, folder),
            &members,
            |member, model| {
                let e = computes_something_else(&programs[&member.number], member, model);
                wrong.extend(e.map(|e| says(member.number, &e, &member.module)));
            },
            |member| refused.push(says(member.number, "does not compile", &member.module)),
        );
        wrong.extend(refused);
        if wrong.len() >= ENOUGH {
            break;
        }
    }
    report(&wrong, all.len());
}

/// What is wrong with a program's compiled code, if anything is.
fn computes_something_else(p: &Program, member: &Member, model: &CompiledModel) -> Option<String> {
    let want = expected(&p.untapped(), p);
    // An operation that fails after the passes is not dead.
    let fails =
        want.is_err() && matches!(expected(&member.module, p), Err(e) if e.to_string().contains("out of range"));
    let entry = model.entry(&member.name("main")).unwrap();
    let mut session = model.session().unwrap();
    let got = p.calls.iter().map(|args| session.call(entry, args).map_err(|e| e.to_string())).collect();
    let got: Result<Vec<Vec<Tensor>>, String> = got;
    let passed = got.is_ok() && fails;
    compare(&want, got).or_else(|| passed.then(|| "should have failed".to_string()))
}

/// The programs have every operation but those that passes alone make, and those of gradients, which `gradients_of_programs`
/// adds to them.
#[test]
fn random_programs_have_every_operation() {
    let names = Op::table().into_iter().map(|row| row.name);
    let mut missing: BTreeSet<&str> =
        names.filter(|name| !["attention", "fused", "grad", "stop"].contains(name)).collect();
    for f in (0..1000).flat_map(|seed| program(seed).module.functions) {
        f.insts().for_each(|(_, _, d)| _ = missing.remove(d.op.info().name));
        if missing.is_empty() {
            return;
        }
    }
    panic!("no program has {missing:?}");
}
