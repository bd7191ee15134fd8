//! `attnc train`: calls an entry point that trains, step by step, over a data set.
//!
//! In: a program, a data set, weights or a checkpoint. Out: a checkpoint, which is also a weights
//! file; a log, a picture, progress on stderr. How parameters change is part of the program.
//!
//! Everything that a step depends on is in the checkpoint, or a function of the seed and the number
//! of the step. So a run that was interrupted and resumed gives the same bits as one that was not.

mod begin;
mod checkpoint;
mod contract;
mod data;
mod plot;
mod report;

use super::arguments;
use super::call::read_graph;
use super::levels::Levels;
use super::load::{How, opened};
use super::passes::pass_options;
use super::running::{call_failed, told};
use super::session::{CommandError, Session, command_line_error};
use super::stages::{self, Tiers};
use crate::cli::TrainOptions;
use crate::diagnostics::Diagnostic;
use crate::diagnostics::codes::weights as codes;
use crate::files;
use crate::ir::{Module, sets_states};
use crate::runtime::descriptor::Param;
use crate::runtime::load::{CompiledModel, LoadError, Session as Calls};
use crate::runtime::weights::WeightsFile;
use checkpoint::{Progress, Tensors};
use contract::Contract;
use data::Data;
use report::{Plan, Report};
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Instant;

/// `attnc train FILE`
pub fn train(options: &TrainOptions) -> Result<(), CommandError> {
    let mut session = Session::new(&options.messages);
    let result = train_in(&mut session, options);
    session.finish_timed(result, &options.passes)
}

fn train_in(s: &mut Session, options: &TrainOptions) -> Result<(), CommandError> {
    let pass_options = pass_options(&options.target, &options.passes)?;
    let mut graph = read_graph(s, &options.file, &options.program, "train")?;
    let wrong = |message: String| command_line_error(&message);
    let found = Contract::find(&graph, options.function.as_deref()).map_err(wrong)?;
    let mut loss = contract::loss(&graph, &found, options.loss.as_deref()).map_err(wrong)?;

    s.stage("read the data");
    let start = checkpoint::start(s, options)?;
    let saved = start.progress.as_ref();
    let batch = found.batch(options.batch, saved.map(|p| p.batch)).map_err(wrong)?;
    let length = found.length(options.length, saved.map(|p| p.length)).map_err(wrong)?;
    let (data, held_out) = data::read(s, options, batch, length, found.vocabulary)?;
    let plan = Plan {
        batch,
        length,
        seed: options.seed.or(saved.map(|p| p.seed)).unwrap_or(0),
        first: saved.map_or(0, |p| p.step),
        steps: options.steps,
        every: options.every.unwrap_or((options.steps / 10).max(1)),
    };
    if plan.first >= plan.steps {
        let (first, steps) = (plan.first, plan.steps);
        let message =
            format!("the checkpoint has made {first} steps; `--steps {steps}` is the number of the last step");
        return Err(command_line_error(&message));
    }
    if let Some(saved) = saved.filter(|p| p.tokens != data.len()) {
        let message = format!(
            "the checkpoint was trained on {} tokens, and the data has {}: the windows of the steps are other ones",
            saved.tokens,
            data.len()
        );
        s.diagnostics.push(Diagnostic::warning(codes::CHECKPOINT, message));
    }
    for path in [Some(&options.output), options.log.as_ref(), options.plot.as_ref()].into_iter().flatten() {
        if path == Path::new("-") {
            return Err(command_line_error("`attnc train` writes files; `-` is not one"));
        }
        s.claim(path)?;
    }

    // Only the entry points that are called are compiled; the checkpoint has all parameters.
    let called = |name: &String| *name == found.name || loss.as_ref().is_some_and(|loss| loss.name == *name);
    graph.functions.retain(|f| called(&f.name) && !f.tapped);
    s.stage("passes");
    stages::optimise(s, &mut graph, &pass_options, &options.passes)?;
    still_constant(&graph, &mut loss, options)?;
    if held_out.is_some() && loss.is_none() {
        let message = format!(
            "`--held-out` needs an entry point that takes the tokens of `{}`, has one result, f32[], and changes no state",
            found.signature
        );
        return Err(command_line_error(&message));
    }
    let model = stages::describe(s, &graph.interface(), &graph.model, &graph.doc)?;
    let generator = stages::generator(options.backend);
    let levels = Levels::from_options(&options.target).for_graph(&graph, generator).keeping(&options.target, &graph)?;
    levels.run_here()?;
    let tiers = Tiers::for_library(s, &graph, &levels)?;
    let folder = stages::temporary(s)?;
    let path = match &start.weights {
        Some(path) => path.clone(),
        None => begin::weights(s, &model.params, plan.seed, folder.path())?,
    };
    let how = How { generator, remarks: options.passes.remarks, threads: options.threads };
    let loaded = opened(s, &tiers, &model, &how, Some(&path))?;
    told(s, &loaded);
    s.report();

    s.stage("train");
    let file = WeightsFile::open(&path).map_err(|message| s.fail(arguments::wrong_weights(message)))?;
    let mut report = Report::begin(s, options, &plan)?;
    let held_out = loss.as_ref().zip(held_out.as_ref());
    let run =
        Run { loaded: &loaded, plan, data: &data, contract: &found, held_out, file: &file, params: &model.params };
    let result = run.all(s, options, start.progress.is_some(), &mut report);
    report.finish(s).and(result)
}

