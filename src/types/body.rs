//! Bodies of functions: blocks, statements, variables and their scopes.
//!
//! In: a function whose signature is known. Out: its typed body, the calls it makes and what must hold for it. Each
//! function is checked once, for all values of its dimensions. What is wrong is reported once; what follows from it
//! is not.

use std::collections::{BTreeMap, BTreeSet};

use super::axes::Shape;
use super::dims::DimScope;
use super::items::{self, Items, Rest, not_available};
use super::typed::{
    Block, Bound, Condition, Element, Expr, ExprKind, FunctionId, Instance, LayerId, LayerPath, Local, LocalId, Param,
    Pattern, Stmt, StmtKind, Tensor, Type,
};
use super::values::{Ty, Val, coerce, scalar};
use crate::diagnostics::codes::{dimensions, names, parameters, shapes};
use crate::diagnostics::{Diagnostic, Diagnostics, did_you_mean};
use crate::shape::{Dim, Elem, Fact};
use crate::syntax::ast;
use crate::syntax::span::{SourceMap, Span};

/// A name in a block.
#[derive(Clone, Debug)]
pub(super) struct Binding {
    pub(super) what: Named,
    pub(super) span: Span,
    /// Is it worth a warning if nothing uses it?
    pub(super) warn: bool,
    pub(super) used: bool,
}

/// What a name in a block stands for.
#[derive(Clone, Debug)]
pub(super) enum Named {
    /// A variable.
    Local {
        /// The variable.
        id: LocalId,
        /// Its type; open for a literal bound by `let`.
        ty: Ty,
        /// May it be assigned?
        is_var: bool,
    },
    /// A dimension bound by `let`.
    Dim(Dim),
    /// The variable of a loop over layers.
    Layer(Instance, LayerPath),
    /// Something wrong.
    Error,
}

/// A call that was made, for what follows from it once all functions are checked.
#[derive(Clone, Debug)]
pub(super) struct MadeCall {
    pub(super) function: FunctionId,
    /// What the callee's names are, those of its layer included.
    pub(super) dims: BTreeMap<String, Dim>,
    pub(super) span: Span,
}

/// What checking a body gives.
pub(super) struct Checked {
    pub(super) params: Vec<Param>,
    pub(super) locals: Vec<Local>,
    pub(super) body: Block,
    pub(super) conditions: Vec<Condition>,
    pub(super) calls: Vec<MadeCall>,
}

/// The state while a body is checked.
pub(super) struct Body<'a> {
    pub(super) items: &'a Items<'a>,
    pub(super) sources: &'a SourceMap,
    pub(super) diagnostics: &'a mut Diagnostics,
    pub(super) scope: &'a DimScope,
    pub(super) owner: Option<LayerId>,
    pub(super) module: usize,
    pub(super) id: FunctionId,
    pub(super) frames: Vec<BTreeMap<String, Binding>>,
    pub(super) locals: Vec<Local>,
    pub(super) conditions: Vec<Condition>,
    pub(super) calls: Vec<MadeCall>,
    /// For each loop and branch that is open: the number of variables before it, and those of them it assigns.
    regions: Vec<(usize, BTreeSet<LocalId>)>,
    taps: BTreeMap<String, Span>,
}

/// Checks the body of a function.
pub(super) fn check(items: &Items<'_>, id: FunctionId, sources: &SourceMap, diagnostics: &mut Diagnostics) -> Checked {
    let item = items.function(id);
    let mut body = Body {
        items,
        sources,
        diagnostics,
        scope: &item.scope,
        owner: item.owner,
        module: item.module,
        id,
        frames: vec![BTreeMap::new()],
        locals: Vec::new(),
        conditions: Vec::new(),
        calls: Vec::new(),
        regions: Vec::new(),
        taps: BTreeMap::new(),
    };
    let mut params = Vec::new();
    for (param, tensor) in item.ast.params.iter().zip(&item.params) {
        let ty = tensor.clone().map_or(Ty::Error, Ty::Tensor);
        let local = body.declare(&param.name, ty, false, false);
        params.push(Param { local, docs: param.docs.clone() });
    }
    let block = body.function_block(item);
    let Body { locals, conditions, calls, .. } = body;
    Checked { params, locals, body: block, conditions, calls }
}

