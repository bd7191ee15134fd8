//! Do compiled kernels of rows compute what they mean? Norms and softmax over short rows, rows that are one tile though
//! they are long, and rows of several chunks, at every level of processors that runs here, against `f64`.

use crate::{compiled, front};

use std::collections::BTreeMap;

use attnc::lowering::graph::Options;
use attnc::passes;
use attnc::tensor::Tensor;

fn program(width: &str) -> String {
    format!(
        "model Rows {{
    pub fn norm(x: f32[S, {width}], w: f32[{width}]) -> f32[S, {width}] {{
        let d = x - mean(x, axis = -1, keep = true)
        d * rsqrt(mean(d * d, axis = -1, keep = true) + 1e-5) * w
    }}
    pub fn weights(x: f32[S, {width}]) -> f32[S, {width}] {{
        softmax(x * 3.0)
    }}
}}
"
    )
}

fn norm(row: &[f64], w: &[f64]) -> Vec<f64> {
    let n = row.len() as f64;
    let mean = row.iter().sum::<f64>() / n;
    let variance = row.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / n;
    row.iter().zip(w).map(|(x, w)| (x - mean) / (variance + 1e-5).sqrt() * w).collect()
}

fn softmax(row: &[f64], _: &[f64]) -> Vec<f64> {
    let highest = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let sum: f64 = row.iter().map(|x| ((x - highest) * 3.0).exp()).sum();
    row.iter().map(|x| ((x - highest) * 3.0).exp() / sum).collect()
}

#[test]
fn rows_compute_what_they_mean() {
    let folder = tempfile::tempdir().unwrap();
    for width in ["1", "7", "64", "1500", "4100", "T"] {
        let module = front::module("rows.attn", &program(width), &Options::default()).unwrap();
        let module = compiled::optimised(module, &passes::Options::default());
        for level in compiled::levels() {
            let model = compiled::load_at(level, &module, &BTreeMap::new(), folder.path());
            let mut session = model.session().unwrap();
            let columns: &[usize] = if width == "T" { &[0, 1, 30, 1100] } else { &[width.parse().unwrap()] };
            for (s, t) in [0, 1, 19].iter().flat_map(|s| columns.iter().map(move |t| (*s, *t))) {
                let number = |i: usize| f64::from(u32::try_from(i * 7919 % 1009).unwrap()) / 256.0 - 2.0;
                let (x, w): (Vec<f64>, Vec<f64>) = ((0..s * t).map(number).collect(), (0..t).map(number).collect());
                let tensor = |shape, v: &[f64]| Tensor::from_floats(attnc::shape::Elem::F32, shape, v).unwrap();
                let given = [tensor(vec![s, t], &x), tensor(vec![t], &w)];
                for (name, count, means) in
                    [("norm", 2, norm as fn(&[f64], &[f64]) -> Vec<f64>), ("weights", 1, softmax)]
                {
                    let got = session.call(model.entry(name).unwrap(), &given[..count]).unwrap();
                    let want: Vec<f64> = x.chunks_exact(t.max(1)).flat_map(|row| means(row, &w)).collect();
                    let got = got[0].to_f64();
                    assert_eq!(got.len(), want.len());
                    for (i, (g, v)) in got.iter().zip(&want).enumerate() {
                        let close = (g - v).abs() <= 4e-6 * (1.0 + v.abs());
                        assert!(close, "{name}, {level:?}, [{s}, {width} = {t}]: element {i} is {g}, not {v}");
                    }
                }
            }
        }
    }
}

/// A row without anything visible: softmax gives zeros, and its logarithm gives what the logarithm of zero is, never NaN.
#[test]
fn hidden_rows_are_zeros_and_their_logarithms() {
    for (elem, width) in [("f32", "5"), ("f32", "1500"), ("f32", "4100"), ("f32", "T"), ("bf16", "T"), ("f16", "33")] {
        let entry = |name: &str, call: &str| {
            let ty = format!("{elem}[S, {width}]");
            format!("    pub fn {name}(x: {ty}) -> {ty} {{\n        {call}(x, axis = -1)\n    }}\n")
        };
        let source = format!("model Rows {{\n{}{}}}\n", entry("weights", "softmax"), entry("logs", "log_softmax"));
        let module = front::module("hidden.attn", &source, &Options::default()).unwrap_or_else(|e| panic!("{e}"));
        let columns: usize = width.parse().unwrap_or(70);
        let of = |name: &str| attnc::shape::Elem::from_name(name).unwrap();
        // Every other row is hidden; the others are all 1.
        let values: Vec<f64> =
            (0..5 * columns).map(|i| if (i / columns).is_multiple_of(2) { f64::NEG_INFINITY } else { 1.0 }).collect();
        let x = Tensor::from_floats(of(elem), vec![5, columns], &values).unwrap();
        for pipeline in [passes::Level::O0, passes::Level::O2] {
            let options = passes::Options { level: pipeline, ..passes::Options::default() };
            let module = compiled::optimised(module.clone(), &options);
            for level in compiled::levels() {
                let folder = tempfile::tempdir().unwrap();
                let model = compiled::load_at(level, &module, &BTreeMap::new(), folder.path());
                let mut session = model.session().unwrap();
                let share = 1.0 / columns as f64;
                for (name, hidden, seen) in [("weights", 0.0, share), ("logs", f64::NEG_INFINITY, share.ln())] {
                    let got = session.call(model.entry(name).unwrap(), std::slice::from_ref(&x)).unwrap();
                    for (i, v) in got[0].to_f64().into_iter().enumerate() {
                        let what = format!("{name} of {elem}[5, {width}], {level:?}: element {i} is {v}");
                        match i / columns % 2 {
                            0 => assert_eq!(v, hidden, "{what}"),
                            _ => assert!((v - seen).abs() <= 1e-2 * seen.abs(), "{what}, not {seen}"),
                        }
                    }
                }
            }
        }
    }
}
