//! From the text of a pattern to instructions.
//!
//! In: a pattern; `fancy-regex` parses it, and `regex-syntax` its classes. Out: a [`Pattern`], or what of it is not supported. In
//! Oniguruma, which the `tokenizers` library uses, `^` and `$` stand at the edges of lines.

use super::{Pattern, Place, Set, Step};
use crate::tokenizer::budget::Budget;
use fancy_regex::{Assertion, Expr, LookAround};
use regex_syntax::hir::{Class, HirKind};
use std::collections::HashMap;
use std::ops::Range;

/// The longest pattern, in bytes, and the most instructions and characters in a look behind.
const LONGEST: usize = 1 << 14;
const MOST_STEPS: usize = 1 << 14;
const MOST_BEHIND: usize = 256;
/// How a pattern is parsed: Unicode, lines (`fancy_regex::internal::FLAG_UNICODE` and `FLAG_MULTI`).
const FLAGS: u32 = 1 << 5 | 1 << 1;

struct Compiler<'b> {
    pattern: Pattern,
    /// The sets by the text of their class, and whether case matters.
    known: HashMap<(String, bool), usize>,
    /// The places that are remembered of a group, for groups that are referred to.
    groups: HashMap<usize, usize>,
    seen: usize,
    budget: &'b Budget,
}

impl Pattern {
    /// Compiles a pattern.
    ///
    /// # Errors
    /// It cannot be read, is too large, or has something that is not supported; in words.
    pub(in crate::tokenizer) fn new(text: &str, budget: &Budget) -> Result<Pattern, String> {
        if text.len() > LONGEST {
            return Err(format!("it is longer than {LONGEST} bytes, the limit"));
        }
        budget.work(64 * text.len())?;
        if has_flag_of_lines(text) {
            return Err("it has the flag `m` or `s`, which is not supported".to_string());
        }
        let tree = Expr::parse_tree_with_flags(text, FLAGS).map_err(|error| format!("it cannot be read: {error}"))?;
        let pattern = Pattern { steps: Vec::new(), sets: Vec::new(), word: usize::MAX, places: 0 };
        let mut compiler = Compiler { pattern, known: HashMap::new(), groups: HashMap::new(), seen: 0, budget };
        for group in tree.backrefs.iter() {
            compiler.groups.insert(group, compiler.pattern.places);
            compiler.pattern.places += 2;
        }
        compiler.expr(&tree.expr)?;
        compiler.push(Step::Match)?;
        Ok(compiler.pattern)
    }

    /// The pattern that matches a text and nothing else.
    ///
    /// # Errors
    /// It is too long, in words as those of [`Pattern::new`].
    pub(in crate::tokenizer) fn of_text(text: &str, budget: &Budget) -> Result<Pattern, String> {
        Pattern::new(&fancy_regex::escape(text), budget)
    }
}

/// Does it set a flag inside that Oniguruma has not, or reads in another way?
fn has_flag_of_lines(text: &str) -> bool {
    text.split("(?").skip(1).any(|rest| {
        let flags = rest.split([':', ')']).next().unwrap_or_default();
        flags.bytes().all(|b| b.is_ascii_lowercase() || b == b'-') && flags.contains(['m', 's'])
    })
}

/// Something that is not supported.
fn unsupported<T>(what: &str) -> Result<T, String> {
    Err(format!("it has {what}, which is not supported"))
}

