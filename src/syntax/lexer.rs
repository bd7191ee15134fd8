//! The lexer: turns text into tokens and reports invalid text.
//!
//! In: a source text. Out: [`Lexeme`]s, newlines included, and diagnostics. Tokens of other
//! languages (`&&`, `'text'`, `**`) are reported and replaced by their counterparts. Brackets are
//! not matched here, nor newlines filtered: see [`super::layout`].

use super::comments::{Dimensions, is_division};
use super::token::{Lexeme, Token};
use crate::diagnostics::codes::syntax as codes;
use crate::diagnostics::{Diagnostic, Diagnostics};
use crate::source::{FileId, Span};
use logos::Logos;

/// Splits a text into tokens. The text may be at most 4 GiB - 1 long, which the driver guarantees.
pub fn lex<'a>(file: FileId, text: &'a str, diagnostics: &mut Diagnostics) -> Vec<Lexeme<'a>> {
    let mut lexer = Token::lexer(text);
    let mut lexemes: Vec<Lexeme<'a>> = Vec::new();
    let mut tainted = false;
    let mut dimensions = Dimensions::default();
    let mut hashes: Vec<Span> = Vec::new();
    while let Some(token) = lexer.next() {
        let range = lexer.span();
        let span = Span::new(file, range.start as u32, range.end as u32);
        let mut place = span;
        let read = match token {
            Ok(Token::Comment(rest)) => {
                if is_division(&lexemes, rest, &|name| dimensions.has(name)) {
                    let place = Span::new(file, span.start, span.start + 2);
                    diagnostics.push(division(place, &lexemes, text, rest));
                    // Replace the division by a placeholder, so that no more errors are reported
                    // about it, and continue after it.
                    for token in [Token::Slash, Token::Missing, Token::Star] {
                        lexemes.push(Lexeme { token, span: place, tainted: true });
                    }
                    lexer = Token::lexer(text);
                    lexer.bump(place.end as usize);
                }
                continue;
            }
            Ok(Token::Hash) if !lexer.remainder().trim_start().starts_with('[') => {
                let rest = lexer.remainder();
                lexer.bump(rest.find('\n').unwrap_or(rest.len()));
                hashes.push(span);
                continue;
            }
            Ok(Token::Str("")) if lexer.remainder().starts_with('"') => {
                let rest = lexer.remainder().get(1..).unwrap_or_default();
                let length = rest.find("\"\"\"").map_or(rest.len(), |at| at + 3);
                lexer.bump(1 + length);
                let span = Span::new(file, span.start, lexer.span().end as u32);
                diagnostics.push(doc_string(span, text));
                continue;
            }
            Ok(Token::Foreign("^")) if is_transposed(lexer.remainder()) => {
                let base = lexemes.last().map_or("x", |lexeme| text.get(lexeme.span.range()).unwrap_or("x"));
                let diagnostic = Diagnostic::error(codes::FOREIGN_OPERATOR, "`^T` does not transpose")
                    .at(span, "")
                    .help(format!("write `{base}.T`"))
                    .fix(span, ".");
                Err((Box::new(diagnostic), Some(Token::Dot)))
            }
            // `net.0.1` is part 1 of part 0, not a float.
            Ok(Token::Number(written)) if let Some(parts) = parts_of_a_path(written, &lexemes, span) => {
                lexemes.extend(parts);
                continue;
            }
            Ok(Token::Dot) if is_point(lexer.remainder(), &lexemes, span) => {
                let (value, shown, whole) = half_number(&mut lexer, &mut lexemes, span, text);
                place = whole;
                let message = format!("`{}` lacks a digit", text.get(whole.range()).unwrap_or("."));
                let diagnostic = Diagnostic::error(codes::BAD_NUMBER, message).at(whole, "");
                let diagnostic = diagnostic.help(format!("write `{shown}`")).fix(whole, shown);
                Err((Box::new(diagnostic), Some(Token::Float(value))))
            }
            Ok(Token::Number(written)) => number(written, span),
            Ok(Token::OpenStr(written)) => Err((Box::new(open_string(span)), Some(Token::Str(written)))),
            Ok(Token::SingleStr(written)) => Err((Box::new(single_quotes(written, span)), Some(Token::Str(written)))),
            // `habits` needs the operands of these.
            Ok(Token::Foreign("**" | "^" | "+=" | "-=" | "*=" | "/=" | "@=" | "%=")) => {
                token.map_err(|()| unknown_text("", ' ', span))
            }
            // Not a path: a Python slice, `x[::2]`, which `habits` reports.
            Ok(Token::Foreign("::")) if !begins_name(lexer.remainder()) => {
                lexemes.push(Lexeme {
                    token: Token::Colon,
                    span: Span::new(file, span.start, span.start + 1),
                    tainted: false,
                });
                lexemes.push(Lexeme {
                    token: Token::Colon,
                    span: Span::new(file, span.start + 1, span.end),
                    tainted: false,
                });
                continue;
            }
            Ok(Token::Foreign(written)) => Err(foreign(written, span)),
            Ok(Token::OpenComment) => {
                let rest = lexer.remainder();
                let length = rest.find("*/").map_or(rest.len(), |at| at + 2);
                lexer.bump(length);
                let span = Span::new(file, span.start, lexer.span().end as u32);
                Err((Box::new(block_comment(span)), None))
            }
            Ok(token) => Ok(token),
            Err(()) => {
                let rest = lexer.remainder();
                let first = lexer.slice().chars().next().unwrap_or(' ');
                let goes_on = |c: char| match first.is_alphabetic() {
                    true => c.is_alphanumeric() || c == '_',
                    false => !c.is_ascii() && !c.is_alphabetic() || "$`\\'".contains(c),
                };
                lexer.bump(rest.find(|c| !goes_on(c)).unwrap_or(rest.len()));
                let mut start = span.start;
                if first.is_alphabetic()
                    && let Some(Lexeme { token: Token::Ident(_), span: before, .. }) = lexemes.last()
                    && before.end == start
                {
                    // Include the letters of the name before its first non-ASCII letter.
                    start = before.start;
                    lexemes.pop();
                }
                let end = lexer.span().end as u32;
                place = Span::new(file, start, end);
                Err(unknown_text(text.get(place.range()).unwrap_or(""), first, place))
            }
        };
        let kept = match read {
            Ok(token) => Some(token),
            Err((diagnostic, replacement)) => {
                diagnostics.push(*diagnostic);
                if let Some(last) = lexemes.last_mut() {
                    last.tainted = true;
                }
                tainted = true;
                replacement
            }
        };
        if let Some(token) = kept {
            dimensions.see(token);
            lexemes.push(Lexeme { token, span: place, tainted });
            tainted = false;
        }
    }
    if let Some((first, others)) = hashes.split_first() {
        let none = Diagnostic::error(codes::BLOCK_COMMENT, "`#` does not begin a comment");
        let diagnostic =
            none.at(*first, "").help("a comment begins with `//` and ends at the end of the line").fix(*first, "//");
        diagnostics.push(others.iter().fold(diagnostic, |diagnostic, span| diagnostic.fix(*span, "//")));
    }
    lexemes
}

