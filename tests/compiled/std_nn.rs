//! `std.nn`: do its layers give what their formulas say, with and without the arguments that have defaults; and what does an
//! argument cost that is left out?

use attnc::random::Random;
use attnc::shape::Elem;
use attnc::tensor::Tensor;

use crate::everywhere::{self, Everywhere};

fn tensor(shape: &[usize], seed: u64) -> Tensor {
    let mut random = Random::new(seed);
    let count: usize = shape.iter().product();
    let values: Vec<f32> = (0..count).map(|_| random.below(2001) as f32 / 1000.0 - 1.0).collect();
    Tensor::from_f32(shape.to_vec(), &values).unwrap()
}

fn truths(shape: &[usize], seed: u64) -> Tensor {
    let mut random = Random::new(seed);
    let count: usize = shape.iter().product();
    let values: Vec<i64> = (0..count).map(|_| i64::from(random.below(3) > 0)).collect();
    Tensor::from_ints(Elem::Bool, shape.to_vec(), &values).unwrap()
}

const D: usize = 6;
const H: usize = 2;

fn params() -> Vec<(&'static str, Tensor)> {
    vec![
        ("a.in_proj_weight", tensor(&[3 * D, D], 1)),
        ("a.in_proj_bias", tensor(&[3 * D], 2)),
        ("a.out_proj.weight", tensor(&[D, D], 3)),
        ("a.out_proj.bias", tensor(&[D], 4)),
    ]
}

/// `torch.nn.MultiheadAttention` in float64, for one sequence: `seen(i, j)` says whether query i sees key j.
fn attention(query: &[f64], memory: &[f64], seen: &dyn Fn(usize, usize) -> bool) -> Vec<f64> {
    let values: Vec<Vec<f64>> = params().iter().map(|(_, t)| t.to_f64()).collect();
    let affine = |x: &[f64], weight: &[f64], bias: &[f64]| -> Vec<f64> {
        let row = |x: &[f64], o: usize| bias[o] + x.iter().zip(&weight[o * D..]).map(|(x, w)| x * w).sum::<f64>();
        x.chunks(D).flat_map(|x| (0..D).map(move |o| row(x, o))).collect()
    };
    let part = |n: usize, x: &[f64]| affine(x, &values[0][n * D * D..], &values[1][n * D..]);
    let (q, k, v) = (part(0, query), part(1, memory), part(2, memory));
    let (s, t, e) = (query.len() / D, memory.len() / D, D / H);
    let mut out = vec![0.0; s * D];
    for h in 0..H {
        for i in 0..s {
            let score = |j: usize| -> f64 {
                let dot: f64 = (0..e).map(|c| q[i * D + h * e + c] * k[j * D + h * e + c]).sum();
                dot / (e as f64).sqrt()
            };
            let weights: Vec<f64> = (0..t).map(|j| if seen(i, j) { score(j).exp() } else { 0.0 }).collect();
            let sum: f64 = weights.iter().sum();
            for c in (0..e).filter(|_| sum > 0.0) {
                out[i * D + h * e + c] = (0..t).map(|j| weights[j] / sum * v[j * D + h * e + c]).sum();
            }
        }
    }
    affine(&out, &values[2], &values[3])
}

