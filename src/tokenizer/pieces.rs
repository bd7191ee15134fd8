//! The pre-tokenizers of `tokenizer.json`, which divide a text into pieces before the model divides
//! those into tokens.
//!
//! In: their JSON. Out: a [`Splitter`] for each, or an error that names the unsupported part.

use super::budget::Budget;
use super::pattern::Pattern;
use serde_json::Value;
use std::ops::Range;

/// GPT-2's words: contractions, letters, numbers, other characters, each with a preceding space,
/// and whitespace.
const WORDS: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";
/// Punctuation of BERT, including the ASCII symbols.
const PUNCTUATION: &str = r"[\p{P}$+<=>^`|~]";
/// The character that represents a space in character vocabularies.
const BLANK: &str = "\u{2581}";
/// Maximum number of characters of a value in a message.
const SHOWN: usize = 60;

/// The elements of a list; empty if it is not a list.
pub(super) fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// The parts of a `Sequence`, or the single part itself, each with its JSON path; empty for null.
pub(super) fn named<'v>(place: &str, of_sequence: &str, value: &'v Value) -> Vec<(String, &'v Value)> {
    if value.is_null() {
        return Vec::new();
    }
    if value["type"] != "Sequence" {
        return vec![(place.to_string(), value)];
    }
    let parts = list(&value[of_sequence]).iter().enumerate();
    parts.flat_map(|(at, one)| named(&format!("{place}.{of_sequence}[{at}]"), of_sequence, one)).collect()
}

/// The message for an unsupported value.
pub(super) fn refuse(place: &str, found: &Value, known: &str) -> String {
    format!("its `{place}` is {}; expected {known}", shown(found.get("type").unwrap_or(found)))
}

/// A value in a message, truncated if it is long.
pub(super) fn shown(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(SHOWN) {
        Some((at, _)) => format!("{}...", text.get(..at).unwrap_or_default()),
        None => text,
    }
}

/// The treatment of delimiters when a text is split.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Divider {
    Removed,
    Isolated,
    WithPrevious,
    WithNext,
}

/// A division of a text into pieces.
#[derive(Debug)]
pub(super) enum Splitter {
    /// At the matches of a regular expression, or between them.
    At { what: Box<Pattern>, divider: Divider, between: bool },
    /// Converts bytes to the characters of a byte vocabulary.
    Bytes { prefix: bool },
    /// Replaces spaces by a character of the vocabulary, inserts one before the text (or only
    /// before its first piece), and optionally divides the text into words.
    Blanks { blank: String, prefix: Prefix, words: bool },
}

/// Which pieces get a space inserted before them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Prefix {
    Never,
    First,
    Always,
}

/// A text and its pieces. Its first `first` bytes come from the first character of the prompt.
#[derive(Debug)]
pub(super) struct Pieces {
    pub(super) text: String,
    pub(super) pieces: Vec<Range<usize>>,
    pub(super) first: usize,
}

impl Pieces {
    /// A text with a single piece.
    pub(super) fn whole(text: String, first: usize) -> Pieces {
        let whole = 0..text.len();
        Pieces { text, pieces: vec![whole], first }
    }

    /// The text of each piece.
    pub(super) fn texts(&self) -> impl Iterator<Item = &str> {
        self.pieces.iter().filter_map(|piece| self.text.get(piece.clone()))
    }

    /// Rewrites and divides each piece. `make` receives a piece, whether it is the first, and the
    /// output string to append to; it returns the offsets at which to divide.
    fn replace(&mut self, budget: &Budget, make: impl Fn(&str, bool, &mut String) -> Vec<usize>) -> Result<(), String> {
        let mut made = Pieces { text: String::new(), pieces: Vec::with_capacity(self.pieces.len()), first: 0 };
        for piece in &self.pieces {
            let (begin, is_first) = (made.text.len(), piece.start < self.first);
            let text = self.text.get(piece.clone()).unwrap_or_default();
            let mut from = begin;
            for end in make(text, is_first, &mut made.text).into_iter().chain([made.text.len()]) {
                if from < end {
                    made.pieces.push(from..end);
                    from = end;
                }
            }
            if is_first {
                // At most as many additional characters as there were bytes.
                let own = text.get(..self.first.min(piece.end) - piece.start).unwrap_or_default();
                let rest = made.text.get(begin..).unwrap_or_default();
                let length = rest.char_indices().nth(own.chars().count().max(1)).map_or(rest.len(), |(at, _)| at);
                made.first = begin + length;
            }
            budget.fits(made.text.len())?;
        }
        budget.keep(made.text.len())?;
        *self = made;
        Ok(())
    }
}

