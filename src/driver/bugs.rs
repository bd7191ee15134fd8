//! Bugs in attnc: saves the input of the stage that failed, and reports the bug.
//!
//! In: the stage, its error, its input IR. Out: a file with that IR, and a message with a command
//! that reproduces the bug.

use super::session::{CommandError, message};
use crate::diagnostics::Severity;
use crate::files;
use crate::tile::{self, ScheduleError};
use std::path::Path;

/// The IR on which a stage failed.
pub(super) struct Saved<'a> {
    /// The text.
    pub(super) text: &'a str,
    /// The extension of the file: `air` or `tir`.
    pub(super) ending: &'a str,
    /// Arguments after the file name, on the command line that reproduces the bug.
    pub(super) arguments: &'a str,
}

/// Reports PTX that NVIDIA's tools reject, and saves it. `command` is the command line that was
/// run, without the file.
pub(super) fn wrong_ptx(complaint: &str, text: &str, command: &str) -> CommandError {
    let saved = keep("ptx", "ptx", text, |file| format!("{command} {file}"));
    report("PTX", complaint, vec![saved])
}

/// Reports a bug in a stage, and saves its input.
pub(super) fn bug(stage: &str, complaint: &str, saved: Option<&Saved<'_>>) -> CommandError {
    let slug: String = stage.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
    let keep =
        |saved: &Saved<'_>| keep(&slug, saved.ending, saved.text, |file| format!("attnc {file} {}", saved.arguments));
    report(stage, complaint, saved.map(keep).into_iter().collect())
}

/// Reports a schedule that failed, for kernels that attnc made: a bug.
pub(super) fn broken_schedule(tiles: &tile::Module, error: &ScheduleError, arguments: &str) -> CommandError {
    let saved = Saved { text: &tile::text::print(tiles), ending: "tir", arguments };
    bug("scheduling", &error.to_string(), Some(&saved))
}

fn report(stage: &str, complaint: &str, more: Vec<String>) -> CommandError {
    let text = format!("internal error: {stage}: {}", complaint.trim_end());
    let mut notes = vec!["this is a bug in attnc".to_string()];
    notes.extend(more);
    message(Severity::Error, &text, &notes);
    CommandError::Bug
}

/// Saves the input of a stage; returns a message with the file and the command that reproduces the
/// bug.
fn keep(slug: &str, ending: &str, text: &str, command: impl Fn(&str) -> String) -> String {
    let file = format!("attnc-bug-{slug}.{ending}");
    match files::write(Path::new(&file), text.as_bytes(), false) {
        Ok(()) => {
            let command = command(&file);
            format!("the input of the stage is saved in `{file}`; reproduce with\n          {command}")
        }
        Err(_) => format!("the input of the stage:\n{text}"),
    }
}