/// `0.1` after a dot, as in `net.0.1`: two numbers and the dot in between.
fn parts_of_a_path<'a>(written: &str, before: &[Lexeme<'a>], span: Span) -> Option<[Lexeme<'a>; 3]> {
    let last = before.last().filter(|last| last.token == Token::Dot && last.span.end == span.start)?;
    let (first, second) = written.split_once('.')?;
    let point = span.start + first.len() as u32;
    let at = |token, start, end| Lexeme { token, span: Span::new(span.file, start, end), tainted: last.tainted };
    Some([
        at(Token::Int(first.parse().ok()?), span.start, point),
        at(Token::Dot, point, point + 1),
        at(Token::Int(second.parse().ok()?), point + 1, span.end),
    ])
}

/// Is a dot part of `1.` or `.5`, numbers that lack a digit?
fn is_point(rest: &str, before: &[Lexeme<'_>], span: Span) -> bool {
    let next = rest.chars().next().unwrap_or(' ');
    match before {
        // `net.1.`
        [.., other, last] if last.span.end == span.start && matches!(last.token, Token::Int(_)) => {
            let in_path = other.token == Token::Dot && other.span.end == last.span.start;
            !(in_path || next.is_alphanumeric() || next == '_' || next == '.')
        }
        [.., last] => next.is_ascii_digit() && !super::habits::ends_operand(last.token),
        [] => false,
    }
}

/// The value of `1.` or `.5`, its spelling, and its location. Moves the lexer past it; earlier
/// tokens remain.
fn half_number<'a>(
    lexer: &mut logos::Lexer<'a, Token<'a>>,
    before: &mut Vec<Lexeme<'a>>,
    span: Span,
    text: &str,
) -> (f64, String, Span) {
    let rest = lexer.remainder();
    let digits = rest.find(|c: char| !(c.is_ascii_digit() || c == '_')).unwrap_or(rest.len());
    let whole = match before.last().copied() {
        Some(last) if digits == 0 => {
            before.pop();
            last.span.to(span)
        }
        _ => {
            lexer.bump(digits);
            Span::new(span.file, span.start, span.end + digits as u32)
        }
    };
    let written = text.get(whole.range()).unwrap_or_default();
    let shown = if digits == 0 { format!("{written}0") } else { format!("0{written}") };
    (shown.replace('_', "").parse().unwrap_or(0.0), shown, whole)
}

