//! Does `attnc generate` write what the entry point gives, end where it should, and say what does not fit?

use std::io::{Read as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use attnc::random::Random;
use safetensors::tensor::{Dtype, TensorView};

use crate::fixtures;

/// Gives the byte after the last one: without state, all tokens come each time.
const AFTER: &str = "model M<V = 256> {
    pub fn next(tokens: i32[S]) -> i32 where S >= 1 { (tokens[S-1] + 1) % V }
}
";

/// Counts its tokens, and gives the bytes of three characters, of three, one and two bytes, one after another; room for eight.
const COUNTS: &str = "model M {
    state count: i32
    pub fn next(tokens: i32[S], seed: i64) -> i32 where S <= 8 {
        let dim N = count + S where N <= 8
        count = count + S
        let at = (N + seed) % 6
        cast<i32>(where(at == 0, 226, where(at == 1, 130, where(at == 2, 172, where(at == 3, 45, where(at == 4, 195, 169))))))
    }
}
";

/// Draws one of two tokens by the temperature alone, and has all arguments.
const ALL: &str = "use std.decode
model M<V = 256> {
    pub fn next(tokens: i64[S], penalty: f32, seed: i32, top_p: f16, top_k: i64, temperature: bf16) -> i64 where S >= 1, V >= 1 {
        let scores = where(iota(V) == 97, 1.0, where(iota(V) == 98, 0.5, 0.0))
        let seen = scatter(full(false, [V]), tokens, true)
        let logits = decode.repetition_penalty(scores, seen, penalty)
        cast<i64>(decode.next(logits, cast<f32>(temperature), cast<i32>(top_k), cast<f32>(top_p), cast<i64>(seed), 7))
    }
}
";

/// The scores of a model whose weights overflow.
const NAN: &str = "use std.decode
model M<V = 256> {
    pub fn next(tokens: i32[S]) -> i32 where S >= 1, V >= 1 {
        let x = cast<f32>(tokens[S-1]) * 1e38 * 1e38
        decode.next(full(x - x, [V]), 0.0, 1, 1.0, 0, 0)
    }
}
";

/// Exit code, stdout and stderr of `attnc generate` with a program, and a text on stdin.
fn generate(program: &str, args: &[&str], stdin: &[u8]) -> (i32, String, String) {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("m.attn");
    std::fs::write(&file, program).expect("a program");
    let mut command = Command::new(env!("CARGO_BIN_EXE_attnc"));
    command.arg("generate").arg(&file).args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("attnc starts");
    child.stdin.take().expect("a pipe").write_all(stdin).expect("stdin");
    let done = child.wait_with_output().expect("attnc ends");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
    (done.status.code().unwrap_or(-1), text(done.stdout), text(done.stderr))
}

fn bytes(program: &str, args: &[&str]) -> (i32, String, String) {
    generate(program, &[&["--tokenizer", "bytes"], args].concat(), b"")
}

#[test]
fn tokens_follow_each_other() {
    let (code, out, err) = bytes(AFTER, &["--prompt", "xa", "--max-tokens", "5"]);
    assert_eq!((code, out.as_str()), (0, "bcdef\n"), "{err}");
    assert!(err.starts_with("note: a prompt of 2 tokens, the first token after "), "{err}");
    assert!(err.contains("; 5 tokens written, ") && err.contains(" tokens/s after the first\n"), "{err}");
    assert!(err.ends_with("  = note: it ended after `--max-tokens 5`\n"), "{err}");
    // No token at all; a line that ends gets no second end.
    let (code, out, err) = bytes(AFTER, &["--prompt", "a", "--max-tokens", "0"]);
    assert_eq!((code, out.as_str()), (0, ""), "{err}");
    let (_, out, _) = bytes(AFTER, &["--prompt", "\u{8}", "--max-tokens", "2"]);
    assert_eq!(out, "\t\n");
    // From stdin, which need not be UTF-8.
    let (code, out, err) = generate(AFTER, &["--tokenizer", "bytes", "--prompt", "-", "--max-tokens", "2"], b"\xfe/");
    assert_eq!((code, out.as_str()), (0, "01\n"), "{err}");
    // The prompt comes first, if that is asked for.
    let echoed = |prompt: &str, most: &str| {
        generate(AFTER, &["--tokenizer", "bytes", "--prompt", "-", "--echo", "--max-tokens", most], prompt.as_bytes()).1
    };
    assert_eq!(
        (echoed("x/", "2"), echoed("a", "0"), echoed("a\n", "0")),
        ("x/01\n".into(), "a\n".into(), "a\n".into())
    );
    // What is no character, in the middle and at the end.
    let (_, out, _) = bytes(AFTER, &["--prompt", "\u{ff}", "--max-tokens", "3", "--dim", "V=256"]);
    assert_eq!(out, "\u{fffd}\u{fffd}\u{fffd}\n");
}

