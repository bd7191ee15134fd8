//! The search: tries changes, and makes each that leaves the program interesting.
//!
//! In: a program, kinds of changes, a test. Out: a program of which no single change is interesting
//! any more. Each kind is tried in groups: half of all its changes at once, then a quarter, down to
//! each alone; groups that fail are skipped. All kinds are repeated until none succeeds.
//!
//! With several jobs the next candidates are tested at the same time, and the first interesting one
//! is taken; the result is that of one job.

use super::{Candidate, Changes};
use crate::threads;
use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};

/// The state of the search, for a progress line.
pub(super) struct State<'a> {
    pub(super) text: &'a str,
    pub(super) tests: usize,
    pub(super) kind: &'static str,
    /// Has the text just become smaller?
    pub(super) found: bool,
}

/// Makes a program smaller; also returns the number of tests.
pub(super) fn search(
    text: &str,
    kinds: &[Box<dyn Changes>],
    jobs: usize,
    test: &(dyn Fn(&str) -> bool + Sync),
    progress: &mut dyn FnMut(&State<'_>),
) -> (String, usize) {
    let mut search = Search { text: text.to_string(), tests: 0, failed: HashSet::new(), jobs, test, progress };
    loop {
        let before = search.text.clone();
        for kind in kinds {
            search.kind(kind.as_ref());
        }
        if search.text == before {
            return (search.text, search.tests);
        }
    }
}

struct Search<'s> {
    text: String,
    tests: usize,
    /// Digests of texts that are not interesting.
    failed: HashSet<u64>,
    jobs: usize,
    test: &'s (dyn Fn(&str) -> bool + Sync),
    progress: &'s mut dyn FnMut(&State<'_>),
}

fn digest(text: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}

/// Is a text smaller than another? By words, so that layout does not count; of as many, by bytes.
/// Of as many bytes, by the text itself, so that no change is undone.
fn is_smaller(text: &str, than: &str) -> bool {
    let size = |text: &str| {
        let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '.';
        let mut words = 0;
        let mut inside = false;
        for c in text.chars() {
            words += usize::from(!(c.is_whitespace() || is_word(c) && inside));
            inside = is_word(c);
        }
        (words, text.chars().filter(|c| !c.is_whitespace()).count(), text.len())
    };
    (size(text), text) < (size(than), than)
}

impl Search<'_> {
    /// Tries all changes of a kind.
    fn kind(&mut self, kind: &dyn Changes) {
        // Reads the program, so it is counted again only after a change.
        let mut count = kind.count(&self.text);
        let mut group = count.div_ceil(2).max(1);
        loop {
            let mut at = 0;
            while at < count {
                let (next, changed) = self.step(kind, (at, count), group);
                at = next;
                if changed {
                    count = kind.count(&self.text);
                }
            }
            if group == 1 {
                return;
            }
            group = group.div_ceil(2).min(count.div_ceil(2).max(1));
        }
    }

    /// Tests the next groups from a place in all changes; returns where to go on, and whether the
    /// program has changed.
    fn step(&mut self, kind: &dyn Changes, (at, count): (usize, usize), group: usize) -> (usize, bool) {
        let starts: Vec<usize> = (at..count).step_by(group).take(self.jobs).collect();
        let (text, failed) = (&self.text, &self.failed);
        let make = |start: usize| -> Candidate {
            let made = kind.make(text, start, group.min(count - start))?;
            (is_smaller(&made, text) && !failed.contains(&digest(&made))).then_some(made)
        };
        let made: Vec<Candidate> = starts.iter().map(|start| make(*start)).collect();
        let test = self.test;
        let results = threads::each(made, self.jobs, |made| {
            let made = made?;
            let is_good = test(&made);
            Some((made, is_good))
        });
        let (mut next, mut changed) = (starts.last().map_or(count, |last| last + group), false);
        for (start, result) in starts.iter().zip(results) {
            let Some((made, is_good)) = result else { continue };
            self.tests += 1;
            if is_good {
                self.text = made;
                // The next changes have moved here.
                (next, changed) = (*start, true);
                (self.progress)(&State { text: &self.text, tests: self.tests, kind: kind.name(), found: true });
                break;
            }
            self.failed.insert(digest(&made));
        }
        (self.progress)(&State { text: &self.text, tests: self.tests, kind: kind.name(), found: false });
        (next, changed)
    }
}

#[cfg(test)]
mod tests {
    use super::super::lines;
    use super::*;
    use crate::driver::outputs::Source;

    /// Keeps only the lines that a test needs, with any number of jobs.
    #[test]
    fn what_is_not_needed_is_dropped() {
        let text: String = (0..100).map(|n| format!("line {n}\n")).collect();
        let needs = |text: &str| text.lines().any(|l| l == "line 17") && text.lines().any(|l| l == "line 80");
        for jobs in [1, 2, 7] {
            let kinds = lines::kinds(Source::Clif);
            let (small, tests) = search(&text, &kinds, jobs, &needs, &mut |_| {});
            assert_eq!(small, "line 17\nline 80\n");
            assert!(tests < 150, "{tests}");
        }
    }

    #[test]
    fn layout_does_not_count() {
        assert!(is_smaller("a b", "a  b c"));
        assert!(is_smaller("a", "a "));
        assert!(!is_smaller("a b", "ab"));
        assert!(!is_smaller("x", "x"));
    }
}
