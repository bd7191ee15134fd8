//! Is `docs/extending.md` true? The files and names that it mentions exist, and its diffs are in the tree.

use std::path::Path;

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

fn read(path: &str) -> String {
    std::fs::read_to_string(Path::new(ROOT).join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// What stands between backticks in a line.
fn quoted(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2)
}

/// Is it a path from the root?
fn is_path(name: &str) -> bool {
    ["src/", "tests/", "grammar/", "examples/", "docs/"].iter().any(|folder| name.starts_with(folder))
}

/// The text without its fenced blocks, and these.
fn parts(text: &str) -> (String, Vec<String>) {
    let (mut prose, mut blocks) = (String::new(), Vec::new());
    for (n, part) in text.split("\n```").enumerate() {
        if n % 2 == 0 {
            prose += part;
            prose.push('\n');
        } else {
            blocks.push(part.to_string());
        }
    }
    (prose, blocks)
}

#[test]
fn files_exist() {
    let (prose, _) = parts(&read("docs/extending.md"));
    let paths: Vec<&str> =
        prose.lines().flat_map(quoted).filter_map(|name| name.split(' ').next()).filter(|name| is_path(name)).collect();
    assert!(paths.len() >= 20, "only {} files are mentioned", paths.len());
    for path in paths {
        assert!(Path::new(ROOT).join(path).exists(), "there is no {path}");
    }
}

/// A row of a table begins with a file; the names in its second cell occur there.
#[test]
fn names_are_in_their_files() {
    let (prose, _) = parts(&read("docs/extending.md"));
    let mut count = 0;
    for row in prose.lines().filter(|line| line.starts_with("| `")) {
        let cells: Vec<&str> = row.split(" | ").collect();
        let [file, needs, ..] = cells.as_slice() else { panic!("a row has two cells: {row}") };
        let text = read(quoted(file).next().expect("a file"));
        for name in
            quoted(needs).filter(|name| !is_path(name) && !name.starts_with("--") && !name.starts_with("attnc "))
        {
            assert!(text.contains(name), "{file} does not have `{name}`");
            count += 1;
        }
    }
    assert!(count >= 15, "only {count} names are checked");
}

#[test]
fn diffs_are_in_the_tree() {
    let (_, blocks) = parts(&read("docs/extending.md"));
    let diffs: Vec<&str> = blocks.iter().filter_map(|block| block.strip_prefix("diff\n")).collect();
    assert_eq!(diffs.len(), 2);
    for diff in diffs {
        let (file, added) = diff.split_once('\n').expect("a file and lines");
        let path = file.strip_prefix("+++ b/").expect("a diff begins with its file");
        let added: Vec<&str> = added.lines().map(|line| line.strip_prefix('+').expect("an added line")).collect();
        let text = read(path);
        assert!(text.contains(&added.join("\n")), "{path} does not have\n{}", added.join("\n"));
    }
}

/// The pass that the last command names exists.
#[test]
fn the_named_pass_exists() {
    let (prose, _) = parts(&read("docs/extending.md"));
    let after = prose.split("--print-after ").nth(1).expect("a pass is named");
    let pass = after.split('`').next().unwrap_or_default();
    assert!(attnc::passes::PASSES.iter().any(|p| p.name == pass), "there is no pass {pass}");
}
