//! Runs lexer, layout and grammar over a text, and explains syntax errors.
//!
//! In: a source text. Out: the tree of everything that parsed, and diagnostics for the rest.
//! LALRPOP reports an error as the unexpected token and the list of expected ones; `mistakes` finds
//! the likely mistake that explains the pair.

use super::ast;
use super::habits;
use super::layout;
use super::lexer::lex;
use super::mistakes::{Around, explain_token};
use super::token::Lexeme;
use super::tree::{Builder, SyntaxError};
use crate::diagnostics::codes::syntax as codes;
use crate::diagnostics::{Diagnostic, Diagnostics};
use crate::source::{FileId, Span};
use lalrpop_util::{ParseError, lalrpop_mod};

lalrpop_mod!(
    #[allow(missing_docs, unreachable_pub, clippy::all)]
    grammar,
    "/attn.rs"
);

/// The tokens of a text, ready for the grammar.
pub fn tokens<'a>(file: FileId, text: &'a str, diagnostics: &mut Diagnostics) -> Vec<Lexeme<'a>> {
    let end = Span::new(file, text.len() as u32, text.len() as u32);
    let lexemes = habits::translate(lex(file, text, diagnostics), text, diagnostics);
    layout::arrange(&lexemes, text, end, diagnostics)
}

/// Parses a text (of less than 4 GiB). There always is a tree: parts with syntax errors are
/// omitted, or replaced by `Error` nodes, and then there is at least one error in `diagnostics`.
pub fn parse(file: FileId, text: &str, diagnostics: &mut Diagnostics) -> ast::File {
    let lexemes = tokens(file, text, diagnostics);
    parse_tokens(file, text, &lexemes, diagnostics)
}

/// Parses a text whose [`tokens`] are at hand, with their diagnostics.
pub fn parse_tokens(file: FileId, text: &str, lexemes: &[Lexeme<'_>], diagnostics: &mut Diagnostics) -> ast::File {
    let mut builder = Builder::new(file);
    let stream = lexemes.iter().map(|lexeme| Ok((lexeme.span.start, lexeme.token, lexeme.span.end)));
    let parsed = grammar::FileParser::new().parse(&mut builder, stream);
    let Builder { mut errors, diagnostics: found, .. } = builder;
    let items = parsed.unwrap_or_else(|error| {
        errors.push(error);
        Vec::new()
    });
    for error in &errors {
        if let Some(diagnostic) = explain(error, lexemes, file, text) {
            diagnostics.push(diagnostic);
        }
    }
    diagnostics.append(found);
    if !errors.is_empty() && !diagnostics.has_errors() {
        // Errors are hidden only next to reported ones, so this does not happen; the caller relies
        // on it.
        let whole = Span::new(file, 0, text.len() as u32);
        diagnostics.push(Diagnostic::error(codes::UNEXPECTED, "this text cannot be parsed").at(whole, ""));
    }
    ast::File { items, span: Span::new(file, 0, text.len() as u32) }
}

/// The diagnostic of a syntax error; `None` if an adjacent error was reported already.
fn explain(error: &SyntaxError<'_>, lexemes: &[Lexeme<'_>], file: FileId, text: &str) -> Option<Diagnostic> {
    let (found, start, end, expected): (_, _, _, &[String]) = match error {
        ParseError::UnrecognizedToken { token: (l, token, r), expected } => (Some(*token), *l, *r, expected),
        ParseError::ExtraToken { token: (l, token, r) } => (Some(*token), *l, *r, &[]),
        ParseError::UnrecognizedEof { location, expected } => (None, *location, *location, expected),
        ParseError::InvalidToken { location } => (None, *location, *location, &[]),
        ParseError::User { error: () } => (None, 0, 0, &[]),
    };
    let span = Span::new(file, start, end);
    let at = lexemes.partition_point(|lexeme| (lexeme.span.start, lexeme.span.end) < (start, end));
    let at = if found.is_some() { at } else { lexemes.len() };
    let get = |back: usize| at.checked_sub(back).and_then(|i| lexemes.get(i)).copied();
    let tainted = |lexeme: Option<Lexeme<'_>>| lexeme.is_some_and(|lexeme| lexeme.tainted);
    if tainted(get(0)) || found.is_none() && tainted(get(1)) {
        return None;
    }
    let around = Around { found, span, before: [get(1), get(2)], expected, text };
    Some(explain_token(&around))
}
