//! Does compiled attention compute what its formula says? Every kind of mask, scales of every kind, head widths from 1 to
//! beyond one tile, one key and several blocks of keys, heads behind and beside each other, at every level of processors that runs here, against `f64`.

use crate::{compiled, front};

use std::collections::BTreeMap;

use attnc::lowering::graph::Options;
use attnc::passes;
use attnc::random::Random;
use attnc::shape::Elem;
use attnc::tensor::Tensor;

/// Numbers in -2..2 that `bf16` has too.
fn floats(random: &mut Random, n: usize) -> Vec<f64> {
    (0..n).map(|_| random.below(257) as f64 / 64.0 - 2.0).collect()
}

/// A score after its masks: of the score, head, query, key, numbers of queries and keys, what the masks read.
pub(crate) type Masked = fn(f64, [usize; 3], [usize; 2], &[Vec<f64>]) -> f64;

/// One more score in a row: of head, query, number of queries, what sinks read.
pub(crate) type Sink = fn([usize; 2], usize, &[Vec<f64>]) -> f64;

#[derive(Clone, Copy)]
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) elem: Elem,
    /// Width of a head and of the result: numbers or dimensions.
    pub(crate) widths: [&'static str; 2],
    /// The scores, from `q` and `k`, and what they are before masks in terms of `q . k`.
    pub(crate) scores: &'static str,
    pub(crate) scale: f64,
    /// Types of `a`, `b`.
    pub(crate) extra: &'static [&'static str],
    /// What is given to softmax, from `s`.
    pub(crate) masked: &'static str,
    pub(crate) apply: Masked,
    /// What is multiplied with the values, of the masked scores `m`.
    pub(crate) weights: &'static str,
    /// The sink of a head's query, if there is one.
    pub(crate) sink: Option<Sink>,
    pub(crate) sizes: &'static [(usize, usize)],
    /// Do the heads lie beside each other, `[S, 2 * D]`?
    pub(crate) beside: bool,
}

pub(crate) const PLAIN: Case = Case {
    name: "plain",
    elem: Elem::F32,
    widths: ["8", "6"],
    scores: "q @ k.T * 0.35",
    scale: 0.35,
    extra: &[],
    masked: "s",
    apply: |x, _, _, _| x,
    weights: "softmax(m)",
    sink: None,
    sizes: &[(0, 3), (3, 0), (1, 1), (5, 5), (1, 300), (70, 300), (33, 600)],
    beside: false,
};

pub(crate) fn causal(x: f64, [_, i, j]: [usize; 3], [s, t]: [usize; 2]) -> f64 {
    if j + s <= i + t { x } else { f64::NEG_INFINITY }
}

pub(crate) const CAUSAL: Case = Case {
    name: "causal",
    masked: "where(causal(S, T), s, -inf)",
    apply: |x, at, n, _| causal(x, at, n),
    sizes: &[(0, 3), (3, 0), (1, 1), (5, 5), (1, 300), (300, 70), (290, 290), (40, 600), (530, 530)],
    ..PLAIN
};

pub(crate) const HIDDEN: f64 = f64::NEG_INFINITY;

/// Around as many queries as are multiplied in pairs of `bf16`, by even and odd numbers of keys.
pub(crate) const PAIRS: &[(usize, usize)] =
    &[(63, 70), (64, 0), (64, 1), (64, 2), (65, 33), (70, 255), (96, 256), (64, 257), (100, 600), (257, 257)];

