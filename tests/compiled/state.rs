//! Does a session keep its states between calls, everywhere alike: a recurrent network in one call and step by step, attention
//! with a cache in one call and in two, several entry points, sessions that know nothing of each other, `reset`?

use crate::{compiled, everywhere, front};

use attnc::ir;
use attnc::shape::Elem;
use attnc::tensor::Tensor;
use attnc::tile::{self, Op, PlanOp, PlanVariant};
use everywhere::Everywhere;

fn tensor(shape: &[usize], f: impl Fn(usize) -> f32) -> Tensor {
    let count: usize = shape.iter().product();
    Tensor::from_f32(shape.to_vec(), &(0..count).map(f).collect::<Vec<f32>>()).unwrap()
}

/// Some numbers of moderate size without a pattern.
fn noise(shape: &[usize], seed: usize) -> Tensor {
    tensor(shape, |i| ((i * 37 + seed * 101) % 53) as f32 / 53.0 - 0.5)
}

fn rows(x: &Tensor, from: usize, to: usize) -> Tensor {
    let width: usize = x.shape()[1..].iter().product();
    let shape: Vec<usize> = [to - from].into_iter().chain(x.shape()[1..].iter().copied()).collect();
    Tensor::from_floats(x.elem(), shape, &x.to_f64()[from * width..to * width]).unwrap()
}

fn joined(parts: &[Tensor]) -> Tensor {
    let values: Vec<f64> = parts.iter().flat_map(Tensor::to_f64).collect();
    let rows = parts.iter().map(|p| p.shape()[0]).sum();
    let shape: Vec<usize> = [rows].into_iter().chain(parts[0].shape()[1..].iter().copied()).collect();
    Tensor::from_floats(parts[0].elem(), shape, &values).unwrap()
}

const LSTM: &str = "model Lstm<I = 3, H = 4> {\n    w: f32[I, 4*H]\n    u: f32[H, 4*H]\n    b: f32[4*H]\n    state h: f32[H]\n    state c: f32[H]\n\n    \
    pub fn forward(x: f32[S, I]) -> f32[S, H] {\n        var out = full(0.0, [S, H])\n        for t in 0..S { out[t] = cell(x[t]) }\n        out\n    }\n\n    \
    pub fn step(x: f32[I]) -> f32[H] { cell(x) }\n\n    pub fn forget() -> f32[H] {\n        let old = h\n        reset h\n        reset c\n        old\n    }\n\n    \
    fn cell(x: f32[I]) -> f32[H] {\n        let (i, f, g, o) = split(x @ w + h @ u + b, parts = 4)\n        \
    c = sigmoid(f) * c + sigmoid(i) * tanh(g)\n        h = sigmoid(o) * tanh(c)\n        h\n    }\n}\n";

