//! Expressions: names, fields and `if`; dispatches all other expressions.
//!
//! In: expressions of the AST. Out: typed values. Operators are in `operators`, calls in `calls`
//! and `builtins`, `x[..]` in `indexing`.

use super::axes::Axis;
use super::body::{Body, Named};
use super::builtins;
use super::layer_refs::{LayerRef, within};
use super::misfit::{axes_of, type_misfit};
use super::typed::{Block, Expr, ExprKind, FieldType, Generic, GenericKind, LayerPath, Stmt, StmtKind, Type};
use super::values::{Ty, TypedExpr, coerce};
use crate::diagnostics::codes::{names, parameters, shapes};
use crate::diagnostics::{Diagnostic, did_you_mean};
use crate::scalar::Scalar;
use crate::shape::{Dim, Elem};
use crate::source::Span;
use crate::syntax::ast;

/// The maximum number of messages that get a suggestion.
const MAX_SUGGESTIONS: usize = 200;

/// The maximum number of tensors in a tuple, including nested tuples.
const MAX_LEAVES: usize = 1024;

impl<'a> Body<'a> {
    /// Checks an expression whose value is used.
    pub(super) fn expr(&mut self, expr: &ast::Expr) -> TypedExpr {
        let value = self.expr_or_statement(expr);
        if value.ty == Ty::Tuple(Vec::new()) {
            let mut diagnostic =
                Diagnostic::error(shapes::NO_VALUE, "a value is missing").at(expr.span, "expected a value");
            if matches!(expr.kind, ast::ExprKind::If { otherwise: None, .. }) {
                diagnostic = diagnostic.help("an `if` with a value needs an `else`");
            }
            self.diagnostics.push(diagnostic);
            return TypedExpr::error(expr.span);
        }
        value
    }

    /// Checks an expression that may have no value.
    pub(super) fn expr_or_statement(&mut self, expr: &ast::Expr) -> TypedExpr {
        let value = self.any_expr(expr);
        if value.ty.is_too_long() {
            self.diagnostics.push(super::dims::too_long(expr.span));
            return TypedExpr::error(expr.span);
        }
        value
    }

    fn any_expr(&mut self, expr: &ast::Expr) -> TypedExpr {
        let span = expr.span;
        match &expr.kind {
            ast::ExprKind::Int(n) => match i64::try_from(*n) {
                Ok(n) => TypedExpr::dim(Dim::from(n), span),
                Err(_) => {
                    self.diagnostics.push(
                        Diagnostic::error(shapes::LITERAL, "the number is too large for every element type")
                            .at(span, "at most 2^63 - 1"),
                    );
                    TypedExpr::error(span)
                }
            },
            ast::ExprKind::Float(x) if super::values::overflows(*x, Elem::F32) => {
                let message = super::values::too_large(Scalar::Float(*x), Elem::F32);
                self.diagnostics.push(Diagnostic::error(shapes::LITERAL, message).at(span, "too large for any type"));
                TypedExpr::error(span)
            }
            ast::ExprKind::Float(x) => TypedExpr::float(ExprKind::Const(Scalar::Float(*x)), span),
            ast::ExprKind::Inf => TypedExpr::float(ExprKind::Const(Scalar::Float(f64::INFINITY)), span),
            ast::ExprKind::Bool(b) => boolean(*b, span),
            ast::ExprKind::Str(_) => self.no_value_form("a text", span, "strings are only allowed as patterns"),
            ast::ExprKind::List(_) => {
                self.no_value_form("a list", span, "lists are only allowed as shapes and axes; `concat` joins tensors")
            }
            ast::ExprKind::Name(name) => self.name(name),
            ast::ExprKind::Tuple(parts) => {
                let parts: Vec<TypedExpr> = parts.iter().map(|part| self.expr(part)).collect();
                if parts.iter().map(|part| part.ty.leaves()).sum::<usize>() > MAX_LEAVES {
                    self.diagnostics.push(
                        Diagnostic::error(shapes::PARTS, format!("a tuple may have at most {MAX_LEAVES} parts"))
                            .at(span, "too many, including nested parts"),
                    );
                    return TypedExpr::error(span);
                }
                let ty = Ty::Tuple(parts.iter().map(|part| part.ty.clone()).collect());
                let Some(settled) = ty.settled() else { return TypedExpr::error(span) };
                let kind = ExprKind::Tuple(parts.into_iter().map(|part| part.expr).collect());
                TypedExpr { ty, expr: Expr { kind, ty: settled, span } }
            }
            ast::ExprKind::Unary { op, op_span, operand } => {
                let operand = self.expr(operand);
                self.unary_operator(*op, *op_span, operand, span)
            }
            ast::ExprKind::Binary { op, op_span, left, right } => {
                let (left, right) = (self.expr(left), self.expr(right));
                self.binary_operator(*op, *op_span, left, right, span)
            }
            ast::ExprKind::Call { callee, generics, args } => self.call(expr, callee, generics, args),
            ast::ExprKind::Field { base, name } => self.member(base, name, span),
            ast::ExprKind::Index { base, indices } => self.index(base, indices, span),
            ast::ExprKind::If { condition, then, otherwise } => self.if_(condition, then, otherwise.as_deref(), span),
            ast::ExprKind::Block(block) => {
                let (block, ty) = self.block(block);
                let Some(settled) = ty.settled() else { return TypedExpr::error(span) };
                TypedExpr { ty, expr: Expr { kind: ExprKind::Block(block), ty: settled, span } }
            }
            ast::ExprKind::Train(train) => self.train(train, span),
            ast::ExprKind::Error => TypedExpr::error(span),
        }
    }

