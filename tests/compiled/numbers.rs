//! How exact is what is computed? Long sums, at every level of processors that runs here and in the interpreter: their error
//! is bounded by the lengths of blocks, not by that of the sum, and their bits depend on nothing else. Remainders of floats,
//! against integers. Indices that have no `i32`. What each operation gives in each type is in `rounding`.

use crate::{compiled, front};

mod centred;
mod rounding;

use std::collections::BTreeMap;

use attnc::ir::{Module, interp, verify};
use attnc::lowering::graph::Options;
use attnc::passes;
use attnc::random::Random;
use attnc::shape::Elem;
use attnc::tensor::Tensor;

/// Unit roundoff of `f32`.
const U: f64 = 1.0 / 16_777_216.0;

fn module(source: &str) -> Module {
    front::module("m.attn", source, &Options::default()).unwrap_or_else(|e| panic!("{e}"))
}

fn optimised(source: &str) -> Module {
    compiled::optimised(module(source), &passes::Options::default())
}

/// What the interpreter gives for an entry point.
fn interpreted(module: &Module, entry: &str, args: &[Tensor], params: &BTreeMap<String, Tensor>) -> Tensor {
    let call = interp::Call { function: entry, args, params, limits: Default::default() };
    let out = interp::run::<f32>(verify(module).unwrap(), &call).unwrap_or_else(|e| panic!("{entry}: {e}"));
    out.results[0].to_tensor().unwrap()
}

/// Numbers of a row: always a tenth, or any from 0 to 1.
fn row(rng: &mut Random, constant: bool, n: usize) -> Vec<f32> {
    (0..n).map(|_| if constant { 0.1 } else { rng.unit() as f32 }).collect()
}

/// Is each sum within so many roundings of what it is of: the exact sum and the sum of sizes?
fn within(what: &str, roundings: f64, got: &[f64], want: impl Fn(usize) -> (f64, f64)) {
    for (i, g) in got.iter().enumerate() {
        let (exact, size) = want(i);
        let off = (g - exact).abs();
        assert!(off <= roundings * U * size, "{what}: element {i} is {g}, not {exact}: {:.1} units", off / size / U);
    }
}

/// Rows of the left operand by 1 to 64, in one call; the right one is computed, or a parameter that is packed.
#[test]
fn products_are_sums_of_blocks() {
    let folder = tempfile::tempdir().unwrap();
    for (k, n) in [(14_336, 33), (65_536, 5), (1_000_000, 1)] {
        let source = format!(
            "model M {{
    w: f32[{k}, {n}]
    pub fn packed(x: f32[S, {k}]) -> f32[S, {n}] {{ x @ w }}
    pub fn added(x: f32[S, {k}], b: f32[{n}]) -> f32[S, {n}] {{ x @ w + b }}
    pub fn product(x: f32[S, K], y: f32[K, {n}]) -> f32[S, {n}] {{ x @ y }}
}}
"
        );
        let module = optimised(&source);
        let counts: &[usize] = if k > 100_000 { &[1, 3] } else { &[1, 17, 64] };
        let most = *counts.last().unwrap();
        for constant in [true, false] {
            let mut rng = Random::new(5);
            let x: Vec<f32> = (0..most).flat_map(|_| row(&mut rng, constant, k)).collect();
            let y = row(&mut rng, constant, k * n);
            let exact: Vec<f64> = (0..most * n)
                .map(|i| (0..k).map(|j| f64::from(x[i / n * k + j]) * f64::from(y[j * n + i % n])).sum())
                .collect();
            let right = Tensor::from_f32(vec![k, n], &y).unwrap();
            let params = BTreeMap::from([("w".to_string(), right.clone())]);
            let nothing = Tensor::from_f32(vec![n], &vec![0.0; n]).unwrap();
            let left = |s: usize| Tensor::from_f32(vec![s, k], &x[..s * k]).unwrap();
            let roundings = (256 + k.div_ceil(256) + 2) as f64;
            let check = |what: &str, got: &[f64]| within(what, roundings, got, |i| (exact[i], exact[i]));
            check("interpreted", &interpreted(&module, "packed", &[left(1)], &params).to_f64());
            for level in compiled::levels() {
                let model = compiled::load_at(level, &module, &params, folder.path());
                let mut session = model.session().unwrap();
                let mut call = |entry: &str, args: &[Tensor]| {
                    session.call(model.entry(entry).unwrap(), args).unwrap_or_else(|e| panic!("{e}")).remove(0)
                };
                let mut all: BTreeMap<&str, Vec<Vec<f32>>> = BTreeMap::new();
                for s in counts {
                    let given =
                        [("packed", vec![]), ("added", vec![nothing.clone()]), ("product", vec![right.clone()])];
                    for (entry, more) in given {
                        let got = call(entry, &[vec![left(*s)], more].concat());
                        check(&format!("{entry}, {level:?}, {s} x {k}, constant {constant}"), &got.to_f64());
                        all.entry(entry).or_default().push(got.to_f32());
                    }
                }
                // A row has the same bits whatever the rows around it, and whatever is added.
                for (entry, results) in &all {
                    let bits = |v: &[f32]| v.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
                    for part in results {
                        let whole = &results[results.len() - 1][..part.len()];
                        assert_eq!(bits(part), bits(whole), "{entry}, {level:?}, {k}");
                        assert_eq!(
                            bits(part),
                            bits(&all["added"][counts.len() - 1][..part.len()]),
                            "{entry}, {level:?}"
                        );
                    }
                }
            }
        }
    }
}

