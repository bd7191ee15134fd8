//! `attnc bench`: compiles a program, calls an entry point repeatedly, and compares the speed of
//! each kernel with the limits of the machine.
//!
//! In: a program or graph IR, sizes of the run-time dimensions, values of integer states, and
//! optionally weights. Out: a table on stdout, and on request JSON and a roofline plot. Arguments
//! are pseudorandom, the same in every run, and so are weights if none are given.

use super::arguments::{self, Work};
use super::bugs::bug;
use super::call::read_graph;
use super::levels::Levels;
use super::load::{How, opened};
use super::passes::pass_options;
use super::record;
use super::running::{call_failed, converted, function, unused};
use super::session::{CommandError, Session, command_line_error, show};
use super::stages::{self, Tiers};
use super::states;
use crate::bench::{self, Device, Products, Report, Site};
use crate::cli::{BenchOptions, EmitKind, Target};
use crate::diagnostics::did_you_mean;
use crate::random::Random;
use crate::runtime::descriptor::Entry;
use crate::runtime::load::{CompiledModel, LoadError};
use crate::shape::Elem;
use crate::tensor::Tensor;
use crate::tile::cost::{self, PlanCost, Setting};
use crate::tile::{self, Cpu, DotMode, PlanVariant};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

/// Number of warm-up calls, which are not timed.
const WARM: usize = 2;
/// Minimum and maximum number of timed calls.
const CALLS: (usize, usize) = (5, 10_000);
/// Maximum number of elements of an argument.
const MAX_ELEMENTS: usize = 1 << 32;

/// `attnc bench FILE`
pub fn bench(options: &BenchOptions) -> Result<(), CommandError> {
    let mut session = Session::new(&options.messages);
    let result = bench_in(&mut session, options);
    let pages = [(EmitKind::Record, &options.record), (EmitKind::Html, &options.html)];
    let pages: Vec<_> = pages.into_iter().filter_map(|(kind, path)| Some((kind, path.clone()?))).collect();
    let result = record::finish(&mut session, &pages, result);
    session.finish_timed(result, &options.passes)
}

