//! The normalizers of `tokenizer.json`, which rewrite a text before it is divided.
//!
//! In: their JSON. Out: a [`Normalizer`] for each, or an error that names the unsupported part.

use super::budget::Budget;
use super::charsmap::CharsMap;
use super::pattern::Pattern;
use super::pieces::{named, refuse};
use serde_json::Value;
use std::ops::Range;
use unicode_normalization::UnicodeNormalization as _;

/// Limit on the factor by which all replacements of a field together may lengthen a text.
const MAX_GROWTH: f64 = 16.0;

/// A text being normalized. Its first `first` bytes come from the first character of the prompt: a
/// piece that starts within them is the first piece.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct TextPart {
    pub(super) text: String,
    pub(super) first: usize,
}

/// One rewriting step.
#[derive(Debug)]
pub(super) enum Normalizer {
    /// A Unicode normal form, by name.
    Form(String),
    Lowercase,
    Prepend(String),
    Replace(String, String),
    /// Replaces the matches of a regular expression.
    ReplaceFound(Box<Pattern>, String),
    /// Removes leading and trailing whitespace.
    Strip {
        left: bool,
        right: bool,
    },
    Table(CharsMap),
}

/// Rejects a sequence of replacements that can lengthen a text too much: a few dozen of `a` by `aa`
/// would exhaust memory.
///
/// Lengths are in characters after NFKD, which no normal form makes longer.
pub(super) fn bounded<'t>(place: &str, replaced: impl Iterator<Item = (&'t str, &'t str)>) -> Result<(), String> {
    let growth = |(from, to): (&str, &str)| match (from.chars().count(), to.nfkd().count()) {
        // It is inserted before each character, and at the end.
        (0, long) => 1.0 + 2.0 * long as f64,
        (short, long) => (long as f64 / short as f64).max(1.0),
    };
    if replaced.map(growth).product::<f64>() > MAX_GROWTH {
        return Err(format!("its `{place}` can make a text more than {MAX_GROWTH} times as long"));
    }
    Ok(())
}

impl Normalizer {
    pub(super) fn all(value: &Value, budget: &Budget) -> Result<Vec<Normalizer>, String> {
        let parts = named("normalizer", "normalizers", value);
        let all: Vec<Normalizer> = parts
            .into_iter()
            .map(|(place, one)| match one["type"].as_str() {
                Some("BertNormalizer") => Normalizer::of_bert(one, budget),
                Some("StripAccents") => Ok(vec![Normalizer::found(r"\p{Mn}", "", budget)?]),
                _ => Normalizer::read(&place, one, budget).map(|one| vec![one]),
            })
            .collect::<Result<Vec<Vec<_>>, String>>()?
            .into_iter()
            .flatten()
            .collect();
        let replaced = all.iter().filter_map(|one| match one {
            Normalizer::Replace(from, to) => Some((from.as_str(), to.as_str())),
            // It may match the empty string anywhere.
            Normalizer::ReplaceFound(_, to) => Some(("", to.as_str())),
            _ => None,
        });
        bounded("normalizer", replaced)?;
        if all.iter().filter(|one| matches!(one, Normalizer::Table(_))).count() > 1 {
            return Err("its `normalizer` has more than one `Precompiled`".to_string());
        }
        Ok(all)
    }

    /// Replaces the matches of a pattern of our own.
    fn found(pattern: &str, to: &str, budget: &Budget) -> Result<Normalizer, String> {
        Ok(Normalizer::ReplaceFound(Box::new(Pattern::new(pattern, budget)?), to.to_owned()))
    }

