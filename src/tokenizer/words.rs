//! WordPiece: divides a word into the longest tokens, from left to right ("Google's Neural Machine
//! Translation System", Wu et al. 2016).
//!
//! In: a vocabulary, a word. Out: its tokens; one token for unknown words if a part has none.

use super::budget::Budget;
use std::collections::HashMap;

/// A vocabulary.
#[derive(Debug)]
pub(super) struct WordPiece {
    pub(super) vocabulary: HashMap<String, u32>,
    /// The token of words that cannot be divided.
    pub(super) unknown: u32,
    /// Begins the tokens that do not begin a word.
    pub(super) prefix: String,
    /// Words of more characters are unknown.
    pub(super) longest: usize,
}

impl WordPiece {
    /// The tokens of a word.
    pub(super) fn encode(&self, word: &str, out: &mut Vec<u32>, budget: &Budget) -> Result<(), String> {
        budget.work(8 * word.len())?;
        let (begin, mut at) = (out.len(), 0);
        let mut is_known = word.chars().count() <= self.longest;
        while is_known && at < word.len() {
            let rest = word.get(at..).unwrap_or_default();
            let mut tried = if at == 0 { rest.to_owned() } else { format!("{}{rest}", self.prefix) };
            let most = tried.len();
            let found = loop {
                budget.work(8 + tried.len())?;
                match self.vocabulary.get(&tried) {
                    Some(token) => break Some(*token),
                    None if tried.pop().is_none() || tried.len() <= most - rest.len() => break None,
                    None => {}
                }
            };
            out.extend(found);
            at += tried.len() - (most - rest.len()).min(tried.len());
            is_known = found.is_some();
        }
        if !is_known {
            out.truncate(begin);
            out.push(self.unknown);
        }
        Ok(())
    }
}
