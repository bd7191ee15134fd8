//! Does `attnc generate` divide texts as the library `tokenizers` does, put them together again, and refuse files that it would follow
//! wrongly? The files stand in tests/fixtures/tokenizers, with the script that made them beside that folder.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use attnc::tokenizer::{Marks, Tokenizer};
use serde_json::{Value, json};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/tokenizers")
}

/// A tokenizer's file, texts with their tokens, and how many of these are behind each text.
fn fixture_of(name: &str) -> (Value, Vec<Value>, usize) {
    let text = std::fs::read_to_string(folder().join(name)).expect("a file");
    let mut file: Value = serde_json::from_str(&text).expect("JSON");
    let cases = file["cases"].as_array().expect("a list").clone();
    let after = file["after"].as_u64().and_then(|n| usize::try_from(n).ok()).expect("a count");
    (file["tokenizer"].take(), cases, after)
}

fn fixture(name: &str) -> (Value, Vec<Value>) {
    let (file, cases, _) = fixture_of(name);
    (file, cases)
}

#[test]
fn tokens_are_those_of_the_library() {
    let mut files = 0;
    for entry in std::fs::read_dir(folder()).expect("the folder") {
        let name = entry.expect("an entry").file_name().to_string_lossy().into_owned();
        let (file, cases, after) = fixture_of(&name);
        let tokenizer = Tokenizer::read(&file.to_string()).unwrap_or_else(|e| panic!("{name}: {e}"));
        for case in &cases {
            let text = case["text"].as_str().expect("a text");
            let ids: Vec<u32> = serde_json::from_value(case["ids"].clone()).expect("tokens");
            assert_eq!(tokenizer.encode(text.as_bytes(), Marks::Both).as_ref(), Ok(&ids), "{name}: {text:?}");
            let goes_on = tokenizer.encode(text.as_bytes(), Marks::Begin);
            assert_eq!(goes_on.as_deref(), Ok(&ids[..ids.len() - after]), "{name}: {text:?}");
            assert!(ids.iter().all(|id| u64::from(*id) < tokenizer.vocabulary()), "{name}");
            let bytes: Vec<u8> = ids.iter().flat_map(|id| tokenizer.bytes(*id).expect("a token")).collect();
            let back = String::from_utf8_lossy(&bytes);
            // The library takes away a blank at the beginning of a whole text.
            let strips = ["Sequence", "Metaspace", "WordPiece"].iter().any(|kind| file["decoder"]["type"] == *kind);
            let back = if strips { back.strip_prefix(' ').unwrap_or(&back) } else { &back };
            assert_eq!(back, case["decoded"].as_str().expect("a text"), "{name}: {text:?}");
        }
        assert!(tokenizer.bytes(u32::MAX).is_none());
        assert!(tokenizer.encode(b"a\xff", Marks::None).is_err_and(|why| why.contains("not UTF-8 from byte 1 on")));
        files += 1;
    }
    assert!(files >= 11, "{files}");
}

/// Random normalizers, pre-tokenizers and added tokens, some of them normalized: the tokens of the library, and nothing else.
#[test]
fn random_tokenizers_give_the_tokens_of_the_library() {
    let text = std::fs::read_to_string(folder().with_file_name("random_tokenizers.json")).expect("a file");
    let all: Value = serde_json::from_str(&text).expect("JSON");
    let (mut texts, mut refused) = (0, 0);
    for file in all["files"].as_array().expect("a list") {
        let mut tokenizer = file["tokenizer"].clone();
        tokenizer["model"] = all["model"].clone();
        let read = match Tokenizer::read(&tokenizer.to_string()) {
            Ok(read) => read,
            Err(why) => {
                assert!(why.contains("more than 16 times as long"), "{why}");
                refused += 1;
                continue;
            }
        };
        for case in file["cases"].as_array().expect("a list") {
            let ids: Vec<u32> = serde_json::from_value(case["ids"].clone()).expect("tokens");
            let text = case["text"].as_str().expect("a text");
            assert_eq!(read.encode(text.as_bytes(), Marks::Both), Ok(ids), "{text:?} {}", file["tokenizer"]);
            texts += 1;
        }
    }
    assert!(texts > 900 && refused < 5, "{texts} {refused}");
}

