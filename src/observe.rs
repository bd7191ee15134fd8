//! Dumps, bisection and timing of the steps of a pipeline, for all pipelines of the compiler.
//!
//! In: options, the name of each step, and the text of the IR on request. Out: text and files for a
//! [`Sink`]. It must not know what a step does, nor which IR it changes: passes rewrite graph IR
//! (`passes::manager`), the steps of the schedule tile IR (`tile::schedule::pipeline`).

use std::fmt::Write as _;
use std::time::{Duration, Instant};

/// The steps that a printing option selects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Select {
    /// No step.
    #[default]
    None,
    /// The steps with these names.
    Named(Vec<String>),
    /// Every step.
    All,
}

impl Select {
    /// Parses `all` or a comma-separated list of names.
    pub fn parse(text: &str) -> Select {
        let names: Vec<String> = text.split(',').map(str::trim).filter(|n| !n.is_empty()).map(String::from).collect();
        match names.as_slice() {
            [] => Select::None,
            [one] if one == "all" => Select::All,
            _ => Select::Named(names),
        }
    }

    /// Is this step selected?
    pub fn has(&self, step: &str) -> bool {
        match self {
            Select::None => false,
            Select::Named(names) => names.iter().any(|n| n == step),
            Select::All => true,
        }
    }

    /// The names that were listed individually; the caller checks that such steps exist.
    pub fn names(&self) -> &[String] {
        match self {
            Select::Named(names) => names,
            Select::None | Select::All => &[],
        }
    }
}

/// What `--print-changed` prints after a step that changes the module.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PrintChanged {
    /// Nothing.
    #[default]
    No,
    /// The whole IR.
    Whole,
    /// A diff with context lines.
    Diff,
}

/// Options: which steps of a pipeline are observed, and where it ends.
#[derive(Clone, Debug)]
pub struct Watch {
    /// Dump before these steps.
    pub print_before: Select,
    /// Dump after these steps.
    pub print_after: Select,
    /// Dump after steps that change the module.
    pub print_changed: PrintChanged,
    /// Run the verifier after every step.
    pub verify_each: bool,
    /// Stop after the first run of this step.
    pub stop_after: Option<String>,
    /// Skip every run of a step beyond this number, to find a faulty run by bisection.
    pub bisect_limit: Option<u64>,
    /// Report the time of each step.
    pub time_passes: bool,
    /// Pass the IR after each step to [`Sink::file`].
    pub dump_files: bool,
    /// Pass the IR before the first and after each step to [`Sink::step`].
    pub record: bool,
}

impl Default for Watch {
    fn default() -> Watch {
        Watch {
            print_before: Select::None,
            print_after: Select::None,
            print_changed: PrintChanged::No,
            verify_each: true,
            stop_after: None,
            bisect_limit: None,
            time_passes: false,
            dump_files: false,
            record: false,
        }
    }
}

impl Watch {
    /// The same end, with nothing printed: for the targets that dumps do not show.
    #[must_use]
    pub fn silent(&self) -> Watch {
        let (stop_after, bisect_limit) = (self.stop_after.clone(), self.bisect_limit);
        Watch { verify_each: self.verify_each, stop_after, bisect_limit, ..Watch::default() }
    }
}

/// Numbers that go on from one pipeline to the next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Runs so far that `--bisect-limit` counts.
    pub runs: u64,
    /// Steps reported so far, for file names.
    pub steps: usize,
}

/// Receives the text output of pipelines, and keeps their counts. The driver writes it to stderr
/// and to files; tests collect it.
pub trait Sink {
    /// A dump or a report, including its header line and final newline.
    fn text(&mut self, text: &str);
    /// The IR after a step, for `--dump-dir`. File names sort in the order of the steps.
    fn file(&mut self, name: &str, text: &str);
    /// The IR after a step, for a record.
    fn step(&mut self, _name: &str, _text: String) {}
    /// The counts so far.
    fn counts(&mut self) -> &mut Counts;
}

/// A sink that collects its input in memory.
#[derive(Clone, Debug, Default)]
pub struct Collected {
    /// Concatenated dumps and reports.
    pub text: String,
    /// File names and contents, in order of creation.
    pub files: Vec<(String, String)>,
    /// Names of steps and the IR after them.
    pub steps: Vec<(String, String)>,
    /// The counts so far.
    pub counts: Counts,
}

impl Sink for Collected {
    fn text(&mut self, text: &str) {
        self.text += text;
    }

    fn file(&mut self, name: &str, text: &str) {
        self.files.push((name.to_string(), text.to_string()));
    }

    fn step(&mut self, name: &str, text: String) {
        self.steps.push((name.to_string(), text));
    }

