//! Keys that a mask hides contribute nothing on a GPU, on tensor cores or where few queries of `f32` divide their keys among blocks, even if they or their values are NaN or infinite; what is seen counts as the
//! formula says. Compared with the formula, over the keys that each query sees.

use std::collections::BTreeMap;

use attnc::codegen::ptx::compile;
use attnc::ptx::text::print;
use attnc::random::Random;
use attnc::shape::Elem;
use attnc::tensor::Tensor;
use attnc::threads;
use attnc::tile::GpuArch;

use crate::tensor_cores::{for_gpu, is_near, on_simulator};

/// Columns of a head.
const WIDTH: usize = 64;

/// An attention with a mask: how the program says it, what it takes besides, and whether a query sees a key.
struct Masked {
    name: &'static str,
    arguments: &'static str,
    mask: &'static str,
    sees: fn(usize, usize, [usize; 2]) -> bool,
    /// Queries and keys.
    sizes: [usize; 2],
}

/// Also few queries, whose keys are divided among blocks. Keys from 100 on are padding of `padded`.
const ALL: [Masked; 7] = [
    Masked {
        name: "causal",
        arguments: "",
        mask: "causal(S, T)",
        sees: |i, j, [s, t]| j + s <= i + t,
        sizes: [40, 54],
    },
    Masked {
        name: "window",
        arguments: "",
        mask: "abs(rearrange(iota(S), \"s -> s 1\") - iota(T)) < 9",
        sees: |i, j, _| i.abs_diff(j) < 9,
        sizes: [50, 60],
    },
    Masked { name: "padded", arguments: ", m: bool[S, T]", mask: "m", sees: |_, j, _| j < 100, sizes: [18, 124] },
    Masked {
        name: "argument",
        arguments: ", m: bool[S, T]",
        mask: "m",
        sees: |i, j, _| (i + j) % 5 > 0,
        sizes: [20, 60],
    },
    Masked { name: "few", arguments: ", m: bool[S, T]", mask: "m", sees: |i, j, _| (i + j) % 3 > 0, sizes: [3, 300] },
    Masked {
        name: "few_causal",
        arguments: "",
        mask: "causal(S, T)",
        sees: |i, j, [s, t]| j + s <= i + t,
        sizes: [9, 54],
    },
    Masked {
        name: "few_window",
        arguments: "",
        mask: "abs(rearrange(iota(S), \"s -> s 1\") + 40 - iota(T)) < 9",
        sees: |i, j, _| (i + 40).abs_diff(j) < 9,
        sizes: [14, 130],
    },
];

/// Special numbers: a key, a column, a number, is it of the values?
type Specials = &'static [(usize, usize, f64, bool)];

const SPECIALS: [Specials; 5] = [
    // Nothing.
    &[],
    &[(44, 3, f64::NAN, true), (50, 7, f64::INFINITY, true), (51, 7, f64::NEG_INFINITY, true)],
    // The scores of a key; a key whose scores are the largest.
    &[(31, 0, f64::NAN, false), (47, 5, 1e6, false)],
    // Of padding alone.
    &[(104, 9, f64::NAN, true), (119, 9, f64::NAN, false), (120, 1, f64::INFINITY, true)],
    // A value whose weight is 0 beside that of a key in another part.
    &[(47, 5, 1e6, false), (70, 2, f64::INFINITY, true)],
];

/// What the formula gives.
fn formula(case: &Masked, q: &[f64], k: &[f64], v: &[f64]) -> Vec<f64> {
    let [queries, keys] = case.sizes;
    let mut out = Vec::new();
    for i in 0..queries {
        let seen: Vec<usize> = (0..keys).filter(|j| (case.sees)(i, *j, case.sizes)).collect();
        let dot = |j: usize| (0..WIDTH).map(|c| q[i * WIDTH + c] * k[j * WIDTH + c]).sum::<f64>() / 8.0;
        let scores: Vec<f64> = seen.iter().map(|j| dot(*j)).collect();
        let most = scores
            .iter()
            .fold(f64::NEG_INFINITY, |a: f64, b| if a.is_nan() || b.is_nan() { f64::NAN } else { a.max(*b) });
        let weights: Vec<f64> = scores.iter().map(|s| (s - most).exp()).collect();
        let sum: f64 = weights.iter().sum();
        for c in 0..WIDTH {
            let used = seen.iter().zip(&weights).filter(|(_, w)| **w != 0.0);
            out.push(if seen.is_empty() { 0.0 } else { used.map(|(j, w)| w * v[j * WIDTH + c]).sum::<f64>() / sum });
        }
    }
    out
}