/// Pairs of `bf16` at every level: what half of the terms bring, the other half takes away again.
#[test]
fn products_of_bf16_are_sums_of_blocks() {
    let folder = tempfile::tempdir().unwrap();
    let (k, n) = (65_536, 33);
    let module = optimised(&format!(
        "model M {{\n    w: bf16[{k}, {n}]\n    pub fn f(x: bf16[S, {k}]) -> bf16[S, {n}] {{ x @ w }}\n}}\n"
    ));
    let mut rng = Random::new(6);
    let mut element = |sign: f32| half::bf16::from_f32(sign * (0.5 + rng.unit() as f32)).to_f64();
    let x: Vec<f64> = (0..64 * k).map(|_| element(1.0)).collect();
    let y: Vec<f64> = (0..k * n).map(|i| element(if i < k * n / 2 { 1.0 } else { -1.0 })).collect();
    let bf16 = |shape, v: &[f64]| Tensor::from_floats(Elem::BF16, shape, v).unwrap();
    let params = BTreeMap::from([("w".to_string(), bf16(vec![k, n], &y))]);
    for level in compiled::bf16_levels() {
        let model = compiled::load_at(level, &module, &params, folder.path());
        let mut session = model.session().unwrap();
        for s in [1, 17, 64] {
            let got = session.call(model.entry("f").unwrap(), &[bf16(vec![s, k], &x[..s * k])]).unwrap();
            for (i, g) in got[0].to_f64().iter().enumerate() {
                let term = |j: usize| x[i / n * k + j] * y[j * n + i % n];
                let (exact, size) =
                    (0..k).map(term).fold((0.0, 0.0), |(sum, size): (f64, f64), p| (sum + p, size + p.abs()));
                let bound = (512.0 + (k / 512) as f64 + 20.0) * U * size + exact.abs() / 256.0;
                assert!((g - exact).abs() <= bound, "{level:?}, {s}: element {i} is {g}, not {exact}");
            }
        }
    }
}

/// An entry point, its arguments, and each element of its result in `f64`.
type Sums<'a> = (&'a str, Vec<Tensor>, Box<dyn Fn(usize) -> f64 + 'a>);

