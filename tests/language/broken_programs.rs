//! Does the command give a diagnostic and the right exit code for whatever it is handed in the place of a program?
//!
//! More than 200 broken programs, mutations of the examples, and files that are no programs at all. Each is compiled as a
//! user would; what a mutation leaves right must compile.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use attnc::random::Random;

fn examples() -> Vec<(String, String)> {
    let folder = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/examples")).expect("the examples");
    let mut paths: Vec<PathBuf> = folder.map(|entry| entry.expect("an entry").path()).collect();
    paths.retain(|path| path.extension().is_some_and(|ending| ending == "attn"));
    paths.sort();
    let name = |path: &Path| path.file_stem().expect("a name").to_string_lossy().into_owned();
    paths.iter().map(|path| (name(path), std::fs::read_to_string(path).expect("an example"))).collect()
}

/// Words and marks of the code lines of a text, with their places.
fn words(text: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    let mut line_start = 0;
    for line in text.split_inclusive('\n') {
        let code = line.split("//").next().unwrap_or_default();
        let mut at = 0;
        while let Some(c) = code[at..].chars().next() {
            let is_word = |c: char| c.is_alphanumeric() || c == '_';
            let len =
                if is_word(c) { code[at..].find(|c| !is_word(c)).unwrap_or(code.len() - at) } else { c.len_utf8() };
            if !c.is_whitespace() {
                found.push((line_start + at, &text[line_start + at..line_start + at + len]));
            }
            at += len;
        }
        line_start += line.len();
    }
    found
}

/// The text with one thing wrong (or, by chance, another right program).
fn mutate(text: &str, kind: usize, random: &mut Random) -> String {
    let words = words(text);
    let (at, word) = words[random.below(words.len())];
    let (_, other) = words[random.below(words.len())];
    let replaced = |with: &str| format!("{}{with}{}", &text[..at], &text[at + word.len()..]);
    match kind % 8 {
        0 => replaced(""),
        1 => replaced(&format!("{word} {word}")),
        2 => replaced(other),
        3 => replaced("unheard_of"),
        4 => replaced(
            ["0", "-1", "inf", "S", "f32", "\"", "(", "}", "@", "é", "#", "18446744073709551616"][random.below(12)],
        ),
        5 => text[..at].to_string(),
        6 => format!("{}\n{}", &text[at..], &text[..at]),
        // Shape errors come from numbers and dimensions.
        _ => match words
            .iter()
            .find(|(p, w)| *p >= at && w.bytes().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit()))
        {
            Some((p, w)) => format!("{}7{}", &text[..*p], &text[p + w.len()..]),
            None => replaced("7"),
        },
    }
}

fn attnc(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_attnc"));
    command.args(args).stdin(Stdio::null());
    command
}

fn run(args: &[&str]) -> Output {
    attnc(args).output().expect("attnc starts")
}

/// What is wrong with how `attnc` took a file, if anything; and was it refused?
fn complaint(path: &Path, refused: &[i32]) -> Result<bool, String> {
    let shown = path.to_string_lossy();
    let out = path.with_extension("o");
    let output = run(&[&shown, "--emit", "obj", "-o", &out.to_string_lossy()]);
    let err = String::from_utf8_lossy(&output.stderr).into_owned();
    let code = output.status.code().unwrap_or(-1);
    if !output.stdout.is_empty() {
        return Err(format!("{shown}: something on stdout"));
    }
    match code {
        0 if !err.contains("error") => Ok(false),
        _ if !refused.contains(&code) => Err(format!("{shown}: exit code {code}\n{err}")),
        _ if !err.starts_with("error[E") && !err.starts_with("warning[E") || !err.contains("error[E") => {
            Err(format!("{shown}: no diagnostic with a code\n{err}"))
        }
        _ if err.contains("internal error") || err.contains("panicked") => Err(format!("{shown}: a bug\n{err}")),
        _ if !err.contains(" --> ") => Err(format!("{shown}: no place\n{err}")),
        _ => Ok(true),
    }
}

