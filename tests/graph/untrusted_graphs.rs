//! Does graph IR that anyone wrote stay within its memory? Texts are edited by hand and by rule; each must be refused, or
//! give the interpreter's outcome in compiled code at every level of optimisation: the same values, or an error in both.

use crate::{compiled, front, gen_source};

use std::collections::BTreeMap;
use std::process::Command;

use crate::bounded::Bounded;
use attnc::ir::interp::{self, Data};
use attnc::ir::{Module, text, verify};
use attnc::lowering::graph;
use attnc::passes::{Level, Options};
use attnc::random::Random;
use attnc::runtime::load::LoadError;
use attnc::shape::Elem;
use attnc::tensor::Tensor;

/// What became of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    /// The text is no right module.
    Refused,
    /// The call fails.
    Failed,
    /// It gives results.
    Done,
    /// It is more than a test may do.
    Beyond,
}

/// Reads a text, and calls its entry point `f` (or `forward`) at every level, interpreted and compiled, with taps if it
/// has any.
fn outcome(what: &str, source: &str, args: &[Vec<Tensor>], params: &BTreeMap<String, Tensor>) -> Vec<Outcome> {
    let Ok(parsed) = text::parse(source, Default::default()) else { return vec![Outcome::Refused] };
    if verify(&parsed.module).is_err() {
        return vec![Outcome::Refused];
    }
    let mut first: Option<Vec<Outcome>> = None;
    for level in [Level::O0, Level::O1, Level::O2] {
        let module = compiled::optimised(parsed.module.clone(), &Options { level, ..Options::default() });
        let found = at_level(&format!("{what}, {level:?}"), &module, args, params);
        let known = first.get_or_insert_with(|| found.clone());
        let same = |(a, b): (&Outcome, &Outcome)| a == b || *a == Outcome::Beyond || *b == Outcome::Beyond;
        assert!(known.iter().zip(&found).all(same), "{what}: {known:?}, and at {level:?} {found:?}");
    }
    first.unwrap_or_default()
}

fn at_level(what: &str, module: &Module, args: &[Vec<Tensor>], params: &BTreeMap<String, Tensor>) -> Vec<Outcome> {
    let folder = tempfile::tempdir().unwrap();
    let model = compiled::load(module, params, folder.path());
    let name = module.functions[0].name.clone();
    let entry = model.entry(&name).unwrap();
    let tapped = module.functions.iter().any(|f| f.tapped && f.name == name);
    let mut out = Vec::new();
    for args in args {
        let limits = interp::Limits { elements: 1 << 24, work: 1 << 32 };
        let call = interp::Call { function: &name, args, params, limits };
        let expected = interp::run_tapped::<Bounded>(verify(module).unwrap(), &call);
        if expected.as_ref().is_err_and(|e| e.message.contains("the limit allows")) {
            out.push(Outcome::Beyond);
            continue;
        }
        // What a call of the interpreter begins with: states as they were declared.
        let mut session = model.session().unwrap();
        let got: Result<Vec<(String, Tensor)>, LoadError> = if tapped {
            let number = |results: Vec<Tensor>| results.into_iter().enumerate().map(|(i, t)| (i.to_string(), t));
            session.call_with_taps(entry, args, &["*"]).map(|(r, taps)| number(r).chain(taps).collect())
        } else {
            session.call(entry, args).map(|r| r.into_iter().enumerate().map(|(i, t)| (i.to_string(), t)).collect())
        };
        out.push(match (expected, got) {
            (Ok(want), Ok(got)) => {
                let results = want.results.iter().enumerate().map(|(i, a)| (i.to_string(), a.clone()));
                let wanted: BTreeMap<String, _> = results.chain(want.taps.clone()).collect();
                for (name, have) in got {
                    let Some(want) = wanted.get(&name) else { continue };
                    // In a tap of the interpreter, the axes of `..` are one.
                    let count = |shape: &[usize]| shape.iter().product::<usize>();
                    let is_same = match tapped {
                        true => count(&want.shape) == count(have.shape()),
                        false => want.shape == have.shape(),
                    };
                    assert!(is_same, "{what}: {name}: {:?}, not {:?}", have.shape(), want.shape);
                    if let (Data::Float(xs), Elem::F32) = (&want.data, have.elem()) {
                        for (x, h) in xs.iter().zip(have.to_f64()) {
                            assert!(x.admits(h, 4.0), "{what}: {name}: {h}, not {} +- {:e}", x.value, x.error);
                        }
                    }
                }
                Outcome::Done
            }
            (Err(e), Err(_)) => {
                assert!(!e.internal, "{what}: {e}");
                Outcome::Failed
            }
            (Err(e), Ok(_)) => panic!("{what}: should have failed: {e}"),
            (Ok(_), Err(e)) => panic!("{what}: failed: {e}"),
        });
    }
    out
}

