//! What a program declares: layers with their fields, functions with their signatures, each name known once.
//!
//! In: the syntax trees of the user's file and of the modules it uses. Out: [`Items`], in which every field and every
//! signature has its types, so that bodies can be checked in any order. No body is looked at here.

use std::collections::BTreeMap;

use super::axes::{Axis, Shape};
use super::dims::{DimScope, Origin};
use super::modules;
use super::typed::{
    Condition, Constant, Field, FieldType, FunctionId, Generic, GenericKind, Instance, LayerId, LayerKind, Tensor, Type,
};
use crate::diagnostics::codes::{dimensions, entries, names, parameters};
use crate::diagnostics::{Diagnostic, Diagnostics, did_you_mean};
use crate::ir::Scalar;
use crate::shape::{Dim, Elem, Relation};
use crate::syntax::ast::{self, DimSpec, ExprKind, GenericValue, Ident, Item, TypeKind, UnaryOp};
use crate::syntax::span::Span;

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
    /// None where the type is wrong; the empty tuple where there is none.
    pub(super) result: Option<Type>,
    /// Its own `where` clauses.
    pub(super) own: Vec<Condition>,
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
    fn find_layer(&self, module: usize, path: &[Ident], diagnostics: &mut Diagnostics) -> Option<LayerId> {
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
                    .at(name.span, "not known");
            let seen: Vec<&str> =
                here.layers.keys().copied().chain(used.flat_map(|m| m.layers.keys().copied())).collect();
            let unused = modules::MODULES.iter().find(|m| {
                let is_used = here.uses.iter().any(|u| self.modules.get(*u).is_some_and(|x| x.path == Some(m.path)));
                !is_used && m.text.contains(&format!("layer {}<", name.name))
            });
            if let Some(module) = unused {
                diagnostic = diagnostic.help(format!("it is in the standard library: `use {}`", module.path));
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
                    .at(span, "not known");
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
        .also(first, "declared here first")
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
                    diagnostics.push(pub_outside(function, "it stands outside of a model"));
                }
            }
        }
    }
    items.modules.push(module);
}

fn pub_outside(function: &ast::Function, why: &str) -> Diagnostic {
    Diagnostic::error(entries::PUB_OUTSIDE, format!("`pub fn {}` is no entry point: {why}", function.name.name))
        .at(function.name.span, "only the `pub fn`s of a model are entry points")
        .help("leave `pub` out")
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
        result: None,
        own: Vec::new(),
    });
    id
}