/// Small files and prompts that ask for much work or memory get an answer soon, or the name of a limit.
#[test]
fn work_and_memory_are_bounded() {
    let words: BTreeMap<&str, usize> = ["a", "b", "z", ","].into_iter().zip(0..).collect();
    let of = |field: &str, value: Value| {
        let mut file = json!({"model": {"type": "BPE", "vocab": words, "merges": []}});
        file[field] = value;
        file
    };
    let split = |pattern: &str| json!({"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated"});
    let (work, memory) = ("more work than the limit, 2^26 steps", "more memory than the limit, 1 MiB");
    let many = json!({"type": "Sequence", "pretokenizers": vec![split("."); 100]});
    let prepend = |added: Value| {
        let mut file = of("normalizer", json!({"type": "Prepend", "prepend": "b".repeat(10_000)}));
        file["added_tokens"] = added;
        file
    };
    let special = vec![json!({"SpecialToken": {"id": "s"}}); 6000];
    let template =
        json!({"type": "TemplateProcessing", "single": special, "special_tokens": {"s": {"ids": vec![0; 9000]}}});
    let long = "a".repeat(80_000);
    let unigram = json!({"type": "Unigram", "unk_id": 0, "vocab": [["?", 0], ["a", -1], [&long, -2]]});
    let added: Vec<Value> = (0..40_000).map(|n| json!({"id": n + 10, "content": format!("t{n}x")})).collect();
    let normal: Vec<Value> =
        (0..40_000).map(|n| json!({"id": n + 10, "content": format!("t{n}x"), "normalized": true})).collect();
    for (file, text, answer) in [
        (of("pre_tokenizer", split(r"(?=((?:a?){18})z\1)|.")), "a".repeat(10_000), Err(work)),
        (of("pre_tokenizer", split("(?=[^z]*z)|.")), "a".repeat(200_000), Err(work)),
        (of("pre_tokenizer", split("(?:a|aa)+,")), "a".repeat(100), Err(work)),
        (of("pre_tokenizer", many), "ab".repeat(48_000), Err(work)),
        (
            of("pre_tokenizer", split("(?:(?:ab){1000}){1000}")),
            "a".into(),
            Err("more than 16384 instructions, the limit"),
        ),
        (of("pre_tokenizer", split(&"a".repeat(20_000))), "a".into(), Err("longer than 16384 bytes, the limit")),
        (prepend(json!([{"id": 9, "content": ","}])), "a,".repeat(10_000), Err(memory)),
        (prepend(Value::Array(normal)), "a".into(), Err(memory)),
        (of("post_processor", template), "a".into(), Err("more than 1024 tokens, the limit")),
        (of("model", unigram), long, Ok(1)),
        (of("added_tokens", Value::Array(added)), "t39999xz".repeat(25_000), Ok(50_000)),
        (of("more", Value::String("a".repeat(65 << 20))), "a".into(), Err("longer than 64 MiB, the limit")),
        (of("more", Value::String("{".repeat(1 << 20))), "a".into(), Err("more than 8388608 values, the limit")),
    ] {
        let made =
            Tokenizer::read(&file.to_string()).and_then(|tokenizer| tokenizer.encode(text.as_bytes(), Marks::Begin));
        match (made.map(|tokens| tokens.len()), answer) {
            (Ok(count), Ok(wanted)) => assert_eq!(count, wanted),
            (Err(why), Err(told)) => assert!(why.contains(told), "{why}"),
            (made, answer) => panic!("{made:?} {answer:?}"),
        }
    }
}

