//! The type checker: resolves names, binds generics, infers shapes; from the AST to the typed AST.
//!
//! In: the syntax tree of the user's file; the modules that it uses (the standard library, `std/`)
//! are parsed and checked the same way. Out: a [`typed::Program`] in which every expression has its
//! element type and symbolic shape, and all diagnostics. Each function is checked once, for all
//! values of its dimensions. Nothing here knows of IR or machines, or of the values that dimensions
//! are bound to (except to show them).
//!
//! ```text
//! lists         layer_lists                         (A, B) and Sequential<A, B> become layers
//! declarations  declare  items  generics  fields    names, dimensions and facts; bodies are not
//!               signatures  dims                    checked
//! bodies        body  statements  assigned  loops   blocks, variables, loops, expected types
//!               lengths  fit  misfit
//! expressions   expr  operators  indexing  values   names, + * @ and, x[..], open types
//! calls         layer_refs  calls  arguments        layers and functions, arguments against
//!               matching                            signatures
//! training      train  gradients                    rules, `train`, `grad`
//! operations    builtins  reductions  selection     softmax, sum, top_k, concat, rearrange,
//!               parts  patterns  pattern            einsum, ...
//! habits        foreign  idioms                     cat, zeros, x.mean(dim = -1), len(x), ...
//! afterwards    finish                              cycles; conditions of callees, sub-layers
//! vocabulary    axes  typed  dump  modules          shapes with `..`; the result, as text;
//!               reference                           the library
//! ```

mod arguments;
mod assigned;
pub mod axes;
mod body;
mod builtins;
mod calls;
mod declare;
mod declared;
mod dims;
pub mod dump;
mod expr;
mod fields;
mod finish;
mod fit;
mod foreign;
mod generics;
mod gradients;
mod idioms;
mod indexing;
mod items;
mod layer_lists;
mod layer_refs;
mod lengths;
mod loops;
mod matching;
mod misfit;
pub mod modules;
mod operators;
mod parts;
pub mod pattern;
mod patterns;
mod reductions;
mod reference;
mod selection;
mod signatures;
mod statements;
pub mod train;
pub mod typed;
mod values;

pub use idioms::{Rule, rules};
pub use reference::{Operation, operations};

use crate::diagnostics::{Diagnostic, Diagnostics, Fix};
use crate::source::{SourceMap, Span};
use crate::stack::with_large_stack;
use crate::syntax;
use crate::syntax::ast::{self, LayerKind};

/// Checks a file. The sources of the modules it uses are added to `sources`.
///
/// The program may be lowered only if `diagnostics` has no errors, including the parser's.
pub fn check(file: &ast::File, sources: &mut SourceMap, diagnostics: &mut Diagnostics) -> typed::Program {
    with_large_stack(|| check_here(file, sources, diagnostics))
}