fn floats(shape: &[usize]) -> Tensor {
    let count: usize = shape.iter().product();
    let values: Vec<f32> = (0..count).map(|i| (i % 7) as f32 - 3.0).collect();
    Tensor::from_f32(shape.to_vec(), &values).unwrap()
}

/// Parameters of the texts below.
fn layers() -> BTreeMap<String, Tensor> {
    let mut params: BTreeMap<String, Tensor> = (0..3).map(|i| (format!("h.{i}.w"), floats(&[4]))).collect();
    params.insert("pos".into(), floats(&[16, 4]));
    params
}

/// A text with the parameters of [`layers`], whose entry point takes `f32[S, 4]`.
fn text_of(result: &str, facts: &str, body: &str) -> String {
    format!(
        "module \"m\"\nparam \"h.*.w\"[3] : f32[4]\nparam \"pos\" : f32[16, 4]\n\n\
         func @f(%0 \"x\": f32[S, 4]) -> ({result}) {{\n{facts}^bb0:\n{body}\n}}\n"
    )
}

/// A loop over layers; `head` compares, `index` is what the parameter is read at.
fn looping(head: &str, step: &str, index: &str) -> String {
    text_of(
        "f32[S, 4]",
        "",
        &format!(
            "  br ^bb1(0, %0)\n^bb1(%1: index, %2: f32[S, 4]):\n  %3 = {head} : bool[]\n  br_if %3, ^bb2, ^bb3\n\
             ^bb2:\n  %7 = add %1, 1 : index\n  %4 = param \"h.*.w\"[{index}] : f32[4]\n  %5 = add %2, %4 : f32[S, 4]\n  \
             %6 = {step} : index\n  br ^bb1(%6, %5)\n^bb3:\n  return %2"
        ),
    )
}

/// A loop of three that taps at an index, the untapped variant beside it.
fn tapping(tap: &str) -> String {
    let variant = |word: &str, tap: &str| {
        format!(
            "func @f(%0 \"x\": f32[S, 4]) -> (f32[S, 4]) {{\n{word}^bb0:\n  br ^bb1(0, %0)\n\
             ^bb1(%1: index, %2: f32[S, 4]):\n  %3 = lt %1, 3 : bool[]\n  br_if %3, ^bb2, ^bb3\n^bb2:\n  \
             %5 = exp %2 : f32[S, 4]\n{tap}  %6 = add %1, 1 : index\n  br ^bb1(%6, %5)\n^bb3:\n  return %2\n}}\n\n"
        )
    };
    format!("module \"m\"\n\n{}{}", variant("", ""), variant("  tapped\n", &format!("  {tap}\n")))
}

/// Calls with each of some lengths.
fn lengths(list: &[usize]) -> Vec<Vec<Tensor>> {
    list.iter().map(|s| vec![floats(&[*s, 4])]).collect()
}

