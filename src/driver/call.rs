//! `attnc run`: calls an entry point, interpreted or compiled, and prints or writes the results;
//! sequences of calls are in `calls`.
//!
//! In: a program or graph IR, a weights file, arguments ([`arguments`]). Out: results and taps, as
//! a summary on stdout or as NumPy files. A failing call is an error of the program; weights that
//! do not match are an error of the environment.

use super::arguments::{self, Said, Work};
use super::calls;
use super::keep::tell_losses;
use super::levels::Levels;
use super::load::{How, opened};
use super::outputs::Source;
use super::passes::pass_options;
use super::running::{Call, Values, call_failed, function, named, parameters, told};
use super::session::{CommandError, Session, command_line_error, reason, show, tell};
use super::stages::{self, Tiers};
use crate::cli::{Backend, EmitKind, ProgramOptions, RunOptions};
use crate::codegen::Generator;
use crate::diagnostics::Diagnostic;
use crate::diagnostics::codes::{driver as codes, weights};
use crate::interface::matches;
use crate::ir::{self, interp};
use crate::runtime::descriptor::ModelDescriptor;
use crate::runtime::load::CompiledModel;
use crate::runtime::npy;
use crate::shape::Elem;
use crate::tensor::Tensor;
use crate::tile::{Cpu, WeightChoice, WeightFormat};
use clap::ValueEnum as _;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

/// `attnc run FILE`
pub(super) fn run(options: &RunOptions) -> Result<(), CommandError> {
    let mut session = Session::new(&options.messages);
    let result = run_in(&mut session, options);
    session.finish_timed(result, &options.passes)
}

fn run_in(s: &mut Session, options: &RunOptions) -> Result<(), CommandError> {
    let pass_options = pass_options(&options.target, &options.passes)?;
    if let Some(path) = &options.output {
        results_agree(path).map_err(|message| command_line_error(&message))?;
    }

    if (options.html.is_some() || options.record.is_some()) && options.file == Path::new("-") {
        return Err(command_line_error("`--html` and `--record` read the program again: it must be a file"));
    }
    if options.schedule.is_some() && options.backend != Backend::PtxSim {
        return Err(command_line_error("`--schedule` draws a kernel on the simulator: add `--backend ptx-sim`"));
    }
    let mut graph = read_graph(s, &options.file, &options.program, "run")?;
    s.stage("read arguments");
    let mut steps = options.call.calls.as_deref().map(|path| calls::read(s, path)).transpose()?;
    let one = match steps {
        Some(_) => None,
        None => {
            let wanted = options.call.function.as_deref();
            let f = function(Work::Graph(&graph).entries(), wanted).map_err(|why| command_line_error(&why))?;
            let given = arguments::given(s, f, &options.call, Said::Options)?;
            Some((f.0.to_string(), given))
        }
    };
    if let Some(path) = &options.call.weights {
        arguments::weights(s, path)?;
    }

    s.stage("passes");
    stages::optimise(s, &mut graph, &pass_options, &options.passes)?;
    let model = stages::describe(s, &graph.interface(), &graph.model, &graph.doc)?;
    if options.call.weights.is_none() && !model.params.is_empty() && options.call.random.is_none() {
        let message = format!("`{}` has parameters; use `--weights FILE` or `--random`", model.name);
        return Err(command_line_error(&message));
    }
    let folder = stages::temporary(s)?;
    let weights = match options.call.random {
        Some(seed) => arguments::weights_file(s, &model, options.call.weights.as_deref(), seed, folder.path())?,
        None => options.call.weights.clone(),
    };
    let levels = Levels::from_options(&options.target).keeping(&options.target, &graph)?;
    if let Some(steps) = &mut steps {
        calls::arguments(s, steps, Work::Graph(&graph), &model, &options.call)?;
    }
    let (name, args) = match one {
        Some((name, given)) => {
            let args = arguments::all(s, given, Work::Graph(&graph), &model, &name, &options.call)?;
            (name, args)
        }
        None => Default::default(),
    };
    if matches!(options.backend, Backend::Tile | Backend::PtxSim) {
        if !options.tap.is_empty() {
            let name = options.backend.to_possible_value();
            let name = name.as_ref().map_or("", |name| name.get_name());
            return Err(command_line_error(&format!("`--backend {name}` has no taps; use `--backend interp`")));
        }
        steps = steps.or_else(|| Some(calls::single(&name, args.clone())));
    }
    if let Some(steps) = &steps {
        let values = calls::run(s, steps, &graph, &model, &levels, options, weights.as_deref())?;
        // If a schedule goes to stdout, nothing else does.
        if options.output.is_none() && options.schedule.as_deref() == Some(Path::new("-")) {
            return Ok(());
        }
        return given_out(s, options, &values);
    }
    let call = Call {
        name: &name,
        args: &args,
        taps: &options.tap,
        weights: weights.as_deref(),
        remarks: options.passes.remarks,
    };
    let values = match options.backend {
        Backend::Interp | Backend::Tile | Backend::PtxSim => interpreted(s, &graph, &model, &call)?,
        Backend::Cpu | Backend::Llvm => {
            let generator = if options.backend == Backend::Llvm { Generator::Llvm } else { Generator::Cranelift };
            let levels = levels.for_graph(&graph, generator);
            let values = compiled(s, &graph, &model, &call, &levels, (generator, options.threads))?;
            // Random weights have no file.
            if let Some(path) = options.call.weights.as_deref().filter(|_| levels.weights.format != WeightFormat::F32) {
                let level = levels.all.last().copied().unwrap_or(Cpu::PORTABLE);
                tell_losses(s, &graph, level, &levels.weights, path, options.messages.verbose)?;
            }
            values
        }
    };
    given_out(s, options, &values)
}