impl<'a> Body<'a> {
    fn function_block(&mut self, item: &items::FunctionItem<'_>) -> Block {
        let ast = &item.ast.body;
        self.frames.push(BTreeMap::new());
        let statements = self.statements(&ast.statements);
        let value = ast.value.as_deref().map(|value| self.tail(value));
        self.pop_frame();
        let Some(wanted) = &item.result else { return Block { statements, value: None } };
        let nothing = *wanted == Type::Tuple(Vec::new());
        let declared = item.ast.result.as_ref().map_or(item.ast.name.span, |ty| ty.span);
        match value {
            Some(value) if value.ty == Ty::Tuple(Vec::new()) || value.ty.is_error() => {
                if !value.ty.is_error() && !nothing {
                    self.diagnostics.push(
                        Diagnostic::error(shapes::NO_VALUE, "the function gives no value")
                            .at(value.span(), "this has no value")
                            .also(declared, format!("{} is declared here", Ty::of(wanted))),
                    );
                }
                let mut statements = statements;
                if nothing && !value.ty.is_error() {
                    statements.push(Stmt { span: value.span(), kind: StmtKind::Expr(value.expr) });
                }
                Block { statements, value: None }
            }
            Some(value) if nothing => {
                self.diagnostics.push(
                    Diagnostic::error(shapes::RESULT, "the function gives a value and declares none")
                        .at(value.span(), format!("{}", value.ty))
                        .also(item.ast.name.span, "no `->` and type behind its arguments")
                        .help(format!("declare it: `-> {}`", value.ty.settled().as_ref().map_or(Ty::Error, Ty::of))),
                );
                Block { statements, value: None }
            }
            Some(value) => {
                let expr = self.fit(value, wanted, &|ty, span, scope| {
                    result_misfit(ty, wanted, span, declared, &item.ast.name.name, scope)
                });
                Block { statements, value: expr.map(Box::new) }
            }
            None if nothing => Block { statements, value: None },
            None => {
                // A statement that could not be read may have been the value.
                let unread = ast.statements.last().is_some_and(|stmt| stmt.kind == ast::StmtKind::Error);
                if !unread {
                    let end = Span::new(ast.span.file, ast.span.end.saturating_sub(1), ast.span.end);
                    self.diagnostics.push(
                        Diagnostic::error(shapes::NO_VALUE, format!("`{}` gives no value", item.ast.name.name))
                            .at(end, "the last expression before this would be the value")
                            .also(declared, format!("{} is declared here", Ty::of(wanted))),
                    );
                }
                Block { statements, value: None }
            }
        }
    }

    /// The last expression of a block: an `if` without `else` may stand there as a statement.
    fn tail(&mut self, value: &ast::Expr) -> Val {
        self.expr_or_statement(value)
    }

    /// A block with its own names.
    pub(super) fn block(&mut self, block: &ast::Block) -> (Block, Ty) {
        self.frames.push(BTreeMap::new());
        let mut statements = self.statements(&block.statements);
        let value = block.value.as_deref().map(|value| self.tail(value));
        self.pop_frame();
        match value {
            None => (Block { statements, value: None }, Ty::Tuple(Vec::new())),
            Some(value) if value.ty == Ty::Tuple(Vec::new()) => {
                statements.push(Stmt { span: value.span(), kind: StmtKind::Expr(value.expr) });
                (Block { statements, value: None }, Ty::Tuple(Vec::new()))
            }
            Some(value) => (Block { statements, value: Some(Box::new(value.expr)) }, value.ty),
        }
    }

    fn pop_frame(&mut self) {
        for (name, binding) in self.frames.pop().unwrap_or_default() {
            self.warn_unused(&name, &binding);
        }
    }

    fn warn_unused(&mut self, name: &str, binding: &Binding) {
        if !binding.used && binding.warn && !name.starts_with('_') {
            self.diagnostics.push(
                Diagnostic::warning(names::UNUSED, format!("`{name}` is never used"))
                    .at(binding.span, "not used after this")
                    .help(format!("if it is meant, call it `_{name}`")),
            );
        }
    }

