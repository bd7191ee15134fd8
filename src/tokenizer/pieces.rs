//! The parts of `tokenizer.json` that change a text and divide it into pieces before BPE: normalizers and pre-tokenizers.
//!
//! In: their descriptions. Out: a value for each, which does that to a text; or the name of what is not supported.

use super::charsmap::CharsMap;
use fancy_regex::Regex;
use serde_json::Value;
use unicode_normalization::UnicodeNormalization as _;

/// GPT-2's words: contractions, letters, numbers, signs, each with the blank before it, and blanks.
const WORDS: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";
/// The character that stands for a blank in vocabularies of characters.
const BLANK: &str = "\u{2581}";
/// How many times as long all replacements of a field may make a text.
const MOST_GROWTH: f64 = 16.0;

/// The entries of a list, or none.
pub(super) fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// The parts of a `Sequence`, or the single part itself, each with its place; nothing for null.
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

/// Says what is not supported.
pub(super) fn refuse(place: &str, found: &Value, known: &str) -> String {
    let found = found.get("type").unwrap_or(found).to_string();
    format!("its `{place}` is {found}; expected {known}")
}

/// Refuses replacements, one after the other, that can make a text much longer: a few dozen of `a` by `aa` would fill any memory.
///
/// Lengths are in characters after NFKD, which no normal form makes longer.
pub(super) fn bounded<'t>(place: &str, replaced: impl Iterator<Item = (&'t str, &'t str)>) -> Result<(), String> {
    let growth = |(from, to): (&str, &str)| match (from.chars().count(), to.nfkd().count()) {
        // It is put before each character, and at the end.
        (0, long) => 1.0 + 2.0 * long as f64,
        (short, long) => (long as f64 / short as f64).max(1.0),
    };
    if replaced.map(growth).product::<f64>() > MOST_GROWTH {
        return Err(format!("its `{place}` can make a text more than {MOST_GROWTH} times as long"));
    }
    Ok(())
}

/// A change of a text.
#[derive(Debug)]
pub(super) enum Normalizer {
    /// One of Unicode's normal forms, by its name.
    Form(String),
    Prepend(String),
    Replace(String, String),
    /// What a regular expression finds.
    ReplaceFound(Box<Regex>, String),
    /// Takes whitespace away from the beginning, and from the end.
    Strip {
        left: bool,
        right: bool,
    },
    Table(CharsMap),
}

impl Normalizer {
    pub(super) fn all(value: &Value) -> Result<Vec<Normalizer>, String> {
        let parts = named("normalizer", "normalizers", value);
        let all: Vec<Normalizer> =
            parts.into_iter().map(|(place, one)| Normalizer::read(&place, one)).collect::<Result<_, String>>()?;
        let replaced = all.iter().filter_map(|one| match one {
            Normalizer::Replace(from, to) => Some((from.as_str(), to.as_str())),
            // It may find nothing, anywhere.
            Normalizer::ReplaceFound(_, to) => Some(("", to.as_str())),
            _ => None,
        });
        bounded("normalizer", replaced)?;
        if all.iter().filter(|one| matches!(one, Normalizer::Table(_))).count() > 1 {
            return Err("its `normalizer` has more than one `Precompiled`".to_string());
        }
        Ok(all)
    }

    fn read(place: &str, one: &Value) -> Result<Normalizer, String> {
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let made = match one["type"].as_str() {
            Some(form @ ("NFC" | "NFD" | "NFKC" | "NFKD")) => Some(Normalizer::Form(form.to_string())),
            Some("Prepend") => text(&one["prepend"]).map(Normalizer::Prepend),
            Some("Replace") => match (one["pattern"]["Regex"].as_str(), text(&one["content"])) {
                (Some(pattern), Some(to)) => {
                    let what = regex(pattern).map_err(|why| format!("its `{place}` has {why}"))?;
                    Some(Normalizer::ReplaceFound(what, to))
                }
                (_, to) => text(&one["pattern"]["String"]).and_then(|from| Some(Normalizer::Replace(from, to?))),
            },
            Some("Strip") => {
                Some(Normalizer::Strip { left: one["strip_left"] == true, right: one["strip_right"] == true })
            }
            Some("Precompiled") => {
                let field = &one["precompiled_charsmap"];
                let map = field.as_str().ok_or("not a text").map_err(str::to_string).and_then(CharsMap::read);
                let why = |why| format!("its `{place}.precompiled_charsmap` cannot be read: {why}");
                Some(Normalizer::Table(map.map_err(why)?))
            }
            _ => None,
        };
        made.ok_or_else(|| refuse(place, one, "NFC, NFD, NFKC, NFKD, Precompiled, Prepend, Replace, Strip"))
    }

