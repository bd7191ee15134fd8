//! Byte-pair encoding: divides a piece of text into tokens by merging neighbours in the order of
//! the merges.
//!
//! In: vocabulary and merges, a piece of text. Out: its tokens. A piece starts as a list of
//! characters; among all adjacent pairs that have a merge, the earliest merge is applied first,
//! from the left (Sennrich et al. 2016).

use super::budget::Budget;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

/// A vocabulary and its merges.
#[derive(Debug, Default)]
pub(super) struct Bpe {
    pub(super) vocabulary: HashMap<String, u32>,
    /// For two neighbours, the position of their merge in the list, and the token that they become.
    pub(super) merges: HashMap<(u32, u32), (usize, u32)>,
    /// The token for unknown characters, and whether consecutive unknown characters become a single
    /// token.
    pub(super) unknown: Option<(u32, bool)>,
    /// With byte fallback, the token of each byte (`<0x0A>`). Characters without a token are
    /// replaced by their bytes' tokens, if all bytes have one.
    pub(super) bytes: Option<Vec<Option<u32>>>,
    /// If a whole piece has a token, it is used without merging.
    pub(super) whole_first: bool,
}

/// A symbol of a piece, in a list of neighbours.
#[derive(Clone, Copy)]
struct Symbol {
    token: u32,
    /// The indices of its neighbours, or [`NONE`]. A symbol merged into the previous one is its own
    /// `before`.
    before: u32,
    after: u32,
}

/// No neighbour.
const NONE: u32 = u32::MAX;

impl Bpe {
    /// The tokens of a piece.
    pub(super) fn encode(&self, piece: &str, out: &mut Vec<u32>, budget: &Budget) -> Result<(), String> {
        budget.work(8 * piece.len())?;
        if let Some(token) = self.vocabulary.get(piece).filter(|_| self.whole_first) {
            out.push(*token);
            return Ok(());
        }
        let tokens = self.characters(piece)?;
        self.merged(&tokens, out, budget)?;
        Ok(())
    }

    /// A token per character, or per byte of it.
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
            let byte = |b: u8| self.bytes.as_ref()?.get(usize::from(b)).copied().flatten();
            let bytes: Option<Vec<u32>> = text.bytes().map(byte).collect();
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

    /// Merges neighbours until no adjacent pair has a merge.
    fn merged(&self, tokens: &[u32], out: &mut Vec<u32>, budget: &Budget) -> Result<(), String> {
        let count = u32::try_from(tokens.len()).map_err(|_| "a piece of the text is too long")?;
        let symbol = |(at, token): (u32, &u32)| Symbol {
            token: *token,
            before: at.checked_sub(1).unwrap_or(NONE),
            after: if at + 1 < count { at + 1 } else { NONE },
        };
        let mut symbols: Vec<Symbol> = (0..count).zip(tokens).map(symbol).collect();
        // Ordered by merge, then by position. The tokens are recorded too, because they may have
        // changed by the time of the merge.
        let mut open = BinaryHeap::new();
        let merge = |symbols: &[Symbol], at: u32| {
            let left = symbols.get(at as usize)?;
            let (left, right) = (left.token, symbols.get(left.after as usize)?.token);
            let (rank, made) = *self.merges.get(&(left, right))?;
            Some(Reverse((rank, at, left, right, made)))
        };
        open.extend((0..count).filter_map(|at| merge(&symbols, at)));
        while let Some(Reverse((_, at, left, right, made))) = open.pop() {
            budget.work(16)?;
            let one = symbols[at as usize];
            let Some(next) = symbols.get(one.after as usize).copied().filter(|_| one.before != at) else { continue };
            if one.token != left || next.token != right {
                continue;
            }
            symbols[at as usize] = Symbol { token: made, after: next.after, ..one };
            symbols[one.after as usize].before = one.after;
            if let Some(after) = symbols.get_mut(next.after as usize) {
                after.before = at;
            }
            open.extend(merge(&symbols, at));
            open.extend(merge(&symbols, one.before));
        }
        let is_left = |(at, symbol): &(u32, &Symbol)| symbol.before != *at;
        out.extend((0..count).zip(&symbols).filter(is_left).map(|(_, symbol)| symbol.token));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tokens that are letters, pairs of them and so on; merges in this order.
    fn bpe(merges: &[&str]) -> Bpe {
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

    fn merged(bpe: &Bpe, tokens: &[u32]) -> Vec<u32> {
        let mut out = Vec::new();
        bpe.merged(tokens, &mut out, &Budget::for_length(0).unwrap()).unwrap();
        out
    }

    /// The same, by searching all adjacent pairs after each merge.
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
            let bpe = bpe(merges);
            for tokens in &all {
                assert_eq!(merged(&bpe, tokens), slowly(&bpe, tokens.clone()), "{merges:?}");
            }
        }
        assert!(merged(&bpe(&["a b"]), &[]).is_empty());
    }

    #[test]
    fn characters_without_a_token() {
        let mut bpe = bpe(&["a b"]);
        let encoded = |bpe: &Bpe, text: &str| {
            let mut out = Vec::new();
            bpe.encode(text, &mut out, &Budget::for_length(0).unwrap()).map(|()| out)
        };
        assert!(encoded(&bpe, "ax").is_err_and(|why| why.contains("'x'")));
        bpe.unknown = Some((9, false));
        assert_eq!(encoded(&bpe, "xyab"), Ok(vec![9, 9, 3]));
        bpe.unknown = Some((9, true));
        assert_eq!(encoded(&bpe, "xyabx"), Ok(vec![9, 3, 9]));
        let mut bytes = vec![None; 256];
        (bytes[0xc3], bytes[0xa9]) = (Some(10), Some(11));
        bpe.bytes = Some(bytes);
        assert_eq!(encoded(&bpe, "\u{e9}ax"), Ok(vec![10, 11, 0, 9]));
        bpe.vocabulary.insert("cab".to_string(), 12);
        bpe.whole_first = true;
        assert_eq!((encoded(&bpe, "cab"), encoded(&bpe, "cabc")), (Ok(vec![12]), Ok(vec![2, 3, 2])));
    }
}
