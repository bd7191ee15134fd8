//! Compiled gradients of whole models, from programs: a transformer's and a recurrent network's, wherever programs run, against
//! those of single numbers on a tape.

use attnc::ir::interp::{Call, Data, Limits, run};
use attnc::ir::verify;
use attnc::lowering::graph::Options;
use attnc::random::Random;
use attnc::shape::Elem;
use attnc::tensor::Tensor;

use crate::compiled;
use crate::everywhere::Everywhere;
use crate::front;
use crate::tape::{self, Tape};

/// Gradients are sums of many terms in `f32`, in other orders.
const NEAR: f64 = 2e-4;

fn tensor(random: &mut Random, shape: &[usize]) -> Tensor {
    let count: usize = shape.iter().product();
    let values: Vec<f64> = (0..count).map(|_| (random.below(2001) as f64 - 1000.0) / 1500.0).collect();
    Tensor::from_floats(Elem::F32, shape.to_vec(), &values).expect("a tensor")
}

/// Compares all results of `f`, loss and gradients; returns how many numbers these are.
fn agree(source: &str, args: &[Tensor]) -> usize {
    let written = front::module("m.attn", source, &Options::default()).unwrap_or_else(|e| panic!("{e}"));
    let mut random = Random::new(3);
    let mut params: Vec<(String, Tensor)> = Vec::new();
    for p in &written.params {
        let shape: Vec<usize> = p.ty.shape.iter().map(|d| d.as_const().expect("a number") as usize).collect();
        let of = |n: u64| if p.counts.is_empty() { p.name.clone() } else { p.name.replace('*', &n.to_string()) };
        let members = p.counts.first().copied().unwrap_or(1);
        params.extend((0..members).map(|n| (of(n), tensor(&mut random, &shape))));
    }
    let by_name = params.iter().cloned().collect::<std::collections::BTreeMap<String, Tensor>>();
    tape::clear();
    let call = Call { function: "f", args, params: &by_name, limits: Limits::default() };
    let meant = run::<Tape>(verify(&written).expect("a module"), &call).expect("a result");
    tape::clear();

    let named: Vec<(&str, Tensor)> = params.iter().map(|(name, x)| (name.as_str(), x.clone())).collect();
    let found = Everywhere::of_module(written, &named).within(NEAR).call("f", args).expect("a result");
    let mut count = 0;
    for (n, (meant, found)) in meant.results.iter().zip(&found).enumerate() {
        let Data::Float(meant) = &meant.data else { panic!("floats") };
        let greatest = meant.iter().fold(0.0f64, |m, x| m.max(x.value.abs()));
        assert!(greatest > 1e-6 || args.iter().any(|x| x.shape().contains(&1)), "result {n} is zero");
        for (i, (a, b)) in meant.iter().zip(found.to_f64()).enumerate() {
            assert!(
                (a.value - b).abs() <= NEAR * greatest.max(0.1),
                "result {n}, element {i}: {b}, expected {}",
                a.value
            );
            count += 1;
        }
    }
    count
}