    pub(super) fn apply(&self, text: &str) -> Result<String, String> {
        Ok(match self {
            Normalizer::Form(form) if form == "NFC" => text.nfc().collect(),
            Normalizer::Form(form) if form == "NFD" => text.nfd().collect(),
            Normalizer::Form(form) if form == "NFKC" => text.nfkc().collect(),
            Normalizer::Form(_) => text.nfkd().collect(),
            Normalizer::Prepend(before) => format!("{before}{text}"),
            Normalizer::Replace(from, to) => text.replace(from, to),
            Normalizer::ReplaceFound(what, to) => {
                parts(what, text, false)?.into_iter().map(|(part, found)| if found { to } else { part }).collect()
            }
            Normalizer::Strip { left, right } => {
                let text = if *left { text.trim_start() } else { text };
                (if *right { text.trim_end() } else { text }).to_string()
            }
            Normalizer::Table(map) => map.apply(text),
        })
    }
}

/// What happens to the dividers of a text.
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
    /// At what a regular expression finds, or between it.
    At { what: Box<Regex>, divider: Divider, between: bool },
    /// Bytes as the characters of a vocabulary of bytes.
    Bytes { prefix: bool },
    /// Replaces blanks by a character of the vocabulary, puts one before the text (or only before its first piece), and may divide
    /// the text into words.
    Blanks { blank: String, prefix: Prefix, words: bool },
}

/// Which pieces a blank is put before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Prefix {
    Never,
    First,
    Always,
}

fn regex(text: &str) -> Result<Box<Regex>, String> {
    Regex::new(text).map(Box::new).map_err(|error| format!("a pattern that cannot be read: {error}"))
}

impl Splitter {
    pub(super) fn all(value: &Value) -> Result<Vec<Splitter>, String> {
        let mut all = Vec::new();
        let parts = named("pre_tokenizer", "pretokenizers", value);
        // Each may make a text longer: a few dozen would fill any memory.
        for name in ["ByteLevel", "Metaspace"] {
            if parts.iter().filter(|(_, one)| one["type"] == name).count() > 1 {
                return Err(format!("its `pre_tokenizer` has more than one `{name}`"));
            }
        }
        for (place, one) in parts {
            Splitter::read(&place, one, &mut all).map_err(|why| match why.starts_with("its ") {
                true => why,
                false => format!("its `{place}` has {why}"),
            })?;
        }
        Ok(all)
    }

    fn read(place: &str, one: &Value, all: &mut Vec<Splitter>) -> Result<(), String> {
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
                    (None, Some(text)) => regex(&fancy_regex::escape(text))?,
                    (None, None) => return Err(refuse(&format!("{place}.pattern"), &one["pattern"], "a pattern")),
                };
                let divider = match one["behavior"].as_str() {
                    Some("Removed") => Divider::Removed,
                    Some("Isolated") => Divider::Isolated,
                    Some("MergedWithPrevious") => Divider::WithPrevious,
                    Some("MergedWithNext") => Divider::WithNext,
                    _ => {
                        let known = "Removed, Isolated, MergedWithPrevious, MergedWithNext";
                        return Err(refuse(&format!("{place}.behavior"), &one["behavior"], known));
                    }
                };
                all.push(Splitter::At { what, divider, between: one["invert"] == true });
            }
            Some("WhitespaceSplit") => {
                all.push(Splitter::At { what: regex(r"\s")?, divider: Divider::Removed, between: false });
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
            _ => return Err(refuse(place, one, "ByteLevel, Split, Digits, Metaspace, WhitespaceSplit")),
        }
        Ok(())
    }

    /// The pieces of a text, which is the first of all or not.
    pub(super) fn split(&self, text: &str, is_first: bool, out: &mut Vec<String>) -> Result<(), String> {
        match self {
            Splitter::At { what, divider, between } => {
                let parts = parts(what, text, *between)?;
                out.extend(divided(&parts, *divider));
            }
            Splitter::Bytes { prefix: true } if text.starts_with(' ') => out.push(text.to_string()),
            Splitter::Bytes { prefix: true } => out.push(format!(" {text}")),
            Splitter::Bytes { prefix: false } => out.push(text.bytes().map(character).collect()),
            Splitter::Blanks { blank, prefix, words } => {
                let mut text = text.replace(' ', blank);
                let is_put = *prefix == Prefix::Always || *prefix == Prefix::First && is_first;
                if is_put && !text.starts_with(blank.as_str()) {
                    text.insert_str(0, blank);
                }
                if *words {
                    let found = text.match_indices(blank.as_str()).map(|(at, _)| at).filter(|at| *at > 0);
                    let ends: Vec<usize> = found.chain([text.len()]).collect();
                    let begins = std::iter::once(0).chain(ends.iter().copied());
                    out.extend(begins.zip(&ends).map(|(begin, end)| text[begin..*end].to_string()));
                } else {
                    out.push(text);
                }
            }
        }
        out.retain(|piece| !piece.is_empty());
        Ok(())
    }
}