/// Writes the values, or prints a summary.
fn given_out(s: &mut Session, options: &RunOptions, values: &Values) -> Result<(), CommandError> {
    match &options.output {
        Some(path) => write(s, path, values),
        None => show(&summary(values)),
    }
}

/// Graph IR before the passes, from a program or its text form; other inputs are an error of
/// `command`.
pub(super) fn read_graph(
    s: &mut Session,
    path: &Path,
    bindings: &ProgramOptions,
    command: &str,
) -> Result<ir::Module, CommandError> {
    s.stage("read");
    let file = s.read(path)?;
    match Source::detect(path, &s.text(file)) {
        Source::Program => {
            s.stage("parse");
            let mut tree = stages::parse(s, file);
            s.stage("check types");
            let program = stages::check(s, &mut tree, bindings);
            s.stop_on_errors()?;
            s.stage("lower to graph IR");
            stages::lower(s, &program, bindings)
        }
        Source::Graph => {
            s.stage("parse");
            stages::graph_text(s, file)
        }
        Source::Tile | Source::Vector | Source::Clif => {
            Err(command_line_error(&format!("`{command}` takes .attn and .air files")))
        }
    }
}

/// Converts integers to the width of the argument, if they fit: NumPy's default integers are 64
/// bits wide.
pub(super) fn as_declared(tensor: &Tensor, wanted: Elem) -> Option<Tensor> {
    match (tensor.elem(), wanted) {
        (Elem::I64, Elem::I32) | (Elem::I32, Elem::I64) => {
            Tensor::from_ints(wanted, tensor.shape().to_vec(), &tensor.to_i64())
        }
        _ => Some(tensor.clone()),
    }
}

/// Calls the function in the interpreter.
fn interpreted(
    s: &mut Session,
    graph: &ir::Module,
    model: &ModelDescriptor,
    call: &Call<'_>,
) -> Result<Values, CommandError> {
    let params = parameters(s, model, call.weights)?;
    s.stage("run");
    let Some(f) = graph.functions.iter().find(|f| f.name == call.name) else {
        return Err(command_line_error("the entry point was not found"));
    };
    let args: Option<Vec<Tensor>> = call.args.iter().zip(&f.args).map(|(t, arg)| as_declared(t, arg.ty.elem)).collect();
    let Some(args) = args else {
        return Err(call_failed(s, "an argument's integers do not fit its type"));
    };
    let verified = ir::verify(graph).map_err(|errors| super::bugs::bug("passes", &errors.to_string(), None))?;
    let request = interp::Call { function: call.name, args: &args, params: &params, limits: interp::Limits::default() };
    let done = if call.taps.is_empty() {
        interp::run::<f32>(verified, &request)
    } else {
        interp::run_tapped::<f32>(verified, &request)
    };
    let outcome = done.map_err(|failure| call_failed(s, &failure.to_string()))?;
    let results = outcome.results.iter().filter_map(interp::Array::to_tensor).collect();
    let mut taps = Values::new();
    let all: BTreeMap<&String, &interp::Array<f32>> = outcome.taps.iter().chain(&outcome.silent).collect();
    for glob in call.taps {
        let found = all.iter().filter(|(path, _)| matches(glob, path));
        let found: Values = found.filter_map(|(path, array)| Some(((*path).clone(), array.to_tensor()?))).collect();
        if found.is_empty() {
            let known: Vec<&str> = all.keys().map(|path| path.as_str()).take(8).collect();
            return Err(command_line_error(&format!("no tap matches `{glob}`; the taps are {}", known.join(", "))));
        }
        taps.extend(found);
    }
    taps.sort_by(|a, b| a.0.cmp(&b.0));
    taps.dedup_by(|a, b| a.0 == b.0);
    let steps = |path: &String| outcome.written.get(path).copied().unwrap_or(0);
    silent(s, taps.iter().map(|(path, _)| (path.as_str(), steps(path))));
    Ok(named(results, taps))
}