#[test]
fn what_would_be_followed_wrongly_is_refused() {
    for (name, place, value, told) in [
        ("gpt2.json", "/model/type", json!("WordLevel"), "`model.type` is \"WordLevel\"; expected \"BPE\""),
        ("gpt2.json", "/model/vocab", json!([]), "`model.vocab` is not an object"),
        ("gpt2.json", "/model/merges/3", json!("q"), "`model.merges[3]` is \"q\", which is not in `model.vocab`"),
        ("gpt2.json", "/model/merges/0", json!(["a", "\u{4e00}"]), "`model.merges[0]`"),
        ("gpt2.json", "/model/end_of_word_suffix", json!("</w>"), "`model.end_of_word_suffix` is \"</w>\""),
        (
            "gpt2.json",
            "/pre_tokenizer/type",
            json!("UnicodeScripts"),
            "`pre_tokenizer` is \"UnicodeScripts\"; expected BertPreTokenizer, ByteLevel",
        ),
        ("llama3.json", "/normalizer/type", json!("Nmt"), "`normalizer` is \"Nmt\"; expected NFC"),
        (
            "llama3.json",
            "/pre_tokenizer/pretokenizers/0/pattern/Regex",
            json!("("),
            "`pre_tokenizer.pretokenizers[0]` has a pattern",
        ),
        (
            "llama3.json",
            "/pre_tokenizer/pretokenizers/0/behavior",
            json!("Odd"),
            "`pre_tokenizer.pretokenizers[0].behavior` is \"Odd\"",
        ),
        (
            "llama3.json",
            "/post_processor/processors/1/type",
            json!("Lowercase"),
            "`post_processor.processors[1]` is \"Lowercase\"; expected ByteLevel, TemplateProcessing, Rob",
        ),
        ("t5.json", "/post_processor/single", json!([]), "`post_processor.single` has no text"),
        (
            "t5.json",
            "/post_processor/single/1",
            json!({"Sequence": {"id": "A", "type_id": 0}}),
            "`post_processor.single` has the text twice",
        ),
        (
            "t5.json",
            "/post_processor/special_tokens/<~1s>/ids/0",
            json!(999_999),
            "the id 999999 of \"</s>\" is not a token",
        ),
        ("bart.json", "/post_processor/sep/1", json!(999_999), "`post_processor.sep`: the id 999999 of \"</s>\" is no"),
        ("bart.json", "/post_processor/cls", json!(null), "`post_processor.cls`: the id null of \"\" is not a token"),
        ("llama3.json", "/post_processor/processors/1/special_tokens", json!({}), "has no ids of \"<s>\""),
        (
            "llama3.json",
            "/post_processor/processors/1/special_tokens/<s>/ids/0",
            json!(999_999),
            "the id 999999 of \"<s>\" is not a token",
        ),
        (
            "llama3.json",
            "/post_processor/processors/1/special_tokens/<s>/ids/0",
            json!("<s>"),
            "the id \"<s>\" of \"<s>\" is not a token",
        ),
        ("t5.json", "/model/vocab", json!({"a": 1}), "`model.vocab` is not a list"),
        ("t5.json", "/model/vocab/5/1", json!("x"), "`model.vocab[5]` is [\""),
        ("t5.json", "/model/unk_id", json!(100_000), "`model.unk_id` is 100000, and `model.vocab` has"),
        ("t5.json", "/model/unk_id", json!(-1), "`model.unk_id` is -1; expected a number of a token"),
        (
            "t5.json",
            "/normalizer/precompiled_charsmap",
            json!("AAA?"),
            "`normalizer.precompiled_charsmap` cannot be read: it is not",
        ),
        ("t5.json", "/normalizer/precompiled_charsmap", json!("/wAAAA=="), "its trie of 255 bytes is not in it"),
        (
            "t5.json",
            "/pre_tokenizer/pretokenizers/0/type",
            json!("CharDelimiterSplit"),
            "expected BertPreTokenizer, ByteLevel, Digits, Metaspace",
        ),
        (
            "mbart.json",
            "/normalizer/normalizers/2/pattern/Regex",
            json!("("),
            "`normalizer.normalizers[2]` has a pattern",
        ),
        ("llama2.json", "/decoder/decoders/0/type", json!("CTC"), "`decoder.decoders[0]` is \"CTC\""),
        ("llama2.json", "/added_tokens/0/id", json!(-1), "`added_tokens[0]` has no `content` and `id`"),
    ] {
        let (mut file, _) = fixture(name);
        *file.pointer_mut(place).unwrap_or_else(|| panic!("{name} has no {place}")) = value;
        let why = Tokenizer::read(&file.to_string()).map(|_| ()).expect_err(place);
        assert!(why.contains(told), "{name} {place}: {why}");
    }
    let step = json!({"type": "Replace", "pattern": {"String": "a"}, "content": "aa"});
    for (field, of) in [("normalizer", "normalizers"), ("decoder", "decoders")] {
        let (mut file, _) = fixture("llama2.json");
        file[field] = json!({"type": "Sequence", of: vec![step.clone(); 60]});
        let why = Tokenizer::read(&file.to_string()).map(|_| ()).expect_err(field);
        assert!(why.contains(&format!("its `{field}` can make a text more than 16 times as long")), "{why}");
    }
    let (mut file, _) = fixture("mbart.json");
    file["normalizer"]["normalizers"][1] = file["normalizer"]["normalizers"][0].clone();
    assert!(Tokenizer::read(&file.to_string()).is_err_and(|why| why.contains("more than one `Precompiled`")));
    let (mut file, _) = fixture("t5.json");
    file["post_processor"] = json!({"type": "Sequence", "processors": vec![file["post_processor"].clone(); 2]});
    let why = Tokenizer::read(&file.to_string()).map(|_| ()).expect_err("two templates");
    assert!(why.contains("`post_processor.processors[1]` is the second processor that adds tokens"), "{why}");
    for text in ["", "{", "[]", "{}", "{\"model\": 3}"] {
        assert!(Tokenizer::read(text).is_err(), "{text}");
    }
}

