//! Runs the sides of a comparison.
//!
//! In: a side with its values, and the calls. Out: the results and values of each call, up to the
//! first that fails; and the same in `f64` with running error bounds. Results come from the code
//! without taps.

use super::Inputs;
use super::side::{Program, Side};
use super::values::launch_path;
use crate::cli::Backend;
use crate::codegen::Generator;
use crate::diagnostics::Diagnostic;
use crate::diagnostics::codes::weights as codes;
use crate::driver::arguments;
use crate::driver::bugs::bug;
use crate::driver::load::{How, opened};
use crate::driver::running::parameters;
use crate::driver::session::{CommandError, Session, command_line_error};
use crate::driver::stages::{self, Tiers};
use crate::ir;
use crate::ir::interp::{self, bounded::Bounded};
use crate::runtime::descriptor::ModelDescriptor;
use crate::tensor::Tensor;
use crate::tile::{self, PlanVariant};
use std::cell::RefCell;
use std::collections::BTreeMap;

/// The values of a call.
#[derive(Default)]
pub(super) struct Called {
    pub(super) results: Vec<Tensor>,
    /// Inner values and taps, by path.
    pub(super) inner: BTreeMap<String, Tensor>,
}

/// The calls, in order; the first that fails is the last.
pub(super) type Run = Vec<Result<Called, String>>;

/// Calls an entry point with arguments; `None` zeroes the states.
type Caller<'c> = dyn FnMut(Option<(&str, &[Tensor])>) -> Result<Called, String> + 'c;

fn each(inputs: &Inputs, caller: &mut Caller<'_>) -> Run {
    let mut run = Run::new();
    for step in &inputs.steps {
        let call = step.call();
        let done = caller(call);
        let failed = done.is_err();
        if call.is_some() || failed {
            run.push(done);
        }
        if failed {
            break;
        }
    }
    run
}

/// Runs a side.
pub(super) fn run(s: &mut Session, side: &Side, inputs: &Inputs) -> Result<Run, CommandError> {
    let model = match &side.program {
        Program::Graph { watched, .. } => stages::describe(s, &watched.interface(), &watched.model, &watched.doc)?,
        Program::Tile(_) => side.describe(s)?,
    };
    match (&side.program, side.backend()) {
        (Program::Graph { watched, .. }, Backend::Interp) => interpreted(s, watched, &model, inputs),
        (Program::Graph { watched, .. }, Backend::Tile | Backend::PtxSim) => tiled(s, side, watched, &model, inputs),
        (Program::Graph { watched, .. }, Backend::Cpu | Backend::Llvm) => {
            let levels = side.levels()?.for_graph(watched, generator(side));
            levels.run_here()?;
            let tiers = Tiers::for_library(s, watched, &levels)?;
            compiled(s, side, &tiers, &model, inputs)
        }
        (Program::Tile(tiles), Backend::Tile) => launched(s, tiles.verified(), &model, inputs),
        (Program::Tile(tiles), Backend::Cpu | Backend::Llvm) => {
            let levels = side.levels()?;
            levels.run_here()?;
            let tiers = Tiers::given(s, tiles.clone(), levels.shown, &levels.weights)?;
            compiled(s, side, &tiers, &model, inputs)
        }
        (Program::Tile(_), Backend::Interp | Backend::PtxSim) => {
            Err(command_line_error("tile IR runs with `--backend tile` or `--backend cpu`"))
        }
    }
}

fn generator(side: &Side) -> Generator {
    if side.backend() == Backend::Llvm { Generator::Llvm } else { Generator::Cranelift }
}

fn whole(graph: &ir::Module) -> Result<ir::Verified<'_>, CommandError> {
    ir::verify(graph).map_err(|errors| bug("passes", &errors.to_string(), None))
}

fn tensors<F: interp::Real>(arrays: &[interp::Array<F>]) -> Vec<Tensor> {
    arrays.iter().filter_map(interp::Array::to_tensor).collect()
}

