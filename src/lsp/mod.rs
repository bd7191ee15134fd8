//! The language server: what an editor asks about programs, over stdin and stdout.
//!
//! In: messages of the Language Server Protocol. Out: answers, and the diagnostics of each open
//! program. It must not know IRs and code: programs are parsed and checked; who starts the server
//! lends it the compiler.
//!
//! A thread reads messages; the main one answers them in their order. Diagnostics are made when no
//! message waits, so of several changes in a row only the last one is checked. A document is sent
//! whole at each change. Positions are UTF-16, as every editor supports them. The crates
//! `lsp-server` and `lsp-types` are not used: the subset here is a page of JSON, and their derived
//! types would add to each first build.

mod answers;
mod document;
mod hints;
mod names;

use crate::diagnostics::Suggestion;
use crate::files::Folder;
use document::Document;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{self, BufRead, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, TryRecvError, channel};

/// A rewrite that the compiler made or missed.
#[derive(Clone, PartialEq, Debug)]
pub struct Remark {
    /// Byte offset in the program.
    pub at: u32,
    /// Name of the pass.
    pub pass: &'static str,
    /// The condition that failed, if the rewrite was not made.
    pub missed: Option<&'static str>,
    /// One line.
    pub message: String,
    /// The edit after which a missed rewrite is made.
    pub edit: Option<Suggestion>,
}

/// The compiler, which is not known here.
#[derive(Clone, Copy)]
pub struct Compiler {
    /// Finds the remarks about a program; none if it has errors.
    pub remarks: fn(&str) -> Vec<Remark>,
    /// Writes a program, by its name, and its report into a folder; the path of the report, which
    /// shows a line, counted from 1.
    pub report: fn(&Path, &str, &str, usize) -> Option<PathBuf>,
}

/// The longest message that is accepted, in bytes.
const MAX_LENGTH: usize = 64 << 20;

/// Error codes of the protocol.
const PARSE_ERROR: i32 = -32700;
const INVALID_REQUEST: i32 = -32600;
const UNKNOWN_METHOD: i32 = -32601;
const INTERNAL_ERROR: i32 = -32603;
const NOT_INITIALIZED: i32 = -32002;
const REQUEST_FAILED: i32 = -32803;

/// Serves one client until it exits or closes the connection; was it shut down as the protocol
/// says? `remarks` finds the remarks of the compiler, which is not known here.
///
/// # Errors
/// The output cannot be written.
pub fn serve(mut input: impl BufRead + Send + 'static, output: impl Write, compiler: Compiler) -> io::Result<bool> {
    let (sender, messages) = channel();
    std::thread::spawn(move || {
        while let Some(message) = read(&mut input)
            && sender.send(message).is_ok()
        {}
    });
    let (documents, folder, shows_pages) = (BTreeMap::new(), None, false);
    let mut server = Server { output, state: State::New, is_orderly: false, documents, compiler, folder, shows_pages };
    while server.state != State::Exited {
        let Some(message) = server.next(&messages)? else { break };
        match message {
            Ok(message) => server.handle(&message)?,
            Err(why) => server.fail(&Value::Null, PARSE_ERROR, &why)?,
        }
    }
    Ok(server.is_orderly)
}

/// A message, or why it cannot be read.
type Message = Result<Value, String>;

/// The next message; `None` at the end, or where it is unknown how long a message is.
fn read(input: &mut impl BufRead) -> Option<Message> {
    let mut length = None;
    loop {
        let mut line = Vec::new();
        if io::Read::take(&mut *input, 4096).read_until(b'\n', &mut line).ok()? == 0 {
            return None;
        }
        let line = String::from_utf8_lossy(&line);
        match line.trim_end().split_once(':') {
            Some((name, value)) if name.eq_ignore_ascii_case("content-length") => length = value.trim().parse().ok(),
            Some(_) => {}
            None => break,
        }
    }
    let mut body = vec![0; length.filter(|length| *length <= MAX_LENGTH)?];
    input.read_exact(&mut body).ok()?;
    Some(serde_json::from_slice(&body).map_err(|error| error.to_string()))
}

#[derive(PartialEq)]
enum State {
    New,
    Running,
    ShutDown,
    Exited,
}

struct Server<W> {
    output: W,
    state: State,
    /// Was it shut down before it exited?
    is_orderly: bool,
    /// By URI.
    documents: BTreeMap<String, Document>,
    compiler: Compiler,
    /// Files of the standard library and reports, once one was asked for; removed with the server.
    folder: Option<Folder>,
    /// Can the client show a page?
    shows_pages: bool,
}

