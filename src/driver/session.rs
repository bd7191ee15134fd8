//! State of one run of the compiler: source texts, diagnostics, and the time of each stage.
//!
//! In: paths, contents, diagnostics. Out: files, text on stdout, messages on stderr, and a
//! [`CommandError`], which determines the exit code. It must not know the stages.

use super::observed::Observed;
use crate::cli::{Colour, MessageFormat, MessageOptions, PassOptions};
use crate::diagnostics::codes::driver as codes;
use crate::diagnostics::{Diagnostic, Diagnostics, Severity, json, render_all};
use crate::files::{self, Batch, Identity};
use crate::record::Record;
use crate::source::{FileId, SourceMap, Span};
use std::fmt::Write as _;
use std::io::{self, IsTerminal, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Maximum length of a source file.
pub const MAX_SOURCE: u64 = 4 << 20;

/// Why a command failed; the error has already been reported.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CommandError {
    /// An error in the program.
    Program,
    /// An error in the command line.
    CommandLine,
    /// An error in the environment: a file, the linker, memory.
    Environment,
    /// The reader of stdout has closed it; this is not an error.
    BrokenPipe,
    /// A bug in attnc.
    Bug,
    /// Interrupted by Ctrl-C, after showing the output so far.
    Interrupted,
}

impl CommandError {
    /// The process's exit code.
    pub fn exit_code(self) -> u8 {
        match self {
            CommandError::BrokenPipe => 0,
            CommandError::Program => 1,
            CommandError::CommandLine => 2,
            CommandError::Environment => 3,
            CommandError::Bug => 101,
            // The convention of shells for a process that a signal ended: 128 plus its number.
            CommandError::Interrupted => 130,
        }
    }
}

/// Messages are JSON. Global, for messages before and after a session.
static JSON: AtomicBool = AtomicBool::new(false);