    fn no_value_form(&mut self, what: &str, span: Span, note: &str) -> TypedExpr {
        self.not_a_tensor_with(what, span, Some(note));
        TypedExpr::error(span)
    }

    /// Reports a non-tensor where a tensor is required.
    pub(super) fn not_a_tensor(&mut self, what: &str, span: Span) {
        self.not_a_tensor_with(what, span, None);
    }

    fn not_a_tensor_with(&mut self, what: &str, span: Span, note: Option<&str>) {
        let mut diagnostic = Diagnostic::error(shapes::NOT_A_TENSOR, format!("expected a tensor, found {what}"))
            .at(span, "not a tensor");
        if let Some(note) = note {
            diagnostic = diagnostic.note(note);
        }
        if what.starts_with('(') {
            diagnostic = diagnostic.help("take its parts with `let (a, b) = ..`");
        }
        self.diagnostics.push(diagnostic);
    }

    /// A name as a value.
    pub(super) fn name(&mut self, name: &ast::Ident) -> TypedExpr {
        let span = name.span;
        match self.resolve(name) {
            Some(Named::Local { id, ty, .. }) => {
                let Some(settled) = ty.settled() else { return TypedExpr::error(span) };
                return TypedExpr { ty, expr: Expr { kind: ExprKind::Local(id), ty: settled, span } };
            }
            Some(Named::Dim(dim)) => return TypedExpr::dim(dim, span),
            Some(Named::Layer(..)) => {
                return self.layer_is_no_value(&format!("the layer `{}`", name.name), span, false);
            }
            Some(Named::Error) => return TypedExpr::error(span),
            None => {}
        }
        if let Some(owner) = self.owner {
            let layer = self.items.layer(owner);
            if let Some(index) = layer.field(&name.name) {
                self.refer_field(name, owner, index);
                let Some(Some(field)) = layer.fields.get(index) else { return TypedExpr::error(span) };
                return match &field.ty {
                    FieldType::Param(tensor) | FieldType::State(tensor) => {
                        let kind = ExprKind::Param { path: LayerPath::default(), field: index };
                        let shape =
                            tensor.shape.substitute(&[Axis::Rest], &|name| self.scope.aliases.get(name).cloned());
                        TypedExpr::tensor(kind, tensor.elem, shape.unwrap_or_else(|| tensor.shape.clone()), span)
                    }
                    FieldType::Layer(_) => self.layer_is_no_value(&format!("the layer `{}`", name.name), span, false),
                    FieldType::Array(..) => {
                        self.layer_is_no_value(&format!("the array of layers `{}`", name.name), span, true)
                    }
                };
            }
            if self.items.method(owner, &name.name).is_some() {
                return self.function_is_no_value(name);
            }
        }
        self.scope.refer(name, self.diagnostics);
        if self.scope.names.contains_key(&name.name) {
            return TypedExpr::dim(self.scope.canonical(Dim::symbol(&name.name)), span);
        }
        if let Some(generic) = self.known_constants().into_iter().find(|generic| generic.name == name.name) {
            return constant(generic, span);
        }
        if self.items.free_function(self.module, &name.name).is_some() || builtins::find(&name.name).is_some() {
            return self.function_is_no_value(name);
        }
        if let Some(value) = self.capital_bool(name) {
            return value;
        }
        self.unknown_name(name);
        TypedExpr::error(span)
    }