/// All steps in one call are the steps one by one; so is every mixture.
#[test]
fn an_lstm_in_one_call_is_its_steps() {
    let params = [("w", noise(&[3, 16], 1)), ("u", noise(&[4, 16], 2)), ("b", noise(&[16], 3))];
    let program = Everywhere::of(LSTM, &params);
    let x = noise(&[5, 3], 4);
    let whole = program.calls(&[("forward", vec![x.clone()])]).remove(0).unwrap().remove(0);
    // The formula in f64.
    let [w, u, b] = params.map(|(_, p)| p.to_f64());
    let (mut h, mut c) = ([0.0; 4], [0.0; 4]);
    let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
    let mut want = Vec::new();
    for t in 0..5 {
        let xs = &x.to_f64()[t * 3..t * 3 + 3];
        let z: Vec<f64> = (0..16)
            .map(|j| {
                let input: f64 = (0..3).map(|i| xs[i] * w[i * 16 + j]).sum();
                let state: f64 = (0..4).map(|i| h[i] * u[i * 16 + j]).sum();
                input + state + b[j]
            })
            .collect();
        for j in 0..4 {
            c[j] = sigmoid(z[4 + j]) * c[j] + sigmoid(z[j]) * z[8 + j].tanh();
            h[j] = sigmoid(z[12 + j]) * c[j].tanh();
        }
        want.extend(h);
    }
    everywhere::near("the formula", &Tensor::from_floats(Elem::F32, vec![5, 4], &want).unwrap(), &whole);
    let row = |t: usize| Tensor::from_floats(Elem::F32, vec![3], &x.to_f64()[t * 3..t * 3 + 3]).unwrap();
    let steps: Vec<(&str, Vec<Tensor>)> = (0..5).map(|t| ("step", vec![row(t)])).collect();
    for (t, given) in program.calls(&steps).into_iter().enumerate() {
        let given = Tensor::from_floats(Elem::F32, vec![1, 4], &given.unwrap()[0].to_f64()).unwrap();
        everywhere::near("a step", &rows(&whole, t, t + 1), &given);
    }
    for k in 0..=5 {
        let given = program.calls(&[
            ("forward", vec![rows(&x, 0, k)]),
            ("forward", vec![rows(&x, k, 5)]),
            ("forget", vec![]),
            ("forward", vec![x.clone()]),
        ]);
        let parts: Vec<Tensor> = given[..2].iter().map(|g| g.as_ref().unwrap()[0].clone()).collect();
        everywhere::near("two calls", &whole, &joined(&parts));
        everywhere::near("after `reset`", &whole, &given[3].as_ref().unwrap()[0]);
        let last = Tensor::from_floats(Elem::F32, vec![1, 4], &given[2].as_ref().unwrap()[0].to_f64()).unwrap();
        everywhere::near("what was kept", &rows(&whole, 4, 5), &last);
    }
}

const CACHED: &str = "layer Attention<D, C> {\n    wq: f32[D, D]\n    wk: f32[D, D]\n    wv: f32[D, D]\n    state k: f32[C, D]\n    state v: f32[C, D]\n\n    \
    fn forward(x: f32[S, D], past: i32) -> f32[S, D] where S <= C {\n        k[past..past+S] = x @ wk\n        v[past..past+S, ..] = x @ wv\n        \
    let at = rearrange(iota(S), \"s -> s 1\") + past\n        let scores = where(iota(C) <= at, (x @ wq) @ k.T / sqrt(D), -inf)\n        \
    softmax(scores) @ v\n    }\n}\n\nmodel M<D = 6, C = 8, L = 2> {\n    h: [Attention<D, C>; L]\n    state n: i32\n\n    \
    pub fn forward(x: f32[S, D]) -> f32[S, D] where S <= C {\n        var y = x\n        for block in h { y = y + block(y, n) }\n        \
    n = n + cast<i32>(S)\n        y\n    }\n}\n";

/// Running all tokens at once is running some, and then the rest from the cache.
#[test]
fn a_cache_continues_where_it_ended() {
    let source = CACHED.replace("cast<i32>(S)", "S");
    let names: Vec<String> = (0..2).flat_map(|l| ["wq", "wk", "wv"].map(|w| format!("h.{l}.{w}"))).collect();
    let params: Vec<(&str, Tensor)> =
        names.iter().enumerate().map(|(i, name)| (name.as_str(), noise(&[6, 6], i))).collect();
    let program = Everywhere::of(&source, &params);
    for n in [1, 5, 8] {
        let x = noise(&[n, 6], 9);
        let whole = program.call("forward", std::slice::from_ref(&x)).unwrap().remove(0);
        for k in 0..=n {
            let given = program.calls(&[("forward", vec![rows(&x, 0, k)]), ("forward", vec![rows(&x, k, n)])]);
            let parts: Vec<Tensor> = given.iter().map(|g| g.as_ref().unwrap()[0].clone()).collect();
            everywhere::near(&format!("{k} of {n}"), &whole, &joined(&parts));
        }
    }
    // The cache is full.
    let x = noise(&[8, 6], 9);
    let given = program.calls(&[("forward", vec![x.clone()]), ("forward", vec![rows(&x, 0, 1)])]);
    assert!(given[0].is_ok() && given[1].is_err());
    // The cache is written in place: nothing of its size is copied or has a slot.
    let verified = ir::verify(&program.optimised).unwrap();
    let tiles = attnc::lowering::tile::lower(verified).unwrap().into_module();
    let plan = tiles.plans.iter().find(|p| p.variant == PlanVariant::Plain).unwrap();
    let cache = 2 * 8 * 6 * 4;
    assert!(plan.slots.iter().filter_map(|s| s.bytes.as_const()).all(|bytes| bytes < cache / 2));
    let whole = plan.body.insts().filter(|(_, _, d)| match &d.op {
        Op::Plan(PlanOp::Launch { kernel }) => {
            !kernel.starts_with("attention") && d.operands.iter().any(|v| is_cache(plan, *v))
        }
        _ => false,
    });
    assert_eq!(whole.count(), 0, "{}", tile::text::print(&tiles));
}

