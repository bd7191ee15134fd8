//! Tokens and trees as text, for `--emit tokens` and `--emit ast`.
//!
//! In: the output of lexer, layout and parser. Out: one line for each token; for trees one line for
//! each declaration and statement, preceded by its location. Expressions are printed fully
//! parenthesised, in prefix notation, as `(+ x ln_1(x))`, so that the text shows how they were
//! parsed.

use super::ast::*;
use super::token::{Lexeme, Token};
use crate::source::{SourceFile, Span};
use std::fmt::Write;

/// The tokens of a file, each with its location, its kind and, unless the kind determines it, its
/// text.
pub fn tokens(lexemes: &[Lexeme<'_>], file: &SourceFile) -> String {
    let mut text = String::new();
    for lexeme in lexemes {
        let place = file.line_column(lexeme.span.start).to_string();
        let written = file.text().get(lexeme.span.range()).unwrap_or("");
        let shown = match lexeme.token {
            Token::Ident(name) => format!("name {name}"),
            Token::Int(value) => format!("integer {value}"),
            Token::Float(value) => format!("float {value:?}"),
            Token::Str(_) => format!("string {written}"),
            Token::Doc(line) => format!("doc {}", line.trim()),
            Token::Elem(elem) => format!("type {}", elem.name()),
            Token::Newline => "end of line".to_string(),
            Token::Missing => "unreadable".to_string(),
            _ => written.to_string(),
        };
        let _ = writeln!(text, "{place:<7} {shown}");
    }
    text
}

/// The tree of a file.
pub fn ast(tree: &File, file: &SourceFile) -> String {
    let mut dump = Dump { file, text: String::new(), depth: 0 };
    for item in &tree.items {
        dump.item(item);
    }
    dump.text
}

/// A single expression, as [`ast`] prints it.
pub fn expr(expr: &Expr) -> String {
    let mut text = String::new();
    write_expr(&mut text, expr);
    text
}

/// A single type, in source syntax.
pub fn ty(ty: &Type) -> String {
    let mut text = String::new();
    write_type(&mut text, ty);
    text
}

struct Dump<'a> {
    file: &'a SourceFile,
    text: String,
    depth: usize,
}

