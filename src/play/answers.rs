//! The paths of the server: files of the page, and calls of attnc.
//!
//! In: an admitted request and its path. Out: the answer. A call takes and gives JSON; its program
//! has the fields `text`, `file` (a name), `dims` (name to value) and `model`.
//!
//! | path | further fields | answer |
//! |---|---|---|
//! | `language` | `requests`: `method` and `params` of the language server | `diagnostics`, and `results` in the same order |
//! | `check` | | `diagnostics`, for programs in an IR |
//! | `interface` | `sizes` | models, entry points and the shapes of arguments |
//! | `report` | `options` | `messages`, and `report`, the path of the page |
//! | `run` | `function`, `sizes`, `inputs`, `seed`, `options` | `messages`, `values`, `report` |
//! | `judge` | `exercise` | `passed`, `messages` |

use super::child::{Done, Room};
use super::http::{Request, Response};
use super::{Settings, course};
use crate::runtime::npy;
use crate::tensor::Tensor;
use serde_json::{Map, Value, json};
use std::collections::VecDeque;
use std::io;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The number of reports that can be opened again.
const KEPT: usize = 8;
/// The most elements of a value that are sent to the page.
const MAX_ELEMENTS: usize = 4096;

/// The page itself: only its own files, and no inline scripts. The editor makes styles as it runs.
const PAGE: &str = "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; \
     connect-src 'self'; frame-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
/// A report: its scripts run without an origin, and can ask for nothing.
const REPORT: &str = "sandbox allow-scripts; default-src 'none'; style-src 'unsafe-inline'; \
     script-src 'unsafe-inline'; frame-ancestors 'self'";

/// The state of the server.
pub(super) struct Service {
    settings: Settings,
    /// One program is compiled or run at a time; diagnostics do not wait for it.
    busy: Mutex<()>,
    /// The last reports with their numbers.
    reports: Mutex<VecDeque<(u64, Vec<u8>)>>,
}

