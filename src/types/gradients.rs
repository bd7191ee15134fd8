//! `grad(loss, x)`: a gradient has the type of what it is taken with respect to.
//!
//! In: the two arguments. Out: a typed expression, or an error. Whether the loss depends on `x` is
//! found later, by the pass `differentiate`.

use super::body::Body;
use super::typed::{Expr, ExprKind, Type};
use super::values::{Ty, TypedExpr};
use crate::diagnostics::Diagnostic;
use crate::diagnostics::codes::{names, shapes};
use crate::source::Span;
use crate::syntax::ast;

impl Body<'_> {
    pub(super) fn grad(&mut self, loss: &ast::Expr, of: &ast::Expr, span: Span) -> TypedExpr {
        let (loss, of) = (self.expr(loss), self.expr(of));
        let (Some(loss), false) = (self.loss("grad", loss), of.ty.is_error()) else { return TypedExpr::error(span) };
        if !self.are_variables(&of.expr) || !self.are_floats("grad", &of) {
            return TypedExpr::error(span);
        }
        let (ty, shown) = (of.expr.ty.clone(), self.text(of.span()).unwrap_or_default().to_string());
        let kind = ExprKind::Grad { loss: Box::new(loss), of: Box::new(of.expr), name: shown };
        TypedExpr { ty: Ty::from_type(&ty), expr: Expr { kind, ty, span } }
    }

    /// The value if it is one float; reports others.
    pub(super) fn loss(&mut self, what: &str, loss: TypedExpr) -> Option<Expr> {
        if loss.ty.is_error() {
            return None;
        }
        let is_scalar = loss.as_tensor().is_some_and(|t| t.shape.is_scalar() && t.elem.is_float());
        if !is_scalar {
            let mut diagnostic =
                Diagnostic::error(shapes::LOSS, format!("`{what}` expects one float as loss, found {}", loss.ty))
                    .at(loss.span(), loss.ty.to_string());
            if loss.as_tensor().is_some_and(|t| t.elem.is_float() && t.shape.rest().is_none()) {
                let axes: Vec<String> =
                    (0..loss.as_tensor().map_or(0, |t| t.shape.rank())).map(|i| i.to_string()).collect();
                let shown = self.text(loss.span()).unwrap_or("..").to_string();
                diagnostic =
                    diagnostic.help(format!("make it one number: `mean({shown}, axis = [{}])`", axes.join(", ")));
            }
            self.diagnostics.push(diagnostic);
            return None;
        }
        Some(loss.expr)
    }

    /// Are these variables and parameters? A new value is one that no loss depends on.
    fn are_variables(&mut self, of: &Expr) -> bool {
        match &of.kind {
            ExprKind::Local(_) | ExprKind::Param { .. } => true,
            ExprKind::Tuple(parts) if !parts.is_empty() => parts.iter().all(|part| self.are_variables(part)),
            _ => {
                self.diagnostics.push(
                    Diagnostic::error(names::VARIABLE, "`grad` expects a variable or a parameter")
                        .at(of.span, "no loss depends on a value that is made here")
                        .help("give the value a name with `let`, and compute the loss from it"),
                );
                false
            }
        }
    }

    /// Are all parts of a value floats? Reports others.
    pub(super) fn are_floats(&mut self, what: &str, value: &TypedExpr) -> bool {
        let mut parts = vec![&value.expr.ty];
        while let Some(part) = parts.pop() {
            match part {
                Type::Tensor(t) if t.elem.is_float() => {}
                Type::Tensor(t) => {
                    self.diagnostics.push(
                        Diagnostic::error(shapes::ELEM_KIND, format!("`{what}` expects floats, found {t}"))
                            .at(value.span(), "integers and booleans have no gradient"),
                    );
                    return false;
                }
                Type::Tuple(more) => parts.extend(more),
            }
        }
        !value.ty.is_error()
    }
}