fn interpreted(
    s: &mut Session,
    graph: &ir::Module,
    model: &ModelDescriptor,
    inputs: &Inputs,
) -> Result<Run, CommandError> {
    let params = parameters(s, model, inputs.weights.as_deref())?;
    s.stage("run");
    let verified = whole(graph)?;
    let (mut plain, mut tapped) = (interp::States::<f32>::default(), interp::States::<f32>::default());
    Ok(each(inputs, &mut |called| {
        let Some((function, args)) = called else {
            plain.reset();
            tapped.reset();
            return Ok(Called::default());
        };
        let call = interp::Call { function, args, params: &params, limits: interp::Limits::default() };
        let results = interp::run_in(verified, &call, &mut plain).map_err(|e| e.to_string())?.results;
        let taps = interp::run_tapped_in(verified, &call, &mut tapped).map_err(|e| e.to_string())?.taps;
        let inner = taps.iter().filter_map(|(path, array)| Some((path.clone(), array.to_tensor()?))).collect();
        Ok(Called { results: tensors(&results), inner })
    }))
}

/// Runs the calls in `f64`, with error bounds; tile IR has none.
pub(super) fn bounds(
    s: &mut Session,
    side: &Side,
    inputs: &Inputs,
) -> Result<Vec<interp::Outcome<Bounded>>, CommandError> {
    let Program::Graph { watched, .. } = &side.program else { return Ok(Vec::new()) };
    let model = side.describe(s)?;
    let params = parameters(s, &model, inputs.weights.as_deref())?;
    s.stage("bound errors");
    let verified = whole(watched)?;
    let mut states = interp::States::<Bounded>::default();
    let mut done = Vec::new();
    for step in &inputs.steps {
        let Some((function, args)) = step.call() else {
            states.reset();
            continue;
        };
        let call = interp::Call { function, args, params: &params, limits: interp::Limits::default() };
        match interp::run_tapped_in(verified, &call, &mut states) {
            Ok(outcome) => done.push(outcome),
            Err(_) => break,
        }
    }
    Ok(done)
}

fn compiled(
    s: &mut Session,
    side: &Side,
    tiers: &Tiers,
    model: &ModelDescriptor,
    inputs: &Inputs,
) -> Result<Run, CommandError> {
    let how = How { generator: generator(side), remarks: side.options.passes.remarks, threads: side.options.threads };
    let open = opened(s, tiers, model, &how, inputs.weights.as_deref())?;
    s.stage("run");
    let failed = |s: &mut Session, text: String| s.fail(Diagnostic::error(codes::CALL, text));
    let mut plain = open.session().map_err(|error| failed(s, error.text))?;
    let mut tapped = open.session().map_err(|error| failed(s, error.text))?;
    Ok(each(inputs, &mut |called| {
        let Some((function, args)) = called else {
            plain.reset().and_then(|()| tapped.reset()).map_err(|error| error.text)?;
            return Ok(Called::default());
        };
        let entry = open.entry(function).map_err(|error| error.text)?;
        let results = plain.call(entry, args).map_err(|error| error.text)?;
        let has_taps = model.entries.iter().any(|e| e.name == function && !e.taps.is_empty());
        let globs: &[&str] = if has_taps { &["*"] } else { &[] };
        let (_, taps) = tapped.call_with_taps(entry, args, globs).map_err(|error| error.text)?;
        Ok(Called { results, inner: taps.into_iter().collect() })
    }))
}

