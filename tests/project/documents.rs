//! Does the README tell the truth? Its commands are run, its dumps compared, its flags and paths looked for.
//!
//! In a block of a console, `$ command` is run in a folder that holds the README's own programs, `examples/` and `checkpoints/`; what
//! follows must be its output, lines of `...` standing for any lines. Programs are blocks that begin with `// name`.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

fn readme() -> String {
    std::fs::read_to_string(Path::new(ROOT).join("README.md")).expect("the README")
}

/// The fenced blocks: language and text.
fn blocks(text: &str) -> Vec<(&str, &str)> {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some((_, block)) = rest.split_once("\n```") {
        let (language, block) = block.split_once('\n').expect("a block has lines");
        let (body, after) = block.split_once("```").expect("a block ends");
        found.push((language, body));
        rest = after;
    }
    found
}

/// A folder with what the README's commands need, and the variable `PATH` that finds attnc.
struct Sandbox {
    folder: tempfile::TempDir,
    path: std::ffi::OsString,
}

impl Sandbox {
    fn new() -> Sandbox {
        let folder = tempfile::tempdir().expect("a folder");
        for (there, here) in [("examples", "examples"), ("tests/fixtures/checkpoints", "checkpoints")] {
            std::os::unix::fs::symlink(Path::new(ROOT).join(there), folder.path().join(here)).expect("a link");
        }
        let own = PathBuf::from(env!("CARGO_BIN_EXE_attnc"));
        let mut folders = vec![own.parent().expect("attnc lies in a folder").to_path_buf()];
        folders.extend(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()));
        let path = std::env::join_paths(folders).expect("folders");
        Sandbox { folder, path }
    }

    fn run(&self, program: &str, args: &[&str]) -> (bool, String) {
        let mut command = Command::new(program);
        command.args(args).current_dir(self.folder.path()).env("PATH", &self.path);
        let output = command.output().unwrap_or_else(|error| panic!("{program}: {error}"));
        let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        (output.status.success(), text)
    }
}

/// Does a text fit a pattern in which lines of `...` stand for any lines?
fn fits(pattern: &str, text: &str) -> bool {
    let lines = |text: &str| text.trim_end().lines().map(str::trim_end).map(String::from).collect::<Vec<_>>();
    let (pattern, text) = (lines(pattern), lines(text));
    let parts: Vec<&[String]> = pattern.split(|line| line == "...").collect();
    let mut at = 0;
    for (i, part) in parts.iter().enumerate() {
        let (first, last) = (i == 0, i + 1 == parts.len());
        let place = match (first, last) {
            (true, true) => return *part == text,
            (true, false) => text.starts_with(part).then_some(0),
            (false, true) => text.len().checked_sub(part.len()).filter(|n| *n >= at && text[*n..] == **part),
            (false, false) if part.is_empty() => Some(at),
            (false, false) => (at..text.len()).find(|n| text[*n..].starts_with(part)),
        };
        match place {
            Some(place) => at = place + part.len(),
            None => return false,
        }
    }
    true
}

#[test]
fn patterns_fit() {
    for (pattern, text, expected) in [
        ("a\nb", "a\nb", true),
        ("a", "a\nb", false),
        ("...\nb", "a\nb", true),
        ("a\n...", "a\nb", true),
        ("a\n...\nc\n...\ne", "a\nb\nc\nd\ne", true),
        ("a\n...\nc\n...\ne", "a\nb\nd\ne", false),
        ("a\n...\na", "a", false),
    ] {
        assert_eq!(fits(pattern, text), expected, "{pattern:?} {text:?}");
    }
}

