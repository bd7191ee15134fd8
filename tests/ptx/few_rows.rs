//! Products of few rows: the right operand is read once, 16 bytes at a time, by all threads of a block.

use attnc::codegen::ptx::compile;
use attnc::ptx::text::print;
use attnc::shape::Elem;
use attnc::threads;
use attnc::tile::{self, GpuArch, WeightFormat};

use crate::packed::{Case, simulated};
use crate::ptxas;

const fn case(elem: Elem, rows: usize, [steps, cols]: [usize; 2], transposed: bool, format: WeightFormat) -> Case {
    Case { elem, rows: Some(rows), steps, cols, transposed, format }
}

const PLAIN: WeightFormat = WeightFormat::F32;

/// Steps side by side and columns side by side; more and fewer steps than threads take at a time, columns that end within a tile; the most rows
/// and one; integers, in whole groups and not, an odd number of steps in half bytes.
const CASES: [Case; 16] = [
    case(Elem::BF16, 1, [1096, 40], true, PLAIN),
    case(Elem::BF16, 8, [72, 200], true, PLAIN),
    case(Elem::F32, 1, [260, 17], true, PLAIN),
    case(Elem::F32, 3, [12, 70], true, PLAIN),
    case(Elem::F16, 2, [520, 9], true, PLAIN),
    case(Elem::BF16, 1, [1000, 40], false, PLAIN),
    case(Elem::BF16, 4, [33, 200], false, PLAIN),
    case(Elem::F32, 8, [150, 36], false, PLAIN),
    case(Elem::F16, 1, [7, 24], false, PLAIN),
    case(Elem::F32, 1, [1, 4], false, PLAIN),
    case(Elem::F32, 1, [200, 100], false, WeightFormat::Bf16),
    case(Elem::F32, 1, [72, 100], false, WeightFormat::Int8),
    case(Elem::BF16, 2, [300, 40], true, WeightFormat::Int8),
    case(Elem::F32, 1, [64, 64], true, WeightFormat::Int4),
    case(Elem::F32, 2, [91, 100], false, WeightFormat::Int4),
    case(Elem::BF16, 1, [1, 3], false, WeightFormat::Int4),
];

/// Is a product of a module of the mode?
fn is_split(tiles: &tile::Module) -> bool {
    tile::text::print(tiles).contains("mode=split")
}

