//! Collecting declarations.
//!
//! In: the syntax trees of the user's file and of the modules it uses. Out: [`Items`], with types
//! for every field and every signature, so that bodies can be checked in any order. Bodies are not
//! checked here.

use super::dims::DimScope;
use super::fields::fields_of_layer;
use super::generics::{elem_given, generics_of_layer};
use super::items::{FunctionItem, Items, LayerItem, Module, duplicate, unknown_attribute};
use super::modules;
use super::signatures::signature;
use super::typed::{FunctionId, LayerId, LayerKind};
use crate::diagnostics::codes::{entries, names};
use crate::diagnostics::{Diagnostic, Diagnostics, did_you_mean};
use crate::shape::Elem;
use crate::source::Span;
use crate::syntax::ast::{self, Item, TypeKind};
use std::collections::BTreeMap;

/// Collects all declarations. The first files are the used modules, each after the modules that it
/// uses itself; the last file is the user's.
pub(super) fn collect<'a>(files: &'a [(Option<&'static str>, ast::File)], diagnostics: &mut Diagnostics) -> Items<'a> {
    let mut items = Items::default();
    for (path, file) in files {
        declare(&mut items, *path, file, diagnostics);
    }
    instances(&mut items, diagnostics);
    for id in 0..items.layers.len() {
        generics_of_layer(&mut items, id, diagnostics);
    }
    for id in 0..items.layers.len() {
        fields_of_layer(&mut items, id, diagnostics);
    }
    for id in 0..items.functions.len() {
        signature(&mut items, id, diagnostics);
    }
    for layer in items.layers.iter().filter(|layer| layer.kind == LayerKind::Rule) {
        super::train::rule(&items, layer, diagnostics);
    }
    items
}

/// The maximum number of layer instances with other element types than their defaults.
const MAX_INSTANCES: usize = 4096;

/// Instantiates each layer that a field uses with other element types than its defaults,
/// transitively.
fn instances(items: &mut Items<'_>, diagnostics: &mut Diagnostics) {
    let mut at = 0;
    while let Some(holder) = items.layers.get(at) {
        let (ast, module, known) = (holder.ast, holder.module, holder.elems.clone());
        at += 1;
        for field in &ast.fields {
            let mut open = vec![&field.ty];
            while let Some(ty) = open.pop() {
                match &ty.kind {
                    TypeKind::Named { path, generics } => {
                        instance(items, module, &known, (path, generics));
                    }
                    TypeKind::Array { element, .. } => open.push(element),
                    TypeKind::Tuple(_) | TypeKind::Tensor { .. } | TypeKind::Generic { .. } | TypeKind::Error => {}
                }
            }
            if items.instances.len() > MAX_INSTANCES {
                let message = format!("layers are used with more than {MAX_INSTANCES} choices of element types");
                diagnostics.push(
                    Diagnostic::error(entries::PROGRAM_SIZE, message).at(field.span, "here the limit is reached"),
                );
                return;
            }
        }
    }
}

/// Instantiates the layer of a type with its element types, unless it exists. Errors are reported
/// elsewhere.
fn instance(
    items: &mut Items<'_>,
    module: usize,
    known: &BTreeMap<String, Elem>,
    (path, args): (&[ast::Ident], &[ast::GenericArg]),
) {
    let mut ignored = Diagnostics::new();
    let Some(template) = items.find_layer(module, path, &mut ignored) else { return };
    let target = items.layer(template);
    let (ast, of_module) = (target.ast, target.module);
    let mut given = BTreeMap::new();
    for (position, arg) in args.iter().enumerate() {
        let param = match &arg.name {
            None => ast.generics.get(position),
            Some(name) => ast.generics.iter().find(|param| param.name.name == name.name),
        };
        if let (Some(param), Some(elem)) = (param.filter(|p| p.elem.is_some()), elem_given(arg, known)) {
            given.insert(param.name.name.clone(), elem);
        }
    }
    let elems = items.elems_of(template, &given);
    let key = (template, elems.values().copied().collect::<Vec<Elem>>());
    if elems == target.elems || items.instances.contains_key(&key) {
        return;
    }
    let id = LayerId(items.layers.len() as u32);
    let functions = ast.functions.iter().map(|f| new_function(items, f, of_module, Some(id))).collect();
    items.layers.push(LayerItem {
        ast,
        kind: LayerKind::Layer,
        template,
        elems,
        module: of_module,
        generics: Vec::new(),
        scope: DimScope::default(),
        own: Vec::new(),
        fields: Vec::new(),
        functions,
    });
    items.instances.insert(key, id);
}

/// The modules that a file uses, by path, without duplicates; reports unknown ones.
pub(super) fn used_modules(file: &ast::File, diagnostics: &mut Diagnostics) -> Vec<&'static modules::Module> {
    let mut used: Vec<&'static modules::Module> = Vec::new();
    for item in &file.items {
        let Item::Use(item) = item else { continue };
        let parts: Vec<&str> = item.path.iter().map(|part| part.name.as_str()).collect();
        let path = parts.join(".");
        match modules::MODULES.iter().find(|module| module.path == path) {
            Some(module) if used.iter().all(|other| other.path != module.path) => used.push(module),
            Some(_) => {}
            None => {
                let span = item.path.iter().map(|part| part.span).reduce(Span::to).unwrap_or(item.span);
                let mut diagnostic = Diagnostic::error(names::UNKNOWN_MODULE, format!("there is no module `{path}`"))
                    .at(span, "not found");
                if let Some(near) = did_you_mean(&path, modules::MODULES.iter().map(|module| module.path)) {
                    diagnostic = diagnostic.near(span, near);
                } else {
                    let list: Vec<String> = modules::MODULES.iter().map(|m| format!("`{}`", m.path)).collect();
                    diagnostic = diagnostic.note(format!("the modules are {}", list.join(", ")));
                }
                diagnostics.push(diagnostic);
            }
        }
    }
    used
}

fn declare<'a>(items: &mut Items<'a>, path: Option<&'static str>, file: &'a ast::File, diagnostics: &mut Diagnostics) {
    let index = items.modules.len();
    let mut ignored = Diagnostics::new();
    let used = used_modules(file, &mut ignored);
    let uses = (0..items.modules.len())
        .filter(|i| items.modules.get(*i).is_some_and(|m| used.iter().any(|u| Some(u.path) == m.path)))
        .collect();
    let mut module = Module { path, uses, layers: BTreeMap::new(), functions: BTreeMap::new() };
    let mut seen: BTreeMap<&str, Span> = BTreeMap::new();
    for item in &file.items {
        let name = match item {
            Item::Use(_) => continue,
            Item::Layer(layer) => &layer.name,
            Item::Function(function) => &function.name,
        };
        let first = seen.get(name.name.as_str()).copied();
        match first {
            Some(first) => diagnostics.push(duplicate("the name", name, first)),
            None => {
                seen.insert(&name.name, name.span);
            }
        }
        match item {
            Item::Use(_) => {}
            Item::Layer(layer) => {
                let id = LayerId(items.layers.len() as u32);
                if first.is_none() {
                    module.layers.insert(&layer.name.name, id);
                }
                let functions = layer.functions.iter().map(|f| new_function(items, f, index, Some(id))).collect();
                let elems = layer.generics.iter().filter_map(|g| Some((g.name.name.clone(), g.elem?))).collect();
                items.layers.push(LayerItem {
                    ast: layer,
                    kind: layer.kind,
                    template: id,
                    elems,
                    module: index,
                    generics: Vec::new(),
                    scope: DimScope::default(),
                    own: Vec::new(),
                    fields: Vec::new(),
                    functions,
                });
                members(layer, diagnostics);
            }
            Item::Function(function) => {
                let id = new_function(items, function, index, None);
                if first.is_none() {
                    module.functions.insert(&function.name.name, id);
                }
                if function.is_pub {
                    diagnostics.push(pub_outside(function, "it is outside of a model"));
                }
            }
        }
    }
    items.modules.push(module);
}

