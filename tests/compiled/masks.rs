//! Masks and biases that are formulas over positions, computed in the kernel of their attention: compiled code against `f64`, at
//! every level of processors that runs here. Windows, documents, prefixes, padding, biases that fall with the distance, blocks;
//! integers that wrap, rows without a key, finite fills.

use std::collections::BTreeMap;

use attnc::lowering::graph::Options;
use attnc::passes;
use attnc::shape::Elem;
use attnc::tile::{PlanVariant, cost};

use crate::attention_compiled::{CAUSAL, Case, HIDDEN, PAIRS, PLAIN, causal, computes_its_formula};
use crate::{compiled, front};

/// Fewer and more queries than a tile and keys than a block, one of each and none, and several blocks that are skipped.
const SIZES: &[(usize, usize)] =
    &[(0, 3), (3, 0), (1, 1), (5, 5), (1, 300), (70, 300), (300, 70), (33, 600), (610, 610)];

/// The same for products of pairs.
const IN_PAIRS: &[(usize, usize)] = &[(64, 1), (70, 255), (96, 256), (64, 257), (100, 600), (257, 257), (610, 610)];

fn kept(x: f64, keep: bool) -> f64 {
    if keep { x } else { HIDDEN }
}

fn cases() -> Vec<Case> {
    let window = Case {
        name: "a sliding window",
        masked: "where(rearrange(iota(S), \"s -> s 1\") + (T - S) - iota(T) <= 40 and causal(S, T), s, -inf)",
        apply: |x, [h, i, j], [s, t], _| kept(causal(x, [h, i, j], [s, t]), i + t <= j + s + 40),
        sizes: SIZES,
        ..PLAIN
    };
    let documents = Case {
        name: "documents",
        extra: &["i32[S]", "i32[T]"],
        masked: "where(rearrange(a, \"s -> s 1\") == b, s, -inf)",
        apply: |x, [_, i, j], _, a| kept(x, a[0][i] == a[1][j]),
        sizes: SIZES,
        ..PLAIN
    };
    let falling = Case {
        name: "a bias that falls with the distance",
        extra: &["f32[2]"],
        masked: "s - rearrange(a, \"h -> h 1 1\") * cast<f32>(abs(i - j)) * 0.01",
        apply: |x, [h, i, j], _, a| x - a[0][h] * i.abs_diff(j) as f64 * 0.01,
        sizes: SIZES,
        ..PLAIN
    };
    vec![
        Case { name: "bf16, a sliding window", elem: Elem::BF16, sizes: IN_PAIRS, ..window },
        Case {
            name: "a sliding window, heads of any width",
            widths: ["D", "E"],
            sizes: &[(9, 5), (40, 300)],
            ..window
        },
        Case {
            name: "a sliding window, heads beside each other",
            widths: ["64", "64"],
            scores: "q @ k.T / sqrt(64)",
            scale: 0.125,
            sizes: &[(0, 3), (1, 7), (255, 33), (400, 400)],
            beside: true,
            ..window
        },
        window,
        Case {
            name: "near on both sides, and global places",
            masked: "where(abs(i - j) <= 20 or i < 1 or j < 2, s, -inf)",
            apply: |x, [_, i, j], _, _| kept(x, i.abs_diff(j) <= 20 || i < 1 || j < 2),
            sizes: SIZES,
            ..PLAIN
        },
        Case {
            name: "in blocks, as floats",
            masked: "where(abs(floor(cast<f32>(i) / 16) - floor(cast<f32>(j) / 16)) <= 1 or i / 16 == 0 or j >= T - 16, s, -inf)",
            apply: |x, [_, i, j], [_, t], _| kept(x, (i / 16).abs_diff(j / 16) <= 1 || i < 16 || j + 16 >= t),
            sizes: SIZES,
            ..PLAIN
        },
        Case {
            name: "in blocks, as integers",
            masked: "where(i / 24 == j / 24, s, -inf)",
            apply: |x, [_, i, j], _, _| kept(x, i / 24 == j / 24),
            sizes: SIZES,
            ..PLAIN
        },
        Case {
            name: "every seventh",
            masked: "where((i - j) % 7 == 0, s, -inf)",
            apply: |x, [_, i, j], _, _| kept(x, i.abs_diff(j) % 7 == 0),
            sizes: SIZES,
            ..PLAIN
        },
        Case {
            name: "what is near has a number instead",
            masked: "where(abs(i - j) > 3, s, -0.5)",
            apply: |x, [_, i, j], _, _| if i.abs_diff(j) > 3 { x } else { -0.5 },
            sizes: SIZES,
            ..PLAIN
        },
        Case {
            name: "hidden, then added to",
            masked: "where(abs(i - j) <= 9, s, -inf) + cast<f32>(j - i) * 0.01",
            apply: |x, [_, i, j], _, _| kept(x, i.abs_diff(j) <= 9) + (j as f64 - i as f64) * 0.01,
            sizes: SIZES,
            ..PLAIN
        },
        Case {
            name: "positions that wrap",
            masked: "where(i + 2147483640 > j, s, -inf)",
            apply: |x, [_, i, _], _, _| kept(x, i < 8),
            sizes: SIZES,
            ..PLAIN
        },
        Case {
            name: "products that wrap",
            masked: "where((i - j) * 300000007 <= 1000, s, -inf)",
            apply: |x, [_, i, j], _, _| kept(x, (i as i32 - j as i32).wrapping_mul(300_000_007) <= 1000),
            sizes: SIZES,
            ..PLAIN
        },
        Case {
            name: "sums that wrap, and wrap back",
            masked: "where(i + 2147483640 - 2147483640 >= minimum(j, 8), s, -inf)",
            apply: |x, [_, i, j], _, _| kept(x, i >= j.min(8)),
            sizes: SIZES,
            ..PLAIN
        },
        Case {
            name: "a mask with bounds, and one without",
            masked: "where(cast<bool>((i - j) % 2), where(i >= j - 5, s, -inf), -inf)",
            apply: |x, [_, i, j], _, _| kept(x, i.abs_diff(j) % 2 == 1 && i + 5 >= j),
            sizes: SIZES,
            ..PLAIN
        },
        Case {
            name: "a sign, times what would wrap",
            masked: "where((cast<i32>(sign(minimum(cast<f32>(i), 1000.0) + 100.0)) - 1101) * 2000000 < j, s, -inf)",
            apply: |x, [_, _, j], _, _| kept(x, (-1100i32).wrapping_mul(2_000_000) < j as i32),
            sizes: SIZES,
            ..PLAIN
        },
        Case {
            name: "no key at all",
            masked: "where(j > i + 1000, s, -inf)",
            apply: |_, _, _, _| HIDDEN,
            sizes: SIZES,
            ..PLAIN
        },
        Case {
            name: "a prefix",
            extra: &["i32"],
            masked: "where(j <= i or j / 50 < a, s, -inf)",
            apply: |x, [_, i, j], _, a| kept(x, j <= i || ((j / 50) as f64) < a[0][0]),
            sizes: SIZES,
            ..PLAIN
        },
        Case {
            name: "padding by lengths",
            extra: &["i32[2]"],
            masked: "where(rearrange(a, \"h -> h 1 1\") > j / 37 and i + 5 > 0, s, -inf)",
            apply: |x, [h, _, j], _, a| kept(x, a[0][h] > (j / 37) as f64),
            sizes: SIZES,
            ..PLAIN
        },
        Case {
            name: "bf16, documents, causal",
            elem: Elem::BF16,
            extra: &["i32[S]", "i32[T]"],
            masked: "where(rearrange(a, \"s -> s 1\") == b and causal(S, T), s, -inf)",
            apply: |x, [h, i, j], n, a| kept(causal(x, [h, i, j], n), a[0][i] == a[1][j]),
            sizes: PAIRS,
            ..CAUSAL
        },
        Case {
            name: "documents far apart, which wrap",
            masked: "where((rearrange(a, \"s -> s 1\") - b) * 1500000000 <= 0, s, -inf)",
            apply: |x, [_, i, j], _, a| {
                let (a, b) = (a[0][i] as i32, a[1][j] as i32);
                kept(x, (a - b).wrapping_mul(1_500_000_000) <= 0)
            },
            ..documents
        },
        documents,
        Case {
            name: "documents, but for what is given",
            extra: &["i32[S]", "bool[S, T]"],
            masked: "where((rearrange(a, \"s -> s 1\") > j / 100) or b, s, -inf)",
            apply: |x, [_, i, j], [_, t], a| kept(x, a[0][i] > (j / 100) as f64 || a[1][i * t + j] != 0.0),
            sizes: SIZES,
            ..PLAIN
        },
        Case {
            name: "bf16, a bias that falls with the distance",
            elem: Elem::BF16,
            extra: &["bf16[2]"],
            masked: "s - rearrange(a, \"h -> h 1 1\") * cast<bf16>(minimum(abs(i - j), 8))",
            apply: |x, [h, i, j], _, a| x - a[0][h] * i.abs_diff(j).min(8) as f64,
            sizes: &[(64, 1), (70, 255), (257, 257)],
            ..PLAIN
        },
        Case {
            name: "a bias that falls with the distance, in a window, capped",
            masked: "where(abs(i - j) < 50, 1.5 * tanh(s / 1.5) - rearrange(a, \"h -> h 1 1\") * cast<f32>(abs(i - j)) * 0.01, -inf)",
            apply: |x, [h, i, j], _, a| {
                let distance = i.abs_diff(j);
                kept(1.5 * (x / 1.5).tanh() - a[0][h] * distance as f64 * 0.01, distance < 50)
            },
            ..falling
        },
        falling,
    ]
}

