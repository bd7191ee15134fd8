//! Diagnostics as text, in rustc's format.
//!
//! In: diagnostics and the source texts. Out: a string, plain or with terminal colours. The output
//! is deterministic, and at most 120 columns wide whatever the terminal.

use super::{Diagnostic, Diagnostics, Label, Severity};
use crate::source::{SourceFile, SourceMap, Span};
use annotate_snippets::{Annotation, AnnotationKind, Level, Renderer, Snippet};

/// The total number of source bytes scanned for all snippets. Only programs with extreme line
/// lengths or error counts reach it; diagnostics beyond it are only counted.
const MAX_TEXT: usize = 4 << 20;

/// Long lines are cut to this width around the marks.
const WIDTH: usize = 120;

/// One diagnostic as text, without a final newline.
pub fn render(diagnostic: &Diagnostic, sources: &SourceMap, colour: bool) -> String {
    let level = match diagnostic.severity {
        Severity::Error => Level::ERROR,
        Severity::Warning => Level::WARNING,
        Severity::Note => Level::NOTE,
    };
    let mut group = level
        .primary_title(diagnostic.message.as_str())
        .id(diagnostic.code.as_str())
        .elements(snippets(diagnostic, sources));
    for note in &diagnostic.notes {
        group = group.element(Level::NOTE.message(note.as_str()));
    }
    for help in &diagnostic.helps {
        group = group.element(Level::HELP.message(help.as_str()));
    }
    let renderer = if colour { Renderer::styled() } else { Renderer::plain() };
    renderer.term_width(WIDTH).render(&[group])
}

/// All diagnostics as text, sorted by location, an empty line after each; empty if nothing was
/// reported.
pub fn render_all(diagnostics: &Diagnostics, sources: &SourceMap, colour: bool) -> String {
    let mut text = String::new();
    let sorted = diagnostics.sorted();
    let (mut left, mut shown) = (MAX_TEXT, 0);
    for diagnostic in &sorted {
        let labels = diagnostic.primary.iter().chain(&diagnostic.secondary);
        let length = |label: &Label| sources.get(label.span.file).map_or(0, |file| lines_of(label.span, file).len());
        let cost: usize = labels.map(length).sum();
        if cost > left && shown > 0 {
            break;
        }
        left = left.saturating_sub(cost);
        text.push_str(&render(diagnostic, sources, colour));
        text.push_str("\n\n");
        shown += 1;
    }
    let hidden = sorted.len() - shown + diagnostics.dropped();
    if hidden > 0 {
        text.push_str(&format!("note: {hidden} more are not shown\n\n"));
    }
    text
}

/// The range of the lines that a span touches.
fn lines_of(span: Span, file: &SourceFile) -> std::ops::Range<usize> {
    let range = shown(span, file);
    let text = file.text();
    let start = text.get(..range.start).and_then(|before| before.rfind('\n')).map_or(0, |at| at + 1);
    let end = text.get(range.end..).and_then(|after| after.find('\n')).map_or(text.len(), |at| range.end + at);
    start..end
}

/// One snippet for each file with labels, the primary label's file first.
fn snippets<'a>(diagnostic: &'a Diagnostic, sources: &'a SourceMap) -> Vec<Snippet<'a, Annotation<'a>>> {
    let mut files = Vec::new();
    let labels = || diagnostic.primary.iter().chain(&diagnostic.secondary);
    for label in labels() {
        if !files.contains(&label.span.file) {
            files.push(label.span.file);
        }
    }
    let mut snippets = Vec::new();
    for id in files {
        let Some(file) = sources.get(id) else {
            continue;
        };
        // Only the lines from the first mark to the last: a source may be long.
        let ranges = labels().filter(|label| label.span.file == id).map(|label| lines_of(label.span, file));
        let lines = ranges.reduce(|a, b| a.start.min(b.start)..a.end.max(b.end)).unwrap_or(0..0);
        let first = file.line_column(lines.start as u32).line;
        let text = file.text().get(lines.clone()).unwrap_or("");
        let mut snippet = Snippet::source(text).path(file.name()).line_start(first as usize);
        for label in labels().filter(|label| label.span.file == id) {
            let is_primary = diagnostic.primary.as_ref().is_some_and(|primary| std::ptr::eq(primary, label));
            snippet = snippet.annotation(annotation(label, is_primary, file, lines.start));
        }
        snippets.push(snippet);
    }
    snippets
}

fn annotation<'a>(label: &'a Label, is_primary: bool, file: &SourceFile, offset: usize) -> Annotation<'a> {
    let kind = if is_primary { AnnotationKind::Primary } else { AnnotationKind::Context };
    let range = shown(label.span, file);
    let annotation = kind.span(range.start - offset..range.end - offset);
    if label.text.is_empty() { annotation } else { annotation.label(label.text.as_str()) }
}

/// The marked part of a span: whole characters, and of several lines only the first, so that a
/// marked function does not fill the screen.
fn shown(span: Span, file: &SourceFile) -> std::ops::Range<usize> {
    let range = file.clamp(span);
    let text = file.text().get(range.clone()).unwrap_or("");
    match text.find('\n') {
        Some(at) if at > 0 => range.start..range.start + at,
        _ => range,
    }
}
