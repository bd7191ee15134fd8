//! Turns "unexpected token" into a diagnosis of the likely mistake.
//!
//! In: the token at which the grammar stopped, its neighbours, and the tokens that it expected.
//! Out: one diagnostic, for the first kind of mistake below that matches, else "expected .., found
//! ..".

use super::token::{Lexeme, Token};
use super::words;
use crate::diagnostics::Diagnostic;
use crate::diagnostics::codes::syntax as codes;
use crate::source::Span;

/// The context of a syntax error.
pub(super) struct Around<'e, 'a> {
    /// The unexpected token; `None` at the end of the text.
    pub(super) found: Option<Token<'a>>,
    /// Its range in the source.
    pub(super) span: Span,
    /// The two tokens before it, nearest first.
    pub(super) before: [Option<Lexeme<'a>>; 2],
    /// The expected tokens, by their names in the grammar.
    pub(super) expected: &'e [String],
    pub(super) text: &'e str,
}

/// The diagnostic for an unexpected token.
pub(super) fn explain_token(around: &Around<'_, '_>) -> Diagnostic {
    foreign_word(around)
        .or_else(|| assign_or_compare(around))
        .or_else(|| missing_fn(around))
        .or_else(|| missing_type(around))
        .or_else(|| missing_value(around))
        .or_else(|| type_as_value(around))
        .or_else(|| reserved_word(around))
        .or_else(|| missing_comma(around))
        .or_else(|| two_on_a_line(around))
        .unwrap_or_else(|| unexpected(around))
}

impl<'a> Around<'_, 'a> {
    fn expects(&self, token: &str) -> bool {
        self.expected.iter().any(|expected| words::unquoted(expected) == token)
    }

    fn slice(&self, span: Span) -> &str {
        self.text.get(span.range()).unwrap_or("")
    }

    fn found_words(&self) -> String {
        words::found(self.found, self.slice(self.span))
    }

    /// The position of something missing: after the previous token.
    fn gap(&self) -> Span {
        self.before[0].map_or(self.span, |lexeme| lexeme.span.after())
    }

    fn previous(&self) -> Option<Token<'a>> {
        self.before[0].map(|lexeme| lexeme.token)
    }

    /// Is the previous token the first of its item, field or statement?
    fn previous_is_first(&self) -> bool {
        matches!(
            self.before[1].map(|lexeme| lexeme.token),
            None | Some(
                Token::Newline
                    | Token::Semi
                    | Token::LBrace
                    | Token::LBraceMembers
                    | Token::LBraceArms
                    | Token::RBrace
                    | Token::RBracket
                    | Token::Comma
                    | Token::Doc(_)
            )
        )
    }
}

/// `return x`, `def f`, `import`: at the start of a line, at the token itself or the previous one.
fn foreign_word(around: &Around<'_, '_>) -> Option<Diagnostic> {
    let here = around.found.map(|token| (token, around.span));
    let before = around.before[0].filter(|_| around.previous_is_first()).map(|lexeme| (lexeme.token, lexeme.span));
    for (token, span) in before.into_iter().chain(here) {
        if let Token::Ident(word) = token
            && let Some(help) = words::foreign(word)
        {
            let message = format!("`{word}` is not a keyword of attn");
            return Some(Diagnostic::error(codes::FOREIGN_WORD, message).at(span, "").help(help));
        }
    }
    None
}

fn assign_or_compare(around: &Around<'_, '_>) -> Option<Diagnostic> {
    let (message, help) = match around.found? {
        Token::Eq if around.expects("==") => ("`=` assigns to a variable", "to compare, write `==`"),
        Token::EqEq if around.expects("=") => ("`==` compares", "to assign, write `=`"),
        _ => return None,
    };
    Some(Diagnostic::error(codes::ASSIGN_OR_COMPARE, message).at(around.span, "").help(help))
}

/// `forward(x: f32[S]) -> ..` among the fields of a layer.
fn missing_fn(around: &Around<'_, '_>) -> Option<Diagnostic> {
    let (Some(Token::Ident(name)), Some(Token::LParen)) = (around.previous(), around.found) else { return None };
    if !around.previous_is_first() || !(around.expects(":") || around.expects("layer")) {
        return None;
    }
    let span = around.before[0].map_or(around.span, |lexeme| lexeme.span);
    Some(
        Diagnostic::error(codes::MISSING_FN, format!("`{name}` looks like a function without `fn`"))
            .at(span, "")
            .help(format!("write `fn {name}(..)`")),
    )
}

