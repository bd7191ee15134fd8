//! The pass manager: runs passes with dumps, verification, bisection, timing and counters.
//!
//! In: a verified module, options, and a sink for text. Out: the module after its passes, their
//! remarks, and the requested dumps and reports. It does not know what any pass does.

use std::collections::BTreeSet;
use std::fmt::{self, Write as _};
use std::time::Instant;

use super::options::Options;
use super::{Changed, Context, Pass, Refusal, Remark, render_remarks};
use crate::ir::requirements::{keep, requirements};
use crate::ir::{self, Loc, Module, text};
use crate::observe::{Observer, PrintChanged, Sink};
use crate::shape::Fact;

/// A run of a pass, for a record of the compilation.
#[derive(Debug)]
pub struct Step<'a> {
    /// Name of the pass.
    pub pass: &'static str,
    /// Did it change a function?
    pub changed: Changed,
    /// The module after it.
    pub module: &'a Module,
    /// Its new remarks.
    pub remarks: &'a [Remark],
}

/// A pass left an invalid module, always a bug in attnc, or refused the program. The driver saves
/// both texts of a bug and prints how to reproduce it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PassError {
    /// Name of the pass.
    pub pass: &'static str,
    /// The IR before the pass.
    pub before: String,
    /// The IR after the pass, with each verifier error below its line.
    pub errors: String,
    /// Errors in the program that the pass found. Then the module is valid, and there is no bug.
    pub refused: Vec<Refusal>,
}

impl fmt::Display for PassError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(refusal) = self.refused.first() {
            return f.write_str(&refusal.message);
        }
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
    let each = &mut |_: &Step<'_>| {};
    let mut manager = Manager::new(module, options, sink, each);
    for pass in passes {
        manager.run(pass)?;
    }
    Ok(manager.finish())
}

/// The state of one run over a module.
pub(super) struct Manager<'a> {
    module: &'a mut Module,
    pub(super) options: &'a Options,
    observer: Observer<'a>,
    /// Called after each run that is reported.
    each: &'a mut dyn FnMut(&Step<'_>),
    context: Context,
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
    pub(super) fn new(
        module: &'a mut Module,
        options: &'a Options,
        sink: &'a mut dyn Sink,
        each: &'a mut dyn FnMut(&Step<'_>),
    ) -> Manager<'a> {
        let arrays = module.params.iter().map(|p| (p.name.clone(), p.counts.clone())).collect();
        let context = Context { arrays, ..Context::new(options.float) };
        Manager {
            module,
            options,
            observer: Observer::new(&options.watch, sink, "air"),
            each,
            context,
            again: false,
            changed: Changed::No,
            known: Vec::new(),
            unchanged: None,
        }
    }

    /// Does any function hold a gradient?
    pub(super) fn has_gradients(&self) -> bool {
        self.module.functions.iter().any(super::differentiate::is_needed)
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
        if self.observer.is_stopped() {
            return Ok(());
        }
        let watch = &self.options.watch;
        if !self.again {
            self.observer.before(pass.name, || text::print(self.module));
        }
        // The module before the pass is kept if it is compared, or needed to report a bug.
        let before = (watch.verify_each || watch.print_changed != PrintChanged::No)
            .then(|| self.unchanged.take().unwrap_or_else(|| self.module.clone()));

        let start = Instant::now();
        let remarks = self.context.remarks.len();
        let changed = self.run_on_functions(pass);
        self.changed = self.changed.or(changed);
        if self.again {
            self.only_new_remarks(remarks, changed);
        }
        self.observer.timed(pass.name, start);
        if !self.context.refused.is_empty() {
            let refused = std::mem::take(&mut self.context.refused);
            return Err(PassError { pass: pass.name, before: String::new(), errors: String::new(), refused });
        }

        if watch.verify_each
            && changed == Changed::Yes
            && let Err(errors) = ir::verify(self.module)
        {
            let before = before.map(|module| text::print(&module)).unwrap_or_default();
            return Err(PassError { pass: pass.name, before, errors: errors.to_string(), refused: Vec::new() });
        }
        if !self.again || changed == Changed::Yes {
            let remarks = self.context.remarks.get(remarks..).unwrap_or_default();
            (self.each)(&Step { pass: pass.name, changed, module: self.module, remarks });
            let text_before = || before.as_ref().map(text::print).unwrap_or_default();
            let after = || text::print(self.module);
            self.observer.report(pass.name, changed == Changed::Yes, text_before, after);
        }
        if changed == Changed::No {
            self.unchanged = before;
        }
        self.observer.stop_at(pass.name);
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
            if self.observer.skips(|n| format!("pass ({n}) {} on `{}`", pass.name, function.name)) {
                continue;
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

    pub(super) fn finish(mut self) -> Vec<Remark> {
        if self.options.remarks {
            self.observer.text(&render_remarks(&self.context.remarks, self.module));
        }
        if self.options.stats {
            let mut table = String::from("// counters of the passes\n");
            for ((pass, what), n) in &self.context.stats {
                let _ = writeln!(table, "{n:>8}  {pass}: {what}");
            }
            self.observer.text(&table);
        }
        self.observer.finish("the passes");
        self.context.remarks
    }
}
