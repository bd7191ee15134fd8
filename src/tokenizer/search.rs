//! Multiple string search in linear time: the automaton of Aho and Corasick (1975).
//!
//! In: sorted, distinct patterns, and a text byte by byte. Out: after each byte, the patterns that
//! end there. (With patterns and text reversed, these are the patterns that begin there.)
//!
//! A state is a node of the trie of all patterns. Nodes are numbered in breadth-first order, so
//! that the children of node `n` are `first[n]..first[n + 1]`.

use super::budget::Budget;
use std::collections::VecDeque;
use std::ops::Range;

/// Not a pattern, or not a state.
const NONE: u32 = u32::MAX;
/// Maximum total length of the patterns in bytes; the automaton takes 17 bytes for each.
const MAX_TOTAL_LENGTH: usize = 8 << 20;

/// The automaton.
#[derive(Debug, Default)]
pub(super) struct Search {
    /// The byte on the edge into each state.
    labels: Vec<u8>,
    first: Vec<u32>,
    /// Failure links: the state of the longest proper suffix that is also a prefix of a pattern.
    shorter: Vec<u32>,
    /// The pattern that each state spells, if any.
    pattern: Vec<u32>,
    /// Output links: the first state along the failure links that spells a pattern.
    next: Vec<u32>,
}

impl Search {
    /// Builds the automaton of nonempty patterns.
    ///
    /// # Errors
    /// They have more than [`MAX_TOTAL_LENGTH`] bytes together, or the budget is exhausted.
    pub(super) fn new(patterns: &[impl AsRef<[u8]>], budget: &Budget) -> Result<Search, String> {
        let bytes: usize = patterns.iter().map(|pattern| pattern.as_ref().len()).sum();
        if bytes > MAX_TOTAL_LENGTH {
            return Err(format!("its tokens have more than {} MiB of text, the limit", MAX_TOTAL_LENGTH >> 20));
        }
        budget.work(16 * bytes)?;
        let byte = |at: usize, depth: usize| patterns.get(at).and_then(|pattern| pattern.as_ref().get(depth)).copied();
        let mut search = Search { labels: vec![0], ..Search::default() };
        // For each state, the patterns whose prefix it spells, and its depth.
        let mut open = VecDeque::from([(0..patterns.len(), 0)]);
        while let Some((range, depth)) = open.pop_front() {
            search.first.push(number(search.labels.len()));
            let is_whole = !range.is_empty() && byte(range.start, depth).is_none();
            search.pattern.push(if is_whole { number(range.start) } else { NONE });
            let mut begin = range.start + usize::from(is_whole);
            while let Some(label) = byte(begin, depth).filter(|_| begin < range.end) {
                let same = (begin..range.end).take_while(|at| byte(*at, depth) == Some(label)).count();
                search.labels.push(label);
                open.push_back((begin..begin + same, depth + 1));
                begin += same;
            }
        }
        search.first.push(number(search.labels.len()));
        search.link();
        Ok(search)
    }

    /// Fills in the failure and output links.
    fn link(&mut self) {
        let states = self.labels.len();
        (self.shorter, self.next) = (vec![0; states], vec![NONE; states]);
        for state in 0..states {
            for child in self.children(state) {
                // The root's children fall back to the root; all states of smaller depth already
                // have their links.
                let shorter = match state {
                    0 => 0,
                    _ => self.step(self.shorter[state], self.labels[child]),
                };
                self.shorter[child] = shorter;
                let shorter_state = shorter as usize;
                let has_pattern = self.pattern[shorter_state] != NONE;
                self.next[child] = if has_pattern { shorter } else { self.next[shorter_state] };
            }
        }
    }

    fn children(&self, state: usize) -> Range<usize> {
        self.first[state] as usize..self.first[state + 1] as usize
    }

    /// The state after one more byte, starting from 0. `n` calls take O(n) failure links in total.
    pub(super) fn step(&self, mut state: u32, byte: u8) -> u32 {
        loop {
            let children = self.children(state as usize);
            if let Ok(at) = self.labels[children.clone()].binary_search(&byte) {
                return number(children.start + at);
            }
            if state == 0 {
                return 0;
            }
            state = self.shorter[state as usize];
        }
    }

    /// The patterns that end here, longest first.
    pub(super) fn found(&self, state: u32) -> impl Iterator<Item = usize> {
        let next = |state: &u32| self.next.get(*state as usize).copied().filter(|state| *state != NONE);
        let states = std::iter::successors(Some(state), next);
        states.filter_map(|state| self.pattern.get(state as usize).filter(|at| **at != NONE).map(|at| *at as usize))
    }
}

/// Indices fit: there are at most [`MAX_TOTAL_LENGTH`]` + 1` states.
fn number(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(NONE)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares matches at each offset with a naive search.
    #[test]
    fn all_patterns_are_found() {
        let budget = Budget::for_length(0).unwrap();
        let all = ["", "a", "b", "ab", "ba", "aa", "aab", "abab", "bb", "bbabb", "abba", "b\u{e9}", "\u{e9}"];
        for chosen in 0..1 << (all.len() - 1) {
            let mut patterns: Vec<&str> =
                (1..all.len()).filter(|at| chosen >> (at - 1) & 1 == 1).map(|at| all[at]).collect();
            patterns.sort_unstable();
            let search = Search::new(&patterns, &budget).unwrap_or_default();
            let text = "abbabbaab\u{e9}ababaaabbb\u{e9}";
            let mut state = 0;
            for (at, byte) in text.bytes().enumerate() {
                if patterns.is_empty() {
                    continue;
                }
                state = search.step(state, byte);
                let found: Vec<&str> = search.found(state).map(|at| patterns[at]).collect();
                let mut wanted: Vec<&str> =
                    patterns.iter().copied().filter(|p| text.as_bytes()[..=at].ends_with(p.as_bytes())).collect();
                wanted.sort_by_key(|pattern| usize::MAX - pattern.len());
                assert_eq!(found, wanted, "{patterns:?} {at}");
            }
        }
        let long = "a".repeat(MAX_TOTAL_LENGTH + 1);
        assert!(Search::new(&[long], &budget).is_err_and(|why| why.contains("more than 8 MiB")));
    }
}
