//! Expressions, types, lists and statements as layouts.
//!
//! In: the tree, and the tokens in the order of the text. Out: the parts of a [`Doc`]. Where a line
//! is too long, the outermost list or chain of operators is broken: a list has one entry a line and
//! a comma at its end, a chain ends its lines with operators. Parentheses stay.
//!
//! Operators have spaces around them, except between dimensions: see `spacing`.

use super::doc::{self, Doc};
use super::lists::List;
use super::spacing::{Context, is_tight, precedence};
use super::tokens::{Cursor, Docs};
use crate::syntax::ast::*;
use crate::syntax::token::Token;

/// ` = value`, if there is one.
pub(super) fn default<'a>(c: &mut Cursor<'a>, value: Option<&Expr>, out: &mut Docs<'a>) {
    if let Some(value) = value {
        out.push(Doc::Spaces(1));
        c.token(out);
        out.push(Doc::Spaces(1));
        expr(c, value, out);
    }
}

/// `std.nn`
pub(super) fn path<'a>(c: &mut Cursor<'a>, out: &mut Docs<'a>) {
    c.token(out);
    while c.next() == Some(Token::Dot) {
        c.token(out);
        c.token(out);
    }
}

/// `<D, eps: f32 = 1e-5>`, if it is there.
pub(super) fn generic_params<'a>(c: &mut Cursor<'a>, params: &[GenericParam], out: &mut Docs<'a>) {
    if !matches!(c.next(), Some(Token::Lt | Token::LtElem)) {
        return;
    }
    let mut params_left = params.iter();
    List::new(params.len()).write(c, out, |c, out| {
        let Some(param) = params_left.next() else { return };
        c.token(out);
        if let Some(ty_of) = &param.ty {
            c.token(out);
            out.push(Doc::Spaces(1));
            ty(c, ty_of, out);
        }
        if param.elem.is_some() {
            out.push(Doc::Spaces(1));
            c.token(out);
            out.push(Doc::Spaces(1));
            c.token(out);
        }
        default(c, param.default.as_ref(), out);
    });
}

/// `(x, axis = -1)`
fn arguments<'a>(c: &mut Cursor<'a>, args: &[Arg], out: &mut Docs<'a>) {
    let mut args_left = args.iter();
    List::new(args.len()).write(c, out, |c, out| {
        let Some(arg) = args_left.next() else { return };
        argument_name(c, arg.name.is_some(), out);
        expr(c, &arg.value, out);
    });
}

/// `eps = ` before an argument that is given by name.
fn argument_name<'a>(c: &mut Cursor<'a>, is_named: bool, out: &mut Docs<'a>) {
    if is_named {
        c.token(out);
        out.push(Doc::Spaces(1));
        c.token(out);
        out.push(Doc::Spaces(1));
    }
}

/// `<D, eps = 1e-5>`, if it is there.
fn generic_args<'a>(c: &mut Cursor<'a>, args: &[GenericArg], out: &mut Docs<'a>) {
    if !matches!(c.next(), Some(Token::Lt | Token::LtElem)) {
        return;
    }
    let mut args_left = args.iter();
    List::new(args.len()).write(c, out, |c, out| {
        let Some(arg) = args_left.next() else { return };
        argument_name(c, arg.name.is_some(), out);
        match &arg.value {
            GenericValue::Expr(value) => dimension(c, value, out),
            GenericValue::Elem(_) => c.token(out),
            GenericValue::Layer(layer) => ty(c, layer, out),
        }
    });
}

/// A type.
pub(super) fn ty<'a>(c: &mut Cursor<'a>, ty: &Type, out: &mut Docs<'a>) {
    // `(f32)` is `f32`.
    if c.next() == Some(Token::LParen) && c.start() < ty.span.start as usize {
        c.token(out);
        self::ty(c, ty, out);
        c.skip(Token::Comma, out);
        c.token(out);
        return;
    }
    match &ty.kind {
        TypeKind::Tensor { dims, .. } | TypeKind::Generic { dims, .. } => {
            c.token(out);
            if c.next() == Some(Token::LBracket) && c.start() < ty.span.end as usize {
                let mut dims_left = dims.iter();
                List::new(dims.len()).write(c, out, |c, out| match dims_left.next() {
                    Some(DimSpec::Dim(value)) => dimension(c, value, out),
                    Some(DimSpec::Rest(_)) => c.token(out),
                    None => {}
                });
            }
        }
        TypeKind::Named { generics, .. } => {
            path(c, out);
            if c.start() < ty.span.end as usize {
                generic_args(c, generics, out);
            }
        }
        TypeKind::Array { element, length } => {
            c.token(out);
            self::ty(c, element, out);
            c.token(out);
            out.push(Doc::Spaces(1));
            dimension(c, length, out);
            c.token(out);
        }
        TypeKind::Tuple(parts) => {
            let mut parts_left = parts.iter();
            List::new(parts.len()).write(c, out, |c, out| {
                if let Some(part) = parts_left.next() {
                    self::ty(c, part, out);
                }
            });
        }
        TypeKind::Error => {}
    }
}