#[test]
fn accesses_out_of_range_are_errors() {
    use Outcome::{Done, Failed, Refused};
    let usual = &[0, 2, 7, 8, 20][..];
    let positions = |facts: &str| {
        text_of(
            "f32[S, 4]",
            facts,
            "  %1 = param \"pos\" : f32[16, 4]\n  %2 = slice %1, axis=0, start=0, stop=S : f32[S, 4]\n  \
             %3 = add %0, %2 : f32[S, 4]\n  return %3",
        )
    };
    let one = |ty: &str, line: &str| text_of(ty, "", &format!("  %1 = {line} : {ty}\n  return %1"));
    let many = [Failed, Failed, Failed, Done, Done];
    let cases: Vec<(&str, String, Vec<Outcome>)> = vec![
        ("a slice", one("f32[3, 4]", "slice %0, axis=0, start=5, stop=8"), many.into()),
        (
            "a far slice",
            one("f32[3, 4]", "slice %0, axis=0, start=100000000, stop=100000003"),
            vec![Failed, Failed, Failed, Failed, Failed],
        ),
        (
            "a slice beyond machines",
            one("f32[1, 4]", "slice %0, axis=0, start=2305843009213693951, stop=2305843009213693952"),
            vec![Refused],
        ),
        (
            "a slice to the end",
            one("f32[S-7, 4]", "slice %0, axis=0, start=7, stop=S"),
            vec![Failed, Failed, Done, Done, Done],
        ),
        (
            "a slice of a negative start",
            one("f32[7, 4]", "slice %0, axis=0, start=S-7, stop=S"),
            vec![Failed, Failed, Done, Done, Done],
        ),
        (
            "a slice that is not used",
            text_of("f32[S, 4]", "", "  %1 = slice %0, axis=0, start=5, stop=8 : f32[3, 4]\n  return %0"),
            vec![Failed, Failed, Failed, Done, Done],
        ),
        ("a slice of numbers", one("f32[4]", "slice %0, axis=1, start=2, stop=5"), vec![Refused]),
        (
            "a negative padding",
            one("f32[2*S-5, 4]", "pad %0, 0.0, axis=0, low=S-5, high=0"),
            vec![Failed, Failed, Done, Done, Done],
        ),
        ("a negative padding behind", one("f32[S, 4]", "pad %0, 0.0, axis=0, low=5, high=-5"), vec![Refused]),
        (
            "paddings that cancel",
            one("f32[S, 4]", "pad %0, 0.0, axis=0, low=7-S, high=S-7"),
            vec![Failed, Failed, Done, Failed, Failed],
        ),
        (
            "a padding beyond machines",
            one("f32[S+2305843009213693952, 4]", "pad %0, 0.0, axis=0, low=2305843009213693952, high=0"),
            vec![Refused],
        ),
        ("an odd half", one("f32[2, S/2, 4]", "reshape %0"), vec![Done, Done, Failed, Done, Done]),
        ("a division by nothing", one("f32[]", "dim 4/S"), vec![Failed, Done, Failed, Failed, Failed]),
        ("an extent below nothing", one("f32[S-7]", "const 1.0"), vec![Failed, Failed, Done, Done, Done]),
        ("a negative number of elements", one("f32[-3]", "const 1.0"), vec![Refused]),
        ("too large a coefficient", one("f32[1152921504606846976*S, 4]", "const 1.0"), vec![Refused]),
        ("too large a product", one("f32[1048577*S, 1048577*S]", "const 1.0"), vec![Refused]),
        ("stated", positions("  where S <= 16\n"), vec![Done, Done, Done, Done, Failed]),
        ("its check deleted", positions(""), vec![Done, Done, Done, Done, Failed]),
        ("its check weakened", positions("  where S <= 100\n"), vec![Done, Done, Done, Done, Failed]),
        ("its check turned", positions("  where S >= 16\n"), vec![Failed, Failed, Failed, Failed, Failed]),
        ("a layer", one("f32[4]", "param \"h.*.w\"[2]"), vec![Done; 0]),
    ];
    for (what, source, wanted) in cases {
        let args = lengths(usual);
        let found = outcome(what, &source, &args, &layers());
        match wanted.as_slice() {
            [] => assert!(found.iter().all(|o| *o == Done), "{what}: {found:?}"),
            _ => assert_eq!(found, wanted, "{what}"),
        }
    }
}