fn cases() -> Vec<Case> {
    let few: &[(usize, usize)] = &[(1, 1), (9, 5), (40, 300)];
    vec![
        PLAIN,
        CAUSAL,
        Case { name: "an exact scale", scores: "q @ k.T * 0.125", scale: 0.125, ..CAUSAL },
        Case { name: "no scale", scores: "q @ k.T", scale: 1.0, sizes: few, ..CAUSAL },
        Case { name: "a large scale", scores: "q @ k.T * 3.0", scale: 3.0, sizes: few, ..CAUSAL },
        Case { name: "a negative scale", scores: "q @ k.T * -0.5", scale: -0.5, sizes: few, ..PLAIN },
        Case { name: "heads of one", widths: ["1", "1"], ..CAUSAL },
        Case { name: "odd heads", widths: ["5", "3"], ..CAUSAL },
        Case {
            name: "heads of 64",
            widths: ["64", "64"],
            scores: "q @ k.T / sqrt(64)",
            scale: 0.125,
            sizes: &[(1, 7), (33, 33), (300, 300)],
            ..CAUSAL
        },
        Case {
            name: "heads beside each other",
            widths: ["64", "64"],
            scores: "q @ k.T / sqrt(64)",
            scale: 0.125,
            sizes: &[(0, 3), (3, 0), (1, 7), (255, 33), (256, 300), (300, 300)],
            beside: true,
            ..CAUSAL
        },
        Case {
            name: "wide heads",
            widths: ["300", "270"],
            scores: "q @ k.T * 0.05",
            scale: 0.05,
            sizes: few,
            ..CAUSAL
        },
        Case { name: "heads of any width", widths: ["D", "E"], sizes: few, ..CAUSAL },
        Case { name: "bf16", elem: Elem::BF16, ..CAUSAL },
        Case {
            name: "bf16, heads beside each other",
            elem: Elem::BF16,
            sizes: &[(0, 3), (3, 0), (63, 33), (64, 300), (70, 70)],
            beside: true,
            ..PLAIN
        },
        Case { name: "bf16, plain", elem: Elem::BF16, sizes: PAIRS, ..PLAIN },
        Case {
            name: "bf16, heads of 64",
            elem: Elem::BF16,
            widths: ["64", "33"],
            scores: "q @ k.T / 8",
            scale: 0.125,
            sizes: PAIRS,
            ..CAUSAL
        },
        Case { name: "bf16, odd heads", elem: Elem::BF16, widths: ["5", "3"], sizes: PAIRS, ..CAUSAL },
        Case {
            name: "bf16, a negative scale",
            elem: Elem::BF16,
            scores: "q @ k.T * -0.5",
            scale: -0.5,
            sizes: PAIRS,
            ..PLAIN
        },
        Case {
            name: "bf16, kept with a number",
            elem: Elem::BF16,
            extra: &["bool[S, T]"],
            masked: "where(a, s, -1.5)",
            apply: |x, [_, i, j], [_, t], a| if a[0][i * t + j] != 0.0 { x } else { -1.5 },
            sizes: PAIRS,
            ..PLAIN
        },
        Case {
            name: "bf16, kept keys, then causal",
            elem: Elem::BF16,
            extra: &["bool[T]"],
            masked: "where(causal(S, T), where(a, s, -inf), -inf)",
            apply: |x, at, n, a| causal(if a[0][at[2]] != 0.0 { x } else { HIDDEN }, at, n),
            sizes: PAIRS,
            ..CAUSAL
        },
        Case {
            name: "bf16, wide",
            elem: Elem::BF16,
            widths: ["300", "270"],
            scores: "q @ k.T * 0.05",
            scale: 0.05,
            sizes: &[(1, 1), (9, 5), (40, 300), (65, 301)],
            ..PLAIN
        },
        Case {
            name: "added",
            extra: &["f32[S, T]"],
            masked: "s + a",
            apply: |x, [_, i, j], [_, t], a| x + a[0][i * t + j],
            ..PLAIN
        },
        Case {
            name: "added for each key of a head",
            extra: &["f32[2, 1, T]"],
            masked: "s + a",
            apply: |x, [h, _, j], [_, t], a| x + a[0][h * t + j],
            ..PLAIN
        },
        Case {
            name: "added, turned, then causal",
            extra: &["f32[2, T, S]"],
            masked: "where(causal(S, T), s + a.T, -inf)",
            apply: |x, [h, i, j], [s, t], a| causal(x + a[0][(h * t + j) * s + i], [h, i, j], [s, t]),
            ..CAUSAL
        },
        Case {
            name: "kept",
            extra: &["bool[S, T]"],
            masked: "where(a, s, -inf)",
            apply: |x, [_, i, j], [_, t], a| if a[0][i * t + j] != 0.0 { x } else { HIDDEN },
            ..PLAIN
        },
        Case {
            name: "kept with a number",
            extra: &["bool[S, T]"],
            masked: "where(a, s, -1.5)",
            apply: |x, [_, i, j], [_, t], a| if a[0][i * t + j] != 0.0 { x } else { -1.5 },
            ..PLAIN
        },
        Case {
            // Fully masked rows have the mean of all values, not zeros.
            name: "kept with about the least number",
            extra: &["bool[S, T]"],
            masked: "where(a, s, -3.4e38)",
            apply: |x, [_, i, j], [_, t], a| if a[0][i * t + j] != 0.0 { x } else { -3.4e38 },
            ..PLAIN
        },
        Case {
            name: "kept keys, then causal",
            extra: &["bool[T]"],
            masked: "where(causal(S, T), where(a, s, -inf), -inf)",
            apply: |x, at, n, a| causal(if a[0][at[2]] != 0.0 { x } else { HIDDEN }, at, n),
            ..CAUSAL
        },
        Case {
            name: "causal, then kept with a number, then added",
            extra: &["bool[2, S, T]", "f32[S, T]"],
            masked: "where(a, where(causal(S, T), s, -inf), -3.0) + b",
            apply: |x, [h, i, j], [s, t], a| {
                let x = causal(x, [h, i, j], [s, t]);
                (if a[0][(h * s + i) * t + j] != 0.0 { x } else { -3.0 }) + a[1][i * t + j]
            },
            sizes: &[(0, 3), (1, 1), (5, 5), (20, 300), (300, 20)],
            ..PLAIN
        },
    ]
}

