//! `attnc embed`: turns texts into vectors by a sentence encoder.
//!
//! In: a program with an entry point that takes the tokens of a text and returns its vector
//! (`attnc import` makes one of the pooling of a checkpoint), weights, a tokenizer, lines of text.
//! Out: a row for each line, as a NumPy file or as JSON.

use super::generate::{Program, beside, calls, text, tokenizer, unusable};
use super::running::call_failed;
use super::session::{CommandError, Session, command_line_error, message, print, stdout_failed};
use crate::cli::EmbedOptions;
use crate::diagnostics::Severity;
use crate::files;
use crate::ir::Function;
use crate::runtime::npy;
use crate::shape::Elem;
use crate::tensor::Tensor;
use crate::tokenizer::Marks;

/// `attnc embed FILE`
pub fn embed(options: &EmbedOptions) -> Result<(), CommandError> {
    let mut session = Session::new(&options.model.messages);
    let result = embed_in(&mut session, options);
    session.finish_timed(result, &options.model.passes)
}

fn embed_in(s: &mut Session, options: &EmbedOptions) -> Result<(), CommandError> {
    let model = &options.model;
    let program = Program::read(s, model, "embed", &options.function)?;
    let (elem, width) = contract(program.function()).map_err(|why| command_line_error(&why))?;
    s.stage("read the texts");
    let reader = tokenizer(s, "--tokenizer", &model.tokenizer)?;
    let (mut longest, mut lower) = (usize::MAX, false);
    if let Some(path) = beside(&model.tokenizer, "sentence_bert_config.json") {
        let read = serde_json::from_str::<serde_json::Value>(&text(s, &path)?);
        let fields = read.map_err(|error| unusable(s, &path, &format!("it is not JSON: {error}")))?;
        longest = fields["max_seq_length"].as_u64().and_then(|n| usize::try_from(n).ok()).unwrap_or(longest);
        lower = fields["do_lower_case"] == true;
    }
    let lines = text(s, &options.input)?;
    let encode = |text: &str, marks| {
        let made = reader.encode(text.as_bytes(), marks);
        made.map_err(|why| command_line_error(&format!("the text {text:?}: {why}")))
    };
    // Tokens behind a text, which remain if it is cut.
    let ends = encode("", Marks::Both)?.split_off(encode("", Marks::Begin)?.len());
    let (mut texts, mut cut) = (Vec::new(), 0);
    for line in lines.lines() {
        let line = format!("{}{}", options.prompt, if lower { line.to_lowercase() } else { line.to_owned() });
        let mut tokens = encode(&line, Marks::Both)?;
        if tokens.len() > longest {
            cut += 1;
            tokens.truncate(longest.saturating_sub(ends.len()));
            tokens.extend(&ends);
        }
        texts.push(tokens.into_iter().map(i64::from).collect::<Vec<i64>>());
    }
    if let Some(path) = &options.output {
        s.claim(path)?;
    }
    let name = program.name.clone();
    let loaded = program.opened(s, model)?;
    if cut > 0 {
        message(Severity::Note, &format!("{cut} of {} texts were cut to {longest} tokens", texts.len()), &[]);
    }
    s.stage("call");
    let (entry, mut calls) = calls(&loaded, &name, s, files::interrupts())?;
    let mut rows: Vec<f32> = Vec::new();
    for (at, tokens) in texts.iter().enumerate() {
        let failed = |s: &mut Session, why: &str| call_failed(s, &format!("line {}: {why}", at + 1));
        let argument = Tensor::from_ints(elem, vec![tokens.len()], tokens);
        let argument = argument.ok_or_else(|| failed(s, "the tokens are not a valid argument"))?;
        let results = match calls.call(entry, &[argument]) {
            Ok(results) => results,
            Err(error) if error.is_interrupt() => return Err(CommandError::Interrupted),
            Err(error) => return Err(failed(s, &error.text)),
        };
        let row = results.first().map_or(Vec::new(), Tensor::to_f32);
        match options.output {
            Some(_) => rows.extend(row),
            None => {
                let numbers: Vec<String> =
                    row.iter().map(|x| if x.is_finite() { x.to_string() } else { "null".to_owned() }).collect();
                print(format!("[{}]\n", numbers.join(", ")).as_bytes()).map_err(|error| stdout_failed(&error))?;
            }
        }
    }
    let Some(path) = &options.output else { return Ok(()) };
    match Tensor::from_f32(vec![texts.len(), width], &rows) {
        Some(all) => s.write(path, &npy::to_bytes(&all)),
        None => Err(call_failed(s, "the vectors have different lengths")),
    }
}

/// The type of tokens, and the length of vectors.
fn contract(f: &Function) -> Result<(Elem, usize), String> {
    let is_tokens = |elem| matches!(elem, Elem::I32 | Elem::I64);
    let argument = match f.args.as_slice() {
        [arg] if !arg.batch && arg.ty.rank() == 1 && is_tokens(arg.ty.elem) => arg.ty.shape.first(),
        _ => None,
    };
    let result = match f.results.as_slice() {
        [result] if !result.batch && result.ty.rank() == 1 && result.ty.elem.is_float() => result.ty.shape.first(),
        _ => None,
    };
    let width = result.and_then(|extent| usize::try_from(extent.as_const()?).ok());
    match (argument.filter(|extent| extent.as_const().is_none()), width) {
        (Some(_), Some(width)) => Ok((f.args[0].ty.elem, width)),
        _ => Err(format!(
            "`{}` cannot embed texts: expected the tokens as one argument `tokens: i32[S]`, and a vector as its result, `f32[D]`",
            f.name
        )),
    }
}
