//! A unigram model: divides a piece of text into the tokens that are most probable together.
//!
//! In: a vocabulary with the logarithm of each token's probability, a piece of text. Out: its tokens. The best division of each
//! beginning of the piece is found from left to right (Viterbi; Kudo 2018, arXiv:1804.10959). A character of which no token consists is
//! an unknown one, whose score is [`PENALTY`] below the least of the vocabulary; several of them in a row are one token. Sums are
//! `f64`, and the first of two equally good divisions is kept, as in the library `tokenizers`.

/// How much less probable than any token an unknown character is.
const PENALTY: f64 = 10.0;

/// A vocabulary with scores.
#[derive(Debug)]
pub(super) struct Unigram {
    /// Each token's text and score.
    vocabulary: Vec<(String, f64)>,
    /// Numbers of tokens, in the order of their texts, which are all different.
    sorted: Vec<u32>,
    /// The token for characters that have none.
    unknown: Option<u32>,
    /// Are these replaced by the tokens of their bytes (`<0x0A>`)?
    falls_back: bool,
    /// The score of an unknown character.
    least: f64,
}

/// The best division of a beginning of a piece.
#[derive(Clone, Copy)]
struct Best {
    score: f64,
    /// Where its last token begins, and which one it is; `None` if it is an unknown character.
    last: (usize, Option<u32>),
}

impl Unigram {
    /// A model of these tokens; those without a text never occur.
    ///
    /// # Errors
    /// The number of the unknown token is not one of them, or there are too many.
    pub(super) fn new(
        vocabulary: Vec<(String, f64)>,
        unknown: Option<u32>,
        falls_back: bool,
    ) -> Result<Unigram, String> {
        let count = u32::try_from(vocabulary.len()).map_err(|_| "`model.vocab` is too long")?;
        if let Some(token) = unknown.filter(|token| *token >= count) {
            return Err(format!("`model.unk_id` is {token}, and `model.vocab` has {count} tokens"));
        }
        let least = vocabulary.iter().map(|(_, score)| *score).fold(f64::INFINITY, f64::min) - PENALTY;
        let mut model = Unigram { vocabulary, sorted: Vec::new(), unknown, falls_back, least };
        // Of several tokens of one text, the last is used.
        let mut sorted: Vec<u32> = (0..count).rev().filter(|token| !model.text(*token).is_empty()).collect();
        sorted.sort_by(|a, b| model.text(*a).cmp(model.text(*b)));
        sorted.dedup_by(|a, b| model.text(*a) == model.text(*b));
        model.sorted = sorted;
        Ok(model)
    }

    /// The tokens' texts.
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

    /// The tokens that a text begins with, the shortest first, and their lengths in bytes.
    fn beginnings(&self, text: &str) -> Vec<(u32, usize)> {
        let mut found = Vec::new();
        // The tokens that begin as the text does; those that end first come first.
        let mut open = self.sorted.as_slice();
        for (at, byte) in text.bytes().enumerate() {
            let own = |token: &u32| self.text(*token).as_bytes().get(at).copied();
            let from = open.partition_point(|token| own(token) < Some(byte));
            let to = open.partition_point(|token| own(token) <= Some(byte));
            open = open.get(from..to).unwrap_or_default();
            let Some(first) = open.first() else { break };
            if self.text(*first).len() == at + 1 {
                found.push((*first, at + 1));
            }
        }
        found
    }

    /// The tokens of a piece.
    pub(super) fn encode(&self, piece: &str, out: &mut Vec<u32>) -> Result<(), String> {
        let mut end = piece.len();
        let best = self.divided(piece);
        let (mut parts, mut unknown_until) = (Vec::new(), None);
        while end > 0 {
            let Some(Best { last: (begin, token), .. }) = best.get(end).copied().flatten() else { break };
            match (token, self.unknown) {
                // The token for unknown ones may be found as a text too.
                (Some(token), unknown) if Some(token) != unknown => {
                    parts.extend(unknown_until.take().map(|until| (end, until)));
                    parts.push((begin, end));
                }
                _ => unknown_until = unknown_until.or(Some(end)),
            }
            end = begin;
        }
        parts.extend(unknown_until.map(|until| (0, until)));
        parts.iter().rev().try_for_each(|(begin, end)| self.one(piece.get(*begin..*end).unwrap_or_default(), out))
    }

    /// The token of a part of a piece, or what stands for it.
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

    /// The best division of each beginning of a piece, by its length.
    fn divided(&self, piece: &str) -> Vec<Option<Best>> {
        let mut best: Vec<Option<Best>> = vec![None; piece.len() + 1];
        for (begin, c) in piece.char_indices() {
            let before = best.get(begin).copied().flatten().map_or(0.0, |best| best.score);
            let mut offer = |length: usize, score: f64, token: Option<u32>| {
                if let Some(place) = best.get_mut(begin + length)
                    && place.is_none_or(|best| score > best.score)
                {
                    *place = Some(Best { score, last: (begin, token) });
                }
            };
            let mut is_known = false;
            for (token, length) in self.beginnings(piece.get(begin..).unwrap_or_default()) {
                let score = self.entry(token).map_or(0.0, |(_, score)| *score);
                offer(length, score + before, Some(token));
                is_known |= length == c.len_utf8();
            }
            if !is_known {
                offer(c.len_utf8(), self.least + before, None);
            }
        }
        best
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(tokens: &[(&str, f64)], unknown: Option<u32>) -> Unigram {
        Unigram::new(tokens.iter().map(|(text, score)| ((*text).to_string(), *score)).collect(), unknown, false)
            .unwrap()
    }

    fn tokens(model: &Unigram, text: &str) -> Result<Vec<u32>, String> {
        let mut out = Vec::new();
        model.encode(text, &mut out).map(|()| out)
    }

    /// The best sum over all divisions, by trying each.
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
        let model = of(
            &[("?", 0.0), ("a", -1.5), ("b", -2.0), ("ab", -3.25), ("aba", -4.5), ("bab", -3.75), ("\u{e9}a", -2.5)],
            Some(0),
        );
        let letters = ["a", "b", "\u{e9}", "x"];
        for n in 0..4usize.pow(6) {
            let text: String = (0..6).map(|at| letters[n / 4usize.pow(at) % 4]).collect();
            let best = model.divided(&text);
            let found = best.last().copied().flatten().unwrap().score;
            assert!((found - most(&model, &text)).abs() < 1e-9, "{text}");
        }
        assert_eq!(tokens(&model, "abab"), Ok(vec![1, 5]));
        assert_eq!(tokens(&model, "babx\u{e9}xa"), Ok(vec![5, 0, 1]));
        assert_eq!(tokens(&model, ""), Ok(vec![]));
    }

    #[test]
    fn what_has_no_token() {
        let mut model = of(&[("a", -1.0), ("<0xC3>", -9.0), ("<0xA9>", -9.0)], None);
        assert!(tokens(&model, "axb").is_err_and(|why| why.contains("\"xb\"")));
        model.falls_back = true;
        assert_eq!(tokens(&model, "a\u{e9}"), Ok(vec![0, 1, 2]));
        assert!(Unigram::new(vec![(String::new(), 0.0)], Some(1), false).is_err());
        // Of two tokens of one text the last is used, also if its score is less.
        let twice = of(&[("a", -1.0), ("aa", -3.0), ("a", -1.25)], None);
        assert_eq!(tokens(&twice, "aaa"), Ok(vec![2, 2, 2]));
    }
}
