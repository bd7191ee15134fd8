//! Does `attnc train` make the steps that it says, with the same bits however it is interrupted, and refuse what does not fit?

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::command_line::outcome;

/// Scores of the next token by the last one; what `learn` and `loss` return is the mean loss.
const PAIRS: &str = "use std.loss
use std.optim
layer Cell<V> {
    w: f32[V, V]
    bias: f32[V]
    fn forward(x: f32[B, S, V]) -> f32[B, S, V] { x @ w + bias }
}
model Pairs<V = 8, L = 2> {
    table: f32[V, V]
    h: [Cell<V>; L]
    state steps: i64
    fn logits(tokens: i32[B, S]) -> f32[B, S, V] {
        var x = table[tokens]
        for cell in h { x = cell(x) }
        x
    }
    pub fn loss(tokens: i32[B, S], next: i32[B, S]) -> f32 where S <= 16 {
        mean(loss.cross_entropy(logits(tokens), next), axis = [B, S])
    }
    pub fn learn(tokens: i32[B, S], next: i32[B, S], rate: f32) -> (f32, f32) where S <= 16 {
        steps = steps + 1
        let value = mean(loss.cross_entropy(logits(tokens), next), axis = [B, S])
        let norm = train value { \"*\": AdamW(steps, rate = 0.05 * rate) }
        (value, norm)
    }
    pub fn many(tokens: i32[N, B, S], next: i32[N, B, S]) -> f32 where S <= 16 {
        var last: f32 = 0
        for i in 0..N {
            let (value, _) = learn(tokens[i], next[i], 1)
            last = value
        }
        last
    }
    pub fn forward(tokens: i32[B, S]) -> f32[B, S, V] { logits(tokens) }
}
";

struct Place {
    folder: tempfile::TempDir,
}

impl Place {
    fn new(program: &str) -> Place {
        let place = Place { folder: tempfile::tempdir().expect("a folder") };
        place.write("m.attn", program.as_bytes());
        // 0 1 2 .. 7 0 1 ..: each token says which one comes next.
        place.write("data", &(0..400).map(|i| (i % 8) as u8).collect::<Vec<u8>>());
        place
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).to_string_lossy().into_owned()
    }

    fn write(&self, name: &str, bytes: &[u8]) {
        std::fs::write(self.path(name), bytes).expect("a file");
    }

    fn read(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.path(name)).unwrap_or_else(|e| panic!("{name}: {e}"))
    }

    /// Arguments that name files of the folder begin with `@`.
    fn train(&self, args: &[&str]) -> (i32, String) {
        let own = [self.path("m.attn"), self.path("data")];
        let args: Vec<String> =
            args.iter().map(|arg| arg.strip_prefix('@').map_or((*arg).to_string(), |name| self.path(name))).collect();
        let mut all = vec!["train", own[0].as_str()];
        if !args.iter().any(|arg| arg == "--data") {
            all.extend(["--data", own[1].as_str()]);
        }
        all.extend(args.iter().map(String::as_str));
        let (code, out, err) = outcome(&all);
        assert_eq!(out, "", "{err}");
        (code, err)
    }

    fn fine(&self, args: &[&str]) -> String {
        let (code, err) = self.train(args);
        assert_eq!(code, 0, "{args:?}: {err}");
        err
    }

    fn log(&self, name: &str) -> Vec<serde_json::Value> {
        let text = String::from_utf8(self.read(name)).expect("a text");
        text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{line}: {e}"))).collect()
    }
}

fn number(object: &serde_json::Value, name: &str) -> f64 {
    object[name].as_f64().unwrap_or_else(|| panic!("{name} in {object}"))
}