/// Attention to a memory, and of a sequence to itself: whatever is left out of mask and padding hides nothing.
#[test]
fn what_is_left_out_of_an_attention_hides_nothing() {
    let source = "use std.nn\nmodel M {\n    a: MultiHeadAttention<6, 2>\n    \
         pub fn all(x: f32[B, S, 6], m: f32[B, T, 6]) -> f32[B, S, 6] { a(x, m, m) }\n    \
         pub fn masked(x: f32[B, S, 6], m: f32[B, T, 6], mask: bool[B, S, T]) -> f32[B, S, 6] { a(x, m, m, mask) }\n    \
         pub fn padded(x: f32[B, S, 6], m: f32[B, T, 6], keep: bool[B, T]) -> f32[B, S, 6] { a(x, m, m, keep = keep) }\n    \
         pub fn both(x: f32[B, S, 6], m: f32[B, T, 6], mask: bool[S, T], keep: bool[B, T]) -> f32[B, S, 6] { a(x, m, m, mask, keep) }\n}\n";
    let program = Everywhere::of(source, &params());
    let own = source.replace("MultiHeadAttention", "SelfAttention").replace("a(x, m, m", "a(x");
    let own = own.replace(", m: f32[B, T, 6]", "").replace("T]", "S]");
    let of_itself = Everywhere::of(&own, &params());
    for own in [false, true] {
        let (mut calls, mut wanted) = (Vec::new(), Vec::new());
        for (b, s, t) in [(1, 1, 1), (2, 3, 5), (3, 7, 2), (2, 0, 4), (0, 3, 3), (1, 33, 33), (2, 3, 0)] {
            let t = if own { s } else { t };
            let (x, m) = (tensor(&[b, s, D], 5), tensor(&[b, t, D], 6));
            let (mask, keep, one) = (truths(&[b, s, t], 7), truths(&[b, t], 8), truths(&[s, t], 9));
            let (xs, ms) = (x.to_f64(), if own { x.to_f64() } else { m.to_f64() });
            let (masks, keeps, ones) = (mask.to_f64(), keep.to_f64(), one.to_f64());
            let want = |seen: &dyn Fn(usize, usize, usize) -> bool| {
                let part = |all: &[f64], n: usize, len: usize| all[n * len * D..][..len * D].to_vec();
                let each = |n: usize| attention(&part(&xs, n, s), &part(&ms, n, t), &|i, j| seen(n, i, j));
                Tensor::from_floats(Elem::F32, vec![b, s, D], &(0..b).flat_map(each).collect::<Vec<f64>>()).unwrap()
            };
            let expected = [
                ("all", vec![], want(&|_, _, _| true)),
                ("masked", vec![mask], want(&|n, i, j| masks[(n * s + i) * t + j] > 0.0)),
                ("padded", vec![keep.clone()], want(&|n, _, j| keeps[n * t + j] > 0.0)),
                ("both", vec![one, keep], want(&|n, i, j| ones[i * t + j] > 0.0 && keeps[n * t + j] > 0.0)),
            ];
            for (name, more, want) in expected {
                let inputs = if own { vec![x.clone()] } else { vec![x.clone(), m.clone()] };
                calls.push((name, inputs.into_iter().chain(more).collect()));
                wanted.push((format!("{name} {b} {s} {t} own: {own}"), want));
            }
        }
        let given = if own { &of_itself } else { &program }.calls(&calls);
        for ((what, want), got) in wanted.iter().zip(given) {
            everywhere::near(what, want, &got.unwrap()[0]);
        }
    }
}

/// Small integers, of which products and sums are exact in every float type.
fn whole(elem: Elem, shape: &[usize], seed: u64) -> Tensor {
    let mut random = Random::new(seed);
    let count: usize = shape.iter().product();
    let values: Vec<f64> = (0..count).map(|_| random.below(5) as f64 - 2.0).collect();
    Tensor::from_floats(elem, shape.to_vec(), &values).unwrap()
}

