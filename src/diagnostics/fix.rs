//! Suggested fixes: edits of a source text.
//!
//! In: a text and the diagnostics about it. Out: the text with the first suggestion of each
//! diagnostic applied.

use super::Diagnostic;
use crate::source::{FileId, Span};

/// An edit of a source text: replaces a span. An empty span is an insertion.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Fix {
    /// The text that is replaced.
    pub span: Span,
    /// Its replacement.
    pub text: String,
}

/// Edits that belong together.
#[derive(Clone, PartialEq, Debug)]
pub struct Suggestion {
    /// One line, in which long texts are cut.
    pub title: String,
    /// The edits, which do not overlap.
    pub fixes: Vec<Fix>,
}

/// The text of a file with the suggested edits applied, and the number of edits. An edit inside a
/// wider edit is omitted, because the wider one includes it; a diagnostic whose edit partly
/// overlaps another is ignored.
pub fn apply_fixes<'d>(
    text: &str,
    file: FileId,
    diagnostics: impl IntoIterator<Item = &'d Diagnostic>,
) -> (String, usize) {
    let whole = Span::new(file, 0, u32::try_from(text.len()).unwrap_or(u32::MAX));
    let chosen = choose(diagnostics, whole);
    (replace(text, 0, &chosen), chosen.len())
}

/// The text of a span, with the edits inside it applied.
pub fn fixed_text<'d>(text: &str, span: Span, diagnostics: impl IntoIterator<Item = &'d Diagnostic>) -> String {
    let chosen = choose(diagnostics, span);
    replace(text.get(span.range()).unwrap_or_default(), span.start, &chosen)
}

/// A text with edits that do not overlap.
pub fn replaced(text: &str, fixes: &[Fix]) -> String {
    replace(text, 0, &fixes.iter().collect::<Vec<&Fix>>())
}

/// The edits inside a span that can be applied together.
fn choose<'d>(diagnostics: impl IntoIterator<Item = &'d Diagnostic>, within: Span) -> Vec<&'d Fix> {
    let inside =
        |fix: &Fix| fix.span.file == within.file && within.start <= fix.span.start && fix.span.end <= within.end;
    let mut groups: Vec<Vec<&Fix>> = diagnostics
        .into_iter()
        .map(|diagnostic| diagnostic.fixes.iter().filter(|fix| inside(fix)).collect::<Vec<&Fix>>())
        .filter(|fixes| !fixes.is_empty())
        .collect();
    let width = |fixes: &Vec<&Fix>| fixes.iter().map(|fix| fix.span.end - fix.span.start).max();
    groups.sort_by_key(|fixes| std::cmp::Reverse(width(fixes)));
    let mut chosen: Vec<&Fix> = Vec::new();
    for fixes in groups {
        if !fixes.iter().any(|fix| chosen.iter().any(|other| crosses(fix.span, other.span))) {
            let covered = |fix: &Fix| chosen.iter().any(|other| covers(other.span, fix.span));
            let new: Vec<&Fix> = fixes.into_iter().filter(|fix| !covered(fix)).collect();
            chosen.extend(new);
        }
    }
    chosen
}

/// Does the outer span contain the inner one, and not merely touch it at an edge?
fn covers(outer: Span, inner: Span) -> bool {
    let at_edge = inner.start == inner.end && (inner.start == outer.start || inner.end == outer.end);
    outer == inner || (outer.start <= inner.start && inner.end <= outer.end && !at_edge)
}

/// Do two spans overlap without one containing the other?
fn crosses(a: Span, b: Span) -> bool {
    a.start < b.end && b.start < a.end && !covers(a, b) && !covers(b, a)
}

/// Replaces non-overlapping parts of a text, which begins at offset `start` of its file.
fn replace(text: &str, start: u32, fixes: &[&Fix]) -> String {
    let mut fixes = fixes.to_vec();
    fixes.sort_by_key(|fix| (fix.span.start, fix.span.end));
    let mut out = String::with_capacity(text.len());
    let mut at = 0;
    for fix in fixes {
        let (from, to) = ((fix.span.start - start) as usize, (fix.span.end - start) as usize);
        out.push_str(text.get(at..from).unwrap_or_default());
        out.push_str(&fix.text);
        at = to.max(at);
    }
    out.push_str(text.get(at..).unwrap_or_default());
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnostics::codes::shapes;

    fn change(parts: &[(u32, u32, &str)]) -> Diagnostic {
        let none = Diagnostic::error(shapes::AXIS, "");
        parts.iter().fold(none, |d, (start, end, text)| d.fix(Span::new(FileId(0), *start, *end), *text))
    }

    #[test]
    fn changes_are_made_together_and_the_wider_wins() {
        let text = "f(a, b)";
        let list = [change(&[(2, 3, "x")]), change(&[(0, 1, "g"), (6, 6, ", c")])];
        assert_eq!(apply_fixes(text, FileId(0), &list), ("g(x, b, c)".to_string(), 3));
        let list = [change(&[(2, 3, "x")]), change(&[(0, 7, "h(a)")])];
        assert_eq!(apply_fixes(text, FileId(0), &list), ("h(a)".to_string(), 1));
        let list = [change(&[(0, 1, "g"), (2, 3, "x")]), change(&[(2, 6, "y, z")])];
        assert_eq!(apply_fixes(text, FileId(0), &list), ("g(y, z)".to_string(), 2));
        let list = [change(&[(2, 5, "x")]), change(&[(3, 6, "y")])];
        assert_eq!(apply_fixes(text, FileId(0), &list), ("f(xb)".to_string(), 1));
        let list = [change(&[(2, 3, "x")]), change(&[(0, 7, "h(a)")])];
        assert_eq!(fixed_text(text, Span::new(FileId(0), 2, 6), &list), "x, b");
        assert_eq!(apply_fixes(text, FileId(1), &list), (text.to_string(), 0));
    }
}