#[test]
fn text_ends_before_what_it_is_to_stop_at() {
    for (stop, out, why) in [
        ("efg", "bcd\n", "before the text \"efg\""),
        ("102", "bcde\n", "before token 102"),
        ("text:10", "bcdefg\n", "after `--max-tokens 6`"),
        ("gx", "bcdefg\n", "after `--max-tokens 6`"),
        ("b", "", "before the text \"b\""),
    ] {
        let (code, shown, err) = bytes(AFTER, &["--prompt", "a", "--max-tokens", "6", "--stop", "zz", "--stop", stop]);
        assert_eq!((code, shown.as_str()), (0, out), "{err}");
        assert!(err.contains(why), "{err}");
    }
}

/// With state a token comes once; characters of several tokens come when they are whole.
#[test]
fn a_model_with_state_gets_each_token_once() {
    let (code, out, err) = bytes(COUNTS, &["--prompt", "abcde", "--seed", "1"]);
    // Tokens 5 to 8 are in the state when they are given: at 0, 1, 2, 3 of the cycle; then there is no room.
    assert_eq!((code, out.as_str()), (0, "\u{20ac}-\n"), "{err}");
    assert!(err.contains("4 tokens written"), "{err}");
    assert!(err.contains("it ended where the model has no more room: next: m.attn:4:9: N is 9"), "{err}");
    let (_, out, _) = bytes(COUNTS, &["--prompt", "abcd", "--seed", "0"]);
    assert_eq!(out, "\u{e9}\u{20ac}\n");
    let (code, _, err) = bytes(COUNTS, &["--prompt", "abcdefghi"]);
    assert_eq!(code, 1);
    assert!(
        err.contains("E0803") && err.contains("S <= 8") && err.contains("the prompt has 9 tokens; give another one"),
        "{err}"
    );
}

/// State that another entry point sets is no cache: an entry point that sets none gets all tokens each time.
#[test]
fn an_entry_point_without_state_gets_all_tokens() {
    let program = "model M {
    state count: i32
    pub fn step(tokens: i32[S]) -> i32 {
        count = count + S
        count
    }
    pub fn next(tokens: i32[S]) -> i32 { S + 96 + count }
}
";
    let (code, out, err) = bytes(program, &["--prompt", "xy", "--max-tokens", "4"]);
    assert_eq!((code, out.as_str()), (0, "bcde\n"), "{err}");
}

/// A tokenizer may have more tokens than the model has rows, if the prompt has none of those.
#[test]
fn only_tokens_that_are_used_must_have_rows() {
    let program = "model M<V = 8> {
    w: f32[V]
    pub fn next(tokens: i32[S]) -> i32 { cast<i32>(w[tokens][S-1] * 0) + S }
}
";
    let (code, out, err) = bytes(program, &["--random", "--prompt", "\u{7}\u{6}", "--max-tokens", "2"]);
    assert_eq!((code, out.as_str()), (0, "\u{2}\u{3}\n"), "{err}");
}

