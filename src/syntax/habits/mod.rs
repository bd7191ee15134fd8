//! Recognises syntax of other languages by its tokens: `x[:, 0]`, `a if c else b`, `let a, b = ..`,
//! `return x`, `self.w`.
//!
//! In: the lexer's tokens. Out: tokens in which each such construct is replaced by its counterpart
//! in attn, so that parsing continues as if that had been written, and one diagnostic for each.
//! Constructs that only types reveal are in `types::foreign`.

mod braces;
mod choices;
mod fields;
mod operators;
mod slices;
mod tuples;
mod words;

use super::token::{Lexeme, Token};
use crate::diagnostics::Diagnostics;
use crate::source::Span;

/// Translates constructs of other languages.
pub(super) fn translate<'a>(lexemes: Vec<Lexeme<'a>>, text: &'a str, diagnostics: &mut Diagnostics) -> Vec<Lexeme<'a>> {
    let lexemes = braces::add(lexemes, text, diagnostics);
    let lexemes = words::translate(lexemes, text, diagnostics);
    let lexemes = operators::translate(lexemes, text, diagnostics);
    let lexemes = slices::translate(lexemes, text, diagnostics);
    let lexemes = choices::translate(lexemes, text, diagnostics);
    tuples::translate(lexemes, text, diagnostics)
}

/// The contents of the innermost bracket around a token.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Inside {
    /// Top level: there is no bracket.
    Items,
    /// Arguments or parts, in parentheses.
    Round,
    /// Indices, after an operand.
    Indices,
    /// Dimensions of a type, or a list.
    Square,
    /// Fields and functions of a layer.
    Members,
    /// The body of a function.
    Body,
    /// Statements of another block.
    Block,
}

/// The syntactic context of a token.
#[derive(Clone, Copy)]
struct Context {
    holds: Inside,
    /// Index of the enclosing opening bracket.
    open: Option<usize>,
    /// Is it the first token of a statement, a field or an item?
    starts: bool,
}

/// The context of each token, and the closing bracket of each opening one.
struct Scan {
    places: Vec<Context>,
    closers: Vec<Option<usize>>,
}

impl Scan {
    fn new(lexemes: &[Lexeme<'_>]) -> Scan {
        let mut scan = Scan { places: Vec::with_capacity(lexemes.len()), closers: vec![None; lexemes.len()] };
        let mut open: Vec<(usize, Inside)> = Vec::new();
        let mut head = None;
        let mut starts = true;
        for (at, lexeme) in lexemes.iter().enumerate() {
            let (around, holds) = open.last().map_or((None, Inside::Items), |(at, holds)| (Some(*at), *holds));
            let in_lines = !matches!(holds, Inside::Round | Inside::Indices | Inside::Square);
            let token = lexeme.token;
            let is_close = matches!(token, Token::RParen | Token::RBracket | Token::RBrace);
            if is_close {
                if let Some((opener, _)) = open.pop()
                    && let Some(closer) = scan.closers.get_mut(opener)
                {
                    *closer = Some(at);
                }
                let holds = open.last().map_or(Inside::Items, |(_, holds)| *holds);
                let around = open.last().map(|(at, _)| *at);
                scan.places.push(Context { holds, open: around, starts: false });
                starts = token == Token::RBrace;
                continue;
            }
            let begins = in_lines && starts && !matches!(token, Token::Newline | Token::Semi);
            scan.places.push(Context { holds, open: around, starts: begins });
            let previous = at.checked_sub(1).and_then(|at| lexemes.get(at)).map(|lexeme| lexeme.token);
            match token {
                Token::Fn => head = Some(Inside::Body),
                Token::Ident("def" | "func" | "function") if begins || previous == Some(Token::Pub) => {
                    head = Some(Inside::Body);
                }
                Token::Ident("layer" | "model" | "class") if begins && holds == Inside::Items => {
                    head = Some(Inside::Members);
                }
                Token::LParen => open.push((at, Inside::Round)),
                Token::LBracket if previous.is_some_and(ends_operand) => open.push((at, Inside::Indices)),
                Token::LBracket => open.push((at, Inside::Square)),
                Token::LBrace => open.push((at, head.take().unwrap_or(Inside::Block))),
                _ => {}
            }
            starts = match token {
                Token::Newline | Token::Semi => in_lines && (starts || !previous.is_some_and(goes_on)),
                Token::LBrace | Token::Doc(_) => true,
                _ => false,
            };
        }
        scan
    }

    fn place(&self, at: usize) -> Context {
        self.places.get(at).copied().unwrap_or(Context { holds: Inside::Items, open: None, starts: false })
    }

    /// The first matching token from `at` on inside the same bracket; `None` if the bracket or the
    /// line ends before.
    fn find(&self, lexemes: &[Lexeme<'_>], at: usize, fits: impl Fn(Token<'_>) -> bool) -> Option<usize> {
        let end = self.end(lexemes, at);
        let around = self.place(at).open;
        (at..end).find(|i| self.place(*i).open == around && lexemes.get(*i).is_some_and(|lexeme| fits(lexeme.token)))
    }

    /// The end of the token's statement or bracket: its newline, `;` or closing bracket.
    fn end(&self, lexemes: &[Lexeme<'_>], at: usize) -> usize {
        let Context { open, holds, .. } = self.place(at);
        let in_lines = !matches!(holds, Inside::Round | Inside::Indices | Inside::Square);
        let closer = open.and_then(|open| self.closers.get(open).copied().flatten()).unwrap_or(lexemes.len());
        if !in_lines {
            return closer;
        }
        let mut i = at;
        while i < closer {
            let Some(lexeme) = lexemes.get(i) else { break };
            let previous = i.checked_sub(1).and_then(|i| lexemes.get(i)).map(|lexeme| lexeme.token);
            match lexeme.token {
                Token::Semi => return i,
                Token::Newline if !previous.is_some_and(goes_on) => return i,
                Token::LParen | Token::LBracket | Token::LBrace => {
                    match self.closers.get(i).copied().flatten() {
                        Some(closer) => i = closer,
                        None => return closer,
                    };
                }
                _ => {}
            }
            i += 1;
        }
        closer
    }
}

/// Can an operand end with this token?
pub(super) fn ends_operand(token: Token<'_>) -> bool {
    matches!(
        token,
        Token::Ident(_)
            | Token::Int(_)
            | Token::Float(_)
            | Token::Str(_)
            | Token::True
            | Token::False
            | Token::Inf
            | Token::RParen
            | Token::RBracket
    )
}

/// Does a line that ends with this token continue on the next one?
fn goes_on(token: Token<'_>) -> bool {
    matches!(
        token,
        Token::Plus
            | Token::Minus
            | Token::Star
            | Token::Slash
            | Token::Percent
            | Token::At
            | Token::EqEq
            | Token::Ne
            | Token::Le
            | Token::Ge
            | Token::Eq
            | Token::And
            | Token::Or
            | Token::Not
            | Token::In
            | Token::Dot
            | Token::Arrow
            | Token::Colon
            | Token::Comma
            | Token::Where
    )
}

/// A token that is not in the text, at the start of a location.
fn made(token: Token<'_>, at: Span) -> Lexeme<'_> {
    Lexeme { token, span: Span::new(at.file, at.start, at.start), tainted: true }
}

/// The text from one token to another, both included.
fn between<'a>(text: &'a str, lexemes: &[Lexeme<'_>], from: usize, to: usize) -> &'a str {
    let (Some(first), Some(last)) = (lexemes.get(from), lexemes.get(to)) else { return "" };
    text.get(first.span.start as usize..last.span.end as usize).unwrap_or("")
}
