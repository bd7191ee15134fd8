//! The edits that missed remarks propose, as changes of the text that were tried.
//!
//! In: a program with its remarks. Out: for a remark, the change of the text after which the
//! rewrite is made. An edit names expressions by location and operation; it is written with the
//! text of their operands, and the changed program goes through front end and passes. An edit
//! without a counterpart in the text, after which the program is invalid, or which only moves the
//! problem is not shown.

use super::session::{CommandError, Session, tell};
use super::stages;
use crate::cli::ProgramOptions;
use crate::diagnostics::{Diagnostics, Fix, Suggestion, replaced};
use crate::ir;
use crate::observe::Watch;
use crate::passes::{Edit, Options, Outcome, Remark, Written, place_of};
use crate::source::{FileId, Loc, SourceFile, Span};
use crate::syntax::ast::Expr;
use crate::syntax::find::{Finder, Occurrence, is_atom, operand};
use crate::syntax::lexer::lex;
use crate::syntax::token::Token;
use crate::types::typed::LayerKind;
use std::collections::{BTreeMap, BTreeSet};

/// The maximum number of edits that are tried for a program.
const MAX_TRIED: usize = 64;

/// The remarks of the passes over a program and each of its models; an error if it has errors.
pub(super) fn remarks(
    s: &mut Session,
    file: FileId,
    bindings: &ProgramOptions,
    options: &Options,
) -> Result<Vec<Remark>, CommandError> {
    let mut tree = stages::parse(s, file);
    let program = stages::check(s, &mut tree, bindings);
    s.stop_on_errors()?;
    let models = program.models().filter(|(_, layer)| layer.module.is_none() && layer.kind == LayerKind::Model);
    let names = models.map(|(_, layer)| Some(layer.name.clone()));
    let names: Vec<Option<String>> =
        if bindings.entry.is_some() { vec![bindings.entry.clone()] } else { names.collect() };
    let mut all = Vec::new();
    for entry in names {
        let mut module: ir::Module = stages::lower(s, &program, &ProgramOptions { entry, ..bindings.clone() })?;
        all.extend(stages::silently(&mut module, options).map_err(|_| CommandError::Program)?);
    }
    Ok(all)
}

/// The proposals for the remarks of a program, by their number.
pub(super) fn proposals(
    s: &Session,
    file: FileId,
    bindings: &ProgramOptions,
    options: &Options,
    remarks: &[Remark],
) -> BTreeMap<usize, Suggestion> {
    let options = &Options { watch: Watch::default(), stats: false, remarks: false, ..options.clone() };
    let mut found: BTreeMap<usize, Suggestion> = BTreeMap::new();
    let Some(source) = s.sources.get(file).filter(|_| remarks.iter().any(|r| !r.edits.is_empty())) else {
        return found;
    };
    let tree = crate::syntax::parse(file, source.text(), &mut Diagnostics::new());
    let program = Text { source, file, finder: Finder::new(&tree) };
    let missed = |list: &[Remark], like: &Remark| {
        let is_missed = |r: &&Remark| r.outcome != Outcome::Done;
        let all = list.iter().filter(is_missed).count();
        (list.iter().filter(|r| (r.pass, r.outcome) == (like.pass, like.outcome)).count(), all)
    };
    let done =
        |list: &[Remark], pass: &str| list.iter().filter(|r| r.outcome == Outcome::Done && r.pass == pass).count();
    let mut tried: Vec<(Vec<Fix>, Option<Vec<Remark>>)> = Vec::new();
    for (n, remark) in remarks.iter().enumerate() {
        for proposal in remark.edits.iter().flat_map(|edit| program.proposals(edit)) {
            let known = tried.iter().position(|(fixes, _)| *fixes == proposal.fixes);
            let at = known.unwrap_or(tried.len());
            if at == tried.len() {
                if at == MAX_TRIED {
                    return found;
                }
                let mut changed = Session::for_text();
                let text = replaced(source.text(), &proposal.fixes);
                let id = changed.sources.add(source.name(), text);
                tried.push((proposal.fixes.clone(), self::remarks(&mut changed, id, bindings, options).ok()));
            }
            let Some(after) = tried.get(at).and_then(|(_, after)| after.as_deref()) else { continue };
            let (before, now) = (missed(remarks, remark), missed(after, remark));
            // No fusion is lost.
            let keeps = ["fuse-attention", "fuse-chain"].iter().all(|pass| done(after, pass) >= done(remarks, pass));
            if keeps && now.0 < before.0 && now.1 < before.1 {
                found.insert(n, proposal);
                break;
            }
        }
    }
    found
}

/// Prints proposals, each once.
pub(super) fn tell_of(module: &ir::Module, remarks: &[Remark], found: &BTreeMap<usize, Suggestion>) {
    let line = |(n, proposal): (&usize, &Suggestion)| {
        let remark = remarks.get(*n)?;
        Some(format!("help: {}: {}: {}\n", place_of(remark.loc, module), remark.pass, proposal.title))
    };
    let lines: BTreeSet<String> = found.iter().filter_map(line).collect();
    tell(&lines.into_iter().collect::<String>());
}