fn check_here(file: &ast::File, sources: &mut SourceMap, diagnostics: &mut Diagnostics) -> typed::Program {
    let mut files: Vec<(Option<&'static str>, ast::File)> = Vec::new();
    modules_of(file, &mut files, sources, diagnostics);
    files.push((None, file.clone()));
    layer_lists::declare(&mut files, diagnostics);
    let items = declare::collect(&files, diagnostics);
    let layer_conditions = finish::layers(&items, diagnostics);
    let mut checked = bodies(&items, sources, diagnostics);
    let calls: Vec<Vec<body::MadeCall>> = checked.iter_mut().map(|body| std::mem::take(&mut body.calls)).collect();
    let own = checked.iter_mut().zip(&items.functions).map(|(body, item)| {
        let mut own = item.own.clone();
        own.append(&mut body.conditions);
        own
    });
    let own: Vec<Vec<typed::Condition>> = own.collect();
    let lengths: Vec<&[String]> = checked.iter().map(|body| body.lengths.as_slice()).collect();
    let function_conditions = finish::functions(&items, &calls, own, &lengths, diagnostics);
    diagnostics.amend(|diagnostic| state_fact(diagnostic, sources));
    program(&items, layer_conditions, checked, function_conditions)
}

/// Adds to a message about a missing fact the position where it can be stated: before the first
/// brace after its names.
fn state_fact(diagnostic: &mut Diagnostic, sources: &SourceMap) {
    let Some((fact, name)) = diagnostic.missing.take() else { return };
    let text = sources.get(name.file).map_or("", |file| file.text());
    let Some((before, after)) = text.split_at_checked(name.end as usize) else { return };
    let Some((head, _)) = after.split_once('{') else { return };
    // A `let dim` states its own facts.
    if before.lines().next_back().is_some_and(|line| line.contains("let dim ")) {
        return;
    }
    let change = if head.contains(" where ") { format!(", {fact}") } else { format!(" where {fact}") };
    let end = name.end + head.trim_end().trim_end_matches(',').len() as u32;
    let help = format!("state it: `where {fact}`");
    diagnostic.alternatives.push((help, Fix { span: Span::new(name.file, end, end), text: change }));
}

/// Parses the modules that a file uses, without duplicates, each after the modules that it uses
/// itself.
fn modules_of(
    file: &ast::File,
    files: &mut Vec<(Option<&'static str>, ast::File)>,
    sources: &mut SourceMap,
    diagnostics: &mut Diagnostics,
) {
    for module in declare::used_modules(file, diagnostics) {
        if files.iter().all(|(path, _)| *path != Some(module.path)) {
            let id = sources.add(module.file, module.text);
            let read = syntax::parse(id, module.text, diagnostics);
            modules_of(&read, files, sources, diagnostics);
            files.push((Some(module.path), read));
        }
    }
}

/// Checks the bodies of the user's functions, and of the module functions that they call, directly
/// or indirectly.
fn bodies(items: &items::Items<'_>, sources: &SourceMap, diagnostics: &mut Diagnostics) -> Vec<body::Checked> {
    let of_user = |item: &items::FunctionItem<'_>| items.modules.get(item.module).is_some_and(|m| m.path.is_none());
    let mut checked: Vec<Option<body::Checked>> = items.functions.iter().map(|_| None).collect();
    let ids = (0..).map(typed::FunctionId).zip(&items.functions);
    // A stack, so reversed: a layer with its default element types is checked before other
    // instances of the same source.
    let mut open: Vec<typed::FunctionId> = ids.filter(|(_, item)| of_user(item)).map(|(id, _)| id).collect();
    open.reverse();
    while let Some(id) = open.pop() {
        if let Some(slot @ None) = checked.get_mut(id.0 as usize) {
            let before = diagnostics.iter().count();
            let body = body::check(items, id, sources, diagnostics);
            if let Some(choice) = items.function(id).owner.and_then(|owner| items.choice(owner)) {
                diagnostics.note_after(before, &choice);
            }
            open.extend(body.calls.iter().map(|call| call.function));
            open.extend(body.trains.iter().flat_map(|train| &train.arms).filter_map(|arm| Some(arm.rule?.1)));
            *slot = Some(body);
        }
    }
    checked.into_iter().map(Option::unwrap_or_default).collect()
}

/// Assembles the typed program.
fn program(
    items: &items::Items<'_>,
    layer_conditions: Vec<Vec<typed::Condition>>,
    checked: Vec<body::Checked>,
    function_conditions: Vec<Vec<typed::Condition>>,
) -> typed::Program {
    let layers = items.layers.iter().zip(layer_conditions).map(|(item, conditions)| typed::Layer {
        kind: item.kind,
        name: item.ast.name.name.clone(),
        docs: item.ast.docs.clone(),
        module: items.modules.get(item.module).and_then(|module| module.path),
        generics: item.generics.clone(),
        conditions,
        equal: item.scope.equal(item.generics.iter().map(|generic| generic.name.as_str())),
        fields: item.fields.iter().flatten().cloned().collect(),
        functions: item.functions.clone(),
        span: item.ast.span,
    });
    let functions = items.functions.iter().zip(checked).zip(function_conditions).map(|((item, body), conditions)| {
        let in_model = item.owner.is_some_and(|owner| items.layer(owner).kind == LayerKind::Model);
        typed::Function {
            name: item.ast.name.name.clone(),
            docs: item.ast.docs.clone(),
            is_entry: item.ast.is_pub && in_model,
            owner: item.owner,
            generics: item.generics.clone(),
            dims: item.dims.clone(),
            params: body.params,
            result: item.result.clone().unwrap_or(typed::Type::Tuple(Vec::new())),
            conditions,
            equal: {
                let of_arguments = item.scope.names.iter().filter(|(_, origin)| origin.from_argument);
                let generics = item.generics.iter().map(|generic| &generic.name);
                item.scope.equal(of_arguments.map(|(name, _)| name).chain(generics).map(String::as_str))
            },
            lengths: body.lengths,
            trains: body.trains,
            locals: body.locals,
            body: body.body,
            span: item.ast.span,
        }
    });
    typed::Program { layers: layers.collect(), functions: functions.collect() }
}

#[cfg(test)]
mod tests;
