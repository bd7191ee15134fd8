//! What does the type checker say about wrong programs? One snapshot for each program, with the program in it.

use attnc::diagnostics::{Diagnostics, codes, render_all};
use attnc::random::Random;
use attnc::source::SourceMap;
use attnc::syntax;
use attnc::types;

use crate::explain;

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
    snapshot_of(name, program, &messages(program));
}

fn snapshot_of(name: &str, program: &str, messages: &str) {
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path(concat!(env!("CARGO_MANIFEST_DIR"), "/snapshots/types"));
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    let shown = format!("{}\n\n---\n\n{}", program.trim(), messages.trim());
    settings.bind(|| insta::assert_snapshot!(name, shown));
}

#[test]
fn every_code_has_its_message() {
    for entry in codes::all() {
        let code = entry.code.as_str();
        if let Some(example) = entry.example
            && ("E0200".."E0700").contains(&code)
        {
            snapshot_of(code, example.failing, &explain::messages(example.failing).1);
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

/// Words of a program: names, numbers, strings, and single characters of all else.
fn words(text: &str) -> Vec<&str> {
    let mut words = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let name = |c: char| c.is_alphanumeric() || c == '_';
        let len = if name(first) { rest.find(|c| !name(c)).unwrap_or(rest.len()) } else { first.len_utf8() };
        words.push(&rest[..len]);
        rest = &rest[len..];
    }
    words
}

#[test]
fn mangled_programs_are_no_reason_to_panic() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/examples");
    let mut texts: Vec<String> = std::fs::read_dir(folder)
        .expect("the examples")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "attn"))
        .map(|path| std::fs::read_to_string(path).expect("an example"))
        .collect();
    texts.sort();
    texts.extend(PROGRAMS.split("=== ").skip(1).filter_map(|part| part.split_once('\n')).map(|(_, p)| p.to_string()));
    let all: Vec<Vec<&str>> = texts.iter().map(|text| words(text)).collect();
    let mut random = Random::new(7);
    for turn in 0..300 {
        let mut program = all[turn % all.len()].clone();
        for _ in 0..1 + random.below(4) {
            let at = random.below(program.len());
            let other = &all[random.below(all.len())];
            let word = other[random.below(other.len())];
            match random.below(4) {
                0 => drop(program.remove(at)),
                1 => program.insert(at, word),
                2 => program[at] = word,
                _ => {
                    let to = random.below(program.len());
                    program.swap(at, to);
                }
            }
        }
        messages(&program.concat());
    }
}