impl Splitter {
    pub(super) fn all(value: &Value, budget: &Budget) -> Result<Vec<Splitter>, String> {
        let mut all = Vec::new();
        let parts = named("pre_tokenizer", "pretokenizers", value);
        // Each may lengthen a text: a few dozen would exhaust memory.
        for name in ["ByteLevel", "Metaspace"] {
            if parts.iter().filter(|(_, one)| one["type"] == name).count() > 1 {
                return Err(format!("its `pre_tokenizer` has more than one `{name}`"));
            }
        }
        for (place, one) in parts {
            Splitter::read(&place, one, &mut all, budget)?;
        }
        Ok(all)
    }

    fn read(place: &str, one: &Value, all: &mut Vec<Splitter>, budget: &Budget) -> Result<(), String> {
        let in_place = |why| format!("its `{place}` has a pattern that cannot be used: {why}");
        let regex = |pattern: &str| Pattern::new(pattern, budget).map(Box::new).map_err(in_place);
        match one["type"].as_str() {
            Some("ByteLevel") => {
                if one["add_prefix_space"] == true {
                    all.push(Splitter::Bytes { prefix: true });
                }
                if one["use_regex"] != false {
                    all.push(Splitter::At { what: regex(WORDS)?, divider: Divider::Isolated, between: false });
                }
                all.push(Splitter::Bytes { prefix: false });
            }
            Some("Split") => {
                let what = match (one["pattern"]["Regex"].as_str(), one["pattern"]["String"].as_str()) {
                    (Some(pattern), _) => regex(pattern)?,
                    (None, Some(text)) => Pattern::of_text(text, budget).map(Box::new).map_err(in_place)?,
                    (None, None) => return Err(refuse(&format!("{place}.pattern"), &one["pattern"], "a pattern")),
                };
                all.push(Splitter::At { what, divider: divider(place, one)?, between: one["invert"] == true });
            }
            Some("Punctuation") => {
                all.push(Splitter::At { what: regex(PUNCTUATION)?, divider: divider(place, one)?, between: false });
            }
            Some(kind @ ("WhitespaceSplit" | "BertPreTokenizer")) => {
                all.push(Splitter::At { what: regex(r"\s")?, divider: Divider::Removed, between: false });
                if kind == "BertPreTokenizer" {
                    all.push(Splitter::At { what: regex(PUNCTUATION)?, divider: Divider::Isolated, between: false });
                }
            }
            Some("Whitespace") => {
                all.push(Splitter::At { what: regex(r"\w+|[^\w\s]+")?, divider: Divider::Removed, between: true });
            }
            Some("Digits") => {
                let pattern = if one["individual_digits"] == true { r"\p{N}" } else { r"\p{N}+" };
                all.push(Splitter::At { what: regex(pattern)?, divider: Divider::Isolated, between: false });
            }
            Some("Metaspace") => {
                let prefix = match (one["prepend_scheme"].as_str(), &one["add_prefix_space"]) {
                    (Some("never"), _) | (None, Value::Bool(false)) => Prefix::Never,
                    (Some("first"), _) => Prefix::First,
                    _ => Prefix::Always,
                };
                let blank = match &one["replacement"] {
                    Value::Null => BLANK.to_string(),
                    Value::String(blank) if blank.chars().count() == 1 => blank.clone(),
                    other => return Err(refuse(&format!("{place}.replacement"), other, "one character")),
                };
                all.push(Splitter::Blanks { blank, prefix, words: one["split"] != false });
            }
            _ => {
                let known =
                    "BertPreTokenizer, ByteLevel, Digits, Metaspace, Punctuation, Split, Whitespace, WhitespaceSplit";
                return Err(refuse(place, one, known));
            }
        }
        Ok(())
    }