/// Compiles each file, on all processors; the number of those that were refused, and what is wrong.
fn compile_all(paths: &[PathBuf]) -> (usize, Vec<String>) {
    let next = AtomicUsize::new(0);
    let refused = AtomicUsize::new(0);
    let wrong = Mutex::new(BTreeMap::new());
    let threads = std::thread::available_parallelism().map_or(2, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let i = next.fetch_add(1, Ordering::Relaxed);
                    let Some(path) = paths.get(i) else { break };
                    match complaint(path, &[1]) {
                        Ok(was_refused) => drop(refused.fetch_add(usize::from(was_refused), Ordering::Relaxed)),
                        Err(text) => drop(wrong.lock().expect("no thread panics").insert(i, text)),
                    }
                }
            });
        }
    });
    (refused.into_inner(), wrong.into_inner().expect("no thread panics").into_values().collect())
}

#[test]
fn mutated_examples_are_refused_with_a_place() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut random = Random::new(3);
    let mut paths = Vec::new();
    for (name, text) in examples() {
        for kind in 0..32 {
            let path = folder.path().join(format!("{name}_{kind}.attn"));
            std::fs::write(&path, mutate(&text, kind, &mut random)).expect("a file");
            paths.push(path);
        }
    }
    let (refused, wrong) = compile_all(&paths);
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), paths.len(), wrong.join("\n"));
    assert!(refused >= 200, "only {refused} of {} are broken", paths.len());
}

/// Texts of the later stages, mutated: refused with a place, or compiled.
#[test]
fn mutated_dumps_are_refused_with_a_place() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut random = Random::new(4);
    let mut paths = Vec::new();
    for example in ["02_self_attention", "03_masks", "06_encoder_layer"] {
        let program = format!("{}/examples/{example}.attn", env!("CARGO_MANIFEST_DIR"));
        for (kind, ending) in [("ir", "air"), ("tile", "tir")] {
            let dump = run(&[&program, "--emit", &format!("{kind}=-")]);
            let dump = String::from_utf8(dump.stdout).expect("a dump");
            for i in 0..20 {
                let path = folder.path().join(format!("{example}_{i}.{ending}"));
                std::fs::write(&path, mutate(&dump, i, &mut random)).expect("a file");
                paths.push(path);
            }
        }
    }
    let (refused, wrong) = compile_all(&paths);
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), paths.len(), wrong.join("\n"));
    assert!(refused >= 50, "only {refused} of {} are broken", paths.len());
}

/// CLIF that is cut off, or has a word too many.
#[test]
fn broken_clif_is_refused_with_a_place() {
    let folder = tempfile::tempdir().expect("a folder");
    let program = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/01_linear.attn");
    let dump = String::from_utf8(run(&[program, "--emit", "clif=-"]).stdout).expect("a dump");
    let lines: Vec<&str> = dump.lines().collect();
    for i in 0..20 {
        let at = 2 + i * (lines.len() - 4) / 20;
        let mut broken = lines.clone();
        match i % 2 {
            0 => broken.truncate(at),
            _ => broken.insert(at, "nonsense v0, v1"),
        }
        let path = folder.path().join("broken.clif");
        std::fs::write(&path, broken.join("\n")).expect("a file");
        let output = run(&[&path.to_string_lossy(), "--emit", "asm=-"]);
        let err = String::from_utf8_lossy(&output.stderr);
        let whole = broken.last().is_none_or(|line| *line == "}" || line.is_empty());
        assert!(output.status.code() == Some(1) || (i % 2 == 0 && whole), "{i}: {err}");
        assert!(output.status.success() || err.starts_with("error[E0720]") && err.contains(" --> "), "{i}: {err}");
    }
}

#[test]
fn deep_nesting_is_an_error_with_a_place() {
    let folder = tempfile::tempdir().expect("a folder");
    let many = 10_000;
    let mut paths = Vec::new();
    for (i, (open, close)) in
        [("(", ""), ("(", ")"), ("-", ""), ("[", "]"), ("f(", ")"), ("if x {", "}"), ("{", "}"), ("not ", "")]
            .into_iter()
            .enumerate()
    {
        let nested = format!("{}x{}", open.repeat(many), close.repeat(many));
        let path = folder.path().join(format!("nested_{i}.attn"));
        let text = format!("model M {{\n    pub fn f(x: f32[S]) -> f32[S] {{\n        {nested}\n    }}\n}}\n");
        std::fs::write(&path, text).expect("a file");
        paths.push(path);
    }
    let (refused, wrong) = compile_all(&paths);
    assert_eq!((refused, wrong), (paths.len(), Vec::new()));
}