#[test]
fn reductions_are_sums_of_blocks() {
    let folder = tempfile::tempdir().unwrap();
    let source = "model M {
    pub fn total(x: f32[S, N]) -> f32[S] { sum(x, axis = -1) }
    pub fn average(x: f32[S, N]) -> f32[S] { mean(x, axis = -1) }
    pub fn dot(x: f32[S, N], y: f32[N]) -> f32[S] { sum(x * y, axis = -1) }
    pub fn down(x: f32[N, S]) -> f32[S] { sum(x, axis = 0) }
    pub fn short(x: f32[S, 4096]) -> f32[S] { sum(x, axis = -1) }
    pub fn long(x: f32[S, 65536]) -> f32[S] { sum(x, axis = -1) }
}
";
    let module = optimised(source);
    for constant in [true, false] {
        for n in [0, 1, 511, 4096, 4097, 14_336, 65_536, 1_000_000] {
            let s = if n > 100_000 { 1 } else { 3 };
            let mut rng = Random::new(7);
            let x: Vec<f32> = (0..s).flat_map(|_| row(&mut rng, constant, n)).collect();
            let y = row(&mut rng, constant, n);
            let tensor = |shape, v: &[f32]| Tensor::from_f32(shape, v).unwrap();
            let sum = |i: usize| x[i * n..(i + 1) * n].iter().map(|x| f64::from(*x)).sum::<f64>();
            let product = |i: usize| (0..n).map(|j| f64::from(x[i * n + j]) * f64::from(y[j])).sum::<f64>();
            let turned: Vec<f32> = (0..n * s).map(|i| x[i % s * n + i / s]).collect();
            let (wide, tall) = (tensor(vec![s, n], &x), tensor(vec![n, s], &turned));
            let mut calls: Vec<Sums> = vec![
                ("total", vec![wide.clone()], Box::new(sum)),
                ("dot", vec![wide.clone(), tensor(vec![n], &y)], Box::new(product)),
                ("down", vec![tall], Box::new(sum)),
            ];
            if n > 0 {
                calls.push(("average", vec![wide.clone()], Box::new(|i| sum(i) / n as f64)));
            }
            if n == 4096 {
                calls.push(("short", vec![wide.clone()], Box::new(sum)));
            }
            if n == 65_536 {
                calls.push(("long", vec![wide.clone()], Box::new(sum)));
            }
            for (entry, args, want) in &calls {
                // Blocks of 512 terms, one after another, and pairs of them.
                let got = interpreted(&module, entry, args, &BTreeMap::new());
                within(&format!("{entry} interpreted"), 530.0, &got.to_f64(), |i| (want(i), want(i)));
            }
            for level in compiled::levels() {
                let model = compiled::load_at(level, &module, &BTreeMap::new(), folder.path());
                let mut session = model.session().unwrap();
                for (entry, args, want) in &calls {
                    let got = session.call(model.entry(entry).unwrap(), args).unwrap_or_else(|e| panic!("{e}"));
                    // 512 terms in at least four lanes, the lanes, and the rounding of a product or a mean.
                    let what = format!("{entry}, {level:?}, {n}, constant {constant}");
                    within(&what, 140.0, &got[0].to_f64(), |i| (want(i), want(i)));
                }
            }
        }
    }
}

/// Sums that are not finite are what they are in any order.
#[test]
fn sums_of_what_is_not_finite() {
    let folder = tempfile::tempdir().unwrap();
    let module = optimised("model M {\n    pub fn total(x: f32[N]) -> f32[] { sum(x) }\n}\n");
    for level in compiled::levels() {
        let model = compiled::load_at(level, &module, &BTreeMap::new(), folder.path());
        let mut session = model.session().unwrap();
        for (places, want) in [
            (vec![(7000, f32::INFINITY)], f32::INFINITY),
            (vec![(0, f32::NEG_INFINITY), (9999, f32::NEG_INFINITY)], f32::NEG_INFINITY),
            (vec![(600, f32::INFINITY), (5000, f32::NEG_INFINITY)], f32::NAN),
            (vec![(4200, f32::NAN)], f32::NAN),
            (vec![(0, f32::MAX), (5000, f32::MAX)], f32::INFINITY),
        ] {
            let mut x = vec![1.0; 10_000];
            places.iter().for_each(|(i, v)| x[*i] = *v);
            let x = Tensor::from_f32(vec![x.len()], &x).unwrap();
            let got = session.call(model.entry("total").unwrap(), &[x]).unwrap()[0].to_f32()[0];
            assert!(got == want || got.is_nan() && want.is_nan(), "{level:?}: {places:?} give {got}, not {want}");
        }
    }
}

/// A float's magnitude as an integer times a power of two.
fn parts(x: f32) -> (u128, i32) {
    let (exponent, fraction) = ((x.to_bits() >> 23 & 0xff).cast_signed(), u128::from(x.to_bits() & 0x7f_ffff));
    if exponent == 0 { (fraction, -149) } else { (fraction | 1 << 23, exponent - 150) }
}

