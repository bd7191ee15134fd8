//! Do chat templates, conversations and vectors of sentences agree with `transformers` and `sentence-transformers`, and is every other
//! input refused in words? The files stand in tests/fixtures (chat.json, chat/, sentences/), with the scripts that made them.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use attnc::runtime::npy;
use attnc::tokenizer::{ChatTemplate, Message};
use safetensors::tensor::{Dtype, SafeTensors, TensorView};
use serde_json::{Value, json};

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
}

fn parsed(path: &Path) -> Value {
    serde_json::from_str(&std::fs::read_to_string(path).expect("a file")).expect("JSON")
}

fn texts(value: &Value) -> Vec<&str> {
    value.as_array().expect("a list").iter().map(|text| text.as_str().expect("a text")).collect()
}

/// Exit code, stdout and stderr of a command in a folder, with a text on stdin.
fn attnc(folder: &Path, args: &[&str], stdin: &str) -> (i32, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_attnc"));
    command.args(args).current_dir(folder).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("attnc starts");
    // A command that fails may not read it.
    let _ = child.stdin.take().expect("a pipe").write_all(stdin.as_bytes());
    let done = child.wait_with_output().expect("attnc ends");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
    (done.status.code().unwrap_or(-1), text(done.stdout), text(done.stderr))
}

/// A copy of a fixture's folder, with its program `model.attn`.
fn imported(name: &str, change: impl Fn(&Path)) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    for entry in std::fs::read_dir(fixture(name)).expect("the folder") {
        let entry = entry.expect("an entry");
        std::fs::copy(entry.path(), folder.path().join(entry.file_name())).expect("a copy");
    }
    change(folder.path());
    let (code, _, err) = attnc(folder.path(), &["import", ".", "-o", "model.attn"], "");
    assert_eq!((code, err.as_str()), (0, ""));
    folder
}

#[test]
fn templates_make_the_prompts_of_the_library() {
    let file = parsed(&fixture("chat.json"));
    let cases = file["cases"].as_array().expect("a list");
    assert!(cases.len() >= 24);
    for case in cases {
        let name = case["template"].as_str().expect("a name");
        let template =
            ChatTemplate::read(&file["config"].to_string(), file["templates"][name].as_str()).expect("a template");
        let message = |one: &Value| Message {
            role: ["system", "user", "assistant"].into_iter().find(|role| one["role"] == *role).expect("a role"),
            content: one["content"].as_str().expect("a text").to_owned(),
        };
        let messages: Vec<Message> = case["messages"].as_array().expect("a list").iter().map(message).collect();
        assert_eq!(template.render(&messages).as_deref(), Ok(case["want"].as_str().expect("a text")), "{name}");
    }
}

#[test]
fn conversations_are_those_of_the_library() {
    let folder = imported("chat", |_| ());
    let expected = parsed(&fixture("chat/expected.json"));
    let questions = texts(&expected["questions"]).join("\n\n");
    for case in expected["cases"].as_array().expect("a list") {
        let options = ["chat", "model.attn", "--weights", "model.safetensors", "--tokenizer", "tokenizer.json"];
        let choice = ["--temperature", "0", "--max-tokens", "14"];
        let system = case["system"].as_str().map_or(Vec::new(), |text| vec!["--system", text]);
        let (code, out, err) = attnc(folder.path(), &[&options[..], &choice, &system].concat(), &questions);
        let want: Vec<String> = texts(&case["answers"]).iter().map(|answer| format!("{answer}\n")).collect();
        assert_eq!((code, out.as_str()), (0, want.concat().as_str()), "{err}");
        // A note for each answer that `--max-tokens` ended.
        let whole = case["ids"].as_array().expect("a list").iter().filter(|ids| {
            let ids = ids.as_array().expect("tokens");
            ids.len() == 14 && ids.last() != Some(&json!(49))
        });
        assert_eq!(err.matches("note: the answer is not complete").count(), whole.count(), "{err}");
    }
}

