//! `attnc lsp` about names: definitions, uses, new names, types and signatures, on every example and on programs with errors.

use super::lsp::{Client, edited, files};
use attnc::diagnostics::Diagnostics;
use attnc::reference;
use attnc::source::FileId;
use attnc::syntax::lexer::lex;
use attnc::syntax::token::Token;
use attnc::types::modules::MODULES;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::process::Command;

/// A name in a text that is not reserved.
struct Name {
    text: String,
    /// Offset of its first byte.
    at: usize,
    /// Its first character, as a position of the protocol.
    place: Value,
}

fn names(text: &str) -> Vec<Name> {
    let (mut found, mut line, mut start, mut last) = (Vec::new(), 0, 0, 0);
    for lexeme in lex(FileId(0), text, &mut Diagnostics::new()) {
        let at = lexeme.span.range().start;
        if let Some(newline) = text[last..at].rfind('\n') {
            line += text[last..at].matches('\n').count();
            start = last + newline + 1;
        }
        last = at;
        if let Token::Ident(name) = lexeme.token {
            let place = json!({ "line": line, "character": text[start..at].encode_utf16().count() });
            found.push(Name { text: name.to_string(), at, place });
        }
    }
    found
}

fn at(uri: &str, place: &Value) -> Value {
    json!({ "textDocument": { "uri": uri }, "position": place, "context": { "includeDeclaration": true } })
}

/// Is a name without a definition one of the language, of its library, or of an operation's arguments?
fn is_of_language(text: &str, name: &Name) -> bool {
    let (before, after) = (&text[..name.at], &text[name.at + name.text.len()..]);
    let words =
        ["use", "std", "layer", "model", "rule", "train", "state", "tap", "reset", "dim", "name", "rank", "T", "_"];
    let declared =
        |module: &str| module.contains(&format!("fn {}(", name.text)) || module.contains(&format!(" {}: ", name.text));
    words.contains(&name.text.as_str())
        || !reference::find(&name.text).is_empty()
        || after.starts_with(" = ")
        || before.ends_with('.') && MODULES.iter().any(|module| declared(module.text))
}

#[test]
fn definitions_references_and_tokens_agree() {
    let mut client = Client::start();
    let (mut declarations, mut uses) = (0, 0);
    for path in files("examples", "attn") {
        let text = std::fs::read_to_string(&path).unwrap();
        let uri = path.display().to_string();
        client.open(&uri, &text);
        let mut groups: BTreeMap<String, Vec<Value>> = BTreeMap::new();
        for name in names(&text) {
            let found = client.request("textDocument/definition", at(&uri, &name.place));
            if found.is_null() {
                assert!(is_of_language(&text, &name), "{uri}: `{}` at {} has no definition", name.text, name.place);
                continue;
            }
            if found["uri"] != uri {
                assert!(found["uri"].as_str().is_some_and(|uri| uri.starts_with("file:///")), "{uri}: {found}");
                continue;
            }
            groups.entry(found["range"]["start"].to_string()).or_default().push(name.place);
        }
        let tokens = client.request("textDocument/semanticTokens/full", at(&uri, &Value::Null));
        let tokens = decoded(&tokens["data"]);
        for (declaration, places) in groups {
            let declaration: Value = serde_json::from_str(&declaration).unwrap();
            let start = |one: &Value| one["range"]["start"].clone();
            for place in [&places[0], places.last().unwrap()] {
                let found = client.request("textDocument/references", at(&uri, place));
                let found: Vec<Value> = found.as_array().unwrap().iter().map(start).collect();
                assert_eq!(found, places, "{uri}: {declaration}");
                let found = client.request("textDocument/documentHighlight", at(&uri, place));
                let found: Vec<Value> = found.as_array().unwrap().iter().map(start).collect();
                assert_eq!(found, places, "{uri}: {declaration}");
            }
            let mut params = at(&uri, &declaration);
            params["context"]["includeDeclaration"] = json!(false);
            let others = client.request("textDocument/references", params);
            assert_eq!(others.as_array().unwrap().len() + 1, places.len(), "{uri}: {declaration}");
            for place in &places {
                assert_eq!(tokens.get(&place.to_string()), Some(&(*place == declaration)), "{uri}: {place}");
            }
            declarations += 1;
            uses += places.len();
        }
    }
    println!("{declarations} declarations, {uses} uses");
    assert!(declarations > 1000 && uses > 4000, "{declarations} declarations, {uses} uses");
    client.end();
}

