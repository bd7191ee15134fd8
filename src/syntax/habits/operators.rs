//! Operators of other languages whose operands must be rearranged: `x ** 2`, `x ^ 2`, `x += y`.

use super::{Inside, Scan, between, ends_operand, made};
use crate::diagnostics::codes::syntax as codes;
use crate::diagnostics::{Diagnostic, Diagnostics};
use crate::source::Span;
use crate::syntax::token::{Lexeme, Token};

/// Replaces `x ** y` by `pow(x, y)`, right to left, as Python groups them, and `x += y` by `x = x +
/// y`.
pub(super) fn translate<'a>(lexemes: Vec<Lexeme<'a>>, text: &'a str, diagnostics: &mut Diagnostics) -> Vec<Lexeme<'a>> {
    if !lexemes.iter().any(|lexeme| matches!(lexeme.token, Token::Foreign(_))) {
        return lexemes;
    }
    let mut lexemes = updates(lexemes, text, diagnostics);
    let is_power = |lexeme: &Lexeme<'_>| matches!(lexeme.token, Token::Foreign("**" | "^"));
    let mut left = MAX_REWRITES;
    while let Some(at) = lexemes.iter().rposition(is_power) {
        let operator = lexemes[at];
        let written = text.get(operator.span.range()).unwrap_or("**");
        let message = Diagnostic::error(codes::FOREIGN_OPERATOR, format!("`{written}` is not an operator of attn"))
            .at(operator.span, "");
        left -= 1;
        let scan = if left > 0 { Some(Scan::new(&lexemes)) } else { None };
        let sides = scan.and_then(|scan| Some((start(&lexemes, &scan, at)?, end(&lexemes, &scan, at)?)));
        let Some((start, end)) = sides else {
            diagnostics.push(message.help("a power is written `pow(x, y)`"));
            lexemes[at] = Lexeme { token: Token::Star, tainted: true, ..operator };
            if left == 0 {
                lexemes.retain(|lexeme| !is_power(lexeme));
            }
            continue;
        };
        let (x, y) = (between(text, &lexemes, start, at - 1), between(text, &lexemes, at + 1, end - 1));
        let is_root = y == "0.5" || y == "(1/2)";
        let shown = if is_root { format!("sqrt({x})") } else { format!("pow({x}, {y})") };
        let place = lexemes[start].span.to(lexemes[end - 1].span);
        diagnostics.push(message.help(format!("write `{shown}`")).fix(place, shown));
        let (first, last) = (lexemes[start].span, lexemes[end - 1].span.after());
        let name = Lexeme { token: Token::Ident(if is_root { "sqrt" } else { "pow" }), span: first, tainted: true };
        let mut changed: Vec<Lexeme<'a>> = Vec::with_capacity(lexemes.len() + 3);
        changed.extend(&lexemes[..start]);
        changed.push(name);
        changed.push(made(Token::LParen, first));
        changed.extend(&lexemes[start..at]);
        if !is_root {
            changed.push(Lexeme { token: Token::Comma, tainted: true, ..operator });
            changed.extend(&lexemes[at + 1..end]);
        }
        changed.push(made(Token::RParen, last));
        changed.extend(&lexemes[end..]);
        lexemes = changed;
    }
    lexemes
}

