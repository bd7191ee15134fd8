//! `attnc run --calls FILE`: a sequence of calls in one session; also single calls in the
//! interpreter of tile IR.
//!
//! In: a file with one call per line, and a program after the passes. Out: the results of each
//! call. States persist between calls; `reset` zeroes them. The first call that fails ends the
//! sequence.
//!
//! ```text
//! // A comment.
//! prefill(tokens = [464, 3290, 318])
//! step(token = 3)
//! reset
//! forward(x = inputs/x.npy, mask = "a file, its name in quotes.npy")
//! ```

use super::arguments::{self, Said, Work};
use super::bugs::bug;
use super::levels::Levels;
use super::load::{How, opened};
use super::running::{Values, call_failed, function, named, parameters, told};
use super::session::{CommandError, Session, command_line_error};
use super::stages::Tiers;
use crate::cli::{Backend, CallOptions, Input, Named, RunOptions};
use crate::codegen::Generator;
use crate::diagnostics::Diagnostic;
use crate::diagnostics::codes::weights as codes;
use crate::ir::{self, interp};
use crate::runtime::descriptor::ModelDescriptor;
use crate::tensor::Tensor;
use crate::tile::{self, PlanVariant};
use std::path::Path;

/// A line of the file, or the call of the command line.
#[derive(Clone, Debug)]
pub(super) struct Step {
    /// Line number; 0 for the call of the command line.
    line: usize,
    action: Action,
}

#[derive(Clone, Debug)]
enum Action {
    /// Zeroes all states.
    Reset,
    /// A call of an entry point.
    Call {
        /// Name of the entry point.
        function: String,
        /// The arguments given in the line.
        inputs: Vec<Named<Input>>,
        /// All arguments, once they are read.
        args: Vec<Tensor>,
    },
}

/// Parses a file of calls.
pub(super) fn read(s: &mut Session, path: &Path) -> Result<Vec<Step>, CommandError> {
    let file = s.read(path)?;
    let steps = steps(&s.text(file)).map_err(|(line, why)| {
        let place = if line > 0 { format!("{}:{line}", path.display()) } else { path.display().to_string() };
        command_line_error(&format!("{place}: {why}"))
    })?;
    Ok(steps)
}

/// A single call with the arguments of the command line.
pub(super) fn single(function: &str, args: Vec<Tensor>) -> Vec<Step> {
    vec![Step { line: 0, action: Action::Call { function: function.to_string(), inputs: Vec::new(), args } }]
}

impl Step {
    /// The entry point and its arguments; `None` if the states are zeroed.
    pub(super) fn call(&self) -> Option<(&str, &[Tensor])> {
        match &self.action {
            Action::Reset => None,
            Action::Call { function, args, .. } => Some((function, args)),
        }
    }

    /// The arguments, to be changed.
    pub(super) fn args_mut(&mut self) -> Option<(&str, &mut Vec<Tensor>)> {
        match &mut self.action {
            Action::Reset => None,
            Action::Call { function, args, .. } => Some((function, args)),
        }
    }
}

/// The number of calls and resets in a file of calls.
///
/// # Errors
/// The number of the first invalid line, counted from 1, and the reason.
pub fn count_calls(text: &str) -> Result<usize, (usize, String)> {
    Ok(steps(text)?.len())
}

/// Parses a file; the error has the line number and the reason.
fn steps(text: &str) -> Result<Vec<Step>, (usize, String)> {
    let mut steps = Vec::new();
    for (i, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with("//") || line.starts_with('#') {
            continue;
        }
        let action = if line == "reset" { Ok(Action::Reset) } else { call_of(line) };
        steps.push(Step { line: i + 1, action: action.map_err(|why| (i + 1, why))? });
    }
    match steps.iter().any(|step| matches!(step.action, Action::Call { .. })) {
        true => Ok(steps),
        false => Err((0, "there are no calls; a line for each, as `step(token = 3)`".to_string())),
    }
}

