//! The untyped tree of an IR text.

use super::{Pos, TextError, TextSpan};

/// An arithmetic operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BinaryKind {
    /// `+`
    Add,
    /// `-`
    Sub,
    /// `*`
    Mul,
    /// `/`
    Div,
    /// `%`
    Rem,
}

/// A comparison operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompareKind {
    /// `==`
    Eq,
    /// `!=`
    Ne,
    /// `<`
    Lt,
    /// `<=`
    Le,
    /// `>`
    Gt,
    /// `>=`
    Ge,
}

/// The kinds of terms.
#[derive(Clone, Debug, PartialEq)]
pub enum ExprKind {
    /// An integer; its sign is [`ExprKind::Neg`].
    Int(i128),
    /// A number with a point or an exponent.
    Float(f64),
    /// `"text"`, escapes resolved.
    Str(String),
    /// A name without a sigil.
    Word(String),
    /// `%name`, without the `%`.
    Value(String),
    /// `@name`, without the `@`.
    Global(String),
    /// `^name`, without the `^`.
    Label(String),
    /// `-x`
    Neg(Box<Expr>),
    /// `a + b - c` or `a * b / c`: the first term, then operators with terms, from left to right.
    Chain(Box<Expr>, Vec<(BinaryKind, Expr)>),
    /// `a <= b`
    Compare(CompareKind, Box<Expr>, Box<Expr>),
    /// `name(a, b)`; the name is a word, value, label, global or string.
    Call(Box<Expr>, Vec<Phrase>),
    /// `name[a, b]`
    Index(Box<Expr>, Vec<Phrase>),
    /// `(a, b)`
    Paren(Vec<Phrase>),
    /// `[a, b]`
    List(Vec<Phrase>),
}

/// A term with its span.
#[derive(Clone, Debug, PartialEq)]
pub struct Expr {
    /// The term without its span.
    pub kind: ExprKind,
    /// Its range in the text.
    pub place: TextSpan,
}

impl Expr {
    /// A term between two positions.
    pub fn new(kind: ExprKind, l: Pos, r: Pos) -> Expr {
        Expr { kind, place: TextSpan::between(l, r) }
    }
}

/// Adjacent terms, with an optional type or value.
#[derive(Clone, Debug, PartialEq)]
pub struct Phrase {
    /// The terms; at least one.
    pub terms: Vec<Expr>,
    /// The terms after `:`.
    pub types: Vec<Expr>,
    /// The terms after `=`.
    pub value: Vec<Expr>,
    /// Its range in the text.
    pub place: TextSpan,
}

/// `loc("file":line:column, part line:column)`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocText {
    /// The file, if it is not the module's own.
    pub file: Option<String>,
    /// From 1.
    pub line: u32,
    /// In characters, from 1.
    pub column: u32,
    /// The locations of named parts.
    pub parts: Vec<(String, LocText)>,
}

impl LocText {
    /// Parses the texts of the tokens.
    ///
    /// # Errors
    /// Numbers beyond `u32`, an invalid escape.
    pub(super) fn new(
        file: Option<&str>,
        line: &str,
        column: &str,
        place: TextSpan,
    ) -> Result<LocText, lalrpop_util::ParseError<Pos, super::token::Token<'static>, TextError>> {
        let number = |s: &str| s.parse::<u32>().map_err(|_| user(TextError::new(place, "the number is too large")));
        Ok(LocText {
            file: file.map(|f| string(f, place)).transpose().map_err(|e| match e {
                lalrpop_util::ParseError::User { error } => user(error),
                _ => user(TextError::new(place, "invalid string")),
            })?,
            line: number(line)?,
            column: number(column)?,
            parts: Vec::new(),
        })
    }
}

/// A statement: a head and its phrases.
#[derive(Clone, Debug, PartialEq)]
pub struct Statement {
    /// The values before `=`.
    pub results: Vec<Expr>,
    /// The first word.
    pub head: String,
    /// The phrases after it.
    pub args: Vec<Phrase>,
    /// The phrases after `->`.
    pub outs: Vec<Phrase>,
    /// The phrases after `:`.
    pub types: Vec<Phrase>,
    /// The source location that the statement names.
    pub loc: Option<LocText>,
    /// The lines in braces.
    pub body: Option<Vec<Line>>,
    /// The span of the statement, including its body.
    pub place: TextSpan,
}

/// `^name(args):`
#[derive(Clone, Debug, PartialEq)]
pub struct Block {
    /// Name, without the `^`.
    pub name: String,
    /// Phrases `%name: type`.
    pub args: Vec<Phrase>,
    /// Its range in the text.
    pub place: TextSpan,
}

/// A line of a text.
#[derive(Clone, Debug, PartialEq)]
pub enum Line {
    /// A statement, with its body.
    Statement(Box<Statement>),
    /// The start of a block.
    Block(Block),
}

type GrammarError = lalrpop_util::ParseError<Pos, super::token::Token<'static>, TextError>;

fn user(error: TextError) -> GrammarError {
    lalrpop_util::ParseError::User { error }
}

/// The only term, or a chain if operators follow.
pub(super) fn chain(first: Expr, rest: Vec<(BinaryKind, Expr)>, l: Pos, r: Pos) -> Expr {
    if rest.is_empty() { first } else { Expr::new(ExprKind::Chain(Box::new(first), rest), l, r) }
}

/// The value of an integer token.
pub(super) fn int(text: &str, place: TextSpan) -> Result<i128, GrammarError> {
    text.parse().map_err(|_| user(TextError::new(place, "the number is too large")))
}

/// The value of a float token.
pub(super) fn float(text: &str, place: TextSpan) -> Result<f64, GrammarError> {
    match text.parse::<f64>() {
        Ok(x) if x.is_finite() => Ok(x),
        _ => Err(user(TextError::new(place, "the number is too large"))),
    }
}

/// The value of a string token: `\n`, `\t`, `\r`, `\"`, `\\` and `\u{..}` are resolved.
pub(super) fn string(token: &str, place: TextSpan) -> Result<String, GrammarError> {
    let inner = token.get(1..token.len().saturating_sub(1)).unwrap_or_default();
    let mut out = String::with_capacity(inner.len());
    let mut chars = inner.chars();
    let bad = || user(TextError::new(place, "invalid escape in a string"));
    while let Some(c) = chars.next() {
        if c != '\\' {
            out.push(c);
            continue;
        }
        match chars.next() {
            Some('n') => out.push('\n'),
            Some('t') => out.push('\t'),
            Some('r') => out.push('\r'),
            Some(c @ ('"' | '\\')) => out.push(c),
            Some('u') => {
                let rest = chars.as_str();
                let (digits, after) = rest.strip_prefix('{').and_then(|r| r.split_once('}')).ok_or_else(bad)?;
                let code = u32::from_str_radix(digits, 16).ok().and_then(char::from_u32).ok_or_else(bad)?;
                out.push(code);
                chars = after.chars();
            }
            _ => return Err(bad()),
        }
    }
    // A NUL would end the name in object files and in C.
    if out.contains('\0') { Err(user(TextError::new(place, "NUL in a string"))) } else { Ok(out) }
}
