//! Distinguishes comments from Python's floor division: is `// 2` a comment?
//!
//! In: a comment, the tokens before it, and the names of dimensions seen so far. Out: whether it is
//! a division, i.e. it starts right after an operand and its whole text reads like the rest of an
//! expression:
//!
//! * it begins with a number, with a parenthesised formula, or, after a dimension or a number, with
//!   the name of a dimension (an uppercase name that the file has in a shape or in `<..>`);
//! * up to the end of the line, or to a bracket that closes one opened before it, it contains only
//!   operands and `+ - * / %`;
//! * it is not a compound such as `2-D` or `1-based`, and it does not follow the type of a field.
//!
//! Everything else is a comment: `x + 1  // add one`, `q @ k.T  // (S, T)`,
//! `w: f32[F, D]  // 4 * D`.

use super::token::{Lexeme, Token};
use logos::Logos;

/// Does the text after `//` read like the rest of the expression that ends at `before`?
pub(super) fn is_division(before: &[Lexeme<'_>], rest: &str, is_dimension: &dyn Fn(&str) -> bool) -> bool {
    let Some(last) = before.last().map(|lexeme| lexeme.token) else { return false };
    if !ends_operand(last) || ends_type(before) {
        return false;
    }
    let Some(tokens) = words(rest) else { return false };
    let counts = |token: &Token<'_>| match token {
        Token::Number(_) => true,
        Token::Ident(name) => is_dimension(name),
        _ => false,
    };
    let Some(first) = tokens.first() else { return false };
    let begins = match first {
        Token::Number(_) => true,
        Token::LParen => true,
        Token::Ident(name) => {
            let counted = counts(&last) || last == Token::RParen;
            let shaped = name.starts_with(|c: char| c.is_uppercase());
            counted && shaped && operand(&tokens).iter().all(|t| !matches!(t, Token::Ident(_)) || counts(t))
        }
        _ => false,
    };
    begins && !is_compound(rest) && is_tail(&tokens, &counts)
}

/// The tokens up to a comma or to a bracket that closes an outer bracket.
fn operand<'s, 't>(tokens: &'s [Token<'t>]) -> &'s [Token<'t>] {
    let mut depth = 0i32;
    let end = tokens.iter().position(|token| {
        match token {
            Token::LParen | Token::LBracket => depth += 1,
            Token::RParen | Token::RBracket => depth -= 1,
            _ => {}
        }
        depth < 0 || depth == 0 && matches!(token, Token::Comma | Token::LBrace)
    });
    tokens.get(..end.unwrap_or(tokens.len())).unwrap_or_default()
}

