//! `attnc generate`: generates text with a model, token by token.
//!
//! In: a program with an entry point that takes tokens and returns the next one
//! (`generate/contract.rs`), weights, a tokenizer, a prompt. Out: the text on stdout, as it is
//! generated; on stderr the time it took, and why it ended. Choosing a token is part of the
//! program: nothing here uses scores.

mod contract;
mod program;

pub(super) use contract::{Contract, reads, vocabulary};
pub(super) use program::{Program, calls};

use super::running::call_failed;
use super::session::{CommandError, MAX_SOURCE, Session, command_line_error, message, print, reason, stdout_failed};
use crate::cli::{GenerateOptions, ModelOptions, Stop, WriteOptions};
use crate::diagnostics::codes::{driver as driver_codes, weights as codes};
use crate::diagnostics::{Diagnostic, Severity};
use crate::files;
use crate::runtime::load::{LoadError, Session as Calls};
use crate::tokenizer::{self, Marks, Shown, Text, Tokenizer};
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// `attnc generate FILE`
pub fn generate(options: &GenerateOptions) -> Result<(), CommandError> {
    let mut session = Session::new(&options.model.messages);
    let result = generate_in(&mut session, options);
    session.finish_timed(result, &options.model.passes)
}

fn generate_in(s: &mut Session, options: &GenerateOptions) -> Result<(), CommandError> {
    let write = &options.write;
    let program = Program::read(s, &options.model, "generate", &write.function)?;
    let contract = Contract::check(program.function(), write).map_err(|message| command_line_error(&message))?;
    s.stage("read the prompt");
    let mut voice = Voice::read(s, &options.model, write)?;
    let reads = reads(&program.graph);
    let (given, prompt) = prompt(s, &options.prompt, &voice.reader, reads)?;
    fits(s, &contract, &prompt, (&options.model.tokenizer, &write.function))?;
    let name = program.name.clone();
    let loaded = program.opened(s, &options.model)?;
    s.stage("write");
    let interrupted = files::interrupts();
    let (entry, calls) = calls(&loaded, &name, s, interrupted)?;
    // A model that reads the whole prompt first writes a separate text, on a new line.
    let end: &[u8] = if reads && !given.ends_with(b"\n") { b"\n" } else { b"" };
    let echoed = if options.echo { [given.as_slice(), end].concat() } else { Vec::new() };
    let stops = std::mem::take(&mut voice.stops);
    let mut writer = Writer::new(&name, (entry, calls), interrupted, &contract, voice.writer());
    let (end, times) = writer.write(s, prompt, &echoed, &stops, write.max_tokens)?;
    let why = match end {
        End::Failed(error) => return Err(error),
        ref end => end.why(),
    };
    message(Severity::Note, &times.text(), &[why]);
    if matches!(end, End::Interrupted) { Err(CommandError::Interrupted) } else { Ok(()) }
}

/// The tokenizers of a model that writes, and where it stops.
pub(super) struct Voice {
    pub(super) reader: Tokenizer,
    other: Option<Tokenizer>,
    pub(super) stops: Vec<Stop>,
}

impl Voice {
    pub(super) fn read(s: &mut Session, model: &ModelOptions, write: &WriteOptions) -> Result<Voice, CommandError> {
        let reader = tokenizer(s, "--tokenizer", &model.tokenizer)?;
        let other = write.output_tokenizer.as_deref();
        let other = other.map(|path| tokenizer(s, "--output-tokenizer", path)).transpose()?;
        let mut stops = write.stop.clone();
        if let Some(file) = beside(&model.tokenizer, "generation_config.json") {
            let ends = ends(&text(s, &file)?);
            stops.extend(ends.map_err(|why| unusable(s, &file, &why))?.into_iter().map(Stop::Token));
        }
        Ok(Voice { reader, other, stops })
    }

    /// Converts written tokens to text.
    pub(super) fn writer(&self) -> &Tokenizer {
        self.other.as_ref().unwrap_or(&self.reader)
    }
}