/// The remainder with the sign of the divisor, by integers; what is added where the signs differ is rounded once.
fn remainder(x: f32, y: f32) -> f32 {
    if x.is_nan() || y.is_nan() || x.is_infinite() || y == 0.0 {
        return f32::NAN;
    }
    if y.is_infinite() {
        return if x == 0.0 {
            0.0f32.copysign(y)
        } else if (x < 0.0) == (y < 0.0) {
            x
        } else {
            y
        };
    }
    let ((m, e), (n, f)) = (parts(x), parts(y));
    let (rest, exponent) = if e >= f {
        let power = (0..e - f).fold(1 % n, |p, _| p * 2 % n);
        (m % n * power % n, f)
    } else {
        // A divisor that is shifted so far is larger than any dividend.
        (if f - e > 60 { m } else { m % (n << (f - e)) }, e)
    };
    if rest == 0 {
        return 0.0f32.copysign(y);
    }
    let size = rest as f64 * 2f64.powi(exponent);
    let (size, divisor) = (size.copysign(f64::from(x)), f64::from(y));
    (if (size < 0.0) == (divisor < 0.0) { size } else { size + divisor }) as f32
}

#[test]
fn remainders_are_exact() {
    let special = [
        0.0,
        -0.0,
        1.0,
        -1.0,
        3.0,
        0.1,
        -0.1,
        31.3,
        5.0,
        1e10,
        1e-20,
        -1e-20,
        f32::MAX,
        f32::MIN,
        f32::MIN_POSITIVE,
        1e-40,
        -3e-45,
        f32::INFINITY,
        f32::NEG_INFINITY,
        f32::NAN,
    ];
    let mut pairs: Vec<(f32, f32)> = special.iter().flat_map(|x| special.map(|y| (*x, y))).collect();
    let mut rng = Random::new(3);
    let mut any = || f32::from_bits((rng.word() >> 20) as u32);
    pairs.extend((0..6000).map(|_| (any(), any())));
    // Divisors close to the dividend, exact multiples, and small ones.
    pairs.extend((0..3000).map(|_| {
        let x = any();
        (x, x / (any() % 1000.0))
    }));
    pairs.extend((0..999).map(|i| ((i as f32 - 500.0) * 0.3, 0.3)));
    let by = |f: fn(&(f32, f32)) -> f32| {
        let v: Vec<f32> = pairs.iter().map(f).collect();
        Tensor::from_f32(vec![v.len()], &v).unwrap()
    };
    let args = [by(|p| p.0), by(|p| p.1)];
    assert_eq!(
        remainder(31.3, 0.1).to_bits(),
        (f64::from(31.3f32) % f64::from(0.1f32)).to_string().parse::<f32>().unwrap().to_bits()
    );
    assert_eq!((remainder(1e10, 3.0), remainder(-1.0, 3.0), remainder(5.0, f32::INFINITY)), (1.0, 2.0, 5.0));
    let check = |what: &str, got: &Tensor| {
        for ((x, y), g) in pairs.iter().zip(got.to_f32()) {
            let want = remainder(*x, *y);
            assert!(
                g.to_bits() == want.to_bits() || g.is_nan() && want.is_nan(),
                "{what}: {x:e} % {y:e} is {g:e}, not {want:e}"
            );
        }
    };
    let module = optimised("model M {\n    pub fn f(x: f32[N], y: f32[N]) -> f32[N] { x % y }\n}\n");
    check("interpreted", &interpreted(&module, "f", &args, &BTreeMap::new()));
    let folder = tempfile::tempdir().unwrap();
    for level in compiled::levels() {
        let model = compiled::load_at(level, &module, &BTreeMap::new(), folder.path());
        let got = model.session().unwrap().call(model.entry("f").unwrap(), &args).unwrap();
        check(&format!("{level:?}"), &got[0]);
    }
}

/// Literals are folded as the rest is computed.
#[test]
fn remainders_of_literals() {
    let module = optimised("model M {\n    pub fn f(x: f32[2]) -> f32[2] { x * 0.0 + (0.0 - 31.3) % 0.1 }\n}\n");
    let x = Tensor::from_f32(vec![2], &[1.0, 2.0]).unwrap();
    let got = interpreted(&module, "f", &[x], &BTreeMap::new()).to_f32();
    assert_eq!(got[0].to_bits(), remainder(-31.3, 0.1).to_bits());
}

