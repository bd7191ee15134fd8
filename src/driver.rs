//! The way through the compiler: reads the program, runs the stages in order, writes what was asked for.
//!
//! In: the options of a command. Out: files, text on stdout, diagnostics on stderr, and a [`Failure`] that
//! becomes the exit code. [`compile`] is one straight-line function: a stage is one line in it. All input and
//! output of the compiler happens here and in [`crate::runtime`]; the stages between are pure.

mod passes;

pub use passes::{Dumps, broken_pass, opt, pass_options};

use crate::cli::{CheckOptions, Colour, CompileOptions, EmitKind, ExplainOptions, MessageOptions};
use crate::diagnostics::codes::driver as codes;
use crate::diagnostics::{Diagnostic, Diagnostics, codes as registry, render_all};
use crate::syntax;
use crate::syntax::ast;
use crate::syntax::span::{FileId, SourceMap, Span};
use crate::types::{self, typed::Program};
use std::fmt::Write as _;
use std::io::{self, IsTerminal, Read, Write};
use std::path::{Path, PathBuf};

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

/// What a run of the compiler gathers: texts and diagnostics.
pub struct Session {
    /// All source texts.
    pub sources: SourceMap,
    /// What is to be reported.
    pub diagnostics: Diagnostics,
    colour: bool,
}

impl Session {
    /// A session without texts.
    pub fn new(messages: &MessageOptions) -> Session {
        let colour = match messages.color {
            Colour::Always => true,
            Colour::Never => false,
            Colour::Auto => io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none(),
        };
        Session { sources: SourceMap::new(), diagnostics: Diagnostics::new(), colour }
    }