/// A sink for each head, behind the scores.
const BEHIND: &str = "softmax(concat(m, full<f32>(0, [2, S, 1]) + rearrange(a, \"h -> h 1 1\"), axis = -1))[.., 0..T]";
/// The same in `bf16`.
const BEHIND_BF16: &str =
    "softmax(concat(m, full<bf16>(0, [2, S, 1]) + rearrange(a, \"h -> h 1 1\"), axis = -1))[.., 0..T]";

/// Soft caps, sinks, and weights of another type than the scores.
fn caps_and_sinks() -> Vec<Case> {
    let few: &[(usize, usize)] = &[(0, 3), (3, 0), (1, 1), (9, 5), (40, 300)];
    let capped =
        Case { name: "capped", masked: "1.5 * tanh(s / 1.5)", apply: |x, _, _, _| 1.5 * (x / 1.5).tanh(), ..PLAIN };
    let sink =
        Case { name: "sinks", extra: &["f32[2]"], weights: BEHIND, sink: Some(|[h, _], _, a| a[0][h]), ..CAUSAL };
    vec![
        Case {
            name: "capped, then causal",
            masked: "where(causal(S, T), tanh(s / 0.75) * 0.75, -inf)",
            apply: |x, at, n, _| causal(0.75 * (x / 0.75).tanh(), at, n),
            ..CAUSAL
        },
        Case {
            name: "capped by tanh alone, heads beside each other",
            widths: ["64", "64"],
            masked: "tanh(s)",
            apply: |x, _, _, _| x.tanh(),
            sizes: &[(0, 3), (3, 0), (1, 7), (255, 33), (256, 300), (300, 300)],
            beside: true,
            ..PLAIN
        },
        Case {
            // A key that is masked before the soft cap has a score anyway.
            name: "causal, then capped, then added",
            extra: &["f32[S, T]"],
            masked: "2.0 * tanh(where(causal(S, T), s, -inf) * 0.5) + a",
            apply: |x, [h, i, j], [s, t], a| 2.0 * (causal(x, [h, i, j], [s, t]) * 0.5).tanh() + a[0][i * t + j],
            sizes: &[(0, 3), (1, 1), (5, 5), (20, 300), (300, 20)],
            ..PLAIN
        },
        Case {
            name: "capped by what is given, kept with a number",
            extra: &["bool[S, T]", "f32"],
            masked: "where(a, tanh(s) * b, -0.5)",
            apply: |x, [_, i, j], [_, t], a| if a[0][i * t + j] != 0.0 { x.tanh() * a[1][0] } else { -0.5 },
            sizes: few,
            ..PLAIN
        },
        Case { name: "bf16, capped", elem: Elem::BF16, sizes: PAIRS, ..capped },
        sink,
        Case {
            name: "a sink for each query, before the scores that are kept",
            extra: &["f32[2, S, 1]", "bool[S, T]"],
            masked: "where(b, s, -inf)",
            apply: |x, [_, i, j], [_, t], a| if a[1][i * t + j] != 0.0 { x } else { HIDDEN },
            weights: "softmax(concat(a, m, axis = -1))[.., 1..T + 1]",
            sink: Some(|[h, i], s, a| a[0][h * s + i]),
            ..PLAIN
        },
        Case {
            name: "a number as the sink, and a mask that is added",
            extra: &["f32[S, T]"],
            masked: "s + a",
            apply: |x, [_, i, j], [_, t], a| x + a[0][i * t + j],
            weights: "softmax(pad(m, axis = -1, low = 0, high = 1, value = 0.75))[.., 0..T]",
            sink: Some(|_, _, _| 0.75),
            sizes: few,
            ..PLAIN
        },
        Case {
            name: "no sink after all",
            weights: "softmax(pad(m, axis = -1, low = 0, high = 1, value = -inf))[.., 0..T]",
            sink: Some(|_, _, _| HIDDEN),
            sizes: few,
            ..CAUSAL
        },
        Case {
            name: "bf16, sinks, heads of 64",
            elem: Elem::BF16,
            widths: ["64", "33"],
            scores: "cast<f32>(q @ k.T) / 8",
            scale: 0.125,
            extra: &["f32[2]"],
            weights: "cast<bf16>(softmax(concat(m, full<f32>(0, [2, S, 1]) + rearrange(a, \"h -> h 1 1\"), axis = -1)))[.., 0..T]",
            sink: Some(|[h, _], _, a| a[0][h]),
            sizes: PAIRS,
            ..CAUSAL
        },
        Case {
            name: "bf16, capped, causal, sinks",
            elem: Elem::BF16,
            extra: &["bf16[2]"],
            masked: "where(causal(S, T), 1.5 * tanh(s / 1.5), -inf)",
            apply: |x, at, n, _| causal(1.5 * (x / 1.5).tanh(), at, n),
            weights: BEHIND_BF16,
            sink: Some(|[h, _], _, a| a[0][h]),
            sizes: PAIRS,
            ..CAUSAL
        },
        Case {
            name: "bf16, weights in f32",
            elem: Elem::BF16,
            masked: "where(causal(S, T), cast<f32>(s), -inf)",
            weights: "cast<bf16>(softmax(m))",
            sizes: PAIRS,
            ..CAUSAL
        },
    ]
}

