//! Items and their members as layouts.
//!
//! In: the tree, and the tokens in the order of the text. Out: the parts of a [`Doc`]. Statements,
//! expressions and types are laid out by `exprs`.

use super::doc::{self, Doc};
use super::exprs;
use super::lists::List;
use super::tokens::{Cursor, Docs};
use crate::syntax::ast::*;
use crate::syntax::token::Token;

/// A whole file.
pub(super) fn file<'a>(c: &mut Cursor<'a>, file: &File, out: &mut Docs<'a>) {
    for item in &file.items {
        out.push(Doc::Hard);
        c.begin_line(out);
        match item {
            Item::Use(_) => use_item(c, out),
            Item::Layer(item) => layer(c, item, out),
            Item::Function(item) => function(c, item, out),
        }
    }
    out.push(Doc::Hard);
    c.comments(out);
}

fn use_item<'a>(c: &mut Cursor<'a>, out: &mut Docs<'a>) {
    meta(c, &[], out);
    c.token(out);
    out.push(Doc::Spaces(1));
    exprs::path(c, out);
}

/// Doc comments and attributes, each on its own line.
fn meta<'a>(c: &mut Cursor<'a>, attributes: &[Attribute], out: &mut Docs<'a>) {
    let mut attributes = attributes.iter();
    loop {
        match c.next() {
            Some(Token::Doc(_)) => c.token(out),
            Some(Token::Hash) => {
                let value = attributes.next().and_then(|attribute| attribute.value.as_ref());
                for _ in 0..3 {
                    c.token(out);
                }
                exprs::default(c, value, out);
                c.token(out);
            }
            _ => return,
        }
        out.push(Doc::Hard);
        c.comments(out);
    }
}

fn layer<'a>(c: &mut Cursor<'a>, layer: &Layer, out: &mut Docs<'a>) {
    meta(c, &layer.attributes, out);
    let mut head = Docs::new();
    c.comments(out);
    c.token(&mut head);
    head.push(Doc::Spaces(1));
    c.token(&mut head);
    exprs::generic_params(c, &layer.generics, &mut head);
    exprs::where_clauses(c, &layer.where_clauses, &mut head);
    head.push(if layer.where_clauses.is_empty() { Doc::Spaces(1) } else { Doc::Line });
    c.token(&mut head);
    out.push(Doc::Group(head));

    let mut members: Vec<Member<'_>> = layer.fields.iter().map(Member::Field).collect();
    members.extend(layer.functions.iter().map(Member::Function));
    members.sort_by_key(Member::start);
    let mut inside = Docs::new();
    let mut rest = members.as_slice();
    while let [first, others @ ..] = rest {
        match first {
            Member::Function(item) => {
                inside.push(Doc::Hard);
                c.begin_line(&mut inside);
                function(c, item, &mut inside);
                c.skip(Token::Comma, &mut inside);
                rest = others;
            }
            Member::Field(_) => rest = fields(c, rest, &mut inside),
        }
    }
    exprs::close_brace(c, inside, out);
}

/// A member of a layer.
enum Member<'t> {
    Field(&'t Field),
    Function(&'t Function),
}

impl Member<'_> {
    fn start(&self) -> u32 {
        match self {
            Member::Field(field) => field.span.start,
            Member::Function(function) => function.span.start,
        }
    }
}

/// A run of fields whose lines are adjacent; their types begin in one column. Returns the members
/// after it.
fn fields<'a, 't>(c: &mut Cursor<'a>, members: &'t [Member<'t>], out: &mut Docs<'a>) -> &'t [Member<'t>] {
    let mut run: Vec<(&Field, Docs<'a>, Docs<'a>)> = Vec::new();
    let mut rest = members;
    while let [Member::Field(field), others @ ..] = rest {
        let apart = c.is_apart() || matches!(c.next(), Some(Token::Doc(_)));
        if run.last().is_some_and(|(last, ..)| apart || last.is_state != field.is_state) {
            break;
        }
        let mut before = vec![Doc::Hard];
        c.begin_line(&mut before);
        meta(c, &field.attributes, &mut before);
        if field.is_state {
            c.token(&mut before);
            before.push(Doc::Spaces(1));
        }
        c.token(&mut before);
        c.token(&mut before);
        let mut after = Docs::new();
        exprs::ty(c, &field.ty, &mut after);
        exprs::default(c, field.init.as_ref(), &mut after);
        c.skip(Token::Comma, &mut after);
        run.push((field, before, after));
        rest = others;
    }
    let width = run.iter().map(|(field, ..)| field.name.name.len()).max().unwrap_or(0);
    for (field, before, after) in run {
        out.extend(before);
        out.push(Doc::Spaces(width - field.name.name.len() + 1));
        out.extend(after);
    }
    rest
}

fn function<'a>(c: &mut Cursor<'a>, function: &Function, out: &mut Docs<'a>) {
    meta(c, &function.attributes, out);
    c.comments(out);
    let mut head = Docs::new();
    if function.is_pub {
        c.token(&mut head);
        head.push(Doc::Spaces(1));
    }
    c.token(&mut head);
    head.push(Doc::Spaces(1));
    c.token(&mut head);
    exprs::generic_params(c, &function.generics, &mut head);
    let mut params = function.params.iter();
    List::new(function.params.len()).write(c, &mut head, |c, out| {
        let Some(param) = params.next() else { return };
        meta(c, &[], out);
        c.token(out);
        c.token(out);
        out.push(Doc::Spaces(1));
        exprs::ty(c, &param.ty, out);
        exprs::default(c, param.default.as_ref(), out);
    });
    if let Some(result) = &function.result {
        head.push(Doc::Spaces(1));
        c.token(&mut head);
        head.push(Doc::Spaces(1));
        let mut ty = Docs::new();
        exprs::ty(c, result, &mut ty);
        // Of a long head the parameters are broken, not the result.
        head.extend(doc::on_one_line(ty));
    }
    exprs::where_clauses(c, &function.where_clauses, &mut head);
    head.push(if function.where_clauses.is_empty() { Doc::Spaces(1) } else { Doc::Line });
    c.comments(&mut head);
    out.push(Doc::Group(head));
    let mut body = Docs::new();
    exprs::block(c, &function.body, &mut body);
    out.push(Doc::Group(body));
}
