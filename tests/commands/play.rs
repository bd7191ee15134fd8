//! The server of `attnc play`: who may ask, what is refused, and what a program can do to it.

use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A server, ended on drop.
struct Server {
    child: Child,
    port: u16,
    token: String,
}

impl Server {
    fn start(args: &[&str]) -> Server {
        let mut command = Command::new(env!("CARGO_BIN_EXE_attnc"));
        command.args(["play", "--no-open"]).args(args).stdout(Stdio::piped()).stdin(Stdio::null());
        let mut child = command.spawn().expect("attnc starts");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("stdout")).read_line(&mut line).expect("a line");
        let (port, token) = line.trim().strip_prefix("http://127.0.0.1:").unwrap().split_once('/').unwrap();
        let token = token.trim_end_matches('/').to_string();
        assert!(token.len() == 32 && token.bytes().all(|b| b.is_ascii_hexdigit()), "{line}");
        Server { child, port: port.parse().expect("a port"), token }
    }

    /// Sends bytes; the status, the head and the body of the answer.
    fn raw(&self, request: &[u8]) -> (u16, String, Vec<u8>) {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).expect("a connection");
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        stream.write_all(request).expect("sent");
        let mut all = Vec::new();
        stream.read_to_end(&mut all).expect("an answer");
        let at = all.windows(4).position(|four| four == b"\r\n\r\n").expect("a head");
        let head = String::from_utf8_lossy(&all[..at]).into_owned();
        let status = head.split(' ').nth(1).and_then(|n| n.parse().ok()).expect("a status");
        (status, head, all[at + 4..].to_vec())
    }

    /// A request with further headers.
    fn ask(&self, method: &str, path: &str, headers: &str, body: &[u8]) -> (u16, String, Vec<u8>) {
        let host = if headers.to_lowercase().contains("host:") {
            String::new()
        } else {
            format!("Host: 127.0.0.1:{}\r\n", self.port)
        };
        let head = format!("{method} {path} HTTP/1.1\r\n{host}{headers}Content-Length: {}\r\n\r\n", body.len());
        self.raw(&[head.as_bytes(), body].concat())
    }

    fn get(&self, path: &str) -> (u16, String, Vec<u8>) {
        self.ask("GET", &format!("/{}/{path}", self.token), "", b"")
    }

    /// A call as the page makes it.
    fn call(&self, path: &str, body: &Value) -> Value {
        let origin = format!("Origin: http://127.0.0.1:{}\r\nSec-Fetch-Site: same-origin\r\n", self.port);
        let (status, _, answer) =
            self.ask("POST", &format!("/{}/{path}", self.token), &origin, body.to_string().as_bytes());
        let text = String::from_utf8_lossy(&answer).into_owned();
        assert_eq!(status, 200, "{path}: {text}");
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{path}: {error}: {text}"))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

const ATTENTION: &str = "model A<D = 2> {\n    pub fn forward(q: f32[S, D], k: f32[T, D], v: f32[T, D]) -> f32[S, D] {\n        \
     softmax(q @ k.T / sqrt(D)) @ v\n    }\n}\n";

#[test]
fn only_the_own_page_may_ask() {
    let server = Server::start(&[]);
    let (port, own) = (server.port, format!("/{}/", server.token));
    let status = |method: &str, path: &str, headers: &str| server.ask(method, path, headers, b"{}").0;
    // The token.
    assert_eq!(status("GET", &own, ""), 200);
    for path in
        ["/", "/x/", "", &own[..own.len() - 1], &format!("/{}0/", server.token), &format!("/{}/", "0".repeat(32))]
    {
        assert_eq!(status("GET", if path.is_empty() { "/." } else { path }, ""), 403, "{path}");
    }
    // The host: a name that was made to resolve to this machine is another one.
    assert_eq!(status("GET", &own, &format!("Host: localhost:{port}\r\n")), 200);
    for host in
        ["evil.example", &format!("evil.example:{port}"), "127.0.0.1", "127.0.0.1:1", &format!("[::1]:{port}"), ""]
    {
        assert_eq!(status("GET", &own, &format!("Host: {host}\r\n")), 403, "{host}");
    }
    let twice = format!("GET {own} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nHost: evil.example\r\n\r\n");
    assert_eq!(server.raw(twice.as_bytes()).0, 403);
    assert_eq!(server.raw(format!("GET {own} HTTP/1.1\r\n\r\n").as_bytes()).0, 403);
    // The origin: other sites, other ports, and the report, which runs without one.
    let path = format!("{own}check");
    let body = json!({ "text": "model M {}\n" }).to_string();
    let from = |headers: &str| server.ask("POST", &path, headers, body.as_bytes()).0;
    assert_eq!(from(&format!("Origin: http://127.0.0.1:{port}\r\n")), 200);
    let localhost = format!("http://localhost:{port}");
    for origin in [
        "null",
        "https://evil.example",
        "http://127.0.0.1",
        "http://127.0.0.1:1",
        &format!("https://127.0.0.1:{port}"),
        &localhost,
    ] {
        assert_eq!(from(&format!("Origin: {origin}\r\n")), 403, "{origin}");
    }
    assert_eq!(from("Sec-Fetch-Site: cross-site\r\n"), 403);
    assert_eq!(from("Sec-Fetch-Site: same-site\r\n"), 403);
}

#[test]
fn the_page_loads_only_its_own_files() {
    let server = Server::start(&["4"]);
    let (status, head, page) = server.get("");
    let page = String::from_utf8_lossy(&page).into_owned();
    assert!(
        status == 200 && head.contains("default-src 'none'") && head.contains("Referrer-Policy: no-referrer"),
        "{head}"
    );
    let parts = page.split(['"', '\'']).filter(|part| part.ends_with(".js") || part.ends_with(".css"));
    let files: Vec<&str> = parts.collect();
    assert_eq!(files.len(), 7, "{files:?}");
    for file in files {
        let (status, _, text) = server.get(file);
        assert!(status == 200 && text.len() > 500, "{file}");
    }
    assert!(!page.contains("http:") && !page.contains("https:") && !page.contains("<script>"), "{page}");
    let course: Value = serde_json::from_slice(&server.get("course.json").2).expect("JSON");
    assert_eq!(course["start"], json!({ "chapter": "04-attention" }));
    assert!(course["chapters"].as_array().unwrap().len() > 10 && course["exercises"].as_array().unwrap().len() > 10);
    assert_eq!(server.get("picture/attention.svg").0, 200);
}

#[test]
fn malformed_requests_are_refused() {
    let server = Server::start(&[]);
    let own = |path: &str| format!("/{}/{path}", server.token);
    let post = |path: &str, body: &[u8]| server.ask("POST", &own(path), "", body).0;
    for path in [
        "nothing",
        "../Cargo.toml",
        "picture/../style.css",
        "picture/",
        "report/1",
        "report/x",
        "report/99999999999999999999",
        "%2e%2e/x",
    ] {
        assert_eq!(server.ask("GET", &own(path), "", b"").0, 404, "{path}");
    }
    assert_eq!((post("nothing", b"{}"), post("", b"{}"), server.ask("GET", &own("run"), "", b"").0), (404, 404, 405));
    assert_eq!((server.ask("PUT", &own("run"), "", b"{}").0, server.ask("DELETE", &own(""), "", b"").0), (405, 405));
    for path in ["language", "check", "interface", "report", "run", "judge"] {
        for body in [&b""[..], b"{", b"null", b"[]", b"3", b"{}", b"{\"text\": 3}", b"\xff\xfe", &b"[".repeat(100_000)]
        {
            assert_eq!(post(path, body), 400, "{path}: {:.20}", String::from_utf8_lossy(body));
        }
    }
    // Neither paths nor options get through.
    let fields = [
        json!({ "file": "../x.attn" }),
        json!({ "file": "/tmp/x.attn" }),
        json!({ "file": "-o.attn" }),
        json!({ "file": "x.so" }),
        json!({ "dims": { "D=2 --emit": 3 } }),
        json!({ "dims": { "D": "2,so=x" } }),
        json!({ "dims": 3 }),
        json!({ "model": "A --weights" }),
        json!({ "sizes": { "S": -1 } }),
        json!({ "sizes": { "S": "3" } }),
        json!({ "function": "--weights=/etc/passwd" }),
        json!({ "inputs": { "q": "/etc/x.npy" } }),
        json!({ "inputs": { "q": [1] } }),
        json!({ "inputs": { "q x": "1" } }),
        json!({ "options": ["--output=/tmp/x"] }),
        json!({ "options": ["--cpu=../x"] }),
        json!({ "options": [3] }),
    ];
    for field in fields {
        let mut body = json!({ "text": ATTENTION, "function": "forward" });
        field.as_object().unwrap().iter().for_each(|(name, value)| body[name] = value.clone());
        assert_eq!(post("run", body.to_string().as_bytes()), 400, "{field}");
    }
    for exercise in ["", "../05-attention", "--start", "05 attention"] {
        let body = json!({ "text": "", "exercise": exercise });
        assert_eq!(post("judge", body.to_string().as_bytes()), 400, "{exercise}");
    }
}

#[test]
fn huge_and_slow_requests_do_not_harm() {
    let server = Server::start(&[]);
    let start = Instant::now();
    let path = format!("/{}/check", server.token);
    let announce = |length: &str| {
        format!("POST {path} HTTP/1.1\r\nHost: 127.0.0.1:{}\r\nContent-Length: {length}\r\n\r\n", server.port)
    };
    // Nothing is allocated for a body that is only announced.
    assert_eq!(server.raw(announce("1099511627776").as_bytes()).0, 413);
    assert_eq!(server.raw(announce("18446744073709551615").as_bytes()).0, 413);
    assert_eq!(server.raw(announce("99999999999999999999999").as_bytes()).0, 400);
    let (status, _, why) = server.ask("POST", &path, "", &vec![b' '; 2 << 20]);
    assert_eq!((status, String::from_utf8_lossy(&why).trim()), (413, "the request is longer than 1 MiB"));
    assert_eq!(
        server
            .raw(
                &[announce("3").replace("Content-Length: 3", "Transfer-Encoding: chunked").as_bytes(), b"0\r\n\r\n"]
                    .concat()
            )
            .0,
        411
    );
    assert_eq!(server.raw(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 no TLS here\r\n\r\n").0, 400);
    assert_eq!(server.raw(format!("GET /{} HTTP/1.1\r\n", "a".repeat(30_000)).as_bytes()).0, 431);
    // Clients that say nothing keep nobody waiting.
    let silent: Vec<TcpStream> = (0..20).map(|_| TcpStream::connect(("127.0.0.1", server.port)).unwrap()).collect();
    assert_eq!(server.get("").0, 200);
    drop(silent);
    assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
}

#[test]
fn programs_are_checked_described_and_run() {
    let server = Server::start(&[]);
    let wrong = ATTENTION.replace("k.T", "k");
    let request = json!({ "method": "textDocument/codeAction", "params": { "range": { "start": { "line": 0, "character": 0 }, "end": { "line": 9, "character": 0 } } } });
    let answer = server.call("language", &json!({ "text": wrong, "requests": [request, { "method": "no/such" }] }));
    assert_eq!(answer["diagnostics"][0]["code"], "E0301", "{answer}");
    assert_eq!(answer["diagnostics"][0]["range"]["start"], json!({ "line": 2, "character": 18 }));
    assert!(answer["diagnostics"][0]["message"].as_str().unwrap().contains("`k.T` has shape f32[D, T]"), "{answer}");
    assert!(answer["results"][0].is_array() && answer["results"][1].is_null(), "{answer}");
    let right = server.call("language", &json!({ "text": ATTENTION }));
    assert_eq!((&right["diagnostics"], &right["results"]), (&json!([]), &json!([])));

    let sizes = json!({ "S": 1, "T": 2 });
    let found = server.call("interface", &json!({ "text": ATTENTION, "sizes": sizes }))["interface"].clone();
    assert_eq!(found["models"], json!([{ "name": "A", "dims": [{ "name": "D", "default": "2" }] }]));
    assert_eq!(found["entries"][0]["symbols"], json!(["S", "T"]));
    assert_eq!(
        found["entries"][0]["args"][1],
        json!({ "name": "k", "elem": "f32", "dims": ["T", "2"], "shape": [2, 2] })
    );
    let open = server.call("interface", &json!({ "text": ATTENTION.replace(" = 2", "") }));
    assert_eq!(open["interface"]["models"][0]["dims"], json!([{ "name": "D", "default": null }]), "{open}");
    assert_eq!(open["interface"]["entries"][0]["symbols"], json!(["D", "S", "T"]));
    // A dimension of a parameter must be bound.
    let weighted = "model A<D> {\n    w: f32[D]\n    pub fn forward(x: f32[S, D]) -> f32[S, D] { x * w }\n}\n";
    let open = server.call("interface", &json!({ "text": weighted }));
    assert_eq!((&open["interface"]["entries"], &open["interface"]["model"]), (&json!([]), &json!("A")));
    assert!(open["messages"].as_str().unwrap().contains("E0608"), "{open}");
    let bound = server.call("interface", &json!({ "text": weighted, "dims": { "D": "3" }, "sizes": { "S": 2 } }));
    assert_eq!(bound["interface"]["entries"][0]["args"][0]["shape"], json!([2, 3]), "{bound}");
    assert_eq!(bound["interface"]["parameters"], json!(true));

    // One query, two keys: weights e^(1/sqrt 2) : 1.
    let inputs = json!({ "q": "[[1, 0]]", "k": "[[1, 0], [0, 1]]", "v": "[[1, 2], [3, 4]]" });
    let answer =
        server.call("run", &json!({ "text": ATTENTION, "function": "forward", "sizes": sizes, "inputs": inputs }));
    assert_eq!((&answer["ok"], &answer["messages"]), (&json!(true), &json!("")), "{answer}");
    let first = 1.0 / (1.0 + (-0.5f64.sqrt()).exp());
    let close = |found: &Value, expected: &[f64]| {
        let found: Vec<f64> = found.as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect();
        assert!(
            found.len() == expected.len() && found.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-5),
            "{found:?} {expected:?}"
        );
    };
    assert_eq!((&answer["values"][0]["name"], &answer["values"][0]["shape"]), (&json!("result"), &json!([1, 2])));
    close(&answer["values"][0]["elements"], &[3.0 - 2.0 * first, 4.0 - 2.0 * first]);
    let written = answer["inner"]["levels"][0]["values"].as_array().unwrap();
    let softmax = written.iter().find(|value| value["op"] == "softmax").expect("attention weights");
    close(&softmax["elements"], &[first, 1.0 - first]);
    let levels = answer["inner"]["levels"].as_array().unwrap();
    assert!(
        levels.len() == 2 && levels.iter().flat_map(|l| l["values"].as_array().unwrap()).all(|v| v["outside"] == 0),
        "{answer}"
    );
    // The report of the run, without an origin, and closed.
    let (status, head, page) = server.get(answer["report"].as_str().expect("a report"));
    assert!(status == 200 && head.contains("sandbox allow-scripts; default-src 'none'"), "{head}");
    assert!(String::from_utf8_lossy(&page).contains("attnc-record"));

    let failed = server.call(
        "run",
        &json!({ "text": ATTENTION, "function": "forward", "sizes": sizes, "inputs": { "q": "[[1, 0, 2]]" } }),
    );
    assert!(failed["ok"] == json!(false) && failed["messages"].as_str().unwrap().contains("E0803"), "{failed}");
    let report = server.call("report", &json!({ "text": wrong, "options": ["-O0", "--target=cuda", "--gpu=sm_80"] }));
    assert!(report["ok"] == json!(false) && report["report"].is_string(), "{report}");
    let ir = server.call(
        "check",
        &json!({ "text": "module \"m\"\nfunc @f() -> (f32[]) {\n^bb0:\n  return %9\n}", "file": "m.air" }),
    );
    let found = &ir["diagnostics"][0];
    assert_eq!((&found["range"]["start"], &found["severity"]), (&json!({ "line": 3, "character": 9 }), &json!(1)));
    assert!(found["data"]["rendered"].as_str().unwrap().contains("4 |   return %9"), "{ir}");
}

#[test]
fn exercises_are_judged() {
    let server = Server::start(&["05-attention"]);
    let course: Value = serde_json::from_slice(&server.get("course.json").2).expect("JSON");
    assert_eq!(course["start"], json!({ "exercise": "05-attention" }));
    let exercise =
        course["exercises"].as_array().unwrap().iter().find(|e| e["name"] == "05-attention").unwrap().clone();
    let judged = |text: &str| {
        let body = json!({ "text": text, "file": exercise["file"], "exercise": "05-attention" });
        let answer = server.call("judge", &body);
        (answer["passed"].as_bool().unwrap(), answer["messages"].as_str().unwrap().to_string())
    };
    let (passed, said) = judged(exercise["text"].as_str().unwrap());
    assert!(!passed && said.contains("  failed: "), "{said}");
    let solution = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/book/solutions/05-attention.attn");
    let (passed, said) = judged(&std::fs::read_to_string(solution).unwrap());
    assert!(passed, "{said}");
}

#[test]
fn limits_end_a_program_and_not_the_server() {
    let server = Server::start(&["--seconds", "3", "--memory", "1024"]);
    let run =
        |text: &str, sizes: Value| server.call("run", &json!({ "text": text, "function": "forward", "sizes": sizes }));
    let start = Instant::now();
    // An hour of work.
    let endless = "model M {\n    pub fn forward(x: f32[S]) -> f32[S] {\n        var y = x\n        for i in 0..2000000000 { y = sin(y) + x }\n        y\n    }\n}\n";
    let answer = run(endless, json!({ "S": 4 }));
    assert!(answer["stopped"] == json!(true) && answer["ok"] == json!(false), "{answer}");
    assert!(answer["messages"].as_str().unwrap().contains("more than 3 s, the limit of time"), "{answer}");
    assert!(start.elapsed() < Duration::from_secs(30), "{:?}", start.elapsed());
    // 40 GB of scores.
    let weights = "model M {\n    pub fn forward(x: f32[S, 2]) -> f32[S, S] { softmax(x @ x.T) }\n}\n";
    let answer = run(weights, json!({ "S": 100_000 }));
    assert!(
        answer["stopped"] == json!(true)
            && answer["messages"].as_str().unwrap().contains("1024 MiB, the limit of memory"),
        "{answer}"
    );
    assert_eq!(run(weights, json!({ "S": 2 }))["ok"], json!(true));
}

#[test]
fn wrong_command_lines_are_refused() {
    let attnc = |args: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_attnc")).arg("play").args(args).output().expect("attnc starts");
        (output.status.code().unwrap_or(-1), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    for (args, code, text) in [
        (&["99"][..], 2, "no file, chapter or exercise `99`"),
        (&["attention"], 2, "no file, chapter or exercise `attention`"),
        (&["missing.attn"], 3, "missing.attn"),
        (&["--port", "70000"], 2, "70000"),
        (&["--seconds", "0"], 2, "--seconds"),
        (&["--memory", "1"], 2, "--memory"),
        (&["--no-open", "--port", &port], 3, "cannot listen on port"),
    ] {
        let (exit, said) = attnc(args);
        assert!(exit == code && said.contains(text), "{args:?}: {exit} {said}");
    }
}
