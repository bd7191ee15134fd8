//! Regular expressions of `tokenizer.json`: a backtracking matcher that counts its steps.
//!
//! In: a pattern in Oniguruma's syntax, as far as `fancy-regex` parses it, and a text. Out: all its
//! matches, as the `tokenizers` library finds them, or an error if they take more steps than the
//! [`Budget`] permits.
//!
//! Only the parser of `fancy-regex` is used. Its matcher limits the backtracking of each match, but
//! not of all matches of a text; it does not report how much it used; and it delegates lookaround
//! bodies such as `[^z]*z` to an automaton that counts nothing, so that finding all matches takes
//! quadratic time within any limit. Linear engines do not support lookahead, which GPT-2's pattern
//! needs, and are quadratic over all matches too.
//!
//! A pattern is compiled ([`compile`]) to instructions of a backtracking virtual machine. Untried
//! alternatives are on a stack; a repeated character class takes one entry there, however many
//! characters it matched.

mod compile;

use super::budget::Budget;
use std::ops::Range;

/// Maximum depth of the backtracking stack.
const MAX_ENTRIES: usize = 1 << 20;
/// Offset of a group that has not matched.
const UNSET: usize = usize::MAX;

/// A set of characters.
#[derive(Debug)]
struct Set {
    ascii: u128,
    /// Sorted inclusive ranges, used for characters above ASCII.
    ranges: Vec<(char, char)>,
}

impl Set {
    fn has(&self, c: char) -> bool {
        if c.is_ascii() {
            return self.ascii >> u32::from(c) & 1 == 1;
        }
        let at = self.ranges.partition_point(|(_, last)| *last < c);
        self.ranges.get(at).is_some_and(|(first, _)| *first <= c)
    }
}

/// A zero-width assertion.
#[derive(Clone, Copy, Debug)]
enum Assert {
    Begin,
    End,
    /// The end, or before newlines that end the text.
    LastLine,
    LineBegin,
    LineEnd,
    /// Whether a word character is required before and after; `None` for either.
    Word(Option<bool>, Option<bool>),
    /// A word boundary (`false`: not a word boundary).
    Boundary(bool),
}

/// An instruction. The body of `Look` and `Atomic` follows it and ends in its own `Match`; `end` is
/// the instruction after that.
#[derive(Debug)]
enum Inst {
    /// One character of a set.
    One(usize),
    /// Greedily repeats a set, and backtracks one character at a time.
    Run {
        set: usize,
        least: usize,
        most: usize,
    },
    /// Tries the first branch, then the second.
    Fork(usize, usize),
    Jump(usize),
    /// Stores the current offset in a slot.
    Save(usize),
    /// Leaves a loop if its body has matched the empty string since slot `since` was stored.
    LeaveIfEmpty {
        since: usize,
        end: usize,
    },
    At(Assert),
    /// Lookahead; or lookbehind, with the possible lengths in characters.
    Look {
        behind: Option<Range<usize>>,
        wanted: bool,
        end: usize,
    },
    /// Only the first match of the body is tried.
    Atomic {
        end: usize,
    },
    /// A back-reference; the group's slots are `group` and `group + 1`.
    BackReference {
        group: usize,
        any_case: bool,
    },
    Match,
}

/// An entry of the backtracking stack.
#[derive(Debug)]
enum Entry {
    Try {
        pc: usize,
        at: usize,
    },
    /// Retries a greedy run one character shorter, down to `shortest`.
    Shorter {
        pc: usize,
        shortest: usize,
        end: usize,
    },
    /// Restores the previous value of a slot.
    Restore {
        slot: usize,
        old: usize,
    },
}

/// A compiled pattern.
#[derive(Debug)]
pub(super) struct Pattern {
    code: Vec<Inst>,
    sets: Vec<Set>,
    /// The index of the set of word characters, if the pattern has a word assertion.
    word: usize,
    slots: usize,
}

impl Pattern {
    /// Is `c` a word character? Always false in patterns without a word assertion.
    pub(super) fn is_word(&self, c: char) -> bool {
        self.sets.get(self.word).is_some_and(|set| set.has(c))
    }

