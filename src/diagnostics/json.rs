//! Diagnostics as JSON, one object per line, in the format of rustc's `--error-format=json`.
//!
//! In: diagnostics and the source texts. Out: lines with the fields `$message_type`, `message`,
//! `code`, `level`, `spans`, `children` (notes and helps) and `rendered`, which is the text shown
//! to users. Byte offsets count from 0, lines and columns from 1. A help with a suggested edit has
//! the edited ranges in its `spans`, with `suggested_replacement`: `MachineApplicable` if it is
//! certain, `MaybeIncorrect` for a similar name or for one of several readings.

use super::{Diagnostic, Diagnostics, Fix, Label, Severity, render};
use crate::source::{SourceFile, SourceMap};
use serde_json::{Value, json};

/// The maximum number of lines of text in a span.
const MAX_LINES: u32 = 16;

/// All diagnostics, sorted by location, one per line; empty if nothing was reported.
pub fn render_all(diagnostics: &Diagnostics, sources: &SourceMap) -> String {
    let mut text: String = diagnostics.sorted().into_iter().map(|d| line(&object(d, sources))).collect();
    if diagnostics.dropped() > 0 {
        text += &plain(Severity::Note, &format!("{} more are not shown", diagnostics.dropped()), &[]);
    }
    text
}

/// A message without a code or location, on one line.
pub fn plain(severity: Severity, message: &str, notes: &[String]) -> String {
    let mut rendered = format!("{}: {message}\n", level(severity));
    notes.iter().for_each(|note| rendered += &format!("  = note: {note}\n"));
    line(&json!({
        "$message_type": "diagnostic",
        "message": message,
        "code": Value::Null,
        "level": level(severity),
        "spans": [],
        "children": notes.iter().map(|note| child(Severity::Note, note)).collect::<Vec<_>>(),
        "rendered": rendered,
    }))
}

/// The name of a severity in JSON.
pub fn level(severity: Severity) -> &'static str {
    match severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
        Severity::Note => "note",
    }
}

fn line(value: &Value) -> String {
    format!("{value}\n")
}

fn object(diagnostic: &Diagnostic, sources: &SourceMap) -> Value {
    let primary = diagnostic.primary.iter().map(|label| (label, true));
    let labels = primary.chain(diagnostic.secondary.iter().map(|label| (label, false)));
    let spans: Vec<Value> = labels.filter_map(|(label, primary)| span(label, primary, sources)).collect();
    let notes = diagnostic.notes.iter().map(|note| child(Severity::Note, note));
    let helps = diagnostic.helps.iter().enumerate().map(|(at, help)| advice(diagnostic, at, help, sources));
    let children: Vec<Value> = notes.chain(helps).collect();
    json!({
        "$message_type": "diagnostic",
        "message": diagnostic.message,
        "code": {
            "code": diagnostic.code.as_str(),
            "explanation": diagnostic.code.entry().map(|entry| entry.rule),
        },
        "level": level(diagnostic.severity),
        "spans": spans,
        "children": children,
        "rendered": render(diagnostic, sources, false) + "\n\n",
    })
}

fn child(severity: Severity, message: &str) -> Value {
    child_of(level(severity), message, Vec::new())
}

/// A help, with its suggested edits.
fn advice(diagnostic: &Diagnostic, at: usize, message: &str, sources: &SourceMap) -> Value {
    let certain = diagnostic.fixes.iter().filter(|_| at == 0).map(|fix| (fix, "MachineApplicable"));
    let own = diagnostic.alternatives.iter().filter(|(help, _)| help == message);
    let changes = certain.chain(own.map(|(_, fix)| (fix, "MaybeIncorrect")));
    let spans = changes.filter_map(|(fix, applicability)| change(fix, applicability, sources)).collect();
    child_of("help", message, spans)
}

/// The range of an edit, with its replacement.
fn change(fix: &Fix, applicability: &str, sources: &SourceMap) -> Option<Value> {
    let mut value = span(&Label { span: fix.span, text: String::new() }, true, sources)?;
    let fields = value.as_object_mut()?;
    fields.insert("suggested_replacement".to_string(), fix.text.as_str().into());
    fields.insert("suggestion_applicability".to_string(), applicability.into());
    Some(value)
}

fn child_of(level: &str, message: &str, spans: Vec<Value>) -> Value {
    json!({
        "message": message,
        "code": Value::Null,
        "level": level,
        "spans": spans,
        "children": [],
        "rendered": Value::Null,
    })
}