#[test]
fn arguments_go_to_those_of_their_name() {
    let of = |more: &[&str]| {
        let (code, out, err) = bytes(ALL, &[&["--max-tokens", "1"], more].concat());
        assert_eq!(code, 0, "{err}");
        out
    };
    assert_eq!(of(&["--prompt", "x", "--temperature", "0"]), "a\n");
    assert_eq!(of(&["--prompt", "x", "--top-k", "1"]), "a\n");
    assert_eq!(of(&["--prompt", "x", "--top-p", "0"]), "a\n");
    // A penalty on what was there: of the prompt and what was written.
    assert_eq!(of(&["--temperature", "0", "--repetition-penalty", "4", "--prompt", "a"]), "b\n");
    let (_, out, _) =
        bytes(ALL, &["--prompt", "x", "--max-tokens", "2", "--temperature", "0", "--repetition-penalty", "4"]);
    assert_eq!(out, "ab\n");
    // Nearly even chances: other seeds give others, the same one the same.
    let drawn: Vec<String> =
        (-8..8).map(|seed| of(&["--prompt", "x", "--top-k", "2", "--seed", &seed.to_string()])).collect();
    assert!(drawn.contains(&"a\n".to_string()) && drawn.contains(&"b\n".to_string()), "{drawn:?}");
    assert_eq!(of(&["--prompt", "x", "--top-k", "2", "--seed", "-3"]), drawn[5]);
}

/// What does not fit is named with its place, and what to do about it.
#[test]
fn what_does_not_fit_is_told() {
    let with = |signature: &str| format!("model M {{\n    pub fn next{signature}\n}}\n");
    let wide = "model M<V = 8> {\n    w: f32[V]\n    pub fn next(tokens: i32[S]) -> i32 { argmax(w[tokens]) }\n}\n";
    let folder = tempfile::tempdir().expect("a folder");
    let broken = folder.path().join("broken.safetensors");
    std::fs::write(&broken, "no weights").expect("a file");
    let broken = broken.to_str().expect("UTF-8");
    let prompt = &["--prompt", "a"][..];
    for (program, args, code, told) in [
        (AFTER.to_string(), &["--prompt", ""][..], 2, "the prompt is empty"),
        (AFTER.to_string(), &["--prompt", "-"], 2, "the prompt is empty"),
        (
            AFTER.to_string(),
            &["--prompt", "a", "--top-k", "3"],
            2,
            "`next` has no argument `top_k`, which `--top-k` is for; it has `tokens`",
        ),
        (AFTER.to_string(), &["--prompt", "a", "--top-k", "0"], 2, "--top-k"),
        (AFTER.to_string(), &["--prompt", "a", "--temperature=-1"], 2, "0 or more"),
        (AFTER.to_string(), &["--prompt", "a", "--temperature", "nan"], 2, "0 or more"),
        (AFTER.to_string(), &["--prompt", "a", "--temperature", "inf"], 2, "must be finite"),
        (AFTER.to_string(), &["--prompt", "a", "--top-p", "1.5"], 2, "a probability is from 0 to 1"),
        (AFTER.to_string(), &["--prompt", "a", "--repetition-penalty", "0"], 2, "above 0"),
        (AFTER.to_string(), &["--prompt", "a", "--stop", "4294967296"], 2, "use `text:4294967296`"),
        (AFTER.to_string(), &["--prompt", "a", "--stop", ""], 2, "an empty text is everywhere"),
        (
            AFTER.to_string(),
            &["--prompt", "a", "--function", "nxt"],
            2,
            "there is no entry point `nxt`; the entry points are `next`",
        ),
        (
            ALL.to_string(),
            &["--prompt", "a", "--seed", "3000000000"],
            2,
            "the argument `seed` of `next`, for `--seed`, is an i32, and 3000000000 is not",
        ),
        (
            with("(tokens: i32[S]) -> i32[S] { tokens }"),
            prompt,
            2,
            "expected the next token as its result, an i32; found i32[S]",
        ),
        (with("(tokens: i32[S]) -> f32 { 1.0 }"), prompt, 2, "found f32[]"),
        (with("(tokens: i32[S]) -> (i32, i32) { (1, 2) }"), prompt, 2, "found 2 results"),
        (with("(token: i32) -> i32 { token }"), prompt, 2, "found none with an axis"),
        (with("(tokens: i32[7]) -> i32 { tokens[0] }"), prompt, 2, "found `tokens: i32[7]`"),
        (with("(x: f32[S]) -> i32 { 1 }"), prompt, 2, "found `x: f32[S]`"),
        (with("(a: i32[S], b: i32[S]) -> i32 { 1 }"), prompt, 2, "found `a: i32[S]`, `b: i32[S]`"),
        (with("(tokens: i32[S], temprature: f32) -> i32 { 1 }"), prompt, 2, "did you mean `temperature`?"),
        (with("(tokens: i32[S], seed: f32) -> i32 { 1 }"), prompt, 2, "must be an i32 or i64; found f32"),
        (with("(tokens: i32[S], top_p: i32) -> i32 { 1 }"), prompt, 2, "must be a float; found i32"),
        (
            with("(tokens: i32[S]) -> i32 { 999 }"),
            prompt,
            1,
            "`next` gave 999 as token 1, which the tokenizer does not have",
        ),
        (NAN.to_string(), prompt, 1, "`next` gave -1 instead of token 1: a score is NaN"),
        (with("(tokens: i32[S]) -> i32 { -7 }"), prompt, 1, "`next` gave -7 as token 1, and tokens are not negative"),
        (
            wide.to_string(),
            prompt,
            1,
            "the tokenizer `bytes` makes token 97 of the prompt, but `next` takes tokens below 8",
        ),
        (wide.to_string(), &["--prompt", "a", "--dim", "V=256"], 2, "use `--weights FILE`, or `--random`"),
        (wide.to_string(), &["--prompt", "a", "--dim", "V=256", "--weights", broken], 3, "E0801"),
        ("model M {".to_string(), prompt, 1, "error[E"),
    ] {
        let (exit, out, err) = bytes(&program, args);
        assert_eq!((exit, out.as_str()), (code, ""), "{program} {args:?}: {err}");
        assert!(err.contains(told) && !err.contains("internal error"), "{program} {args:?}: {err}");
    }
}