fn pub_outside(function: &ast::Function, why: &str) -> Diagnostic {
    Diagnostic::error(entries::PUB_OUTSIDE, format!("`pub fn {}` is not an entry point: {why}", function.name.name))
        .at(function.name.span, "only the `pub fn`s of a model are entry points")
        .help("remove `pub`")
}

fn new_function<'a>(
    items: &mut Items<'a>,
    ast: &'a ast::Function,
    module: usize,
    owner: Option<LayerId>,
) -> FunctionId {
    let id = FunctionId(items.functions.len() as u32);
    items.functions.push(FunctionItem {
        ast,
        module,
        owner,
        generics: Vec::new(),
        scope: DimScope::default(),
        dims: Vec::new(),
        params: Vec::new(),
        defaults: Vec::new(),
        result: None,
        own: Vec::new(),
    });
    id
}

/// Does this part of the file contain a syntax error?
fn is_unread(place: Span, diagnostics: &Diagnostics) -> bool {
    let inside = |span: Span| span.file == place.file && place.start <= span.start && span.start <= place.end;
    diagnostics.iter().any(|d| d.code.is_unread() && d.primary.as_ref().is_some_and(|label| inside(label.span)))
}

/// Checks the names of a layer's members.
fn members(layer: &ast::Layer, diagnostics: &mut Diagnostics) {
    let mut seen: BTreeMap<&str, Span> = BTreeMap::new();
    let fields = layer.fields.iter().map(|field| &field.name);
    for name in fields.chain(layer.functions.iter().map(|function| &function.name)) {
        match seen.get(name.name.as_str()) {
            Some(first) => diagnostics.push(duplicate("the name", name, *first)),
            None => {
                seen.insert(&name.name, name.span);
            }
        }
    }
    if layer.kind != LayerKind::Model {
        for function in layer.functions.iter().filter(|function| function.is_pub) {
            let why = format!("`{}` is a {}, not a model", layer.name.name, layer.kind.keyword());
            diagnostics.push(pub_outside(function, &why));
        }
    } else if !layer.functions.iter().any(|function| function.is_pub) && !is_unread(layer.span, diagnostics) {
        let name = &layer.name;
        let mut diagnostic =
            Diagnostic::error(entries::NO_ENTRY, format!("the model `{}` has no entry point", name.name))
                .at(name.span, "no `pub fn` in this model");
        if let Some(function) = layer.functions.first() {
            diagnostic = diagnostic.help(format!("write `pub fn {}`", function.name.name));
        }
        diagnostics.push(diagnostic);
    }
    for attribute in &layer.attributes {
        diagnostics.push(unknown_attribute(&attribute.name, false));
    }
    for attribute in layer.functions.iter().flat_map(|function| &function.attributes) {
        diagnostics.push(unknown_attribute(&attribute.name, false));
    }
}
