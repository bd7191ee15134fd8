//! Loops: `for` over numbers and over arrays of layers, `while`, `break`.
//!
//! In: loops of the AST. Out: typed loops with the outer variables that they assign.

use super::assigned;
use super::body::{Body, Named};
use super::builtins;
use super::layer_refs::LayerRef;
use super::typed::{Block, Bound, Element, Local, LocalId, Step, StmtKind, Tensor};
use super::values::{Ty, scalar};
use crate::diagnostics::Diagnostic;
use crate::diagnostics::codes::shapes;
use crate::shape::{Dim, Elem};
use crate::source::Span;
use crate::syntax::ast;
use std::collections::BTreeMap;

impl Body<'_> {
    pub(super) fn for_(
        &mut self,
        pattern: &ast::Pattern,
        iterable: &ast::Iterable,
        body: &ast::Block,
    ) -> Option<StmtKind> {
        match iterable {
            ast::Iterable::Range { start, end } => {
                let (start, end) = (self.bound(start), self.bound(end));
                let ((counter, block), carried) = self.region(|this| {
                    this.frames.push(BTreeMap::new());
                    let counter = this.counter(pattern);
                    match (&start, &end) {
                        (Some(Bound::Dim(start)), Some(Bound::Dim(end))) => {
                            this.counters.insert(counter, Some((start.clone(), end.clone())));
                        }
                        (None, _) | (_, None) => {
                            this.counters.insert(counter, None);
                        }
                        _ => {}
                    }
                    let block = this.loop_block(body);
                    this.frames.pop();
                    (counter, block)
                });
                Some(StmtKind::For { counter, start: start?, end: end?, carried, body: block, over_layers: false })
            }
            ast::Iterable::Expr(expr) => match self.counted(expr) {
                Some(range) => self.for_(pattern, &range, body),
                None => self.for_layers(pattern, expr, body),
            },
        }
    }

    /// Reports `range(n)`, which is `0..n` in attn.
    fn counted(&mut self, expr: &ast::Expr) -> Option<ast::Iterable> {
        let ast::ExprKind::Call { callee, args, .. } = &expr.kind else { return None };
        let ast::ExprKind::Name(name) = &callee.kind else { return None };
        let values: Vec<&ast::Expr> = args.iter().map(|arg| &arg.value).collect();
        let known = self.is_function(&name.name);
        let (start, end) = match (name.name.as_str(), values.as_slice()) {
            _ if known => return None,
            ("range" | "arange" | "iota", [end]) => (None, *end),
            ("range" | "arange", [start, end]) => (Some(*start), *end),
            _ => return None,
        };
        // Errors in the bounds first, so that they are reported together.
        for end in start.iter().chain([&end]) {
            self.expr(end);
        }
        let from = start.map_or("0".to_string(), |start| self.operand(start));
        let shown = format!("{from}..{}", self.operand(end));
        let message = format!("`for` iterates over a range, not over `{}`", name.name);
        self.diagnostics.push(
            Diagnostic::error(shapes::NOT_ITERABLE, message)
                .at(expr.span, "")
                .help(format!("write `{shown}`"))
                .fix(expr.span, shown),
        );
        let zero = ast::Expr { kind: ast::ExprKind::Int(0), span: expr.span, depth: 1 };
        let start = start.cloned().unwrap_or(zero);
        Some(ast::Iterable::Range { start, end: end.clone() })
    }

    /// Does the program use a name of the language or of other libraries for something else?
    fn is_function(&mut self, name: &str) -> bool {
        self.items.free_function(self.module, name).is_some() || self.lookup(name).is_some()
    }

    pub(super) fn counter(&mut self, pattern: &ast::Pattern) -> LocalId {
        match pattern {
            ast::Pattern::Name(name) => self.declare(name, Ty::scalar(Elem::I32), false, false),
            ast::Pattern::Ignore(span) => self.anonymous(*span),
            ast::Pattern::Tuple { span, .. } => {
                self.diagnostics
                    .push(Diagnostic::error(shapes::PARTS, "a number has no parts").at(*span, "expected one name"));
                self.poison(pattern);
                self.anonymous(*span)
            }
        }
    }

    pub(super) fn anonymous(&mut self, span: Span) -> LocalId {
        let id = LocalId(self.locals.len() as u32);
        self.locals.push(Local { name: String::new(), ty: scalar(Elem::I32), is_assigned: false, span });
        id
    }

    /// `while condition { .. }`
    pub(super) fn while_(&mut self, condition: &ast::Expr, body: &ast::Block) -> Option<StmtKind> {
        let ((test, block, has_break), carried) = self.region(|this| {
            let test = this.condition(condition, "`while`");
            this.loops.push(false);
            let (block, ty) = this.block(body);
            let has_break = this.loops.pop() == Some(true);
            (test, this.without_value(block, &ty), has_break)
        });
        let test = test?;
        let changes = |id: &LocalId| {
            let local = self.locals.get(id.0 as usize);
            local.is_some_and(|local| assigned::reads(condition, &local.name))
        };
        // A condition that depends on a call or a state may change without an assignment that is
        // visible here.
        let local = |name: &str| self.locals.iter().any(|local| local.name == name);
        let method = |name: &str| self.owner.is_some_and(|owner| self.items.method(owner, name).is_some());
        let computes = |name: &str| builtins::find(name).is_some() && !local(name) && !method(name);
        if assigned::reads_only(condition, &local, &computes) && !has_break && !carried.iter().any(changes) {
            self.diagnostics.push(
                Diagnostic::error(shapes::ENDLESS, "this loop never ends once it has begun")
                    .at(condition.span, "the body assigns nothing that this depends on")
                    .help("assign a `var` of the condition in the body, or leave the loop with `break`"),
            );
            return None;
        }
        Some(StmtKind::While { condition: test, carried, body: block })
    }

    /// `break`
    pub(super) fn break_(&mut self, span: Span) -> Option<StmtKind> {
        if let Some(has_break) = self.loops.last_mut() {
            *has_break = true;
            return Some(StmtKind::Break);
        }
        self.diagnostics.push(
            Diagnostic::error(shapes::BREAK_OUTSIDE, "`break` outside of a loop")
                .at(span, "there is no `for` or `while` around this"),
        );
        None
    }

    /// Reports statements after a `break`; returns true, so that it is reported once.
    pub(super) fn unreached(&mut self, span: Span, last: Span) -> bool {
        self.diagnostics.push(
            Diagnostic::error(shapes::UNREACHED, "nothing reaches this")
                .at(span, "never executed")
                .also(last, "the loop always ends here"),
        );
        true
    }

    pub(super) fn loop_block(&mut self, body: &ast::Block) -> Block {
        self.loops.push(false);
        let (block, ty) = self.block(body);
        self.loops.pop();
        self.without_value(block, &ty)
    }

    /// Checks that the body of a loop has no value.
    pub(super) fn without_value(&mut self, mut block: Block, ty: &Ty) -> Block {
        if let Some(value) = block.value.take()
            && !ty.is_error()
        {
            self.diagnostics.push(
                Diagnostic::error(shapes::LOST_VALUE, "the value of the loop body is unused")
                    .at(value.span, format!("{ty}"))
                    .help("assign it to a `var` declared before the loop"),
            );
        }
        block
    }

    pub(super) fn bound(&mut self, expr: &ast::Expr) -> Option<Bound> {
        let value = self.expr(expr);
        match &value.ty {
            Ty::Dim(dim) => Some(Bound::Dim(dim.clone())),
            Ty::Tensor(Tensor { elem: Elem::I32 | Elem::I64, shape }) if shape.is_scalar() => {
                Some(Bound::Value(value.expr))
            }
            Ty::Error => None,
            ty => {
                self.diagnostics.push(
                    Diagnostic::error(shapes::NOT_ITERABLE, "the bounds of a range must be integers")
                        .at(expr.span, format!("{ty}")),
                );
                None
            }
        }
    }

    pub(super) fn for_layers(
        &mut self,
        pattern: &ast::Pattern,
        expr: &ast::Expr,
        body: &ast::Block,
    ) -> Option<StmtKind> {
        let counted = enumerated(expr).filter(|_| !self.is_function("enumerate"));
        let place = self.layer_ref(counted.unwrap_or(expr));
        if let Some(LayerRef::Layer(instance, path)) = &place
            && self.list_of(instance).is_some()
        {
            let list = (instance.clone(), path.clone());
            return self.for_parts(list, (pattern, counted.is_some()), counted.unwrap_or(expr), body);
        }
        let found = match place {
            Some(LayerRef::Array { instance, path, field, length }) => Some((instance, path, field, length)),
            Some(LayerRef::Wrong) => None,
            _ if let Some(array) = counted => {
                let shown = self.written(array.span);
                self.diagnostics.push(
                    Diagnostic::error(
                        shapes::NOT_ITERABLE,
                        format!("`enumerate` counts layers, but `{shown}` is not an array of layers"),
                    )
                    .at(array.span, "expected an array of layers")
                    .help("iterate over the first axis of a tensor with `for i in 0..n` and index `x[i]`"),
                );
                None
            }
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
                        Diagnostic::error(shapes::NOT_ITERABLE, format!("`for` cannot iterate over {shown}"))
                            .at(expr.span, "expected a range or an array of layers")
                    } else {
                        Diagnostic::error(shapes::NOT_ITERABLE, format!("`for` cannot iterate over {shown}"))
                            .at(expr.span, "expected a range or an array of layers")
                            .help("iterate over its first axis with `for i in 0..n` and index `x[i]`")
                    };
                    self.diagnostics.push(diagnostic);
                }
                None
            }
        };
        let ((counter, block), carried) = self.region(|this| {
            this.frames.push(BTreeMap::new());
            let (counter, of_layer) = match (counted, pattern) {
                (Some(_), ast::Pattern::Tuple { parts, .. }) if let [number, layer] = parts.as_slice() => {
                    (this.counter(number), layer)
                }
                _ => (this.anonymous(pattern.span()), pattern),
            };
            let ends = found.as_ref().map(|(_, _, _, length)| (Dim::zero(), length.clone()));
            this.counters.insert(counter, ends);
            match (&found, of_layer) {
                (Some(_), _) if counted.is_some() && std::ptr::eq(of_layer, pattern) => {
                    let array = counted.map_or(String::new(), |array| this.written(array.span));
                    this.diagnostics.push(
                        Diagnostic::error(shapes::PARTS, "`enumerate` yields two parts: a number and a layer")
                            .at(pattern.span(), "expected two names")
                            .help(format!("write `for (i, block) in enumerate({array})`, or `for block in {array}`")),
                    );
                    this.poison(pattern);
                }
                (_, ast::Pattern::Ignore(_)) => {}
                (Some((instance, path, field, _)), ast::Pattern::Name(name)) => {
                    let mut path = path.clone();
                    path.steps.push(Step { field: *field, element: Some(Element::counter(counter)) });
                    this.bind(&name.name, Named::Layer(instance.clone(), path), name.span, false);
                }
                (Some(_), ast::Pattern::Tuple { span, .. }) => {
                    let mut diagnostic =
                        Diagnostic::error(shapes::PARTS, "a layer has no parts").at(*span, "expected one name");
                    if counted.is_none() && pattern_of_two(pattern).is_some() {
                        let array = this.written(expr.span);
                        let shown = format!("enumerate({array})");
                        diagnostic =
                            diagnostic.help(format!("to count the layers, write `{shown}`")).fix(expr.span, shown);
                    }
                    this.diagnostics.push(diagnostic);
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
}

/// The operand of `enumerate(blocks)`.
fn enumerated(expr: &ast::Expr) -> Option<&ast::Expr> {
    let ast::ExprKind::Call { callee, args, .. } = &expr.kind else { return None };
    match (&callee.kind, args.as_slice()) {
        (ast::ExprKind::Name(name), [only]) if name.name == "enumerate" => Some(&only.value),
        _ => None,
    }
}

/// The names of `(i, block)`.
fn pattern_of_two(pattern: &ast::Pattern) -> Option<(&str, &str)> {
    let ast::Pattern::Tuple { parts, .. } = pattern else { return None };
    match parts.as_slice() {
        [ast::Pattern::Name(first), ast::Pattern::Name(second)] => Some((&first.name, &second.name)),
        _ => None,
    }
}