/// The tokens that end a text, by a `generation_config.json`.
fn ends(text: &str) -> Result<Vec<u32>, String> {
    let file: serde_json::Value = serde_json::from_str(text).map_err(|error| format!("it is not JSON: {error}"))?;
    let one = |value: &serde_json::Value| value.as_u64().and_then(|token| u32::try_from(token).ok());
    let found = match &file["eos_token_id"] {
        serde_json::Value::Null => Some(Vec::new()),
        serde_json::Value::Array(all) => all.iter().map(one).collect(),
        value => one(value).map(|token| vec![token]),
    };
    found.ok_or_else(|| "its `eos_token_id` is not a token, or a list of tokens".to_owned())
}

/// A file beside a tokenizer's, if there is one.
pub(super) fn beside(tokenizer: &Path, name: &str) -> Option<PathBuf> {
    (tokenizer != Path::new("bytes")).then(|| tokenizer.with_file_name(name)).filter(|path| path.exists())
}

/// The text of such a file.
pub(super) fn text(s: &mut Session, path: &Path) -> Result<String, CommandError> {
    let file = s.read(path)?;
    Ok(s.text(file).to_string())
}

/// The error for such a file.
pub(super) fn unusable(s: &mut Session, path: &Path, why: &str) -> CommandError {
    s.fail(Diagnostic::error(codes::TOKENIZER, format!("`{}` cannot be used: {why}", path.display())))
}

/// Checks that the model knows all tokens. A tokenizer may have more tokens than the model has
/// embeddings (image tokens, for example).
pub(super) fn fits(
    s: &mut Session,
    contract: &Contract,
    tokens: &[u32],
    (tokenizer, name): (&Path, &str),
) -> Result<(), CommandError> {
    let Some((token, bound)) = contract.too_great(tokens) else { return Ok(()) };
    let shown = tokenizer.display();
    let message =
        format!("the tokenizer `{shown}` makes token {token} of the prompt, but `{name}` takes tokens below {bound}");
    let help = "use the tokenizer that the model was trained with, or bind the size of the vocabulary with `--dim`";
    s.diagnostics.push(Diagnostic::error(codes::TOKENIZER, message).help(help));
    Err(CommandError::Program)
}

/// The tokenizer named by an option: `bytes`, or a file.
pub(super) fn tokenizer(s: &mut Session, option: &str, path: &Path) -> Result<Tokenizer, CommandError> {
    if path == Path::new("bytes") {
        return Ok(Tokenizer::Bytes);
    }
    let shown = path.display();
    let is_file = std::fs::metadata(path).map(|found| found.is_file());
    let read = match is_file {
        Ok(false) => Err("it is not a regular file".to_string()),
        Ok(true) => text_of(path).map_err(|error| reason(&error)),
        Err(error) => Err(reason(&error)),
    };
    s.reads(path);
    let made = read.and_then(|text| Tokenizer::read(&text));
    made.map_err(|why| {
        let help = format!("`{option}` takes `bytes`, or the `tokenizer.json` of the model's checkpoint");
        s.fail(Diagnostic::error(codes::TOKENIZER, format!("the tokenizer `{shown}` cannot be used: {why}")).help(help))
    })
}

/// Reads a tokenizer file; if it exceeds the size limit, only as much as shows that.
fn text_of(path: &Path) -> std::io::Result<String> {
    let mut bytes = Vec::new();
    std::fs::File::open(path)?.take(tokenizer::LONGEST as u64 + 1).read_to_end(&mut bytes)?;
    if bytes.len() > tokenizer::LONGEST {
        // The limit may be inside a character.
        return Ok(String::from_utf8_lossy(&bytes).into_owned());
    }
    String::from_utf8(bytes).map_err(|error| std::io::Error::new(std::io::ErrorKind::InvalidData, error))
}

