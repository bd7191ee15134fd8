//! Operations along axes: reductions and softmax, and the arguments that name axes.
//!
//! In: a tensor, an axis by its number or by the name of its dimension. Out: the typed operation.

use super::body::Body;
use super::typed::{ExprKind, Tensor};
use super::values::{Ty, TypedExpr};
use crate::diagnostics::Diagnostic;
use crate::diagnostics::codes::shapes;
use crate::scalar::{AxisOp, ReduceKind};
use crate::shape::{Dim, Elem};
use crate::source::Span;
use crate::syntax::ast;

impl Body<'_> {
    /// The axis that an argument names; `default` if it is omitted.
    pub(super) fn axis_arg(
        &mut self,
        axis: Option<&ast::Expr>,
        default: i64,
        tensor: &Tensor,
        x: Span,
    ) -> Option<usize> {
        let Some(expr) = axis else { return self.axis_at(&Dim::from(default), tensor, x, None) };
        let value = self.expr(expr);
        match &value.ty {
            Ty::Dim(dim) => self.axis_at(&dim.clone(), tensor, x, Some(expr.span)),
            Ty::Error => None,
            ty => {
                self.diagnostics.push(
                    Diagnostic::error(shapes::CONSTANT_ARGUMENT, "the axis must be a constant")
                        .at(expr.span, format!("{ty}"))
                        .note("an axis is a number, or the name of a dimension"),
                );
                None
            }
        }
    }

    /// The axis with a number, or with a dimension that occurs once in the tensor.
    pub(super) fn axis_at(&mut self, dim: &Dim, tensor: &Tensor, x: Span, span: Option<Span>) -> Option<usize> {
        if let Some(number) = dim.as_const() {
            let found = tensor.shape.axis(number);
            if found.is_none() {
                let diagnostic = if tensor.shape.rank() == usize::from(tensor.shape.rest().is_some()) {
                    Diagnostic::error(shapes::RANK, format!("{tensor} has no known axis"))
                } else if tensor.shape.rest().is_some() {
                    Diagnostic::error(shapes::AXIS, format!("axis {number} of {tensor} is not known"))
                        .note("`..` stands for any number of axes")
                        .help("count from the end: the last axis is -1")
                } else {
                    let last = tensor.shape.rank() - 1;
                    Diagnostic::error(shapes::AXIS, format!("{tensor} has no axis {number}"))
                        .note(format!("its axes are 0 to {last}, or -1 to -{} from the end", last + 1))
                };
                let diagnostic = match span {
                    Some(span) => diagnostic.at(span, "").also(x, tensor.to_string()),
                    None => diagnostic.at(x, tensor.to_string()),
                };
                self.diagnostics.push(diagnostic);
            }
            return found;
        }
        let places: Vec<usize> = (0..tensor.shape.rank()).filter(|at| tensor.shape.dim(*at) == Some(dim)).collect();
        if let [place] = places.as_slice() {
            return Some(*place);
        }
        let message = if places.is_empty() {
            format!("{tensor} has no axis {dim}")
        } else {
            format!("{tensor} has {} axes of length {dim}", places.len())
        };
        let diagnostic = Diagnostic::error(shapes::AXIS, message)
            .at(span.unwrap_or(x), "")
            .also(x, tensor.to_string())
            .help("use the number of the axis");
        self.diagnostics.push(diagnostic);
        None
    }

    pub(super) fn reduce(
        &mut self,
        kind: ReduceKind,
        what: &str,
        x: &ast::Expr,
        axis: Option<&ast::Expr>,
        keep: Option<&ast::Expr>,
        span: Span,
    ) -> TypedExpr {
        let x_span = x.span;
        let x = self.tensor_arg(x);
        let keep = self.bool_arg(keep, "keep");
        let Some((tensor, x)) = x else { return TypedExpr::error(span) };
        let axes = match axis.map(|axis| &axis.kind) {
            Some(ast::ExprKind::List(list)) => {
                let found: Vec<Option<usize>> =
                    list.iter().map(|axis| self.axis_arg(Some(axis), -1, &tensor, x_span)).collect();
                found.into_iter().collect::<Option<Vec<usize>>>()
            }
            _ => {
                if let (Some(axis), ReduceKind::Max | ReduceKind::Min) = (axis, kind)
                    && self.is_tensor_name(axis)
                {
                    self.diagnostics.push(
                        Diagnostic::error(
                            shapes::CONSTANT_ARGUMENT,
                            format!("`{what}` takes an axis as its second argument"),
                        )
                        .at(axis.span, "a tensor")
                        .help(format!("the {what} of two tensors, element by element, is `{what}imum(a, b)`")),
                    );
                    return TypedExpr::error(span);
                }
                self.axis_arg(axis, -1, &tensor, x_span).map(|axis| vec![axis])
            }
        };
        let (Some(mut axes), Some(keep)) = (axes, keep) else { return TypedExpr::error(span) };
        axes.sort_unstable();
        let given = axes.len();
        axes.dedup();
        if axes.is_empty() || axes.len() != given || (kind == ReduceKind::ArgMax && given != 1) {
            self.diagnostics.push(
                Diagnostic::error(shapes::AXIS, "the axes must be distinct, and at least one")
                    .at(axis.map_or(span, |axis| axis.span), ""),
            );
            return TypedExpr::error(span);
        }
        let elem = match kind {
            ReduceKind::All | ReduceKind::Any if tensor.elem == Elem::Bool => Elem::Bool,
            ReduceKind::All | ReduceKind::Any => {
                self.diagnostics.push(
                    Diagnostic::error(shapes::ELEM_KIND, format!("`{what}` expects `bool`, found {tensor}"))
                        .at(x_span, tensor.to_string())
                        .help("compare first: `x != 0`"),
                );
                return TypedExpr::error(span);
            }
            ReduceKind::Mean | ReduceKind::LogSumExp if !tensor.elem.is_float() => {
                self.needs_floats(what, &tensor, x_span);
                return TypedExpr::error(span);
            }
            ReduceKind::Sum | ReduceKind::Max | ReduceKind::Min | ReduceKind::ArgMax if tensor.elem == Elem::Bool => {
                self.diagnostics.push(
                    Diagnostic::error(shapes::ELEM_KIND, format!("`{what}` expects numbers, found {tensor}"))
                        .at(x_span, tensor.to_string())
                        .help("`cast<i32>(..)` converts `true` to 1; `any` and `all` reduce `bool`"),
                );
                return TypedExpr::error(span);
            }
            ReduceKind::ArgMax => Elem::I32,
            ReduceKind::Sum | ReduceKind::Mean | ReduceKind::LogSumExp | ReduceKind::Max | ReduceKind::Min => {
                tensor.elem
            }
        };
        let mut shape = tensor.shape;
        for axis in axes.iter().rev() {
            shape = if keep { shape.with(*axis, Dim::one()) } else { shape.without(*axis) };
        }
        TypedExpr::tensor(ExprKind::Reduce { kind, x: Box::new(x), axes, keep }, elem, shape, span)
    }

    /// Is it the name of a variable or parameter that holds a tensor?
    pub(super) fn is_tensor_name(&mut self, expr: &ast::Expr) -> bool {
        let ast::ExprKind::Name(name) = &expr.kind else { return false };
        match self.lookup(&name.name) {
            Some(super::body::Named::Local { ty: Ty::Tensor(_), .. }) => true,
            Some(_) => false,
            None => {
                !self.scope.names.contains_key(&name.name)
                    && self.owner.is_some_and(|owner| self.items.layer(owner).field(&name.name).is_some())
            }
        }
    }

    pub(super) fn bool_arg(&mut self, expr: Option<&ast::Expr>, name: &str) -> Option<bool> {
        match expr.map(|expr| (&expr.kind, expr.span)) {
            None => Some(false),
            Some((ast::ExprKind::Bool(value), _)) => Some(*value),
            Some((ast::ExprKind::Error, _)) => None,
            Some((_, span)) => {
                self.diagnostics.push(
                    Diagnostic::error(shapes::CONSTANT_ARGUMENT, format!("`{name}` must be `true` or `false`"))
                        .at(span, ""),
                );
                None
            }
        }
    }

    pub(super) fn along_axis(
        &mut self,
        op: AxisOp,
        what: &str,
        x: &ast::Expr,
        axis: Option<&ast::Expr>,
        span: Span,
    ) -> TypedExpr {
        let x_span = x.span;
        let Some((tensor, x)) = self.tensor_arg(x) else { return TypedExpr::error(span) };
        let axis = self.axis_arg(axis, -1, &tensor, x_span);
        match op {
            AxisOp::Softmax | AxisOp::LogSoftmax if !tensor.elem.is_float() => {
                self.needs_floats(what, &tensor, x_span);
                return TypedExpr::error(span);
            }
            AxisOp::Cumsum if !self.has_numbers(what, &tensor, x_span) => return TypedExpr::error(span),
            AxisOp::Softmax | AxisOp::LogSoftmax | AxisOp::Cumsum => {}
        }
        let Some(axis) = axis else { return TypedExpr::error(span) };
        TypedExpr::tensor(ExprKind::Along(op, Box::new(x), axis), tensor.elem, tensor.shape, span)
    }
}