/// The positions of semantic tokens: are they declarations?
fn decoded(data: &Value) -> BTreeMap<String, bool> {
    let numbers: Vec<u64> = data.as_array().unwrap().iter().map(|number| number.as_u64().unwrap()).collect();
    let (mut line, mut character, mut found) = (0, 0, BTreeMap::new());
    for token in numbers.chunks(5) {
        character = if token[0] == 0 { character + token[1] } else { token[1] };
        line += token[0];
        found.insert(json!({ "line": line, "character": character }).to_string(), token[4] == 1);
    }
    found
}

/// The graph IR of a program, without locations and columns.
fn ir(path: &std::path::Path) -> String {
    let made = Command::new(env!("CARGO_BIN_EXE_attnc")).arg(path).args(["--emit", "ir=-"]).output().unwrap();
    assert!(made.status.success(), "{}: {}", path.display(), String::from_utf8_lossy(&made.stderr));
    let text = String::from_utf8(made.stdout).unwrap();
    let words =
        |line: &str| line.split(" loc(").next().unwrap_or_default().split_whitespace().collect::<Vec<_>>().join(" ");
    text.lines().skip(1).map(words).collect::<Vec<_>>().join("\n")
}

/// Names get others, one after another: the program stays valid, and the old name gives the old text. In the end the IR is
/// the same but for the names. `ATTNC_EVERY=1` renames all of them, else those of every 32nd.
#[test]
fn renamed_programs_mean_the_same() {
    const NEW: &str = "0q";
    let every = std::env::var("ATTNC_EVERY").ok().and_then(|n| n.parse::<usize>().ok()).unwrap_or(32);
    let folder = tempfile::tempdir().unwrap();
    let mut client = Client::start();
    let (mut declarations, mut renamed, mut numbers) = (0, 0, BTreeMap::new());
    for path in files("examples", "attn") {
        let original = std::fs::read_to_string(&path).unwrap();
        let uri = path.display().to_string();
        let mut text = original.clone();
        client.open(&uri, &text);
        let mut all = names(&text);
        let mut next = 0;
        while let Some(name) = all.get(next) {
            let index = next;
            next += 1;
            let found = client.request("textDocument/definition", at(&uri, &name.place));
            if found["range"]["start"] != name.place {
                continue;
            }
            declarations += 1;
            // All that have the same name: the IR numbers those that it cannot tell apart.
            let number = numbers.len();
            if *numbers.entry(name.text.trim_end_matches(NEW).to_string()).or_insert(number) % every != 0 {
                continue;
            }
            let mut params = at(&uri, &name.place);
            params["newName"] = json!(format!("{}{NEW}", name.text));
            let answer = client.request("textDocument/rename", params);
            let Some(edits) = answer["changes"][&uri].as_array() else {
                // The call of a layer calls its `forward`.
                let why = answer["message"].as_str().unwrap();
                assert!(name.text == "forward" && why.ends_with("has no `forward`"), "{uri}: {}: {why}", name.text);
                continue;
            };
            let changed = edited(&text, edits);
            assert_eq!(client.open(&uri, &changed), Vec::<Value>::new(), "{uri}: {}", name.text);
            let after = names(&changed);
            // A field keeps its stored name by an attribute before it.
            let added = after.len() - all.len();
            next += added;
            let mut params = at(&uri, &after[index + added].place);
            params["newName"] = json!(name.text);
            let answer = client.request("textDocument/rename", params);
            assert_eq!(edited(&changed, answer["changes"][&uri].as_array().unwrap()), text, "{uri}: {}", name.text);
            (text, all) = (changed, after);
            renamed += 1;
        }
        let new = folder.path().join(path.file_name().unwrap());
        std::fs::write(&new, &text).unwrap();
        assert!(ir(&new).replace(NEW, "") == ir(&path), "{uri} and {} have different IR", new.display());
    }
    println!("{renamed} of {declarations} renamed");
    assert!(declarations > 1000 && renamed > declarations / every / 3, "{renamed} of {declarations}");
    client.end();
}

