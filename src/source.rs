//! Source texts and positions in them: spans, files, line and column, and the locations of IR
//! instructions.
//!
//! In: the texts of a compilation (the user's file, the standard library's files). Out: [`Span`]s
//! for nodes and diagnostics, [`Loc`]s for instructions, and [`SourceMap`] to turn a span into line
//! and column. It knows no tokens, trees, IR or messages, so every stage may use it.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};

/// One source text of a [`SourceMap`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct FileId(pub u32);

/// A half-open range of bytes `start..end` in one file.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Span {
    /// The file that contains the range.
    pub file: FileId,
    /// Offset of the first byte.
    pub start: u32,
    /// Offset after the last byte.
    pub end: u32,
}

impl Span {
    /// The span `start..end` of `file`.
    pub const fn new(file: FileId, start: u32, end: u32) -> Span {
        Span { file, start, end }
    }

    /// The smallest span that contains both; `self` if `other` is in another file.
    pub fn to(self, other: Span) -> Span {
        if self.file != other.file {
            return self;
        }
        Span::new(self.file, self.start.min(other.start), self.end.max(other.end))
    }

    /// The empty span at this span's end.
    pub fn after(self) -> Span {
        Span::new(self.file, self.end, self.end)
    }

    /// The span as a range of `usize`, for slicing a text.
    pub fn range(self) -> std::ops::Range<usize> {
        self.start as usize..self.end as usize
    }
}

impl fmt::Debug for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}..{}", self.file.0, self.start, self.end)
    }
}

/// A line and a column, both counted from 1; the column counts characters.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct LineColumn {
    /// Line number, from 1.
    pub line: u32,
    /// Column in characters, from 1.
    pub column: u32,
}

impl fmt::Display for LineColumn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.line, self.column)
    }
}

/// The source location of an instruction: file (0 is the module's own, others index the module's
/// list of files from 1), line and column from 1. Line 0 means that the location is unknown.
///
/// Instructions made from an operation of graph IR copy its location, which also has the number of
/// the operation, since two may have the same place. Comparisons and texts see only the place.
#[derive(Clone, Copy, Default)]
pub struct Loc {
    /// Index of the file.
    pub file: u32,
    /// Line, from 1; 0 if the location is unknown.
    pub line: u32,
    /// Column in characters, from 1.
    pub column: u32,
    /// The operation of graph IR: function and value, packed; 0 if it is unknown.
    pub operation: u32,
}

/// Low bits of [`Loc::operation`]: the value, from 1.
const VALUE_BITS: u32 = 22;

impl Loc {
    /// The same place, of an operation of graph IR; unknown if the numbers are too large.
    #[must_use]
    pub fn of_operation(self, function: usize, value: u32) -> Loc {
        let function = u32::try_from(function).ok().filter(|n| *n < 1 << (32 - VALUE_BITS));
        let value = value.checked_add(1).filter(|n| *n < 1 << VALUE_BITS);
        let operation = function.zip(value).map_or(0, |(function, value)| function << VALUE_BITS | value);
        Loc { operation, ..self }
    }

    /// Function and value of the operation of graph IR, if it is known.
    pub fn graph_operation(self) -> Option<(usize, u32)> {
        let value = (self.operation & ((1 << VALUE_BITS) - 1)).checked_sub(1)?;
        Some((usize::try_from(self.operation >> VALUE_BITS).ok()?, value))
    }

    fn place(self) -> (u32, u32, u32) {
        (self.file, self.line, self.column)
    }

    /// The name of the location's file; `own` is the module's file, `files` the others.
    pub fn file_name<'a>(self, own: &'a str, files: &'a [String]) -> &'a str {
        match usize::try_from(self.file).ok().and_then(|n| n.checked_sub(1)) {
            None => own,
            Some(n) => files.get(n).map_or("?", String::as_str),
        }
    }

    /// `gpt2.attn:22:26`, or only the file name if the location is unknown.
    pub fn text(self, own: &str, files: &[String]) -> String {
        let file = self.file_name(own, files);
        if self.line == 0 { file.to_string() } else { format!("{file}:{}:{}", self.line, self.column) }
    }
}

impl fmt::Debug for Loc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Loc({}, {}:{})", self.file, self.line, self.column)
    }
}

impl PartialEq for Loc {
    fn eq(&self, other: &Loc) -> bool {
        self.place() == other.place()
    }
}

impl Eq for Loc {}

impl Hash for Loc {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.place().hash(state);
    }
}

