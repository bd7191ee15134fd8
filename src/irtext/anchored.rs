//! Printed IR with the line of each part of the module, and errors shown below these lines: shared
//! by all printers and verifiers.
//!
//! In: a text with the anchors of its lines, and errors with their anchors. Out: [`Errors`]. Each
//! IR defines its own anchors.

use std::fmt;

use crate::diagnostics::codes::ir as codes;
use crate::diagnostics::{Diagnostic, Diagnostics};
use crate::source::Span;

/// Printed IR, with the line number of each anchor.
#[derive(Clone, Debug)]
pub struct Printed<A> {
    /// The printed module.
    pub text: String,
    /// Each anchor, and the number (from 0) of its line.
    pub lines: Vec<(A, usize)>,
}

impl<A> Default for Printed<A> {
    fn default() -> Self {
        Printed { text: String::new(), lines: Vec::new() }
    }
}

/// The errors of a module.
#[derive(Clone, Debug)]
pub struct Errors<A> {
    /// Each error with its anchor, in order of discovery; at least one.
    pub list: Vec<(A, String)>,
    text: String,
}

impl<A: PartialEq> Errors<A> {
    /// Errors in a printed module. `part` maps an anchor to a part of the text; the lines before
    /// the first anchor belong to `first`. Parts without errors are not shown.
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

    /// The errors as diagnostics, at spans of the text that the module was parsed from
    /// (`text::Parsed::places`).
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
