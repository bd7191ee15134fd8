//! Changes of any text: removes lines, and words.
//!
//! In: any text. Out: it without some lines, brackets or tokens. For programs with syntax
//! errors, and for formats that have no reader here.

use super::super::outputs::Source;
use super::{Candidate, Changes};
use crate::diagnostics::Diagnostics;
use crate::source::FileId;
use crate::syntax;
use std::ops::Range;

/// The kinds of changes of a text.
pub(super) fn kinds(source: Source) -> Vec<Box<dyn Changes>> {
    let mut kinds: Vec<Box<dyn Changes>> = vec![Box::new(Lines)];
    if source == Source::Program {
        kinds.push(Box::new(Ends));
        kinds.push(Box::new(Brackets));
        kinds.push(Box::new(Tokens));
    }
    kinds
}

struct Lines;

impl Changes for Lines {
    fn name(&self) -> &'static str {
        "lines"
    }

    fn count(&self, text: &str) -> usize {
        text.split_inclusive('\n').count()
    }

    fn make(&self, text: &str, first: usize, n: usize) -> Candidate {
        let lines = text.split_inclusive('\n').enumerate();
        Some(lines.filter(|(i, _)| !(first..first + n).contains(i)).map(|(_, line)| line).collect())
    }
}

struct Tokens;

/// The ranges of all tokens that are text; tokens of the layout are not.
fn tokens(text: &str) -> Vec<Range<usize>> {
    let found = syntax::tokens(FileId(0), text, &mut Diagnostics::new());
    found.iter().map(|token| token.span.range()).filter(|range| !range.is_empty()).collect()
}

impl Changes for Tokens {
    fn name(&self) -> &'static str {
        "tokens"
    }

    fn count(&self, text: &str) -> usize {
        tokens(text).len()
    }

    fn make(&self, text: &str, first: usize, n: usize) -> Candidate {
        cut(text, tokens(text).get(first..first + n)?.iter().map(|range| (range.clone(), String::new())).collect())
    }
}

/// Removes all tokens from one to the end, or all before one.
struct Ends;

impl Changes for Ends {
    fn name(&self) -> &'static str {
        "ends"
    }

    fn count(&self, text: &str) -> usize {
        2 * tokens(text).len()
    }

    fn make(&self, text: &str, first: usize, _: usize) -> Candidate {
        let tokens = tokens(text);
        match first.checked_sub(tokens.len()) {
            None => text.get(..tokens.get(first)?.start).map(str::to_string),
            Some(i) => text.get(tokens.get(tokens.len() - 1 - i)?.start..).map(str::to_string),
        }
    }
}

/// Removes a pair of brackets with what is between them, or alone.
struct Brackets;

impl Brackets {
    /// Pairs of tokens that are brackets.
    fn pairs(text: &str) -> Vec<(Range<usize>, Range<usize>)> {
        let (mut open, mut pairs): (Vec<(char, Range<usize>)>, Vec<_>) = Default::default();
        for token in tokens(text) {
            match text.get(token.clone()).and_then(|word| word.chars().next()) {
                Some(sign @ ('(' | '[' | '{')) => open.push((sign, token)),
                Some(sign @ (')' | ']' | '}')) => {
                    let own = if sign == ')' { '(' } else { char::from(sign as u8 - 2) };
                    if let Some(at) = open.iter().rposition(|(sign, _)| *sign == own) {
                        pairs.push((open.remove(at).1, token));
                    }
                }
                _ => {}
            }
        }
        pairs.sort_by_key(|(open, _)| open.start);
        pairs
    }
}

impl Changes for Brackets {
    fn name(&self) -> &'static str {
        "brackets"
    }

    fn count(&self, text: &str) -> usize {
        2 * Brackets::pairs(text).len()
    }

    fn make(&self, text: &str, first: usize, n: usize) -> Candidate {
        let pairs = Brackets::pairs(text);
        let edits = (first..first + n).filter_map(|i| {
            let (open, close) = pairs.get(i / 2)?;
            let all = std::iter::once(open.start..close.end);
            Some(if i % 2 == 0 { all.collect() } else { vec![open.clone(), close.clone()] })
        });
        cut(text, edits.flatten().map(|range| (range, String::new())).collect())
    }
}

/// A text with ranges replaced; a range inside another one is part of that.
pub(super) fn cut(text: &str, mut edits: Vec<(Range<usize>, String)>) -> Candidate {
    edits.sort_by_key(|(range, _)| (range.start, std::cmp::Reverse(range.end)));
    let (mut out, mut at) = (String::with_capacity(text.len()), 0);
    for (range, by) in edits {
        if range.start < at {
            // Neighbours in a list may share a separator.
            at = at.max(range.end);
            continue;
        }
        out += text.get(at..range.start)?;
        out += &by;
        at = range.end;
    }
    out += text.get(at..)?;
    Some(out)
}
