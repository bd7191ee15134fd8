//! The numbers of a run, for its record (`attnc run --record`, `--html`).
//!
//! In: a program, how it is run, arguments. Out: for each value of graph IR, as written and after
//! the passes, its range, its first elements, and how far they are from the same value in `f64`,
//! in units of the running error bound of that value ([`Bounded`]). Values are observed with taps,
//! which stop some fusions; results come from the code without taps.

use super::Inputs;
use super::judge::{self, Bounds};
use super::run::{self, Called};
use super::side::Side;
use super::values::Watched;
use crate::cli::{Backend, CompareOptions, RunOptions};
use crate::driver::call::read_graph;
use crate::driver::session::{CommandError, Session};
use crate::ir::interp::{Outcome, bounded::Bounded};
use crate::tensor::Tensor;
use serde_json::{Value, json};

/// The number of elements that are shown of a value.
const FIRST: usize = 8;
/// The most elements of a softmax, a result or a tap that are recorded as a whole.
const WHOLE: usize = 4096;

/// The numbers of a call, for the field `values` of a record.
pub(in crate::driver) fn numbers(s: &mut Session, options: &RunOptions) -> Result<Value, CommandError> {
    let options = sides_of(options);
    let graph = read_graph(s, &options.file, &options.program, "run")?;
    let mut made = Side::of_graph(&options, graph.clone());
    made.prepare(s)?;
    let inputs = Inputs::read(s, &made, &options)?;
    let mut written = options.clone();
    (written.target.level, written.backend) = (0, Some(Backend::Interp));
    let mut written = Side::of_graph(&written, graph);
    written.prepare(s)?;
    let mut levels = Vec::new();
    for (name, side) in [("written", &written), ("optimised", &made)] {
        let ran = run::run(s, side, &inputs)?;
        let bounds = run::bounds(s, side, &inputs)?;
        levels.push((name, side.label.clone(), judged(side, &ran, &bounds, &inputs)));
    }
    let levels: Vec<Value> = levels
        .into_iter()
        .map(|(name, label, values)| json!({ "name": name, "label": label, "values": values }))
        .collect();
    Ok(json!({ "levels": levels }))
}

/// How values are computed: as `attnc run` would, without reports about passes.
fn sides_of(options: &RunOptions) -> CompareOptions {
    CompareOptions {
        file: options.file.clone(),
        other_file: None,
        with: Vec::new(),
        each_pass: false,
        all: true,
        bound: 1.0,
        json: None,
        backend: Some(options.backend),
        threads: options.threads,
        call: options.call.clone(),
        program: options.program.clone(),
        target: options.target.clone(),
        passes: options.passes.unreported(),
        messages: options.messages.clone(),
        other: None,
    }
}

/// The values of all calls of a side, and its results, in the order of the text.
fn judged(side: &Side, ran: &[Result<Called, String>], bounds: &[Outcome<Bounded>], inputs: &Inputs) -> Vec<Value> {
    let mut all = Vec::new();
    let names = inputs.steps.iter().filter_map(|step| step.call());
    for (n, ((function, _), called)) in names.zip(ran).enumerate() {
        let (Ok(called), Some(values)) = (called, side.values.get(function)) else { continue };
        let outcome = bounds.get(n);
        let bound = |path: &str| {
            let outcome = outcome?;
            Some(Bounds { array: outcome.taps.get(path)?, doubtful: outcome.doubtful.contains(path) })
        };
        for watched in &values.list {
            let Some(tensor) = called.inner.get(&watched.path) else { continue };
            all.push(value(n, function, &watched.path, Some(watched), tensor, bound(&watched.path)));
        }
        for (i, tensor) in called.results.iter().enumerate() {
            let array = outcome.and_then(|outcome| outcome.results.get(i));
            let bound = outcome.zip(array).map(|(outcome, array)| Bounds { array, doubtful: !outcome.certain });
            all.push(value(n, function, &format!("result.{i}"), None, tensor, bound));
        }
    }
    all
}

/// The numbers of one value; `watched` is absent for a result.
fn value(
    call: usize,
    function: &str,
    path: &str,
    watched: Option<&Watched>,
    tensor: &Tensor,
    bounds: Option<Bounds<'_>>,
) -> Value {
    let numbers = tensor.to_f64();
    let finite = || numbers.iter().copied().filter(|x| x.is_finite());
    let range = finite()
        .fold(None, |range: Option<(f64, f64)>, x| Some(range.map_or((x, x), |(low, high)| (low.min(x), high.max(x)))));
    let (mut near, mut worst, mut outside, mut open) = (0.0f64, None, 0usize, 0usize);
    for (at, x) in numbers.iter().enumerate() {
        let Some(own) = bounds.and_then(|bounds| judge::element(bounds, at)) else { continue };
        if own.error.is_infinite() {
            open += 1;
            continue;
        }
        let units = units(own, *x);
        if units > 1.0 {
            outside += 1;
        }
        if units > near || worst.is_none() {
            near = near.max(units);
            worst = Some(json!({
                "index": judge::index(at, tensor.shape()),
                "computed": number(*x), "meant": number(own.value), "bound": own.error, "units": number(units),
            }));
        }
    }
    let op = watched.map_or("result", |watched| watched.op.as_str());
    let is_whole = op == "softmax" || watched.is_none();
    let shown = if is_whole && numbers.len() <= WHOLE { numbers.len() } else { FIRST };
    json!({
        "call": call,
        "function": function,
        "name": path,
        "op": op,
        "line": watched.map_or("", |watched| watched.line.as_str()),
        "elem": tensor.elem().name(),
        "shape": tensor.shape(),
        "least": range.map(|(low, _)| low),
        "most": range.map(|(_, high)| high),
        "nan": numbers.iter().filter(|x| x.is_nan()).count(),
        "infinite": numbers.iter().filter(|x| x.is_infinite()).count(),
        "elements": numbers.iter().take(shown).map(|x| number(*x)).collect::<Vec<_>>(),
        "outside": outside,
        "unbounded": if bounds.is_some() { open } else { numbers.len() },
        "worst": worst,
    })
}