/// An expression.
pub(super) fn expr<'a>(c: &mut Cursor<'a>, value: &Expr, out: &mut Docs<'a>) {
    spaced(c, value, Context::Value, out);
}

/// A dimension in a type.
fn dimension<'a>(c: &mut Cursor<'a>, value: &Expr, out: &mut Docs<'a>) {
    spaced(c, value, Context::Shape, out);
}

fn spaced<'a>(c: &mut Cursor<'a>, value: &Expr, context: Context, out: &mut Docs<'a>) {
    c.comments(out);
    let mut parentheses = 0;
    while c.next() == Some(Token::LParen) && opens_parentheses(c, value) {
        c.token(out);
        parentheses += 1;
    }
    if parentheses == 0 {
        bare(c, value, context, out);
        return;
    }
    let mut inside = vec![Doc::Soft];
    bare(c, value, context, &mut inside);
    c.comments(&mut inside);
    out.push(Doc::Group(vec![Doc::Indent(inside), Doc::Soft]));
    for _ in 0..parentheses {
        c.token(out);
    }
}

/// Is the `(` that comes next around the whole expression, and not a part of it?
fn opens_parentheses(c: &Cursor<'_>, value: &Expr) -> bool {
    let first = match &value.kind {
        ExprKind::Name(name) => name.span.start,
        ExprKind::Unary { op_span, .. } => op_span.start,
        ExprKind::Binary { left, .. } => left.span.start,
        ExprKind::Call { callee, .. } => callee.span.start,
        ExprKind::Field { base, .. } | ExprKind::Index { base, .. } => base.span.start,
        ExprKind::Block(block) => block.span.start,
        // Its own parenthesis is the last one before its first part.
        ExprKind::Tuple(parts) => {
            let first = parts.first().map_or(0, |part| part.span.start);
            return c.count_before(first as usize) > 1;
        }
        ExprKind::Int(_)
        | ExprKind::Float(_)
        | ExprKind::Bool(_)
        | ExprKind::Inf
        | ExprKind::Str(_)
        | ExprKind::List(_)
        | ExprKind::If { .. }
        | ExprKind::Train(_)
        | ExprKind::Error => return true,
    };
    c.start() < first as usize
}

fn bare<'a>(c: &mut Cursor<'a>, value: &Expr, context: Context, out: &mut Docs<'a>) {
    match &value.kind {
        ExprKind::Int(_)
        | ExprKind::Float(_)
        | ExprKind::Bool(_)
        | ExprKind::Inf
        | ExprKind::Str(_)
        | ExprKind::Name(_) => c.token(out),
        ExprKind::Tuple(parts) => {
            let mut parts_left = parts.iter();
            let list = List::tuple(parts.len());
            list.write(c, out, |c, out| {
                if let Some(part) = parts_left.next() {
                    expr(c, part, out);
                }
            });
        }
        ExprKind::List(items) => {
            let mut items_left = items.iter();
            List::new(items.len()).write(c, out, |c, out| {
                if let Some(item) = items_left.next() {
                    dimension(c, item, out);
                }
            });
        }
        ExprKind::Unary { op, operand, .. } => {
            c.token(out);
            if *op == UnaryOp::Not {
                out.push(Doc::Spaces(1));
            }
            spaced(c, operand, context, out);
        }
        ExprKind::Binary { .. } => chain(c, value, context, out),
        ExprKind::Call { callee, generics, args } => {
            spaced(c, callee, Context::Value, out);
            // A `<` at the end of a line compares.
            let mut elem = Docs::new();
            generic_args(c, generics, &mut elem);
            out.extend(doc::on_one_line(elem));
            arguments(c, args, out);
        }
        ExprKind::Field { base, .. } => {
            spaced(c, base, Context::Value, out);
            c.token(out);
            c.token(out);
        }
        ExprKind::Index { base, indices } => {
            spaced(c, base, Context::Value, out);
            let mut indices_left = indices.iter();
            List::new(indices.len()).write(c, out, |c, out| {
                if let Some(entry) = indices_left.next() {
                    index(c, entry, out);
                }
            });
        }
        ExprKind::If { .. } => {
            let mut group = Docs::new();
            conditional(c, value, &mut group);
            out.push(Doc::Group(group));
        }
        ExprKind::Block(inner) => {
            let mut group = Docs::new();
            block(c, inner, &mut group);
            out.push(Doc::Group(group));
        }
        ExprKind::Train(written) => train(c, written, out),
        ExprKind::Error => {}
    }
}

