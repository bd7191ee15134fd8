//! Does lowering make the graph IR that a program means?

use crate::{fixtures, front, gen_source, host};

use std::collections::BTreeMap;

use attnc::ir::{interp, text, verify};
use attnc::lowering::graph::Options;
use attnc::tensor::Tensor;
use host::host;

#[test]
fn the_generator_says_the_same_again() {
    for seed in 0..20 {
        assert_eq!(gen_source::generate(seed).source, gen_source::generate(seed).source);
    }
}

/// What must occur in random programs: what the language can say, beyond formulas.
const SAID: &[&str] = &[
    "..,",
    "2*N",
    " where ",
    "-> (",
    "E = f32",
    "tap ",
    "state ",
    "reset ",
    "let dim ",
    "let (",
    "var (",
    "] = ",
    "..at",
    "for ",
    "enumerate(",
    "while ",
    "break",
    "if flag",
    "else if",
    "pub fn again",
    "= true)",
    "= 0.5,",
    "[0](",
    "- 1](",
    ">; 2]",
    ".2(",
    "Sequential<",
    "(LayerNorm<D>, RMSNorm<D>",
    "SelfAttention<",
    "MultiHeadAttention<",
    "LSTMCell<",
    "GRUCell<",
    "einsum(",
    "rearrange(",
    "unbind(",
    "split(",
    "concat(",
    "pad(",
    "windows(",
    "every(",
    " step ",
    "take_along(",
    "argsort(",
    "sort(",
    "top_k(",
    "scatter(",
    "scatter_add(",
    "cumsum(",
    "one_hot(",
    "argmin(",
    "causal(",
    "iota(",
    "random.uniform(",
    "random.bits(",
    "bitwise_xor(",
    "right_shift(",
    "decode.next(",
    "decode.keep_top_p(",
    "cast<bf16>",
    "cast<f16>",
    "cast<i8>",
    "log_softmax(",
    "softplus(",
    "round(",
    "isnan(",
    " % ",
    "axis = [-2, -1]",
];

#[test]
fn random_programs_say_everything() {
    let mut missing = SAID.to_vec();
    for seed in 0..1000 {
        let source = gen_source::generate(seed).source;
        missing.retain(|said| !source.contains(said));
        if missing.is_empty() {
            return;
        }
    }
    panic!("no program has {missing:?}");
}

/// How many random programs a test looks at; `ATTNC_SEEDS` says otherwise.
fn seeds(default: u64) -> u64 {
    std::env::var("ATTNC_SEEDS").ok().and_then(|n| n.parse().ok()).unwrap_or(default)
}

