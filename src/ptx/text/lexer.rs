//! Tokens of PTX.

use super::TextError;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Token {
    /// A name, register, directive or opcode, including dots.
    Word(String),
    /// An integer; the sign is a separate token.
    Int(u64),
    /// Bits of an `f32`.
    F32(u32),
    /// Bits of an `f64`.
    F64(u64),
    /// Any other character.
    Mark(char),
    /// A comment that runs to the end of its line.
    Comment(String),
}

/// A token with its line and column.
#[derive(Clone, Debug)]
pub(super) struct Placed {
    pub token: Token,
    pub line: usize,
    pub column: usize,
}

/// Tokenizes PTX text.
pub(super) fn tokens(text: &str) -> Result<Vec<Placed>, TextError> {
    let mut out = Vec::new();
    // `/* .. */` may run over lines.
    let mut in_comment = false;
    for (n, line) in text.lines().enumerate() {
        let chars: Vec<char> = line.chars().collect();
        let mut at = 0;
        while let Some(c) = chars.get(at).copied() {
            let rest = chars.get(at..).unwrap_or_default();
            if in_comment {
                in_comment = !rest.starts_with(&['*', '/']);
                at += if in_comment { 1 } else { 2 };
                continue;
            }
            let placed = |token| Placed { token, line: n + 1, column: at + 1 };
            let error = |message: &str| TextError { line: n + 1, column: at + 1, message: message.to_string() };
            if c.is_whitespace() {
                at += 1;
            } else if rest.starts_with(&['/', '*']) {
                in_comment = true;
                at += 2;
            } else if rest.starts_with(&['/', '/']) {
                let words: String = rest.iter().skip(2).collect();
                out.push(placed(Token::Comment(words.trim().to_string())));
                at = chars.len();
            } else if c.is_ascii_digit() {
                let length = rest.iter().take_while(|c| c.is_ascii_alphanumeric() || **c == '.').count();
                let word: String = rest.iter().take(length).collect();
                let is_version = matches!(out.last(), Some(Placed { token: Token::Word(w), .. }) if w == ".version");
                let token = if is_version { Some(Token::Word(word)) } else { number(&word) };
                let form = "this is not a number in PTX: write `12`, `0x1F`, or the bits of a float, `0f3F800000`";
                out.push(placed(token.ok_or_else(|| error(form))?));
                at += length;
            } else if is_word(c) {
                let mut end = at;
                loop {
                    match (chars.get(end), chars.get(end + 1), chars.get(end + 2)) {
                        (Some(c), ..) if is_word(*c) => end += 1,
                        // `shared::cta`, but not the colon of a label.
                        (Some(':'), Some(':'), Some(c)) if is_word(*c) => end += 2,
                        _ => break,
                    }
                }
                out.push(placed(Token::Word(chars.get(at..end).unwrap_or_default().iter().collect())));
                at = end;
            } else if "{}[]()<>,;:@!|+-=".contains(c) {
                out.push(placed(Token::Mark(c)));
                at += 1;
            } else {
                return Err(error(&format!("unexpected `{}`", c.escape_debug())));
            }
        }
    }
    Ok(out)
}

fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '$' | '%' | '.')
}

fn number(word: &str) -> Option<Token> {
    let bits = |prefixes: [&str; 2], length: usize| {
        let hex = prefixes.iter().find_map(|p| word.strip_prefix(p))?;
        if hex.len() == length { u64::from_str_radix(hex, 16).ok() } else { None }
    };
    if let Some(n) = bits(["0f", "0F"], 8) {
        return u32::try_from(n).ok().map(Token::F32);
    }
    if let Some(n) = bits(["0d", "0D"], 16) {
        return Some(Token::F64(n));
    }
    let hex = word.strip_prefix("0x").or_else(|| word.strip_prefix("0X"));
    let n = match hex {
        Some(hex) => u64::from_str_radix(hex, 16).ok()?,
        None => word.parse().ok()?,
    };
    Some(Token::Int(n))
}

/// Is it a valid PTX identifier? (Register names begin with `%`.)
pub(crate) fn is_identifier(name: &str) -> bool {
    let rest = |s: &str| s.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '$');
    let mut chars = name.chars();
    match chars.next() {
        Some(c) if c.is_ascii_alphabetic() => rest(chars.as_str()),
        Some('_' | '$' | '%') => !chars.as_str().is_empty() && rest(chars.as_str()),
        _ => false,
    }
}