/// `train loss, clip = 1.0 { .. }`, each arm on its own line.
fn train<'a>(c: &mut Cursor<'a>, train: &Train, out: &mut Docs<'a>) {
    c.token(out);
    out.push(Doc::Spaces(1));
    expr(c, &train.loss, out);
    for setting in &train.settings {
        c.token(out);
        out.push(Doc::Spaces(1));
        argument_name(c, true, out);
        expr(c, &setting.value, out);
    }
    out.push(Doc::Spaces(1));
    c.token(out);
    let mut inside = Docs::new();
    for arm in &train.arms {
        inside.push(Doc::Hard);
        c.begin_line(&mut inside);
        let mut line = Docs::new();
        c.token(&mut line);
        where_clauses(c, &arm.where_clauses, &mut line);
        c.token(&mut line);
        line.push(Doc::Spaces(1));
        path(c, &mut line);
        if let Some(args) = &arm.args {
            arguments(c, args, &mut line);
        }
        c.skip(Token::Comma, &mut line);
        inside.push(Doc::Group(line));
    }
    close_brace(c, inside, out);
}

fn index<'a>(c: &mut Cursor<'a>, index: &Index, out: &mut Docs<'a>) {
    match index {
        Index::Rest(_) => c.token(out),
        Index::Expr(value) => spaced(c, value, Context::Index, out),
        Index::Range { start, end, step, .. } => {
            if let Some(start) = start {
                spaced(c, start, Context::Index, out);
            }
            c.token(out);
            if let Some(end) = end {
                spaced(c, end, Context::Index, out);
            }
            if let Some(step) = step {
                out.push(Doc::Spaces(1));
                c.token(out);
                out.push(Doc::Spaces(1));
                spaced(c, step, Context::Index, out);
            }
        }
    }
}

/// `if a { .. } else if b { .. } else { .. }`, which is on one line only as a whole.
fn conditional<'a>(c: &mut Cursor<'a>, value: &Expr, out: &mut Docs<'a>) {
    let mut open = value;
    while let ExprKind::If { condition, then, otherwise } = &open.kind {
        c.token(out);
        out.push(Doc::Spaces(1));
        expr(c, condition, out);
        out.push(Doc::Spaces(1));
        block(c, then, out);
        let Some(next) = otherwise else { return };
        out.push(Doc::Spaces(1));
        c.token(out);
        out.push(Doc::Spaces(1));
        open = next;
    }
    if let ExprKind::Block(last) = &open.kind {
        block(c, last, out);
    }
}

/// Operators of one precedence, from left to right.
fn chain<'a>(c: &mut Cursor<'a>, value: &Expr, context: Context, out: &mut Docs<'a>) {
    let mut operands: Vec<(BinaryOp, &Expr)> = Vec::new();
    let mut first = value;
    while let ExprKind::Binary { op, left, right, .. } = &first.kind {
        let has_parentheses = first.span.start < left.span.start && !operands.is_empty();
        let is_same = operands.first().is_none_or(|(known, _)| precedence(*known) == precedence(*op));
        if has_parentheses || !is_same {
            break;
        }
        operands.push((*op, right));
        first = left;
    }
    let is_tight = is_tight(&operands, first, context);
    c.comments(out);
    let mut group = Docs::new();
    spaced(c, first, context, &mut group);
    let mut rest = Docs::new();
    for (_, operand) in operands.iter().rev() {
        if !is_tight {
            rest.push(Doc::Spaces(1));
        }
        c.token(&mut rest);
        if !is_tight {
            rest.push(Doc::Line);
        }
        spaced(c, operand, context, &mut rest);
    }
    group.push(Doc::Indent(rest));
    out.push(Doc::Group(group));
}

/// ` where a, b`, on a line of its own if the head does not fit on one.
pub(super) fn where_clauses<'a>(c: &mut Cursor<'a>, clauses: &[Expr], out: &mut Docs<'a>) {
    if clauses.is_empty() {
        return;
    }
    let mut inside = Docs::new();
    // A line that begins with `where (` would be a call.
    let breaks = if c.second() == Some(Token::LParen) { Doc::Spaces(1) } else { Doc::Line };
    inside.push(breaks);
    c.token(&mut inside);
    inside.push(Doc::Spaces(1));
    let mut list = Docs::new();
    for (i, clause) in clauses.iter().enumerate() {
        if i > 0 {
            c.token(&mut list);
            list.push(Doc::Line);
        }
        expr(c, clause, &mut list);
    }
    inside.push(Doc::Group(vec![Doc::Indent(list)]));
    out.push(Doc::Indent(inside));
}