/// A field or parameter without `: type`.
fn missing_type(around: &Around<'_, '_>) -> Option<Diagnostic> {
    let ends = matches!(around.found?, Token::Comma | Token::RParen | Token::Newline | Token::RBrace | Token::Eq);
    let Some(Token::Ident(name)) = around.previous() else { return None };
    // If the type is optional (`let x = 1`, generics), the grammar also expects the end.
    if !ends || !around.expects(":") || around.expects("=") || around.expects(",") {
        return None;
    }
    let span = around.before[0].map_or(around.span, |lexeme| lexeme.span);
    Some(
        Diagnostic::error(codes::MISSING_TYPE, format!("`{name}` needs a type"))
            .at(span, "")
            .help(format!("write it after a colon: `{name}: f32[S, D]`")),
    )
}

/// `let x` without `= value`.
fn missing_value(around: &Around<'_, '_>) -> Option<Diagnostic> {
    let ends = matches!(around.found?, Token::Newline | Token::Semi | Token::RBrace);
    if !ends || !around.expects("=") || around.expects("==") {
        return None;
    }
    Some(
        Diagnostic::error(codes::MISSING_VALUE, "a variable needs an initial value")
            .at(around.gap(), "`= value` is missing here"),
    )
}

/// `f32(x)`, or a type in the position of an expression.
fn type_as_value(around: &Around<'_, '_>) -> Option<Diagnostic> {
    let Token::Elem(elem) = around.found? else { return None };
    if !around.expects("integer") {
        return None;
    }
    let elem = elem.name();
    Some(
        Diagnostic::error(codes::TYPE_AS_VALUE, format!("`{elem}` is a type, not a value"))
            .at(around.span, "")
            .help(format!("to convert, write `cast<{elem}>(x)`")),
    )
}

/// A keyword in the position of a name.
fn reserved_word(around: &Around<'_, '_>) -> Option<Diagnostic> {
    if !around.expects("name") || around.expects("integer") || !words::is_reserved(around.found?) {
        return None;
    }
    // A keyword that begins a line is intended; then the name before it is missing.
    if matches!(around.previous(), None | Some(Token::Newline | Token::Semi | Token::LBrace | Token::LBraceMembers)) {
        return None;
    }
    let word = around.slice(around.span);
    Some(
        Diagnostic::error(codes::RESERVED_WORD, format!("`{word}` is reserved and cannot be a name"))
            .at(around.span, "")
            .help(format!("choose another name, such as `{word}_`")),
    )
}

/// Two adjacent operands in a list.
fn missing_comma(around: &Around<'_, '_>) -> Option<Diagnostic> {
    let found = around.found?;
    if !around.expects(",") || !words::begins_operand(found) {
        return None;
    }
    let message = format!("expected `,` before {}", around.found_words());
    Some(Diagnostic::error(codes::MISSING_COMMA, message).at(around.gap(), "").also(around.span, ""))
}

/// More text on the line after something complete.
fn two_on_a_line(around: &Around<'_, '_>) -> Option<Diagnostic> {
    let found = around.found?;
    if !around.expects("newline") || !(words::begins_operand(found) || words::begins_line(found)) {
        return None;
    }
    let message = format!("{} cannot follow on the same line", around.found_words());
    Some(
        Diagnostic::error(codes::TWO_ON_A_LINE, message)
            .at(around.span, "")
            .help("put it on its own line, or put a `;` before it"),
    )
}

/// "expected .., found ..".
fn unexpected(around: &Around<'_, '_>) -> Diagnostic {
    let found = around.found_words();
    let expected = words::expected(around.expected);
    // Show the end of a line or of the text after the last token, not on an empty line.
    let span = match around.found {
        None | Some(Token::Newline) => around.gap(),
        Some(_) => around.span,
    };
    if expected.is_empty() {
        return Diagnostic::error(codes::UNEXPECTED, format!("unexpected {found}")).at(span, "");
    }
    Diagnostic::error(codes::UNEXPECTED, format!("expected {expected}, found {found}")).at(span, "")
}
