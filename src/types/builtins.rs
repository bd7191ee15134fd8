//! Operations of the language that are written as calls: names, arguments and types.
//!
//! In: a call of a name that nothing declares. Out: the typed operation. The table lists the
//! arguments; `rearrange` and `einsum` are in `patterns`.

use std::sync::LazyLock;

use super::arguments::Slots;
use super::axes::Shape;
use super::body::{Body, Named};
use super::dims::FUNCTIONS;
use super::generics::negative_dim;
use super::operators::Elementwise;
use super::typed::{Expr, ExprKind, Order, Tensor, Type};
use super::values::{Ty, TypedExpr, coerce, is_large};
use crate::diagnostics::Diagnostic;
use crate::diagnostics::codes::{dimensions, shapes};
use crate::scalar::{AxisOp, BinaryOp, CmpOp, FloatTest, ReduceKind, Scalar, UnaryOp};
use crate::shape::{Dim, Elem};
use crate::source::Span;
use crate::syntax::ast;
use crate::table::Family;

/// An operation, or a family of operations.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Builtin {
    Unary(UnaryOp),
    Test(FloatTest),
    Binary(BinaryOp),
    Reduce(ReduceKind),
    Along(AxisOp),
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
    ArgMin,
    Ordered(Order),
    TakeAlong,
    Windows,
    Every,
    Scatter {
        add: bool,
    },
    Grad,
    Stop,
    Counters,
    /// On dimensions only; also allowed in shapes.
    DimFunction,
}

/// A row of the table: name, arguments, number of optional arguments (the last ones), and a
/// summary.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row {
    pub(super) name: &'static str,
    pub(super) builtin: Builtin,
    pub(super) params: &'static [&'static str],
    pub(super) optional: usize,
    pub(super) summary: &'static str,
}

const fn row(
    name: &'static str,
    builtin: Builtin,
    params: &'static [&'static str],
    optional: usize,
    summary: &'static str,
) -> Row {
    Row { name, builtin, params, optional, summary }
}

