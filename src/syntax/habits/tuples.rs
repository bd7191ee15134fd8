//! Tuples without parentheses: `let a, b = ..`, `-> A, B`, and a last line `a, b`.

use super::{Inside, Scan, between, made};
use crate::diagnostics::codes::syntax as codes;
use crate::diagnostics::{Diagnostic, Diagnostics, fixed_text};
use crate::source::Span;
use crate::syntax::token::{Lexeme, Token};
use std::collections::BTreeSet;

/// Inserts parentheses around tuples.
pub(super) fn translate<'a>(lexemes: Vec<Lexeme<'a>>, text: &'a str, diagnostics: &mut Diagnostics) -> Vec<Lexeme<'a>> {
    let scan = Scan::new(&lexemes);
    let candidate = |at: usize| {
        lexemes[at].token == Token::Comma
            && matches!(scan.place(at).holds, Inside::Body | Inside::Block | Inside::Members | Inside::Items)
    };
    if !(0..lexemes.len()).any(candidate) {
        return lexemes;
    }
    // Parentheses to insert: the token that each precedes, and its kind.
    let mut added: Vec<(usize, Token<'a>)> = Vec::new();
    let mut declared: BTreeSet<&str> = BTreeSet::new();
    let mut at = 0;
    while at < lexemes.len() {
        let place = scan.place(at);
        let token = lexemes[at].token;
        if let (Token::Ident(name), Some(Token::Let | Token::Var | Token::Comma | Token::LParen)) =
            (token, at.checked_sub(1).map(|at| lexemes[at].token))
        {
            declared.insert(name);
        }
        if token == Token::Arrow && !matches!(place.holds, Inside::Round | Inside::Indices | Inside::Square) {
            at = result(&lexemes, &scan, at, text, &mut added, diagnostics);
        } else if place.starts && matches!(place.holds, Inside::Body | Inside::Block) {
            at = statement(&lexemes, &scan, at, text, &declared, &mut added, diagnostics);
        } else {
            at += 1;
        }
    }
    let mut out = Vec::with_capacity(lexemes.len() + added.len());
    added.sort_by_key(|(at, _)| *at);
    let mut added = added.into_iter().peekable();
    for (at, lexeme) in lexemes.iter().enumerate() {
        while let Some((_, token)) = added.next_if(|(place, _)| *place == at) {
            let behind =
                at.checked_sub(1).and_then(|at| lexemes.get(at)).map_or(lexeme.span, |before| before.span.after());
            out.push(made(token, if token == Token::RParen { behind } else { lexeme.span }));
        }
        out.push(*lexeme);
    }
    let end = lexemes.last().map_or(Span::default(), |lexeme| lexeme.span.after());
    out.extend(added.map(|(_, token)| made(token, end)));
    out
}

/// Handles the result of a function, starting at its `->`; returns where to continue.
fn result<'a>(
    lexemes: &[Lexeme<'a>],
    scan: &Scan,
    arrow: usize,
    text: &'a str,
    added: &mut Vec<(usize, Token<'a>)>,
    diagnostics: &mut Diagnostics,
) -> usize {
    let around = scan.place(arrow).open;
    let here = |i: usize| scan.place(i).open == around;
    let end = (arrow + 1..lexemes.len())
        .find(|i| {
            here(*i) && matches!(lexemes[*i].token, Token::LBrace | Token::Where | Token::Newline | Token::Semi)
                || scan.place(*i).open.is_some_and(|open| around.is_some_and(|around| open < around))
        })
        .unwrap_or(lexemes.len());
    let commas = (arrow + 1..end).filter(|i| here(*i) && lexemes[*i].token == Token::Comma).count();
    if commas > 0 && end > arrow + 1 {
        wrap(
            lexemes,
            &[(arrow + 1, end)],
            arrow + 1,
            end,
            "",
            text,
            "several results need parentheses",
            added,
            diagnostics,
        );
    }
    end.max(arrow + 1)
}

/// Handles a statement; returns where to continue.
fn statement<'a>(
    lexemes: &[Lexeme<'a>],
    scan: &Scan,
    start: usize,
    text: &'a str,
    declared: &BTreeSet<&str>,
    added: &mut Vec<(usize, Token<'a>)>,
    diagnostics: &mut Diagnostics,
) -> usize {
    let first = lexemes[start].token;
    if first == Token::For {
        let around = scan.place(start).open;
        let end = scan.end(lexemes, start);
        let within = (start + 1..end).find(|i| lexemes[*i].token == Token::In && scan.place(*i).open == around);
        if let Some(within) = within
            && (start + 1..within).any(|i| lexemes[i].token == Token::Comma && scan.place(i).open == around)
        {
            let what = "several names need parentheses";
            wrap(lexemes, &[(start + 1, within)], start, within, "", text, what, added, diagnostics);
        }
        return start + 1;
    }
    // The clauses of `let dim N = n where N <= C, N >= 2` are not values.
    let next = |by: usize| lexemes.get(start + by).map(|lexeme| lexeme.token);
    if first == Token::Let && next(1) == Some(Token::Ident("dim")) && matches!(next(2), Some(Token::Ident(_))) {
        return start + 1;
    }
    if matches!(first, Token::While | Token::If | Token::Else | Token::Fn | Token::LBrace | Token::Doc(_)) {
        return start + 1;
    }
    // The arms of a `train`, and its settings, are not values either.
    if matches!(first, Token::Str(_)) {
        return start + 1;
    }
    let around = scan.place(start).open;
    let end = scan.end(lexemes, start);
    let here = |i: &usize| scan.place(*i).open == around;
    let is_name = |i: usize| matches!(lexemes.get(i).map(|l| l.token), Some(Token::Ident(_)));
    let trains = |i: &usize| lexemes[*i].token == Token::Ident("train") && is_name(*i + 1);
    let end = (start..end).filter(here).find(trains).unwrap_or(end);
    let is = |wanted: Token<'static>| move |i: &usize| lexemes[*i].token == wanted;
    let keyword = matches!(first, Token::Let | Token::Var);
    let from = if keyword { start + 1 } else { start };
    let equals = (from..end).filter(here).find(is(Token::Eq));
    let has_comma = |low: usize, high: usize| (low..high).filter(here).any(|i| lexemes[i].token == Token::Comma);
    let mut wrapped = Vec::new();
    let mut missing = "";
    match equals {
        Some(equals) => {
            if has_comma(from, equals) {
                wrapped.push((from, equals));
                let known = |i: usize| matches!(lexemes[i].token, Token::Ident(name) if declared.contains(name));
                let names_only = (from..equals).all(|i| matches!(lexemes[i].token, Token::Ident(_) | Token::Comma));
                if !keyword && names_only && !(from..equals).any(known) {
                    missing = "let ";
                }
            }
            if has_comma(equals + 1, end) {
                wrapped.push((equals + 1, end));
            }
        }
        None if has_comma(from, end) => wrapped.push((from, end)),
        None => {}
    }
    if !wrapped.is_empty() {
        wrap(lexemes, &wrapped, start, end, missing, text, "several values need parentheses", added, diagnostics);
    }
    // Blocks inside the statement are searched as well.
    start + 1
}

#[expect(clippy::too_many_arguments, reason = "the ranges, and what the message needs")]
fn wrap<'a>(
    lexemes: &[Lexeme<'a>],
    ranges: &[(usize, usize)],
    start: usize,
    end: usize,
    missing: &'static str,
    text: &'a str,
    what: &str,
    added: &mut Vec<(usize, Token<'a>)>,
    diagnostics: &mut Diagnostics,
) {
    let trimmed: Vec<(usize, usize)> = ranges
        .iter()
        .map(|&(from, to)| {
            let is_space = |i: usize| lexemes.get(i).is_some_and(|lexeme| lexeme.token == Token::Newline);
            let (mut from, mut to) = (from, to);
            while from < to && is_space(from) {
                from += 1;
            }
            while to > from + 1 && (is_space(to - 1) || lexemes[to - 1].token == Token::Comma) {
                to -= 1;
            }
            (from, to)
        })
        .filter(|(from, to)| from < to)
        .collect();
    let Some(&(first, last)) = trimmed.first() else { return };
    let place = lexemes[first].span.to(lexemes[last - 1].span);
    let mut message = Diagnostic::error(codes::PARENTHESES, what).at(place, "");
    for &(from, to) in &trimmed {
        let before = Span::new(place.file, lexemes[from].span.start, lexemes[from].span.start);
        let open = if from == start && !missing.is_empty() { format!("{missing}(") } else { "(".to_string() };
        message = message.fix(before, open).fix(lexemes[to - 1].span.after(), ")");
        if from == start && !missing.is_empty() {
            added.push((from, Token::Let));
        }
        added.push((from, Token::LParen));
        added.push((to, Token::RParen));
    }
    let stop = trimmed.last().map_or(end, |(_, to)| *to);
    let line = between(text, lexemes, start, stop.saturating_sub(1));
    if !line.contains('\n') {
        let whole = lexemes[start].span.to(lexemes[stop - 1].span);
        let shown = fixed_text(text, whole, [&message]);
        message = message.help(format!("write `{shown}`"));
    }
    diagnostics.push(message);
}
