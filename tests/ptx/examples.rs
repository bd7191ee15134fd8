//! Every example on the simulator: its kernels give what PyTorch gave, in both orders of effects, without a report.

use std::collections::BTreeMap;

use attnc::codegen::ptx;
use attnc::ir::{self, interp};
use attnc::passes;
use attnc::ptx::sim::{Mode, Stats};
use attnc::ptx::text::print;
use attnc::simulated::Simulated;
use attnc::tensor::Tensor;
use attnc::tile::{self, GpuArch, PlanVariant};

use crate::host::host;
use crate::{fixtures, front};

/// Bytes of inputs and results of further cases of an entry point: small ones, since CI should not take long.
const SMALL: usize = 16 << 10;
/// Instructions of warps after which no further case of an entry point is run.
const ENOUGH: u64 = 100_000;

/// Runs the small cases of an example: how many, and what the launches did.
fn run(example: &str, arch: GpuArch) -> Result<(usize, Stats), String> {
    let fixture = fixtures::load(example);
    let dims: Vec<(&str, i64)> = fixture.dims.iter().map(|(name, n)| (name.as_str(), *n)).collect();
    let source = std::fs::read_to_string(fixtures::program(example)).expect("an example");
    let mut module = front::module(example, &source, &front::options(&dims))?;
    passes::optimise(&mut module, &passes::Options::default(), &mut passes::Collected::default())
        .map_err(|e| e.to_string())?;
    let graph = ir::verify(&module).map_err(|e| e.to_string())?;
    let tiles = attnc::lowering::tile::lower(graph)?;
    let tiles = tile::schedule_for_gpu(&tiles, arch)?;
    let (kernels, infos) = ptx::compile(&tiles, arch)?;
    let simulated = Simulated::new(&print(&kernels), infos, &[Mode::EAGER, Mode::LATEST.seeded(1)])?;
    let tiles = tile::verify::verify(&tiles).map_err(|e| e.to_string())?;
    let params: BTreeMap<String, Tensor> = fixture.weights().iter().map(|(name, t)| (name.clone(), host(t))).collect();
    let mut cases: Vec<_> = fixture.cases.iter().collect();
    let size =
        |case: &fixtures::Case| case.output.bytes.len() + case.inputs.iter().map(|(_, x)| x.bytes.len()).sum::<usize>();
    cases.sort_by_key(|case| size(case));
    // One of each entry point, and others as long as that takes little.
    let mut seen: Vec<&str> = Vec::new();
    let mut count = 0;
    for case in cases {
        let again = seen.contains(&case.entry.as_str());
        if again && (size(case) > SMALL || simulated.stats().warp_instructions > ENOUGH) {
            continue;
        }
        seen.push(&case.entry);
        count += 1;
        let function = module.functions.iter().find(|f| f.name == case.entry).expect("an entry point");
        let given = |name: &str| case.inputs.iter().find(|(n, _)| n == name).map(|(_, x)| host(x));
        let args: Vec<Tensor> = function.args.iter().filter_map(|arg| given(&arg.name)).collect();
        let entered = interp::admit(graph, &case.entry, &args).map_err(|e| format!("{}: {e}", case.name))?;
        let call = tile::interp::Call {
            plan: &case.entry,
            variant: PlanVariant::Plain,
            symbols: &entered.symbols,
            args: &entered.args,
            params: &params,
            limits: tile::interp::Limits::default(),
        };
        let done = tile::interp::run_on(tiles, &call, &mut Default::default(), &simulated);
        let results = entered.leave(done.map_err(|e| format!("{}: {e}", case.name))?.results);
        let far = match results.first() {
            Some(result) => fixtures::difference(&result.to_f32(), &host(&case.output).to_f32()),
            None => f64::INFINITY,
        };
        if far > case.tolerance {
            return Err(format!("{}: {far} from the reference, {} is allowed", case.name, case.tolerance));
        }
    }
    Ok((count, simulated.stats()))
}

/// Runs some examples, and says which go wrong.
fn all_of(which: impl Fn(usize) -> bool) {
    let only = std::env::var("ATTNC_EXAMPLE").ok();
    let mut wrong = Vec::new();
    for (n, example) in fixtures::EXAMPLES.iter().enumerate() {
        if !which(n) || only.as_ref().is_some_and(|only| !example.contains(only.as_str())) {
            continue;
        }
        let begun = std::time::Instant::now();
        let result = run(example, GpuArch::Sm80);
        eprintln!("{example}: {:.1} s, {result:?}", begun.elapsed().as_secs_f64());
        if let Err(why) = result {
            wrong.push(format!("{example}: {why}"));
        }
    }
    assert!(wrong.is_empty(), "{} examples:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn examples_are_their_references() {
    all_of(|n| n % 2 == 0);
}

#[test]
fn more_examples_are_their_references() {
    all_of(|n| n % 2 == 1);
}