/// Compiles the module, loads it, and calls the function. If weights are packed, also prints the
/// differences from the results with unpacked weights.
fn compiled(
    s: &mut Session,
    graph: &ir::Module,
    model: &ModelDescriptor,
    call: &Call<'_>,
    levels: &Levels,
    (generator, threads): (Generator, Option<u32>),
) -> Result<Values, CommandError> {
    let (values, loaded) = called(s, graph, model, call, levels, (generator, threads))?;
    told(s, &loaded);
    if levels.weights.format != WeightFormat::F32 {
        let exact = Levels { weights: WeightChoice::default(), ..levels.clone() };
        let (reference, _) = called(s, graph, model, call, &exact, (generator, threads))?;
        tell(&differences(&values, &reference));
    }
    Ok(values)
}

/// The errors of values, one per line: the largest difference relative to the largest magnitude,
/// and the same for root mean squares. Only floats are compared.
fn differences(values: &Values, reference: &Values) -> String {
    let mut text = String::new();
    for ((name, value), (_, exact)) in values.iter().zip(reference) {
        if !value.elem().is_float() {
            continue;
        }
        let (mut largest, mut far, mut squares, mut far_squares) = (0.0f64, 0.0f64, 0.0, 0.0);
        for (x, y) in value.to_f64().into_iter().zip(exact.to_f64()) {
            (largest, far) = (largest.max(y.abs()), far.max((x - y).abs()));
            (squares, far_squares) = (squares + y * y, far_squares + (x - y) * (x - y));
        }
        let share = |part: f64, whole: f64| if part == 0.0 { 0.0 } else { part / whole };
        let (most, mean) = (share(far, largest), share(far_squares.sqrt(), squares.sqrt()));
        let _ =
            writeln!(text, "{name}: off by at most {most:.2e} of the largest f32 result, {mean:.2e} root mean square");
    }
    text
}

/// Compiles the module, loads it, and calls the function. Returns the values and the model.
fn called(
    s: &mut Session,
    graph: &ir::Module,
    model: &ModelDescriptor,
    call: &Call<'_>,
    levels: &Levels,
    (generator, threads): (Generator, Option<u32>),
) -> Result<(Values, CompiledModel), CommandError> {
    levels.run_here()?;
    let tiers = Tiers::for_library(s, graph, levels)?;
    let how = How { generator, remarks: call.remarks, threads };
    let loaded = opened(s, &tiers, model, &how, call.weights)?;
    s.stage("run");
    let globs: Vec<&str> = call.taps.iter().map(String::as_str).collect();
    let done = loaded.entry(call.name).and_then(|entry| {
        let mut session = loaded.session()?;
        let values = session.call_with_taps(entry, call.args, &globs)?;
        Ok((values, session.written().to_vec()))
    });
    let ((results, taps), written) = done.map_err(|error| call_failed(s, &error.text))?;
    silent(s, written.iter().map(|(path, steps)| (path.as_str(), *steps)));
    Ok((named(results, taps), loaded))
}

/// Warns about taps that the call did not reach.
fn silent<'t>(s: &mut Session, taps: impl Iterator<Item = (&'t str, u64)>) {
    for (path, _) in taps.filter(|(_, steps)| *steps == 0) {
        let message = format!("the call did not reach the tap `{path}`; its value is all zeros");
        s.diagnostics.push(Diagnostic::warning(weights::SILENT_TAP, message));
    }
}

/// Results go to `.npy` files or a directory; the extension of another format is likely a mistake.
fn results_agree(path: &Path) -> Result<(), String> {
    const FILES: [&str; 8] = ["npz", "txt", "json", "csv", "safetensors", "pt", "bin", "attn"];
    let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
    let is_file = FILES.contains(&ending) || EmitKind::of_extension(ending).is_some();
    if !is_file || path.is_dir() {
        return Ok(());
    }
    let stem = path.with_extension("");
    Err(format!(
        "`--output {}`: results are written as NumPy files; name a directory, or for one result `{}.npy`",
        path.display(),
        stem.display()
    ))
}