/// An index of `argmax` is an `i32`: an axis that has more elements is an error of the call, and never a negative index.
#[test]
fn argmax_of_too_many_elements() {
    let folder = tempfile::tempdir().unwrap();
    for (length, fits) in [("2147483649", false), ("3000000000", false), ("1000", true)] {
        // A number that is the same everywhere takes no memory.
        let source = format!(
            "model M {{\n    pub fn f(x: f32[]) -> i32[] {{ argmax(full<f32>(0.0, [{length}]), axis = 0) }}\n}}\n"
        );
        let module = optimised(&source);
        let x = Tensor::from_f32(vec![], &[1.0]).unwrap();
        for level in compiled::levels() {
            let model = compiled::load_at(level, &module, &BTreeMap::new(), folder.path());
            let got = model.session().unwrap().call(model.entry("f").unwrap(), std::slice::from_ref(&x));
            match got {
                Ok(y) => assert!(fits && y[0].to_i64() == [0], "{length}: {:?}", y[0].to_i64()),
                Err(e) => assert!(!fits && e.to_string().contains(&format!("argmax of {length} elements")), "{e}"),
            }
        }
    }
}

/// Programs of attention whose masks hide keys, and whether they hide a key from a query: of the query, key, numbers of both, and
/// the mask's elements.
type Hides = fn([usize; 2], [usize; 2], &[bool]) -> bool;

const HIDING: [(&str, &str, &str, Hides); 6] = [
    ("causal", "", "where(causal(S, T), s, -inf)", |[i, j], [s, t], _| j + s > i + t),
    ("kept keys", ", a: bool[T]", "where(a, s, -inf)", |[_, j], _, a| !a[j]),
    ("kept pairs", ", a: bool[S, T]", "where(a, s, -inf)", |[i, j], [_, t], a| !a[i * t + j]),
    ("kept keys, then causal", ", a: bool[T]", "where(causal(S, T), where(a, s, -inf), -inf)", |[i, j], [s, t], a| {
        !a[j] || j + s > i + t
    }),
    ("kept with about the least number", ", a: bool[S, T]", "where(a, s, -3.0e38)", |[i, j], [_, t], a| !a[i * t + j]),
    ("added", ", a: f32[S, T]", "s + a", |[i, j], [_, t], a| !a[i * t + j]),
];

/// What attention is by its formula, where hidden keys do not occur. A row that sees nothing gives zeros.
fn seen(shape: [usize; 4], [q, k, v]: [&[f64]; 3], hides: impl Fn(usize, usize) -> bool) -> Vec<f64> {
    let [s, t, d, e] = shape;
    let mut out = vec![0.0; s * e];
    for i in 0..s {
        let keys: Vec<usize> = (0..t).filter(|j| !hides(i, *j)).collect();
        let score = |j: &usize| (0..d).map(|c| q[i * d + c] * k[j * d + c]).sum::<f64>() * 0.25;
        let scores: Vec<f64> = keys.iter().map(score).collect();
        let highest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let weights: Vec<f64> = scores.iter().map(|x| (x - highest).exp()).collect();
        let sum: f64 = weights.iter().sum();
        for (c, y) in out[i * e..(i + 1) * e].iter_mut().enumerate() {
            *y = keys.iter().zip(&weights).map(|(j, w)| w / sum * v[j * e + c]).sum();
        }
    }
    out
}

