//! Tuples of layers and `Sequential`: do their layers find their weights by PyTorch's paths, and are they applied in turn?

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

/// Parameters by name, and what their layers compute, in float64.
struct Weights(Vec<(String, Tensor)>);

impl Weights {
    fn linear(&mut self, path: &str, (i, o): (usize, usize)) {
        let seed = self.0.len() as u64;
        self.0.push((format!("{path}.weight"), tensor(&[o, i], seed)));
        self.0.push((format!("{path}.bias"), tensor(&[o], seed + 100)));
    }

    fn scale(&mut self, path: &str, d: usize) {
        let seed = self.0.len() as u64;
        self.0.push((format!("{path}.weight"), tensor(&[d], seed)));
    }

    fn of(&self, name: String) -> Vec<f64> {
        self.0.iter().find(|(n, _)| *n == name).unwrap().1.to_f64()
    }

    /// Of rows, with as many columns as the weight has.
    fn apply_linear(&self, path: &str, x: &[f64]) -> Vec<f64> {
        let (weight, bias) = (self.of(format!("{path}.weight")), self.of(format!("{path}.bias")));
        let columns = weight.len() / bias.len();
        let row = |x: &[f64], o: usize| bias[o] + x.iter().zip(&weight[o * columns..]).map(|(x, w)| x * w).sum::<f64>();
        x.chunks(columns).flat_map(|x| (0..bias.len()).map(move |o| row(x, o))).collect()
    }

    /// `torch.nn.RMSNorm`
    fn apply_norm(&self, path: &str, x: &[f64]) -> Vec<f64> {
        let weight = self.of(format!("{path}.weight"));
        let each = |x: &[f64]| -> Vec<f64> {
            let size = (x.iter().map(|x| x * x).sum::<f64>() / x.len() as f64 + 1e-6).sqrt();
            x.iter().zip(&weight).map(|(x, w)| x / size * w).collect()
        };
        x.chunks(weight.len()).flat_map(each).collect()
    }

    fn apply_scale(&self, path: &str, x: &[f64]) -> Vec<f64> {
        let weight = self.of(format!("{path}.weight"));
        x.iter().enumerate().map(|(at, x)| x * weight[at % weight.len()]).collect()
    }
}

fn silu(x: Vec<f64>) -> Vec<f64> {
    x.into_iter().map(|x| x / (1.0 + (-x).exp())).collect()
}

fn tanh(x: Vec<f64>) -> Vec<f64> {
    x.into_iter().map(f64::tanh).collect()
}

const SOURCE: &str = r#"use std.nn

layer Scale<D> {
    weight: f32[D]
    fn forward(x: f32[.., D], by: f32 = 1) -> f32[.., D] {
        let y = x * weight * by
        tap y
        y
    }
}

/// An array of its own in each of an array.
layer Row<D> {
    cells: [Scale<D>; 3]
    fn forward(x: f32[S, D]) -> f32[S, D] {
        var y = x
        for cell in cells { y = cell(y) + x }
        y
    }
}

/// A list in a layer with generics of all kinds, in an array.
layer Block<D, F, eps = 1e-6, E = f32> where D % 3 == 0 {
    net: Sequential<
        RMSNorm<D, eps = eps, E = E>,
        Sequential<Linear<D, F, E>, nn.SiLU<E>>,
        Linear<F, 2 * D / 3 + D / 3, E>
    >
    fn forward(x: E[.., D]) -> E[.., D] { x + net(x) }
}

model M<D = 3, F = 5, L = 2> where D % 3 == 0 {
    blocks: [Block<D, F>; L]
    pair:   (Scale<D>, Linear<D, D>)
    both:   [(Scale<D>, (Linear<D, F>, Linear<F, D>)); L]
    out:    Sequential<Scale<D>, Tanh>
    rows:   [Row<D>; 2]

    pub fn turn(x: f32[S, D]) -> f32[S, D] {
        var y = x
        for block in blocks { y = block(y) }
        y
    }
    pub fn parts(x: f32[B, S, D]) -> f32[B, S, D] { pair[1](pair.0(x)) + pair.1.bias }
    pub fn each(x: f32[S, D]) -> f32[S, D] {
        var y = x
        for layer in pair { y = layer(y) + x }
        for (i, layer) in enumerate(pair) { y = layer(y) * (i + 2) }
        y
    }
    pub fn nested(x: f32[S, D]) -> f32[S, D] {
        var y = x
        for (scale, n) in enumerate(both) { y = n.1.1(n.1.0(n.0(y, by = 2))) + cast<f32>(scale) }
        for i in 0..L { y = both[i].0(y) }
        y
    }
    pub fn all_rows(x: f32[S, D]) -> f32[S, D] {
        var y = x
        for row in rows { y = row(y) }
        y + rows[1].cells[0](x)
    }
    pub fn first_takes_two(x: f32[S, D]) -> f32[S, D] { out.forward(x, by = 3) }
}
"#;