#[test]
fn indices_that_loops_make_are_checked() {
    use Outcome::{Done, Failed};
    let args = lengths(&[0, 3]);
    let usual = ("lt %1, 3", "add %1, 1", "%1");
    let loops = |head, step, index| outcome("a loop", &looping(head, step, index), &args, &layers());
    assert_eq!(loops(usual.0, usual.1, usual.2), [Done, Done]);
    for (head, step, index) in [
        ("lt %1, 4", usual.1, usual.2),
        ("le %1, 3", usual.1, usual.2),
        ("lt %1, 100000000", usual.1, usual.2),
        (usual.0, usual.1, "3"),
        (usual.0, usual.1, "-1"),
        (usual.0, usual.1, "100000000"),
        (usual.0, usual.1, "%7"),
        ("ne %1, -2", "sub %1, 1", usual.2),
    ] {
        assert_eq!(loops(head, step, index), [Failed, Failed], "{head}, {step}, {index}");
    }
    assert_eq!(loops("lt %1, 9", "add %1, 7", usual.2), [Failed, Failed]);
    assert_eq!(loops("lt %1, 7", "add %1, 7", usual.2), [Done, Done]);
    // A dimension bounds the loop.
    let by_length =
        looping("lt %1, %8", usual.1, usual.2).replace("  br ^bb1(0, %0)", "  %8 = dim S : index\n  br ^bb1(0, %0)");
    let found = outcome("a loop to S", &by_length, &lengths(&[0, 2, 3, 4]), &layers());
    assert_eq!(found, [Done, Done, Done, Failed]);
}

#[test]
fn taps_are_written_within_their_memory() {
    use Outcome::{Done, Failed, Refused};
    let args = lengths(&[0, 3]);
    let taps = |line: &str| outcome(line, &tapping(line), &args, &BTreeMap::new());
    for line in ["tap %5, \"h.*.y\"[%1 < 3]", "tap %5, \"y\"[%1 < 3]"] {
        assert_eq!(taps(line), [Done, Done], "{line}");
    }
    for line in [
        "tap %5, \"h.*.y\"[%1 < 1]",
        "tap %5, \"h.*.y\"[%1 < 0]",
        "tap %5, \"y\"[%1 < 2]",
        "tap %5, \"y\"[%1 < 3, %1 < 1]",
        "tap %5, \"y\"[100000 < 3]",
        "tap %5, \"y\"[-1 < 3]",
    ] {
        assert_eq!(taps(line), [Failed, Failed], "{line}");
    }
    assert_eq!(taps("tap %5, \"y\"[%1 < S]"), [Failed, Done]);
    // The end of the loop is not known to be the tap's extent.
    assert_eq!(taps("tap %5, \"y\"[%1 < 2*S-3]"), [Failed, Done]);
    for line in [
        "tap %5, \"h.*.y\"[%1 < -5]",
        "tap %5, \"y\"[%1 < 1099511627776]",
        "tap %5, \"y\"[%1 < 3]\n  tap %3, \"y\"[%1 < 3]",
    ] {
        assert_eq!(taps(line), [Refused], "{line}");
    }
}

