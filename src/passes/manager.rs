//! The pass manager: runs passes with dumps, verification, bisection, timing and counters.
//!
//! In: a verified module, options, and a sink for text. Out: the module after its passes, their
//! remarks, and the requested dumps and reports. It does not know what any pass does.

use std::collections::BTreeSet;
use std::fmt::{self, Write as _};
use std::time::{Duration, Instant};

use super::options::{Options, PrintChanged};
use super::{Changed, Context, Pass, Remark, render_remarks};
use crate::ir::requirements::{keep, requirements};
use crate::ir::{self, Loc, Module, text};
use crate::shape::Fact;

/// Receives the text output of the passes. The driver writes it to stderr and to files; tests
/// collect it.
pub trait Sink {
    /// A dump or a report, including its header line and final newline.
    fn text(&mut self, text: &str);
    /// The IR after a pass, for `--dump-dir`. File names sort in the order of the passes.
    fn file(&mut self, name: &str, text: &str);
}

/// A sink that collects its input in memory.
#[derive(Clone, Debug, Default)]
pub struct Collected {
    /// Concatenated dumps and reports.
    pub text: String,
    /// File names and contents, in order of creation.
    pub files: Vec<(String, String)>,
}

impl Sink for Collected {
    fn text(&mut self, text: &str) {
        self.text += text;
    }

    fn file(&mut self, name: &str, text: &str) {
        self.files.push((name.to_string(), text.to_string()));
    }
}

/// A pass left an invalid module: always a bug in attnc. The driver saves both texts and prints how
/// to reproduce it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PassError {
    /// Name of the pass.
    pub pass: &'static str,
    /// The IR before the pass.
    pub before: String,
    /// The IR after the pass, with each verifier error below its line.
    pub errors: String,
}

impl fmt::Display for PassError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the pass `{}` left an invalid module:\n{}", self.pass, self.errors)
    }
}

impl std::error::Error for PassError {}

/// Runs the given passes, in their order, over a module.
///
/// # Errors
/// The verifier's errors after a pass.
pub fn run_passes(
    module: &mut Module,
    passes: &[Pass],
    options: &Options,
    sink: &mut dyn Sink,
) -> Result<Vec<Remark>, PassError> {
    let mut manager = Manager::new(module, options, sink);
    for pass in passes {
        manager.run(pass)?;
    }
    Ok(manager.finish())
}

/// The state of one run over a module.
pub(super) struct Manager<'a> {
    module: &'a mut Module,
    pub(super) options: &'a Options,
    sink: &'a mut dyn Sink,
    context: Context,
    times: Vec<(&'static str, Duration)>,
    /// The number of runs of a pass on a function so far, for bisection.
    runs: u64,
    /// The number of runs of a pass on the module so far, for file names.
    steps: usize,
    stopped: bool,
    /// Is this a repetition? Then passes that change nothing are not dumped or reported.
    again: bool,
    /// Has a pass changed anything since this was last reset?
    changed: Changed,
    /// Cached facts of each function, valid until it changes.
    known: Vec<FunctionFacts>,
    /// A copy of the module, if nothing has changed since it was made.
    unchanged: Option<Module>,
}

/// Cached facts of a function.
#[derive(Default)]
struct FunctionFacts {
    /// Its requirements on a call.
    needs: Option<Vec<(Fact, Loc)>>,
    /// Passes that changed nothing in it.
    done: BTreeSet<&'static str>,
}

/// The maximum number of repetitions of a group of passes; no known program needs as many.
const MAX_ROUNDS: usize = 8;