fn weights() -> Weights {
    let mut weights = Weights(Vec::new());
    for i in 0..2 {
        weights.scale(&format!("blocks.{i}.net.0"), 3);
        weights.linear(&format!("blocks.{i}.net.1.0"), (3, 5));
        weights.linear(&format!("blocks.{i}.net.2"), (5, 3));
        weights.scale(&format!("both.{i}.0"), 3);
        weights.linear(&format!("both.{i}.1.0"), (3, 5));
        weights.linear(&format!("both.{i}.1.1"), (5, 3));
    }
    weights.scale("pair.0", 3);
    weights.linear("pair.1", (3, 3));
    weights.scale("out.0", 3);
    for i in 0..6 {
        weights.scale(&format!("rows.{}.cells.{}", i / 3, i % 3), 3);
    }
    weights
}

#[test]
fn layers_of_different_types_are_found_and_applied_in_turn() {
    let w = weights();
    let given: Vec<(&str, Tensor)> = w.0.iter().map(|(name, x)| (name.as_str(), x.clone())).collect();
    let program = Everywhere::of(SOURCE, &given);
    let sum = |a: Vec<f64>, b: &[f64]| -> Vec<f64> { a.iter().zip(b.iter().cycle()).map(|(a, b)| a + b).collect() };
    let (mut calls, mut wanted) = (Vec::new(), Vec::new());
    for rows in [0, 1, 7] {
        let x = tensor(&[rows, 3], 50);
        let xs = x.to_f64();
        let turn = (0..2).fold(xs.clone(), |y, i| {
            let at = |n: &str| format!("blocks.{i}.net.{n}");
            let inner = silu(w.apply_linear(&at("1.0"), &w.apply_norm(&at("0"), &y)));
            sum(w.apply_linear(&at("2"), &inner), &y)
        });
        let parts = sum(w.apply_linear("pair.1", &w.apply_scale("pair.0", &xs)), &w.of("pair.1.bias".into()));
        let y = sum(w.apply_scale("pair.0", &xs), &xs);
        let y = sum(w.apply_linear("pair.1", &y), &xs);
        let y: Vec<f64> = w.apply_scale("pair.0", &y).iter().map(|y| y * 2.0).collect();
        let each: Vec<f64> = w.apply_linear("pair.1", &y).iter().map(|y| y * 3.0).collect();
        let nested = (0..2).fold(xs.clone(), |y, i| {
            let y: Vec<f64> = w.apply_scale(&format!("both.{i}.0"), &y).iter().map(|y| y * 2.0).collect();
            let y = w.apply_linear(&format!("both.{i}.1.1"), &w.apply_linear(&format!("both.{i}.1.0"), &y));
            y.iter().map(|y| y + i as f64).collect()
        });
        let nested = (0..2).fold(nested, |y, i| w.apply_scale(&format!("both.{i}.0"), &y));
        let two = tanh(w.apply_scale("out.0", &xs).iter().map(|y| y * 3.0).collect());
        let cell = |at: [usize; 2], y: &[f64]| w.apply_scale(&format!("rows.{}.cells.{}", at[0], at[1]), y);
        let all = (0..2).fold(xs.clone(), |x, i| (0..3).fold(x.clone(), |y, j| sum(cell([i, j], &y), &x)));
        let all = sum(all, &cell([1, 0], &xs));
        let each_call =
            [("turn", turn), ("each", each), ("nested", nested), ("first_takes_two", two), ("all_rows", all)];
        for (name, want) in each_call {
            calls.push((name, vec![x.clone()]));
            wanted.push((format!("{name} {rows}"), Tensor::from_floats(Elem::F32, vec![rows, 3], &want).unwrap()));
        }
        let one = Tensor::from_floats(Elem::F32, vec![1, rows, 3], &xs).unwrap();
        calls.push(("parts", vec![one]));
        wanted.push((format!("parts {rows}"), Tensor::from_floats(Elem::F32, vec![1, rows, 3], &parts).unwrap()));
    }
    for ((what, want), got) in wanted.iter().zip(program.calls(&calls)) {
        everywhere::near(what, want, &got.unwrap()[0]);
    }
}

/// Taps of layers in tuples are named by their paths.
#[test]
fn taps_are_named_by_the_path_of_the_layer() {
    let module = crate::front::module("m.attn", SOURCE, &Default::default()).unwrap();
    let taps: Vec<String> =
        module.functions.iter().flat_map(|f| attnc::ir::taps(f).into_iter().map(|tap| tap.name)).collect();
    for path in ["pair.0.y", "both.*.0.y", "out.0.y", "rows.*.cells.*.y"] {
        assert!(taps.iter().any(|tap| tap == path), "{path} is not in {taps:?}");
    }
}
