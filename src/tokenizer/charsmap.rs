//! The normalizer `Precompiled` of `tokenizer.json`: a table of character replacements that
//! SentencePiece compiles into a model.
//!
//! In: the table in base 64, a text. Out: the text after the replacements. The table is a trie as a
//! double array (Aoe 1989, as in Darts-clone) over UTF-8, whose values are offsets in a list of
//! zero-terminated strings. A grapheme of fewer than 6 bytes is replaced as a whole, by the
//! replacement of its shortest prefix in the table; in longer ones, each character is replaced
//! separately. That a prefix is enough is the library's behaviour, with which vocabularies were
//! trained.

use super::budget::Budget;
use unicode_segmentation::UnicodeSegmentation as _;

/// Maximum length of a replacement: the longest one in Unicode's normal forms has 18 characters.
const MAX_REPLACEMENT: usize = 32;

/// A table of character replacements.
#[derive(Debug)]
pub(super) struct CharsMap {
    units: Vec<u32>,
    texts: String,
}

/// Fields of a unit of the double array.
fn has_leaf(unit: u32) -> bool {
    unit >> 8 & 1 == 1
}

fn label(unit: u32) -> u32 {
    unit & (1 << 31 | 0xff)
}

fn offset(unit: u32) -> u32 {
    let shift = if unit >> 9 & 1 == 1 { 8 } else { 0 };
    (unit >> 10) << shift
}

impl CharsMap {
    /// Parses a table in base 64.
    ///
    /// # Errors
    /// The error message.
    pub(super) fn read(text: &str) -> Result<CharsMap, String> {
        let bytes = from_base_64(text).ok_or("it is not base 64")?;
        let (size, rest) = bytes.split_first_chunk::<4>().ok_or("it is too short")?;
        let size = usize::try_from(u32::from_le_bytes(*size)).unwrap_or(usize::MAX);
        if size % 4 != 0 || size > rest.len() {
            return Err(format!("its trie of {size} bytes is not in it"));
        }
        let (trie, texts) = rest.split_at(size);
        let (units, _) = trie.as_chunks::<4>();
        let units = units.iter().map(|unit| u32::from_le_bytes(*unit)).collect();
        let texts = String::from_utf8(texts.to_vec()).map_err(|_| "its texts are not UTF-8")?;
        if texts.split('\0').any(|text| text.chars().count() > MAX_REPLACEMENT) {
            return Err(format!("it has a text of more than {MAX_REPLACEMENT} characters"));
        }
        Ok(CharsMap { units, texts })
    }

    /// The replacement of some characters: that of their shortest prefix in the table.
    fn replaced(&self, chars: &str) -> Option<&str> {
        let unit = |at: u32| self.units.get(usize::try_from(at).ok()?).copied();
        let mut at = offset(unit(0)?);
        for byte in chars.bytes().take_while(|byte| *byte != 0) {
            at ^= u32::from(byte);
            let found = unit(at).filter(|unit| label(*unit) == u32::from(byte))?;
            at ^= offset(found);
            if has_leaf(found) {
                let place = usize::try_from(unit(at)? & !(1 << 31)).ok()?;
                return self.texts.get(place..)?.split('\0').next();
            }
        }
        None
    }

    /// Applies the replacements to a text.
    ///
    /// # Errors
    /// The budget is exhausted.
    pub(super) fn apply(&self, text: &str, budget: &Budget) -> Result<String, String> {
        let mut out = String::with_capacity(text.len());
        let mut buffer = [0; 4];
        for grapheme in text.graphemes(true) {
            budget.fits(out.len())?;
            budget.work(4 * grapheme.len())?;
            if let Some(whole) = self.replaced(grapheme).filter(|_| grapheme.len() < 6) {
                out.push_str(whole);
                continue;
            }
            for c in grapheme.chars() {
                let c: &str = c.encode_utf8(&mut buffer);
                out.push_str(self.replaced(c).unwrap_or(c));
                budget.fits(out.len())?;
            }
        }
        Ok(out)
    }
}

/// Decodes base 64, with optional `=` at the end.
fn from_base_64(text: &str) -> Option<Vec<u8>> {
    let digits = text.trim_end_matches('=').as_bytes();
    let mut bytes = Vec::with_capacity(digits.len() / 4 * 3 + 2);
    for four in digits.chunks(4) {
        let mut bits: u32 = 0;
        for digit in four {
            let value = match digit {
                b'A'..=b'Z' => digit - b'A',
                b'a'..=b'z' => digit - b'a' + 26,
                b'0'..=b'9' => digit - b'0' + 52,
                b'+' => 62,
                b'/' => 63,
                _ => return None,
            };
            bits = bits << 6 | u32::from(value);
        }
        let count = match four.len() {
            4 => 3,
            3 => 2,
            2 => 1,
            _ => return None,
        };
        let [_, first @ ..] = (bits << (6 * (4 - four.len()))).to_be_bytes();
        bytes.extend(first.iter().take(count));
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base_64() {
        let cases: [(&str, &[u8]); 6] = [
            ("", b""),
            ("TQ==", b"M"),
            ("TWE=", b"Ma"),
            ("TWFu", b"Man"),
            ("AP/+", &[0, 255, 254]),
            ("TWFuTQ", b"ManM"),
        ];
        for (text, bytes) in cases {
            assert_eq!(from_base_64(text).as_deref(), Some(bytes), "{text}");
        }
        assert!(["T", "TQ==TQ", "T-FU", "TWFuT"].iter().all(|text| from_base_64(text).is_none()));
    }

    #[test]
    fn malformed_tables_are_refused() {
        // Sizes beyond the end, and no size; a string that is too long.
        for text in ["", "AAA=", "CAAAAAAAAAA=", "AQAAAAAAAAA="] {
            assert!(CharsMap::read(text).is_err(), "{text}");
        }
        let long = format!("AAAAA{}", "GFh".repeat(99));
        assert!(CharsMap::read(&long).is_err(), "{long}");
        // Units that lead nowhere.
        let budget = Budget::for_length(0).unwrap();
        let mut state = 1u32;
        for _ in 0..200 {
            let mut next = || {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                state
            };
            let units = (0..64).map(|_| next() >> 7 | 1 << 8).collect();
            let map = CharsMap { units, texts: "a\0\u{e9}\0".to_string() };
            assert!(map.apply("text \u{301}\u{4e00}\0", &budget).is_ok_and(|text| text.len() < 100));
        }
        let empty = CharsMap { units: Vec::new(), texts: String::new() };
        assert_eq!(empty.apply("e\u{301}a\0b", &budget).as_deref(), Ok("e\u{301}a\0b"));
    }
}
