//! Byte-pair encoding: turns pieces of a text into tokens by merging neighbours in the order of the merges.
//!
//! In: vocabulary and merges, a piece of text. Out: its tokens. A piece begins as its characters; of all pairs of neighbours that have
//! a merge, those of the earliest merge are merged first, from the left (Sennrich et al. 2016).

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

/// A vocabulary and its merges.
#[derive(Debug, Default)]
pub(super) struct Bpe {
    pub(super) vocabulary: HashMap<String, u32>,
    /// For two neighbours, the position of their merge in the list, and the token that they become.
    pub(super) merges: HashMap<(u32, u32), (usize, u32)>,
    /// The token for characters that have none; do several such characters in a row become one token?
    pub(super) unknown: Option<(u32, bool)>,
    /// Is a character that has no token replaced by the tokens of its bytes (`<0x0A>`)?
    pub(super) falls_back: bool,
    /// If a whole piece has a token, is that used without merging?
    pub(super) whole_first: bool,
}

/// A symbol of a piece, in a list of neighbours.
#[derive(Clone, Copy)]
struct Symbol {
    token: u32,
    before: Option<usize>,
    after: Option<usize>,
    /// Was it merged into the one before it?
    is_gone: bool,
}

impl Bpe {
    /// The tokens of a piece.
    pub(super) fn encode(&self, piece: &str, out: &mut Vec<u32>) -> Result<(), String> {
        if let Some(token) = self.vocabulary.get(piece).filter(|_| self.whole_first) {
            out.push(*token);
            return Ok(());
        }
        let tokens = self.characters(piece)?;
        out.extend(self.merged(&tokens));
        Ok(())
    }

    /// A token for each character, or for each of its bytes.
    fn characters(&self, piece: &str) -> Result<Vec<u32>, String> {
        let mut tokens = Vec::new();
        let mut was_unknown = false;
        let mut buffer = [0; 4];
        for c in piece.chars() {
            let text: &str = c.encode_utf8(&mut buffer);
            if let Some(token) = self.vocabulary.get(text) {
                tokens.push(*token);
                was_unknown = false;
                continue;
            }
            let byte = |b: u8| self.vocabulary.get(&format!("<0x{b:02X}>")).copied();
            let bytes: Option<Vec<u32>> = text.bytes().map(byte).collect();
            let bytes = bytes.filter(|_| self.falls_back);
            match (&bytes, self.unknown) {
                (Some(bytes), _) => tokens.extend(bytes),
                (None, Some((_, true))) if was_unknown => {}
                (None, Some((unknown, _))) => tokens.push(unknown),
                (None, None) => return Err(format!("the tokenizer has no token for {c:?}")),
            }
            was_unknown = bytes.is_none();
        }
        Ok(tokens)
    }

    /// Merges neighbours until no pair has a merge.
    fn merged(&self, tokens: &[u32]) -> Vec<u32> {
        let last = tokens.len().saturating_sub(1);
        let symbol = |(at, token): (usize, &u32)| Symbol {
            token: *token,
            before: at.checked_sub(1),
            after: (at < last).then_some(at + 1),
            is_gone: false,
        };
        let mut symbols: Vec<Symbol> = tokens.iter().enumerate().map(symbol).collect();
        // Ordered by merge, then by place. The tokens are kept too: by the time of the merge they may have changed.
        let mut open = BinaryHeap::new();
        let merge = |symbols: &[Symbol], at: usize| {
            let (left, right) = (symbols[at].token, symbols[symbols[at].after?].token);
            let (rank, made) = *self.merges.get(&(left, right))?;
            Some(Reverse((rank, at, left, right, made)))
        };
        open.extend((0..symbols.len()).filter_map(|at| merge(&symbols, at)));
        while let Some(Reverse((_, at, left, right, made))) = open.pop() {
            let Some(next) = symbols[at].after.filter(|_| !symbols[at].is_gone) else { continue };
            if symbols[at].token != left || symbols[next].token != right {
                continue;
            }
            symbols[at] = Symbol { token: made, after: symbols[next].after, ..symbols[at] };
            symbols[next].is_gone = true;
            if let Some(after) = symbols[at].after {
                symbols[after].before = Some(at);
            }
            open.extend(merge(&symbols, at));
            open.extend(symbols[at].before.and_then(|before| merge(&symbols, before)));
        }
        symbols.iter().filter(|symbol| !symbol.is_gone).map(|symbol| symbol.token).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tokens that are letters, pairs of them and so on; merges in this order.
    fn of(merges: &[&str]) -> Bpe {
        let mut bpe = Bpe::default();
        for c in ["a", "b", "c"].map(String::from).into_iter().chain(merges.iter().map(|m| m.replace(' ', ""))) {
            let next = bpe.vocabulary.len() as u32;
            bpe.vocabulary.entry(c).or_insert(next);
        }
        for (rank, merge) in merges.iter().enumerate() {
            let (left, right) = merge.split_once(' ').unwrap();
            let token = |text: &str| bpe.vocabulary[text];
            bpe.merges.insert((token(left), token(right)), (rank, token(&format!("{left}{right}"))));
        }
        bpe
    }

    /// The same, by searching all pairs of neighbours after each merge.
    fn slowly(bpe: &Bpe, mut tokens: Vec<u32>) -> Vec<u32> {
        loop {
            let merges = tokens.windows(2).enumerate().filter_map(|(at, pair)| {
                let (rank, made) = bpe.merges.get(&(pair[0], pair[1]))?;
                Some((*rank, at, *made))
            });
            let Some((_, at, made)) = merges.min() else { return tokens };
            tokens.splice(at..at + 2, [made]);
        }
    }

    #[test]
    fn the_first_merge_comes_first() {
        let all: Vec<Vec<u32>> = (0..3u32.pow(7)).map(|n| (0..7).map(|at| n / 3u32.pow(at) % 3).collect()).collect();
        for merges in [&["a b", "b c", "a bc", "ab ab", "c a"][..], &["a a", "aa a", "aa aa", "b aa"], &["c c"], &[]] {
            let bpe = of(merges);
            for tokens in &all {
                assert_eq!(bpe.merged(tokens), slowly(&bpe, tokens.clone()), "{merges:?}");
            }
        }
        assert!(of(&["a b"]).merged(&[]).is_empty());
    }

    #[test]
    fn characters_without_a_token() {
        let mut bpe = of(&["a b"]);
        let encoded = |bpe: &Bpe, text: &str| {
            let mut out = Vec::new();
            bpe.encode(text, &mut out).map(|()| out)
        };
        assert!(encoded(&bpe, "ax").is_err_and(|why| why.contains("'x'")));
        bpe.unknown = Some((9, false));
        assert_eq!(encoded(&bpe, "xyab"), Ok(vec![9, 9, 3]));
        bpe.unknown = Some((9, true));
        assert_eq!(encoded(&bpe, "xyabx"), Ok(vec![9, 3, 9]));
        bpe.falls_back = true;
        bpe.vocabulary.extend([("<0xC3>".to_string(), 10), ("<0xA9>".to_string(), 11)]);
        assert_eq!(encoded(&bpe, "\u{e9}ax"), Ok(vec![10, 11, 0, 9]));
        bpe.vocabulary.insert("cab".to_string(), 12);
        bpe.whole_first = true;
        assert_eq!((encoded(&bpe, "cab"), encoded(&bpe, "cabc")), (Ok(vec![12]), Ok(vec![2, 3, 2])));
    }
}