#[test]
fn what_is_no_program_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = |name: &str, bytes: &[u8]| {
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).expect("a file");
        path.to_string_lossy().into_owned()
    };
    let own = env!("CARGO_BIN_EXE_attnc");
    for (path, code, text) in [
        (file("empty.attn", b""), 1, "E0605"),
        (file("comment.attn", b"// nothing else\n"), 1, "E0605"),
        (file("utf16.attn", b"\xff\xfem\0o\0d\0e\0l\0"), 1, "E0002"),
        (file("latin.attn", b"// Gr\xfc\xdfe\nmodel M {}\n"), 1, "E0002"),
        (file("nul.attn", b"model M {\0}\n"), 1, "error[E"),
        (file("long.attn", &vec![b'\n'; (4 << 20) + 1]), 1, "E0003"),
        (file("program.attn", &std::fs::read(own).expect("attnc itself")), 1, "error[E00"),
        (folder.path().to_string_lossy().into_owned(), 3, "it is a directory"),
        ("/nowhere/at/all.attn".to_string(), 3, "no such file"),
        (format!("{own}/below.attn"), 3, "not a directory"),
        (file("program.air", b"model M {}\n"), 1, "error[E07"),
        (file("empty.air", b"module\n"), 1, "error[E07"),
        (file("utf16.air", b"\xff\xfe"), 1, "E0002"),
        (file("program.tir", b"model M {}\n"), 1, "error[E07"),
        (file("empty.tir", b"module\n"), 1, "error[E07"),
        (file("utf16.tir", b"\xff\xfe"), 1, "E0002"),
    ] {
        let out = folder.path().join("out.o");
        let output = run(&[&path, "--emit", "obj", "-o", &out.to_string_lossy()]);
        let err = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{path}: {err}");
        assert!(err.contains(text) && !err.contains("internal error"), "{path}: {err}");
        assert!(!out.exists(), "{path}");
    }
}

#[test]
fn outputs_that_cannot_be_written_are_exit_code_3() {
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/01_linear.attn");
    let folder = tempfile::tempdir().expect("a folder");
    let taken = folder.path().to_string_lossy().into_owned();
    for kind in
        ["tokens", "ast", "types", "ir", "dot", "tile", "vector", "clif", "mir", "asm", "obj", "so", "header", "python"]
    {
        for place in ["/nowhere/at/all", &taken] {
            let output = run(&[example, "--emit", &format!("{kind}={place}")]);
            let err = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(3), "{kind} {place}: {err}");
            assert!(err.starts_with("error[E00"), "{kind} {place}: {err}");
        }
    }
}

#[test]
fn a_closed_pipe_ends_every_dump_quietly() {
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/02_self_attention.attn");
    for kind in
        ["tokens", "ast", "types", "ir", "dot", "tile", "vector", "clif", "mir", "asm", "obj", "so", "header", "python"]
    {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let emit = format!("{kind}=-");
        let output = attnc(&[example, "--emit", &emit]).stdout(writer).stderr(Stdio::piped()).output().expect("attnc");
        assert_eq!(output.status.code(), Some(0), "{kind}");
        assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{kind}");
    }
}

#[test]
fn a_missing_linker_is_named() {
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/01_linear.attn");
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("m.so");
    let mut command = attnc(&[example, "-o", &out.to_string_lossy()]);
    // Rust's own linker is found beside its libraries; a machine without Rust has none.
    let output = command.env("PATH", folder.path()).env("HOME", folder.path()).env_remove("RUSTUP_HOME").output();
    let output = output.expect("attnc starts");
    let err = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{err}");
    assert!(err.starts_with("error[E0005]") && err.contains("ld.lld"), "{err}");
}
