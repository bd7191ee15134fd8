//! Random programs on the simulator: results are within the bounds that running error analysis gives for the program as written, in both
//! orders of effects, without a report; and fail where the interpreter does.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::bounded::Bounded;
use attnc::codegen::ptx;
use attnc::ir::interp;
use attnc::ir::{self, verify};
use attnc::lowering::graph::Options;
use attnc::passes;
use attnc::ptx::sim::Mode;
use attnc::ptx::text::print;
use attnc::random::Random;
use attnc::simulated::Simulated;
use attnc::tensor::Tensor;
use attnc::tile::{self, GpuArch, PlanVariant};

use crate::gen_source::inputs::{GivenCall, Sizes};
use crate::{front, gen_source, meant};

/// How often each program is called, in one session.
const CALLS: u64 = 2;

/// How many programs each of the tests runs; `ATTNC_SEEDS` says otherwise, `ATTNC_FIRST_SEED` where to start.
fn seeds(part: u64) -> Range<u64> {
    let number = |name: &str| std::env::var(name).ok().and_then(|n| n.parse::<u64>().ok());
    let count = number("ATTNC_SEEDS").unwrap_or(50);
    let first = number("ATTNC_FIRST_SEED").unwrap_or(0) + part * count;
    first..first + count
}

#[test]
fn random_programs_compute_what_they_mean_on_the_simulator_1() {
    compute_what_they_mean(seeds(0));
}

#[test]
fn random_programs_compute_what_they_mean_on_the_simulator_2() {
    compute_what_they_mean(seeds(1));
}

fn compute_what_they_mean(seeds: Range<u64>) {
    let (mut wrong, mut count, mut divided) = (Vec::new(), 0, 0);
    for seed in seeds {
        count += 1;
        let program = gen_source::generate(seed);
        match one(seed, &program) {
            Ok(in_parts) => divided += usize::from(in_parts),
            Err(why) => wrong.push(format!("seed {seed}: {why}\n{}", program.source)),
        }
        if wrong.len() == 3 {
            break;
        }
    }
    assert!(wrong.is_empty(), "{} of {count} are wrong\n{}", wrong.len(), wrong.join("\n"));
    // Some have attention of few queries, whose keys are divided among blocks.
    assert!(count < 50 || divided > 0, "no keys are divided");
}

/// Programs that were wrong once: axes of one element beside neighbours that a thread reads together, and results that lie where all threads
/// read.
#[test]
fn axes_of_one_element_and_results_in_the_place_of_what_is_read() {
    let cases: [(&str, &[&[usize]]); 5] = [
        ("f(x: f32[4]) -> f32[4] { softmax(softmax(softmax(x) * 2.0) * 3.0) }", &[&[4]]),
        ("f(x: f32[S, 4]) -> f32[S, 4] { softmax(softmax(softmax(x) * 2.0) * 3.0) }", &[&[3, 4]]),
        ("f(x: f32[8*N, 1], w: f32[1, 5]) -> f32[8*N, 5] { x @ w }", &[&[72, 1], &[1, 5]]),
        ("f(x: f32[S, 1], w: f32[16, 1]) -> f32[S, 16] { x @ w.T }", &[&[70, 1], &[16, 1]]),
        ("f(x: f32[S, 1]) -> f32[S, 1] { softmax(where(causal(S, S), x @ x.T * 0.25, -inf)) @ x }", &[&[70, 1]]),
    ];
    let mut random = Random::new(17);
    for (function, shapes) in cases {
        let source = format!("model M {{\n    pub fn {function}\n}}\n");
        for seed in [0, 1] {
            let args = shapes.iter().map(|shape| {
                let values: Vec<f32> = (0..shape.iter().product()).map(|_| 4.0 * random.unit() as f32 - 2.0).collect();
                Tensor::from_f32(shape.to_vec(), &values).expect("as many numbers")
            });
            let call = GivenCall {
                entry: "f",
                sizes: Sizes { lead: Vec::new(), symbols: BTreeMap::new() },
                args: args.collect(),
            };
            compare(seed, &source, true, &[call]).unwrap_or_else(|e| panic!("{function}: {e}"));
        }
    }
}

fn one(seed: u64, program: &gen_source::Generated) -> Result<bool, String> {
    compare(seed, &program.source, program.is_stateless(), &program.calls(seed, CALLS))
}

/// Calls of a program in one session, on the simulator and as they are meant. Does it divide keys?
pub(crate) fn compare(seed: u64, source: &str, is_stateless: bool, calls: &[GivenCall]) -> Result<bool, String> {
    let module = front::module("random.attn", source, &Options::default())?;
    let params = gen_source::inputs::parameters(&module, seed);
    let mut optimised = module.clone();
    passes::optimise(&mut optimised, &passes::Options::default(), &mut passes::Collected::default())
        .map_err(|e| e.to_string())?;
    let graph = verify(&optimised).map_err(|e| e.to_string())?;
    // The kinds of GPUs alternate.
    let arch = if seed.is_multiple_of(2) { GpuArch::Sm80 } else { GpuArch::Sm90a };
    let tiles = tile::schedule_for_gpu(&attnc::lowering::tile::lower(graph)?, arch)?;
    let (kernels, infos) = ptx::compile(&tiles, arch)?;
    let simulated = Simulated::new(&print(&kernels), infos, &[Mode::EAGER.seeded(seed), Mode::LATEST.seeded(seed)])?;
    let in_parts = tiles.kernels.iter().any(|k| k.name.starts_with("attention_part."));
    let tiles = tile::verify::verify(&tiles).map_err(|e| e.to_string())?;
    let (mut kept, mut states) = (tile::interp::States::default(), interp::States::<Bounded>::default());
    for given in calls {
        let call =
            interp::Call { function: given.entry, args: &given.args, params: &params, limits: Default::default() };
        let expected = interp::run_in(verify(&module).map_err(|e| e.to_string())?, &call, &mut states);
        let got = on_simulator(graph, tiles, &simulated, given.entry, &given.args, &params, &mut kept);
        let ends = expected.as_ref().map_or(true, |e| !e.certain);
        let what = format!("{} {:?}", given.entry, given.sizes);
        match (expected, got) {
            (Ok(expected), Ok(got)) => meant::differ(&expected, &got).map_err(|why| format!("{what}: {why}"))?,
            (Err(_), Err(_)) => {}
            (Err(e), Ok(_)) => return Err(format!("{what}: should have failed: {e}")),
            (Ok(_), Err(e)) => return Err(format!("{what}: failed: {e}")),
        }
        // After an error, and where rounding has decided something, the states may be others.
        if ends && !is_stateless {
            break;
        }
    }
    Ok(in_parts)
}

fn on_simulator(
    graph: ir::Verified<'_>,
    tiles: tile::verify::Verified<'_>,
    simulated: &Simulated,
    plan: &str,
    args: &[Tensor],
    params: &BTreeMap<String, Tensor>,
    states: &mut tile::interp::States,
) -> Result<Vec<Tensor>, String> {
    let entered = interp::admit(graph, plan, args).map_err(|e| e.to_string())?;
    let call = tile::interp::Call {
        plan,
        variant: PlanVariant::Plain,
        symbols: &entered.symbols,
        args: &entered.args,
        params,
        limits: tile::interp::Limits::default(),
    };
    let done = tile::interp::run_on(tiles, &call, states, simulated).map_err(|e| e.to_string())?;
    Ok(entered.leave(done.results))
}
