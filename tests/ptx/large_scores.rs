//! Attention on tensor cores whose scores are as large as the masks that models put in place of `-inf`, or as sums of scores and such masks: a
//! row whose maximum is -1e30 is an ordinary row. Compared with the formula in `f64` over scores that are rounded to `f32` where the
//! program says so.

use std::collections::BTreeMap;

use attnc::codegen::ptx::compile;
use attnc::ptx::text::print;
use attnc::random::Random;
use attnc::shape::Elem;
use attnc::tensor::Tensor;
use attnc::threads;
use attnc::tile::GpuArch;

use crate::tensor_cores::{for_gpu, on_simulator};

const WIDTH: usize = 16;
/// Every eighth, so that scores are exact in `f32` in any order of their sums.
const SCALE: f64 = 0.25;

/// What is put in the place of scores, or added to them. The exponents of some, times log2 e, are not near any `f32`.
const MASKS: [f64; 11] =
    [-1e4, -65504.0, -1e6, -12_345_679.0, -1e8, -1.7e8, -2.5e8, -1e9, -1e30, -2e38, -3.402_823_466_385_288_6e38];
/// What all scores of a row are shifted by.
const SHIFTS: [f64; 9] = [1e4, -1e6, 1.1e7, 1.5e8, 2e8, 1e9, 1e11, 1e30, 3e38];

/// How the scores of the program become large.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Case {
    /// `where(m, s, fill)`: rows of which keys are masked at random, and all.
    Filled(f64),
    /// `s + m`: row by row one of the masks, at random keys or at all, or one of the shifts.
    Added,
    /// The same beside a sink of 0, or as large.
    Sink,
    /// Products of queries and keys; the scale goes into the exponents.
    Products,
}

impl Case {
    fn source(self, elem: Elem) -> String {
        let scores = "cast<f32>(q @ k.T) * 0.25";
        let (more, body) = match self {
            Case::Filled(fill) => {
                (", m: bool[S, T]", format!("cast<{elem}>(softmax(where(m, {scores}, {fill:e}))) @ v"))
            }
            Case::Added => (", m: f32[S, T]", format!("cast<{elem}>(softmax({scores} + m)) @ v")),
            Case::Sink => (
                ", m: f32[S, T], a: f32[S]",
                format!(
                    "cast<{elem}>(softmax(concat({scores} + m, rearrange(a, \"s -> s 1\"), axis = -1))[.., 0..T]) @ v"
                ),
            ),
            Case::Products => ("", "softmax(q @ k.T * 0.25) @ v".to_string()),
        };
        format!(
            "model Test {{\n    pub fn forward(q: {elem}[S, 16], k: {elem}[T, 16], v: {elem}[T, 16]{more}) -> {elem}[S, 16] {{\n        {body}\n    }}\n}}\n"
        )
    }

