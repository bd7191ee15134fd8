//! The answers about values and calls: inferred types, remarks, and the signature of a call.
//!
//! In: a document and the parameters of a request. Out: the result, as JSON.

use super::Remark;
use super::document::{Document, FILE};
use crate::diagnostics::{Diagnostics, NameKind};
use crate::reference;
use crate::source::Span;
use crate::syntax::lexer::lex;
use crate::syntax::token::Token;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The types of variables whose declarations have none.
pub(super) fn inlay_hints(document: &Document, _uri: &str, params: &Value) -> Value {
    let range = &params["range"];
    let (start, end) = (document.offset(&range["start"]), document.offset(&range["end"]));
    let hint = |(name, ty): (&Span, &String)| {
        let at = name.end as usize;
        let after = document.text.get(at..)?.trim_start();
        let is_inferred = !after.starts_with(':') && !after.starts_with("in ") && !ty.is_empty();
        let label = format!(": {ty}");
        (is_inferred && start <= at && at <= end)
            .then(|| json!({ "position": document.position(at), "label": label, "kind": 1 }))
    };
    let types = document.analysis().types.iter().filter_map(hint);
    types.chain(remark_hints(document, start, end)).collect()
}

/// The rewrites that the compiler made or missed, at the ends of their lines.
fn remark_hints(document: &Document, start: usize, end: usize) -> Vec<Value> {
    let mut lines: BTreeMap<usize, Vec<&Remark>> = BTreeMap::new();
    for remark in document.remarks() {
        let at = remark.at as usize;
        let line_end = at + document.text.get(at..).and_then(|rest| rest.find('\n')).unwrap_or_default();
        let same = lines.entry(line_end).or_default();
        if start <= line_end && at <= end && !same.contains(&remark) {
            same.push(remark);
        }
    }
    let name = |remark: &&Remark| match &remark.missed {
        Some(condition) => format!("not {} ({condition})", remark.pass),
        None => remark.pass.to_string(),
    };
    let hint = |(at, all): (&usize, &Vec<&Remark>)| {
        let mut names: Vec<String> = all.iter().map(name).collect();
        names.dedup();
        let lines = all.iter().map(|remark| format!("{}: {}", name(remark), remark.message));
        let tooltip = lines.collect::<Vec<_>>().join("\n");
        let position = document.position(*at);
        json!({ "position": position, "label": names.join(", "), "tooltip": tooltip, "paddingLeft": true })
    };
    lines.iter().filter(|(_, all)| !all.is_empty()).map(hint).collect()
}

/// A call that contains a position.
struct OpenCall {
    /// The offset of the end of the callee's name.
    name_end: usize,
    /// The offset of its `(`.
    open: usize,
    /// The closing brackets of those around it, innermost first.
    closers: String,
}

/// The innermost call whose arguments contain an offset.
fn open_call(before: &str) -> Option<OpenCall> {
    let lexemes = lex(FILE, before, &mut Diagnostics::new());
    let mut brackets = Vec::new();
    for (at, lexeme) in lexemes.iter().enumerate() {
        match lexeme.token {
            Token::LParen | Token::LBracket | Token::LBrace => brackets.push(at),
            Token::RParen | Token::RBracket | Token::RBrace => {
                brackets.pop();
            }
            _ => {}
        }
    }
    let block = brackets.iter().rposition(|at| lexemes.get(*at).is_some_and(|one| one.token == Token::LBrace));
    let mut inner = brackets.split_off(block.map_or(0, |block| block + 1));
    while let Some(at) = inner.pop() {
        let open = lexemes.get(at)?;
        // `f<8>(`: the name is before the `<`.
        let mut last = at.checked_sub(1)?;
        if lexemes.get(last)?.token == Token::Gt {
            last = lexemes.get(..last)?.iter().rposition(|one| one.token == Token::Lt)?.checked_sub(1)?;
        }
        let name = lexemes.get(last)?;
        if open.token == Token::LParen && matches!(name.token, Token::Ident(_) | Token::RBracket | Token::Where) {
            let is_list = |at: &usize| lexemes.get(*at).is_some_and(|one| one.token == Token::LBracket);
            let closers = inner.iter().rev().map(|at| if is_list(at) { ']' } else { ')' }).collect();
            return Some(OpenCall { name_end: name.span.end as usize, open: open.span.start as usize, closers });
        }
    }
    None
}

/// A program in which an open call has no arguments, and a closing bracket for each one around it.
/// Arguments may go on over several lines.
fn without_arguments(before: &str, call: &OpenCall, after: &str) -> String {
    let lexemes = lex(FILE, after, &mut Diagnostics::new());
    let (mut depth, mut closing) = (0, Vec::new());
    for lexeme in lexemes {
        match lexeme.token {
            Token::LParen | Token::LBracket => depth += 1,
            Token::RParen | Token::RBracket if depth > 0 => depth -= 1,
            Token::RParen | Token::RBracket => closing.push(lexeme.span),
            // No argument contains these.
            Token::LBrace | Token::RBrace | Token::Let | Token::Var | Token::For | Token::While => break,
            _ => {}
        }
    }
    // Brackets that are missing are the inner ones.
    let missing = call.closers.len().saturating_sub(closing.len());
    let rest = match closing.first() {
        Some(own) if closing.len() > call.closers.len() => own.end as usize,
        Some(outer) => outer.start as usize,
        None => after.find('\n').unwrap_or(after.len()),
    };
    let (before, rest) = (before.get(..call.open).unwrap_or_default(), after.get(rest..).unwrap_or_default());
    format!("{before}(){}{rest}", call.closers.get(..missing).unwrap_or_default())
}

