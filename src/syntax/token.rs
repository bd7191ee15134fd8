//! Tokens of the language, as logos recognises them.
//!
//! In: a source text. Out: its [`Token`]s one by one, for [`super::lexer`].

use crate::shape::Elem;
use crate::source::Span;
use logos::Logos;

/// A token. String slices point into the source.
#[derive(Clone, Copy, PartialEq, Debug, Logos)]
#[logos(skip r"[ \t\r\u{feff}]+")]
pub enum Token<'a> {
    /// A name that is not reserved.
    #[regex("[A-Za-z_][A-Za-z0-9_]*")]
    Ident(&'a str),
    /// A number in source form; [`super::lexer::lex`] replaces it by `Int` or `Float`.
    #[regex("[0-9][0-9A-Za-z_]*([.][0-9][0-9A-Za-z_]*)?")]
    #[regex("[0-9][0-9_]*([.][0-9][0-9_]*)?[eE][+-][0-9A-Za-z_]*")]
    Number(&'a str),
    /// An integer literal that fits 64 bits.
    Int(u64),
    /// A number with a point or an exponent.
    Float(f64),
    /// A string without its quotes; escapes are resolved in the tree.
    #[regex(r#""([^"\\\n]|\\[^\n])*""#, |lex| strip(lex.slice(), 1, 1))]
    Str(&'a str),
    /// A string that is not closed on its line.
    #[regex(r#""([^"\\\n]|\\[^\n])*"#, |lex| strip(lex.slice(), 1, 0))]
    OpenStr(&'a str),
    /// A string in single quotes, as in other languages.
    #[regex(r"'[^'\n]*'", |lex| strip(lex.slice(), 1, 1))]
    SingleStr(&'a str),
    /// `/// text`, without the slashes.
    #[regex(r"///([^/\n][^\n]*)?", |lex| strip(lex.slice(), 3, 0), allow_greedy = true, priority = 20)]
    Doc(&'a str),
    /// `// text`, without the slashes; [`super::lexer::lex`] omits it.
    #[regex(r"//[^\n]*", |lex| strip(lex.slice(), 2, 0), allow_greedy = true)]
    Comment(&'a str),
    /// `/*`, which starts a comment in other languages.
    #[token("/*")]
    OpenComment,
    /// An operator of another language.
    #[token("&&")]
    #[token("||")]
    #[token("!")]
    #[token("**")]
    #[token("+=")]
    #[token("-=")]
    #[token("*=")]
    #[token("/=")]
    #[token("@=")]
    #[token("%=")]
    #[token(":=")]
    #[token("=>")]
    #[token("::")]
    #[token("===")]
    #[token("!==")]
    #[token("^")]
    #[token("&")]
    #[token("|")]
    #[token("~")]
    #[token("?")]
    Foreign(&'a str),
    /// The end of a line.
    #[token("\n")]
    Newline,
    /// `;`
    #[token(";")]
    Semi,

    /// `fn`
    #[token("fn")]
    Fn,
    /// `pub`
    #[token("pub")]
    Pub,
    /// `let`
    #[token("let")]
    Let,
    /// `var`
    #[token("var")]
    Var,
    /// `for`
    #[token("for")]
    For,
    /// `in`
    #[token("in")]
    In,
    /// `while`
    #[token("while")]
    While,
    /// `if`
    #[token("if")]
    If,
    /// `else`
    #[token("else")]
    Else,
    /// `break`
    #[token("break")]
    Break,
    /// `where`
    #[token("where")]
    Where,
    /// `and`
    #[token("and")]
    And,
    /// `or`
    #[token("or")]
    Or,
    /// `not`
    #[token("not")]
    Not,
    /// `true`
    #[token("true")]
    True,
    /// `false`
    #[token("false")]
    False,
    /// `inf`
    #[token("inf")]
    Inf,
    /// The name of an element type.
    #[token("f32", |_| Elem::F32)]
    #[token("bf16", |_| Elem::BF16)]
    #[token("f16", |_| Elem::F16)]
    #[token("i8", |_| Elem::I8)]
    #[token("i32", |_| Elem::I32)]
    #[token("i64", |_| Elem::I64)]
    #[token("bool", |_| Elem::Bool)]
    Elem(Elem),

    /// `(`
    #[token("(")]
    LParen,
    /// `)`
    #[token(")")]
    RParen,
    /// `[`
    #[token("[")]
    LBracket,
    /// `]`
    #[token("]")]
    RBracket,
    /// `{` of a block of statements
    #[token("{")]
    LBrace,
    /// `}`
    #[token("}")]
    RBrace,
    /// `<`
    #[token("<")]
    Lt,
    /// `>`
    #[token(">")]
    Gt,
    /// `<=`
    #[token("<=")]
    Le,
    /// `>=`
    #[token(">=")]
    Ge,
    /// `==`
    #[token("==")]
    EqEq,
    /// `!=`
    #[token("!=")]
    Ne,
    /// `=`
    #[token("=")]
    Eq,
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
    /// `%`
    #[token("%")]
    Percent,
    /// `@`
    #[token("@")]
    At,
    /// `,`
    #[token(",")]
    Comma,
    /// `:`
    #[token(":")]
    Colon,
    /// `.`
    #[token(".")]
    Dot,
    /// `..`
    #[token("..")]
    DotDot,
    /// `->`
    #[token("->")]
    Arrow,
    /// `#`
    #[token("#")]
    Hash,

    // The following are created by `layout`, which sees more than one token at a time.
    /// `use` at the start of an item
    Use,
    /// `layer` at the start of an item
    Layer,
    /// `model` at the start of an item
    Model,
    /// `rule` at the start of an item
    Rule,
    /// `train` before a name
    Train,
    /// `state` at the start of a field
    State,
    /// `tap` at the start of a statement
    Tap,
    /// `reset` at the start of a statement
    Reset,
    /// `dim` after `let`, before a name
    Dim,
    /// `{` of a layer's fields and functions
    LBraceMembers,
    /// `{` of the arms of a `train`
    LBraceArms,
    /// `<` between a name and an element type, as in `cast<bf16>(x)`
    LtElem,
    /// `step` between the end of a slice and its step.
    Step,
    /// Replaces an expression that was omitted after a reported error.
    Missing,
}

fn strip(text: &str, front: usize, back: usize) -> &str {
    text.get(front..text.len().saturating_sub(back)).unwrap_or("")
}

/// A token with its range in the source.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Lexeme<'a> {
    /// Kind and payload.
    pub token: Token<'a>,
    /// Range in the source.
    pub span: Span,
    /// Was an adjacent error reported already, so that the parser stays silent here?
    pub tainted: bool,
}
