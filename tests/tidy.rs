//! Is the project in order? Every module says what it is, every snapshot has its test, no file grows without a reason.

use std::path::{Path, PathBuf};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// The most lines of a file.
const LONGEST: usize = 700;

/// All files below a folder with one of these endings, sorted, as paths from the root.
fn files(folder: &str, endings: &[&str]) -> Vec<String> {
    let mut found = Vec::new();
    let mut open: Vec<PathBuf> = vec![Path::new(ROOT).join(folder)];
    while let Some(folder) = open.pop() {
        for entry in std::fs::read_dir(&folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                open.push(path);
            } else if path.extension().is_some_and(|e| endings.iter().any(|ending| e == *ending)) {
                found.push(path.strip_prefix(ROOT).expect("below the root").to_string_lossy().into_owned());
            }
        }
    }
    found.sort();
    found
}

fn read(path: &str) -> String {
    std::fs::read_to_string(Path::new(ROOT).join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

#[test]
fn every_module_says_what_it_is() {
    for path in files("src", &["rs"]).into_iter().chain(files("tests", &["rs"])) {
        let text = read(&path);
        let first = text.lines().next().unwrap_or_default();
        assert!(first.starts_with("//! ") && first.len() > 15, "{path} does not open with what it is: {first}");
    }
}

#[test]
fn no_file_is_long() {
    for path in files("src", &["rs", "attn", "py"]).into_iter().chain(files("tests", &["rs"])) {
        let lines = read(&path).lines().count();
        assert!(lines <= LONGEST, "{path} has {lines} lines; part it");
    }
}

/// A snapshot names the file whose test wrote it; there, or among the names that tests are made for, its name stands.
#[test]
fn every_snapshot_has_its_test() {
    let data: String = files("tests", &["txt", "air", "tir", "attn"]).iter().map(|path| read(path)).collect();
    let passes: Vec<&str> = attnc::passes::PASSES.iter().map(|pass| pass.name).collect();
    let examples = files("examples", &["attn"]);
    for path in files("snapshots", &["snap"]) {
        let text = read(&path);
        let source = text.lines().find_map(|line| line.strip_prefix("source: ")).unwrap_or_default();
        assert!(!source.is_empty() && Path::new(ROOT).join(source).is_file(), "{path} comes from `{source}`");
        let name = Path::new(&path).file_stem().expect("a name").to_string_lossy().into_owned();
        let short = name.split_once('_').map_or(name.as_str(), |(_, rest)| rest);
        let source = read(source);
        let named = [name.as_str(), short].iter().any(|name| source.contains(name) || data.contains(name));
        let made_for = passes.contains(&name.as_str())
            || attnc::diagnostics::codes::find(&name).is_some()
            || examples.iter().any(|example| [&name, short].iter().any(|n| example.ends_with(&format!("/{n}.attn"))));
        assert!(named || made_for, "{path}: no test makes it");
    }
}

/// Nothing is left undone, and nothing is let pass that the lints name.
#[test]
fn nothing_is_left_for_later() {
    let marks =
        ["TO".to_string() + "DO", "FIX".to_string() + "ME", "XX".to_string() + "X", "#[ign".to_string() + "ore"];
    for path in files("src", &["rs", "attn", "py", "h"]).into_iter().chain(files("tests", &["rs", "py"])) {
        let text = read(&path);
        for mark in &marks {
            assert!(!text.contains(mark.as_str()), "{path} has `{mark}`");
        }
    }
}

/// Examples are numbered in the order of learning, and each says what is new.
#[test]
fn examples_are_numbered() {
    let examples = files("examples", &["attn"]);
    assert!(examples.len() >= 8);
    for (i, path) in examples.iter().enumerate() {
        assert!(path.starts_with(&format!("examples/{:02}_", i + 1)), "{path}");
        assert!(read(path).starts_with("// New here: "), "{path} does not say what is new");
    }
}
