//! Is the project in order? Every module says what it is and imports only what the map allows it, every snapshot has its
//! test, no file grows without a reason.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// The most lines of a file.
const LONGEST: usize = 700;

/// All files below a folder with one of these endings, sorted, as paths from the root.
pub(super) fn files(folder: &str, endings: &[&str]) -> Vec<String> {
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

pub(super) fn read(path: &str) -> String {
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

/// A module of the crate: the row of the map that it belongs to.
type Folder = String;

/// The map in `src/lib.rs`: for each folder, what it may import (`shape`, or one item of it: `shape::Elem`).
fn map() -> BTreeMap<Folder, BTreeSet<String>> {
    let lib = read("src/lib.rs");
    let rows = lib.lines().skip_while(|line| !line.starts_with("//! | folder |")).skip(2);
    let rows = rows.map_while(|line| line.strip_prefix("//! |"));
    let named = |cell: &str| cell.split('`').skip(1).step_by(2).map(String::from).collect::<Vec<_>>();
    let row = |row: &str| {
        let cells: Vec<&str> = row.split('|').collect();
        let [folder, _, imports, ..] = cells.as_slice() else { panic!("a row of the map: {row}") };
        named(folder).into_iter().map(|name| (name, named(imports).into_iter().collect())).collect::<Vec<_>>()
    };
    rows.flat_map(row).collect()
}

/// The path of a file's module: `src/tile/text/mod.rs` is `tile`, `text`.
fn module(path: &str) -> Vec<&str> {
    let inner = path.trim_start_matches("src/").trim_end_matches(".rs").trim_end_matches("/mod");
    inner.split('/').collect()
}

/// The folder that holds a path of modules, if it is one of the map.
fn folder(map: &BTreeMap<Folder, BTreeSet<String>>, path: &[&str]) -> Option<Folder> {
    [2, 1].iter().filter_map(|n| path.get(..*n)).map(|p| p.join("::")).find(|name| map.contains_key(name))
}

/// The code of a file, comments blanked out and without the tests at its end, line by line.
fn code(text: &str) -> Vec<&str> {
    let tests = text.find("#[cfg(test)]\nmod tests {").unwrap_or(text.len());
    text[..tests].lines().map(|line| line.split("//").next().unwrap_or_default()).collect()
}

/// The support library, a crate of its own.
const SUPPORT: &str = "src/runtime/support";

/// The files of the crate that have a module of their own: roots, tests and the support library are left out.
fn modules() -> Vec<String> {
    let outside = ["src/lib.rs", "src/main.rs", "src/build.rs", "src/memory.rs"];
    let is_test = |path: &str| path.ends_with("/tests.rs") || path.contains("/tests/");
    let is_left_out = |path: &str| outside.contains(&path) || path.starts_with(SUPPORT) || is_test(path);
    files("src", &["rs"]).into_iter().filter(|path| !is_left_out(path)).collect()
}

/// What a path in a module stands for, from the crate's root.
fn absolute<'a>(own: &[&'a str], path: &'a str) -> Vec<&'a str> {
    let parts: Vec<&str> = path.split("::").filter(|part| !part.is_empty()).collect();
    let up = parts.iter().take_while(|part| **part == "super").count();
    let base = if up == 0 { &[][..] } else { &own[..own.len().saturating_sub(up)] };
    base.iter().chain(&parts[up.max(1)..]).copied().collect()
}

/// The paths that begin with `crate::` or `super::`, those in braces one by one, each with its line.
fn paths(text: &str) -> Vec<(usize, String)> {
    let code = code(text).join("\n");
    let mut found = Vec::new();
    for start in ["crate::", "super::"] {
        for (at, _) in code.match_indices(start) {
            let inside = code[..at].ends_with(|c: char| c.is_alphanumeric() || "_:$".contains(c));
            if !inside {
                let line = code[..at].matches('\n').count() + 1;
                expand("", &code[at..], &mut |path| found.push((line, path)));
            }
        }
    }
    found
}

/// Calls `each` with every path of a tree `a::{b, c::{d, e}}` that a text begins with. Returns what follows the tree.
fn expand<'a>(before: &str, text: &'a str, each: &mut dyn FnMut(String)) -> &'a str {
    let end = text.find(|c: char| !(c.is_alphanumeric() || c == '_' || c == ':')).unwrap_or(text.len());
    let path = format!("{before}{}", &text[..end]);
    let mut rest = &text[end..];
    if !(path.ends_with("::") && rest.starts_with('{')) {
        each(path);
        return rest;
    }
    while rest.starts_with(['{', ',']) {
        rest = rest[1..].trim_start();
        if !rest.starts_with('}') {
            // The next path follows, perhaps after `as` and a name.
            rest = expand(&path, rest, each).trim_start_matches(|c| c != ',' && c != '}');
        }
    }
    rest.strip_prefix('}').unwrap_or(rest)
}