    fn counts(&mut self) -> &mut Counts {
        &mut self.counts
    }
}

/// Observes one run of a pipeline.
pub struct Observer<'a> {
    watch: &'a Watch,
    sink: &'a mut dyn Sink,
    /// Ending of files with the pipeline's IR, without the dot.
    ending: &'static str,
    times: Vec<(&'static str, Duration)>,
    stopped: bool,
}

impl<'a> Observer<'a> {
    /// An observer of a pipeline whose IR is saved in files with this ending.
    pub fn new(watch: &'a Watch, sink: &'a mut dyn Sink, ending: &'static str) -> Observer<'a> {
        Observer { watch, sink, ending, times: Vec::new(), stopped: false }
    }

    /// Has the step of `--stop-after` run?
    pub fn is_stopped(&self) -> bool {
        self.stopped
    }

    /// Records the IR before the first step; `name` is the stage that made it.
    pub fn begin(&mut self, name: &str, text: impl FnOnce() -> String) {
        if self.watch.record {
            self.sink.step(name, text());
        }
    }

    /// Announces a step.
    pub fn before(&mut self, step: &str, text: impl FnOnce() -> String) {
        if self.watch.print_before.has(step) {
            self.dump("Before", step, &text());
        }
    }

    /// Counts a run of a step, which `what` describes; is it beyond the limit, so that it must not
    /// happen?
    pub fn skips(&mut self, what: impl FnOnce(u64) -> String) -> bool {
        let counts = self.sink.counts();
        counts.runs += 1;
        let (runs, Some(limit)) = (counts.runs, self.watch.bisect_limit) else { return false };
        let verb = if runs > limit { "not running" } else { "running" };
        self.sink.text(&format!("bisect: {verb} {}\n", what(runs)));
        runs > limit
    }

    /// Records the time of a run.
    pub fn timed(&mut self, step: &'static str, start: Instant) {
        self.times.push((step, start.elapsed()));
    }

    /// Reports the IR after a step.
    pub fn report(
        &mut self,
        step: &str,
        changed: bool,
        before: impl FnOnce() -> String,
        after: impl FnOnce() -> String,
    ) {
        self.sink.counts().steps += 1;
        let of_changed = if changed { self.watch.print_changed } else { PrintChanged::No };
        let whole = self.watch.print_after.has(step) || of_changed == PrintChanged::Whole;
        if !whole && of_changed != PrintChanged::Diff && !self.watch.dump_files && !self.watch.record {
            return;
        }
        let after = after();
        if self.watch.dump_files {
            let number = self.sink.counts().steps;
            self.sink.file(&format!("{number:02}-{step}.{}", self.ending), &after);
        }
        if whole {
            self.dump("After", step, &after);
        }
        if of_changed == PrintChanged::Diff {
            let before = before();
            let lines = similar::TextDiff::from_lines(&before, &after);
            self.dump("After", step, &lines.unified_diff().context_radius(3).to_string());
        }
        if self.watch.record {
            self.sink.step(step, after);
        }
    }

    /// Ends the pipeline if it should stop after this step.
    pub fn stop_at(&mut self, step: &str) {
        self.stopped |= self.watch.stop_after.as_deref() == Some(step);
    }

    /// Passes a report on.
    pub fn text(&mut self, text: &str) {
        self.sink.text(text);
    }

    /// The header has MLIR's format, which viewers of pass pipelines parse.
    fn dump(&mut self, when: &str, step: &str, text: &str) {
        self.sink.text(&format!("// -----// IR Dump {when} {step} //----- //\n{text}\n"));
    }

    /// Reports the times, if requested, of what `title` names.
    pub fn finish(self, title: &str) {
        if self.watch.time_passes {
            self.sink.text(&time_table(&self.times, title));
        }
    }
}

/// Time per step over all of its runs, in the order of first runs.
fn time_table(times: &[(&'static str, Duration)], title: &str) -> String {
    let mut rows: Vec<(&str, Duration, u32)> = Vec::new();
    for (name, time) in times {
        match rows.iter_mut().find(|(n, ..)| n == name) {
            Some((_, total, runs)) => {
                *total += *time;
                *runs += 1;
            }
            None => rows.push((name, *time, 1)),
        }
    }
    let mut table = format!("// time of {title}\n");
    for (name, time, runs) in &rows {
        let _ = writeln!(table, "{:>10.3} ms  {runs:>2} x  {name}", time.as_secs_f64() * 1e3);
    }
    let total: Duration = rows.iter().map(|(_, t, _)| *t).sum();
    let _ = writeln!(table, "{:>10.3} ms        all", total.as_secs_f64() * 1e3);
    table
}