impl Dump<'_> {
    fn line(&mut self, span: Span, content: &str) {
        let place = self.file.line_column(span.start).to_string();
        let _ = writeln!(self.text, "{place:<7} {:indent$}{content}", "", indent = 2 * self.depth);
    }

    fn item(&mut self, item: &Item) {
        match item {
            Item::Use(item) => self.line(item.span, &format!("use {}", path(&item.path))),
            Item::Layer(layer) => self.layer(layer),
            Item::Function(function) => self.function(function),
        }
    }

    fn layer(&mut self, layer: &Layer) {
        self.line(layer.span, &format!("{} {}", layer.kind.keyword(), layer.name.name));
        self.depth += 1;
        self.head(layer.span, &layer.docs, &layer.attributes, &layer.generics);
        self.conditions(&layer.where_clauses);
        for field in &layer.fields {
            let kind = if field.is_state { "state" } else { "field" };
            let mut content = format!("{kind} {}: {}", field.name.name, ty(&field.ty));
            if let Some(init) = &field.init {
                let _ = write!(content, " = {}", expr(init));
            }
            self.line(field.span, &content);
            self.depth += 1;
            self.head(field.span, &field.docs, &field.attributes, &[]);
            self.depth -= 1;
        }
        for function in &layer.functions {
            self.function(function);
        }
        self.depth -= 1;
    }

    fn head(&mut self, span: Span, docs: &str, attributes: &[Attribute], generics: &[GenericParam]) {
        if !docs.is_empty() {
            self.line(span, &format!("docs {docs:?}"));
        }
        for attribute in attributes {
            let value = attribute.value.as_ref().map_or(String::new(), |value| format!(" = {}", expr(value)));
            self.line(attribute.span, &format!("attribute {}{value}", attribute.name.name));
        }
        for generic in generics {
            let mut content = format!("generic {}", generic.name.name);
            if let Some(given) = &generic.ty {
                let _ = write!(content, ": {}", ty(given));
            }
            if let Some(default) = &generic.default {
                let _ = write!(content, " = {}", expr(default));
            }
            if let Some(elem) = generic.elem {
                let _ = write!(content, " = {elem}");
            }
            self.line(generic.span, &content);
        }
    }

    fn conditions(&mut self, conditions: &[Expr]) {
        for condition in conditions {
            self.line(condition.span, &format!("where {}", expr(condition)));
        }
    }

    fn function(&mut self, function: &Function) {
        let public = if function.is_pub { "pub " } else { "" };
        self.line(function.span, &format!("{public}fn {}", function.name.name));
        self.depth += 1;
        self.head(function.span, &function.docs, &function.attributes, &function.generics);
        for param in &function.params {
            let default = param.default.as_ref().map_or(String::new(), |value| format!(" = {}", expr(value)));
            self.line(param.span, &format!("param {}: {}{default}", param.name.name, ty(&param.ty)));
            self.depth += 1;
            self.head(param.span, &param.docs, &[], &[]);
            self.depth -= 1;
        }
        if let Some(result) = &function.result {
            self.line(result.span, &format!("result {}", ty(result)));
        }
        self.conditions(&function.where_clauses);
        self.block(&function.body);
        self.depth -= 1;
    }

    fn block(&mut self, block: &Block) {
        for stmt in &block.statements {
            self.stmt(stmt);
        }
        if let Some(value) = &block.value {
            self.value(value.span, "value", value);
        }
    }

    /// Prints a line that ends with an expression; an `if` or a block is spread over lines of its
    /// own.
    fn value(&mut self, span: Span, before: &str, value: &Expr) {
        match &value.kind {
            ExprKind::If { condition, then, otherwise } => {
                self.line(span, &format!("{before} if {}", expr(condition)));
                self.indented(then);
                if let Some(otherwise) = otherwise {
                    match &otherwise.kind {
                        ExprKind::Block(block) => {
                            self.line(otherwise.span, "else");
                            self.indented(block);
                        }
                        _ => self.value(otherwise.span, "else", otherwise),
                    }
                }
            }
            ExprKind::Block(block) => {
                self.line(span, &format!("{before} block"));
                self.indented(block);
            }
            _ => self.line(span, &format!("{before} {}", expr(value))),
        }
    }

    fn indented(&mut self, block: &Block) {
        self.depth += 1;
        self.block(block);
        self.depth -= 1;
    }

    fn stmt(&mut self, stmt: &Stmt) {
        let bind = |word: &str, pattern: &Pattern, given: &Option<Type>| {
            let given = given.as_ref().map_or(String::new(), |given| format!(": {}", ty(given)));
            format!("{word} {}{given} =", pattern_text(pattern))
        };
        match &stmt.kind {
            StmtKind::Let { pattern, ty, value } => self.value(stmt.span, &bind("let", pattern, ty), value),
            StmtKind::Length { name, value, where_clauses } => {
                self.value(stmt.span, &format!("let dim {}{} =", name.name, clauses(where_clauses)), value);
            }
            StmtKind::Var { pattern, ty, value } => self.value(stmt.span, &bind("var", pattern, ty), value),
            StmtKind::Assign { target, value } => self.value(stmt.span, &format!("assign {} =", expr(target)), value),
            StmtKind::Tap { name } => self.line(stmt.span, &format!("tap {}", name.name)),
            StmtKind::Reset { name } => self.line(stmt.span, &format!("reset {}", name.name)),
            StmtKind::For { pattern, iterable, body } => {
                let iterable = match iterable {
                    Iterable::Range { start, end } => format!("{} .. {}", expr(start), expr(end)),
                    Iterable::Expr(iterable) => expr(iterable),
                };
                self.line(stmt.span, &format!("for {} in {iterable}", pattern_text(pattern)));
                self.indented(body);
            }
            StmtKind::While { condition, body } => {
                self.line(stmt.span, &format!("while {}", expr(condition)));
                self.indented(body);
            }
            StmtKind::Break => self.line(stmt.span, "break"),
            StmtKind::Expr(expr) => self.value(stmt.span, "do", expr),
            StmtKind::Error => self.line(stmt.span, "error"),
        }
    }
}