fn bench_in(s: &mut Session, options: &BenchOptions) -> Result<(), CommandError> {
    let pass_options = pass_options(&options.target, &options.passes)?;
    let mut graph = read_graph(s, &options.file, &options.program, "bench")?;
    let wanted = options.function.as_deref();
    let (name, _) = function(Work::Graph(&graph).entries(), wanted).map_err(|why| command_line_error(&why))?;
    let name = name.to_string();
    let states = states::given(&graph.states, &options.state)?;
    let before = states::add_setter(&mut graph, &states).map_err(|why| bug("setting states", &why, None))?;
    if let Some(path) = &options.weights {
        arguments::weights(s, path)?;
    }
    for path in options.json.iter().chain(&options.svg).chain(&options.html).chain(&options.record) {
        s.claim(path)?;
    }
    if options.html.is_some() || options.record.is_some() {
        let file = options.file.file_name().unwrap_or_default().to_string_lossy();
        record::start(s, &format!("attnc bench {file}"));
        // The library has code for several machines; the one that it runs on is not known yet.
        s.observed.shown = Some(String::new());
    }
    s.stage("passes");
    stages::optimise(s, &mut graph, &pass_options, &options.passes)?;
    let model = stages::describe(s, &graph.interface(), &graph.model, &graph.doc)?;
    let Some(entry) = model.entries.iter().find(|e| e.name == name) else {
        return Err(command_line_error("the entry point was not found"));
    };
    let sizes = sizes(entry, options)?;

    let levels = Levels::from_options(&options.target).for_graph(&graph, stages::generator(options.backend));
    let levels = levels.keeping(&options.target, &graph)?;
    if options.target.is_for(Target::Cpu) {
        levels.run_here()?;
    }
    let tiers = Tiers::for_library(s, &graph, &levels)?;
    let folder = stages::temporary(s)?;
    let given = arguments::weights_file(s, &model, options.weights.as_deref(), 1, folder.path())?;
    let threads = options.threads.map_or_else(usual_threads, |n| usize::try_from(n).unwrap_or(1)).max(1);
    let generator = stages::generator(options.backend);
    let how = How { generator, remarks: options.passes.remarks, threads: u32::try_from(threads).ok() };
    let loaded = opened(s, &tiers, &model, &how, given.as_deref())?;
    unused(s, loaded.unused_weights());
    converted(&loaded.converted_weights());

    s.stage("count");
    let variant = loaded.variant();
    let gpu = gpu_of(&loaded.device());
    if let (Some(ordinal), Some(_)) = (gpu, &options.svg)
        && bench::gpu::is_simulated(ordinal).map_err(|why| call_failed(s, &why))?
    {
        return Err(command_line_error("`--svg` shows times; a simulator of a GPU has none"));
    }
    let tiles = match gpu {
        Some(_) => tiers.gpu(&variant).map(|tier| &*tier.module),
        None => Cpu::from_name(&variant).and_then(|level| tiers.module(level)),
    };
    let Some(tiles) = tiles else {
        return Err(command_line_error(&format!("the library runs `{variant}`, for which this program has no code")));
    };
    let work = tiers.unscheduled().filter(|_| gpu.is_some());
    record::tiles(s, (tiers.unscheduled(), tiles), (&variant, gpu.is_some()), ("", ""));
    if let Some(level) = Cpu::from_name(&variant).filter(|_| gpu.is_none()) {
        record::vectors(s, tiles, level);
    }
    let walked = count(tiles, work, &name, &sizes, states.clone())?;
    let args = random_arguments(entry, &sizes, &walked)?;
    s.stage("measure");
    let calls = Calls { entry: &name, before: before.as_deref(), args: &args };
    let measured = measure(&loaded, &calls, options.seconds, gpu.is_some());
    let measured = measured.map_err(|error| call_failed(s, &error.text))?;
    let (ceilings, gpu) = match gpu {
        None => (bench::measure(threads), None),
        Some(ordinal) => {
            let found = bench::gpu::measure(ordinal).map_err(|why| call_failed(s, &why))?;
            (found.ceilings, Some(Device { name: found.name, simulated: found.simulated }))
        }
    };
    let Some(mut sites) = sites(&walked, &measured) else {
        let found = measured.launches.first().map_or(0, Vec::len);
        let complaint = format!("a call made {found} launches, but {} were counted", walked.launches.len());
        return Err(bug("counting the work of a plan", &complaint, None));
    };
    from_where(tiles, &name, &mut sites);
    let report = Report {
        model: model.name.clone(),
        entry: name,
        sizes: entry
            .symbols
            .iter()
            .map(|symbol| (symbol.name.clone(), sizes.get(&symbol.name).copied().unwrap_or(0)))
            .chain(states)
            .collect(),
        variant,
        calls: measured.calls.len(),
        seconds: median(measured.calls.iter().map(Duration::as_secs_f64).collect()),
        sites,
        ceilings,
        gpu,
    };
    record::measured(s, &report);
    if let Some(path) = &options.json {
        s.write(path, bench::json(&report).as_bytes())?;
    }
    if let Some(path) = &options.svg {
        s.write(path, bench::picture(&report).as_bytes())?;
    }
    // If JSON or SVG goes to stdout, nothing else does.
    let stdout = Some(Path::new("-"));
    if [&options.json, &options.svg, &options.html, &options.record].into_iter().any(|path| path.as_deref() == stdout) {
        return Ok(());
    }
    show(&bench::table(&report))
}

/// The GPU number of a device name: 1 for `cuda:1`.
fn gpu_of(device: &str) -> Option<i32> {
    device.strip_prefix("cuda:")?.parse().ok()
}

/// The default number of threads of a model: `ATTNC_THREADS`, or else one per processor.
fn usual_threads() -> usize {
    let told = std::env::var("ATTNC_THREADS").ok().and_then(|text| text.parse().ok()).filter(|n| *n > 0);
    told.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, std::num::NonZero::get))
}

/// A value for each run-time dimension: the given ones; the batch defaults to 1.
fn sizes(entry: &Entry, options: &BenchOptions) -> Result<BTreeMap<String, i64>, CommandError> {
    let mut sizes = BTreeMap::new();
    let known: Vec<&str> = entry.symbols.iter().map(|symbol| symbol.name.as_str()).collect();
    for size in &options.size {
        if !known.contains(&size.name.as_str()) {
            let near = did_you_mean(&size.name, known.iter().copied());
            let hint = near.map_or(String::new(), |near| format!("; did you mean `{near}`?"));
            let bound = "compile-time dimensions are bound with `--dim`";
            return Err(command_line_error(&format!(
                "`{}` has no run-time dimension `{}`{hint} ({bound})",
                entry.name, size.name
            )));
        }
        if sizes.insert(size.name.clone(), i64::try_from(size.value).unwrap_or(i64::MAX)).is_some() {
            return Err(command_line_error(&format!("`--size {}` is given twice", size.name)));
        }
    }
    if let Some(batch) = entry.batch_symbol.and_then(|i| entry.symbols.get(i)) {
        sizes.entry(batch.name.clone()).or_insert(1);
    }
    let missing: Vec<&str> = known.into_iter().filter(|name| !sizes.contains_key(*name)).collect();
    if missing.is_empty() {
        return Ok(sizes);
    }
    let names = missing.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
    let (s, it) = if missing.len() == 1 { ("", "it") } else { ("s", "them") };
    let how = missing.iter().map(|name| format!("{name}=N")).collect::<Vec<_>>().join(",");
    Err(command_line_error(&format!(
        "the run-time dimension{s} {names} of `{}` must have a value; set {it} with `--size {how}`",
        entry.name
    )))
}

