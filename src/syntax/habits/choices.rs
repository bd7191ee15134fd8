//! Python's conditional expression, `a if c else b`.

use super::{Scan, between, ends_operand, made};
use crate::diagnostics::codes::syntax as codes;
use crate::diagnostics::{Diagnostic, Diagnostics};
use crate::source::Span;
use crate::syntax::token::{Lexeme, Token};

/// Replaces `a if c else b` by `if c { a } else { b }`, innermost first.
pub(super) fn translate<'a>(
    mut lexemes: Vec<Lexeme<'a>>,
    text: &'a str,
    diagnostics: &mut Diagnostics,
) -> Vec<Lexeme<'a>> {
    // Search again after each replacement, since positions change. More than a few are not a typing
    // mistake.
    for _ in 0..MAX_REWRITES {
        let candidate = |at: &usize| {
            lexemes.get(*at).is_some_and(|lexeme| lexeme.token == Token::If)
                && at.checked_sub(1).and_then(|at| lexemes.get(at)).is_some_and(|before| ends_operand(before.token))
        };
        let candidates: Vec<usize> = (0..lexemes.len()).rev().filter(candidate).collect();
        if candidates.is_empty() {
            break;
        }
        let scan = Scan::new(&lexemes);
        let Some(parts) = candidates.into_iter().find_map(|at| parts(&lexemes, &scan, at)) else { break };
        let (start, at, other, end) = parts;
        let (a, c, b) = (
            between(text, &lexemes, start, at - 1),
            between(text, &lexemes, at + 1, other - 1),
            between(text, &lexemes, other + 1, end - 1),
        );
        let (first, last) = (lexemes[start].span, lexemes[end - 1].span);
        let place = Span::new(first.file, first.start, last.end.max(first.start));
        let shown = format!("if {c} {{ {a} }} else {{ {b} }}");
        diagnostics.push(
            Diagnostic::error(codes::CHOICE, "the condition of an `if` expression comes first")
                .at(lexemes[at].span, "")
                .help(format!("write `{shown}`"))
                .help("if the condition is a tensor, `where(c, a, b)` selects element by element")
                .fix(place, shown),
        );
        let mut changed: Vec<Lexeme<'a>> = Vec::with_capacity(lexemes.len() + 4);
        changed.extend(&lexemes[..start]);
        changed.extend(&lexemes[at..other]);
        changed.push(made(Token::LBrace, first));
        changed.extend(&lexemes[start..at]);
        changed.push(made(Token::RBrace, lexemes[at - 1].span.after()));
        changed.push(lexemes[other]);
        changed.push(made(Token::LBrace, lexemes[other].span.after()));
        changed.extend(&lexemes[other + 1..end]);
        changed.push(made(Token::RBrace, last.after()));
        changed.extend(&lexemes[end..]);
        lexemes = changed;
    }
    lexemes
}

/// The maximum number of conditional expressions that are rewritten.
const MAX_REWRITES: usize = 64;

/// The positions of the start of `a`, of `if` and `else`, and of the end of `b`.
fn parts(lexemes: &[Lexeme<'_>], scan: &Scan, at: usize) -> Option<(usize, usize, usize, usize)> {
    let around = scan.place(at).open;
    let other = scan.find(lexemes, at, |token| matches!(token, Token::Else | Token::LBrace | Token::Comma))?;
    if lexemes.get(other)?.token != Token::Else {
        return None;
    }
    let last = scan.end(lexemes, other + 1).min(scan.end(lexemes, at));
    let end = (other + 1..last)
        .find(|i| {
            scan.place(*i).open == around
                && lexemes.get(*i).is_some_and(|lexeme| matches!(lexeme.token, Token::Comma | Token::LBrace))
        })
        .unwrap_or(last);
    let stops = |i: &usize| {
        let lexeme = &lexemes[*i];
        let here = scan.place(*i).open == around;
        Some(*i) == around
            || here
                && matches!(
                    lexeme.token,
                    Token::Eq
                        | Token::Comma
                        | Token::Newline
                        | Token::Semi
                        | Token::Let
                        | Token::Var
                        | Token::Arrow
                        | Token::RBrace
                )
    };
    let start = (0..at).rev().find(stops).map_or(0, |i| i + 1);
    let is_empty = start >= at || other <= at + 1 || end <= other + 1;
    (!is_empty).then_some((start, at, other, end))
}
