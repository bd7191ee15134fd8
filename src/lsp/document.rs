//! An open program, and positions in it.
//!
//! In: its text. Out: offsets of positions and positions of offsets; a position is a line and a
//! number of UTF-16 code units. It knows no requests.

use crate::diagnostics::Diagnostics;
use crate::source::{FileId, SourceMap, Span};
use crate::syntax::{self, ast};
use crate::types;
use serde_json::{Value, json};

/// The file of a document in its own map of sources.
pub(super) const FILE: FileId = FileId(0);

/// A program as the editor has it.
pub(super) struct Document {
    pub(super) text: String,
    pub(super) version: i64,
    /// Were its diagnostics sent?
    pub(super) is_reported: bool,
    /// Offset of the first byte of each line.
    lines: Vec<usize>,
}

impl Document {
    pub(super) fn new(text: &str, version: i64) -> Document {
        let starts = text.bytes().enumerate().filter(|&(_, byte)| byte == b'\n').map(|(at, _)| at + 1);
        let lines = std::iter::once(0).chain(starts).collect();
        Document { text: text.to_string(), version, is_reported: false, lines }
    }

    /// Its syntax tree, of a program with errors too.
    pub(super) fn tree(&self) -> ast::File {
        syntax::parse(FILE, &self.text, &mut Diagnostics::new())
    }

    /// All errors and warnings.
    pub(super) fn check(&self) -> Diagnostics {
        let mut sources = SourceMap::new();
        let file = sources.add(String::new(), self.text.as_str());
        let mut diagnostics = Diagnostics::new();
        let tree = syntax::parse(file, &self.text, &mut diagnostics);
        types::check(&tree, &mut sources, &mut diagnostics);
        diagnostics
    }

    /// The position of an offset.
    pub(super) fn position(&self, offset: usize) -> Value {
        let offset = offset.min(self.text.len());
        let line = self.lines.partition_point(|&start| start <= offset).saturating_sub(1);
        let start = self.lines.get(line).copied().unwrap_or(0);
        let before = self.text.get(start..).unwrap_or_default();
        let inside = before.char_indices().take_while(|(at, _)| start + at < offset);
        let character: usize = inside.map(|(_, c)| c.len_utf16()).sum();
        json!({ "line": line, "character": character })
    }

    /// The offset of a position; one past the end of its line counts as that end.
    pub(super) fn offset(&self, position: &Value) -> usize {
        let number = |field: &str| position[field].as_u64().and_then(|n| usize::try_from(n).ok()).unwrap_or(0);
        let Some(start) = self.lines.get(number("line")).copied() else { return self.text.len() };
        let line = self.text.get(start..).unwrap_or_default().split('\n').next().unwrap_or_default();
        let mut left = number("character");
        for (at, c) in line.char_indices() {
            if left < c.len_utf16() {
                return start + at;
            }
            left -= c.len_utf16();
        }
        start + line.len()
    }

    /// The range of a span.
    pub(super) fn range(&self, span: Span) -> Value {
        json!({ "start": self.position(span.start as usize), "end": self.position(span.end as usize) })
    }

    /// The name at an offset; empty if it is between other characters.
    pub(super) fn name_at(&self, offset: usize) -> &str {
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let (before, after) =
            (self.text.get(..offset).unwrap_or_default(), self.text.get(offset..).unwrap_or_default());
        let start = before.trim_end_matches(is_name).len();
        let end = offset + after.find(|c| !is_name(c)).unwrap_or(after.len());
        self.text.get(start..end).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_count_utf16() {
        let text = "let é = 1\n// 𝄞 note\r\nend";
        let document = Document::new(text, 1);
        for (pattern, line, character) in [("= 1", 0, 6), ("note", 1, 6), ("end", 2, 0), ("𝄞", 1, 3)] {
            let offset = text.find(pattern).unwrap();
            let position = json!({ "line": line, "character": character });
            assert_eq!(document.position(offset), position, "{pattern}");
            assert_eq!(document.offset(&position), offset, "{pattern}");
        }
        // Inside a pair of units, past a line, past the text.
        assert_eq!(document.offset(&json!({ "line": 1, "character": 4 })), text.find('𝄞').unwrap());
        assert_eq!(document.offset(&json!({ "line": 0, "character": 99 })), text.find('\n').unwrap());
        assert_eq!(document.offset(&json!({ "line": 9, "character": 0 })), text.len());
        assert_eq!(document.name_at(text.len() - 1), "end");
        assert_eq!(document.name_at(0), "let");
    }
}
