//! Do the documents tell the truth? Their commands are run, their dumps compared, their links, options and names looked for.
//!
//! The pages are README.md, CONTRIBUTING.md, the head of src/lib.rs, examples/README.md and all of docs/ but the language
//! reference, which is generated. In a block of a console, `$ command` runs in the page's own folder, which holds the programs
//! of the README and of the page, `examples/` and `checkpoints/`; its output follows, with lines of `...` for any lines. Blocks
//! of `attn`, `air` and `c` are programs and begin with `// name`.
//!
//! With `ATTNC_ACCEPT=1` in the environment, output that differs is written into the pages: look at the diff before committing.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// A page: its path from the root, and its text.
pub(super) struct Page {
    pub(super) path: String,
    text: String,
}

impl Page {
    pub(super) fn read(path: &str) -> Page {
        let text =
            std::fs::read_to_string(Path::new(ROOT).join(path)).unwrap_or_else(|error| panic!("{path}: {error}"));
        let of_crate = |text: &str| {
            let lines = text.lines().map_while(|line| line.strip_prefix("//!"));
            lines.map(|line| line.strip_prefix(' ').unwrap_or(line).to_string() + "\n").collect()
        };
        let text = if path.ends_with(".rs") { of_crate(&text) } else { text };
        Page { path: path.to_string(), text }
    }

    /// The text without its fenced blocks, and the blocks: language and text.
    pub(super) fn parts(&self) -> (String, Vec<(&str, &str)>) {
        let (mut prose, mut blocks) = (String::new(), Vec::new());
        let mut rest = self.text.as_str();
        while let Some((before, block)) = rest.split_once("\n```") {
            let (language, block) = block.split_once('\n').expect("a block has lines");
            let (body, after) = block.split_once("```").unwrap_or_else(|| panic!("{}: a block ends", self.path));
            prose = prose + before + "\n";
            blocks.push((language, body));
            rest = after;
        }
        (prose + rest, blocks)
    }

    fn blocks(&self) -> Vec<(&str, &str)> {
        self.parts().1
    }
}

/// All pages, the README first.
pub(super) fn pages() -> Vec<Page> {
    let mut paths: Vec<String> =
        ["README.md", "CONTRIBUTING.md", "src/lib.rs", "examples/README.md"].map(String::from).to_vec();
    paths.extend(super::tidy::files("docs", &["md"]).into_iter().filter(|path| path != "docs/language.md"));
    paths.iter().map(|path| Page::read(path)).collect()
}

/// Inline code of a text.
pub(super) fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// A folder with what the commands of a page need, and the variable `PATH` that finds attnc.
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
        // For `import attnc`, which calls the same command.
        command.env("PYTHONPATH", Path::new(ROOT).join("python")).env("PYTHONDONTWRITEBYTECODE", "1");
        command.env("ATTNC", env!("CARGO_BIN_EXE_attnc")).env("ATTNC_CACHE", self.folder.path().join("cache"));
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

/// A block's new pattern for an output that it does not fit: as many lines as each part between lines of `...` had, those of
/// the output that are most like it; all of the output if it has no such line.
fn accepted(pattern: &str, output: &str) -> String {
    let (pattern, lines): (Vec<&str>, Vec<&str>) = (pattern.lines().collect(), output.trim_end().lines().collect());
    if !pattern.contains(&"...") {
        return lines.iter().map(|line| line.trim_end().to_string() + "\n").collect();
    }
    let parts: Vec<&[&str]> = pattern.split(|line| *line == "...").collect();
    let (mut at, mut made) = (0, Vec::new());
    for (i, part) in parts.iter().enumerate() {
        let last = lines.len().saturating_sub(part.len());
        let ratio = |n: &usize| {
            let window = lines[*n..].iter().take(part.len()).copied().collect::<Vec<_>>().join("\n");
            (similar::TextDiff::from_words(&part.join("\n"), &window).ratio() * 1e6) as u64
        };
        let start = match i {
            0 => 0,
            _ if i + 1 == parts.len() => last.max(at),
            _ => (at..=last.max(at)).rev().max_by_key(ratio).unwrap_or(at),
        };
        let window = lines.iter().skip(start).take(part.len());
        made.push(window.map(|line| line.trim_end().to_string() + "\n").collect::<String>());
        at = start + part.len();
    }
    made.join("...\n")
}