/// A program whose expressions can be found.
struct Text<'a> {
    source: &'a SourceFile,
    file: FileId,
    finder: Finder<'a>,
}

impl<'a> Text<'a> {
    fn text(&self, span: Span) -> &'a str {
        self.source.text().get(span.range()).unwrap_or_default()
    }

    fn offset(&self, loc: Loc) -> Option<u32> {
        // Another file belongs to the standard library.
        if loc.file == 0 { self.source.offset(loc.line, loc.column) } else { None }
    }

    /// The changes that an edit may mean, the widest expression first.
    fn proposals(&self, edit: &Edit) -> Vec<Suggestion> {
        match edit {
            Edit::Replace { at, with, operands } => {
                let Some(offset) = self.offset(at.loc) else { return Vec::new() };
                let targets = self.finder.at(offset, at.op);
                targets.filter_map(|target| self.replacement(at, target, with, operands)).collect()
            }
            Edit::Remove(loc) => self.removal(*loc).into_iter().collect(),
            Edit::Swap(a, b) => self.exchange(*a, *b).into_iter().collect(),
        }
    }

    fn replacement(
        &self,
        at: &Written,
        target: Occurrence<'_>,
        with: &str,
        operands: &[(Written, usize)],
    ) -> Option<Suggestion> {
        let mut new = String::new();
        let mut rest = with;
        while let Some((before, (n, after))) =
            rest.split_once('{').and_then(|(before, rest)| Some((before, rest.split_once('}')?)))
        {
            new += before;
            let (n, is_bare) = n.strip_prefix('=').map_or((n, with == "{0}" && !target.is_operand), |n| (n, true));
            let (owner, index) = operands.get(n.parse::<usize>().ok()?)?;
            let within = if owner == at { target } else { self.finder.at(self.offset(owner.loc)?, owner.op).next()? };
            let operand =
                operand(within.expr, *index).filter(|operand| self.means_the_same(operand, within, target))?;
            let text = self.text(operand.span);
            let is_bare = is_bare || is_atom(operand) || text.starts_with('(');
            new += &if is_bare { text.to_string() } else { format!("({text})") };
            rest = after;
        }
        new += rest;
        if target.is_operand && (with.contains("} ") || with.contains(") ")) {
            new = format!("({new})");
        }
        let old = self.text(target.expr.span);
        let title = format!("write `{}` instead of `{}`", one_line(&new), one_line(old));
        Some(Suggestion { title, fixes: vec![Fix { span: target.expr.span, text: new }] })
    }

    /// Does an operand have the same value where it is written and at the target? Its variables
    /// must be bound once, unless it is part of the target.
    fn means_the_same(&self, operand: &Expr, within: Occurrence<'_>, target: Occurrence<'_>) -> bool {
        let (inner, outer) = (operand.span, target.expr.span);
        let is_inside = outer.start <= inner.start && inner.end <= outer.end;
        let lexemes = lex(self.file, self.text(inner), &mut Diagnostics::new());
        let is_fixed = |name: &str| self.finder.bindings(target.function, name) <= 1;
        is_inside
            || within.function == target.function
                && lexemes.iter().all(|one| !matches!(one.token, Token::Ident(name) if !is_fixed(name)))
    }

    /// Removes a statement, with its line if nothing else is on it.
    fn removal(&self, loc: Loc) -> Option<Suggestion> {
        let (stmt, _) = self.finder.statement(self.offset(loc)?)?;
        let (before, after) = self.source.text().split_at_checked(stmt.span.start as usize)?;
        let own = self.text(stmt.span);
        let indent = before.len() - before.trim_end_matches([' ', '\t']).len();
        let line = after.get(own.len()..).and_then(|rest| rest.split_inclusive('\n').next()).unwrap_or_default();
        let is_alone = before.trim_end_matches([' ', '\t']).ends_with('\n') && line.trim().is_empty();
        let (start, end) = if is_alone { (indent, line.len()) } else { (0, 0) };
        let span = Span { start: stmt.span.start - start as u32, end: stmt.span.end + end as u32, ..stmt.span };
        let title = format!("remove `{}`", one_line(own));
        Some(Suggestion { title, fixes: vec![Fix { span, text: String::new() }] })
    }

    /// Exchanges two statements of a block.
    fn exchange(&self, a: Loc, b: Loc) -> Option<Suggestion> {
        let (a, block) = self.finder.statement(self.offset(a)?)?;
        let (b, other) = self.finder.statement(self.offset(b)?)?;
        let (a_text, b_text) = (self.text(a.span), self.text(b.span));
        let title = format!("move `{}` before `{}`", one_line(b_text), one_line(a_text));
        let fix = |span: Span, text: &str| Fix { span, text: text.to_string() };
        (block == other && a.span != b.span)
            .then(|| Suggestion { title, fixes: vec![fix(a.span, b_text), fix(b.span, a_text)] })
    }
}

/// A text for a title: on one line, and not long.
fn one_line(text: &str) -> String {
    let mut line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if line.chars().count() > 60 {
        line = line.chars().take(57).chain("...".chars()).collect();
    }
    line
}