/// The prompt and its tokens; `is_whole`: it is a complete text rather than the start of one.
fn prompt(
    s: &mut Session,
    given: &str,
    tokenizer: &Tokenizer,
    is_whole: bool,
) -> Result<(Vec<u8>, Vec<u32>), CommandError> {
    let mut text = given.as_bytes().to_vec();
    if given == "-" {
        text.clear();
        if let Err(error) = std::io::stdin().lock().take(MAX_SOURCE + 1).read_to_end(&mut text) {
            let message = format!("cannot read the prompt from stdin: {}", reason(&error));
            return Err(s.fail(Diagnostic::error(driver_codes::UNREADABLE, message)));
        }
        if text.len() as u64 > MAX_SOURCE {
            return Err(command_line_error("the prompt on stdin is longer than 4 MiB, the limit for prompts"));
        }
    }
    let tokens = tokenizer
        .encode(&text, if is_whole { Marks::Both } else { Marks::Begin })
        .map_err(|why| command_line_error(&format!("the prompt: {why}")))?;
    if tokens.is_empty() {
        return Err(command_line_error(
            "the prompt is empty, and there is nothing to go on from; give at least one character, or a token that begins a text",
        ));
    }
    Ok((text, tokens))
}

/// Why generation ended.
pub(super) enum End {
    /// The limit of `--max-tokens`.
    MaxTokens(u64),
    /// Before a stop string.
    Text(String),
    /// Before a stop token.
    Token(u32),
    /// The model's caches are full; its message.
    Room(String),
    /// Ctrl-C.
    Interrupted,
    /// An error that was already reported to the session.
    Failed(CommandError),
}

impl End {
    /// In words.
    pub(super) fn why(&self) -> String {
        match self {
            End::MaxTokens(most) => format!("it ended after `--max-tokens {most}`"),
            End::Text(stop) => format!("it ended before the text {stop:?}"),
            End::Token(stop) => format!("it ended before token {stop}"),
            End::Room(said) => format!("it ended where the model has no more room: {said}"),
            End::Interrupted => "it was interrupted".to_string(),
            End::Failed(_) => "it failed".to_string(),
        }
    }
}

/// Time and token counts.
pub(super) struct Times {
    prompt: usize,
    first: Duration,
    written: usize,
    rest: Duration,
}

impl Times {
    fn text(&self) -> String {
        let first = match self.written {
            0 => String::new(),
            _ => format!(", the first token after {:.1} ms", self.first.as_secs_f64() * 1e3),
        };
        let rate = match (self.written.saturating_sub(1), self.rest.as_secs_f64()) {
            (steps @ 1.., seconds) if seconds > 0.0 => {
                format!(", {:.1} tokens/s after the first", steps as f64 / seconds)
            }
            _ => String::new(),
        };
        format!("a prompt of {}{first}; {} written{rate}", tokens(self.prompt), tokens(self.written))
    }
}

fn tokens(count: usize) -> String {
    if count == 1 { "1 token".to_string() } else { format!("{count} tokens") }
}

/// A model that generates text.
pub(super) struct Writer<'a> {
    name: &'a str,
    entry: u64,
    pub(super) calls: Calls<'a>,
    /// Set by Ctrl-C.
    interrupted: &'static AtomicBool,
    contract: &'a Contract,
    /// Converts written tokens to text.
    tokenizer: &'a Tokenizer,
    /// The tokens generated so far.
    written: Vec<u32>,
    /// All tokens that the model has read.
    pub(super) read: Vec<u32>,
    /// The text generated so far.
    pub(super) said: String,
}

impl<'a> Writer<'a> {
    pub(super) fn new(
        name: &'a str,
        (entry, calls): (u64, Calls<'a>),
        interrupted: &'static AtomicBool,
        contract: &'a Contract,
        tokenizer: &'a Tokenizer,
    ) -> Writer<'a> {
        let (written, read, said) = (Vec::new(), Vec::new(), String::new());
        Writer { name, entry, calls, interrupted, contract, tokenizer, written, read, said }
    }

