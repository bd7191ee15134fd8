//! Declarations of a program: layers with their fields, functions with their signatures.
//!
//! In: declarations, collected by `declare`. Out: [`Items`], for lookup by name.

use super::dims::DimScope;
use super::modules;
use super::typed::{Condition, Field, FunctionId, Generic, LayerId, LayerKind, Tensor, Type};
use crate::diagnostics::codes::names;
use crate::diagnostics::{Diagnostic, Diagnostics, NameKind, did_you_mean};
use crate::scalar::Scalar;
use crate::shape::{Dim, Elem};
use crate::source::Span;
use crate::syntax::ast::{self, Ident};
use std::collections::BTreeMap;

/// A source file and the names in its scope.
#[derive(Debug)]
pub(super) struct Module<'a> {
    /// The module's path; `None` for the user's file.
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
    /// A model that is used as a layer with other element types than its own is a layer.
    pub(super) kind: LayerKind,
    /// The layer of the same source with the default element types; usually itself.
    pub(super) template: LayerId,
    /// The values of its generic element types.
    pub(super) elems: BTreeMap<String, Elem>,
    pub(super) module: usize,
    pub(super) generics: Vec<Generic>,
    pub(super) scope: DimScope,
    /// Its own `where` clauses.
    pub(super) own: Vec<Condition>,
    pub(super) fields: Vec<Option<Field>>,
    pub(super) functions: Vec<FunctionId>,
}

impl LayerItem<'_> {
    /// The index of the field with this name; duplicate names are reported elsewhere.
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
    /// The dimensions bound by its arguments.
    pub(super) dims: Vec<String>,
    /// `None` if the type is invalid.
    pub(super) params: Vec<Option<Tensor>>,
    /// The default of each parameter, for calls that omit it.
    pub(super) defaults: Vec<Option<ArgDefault>>,
    /// `None` if the type is invalid; the empty tuple for a function without result.
    pub(super) result: Option<Type>,
    /// Its own `where` clauses.
    pub(super) own: Vec<Condition>,
}

/// The default of an argument: one number for all elements.
#[derive(Clone, Debug)]
pub(super) enum ArgDefault {
    Literal(Scalar),
    /// A dimension over the names of the signature.
    Dim(Dim),
    /// Invalid, which was reported.
    Error,
}

#[derive(Debug, Default)]
pub(super) struct Items<'a> {
    pub(super) modules: Vec<Module<'a>>,
    pub(super) layers: Vec<LayerItem<'a>>,
    /// The layers with other element types than their defaults, by template and types.
    pub(super) instances: BTreeMap<(LayerId, Vec<Elem>), LayerId>,
    pub(super) functions: Vec<FunctionItem<'a>>,
}