/// The work of the plan with these sizes and states; `work` has a GPU's kernels before scheduling.
fn count(
    tiles: &tile::Module,
    work: Option<&tile::Module>,
    name: &str,
    sizes: &BTreeMap<String, i64>,
    states: BTreeMap<String, i64>,
) -> Result<PlanCost, CommandError> {
    let plain = PlanVariant::Plain;
    let setting = Setting { work, states };
    cost::plan_in(tiles, name, plain, sizes, &setting)
        .map_err(|message| command_line_error(&format!("the work of `{name}` cannot be counted: {message}")))
}

/// Random arguments of the right shapes; arguments used as indices are in range.
fn random_arguments(
    entry: &Entry,
    sizes: &BTreeMap<String, i64>,
    walked: &PlanCost,
) -> Result<Vec<Tensor>, CommandError> {
    let mut rng = Random::new(2);
    let batch = entry.batch_symbol.and_then(|i| entry.symbols.get(i)).and_then(|b| sizes.get(&b.name)).copied();
    let mut args = Vec::new();
    for (i, arg) in entry.args.iter().enumerate() {
        let lead = if arg.batch { batch } else { None };
        let dims = arg.dims.iter().map(|d| d.dim.eval(&|s| sizes.get(s).copied()).ok());
        let shape: Option<Vec<usize>> =
            lead.map(Some).into_iter().chain(dims).map(|n| n.and_then(|n| usize::try_from(n).ok())).collect();
        let shape = shape
            .filter(|shape| shape.iter().try_fold(1usize, |n, d| n.checked_mul(*d)).is_some_and(|n| n <= MAX_ELEMENTS));
        let bound = u32::try_from(i).ok().and_then(|i| walked.bounds.get(&i)).copied();
        match shape.and_then(|shape| bench::tensor(&mut rng, arg.elem, &shape, bound)) {
            Some(tensor) => args.push(tensor),
            None => {
                let message = format!("the argument `{}` has an invalid or too large shape at these sizes", arg.name);
                return Err(command_line_error(&message));
            }
        }
    }
    Ok(args)
}

/// Durations of calls, and of their launches.
struct Measured {
    calls: Vec<Duration>,
    /// Grid points and nanoseconds, call by call.
    launches: Vec<Vec<(i64, i64)>>,
}

/// The calls to measure.
struct Calls<'a> {
    /// The measured entry point.
    entry: &'a str,
    /// An entry point that prepares the session before each measured call.
    before: Option<&'a str>,
    args: &'a [Tensor],
}

/// Repeats calls for this many seconds. With `apart`, launches are timed in separate calls, since
/// timing slows calls down.
fn measure(model: &CompiledModel, called: &Calls<'_>, seconds: f64, apart: bool) -> Result<Measured, LoadError> {
    let mut measured = Measured { calls: Vec::new(), launches: Vec::new() };
    let mut measure = |profiled: bool, seconds: f64| -> Result<(), LoadError> {
        let mut session = model.session()?;
        session.profile(profiled)?;
        let mut repeated = session.repeat(model.entry(called.entry)?, called.args)?;
        let before = called.before.map(|name| model.entry(name)).transpose()?;
        for _ in 0..WARM {
            before.map_or(Ok(()), |entry| repeated.call_between(entry))?;
            repeated.call()?;
        }
        let (begin, mut calls) = (Instant::now(), 0);
        while calls < CALLS.0 || (calls < CALLS.1 && begin.elapsed().as_secs_f64() < seconds) {
            before.map_or(Ok(()), |entry| repeated.call_between(entry))?;
            let start = Instant::now();
            repeated.call()?;
            calls += 1;
            if !(apart && profiled) {
                measured.calls.push(start.elapsed());
            }
            if profiled {
                measured.launches.push(repeated.launches());
            }
        }
        Ok(())
    };
    if apart {
        measure(false, seconds / 2.0)?;
        measure(true, seconds / 2.0)?;
    } else {
        measure(true, seconds)?;
    }
    Ok(measured)
}