#[test]
fn it_learns_and_tells() {
    let place = Place::new(PAIRS);
    let args = [
        "--batch",
        "3",
        "--length",
        "5",
        "--steps",
        "200",
        "--every",
        "100",
        "--held-out",
        "0.1",
        "-o",
        "@out.safetensors",
    ];
    let err = place.fine(&[&args[..], &["--log", "@log.jsonl", "--plot", "@plot.svg"]].concat());
    assert!(err.contains("step 100 of 200: loss ") && err.contains("tokens/s") && err.contains("left"), "{err}");
    let log = place.log("log.jsonl");
    assert_eq!(log.len(), 200);
    for (i, line) in log.iter().enumerate() {
        assert_eq!(number(line, "step"), i as f64 + 1.0);
        assert!(number(line, "result.1") > 0.0 && number(line, "seconds") > 0.0);
        assert_eq!(line.get("held_out").is_some(), (i + 1) % 100 == 0, "{line}");
    }
    // Random scores say nothing at first; afterwards each token says which one comes next.
    assert!((number(&log[0], "loss") - 8f64.ln()).abs() < 0.5, "{}", log[0]);
    assert!(number(&log[199], "loss") < 0.1 && number(&log[199], "held_out") < 0.1, "{}", log[199]);
    let svg = String::from_utf8(place.read("plot.svg")).expect("a text");
    assert!(svg.starts_with("<svg") && svg.contains("held out"), "{svg}");
    // The weights are those of any command, without a word about the states.
    let weights = place.path("out.safetensors");
    for extra in [&["--backend", "interp"][..], &[]] {
        let program = place.path("m.attn");
        let run = ["run", &program, "--function", "forward", "--weights", &weights, "--input", "tokens=[[3]]"];
        let (code, out, err) = outcome(&[&run[..], extra].concat());
        assert_eq!((code, err.as_str()), (0, ""), "{out}");
        let scores: Vec<f64> =
            out.split(['[', ']', ',', '\n', ' ']).filter_map(|word| word.parse().ok()).skip(3).collect();
        assert!(!scores.is_empty(), "{out}");
    }
    let held = [
        "run",
        &place.path("m.attn"),
        "--function",
        "loss",
        "--weights",
        &weights,
        "--input",
        "tokens=[[3,4]]",
        "--input",
        "next=[[4,5]]",
    ];
    let (code, out, err) = outcome(&held);
    let loss: f64 = out.lines().last().and_then(|line| line.trim().parse().ok()).unwrap_or(f64::NAN);
    assert!(code == 0 && loss < 0.1, "{out}{err}");
}

/// For all numbers of threads, and wherever the run was interrupted.
#[test]
fn a_run_that_is_resumed_gives_the_same_bits() {
    let place = Place::new(PAIRS);
    let common = ["--batch", "3", "--length", "5", "--seed", "-4", "--held-out", "0.2"];
    let whole = |threads: &str, out: &str| {
        place.fine(&[&common[..], &["--steps", "7", "--every", "2", "--threads", threads, "-o", out]].concat());
    };
    whole("1", "@one.safetensors");
    for threads in ["2", "3"] {
        whole(threads, "@other.safetensors");
        assert_eq!(place.read("other.safetensors"), place.read("one.safetensors"), "{threads} threads");
    }
    for stop in ["1", "3", "6"] {
        place.fine(&[&common[..], &["--steps", stop, "-o", "@part.safetensors", "--log", "@log.jsonl"]].concat());
        // Lines after the checkpoint are of a run that was killed.
        let mut log = place.read("log.jsonl");
        log.extend_from_slice(b"{\"step\":99,\"loss\":1}\nhalf a li");
        place.write("log.jsonl", &log);
        let part = ["--resume", "@part.safetensors", "-o", "@part.safetensors", "--steps", "7", "--log", "@log.jsonl"];
        place.fine(&[&part[..], &["--held-out", "0.2"]].concat());
        assert_eq!(place.read("part.safetensors"), place.read("one.safetensors"), "resumed after {stop}");
        let steps: Vec<f64> = place.log("log.jsonl").iter().map(|line| number(line, "step")).collect();
        assert_eq!(steps, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]);
    }
    place.fine(&["--batch", "3", "--length", "5", "--steps", "7", "--held-out", "0.2", "-o", "@seed.safetensors"]);
    assert_ne!(place.read("seed.safetensors"), place.read("one.safetensors"));
    let (code, err) = place.train(&["--resume", "@one.safetensors", "--steps", "7", "-o", "@x.safetensors"]);
    assert!(code == 2 && err.contains("has made 7 steps"), "{err}");
    place.write("data", &[1, 2, 3, 4, 5, 6, 7]);
    let err = place.fine(&["--resume", "@one.safetensors", "--steps", "8", "-o", "@x.safetensors"]);
    assert!(err.contains("E0810") && err.contains("320 tokens, and the data has 7"), "{err}");
}

