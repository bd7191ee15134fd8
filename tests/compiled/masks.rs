//! Masks and biases that are formulas over positions, computed in the kernel of their attention: compiled code against `f64`, at
//! every level of processors that runs here. Windows, documents, prefixes, padding, biases that fall with the distance, blocks;
//! integers that wrap, rows without a key, finite fills.

use std::collections::BTreeMap;

use attnc::ir;
use attnc::lowering::graph::Options;
use attnc::lowering::tile::lower;
use attnc::observe::{Collected, Watch};
use attnc::passes;
use attnc::shape::Elem;
use attnc::tensor::Tensor;
use attnc::tile::verify::{VerifiedModule, verify};
use attnc::tile::{Cpu, Machine, PlanVariant, ScheduleOptions, cost, interp, schedule_for};

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
            name: "bounds that are read, as floats",
            extra: &["f32[S]", "f32[T]"],
            masked: "where(rearrange(a, \"s -> s 1\") > cast<f32>(j) / 128 - 2 or b > cast<f32>(i) / 1024 + 0.5, s, -inf)",
            apply: |x, [_, i, j], _, a| kept(x, a[0][i] > j as f64 / 128.0 - 2.0 || a[1][j] > i as f64 / 1024.0 + 0.5),
            sizes: SIZES,
            ..PLAIN
        },
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

/// A program whose mask reads one number for each query.
fn reading(mask: &str) -> String {
    format!(
        "model A {{\n    pub fn forward(q: f32[1, S, 8], k: f32[1, S, 8], v: f32[1, S, 8], a: f32[S]) -> f32[1, S, 8] {{\n        \
         let i = rearrange(iota(S), \"s -> s 1\")\n        let j = iota(S)\n        let a = rearrange(a, \"s -> s 1\")\n        \
         softmax(where({mask}, q @ k.T, -inf)) @ v\n    }}\n}}\n"
    )
}

/// Bounds of numbers that are not finite, or that are very far from 0, prove nothing.
#[test]
fn special_numbers_that_a_mask_reads() {
    type Keeps = fn(f32, usize) -> bool;
    let masks: [(&str, Keeps); 3] = [
        ("abs(a - cast<f32>(j)) >= 0", |a, j| (a - j as f32).abs() >= 0.0),
        ("floor(cast<f32>(j) / 32) == a", |a, j| (j / 32) as f32 == a),
        ("a + 3e38 >= cast<f32>(j) and cast<f32>(j) - a < 3e38", |a, j| a + 3e38 >= j as f32 && j as f32 - a < 3e38),
    ];
    let n = 200;
    let special = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::MAX, f32::MIN, -f32::NAN];
    let a: Vec<f32> =
        (0..n).map(|i| if i / 40 % 2 == 0 && i % 7 < 6 { special[i % 7] } else { (i * i % 9) as f32 }).collect();
    let v: Vec<f32> = (0..8 * n).map(|x| (x * 7 % 31) as f32 - 15.0).collect();
    // All scores are 0: the result is the mean of the values that are seen.
    let zeros = Tensor::from_f32(vec![1, n, 8], &vec![0.0; 8 * n]).unwrap();
    let args =
        [zeros.clone(), zeros, Tensor::from_f32(vec![1, n, 8], &v).unwrap(), Tensor::from_f32(vec![n], &a).unwrap()];
    let folder = tempfile::tempdir().unwrap();
    for (mask, keeps) in masks {
        let module = front::module("a.attn", &reading(mask), &Options::default()).unwrap_or_else(|e| panic!("{e}"));
        let module = compiled::optimised(module, &passes::Options::default());
        for level in compiled::levels() {
            // Bounds of what is read are computed, for a sum or difference of it has some.
            let text = attnc::tile::text::print(&compiled::scheduled(&module, level));
            assert!(text.contains("reduce_min"), "{mask}, {level:?}");
            let model = compiled::load_at(level, &module, &BTreeMap::new(), folder.path());
            let mut session = model.session().unwrap();
            let out = session.call(model.entry("forward").unwrap(), &args).unwrap();
            for (i, row) in out[0].to_f64().chunks(8).enumerate() {
                let seen: Vec<usize> = (0..n).filter(|j| keeps(a[i], *j)).collect();
                for (c, got) in row.iter().enumerate() {
                    let sum: f64 = seen.iter().map(|j| f64::from(v[8 * j + c])).sum();
                    let want = if seen.is_empty() { 0.0 } else { sum / seen.len() as f64 };
                    assert!((got - want).abs() < 1e-4, "{mask}, {level:?}: query {i} gives {got}, not {want}");
                }
            }
        }
    }
}