/// What can be said of a layer's members by their names alone.
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
    if layer.kind == LayerKind::Layer {
        for function in layer.functions.iter().filter(|function| function.is_pub) {
            let why = format!("`{}` is a layer, not a model", layer.name.name);
            diagnostics.push(pub_outside(function, &why));
        }
    } else if !layer.functions.iter().any(|function| function.is_pub) {
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

fn unknown_attribute(name: &Ident, on_field: bool) -> Diagnostic {
    let diagnostic = Diagnostic::error(names::UNKNOWN_ATTRIBUTE, format!("there is no attribute `{}` here", name.name))
        .at(name.span, "not known");
    if on_field { diagnostic.help("a field's attribute is `#[name = \"..\"]`") } else { diagnostic }
}

fn generics_of_layer(items: &mut Items<'_>, id: usize, diagnostics: &mut Diagnostics) {
    let Some(layer) = items.layers.get_mut(id) else { return };
    let mut scope = DimScope::default();
    layer.generics = generics(&layer.ast.generics, &mut scope, diagnostics);
    layer.own = conditions(&mut scope, &layer.ast.where_clauses, diagnostics);
    layer.scope = scope;
}

/// Reads `where` clauses, and takes them as facts.
fn conditions(scope: &mut DimScope, clauses: &[ast::Expr], diagnostics: &mut Diagnostics) -> Vec<Condition> {
    let facts = scope.facts(clauses, diagnostics);
    let mut conditions = Vec::new();
    for (fact, span) in facts {
        if fact.decide() == Some(false) {
            diagnostics.push(
                Diagnostic::error(dimensions::WHERE_VIOLATED, "this `where` clause never holds")
                    .at(span, "always false"),
            );
            continue;
        }
        scope.assume(fact.clone());
        conditions.push(Condition { fact, span, through: Vec::new() });
    }
    conditions
}

/// Reads the generics in `<..>`, and makes their names known.
fn generics(params: &[ast::GenericParam], scope: &mut DimScope, diagnostics: &mut Diagnostics) -> Vec<Generic> {
    let mut out: Vec<Generic> = Vec::new();
    for param in params {
        let name = &param.name;
        if let Some(first) = out.iter().find(|generic| generic.name == name.name) {
            diagnostics.push(duplicate("the generic", name, first.span));
            continue;
        }
        let kind = generic_kind(param, scope, diagnostics);
        match &kind {
            GenericKind::Dim { default } => {
                let value = default
                    .as_ref()
                    .and_then(|dim| dim.eval(&|other| scope.names.get(other).and_then(|origin| origin.value)).ok());
                let text = match default {
                    Some(dim) => format!("{} is {dim} here", name.name),
                    None => format!("{} is a generic", name.name),
                };
                scope.names.insert(name.name.clone(), Origin { span: param.span, value, text, from_argument: false });
            }
            GenericKind::Const { .. } => scope.constants.push(name.name.clone()),
        }
        out.push(Generic { name: name.name.clone(), kind, span: param.span });
    }
    out
}

fn generic_kind(param: &ast::GenericParam, scope: &DimScope, diagnostics: &mut Diagnostics) -> GenericKind {
    let bad_default = |span: Span| {
        Diagnostic::error(dimensions::GENERIC_DEFAULT, format!("the default of `{}` is no constant", param.name.name))
            .at(span, "a literal or a dimension is needed")
    };
    let Some(ty) = &param.ty else {
        let Some(default) = &param.default else { return GenericKind::Dim { default: None } };
        return match literal(default) {
            Some(Scalar::Int(n)) if n < 0 => {
                diagnostics.push(negative_dim(default.span, &Dim::from(n)));
                GenericKind::Dim { default: None }
            }
            Some(Scalar::Int(n)) => GenericKind::Dim { default: Some(Dim::from(n)) },
            Some(value @ Scalar::Float(_)) => GenericKind::Const { elem: Elem::F32, default: Some(value) },
            Some(value @ Scalar::Bool(_)) => GenericKind::Const { elem: Elem::Bool, default: Some(value) },
            None if matches!(default.kind, ExprKind::Binary { .. } | ExprKind::Name(_)) => {
                GenericKind::Dim { default: scope.dim(default, diagnostics) }
            }
            None => {
                if default.kind != ExprKind::Error {
                    diagnostics.push(bad_default(default.span));
                }
                GenericKind::Dim { default: None }
            }
        };
    };
    let elem = match &ty.kind {
        TypeKind::Tensor { elem, dims } if dims.is_empty() => *elem,
        TypeKind::Error => Elem::F32,
        _ => {
            diagnostics.push(
                Diagnostic::error(
                    dimensions::GENERIC_KIND,
                    format!("the generic `{}` cannot have this type", param.name.name),
                )
                .at(ty.span, "a constant is a scalar, such as `f32`")
                .help("without a type, a generic is a dimension"),
            );
            Elem::F32
        }
    };
    let default = param.default.as_ref().and_then(|default| match literal(default) {
        Some(value) => constant_of(value, elem, default.span, diagnostics),
        None => {
            if default.kind != ExprKind::Error {
                diagnostics.push(bad_default(default.span));
            }
            None
        }
    });
    GenericKind::Const { elem, default }
}

/// A literal, perhaps with a sign.
pub(super) fn literal(expr: &ast::Expr) -> Option<Scalar> {
    match &expr.kind {
        ExprKind::Int(n) => i64::try_from(*n).ok().map(Scalar::Int),
        ExprKind::Float(x) => Some(Scalar::Float(*x)),
        ExprKind::Inf => Some(Scalar::Float(f64::INFINITY)),
        ExprKind::Bool(b) => Some(Scalar::Bool(*b)),
        ExprKind::Unary { op: UnaryOp::Plus, operand, .. } => literal(operand),
        ExprKind::Unary { op: UnaryOp::Neg, operand, .. } => match literal(operand)? {
            Scalar::Int(n) => n.checked_neg().map(Scalar::Int),
            Scalar::Float(x) => Some(Scalar::Float(-x)),
            Scalar::Bool(_) => None,
        },
        _ => None,
    }
}

/// The literal as a constant of a type.
fn constant_of(value: Scalar, elem: Elem, span: Span, diagnostics: &mut Diagnostics) -> Option<Scalar> {
    match (value, elem) {
        (Scalar::Bool(_), Elem::Bool) | (Scalar::Float(_), Elem::F32 | Elem::BF16 | Elem::F16) => Some(value),
        (Scalar::Int(n), Elem::F32 | Elem::BF16 | Elem::F16) => Some(Scalar::Float(n as f64)),
        (Scalar::Int(n), Elem::I8 | Elem::I32 | Elem::I64) if super::values::int_fits(n, elem) => Some(value),
        _ => {
            diagnostics.push(
                Diagnostic::error(dimensions::GENERIC_KIND, format!("the constant is no `{elem}`"))
                    .at(span, format!("a literal of type `{elem}` is needed")),
            );
            None
        }
    }
}

pub(super) fn negative_dim(span: Span, dim: &Dim) -> Diagnostic {
    Diagnostic::error(dimensions::NEGATIVE, format!("the dimension {dim} is negative")).at(span, "less than 0")
}

/// Reads a shape whose names are all known.
fn shape(dims: &[DimSpec], scope: &DimScope, rest: Rest, diagnostics: &mut Diagnostics) -> Option<Shape> {
    let mut axes = Vec::with_capacity(dims.len());
    let mut fine = true;
    for spec in dims {
        match spec {
            DimSpec::Rest(span) => {
                let why = match rest {
                    Rest::Known if axes.contains(&Axis::Rest) => "it stands here a second time",
                    Rest::Known => {
                        axes.push(Axis::Rest);
                        continue;
                    }
                    Rest::Unknown => "no argument has `..`, so it stands for nothing",
                    Rest::Parameter => "the shape of a parameter is known in full",
                };
                diagnostics.push(
                    Diagnostic::error(dimensions::REST_PLACE, format!("`..` cannot stand here: {why}")).at(*span, ""),
                );
                fine = false;
            }
            DimSpec::Dim(expr) => match scope.dim(expr, diagnostics) {
                Some(dim) if dim.as_const().is_some_and(|n| n < 0) => {
                    diagnostics.push(negative_dim(expr.span, &dim));
                    fine = false;
                }
                Some(dim) => axes.push(Axis::Dim(dim)),
                None => fine = false,
            },
        }
    }
    fine.then_some(Shape { axes })
}

/// What `..` means in a shape.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Rest {
    /// The leading dimensions of the arguments.
    Known,
    /// Nothing: no argument has it.
    Unknown,
    /// Nothing: the shape is that of a parameter.
    Parameter,
}

