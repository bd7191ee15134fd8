//! `attnc fmt`: the tree stays the same, each comment stays once and in its place, and formatting twice is formatting once.
//!
//! Programs: the examples, the standard library, random ones (`ATTNC_SEEDS=10000 cargo test --test language formatting` is the
//! long form), and all of them with other line breaks and with comments between any two tokens. What is compared is found
//! without the formatter: the dump of the tree, and the characters of the text.

use crate::gen_source::{generate, stream};
use attnc::diagnostics::Diagnostics;
use attnc::format::format;
use attnc::random::Random;
use attnc::source::{FileId, SourceMap};
use attnc::syntax::{self, dump, lexer};
use std::path::{Path, PathBuf};

/// The formatted text of a program.
fn formatted(text: &str) -> Option<String> {
    format(FileId(0), text, &mut Diagnostics::new())
}

/// The tree of a program, without places.
fn tree(text: &str) -> Option<String> {
    let mut sources = SourceMap::new();
    let file = sources.add("m.attn", text);
    let mut diagnostics = Diagnostics::new();
    let tree = syntax::parse(file, text, &mut diagnostics);
    let dump = dump::ast(&tree, sources.get(file)?);
    let lines = dump.lines().map(|line| line.trim_start_matches(|c: char| c.is_ascii_digit() || c == ':').trim_start());
    (!diagnostics.has_errors()).then(|| lines.collect::<Vec<_>>().join("\n"))
}

/// What may not change: all characters but white space and separators, and the comments between them.
fn essence(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let length = match c {
            '"' => rest[1..].find('"').map_or(rest.len(), |end| end + 2),
            '/' if rest.starts_with("//") => rest.find('\n').unwrap_or(rest.len()),
            _ => c.len_utf8(),
        };
        let part = rest[..length].trim_end();
        if !part.is_empty() && !matches!(c, ',' | ';' | '\u{feff}') {
            out.push_str(part);
            out.push_str(if c == '/' && part.len() > 1 { "\n" } else { "" });
        }
        rest = &rest[length..];
    }
    out
}

/// Formats a program and checks what must hold; the result.
fn check(what: &str, text: &str) -> String {
    let Some(once) = formatted(text) else { panic!("{what} is not formatted:\n{text}") };
    assert_eq!(tree(&once), tree(text), "{what}: another tree\n{text}\n{once}");
    assert_eq!(essence(&once), essence(text), "{what}: other tokens or comments\n{text}\n{once}");
    let twice = formatted(&once).unwrap_or_default();
    assert!(twice == once, "{what}: once\n{once}\ntwice\n{twice}");
    for line in once.lines() {
        assert_eq!(line, line.trim_end(), "{what}: space at the end of a line");
    }
    assert!(
        !once.contains("\n\n\n") && !once.contains('\r') && !once.contains('\t') || text.contains('"'),
        "{what}\n{once}"
    );
    once
}

fn files(folder: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut paths: Vec<PathBuf> = entries.filter(|path| path.extension().is_some_and(|e| e == "attn")).collect();
    paths.sort();
    paths
}

fn programs() -> Vec<(String, String)> {
    let folders =
        ["examples", "src/types/std", "src/types/tests", "tests/fixtures/syntax", "tests/live/speed", "tests/cuda"];
    let paths = folders.iter().flat_map(|folder| files(folder));
    paths.map(|path| (path.display().to_string(), std::fs::read_to_string(&path).unwrap())).collect()
}

#[test]
fn our_own_programs_are_formatted() {
    for path in files("examples") {
        let text = std::fs::read_to_string(&path).unwrap();
        let good = check(&path.display().to_string(), &text);
        assert!(good == text, "`attnc fmt {}` changes it", path.display());
    }
}

#[test]
fn programs_stay_the_same() {
    for (name, text) in programs() {
        check(&name, &text);
        check(&name, text.trim_end());
        check(&name, &format!("\u{feff}{}", text.replace('\n', "\r\n")));
        check(&name, &text.replace("    ", "\t\t"));
    }
    for text in ["", "\n", "\r\n\n", "\u{feff}", "// only\n", "\n\n  // only", "/// lost"] {
        check("a text without items", text);
    }
    check("comments around a comma", "fn run() { let (a, b // x\n, // y\n) = f() }\n");
    let count: u64 = std::env::var("ATTNC_SEEDS").ok().and_then(|n| n.parse().ok()).unwrap_or(300);
    for seed in 0..count {
        check(&format!("seed {seed}"), &generate(seed).source);
    }
}

/// The time per 100 lines, in the build for tests; the limit is that of the released command, ten times.
#[test]
fn it_is_fast() {
    let all = programs();
    let lines: usize = all.iter().map(|(_, text)| text.lines().count()).sum();
    let pass = || {
        let start = std::time::Instant::now();
        all.iter().for_each(|(_, text)| drop(formatted(text)));
        start.elapsed().as_secs_f64()
    };
    let best = (0..5).map(|_| pass()).fold(f64::INFINITY, f64::min);
    let milliseconds = best * 1e5 / lines as f64;
    println!("{lines} lines in {:.1} ms: {milliseconds:.3} ms per 100 lines", best * 1e3);
    assert!(milliseconds < 10.0, "{milliseconds} ms per 100 lines");
}

