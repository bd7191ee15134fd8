//! Does `attnc compare` name the first value that is wrong, and call what is the same the same?

use std::path::Path;
use std::process::Command;

use serde_json::Value;

/// A causal attention; in its IR without passes, `sqrt 2.0` is at 4:47.
const CAUSAL: &str = "\
/// Causal attention.
model Causal<D = 2> {
    pub fn forward(q: f32[S, D], k: f32[S, D], v: f32[S, D]) -> f32[S, D] {
        softmax(where(causal(S, S), q @ k.T / sqrt(D), -inf)) @ v
    }
}
";

/// Layers in a loop, a loop over time, a state, integers, a tap.
const NET: &str = "\
layer Block<D> {
    w: f32[D, D]

    fn forward(x: f32[S, D]) -> f32[S, D] {
        let h = x @ w
        tap h
        x + tanh(h)
    }
}

model Net<D = 5, L = 3> {
    blocks: [Block<D>; L]
    state acc: f32[D]

    pub fn forward(x: f32[S, D], at: i32[T]) -> (f32[T, D], i32[T]) {
        var y = x[at]
        for block in blocks {
            y = block(y)
        }
        acc = acc + sum(y, axis = 0)
        (softmax(y), argmax(y, axis = 1))
    }

    pub fn read() -> f32[D] {
        acc
    }

    pub fn scan(x: f32[S, D]) -> f32[D] {
        var h = full<f32>(0, [D])
        for t in 0..S {
            h = tanh(h * 0.5 + x[t])
        }
        h
    }
}
";

struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Place {
        let place = Place(tempfile::tempdir().expect("a folder"));
        place.write("causal.attn", CAUSAL);
        place.write("net.attn", NET);
        place
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.0.path().join(name), text).expect("a file");
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.0.path().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    /// Exit code, stdout and stderr of a command line.
    fn attnc(&self, line: &str) -> (i32, String, String) {
        attnc(self.0.path(), line)
    }

    /// A copy of a text with something replaced that it has once.
    fn edited(&self, name: &str, to: &str, (old, new): (&str, &str)) {
        let text = self.read(name);
        assert_eq!(text.matches(old).count(), 1, "{old}: {text}");
        self.write(to, &text.replace(old, new));
    }

    /// The report of a comparison that finds a difference.
    fn report(&self, line: &str) -> Value {
        let (code, out, err) = self.attnc(&format!("compare --json {line}"));
        assert_eq!(code, 1, "{line}: {out}{err}");
        serde_json::from_str(&out).unwrap_or_else(|error| panic!("{line}: {error}: {out}"))
    }
}

fn attnc(folder: &Path, line: &str) -> (i32, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_attnc"));
    let output = command.args(line.split_whitespace()).current_dir(folder).output().expect("attnc starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code().unwrap_or(-1), text(&output.stdout), text(&output.stderr))
}

fn text<'v>(value: &'v Value, path: &str) -> &'v str {
    value.pointer(path).and_then(Value::as_str).unwrap_or_else(|| panic!("{path}: {value}"))
}

fn number(value: &Value, path: &str) -> f64 {
    value.pointer(path).and_then(Value::as_f64).unwrap_or_else(|| panic!("{path}: {value}"))
}

#[test]
fn all_ways_to_compute_a_program_are_the_same() {
    let place = Place::new();
    for sizes in ["S=0", "S=1", "S=7"] {
        for with in [
            "",
            "--with -O1 --cpu portable",
            "--with --backend tile --cpu avx512",
            "--with --backend ptx-sim",
            "--with --float strict --threads 1",
        ] {
            let line = format!("compare causal.attn --size {sizes} {with}");
            let (code, out, err) = place.attnc(&line);
            assert_eq!(code, 0, "{line}: {out}{err}");
            assert!(out.contains("the same within the bounds"), "{line}: {out}");
        }
    }
    for line in [
        "net.attn --function forward --size S=3,T=7",
        "net.attn --function forward --size S=3,T=0",
        "net.attn --function scan --size S=5 --with --cpu avx2",
        "net.attn --function read --with -O0",
        "net.attn --function forward --size S=3,T=4 --passes",
        "causal.attn --size S=5 --passes --backend cpu",
    ] {
        let (code, out, err) = place.attnc(&format!("compare {line}"));
        assert_eq!(code, 0, "{line}: {out}{err}");
    }
    // A session of several calls.
    place.write("calls", "forward(at = [0, 2, 1])\nforward(at = [2])\nread()\nreset\nscan()\nread()\n");
    let (code, out, err) = place.attnc("compare net.attn --calls calls --size S=3");
    assert_eq!(code, 0, "{out}{err}");
}

