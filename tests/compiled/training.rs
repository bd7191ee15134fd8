//! Does `train` do what its rules say, wherever programs run? Ten steps of each rule of `std.optim` against the same steps
//! written by hand in `f64`; layers in an array against layers of their own; a parameter that is trained in one entry point and
//! read in another; a step in a loop.

use crate::everywhere::Everywhere;

use attnc::random::Random;
use attnc::shape::Elem;
use attnc::tensor::Tensor;

/// Sums in `f32`, over ten steps.
const NEAR: f64 = 1e-4;
const STEPS: usize = 10;

fn tensor(shape: &[usize], seed: u64) -> Tensor {
    let mut random = Random::new(seed);
    let count: usize = shape.iter().product();
    let values: Vec<f64> = (0..count).map(|_| (random.below(2001) as f64 - 1000.0) / 1000.0).collect();
    Tensor::from_floats(Elem::F32, shape.to_vec(), &values).expect("a tensor")
}

fn far(a: &[f64], b: &[f64]) -> f64 {
    assert_eq!(a.len(), b.len());
    let greatest = a.iter().fold(1e-3f64, |m, x| m.max(x.abs()));
    a.iter().zip(b).fold(0.0f64, |m, (x, y)| m.max((x - y).abs())) / greatest
}

/// A linear map of `I` numbers to `O`, learnt from `S` pairs.
const PROGRAM: &str = "use std.optim
model Line<I = 6, O = 4> {
    w: f32[I, O]
    b: f32[O]
    state at: i64
    fn loss(x: f32[S, I], y: f32[S, O]) -> f32 {
        let d = x @ w + b - y
        mean(d * d, axis = [0, 1])
    }
    pub fn learn(x: f32[S, I], y: f32[S, O]) -> (f32, f32) {
        at = at + 1
        let value = loss(x, y)
        let norm = train value SETTINGS {
            ARMS
        }
        (value, norm)
    }
    pub fn now() -> (f32[I, O], f32[O]) { (w, b) }
}
";
const I: usize = 6;
const O: usize = 4;

/// The loss, and its gradients with respect to `w` and `b`.
fn gradients(x: &[f64], y: &[f64], w: &[f64], b: &[f64]) -> (f64, [Vec<f64>; 2]) {
    let rows = x.len() / I;
    let (mut loss, mut gw, mut gb) = (0.0, vec![0.0; I * O], vec![0.0; O]);
    let n = (rows * O) as f64;
    for s in 0..rows {
        for o in 0..O {
            let d = (0..I).map(|i| x[s * I + i] * w[i * O + o]).sum::<f64>() + b[o] - y[s * O + o];
            loss += d * d / n;
            gb[o] += 2.0 * d / n;
            (0..I).for_each(|i| gw[i * O + o] += 2.0 * d * x[s * I + i] / n);
        }
    }
    (loss, [gw, gb])
}

/// A rule for a parameter, with its own states: parameter, gradient, number of the step.
type Rule = Box<dyn FnMut(&mut [f64], &[f64], i32)>;

/// Runs a program for ten steps, and the same rules by hand.
fn learns(settings: &str, arms: &str, clip: impl Fn(f64, f64) -> f64, mut rules: [Rule; 2]) {
    let (x, y) = (tensor(&[5, I], 1), tensor(&[5, O], 2));
    let params = [("w", tensor(&[I, O], 3)), ("b", tensor(&[O], 4))];
    let source = PROGRAM.replace(" SETTINGS", settings).replace("ARMS", arms);
    let mut calls = vec![("learn", vec![x.clone(), y.clone()]); STEPS];
    calls.push(("now", Vec::new()));
    let given = Everywhere::of(&source, &params).within(NEAR).calls(&calls);
    let [mut w, mut b] = params.map(|(_, p)| p.to_f64());
    for (at, given) in given[..STEPS].iter().enumerate() {
        let (loss, parts) = gradients(&x.to_f64(), &y.to_f64(), &w, &b);
        let trained = if arms.contains("Fixed") { 1 } else { 2 };
        let norm = parts.iter().take(trained).flatten().map(|g| g * g).sum::<f64>().sqrt();
        let given = given.as_ref().expect("a step");
        assert!(far(&[loss, norm], &[given[0].to_f64()[0], given[1].to_f64()[0]]) < NEAR, "{arms}, step {at}");
        for ((p, g), rule) in [&mut w, &mut b].into_iter().zip(parts).zip(&mut rules) {
            let g: Vec<f64> = g.iter().map(|g| clip(*g, norm)).collect();
            rule(p, &g, at as i32 + 1);
        }
    }
    let now = given[STEPS].as_ref().expect("the parameters");
    assert!(far(&w, &now[0].to_f64()) < NEAR, "{arms}: {w:?}, {:?}", now[0].to_f64());
    assert!(far(&b, &now[1].to_f64()) < NEAR, "{arms}: {b:?}, {:?}", now[1].to_f64());
}