/// Is it a buffer of as many elements as the cache of a layer?
fn is_cache(plan: &tile::Plan, v: tile::Value) -> bool {
    plan.body
        .ty(v)
        .buffer()
        .is_some_and(|b| attnc::shape::Dim::product(&b.shape).as_const().is_some_and(|n| n >= 8 * 6))
        && !matches!(plan.body.def_inst(v).map(|d| &d.op), Some(Op::Plan(PlanOp::Packed { .. } | PlanOp::View { .. })))
}

/// Sessions of one model know nothing of each other, and `reset` is zeros.
#[test]
fn sessions_are_independent() {
    let source = "model M {\n    state sum: f32[2]\n    state calls: i32\n    pub fn add(x: f32[2]) -> (f32[2], i32) {\n        sum = sum + x\n        \
                  calls = calls + 1\n        (sum, calls)\n    }\n    pub fn half() -> f32[2] {\n        sum[1] = 0.5\n        sum\n    }\n}\n";
    let module =
        compiled::optimised(front::module("m.attn", source, &Default::default()).unwrap(), &Default::default());
    let folder = tempfile::tempdir().unwrap();
    let model = compiled::load(&module, &Default::default(), folder.path());
    let (mut a, mut b) = (model.session().unwrap(), model.session().unwrap());
    let (add, half) = (model.entry("add").unwrap(), model.entry("half").unwrap());
    let x = tensor(&[2], |i| i as f32 + 1.0);
    let sum = |given: Vec<Tensor>| (given[0].to_f64(), given[1].to_f64()[0]);
    assert_eq!(sum(a.call(add, std::slice::from_ref(&x)).unwrap()), (vec![1.0, 2.0], 1.0));
    assert_eq!(sum(a.call(add, std::slice::from_ref(&x)).unwrap()), (vec![2.0, 4.0], 2.0));
    assert_eq!(sum(b.call(add, std::slice::from_ref(&x)).unwrap()), (vec![1.0, 2.0], 1.0));
    assert_eq!(a.call(half, &[]).unwrap()[0].to_f64(), [2.0, 0.5]);
    assert_eq!(sum(a.call(add, std::slice::from_ref(&x)).unwrap()), (vec![3.0, 2.5], 3.0));
    a.reset().unwrap();
    assert_eq!(sum(a.call(add, std::slice::from_ref(&x)).unwrap()), (vec![1.0, 2.0], 1.0));
    assert_eq!(sum(b.call(add, std::slice::from_ref(&x)).unwrap()), (vec![2.0, 4.0], 2.0));
}