/// The signature of the call around a position.
///
/// A call that is being written is rarely valid, so a copy of the program is checked in which it
/// has no arguments.
pub(super) fn signature_help(document: &Document, _uri: &str, params: &Value) -> Value {
    let offset = document.offset(&params["position"]);
    let (before, after) = document.text.split_at(offset);
    let Some(call) = open_call(before) else { return Value::Null };
    let changed = document.with_text(&without_arguments(before, &call, after));
    let analysis = changed.analysis();
    let is_callee = |at: Span| at.file == FILE && at.end as usize == call.name_end;
    let found = analysis.found.uses().iter().find(|one| one.kind == NameKind::Function && is_callee(one.at));
    let labels: Vec<String> = match found {
        Some(one) => {
            let source = analysis.sources.get(one.declared.file).map_or("", |file| file.text());
            let head = source.get(one.declared.start as usize..).and_then(|text| text.split('{').next());
            vec![head.unwrap_or_default().split_whitespace().collect::<Vec<_>>().join(" ")]
        }
        None => {
            let forms = reference::find(changed.name_at(call.name_end)).into_iter().flat_map(|entry| &entry.forms);
            forms.filter(|form| form.contains('(')).cloned().collect()
        }
    };
    let arguments = document.text.get(call.open..offset).unwrap_or_default();
    let given = parts(&format!("{arguments})"));
    let last = given.last().map_or("", |part| part.as_str());
    let signature = |label: &String| {
        let names: Vec<String> = parts(label);
        let named = last.split_once('=').map(|(name, _)| name.trim());
        let is = |part: &&String| part.split([':', '=']).next().map(str::trim) == named;
        let at = names.iter().position(|part| is(&part)).unwrap_or(given.len().saturating_sub(1));
        let shown: Vec<Value> = names.iter().map(|part| json!({ "label": part })).collect();
        json!({ "label": label, "parameters": shown, "activeParameter": at })
    };
    let signatures: Vec<Value> = labels.iter().map(signature).collect();
    let Some(active) = signatures.first().map(|first| first["activeParameter"].clone()) else { return Value::Null };
    json!({ "signatures": signatures, "activeSignature": 0, "activeParameter": active })
}

/// The parts between the first parentheses of a text that are separated by commas.
fn parts(text: &str) -> Vec<String> {
    let (mut depth, mut parts) = (0, vec![String::new()]);
    for c in text.chars() {
        match c {
            '(' | '[' => depth += 1,
            ')' | ']' => depth -= 1,
            _ => {}
        }
        match (c, depth, parts.last_mut()) {
            (')', 0, _) => break,
            (',', 1, _) => parts.push(String::new()),
            ('(', 1, _) => parts = vec![String::new()],
            (_, 1.., Some(last)) => last.push(c),
            _ => {}
        }
    }
    parts.into_iter().map(|part| part.trim().to_string()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_split_at_commas() {
        for (text, expected) in [
            ("f(x: f32[S, D], axis = g(1, 2))", vec!["x: f32[S, D]", "axis = g(1, 2)"]),
            ("f() -> (f32, f32)", vec![""]),
            ("f", vec![""]),
            ("((a, b), )", vec!["(a, b)", ""]),
        ] {
            assert_eq!(parts(text), expected, "{text}");
        }
    }

    #[test]
    fn a_call_may_go_on_over_lines() {
        let plain = |text: &str| {
            let (before, after) = text.split_once('|').unwrap();
            without_arguments(before, &open_call(before).unwrap(), after)
        };
        for (text, expected) in [
            ("fn f() { g(\n  x,\n  |y,\n  z[0]\n) }", "fn f() { g() }"),
            ("fn f() { h(g(\n  x,|\n  y), z)\n k }", "fn f() { h(g(), z)\n k }"),
            ("fn f() { h(g(x,|)\n k }", "fn f() { h(g())\n k }"),
            ("fn f() { [h(g(x,|\n let y = k(1) }", "fn f() { [h(g())]\n let y = k(1) }"),
            ("fn f() { g(|", "fn f() { g()"),
        ] {
            assert_eq!(plain(text), expected, "{text}");
        }
    }

    #[test]
    fn the_call_around_an_offset() {
        let call = |text: &str| open_call(text).map(|call| (call.name_end, call.open, call.closers));
        assert_eq!(call("fn f() { g(h(x, "), Some((12, 12, ")".to_string())));
        assert_eq!(call("fn f() { g<8>(x[h(1), 2"), Some((10, 13, String::new())));
        assert_eq!(call("fn f() { [b[0](x"), Some((14, 14, "]".to_string())));
        assert_eq!(call("fn f() { g(x) "), None);
        assert_eq!(call("fn f() { g(if c { "), None);
        assert_eq!(call("))((\"f("), None);
        assert_eq!(call(""), None);
    }
}