/// The ends of the tokens of a program.
fn ends(text: &str) -> Vec<usize> {
    let lexemes = lexer::lex(FileId(0), text, &mut Diagnostics::new());
    lexemes.iter().map(|lexeme| lexeme.span.end as usize).collect()
}

/// The text with something after some of its tokens; only where it leaves the tree as it is.
fn with_insertions(text: &str, places: &[usize], random: &mut Random) -> String {
    let original = tree(text);
    let mut out = text.to_string();
    for (number, place) in places.iter().enumerate().rev() {
        let comment = format!(" // comment {number}\n");
        let comment_line = format!("\n  // comment {number}\n\n");
        let inserted = random.pick(&[comment.as_str(), comment_line.as_str(), "\n", "\r\n\t", "   ", "\n\n\n"]);
        let mut next = out.clone();
        next.insert_str(*place, inserted);
        if tree(&next) == original {
            out = next;
        }
    }
    out
}

#[test]
fn comments_and_line_breaks_may_stand_anywhere() {
    let mut inserted = 0;
    for (number, (name, text)) in programs().into_iter().enumerate() {
        let ends = ends(&text);
        let mut random = stream(number as u64);
        let all = name.contains("syntax/all") || std::env::var_os("ATTNC_SEEDS").is_some();
        let chosen: Vec<usize> = ends.into_iter().filter(|_| all || random.below(20) == 0).collect();
        let changed = with_insertions(&text, &chosen, &mut random);
        inserted += changed.matches("// comment ").count();
        check(&name, &changed);
        if all {
            // Each alone too: what is around it is then as it is mostly.
            for place in chosen {
                check(&name, &with_insertions(&text, &[place], &mut random));
            }
        }
    }
    println!("{inserted} comments");
    assert!(inserted > 300, "{inserted}");
}

#[test]
fn broken_programs_are_left_alone() {
    let mut diagnostics = Diagnostics::new();
    assert_eq!(format(FileId(0), "fn f(x: f32 -> f32 { x }\n", &mut diagnostics), None);
    assert!(diagnostics.has_errors());
    // A type error is none of its business.
    assert_eq!(formatted("fn f() -> Nothing{y}"), Some("fn f() -> Nothing { y }\n".to_string()));
}

#[test]
fn deep_programs_are_formatted_or_refused() {
    for depth in [50, 120, 300] {
        let text = format!("fn f(x: f32) -> f32 {{ {}x{} }}", "(".repeat(depth), ")".repeat(depth));
        let chain = format!("fn f(x: f32) -> f32 {{ x{} }}", " + x".repeat(depth));
        for text in [text, chain] {
            if tree(&text).is_some() {
                check("a deep program", &text);
            }
        }
    }
}

#[test]
fn the_style() {
    let before = "
use   std.nn // layers


// Two.
layer Mlp<D,F>where D%2==0{
  up: Linear<D, F>; // wide
  #[ name=\"b\" ] state down: Linear<F,D>,


  /// Applies it.
  fn forward(x:f32[..,2 * D+1],keep:bool=true)->(f32[.., D]){

    // The first.
    let y=up(x); for block in blocks{y=block(y)}
    let z = where((x)>1e-05,x*G*W-G*2*W,- 1)  /  sqrt( D/2 )  // why

    let long = concat(first_of_all(x), rearrange(second_of_all(x), \"a b -> b a\"), third_of_all(x), axis = -1) + other[0 .. S - 1]
    let list = concat(first_of_all_of_them(x), rearrange(second_of_all(x), \"a b -> b a\"), third_of_all(x) // last
      , axis = -1)
    if a {b} else if c {
      d } else {e}
    (z,)
  } // end
  fn g(a: f32, b: f32, c: f32, d: f32, e: f32, f: f32, g: f32, h: f32) -> f32[..] where S <= T, T <= 2*S, longer_than_that >= 4 { a }
}
";
    let after = "use std.nn  // layers

// Two.
layer Mlp<D, F> where D % 2 == 0 {
    up: Linear<D, F>  // wide
    #[name = \"b\"]
    state down: Linear<F, D>

    /// Applies it.
    fn forward(x: f32[.., 2*D + 1], keep: bool = true) -> (f32[.., D]) {
        // The first.
        let y = up(x)
        for block in blocks { y = block(y) }
        let z = where((x) > 1e-05, x * G * W - G*2*W, -1) / sqrt(D / 2)  // why

        let long = concat(first_of_all(x), rearrange(second_of_all(x), \"a b -> b a\"), third_of_all(x), axis = -1) +
            other[0..S-1]
        let list = concat(
            first_of_all_of_them(x),
            rearrange(second_of_all(x), \"a b -> b a\"),
            third_of_all(x),  // last
            axis = -1,
        )
        if a {
            b
        } else if c {
            d
        } else {
            e
        }
        (z,)
    }  // end
    fn g(a: f32, b: f32, c: f32, d: f32, e: f32, f: f32, g: f32, h: f32) -> f32[..]
        where S <= T, T <= 2*S, longer_than_that >= 4
    { a }
}
";
    assert_eq!(check("the style", before), after);
}
