//! Compares the tree-sitter grammar with the compiler: `check ATTNC OUT COUNT PROGRAM..` generates and builds the parser in
//! the folder OUT, parses the programs, and COUNT mutants of them, which both must accept or both refuse. ATTNC_SEED chooses
//! other mutants.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use tree_sitter::{Language, Parser, Query};

/// SplitMix64: the same mutants everywhere.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % n as u64) as usize
    }
}

/// Pieces that replace or follow others.
const PIECES: &str = "fn pub let var for in while if else break where and or not true false inf f32 i32 bool use layer model state tap \
    reset dim step x T E 0 1.5 1e-3 0x1f \"s d\" ( ) [ ] { } < > <= == = + - * / % @ , : ; . .. -> # /// //c \n";

/// The words, numbers, strings, spaces and symbols of a text.
fn pieces(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let length = match first {
            '"' => rest[1..].find(['"', '\n']).map_or(rest.len(), |at| at + 2),
            c if is_word(c) => rest.find(|c| !is_word(c)).unwrap_or(rest.len()),
            ' ' => rest.find(|c| c != ' ').unwrap_or(rest.len()),
            '/' if rest.starts_with("//") => rest.find('\n').unwrap_or(rest.len()),
            c => ["->", "..", "==", "<=", ">=", "!="].iter().find(|s| rest.starts_with(**s)).map_or(c.len_utf8(), |s| s.len()),
        };
        found.push(&rest[..length]);
        rest = &rest[length..];
    }
    found
}

/// A part of a program with one to three changes.
fn mutant(text: &str, random: &mut Random) -> String {
    // Some items of it, so that few mutants have errors that have nothing to do with the change.
    let items: Vec<&str> = text.split("\n\n").collect();
    let first = random.below(items.len());
    let text = format!("{}\n", items[first..items.len().min(first + 1 + random.below(4))].join("\n\n"));
    let mut parts: Vec<&str> = pieces(&text);
    let others: Vec<&str> = PIECES.split(' ').filter(|piece| !piece.is_empty()).collect();
    for _ in 0..[1, 1, 1, 2, 3][random.below(5)] {
        let at = random.below(parts.len());
        let other = others[random.below(others.len())];
        match random.below(8) {
            0 => drop(parts.remove(at)),
            1 => parts.insert(at, parts[random.below(parts.len())]),
            2 => parts.insert(at, other),
            3 => parts[at] = other,
            4 => {
                let with = random.below(parts.len());
                parts.swap(at, with);
            }
            _ => parts.insert(at, if random.below(2) == 0 { "\n" } else { " " }),
        }
        if parts.is_empty() {
            break;
        }
    }
    parts.concat()
}

/// Does the compiler read a program without a syntax error?
fn compiler_accepts(attnc: &str, text: &str) -> bool {
    let mut command = Command::new(attnc);
    command.args(["fmt", "-"]).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().expect("attnc starts");
    child.stdin.take().expect("stdin").write_all(text.as_bytes()).expect("attnc reads");
    match child.wait().expect("attnc ends").code() {
        Some(0) => true,
        Some(1) => false,
        code => panic!("attnc ends with {code:?} for:\n{text}"),
    }
}

/// Generates and builds the parser, and loads it.
fn language(grammar: &Path, out: &Path) -> Language {
    std::fs::create_dir_all(out).expect("a folder");
    let mut notes = Vec::new();
    let optimizations = tree_sitter_generate::OptLevel::default();
    tree_sitter_generate::generate_parser_in_directory(
        grammar,
        Some(out),
        None::<&Path>,
        15,
        None,
        Some("node"),
        true,
        optimizations,
        &mut notes,
    )
    .unwrap_or_else(|error| panic!("{error}"));
    let library = out.join("attn.so");
    let mut cc = Command::new("cc");
    cc.args(["-O1", "-shared", "-fPIC", "-Wall", "-Wextra", "-Wno-unused", "-I"]).arg(out).arg("-o").arg(&library);
    cc.arg(out.join("parser.c")).arg(grammar.join("src/scanner.c"));
    assert!(cc.status().expect("cc").success(), "the parser does not build");
    // SAFETY: the library was just built from a generated parser, whose function has this type; it is never unloaded.
    unsafe {
        let library = Box::leak(Box::new(libloading::Library::new(library).expect("the parser")));
        let make: libloading::Symbol<'_, unsafe extern "C" fn() -> *const ()> =
            library.get(b"tree_sitter_attn").expect("its function");
        Language::from(tree_sitter_language::LanguageFn::from_raw(*make))
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [attnc, out, count, programs @ ..] = arguments.as_slice() else { panic!("check ATTNC OUT COUNT PROGRAM..") };
    let grammar = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the folder of the grammar");
    let language = language(grammar, Path::new(out));
    let query = std::fs::read_to_string(grammar.join("queries/highlights.scm")).expect("the query");
    Query::new(&language, &query).unwrap_or_else(|error| panic!("highlights.scm: {error}"));
    let mut parser = Parser::new();
    parser.set_language(&language).expect("the language");
    let mut accepts = |text: &str| !parser.parse(text, None).expect("a tree").root_node().has_error();
    let texts: Vec<String> = programs.iter().map(|path| std::fs::read_to_string(path).expect(path)).collect();
    for (path, text) in programs.iter().zip(&texts) {
        assert!(accepts(text), "{path} is refused");
    }
    let mut random = Random(std::env::var("ATTNC_SEED").map_or(1, |seed| seed.parse().expect("a number")));
    let (mut valid, mut wrong) = (0, 0);
    for _ in 0..count.parse::<usize>().expect("a number") {
        let text = mutant(&texts[random.below(texts.len())], &mut random);
        let expected = compiler_accepts(attnc, &text);
        valid += usize::from(expected);
        if accepts(&text) != expected {
            wrong += 1;
            if wrong <= 20 {
                println!("----- the compiler {} this:\n{text}", if expected { "accepts" } else { "refuses" });
            }
        }
    }
    println!("tree-sitter: {} programs, {count} mutants, {valid} of them valid; {wrong} disagreements", texts.len());
    std::process::exit(i32::from(wrong > 0));
}