#[test]
fn conversations_that_cannot_be_held_are_refused_in_words() {
    let folder = imported("chat", |_| ());
    let path = folder.path();
    let chat = |more: &[&str], stdin: &str| {
        let options = ["chat", "model.attn", "--weights", "model.safetensors", "--tokenizer", "tokenizer.json"];
        attnc(path, &[&options[..], more].concat(), stdin)
    };
    std::fs::write(path.join("broken.jinja"), "\n{% if %}").expect("a file");
    std::fs::write(
        path.join("loops.jinja"),
        "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
    )
    .expect("a file");
    let doubles = "{% set n = namespace(s=[1]) %}{% for i in range(60) %}{% set n.s = n.s + n.s %}{% endfor %}";
    std::fs::write(path.join("doubles.jinja"), doubles).expect("a file");
    std::fs::write(path.join("refuses.jinja"), "{{ raise_exception('no greetings') }}").expect("a file");
    std::fs::write(path.join("empty.jinja"), "").expect("a file");
    for (template, code, told) in [
        ("broken.jinja", 3, "`broken.jinja` cannot be used: line 2: "),
        ("loops.jinja", 2, "the chat template: line 1: it takes more work or memory than the limit"),
        ("doubles.jinja", 2, "the chat template: it takes longer than 5 s, the limit"),
        ("refuses.jinja", 2, "it says: no greetings"),
        ("empty.jinja", 2, "the chat template makes an empty prompt"),
        ("nothing.jinja", 3, "cannot read `nothing.jinja`"),
    ] {
        let (found, out, err) = chat(&["--template", template], "Hi\n");
        assert!((found, out.as_str()) == (code, "") && err.contains(told), "{template}: {found} {err}");
    }
    // More than the cache holds: what was said before stays.
    let long = format!("Hi\n{}\n", "a b c ".repeat(100));
    let (code, out, err) = chat(&["--max-tokens", "2", "--temperature", "0"], &long);
    assert!(code != 0 && out.lines().count() == 1 && err.contains("the prompt has "), "{code} {out} {err}");
    let (code, _, err) = chat(&["--dim", "V=100"], "Hi\n");
    assert!(code != 0 && !err.contains("panicked"), "{err}");
    std::fs::write(path.join("generation_config.json"), r#"{"eos_token_id": "x"}"#).expect("a file");
    let (code, _, err) = chat(&[], "Hi\n");
    assert!(code == 3 && err.contains("its `eos_token_id` is not a token, or a list of tokens"), "{err}");
    std::fs::remove_file(path.join("generation_config.json")).expect("a file");
    std::fs::write(path.join("tokenizer_config.json"), "{}").expect("a file");
    let (code, _, err) = chat(&[], "Hi\n");
    assert!(code == 3 && err.contains("there is no `chat_template`"), "{err}");
}

/// A `bf16` file is mapped, not converted: the text is that of the same numbers in `f32`.
#[test]
fn weights_of_16_bits_write_the_same_text() {
    let folder = imported("chat", |_| ());
    let path = folder.path();
    let bytes = std::fs::read(path.join("model.safetensors")).expect("a file");
    let file = SafeTensors::deserialize(&bytes).expect("tensors");
    let (mut narrow, mut wide) = (Vec::new(), Vec::new());
    for (name, tensor) in file.iter() {
        let numbers = tensor.data().as_chunks::<4>().0.iter().map(|x| half::bf16::from_f32(f32::from_le_bytes(*x)));
        let shape = tensor.shape().to_vec();
        narrow.push((name, shape.clone(), numbers.clone().flat_map(half::bf16::to_le_bytes).collect::<Vec<u8>>()));
        wide.push((name, shape, numbers.flat_map(|x| x.to_f32().to_le_bytes()).collect::<Vec<u8>>()));
    }
    for (name, dtype, tensors) in [("narrow", Dtype::BF16, &narrow), ("wide", Dtype::F32, &wide)] {
        let views = tensors
            .iter()
            .map(|(name, shape, data)| (*name, TensorView::new(dtype, shape.clone(), data).expect("a tensor")));
        let bytes = safetensors::serialize(views, None).expect("a file");
        std::fs::write(path.join(format!("{name}.safetensors")), bytes).expect("a file");
    }
    for pack in ["f32", "bf16", "int8"] {
        let write = |weights: &str| {
            let options =
                ["generate", "model.attn", "--tokenizer", "tokenizer.json", "--temperature", "0", "--cpu", "avx512"];
            let more = ["--prompt", "It is a truth", "--max-tokens", "20", "--pack", pack, "--weights", weights];
            let (code, out, err) = attnc(path, &[&options[..], &more].concat(), "");
            assert!(code == 0 && !err.contains("takes memory"), "{err}");
            out
        };
        assert_eq!(write("narrow.safetensors"), write("wide.safetensors"), "{pack}");
    }
}

/// Writes the configuration of a pooling.
fn pooled(folder: &Path, modules: &Value, pooling: &Value) {
    std::fs::write(folder.join("modules.json"), modules.to_string()).expect("a file");
    std::fs::create_dir(folder.join("1_Pooling")).expect("a folder");
    std::fs::write(folder.join("1_Pooling/config.json"), pooling.to_string()).expect("a file");
}

#[test]
fn vectors_are_those_of_the_definition() {
    let expected = parsed(&fixture("sentences/expected.json"));
    let lines: String = texts(&expected["texts"]).iter().map(|text| format!("{text}\n")).collect();
    for case in expected["cases"].as_array().expect("a list") {
        let folder = imported("sentences", |folder| pooled(folder, &case["modules"], &case["pooling"]));
        let options = ["embed", "model.attn", "--weights", "model.safetensors", "--tokenizer", "tokenizer.json"];
        let (code, out, err) = attnc(folder.path(), &options, &lines);
        assert!(code == 0 && err.contains("2 of 4 texts were cut to 12 tokens"), "{err}");
        let rows = |text: &Value| -> Vec<Vec<f64>> { serde_json::from_value(text.clone()).expect("rows") };
        let (got, want) = (rows(&parsed_lines(&out)), rows(&case["vectors"]));
        assert_eq!((got.len(), got[0].len()), (want.len(), want[0].len()));
        for (got, want) in got.iter().flatten().zip(want.iter().flatten()) {
            assert!((got - want).abs() <= 1e-5 * want.abs().max(1.0), "{} {got} {want}", case["pooling"]);
        }
        let file = [&options[..], &["-o", "vectors.npy"]].concat();
        let (code, shown, err) = attnc(folder.path(), &file, &lines);
        assert_eq!((code, shown.as_str()), (0, ""), "{err}");
        let array = npy::parse(&std::fs::read(folder.path().join("vectors.npy")).expect("a file")).expect("an array");
        assert_eq!(array.shape(), [4, want[0].len()]);
        assert_eq!(array.to_f64(), got.into_iter().flatten().map(|x| f64::from(x as f32)).collect::<Vec<f64>>());
    }
}

fn parsed_lines(text: &str) -> Value {
    text.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON")).collect()
}

#[test]
fn poolings_that_are_unknown_are_refused_by_name() {
    let module =
        |kind: &str, path: &str| json!({ "path": path, "type": format!("sentence_transformers.models.{kind}") });
    let (bert, pool) = (module("Transformer", ""), module("Pooling", "1_Pooling"));
    let mean = json!({ "pooling_mode_mean_tokens": true });
    for (modules, pooling, told) in [
        (json!([bert, pool, module("Dense", "2_Dense")]), mean.clone(), "sentence_transformers.models.Dense"),
        (json!([bert, module("Pooling", "../x")]), mean.clone(), "\"../x\", is not a folder"),
        (
            json!([bert, pool]),
            json!({ "pooling_mode_weightedmean_tokens": true }),
            "its pooling is not made of cls, max",
        ),
        (json!([bert, pool]), json!({ "pooling_mode": "mean+median" }), "its pooling is not made of"),
        (json!([bert, pool]), json!({}), "its pooling is not made of"),
    ] {
        let folder = tempfile::tempdir().expect("a folder");
        for name in ["config.json", "model.safetensors"] {
            std::fs::copy(fixture("sentences").join(name), folder.path().join(name)).expect("a copy");
        }
        pooled(folder.path(), &modules, &pooling);
        let (code, out, err) = attnc(folder.path(), &["import", "."], "");
        assert!((code, out.as_str()) == (3, "") && err.contains(told), "{told}: {err}");
    }
    // Without a pooling there is nothing to call.
    let folder = imported("sentences", |_| ());
    let (code, _, err) = attnc(folder.path(), &["embed", "model.attn", "--random", "--tokenizer", "bytes"], "x\n");
    assert!(code == 2 && err.contains("there is no entry point `embed`"), "{err}");
    let wrong = ["embed", "model.attn", "--random", "--tokenizer", "bytes", "--function", "encode"];
    let (code, _, err) = attnc(folder.path(), &wrong, "x\n");
    assert!(code == 2 && err.contains("`encode` cannot embed texts: expected the tokens"), "{err}");
}
