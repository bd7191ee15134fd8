//! Signatures of functions: the types of arguments and result, and the dimensions that the
//! arguments bind.
//!
//! In: functions of the AST, the generics of their layers. Out: a [`FunctionItem`] with its types.
//! A dimension that is not a generic is bound by the first argument that mentions it; it is an
//! error if no argument can determine it.

use super::axes::{Axis, Shape};
use super::dims::{DimScope, Origin};
use super::generics::{conditions, constant_of, generics, literal, negative_dim};
use super::items::{ArgDefault, Items, duplicate};
use super::typed::{Condition, Tensor, Type};
use crate::diagnostics::codes::{dimensions, entries};
use crate::diagnostics::{Diagnostic, Diagnostics, NameKind};
use crate::shape::{Dim, Elem, Relation};
use crate::source::Span;
use crate::syntax::ast::{self, DimSpec, ExprKind, LayerKind, TypeKind};
use std::collections::BTreeMap;

/// Converts a shape whose names are all known.
pub(super) fn shape(dims: &[DimSpec], scope: &DimScope, rest: Rest, diagnostics: &mut Diagnostics) -> Option<Shape> {
    let mut axes = Vec::with_capacity(dims.len());
    let mut fine = true;
    for spec in dims {
        match spec {
            DimSpec::Rest(span) => {
                let why = match rest {
                    Rest::Known | Rest::Anywhere if axes.contains(&Axis::Rest) => "it occurs a second time",
                    Rest::Known if !axes.is_empty() => "it must come before the other dimensions",
                    Rest::Known | Rest::Anywhere => {
                        axes.push(Axis::Rest);
                        continue;
                    }
                    Rest::Unknown => "no argument has `..`",
                    Rest::Parameter => "the shape of a parameter must be fully known",
                };
                diagnostics.push(
                    Diagnostic::error(dimensions::REST_PLACE, format!("`..` is not allowed here: {why}")).at(*span, ""),
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

/// The meaning of `..` in a shape.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Rest {
    /// The leading dimensions of the arguments; must come first.
    Known,
    /// The same, in the type of a variable, whose axes may have been rearranged.
    Anywhere,
    /// Not allowed: no argument has `..`.
    Unknown,
    /// Not allowed: the shape is that of a parameter.
    Parameter,
}

/// Converts the type of a tensor.
pub(super) fn tensor_type(
    ty: &ast::Type,
    scope: &DimScope,
    rest: Rest,
    diagnostics: &mut Diagnostics,
) -> Option<Tensor> {
    let elem = match &ty.kind {
        TypeKind::Tensor { elem, .. } => Some(*elem),
        TypeKind::Generic { elem: name, .. } => {
            let elem = scope.elems.get(&name.name).copied();
            scope.refer(name, diagnostics);
            if elem.is_none() {
                diagnostics.push(scope.unknown_elem(name));
            }
            elem
        }
        TypeKind::Named { .. } => elem_named(ty, scope, diagnostics),
        TypeKind::Array { .. } | TypeKind::Tuple(_) | TypeKind::Error => None,
    };
    let shape = shape(ty.dims().unwrap_or_default(), scope, rest, diagnostics);
    Some(Tensor { elem: elem?, shape: shape? })
}

/// The generic element type that a type names: a scalar.
pub(super) fn elem_named(ty: &ast::Type, scope: &DimScope, diagnostics: &mut Diagnostics) -> Option<Elem> {
    match &ty.kind {
        TypeKind::Named { path, generics } if generics.is_empty() => match path.as_slice() {
            [name] => {
                scope.refer(name, diagnostics);
                scope.elems.get(&name.name).copied()
            }
            _ => None,
        },
        _ => None,
    }
}

/// Converts a tensor type or a tuple of tensor types, for results and variables.
pub(super) fn value_type(ty: &ast::Type, scope: &DimScope, rest: Rest, diagnostics: &mut Diagnostics) -> Option<Type> {
    match &ty.kind {
        TypeKind::Tensor { .. } | TypeKind::Generic { .. } => {
            tensor_type(ty, scope, rest, diagnostics).map(Type::Tensor)
        }
        TypeKind::Named { .. } if let Some(elem) = elem_named(ty, scope, diagnostics) => {
            Some(Type::Tensor(Tensor { elem, shape: Shape::scalar() }))
        }
        TypeKind::Tuple(parts) => {
            let parts: Vec<Option<Type>> =
                parts.iter().map(|part| value_type(part, scope, rest, diagnostics)).collect();
            parts.into_iter().collect::<Option<Vec<Type>>>().map(Type::Tuple)
        }
        TypeKind::Error => None,
        TypeKind::Named { .. } | TypeKind::Array { .. } => {
            diagnostics.push(
                Diagnostic::error(entries::ARGUMENT_TYPE, "expected a tensor or a tuple of tensors")
                    .at(ty.span, "not a tensor type"),
            );
            None
        }
    }
}

pub(super) fn signature(items: &mut Items<'_>, id: usize, diagnostics: &mut Diagnostics) {
    let Some(function) = items.functions.get(id) else { return };
    let ast = function.ast;
    diagnostics.refer(ast.name.span, ast.name.span, NameKind::Function);
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
    let has_rest =
        |ty: &ast::Type| ty.dims().is_some_and(|dims| dims.iter().any(|spec| matches!(spec, DimSpec::Rest(_))));
    let needed = ast.params.iter().filter(|param| param.default.is_none());
    let rest = if needed.into_iter().any(|param| has_rest(&param.ty)) { Rest::Known } else { Rest::Unknown };
    let params: Vec<Option<Tensor>> = ast
        .params
        .iter()
        .map(|param| {
            let rest = if param.default.is_some() { rest } else { Rest::Known };
            match &param.ty.kind {
                TypeKind::Tensor { .. } | TypeKind::Generic { .. } => tensor_type(&param.ty, &scope, rest, diagnostics),
                TypeKind::Named { .. } if elem_named(&param.ty, &scope, diagnostics).is_some() => {
                    tensor_type(&param.ty, &scope, rest, diagnostics)
                }
                TypeKind::Error => None,
                _ => {
                    diagnostics.push(
                        Diagnostic::error(
                            entries::ARGUMENT_TYPE,
                            format!("the argument `{}` is not a tensor", param.name.name),
                        )
                        .at(param.ty.span, "expected a tensor type"),
                    );
                    None
                }
            }
        })
        .collect();
    let defaults = defaults(ast, &params, &scope, diagnostics);
    let in_model = function.owner.is_some_and(|owner| items.layer(owner).kind == LayerKind::Model);
    if let Some(param) = ast.params.iter().find(|param| param.default.is_some() && ast.is_pub && in_model) {
        let (name, argument) = (&ast.name.name, &param.name.name);
        diagnostics.push(
            Diagnostic::error(entries::DEFAULT, format!("`{argument}` of the entry point `{name}` has a default"))
                .at(param.span, "an entry point is called with all its arguments")
                .help(format!(
                    "add another entry point without `{argument}`, and let both call a function whose `{argument}` has the default"
                )),
        );
    }
    let result = match &ast.result {
        Some(ty) => value_type(ty, &scope, rest, diagnostics),
        None => Some(Type::Tuple(Vec::new())),
    };
    if ast.is_pub && ast.result.is_none() && function.owner.is_some() {
        diagnostics.push(
            Diagnostic::error(entries::NO_RESULT, format!("the entry point `{}` has no result", ast.name.name))
                .at(ast.name.span, "no `->` and type after the arguments"),
        );
    }
    unsolvable(ast, &params, &dims, &scope, function.owner.is_some(), diagnostics);
    if let Some(function) = items.functions.get_mut(id) {
        function.generics = own_generics;
        function.scope = scope;
        function.dims = dims;
        function.params = params;
        function.defaults = defaults;
        function.result = result;
        function.own = own;
    }
}

/// Converts the defaults of the arguments.
fn defaults(
    ast: &ast::Function,
    params: &[Option<Tensor>],
    scope: &DimScope,
    diagnostics: &mut Diagnostics,
) -> Vec<Option<ArgDefault>> {
    let mut first: Option<&ast::Param> = None;
    for param in &ast.params {
        match (&param.default, first) {
            (Some(_), None) => first = Some(param),
            (None, Some(with)) => {
                let message = format!("`{}` has no default, but `{}` before it has", param.name.name, with.name.name);
                diagnostics.push(
                    Diagnostic::error(entries::DEFAULT, message)
                        .at(param.span, "required in every call")
                        .also(with.span, "may be omitted")
                        .help("arguments with a default come last"),
                );
                break;
            }
            _ => {}
        }
    }
    let each = |(param, tensor): (&ast::Param, &Option<Tensor>)| {
        let default = param.default.as_ref()?;
        let Some(tensor) = tensor else { return Some(ArgDefault::Error) };
        let found = match literal(default) {
            Some(value) => match constant_of(value, tensor.elem, default.span, diagnostics) {
                Some(value) => ArgDefault::Literal(value),
                None => ArgDefault::Error,
            },
            None if matches!(default.kind, ExprKind::Binary { .. } | ExprKind::Name(_) | ExprKind::Call { .. })
                && tensor.elem != Elem::Bool =>
            {
                match scope.dim(default, diagnostics) {
                    Some(dim) => ArgDefault::Dim(dim),
                    None => ArgDefault::Error,
                }
            }
            None => {
                if default.kind != ExprKind::Error {
                    diagnostics.push(
                        Diagnostic::error(
                            entries::DEFAULT,
                            format!("the default of `{}` is not a constant", param.name.name),
                        )
                        .at(default.span, format!("expected one `{}` for all elements, or a dimension", tensor.elem)),
                    );
                }
                ArgDefault::Error
            }
        };
        Some(found)
    };
    ast.params.iter().zip(params).map(each).collect()
}

/// Eliminates the names that equalities determine from a signature: every shape contains the other
/// side instead, so the equality holds by construction.
pub(super) fn replaced_names(own: Vec<Condition>, scope: &DimScope, dims: &mut Vec<String>) -> Vec<Condition> {
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

/// Declares the names in an argument's type; types other than tensors are reported elsewhere.
pub(super) fn bind_type(ty: &ast::Type, argument: &str, scope: &mut DimScope, dims: &mut Vec<String>) {
    match &ty.kind {
        TypeKind::Tensor { dims: specs, .. } | TypeKind::Generic { dims: specs, .. } => {
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

/// Declares the names in an argument's dimension, unless they are generics.
pub(super) fn bind_names(expr: &ast::Expr, argument: &str, scope: &mut DimScope, dims: &mut Vec<String>) {
    match &expr.kind {
        ExprKind::Name(name) if scope.names.contains_key(&name.name) || scope.constants.contains(&name.name) => {}
        ExprKind::Name(name) => {
            let text = format!("{} is bound here, by the argument `{argument}`", name.name);
            let origin = Origin { span: name.span, value: None, text, from_argument: true };
            scope.names.insert(name.name.clone(), origin);
            dims.push(name.name.clone());
        }
        ExprKind::Unary { operand, .. } => bind_names(operand, argument, scope, dims),
        ExprKind::Binary { left, right, .. } => {
            bind_names(left, argument, scope, dims);
            bind_names(right, argument, scope, dims);
        }
        ExprKind::Call { args, .. } => args.iter().for_each(|arg| bind_names(&arg.value, argument, scope, dims)),
        _ => {}
    }
}

/// Reports the dimensions that no call could infer from its arguments.
pub(super) fn unsolvable(
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
    // An optional argument binds no dimension.
    let needed = params.iter().zip(&ast.params).filter(|(_, param)| param.default.is_none());
    let shapes = || needed.clone().filter_map(|(tensor, _)| tensor.as_ref()).map(|tensor| &tensor.shape);
    let facts = crate::shape::Facts::default();
    for (index, shape) in shapes().enumerate() {
        // Match the signature with itself: only solvable names get a value. Divisions are checked
        // at the call.
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
            format!("the dimension {name} of `{}` cannot be inferred from its arguments", ast.name.name),
        )
        .at(origin.span, "no argument has an axis of this length, or of a formula that can be solved for it");
        if ast.params.iter().any(|param| param.default.is_some()) {
            diagnostic = diagnostic.note("arguments with a default do not count: a call may omit them");
        }
        diagnostic = if is_method {
            diagnostic
                .help(format!("make {name} a generic of the layer, or add an argument with an axis of this length"))
        } else {
            diagnostic.help("add an argument with an axis of this length")
        };
        diagnostics.push(diagnostic);
    }
}