#[test]
fn data_has_several_forms() {
    let place = Place::new(PAIRS);
    let tokens: Vec<u8> = place.read("data");
    let wide = |size: usize| {
        tokens.iter().flat_map(|t| (0..size).map(move |i| if i == 0 { *t } else { 0 })).collect::<Vec<u8>>()
    };
    let npy = |descr: &str, data: &[u8]| {
        let mut header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': (400,), }}");
        header += &" ".repeat(117 - header.len());
        header.push('\n');
        [b"\x93NUMPY\x01\x00", &(header.len() as u16).to_le_bytes()[..], header.as_bytes(), data].concat()
    };
    place.fine(&["--length", "5", "--steps", "2", "-o", "@bytes.safetensors"]);
    for (name, bytes, format) in [
        ("two", wide(2), Some("u16")),
        ("four", wide(4), Some("u32")),
        ("one.npy", npy("|u1", &tokens), None),
        ("two.npy", npy("<u2", &wide(2)), None),
        ("eight.npy", npy("<i8", &wide(8)), None),
    ] {
        place.write(name, &bytes);
        let data = format!("@{name}");
        let mut args = vec!["--length", "5", "--steps", "2", "-o", "@other.safetensors", "--data", &data];
        args.extend(format.iter().flat_map(|format| ["--tokens", format]));
        place.fine(&args);
        assert_eq!(place.read("other.safetensors"), place.read("bytes.safetensors"), "{name}");
    }
    for (name, bytes, format, said) in [
        ("odd", vec![0; 13], "u16", "13 bytes, is not a multiple of 2"),
        ("short", vec![0; 5], "bytes", "has 5 tokens; a window of 5 and the next token need 6"),
        ("empty", vec![], "bytes", "has 0 tokens"),
        ("large", vec![0, 1, 2, 8, 1, 2, 3, 4], "bytes", "token 3 of `"),
    ] {
        place.write(name, &bytes);
        let data = format!("@{name}");
        let (code, err) = place.train(&[
            "--length",
            "5",
            "--steps",
            "20",
            "-o",
            "@no.safetensors",
            "--data",
            &data,
            "--tokens",
            format,
        ]);
        assert!(code != 0 && code != 101 && err.contains(said), "{name}: {code} {err}");
    }
    for (bytes, said) in [
        (npy("<f4", &wide(4)), "not all tokens"),
        (npy("<i4", &wide(4)[4..]), "needs 1600"),
        (npy("<u2", &wide(2)[2..]), "needs 800"),
        (b"no array".to_vec(), "not a NumPy file"),
    ] {
        place.write("bad.npy", &bytes);
        let (code, err) = place.train(&["--length", "5", "--data", "@bad.npy", "-o", "@no.safetensors"]);
        assert!(code == 3 && err.contains("E0009") && err.contains(said), "{err}");
    }
    let (code, err) = place.train(&["--length", "5", "--data", "@none", "-o", "@no.safetensors"]);
    assert!(code == 3 && err.contains("no such file"), "{err}");
    assert!(!Path::new(&place.path("no.safetensors")).exists());
}

#[test]
fn what_does_not_fit_is_named() {
    let place = Place::new(PAIRS);
    let out = ["-o", "@no.safetensors"];
    for (args, code, said) in [
        (&["--length", "17"][..], 2, "`--length 17`: `learn(tokens: i32[B, S], next: i32[B, S], rate: f32[])"),
        (&["--function", "loss"], 2, "`loss` contains no `train`"),
        (&["--function", "lean"], 2, "no entry point `lean`"),
        (&["--function", "many"], 2, "expected `many(tokens: i32[B, S], next: i32[B, S], ..)"),
        (&["--loss", "forward"], 2, "must take the tokens of `learn"),
        (&["--loss", "lss"], 2, "no such entry point"),
        (&["--held-out", "1.5"], 2, "between 0 and 1"),
        (&["--held-out", "0.01"], 3, "has 4 tokens held out; a window of 16"),
        (&["--resume", "@data"], 3, "E0801"),
        (&["--weights", "@data"], 3, "E0801"),
        (&["--steps", "0"], 2, "--steps"),
        (&["--batch", "0"], 2, "--batch"),
        (&["--tokenizer", "@data"], 3, "E0806"),
        (&["--log", "-"], 2, "writes files"),
    ] {
        let (got, err) = place.train(&[args, &out[..]].concat());
        assert!(got == code && err.contains(said), "{args:?}: {got} {err}");
    }
    let (code, err) = place.train(&["-o", "@data"]);
    assert!(code == 2 && err.contains("would overwrite an input"), "{err}");
    let step = "use std.optim\nmodel M {\n    w: f32[3]\n    pub fn f(";
    let end =
        ") -> f32 {\n        let loss = sum(w * w)\n        train loss { \"*\": SGD(0.1) }\n        loss\n    }\n}\n";
    for (args, said) in [
        ("x: f32[B, S], y: i32[B, S]", "`x` has elements of type f32"),
        ("x: i32[B, S]", "1 of its arguments have axes, not 2"),
        ("x: i32[B, S], y: i32[S, B]", "do not have one shape"),
        ("x: i32[S], y: i32[S], z: f32", "`z` is not one of step, seed, rate"),
        ("x: i32[S], y: i32[S], step: f32", "`step` has the type f32"),
    ] {
        place.write("m.attn", format!("{step}{args}{end}").as_bytes());
        let (code, err) = place.train(&["--length", "3", "-o", "@no.safetensors"]);
        assert!(code == 2 && err.contains(said), "{args}: {code} {err}");
    }
    place.write("m.attn", format!("{step}x: i32[S], y: i32[S], step: i64, seed: i32{end}").as_bytes());
    place.fine(&["--length", "3", "--steps", "1", "-o", "@yes.safetensors"]);
    let (code, err) = place.train(&["--length", "3", "--held-out", "0.2", "-o", "@no.safetensors"]);
    assert!(code == 2 && err.contains("`--held-out` needs an entry point"), "{err}");
    let (code, err) = place.train(&["--length", "3", "--batch", "2", "-o", "@no.safetensors"]);
    assert!(code == 2 && err.contains("`--batch 1`"), "{err}");
    let (code, err) = place.train(&["--steps", "1", "-o", "@no.safetensors"]);
    assert!(code == 2 && err.contains("choose one with `--length`"), "{err}");
    place.write("m.attn", b"model M {\n    pub fn f(x: i32[B, S]) -> i32[B, S] { x }\n}\n");
    let (code, err) = place.train(&["-o", "@no.safetensors"]);
    assert!(code == 2 && err.contains("no entry point of `M` contains a `train`"), "{err}");
    assert!(!Path::new(&place.path("no.safetensors")).exists());
}

