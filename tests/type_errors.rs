//! What does the type checker say about wrong programs? One snapshot for each program, with the program in it.

use attnc::diagnostics::{Diagnostics, codes, render_all};
use attnc::syntax::{self, span::SourceMap};
use attnc::types;

/// The messages about a program, as text.
fn messages(text: &str) -> String {
    let mut sources = SourceMap::new();
    let mut diagnostics = Diagnostics::new();
    let id = sources.add("example.attn", text);
    let file = syntax::parse(id, text, &mut diagnostics);
    types::check(&file, &mut sources, &mut diagnostics);
    render_all(&diagnostics, &sources, false)
}

fn snapshot(name: &str, program: &str) {
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path(concat!(env!("CARGO_MANIFEST_DIR"), "/snapshots/types"));
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    let shown = format!("{}\n\n---\n\n{}", program.trim(), messages(program).trim());
    settings.bind(|| insta::assert_snapshot!(name, shown));
}

#[test]
fn every_code_has_its_message() {
    for entry in codes::all() {
        let code = entry.code.as_str();
        if let Some(example) = entry.example
            && ("E0200".."E0700").contains(&code)
        {
            snapshot(code, example.failing);
        }
    }
}

/// Programs by name, `=== name` before each.
const PROGRAMS: &str = include_str!("type_errors.txt");

#[test]
fn wrong_programs_are_explained() {
    let mut seen = std::collections::BTreeSet::new();
    for part in PROGRAMS.split("=== ").skip(1) {
        let (name, program) = part.split_once('\n').expect("a name and a program");
        assert!(seen.insert(name), "{name} stands twice");
        snapshot(name, program);
    }
}
