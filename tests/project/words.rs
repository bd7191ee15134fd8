//! Does the prose of the sources, in comments and string literals, keep to plain English? No line
//! has a pattern of `words.txt`, and no comment line is longer than [`WIDTH`].

use fancy_regex::Regex;

use crate::tidy::{files, read};

/// The maximum number of columns of a comment line.
const WIDTH: usize = 100;

/// A pattern that must not occur, and what to write instead.
struct Rule {
    pattern: Regex,
    advice: &'static str,
}

/// The rules of `words.txt`.
fn table() -> Vec<Rule> {
    let lines = include_str!("words.txt").lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let rule = |line: &'static str| {
        let (pattern, advice) = line.split_once('\t').unwrap_or_else(|| panic!("words.txt: no TAB in `{line}`"));
        let pattern = Regex::new(pattern).unwrap_or_else(|error| panic!("words.txt: `{pattern}`: {error}"));
        Rule { pattern, advice }
    };
    lines.map(rule).collect()
}

/// The length in bytes of an identifier, comment, literal or single character at the start of
/// `text`, and the prose in it.
fn token<'a>(text: &'a str, comment: &str) -> (usize, Option<&'a str>) {
    let until = |open: usize, close: &str| {
        let end = text[open..].find(close).map_or(text.len(), |n| open + n);
        ((end + close.len()).min(text.len()), Some(&text[open..end]))
    };
    let quoted = |quote: char| {
        let mut escaped = false;
        let end = text[1..].find(|c| {
            let ends = c == quote && !escaped;
            escaped = c == '\\' && !escaped;
            ends
        });
        let end = end.map_or(text.len(), |n| n + 1);
        ((end + 1).min(text.len()), Some(&text[1..end]))
    };
    let python = comment == "#";
    let word = text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len());
    let hashes = text[word..].bytes().take_while(|b| *b == b'#').count();
    let next: Vec<char> = text.chars().take(3).collect();
    match next.as_slice() {
        _ if text.starts_with(comment) => until(comment.len(), "\n"),
        _ if matches!(&text[..word], "r" | "br") && text[word + hashes..].starts_with('"') => {
            until(word + hashes + 1, &format!("\"{}", "#".repeat(hashes)))
        }
        _ if word > 0 => (word, None),
        ['/', '*', ..] => until(2, "*/"),
        ['"', '"', '"'] => until(3, "\"\"\""),
        ['"', ..] => quoted('"'),
        ['\'', ..] if python => quoted('\''),
        // A character; any other quote begins a lifetime.
        ['\'', '\\', ..] => (quoted('\'').0, None),
        ['\'', c, '\''] => (2 + c.len_utf8(), None),
        [c, ..] => (c.len_utf8(), None),
        [] => (0, None),
    }
}

/// The lines of all comments and string literals of a source file, with their numbers.
fn prose<'a>(text: &'a str, comment: &str) -> Vec<(usize, &'a str)> {
    let (mut found, mut at, mut line) = (Vec::new(), 0, 1);
    while at < text.len() {
        let (length, inner) = token(&text[at..], comment);
        let lines = inner.unwrap_or_default().lines().enumerate();
        found.extend(lines.map(|(n, inner)| (line + n, inner.trim_start_matches(['/', '!', '*', '#', ' ', '\t']))));
        line += text[at..at + length].matches('\n').count();
        at += length;
    }
    found
}

/// What is wrong with the prose of a source file: line number and description.
fn patterns(text: &str, comment: &str, rules: &[Rule]) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (line, inner) in prose(text, comment) {
        for rule in rules {
            if let Some(hit) = rule.pattern.find(inner).expect("a pattern without much backtracking") {
                let (hit, pattern) = (hit.as_str().trim(), rule.pattern.as_str());
                found
                    .push((line, format!("`{hit}` in \"{inner}\" is banned by `{pattern}`; instead: {}", rule.advice)));
            }
        }
    }
    found
}

