//! Does a call compute just what it is asked for? What taps show is right whichever are asked for, results are those of calls
//! without taps, and what nothing asked for needs is not computed: told by the launches of calls and of plans.

use crate::{compiled, front, gen_source};

use std::collections::{BTreeMap, BTreeSet};

use crate::bounded::Bounded;
use attnc::ir::interp::{self, Call, Limits};
use attnc::ir::{Module, verify};
use attnc::lowering::graph::Options;
use attnc::passes::{self, Level};
use attnc::runtime::load::{CompiledModel, Session};
use attnc::tensor::Tensor;
use attnc::tile::{Block, Op, Plan, PlanOp, PlanVariant, TapPart, Terminator, Value};

/// Layers in a loop: attention with its scores and weights tapped, the residual after it, and what comes before an activation.
const LAYERS: &str = "
layer Block<D, H, F> where D % H == 0 {
    qkv:  f32[D, 3*D]
    proj: f32[D, D]
    up:   f32[D, F]
    down: f32[F, D]

    fn forward(x: f32[S, D]) -> f32[S, D] {
        let (q, k, v) = unbind(rearrange(x @ qkv, \"s (n h d) -> n h s d\", n = 3, h = H))
        let scores = q @ k.T / sqrt(D / H)
        let weights = softmax(where(causal(S, S), scores, -inf))
        tap scores
        tap weights
        let mixed = x + rearrange(weights @ v, \"h s d -> s (h d)\") @ proj
        tap mixed
        let before = mixed @ up
        tap before
        mixed + gelu_tanh(before) @ down
    }
}

model M<L = 3, D = 12, H = 2, F = 20> where D % H == 0 {
    h: [Block<D, H, F>; L]

    pub fn forward(x: f32[S, D]) -> f32[S, D] {
        var y = x
        for block in h { y = block(y) }
        tap y
        y * 2
    }
}
";

fn module(source: &str) -> Module {
    front::module("taps.attn", source, &Options::default()).unwrap_or_else(|e| panic!("{e}"))
}

fn optimised(module: &Module) -> Module {
    compiled::optimised(module.clone(), &passes::Options::default())
}

fn argument(shape: &[usize]) -> Tensor {
    let count: usize = shape.iter().product();
    let values: Vec<f32> = (0..count).map(|i| (i * 37 % 23) as f32 / 16.0 - 0.7).collect();
    Tensor::from_f32(shape.to_vec(), &values).unwrap()
}

type Params = BTreeMap<String, Tensor>;

/// How many launches a call has that asks for taps.
fn launches(session: &mut Session<'_>, x: &Tensor, globs: &[&str]) -> usize {
    session.profile(true).unwrap();
    session.call_with_taps(0, std::slice::from_ref(x), globs).unwrap_or_else(|e| panic!("{globs:?}: {e}"));
    session.launches().len()
}

/// Asks for each selection of taps, and compares what comes with the interpreter, run over the program as it is written.
fn show_what_is_asked_for(source: &str, params: &Params, x: &Tensor, globs: &[(&[&str], &[&str])]) {
    let written = module(source);
    let args = std::slice::from_ref(x);
    let call = Call { function: "forward", args, params, limits: Limits::default() };
    let expected = interp::run_tapped::<Bounded>(verify(&written).unwrap(), &call).unwrap_or_else(|e| panic!("{e}"));
    for level in [Level::O0, Level::O1, Level::O2] {
        let options = passes::Options { level, ..passes::Options::default() };
        let module = compiled::optimised(written.clone(), &options);
        let verified = verify(&module).unwrap_or_else(|e| panic!("{e}"));
        let interpreted = interp::run_tapped::<f32>(verified, &call).unwrap_or_else(|e| panic!("{e}"));
        let folder = tempfile::tempdir().unwrap();
        let model = compiled::load(&module, params, folder.path());
        let mut session = model.session().unwrap();
        let plain = session.call(0, args).unwrap();
        compiled::agree("result", &expected.results[0], &plain[0]);
        for (asked, names) in globs {
            let (results, taps) = session.call_with_taps(0, args, asked).unwrap_or_else(|e| panic!("{asked:?}: {e}"));
            let bits = |t: &Tensor| t.bytes().to_vec();
            assert_eq!(bits(&results[0]), bits(&plain[0]), "{asked:?} at {level:?}: other results than without taps");
            assert_eq!(taps.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), *names, "{asked:?}");
            assert!(session.written().iter().all(|(_, steps)| *steps == 1), "{:?}", session.written());
            for (name, tap) in taps {
                let what = format!("{name} at {level:?}, asked for {asked:?}");
                compiled::agree(&what, &expected.taps[&name], &tap);
                compiled::agree(&what, &expected.taps[&name], &interpreted.taps[&name].to_tensor().unwrap());
            }
        }
    }
}

#[test]
fn taps_show_the_program_whichever_are_asked_for() {
    let params = gen_source::inputs::parameters(&module(LAYERS), 3);
    let selections: &[(&[&str], &[&str])] = &[
        (&["y"], &["y"]),
        (&["h.1.weights"], &["h.1.weights"]),
        (&["h.2.scores", "h.0.before"], &["h.2.scores", "h.0.before"]),
        (&["h.*.mixed"], &["h.0.mixed", "h.1.mixed", "h.2.mixed"]),
    ];
    for rows in [0, 1, 5] {
        show_what_is_asked_for(LAYERS, &params, &argument(&[rows, 12]), selections);
    }
}

/// The weights of the first layer, by the formula.
#[test]
fn weights_are_those_of_the_formula() {
    let module = optimised(&module(LAYERS));
    let params = gen_source::inputs::parameters(&module, 4);
    let (rows, width, heads) = (4, 12, 2);
    let x = argument(&[rows, width]);
    let folder = tempfile::tempdir().unwrap();
    let model = compiled::load(&module, &params, folder.path());
    let (_, taps) = model.session().unwrap().call_with_taps(0, std::slice::from_ref(&x), &["h.0.weights"]).unwrap();
    let (x, qkv, got) = (x.to_f64(), params["h.0.qkv"].to_f64(), taps[0].1.to_f64());
    let each = width / heads;
    let project = |row: usize, column: usize| -> f64 {
        (0..width).map(|i| x[row * width + i] * qkv[i * 3 * width + column]).sum()
    };
    for head in 0..heads {
        for row in 0..rows {
            let score = |key: usize| -> f64 {
                let at = |n: usize, i: usize| n * width + head * each + i;
                let dot: f64 = (0..each).map(|i| project(row, at(0, i)) * project(key, at(1, i))).sum();
                (dot / (each as f64).sqrt()).exp()
            };
            let sum: f64 = (0..=row).map(score).sum();
            for key in 0..rows {
                let wanted = if key <= row { score(key) / sum } else { 0.0 };
                let found = got[(head * rows + row) * rows + key];
                assert!((wanted - found).abs() < 1e-5, "head {head}, row {row}, key {key}: {found}, not {wanted}");
            }
        }
    }
}

/// A tap costs what it needs, in the layers that it is asked for in, and everything else runs as without taps.
#[test]
fn calls_launch_what_they_are_asked_for() {
    let module = optimised(&module(LAYERS));
    let params = gen_source::inputs::parameters(&module, 3);
    let folder = tempfile::tempdir().unwrap();
    let model = compiled::load(&module, &params, folder.path());
    let mut session = model.session().unwrap();
    let x = argument(&[5, 12]);
    let plain = launches(&mut session, &x, &[]);
    let mut more = |globs: &[&str]| launches(&mut session, &x, globs) - plain;
    // A copy and a flag for values that are in memory anyway; those that are not are computed first.
    assert_eq!(more(&["y"]), 2);
    assert_eq!(more(&["h.1.mixed"]), 2);
    assert_eq!(more(&["h.*.mixed"]), 6);
    assert_eq!(more(&["h.0.before"]), 3);
    let (scores, weights) = (more(&["h.2.scores"]), more(&["h.2.weights"]));
    assert!((3..=4).contains(&scores), "{scores}");
    assert!((4..=5).contains(&weights), "{weights}");
    assert_eq!(more(&["h.*.scores"]), 3 * scores);
    assert_eq!(more(&["h.0.scores", "h.1.weights", "y"]), scores + weights + 2);
    assert_eq!(more(&["*"]), 3 * (scores + weights + 2 + 3) + 2);
}

/// Does a value say whether a tap is asked for?
fn asks(plan: &Plan, v: Value) -> bool {
    match plan.body.def_inst(v) {
        Some(d) => match &d.op {
            Op::Plan(PlanOp::Tap { name }) => TapPart::read(name).1 == TapPart::Asked,
            Op::Plan(PlanOp::View { .. }) | Op::LoadScalar => asks(plan, d.operands[0]),
            _ => false,
        },
        None => false,
    }
}

/// Kernels that a plan launches where no tap is asked for, sorted, and how many it launches for taps.
fn launched(plan: &Plan) -> (Vec<String>, usize) {
    let body = &plan.body;
    let mut for_taps: BTreeSet<Block> = BTreeSet::new();
    for b in &body.layout {
        let Terminator::BrIf { condition, then, otherwise } = &body.block(*b).terminator else { continue };
        let mut work = if asks(plan, *condition) { vec![then.block] } else { Vec::new() };
        while let Some(b) = work.pop() {
            if b != otherwise.block && for_taps.insert(b) {
                work.extend(body.block(b).terminator.targets().iter().map(|c| c.block));
            }
        }
    }
    let (mut kernels, mut others) = (Vec::new(), 0);
    for b in &body.layout {
        for i in &body.block(*b).insts {
            if let Op::Plan(PlanOp::Launch { kernel }) = &body.inst(*i).op {
                if for_taps.contains(b) { others += 1 } else { kernels.push(kernel.clone()) }
            }
        }
    }
    kernels.sort();
    (kernels, others)
}

/// What the examples launch for their results is the same with taps and without, kernel by kernel.
#[test]
fn examples_launch_the_same_kernels_beside_taps() {
    let mut seen = 0;
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/examples");
    let mut sources: Vec<(String, String)> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|e| e == "attn"))
        .map(|path| (path.display().to_string(), std::fs::read_to_string(&path).unwrap()))
        .collect();
    sources.push(("layers".to_string(), LAYERS.to_string()));
    for (name, source) in sources {
        let tiles = compiled::scheduled(&optimised(&module(&source)), compiled::levels()[0]);
        for tapped in tiles.plans.iter().filter(|p| p.variant == PlanVariant::Tapped) {
            let is_plain = |p: &&Plan| p.variant == PlanVariant::Plain && p.name == tapped.name;
            let plain = tiles.plans.iter().find(is_plain).unwrap();
            let (own, for_taps) = launched(tapped);
            assert_eq!(own, launched(plain).0, "{name}, {}", tapped.name);
            assert!(for_taps >= 2 * tapped.taps.len(), "{name}, {}", tapped.name);
            seen += 1;
        }
    }
    assert!(seen >= 6, "{seen}");
}

