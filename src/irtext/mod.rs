//! The text format that all IRs share: a generic syntax, parsed into an untyped tree, and helpers
//! of the printers.
//!
//! In: text. Out: [`Line`]s, i.e. statements made of phrases, with spans; or a [`TextError`] with
//! its span and the expected tokens. Each IR gives heads and attributes their meaning (`ir::text`,
//! `tile::text`); [`read`] has the common parts: dimensions, tensor types, floats. Nothing here
//! knows an operation.
//!
//! # The syntax
//!
//! ```text
//! head phrase, phrase -> phrase : type, type  loc(31:9) {     // a statement; everything after the head is optional
//! ^bb1(%5: f32[S, 768], %6: index):                           // a block
//!   %7, %8 = head %5, axis=-1 : f32[S], f32[S]  loc("nn.attn":12:5, part 11:9, part 11:3)
//! }
//! ```
//!
//! A newline ends a statement, except inside of round and square brackets. A phrase is one or more
//! adjacent terms (`%0 "tokens"`, `tile f32[64, 64] @l1(0)`), followed by `: types` (inside of
//! brackets only), by `= value`, or by nothing. A term is a name, value, number, string, a call
//! `name(..)`, an index `name[..]`, a bracket, or a sum, product or comparison of terms. Only the
//! first term of a phrase may have operators or begin with a bracket, so `a (b)` is a call. Nesting
//! is limited to [`token::MAX_NESTING`] brackets, and chains are flat lists: no tree is deep.

mod anchored;
mod print;
pub mod read;
pub mod syntax;
pub mod token;

use std::fmt;

use lalrpop_util::{ParseError, lalrpop_mod};

pub use anchored::{Errors, Printed};
pub use print::{float_text, float32_text, quoted};
pub use syntax::{BinaryKind, Block, CompareKind, Expr, ExprKind, Line, LocText, Phrase, Statement};

lalrpop_mod!(
    #[allow(missing_docs, unreachable_pub, clippy::all, reason = "made by LALRPOP")]
    grammar,
    "/ir.rs"
);

/// A position in a text: offset in bytes; line and column from 1, the column in characters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pos {
    /// Offset in bytes.
    pub offset: u32,
    /// Line, from 1.
    pub line: u32,
    /// Column in characters, from 1.
    pub column: u32,
}

/// A range of a text, with the line and column of its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TextSpan {
    /// Offset of the first byte.
    pub start: u32,
    /// Offset after the last byte.
    pub end: u32,
    /// Line of the first byte, from 1.
    pub line: u32,
    /// Column of the first byte in characters, from 1.
    pub column: u32,
}

impl TextSpan {
    /// The range from one position to another.
    pub fn between(l: Pos, r: Pos) -> TextSpan {
        TextSpan { start: l.offset, end: r.offset, line: l.line, column: l.column }
    }
}

/// An error in a text, with its span.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextError {
    /// The range of text that is invalid.
    pub place: TextSpan,
    /// One line, without a full stop.
    pub message: String,
    /// For syntax errors, the tokens that would be allowed.
    pub expected: Vec<String>,
}

impl TextError {
    /// An error that is not a syntax error.
    pub fn new(place: TextSpan, message: impl Into<String>) -> TextError {
        TextError { place, message: message.into(), expected: Vec::new() }
    }
}

impl fmt::Display for TextError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.place.line, self.place.column, self.message)?;
        if !self.expected.is_empty() {
            write!(f, "; expected {}", self.expected.join(", "))?;
        }
        Ok(())
    }
}

/// Parses a text into lines.
///
/// # Errors
/// The first invalid token or syntax error.
pub fn parse(text: &str) -> Result<Vec<Line>, TextError> {
    grammar::TextParser::new().parse(token::Lexer::new(text)).map_err(|e| match e {
        ParseError::User { error } => error,
        ParseError::InvalidToken { location } => TextError::new(TextSpan::between(location, location), "invalid token"),
        ParseError::UnrecognizedEof { location, expected } => TextError {
            place: TextSpan::between(location, location),
            message: "the text ends too early".into(),
            expected: names(expected),
        },
        ParseError::UnrecognizedToken { token: (l, t, r), expected } => {
            let shown = match t {
                token::Token::Newline => "the end of the line".to_string(),
                _ => {
                    let slice = text.get(l.offset as usize..r.offset as usize).unwrap_or_default();
                    format!("`{}`", slice.chars().take(40).collect::<String>().escape_debug())
                }
            };
            TextError {
                place: TextSpan::between(l, r),
                message: format!("unexpected {shown}"),
                expected: names(expected),
            }
        }
        ParseError::ExtraToken { token: (l, _, r) } => TextError::new(TextSpan::between(l, r), "unexpected text"),
    })
}

/// The tokens' names in the grammar, without quotes.
fn names(expected: Vec<String>) -> Vec<String> {
    let plain = |s: String| {
        let inner = s.trim_matches('"').to_string();
        let class = matches!(
            inner.as_str(),
            "name" | "%value" | "^block" | "@name" | "integer" | "float" | "string" | "newline" | "loc"
        );
        if class { inner } else { format!("`{inner}`") }
    };
    expected.into_iter().map(plain).collect()
}