impl<'a> Manager<'a> {
    pub(super) fn new(module: &'a mut Module, options: &'a Options, sink: &'a mut dyn Sink) -> Manager<'a> {
        let arrays = module.params.iter().map(|p| (p.name.clone(), p.counts.clone())).collect();
        let context = Context { arrays, ..Context::new(options.float) };
        Manager {
            module,
            options,
            sink,
            context,
            times: Vec::new(),
            runs: 0,
            steps: 0,
            stopped: false,
            again: false,
            changed: Changed::No,
            known: Vec::new(),
            unchanged: None,
        }
    }

    /// Repeats some passes until they change nothing.
    pub(super) fn until_done(&mut self, passes: fn(&mut Self) -> Result<(), PassError>) -> Result<(), PassError> {
        let (again, mut changed) = (self.again, self.changed);
        for round in 0..MAX_ROUNDS {
            self.again = again || round > 0;
            self.changed = Changed::No;
            passes(self)?;
            changed = changed.or(self.changed);
            if self.changed == Changed::No {
                break;
            }
        }
        (self.again, self.changed) = (again, changed);
        Ok(())
    }

    /// Runs a pass on every function, with the dumps and checks requested before and after it.
    pub(super) fn run(&mut self, pass: &Pass) -> Result<(), PassError> {
        if self.stopped {
            return Ok(());
        }
        let options = self.options;
        if options.print_before.has(pass.name) && !self.again {
            self.dump("Before", pass.name, &text::print(self.module));
        }
        // The module before the pass is kept if it is compared, or needed to report a bug.
        let before = (options.verify_each || options.print_changed != PrintChanged::No)
            .then(|| self.unchanged.take().unwrap_or_else(|| self.module.clone()));

        let start = Instant::now();
        let remarks = self.context.remarks.len();
        let changed = self.run_on_functions(pass);
        self.changed = self.changed.or(changed);
        if self.again {
            self.only_new_remarks(remarks, changed);
        }
        self.times.push((pass.name, start.elapsed()));

        if options.verify_each
            && changed == Changed::Yes
            && let Err(errors) = ir::verify(self.module)
        {
            let before = before.map(|module| text::print(&module)).unwrap_or_default();
            return Err(PassError { pass: pass.name, before, errors: errors.to_string() });
        }
        if !self.again || changed == Changed::Yes {
            self.report(pass, changed, before.as_ref());
        }
        if changed == Changed::No {
            self.unchanged = before;
        }
        self.stopped = options.stop_after.as_deref() == Some(pass.name);
        Ok(())
    }

    /// Keeps only the new remarks of a repeated pass; none if it changed nothing.
    fn only_new_remarks(&mut self, first: usize, changed: Changed) {
        let new = self.context.remarks.split_off(first);
        if changed == Changed::Yes {
            for remark in new {
                if !self.context.remarks.contains(&remark) {
                    self.context.remarks.push(remark);
                }
            }
        }
    }

    fn run_on_functions(&mut self, pass: &Pass) -> Changed {
        let mut changed = Changed::No;
        self.context.pass = pass.name;
        self.known.resize_with(self.module.functions.len(), FunctionFacts::default);
        for (function, known) in self.module.functions.iter_mut().zip(&mut self.known) {
            // The pass changed nothing here before, and no other pass has since.
            if self.again && known.done.contains(pass.name) {
                continue;
            }
            self.runs += 1;
            if let Some(limit) = self.options.bisect_limit {
                let skipped = self.runs > limit;
                let verb = if skipped { "not running" } else { "running" };
                self.sink.text(&format!("bisect: {verb} pass ({}) {} on `{}`\n", self.runs, pass.name, function.name));
                if skipped {
                    continue;
                }
            }
            // The function keeps its requirements on a call, whatever becomes of the operations
            // that required them.
            let before = known.needs.get_or_insert_with(|| requirements(function));
            let values = function.value_count();
            let this = (pass.run)(function, &mut self.context);
            // A value that a pass created and then abandoned is a change too.
            let this = if function.value_count() == values { this } else { Changed::Yes };
            if this == Changed::Yes {
                let needs = keep(function, std::mem::take(before));
                *known = FunctionFacts { needs, ..FunctionFacts::default() };
            } else {
                known.done.insert(pass.name);
            }
            changed = changed.or(this);
        }
        changed
    }

    fn report(&mut self, pass: &Pass, changed: Changed, before: Option<&Module>) {
        self.steps += 1;
        let whole = self.options.print_after.has(pass.name)
            || (changed == Changed::Yes && self.options.print_changed == PrintChanged::Whole);
        let diff = changed == Changed::Yes && self.options.print_changed == PrintChanged::Diff;
        if !whole && !diff && !self.options.dump_files {
            return;
        }
        let after = text::print(self.module);
        if self.options.dump_files {
            self.sink.file(&format!("{:02}-{}.air", self.steps, pass.name), &after);
        }
        if whole {
            self.dump("After", pass.name, &after);
        }
        if diff {
            let before = before.map(text::print).unwrap_or_default();
            let lines = similar::TextDiff::from_lines(&before, &after);
            self.dump("After", pass.name, &lines.unified_diff().context_radius(3).to_string());
        }
    }

    /// The header has MLIR's format, which viewers of pass pipelines parse.
    fn dump(&mut self, when: &str, pass: &str, text: &str) {
        self.sink.text(&format!("// -----// IR Dump {when} {pass} //----- //\n{text}\n"));
    }

    pub(super) fn finish(self) -> Vec<Remark> {
        if self.options.remarks {
            self.sink.text(&render_remarks(&self.context.remarks, self.module));
        }
        if self.options.stats {
            let mut table = String::from("// counters of the passes\n");
            for ((pass, what), n) in &self.context.stats {
                let _ = writeln!(table, "{n:>8}  {pass}: {what}");
            }
            self.sink.text(&table);
        }
        if self.options.time_passes {
            self.sink.text(&time_table(&self.times));
        }
        self.context.remarks
    }
}

/// Time per pass over all of its runs, in the order of first runs.
fn time_table(times: &[(&'static str, Duration)]) -> String {
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
    let mut table = String::from("// time of the passes\n");
    for (name, time, runs) in &rows {
        let _ = writeln!(table, "{:>10.3} ms  {runs:>2} x  {name}", time.as_secs_f64() * 1e3);
    }
    let total: Duration = rows.iter().map(|(_, t, _)| *t).sum();
    let _ = writeln!(table, "{:>10.3} ms        all", total.as_secs_f64() * 1e3);
    table
}