/// The parts of a text, in order; those that a regular expression finds (or those between them) are marked.
fn parts<'t>(what: &Regex, text: &'t str, between: bool) -> Result<Vec<(&'t str, bool)>, String> {
    let mut parts = Vec::new();
    let mut end = 0;
    for found in what.find_iter(text) {
        let found = found.map_err(|error| format!("the tokenizer's pattern fails on this text: {error}"))?;
        parts.push((&text[end..found.start()], between));
        parts.push((found.as_str(), !between));
        end = found.end();
    }
    parts.push((&text[end..], between));
    parts.retain(|(part, _)| !part.is_empty());
    Ok(parts)
}

/// The pieces that marked parts divide a text into.
fn divided(parts: &[(&str, bool)], divider: Divider) -> Vec<String> {
    let mut out: Vec<String> = Vec::new();
    let mut joins = false;
    for (part, divides) in parts {
        let (skips, joined) = match divider {
            Divider::Removed => (*divides, false),
            Divider::Isolated => (false, false),
            Divider::WithPrevious => (false, *divides && joins),
            Divider::WithNext => (false, !*divides && joins),
        };
        match out.last_mut().filter(|_| joined) {
            Some(last) => last.push_str(part),
            None if skips => {}
            None => out.push((*part).to_string()),
        }
        joins = if divider == Divider::WithPrevious { !*divides } else { *divides };
    }
    out
}

/// The character that stands for a byte in vocabularies of bytes: itself where it is a visible character of Latin-1, else one from
/// U+0100 on, in order.
fn character(byte: u8) -> char {
    if is_visible(byte) {
        return char::from(byte);
    }
    let hidden = (0..byte).filter(|b| !is_visible(*b)).count();
    u32::try_from(hidden).ok().and_then(|n| char::from_u32(0x100 + n)).unwrap_or(char::REPLACEMENT_CHARACTER)
}

fn is_visible(byte: u8) -> bool {
    matches!(byte, 0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff)
}

/// The bytes that characters stand for; a character that stands for none gives its UTF-8 bytes.
pub(super) fn bytes_of(text: &str) -> Vec<u8> {
    let hidden = |c: char| {
        let at = u32::from(c).checked_sub(0x100)?;
        (0..=255u8).filter(|b| !is_visible(*b)).nth(usize::try_from(at).ok()?)
    };
    let own = |c: char| u8::try_from(u32::from(c)).ok().filter(|b| is_visible(*b));
    let of = |c: char| own(c).or_else(|| hidden(c)).map_or_else(|| c.to_string().into_bytes(), |b| vec![b]);
    text.chars().flat_map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn split(description: Value, text: &str) -> Vec<String> {
        let mut pieces = vec![text.to_string()];
        for splitter in Splitter::all(&description).unwrap() {
            let mut parts = Vec::new();
            for (at, piece) in pieces.iter().enumerate() {
                splitter.split(piece, at == 0, &mut parts).unwrap();
            }
            pieces = parts;
        }
        pieces
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
        let refused = |description: Value| Splitter::all(&description).unwrap_err();
        let level = json!({"type": "ByteLevel", "use_regex": false});
        let blanks = |blank: &str| json!({"type": "Metaspace", "replacement": blank, "split": false});
        for (part, name) in [(level.clone(), "ByteLevel"), (blanks("_"), "Metaspace")] {
            // Sequences in sequences count too.
            let inner = json!({"type": "Sequence", "pretokenizers": [part]});
            let all = json!({"type": "Sequence", "pretokenizers": [part, inner]});
            assert_eq!(refused(all), format!("its `pre_tokenizer` has more than one `{name}`"));
        }
        for blank in ["", "  "] {
            let why = format!("its `pre_tokenizer.replacement` is \"{blank}\"; expected one character");
            assert_eq!(refused(blanks(blank)), why);
        }
        // One of each is fine.
        let both = json!({"type": "Sequence", "pretokenizers": [blanks("_"), level]});
        assert_eq!(split(both, "a b"), ["_a_b"]);
    }
}