#[test]
fn a_changed_constant_is_the_first_wrong_value() {
    let place = Place::new();
    for (kind, name, old, new) in [("ir", "air", "sqrt 2.0", "sqrt 3.0"), ("tile", "tir", "const 2.0  ", "const 3.0  ")]
    {
        let (one, two) = (format!("a.{name}"), format!("b.{name}"));
        assert_eq!(place.attnc(&format!("causal.attn -O0 --emit {kind}={one}")).0, 0);
        place.edited(&one, &two, (old, new));
        for line in [format!("{one} {two} -O0 --size S=3"), format!("causal.attn {two} -O0 --size S=3")] {
            let report = place.report(&line);
            let first = &report["values"][0];
            assert!(text(first, "/at").ends_with(".attn:4:47"), "{line}: {first}");
            assert!(text(first, "/type").starts_with("f32[]"), "{line}: {first}");
            let [x, y] = [2f64, 3.0].map(|n| f64::from(n.sqrt() as f32));
            for (at, expected) in [("/worst/numbers/0", x), ("/worst/numbers/1", y)] {
                assert!((number(first, at) - expected).abs() < 1e-6, "{line}: {first}");
            }
            assert_eq!((number(first, "/elements"), number(first, "/differ")), (1.0, 1.0), "{line}: {first}");
            assert!(number(first, "/worst/bounds_apart") > 1e3, "{line}: {first}");
            // What depends on it follows, and the result is the last.
            let values = report["values"].as_array().expect("a list");
            assert!(values.len() > 3, "{line}: {report}");
            assert_eq!(text(&values[values.len() - 1], "/name"), "result", "{line}: {report}");
        }
        // With the passes, the constant is part of something else.
        let report = place.report(&format!("causal.attn {two} --size S=3"));
        assert!(text(&report["values"][0], "/at").ends_with(".attn:4:9"), "{report}");
        // An empty result has nothing that differs.
        let (code, out, err) = place.attnc(&format!("compare causal.attn {two} --size S=0"));
        assert_eq!(code, 0, "{out}{err}");
    }
    let report = place.report("a.air b.air -O0 --size S=3");
    assert_eq!(text(&report, "/values/0/ir/0"), "%6 = sqrt 2.0 : f32[]");
    assert_eq!(text(&report, "/values/0/ir/1"), "%6 = sqrt 3.0 : f32[]");
    // Compiled tile IR shows results alone.
    let report = place.report("a.tir b.tir --backend cpu --size S=3");
    assert_eq!(text(&report, "/values/0/name"), "result");
}

#[test]
fn the_first_wrong_iteration_is_named() {
    let place = Place::new();
    assert_eq!(place.attnc("net.attn -O0 --emit ir=a.air").0, 0);
    place.edited("a.air", "b.air", (", 0.5 ", ", 0.25 "));
    // In the first iteration, the product is 0 on both sides.
    let report = place.report("a.air b.air -O0 --function scan --size S=4");
    let first = &report["values"][0];
    assert!(text(first, "/ir/1").contains("mul"), "{first}");
    assert_eq!((number(first, "/iterations"), number(first, "/first/index/0")), (1.0, 1.0), "{first}");
    let (code, out, _) = place.attnc("compare a.air b.air -O0 --function scan --size S=4 --all");
    assert!(code == 1 && out.contains("iteration [1], at [0]") && !out.contains("--all"), "{out}");
    // The other entry points are what they were; a session names the call.
    assert_eq!(place.attnc("compare a.air b.air --function forward --size S=3,T=2").0, 0);
    place.write("calls", "read()\nforward(at = [0])\nscan()\n");
    let report = place.report("a.air b.air --calls calls --size S=3");
    assert_eq!((number(&report, "/call"), text(&report, "/function")), (3.0, "scan"));
}