#[test]
fn products_of_few_rows_read_the_right_operand_in_chunks() {
    let all: Vec<(Case, GpuArch)> = CASES.into_iter().zip(GpuArch::ALL.into_iter().cycle()).collect();
    let done = threads::each(all, threads::all(), |(case, arch)| {
        let one = || {
            let tiles = case.scheduled(arch)?;
            let text = print(&compile(&tiles, arch)?.0);
            if !is_split(&tiles) || !text.contains("ld.global.nc.v4.b32") {
                return Err(format!("it is read otherwise:\n{}", tile::text::print(&tiles)));
            }
            case.compare(&tiles, &simulated(&text, &tiles, arch)?, case.rows.unwrap_or(1))
        };
        one().map_err(|why| format!("{case:?} {}: {why}", arch.name()))
    });
    let wrong: Vec<String> = done.into_iter().filter_map(Result::err).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Rows that begin anywhere, and more rows than registers for their sums, are multiplied as usual.
#[test]
fn what_lies_in_no_chunks_is_multiplied_as_usual() {
    for case in [
        case(Elem::BF16, 1, [33, 65], true, PLAIN),
        case(Elem::BF16, 1, [33, 65], false, PLAIN),
        case(Elem::F32, 9, [64, 64], true, PLAIN),
        case(Elem::F32, 3, [64, 64], false, WeightFormat::Int8),
    ] {
        let tiles = case.scheduled(GpuArch::Sm80).expect("a schedule");
        assert!(!is_split(&tiles), "{case:?}");
        let text = print(&compile(&tiles, GpuArch::Sm80).expect("PTX").0);
        let simulated = simulated(&text, &tiles, GpuArch::Sm80).expect("a module");
        case.compare(&tiles, &simulated, case.rows.unwrap_or(1)).unwrap_or_else(|e| panic!("{case:?}: {e}"));
    }
}

#[test]
fn faults_in_products_of_few_rows_are_seen() {
    for (case, words, by) in [
        // A sum over half of a warp; no barriers; numbers of one bit more.
        (CASES[0], ", 16, 31,", ", 8, 31,"),
        (CASES[5], "bar.sync 0;", ""),
        (CASES[11], ", 24;", ", 23;"),
    ] {
        let arch = GpuArch::Sm80;
        let tiles = case.scheduled(arch).expect("a schedule");
        let text = print(&compile(&tiles, arch).expect("PTX").0);
        let changed = text.replace(words, by);
        assert!(changed != text, "no line has `{words}`");
        let given = simulated(&changed, &tiles, arch).and_then(|s| case.compare(&tiles, &s, case.rows.unwrap_or(1)));
        assert!(given.is_err(), "{case:?}: `{words}` is not noticed");
    }
}

/// Products of a step of a Llama-style model of 1 B parameters, hidden 2048: no spills.
#[test]
fn products_of_few_rows_are_assembled_without_spills() {
    ptxas::with("products of few rows", |ptxas| {
        let cases = [
            case(Elem::BF16, 1, [2048, 8192], true, PLAIN),
            case(Elem::BF16, 1, [8192, 2048], false, PLAIN),
            case(Elem::BF16, 8, [2048, 512], true, PLAIN),
            case(Elem::F32, 8, [2048, 2048], false, PLAIN),
            case(Elem::BF16, 2, [2048, 8192], true, WeightFormat::Int8),
            case(Elem::BF16, 2, [2048, 8192], true, WeightFormat::Int4),
        ];
        let said = threads::each(cases.to_vec(), threads::all(), |case| {
            let tiles = case.scheduled(GpuArch::Sm90a).expect("a schedule");
            assert!(is_split(&tiles), "{case:?}");
            // The kernels that pack are assembled elsewhere.
            let (mut module, _) = compile(&tiles, GpuArch::Sm90a).expect("PTX");
            module.kernels.retain(|k| k.name.starts_with("matmul"));
            crate::fragments::assembles(ptxas, &module, "sm_90a")
        });
        let wrong: Vec<String> = said.into_iter().filter_map(Result::err).collect();
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    });
}

#[test]
fn remarks_tell_how_many_blocks_divide_k() {
    let forms =
        crate::tensor_cores::forms("model M { pub fn f(x: f32[1, 8192], w: f32[8192, 64]) -> f32[1, 64] { x @ w } }");
    let exact = "not on tensor cores: operands of f32, where all must be bf16, or all f16; products of f32 stay exact";
    assert_eq!(forms, [format!("k is divided among 16 blocks, whose sums are added, in 2 launches; {exact}")]);
}

/// Kernels of products whose steps are divided among blocks.
fn parts_of(tiles: &tile::Module) -> Vec<&str> {
    tiles.kernels.iter().map(|k| k.name.as_str()).filter(|n| !n.starts_with("pack")).collect()
}

#[test]
fn many_steps_of_few_columns_are_divided_among_blocks() {
    let cases = [
        case(Elem::BF16, 1, [4096, 72], false, PLAIN),
        case(Elem::F32, 5, [3200, 40], true, PLAIN),
        case(Elem::F16, 8, [4096, 24], true, PLAIN),
    ];
    let done = threads::each(cases.to_vec(), threads::all(), |case| {
        let one = || {
            let arch = GpuArch::Sm80;
            let tiles = case.scheduled(arch)?;
            assert_eq!(parts_of(&tiles), ["matmul_part.0", "combine_products.0"], "{case:?}");
            assert!(is_split(&tiles), "{case:?}");
            let text = print(&compile(&tiles, arch)?.0);
            case.compare(&tiles, &simulated(&text, &tiles, arch)?, case.rows.unwrap_or(1))
        };
        one().map_err(|why: String| format!("{case:?}: {why}"))
    });
    let wrong: Vec<String> = done.into_iter().filter_map(Result::err).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    // Too few bytes for another launch, steps that are not divided into chunks, more rows, a number of them that is not known.
    for (case, rows) in [
        (case(Elem::BF16, 1, [512, 72], false, PLAIN), Some(1)),
        (case(Elem::BF16, 1, [4104, 72], false, PLAIN), Some(1)),
        (case(Elem::BF16, 9, [4096, 72], false, PLAIN), Some(9)),
        (case(Elem::BF16, 1, [4096, 72], false, PLAIN), None),
    ] {
        let tiles = Case { rows, ..case }.scheduled(GpuArch::Sm80).expect("a schedule");
        // If the number is not known, calls with many rows have a kernel of their own.
        let expected: &[&str] = if rows.is_some() { &["matmul.0"] } else { &["matmul.0", "matmul.1"] };
        assert_eq!(parts_of(&tiles), expected, "{case:?}");
    }
}

/// Points of their own weights, and work on the result that reads along rows and columns.
#[test]
fn work_on_results_is_done_where_parts_are_added() {
    let (points, steps, cols) = (2, 2048, 24);
    let source = "model Test {\n    pub fn forward(x: f32[2, 3, 2048], w: f32[2, 2048, 24], b: f32[24], y: f32[2, 3, 24]) -> f32[2, 3, 24] {\n        tanh(x @ w / 64 + b) * y\n    }\n}\n";
    let mut random = attnc::random::Random::new(3);
    let mut tensor = |shape: &[usize]| {
        let values: Vec<f64> =
            (0..shape.iter().product()).map(|_| f64::from(random.below(129) as i32 - 64) / 64.0).collect();
        (attnc::tensor::Tensor::from_floats(Elem::F32, shape.to_vec(), &values).expect("a tensor"), values)
    };
    let [(x, xs), (w, ws), (b, bs), (y, ys)] =
        [&[points, 3, steps][..], &[points, steps, cols], &[cols], &[points, 3, cols]].map(&mut tensor);
    for arch in GpuArch::ALL {
        let tiles = crate::packed::scheduled(source, arch, &tile::ScheduleOptions::default()).expect("a schedule");
        assert_eq!(parts_of(&tiles), ["matmul_part.0", "combine_products.0"]);
        let text = print(&compile(&tiles, arch).expect("PTX").0);
        let simulated = simulated(&text, &tiles, arch).expect("a module");
        let args = [x.clone(), w.clone(), b.clone(), y.clone()];
        let params = std::collections::BTreeMap::new();
        let got = crate::packed::called(&tiles, &simulated, (&args, &params), 3).unwrap_or_else(|e| panic!("{e}"));
        for (n, got) in got.iter().enumerate() {
            let (point, row, col) = (n / cols / 3, n / cols % 3, n % cols);
            let at = |k: usize| xs[(point * 3 + row) * steps + k] * ws[(point * steps + k) * cols + col];
            let want = ((0..steps).map(at).sum::<f64>() / 64.0 + bs[col]).tanh() * ys[n];
            assert!((got - want).abs() < 1e-5, "{} element {n}: {got}, not {want}", arch.name());
        }
    }
}