    /// Writes `echoed`, then tokens until the end.
    pub(super) fn write(
        &mut self,
        s: &mut Session,
        prompt: Vec<u32>,
        echoed: &[u8],
        stops: &[Stop],
        max_tokens: u64,
    ) -> Result<(End, Times), CommandError> {
        (self.written, self.said) = (Vec::new(), String::new());
        let of_text = |stop: &Stop| if let Stop::Text(text) = stop { Some(text.clone()) } else { None };
        let mut text = Text::new(stops.iter().filter_map(of_text).collect());
        let mut times = Times { prompt: prompt.len(), first: Duration::ZERO, written: 0, rest: Duration::ZERO };
        let mut all = prompt;
        print(echoed).map_err(|error| stdout_failed(&error))?;
        let mut ends_line = echoed.is_empty() || echoed.ends_with(b"\n");
        let mut said = String::new();
        let mut show = |text: &str| {
            said.push_str(text);
            ends_line = if text.is_empty() { ends_line } else { text.ends_with('\n') };
            print(text.as_bytes()).map_err(|error| stdout_failed(&error))
        };
        let begin = Instant::now();
        let end = loop {
            // Short calls do not poll for this themselves.
            if self.interrupted.load(Ordering::Relaxed) {
                break End::Interrupted;
            }
            if self.written.len() as u64 >= max_tokens {
                break End::MaxTokens(max_tokens);
            }
            let token = match self.next(&all) {
                Ok(token) => token,
                Err(error) if error.is_interrupt() => break End::Interrupted,
                Err(error) if !self.written.is_empty() && error.is_out_of_bounds() => break End::Room(error.text),
                Err(error) => break End::Failed(self.refused(s, times.prompt, &error)),
            };
            let is_stop = |stop: &Stop| matches!(stop, Stop::Token(n) if i64::from(*n) == token);
            if stops.iter().any(is_stop) {
                break End::Token(u32::try_from(token).unwrap_or(0));
            }
            let known = u32::try_from(token).ok().and_then(|token| Some((token, self.tokenizer.bytes(token)?)));
            let Some((token, bytes)) = known else { break End::Failed(self.no_token(s, token)) };
            self.written.push(token);
            if self.contract.keeps {
                all.clear();
            }
            all.push(token);
            let now = begin.elapsed();
            if self.written.len() == 1 {
                times.first = now;
            }
            times.rest = now - times.first;
            times.written = self.written.len();
            match text.push(&bytes) {
                Shown::More(more) => show(&more)?,
                Shown::Stopped(last, stop) => {
                    show(&last)?;
                    break End::Text(stop);
                }
            }
        };
        show(&text.finish())?;
        self.said = said;
        if !ends_line {
            print(b"\n").map_err(|error| stdout_failed(&error))?;
        }
        Ok((end, times))
    }

    /// The token that follows `tokens`.
    fn next(&mut self, tokens: &[u32]) -> Result<i64, LoadError> {
        let wrong = || LoadError { status: -1, text: "the tokens are not a valid argument of this call".to_string() };
        let args = self.contract.arguments(tokens).ok_or_else(wrong)?;
        let results = self.calls.call(self.entry, &args)?;
        let known = if self.contract.keeps { 0 } else { self.read.len() };
        self.read.extend(tokens.get(known..).unwrap_or_default());
        results.first().and_then(|token| token.to_i64().first().copied()).ok_or_else(wrong)
    }

    /// The error of a call that returned no token.
    fn refused(&self, s: &mut Session, prompt: usize, error: &LoadError) -> CommandError {
        let failure = call_failed(s, &error.text);
        if self.written.is_empty() && error.is_out_of_bounds() {
            let has = tokens(prompt);
            s.help(&format!("the prompt has {has}; give another one, or the model more room (`--dim`)"));
        }
        failure
    }

    /// The error for a result that is not a token.
    fn no_token(&self, s: &mut Session, token: i64) -> CommandError {
        let at = self.written.len() + 1;
        let (message, help) = if token == -1 {
            (
                format!("`{}` gave {token} instead of token {at}: a score is NaN", self.name),
                "compare the weights with the program, and `--pack f32` or a wider element type with the current one",
            )
        } else if token < 0 {
            (
                format!("`{}` gave {token} as token {at}, and tokens are not negative", self.name),
                "the program must return the number of a token, or -1 where a score is NaN",
            )
        } else {
            (
                format!("`{}` gave {token} as token {at}, which the tokenizer does not have", self.name),
                "use the tokenizer that the model was trained with",
            )
        };
        s.diagnostics.push(Diagnostic::error(codes::NO_TOKEN, message).help(help));
        CommandError::Program
    }
}