/// What only a tap needs may fail, and does so in calls that request it.
#[test]
fn what_nobody_asks_for_does_not_fail() {
    let source = "model M {\n    w: f32[4, 3]\n    pub fn forward(x: f32[S], at: i32[N]) -> f32[S] {\n        \
                  let rows = w[at]\n        tap rows\n        let twice = x * 2\n        tap twice\n        twice + 1\n    }\n}";
    let module = optimised(&module(source));
    let params = gen_source::inputs::parameters(&module, 1);
    let folder = tempfile::tempdir().unwrap();
    let model = compiled::load(&module, &params, folder.path());
    let mut session = model.session().unwrap();
    let args = |at: &[i64]| {
        let at = Tensor::from_ints(attnc::shape::Elem::I32, vec![at.len()], at).unwrap();
        [Tensor::from_f32(vec![2], &[1.0, 2.0]).unwrap(), at]
    };
    let (results, taps) = session.call_with_taps(0, &args(&[1, 9]), &["twice"]).unwrap();
    assert_eq!((results[0].to_f32(), taps[0].1.to_f32()), (vec![3.0, 5.0], vec![2.0, 4.0]));
    let error = session.call_with_taps(0, &args(&[1, 9]), &["rows"]).unwrap_err();
    assert!(error.text.contains("index 9 is out of range for an axis of 4"), "{}", error.text);
    let (_, taps) = session.call_with_taps(0, &args(&[3, 0]), &["*"]).unwrap();
    let w = params["w"].to_f32();
    let rows = taps.iter().find(|(name, _)| name == "rows").unwrap();
    assert_eq!(rows.1.to_f32(), [&w[9..], &w[..3]].concat());
}