    /// Divides the pieces of a text further.
    ///
    /// # Errors
    /// The budget is exhausted.
    pub(super) fn split(&self, pieces: &mut Pieces, budget: &Budget) -> Result<(), String> {
        budget.work(8 * pieces.pieces.len() + pieces.text.len())?;
        match self {
            Splitter::At { what, divider, between } => {
                let mut made = Vec::new();
                for piece in &pieces.pieces {
                    let text = pieces.text.get(piece.clone()).unwrap_or_default();
                    let found = what.matches(text, budget)?;
                    budget.work(8 * found.len())?;
                    divided(piece, &found, *between, *divider, &mut made);
                }
                pieces.pieces = made;
                Ok(())
            }
            Splitter::Bytes { prefix: true } => pieces.replace(budget, |text, _, out| {
                out.push_str(if text.starts_with(' ') { "" } else { " " });
                out.push_str(text);
                Vec::new()
            }),
            Splitter::Bytes { prefix: false } => pieces.replace(budget, |text, _, out| {
                out.extend(text.bytes().map(character));
                Vec::new()
            }),
            Splitter::Blanks { blank, prefix, words } => pieces.replace(budget, |text, is_first, out| {
                let begin = out.len();
                let is_put = *prefix == Prefix::Always || *prefix == Prefix::First && is_first;
                if is_put && !text.starts_with(' ') && !text.starts_with(blank.as_str()) {
                    out.push_str(blank);
                }
                let mut buffer = [0; 4];
                for c in text.chars() {
                    out.push_str(if c == ' ' { blank } else { c.encode_utf8(&mut buffer) });
                }
                if !*words {
                    return Vec::new();
                }
                let made = out.get(begin..).unwrap_or_default();
                made.match_indices(blank.as_str()).map(|(at, _)| begin + at).collect()
            }),
        }
    }
}

/// How a pre-tokenizer treats its delimiters.
fn divider(place: &str, one: &Value) -> Result<Divider, String> {
    match one["behavior"].as_str() {
        Some("Removed") => Ok(Divider::Removed),
        Some("Isolated") => Ok(Divider::Isolated),
        Some("MergedWithPrevious") => Ok(Divider::WithPrevious),
        Some("MergedWithNext") => Ok(Divider::WithNext),
        _ => {
            let known = "Removed, Isolated, MergedWithPrevious, MergedWithNext";
            Err(refuse(&format!("{place}.behavior"), &one["behavior"], known))
        }
    }
}

/// Divides a piece at the matches in it, or between them.
fn divided(piece: &Range<usize>, found: &[Range<usize>], between: bool, divider: Divider, out: &mut Vec<Range<usize>>) {
    let mut joins = false;
    let mut part = |begin: usize, end: usize, divides: bool| {
        if begin == end {
            return;
        }
        let joined = match divider {
            Divider::Removed | Divider::Isolated => false,
            Divider::WithPrevious => divides && joins,
            Divider::WithNext => !divides && joins,
        };
        let (begin, end) = (piece.start + begin, piece.start + end);
        match out.last_mut().filter(|_| joined) {
            Some(last) => last.end = end,
            None if divides && divider == Divider::Removed => {}
            None => out.push(begin..end),
        }
        joins = if divider == Divider::WithPrevious { !divides } else { divides };
    };
    let mut end = 0;
    for one in found {
        part(end, one.start, between);
        part(one.start, one.end, !between);
        end = one.end;
    }
    part(end, piece.len(), between);
}

/// Number of bytes that are not visible Latin-1 characters.
const HIDDEN: usize = 68;
/// The hidden bytes, in order: they are represented by the characters starting at U+0100.
const HIDDEN_BYTES: [u8; HIDDEN] = {
    let mut bytes = [0; HIDDEN];
    let (mut byte, mut at) = (0u8, 0);
    while at < HIDDEN {
        if !is_visible(byte) {
            bytes[at] = byte;
            at += 1;
        }
        byte += 1;
    }
    bytes
};

/// The character that represents a byte in byte vocabularies: itself if it is a visible Latin-1
/// character, otherwise one of those starting at U+0100, in order.
fn character(byte: u8) -> char {
    let hidden = HIDDEN_BYTES.binary_search(&byte).ok().and_then(|at| u32::try_from(at).ok());
    hidden.map_or(char::from(byte), |at| char::from_u32(0x100 + at).unwrap_or(char::REPLACEMENT_CHARACTER))
}

