//! Diagnostics: what went wrong, where, and what to do about it.
//!
//! In: [`Diagnostic`] values from every stage, collected in a [`Diagnostics`]. Out: plain text in
//! rustc's format (`render`), or JSON (`json`), and explanations of the codes (`codes`) for `attnc
//! explain`. A diagnostic is data first; the prose is written by the stage that finds the error,
//! never here. This module knows source texts, but not trees, types or IR.

pub mod codes;
mod fix;
pub mod json;
mod render;
mod uses;

pub use codes::Code;
pub use fix::{Fix, Suggestion, apply_fixes, fixed_text, replaced};
pub use render::{render, render_all};
pub use uses::{NameKind, Use};

use crate::source::Span;
use std::collections::BTreeSet;

/// Decides whether compilation goes on.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Severity {
    /// The program is invalid; nothing is compiled.
    Error,
    /// Likely a mistake; compiled anyway.
    Warning,
    /// Information.
    Note,
}

/// A marked location, with an optional text below the source line.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Label {
    /// The marked range.
    pub span: Span,
    /// The text next to the mark; may be empty.
    pub text: String,
}

/// One message: code, description, locations, and hints.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Diagnostic {
    /// The rule that was broken.
    pub code: Code,
    /// Only errors end the compilation.
    pub severity: Severity,
    /// One line, without a final full stop.
    pub message: String,
    /// The location that the message is about (`^`); `None` for errors of the environment.
    pub primary: Option<Label>,
    /// Related locations (`-`), such as where a dimension was bound.
    pub secondary: Vec<Label>,
    /// Facts that help to understand the message.
    pub notes: Vec<String>,
    /// Suggestions, the most likely one first.
    pub helps: Vec<String>,
    /// The first suggestion as edits, all of them or none; empty if it cannot be applied literally.
    pub fixes: Vec<Fix>,
    /// Edits for other suggestions, by their text: a similar name, another reading.
    pub alternatives: Vec<(String, Fix)>,
    /// A fact that is not stated, and the last declaration of its names: of several messages about
    /// the same fact, only the first is kept.
    pub missing: Option<(String, Span)>,
}

impl Diagnostic {
    /// An error without a location; add one with [`Diagnostic::at`].
    pub fn error(code: Code, message: impl Into<String>) -> Diagnostic {
        Diagnostic {
            code,
            severity: Severity::Error,
            message: message.into(),
            primary: None,
            secondary: Vec::new(),
            notes: Vec::new(),
            helps: Vec::new(),
            fixes: Vec::new(),
            alternatives: Vec::new(),
            missing: None,
        }
    }

    /// A warning without a location.
    pub fn warning(code: Code, message: impl Into<String>) -> Diagnostic {
        Diagnostic { severity: Severity::Warning, ..Diagnostic::error(code, message) }
    }

    /// Sets the location, and the label at its mark (may be empty).
    pub fn at(mut self, span: Span, text: impl Into<String>) -> Diagnostic {
        self.primary = Some(Label { span, text: text.into() });
        self
    }

    /// Marks a related location.
    pub fn also(mut self, span: Span, text: impl Into<String>) -> Diagnostic {
        self.secondary.push(Label { span, text: text.into() });
        self
    }

    /// Appends a note.
    pub fn note(mut self, text: impl Into<String>) -> Diagnostic {
        self.notes.push(text.into());
        self
    }

    /// Appends a suggestion.
    pub fn help(mut self, text: impl Into<String>) -> Diagnostic {
        self.helps.push(text.into());
        self
    }

    /// Suggests a similar name at a location.
    pub fn near(self, span: Span, name: &str) -> Diagnostic {
        self.alternative(format!("did you mean `{name}`?"), span, name)
    }

    /// Appends a suggestion that may not be what was meant, with its edit.
    pub fn alternative(mut self, text: impl Into<String>, span: Span, change: impl Into<String>) -> Diagnostic {
        let text = text.into();
        self.alternatives.push((text.clone(), Fix { span, text: change.into() }));
        self.help(text)
    }

    /// Appends an edit to the first suggestion.
    pub fn fix(mut self, span: Span, text: impl Into<String>) -> Diagnostic {
        self.fixes.push(Fix { span, text: text.into() });
        self
    }
}

/// The maximum number of diagnostics that are kept; a text with more is not a program.
pub const MAX_KEPT: usize = 1000;

/// The diagnostics of a run, in order of discovery. Beyond [`MAX_KEPT`] they are only counted.
#[derive(Clone, Debug, Default)]
pub struct Diagnostics {
    list: Vec<Diagnostic>,
    missing: BTreeSet<(String, Span)>,
    dropped: usize,
    has_errors: bool,
    uses: Vec<Use>,
}

impl Diagnostics {
    /// An empty collection.
    pub fn new() -> Diagnostics {
        Diagnostics::default()
    }

