//! The result of a comparison, and how it is shown.
//!
//! In: both sides with what they have computed. Out: the values that differ, in the order in which
//! they are computed, as text or as JSON.

use super::Inputs;
use super::judge::{Bounds, Element, Verdict, judge};
use super::pairs::{Evidence, Pairs, align, on_the_way};
use super::run::{self, Called, Run};
use super::side::Side;
use super::values::{Values, Watched};
use crate::cli::CompareOptions;
use crate::driver::running::call_failed;
use crate::driver::session::{CommandError, Session, show};
use crate::interface::matches;
use crate::ir::Value;
use crate::ir::interp::{Outcome, bounded::Bounded};
use crate::tensor::Tensor;
use serde_json::{Value as Json, json};
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;

/// The names of the sides in a report.
const SIDES: [&str; 2] = ["one", "two"];

/// A side after its run.
pub(super) struct Ran<'a> {
    pub(super) side: &'a Side,
    run: Run,
    bounds: Vec<Outcome<Bounded>>,
}

impl<'a> Ran<'a> {
    /// Runs a side.
    pub(super) fn new(s: &mut Session, side: &'a Side, inputs: &Inputs) -> Result<Ran<'a>, CommandError> {
        Ok(Ran { side, run: run::run(s, side, inputs)?, bounds: run::bounds(s, side, inputs)? })
    }

    fn bounds(&self, call: usize, which: &Which) -> Option<Bounds<'_>> {
        let outcome = self.bounds.get(call)?;
        match which {
            Which::Result(i) => Some(Bounds { array: outcome.results.get(*i)?, doubtful: !outcome.certain }),
            Which::Inner(path) => {
                Some(Bounds { array: outcome.taps.get(path)?, doubtful: outcome.doubtful.contains(path) })
            }
        }
    }
}

/// A value of a call.
enum Which {
    Result(usize),
    Inner(String),
}

impl Which {
    fn tensor<'c>(&self, called: &'c Called) -> Option<&'c Tensor> {
        match self {
            Which::Result(i) => called.results.get(*i),
            Which::Inner(path) => called.inner.get(path),
        }
    }
}

/// A value that differs.
pub(super) struct Finding {
    /// The name of a result, a tap or a state; empty for others.
    name: String,
    place: String,
    /// The line of the source.
    source: String,
    ty: String,
    shape: Vec<usize>,
    /// Number of axes that are iterations of loops.
    stacked: usize,
    /// Its line in the IR of each side.
    lines: [String; 2],
    verdict: Verdict,
}

/// The result of a comparison.
#[derive(Default)]
pub(in crate::driver) struct Report {
    labels: [String; 2],
    /// The pass after which it is wrong, and its number.
    pub(super) pass: Option<(usize, String)>,
    /// The call, from 1, and its entry point.
    call: (usize, String),
    findings: Vec<Finding>,
    /// The error of the side that fails.
    failed: [Option<String>; 2],
    /// Numbers of values and of results that were compared.
    compared: (usize, usize),
    /// Numbers that differ and have no bound, and the first of them.
    open: usize,
    first_open: Option<(String, Vec<usize>, [f64; 2])>,
    near: f64,
    /// Inner values that differ though what they lead to agrees.
    moved: usize,
}

impl Report {
    /// Runs and compares two sides.
    pub(super) fn of_sides(
        s: &mut Session,
        one: &Side,
        two: &Side,
        inputs: &Inputs,
        most: f64,
    ) -> Result<Report, CommandError> {
        let one = Ran::new(s, one, inputs)?;
        let two = Ran::new(s, two, inputs)?;
        Report::of_runs(s, [&one, &two], inputs, most)
    }