/// The loss of a step that is no number ends the run, and the last good checkpoint stays.
#[test]
fn lost_numbers_end_the_run() {
    let place = Place::new(PAIRS);
    place.fine(&["--length", "5", "--steps", "4", "-o", "@out.safetensors"]);
    let good = place.read("out.safetensors");
    let resumed = ["--resume", "@out.safetensors", "--steps", "50", "-o", "@out.safetensors"];
    // With a checkpoint after each step, that of step 5 has numbers, but ones whose loss is none.
    for extra in [&["--rate", "3e38"][..], &["--rate", "3e38", "--every", "1"]] {
        let (code, err) = place.train(&[&resumed[..], extra].concat());
        assert!(code == 1 && err.contains("E0809") && err.contains("the last checkpoint before"), "{err}");
        assert!(err.contains("step 6: the loss is NaN") || err.contains("step 6: the loss is inf"), "{err}");
        assert_eq!(place.read("out.safetensors"), good);
    }
    // Weights alone are no checkpoint, and another program's states do not fit.
    place.write("m.attn", PAIRS.replace("AdamW(steps, rate = 0.05 * rate)", "Momentum(0.05 * rate)").as_bytes());
    let (code, err) = place.train(&["--resume", "@out.safetensors", "--steps", "50", "-o", "@x.safetensors"]);
    assert!(code == 3 && err.contains("E0810") && err.contains("no state `h.*.bias.Momentum.m`"), "{err}");
    let half = good.len() / 2;
    place.write("half.safetensors", &good[..half]);
    let (code, err) = place.train(&["--resume", "@half.safetensors", "-o", "@x.safetensors"]);
    assert!(code == 3 && err.contains("E0801"), "{err}");
    place.write("plain.safetensors", &[&2u64.to_le_bytes()[..], b"{}"].concat());
    let (code, err) = place.train(&["--resume", "@plain.safetensors", "-o", "@x.safetensors"]);
    assert!(code == 2 && err.contains("is not a checkpoint"), "{err}");
}

/// Ctrl-C finishes a step, writes the checkpoint and exits with 130; the run goes on from there.
#[test]
fn ctrl_c_keeps_what_was_learnt() {
    let place = Place::new(PAIRS);
    let out = PathBuf::from(place.path("out.safetensors"));
    let log = place.path("log.jsonl");
    let (program, data) = (place.path("m.attn"), place.path("data"));
    let mut child = Command::new(env!("CARGO_BIN_EXE_attnc"))
        .args(["train", &program, "--data", &data, "--length", "5", "--steps", "100000000", "--log", &log, "-o"])
        .arg(&out)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("attnc starts");
    let began = std::time::Instant::now();
    while std::fs::metadata(&log).map_or(0, |found| found.len()) < 1000 {
        assert!(began.elapsed().as_secs() < 120 && child.try_wait().expect("a process").is_none(), "no step was made");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let killed = Command::new("kill").args(["-INT", &child.id().to_string()]).status().expect("kill starts");
    assert!(killed.success());
    let output = child.wait_with_output().expect("a process");
    let err = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(130), "{err}");
    let made = place.log("log.jsonl").len();
    assert!(err.contains(&format!("interrupted after step {made}")), "{made}: {err}");
    let steps = (made + 3).to_string();
    place.fine(&["--resume", "@out.safetensors", "--steps", &steps, "-o", "@out.safetensors"]);
    place.fine(&["--length", "5", "--steps", &steps, "-o", "@whole.safetensors"]);
    assert_eq!(place.read("out.safetensors"), place.read("whole.safetensors"));
}
