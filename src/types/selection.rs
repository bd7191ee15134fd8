//! Operations that select elements by order or index: `argmin`, `sort`, `argsort`, `top_k`,
//! `take_along`, `windows`, `every`, `scatter`, `scatter_add`.
//!
//! In: their arguments in the AST. Out: the typed operations.

use super::axes::Axis;
use super::body::Body;
use super::typed::{Expr, ExprKind, Order, Tensor, Type};
use super::values::{Ty, TypedExpr};
use crate::diagnostics::Diagnostic;
use crate::diagnostics::codes::shapes;
use crate::scalar::{BinaryOp, ReduceKind, Scalar, UnaryOp};
use crate::shape::{Dim, Elem, Fact, Relation};
use crate::source::Span;
use crate::syntax::ast;

impl Body<'_> {
    /// `argmin(x)`: the argmax of the elements in the opposite order. Negation keeps NaN a NaN; for
    /// integers `-1 - x` cannot overflow.
    pub(super) fn argmin(
        &mut self,
        x: &ast::Expr,
        axis: Option<&ast::Expr>,
        keep: Option<&ast::Expr>,
        span: Span,
    ) -> TypedExpr {
        let mut value = self.reduce(ReduceKind::ArgMax, "argmin", x, axis, keep, span);
        if let ExprKind::Reduce { x, .. } = &mut value.expr.kind
            && let Type::Tensor(tensor) = x.ty.clone()
        {
            let Tensor { elem, shape } = tensor;
            let operand = x.clone();
            let kind = if elem.is_float() {
                ExprKind::Unary(UnaryOp::Neg, operand)
            } else {
                let last =
                    TypedExpr::tensor(ExprKind::Const(Scalar::Int(-1)), elem, super::axes::Shape::scalar(), span);
                ExprKind::Binary(BinaryOp::Sub, Box::new(last.expr), operand)
            };
            **x = TypedExpr::tensor(kind, elem, shape, span).expr;
        }
        value
    }

    /// `sort(x)`, `argsort(x)` and `top_k(x, k)`; only the last has a count.
    pub(super) fn ordered(
        &mut self,
        order: Order,
        (what, x): (&str, &ast::Expr),
        count: Option<&ast::Expr>,
        (axis, descending): (Option<&ast::Expr>, Option<&ast::Expr>),
        span: Span,
    ) -> TypedExpr {
        let x_span = x.span;
        let x = self.tensor_arg(x);
        let wanted = count.map(|count| (self.dim_arg(count), count.span));
        let descending = self.bool_arg(descending, "descending");
        let Some((tensor, x)) = x else { return TypedExpr::error(span) };
        let axis = self.axis_arg(axis, -1, &tensor, x_span);
        if !self.has_numbers(what, &tensor, x_span) {
            return TypedExpr::error(span);
        }
        let (Some(axis), Some(descending)) = (axis, descending) else { return TypedExpr::error(span) };
        let Some(length) = tensor.shape.dim(axis).cloned() else { return TypedExpr::error(span) };
        let (first, descending) = match wanted {
            None => (length, descending),
            Some((None, _)) => return TypedExpr::error(span),
            Some((Some(count), at)) => {
                let fact = Fact { left: count.clone(), relation: Relation::Le, right: length.clone() };
                let scope = self.scope.clone();
                let refuted = || {
                    let message = format!("`{what}` takes {count} elements of an axis of {length}");
                    let diagnostic = Diagnostic::error(shapes::OUT_OF_RANGE, message)
                        .at(at, "more than there are")
                        .also(x_span, tensor.to_string());
                    scope.label_origins(diagnostic, [&count, &length])
                };
                if scope.decide(&fact) == Some(false) {
                    self.diagnostics.push(refuted());
                    return TypedExpr::error(span);
                }
                self.require(fact, span, &refuted);
                (count, true)
            }
        };
        let shape = tensor.shape.with(axis, first.clone());
        let result = |elem| Tensor { elem, shape: shape.clone() };
        let kind = ExprKind::Ordered { order, x: Box::new(x), axis, descending, first };
        match order {
            Order::Values => TypedExpr::tensor(kind, tensor.elem, shape, span),
            Order::Places => TypedExpr::tensor(kind, Elem::I32, shape, span),
            Order::Both => {
                let parts = [result(tensor.elem), result(Elem::I32)];
                let ty = Type::Tuple(parts.into_iter().map(Type::Tensor).collect());
                TypedExpr { ty: Ty::from_type(&ty), expr: Expr { kind, ty, span } }
            }
        }
    }

    /// Is it a tensor of numbers? Reports `bool`.
    pub(super) fn has_numbers(&mut self, what: &str, tensor: &Tensor, span: Span) -> bool {
        if tensor.elem == Elem::Bool {
            self.diagnostics.push(
                Diagnostic::error(shapes::ELEM_KIND, format!("`{what}` expects numbers, found {tensor}"))
                    .at(span, tensor.to_string())
                    .help("`cast<i32>(..)` converts `true` to 1"),
            );
        }
        tensor.elem != Elem::Bool
    }

    /// Checks an argument that is a tensor of indices.
    fn indices(&mut self, what: &str, at: &ast::Expr) -> Option<(Tensor, Expr)> {
        let span = at.span;
        let (tensor, at) = self.tensor_arg(at)?;
        if matches!(tensor.elem, Elem::I32 | Elem::I64) {
            return Some((tensor, at));
        }
        self.diagnostics.push(
            Diagnostic::error(
                shapes::INDEX_TYPE,
                format!("`{what}` expects indices that are integers, found {tensor}"),
            )
            .at(span, tensor.to_string())
            .help("convert them: `cast<i32>(..)`"),
        );
        None
    }

    /// `take_along(x, at)`: for each line along an axis, the elements at the indices in the same
    /// line of `at`.
    pub(super) fn take_along(
        &mut self,
        x: &ast::Expr,
        at: &ast::Expr,
        axis: Option<&ast::Expr>,
        span: Span,
    ) -> TypedExpr {
        let (x_span, at_span) = (x.span, at.span);
        let (x, at) = (self.tensor_arg(x), self.indices("take_along", at));
        let (Some((tensor, x)), Some((indices, at))) = (x, at) else { return TypedExpr::error(span) };
        let Some(axis) = self.axis_arg(axis, -1, &tensor, x_span) else { return TypedExpr::error(span) };
        let count = indices.shape.dim(axis).filter(|_| indices.shape.rank() == tensor.shape.rank());
        let fits = count.is_some_and(|count| tensor.shape.with(axis, count.clone()) == indices.shape);
        if !fits {
            let message = format!("the indices {indices} of `take_along` do not match {tensor} along axis {axis}");
            let mut diagnostic = Diagnostic::error(shapes::VALUE_TYPE, message)
                .at(at_span, indices.to_string())
                .also(x_span, tensor.to_string())
                .note("all axes but that one must be the same");
            if tensor.shape.rank() != indices.shape.rank() {
                diagnostic = diagnostic.help("`x[at]` takes whole slices of the first axis");
            }
            let pairs = tensor.shape.axes.iter().zip(&indices.shape.axes).enumerate();
            let differ =
                pairs.filter(|(i, (a, b))| *i != axis && a != b).find_map(|(_, (a, b))| Some([a.dim()?, b.dim()?]));
            let diagnostic = match differ {
                Some(dims) => self.scope.label_origins(diagnostic, dims),
                None => diagnostic,
            };
            self.diagnostics.push(diagnostic);
            return TypedExpr::error(span);
        }
        let kind = ExprKind::TakeAlong { x: Box::new(x), at: Box::new(at), axis };
        TypedExpr::tensor(kind, tensor.elem, indices.shape, span)
    }

    /// Checks a stride or step, which must be at least 1.
    pub(super) fn distance(&mut self, what: &str, expr: &ast::Expr) -> Option<Dim> {
        let dim = self.dim_arg(expr)?;
        if dim.as_const() == Some(0) {
            self.diagnostics.push(
                Diagnostic::error(shapes::CONSTANT_ARGUMENT, format!("the distance of `{what}` must be at least 1"))
                    .at(expr.span, "found 0"),
            );
            return None;
        }
        Some(dim)
    }

    /// `windows(x, size, stride)`: splits the axis in two, the number of windows and their size.
    pub(super) fn windows(
        &mut self,
        x: &ast::Expr,
        size: &ast::Expr,
        stride: Option<&ast::Expr>,
        axis: Option<&ast::Expr>,
        span: Span,
    ) -> TypedExpr {
        let (x_span, size_span) = (x.span, size.span);
        let (x, size) = (self.tensor_arg(x), self.dim_arg(size));
        let stride = stride.map_or(Some(Dim::one()), |stride| self.distance("windows", stride));
        let (Some((tensor, x)), Some(size), Some(stride)) = (x, size, stride) else { return TypedExpr::error(span) };
        let Some(axis) = self.axis_arg(axis, -1, &tensor, x_span) else { return TypedExpr::error(span) };
        let Some(length) = tensor.shape.dim(axis).cloned() else { return TypedExpr::error(span) };
        let scope = self.scope.clone();
        let fact = Fact { left: size.clone(), relation: Relation::Le, right: length.clone() };
        let refuted = || {
            let diagnostic = Diagnostic::error(
                shapes::OUT_OF_RANGE,
                format!("a window of {size} elements is longer than the axis, which has {length}"),
            );
            scope.label_origins(diagnostic.at(size_span, "").also(x_span, tensor.to_string()), [&size, &length])
        };
        if scope.decide(&fact) == Some(false) {
            self.diagnostics.push(refuted());
            return TypedExpr::error(span);
        }
        self.require(fact, span, &refuted);
        let Some(count) = length.sub(&size).floor_div(&stride) else { return TypedExpr::error(span) };
        let count = scope.canonical(count.add(&Dim::one()));
        let mut axes = tensor.shape.axes.clone();
        axes.splice(axis..=axis, [Axis::Dim(count), Axis::Dim(size)]);
        let kind = ExprKind::Windows { x: Box::new(x), axis, stride };
        TypedExpr::tensor(kind, tensor.elem, super::axes::Shape { axes }, span)
    }

    /// `every(x, step)`: every `step`-th element of an axis.
    pub(super) fn every(&mut self, x: &ast::Expr, step: &ast::Expr, axis: Option<&ast::Expr>, span: Span) -> TypedExpr {
        let x_span = x.span;
        let (x, step) = (self.tensor_arg(x), self.distance("every", step));
        let (Some((tensor, x)), Some(step)) = (x, step) else { return TypedExpr::error(span) };
        let Some(axis) = self.axis_arg(axis, -1, &tensor, x_span) else { return TypedExpr::error(span) };
        self.every_of(TypedExpr { ty: Ty::Tensor(tensor), expr: x }, axis, step)
    }

    /// Every `step`-th element of an axis, starting at the first.
    pub(super) fn every_of(&mut self, x: TypedExpr, axis: usize, step: Dim) -> TypedExpr {
        let span = x.span();
        let Some(tensor) = x.as_tensor().cloned() else { return TypedExpr::error(span) };
        let count = tensor.shape.dim(axis).and_then(|length| length.ceil_div(&step));
        let Some(count) = count else { return TypedExpr::error(span) };
        let shape = tensor.shape.with(axis, self.scope.canonical(count));
        TypedExpr::tensor(ExprKind::Every { x: Box::new(x.expr), axis, step }, tensor.elem, shape, span)
    }

    /// `scatter(x, at, value)` and `scatter_add`: writes or adds slices along an axis at indices.
    pub(super) fn scatter(
        &mut self,
        add: bool,
        [x, at, value]: [&ast::Expr; 3],
        axis: Option<&ast::Expr>,
        span: Span,
    ) -> TypedExpr {
        let what = if add { "scatter_add" } else { "scatter" };
        let (x_span, value_span) = (x.span, value.span);
        let (x, at, value) = (self.tensor_arg(x), self.indices(what, at), self.expr(value));
        let (Some((tensor, x)), Some((indices, at))) = (x, at) else { return TypedExpr::error(span) };
        let Some(axis) = self.axis_arg(axis, 0, &tensor, x_span) else { return TypedExpr::error(span) };
        if value.ty.is_error() || (add && !self.has_numbers(what, &tensor, x_span)) {
            return TypedExpr::error(span);
        }
        let mut axes = tensor.shape.axes.clone();
        axes.splice(axis..=axis, indices.shape.axes.iter().cloned());
        if axes.iter().filter(|axis| **axis == Axis::Rest).count() > usize::from(tensor.shape.rest().is_some()) {
            self.diagnostics.push(
                Diagnostic::error(shapes::REST, format!("the indices of `{what}` have `..`"))
                    .at(at.span, indices.to_string())
                    .note("their number of axes must be known"),
            );
            return TypedExpr::error(span);
        }
        let wanted = Tensor { elem: tensor.elem, shape: super::axes::Shape { axes } };
        let value = match &value.ty {
            Ty::Tensor(have)
                if have.elem != wanted.elem || have.shape.broadcast(&wanted.shape).as_ref() != Ok(&wanted.shape) =>
            {
                let message = format!("`{what}` expects a value of {wanted}, found {have}");
                let diagnostic = Diagnostic::error(shapes::VALUE_TYPE, message)
                    .at(value_span, have.to_string())
                    .also(x_span, tensor.to_string())
                    .also(at.span, indices.to_string());
                let diagnostic = super::misfit::type_misfit(diagnostic, &value.ty, &Ty::Tensor(wanted), &self.scope);
                self.diagnostics.push(diagnostic);
                return TypedExpr::error(span);
            }
            Ty::Tensor(_) => Some(value.expr),
            _ if self.is_value(&value) => self.coerced(value, tensor.elem),
            _ => None,
        };
        let Some(value) = value else { return TypedExpr::error(span) };
        let kind = ExprKind::Scatter { x: Box::new(x), at: Box::new(at), value: Box::new(value), axis, add };
        TypedExpr::tensor(kind, tensor.elem, tensor.shape, span)
    }
}
