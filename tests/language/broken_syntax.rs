//! Does every text, however broken, give a tree or diagnostics, and never a panic?
//!
//! Programs are mutated at random (with a fixed seed): tokens deleted, doubled, swapped, replaced; texts cut
//! off; bytes overwritten. Then come texts made to exhaust a parser.

use attnc::diagnostics::{Diagnostics, Label, render_all};
use attnc::random::Random;
use attnc::source::SourceMap;
use attnc::syntax::parse;

/// Programs to break: every kind of item, statement and expression.
const PROGRAMS: [&str; 2] = [include_str!("../fixtures/syntax/gpt2.attn"), include_str!("../fixtures/syntax/all.attn")];

/// Those, and every example.
fn programs() -> Vec<String> {
    let folder = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/examples")).expect("the examples' folder");
    let mut paths: Vec<_> = folder.map(|entry| entry.expect("an entry").path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "attn"));
    paths.sort();
    let examples = paths.iter().map(|path| std::fs::read_to_string(path).expect("an example"));
    PROGRAMS.map(String::from).into_iter().chain(examples).collect()
}

/// Reads a text and checks what must hold of any text; returns the number of diagnostics.
fn check(text: &str) -> usize {
    let mut sources = SourceMap::new();
    let file = sources.add("broken.attn", text);
    let mut diagnostics = Diagnostics::new();
    let tree = parse(file, text, &mut diagnostics);
    let inside = |label: &Label| {
        let range = label.span.range();
        label.span.file == file && range.start <= range.end && text.get(range).is_some()
    };
    for diagnostic in diagnostics.iter() {
        let primary = diagnostic.primary.as_ref();
        assert!(primary.is_some_and(inside), "{diagnostic:?} in\n{text}");
        assert!(diagnostic.secondary.iter().all(inside), "{diagnostic:?} in\n{text}");
    }
    let shown = render_all(&diagnostics, &sources, false);
    assert_eq!(shown.is_empty(), diagnostics.is_empty());
    // A text without errors is a program: it reads the same a second time, and every item is in it.
    if !diagnostics.has_errors() {
        let mut again = Diagnostics::new();
        assert_eq!(parse(file, text, &mut again), tree);
    }
    diagnostics.iter().count()
}

/// The words of a text, each with the white space before it.
fn words(text: &str) -> Vec<&str> {
    let mut words = Vec::new();
    let mut start = 0;
    let mut last = ' ';
    for (at, c) in text.char_indices() {
        let joins = |c: char| c.is_alphanumeric() || c == '_';
        if at > start && !last.is_whitespace() && !(joins(last) && joins(c)) {
            words.push(&text[start..at]);
            start = at;
        }
        last = c;
    }
    words.push(&text[start..]);
    words
}

#[test]
fn the_programs_themselves_are_read() {
    for program in programs() {
        assert_eq!(check(&program), 0, "{program}");
    }
}

#[test]
fn mutated_programs_give_diagnostics() {
    let strange = [
        "(", ")", "[", "]", "{", "}", "<", ">", "\n", ";", ",", "let", "fn", "else", "if", "=", "..", "\"", "#", "é",
        "0x", "where", "///", "!", "f32",
    ];
    let programs = programs();
    let mut random = Random::new(1);
    let mut broken = 0;
    for round in 0..3000 {
        let program = &programs[random.below(programs.len())];
        let mut words = words(program);
        for _ in 0..=random.below(3) {
            let at = random.below(words.len());
            match random.below(6) {
                0 => drop(words.remove(at)),
                1 => words.insert(at, words[at]),
                2 => {
                    let other = random.below(words.len());
                    words.swap(at, other);
                }
                3 => words[at] = strange[random.below(strange.len())],
                4 => words.insert(at, strange[random.below(strange.len())]),
                _ => words.truncate(at.max(1)),
            }
            if words.is_empty() {
                break;
            }
        }
        let text: String = words.concat();
        broken += usize::from(check(&text) > 0);
        if round % 4 == 0 {
            let mut bytes = text.into_bytes();
            for _ in 0..=random.below(8) {
                let at = random.below(bytes.len());
                if let Some(byte) = bytes.get_mut(at) {
                    *byte = random.word() as u8;
                }
            }
            check(&String::from_utf8_lossy(&bytes));
        }
    }
    // Some mutations leave a program (a doubled `-`, two names swapped); most do not.
    assert!(broken > 2000, "{broken}");
}

#[test]
fn programs_cut_off_anywhere_give_diagnostics() {
    for program in PROGRAMS {
        for (at, _) in program.char_indices() {
            check(&program[..at]);
        }
    }
}

#[test]
fn endless_nesting_is_an_error() {
    const MANY: usize = 10_000;
    let inside = |text: String| format!("fn f(x: f32[S]) -> f32[S] {{\n    {text}\n}}\n");
    for piece in
        ["(", "[", "{", "-", "not ", "f(", "x[", "if x {", "- (", "x + (", "(-", "x.", "[x, ", "if x { x } else "]
    {
        assert!(check(&inside(piece.repeat(MANY))) > 0, "{piece}");
        assert!(check(&piece.repeat(MANY)) > 0, "{piece}");
    }
    for (open, close) in [
        ("(", ")"),
        ("[", "]"),
        ("{", "}"),
        ("f(", ")"),
        ("x[", "]"),
        ("if x {", "}"),
        ("-(", ")"),
        ("{ let y = ", "}"),
    ] {
        let nested = format!("{}x{}", open.repeat(MANY), close.repeat(MANY));
        assert!(check(&inside(nested.clone())) > 0, "{open}");
        assert!(check(&nested) > 0, "{open}");
    }
    for tail in [" + x", " and x", ".T", "(x)", "[0]", " @ x", " < x", " else if x { x }"] {
        assert!(check(&inside(format!("x{}", tail.repeat(MANY)))) > 0, "{tail}");
    }
    for ty in ["[", "(", "A<", "f32["] {
        assert!(check(&format!("layer A {{\n    w: {}\n}}\n", ty.repeat(MANY))) > 0, "{ty}");
    }
}

#[test]
fn long_texts_are_read_in_little_time() {
    // Long but flat: a list, a sequence of statements, and very many errors.
    let list = format!("fn f(x: f32[S]) -> f32[S] {{\n    concat({}x)\n}}\n", "x, ".repeat(50_000));
    assert_eq!(check(&list), 0);
    let lines = format!("fn f(x: f32[S]) -> f32[S] {{\n{}    x\n}}\n", "    let y = x + 1\n".repeat(20_000));
    assert_eq!(check(&lines), 0);
    for noise in [") ", "$ ", "x y\n", "let\n", "\" ", "0x ", "} ", "{ ", "= ", "\n", "///\n", "fn\n", "é "] {
        check(&noise.repeat(20_000));
        check(&format!("fn f(x: f32[S]) -> f32[S] {{\n{}\n}}\n", noise.repeat(20_000)));
    }
}

#[test]
fn random_texts_are_read() {
    let mut random = Random::new(2);
    let alphabet: Vec<char> = "abS0123456789.,:;()[]{}<>=+-*/%@#\"' \n\t_!&|^~?$\\éπ→\u{0}".chars().collect();
    for _ in 0..3000 {
        let text: String = (0..random.below(80)).map(|_| alphabet[random.below(alphabet.len())]).collect();
        check(&text);
    }
    for _ in 0..500 {
        let bytes: Vec<u8> = (0..random.below(200)).map(|_| random.word() as u8).collect();
        check(&String::from_utf8_lossy(&bytes));
    }
}