fn span(label: &Label, is_primary: bool, sources: &SourceMap) -> Option<Value> {
    let file = sources.get(label.span.file)?;
    let range = file.clamp(label.span);
    let place = |at: usize| file.line_column(u32::try_from(at).unwrap_or(u32::MAX));
    let (start, end) = (place(range.start), place(range.end));
    let text = (start.line..=end.line.min(start.line.saturating_add(MAX_LINES - 1))).map(|number| {
        let content = line_of(file, number);
        let last = content.chars().count() as u32 + 1;
        json!({
            "text": content,
            "highlight_start": if number == start.line { start.column } else { 1 },
            "highlight_end": if number == end.line { end.column } else { last },
        })
    });
    Some(json!({
        "file_name": file.name(),
        "byte_start": range.start,
        "byte_end": range.end,
        "line_start": start.line,
        "line_end": end.line,
        "column_start": start.column,
        "column_end": end.column,
        "is_primary": is_primary,
        "text": text.collect::<Vec<_>>(),
        "label": if label.text.is_empty() { Value::Null } else { label.text.as_str().into() },
        "suggested_replacement": Value::Null,
        "suggestion_applicability": Value::Null,
        "expansion": Value::Null,
    }))
}

fn line_of(file: &SourceFile, number: u32) -> &str {
    file.text().lines().nth(number.saturating_sub(1) as usize).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnostics::codes::shapes::MATMUL_INNER;
    use crate::source::Span;

    #[test]
    fn a_diagnostic_is_an_object_with_its_places() {
        let mut sources = SourceMap::new();
        let file = sources.add("a.attn", "é q @ k\nlet\n");
        let mut diagnostics = Diagnostics::new();
        let one = Diagnostic::error(MATMUL_INNER, "no").at(Span::new(file, 5, 6), "here");
        diagnostics.push(one.also(Span::new(file, 7, 12), "").note("a").help("b"));
        let text = render_all(&diagnostics, &sources);
        assert_eq!(text.lines().count(), 1);
        let value: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(value["code"]["code"], "E0301");
        let (first, second) = (&value["spans"][0], &value["spans"][1]);
        let numbers = |span: &Value, names: [&str; 6]| names.map(|name| span[name].as_u64().unwrap());
        let names = ["byte_start", "byte_end", "line_start", "column_start", "line_end", "column_end"];
        assert_eq!(numbers(first, names), [5, 6, 1, 5, 1, 6]);
        assert_eq!(numbers(second, names), [7, 12, 1, 7, 2, 4]);
        assert_eq!((&first["is_primary"], &second["is_primary"]), (&Value::Bool(true), &Value::Bool(false)));
        assert_eq!((&first["label"], &second["label"]), (&Value::from("here"), &Value::Null));
        assert_eq!(second["text"][1]["text"], "let");
        assert_eq!(second["text"][1]["highlight_end"], 4);
        let levels: Vec<&str> =
            value["children"].as_array().unwrap().iter().map(|c| c["level"].as_str().unwrap()).collect();
        assert_eq!(levels, ["note", "help"]);
        assert!(value["rendered"].as_str().unwrap().starts_with("error[E0301]: no\n --> a.attn:1:5"));
    }

    #[test]
    fn a_suggestion_has_its_places_and_texts() {
        let mut sources = SourceMap::new();
        let file = sources.add("a.attn", "q @ k\n");
        let one = Diagnostic::error(MATMUL_INNER, "no").at(Span::new(file, 0, 1), "").note("a").help("write it");
        let one =
            one.fix(Span::new(file, 0, 1), "(q").fix(Span::new(file, 5, 5), ")").near(Span::new(file, 4, 5), "kk");
        let value = object(&one, &sources);
        assert_eq!(value["spans"][0]["suggested_replacement"], Value::Null);
        let change = |child: usize, at: usize| {
            let span = &value["children"][child]["spans"][at];
            let text = |field: &str| span[field].as_str().unwrap().to_string();
            let place = (span["byte_start"].as_u64().unwrap(), span["byte_end"].as_u64().unwrap());
            (place, text("suggested_replacement"), text("suggestion_applicability"))
        };
        assert_eq!(change(1, 0), ((0, 1), "(q".to_string(), "MachineApplicable".to_string()));
        assert_eq!(change(1, 1), ((5, 5), ")".to_string(), "MachineApplicable".to_string()));
        assert_eq!(change(2, 0), ((4, 5), "kk".to_string(), "MaybeIncorrect".to_string()));
        assert_eq!(value["children"][2]["message"], "did you mean `kk`?");
        assert_eq!(value["children"][0]["spans"], json!([]));
    }
}
