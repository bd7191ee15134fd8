//! What other libraries call by other names: `cat`, `zeros`, `x.mean(dim = -1)`, `len(x)`, `print(x)`.
//!
//! In: a call that nothing of the language answers, as written. Out: one message with the call as the language has it, in
//! the author's own operands, and the type that this would have, so that nothing that follows is reported as well. The
//! words are in `idioms`.

use super::body::Body;
use super::builtins::{self, Builtin, Row};
use super::idioms::{self, Advice};
use super::values::{Ty, TypedExpr};
use crate::diagnostics::codes::{names, shapes};
use crate::diagnostics::{Diagnostic, Diagnostics, fixed_text};
use crate::source::{FileId, Span};
use crate::syntax::ast::{self, ExprKind};

/// Longer replacements are not shown: nobody would take them for advice.
const MOST_TEXT: usize = 300;

/// How many messages get a replacement; looking for one takes time.
const MANY: usize = 200;

impl Body<'_> {
    /// The text of an expression, with what was advised about its parts.
    pub(super) fn written(&self, span: Span) -> String {
        let text = self.sources.get(span.file).map_or("", |file| file.text());
        fixed_text(text, span, self.diagnostics.iter())
    }

    /// The text of an expression as an operand: in parentheses, if it is not of one piece.
    pub(super) fn operand(&self, expr: &ast::Expr) -> String {
        let text = self.written(expr.span);
        let loose = matches!(expr.kind, ExprKind::Binary { .. } | ExprKind::Unary { .. } | ExprKind::If { .. });
        if loose && !text.starts_with('(') { format!("({text})") } else { text }
    }

    /// Reports an expression that is written in another way here, and gives it the type that it has when written so.
    pub(super) fn instead(&mut self, diagnostic: Diagnostic, span: Span, replacement: &str) -> TypedExpr {
        let fits = replacement.len() <= MOST_TEXT && !replacement.contains("//");
        if !fits || self.aside || self.diagnostics.iter().nth(MANY).is_some() {
            self.diagnostics.push(diagnostic);
            return TypedExpr::error(span);
        }
        let mut diagnostic = diagnostic.fix(span, replacement);
        let shown: Vec<&str> = replacement.lines().map(str::trim).collect();
        diagnostic.helps.insert(0, format!("write `{}`", shown.join(" ")));
        self.diagnostics.push(diagnostic);
        let ty = self.type_of_text(replacement);
        TypedExpr { ty, ..TypedExpr::error(span) }
    }

    /// The type of an expression that stands nowhere in the program; an error where it does not check.
    fn type_of_text(&mut self, text: &str) -> Ty {
        let program = format!("fn f() {{\n{text}\n}}\n");
        let mut aside = Diagnostics::new();
        let file = crate::syntax::parse(FileId(u32::MAX), &program, &mut aside);
        let Some(ast::Item::Function(function)) = file.items.first() else { return Ty::Error };
        let Some(value) = function.body.value.as_deref().filter(|_| !aside.has_errors()) else { return Ty::Error };
        let before = std::mem::take(&mut *self.diagnostics);
        let (calls, conditions) = (self.calls.len(), self.conditions.len());
        self.aside = true;
        let value = self.expr_or_statement(value);
        self.aside = false;
        self.calls.truncate(calls);
        self.conditions.truncate(conditions);
        let failed = std::mem::replace(&mut *self.diagnostics, before).has_errors();
        if failed || value.ty == Ty::Tuple(Vec::new()) { Ty::Error } else { value.ty }
    }

    /// A call of a function that other libraries have; none if no such function is known.
    pub(super) fn foreign_call(&mut self, span: Span, name: &ast::Ident, args: &[ast::Arg]) -> Option<TypedExpr> {
        if !idioms::is_known(&name.name) {
            return None;
        }
        let at = self.diagnostics.iter().count();
        let operands = self.operands_alone(args);
        if self.diagnostics.iter().skip(at).any(|d| d.fixes.is_empty()) {
            // Errors in the arguments come first.
            return Some(TypedExpr::error(span));
        }
        let message = format!("there is no function `{}`", name.name);
        let diagnostic = Diagnostic::error(names::UNKNOWN_NAME, message).at(name.span, "not found");
        Some(self.advise(diagnostic, span, &name.name, args, &operands))
    }

    /// Adds what is known of a foreign function to a message about it, and reports it.
    fn advise(
        &mut self,
        diagnostic: Diagnostic,
        span: Span,
        name: &str,
        args: &[ast::Arg],
        operands: &[Option<Ty>],
    ) -> TypedExpr {
        let Advice { replacement, helps, silent } = idioms::advice(self, name, args, operands);
        let diagnostic = helps.into_iter().fold(diagnostic, Diagnostic::help);
        match replacement {
            Some(text) if silent => {
                let mut diagnostic = diagnostic.fix(span, text.clone());
                diagnostic.helps.insert(0, format!("write `{text}`"));
                self.diagnostics.push(diagnostic);
                TypedExpr::error(span)
            }
            Some(text) => self.instead(diagnostic, span, &text),
            None => {
                self.diagnostics.push(diagnostic);
                TypedExpr::error(span)
            }
        }
    }

    /// Looks at the arguments of a call that will be written otherwise, for what is wrong in them and for their types.
    fn operands_alone(&mut self, args: &[ast::Arg]) -> Vec<Option<Ty>> {
        let quiet = |expr: &ast::Expr| match &expr.kind {
            ExprKind::Str(_) | ExprKind::List(_) | ExprKind::Tuple(_) => true,
            ExprKind::Name(name) => matches!(name.name.as_str(), "True" | "False" | "None"),
            _ => false,
        };
        let mut types = Vec::with_capacity(args.len());
        for arg in args {
            if let ExprKind::List(parts) | ExprKind::Tuple(parts) = &arg.value.kind {
                for part in parts.iter().filter(|part| !quiet(part)) {
                    self.expr_or_statement(part);
                }
            }
            types.push(if quiet(&arg.value) { None } else { Some(self.expr_or_statement(&arg.value).ty) });
        }
        types
    }

    /// `x.softmax(dim = -1)`: a function that is written as a method of a tensor.
    pub(super) fn method_call(
        &mut self,
        expr: &ast::Expr,
        base: &ast::Expr,
        name: &ast::Ident,
        args: &[ast::Arg],
    ) -> Option<TypedExpr> {
        let row = builtins::find(&name.name);
        if row.is_none() && !idioms::is_known(&name.name) {
            return None;
        }
        let value = self.expr(base);
        if value.ty.is_error() {
            self.operands_alone(args);
            return Some(value);
        }
        let mut all = vec![ast::Arg { name: None, value: base.clone(), span: base.span }];
        all.extend(args.iter().cloned());
        let operands = self.operands_alone(args);
        let operands: Vec<Option<Ty>> = std::iter::once(Some(value.ty.clone())).chain(operands).collect();
        let diagnostic = Diagnostic::error(names::UNKNOWN_MEMBER, format!("a tensor has no `{}`", name.name))
            .at(name.span, "not found")
            .also(base.span, value.ty.to_string());
        Some(match row {
            Some(row) => {
                let text = self.call_text(row, &all);
                self.instead(diagnostic, expr.span, &text)
            }
            None => self.advise(diagnostic, expr.span, &name.name, &all, &operands),
        })
    }

    /// `x.shape[0]`: the name of a length.
    pub(super) fn shape_entry(&mut self, base: &ast::Expr, indices: &[ast::Index], span: Span) -> Option<TypedExpr> {
        let (inner, place) = match &base.kind {
            ExprKind::Field { base, name } if name.name == "shape" => (base.as_ref(), name.span),
            ExprKind::Call { callee, args, .. } => match (&callee.kind, args.as_slice()) {
                (ExprKind::Name(name), [only]) if name.name == "shape" => (&only.value, name.span),
                _ => return None,
            },
            _ => return None,
        };
        if self.layer_ref(inner).is_some() {
            return None;
        }
        let [ast::Index::Expr(index)] = indices else { return None };
        let value = self.expr(inner);
        let Ty::Tensor(_) = &value.ty else { return Some(TypedExpr::error(span)) };
        let args = [
            ast::Arg { name: None, value: inner.clone(), span: inner.span },
            ast::Arg { name: None, value: index.clone(), span: index.span },
        ];
        let diagnostic = Diagnostic::error(names::UNKNOWN_MEMBER, "the shape of a tensor is not a value").at(place, "");
        Some(self.advise(diagnostic, span, "size", &args, &[Some(value.ty.clone()), None]))
    }

    /// `torch.exp(x)`: an operation after the name of a library.
    pub(super) fn library_call(
        &mut self,
        expr: &ast::Expr,
        base: &ast::Expr,
        name: &ast::Ident,
        args: &[ast::Arg],
    ) -> Option<TypedExpr> {
        let library = library_of(base).filter(|library| !self.is_known(library))?;
        let operands = self.operands_alone(args);
        let message = format!("there is no `{library}` here");
        let diagnostic = Diagnostic::error(names::UNKNOWN_NAME, message).at(base.span, "not found");
        let row = builtins::find(&name.name);
        Some(match row {
            Some(row) => {
                let diagnostic = diagnostic.note("operations are called by their names alone");
                let text = self.call_text(row, args);
                self.instead(diagnostic, expr.span, &text)
            }
            None if idioms::is_known(&name.name) => self.advise(diagnostic, expr.span, &name.name, args, &operands),
            None => {
                self.diagnostics.push(diagnostic.help(idioms::library_help(&name.name)));
                TypedExpr::error(expr.span)
            }
        })
    }

    /// Is it the name of anything in the program?
    fn is_known(&mut self, name: &str) -> bool {
        self.lookup(name).is_some()
            || self.scope.names.contains_key(name)
            || self.owner.is_some_and(|owner| self.items.layer(owner).field(name).is_some())
    }

    /// A call of an operation, with the names that its arguments have here.
    pub(super) fn call_text(&self, row: &Row, args: &[ast::Arg]) -> String {
        let Row { name: what, builtin, params, .. } = *row;
        let named = takes_named(builtin);
        let mut list = Vec::with_capacity(args.len());
        let mut next = 0;
        for arg in args {
            let name = match &arg.name {
                Some(name) => Some(param_of(&name.name, params).unwrap_or(name.name.as_str())),
                None => {
                    next += 1;
                    params.get(next - 1).copied().filter(|_| named && next > 1)
                }
            };
            let value = self.value_text(&arg.value, name == Some("axis"));
            list.push(name.map_or(value.clone(), |name| format!("{name} = {value}")));
        }
        format!("{what}({})", list.join(", "))
    }

    /// The text of an argument: `True` is `true`, and several axes are a list.
    pub(super) fn value_text(&self, expr: &ast::Expr, is_axis: bool) -> String {
        match &expr.kind {
            ExprKind::Name(name) if matches!(name.name.as_str(), "True" | "False") => name.name.to_lowercase(),
            ExprKind::Tuple(parts) if is_axis => {
                let parts: Vec<String> = parts.iter().map(|part| self.written(part.span)).collect();
                format!("[{}]", parts.join(", "))
            }
            _ => self.written(expr.span),
        }
    }

    /// A call of an operation with arguments as another library has them: a second one without a name, `dim` for
    /// `axis`, `True`, a tuple of axes. One message shows the call as it is written here.
    pub(super) fn other_arguments(&mut self, row: &'static Row, args: &[ast::Arg], span: Span) -> Option<TypedExpr> {
        let Row { name: what, builtin, params, .. } = *row;
        let unnamed = args.iter().filter(|arg| arg.name.is_none()).nth(1).filter(|_| takes_named(builtin));
        let renamed = args.iter().find(|arg| {
            let name = arg.name.as_ref().map_or("", |name| name.name.as_str());
            param_of(name, params).is_some_and(|param| param != name) && !self.is_axis_of_pattern(name, builtin, args)
        });
        let capital = args.iter().find(|arg| {
            let is_name = |name: &ast::Ident| matches!(name.name.as_str(), "True" | "False");
            arg.name.is_some() && matches!(&arg.value.kind, ExprKind::Name(name) if is_name(name))
        });
        let tuple = args.iter().find(|arg| {
            let is_axis = arg.name.as_ref().is_some_and(|name| name.name == "axis");
            is_axis && params.contains(&"axis") && matches!(arg.value.kind, ExprKind::Tuple(_))
        });
        if let Some(second) = unnamed {
            return Some(self.unnamed(row, args, second, span));
        }
        let diagnostic = if let Some(arg) = renamed {
            let name = arg.name.as_ref().map_or("", |name| name.name.as_str());
            Diagnostic::error(names::UNKNOWN_ARGUMENT, format!("`{what}` has no argument `{name}`")).at(
                arg.name.as_ref().map_or(arg.span, |name| name.span),
                format!("its signature is `{what}({})`", params.join(", ")),
            )
        } else if let Some(arg) = capital {
            Diagnostic::error(names::UNKNOWN_NAME, format!("there is no `{}` here", self.written(arg.value.span)))
                .at(arg.value.span, "not found")
        } else if let Some(arg) = tuple {
            Diagnostic::error(shapes::CONSTANT_ARGUMENT, "write several axes as a list, not a tuple")
                .at(arg.value.span, "")
        } else {
            return None;
        };
        self.operands_alone(args);
        let text = self.call_text(row, args);
        Some(self.instead(diagnostic, span, &text))
    }

    /// `rearrange(x, "(a b) -> a b", a = A)`: is the argument the length of an axis, though another library has an argument of
    /// its name?
    fn is_axis_of_pattern(&self, name: &str, builtin: Builtin, args: &[ast::Arg]) -> bool {
        let is_axis = |arg: &ast::Arg| {
            matches!(arg.value.kind, ExprKind::Str(_))
                && self
                    .written(arg.value.span)
                    .split(|c: char| c != '_' && !c.is_alphanumeric())
                    .any(|axis| axis == name)
        };
        builtin == Builtin::Rearrange && args.iter().any(is_axis)
    }

    /// `max(x, 0)`: is the second argument an axis or another operand?
    fn unnamed(&mut self, row: &Row, args: &[ast::Arg], second: &ast::Arg, span: Span) -> TypedExpr {
        let Row { name: what, builtin, .. } = *row;
        let operands = self.operands_alone(args);
        let place = args.iter().position(|arg| std::ptr::eq(arg, second)).unwrap_or_default();
        if operands.get(place).and_then(Option::as_ref).is_some_and(Ty::is_error) {
            return TypedExpr::error(span);
        }
        let is_axis = operands.get(place).is_some_and(|ty| matches!(ty, None | Some(Ty::Dim(_))));
        let reduces_number = matches!(operands.first(), Some(Some(Ty::Dim(_) | Ty::Float)));
        let other = idioms::second_operand(what).filter(|_| args.len() == 2);
        let as_operand = other.and_then(|(meaning, form)| {
            let (a, b) = (args.first()?, second);
            let (a, b) = match form.starts_with("{a} ") {
                true => (self.operand(&a.value), self.operand(&b.value)),
                false => (self.written(a.value.span), self.written(b.value.span)),
            };
            Some((meaning, form.replace("{a}", &a).replace("{b}", &b)))
        });
        let mut readings: Vec<(String, String)> = Vec::new();
        if builtin == Builtin::Split {
            let text = self.call_text(&Row { params: &["x", "parts", "axis"], optional: 0, ..*row }, args);
            readings.push(("into that many equal parts".to_string(), text));
        }
        if is_axis && !reduces_number {
            readings.push(("along an axis".to_string(), self.call_text(row, args)));
        }
        if let Some((meaning, text)) = as_operand {
            let is_zero = second.value.kind == ExprKind::Int(0);
            let first = readings.is_empty() || is_zero;
            // `sum(x, 1)` is never meant as a sum of two values.
            if !is_axis
                || matches!(builtin, Builtin::Reduce(crate::scalar::ReduceKind::Max | crate::scalar::ReduceKind::Min))
            {
                readings.insert(if first { 0 } else { readings.len() }, (meaning.to_string(), text));
            }
        }
        let message = format!("the second argument of `{what}` must be named");
        let label = if readings.len() > 1 { "ambiguous" } else { "" };
        let mut diagnostic = Diagnostic::error(shapes::UNNAMED_ARGUMENT, message).at(second.span, label);
        let mut readings = readings.into_iter();
        let Some((meaning, text)) = readings.next() else {
            self.diagnostics.push(diagnostic.note(format!("`{what}` takes one tensor")));
            return TypedExpr::error(span);
        };
        let others: Vec<(String, String)> = readings.collect();
        if others.is_empty() {
            return self.instead(diagnostic, span, &text);
        }
        diagnostic = diagnostic.help(format!("{meaning}: `{text}`")).fix(span, text);
        for (meaning, text) in others {
            diagnostic = diagnostic.help(format!("{meaning}: `{text}`"));
        }
        self.diagnostics.push(diagnostic);
        TypedExpr::error(span)
    }
}

/// Operations of one tensor, whose other arguments are given by name.
fn takes_named(builtin: Builtin) -> bool {
    matches!(builtin, Builtin::Reduce(_) | Builtin::Along(_) | Builtin::Split | Builtin::Unbind | Builtin::Pad)
}

/// What an argument of another library is called here.
fn param_of(name: &str, params: &[&'static str]) -> Option<&'static str> {
    let wanted = match name {
        "dim" | "dims" | "axes" | "axis" => "axis",
        "keepdim" | "keepdims" | "keep_dims" | "keep" => "keep",
        "chunks" | "indices_or_sections" | "sections" => "parts",
        "input" | "a" | "self" if params.first() == Some(&"x") => "x",
        _ => return None,
    };
    params.iter().copied().find(|param| *param == wanted)
}

/// The library that `torch`, `torch.nn.functional` or `np` is.
fn library_of(expr: &ast::Expr) -> Option<&str> {
    match &expr.kind {
        ExprKind::Name(name) if idioms::LIBRARIES.contains(&name.name.as_str()) => Some(&name.name),
        ExprKind::Field { base, name } if matches!(name.name.as_str(), "nn" | "functional" | "linalg" | "lax") => {
            library_of(base)
        }
        _ => None,
    }
}