/// All operations without a table of their own; the other tables list unary and binary operations,
/// tests, reductions, and operations along an axis.
const TABLE: &[Row] = &[
    row("floor_div", Builtin::DimFunction, &["a", "b"], 0, "a / b of dimensions, rounded down"),
    row("ceil_div", Builtin::DimFunction, &["a", "b"], 0, "a / b of dimensions, rounded up"),
    row("where", Builtin::Where, &["condition", "a", "b"], 0, "a where the condition holds, else b, broadcast"),
    row(
        "rearrange",
        Builtin::Rearrange,
        &["x", "pattern"],
        0,
        "axes split, merged and permuted by a pattern: \"s (h d) -> h s d\"",
    ),
    row("einsum", Builtin::Einsum, &["pattern"], 0, "products and sums by a pattern: \"s d, t d -> s t\""),
    row("concat", Builtin::Concat, &["axis"], 1, "tensors concatenated along an axis"),
    row("split", Builtin::Split, &["x", "axis", "parts"], 2, "equal parts of an axis, as a tuple"),
    row("unbind", Builtin::Unbind, &["x", "axis"], 1, "the elements of an axis, by default the first, as a tuple"),
    row("pad", Builtin::Pad, &["x", "axis", "low", "high", "value"], 4, "padding before and after, along an axis"),
    row("cast", Builtin::Cast, &["x"], 0, "another element type: cast<f32>(x)"),
    row("iota", Builtin::Iota, &["n"], 0, "0, 1, 2, .. below n"),
    row("full", Builtin::Full, &["value", "shape"], 0, "a tensor of one value: full<f32>(0, [S, D])"),
    row("one_hot", Builtin::OneHot, &["i", "n"], 0, "1 at index i of n, else 0"),
    row("causal", Builtin::Causal, &["q_len", "kv_len"], 0, "whether query i sees key j: j <= i + kv_len - q_len"),
    row(
        "argmin",
        Builtin::ArgMin,
        &["x", "axis", "keep"],
        2,
        "the index of the least element: of the first among equals, or of the first NaN; the last axis by default",
    ),
    row(
        "sort",
        Builtin::Ordered(Order::Values),
        &["x", "axis", "descending"],
        2,
        "the elements in ascending order, NaN after the numbers; or in descending order, NaN first; the last axis by default",
    ),
    row(
        "argsort",
        Builtin::Ordered(Order::Places),
        &["x", "axis", "descending"],
        2,
        "the indices of the elements in the order of sort, equal ones in the order of their indices",
    ),
    row(
        "top_k",
        Builtin::Ordered(Order::Both),
        &["x", "k", "axis"],
        1,
        "the k greatest elements in descending order and their indices, as a tuple; the last axis by default",
    ),
    row(
        "take_along",
        Builtin::TakeAlong,
        &["x", "at", "axis"],
        1,
        "for each line along an axis, the elements at the indices of the same line; the last axis by default",
    ),
    row(
        "windows",
        Builtin::Windows,
        &["x", "size", "stride", "axis"],
        2,
        "the windows of an axis, which becomes two: how many, and their size; by default each begins one after the one before, \
         along the last axis",
    ),
    row(
        "every",
        Builtin::Every,
        &["x", "step", "axis"],
        1,
        "every step-th element, starting at the first; the last axis by default",
    ),
    row(
        "scatter",
        Builtin::Scatter { add: false },
        &["x", "at", "value", "axis"],
        1,
        "x with slices written at indices, in order, so that the last one wins; the first axis by default",
    ),
    row(
        "scatter_add",
        Builtin::Scatter { add: true },
        &["x", "at", "value", "axis"],
        1,
        "x with slices added at indices, in order; the first axis by default",
    ),
    row(
        "grad",
        Builtin::Grad,
        &["loss", "x"],
        0,
        "the gradient of a scalar with respect to a value, a parameter, or several",
    ),
    row("stop", Builtin::Stop, &["x"], 0, "x, as a constant for `grad`"),
    row(
        "counters",
        Builtin::Counters,
        &["x"],
        0,
        "a number for each element, other ones at each call and in each iteration",
    ),
];

/// The table: the scalar operations of `crate::scalar`, then the others.
static ROWS: LazyLock<Vec<Row>> = LazyLock::new(|| {
    let unary = UnaryOp::ALL.iter().filter(|op| op.is_call());
    let unary = unary.map(|op| row(op.name(), Builtin::Unary(*op), &["x"], 0, op.meaning()));
    let tests = FloatTest::ALL.iter().map(|test| row(test.name(), Builtin::Test(*test), &["x"], 0, test.meaning()));
    let binary =
        BinaryOp::ALL.iter().filter_map(|op| Some(row(op.call()?, Builtin::Binary(*op), &["x", "y"], 0, op.meaning())));
    let reductions = ReduceKind::ALL
        .iter()
        .map(|kind| row(kind.name(), Builtin::Reduce(*kind), &["x", "axis", "keep"], 2, kind.meaning()));
    let along = AxisOp::ALL.iter().map(|op| row(op.name(), Builtin::Along(*op), &["x", "axis"], 1, op.meaning()));
    unary.chain(tests).chain(binary).chain(reductions).chain(along).chain(TABLE.iter().copied()).collect()
});

/// The operation with this name.
pub(super) fn find(name: &str) -> Option<&'static Row> {
    ROWS.iter().find(|row| row.name == name)
}

pub(super) fn all() -> impl Iterator<Item = &'static Row> {
    ROWS.iter()
}

/// The names of all operations.
pub(super) fn names<'n>() -> impl Iterator<Item = &'n str> {
    all().map(|row| row.name)
}