/// Layers of other element types than f32 give their formulas, in these types.
#[test]
fn layers_have_the_element_types_that_they_are_given() {
    for elem in [Elem::F32, Elem::BF16, Elem::F16] {
        let source = format!(
            "use std.nn\nlayer Both<I, O, T = f16> {{\n    up: Linear<I, O, T>\n    down: Conv1D<O, I, E = T>\n    \
             fn forward(x: T[.., I], factor: T) -> T[.., I] {{ down(relu(up(x))) * factor + full<T>(1, [I]) }}\n}}\n\
             model M<E = {elem}> {{\n    table: Embedding<7, 3, E>\n    layers: [Both<3, 5, E>; 2]\n    \
             pub fn f(tokens: i32[S], scale: E[3]) -> E[S, 3] {{\n        var x = table(tokens) * scale\n        \
             for layer in layers {{ x = cast<E>(layer(x, 1)) }}\n        x\n    }}\n}}\n"
        );
        let table = whole(elem, &[7, 3], 1);
        let mut params = vec![("table.weight".to_string(), table.clone())];
        for i in 0..2 {
            for (name, shape) in
                [("up.weight", [5, 3]), ("up.bias", [5, 0]), ("down.weight", [5, 3]), ("down.bias", [3, 0])]
            {
                let shape: Vec<usize> = shape.into_iter().filter(|n| *n > 0).collect();
                params.push((format!("layers.{i}.{name}"), whole(elem, &shape, 2 + params.len() as u64)));
            }
        }
        let given: Vec<(&str, Tensor)> = params.iter().map(|(name, x)| (name.as_str(), x.clone())).collect();
        let program = Everywhere::of(&source, &given);
        let values: Vec<Vec<f64>> = params.iter().map(|(_, x)| x.to_f64()).collect();
        let scale = whole(elem, &[3], 99);
        let calls: Vec<Vec<i64>> = vec![vec![], vec![6], vec![0, 3, 3, 5, 1]];
        let args =
            |tokens: &[i64]| vec![Tensor::from_ints(Elem::I32, vec![tokens.len()], tokens).unwrap(), scale.clone()];
        let given: Vec<(&str, Vec<Tensor>)> = calls.iter().map(|tokens| ("f", args(tokens))).collect();
        for (tokens, got) in calls.iter().zip(program.calls(&given)) {
            let row = |token: &i64| {
                let at = usize::try_from(*token).unwrap() * 3;
                let mut x: Vec<f64> = values[0][at..at + 3].iter().zip(scale.to_f64()).map(|(x, s)| x * s).collect();
                for layer in values[1..].chunks(4) {
                    let dot = |o: usize| (0..3).map(|i| x[i] * layer[0][o * 3 + i]).sum::<f64>() + layer[1][o];
                    let up: Vec<f64> = (0..5).map(|o| dot(o).max(0.0)).collect();
                    x = (0..3)
                        .map(|i| (0..5).map(|o| up[o] * layer[2][o * 3 + i]).sum::<f64>() + layer[3][i] + 1.0)
                        .collect();
                }
                x
            };
            let want: Vec<f64> = tokens.iter().flat_map(row).collect();
            let got = got.unwrap();
            assert_eq!((got[0].elem(), got[0].shape()), (elem, [tokens.len(), 3].as_slice()));
            // What is exact at first is rounded where it got large: to 8 bits of bf16 at each of four steps.
            for (want, got) in want.iter().zip(got[0].to_f64()) {
                assert!((want - got).abs() <= 0.02 * want.abs().max(16.0), "{elem}: {got}, not {want}");
            }
        }
    }
}

/// The optimised graph IR of a program, without the places in the source.
fn optimised(source: &str) -> String {
    let text = attnc::ir::text::print(&Everywhere::of(source, &params()).optimised);
    let lines = text.lines().map(|line| line.split(" loc(").next().unwrap_or("").trim_end());
    lines.filter(|line| !line.contains(".attn\"")).collect::<Vec<_>>().join("\n")
}

/// A layer whose mask and padding have defaults is, where both are left out, the layer that has neither; and where one is
/// given, the one that has only this.
#[test]
fn an_argument_that_is_left_out_costs_nothing() {
    let layer = |arguments: &str, weights: &str| {
        format!(
            "use std.nn\nlayer Own {{\n    in_proj_weight: f32[18, 6]\n    in_proj_bias:   f32[18]\n    out_proj: Linear<6, 6>\n    \
             fn forward(x: f32[.., S, 6]{arguments}) -> f32[.., S, 6] {{\n        \
             let (q, k, v) = unbind(rearrange(x @ in_proj_weight.T + in_proj_bias, \".. s (n h d) -> n .. h s d\", n = 3, h = 2))\n        \
             let weights = softmax({weights})\n        tap weights\n        \
             out_proj(rearrange(weights @ v, \".. h s d -> .. s (h d)\"))\n    }}\n}}\n"
        )
    };
    let hidden = |by: &str| format!("where({by}, q @ k.T / sqrt(6 / 2), -inf)");
    let cases = [
        ("", "", layer("", "q @ k.T / sqrt(6 / 2)")),
        (
            ", mask: bool[B, S, S]",
            ", mask",
            layer(", mask: bool[.., S, S]", &hidden("rearrange(mask, \".. s t -> .. 1 s t\")")),
        ),
        (
            ", mask: bool[B, S]",
            ", keep = mask",
            layer(", mask: bool[.., S]", &hidden("rearrange(mask, \".. t -> .. 1 1 t\")")),
        ),
    ];
    for (argument, passed, own) in cases {
        let model = |field: &str, passed: &str| {
            format!(
                "model M {{\n    a: {field}\n    pub fn f(x: f32[B, S, 6]{argument}) -> f32[B, S, 6] {{ a(x{passed}) }}\n}}\n"
            )
        };
        let given = if argument.is_empty() { "" } else { ", mask" };
        let wanted = optimised(&format!("{own}{}", model("Own", given)));
        let found = optimised(&format!("use std.nn\n{}", model("SelfAttention<6, 2>", passed)));
        assert_eq!(found, wanted, "{argument}");
    }
}