fn sgd(rate: f64, decay: f64) -> Rule {
    Box::new(move |p, g, _| p.iter_mut().zip(g).for_each(|(p, g)| *p -= rate * (g + decay * *p)))
}

fn momentum(rate: f64, momentum: f64) -> Rule {
    let mut m = Vec::new();
    Box::new(move |p, g, _| {
        m.resize(p.len(), 0.0);
        for ((p, g), m) in p.iter_mut().zip(g).zip(&mut m) {
            *m = momentum * *m + g;
            *p -= rate * *m;
        }
    })
}

fn adam(rate: f64, decay: f64, [b1, b2]: [f64; 2]) -> Rule {
    let (mut m, mut v) = (Vec::new(), Vec::new());
    Box::new(move |p, g, at| {
        m.resize(p.len(), 0.0);
        v.resize(p.len(), 0.0);
        for (k, (p, g)) in p.iter_mut().zip(g).enumerate() {
            m[k] = b1 * m[k] + (1.0 - b1) * g;
            v[k] = b2 * v[k] + (1.0 - b2) * g * g;
            let (m, v): (f64, f64) = (m[k] / (1.0 - b1.powi(at)), v[k] / (1.0 - b2.powi(at)));
            *p = *p * (1.0 - rate * decay) - rate * m / (v.sqrt() + 1e-8);
        }
    })
}

/// `a` of `n` columns by `b` of `k` columns.
fn product(a: &[f64], b: &[f64], n: usize, k: usize) -> Vec<f64> {
    let cell = |i: usize, j: usize| (0..n).map(|l| a[i * n + l] * b[l * k + j]).sum();
    (0..a.len() / n).flat_map(|i| (0..k).map(move |j| (i, j))).map(|(i, j)| cell(i, j)).collect()
}

fn muon(rate: f64, momentum: f64, decay: f64) -> Rule {
    let mut m = [0.0; I * O];
    Box::new(move |p, g, _| {
        m.iter_mut().zip(g).for_each(|(m, g)| *m = momentum * *m + (1.0 - momentum) * g);
        let u: Vec<f64> = m.iter().zip(g).map(|(m, g)| momentum * m + (1.0 - momentum) * g).collect();
        let norm = u.iter().map(|x| x * x).sum::<f64>().sqrt();
        let mut y: Vec<f64> = u.iter().map(|x| x / (norm + 1e-7)).collect();
        for _ in 0..5 {
            // As the paper writes it for tall matrices, from the right.
            let t: Vec<f64> = (0..O).flat_map(|o| (0..I).map(move |i| (i, o))).map(|(i, o)| y[i * O + o]).collect();
            let a = product(&t, &y, I, O);
            let square = product(&a, &a, O, O);
            let b: Vec<f64> = a.iter().zip(&square).map(|(a, s)| -4.775 * a + 2.0315 * s).collect();
            y = y.iter().zip(product(&y, &b, O, O)).map(|(y, z)| 3.4445 * y + z).collect();
        }
        let scale = rate * (I as f64 / O as f64).max(1.0).sqrt();
        p.iter_mut().zip(y).for_each(|(p, y)| *p = *p * (1.0 - rate * decay) - scale * y);
    })
}

