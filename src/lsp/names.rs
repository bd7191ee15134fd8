//! The answers about names: where one is declared, where it is used, what it is, another name.
//!
//! In: a document, whose names the type checker resolved, and the parameters of a request. Out: the
//! result, as JSON. It resolves no name itself.

use super::document::{Document, FILE};
use crate::diagnostics::{Diagnostics, Fix, NameKind, Severity, Use, replaced};
use crate::source::Span;
use crate::syntax::ast::{Expr, ExprKind, Item};
use crate::syntax::lexer::lex;
use crate::syntax::token::Token;
use serde_json::{Value, json};

/// The names of [`NameKind`]s in the protocol, by [`number`].
pub(super) const KINDS: [&str; 6] = ["parameter", "variable", "typeParameter", "property", "function", "class"];
/// Modifiers of semantic tokens, by bit.
pub(super) const MODIFIERS: [&str; 1] = ["declaration"];

fn number(kind: NameKind) -> u32 {
    match kind {
        NameKind::Parameter => 0,
        NameKind::Variable => 1,
        NameKind::Generic => 2,
        NameKind::Field => 3,
        NameKind::Function => 4,
        NameKind::Layer => 5,
    }
}

/// The declaration of a name.
pub(super) struct Declaration {
    /// The file of the standard library that contains it, with its text; `None` for the document.
    pub(super) library: Option<(String, String)>,
    /// Its range.
    pub(super) range: Value,
}

/// The declaration of the name at a position; `None` for a name of the language.
pub(super) fn definition(document: &Document, params: &Value) -> Option<Declaration> {
    let declared = document.use_at(document.offset(&params["position"]))?.declared;
    if declared.file == FILE {
        return Some(Declaration { library: None, range: document.range(declared) });
    }
    let file = document.analysis().sources.get(declared.file)?;
    let range = document.with_text(file.text()).range(declared);
    Some(Declaration { library: Some((file.name().to_string(), file.text().to_string())), range })
}

/// All uses of the name at a position, with its declaration.
fn uses<'d>(document: &'d Document, params: &Value) -> impl Iterator<Item = &'d Use> {
    let declared = document.use_at(document.offset(&params["position"])).map(|found| found.declared);
    document.analysis().names.iter().filter(move |one| Some(one.declared) == declared)
}

/// The locations of all uses.
pub(super) fn references(document: &Document, uri: &str, params: &Value) -> Value {
    let with_declaration = params["context"]["includeDeclaration"].as_bool().unwrap_or(true);
    let found = uses(document, params).filter(|one| with_declaration || one.at != one.declared);
    found.map(|one| json!({ "uri": uri, "range": document.range(one.at) })).collect()
}

/// The ranges of all uses.
pub(super) fn highlights(document: &Document, _uri: &str, params: &Value) -> Value {
    uses(document, params).map(|one| json!({ "range": document.range(one.at) })).collect()
}

/// All names that were resolved, in the protocol's encoding: the distance in lines, the distance in
/// characters on the same line, the length, the kind and the modifiers.
pub(super) fn semantic_tokens(document: &Document, _uri: &str, _params: &Value) -> Value {
    let (mut data, mut before) = (Vec::new(), (0, 0));
    for one in &document.analysis().names {
        let (line, character) = document.line_character(one.at.start as usize);
        let column = if line == before.0 { character - before.1 } else { character };
        // Names are ASCII.
        let modifiers = usize::from(one.at == one.declared);
        data.extend([line - before.0, column, one.at.range().len(), number(one.kind) as usize, modifiers]);
        before = (line, character);
    }
    json!({ "data": data })
}

/// The range of the name at a position, if it may be renamed.
pub(super) fn prepare_rename(document: &Document, _uri: &str, params: &Value) -> Value {
    let found = document.use_at(document.offset(&params["position"]));
    found.filter(|found| found.declared.file == FILE).map_or(Value::Null, |found| document.range(found.at))
}