#[test]
fn taps_and_integers_are_compared() {
    let place = Place::new();
    assert_eq!(place.attnc("net.attn -O0 --emit ir=a.air").0, 0);
    // Another parameter's rows: the tap is wrong from the first layer on.
    let text_of = place.read("a.air");
    place.write("b.air", &text_of.replace("tanh", "sin"));
    let report = place.report("a.air b.air --function forward --size S=3,T=2");
    let names: Vec<&str> = report["values"].as_array().expect("a list").iter().map(|v| text(v, "/name")).collect();
    assert!(names.iter().any(|name| name.starts_with("tap blocks.")), "{names:?}");
    place.write("b.air", &text_of.replace("descending", "ascending"));
    if place.read("b.air") != text_of {
        let report = place.report("a.air b.air --function forward --size S=3,T=2");
        assert!(text(&report["values"][0], "/type").starts_with("i32"), "{report}");
    }
}

/// A hidden NaN may count or not, so there is no bound; bit for bit it is a difference, and the pass that makes it is named.
#[test]
fn what_has_no_bound_may_differ() {
    let place = Place::new();
    let call = "causal.attn --input q=[[1,0],[0,1]] --input k=[[1,0],[0,1]] --input v=[[1,2],[nan,4]]";
    let (code, out, err) = place.attnc(&format!("compare {call}"));
    assert_eq!(code, 0, "{out}{err}");
    assert!(out.contains("as they have no bound: ") && out.contains("one 1, two NaN"), "{out}");
    let report = place.report(&format!("{call} --bound 0"));
    let numbers = report["values"].as_array().expect("a list").last().expect("a value").pointer("/worst/numbers");
    assert_eq!(numbers, Some(&serde_json::json!([1.0, "NaN"])), "{report}");
    let report = place.report(&format!("{call} --passes --bound 0"));
    assert_eq!(text(&report, "/pass/name"), "fuse-attention", "{report}");
    // Infinities and NaN that both sides have are the same.
    let call = "causal.attn --input q=[[1,inf]] --input k=[[nan,0]] --input v=[[inf,-inf]]";
    assert_eq!(place.attnc(&format!("compare {call}")).0, 0);
}

#[test]
fn what_cannot_be_compared_is_an_error() {
    let place = Place::new();
    place.write("wrong.attn", "model M {\n    pub fn f(x: f32[S]) -> f32[S] {\n        y\n    }\n}\n");
    place.write("out.attn", "model M {\n    pub fn f(x: f32[3], i: i32) -> f32 {\n        x[i]\n    }\n}\n");
    place.attnc("causal.attn -O0 --emit tile=a.tir");
    for (line, why) in [
        ("missing.attn", "cannot read"),
        ("wrong.attn", "E0201"),
        ("causal.attn", "need values for `S`"),
        ("causal.attn --size T=3", "no run-time dimension `T`"),
        ("causal.attn --size S=3 --with --size S=4", "before `--with`"),
        ("causal.attn --size S=3 --with --bogus", "--bogus"),
        ("a.tir --size S=3 --backend interp", "--backend tile"),
        ("a.tir --size S=3 --passes", "has no passes"),
        ("causal.attn net.attn --size S=3", "weights"),
        ("out.attn --input i=7", "fails on both sides"),
    ] {
        let (code, out, err) = place.attnc(&format!("compare {line}"));
        assert!(code == 2 && (err.contains(why) || out.contains(why)), "{line}: {code} {out}{err}");
    }
}