/// A value read before the state is set stays what it was; states that change places; a branch that sets and one that does not.
#[test]
fn what_was_read_stays() {
    let program = Everywhere::of(
        "model M {\n    state a: f32[2, 2]\n    state b: f32[2, 2]\n    pub fn f(x: f32[2, 2], swap: bool) -> (f32[2, 2], f32[2, 2], f32[2, 2]) {\n        \
         let before = a\n        let turned = a.T\n        a[0] = x[1]\n        a = a + turned\n        if swap {\n            let old = a\n            a = b.T\n            \
         b = old\n        }\n        (before, a, b)\n    }\n}\n",
        &[],
    );
    let truth = |b: bool| Tensor::from_ints(Elem::Bool, vec![], &[i64::from(b)]).unwrap();
    let swaps = [false, true, true, false, true];
    let xs: Vec<Tensor> = (0..swaps.len()).map(|n| noise(&[2, 2], n)).collect();
    let calls: Vec<(&str, Vec<Tensor>)> = xs.iter().zip(swaps).map(|(x, s)| ("f", vec![x.clone(), truth(s)])).collect();
    let given = program.calls(&calls);
    let (mut a, mut b) = (vec![0.0; 4], vec![0.0; 4]);
    let turned = |m: &[f64]| vec![m[0], m[2], m[1], m[3]];
    for ((x, swap), given) in xs.iter().zip(swaps).zip(given) {
        let (before, x) = (a.clone(), x.to_f64());
        (a[0], a[1]) = (x[2], x[3]);
        a = a.iter().zip(turned(&before)).map(|(p, q)| p + q).collect();
        if swap {
            (a, b) = (turned(&b), a);
        }
        for (want, got) in [&before, &a, &b].into_iter().zip(given.unwrap()) {
            everywhere::near("a state", &Tensor::from_floats(Elem::F32, vec![2, 2], want).unwrap(), &got);
        }
    }
}

/// A state that is set to what a loop then goes on from: the next call finds what was set, not what the loop made of it.
#[test]
fn a_loop_does_not_go_on_in_a_state() {
    let text = "state \"s\" : f32[3]\n\nfunc @f(%0 \"x\": f32[3]) -> (f32[3]) {\n^bb0:\n  %1 = state \"s\" : f32[3]\n  \
                %2 = add %1, %0 : f32[3]\n  %3 = exp %2 : f32[3]\n  %4 = log %3 : f32[3]\n  set_state %4, \"s\"\n  br ^bb1(0, %4)\n\
                ^bb1(%5: index, %6: f32[3]):\n  %7 = lt %5, 4 : bool[]\n  br_if %7, ^bb2, ^bb3\n^bb2:\n  %8 = mul %6, 2.0 : f32[3]\n  \
                %9 = add %5, 1 : index\n  br ^bb1(%9, %8)\n^bb3:\n  return %6\n}\n";
    let module = ir::text::parse(text, Default::default()).unwrap_or_else(|e| panic!("{:?}", e.sorted())).module;
    let program = Everywhere::of_module(module, &[]);
    let xs: Vec<Tensor> = (0..3).map(|n| noise(&[3], n)).collect();
    let given = program.calls(&xs.iter().map(|x| ("f", vec![x.clone()])).collect::<Vec<_>>());
    let mut sum = vec![0.0; 3];
    for (x, given) in xs.iter().zip(given) {
        sum = sum.iter().zip(x.to_f64()).map(|(s, x)| s + x).collect();
        let want: Vec<f64> = sum.iter().map(|s| s * 16.0).collect();
        everywhere::near(
            "16 times the sum",
            &Tensor::from_floats(Elem::F32, vec![3], &want).unwrap(),
            &given.unwrap()[0],
        );
    }
}

/// A method that sets a state, called on the right side of an assignment to another part of it; a loop that a state ends.
#[test]
fn states_that_methods_set() {
    let program = Everywhere::of(
        "layer Count {\n    state n: i32\n    fn more() -> bool { n < 3 }\n    fn step() -> i32 {\n        n = n + 1\n        n\n    }\n}\n\
         model M {\n    c: Count\n    state s: f32[3]\n    fn second() -> f32 {\n        s[1] = 5.0\n        2.0\n    }\n    \
         pub fn f() -> (f32[3], i32) {\n        s[0] = second()\n        while c.more() { let n = c.step() }\n        (s, c.step())\n    }\n}\n",
        &[],
    );
    let given = program.call("f", &[]).expect("a result");
    assert_eq!((given[0].to_f64(), given[1].to_f64()), (vec![2.0, 5.0, 0.0], vec![4.0]));
}

