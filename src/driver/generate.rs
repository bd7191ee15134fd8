//! `attnc generate`: generates text with a model, token by token.
//!
//! In: a program with an entry point that takes tokens and returns the next one
//! (`generate/contract.rs`), weights, a tokenizer, a prompt. Out: the text on stdout, as it is
//! generated; on stderr the time it took, and why it ended. Choosing a token is part of the
//! program: nothing here uses scores.

mod contract;

pub(super) use contract::vocabulary;

use super::arguments::{self, Work};
use super::call::read_graph;
use super::levels::Levels;
use super::load::{How, opened};
use super::passes::pass_options;
use super::running::{call_failed, converted, function, unused};
use super::session::{CommandError, MAX_SOURCE, Session, command_line_error, message, print, reason, stdout_failed};
use super::stages::{self, Tiers};
use crate::cli::{GenerateOptions, Stop};
use crate::diagnostics::codes::{driver as driver_codes, weights as codes};
use crate::diagnostics::{Diagnostic, Severity};
use crate::files;
use crate::runtime::load::{LoadError, Session as Calls};
use crate::tokenizer::{self, Shown, Text, Tokenizer};
use contract::Contract;
use std::io::Read as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// `attnc generate FILE`
pub fn generate(options: &GenerateOptions) -> Result<(), CommandError> {
    let mut session = Session::new(&options.messages);
    let result = generate_in(&mut session, options);
    session.finish_timed(result, &options.passes)
}

fn generate_in(s: &mut Session, options: &GenerateOptions) -> Result<(), CommandError> {
    let pass_options = pass_options(&options.target, &options.passes)?;
    let mut graph = read_graph(s, &options.file, &options.program, "generate")?;
    let wanted = Some(options.function.as_str());
    let (name, _) = function(Work::Graph(&graph).entries(), wanted).map_err(|why| command_line_error(&why))?;
    let at = graph.functions.iter().position(|f| f.name == name && !f.tapped).unwrap_or(0);
    let contract = Contract::check(&graph.functions[at], options).map_err(|message| command_line_error(&message))?;
    let name = options.function.as_str();
    s.stage("read the prompt");
    let reader = tokenizer(s, "--tokenizer", &options.tokenizer)?;
    let other = options.output_tokenizer.as_deref().map(|path| tokenizer(s, "--output-tokenizer", path)).transpose()?;
    let reads = contract::reads(&graph);
    let (given, prompt) = prompt(s, &options.prompt, &reader, reads)?;
    // A tokenizer may have more tokens than the model has embeddings (image tokens, for example);
    // only tokens that are used must be in range.
    if let Some((token, bound)) = contract.too_great(&prompt) {
        let shown = options.tokenizer.display();
        let message = format!(
            "the tokenizer `{shown}` makes token {token} of the prompt, but `{name}` takes tokens below {bound}"
        );
        let help = "use the tokenizer that the model was trained with, or bind the size of the vocabulary with `--dim`";
        s.diagnostics.push(Diagnostic::error(codes::TOKENIZER, message).help(help));
        return Err(CommandError::Program);
    }
    if let Some(path) = &options.weights {
        arguments::weights(s, path)?;
    }

    // Only the called function is compiled.
    graph.functions.retain(|f| f.name == name);
    s.stage("passes");
    stages::optimise(s, &mut graph, &pass_options, &options.passes)?;
    let model = stages::describe(s, &graph.interface(), &graph.model, &graph.doc)?;
    if options.weights.is_none() && !model.params.is_empty() && options.random.is_none() {
        let message = format!("`{}` has parameters; use `--weights FILE`, or `--random` to see it run", model.name);
        return Err(command_line_error(&message));
    }
    let generator = stages::generator(options.backend);
    let levels = Levels::from_options(&options.target).for_graph(&graph, generator).keeping(&options.target, &graph)?;
    levels.run_here()?;
    let tiers = Tiers::for_library(s, &graph, &levels)?;
    let folder = stages::temporary(s)?;
    let weights =
        arguments::weights_file(s, &model, options.weights.as_deref(), options.random.unwrap_or(1), folder.path())?;
    let how = How { generator, remarks: options.passes.remarks, threads: options.threads };
    let loaded = opened(s, &tiers, &model, &how, weights.as_deref())?;
    unused(s, loaded.unused_weights());
    converted(&loaded.converted_weights());
    // Print messages before the text, not in the middle of it.
    s.report();

    s.stage("write");
    let interrupted = files::interrupts();
    let ready = loaded.entry(name).and_then(|entry| {
        let mut calls = loaded.session()?;
        calls.end_when(interrupted)?;
        Ok((entry, calls))
    });
    let (entry, calls) = ready.map_err(|error| call_failed(s, &error.text))?;
    let tokenizer = other.as_ref().unwrap_or(&reader);
    // A model that reads the whole prompt first writes a separate text, on a new line.
    let end: &[u8] = if reads && !given.ends_with(b"\n") { b"\n" } else { b"" };
    let echoed = if options.echo { [given.as_slice(), end].concat() } else { Vec::new() };
    let mut writer = Writer { name, entry, calls, interrupted, contract: &contract, tokenizer, written: Vec::new() };
    let (end, times) = writer.write(s, prompt, &echoed, options)?;
    let why = match end {
        End::Failed(error) => return Err(error),
        End::MaxTokens(most) => format!("it ended after `--max-tokens {most}`"),
        End::Text(ref stop) => format!("it ended before the text {stop:?}"),
        End::Token(stop) => format!("it ended before token {stop}"),
        End::Room(ref said) => format!("it ended where the model has no more room: {said}"),
        End::Interrupted => "it was interrupted".to_string(),
    };
    message(Severity::Note, &times.text(), &[why]);
    if matches!(end, End::Interrupted) { Err(CommandError::Interrupted) } else { Ok(()) }
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
    let tokens = tokenizer.encode(&text, is_whole).map_err(|why| command_line_error(&format!("the prompt: {why}")))?;
    if tokens.is_empty() {
        return Err(command_line_error(
            "the prompt is empty, and there is nothing to go on from; give at least one character, or a token that begins a text",
        ));
    }
    Ok((text, tokens))
}

