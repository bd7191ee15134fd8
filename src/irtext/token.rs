//! The lexer of IR text, built with logos.
//!
//! Newlines end statements, so they are tokens, except inside of `( )` and `[ ]`. Brackets are
//! counted here, which limits nesting, so that no tree built from the tokens is deep.

use logos::Logos;

use super::{Pos, TextError, TextSpan};

/// The maximum number of open brackets.
pub const MAX_NESTING: usize = 64;

/// A lexical token; slices exclude the sigil of values, labels and globals.
#[derive(Clone, Debug, PartialEq, Logos)]
#[logos(skip r"[ \t\r\u{feff}]+")]
#[logos(skip(r"//[^\n]*", allow_greedy = true))]
pub enum Token<'a> {
    /// A name, possibly with dots: `f32`, `tile`, `mma.sync`.
    #[regex(r"[A-Za-z_][A-Za-z0-9_]*([.][A-Za-z_][A-Za-z0-9_]*)*")]
    Word(&'a str),
    /// `%3`, `%acc`
    #[regex(r"%[A-Za-z0-9_]+", |lex| tail(lex.slice()))]
    Value(&'a str),
    /// `^bb1`
    #[regex(r"\^[A-Za-z0-9_]+", |lex| tail(lex.slice()))]
    Label(&'a str),
    /// `@forward`
    #[regex(r"@[A-Za-z0-9_]+([.][A-Za-z0-9_]+)*", |lex| tail(lex.slice()))]
    Global(&'a str),
    /// An unsigned integer.
    #[regex(r"[0-9]+")]
    Int(&'a str),
    /// A number with a point or an exponent.
    #[regex(r"[0-9]+[.][0-9]+([eE][+-]?[0-9]+)?")]
    #[regex(r"[0-9]+[eE][+-]?[0-9]+")]
    Float(&'a str),
    /// A string, with its quotes.
    #[regex(r#""([^"\\\n]|\\[^\n])*""#)]
    Str(&'a str),
    /// End of a line.
    #[token("\n")]
    Newline,
    /// `(`
    #[token("(")]
    Open,
    /// `)`
    #[token(")")]
    Close,
    /// `[`
    #[token("[")]
    OpenSquare,
    /// `]`
    #[token("]")]
    CloseSquare,
    /// `{`
    #[token("{")]
    OpenBrace,
    /// `}`
    #[token("}")]
    CloseBrace,
    /// `,`
    #[token(",")]
    Comma,
    /// `:`
    #[token(":")]
    Colon,
    /// `=`
    #[token("=")]
    Assign,
    /// `->`
    #[token("->")]
    Arrow,
    /// `+`
    #[token("+")]
    Plus,
    /// `-`
    #[token("-")]
    Minus,
    /// `*`
    #[token("*")]
    Star,
    /// `/`
    #[token("/")]
    Slash,
    /// `%` with a space after it
    #[token("%")]
    Percent,
    /// `==`
    #[token("==")]
    Eq,
    /// `!=`
    #[token("!=")]
    Ne,
    /// `<`
    #[token("<")]
    Lt,
    /// `<=`
    #[token("<=")]
    Le,
    /// `>`
    #[token(">")]
    Gt,
    /// `>=`
    #[token(">=")]
    Ge,
    /// `loc`, which starts the source location of a statement.
    #[token("loc")]
    Loc,
}

/// The text without its first character, which is one byte long.
fn tail(s: &str) -> &str {
    s.get(1..).unwrap_or_default()
}

/// The tokens of a text, without newlines inside of brackets.
pub struct Lexer<'a> {
    tokens: logos::Lexer<'a, Token<'a>>,
    text: &'a str,
    /// The open brackets, innermost last.
    open: Vec<Token<'a>>,
    /// The offset to which `line` and `column` refer.
    counted: usize,
    line: u32,
    column: u32,
}

impl<'a> Lexer<'a> {
    /// The tokens of `text`.
    pub fn new(text: &'a str) -> Lexer<'a> {
        Lexer { tokens: Token::lexer(text), text, open: Vec::new(), counted: 0, line: 1, column: 1 }
    }

    fn pos(&mut self, offset: usize) -> Pos {
        for c in self.text.get(self.counted..offset).unwrap_or_default().chars() {
            if c == '\n' {
                self.line += 1;
                self.column = 1;
            } else {
                self.column += 1;
            }
        }
        self.counted = self.counted.max(offset);
        Pos { offset: u32::try_from(offset).unwrap_or(u32::MAX), line: self.line, column: self.column }
    }
}

impl<'a> Iterator for Lexer<'a> {
    type Item = Result<(Pos, Token<'a>, Pos), TextError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let token = self.tokens.next()?;
            let span = self.tokens.span();
            let start = self.pos(span.start);
            let end = self.pos(span.end);
            let place = TextSpan::between(start, end);
            let Ok(token) = token else {
                let slice: String = self.text.get(span).unwrap_or_default().chars().take(20).collect();
                return Some(Err(TextError::new(place, format!("`{}` is not a token", slice.escape_debug()))));
            };
            match &token {
                Token::Newline if self.open.last().is_some_and(|t| *t != Token::OpenBrace) => continue,
                Token::Open | Token::OpenSquare | Token::OpenBrace => {
                    if self.open.len() >= MAX_NESTING {
                        let message = format!("brackets are nested more than {MAX_NESTING} deep");
                        return Some(Err(TextError::new(place, message)));
                    }
                    self.open.push(token.clone());
                }
                Token::Close | Token::CloseSquare | Token::CloseBrace => {
                    self.open.pop();
                }
                _ => {}
            }
            return Some(Ok((start, token, end)));
        }
    }
}
