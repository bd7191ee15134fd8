//! Bugs of ours: what is saved when a stage fails on what the stage before it made, and what the user is told.
//!
//! In: the stage, its complaint, the IR that it was given. Out: a file with that IR, and a message with the command that
//! makes the bug happen again.

use super::session::Failure;
use std::io::{self, Write};

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
    let mut text =
        format!("error: internal error: {stage}: {}\n  = note: this is a bug of attnc\n", complaint.trim_end());
    if let Some(saved) = saved {
        let slug: String = stage.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
        let file = format!("attnc-bug-{slug}.{}", saved.ending);
        match std::fs::write(&file, saved.text) {
            Ok(()) => {
                text += &format!("  = note: what the stage was given is in `{file}`; it happens again with\n");
                text += &format!("          attnc {file} {}\n", saved.arguments);
            }
            Err(_) => text += &format!("  = note: what the stage was given:\n{}", saved.text),
        }
    }
    let _ = io::stderr().lock().write_all(text.as_bytes());
    Failure::Bug
}