impl Compiler<'_> {
    fn push(&mut self, step: Step) -> Result<usize, String> {
        if self.pattern.steps.len() >= MOST_STEPS {
            return Err(format!("it has more than {MOST_STEPS} instructions, the limit"));
        }
        self.budget.keep(1)?;
        self.pattern.steps.push(step);
        Ok(self.pattern.steps.len() - 1)
    }

    fn here(&self) -> usize {
        self.pattern.steps.len()
    }

    /// The set of a class.
    fn set(&mut self, class: &str, any_case: bool) -> Result<usize, String> {
        let key = (class.to_string(), any_case);
        if let Some(set) = self.known.get(&key) {
            return Ok(*set);
        }
        self.budget.work(1 << 12)?;
        let mut parser = regex_syntax::ParserBuilder::new();
        let hir = parser.case_insensitive(any_case).build().parse(class);
        let hir =
            hir.map_err(|error| format!("it has the class `{class}`, which cannot be read: {}", last_line(&error)))?;
        let ranges: Vec<(char, char)> = match hir.kind() {
            HirKind::Class(Class::Unicode(class)) => class.ranges().iter().map(|r| (r.start(), r.end())).collect(),
            HirKind::Class(Class::Bytes(class)) => {
                class.ranges().iter().map(|r| (char::from(r.start()), char::from(r.end()))).collect()
            }
            HirKind::Literal(literal) => {
                std::str::from_utf8(&literal.0).unwrap_or_default().chars().map(|c| (c, c)).collect()
            }
            _ => return unsupported(&format!("the class `{class}`")),
        };
        self.budget.keep(ranges.len() * size_of::<(char, char)>())?;
        let ascii = (0..128u8).filter(|b| ranges.iter().any(|(a, z)| (*a..=*z).contains(&char::from(*b))));
        let ascii = ascii.fold(0, |bits, b| bits | 1u128 << b);
        self.pattern.sets.push(Set { ascii, ranges });
        let set = self.pattern.sets.len() - 1;
        self.known.insert(key, set);
        Ok(set)
    }

    /// The set of which an expression is one character, if it is.
    fn single(&mut self, expr: &Expr) -> Result<Option<usize>, String> {
        let mut buffer = [0; 4];
        Ok(match expr {
            Expr::Any { newline: true, .. } => Some(self.set(r"[\s\S]", false)?),
            Expr::Any { crlf: false, .. } => Some(self.set(r"[^\n]", false)?),
            Expr::Any { .. } => Some(self.set(r"[^\r\n]", false)?),
            Expr::Delegate { inner, casei } => Some(self.set(inner, *casei)?),
            Expr::Literal { val, casei } => match val.chars().collect::<Vec<char>>().as_slice() {
                [c] => Some(self.set(&regex_syntax::escape(c.encode_utf8(&mut buffer)), *casei)?),
                _ => None,
            },
            _ => None,
        })
    }

    fn expr(&mut self, expr: &Expr) -> Result<(), String> {
        if let Some(set) = self.single(expr)? {
            return self.push(Step::One(set)).map(|_| ());
        }
        match expr {
            Expr::Empty => {}
            Expr::Literal { val, casei } => {
                for c in val.chars() {
                    self.expr(&Expr::Literal { val: c.to_string(), casei: *casei })?;
                }
            }
            Expr::Concat(all) => all.iter().try_for_each(|one| self.expr(one))?,
            Expr::Alt(all) => self.alternatives(all)?,
            Expr::Group(inner) => {
                self.seen += 1;
                let places = self.groups.get(&self.seen).copied();
                self.save(places)?;
                self.expr(inner)?;
                self.save(places.map(|begin| begin + 1))?;
            }
            Expr::LookAround(inner, kind) => {
                let (is_behind, wanted) = match kind {
                    LookAround::LookAhead => (false, true),
                    LookAround::LookAheadNeg => (false, false),
                    LookAround::LookBehind => (true, true),
                    LookAround::LookBehindNeg => (true, false),
                };
                let behind = if is_behind { Some(lengths(inner)?) } else { None };
                self.part(inner, |end| Step::Look { behind, wanted, end })?;
            }
            Expr::AtomicGroup(inner) => self.part(inner, |end| Step::Atomic { end })?,
            Expr::Repeat { child, lo, hi, greedy } => self.repeat(child, *lo, *hi, *greedy)?,
            Expr::Backref { group, casei } => {
                let Some(group) = self.groups.get(group).copied() else {
                    return unsupported("a reference to no group");
                };
                self.push(Step::Again { group, any_case: *casei })?;
            }
            Expr::Assertion(assertion) => {
                let place = place(assertion)?;
                if matches!(place, Place::Word(..) | Place::Edge(_)) {
                    self.pattern.word = self.set(r"\w", false)?;
                }
                self.push(Step::At(place))?;
            }
            other => {
                let shown = format!("{other:?}");
                let name = shown.split(|c: char| !c.is_ascii_alphabetic()).next().unwrap_or_default();
                return unsupported(&format!("`{name}`"));
            }
        }
        Ok(())
    }

    fn save(&mut self, place: Option<usize>) -> Result<(), String> {
        place.map_or(Ok(()), |place| self.push(Step::Save(place)).map(|_| ()))
    }

    fn alternatives(&mut self, all: &[Expr]) -> Result<(), String> {
        let mut ends = Vec::new();
        for (at, one) in all.iter().enumerate() {
            if at + 1 == all.len() {
                self.expr(one)?;
                continue;
            }
            let fork = self.push(Step::Jump(0))?;
            self.expr(one)?;
            ends.push(self.push(Step::Jump(0))?);
            self.pattern.steps[fork] = Step::Fork(fork + 1, self.here());
        }
        let here = self.here();
        ends.into_iter().for_each(|end| self.pattern.steps[end] = Step::Jump(here));
        Ok(())
    }

    /// An instruction with a part behind it.
    fn part(&mut self, inner: &Expr, made: impl FnOnce(usize) -> Step) -> Result<(), String> {
        let at = self.push(Step::Match)?;
        self.expr(inner)?;
        self.push(Step::Match)?;
        self.pattern.steps[at] = made(self.here());
        Ok(())
    }

    fn repeat(&mut self, child: &Expr, least: usize, most: usize, greedy: bool) -> Result<(), String> {
        if let Some(set) = self.single(child)?.filter(|_| greedy) {
            return self.push(Step::Run { set, least, most }).map(|_| ());
        }
        // Groups in a body that stands there several times are the same ones each time.
        let groups = self.seen;
        let body = |compiler: &mut Self| {
            compiler.seen = groups;
            compiler.expr(child)
        };
        let fork = |to: usize, end: usize| if greedy { Step::Fork(to, end) } else { Step::Fork(end, to) };
        if most == 0 {
            // Its groups count, though they match nothing.
            let begin = self.push(Step::Jump(0))?;
            body(self)?;
            self.pattern.steps[begin] = Step::Jump(self.here());
        }
        for _ in 0..least {
            let begin = self.here();
            body(self)?;
            if self.here() == begin {
                return Ok(());
            }
        }
        if most == usize::MAX {
            let since = self.pattern.places;
            self.pattern.places += 1;
            let begin = self.push(Step::Jump(0))?;
            self.push(Step::Save(since))?;
            body(self)?;
            let leave = self.push(Step::Jump(0))?;
            self.push(Step::Jump(begin))?;
            let end = self.here();
            self.pattern.steps[leave] = Step::LeaveIfEmpty { since, end };
            self.pattern.steps[begin] = fork(begin + 1, end);
            return Ok(());
        }
        let mut forks = Vec::new();
        for _ in least..most {
            forks.push(self.push(Step::Jump(0))?);
            body(self)?;
        }
        let end = self.here();
        forks.into_iter().for_each(|at| self.pattern.steps[at] = fork(at + 1, end));
        Ok(())
    }
}

