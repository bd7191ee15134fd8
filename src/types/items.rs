//! What a program declares: layers with their fields, functions with their signatures, each name known once.
//!
//! In: the syntax trees of the user's file and of the modules it uses. Out: [`Items`], in which every field and every
//! signature has its types, so that bodies can be checked in any order. No body is looked at here.

use super::dims::DimScope;
use super::fields::fields_of_layer;
use super::generics::generics_of_layer;
use super::modules;
use super::signatures::signature;
use super::typed::{Condition, Field, FunctionId, Generic, LayerId, LayerKind, Tensor, Type};
use crate::diagnostics::codes::{entries, names};
use crate::diagnostics::{Diagnostic, Diagnostics, did_you_mean};
use crate::scalar::Scalar;
use crate::shape::Dim;
use crate::source::Span;
use crate::syntax::ast::{self, Ident, Item};
use std::collections::BTreeMap;

/// A source text and the names it sees.
#[derive(Debug)]
pub(super) struct Module<'a> {
    /// The module's path; none for the user's file.
    pub(super) path: Option<&'static str>,
    /// The modules that it uses.
    pub(super) uses: Vec<usize>,
    pub(super) layers: BTreeMap<&'a str, LayerId>,
    pub(super) functions: BTreeMap<&'a str, FunctionId>,
}

/// A layer, its fields resolved.
#[derive(Debug)]
pub(super) struct LayerItem<'a> {
    pub(super) ast: &'a ast::Layer,
    pub(super) module: usize,
    pub(super) generics: Vec<Generic>,
    pub(super) scope: DimScope,
    /// Its own `where` clauses.
    pub(super) own: Vec<Condition>,
    pub(super) fields: Vec<Option<Field>>,
    pub(super) functions: Vec<FunctionId>,
}

impl LayerItem<'_> {
    /// The place of a field of this name; several fields of one name are reported elsewhere.
    pub(super) fn field(&self, name: &str) -> Option<usize> {
        self.ast.fields.iter().position(|field| field.name.name == name)
    }
}

/// A function with its signature.
#[derive(Debug)]
pub(super) struct FunctionItem<'a> {
    pub(super) ast: &'a ast::Function,
    pub(super) module: usize,
    pub(super) owner: Option<LayerId>,
    pub(super) generics: Vec<Generic>,
    pub(super) scope: DimScope,
    /// The dimensions that the arguments bind.
    pub(super) dims: Vec<String>,
    /// None where the type is wrong.
    pub(super) params: Vec<Option<Tensor>>,
    /// What an argument is that a call omits, one for each parameter.
    pub(super) defaults: Vec<Option<ArgDefault>>,
    /// None where the type is wrong; the empty tuple where there is none.
    pub(super) result: Option<Type>,
    /// Its own `where` clauses.
    pub(super) own: Vec<Condition>,
}

/// The default of an argument: one number for all elements.
#[derive(Clone, Debug)]
pub(super) enum ArgDefault {
    /// A literal.
    Literal(Scalar),
    /// A dimension over the names of the signature.
    Dim(Dim),
    /// Wrong, and reported.
    Error,
}

/// Everything that is declared.
#[derive(Debug, Default)]
pub(super) struct Items<'a> {
    pub(super) modules: Vec<Module<'a>>,
    pub(super) layers: Vec<LayerItem<'a>>,
    pub(super) functions: Vec<FunctionItem<'a>>,
}

