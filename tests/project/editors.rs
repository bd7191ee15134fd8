//! Do the grammars for editors know the words of the language, and no others?

use std::collections::BTreeSet;

fn read(path: &str) -> String {
    std::fs::read_to_string(format!("{}/{path}", env!("CARGO_MANIFEST_DIR"))).expect(path)
}

/// The reserved words in the table of tokens: `#[token("fn")]`.
fn reserved() -> BTreeSet<String> {
    let text = read("src/syntax/token.rs");
    let tokens = text.lines().filter_map(|line| line.trim().strip_prefix("#[token(\"")?.split('"').next());
    tokens.filter(|token| token.starts_with(|c: char| c.is_ascii_lowercase())).map(String::from).collect()
}

/// The words that are keywords in some positions, which `layout` finds: tokens after its comment that have a name in quotes.
fn positional() -> BTreeSet<String> {
    let text = read("src/syntax/token.rs");
    let (_, made) = text.split_once("created by `layout`").expect("the comment");
    let docs = made.lines().filter_map(|line| line.trim().strip_prefix("/// `")?.split('`').next());
    docs.filter(|word| word.chars().all(|c| c.is_ascii_lowercase())).map(String::from).collect()
}

/// The alternatives in `\\b(a|b|c)\\b`.
fn alternatives(pattern: &str) -> impl Iterator<Item = String> {
    let inner = pattern.trim_start_matches("\\b(").trim_end_matches(")\\b");
    inner.split('|').map(String::from).collect::<Vec<_>>().into_iter()
}

#[test]
fn grammars_know_the_words_of_the_language() {
    let grammar: serde_json::Value =
        serde_json::from_str(&read("editors/vscode/syntaxes/attn.tmLanguage.json")).expect("JSON");
    let lists = ["keywords", "constants", "types"].map(|rule| &grammar["repository"][rule]["match"]);
    let coloured: BTreeSet<String> =
        lists.iter().flat_map(|list| alternatives(list.as_str().expect("a pattern"))).collect();
    assert_eq!(coloured, reserved());
    assert_eq!(positional().len(), 10, "{:?}", positional());
    let whole = grammar.to_string();
    for word in positional() {
        let found = ["(", "|"]
            .iter()
            .any(|before| [")", "|"].iter().any(|after| whole.contains(&format!("{before}{word}{after}"))));
        assert!(found, "the grammar for VS Code lacks `{word}`");
    }
}