/// A text of tile IR cannot give the flags of a tap, or what is asked for of it, another size than the runtime makes room for.
#[test]
fn flags_have_the_size_of_what_they_are_of() {
    let tiles = compiled::scheduled(&optimised(&module(LAYERS)), compiled::levels()[0]);
    let text = attnc::tile::text::print(&tiles);
    let check = |text: &str| {
        let parsed = attnc::tile::text::parse(text, Default::default()).unwrap_or_else(|e| panic!("{:?}", e.sorted()));
        attnc::tile::verify::verify(&parsed.module).map(|_| ()).map_err(|errors| errors.to_string())
    };
    assert_eq!(check(&text), Ok(()));
    for mark in ['!', '?'] {
        let is_tap = |line: &str| line.contains(&format!("tap \"h.*.weights{mark}\""));
        assert!(text.lines().any(is_tap), "{mark}: {text}");
        let line = |line: &str| if is_tap(line) { line.replace("bool[3]", "bool[4]") } else { line.to_string() };
        let broken: Vec<String> = text.lines().map(line).collect();
        let errors = check(&(broken.join("\n") + "\n")).expect_err("another size");
        assert!(errors.contains("the tap is buf bool[3]"), "{mark}: {errors}");
    }
}

/// Many taps of one long chain cost as many operations as there are taps, not as many as their square.
#[test]
fn chains_of_taps_do_not_grow_with_their_square() {
    let chain = |n: usize, returned: &str| {
        let mut text =
            "model M {\n    pub fn forward(x: f32[S, 8]) -> f32[S, 8] {\n        let y0 = exp(x)\n".to_string();
        for i in 1..n {
            let step = if i % 9 == 0 { "softmax" } else { "tanh" };
            text += &format!("        let y{i} = {step}(y{})\n        tap y{i}\n", i - 1);
        }
        text + &format!("        {returned}\n    }}\n}}\n")
    };
    // The steps are needed anyway, or by taps alone.
    for returned in [|n: usize| format!("y{}", n - 1), |_: usize| "x + 1".to_string()] {
        let launches = |n: usize| {
            let tiles = compiled::scheduled(&optimised(&module(&chain(n, &returned(n)))), compiled::levels()[0]);
            let plan = tiles.plans.iter().find(|p| p.variant == PlanVariant::Tapped).unwrap();
            let (own, for_taps) = launched(plan);
            own.len() + for_taps
        };
        let (few, many) = (launches(100), launches(200));
        assert!(many <= 3 * few, "{few} for 100 taps, {many} for 200");
    }
}