impl<'a> Items<'a> {
    pub(super) fn layer(&self, id: LayerId) -> &LayerItem<'a> {
        &self.layers[id.0 as usize]
    }

    pub(super) fn function(&self, id: FunctionId) -> &FunctionItem<'a> {
        &self.functions[id.0 as usize]
    }

    /// The function of a layer with this name.
    pub(super) fn method(&self, layer: LayerId, name: &str) -> Option<FunctionId> {
        self.layer(layer).functions.iter().copied().find(|id| self.function(*id).ast.name.name == name)
    }

    /// The free function that a module sees under this name.
    pub(super) fn free_function(&self, module: usize, name: &str) -> Option<FunctionId> {
        let here = self.modules.get(module)?;
        here.functions
            .get(name)
            .copied()
            .or_else(|| here.uses.iter().find_map(|used| self.modules.get(*used)?.functions.get(name).copied()))
    }

    /// The names of all free functions that a module sees.
    pub(super) fn function_names(&self, module: usize) -> Vec<&'a str> {
        let here = self.modules.get(module);
        let used = here.into_iter().flat_map(|m| m.uses.iter().filter_map(|used| self.modules.get(*used)));
        here.into_iter().chain(used).flat_map(|m| m.functions.keys().copied()).collect()
    }

    /// The layer that a module sees under a path.
    pub(super) fn find_layer(&self, module: usize, path: &[Ident], diagnostics: &mut Diagnostics) -> Option<LayerId> {
        let here = self.modules.get(module)?;
        let (name, front) = path.split_last()?;
        let used = here.uses.iter().filter_map(|used| self.modules.get(*used));
        let found = if front.is_empty() {
            here.layers
                .get(name.name.as_str())
                .copied()
                .or_else(|| used.clone().find_map(|m| m.layers.get(name.name.as_str()).copied()))
        } else {
            let written: Vec<&str> = front.iter().map(|part| part.name.as_str()).collect();
            let written = written.join(".");
            used.clone()
                .filter(|m| m.path.is_some_and(|path| path == written || path.rsplit('.').next() == Some(&written)))
                .find_map(|m| m.layers.get(name.name.as_str()).copied())
        };
        if found.is_none() {
            let shown: Vec<&str> = path.iter().map(|part| part.name.as_str()).collect();
            let mut diagnostic =
                Diagnostic::error(names::UNKNOWN_LAYER, format!("there is no layer `{}`", shown.join(".")))
                    .at(name.span, "not found");
            let seen: Vec<&str> =
                here.layers.keys().copied().chain(used.flat_map(|m| m.layers.keys().copied())).collect();
            let unused = modules::MODULES.iter().find(|m| {
                let is_used = here.uses.iter().any(|u| self.modules.get(*u).is_some_and(|x| x.path == Some(m.path)));
                !is_used && m.text.contains(&format!("layer {}<", name.name))
            });
            if let Some(module) = unused {
                let start = Span::new(name.span.file, 0, 0);
                diagnostic = diagnostic
                    .help(format!("it is in the standard library: add `use {}`", module.path))
                    .fix(start, format!("use {}\n\n", module.path));
            } else if let Some(near) = did_you_mean(&name.name, seen) {
                diagnostic = diagnostic.help(format!("did you mean `{near}`?"));
            }
            diagnostics.push(diagnostic);
        }
        found
    }
}

/// Collects all declarations. The first files are those of the modules, in order of [`modules::MODULES`] as far as they
/// are used; the last one is the user's.
pub(super) fn collect<'a>(files: &'a [(Option<&'static str>, ast::File)], diagnostics: &mut Diagnostics) -> Items<'a> {
    let mut items = Items::default();
    for (path, file) in files {
        declare(&mut items, *path, file, diagnostics);
    }
    for id in 0..items.layers.len() {
        generics_of_layer(&mut items, id, diagnostics);
    }
    for id in 0..items.layers.len() {
        fields_of_layer(&mut items, id, diagnostics);
    }
    for id in 0..items.functions.len() {
        signature(&mut items, id, diagnostics);
    }
    items
}

/// The modules that a file uses, by path, each once; unknown ones are reported.
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
                    diagnostic = diagnostic.help(format!("did you mean `{near}`?"));
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

/// The message for a second declaration of a name.
pub(super) fn duplicate(what: &str, name: &Ident, first: Span) -> Diagnostic {
    Diagnostic::error(names::DUPLICATE, format!("{what} `{}` is declared twice", name.name))
        .at(name.span, "declared again")
        .also(first, "first declared here")
}

pub(super) fn declare<'a>(
    items: &mut Items<'a>,
    path: Option<&'static str>,
    file: &'a ast::File,
    diagnostics: &mut Diagnostics,
) {
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
                items.layers.push(LayerItem {
                    ast: layer,
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

pub(super) fn pub_outside(function: &ast::Function, why: &str) -> Diagnostic {
    Diagnostic::error(entries::PUB_OUTSIDE, format!("`pub fn {}` is not an entry point: {why}", function.name.name))
        .at(function.name.span, "only the `pub fn`s of a model are entry points")
        .help("remove `pub`")
}

pub(super) fn new_function<'a>(
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

/// Could a part of this place not be read?
fn is_unread(place: Span, diagnostics: &Diagnostics) -> bool {
    let inside = |span: Span| span.file == place.file && place.start <= span.start && span.start <= place.end;
    diagnostics.iter().any(|d| d.code.is_unread() && d.primary.as_ref().is_some_and(|label| inside(label.span)))
}

/// What can be said of a layer's members by their names alone.
pub(super) fn members(layer: &ast::Layer, diagnostics: &mut Diagnostics) {
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
    if layer.kind == LayerKind::Layer {
        for function in layer.functions.iter().filter(|function| function.is_pub) {
            let why = format!("`{}` is a layer, not a model", layer.name.name);
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

pub(super) fn unknown_attribute(name: &Ident, on_field: bool) -> Diagnostic {
    let diagnostic = Diagnostic::error(names::UNKNOWN_ATTRIBUTE, format!("there is no attribute `{}` here", name.name))
        .at(name.span, "not found");
    if on_field { diagnostic.help("the attribute of a field is `#[name = \"..\"]`") } else { diagnostic }
}

/// The message for a part of the language that cannot be compiled yet.
pub(super) fn not_available(what: &str, span: Span) -> Diagnostic {
    Diagnostic::error(names::NOT_AVAILABLE, format!("{what} is not available in this version")).at(span, "not yet")
}