/// The edits that give the name at a position another one, or why that cannot be done: the changed
/// program is checked, and each name in it must still refer to the same declaration.
pub(super) fn rename(document: &Document, uri: &str, params: &Value) -> Result<Value, String> {
    let new = params["newName"].as_str().unwrap_or_default();
    let is_name = matches!(lex(FILE, new, &mut Diagnostics::new()).as_slice(), [one] if one.token == Token::Ident(new));
    if !is_name {
        return Err(format!("`{new}` is not a name"));
    }
    let Some(found) = document.use_at(document.offset(&params["position"])) else {
        return Err("only names that are declared in the program can be renamed".to_string());
    };
    if found.declared.file != FILE {
        return Err("it is declared in the standard library".to_string());
    }
    let mut changes: Vec<Fix> = uses(document, params).map(|one| Fix { span: one.at, text: new.to_string() }).collect();
    changes.extend(stored_name(document, found, new));
    changes.sort_by_key(|fix| (fix.span.start, fix.span.end));
    let changed = document.with_text(&replaced(&document.text, &changes));
    let moved = |span: Span| {
        let shift = |at: u32| {
            // An insertion at the start of a name is before it.
            let before = changes
                .iter()
                .filter(|fix| fix.span.end <= at && (fix.span.start < at || fix.span.start == fix.span.end));
            before.fold(at, |at, fix| at + fix.text.len() as u32 - (fix.span.end - fix.span.start))
        };
        let end = |at: u32| shift(span.start) + (shift(at) - shift(span.start));
        if span.file == FILE { Span { start: shift(span.start), end: end(span.end), ..span } } else { span }
    };
    let expected =
        document.analysis().names.iter().map(|one| Use { at: moved(one.at), declared: moved(one.declared), ..*one });
    let errors = |document: &Document| {
        let errors = document.analysis().found.iter().filter(|one| one.severity == Severity::Error);
        errors.map(|one| one.message.clone()).collect::<Vec<String>>()
    };
    let (before, after) = (errors(document), errors(&changed));
    if after.len() > before.len() {
        let first = after.into_iter().find(|message| !before.contains(message)).unwrap_or_default();
        return Err(format!("`{new}` cannot be the name: {first}"));
    }
    if !expected.eq(changed.analysis().names.iter().copied()) {
        return Err(format!("`{new}` means something else where the name is used, or hides it"));
    }
    let edits = changes.iter().map(|fix| json!({ "range": document.range(fix.span), "newText": fix.text }));
    Ok(json!({ "changes": { uri: edits.collect::<Vec<_>>() } }))
}

/// Gives a field the attribute that keeps its name in files with weights, or removes one that says
/// the new name; a field with another one keeps that.
fn stored_name(document: &Document, found: &Use, new: &str) -> Option<Fix> {
    let layers = document.analysis().tree.items.iter().filter_map(|item| match item {
        Item::Layer(layer) => Some(layer),
        Item::Use(_) | Item::Function(_) => None,
    });
    let field = layers.flat_map(|layer| &layer.fields).find(|field| field.name.span == found.declared)?;
    let start = field.span.start;
    let insert = Span { start, end: start, ..field.span };
    match field.attributes.iter().find(|attribute| attribute.name.name == "name") {
        Some(attribute) => {
            let is_new = matches!(&attribute.value, Some(Expr { kind: ExprKind::Str(old), .. }) if old == new);
            let rest = document.text.get(attribute.span.end as usize..start as usize)?;
            let space = rest.len() - rest.trim_start().len();
            let span = Span { end: attribute.span.end + space as u32, ..attribute.span };
            is_new.then(|| Fix { span, text: String::new() })
        }
        None if field.is_state => None,
        None => {
            let line = document.text.get(..start as usize)?.rsplit('\n').next().unwrap_or_default();
            let between = if line.trim().is_empty() { format!("\n{line}") } else { " ".to_string() };
            Some(Fix { span: insert, text: format!("#[name = \"{}\"]{between}", field.name.name) })
        }
    }
}