/// A program in which `|` marks a position: the program without it, and the position.
fn marked(text: &str) -> (String, Value) {
    let (before, after) = text.split_once('|').unwrap();
    let line = before.matches('\n').count();
    let character = before.lines().last().unwrap_or_default().encode_utf16().count();
    (format!("{before}{after}"), json!({ "line": line, "character": character }))
}

#[test]
fn renames_that_would_change_the_meaning_are_refused() {
    let mut client = Client::start();
    for (program, new, expected) in [
        ("fn f(x|: f32[S]) -> f32[S] { let y = 2 * x\n y + x }", "y", "`y` means something else"),
        ("fn f(x: f32[S]) -> f32[S] { let y| = 2 * x\n y + x }", "x", "`x` means something else"),
        ("fn f(x: f32[S|, D]) -> f32[S, D] { x }", "D", "`D` means something else"),
        ("fn f|(x: f32[S]) -> f32[S] { exp(x) }", "exp", "`exp` cannot be the name: the function `exp` calls itself"),
        (
            "fn f|(x: f32) -> f32 { x }\nfn g(x: f32) -> f32 { f(x) }",
            "g",
            "`g` cannot be the name: the name `g` is declared",
        ),
        ("fn f(x|: f32) -> f32 { x }", "let", "`let` is not a name"),
        ("fn f(x|: f32) -> f32 { x }", "a b", "`a b` is not a name"),
        ("fn f(x|: f32) -> f32 { x }", "", "`` is not a name"),
        ("fn f(x: f32) -> f32 { exp|(x) }", "g", "only names that are declared in the program"),
        ("use std.nn\nlayer A<D> { n: nn.Linear|<D, D> }", "B", "it is declared in the standard library"),
    ] {
        let (text, place) = marked(program);
        client.open("a", &text);
        let mut params = at("a", &place);
        params["newName"] = json!(new);
        let answer = client.request("textDocument/rename", params);
        let message = answer["message"].as_str().unwrap_or_default();
        assert!(message.starts_with(expected), "{program} to {new}: {answer}");
        let prepared = client.request("textDocument/prepareRename", at("a", &place));
        assert_eq!(prepared.is_null(), expected.contains("declared in"), "{program}: {prepared}");
    }
    client.end();
}

#[test]
fn renamed_fields_keep_their_stored_names() {
    let mut client = Client::start();
    for (program, new, expected) in [
        (
            "model M {\n    w|: f32[8]\n    pub fn f() -> f32[8] { w }\n}",
            "v",
            "model M {\n    #[name = \"w\"]\n    v: f32[8]\n    pub fn f() -> f32[8] { v }\n}",
        ),
        (
            "model M { w: f32[8]; pub fn f() -> f32[8] { w| } }",
            "layer",
            "model M { #[name = \"w\"] layer: f32[8]; pub fn f() -> f32[8] { layer } }",
        ),
        (
            "model M { #[name = \"a.b\"] w: f32; pub fn f() -> f32 { w| } }",
            "v",
            "model M { #[name = \"a.b\"] v: f32; pub fn f() -> f32 { v } }",
        ),
        (
            "model M { #[name = \"v\"]\n  w: f32; pub fn f() -> f32 { w| } }",
            "v",
            "model M { v: f32; pub fn f() -> f32 { v } }",
        ),
        (
            "model M { state w: f32; pub fn f() -> f32 { w| } }",
            "v",
            "model M { state v: f32; pub fn f() -> f32 { v } }",
        ),
    ] {
        let (text, place) = marked(program);
        client.open("a", &text);
        let mut params = at("a", &place);
        params["newName"] = json!(new);
        let answer = client.request("textDocument/rename", params);
        let edits = answer["changes"]["a"].as_array().unwrap_or_else(|| panic!("{program}: {answer}"));
        assert_eq!(edited(&text, edits), expected, "{program}");
    }
    client.end();
}