/// Parses `step(token = 3, x = x.npy)`.
fn call_of(line: &str) -> Result<Action, String> {
    let is_name = |name: &str| {
        let starts = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
        starts && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    };
    let form = || format!("expected `reset` or a call as `step(token = 3)`, found `{line}`");
    let (function, rest) = line.split_once('(').ok_or_else(form)?;
    let inside = rest.trim_end().strip_suffix(')').ok_or_else(form)?;
    let function = function.trim();
    if !is_name(function) {
        return Err(form());
    }
    let mut inputs: Vec<Named<Input>> = Vec::new();
    for part in parts(inside)? {
        let (name, value) = part.split_once('=').ok_or_else(|| format!("expected `name = value`, found `{part}`"))?;
        let (name, value) = (name.trim(), value.trim());
        if !is_name(name) || value.is_empty() {
            return Err(format!("expected `name = value`, found `{part}`"));
        }
        if inputs.iter().any(|other| other.name == name) {
            return Err(format!("`{name}` is given twice"));
        }
        let quoted = value.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
        let value = match quoted {
            Some(path) => Input::File(path.into()),
            None => value.parse().map_err(|_| format!("`{value}` is not an argument"))?,
        };
        inputs.push(Named { name: name.to_string(), value });
    }
    Ok(Action::Call { function: function.to_string(), inputs, args: Vec::new() })
}

/// Splits at commas outside of brackets and quotes.
fn parts(text: &str) -> Result<Vec<&str>, String> {
    let (mut parts, mut start, mut depth, mut quoted) = (Vec::new(), 0, 0_usize, false);
    for (at, c) in text.char_indices() {
        match c {
            '"' => quoted = !quoted,
            _ if quoted => {}
            '[' => depth += 1,
            ']' => depth = depth.checked_sub(1).ok_or("a bracket is closed that is not open")?,
            ',' if depth == 0 => {
                parts.push(text[start..at].trim());
                start = at + 1;
            }
            _ => {}
        }
    }
    if depth > 0 || quoted {
        return Err(format!("a {} is not closed", if quoted { "quote" } else { "bracket" }));
    }
    let last = text[start..].trim();
    if !last.is_empty() {
        parts.push(last);
    }
    if parts.iter().any(|part| part.is_empty()) {
        return Err("an argument is missing between two commas".to_string());
    }
    Ok(parts)
}

/// The options of one call: its inputs, the sizes that its entry point has, and a seed of its own.
fn options_of(options: &CallOptions, n: usize, inputs: &[Named<Input>], sizes: &[&str]) -> CallOptions {
    let mut own = options.clone();
    own.input = inputs.to_vec();
    own.size.retain(|size| sizes.contains(&size.name.as_str()));
    own.random = own.random.map(|seed| seed.wrapping_add(n as u64));
    own
}

/// Reads the arguments of all calls, so that errors are reported before anything runs.
pub(super) fn arguments(
    s: &mut Session,
    steps: &mut [Step],
    work: Work<'_>,
    model: &ModelDescriptor,
    options: &CallOptions,
) -> Result<(), CommandError> {
    for (n, step) in steps.iter_mut().enumerate() {
        let place = options.calls.as_ref().map(|path| format!("{}:{}", path.display(), step.line)).unwrap_or_default();
        let said = Said::Line(&place);
        let Action::Call { function: name, inputs, args } = &mut step.action else { continue };
        let (name, declared) = function(work.entries(), Some(name)).map_err(|why| said.error(&why))?;
        let entry = model.entries.iter().find(|entry| entry.name == name);
        let sizes: Vec<&str> = entry.iter().flat_map(|e| &e.symbols).map(|symbol| symbol.name.as_str()).collect();
        let own = options_of(options, n, inputs, &sizes);
        let given = arguments::given(s, (name, declared), &own, said)?;
        *args = arguments::all(s, given, work, model, name, &own)?;
    }
    Ok(())
}