impl Body<'_> {
    /// Checks a call of an operation.
    pub(super) fn builtin(
        &mut self,
        expr: &ast::Expr,
        name: &ast::Ident,
        row: &'static Row,
        generics: &[ast::GenericArg],
        args: &[ast::Arg],
    ) -> TypedExpr {
        let Row { name: what, builtin, params, optional, .. } = *row;
        let span = expr.span;
        let Some(elem) = self.elem_generic(what, builtin, generics, name.span) else {
            self.arguments_alone(args);
            return TypedExpr::error(span);
        };
        if let Some(value) = self.dim_function(row, args, span) {
            return value;
        }
        if let Some(value) = self.other_arguments(row, args, span) {
            return value;
        }
        match builtin {
            Builtin::Einsum => return self.einsum(args, span),
            Builtin::Concat => return self.concat(args, span),
            Builtin::Rearrange => return self.rearrange(params, args, span),
            _ => {}
        }
        let Some(slots) = self.slots(what, params, optional, false, args, span) else { return TypedExpr::error(span) };
        self.fixed(builtin, what, elem, name.span, &slots, span)
    }

    /// The element type in `<..>`: `Some(None)` if it is absent, `None` after an error.
    pub(super) fn elem_generic(
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
                    Diagnostic::error(shapes::CALL_GENERICS, "`cast` is missing the element type")
                        .at(span, "write `cast<f32>(..)`"),
                );
                None
            }
            [] => Some(None),
            [ast::GenericArg { name: None, value: ast::GenericValue::Elem(elem), .. }] if takes => Some(Some(*elem)),
            [ast::GenericArg { name: None, value: ast::GenericValue::Expr(expr), .. }]
                if takes && let Some(elem) = self.scope.elem_of(expr) =>
            {
                if let ast::ExprKind::Name(name) = &expr.kind {
                    self.scope.refer(name, self.diagnostics);
                }
                Some(Some(elem))
            }
            [ast::GenericArg { name: None, value: ast::GenericValue::Expr(expr), .. }]
                if takes && let ast::ExprKind::Name(name) = &expr.kind =>
            {
                let diagnostic = self.scope.unknown_elem(name);
                self.diagnostics.push(diagnostic);
                None
            }
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

    pub(super) fn fixed(
        &mut self,
        builtin: Builtin,
        what: &str,
        elem: Option<Elem>,
        name: Span,
        slots: &Slots<'_>,
        span: Span,
    ) -> TypedExpr {
        let arg = |i: usize| slots.given.get(i).copied().flatten().map(|arg| &arg.value);
        let Some(first) = arg(0) else { return TypedExpr::error(span) };
        match builtin {
            Builtin::Unary(op) => {
                let x = self.expr(first);
                self.unary_function(op, what, x, span)
            }
            Builtin::Test(test) => {
                let x = self.expr(first);
                self.float_test(test, what, x, span)
            }
            Builtin::Binary(op) => {
                let Some(second) = arg(1) else { return TypedExpr::error(span) };
                let (x, y) = (self.expr(first), self.expr(second));
                if x.ty.is_error() || y.ty.is_error() {
                    return TypedExpr::error(span);
                }
                if let (BinaryOp::Max | BinaryOp::Min, Ty::Dim(a), Ty::Dim(b)) = (op, &x.ty, &y.ty)
                    && let Some(value) = self.dim_arithmetic(op, a, b, name, span)
                {
                    return value;
                }
                // `pow` of two integers is a float, like every float function of dimensions.
                self.elementwise(Elementwise::Binary(op), what, name, x, y, span)
            }
            Builtin::Reduce(kind) => self.reduce(kind, what, first, arg(1), arg(2), span),
            Builtin::Along(op) => self.along_axis(op, what, first, arg(1), span),
            Builtin::Where => {
                let (Some(a), Some(b)) = (arg(1), arg(2)) else { return TypedExpr::error(span) };
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
                Some(_) if elem == Some(Elem::Bool) => {
                    self.diagnostics.push(
                        Diagnostic::error(shapes::ELEM_KIND, "`iota` needs a numeric type, not bool")
                            .at(name, "")
                            .help("compare it: `iota(n) >= k`"),
                    );
                    TypedExpr::error(span)
                }
                Some(n) => {
                    let shape = Shape::from_dims([n.clone()]);
                    TypedExpr::tensor(ExprKind::Iota(n), elem.unwrap_or(Elem::I32), shape, span)
                }
                None => TypedExpr::error(span),
            },
            Builtin::Full => {
                let Some(shape) = arg(1) else { return TypedExpr::error(span) };
                self.full(first, shape, elem, span)
            }
            Builtin::OneHot => {
                let Some(n) = arg(1) else { return TypedExpr::error(span) };
                self.one_hot(first, n, elem.unwrap_or(Elem::F32), span)
            }
            Builtin::Causal => {
                let Some(second) = arg(1) else { return TypedExpr::error(span) };
                match (self.dim_arg(first), self.dim_arg(second)) {
                    (Some(q), Some(k)) => {
                        let shape = Shape::from_dims([q.clone(), k.clone()]);
                        TypedExpr::tensor(ExprKind::Causal(q, k), Elem::Bool, shape, span)
                    }
                    _ => TypedExpr::error(span),
                }
            }
            Builtin::ArgMin => self.argmin(first, arg(1), arg(2), span),
            Builtin::Ordered(Order::Both) => self.ordered(Order::Both, (what, first), arg(1), (arg(2), None), span),
            Builtin::Ordered(order) => self.ordered(order, (what, first), None, (arg(1), arg(2)), span),
            Builtin::TakeAlong => {
                let Some(at) = arg(1) else { return TypedExpr::error(span) };
                self.take_along(first, at, arg(2), span)
            }
            Builtin::Windows => {
                let Some(size) = arg(1) else { return TypedExpr::error(span) };
                self.windows(first, size, arg(2), arg(3), span)
            }
            Builtin::Every => {
                let Some(step) = arg(1) else { return TypedExpr::error(span) };
                self.every(first, step, arg(2), span)
            }
            Builtin::Scatter { add } => {
                let (Some(at), Some(value)) = (arg(1), arg(2)) else { return TypedExpr::error(span) };
                self.scatter(add, [first, at, value], arg(3), span)
            }
            Builtin::Grad => {
                let Some(of) = arg(1) else { return TypedExpr::error(span) };
                self.grad(first, of, span)
            }
            Builtin::Stop => {
                let x = self.expr(first);
                if !self.are_floats("stop", &x) {
                    return TypedExpr::error(span);
                }
                let Some(tensor) = x.as_tensor().cloned() else { return x };
                TypedExpr::tensor(ExprKind::Stop(Box::new(x.expr)), tensor.elem, tensor.shape, span)
            }
            Builtin::Counters => {
                let x = self.expr(first);
                let Some(tensor) = x.as_tensor().cloned() else {
                    if !x.ty.is_error() {
                        let message = format!("`counters` needs a tensor, found {}", x.ty);
                        self.diagnostics.push(Diagnostic::error(shapes::ELEM_KIND, message).at(first.span, ""));
                    }
                    return TypedExpr::error(span);
                };
                TypedExpr::tensor(ExprKind::Counters(Box::new(x.expr)), Elem::I64, tensor.shape, span)
            }
            Builtin::Rearrange | Builtin::Einsum | Builtin::Concat | Builtin::DimFunction => TypedExpr::error(span),
        }
    }

    /// A function of dimensions: `floor_div` and `ceil_div` always, `min` and `max` if all
    /// arguments are dimensions.
    fn dim_function(&mut self, row: &Row, args: &[ast::Arg], span: Span) -> Option<TypedExpr> {
        let always = row.builtin == Builtin::DimFunction;
        let reduces = matches!(row.builtin, Builtin::Reduce(ReduceKind::Min | ReduceKind::Max));
        let plain = args.iter().all(|arg| arg.name.is_none()) && args.len() >= 2;
        let stays = always || reduces && plain && args.iter().all(|arg| self.is_dim(&arg.value));
        if !stays {
            return None;
        }
        let values: Vec<TypedExpr> = args.iter().map(|arg| self.expr(&arg.value)).collect();
        let dims: Vec<Option<Dim>> = values.iter().map(|value| self.dim_of(value)).collect();
        let Some(dims) = dims.into_iter().collect::<Option<Vec<Dim>>>() else { return Some(TypedExpr::error(span)) };
        Some(match self.scope.function(row.name, &dims, span, self.diagnostics) {
            Some(dim) => TypedExpr::dim(self.scope.canonical(dim), span),
            None => TypedExpr::error(span),
        })
    }

    /// Does an expression consist only of dimensions and integers, with at least one name?
    fn is_dim(&mut self, expr: &ast::Expr) -> bool {
        match &expr.kind {
            ast::ExprKind::Int(_) => true,
            ast::ExprKind::Name(name) => match self.lookup(&name.name) {
                Some(Named::Dim(_)) => true,
                Some(Named::Local { ty: Ty::Dim(_), .. }) => true,
                Some(_) => false,
                None => self.scope.names.contains_key(&name.name),
            },
            ast::ExprKind::Unary { operand, .. } => self.is_dim(operand),
            ast::ExprKind::Binary { op, left, right, .. } => {
                !op.is_comparison() && self.is_dim(left) && self.is_dim(right)
            }
            ast::ExprKind::Call { callee, args, .. } => {
                let of_dims =
                    matches!(&callee.kind, ast::ExprKind::Name(name) if FUNCTIONS.contains(&name.name.as_str()));
                of_dims && args.iter().all(|arg| self.is_dim(&arg.value))
            }
            _ => false,
        }
    }

    /// An argument that is a dimension.
    pub(super) fn dim_arg(&mut self, expr: &ast::Expr) -> Option<Dim> {
        let value = self.expr(expr);
        let dim = self.dim_of(&value)?;
        if dim.as_const().is_some_and(|n| n < 0) {
            self.diagnostics.push(negative_dim(expr.span, &dim));
            return None;
        }
        Some(dim)
    }

    /// An argument that is a tensor, or a number as a scalar.
    pub(super) fn tensor_arg(&mut self, expr: &ast::Expr) -> Option<(Tensor, Expr)> {
        let value = self.expr(expr);
        if !self.is_value(&value) {
            return None;
        }
        let Some(Type::Tensor(tensor)) = value.ty.settled() else { return None };
        let expr = self.coerced(value, tensor.elem)?;
        Some((tensor, expr))
    }

    pub(super) fn unary_function(&mut self, op: UnaryOp, what: &str, x: TypedExpr, span: Span) -> TypedExpr {
        if !self.is_value(&x) {
            return TypedExpr::error(span);
        }
        let Some(tensor) = x.as_tensor().cloned() else {
            return match coerce(x, Elem::F32) {
                Ok(expr) => TypedExpr::float(ExprKind::Unary(op, Box::new(expr)), span),
                Err(_) => TypedExpr::error(span),
            };
        };
        if !op.takes(tensor.elem) {
            self.needs_floats(what, &tensor, x.span());
            return TypedExpr::error(span);
        }
        TypedExpr::tensor(ExprKind::Unary(op, Box::new(x.expr)), tensor.elem, tensor.shape, span)
    }

    /// `isnan(x)` and similar tests: comparisons with infinity, each of which uses `x` once. NaN
    /// fails all of them but `!=`.
    fn float_test(&mut self, test: FloatTest, what: &str, x: TypedExpr, span: Span) -> TypedExpr {
        if !self.is_value(&x) {
            return TypedExpr::error(span);
        }
        let (elem, shape) = match x.as_tensor().cloned() {
            Some(tensor) if !tensor.elem.is_float() => {
                self.needs_floats(what, &tensor, x.span());
                return TypedExpr::error(span);
            }
            Some(tensor) => (tensor.elem, tensor.shape),
            None => (Elem::F32, Shape::scalar()),
        };
        let Ok(x) = coerce(x, elem) else { return TypedExpr::error(span) };
        let typed = |kind: ExprKind, elem: Elem, shape: &Shape| TypedExpr::tensor(kind, elem, shape.clone(), span).expr;
        let infinity = typed(ExprKind::Const(Scalar::Float(f64::INFINITY)), elem, &Shape::scalar());
        let compare = |op: CmpOp, x: Expr| ExprKind::Compare(op, Box::new(x), Box::new(infinity.clone()));
        let size = |x: Expr| typed(ExprKind::Unary(UnaryOp::Abs, Box::new(x)), elem, &shape);
        let kind = match test {
            FloatTest::IsNan => {
                let is_number = typed(compare(CmpOp::Le, x), Elem::Bool, &shape);
                ExprKind::Unary(UnaryOp::Not, Box::new(is_number))
            }
            FloatTest::IsInf => compare(CmpOp::Eq, size(x)),
            FloatTest::IsFinite => compare(CmpOp::Lt, size(x)),
        };
        TypedExpr::tensor(kind, Elem::Bool, shape, span)
    }

    pub(super) fn needs_floats(&mut self, what: &str, tensor: &Tensor, span: Span) {
        let shown = self.text(span).unwrap_or("..").to_string();
        self.diagnostics.push(
            Diagnostic::error(shapes::ELEM_KIND, format!("`{what}` expects floats, found {tensor}"))
                .at(span, tensor.to_string())
                .help(format!("convert it: `cast<f32>({shown})`")),
        );
    }

    pub(super) fn cast(&mut self, x: TypedExpr, elem: Elem, span: Span) -> TypedExpr {
        if !self.is_value(&x) {
            return TypedExpr::error(span);
        }
        if is_large(&x) {
            let Some(expr) = self.coerced(x, elem) else { return TypedExpr::error(span) };
            return TypedExpr::tensor(expr.kind, elem, Shape::scalar(), span);
        }
        let shape = x.as_tensor().map_or_else(Shape::scalar, |tensor| tensor.shape.clone());
        TypedExpr::tensor(ExprKind::Cast(Box::new(x.expr)), elem, shape, span)
    }

    pub(super) fn full(&mut self, value: &ast::Expr, dims: &ast::Expr, elem: Option<Elem>, span: Span) -> TypedExpr {
        let value = self.expr(value);
        let ast::ExprKind::List(list) = &dims.kind else {
            self.diagnostics.push(
                Diagnostic::error(dimensions::NOT_A_DIMENSION, "the shape of `full` must be a list of dimensions")
                    .at(dims.span, "write `[S, D]`"),
            );
            return TypedExpr::error(span);
        };
        let dims: Vec<Option<Dim>> = list.iter().map(|dim| self.dim_arg(dim)).collect();
        let Some(dims) = dims.into_iter().collect::<Option<Vec<Dim>>>() else { return TypedExpr::error(span) };
        if !self.is_value(&value) {
            return TypedExpr::error(span);
        }
        let Some(Type::Tensor(own)) = value.ty.settled() else { return TypedExpr::error(span) };
        let elem = elem.unwrap_or(own.elem);
        let wanted = Type::Tensor(Tensor { elem, shape: Shape::scalar() });
        let fitted = self.fit(value, &wanted, &|ty, at, _| {
            Diagnostic::error(shapes::LITERAL, format!("`full` expects one {wanted}, found {ty}"))
                .at(at, ty.to_string())
        });
        match fitted {
            Some(value) => TypedExpr::tensor(ExprKind::Full(Box::new(value)), elem, Shape::from_dims(dims), span),
            None => TypedExpr::error(span),
        }
    }

    pub(super) fn one_hot(&mut self, i: &ast::Expr, n: &ast::Expr, elem: Elem, span: Span) -> TypedExpr {
        let i_span = i.span;
        let (i, n) = (self.tensor_arg(i), self.dim_arg(n));
        let (Some((tensor, i)), Some(n)) = (i, n) else { return TypedExpr::error(span) };
        if !matches!(tensor.elem, Elem::I32 | Elem::I64) {
            self.diagnostics.push(
                Diagnostic::error(shapes::INDEX_TYPE, format!("`one_hot` expects integers, found {tensor}"))
                    .at(i_span, tensor.to_string()),
            );
            return TypedExpr::error(span);
        }
        let shape = tensor.shape.followed_by([n.clone()]);
        TypedExpr::tensor(ExprKind::OneHot(Box::new(i), n), elem, shape, span)
    }
}