/// The measured launches by position in the plan; `None` if a call made other launches than were
/// counted.
fn sites(walked: &PlanCost, measured: &Measured) -> Option<Vec<Site>> {
    let points: Vec<i64> = walked.launches.iter().map(|l| l.points).collect();
    if measured.launches.iter().any(|call| call.iter().map(|l| l.0).ne(points.iter().copied())) {
        return None;
    }
    let mut sites: BTreeMap<usize, (Site, Vec<f64>)> = BTreeMap::new();
    for (n, launch) in walked.launches.iter().enumerate() {
        let (site, times) = sites.entry(launch.site).or_insert_with(|| {
            let kernel = launch.kernel.clone();
            let (source, products) = (String::new(), Products::Floats);
            let site = Site {
                kernel,
                source,
                products,
                launches: 0,
                seconds: 0.0,
                flops: 0,
                bytes: 0,
                weights: 0,
                exact: true,
                uncounted: false,
            };
            (site, vec![0.0; measured.launches.len()])
        });
        site.launches += 1;
        site.flops = site.flops.saturating_add(launch.cost.flops);
        site.bytes = site.bytes.saturating_add(launch.cost.bytes());
        site.weights = site.weights.saturating_add(launch.weights);
        site.exact &= launch.cost.exact;
        site.uncounted |= launch.cost.uncounted;
        for (time, call) in times.iter_mut().zip(&measured.launches) {
            *time += call.get(n)?.1 as f64 / 1e9;
        }
    }
    Some(sites.into_values().map(|(site, times)| Site { seconds: median(times), ..site }).collect())
}

/// Fills in the source line of each launch, and the operand types of its matmuls.
fn from_where(tiles: &tile::Module, name: &str, sites: &mut [Site]) {
    let Some(plan) = tiles.plans.iter().find(|p| p.name == name && p.variant == PlanVariant::Plain) else { return };
    let launches = plan.body.insts().map(|(_, _, d)| d);
    let launches: Vec<_> = launches.filter(|d| matches!(d.op, tile::Op::Plan(tile::PlanOp::Launch { .. }))).collect();
    let same = |site: &Site, d: &tile::InstData| matches!(&d.op, tile::Op::Plan(tile::PlanOp::Launch { kernel }) if *kernel == site.kernel);
    let mut next = 0;
    for site in sites {
        // Sites are in plan order, without launches that no call reached.
        let Some(at) = launches.iter().skip(next).position(|d| same(site, d)) else { continue };
        let launch = launches.get(next + at);
        next += at + 1;
        let Some(kernel) = tiles.kernels.iter().find(|k| k.name == site.kernel) else { continue };
        let inside = kernel.body.insts().map(|(_, _, d)| d.loc);
        let loc = launch.map(|d| d.loc).into_iter().chain(inside).find(|loc| loc.line > 0);
        site.source = loc.map_or(String::new(), |loc| format!("{}:{}", tiles.file(loc), loc.line));
        site.products = products(kernel);
    }
}

/// Operand types of a kernel's matmuls: the fastest instruction that one of them uses.
fn products(kernel: &tile::Kernel) -> Products {
    let body = &kernel.body;
    let on_tensor_cores = body.insts().map(|(_, _, d)| d).filter(|d| {
        matches!(d.op, tile::Op::Gpu(tile::GpuOp::Mma | tile::GpuOp::MmaScaled { .. } | tile::GpuOp::Wgmma { .. }))
    });
    let operands = on_tensor_cores.filter_map(|d| d.operands.first().and_then(|v| body.ty(*v).elem()));
    let unit = |elem| if elem == Elem::F32 { Products::Tf32TensorCores } else { Products::TensorCores };
    if let Some(products) = operands.map(unit).max() {
        return products;
    }
    let has = |mode: DotMode| kernel.body.insts().any(|(_, _, d)| d.op == tile::Op::Dot { mode: Some(mode) });
    let all =
        [(DotMode::Tiles, Products::Tiles), (DotMode::Pairs, Products::Pairs), (DotMode::Groups, Products::Bytes)];
    all.into_iter().find(|(mode, _)| has(*mode)).map_or(Products::Floats, |(_, products)| products)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let n = values.len();
    match (values.get(n.saturating_sub(1) / 2), values.get(n / 2)) {
        (Some(a), Some(b)) => (a + b) / 2.0,
        _ => 0.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_are_in_the_middle() {
        for (values, middle) in [(vec![], 0.0), (vec![2.0], 2.0), (vec![3.0, 1.0], 2.0), (vec![9.0, 1.0, 2.0], 2.0)] {
            assert_eq!(median(values), middle);
        }
    }
}
