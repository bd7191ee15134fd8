//! Does `attnc explain` tell the truth? Every failing example must give its code, every corrected one must compile.

use std::path::Path;

use attnc::cli::ProgramOptions;
use attnc::cli::{Colour, MessageFormat, MessageOptions};
use attnc::diagnostics::{Severity, codes, render_all};
use attnc::driver::{Session, check_file};

/// What `attnc check` says about a program: codes and their severities, and messages as text.
pub(crate) fn messages(program: &str) -> (Vec<(&'static str, Severity)>, String) {
    let mut session =
        Session::new(&MessageOptions { error_format: MessageFormat::Human, color: Colour::Never, verbose: false });
    let file = session.sources.add("example.attn", program);
    let path = Path::new("example.attn");
    let _ = check_file(&mut session, file, path, &ProgramOptions::default());
    let codes = session.diagnostics.iter().map(|diagnostic| (diagnostic.code.as_str(), diagnostic.severity)).collect();
    (codes, render_all(&session.diagnostics, &session.sources, false))
}

/// Codes of programs' texts are shown by programs; those of IR texts, files and calls have their own tests.
fn is_about_programs(code: &str) -> bool {
    ("E0100".."E0700").contains(&code)
}

#[test]
fn examples_do_what_their_code_says() {
    let mut wrong = String::new();
    for entry in codes::all().filter(|entry| is_about_programs(entry.code.as_str())) {
        let Some(example) = entry.example else { continue };
        let (found, text) = messages(example.failing);
        let code = entry.code.as_str();
        // A mistake in the syntax may leave a program that has others.
        let others =
            |(other, severity): &(&str, Severity)| *severity == Severity::Error && *other != code && code >= "E0200";
        if !found.iter().any(|(found, _)| *found == code) || found.iter().any(others) {
            wrong += &format!("the failing example of {code} does not give this code alone:\n{text}\n");
        }
        let (found, text) = messages(example.fixed);
        if !found.is_empty() {
            wrong += &format!("the corrected example of {} gives messages:\n{text}\n", entry.code);
        }
    }
    assert_eq!(wrong, "");
}

#[test]
fn every_code_tells_its_rule() {
    for entry in codes::all() {
        assert!(entry.rule.len() > 40, "{}", entry.code);
        assert!(!entry.title.is_empty() && !entry.title.ends_with('.'), "{}", entry.code);
        assert!(entry.rule.lines().all(|line| line.len() <= 120), "{}", entry.code);
    }
}
