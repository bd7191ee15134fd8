//! Is `docs/extending.md` true? The files and names that it mentions exist, and its diffs are in the tree.

use super::documents::{Page, quoted};
use super::tidy::read;

/// Is it a path from the root?
fn is_path(name: &str) -> bool {
    ["src/", "tests/", "grammar/", "examples/", "docs/"].iter().any(|folder| name.starts_with(folder))
}

fn page() -> Page {
    Page::read("docs/extending.md")
}

/// A row of a table begins with a file; the names in its second cell occur there.
#[test]
fn names_are_in_their_files() {
    let page = page();
    let (prose, _) = page.parts();
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
    let page = page();
    let (_, blocks) = page.parts();
    let diffs: Vec<&str> = blocks.iter().filter(|(language, _)| *language == "diff").map(|(_, body)| *body).collect();
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
    let page = page();
    let (prose, _) = page.parts();
    let after = prose.split("--print-after ").nth(1).expect("a pass is named");
    let pass = after.split('`').next().unwrap_or_default();
    assert!(attnc::passes::PASSES.iter().any(|p| p.name == pass), "there is no pass {pass}");
}