/// Random programs are right by construction; what lowering makes of them passes the verifier.
#[test]
fn random_programs_lower() {
    let count = seeds(150);
    let mut wrong = Vec::new();
    for seed in 0..count {
        let program = gen_source::generate(seed);
        match front::module("random.attn", &program.source, &Options::default()) {
            Ok(module) => {
                if let Err(errors) = verify(&module) {
                    wrong.push(format!("seed {seed}:\n{}\n{errors}", program.source));
                }
            }
            Err(message) => {
                // What is wrong first, since warnings may be many.
                let at = message.find("error").unwrap_or_default();
                wrong.push(format!("seed {seed}:\n{}\n{}", &message[at..], program.source));
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "{} of {count} programs are refused\n{}",
        wrong.len(),
        wrong.join("\n").chars().take(60000).collect::<String>()
    );
}

/// Random programs run, for sizes of 0 and 1 too; what is tapped changes no result. Few calls fail: where a cache is full, or a
/// condition does not hold.
#[test]
fn random_programs_run() {
    let count = seeds(100);
    let mut failed = 0;
    for seed in 0..count {
        let program = gen_source::generate(seed);
        let module = front::module("random.attn", &program.source, &Options::default()).unwrap();
        let verified = verify(&module).unwrap();
        let params = gen_source::inputs::parameters(&module, seed);
        for given in program.calls(seed, 2) {
            let call =
                interp::Call { function: given.entry, args: &given.args, params: &params, limits: Default::default() };
            let what = || format!("seed {seed}, {} {:?}\n{}", given.entry, given.sizes, program.source);
            let plain = interp::run::<f32>(verified, &call);
            let tapped = interp::run_tapped::<f32>(verified, &call);
            match (plain, tapped) {
                (Ok(plain), Ok(tapped)) => {
                    for (a, b) in plain.results.iter().zip(&tapped.results) {
                        assert_eq!(a.to_tensor(), b.to_tensor(), "{}", what());
                    }
                }
                (Err(a), Err(b)) => {
                    assert!(!a.internal && a.message == b.message, "{a}, {b}: {}", what());
                    failed += 1;
                }
                (a, b) => panic!("{:?}, {:?}: {}", a.err(), b.err(), what()),
            }
        }
    }
    assert!(failed * 10 < count, "{failed} of {} calls fail", 2 * count);
}

fn snapshot(name: &str, text: &str) {
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path(concat!(env!("CARGO_MANIFEST_DIR"), "/snapshots/lowering"));
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.bind(|| insta::assert_snapshot!(name, text));
}

/// The graph IR of small programs: what each construct becomes.
#[test]
fn constructs() {
    for (name, source) in CONSTRUCTS {
        let source = source.trim_start();
        let module = front::module("m.attn", source, &Options::default()).unwrap_or_else(|e| panic!("{name}\n{e}"));
        verify(&module).unwrap_or_else(|errors| panic!("{name}\n{errors}"));
        snapshot(name, &format!("{source}\n----------\n{}", text::print(&module)));
    }
}

const CONSTRUCTS: &[(&str, &str)] = &[
    (
        "attention",
        "
model M<D = 64> {
    pub fn f(q: f32[.., S, D], k: f32[.., T, D], v: f32[.., T, D]) -> f32[.., S, D] {
        let weights = softmax(where(causal(S, T), q @ k.T / sqrt(D), -inf))
        tap weights
        weights @ v
    }
}
",
    ),
    (
        "layers",
        "
/// A row, scaled.
layer Scale<D> {
    by: f32[D]
    fn forward(x: f32[.., D]) -> f32[.., D] {
        let y = x * by
        tap y
        y
    }
}
layer Twice<D> {
    #[name = \"a.b\"]
    parts: [Scale<D>; 2]
    fn forward(x: f32[.., D]) -> f32[.., D] { parts[1](parts[0](x)) }
}
model M<L = 3, D = 8> {
    blocks: [Twice<D>; L]
    pub fn f(x: f32[S, D]) -> f32[S, D] {
        var y = x
        for block in blocks { y = block(y) }
        y
    }
}
",
    ),
    (
        "recurrence",
        "
model M<D = 8> {
    w: f32[D, D]
    pub fn f(x: f32[S, D]) -> f32[D] {
        var h = full<f32>(0, [D])
        for t in 0..S {
            h = tanh(x[t] + h @ w)
            tap h
        }
        h
    }
}
",
    ),
    (
        "branches",
        "
model M {
    pub fn f(x: f32[S], n: i32) -> (f32[S], i32) where S >= 2, S != 4 {
        var y = x
        var turns = n
        for i in 0..S {
            if turns > 0 { y = y + x[i] } else { turns = turns - 1 }
        }
        let z = if n == 3 { y } else { y * 2 }
        (z, turns)
    }
}
",
    ),
    (
        "movement",
        "
model M<D = 12, H = 3> where D % H == 0, D % 2 == 0 {
    table: f32[D, D]
    pub fn f(x: f32[S, D], i: i32[S]) -> (f32[H, S, D/H], f32[S, D], f32[S, 2], f32[D], f32[S, D], f32[S, S]) {
        let heads = rearrange(x, \"s (h d) -> h s d\", h = H)
        let rows = table[i]
        let (a, b) = split(x, axis = -1, parts = 2)
        let ab = concat(b, a, axis = 1)
        (heads, rows, x[.., 1..3], table[D - 1], ab, einsum(\"s d, t d -> s t\", x, rows))
    }
}
",
    ),
];

/// What is refused when a model is lowered, and how it is said.
#[test]
fn refusals() {
    let mut out = String::new();
    for (source, model, dims) in REFUSALS {
        let source = source.trim_start();
        let options = Options { model: model.map(str::to_string), ..front::options(dims) };
        let bound: Vec<String> = dims.iter().map(|(name, value)| format!("--dim {name}={value}")).collect();
        let entry = model.map(|name| format!("--entry {name}"));
        let command: Vec<String> = bound.into_iter().chain(entry).collect();
        let Err(message) = front::module("m.attn", source, &options) else { panic!("{source}") };
        assert!(!message.starts_with("internal"), "{message}");
        out += &format!("{source}attnc m.attn {}\n{message}\n----------\n", command.join(" "));
    }
    snapshot("refusals", &out);
}

type Refusal = (&'static str, Option<&'static str>, &'static [(&'static str, i64)]);

const TWO: &str = "model A<D = 2> {\n    pub fn f(x: f32[D]) -> f32[D] { x }\n}\nmodel B {\n    pub fn f(x: f32[S]) -> f32[S] { x }\n}\n";
const HEADS: &str = "use std.nn\nmodel M<D = 8, H = 2> where D % H == 0 {\n    attn: SelfAttention<D, H>\n    pub fn f(x: f32[S, D]) -> f32[S, D] where S <= 2*D { attn(x) }\n}\n";
const OPEN: &str = "model M<D> {\n    w: f32[D]\n    pub fn f(x: f32[S, D]) -> f32[S, D] { x * w }\n}\n";

const REFUSALS: &[Refusal] = &[
    ("layer L {\n    fn forward(x: f32[S]) -> f32[S] { x }\n}\n", None, &[]),
    (TWO, None, &[]),
    (TWO, Some("a"), &[]),
    (TWO, Some("B"), &[("D", 3)]),
    (HEADS, None, &[("H", 3)]),
    (HEADS, None, &[("H", 0)]),
    (HEADS, None, &[("D", 4), ("S", 9)]),
    (HEADS, None, &[("DD", 4)]),
    (HEADS, None, &[("D", -4)]),
    (HEADS, None, &[("D", 1 << 40)]),
    (OPEN, None, &[]),
    ("model M<D, K> {\n    pub fn f(x: f32[S, D]) -> f32[S, D] { x * K }\n}\n", None, &[]),
    ("model M<N = 3> {\n    w: f32[3, 2]\n    pub fn f(x: f32[2]) -> f32[2] { x + w[N] }\n}\n", None, &[]),
    ("model M<N = 1> {\n    pub fn f(x: f32[S]) -> f32[N - 3] { full<f32>(0, [N - 3]) }\n}\n", None, &[]),
    (
        "fn f(x: f32[S]) -> f32[S] { g(x) }\nfn g(x: f32[S]) -> f32[S] { f(x) }\nmodel M {\n    pub fn h(x: f32[S]) -> f32[S] { f(x) }\n}\n",
        None,
        &[],
    ),
    ("model M<N = 100000> {\n    pub fn f(x: f32[S]) -> f32[N, N, N] { full<f32>(0, [N, N, N]) }\n}\n", None, &[]),
    (
        "layer L {\n    w: f32[2]\n    fn forward(x: f32[2]) -> f32[2] { x + w }\n}\nmodel M {\n    #[name = \"b.w\"]\n    a: f32[2]\n    b: L\n    pub fn f(x: f32[2]) -> f32[2] { b(x) + a }\n}\n",
        None,
        &[],
    ),
    (
        "model M {\n    pub fn f(x: f32[S], n: i32) -> f32[S] {\n        var y = x\n        for i in 0..n {\n            y = y + 1\n            tap y\n        }\n        y\n    }\n}\n",
        None,
        &[],
    ),
    (
        "model M<N = 2000000> {\n    state k: f32[N, N]\n    pub fn f(x: f32[2]) -> f32[2] { x + k[0, 0..2] }\n}\n",
        None,
        &[],
    ),
    (
        "model M<N = 5> {\n    state k: f32[4]\n    pub fn f(x: f32[N], at: i32) -> f32 {\n        k[at..at+N] = x\n        sum(k)\n    }\n}\n",
        None,
        &[],
    ),
    ("model M<N = 5> {\n    pub fn f(x: f32[4], at: i32) -> f32[N] { x[at..at+N] }\n}\n", None, &[]),
    ("model M {\n    #[name = \"a.*\"]\n    w: f32[2]\n    pub fn f(x: f32[2]) -> f32[2] { x + w }\n}\n", None, &[]),
];

/// Calls that double the code again and again are stopped, not followed.
#[test]
fn inlining_has_a_limit() {
    let mut source = String::from("fn g0(x: f32[S]) -> f32[S] { x + 1 }\n");
    for i in 1..40 {
        source += &format!("fn g{i}(x: f32[S]) -> f32[S] {{ g{0}(g{0}(x)) }}\n", i - 1);
    }
    source += "model M {\n    pub fn f(x: f32[S]) -> f32[S] { g39(x) }\n}\n";
    let Err(message) = front::module("m.attn", &source, &Options::default()) else { panic!("2^39 calls") };
    assert!(message.contains("E0611"), "{message}");
    // A long chain of calls, each in deep parentheses, needs no more stack than there is.
    let (open, close) = ("(1 + ".repeat(200), ")".repeat(200));
    let mut source = format!("fn g0(x: f32[S]) -> f32[S] {{ {open} x {close} }}\n");
    for i in 1..60 {
        source += &format!("fn g{i}(x: f32[S]) -> f32[S] {{ {open} g{}(x) {close} }}\n", i - 1);
    }
    source += "model M {\n    pub fn f(x: f32[S]) -> f32[S] { g59(x) }\n}\n";
    let Err(message) = front::module("m.attn", &source, &Options::default()) else { panic!("12,000 levels") };
    assert!(message.contains("E0611"), "{message}");
}

/// The graph IR of every example passes the verifier and reads back from its text. That of the first eight, which go from one matmul to
/// GPT-2, is kept to be read.
#[test]
fn examples() {
    for example in fixtures::EXAMPLES {
        let source = std::fs::read_to_string(fixtures::program(example)).unwrap();
        let file = format!("{example}.attn");
        let module = front::module(&file, &source, &Options::default()).unwrap_or_else(|e| panic!("{example}\n{e}"));
        verify(&module).unwrap_or_else(|errors| panic!("{example}\n{errors}"));
        let printed = text::print(&module);
        let parsed = text::parse(&printed, Default::default()).unwrap_or_else(|_| panic!("{example}\n{printed}"));
        assert_eq!(text::print(&parsed.module), printed);
        if example < "09" {
            snapshot(example, &printed);
        }
    }
}

/// What lowering makes of the examples computes what PyTorch and NumPy compute, taps included.
#[test]
fn examples_compute_their_references() {
    for example in fixtures::EXAMPLES {
        let fixture = fixtures::load(example);
        let source = std::fs::read_to_string(fixtures::program(example)).unwrap();
        let options = Options { model: None, dims: fixture.dims.iter().cloned().collect() };
        let module = front::module(example, &source, &options).unwrap_or_else(|e| panic!("{example}\n{e}"));
        let module = front::differentiated(module);
        let verified = verify(&module).unwrap_or_else(|errors| panic!("{example}\n{errors}"));
        let params: BTreeMap<String, Tensor> =
            fixture.weights().iter().map(|(name, tensor)| (name.clone(), host(tensor))).collect();
        for case in &fixture.cases {
            let f = module.functions.iter().find(|f| f.name == case.entry).unwrap();
            let input = |name: &str| host(&case.inputs.iter().find(|(n, _)| n == name).unwrap().1);
            let args: Vec<Tensor> = f.args.iter().map(|arg| input(&arg.name)).collect();
            let call = interp::Call { function: &case.entry, args: &args, params: &params, limits: Default::default() };
            let out = interp::run_tapped::<f32>(verified, &call)
                .unwrap_or_else(|failure| panic!("{example} {}: {failure}", case.name));
            let check = |what: &str, result: &interp::Array<f32>, reference: &fixtures::Tensor| {
                let result = result.to_tensor().unwrap();
                assert_eq!(result.shape(), reference.shape, "{example} {} {what}", case.name);
                let far = fixtures::difference(&result.to_f32(), &reference.to_f32());
                assert!(far <= case.tolerance, "{example} {} {what}: {far} > {}", case.name, case.tolerance);
            };
            check("result", &out.results[0], &case.output);
            for (path, reference) in &case.taps {
                let tap =
                    out.taps.get(path).unwrap_or_else(|| panic!("{example}: no tap {path}: {:?}", out.taps.keys()));
                check(path, tap, reference);
            }
        }
    }
}
