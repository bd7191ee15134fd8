//! The added tokens of `tokenizer.json`: strings that become one token wherever they occur.
//!
//! In: the tokens, and a text. Out: the text in parts, each either an added token or text for the
//! model to divide. Matches are leftmost-longest and do not overlap. As in the `tokenizers`
//! library, a match that is rejected because it is not a whole word still hides the matches that it
//! overlaps.

use super::budget::Budget;
use super::pattern::Pattern;
use super::search::Search;
use std::ops::Range;

/// An added token.
#[derive(Debug)]
pub(super) struct Added {
    pub(super) text: String,
    pub(super) token: u32,
    /// Matches whole words only.
    pub(super) is_word: bool,
    /// Absorbs whitespace before it (`lstrip`), and after it (`rstrip`).
    pub(super) takes: (bool, bool),
}

/// A part of a text, and its token if it is one.
type Divided = (Range<usize>, Option<u32>);

/// The added tokens that are matched in one pass.
#[derive(Debug)]
pub(super) struct AddedTokens {
    /// Sorted by their reversed texts, which are all different.
    tokens: Vec<Added>,
    /// Finds reversed tokens in the reversed text: a match that ends at an offset is a token that
    /// begins there.
    search: Search,
    /// Knows which characters are word characters.
    words: Pattern,
}

fn backwards(text: &str) -> Vec<u8> {
    text.bytes().rev().collect()
}

impl AddedTokens {
    /// Tokens with nonempty texts; of several with the same text, the last one is used.
    ///
    /// # Errors
    /// Their texts are too long together.
    pub(super) fn new(mut tokens: Vec<Added>, budget: &Budget) -> Result<AddedTokens, String> {
        tokens.reverse();
        budget.work(64 * tokens.len())?;
        tokens.sort_by_cached_key(|one| backwards(&one.text));
        tokens.dedup_by(|a, b| a.text == b.text);
        let texts: Vec<Vec<u8>> = tokens.iter().map(|one| backwards(&one.text)).collect();
        let search = Search::new(&texts, budget)?;
        Ok(AddedTokens { tokens, search, words: Pattern::new(r"\b", budget)? })
    }

    /// Divides a text into parts, each with its token if it is one.
    ///
    /// # Errors
    /// The budget is exhausted.
    pub(super) fn divide(&self, text: &str, budget: &Budget) -> Result<Vec<Divided>, String> {
        if self.tokens.is_empty() {
            return Ok((!text.is_empty()).then_some((0..text.len(), None)).into_iter().collect());
        }
        budget.work(4 * text.len())?;
        // The longest token that begins at each byte.
        let mut longest: Vec<Option<&Added>> = vec![None; text.len()];
        let mut state = 0;
        for (place, byte) in longest.iter_mut().zip(text.bytes()).rev() {
            state = self.search.step(state, byte);
            *place = self.search.found(state).next().and_then(|at| self.tokens.get(at));
        }
        let mut parts = Vec::new();
        let (mut at, mut done) = (0, 0);
        while at < text.len() {
            let Some(one) = longest.get(at).copied().flatten() else {
                at += 1;
                continue;
            };
            let (mut begin, mut end) = (at, at + one.text.len());
            at = end;
            let (before, after) = (text.get(..begin).unwrap_or_default(), text.get(end..).unwrap_or_default());
            let has_word = |c: Option<char>| c.is_some_and(|c| self.words.is_word(c));
            if one.is_word && (has_word(before.chars().next_back()) || has_word(after.chars().next())) {
                continue;
            }
            if one.takes.0 {
                // The token before it may have absorbed these blanks, and this token's own text.
                begin = before.trim_end().len().max(done);
            }
            if one.takes.1 {
                let blanks = after.len() - after.trim_start().len();
                budget.work(blanks)?;
                end += blanks;
            }
            if done < begin {
                parts.push((done..begin, None));
            }
            if end <= begin {
                continue;
            }
            parts.push((begin..end, Some(one.token)));
            done = end;
        }
        if done < text.len() {
            parts.push((done..text.len(), None));
        }
        Ok(parts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Expected values are from the `tokenizers` library.
    #[test]
    fn texts_are_divided_at_tokens() {
        let of = |text: &str, token, is_word, takes| Added { text: text.to_string(), token, is_word, takes };
        let plain = (false, false);
        let budget = Budget::for_length(0).unwrap();
        let tokens = vec![
            of("<a>", 1, false, plain),
            of("<a><b>", 2, false, plain),
            of("word", 3, true, plain),
            of("ord", 4, false, plain),
            of("<l>", 5, false, (true, false)),
            of("<r>", 6, false, (false, true)),
            of("<a>", 8, false, plain),
            of("\u{3000}", 9, false, (true, true)),
        ];
        let tokens = AddedTokens::new(tokens, &budget).unwrap();
        for (text, parts) in [
            ("", &[][..]),
            ("a<a><b", &["a", "8", "<b"]),
            ("<a><b><a>", &["2", "8"]),
            ("a word, words ord", &["a ", "3", ", words ", "4"]),
            ("sword", &["sword"]),
            ("a \t<l> b", &["a", "5", " b"]),
            ("a <r> \n<l>", &["a ", "6", "5"]),
            (" <r>  b", &[" ", "6", "b"]),
            ("a\u{3000}\u{3000}b \u{3000}", &["a", "9", "b", "9"]),
        ] {
            let made = tokens.divide(text, &budget).unwrap();
            let made: Vec<String> = made
                .into_iter()
                .map(|(range, token)| token.map_or(text[range].to_string(), |t| t.to_string()))
                .collect();
            assert_eq!(made, parts, "{text:?}");
        }
    }
}
