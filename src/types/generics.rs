//! Generics and `where` clauses: the parameters in `<D, eps = 1e-5>`, and the arguments in `<512,
//! eps = 1e-12>`.
//!
//! In: generic parameters and arguments of the AST. Out: the names in scope with the facts about
//! them; for arguments, a dimension or a constant for each parameter.

use super::dims::{DimScope, Origin};
use super::items::{Items, duplicate};
use super::typed::{Condition, Constant, Generic, GenericKind};
use crate::diagnostics::codes::{dimensions, shapes};
use crate::diagnostics::{Diagnostic, Diagnostics, NameKind, did_you_mean};
use crate::scalar::Scalar;
use crate::shape::{Dim, Elem, Fact};
use crate::source::Span;
use crate::syntax::ast::{self, ExprKind, GenericValue, TypeKind, UnaryOp};
use std::collections::BTreeMap;

pub(super) fn generics_of_layer(items: &mut Items<'_>, id: usize, diagnostics: &mut Diagnostics) {
    let Some(layer) = items.layers.get_mut(id) else { return };
    let mut scope = DimScope::default();
    scope.elems.clone_from(&layer.elems);
    // A list of layers shares the generics of the layer that contains it, which reports their
    // errors.
    let mut reported = Diagnostics::new();
    let diagnostics = if layer.ast.list.is_some() { &mut reported } else { diagnostics };
    diagnostics.refer(layer.ast.name.span, layer.ast.name.span, NameKind::Layer);
    layer.generics = generics(&layer.ast.generics, &mut scope, diagnostics);
    layer.own = conditions(&mut scope, &layer.ast.where_clauses, diagnostics);
    layer.scope = scope;
}

/// Converts `where` clauses, and assumes them as facts. Each clause may rely on all others,
/// whatever their order: clauses that fail on their own are tried again once others are known, and
/// reported if they still fail.
pub(super) fn conditions(scope: &mut DimScope, clauses: &[ast::Expr], diagnostics: &mut Diagnostics) -> Vec<Condition> {
    let mut conditions = Vec::new();
    let mut open = Vec::new();
    clauses.iter().for_each(|clause| parts(clause, &mut open));
    loop {
        let before = open.len();
        let mut left = Vec::new();
        for clause in std::mem::take(&mut open) {
            let mut found = Diagnostics::new();
            let mut facts = Vec::new();
            scope.fact(clause, &mut facts, &mut found);
            if found.has_errors() {
                left.push((clause, found));
                continue;
            }
            diagnostics.append_uses(found);
            for (fact, span) in facts {
                // An equality that follows from the others is redundant; one that must be solved is
                // not.
                if scope.decide(&fact) == Some(false) {
                    diagnostics.push(never_holds(&fact, span, &conditions));
                    continue;
                }
                let mut with = scope.clone();
                let implied = with.assume(&fact);
                if with.facts.are_contradictory() && !scope.facts.are_contradictory() {
                    diagnostics.push(never_holds(&fact, span, &conditions));
                    continue;
                }
                *scope = with;
                let facts = std::iter::once(fact).chain(implied);
                conditions.extend(facts.map(|fact| Condition { fact, span, through: Vec::new() }));
            }
        }
        if left.is_empty() || left.len() == before {
            left.into_iter().for_each(|(_, found)| diagnostics.append(found));
            return conditions;
        }
        open = left.into_iter().map(|(clause, _)| clause).collect();
    }
}

/// The message for a clause that is false, on its own or with those before it.
fn never_holds(fact: &Fact, span: Span, before: &[Condition]) -> Diagnostic {
    let clashes = |with: &[&Condition]| {
        let mut scope = DimScope::default();
        for condition in with {
            scope.assume(&condition.fact);
        }
        let refuted = scope.decide(fact) == Some(false);
        scope.assume(fact);
        refuted || scope.facts.are_contradictory()
    };
    if clashes(&[]) {
        return Diagnostic::error(dimensions::WHERE_VIOLATED, "this `where` clause never holds")
            .at(span, "always false");
    }
    let diagnostic = Diagnostic::error(dimensions::WHERE_CONFLICT, "this `where` clause contradicts the others")
        .at(span, format!("`{}` cannot hold together with them", fact.as_written()));
    let one = before.iter().find(|condition| clashes(&[condition]));
    match one {
        Some(condition) => diagnostic.also(condition.span, "because of this one"),
        None => before.iter().take(3).fold(diagnostic, |d, condition| d.also(condition.span, "together with this")),
    }
}

/// The clauses that are joined by `and`.
fn parts<'e>(clause: &'e ast::Expr, out: &mut Vec<&'e ast::Expr>) {
    match &clause.kind {
        ExprKind::Binary { op: ast::BinaryOp::And, left, right, .. } => {
            parts(left, out);
            parts(right, out);
        }
        _ => out.push(clause),
    }
}

