//! Python's slices: `x[:, 0]`, `x[1:]`, `x[a:b:2]`, `x[..., 0]`, `x[:, None]`.

use super::{Inside, Scan, made};
use crate::diagnostics::codes::syntax as codes;
use crate::diagnostics::{Diagnostic, Diagnostics, fixed_text};
use crate::source::Span;
use crate::syntax::token::{Lexeme, Token};
use std::collections::BTreeSet;

/// In indices, replaces `:` by `..`, a lone `:` by `0..`, a second `:` by `step`, and `...` by
/// `..`.
pub(super) fn translate<'a>(lexemes: Vec<Lexeme<'a>>, text: &'a str, diagnostics: &mut Diagnostics) -> Vec<Lexeme<'a>> {
    let is_part = |token| matches!(token, Token::Colon | Token::DotDot | Token::Ident("None" | "newaxis"));
    if !lexemes.iter().any(|lexeme| is_part(lexeme.token)) {
        return lexemes;
    }
    let scan = Scan::new(&lexemes);
    let added = added_axes(&lexemes, &scan, text, diagnostics);
    let mut out: Vec<Lexeme<'a>> = Vec::with_capacity(lexemes.len());
    // One diagnostic for each pair of brackets, by the position of the opening one.
    let mut found: Vec<(usize, Diagnostic)> = Vec::new();
    let mut skip = false;
    // The end of the `-1` in `x[::-1]`.
    let mut backwards = 0;
    // The last `:` that was replaced in each pair of brackets.
    let mut sliced = std::collections::BTreeMap::new();
    for (at, lexeme) in lexemes.iter().enumerate() {
        if std::mem::take(&mut skip) || at < backwards {
            continue;
        }
        let place = scan.place(at);
        let next = lexemes.get(at + 1);
        let dots = lexeme.token == Token::DotDot
            && next.is_some_and(|next| next.token == Token::Dot && next.span.start == lexeme.span.end);
        let in_index = place.holds == Inside::Indices;
        let Some(open) = place.open.filter(|_| in_index && (dots || lexeme.token == Token::Colon)) else {
            out.push(*lexeme);
            continue;
        };
        let (span, replacement) = if dots {
            skip = true;
            (next.map_or(lexeme.span, |next| lexeme.span.to(next.span)), "..")
        } else {
            let before = at.checked_sub(1).and_then(|at| lexemes.get(at)).map(|lexeme| lexeme.token);
            let after = next.map(|next| next.token);
            let ends = matches!(after, Some(Token::RBracket | Token::Comma));
            // The second `:` of an entry precedes the step.
            let same_entry = |first: usize| {
                let between = lexemes.iter().enumerate().take(at).skip(first);
                !between.into_iter().any(|(i, l)| l.token == Token::Comma && scan.place(i).open == Some(open))
            };
            if sliced.insert(open, at).is_some_and(same_entry) {
                if after == Some(Token::Minus) {
                    let ends = scan.find(&lexemes, at, |token| token == Token::Comma);
                    backwards = ends.unwrap_or_else(|| scan.end(&lexemes, at));
                    let last = lexemes.get(backwards.saturating_sub(1)).map_or(lexeme.span, |last| last.span);
                    found.retain(|(other, _)| *other != open);
                    diagnostics.push(
                        Diagnostic::error(codes::SLICE, "a slice cannot run backwards")
                            .at(lexeme.span.to(last), "")
                            .help("use an index that counts down: `x[S - 1 - iota(S)]`, for an axis of length S"),
                    );
                    continue;
                }
                let replacement = if ends { "" } else { " step " };
                if !ends {
                    out.push(Lexeme { token: Token::Step, span: lexeme.span, tainted: true });
                }
                if let Some((_, message)) = found.iter_mut().rev().find(|(other, _)| *other == open) {
                    *message = message.clone().fix(lexeme.span, replacement);
                }
                continue;
            }
            let begins = matches!(before, Some(Token::LBracket | Token::Comma));
            let whole = begins && (ends || after == Some(Token::Colon));
            if whole {
                out.push(made(Token::Int(0), lexeme.span));
            }
            (lexeme.span, if whole { "0.." } else { ".." })
        };
        out.push(Lexeme { token: Token::DotDot, span, tainted: true });
        if added.contains(&open) {
            continue;
        }
        let written = if dots { "`...`" } else { "`:`" };
        let message = || Diagnostic::error(codes::SLICE, format!("{written} is not slice syntax")).at(span, "");
        match found.iter_mut().rev().find(|(other, _)| *other == open) {
            Some((_, message)) => *message = message.clone().fix(span, replacement),
            None => found.push((open, message().fix(span, replacement))),
        }
    }
    for (n, (open, message)) in found.into_iter().enumerate() {
        let last = scan.closers.get(open).copied().flatten().unwrap_or(lexemes.len().saturating_sub(1));
        let (Some(first), Some(last)) = (lexemes.get(open), lexemes.get(last)) else { continue };
        let start = if n < MAX_OPERANDS { operand_start(&lexemes, &scan, open) } else { None };
        let start = start.map_or(first.span.start, |span| span.start);
        let whole = Span::new(first.span.file, start, last.span.end);
        let shown = fixed_text(text, whole, [&message]);
        let whole_axis = shown.contains("0..,") || shown.contains("0..]");
        let mut message = message.help(format!("write `{shown}`"));
        if whole_axis {
            message = message.help("`0..` is a whole axis; `..` alone stands for all remaining axes");
        }
        diagnostics.push(message);
    }
    out
}

