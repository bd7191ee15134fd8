//! Compiles a regular expression.
//!
//! In: a pattern, parsed by `fancy-regex`, with classes parsed by `regex-syntax`. Out: a
//! [`Pattern`], or the name of an unsupported construct. As in Oniguruma, which the `tokenizers`
//! library uses, `^` and `$` match at line boundaries.

use super::{Assert, Inst, Pattern, Set};
use crate::tokenizer::budget::Budget;
use fancy_regex::{Assertion, Expr, LookAround};
use regex_syntax::hir::{Class, HirKind};
use std::collections::HashMap;
use std::ops::Range;

/// Maximum length of a pattern in bytes, number of instructions, and number of characters in a
/// lookbehind.
const MAX_PATTERN: usize = 1 << 14;
const MAX_INSTRUCTIONS: usize = 1 << 14;
const MAX_BEHIND: usize = 256;
/// `fancy_regex::internal::FLAG_UNICODE` and `FLAG_MULTI`.
const FLAGS: u32 = 1 << 5 | 1 << 1;

struct Compiler<'b> {
    pattern: Pattern,
    /// Sets by the source of their class and case-insensitivity.
    known: HashMap<(String, bool), usize>,
    /// The first slot of each group that has a back-reference.
    groups: HashMap<usize, usize>,
    seen: usize,
    budget: &'b Budget,
}

impl Pattern {
    /// Compiles a pattern.
    ///
    /// # Errors
    /// It cannot be parsed, is too large, or has an unsupported construct.
    pub(in crate::tokenizer) fn new(text: &str, budget: &Budget) -> Result<Pattern, String> {
        if text.len() > MAX_PATTERN {
            return Err(format!("it is longer than {MAX_PATTERN} bytes, the limit"));
        }
        budget.work(64 * text.len())?;
        if has_flag_of_lines(text) {
            return Err("it has the flag `m` or `s`, which is not supported".to_string());
        }
        let tree = Expr::parse_tree_with_flags(text, FLAGS).map_err(|error| format!("it cannot be read: {error}"))?;
        let pattern = Pattern { code: Vec::new(), sets: Vec::new(), word: usize::MAX, slots: 0 };
        let mut compiler = Compiler { pattern, known: HashMap::new(), groups: HashMap::new(), seen: 0, budget };
        for group in tree.backrefs.iter() {
            compiler.groups.insert(group, compiler.pattern.slots);
            compiler.pattern.slots += 2;
        }
        compiler.expr(&tree.expr)?;
        compiler.push(Inst::Match)?;
        Ok(compiler.pattern)
    }

    /// Compiles a pattern that matches a literal text.
    ///
    /// # Errors
    /// It is too long.
    pub(in crate::tokenizer) fn of_text(text: &str, budget: &Budget) -> Result<Pattern, String> {
        Pattern::new(&fancy_regex::escape(text), budget)
    }
}

/// Does the pattern set an inline flag that Oniguruma lacks, or interprets differently?
fn has_flag_of_lines(text: &str) -> bool {
    text.split("(?").skip(1).any(|rest| {
        let flags = rest.split([':', ')']).next().unwrap_or_default();
        flags.bytes().all(|b| b.is_ascii_lowercase() || b == b'-') && flags.contains(['m', 's'])
    })
}

/// The error for an unsupported construct.
fn unsupported<T>(what: &str) -> Result<T, String> {
    Err(format!("it has {what}, which is not supported"))
}