fn adafactor(rate: f64) -> Rule {
    let (mut rows, mut columns) = (vec![0.0; I], vec![0.0; O]);
    let size = |x: &[f64]| (x.iter().map(|x| x * x).sum::<f64>() / x.len() as f64).sqrt();
    Box::new(move |p, g, at| {
        let b = f64::from(at).powf(-0.8);
        for (i, row) in rows.iter_mut().enumerate() {
            *row = (1.0 - b) * *row + b * (0..O).map(|o| g[i * O + o] * g[i * O + o]).sum::<f64>() / O as f64;
        }
        for (o, column) in columns.iter_mut().enumerate() {
            *column = (1.0 - b) * *column + b * (0..I).map(|i| g[i * O + o] * g[i * O + o]).sum::<f64>() / I as f64;
        }
        let mean = rows.iter().sum::<f64>() / I as f64;
        let u: Vec<f64> = (0..I * O).map(|k| g[k] / (rows[k / O] * columns[k % O] / mean).sqrt()).collect();
        let length = rate.min(1.0 / f64::from(at).sqrt()) * size(p).max(1e-3) / size(&u).max(1.0);
        p.iter_mut().zip(u).for_each(|(p, u)| *p -= length * u);
    })
}

fn as_it_is(g: f64, _: f64) -> f64 {
    g
}

#[test]
fn each_rule_takes_its_steps() {
    learns("", "\"*\": SGD(rate = 0.1, decay = 0.01)", as_it_is, [sgd(0.1, 0.01), sgd(0.1, 0.01)]);
    learns("", "\"*\": Momentum(rate = 0.05)", as_it_is, [momentum(0.05, 0.9), momentum(0.05, 0.9)]);
    let betas = [0.9, 0.999];
    learns("", "\"*\": Adam(at, rate = 0.02)", as_it_is, [adam(0.02, 0.0, betas), adam(0.02, 0.0, betas)]);
    let arms = "\"w\": AdamW(at, rate = 0.02, b2 = 0.98, decay = 0.1)\n\"b\": AdamW(at, 0.01)";
    learns("", arms, as_it_is, [adam(0.02, 0.1, [0.9, 0.98]), adam(0.01, 0.01, betas)]);
    let arms = "\"*\" where rank == 2: Muon(rate = 0.02); \"*\": optim.SGD(0.1)";
    learns("", arms, as_it_is, [muon(0.02, 0.95, 0.1), sgd(0.1, 0.0)]);
    let arms = "\"*\" where rank >= 2, rank < 3: Adafactor(at, rate = 0.05), \"*\": Fixed";
    learns("", arms, as_it_is, [adafactor(0.05), sgd(0.0, 0.0)]);
}

/// The norm is that of the whole gradient, before it is clipped; `Fixed` parameters are not part of it.
#[test]
fn gradients_are_clipped() {
    let by_norm = |g: f64, norm: f64| g * (0.3 / (norm + 1e-6)).min(1.0);
    learns(", clip = 0.3", "\"*\": SGD(rate = 0.2)", by_norm, [sgd(0.2, 0.0), sgd(0.2, 0.0)]);
    let by_value = |g: f64, _: f64| g.clamp(-0.1, 0.1);
    learns(", clip_value = 0.1", "\"*\": SGD(rate = 0.2)", by_value, [sgd(0.2, 0.0), sgd(0.2, 0.0)]);
    learns(", clip = 1000", "\"*\": SGD(rate = 0.2)", as_it_is, [sgd(0.2, 0.0), sgd(0.2, 0.0)]);
}

