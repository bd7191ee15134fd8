//! Lines of texts, each different line stored once.
//!
//! In: lines with their locations. Out: numbers of lines, and texts as runs of consecutive numbers,
//! which makes a text that differs little from an earlier one small.

use super::Location;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// A line of a text.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Line {
    /// The line without its locations.
    pub text: String,
    /// Its locations in the sources, the principal one first.
    pub at: Vec<Location>,
    /// The line that it was made from, counted from the head of the part of the same name in the
    /// last step of the level before.
    pub of: Option<usize>,
}

/// All different lines.
#[derive(Debug, Default)]
pub(super) struct Lines {
    list: Vec<Line>,
    known: BTreeMap<Line, usize>,
}

impl Lines {
    /// The number of a line.
    pub(super) fn id(&mut self, line: Line) -> usize {
        if let Some(id) = self.known.get(&line) {
            return *id;
        }
        self.list.push(line.clone());
        self.known.insert(line, self.list.len() - 1);
        self.list.len() - 1
    }

    /// The line of a number.
    pub(super) fn get(&self, id: usize) -> &Line {
        &self.list[id]
    }

    /// `[text, at, of]` for each, without what is empty at the end.
    pub(super) fn json(&self) -> Value {
        let line = |line: &Line| match (line.at.is_empty(), line.of) {
            (true, None) => json!([line.text]),
            (false, None) => json!([line.text, line.at]),
            (_, Some(of)) => json!([line.text, line.at, of]),
        };
        Value::Array(self.list.iter().map(line).collect())
    }
}

/// A text.
#[derive(Debug)]
pub(super) struct Text {
    /// Numbers of its lines.
    pub(super) ids: Vec<usize>,
    /// Its parts (functions, kernels, plans): name, and number of the first line.
    pub(super) parts: Vec<(String, usize)>,
}

impl Text {
    /// The lines of a part.
    pub(super) fn part(&self, name: &str) -> &[usize] {
        let Some(at) = self.parts.iter().position(|(own, _)| own == name) else { return &[] };
        let end = self.parts.get(at + 1).map_or(self.ids.len(), |(_, start)| *start);
        self.ids.get(self.parts[at].1..end).unwrap_or_default()
    }

    /// Runs of consecutive numbers as `start, count, start, count, ..`.
    pub(super) fn json(&self) -> Value {
        let mut runs: Vec<usize> = Vec::new();
        for id in &self.ids {
            match runs.as_mut_slice() {
                [.., start, count] if *start + *count == *id => *count += 1,
                _ => runs.extend([*id, 1]),
            }
        }
        json!({"runs": runs, "parts": self.parts})
    }
}
