//! Layers by index, and slices of each so-manieth element: do they give what their formulas say?

use attnc::shape::Elem;
use attnc::tensor::Tensor;

use crate::everywhere::{self, Everywhere};

fn numbers(shape: &[usize]) -> Tensor {
    let count: usize = shape.iter().product();
    Tensor::from_f32(shape.to_vec(), &(0..count).map(|n| n as f32 * 0.5 - 3.0).collect::<Vec<f32>>()).unwrap()
}

/// Three layers, each `x * weight + bias`, chosen by the counter of a loop, by a number, and counted.
#[test]
fn layers_are_chosen_by_the_counter_of_a_loop() {
    let source = "layer Affine<D> {\n    weight: f32[D]\n    bias: f32[D]\n    fn forward(x: f32[.., D]) -> f32[.., D] { x * weight + bias }\n}\n\
                  model M<D = 2, L = 3> {\n    a: [Affine<D>; L]\n    b: [Affine<D>; L]\n    \
                  pub fn pairs(x: f32[S, D]) -> f32[S, D] {\n        var y = x\n        \
                  for i in 0..L { y = b[i](a[i](y)) + a[i].weight }\n        y\n    }\n    \
                  pub fn some(x: f32[S, D]) -> f32[S, D] {\n        var y = x\n        \
                  for i in 1..L { y = a[i](y) - a[0](y) }\n        y\n    }\n    \
                  pub fn counted(x: f32[S, D]) -> f32[S, D] {\n        var y = x\n        \
                  for (i, layer) in enumerate(a) { y = layer(y) * cast<f32>(i + 1) + b[i](y) }\n        \
                  for (_, layer) in enumerate(b) { y = layer(y) }\n        \
                  for (i, _) in enumerate(b) { y = y + cast<f32>(i) }\n        y\n    }\n    \
                  pub fn stacked(x: f32[S, D]) -> f32[L, S, D] {\n        var out = full<f32>(0, [L, S, D])\n        \
                  for (i, layer) in enumerate(a) { out[i] = layer(x) }\n        out\n    }\n}\n";
    let mut params = Vec::new();
    for (n, name) in ["a", "b"].iter().enumerate() {
        for i in 0..3 {
            let value = |k: usize| [0.5, -1.0, 2.0, 0.25, 1.5, -0.75][(n * 7 + i * 2 + k) % 6];
            params.push((format!("{name}.{i}.weight"), vec![value(0), value(1)]));
            params.push((format!("{name}.{i}.bias"), vec![value(2), value(3)]));
        }
    }
    let tensors: Vec<(String, Tensor)> = params
        .iter()
        .map(|(name, values)| (name.clone(), Tensor::from_floats(Elem::F32, vec![2], values).unwrap()))
        .collect();
    let given: Vec<(&str, Tensor)> = tensors.iter().map(|(name, x)| (name.as_str(), x.clone())).collect();
    let program = Everywhere::of(source, &given);
    let part = |name: &str, i: usize, what: &str, c: usize| {
        params.iter().find(|(n, _)| *n == format!("{name}.{i}.{what}")).unwrap().1[c]
    };
    let affine = |name: &str, i: usize, c: usize, x: f64| x * part(name, i, "weight", c) + part(name, i, "bias", c);
    for rows in [0, 1, 5] {
        let x = numbers(&[rows, 2]);
        let of = |shape: Vec<usize>, f: &dyn Fn(usize, f64) -> f64| {
            let values: Vec<f64> = x.to_f64().iter().enumerate().map(|(at, x)| f(at % 2, *x)).collect();
            Tensor::from_floats(Elem::F32, shape, &values).unwrap()
        };
        let pairs = |c: usize, x: f64| {
            (0..3).fold(x, |y, i| affine("b", i, c, affine("a", i, c, y)) + part("a", i, "weight", c))
        };
        let some = |c: usize, x: f64| (1..3).fold(x, |y, i| affine("a", i, c, y) - affine("a", 0, c, y));
        let counted = |c: usize, x: f64| {
            let y = (0..3).fold(x, |y, i| affine("a", i, c, y) * (i + 1) as f64 + affine("b", i, c, y));
            (0..3).fold(y, |y, i| affine("b", i, c, y)) + 3.0
        };
        let stacked: Vec<f64> = (0..3).flat_map(|i| of(vec![rows, 2], &|c, x| affine("a", i, c, x)).to_f64()).collect();
        let wanted = [
            ("pairs", of(vec![rows, 2], &pairs)),
            ("some", of(vec![rows, 2], &some)),
            ("counted", of(vec![rows, 2], &counted)),
            ("stacked", Tensor::from_floats(Elem::F32, vec![3, rows, 2], &stacked).unwrap()),
        ];
        let calls: Vec<(&str, Vec<Tensor>)> = wanted.iter().map(|(name, _)| (*name, vec![x.clone()])).collect();
        for ((name, want), got) in wanted.iter().zip(program.calls(&calls)) {
            everywhere::near(&format!("{name} {rows}"), want, &got.unwrap()[0]);
        }
    }
}