/// Replaces `x += y` by `x = x + y`.
fn updates<'a>(lexemes: Vec<Lexeme<'a>>, text: &'a str, diagnostics: &mut Diagnostics) -> Vec<Lexeme<'a>> {
    let scan = Scan::new(&lexemes);
    let mut out = Vec::with_capacity(lexemes.len());
    let mut start = 0;
    // Positions where inserted parentheses around a sum end.
    let mut close = None;
    for (at, lexeme) in lexemes.iter().enumerate() {
        if close == Some(at) {
            out.push(made(Token::RParen, lexeme.span));
            close = None;
        }
        let place = scan.place(at);
        if place.starts {
            start = at;
        }
        let operator = match lexeme.token {
            Token::Foreign("+=") => Token::Plus,
            Token::Foreign("-=") => Token::Minus,
            Token::Foreign("*=") => Token::Star,
            Token::Foreign("/=") => Token::Slash,
            Token::Foreign("@=") => Token::At,
            Token::Foreign("%=") => Token::Percent,
            _ => {
                out.push(*lexeme);
                continue;
            }
        };
        let written = text.get(lexeme.span.range()).unwrap_or_default();
        let sign = written.trim_end_matches('=');
        let message = Diagnostic::error(codes::FOREIGN_OPERATOR, format!("`{written}` is not an operator of attn"))
            .at(lexeme.span, "");
        let in_code = matches!(place.holds, Inside::Body | Inside::Block) && start < at;
        let end = scan.end(&lexemes, at);
        if !in_code || end <= at + 1 {
            diagnostics.push(message.help(format!("write `x = x {sign} ..`")));
            out.push(Lexeme { token: Token::Eq, tainted: true, ..*lexeme });
            continue;
        }
        let (target, value) = (between(text, &lexemes, start, at - 1), between(text, &lexemes, at + 1, end - 1));
        let loose = (at + 1..end).any(|i| {
            scan.place(i).open == place.open
                && !matches!(
                    lexemes[i].token,
                    Token::Dot
                        | Token::Ident(_)
                        | Token::LParen
                        | Token::LBracket
                        | Token::RParen
                        | Token::RBracket
                        | Token::Int(_)
                        | Token::Float(_)
                )
        });
        let loose = loose && sign != "+";
        let shown = if loose {
            format!("{target} = {target} {sign} ({value})")
        } else {
            format!("{target} = {target} {sign} {value}")
        };
        let (before, behind) = if loose { ("(", ")") } else { ("", "") };
        let after = lexemes[at + 1].span;
        let gap = Span::new(after.file, lexeme.span.start, after.start);
        let mut message = message.help(format!("write `{shown}`")).fix(gap, format!("= {target} {sign} {before}"));
        if loose {
            message = message.fix(lexemes[end - 1].span.after(), behind);
            close = Some(end);
        }
        diagnostics.push(message);
        out.push(Lexeme { token: Token::Eq, tainted: true, ..*lexeme });
        out.extend(lexemes[start..at].iter().map(|lexeme| Lexeme { tainted: true, ..*lexeme }));
        out.push(Lexeme { token: operator, tainted: true, ..*lexeme });
        if loose {
            out.push(made(Token::LParen, after));
        }
    }
    if close.is_some() {
        let end = lexemes.last().map_or(Span::default(), |lexeme| lexeme.span.after());
        out.push(made(Token::RParen, end));
    }
    out
}

/// The maximum number of powers that are rewritten with their operands.
const MAX_REWRITES: usize = 64;

/// The start of the operand before a token: a name or a bracket, followed by calls, indices and
/// fields.
pub(super) fn start(lexemes: &[Lexeme<'_>], scan: &Scan, at: usize) -> Option<usize> {
    let mut i = at.checked_sub(1)?;
    loop {
        let token = lexemes.get(i)?.token;
        if !ends_operand(token) {
            return None;
        }
        if matches!(token, Token::RParen | Token::RBracket) {
            i = scan.closers.iter().position(|closer| *closer == Some(i))?;
            let before = i.checked_sub(1).and_then(|i| lexemes.get(i)).map(|lexeme| lexeme.token);
            match before {
                Some(Token::Ident(_) | Token::RParen | Token::RBracket) => i -= 1,
                _ => return Some(i),
            }
            if !matches!(lexemes.get(i)?.token, Token::Ident(_)) {
                continue;
            }
        }
        match i.checked_sub(1).and_then(|i| lexemes.get(i)).map(|lexeme| lexeme.token) {
            Some(Token::Dot) => i = i.checked_sub(2)?,
            _ => return Some(i),
        }
    }
}

/// The end of the operand after a token.
fn end(lexemes: &[Lexeme<'_>], scan: &Scan, at: usize) -> Option<usize> {
    let mut i = at + 1;
    while matches!(lexemes.get(i)?.token, Token::Minus | Token::Plus) {
        i += 1;
    }
    i = match lexemes.get(i)?.token {
        Token::LParen => scan.closers.get(i).copied().flatten()?,
        Token::Ident(_) | Token::Int(_) | Token::Float(_) | Token::Inf => i,
        _ => return None,
    };
    loop {
        match lexemes.get(i + 1).map(|lexeme| lexeme.token) {
            Some(Token::LParen | Token::LBracket) => i = scan.closers.get(i + 1).copied().flatten()?,
            Some(Token::Dot) if matches!(lexemes.get(i + 2).map(|l| l.token), Some(Token::Ident(_))) => i += 2,
            _ => return Some(i + 1),
        }
    }
}
