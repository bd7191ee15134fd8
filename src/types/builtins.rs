//! The operations of the language that are written as calls: their names, arguments and types.
//!
//! In: a call of a name that no declaration has. Out: the typed operation. The table says which arguments there are;
//! `rearrange` and `einsum` are in `patterns`.

use super::axes::Shape;
use super::body::{Body, type_misfit};
use super::calls::Slots;
use super::items::not_available;
use super::operators::Elementwise;
use super::typed::{Expr, ExprKind, Tensor, Type};
use super::values::{Ty, Val, coerce};
use crate::diagnostics::Diagnostic;
use crate::diagnostics::codes::{dimensions, shapes};
use crate::scalar::{BinaryOp, ReduceKind, UnaryOp};
use crate::shape::{Dim, Elem};
use crate::syntax::ast;
use crate::syntax::span::Span;

/// An operation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Builtin {
    Unary(UnaryOp),
    Binary(BinaryOp),
    Reduce(ReduceKind),
    Softmax,
    LogSoftmax,
    Where,
    Rearrange,
    Einsum,
    Concat,
    Split,
    Unbind,
    Pad,
    Cast,
    Iota,
    Full,
    OneHot,
    Causal,
    /// Known, and not in this version.
    Later,
}

/// A row of the table: name, arguments, how many of the last ones may be left out.
type Row = (&'static str, Builtin, &'static [&'static str], usize);

const REDUCE: &[&str] = &["x", "axis", "keep"];

const TABLE: &[Row] = &[
    ("abs", Builtin::Unary(UnaryOp::Abs), &["x"], 0),
    ("exp", Builtin::Unary(UnaryOp::Exp), &["x"], 0),
    ("log", Builtin::Unary(UnaryOp::Log), &["x"], 0),
    ("sqrt", Builtin::Unary(UnaryOp::Sqrt), &["x"], 0),
    ("rsqrt", Builtin::Unary(UnaryOp::Rsqrt), &["x"], 0),
    ("sin", Builtin::Unary(UnaryOp::Sin), &["x"], 0),
    ("cos", Builtin::Unary(UnaryOp::Cos), &["x"], 0),
    ("tanh", Builtin::Unary(UnaryOp::Tanh), &["x"], 0),
    ("erf", Builtin::Unary(UnaryOp::Erf), &["x"], 0),
    ("sigmoid", Builtin::Unary(UnaryOp::Sigmoid), &["x"], 0),
    ("relu", Builtin::Unary(UnaryOp::Relu), &["x"], 0),
    ("gelu", Builtin::Unary(UnaryOp::Gelu), &["x"], 0),
    ("gelu_tanh", Builtin::Unary(UnaryOp::GeluTanh), &["x"], 0),
    ("silu", Builtin::Unary(UnaryOp::Silu), &["x"], 0),
    ("floor", Builtin::Unary(UnaryOp::Floor), &["x"], 0),
    ("pow", Builtin::Binary(BinaryOp::Pow), &["x", "y"], 0),
    ("maximum", Builtin::Binary(BinaryOp::Max), &["x", "y"], 0),
    ("minimum", Builtin::Binary(BinaryOp::Min), &["x", "y"], 0),
    ("sum", Builtin::Reduce(ReduceKind::Sum), REDUCE, 2),
    ("mean", Builtin::Reduce(ReduceKind::Mean), REDUCE, 2),
    ("max", Builtin::Reduce(ReduceKind::Max), REDUCE, 2),
    ("min", Builtin::Reduce(ReduceKind::Min), REDUCE, 2),
    ("any", Builtin::Reduce(ReduceKind::Any), REDUCE, 2),
    ("all", Builtin::Reduce(ReduceKind::All), REDUCE, 2),
    ("argmax", Builtin::Reduce(ReduceKind::ArgMax), REDUCE, 2),
    ("softmax", Builtin::Softmax, &["x", "axis"], 1),
    ("log_softmax", Builtin::LogSoftmax, &["x", "axis"], 1),
    ("where", Builtin::Where, &["condition", "a", "b"], 0),
    ("rearrange", Builtin::Rearrange, &["x", "pattern"], 0),
    ("einsum", Builtin::Einsum, &["pattern"], 0),
    ("concat", Builtin::Concat, &["axis"], 1),
    ("split", Builtin::Split, &["x", "axis", "parts"], 2),
    ("unbind", Builtin::Unbind, &["x", "axis"], 1),
    ("pad", Builtin::Pad, &["x", "axis", "low", "high", "value"], 4),
    ("cast", Builtin::Cast, &["x"], 0),
    ("iota", Builtin::Iota, &["n"], 0),
    ("full", Builtin::Full, &["value", "shape"], 0),
    ("one_hot", Builtin::OneHot, &["i", "n"], 0),
    ("causal", Builtin::Causal, &["q_len", "kv_len"], 0),
    ("cumsum", Builtin::Later, &[], 0),
    ("sort", Builtin::Later, &[], 0),
    ("argsort", Builtin::Later, &[], 0),
    ("top_k", Builtin::Later, &[], 0),
    ("scatter", Builtin::Later, &[], 0),
    ("scatter_add", Builtin::Later, &[], 0),
];

/// The operation of a name.
pub(super) fn find(name: &str) -> Option<&'static Row> {
    TABLE.iter().find(|row| row.0 == name)
}

/// The names of all operations.
pub(super) fn names<'n>() -> impl Iterator<Item = &'n str> {
    TABLE.iter().map(|row| row.0)
}

/// What to write instead of a function that other languages have.
pub(super) fn foreign(name: &str) -> Option<&'static str> {
    Some(match name {
        "matmul" | "mm" | "bmm" | "dot" => "a product of matrices is written `a @ b`",
        "transpose" | "permute" | "swapaxes" => "use `x.T`, or `rearrange(x, \"a b -> b a\")`",
        "reshape" | "view" | "flatten" | "squeeze" | "unsqueeze" | "expand_dims" => "use `rearrange(x, \"..\")`",
        "cat" | "concatenate" | "stack" | "hstack" | "vstack" => "use `concat(a, b, axis = 0)`",
        "zeros" | "ones" | "zeros_like" | "ones_like" | "fill" => "use `full<f32>(0, [S, D])`",
        "arange" | "range" => "use `iota(S)`",
        "tril" | "triu" => "use `causal(S, S)`",
        "masked_fill" => "use `where(mask, x, -inf)`",
        "float" | "int" | "to" | "astype" => "use `cast<f32>(x)`",
        "square" => "use `x * x`",
        "amax" => "use `max(x)`",
        "clamp" | "clip" => "use `minimum(maximum(x, low), high)`",
        "chunk" => "use `split(x, parts = 2)`",
        "embedding" | "gather" | "take" => "index the table: `table[tokens]`",
        "Linear" | "LayerNorm" => "make it a field, and call the field",
        _ => return None,
    })
}