/// Layers before and after that of the counter, from the end, and each second one.
#[test]
fn layers_are_chosen_by_formulas_linear_in_the_counter() {
    let source = "layer Affine<D> {\n    weight: f32[D]\n    bias: f32[D]\n    fn forward(x: f32[.., D]) -> f32[.., D] {\n        \
                  let y = x * weight + bias\n        tap y\n        y\n    }\n}\n\
                  model M<D = 2, L = 4> where L >= 2 {\n    a: [Affine<D>; L]\n    \
                  pub fn next(x: f32[S, D]) -> f32[S, D] {\n        var y = x\n        \
                  for i in 0..L - 1 { y = a[i + 1](y) - a[i](y) }\n        y\n    }\n    \
                  pub fn back(x: f32[S, D]) -> f32[S, D] {\n        var y = x\n        \
                  for i in 0..L { y = a[L - 1 - i](y) }\n        y + a[L - 1](x)\n    }\n    \
                  pub fn second(x: f32[S, D]) -> f32[S, D] {\n        var y = x\n        \
                  for i in 0..2 { y = a[2*i + 1](y) + a[i + i].bias }\n        y\n    }\n}\n";
    let value = |n: usize| [0.5, -1.0, 2.0, 0.25, 1.5, -0.75, 0.125][n % 7];
    let mut tensors = Vec::new();
    for i in 0..4 {
        for (k, what) in ["weight", "bias"].iter().enumerate() {
            let values = [value(i * 4 + k * 2), value(i * 4 + k * 2 + 1)];
            tensors.push((format!("a.{i}.{what}"), Tensor::from_floats(Elem::F32, vec![2], &values).unwrap()));
        }
    }
    let given: Vec<(&str, Tensor)> = tensors.iter().map(|(name, x)| (name.as_str(), x.clone())).collect();
    let program = Everywhere::of(source, &given);
    let a = |i: usize, c: usize, x: f64| x * value(i * 4 + c) + value(i * 4 + 2 + c);
    for rows in [0, 1, 5] {
        let x = numbers(&[rows, 2]);
        let of = |f: &dyn Fn(usize, f64) -> f64| {
            let values: Vec<f64> = x.to_f64().iter().enumerate().map(|(at, x)| f(at % 2, *x)).collect();
            Tensor::from_floats(Elem::F32, vec![rows, 2], &values).unwrap()
        };
        let next = |c: usize, x: f64| (0..3).fold(x, |y, i| a(i + 1, c, y) - a(i, c, y));
        let back = |c: usize, x: f64| [3, 2, 1, 0].iter().fold(x, |y, i| a(*i, c, y)) + a(3, c, x);
        let second = |c: usize, x: f64| (0..2).fold(x, |y, i| a(2 * i + 1, c, y) + value(2 * i * 4 + 2 + c));
        let wanted = [("next", of(&next)), ("back", of(&back)), ("second", of(&second))];
        let calls: Vec<(&str, Vec<Tensor>)> = wanted.iter().map(|(name, _)| (*name, vec![x.clone()])).collect();
        for ((name, want), got) in wanted.iter().zip(program.calls(&calls)) {
            everywhere::near(&format!("{name} {rows}"), want, &got.unwrap()[0]);
        }
    }
}

