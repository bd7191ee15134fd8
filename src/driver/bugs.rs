//! Bugs in attnc: what is saved when a stage fails on the output of the stage before it, and what the user sees.
//!
//! In: the stage, its error, the IR that it was given. Out: a file with that IR, and a message with the command that
//! reproduces the bug.

use super::session::{CommandError, message};
use crate::diagnostics::Severity;
use crate::files;
use std::path::Path;

/// The IR on which a stage failed.
pub(super) struct Saved<'a> {
    /// The text.
    pub(super) text: &'a str,
    /// The extension of the file: `air` or `tir`.
    pub(super) ending: &'a str,
    /// What follows the file name on the command line that reproduces the bug.
    pub(super) arguments: &'a str,
}

/// Reports a bug in a stage and saves what is needed to reproduce it.
pub(super) fn bug(stage: &str, complaint: &str, saved: Option<&Saved<'_>>) -> CommandError {
    let text = format!("internal error: {stage}: {}", complaint.trim_end());
    let mut notes = vec!["this is a bug in attnc".to_string()];
    if let Some(saved) = saved {
        let slug: String = stage.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
        let file = format!("attnc-bug-{slug}.{}", saved.ending);
        notes.push(match files::write(Path::new(&file), saved.text.as_bytes(), false) {
            Ok(()) => format!(
                "the input of the stage is saved in `{file}`; reproduce with\n          attnc {file} {}",
                saved.arguments
            ),
            Err(_) => format!("the input of the stage:\n{}", saved.text),
        });
    }
    message(Severity::Error, &text, &notes);
    CommandError::Bug
}