/// After Ctrl-C what is written stays, and the times are told.
#[test]
fn an_interrupt_ends_the_text() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("m.attn");
    std::fs::write(&file, AFTER).expect("a program");
    let mut command = Command::new(env!("CARGO_BIN_EXE_attnc"));
    command.arg("generate").arg(&file).args(["--tokenizer", "bytes", "--prompt", "a", "--max-tokens", "200000"]);
    // SAFETY: `signal` may be called between fork and exec. Whoever started the tests may ignore this signal.
    unsafe {
        command.pre_exec(|| {
            libc::signal(libc::SIGINT, libc::SIG_DFL);
            Ok(())
        });
    }
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("attnc starts");
    let mut out = child.stdout.take().expect("a pipe");
    let mut first = [0; 4];
    out.read_exact(&mut first).expect("the first tokens");
    assert_eq!(&first, b"bcde");
    // It goes on writing until then; nobody reads the rest before the signal is sent.
    let id = i32::try_from(child.id()).expect("a process");
    // SAFETY: a signal to a process of our own, which was not waited for.
    assert_eq!(unsafe { libc::kill(id, libc::SIGINT) }, 0);
    let mut rest = Vec::new();
    out.read_to_end(&mut rest).expect("the rest");
    let done = child.wait_with_output().expect("attnc ends");
    let err = String::from_utf8_lossy(&done.stderr).into_owned();
    assert_eq!(done.status.code(), Some(130), "{err}");
    assert!(err.starts_with("note: a prompt of 1 token, ") && err.ends_with("note: it was interrupted\n"), "{err}");
}

