//! `attnc fmt`, `attnc fix`, `attnc lsp`: commands for writing programs.
//!
//! In: programs. Out: the same files, formatted or fixed, each written whole or not at all; with
//! `--check` what would change, as a diff. A program with syntax errors is not formatted, and a fix
//! after which a program has more errors is not made.

use super::edits;
use super::session::{CommandError, Session, show};
use crate::cli::{FixOptions, FmtOptions, MessageOptions, ProgramOptions};
use crate::diagnostics::codes::driver as codes;
use crate::diagnostics::{Diagnostic, Diagnostics, Severity, apply_fixes};
use crate::format;
use crate::lsp::Compiler;
use crate::passes;
use crate::source::FileId;
use std::path::{Path, PathBuf};

/// The maximum number of times that fixes are applied to one program: a fix may reveal an error.
const MAX_ROUNDS: usize = 20;

/// `attnc fmt FILE..`
pub fn fmt(options: &FmtOptions) -> Result<(), CommandError> {
    let mut s = Session::new(&options.messages);
    let mut result = Ok(());
    for path in &options.files {
        let each = programs(&mut s, path).map_err(|failure| s.finish(Err(failure)).err().unwrap_or(failure));
        let each = each.and_then(|paths| {
            let mut formatted = Ok(());
            for path in &paths {
                let file = match s.read(path) {
                    Ok(file) => format_file(&mut s, file, path, options.check),
                    Err(failure) => Err(failure),
                };
                formatted = worse(formatted, s.finish(file));
            }
            formatted
        });
        result = worse(result, each);
    }
    result
}

fn format_file(s: &mut Session, file: FileId, path: &Path, check: bool) -> Result<(), CommandError> {
    let text = s.text(file);
    let mut found = Diagnostics::new();
    let formatted = format::format(file, &text, &mut found);
    s.diagnostics.append(found);
    match formatted {
        Some(formatted) => write(s, path, &text, &formatted, check),
        None => Err(CommandError::Program),
    }
}