/// Reports indices that add axes of length 1, `x[:, None]`; returns their opening brackets.
fn added_axes(lexemes: &[Lexeme<'_>], scan: &Scan, text: &str, diagnostics: &mut Diagnostics) -> BTreeSet<usize> {
    let nones = lexemes.iter().enumerate().filter(|(_, l)| matches!(l.token, Token::Ident("None" | "newaxis")));
    let places = nones.map(|(at, _)| scan.place(at)).filter(|place| place.holds == Inside::Indices);
    let brackets: BTreeSet<usize> = places.filter_map(|place| place.open).collect();
    let mut added = BTreeSet::new();
    for open in brackets.into_iter().take(MAX_OPERANDS) {
        let found = scan.closers.get(open).copied().flatten().and_then(|closer| {
            let start = operand_start(lexemes, scan, open)?;
            Some((closer, start, pattern(lexemes.get(open + 1..closer)?)?))
        });
        let Some((closer, start, pattern)) = found else { continue };
        let place = start.to(lexemes[closer].span);
        let operand = text.get(start.start as usize..lexemes[open].span.start as usize).unwrap_or("x");
        let shown = format!("rearrange({operand}, \"{pattern}\")");
        diagnostics.push(
            Diagnostic::error(codes::SLICE, "an index does not add an axis")
                .at(lexemes[open].span.to(lexemes[closer].span), "")
                .help(format!("write `{shown}`"))
                .fix(place, shown),
        );
        added.insert(open);
    }
    added
}

/// The pattern equivalent to `:, None`; `None` if there is another entry than `:`, `...` and
/// `None`.
fn pattern(entries: &[Lexeme<'_>]) -> Option<String> {
    let mut names = ('a'..='h').map(String::from);
    let (mut from, mut to) = (Vec::new(), Vec::new());
    let rest = || "..".to_string();
    for entry in entries.split(|lexeme| lexeme.token == Token::Comma) {
        let tokens: Vec<Token<'_>> = entry.iter().map(|lexeme| lexeme.token).collect();
        match tokens.as_slice() {
            [Token::Colon] => {
                let name = names.next()?;
                from.push(name.clone());
                to.push(name);
            }
            [Token::DotDot, Token::Dot] if !from.contains(&rest()) => {
                from.push(rest());
                to.push(rest());
            }
            [Token::Ident("None" | "newaxis")] | [Token::Ident(_), Token::Dot, Token::Ident("newaxis")] => {
                to.push("1".to_string());
            }
            [] => {}
            _ => return None,
        }
    }
    if !from.contains(&rest()) {
        from.push(rest());
        to.push(rest());
    }
    Some(format!("{} -> {}", from.join(" "), to.join(" ")))
}

/// The maximum number of operands that are searched for.
const MAX_OPERANDS: usize = 64;

/// The start of the indexed operand: a name or a bracket, with the calls and fields before it.
fn operand_start(lexemes: &[Lexeme<'_>], scan: &Scan, open: usize) -> Option<Span> {
    super::operators::start(lexemes, scan, open).and_then(|at| lexemes.get(at)).map(|lexeme| lexeme.span)
}
