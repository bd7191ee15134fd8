//! Attention of few queries whose keys are divided among blocks by kernels that work in runs: that of `f32`, and of what does not fit tensor
//! cores. It is verified, assembled, run on the simulator in both orders of effects, and gives what the graph's interpreter gives in `f64`.

use std::collections::BTreeSet;

use attnc::codegen::ptx::compile;
use attnc::ptx::text::print;
use attnc::threads;
use attnc::tile::GpuArch;

use crate::fragments::assembles;
use crate::ptxas;
use crate::tensor_cores::{self, Near, Program, compare, for_gpu, gives_what_the_interpreter_gives};

/// What is looked at: a program, and the kinds of kernels that it has.
struct Case {
    program: Program,
    kinds: &'static [&'static str],
    near: Near,
}

/// A result of `f32`: attention's own roundings.
fn is_near(got: f64, want: f64) -> bool {
    got == want || (got.is_nan() && want.is_nan()) || (got - want).abs() <= 4e-6 * (1.0 + want.abs())
}

/// Kernels of a call of few queries alone, and of any number.
const ONE: &[&str] = &["attention_part", "combine_parts"];
const ANY: &[&str] = &["attention", "attention_part", "attention_part", "combine_parts"];
/// The same where keys lie side by side, so that queries are in lanes always.
const IN_LANES: &[&str] = &["attention", "attention_part", "combine_parts"];