const HEADS: usize = 2;

/// What the symbols of a shape are.
fn size_of(symbol: &str, s: usize, t: usize) -> usize {
    match symbol {
        "S" => s,
        "T" => t,
        "D" => 11,
        "E" => 9,
        n => n.parse().unwrap(),
    }
}

fn input(rng: &mut Random, ty: &str, s: usize, t: usize) -> (Tensor, Vec<f64>) {
    let (elem, dims) = ty.trim_end_matches(']').split_once('[').unwrap_or((ty, ""));
    let shape: Vec<usize> = dims.split(", ").filter(|d| !d.is_empty()).map(|d| size_of(d, s, t)).collect();
    let n = shape.iter().product();
    if elem == "bool" {
        // Entire rows are masked too.
        let width = shape.last().copied().unwrap_or(1).max(1);
        let bits: Vec<i64> = (0..n).map(|i| i64::from(i / width % 5 != 3 && !rng.word().is_multiple_of(3))).collect();
        let floats = bits.iter().map(|b| *b as f64).collect();
        return (Tensor::from_ints(Elem::Bool, shape, &bits).unwrap(), floats);
    }
    if elem == "i32" {
        let ints: Vec<i64> = (0..n).map(|i| (i as i64 / 90 + i64::from(rng.below(20) == 0)) % 4).collect();
        let floats = ints.iter().map(|n| *n as f64).collect();
        return (Tensor::from_ints(Elem::I32, shape, &ints).unwrap(), floats);
    }
    let values = floats(rng, n);
    let elem = if elem.starts_with("bf16") { Elem::BF16 } else { Elem::F32 };
    (Tensor::from_floats(elem, shape, &values).unwrap(), values)
}