/// Why generation ended.
enum End {
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

/// Time and token counts.
struct Times {
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
struct Writer<'a> {
    name: &'a str,
    entry: u64,
    calls: Calls<'a>,
    /// Set by Ctrl-C.
    interrupted: &'static AtomicBool,
    contract: &'a Contract,
    /// Converts written tokens to text.
    tokenizer: &'a Tokenizer,
    /// The tokens generated so far.
    written: Vec<u32>,
}

impl Writer<'_> {
    /// Writes `echoed`, then tokens until the end.
    fn write(
        &mut self,
        s: &mut Session,
        prompt: Vec<u32>,
        echoed: &[u8],
        options: &GenerateOptions,
    ) -> Result<(End, Times), CommandError> {
        let of_text = |stop: &Stop| if let Stop::Text(text) = stop { Some(text.clone()) } else { None };
        let mut text = Text::new(options.stop.iter().filter_map(of_text).collect());
        let mut times = Times { prompt: prompt.len(), first: Duration::ZERO, written: 0, rest: Duration::ZERO };
        let mut all = prompt;
        print(echoed).map_err(|error| stdout_failed(&error))?;
        let mut ends_line = echoed.is_empty() || echoed.ends_with(b"\n");
        let mut show = |text: &str| {
            ends_line = if text.is_empty() { ends_line } else { text.ends_with('\n') };
            print(text.as_bytes()).map_err(|error| stdout_failed(&error))
        };
        let begin = Instant::now();
        let end = loop {
            // Short calls do not poll for this themselves.
            if self.interrupted.load(Ordering::Relaxed) {
                break End::Interrupted;
            }
            if self.written.len() as u64 >= options.max_tokens {
                break End::MaxTokens(options.max_tokens);
            }
            let token = match self.next(&all) {
                Ok(token) => token,
                Err(error) if error.is_interrupt() => break End::Interrupted,
                Err(error) if !self.written.is_empty() && error.is_out_of_bounds() => break End::Room(error.text),
                Err(error) => break End::Failed(self.refused(s, times.prompt, &error)),
            };
            let is_stop = |stop: &Stop| matches!(stop, Stop::Token(n) if i64::from(*n) == token);
            if options.stop.iter().any(is_stop) {
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
