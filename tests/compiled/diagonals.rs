//! Tables that are read at row minus column: once for each diagonal, and the matrix is a view. Values, errors and memory.

use std::collections::BTreeMap;

use attnc::ir::Op;
use attnc::shape::Elem;
use attnc::tensor::Tensor;
use attnc::tile::{PlanVariant, cost};

use crate::everywhere::Everywhere;
use crate::{compiled, front};

/// Entries of a table, and columns.
const TABLE: [usize; 2] = [41, 2];

fn entry(row: i64, column: usize) -> f64 {
    (row * 7 % 19) as f64 * 0.25 + column as f64 * 10.0
}

fn table() -> Tensor {
    let rows = 0..TABLE[0] as i64;
    let values: Vec<f64> = rows.flat_map(|r| (0..TABLE[1]).map(move |c| entry(r, c))).collect();
    Tensor::from_floats(Elem::F32, TABLE.to_vec(), &values).unwrap()
}

fn is_by_diagonals(program: &Everywhere) -> bool {
    let mut insts = program.optimised.functions.iter().flat_map(|f| f.insts());
    insts.any(|(_, _, d)| matches!(d.op, Op::Windows { stride: -1, .. }))
}

/// An index of row i and column j, of so many rows and columns, and of a number.
type Index = fn([i64; 2], [i64; 2], i64) -> i64;

const INDICES: [(&str, Index); 8] = [
    ("minimum(maximum(i - j, -20), 20) + 20", |[i, j], _, _| (i - j).clamp(-20, 20) + 20),
    // All entries of the table are needed, or more than there are.
    ("j - i + (S - 1)", |[i, j], [s, _], _| j - i + s - 1),
    ("i - (j + n) + 5", |[i, j], _, n| i - j - n + 5),
    ("(rearrange(iota(S) + n, \"s -> s 1\") - rearrange(iota(T), \"t -> 1 t\")) % 11", |[i, j], _, n| {
        (i + n - j).rem_euclid(11)
    }),
    ("cast<i32>(floor(log(cast<f32>(abs(i - j) + 1)) * 4.0))", |[i, j], _, _| {
        (((i - j).abs() as f32 + 1.0).ln() * 4.0).floor() as i64
    }),
    // Buckets of both directions, as of T5; and numbers beside what is compared.
    ("where(j > i, 20, 0) + minimum(abs(i - j), 19)", |[i, j], _, _| {
        if j > i { 20 + (i - j).abs().min(19) } else { (i - j).abs().min(19) }
    }),
    ("where(j + 3 <= i - 1, 7, where(i == j, 1, 2))", |[i, j], _, _| if j + 3 < i { 7 } else { 2 - i64::from(i == j) }),
    ("(i + 2147483647 - j + 2147483647 + 2) % 41", |[i, j], _, _| (i - j).rem_euclid(41)),
];

#[test]
fn a_table_is_read_once_for_each_diagonal() {
    for (n, (index, of)) in INDICES.iter().enumerate() {
        for elem in if n == 0 { &["i32", "i64"][..] } else { &["i32"] } {
            let index = if *elem == "i64" { format!("cast<i64>({index})") } else { (*index).to_string() };
            let source = format!(
                "model M {{\n    table: f32[41, 2]\n    pub fn f(x: f32[S], y: f32[T], n: i32) -> f32[S, 2, T] {{\n        \
                 let i = rearrange(iota(S), \"s -> s 1\")\n        let j = iota(T)\n        \
                 rearrange(table[{index}], \"s t h -> s h t\") * 2\n    }}\n}}\n"
            );
            let program = Everywhere::of(&source, &[("table", table())]);
            assert!(is_by_diagonals(&program), "{source}");
            let calls = [[0, 0], [0, 60], [60, 0], [1, 1], [7, 6], [20, 22], [21, 22]];
            let added: &[i64] = if index.contains('n') { &[0, 3] } else { &[0] };
            for ([s, t], n) in calls.iter().flat_map(|at| added.iter().map(|n| (*at, *n))) {
                let given = |n: i64| Tensor::from_floats(Elem::F32, vec![n as usize], &vec![0.0; n as usize]).unwrap();
                let number = Tensor::from_ints(Elem::I32, Vec::new(), &[n]).unwrap();
                let at: Vec<[i64; 2]> = (0..s).flat_map(|i| (0..t).map(move |j| [i, j])).collect();
                let is_right = at.iter().all(|at| (0..TABLE[0] as i64).contains(&of(*at, [s, t], n)));
                let got = program.call("f", &[given(s), given(t), number]);
                assert_eq!(got.is_ok(), is_right, "{index}, {s} x {t}, {n}: {got:?}");
                let Ok(got) = got else { continue };
                let row = |i: i64| (0..TABLE[1]).flat_map(move |h| (0..t).map(move |j| (i, h, j)));
                let want = (0..s).flat_map(row).map(|(i, h, j)| 2.0 * entry(of([i, j], [s, t], n), h));
                assert_eq!(got[0].to_f64(), want.collect::<Vec<f64>>(), "{index}, {s} x {t}, {n}");
            }
        }
    }
}