/// Numbers, dimensions and facts of texts are edited: of some that have every kind of access, and of random programs' graphs.
#[test]
fn edited_graphs_stay_within_their_memory() {
    let mut tally = Tally::default();
    let accesses = text_of(
        "f32[S, 4]",
        "  where S <= 16\n  where 2 <= S\n",
        "  %1 = param \"pos\" : f32[16, 4]\n  %2 = slice %1, axis=0, start=0, stop=S : f32[S, 4]\n  \
         %3 = slice %0, axis=0, start=1, stop=2 : f32[1, 4]\n  %4 = pad %2, 0.5, axis=0, low=S, high=1 : f32[2*S+1, 4]\n  \
         %5 = slice %4, axis=0, start=1, stop=S+1 : f32[S, 4]\n  %6 = add %5, %3 : f32[S, 4]\n  \
         %7 = param \"h.*.w\"[2] : f32[4]\n  %8 = add %6, %7 : f32[S, 4]\n  %9 = index %1, 3, axis=0 : f32[4]\n  \
         %10 = add %8, %9 : f32[S, 4]\n  return %10",
    );
    for (base, at) in [(accesses, "accesses"), (looping("lt %1, 3", "add %1, 1", "%1"), "a loop")] {
        let args = lengths(&[0, 2, 3, 16, 20]);
        for seed in 0..24 {
            let edited = edit(&base, &mut gen_source::stream(seed));
            tally.add(&outcome(&format!("{at} {seed}\n{edited}"), &edited, &args, &layers()));
        }
    }
    assert!(tally.refused > 0 && tally.failed > 24 && tally.done > 24, "{tally:?}");
    let seeds = std::env::var("ATTNC_SEEDS").ok().and_then(|n| n.parse().ok()).unwrap_or(16);
    for seed in 0..seeds {
        let program = gen_source::generate(seed);
        let module = front::module("random.attn", &program.source, &graph::Options::default()).unwrap();
        let level = if seed % 2 == 0 { Level::O0 } else { Level::O2 };
        let graph = text::print(&compiled::optimised(module, &Options { level, ..Options::default() }));
        let mut random = gen_source::stream(seed ^ 0xed17);
        for _ in 0..4 {
            let edited = edit(&graph, &mut random);
            let verified = text::parse(&edited, Default::default()).ok().filter(|p| verify(&p.module).is_ok());
            let Some(parsed) = verified else { continue };
            let params = gen_source::inputs::parameters(&parsed.module, seed);
            let args: Vec<Vec<Tensor>> =
                (0..3).map(|call| program.inputs(seed, &program.sizes(seed.wrapping_add(call * 7919)))).collect();
            let what = format!("seed {seed}\n{edited}\n");
            tally.add(&at_level(&what, &compiled::optimised(parsed.module, &Options::default()), &args, &params));
        }
    }
    println!("{tally:?}");
}

/// How many calls became what.
#[derive(Debug, Default)]
struct Tally {
    refused: usize,
    failed: usize,
    done: usize,
}

impl Tally {
    fn add(&mut self, found: &[Outcome]) {
        let count = |wanted| found.iter().filter(|o| **o == wanted).count();
        self.refused += count(Outcome::Refused);
        self.failed += count(Outcome::Failed);
        self.done += count(Outcome::Done);
    }
}

/// A text with one attribute, bound or fact changed. A slice and a padding are moved, so that their types stay.
fn edit(graph: &str, random: &mut Random) -> String {
    let mut lines: Vec<String> = graph.lines().map(String::from).collect();
    let marks = [" slice %", " pad %", " lt %", " param \"", " tap %", "  where ", " index %"];
    let candidates: Vec<usize> = (0..lines.len())
        .filter(|i| marks.iter().any(|m| lines[*i].contains(m)) && lines[*i].starts_with("  "))
        .collect();
    if candidates.is_empty() {
        return graph.to_string();
    }
    let at = candidates[random.below(candidates.len())];
    let line = lines[at].clone();
    let by = random.pick(&["1", "2", "5", "40", "1000000"]);
    let moved = |names: [(&str, &str); 2]| {
        let mut out = line.clone();
        for (name, sign) in names {
            let start = out.find(name)? + name.len();
            let stop = start + out[start..].find([',', ' '])?;
            out = format!("{}{}{sign}{by}{}", &out[..start], &out[start..stop], &out[stop..]);
        }
        Some(out)
    };
    let there = moved([("start=", "+"), ("stop=", "+")]).or_else(|| moved([("low=", "+"), ("high=", "-")]));
    let back = moved([("start=", "-"), ("stop=", "-")]).or_else(|| moved([("low=", "-"), ("high=", "+")]));
    match if random.below(2) == 0 { there } else { back } {
        Some(line) => lines[at] = line,
        None if line.trim_start().starts_with("where ") => drop(lines.remove(at)),
        None => {
            // One number of the operation, before its type.
            let end = line.find(" : ").unwrap_or(line.len());
            let digit = |i: &usize| {
                let before = line[..*i].chars().next_back();
                line.as_bytes()[*i].is_ascii_digit() && before.is_some_and(|c| matches!(c, '[' | ' ' | '+' | '-'))
            };
            let places: Vec<usize> = (1..end).filter(digit).collect();
            if !places.is_empty() {
                let start = places[random.below(places.len())];
                let stop = start + line[start..].bytes().take_while(u8::is_ascii_digit).count();
                lines[at] = format!("{}{by}{}", &line[..start], &line[stop..]);
            }
        }
    }
    lines.join("\n") + "\n"
}

