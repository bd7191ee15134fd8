//! The added tokens of `tokenizer.json`: texts that are tokens wherever they occur.
//!
//! In: the tokens, and a text. Out: the parts of the text, each of which is a token or is still to be divided. Of the tokens that
//! occur, the first one counts; of several that begin there, the longest. One that must be a whole word, and is not, still hides
//! those that it overlaps, as in the library.

use super::budget::Budget;
use super::pattern::Pattern;
use super::search::Search;
use std::ops::Range;

/// A text that is a token.
#[derive(Debug)]
pub(super) struct Added {
    pub(super) text: String,
    pub(super) token: u32,
    /// Must it be a whole word?
    pub(super) is_word: bool,
    /// Does it absorb the whitespace before it, and that after it?
    pub(super) takes: (bool, bool),
}

/// Added tokens that are searched for at the same time.
#[derive(Debug)]
pub(super) struct AddedTokens {
    /// Sorted by their texts backwards, which are all different.
    tokens: Vec<Added>,
    /// Finds them backwards: what ends at a place of the text backwards is what begins there.
    search: Search,
    /// Knows which characters words have.
    words: Pattern,
}

fn backwards(text: &str) -> Vec<u8> {
    text.bytes().rev().collect()
}

impl AddedTokens {
    /// Some tokens, each of which has a text; of several with the same one, the last counts.
    ///
    /// # Errors
    /// There are too many, in words.
    pub(super) fn new(mut tokens: Vec<Added>, budget: &Budget) -> Result<AddedTokens, String> {
        tokens.reverse();
        budget.work(64 * tokens.len())?;
        tokens.sort_by_cached_key(|one| backwards(&one.text));
        tokens.dedup_by(|a, b| a.text == b.text);
        let texts: Vec<Vec<u8>> = tokens.iter().map(|one| backwards(&one.text)).collect();
        let search = Search::new(&texts, budget)?;
        Ok(AddedTokens { tokens, search, words: Pattern::new(r"\b", budget)? })
    }

    /// The parts of a text, with the token that each one is.
    ///
    /// # Errors
    /// The budget is used up, in words.
    pub(super) fn divide(&self, text: &str, budget: &Budget) -> Result<Vec<(Range<usize>, Option<u32>)>, String> {
        if self.tokens.is_empty() {
            return Ok((!text.is_empty()).then_some((0..text.len(), None)).into_iter().collect());
        }
        budget.work(4 * text.len())?;
        // The longest token that begins at each place.
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
                // Not what the token before it has absorbed.
                let own = text.get(done..begin).unwrap_or_default();
                begin -= own.len() - own.trim_end().len();
            }
            if one.takes.1 {
                let blanks = after.len() - after.trim_start().len();
                budget.work(blanks)?;
                end += blanks;
            }
            if done < begin {
                parts.push((done..begin, None));
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

    /// What the library `tokenizers` gives.
    #[test]
    fn texts_are_divided_at_tokens() {
        let of = |text: &str, token, is_word, takes| Added { text: text.to_string(), token, is_word, takes };
        let plain = (false, false);
        let budget = Budget::of(0).unwrap();
        let tokens = vec![
            of("<a>", 1, false, plain),
            of("<a><b>", 2, false, plain),
            of("word", 3, true, plain),
            of("ord", 4, false, plain),
            of("<l>", 5, false, (true, false)),
            of("<r>", 6, false, (false, true)),
            of("<a>", 8, false, plain),
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
