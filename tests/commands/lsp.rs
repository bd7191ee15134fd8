//! `attnc lsp`, driven by a client over stdio: every example, every program with errors, and input that is no message.

use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

pub(crate) struct Client {
    server: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    requests: u64,
}

impl Client {
    pub(crate) fn start() -> Client {
        let mut server = Command::new(env!("CARGO_BIN_EXE_attnc"))
            .args(["lsp", "--stdio"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let input = server.stdin.take();
        let output = BufReader::new(server.stdout.take().unwrap());
        let mut client = Client { server, input, output, requests: 0 };
        let answer = client
            .request("initialize", json!({ "capabilities": { "window": { "showDocument": { "support": true } } } }));
        assert_eq!(answer["capabilities"]["positionEncoding"], "utf-16");
        client.notify("initialized", json!({}));
        client
    }

    pub(crate) fn raw(&mut self, body: &str) {
        let input = self.input.as_mut().unwrap();
        write!(input, "Content-Length: {}\r\n\r\n{body}", body.len()).unwrap();
        input.flush().unwrap();
    }

    pub(crate) fn read(&mut self) -> Value {
        let mut length = 0;
        loop {
            let mut line = String::new();
            assert!(self.output.read_line(&mut line).unwrap() > 0, "the server has ended");
            match line.trim_end().strip_prefix("Content-Length: ") {
                Some(number) => length = number.parse().unwrap(),
                None if line.trim_end().is_empty() => break,
                None => {}
            }
        }
        let mut body = vec![0; length];
        self.output.read_exact(&mut body).unwrap();
        serde_json::from_slice(&body).unwrap()
    }

    pub(crate) fn notify(&mut self, method: &str, params: Value) {
        self.raw(&json!({ "jsonrpc": "2.0", "method": method, "params": params }).to_string());
    }

    /// The answer to a request, a result or an error.
    pub(crate) fn request(&mut self, method: &str, params: Value) -> Value {
        self.requests += 1;
        let id = self.requests;
        self.raw(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }).to_string());
        loop {
            let message = self.read();
            if message["id"] == id {
                return message.get("result").or(message.get("error")).cloned().unwrap();
            }
        }
    }

    /// Opens a program; its diagnostics.
    pub(crate) fn open(&mut self, uri: &str, text: &str) -> Vec<Value> {
        self.notify(
            "textDocument/didOpen",
            json!({ "textDocument": { "uri": uri, "version": 1, "languageId": "attn", "text": text } }),
        );
        self.published(uri, 1)
    }

    pub(crate) fn published(&mut self, uri: &str, version: i64) -> Vec<Value> {
        loop {
            let message = self.read();
            let params = &message["params"];
            if params["uri"] == uri && params["version"] == version {
                return params["diagnostics"].as_array().unwrap().clone();
            }
        }
    }

    pub(crate) fn end(mut self) {
        assert_eq!(self.request("shutdown", Value::Null), Value::Null);
        self.notify("exit", Value::Null);
        let status = self.server.wait().unwrap();
        let mut shown = String::new();
        self.server.stderr.take().unwrap().read_to_string(&mut shown).unwrap();
        assert!(status.success() && shown.is_empty(), "{status}: {shown}");
    }
}

pub(crate) fn about(uri: &str) -> Value {
    json!({ "textDocument": { "uri": uri }, "position": { "line": 0, "character": 0 } })
}

/// A text with edits of the protocol applied, positions counted here.
pub(crate) fn edited(text: &str, edits: &[Value]) -> String {
    let offset = |position: &Value| {
        let line = usize::try_from(position["line"].as_u64().unwrap()).unwrap();
        let mut units = usize::try_from(position["character"].as_u64().unwrap()).unwrap();
        let start: usize = text.split_inclusive('\n').take(line).map(str::len).sum();
        let rest = text[start..].char_indices().find(|(_, c)| {
            let here = units == 0;
            units = units.saturating_sub(c.len_utf16());
            here
        });
        rest.map_or(text.len(), |(at, _)| start + at)
    };
    let place = |edit: &Value| (offset(&edit["range"]["start"]), offset(&edit["range"]["end"]));
    let mut edits: Vec<(usize, usize, String)> = edits
        .iter()
        .map(|edit| (place(edit).0, place(edit).1, edit["newText"].as_str().unwrap().to_string()))
        .collect();
    edits.sort();
    let mut out = text.to_string();
    for (start, end, new) in edits.into_iter().rev() {
        out.replace_range(start..end, &new);
    }
    out
}

pub(crate) fn files(folder: &str, extension: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(folder)).unwrap();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|e| e == extension));
    paths.sort();
    paths
}

#[test]
fn examples_have_no_errors_and_are_formatted() {
    let mut client = Client::start();
    for path in files("examples", "attn") {
        let text = std::fs::read_to_string(&path).unwrap();
        let uri = format!("file://{}", path.display());
        let diagnostics = client.open(&uri, &text);
        assert!(diagnostics.iter().all(|d| d["severity"] != 1), "{uri}: {diagnostics:?}");
        assert_eq!(client.request("textDocument/formatting", about(&uri)), json!([]), "{uri}");
        let symbols = client.request("textDocument/documentSymbol", about(&uri));
        let items = text.lines().filter(|line| ["layer ", "model ", "fn "].iter().any(|word| line.starts_with(word)));
        assert_eq!(symbols.as_array().unwrap().len(), items.count(), "{uri}");
        let names = client.request("textDocument/completion", about(&uri));
        assert!(names.as_array().unwrap().iter().any(|entry| entry["label"] == "softmax"), "{uri}");
    }
    client.end();
}

