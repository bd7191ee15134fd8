//! `attnc chat`: a conversation with a model, a loop around `attnc generate`.
//!
//! In: the same, and the chat template of the checkpoint; messages on stdin, one per line. Out: the
//! answers on stdout. A model with state keeps the conversation: it reads only what is new, unless
//! the template changed what it had read.

use super::generate::{Contract, End, Program, Voice, Writer, beside, calls, fits, reads, text, unusable};
use super::session::{CommandError, MAX_SOURCE, Session, command_line_error, message, reason};
use crate::cli::{ChatOptions, Stop};
use crate::diagnostics::codes::driver as codes;
use crate::diagnostics::{Diagnostic, Severity};
use crate::files;
use crate::tokenizer::{ChatTemplate, Marks, Message};
use std::io::{BufRead as _, IsTerminal as _, Read as _};

/// `attnc chat FILE`
pub fn chat(options: &ChatOptions) -> Result<(), CommandError> {
    let mut session = Session::new(&options.model.messages);
    let result = chat_in(&mut session, options);
    session.finish_timed(result, &options.model.passes)
}

fn chat_in(s: &mut Session, options: &ChatOptions) -> Result<(), CommandError> {
    let (model, write) = (&options.model, &options.write);
    let program = Program::read(s, model, "chat", &write.function)?;
    let contract = Contract::check(program.function(), write).map_err(|message| command_line_error(&message))?;
    if reads(&program.graph) {
        return Err(command_line_error("the model reads one text and writes another; it has no conversations"));
    }
    s.stage("read the template");
    let mut voice = Voice::read(s, model, write)?;
    let template = template(s, options)?;
    // The token that ends an answer, if it is one.
    let end = template.token("eos_token").map(|text| voice.reader.encode(text.as_bytes(), Marks::None));
    if let Some(Ok([token])) = end.as_ref().map(|tokens| tokens.as_deref()) {
        voice.stops.push(Stop::Token(*token));
    }
    let system = options.system.iter().map(|text| Message { role: "system", content: text.clone() });
    let mut messages: Vec<Message> = system.collect();
    let name = program.name.clone();
    let loaded = program.opened(s, model)?;
    s.stage("write");
    let interrupted = files::interrupts();
    let opened = calls(&loaded, &name, s, interrupted)?;
    let mut writer = Writer::new(&name, opened, interrupted, &contract, voice.writer());
    while let Some(line) = line(s)? {
        if line.is_empty() {
            continue;
        }
        messages.push(Message { role: "user", content: line });
        let refused = |why: String| command_line_error(&format!("the conversation: {why}"));
        let prompt = template.render(&messages).map_err(|why| refused(format!("the chat template: {why}")))?;
        let tokens = voice.reader.encode(prompt.as_bytes(), Marks::None).map_err(refused)?;
        fits(s, &contract, &tokens, (&model.tokenizer, &name))?;
        let is_new = tokens.strip_prefix(writer.read.as_slice()).filter(|new| contract.keeps && !new.is_empty());
        let new = match is_new {
            Some(new) => new.to_vec(),
            None => {
                writer.calls.reset().map_err(|error| super::running::call_failed(s, &error.text))?;
                writer.read.clear();
                tokens
            }
        };
        if new.is_empty() {
            return Err(refused("the chat template makes an empty prompt".to_owned()));
        }
        let (end, _) = writer.write(s, new, b"", &voice.stops, write.max_tokens)?;
        match end {
            End::Failed(error) => return Err(error),
            End::Interrupted => return Err(CommandError::Interrupted),
            End::MaxTokens(_) | End::Room(_) => message(Severity::Note, "the answer is not complete", &[end.why()]),
            End::Text(_) | End::Token(_) => {}
        }
        messages.push(Message { role: "assistant", content: std::mem::take(&mut writer.said) });
    }
    Ok(())
}

/// The chat template.
fn template(s: &mut Session, options: &ChatOptions) -> Result<ChatTemplate, CommandError> {
    let tokenizer = &options.model.tokenizer;
    let file = options.template.clone().or_else(|| beside(tokenizer, "chat_template.jinja"));
    let config = beside(tokenizer, "tokenizer_config.json");
    let own = file.as_deref().map(|path| text(s, path)).transpose()?;
    let fields = config.as_deref().map(|path| text(s, path)).transpose()?;
    let shown = file.or(config).unwrap_or_else(|| tokenizer.with_file_name("tokenizer_config.json"));
    let made = ChatTemplate::read(fields.as_deref().unwrap_or("{}"), own.as_deref());
    made.map_err(|why| unusable(s, &shown, &why))
}

/// A message on stdin; `None` at its end.
fn line(s: &mut Session) -> Result<Option<String>, CommandError> {
    if std::io::stdin().is_terminal() {
        eprint!("> ");
    }
    let mut bytes = Vec::new();
    if let Err(error) = std::io::stdin().lock().take(MAX_SOURCE + 1).read_until(b'\n', &mut bytes) {
        let message = format!("cannot read a message from stdin: {}", reason(&error));
        return Err(s.fail(Diagnostic::error(codes::UNREADABLE, message)));
    }
    if bytes.len() as u64 > MAX_SOURCE {
        return Err(command_line_error("a message on stdin is longer than 4 MiB, the limit"));
    }
    let text = String::from_utf8(bytes).map_err(|_| command_line_error("a message on stdin is not UTF-8"))?;
    Ok((!text.is_empty()).then(|| text.trim_end_matches(['\n', '\r']).to_owned()))
}
