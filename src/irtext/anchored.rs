//! Texts of which one knows what each line shows, and errors printed under their lines: what both printers give to both
//! verifiers.
//!
//! In: a text with the anchors of its lines, errors with the anchors that they are about. Out: [`Errors`]. What an anchor
//! is, each IR says.

use std::fmt;

use crate::diagnostics::codes::ir as codes;
use crate::diagnostics::{Diagnostic, Diagnostics};
use crate::source::Span;

/// A text with the lines of what it shows.
#[derive(Clone, Debug)]
pub struct Printed<A> {
    /// The text.
    pub text: String,
    /// What is shown, and the number (from 0) of its line.
    pub lines: Vec<(A, usize)>,
}

impl<A> Default for Printed<A> {
    fn default() -> Self {
        Printed { text: String::new(), lines: Vec::new() }
    }
}

/// What is wrong with a module.
#[derive(Clone, Debug)]
pub struct Errors<A> {
    /// Each error with what it is about, in the order in which they were found; at least one.
    pub list: Vec<(A, String)>,
    text: String,
}

impl<A: PartialEq> Errors<A> {
    /// Errors of what was printed. `part`: to which part of the text an anchor belongs, `first` before the first anchor.
    /// Parts without errors are not shown.
    pub fn new<P: PartialEq>(
        list: Vec<(A, String)>,
        printed: &Printed<A>,
        first: P,
        part: impl Fn(&A) -> P,
    ) -> Errors<A> {
        let wrong: Vec<P> = list.iter().map(|(a, _)| part(a)).collect();
        let mut here = first;
        let mut anchors = printed.lines.iter().peekable();
        let mut text = String::new();
        for (number, line) in printed.text.lines().enumerate() {
            let mut below = Vec::new();
            while let Some((anchor, _)) = anchors.next_if(|(_, n)| *n == number) {
                here = part(anchor);
                below.extend(list.iter().filter(|(a, _)| a == anchor).map(|(_, message)| message));
            }
            if wrong.contains(&here) {
                text += line;
                text.push('\n');
            }
            let indent = line.len() - line.trim_start().len();
            for message in below {
                text += &format!("{:indent$}^ error: {message}\n", "");
            }
        }
        for (_, message) in list.iter().filter(|(a, _)| !printed.lines.iter().any(|(b, _)| a == b)) {
            text += &format!("error: {message}\n");
        }
        Errors { list, text }
    }

    /// As diagnostics, at the places in a text that the module was parsed from (`text::Parsed::places`).
    pub fn diagnostics(&self, places: &[(A, Span)]) -> Diagnostics {
        let mut out = Diagnostics::new();
        for (anchor, message) in &self.list {
            let d = Diagnostic::error(codes::INVALID, message.clone());
            out.push(match places.iter().find(|(a, _)| a == anchor) {
                Some((_, span)) => d.at(*span, ""),
                None => d,
            });
        }
        out
    }
}

impl<A> fmt::Display for Errors<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}