/// Reads a tensor type or a tuple of such, for results and variables.
pub(super) fn value_type(ty: &ast::Type, scope: &DimScope, rest: Rest, diagnostics: &mut Diagnostics) -> Option<Type> {
    match &ty.kind {
        TypeKind::Tensor { elem, dims } => {
            let shape = shape(dims, scope, rest, diagnostics)?;
            Some(Type::Tensor(Tensor { elem: *elem, shape }))
        }
        TypeKind::Tuple(parts) => {
            let parts: Vec<Option<Type>> =
                parts.iter().map(|part| value_type(part, scope, rest, diagnostics)).collect();
            parts.into_iter().collect::<Option<Vec<Type>>>().map(Type::Tuple)
        }
        TypeKind::Error => None,
        TypeKind::Named { .. } | TypeKind::Array { .. } => {
            diagnostics.push(
                Diagnostic::error(entries::ARGUMENT_TYPE, "a value is a tensor or a tuple of tensors")
                    .at(ty.span, "not a tensor type"),
            );
            None
        }
    }
}

fn fields_of_layer(items: &mut Items<'_>, id: usize, diagnostics: &mut Diagnostics) {
    let Some(layer) = items.layers.get(id) else { return };
    let mut fields = Vec::with_capacity(layer.ast.fields.len());
    let mut stored: BTreeMap<String, Span> = BTreeMap::new();
    for field in &layer.ast.fields {
        let stored_name = stored_name(field, diagnostics);
        if field.is_state {
            diagnostics.push(not_available("state", field.name.span));
        } else if let Some(init) = &field.init {
            diagnostics.push(
                Diagnostic::error(
                    parameters::PARAMETER_INIT,
                    format!("the parameter `{}` has a value", field.name.name),
                )
                .at(init.span, "a parameter's value is in the weights file"),
            );
        }
        let ty = field_type(items, layer, &field.ty, diagnostics);
        if field.is_state {
            fields.push(None);
            continue;
        }
        let first = stored.get(&stored_name).copied();
        match first {
            Some(first) if layer.field(&field.name.name) == Some(fields.len()) => diagnostics.push(
                Diagnostic::error(
                    parameters::SAME_NAME,
                    format!("two fields have the name `{stored_name}` in the weights file"),
                )
                .at(field.span, "the same name again")
                .also(first, "the first one"),
            ),
            Some(_) => {}
            None => {
                stored.insert(stored_name.clone(), field.span);
            }
        }
        fields.push(ty.map(|ty| Field {
            name: field.name.name.clone(),
            docs: field.docs.clone(),
            stored_name,
            ty,
            span: field.span,
        }));
    }
    if let Some(layer) = items.layers.get_mut(id) {
        layer.fields = fields;
    }
}

