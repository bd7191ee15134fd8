//! What is done to the result of a product on tensor cores before it is stored: kernels that read other tensors have no spills, read and write
//! neighbours together where these lie at a multiple of their size, and give what the interpreter gives.

use attnc::codegen::ptx::compile;
use attnc::ptx::text::print;
use attnc::threads;
use attnc::tile::GpuArch;

use crate::fragments::assembles;
use crate::ptxas;
use crate::tensor_cores::{Program, cases, for_gpu, gives_what_the_interpreter_gives};

/// Is a result what was wanted? Each operation of `bf16` rounds to 8 bits; another element is off by about 1.
fn is_near(got: f64, want: f64) -> bool {
    (got - want).abs() <= 0.05 * (1.0 + want.abs())
}

/// Sizes of runs: rows that end within the second half of a block's tile.
const SIZES: &[&[(&str, i64)]] = &[&[("M", 69)]];

/// A product of so many rows, steps and columns, and what is done to it: operands `x`, `w` (transposed) and others.
fn program(name: &str, elem: &str, [k, n]: [i64; 2], others: &str, result: &str, body: &str) -> Program {
    let operands = format!("x: {elem}[M, {k}], w: {elem}[{n}, {k}]{others}");
    Program::new(name, &operands, result, body, SIZES)
}

/// Epilogues of products of `k` steps and `n` columns.
fn programs([k, n]: [i64; 2]) -> Vec<Program> {
    let mut all = Vec::new();
    let mut add = |name: &str, elem: &str, others: &[&str], to: &str, body: &str| {
        let others: String = others.iter().map(|o| format!(", {}", o.replace('N', &n.to_string()))).collect();
        all.push(program(name, elem, [k, n], &others, &format!("{to}[M, {n}]"), body));
    };
    add("bias", "bf16", &["b: bf16[N]"], "bf16", "x @ w.T / 16 + b");
    add("residual", "bf16", &["r: bf16[M, N]"], "bf16", "x @ w.T / 16 + r");
    add("bias_gelu", "f16", &["b: f16[N]"], "f16", "gelu_tanh(x @ w.T / 16 + b)");
    add("bias_residual", "bf16", &["b: bf16[N]", "r: bf16[M, N]"], "bf16", "x @ w.T / 16 + b + r");
    add("two", "f16", &["g: f16[M, N]", "r: f16[M, N]"], "f16", "x @ w.T / 16 * g + r");
    let three = ["g: bf16[M, N]", "r: bf16[M, N]", "h: bf16[M, N]"];
    add("three", "bf16", &three, "bf16", "(x @ w.T / 16 + r) * g + h");
    add("gate", "bf16", &["g: bf16[M, N]"], "bf16", "silu(g) * (x @ w.T / 16)");
    add("two_products", "bf16", &[&format!("u: bf16[N, {k}]")], "bf16", "silu(x @ w.T / 16) * (x @ u.T / 16)");
    add("floats", "bf16", &["b: f32[N]", "r: f32[M, N]"], "f32", "cast<f32>(x @ w.T / 16) + b + r");
    add("two_of_floats", "f16", &["g: f32[M, N]", "r: f32[M, N]"], "f32", "cast<f32>(x @ w.T / 16) * g + r");
    add("rows", "bf16", &["a: bf16[M, 1]"], "bf16", "x @ w.T / 16 * a");
    let both = ["a: f16[M, 1]", "b: f16[N]", "r: f16[M, N]"];
    add("rows_and_columns", "f16", &both, "f16", "x @ w.T / 16 * a + b + r");
    add("chosen", "bf16", &["m: bool[M, N]", "r: bf16[M, N]"], "bf16", "where(m, x @ w.T / 16, r)");
    add("transposed", "bf16", &["r: bf16[N, M]"], "bf16", "x @ w.T / 16 + r.T");
    all
}