/// Programs are written, commands run in the README's order, and the Python at the end of it where NumPy is there.
#[test]
fn commands_print_what_the_readme_shows() {
    let text = readme();
    let place = Sandbox::new();
    let mut wrong = String::new();
    let mut commands = 0;
    for (language, body) in blocks(&text) {
        match language {
            "attn" => {
                let (name, program) = body.split_once('\n').expect("a program has lines");
                let name = name.strip_prefix("// ").expect("a program's block begins with its name");
                std::fs::write(place.folder.path().join(name), program).expect("a program");
            }
            "console" => {
                let (command, shown) = body.split_once('\n').expect("a command has lines");
                let command = command.strip_prefix("$ ").expect("a console's block begins with its command");
                let (_, output) = place.run("sh", &["-c", command]);
                commands += 1;
                if !fits(shown, &output) {
                    wrong += &format!("$ {command}\n{output}\n-- the README has\n{shown}\n");
                }
            }
            "python" => {
                let own = Path::new(ROOT).join(".venv/bin/python");
                let own = std::env::var_os("ATTNC_TEST_PYTHON").map_or(own, PathBuf::from);
                let python = if own.is_file() { own.to_string_lossy().into_owned() } else { "python3".to_string() };
                let numpy = Command::new(&python).args(["-c", "import numpy"]).output();
                if !numpy.is_ok_and(|output| output.status.success()) {
                    eprintln!("no NumPy: the README's Python is not run");
                    continue;
                }
                let (good, output) = place.run(&python, &["-c", body]);
                if !good {
                    wrong += &format!("the Python fails:\n{output}\n");
                }
            }
            // Files from the network, and pictures.
            "sh" | "text" => {}
            other => wrong += &format!("`{other}`: a block of an unknown kind\n"),
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
    assert!(commands >= 6, "{commands}");
}

/// Every option that the README names is one of attnc's.
#[test]
fn flags_exist() {
    let place = Sandbox::new();
    let mut help = String::new();
    for command in [
        "compile",
        "check",
        "run",
        "generate",
        "bench",
        "opt",
        "explain",
        "ref",
        "list",
        "ops",
        "std",
        "function",
        "completions",
    ] {
        help += &place.run("attnc", &["help", command]).1;
    }
    let is_flag = |c: char| c.is_ascii_lowercase() || c == '-';
    let known: BTreeSet<&str> = help.split(|c: char| !is_flag(c)).filter(|word| word.starts_with("--")).collect();
    // Cargo has options of its own.
    let text: String = readme().lines().filter(|line| !line.starts_with("cargo ")).flat_map(|l| [l, "\n"]).collect();
    let named = text.split(|c: char| !is_flag(c)).filter(|word| word.starts_with("--") && word.len() > 2);
    for flag in named.filter(|word| word.bytes().any(|b| b != b'-')) {
        assert!(known.contains(flag), "{flag} is no option of attnc");
    }
}

/// Every path that the README names exists, but for what its commands make.
#[test]
fn paths_exist() {
    let text = readme();
    let mut paths: Vec<&str> = text.split("](").skip(1).filter_map(|rest| rest.split(')').next()).collect();
    let is_path = |c: char| c.is_ascii_alphanumeric() || "._-/".contains(c);
    let folders = ["examples/", "src/", "tests/", "grammar/", "snapshots/"];
    let words = text.split(|c: char| !is_path(c)).filter(|word| folders.iter().any(|folder| word.starts_with(folder)));
    paths.extend(words);
    assert!(paths.len() > 8, "{paths:?}");
    for path in paths.into_iter().filter(|path| !path.contains("://")) {
        assert!(Path::new(ROOT).join(path).exists(), "{path}");
    }
}

/// The README begins with what attnc is, the way through, and the first commands.
#[test]
fn the_first_things_come_first() {
    let text = readme();
    let first: Vec<&str> = blocks(&text).into_iter().take(2).map(|(language, _)| language).collect();
    assert_eq!(first, ["text", "sh"]);
    assert!(text.starts_with("# attnc\n\nattnc "), "what it is");
    let commands: Vec<&str> = blocks(&text)[1].1.lines().filter_map(|line| line.split_whitespace().next()).collect();
    assert_eq!(commands, ["examples/run_minilm.sh", "cargo", "tests/run.sh"]);
}