fn path(parts: &[Ident]) -> String {
    parts.iter().map(|part| part.name.as_str()).collect::<Vec<_>>().join(".")
}

fn pattern_text(pattern: &Pattern) -> String {
    match pattern {
        Pattern::Name(name) => name.name.clone(),
        Pattern::Ignore(_) => "_".to_string(),
        Pattern::Tuple { parts, .. } => {
            format!("({})", parts.iter().map(pattern_text).collect::<Vec<_>>().join(", "))
        }
    }
}

fn write_list<T>(text: &mut String, items: &[T], mut write: impl FnMut(&mut String, &T)) {
    for (i, item) in items.iter().enumerate() {
        if i > 0 {
            text.push_str(", ");
        }
        write(text, item);
    }
}

fn write_type(text: &mut String, ty: &Type) {
    match &ty.kind {
        TypeKind::Tensor { elem, dims } => {
            text.push_str(elem.name());
            if !dims.is_empty() {
                write_dims(text, dims);
            }
        }
        TypeKind::Generic { elem, dims } => {
            text.push_str(&elem.name);
            write_dims(text, dims);
        }
        TypeKind::Named { path: parts, generics } => {
            text.push_str(&path(parts));
            write_generics(text, generics);
        }
        TypeKind::Array { element, length } => {
            text.push('[');
            write_type(text, element);
            text.push_str("; ");
            write_expr(text, length);
            text.push(']');
        }
        TypeKind::Tuple(parts) => {
            text.push('(');
            write_list(text, parts, write_type);
            text.push(')');
        }
        TypeKind::Error => text.push_str("error"),
    }
}

fn write_dims(text: &mut String, dims: &[DimSpec]) {
    text.push('[');
    write_list(text, dims, |text, dim| match dim {
        DimSpec::Rest(_) => text.push_str(".."),
        DimSpec::Dim(expr) => write_expr(text, expr),
    });
    text.push(']');
}

fn write_generics(text: &mut String, generics: &[GenericArg]) {
    if generics.is_empty() {
        return;
    }
    text.push('<');
    write_list(text, generics, |text, generic| {
        if let Some(name) = &generic.name {
            let _ = write!(text, "{} = ", name.name);
        }
        match &generic.value {
            GenericValue::Expr(expr) => write_expr(text, expr),
            GenericValue::Elem(elem) => text.push_str(elem.name()),
            GenericValue::Layer(ty) => write_type(text, ty),
        }
    });
    text.push('>');
}

fn write_expr(text: &mut String, expr: &Expr) {
    match &expr.kind {
        ExprKind::Int(value) => drop(write!(text, "{value}")),
        ExprKind::Float(value) => drop(write!(text, "{value:?}")),
        ExprKind::Bool(value) => drop(write!(text, "{value}")),
        ExprKind::Inf => text.push_str("inf"),
        ExprKind::Str(value) => drop(write!(text, "{value:?}")),
        ExprKind::Name(name) => text.push_str(&name.name),
        ExprKind::Tuple(parts) => {
            text.push_str("(tuple ");
            write_list(text, parts, write_expr);
            text.push(')');
        }
        ExprKind::List(items) => {
            text.push('[');
            write_list(text, items, write_expr);
            text.push(']');
        }
        ExprKind::Unary { op, operand, .. } => {
            let _ = write!(text, "({} ", op.symbol());
            write_expr(text, operand);
            text.push(')');
        }
        ExprKind::Binary { op, left, right, .. } => {
            let _ = write!(text, "({} ", op.symbol());
            write_expr(text, left);
            text.push(' ');
            write_expr(text, right);
            text.push(')');
        }
        ExprKind::Call { callee, generics, args } => {
            write_expr(text, callee);
            write_generics(text, generics);
            text.push('(');
            write_list(text, args, write_arg);
            text.push(')');
        }
        ExprKind::Field { base, name } => {
            write_expr(text, base);
            let _ = write!(text, ".{}", name.name);
        }
        ExprKind::Index { base, indices } => {
            write_expr(text, base);
            text.push('[');
            write_list(text, indices, write_index);
            text.push(']');
        }
        ExprKind::If { condition, then, otherwise } => {
            text.push_str("(if ");
            write_expr(text, condition);
            text.push(' ');
            write_block(text, then);
            if let Some(otherwise) = otherwise {
                text.push_str(" else ");
                write_expr(text, otherwise);
            }
            text.push(')');
        }
        ExprKind::Block(block) => write_block(text, block),
        ExprKind::Train(train) => {
            text.push_str("(train ");
            write_expr(text, &train.loss);
            for setting in &train.settings {
                text.push_str(", ");
                write_arg(text, setting);
            }
            text.push_str(" {");
            write_list(text, &train.arms, |text, arm| {
                let _ = write!(text, "{:?}", arm.pattern);
                for (i, clause) in arm.where_clauses.iter().enumerate() {
                    text.push_str(if i == 0 { " where " } else { ", " });
                    write_expr(text, clause);
                }
                let _ = write!(text, ": {}", path(&arm.rule));
                if let Some(args) = &arm.args {
                    text.push('(');
                    write_list(text, args, write_arg);
                    text.push(')');
                }
            });
            text.push_str("})");
        }
        ExprKind::Error => text.push_str("error"),
    }
}