impl Body<'_> {
    /// A call of an operation.
    pub(super) fn builtin(
        &mut self,
        expr: &ast::Expr,
        name: &ast::Ident,
        row: &'static Row,
        generics: &[ast::GenericArg],
        args: &[ast::Arg],
    ) -> Val {
        let (what, builtin, params, optional) = *row;
        let span = expr.span;
        if builtin == Builtin::Later {
            self.arguments_alone(args);
            self.diagnostics.push(not_available(&format!("`{what}`"), name.span));
            return Val::error(span);
        }
        let Some(elem) = self.elem_generic(what, builtin, generics, name.span) else {
            self.arguments_alone(args);
            return Val::error(span);
        };
        match builtin {
            Builtin::Einsum => return self.einsum(args, span),
            Builtin::Concat => return self.concat(args, span),
            Builtin::Rearrange => return self.rearrange(params, args, span),
            _ => {}
        }
        let Some(slots) = self.slots(what, params, optional, false, args, span) else { return Val::error(span) };
        self.fixed(builtin, what, elem, name.span, &slots, span)
    }

    /// The element type in `<..>`: none where there is none, an error (the outer `None`) where it cannot be.
    fn elem_generic(
        &mut self,
        what: &str,
        builtin: Builtin,
        generics: &[ast::GenericArg],
        span: Span,
    ) -> Option<Option<Elem>> {
        let takes = matches!(builtin, Builtin::Cast | Builtin::Full | Builtin::Iota | Builtin::OneHot);
        match generics {
            [] if builtin == Builtin::Cast => {
                self.diagnostics.push(
                    Diagnostic::error(shapes::CALL_GENERICS, "`cast` needs the element type")
                        .at(span, "write `cast<f32>(..)`"),
                );
                None
            }
            [] => Some(None),
            [ast::GenericArg { name: None, value: ast::GenericValue::Elem(elem), .. }] if takes => Some(Some(*elem)),
            [first, ..] => {
                let message = if takes {
                    format!("`{what}` takes one element type in `<..>`")
                } else {
                    format!("`{what}` takes nothing in `<..>`")
                };
                self.diagnostics.push(Diagnostic::error(shapes::CALL_GENERICS, message).at(first.span, ""));
                None
            }
        }
    }

    fn fixed(
        &mut self,
        builtin: Builtin,
        what: &str,
        elem: Option<Elem>,
        name: Span,
        slots: &Slots<'_>,
        span: Span,
    ) -> Val {
        let arg = |i: usize| slots.given.get(i).copied().flatten().map(|arg| &arg.value);
        let Some(first) = arg(0) else { return Val::error(span) };
        match builtin {
            Builtin::Unary(op) => {
                let x = self.expr(first);
                self.unary_function(op, what, x, span)
            }
            Builtin::Binary(op) => {
                let Some(second) = arg(1) else { return Val::error(span) };
                let (x, y) = (self.expr(first), self.expr(second));
                if x.ty.is_error() || y.ty.is_error() {
                    return Val::error(span);
                }
                // `pow` of two whole numbers is a float, as every float function of dimensions is.
                self.elementwise(Elementwise::Binary(op), what, name, x, y, span)
            }
            Builtin::Reduce(kind) => self.reduce(kind, what, first, arg(1), arg(2), span),
            Builtin::Softmax | Builtin::LogSoftmax => self.softmax(builtin, what, first, arg(1), span),
            Builtin::Where => {
                let (Some(a), Some(b)) = (arg(1), arg(2)) else { return Val::error(span) };
                self.where_(first, a, b, name, span)
            }
            Builtin::Split => self.split(first, arg(1), arg(2), span),
            Builtin::Unbind => self.unbind(first, arg(1), span),
            Builtin::Pad => self.pad(first, [arg(1), arg(2), arg(3), arg(4)], span),
            Builtin::Cast => {
                let x = self.expr(first);
                self.cast(x, elem.unwrap_or(Elem::F32), span)
            }
            Builtin::Iota => match self.dim_arg(first) {
                Some(n) => {
                    let shape = Shape::of([n.clone()]);
                    Val::tensor(ExprKind::Iota(n), elem.unwrap_or(Elem::I32), shape, span)
                }
                None => Val::error(span),
            },
            Builtin::Full => {
                let Some(shape) = arg(1) else { return Val::error(span) };
                self.full(first, shape, elem, span)
            }
            Builtin::OneHot => {
                let Some(n) = arg(1) else { return Val::error(span) };
                self.one_hot(first, n, elem.unwrap_or(Elem::F32), span)
            }
            Builtin::Causal => {
                let Some(second) = arg(1) else { return Val::error(span) };
                match (self.dim_arg(first), self.dim_arg(second)) {
                    (Some(q), Some(k)) => {
                        let shape = Shape::of([q.clone(), k.clone()]);
                        Val::tensor(ExprKind::Causal(q, k), Elem::Bool, shape, span)
                    }
                    _ => Val::error(span),
                }
            }
            Builtin::Rearrange | Builtin::Einsum | Builtin::Concat | Builtin::Later => Val::error(span),
        }
    }

    /// An argument that is a dimension.
    pub(super) fn dim_arg(&mut self, expr: &ast::Expr) -> Option<Dim> {
        let value = self.expr(expr);
        let dim = self.dim_of(&value)?;
        if dim.as_const().is_some_and(|n| n < 0) {
            self.diagnostics.push(super::items::negative_dim(expr.span, &dim));
            return None;
        }
        Some(dim)
    }

    /// An argument that is a tensor, or a number taken as a scalar.
    fn tensor_arg(&mut self, expr: &ast::Expr) -> Option<(Tensor, Expr)> {
        let value = self.expr(expr);
        if !self.is_value(&value) {
            return None;
        }
        let Some(Type::Tensor(tensor)) = value.ty.settled() else { return None };
        let expr = self.coerced(value, tensor.elem)?;
        Some((tensor, expr))
    }

    fn unary_function(&mut self, op: UnaryOp, what: &str, x: Val, span: Span) -> Val {
        if !self.is_value(&x) {
            return Val::error(span);
        }
        let Some(tensor) = x.as_tensor().cloned() else {
            return match coerce(x, Elem::F32) {
                Ok(expr) => Val::float(ExprKind::Unary(op, Box::new(expr)), span),
                Err(_) => Val::error(span),
            };
        };
        let ints = matches!(op, UnaryOp::Abs | UnaryOp::Relu | UnaryOp::Floor);
        if !(tensor.elem.is_float() || ints && tensor.elem.is_int()) {
            self.needs_floats(what, &tensor, x.span());
            return Val::error(span);
        }
        Val::tensor(ExprKind::Unary(op, Box::new(x.expr)), tensor.elem, tensor.shape, span)
    }

    fn needs_floats(&mut self, what: &str, tensor: &Tensor, span: Span) {
        let shown = self.text(span).unwrap_or("..").to_string();
        self.diagnostics.push(
            Diagnostic::error(shapes::ELEM_KIND, format!("`{what}` is for floats, this is {tensor}"))
                .at(span, tensor.to_string())
                .help(format!("convert it: `cast<f32>({shown})`")),
        );
    }

    fn cast(&mut self, x: Val, elem: Elem, span: Span) -> Val {
        if !self.is_value(&x) {
            return Val::error(span);
        }
        let shape = x.as_tensor().map_or_else(Shape::scalar, |tensor| tensor.shape.clone());
        Val::tensor(ExprKind::Cast(Box::new(x.expr)), elem, shape, span)
    }

    /// The axis that an argument names; `default` where it is left out.
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

    /// The axis of a number, or of a dimension that the tensor has once.
    fn axis_at(&mut self, dim: &Dim, tensor: &Tensor, x: Span, span: Option<Span>) -> Option<usize> {
        if let Some(number) = dim.as_const() {
            let found = tensor.shape.axis(number);
            if found.is_none() {
                let diagnostic = if tensor.shape.rank() == usize::from(tensor.shape.rest().is_some()) {
                    Diagnostic::error(shapes::RANK, format!("{tensor} has no known axis"))
                } else if tensor.shape.rest().is_some() {
                    Diagnostic::error(shapes::AXIS, format!("which axis of {tensor} is {number} is not known"))
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
            .help("give the axis by its number");
        self.diagnostics.push(diagnostic);
        None
    }

    fn reduce(
        &mut self,
        kind: ReduceKind,
        what: &str,
        x: &ast::Expr,
        axis: Option<&ast::Expr>,
        keep: Option<&ast::Expr>,
        span: Span,
    ) -> Val {
        let x_span = x.span;
        let x = self.tensor_arg(x);
        let keep = self.bool_arg(keep, "keep");
        let Some((tensor, x)) = x else { return Val::error(span) };
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
                    return Val::error(span);
                }
                self.axis_arg(axis, -1, &tensor, x_span).map(|axis| vec![axis])
            }
        };
        let (Some(mut axes), Some(keep)) = (axes, keep) else { return Val::error(span) };
        axes.sort_unstable();
        let given = axes.len();
        axes.dedup();
        if axes.is_empty() || axes.len() != given || (kind == ReduceKind::ArgMax && given != 1) {
            self.diagnostics.push(
                Diagnostic::error(shapes::AXIS, "the axes must be different, and one at least")
                    .at(axis.map_or(span, |axis| axis.span), ""),
            );
            return Val::error(span);
        }
        let elem = match kind {
            ReduceKind::All | ReduceKind::Any if tensor.elem == Elem::Bool => Elem::Bool,
            ReduceKind::All | ReduceKind::Any => {
                self.diagnostics.push(
                    Diagnostic::error(shapes::ELEM_KIND, format!("`{what}` is for `bool`, this is {tensor}"))
                        .at(x_span, tensor.to_string())
                        .help("compare first: `x != 0`"),
                );
                return Val::error(span);
            }
            ReduceKind::Mean if !tensor.elem.is_float() => {
                self.needs_floats(what, &tensor, x_span);
                return Val::error(span);
            }
            ReduceKind::Sum | ReduceKind::Max | ReduceKind::Min | ReduceKind::ArgMax if tensor.elem == Elem::Bool => {
                self.diagnostics.push(
                    Diagnostic::error(shapes::ELEM_KIND, format!("`{what}` is for numbers, this is {tensor}"))
                        .at(x_span, tensor.to_string())
                        .help("`cast<i32>(..)` gives 1 for `true`; `any` and `all` are for `bool`"),
                );
                return Val::error(span);
            }
            ReduceKind::ArgMax => Elem::I32,
            ReduceKind::Sum | ReduceKind::Mean | ReduceKind::Max | ReduceKind::Min => tensor.elem,
        };
        let mut shape = tensor.shape;
        for axis in axes.iter().rev() {
            shape = if keep { shape.with(*axis, Dim::one()) } else { shape.without(*axis) };
        }
        Val::tensor(ExprKind::Reduce { kind, x: Box::new(x), axes, keep }, elem, shape, span)
    }

    /// Is it the name of a variable or parameter with a tensor?
    fn is_tensor_name(&mut self, expr: &ast::Expr) -> bool {
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

    fn bool_arg(&mut self, expr: Option<&ast::Expr>, name: &str) -> Option<bool> {
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

    fn softmax(&mut self, builtin: Builtin, what: &str, x: &ast::Expr, axis: Option<&ast::Expr>, span: Span) -> Val {
        let x_span = x.span;
        let Some((tensor, x)) = self.tensor_arg(x) else { return Val::error(span) };
        let axis = self.axis_arg(axis, -1, &tensor, x_span);
        if !tensor.elem.is_float() {
            self.needs_floats(what, &tensor, x_span);
            return Val::error(span);
        }
        let Some(axis) = axis else { return Val::error(span) };
        let x = Box::new(x);
        let kind = if builtin == Builtin::Softmax { ExprKind::Softmax(x, axis) } else { ExprKind::LogSoftmax(x, axis) };
        Val::tensor(kind, tensor.elem, tensor.shape, span)
    }

    fn where_(&mut self, condition: &ast::Expr, a: &ast::Expr, b: &ast::Expr, name: Span, span: Span) -> Val {
        let (c, a, b) = (self.expr(condition), self.expr(a), self.expr(b));
        if [&c, &a, &b].iter().any(|value| value.ty.is_error()) {
            return Val::error(span);
        }
        let Some(cond) = c.as_tensor().cloned().filter(|tensor| tensor.elem == Elem::Bool) else {
            let mut diagnostic = Diagnostic::error(
                shapes::CONDITION,
                format!("the condition of `where` must be `bool`, this is {}", c.ty),
            )
            .at(c.span(), c.ty.to_string());
            if let Some(text) = self.text(c.span()) {
                diagnostic = diagnostic.help(format!("compare it: `{text} != 0`"));
            }
            self.diagnostics.push(diagnostic);
            return Val::error(span);
        };
        if !self.is_value(&a) || !self.is_value(&b) {
            return Val::error(span);
        }
        let elem = match (&a.ty, &b.ty) {
            (Ty::Tensor(x), Ty::Tensor(y)) if x.elem != y.elem => {
                self.diagnostics.push(
                    Diagnostic::error(
                        shapes::ELEM_MISMATCH,
                        format!("`where` needs one element type: {} and {}", x.elem, y.elem),
                    )
                    .at(name, "")
                    .also(a.span(), x.to_string())
                    .also(b.span(), y.to_string())
                    .help("convert one of them with `cast<..>(..)`"),
                );
                return Val::error(span);
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
                return Val::error(span);
            }
        };
        let shape = match cond.shape.broadcast(&values) {
            Ok(shape) => shape,
            Err(misfit) => {
                let (other, tensor) = if x.shape == values { (&a, &x) } else { (&b, &y) };
                self.no_broadcast("where", name, &c, other, &cond, tensor, &misfit);
                return Val::error(span);
            }
        };
        let (Some(a), Some(b)) = (self.coerced(a, elem), self.coerced(b, elem)) else { return Val::error(span) };
        Val::tensor(ExprKind::Where(Box::new(c.expr), Box::new(a), Box::new(b)), elem, shape, span)
    }

    fn concat(&mut self, args: &[ast::Arg], span: Span) -> Val {
        let (named, operands): (Vec<&ast::Arg>, Vec<&ast::Arg>) = args.iter().partition(|arg| arg.name.is_some());
        let named: Vec<ast::Arg> = named.into_iter().cloned().collect();
        let slots = self.slots("concat", &["axis"], 1, false, &named, span);
        let values: Vec<Val> = operands.iter().map(|arg| self.expr(&arg.value)).collect();
        let Some(slots) = slots else { return Val::error(span) };
        let axis = slots.given.first().copied().flatten().map(|arg| &arg.value);
        let mut parts = Vec::new();
        for value in values {
            if value.ty.is_error() {
                return Val::error(span);
            }
            let Some(tensor) = value.as_tensor().cloned() else {
                let shown = value.ty.to_string();
                self.not_a_tensor(&shown, value.span());
                return Val::error(span);
            };
            parts.push((tensor, value.expr));
        }
        let Some((first, first_expr)) = parts.first().cloned() else {
            self.diagnostics
                .push(Diagnostic::error(shapes::ARGUMENT_COUNT, "`concat` needs tensors").at(span, "none is given"));
            return Val::error(span);
        };
        let Some(axis) = self.axis_arg(axis, 0, &first, first_expr.span) else { return Val::error(span) };
        let mut length = Dim::zero();
        for (tensor, expr) in &parts {
            let same_rank = tensor.shape.rank() == first.shape.rank();
            let Some(dim) = tensor.shape.dim(axis).filter(|_| same_rank) else {
                self.no_concat(&first, first_expr.span, tensor, expr.span, axis);
                return Val::error(span);
            };
            let fits = tensor.elem == first.elem && tensor.shape.without(axis) == first.shape.without(axis);
            if !fits {
                self.no_concat(&first, first_expr.span, tensor, expr.span, axis);
                return Val::error(span);
            }
            length = length.add(dim);
        }
        let shape = first.shape.with(axis, length);
        let kind = ExprKind::Concat(parts.into_iter().map(|(_, expr)| expr).collect(), axis);
        Val::tensor(kind, first.elem, shape, span)
    }

    fn no_concat(&mut self, first: &Tensor, first_span: Span, other: &Tensor, span: Span, axis: usize) {
        let wanted = Tensor { elem: first.elem, shape: first.shape.clone() };
        let mut diagnostic =
            Diagnostic::error(shapes::CONCAT, format!("{first} and {other} cannot be joined along axis {axis}"))
                .at(span, other.to_string())
                .also(first_span, first.to_string());
        if other.elem == first.elem && other.shape.rank() == first.shape.rank() {
            let differing: Vec<usize> =
                (0..first.shape.rank()).filter(|at| first.shape.axes.get(*at) != other.shape.axes.get(*at)).collect();
            if let [at] = differing.as_slice() {
                diagnostic = diagnostic.help(format!("they can be joined along `axis = {at}`"));
            }
        }
        let same = Ty::Tensor(Tensor {
            elem: other.elem,
            shape: other.shape.with(axis, first.shape.dim(axis).cloned().unwrap_or_default()),
        });
        let diagnostic = type_misfit(diagnostic, &same, &Ty::Tensor(wanted), self.scope);
        self.diagnostics.push(diagnostic);
    }

    fn split(&mut self, x: &ast::Expr, axis: Option<&ast::Expr>, parts: Option<&ast::Expr>, span: Span) -> Val {
        let x_span = x.span;
        let x = self.tensor_arg(x);
        let parts_span = parts.map_or(span, |parts| parts.span);
        let parts = match parts {
            None => Some(Dim::from(2)),
            Some(parts) => self.dim_arg(parts),
        };
        let (Some((tensor, x)), Some(parts)) = (x, parts) else { return Val::error(span) };
        let Some(n) = parts.as_const().filter(|n| (1..=MAX_PARTS).contains(n)) else {
            self.diagnostics.push(
                Diagnostic::error(
                    shapes::UNBIND_LENGTH,
                    format!("the number of parts must be a number from 1 to {MAX_PARTS}"),
                )
                .at(parts_span, ""),
            );
            return Val::error(span);
        };
        let Some(axis) = self.axis_arg(axis, -1, &tensor, x_span) else { return Val::error(span) };
        let Some(dim) = tensor.shape.dim(axis).cloned() else { return Val::error(span) };
        let Some(part) = self.scope.divide(&dim, &Dim::from(n), span, span, self.diagnostics) else {
            return Val::error(span);
        };
        let part = Tensor { elem: tensor.elem, shape: tensor.shape.with(axis, part) };
        let n = usize::try_from(n).unwrap_or_default();
        tuple(ExprKind::Split { x: Box::new(x), axis, parts: n }, &part, n, span)
    }

    fn unbind(&mut self, x: &ast::Expr, axis: Option<&ast::Expr>, span: Span) -> Val {
        let x_span = x.span;
        let Some((tensor, x)) = self.tensor_arg(x) else { return Val::error(span) };
        let Some(axis) = self.axis_arg(axis, 0, &tensor, x_span) else { return Val::error(span) };
        let Some(dim) = tensor.shape.dim(axis).cloned() else { return Val::error(span) };
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
            return Val::error(span);
        };
        let part = Tensor { elem: tensor.elem, shape: tensor.shape.without(axis) };
        tuple(ExprKind::Unbind { x: Box::new(x), axis }, &part, usize::try_from(n).unwrap_or_default(), span)
    }

    fn pad(&mut self, x: &ast::Expr, rest: [Option<&ast::Expr>; 4], span: Span) -> Val {
        let [axis, low, high, value] = rest;
        let x_span = x.span;
        let x = self.tensor_arg(x);
        let mut end = |expr: Option<&ast::Expr>| match expr {
            None => Some(Dim::zero()),
            Some(expr) => self.dim_arg(expr),
        };
        let (low, high) = (end(low), end(high));
        let value = value.map_or_else(|| Val::dim(Dim::zero(), span), |value| self.expr(value));
        let (Some((tensor, x)), Some(low), Some(high)) = (x, low, high) else { return Val::error(span) };
        let Some(axis) = self.axis_arg(axis, -1, &tensor, x_span) else { return Val::error(span) };
        let wanted = Type::Tensor(Tensor { elem: tensor.elem, shape: Shape::scalar() });
        let fitted = self.fit(value, &wanted, &|ty, at, _| {
            Diagnostic::error(shapes::LITERAL, format!("the padding is one {wanted}, this is {ty}")).at(at, "")
        });
        let (Some(value), Some(dim)) = (fitted, tensor.shape.dim(axis)) else { return Val::error(span) };
        let shape = tensor.shape.with(axis, dim.add(&low).add(&high));
        let kind = ExprKind::Pad { x: Box::new(x), axis, low, high, value: Box::new(value) };
        Val::tensor(kind, tensor.elem, shape, span)
    }

    fn full(&mut self, value: &ast::Expr, dims: &ast::Expr, elem: Option<Elem>, span: Span) -> Val {
        let value = self.expr(value);
        let ast::ExprKind::List(list) = &dims.kind else {
            self.diagnostics.push(
                Diagnostic::error(dimensions::NOT_A_DIMENSION, "the shape of `full` is a list of dimensions")
                    .at(dims.span, "write `[S, D]`"),
            );
            return Val::error(span);
        };
        let dims: Vec<Option<Dim>> = list.iter().map(|dim| self.dim_arg(dim)).collect();
        let Some(dims) = dims.into_iter().collect::<Option<Vec<Dim>>>() else { return Val::error(span) };
        if !self.is_value(&value) {
            return Val::error(span);
        }
        let Some(Type::Tensor(own)) = value.ty.settled() else { return Val::error(span) };
        let elem = elem.unwrap_or(own.elem);
        let wanted = Type::Tensor(Tensor { elem, shape: Shape::scalar() });
        let fitted = self.fit(value, &wanted, &|ty, at, _| {
            Diagnostic::error(shapes::LITERAL, format!("`full` repeats one {wanted}, this is {ty}"))
                .at(at, ty.to_string())
        });
        match fitted {
            Some(value) => Val::tensor(ExprKind::Full(Box::new(value)), elem, Shape::of(dims), span),
            None => Val::error(span),
        }
    }

    fn one_hot(&mut self, i: &ast::Expr, n: &ast::Expr, elem: Elem, span: Span) -> Val {
        let i_span = i.span;
        let (i, n) = (self.tensor_arg(i), self.dim_arg(n));
        let (Some((tensor, i)), Some(n)) = (i, n) else { return Val::error(span) };
        if !matches!(tensor.elem, Elem::I32 | Elem::I64) {
            self.diagnostics.push(
                Diagnostic::error(shapes::INDEX_TYPE, format!("`one_hot` takes integers, this is {tensor}"))
                    .at(i_span, tensor.to_string()),
            );
            return Val::error(span);
        }
        let shape = tensor.shape.followed_by([n.clone()]);
        Val::tensor(ExprKind::OneHot(Box::new(i), n), elem, shape, span)
    }
}

/// How many parts `unbind` and `split` give at most.
const MAX_PARTS: i64 = 256;

/// A value of equal parts.
fn tuple(kind: ExprKind, part: &Tensor, n: usize, span: Span) -> Val {
    let ty = Type::Tuple(vec![Type::Tensor(part.clone()); n]);
    Val { ty: Ty::of(&ty), expr: Expr { kind, ty, span } }
}
