//! `attnc fix` over every program whose messages a snapshot shows: each suggested edit removes its error, and all of them
//! together never make a program worse.

use attnc::cli::{Command, CommandLine, MessageOptions};
use attnc::diagnostics::{Code, Diagnostic, Diagnostics, Severity, apply_fixes};
use attnc::driver::fixed;
use attnc::source::{FileId, SourceMap};
use attnc::{syntax, types};
use std::path::Path;

/// The messages about a program.
fn messages(text: &str) -> Diagnostics {
    let mut sources = SourceMap::new();
    let mut diagnostics = Diagnostics::new();
    let id = sources.add("m.attn", text);
    let file = syntax::parse(id, text, &mut diagnostics);
    types::check(&file, &mut sources, &mut diagnostics);
    diagnostics
}

/// The programs of the snapshots of messages, by name.
fn programs() -> Vec<(String, String)> {
    let mut programs = Vec::new();
    for folder in ["types", "syntax"] {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("snapshots").join(folder);
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let text = std::fs::read_to_string(&path).unwrap();
            let body = text.splitn(3, "---\n").nth(2).unwrap_or_default();
            let program = body.split("\n---\n").next().unwrap_or_default();
            programs.push((path.display().to_string(), program.to_string()));
        }
    }
    programs.sort();
    programs
}

fn errors(diagnostics: &Diagnostics) -> usize {
    diagnostics.iter().filter(|d| d.severity == Severity::Error).count()
}

#[test]
fn each_fix_removes_its_error() {
    let mut fixes = 0;
    let mut wrong = Vec::new();
    for (name, text) in programs() {
        let before = messages(&text);
        let same = |all: &Diagnostics, one: &Diagnostic| {
            let key = |d: &Diagnostic| -> (Code, String) { (d.code, d.message.clone()) };
            all.iter().filter(|d| key(d) == key(one)).count()
        };
        for diagnostic in before.iter().filter(|d| !d.fixes.is_empty()) {
            let (changed, _) = apply_fixes(&text, FileId(0), [diagnostic]);
            let after = messages(&changed);
            fixes += 1;
            if same(&after, diagnostic) >= same(&before, diagnostic) {
                wrong.push(format!("{name}: {}\n{text}\n{changed}", diagnostic.message));
            }
        }
    }
    println!("{fixes} fixes");
    assert!(fixes > 20, "{fixes}");
    assert!(wrong.is_empty(), "{} of {fixes}\n{}", wrong.len(), wrong.join("\n\n"));
}

fn options() -> MessageOptions {
    let line = CommandLine::read(["attnc", "fix", "m.attn"].map(Into::into)).expect("a command line");
    let Command::Fix(options) = line.command else { panic!("another command") };
    options.messages
}

#[test]
fn fixing_never_makes_a_program_worse() {
    let options = options();
    let (mut better, mut whole) = (0, 0);
    for (name, text) in programs() {
        let before = errors(&messages(&text));
        let (changed, left) = fixed(Path::new("m.attn"), &text, &options);
        let after = errors(&messages(&changed));
        assert!(after <= before, "{name}: {before} errors, then {after}\n{text}\n{changed}");
        assert!(changed != text || left.diagnostics.iter().all(|d| d.fixes.is_empty()) || before > 0, "{name}");
        better += usize::from(after < before);
        whole += usize::from(before > 0 && after == 0);
        // Fixed is fixed.
        assert_eq!(fixed(Path::new("m.attn"), &changed, &options).0, changed, "{name}");
    }
    println!("{better} programs have fewer errors, {whole} have none");
    assert!(better > 30 && whole > 5, "{better} {whole}");
}
