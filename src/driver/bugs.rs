//! Bugs of ours: what is saved when a stage fails on what the stage before it made, and what the user is told.
//!
//! In: the stage, its complaint, the IR that it was given. Out: a file with that IR, and a message with the command that
//! makes the bug happen again.

use super::session::{Failure, message};
use crate::diagnostics::Severity;
use crate::files;
use std::path::Path;

/// The IR on which a stage failed.
pub(super) struct Saved<'a> {
    /// The text.
    pub(super) text: &'a str,
    /// The ending of the file: `air` or `tir`.
    pub(super) ending: &'a str,
    /// What follows the file's name on the command line that shows the bug.
    pub(super) arguments: &'a str,
}

/// Reports a bug of a stage and saves what is needed to see it again.
pub(super) fn bug(stage: &str, complaint: &str, saved: Option<&Saved<'_>>) -> Failure {
    let text = format!("internal error: {stage}: {}", complaint.trim_end());
    let mut notes = vec!["this is a bug of attnc".to_string()];
    if let Some(saved) = saved {
        let slug: String = stage.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
        let file = format!("attnc-bug-{slug}.{}", saved.ending);
        notes.push(match files::write(Path::new(&file), saved.text.as_bytes(), false) {
            Ok(()) => format!(
                "what the stage was given is in `{file}`; it happens again with\n          attnc {file} {}",
                saved.arguments
            ),
            Err(_) => format!("what the stage was given:\n{}", saved.text),
        });
    }
    message(Severity::Error, &text, &notes);
    Failure::Bug
}