/// What a folder may know is what the map in `src/lib.rs` lists: no more, and nothing that it does not use. The lists have
/// no circle, so that a reader can learn the folders one after another.
#[test]
fn folders_import_what_the_map_allows() {
    let map = map();
    assert!(map.len() > 20, "the map in src/lib.rs is not read: {} rows", map.len());
    let mut used = BTreeSet::new();
    let mut wrong = Vec::new();
    for path in modules() {
        let own = module(&path);
        let Some(from) = folder(&map, &own) else {
            // A file that only declares folders.
            assert!(paths(&read(&path)).is_empty(), "{path} is in no folder of the map in src/lib.rs");
            continue;
        };
        for (line, import) in paths(&read(&path)) {
            let full = absolute(&own, &import);
            let Some(to) = folder(&map, &full).filter(|to| *to != from) else { continue };
            let full = full.join("::");
            let allowed = |entry: &&String| full == **entry || full.starts_with(&format!("{entry}::"));
            match map[&from].iter().find(allowed) {
                Some(entry) => _ = used.insert((from.clone(), entry.clone())),
                None => wrong.push(format!("{path}:{line}: `{from}` imports `{full}`, and must not know `{to}`")),
            }
        }
    }
    for (folder, entry) in map.iter().flat_map(|(folder, entries)| entries.iter().map(move |entry| (folder, entry))) {
        if !used.contains(&(folder.clone(), entry.clone())) {
            wrong.push(format!("src/lib.rs: `{folder}` no longer imports `{entry}`"));
        }
    }
    // Folders that import none of the remaining ones are removed until none is left.
    let mut left = map.clone();
    while let Some(next) = left.iter().find(|(_, imports)| {
        imports.iter().all(|entry| !left.keys().any(|f| entry == f || entry.starts_with(&format!("{f}::"))))
    }) {
        let next = next.0.clone();
        left.remove(&next);
    }
    if !left.is_empty() {
        wrong.push(format!("src/lib.rs: these folders import each other in a circle: {:?}", left.keys()));
    }
    assert!(wrong.is_empty(), "what src/lib.rs says of the folders does not hold:\n{}", wrong.join("\n"));
}

/// Files that import each other though no other file does so, and why they stay as they are.
const CIRCLES: &[(&[&str], &str)] = &[
    (
        &["ir::function", "ir::op", "ir::rules"],
        "a function consists of operations, and a fused region is an operation that holds a function",
    ),
    (
        &["scalar::binary", "scalar::slope", "scalar::unary"],
        "the row of an operation holds its derivative, which is an expression of operations",
    ),
    (
        &["tile::body", "tile::dot", "tile::op", "tile::rules"],
        "the mode of a product is an attribute of an operation, and which modes it may have follows from the operations around it",
    ),
];