impl<W: Write> Server<W> {
    /// The next message; while no message waits, the diagnostics of changed documents are sent.
    fn next(&mut self, messages: &Receiver<Message>) -> io::Result<Option<Message>> {
        loop {
            match messages.try_recv() {
                Ok(message) => return Ok(Some(message)),
                Err(TryRecvError::Disconnected) => return Ok(None),
                Err(TryRecvError::Empty) => {}
            }
            let changed = self.documents.iter_mut().find(|(_, document)| !document.is_reported);
            let Some((uri, _)) = changed else { return Ok(messages.recv().ok()) };
            let uri = uri.clone();
            self.publish(&uri)?;
        }
    }

    /// Sends the diagnostics of a document, unless they were sent.
    fn publish(&mut self, uri: &str) -> io::Result<()> {
        let Some(document) = self.documents.get_mut(uri).filter(|document| !document.is_reported) else {
            return Ok(());
        };
        document.is_reported = true;
        let list = guarded(|| answers::diagnostics(document, uri)).unwrap_or(json!([]));
        let params = json!({ "uri": uri, "version": document.version, "diagnostics": list });
        self.send(&json!({ "jsonrpc": "2.0", "method": "textDocument/publishDiagnostics", "params": params }))
    }

    fn handle(&mut self, message: &Value) -> io::Result<()> {
        let Some(method) = message["method"].as_str() else {
            // Answers need no answer.
            let is_answer = message.get("result").or(message.get("error")).is_some();
            return if is_answer { Ok(()) } else { self.fail(&message["id"], INVALID_REQUEST, "there is no method") };
        };
        let params = &message["params"];
        let Some(id) = message.get("id") else { return self.notice(method, params) };
        match (&self.state, method) {
            (State::New, "initialize") => {
                self.state = State::Running;
                self.shows_pages = params["capabilities"]["window"]["showDocument"]["support"] == true;
                self.answer(id, &answers::capabilities(self.shows_pages))
            }
            (State::New, _) => self.fail(id, NOT_INITIALIZED, "the first request is `initialize`"),
            (State::Running, "shutdown") => {
                self.state = State::ShutDown;
                self.answer(id, &Value::Null)
            }
            (State::Running, _) => self.request(id, method, params),
            (State::ShutDown | State::Exited, _) => self.fail(id, INVALID_REQUEST, "the server was shut down"),
        }
    }

    /// Answers a request about a document; for an unknown document the answer is null.
    fn request(&mut self, id: &Value, method: &str, params: &Value) -> io::Result<()> {
        let answer: fn(&Document, &str, &Value) -> Value = match method {
            // Not among the capabilities: an editor would show each diagnostic twice.
            "textDocument/diagnostic" => answers::report,
            "textDocument/formatting" => answers::formatting,
            "textDocument/codeAction" => answers::code_actions,
            "textDocument/documentSymbol" => answers::symbols,
            "textDocument/hover" => answers::hover,
            "textDocument/completion" => answers::completion,
            "textDocument/references" => names::references,
            "textDocument/documentHighlight" => names::highlights,
            "textDocument/semanticTokens/full" => names::semantic_tokens,
            "textDocument/prepareRename" => names::prepare_rename,
            "textDocument/inlayHint" => hints::inlay_hints,
            "textDocument/signatureHelp" => hints::signature_help,
            "textDocument/rename" => return self.rename(id, params),
            "textDocument/definition" => return self.definition(id, params),
            "workspace/executeCommand" if params["command"] == answers::REPORT => return self.report(id, params),
            _ => return self.fail(id, UNKNOWN_METHOD, &format!("unknown method `{method}`")),
        };
        let uri = params["textDocument"]["uri"].as_str().unwrap_or_default();
        // These need the passes, which take longer than the messages.
        if matches!(method, "textDocument/inlayHint" | "textDocument/codeAction") {
            self.publish(uri)?;
        }
        let Some(document) = self.documents.get(uri) else { return self.answer(id, &Value::Null) };
        match guarded(|| answer(document, uri, params)) {
            Some(mut result) => {
                let actions = result.as_array_mut().filter(|_| method == "textDocument/codeAction" && self.shows_pages);
                actions.into_iter().for_each(|all| all.push(answers::report_action(uri, params)));
                self.answer(id, &result)
            }
            None => self.fail(id, INTERNAL_ERROR, "this is a bug in attnc"),
        }
    }

    /// A declaration in the standard library is in a file that the server writes.
    fn definition(&mut self, id: &Value, params: &Value) -> io::Result<()> {
        let uri = params["textDocument"]["uri"].as_str().unwrap_or_default();
        let Some(document) = self.documents.get(uri) else { return self.answer(id, &Value::Null) };
        let Some(found) = guarded(|| names::definition(document, params)).flatten() else {
            return self.answer(id, &Value::Null);
        };
        let uri = match &found.library {
            None => Some(uri.to_string()),
            Some((name, text)) => library_file(&mut self.folder, name, text),
        };
        self.answer(id, &uri.map_or(Value::Null, |uri| json!({ "uri": uri, "range": found.range })))
    }

