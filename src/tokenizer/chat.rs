//! Chat templates: programs in Jinja that make one prompt of the messages of a conversation, in
//! `tokenizer_config.json` or `chat_template.jinja`.
//!
//! In: the texts of both files, untrusted, and messages. Out: the prompt that
//! `apply_chat_template` of `transformers` makes, or an error. `minijinja` executes templates; its
//! fuel bounds both their work and the memory they allocate, at 64 bytes a unit.

use minijinja::syntax::SyntaxConfig;
use minijinja::{Environment, Error, ErrorKind, State, Value, context};
use serde_json::ser::Formatter;
use std::collections::BTreeMap;
use std::io;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// Fuel of a rendering: a constant, and more for each byte of the messages.
const FUEL: (u64, u64) = (1 << 20, 16);
/// Time that a rendering may take: lists that are added to themselves take no fuel (minijinja 3.1).
const PATIENCE: Duration = Duration::from_secs(5);
/// Stack of a rendering, in bytes.
const STACK: usize = 64 << 20;
/// The only template of the environment.
const NAME: &str = "chat template";

/// A message of a conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Who wrote it: `system`, `user` or `assistant`.
    pub role: &'static str,
    /// Its text.
    pub content: String,
}

/// The template of a model.
#[derive(Debug)]
pub struct ChatTemplate {
    environment: Environment<'static>,
    /// The texts of special tokens, by names such as `bos_token`.
    tokens: BTreeMap<String, String>,
}

impl ChatTemplate {
    /// Reads a `tokenizer_config.json`, and a `chat_template.jinja`, which replaces its template.
    ///
    /// # Errors
    /// A message: there is no template, or it cannot be parsed.
    pub fn read(config: &str, template: Option<&str>) -> Result<ChatTemplate, String> {
        let config: serde_json::Value =
            serde_json::from_str(config).map_err(|error| format!("`tokenizer_config.json` is not JSON: {error}"))?;
        // Several templates are a list with names.
        let field = &config["chat_template"];
        let default = |list: &Vec<serde_json::Value>| list.iter().position(|one| one["name"] == "default");
        let named = field.as_array().and_then(|list| list[default(list)?]["template"].as_str());
        let Some(text) = template.or_else(|| field.as_str()).or(named) else {
            return Err("there is no `chat_template`: the model was not made for conversations".to_owned());
        };
        let mut environment = Environment::new();
        let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
        environment.set_syntax(syntax.map_err(|error| shown(&error))?);
        environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
        environment.add_function("raise_exception", |text: String| -> Result<Value, Error> {
            Err(Error::new(ErrorKind::InvalidOperation, format!("it says: {text}")))
        });
        environment.add_filter("tojson", json);
        environment.add_template_owned(NAME, without_generation(text)).map_err(|error| shown(&error))?;
        let token = |(name, value): (&String, &serde_json::Value)| {
            let text = value.as_str().or_else(|| value["content"].as_str())?;
            name.ends_with("_token").then(|| (name.clone(), text.to_owned()))
        };
        let tokens = config.as_object().into_iter().flatten().filter_map(token).collect();
        Ok(ChatTemplate { environment, tokens })
    }

    /// The text of a special token: `eos_token`.
    pub fn token(&self, name: &str) -> Option<&str> {
        self.tokens.get(name).map(String::as_str)
    }

    /// The prompt for the answer to these messages, which has all special tokens.
    ///
    /// # Errors
    /// A message: the template refuses the messages, or exceeds the limit of its work.
    pub fn render(&self, messages: &[Message]) -> Result<String, String> {
        let length: u64 = messages.iter().map(|message| message.content.len() as u64).sum();
        let mut environment = self.environment.clone();
        environment.set_fuel(Some(FUEL.1.saturating_mul(length).saturating_add(FUEL.0)));
        let list = |message: &Message| context! { role => message.role, content => message.content.clone() };
        let messages: Vec<Value> = messages.iter().map(list).collect();
        let given = context! { messages, tools => (), documents => (), add_generation_prompt => true };
        let given = context! { ..given, ..Value::from_pairs(self.tokens.clone()) };
        let (send, receive) = mpsc::channel();
        let render = move || {
            let made = environment.get_template(NAME).and_then(|template| template.render(given));
            let _ = send.send(made.map_err(|error| shown(&error)));
        };
        let thread = thread::Builder::new().stack_size(STACK).spawn(render);
        thread.map_err(|error| format!("it cannot be run: {error}"))?;
        let late = |_| Err(format!("it takes longer than {} s, the limit", PATIENCE.as_secs()));
        receive.recv_timeout(PATIENCE).unwrap_or_else(late)
    }
}

