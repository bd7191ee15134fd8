//! Descriptions of tokens and lists of tokens for messages.
//!
//! In: tokens, and their names in the grammar. Out: phrases such as "an expression, `,` or `)`".

use super::token::Token;

/// A token's name in the grammar, without LALRPOP's quotes.
pub(super) fn unquoted(expected: &str) -> &str {
    expected.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(expected)
}

/// Describes an unexpected token; `text` is its source.
pub(super) fn found(token: Option<Token<'_>>, text: &str) -> String {
    match token {
        None => "the end of the file".to_string(),
        Some(Token::Newline) => "the end of the line".to_string(),
        Some(Token::Str(_)) => "a string".to_string(),
        Some(Token::Doc(_)) => "a doc comment".to_string(),
        Some(Token::Elem(_)) => format!("the type `{text}`"),
        Some(Token::Missing) => "an invalid token".to_string(),
        Some(token) if is_reserved(token) => format!("the keyword `{text}`"),
        Some(_) => format!("`{text}`"),
    }
}

/// Describes the expected tokens, grouped under familiar words; empty for an empty list.
pub(super) fn expected(tokens: &[String]) -> String {
    let mut rest: Vec<&str> = tokens.iter().map(|token| unquoted(token)).collect();
    let mut phrases: Vec<String> = Vec::new();
    for (signs, phrase, members) in GROUPS {
        if signs.iter().all(|sign| rest.contains(sign)) {
            phrases.push((*phrase).to_string());
            rest.retain(|token| !members.contains(token));
        }
    }
    rest.retain(|token| {
        !matches!(*token, "missing" | "{ members" | "{ arms" | "< element type") || rest_is_only(tokens, token)
    });
    for token in rest {
        phrases.push(match token {
            "name" => "a name".to_string(),
            "integer" | "float" => "a number".to_string(),
            "string" => "a string".to_string(),
            "doc" => "a doc comment".to_string(),
            "newline" => "the end of the line".to_string(),
            "element type" => "an element type".to_string(),
            "{ members" | "{ arms" => "`{`".to_string(),
            "< element type" => "`<`".to_string(),
            symbol => format!("`{symbol}`"),
        });
    }
    phrases.dedup();
    match phrases.split_last() {
        None => String::new(),
        Some((last, [])) => last.clone(),
        Some((last, before)) => format!("{} or {last}", before.join(", ")),
    }
}

fn rest_is_only(tokens: &[String], token: &str) -> bool {
    matches!(token, "{ members" | "{ arms") && !tokens.iter().any(|other| unquoted(other) == "{")
}

/// The tokens that identify a group, its description, and all of its members. The first group that
/// matches removes its members, so wider groups come first.
const GROUPS: &[(&[&str], &str, &[&str])] = &[
    (
        &["layer", "fn"],
        "an item (`use`, `layer`, `rule`, `model` or `fn`)",
        &["use", "layer", "rule", "model", "fn", "pub", "#", "doc"],
    ),
    (&["state", "fn"], "a field or a function", &["state", "name", "fn", "pub", "#", "doc", "}"]),
    (
        &["let", "var"],
        "a statement",
        &[
            "let", "var", "for", "while", "break", "tap", "reset", "train", "name", "integer", "float", "string",
            "true", "false", "inf", "(", "[", "{", "-", "+", "not", "if", "where", "missing",
        ],
    ),
    (
        &["integer", "("],
        "an expression",
        &[
            "name", "integer", "float", "string", "true", "false", "inf", "(", "[", "{", "-", "+", "not", "if",
            "train", "where", "missing",
        ],
    ),
    (&["element type", "name"], "a type", &["element type", "name", "[", "(", "missing"]),
    (&["newline", ";"], "the end of the line", &["newline", ";", "}"]),
    (
        &["*", "/", "@", ">="],
        "an operator",
        &[
            "*",
            "/",
            "%",
            "@",
            "+",
            "-",
            "==",
            "!=",
            "<",
            "<=",
            ">",
            ">=",
            "and",
            "or",
            ".",
            "(",
            "[",
            "< element type",
            "..",
        ],
    ),
    // Where `>` closes generics, it is not an operator.
    (&["*", "/", "@"], "an operator", &["*", "/", "%", "@", "+", "-", ".", "(", "[", "< element type", ".."]),
];

