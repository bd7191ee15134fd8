//! Indented blocks, as in Python: `if c:`, and an indented body.
//!
//! In: the lexer's tokens. Out: the same tokens with braces inserted, and a single diagnostic for
//! the text.

use crate::diagnostics::Diagnostic;
use crate::diagnostics::Diagnostics;
use crate::diagnostics::codes::syntax as codes;
use crate::source::Span;
use crate::syntax::token::{Lexeme, Token};

/// An open block, with the indentation of its head.
struct Open {
    indent: usize,
    /// Is the whole block on the line of its head?
    one_line: bool,
}

/// Inserts braces around the indented lines after a `:`.
pub(super) fn add<'a>(lexemes: Vec<Lexeme<'a>>, text: &str, diagnostics: &mut Diagnostics) -> Vec<Lexeme<'a>> {
    if !lexemes.iter().enumerate().any(|(at, _)| begins_head(&lexemes, at) && head_end(&lexemes, at).is_some()) {
        return lexemes;
    }
    let mut out: Vec<Lexeme<'a>> = Vec::with_capacity(lexemes.len());
    let mut open: Vec<Open> = Vec::new();
    let mut message: Option<Diagnostic> = None;
    let mut ends_at = None;
    for (at, lexeme) in lexemes.iter().enumerate() {
        let starts_line = at == 0 || lexemes[at - 1].token == Token::Newline;
        let is_newline = lexeme.token == Token::Newline;
        if !is_newline && starts_line {
            let indent = indentation(text, lexeme.span);
            while open.last().is_some_and(|open| open.indent >= indent) {
                close(&mut out, &mut open, text, &mut message);
            }
        }
        while is_newline && open.last().is_some_and(|open| open.one_line) {
            close(&mut out, &mut open, text, &mut message);
        }
        if begins_head(&lexemes, at) {
            ends_at = head_end(&lexemes, at).map(|end| (end, indentation(text, line_start(text, lexeme.span))));
        }
        if let Some((end, indent)) = ends_at
            && end == at
        {
            ends_at = None;
            let one_line = !matches!(lexemes.get(at + 1), None | Some(Lexeme { token: Token::Newline, .. }));
            open.push(Open { indent, one_line });
            out.push(Lexeme { token: Token::LBrace, span: lexeme.span, tainted: true });
            let before = at.checked_sub(1).map_or(lexeme.span, |before| lexemes[before].span.after());
            message = Some(
                message
                    .unwrap_or_else(|| {
                        Diagnostic::error(codes::INDENTED_BLOCK, "blocks need braces")
                            .at(lexeme.span, "the block begins here")
                            .help("write `{` instead of `:`, and `}` at the end of the block")
                    })
                    .fix(before.to(lexeme.span), " {"),
            );
            continue;
        }
        out.push(*lexeme);
    }
    while !open.is_empty() {
        close(&mut out, &mut open, text, &mut message);
    }
    if let Some(message) = message {
        diagnostics.push(message);
    }
    out
}

/// Closes the innermost block after the last token that is not a newline.
fn close(out: &mut Vec<Lexeme<'_>>, open: &mut Vec<Open>, text: &str, message: &mut Option<Diagnostic>) {
    let Some(block) = open.pop() else { return };
    let last = out.iter().rposition(|lexeme| lexeme.token != Token::Newline).unwrap_or_default();
    let span = out.get(last).map_or(Span::default(), |lexeme| lexeme.span.after());
    // Behind a comment on the same line, too.
    let rest = text.get(span.end as usize..).unwrap_or_default();
    let line = rest.get(..rest.find('\n').unwrap_or(rest.len())).unwrap_or_default();
    let comment =
        if line.trim_start().starts_with("//") || line.trim_start().starts_with('#') { line.len() } else { 0 };
    let place = Span::new(span.file, span.end + comment as u32, span.end + comment as u32);
    let indent = " ".repeat(block.indent);
    let brace = if block.one_line { " }".to_string() } else { format!("\n{indent}}}") };
    *message = message.take().map(|message| message.fix(place, brace));
    out.insert((last + 1).min(out.len()), Lexeme { token: Token::RBrace, span, tainted: true });
}

/// Is it the first word of a line that may be the head of a block?
fn begins_head(lexemes: &[Lexeme<'_>], at: usize) -> bool {
    let starts =
        at == 0 || matches!(lexemes[at - 1].token, Token::Newline | Token::LBrace | Token::Semi | Token::RBrace);
    let follows = |n: usize| lexemes.get(at + n).map(|lexeme| lexeme.token);
    // `layer: T` is a field of this name.
    let is_field = follows(1) == Some(Token::Colon)
        && (!matches!(follows(2), None | Some(Token::Newline))
            || matches!(follows(0), Some(Token::Ident("layer" | "model"))));
    starts
        && lexemes.get(at).is_some_and(|lexeme| {
            matches!(lexeme.token, Token::If | Token::Else | Token::For | Token::While | Token::Fn | Token::Pub)
                || !is_field
                    && matches!(
                        lexeme.token,
                        Token::Ident("def" | "elif" | "class" | "layer" | "model" | "with" | "try" | "except")
                    )
        })
}

/// The `:` that ends the head that starts at `at`: outside all brackets, before any `{`.
fn head_end(lexemes: &[Lexeme<'_>], at: usize) -> Option<usize> {
    let mut depth = 0usize;
    // The `<..>` of a declaration contains types.
    let declares =
        matches!(lexemes.get(at)?.token, Token::Fn | Token::Pub | Token::Ident("def" | "class" | "layer" | "model"));
    for (i, lexeme) in lexemes.iter().enumerate().skip(at).take(LONGEST_HEAD) {
        match lexeme.token {
            Token::LParen | Token::LBracket => depth += 1,
            Token::Lt if declares => depth += 1,
            Token::RParen | Token::RBracket => depth = depth.checked_sub(1)?,
            Token::Gt if declares => depth = depth.checked_sub(1)?,
            Token::LBrace | Token::RBrace | Token::Semi => return None,
            Token::Newline if depth == 0 => return None,
            Token::Colon if depth == 0 => return Some(i),
            _ => {}
        }
    }
    None
}

/// The maximum number of tokens of a block's head.
const LONGEST_HEAD: usize = 4096;

/// The location of the first word in a line.
fn line_start(text: &str, span: Span) -> Span {
    let before = text.get(..span.start as usize).unwrap_or_default();
    let start = before.rfind('\n').map_or(0, |at| at + 1);
    let line = text.get(start..).unwrap_or_default();
    let first = start + (line.len() - line.trim_start_matches([' ', '\t']).len());
    Span::new(span.file, first as u32, first as u32)
}

/// The distance of a location from the start of its line.
fn indentation(text: &str, span: Span) -> usize {
    let before = text.get(..span.start as usize).unwrap_or_default();
    before.len() - before.rfind('\n').map_or(0, |at| at + 1)
}