#[test]
fn masks_that_are_formulas_compute_them() {
    computes_its_formula(cases());
}

/// The work of an attention under a mask, and the room in memory that it needs beside its arguments and result.
fn work(mask: &str, level: attnc::tile::Cpu, length: i64) -> cost::Cost {
    let source = format!(
        "model A {{\n    pub fn forward(q: f32[2, S, 64], k: f32[2, S, 64], v: f32[2, S, 64]) -> f32[2, S, 64] {{\n        \
         let i = rearrange(iota(S), \"s -> s 1\")\n        let j = iota(S)\n        \
         softmax(where({mask}, q @ k.T / 8, -inf)) @ v\n    }}\n}}\n"
    );
    let module = front::module("a.attn", &source, &Options::default()).unwrap_or_else(|e| panic!("{e}"));
    let module = compiled::optimised(module, &passes::Options::default());
    let tiles = compiled::scheduled(&module, level);
    assert!(tiles.plans.iter().all(|plan| plan.slots.is_empty()), "{mask}: something is stored");
    let sizes = BTreeMap::from([("S".to_string(), length)]);
    let walked = cost::plan(&tiles, "forward", PlanVariant::Plain, &sizes).unwrap_or_else(|e| panic!("{mask}: {e}"));
    let [launch] = walked.launches.as_slice() else { panic!("{mask}: several launches") };
    launch.cost
}

#[test]
fn windows_take_work_and_memory_in_proportion_to_the_length() {
    let masks = [
        "j <= i and i - j < 256",
        "abs(i - j) <= 128",
        "abs(i - j) <= 64 or j < 4",
        "i / 128 == j / 128",
        "j <= i and i / 64 - j / 64 <= 2",
    ];
    for level in compiled::levels() {
        for mask in masks {
            let [short, long] = [2048, 8192].map(|length| work(mask, level, length));
            assert!(short.exact && long.exact, "{mask}");
            let growth = long.flops as f64 / short.flops as f64;
            assert!(
                (growth - 4.0).abs() <= 0.15 * 4.0,
                "{mask}, {level:?}: {growth} times the work for 4 times the length"
            );
            let read = long.read as f64 / short.read as f64;
            assert!(read <= 4.1, "{mask}: {read} times the bytes");
        }
        // As a check of the count: without a window it is nearly the square.
        let [short, long] = [512, 1024].map(|length| work("j <= i", level, length));
        assert!(long.flops as f64 > 3.0 * short.flops as f64);
    }
}
