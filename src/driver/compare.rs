//! `attnc compare`: the first value that differs between two ways of computing a program.
//!
//! In: a program, or two; the options of both sides; arguments. Out: a report on stdout, as text or
//! as JSON, and whether the sides agree. Exit codes: 0 they agree within the bounds, 1 they differ,
//! 2 there was an error.
//!
//! ```text
//! sides    each side: its program, and how it is run            (side)
//! values   every value of the graph becomes a tap; on tile IR,
//!          what each launch has written                         (values)
//! run      results and values of each call                      (run)
//! pairs    which value of one side is which of the other        (pairs)
//! judge    distances in units of a running error bound          (judge)
//! report   the first pair that differs, or all                  (report)
//! ```
//!
//! `--passes` compares the program before the passes with that after each of them (`walk`).
//!
//! # Which values are the same
//!
//! Results, taps of the program and states are, by their names. Inner values are if both sides have
//! the same operations; else they are aligned by where they come from, and a pair counts only if it
//! is on the way to a result that differs: a pass may have put another value at its place in the
//! source. A value that agrees cuts this way off.

mod judge;
mod numbers;
mod pairs;
mod report;
mod run;
mod side;
mod values;
mod walk;

use super::arguments::{self, Said};
use super::call::as_declared;
use super::calls::{self, Step};
use super::running::function;
use super::session::{CommandError, Session, command_line_error};
use super::stages;
use crate::cli::{Backend, CompareOptions};
use crate::files::Folder;
use crate::tensor::Tensor;
pub(super) use numbers::numbers;
use report::Report;
use side::Side;
use std::path::PathBuf;

/// `attnc compare FILE ..`
pub fn compare(options: &CompareOptions) -> Result<(), CommandError> {
    let mut session = Session::new(&options.messages);
    let same = same(&mut session, options);
    let result = session.finish(same.map(|_| ()));
    match (result, same) {
        (Ok(()), Ok(false)) => Err(CommandError::Program),
        (Err(CommandError::Program | CommandError::Environment), _) => Err(CommandError::CommandLine),
        (result, _) => result,
    }
}

/// Compares the sides, and reports what differs; do they agree?
pub(super) fn same(s: &mut Session, options: &CompareOptions) -> Result<bool, CommandError> {
    let report = compared(s, options)?;
    report.write(s, options)?;
    Ok(report.is_same())
}

/// Compares the sides, and reports nothing.
pub(super) fn compared(s: &mut Session, options: &CompareOptions) -> Result<Report, CommandError> {
    if let Some(path) = &options.json {
        s.claim(path)?;
    }
    if options.each_pass {
        return walk::passes(s, options);
    }
    let mut one = Side::read(s, options, None)?;
    let other = other(options);
    let mut two = Side::read(s, &other, Some(&one))?;
    one.prepare(s)?;
    two.prepare(s)?;
    let inputs = Inputs::read(s, &one, options)?;
    Report::of_sides(s, &one, &two, &inputs, options.bound)
}

/// The options of the other side.
fn other(options: &CompareOptions) -> CompareOptions {
    let mut other = options.other.as_deref().unwrap_or(options).clone();
    if let Some(file) = options.other_file.clone() {
        other.file = file;
    } else if options.other.is_none() {
        // The program as it is written.
        (other.target.level, other.backend) = (0, Some(Backend::Interp));
    }
    other
}

/// The calls to make, and the weights.
pub(super) struct Inputs {
    steps: Vec<Step>,
    weights: Option<PathBuf>,
    /// Holds random weights.
    _folder: Folder,
}

impl Inputs {
    /// Reads them for a program; what is not given is random.
    fn read(s: &mut Session, side: &Side, options: &CompareOptions) -> Result<Inputs, CommandError> {
        s.stage("read arguments");
        let mut call = options.call.clone();
        let seed = *call.random.get_or_insert(1);
        if let Some(path) = &call.weights {
            arguments::weights(s, path)?;
        }
        let work = side.work();
        let mut steps = call.calls.as_deref().map(|path| calls::read(s, path)).transpose()?;
        let model = side.describe(s)?;
        if let Some(steps) = &mut steps {
            calls::arguments(s, steps, work, &model, &call)?;
        }
        let mut steps = match steps {
            Some(steps) => steps,
            None => {
                let chosen = function(work.entries(), call.function.as_deref());
                let (name, declared) = chosen.map_err(|why| command_line_error(&why))?;
                let given = arguments::given(s, (name, declared), &call, Said::Options)?;
                calls::single(name, arguments::all(s, given, work, &model, name, &call)?)
            }
        };
        for (name, args) in steps.iter_mut().filter_map(Step::args_mut) {
            let Some((_, declared)) = work.entries().into_iter().find(|(own, _)| *own == name) else { continue };
            let fit = args.iter().zip(declared).map(|(t, arg)| as_declared(t, arg.ty.elem));
            let Some(fit) = fit.collect::<Option<Vec<Tensor>>>() else {
                return Err(command_line_error("an argument's integers do not fit its type"));
            };
            *args = fit;
        }
        let folder = stages::temporary(s)?;
        let weights = arguments::weights_file(s, &model, call.weights.as_deref(), seed, folder.path())?;
        Ok(Inputs { steps, weights, _folder: folder })
    }
}
