//! Coercion and requirements: expected types, dimensions, conditions and facts.
//!
//! In: a checked value and an expectation. Out: the expression with literals settled, or a message
//! about the difference.

use super::body::Body;
use super::dims::DimScope;
use super::typed::{Condition, Expr, ExprKind, Tensor, Type};
use super::values::{Ty, TypedExpr, coerce};
use crate::diagnostics::Diagnostic;
use crate::diagnostics::codes::{dimensions, names, parameters, shapes};
use crate::shape::{Dim, Elem, Fact};
use crate::source::Span;
use crate::syntax::ast;

impl Body<'_> {
    /// Coerces a value to an expected type: open literals take it, everything else must have it.
    pub(super) fn fit(
        &mut self,
        value: TypedExpr,
        wanted: &Type,
        misfit: &dyn Fn(&Ty, Span, &DimScope) -> Diagnostic,
    ) -> Option<Expr> {
        let span = value.span();
        match (&value.ty, wanted) {
            (ty, _) if ty.is_error() => None,
            (Ty::Tensor(have), Type::Tensor(want)) if have == want => Some(value.expr),
            (Ty::Dim(_) | Ty::Float, Type::Tensor(want)) if want.shape.is_scalar() => {
                let ty = value.ty.clone();
                match coerce(value, want.elem) {
                    Ok(expr) => Some(expr),
                    Err(why) => {
                        self.diagnostics.push(misfit(&ty, span, &self.scope).note(why));
                        None
                    }
                }
            }
            (Ty::Tuple(have), Type::Tuple(want)) if have.len() == want.len() => {
                let settled = value.ty.settled().as_ref() == Some(wanted);
                match value.expr.kind {
                    ExprKind::Tuple(parts) if parts.len() == want.len() => {
                        let fitted: Vec<Option<Expr>> = parts
                            .into_iter()
                            .zip(have.clone())
                            .zip(want)
                            .map(|((expr, ty), want)| self.fit(TypedExpr { ty, expr }, want, misfit))
                            .collect();
                        let parts = fitted.into_iter().collect::<Option<Vec<Expr>>>()?;
                        Some(Expr { kind: ExprKind::Tuple(parts), ty: wanted.clone(), span })
                    }
                    _ if settled => Some(value.expr),
                    _ => {
                        self.diagnostics.push(misfit(&value.ty, span, &self.scope));
                        None
                    }
                }
            }
            (ty, _) => {
                self.diagnostics.push(misfit(ty, span, &self.scope));
                None
            }
        }
    }

    /// Requires a fact: it is proved, refuted, or kept as a condition.
    pub(super) fn require(&mut self, fact: Fact, span: Span, refuted: &dyn Fn() -> Diagnostic) {
        match self.scope.decide(&fact) {
            Some(true) => {}
            Some(false) => self.diagnostics.push(refuted()),
            None => {
                if self.conditions.iter().all(|condition| condition.fact != fact) {
                    self.conditions.push(Condition { fact, span, through: Vec::new() });
                }
            }
        }
    }

    /// Checks the condition of `if` or `while`: a `bool` scalar.
    pub(super) fn condition(&mut self, expr: &ast::Expr, of: &str) -> Option<Expr> {
        let value = self.expr(expr);
        match &value.ty {
            Ty::Tensor(Tensor { elem: Elem::Bool, shape }) if shape.is_scalar() => Some(value.expr),
            Ty::Error => None,
            ty => {
                let mut diagnostic =
                    Diagnostic::error(shapes::CONDITION, format!("the condition of {of} must be `bool`"))
                        .at(expr.span, format!("{ty}"));
                if matches!(ty, Ty::Tensor(Tensor { elem: Elem::Bool, .. })) {
                    diagnostic =
                        diagnostic.help("`any` and `all` reduce to one `bool`; `where` selects element by element");
                }
                self.diagnostics.push(diagnostic);
                None
            }
        }
    }

    /// The source of an expression, if it is short enough for a message.
    pub(super) fn text(&self, span: Span) -> Option<&str> {
        let text = self.sources.text(span);
        (!text.is_empty() && text.len() <= 24 && !text.contains('\n')).then_some(text)
    }

    /// The dimension that a value stands for; reports anything else.
    pub(super) fn dim_of(&mut self, value: &TypedExpr) -> Option<Dim> {
        match &value.ty {
            Ty::Dim(dim) => Some(dim.clone()),
            Ty::Error => None,
            ty => {
                self.diagnostics.push(
                    Diagnostic::error(dimensions::NOT_A_DIMENSION, format!("expected a dimension, found {ty}"))
                        .at(value.span(), "expected a name, an integer, or a formula of these"),
                );
                None
            }
        }
    }

    /// Reports a layer where a tensor is required.
    pub(super) fn layer_is_no_value(&mut self, what: &str, span: Span, array: bool) -> TypedExpr {
        let code = if array { parameters::LAYER_ARRAY } else { names::NOT_A_VALUE };
        self.diagnostics.push(
            Diagnostic::error(code, format!("{what} is not a tensor")).at(span, "expected a tensor").help(if array {
                "iterate over it with `for`"
            } else {
                "call it with its arguments"
            }),
        );
        TypedExpr::error(span)
    }
}