/// Source texts and diagnostics of one run.
pub struct Session {
    /// All source texts.
    pub sources: SourceMap,
    /// Diagnostics not reported yet.
    pub diagnostics: Diagnostics,
    colour: bool,
    verbose: bool,
    /// The files that are read.
    inputs: Vec<(Identity, PathBuf)>,
    /// The files that are written.
    outputs: Vec<(Identity, PathBuf)>,
    /// Their contents, until the command succeeds.
    batch: Batch,
    /// Their paths.
    written: Vec<PathBuf>,
    /// The record of the compilation, if it is an output.
    pub(super) record: Option<Box<Record>>,
    /// Observes the steps of the schedule.
    pub(super) observed: Observed,
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
        Session::empty(colour, messages.verbose)
    }

    /// A session for a text whose diagnostics nobody reads.
    pub(super) fn for_text() -> Session {
        Session::empty(false, false)
    }

    fn empty(colour: bool, verbose: bool) -> Session {
        Session {
            sources: SourceMap::new(),
            diagnostics: Diagnostics::new(),
            colour,
            verbose,
            inputs: Vec::new(),
            outputs: Vec::new(),
            batch: Batch::default(),
            written: Vec::new(),
            record: None,
            observed: Observed::default(),
            stages: Vec::new(),
            running: None,
        }
    }

    /// Reads a source text.
    pub fn read(&mut self, path: &Path) -> Result<FileId, CommandError> {
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

    /// Prints and clears the diagnostics. Ignores a closed stderr.
    pub fn report(&mut self) {
        let diagnostics = std::mem::take(&mut self.diagnostics);
        let text = match JSON.load(Ordering::Relaxed) {
            true => json::render_all(&diagnostics, &self.sources),
            false => render_all(&diagnostics, &self.sources, self.colour),
        };
        let _ = io::stderr().lock().write_all(text.as_bytes());
    }

    /// Adds a help line to the last diagnostic.
    pub(super) fn help(&mut self, text: &str) {
        let mut all: Vec<Diagnostic> = std::mem::take(&mut self.diagnostics).into_iter().collect();
        if let Some(last) = all.pop() {
            all.push(last.help(text));
        }
        all.into_iter().for_each(|diagnostic| self.diagnostics.push(diagnostic));
    }

    /// Prints a note if `--verbose` was given.
    pub fn say(&self, text: &str) {
        if self.verbose {
            message(Severity::Note, text, &[]);
        }
    }

    /// Fails if there is an error.
    pub fn stop_on_errors(&self) -> Result<(), CommandError> {
        if self.diagnostics.has_errors() { Err(CommandError::Program) } else { Ok(()) }
    }

    /// Fails with an error of the environment.
    pub fn fail(&mut self, diagnostic: Diagnostic) -> CommandError {
        self.diagnostics.push(diagnostic);
        CommandError::Environment
    }

    /// Records that this command reads a file, so no output may overwrite it.
    pub fn reads(&mut self, path: &Path) {
        if path != Path::new("-")
            && let Some(identity) = files::identity(path)
        {
            self.inputs.push((identity, path.to_path_buf()));
        }
    }

    /// Checks that an output can be written, and that it overwrites no input of this command and no
    /// other output. Two paths may refer to one file.
    pub fn claim(&mut self, path: &Path) -> Result<(), CommandError> {
        if path == Path::new("-") {
            return Ok(());
        }
        let possible = |s: &mut Session| files::check(path).map_err(|error| s.write_failed(path, &error));
        let Some(identity) = files::identity(path) else { return possible(self) };
        let other = |list: &[(Identity, PathBuf)]| {
            list.iter().find(|(known, _)| *known == identity).map(|(_, other)| other.display().to_string())
        };
        let shown = path.display().to_string();
        let named = |other: String| if other == shown { String::new() } else { format!(", which is also `{other}`") };
        if let Some(input) = other(&self.inputs) {
            let also = named(input);
            return Err(command_line_error(&format!("the output `{shown}` would overwrite an input{also}")));
        }
        if let Some(output) = other(&self.outputs) {
            return Err(command_line_error(&format!("two outputs have the path `{shown}`{}", named(output))));
        }
        self.outputs.push((identity, path.to_path_buf()));
        possible(self)
    }

    /// Writes an output to a file, or to stdout for `-`. Regular files appear only when the command
    /// succeeds.
    pub fn write(&mut self, path: &Path, content: &[u8]) -> Result<(), CommandError> {
        if path == Path::new("-") {
            return print(content).map_err(|error| self.write_failed(path, &error));
        }
        self.write_by(path, &|out| out.write_all(content), false)
    }

    /// Writes an output incrementally; not to stdout.
    pub(super) fn write_by(
        &mut self,
        path: &Path,
        content: &files::Content<'_>,
        executable: bool,
    ) -> Result<(), CommandError> {
        self.batch.write(path, content, executable).map_err(|error| self.write_failed(path, &error))?;
        self.written.push(path.to_path_buf());
        Ok(())
    }

    /// Writes a file, whether or not the command succeeds.
    pub(super) fn write_now(&mut self, path: &Path, content: &[u8]) -> Result<(), CommandError> {
        self.write_whole(path, &|out| out.write_all(content))?;
        self.written.push(path.to_path_buf());
        Ok(())
    }

    /// The same, incrementally; a reader sees the old file or the new one.
    pub(super) fn write_whole(&mut self, path: &Path, content: &files::Content<'_>) -> Result<(), CommandError> {
        let mut batch = Batch::default();
        let written = batch.write(path, content, false).and_then(|()| batch.commit().map_err(|(_, error)| error));
        written.map_err(|error| self.write_failed(path, &error))
    }

    /// Ends a command: commits its files if it succeeded, and prints its diagnostics.
    pub(super) fn finish(&mut self, result: Result<(), CommandError>) -> Result<(), CommandError> {
        let batch = std::mem::take(&mut self.batch);
        // If the reader of stdout has closed it, files are still written.
        let result = match result {
            Ok(()) | Err(CommandError::BrokenPipe) => self.commit(batch).and(result),
            Err(error) => Err(error),
        };
        self.report();
        result
    }

    /// The same, and `--time-passes` prints the times of the stages.
    pub(super) fn finish_timed(
        &mut self,
        result: Result<(), CommandError>,
        passes: &PassOptions,
    ) -> Result<(), CommandError> {
        let result = self.finish(result);
        if passes.time_passes {
            self.report_times();
        }
        result
    }

    fn commit(&mut self, mut batch: Batch) -> Result<(), CommandError> {
        batch.commit().map_err(|(path, error)| self.write_failed(&path, &error))?;
        for path in std::mem::take(&mut self.written) {
            let size = std::fs::metadata(&path).ok().filter(std::fs::Metadata::is_file);
            let size = size.map_or(String::new(), |found| format!(", {} bytes", found.len()));
            self.say(&format!("wrote `{}`{size}", path.display()));
        }
        Ok(())
    }

    fn write_failed(&mut self, path: &Path, error: &io::Error) -> CommandError {
        if error.kind() == io::ErrorKind::BrokenPipe {
            return CommandError::BrokenPipe;
        }
        let name = if path == Path::new("-") { "stdout".to_string() } else { format!("`{}`", path.display()) };
        self.fail(Diagnostic::error(codes::UNWRITABLE, format!("cannot write {name}: {}", reason(error))))
    }

    /// Starts a stage, which ends the previous one.
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
    fn report_times(&mut self) {
        self.end_stage();
        let mut table = String::from("// time of each stage\n");
        for (name, time) in &self.stages {
            let _ = writeln!(table, "{:>10.3} ms  {name}", time.as_secs_f64() * 1e3);
        }
        let all: Duration = self.stages.iter().map(|(_, time)| *time).sum();
        let _ = writeln!(table, "{:>10.3} ms  total", all.as_secs_f64() * 1e3);
        let _ = io::stderr().lock().write_all(table.as_bytes());
    }

    /// The text of a source.
    pub fn text(&self, file: FileId) -> String {
        self.sources.get(file).map_or(String::new(), |source| source.text().to_string())
    }
}

