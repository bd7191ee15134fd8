//! Diagnostics as text, in rustc's form.
//!
//! In: diagnostics and the source texts. Out: a string, plain or with terminal colours; the same
//! diagnostics give the same text, of 120 columns at most, whatever the terminal.

use super::{Diagnostic, Diagnostics, Label, Severity};
use crate::syntax::span::{SourceFile, SourceMap, Span};
use annotate_snippets::{Annotation, AnnotationKind, Level, Renderer, Snippet};

/// Long lines are cut to this width around the marks.
const WIDTH: usize = 120;

/// One diagnostic as text, without a newline at its end.
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

/// All diagnostics as text, sorted by place, an empty line after each; empty if there are none.
pub fn render_all(diagnostics: &Diagnostics, sources: &SourceMap, colour: bool) -> String {
    let mut text = String::new();
    for diagnostic in diagnostics.sorted() {
        text.push_str(&render(diagnostic, sources, colour));
        text.push_str("\n\n");
    }
    text
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
        let mut snippet = Snippet::source(file.text()).path(file.name()).line_start(1);
        for label in labels().filter(|label| label.span.file == id) {
            let is_primary = diagnostic.primary.as_ref().is_some_and(|primary| std::ptr::eq(primary, label));
            snippet = snippet.annotation(annotation(label, is_primary, file));
        }
        snippets.push(snippet);
    }
    snippets
}

fn annotation<'a>(label: &'a Label, is_primary: bool, file: &SourceFile) -> Annotation<'a> {
    let kind = if is_primary { AnnotationKind::Primary } else { AnnotationKind::Context };
    let annotation = kind.span(shown(label.span, file));
    if label.text.is_empty() { annotation } else { annotation.label(label.text.as_str()) }
}

/// The part of a span that is marked: whole characters, and of a place over several lines the first
/// line alone, so that a marked function does not fill the screen.
fn shown(span: Span, file: &SourceFile) -> std::ops::Range<usize> {
    let range = file.clamp(span);
    let text = file.text().get(range.clone()).unwrap_or("");
    match text.find('\n') {
        Some(at) if at > 0 => range.start..range.start + at,
        _ => range,
    }
}
