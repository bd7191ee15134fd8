//! Operators: arithmetic, comparison and logic, broadcast; and `@`.
//!
//! In: typed operands. Out: the typed result, or a message with the two dimensions or element types
//! that do not match, their origins, and suggestions.

use super::axes::{Axis, Misfit, Shape};
use super::body::Body;
use super::typed::{ExprKind, Tensor};
use super::values::{Ty, TypedExpr, coerce};
use crate::diagnostics::Diagnostic;
use crate::diagnostics::codes::shapes;
use crate::scalar::{BinaryOp, CmpOp, Scalar, UnaryOp};
use crate::shape::{Dim, Elem};
use crate::source::Span;
use crate::syntax::ast;

/// An elementwise operator with two operands.
#[derive(Clone, Copy)]
pub(super) enum Elementwise {
    /// Arithmetic or logic.
    Binary(BinaryOp),
    /// A comparison, with a `bool` result.
    Compare(CmpOp),
}

impl Body<'_> {
    /// `-x`, `+x`, `not x`
    pub(super) fn unary_operator(
        &mut self,
        op: ast::UnaryOp,
        op_span: Span,
        operand: TypedExpr,
        span: Span,
    ) -> TypedExpr {
        match (op, &operand.ty) {
            (_, Ty::Error) => TypedExpr::error(span),
            (ast::UnaryOp::Neg, Ty::Dim(dim)) => TypedExpr::dim(dim.neg(), span),
            (ast::UnaryOp::Neg, Ty::Float) => {
                let kind = match operand.expr.kind {
                    ExprKind::Const(Scalar::Float(x)) => ExprKind::Const(Scalar::Float(-x)),
                    _ => ExprKind::Unary(UnaryOp::Neg, Box::new(operand.expr)),
                };
                TypedExpr::float(kind, span)
            }
            (ast::UnaryOp::Plus, Ty::Dim(_) | Ty::Float) => operand,
            (ast::UnaryOp::Neg | ast::UnaryOp::Plus, Ty::Tensor(tensor)) if tensor.elem != Elem::Bool => {
                if op == ast::UnaryOp::Plus {
                    return operand;
                }
                let Tensor { elem, shape } = tensor.clone();
                TypedExpr::tensor(ExprKind::Unary(UnaryOp::Neg, Box::new(operand.expr)), elem, shape, span)
            }
            (ast::UnaryOp::Not, Ty::Tensor(tensor)) if tensor.elem == Elem::Bool => {
                let Tensor { elem, shape } = tensor.clone();
                TypedExpr::tensor(ExprKind::Unary(UnaryOp::Not, Box::new(operand.expr)), elem, shape, span)
            }
            (_, Ty::Tuple(_)) => {
                let shown = operand.ty.to_string();
                self.not_a_tensor(&shown, operand.span());
                TypedExpr::error(span)
            }
            (_, ty) => {
                let wanted = if op == ast::UnaryOp::Not { "`bool`" } else { "numbers" };
                let mut diagnostic =
                    Diagnostic::error(shapes::ELEM_KIND, format!("`{}` expects {wanted}, found {ty}", op.symbol()))
                        .at(op_span, "")
                        .also(operand.span(), ty.to_string());
                if op == ast::UnaryOp::Not {
                    diagnostic = diagnostic.help("compare first: `x == 0`");
                }
                self.diagnostics.push(diagnostic);
                TypedExpr::error(span)
            }
        }
    }

    /// `a + b`, `a @ b`, `a < b`, `a and b`
    pub(super) fn binary_operator(
        &mut self,
        op: ast::BinaryOp,
        op_span: Span,
        left: TypedExpr,
        right: TypedExpr,
        span: Span,
    ) -> TypedExpr {
        if left.ty.is_error() || right.ty.is_error() {
            return TypedExpr::error(span);
        }
        let op = match op {
            ast::BinaryOp::MatMul => return self.matmul(op_span, left, right, span),
            ast::BinaryOp::Mul => Elementwise::Binary(BinaryOp::Mul),
            ast::BinaryOp::Div => Elementwise::Binary(BinaryOp::Div),
            ast::BinaryOp::Rem => Elementwise::Binary(BinaryOp::Rem),
            ast::BinaryOp::Add => Elementwise::Binary(BinaryOp::Add),
            ast::BinaryOp::Sub => Elementwise::Binary(BinaryOp::Sub),
            ast::BinaryOp::And => Elementwise::Binary(BinaryOp::And),
            ast::BinaryOp::Or => Elementwise::Binary(BinaryOp::Or),
            ast::BinaryOp::Eq => Elementwise::Compare(CmpOp::Eq),
            ast::BinaryOp::Ne => Elementwise::Compare(CmpOp::Ne),
            ast::BinaryOp::Lt => Elementwise::Compare(CmpOp::Lt),
            ast::BinaryOp::Le => Elementwise::Compare(CmpOp::Le),
            ast::BinaryOp::Gt => Elementwise::Compare(CmpOp::Gt),
            ast::BinaryOp::Ge => Elementwise::Compare(CmpOp::Ge),
        };
        if let (Elementwise::Binary(op), Ty::Dim(a), Ty::Dim(b)) = (op, &left.ty, &right.ty)
            && let Some(value) = self.dim_arithmetic(op, a, b, op_span, span)
        {
            return value;
        }
        if let Elementwise::Compare(CmpOp::Eq | CmpOp::Ne) = op
            && let (Ty::Tensor(Tensor { elem: Elem::Bool, .. }), Ty::Dim(number)) = (&left.ty, &right.ty)
            && let Some(number @ (0 | 1)) = number.as_const()
        {
            let mask = self.written(left.span());
            let simple = mask.chars().all(|c| c.is_alphanumeric() || "_.".contains(c)) || mask.ends_with(')');
            let is_not = (number == 0) == matches!(op, Elementwise::Compare(CmpOp::Eq));
            let shown = match (is_not, simple) {
                (true, true) => format!("not {mask}"),
                (true, false) => format!("not ({mask})"),
                (false, _) => mask,
            };
            let message = format!("expected `bool`, found the number {number}");
            let diagnostic =
                Diagnostic::error(shapes::LITERAL, message).at(right.span(), "the other operand is `bool`");
            return self.instead(diagnostic, span, &shown);
        }
        let text = self.sources.text(op_span).to_string();
        self.elementwise(op, &text, op_span, left, right, span)
    }

    /// Arithmetic on two dimensions; `None` if the result is not a dimension.
    pub(super) fn dim_arithmetic(
        &mut self,
        op: BinaryOp,
        a: &Dim,
        b: &Dim,
        op_span: Span,
        span: Span,
    ) -> Option<TypedExpr> {
        let dim = match op {
            BinaryOp::Add => a.add(b),
            BinaryOp::Sub => a.sub(b),
            BinaryOp::Mul => a.mul(b),
            BinaryOp::Div => match self.scope.divide(a, b, span, op_span, self.diagnostics) {
                Some(dim) => dim,
                None => return Some(TypedExpr::error(span)),
            },
            BinaryOp::Rem if a.is_const() && b.is_const() => {
                Dim::from(op.eval_int(a.as_const()?, b.as_const().filter(|n| *n != 0)?))
            }
            BinaryOp::Rem => match self.scope.rounded("%", a, b, op_span, self.diagnostics) {
                Some(dim) => dim,
                None => return Some(TypedExpr::error(span)),
            },
            BinaryOp::Max => a.max_with(b),
            BinaryOp::Min => a.min_with(b),
            BinaryOp::Pow
            | BinaryOp::And
            | BinaryOp::Or
            | BinaryOp::BitAnd
            | BinaryOp::BitOr
            | BinaryOp::BitXor
            | BinaryOp::ShiftLeft
            | BinaryOp::ShiftRight => return None,
        };
        Some(TypedExpr::dim(self.scope.canonical(dim), span))
    }

    /// Checks an operation on pairs of elements.
    pub(super) fn elementwise(
        &mut self,
        op: Elementwise,
        text: &str,
        op_span: Span,
        left: TypedExpr,
        right: TypedExpr,
        span: Span,
    ) -> TypedExpr {
        let (left_ty, right_ty) = (left.ty.clone(), right.ty.clone());
        if !self.is_value(&left) || !self.is_value(&right) {
            return TypedExpr::error(span);
        }
        let elem = match (&left_ty, &right_ty) {
            (Ty::Tensor(a), Ty::Tensor(b)) if a.elem != b.elem => {
                self.elem_mismatch(text, op_span, &left, &right);
                return TypedExpr::error(span);
            }
            (Ty::Tensor(tensor), _) | (_, Ty::Tensor(tensor)) => tensor.elem,
            (Ty::Float, _) | (_, Ty::Float) => Elem::F32,
            _ => Elem::I32,
        };
        let fits = match op {
            Elementwise::Binary(op) => op.takes(elem),
            Elementwise::Compare(CmpOp::Eq | CmpOp::Ne) => true,
            Elementwise::Compare(_) => elem != Elem::Bool,
        };
        if !fits {
            self.elem_kind(text, op_span, op, &left, &right);
            return TypedExpr::error(span);
        }
        let open = |ty: &Ty| matches!(ty, Ty::Float | Ty::Dim(_));
        let is_open_float = open(&left_ty) && open(&right_ty) && elem == Elem::F32;
        let shape = match (&left_ty, &right_ty) {
            (Ty::Tensor(a), Ty::Tensor(b)) => match a.shape.broadcast(&b.shape) {
                Ok(shape) => shape,
                Err(misfit) => {
                    self.no_broadcast(text, op_span, &left, &right, a, b, &misfit);
                    return TypedExpr::error(span);
                }
            },
            (Ty::Tensor(tensor), _) | (_, Ty::Tensor(tensor)) => tensor.shape.clone(),
            _ => Shape::scalar(),
        };
        let (Some(a), Some(b)) = (self.coerced(left, elem), self.coerced(right, elem)) else {
            return TypedExpr::error(span);
        };
        let (kind, elem) = match op {
            Elementwise::Binary(op) => (ExprKind::Binary(op, Box::new(a), Box::new(b)), elem),
            Elementwise::Compare(op) => (ExprKind::Compare(op, Box::new(a), Box::new(b)), Elem::Bool),
        };
        if is_open_float && matches!(op, Elementwise::Binary(_)) {
            return TypedExpr::float(kind, span);
        }
        TypedExpr::tensor(kind, elem, shape, span)
    }

    /// Is it a tensor or a number? Reports anything else.
    pub(super) fn is_value(&mut self, value: &TypedExpr) -> bool {
        match &value.ty {
            Ty::Tensor(_) | Ty::Dim(_) | Ty::Float => true,
            Ty::Tuple(_) => {
                let shown = value.ty.to_string();
                self.not_a_tensor(&shown, value.span());
                false
            }
            Ty::Error => false,
        }
    }

    /// An open literal as an element of a type; reports literals that do not fit.
    pub(super) fn coerced(&mut self, value: TypedExpr, elem: Elem) -> Option<super::typed::Expr> {
        let span = value.span();
        match coerce(value, elem) {
            Ok(expr) => Some(expr),
            Err(why) => {
                let mut diagnostic = Diagnostic::error(shapes::LITERAL, why)
                    .at(span, format!("it takes the type of the other operand, {elem}"));
                if !elem.is_float() && elem != Elem::Bool {
                    diagnostic = diagnostic.help("convert the other operand: `cast<f32>(..)`");
                }
                self.diagnostics.push(diagnostic);
                None
            }
        }
    }

    fn elem_mismatch(&mut self, text: &str, op_span: Span, left: &TypedExpr, right: &TypedExpr) {
        let (Some(a), Some(b)) = (left.as_tensor(), right.as_tensor()) else { return };
        let mut diagnostic = Diagnostic::error(
            shapes::ELEM_MISMATCH,
            format!("`{text}` needs equal element types: {} and {}", a.elem, b.elem),
        )
        .at(op_span, "")
        .also(left.span(), a.to_string())
        .also(right.span(), b.to_string());
        // Most programs mean the wider float.
        let (narrow, wide) = if a.elem.is_float() && !(b.elem == Elem::F32 && a.elem != Elem::F32) {
            (right.span(), a.elem)
        } else {
            (left.span(), b.elem)
        };
        let shown = self.text(narrow).unwrap_or("..").to_string();
        diagnostic = diagnostic.help(format!("convert one of them: `cast<{wide}>({shown})`"));
        self.diagnostics.push(diagnostic);
    }

    fn elem_kind(&mut self, text: &str, op_span: Span, op: Elementwise, left: &TypedExpr, right: &TypedExpr) {
        let logic = matches!(op, Elementwise::Binary(op) if op.is_logical());
        let bits = matches!(op, Elementwise::Binary(op) if op.is_of_bits());
        let wanted = if logic {
            "`bool`"
        } else if bits {
            "integers"
        } else {
            "numbers"
        };
        let shown = |value: &TypedExpr| value.ty.to_string();
        let mut diagnostic = Diagnostic::error(
            shapes::ELEM_KIND,
            format!("`{text}` expects {wanted}, found {} and {}", shown(left), shown(right)),
        )
        .at(op_span, "")
        .also(left.span(), shown(left))
        .also(right.span(), shown(right));
        diagnostic = if logic {
            diagnostic.help("compare first: `x != 0`")
        } else if bits {
            diagnostic.help("`cast<i32>(..)` converts; `and`, `or`, `not` combine `bool`")
        } else {
            diagnostic.help("`cast<f32>(..)` converts `true` to 1; `and`, `or`, `not` combine `bool`")
        };
        self.diagnostics.push(diagnostic);
    }

    /// Reports shapes that do not broadcast.
    #[expect(clippy::too_many_arguments, reason = "both operands, with their types")]
    pub(super) fn no_broadcast(
        &mut self,
        text: &str,
        op_span: Span,
        left: &TypedExpr,
        right: &TypedExpr,
        a: &Tensor,
        b: &Tensor,
        misfit: &Misfit,
    ) {
        let scope = self.scope.clone();
        match misfit {
            Misfit::Rest => {
                let mut diagnostic = Diagnostic::error(
                    shapes::REST,
                    format!("`{text}` cannot align the axes of {} and {}", a.shape, b.shape),
                )
                .at(op_span, "")
                .also(left.span(), a.to_string())
                .also(right.span(), b.to_string())
                .note("the number of axes in `..` is not known, so both sides need the same axes after it");
                let behind = |shape: &Shape| shape.rest().map(|at| shape.rank() - at - 1);
                if let (Some(m), Some(n)) = (behind(&a.shape), behind(&b.shape))
                    && m != n
                {
                    let (short, value, missing) = if m < n { (a, left, n - m) } else { (b, right, m - n) };
                    let shown = self.text(value.span()).unwrap_or("x").to_string();
                    diagnostic = diagnostic.help(format!(
                        "add the missing axes: `rearrange({shown}, \"{}\")`",
                        widen(&short.shape, missing)
                    ));
                }
                self.diagnostics.push(diagnostic);
            }
            Misfit::Dims { left: x, right: y, .. } => {
                let mut diagnostic = Diagnostic::error(
                    shapes::BROADCAST,
                    format!(
                        "`{text}` cannot broadcast {} and {}: {} and {} differ",
                        a.shape,
                        b.shape,
                        scope.describe(x),
                        scope.describe(y)
                    ),
                )
                .at(op_span, "")
                .also(left.span(), a.to_string())
                .also(right.span(), b.to_string());
                for (value, own, other) in [(right, b, a), (left, a, b)] {
                    if let Some(help) = self.would_broadcast(value, own, other) {
                        diagnostic = diagnostic.help(help);
                        break;
                    }
                }
                let diagnostic = scope.label_origins(scope.differing(diagnostic, x, y), [x, y]);
                self.diagnostics.push(diagnostic);
            }
        }
    }

    /// A change of one operand that makes it broadcast with the other.
    fn would_broadcast(&self, value: &TypedExpr, own: &Tensor, other: &Tensor) -> Option<String> {
        let shown = self.text(value.span())?;
        if let Some((front, back)) = own.shape.split_last(2) {
            let transposed = front.followed_by(back.into_iter().rev());
            if transposed.broadcast(&other.shape).is_ok() {
                return Some(format!("transpose one side: `{shown}.T` has shape {transposed}"));
            }
        }
        // If each axis equals one of the other's, in this order, axes of length 1 are missing
        // between or behind them.
        let mut at = other.shape.rank();
        let mut to: Vec<String> = Vec::new();
        let names: Vec<String> = ('a'..='z').take(own.shape.rank()).map(String::from).collect();
        for (axis, name) in own.shape.axes.iter().zip(&names).rev() {
            let Axis::Dim(dim) = axis else { return None };
            let place = other.shape.axes.get(..at)?.iter().rposition(|axis| axis.dim() == Some(dim))?;
            to.extend((place + 1..at).map(|_| "1".to_string()));
            to.push(name.clone());
            at = place;
        }
        to.reverse();
        if to == names || other.shape.rest().is_some_and(|rest| rest > at) {
            return None;
        }
        Some(format!("add axes of length 1: `rearrange({shown}, \"{} -> {}\")`", names.join(" "), to.join(" ")))
    }

    fn matmul(&mut self, op_span: Span, left: TypedExpr, right: TypedExpr, span: Span) -> TypedExpr {
        let (Some(a), Some(b)) = (left.as_tensor().cloned(), right.as_tensor().cloned()) else {
            for value in [&left, &right] {
                if value.as_tensor().is_none() {
                    let shown = value.ty.to_string();
                    self.not_a_tensor(&shown, value.span());
                }
            }
            return TypedExpr::error(span);
        };
        if a.elem != b.elem {
            self.elem_mismatch("@", op_span, &left, &right);
            return TypedExpr::error(span);
        }
        if a.elem == Elem::Bool {
            self.elem_kind("@", op_span, Elementwise::Binary(BinaryOp::Mul), &left, &right);
            return TypedExpr::error(span);
        }
        let shape = match self.matmul_shape(op_span, &left, &right, &a, &b) {
            Some(shape) => shape,
            None => return TypedExpr::error(span),
        };
        let elem = if a.elem == Elem::I8 { Elem::I32 } else { a.elem };
        TypedExpr::tensor(ExprKind::Matmul(Box::new(left.expr), Box::new(right.expr)), elem, shape, span)
    }

    fn matmul_shape(
        &mut self,
        op_span: Span,
        left: &TypedExpr,
        right: &TypedExpr,
        a: &Tensor,
        b: &Tensor,
    ) -> Option<Shape> {
        let inner_a = a.shape.split_last(1);
        let inner_b = if b.shape.rank() == 1 { b.shape.split_last(1) } else { b.shape.split_last(2) };
        let (Some((front_a, inner_a)), Some((front_b, back_b))) = (inner_a, inner_b) else {
            let (value, tensor, n) = if a.shape.split_last(1).is_none() { (left, a, 1) } else { (right, b, 2) };
            self.diagnostics.push(
                Diagnostic::error(shapes::RANK, format!("`@` needs {n} known last axes, {tensor} has too few"))
                    .at(value.span(), tensor.to_string()),
            );
            return None;
        };
        let (Some(k), Some(l)) = (inner_a.first(), back_b.first()) else { return None };
        if k != l {
            self.matmul_inner(op_span, left, right, a, b, (k, l));
            return None;
        }
        let columns = back_b.get(1).cloned();
        // A left operand with one axis is a row; `.. D` is a list of rows whose shape is unknown.
        match front_a.axes.split_last() {
            None => Some(Shape { axes: front_b.axes }.followed_by(columns)),
            Some((Axis::Rest, _)) if front_b.is_scalar() => Some(front_a.followed_by(columns)),
            Some((Axis::Rest, _)) => {
                self.diagnostics.push(
                    Diagnostic::error(shapes::REST, format!("`@` of {a} and {b}: the rows are hidden in `..`"))
                        .at(op_span, "")
                        .also(left.span(), a.to_string())
                        .also(right.span(), b.to_string())
                        .help("name the axis of the rows in the signature: `[.., S, D]`"),
                );
                None
            }
            Some((Axis::Dim(rows), lead)) => {
                let lead = Shape { axes: lead.to_vec() };
                match lead.broadcast(&front_b) {
                    Ok(shape) => Some(shape.followed_by([rows.clone()]).followed_by(columns)),
                    Err(misfit) => {
                        self.no_broadcast("@", op_span, left, right, a, b, &misfit);
                        None
                    }
                }
            }
        }
    }

    fn matmul_inner(
        &mut self,
        op_span: Span,
        left: &TypedExpr,
        right: &TypedExpr,
        a: &Tensor,
        b: &Tensor,
        inner: (&Dim, &Dim),
    ) {
        let (k, l) = inner;
        let scope = self.scope.clone();
        let mut diagnostic = Diagnostic::error(
            shapes::MATMUL_INNER,
            format!("`@` needs equal inner dimensions: {} and {}", scope.describe(k), scope.describe(l)),
        )
        .at(op_span, "")
        .also(left.span(), a.to_string())
        .also(right.span(), b.to_string());
        let transposed = |tensor: &Tensor| {
            let (front, back) = tensor.shape.split_last(2)?;
            Some(Tensor { elem: tensor.elem, shape: front.followed_by(back.into_iter().rev()) })
        };
        let last = |shape: &Shape| shape.split_last(1).and_then(|(_, back)| back.first().cloned());
        let second = |shape: &Shape| shape.split_last(2).and_then(|(_, back)| back.first().cloned());
        let named = |value: &TypedExpr| match self.text(value.span()) {
            Some(text) if text.chars().all(|c| c.is_alphanumeric() || c == '_' || c == '.') => format!("{text}.T"),
            Some(text) => format!("({text}).T"),
            None => "(..).T".to_string(),
        };
        if last(&b.shape).as_ref() == Some(k)
            && let Some(transposed) = transposed(b)
        {
            diagnostic =
                diagnostic.help(format!("transpose the right side: `{}` has shape {transposed}", named(right)));
        } else if second(&a.shape).as_ref() == Some(l)
            && let Some(transposed) = transposed(a)
        {
            diagnostic = diagnostic.help(format!("transpose the left side: `{}` has shape {transposed}", named(left)));
        } else if last(&b.shape).is_some() && last(&b.shape) == second(&a.shape) {
            diagnostic = diagnostic.help("swap the two sides of `@`");
        }
        let diagnostic = scope.label_origins(scope.differing(diagnostic, k, l), [k, l]);
        self.diagnostics.push(diagnostic);
    }
}

/// `.. s t -> .. 1 s t`, for a shape with `..` that has too few axes after it.
fn widen(shape: &Shape, missing: usize) -> String {
    let names = ["a", "b", "c", "d", "e", "f"];
    let behind: Vec<&str> = names.iter().copied().take(shape.rank().saturating_sub(1)).collect();
    let behind = behind.join(" ");
    format!(".. {behind} -> ..{} {behind}", " 1".repeat(missing))
}