/// Are these operands with operators in between, up to the end or to a bracket that closes an outer
/// bracket?
fn is_tail(tokens: &[Token<'_>], counts: &dyn Fn(&Token<'_>) -> bool) -> bool {
    let mut open: Vec<(Token<'_>, usize)> = Vec::new();
    let mut wants_operand = true;
    for (at, token) in tokens.iter().enumerate() {
        match token {
            Token::Number(_) | Token::Ident(_) if wants_operand => wants_operand = false,
            Token::Minus | Token::Plus if wants_operand => {}
            Token::LParen if wants_operand => open.push((Token::RParen, at)),
            Token::LParen | Token::LBracket if !wants_operand => {
                // A call or an index.
                let close = if *token == Token::LParen { Token::RParen } else { Token::RBracket };
                open.push((close, usize::MAX));
                wants_operand = true;
            }
            Token::Plus | Token::Minus | Token::Star | Token::Slash | Token::Percent if !wants_operand => {
                wants_operand = true;
            }
            Token::RParen | Token::RBracket if !wants_operand => match open.pop() {
                Some((close, from)) if close == *token => {
                    // `(optional)` is a word, `(H)` and `(a + b)` are formulas.
                    let inside = tokens.get(from.saturating_add(1)..at).unwrap_or_default();
                    if from != usize::MAX && matches!(inside, [one] if !counts(one)) {
                        return false;
                    }
                }
                Some(_) => return false,
                // It closes a bracket opened before the `//`: this is code, whatever comes next.
                None => return true,
            },
            Token::Comma if !wants_operand && open.last().is_some_and(|(_, from)| *from == usize::MAX) => {
                wants_operand = true;
            }
            Token::LBrace if !wants_operand && open.is_empty() => return at + 1 == tokens.len(),
            Token::Comma if !wants_operand && open.is_empty() => {
                // `f(D // 2, x)`: the closing bracket of the list must follow.
                let rest = tokens.get(at..).unwrap_or_default();
                return closes_outer(rest);
            }
            _ => return false,
        }
    }
    open.is_empty() && !wants_operand
}

/// Is there a closing bracket without an opening one?
fn closes_outer(tokens: &[Token<'_>]) -> bool {
    let mut depth = 0i32;
    tokens.iter().any(|token| {
        match token {
            Token::LParen | Token::LBracket => depth += 1,
            Token::RParen | Token::RBracket => depth -= 1,
            _ => {}
        }
        depth < 0
    })
}

/// The tokens of a comment's text; `None` if it contains anything else.
fn words(rest: &str) -> Option<Vec<Token<'_>>> {
    let mut tokens = Vec::new();
    for token in Token::lexer(rest) {
        let token = token.ok()?;
        // Longer than any divisor in real code.
        if tokens.len() > 64 {
            return None;
        }
        match token {
            Token::Number(text) if !is_number(text) => return None,
            Token::Comment(_) => break,
            _ => tokens.push(token),
        }
    }
    Some(tokens)
}

fn is_number(text: &str) -> bool {
    text.bytes().all(|b| b.is_ascii_digit() || b == b'_') || text.parse::<f64>().is_ok()
}

/// `2-D`, `1-based`: a number and a word without a space in between.
fn is_compound(rest: &str) -> bool {
    let text = rest.trim_start();
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let mut after = text.get(digits..).unwrap_or_default().chars();
    digits > 0 && after.next() == Some('-') && after.next().is_some_and(char::is_alphabetic)
}

fn ends_operand(token: Token<'_>) -> bool {
    matches!(token, Token::Ident(_) | Token::Int(_) | Token::Float(_) | Token::RParen | Token::RBracket)
}

/// Does the text end with a tensor type in brackets, like a field: `w: f32[F, D]`?
fn ends_type(before: &[Lexeme<'_>]) -> bool {
    if before.last().map(|lexeme| lexeme.token) != Some(Token::RBracket) {
        return false;
    }
    let mut depth = 0usize;
    for (at, lexeme) in before.iter().enumerate().rev() {
        match lexeme.token {
            Token::RBracket => depth += 1,
            Token::LBracket => depth -= 1,
            Token::Newline => return false,
            _ => {}
        }
        if depth == 0 {
            let owner = at.checked_sub(1).and_then(|at| before.get(at)).map(|lexeme| lexeme.token);
            return matches!(owner, Some(Token::Elem(_) | Token::Colon));
        }
    }
    false
}

/// The names of dimensions seen so far: names in the brackets of types, and in `<..>` of headers.
#[derive(Default)]
pub(super) struct Dimensions<'a> {
    names: std::collections::BTreeSet<&'a str>,
    /// Open brackets of a type.
    brackets: usize,
    in_generics: bool,
    last: [Option<Token<'a>>; 3],
}

impl<'a> Dimensions<'a> {
    /// Processes the next token.
    pub(super) fn see(&mut self, token: Token<'a>) {
        let [one, two, three] = self.last;
        match token {
            Token::LBracket if matches!(one, Some(Token::Elem(_))) => self.brackets = 1,
            Token::LBracket if self.brackets > 0 => self.brackets += 1,
            Token::RBracket => self.brackets = self.brackets.saturating_sub(1),
            Token::Lt => {
                let header = matches!(three, Some(Token::Fn))
                    || matches!(two, Some(Token::Fn | Token::Ident("layer" | "model")));
                self.in_generics = header && matches!(one, Some(Token::Ident(_)));
            }
            Token::Gt | Token::LBrace | Token::LParen => self.in_generics = false,
            Token::Newline => self.brackets = 0,
            Token::Ident(name) if self.brackets > 0 || self.in_generics => {
                self.names.insert(name);
            }
            _ => {}
        }
        self.last = [Some(token), one, two];
    }

    /// Is it the name of a dimension?
    pub(super) fn has(&self, name: &str) -> bool {
        self.names.contains(name)
    }
}
