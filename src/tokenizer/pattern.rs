//! Regular expressions of `tokenizer.json`, matched by backtracking whose steps are counted.
//!
//! In: a pattern, in the syntax of Oniguruma as far as `fancy-regex` parses it, and a text. Out: its matches, one after the other, as
//! the `tokenizers` library finds them; or an error, if the text takes more steps than the [`Budget`] has left. An engine that takes linear time would
//! need no budget, but patterns of tokenizers look ahead, and even engines without that take quadratic time to find all matches.
//!
//! A pattern is compiled ([`compile`]) to instructions of a small machine, as Pike and Thompson did. What may still be tried is on a stack; a
//! character class that is repeated takes one entry there, whatever the number of characters.

mod compile;

use super::budget::Budget;
use std::ops::Range;

/// The most choices that are open at one time.
const MOST_OPEN: usize = 1 << 20;
/// A group that has matched nothing yet.
const UNSET: usize = usize::MAX;

/// A set of characters.
#[derive(Debug)]
struct Set {
    ascii: u128,
    /// Those above ASCII: first and last, sorted.
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

/// A condition on a place in the text.
#[derive(Clone, Copy, Debug)]
enum Place {
    Begin,
    End,
    /// The end, or newlines up to it.
    LastLine,
    LineBegin,
    LineEnd,
    /// Is there a word's character before (`Some(false)`: there must not be one), and after?
    Word(Option<bool>, Option<bool>),
    /// Does a word begin or end here?
    Edge(bool),
}

/// An instruction. Those with a part of their own (`Look`, `Atomic`) have it behind them, up to its `Match`; `end` is behind that.
#[derive(Debug)]
enum Step {
    /// A character of this set.
    One(usize),
    /// As many as there are, but fewer if nothing else matches.
    Run {
        set: usize,
        least: usize,
        most: usize,
    },
    /// First one way; then, if that does not match, the other.
    Fork(usize, usize),
    Jump(usize),
    /// Remembers the place.
    Save(usize),
    /// Leaves a loop whose body has matched nothing since that place was remembered.
    LeaveIfEmpty {
        since: usize,
        end: usize,
    },
    At(Place),
    /// Does the part match from here, or up to here? With how many characters less, then.
    Look {
        behind: Option<Range<usize>>,
        wanted: bool,
        end: usize,
    },
    /// The part's first match is the only one.
    Atomic {
        end: usize,
    },
    /// What the group matched, whose places are remembered here and next.
    Again {
        group: usize,
        any_case: bool,
    },
    Match,
}

/// What is tried when something does not match.
#[derive(Debug)]
enum Open {
    Try {
        step: usize,
        at: usize,
    },
    /// One character less, down to a shortest end.
    Shorter {
        step: usize,
        shortest: usize,
        end: usize,
    },
    /// Nothing: a place that was remembered before is so again.
    Restore {
        place: usize,
        old: usize,
    },
}

/// A compiled pattern.
#[derive(Debug)]
pub(super) struct Pattern {
    steps: Vec<Step>,
    sets: Vec<Set>,
    /// The characters of words, if the pattern asks for them.
    word: usize,
    places: usize,
}

impl Pattern {
    /// Has a word such a character? Known to patterns that ask for edges of words.
    pub(super) fn is_word(&self, c: char) -> bool {
        self.sets.get(self.word).is_some_and(|set| set.has(c))
    }