/// The entry point of the loss must not change states; if it was not asked for, it is left out.
fn still_constant(graph: &Module, loss: &mut Option<Contract>, options: &TrainOptions) -> Result<(), CommandError> {
    let changes = |name: &String| graph.functions.iter().any(|f| f.name == *name && sets_states(f));
    let Some(found) = loss.as_ref().filter(|found| changes(&found.name)) else { return Ok(()) };
    if options.loss.is_some() {
        let message = format!("`{}` changes states, which a held-out loss must not", found.name);
        return Err(command_line_error(&message));
    }
    *loss = None;
    Ok(())
}

/// A run over a data set.
struct Run<'a> {
    loaded: &'a CompiledModel,
    plan: Plan,
    data: &'a Data,
    contract: &'a Contract,
    /// How the held-out loss is computed, and on what.
    held_out: Option<(&'a Contract, &'a Data)>,
    /// The weights that the session begins with.
    file: &'a WeightsFile,
    params: &'a [Param],
}

impl Run<'_> {
    /// All steps, with checkpoints.
    fn all(
        &self,
        s: &mut Session,
        options: &TrainOptions,
        resumes: bool,
        report: &mut Report,
    ) -> Result<(), CommandError> {
        let interrupted = files::interrupts();
        let mut calls = self.loaded.session().map_err(|error| call_failed(s, &error.text))?;
        if resumes {
            checkpoint::restore(s, &mut calls, self.loaded, self.file, self.params)?;
        }
        let mut step = self.plan.first;
        let mut waiting: Option<(Progress, Tensors)> = None;
        while step < self.plan.steps {
            let stops = interrupted.load(Ordering::Relaxed);
            if !stops {
                step += 1;
                let windows = self.data.drawn(self.plan.seed, step, self.plan.batch, self.plan.length);
                let began = Instant::now();
                let numbers = self.call(&mut calls, self.contract, &windows, step, options);
                let loss = numbers.as_ref().ok().map(|numbers| numbers.first().copied().unwrap_or(f32::NAN));
                // A checkpoint is good if its loss is a number, which only the next step tells.
                if let Some((progress, tensors)) = waiting.take().filter(|_| loss.is_none_or(f32::is_finite)) {
                    checkpoint::write(s, &options.output, &progress, &tensors)?;
                }
                let numbers = numbers.map_err(|error| call_failed(s, &format!("step {step}: {}", error.text)))?;
                report.step(s, step, &numbers, began.elapsed())?;
                if let Some(loss) = loss.filter(|loss| !loss.is_finite()) {
                    return Err(diverged(s, step, &format!("the loss is {loss}"), options));
                }
            }
            if stops || step.is_multiple_of(self.plan.every) || step == self.plan.steps {
                if let (Some((contract, data)), false) = (self.held_out, stops) {
                    let mean = self.mean(&mut calls, contract, data, step, options);
                    report.held_out(mean.map_err(|error| call_failed(s, &error.text))?);
                }
                let (progress, tensors) = self.checkpoint(s, &calls, step, options)?;
                if stops || step == self.plan.steps {
                    checkpoint::write(s, &options.output, &progress, &tensors)?;
                } else {
                    waiting = Some((progress, tensors));
                }
                report.line(s, options)?;
            }
            if stops {
                report.interrupted(step, options);
                return Err(CommandError::Interrupted);
            }
        }
        Ok(())
    }

    /// The results of a call that are one float.
    fn call(
        &self,
        calls: &mut Calls<'_>,
        contract: &Contract,
        windows: &[Vec<u32>],
        step: u64,
        options: &TrainOptions,
    ) -> Result<Vec<f32>, LoadError> {
        let Plan { batch, length, seed, .. } = self.plan;
        let args = contract.arguments(windows, [batch, length], step, seed, options.rate);
        let wrong = || LoadError { status: -1, text: "an argument does not fit its type".to_string() };
        let results = calls.call(self.loaded.entry(&contract.name)?, &args.ok_or_else(wrong)?)?;
        Ok(contract::numbers(&results))
    }

    /// The mean loss of windows that are spread over the held-out data.
    fn mean(
        &self,
        calls: &mut Calls<'_>,
        contract: &Contract,
        data: &Data,
        step: u64,
        options: &TrainOptions,
    ) -> Result<f32, LoadError> {
        let batches = data.spread(self.plan.batch, self.plan.length);
        let mut sum = 0.0;
        for windows in &batches {
            let numbers = self.call(calls, contract, windows, step, options)?;
            sum += f64::from(numbers.first().copied().unwrap_or(f32::NAN));
        }
        Ok((sum / batches.len().max(1) as f64) as f32)
    }

    /// All that a checkpoint has, if all of it are numbers.
    fn checkpoint(
        &self,
        s: &mut Session,
        calls: &Calls<'_>,
        step: u64,
        options: &TrainOptions,
    ) -> Result<(Progress, Tensors), CommandError> {
        let tensors = checkpoint::tensors(calls, self.loaded, self.file, self.params);
        let tensors = tensors.map_err(|error| call_failed(s, &error.text))?;
        if let Some(name) = checkpoint::not_a_number(&tensors) {
            return Err(diverged(s, step, &format!("`{name}` has elements that are not numbers"), options));
        }
        let Plan { batch, length, seed, .. } = self.plan;
        Ok((Progress { step, seed, batch, length, tokens: self.data.len() }, tensors))
    }
}

/// The error of a run whose numbers are lost.
fn diverged(s: &mut Session, step: u64, what: &str, options: &TrainOptions) -> CommandError {
    let kept = match options.output.exists() {
        true => format!("`{}` has the last checkpoint before", options.output.display()),
        false => "there is no checkpoint yet: `--every` says when one is written".to_string(),
    };
    let diagnostic = Diagnostic::error(codes::DIVERGED, format!("step {step}: {what}"));
    s.diagnostics.push(diagnostic.note(kept).help("a smaller learning rate, or `clip` in the `train`, often helps"));
    CommandError::Program
}