/// A product of dimensions that leaves 64 bits is an error of the call at every level, whatever becomes of the tensor.
#[test]
fn sizes_beyond_64_bits_are_errors_at_every_level() {
    let product = ["S"; 8].join(" * ");
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
    let x = path("x.npy");
    let write = |n: usize| std::fs::write(&x, attnc::runtime::npy::to_bytes(&floats(&[n]))).unwrap();
    for (name, body) in [
        ("sum", format!("sum(full<f32>(1, [{product}]), axis = 0)")),
        ("axes", "sum(full<f32>(1, [S, S, S, S, S, S, S, S]), axis = [0, 1, 2, 3, 4, 5, 6, 7])".to_string()),
        ("unused", format!("let y = full<f32>(1, [{product}])\n        sum(x, axis = 0)")),
        ("number", format!("sum(x, axis = 0) * ({product})")),
    ] {
        let source = format!("model M {{\n    pub fn f(x: f32[S]) -> f32 {{\n        {body}\n    }}\n}}\n");
        let file = path(&format!("{name}.attn"));
        std::fs::write(&file, &source).unwrap();
        for backend in ["interp", "cpu"] {
            for level in ["-O0", "-O1", "-O2"] {
                write(256);
                let input = format!("x={x}");
                let run = || {
                    let args = ["run", &file, "--input", &input, "--backend", backend, level];
                    let output = Command::new(env!("CARGO_BIN_EXE_attnc")).args(args).output().expect("attnc starts");
                    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
                };
                let (code, stderr) = run();
                assert!(code == Some(1) && stderr.contains("E0803"), "{name} {backend} {level}: {code:?}\n{stderr}");
                write(2);
                let (code, stderr) = run();
                assert_eq!(code, Some(0), "{name} {backend} {level} of 2: {stderr}");
            }
        }
    }
}

/// Numbers that no machine could hold are refused where they are written, be they an extent or the coefficient of one.
#[test]
fn sizes_beyond_machines_are_refused() {
    let doubled = "        let x = concat(x, x)\n".repeat(62);
    for (argument, result, body) in [
        (
            "f32[S]",
            "f32[S + 2305843009213693952]",
            "        pad(x, axis = 0, low = 2305843009213693952, high = 0)\n".to_string(),
        ),
        ("f32[1152921504606846976 * S, 4]", "f32[1152921504606846976 * S, 4]", "        x\n".to_string()),
        ("f32[S]", "f32[4611686018427387904 * S]", format!("{doubled}        x\n")),
        ("f32[S, 4]", "f32[1, 4]", "        x[2305843009213693951..2305843009213693952]\n".to_string()),
        ("f32[S]", "f32[S]", "        x * (9223372036854775807 * S * 4)\n".to_string()),
        ("f32[S]", "f32", "        sum(full<f32>(1, [2305843009213693952, 0, S]), axis = [0, 1, 2])\n".to_string()),
    ] {
        let source = format!("model M {{\n    pub fn f(x: {argument}) -> {result} {{\n{body}    }}\n}}\n");
        let complaint = front::module("large.attn", &source, &graph::Options::default()).err().unwrap_or_default();
        assert!(complaint.contains("error[E0610]"), "{source}{complaint}");
    }
}