    /// All matches, from left to right. An empty one does not follow another one immediately.
    ///
    /// # Errors
    /// It takes too many steps, in words.
    pub(super) fn matches(&self, text: &str, budget: &Budget) -> Result<Vec<Range<usize>>, String> {
        let mut found: Vec<Range<usize>> = Vec::new();
        let mut run = Run { pattern: self, text, budget, open: Vec::new(), places: vec![UNSET; self.places] };
        let mut from = 0;
        while from <= text.len() {
            budget.work(1 + self.places / 4)?;
            run.open.clear();
            run.places.fill(UNSET);
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

/// A search from one place.
struct Run<'r> {
    pattern: &'r Pattern,
    text: &'r str,
    budget: &'r Budget,
    open: Vec<Open>,
    places: Vec<usize>,
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

    fn push(&mut self, open: Open) -> Result<(), String> {
        if self.open.len() >= MOST_OPEN {
            return Err(format!("a pattern has more than {MOST_OPEN} choices open, the limit"));
        }
        self.open.push(open);
        Ok(())
    }

    /// Where the first match from a place ends, which is at `wanted` if that is given. Recursion is bounded by the depth of the pattern.
    fn matched(&mut self, from: usize, begin: usize, wanted: Option<usize>) -> Result<Option<usize>, String> {
        let (base, pattern) = (self.open.len(), self.pattern);
        let (mut step, mut at) = (from, begin);
        loop {
            self.budget.work(1)?;
            let next = match pattern.steps.get(step) {
                Some(Step::Match) | None if wanted.is_none_or(|end| at == end) => {
                    // Its choices are made; what it remembers is undone if what follows does not match.
                    let mut kept = base;
                    for place in base..self.open.len() {
                        if matches!(self.open[place], Open::Restore { .. }) {
                            self.open.swap(kept, place);
                            kept += 1;
                        }
                    }
                    self.budget.work(self.open.len() - base)?;
                    self.open.truncate(kept);
                    return Ok(Some(at));
                }
                Some(Step::Match) | None => None,
                Some(one) => self.step(one, step, at)?,
            };
            match next {
                Some(next) => (step, at) = next,
                None => match self.back(base)? {
                    Some(next) => (step, at) = next,
                    None => return Ok(None),
                },
            }
        }
    }

    /// The next choice of those that are open since `base`.
    fn back(&mut self, base: usize) -> Result<Option<(usize, usize)>, String> {
        while self.open.len() > base {
            self.budget.work(1)?;
            match self.open.pop() {
                Some(Open::Try { step, at }) => return Ok(Some((step, at))),
                Some(Open::Shorter { step, shortest, end }) => {
                    let end = end - self.previous(end).map_or(0, char::len_utf8);
                    if end > shortest {
                        self.open.push(Open::Shorter { step, shortest, end });
                    }
                    return Ok(Some((step, end)));
                }
                Some(Open::Restore { place, old }) => self.places[place] = old,
                None => {}
            }
        }
        Ok(None)
    }

    /// The instruction and the place after one; none if it does not match.
    fn step(&mut self, one: &Step, step: usize, at: usize) -> Result<Option<(usize, usize)>, String> {
        let next = step + 1;
        Ok(match one {
            Step::One(set) => self.has(*set, self.next(at)).map(|length| (next, at + length)),
            Step::Run { set, least, most } => {
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
                    self.push(Open::Shorter { step: next, shortest, end })?;
                }
                Some((next, end))
            }
            Step::Fork(first, second) => {
                self.push(Open::Try { step: *second, at })?;
                Some((*first, at))
            }
            Step::Jump(to) => Some((*to, at)),
            Step::Save(place) => {
                let old = std::mem::replace(&mut self.places[*place], at);
                self.push(Open::Restore { place: *place, old })?;
                Some((next, at))
            }
            Step::LeaveIfEmpty { since, end } => Some((if self.places[*since] == at { *end } else { next }, at)),
            Step::At(place) => self.holds(*place, at)?.then_some((next, at)),
            Step::Look { behind: None, wanted, end } => {
                (self.matched(next, at, None)?.is_some() == *wanted).then_some((*end, at))
            }
            Step::Look { behind: Some(lengths), wanted, end } => {
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
            Step::Atomic { end } => self.matched(next, at, None)?.map(|to| (*end, to)),
            Step::Again { group, any_case } => {
                let found = self.text.get(self.places[*group]..self.places[*group + 1]);
                let rest = self.text.get(at..).unwrap_or_default();
                self.budget.work(found.map_or(0, str::len))?;
                found.and_then(|found| same(rest, found, *any_case)).map(|length| (next, at + length))
            }
            Step::Match => None,
        })
    }

    fn holds(&self, place: Place, at: usize) -> Result<bool, String> {
        let (before, after) = (self.previous(at), self.next(at));
        let is_word = |c: Option<char>| c.is_some_and(|c| self.pattern.is_word(c));
        Ok(match place {
            Place::Begin => before.is_none(),
            Place::End => after.is_none(),
            Place::LastLine => {
                let rest = self.text.get(at..).unwrap_or_default();
                let newlines = rest.bytes().take_while(|byte| *byte == b'\n').count();
                self.budget.work(newlines)?;
                newlines == rest.len()
            }
            Place::LineBegin => before.is_none_or(|c| c == '\n'),
            Place::LineEnd => after.is_none_or(|c| c == '\n'),
            Place::Word(left, right) => {
                left.is_none_or(|is| is == is_word(before)) && right.is_none_or(|is| is == is_word(after))
            }
            Place::Edge(is) => (is_word(before) != is_word(after)) == is,
        })
    }
}

/// How long the beginning of a text is that is the same as another one.
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