/// What the modules of folders export of their files: the path that others write, and the one that it stands for.
fn exports(texts: &BTreeMap<Vec<String>, String>) -> BTreeMap<Vec<String>, Vec<String>> {
    let mut found = BTreeMap::new();
    for (own, text) in texts {
        let code = code(text).join("\n");
        for (at, _) in code.match_indices("use ") {
            expand("", &code[at + 4..], &mut |path| {
                let parts: Vec<&str> = path.trim_start_matches("self::").split("::").collect();
                let inside = |name: &str| [own.as_slice(), &[name.to_string()]].concat();
                if let [file, .., name] = parts.as_slice()
                    && texts.contains_key(&inside(file))
                {
                    let parts = parts.iter().map(ToString::to_string);
                    found.insert(inside(name), own.iter().cloned().chain(parts).collect());
                }
            });
        }
    }
    found
}

/// For each file, the files that it imports from, whether it names them or their folder exports what is imported. A folder and
/// what is in it are one to another: a module declares its files, and they use what it says for all.
fn imports_of_files() -> BTreeMap<Vec<String>, BTreeSet<Vec<String>>> {
    let owned = |path: &[&str]| path.iter().map(ToString::to_string).collect::<Vec<String>>();
    let all = modules().into_iter().chain(files(SUPPORT, &["rs"]));
    let texts: BTreeMap<Vec<String>, String> = all.map(|path| (owned(&module(&path)), read(&path))).collect();
    let (exports, support) = (exports(&texts), owned(&module(SUPPORT)));
    let mut imports: BTreeMap<Vec<String>, BTreeSet<Vec<String>>> = BTreeMap::new();
    for (own, text) in &texts {
        let to = imports.entry(own.clone()).or_default();
        for (_, path) in paths(text) {
            let names: Vec<&str> = own.iter().map(String::as_str).collect();
            let mut full = owned(&absolute(&names, &path));
            if own.starts_with(&support) && path.starts_with("crate::") {
                full = [support.as_slice(), &full].concat();
            }
            // A folder may export what a folder in it exports.
            while let Some((n, meant)) = (1..=full.len()).find_map(|n| Some((n, exports.get(&full[..n])?)))
                && !texts.contains_key(&full[..n])
            {
                full = meant.iter().chain(&full[n..]).cloned().collect();
            }
            let file = (1..=full.len()).rev().map(|n| &full[..n]).find(|path| texts.contains_key(*path));
            to.extend(file.filter(|file| !own.starts_with(file) && !file.starts_with(own)).map(<[String]>::to_vec));
        }
    }
    imports
}

/// No file needs, to be understood, a file that needs it: what two files share is in a third.
#[test]
fn files_import_each_other_in_no_circle() {
    let imports = imports_of_files();
    assert!(imports.values().map(BTreeSet::len).sum::<usize>() > 1000, "imports are not found");
    let reached = |from: &Vec<String>| {
        let mut seen: BTreeSet<&Vec<String>> = BTreeSet::new();
        let mut open: Vec<&Vec<String>> = imports[from].iter().collect();
        while let Some(next) = open.pop() {
            if seen.insert(next) {
                open.extend(&imports[next]);
            }
        }
        seen
    };
    let all: BTreeMap<&Vec<String>, BTreeSet<&Vec<String>>> =
        imports.keys().map(|file| (file, reached(file))).collect();
    // The files of a circle are those that reach each other.
    let circle = |file: &Vec<String>| -> Vec<String> {
        all[file].iter().filter(|other| all[**other].contains(file)).map(|other| other.join("::")).collect()
    };
    let circles: BTreeSet<Vec<String>> =
        all.keys().map(|file| circle(file)).filter(|circle| !circle.is_empty()).collect();
    let allowed: BTreeSet<Vec<String>> =
        CIRCLES.iter().map(|(files, _)| files.iter().map(ToString::to_string).collect()).collect();
    let new: Vec<String> = circles.difference(&allowed).map(|circle| circle.join(", ")).collect();
    assert!(new.is_empty(), "these files import each other in a circle:\n{}", new.join("\n"));
    let gone: Vec<_> = allowed.difference(&circles).collect();
    assert!(gone.is_empty(), "these circles no longer exist; remove them from CIRCLES: {gone:?}");
}