/// The message for a part of the language that cannot be compiled yet.
pub(super) fn not_available(what: &str, span: Span) -> Diagnostic {
    Diagnostic::error(names::NOT_AVAILABLE, format!("{what} is not available in this version")).at(span, "not yet")
}

fn stored_name(field: &ast::Field, diagnostics: &mut Diagnostics) -> String {
    let mut name = field.name.name.clone();
    for attribute in &field.attributes {
        if attribute.name.name != "name" {
            diagnostics.push(unknown_attribute(&attribute.name, true));
            continue;
        }
        match attribute.value.as_ref().map(|value| &value.kind) {
            Some(ExprKind::Str(text)) if !text.is_empty() => name = text.clone(),
            Some(ExprKind::Error) => {}
            _ => diagnostics.push(
                Diagnostic::error(parameters::NAME_VALUE, "`#[name]` needs the name as a text")
                    .at(attribute.span, "write `#[name = \"..\"]`"),
            ),
        }
    }
    name
}

fn field_type(
    items: &Items<'_>,
    layer: &LayerItem<'_>,
    ty: &ast::Type,
    diagnostics: &mut Diagnostics,
) -> Option<FieldType> {
    match &ty.kind {
        TypeKind::Tensor { elem, dims } => {
            let shape = shape(dims, &layer.scope, Rest::Parameter, diagnostics)?;
            Some(FieldType::Param(Tensor { elem: *elem, shape }))
        }
        TypeKind::Named { path, generics } => {
            instance(items, layer, path, generics, ty.span, diagnostics).map(FieldType::Layer)
        }
        TypeKind::Array { element, length } => {
            let length = layer.scope.dim(length, diagnostics);
            match &element.kind {
                TypeKind::Named { path, generics } => {
                    let instance = instance(items, layer, path, generics, element.span, diagnostics);
                    Some(FieldType::Array(instance?, length?))
                }
                TypeKind::Error => None,
                _ => {
                    diagnostics.push(
                        Diagnostic::error(parameters::FIELD_TYPE, "an array holds layers")
                            .at(element.span, "not a layer")
                            .help("several tensors of one shape are one tensor with one more axis"),
                    );
                    None
                }
            }
        }
        TypeKind::Tuple(_) => {
            diagnostics.push(
                Diagnostic::error(parameters::FIELD_TYPE, "a field cannot be a tuple")
                    .at(ty.span, "a tensor, a layer or an array of layers is needed"),
            );
            None
        }
        TypeKind::Error => None,
    }
}