/// `{% generation %}` of `transformers` only marks what an assistant wrote: here, it is a block.
fn without_generation(template: &str) -> String {
    let mut out = String::with_capacity(template.len());
    let mut rest = template;
    while let Some((before, after)) = rest.split_once("{%") {
        let (tag, behind) = after.split_once("%}").unwrap_or((after, ""));
        let made = match tag.trim_matches(['-', '+']).trim() {
            "generation" => tag.replace("generation", "if true"),
            "endgeneration" => tag.replace("endgeneration", "endif"),
            _ => tag.to_owned(),
        };
        let end = if after.len() > tag.len() { "%}" } else { "" };
        out.extend([before, "{%", &made, end]);
        rest = behind;
    }
    out + rest
}

/// An error in one line, with the line of the template.
fn shown(error: &Error) -> String {
    let place = error.line().map_or(String::new(), |line| format!("line {line}: "));
    let what = match error.kind() {
        ErrorKind::OutOfFuel => "it takes more work or memory than the limit".to_owned(),
        kind => error.detail().map_or_else(|| kind.to_string(), |detail| detail.chars().take(400).collect()),
    };
    format!("{place}{what}")
}

/// `json.dumps` of Python: blanks behind commas and colons, and no escapes for HTML.
fn json(state: &State<'_, '_>, value: &Value) -> Result<Value, Error> {
    let failed = |error: serde_json::Error| Error::new(ErrorKind::BadSerialization, error.to_string());
    let mut out = Vec::new();
    let mut serializer = serde_json::Serializer::with_formatter(&mut out, Python);
    serde::Serialize::serialize(value, &mut serializer).map_err(failed)?;
    state.consume_fuel(out.len() as u64)?;
    Ok(Value::from(String::from_utf8_lossy(&out).into_owned()))
}

struct Python;

impl Formatter for Python {
    fn begin_array_value<W: ?Sized + io::Write>(&mut self, out: &mut W, first: bool) -> io::Result<()> {
        out.write_all(if first { b"" } else { b", " })
    }

    fn begin_object_key<W: ?Sized + io::Write>(&mut self, out: &mut W, first: bool) -> io::Result<()> {
        out.write_all(if first { b"" } else { b", " })
    }

    fn begin_object_value<W: ?Sized + io::Write>(&mut self, out: &mut W) -> io::Result<()> {
        out.write_all(b": ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn said(template: &str) -> Result<String, String> {
        let config = json!({"bos_token": {"content": "<s>"}, "chat_template": template}).to_string();
        ChatTemplate::read(&config, None)?.render(&[Message { role: "user", content: "Hi".to_owned() }])
    }

    #[test]
    fn templates_are_bounded_and_refused_in_words() {
        assert_eq!(said("{{ bos_token }}{{ messages[0].content }}").as_deref(), Ok("<s>Hi"));
        for (template, told) in [
            ("a\n{% if %}", "line 2: "),
            ("{% for m in messages %}", "line 1: "),
            ("{{ raise_exception('no system') }}", "it says: no system"),
            ("{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}", "than the limit"),
            (
                "{% set n = namespace(s='ab') %}{% for i in range(60) %}{% set n.s = n.s ~ n.s %}{% endfor %}",
                "than the limit",
            ),
            ("{{ 'x' * 1000000000 }}", ""),
            ("{{ (('x' * 10000000) | replace('x', 'x' * 100000)) | length }}", "than the limit"),
            ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", ""),
            ("{{ messages | nothing }}", "nothing"),
            ("{{ messages[0].content.nothing() }}", "nothing"),
        ] {
            let found = said(template).expect_err(template);
            assert!(found.contains(told) && found.len() < 500, "{template}: {found}");
        }
        let deep = "{{ ".to_owned() + &"(".repeat(100_000) + "1" + &")".repeat(100_000) + " }}";
        assert!(said(&deep).is_err());
        assert!(ChatTemplate::read("{}", None).is_err_and(|why| why.contains("no `chat_template`")));
        assert!(ChatTemplate::read("[", None).is_err_and(|why| why.contains("not JSON")));
    }
}