    /// `True` and `False` of Python.
    fn capital_bool(&mut self, name: &ast::Ident) -> Option<TypedExpr> {
        let value = match name.name.as_str() {
            "True" => "true",
            "False" => "false",
            _ => return None,
        };
        let diagnostic = Diagnostic::error(names::UNKNOWN_NAME, format!("there is no `{}` here", name.name))
            .at(name.span, "not found");
        Some(self.instead(diagnostic, name.span, value))
    }

    /// The generic constants of the layer and the function.
    pub(super) fn known_constants(&self) -> Vec<&'a Generic> {
        let items = self.items;
        let layer = self.owner.map(|owner| items.layer(owner).generics.as_slice()).unwrap_or_default();
        let own = items.function(self.id).generics.as_slice();
        own.iter().chain(layer).filter(|generic| matches!(generic.kind, GenericKind::Const { .. })).collect()
    }

    fn function_is_no_value(&mut self, name: &ast::Ident) -> TypedExpr {
        self.diagnostics.push(
            Diagnostic::error(names::NOT_A_VALUE, format!("the function `{}` is not a tensor", name.name))
                .at(name.span, "expected a tensor")
                .help(format!("call it: `{}(..)`", name.name)),
        );
        TypedExpr::error(name.span)
    }

    /// The most similar known name. After many messages none is searched for: it would take long,
    /// and nobody reads on.
    pub(super) fn nearest<'n>(&self, name: &str, known: impl IntoIterator<Item = &'n str>) -> Option<&'n str> {
        if self.diagnostics.iter().nth(MAX_SUGGESTIONS).is_some() { None } else { did_you_mean(name, known) }
    }

    /// Reports an unknown name.
    pub(super) fn unknown_name(&mut self, name: &ast::Ident) {
        let layer = self.owner.map(|owner| self.items.layer(owner));
        // Lazy, because it is not needed after many messages.
        let known = self
            .frames
            .iter()
            .flat_map(|frame| frame.iter().filter(|(_, b)| !b.is_wrong()).map(|(name, _)| name.as_str()))
            .chain(layer.iter().flat_map(|layer| layer.ast.fields.iter().map(|field| field.name.name.as_str())))
            .chain(self.scope.known())
            .chain(self.scope.constants.iter().map(String::as_str));
        let mut diagnostic = Diagnostic::error(names::UNKNOWN_NAME, format!("there is no `{}` here", name.name))
            .at(name.span, "not found");
        if let Some(near) = self.nearest(&name.name, known) {
            diagnostic = diagnostic.near(name.span, near);
        } else if name.name == "self" {
            diagnostic = diagnostic.help("use fields without `self.`");
        } else if super::idioms::LIBRARIES.contains(&name.name.as_str()) {
            diagnostic = diagnostic.help("call operations by name alone: `softmax(x)`");
        } else if name.name == "None" {
            diagnostic =
                diagnostic.help("there is no `None`; add an axis of length 1 with `rearrange(x, \"s d -> s 1 d\")`");
        }
        if !self.is_lost(name) {
            self.diagnostics.push(diagnostic);
        }
        self.poison_name(name);
    }

    /// `base.name`
    pub(super) fn member(&mut self, base: &ast::Expr, name: &ast::Ident, span: Span) -> TypedExpr {
        match self.layer_ref(base) {
            Some(LayerRef::Layer(instance, path)) => {
                let layer = self.items.layer(instance.layer);
                if let Some(index) = layer.field(&name.name) {
                    self.refer_field(name, instance.layer, index);
                    let Some(Some(field)) = layer.fields.get(index) else { return TypedExpr::error(span) };
                    return match &field.ty {
                        FieldType::Param(tensor) | FieldType::State(tensor) => {
                            let axes = tensor.shape.axes.iter().filter_map(|axis| axis.dim());
                            let dims = axes.map(|dim| self.scope.canonical(within(&instance, dim)));
                            let shape = super::axes::Shape::from_dims(dims);
                            TypedExpr::tensor(ExprKind::Param { path, field: index }, tensor.elem, shape, span)
                        }
                        FieldType::Layer(_) => {
                            self.layer_is_no_value(&format!("the layer `{}`", name.name), span, false)
                        }
                        FieldType::Array(..) => {
                            self.layer_is_no_value(&format!("the array of layers `{}`", name.name), span, true)
                        }
                    };
                }
                if self.items.method(instance.layer, &name.name).is_some() {
                    return self.function_is_no_value(name);
                }
                let functions = layer.ast.functions.iter().map(|function| function.name.name.as_str());
                let known: Vec<&str> =
                    layer.ast.fields.iter().map(|field| field.name.name.as_str()).chain(functions).collect();
                let mut diagnostic = Diagnostic::error(
                    names::UNKNOWN_MEMBER,
                    format!("the layer `{}` has no field or function `{}`", layer.ast.name.name, name.name),
                )
                .at(name.span, "not found")
                .also(layer.ast.name.span, "declared here");
                if let Some(near) = did_you_mean(&name.name, known.iter().copied()) {
                    diagnostic = diagnostic.near(name.span, near);
                } else if !known.is_empty() {
                    let list: Vec<String> = known.iter().map(|known| format!("`{known}`")).collect();
                    diagnostic = diagnostic.note(format!("it has {}", list.join(", ")));
                }
                self.diagnostics.push(diagnostic);
                TypedExpr::error(span)
            }
            Some(LayerRef::Array { .. }) => {
                self.diagnostics.push(
                    Diagnostic::error(parameters::LAYER_ARRAY, "an array of layers has no fields")
                        .at(span, "several layers")
                        .help("iterate over it with `for`, or index it: `blocks[0]`"),
                );
                TypedExpr::error(span)
            }
            Some(LayerRef::Wrong) => TypedExpr::error(span),
            None => {
                if let ast::ExprKind::Name(module) = &base.kind
                    && module.name == "random"
                    && self.lookup("random").is_none()
                {
                    self.no_random(module, name);
                    return TypedExpr::error(span);
                }
                let value = self.expr(base);
                if value.as_tensor().is_some()
                    && let Some(value) = self.foreign_member(base, name, &value.ty, span)
                {
                    return value;
                }
                self.transpose(value, name, span)
            }
        }
    }

    fn transpose(&mut self, value: TypedExpr, name: &ast::Ident, span: Span) -> TypedExpr {
        if value.ty.is_error() {
            return TypedExpr::error(span);
        }
        if let Ty::Tuple(parts) = &value.ty {
            let list: Vec<String> = ('a'..='z').take(parts.len()).map(String::from).collect();
            let text = self.text(value.span()).unwrap_or("..").to_string();
            self.diagnostics.push(
                Diagnostic::error(names::UNKNOWN_MEMBER, format!("a tuple has no `{}`", name.name))
                    .at(name.span, "not found")
                    .also(value.span(), value.ty.to_string())
                    .help(format!("take it apart: `let ({}) = {text}`", list.join(", "))),
            );
            return TypedExpr::error(span);
        }
        if name.name != "T" {
            let mut diagnostic = Diagnostic::error(names::UNKNOWN_MEMBER, format!("a tensor has no `{}`", name.name))
                .at(name.span, "not found")
                .also(value.span(), value.ty.to_string());
            diagnostic = match name.name.as_str() {
                "t" | "transpose" | "mT" | "H" => diagnostic.help("`.T` swaps the last two axes").fix(name.span, "T"),
                "shape" | "size" => match value.as_tensor() {
                    Some(tensor) => {
                        diagnostic.help(format!("the shape is {}; use the names of the dimensions", tensor.shape))
                    }
                    None => diagnostic,
                },
                "dtype" => diagnostic.help("types are not values"),
                "device" | "is_cuda" => diagnostic.help("the command line chooses the device: `--target cuda`"),
                "requires_grad" | "grad" => {
                    diagnostic.help("`grad(loss, x)` is the gradient of a loss with respect to `x`")
                }
                "values" | "data" | "real" => {
                    let member = Span::new(span.file, value.span().end, span.end);
                    diagnostic.help("a tensor is its own values: leave it out").fix(member, "")
                }
                "indices" => diagnostic.help("`argmax(x, axis = -1)` and `argsort(x)` return indices"),
                other if builtins::find(other).is_some() => {
                    diagnostic.help(format!("call it as a function: `{other}(x)`"))
                }
                _ => diagnostic.note("the only member of a tensor is `.T`"),
            };
            self.diagnostics.push(diagnostic);
            return TypedExpr::error(span);
        }
        let Some(tensor) = value.as_tensor().cloned() else {
            let shown = value.ty.to_string();
            self.not_a_tensor(&shown, value.span());
            return TypedExpr::error(span);
        };
        let Some((front, back)) = tensor.shape.split_last(2) else {
            self.diagnostics.push(
                Diagnostic::error(shapes::RANK, format!("`.T` needs two axes, {tensor} has {}", axes_of(&tensor)))
                    .at(value.span(), tensor.to_string()),
            );
            return TypedExpr::error(span);
        };
        let shape = front.followed_by(back.into_iter().rev());
        TypedExpr::tensor(ExprKind::Transpose(Box::new(value.expr)), tensor.elem, shape, span)
    }

    fn if_(
        &mut self,
        condition: &ast::Expr,
        then: &ast::Block,
        otherwise: Option<&ast::Expr>,
        span: Span,
    ) -> TypedExpr {
        let condition = self.condition(condition, "`if`");
        let (((then, then_ty), (otherwise, otherwise_ty)), carried) = self.region(|this| {
            let then = this.block(then);
            let otherwise = match otherwise {
                None => (Block { statements: Vec::new(), value: None }, Ty::Tuple(Vec::new())),
                Some(ast::Expr { kind: ast::ExprKind::Block(block), .. }) => this.block(block),
                Some(expr) => this.alone(expr),
            };
            (then, otherwise)
        });
        let nothing = Ty::Tuple(Vec::new());
        if then_ty.is_error() || otherwise_ty.is_error() {
            return TypedExpr::error(span);
        }
        let Some(condition) = condition else { return TypedExpr::error(span) };
        let condition = Box::new(condition);
        if then_ty == nothing || otherwise_ty == nothing {
            if then_ty != otherwise_ty {
                let value = if then_ty == nothing { &otherwise } else { &then };
                let at = value.value.as_ref().map_or(span, |value| value.span);
                let shown = if then_ty == nothing { &otherwise_ty } else { &then_ty };
                self.diagnostics.push(
                    Diagnostic::error(shapes::BRANCHES, "one branch has a value, the other does not")
                        .at(at, format!("{shown}"))
                        .help("give both a value, or assign to a `var` in both"),
                );
                return TypedExpr::error(span);
            }
            let kind = ExprKind::If { condition, then, otherwise, carried };
            return TypedExpr { ty: nothing, expr: Expr { kind, ty: Type::Tuple(Vec::new()), span } };
        }
        let Some((then, otherwise, ty)) = self.same_type((then, then_ty), (otherwise, otherwise_ty), span) else {
            return TypedExpr::error(span);
        };
        let kind = ExprKind::If { condition, then, otherwise, carried };
        TypedExpr { ty: Ty::from_type(&ty), expr: Expr { kind, ty, span } }
    }

    /// Checks an expression as a block of its own: the `if` of an `else if`.
    fn alone(&mut self, expr: &ast::Expr) -> (Block, Ty) {
        let value = self.expr_or_statement(expr);
        if value.ty == Ty::Tuple(Vec::new()) {
            let stmt = Stmt { span: expr.span, kind: effect(value.expr) };
            (Block { statements: vec![stmt], value: None }, value.ty)
        } else {
            (Block { statements: Vec::new(), value: Some(Box::new(value.expr)) }, value.ty)
        }
    }

    /// Unifies two branches to values of one type.
    fn same_type(&mut self, a: (Block, Ty), b: (Block, Ty), span: Span) -> Option<(Block, Block, Type)> {
        let ((mut a, a_ty), (mut b, b_ty)) = (a, b);
        let elem = match (&a_ty, &b_ty) {
            (Ty::Tensor(tensor), Ty::Dim(_) | Ty::Float) | (Ty::Dim(_) | Ty::Float, Ty::Tensor(tensor)) => tensor.elem,
            (Ty::Float, _) | (_, Ty::Float) => Elem::F32,
            _ => Elem::I32,
        };
        let open = |ty: &Ty| matches!(ty, Ty::Dim(_) | Ty::Float);
        for (block, ty) in [(&mut a, &a_ty), (&mut b, &b_ty)] {
            if open(ty)
                && let Some(value) = block.value.take()
                && let Ok(expr) = coerce(TypedExpr { ty: ty.clone(), expr: *value }, elem)
            {
                block.value = Some(Box::new(expr));
            }
        }
        let (Some(x), Some(y)) = (&a.value, &b.value) else {
            self.branches(&a_ty, &b_ty, span, span, span);
            return None;
        };
        if x.ty != y.ty {
            let (x, y) = (x.span, y.span);
            self.branches(&a_ty, &b_ty, x, y, span);
            return None;
        }
        let ty = x.ty.clone();
        Some((a, b, ty))
    }

    fn branches(&mut self, a: &Ty, b: &Ty, x: Span, y: Span, _whole: Span) {
        let diagnostic = Diagnostic::error(shapes::BRANCHES, format!("the branches have the types {a} and {b}"))
            .at(y, b.to_string())
            .also(x, a.to_string());
        let diagnostic = type_misfit(diagnostic, b, a, &self.scope);
        self.diagnostics.push(diagnostic);
    }
}

/// Turns an expression without value into a statement.
pub(super) fn effect(expr: Expr) -> StmtKind {
    match expr.kind {
        ExprKind::If { condition, then, otherwise, carried } => {
            StmtKind::If { condition: *condition, then, otherwise, carried }
        }
        kind => StmtKind::Expr(Expr { kind, ..expr }),
    }
}

pub(super) fn boolean(value: bool, span: Span) -> TypedExpr {
    TypedExpr::tensor(ExprKind::Const(Scalar::Bool(value)), Elem::Bool, super::axes::Shape::scalar(), span)
}

/// The value of a generic constant: a float of open type if only a default determines its type.
fn constant(generic: &Generic, span: Span) -> TypedExpr {
    let kind = ExprKind::Generic(generic.name.clone());
    match generic.kind {
        GenericKind::Const { elem: Elem::F32, .. } => TypedExpr::float(kind, span),
        GenericKind::Const { elem, .. } => TypedExpr::tensor(kind, elem, super::axes::Shape::scalar(), span),
        GenericKind::Dim { .. } | GenericKind::Elem(_) => TypedExpr::error(span),
    }
}