/// `x[a..b step k]`: of each axis the elements that Python's `x[a:b:k]` takes.
#[test]
fn slices_take_each_so_manieth_element() {
    let source = "model M {\n    \
                  pub fn rows(x: f32[S, 11]) -> f32[ceil_div(S, 2), 11] { x[0..S step 2] }\n    \
                  pub fn both(x: f32[S, 11]) -> f32[ceil_div(S, 3), 3] { x[.. S step 3, 1..10 step 4] }\n    \
                  pub fn rest(x: f32[S, 11]) -> f32[S, 5] { x[.., 2.. step 2] }\n    \
                  pub fn row(x: f32[S, 11]) -> f32[4] where S >= 1 { x[S - 1, 0.. step 3] }\n    \
                  pub fn picked(x: f32[S, 11], at: i32[K, 2]) -> f32[K, 2, 3] { x[at, 0..9 step 3] }\n    \
                  pub fn window(x: f32[S, 11], i: i32) -> f32[S, 2] { x[.., i..i + 4 step 2] }\n    \
                  pub fn same(x: f32[S, 11], n: i32) -> f32[S, 2] { x[.., n/2+1..1 + n / 2+2] }\n    \
                  pub fn named(step: f32[S, 11]) -> f32[1, 11] where S >= 3 { let x = step[2..3 step 2]\n x }\n}\n";
    let program = Everywhere::of(source, &[]);
    for s in [1, 2, 3, 7, 8] {
        let x = numbers(&[s, 11]);
        let values = x.to_f64();
        let taken = |rows: Vec<usize>, columns: Vec<usize>| -> Vec<f64> {
            rows.iter().flat_map(|r| columns.iter().map(|c| values[r * 11 + c]).collect::<Vec<f64>>()).collect()
        };
        let every = |a: usize, b: usize, k: usize| (a..b).step_by(k).collect::<Vec<usize>>();
        let int = |n: i64| Tensor::from_ints(Elem::I32, vec![], &[n]).unwrap();
        let at: Vec<usize> = vec![0, s - 1, s / 2, 0];
        let indices: Vec<i64> = at.iter().map(|n| *n as i64).collect();
        let at_tensor = Tensor::from_ints(Elem::I32, vec![2, 2], &indices).unwrap();
        let mut wanted: Vec<(&str, Vec<Tensor>, Vec<f64>)> = vec![
            ("rows", vec![], taken(every(0, s, 2), every(0, 11, 1))),
            ("both", vec![], taken(every(0, s, 3), every(1, 10, 4))),
            ("rest", vec![], taken(every(0, s, 1), every(2, 11, 2))),
            ("row", vec![], taken(vec![s - 1], every(0, 11, 3))),
            ("picked", vec![at_tensor], taken(at, every(0, 9, 3))),
            ("window", vec![int(5)], taken(every(0, s, 1), every(5, 9, 2))),
            ("same", vec![int(7)], taken(every(0, s, 1), every(4, 6, 1))),
        ];
        if s >= 3 {
            wanted.push(("named", vec![], taken(vec![2], every(0, 11, 1))));
        }
        let calls: Vec<(&str, Vec<Tensor>)> = wanted
            .iter()
            .map(|(name, more, _)| (*name, [x.clone()].into_iter().chain(more.iter().cloned()).collect()))
            .collect();
        for ((name, _, want), got) in wanted.iter().zip(program.calls(&calls)) {
            assert_eq!(got.unwrap()[0].to_f64(), *want, "{name} {s}");
        }
    }
}