    /// Shows the report of a program as it is in the editor.
    fn report(&mut self, id: &Value, params: &Value) -> io::Result<()> {
        let (uri, line) = (&params["arguments"][0], params["arguments"][1].as_u64().unwrap_or(0));
        let uri = uri.as_str().unwrap_or_default();
        let Some(document) = self.documents.get(uri) else { return self.answer(id, &Value::Null) };
        let name = uri.rsplit('/').next().unwrap_or_default().trim_end_matches(".attn");
        let name: String = name.chars().filter(|c| c.is_ascii_alphanumeric() || *c == '_').collect();
        let made = folder_of(&mut self.folder).and_then(|folder| {
            let line = usize::try_from(line).ok()?.saturating_add(1);
            (self.compiler.report)(folder, if name.is_empty() { "program" } else { &name }, &document.text, line)
        });
        let Some(page) = made.as_deref().and_then(uri_of) else {
            return self.fail(id, REQUEST_FAILED, "the report could not be made");
        };
        self.answer(id, &Value::Null)?;
        let params = json!({ "uri": page, "external": true });
        self.send(&json!({ "jsonrpc": "2.0", "id": "report", "method": "window/showDocument", "params": params }))
    }

    fn rename(&mut self, id: &Value, params: &Value) -> io::Result<()> {
        let uri = params["textDocument"]["uri"].as_str().unwrap_or_default();
        let Some(document) = self.documents.get(uri) else { return self.answer(id, &Value::Null) };
        match guarded(|| names::rename(document, uri, params)) {
            Some(Ok(edits)) => self.answer(id, &edits),
            Some(Err(why)) => self.fail(id, REQUEST_FAILED, &why),
            None => self.fail(id, INTERNAL_ERROR, "this is a bug in attnc"),
        }
    }

    fn notice(&mut self, method: &str, params: &Value) -> io::Result<()> {
        let document = &params["textDocument"];
        let Some(uri) = document["uri"].as_str() else {
            if method == "exit" {
                self.is_orderly = self.state == State::ShutDown;
                self.state = State::Exited;
            }
            return Ok(());
        };
        let text = match method {
            "textDocument/didOpen" => document["text"].as_str(),
            "textDocument/didChange" => {
                let changes = params["contentChanges"].as_array();
                changes.and_then(|changes| changes.last()).and_then(|change| change["text"].as_str())
            }
            "textDocument/didClose" => {
                self.documents.remove(uri);
                let params = json!({ "uri": uri, "diagnostics": [] });
                return self
                    .send(&json!({ "jsonrpc": "2.0", "method": "textDocument/publishDiagnostics", "params": params }));
            }
            _ => None,
        };
        if let Some(text) = text {
            let version = document["version"].as_i64().unwrap_or(0);
            self.documents.insert(uri.to_string(), Document::new(text, version, self.compiler));
        }
        Ok(())
    }

    fn answer(&mut self, id: &Value, result: &Value) -> io::Result<()> {
        self.send(&json!({ "jsonrpc": "2.0", "id": id, "result": result }))
    }

    fn fail(&mut self, id: &Value, code: i32, message: &str) -> io::Result<()> {
        self.send(&json!({ "jsonrpc": "2.0", "id": id, "error": { "code": code, "message": message } }))
    }

    fn send(&mut self, message: &Value) -> io::Result<()> {
        let body = message.to_string();
        write!(self.output, "Content-Length: {}\r\n\r\n{body}", body.len())?;
        self.output.flush()
    }
}

/// The URI of a file with a module of the standard library; `None` if it cannot be written.
fn library_file(folder: &mut Option<Folder>, name: &str, text: &str) -> Option<String> {
    let path = folder_of(folder)?.join(name);
    if !path.exists() {
        std::fs::create_dir_all(path.parent()?).ok()?;
        std::fs::write(&path, text).ok()?;
    }
    uri_of(&path)
}

/// A temporary folder, made when it is first needed.
fn folder_of(folder: &mut Option<Folder>) -> Option<&Path> {
    if folder.is_none() {
        *folder = Folder::new(None).ok();
    }
    folder.as_ref().map(Folder::path)
}

fn uri_of(path: &Path) -> Option<String> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/-_.~".contains(&byte);
    let path = path.to_str()?.bytes();
    let path: String =
        path.map(|b| if is_plain(b) { char::from(b).to_string() } else { format!("%{b:02X}") }).collect();
    Some(format!("file://{path}"))
}

/// The result of work on a program, on a large stack; `None` if it panics.
fn guarded<T: Send>(work: impl FnOnce() -> T + Send) -> Option<T> {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| crate::stack::with_large_stack(work))).ok()
}