/// The distance of a number from the value, in units of the bound; infinite where one is NaN.
fn units(own: Bounded, x: f64) -> f64 {
    match () {
        () if own.value == x || own.value.is_nan() && x.is_nan() => 0.0,
        () if (own.value - x).is_nan() => f64::INFINITY,
        () => (own.value - x).abs() / own.error,
    }
}

/// A number as JSON, which has neither infinities nor NaN.
fn number(x: f64) -> Value {
    if x.is_finite() { json!(x) } else { json!(x.to_string()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Command, CommandLine};
    use std::ffi::OsString;

    /// The options of a run of this program with literals, and the program in a folder.
    fn options(folder: &std::path::Path, text: &str) -> RunOptions {
        let path = folder.join("m.air");
        std::fs::write(&path, text).unwrap();
        let line = ["attnc", "run", path.to_str().unwrap(), "--input", "x=[1, -2, 3]", "--backend", "interp"];
        match CommandLine::read(line.map(OsString::from)).unwrap().command {
            Command::Run(options) => options,
            other => panic!("{other:?}"),
        }
    }

    const PROGRAM: &str = "module \"m\"\nfunc @f(%0 \"x\": f32[S]) -> (f32[S]) {\n^bb0:\n  %1 = exp %0 : f32[S]\n  \
         %2 = mul %1, 2.0 : f32[S]\n  %3 = add %2, %1 : f32[S]\n  return %3\n}";

    #[test]
    fn numbers_are_within_their_bounds() {
        let folder = tempfile::tempdir().unwrap();
        let options = options(folder.path(), PROGRAM);
        let found = numbers(&mut Session::new(&options.messages), &options).unwrap();
        let levels = found["levels"].as_array().unwrap();
        assert_eq!(
            levels.iter().map(|level| level["name"].as_str().unwrap()).collect::<Vec<_>>(),
            ["written", "optimised"]
        );
        let written = levels[0]["values"].as_array().unwrap();
        assert_eq!(
            written.iter().map(|v| v["name"].as_str().unwrap()).collect::<Vec<_>>(),
            ["%1", "%2", "%3", "result.0"]
        );
        // exp of 1, -2, 3 by a table.
        let [least, most] = ["least", "most"].map(|field| written[0][field].as_f64().unwrap());
        assert!((least - 0.135_335_283).abs() < 1e-7 && (most - 20.085_536_923).abs() < 1e-5, "{least} {most}");
        assert!(written.iter().all(|v| v["outside"] == 0 && v["unbounded"] == 0 && v["nan"] == 0), "{written:?}");
    }

    #[test]
    fn a_planted_wrong_number_is_the_first_out_of_its_bound() {
        let folder = tempfile::tempdir().unwrap();
        let options = options(folder.path(), PROGRAM);
        let (mut s, compared) = (Session::new(&options.messages), sides_of(&options));
        let side = |text: &str, s: &mut Session| {
            std::fs::write(&compared.file, text).unwrap();
            let mut side = Side::of_graph(&compared, read_graph(s, &compared.file, &compared.program, "run").unwrap());
            side.watch();
            side
        };
        let meant = side(PROGRAM, &mut s);
        let wrong = side(&PROGRAM.replace("2.0", "2.0001"), &mut s);
        let inputs = Inputs::read(&mut s, &meant, &compared).unwrap();
        let ran = run::run(&mut s, &wrong, &inputs).unwrap();
        let bounds = run::bounds(&mut s, &meant, &inputs).unwrap();
        let all = judged(&meant, &ran, &bounds, &inputs);
        let outside: Vec<&str> =
            all.iter().filter(|v| v["outside"] != 0).map(|v| v["name"].as_str().unwrap()).collect();
        assert_eq!(outside, ["%2", "%3", "result.0"]);
    }

    #[test]
    fn a_number_that_should_not_be_there_is_infinitely_far() {
        let own = Bounded { value: 1.0, error: 0.5 };
        assert_eq!((units(own, 1.25), units(own, 2.0), units(own, f64::NAN)), (0.5, 2.0, f64::INFINITY));
        assert_eq!(units(Bounded { value: f64::NAN, error: 0.0 }, f64::NAN), 0.0);
    }
}