/// Random weights of 29_generate, with numbers that f16 has, as f16 and as f32; the files are in a folder.
fn weights(folder: &Path) -> (String, String) {
    let mut random = Random::new(5);
    let mut shapes = vec![
        ("wte.weight".to_string(), vec![256, 8]),
        ("wpe.weight".to_string(), vec![40, 8]),
        ("ln_f.weight".to_string(), vec![8]),
        ("ln_f.bias".to_string(), vec![8]),
    ];
    for layer in 0..2 {
        let own = [
            ("ln_1.weight", vec![8]),
            ("ln_1.bias", vec![8]),
            ("attn.c_attn.weight", vec![8, 24]),
            ("attn.c_attn.bias", vec![24]),
            ("attn.c_proj.weight", vec![8, 8]),
            ("attn.c_proj.bias", vec![8]),
            ("ln_2.weight", vec![8]),
            ("ln_2.bias", vec![8]),
            ("mlp.c_fc.weight", vec![8, 32]),
            ("mlp.c_fc.bias", vec![32]),
            ("mlp.c_proj.weight", vec![32, 8]),
            ("mlp.c_proj.bias", vec![8]),
        ];
        shapes.extend(own.map(|(name, shape)| (format!("h.{layer}.{name}"), shape)));
    }
    let number = |random: &mut Random| half::f16::from_f32(random.below(2001) as f32 * 1e-3 - 1.0);
    let count = |shape: &[usize]| shape.iter().product::<usize>();
    let values: Vec<Vec<half::f16>> =
        shapes.iter().map(|(_, shape)| (0..count(shape)).map(|_| number(&mut random)).collect()).collect();
    let written = |name: &str, dtype: Dtype, bytes: &dyn Fn(half::f16) -> Vec<u8>| {
        let data: Vec<Vec<u8>> = values.iter().map(|all| all.iter().flat_map(|x| bytes(*x)).collect()).collect();
        let views = shapes.iter().zip(&data).map(|((name, shape), data)| {
            (name.as_str(), TensorView::new(dtype, shape.clone(), data).expect("a tensor"))
        });
        let path = folder.join(name);
        safetensors::serialize_to_file(views, None, &path).expect("weights");
        path.to_string_lossy().into_owned()
    };
    let narrow = written("f16", Dtype::F16, &|x| x.to_le_bytes().to_vec());
    (narrow, written("f32", Dtype::F32, &|x| x.to_f32().to_le_bytes().to_vec()))
}

/// The dimensions of those weights.
const DIMS: &str = "L=2,D=8,H=2,V=256,T=40";

/// A file of f16 gives what one of f32 gives with the same numbers.
#[test]
fn weights_of_f16_are_those_of_f32() {
    let program = std::fs::read_to_string(fixtures::program("29_generate")).expect("a program");
    let folder = tempfile::tempdir().expect("a folder");
    let (narrow, wide) = weights(folder.path());
    let text = |weights: &str, more: &[&str]| {
        let args = [&["--weights", weights, "--dim", DIMS, "--prompt", "To be"], more].concat();
        let (code, out, err) = bytes(&program, &args);
        assert_eq!(code, 0, "{err}");
        (out, err)
    };
    let choice =
        ["--temperature", "0.9", "--top-k", "40", "--top-p", "0.95", "--repetition-penalty", "1.1", "--seed", "3"];
    let (out, err) = text(&narrow, &choice);
    assert!(err.contains("weights were converted from the bf16 or f16 of the file to the f32 of the program"), "{err}");
    // The last token is chosen, but there is no room to read it.
    assert!(err.contains("36 tokens written") && err.contains("has no more room"), "{err}");
    assert_eq!(text(&wide, &choice).0, out);
    assert_ne!(text(&wide, &["--seed", "4"]).0, out);
    assert_eq!(text(&wide, &["--temperature", "0"]).0, text(&wide, &["--top-k", "1", "--seed", "9"]).0);
}

/// Python with NumPy, where there is one.
fn python() -> Option<PathBuf> {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join(".venv/bin/python");
    let candidates = [std::env::var_os("ATTNC_TEST_PYTHON").map(PathBuf::from), Some(own), Some("python3".into())];
    let has_numpy =
        |python: &PathBuf| Command::new(python).args(["-c", "import numpy"]).output().is_ok_and(|o| o.status.success());
    candidates.into_iter().flatten().find(has_numpy)
}