    /// The steps of BERT's normalizer, in their order.
    fn of_bert(one: &Value, budget: &Budget) -> Result<Vec<Normalizer>, String> {
        const CJK: &str = r"[\u{4E00}-\u{9FFF}\u{3400}-\u{4DBF}\u{20000}-\u{2A6DF}\u{2A700}-\u{2B81F}\u{2B920}-\u{2CEAF}\u{F900}-\u{FAFF}\u{2F800}-\u{2FA1F}]";
        let mut all = Vec::new();
        if one["clean_text"] == true {
            all.push(Normalizer::found(r"[\p{C}\u{FFFD}&&[^\t\n\r]]", "", budget)?);
            all.push(Normalizer::found(r"\s", " ", budget)?);
        }
        if one["handle_chinese_chars"] == true {
            all.push(Normalizer::found(&format!("(?={CJK})|(?<={CJK})"), " ", budget)?);
        }
        if one["strip_accents"].as_bool().unwrap_or(one["lowercase"] == true) {
            all.extend([Normalizer::Form("NFD".to_owned()), Normalizer::found(r"\p{Mn}", "", budget)?]);
        }
        all.extend((one["lowercase"] == true).then_some(Normalizer::Lowercase));
        Ok(all)
    }

    fn read(place: &str, one: &Value, budget: &Budget) -> Result<Normalizer, String> {
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let made = match one["type"].as_str() {
            Some(form @ ("NFC" | "NFD" | "NFKC" | "NFKD")) => Some(Normalizer::Form(form.to_string())),
            Some("Lowercase") => Some(Normalizer::Lowercase),
            Some("Prepend") => text(&one["prepend"]).map(Normalizer::Prepend),
            Some("Replace") => match (one["pattern"]["Regex"].as_str(), text(&one["content"])) {
                (Some(pattern), Some(to)) => {
                    let what = Pattern::new(pattern, budget);
                    let what = what.map_err(|why| format!("its `{place}` has a pattern that cannot be used: {why}"))?;
                    Some(Normalizer::ReplaceFound(Box::new(what), to))
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
        let known =
            "NFC, NFD, NFKC, NFKD, BertNormalizer, Lowercase, Precompiled, Prepend, Replace, Strip, StripAccents";
        made.ok_or_else(|| refuse(place, one, known))
    }

    /// Normalizes a part.
    ///
    /// # Errors
    /// The budget is exhausted.
    pub(super) fn apply(&self, part: &mut TextPart, budget: &Budget) -> Result<(), String> {
        // An empty text stays empty.
        if part.text.is_empty() {
            return Ok(());
        }
        budget.work(part.text.len() + 1)?;
        let own = part.text.get(..part.first).unwrap_or_default();
        *part = match self {
            Normalizer::Form(form) => {
                let text = formed(form, &part.text, budget)?;
                // Composing the first character with following ones can lengthen it.
                let composed = text.chars().next().filter(|_| part.first > 0).map_or(0, char::len_utf8);
                TextPart { first: formed(form, own, budget)?.len().max(composed).min(text.len()), text }
            }
            Normalizer::Lowercase => TextPart { first: lower(own, budget)?.len(), text: lower(&part.text, budget)? },
            Normalizer::Prepend(before) => {
                budget.fits(before.len() + part.text.len())?;
                let first = if part.first > 0 { part.first + before.len() } else { 0 };
                TextPart { text: format!("{before}{}", part.text), first }
            }
            Normalizer::Replace(from, to) => {
                let found = part.text.match_indices(from.as_str()).map(|(at, found)| at..at + found.len());
                replaced(part, found, to, budget)?
            }
            Normalizer::ReplaceFound(what, to) => {
                replaced(part, what.matches(&part.text, budget)?.into_iter(), to, budget)?
            }
            Normalizer::Strip { left, right } => {
                let text = if *left { part.text.trim_start() } else { &part.text };
                let first = part.first.saturating_sub(part.text.len() - text.len());
                let text = if *right { text.trim_end() } else { text };
                TextPart { first: first.min(text.len()), text: text.to_string() }
            }
            Normalizer::Table(map) => {
                TextPart { first: map.apply(own, budget)?.len(), text: map.apply(&part.text, budget)? }
            }
        };
        Ok(())
    }
}

/// Collects characters into a string, within the budget.
fn collected(chars: impl Iterator<Item = char>, budget: &Budget) -> Result<String, String> {
    let mut text = String::new();
    for c in chars {
        text.push(c);
        budget.fits(text.len())?;
    }
    budget.work(text.len())?;
    Ok(text)
}

fn lower(text: &str, budget: &Budget) -> Result<String, String> {
    collected(text.chars().flat_map(char::to_lowercase), budget)
}

/// Converts a text to a Unicode normal form.
fn formed(form: &str, text: &str, budget: &Budget) -> Result<String, String> {
    match form {
        "NFC" => collected(text.nfc(), budget),
        "NFD" => collected(text.nfd(), budget),
        "NFKC" => collected(text.nfkc(), budget),
        _ => collected(text.nfkd(), budget),
    }
}

/// Replaces each range that was found. A replacement has the origin of the last character that it
/// replaces.
fn replaced(
    part: &TextPart,
    found: impl Iterator<Item = Range<usize>>,
    to: &str,
    budget: &Budget,
) -> Result<TextPart, String> {
    let mut made = TextPart::default();
    let mut copied = 0;
    for one in found.chain(std::iter::once(part.text.len()..part.text.len() + 1)) {
        if copied < part.first {
            made.first = made.text.len() + one.start.min(part.first) - copied;
        }
        made.text.push_str(part.text.get(copied..one.start).unwrap_or_default());
        if one.end > part.text.len() {
            break;
        }
        made.text.push_str(to);
        if one.end <= part.first {
            made.first = made.text.len();
        }
        copied = one.end;
        budget.fits(made.text.len())?;
    }
    budget.work(made.text.len())?;
    Ok(made)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Applies a sequence of normalizers; also returns how many bytes come from the first
    /// character.
    fn normal(all: Value, text: &str) -> (String, usize) {
        let budget = Budget::for_length(text.len()).unwrap();
        let all = Normalizer::all(&json!({"type": "Sequence", "normalizers": all}), &budget).unwrap();
        let mut part = TextPart { text: text.to_string(), first: text.chars().next().map_or(0, char::len_utf8) };
        all.iter().try_for_each(|one| one.apply(&mut part, &budget)).unwrap();
        (part.text, part.first)
    }

    /// Expected values are from `tokenizers` 0.23.
    #[test]
    fn texts_are_changed_as_the_library_does() {
        let prepend = json!({"type": "Prepend", "prepend": "__"});
        let strip = json!({"type": "Strip", "strip_left": true, "strip_right": true});
        let replace = |pattern: Value, to: &str| json!({"type": "Replace", "pattern": pattern, "content": to});
        let regex = |pattern: &str, to| replace(json!({"Regex": pattern}), to);
        let of = |text: &str, first: usize| (text.to_string(), first);
        assert_eq!(normal(json!([strip, prepend]), "   "), of("", 0));
        assert_eq!(normal(json!([strip, prepend]), " a"), of("__a", 0));
        assert_eq!(normal(json!([prepend, strip]), "   "), of("__", 2));
        assert_eq!(normal(json!([prepend]), "ab"), of("__ab", 3));
        assert_eq!(normal(json!([strip, regex("x*", "-")]), " "), of("", 0));
        assert_eq!(normal(json!([replace(json!({"String": ""}), "-")]), "ab"), of("-a-b-", 3));
        assert_eq!(normal(json!([regex("x*", "-")]), "axxb"), of("-a-b-", 2));
        assert_eq!(normal(json!([regex("^b", "-")]), "b\nb\nab"), of("-\n-\nab", 1));
        assert_eq!(normal(json!([regex("b$", "-")]), "b\nb\nab"), of("-\n-\na-", 1));
        assert_eq!(normal(json!([{"type": "Lowercase"}]), "\u{130}A\u{3a3}"), of("i\u{307}a\u{3c3}", 3));
        assert_eq!(normal(json!([{"type": "NFC"}]), "e\u{301}e"), of("\u{e9}e", 2));
    }
}