/// What an operation reaches beyond its operands and its result is asked of the call: the scores of attention, all places of a
/// tap in a loop, what stands in a region.
#[test]
fn what_operations_reach_is_asked_for() {
    let checks = |source: &str| -> Vec<String> {
        let parsed = text::parse(&format!("module \"m\"\n{source}"), Default::default());
        let module = parsed.unwrap_or_else(|d| panic!("{source}\n{:?}", d.sorted())).module;
        attnc::ir::requirements::entry_checks(&module, "f").iter().map(|(fact, _)| fact.to_string()).collect()
    };
    let attention = "func @f(%0 \"q\": f32[S, 4], %1 \"k\": f32[T, 4]) -> (f32[S, 4]) {\n^bb0:\n  \
                     %2 = attention %0, %1, %1, scale=0.5, mask=[causal] : f32[S, 4]\n  return %2\n}";
    assert_eq!(checks(attention), ["4*S*T <= 9223372036854775807"]);
    let tap = "func @f(%0 \"x\": f32[S, 4]) -> (f32[S, 4]) {\n  tapped\n^bb0:\n  br ^bb1(0)\n^bb1(%1: index):\n  %9 = dim S : index\n  \
               %2 = lt %1, %9 : bool[]\n  br_if %2, ^bb2, ^bb3\n^bb2:\n  tap %0, \"y\"[%1 < S]\n  %3 = add %1, 1 : index\n  br ^bb1(%3)\n\
               ^bb3:\n  return %0\n}";
    assert_eq!(checks(tap), ["16*S*S <= 9223372036854775807"]);
    let region = "func @f(%0 \"x\": f32[S], %1 \"y\": f32[T]) -> (f32[S]) {\n^bb0:\n  %2 = fused map(%3 = %0) : f32[S] {\n    \
                  %4 = dim S/T : f32[]\n    %5 = mul %3, %4 : f32[S]\n    yield %5\n  }\n  return %2\n}";
    assert_eq!(checks(region), ["(S) % (T) == 0"]);
    // From T < S follows only T + 1 <= S.
    let cut = |to: &str| {
        checks(&format!(
            "func @f(%0 \"x\": f32[S], %1 \"y\": f32[T]) -> (f32[{to}]) {{\n  where T < S\n^bb0:\n  \
             %2 = slice %0, axis=0, start=0, stop={to} : f32[{to}]\n  return %2\n}}"
        ))
    };
    assert_eq!(cut("T+1"), ["T < S"]);
    assert_eq!(cut("T+2"), ["T < S", "T+2 <= S"]);
}

/// False is below true, in compiled code as in the interpreter.
#[test]
fn truth_values_are_ordered() {
    let source = "module \"m\"\nfunc @f(%0 \"a\": bool[S], %1 \"b\": bool[S]) -> (bool[S], bool[S], bool[S], bool[S]) {\n^bb0:\n  \
                  %2 = lt %0, %1 : bool[S]\n  %3 = le %0, %1 : bool[S]\n  %4 = gt %0, %1 : bool[S]\n  %5 = ge %0, %1 : bool[S]\n  \
                  return %2, %3, %4, %5\n}\n";
    let truths = |values: [i64; 4]| Tensor::from_ints(Elem::Bool, vec![20], &values.repeat(5)).unwrap();
    let args = [vec![truths([0, 0, 1, 1]), truths([0, 1, 0, 1])]];
    assert_eq!(outcome("orders of truth values", source, &args, &BTreeMap::new()), [Outcome::Done]);
    let module = text::parse(source, Default::default()).unwrap_or_else(|d| panic!("{:?}", d.sorted())).module;
    let folder = tempfile::tempdir().unwrap();
    for level in compiled::levels() {
        let model = compiled::load_at(level, &module, &BTreeMap::new(), folder.path());
        let found = model.session().unwrap().call(model.entry("f").unwrap(), &args[0]).unwrap();
        for (got, want) in found.iter().zip([[0, 1, 0, 0], [1, 1, 0, 1], [0, 0, 1, 0], [1, 0, 1, 1]]) {
            assert_eq!(got.to_i64(), want.repeat(5), "{}", level.name());
        }
    }
}