/// A value that is NaN or infinite reaches the queries that see its key, and no others; nor does a key that is NaN.
#[test]
fn hidden_keys_contribute_nothing() {
    let (d, e) = (8, 5);
    for (elem, levels) in [(Elem::F32, compiled::levels()), (Elem::BF16, compiled::bf16_levels())] {
        for (name, extra, masked, hides) in HIDING {
            let source = format!(
                "model A {{\n    pub fn f(q: {elem}[S, {d}], k: {elem}[T, {d}], v: {elem}[T, {e}]{}) -> {elem}[S, {e}] {{\n\
                 let s = q @ k.T * 0.25\n        softmax({masked}) @ v\n    }}\n}}\n",
                extra.replace("f32", elem.name())
            );
            let module = optimised(&source);
            let models: Vec<_> = levels
                .iter()
                .map(|level| {
                    let tiles = compiled::scheduled(&module, *level);
                    assert!(tiles.kernels.iter().any(|k| k.name.starts_with("attention.")), "{name}, {level:?}");
                    let folder = tempfile::tempdir().unwrap();
                    let model = compiled::load_at(*level, &module, &BTreeMap::new(), folder.path());
                    (format!("{level:?}"), model, folder)
                })
                .collect();
            for (s, t) in [(1, 40), (3, 300), (4, 4), (40, 40), (64, 257), (70, 600), (257, 257)] {
                let mut rng = Random::new(11);
                let mut number = || rng.below(65) as f64 / 32.0 - 1.0;
                let mut tensor = |n: usize| (0..n).map(|_| number()).collect::<Vec<f64>>();
                let (q, k, v) = (tensor(s * d), tensor(t * d), tensor(t * e));
                // Entire rows and the first keys of others are masked too.
                let count = if extra.contains("[T]") {
                    t
                } else if extra.is_empty() {
                    0
                } else {
                    s * t
                };
                let kept: Vec<bool> =
                    (0..count).map(|i| i % t > 35 && i / t % 5 != 3 && !rng.word().is_multiple_of(3)).collect();
                let hidden = |i: usize, j: usize| hides([i, j], [s, t], &kept);
                for (number, key) in
                    [0, 1, 31, 32, 33, t / 2, 255, 256, t - 1].into_iter().filter(|j| *j < t).enumerate()
                {
                    let special = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY][number % 3];
                    let (mut k, mut v) = (k.clone(), v.clone());
                    v[key * e + number % e] = special;
                    if number % 2 == 0 {
                        v[(t - 1 - key) * e + number % e] = f64::NEG_INFINITY;
                    }
                    // An added mask masks only keys whose scores are not NaN.
                    if number % 4 == 3 && !name.starts_with("added") {
                        k[key * d + 1] = f64::NAN;
                    }
                    let of = |rows: usize, v: &[f64]| Tensor::from_floats(elem, vec![rows, v.len() / rows], v).unwrap();
                    let mut args = vec![of(s, &q), of(t, &k), of(t, &v)];
                    let shape = if extra.contains("[T]") { vec![t] } else { vec![s, t] };
                    if extra.contains("bool") {
                        let bits: Vec<i64> = kept.iter().map(|b| i64::from(*b)).collect();
                        args.push(Tensor::from_ints(Elem::Bool, shape, &bits).unwrap());
                    } else if !extra.is_empty() {
                        let added: Vec<f64> = kept.iter().map(|b| if *b { 0.0 } else { f64::NEG_INFINITY }).collect();
                        args.push(Tensor::from_floats(elem, shape, &added).unwrap());
                    }
                    // Rows without a key have the mean of all values if the masked scores are finite.
                    let sees = |i: usize| !name.contains("least") || (0..t).any(|j| !hidden(i, j));
                    let want = seen([s, t, d, e], [&q, &k, &v], |i, j| sees(i) && hidden(i, j));
                    let mut results = Vec::new();
                    if s < 64 {
                        results.push(("interpreted", interpreted(&module, "f", &args, &BTreeMap::new())));
                    }
                    for (level, model, _) in &models {
                        let got = model.session().unwrap().call(model.entry("f").unwrap(), &args).unwrap().remove(0);
                        results.push((level.as_str(), got));
                    }
                    for (by, got) in results {
                        let bound = if elem == Elem::BF16 { 1.0 / 64.0 } else { 4e-6 };
                        for (i, (g, w)) in got.to_f64().iter().zip(&want).enumerate() {
                            let rowless = !sees(i / e) && name.contains("least");
                            let same = g.is_nan() && w.is_nan() || g == w || (g - w).abs() <= bound * (1.0 + w.abs());
                            assert!(
                                same || rowless,
                                "{elem}, {name}, {by}, {s} x {t}, key {key} {special}: element {i} is {g}, not {w}"
                            );
                        }
                    }
                }
            }
        }
    }
}