    /// Makes a new variable known in the innermost block.
    pub(super) fn declare(&mut self, name: &ast::Ident, ty: Ty, is_var: bool, warn: bool) -> LocalId {
        let id = LocalId(self.locals.len() as u32);
        let settled = ty.settled().unwrap_or(Type::Tuple(Vec::new()));
        self.locals.push(Local { name: name.name.clone(), ty: settled, is_assigned: false, span: name.span });
        let what = if ty.is_error() { Named::Error } else { Named::Local { id, ty, is_var } };
        self.bind(&name.name, what, name.span, warn);
        id
    }

    fn bind(&mut self, name: &str, what: Named, span: Span, warn: bool) {
        let warn = warn && !matches!(what, Named::Error);
        let binding = Binding { what, span, warn, used: false };
        if let Some(frame) = self.frames.last_mut()
            && let Some(old) = frame.insert(name.to_string(), binding)
        {
            self.warn_unused(name, &old);
        }
    }

    /// What a name of a block stands for; it counts as used.
    pub(super) fn lookup(&mut self, name: &str) -> Option<Named> {
        let binding = self.frames.iter_mut().rev().find_map(|frame| frame.get_mut(name))?;
        binding.used = true;
        Some(binding.what.clone())
    }

    fn statements(&mut self, statements: &[ast::Stmt]) -> Vec<Stmt> {
        let mut out = Vec::with_capacity(statements.len());
        for stmt in statements {
            if let Some(kind) = self.statement(stmt) {
                out.push(Stmt { kind, span: stmt.span });
            }
        }
        out
    }

    fn statement(&mut self, stmt: &ast::Stmt) -> Option<StmtKind> {
        match &stmt.kind {
            ast::StmtKind::Let { pattern, ty, value } => self.let_(pattern, ty.as_ref(), value, false),
            ast::StmtKind::Var { pattern, ty, value } => self.let_(pattern, ty.as_ref(), value, true),
            ast::StmtKind::Assign { target, value } => self.assign(target, value),
            ast::StmtKind::Tap { name } => self.tap(name),
            ast::StmtKind::Reset { name } => {
                self.diagnostics.push(not_available("`reset`", name.span));
                None
            }
            ast::StmtKind::For { pattern, iterable, body } => self.for_(pattern, iterable, body),
            ast::StmtKind::While { condition, body } => {
                let span = Span::new(stmt.span.file, stmt.span.start, stmt.span.start + 5);
                self.diagnostics.push(not_available("`while`", span));
                self.condition(condition, "`while`");
                self.region(|this| this.block(body));
                None
            }
            ast::StmtKind::Break => {
                self.diagnostics.push(not_available("`break`", stmt.span));
                None
            }
            ast::StmtKind::Expr(expr) => self.expression_statement(expr),
            ast::StmtKind::Error => None,
        }
    }