#[test]
fn output_is_accepted() {
    for (pattern, output, expected) in [
        ("a\n", "b\nc \n", "b\nc\n"),
        ("", "b\n", "b\n"),
        ("...\n", "b\nc\n", "...\n"),
        ("...\n%1 = add x\n...\n", "f\n%2 = sub x\n%2 = add x\nend\n", "...\n%2 = add x\n...\n"),
        ("f\n...\nreturn 1\n", "g\nx\ny\nreturn 2\n", "g\n...\nreturn 2\n"),
        ("a\nb\n...\n", "c\n", "c\n...\n"),
    ] {
        assert_eq!(accepted(pattern, output), expected, "{pattern:?} {output:?}");
        assert!(fits(expected, output));
    }
}

/// Runs what a page shows, in its order, and the Python in it where NumPy is installed. Returns what is wrong, and how many
/// commands ran.
fn run_page(page: &Page, programs: &[(&str, &str)]) -> (String, usize) {
    let place = Sandbox::new();
    let (mut wrong, mut commands, mut text) = (String::new(), 0, page.text.clone());
    let accept = std::env::var_os("ATTNC_ACCEPT").is_some() && page.path.ends_with(".md");
    let own: Vec<(&str, &str)> = page.blocks();
    for (language, body) in programs.iter().chain(&own).copied() {
        match language {
            "attn" | "air" | "c" => {
                let (name, program) = body.split_once('\n').expect("a program has lines");
                let name = name.strip_prefix("// ").expect("a program's block begins with its name");
                std::fs::write(place.folder.path().join(name), program).expect("a program");
            }
            "console" => {
                let (command, shown) = body.split_once('\n').expect("a command has lines");
                let command = command.strip_prefix("$ ").expect("a console's block begins with its command");
                let (_, output) = place.run("sh", &["-c", command]);
                commands += 1;
                if !fits(shown, &output) && accept {
                    let new = format!("```console\n$ {command}\n{}```", accepted(shown, &output));
                    text = text.replacen(&format!("```console\n{body}```"), &new, 1);
                } else if !fits(shown, &output) {
                    wrong += &format!("{}: $ {command}\n{output}\n-- the page has\n{shown}\n", page.path);
                }
            }
            "python" => {
                let own = Path::new(ROOT).join(".venv/bin/python");
                let own = std::env::var_os("ATTNC_TEST_PYTHON").map_or(own, PathBuf::from);
                let python = if own.is_file() { own.to_string_lossy().into_owned() } else { "python3".to_string() };
                let numpy = Command::new(&python).args(["-c", "import numpy"]).output();
                if !numpy.is_ok_and(|output| output.status.success()) {
                    eprintln!("no NumPy: the Python of {} is not run", page.path);
                    continue;
                }
                let (good, output) = place.run(&python, &["-c", body]);
                if !good {
                    wrong += &format!("{}: the Python fails:\n{output}\n", page.path);
                }
            }
            // What installs or builds, and pictures: no command of attnc is among them, since it would not be run.
            "sh" | "text" => {
                if let Some(line) = body.lines().find(|line| line.starts_with("attnc ") || line.starts_with("$ ")) {
                    wrong += &format!("{}: `{line}` is not run; make it a block of `console`\n", page.path);
                }
            }
            // Of the tree: `extending` looks for them there.
            "diff" => {}
            // Settings of other programs.
            "toml" | "lua" => {}
            other => wrong += &format!("{}: `{other}`: a block of an unknown kind\n", page.path),
        }
    }
    if text != page.text {
        std::fs::write(Path::new(ROOT).join(&page.path), text).expect("a page");
    }
    (wrong, commands)
}

#[test]
fn commands_print_what_the_pages_show() {
    let pages = pages();
    let programs: Vec<_> = pages[0].blocks().into_iter().filter(|(language, _)| *language == "attn").collect();
    let results: Vec<(String, usize)> = std::thread::scope(|scope| {
        let started: Vec<_> = pages.iter().map(|page| scope.spawn(|| run_page(page, &programs))).collect();
        started.into_iter().map(|thread| thread.join().expect("a page that can be read")).collect()
    });
    let wrong: String = results.iter().map(|(wrong, _)| wrong.as_str()).collect();
    assert!(wrong.is_empty(), "{wrong}");
    let commands: usize = results.iter().map(|(_, commands)| commands).sum();
    assert!(commands >= 35, "{commands}");
}

