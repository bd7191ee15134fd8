//! Operations that select, concatenate and split tensors: `where`, `concat`, `split`, `unbind`,
//! `pad`.
//!
//! In: their arguments in the AST. Out: the typed operations.

use super::axes::Shape;
use super::body::Body;
use super::misfit::type_misfit;
use super::typed::{Expr, ExprKind, Tensor, Type};
use super::values::{Ty, TypedExpr};
use crate::diagnostics::Diagnostic;
use crate::diagnostics::codes::shapes;
use crate::shape::{Dim, Elem};
use crate::source::Span;
use crate::syntax::ast;

impl Body<'_> {
    pub(super) fn where_(
        &mut self,
        condition: &ast::Expr,
        a: &ast::Expr,
        b: &ast::Expr,
        name: Span,
        span: Span,
    ) -> TypedExpr {
        let (c, a, b) = (self.expr(condition), self.expr(a), self.expr(b));
        if [&c, &a, &b].iter().any(|value| value.ty.is_error()) {
            return TypedExpr::error(span);
        }
        let Some(cond) = c.as_tensor().cloned().filter(|tensor| tensor.elem == Elem::Bool) else {
            let mut diagnostic = Diagnostic::error(
                shapes::CONDITION,
                format!("the condition of `where` must be `bool`, found {}", c.ty),
            )
            .at(c.span(), c.ty.to_string());
            if let Some(text) = self.text(c.span()) {
                diagnostic = diagnostic.help(format!("compare it: `{text} != 0`"));
            }
            self.diagnostics.push(diagnostic);
            return TypedExpr::error(span);
        };
        if !self.is_value(&a) || !self.is_value(&b) {
            return TypedExpr::error(span);
        }
        let elem = match (&a.ty, &b.ty) {
            (Ty::Tensor(x), Ty::Tensor(y)) if x.elem != y.elem => {
                self.diagnostics.push(
                    Diagnostic::error(
                        shapes::ELEM_MISMATCH,
                        format!("`where` needs equal element types: {} and {}", x.elem, y.elem),
                    )
                    .at(name, "")
                    .also(a.span(), x.to_string())
                    .also(b.span(), y.to_string())
                    .help("convert one of them with `cast<..>(..)`"),
                );
                return TypedExpr::error(span);
            }
            (Ty::Tensor(tensor), _) | (_, Ty::Tensor(tensor)) => tensor.elem,
            (Ty::Float, _) | (_, Ty::Float) => Elem::F32,
            _ => Elem::I32,
        };
        let scalar = |elem| Tensor { elem, shape: Shape::scalar() };
        let (x, y) = (
            a.as_tensor().cloned().unwrap_or_else(|| scalar(elem)),
            b.as_tensor().cloned().unwrap_or_else(|| scalar(elem)),
        );
        let values = match x.shape.broadcast(&y.shape) {
            Ok(shape) => shape,
            Err(misfit) => {
                self.no_broadcast("where", name, &a, &b, &x, &y, &misfit);
                return TypedExpr::error(span);
            }
        };
        let shape = match cond.shape.broadcast(&values) {
            Ok(shape) => shape,
            Err(misfit) => {
                let (other, tensor) = if x.shape == values { (&a, &x) } else { (&b, &y) };
                self.no_broadcast("where", name, &c, other, &cond, tensor, &misfit);
                return TypedExpr::error(span);
            }
        };
        let (Some(a), Some(b)) = (self.coerced(a, elem), self.coerced(b, elem)) else { return TypedExpr::error(span) };
        TypedExpr::tensor(ExprKind::Where(Box::new(c.expr), Box::new(a), Box::new(b)), elem, shape, span)
    }

    pub(super) fn concat(&mut self, args: &[ast::Arg], span: Span) -> TypedExpr {
        let (named, operands): (Vec<&ast::Arg>, Vec<&ast::Arg>) = args.iter().partition(|arg| arg.name.is_some());
        let named: Vec<ast::Arg> = named.into_iter().cloned().collect();
        let slots = self.slots("concat", &["axis"], 1, false, &named, span);
        let values: Vec<TypedExpr> = operands.iter().map(|arg| self.expr(&arg.value)).collect();
        let Some(slots) = slots else { return TypedExpr::error(span) };
        let axis = slots.given.first().copied().flatten().map(|arg| &arg.value);
        let mut parts = Vec::new();
        for value in values {
            if value.ty.is_error() {
                return TypedExpr::error(span);
            }
            let Some(tensor) = value.as_tensor().cloned() else {
                let shown = value.ty.to_string();
                self.not_a_tensor(&shown, value.span());
                return TypedExpr::error(span);
            };
            parts.push((tensor, value.expr));
        }
        let Some((first, first_expr)) = parts.first().cloned() else {
            self.diagnostics
                .push(Diagnostic::error(shapes::ARGUMENT_COUNT, "`concat` needs tensors").at(span, "found none"));
            return TypedExpr::error(span);
        };
        let Some(axis) = self.axis_arg(axis, 0, &first, first_expr.span) else { return TypedExpr::error(span) };
        let mut length = Dim::zero();
        for (tensor, expr) in &parts {
            let same_rank = tensor.shape.rank() == first.shape.rank();
            let Some(dim) = tensor.shape.dim(axis).filter(|_| same_rank) else {
                self.no_concat(&first, first_expr.span, tensor, expr.span, axis);
                return TypedExpr::error(span);
            };
            let fits = tensor.elem == first.elem && tensor.shape.without(axis) == first.shape.without(axis);
            if !fits {
                self.no_concat(&first, first_expr.span, tensor, expr.span, axis);
                return TypedExpr::error(span);
            }
            length = length.add(dim);
        }
        let shape = first.shape.with(axis, length);
        let kind = ExprKind::Concat(parts.into_iter().map(|(_, expr)| expr).collect(), axis);
        TypedExpr::tensor(kind, first.elem, shape, span)
    }

    pub(super) fn no_concat(&mut self, first: &Tensor, first_span: Span, other: &Tensor, span: Span, axis: usize) {
        let wanted = Tensor { elem: first.elem, shape: first.shape.clone() };
        let mut diagnostic =
            Diagnostic::error(shapes::CONCAT, format!("{first} and {other} cannot be concatenated along axis {axis}"))
                .at(span, other.to_string())
                .also(first_span, first.to_string());
        if other.elem == first.elem && other.shape.rank() == first.shape.rank() {
            let differing: Vec<usize> =
                (0..first.shape.rank()).filter(|at| first.shape.axes.get(*at) != other.shape.axes.get(*at)).collect();
            if let [at] = differing.as_slice() {
                diagnostic = diagnostic.help(format!("they can be concatenated along `axis = {at}`"));
            }
        }
        let same = Ty::Tensor(Tensor {
            elem: other.elem,
            shape: other.shape.with(axis, first.shape.dim(axis).cloned().unwrap_or_default()),
        });
        let diagnostic = type_misfit(diagnostic, &same, &Ty::Tensor(wanted), &self.scope);
        self.diagnostics.push(diagnostic);
    }

    pub(super) fn split(
        &mut self,
        x: &ast::Expr,
        axis: Option<&ast::Expr>,
        parts: Option<&ast::Expr>,
        span: Span,
    ) -> TypedExpr {
        let x_span = x.span;
        let x = self.tensor_arg(x);
        let parts_span = parts.map_or(span, |parts| parts.span);
        let parts = match parts {
            None => Some(Dim::from(2)),
            Some(parts) => self.dim_arg(parts),
        };
        let (Some((tensor, x)), Some(parts)) = (x, parts) else { return TypedExpr::error(span) };
        let Some(n) = parts.as_const().filter(|n| (1..=MAX_PARTS).contains(n)) else {
            self.diagnostics.push(
                Diagnostic::error(shapes::UNBIND_LENGTH, format!("`parts` must be a number from 1 to {MAX_PARTS}"))
                    .at(parts_span, ""),
            );
            return TypedExpr::error(span);
        };
        let Some(axis) = self.axis_arg(axis, -1, &tensor, x_span) else { return TypedExpr::error(span) };
        let Some(dim) = tensor.shape.dim(axis).cloned() else { return TypedExpr::error(span) };
        let Some(part) = self.scope.divide(&dim, &Dim::from(n), span, span, self.diagnostics) else {
            return TypedExpr::error(span);
        };
        let part = Tensor { elem: tensor.elem, shape: tensor.shape.with(axis, part) };
        let n = usize::try_from(n).unwrap_or_default();
        tuple(ExprKind::Split { x: Box::new(x), axis, parts: n }, &part, n, span)
    }

    pub(super) fn unbind(&mut self, x: &ast::Expr, axis: Option<&ast::Expr>, span: Span) -> TypedExpr {
        let x_span = x.span;
        let Some((tensor, x)) = self.tensor_arg(x) else { return TypedExpr::error(span) };
        let Some(axis) = self.axis_arg(axis, 0, &tensor, x_span) else { return TypedExpr::error(span) };
        let Some(dim) = tensor.shape.dim(axis).cloned() else { return TypedExpr::error(span) };
        let Some(n) = dim.as_const().filter(|n| (0..=MAX_PARTS).contains(n)) else {
            let diagnostic = Diagnostic::error(
                shapes::UNBIND_LENGTH,
                format!(
                    "`unbind` needs an axis whose length is a number, up to {MAX_PARTS}: {}",
                    self.scope.describe(&dim)
                ),
            )
            .at(x_span, tensor.to_string());
            let diagnostic = self.scope.label_origins(diagnostic, [&dim]);
            self.diagnostics.push(diagnostic);
            return TypedExpr::error(span);
        };
        let part = Tensor { elem: tensor.elem, shape: tensor.shape.without(axis) };
        tuple(ExprKind::Unbind { x: Box::new(x), axis }, &part, usize::try_from(n).unwrap_or_default(), span)
    }

    pub(super) fn pad(&mut self, x: &ast::Expr, rest: [Option<&ast::Expr>; 4], span: Span) -> TypedExpr {
        let [axis, low, high, value] = rest;
        let x_span = x.span;
        let x = self.tensor_arg(x);
        let mut end = |expr: Option<&ast::Expr>| match expr {
            None => Some(Dim::zero()),
            Some(expr) => self.dim_arg(expr),
        };
        let (low, high) = (end(low), end(high));
        let value = value.map(|value| self.expr(value));
        let (Some((tensor, x)), Some(low), Some(high)) = (x, low, high) else { return TypedExpr::error(span) };
        let value = value.unwrap_or_else(|| match tensor.elem {
            Elem::Bool => super::expr::boolean(false, span),
            _ => TypedExpr::dim(Dim::zero(), span),
        });
        let Some(axis) = self.axis_arg(axis, -1, &tensor, x_span) else { return TypedExpr::error(span) };
        let wanted = Type::Tensor(Tensor { elem: tensor.elem, shape: Shape::scalar() });
        let fitted = self.fit(value, &wanted, &|ty, at, _| {
            Diagnostic::error(shapes::LITERAL, format!("the padding must be one {wanted}, found {ty}")).at(at, "")
        });
        let (Some(value), Some(dim)) = (fitted, tensor.shape.dim(axis)) else { return TypedExpr::error(span) };
        let shape = tensor.shape.with(axis, dim.add(&low).add(&high));
        let kind = ExprKind::Pad { x: Box::new(x), axis, low, high, value: Box::new(value) };
        TypedExpr::tensor(kind, tensor.elem, shape, span)
    }
}

/// The maximum number of parts that `unbind` and `split` return.
pub(super) const MAX_PARTS: i64 = 256;

/// A tuple of equal parts.
pub(super) fn tuple(kind: ExprKind, part: &Tensor, n: usize, span: Span) -> TypedExpr {
    let ty = Type::Tuple(vec![Type::Tensor(part.clone()); n]);
    TypedExpr { ty: Ty::from_type(&ty), expr: Expr { kind, ty, span } }
}
