//! Functions of other libraries: `cat`, `zeros`, `x.mean(dim = -1)`, `len(x)`, `print(x)`.
//!
//! In: an unresolved call in the AST. Out: one message that shows the equivalent call in attn, with
//! the author's own operands, and the type that this has, so that no consequential errors are
//! reported. The rules are in `idioms`.

use super::body::Body;
use super::builtins::{self, Builtin, Row};
use super::idioms::{self, Advice, Operand};
use super::values::{Ty, TypedExpr};
use crate::diagnostics::codes::{names, shapes};
use crate::diagnostics::{Diagnostic, Diagnostics, fixed_text};
use crate::source::{FileId, Span};
use crate::syntax::ast::{self, ExprKind};

/// Longer replacements are not shown: nobody would use them.
const MAX_TEXT: usize = 300;

/// The maximum number of messages that get a replacement; searching for one takes time.
const MAX_REPLACEMENTS: usize = 200;

impl Body<'_> {
    /// The source of an expression, with the suggestions for its parts applied.
    pub(super) fn written(&self, span: Span) -> String {
        let text = self.sources.get(span.file).map_or("", |file| file.text());
        fixed_text(text, span, self.diagnostics.iter())
    }

    /// The source of an expression as an operand, in parentheses if needed.
    pub(super) fn operand(&self, expr: &ast::Expr) -> String {
        let text = self.written(expr.span);
        let loose = matches!(expr.kind, ExprKind::Binary { .. } | ExprKind::Unary { .. } | ExprKind::If { .. });
        if loose && !is_in_parentheses(&text) { format!("({text})") } else { text }
    }

    /// Reports an expression that has another syntax in attn, and gives it the type of its
    /// replacement. A replacement that does not type-check is not suggested.
    pub(super) fn instead(&mut self, diagnostic: Diagnostic, span: Span, replacement: &str) -> TypedExpr {
        self.first_of(diagnostic, span, &[replacement.to_string()])
    }

    /// The same with the first of several replacements that type-checks.
    fn first_of(&mut self, diagnostic: Diagnostic, span: Span, replacements: &[String]) -> TypedExpr {
        let found = replacements.iter().find_map(|text| Some((text, self.checks(text)?)));
        let Some((text, ty)) = found else {
            self.diagnostics.push(diagnostic);
            return TypedExpr::error(span);
        };
        self.diagnostics.push(suggested(diagnostic, span, text));
        TypedExpr { ty, ..TypedExpr::error(span) }
    }

    /// The type of a replacement, if it may be suggested.
    pub(super) fn checks(&mut self, replacement: &str) -> Option<Ty> {
        let fits = replacement.len() <= MAX_TEXT && !replacement.contains("//");
        if !fits || self.aside || self.diagnostics.iter().nth(MAX_REPLACEMENTS).is_some() {
            return None;
        }
        self.type_of_text(replacement)
    }

    /// The type of an expression that is not part of the program; `None` if it does not type-check.
    /// It is an error type if its only errors were reported already, such as an unknown name.
    fn type_of_text(&mut self, text: &str) -> Option<Ty> {
        let program = format!("fn f() {{\n{text}\n}}\n");
        let mut aside = Diagnostics::new();
        let file = crate::syntax::parse(FileId(u32::MAX), &program, &mut aside);
        let Some(ast::Item::Function(function)) = file.items.first() else { return None };
        let value = function.body.value.as_deref().filter(|_| !aside.has_errors())?;
        let before = std::mem::take(&mut *self.diagnostics);
        let (calls, conditions, trains) = (self.calls.len(), self.conditions.len(), self.trains.len());
        self.aside = true;
        let value = self.expr_or_statement(value);
        self.aside = false;
        self.calls.truncate(calls);
        self.conditions.truncate(conditions);
        self.trains.truncate(trains);
        let failed = std::mem::replace(&mut *self.diagnostics, before).has_errors();
        (!failed && value.ty != Ty::Tuple(Vec::new())).then_some(value.ty)
    }

    /// Reports a call of a function of other libraries; `None` if no such function is known.
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
        Some(self.advise(diagnostic, span, (&name.name, None), args, &operands))
    }

    /// Reports a call of an operation that attn writes differently: not as a method, and without a
    /// library's name.
    fn operation(
        &mut self,
        diagnostic: Diagnostic,
        span: Span,
        (row, library): (&'static Row, Option<&str>),
        args: &[ast::Arg],
        operands: &[Operand],
    ) -> TypedExpr {
        let Advice { candidates: mut texts, helps, .. } = idioms::advice(self, (row.name, library), args, operands);
        texts.extend(self.with_all_axes(row, args, operands));
        if let ([a, b], Some((_, form))) = (args, idioms::second_operand(row.name)) {
            texts.push(form.replace("{a}", &self.written(a.value.span)).replace("{b}", &self.written(b.value.span)));
        }
        let mut diagnostic = diagnostic;
        if !texts.iter().any(|text| self.checks(text).is_some()) {
            let signature = format!("its signature is `{}({})`", row.name, row.params.join(", "));
            diagnostic = helps.into_iter().fold(diagnostic.note(signature), Diagnostic::help);
            texts.clear();
        }
        self.first_of(diagnostic, span, &texts)
    }

    /// A call of an operation. Other libraries reduce all axes if none is given, attn the last one.
    fn with_all_axes(&self, row: &Row, args: &[ast::Arg], operands: &[Operand]) -> Option<String> {
        let text = self.call_text(row, args);
        let names_axis = args.iter().skip(1).any(|arg| arg.name.is_none() || idioms::AXES.contains(&name_of(arg)));
        let is_index = matches!(row.name, "argmax" | "argmin");
        if names_axis || !(is_index || matches!(row.builtin, Builtin::Reduce(_))) {
            return Some(text);
        }
        let Some(Ty::Tensor(tensor)) = &operands.first()?.ty else { return Some(text) };
        match idioms::all_axes(tensor)? {
            axes if axes == "0" => Some(text),
            axes => text.strip_suffix(')').filter(|_| !is_index).map(|text| format!("{text}, axis = {axes})")),
        }
    }

    /// Adds the rules for a foreign function to a message about it, and reports it.
    fn advise(
        &mut self,
        diagnostic: Diagnostic,
        span: Span,
        name: (&str, Option<&str>),
        args: &[ast::Arg],
        operands: &[Operand],
    ) -> TypedExpr {
        let Advice { candidates, helps, silent } = idioms::advice(self, name, args, operands);
        let diagnostic = helps.into_iter().fold(diagnostic, Diagnostic::help);
        match candidates.first() {
            Some(text) if silent => {
                self.diagnostics.push(suggested(diagnostic, span, text));
                TypedExpr::error(span)
            }
            _ => self.first_of(diagnostic, span, &candidates),
        }
    }

    /// Checks the arguments of a call that will be replaced, for their errors and types.
    fn operands_alone(&mut self, args: &[ast::Arg]) -> Vec<Operand> {
        let mut operands = Vec::with_capacity(args.len());
        for arg in args {
            let mut operand = Operand::default();
            if let ExprKind::List(parts) | ExprKind::Tuple(parts) = &arg.value.kind {
                for part in parts {
                    let ty = if self.is_no_value(part) { None } else { Some(self.expr_or_statement(part).ty) };
                    operand.parts.push(ty);
                }
            } else if !self.is_no_value(&arg.value) {
                operand.ty = Some(self.expr_or_statement(&arg.value).ty);
            }
            operands.push(operand);
        }
        operands
    }

    /// `"tanh"`, `True`, `torch.float16`: arguments of foreign functions that are not expressions
    /// in attn.
    fn is_no_value(&mut self, expr: &ast::Expr) -> bool {
        match &expr.kind {
            ExprKind::Str(_) => true,
            ExprKind::List(parts) | ExprKind::Tuple(parts) => {
                parts.iter().all(|part| matches!(part.kind, ExprKind::Int(_)))
            }
            ExprKind::Name(name) => {
                let word = name.name.as_str();
                matches!(word, "True" | "False" | "None")
                    || matches!(word, "float" | "int" | "bool" | "long" | "half" | "double") && !self.is_known(word)
            }
            ExprKind::Field { base, .. } => library_of(base).is_some_and(|library| !self.is_known(library)),
            _ => false,
        }
    }

    /// `x.softmax(dim = -1)`: a function called as a method of a tensor.
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
        let own = Operand { ty: Some(value.ty.clone()), parts: Vec::new() };
        let operands: Vec<Operand> = std::iter::once(own).chain(self.operands_alone(args)).collect();
        let diagnostic = Diagnostic::error(names::UNKNOWN_MEMBER, format!("a tensor has no `{}`", name.name))
            .at(name.span, "not found")
            .also(base.span, value.ty.to_string());
        Some(match row {
            Some(row) => self.operation(diagnostic, expr.span, (row, None), &all, &operands),
            None => self.advise(diagnostic, expr.span, (&name.name, None), &all, &operands),
        })
    }

    /// `x.ndim`, `x.mT`: attributes of tensors in other libraries.
    pub(super) fn foreign_member(
        &mut self,
        base: &ast::Expr,
        name: &ast::Ident,
        ty: &Ty,
        span: Span,
    ) -> Option<TypedExpr> {
        if !matches!(name.name.as_str(), "ndim" | "mT") {
            return None;
        }
        let args = [ast::Arg { name: None, value: base.clone(), span: base.span }];
        let own = Operand { ty: Some(ty.clone()), parts: Vec::new() };
        let diagnostic = Diagnostic::error(names::UNKNOWN_MEMBER, format!("a tensor has no `{}`", name.name))
            .at(name.span, "not found")
            .also(base.span, ty.to_string());
        Some(self.advise(diagnostic, span, (&name.name, None), &args, &[own]))
    }

    /// `x.at[i].set(y)`
    pub(super) fn at_update(
        &mut self,
        base: &ast::Expr,
        name: &ast::Ident,
        args: &[ast::Arg],
        span: Span,
    ) -> Option<TypedExpr> {
        let ExprKind::Index { base: at, indices } = &base.kind else { return None };
        let ExprKind::Field { base: x, name: word } = &at.kind else { return None };
        let function = match (word.name.as_str(), name.name.as_str()) {
            ("at", "set") => "scatter",
            ("at", "add") => "scatter_add",
            _ => return None,
        };
        self.expr(x);
        self.operands_alone(args);
        let diagnostic = Diagnostic::error(names::UNKNOWN_MEMBER, "a tensor has no `at`")
            .at(word.span, "not found")
            .help("assign at an index: `var y = x`, then `y[i] = v`");
        let texts: Vec<String> = match (indices.as_slice(), args) {
            ([ast::Index::Expr(index)], [value]) => {
                let [x, index, value] = [x.span, index.span, value.value.span].map(|span| self.written(span));
                vec![format!("{function}({x}, {index}, {value}, axis = 0)")]
            }
            _ => Vec::new(),
        };
        Some(self.first_of(diagnostic, span, &texts))
    }

    /// `x[None]`, `x[:, None]`: an index that adds axes of length 1, as `syntax::habits` rewrites
    /// it.
    pub(super) fn added_axes(&mut self, indices: &[ast::Index], span: Span) -> Option<TypedExpr> {
        let adds = |index: &ast::Index| match index {
            ast::Index::Expr(ast::Expr { kind: ExprKind::Name(name) | ExprKind::Field { name, .. }, .. }) => {
                matches!(name.name.as_str(), "None" | "newaxis")
            }
            _ => false,
        };
        if !indices.iter().any(adds) {
            return None;
        }
        let fixes = self.diagnostics.iter().flat_map(|diagnostic| &diagnostic.fixes);
        let text = fixes.into_iter().find(|fix| fix.span == span).map(|fix| fix.text.clone())?;
        let ty = self.checks(&text).unwrap_or(Ty::Error);
        Some(TypedExpr { ty, ..TypedExpr::error(span) })
    }

    /// `x.shape[0]`: the name of a length.
    pub(super) fn shape_entry(&mut self, base: &ast::Expr, indices: &[ast::Index], span: Span) -> Option<TypedExpr> {
        let (inner, place) = match &base.kind {
            ExprKind::Field { base, name } if name.name == "shape" => (base.as_ref(), name.span),
            ExprKind::Call { callee, args, .. } => match (&callee.kind, args.as_slice()) {
                (ExprKind::Name(name) | ExprKind::Field { name, .. }, [only]) if name.name == "shape" => {
                    (&only.value, name.span)
                }
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
        let own = Operand { ty: Some(value.ty.clone()), parts: Vec::new() };
        Some(self.advise(diagnostic, span, ("size", None), &args, &[own, Operand::default()]))
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
        let own = (name.name.as_str(), Some(library));
        Some(match builtins::find(&name.name) {
            Some(row) if !idioms::is_of(own.0, own.1) => {
                let diagnostic = diagnostic.note("operations are called by name only");
                self.operation(diagnostic, expr.span, (row, own.1), args, &operands)
            }
            _ if idioms::is_known(&name.name) => self.advise(diagnostic, expr.span, own, args, &operands),
            _ => {
                self.diagnostics.push(diagnostic.help(idioms::library_help(&name.name)));
                TypedExpr::error(expr.span)
            }
        })
    }

    /// Does the program declare this name?
    fn is_known(&mut self, name: &str) -> bool {
        self.lookup(name).is_some()
            || self.scope.names.contains_key(name)
            || self.owner.is_some_and(|owner| self.items.layer(owner).field(name).is_some())
    }

    /// A call of an operation, with attn's names for its arguments.
    pub(super) fn call_text(&self, row: &Row, args: &[ast::Arg]) -> String {
        let Row { name: what, builtin, params, .. } = *row;
        let is_pattern = matches!(builtin, Builtin::Einsum | Builtin::Rearrange);
        let mut list = Vec::with_capacity(args.len());
        let mut next = 0;
        for arg in args.iter().filter(|arg| !idioms::WITHOUT_EFFECT.contains(&name_of(arg))) {
            let name = match &arg.name {
                Some(name) => Some(param_of(&name.name, params).unwrap_or(name.name.as_str())),
                None => {
                    next += 1;
                    params.get(next - 1).copied().filter(|_| takes_named(builtin) && next > 1)
                }
            };
            let mut value = self.value_text(&arg.value, name == Some("axis"));
            if is_pattern && matches!(arg.value.kind, ExprKind::Str(_)) && !value.contains(' ') {
                value = super::patterns::spaced(&value);
            }
            list.push(name.map_or(value.clone(), |name| format!("{name} = {value}")));
        }
        format!("{what}({})", list.join(", "))
    }

    /// The source of an argument: `True` becomes `true`, and several axes a list.
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

    /// A call of an operation with another library's arguments: an unnamed second one, `dim` for
    /// `axis`, `True`, a tuple of axes. One message shows the call in attn.
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
        let foreign = args.iter().find(|arg| {
            let name = arg.name.as_ref().map_or("", |name| name.name.as_str());
            arg.name.is_some() && !params.contains(&name) && builtin != Builtin::Rearrange && idioms::is_known(what)
        });
        let widths = args.get(1).filter(|arg| builtin == Builtin::Pad && matches!(arg.value.kind, ExprKind::Tuple(_)));
        if let Some(arg) = foreign.or(widths) {
            let at = arg.name.as_ref().map_or(arg.span, |name| name.span);
            let operands = self.operands_alone(args);
            let texts = idioms::advice(self, (what, None), args, &operands).candidates;
            if !texts.is_empty() {
                let message = format!("`{what}` takes other arguments");
                let signature = format!("its signature is `{what}({})`", params.join(", "));
                let diagnostic = Diagnostic::error(names::UNKNOWN_ARGUMENT, message).at(at, signature);
                return Some(self.first_of(diagnostic, span, &texts));
            }
        }
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

    /// `rearrange(x, "(a b) -> a b", a = A)`: is the argument the length of an axis, although
    /// another library has an argument with that name?
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
        let ty = |at: usize| operands.get(at).and_then(|operand| operand.ty.as_ref());
        if ty(place).is_some_and(Ty::is_error) {
            return TypedExpr::error(span);
        }
        let is_axis = matches!(ty(place), None | Some(Ty::Dim(_)));
        let reduces_number = matches!(ty(0), Some(Ty::Dim(_) | Ty::Float));
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
            // `sum(x, 1)` never means the sum of two values.
            if !is_axis
                || matches!(builtin, Builtin::Reduce(crate::scalar::ReduceKind::Max | crate::scalar::ReduceKind::Min))
            {
                readings.insert(if first { 0 } else { readings.len() }, (meaning.to_string(), text));
            }
        }
        readings.retain(|(_, text)| self.checks(text).is_some());
        let message = format!("the second argument of `{what}` must be named");
        let label = if readings.len() > 1 { "ambiguous" } else { "" };
        let mut diagnostic = Diagnostic::error(shapes::UNNAMED_ARGUMENT, message).at(second.span, label);
        let mut readings = readings.into_iter();
        let Some((meaning, text)) = readings.next() else {
            let signature = format!("its signature is `{what}({})`", row.params.join(", "));
            self.diagnostics.push(diagnostic.note(signature));
            return TypedExpr::error(span);
        };
        let others: Vec<(String, String)> = readings.collect();
        if others.is_empty() {
            return self.instead(diagnostic, span, &text);
        }
        diagnostic = diagnostic.help(format!("{meaning}: `{text}`")).fix(span, text);
        for (meaning, text) in others {
            diagnostic = diagnostic.alternative(format!("{meaning}: `{text}`"), span, text);
        }
        self.diagnostics.push(diagnostic);
        TypedExpr::error(span)
    }
}

