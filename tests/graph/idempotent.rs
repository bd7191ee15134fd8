//! Is a pipeline done after one run? What it made goes through it again, as text, and must come out as it went in: so a
//! dump of the IR compiles to what its source compiles to.

use crate::{compiled, fixtures, front, gen_ir, gen_source};

use attnc::ir::{Module, text};
use attnc::lowering::graph;
use attnc::passes::{Float, Level, Options};

/// Random programs in CI, of each kind; `ATTNC_SEEDS` says otherwise.
fn programs(usual: u64) -> u64 {
    std::env::var("ATTNC_SEEDS").ok().and_then(|n| n.parse().ok()).unwrap_or(usual)
}

/// What a second run of a pipeline changes, if it changes anything.
fn changed(module: &Module, options: &Options) -> Option<String> {
    let once = text::print(&compiled::optimised(module.clone(), options));
    let read = text::parse(&once, Default::default()).unwrap_or_else(|d| panic!("{:?}\n{once}", d.sorted())).module;
    let twice = text::print(&compiled::optimised(read, options));
    let differ = || {
        let lines = similar::TextDiff::from_lines(&once, &twice);
        format!("{:?} {}:\n{}", options.level, options.float, lines.unified_diff().context_radius(3))
    };
    (once != twice).then(differ)
}

/// What second runs change, at every level and with every way with floats.
fn check(name: &str, module: &Module, wrong: &mut Vec<String>) {
    let options = |level, float| Options { level, float, ..Options::default() };
    let all = [Level::O1, Level::O2].into_iter().flat_map(|l| Float::ALL.into_iter().map(move |f| options(l, f)));
    wrong.extend(all.filter_map(|o| changed(module, &o)).map(|diff| format!("{name}, {diff}")).take(1));
}

fn none(wrong: &[String]) {
    assert!(wrong.is_empty(), "{} programs change again:\n{}", wrong.len(), wrong[..wrong.len().min(4)].join("\n"));
}

#[test]
fn examples_are_done_after_one_run() {
    let mut wrong = Vec::new();
    for example in fixtures::EXAMPLES {
        let fixture = fixtures::load(example);
        let source = std::fs::read_to_string(fixtures::program(example)).unwrap();
        let options = graph::Options { model: None, dims: fixture.dims.iter().cloned().collect() };
        let module = front::module(example, &source, &options).unwrap_or_else(|e| panic!("{example}\n{e}"));
        check(example, &module, &mut wrong);
    }
    none(&wrong);
}

#[test]
fn random_programs_are_done_after_one_run() {
    let mut wrong = Vec::new();
    for seed in 0..programs(200) {
        let program = gen_source::generate(seed);
        let module = front::module("random.attn", &program.source, &graph::Options::default()).unwrap();
        check(&format!("seed {seed}"), &module, &mut wrong);
    }
    none(&wrong);
}

#[test]
fn random_graphs_are_done_after_one_run() {
    let mut wrong = Vec::new();
    for seed in 0..programs(400) {
        check(&format!("graph {seed}"), &gen_ir::program(seed).module, &mut wrong);
    }
    none(&wrong);
}
