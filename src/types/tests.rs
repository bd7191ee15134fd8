//! Whole programs through the checker.

use super::check;
use super::typed::Program;
use crate::diagnostics::{Diagnostics, Severity, codes, render_all};
use crate::syntax;
use crate::syntax::span::SourceMap;

/// Checks a text; its program, its diagnostics, and these as text.
fn checked(name: &str, text: &str) -> (Program, Diagnostics, String) {
    let mut sources = SourceMap::new();
    let mut diagnostics = Diagnostics::new();
    let id = sources.add(name, text);
    let file = syntax::parse(id, text, &mut diagnostics);
    let program = check(&file, &mut sources, &mut diagnostics);
    let shown = render_all(&diagnostics, &sources, false);
    (program, diagnostics, shown)
}

#[test]
fn the_standard_library_and_the_examples_check() {
    for module in super::modules::MODULES {
        let (_, _, shown) = checked(module.file, module.text);
        assert_eq!(shown, "", "{}", module.path);
    }
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/examples");
    let mut paths: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "attn"));
    paths.sort();
    for path in paths {
        let text = std::fs::read_to_string(&path).unwrap();
        let (program, _, shown) = checked("example.attn", &text);
        assert_eq!(shown, "", "{}", path.display());
        assert!(program.models().count() > 0);
    }
}

#[test]
fn explained_examples_fail_and_are_mended() {
    let mut wrong = String::new();
    for entry in codes::all() {
        let code = entry.code.as_str();
        let Some(example) = entry.example else { continue };
        if !("E0200".."E0700").contains(&code) {
            continue;
        }
        let (_, diagnostics, shown) = checked("example.attn", example.failing);
        let has = diagnostics.iter().any(|d| d.code == entry.code);
        if !has || diagnostics.iter().any(|d| d.severity == Severity::Error && d.code != entry.code) {
            wrong.push_str(&format!("{code}, failing, gives:\n{shown}\n"));
        }
        let (_, diagnostics, shown) = checked("example.attn", example.mended);
        if !diagnostics.is_empty() {
            wrong.push_str(&format!("{code}, mended, gives:\n{shown}\n"));
        }
    }
    assert_eq!(wrong, "");
}

/// Settings for snapshots that hold an input and an output.
fn snapshot(name: &str, input: &str, output: &str) {
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path(concat!(env!("CARGO_MANIFEST_DIR"), "/snapshots/types"));
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.bind(|| insta::assert_snapshot!(name, format!("{}\n---\n{}", input.trim_end(), output.trim_end())));
}

#[test]
fn typed_programs_as_text() {
    for name in ["02_self_attention", "08_gpt2"] {
        let path = format!("{}/examples/{name}.attn", env!("CARGO_MANIFEST_DIR"));
        let text = std::fs::read_to_string(path).unwrap();
        let (program, _, _) = checked("example.attn", &text);
        let shown = super::dump::dump(&program, crate::syntax::span::FileId(0));
        snapshot(&format!("dump_{name}"), &text, &shown);
    }
}