/// Declares the generics in `<..>`.
pub(super) fn generics(
    params: &[ast::GenericParam],
    scope: &mut DimScope,
    diagnostics: &mut Diagnostics,
) -> Vec<Generic> {
    let mut out: Vec<Generic> = Vec::new();
    for param in params {
        let name = &param.name;
        if let Some(first) = out.iter().find(|generic| generic.name == name.name) {
            diagnostics.push(duplicate("the generic", name, first.span));
            continue;
        }
        let kind = generic_kind(param, scope, diagnostics);
        scope.declared.insert(name.name.clone(), name.span);
        scope.refer(name, diagnostics);
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
            GenericKind::Elem(elem) => {
                scope.elems.insert(name.name.clone(), *elem);
            }
        }
        out.push(Generic { name: name.name.clone(), kind, span: param.span });
    }
    out
}

pub(super) fn generic_kind(param: &ast::GenericParam, scope: &DimScope, diagnostics: &mut Diagnostics) -> GenericKind {
    let bad_default = |span: Span| {
        Diagnostic::error(
            dimensions::GENERIC_DEFAULT,
            format!("the default of `{}` is not a constant", param.name.name),
        )
        .at(span, "expected a literal or a dimension")
    };
    if let Some(default) = param.elem {
        if let Some(elem) = scope.elems.get(&param.name.name) {
            return GenericKind::Elem(*elem);
        }
        diagnostics.push(
            Diagnostic::error(
                dimensions::GENERIC_KIND,
                format!("the generic `{}` of a function cannot be an element type", param.name.name),
            )
            .at(param.span, "only layers and models have element types as generics")
            .help(format!("write the type: `{default}`")),
        );
        return GenericKind::Elem(default);
    }
    let Some(ty) = &param.ty else {
        let Some(default) = &param.default else { return GenericKind::Dim { default: None } };
        return match literal(default) {
            Some(Scalar::Int(n)) if n < 0 => {
                diagnostics.push(negative_dim(default.span, &Dim::from(n)));
                GenericKind::Dim { default: None }
            }
            Some(Scalar::Int(n)) => GenericKind::Dim { default: Some(Dim::from(n)) },
            Some(value @ Scalar::Float(_)) => GenericKind::Const {
                elem: Elem::F32,
                default: constant_of(value, Elem::F32, default.span, diagnostics),
            },
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

/// A literal, with an optional sign.
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

/// Converts a literal to a constant of a type.
pub(super) fn constant_of(value: Scalar, elem: Elem, span: Span, diagnostics: &mut Diagnostics) -> Option<Scalar> {
    let number = match value {
        Scalar::Float(x) => x,
        Scalar::Int(n) => n as f64,
        Scalar::Bool(_) => 0.0,
    };
    if elem.is_float() && super::values::overflows(number, elem) {
        let message = super::values::too_large(value, elem);
        diagnostics.push(Diagnostic::error(shapes::LITERAL, message).at(span, "too large"));
        return None;
    }
    match (value, elem) {
        (Scalar::Bool(_), Elem::Bool) | (Scalar::Float(_), Elem::F32 | Elem::BF16 | Elem::F16) => Some(value),
        (Scalar::Int(n), Elem::F32 | Elem::BF16 | Elem::F16) => Some(Scalar::Float(n as f64)),
        (Scalar::Int(n), Elem::I8 | Elem::I32 | Elem::I64) if super::values::int_fits(n, elem) => Some(value),
        _ => {
            diagnostics.push(
                Diagnostic::error(dimensions::GENERIC_KIND, format!("the constant is not of type `{elem}`"))
                    .at(span, format!("expected a literal of type `{elem}`")),
            );
            None
        }
    }
}

pub(super) fn negative_dim(span: Span, dim: &Dim) -> Diagnostic {
    Diagnostic::error(dimensions::NEGATIVE, format!("the dimension {dim} is negative")).at(span, "less than 0")
}

/// `LayerNorm<D, eps = 1e-5>`
pub(super) fn show_generics(name: &str, generics: &[Generic]) -> String {
    let list: Vec<String> = generics
        .iter()
        .map(|generic| match &generic.kind {
            GenericKind::Dim { default: None } => generic.name.clone(),
            GenericKind::Dim { default: Some(dim) } => format!("{} = {dim}", generic.name),
            GenericKind::Const { elem, default: None } => format!("{}: {elem}", generic.name),
            GenericKind::Const { default: Some(value), .. } => {
                format!("{} = {}", generic.name, super::values::show_scalar(*value))
            }
            GenericKind::Elem(elem) => format!("{} = {elem}", generic.name),
        })
        .collect();
    format!("{name}<{}>", list.join(", "))
}

/// The values given in `<..>`.
#[derive(Debug, Default)]
pub(super) struct GivenGenerics {
    pub(super) dims: BTreeMap<String, Dim>,
    pub(super) constants: BTreeMap<String, Constant>,
    pub(super) elems: BTreeMap<String, Elem>,
}

/// Matches `<D, eps = 1e-5>` with the generics of a layer or function. Defaults are not filled in.
pub(super) fn generic_args(
    name: &str,
    generics: &[Generic],
    args: &[ast::GenericArg],
    span: Span,
    scope: &DimScope,
    constants: &[&Generic],
    diagnostics: &mut Diagnostics,
) -> Option<GivenGenerics> {
    let mut bound = GivenGenerics::default();
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
                    .at(wanted.span, format!("its declaration is `{shown}`"));
                    match did_you_mean(&wanted.name, generics.iter().map(|generic| generic.name.as_str())) {
                        Some(near) => diagnostic.near(wanted.span, near),
                        None => diagnostic,
                    }
                }
                None => Diagnostic::error(
                    dimensions::GENERIC_COUNT,
                    format!("`{name}` has {} generics, found {}", generics.len(), args.len()),
                )
                .at(arg.span, format!("its declaration is `{shown}`")),
            };
            diagnostics.push(diagnostic);
            fine = false;
            continue;
        };
        if let Some(wanted) = &arg.name {
            let declared = Span { end: generic.span.start + (wanted.span.end - wanted.span.start), ..generic.span };
            diagnostics.refer(wanted.span, declared, NameKind::Generic);
        }
        if let Some(first) = given.insert(&generic.name, arg.span) {
            diagnostics.push(
                Diagnostic::error(dimensions::GENERIC_COUNT, format!("the generic `{}` is given twice", generic.name))
                    .at(arg.span, "given again")
                    .also(first, "first given here"),
            );
            fine = false;
            continue;
        }
        fine &= generic_arg(generic, arg, scope, constants, &mut bound, diagnostics);
    }
    let _ = span;
    fine.then_some(bound)
}

