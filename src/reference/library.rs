//! Reference entries of the standard library, generated from its source.
//!
//! In: the parsed source. Out: a section for each module, with an entry for each layer and
//! function: its doc comment, its declaration, fields and signatures.

use super::{Entry, Passage, Section};
use crate::diagnostics::Diagnostics;
use crate::source::{FileId, Span};
use crate::syntax;
use crate::syntax::ast::{Function, Item, Layer};
use crate::types::modules::{MODULES, Module};

/// A section for each module.
pub(super) fn sections() -> Vec<Section> {
    MODULES.iter().map(section).collect()
}

fn section(module: &Module) -> Section {
    let tree = syntax::parse(FileId(0), module.text, &mut Diagnostics::new());
    let own = module.path.rsplit('.').next().unwrap_or(module.path);
    let comment = module.text.lines().take_while(|line| line.starts_with("//"));
    let comment: Vec<&str> = comment.map(|line| line.trim_start_matches(['/', '!']).trim()).collect();
    let introduction = comment.join("\n").trim().to_string();
    let overview = Entry {
        names: vec![module.path.to_string(), own.to_string()],
        forms: vec![format!("use {}", module.path)],
        see: vec!["use".to_string()],
        parts: vec![
            Passage::Text(introduction),
            Passage::Text(format!("`attnc std {own}` prints the whole module, which is written in the language.")),
        ],
        ..Entry::default()
    };
    let items = tree.items.iter().filter_map(|item| match item {
        Item::Layer(layer) => Some(layer_entry(own, layer, module.text)),
        Item::Function(function) => Some(function_entry(own, function, module.text)),
        Item::Use(_) => None,
    });
    Section {
        title: format!("Module {}", module.path),
        introduction: String::new(),
        entries: std::iter::once(overview).chain(items).collect(),
    }
}

fn layer_entry(module: &str, layer: &Layer, text: &str) -> Entry {
    let name = &layer.name.name;
    let whole = written(layer.span, text);
    let head = whole.split_once('{').map_or(whole, |(head, _)| head).trim();
    let mut lines = vec![format!("{head} {{")];
    for field in &layer.fields {
        lines.push(format!("    {}", written(field.span, text)));
    }
    for function in &layer.functions {
        lines.extend(function.docs.lines().map(|line| format!("    /// {}", line.trim()).trim_end().to_string()));
        lines.push(format!("    {}", signature(function, text)));
    }
    lines.push("}".to_string());
    Entry {
        names: vec![format!("{module}.{name}"), name.clone(), format!("std.{module}.{name}")],
        see: vec![format!("std.{module}")],
        parts: vec![Passage::Text(docs(&layer.docs)), Passage::Program(lines.join("\n"))],
        ..Entry::default()
    }
}

fn function_entry(module: &str, function: &Function, text: &str) -> Entry {
    let name = &function.name.name;
    Entry {
        names: vec![format!("{module}.{name}"), name.clone(), format!("std.{module}.{name}")],
        see: vec![format!("std.{module}")],
        parts: vec![Passage::Text(docs(&function.docs)), Passage::Program(signature(function, text).to_string())],
        ..Entry::default()
    }
}

/// A doc comment without leading spaces.
fn docs(text: &str) -> String {
    text.lines().map(str::trim).collect::<Vec<_>>().join("\n").trim().to_string()
}

/// A function without its body.
fn signature<'t>(function: &Function, text: &'t str) -> &'t str {
    let head = Span { end: function.body.span.start, ..function.span };
    written(head, text).trim_end()
}

fn written(span: Span, text: &str) -> &str {
    text.get(span.range()).unwrap_or_default()
}