/// The comment lines that are too long. Code blocks, rows of tables, and lines without a space to
/// break at may be.
fn long_lines(text: &str, comment: &str) -> Vec<usize> {
    let (mut found, mut fenced) = (Vec::new(), false);
    for (n, line) in text.lines().enumerate() {
        let Some(inner) = line.trim_start().strip_prefix(comment) else {
            fenced = false;
            continue;
        };
        let inner = inner.trim_start_matches(['/', '!']).trim();
        let fence = inner.starts_with("```");
        fenced ^= fence;
        let exempt = fenced || fence || inner.starts_with('|') || !inner.contains(' ');
        if line.chars().count() > WIDTH && !exempt {
            found.push(n + 1);
        }
    }
    found
}

#[test]
fn prose_is_plain_english() {
    let rules = table();
    let mut wrong = Vec::new();
    for path in files("src", &["rs", "attn", "vec", "c", "h", "py"]) {
        let (text, comment) = (read(&path), if path.ends_with(".py") { "#" } else { "//" });
        let found = patterns(&text, comment, &rules);
        wrong.extend(found.into_iter().map(|(line, found)| format!("{path}:{line}: {found}")));
        let long = long_lines(&text, comment);
        wrong
            .extend(long.into_iter().map(|line| format!("{path}:{line}: a comment line of more than {WIDTH} columns")));
    }
    for page in super::documents::pages().iter().filter(|page| page.path.ends_with(".md")) {
        let prose = page.parts().0;
        for line in prose.lines().map(|line| line.trim_start_matches(['#', '*', '-', '|', ' '])) {
            for rule in rules.iter().filter(|rule| rule.pattern.is_match(line).expect("a short line")) {
                wrong.push(format!("{}: \"{line}\" is banned by `{}`", page.path, rule.pattern.as_str()));
            }
        }
    }
    assert!(wrong.is_empty(), "{} lines to rewrite:\n{}", wrong.len(), wrong.join("\n"));
}

/// One sentence for each rule is found, and so are planted sentences in every kind of literal and
/// comment; names and code are not.
#[test]
fn planted_sentences_are_found() {
    let rules = table();
    let lines = |text: &str, comment: &str| -> Vec<usize> {
        patterns(text, comment, &rules).into_iter().map(|(line, _)| line).collect()
    };
    let found = [
        "a multiple of so many bytes",
        "`x` is no predicate",
        "there are none",
        "What it needs.",
        "those of the loop",
        "that which remains",
        "a pass that says what it did",
        "Does it: and returns.",
        "panels lie abreast",
        "the greatest few of them",
        "groups of warps wait",
        "gives back its memory",
        "is taken for known",
        "from here on",
        "what it is more",
        "many a pass",
        "has a grip on",
        "whoever calls",
    ];
    for sentence in found {
        assert_eq!(lines(&format!("let a = 1; // {sentence}\n"), "//"), [1], "{sentence}");
    }
    let plain = [
        "there is no block",
        "it is no longer than `n`",
        "What is a lane?",
        "no memory is needed",
        "Does it fit in a register?",
        "What to list",
        "What to write: text or JSON",
    ];
    for sentence in plain {
        assert!(lines(&format!("//! {sentence}\n"), "//").is_empty(), "{sentence}");
    }
    let text = "/// Fine.\nlet q: &'a char = &'\"'; // so many\nf(\"a\\\"\\\nis no b\", r#\"\"\nwhoever\"#);\n/* fine\n abreast */";
    assert_eq!(lines(text, "//"), [2, 4, 5, 7]);
    assert!(lines("fn whoever() { abreast('\\'', b'x') }", "//").is_empty());
    assert_eq!(lines("x = 'so many' # whoever\n\"\"\"\nabreast\"\"\"", "#"), [1, 1, 3]);
    let long = "word ".repeat(20);
    assert_eq!(
        long_lines(&format!("/// {long}a\n/// ```\n/// {long}a\n/// ```\n/// | {long}\nlet {long}a\n"), "//"),
        [1]
    );
}