/// Why there is no answer.
enum Failure {
    /// The request is not one that the page makes.
    Malformed(&'static str),
    /// Files or processes.
    System(io::Error),
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        Failure::System(error)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Service {
    pub(super) fn new(settings: Settings) -> Service {
        Service { settings, busy: Mutex::new(()), reports: Mutex::default() }
    }

    /// The answer to a request for a path.
    pub(super) fn answer(&self, request: &Request, path: &str) -> Response {
        let is_call = ["language", "check", "interface", "report", "run", "judge"].contains(&path);
        match (request.method.as_str(), is_call) {
            ("GET", false) => self.file(path),
            ("POST", true) => match self.call(path, &request.body) {
                Ok(answer) => Response::new("application/json", answer.to_string()),
                Err(Failure::Malformed(why)) => Response::refusal(400, why),
                Err(Failure::System(error)) => Response::refusal(500, &format!("attnc could not be run: {error}")),
            },
            (_, true) => Response::refusal(405, "this path answers POST"),
            ("POST", false) => Response::refusal(404, "there is no such path"),
            (_, false) => Response::refusal(405, "this path answers GET"),
        }
    }

    /// A file of the page.
    fn file(&self, path: &str) -> Response {
        const SCRIPT: &str = "text/javascript; charset=utf-8";
        let report = path.strip_prefix("report/").and_then(|number| number.parse::<u64>().ok());
        if let Some(number) = report {
            let reports = lock(&self.reports);
            return match reports.iter().find(|(own, _)| *own == number) {
                Some((_, page)) => {
                    Response { policy: REPORT, ..Response::new("text/html; charset=utf-8", page.clone()) }
                }
                None => Response::refusal(404, "this report is not kept any more"),
            };
        }
        if let Some(picture) = path.strip_prefix("picture/").and_then(course::picture) {
            return Response::new("image/svg+xml", picture);
        }
        match path {
            "" => {
                Response { policy: PAGE, ..Response::new("text/html; charset=utf-8", include_str!("page/page.html")) }
            }
            "style.css" => Response::new("text/css; charset=utf-8", include_str!("page/style.css")),
            "codemirror.js" => Response::new(SCRIPT, include_str!("page/codemirror/codemirror.js")),
            "common.js" => Response::new(SCRIPT, include_str!("page/common.js")),
            "editor.js" => Response::new(SCRIPT, include_str!("page/editor.js")),
            "run.js" => Response::new(SCRIPT, include_str!("page/run.js")),
            "course.js" => Response::new(SCRIPT, include_str!("page/course.js")),
            "main.js" => Response::new(SCRIPT, include_str!("page/main.js")),
            "course.json" => {
                let course = course::all(&self.settings.start, &self.settings.exercises);
                Response::new("application/json", course.to_string())
            }
            _ => Response::refusal(404, "there is no such path"),
        }
    }

    fn call(&self, path: &str, body: &[u8]) -> Result<Value, Failure> {
        let asked: Value = serde_json::from_slice(body).map_err(|_| Failure::Malformed("the body is not JSON"))?;
        let room = Room::new(&self.settings.attnc, self.settings.limits)?;
        if path == "language" {
            return language(&room, &asked);
        }
        let call = Call::read(&asked)?;
        std::fs::write(room.path(&call.file), call.text)?;
        if path == "interface" {
            let mut args = vec!["play".to_string(), "--describe".to_string(), call.file.clone()];
            args.extend(call.bindings()?);
            args.extend(call.sizes()?);
            let done = room.run(&args, b"")?;
            let found: Value = serde_json::from_slice(&done.out).unwrap_or_default();
            return Ok(json!({ "interface": found, "messages": done.messages }));
        }
        let _turn = lock(&self.busy);
        match path {
            "check" => {
                let done = room.run(&["check", "--error-format=json", &call.file], b"")?;
                let found: Vec<Value> = done.messages.lines().filter_map(diagnostic).collect();
                Ok(json!({ "diagnostics": found }))
            }
            "report" => {
                let mut args = vec![call.file.clone(), "--emit=html=report.html".to_string()];
                args.extend(call.bindings()?);
                args.extend(call.options()?);
                let done = room.run(&args, b"")?;
                Ok(self.with_report(&room, &done, Map::new()))
            }
            "judge" => judge(&room, &call),
            _ => self.run(&room, &call),
        }
    }

    /// Calls an entry point.
    fn run(&self, room: &Room<'_>, call: &Call<'_>) -> Result<Value, Failure> {
        let mut args = vec!["run".to_string(), call.file.clone()];
        let text = |field: &str| call.asked[field].as_str().unwrap_or_default();
        args.push(format!("--function={}", name(text("function"))?));
        args.push(format!("--random={}", call.asked["seed"].as_u64().unwrap_or(1)));
        args.extend(call.bindings()?);
        args.extend(call.sizes()?);
        args.extend(call.options()?);
        for (own, value) in entries(&call.asked["inputs"])? {
            let value = value.as_str().filter(|value| is_literal(value));
            let value = value.ok_or(Failure::Malformed("an input is not a number or nested lists of numbers"))?;
            args.push(format!("--input={}={value}", name(own)?));
        }
        args.extend(["--output=results", "--html=report.html", "--record=record.json"].map(String::from));
        let done = room.run(&args, b"")?;
        let mut answer = Map::new();
        answer.insert("values".to_string(), results(&room.path("results")));
        let record = std::fs::read(room.path("record.json")).unwrap_or_default();
        let record: Value = serde_json::from_slice(&record).unwrap_or_default();
        answer.insert("inner".to_string(), record["values"].clone());
        Ok(self.with_report(room, &done, answer))
    }

    /// Keeps the report of a child, and adds its path and its messages to an answer.
    fn with_report(&self, room: &Room<'_>, done: &Done, mut answer: Map<String, Value>) -> Value {
        answer.insert("ok".to_string(), done.is_ok.into());
        answer.insert("stopped".to_string(), done.is_stopped.into());
        answer.insert("messages".to_string(), done.messages.as_str().into());
        if let Ok(page) = std::fs::read(room.path("report.html")) {
            let mut reports = lock(&self.reports);
            let number = reports.back().map_or(1, |(number, _)| number + 1);
            reports.push_back((number, page));
            while reports.len() > KEPT {
                reports.pop_front();
            }
            answer.insert("report".to_string(), format!("report/{number}").into());
        }
        Value::Object(answer)
    }
}

/// Judges the text as the learner's file of an exercise.
fn judge(room: &Room<'_>, call: &Call<'_>) -> Result<Value, Failure> {
    let exercise = call.asked["exercise"].as_str().unwrap_or_default();
    let is_plain = exercise.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
    // An option begins with a dash, an exercise with its number.
    if !is_plain || !exercise.starts_with(|c: char| c.is_ascii_digit()) {
        return Err(Failure::Malformed("this is not the name of an exercise"));
    }
    room.run(&["learn", "--start", "exercises"], b"")?;
    let folder = Path::new("exercises").join(exercise).join(&call.file);
    if let Some(folder) = folder.to_str().map(|folder| room.path(folder)).filter(|path| path.exists()) {
        std::fs::write(folder, call.text)?;
    }
    let done = room.run(&["learn", "--folder", "exercises", exercise], b"")?;
    let said = String::from_utf8_lossy(&done.out).into_owned() + &done.messages;
    Ok(json!({ "passed": done.is_ok, "messages": said }))
}

/// A program with the fields of its request.
struct Call<'a> {
    asked: &'a Value,
    text: &'a str,
    file: String,
}

impl<'a> Call<'a> {
    fn read(asked: &'a Value) -> Result<Call<'a>, Failure> {
        let text = asked["text"].as_str().ok_or(Failure::Malformed("there is no `text`"))?;
        let file = asked["file"].as_str().unwrap_or("program.attn");
        let (stem, ending) = file.rsplit_once('.').unwrap_or_default();
        let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        if stem.is_empty() || !stem.chars().all(is_plain) || stem.starts_with('-') || !is_program(ending) {
            return Err(Failure::Malformed("`file` is not the name of a program"));
        }
        Ok(Call { asked, text, file: file.to_string() })
    }

    /// Options that bind compile-time dimensions and choose the model.
    fn bindings(&self) -> Result<Vec<String>, Failure> {
        let mut args = Vec::new();
        for (own, value) in entries(&self.asked["dims"])? {
            let value = value.as_str().map(String::from).unwrap_or(value.to_string());
            args.push(format!("--dim={}={}", name(own)?, name(&value)?));
        }
        if let Some(model) = self.asked["model"].as_str() {
            args.push(format!("--entry={}", name(model)?));
        }
        Ok(args)
    }

    /// Options with the sizes of run-time dimensions.
    fn sizes(&self) -> Result<Vec<String>, Failure> {
        let sizes = entries(&self.asked["sizes"])?;
        let sizes = sizes.map(|(own, value)| {
            let value = value.as_u64().ok_or(Failure::Malformed("a size is not a number"))?;
            Ok(format!("--size={}={value}", name(own)?))
        });
        sizes.collect()
    }

    /// Options of the compiler, if the page offers them.
    fn options(&self) -> Result<Vec<String>, Failure> {
        let known = ["-O0", "-O1", "-O2", "--backend=interp", "--target=cuda", "--gpu=sm_80", "--gpu=sm_90a"];
        let given = self.asked["options"].as_array().map(Vec::as_slice).unwrap_or_default();
        let own = given.iter().map(|option| {
            let option = option.as_str().filter(|option| {
                let cpu = option.strip_prefix("--cpu=").is_some_and(|cpu| name(cpu).is_ok());
                cpu || known.contains(option)
            });
            option.map(String::from).ok_or(Failure::Malformed("an option that the page does not offer"))
        });
        own.collect()
    }
}

/// The fields of an object; null has none.
fn entries(value: &Value) -> Result<impl Iterator<Item = (&str, &Value)>, Failure> {
    match value {
        Value::Null => Ok(None.into_iter().flatten()),
        Value::Object(fields) => {
            Ok(Some(fields.iter().map(|(own, value)| (own.as_str(), value))).into_iter().flatten())
        }
        _ => Err(Failure::Malformed("expected an object")),
    }
}

fn is_program(ending: &str) -> bool {
    ["attn", "air", "tir", "vir"].contains(&ending)
}

/// A name or a number: no path, no option.
fn name(text: &str) -> Result<&str, Failure> {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let is_name = !text.is_empty() && text.chars().all(is_word);
    if is_name { Ok(text) } else { Err(Failure::Malformed("expected a name")) }
}

/// Is this a literal, and not the path of a file?
fn is_literal(text: &str) -> bool {
    let words = text.split(['[', ']', ',', ' ', '\n']).filter(|word| !word.is_empty());
    let is_number = |word: &str| word.parse::<f64>().is_ok() || matches!(word, "true" | "false");
    !text.trim().is_empty() && words.into_iter().all(is_number)
}

/// Asks the language server about one program.
fn language(room: &Room<'_>, asked: &Value) -> Result<Value, Failure> {
    let text = asked["text"].as_str().ok_or(Failure::Malformed("there is no `text`"))?;
    const URI: &str = "file:///program.attn";
    let mut input = Vec::new();
    let mut add = |mut message: Value| {
        message["jsonrpc"] = "2.0".into();
        let body = message.to_string();
        input.extend_from_slice(format!("Content-Length: {}\r\n\r\n{body}", body.len()).as_bytes());
    };
    add(json!({ "id": "open", "method": "initialize", "params": {} }));
    let document = json!({ "uri": URI, "version": 1, "languageId": "attn", "text": text });
    add(json!({ "method": "textDocument/didOpen", "params": { "textDocument": document } }));
    let own = json!({ "method": "textDocument/diagnostic", "params": {} });
    let requests = asked["requests"].as_array().map(Vec::as_slice).unwrap_or_default();
    for (id, request) in std::iter::once(&own).chain(requests).enumerate() {
        let mut params = if request["params"].is_object() { request["params"].clone() } else { json!({}) };
        params["textDocument"] = json!({ "uri": URI });
        add(json!({ "id": id, "method": request["method"], "params": params }));
    }
    add(json!({ "id": "close", "method": "shutdown" }));
    add(json!({ "method": "exit" }));
    let done = room.run(&["lsp"], &input)?;
    let mut results = vec![Value::Null; requests.len() + 1];
    for message in messages(&done.out) {
        let place = message["id"].as_u64().and_then(|id| results.get_mut(usize::try_from(id).ok()?));
        if let Some(place) = place {
            *place = message["result"].clone();
        }
    }
    let diagnostics = results.remove(0)["items"].clone();
    Ok(json!({ "diagnostics": diagnostics, "results": results, "messages": done.messages }))
}

/// A line of `--error-format=json` as a diagnostic of a language server.
fn diagnostic(line: &str) -> Option<Value> {
    let one: Value = serde_json::from_str(line).ok()?;
    let spans = one["spans"].as_array().map(Vec::as_slice).unwrap_or_default();
    let place = spans.iter().find(|span| span["is_primary"] == true);
    let number = |field: &str| place.and_then(|span| span[field].as_u64()).unwrap_or(1).saturating_sub(1);
    let position = |line: &str, column: &str| json!({ "line": number(line), "character": number(column) });
    Some(json!({
        "range": { "start": position("line_start", "column_start"), "end": position("line_end", "column_end") },
        "severity": if one["level"] == "error" { 1 } else { 2 },
        "code": one["code"]["code"],
        "message": one["message"],
        "data": { "rendered": one["rendered"] },
    }))
}

/// The messages of a language server, up to one that is malformed.
fn messages(mut bytes: &[u8]) -> Vec<Value> {
    let mut all = Vec::new();
    while let Some(at) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
        let head = String::from_utf8_lossy(bytes.get(..at).unwrap_or_default()).to_ascii_lowercase();
        let length = head.strip_prefix("content-length:").and_then(|text| text.trim().parse::<usize>().ok());
        let Some((body, rest)) = length.and_then(|n| bytes.get(at + 4..)?.split_at_checked(n)) else { break };
        all.extend(serde_json::from_slice::<Value>(body));
        bytes = rest;
    }
    all
}

/// The NumPy files of a folder as JSON: results first, then taps.
fn results(folder: &Path) -> Value {
    let found = std::fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok).map(|entry| entry.path());
    let mut paths: Vec<_> = found.filter(|path| path.extension().is_some_and(|ending| ending == "npy")).collect();
    paths.sort();
    let value = |path: &Path| {
        let tensor = npy::parse(&std::fs::read(path).ok()?).ok()?;
        Some(json!({
            "name": path.file_stem()?.to_str()?,
            "elem": tensor.elem().name(),
            "shape": tensor.shape(),
            "elements": elements(&tensor),
        }))
    };
    paths.iter().filter_map(|path| value(path)).collect()
}