/// Calls an entry point of a session with arguments; `None` resets its states.
type Caller<'c> = dyn FnMut(Option<(&str, &[Tensor])>) -> Result<Vec<Tensor>, String> + 'c;

/// Runs the steps; returns the results, named by their calls.
fn each(s: &mut Session, steps: &[Step], caller: &mut Caller<'_>) -> Result<Values, CommandError> {
    s.stage("run");
    let calls = steps.iter().filter(|step| matches!(step.action, Action::Call { .. })).count();
    let (mut values, mut n) = (Values::new(), 0);
    for step in steps {
        let Action::Call { function, args, .. } = &step.action else {
            caller(None).map_err(|why| call_failed(s, &why))?;
            continue;
        };
        n += 1;
        let results = caller(Some((function, args))).map_err(|why| {
            let place =
                if step.line > 0 { format!("call {n}, `{function}` in line {}: ", step.line) } else { String::new() };
            call_failed(s, &format!("{place}{why}"))
        })?;
        let of_call = |(name, value): (String, Tensor)| match calls {
            1 if step.line == 0 => (name, value),
            _ => (format!("{n}.{function}.{name}"), value),
        };
        values.extend(named(results, Values::new()).into_iter().map(of_call));
    }
    Ok(values)
}

/// Runs the steps in the interpreter of tile IR, optionally with another executor for launches.
fn tiled(
    s: &mut Session,
    steps: &[Step],
    graph: ir::Verified<'_>,
    tiles: tile::verify::Verified<'_>,
    params: &dyn tile::interp::Params,
    launches: Option<&dyn tile::interp::Launches>,
) -> Result<Values, CommandError> {
    let mut states = tile::interp::States::default();
    let mut call = |called: Option<(&str, &[Tensor])>| {
        let Some((plan, args)) = called else {
            states.reset();
            return Ok(Vec::new());
        };
        let entered = interp::admit(graph, plan, args).map_err(|error| error.to_string())?;
        let call = tile::interp::Call {
            plan,
            variant: PlanVariant::Plain,
            symbols: &entered.symbols,
            args: &entered.args,
            params,
            limits: tile::interp::Limits::default(),
        };
        let done = match launches {
            Some(launches) => tile::interp::run_on(tiles, &call, &mut states, launches),
            None => tile::interp::run_in(tiles, &call, &mut states),
        };
        Ok(entered.leave(done.map_err(|error| error.to_string())?.results))
    };
    each(s, steps, &mut call)
}

