//! Statements: `let`, `var`, assignments and `tap`.
//!
//! In: statements of the AST. Out: typed statements; the names that they declare are in scope
//! afterwards. Loops are in `loops`.

use super::assigned;
use super::axes::Shape;
use super::body::{Binding, Body, Named};
use super::items::{duplicate, not_available};
use super::misfit::type_misfit;
use super::signatures::{Rest, value_type};
use super::typed::{Entry, Expr, ExprKind, Field, FieldType, LayerPath, Pattern, Stmt, StmtKind, Tensor, Type};
use super::values::{Ty, TypedExpr, is_large, scalar};
use crate::diagnostics::codes::{names, shapes};
use crate::diagnostics::{Diagnostic, did_you_mean};
use crate::scalar::Scalar;
use crate::source::Span;
use crate::syntax::ast;

impl Body<'_> {
    pub(super) fn statements(&mut self, statements: &[ast::Stmt]) -> Vec<Stmt> {
        let mut out: Vec<Stmt> = Vec::with_capacity(statements.len());
        let mut told = false;
        for stmt in statements {
            if let Some(last) = out.last().filter(|last| !told && last.kind.breaks()) {
                let last = last.span;
                told = self.unreached(stmt.span, last);
            }
            if let Some(kind) = self.statement(stmt) {
                out.push(Stmt { kind, span: stmt.span });
            }
        }
        out
    }

    pub(super) fn statement(&mut self, stmt: &ast::Stmt) -> Option<StmtKind> {
        match &stmt.kind {
            ast::StmtKind::Let { pattern, ty, value } => self.let_(pattern, ty.as_ref(), value, false),
            ast::StmtKind::Var { pattern, ty, value } => self.let_(pattern, ty.as_ref(), value, true),
            ast::StmtKind::Length { name, value, where_clauses } => self.length(name, value, where_clauses),
            ast::StmtKind::Assign { target, value } => self.assign(target, value),
            ast::StmtKind::Tap { name } => self.tap(name),
            ast::StmtKind::Reset { name } => {
                let Some((field, tensor)) = self.state(name) else {
                    self.diagnostics.push(
                        Diagnostic::error(
                            names::NOT_ASSIGNABLE,
                            format!("`{}` is not a state of the layer", name.name),
                        )
                        .at(name.span, "not a `state`"),
                    );
                    return None;
                };
                let zero = ExprKind::Const(Scalar::zero(tensor.elem));
                let scalar = Expr { kind: zero, ty: scalar(tensor.elem), span: name.span };
                let kind = ExprKind::Full(Box::new(scalar));
                let value = Expr { kind, ty: Type::Tensor(tensor), span: name.span };
                Some(StmtKind::SetState { field, value })
            }
            ast::StmtKind::For { pattern, iterable, body } => self.for_(pattern, iterable, body),
            ast::StmtKind::While { condition, body } => self.while_(condition, body),
            ast::StmtKind::Break => self.break_(stmt.span),
            ast::StmtKind::Expr(expr) => self.expression_statement(expr),
            ast::StmtKind::Error => {
                self.poison_words(stmt.span);
                None
            }
        }
    }

    pub(super) fn expression_statement(&mut self, expr: &ast::Expr) -> Option<StmtKind> {
        let value = self.expr_or_statement(expr);
        if value.ty.is_error() {
            return None;
        }
        if value.ty != Ty::Tuple(Vec::new()) {
            let told = |d: &Diagnostic| d.primary.as_ref().is_some_and(|label| label.span == expr.span);
            if self.diagnostics.iter().any(told) {
                return None;
            }
            let mut diagnostic =
                Diagnostic::error(shapes::LOST_VALUE, "this value is unused").at(expr.span, format!("{}", value.ty));
            if let ast::ExprKind::Unary { .. } = expr.kind {
                diagnostic =
                    diagnostic.help("if it belongs to the previous line, put the operator at the end of that line");
            } else {
                diagnostic = diagnostic.help("bind it with `let`, or remove it");
            }
            self.diagnostics.push(diagnostic);
            return None;
        }
        Some(match value.expr.kind {
            ExprKind::If { condition, then, otherwise, carried } => {
                StmtKind::If { condition: *condition, then, otherwise, carried }
            }
            kind => StmtKind::Expr(Expr { kind, ..value.expr }),
        })
    }

    pub(super) fn let_(
        &mut self,
        pattern: &ast::Pattern,
        ty: Option<&ast::Type>,
        value: &ast::Expr,
        is_var: bool,
    ) -> Option<StmtKind> {
        let value = self.expr(value);
        let declared = match ty {
            None => None,
            Some(ty) => {
                let rest = if self.has_rest() { Rest::Anywhere } else { Rest::Unknown };
                match value_type(ty, &self.scope, rest, self.diagnostics) {
                    Some(declared) => Some((declared, ty.span)),
                    None => {
                        self.poison(pattern);
                        return None;
                    }
                }
            }
        };
        if value.ty.is_error() {
            match declared {
                // The declared type is known even if the value is invalid.
                Some((declared, _)) => {
                    self.bind_pattern(pattern, &Ty::from_type(&declared), is_var, value.span());
                }
                None => self.poison(pattern),
            }
            return None;
        }
        let value = match &declared {
            None => value,
            Some((declared, span)) => {
                let name = match pattern {
                    ast::Pattern::Name(name) => format!("`{}`", name.name),
                    _ => "the variable".to_string(),
                };
                let fitted = self.fit(value, declared, &|ty, at, scope| {
                    type_misfit(
                        Diagnostic::error(shapes::VALUE_TYPE, format!("{name}: expected {declared}, found {ty}"))
                            .at(at, ty.to_string())
                            .also(*span, format!("declared as {declared} here")),
                        ty,
                        &Ty::from_type(declared),
                        scope,
                    )
                });
                match fitted {
                    Some(expr) => TypedExpr { ty: Ty::from_type(&expr.ty), expr },
                    None => {
                        self.bind_pattern(pattern, &Ty::from_type(declared), is_var, *span);
                        return None;
                    }
                }
            }
        };
        if let (ast::Pattern::Name(name), Ty::Dim(dim), false) = (pattern, &value.ty, is_var) {
            self.bind(&name.name, Named::Dim(dim.clone()), name.span, true);
            return None;
        }
        if value.ty == Ty::Tuple(Vec::new()) {
            self.diagnostics.push(
                Diagnostic::error(shapes::NO_VALUE, "there is no value to bind").at(value.span(), "this has no value"),
            );
            self.poison(pattern);
            return None;
        }
        if is_var && is_large(&value) {
            let help = "with another type, write `cast<i64>(..)`, or declare it: `var t: i64 = ..`";
            let message = format!("{} is out of the range of `i32`", self.text(value.span()).unwrap_or("the number"));
            let diagnostic =
                Diagnostic::error(shapes::LITERAL, message).at(value.span(), "`i32` by default").help(help);
            self.diagnostics.push(diagnostic);
            self.poison(pattern);
            return None;
        }
        // The type of a `var` never changes.
        let ty = if is_var { value.ty.settled().as_ref().map_or(Ty::Error, Ty::from_type) } else { value.ty.clone() };
        let pattern = self.bind_pattern(pattern, &ty, is_var, value.span())?;
        Some(StmtKind::Set { pattern, value: value.expr })
    }

    /// Does the function's signature have `..`?
    pub(super) fn has_rest(&self) -> bool {
        self.items.function(self.id).params.iter().flatten().any(|tensor| tensor.shape.rest().is_some())
    }

    /// Declares the names of a pattern for the parts of a type.
    pub(super) fn bind_pattern(
        &mut self,
        pattern: &ast::Pattern,
        ty: &Ty,
        is_var: bool,
        value: Span,
    ) -> Option<Pattern> {
        match pattern {
            ast::Pattern::Name(name) => Some(Pattern::Local(self.declare(name, ty.clone(), is_var, true))),
            ast::Pattern::Ignore(_) => Some(Pattern::Ignore),
            ast::Pattern::Tuple { parts, span } => {
                let Ty::Tuple(types) = ty else {
                    if !ty.is_error() {
                        self.diagnostics.push(
                            Diagnostic::error(shapes::PARTS, format!("{ty} is not a tuple"))
                                .at(*span, format!("{} names are bound", parts.len()))
                                .also(value, format!("{ty}"))
                                .help("`unbind` and `split` return the parts of a tensor"),
                        );
                    }
                    self.poison(pattern);
                    return None;
                };
                if types.len() != parts.len() {
                    self.diagnostics.push(
                        Diagnostic::error(
                            shapes::PARTS,
                            format!("{} names are bound, but the value has {} parts", parts.len(), types.len()),
                        )
                        .at(*span, format!("{} parts", parts.len()))
                        .also(value, format!("{ty}")),
                    );
                    self.poison(pattern);
                    return None;
                }
                let bound: Vec<Option<Pattern>> =
                    parts.iter().zip(types).map(|(part, ty)| self.bind_pattern(part, ty, is_var, value)).collect();
                bound.into_iter().collect::<Option<Vec<Pattern>>>().map(Pattern::Tuple)
            }
        }
    }

    /// Declares the names of a pattern as errors.
    pub(super) fn poison(&mut self, pattern: &ast::Pattern) {
        match pattern {
            ast::Pattern::Name(name) => self.bind(&name.name, Named::Error, name.span, false),
            ast::Pattern::Ignore(_) => {}
            ast::Pattern::Tuple { parts, .. } => parts.iter().for_each(|part| self.poison(part)),
        }
    }

    pub(super) fn assign(&mut self, target: &ast::Expr, value: &ast::Expr) -> Option<StmtKind> {
        if let ast::ExprKind::Index { base, indices } = &target.kind {
            return self.assign_part(base, indices, value, target.span);
        }
        if let ast::ExprKind::Name(name) = &target.kind
            && let Some((field, tensor)) = self.state(name)
        {
            let value = self.expr(value);
            let wanted = Type::Tensor(tensor);
            let value = self.fit(value, &wanted, &|ty, at, scope| {
                let message = format!("`{}`: expected {wanted}, found {ty}", name.name);
                type_misfit(
                    Diagnostic::error(shapes::VALUE_TYPE, message).at(at, ty.to_string()),
                    ty,
                    &Ty::from_type(&wanted),
                    scope,
                )
            })?;
            return Some(StmtKind::SetState { field, value });
        }
        let value = self.expr(value);
        if self.undeclared(target, &value) {
            return None;
        }
        if self.another(target, &value) {
            return None;
        }
        let (pattern, ty) = self.target(target)?;
        if value.ty.is_error() {
            return None;
        }
        let wanted = ty.settled()?;
        if let (Ty::Tuple(have), Ty::Tuple(want)) = (&value.ty, &ty)
            && have.len() != want.len()
        {
            self.diagnostics.push(
                Diagnostic::error(
                    shapes::PARTS,
                    format!("{} variables are assigned, but the value has {} parts", want.len(), have.len()),
                )
                .at(target.span, format!("{} parts", want.len()))
                .also(value.span(), format!("{}", value.ty)),
            );
            return None;
        }
        let declared = self.declaration_of(target);
        let expr = self.fit(value, &wanted, &|ty, at, scope| {
            let mut diagnostic =
                Diagnostic::error(shapes::VALUE_TYPE, format!("expected {wanted}, found {ty}")).at(at, ty.to_string());
            if let Some(span) = declared {
                diagnostic = diagnostic.also(span, format!("{wanted} because of this"));
            }
            type_misfit(diagnostic, ty, &Ty::from_type(&wanted), scope)
        })?;
        Some(StmtKind::Set { pattern, value: expr })
    }

    /// `name[..] = value`: the variable is set to itself with a part replaced.
    fn assign_part(
        &mut self,
        base: &ast::Expr,
        indices: &[ast::Index],
        value: &ast::Expr,
        span: Span,
    ) -> Option<StmtKind> {
        let value = self.expr(value);
        let ast::ExprKind::Name(name) = &base.kind else {
            self.diagnostics.push(
                Diagnostic::error(names::NOT_ASSIGNABLE, "this cannot be assigned to")
                    .at(span, "not a part of a variable")
                    .help("all indices go into one pair of brackets: `x[i, j] = ..`"),
            );
            return None;
        };
        let state = self.state(name);
        let (target, tensor) = match &state {
            Some((_, tensor)) => (None, tensor.clone()),
            None => match self.target_name(name)? {
                (Pattern::Local(id), Ty::Tensor(tensor)) => (Some(id), tensor),
                (_, ty) => {
                    if !ty.is_error() {
                        self.not_a_tensor(&ty.to_string(), base.span);
                    }
                    return None;
                }
            },
        };
        let tensor = &tensor;
        if let Some(step) = indices.iter().find_map(ast::Index::step) {
            self.diagnostics.push(
                not_available("an assignment with a step", step.span)
                    .help("assign in a loop over the elements, or use `scatter`"),
            );
            return None;
        }
        let (entries, shape) = self.entries(tensor, base.span, indices, span)?;
        if let Some((_, index)) = entries.iter().zip(indices).find(|(entry, _)| matches!(entry, Entry::Gather(_))) {
            self.diagnostics.push(not_available("an assignment at a tensor of indices", index.span()));
            return None;
        }
        if value.ty.is_error() {
            return None;
        }
        let wanted = Tensor { elem: tensor.elem, shape };
        let value = match &value.ty {
            Ty::Tensor(have)
                if have.elem == wanted.elem && have.shape.broadcast(&wanted.shape).as_ref() == Ok(&wanted.shape) =>
            {
                value.expr
            }
            _ => {
                // A literal takes the element type.
                let scalar = matches!(value.ty, Ty::Dim(_) | Ty::Float);
                let fitted = Type::Tensor(if scalar {
                    Tensor { shape: Shape::scalar(), ..wanted.clone() }
                } else {
                    wanted.clone()
                });
                let declared = self.declaration_of(base);
                self.fit(value, &fitted, &|ty, at, scope| {
                    let mut diagnostic =
                        Diagnostic::error(shapes::VALUE_TYPE, format!("expected {wanted}, found {ty}"))
                            .at(at, ty.to_string())
                            .also(span, wanted.to_string());
                    if let Some(declared) = declared {
                        diagnostic = diagnostic.also(declared, format!("`{}` is {tensor}", name.name));
                    }
                    type_misfit(diagnostic, ty, &Ty::Tensor(wanted.clone()), scope)
                })?
            }
        };
        let whole = Type::Tensor(tensor.clone());
        let base = match (target, &state) {
            (None, Some((field, _))) => ExprKind::Param { path: LayerPath::default(), field: *field },
            (None, None) => return None,
            (Some(id), _) => ExprKind::Local(id),
        };
        let base = Box::new(Expr { kind: base, ty: whole.clone(), span: name.span });
        let value = Expr { kind: ExprKind::Update { base, entries, value: Box::new(value) }, ty: whole, span };
        Some(match (target, state) {
            (Some(id), _) => StmtKind::Set { pattern: Pattern::Local(id), value },
            (None, state) => StmtKind::SetState { field: state?.0, value },
        })
    }

    /// The state of the function's own layer with this name, unless a variable shadows it: its
    /// field and its type here.
    fn state(&mut self, name: &ast::Ident) -> Option<(usize, Tensor)> {
        if self.frames.iter().any(|frame| frame.contains_key(&name.name)) {
            return None;
        }
        let owner = self.owner?;
        let layer = self.items.layer(owner);
        let index = layer.field(&name.name)?;
        self.refer_field(name, owner, index);
        let Some(Some(Field { ty: FieldType::State(tensor), .. })) = layer.fields.get(index) else { return None };
        let shape = tensor.shape.substitute(&[], &|name| self.scope.aliases.get(name).cloned());
        Some((index, Tensor { elem: tensor.elem, shape: shape.unwrap_or_else(|| tensor.shape.clone()) }))
    }

    /// Reports `q = ..` for an undeclared variable, and declares it.
    fn undeclared(&mut self, target: &ast::Expr, value: &TypedExpr) -> bool {
        let mut names = Vec::new();
        if !plain_names(target, &mut names) {
            return false;
        }
        let known = |this: &Self, name: &ast::Ident| {
            this.frames.iter().any(|frame| frame.contains_key(&name.name))
                || this.owner.is_some_and(|owner| this.items.layer(owner).field(&name.name).is_some())
        };
        let Some(first) = names.first().copied() else { return false };
        if names.iter().any(|name| known(self, name)) {
            return false;
        }
        let near = self.frames.iter().flatten().filter(|(_, b)| !b.is_wrong()).map(|(name, _)| name.as_str());
        let near = did_you_mean(&first.name, near).filter(|near| near.len() > 2).map(str::to_string);
        let body = &self.items.function(self.id).ast.body;
        let again = names.iter().any(|name| assigned::times(body, &name.name) > 1);
        let word = if again { "var" } else { "let" };
        let list: Vec<String> = names.iter().map(|name| format!("`{}`", name.name)).collect();
        let shown = self.text(target.span).unwrap_or(&first.name).to_string();
        let mut diagnostic =
            Diagnostic::error(names::UNKNOWN_NAME, format!("there is no variable {}", list.join(" and ")))
                .at(target.span, "not found");
        let in_function_block = self.frames.len() == 2;
        if let Some(near) = near {
            diagnostic = diagnostic.near(first.span, &near);
        } else if again && !in_function_block {
            diagnostic = diagnostic.help(format!(
                "declare it before this block: `var {shown} = ..`, or use the value of the block: `let {shown} = if ..`"
            ));
        } else {
            let at = Span::new(target.span.file, target.span.start, target.span.start);
            diagnostic = diagnostic.help(format!("declare it: `{word} {shown} = ..`")).fix(at, format!("{word} "));
        }
        self.diagnostics.push(diagnostic);
        // With `let`, a dimension stays a dimension.
        let ty = match &value.ty {
            Ty::Dim(dim) if !again => Ty::Dim(dim.clone()),
            ty => ty.settled().as_ref().map_or(Ty::Error, Ty::from_type),
        };
        let types = match (&ty, &target.kind) {
            (Ty::Tuple(types), ast::ExprKind::Tuple(_)) if types.len() == names.len() => types.clone(),
            (_, ast::ExprKind::Name(_)) if ty != Ty::Tuple(Vec::new()) => vec![ty],
            _ => vec![Ty::Error; names.len()],
        };
        for (name, ty) in names.into_iter().zip(types) {
            if !in_function_block {
                self.poison_name(name);
            }
            self.declare(name, ty, true, false);
        }
        true
    }

    /// Reports `q = ..` with another type than that of `q`, which was declared by `let` or is an
    /// argument, and declares a new variable.
    fn another(&mut self, target: &ast::Expr, value: &TypedExpr) -> bool {
        let ast::ExprKind::Name(name) = &target.kind else { return false };
        let found = self.frames.iter().rev().find_map(|frame| frame.get(&name.name)).cloned();
        let Some(Binding { what: Named::Local { ty, is_var: false, .. }, span, .. }) = found else { return false };
        let (Some(new), Some(old)) = (value.ty.settled(), ty.settled()) else { return false };
        if new == old || new == Type::Tuple(Vec::new()) {
            return false;
        }
        let message = format!("`{}` cannot be assigned to", name.name);
        let diagnostic = Diagnostic::error(names::NOT_ASSIGNABLE, message)
            .at(name.span, new.to_string())
            .also(span, format!("{old} because of this"));
        // A new variable in an inner block would not be visible after it.
        if self.frames.len() > 2 {
            self.diagnostics.push(diagnostic.help("a variable keeps its type; give this value another name"));
            return true;
        }
        let start = Span::new(name.span.file, name.span.start, name.span.start);
        let help = format!("a variable keeps its type; declare another one with its name: `let {} = ..`", name.name);
        self.diagnostics.push(diagnostic.help(help).fix(start, "let "));
        self.declare(name, Ty::from_type(&new), false, false);
        true
    }

    pub(super) fn declaration_of(&self, target: &ast::Expr) -> Option<Span> {
        let ast::ExprKind::Name(name) = &target.kind else { return None };
        self.frames.iter().rev().find_map(|frame| frame.get(&name.name)).map(|binding| binding.span)
    }

    /// Checks the left side of an assignment.
    pub(super) fn target(&mut self, target: &ast::Expr) -> Option<(Pattern, Ty)> {
        match &target.kind {
            ast::ExprKind::Name(name) => self.target_name(name),
            ast::ExprKind::Tuple(parts) => {
                let parts: Vec<Option<(Pattern, Ty)>> = parts.iter().map(|part| self.target(part)).collect();
                let (patterns, types) = parts.into_iter().collect::<Option<Vec<(Pattern, Ty)>>>()?.into_iter().unzip();
                Some((Pattern::Tuple(patterns), Ty::Tuple(types)))
            }
            ast::ExprKind::Index { .. } => {
                self.diagnostics.push(
                    not_available("an assignment to parts of several tensors at once", target.span)
                        .help("assign each in a separate statement"),
                );
                None
            }
            ast::ExprKind::Error => None,
            _ => {
                self.diagnostics.push(
                    Diagnostic::error(names::NOT_ASSIGNABLE, "this cannot be assigned to")
                        .at(target.span, "not a variable"),
                );
                None
            }
        }
    }

    pub(super) fn target_name(&mut self, name: &ast::Ident) -> Option<(Pattern, Ty)> {
        self.refer_binding(name);
        let found = self.frames.iter().rev().find_map(|frame| frame.get(&name.name)).cloned();
        match found {
            Some(Binding { what: Named::Local { id, ty, is_var: true }, .. }) => {
                if let Some(local) = self.locals.get_mut(id.0 as usize) {
                    local.is_assigned = true;
                }
                for (before, assigned) in &mut self.regions {
                    if (id.0 as usize) < *before {
                        assigned.insert(id);
                    }
                }
                Some((Pattern::Local(id), ty))
            }
            Some(Binding { what: Named::Error, .. }) => None,
            Some(Binding { span, .. }) => {
                let is_param = self.items.function(self.id).ast.params.iter().any(|param| param.name.span == span);
                let mut diagnostic =
                    Diagnostic::error(names::NOT_ASSIGNABLE, format!("`{}` cannot be assigned to", name.name))
                        .at(name.span, "assigned here");
                if is_param {
                    diagnostic = diagnostic
                        .also(span, "it is an argument")
                        .help(format!("copy it to a variable first: `var {0} = {0}`", name.name));
                } else {
                    diagnostic = diagnostic.also(span, "declared here").help("declare it with `var`, not with `let`");
                    let text = self.sources.get(span.file).map_or("", |file| file.text());
                    let before = text.get(..span.start as usize).unwrap_or_default();
                    if let Some(word) = before.strip_suffix("let ") {
                        let start = word.len() as u32;
                        diagnostic = diagnostic.fix(Span::new(span.file, start, start + 3), "var");
                    }
                }
                self.diagnostics.push(diagnostic);
                None
            }
            None => {
                let is_field = self.owner.is_some_and(|owner| self.items.layer(owner).field(&name.name).is_some());
                if is_field {
                    self.diagnostics.push(
                        Diagnostic::error(
                            names::NOT_ASSIGNABLE,
                            format!("the parameter `{}` cannot be assigned to", name.name),
                        )
                        .at(name.span, "parameters are constant"),
                    );
                } else {
                    let known =
                        self.frames.iter().flatten().filter(|(_, b)| !b.is_wrong()).map(|(name, _)| name.as_str());
                    let mut diagnostic =
                        Diagnostic::error(names::UNKNOWN_NAME, format!("there is no variable `{}`", name.name))
                            .at(name.span, "not found");
                    diagnostic = match did_you_mean(&name.name, known) {
                        Some(near) => diagnostic.near(name.span, near),
                        None => diagnostic.help(format!("declare it: `var {} = ..`", name.name)),
                    };
                    self.diagnostics.push(diagnostic);
                }
                None
            }
        }
    }

    pub(super) fn tap(&mut self, name: &ast::Ident) -> Option<StmtKind> {
        let found = self.resolve(name);
        if let Some(first) = self.taps.insert(name.name.clone(), name.span) {
            self.diagnostics.push(duplicate("the tap", name, first));
            return None;
        }
        if let Some(Named::Local { ty: Ty::Tensor(tensor), .. }) = &found
            && self.names_a_length(tensor, name.span)
        {
            return None;
        }
        let what = match found {
            Some(Named::Local { id, ty: Ty::Tensor(_) | Ty::Float, .. }) => return Some(StmtKind::Tap { local: id }),
            Some(Named::Error) => return None,
            Some(Named::Local { ty, .. }) => ty.to_string(),
            Some(Named::Dim(_)) => "a dimension".to_string(),
            Some(Named::Layer(..)) => "a layer".to_string(),
            None => {
                let is_field = self.owner.is_some_and(|owner| self.items.layer(owner).field(&name.name).is_some());
                if !is_field {
                    self.unknown_name(name);
                    return None;
                }
                "a field of the layer".to_string()
            }
        };
        self.diagnostics.push(
            Diagnostic::error(names::TAP, format!("`{}` is {what} and cannot be tapped", name.name))
                .at(name.span, "not a variable with a tensor"),
        );
        None
    }
}

/// Collects the names in the target of an assignment; `false` if it contains anything else.
fn plain_names<'e>(target: &'e ast::Expr, names: &mut Vec<&'e ast::Ident>) -> bool {
    match &target.kind {
        ast::ExprKind::Name(name) => {
            names.push(name);
            true
        }
        ast::ExprKind::Tuple(parts) => parts.iter().all(|part| plain_names(part, names)),
        _ => false,
    }
}