impl Compiler<'_> {
    fn push(&mut self, inst: Inst) -> Result<usize, String> {
        if self.pattern.code.len() >= MAX_INSTRUCTIONS {
            return Err(format!("it has more than {MAX_INSTRUCTIONS} instructions, the limit"));
        }
        self.budget.keep(1)?;
        self.pattern.code.push(inst);
        Ok(self.pattern.code.len() - 1)
    }

    fn here(&self) -> usize {
        self.pattern.code.len()
    }

    /// The index of the set of a class.
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

    /// The set of an expression that matches exactly one character.
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
            return self.push(Inst::One(set)).map(|_| ());
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
                let slots = self.groups.get(&self.seen).copied();
                self.save(slots)?;
                self.expr(inner)?;
                self.save(slots.map(|begin| begin + 1))?;
            }
            Expr::LookAround(inner, kind) => {
                let (is_behind, wanted) = match kind {
                    LookAround::LookAhead => (false, true),
                    LookAround::LookAheadNeg => (false, false),
                    LookAround::LookBehind => (true, true),
                    LookAround::LookBehindNeg => (true, false),
                };
                let behind = if is_behind { Some(lengths(inner)?) } else { None };
                self.part(inner, |end| Inst::Look { behind, wanted, end })?;
            }
            Expr::AtomicGroup(inner) => self.part(inner, |end| Inst::Atomic { end })?,
            Expr::Repeat { child, lo, hi, greedy } => self.repeat(child, *lo, *hi, *greedy)?,
            Expr::Backref { group, casei } => {
                let Some(group) = self.groups.get(group).copied() else {
                    return unsupported("a reference to a group that does not exist");
                };
                self.push(Inst::BackReference { group, any_case: *casei })?;
            }
            Expr::Assertion(assertion) => {
                let assert = assert(assertion)?;
                if matches!(assert, Assert::Word(..) | Assert::Boundary(_)) {
                    self.pattern.word = self.set(r"\w", false)?;
                }
                self.push(Inst::At(assert))?;
            }
            other => {
                let shown = format!("{other:?}");
                let name = shown.split(|c: char| !c.is_ascii_alphabetic()).next().unwrap_or_default();
                return unsupported(&format!("`{name}`"));
            }
        }
        Ok(())
    }

    fn save(&mut self, slot: Option<usize>) -> Result<(), String> {
        slot.map_or(Ok(()), |slot| self.push(Inst::Save(slot)).map(|_| ()))
    }

    fn alternatives(&mut self, all: &[Expr]) -> Result<(), String> {
        let mut ends = Vec::new();
        for (at, one) in all.iter().enumerate() {
            if at + 1 == all.len() {
                self.expr(one)?;
                continue;
            }
            let fork = self.push(Inst::Jump(0))?;
            self.expr(one)?;
            ends.push(self.push(Inst::Jump(0))?);
            self.pattern.code[fork] = Inst::Fork(fork + 1, self.here());
        }
        let here = self.here();
        ends.into_iter().for_each(|end| self.pattern.code[end] = Inst::Jump(here));
        Ok(())
    }

    /// An instruction with a body of its own.
    fn part(&mut self, inner: &Expr, made: impl FnOnce(usize) -> Inst) -> Result<(), String> {
        let at = self.push(Inst::Match)?;
        self.expr(inner)?;
        self.push(Inst::Match)?;
        self.pattern.code[at] = made(self.here());
        Ok(())
    }

    fn repeat(&mut self, child: &Expr, least: usize, most: usize, greedy: bool) -> Result<(), String> {
        if let Some(set) = self.single(child)?.filter(|_| greedy) {
            return self.push(Inst::Run { set, least, most }).map(|_| ());
        }
        // All copies of the body have the same groups.
        let groups = self.seen;
        let body = |compiler: &mut Self| {
            compiler.seen = groups;
            compiler.expr(child)
        };
        let fork = |to: usize, end: usize| if greedy { Inst::Fork(to, end) } else { Inst::Fork(end, to) };
        if most == 0 {
            // The body is skipped, but its groups are numbered.
            let begin = self.push(Inst::Jump(0))?;
            body(self)?;
            self.pattern.code[begin] = Inst::Jump(self.here());
        }
        for _ in 0..least {
            let begin = self.here();
            body(self)?;
            if self.here() == begin {
                return Ok(());
            }
        }
        if most == usize::MAX {
            let since = self.pattern.slots;
            self.pattern.slots += 1;
            let begin = self.push(Inst::Jump(0))?;
            self.push(Inst::Save(since))?;
            body(self)?;
            let leave = self.push(Inst::Jump(0))?;
            self.push(Inst::Jump(begin))?;
            let end = self.here();
            self.pattern.code[leave] = Inst::LeaveIfEmpty { since, end };
            self.pattern.code[begin] = fork(begin + 1, end);
            return Ok(());
        }
        let mut forks = Vec::new();
        for _ in least..most {
            forks.push(self.push(Inst::Jump(0))?);
            body(self)?;
        }
        let end = self.here();
        forks.into_iter().for_each(|at| self.pattern.code[at] = fork(at + 1, end));
        Ok(())
    }
}

fn last_line(error: &impl ToString) -> String {
    error.to_string().lines().last().unwrap_or_default().trim_start_matches("error: ").to_string()
}

fn assert(assertion: &Assertion) -> Result<Assert, String> {
    Ok(match assertion {
        Assertion::StartText => Assert::Begin,
        Assertion::EndText => Assert::End,
        Assertion::EndTextIgnoreTrailingNewlines { crlf: false } => Assert::LastLine,
        Assertion::StartLine { crlf: false } => Assert::LineBegin,
        Assertion::EndLine { crlf: false } => Assert::LineEnd,
        Assertion::LeftWordBoundary => Assert::Word(Some(false), Some(true)),
        Assertion::LeftWordHalfBoundary => Assert::Word(Some(false), None),
        Assertion::RightWordBoundary => Assert::Word(Some(true), Some(false)),
        Assertion::RightWordHalfBoundary => Assert::Word(None, Some(false)),
        Assertion::WordBoundary => Assert::Boundary(true),
        Assertion::NotWordBoundary => Assert::Boundary(false),
        Assertion::EndTextIgnoreTrailingNewlines { crlf: true }
        | Assertion::StartLine { crlf: true }
        | Assertion::EndLine { crlf: true } => return unsupported("the flag `R`"),
    })
}

/// The possible lengths, in characters, of a lookbehind.
fn lengths(expr: &Expr) -> Result<Range<usize>, String> {
    let (least, most) = edges(expr)?;
    match most <= MAX_BEHIND {
        true => Ok(least..most + 1),
        false => unsupported(&format!("more than {MAX_BEHIND} characters in a lookbehind")),
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
        _ => return unsupported("this kind of lookbehind"),
    })
}