/// What depends on more than the difference is read for each pair.
#[test]
fn other_indices_are_read_one_by_one() {
    for index in [
        "abs(i + j)",
        // As i and j may wrap, so may what is compared.
        "where(j + 2147483647 > i, 5, 0)",
        "cast<i32>(i + 1073741824 + 1073741824 > j)",
        "where(j < i - 1073741824 - 1073741824, 5, 0)",
        "where(i + j > i, 5, 0)",
        "i - 2 * j + 20",
        "where(i > 3, i - j + 20, 0)",
        "cast<i32>(cast<f32>(i) - cast<f32>(j)) + 20",
    ] {
        let source = format!(
            "model M {{\n    table: f32[41, 2]\n    pub fn f(x: f32[S], y: f32[T]) -> f32[S, T, 2] {{\n        \
             let i = rearrange(iota(S), \"s -> s 1\")\n        let j = iota(T)\n        table[{index}]\n    }}\n}}\n"
        );
        assert!(!is_by_diagonals(&Everywhere::of(&source, &[("table", table())])), "{index}");
    }
    // A table that may be empty, and a single row.
    for (types, rows) in [("K", "S"), ("41", "1")] {
        let source = format!(
            "model M<K = K> {{\n    pub fn f(x: f32[S], table: f32[{types}, 2]) -> f32[{rows}, S, 2] {{\n        \
             table[rearrange(iota({rows}), \"s -> s 1\") - iota(S)]\n    }}\n}}\n"
        );
        let source = source.replace("<K = K>", "");
        assert!(!is_by_diagonals(&Everywhere::of(&source, &[])), "{source}");
    }
}