/// A tile text may jump to a tap's launches whether it is asked for or not; there is no memory then, and they are left out.
#[test]
fn launches_on_what_nobody_asks_for_are_left_out() {
    let folder = tempfile::tempdir().unwrap();
    let attnc = |from: &str, to: &str| {
        let emit = if to.ends_with(".tir") { vec!["--emit".to_string(), format!("tile={to}")] } else { vec![] };
        let out = if emit.is_empty() { vec!["-o".to_string(), to.to_string()] } else { emit };
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_attnc"));
        let done = command.current_dir(folder.path()).arg(from).args(["--cpu", "portable"]).args(out).output().unwrap();
        (done.status.code(), String::from_utf8_lossy(&done.stderr).into_owned())
    };
    let source =
        "model T { pub fn f(x: f32[S, 4]) -> f32[S, 4] {\n let a = exp(x)\n tap a\n let b = tanh(x)\n tap b\n a } }";
    std::fs::write(folder.path().join("t.attn"), source).unwrap();
    assert_eq!(attnc("t.attn", "t.tir").0, Some(0));
    let text = std::fs::read_to_string(folder.path().join("t.tir")).unwrap();
    let (before, plan) = text.split_once("plan @f tapped").unwrap();
    assert!(plan.contains("br_if %5, ^bb1, ^bb2"), "{plan}");
    let edited = |from: &str, to: &str| format!("{before}plan @f tapped{}", plan.replacen(from, to, 1));

    std::fs::write(folder.path().join("always.tir"), edited("br_if %5, ^bb1, ^bb2", "br ^bb1")).unwrap();
    let (code, error) = attnc("always.tir", "always.so");
    assert_eq!(code, Some(0), "{error}");
    // SAFETY: the library was just made by attnc.
    let model = unsafe { CompiledModel::open(&folder.path().join("always.so"), None, 1) }.unwrap();
    let x = argument(&[3, 4]);
    for asked in [&["b"][..], &["a"], &["a", "b"], &[]] {
        let (results, taps) = model.session().unwrap().call_with_taps(0, std::slice::from_ref(&x), asked).unwrap();
        let close = |y: &Tensor, f: fn(f64) -> f64| {
            let pairs = x.to_f64().into_iter().zip(y.to_f64());
            pairs.into_iter().all(|(x, y)| (f(x) - y).abs() <= 1e-6 * f(x).abs())
        };
        assert!(close(&results[0], f64::exp), "{asked:?}");
        assert_eq!(taps.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), asked, "{asked:?}");
        for (name, tap) in &taps {
            assert!(close(tap, if name == "a" { f64::exp } else { f64::tanh }), "{name}, asked for {asked:?}");
        }
    }

    // The requested taps belong to the caller, and a tap is not read.
    for (from, to, said) in [
        ("tap \"a?\"", "tap \"a!\"", "%10, is what a call asks for, and @flag.0 writes it"),
        ("%4 = tap \"a!\"", "%4 = tap \"a?\"", "load_scalar: %4 is of a tap, which a call may not ask for"),
    ] {
        std::fs::write(folder.path().join("edited.tir"), edited(from, to)).unwrap();
        let (code, error) = attnc("edited.tir", "edited.so");
        assert!(code == Some(1) && error.contains(said), "{to}: {error}");
    }
}