/// The name of an argument; empty if it is positional.
fn name_of(arg: &ast::Arg) -> &str {
    arg.name.as_ref().map_or("", |name| name.name.as_str())
}

/// A message that suggests replacing a part of the program by `text`.
fn suggested(diagnostic: Diagnostic, span: Span, text: &str) -> Diagnostic {
    let mut diagnostic = diagnostic.fix(span, text);
    let shown: Vec<&str> = text.lines().map(str::trim).collect();
    diagnostic.helps.insert(0, format!("write `{}`", shown.join(" ")));
    diagnostic
}

/// Is the whole text in one pair of parentheses?
fn is_in_parentheses(text: &str) -> bool {
    let mut depth = 0_usize;
    let ends = text.char_indices().find_map(|(at, c)| {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        (depth == 0).then_some(at + 1)
    });
    text.starts_with('(') && ends == Some(text.len())
}

/// Operations on one tensor, whose other arguments must be named.
fn takes_named(builtin: Builtin) -> bool {
    matches!(builtin, Builtin::Reduce(_) | Builtin::Along(_) | Builtin::Split | Builtin::Unbind | Builtin::Pad)
}

/// Attn's name for an argument of another library.
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

/// The library that `torch`, `torch.nn.functional` or `np` refers to.
fn library_of(expr: &ast::Expr) -> Option<&str> {
    match &expr.kind {
        ExprKind::Name(name) if idioms::LIBRARIES.contains(&name.name.as_str()) => Some(&name.name),
        ExprKind::Field { base, name } if idioms::PARTS.contains(&name.name.as_str()) => library_of(base),
        _ => None,
    }
}