/// Attention under a learned bias, against sums in f64: one and several tiles of queries and blocks of keys, under a mask besides.
#[test]
fn biases_of_relative_positions() {
    for (masked, sees) in [("s", false), ("where(causal(S, T), s, -inf)", true)] {
        let source = format!(
            "model M {{\n    table: f32[41, 2]\n    pub fn f(q: f32[2, S, 8], k: f32[2, T, 8], v: f32[2, T, 8]) -> f32[2, S, 8] {{\n        \
             let offset = iota(T) - rearrange(iota(S), \"s -> s 1\")\n        \
             let bias = rearrange(table[minimum(maximum(offset, -20), 20) + 20], \"s t h -> h s t\")\n        \
             let s = q @ k.T * 0.125 + bias\n        softmax({masked}) @ v\n    }}\n}}\n"
        );
        let module = front::module("a.attn", &source, &Default::default()).unwrap_or_else(|e| panic!("{e}"));
        let program = Everywhere::of_module(module, &[("table", table())]);
        assert!(is_by_diagonals(&program));
        let folder = tempfile::tempdir().unwrap();
        let params = BTreeMap::from([("table".to_string(), table())]);
        let levels = compiled::levels();
        let models = levels.iter().map(|l| compiled::load_at(*l, &program.optimised, &params, folder.path()));
        let models: Vec<_> = models.collect();
        let few = [[0usize, 3], [3, 0], [1, 1], [33, 40]].map(|at| (at, None));
        let many = models.iter().flat_map(|m| [[1, 70], [70, 300], [300, 70], [97, 97]].map(|at| (at, Some(m))));
        for ([s, t], model) in few.into_iter().chain(many) {
            let made = |rows: usize, by: usize| -> Vec<f64> {
                (0..2 * rows * 8).map(|n| (n * by % 37) as f64 / 16.0 - 1.0).collect()
            };
            let (q, k, v) = (made(s, 5), made(t, 11), made(t, 17));
            let tensor = |rows: usize, x: &[f64]| Tensor::from_floats(Elem::F32, vec![2, rows, 8], x).unwrap();
            let args = [tensor(s, &q), tensor(t, &k), tensor(t, &v)];
            let got = match model {
                Some(model) => model.session().unwrap().call(model.entry("f").unwrap(), &args).unwrap(),
                None => program.call("f", &args).unwrap(),
            };
            let mut want = Vec::new();
            for (h, i) in (0..2).flat_map(|h| (0..s).map(move |i| (h, i))) {
                let score = |j: usize| {
                    let dot: f64 = (0..8).map(|c| q[(h * s + i) * 8 + c] * k[(h * t + j) * 8 + c]).sum();
                    let offset = (j as i64 - i as i64).clamp(-20, 20) + 20;
                    let hidden = sees && j + s > i + t;
                    if hidden { f64::NEG_INFINITY } else { dot * 0.125 + entry(offset, h) }
                };
                let scores: Vec<f64> = (0..t).map(score).collect();
                let most = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                let weight = |j: usize| if most.is_finite() { (scores[j] - most).exp() } else { 0.0 };
                let sum: f64 = (0..t).map(weight).sum();
                for c in 0..8 {
                    let x: f64 = (0..t).map(|j| weight(j) * v[(h * t + j) * 8 + c]).sum();
                    want.push(if sum == 0.0 { 0.0 } else { x / sum });
                }
            }
            for (n, (x, y)) in want.iter().zip(got[0].to_f64()).enumerate() {
                assert!((x - y).abs() < 1e-4, "{masked}, {s} x {t}: {n} is {y}, not {x}");
            }
        }
    }
}

/// T5's bias: what is stored of it grows like the length, not like its square, at each level of processors.
#[test]
fn buckets_take_memory_in_proportion_to_the_length() {
    let source = "use std.nn\n\nmodel M {\n    bias: RelativeBias<4, 32>\n
    pub fn f(q: f32[4, S, 16], k: f32[4, S, 16], v: f32[4, S, 16]) -> f32[4, S, 16] {
        softmax(q @ k.T + bias.both_sides(iota(S))) @ v
    }
    pub fn g(q: f32[4, S, 16], k: f32[4, S, 16], v: f32[4, S, 16]) -> f32[4, S, 16] {
        softmax(where(causal(S, S), q @ k.T + bias.before(iota(S)), -inf)) @ v
    }\n}\n";
    let module = front::module("a.attn", source, &Default::default()).unwrap_or_else(|e| panic!("{e}"));
    let module = compiled::optimised(module, &Default::default());
    for level in compiled::levels() {
        let tiles = compiled::scheduled(&module, level);
        for name in ["f", "g"] {
            let stored = |length: i64| {
                let sizes = BTreeMap::from([("S".to_string(), length)]);
                let plan = cost::plan(&tiles, name, PlanVariant::Plain, &sizes).unwrap_or_else(|e| panic!("{e}"));
                plan.launches.iter().filter(|l| !l.kernel.starts_with("attention")).map(|l| l.cost.written).sum::<u64>()
            };
            let [short, long] = [1000, 4000].map(stored);
            assert!(short > 0 && long <= 4 * short, "{level:?}, {name}: {short} bytes, then {long}");
        }
    }
}