/// Few queries, which are computed one by one, and around as many as lie beside each other, by keys of less than a block, of
/// blocks, and of more.
const QUERIES: [(usize, usize); 10] =
    [(1, 1), (1, 17), (1, 256), (1, 257), (2, 1), (2, 33), (4, 600), (5, 300), (31, 40), (33, 300)];

/// Heads behind each other, put beside each other.
fn beside(x: &Tensor, values: &[f64]) -> Tensor {
    let (rows, width) = (x.shape()[1], x.shape()[2]);
    let at = |i: usize| values[(i / width % HEADS * rows + i / width / HEADS) * width + i % width];
    let values: Vec<f64> = (0..values.len()).map(at).collect();
    Tensor::from_floats(x.elem(), vec![rows, HEADS * width], &values).unwrap()
}

/// The formula, row by row; a row without a key gives zeros.
fn formula(case: &Case, [s, t, d, e]: [usize; 4], q: &[f64], k: &[f64], v: &[f64], extra: &[Vec<f64>]) -> Vec<f64> {
    let mut out = vec![0.0; HEADS * s * e];
    for h in 0..HEADS {
        for i in 0..s {
            let row = &q[(h * s + i) * d..][..d];
            let score = |j: usize| {
                let dot: f64 = row.iter().zip(&k[(h * t + j) * d..][..d]).map(|(x, y)| x * y).sum();
                (case.apply)(dot * case.scale, [h, i, j], [s, t], extra)
            };
            let scores: Vec<f64> = (0..t).map(score).collect();
            let sink = case.sink.map_or(HIDDEN, |sink| sink([h, i], s, extra));
            let highest = scores.iter().copied().fold(sink, f64::max);
            if highest == f64::NEG_INFINITY {
                continue;
            }
            let weights: Vec<f64> = scores.iter().map(|x| (x - highest).exp()).collect();
            let sum: f64 = weights.iter().sum::<f64>() + (sink - highest).exp();
            for (j, w) in weights.iter().enumerate() {
                for c in 0..e {
                    out[(h * s + i) * e + c] += w / sum * v[(h * t + j) * e + c];
                }
            }
        }
    }
    out
}

#[test]
fn attention_computes_its_formula() {
    computes_its_formula(cases());
}

#[test]
fn attention_with_caps_and_sinks_computes_its_formula() {
    computes_its_formula(caps_and_sinks());
}