/// A layer with its generics, as the type of a field.
fn instance(
    items: &Items<'_>,
    holder: &LayerItem<'_>,
    path: &[Ident],
    args: &[ast::GenericArg],
    span: Span,
    diagnostics: &mut Diagnostics,
) -> Option<Instance> {
    let id = items.find_layer(holder.module, path, diagnostics)?;
    let target = items.layer(id);
    let name = &target.ast.name.name;
    let constants: Vec<&Generic> =
        holder.generics.iter().filter(|generic| matches!(generic.kind, GenericKind::Const { .. })).collect();
    let bound = generic_args(name, &target.generics, args, span, &holder.scope, &constants, diagnostics)?;
    let mut instance = Instance { layer: id, dims: bound.dims, constants: bound.constants };
    let mut fine = true;
    for generic in &target.generics {
        if instance.dims.contains_key(&generic.name) || instance.constants.contains_key(&generic.name) {
            continue;
        }
        match &generic.kind {
            GenericKind::Dim { default: Some(dim) } => {
                let dim = dim.substitute(&|s| instance.dims.get(s).cloned()).unwrap_or_else(|| dim.clone());
                instance.dims.insert(generic.name.clone(), dim);
            }
            GenericKind::Const { default: Some(value), .. } => {
                instance.constants.insert(generic.name.clone(), Constant::Literal(*value));
            }
            GenericKind::Dim { default: None } | GenericKind::Const { default: None, .. } => fine = false,
        }
    }
    if !fine {
        let missing: Vec<String> = target
            .generics
            .iter()
            .filter(|g| !instance.dims.contains_key(&g.name) && !instance.constants.contains_key(&g.name))
            .map(|g| format!("`{}`", g.name))
            .collect();
        diagnostics.push(
            Diagnostic::error(dimensions::GENERIC_COUNT, format!("`{name}` needs {} as well", missing.join(" and ")))
                .at(span, format!("`{name}` is `{}`", show_generics(name, &target.generics)))
                .also(target.ast.name.span, "declared here"),
        );
        return None;
    }
    Some(instance)
}

/// `LayerNorm<D, eps = 1e-5>`
fn show_generics(name: &str, generics: &[Generic]) -> String {
    let list: Vec<String> = generics
        .iter()
        .map(|generic| match &generic.kind {
            GenericKind::Dim { default: None } => generic.name.clone(),
            GenericKind::Dim { default: Some(dim) } => format!("{} = {dim}", generic.name),
            GenericKind::Const { elem, default: None } => format!("{}: {elem}", generic.name),
            GenericKind::Const { default: Some(value), .. } => {
                format!("{} = {}", generic.name, super::values::show_scalar(*value))
            }
        })
        .collect();
    format!("{name}<{}>", list.join(", "))
}

/// What `<..>` gives.
#[derive(Debug, Default)]
pub(super) struct Bound {
    pub(super) dims: BTreeMap<String, Dim>,
    pub(super) constants: BTreeMap<String, Constant>,
}