    /// Reads a source text.
    pub fn read(&mut self, path: &Path) -> Result<FileId, Failure> {
        match read_source(path) {
            Ok(text) => Ok(self.sources.add(display_name(path), text)),
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
        let text = render_all(&diagnostics, &self.sources, self.colour);
        let _ = io::stderr().lock().write_all(text.as_bytes());
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

    /// Writes an output to a file, or to stdout for `-`.
    pub fn write(&mut self, path: &Path, content: &[u8]) -> Result<(), Failure> {
        if path == Path::new("-") {
            return print(content).map_err(|error| self.write_failed(path, &error));
        }
        std::fs::write(path, content).map_err(|error| self.write_failed(path, &error))
    }

    fn write_failed(&mut self, path: &Path, error: &io::Error) -> Failure {
        if error.kind() == io::ErrorKind::BrokenPipe {
            return Failure::NobodyReads;
        }
        let name = if path == Path::new("-") { "stdout".to_string() } else { format!("`{}`", path.display()) };
        self.fail(Diagnostic::error(codes::UNWRITABLE, format!("cannot write {name}: {}", reason(error))))
    }

    fn text(&self, file: FileId) -> String {
        self.sources.get(file).map_or(String::new(), |source| source.text().to_string())
    }
}

/// `attnc FILE`: compiles and writes what was asked for.
pub fn compile(options: &CompileOptions) -> Result<(), Failure> {
    let mut session = Session::new(&options.messages);
    let result = compile_in(&mut session, options);
    session.report();
    result
}

fn compile_in(session: &mut Session, options: &CompileOptions) -> Result<(), Failure> {
    let outputs = outputs(options).map_err(|message| command_line_error(&message))?;
    let file = session.read(&options.file)?;
    emit(session, &outputs, EmitKind::Tokens, |session| dump_tokens(session, file))?;
    let tree = parse(session, file);
    emit(session, &outputs, EmitKind::Ast, |session| {
        session.sources.get(file).map_or(String::new(), |source| syntax::dump::ast(&tree, source))
    })?;
    let program = types::check(&tree, &mut session.sources, &mut session.diagnostics);
    session.stop_on_errors()?;
    emit(session, &outputs, EmitKind::Types, |_| types::dump::dump(&program, file))?;
    match outputs.iter().find(|(kind, _)| *kind > EmitKind::Types) {
        Some((kind, _)) => Err(command_line_error(&format!("`--emit {}` is not part of this build", kind.name()))),
        None => Ok(()),
    }
}

/// `attnc check FILE`: all errors and warnings, nothing else.
pub fn check(options: &CheckOptions) -> Result<(), Failure> {
    let mut session = Session::new(&options.messages);
    let result = session.read(&options.file).and_then(|file| {
        front_end(&mut session, file);
        session.stop_on_errors()
    });
    session.report();
    result
}

/// Everything that can find an error in a program's text, as `check` runs it.
pub fn front_end(session: &mut Session, file: FileId) -> Program {
    let tree = parse(session, file);
    types::check(&tree, &mut session.sources, &mut session.diagnostics)
}

fn parse(session: &mut Session, file: FileId) -> ast::File {
    let text = session.text(file);
    syntax::parse(file, &text, &mut session.diagnostics)
}

fn dump_tokens(session: &Session, file: FileId) -> String {
    // What is wrong with the tokens is reported by the parser, which lexes again.
    let mut unused = Diagnostics::new();
    session
        .sources
        .get(file)
        .map_or(String::new(), |source| syntax::dump::tokens(&syntax::tokens(file, source.text(), &mut unused), source))
}

/// `attnc explain CODE`
pub fn explain(options: &ExplainOptions) -> Result<(), Failure> {
    let mut text = String::new();
    match &options.code {
        None => {
            for entry in registry::all() {
                let _ = writeln!(text, "{}  {}", entry.code, entry.title);
            }
        }
        Some(code) => {
            let Some(entry) = registry::find(code) else {
                let known = registry::all().map(|entry| entry.code.as_str());
                let hint = crate::diagnostics::did_you_mean(code, known);
                let hint = hint.map_or(String::new(), |code| format!("; did you mean {code}?"));
                return Err(command_line_error(&format!("there is no code `{code}`{hint}")));
            };
            let _ = writeln!(text, "{}: {}\n\n{}", entry.code, entry.title, entry.rule);
            if let Some(example) = entry.example {
                for (title, program) in [("This fails:", example.failing), ("This is mended:", example.mended)] {
                    let _ = writeln!(text, "\n{title}\n");
                    for line in program.lines() {
                        let _ = writeln!(text, "{}", format!("    {line}").trim_end());
                    }
                }
            }
        }
    }
    print(text.as_bytes()).map_err(|error| match error.kind() {
        io::ErrorKind::BrokenPipe => Failure::NobodyReads,
        _ => Failure::Surroundings,
    })
}

/// Writes to stdout and makes sure that it arrived.
fn print(content: &[u8]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(content)?;
    out.flush()
}

/// Reports a command line that cannot be followed.
pub fn command_line_error(message: &str) -> Failure {
    let text = format!("error: {message}\n\nFor more information, try 'attnc --help'.\n");
    let _ = io::stderr().lock().write_all(text.as_bytes());
    Failure::CommandLine
}

/// What to write and where: the kinds asked for (a shared library if none), each with its path.
pub fn outputs(options: &CompileOptions) -> Result<Vec<(EmitKind, PathBuf)>, String> {
    let mut kinds: Vec<(EmitKind, Option<PathBuf>)> = Vec::new();
    for emit in &options.emit {
        if kinds.iter().any(|(kind, _)| *kind == emit.kind) {
            return Err(format!("`--emit {}` is given twice", emit.kind.name()));
        }
        kinds.push((emit.kind, emit.path.clone()));
    }
    if kinds.is_empty() {
        kinds.push((EmitKind::So, None));
    }
    let open = kinds.iter().filter(|(_, path)| path.is_none()).count();
    let stdout = Path::new("-");
    if open > 1 && options.output.as_deref() == Some(stdout) {
        return Err("`-o -` takes one kind of output; give each its place: `--emit ir=-,tile=-`".to_string());
    }
    let stem = match &options.output {
        Some(output) => output.clone(),
        // Without `-o`, outputs go to the current folder, named as the program.
        None if options.file == stdout => PathBuf::from("model"),
        None => options.file.file_name().map_or(PathBuf::from("model"), PathBuf::from),
    };
    let place = |(kind, path): (EmitKind, Option<PathBuf>)| match (path, &options.output) {
        (Some(path), _) => (kind, path),
        (None, Some(output)) if open == 1 => (kind, output.clone()),
        (None, _) => (kind, stem.with_extension(kind.extension())),
    };
    let places: Vec<_> = kinds.into_iter().map(place).collect();
    for (i, (kind, path)) in places.iter().enumerate() {
        if *path == options.file && path != stdout {
            return Err(format!("`--emit {}` would overwrite the program `{}`", kind.name(), path.display()));
        }
        if path != stdout && places.iter().take(i).any(|(_, other)| other == path) {
            return Err(format!("two outputs would go to `{}`", path.display()));
        }
    }
    Ok(places)
}

/// Writes an output if it was asked for; `make` runs only then.
fn emit<T: AsRef<[u8]>>(
    session: &mut Session,
    outputs: &[(EmitKind, PathBuf)],
    kind: EmitKind,
    make: impl FnOnce(&Session) -> T,
) -> Result<(), Failure> {
    match outputs.iter().find(|(asked, _)| *asked == kind) {
        Some((_, path)) => {
            let content = make(session);
            session.write(path, content.as_ref())
        }
        None => Ok(()),
    }
}

fn display_name(path: &Path) -> String {
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
fn reason(error: &io::Error) -> String {
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or(&text);
    let mut chars = text.chars();
    chars.next().map_or(String::new(), |first| first.to_lowercase().chain(chars).collect())
}

/// The whole of a file, for diagnostics about all of it.
pub fn whole(sources: &SourceMap, file: FileId) -> Span {
    Span::new(file, 0, sources.get(file).map_or(0, |source| source.text().len() as u32))
}