/// Is it a word that cannot be a name, or a soft keyword in a keyword position?
pub(super) fn is_reserved(token: Token<'_>) -> bool {
    matches!(
        token,
        Token::Fn
            | Token::Pub
            | Token::Let
            | Token::Var
            | Token::For
            | Token::In
            | Token::While
            | Token::If
            | Token::Else
            | Token::Break
            | Token::Where
            | Token::And
            | Token::Or
            | Token::Not
            | Token::True
            | Token::False
            | Token::Inf
            | Token::Elem(_)
            | Token::Use
            | Token::Layer
            | Token::Model
            | Token::Rule
            | Token::Train
            | Token::State
            | Token::Tap
            | Token::Reset
            | Token::Dim
    )
}

/// Can the token only start an operand?
pub(super) fn begins_operand(token: Token<'_>) -> bool {
    matches!(
        token,
        Token::Ident(_)
            | Token::Int(_)
            | Token::Float(_)
            | Token::Str(_)
            | Token::True
            | Token::False
            | Token::Inf
            | Token::Elem(_)
            | Token::If
    )
}

/// Is it a keyword that begins an item or a statement?
pub(super) fn begins_line(token: Token<'_>) -> bool {
    matches!(
        token,
        Token::Let
            | Token::Var
            | Token::For
            | Token::While
            | Token::Break
            | Token::Fn
            | Token::Pub
            | Token::Use
            | Token::Layer
            | Token::Model
            | Token::Rule
    )
}

/// Advice for a word of another language.
pub(super) fn foreign(word: &str) -> Option<&'static str> {
    Some(match word {
        "return" | "yield" => "the last expression of a function's body is its value",
        "def" | "func" | "function" | "fun" | "proc" => "functions begin with `fn`",
        "class" | "struct" | "module" | "trait" | "impl" | "interface" => {
            "write `layer Name<D> { .. }` or `model Name { .. }`"
        }
        "import" | "from" | "include" | "using" | "require" => "import modules with `use`: `use std.nn`",
        "const" | "val" | "static" => {
            "write `let x = ..` for a constant value; constants of a layer are declared in its `<..>`"
        }
        "mut" => "write `var x = ..` for a mutable variable",
        "elif" | "elsif" | "elseif" => "write `else if`",
        "then" | "do" | "begin" => "blocks need braces: `if c { .. }`",
        "loop" | "until" | "foreach" => "loops are `for i in a..b { .. }` and `for block in blocks { .. }`",
        "match" | "switch" | "case" => "write `if c { .. } else if d { .. } else { .. }`",
        "continue" => "put the rest of the iteration into an `if`",
        "self" | "this" => "use fields by name alone",
        "lambda" => "there are no functions without a name: write `fn name(x: f32[S]) -> f32[S] { .. }`",
        "is" => "every value exists: nothing is `None`; compare numbers with `==`",
        "try" | "except" | "catch" | "raise" | "throw" | "finally" => {
            "a program has no exceptions; a call that fails returns an error to its caller"
        }
        "with" => "a program is compiled for inference; there is nothing to open or to turn off",
        "del" | "global" | "nonlocal" | "async" | "await" => {
            "leave it out: values are immutable, and belong to their block"
        }
        "assert" | "require_that" => "write conditions as `where` clauses: `where D % H == 0`",
        "int" | "long" => "integer types are `i8`, `i32` and `i64`",
        "float" | "double" | "half" | "real" => "float types are `f32`, `bf16` and `f16`",
        _ => return None,
    })
}

/// Can the word begin a declaration in other languages?
pub(super) fn begins_foreign_item(word: &str) -> bool {
    matches!(word, "def" | "func" | "function" | "class" | "struct" | "import" | "from" | "trait" | "impl")
}
