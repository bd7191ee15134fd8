//! `attnc compare --passes`: the first pass after which a value is wrong.
//!
//! In: a program, and the options of its passes. Out: a report on the program before and after that
//! pass. Every state of the pipeline is compared with the program before the passes; in the
//! interpreter, unless `--backend` says otherwise. Gradients become operations before that.

use super::Inputs;
use super::report::{Ran, Report};
use super::side::Side;
use crate::cli::{Backend, CompareOptions};
use crate::driver::passes::pass_options;
use crate::driver::session::{CommandError, Session, command_line_error};
use crate::driver::stages;
use crate::ir;
use crate::passes::Changed;

/// Walks through the pipeline.
pub(super) fn passes(s: &mut Session, options: &CompareOptions) -> Result<Report, CommandError> {
    let mut options = options.clone();
    options.backend.get_or_insert(Backend::Interp);
    let first = Side::read(s, &options, None)?;
    let Some(written) = first.graph() else {
        return Err(command_line_error("tile IR has no passes; `--passes` takes .attn and .air files"));
    };
    // The bounds of indices are known of operations alone, not of gradients.
    let mut last = Side::of_graph(&options, written.clone());
    last.prepare(s)?;
    let inputs = Inputs::read(s, &last, &options)?;
    s.stage("passes");
    let pass_options = pass_options(&options.target, &options.passes)?;
    let mut states: Vec<(usize, String, ir::Module)> = vec![(0, String::new(), written.clone())];
    let (mut module, mut number) = (written.clone(), 0);
    stages::optimise_seen(s, &mut module, &pass_options, &options.passes, &mut |step| {
        number += 1;
        if step.changed == Changed::Yes {
            states.push((number, step.pass.to_string(), step.module.clone()));
        }
    })?;
    if states.get(1).is_some_and(|(_, pass, _)| pass == "differentiate") {
        states.remove(0);
    }
    let mut sides = Vec::new();
    for (number, pass, module) in &states {
        let mut side = Side::of_graph(&options, module.clone());
        let file = options.file.file_name().unwrap_or_default().to_string_lossy();
        side.label =
            if sides.is_empty() { format!("{file} before the passes") } else { format!("{file} after {pass}") };
        side.watch();
        sides.push((*number, pass, side));
    }
    let Some(((_, _, before), later)) = sides.split_first() else { return Ok(Report::default()) };
    let reference = Ran::new(s, before, &inputs)?;
    let (mut last, mut same) = (None::<Ran<'_>>, None);
    for (number, pass, side) in later {
        let ran = Ran::new(s, side, &inputs)?;
        let report = Report::of_runs(s, [&reference, &ran], &inputs, options.bound)?;
        if report.is_same() {
            (last, same) = (Some(ran), Some(report));
            continue;
        }
        // Against the state just before, if that shows it.
        let near = match &last {
            Some(last) => Some(Report::of_runs(s, [last, &ran], &inputs, options.bound)?),
            None => None,
        };
        let mut report = near.filter(|near| !near.is_same()).unwrap_or(report);
        report.pass = Some((*number, (*pass).clone()));
        return Ok(report);
    }
    match same {
        Some(same) => Ok(same),
        None => Report::of_runs(s, [&reference, &reference], &inputs, options.bound),
    }
}