/// The command reads the file, and shows a character when the last of its tokens has come.
#[test]
fn the_command_writes_with_a_file() {
    let made = tempfile::tempdir().expect("a folder");
    let path = |name: &str| made.path().join(name).to_string_lossy().into_owned();
    let (file, _) = fixture("gpt2.json");
    std::fs::write(path("tokenizer.json"), file.to_string()).expect("a file");
    std::fs::write(path("broken.json"), "{\"model\"").expect("a file");
    // Says the prompt again and again.
    let program = "model M<V = 400> {\n    state said: i32[64]\n    state count: i32\n    state given: i32\n
    pub fn next(tokens: i32[S]) -> i32 where S <= 64 {
        said[given..given+S] = tokens
        given = given + S
        count = count + 1
        said[count - 1]
    }\n}\n";
    std::fs::write(path("m.attn"), program).expect("a program");
    let generate = |tokenizers: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_attnc"));
        command.args(["generate", &path("m.attn"), "--max-tokens", "24"]);
        command.args(["--tokenizer", "--output-tokenizer"].into_iter().zip(tokenizers).flat_map(|(to, t)| [to, *t]));
        let done =
            command.args(["--prompt", "the na\u{ef}ve \u{6771}\u{4eac} \u{1f600}"]).output().expect("attnc starts");
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
        (done.status.code(), text(done.stdout), text(done.stderr))
    };
    let (code, out, err) = generate(&[&path("tokenizer.json")]);
    assert_eq!(code, Some(0), "{err}");
    assert!(out.starts_with("the na\u{ef}ve \u{6771}\u{4eac} \u{1f600}"), "{out}");
    for (tokenizer, told) in [
        ("broken.json", "cannot be used: it is not JSON"),
        ("absent.json", "cannot be used: no such file"),
        (".", "cannot be used: it is not a regular file"),
        ("m.attn", "cannot be used: it is not JSON"),
    ] {
        for (option, tokenizers) in [
            ("`--tokenizer`", &[path(tokenizer)][..]),
            ("`--output-tokenizer`", &["bytes".to_owned(), path(tokenizer)]),
        ] {
            let tokenizers: Vec<&str> = tokenizers.iter().map(String::as_str).collect();
            let (code, out, err) = generate(&tokenizers);
            assert_eq!((code, out.as_str()), (Some(3), ""), "{err}");
            let told = [told, &format!("{option} takes `bytes`, or"), "E0806"];
            assert!(told.iter().all(|told| err.contains(told)), "{err}");
        }
    }
}
