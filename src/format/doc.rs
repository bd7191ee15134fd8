//! Layouts: text with possible line breaks, and the printer that chooses among them.
//!
//! In: a [`Doc`]. Out: text, at most [`WIDTH`] columns wide where that is possible. It knows no
//! tokens and no trees. This is the printer of Wadler ("A prettier printer") and Oppen: a group is
//! printed on one line if it fits there, else every line break of it is taken. Crates for that
//! (`pretty`) have no comments that move to the end of a line, which are half of the work here; the
//! rest is shorter than the glue would be.
//!
//! A newline is not written until the text after it is: until then a comment may still join the
//! line, and of several newlines only one remains.

/// The number of columns that a line of code may have; `rustfmt.toml` has the same for the
/// compiler.
pub(super) const WIDTH: usize = 120;
/// The number of columns of one level.
const INDENT: usize = 4;

/// A text with possible line breaks.
#[derive(Clone, Debug)]
pub(super) enum Doc<'a> {
    /// Text without a newline.
    Text(&'a str),
    /// A number of spaces; none at the start or end of a line.
    Spaces(usize),
    /// A newline; in a group on one line, a space.
    Line,
    /// A newline; in a group on one line, nothing.
    Soft,
    /// A newline.
    Hard,
    /// One blank line before the next text.
    Blank,
    /// Text that is omitted in a group on one line.
    IfBroken(&'a str),
    /// A comment: nothing follows it on its line.
    Comment {
        /// From `//` to the end of the line.
        text: &'a str,
        /// Does it end a line of code?
        trailing: bool,
    },
    /// One level further to the right.
    Indent(Vec<Doc<'a>>),
    /// On one line, if that fits.
    Group(Vec<Doc<'a>>),
}

/// Prints a document; the text ends with a newline unless it is empty.
pub(super) fn print(doc: &[Doc<'_>]) -> String {
    let mut printer = Printer { stack: Vec::new(), ..Printer::default() };
    printer.push(doc, 0, false);
    while let Some(next) = printer.stack.pop() {
        printer.step(next);
    }
    if !printer.out.is_empty() {
        printer.out.push('\n');
    }
    align(&printer.out, &printer.comments)
}

/// The same without possible line breaks; comments still end their lines.
pub(super) fn on_one_line(parts: Vec<Doc<'_>>) -> Vec<Doc<'_>> {
    let flat = parts.into_iter().flat_map(|part| match part {
        Doc::Group(parts) | Doc::Indent(parts) => on_one_line(parts),
        Doc::Line => vec![Doc::Spaces(1)],
        Doc::Soft | Doc::IfBroken(_) => Vec::new(),
        Doc::Text(_) | Doc::Spaces(_) | Doc::Hard | Doc::Blank | Doc::Comment { .. } => vec![part],
    });
    flat.collect()
}

#[derive(Clone, Copy)]
struct Next<'d, 'a> {
    doc: &'d Doc<'a>,
    indent: usize,
    is_flat: bool,
}

#[derive(Default)]
struct Printer<'d, 'a> {
    /// The documents to be printed, the next one last.
    stack: Vec<Next<'d, 'a>>,
    out: String,
    column: usize,
    /// The indentation of the line to begin before the next text.
    newline: Option<usize>,
    blank: bool,
    /// Does the line end in a comment, so that nothing may follow on it?
    in_comment: bool,
    spaces: usize,
    /// Where trailing comments begin in `out`, with their columns.
    comments: Vec<(usize, usize)>,
}

impl<'d, 'a> Printer<'d, 'a> {
    fn push(&mut self, docs: &'d [Doc<'a>], indent: usize, is_flat: bool) {
        self.stack.extend(docs.iter().rev().map(|doc| Next { doc, indent, is_flat }));
    }

    fn step(&mut self, Next { doc, indent, is_flat }: Next<'d, 'a>) {
        match doc {
            Doc::Text(text) => self.text(text),
            Doc::Spaces(count) => self.spaces = *count,
            Doc::Line if is_flat => self.spaces = 1,
            Doc::Soft if is_flat => {}
            Doc::Line | Doc::Soft | Doc::Hard => self.newline = Some(indent),
            Doc::Blank => self.blank = true,
            Doc::IfBroken(text) => {
                if !is_flat {
                    self.text(text);
                }
            }
            Doc::Comment { text, trailing: true } if !self.in_comment => {
                self.in_comment = true;
                self.comments.push((self.out.len(), self.column));
                self.out.push_str(text);
                self.newline.get_or_insert(indent);
            }
            Doc::Comment { text, .. } => {
                let indent = *self.newline.get_or_insert(indent);
                self.text(text);
                self.in_comment = true;
                self.newline = Some(indent);
            }
            Doc::Indent(docs) => self.push(docs, indent + INDENT, is_flat),
            Doc::Group(docs) => {
                let is_flat = is_flat || self.fits(docs);
                self.push(docs, indent, is_flat);
            }
        }
    }

    /// Writes text, and before it the line break or the spaces that are due.
    fn text(&mut self, text: &str) {
        if let Some(indent) = self.newline.take() {
            let at_start = self.out.is_empty() || self.out.ends_with(['{', '(', '[', '<']);
            if self.blank && !at_start && !text.starts_with(['}', ')', ']']) {
                self.out.push('\n');
            }
            if !self.out.is_empty() {
                self.out.push('\n');
            }
            self.column = indent;
            self.spaces = 0;
            self.out.extend(std::iter::repeat_n(' ', indent));
        }
        (self.blank, self.in_comment) = (false, false);
        let spaces = std::mem::take(&mut self.spaces);
        self.out.extend(std::iter::repeat_n(' ', spaces));
        self.out.push_str(text);
        self.column += spaces + text.chars().count();
    }

    /// Does a group fit on the rest of the line, with the text after it up to the next possible
    /// break?
    fn fits(&self, docs: &'d [Doc<'a>]) -> bool {
        let start = self.newline.unwrap_or(self.column + self.spaces);
        let Some(mut left) = WIDTH.checked_sub(start) else { return false };
        let mut inside: Vec<&Doc<'a>> = docs.iter().rev().collect();
        let mut outside: Vec<&Doc<'a>> = Vec::new();
        let mut later = self.stack.iter().rev();
        loop {
            let (doc, in_group) = match (inside.pop(), outside.pop()) {
                (Some(doc), kept) => {
                    outside.extend(kept);
                    (doc, true)
                }
                (None, Some(doc)) => (doc, false),
                (None, None) => match later.next() {
                    Some(next) => (next.doc, false),
                    None => return true,
                },
            };
            let width = match doc {
                Doc::Text(text) => text.chars().count(),
                Doc::Spaces(count) => *count,
                Doc::Line if in_group => 1,
                Doc::Soft | Doc::IfBroken(_) if in_group => 0,
                Doc::Line | Doc::Soft | Doc::Hard | Doc::Comment { .. } => return !in_group,
                Doc::IfBroken(text) => text.len(),
                Doc::Blank => 0,
                Doc::Indent(docs) | Doc::Group(docs) => {
                    let list = if in_group { &mut inside } else { &mut outside };
                    list.extend(docs.iter().rev());
                    0
                }
            };
            match left.checked_sub(width) {
                Some(rest) => left = rest,
                None => return false,
            }
        }
    }
}

/// Moves trailing comments two columns away from the code, aligned in adjacent lines.
fn align(text: &str, comments: &[(usize, usize)]) -> String {
    let mut out = String::with_capacity(text.len() + 8 * comments.len());
    let mut written = 0;
    let mut rest = comments;
    while let [first, others @ ..] = rest {
        let mut last = *first;
        let mut length = 1;
        for next in others {
            let between = text.get(last.0..next.0).unwrap_or_default();
            if between.bytes().filter(|&byte| byte == b'\n').count() != 1 {
                break;
            }
            (last, length) = (*next, length + 1);
        }
        let (run, after) = rest.split_at(length);
        let column = run.iter().map(|(_, column)| column + 2).max().unwrap_or(0);
        for (at, from) in run {
            out.push_str(text.get(written..*at).unwrap_or_default());
            out.extend(std::iter::repeat_n(' ', column - from));
            written = *at;
        }
        rest = after;
    }
    out.push_str(text.get(written..).unwrap_or_default());
    out
}