/// Every option that a page names is one of attnc's, or stands behind the name of another program.
#[test]
fn flags_exist() {
    let place = Sandbox::new();
    let mut help = String::new();
    for command in [
        "compile",
        "check",
        "fmt",
        "fix",
        "run",
        "compare",
        "reduce",
        "generate",
        "chat",
        "embed",
        "train",
        "bench",
        "opt",
        "explain",
        "ref",
        "list",
        "ops",
        "std",
        "function",
        "completions",
        "learn",
        "play",
    ] {
        help += &place.run("attnc", &["help", command]).1;
    }
    let is_flag = |c: char| c.is_ascii_lowercase() || c == '-';
    let known: BTreeSet<&str> = help.split(|c: char| !is_flag(c)).filter(|word| word.starts_with("--")).collect();
    // A line of a block, or inline code, that begins with the name of a program that is not attnc.
    let others = ["cargo ", "tests/", "examples/", "fuzz/", "apt-get ", "python3 ", "jupyter "];
    let is_ours = |text: &&str| !others.iter().any(|other| text.trim_start().starts_with(other));
    for page in pages() {
        let (prose, blocks) = page.parts();
        let lines = blocks.iter().flat_map(|(_, body)| body.lines());
        let texts = quoted(&prose).chain(lines).filter(is_ours);
        let named = texts.flat_map(|text| text.split(|c: char| !is_flag(c))).filter(|word| word.starts_with("--"));
        for flag in named.filter(|word| word.bytes().any(|b| b != b'-')) {
            assert!(known.contains(flag), "{}: {flag} is not an option of attnc", page.path);
        }
    }
}

#[test]
fn programs_are_formatted() {
    let mut count = 0;
    for page in pages() {
        for (_, body) in page.blocks().into_iter().filter(|(language, _)| *language == "attn") {
            // Parts of programs are no files.
            let mut diagnostics = attnc::diagnostics::Diagnostics::new();
            if let Some(good) = attnc::format::format(attnc::source::FileId(0), body, &mut diagnostics) {
                assert_eq!(body, good, "{}: `attnc fmt` changes this", page.path);
                count += 1;
            }
        }
    }
    assert!(count > 0, "no program");
}

/// The part of an address that leads to a heading: `#how-fast-it-is`.
fn anchor(heading: &str) -> String {
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
    kept.collect::<String>().trim().to_lowercase().replace(' ', "-")
}