/// Other places than whole tensors: columns of wider ones, and results in another order.
fn places() -> Vec<Program> {
    let mut all = Vec::new();
    let mut add = |name: &str, others: &str, result: &str, body: &str| {
        all.push(program(name, "bf16", [64, 520], others, result, body));
    };
    let whole = "bf16[M, 520]";
    add("from_8", ", y: bf16[M, 528]", whole, "x @ w.T / 16 + y[.., 8..528]");
    add("from_2", ", y: bf16[M, 522]", whole, "x @ w.T / 16 + y[.., 2..522]");
    add("from_1", ", y: bf16[M, 522]", whole, "x @ w.T / 16 + y[.., 1..521]");
    add("of_odd_rows", ", y: bf16[M, 521]", whole, "x @ w.T / 16 + y[.., 0..520]");
    add("bias_from_1", ", b: bf16[522]", whole, "x @ w.T / 16 + b[1..521]");
    add("to_columns", ", b: bf16[520]", "bf16[520, M]", "(x @ w.T / 16 + b).T");
    let heads = "rearrange(x @ w.T / 16 + b, \"m (h d) -> h m d\", h = 2)";
    add("to_heads", ", b: bf16[520]", "bf16[2, M, 260]", heads);
    all
}

/// How many accesses of 8, 4, 2 bytes and 1 byte a consumer's threads have to what is read beside the product, and to its result, by name.
const ACCESSES: &[(&str, i64, [usize; 4], [usize; 4])] = &[
    // 64 rows by 256 columns: 64 pairs for each thread, of 32 different columns, in 2 rows.
    ("bias", 518, [0, 32, 0, 0], [0, 64, 0, 0]),
    ("residual", 518, [0, 64, 0, 0], [0, 64, 0, 0]),
    ("bias_residual", 518, [0, 96, 0, 0], [0, 64, 0, 0]),
    ("floats", 518, [96, 0, 0, 0], [64, 0, 0, 0]),
    ("rows", 518, [0, 0, 2, 0], [0, 64, 0, 0]),
    ("rows_and_columns", 518, [0, 96, 2, 0], [0, 64, 0, 0]),
    ("chosen", 518, [0, 64, 0, 128], [0, 64, 0, 0]),
    ("transposed", 518, [0, 0, 128, 0], [0, 64, 0, 0]),
    // Rows of an odd length.
    ("bias", 517, [0, 0, 64, 0], [0, 0, 128, 0]),
    ("residual", 517, [0, 0, 128, 0], [0, 0, 128, 0]),
    ("floats", 517, [0, 192, 0, 0], [0, 128, 0, 0]),
    ("from_8", 0, [0, 64, 0, 0], [0, 64, 0, 0]),
    ("from_2", 0, [0, 0, 128, 0], [0, 64, 0, 0]),
    ("from_1", 0, [0, 0, 128, 0], [0, 64, 0, 0]),
    ("of_odd_rows", 0, [0, 0, 128, 0], [0, 64, 0, 0]),
    ("bias_from_1", 0, [0, 0, 64, 0], [0, 64, 0, 0]),
    ("to_columns", 0, [0, 32, 0, 0], [0, 0, 128, 0]),
];

/// The kernel with the largest tiles, which two consumers compute; calls with few rows have another.
fn of_many_rows(text: &str) -> &str {
    let mut kernels = text.split(".visible .entry").skip(1);
    kernels.find(|k| k.contains("wgmma.mma_async.sync.aligned.m64n256k16")).unwrap_or_else(|| panic!("{text}"))
}

#[test]
fn neighbours_are_accessed_together_where_they_are_aligned() {
    for (name, cols, reads, writes) in ACCESSES {
        let all = if *cols == 0 { places() } else { programs([64, *cols]) };
        let program = all.iter().find(|p| p.name == *name).expect("a program");
        let tiles = for_gpu(&program.source, GpuArch::Sm90a).unwrap_or_else(|e| panic!("{name}: {e}"));
        let (module, _) = compile(&tiles, GpuArch::Sm90a).unwrap_or_else(|e| panic!("{name}: {e}"));
        let text = of_many_rows(&print(&module)).to_string();
        let count = |what: &str, types: &[&str]| {
            let is_one = |l: &&str| {
                let word = l.split_whitespace().find(|w| w.starts_with(what)).unwrap_or_default();
                types.iter().any(|ty| word.ends_with(ty) && word.contains(".v2.") == ty.starts_with(".v2"))
            };
            text.lines().filter(is_one).count() / 2
        };
        let counts = |what: &str| [&[".v2.f32"][..], &[".b32", ".f32"], &[".b16"], &[".u8"]].map(|ty| count(what, ty));
        assert_eq!((counts("ld.global"), counts("st.global")), (*reads, *writes), "{name} of {cols} columns");
    }
}