/// Reads `<D, eps = 1e-5>` against the generics of what it is given to. Defaults are not filled in.
pub(super) fn generic_args(
    name: &str,
    generics: &[Generic],
    args: &[ast::GenericArg],
    span: Span,
    scope: &DimScope,
    constants: &[&Generic],
    diagnostics: &mut Diagnostics,
) -> Option<Bound> {
    let mut bound = Bound::default();
    let mut fine = true;
    let mut given: BTreeMap<&str, Span> = BTreeMap::new();
    for (position, arg) in args.iter().enumerate() {
        let generic = match &arg.name {
            None => generics.get(position),
            Some(wanted) => generics.iter().find(|generic| generic.name == wanted.name),
        };
        let Some(generic) = generic else {
            let shown = show_generics(name, generics);
            let diagnostic = match &arg.name {
                Some(wanted) => {
                    let diagnostic = Diagnostic::error(
                        dimensions::UNKNOWN_GENERIC,
                        format!("`{name}` has no generic `{}`", wanted.name),
                    )
                    .at(wanted.span, format!("it is `{shown}`"));
                    match did_you_mean(&wanted.name, generics.iter().map(|generic| generic.name.as_str())) {
                        Some(near) => diagnostic.help(format!("did you mean `{near}`?")),
                        None => diagnostic,
                    }
                }
                None => Diagnostic::error(
                    dimensions::GENERIC_COUNT,
                    format!("`{name}` has {} generics, {} are given", generics.len(), args.len()),
                )
                .at(arg.span, format!("it is `{shown}`")),
            };
            diagnostics.push(diagnostic);
            fine = false;
            continue;
        };
        if let Some(first) = given.insert(&generic.name, arg.span) {
            diagnostics.push(
                Diagnostic::error(dimensions::GENERIC_COUNT, format!("the generic `{}` is given twice", generic.name))
                    .at(arg.span, "given again")
                    .also(first, "given here first"),
            );
            fine = false;
            continue;
        }
        fine &= generic_arg(generic, arg, scope, constants, &mut bound, diagnostics);
    }
    let _ = span;
    fine.then_some(bound)
}

fn generic_arg(
    generic: &Generic,
    arg: &ast::GenericArg,
    scope: &DimScope,
    constants: &[&Generic],
    bound: &mut Bound,
    diagnostics: &mut Diagnostics,
) -> bool {
    let expr = match &arg.value {
        GenericValue::Expr(expr) => expr,
        GenericValue::Elem(elem) => {
            diagnostics.push(
                Diagnostic::error(dimensions::GENERIC_KIND, format!("`{}` cannot be the type `{elem}`", generic.name))
                    .at(arg.span, "a dimension or a constant is needed"),
            );
            return false;
        }
    };
    match &generic.kind {
        GenericKind::Dim { .. } => {
            if let Some(value @ (Scalar::Float(_) | Scalar::Bool(_))) = literal(expr) {
                diagnostics.push(
                    Diagnostic::error(
                        dimensions::GENERIC_KIND,
                        format!("`{}` is a dimension, not {}", generic.name, super::values::show_scalar(value)),
                    )
                    .at(expr.span, "a dimension is needed"),
                );
                return false;
            }
            let Some(dim) = scope.dim(expr, diagnostics) else { return false };
            if dim.as_const().is_some_and(|n| n < 0) {
                diagnostics.push(negative_dim(expr.span, &dim));
                return false;
            }
            bound.dims.insert(generic.name.clone(), dim);
            true
        }
        GenericKind::Const { elem, .. } => {
            if let ExprKind::Name(name) = &expr.kind
                && let Some(outer) = constants.iter().find(|outer| outer.name == name.name)
                && matches!(outer.kind, GenericKind::Const { elem: outer, .. } if outer == *elem)
            {
                bound.constants.insert(generic.name.clone(), Constant::Generic(name.name.clone()));
                return true;
            }
            let Some(value) = literal(expr) else {
                if let ExprKind::Name(name) = &expr.kind
                    && let Some(outer) = constants.iter().find(|outer| outer.name == name.name)
                    && let GenericKind::Const { elem: other, .. } = outer.kind
                {
                    diagnostics.push(
                        Diagnostic::error(
                            dimensions::GENERIC_KIND,
                            format!("`{}` is a constant of type {elem}, `{}` of type {other}", generic.name, name.name),
                        )
                        .at(expr.span, "of another type")
                        .also(outer.span, "declared here"),
                    );
                } else if expr.kind != ExprKind::Error {
                    diagnostics.push(
                        Diagnostic::error(dimensions::GENERIC_KIND, format!("`{}` needs a constant", generic.name))
                            .at(expr.span, format!("a literal of type `{elem}` is needed")),
                    );
                }
                return false;
            };
            match constant_of(value, *elem, expr.span, diagnostics) {
                Some(value) => {
                    bound.constants.insert(generic.name.clone(), Constant::Literal(value));
                    true
                }
                None => false,
            }
        }
    }
}