/// `^T` as a whole word.
fn is_transposed(rest: &str) -> bool {
    let mut chars = rest.chars();
    chars.next() == Some('T') && !chars.next().is_some_and(|c| c.is_alphanumeric() || c == '_')
}

/// `D // 2`, which divides in Python.
fn division(place: Span, before: &[Lexeme<'_>], text: &str, rest: &str) -> Diagnostic {
    let left = before.last().map_or("", |lexeme| text.get(lexeme.span.range()).unwrap_or(""));
    let left = if left.len() == 1 && !left.starts_with(char::is_alphanumeric) { "a" } else { left };
    let end = rest.trim_start().find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(rest.trim_start().len());
    let right = rest.trim_start().get(..end).filter(|word| !word.is_empty()).unwrap_or("b");
    Diagnostic::error(codes::COMMENT_OR_DIVISION, "`//` begins a comment, but this looks like a division")
        .at(place, "the rest of the line would be ignored")
        .help(format!(
            "to divide, write `{left} / {right}`; dimensions must divide exactly: `where {left} % {right} == 0`"
        ))
        .help("between floats, `floor(a / b)` rounds down")
        .help("if it is a comment, begin it with a word")
        .fix(place, "/")
}

/// `"""text"""`
fn doc_string(span: Span, text: &str) -> Diagnostic {
    let inside = text.get(span.range()).unwrap_or_default().trim_matches('"').trim();
    let line_start = text.get(..span.start as usize).unwrap_or_default();
    let line_start = line_start.get(line_start.rfind('\n').map_or(0, |at| at + 1)..).unwrap_or_default();
    let indent: String = line_start.chars().take_while(|c| c.is_whitespace()).collect();
    let lines: Vec<String> = inside.lines().map(|line| format!("// {}", line.trim())).collect();
    Diagnostic::error(codes::BLOCK_COMMENT, "a string on its own is not a comment")
        .at(span, "")
        .help(
            "a comment begins with `//` and ends at the end of the line; `///` before an item, a field or a function describes it",
        )
        .fix(span, lines.join(&format!("\n{indent}")))
}

/// The diagnostic, and the token to continue with.
type Wrong<'a> = (Box<Diagnostic>, Option<Token<'a>>);

fn number<'a>(written: &str, span: Span) -> Result<Token<'a>, Wrong<'a>> {
    let wrong = |why: &str, help: Option<String>| {
        let mut diagnostic = Diagnostic::error(codes::BAD_NUMBER, format!("`{written}` is not a number")).at(span, why);
        diagnostic.helps.extend(help);
        Err((Box::new(diagnostic), Some(Token::Missing)))
    };
    let digits = written.replace('_', "");
    if let Some(hex) = digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X")) {
        return match u64::from_str_radix(hex, 16) {
            Ok(value) if !hex.starts_with('+') => Ok(Token::Int(value)),
            _ if hex.is_empty() => wrong("digits are missing after `0x`", None),
            _ if hex.bytes().all(|b| b.is_ascii_hexdigit()) => wrong("too large for 64 bits", None),
            _ => wrong("hexadecimal digits are 0-9 and a-f", None),
        };
    }
    if digits.bytes().all(|b| b.is_ascii_digit()) {
        return match digits.parse() {
            Ok(value) => Ok(Token::Int(value)),
            Err(_) => wrong("too large for 64 bits", Some(format!("as a float: `{written}.0`"))),
        };
    }
    let after = digits.trim_start_matches(|c: char| c.is_ascii_digit());
    let is_float = after.starts_with(['.', 'e', 'E']);
    match digits.parse::<f64>() {
        Ok(value) if is_float && value.is_finite() => Ok(Token::Float(value)),
        Ok(_) if is_float => wrong("too large for a float", Some("infinity is written `inf`".into())),
        _ if is_float && digits.ends_with(['e', 'E', '+', '-']) => wrong("the exponent's digits are missing", None),
        _ if is_float => wrong("only digits are allowed here", None),
        _ => {
            let factor = &digits[..digits.len() - after.len()];
            wrong("a name may not begin with a digit", Some(format!("a product is written `{factor}*{after}`")))
        }
    }
}

