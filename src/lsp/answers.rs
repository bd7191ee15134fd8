//! The answers to the requests of an editor.
//!
//! In: a document and the parameters of a request. Out: the result, as JSON. It knows no
//! connection.

use super::document::{Document, FILE};
use super::names;
use crate::diagnostics::{Diagnostic, Diagnostics, Fix, Severity, Suggestion, render};
use crate::format;
use crate::reference;
use crate::source::Span;
use crate::syntax::ast::{Function, Ident, Item};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// Kinds of symbols and completions, as the protocol numbers them.
const CLASS: u32 = 5;
const METHOD: u32 = 6;
const FIELD: u32 = 8;
const FUNCTION: u32 = 12;
const COMPLETION_FUNCTION: u32 = 3;
const COMPLETION_TEXT: u32 = 1;

/// The command that shows the report.
pub(super) const REPORT: &str = "attnc.report";

/// The capabilities of the server. `shows_pages`: the client can show a page.
pub(super) fn capabilities(shows_pages: bool) -> Value {
    let commands: &[&str] = if shows_pages { &[REPORT] } else { &[] };
    json!({
        "capabilities": {
            "positionEncoding": "utf-16",
            "textDocumentSync": { "openClose": true, "change": 1 },
            "documentFormattingProvider": true,
            "codeActionProvider": { "codeActionKinds": ["quickfix", "refactor.rewrite", "source"] },
            "executeCommandProvider": { "commands": commands },
            "documentSymbolProvider": true,
            "hoverProvider": true,
            "completionProvider": {},
            "definitionProvider": true,
            "referencesProvider": true,
            "documentHighlightProvider": true,
            "renameProvider": { "prepareProvider": true },
            "inlayHintProvider": true,
            "signatureHelpProvider": { "triggerCharacters": ["(", ","] },
            "semanticTokensProvider": {
                "legend": { "tokenTypes": names::KINDS, "tokenModifiers": names::MODIFIERS },
                "full": true,
            },
        },
        "serverInfo": { "name": "attnc", "version": env!("CARGO_PKG_VERSION") },
    })
}

/// All diagnostics of a program.
pub(super) fn diagnostics(document: &Document, uri: &str) -> Value {
    document.analysis().found.sorted().into_iter().map(|one| diagnostic(document, uri, one)).collect()
}

/// The same for a client that asks, with the text that the command line shows.
pub(super) fn report(document: &Document, uri: &str, _params: &Value) -> Value {
    let analysis = document.analysis();
    let with_text = |one: &Diagnostic| {
        let mut item = diagnostic(document, uri, one);
        item["data"] = json!({ "rendered": render(one, &analysis.sources, false) });
        item
    };
    let items: Vec<Value> = analysis.found.sorted().into_iter().map(with_text).collect();
    json!({ "kind": "full", "items": items })
}

fn diagnostic(document: &Document, uri: &str, one: &Diagnostic) -> Value {
    let place = one.primary.as_ref().map(|label| label.span).filter(|span| span.file == FILE);
    let related = one.secondary.iter().filter(|label| label.span.file == FILE && !label.text.is_empty());
    let related = related
        .map(|label| json!({ "location": { "uri": uri, "range": document.range(label.span) }, "message": label.text }));
    let label = one.primary.as_ref().map(|label| label.text.as_str()).filter(|text| !text.is_empty());
    let notes = one.notes.iter().map(|note| format!("note: {note}"));
    let lines = label.map(String::from).into_iter().chain(notes);
    let lines = lines.chain(one.helps.iter().map(|help| format!("help: {help}")));
    let message = std::iter::once(one.message.clone()).chain(lines).collect::<Vec<_>>().join("\n");
    let severity = match one.severity {
        Severity::Error => 1,
        Severity::Warning => 2,
        Severity::Note => 3,
    };
    json!({
        "range": document.range(place.unwrap_or(Span::new(FILE, 0, 0))),
        "severity": severity,
        "code": one.code.as_str(),
        "source": "attnc",
        "message": message,
        "relatedInformation": related.collect::<Vec<_>>(),
    })
}

/// The whole program, formatted; null if it has syntax errors.
pub(super) fn formatting(document: &Document, _uri: &str, _params: &Value) -> Value {
    match format::format(FILE, &document.text, &mut Diagnostics::new()) {
        None => Value::Null,
        Some(text) if text == document.text => json!([]),
        Some(text) => {
            let end = document.position(document.text.len());
            json!([{ "range": { "start": { "line": 0, "character": 0 }, "end": end }, "newText": text }])
        }
    }
}