/// Runs the steps with the back end of the options.
pub(super) fn run(
    s: &mut Session,
    steps: &[Step],
    graph: &ir::Module,
    model: &ModelDescriptor,
    levels: &Levels,
    options: &RunOptions,
    weights: Option<&Path>,
) -> Result<Values, CommandError> {
    let whole = |graph| ir::verify(graph).map_err(|errors| bug("passes", &errors.to_string(), None));
    match options.backend {
        Backend::Interp => {
            let params = parameters(s, model, weights)?;
            let verified = whole(graph)?;
            let mut states = interp::States::default();
            let mut call = |called: Option<(&str, &[Tensor])>| {
                let Some((function, args)) = called else {
                    states.reset();
                    return Ok(Vec::new());
                };
                let call = interp::Call { function, args, params: &params, limits: interp::Limits::default() };
                let done = interp::run_in::<f32>(verified, &call, &mut states).map_err(|error| error.to_string())?;
                Ok(done.results.iter().filter_map(interp::Array::to_tensor).collect())
            };
            each(s, steps, &mut call)
        }
        Backend::Tile => {
            let params = parameters(s, model, weights)?;
            let level = levels.shown;
            let tiers = Tiers::lower(s, graph, &[level], &levels.weights)?;
            let Some(tiles) = tiers.module(level) else { return Err(bug("schedule", "there is no module", None)) };
            let tiles = tile::verify::verify(tiles).map_err(|errors| bug("schedule", &errors.to_string(), None))?;
            tiled(s, steps, whole(graph)?, tiles, &params, None)
        }
        Backend::PtxSim => {
            let params = parameters(s, model, weights)?;
            let tiles = super::stages::tiles_of(s, graph)?.0;
            let (tiles, mut simulated) = super::cuda::simulated(s, &tiles, &levels.gpu_options(), options.target.gpu)?;
            let tiles = tile::verify::verify(&tiles).map_err(|errors| bug("schedule", &errors.to_string(), None))?;
            let Some(path) = &options.schedule else {
                return tiled(s, steps, whole(graph)?, tiles, &params, Some(&simulated));
            };
            s.claim(path)?;
            super::stages::only(options.kernel.as_deref(), Some(&tiles))?;
            simulated = simulated.watching(options.kernel.clone());
            let values = tiled(s, steps, whole(graph)?, tiles, &params, Some(&simulated))?;
            super::cuda::draw_schedule(s, &tiles, &simulated, path)?;
            Ok(values)
        }
        Backend::Cpu | Backend::Llvm => {
            let generator = if options.backend == Backend::Llvm { Generator::Llvm } else { Generator::Cranelift };
            let levels = levels.clone().for_graph(graph, generator);
            levels.run_here()?;
            let tiers = Tiers::for_library(s, graph, &levels)?;
            let how = How { generator, remarks: options.passes.remarks, threads: options.threads };
            let open = opened(s, &tiers, model, &how, weights)?;
            told(s, &open);
            let mut session = open.session().map_err(|error| s.fail(Diagnostic::error(codes::CALL, error.text)))?;
            let mut call = |called: Option<(&str, &[Tensor])>| {
                let Some((function, args)) = called else {
                    return session.reset().map(|()| Vec::new()).map_err(|error| error.text);
                };
                let entry = open.entry(function).map_err(|error| error.text)?;
                session.call(entry, args).map_err(|error| error.text)
            };
            each(s, steps, &mut call)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> Result<Vec<String>, String> {
        let steps = steps(text).map_err(|(line, why)| format!("{line}: {why}"))?;
        Ok(steps
            .iter()
            .map(|step| match &step.action {
                Action::Reset => format!("{} reset", step.line),
                Action::Call { function, inputs, .. } => {
                    let inputs = inputs.iter().map(|input| format!(" {}={:?}", input.name, input.value));
                    format!("{} {function}{}", step.line, inputs.collect::<String>())
                }
            })
            .collect())
    }

    #[test]
    fn calls_are_read() {
        let text = "// two calls\nf(x = [[1, 2], [3, 4]], n = 3)\n\nreset\n# done\n  g( path = \"a, (b).npy\",)\nh()\n";
        let expected =
            ["2 f x=Literal(\"[[1, 2], [3, 4]]\") n=Literal(\"3\")", "4 reset", "6 g path=File(\"a, (b).npy\")", "7 h"];
        assert_eq!(shown(text), Ok(expected.map(String::from).to_vec()));
    }

    #[test]
    fn what_is_no_call_is_told_with_its_line() {
        for (text, why) in [
            ("", "0: there are no calls"),
            ("reset", "0: there are no calls"),
            ("f(x = 1)\nstep", "2: expected `reset` or a call"),
            ("f(x = 1", "1: expected `reset` or a call"),
            ("f(1)", "1: expected `name = value`, found `1`"),
            ("f(x = )", "1: expected `name = value`"),
            ("f(x = 1, x = 2)", "1: `x` is given twice"),
            ("f(x = [1)", "1: a bracket is not closed"),
            ("f(x = 1])", "1: a bracket is closed that is not open"),
            ("f(x = 1,, y = 2)", "1: an argument is missing"),
            ("f(x = \"a)", "1: a quote is not closed"),
            ("2f(x = 1)", "1: expected `reset` or a call"),
        ] {
            let told = shown(text).expect_err(text);
            assert!(told.starts_with(why), "{text}: {told}");
        }
    }
}