#[test]
fn declarations_of_the_library_are_in_files() {
    let mut client = Client::start();
    let (text, place) = marked("use std.nn\nmodel M { l: nn.Lin|ear<8, 8>; pub fn f(x: f32[8]) -> f32[8] { l(x) } }");
    client.open("a", &text);
    let found = client.request("textDocument/definition", at("a", &place));
    let uri = found["uri"].as_str().unwrap();
    let path = std::path::PathBuf::from(uri.strip_prefix("file://").unwrap());
    let library = std::fs::read_to_string(&path).unwrap();
    assert!(MODULES.iter().any(|module| module.text == library), "{uri}");
    let deleted = [json!({ "range": found["range"], "newText": "<here>" })];
    assert!(edited(&library, &deleted).contains("layer <here><"), "{found}");
    // An editor opens it like any program.
    assert_eq!(client.open(uri, &library), Vec::<Value>::new());
    client.end();
    assert!(!path.exists(), "{uri}");
}

#[test]
fn remarks_are_shown_and_their_edits_are_offered() {
    const PROGRAM: &str = "model M {
    scale: f32[8, 1, 1]
    pub fn f(q: f32[8, S, 64], k: f32[8, T, 64], v: f32[8, T, 64]) -> f32[8, S, 64] {
        softmax(q @ k.T * scale) @ v
    }
}
";
    let mut client = Client::start();
    let everything = json!({ "start": { "line": 0, "character": 0 }, "end": { "line": 99, "character": 0 } });
    let hints = |client: &mut Client, text: &str| -> Vec<(u64, String)> {
        client.open("a", text);
        let found =
            client.request("textDocument/inlayHint", json!({ "textDocument": { "uri": "a" }, "range": everything }));
        let hint = |hint: &Value| (hint["position"]["line"].as_u64().unwrap(), hint["label"].as_str().unwrap().into());
        found.as_array().unwrap().iter().map(hint).collect()
    };
    let has = |client: &mut Client, text: &str, name: &str| {
        let all = hints(client, text);
        all.iter().any(|(line, label)| *line == 3 && label.split(", ").any(|own| own == name))
    };
    assert!(has(&mut client, PROGRAM, "not fuse-attention (scale)"));
    let at_line =
        |line: u32| json!({ "start": { "line": line, "character": 12 }, "end": { "line": line, "character": 12 } });
    let actions = |client: &mut Client, line: u32| {
        client.request(
            "textDocument/codeAction",
            json!({ "textDocument": { "uri": "a" }, "range": at_line(line), "context": { "diagnostics": [] } }),
        )
    };
    let show = actions(&mut client, 2);
    assert!(show.as_array().is_some_and(|all| all.len() == 1), "{show}");
    let offered = actions(&mut client, 3);
    assert_eq!(offered[0]["title"], "write `(q * scale) @ k.T` instead of `q @ k.T * scale` (fuse-attention)");
    let changed = edited(PROGRAM, offered[0]["edit"]["changes"]["a"].as_array().unwrap());
    assert!(has(&mut client, &changed, "fuse-attention"), "{changed}");
    assert_eq!(actions(&mut client, 3).as_array().map(Vec::len), Some(1));
    // The report of the text in the editor, at the line.
    let command = &show[0]["command"];
    let asked = json!({ "command": command["command"], "arguments": command["arguments"] });
    assert_eq!(client.request("workspace/executeCommand", asked), Value::Null);
    let page = client.read();
    assert_eq!((&page["method"], &page["params"]["external"]), (&json!("window/showDocument"), &json!(true)));
    let page =
        std::fs::read_to_string(page["params"]["uri"].as_str().unwrap().strip_prefix("file://").unwrap()).unwrap();
    assert!(page.contains("<html data-line=\"3\" ") && page.contains("(q * scale) @ k.T"));
    client.end();
}