/// The element type that an argument in `<..>` refers to.
pub(super) fn elem_given(arg: &ast::GenericArg, known: &BTreeMap<String, Elem>) -> Option<Elem> {
    match &arg.value {
        GenericValue::Elem(elem) => Some(*elem),
        GenericValue::Expr(ast::Expr { kind: ExprKind::Name(name), .. }) => known.get(&name.name).copied(),
        GenericValue::Expr(_) | GenericValue::Layer(_) => None,
    }
}

pub(super) fn generic_arg(
    generic: &Generic,
    arg: &ast::GenericArg,
    scope: &DimScope,
    constants: &[&Generic],
    bound: &mut GivenGenerics,
    diagnostics: &mut Diagnostics,
) -> bool {
    if let GenericKind::Elem(_) = generic.kind {
        if let GenericValue::Expr(ast::Expr { kind: ExprKind::Name(name), .. }) = &arg.value {
            scope.refer(name, diagnostics);
        }
        let Some(elem) = elem_given(arg, &scope.elems) else {
            let diagnostic = match &arg.value {
                GenericValue::Expr(ast::Expr { kind: ExprKind::Name(name), .. })
                    if !scope.names.contains_key(&name.name) =>
                {
                    scope.unknown_elem(name)
                }
                _ => Diagnostic::error(dimensions::GENERIC_KIND, format!("`{}` is an element type", generic.name))
                    .at(arg.span, "expected an element type, such as `bf16`"),
            };
            diagnostics.push(diagnostic);
            return false;
        };
        bound.elems.insert(generic.name.clone(), elem);
        return true;
    }
    let expr = match &arg.value {
        GenericValue::Expr(expr) if scope.elem_of(expr).is_some() => {
            let message = format!("`{}` cannot be an element type", generic.name);
            let diagnostic = Diagnostic::error(dimensions::GENERIC_KIND, message);
            diagnostics.push(diagnostic.at(arg.span, "expected a dimension or a constant"));
            return false;
        }
        GenericValue::Expr(expr) => expr,
        GenericValue::Layer(ty) => {
            diagnostics.push(
                Diagnostic::error(dimensions::GENERIC_KIND, format!("`{}` cannot be a layer", generic.name))
                    .at(ty.span, "expected a dimension or a constant")
                    .help("`Sequential<..>` of `std.nn` takes layers"),
            );
            return false;
        }
        GenericValue::Elem(elem) => {
            diagnostics.push(
                Diagnostic::error(dimensions::GENERIC_KIND, format!("`{}` cannot be the type `{elem}`", generic.name))
                    .at(arg.span, "expected a dimension or a constant"),
            );
            return false;
        }
    };
    match &generic.kind {
        GenericKind::Elem(_) => false,
        GenericKind::Dim { .. } => {
            if let Some(value @ (Scalar::Float(_) | Scalar::Bool(_))) = literal(expr) {
                diagnostics.push(
                    Diagnostic::error(
                        dimensions::GENERIC_KIND,
                        format!("`{}` is a dimension, not {}", generic.name, super::values::show_scalar(value)),
                    )
                    .at(expr.span, "expected a dimension"),
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
            if let ExprKind::Name(name) = &expr.kind {
                scope.refer(name, diagnostics);
            }
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
                            format!(
                                "`{}` is a constant of type {elem}, but `{}` has type {other}",
                                generic.name, name.name
                            ),
                        )
                        .at(expr.span, "of the wrong type")
                        .also(outer.span, "declared here"),
                    );
                } else if expr.kind != ExprKind::Error {
                    diagnostics.push(
                        Diagnostic::error(dimensions::GENERIC_KIND, format!("`{}` needs a constant", generic.name))
                            .at(expr.span, format!("expected a literal of type `{elem}`")),
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