fn last_line(error: &impl ToString) -> String {
    error.to_string().lines().last().unwrap_or_default().trim_start_matches("error: ").to_string()
}

fn place(assertion: &Assertion) -> Result<Place, String> {
    Ok(match assertion {
        Assertion::StartText => Place::Begin,
        Assertion::EndText => Place::End,
        Assertion::EndTextIgnoreTrailingNewlines { crlf: false } => Place::LastLine,
        Assertion::StartLine { crlf: false } => Place::LineBegin,
        Assertion::EndLine { crlf: false } => Place::LineEnd,
        Assertion::LeftWordBoundary => Place::Word(Some(false), Some(true)),
        Assertion::LeftWordHalfBoundary => Place::Word(Some(false), None),
        Assertion::RightWordBoundary => Place::Word(Some(true), Some(false)),
        Assertion::RightWordHalfBoundary => Place::Word(None, Some(false)),
        Assertion::WordBoundary => Place::Edge(true),
        Assertion::NotWordBoundary => Place::Edge(false),
        Assertion::EndTextIgnoreTrailingNewlines { crlf: true }
        | Assertion::StartLine { crlf: true }
        | Assertion::EndLine { crlf: true } => return unsupported("the flag `R`"),
    })
}

/// How many characters an expression in a look behind matches.
fn lengths(expr: &Expr) -> Result<Range<usize>, String> {
    let (least, most) = edges(expr)?;
    match most <= MOST_BEHIND {
        true => Ok(least..most + 1),
        false => unsupported(&format!("more than {MOST_BEHIND} characters in a look behind")),
    }
}

fn edges(expr: &Expr) -> Result<(usize, usize), String> {
    Ok(match expr {
        Expr::Empty | Expr::Assertion(_) | Expr::LookAround(..) => (0, 0),
        Expr::Any { .. } | Expr::Delegate { .. } => (1, 1),
        Expr::Literal { val, .. } => (val.chars().count(), val.chars().count()),
        Expr::Group(inner) => edges(inner)?,
        Expr::AtomicGroup(inner) => edges(inner)?,
        Expr::Concat(all) => all.iter().try_fold((0usize, 0usize), |(least, most), one| {
            let (a, z) = edges(one)?;
            Ok::<_, String>((least.saturating_add(a), most.saturating_add(z)))
        })?,
        Expr::Alt(all) => all.iter().try_fold((usize::MAX, 0), |(least, most), one| {
            let (a, z) = edges(one)?;
            Ok::<_, String>((least.min(a), most.max(z)))
        })?,
        Expr::Repeat { child, lo, hi, .. } => {
            let (a, z) = edges(child)?;
            (a.saturating_mul(*lo), z.saturating_mul(*hi))
        }
        _ => return unsupported("such a look behind"),
    })
}