/// Tile IR with states is read back, and refuses states that have no size.
#[test]
fn texts_with_states_are_read_back() {
    let module = front::module(
        "m.attn",
        "model M {\n    state s: f32[2, 3]\n    pub fn f(x: f32[3], i: i32) -> f32[2, 3] {\n        s[i] = x\n        s\n    }\n}\n",
        &Default::default(),
    );
    let module = compiled::optimised(module.unwrap_or_else(|e| panic!("{e}")), &Default::default());
    let tiles = compiled::scheduled(&module, tile::Cpu::PORTABLE);
    let text = tile::text::print(&tiles);
    let again = tile::text::parse(&text, Default::default()).unwrap_or_else(|_| panic!("{text}")).module;
    assert_eq!(tile::text::print(&again), text);
    for (from, to, told) in [
        ("f32[2, 3]", "f32[-2, -3]", "not a number from 0 on"),
        ("f32[2, 3]", "f32[S, 3]", "not a number from 0 on"),
        ("f32[2, 3]", "f32[4294967296, 4294967296]", "too large"),
    ] {
        let line = text.lines().find(|l| l.starts_with("state ")).expect("a state");
        let changed = text.replacen(line, &line.replace(from, to), 1);
        // A state that cannot be read is rejected too.
        if let Ok(parsed) = tile::text::parse(&changed, Default::default()) {
            let refused = tile::verify::verify(&parsed.module).expect_err(to).to_string();
            assert!(refused.contains(told), "{refused}");
        }
    }
}

/// Two states of one name would be one memory.
#[test]
fn states_have_names_of_their_own() {
    for source in [
        "model M {\n    #[name = \"h\"]\n    state a: f32[2]\n    #[name = \"h\"]\n    state b: f32[2]\n    pub fn f() -> f32[2] { a + b }\n}\n",
        "layer L {\n    state k: f32[2]\n    fn get() -> f32[2] { k }\n}\nmodel M {\n    c: L\n    #[name = \"c.k\"]\n    state d: f32[2]\n    pub fn f() -> f32[2] { c.get() + d }\n}\n",
    ] {
        let told = front::module("m.attn", source, &Default::default()).expect_err(source);
        assert!(told.contains("two states have the name"), "{told}");
    }
}

/// Where a call fails that sets states, they are lost everywhere, whatever was written by then: the order of writes and checks is not
/// the program's.
#[test]
fn a_call_that_fails_loses_the_states_that_it_sets() {
    let source = "model M<D = 2, C = 4> {\n    table: f32[3, D]\n    state keys: f32[C, D]\n    state seen: i32\n    \
                  pub fn add(k: f32[S, D], i: i32) -> f32[D] {\n        let dim N = seen + S where N <= C\n        \
                  keys[seen..seen+S, ..] = k\n        seen = seen + S\n        sum(keys[0..N, ..], axis=0) + table[i]\n    }\n    \
                  pub fn early(i: i32) -> f32[D] {\n        let row = table[i]\n        seen = seen + 1\n        row\n    }\n    \
                  pub fn count() -> i32 { seen }\n    pub fn look(i: i32) -> f32[D] { table[i] }\n}\n";
    let program = Everywhere::of(source, &[("table", tensor(&[3, 2], |i| i as f32))]);
    let int = |n: i64| Tensor::from_ints(Elem::I32, vec![], &[n]).unwrap();
    let add = |rows: usize, i: i64| ("add", vec![tensor(&[rows, 2], |_| 10.0), int(i)]);
    let look = |i: i64| ("look", vec![int(i)]);
    for (what, failing) in
        [("an index", add(1, 3)), ("a length", add(2, 0)), ("before any write", ("early", vec![int(-1)]))]
    {
        let calls = [add(1, 1), look(7), add(2, 2), failing, add(1, 0), ("count", vec![]), look(0)];
        let given = program.calls(&calls);
        let ok: Vec<Vec<f64>> = given.iter().flatten().map(|g| g[0].to_f64()).collect();
        assert_eq!(ok, [[12.0, 13.0], [34.0, 35.0]], "{what}");
        assert!(given[1].is_err() && given[3].is_err(), "{what}: {given:?}");
        let name = calls[3].0;
        for lost in &given[4..] {
            let why = format!("the states of this session were lost when a call of `{name}` failed: reset the session");
            assert_eq!(lost.as_ref().unwrap_err(), &why, "{what}");
        }
    }
}