#[test]
fn a_transformer() {
    let source = "use std.nn

layer Block<D, H> {
    norm: LayerNorm<D>
    qkv: Linear<D, 3 * D>
    out: Linear<D, D>
    norm2: LayerNorm<D>
    up: Linear<D, 2 * D>
    down: Linear<2 * D, D>
    fn forward(x: f32[B, S, D]) -> f32[B, S, D] where D % H == 0 {
        let (q, k, v) = split(qkv(norm(x)), axis = -1, parts = 3)
        let q = rearrange(q, \"b s (h d) -> b h s d\", h = H)
        let k = rearrange(k, \"b s (h d) -> b h s d\", h = H)
        let v = rearrange(v, \"b s (h d) -> b h s d\", h = H)
        let p = softmax(where(causal(S, S), q @ k.T / sqrt(D / H), -inf))
        let y = x + out(rearrange(p @ v, \"b h s d -> b s (h d)\"))
        y + down(gelu_tanh(up(norm2(y))))
    }
}

model Gpt<D = 8, H = 2, L = 2, V = 11, T = 6> where D % H == 0 {
    wte: f32[V, D]
    wpe: f32[T, D]
    h: [Block<D, H>; L]
    ln: LayerNorm<D>

    fn loss(tokens: i32[B, S], next: i32[B, S]) -> f32 where S <= T {
        var x = wte[tokens] + wpe[0..S]
        for b in h { x = b(x) }
        let logits = ln(x) @ wte.T
        -mean(take_along(log_softmax(logits), rearrange(next, \"b s -> b s 1\")), axis = [0, 1, 2])
    }

    pub fn f(tokens: i32[B, S], next: i32[B, S]) -> (f32, f32[V, D], f32[T, D], f32[3 * D, D], f32[2 * D], f32[D]) where S <= T {
        let l = loss(tokens, next)
        let (a, b) = grad(l, (wte, wpe))
        (l, a, b, grad(l, h[0].qkv.weight), grad(l, h[1].up.bias), grad(l, h[1].norm2.weight))
    }
}
";
    let mut random = Random::new(5);
    let mut tokens = || {
        let values: Vec<i64> = (0..10).map(|_| random.below(11) as i64).collect();
        Tensor::from_ints(Elem::I32, vec![2, 5], &values).expect("a tensor")
    };
    let args = [tokens(), tokens()];
    assert!(agree(source, &args) > 300);
}

#[test]
fn a_recurrent_network_over_time() {
    let source = "use std.nn

model Lstm<D = 3, H = 4> {
    cell: LSTMCell<D, H>
    out: Linear<H, D>

    pub fn f(x: f32[S, B, D]) -> (f32, f32[4 * H, H], f32[4 * H, D], f32[D], f32[S, B, D]) {
        var h = full<f32>(0, [B, H])
        var c = full<f32>(0, [B, H])
        var loss = full<f32>(0, [])
        for t in 0..S {
            (h, c) = cell(x[t], h, c)
            let difference = out(h) - x[t]
            loss = loss + mean(difference * difference, axis = [0, 1])
        }
        let (a, b) = grad(loss, (cell.weight_hh, cell.weight_ih))
        (loss, a, b, grad(loss, out.bias), grad(loss, x))
    }
}
";
    let x = tensor(&mut Random::new(9), &[5, 2, 3]);
    assert!(agree(source, &[x]) > 100);
}

/// The gradients of queries, keys and values are computed tile by tile, by kernels that `fuse-chain` makes.
#[test]
fn attention_tile_by_tile() {
    let plain = "f32[H, S, 4]";
    let cases = [
        // Scores, the output, types of queries and of keys and values, chains.
        ("q @ k.T / 2", "softmax(s) @ v", plain, "f32[H, T, 4]", 5),
        ("where(causal(S, T), q @ k.T * 0.7, -inf)", "softmax(s) @ v", plain, "f32[H, T, 4]", 5),
        ("where(m, q @ k.T, -inf)", "softmax(s) @ v", plain, "f32[H, T, 4]", 5),
        ("where(m, 2 * tanh(q @ k.T / 2) + b, -1e9)", "softmax(s) @ v", plain, "f32[H, T, 4]", 5),
        ("q @ k.T + b", "softmax(s) @ v", "f32[H, 3, S, 4]", "f32[H, 1, T, 4]", 5),
        ("q @ k.T", "softmax(s) @ v", "f32[S, 4]", "f32[T, 4]", 5),
        // The output needs the product of weights and `b`, which is not fused attention: they are stored for it.
        ("q @ k.T", "(softmax(s) * b) @ v", plain, "f32[H, T, 4]", 0),
    ];
    let mut random = Random::new(11);
    for (scores, output, queries, keys, chains) in cases {
        let axes: Vec<usize> = (0..queries.matches(", ").count() + 1).collect();
        let source = format!(
            "model M {{
    pub fn f(q: {queries}, k: {keys}, v: {keys}, w: {queries}, b: f32[S, T], m: bool[S, T]) -> (f32, {queries}, {keys}, {keys}) {{
        let s = {scores}
        let y = {output}
        let loss = sum(y * w, axis = {axes:?})
        let (dq, dk, dv) = grad(loss, (q, k, v))
        (loss, dq, dk, dv)
    }}
}}
"
        );
        let module = front::module("m.attn", &source, &Options::default()).unwrap_or_else(|e| panic!("{e}"));
        let optimised = attnc::ir::text::print(&compiled::optimised(module, &Default::default()));
        assert_eq!(optimised.matches("fused chain").count(), chains, "{scores}: {optimised}");
        for [h, s, t] in [[2, 5, 7], [1, 37, 33], [1, 1, 1], [1, 3, 131]] {
            let of = |text: &str| -> Vec<usize> {
                let inner = text.trim_start_matches("f32[").trim_end_matches(']');
                let number = |d: &str| match d {
                    "H" => h,
                    "S" => s,
                    "T" => t,
                    d => d.parse().expect("a number"),
                };
                inner.split(", ").map(number).collect()
            };
            // The first rows see nothing.
            let mask: Vec<i64> = (0..s * t).map(|i| i64::from(i >= t && random.below(3) > 0)).collect();
            let args = [
                tensor(&mut random, &of(queries)),
                tensor(&mut random, &of(keys)),
                tensor(&mut random, &of(keys)),
                tensor(&mut random, &of(queries)),
                tensor(&mut random, &[s, t]),
                Tensor::from_ints(Elem::Bool, vec![s, t], &mask).expect("a tensor"),
            ];
            agree(&source, &args);
        }
    }
}