    /// Compares what two sides have computed.
    pub(super) fn of_runs(
        s: &mut Session,
        ran: [&Ran<'_>; 2],
        inputs: &Inputs,
        most: f64,
    ) -> Result<Report, CommandError> {
        let mut report = Report { labels: ran.map(|r| r.side.label.clone()), ..Report::default() };
        let calls: Vec<&str> = inputs.steps.iter().filter_map(|step| Some(step.call()?.0)).collect();
        for (n, function) in calls.iter().enumerate() {
            report.call = (n + 1, (*function).to_string());
            match ran.map(|r| r.run.get(n)) {
                [Some(Ok(one)), Some(Ok(two))] => report.call(s, ran, (n, function), [one, two], most),
                [Some(Err(one)), Some(Err(two))] => {
                    let both = if one == two { one.clone() } else { format!("{one}; on the other side: {two}") };
                    return Err(call_failed(s, &format!("the call fails on both sides: {both}")));
                }
                found => report.failed = found.map(|run| run.and_then(|run| run.as_ref().err().cloned())),
            }
            // Later calls may depend on the values that differ.
            if !report.is_same() {
                break;
            }
        }
        Ok(report)
    }

    /// Compares a call.
    fn call(&mut self, s: &Session, ran: [&Ran<'_>; 2], (n, function): (usize, &str), called: [&Called; 2], most: f64) {
        let none = Values::default();
        let [one, two] = ran.map(|r| r.side.values.get(function).unwrap_or(&none));
        let sides = [ran[0].side, ran[1].side];
        let pairs = align(one, two, sides[0].has_origin_of(sides[1]), sides[0].source_name() == sides[1].source_name());
        let reference = reference(sides);
        let other = [two, one][reference];
        let mut judged = |which: [&Which; 2]| {
            let (Some(x), Some(y)) = (which[0].tensor(called[0]), which[1].tensor(called[1])) else { return None };
            let bounds = [ran[0].bounds(n, which[0]), ran[1].bounds(n, which[1])];
            let verdict = judge([x, y], bounds, reference, most);
            self.open += verdict.open;
            if let (None, Some(first)) = (&self.first_open, &verdict.first_open) {
                let name = match which[0] {
                    Which::Result(i) => format!("result {i}"),
                    Which::Inner(path) => path.clone(),
                };
                self.first_open = Some((name, first.0.clone(), first.1));
            }
            self.near = self.near.max(verdict.near);
            Some((verdict, x.shape().to_vec()))
        };

        // Taps and results have names on both sides.
        let (mut named, mut wrong): (Vec<Finding>, BTreeSet<Value>) = Default::default();
        let mut results = 0;
        let returned = [one.returned(), two.returned()];
        let own = other.named();
        for path in called[0].inner.keys().filter(|path| !path.starts_with('%')) {
            let which = Which::Inner(path.clone());
            let Some((verdict, shape)) = judged([&which, &which]) else { continue };
            results += 1;
            if !verdict.is_same() {
                wrong.extend(own.iter().filter(|(pattern, _)| matches(pattern, path)).map(|(_, v)| *v));
                named.push(Finding::new(s, [None, None], format!("tap {path}"), verdict, shape));
            }
        }
        for i in 0..called[0].results.len().max(called[1].results.len()) {
            let which = Which::Result(i);
            let Some((verdict, shape)) = judged([&which, &which]) else { continue };
            results += 1;
            if !verdict.is_same() {
                wrong.extend(if reference == 0 { returned[1].get(i) } else { returned[0].get(i) });
                let watched = [(one, &returned[0]), (two, &returned[1])]
                    .map(|(values, list)| list.get(i).and_then(|v| values.list.get(values.index(*v)?)));
                let name = if called[0].results.len() == 1 { "result".to_string() } else { format!("result.{i}") };
                named.push(Finding::new(s, watched, name, verdict, shape));
            }
        }

        // Inner values.
        let (mut inner, mut agree) = (Vec::new(), BTreeSet::new());
        for (i, j) in &pairs.list {
            let (Some(x), Some(y)) = (one.list.get(*i), two.list.get(*j)) else { continue };
            let which = [Which::Inner(x.path.clone()), Which::Inner(y.path.clone())];
            let Some((verdict, shape)) = judged([&which[0], &which[1]]) else { continue };
            self.compared.0 += 1;
            let own = [y, x][reference];
            if verdict.is_same() {
                agree.extend(own.value);
            } else {
                inner.push((own, Finding::new(s, [Some(x), Some(y)], String::new(), verdict, shape)));
            }
        }
        self.compared.1 += results;
        let mut kept = self.kept(inner, &pairs, other, (&wrong, &agree), !named.is_empty());
        // A result is an inner value too.
        for finding in named {
            let own = |k: &&mut Finding| !k.lines[0].is_empty() && k.lines[0] == finding.lines[0];
            match kept.iter_mut().find(own) {
                Some(same) => same.name = finding.name,
                None => kept.push(finding),
            }
        }
        self.findings = kept;
    }

    /// The inner values that count, in the order in which they are computed.
    fn kept(
        &mut self,
        inner: Vec<(&Watched, Finding)>,
        pairs: &Pairs,
        other: &Values,
        (wrong, agree): (&BTreeSet<Value>, &BTreeSet<Value>),
        differ: bool,
    ) -> Vec<Finding> {
        let way = other.function.as_ref().map(|f| on_the_way(f, wrong, agree));
        let counts = |watched: &Watched| match (pairs.evidence, &way, watched.value) {
            (Evidence::Structure, ..) => true,
            (Evidence::Origin, Some(way), Some(v)) => way.contains(&v),
            (Evidence::Origin, ..) => differ,
        };
        let all = inner.len();
        let mut kept: Vec<(Vec<usize>, Finding)> = inner
            .into_iter()
            .filter(|(watched, _)| counts(watched))
            .map(|(watched, finding)| (when(watched, &finding.verdict), finding))
            .collect();
        self.moved += all - kept.len();
        kept.sort_by(|(a, _), (b, _)| a.cmp(b));
        kept.into_iter().map(|(_, finding)| finding).collect()
    }

    /// Do the sides agree?
    pub(in crate::driver) fn is_same(&self) -> bool {
        self.findings.is_empty() && self.failed.iter().all(Option::is_none)
    }

    /// Prints the report, and writes it as JSON if that is asked for.
    pub(super) fn write(&self, s: &mut Session, options: &CompareOptions) -> Result<(), CommandError> {
        if let Some(path) = &options.json {
            let text = format!("{:#}\n", self.json());
            if path == Path::new("-") {
                return show(&text);
            }
            s.write_now(path, text.as_bytes())?;
        }
        show(&self.text(options.all))
    }

    /// The report for a reader.
    fn text(&self, all: bool) -> String {
        let mut text = String::new();
        let [one, two] = &self.labels;
        let _ = writeln!(text, "one  {one}\ntwo  {two}");
        if let Some((number, pass)) = &self.pass {
            let _ = writeln!(text, "wrong after pass {number}, `{pass}`");
        }
        let (n, function) = &self.call;
        let call = if *n > 1 { format!("call {n}, `{function}`") } else { format!("`{function}`") };
        for (side, error) in SIDES.iter().zip(&self.failed) {
            if let Some(error) = error {
                let _ = writeln!(text, "differ: {call} fails on side {side} alone: {error}");
            }
        }
        let shown = if all { self.findings.len() } else { 1 };
        for finding in self.findings.iter().take(shown) {
            finding.write(&call, &mut text);
        }
        match self.findings.len().saturating_sub(shown) {
            0 => {}
            1 => text += "1 more value differs after it (`--all` shows it)\n",
            more => drop(writeln!(text, "{more} more values differ after it (`--all` shows them)")),
        }
        if self.is_same() {
            let (values, results) = self.compared;
            let plural = |n: usize, word: &str| format!("{n} {word}{}", if n == 1 { "" } else { "s" });
            let _ = writeln!(
                text,
                "the same within the bounds: {} and {} of {call}, at most {:.2} bounds apart",
                plural(values, "inner value"),
                plural(results, "result"),
                self.near
            );
            if self.moved > 0 {
                let _ = writeln!(text, "{} differ on the way to results that agree", plural(self.moved, "value"));
            }
        }
        if let Some((name, index, [one, two])) = &self.first_open {
            let _ = writeln!(
                text,
                "numbers that differ and may, as they have no bound: {}, the first {name} {index:?}: one {one}, two {two}",
                self.open
            );
        }
        text
    }

    fn json(&self) -> Json {
        json!({
            "same": self.is_same(),
            "sides": self.labels,
            "pass": self.pass.as_ref().map(|(number, name)| json!({"number": number, "name": name})),
            "call": self.call.0,
            "function": self.call.1,
            "failed": self.failed,
            "values": self.findings.iter().map(Finding::json).collect::<Vec<Json>>(),
            "compared": {"values": self.compared.0, "results": self.compared.1},
            "moved": self.moved,
            "without_bound": self.open,
            "nearest": self.near,
        })
    }
}

/// The side that is nearer to the program as written.
fn reference(sides: [&Side; 2]) -> usize {
    match sides.map(|side| side.graph().map(|_| side.options.target.level)) {
        [None, Some(_)] => 1,
        [Some(one), Some(two)] if two < one => 1,
        _ => 0,
    }
}

/// When the first wrong element of a value is computed, among others of the same function.
fn when(watched: &Watched, verdict: &Verdict) -> Vec<usize> {
    let first = verdict.first.as_ref().map_or(&[][..], |first| &first.index);
    let mut iterations = first.iter();
    watched
        .order
        .iter()
        .flat_map(|(position, stacked)| {
            let iteration = if *stacked { iterations.next().copied().unwrap_or(0) } else { 0 };
            [*position, iteration]
        })
        .collect()
}

impl Finding {
    fn new(s: &Session, watched: [Option<&Watched>; 2], name: String, verdict: Verdict, shape: Vec<usize>) -> Finding {
        let known = watched.into_iter().flatten().next();
        let place = known.map_or(String::new(), |w| w.place.clone());
        let source = known.and_then(|w| {
            let file = place.split(':').next()?;
            let (_, found) = s.sources.files().find(|(_, f)| f.base_name() == file)?;
            let line = usize::try_from(w.loc.line).ok()?.checked_sub(1)?;
            Some(found.text().lines().nth(line)?.trim().to_string())
        });
        Finding {
            name,
            source: source.unwrap_or_default(),
            ty: known.map_or(String::new(), |w| w.ty.clone()),
            stacked: known.map_or(0, Watched::stacked).min(shape.len()),
            lines: watched.map(|w| w.map_or(String::new(), |w| w.line.clone())),
            place,
            shape,
            verdict,
        }
    }

    fn write(&self, call: &str, text: &mut String) {
        let mut head = vec![format!("differ: {call}")];
        head.extend([&self.name, &self.place].into_iter().filter(|part| !part.is_empty()).cloned());
        let _ = writeln!(
            text,
            "{}: {} = {:?}",
            head.join(", "),
            self.ty,
            self.shape.get(self.stacked..).unwrap_or_default()
        );
        if !self.source.is_empty() {
            let _ = writeln!(text, "    {}", self.source);
        }
        for (side, line) in SIDES.iter().zip(&self.lines).filter(|(_, line)| !line.is_empty()) {
            let _ = writeln!(text, "  {side}  {line}");
        }
        if let Some([one, two]) = &self.verdict.shapes {
            let _ = writeln!(text, "  the shapes are {one:?} and {two:?}");
        }
        let elements = [&self.verdict.first, &self.verdict.worst];
        for (n, element) in elements.into_iter().enumerate() {
            if let Some(element) = element
                .as_ref()
                .filter(|e| n == 0 || self.verdict.first.as_ref().is_some_and(|first| first.index != e.index))
            {
                element_text(element, self.stacked, text);
            }
        }
        let _ = writeln!(text, "  {} of {} elements differ", self.verdict.differ, self.verdict.elements);
        if let Some(cause) = self.verdict.worst.as_ref().and_then(cause) {
            let _ = writeln!(text, "  {cause}");
        }
    }

    fn json(&self) -> Json {
        let element = |e: &Option<Element>| {
            e.as_ref().map(|e| {
                let number = |x: f64| if x.is_finite() { json!(x) } else { json!(format!("{x}")) };
                json!({
                    "index": e.index,
                    "numbers": e.numbers.map(number),
                    "bound": number(e.bound),
                    "bounds_apart": number(e.units),
                    "f64": e.meant.map(|m| m.map(|(value, within)| json!({"value": number(value), "within": within}))),
                })
            })
        };
        json!({
            "name": self.name,
            "at": self.place,
            "type": self.ty,
            "shape": self.shape,
            "iterations": self.stacked,
            "ir": self.lines,
            "elements": self.verdict.elements,
            "differ": self.verdict.differ,
            "first": element(&self.verdict.first),
            "worst": element(&self.verdict.worst),
            "shapes": self.verdict.shapes,
        })
    }
}

/// An element that differs, on a line.
fn element_text(e: &Element, stacked: usize, text: &mut String) {
    let (iteration, index) = e.index.split_at(stacked.min(e.index.len()));
    let at = if iteration.is_empty() { String::new() } else { format!("iteration {iteration:?}, ") };
    let [one, two] = e.numbers;
    let far = match e.units {
        _ if one.is_nan() || two.is_nan() || one.is_infinite() || two.is_infinite() => {
            "no bound admits both".to_string()
        }
        units if units.is_infinite() => "they must be equal".to_string(),
        units if units < 1.0 => format!("{units:.3} bounds of {:.1e} apart", e.bound),
        units => format!("{units:.1} bounds of {:.1e} apart", e.bound),
    };
    let _ = writeln!(text, "  {at}at {index:?}: one {one}, two {two}: {far}");
}

/// Which side does not compute what its IR means.
fn cause(e: &Element) -> Option<String> {
    let wrong = |side: &str, value: f64| format!("side {side} does not compute its IR, which means {value} here");
    match e.meant {
        [Some((_, true)), Some((_, true))] => {
            Some("each side computes its own IR; they do not mean the same".to_string())
        }
        [Some((one, false)), Some((two, false))] => Some(format!("{}, nor does two ({two})", wrong(SIDES[0], one))),
        [Some((value, false)), _] => Some(wrong(SIDES[0], value)),
        [_, Some((value, false))] => Some(wrong(SIDES[1], value)),
        _ => None,
    }
}