    fn expression_statement(&mut self, expr: &ast::Expr) -> Option<StmtKind> {
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
                Diagnostic::error(shapes::LOST_VALUE, "this value is not used").at(expr.span, format!("{}", value.ty));
            if let ast::ExprKind::Unary { .. } = expr.kind {
                diagnostic = diagnostic.help("if it belongs to the line before, put the operator at that line's end");
            } else {
                diagnostic = diagnostic.help("keep it with `let`, or remove it");
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

    /// Runs a part whose assignments to variables from outside matter, and returns these variables.
    pub(super) fn region<T>(&mut self, run: impl FnOnce(&mut Body<'a>) -> T) -> (T, Vec<LocalId>) {
        self.regions.push((self.locals.len(), BTreeSet::new()));
        let result = run(self);
        let (_, assigned) = self.regions.pop().unwrap_or_default();
        (result, assigned.into_iter().collect())
    }

    fn let_(
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
                let rest = if self.has_rest() { Rest::Known } else { Rest::Unknown };
                match items::value_type(ty, self.scope, rest, self.diagnostics) {
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
                // The type is known even where the value is wrong.
                Some((declared, _)) => {
                    self.bind_pattern(pattern, &Ty::of(&declared), is_var, value.span());
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
                        Diagnostic::error(
                            shapes::VALUE_TYPE,
                            format!("{name} is declared as {declared}, the value is {ty}"),
                        )
                        .at(at, ty.to_string())
                        .also(*span, format!("{declared} is declared here")),
                        ty,
                        &Ty::of(declared),
                        scope,
                    )
                });
                match fitted {
                    Some(expr) => Val { ty: Ty::of(&expr.ty), expr },
                    None => {
                        self.bind_pattern(pattern, &Ty::of(declared), is_var, *span);
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
        // A `var` has one type for good.
        let ty = if is_var { value.ty.settled().as_ref().map_or(Ty::Error, Ty::of) } else { value.ty.clone() };
        let pattern = self.bind_pattern(pattern, &ty, is_var, value.span())?;
        Some(StmtKind::Set { pattern, value: value.expr })
    }

    /// Does the function have `..`?
    fn has_rest(&self) -> bool {
        self.items.function(self.id).params.iter().flatten().any(|tensor| tensor.shape.rest().is_some())
    }

    /// Binds the names of a pattern to the parts of a type.
    fn bind_pattern(&mut self, pattern: &ast::Pattern, ty: &Ty, is_var: bool, value: Span) -> Option<Pattern> {
        match pattern {
            ast::Pattern::Name(name) => Some(Pattern::Local(self.declare(name, ty.clone(), is_var, true))),
            ast::Pattern::Ignore(_) => Some(Pattern::Ignore),
            ast::Pattern::Tuple { parts, span } => {
                let Ty::Tuple(types) = ty else {
                    if !ty.is_error() {
                        self.diagnostics.push(
                            Diagnostic::error(shapes::PARTS, format!("{ty} is no tuple and has no parts"))
                                .at(*span, format!("{} parts are bound", parts.len()))
                                .also(value, format!("{ty}"))
                                .help("`unbind` and `split` give the parts of a tensor"),
                        );
                    }
                    self.poison(pattern);
                    return None;
                };
                if types.len() != parts.len() {
                    self.diagnostics.push(
                        Diagnostic::error(
                            shapes::PARTS,
                            format!("{} parts are bound, the value has {}", parts.len(), types.len()),
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

    /// Makes the names of a pattern known as wrong.
    fn poison(&mut self, pattern: &ast::Pattern) {
        match pattern {
            ast::Pattern::Name(name) => self.bind(&name.name, Named::Error, name.span, false),
            ast::Pattern::Ignore(_) => {}
            ast::Pattern::Tuple { parts, .. } => parts.iter().for_each(|part| self.poison(part)),
        }
    }

    fn assign(&mut self, target: &ast::Expr, value: &ast::Expr) -> Option<StmtKind> {
        let value = self.expr(value);
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
                    format!("{} parts are assigned, the value has {}", want.len(), have.len()),
                )
                .at(target.span, format!("{} parts", want.len()))
                .also(value.span(), format!("{}", value.ty)),
            );
            return None;
        }
        let declared = self.declaration_of(target);
        let expr = self.fit(value, &wanted, &|ty, at, scope| {
            let mut diagnostic =
                Diagnostic::error(shapes::VALUE_TYPE, format!("the variable is {wanted}, the value is {ty}"))
                    .at(at, ty.to_string());
            if let Some(span) = declared {
                diagnostic = diagnostic.also(span, format!("it is {wanted} since here"));
            }
            type_misfit(diagnostic, ty, &Ty::of(&wanted), scope)
        })?;
        Some(StmtKind::Set { pattern, value: expr })
    }

    fn declaration_of(&self, target: &ast::Expr) -> Option<Span> {
        let ast::ExprKind::Name(name) = &target.kind else { return None };
        self.frames.iter().rev().find_map(|frame| frame.get(&name.name)).map(|binding| binding.span)
    }

    /// The left side of an assignment.
    fn target(&mut self, target: &ast::Expr) -> Option<(Pattern, Ty)> {
        match &target.kind {
            ast::ExprKind::Name(name) => self.target_name(name),
            ast::ExprKind::Tuple(parts) => {
                let parts: Vec<Option<(Pattern, Ty)>> = parts.iter().map(|part| self.target(part)).collect();
                let (patterns, types) = parts.into_iter().collect::<Option<Vec<(Pattern, Ty)>>>()?.into_iter().unzip();
                Some((Pattern::Tuple(patterns), Ty::Tuple(types)))
            }
            ast::ExprKind::Index { .. } => {
                self.diagnostics.push(not_available("an assignment to a part of a tensor", target.span));
                None
            }
            ast::ExprKind::Error => None,
            _ => {
                self.diagnostics.push(
                    Diagnostic::error(names::NOT_ASSIGNABLE, "this cannot be assigned")
                        .at(target.span, "not a variable"),
                );
                None
            }
        }
    }

    fn target_name(&mut self, name: &ast::Ident) -> Option<(Pattern, Ty)> {
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
                    Diagnostic::error(names::NOT_ASSIGNABLE, format!("`{}` cannot be assigned again", name.name))
                        .at(name.span, "assigned here");
                if is_param {
                    diagnostic = diagnostic
                        .also(span, "it is an argument")
                        .help(format!("make a variable of it first: `var {0} = {0}`", name.name));
                } else {
                    diagnostic = diagnostic.also(span, "declared here").help("declare it with `var`, not with `let`");
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
                            format!("the parameter `{}` cannot be assigned", name.name),
                        )
                        .at(name.span, "parameters stay as they are"),
                    );
                } else {
                    let known = self.frames.iter().flat_map(|frame| frame.keys().map(String::as_str));
                    let mut diagnostic =
                        Diagnostic::error(names::UNKNOWN_NAME, format!("there is no variable `{}`", name.name))
                            .at(name.span, "not known");
                    diagnostic = match did_you_mean(&name.name, known) {
                        Some(near) => diagnostic.help(format!("did you mean `{near}`?")),
                        None => diagnostic.help(format!("declare it: `var {} = ..`", name.name)),
                    };
                    self.diagnostics.push(diagnostic);
                }
                None
            }
        }
    }

    fn tap(&mut self, name: &ast::Ident) -> Option<StmtKind> {
        let found = self.lookup(&name.name);
        if let Some(first) = self.taps.insert(name.name.clone(), name.span) {
            self.diagnostics.push(items::duplicate("the tap", name, first));
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

    fn for_(&mut self, pattern: &ast::Pattern, iterable: &ast::Iterable, body: &ast::Block) -> Option<StmtKind> {
        match iterable {
            ast::Iterable::Range { start, end } => {
                let (start, end) = (self.bound(start), self.bound(end));
                let ((counter, block), carried) = self.region(|this| {
                    this.frames.push(BTreeMap::new());
                    let counter = this.counter(pattern);
                    let block = this.loop_block(body);
                    this.frames.pop();
                    (counter, block)
                });
                Some(StmtKind::For { counter, start: start?, end: end?, carried, body: block, over_layers: false })
            }
            ast::Iterable::Expr(expr) => self.for_layers(pattern, expr, body),
        }
    }

    fn counter(&mut self, pattern: &ast::Pattern) -> LocalId {
        match pattern {
            ast::Pattern::Name(name) => self.declare(name, Ty::scalar(Elem::I32), false, false),
            ast::Pattern::Ignore(span) => self.anonymous(*span),
            ast::Pattern::Tuple { span, .. } => {
                self.diagnostics
                    .push(Diagnostic::error(shapes::PARTS, "a number has no parts").at(*span, "one name is needed"));
                self.poison(pattern);
                self.anonymous(*span)
            }
        }
    }

    fn anonymous(&mut self, span: Span) -> LocalId {
        let id = LocalId(self.locals.len() as u32);
        self.locals.push(Local { name: String::new(), ty: scalar(Elem::I32), is_assigned: false, span });
        id
    }

    fn loop_block(&mut self, body: &ast::Block) -> Block {
        let (mut block, ty) = self.block(body);
        if let Some(value) = block.value.take()
            && !ty.is_error()
        {
            self.diagnostics.push(
                Diagnostic::error(shapes::LOST_VALUE, "the value of a loop's body is not used")
                    .at(value.span, format!("{ty}"))
                    .help("assign it to a `var` that is declared before the loop"),
            );
        }
        block
    }

    fn bound(&mut self, expr: &ast::Expr) -> Option<Bound> {
        let value = self.expr(expr);
        match &value.ty {
            Ty::Dim(dim) => Some(Bound::Dim(dim.clone())),
            Ty::Tensor(Tensor { elem: Elem::I32 | Elem::I64, shape }) if shape.is_scalar() => {
                Some(Bound::Value(value.expr))
            }
            Ty::Error => None,
            ty => {
                self.diagnostics.push(
                    Diagnostic::error(shapes::NOT_ITERABLE, "the ends of a range are integers")
                        .at(expr.span, format!("{ty}")),
                );
                None
            }
        }
    }

    fn for_layers(&mut self, pattern: &ast::Pattern, expr: &ast::Expr, body: &ast::Block) -> Option<StmtKind> {
        let place = self.place(expr);
        let found = match place {
            Some(super::calls::Place::Array { instance, path, field, length }) => Some((instance, path, field, length)),
            Some(super::calls::Place::Wrong) => None,
            other => {
                let shown = match other {
                    Some(_) => "one layer".to_string(),
                    None => {
                        let value = self.expr(expr);
                        if value.ty.is_error() { String::new() } else { value.ty.to_string() }
                    }
                };
                if !shown.is_empty() {
                    let diagnostic = if shown == "one layer" || shown.starts_with("the ") || shown == "a float" {
                        Diagnostic::error(shapes::NOT_ITERABLE, format!("`for` cannot go through {shown}"))
                            .at(expr.span, "a range or an array of layers is needed")
                    } else {
                        Diagnostic::error(shapes::NOT_ITERABLE, format!("`for` cannot go through {shown}"))
                            .at(expr.span, "a range or an array of layers is needed")
                            .help("go through its first axis with `for i in 0..n`, and take `x[i]`")
                    };
                    self.diagnostics.push(diagnostic);
                }
                None
            }
        };
        let ((counter, block), carried) = self.region(|this| {
            this.frames.push(BTreeMap::new());
            let counter = this.anonymous(pattern.span());
            match (&found, pattern) {
                (_, ast::Pattern::Ignore(_)) => {}
                (Some((instance, path, field, _)), ast::Pattern::Name(name)) => {
                    let mut path = path.clone();
                    path.steps.push(super::typed::Step { field: *field, element: Some(Element::Counter(counter)) });
                    this.bind(&name.name, Named::Layer(instance.clone(), path), name.span, false);
                }
                (Some(_), ast::Pattern::Tuple { span, .. }) => {
                    this.diagnostics
                        .push(Diagnostic::error(shapes::PARTS, "a layer has no parts").at(*span, "one name is needed"));
                    this.poison(pattern);
                }
                (None, _) => this.poison(pattern),
            }
            let block = this.loop_block(body);
            this.frames.pop();
            (counter, block)
        });
        let (_, _, _, length) = found?;
        Some(StmtKind::For {
            counter,
            start: Bound::Dim(Dim::zero()),
            end: Bound::Dim(length),
            carried,
            body: block,
            over_layers: true,
        })
    }

    /// A value where a certain type is needed: open literals take it; anything else must be it.
    pub(super) fn fit(
        &mut self,
        value: Val,
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
                        self.diagnostics.push(misfit(&ty, span, self.scope).note(why));
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
                            .map(|((expr, ty), want)| self.fit(Val { ty, expr }, want, misfit))
                            .collect();
                        let parts = fitted.into_iter().collect::<Option<Vec<Expr>>>()?;
                        Some(Expr { kind: ExprKind::Tuple(parts), ty: wanted.clone(), span })
                    }
                    _ if settled => Some(value.expr),
                    _ => {
                        self.diagnostics.push(misfit(&value.ty, span, self.scope));
                        None
                    }
                }
            }
            (ty, _) => {
                self.diagnostics.push(misfit(ty, span, self.scope));
                None
            }
        }
    }

    /// Something that must hold: proved, refuted, or kept for later.
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

    /// A condition of `if`, `while`: a `bool` scalar.
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
                        diagnostic.help("`any` and `all` make one `bool` of many; `where` chooses element by element");
                }
                self.diagnostics.push(diagnostic);
                None
            }
        }
    }

    /// The text of an expression, if it is short enough to stand in a message.
    pub(super) fn text(&self, span: Span) -> Option<&str> {
        let text = self.sources.text(span);
        (!text.is_empty() && text.len() <= 24 && !text.contains('\n')).then_some(text)
    }

    /// A dimension that must be one, from a value.
    pub(super) fn dim_of(&mut self, value: &Val) -> Option<Dim> {
        match &value.ty {
            Ty::Dim(dim) => Some(dim.clone()),
            Ty::Error => None,
            ty => {
                self.diagnostics.push(
                    Diagnostic::error(dimensions::NOT_A_DIMENSION, format!("a dimension is needed, this is {ty}"))
                        .at(value.span(), "a name, a whole number or a formula of these is needed"),
                );
                None
            }
        }
    }

    /// The message for a layer where a tensor is needed.
    pub(super) fn layer_is_no_value(&mut self, what: &str, span: Span, array: bool) -> Val {
        let code = if array { parameters::LAYER_ARRAY } else { names::NOT_A_VALUE };
        self.diagnostics.push(
            Diagnostic::error(code, format!("{what} is no tensor"))
                .at(span, "a tensor is needed here")
                .help(if array { "go through it with `for`" } else { "call it with its arguments" }),
        );
        Val::error(span)
    }
}