/// The suggested fixes of the diagnostics in a range, and the edits of missed rewrites there.
pub(super) fn code_actions(document: &Document, uri: &str, params: &Value) -> Value {
    let range = &params["range"];
    let (start, end) = (document.offset(&range["start"]), document.offset(&range["end"]));
    let touches = |span: Span| span.file == FILE && span.start as usize <= end && start <= span.end as usize;
    let edit = |fixes: &[&Fix]| {
        let change = |fix: &&Fix| json!({ "range": document.range(fix.span), "newText": fix.text });
        json!({ "changes": { uri: fixes.iter().map(change).collect::<Vec<Value>>() } })
    };
    let mut actions = Vec::new();
    for one in document.analysis().found.sorted() {
        if !one.primary.as_ref().is_some_and(|label| touches(label.span)) {
            continue;
        }
        let about = diagnostic(document, uri, one);
        let action = |title: &str, fixes: &[&Fix], is_certain: bool| {
            json!({
                "title": title,
                "kind": "quickfix",
                "diagnostics": [about],
                "isPreferred": is_certain,
                "edit": edit(fixes),
            })
        };
        let certain: Vec<&Fix> = one.fixes.iter().filter(|fix| fix.span.file == FILE).collect();
        if !certain.is_empty() {
            actions.push(action(one.helps.first().map_or("fix this", String::as_str), &certain, true));
        }
        for (title, fix) in one.alternatives.iter().filter(|(_, fix)| fix.span.file == FILE) {
            actions.push(action(title, &[fix], false));
        }
    }
    let here = document.line_character(start).0..=document.line_character(end).0;
    for remark in document.remarks() {
        let Some(Suggestion { title, fixes }) = &remark.edit else { continue };
        let is_here = here.contains(&document.line_character(remark.at as usize).0);
        let title = format!("{title} ({})", remark.pass);
        let edit = edit(&fixes.iter().collect::<Vec<&Fix>>());
        let action = json!({ "title": title, "kind": "refactor.rewrite", "edit": edit });
        if is_here && !actions.contains(&action) {
            actions.push(action);
        }
    }
    Value::Array(actions)
}

/// The action that shows the report, at the line where a range starts.
pub(super) fn report_action(uri: &str, params: &Value) -> Value {
    let (title, line) = ("Show what the compiler makes of this line", &params["range"]["start"]["line"]);
    let command = json!({ "title": title, "command": REPORT, "arguments": [uri, line] });
    json!({ "title": title, "kind": "source", "command": command })
}

/// Layers with their fields and functions, and free functions.
pub(super) fn symbols(document: &Document, _uri: &str, _params: &Value) -> Value {
    let tree = &document.analysis().tree;
    let symbol = |name: &str, kind: u32, whole: Span, own: Span, children: Vec<Value>| {
        json!({
            "name": name,
            "kind": kind,
            "range": document.range(whole),
            "selectionRange": document.range(own),
            "children": children,
        })
    };
    let function = |f: &Function, kind: u32| symbol(&f.name.name, kind, f.span, f.name.span, Vec::new());
    let item = |item: &Item| match item {
        Item::Use(_) => None,
        Item::Function(f) => Some(function(f, FUNCTION)),
        Item::Layer(layer) => {
            let fields = layer.fields.iter().map(|f| symbol(&f.name.name, FIELD, f.span, f.name.span, Vec::new()));
            let members = fields.chain(layer.functions.iter().map(|f| function(f, METHOD))).collect();
            Some(symbol(&layer.name.name, CLASS, layer.span, layer.name.span, members))
        }
    };
    tree.items.iter().filter_map(item).collect()
}

/// The meaning of a name: a declaration of the program with its docs, the type of a variable, or an
/// entry of the reference. A name that was not resolved is looked for among all declarations.
pub(super) fn hover(document: &Document, _uri: &str, params: &Value) -> Value {
    let offset = document.offset(&params["position"]);
    let name = document.name_at(offset);
    let analysis = document.analysis();
    let declared = document.use_at(offset).map(|found| found.declared);
    if let Some(ty) = declared.and_then(|declared| analysis.types.get(&declared)) {
        return json!({ "contents": { "kind": "markdown", "value": format!("```attn\n{name}: {ty}\n```") } });
    }
    let is_it = |own: &Ident| declared.map_or(own.name == name, |declared| own.span == declared);
    let head = |keyword: &str, span: Span, docs: &str| {
        let text = document.text.get(span.range()).unwrap_or_default();
        let line = text.split(['{', '\n']).next().unwrap_or_default().trim_end();
        let line = if line.is_empty() { keyword } else { line };
        format!("```attn\n{line}\n```\n\n{docs}")
    };
    let mut found: Vec<String> = Vec::new();
    for item in &analysis.tree.items {
        match item {
            Item::Use(_) => {}
            Item::Function(f) if is_it(&f.name) => found.push(head("fn", f.span, &f.docs)),
            Item::Function(_) => {}
            Item::Layer(layer) => {
                let keyword = layer.kind.keyword();
                if is_it(&layer.name) {
                    found.push(head(keyword, layer.span, &layer.docs));
                }
                let fields = layer.fields.iter().filter(|f| is_it(&f.name));
                found.extend(fields.map(|f| head("field", f.span, &f.docs)));
                let functions = layer.functions.iter().filter(|f| is_it(&f.name));
                found.extend(functions.map(|f| head("fn", f.span, &f.docs)));
            }
        }
    }
    if found.is_empty() && !name.is_empty() {
        found.extend(reference::find(name).into_iter().map(|entry| format!("```text\n{}```", entry.text())));
    }
    match found.as_slice() {
        [] => Value::Null,
        all => json!({ "contents": { "kind": "markdown", "value": all.join("\n\n---\n\n") } }),
    }
}

/// The functions of the language, and the names in the program.
pub(super) fn completion(document: &Document, _uri: &str, _params: &Value) -> Value {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let known: BTreeSet<&str> = reference::names().filter(|name| name.chars().all(is_name)).collect();
    let own = document.text.split(|c| !is_name(c)).filter(|word| word.starts_with(|c: char| !c.is_ascii_digit()));
    let own: BTreeSet<&str> = own.filter(|word| !word.is_empty() && !known.contains(word)).collect();
    let entry = |name: &&str, kind: u32| json!({ "label": name, "kind": kind });
    let known = known.iter().map(|name| entry(name, COMPLETION_FUNCTION));
    known.chain(own.iter().map(|name| entry(name, COMPLETION_TEXT))).collect()
}