/// A program, or all programs in a folder and its folders.
fn programs(s: &mut Session, path: &Path) -> Result<Vec<PathBuf>, CommandError> {
    if !path.is_dir() {
        return Ok(vec![path.to_path_buf()]);
    }
    let unreadable = |error: std::io::Error| {
        let why = super::session::reason(&error);
        Diagnostic::error(codes::UNREADABLE, format!("cannot read `{}`: {why}", path.display()))
    };
    let mut found = Vec::new();
    let entries = std::fs::read_dir(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let mut entries = entries.map_err(|error| s.fail(unreadable(error)))?;
    entries.sort_by_key(std::fs::DirEntry::file_name);
    for entry in entries {
        let kind = entry.file_type().map_err(|error| s.fail(unreadable(error)))?;
        let path = entry.path();
        if kind.is_dir() {
            found.extend(programs(s, &path)?);
        } else if kind.is_file() && path.extension().is_some_and(|extension| extension == "attn") {
            found.push(path);
        }
    }
    Ok(found)
}

/// `attnc fix FILE..`
pub fn fix(options: &FixOptions) -> Result<(), CommandError> {
    let mut s = Session::new(&options.messages);
    let mut fixed = Ok(());
    for path in &options.files {
        let result = fix_file(&mut s, path, options);
        fixed = worse(fixed, s.finish(result));
    }
    fixed
}

fn fix_file(s: &mut Session, path: &Path, options: &FixOptions) -> Result<(), CommandError> {
    let file = s.read(path)?;
    let text = s.text(file);
    let (better, left) = fixed(path, &text, &options.messages);
    s.sources = left.sources;
    s.diagnostics.append(left.diagnostics);
    let written = write(s, path, &text, &better, options.check);
    worse(written, s.stop_on_errors())
}

/// A program to which all suggested fixes were applied, as often as there are some; and a session
/// with the result and what is left to report.
pub fn fixed(path: &Path, text: &str, messages: &MessageOptions) -> (String, Session) {
    let check = |text: &str| {
        let mut s = Session::new(messages);
        let file = s.sources.add(path.display().to_string(), text);
        // The result is in the diagnostics.
        let _ = super::check_file(&mut s, file, path, &ProgramOptions::default());
        s
    };
    let errors = |s: &Session| s.diagnostics.iter().filter(|d| d.severity == Severity::Error).count();
    let mut best = text.to_string();
    let mut s = check(&best);
    for _ in 0..MAX_ROUNDS {
        let (next, changes) = apply_fixes(&best, FileId(0), s.diagnostics.iter());
        if changes == 0 {
            break;
        }
        let after = check(&next);
        if errors(&after) > errors(&s) {
            break;
        }
        (best, s) = (next, after);
    }
    (best, s)
}

/// `attnc lsp`
pub fn lsp() -> Result<(), CommandError> {
    let input = std::io::BufReader::new(std::io::stdin());
    match crate::lsp::serve(input, std::io::stdout().lock(), Compiler { remarks, report }) {
        Ok(true) => Ok(()),
        // The protocol demands a failure if a client leaves without `shutdown`.
        Ok(false) => Err(CommandError::Program),
        Err(_) => Err(CommandError::BrokenPipe),
    }
}

/// Writes a program and its report, which another process makes, into a folder.
fn report(folder: &Path, name: &str, text: &str, line: usize) -> Option<PathBuf> {
    let (program, page) = (folder.join(format!("{name}.attn")), folder.join(format!("{name}.html")));
    std::fs::write(&program, text).ok()?;
    let mut command = std::process::Command::new(std::env::current_exe().ok()?);
    command.current_dir(folder).arg(format!("./{name}.attn")).arg(format!("--emit=html={name}.html"));
    // A program with errors has a report too. Stdout is the connection to the editor.
    command.output().ok()?;
    let html = std::fs::read_to_string(&page).ok()?;
    std::fs::write(&page, html.replacen("<html ", &format!("<html data-line=\"{line}\" "), 1)).ok()?;
    Some(page)
}

/// The remarks of the passes about a program, for the language server.
fn remarks(text: &str) -> Vec<crate::lsp::Remark> {
    let mut s = Session::for_text();
    let file = s.sources.add("program.attn", text);
    let (bindings, options) = (ProgramOptions::default(), passes::Options::default());
    let all = edits::remarks(&mut s, file, &bindings, &options).unwrap_or_default();
    let mut proposals = edits::proposals(&s, file, &bindings, &options, &all);
    let remark = |(n, remark): (usize, &passes::Remark)| {
        let source = s.sources.get(file).filter(|_| remark.loc.file == 0)?;
        Some(crate::lsp::Remark {
            at: source.offset(remark.loc.line, remark.loc.column)?,
            pass: remark.pass,
            missed: match remark.outcome {
                passes::Outcome::Done => None,
                passes::Outcome::Missed(condition) => Some(condition.name()),
            },
            message: remark.message.clone(),
            edit: proposals.remove(&n),
        })
    };
    all.iter().enumerate().filter_map(remark).collect()
}

/// Writes a program in place if it has changed; with `check`, shows the difference and fails.
fn write(s: &mut Session, path: &Path, old: &str, new: &str, check: bool) -> Result<(), CommandError> {
    if check {
        if old == new {
            return Ok(());
        }
        let name = path.display().to_string();
        let diff = similar::TextDiff::from_lines(old, new);
        let diff = diff.unified_diff().context_radius(2).header(&name, &name).to_string();
        return show(&diff).and(Err(CommandError::Program));
    }
    if path == Path::new("-") {
        return s.write(path, new.as_bytes());
    }
    if old == new { Ok(()) } else { s.write_now(path, new.as_bytes()) }
}

/// The first failure.
fn worse(before: Result<(), CommandError>, after: Result<(), CommandError>) -> Result<(), CommandError> {
    before.and(after)
}