/// Reads and writes of a consumer, in their order: what does not fit the registers is read after the stores of what was read before.
#[test]
fn what_is_read_at_a_time_is_bounded() {
    for (name, runs) in [
        ("bias_residual", &[("ld", 96), ("st", 64)][..]),
        ("three", &[("ld", 96), ("st", 32), ("ld", 96), ("st", 32)]),
        ("two_of_floats", &[("ld", 44), ("st", 22), ("ld", 44), ("st", 22), ("ld", 40), ("st", 20)]),
    ] {
        let program = programs([64, 518]).into_iter().find(|p| p.name == name).expect("a program");
        let tiles = for_gpu(&program.source, GpuArch::Sm90a).unwrap_or_else(|e| panic!("{name}: {e}"));
        let (module, _) = compile(&tiles, GpuArch::Sm90a).unwrap_or_else(|e| panic!("{name}: {e}"));
        let text = of_many_rows(&print(&module)).to_string();
        let accesses = text.lines().filter_map(|l| l.split_whitespace().find(|w| w.contains(".global")));
        let accesses: Vec<&str> = accesses.filter(|w| w.starts_with("ld") || w.starts_with("st")).collect();
        let counted: Vec<(&str, usize)> =
            accesses.chunk_by(|a, b| a[..2] == b[..2]).map(|run| (&run[0][..2], run.len())).collect();
        // Two consumers, one after the other.
        assert_eq!(counted, [runs, runs].concat(), "{name}");
        // Only what waits for nothing may be moved across stores.
        assert_eq!(text.contains("ld.global.nc"), runs.len() == 2, "{name}");
    }
}

#[test]
fn epilogues_give_what_the_interpreter_gives() {
    let only = std::env::var("ATTNC_PROGRAM").ok();
    // Columns of whole pairs, and not: three of the largest tiles, the last of which they do not fill.
    let mut programs: Vec<Program> =
        [programs([64, 518]), programs([64, 517]), places()].into_iter().flatten().collect();
    programs.retain(|p| only.as_ref().is_none_or(|only| *only == p.name));
    threads::each(cases(&programs), threads::all(), |(program, arch)| {
        let tiles = for_gpu(&program.source, arch).unwrap_or_else(|e| panic!("{}: {e}", program.name));
        gives_what_the_interpreter_gives(program, &tiles, arch, is_near);
    });
}

#[test]
fn epilogues_are_assembled_without_spills() {
    ptxas::with("products with epilogues", |ptxas| {
        // Columns of an odd number are read one by one, which takes most registers: of those, what reads most.
        let mut odd = programs([768, 1003]);
        odd.retain(|p| {
            ["bias_residual", "three", "two_of_floats", "rows_and_columns", "chosen"].contains(&p.name.as_str())
        });
        let programs: Vec<Program> = programs([768, 3072]).into_iter().chain(odd).collect();
        let said = threads::each(cases(&programs), threads::all(), |(program, arch)| {
            let tiles = for_gpu(&program.source, arch).unwrap_or_else(|e| panic!("{}: {e}", program.name));
            let (module, _) = compile(&tiles, arch).unwrap_or_else(|e| panic!("{}: {e}", program.name));
            let processors: &[&str] = if arch == GpuArch::Sm80 { &["sm_80", "sm_100"] } else { &["sm_90a"] };
            let said = processors.iter().try_for_each(|processor| assembles(ptxas, &module, processor));
            said.map_err(|e| format!("{}:\n{}\n{e}", program.name, program.source))
        });
        let wrong: Vec<String> = said.into_iter().filter_map(Result::err).collect();
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    });
}