fn open_string(span: Span) -> Diagnostic {
    Diagnostic::error(codes::OPEN_STRING, "this string is not closed")
        .at(span, "the line ends before the closing `\"`")
        .help("a string must end on its line; `\\n` is a newline inside it")
}

fn single_quotes(written: &str, span: Span) -> Diagnostic {
    Diagnostic::error(codes::FOREIGN_OPERATOR, "strings are written in double quotes")
        .at(span, "")
        .help(format!("write `\"{written}\"`"))
}

fn block_comment(span: Span) -> Diagnostic {
    Diagnostic::error(codes::BLOCK_COMMENT, "`/* .. */` is not a comment")
        .at(span, "")
        .help("a comment begins with `//` and ends at the end of the line")
}

fn begins_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

fn foreign<'a>(written: &str, span: Span) -> Wrong<'a> {
    let (help, replacement): (String, Option<Token<'a>>) = match written {
        "&&" => ("write `and`".into(), Some(Token::And)),
        "||" => ("write `or`".into(), Some(Token::Or)),
        "!" => ("write `not`".into(), Some(Token::Not)),
        "&" => ("write `and`; of integers, `bitwise_and(a, b)`".into(), Some(Token::And)),
        "|" => ("write `or`; of integers, `bitwise_or(a, b)`".into(), Some(Token::Or)),
        "~" => ("write `not`; of integers, `bitwise_xor(a, -1)`".into(), Some(Token::Not)),
        "===" => ("write `==`".into(), Some(Token::EqEq)),
        "!==" => ("write `!=`".into(), Some(Token::Ne)),
        "=>" => ("the type of a result goes after `->`".into(), Some(Token::Arrow)),
        "::" => ("a path is written with dots: `std.nn`".into(), Some(Token::Dot)),
        ":=" => ("a new variable is written `let x = ..` or `var x = ..`".into(), Some(Token::Eq)),
        "?" => ("write `if c { a } else { b }`, or `where(c, a, b)` to select by element".into(), None),
        _ => ("it has no meaning in attn".into(), None),
    };
    let word = match written {
        "&&" | "&" => Some("and"),
        "||" | "|" => Some("or"),
        "!" | "~" => Some("not "),
        "===" => Some("=="),
        "!==" => Some("!="),
        "=>" => Some("->"),
        "::" => Some("."),
        _ => None,
    };
    let diagnostic =
        Diagnostic::error(codes::FOREIGN_OPERATOR, format!("`{written}` is not an operator of attn")).at(span, "");
    let diagnostic = match word {
        Some(word) => diagnostic.fix(span, word),
        None => diagnostic,
    };
    (Box::new(diagnostic.help(help)), replacement)
}

fn unknown_text<'a>(written: &'a str, first: char, span: Span) -> Wrong<'a> {
    if first.is_alphabetic() {
        let diagnostic = Diagnostic::error(codes::UNKNOWN_CHARACTER, format!("`{written}` cannot be a name"))
            .at(span, "")
            .help("names consist of the letters a-z and A-Z, digits and `_`");
        return (Box::new(diagnostic), Some(Token::Ident(written)));
    }
    let (help, replacement) = match first {
        '×' | '·' | '∗' | '⋅' => (Some("write `*`"), Some(Token::Star)),
        '−' | '–' | '—' => (Some("write `-`"), Some(Token::Minus)),
        '÷' | '∕' => (Some("write `/`"), Some(Token::Slash)),
        '≤' => (Some("write `<=`"), Some(Token::Le)),
        '≥' => (Some("write `>=`"), Some(Token::Ge)),
        '≠' => (Some("write `!=`"), Some(Token::Ne)),
        '→' => (Some("write `->`"), Some(Token::Arrow)),
        '√' => (Some("write `sqrt(x)`"), None),
        '∞' => (Some("write `inf`"), Some(Token::Inf)),
        '“' | '”' | '„' | '’' | '‘' => {
            (Some("strings are written in straight double quotes: `\"..\"`"), None)
        }
        _ => (None, None),
    };
    let is_alone = written.chars().nth(1).is_none();
    let shown = if is_alone { show_char(first) } else { "these characters".to_string() };
    let diagnostic = Diagnostic::error(codes::UNKNOWN_CHARACTER, format!("unexpected {shown}")).at(span, "");
    let diagnostic = match help {
        Some(help) => diagnostic.help(help),
        None => diagnostic,
    };
    (Box::new(diagnostic), replacement.filter(|_| is_alone))
}

fn show_char(c: char) -> String {
    if c.is_control() || c.is_whitespace() && !c.is_ascii() {
        format!("the character U+{:04X}", c as u32)
    } else {
        format!("`{c}`")
    }
}