/// Runs graph IR as tile IR, interpreted or on the simulator of GPUs.
fn tiled(
    s: &mut Session,
    side: &Side,
    graph: &ir::Module,
    model: &ModelDescriptor,
    inputs: &Inputs,
) -> Result<Run, CommandError> {
    let params = parameters(s, model, inputs.weights.as_deref())?;
    let levels = side.levels()?;
    let verified = whole(graph)?;
    let (tiers, scheduled, simulated);
    let (module, launches): (&tile::Module, Option<&dyn tile::interp::Launches>) = match side.backend() {
        Backend::PtxSim => {
            let tiles = stages::tiles_of(s, graph)?.0;
            let gpu = side.options.target.gpu;
            (scheduled, simulated) = crate::driver::cuda::simulated(s, &tiles, &levels.gpu_options(), gpu)?;
            (&scheduled, Some(&simulated))
        }
        _ => {
            tiers = Tiers::lower(s, graph, &[levels.shown], &levels.weights)?;
            let Some(tiles) = tiers.module(levels.shown) else {
                return Err(bug("schedule", "there is no module", None));
            };
            (tiles, None)
        }
    };
    s.stage("run");
    let tiles = tile::verify::verify(module).map_err(|errors| bug("schedule", &errors.to_string(), None))?;
    let (mut plain, mut tapped) = (tile::interp::States::default(), tile::interp::States::default());
    Ok(each(inputs, &mut |called| {
        let Some((plan, args)) = called else {
            plain.reset();
            tapped.reset();
            return Ok(Called::default());
        };
        let entered = interp::admit(verified, plan, args).map_err(|error| error.to_string())?;
        let run = |variant, states: &mut tile::interp::States| {
            let limits = tile::interp::Limits::default();
            let (symbols, args, params) = (&entered.symbols, entered.args.as_slice(), &params);
            let call = tile::interp::Call { plan, variant, symbols, args, params, limits };
            let done = match launches {
                Some(launches) => tile::interp::run_on(tiles, &call, states, launches),
                None => tile::interp::run_in(tiles, &call, states),
            };
            done.map_err(|error| error.to_string())
        };
        let results = run(PlanVariant::Plain, &mut plain)?.results;
        let has_taps = tiles.plans.iter().any(|p| p.name == plan && p.variant == PlanVariant::Tapped);
        let inner = if has_taps { run(PlanVariant::Tapped, &mut tapped)?.taps } else { BTreeMap::new() };
        Ok(Called { results: entered.leave(results), inner })
    }))
}

/// Runs given tile IR in its interpreter, and keeps the buffers after each launch.
fn launched(
    s: &mut Session,
    tiles: tile::verify::Verified<'_>,
    model: &ModelDescriptor,
    inputs: &Inputs,
) -> Result<Run, CommandError> {
    let params = parameters(s, model, inputs.weights.as_deref())?;
    s.stage("run");
    let mut states = tile::interp::States::default();
    Ok(each(inputs, &mut |called| {
        let Some((plan, args)) = called else {
            states.reset();
            return Ok(Called::default());
        };
        let entry =
            model.entries.iter().find(|e| e.name == plan).ok_or_else(|| format!("there is no plan `{plan}`"))?;
        let symbols = arguments::symbols(entry, args).map_err(|_| "the dimensions are not known".to_string())?;
        // Leading axes are one.
        let flat = args.iter().zip(&entry.args).map(|(t, arg)| {
            let own = t.shape().len().saturating_sub(arg.dims.len());
            let (lead, rest) = t.shape().split_at(own);
            let shape = std::iter::once(lead.iter().product()).chain(rest.iter().copied()).collect();
            if arg.batch { t.clone().reshaped(shape) } else { Some(t.clone()) }
        });
        let args: Vec<Tensor> = flat.collect::<Option<_>>().ok_or_else(|| "an argument's shape".to_string())?;
        let written: RefCell<BTreeMap<String, Vec<Tensor>>> = RefCell::default();
        let watch = |launch, which, tensor| {
            written.borrow_mut().entry(launch_path(launch, which)).or_default().push(tensor);
        };
        let limits = tile::interp::Limits::default();
        let variant = PlanVariant::Plain;
        let call = tile::interp::Call { plan, variant, symbols: &symbols, args: &args, params: &params, limits };
        let done = tile::interp::run_watched(tiles, &call, &mut states, &watch).map_err(|error| error.to_string())?;
        let inner = written.into_inner().into_iter().filter_map(|(path, all)| Some((path, stacked(&all)?))).collect();
        Ok(Called { results: done.results, inner })
    }))
}

/// The tensors of several launches as one.
fn stacked(all: &[Tensor]) -> Option<Tensor> {
    let (first, rest) = all.split_first()?;
    if rest.is_empty() {
        return Some(first.clone());
    }
    let shape = if all.iter().all(|t| t.shape() == first.shape()) {
        std::iter::once(all.len()).chain(first.shape().iter().copied()).collect()
    } else {
        vec![all.iter().map(|t| t.shape().iter().product::<usize>()).sum()]
    };
    Tensor::new(first.elem(), shape, all.iter().flat_map(|t| t.bytes().iter().copied()).collect())
}
