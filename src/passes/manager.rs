//! What surrounds a pass when it runs: dumps, verification, bisection, times, counters.
//!
//! In: a verified module, options, and a sink for texts. Out: the module after its passes, their remarks, and the requested
//! dumps and reports. What this must not know: what a pass does.

use std::collections::BTreeSet;
use std::fmt::{self, Write as _};
use std::time::{Duration, Instant};

use super::options::{Options, PrintChanged};
use super::{Changed, Context, Pass, Remark, render_remarks};
use crate::ir::requirements::{keep, requirements};
use crate::ir::{self, Loc, Module, text};
use crate::shape::Fact;

/// Where texts go. The driver writes them to stderr and to files; tests collect them.
pub trait Sink {
    /// A dump or a report, with its header line and its last newline.
    fn text(&mut self, text: &str);
    /// The IR after a pass, for `--dump-dir`, under a name that sorts in the order of the passes.
    fn file(&mut self, name: &str, text: &str);
}

/// A sink that keeps what it is given.
#[derive(Clone, Debug, Default)]
pub struct Collected {
    /// Dumps and reports, one after another.
    pub text: String,
    /// Files, by name.
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

/// A pass broke the module: always a bug in attnc. The driver saves both texts and says how to run it again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PassError {
    /// The pass.
    pub pass: &'static str,
    /// The IR before it, as text.
    pub before: String,
    /// What the verifier says, each error under its line of the IR after the pass.
    pub errors: String,
}

impl fmt::Display for PassError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the pass `{}` left a broken module:\n{}", self.pass, self.errors)
    }
}

impl std::error::Error for PassError {}

/// Runs the given passes, in their order, over a module.
///
/// # Errors
/// What the verifier found after a pass.
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

/// A module on its way through passes.
pub(super) struct Manager<'a> {
    module: &'a mut Module,
    pub(super) options: &'a Options,
    sink: &'a mut dyn Sink,
    context: Context,
    times: Vec<(&'static str, Duration)>,
    /// Runs of a pass on a function so far, for bisection.
    runs: u64,
    /// Runs of a pass on the module so far, for the names of files.
    steps: usize,
    stopped: bool,
    /// Are passes run again that ran before? Then those that change nothing leave no trace.
    again: bool,
    /// Did a pass change anything since it was asked last?
    changed: Changed,
    /// What is known of each function since it was changed last.
    known: Vec<Known>,
    /// A copy of the module, if nothing was changed since it was made.
    unchanged: Option<Module>,
}

/// What is known of a function until it is changed.
#[derive(Default)]
struct Known {
    /// What it asks of a call.
    needs: Option<Vec<(Fact, Loc)>>,
    /// Passes that changed nothing in it.
    done: BTreeSet<&'static str>,
}

/// How often passes are run again until they change nothing: more than any program has been seen to need.
const MOST_ROUNDS: usize = 8;

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

    /// Runs some passes until they change nothing.
    pub(super) fn until_done(&mut self, passes: fn(&mut Self) -> Result<(), PassError>) -> Result<(), PassError> {
        let (again, mut changed) = (self.again, self.changed);
        for round in 0..MOST_ROUNDS {
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

    /// Runs a pass on every function, and what was requested before and after it.
    pub(super) fn run(&mut self, pass: &Pass) -> Result<(), PassError> {
        if self.stopped {
            return Ok(());
        }
        let options = self.options;
        if options.print_before.has(pass.name) && !self.again {
            self.dump("Before", pass.name, &text::print(self.module));
        }
        // What was before is kept where it is compared or where it would be needed to tell of a bug.
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

    /// Of the remarks of a pass that ran again, what it did not say before, if it did anything.
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
        self.known.resize_with(self.module.functions.len(), Known::default);
        for (function, known) in self.module.functions.iter_mut().zip(&mut self.known) {
            // It changed nothing here, and nothing else has since.
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
            // What the function requires of a call stays, whatever becomes of the operations that require it.
            let before = known.needs.get_or_insert_with(|| requirements(function));
            let values = function.value_count();
            let this = (pass.run)(function, &mut self.context);
            // What a pass began and gave up is a change too.
            let this = if function.value_count() == values { this } else { Changed::Yes };
            if this == Changed::Yes {
                let needs = keep(function, std::mem::take(before));
                *known = Known { needs, ..Known::default() };
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

    /// MLIR's form of header, which viewers of pass pipelines read.
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

/// Times by pass, all runs of one together, in the order of their first runs.
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
