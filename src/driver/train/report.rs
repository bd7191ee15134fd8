//! The plan of a run of `attnc train`, and its reports: lines of progress on stderr, the log, the
//! picture.

use super::super::session::{CommandError, Session, message, reason, tell};
use super::plot;
use crate::cli::{MessageFormat, TrainOptions};
use crate::diagnostics::codes::driver as codes;
use crate::diagnostics::{Diagnostic, Severity};
use std::fmt::Write as _;
use std::fs::File;
use std::io::{IsTerminal as _, Write as _};
use std::path::Path;
use std::time::{Duration, Instant};

/// Minimum interval between updates of the line in a terminal.
const APART: Duration = Duration::from_millis(100);

/// The steps of a run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    pub(super) batch: usize,
    pub(super) length: usize,
    pub(super) seed: i64,
    /// Steps that were made before.
    pub(super) first: u64,
    pub(super) steps: u64,
    pub(super) every: u64,
}

/// Losses so far, and where they are told.
pub(super) struct Report {
    plan: Plan,
    log: Option<File>,
    /// The object of the last step, without its end, until it is complete.
    pending: String,
    losses: Vec<(u64, f32)>,
    held_out: Vec<(u64, f32)>,
    began: Instant,
    /// Time within steps.
    spent: Duration,
    /// Steps of this run.
    made: u64,
    /// A line of a terminal is updated at each step.
    updates: bool,
    shown: Instant,
}

impl Report {
    /// Opens the log. A run that is resumed keeps the lines up to its checkpoint.
    pub(super) fn begin(s: &mut Session, options: &TrainOptions, plan: &Plan) -> Result<Report, CommandError> {
        let human = options.messages.error_format == MessageFormat::Human;
        let mut report = Report {
            plan: *plan,
            log: None,
            pending: String::new(),
            losses: Vec::new(),
            held_out: Vec::new(),
            began: Instant::now(),
            spent: Duration::ZERO,
            made: 0,
            updates: human && std::io::stderr().is_terminal(),
            shown: Instant::now(),
        };
        let Some(path) = &options.log else { return Ok(report) };
        let kept = if plan.first > 0 { report.read(path) } else { String::new() };
        s.write_now(path, kept.as_bytes())?;
        let opened = File::options().append(true).open(path);
        report.log = Some(opened.map_err(|error| unwritable(s, path, &error))?);
        Ok(report)
    }

    /// The lines of an earlier log up to the checkpoint.
    fn read(&mut self, path: &Path) -> String {
        let mut kept = String::new();
        for line in std::fs::read_to_string(path).unwrap_or_default().lines() {
            let Ok(object) = serde_json::from_str::<serde_json::Value>(line) else { continue };
            let Some(step) = object.get("step").and_then(serde_json::Value::as_u64) else { continue };
            if step > self.plan.first {
                continue;
            }
            let number = |name: &str| object.get(name).and_then(serde_json::Value::as_f64).map(|x| x as f32);
            self.losses.extend(number("loss").map(|loss| (step, loss)));
            self.held_out.extend(number("held_out").map(|loss| (step, loss)));
            kept += line;
            kept.push('\n');
        }
        kept
    }

    /// A step was made.
    pub(super) fn step(
        &mut self,
        s: &mut Session,
        step: u64,
        numbers: &[f32],
        time: Duration,
    ) -> Result<(), CommandError> {
        self.flush(s)?;
        self.made += 1;
        self.spent += time;
        let loss = numbers.first().copied().unwrap_or(f32::NAN);
        self.losses.push((step, loss));
        self.pending = format!("{{\"step\":{step},\"loss\":{}", number(loss));
        for (i, value) in numbers.iter().enumerate().skip(1) {
            let _ = write!(self.pending, ",\"result.{i}\":{}", number(*value));
        }
        let _ = write!(self.pending, ",\"seconds\":{:.6}", time.as_secs_f64());
        if self.updates && self.shown.elapsed() >= APART {
            self.shown = Instant::now();
            tell(&format!("\r{}\x1b[K", self.progress()));
        }
        Ok(())
    }

    /// The held-out loss after the last step.
    pub(super) fn held_out(&mut self, loss: f32) {
        let step = self.losses.last().map_or(self.plan.first, |(step, _)| *step);
        self.held_out.push((step, loss));
        if !self.pending.is_empty() {
            let _ = write!(self.pending, ",\"held_out\":{}", number(loss));
        }
    }

    /// A line of progress, and the picture so far.
    pub(super) fn line(&mut self, s: &mut Session, options: &TrainOptions) -> Result<(), CommandError> {
        self.flush(s)?;
        if self.made > 0 {
            self.clear();
            message(Severity::Note, &self.progress(), &[]);
        }
        match &options.plot {
            Some(path) if !self.losses.is_empty() => {
                s.write_now(path, plot::picture(&self.losses, &self.held_out).as_bytes())
            }
            _ => Ok(()),
        }
    }

    /// The run was interrupted.
    pub(super) fn interrupted(&mut self, step: u64, options: &TrainOptions) {
        self.clear();
        let output = options.output.display();
        let note = format!("`{output}` has its checkpoint: `--resume {output}` continues from it");
        message(Severity::Note, &format!("interrupted after step {step}"), &[note]);
    }

    /// Completes the log.
    pub(super) fn finish(&mut self, s: &mut Session) -> Result<(), CommandError> {
        self.clear();
        self.flush(s)
    }

    fn clear(&self) {
        if self.updates {
            tell("\r\x1b[K");
        }
    }

    fn flush(&mut self, s: &mut Session) -> Result<(), CommandError> {
        let line = std::mem::take(&mut self.pending);
        let Some(log) = self.log.as_mut().filter(|_| !line.is_empty()) else { return Ok(()) };
        let written = log.write_all(format!("{line}}}\n").as_bytes());
        written.map_err(|error| unwritable(s, Path::new("the log"), &error))
    }

    fn progress(&self) -> String {
        let (step, loss) = self.losses.last().copied().unwrap_or((self.plan.first, f32::NAN));
        let mut text = format!("step {step} of {}: loss {loss:.4}", self.plan.steps);
        if let Some((_, held_out)) = self.held_out.last().filter(|(at, _)| *at == step) {
            let _ = write!(text, ", held out {held_out:.4}");
        }
        let tokens = (self.made as f64) * (self.plan.batch * self.plan.length) as f64;
        let _ = write!(text, ", {:.0} tokens/s", tokens / self.spent.as_secs_f64().max(1e-9));
        let rest = self.plan.steps.saturating_sub(step);
        if rest > 0 && self.made > 0 {
            let each = self.began.elapsed().as_secs_f64() / self.made as f64;
            let _ = write!(text, ", {} left", span(each * rest as f64));
        }
        text
    }
}

/// Seconds in words.
fn span(seconds: f64) -> String {
    let seconds = seconds.round() as u64;
    match (seconds / 3600, seconds / 60 % 60, seconds % 60) {
        (0, 0, s) => format!("{s} s"),
        (0, m, s) => format!("{m} min {s} s"),
        (h, m, _) => format!("{h} h {m} min"),
    }
}

/// A number of JSON, which has no NaN.
fn number(x: f32) -> String {
    if x.is_finite() { x.to_string() } else { "null".to_string() }
}

fn unwritable(s: &mut Session, path: &Path, error: &std::io::Error) -> CommandError {
    let message = format!("cannot write `{}`: {}", path.display(), reason(error));
    s.fail(Diagnostic::error(codes::UNWRITABLE, message))
}
