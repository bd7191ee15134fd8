//! A unigram model: divides a piece of text into the tokens that are most probable together.
//!
//! In: a vocabulary with the logarithm of each token's probability, a piece of text. Out: its
//! tokens. The best division of each prefix of the piece is computed from left to right (Viterbi;
//! Kudo 2018, arXiv:1804.10959). A character that is not a token is unknown, with a score
//! [`PENALTY`] below the least in the vocabulary; several in a row become one token. Sums are
//! `f64`, and the first of two equally good divisions is kept, as in the library `tokenizers`.

use super::budget::Budget;
use super::search::Search;

/// The score of an unknown character is this much below any token's.
const PENALTY: f64 = 10.0;

/// A vocabulary with scores.
#[derive(Debug)]
pub(super) struct Unigram {
    /// Each token's text and score.
    vocabulary: Vec<(String, f64)>,
    /// Tokens sorted by their text; texts are distinct.
    sorted: Vec<u32>,
    /// Finds the tokens in a piece; pattern `n` is token `sorted[n]`.
    search: Search,
    /// The token for unknown characters.
    unknown: Option<u32>,
    /// Unknown characters are replaced by the tokens of their bytes (`<0x0A>`).
    falls_back: bool,
    /// The score of an unknown character.
    least: f64,
}

/// The best division of a prefix of a piece.
#[derive(Clone, Copy)]
struct Best {
    score: f64,
    /// The last token and where it starts; [`UNKNOWN`] for an unknown character.
    begin: u32,
    last: u32,
}

/// Marks an unknown character.
const UNKNOWN: u32 = u32::MAX;

impl Unigram {
    /// A model with these tokens; tokens without text never occur.
    ///
    /// # Errors
    /// The unknown token is out of range, or there are too many tokens.
    pub(super) fn new(
        vocabulary: Vec<(String, f64)>,
        unknown: Option<u32>,
        falls_back: bool,
        budget: &Budget,
    ) -> Result<Unigram, String> {
        let count = u32::try_from(vocabulary.len()).map_err(|_| "`model.vocab` is too long")?;
        if let Some(token) = unknown.filter(|token| *token >= count) {
            return Err(format!("`model.unk_id` is {token}, and `model.vocab` has {count} tokens"));
        }
        let least = vocabulary.iter().map(|(_, score)| *score).fold(f64::INFINITY, f64::min) - PENALTY;
        let (sorted, search) = (Vec::new(), Search::default());
        let mut model = Unigram { vocabulary, sorted, search, unknown, falls_back, least };
        // Of several tokens with the same text, the last is used.
        let mut sorted: Vec<u32> = (0..count).rev().filter(|token| !model.text(*token).is_empty()).collect();
        sorted.sort_by(|a, b| model.text(*a).cmp(model.text(*b)));
        sorted.dedup_by(|a, b| model.text(*a) == model.text(*b));
        let texts: Vec<&str> = sorted.iter().map(|token| model.text(*token)).collect();
        model.search = Search::new(&texts, budget)?;
        model.sorted = sorted;
        Ok(model)
    }

    /// Texts and numbers of the tokens.
    pub(super) fn texts(&self) -> impl Iterator<Item = (&str, u32)> {
        self.vocabulary.iter().zip(0..).map(|((text, _), token)| (text.as_str(), token))
    }

    fn entry(&self, token: u32) -> Option<&(String, f64)> {
        self.vocabulary.get(usize::try_from(token).ok()?)
    }

    fn text(&self, token: u32) -> &str {
        self.entry(token).map_or("", |(text, _)| text)
    }

    /// The token of a text.
    fn token(&self, text: &str) -> Option<u32> {
        let found = self.sorted.binary_search_by(|token| self.text(*token).cmp(text));
        found.ok().and_then(|at| self.sorted.get(at)).copied()
    }

    /// The tokens of a piece.
    pub(super) fn encode(&self, piece: &str, out: &mut Vec<u32>, budget: &Budget) -> Result<(), String> {
        let mut end = piece.len();
        let best = self.divided(piece, budget)?;
        let (mut parts, mut unknown_until) = (Vec::new(), None);
        while end > 0 {
            let Some(Best { begin, last, .. }) = best.get(end).copied() else { break };
            let begin = begin as usize;
            // The unknown token may also occur as text.
            if last == UNKNOWN || Some(last) == self.unknown {
                unknown_until = unknown_until.or(Some(end));
            } else {
                parts.extend(unknown_until.take().map(|until| (end, until)));
                parts.push((begin, end));
            }
            end = begin;
        }
        parts.extend(unknown_until.map(|until| (0, until)));
        parts.iter().rev().try_for_each(|(begin, end)| self.one(piece.get(*begin..*end).unwrap_or_default(), out))
    }