fn signature(items: &mut Items<'_>, id: usize, diagnostics: &mut Diagnostics) {
    let Some(function) = items.functions.get(id) else { return };
    let ast = function.ast;
    let mut scope = function.owner.map(|owner| items.layer(owner).scope.clone()).unwrap_or_default();
    let own_generics = generics(&ast.generics, &mut scope, diagnostics);
    let mut seen: BTreeMap<&str, Span> = BTreeMap::new();
    for param in &ast.params {
        if let Some(first) = seen.insert(&param.name.name, param.name.span) {
            diagnostics.push(duplicate("the argument", &param.name, first));
        }
    }
    let mut dims = Vec::new();
    for param in &ast.params {
        bind_type(&param.ty, &param.name.name, &mut scope, &mut dims);
    }
    let own = conditions(&mut scope, &ast.where_clauses, diagnostics);
    let own = replaced_names(own, &scope, &mut dims);
    let has_rest = |ty: &ast::Type| match &ty.kind {
        TypeKind::Tensor { dims, .. } => dims.iter().any(|spec| matches!(spec, DimSpec::Rest(_))),
        _ => false,
    };
    let rest = if ast.params.iter().any(|param| has_rest(&param.ty)) { Rest::Known } else { Rest::Unknown };
    let params: Vec<Option<Tensor>> = ast
        .params
        .iter()
        .map(|param| {
            if let Some(default) = &param.default {
                diagnostics.push(not_available("a default of an argument", default.span));
            }
            match &param.ty.kind {
                TypeKind::Tensor { .. } => match value_type(&param.ty, &scope, Rest::Known, diagnostics)? {
                    Type::Tensor(tensor) => Some(tensor),
                    Type::Tuple(_) => None,
                },
                TypeKind::Error => None,
                _ => {
                    diagnostics.push(
                        Diagnostic::error(
                            entries::ARGUMENT_TYPE,
                            format!("the argument `{}` is no tensor", param.name.name),
                        )
                        .at(param.ty.span, "a tensor type is needed"),
                    );
                    None
                }
            }
        })
        .collect();
    let result = match &ast.result {
        Some(ty) => value_type(ty, &scope, rest, diagnostics),
        None => Some(Type::Tuple(Vec::new())),
    };
    if ast.is_pub && ast.result.is_none() && function.owner.is_some() {
        diagnostics.push(
            Diagnostic::error(entries::NO_RESULT, format!("the entry point `{}` gives no result", ast.name.name))
                .at(ast.name.span, "no `->` and type behind the arguments"),
        );
    }
    unsolvable(ast, &params, &dims, &scope, function.owner.is_some(), diagnostics);
    if let Some(function) = items.functions.get_mut(id) {
        function.generics = own_generics;
        function.scope = scope;
        function.dims = dims;
        function.params = params;
        function.result = result;
        function.own = own;
    }
}

