//! `let dim N = value where N <= C`: dimensions with computed values.
//!
//! In: a name, an integer scalar, and clauses about the dimension. Out: the statement; from it to
//! the end of its block the name is a dimension like a dimension of an argument, and the clauses
//! are facts. Other requirements become conditions of the function, and are checked where the
//! dimension is set. No value that mentions it leaves the block.

use std::rc::Rc;

use super::axes::Axis;
use super::body::{Body, Named};
use super::dims::Origin;
use super::generics;
use super::items::duplicate;
use super::typed::{Expr, StmtKind, Tensor};
use super::values::{Ty, TypedExpr, dim_expr};
use crate::diagnostics::codes::dimensions as codes;
use crate::diagnostics::{Diagnostic, Diagnostics};
use crate::shape::{Dim, Elem, Relation};
use crate::source::Span;
use crate::syntax::ast;

impl Body<'_> {
    /// `let dim name = value where ..`
    pub(super) fn length(&mut self, name: &ast::Ident, value: &ast::Expr, clauses: &[ast::Expr]) -> Option<StmtKind> {
        let value = self.length_value(value);
        if let Some(origin) = self.scope.names.get(&name.name) {
            let first = origin.span;
            self.diagnostics.push(duplicate("dimension", name, first));
            return None;
        }
        if self.lengths.contains(&name.name) || self.scope.constants.contains(&name.name) {
            let what = format!("the function has another `{}`", name.name);
            let diagnostic = Diagnostic::error(codes::LENGTH_NAME, what).at(name.span, "the name is taken");
            self.diagnostics.push(diagnostic.help("each `let dim` of a function needs a different name"));
            self.bind(&name.name, Named::Error, name.span, false);
            return None;
        }
        self.lengths.push(name.name.clone());
        let text = format!("{} is set here", name.name);
        let origin = Origin { span: name.span, value: None, text, from_argument: true };
        self.bind(&name.name, Named::Dim(Dim::symbol(&name.name)), name.span, false);
        let mut with = (*self.scope).clone();
        with.names.insert(name.name.clone(), origin);
        let without = with.clone();
        let mut told = Diagnostics::new();
        let found = generics::conditions(&mut with, clauses, &mut told);
        let is_wrong = told.has_errors();
        self.diagnostics.append(told);
        if let Some(equal) = found.iter().find(|condition| condition.fact.relation == Relation::Eq) {
            self.scope = Rc::new(without);
            let message = format!("an equality does not bound {}", name.name);
            self.diagnostics.push(
                Diagnostic::error(codes::LENGTH_BOUND, message)
                    .at(equal.span, "expected `<=`, `<`, `>=`, `>`, `!=` or a divisor")
                    .help("a dimension that equals a formula of others is that formula: use the formula instead of the name"),
            );
            return None;
        }
        let known = |dim: &Dim| dim.symbols().iter().all(|s| !self.lengths.iter().any(|length| **length == **s));
        let own = |dim: &Dim| dim.as_symbol() == Some(&name.name);
        let bound = found.iter().enumerate().find_map(|(at, condition)| {
            let fact = &condition.fact;
            match fact.relation {
                _ if !own(&fact.left) || !known(&fact.right) => None,
                Relation::Le => Some((at, fact.right.clone())),
                Relation::Lt => Some((at, fact.right.sub(&Dim::one()))),
                Relation::Eq | Relation::Ne | Relation::Divisible => None,
            }
        });
        let Some((at, most)) = bound else {
            self.scope = Rc::new(without);
            if !is_wrong {
                let message = format!("{} has no upper bound", name.name);
                self.diagnostics.push(
                    Diagnostic::error(codes::LENGTH_BOUND, message)
                        .at(name.span, "memory is allocated for its maximum")
                        .help(format!("add a bound that is known on entry: `where {} <= C`", name.name)),
                );
            }
            return None;
        };
        if !most.has_successor() {
            self.scope = Rc::new(without);
            if let Some(bound) = found.get(at) {
                let diagnostic = Diagnostic::error(codes::LENGTH_BOUND, format!("{} can be too large", name.name));
                self.diagnostics.push(diagnostic.at(bound.span, "the bound plus 1 does not fit an `i64`"));
            }
            return None;
        }
        self.scope = Rc::new(with);
        let others = found.into_iter().enumerate().filter(|(n, _)| *n != at).map(|(_, condition)| condition);
        self.conditions.extend(others);
        Some(StmtKind::Length { name: name.name.clone(), value: value?, most })
    }

    /// Checks an integer scalar.
    fn length_value(&mut self, value: &ast::Expr) -> Option<Expr> {
        let value = self.expr(value);
        match &value.ty {
            Ty::Tensor(Tensor { elem: Elem::I32 | Elem::I64, shape }) if shape.is_scalar() => Some(value.expr),
            Ty::Dim(dim) => Some(dim_expr(dim, Elem::I64, value.span())),
            Ty::Error => None,
            ty => {
                let mut diagnostic =
                    Diagnostic::error(codes::LENGTH_VALUE, format!("a length must be an integer, found {ty}"))
                        .at(value.span(), ty.to_string());
                if matches!(ty, Ty::Float) || matches!(ty, Ty::Tensor(t) if t.shape.is_scalar()) {
                    diagnostic = diagnostic.help("convert it: `cast<i64>(..)`");
                }
                self.diagnostics.push(diagnostic);
                None
            }
        }
    }

    /// Reports a tap of a tensor whose shape the caller cannot know.
    pub(super) fn names_a_length(&mut self, tensor: &Tensor, span: Span) -> bool {
        let ty = Ty::Tensor(tensor.clone());
        let Some(name) = self.lengths.iter().find(|name| names(&ty, name)) else { return false };
        self.diagnostics.push(
            Diagnostic::error(
                codes::LENGTH_LEAVES,
                format!("the tapped value has the length {name}, which no caller knows"),
            )
            .at(span, ty.to_string()),
        );
        true
    }

    /// The value of a block, which must not mention the dimensions that it sets: those after the
    /// first `before`.
    pub(super) fn leaving(&mut self, value: TypedExpr, before: usize) -> TypedExpr {
        let own = self.lengths.get(before..).unwrap_or_default();
        let Some(name) = own.iter().find(|name| names(&value.ty, name)).cloned() else { return value };
        let span = value.span();
        let mut diagnostic =
            Diagnostic::error(codes::LENGTH_LEAVES, format!("{name} is known only in the block that sets it"))
                .at(span, format!("the value of the block is {}", value.ty));
        if let Some(origin) = self.scope.names.get(&name) {
            diagnostic = diagnostic.also(origin.span, origin.text.clone());
        }
        self.diagnostics.push(diagnostic.help(format!("put `let dim {name}` before the block")));
        TypedExpr::error(span)
    }
}

/// Does a type name a dimension?
fn names(ty: &Ty, name: &str) -> bool {
    let in_dim = |dim: &Dim| dim.symbols().iter().any(|s| **s == *name);
    match ty {
        Ty::Tensor(tensor) => tensor.shape.axes.iter().filter_map(Axis::dim).any(in_dim),
        Ty::Dim(dim) => in_dim(dim),
        Ty::Tuple(parts) => parts.iter().any(|part| names(part, name)),
        Ty::Float | Ty::Error => false,
    }
}