/// `{ .. }`, on one line if it has one statement and was on one line.
pub(super) fn block<'a>(c: &mut Cursor<'a>, block: &Block, out: &mut Docs<'a>) {
    c.token(out);
    let count = block.statements.len() + usize::from(block.value.is_some());
    if count == 0 {
        close_brace(c, Docs::new(), out);
        return;
    }
    let is_long = count > 1 || c.is_on_new_line();
    let end = || if is_long { Doc::Hard } else { Doc::Line };
    let mut inside = Docs::new();
    for stmt in &block.statements {
        inside.push(end());
        c.begin_line(&mut inside);
        statement(c, stmt, &mut inside);
    }
    if let Some(value) = &block.value {
        inside.push(end());
        c.begin_line(&mut inside);
        expr(c, value, &mut inside);
    }
    c.comments(&mut inside);
    out.push(Doc::Indent(inside));
    out.push(end());
    c.token(out);
}

/// The end of a list of lines, each of which begins with its newline.
pub(super) fn close_brace<'a>(c: &mut Cursor<'a>, mut lines: Docs<'a>, out: &mut Docs<'a>) {
    let mut comments = Docs::new();
    c.comments(&mut comments);
    if lines.is_empty() && comments.is_empty() {
        c.token(out);
        return;
    }
    lines.push(Doc::Hard);
    lines.extend(comments);
    out.push(Doc::Indent(lines));
    out.push(Doc::Hard);
    c.token(out);
}

fn statement<'a>(c: &mut Cursor<'a>, stmt: &Stmt, out: &mut Docs<'a>) {
    match &stmt.kind {
        StmtKind::Let { pattern: names, ty: annotation, value }
        | StmtKind::Var { pattern: names, ty: annotation, value } => {
            c.token(out);
            out.push(Doc::Spaces(1));
            pattern(c, names, out);
            if let Some(annotation) = annotation {
                c.token(out);
                out.push(Doc::Spaces(1));
                ty(c, annotation, out);
            }
            default(c, Some(value), out);
        }
        StmtKind::Length { value, where_clauses: clauses, .. } => {
            let mut line = Docs::new();
            for _ in 0..3 {
                c.token(&mut line);
                line.push(Doc::Spaces(1));
            }
            line.pop();
            default(c, Some(value), &mut line);
            where_clauses(c, clauses, &mut line);
            out.push(Doc::Group(line));
        }
        StmtKind::Assign { target, value } => {
            expr(c, target, out);
            default(c, Some(value), out);
        }
        StmtKind::Tap { .. } | StmtKind::Reset { .. } => {
            c.token(out);
            out.push(Doc::Spaces(1));
            c.token(out);
        }
        StmtKind::For { pattern: names, iterable, body } => {
            c.token(out);
            out.push(Doc::Spaces(1));
            pattern(c, names, out);
            out.push(Doc::Spaces(1));
            c.token(out);
            out.push(Doc::Spaces(1));
            match iterable {
                Iterable::Range { start, end } => {
                    expr(c, start, out);
                    c.token(out);
                    expr(c, end, out);
                }
                Iterable::Expr(value) => expr(c, value, out),
            }
            loop_body(c, body, out);
        }
        StmtKind::While { condition, body } => {
            c.token(out);
            out.push(Doc::Spaces(1));
            expr(c, condition, out);
            loop_body(c, body, out);
        }
        StmtKind::Break => c.token(out),
        StmtKind::Expr(value) => expr(c, value, out),
        StmtKind::Error => {}
    }
}

fn loop_body<'a>(c: &mut Cursor<'a>, body: &Block, out: &mut Docs<'a>) {
    out.push(Doc::Spaces(1));
    c.comments(out);
    let mut inside = Docs::new();
    block(c, body, &mut inside);
    out.push(Doc::Group(inside));
}

fn pattern<'a>(c: &mut Cursor<'a>, names: &Pattern, out: &mut Docs<'a>) {
    match names {
        Pattern::Name(_) | Pattern::Ignore(_) => c.token(out),
        Pattern::Tuple { parts, .. } => {
            let mut each = parts.iter();
            List::new(parts.len()).write(c, out, |c, out| {
                if let Some(part) = each.next() {
                    pattern(c, part, out);
                }
            });
        }
    }
}