fn write_arg(text: &mut String, arg: &Arg) {
    if let Some(name) = &arg.name {
        let _ = write!(text, "{} = ", name.name);
    }
    write_expr(text, &arg.value);
}

fn write_index(text: &mut String, index: &Index) {
    match index {
        Index::Rest(_) => text.push_str(".."),
        Index::Expr(expr) => write_expr(text, expr),
        Index::Range { start, end, step, .. } => {
            for (part, dots) in [(start, true), (end, false)] {
                if let Some(expr) = part {
                    write_expr(text, expr);
                }
                if dots {
                    text.push_str("..");
                }
            }
            if let Some(step) = step {
                text.push_str(" step ");
                write_expr(text, step);
            }
        }
    }
}

/// Prints a block inside an expression, on one line.
fn write_block(text: &mut String, block: &Block) {
    text.push('{');
    for stmt in &block.statements {
        write_stmt(text, stmt);
        text.push_str("; ");
    }
    if let Some(value) = &block.value {
        write_expr(text, value);
    }
    text.push('}');
}

/// ` where N <= C, ..`, or an empty string.
fn clauses(where_clauses: &[Expr]) -> String {
    let list: Vec<String> = where_clauses.iter().map(expr).collect();
    if list.is_empty() { String::new() } else { format!(" where {}", list.join(", ")) }
}

fn write_stmt(text: &mut String, stmt: &Stmt) {
    match &stmt.kind {
        StmtKind::Let { pattern, value, .. } => {
            let _ = write!(text, "let {} = ", pattern_text(pattern));
            write_expr(text, value);
        }
        StmtKind::Length { name, value, where_clauses } => {
            let _ = write!(text, "let dim {}{} = ", name.name, clauses(where_clauses));
            write_expr(text, value);
        }
        StmtKind::Var { pattern, value, .. } => {
            let _ = write!(text, "var {} = ", pattern_text(pattern));
            write_expr(text, value);
        }
        StmtKind::Assign { target, value } => {
            text.push_str("assign ");
            write_expr(text, target);
            text.push_str(" = ");
            write_expr(text, value);
        }
        StmtKind::Tap { name } => drop(write!(text, "tap {}", name.name)),
        StmtKind::Reset { name } => drop(write!(text, "reset {}", name.name)),
        StmtKind::For { pattern, iterable, body } => {
            let _ = write!(text, "for {} in ", pattern_text(pattern));
            match iterable {
                Iterable::Range { start, end } => {
                    write_expr(text, start);
                    text.push_str(" .. ");
                    write_expr(text, end);
                }
                Iterable::Expr(expr) => write_expr(text, expr),
            }
            text.push(' ');
            write_block(text, body);
        }
        StmtKind::While { condition, body } => {
            text.push_str("while ");
            write_expr(text, condition);
            text.push(' ');
            write_block(text, body);
        }
        StmtKind::Break => text.push_str("break"),
        StmtKind::Expr(expr) => {
            text.push_str("do ");
            write_expr(text, expr);
        }
        StmtKind::Error => text.push_str("error"),
    }
}