fn result_misfit(ty: &Ty, wanted: &Type, span: Span, declared: Span, name: &str, scope: &DimScope) -> Diagnostic {
    type_misfit(
        Diagnostic::error(shapes::RESULT, format!("`{name}` declares {wanted}, its value is {ty}"))
            .at(span, ty.to_string())
            .also(declared, format!("{wanted} is declared here")),
        ty,
        &Ty::of(wanted),
        scope,
    )
}

/// Adds what helps to a message about a type that is not the wanted one: the dimensions that differ, and hints.
pub(super) fn type_misfit(mut diagnostic: Diagnostic, have: &Ty, want: &Ty, scope: &DimScope) -> Diagnostic {
    let (Ty::Tensor(have), Ty::Tensor(want)) = (have, want) else {
        if let (Ty::Dim(_) | Ty::Float, Ty::Tensor(want)) = (have, want)
            && !want.shape.is_scalar()
        {
            diagnostic = diagnostic.help(format!("`full<{}>(value, {})` has that shape", want.elem, want.shape));
        }
        return diagnostic;
    };
    if have.elem != want.elem {
        diagnostic = diagnostic.help(format!("`cast<{}>(..)` converts the elements", want.elem));
    }
    if have.shape == want.shape {
        return diagnostic;
    }
    let mut differing: Vec<Dim> = Vec::new();
    if have.shape.rank() == want.shape.rank() {
        for (a, b) in have.shape.axes.iter().zip(&want.shape.axes) {
            if a != b {
                let told = a.dim().zip(b.dim()).is_some_and(|(a, b)| differing.contains(a) && differing.contains(b));
                differing.extend([a.dim().cloned(), b.dim().cloned()].into_iter().flatten());
                diagnostic = match (a.dim(), b.dim()) {
                    (Some(a), Some(b)) if !told => {
                        diagnostic.note(format!("{} is not {}", scope.describe(a), scope.describe(b)))
                    }
                    _ => diagnostic,
                };
            }
        }
        let transposed = |shape: &Shape| -> Option<Shape> {
            let (front, back) = shape.split_last(2)?;
            Some(front.followed_by(back.into_iter().rev()))
        };
        if transposed(&have.shape).as_ref() == Some(&want.shape) {
            diagnostic = diagnostic.help("`.T` exchanges the last two axes");
        }
    } else {
        diagnostic = diagnostic.note(format!(
            "{} has {}, {} has {}",
            have.shape,
            super::expr::axes_of(have),
            want.shape,
            super::expr::axes_of(want)
        ));
    }
    scope.label_origins(diagnostic, &differing)
}