/// Every link leads to a file, and to a heading in it; every path in a text exists.
#[test]
fn paths_exist() {
    let root = Path::new(ROOT);
    let (mut wrong, mut count) = (Vec::new(), 0);
    for page in pages() {
        let folder = root.join(&page.path).parent().expect("a file has a folder").to_path_buf();
        let links = page.text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
        for link in links.filter(|link| !link.contains("://")) {
            let (path, heading) = link.split_once('#').map_or((link, None), |(path, heading)| (path, Some(heading)));
            let target = if path.is_empty() { root.join(&page.path) } else { folder.join(path) };
            let has = |heading: &str| {
                let text = std::fs::read_to_string(&target).unwrap_or_default();
                text.lines().any(|line| line.starts_with('#') && anchor(line.trim_start_matches('#')) == heading)
            };
            if !target.exists() || heading.is_some_and(|heading| !has(heading)) {
                wrong.push(format!("{}: {link}", page.path));
            }
            count += 1;
        }
        let is_path = |c: char| c.is_ascii_alphanumeric() || "._-/".contains(c);
        let folders = ["examples/", "src/", "tests/", "grammar/", "snapshots/", "docs/", "fuzz/", ".ci/"];
        let prose = page.parts().0;
        // A link was looked for from its page.
        let words = prose
            .split("](")
            .enumerate()
            .map(|(i, part)| if i == 0 { part } else { part.split_once(')').map_or("", |p| p.1) });
        for word in words.flat_map(|part| part.split(|c: char| !is_path(c))).map(|word| word.trim_end_matches('.')) {
            if folders.iter().any(|folder| word.starts_with(folder)) {
                count += 1;
                if !root.join(word).exists() {
                    wrong.push(format!("{}: {word}", page.path));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "these do not exist:\n{}", wrong.join("\n"));
    assert!(count > 150, "{count}");
}

/// Names with `::` on the pages about design, and in notes, are in the source.
#[test]
fn names_are_in_the_source() {
    let source: String = super::tidy::files("src", &["rs"]).iter().map(|path| super::tidy::read(path)).collect();
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    let known: BTreeSet<&str> = source.split(|c: char| !is_name(c)).collect();
    let mut wrong = Vec::new();
    for page in pages()
        .iter()
        .filter(|page| ["docs/design", "docs/notes", "docs/book"].iter().any(|at| page.path.starts_with(at)))
    {
        let prose = page.parts().0;
        for name in quoted(&prose).filter(|name| name.contains("::")) {
            let last = name.rsplit("::").next().unwrap_or_default();
            let last = last.split(|c: char| !is_name(c)).next().unwrap_or_default();
            if !known.contains(last) {
                wrong.push(format!("{}: {name}", page.path));
            }
        }
    }
    assert!(wrong.is_empty(), "the source does not have\n{}", wrong.join("\n"));
}

/// The README is short, and begins with what attnc is, the way through, and two commands: the first builds attnc and runs an
/// example, the second is how CI runs the tests.
#[test]
fn the_first_things_come_first() {
    let page = Page::read("README.md");
    let lines = page.text.lines().count();
    assert!(lines <= 250, "the README has {lines} lines; a page of docs/guide/ has room");
    assert!(page.text.starts_with("# attnc\n\nattnc "), "what it is");
    let blocks = page.blocks();
    let ("sh", commands) = blocks[0] else { panic!("the first block has commands: {:?}", blocks[0]) };
    assert!(page.text.find("](docs/pictures/pipeline.svg)") < page.text.find(commands), "the way through comes first");
    let joined = commands.replace("\\\n", " ");
    let commands: Vec<&str> = joined.lines().collect();
    let [first, tests] = commands.as_slice() else { panic!("two commands: {commands:?}") };
    let first = first.strip_prefix("cargo run --profile quick -- ").expect("the first command builds attnc");
    let (good, output) = Sandbox::new().run("sh", &["-c", &format!("attnc {first}")]);
    assert!(good, "{output}");
    let ci = std::fs::read_to_string(Path::new(ROOT).join(".ci/run")).expect("what CI runs");
    assert!(ci.contains(&format!("\nstep {tests}\n")), "CI does not run `{tests}`");
}

/// The tables of contents are whole: the README names every page of the guide, the page about design every one of its folder.
#[test]
fn every_page_is_linked() {
    for (from, folder, base) in [
        ("README.md", "docs/guide", ""),
        ("docs/design/README.md", "docs/design", "docs/design/"),
        ("docs/notes/README.md", "docs/notes", "docs/notes/"),
        ("docs/book/src/SUMMARY.md", "docs/book/src", "docs/book/src/"),
    ] {
        let text = Page::read(from).text;
        for path in super::tidy::files(folder, &["md"]).iter().filter(|path| *path != from) {
            let link = path.strip_prefix(base).unwrap_or(path);
            assert!(text.contains(&format!("]({link})")), "{from} does not link {path}");
        }
    }
}

/// The pictures are what their script makes of itself.
#[test]
fn pictures_are_made_by_their_script() {
    let folder = tempfile::tempdir().expect("a folder");
    let script = Path::new(ROOT).join("docs/pictures/make.py");
    let own = env!("CARGO_BIN_EXE_attnc");
    let Ok(output) = Command::new("python3").arg(script).arg(own).arg(folder.path()).output() else {
        eprintln!("no Python: the pictures are not compared");
        return;
    };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut pictures = super::tidy::files("docs/pictures", &["svg"]);
    pictures.extend(super::tidy::files("docs/book/src/pictures", &["svg"]));
    assert!(pictures.len() >= 6, "{pictures:?}");
    for path in pictures {
        let name = Path::new(&path).file_name().expect("a name");
        let made = std::fs::read_to_string(folder.path().join(name)).unwrap_or_default();
        assert!(made == super::tidy::read(&path), "{path} is old: run `python3 docs/pictures/make.py {own}`");
    }
}
