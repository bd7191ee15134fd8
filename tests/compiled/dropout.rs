//! Does `random.dropout` draw what Philox gives for its counter, wherever a program runs: other numbers for each call, iteration,
//! element, step and seed; and the same again for the gradient?

use crate::everywhere::Everywhere;

use attnc::random::philox;
use attnc::shape::Elem;
use attnc::tensor::Tensor;

/// Is an element kept? The site is the number of the call, counting each iteration of a loop.
fn kept(seed: i64, at: i64, site: u64, position: u64, p: f32) -> bool {
    let counter = (site << 40) + position;
    let words = |n: u64| [n as u32, (n >> 32) as u32];
    let ([a, b], [c, d]) = (words(counter), words(at as u64));
    let first = philox([a, b, c, d], words(seed as u64))[0];
    (first >> 8) as f32 / (1u32 << 24) as f32 >= p
}

fn floats(shape: &[usize], values: &[f64]) -> Tensor {
    Tensor::from_floats(Elem::F32, shape.to_vec(), values).expect("a tensor")
}

fn number(n: i64) -> Tensor {
    Tensor::from_ints(Elem::I64, Vec::new(), &[n]).expect("a tensor")
}

/// Two calls, and the gradient of the second.
#[test]
fn each_element_is_drawn_by_its_counter() {
    let source = "use std.random
model M {
    pub fn f(x: f32[S, D], p: f32, seed: i64, at: i64) -> (f32[S, D], f32[S, D], f32[S, D]) {
        let a = random.dropout(x, p, seed, at)
        let b = random.dropout(x, p, seed, at)
        (a, b, grad(sum(b * b, axis = [0, 1]), x))
    }
}
";
    let program = Everywhere::of(source, &[]);
    for (rows, width, p, seed, at) in [
        (5, 7, 0.3f32, 3i64, 1i64),
        (1, 33, 0.5, -1, 1 << 33),
        (0, 4, 0.5, 0, 0),
        (3, 5, 0.0, i64::MIN, -7),
        (3, 5, 1.0, i64::MAX, 2),
    ] {
        let values: Vec<f64> = (0..rows * width).map(|i| f64::from(i as u32) - 3.5).collect();
        let x = floats(&[rows, width], &values);
        let got = program.call("f", &[x, floats(&[], &[f64::from(p)]), number(seed), number(at)]).expect("a call");
        for site in [0, 1] {
            let factor = |i: usize| if kept(seed, at, site, i as u64, p) { 1.0 / (1.0 - f64::from(p)) } else { 0.0 };
            let want: Vec<f64> =
                values.iter().enumerate().map(|(i, x)| if factor(i) > 0.0 { x * factor(i) } else { 0.0 }).collect();
            let near = |got: &[f64], want: &[f64]| got.iter().zip(want).all(|(x, y)| (x - y).abs() <= 1e-5 * y.abs());
            assert!(near(&got[site as usize].to_f64(), &want), "{p} {seed} {at}: {want:?}");
            if site == 1 {
                let want: Vec<f64> = want.iter().enumerate().map(|(i, y)| 2.0 * y * factor(i).min(1e9)).collect();
                assert!(near(&got[2].to_f64(), &want), "{p} {seed} {at}");
            }
        }
        if p == 0.0 || p == 1.0 {
            let want: Vec<f64> = values.iter().map(|x| x * f64::from(1.0 - p)).collect();
            assert!(got[0].to_f64().iter().zip(&want).all(|(x, y)| x == y));
        }
    }
}

/// A layer of an array draws its own numbers: in the loop over it, one alone, and in the gradient.
#[test]
fn each_layer_draws_its_own() {
    let source = "use std.random
layer Cell<D> {
    w: f32[D]
    fn forward(x: f32[S, D], seed: i64) -> f32[S, D] { random.dropout(x * w, 0.5, seed) }
}
model M<D = 9, L = 3> {
    h: [Cell<D>; L]
    pub fn inside(x: f32[S, D], seed: i64) -> (f32[S, D], f32[S, D], f32[D]) {
        var y = full<f32>(0, [S, D])
        for cell in h { y = 2 * y + cell(x, seed) }
        (y, h[1](x, seed), grad(sum(y, axis = [0, 1]), h[2].w))
    }
    pub fn around(x: f32[S, D], seed: i64) -> f32[S, D] {
        var y = full<f32>(0, [S, D])
        for cell in h { y = 2 * y + random.dropout(x * cell.w, 0.5, seed) }
        y
    }
    pub fn counted(x: f32[S, D], seed: i64) -> f32[S, D] {
        var y = full<f32>(0, [S, D])
        for i in 0..L { y = 2 * y + h[i](x, seed) }
        y
    }
}
";
    let one = floats(&[9], &[1.0; 9]);
    let program = Everywhere::of(source, &[("h.0.w", one.clone()), ("h.1.w", one.clone()), ("h.2.w", one)]);
    let (rows, width, seed) = (2u64, 9u64, 11);
    let x = floats(&[2, 9], &[1.0; 18]);
    let drawn = |site: u64, at: u64| if kept(seed, 0, site, at, 0.5) { 2.0 } else { 0.0 };
    let want: Vec<f64> = (0..rows * width).map(|at| 4.0 * drawn(0, at) + 2.0 * drawn(1, at) + drawn(2, at)).collect();
    for name in ["inside", "around", "counted"] {
        let got = program.call(name, &[x.clone(), number(seed)]).expect("a call");
        assert_eq!(got[0].to_f64(), want, "{name}");
        if name == "inside" {
            // The call of one layer comes after the three sites of the array.
            let alone: Vec<f64> = (0..rows * width).map(|at| drawn(3, at)).collect();
            assert_eq!(got[1].to_f64(), alone);
            let gradient: Vec<f64> = (0..width).map(|d| (0..rows).map(|s| drawn(2, s * width + d)).sum()).collect();
            assert_eq!(got[2].to_f64(), gradient);
        }
    }
}