    /// Appends the token of a part of a piece, or its replacement.
    fn one(&self, part: &str, out: &mut Vec<u32>) -> Result<(), String> {
        if let Some(token) = self.token(part) {
            out.push(token);
            return Ok(());
        }
        let bytes: Option<Vec<u32>> = part.bytes().map(|b| self.token(&format!("<0x{b:02X}>"))).collect();
        match (bytes.filter(|_| self.falls_back), self.unknown) {
            (Some(bytes), _) => out.extend(bytes),
            (None, Some(unknown)) => out.push(unknown),
            (None, None) => return Err(format!("the tokenizer has no token for {part:?}")),
        }
        Ok(())
    }

    /// The best division of each prefix of a piece, by its length in bytes; entries within a
    /// character are not used.
    fn divided(&self, piece: &str, budget: &Budget) -> Result<Vec<Best>, String> {
        let none = Best { score: 0.0, begin: 0, last: UNKNOWN };
        let mut best = vec![none; piece.len() + 1];
        let mut state = 0;
        for (at, c) in piece.char_indices() {
            let end = at + c.len_utf8();
            for byte in piece.get(at..end).unwrap_or_default().bytes() {
                state = self.search.step(state, byte);
            }
            let mut found: Option<Best> = None;
            let mut is_known = false;
            let mut count = 2 * c.len_utf8();
            // The longest token comes first, and wins ties.
            let mut offer = |begin: usize, own: f64, last: u32| {
                let score = own + best.get(begin).map_or(0.0, |best| best.score);
                if found.is_none_or(|best| score > best.score) {
                    found = Some(Best { score, begin: u32::try_from(begin).unwrap_or(0), last });
                }
            };
            for token in self.search.found(state).filter_map(|place| self.sorted.get(place).copied()) {
                let Some((text, score)) = self.entry(token) else { continue };
                offer(end - text.len(), *score, token);
                is_known |= text.len() == c.len_utf8();
                count += 1;
            }
            if !is_known {
                offer(at, self.least, UNKNOWN);
            }
            budget.work(count)?;
            if let (Some(place), Some(found)) = (best.get_mut(end), found) {
                *place = found;
            }
        }
        Ok(best)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn budget() -> Budget {
        Budget::for_length(0).unwrap()
    }

    fn unigram(tokens: &[(&str, f64)], unknown: Option<u32>) -> Unigram {
        Unigram::new(
            tokens.iter().map(|(text, score)| ((*text).to_string(), *score)).collect(),
            unknown,
            false,
            &budget(),
        )
        .unwrap()
    }

    fn tokens(model: &Unigram, text: &str) -> Result<Vec<u32>, String> {
        let mut out = Vec::new();
        model.encode(text, &mut out, &budget()).map(|()| out)
    }

    /// The best score over all divisions, by exhaustive search.
    fn most(model: &Unigram, text: &str) -> f64 {
        let Some(c) = text.chars().next() else { return 0.0 };
        let tokens = (0..).zip(&model.vocabulary).filter(|(_, (token, _))| text.starts_with(token));
        let known = tokens.map(|(_, (token, score))| score + most(model, &text[token.len()..]));
        let single = model.token(&text[..c.len_utf8()]).is_some();
        let unknown = (!single).then(|| model.least + most(model, &text[c.len_utf8()..]));
        known.chain(unknown).fold(f64::NEG_INFINITY, f64::max)
    }

    #[test]
    fn the_best_division_is_found() {
        let model = unigram(
            &[("?", 0.0), ("a", -1.5), ("b", -2.0), ("ab", -3.25), ("aba", -4.5), ("bab", -3.75), ("\u{e9}a", -2.5)],
            Some(0),
        );
        let letters = ["a", "b", "\u{e9}", "x"];
        for n in 0..4usize.pow(6) {
            let text: String = (0..6).map(|at| letters[n / 4usize.pow(at) % 4]).collect();
            let best = model.divided(&text, &budget()).unwrap();
            let found = best.last().unwrap().score;
            assert!((found - most(&model, &text)).abs() < 1e-9, "{text}");
        }
        assert_eq!(tokens(&model, "abab"), Ok(vec![1, 5]));
        assert_eq!(tokens(&model, "babx\u{e9}xa"), Ok(vec![5, 0, 1]));
        assert_eq!(tokens(&model, ""), Ok(vec![]));
    }

    #[test]
    fn what_has_no_token() {
        let mut model = unigram(&[("a", -1.0), ("<0xC3>", -9.0), ("<0xA9>", -9.0)], None);
        assert!(tokens(&model, "axb").is_err_and(|why| why.contains("\"xb\"")));
        model.falls_back = true;
        assert_eq!(tokens(&model, "a\u{e9}"), Ok(vec![0, 1, 2]));
        assert!(Unigram::new(vec![(String::new(), 0.0)], Some(1), false, &budget()).is_err());
        // Of two tokens with the same text, the last is used, even if its score is lower.
        let twice = unigram(&[("a", -1.0), ("aa", -3.0), ("a", -1.25)], None);
        assert_eq!(tokens(&twice, "aaa"), Ok(vec![2, 2, 2]));
    }
}