const LAYERS: &str = "use std.optim
layer Cell<D> {
    weight: f32[D, D]
    bias: f32[D]
    fn forward(x: f32[S, D]) -> f32[S, D] { x + tanh(x @ weight + bias) }
}
layer Two<D> {
    a: Cell<D>
    fn forward(x: f32[S, D]) -> f32[S, D] { a(x) }
}
model M<D = 3, L = 4> {
    FIELDS
    state at: i64
    fn loss(x: f32[S, D]) -> f32 {
        var y = x
        CALLS
        mean(y * y, axis = [0, 1])
    }
    pub fn learn(x: f32[S, D]) -> (f32, f32) {
        at = at + 1
        let value = loss(x)
        let norm = train value, clip = 0.5 {
            \"*.weight\": Momentum(rate = 0.05)
            \"*\": AdamW(at, rate = 0.01)
        }
        (value, norm)
    }
    pub fn many(x: f32[N, S, D]) -> f32[N] {
        var out = full<f32>(0, [N])
        for i in 0..N {
            let (value, _) = learn(x[i])
            out[i] = value
        }
        out
    }
    pub fn after(x: f32[S, D]) -> f32 { loss(x) }
}
";

fn stacked(fields: &str, calls: &str, name: impl Fn(usize) -> String) -> Everywhere {
    let mut params = Vec::new();
    for n in 0..4 {
        params.push((format!("{}.weight", name(n)), tensor(&[3, 3], 10 + n as u64)));
        params.push((format!("{}.bias", name(n)), tensor(&[3], 20 + n as u64)));
    }
    let params: Vec<(&str, Tensor)> = params.iter().map(|(n, x)| (n.as_str(), x.clone())).collect();
    let source = LAYERS.replace("FIELDS", fields).replace("CALLS", calls);
    Everywhere::of(&source, &params).within(NEAR)
}

/// An array of layers is trained in a loop, as if each layer stood alone; so is an array in an array. Several steps in one call
/// are the same steps one by one, and an entry point that does not train reads what another has learnt.
#[test]
fn layers_of_an_array_are_trained_each() {
    let alone =
        stacked("h0: Cell<D>\nh1: Cell<D>\nh2: Cell<D>\nh3: Cell<D>", "y = h3(h2(h1(h0(y))))", |n| format!("h{n}"));
    let array = stacked("h: [Cell<D>; L]", "for cell in h { y = cell(y) }", |n| format!("h.{n}"));
    let x = tensor(&[2, 3], 5);
    let mut calls = vec![("learn", vec![x.clone()]); 6];
    calls.push(("after", vec![x.clone()]));
    let numbers = |given: &[Result<Vec<Tensor>, String>]| -> Vec<f64> {
        given.iter().flat_map(|g| g.as_ref().expect("a call").iter().flat_map(Tensor::to_f64)).collect()
    };
    let meant = numbers(&alone.calls(&calls));
    assert!(meant[12] < meant[0], "{meant:?}");
    assert!(far(&meant, &numbers(&array.calls(&calls))) < NEAR);
    let all = Tensor::from_floats(Elem::F32, vec![6, 2, 3], &x.to_f64().repeat(6)).expect("a tensor");
    // A layer before the array, whose parameters come first.
    let calls = "y = first(y)\nfor cell in h { y = cell(y) }";
    let mixed = stacked("first: Cell<D>\nh: [Cell<D>; L-1]", calls, |n| match n {
        0 => "first".to_string(),
        _ => format!("h.{}", n - 1),
    });
    for program in [&alone, &array, &mixed] {
        let given = numbers(&program.calls(&[("many", vec![all.clone()]), ("after", vec![x.clone()])]));
        let losses: Vec<f64> = meant.iter().copied().take(12).step_by(2).chain([meant[12]]).collect();
        assert!(far(&losses, &given) < NEAR, "{losses:?}\n{given:?}");
    }
}

/// The gradients of layers of an array are written into their places: no pass of the loop adds tensors of all layers.
#[test]
fn no_loop_adds_gradients_of_all_layers() {
    let array = stacked("h: [Cell<D>; L]", "for cell in h { y = cell(y) }", |n| format!("h.{n}"));
    let text = attnc::ir::text::print(&array.optimised);
    let learn = text.split("func ").find(|f| f.starts_with("@learn")).expect("the entry point");
    let adds = learn.lines().filter(|line| line.contains(" = add ") && line.trim_end().ends_with("f32[4, 3, 3]"));
    assert_eq!(adds.count(), 0, "{learn}");
}
