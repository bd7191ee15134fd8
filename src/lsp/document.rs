//! An open program, and positions in it.
//!
//! In: its text. Out: offsets of positions and positions of offsets; a position is a line and a
//! number of UTF-16 code units. It knows no requests.

use super::{Compiler, Remark};
use crate::diagnostics::{Diagnostics, Use};
use crate::source::{FileId, SourceMap, Span};
use crate::syntax::{self, ast};
use crate::types;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::OnceLock;

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
    analysis: OnceLock<Analysis>,
    compiler: Compiler,
    remarks: OnceLock<Vec<Remark>>,
}

/// The results of parser and type checker for a program, whether or not it has errors.
pub(super) struct Analysis {
    pub(super) sources: SourceMap,
    pub(super) tree: ast::File,
    /// All errors and warnings.
    pub(super) found: Diagnostics,
    /// The names in the document that were resolved, by location, each once.
    pub(super) names: Vec<Use>,
    /// The types of variables and arguments, by the location of their declarations; of a function
    /// that is checked for several element types, the first.
    pub(super) types: BTreeMap<Span, String>,
}

impl Document {
    pub(super) fn new(text: &str, version: i64, compiler: Compiler) -> Document {
        let starts = text.bytes().enumerate().filter(|&(_, byte)| byte == b'\n').map(|(at, _)| at + 1);
        let lines = std::iter::once(0).chain(starts).collect();
        let (analysis, remarks) = (OnceLock::new(), OnceLock::new());
        Document { text: text.to_string(), version, is_reported: false, lines, analysis, compiler, remarks }
    }

    /// The program with another text.
    pub(super) fn with_text(&self, text: &str) -> Document {
        Document::new(text, self.version, self.compiler)
    }

    /// The remarks of the compiler; none if the program has errors.
    pub(super) fn remarks(&self) -> &[Remark] {
        self.remarks.get_or_init(|| (self.compiler.remarks)(&self.text))
    }

    /// Parsed and checked, once.
    pub(super) fn analysis(&self) -> &Analysis {
        self.analysis.get_or_init(|| {
            let mut sources = SourceMap::new();
            let file = sources.add(String::new(), self.text.as_str());
            let mut found = Diagnostics::new();
            let tree = syntax::parse(file, &self.text, &mut found);
            let program = types::check(&tree, &mut sources, &mut found);
            let mut types = BTreeMap::new();
            for local in program.functions.iter().flat_map(|function| &function.locals) {
                let empty = types::typed::Type::Tuple(Vec::new());
                if local.span.file == FILE && !local.name.is_empty() && local.ty != empty {
                    types.entry(local.span).or_insert_with(|| local.ty.to_string());
                }
            }
            Analysis { names: self.names(&found), sources, tree, found, types }
        })
    }

    /// The names of this file that were resolved. The checker adds names to a program, such as the
    /// layer of a list of layers; they have the location of something else, and are left out.
    fn names(&self, found: &Diagnostics) -> Vec<Use> {
        let text = |span: Span| self.text.get(span.range()).unwrap_or_default();
        let is_name =
            |name: &str| name.starts_with(|c: char| is_word(c) && !c.is_ascii_digit()) && name.chars().all(is_word);
        let mut names: Vec<Use> = found.uses().to_vec();
        names.retain(|one| {
            let is_same = one.declared.file != FILE || text(one.declared) == text(one.at);
            one.at.file == FILE && is_name(text(one.at)) && is_same
        });
        names.sort_unstable();
        names.dedup_by_key(|one| one.at);
        names
    }

    /// The name at an offset, if it was resolved.
    pub(super) fn use_at(&self, offset: usize) -> Option<&Use> {
        let names = &self.analysis().names;
        let after = names.partition_point(|one| one.at.start as usize <= offset);
        names.get(after.checked_sub(1)?).filter(|one| offset <= one.at.end as usize)
    }

    /// The position of an offset.
    pub(super) fn position(&self, offset: usize) -> Value {
        let (line, character) = self.line_character(offset);
        json!({ "line": line, "character": character })
    }

    /// The line of an offset, and the number of UTF-16 code units before it on that line.
    pub(super) fn line_character(&self, offset: usize) -> (usize, usize) {
        let offset = offset.min(self.text.len());
        let line = self.lines.partition_point(|&start| start <= offset).saturating_sub(1);
        let start = self.lines.get(line).copied().unwrap_or(0);
        let before = self.text.get(start..).unwrap_or_default();
        let inside = before.char_indices().take_while(|(at, _)| start + at < offset);
        let character: usize = inside.map(|(_, c)| c.len_utf16()).sum();
        (line, character)
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
        let (before, after) =
            (self.text.get(..offset).unwrap_or_default(), self.text.get(offset..).unwrap_or_default());
        let start = before.trim_end_matches(is_word).len();
        let end = offset + after.find(|c| !is_word(c)).unwrap_or(after.len());
        self.text.get(start..end).unwrap_or_default()
    }
}

fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_count_utf16() {
        let text = "let é = 1\n// 𝄞 note\r\nend";
        let document = Document::new(text, 1, Compiler { remarks: |_| Vec::new(), report: |_, _, _, _| None });
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