/// Prints on stderr; `false` if it is closed.
pub(super) fn tell(text: &str) -> bool {
    io::stderr().lock().write_all(text.as_bytes()).is_ok()
}

/// Writes to stdout and flushes it.
pub(super) fn print(content: &[u8]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(content)?;
    out.flush()
}

/// Reports an error in the command line.
pub fn command_line_error(text: &str) -> CommandError {
    if JSON.load(Ordering::Relaxed) {
        message(Severity::Error, text, &[]);
    } else {
        tell(&format!("error: {text}\n\nFor more information, try 'attnc --help'.\n"));
    }
    CommandError::CommandLine
}

/// Reports an external program that is missing, or does not work.
pub(super) fn environment_error(text: &str) -> CommandError {
    message(Severity::Error, text, &[]);
    CommandError::Environment
}

/// Prints a message without a location or code, with notes; as JSON if requested.
pub(super) fn message(severity: Severity, text: &str, notes: &[String]) {
    if JSON.load(Ordering::Relaxed) {
        tell(&json::plain(severity, text, notes));
        return;
    }
    let mut shown = format!("{}: {text}\n", json::level(severity));
    for note in notes {
        let _ = writeln!(shown, "  = note: {note}");
    }
    tell(&shown);
}

/// Reports a failure to write to stdout, unless the reader has closed it.
pub(super) fn stdout_failed(error: &io::Error) -> CommandError {
    if error.kind() == io::ErrorKind::BrokenPipe {
        return CommandError::BrokenPipe;
    }
    message(Severity::Error, &format!("cannot write stdout: {}", reason(error)), &[]);
    CommandError::Environment
}

/// The name of a file in messages.
pub(super) fn display_name(path: &Path) -> String {
    if path == Path::new("-") { "<stdin>".to_string() } else { path.display().to_string() }
}

/// Reads a source file.
fn read_source(path: &Path) -> Result<String, Box<(Diagnostic, CommandError)>> {
    let name = display_name(path);
    let unreadable = |why: &str| {
        let message = format!("cannot read `{name}`: {why}");
        Box::new((Diagnostic::error(codes::UNREADABLE, message), CommandError::Environment))
    };
    let read = if path == Path::new("-") {
        let mut bytes = Vec::new();
        io::stdin().lock().take(MAX_SOURCE + 1).read_to_end(&mut bytes).map(|_| bytes)
    } else {
        files::read(path, MAX_SOURCE + 1)
    };
    let bytes = read.map_err(|error| unreadable(&reason(&error)))?;
    if bytes.len() as u64 > MAX_SOURCE {
        let message = format!("`{name}` is longer than 4 MiB, the limit for source files");
        return Err(Box::new((Diagnostic::error(codes::TOO_LARGE, message), CommandError::Program)));
    }
    let line_of = |before: &[u8]| before.iter().filter(|&&byte| byte == b'\n').count() + 1;
    let not_text = |message: String, at: usize| {
        let diagnostic = Diagnostic::error(codes::NOT_UTF8, message).note(format!("the byte is at offset {at}"));
        Box::new((diagnostic, CommandError::Program))
    };
    let text = String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        let line = line_of(error.as_bytes().get(..at).unwrap_or_default());
        let byte = error.as_bytes().get(at).copied().unwrap_or_default();
        not_text(format!("`{name}` is not UTF-8: byte 0x{byte:02x} in line {line} does not begin a character"), at)
    })?;
    match text.find('\0') {
        Some(at) => {
            let line = line_of(text.as_bytes().get(..at).unwrap_or_default());
            Err(not_text(format!("`{name}` is not a text: it has a NUL byte in line {line}"), at))
        }
        None => Ok(text),
    }
}

/// The error message of the operating system, without its number.
pub(super) fn reason(error: &io::Error) -> String {
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or(&text);
    let mut chars = text.chars();
    chars.next().map_or(String::new(), |first| first.to_lowercase().chain(chars).collect())
}

/// A span of the whole file, for diagnostics about all of it.
pub fn whole(sources: &SourceMap, file: FileId) -> Span {
    Span::new(file, 0, sources.get(file).map_or(0, |source| source.text().len() as u32))
}

/// Prints on stdout. A closed reader is not an error.
pub(super) fn show(text: &str) -> Result<(), CommandError> {
    print(text.as_bytes()).map_err(|error| stdout_failed(&error))
}

/// Formats two columns; the second is aligned, except after very wide entries.
pub(super) fn columns(rows: &[(String, String)]) -> String {
    let width = rows.iter().map(|(first, _)| first.chars().count()).max().unwrap_or(0).min(48);
    rows.iter().map(|(first, second)| format!("{first:width$}  {second}\n")).collect()
}