impl PartialOrd for Loc {
    fn partial_cmp(&self, other: &Loc) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Loc {
    fn cmp(&self, other: &Loc) -> Ordering {
        self.place().cmp(&other.place())
    }
}

/// A named text with an index of its lines.
#[derive(Clone, Debug)]
pub struct SourceFile {
    name: String,
    text: String,
    /// Offset of the first byte of each line.
    lines: Vec<u32>,
}

impl SourceFile {
    fn new(name: String, text: String) -> SourceFile {
        let starts = text.bytes().enumerate().filter(|&(_, byte)| byte == b'\n').map(|(at, _)| at as u32 + 1);
        let lines = std::iter::once(0).chain(starts).collect();
        SourceFile { name, text, lines }
    }

    /// The name shown in messages: the path as the user wrote it, or `std/nn.attn`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The name without directories, as in IR locations.
    pub fn base_name(&self) -> &str {
        self.name.rsplit(['/', '\\']).next().unwrap_or(&self.name)
    }

    /// The contents.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Line and column of a byte offset; offsets past the end count as the end.
    pub fn line_column(&self, offset: u32) -> LineColumn {
        let mut offset = (offset as usize).min(self.text.len());
        while !self.text.is_char_boundary(offset) {
            offset -= 1;
        }
        let line = self.lines.partition_point(|&start| start as usize <= offset).saturating_sub(1);
        let start = self.lines.get(line).map_or(0, |&start| start as usize);
        let column = self.text.get(start..offset).map_or(0, |text| text.chars().count());
        LineColumn { line: line as u32 + 1, column: column as u32 + 1 }
    }

    /// The byte offset of a line and a column, both from 1.
    pub fn offset(&self, line: u32, column: u32) -> Option<u32> {
        let start = *self.lines.get(line.checked_sub(1)? as usize)?;
        let before = self.text.get(start as usize..)?.chars().take(column.saturating_sub(1) as usize);
        Some(start + before.map(char::len_utf8).sum::<usize>() as u32)
    }

    /// The span clamped to this text and widened to whole characters, as a range that slices it.
    pub fn clamp(&self, span: Span) -> std::ops::Range<usize> {
        let mut start = (span.start as usize).min(self.text.len());
        let mut end = (span.end as usize).clamp(start, self.text.len());
        while !self.text.is_char_boundary(start) {
            start -= 1;
        }
        while !self.text.is_char_boundary(end) {
            end += 1;
        }
        start..end
    }
}

/// All source texts of one compilation. The driver limits each to 4 GiB.
#[derive(Clone, Debug, Default)]
pub struct SourceMap {
    files: Vec<SourceFile>,
}

impl SourceMap {
    /// A map without files.
    pub fn new() -> SourceMap {
        SourceMap::default()
    }

    /// Adds a text under a name and returns its id.
    pub fn add(&mut self, name: impl Into<String>, text: impl Into<String>) -> FileId {
        let id = FileId(self.files.len() as u32);
        self.files.push(SourceFile::new(name.into(), text.into()));
        id
    }

    /// The file with this id, if it belongs to this map.
    pub fn get(&self, file: FileId) -> Option<&SourceFile> {
        self.files.get(file.0 as usize)
    }

    /// All files with their ids, in the order in which they were added.
    pub fn files(&self) -> impl Iterator<Item = (FileId, &SourceFile)> {
        self.files.iter().enumerate().map(|(i, file)| (FileId(i as u32), file))
    }

    /// The text of a span; empty if the span is not inside its file.
    pub fn text(&self, span: Span) -> &str {
        self.get(span.file).and_then(|file| file.text.get(span.range())).unwrap_or("")
    }

    /// Line and column of a span's start (1:1 if the file is unknown).
    pub fn line_column(&self, span: Span) -> LineColumn {
        self.get(span.file).map_or(LineColumn { line: 1, column: 1 }, |file| file.line_column(span.start))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_and_columns_count_characters() {
        let mut map = SourceMap::new();
        let file = map.add("dir/a.attn", "ab\nπx\n");
        let at = |start| map.line_column(Span::new(file, start, start)).to_string();
        assert_eq!(at(0), "1:1");
        assert_eq!(at(2), "1:3");
        assert_eq!(at(3), "2:1");
        assert_eq!(at(5), "2:2");
        assert_eq!(at(4), "2:1");
        assert_eq!(at(7), "3:1");
        assert_eq!(at(900), "3:1");
        assert_eq!(map.get(file).map(SourceFile::base_name), Some("a.attn"));
    }
}