/// Takes the names that an equality replaces out of a signature: every shape has the other side in their place, so the
/// equality holds by the shapes alone.
fn replaced_names(own: Vec<Condition>, scope: &DimScope, dims: &mut Vec<String>) -> Vec<Condition> {
    let replaced: BTreeMap<&str, &Dim> =
        dims.iter().filter_map(|name| Some((name.as_str(), scope.aliases.get(name.as_str())?))).collect();
    let over_others =
        |dim: &Dim| dim.substitute(&|name| replaced.get(name).map(|dim| (*dim).clone())).unwrap_or_else(|| dim.clone());
    let mut kept = Vec::with_capacity(own.len());
    for mut condition in own {
        condition.fact.left = over_others(&condition.fact.left);
        condition.fact.right = over_others(&condition.fact.right);
        if condition.fact.relation != Relation::Eq || condition.fact.left != condition.fact.right {
            kept.push(condition);
        }
    }
    let gone: Vec<String> = replaced.keys().map(|name| name.to_string()).collect();
    dims.retain(|name| !gone.contains(name));
    kept
}

/// Makes the names in an argument's type known; what is no tensor type is reported elsewhere.
fn bind_type(ty: &ast::Type, argument: &str, scope: &mut DimScope, dims: &mut Vec<String>) {
    match &ty.kind {
        TypeKind::Tensor { dims: specs, .. } => {
            for spec in specs {
                if let DimSpec::Dim(expr) = spec {
                    bind_names(expr, argument, scope, dims);
                }
            }
        }
        TypeKind::Tuple(parts) => parts.iter().for_each(|part| bind_type(part, argument, scope, dims)),
        TypeKind::Named { .. } | TypeKind::Array { .. } | TypeKind::Error => {}
    }
}

/// Makes the names in an argument's dimension known, unless they are generics.
fn bind_names(expr: &ast::Expr, argument: &str, scope: &mut DimScope, dims: &mut Vec<String>) {
    match &expr.kind {
        ExprKind::Name(name) if scope.names.contains_key(&name.name) || scope.constants.contains(&name.name) => {}
        ExprKind::Name(name) => {
            let text = format!("{} is fixed here, by the argument `{argument}`", name.name);
            let origin = Origin { span: name.span, value: None, text, from_argument: true };
            scope.names.insert(name.name.clone(), origin);
            dims.push(name.name.clone());
        }
        ExprKind::Unary { operand, .. } => bind_names(operand, argument, scope, dims),
        ExprKind::Binary { left, right, .. } => {
            bind_names(left, argument, scope, dims);
            bind_names(right, argument, scope, dims);
        }
        _ => {}
    }
}

/// Reports the dimensions that no call could find from its arguments.
fn unsolvable(
    ast: &ast::Function,
    params: &[Option<Tensor>],
    dims: &[String],
    scope: &DimScope,
    is_method: bool,
    diagnostics: &mut Diagnostics,
) {
    if params.iter().any(Option::is_none) {
        return;
    }
    let fixed = scope.names.keys().filter(|name| !dims.contains(name));
    let mut matching = super::matching::Matching::new(fixed.map(|name| (name.clone(), Dim::symbol(name))));
    let shapes = || params.iter().flatten().map(|tensor| &tensor.shape);
    let facts = crate::shape::Facts::default();
    for (index, shape) in shapes().enumerate() {
        // Matched with itself: only what can be solved for gets a value. Divisions are the call's business.
        let _ = matching.argument(index, shape, shape, &facts);
    }
    let _ = matching.finish(&facts);
    for name in dims {
        let symbol = Dim::symbol(name);
        let replaced = scope.canonical(symbol.clone()) != symbol;
        if matching.dims.contains_key(name) || replaced {
            continue;
        }
        let Some(origin) = scope.names.get(name) else { continue };
        let mut diagnostic = Diagnostic::error(
            dimensions::NOT_INFERRED,
            format!("the dimension {name} of `{}` cannot be found from its arguments", ast.name.name),
        )
        .at(origin.span, "no argument has it alone, or in a formula that can be solved for it");
        diagnostic = if is_method {
            diagnostic.help(format!("make {name} a generic of the layer, or give an argument that has it alone"))
        } else {
            diagnostic.help("give an argument that has it alone")
        };
        diagnostics.push(diagnostic);
    }
}
