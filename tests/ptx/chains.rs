//! The gradient of attention on a GPU: kernels that compute formulas over matmuls tile by tile.

use std::collections::BTreeMap;

use attnc::codegen::ptx::compile;
use attnc::ptx::text::print;
use attnc::random::Random;
use attnc::shape::Elem;
use attnc::tensor::Tensor;
use attnc::tile::GpuArch;
use attnc::tile::verify::VerifiedModule;

use crate::tensor_cores::{for_gpu, on_simulator};

/// The gradient of causal attention of heads of this width with respect to `of`.
fn scheduled(width: usize, of: &str, arch: GpuArch) -> VerifiedModule {
    let (rows, ty) = (if of == "q" { "S" } else { "T" }, format!("{width}]"));
    let source = format!(
        "model Test {{
    pub fn forward(q: f32[S, {ty}, k: f32[T, {ty}, v: f32[T, {ty}, w: f32[S, {ty}) -> f32[{rows}, {ty} {{
        let y = softmax(where(causal(S, T), q @ k.T, -inf)) @ v
        grad(sum(y * w, axis = [0, 1]), {of})
    }}
}}
"
    );
    let tiles = for_gpu(&source, arch).unwrap_or_else(|e| panic!("width {width}, {of}: {e}"));
    assert!(tiles.kernels.iter().any(|k| k.name.starts_with("chain.")), "width {width}, {of}: no chain");
    tiles
}

/// The gradients with respect to queries, keys and values, in `f64`.
fn gradients([q, k, v, w]: [&[f64]; 4], (s, t, d): (usize, usize, usize)) -> [Vec<f64>; 3] {
    let dot = |a: &[f64], i: usize, b: &[f64], j: usize| (0..d).map(|n| a[i * d + n] * b[j * d + n]).sum::<f64>();
    let [mut dq, mut dk, mut dv] = [vec![0.0; s * d], vec![0.0; t * d], vec![0.0; t * d]];
    for i in 0..s {
        let seen: Vec<usize> = (0..t).filter(|j| *j as i64 <= i as i64 + t as i64 - s as i64).collect();
        let powers: Vec<f64> = seen.iter().map(|j| dot(q, i, k, *j).exp()).collect();
        let sum: f64 = powers.iter().sum();
        let weights: Vec<f64> = powers.iter().map(|p| p / sum).collect();
        let mean: f64 = seen.iter().zip(&weights).map(|(j, p)| p * dot(w, i, v, *j)).sum();
        for (j, p) in seen.iter().zip(&weights) {
            let g = p * (dot(w, i, v, *j) - mean);
            for n in 0..d {
                dq[i * d + n] += g * k[j * d + n];
                dk[j * d + n] += g * q[i * d + n];
                dv[j * d + n] += p * w[i * d + n];
            }
        }
    }
    [dq, dk, dv]
}

#[test]
fn gradients_of_attention_on_the_simulator() {
    let mut random = Random::new(2);
    for (s, t, d) in [(3, 5, 4), (37, 37, 8), (40, 33, 8), (1, 130, 4)] {
        let mut numbers = |n: usize| (0..n * d).map(|_| (random.below(201) as f64 - 100.0) / 128.0).collect::<Vec<_>>();
        let (q, k, v, w) = (numbers(s), numbers(t), numbers(t), numbers(s));
        let wanted = gradients([&q, &k, &v, &w], (s, t, d));
        let tensor = |n: usize, x: &[f64]| Tensor::from_floats(Elem::F32, vec![n, d], x).expect("a tensor");
        let args = [tensor(s, &q), tensor(t, &k), tensor(t, &v), tensor(s, &w)];
        let symbols = BTreeMap::from([("S".to_string(), s as i64), ("T".to_string(), t as i64)]);
        for (of, wanted) in ["q", "k", "v"].iter().zip(&wanted) {
            let tiles = scheduled(d, of, GpuArch::Sm80);
            let (module, infos) = compile(&tiles, GpuArch::Sm80).unwrap_or_else(|e| panic!("{e}"));
            let (found, _) = on_simulator(&tiles, (&print(&module), &infos), &symbols, &args).expect("a result");
            for (n, (x, y)) in found.to_f64().iter().zip(wanted).enumerate() {
                assert!((x - y).abs() < 1e-4, "d{of} of {s} x {t} x {d}, element {n}: {x}, not {y}");
            }
        }
    }
}

#[test]
fn wide_heads_fit_shared_memory() {
    for width in [64, 128, 200, 256] {
        for of in ["q", "k", "v"] {
            for arch in [GpuArch::Sm80, GpuArch::Sm90a] {
                scheduled(width, of, arch);
            }
        }
    }
}