/// The first elements as JSON; infinities and NaN as text.
fn elements(tensor: &Tensor) -> Value {
    if !tensor.elem().is_float() {
        return tensor.to_i64().into_iter().take(MAX_ELEMENTS).collect();
    }
    let number = |x: f64| if x.is_finite() { json!(x) } else { json!(x.to_string()) };
    tensor.to_f64().into_iter().take(MAX_ELEMENTS).map(number).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inputs_are_literals() {
        for text in ["3", "[[1, -2.5e3], [inf, NaN]]", "[true, false]", "[]", "[[1],\n[2]]"] {
            assert!(is_literal(text), "{text}");
        }
        for text in ["x.npy", "/etc/passwd.npy", "[x.npy]", "", " ", "--random", "[1; 2]"] {
            assert!(!is_literal(text), "{text}");
        }
    }

    #[test]
    fn files_are_plain_names() {
        let read = |file: &str| Call::read(&json!({ "text": "", "file": file })).is_ok();
        assert!(read("program.attn") && read("04-fact.air") && read("a.tir"));
        for file in ["../a.attn", "/a.attn", "-o.attn", "a.so", "a", ".attn", "a b.attn", "a/b.attn", "a\0.attn"] {
            assert!(!read(file), "{file}");
        }
        assert!(Call::read(&json!({})).is_err() && Call::read(&json!(3)).is_err());
    }

    #[test]
    fn answers_of_a_language_server_are_split() {
        let all = messages(b"Content-Length: 2\r\n\r\n{}Content-Length: 1\r\n\r\n3Content-Length: 9\r\n\r\n{");
        assert_eq!(all, [json!({}), json!(3)]);
    }
}