    /// All matches from left to right; an empty match directly after another match is skipped.
    ///
    /// # Errors
    /// The budget is exhausted.
    pub(super) fn matches(&self, text: &str, budget: &Budget) -> Result<Vec<Range<usize>>, String> {
        let mut found: Vec<Range<usize>> = Vec::new();
        let mut run = Run { pattern: self, text, budget, stack: Vec::new(), slots: vec![UNSET; self.slots] };
        let mut from = 0;
        while from <= text.len() {
            budget.work(1 + self.slots / 4)?;
            run.stack.clear();
            run.slots.fill(UNSET);
            match run.matched(0, from, None)? {
                Some(end) if end > from || found.last().is_none_or(|last| last.end < end) => {
                    found.push(from..end);
                    if end > from {
                        from = end;
                        continue;
                    }
                }
                _ => {}
            }
            from += text.get(from..).and_then(|rest| rest.chars().next()).map_or(1, char::len_utf8);
        }
        Ok(found)
    }
}

/// The state of the virtual machine.
struct Run<'r> {
    pattern: &'r Pattern,
    text: &'r str,
    budget: &'r Budget,
    stack: Vec<Entry>,
    slots: Vec<usize>,
}

impl Run<'_> {
    fn next(&self, at: usize) -> Option<char> {
        self.text.get(at..)?.chars().next()
    }

    fn previous(&self, at: usize) -> Option<char> {
        self.text.get(..at)?.chars().next_back()
    }

    fn has(&self, set: usize, c: Option<char>) -> Option<usize> {
        c.filter(|c| self.pattern.sets.get(set).is_some_and(|set| set.has(*c))).map(char::len_utf8)
    }

    fn push(&mut self, entry: Entry) -> Result<(), String> {
        if self.stack.len() >= MAX_ENTRIES {
            return Err(format!("a pattern has more than {MAX_ENTRIES} alternatives left to try, the limit"));
        }
        self.stack.push(entry);
        Ok(())
    }

    /// The end of the first match from `begin`, which must equal `wanted` if given. Recursion is
    /// limited by the nesting of the pattern, which the parser limits.
    fn matched(&mut self, from: usize, begin: usize, wanted: Option<usize>) -> Result<Option<usize>, String> {
        let (base, pattern) = (self.stack.len(), self.pattern);
        let (mut pc, mut at) = (from, begin);
        loop {
            self.budget.work(1)?;
            let next = match pattern.code.get(pc) {
                Some(Inst::Match) | None if wanted.is_none_or(|end| at == end) => {
                    // Drops the alternatives of a body that has matched, but keeps the entries that
                    // restore slots.
                    let mut kept = base;
                    for index in base..self.stack.len() {
                        if matches!(self.stack[index], Entry::Restore { .. }) {
                            self.stack.swap(kept, index);
                            kept += 1;
                        }
                    }
                    self.budget.work(self.stack.len() - base)?;
                    self.stack.truncate(kept);
                    return Ok(Some(at));
                }
                Some(Inst::Match) | None => None,
                Some(one) => self.execute(one, pc, at)?,
            };
            match next {
                Some(next) => (pc, at) = next,
                None => match self.back(base)? {
                    Some(next) => (pc, at) = next,
                    None => return Ok(None),
                },
            }
        }
    }

    /// Pops the next alternative above `base`.
    fn back(&mut self, base: usize) -> Result<Option<(usize, usize)>, String> {
        while self.stack.len() > base {
            self.budget.work(1)?;
            match self.stack.pop() {
                Some(Entry::Try { pc, at }) => return Ok(Some((pc, at))),
                Some(Entry::Shorter { pc, shortest, end }) => {
                    let end = end - self.previous(end).map_or(0, char::len_utf8);
                    if end > shortest {
                        self.stack.push(Entry::Shorter { pc, shortest, end });
                    }
                    return Ok(Some((pc, end)));
                }
                Some(Entry::Restore { slot, old }) => self.slots[slot] = old,
                None => {}
            }
        }
        Ok(None)
    }

    /// Runs one instruction. Returns the next instruction and offset, or `None` if it does not
    /// match.
    fn execute(&mut self, one: &Inst, pc: usize, at: usize) -> Result<Option<(usize, usize)>, String> {
        let next = pc + 1;
        Ok(match one {
            Inst::One(set) => self.has(*set, self.next(at)).map(|length| (next, at + length)),
            Inst::Run { set, least, most } => {
                let (mut end, mut count, mut shortest) = (at, 0, at);
                while let Some(length) = self.has(*set, self.next(end)).filter(|_| count < *most) {
                    end += length;
                    count += 1;
                    if count == *least {
                        shortest = end;
                    }
                }
                self.budget.work(count)?;
                if count < *least {
                    return Ok(None);
                }
                if end > shortest {
                    self.push(Entry::Shorter { pc: next, shortest, end })?;
                }
                Some((next, end))
            }
            Inst::Fork(first, second) => {
                self.push(Entry::Try { pc: *second, at })?;
                Some((*first, at))
            }
            Inst::Jump(to) => Some((*to, at)),
            Inst::Save(slot) => {
                let old = std::mem::replace(&mut self.slots[*slot], at);
                self.push(Entry::Restore { slot: *slot, old })?;
                Some((next, at))
            }
            Inst::LeaveIfEmpty { since, end } => Some((if self.slots[*since] == at { *end } else { next }, at)),
            Inst::At(assert) => self.holds(*assert, at)?.then_some((next, at)),
            Inst::Look { behind: None, wanted, end } => {
                (self.matched(next, at, None)?.is_some() == *wanted).then_some((*end, at))
            }
            Inst::Look { behind: Some(lengths), wanted, end } => {
                let begins = self.text.get(..at).unwrap_or_default().char_indices().rev().map(|(begin, _)| begin);
                let begins = std::iter::once(at).chain(begins).enumerate();
                let begins: Vec<usize> =
                    begins.skip(lengths.start).take(lengths.len()).map(|(_, begin)| begin).collect();
                self.budget.work(lengths.end)?;
                let mut is_found = false;
                for begin in begins {
                    is_found = is_found || self.matched(next, begin, Some(at))?.is_some();
                }
                (is_found == *wanted).then_some((*end, at))
            }
            Inst::Atomic { end } => self.matched(next, at, None)?.map(|to| (*end, to)),
            Inst::BackReference { group, any_case } => {
                let found = self.text.get(self.slots[*group]..self.slots[*group + 1]);
                let rest = self.text.get(at..).unwrap_or_default();
                self.budget.work(found.map_or(0, str::len))?;
                found.and_then(|found| same(rest, found, *any_case)).map(|length| (next, at + length))
            }
            Inst::Match => None,
        })
    }

    fn holds(&self, assert: Assert, at: usize) -> Result<bool, String> {
        let (before, after) = (self.previous(at), self.next(at));
        let is_word = |c: Option<char>| c.is_some_and(|c| self.pattern.is_word(c));
        Ok(match assert {
            Assert::Begin => before.is_none(),
            Assert::End => after.is_none(),
            Assert::LastLine => {
                let rest = self.text.get(at..).unwrap_or_default();
                let newlines = rest.bytes().take_while(|byte| *byte == b'\n').count();
                self.budget.work(newlines)?;
                newlines == rest.len()
            }
            Assert::LineBegin => before.is_none_or(|c| c == '\n'),
            Assert::LineEnd => after.is_none_or(|c| c == '\n'),
            Assert::Word(left, right) => {
                left.is_none_or(|is| is == is_word(before)) && right.is_none_or(|is| is == is_word(after))
            }
            Assert::Boundary(is) => (is_word(before) != is_word(after)) == is,
        })
    }
}

/// The length of the prefix of `text` that equals `wanted`.
fn same(text: &str, wanted: &str, any_case: bool) -> Option<usize> {
    if !any_case {
        return text.starts_with(wanted).then_some(wanted.len());
    }
    let mut rest = text.chars();
    wanted
        .chars()
        .all(|c| rest.next().is_some_and(|other| c.to_lowercase().eq(other.to_lowercase())))
        .then(|| text.len() - rest.as_str().len())
}