    /// The arguments for so many queries and keys, and what comes out.
    fn call(self, elem: Elem, [queries, keys]: [usize; 2]) -> (Vec<Tensor>, Vec<[f64; 2]>) {
        let mut random = Random::new(5);
        let mut numbers =
            |n: usize| -> Vec<f64> { (0..n * WIDTH).map(|_| random.below(33) as f64 / 8.0 - 2.0).collect() };
        let (mut q, mut k, v) = (numbers(queries), numbers(keys), numbers(keys));
        if self == Case::Products {
            // A row of powers of 2 times one of a few numbers of 8 bits, the greatest of which are equal, in each tile of keys.
            q = (0..queries * WIDTH)
                .map(|n| if n % WIDTH == 3 { 2f64.powi((n / WIDTH % 60) as i32) } else { 0.0 })
                .collect();
            let greatest = |j: usize| [201.0, -7.0, 200.0, 201.0, 3.0][j % 5];
            k = (0..keys * WIDTH).map(|n| if n % WIDTH == 3 { greatest(n / WIDTH) } else { 0.0 }).collect();
        }
        let mask = |i: usize, j: usize| -> f64 {
            let (masks, of_masks) = (i % 20, MASKS.len());
            let is_hidden = (i / 20).is_multiple_of(2) || !(i * 7 + j * j).is_multiple_of(3);
            if masks < of_masks {
                return if is_hidden { MASKS[masks] } else { 0.0 };
            }
            // Whole multiples of what such numbers are apart beside the shift.
            let shift = SHIFTS[masks - of_masks];
            shift + f64::from((shift as f32).abs() / 8_388_608.0 * ((i + j * j) % 4) as f32)
        };
        let seen = |i: usize, j: usize| !i.is_multiple_of(3) && !(i + j * j).is_multiple_of(5);
        let sink = |i: usize| if i.is_multiple_of(2) { 0.0 } else { mask(i, 0) };
        let mut wanted = Vec::new();
        for i in 0..queries {
            let score = |j: usize| -> f64 {
                let dot = (0..WIDTH).map(|c| q[i * WIDTH + c] * k[j * WIDTH + c]).sum::<f64>() * SCALE;
                match self {
                    Case::Filled(fill) => {
                        if seen(i, j) {
                            dot
                        } else {
                            fill
                        }
                    }
                    Case::Added | Case::Sink => f64::from(dot as f32 + mask(i, j) as f32),
                    Case::Products => dot,
                }
            };
            let scores: Vec<f64> = (0..keys).map(score).collect();
            let first = if self == Case::Sink { f64::from(sink(i) as f32) } else { f64::NEG_INFINITY };
            let most = scores.iter().fold(first, |a, b| a.max(*b));
            let weights: Vec<f64> = scores.iter().map(|s| (s - most).exp()).collect();
            let sum = weights.iter().sum::<f64>() + (first - most).exp();
            for c in 0..WIDTH {
                let of = |value: fn(f64) -> f64| -> f64 {
                    (0..keys).map(|j| weights[j] * value(v[j * WIDTH + c])).sum::<f64>() / sum
                };
                wanted.push([of(|x| x), of(f64::abs)]);
            }
        }
        let tensor = |elem, shape: &[usize], values: &[f64]| {
            Tensor::from_floats(elem, shape.to_vec(), values).expect("a tensor")
        };
        let mut args = vec![
            tensor(elem, &[queries, WIDTH], &q),
            tensor(elem, &[keys, WIDTH], &k),
            tensor(elem, &[keys, WIDTH], &v),
        ];
        let pairs = || (0..queries).flat_map(|i| (0..keys).map(move |j| (i, j)));
        match self {
            Case::Filled(_) => {
                let values: Vec<i64> = pairs().map(|(i, j)| i64::from(seen(i, j))).collect();
                args.push(Tensor::from_ints(Elem::Bool, vec![queries, keys], &values).expect("a tensor"));
            }
            Case::Added | Case::Sink => {
                let values: Vec<f64> = pairs().map(|(i, j)| mask(i, j)).collect();
                args.push(tensor(Elem::F32, &[queries, keys], &values));
            }
            Case::Products => {}
        }
        if self == Case::Sink {
            args.push(tensor(Elem::F32, &[queries], &(0..queries).map(sink).collect::<Vec<f64>>()));
        }
        (args, wanted)
    }
}

/// Weights are rounded to the type of the values, and so is the result; the powers are off by little beside that.
fn bound(elem: Elem, magnitude: f64) -> f64 {
    let unit = if elem == Elem::F16 { 2f64.powi(-11) } else { 2f64.powi(-8) };
    2.5 * unit * magnitude + 1e-6
}

#[test]
fn large_scores_have_the_weights_of_the_formula() {
    let mut cases = vec![Case::Added, Case::Sink, Case::Products];
    cases.extend([0, 4, 6, 8, 10].map(|n| Case::Filled(MASKS[n])));
    let mut all = Vec::new();
    for case in cases {
        for (elem, arch) in [Elem::BF16, Elem::F16].into_iter().flat_map(|e| GpuArch::ALL.map(|a| (e, a))) {
            // Scores of f16 alone end at 65504.
            if (case, elem) != (Case::Products, Elem::F16) {
                all.push((case, elem, arch));
            }
        }
    }
    let compared = threads::each(all, threads::all(), |(case, elem, arch)| -> Result<(), String> {
        let tiles = for_gpu(&case.source(elem), arch)?;
        let (module, infos) = compile(&tiles, arch)?;
        let text = print(&module);
        assert!(text.contains("mma") && tiles.kernels.iter().any(|k| k.name == "attention_part.0"), "{case:?}");
        let sizes: &[[usize; 2]] = match case {
            Case::Filled(_) => &[[18, 2], [5, 130]],
            // The few queries' keys are divided; tiles of queries are not full.
            Case::Added | Case::Sink | Case::Products => &[[60, 270], [16, 130]],
        };
        for size in sizes {
            let (args, wanted) = case.call(elem, *size);
            let symbols = [("S", size[0]), ("T", size[1])].map(|(name, n)| (name.to_string(), n as i64));
            let (got, _) = on_simulator(&tiles, (&text, &infos), &BTreeMap::from(symbols), &args)?;
            for (n, (got, [want, magnitude])) in got.to_f64().iter().zip(&wanted).enumerate() {
                let is_near = (got - want).abs() <= bound(elem, *magnitude);
                let (row, col) = (n / WIDTH, n % WIDTH);
                if !is_near {
                    return Err(format!(
                        "{case:?} {elem} {} {size:?}: row {row}, column {col} is {got}, not {want}",
                        arch.name()
                    ));
                }
            }
        }
        Ok(())
    });
    let wrong: Vec<String> = compared.into_iter().filter_map(Result::err).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