/// Writes each value to a file in a directory, or a single value to `path` itself if that ends in
/// `.npy`.
fn write(s: &mut Session, path: &Path, values: &Values) -> Result<(), CommandError> {
    if path == Path::new("-") || path.extension().is_some_and(|ending| ending == "npy") {
        s.claim(path)?;
        return match values.as_slice() {
            [(_, tensor)] => s.write(path, &npy::to_bytes(tensor)),
            _ => Err(command_line_error(&format!("{} values need a directory: `--output DIR`", values.len()))),
        };
    }
    if let Err(error) = std::fs::create_dir_all(path) {
        let message = format!("cannot create the directory `{}`: {}", path.display(), reason(&error));
        return Err(s.fail(Diagnostic::error(codes::UNWRITABLE, message)));
    }
    for (name, tensor) in values {
        let path = path.join(format!("{name}.npy"));
        s.claim(&path)?;
        s.write(&path, &npy::to_bytes(tensor))?;
    }
    Ok(())
}

/// Number of elements shown at each end of an axis.
const SHOWN: usize = 3;

/// Name, type, shape, and the first and last elements of each value.
fn summary(values: &Values) -> String {
    let mut text = String::new();
    for (name, tensor) in values {
        let shape: Vec<String> = tensor.shape().iter().map(usize::to_string).collect();
        text += &format!("{name}: {}[{}]\n", tensor.elem(), shape.join(", "));
        let elements: Vec<String> = match tensor.elem() {
            Elem::F32 | Elem::BF16 | Elem::F16 => tensor.to_f64().iter().map(|x| format!("{x:.6}")).collect(),
            Elem::I8 | Elem::I32 | Elem::I64 => tensor.to_i64().iter().map(i64::to_string).collect(),
            Elem::Bool => tensor.to_i64().iter().map(|b| (*b != 0).to_string()).collect(),
        };
        rows(&elements, tensor.shape(), 1, &mut text);
    }
    text
}

/// Nested brackets, as printed by NumPy. Ranks are small, so recursion is shallow.
fn rows(elements: &[String], shape: &[usize], depth: usize, text: &mut String) {
    let indent = "  ".repeat(depth);
    let shown = |n: usize| (0..n).filter(move |i| n <= 2 * SHOWN || *i < SHOWN || *i >= n - SHOWN);
    match shape {
        [] => *text += &format!("{indent}{}\n", elements.first().map_or("", String::as_str)),
        [n] => {
            let mut parts: Vec<&str> = Vec::new();
            for i in shown(*n) {
                if i == n.saturating_sub(SHOWN) && *n > 2 * SHOWN {
                    parts.push("...");
                }
                parts.push(elements.get(i).map_or("", String::as_str));
            }
            *text += &format!("{indent}[{}]\n", parts.join(", "));
        }
        [n, rest @ ..] => {
            let size: usize = rest.iter().product();
            for i in shown(*n) {
                if i == n.saturating_sub(SHOWN) && *n > 2 * SHOWN {
                    *text += &format!("{indent}...\n");
                }
                let part = elements.get(i * size..(i + 1) * size).unwrap_or_default();
                if rest.len() > 1 {
                    *text += &format!("{indent}{i}:\n");
                }
                rows(part, rest, if rest.len() > 1 { depth + 1 } else { depth }, text);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_are_shares_of_the_reference() {
        let of = |values: &[f32]| vec![("y".to_string(), Tensor::from_f32(vec![values.len()], values).unwrap())];
        let text = differences(&of(&[3.0, -4.5]), &of(&[3.0, -4.0]));
        assert_eq!(text, "y: off by at most 1.25e-1 of the largest f32 result, 1.00e-1 root mean square\n");
        assert!(differences(&of(&[0.0]), &of(&[0.0])).contains("at most 0.00e0"));
        let ints = vec![("i".to_string(), Tensor::from_ints(Elem::I32, vec![1], &[1]).unwrap())];
        assert_eq!(differences(&ints, &ints), "");
    }

    #[test]
    fn summaries_leave_out_the_middle() {
        let values: Vec<f32> = (0..20).map(|n| n as f32).collect();
        let tensor = Tensor::from_f32(vec![2, 10], &values).unwrap();
        let text = summary(&vec![("x".to_string(), tensor)]);
        let row = "  [0.000000, 1.000000, 2.000000, ..., 7.000000, 8.000000, 9.000000]\n";
        assert!(text.starts_with(&format!("x: f32[2, 10]\n{row}")), "{text}");
    }
}
