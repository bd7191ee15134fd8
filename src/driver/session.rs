//! What one run of the compiler holds: source texts, diagnostics, and how long each stage took.
//!
//! In: paths, contents, diagnostics. Out: files, text on stdout, messages on stderr, and a [`Failure`] that becomes the
//! exit code. It must not know the stages.

use crate::cli::{Colour, MessageFormat, MessageOptions};
use crate::diagnostics::codes::driver as codes;
use crate::diagnostics::{Diagnostic, Diagnostics, Severity, json, render_all};
use crate::files::{self, Identity};
use crate::syntax::span::{FileId, SourceMap, Span};
use std::fmt::Write as _;
use std::io::{self, IsTerminal, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The longest source text that is read.
pub const MAX_SOURCE: u64 = 4 << 20;

/// Why a command did not do what was asked; everything is reported already.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Failure {
    /// The program is wrong.
    Program,
    /// The command line is wrong.
    CommandLine,
    /// The surroundings: a file, a linker.
    Surroundings,
    /// The reader of our output has gone; nothing is wrong.
    NobodyReads,
    /// A bug of ours.
    Bug,
}

impl Failure {
    /// The process's exit code.
    pub fn exit_code(self) -> u8 {
        match self {
            Failure::NobodyReads => 0,
            Failure::Program => 1,
            Failure::CommandLine => 2,
            Failure::Surroundings => 3,
            Failure::Bug => 101,
        }
    }
}

/// Are messages JSON? Also those of a command that has no session yet or any more.
static JSON: AtomicBool = AtomicBool::new(false);