impl<'a> Items<'a> {
    pub(super) fn layer(&self, id: LayerId) -> &LayerItem<'a> {
        &self.layers[id.0 as usize]
    }

    pub(super) fn function(&self, id: FunctionId) -> &FunctionItem<'a> {
        &self.functions[id.0 as usize]
    }

    /// The instance of a layer with these element types; missing ones have their defaults.
    pub(super) fn instance(&self, template: LayerId, elems: &BTreeMap<String, Elem>) -> LayerId {
        let all: Vec<Elem> = self.elems_of(template, elems).into_values().collect();
        self.instances.get(&(template, all)).copied().unwrap_or(template)
    }

    /// All generic element types of a layer; missing ones have their defaults.
    pub(super) fn elems_of(&self, template: LayerId, given: &BTreeMap<String, Elem>) -> BTreeMap<String, Elem> {
        let mut elems = self.layer(template).elems.clone();
        for (name, elem) in &mut elems {
            *elem = given.get(name).copied().unwrap_or(*elem);
        }
        elems
    }

    /// A note about a layer that is checked with other element types than its defaults.
    pub(super) fn choice(&self, layer: LayerId) -> Option<String> {
        let item = self.layer(layer);
        let list: Vec<String> = item.elems.iter().map(|(name, elem)| format!("{name} = {elem}")).collect();
        (item.template != layer).then(|| format!("this is checked with {}", list.join(", ")))
    }

    /// The function of a layer with this name.
    pub(super) fn method(&self, layer: LayerId, name: &str) -> Option<FunctionId> {
        self.layer(layer).functions.iter().copied().find(|id| self.function(*id).ast.name.name == name)
    }

    /// The free function with this name in the scope of a module.
    pub(super) fn free_function(&self, module: usize, name: &str) -> Option<FunctionId> {
        let here = self.modules.get(module)?;
        here.functions
            .get(name)
            .copied()
            .or_else(|| here.uses.iter().find_map(|used| self.modules.get(*used)?.functions.get(name).copied()))
    }

    /// The names of all free functions in the scope of a module.
    pub(super) fn function_names(&self, module: usize) -> Vec<&'a str> {
        let here = self.modules.get(module);
        let used = here.into_iter().flat_map(|m| m.uses.iter().filter_map(|used| self.modules.get(*used)));
        here.into_iter().chain(used).flat_map(|m| m.functions.keys().copied()).collect()
    }

    /// The layer with this path in the scope of a module.
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
        let is_layer = |id: &LayerId| self.layer(*id).kind != LayerKind::Rule;
        if let Some(id) = found.filter(is_layer) {
            diagnostics.refer(name.span, self.layer(id).ast.name.span, NameKind::Layer);
        } else {
            let shown: Vec<&str> = path.iter().map(|part| part.name.as_str()).collect();
            let mut diagnostic =
                Diagnostic::error(names::UNKNOWN_LAYER, format!("there is no layer `{}`", shown.join(".")))
                    .at(name.span, "not found");
            let seen: Vec<&str> =
                here.layers.keys().copied().chain(used.flat_map(|m| m.layers.keys().copied())).collect();
            let unused = modules::MODULES.iter().find(|m| {
                let is_used = here.uses.iter().any(|u| self.modules.get(*u).is_some_and(|x| x.path == Some(m.path)));
                !is_used
                    && (m.text.contains(&format!("layer {}<", name.name))
                        || modules::SEQUENTIAL == (m.path, name.name.as_str()))
            });
            let words = super::idioms::of_layer(&name.name);
            if let Some(module) = unused {
                let start = Span::new(name.span.file, 0, 0);
                diagnostic = diagnostic
                    .help(format!("it is in the standard library: add `use {}`", module.path))
                    .fix(start, format!("use {}\n\n", module.path));
            } else if !words.is_empty() {
                diagnostic = words.into_iter().fold(diagnostic, Diagnostic::help);
                // The suggestion that syntax analysis made for the declaration would not
                // type-check.
                let covers = |span: Span| {
                    span.file == name.span.file && span.start <= name.span.start && name.span.end <= span.end
                };
                diagnostics.amend(|other| {
                    if other.fixes.iter().any(|fix| covers(fix.span)) {
                        other.fixes.clear();
                        other.helps.retain(|help| !help.starts_with("write `"));
                    }
                });
            } else if let Some(near) = did_you_mean(&name.name, seen.into_iter().filter(|name| !name.contains('.'))) {
                diagnostic = diagnostic.near(name.span, near);
            }
            if found.is_some() {
                diagnostic = diagnostic.note(format!("`{}` is a rule of `train`", name.name));
            }
            diagnostics.push(diagnostic);
        }
        found.filter(is_layer)
    }

    /// The rule with this path in the scope of a module.
    pub(super) fn find_rule(&self, module: usize, path: &[Ident], diagnostics: &mut Diagnostics) -> Option<LayerId> {
        let here = self.modules.get(module)?;
        let (name, front) = path.split_last()?;
        let used = || here.uses.iter().filter_map(|used| self.modules.get(*used));
        let front: Vec<&str> = front.iter().map(|part| part.name.as_str()).collect();
        let front = front.join(".");
        let is_named = |m: &&Module<'_>| m.path.is_some_and(|p| p == front || p.rsplit('.').next() == Some(&front));
        let places: Vec<&Module<'_>> = if front.is_empty() {
            std::iter::once(here).chain(used()).collect()
        } else {
            used().filter(is_named).collect()
        };
        let is_rule = |id: &LayerId| self.layer(*id).kind == LayerKind::Rule;
        let all = || places.iter().flat_map(|m| m.layers.iter()).filter(|(_, id)| is_rule(id));
        if let Some((_, id)) = all().find(|(own, _)| **own == name.name) {
            diagnostics.refer(name.span, self.layer(*id).ast.name.span, NameKind::Layer);
            return Some(*id);
        }
        let shown: Vec<&str> = path.iter().map(|part| part.name.as_str()).collect();
        let message = format!("there is no rule `{}`", shown.join("."));
        let mut diagnostic = Diagnostic::error(names::UNKNOWN_RULE, message).at(name.span, "not found");
        let has_it = |m: &&modules::Module| {
            let is_used = used().any(|u| u.path == Some(m.path));
            !is_used && ["<", " {"].iter().any(|end| m.text.contains(&format!("\nrule {}{end}", name.name)))
        };
        if let Some(module) = modules::MODULES.iter().find(has_it) {
            let help = format!("it is in the standard library: add `use {}`", module.path);
            diagnostic = diagnostic.help(help).fix(Span::new(name.span.file, 0, 0), format!("use {}\n\n", module.path));
        } else if let Some(near) = did_you_mean(&name.name, all().map(|(own, _)| *own).chain(["Fixed"])) {
            diagnostic = diagnostic.near(name.span, near);
        } else if places.iter().any(|m| m.layers.contains_key(name.name.as_str())) {
            diagnostic = diagnostic.note(format!("`{}` is a layer", name.name));
        }
        diagnostics.push(diagnostic);
        None
    }
}

/// The message for a second declaration of a name.
pub(super) fn duplicate(what: &str, name: &Ident, first: Span) -> Diagnostic {
    Diagnostic::error(names::DUPLICATE, format!("{what} `{}` is declared twice", name.name))
        .at(name.span, "declared again")
        .also(first, "first declared here")
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