#[test]
fn hidden_keys_contribute_nothing_whatever_they_hold() {
    let of_cores = ALL.iter().flat_map(|p| GpuArch::ALL.map(|arch| (p, arch, Elem::BF16)));
    let few = ALL.iter().filter(|p| p.name.starts_with("few")).map(|p| (p, GpuArch::Sm80, Elem::F32));
    let cases: Vec<(&Masked, GpuArch, Elem)> = of_cores.chain(few).collect();
    threads::each(cases, threads::all(), |(case, arch, elem)| {
        let source = format!(
            "model Test {{\n    pub fn forward(q: {elem}[1, S, 64], k: {elem}[1, T, 64], v: {elem}[1, T, 64]{}) -> {elem}[1, S, 64] {{\n        softmax(where({}, q @ k.T / sqrt(64), -inf)) @ v\n    }}\n}}\n",
            case.arguments, case.mask
        );
        let tiles = for_gpu(&source, arch).unwrap_or_else(|e| panic!("{}: {e}", case.name));
        let (module, infos) = compile(&tiles, arch).unwrap_or_else(|e| panic!("{}: {e}", case.name));
        assert_eq!(print(&module).contains("mma"), elem == Elem::BF16, "{}", case.name);
        assert!(elem == Elem::BF16 || tiles.kernels.iter().any(|k| k.name == "attention_part.0"), "{}", case.name);
        let [queries, keys] = case.sizes;
        let symbols = BTreeMap::from([("S".to_string(), queries as i64), ("T".to_string(), keys as i64)]);
        for (n, specials) in SPECIALS.iter().enumerate() {
            let mut random = Random::new(11);
            let mut numbers = |rows: usize, specials: &[(usize, usize, f64)]| {
                let mut all: Vec<f64> = (0..rows * WIDTH).map(|_| random.below(33) as f64 / 16.0 - 1.0).collect();
                for (row, col, x) in specials.iter().filter(|(row, ..)| *row < rows) {
                    all[row * WIDTH + col] = *x;
                }
                Tensor::from_floats(elem, vec![1, rows, WIDTH], &all).expect("a tensor")
            };
            let of = |values: bool| -> Vec<(usize, usize, f64)> {
                specials.iter().filter(|s| s.3 == values).map(|s| (s.0, s.1, s.2)).collect()
            };
            let mut args = vec![numbers(queries, &[]), numbers(keys, &of(false)), numbers(keys, &of(true))];
            let [q, k, v] = [0, 1, 2].map(|n: usize| args[n].to_f64());
            if !case.arguments.is_empty() {
                let pairs = (0..queries).flat_map(|i| (0..keys).map(move |j| (i, j)));
                let seen: Vec<i64> = pairs.map(|(i, j)| i64::from((case.sees)(i, j, case.sizes))).collect();
                args.push(Tensor::from_ints(Elem::Bool, vec![queries, keys], &seen).expect("a tensor"));
            }
            let wanted = formula(case, &q, &k, &v);
            let got = on_simulator(&tiles, (&print(&module), &infos), &symbols, &args);
            let got = got.unwrap_or_else(|e| panic!("{} {}: {e}", case.name, arch.name())).0.to_f64();
            let finite = wanted.iter().filter(|x| x.is_finite()).count();
            // Some queries see what is special, others do not.
            let both = 0 < finite && finite < wanted.len();
            let differs = match case.name {
                "causal" | "window" => [1, 2].contains(&n),
                "few_causal" | "few_window" => n == 1,
                _ => false,
            };
            assert!(both || !differs, "{} {n}: {finite}", case.name);
            let wrong = got.iter().zip(&wanted).position(|(got, want)| !is_near(*got, *want));
            if let Some(at) = wrong {
                let (row, col, what) = (at / WIDTH, at % WIDTH, format!("{} {} {n}", case.name, arch.name()));
                panic!("{what}: query {row}, column {col} is {}, not {}", got[at], wanted[at]);
            }
        }
    });
}