/// Blocks of keys that are drawn by lot for each block of queries: the others are not visited.
#[test]
fn blocks_that_are_drawn_are_all_that_is_visited() {
    let (n, part) = (512, 64);
    let args = |lot: &dyn Fn(usize) -> f32| {
        let x = Tensor::from_f32(vec![1, n, 8], &vec![0.25; 8 * n]).unwrap();
        let lots: Vec<f32> = (0..n).map(|i| lot(i / part)).collect();
        vec![x.clone(), x.clone(), x, Tensor::from_f32(vec![n], &lots).unwrap()]
    };
    // A difference of what is read is bounded, too.
    let near = "abs(floor(cast<f32>(i) / 64) - floor(cast<f32>(j) / 64)) <= 1";
    for drawn in ["floor(cast<f32>(j) / 64) == a", "floor(cast<f32>(j) / 64) - a == 0"] {
        let mask = &format!("{near} or {drawn}");
        let module = front::module("a.attn", &reading(mask), &Options::default()).unwrap_or_else(|e| panic!("{e}"));
        let module = compiled::optimised(module, &passes::Options::default());
        for level in compiled::levels() {
            let tiles = compiled::scheduled(&module, level);
            let work = |lot: &dyn Fn(usize) -> f32| {
                let call = interp::Call {
                    plan: "forward",
                    variant: PlanVariant::Plain,
                    symbols: &BTreeMap::from([("S".to_string(), 512)]),
                    args: &args(lot),
                    params: &BTreeMap::<String, Tensor>::new(),
                    limits: Default::default(),
                };
                let outcome = interp::run(verify(&tiles).unwrap(), &call).unwrap_or_else(|e| panic!("{e}"));
                outcome.flops as f64
            };
            // Of eight blocks of queries six see three blocks of keys, two see two; a lot adds one, if it is not near.
            let (own, far, all) = (work(&|b| b as f32), work(&|b| ((b + 4) % 8) as f32), work(&|_| f32::NAN));
            assert!((far / own - 30.0 / 22.0).abs() < 0.05, "{level:?}: {own} {far}");
            // Where nothing is known, the mask is computed in all 64.
            assert!((2.8..3.3).contains(&(all / own)), "{level:?}: {own} {all}");
        }
    }
}

/// What remarks tell about the visited blocks: the sizes that are assumed, then visited blocks, all blocks, queries of a
/// tile, keys of a block, and blocks without a mask.
fn visited_blocks(tiles: &VerifiedModule, level: Cpu) -> Vec<(String, [i64; 5])> {
    let options = ScheduleOptions { remarks: true, ..ScheduleOptions::default() };
    let made = schedule_for(tiles, &Machine::from(level), &options, &Watch::default(), &mut Collected::default());
    let remarks = made.unwrap_or_else(|e| panic!("{e}")).1;
    let parts = remarks.iter().flat_map(|remark| remark.text.split(": ").flat_map(|part| part.split("; ")));
    let of_blocks = |part: &str| {
        let start = part.rfind("= 4096, ").map_or(0, |at| at + "= 4096, ".len());
        let numbers = part[start..].split([' ', '(', ',']).filter_map(|word| word.parse().ok()).collect::<Vec<i64>>();
        Some((part[..start].to_string(), numbers.try_into().ok()?))
    };
    parts
        .filter(|part| part.contains("are visited"))
        .map(|part| of_blocks(part).unwrap_or_else(|| panic!("{part}")))
        .collect()
}

/// The numbers of blocks that are told are those of the pairs that a mask keeps, where bounds are exact.
#[test]
fn the_blocks_that_are_told_are_those_that_are_seen() {
    type Keeps = fn(i64, i64) -> bool;
    let masks: [(&str, Keeps); 4] = [
        ("j <= i and i - j < 256", |i, j| j <= i && i - j < 256),
        ("abs(i - j) <= 100", |i, j| (i - j).abs() <= 100),
        ("i / 128 == j / 128", |i, j| i / 128 == j / 128),
        ("j <= i or j < 70", |i, j| j <= i || j < 70),
    ];
    for (mask, keeps) in masks {
        // One of them at the length that stands for all.
        let lengths: &[&str] = if mask == "abs(i - j) <= 100" { &["S", "130", "1", "0"] } else { &["777"] };
        for rows in lengths {
            let source = format!(
                "model A {{\n    pub fn forward(q: f32[2, {rows}, 64], k: f32[2, {rows}, 64], v: f32[2, {rows}, 64]) -> f32[2, {rows}, 64] {{\n        \
                 let i = rearrange(iota({rows}), \"s -> s 1\")\n        let j = iota({rows})\n        \
                 softmax(where({mask}, q @ k.T / 8, -inf)) @ v\n    }}\n}}\n"
            );
            let module = front::module("a.attn", &source, &Options::default()).unwrap_or_else(|e| panic!("{e}"));
            let module = compiled::optimised(module, &passes::Options::default());
            let tiles = lower(ir::verify(&module).unwrap()).unwrap();
            for level in compiled::levels() {
                let told = visited_blocks(&tiles, level);
                let n = rows.parse().unwrap_or(4096);
                if n < 2 {
                    assert!(told.iter().all(|(_, [_, all, ..])| *all <= 1), "{told:?}");
                    continue;
                }
                let [(assumed, [own_visited, own_all, queries, keys, own_whole])] = told.as_slice() else {
                    panic!("{mask}, {rows}: {told:?}")
                };
                assert_eq!(assumed, if *rows == "S" { "where S = 4096, " } else { "" });
                let (mut all, mut visited, mut whole) = (0i64, 0i64, 0i64);
                for first in (0..n).step_by(*queries as usize) {
                    for key in (0..n).step_by(*keys as usize) {
                        let of = |i: i64| (key..n.min(key + keys)).map(move |j| keeps(i, j));
                        let kept = || (first..n.min(first + queries)).flat_map(of);
                        all += 1;
                        visited += i64::from(kept().any(|keep| keep));
                        whole += i64::from(kept().all(|keep| keep));
                    }
                }
                assert_eq!((*own_all, *own_visited, *own_whole), (all, visited, whole), "{mask}, {rows}, {level:?}");
            }
        }
    }
}