#[test]
fn quick_fixes_of_programs_with_errors_work() {
    let mut client = Client::start();
    let (mut programs, mut fixes) = (0, 0);
    for path in ["types", "syntax"].iter().flat_map(|folder| files(&format!("snapshots/{folder}"), "snap")) {
        let text = std::fs::read_to_string(&path).unwrap();
        let body = text.splitn(3, "---\n").nth(2).unwrap_or_default();
        // A comment before it whose characters are of one, two, three and four bytes.
        let program = format!("/* é→𝄞 */ {}", body.split("\n---\n").next().unwrap_or_default());
        let program = program.replacen("/* é→𝄞 */ ", "// é→𝄞\n", 1);
        let uri = path.display().to_string();
        for diagnostic in client.open(&uri, &program) {
            let params = json!({ "textDocument": { "uri": uri }, "range": diagnostic["range"], "context": { "diagnostics": [] } });
            let actions = client.request("textDocument/codeAction", params);
            for action in actions.as_array().unwrap().iter().filter(|action| action["isPreferred"] == true) {
                let edits = action["edit"]["changes"][&uri].as_array().unwrap().clone();
                let count = |all: &[Value], one: &Value| {
                    let key = |d: &Value| {
                        let message =
                            d["message"].as_str().unwrap_or_default().lines().next().unwrap_or_default().to_string();
                        (d["code"].clone(), message)
                    };
                    all.iter().filter(|d| key(d) == key(one)).count()
                };
                let solved = &action["diagnostics"][0];
                let other = format!("{uri}.fixed");
                let before = client.open(&other, &program);
                let after = client.open(&other, &edited(&program, &edits));
                assert!(count(&after, solved) < count(&before, solved), "{uri}: {action}");
                fixes += 1;
            }
        }
        programs += 1;
    }
    println!("{programs} programs, {fixes} fixes");
    assert!(programs > 150 && fixes > 20, "{programs} programs, {fixes} fixes");
    client.end();
}

#[test]
fn the_latest_text_counts_and_positions_are_utf16() {
    let mut client = Client::start();
    let uri = "untitled:a";
    client.open(uri, "fn f(x: f32[S]) -> f32[S] { x }\n");
    for version in 2..50 {
        let text = if version == 49 { "// 𝄞𝄞\nfn f(x: f32[S]) -> f32[S] { /* */ y }\n" } else { "fn" };
        let text = text.replace("/* */", "");
        let document = json!({ "uri": uri, "version": version });
        client.notify(
            "textDocument/didChange",
            json!({ "textDocument": document, "contentChanges": [{ "text": text }] }),
        );
    }
    let last = client.published(uri, 49);
    assert_eq!(last.len(), 1, "{last:?}");
    assert_eq!(last[0]["range"]["start"], json!({ "line": 1, "character": 29 }));
    let place = json!({ "textDocument": { "uri": uri }, "position": { "line": 1, "character": 3 } });
    let hover = client.request("textDocument/hover", place);
    assert!(hover["contents"]["value"].as_str().unwrap().contains("fn f(x: f32[S]) -> f32[S]"), "{hover}");
    client.open("untitled:b", "// é𝄞 softmax\nfn f( x:f32[S])->f32[S]{softmax(x)}");
    let place = json!({ "textDocument": { "uri": "untitled:b" }, "position": { "line": 1, "character": 27 } });
    let hover = client.request("textDocument/hover", place);
    assert!(hover["contents"]["value"].as_str().unwrap().contains("softmax(x"), "{hover}");
    let edits = client.request("textDocument/formatting", about("untitled:b"));
    assert_eq!(edits[0]["newText"], "// é𝄞 softmax\nfn f(x: f32[S]) -> f32[S] { softmax(x) }\n");
    assert_eq!(edits[0]["range"]["end"], json!({ "line": 1, "character": 35 }));
    client.end();
}

#[test]
fn malformed_input_is_answered_and_survived() {
    let mut client = Client::start();
    for (body, code) in
        [("{", -32700), ("[1]", -32600), ("{\"id\": 1}", -32600), ("{\"id\": 9, \"method\": \"no/such\"}", -32601)]
    {
        client.raw(body);
        assert_eq!(client.read()["error"]["code"], code, "{body}");
    }
    for body in [
        "{\"method\": 1, \"result\": 1}",
        "{\"method\": \"textDocument/didOpen\"}",
        "{\"method\": \"$/none\", \"params\": []}",
    ] {
        client.raw(body);
    }
    let far = json!({ "line": 4_000_000_000_u64, "character": -1 });
    client.open("a", "fn f(\u{0}");
    let params = json!({ "textDocument": { "uri": "a" }, "position": far, "range": { "start": far, "end": {} } });
    for method in ["hover", "codeAction", "completion", "documentSymbol", "formatting"] {
        client.request(&format!("textDocument/{method}"), params.clone());
        assert_eq!(client.request(&format!("textDocument/{method}"), json!(3)), Value::Null);
    }
    client.end();
    // The connection closes within a message, or a message has no length.
    for rest in ["Content-Length: 99\r\n\r\n{", "Content-Length: 99999999999999999999\r\n\r\n{", "\r\n", "x\r\n\r\n"] {
        let mut client = Client::start();
        let mut input = client.input.take().unwrap();
        input.write_all(rest.as_bytes()).unwrap();
        drop(input);
        assert_eq!(client.server.wait().unwrap().code(), Some(1), "{rest:?}");
    }
}