    /// Keeps it, or counts it as dropped.
    pub fn push(&mut self, diagnostic: Diagnostic) {
        self.has_errors |= diagnostic.severity == Severity::Error;
        if diagnostic.missing.as_ref().is_some_and(|fact| !self.missing.insert(fact.clone())) {
            return;
        }
        if self.list.len() < MAX_KEPT {
            self.list.push(diagnostic);
        } else {
            self.dropped += 1;
        }
    }

    /// Applies `change` to each diagnostic.
    pub fn amend(&mut self, change: impl FnMut(&mut Diagnostic)) {
        self.list.iter_mut().for_each(change);
    }

    /// Appends a note to all diagnostics after the `first` ones.
    pub fn note_after(&mut self, first: usize, text: &str) {
        for diagnostic in self.list.iter_mut().skip(first) {
            diagnostic.notes.push(text.to_string());
        }
    }

    /// Drops all diagnostics after the `first` ones, none of which may be an error.
    pub fn forget_after(&mut self, first: usize) {
        debug_assert!(self.list.iter().skip(first).all(|d| d.severity != Severity::Error));
        self.list.truncate(first);
    }

    /// Appends another collection.
    pub fn append(&mut self, other: Diagnostics) {
        self.dropped += other.dropped;
        self.has_errors |= other.has_errors;
        self.uses.extend(other.uses);
        for diagnostic in other.list {
            self.push(diagnostic);
        }
    }

    /// Is there at least one error (not counting warnings and notes)?
    pub fn has_errors(&self) -> bool {
        self.has_errors
    }

    /// Is there nothing to show?
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// The number of diagnostics that were counted, but not kept.
    pub fn dropped(&self) -> usize {
        self.dropped
    }

    /// The kept diagnostics, in order of discovery.
    pub fn iter(&self) -> impl Iterator<Item = &Diagnostic> {
        self.list.iter()
    }

    /// Sorted by location (diagnostics without one first), without duplicates.
    pub fn sorted(&self) -> Vec<&Diagnostic> {
        let mut sorted: Vec<&Diagnostic> = Vec::with_capacity(self.list.len());
        let mut seen = std::collections::HashSet::new();
        for diagnostic in &self.list {
            let place = diagnostic.primary.as_ref().map(|label| label.span);
            if seen.insert((place, diagnostic.code, &diagnostic.message)) {
                sorted.push(diagnostic);
            }
        }
        sorted.sort_by_key(|d| (d.primary.as_ref().map(|label| label.span), d.code));
        sorted
    }
}

impl IntoIterator for Diagnostics {
    type Item = Diagnostic;
    type IntoIter = std::vec::IntoIter<Diagnostic>;

    fn into_iter(self) -> Self::IntoIter {
        self.list.into_iter()
    }
}

/// The maximum number of names considered as corrections of an unknown one, so that an error costs
/// the same in programs of any size.
const MAX_SEEN: usize = 1000;
/// The maximum number of names of similar length that are compared with it.
const MAX_COMPARED: usize = 200;

/// The candidate nearest to `name`, if it is near enough to be a likely correction. Only the first
/// candidates are considered ([`MAX_SEEN`], [`MAX_COMPARED`]).
pub fn did_you_mean<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let length = name.chars().count();
    let allowed = (length / 3).max(1);
    candidates
        .into_iter()
        .take(MAX_SEEN)
        .filter(|candidate| *candidate != name && candidate.chars().count().abs_diff(length) <= allowed)
        .take(MAX_COMPARED)
        .map(|candidate| (edit_distance(name, candidate), candidate))
        .filter(|&(distance, candidate)| {
            distance <= allowed && distance < candidate.chars().count() || name.eq_ignore_ascii_case(candidate)
        })
        .min_by_key(|&(distance, candidate)| (distance, candidate))
        .map(|(_, candidate)| candidate)
}

/// The number of insertions, deletions, replacements and swaps of adjacent characters that turn `a`
/// into `b`.
fn edit_distance(a: &str, b: &str) -> usize {
    // Names far apart in length are never suggested; this also bounds the work on huge names.
    if a.len().abs_diff(b.len()) > 16 || a.len().max(b.len()) > 256 {
        return usize::MAX;
    }
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut before: Vec<usize> = Vec::new();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut next = vec![i; b.len() + 1];
        for j in 1..=b.len() {
            let same = usize::from(a[i - 1] != b[j - 1]);
            next[j] = (row[j - 1] + same).min(row[j] + 1).min(next[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                next[j] = next[j].min(before[j - 2] + 1);
            }
        }
        before = std::mem::replace(&mut row, next);
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_names_are_suggested_and_far_ones_are_not() {
        let names = ["softmax", "sum", "max", "rearrange"];
        assert_eq!(did_you_mean("sofmtax", names), Some("softmax"));
        assert_eq!(did_you_mean("rearange", names), Some("rearrange"));
        assert_eq!(did_you_mean("Sum", names), Some("sum"));
        assert_eq!(did_you_mean("conv", names), None);
        assert_eq!(did_you_mean("", ["a"]), None);
        assert_eq!(did_you_mean("x", ["y"]), None);
    }
}