pub(crate) fn computes_its_formula(cases: Vec<Case>) {
    let (folder, other_folder) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    for (number, case) in cases.into_iter().enumerate() {
        let (name, [d, e]) = (case.name, case.widths);
        let elem = case.elem;
        let extra: String = ["a", "b"].iter().zip(case.extra).map(|(n, ty)| format!(", {n}: {ty}")).collect();
        let of = |rows: &str, width: &str| match case.beside {
            true => format!("{elem}[{rows}, 2 * {width}]"),
            false => format!("{elem}[2, {rows}, {width}]"),
        };
        let types = [of("S", d), of("T", d), of("T", e)];
        let apart = |x| format!("        let {x} = rearrange({x}, \"s (h d) -> h s d\", h = 2)\n");
        let apart = if case.beside { ["q", "k", "v"].map(apart).concat() } else { String::new() };
        let source = format!(
            "model A {{\n    pub fn forward(q: {}, k: {}, v: {}{extra}) -> {elem}[2, S, {e}] {{\n\
             {apart}        let i = rearrange(iota(S), \"s -> s 1\")\n        let j = iota(T)\n        let s = {}\n        let m = {}\n        {} @ v\n    }}\n}}\n",
            types[0], types[1], types[2], case.scores, case.masked, case.weights
        );
        let optimised = |source: &str| {
            let module = front::module("a.attn", source, &Options::default()).unwrap_or_else(|e| panic!("{name}: {e}"));
            compiled::optimised(module, &passes::Options::default())
        };
        // One query may be known when it is compiled.
        let (module, one_query) = (optimised(&source), optimised(&source.replace('S', "1")));
        let levels = if elem == Elem::BF16 { compiled::bf16_levels() } else { compiled::levels() };
        for level in levels {
            // Without optimisation, compiling takes its time.
            let first = level == compiled::levels()[0] || level.has(attnc::tile::Feature::Bf16);
            if cfg!(debug_assertions) && !first && number % 3 != 0 {
                continue;
            }
            let kernels = |module| -> Vec<String> {
                compiled::scheduled(module, level).kernels.iter().map(|k| k.name.clone()).collect()
            };
            let all = kernels(&module);
            let (attention, others): (Vec<_>, Vec<_>) = all.iter().partition(|k| k.starts_with("attention."));
            // Copies of keys and values come before it only where they lie apart or are not `f32`.
            let is_copied = case.beside || elem != Elem::F32;
            let in_pairs = level.has(attnc::tile::Feature::Bf16) && d.parse().is_ok_and(|d: usize| d.is_multiple_of(2));
            let laid = |k: &&String| k.starts_with("heads.") || in_pairs && k.starts_with("values.");
            assert!(others.iter().all(laid), "{name}: {all:?}\n{source}");
            assert_eq!(!others.is_empty(), is_copied, "{name}: {all:?}");
            // For one query, for tiles of queries, and for those with copies.
            assert_eq!(attention.len(), if is_copied { 3 } else { 2 }, "{name}: {all:?}");
            assert_eq!(kernels(&one_query).len(), 1, "{name}: {:?}", kernels(&one_query));
            let several = compiled::load_at(level, &module, &BTreeMap::new(), folder.path());
            let one = (!cfg!(debug_assertions) || number % 3 == 0)
                .then(|| compiled::load_at(level, &one_query, &BTreeMap::new(), other_folder.path()));
            let calls = case.sizes.iter().chain(&QUERIES).map(|at| (&several, at));
            let single = case.sizes.iter().chain(&QUERIES).filter(|(s, _)| *s == 1);
            let single = one.iter().flat_map(|one| single.clone().map(move |at| (one, at)));
            for (model, (s, t)) in calls.chain(single) {
                let mut session = model.session().unwrap();
                let what = format!("{name}, {level:?}, {s} x {t}");
                let (s, t) = (*s, *t);
                let mut rng = Random::new(7);
                let behind = [format!("{elem}[2, S, {d}]"), format!("{elem}[2, T, {d}]"), format!("{elem}[2, T, {e}]")];
                let given = behind.iter().map(String::as_str).chain(case.extra.iter().copied());
                let (mut args, values): (Vec<Tensor>, Vec<Vec<f64>>) =
                    given.map(|ty| input(&mut rng, ty, s, t)).unzip();
                if case.beside {
                    for (x, values) in args.iter_mut().zip(&values).take(3) {
                        *x = beside(x, values);
                    }
                }
                let out =
                    session.call(model.entry("forward").unwrap(), &args).unwrap_or_else(|e| panic!("{what}: {e}"));
                let sizes = [s, t, size_of(d, s, t), size_of(e, s, t)];
                let want = formula(&case, sizes, &values[0], &values[1], &values[2], &values[3..]);
                let got = out[0].to_f64();
                assert_eq!(got.len(), want.len(), "{what}");
                let bound = if elem == Elem::BF16 { 1.0 / 128.0 } else { 2e-6 };
                for (i, (g, w)) in got.iter().zip(&want).enumerate() {
                    assert!((g - w).abs() <= bound * (1.0 + w.abs()), "{what}: element {i} is {g}, not {w}");
                }
            }
        }
    }
}