/// One query to more than are few; no key, one, an odd number; parts that see none, some of several blocks, more queries than keys; masks,
/// sinks, caps; heads that are wide, odd or not known; operands in other orders, epilogues.
fn all() -> Vec<Case> {
    let mut all = Vec::new();
    let mut add = |name: &str, arguments: &str, result: &str, body: &str, kinds, sizes: &[&[(&'static str, i64)]]| {
        let near: Near = if result.starts_with("f32") { is_near } else { tensor_cores::is_near };
        all.push(Case { program: Program::new(name, arguments, result, body, sizes), kinds, near });
    };
    let operands = "q: f32[2, S, 24], k: f32[2, T, 24], v: f32[2, T, 20]";
    let (of_all, plain) = ("f32[2, S, 20]", "softmax(q @ k.T / sqrt(24)) @ v");
    let sizes: &[&[(&str, i64)]] = &[
        &[("S", 1), ("T", 0)],
        &[("S", 1), ("T", 1)],
        &[("S", 4), ("T", 131)],
        &[("S", 5), ("T", 67)],
        &[("S", 16), ("T", 70)],
        &[("S", 17), ("T", 70)],
    ];
    add("plain", operands, of_all, plain, ANY, sizes);
    // Parts of three blocks of keys and of two.
    let (long, one) = ("k: f32[2, 301, 24], v: f32[2, 301, 20]", "q: f32[2, 1, 24]");
    add("blocks", &format!("q: f32[2, S, 24], {long}"), of_all, plain, ANY, &[&[("S", 1)], &[("S", 6)]]);
    add("one", &format!("{one}, {long}"), "f32[2, 1, 20]", plain, ONE, &[&[]]);
    add("several", &format!("q: f32[2, 7, 24], {long}"), "f32[2, 7, 20]", plain, ONE, &[&[]]);
    let masked = |mask: &str| format!("softmax(where({mask}, q @ k.T / sqrt(24), -inf)) @ v");
    let positions = "let i = rearrange(iota(S), \"s -> s 1\")\n        let j = iota(T)\n        ";
    let few: &[&[(&str, i64)]] = &[&[("S", 1), ("T", 140)], &[("S", 9), ("T", 75)], &[("S", 9), ("T", 3)]];
    add("causal", operands, of_all, &masked("causal(S, T)"), ANY, few);
    for (name, more, mask) in [
        ("sliding", "", "i + (T - S) - j <= 40 and causal(S, T)"),
        ("no_key", "", "j > i + 1000"),
        ("ends", "", "j < 3 or j > T - 3"),
        ("documents", ", a: i32[S], b: i32[T]", "rearrange(a, \"s -> s 1\") == b + j / 64"),
    ] {
        add(name, &format!("{operands}{more}"), of_all, &format!("{positions}{}", masked(mask)), ANY, few);
    }
    for (name, more, mask) in [
        ("of_pairs", ", m: bool[S, T]", "m"),
        ("of_keys", ", m: bool[T]", "m"),
        ("of_queries", ", m: bool[2, S, 1]", "m"),
    ] {
        add(name, &format!("{operands}{more}"), of_all, &masked(mask), ANY, few);
    }
    let added = "softmax(q @ k.T / sqrt(24) + b) @ v";
    add("added", &format!("{operands}, b: f32[2, S, T]"), of_all, added, ANY, few);
    let capped = "softmax(where(causal(S, T), 30 * tanh(q @ k.T / sqrt(24) / 30), -inf)) @ v";
    add("capped", operands, of_all, capped, ANY, few);
    let sink = "let m = q @ k.T / sqrt(24)\n        softmax(concat(m, full<f32>(0, [2, S, 1]) + rearrange(a, \"h -> h 1 1\"), axis = -1))[.., 0..T] @ v";
    let with_none: &[&[(&str, i64)]] = &[&[("S", 1), ("T", 0)], &[("S", 1), ("T", 130)], &[("S", 9), ("T", 70)]];
    add("sink", &format!("{operands}, a: f32[2]"), of_all, sink, ANY, with_none);
    let scaled = "softmax(q @ k.T * c) @ v";
    add("scaled", &format!("{operands}, c: f32"), of_all, scaled, ANY, &[&[("S", 2), ("T", 80)]]);
    let groups = "q: f32[2, 3, S, 16], k: f32[2, 1, T, 16], v: f32[2, 1, T, 16]";
    let of_groups = "softmax(where(causal(S, T), q @ k.T / 4, -inf)) @ v";
    add("groups", groups, "f32[2, 3, S, 16]", of_groups, ANY, few);
    // Masks and sinks of heads that have one block, also where keys are left out by them; as many heads as have two blocks, or none in common.
    let one: &[&[(&str, i64)]] = &[&[("S", 1), ("T", 140)], &[("S", 2), ("T", 0)]];
    let of_pairs = "q @ k.T / 4 + rearrange(a, \"g h -> g h 1 1\") * cast<f32>(i - j) / 64";
    let masked = |scores: &str, mask: &str| format!("{positions}softmax(where({mask}, {scores}, -inf)) @ v");
    let (with_biases, close) = (format!("{groups}, a: f32[2, 3]"), "i + (T - S) - j < 50");
    add("biases_of_heads", &with_biases, "f32[2, 3, S, 16]", &masked(of_pairs, close), ANY, one);
    let by_head = "i + (T - S) - j < 30 * rearrange(iota(3), \"h -> h 1 1\") + 5";
    add("windows_of_heads", groups, "f32[2, 3, S, 16]", &masked("q @ k.T / 4", by_head), ANY, one);
    add(
        "masks_of_heads",
        &format!("{groups}, m: bool[3, S, T]"),
        "f32[2, 3, S, 16]",
        &masked("q @ k.T / 4", "m"),
        ANY,
        one,
    );
    let sinks = "let m = q @ k.T / 4\n        softmax(concat(m, full<f32>(0, [2, 3, S, 1]) + rearrange(a, \"g h -> g h 1 1\"), axis = -1))[.., 0..T] @ v";
    add("sinks_of_heads", &with_biases, "f32[2, 3, S, 16]", sinks, ANY, one);
    for heads in [11, 12] {
        let groups = format!("q: f32[{heads}, S, 8], k: f32[1, T, 8], v: f32[1, T, 8]");
        add(&format!("heads_{heads}"), &groups, &format!("f32[{heads}, S, 8]"), "softmax(q @ k.T / 3) @ v", ANY, one);
    }
    // Blocks enough, but each group still reads its keys once.
    let many = "q: f32[300, 2, 1, 8], k: f32[300, 1, T, 8], v: f32[300, 1, T, 8], r: f32[300, 2, 1, 8]";
    add(
        "many_groups",
        many,
        "f32[300, 2, 1, 8]",
        "softmax(q @ k.T / 3) @ v + r",
        &["attention"],
        &[&[("T", 70)], &[("T", 0)]],
    );
    // Wider than a tile of the result, so that several blocks have the same maxima; of a width that a call says.
    let wide = "q: f32[1, S, 270], k: f32[1, T, 270], v: f32[1, T, 300]";
    let sizes: &[&[(&str, i64)]] = &[&[("S", 1), ("T", 70)], &[("S", 5), ("T", 70)]];
    add("wide", wide, "f32[1, S, 300]", "softmax(q @ k.T / 16) @ v", ANY, sizes);
    let any = "q: f32[B, S, D], k: f32[B, T, D], v: f32[B, T, E]";
    let sizes: &[&[(&str, i64)]] = &[
        &[("B", 3), ("S", 1), ("T", 70), ("D", 5), ("E", 7)],
        &[("B", 1), ("S", 6), ("T", 3), ("D", 70), ("E", 1)],
        &[("B", 2), ("S", 2), ("T", 3), ("D", 0), ("E", 2)],
        &[("B", 0), ("S", 2), ("T", 3), ("D", 1), ("E", 2)],
        &[("B", 1), ("S", 0), ("T", 3), ("D", 1), ("E", 2)],
        &[("B", 1), ("S", 1), ("T", 3), ("D", 1), ("E", 0)],
    ];
    add("any", any, "f32[B, S, E]", "softmax(q @ k.T / 3.0) @ v", ANY, sizes);
    let halves = "q: bf16[2, S, 12], k: bf16[2, T, 12], v: bf16[2, T, 12]";
    let sizes: &[&[(&str, i64)]] = &[&[("S", 1), ("T", 140)], &[("S", 5), ("T", 70)]];
    add("odd_heads", halves, "bf16[2, S, 12]", "softmax(q @ k.T / 4) @ v", ANY, sizes);
    let turned = "q: f32[2, S, 24], k: f32[2, 24, T], v: f32[2, T, 20]";
    add("turned", turned, of_all, "softmax(q @ k / 4) @ v", IN_LANES, sizes);
    let rows = "q: f32[S, 48], k: f32[T, 48], v: f32[T, 48]";
    let heads = |name: &str| format!("rearrange({name}, \"s (h d) -> h s d\", h=2)");
    let (q, k, v) = (heads("q"), heads("k"), heads("v"));
    let body = format!("rearrange(softmax({q} @ {k}.T / 5) @ {v}, \"h s d -> s (h d)\")");
    add("heads_in_rows", rows, "f32[S, 48]", &body, ANY, sizes);
    let more = format!("{operands}, r: f32[2, S, 20]");
    add("epilogue", &more, of_all, "tanh(softmax(q @ k.T / 4) @ v) * 2 + r", ANY, sizes);
    all
}

/// The kinds of the kernels of a program, in order.
fn kinds(program: &Program, arch: GpuArch) -> Vec<String> {
    let tiles = for_gpu(&program.source, arch).unwrap_or_else(|e| panic!("{}: {e}", program.name));
    let mut kinds: Vec<String> = tiles.kernels.iter().filter_map(|k| Some(k.name.split('.').next()?.into())).collect();
    kinds.sort();
    kinds
}

#[test]
fn keys_of_few_queries_of_f32_are_divided() {
    for case in all() {
        for arch in GpuArch::ALL {
            assert_eq!(kinds(&case.program, arch), case.kinds, "{} {}", case.program.name, arch.name());
        }
    }
    // As many keys as queries, enough heads, few keys, more queries.
    for (q, k) in [
        ("[2, S, 16]", "[2, S, 16]"),
        ("[512, S, 16]", "[512, T, 16]"),
        ("[2, 1, 16]", "[2, 200, 16]"),
        ("[2, 17, 16]", "[2, T, 16]"),
    ] {
        let operands = format!("q: f32{q}, k: f32{k}, v: f32{k}");
        let program = Program::new("whole", &operands, &format!("f32{q}"), "softmax(q @ k.T / 4) @ v", &[]);
        for arch in GpuArch::ALL {
            let kinds: BTreeSet<String> = kinds(&program, arch).into_iter().collect();
            assert_eq!(kinds, BTreeSet::from(["attention".to_string()]), "{operands}");
        }
    }
}

/// Remarks say into how many parts keys are divided, or why they are not.
#[test]
fn remarks_tell_how_keys_are_divided() {
    let divided = |parts: i64| format!("calls of at most 16 queries divide their keys into {parts} parts");
    let whole = |why: &str| format!("keys are not divided among blocks: {why}");
    for (q, k, wanted) in [
        ("f32[32, S, 64]", "f32[32, T, 64]", divided(16)),
        ("f32[2, S, 64]", "f32[2, T, 64]", divided(32)),
        ("bf16[32, 1, 64]", "bf16[32, T, 64]", divided(8)),
        ("bf16[32, 1, 12]", "bf16[32, T, 12]", divided(16)),
        ("f32[2, S, 64]", "f32[2, S, 64]", whole("there are as many as queries")),
        ("f32[2, 17, 64]", "f32[2, T, 64]", whole("there are more than 16 queries")),
        ("f32[512, S, 64]", "f32[512, T, 64]", whole("heads alone are work for all multiprocessors")),
        ("bf16[512, S, 64]", "bf16[512, T, 64]", whole("heads alone are work for all multiprocessors")),
        ("f32[2, 1, 64]", "f32[2, 129, 64]", whole("there are too few")),
        ("f32[2, 1, 4]", "f32[2, 256, 4]", whole("reading them takes less than another launch")),
    ] {
        let operands = format!("q: {q}, k: {k}, v: {k}");
        let program = Program::new("remark", &operands, q, "softmax(q @ k.T / 4) @ v", &[]);
        let remarks = tensor_cores::remarks(&program.source, GpuArch::Sm90a);
        let remark = remarks.iter().find(|r| r.starts_with("@attention")).expect("an attention");
        assert!(remark.split("; ").any(|part| part == wanted), "{operands}: {remark}");
        let on_cores = q.starts_with("bf16") && q.ends_with("64]");
        assert_eq!(remark.contains("tensor cores by"), on_cores, "{remark}");
    }
}

#[test]
fn parts_give_what_the_interpreter_gives() {
    let only = std::env::var("ATTNC_PROGRAM").ok();
    let mut all = all();
    all.retain(|c| only.as_ref().is_none_or(|only| *only == c.program.name));
    // The text is the same for both kinds, but for how many parts there may be: every program runs for one of them.
    let pairs: Vec<(&Case, GpuArch)> = all.iter().zip(GpuArch::ALL.into_iter().cycle()).collect();
    threads::each(pairs, threads::all(), |(case, arch)| {
        let tiles = for_gpu(&case.program.source, arch).unwrap_or_else(|e| panic!("{}: {e}", case.program.name));
        gives_what_the_interpreter_gives(&case.program, &tiles, arch, case.near);
    });
}

/// Heads of a group share a block, which reads keys and values once: sectors of memory are counted.
#[test]
fn groups_read_their_keys_once() {
    let sectors = |heads: i64, groups: i64| {
        let operands =
            format!("q: f32[{groups}, {heads}, 1, 32], k: f32[{groups}, 1, 512, 32], v: f32[{groups}, 1, 512, 32]");
        let program = Program::new(
            "group",
            &operands,
            &format!("f32[{groups}, {heads}, 1, 32]"),
            "softmax(q @ k.T / 4) @ v",
            &[],
        );
        let tiles = for_gpu(&program.source, GpuArch::Sm80).expect("a schedule");
        let (module, infos) = compile(&tiles, GpuArch::Sm80).expect("PTX");
        let stats =
            compare(&program, &tiles, (&print(&module), &infos), &[], is_near).unwrap_or_else(|e| panic!("{e}"));
        stats.global_sectors
    };
    // 512 keys and values of 128 bytes; both orders of effects are counted.
    let cache = 2 * 2 * 512 * 4;
    let (group, apart) = (sectors(4, 1), sectors(1, 4));
    assert!((cache..cache * 3 / 2).contains(&group), "{group} of {cache}");
    assert!(apart >= 4 * cache, "{apart} of {cache}");
}

/// As many heads have one block as there is shared memory for.
#[test]
fn wide_heads_of_a_group_have_room() {
    for arch in GpuArch::ALL {
        for (heads, width, of_block) in [(8, 128, 8), (8, 192, 8), (8, 256, 4), (7, 250, 1), (10, 256, 2)] {
            let (q, k) = (format!("f32[2, {heads}, 1, {width}]"), format!("f32[2, 1, T, {width}]"));
            let body = "softmax(where(m, q @ k.T / 16, -inf)) @ v";
            let program = Program::new("wide", &format!("q: {q}, k: {k}, v: {k}, m: bool[1, T]"), &q, body, &[]);
            let tiles = for_gpu(&program.source, arch).unwrap_or_else(|e| panic!("{heads}, {width}: {e}"));
            let part = tiles.kernels.iter().find(|k| k.name == "attention_part.0").expect("a kernel of a part");
            assert_eq!(part.grid[1].step, of_block, "{heads}, {width}, {}", arch.name());
        }
    }
}

#[test]
fn kernels_of_parts_are_assembled_without_spills() {
    ptxas::with("kernels of parts of keys", |ptxas| {
        // Others differ from these in what is done to scores alone.
        let names = ["plain", "sliding", "documents", "sink", "biases_of_heads", "heads_12", "wide", "any"];
        let programs = all().into_iter().map(|c| c.program).filter(|p| names.contains(&p.name.as_str()));
        let programs: Vec<Program> = programs.collect();
        let all: Vec<(&Program, &str)> =
            programs.iter().flat_map(|p| ["sm_80", "sm_90a", "sm_100"].map(|target| (p, target))).collect();
        let said = threads::each(all, threads::all(), |(program, target)| {
            let arch = if target == "sm_90a" { GpuArch::Sm90a } else { GpuArch::Sm80 };
            let tiles = for_gpu(&program.source, arch).unwrap_or_else(|e| panic!("{}: {e}", program.name));
            let (module, _) = compile(&tiles, arch).unwrap_or_else(|e| panic!("{}: {e}", program.name));
            assembles(ptxas, &module, target).map_err(|e| format!("{}: {e}", program.name))
        });
        let wrong: Vec<String> = said.into_iter().filter_map(Result::err).collect();
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    });
}