/// What a run of the compiler gathers: texts and diagnostics.
pub struct Session {
    /// All source texts.
    pub sources: SourceMap,
    /// What is to be reported.
    pub diagnostics: Diagnostics,
    colour: bool,
    verbose: bool,
    /// The files that were read.
    inputs: Vec<(Identity, PathBuf)>,
    /// The files that are written.
    outputs: Vec<(Identity, PathBuf)>,
    stages: Vec<(&'static str, Duration)>,
    running: Option<(&'static str, Instant)>,
}

impl Session {
    /// A session without texts.
    pub fn new(messages: &MessageOptions) -> Session {
        let colour = match messages.color {
            Colour::Always => true,
            Colour::Never => false,
            Colour::Auto => io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none(),
        };
        JSON.store(messages.error_format == MessageFormat::Json, Ordering::Relaxed);
        Session {
            sources: SourceMap::new(),
            diagnostics: Diagnostics::new(),
            colour,
            verbose: messages.verbose,
            inputs: Vec::new(),
            outputs: Vec::new(),
            stages: Vec::new(),
            running: None,
        }
    }

    /// Reads a source text.
    pub fn read(&mut self, path: &Path) -> Result<FileId, Failure> {
        match read_source(path) {
            Ok(text) => {
                self.reads(path);
                Ok(self.sources.add(display_name(path), text))
            }
            Err(why) => {
                let (diagnostic, failure) = *why;
                self.diagnostics.push(diagnostic);
                Err(failure)
            }
        }
    }

    /// Shows what was gathered on stderr and forgets it. A closed stderr is no reason to fail.
    pub fn report(&mut self) {
        let diagnostics = std::mem::take(&mut self.diagnostics);
        let text = match JSON.load(Ordering::Relaxed) {
            true => json::render_all(&diagnostics, &self.sources),
            false => render_all(&diagnostics, &self.sources, self.colour),
        };
        let _ = io::stderr().lock().write_all(text.as_bytes());
    }

    /// Adds an advice to the last diagnostic.
    pub(super) fn help(&mut self, text: &str) {
        let mut all: Vec<Diagnostic> = std::mem::take(&mut self.diagnostics).into_iter().collect();
        if let Some(last) = all.pop() {
            all.push(last.help(text));
        }
        all.into_iter().for_each(|diagnostic| self.diagnostics.push(diagnostic));
    }

    /// Tells with `--verbose` what is done.
    pub fn say(&self, text: &str) {
        if self.verbose {
            message(Severity::Note, text, &[]);
        }
    }

    /// Goes on only if there is no error.
    pub fn stop_on_errors(&self) -> Result<(), Failure> {
        if self.diagnostics.has_errors() { Err(Failure::Program) } else { Ok(()) }
    }

    /// Fails with an error of the surroundings.
    pub fn fail(&mut self, diagnostic: Diagnostic) -> Failure {
        self.diagnostics.push(diagnostic);
        Failure::Surroundings
    }

    /// A file is read by this command, and so no output may take its place.
    pub fn reads(&mut self, path: &Path) {
        if path != Path::new("-")
            && let Some(identity) = files::identity(path)
        {
            self.inputs.push((identity, path.to_path_buf()));
        }
    }

    /// Makes sure that an output takes the place of nothing that this command reads, and of no other output. Two paths
    /// may lead to one file.
    pub fn claim(&mut self, path: &Path) -> Result<(), Failure> {
        if path == Path::new("-") {
            return Ok(());
        }
        let Some(identity) = files::identity(path) else { return Ok(()) };
        let other = |list: &[(Identity, PathBuf)]| {
            list.iter().find(|(known, _)| *known == identity).map(|(_, other)| other.display().to_string())
        };
        let shown = path.display().to_string();
        let named = |other: String| if other == shown { String::new() } else { format!(", which is also `{other}`") };
        if let Some(input) = other(&self.inputs) {
            let also = named(input);
            return Err(command_line_error(&format!("the output `{shown}` would overwrite what is read{also}")));
        }
        if let Some(output) = other(&self.outputs) {
            return Err(command_line_error(&format!("two outputs would go to `{shown}`{}", named(output))));
        }
        self.outputs.push((identity, path.to_path_buf()));
        Ok(())
    }

    /// Writes an output to a file, or to stdout for `-`.
    pub fn write(&mut self, path: &Path, content: &[u8]) -> Result<(), Failure> {
        let done = if path == Path::new("-") { print(content) } else { files::write(path, content, false) };
        done.map_err(|error| self.write_failed(path, &error))?;
        self.wrote(path, content.len() as u64);
        Ok(())
    }

    /// Tells of a file that was written.
    pub(super) fn wrote(&self, path: &Path, size: u64) {
        if path != Path::new("-") {
            self.say(&format!("wrote `{}`, {size} bytes", path.display()));
        }
    }

    fn write_failed(&mut self, path: &Path, error: &io::Error) -> Failure {
        if error.kind() == io::ErrorKind::BrokenPipe {
            return Failure::NobodyReads;
        }
        let name = if path == Path::new("-") { "stdout".to_string() } else { format!("`{}`", path.display()) };
        self.fail(Diagnostic::error(codes::UNWRITABLE, format!("cannot write {name}: {}", reason(error))))
    }

    /// A stage begins here, and the one before it has ended.
    pub fn stage(&mut self, name: &'static str) {
        self.end_stage();
        self.running = Some((name, Instant::now()));
    }

    fn end_stage(&mut self) {
        if let Some((name, start)) = self.running.take() {
            self.stages.push((name, start.elapsed()));
        }
    }

    /// The time of each stage so far, as a table on stderr.
    pub fn report_times(&mut self) {
        self.end_stage();
        let mut table = String::from("// time of the stages\n");
        for (name, time) in &self.stages {
            let _ = writeln!(table, "{:>10.3} ms  {name}", time.as_secs_f64() * 1e3);
        }
        let all: Duration = self.stages.iter().map(|(_, time)| *time).sum();
        let _ = writeln!(table, "{:>10.3} ms  all", all.as_secs_f64() * 1e3);
        let _ = io::stderr().lock().write_all(table.as_bytes());
    }

    /// A source text.
    pub fn text(&self, file: FileId) -> String {
        self.sources.get(file).map_or(String::new(), |source| source.text().to_string())
    }
}

/// Tells something on stderr. A closed one is no reason to fail.
pub(super) fn tell(text: &str) {
    let _ = io::stderr().lock().write_all(text.as_bytes());
}

/// Writes to stdout and makes sure that it arrived.
pub(super) fn print(content: &[u8]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(content)?;
    out.flush()
}

/// Reports a command line that cannot be followed.
pub fn command_line_error(text: &str) -> Failure {
    if JSON.load(Ordering::Relaxed) {
        message(Severity::Error, text, &[]);
    } else {
        tell(&format!("error: {text}\n\nFor more information, try 'attnc --help'.\n"));
    }
    Failure::CommandLine
}

/// Reports something without a place or a code, with notes; in JSON where messages are.
pub(super) fn message(severity: Severity, text: &str, notes: &[String]) {
    if JSON.load(Ordering::Relaxed) {
        return tell(&json::plain(severity, text, notes));
    }
    let mut shown = format!("{}: {text}\n", json::level(severity));
    for note in notes {
        let _ = writeln!(shown, "  = note: {note}");
    }
    tell(&shown);
}

/// Reports a failure to write to stdout; a reader that has gone is none.
pub(super) fn stdout_failed(error: &io::Error) -> Failure {
    if error.kind() == io::ErrorKind::BrokenPipe {
        return Failure::NobodyReads;
    }
    message(Severity::Error, &format!("cannot write stdout: {}", reason(error)), &[]);
    Failure::Surroundings
}

/// The name under which messages show a file.
pub(super) fn display_name(path: &Path) -> String {
    if path == Path::new("-") { "<stdin>".to_string() } else { path.display().to_string() }
}

/// A source text, or what is wrong with the file.
fn read_source(path: &Path) -> Result<String, Box<(Diagnostic, Failure)>> {
    let name = display_name(path);
    let unreadable = |why: &str| {
        let message = format!("cannot read `{name}`: {why}");
        Box::new((Diagnostic::error(codes::UNREADABLE, message), Failure::Surroundings))
    };
    let mut bytes = Vec::new();
    if path == Path::new("-") {
        io::stdin().lock().take(MAX_SOURCE + 1).read_to_end(&mut bytes).map_err(|e| unreadable(&reason(&e)))?;
    } else {
        let is_folder = std::fs::metadata(path).map_err(|error| unreadable(&reason(&error)))?.is_dir();
        if is_folder {
            return Err(unreadable("it is a folder"));
        }
        let file = std::fs::File::open(path).map_err(|error| unreadable(&reason(&error)))?;
        file.take(MAX_SOURCE + 1).read_to_end(&mut bytes).map_err(|error| unreadable(&reason(&error)))?;
    }
    if bytes.len() as u64 > MAX_SOURCE {
        let message = format!("`{name}` is longer than 4 MiB, which no source text is");
        return Err(Box::new((Diagnostic::error(codes::TOO_LARGE, message), Failure::Program)));
    }
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        let before = error.as_bytes().get(..at).unwrap_or_default();
        let line = before.iter().filter(|&&byte| byte == b'\n').count() + 1;
        let byte = error.as_bytes().get(at).copied().unwrap_or_default();
        let message = format!("`{name}` is not UTF-8: byte 0x{byte:02x} in line {line} begins no character");
        let diagnostic = Diagnostic::error(codes::NOT_UTF8, message).note(format!("the byte is at offset {at}"));
        Box::new((diagnostic, Failure::Program))
    })
}

/// The operating system's reason without its number.
pub(super) fn reason(error: &io::Error) -> String {
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or(&text);
    let mut chars = text.chars();
    chars.next().map_or(String::new(), |first| first.to_lowercase().chain(chars).collect())
}

/// The whole of a file, for diagnostics about all of it.
pub fn whole(sources: &SourceMap, file: FileId) -> Span {
    Span::new(file, 0, sources.get(file).map_or(0, |source| source.text().len() as u32))
}