/// The tokens that `attnc generate` writes come one by one to a C program with the header, and to Python with the wrapper.
#[test]
fn programs_get_the_same_tokens_one_by_one() {
    let folder = tempfile::tempdir().expect("a folder");
    let (_, weights) = weights(folder.path());
    let path = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
    let run = |command: &mut Command| {
        let done = command.current_dir(folder.path()).output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
        let (out, err) = (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
        assert!(done.status.success(), "{command:?}: {out}{err}");
        done.stdout
    };
    let program = fixtures::program("29_generate");
    let mut attnc = Command::new(env!("CARGO_BIN_EXE_attnc"));
    run(attnc.arg(&program).args(["--dim", DIMS, "-o", "model", "--emit", "so,header,python"]));
    let choice =
        ["--temperature", "0.8", "--top-k", "40", "--top-p", "0.95", "--repetition-penalty", "1.1", "--seed", "7"];
    // Each token's bytes go through a tokenizer that shows its number.
    let numbers: Vec<String> = (0..256).map(|n| format!("\"{n};\":{n}")).collect();
    let numbers = format!(
        "{{\"model\":{{\"type\":\"BPE\",\"vocab\":{{{}}},\"merges\":[],\"unk_token\":\"84;\"}}}}",
        numbers.join(",")
    );
    std::fs::write(path("tokenizer.json"), numbers).expect("a tokenizer");
    let mut attnc = Command::new(env!("CARGO_BIN_EXE_attnc"));
    attnc.arg("generate").arg(&program).args(["--dim", DIMS, "--weights", &weights, "--prompt", "xyz"]);
    let written = run(attnc.args(choice).args(["--tokenizer", "tokenizer.json", "--max-tokens", "20"]));
    let written = String::from_utf8(written).expect("numbers").trim_end().replace(';', "\n");
    assert_eq!(written.lines().count(), 20, "{written}");

    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("numbers");
    if Command::new("cc").arg("--version").output().is_ok_and(|o| o.status.success()) {
        let mut cc = Command::new("cc");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c/stream.c");
        cc.args(["-std=c99", "-Wall", "-Wextra", "-Werror", "-I."]).arg(source).args(["model.so", "-Wl,-rpath,."]);
        run(cc.args(["-o", "stream"]));
        let tokens = run(Command::new(path("stream")).args([&weights, "20", "7", "84", "84", "84"]));
        assert_eq!(text(tokens), written);
    }
    let Some(python) = python() else {
        eprintln!("no NumPy: the wrapper is not tested");
        return;
    };
    let script = r#"
import sys
import numpy as np
import model
with model.Model(weights=sys.argv[1]) as m:
    choices = dict(temperature=0.8, top_k=40, top_p=0.95, penalty=1.1, seed=7)
    tokens = list(m.stream("next", [84, 84, 84], max_tokens=20, **choices))
    print(*tokens, sep="\n")
    # One by one: nothing is computed before it is asked for. Then it goes on from there.
    with m.session() as s:
        some = s.stream("next", [84, 84, 84], **choices)
        first = [next(some) for _ in range(5)]
        assert first == tokens[:5], first
        rest = list(s.stream("next", [first[-1]], max_tokens=15, **choices))
        assert rest == tokens[5:], rest
        s.reset()
        stop = tokens[7]
        assert list(s.stream("next", [84, 84, 84], stop=stop, **choices)) == tokens[: tokens.index(stop)]
        s.reset()
        assert list(s.stream("next", [84, 84, 84], stop={stop, -5}, **choices)) == tokens[: tokens.index(stop)]
        s.reset()
        assert list(s.stream("next", [84, 84, 84], stop=np.int64(stop), **choices)) == tokens[: tokens.index(stop)]
        s.reset()
        assert list(s.stream("next", [84], max_tokens=0)) == []
        # The others may be left out.
        assert len(list(s.stream("next", [84], max_tokens=3))) == 3
        s.reset()
        try:
            list(s.stream("next", [84] * 30))
        except model.AttncError as error:
            assert "out of range" in str(error), error
        else:
            raise AssertionError("there is room for 40 tokens")
    for call, told in [
        (lambda: m.stream("nxt", [1]), "no entry point 'nxt'; the entry points are forward, prefill"),
        (lambda: m.stream("next", [1], p=1.0), "next has no argument 'p' after the tokens; it has tokens, temperature"),
        (lambda: m.stream("generate", [1]), "generate cannot be called as generate(tokens, ..) -> token: stop"),
    ]:
        try:
            next(call())
        except model.AttncValueError as error:
            assert told in str(error), error
        else:
            raise AssertionError(told)
"#;
    let tokens = run(Command::new(python).args(["-c", script, &weights]));
    assert_eq!(text(tokens), written);
}