const fn is_visible(byte: u8) -> bool {
    matches!(byte, 0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff)
}

/// The bytes that characters represent; other characters yield their UTF-8 bytes.
pub(super) fn bytes_of(text: &str) -> Vec<u8> {
    let hidden = |c: char| HIDDEN_BYTES.get(usize::try_from(u32::from(c).checked_sub(0x100)?).ok()?).copied();
    let own = |c: char| u8::try_from(u32::from(c)).ok().filter(|b| is_visible(*b));
    let mut bytes = Vec::with_capacity(text.len());
    for c in text.chars() {
        match own(c).or_else(|| hidden(c)) {
            Some(byte) => bytes.push(byte),
            None => bytes.extend(c.encode_utf8(&mut [0; 4]).bytes()),
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn split(description: Value, text: &str) -> Vec<String> {
        let budget = Budget::for_length(text.len()).unwrap();
        let mut pieces = Pieces::whole(text.to_string(), 1);
        for splitter in Splitter::all(&description, &budget).unwrap() {
            splitter.split(&mut pieces, &budget).unwrap();
        }
        pieces.texts().map(str::to_string).collect()
    }

    #[test]
    fn bytes_are_characters_and_back() {
        let all: Vec<u8> = (0..=255).collect();
        let text: String = all.iter().copied().map(character).collect();
        assert_eq!(bytes_of(&text), all);
        assert_eq!((character(b' '), character(b'\n'), character(0xad)), ('\u{120}', '\u{10a}', '\u{143}'));
    }

    #[test]
    fn texts_are_divided() {
        let at = |behavior: &str, invert: bool| json!({"type": "Split", "pattern": {"String": "-"}, "behavior": behavior, "invert": invert});
        assert_eq!(split(at("Isolated", false), "-a--b"), ["-", "a", "-", "-", "b"]);
        assert_eq!(split(at("Removed", false), "-a--b"), ["a", "b"]);
        assert_eq!(split(at("Removed", true), "-a--b"), ["-", "-", "-"]);
        assert_eq!(split(at("MergedWithPrevious", false), "-a--b"), ["-", "a-", "-", "b"]);
        assert_eq!(split(at("MergedWithNext", false), "-a--b"), ["-a", "-", "-b"]);
        let level = json!({"type": "ByteLevel", "add_prefix_space": true, "use_regex": true});
        assert_eq!(split(level, "it's 12  b!"), ["\u{120}it", "'s", "\u{120}12", "\u{120}", "\u{120}b", "!"]);
        let blanks = |scheme: &str| json!({"type": "Metaspace", "replacement": "_", "prepend_scheme": scheme});
        assert_eq!(split(blanks("always"), "a  b"), ["_a", "_", "_b"]);
        assert_eq!(split(blanks("never"), "a b"), ["a", "_b"]);
        let digits = json!({"type": "Digits", "individual_digits": true});
        assert_eq!(split(digits, "a12"), ["a", "1", "2"]);
    }

    #[test]
    fn texts_do_not_grow_without_bound() {
        let refused = |description: Value| Splitter::all(&description, &Budget::for_length(0).unwrap()).unwrap_err();
        let level = json!({"type": "ByteLevel", "use_regex": false});
        let blanks = |blank: &str| json!({"type": "Metaspace", "replacement": blank, "split": false});
        for (part, name) in [(level.clone(), "ByteLevel"), (blanks("_"), "Metaspace")] {
            // Nested sequences count too.
            let inner = json!({"type": "Sequence", "pretokenizers": [part]});
            let all = json!({"type": "Sequence", "pretokenizers": [part, inner]});
            assert_eq!(refused(all), format!("its `pre_tokenizer` has more than one `{name}`"));
        }
        for blank in ["", "  "] {
            let why = format!("its `pre_tokenizer.replacement` is \"{blank}\"; expected one character");
            assert_eq!(refused(blanks(blank)), why);
        }
        // One of each is accepted.
        let both = json!({"type": "Sequence", "pretokenizers": [blanks("_"), level]});
        assert_eq!(split(both, "a b"), ["_a_b"]);
    }
}