#[test]
fn types_signatures_and_meanings_are_shown() {
    const PROGRAM: &str = "use std.nn
/// Scales.
fn scaled(x: f32[S, D], factor: f32 = 1) -> f32[S, D] { factor * x }
model M<D, H = 2> where D % H == 0 {
    lin: Linear<D, 3*D>
    pub fn forward(x: f32[B, S, D]) -> f32[B, S] {
        let (q, k, v) = split(lin(x), parts = 3, axis = -1)
        var heads = rearrange(q, \"b s (h d) -> b h s d\", h = H)
        let n: f32 = 2
        for i in 0..S { heads = heads + n }
        sum(k, axis = -1)
    }
}
";
    let mut client = Client::start();
    client.open("a", PROGRAM);
    let everything = json!({ "start": { "line": 0, "character": 0 }, "end": { "line": 99, "character": 0 } });
    let hints =
        client.request("textDocument/inlayHint", json!({ "textDocument": { "uri": "a" }, "range": everything }));
    let edits: Vec<Value> = hints
        .as_array()
        .unwrap()
        .iter()
        .filter(|hint| hint["kind"] == 1)
        .map(
            |hint| json!({ "range": { "start": hint["position"], "end": hint["position"] }, "newText": hint["label"] }),
        )
        .collect();
    let shown = edited(PROGRAM, &edits);
    assert!(shown.contains("let (q: f32[B, S, D], k: f32[B, S, D], v: f32[B, S, D]) = "), "{shown}");
    assert!(shown.contains("var heads: f32[B, H, S, D/H] = "), "{shown}");
    assert!(shown.contains("let n: f32 = 2") && shown.contains("for i in 0") && edits.len() == 4, "{shown}");
    let hover = |client: &mut Client, text: &str| {
        let (text, place) = marked(text);
        client.open("b", &text);
        client.request("textDocument/hover", at("b", &place))["contents"]["value"]
            .as_str()
            .unwrap_or_default()
            .to_string()
    };
    let marked_at = |place: &str| PROGRAM.replacen(place, &format!("{}|{}", &place[..1], &place[1..]), 1);
    assert!(hover(&mut client, &marked_at("heads + n")).contains("heads: f32[B, H, S, D/H]"));
    assert!(hover(&mut client, &marked_at("lin(x)")).contains("lin: Linear<D, 3*D>"));
    // A call is rarely valid while it is written.
    for (call, label, active) in [
        ("scaled(k, |", "scaled(x: f32[S, D], factor: f32 = 1) -> f32[S, D]", 1),
        ("scaled(factor = exp(1), x = |)", "scaled(x: f32[S, D], factor: f32 = 1) -> f32[S, D]", 0),
        (
            "2 * scaled(\n            k,\n            |q,\n        )",
            "scaled(x: f32[S, D], factor: f32 = 1) -> f32[S, D]",
            1,
        ),
        ("2 * (lin(|", "forward(x: E[.., I]) -> E[.., O]", 0),
        ("softmax(k[0, 1], a|", "softmax(x, axis = -1)", 1),
        ("cast<bf16>(|k)", "cast<type>(x)", 0),
        ("sum(scaled(k, [1, |2])", "scaled(x: f32[S, D], factor: f32 = 1) -> f32[S, D]", 1),
    ] {
        let (text, place) = marked(&PROGRAM.replace("sum(k, axis = -1)", call));
        client.open("b", &text);
        let help = client.request("textDocument/signatureHelp", at("b", &place));
        assert_eq!(help["signatures"][0]["label"], label, "{call}");
        assert_eq!(help["activeParameter"], active, "{call}");
    }
    client.end();
}

/// A program of this many copies of an example, whose declarations have different names.
fn copies(text: &str, count: usize) -> String {
    let lines = text
        .lines()
        .filter_map(|line| line.split(['<', ' ', '(']).nth(1).filter(|_| !line.starts_with(['u', '/', ' '])));
    let declared: Vec<&str> = lines.collect();
    let (head, body) = text.split_once("use std.nn\n").unwrap();
    let mut program = format!("{head}use std.nn\n");
    for copy in 0..count {
        let (mut own, mut last) = (String::new(), 0);
        for name in names(body).iter().filter(|name| declared.contains(&name.text.as_str())) {
            own.push_str(&body[last..name.at]);
            own.push_str(&format!("{}{copy}", name.text));
            last = name.at + name.text.len();
        }
        program.push_str(&own);
        program.push_str(&body[last..]);
    }
    program
}

/// Prints the time from a key to the diagnostics; it grows with the length of the program, not faster.
#[test]
fn keys_are_answered_at_once() {
    let keys = std::env::var("ATTNC_KEYS").ok().and_then(|n| n.parse::<usize>().ok()).unwrap_or(20);
    let text = std::fs::read_to_string(&files("examples", "attn")[23]).unwrap();
    let mut client = Client::start();
    let mut fastest = Vec::new();
    for count in [1, 3] {
        let program = copies(&text, count);
        assert_eq!(client.open("a", &program), Vec::<Value>::new());
        let all = names(&program);
        let mut times = Vec::new();
        for (key, name) in all.iter().step_by(all.len() / keys).enumerate() {
            // The second key makes the program valid again.
            let changed = format!("{}x{}", &program[..name.at], &program[name.at..]);
            for (half, text) in [changed.as_str(), &program].into_iter().enumerate() {
                let version = 2 * key + half + 2;
                let start = std::time::Instant::now();
                let document = json!({ "uri": "a", "version": version });
                client.notify(
                    "textDocument/didChange",
                    json!({ "textDocument": document, "contentChanges": [{ "text": text }] }),
                );
                client.published("a", version as i64);
                times.push(start.elapsed().as_secs_f64() * 1e3);
            }
        }
        times.sort_by(f64::total_cmp);
        let (median, most) = (times[times.len() / 2], times[times.len() * 95 / 100]);
        let lines = program.lines().count();
        println!("{lines} lines, {} keys: median {median:.1} ms, 95 % within {most:.1} ms", times.len());
        fastest.push(times[0]);
    }
    assert!(fastest[1] < 8.0 * fastest[0], "{fastest:?}");
    client.end();
}

/// Every request is answered at every name of every program with errors, and of examples that end in the middle.
#[test]
fn programs_with_errors_are_answered() {
    let mut client = Client::start();
    let mut programs = Vec::new();
    for path in ["types", "syntax"].iter().flat_map(|folder| files(&format!("snapshots/{folder}"), "snap")) {
        let text = std::fs::read_to_string(&path).unwrap();
        let body = text.splitn(3, "---\n").nth(2).unwrap_or_default();
        programs.push(body.split("\n---\n").next().unwrap_or_default().to_string());
    }
    let text = std::fs::read_to_string(&files("examples", "attn")[7]).unwrap();
    programs.extend(names(&text).iter().step_by(23).map(|name| text[..name.at].to_string()));
    let (mut known, mut asked) = (0, 0);
    for text in &programs {
        client.open("a", text);
        let end = json!({ "line": 9999, "character": 0 });
        for name in names(text).iter().step_by(5).map(|name| &name.place).chain([&end]) {
            for method in [
                "definition",
                "references",
                "documentHighlight",
                "hover",
                "prepareRename",
                "rename",
                "signatureHelp",
                "inlayHint",
                "semanticTokens/full",
            ] {
                let mut params = at("a", name);
                params["newName"] = json!("other");
                params["range"] = json!({ "start": {}, "end": end });
                let answer = client.request(&format!("textDocument/{method}"), params);
                assert!(answer["code"] != -32603, "{method} at {name}: {answer}\n{text}");
                known += usize::from(method == "definition" && !answer.is_null());
            }
            asked += 1;
        }
    }
    println!("{} programs, {known} of {asked} names with a definition", programs.len());
    assert!(known > asked / 3, "{known} of {asked}");
    client.end();
}
