//! Reductions of long rows on a GPU: what blocks give for parts of a row is combined to what the whole row gives.

use std::collections::BTreeMap;

use attnc::codegen::ptx::compile;
use attnc::ir;
use attnc::ptx::text::print;
use attnc::random::Random;
use attnc::shape::Elem;
use attnc::source::SourceMap;
use attnc::tensor::Tensor;
use attnc::threads;
use attnc::tile::verify::VerifiedModule;
use attnc::tile::{self, GpuArch, Op};

use crate::gen_source::inputs::{GivenCall, Sizes};
use crate::oracle::compare;
use crate::tensor_cores::{for_gpu, on_simulator};
use crate::{fragments, front, ptxas};

fn scheduled(arguments: &str, result: &str, body: &str, arch: GpuArch) -> VerifiedModule {
    let source = format!("model Test {{\n    pub fn forward({arguments}) -> {result} {{\n        {body}\n    }}\n}}\n");
    for_gpu(&source, arch).unwrap_or_else(|e| panic!("{body}: {e}"))
}

/// How many parts of a row are reduced by blocks of their own, by the kernels that do that.
fn parts(tiles: &VerifiedModule) -> Vec<i64> {
    let kernels = tiles.kernels.iter().filter(|k| k.name.starts_with("rows_part."));
    kernels.filter_map(|k| k.grid.last()?.extent.as_const()).collect()
}

/// What a program gives for its arguments, with the values of its dimensions.
fn given(tiles: &VerifiedModule, symbols: &[(&str, i64)], args: &[Tensor]) -> Tensor {
    let (module, infos) = compile(tiles, GpuArch::Sm80).unwrap_or_else(|e| panic!("{e}"));
    let symbols: BTreeMap<String, i64> = symbols.iter().map(|(name, n)| (name.to_string(), *n)).collect();
    on_simulator(tiles, (&print(&module), &infos), &symbols, args).unwrap_or_else(|e| panic!("{e}")).0
}

/// A program of one argument, whose rows are divided by kernels for so many parts.
struct Case<'a> {
    arguments: &'a str,
    result: &'a str,
    body: &'a str,
    parts: &'a [i64],
}

impl Case<'_> {
    /// What it gives, for numbers in a shape.
    fn of(&self, symbols: &[(&str, i64)], elem: Elem, shape: &[usize], x: &[f64]) -> Vec<f64> {
        let tiles = scheduled(self.arguments, self.result, self.body, GpuArch::Sm80);
        assert_eq!(parts(&tiles), self.parts, "{}", self.body);
        let tensor = match elem {
            Elem::I32 => Tensor::from_ints(elem, shape.to_vec(), &x.iter().map(|x| *x as i64).collect::<Vec<_>>()),
            _ => Tensor::from_floats(elem, shape.to_vec(), x),
        };
        given(&tiles, symbols, &[tensor.expect("a tensor")]).to_f64()
    }
}

/// Numbers from -500 to 500 that follow no pattern of chunks.
fn numbers(count: usize) -> Vec<f64> {
    (0..count).map(|i| ((i * i * 7 + i * 13) % 1001) as f64 - 500.0).collect()
}

fn near(given: &[f64], wanted: &[f64], tolerance: f64) {
    assert_eq!(given.len(), wanted.len());
    for (n, (x, y)) in given.iter().zip(wanted).enumerate() {
        assert!((x - y).abs() <= tolerance * y.abs(), "element {n}: {x}, not {y}");
    }
}

fn greatest(row: &[f64]) -> f64 {
    row.iter().copied().fold(f64::NEG_INFINITY, f64::max)
}

/// Sums of small integers are exact in any order; so are maxima. A last chunk that is not whole, whole chunks alone, several rows, an axis before others.
#[test]
fn parts_of_a_row_are_combined() {
    let x = numbers(100_000);
    let sum = |arguments, parts| Case { arguments, result: "f32[]", body: "sum(x)", parts };
    let total: f64 = x[..40_001].iter().sum();
    assert_eq!(sum("x: f32[40001]", &[10]).of(&[], Elem::F32, &[40_001], &x[..40_001]), [total]);
    let total: f64 = x[..65_536].iter().sum();
    assert_eq!(sum("x: f32[65536]", &[16]).of(&[], Elem::F32, &[65_536], &x[..65_536]), [total]);
    // What is no multiple of a chunk but has no rest of a smaller one.
    let total: f64 = x[..50_176].iter().sum();
    assert_eq!(sum("x: f32[50176]", &[49]).of(&[], Elem::F32, &[50_176], &x[..50_176]), [total]);
    let rows = Case {
        arguments: "x: f32[2, 50000]",
        result: "f32[2, 1]",
        body: "max(x, axis = -1, keep = true) * 3 - min(x, axis = -1, keep = true)",
        parts: &[13],
    };
    let least = |row: &[f64]| -greatest(&row.iter().map(|x| -x).collect::<Vec<_>>());
    let wanted: Vec<f64> = x.chunks(50_000).map(|row| greatest(row) * 3.0 - least(row)).collect();
    assert_eq!(rows.of(&[], Elem::F32, &[2, 50_000], &x), wanted);
    let columns = Case { arguments: "x: f32[10000, 9]", result: "f32[9]", body: "sum(x, axis = 0)", parts: &[79] };
    let wanted: Vec<f64> = (0..9).map(|c| x[..90_000].iter().skip(c).step_by(9).sum()).collect();
    assert_eq!(columns.of(&[], Elem::F32, &[10_000, 9], &x[..90_000]), wanted);
}

/// Integers wrap as they do one after another.
#[test]
fn sums_of_integers_wrap() {
    let x: Vec<f64> = (0..60_000).map(|i| f64::from(i32::MAX - i * 7)).collect();
    let wanted = x.iter().fold(0, |sum: i32, x| sum.wrapping_add(*x as i32));
    let sum = Case { arguments: "x: i32[60000]", result: "i32[]", body: "sum(x)", parts: &[15] };
    assert_eq!(sum.of(&[], Elem::I32, &[60_000], &x), [f64::from(wanted)]);
}

/// The first of equal ones, whichever block has found it; the first that is no number; 0 where all are equally low.
#[test]
fn places_of_maxima_are_the_first() {
    let n = 50_000;
    let place = |x: &[f64]| {
        let case = Case { arguments: "x: f32[50000]", result: "i32[]", body: "argmax(x, axis = 0)", parts: &[13] };
        case.of(&[], Elem::F32, &[n], x)
    };
    let with = |places: &[(usize, f64)]| {
        let mut x = numbers(n);
        places.iter().for_each(|(i, value)| x[*i] = *value);
        x
    };
    // The last chunk, which is of the last block, and an earlier one; two of one chunk.
    assert_eq!(place(&with(&[(49_999, 600.0), (5000, 600.0)])), [5000.0]);
    assert_eq!(place(&with(&[(49_999, 600.0)])), [49_999.0]);
    assert_eq!(place(&with(&[(9001, 600.0), (9000, 600.0), (30, 599.0)])), [9000.0]);
    assert_eq!(place(&with(&[(40_000, f64::NAN), (20_000, f64::NAN), (3, f64::INFINITY)])), [20_000.0]);
    assert_eq!(place(&vec![f64::NEG_INFINITY; n]), [0.0]);
}

/// Statistics of all parts, and elementwise work on as many blocks.
#[test]
fn softmax_and_norms_are_near_what_double_precision_gives() {
    let x: Vec<f64> = numbers(50_257).iter().map(|x| f64::from((x / 100.0) as f32)).collect();
    let softmax = Case { arguments: "x: f32[50257]", result: "f32[50257]", body: "softmax(x)", parts: &[13, 13] };
    let most = greatest(&x);
    let all: f64 = x.iter().map(|x| (x - most).exp()).sum();
    let wanted: Vec<f64> = x.iter().map(|x| (x - most).exp() / all).collect();
    near(&softmax.of(&[], Elem::F32, &[50_257], &x), &wanted, 2e-6);
    let body =
        "let d = x - mean(x, axis = -1, keep = true)\n        d * rsqrt(mean(d * d, axis = -1, keep = true) + 1.0)";
    let norm = Case { arguments: "x: f32[1, N]", result: "f32[1, N]", body, parts: &[128, 128] };
    let n = x.len() as f64;
    let mean = x.iter().sum::<f64>() / n;
    let variance = x.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / n;
    let wanted: Vec<f64> = x.iter().map(|x| (x - mean) / (variance + 1.0).sqrt()).collect();
    let given = norm.of(&[("N", 50_257)], Elem::F32, &[1, 50_257], &x);
    let bound = 1e-5 * greatest(&wanted);
    assert!(given.iter().zip(&wanted).all(|(x, y)| (x - y).abs() <= bound));
}

/// What is no number, or not finite, stays so, whichever part has it.
#[test]
fn sums_keep_what_is_not_finite() {
    let sum = |places: &[(usize, f64)]| {
        let mut x = numbers(50_000);
        places.iter().for_each(|(i, value)| x[*i] = *value);
        let case = Case { arguments: "x: f32[50000]", result: "f32[]", body: "sum(x)", parts: &[13] };
        case.of(&[], Elem::F32, &[50_000], &x)[0]
    };
    assert_eq!(sum(&[(30_000, f64::INFINITY)]), f64::INFINITY);
    assert!(sum(&[(30_000, f64::INFINITY), (10, f64::NEG_INFINITY)]).is_nan());
    assert!(sum(&[(49_999, f64::NAN)]).is_nan());
}

/// What the additions of a part's chunks lose is kept: the first chunk of each part is great, the last is as much less, and one between them
/// is less than what a float can tell from the first.
#[test]
fn sums_of_parts_lose_nothing_that_one_sum_keeps() {
    let (chunk, parts) = (4096, 128);
    let mut x = vec![0.0; 2 * parts * chunk + 1];
    let great = f64::from(1 << 26);
    (x[0], x[parts * chunk], x[2 * parts * chunk]) = (great, 1.0, -great);
    let case = Case { arguments: "x: f32[N]", result: "f32[]", body: "sum(x)", parts: &[128] };
    assert_eq!(case.of(&[("N", x.len() as i64)], Elem::F32, &[x.len()], &x), [1.0]);
}

/// Calls choose by what they know: the length of rows, or how many there are.
#[test]
fn calls_choose_by_length_and_by_rows() {
    let tiles = scheduled("x: f32[2, N]", "f32[2]", "sum(x, axis = -1)", GpuArch::Sm80);
    let least = 8 * 4096;
    for n in [0, 1, 4097, least - 1, least, least + 4097] {
        let x = numbers(2 * n);
        let wanted: Vec<f64> = if n == 0 { vec![0.0; 2] } else { x.chunks(n).map(|row| row.iter().sum()).collect() };
        let tensor = Tensor::from_floats(Elem::F32, vec![2, n], &x).expect("a tensor");
        assert_eq!(given(&tiles, &[("N", n as i64)], &[tensor]).to_f64(), wanted, "{n}");
    }
    let tiles = scheduled("x: f32[B, N]", "f32[B]", "sum(x, axis = -1)", GpuArch::Sm80);
    threads::each(vec![[3, 5000], [15, 33_000], [16, 33_000]], threads::all(), |[b, n]: [usize; 2]| {
        let x = numbers(b * n);
        let wanted: Vec<f64> = x.chunks(n).map(|row| row.iter().sum()).collect();
        let tensor = Tensor::from_floats(Elem::F32, vec![b, n], &x).expect("a tensor");
        assert_eq!(given(&tiles, &[("B", b as i64), ("N", n as i64)], &[tensor]).to_f64(), wanted, "{b}, {n}");
    });
    let tiles = scheduled("x: f32[B, 30000]", "f32[B]", "max(x, axis = -1)", GpuArch::Sm80);
    threads::each(vec![0, 1, 3, 40], threads::all(), |b: usize| {
        let x = numbers(b * 30_000);
        let wanted: Vec<f64> = x.chunks(30_000).map(greatest).collect();
        let tensor = Tensor::from_floats(Elem::F32, vec![b, 30_000], &x).expect("a tensor");
        assert_eq!(given(&tiles, &[("B", b as i64)], &[tensor]).to_f64(), wanted, "{b}");
    });
}

/// Random reductions: lengths that are known and not, types, what is around them. They are within the bounds of the program as it is written.
#[test]
fn random_reductions_of_long_rows_compute_what_they_mean() {
    let seeds: Vec<u64> = (0..6).collect();
    threads::each(seeds, threads::all(), |seed| {
        let mut random = Random::new(seed);
        let (rows, cols) = (1 + random.below(2), 29_000 + random.below(9000));
        let elem = random.pick(&["f32", "bf16"]);
        let lengths = [format!("{rows}, {cols}"), format!("{rows}, N"), format!("B, {cols}"), "B, N".to_string()];
        let shape = random.pick(&lengths);
        let lead = shape.split(',').next().expect("an axis");
        let (result, body) = random.pick(&[
            (format!("{elem}[{lead}]"), "sum(abs(x), axis = -1) / 3"),
            (format!("{elem}[{lead}]"), "max(x, axis = -1) - min(x * 2, axis = -1)"),
            (format!("{elem}[{shape}]"), "x - max(x, axis = -1, keep = true)"),
            (format!("bool[{lead}]"), "any(x > 1.99, axis = -1)"),
            (format!("{elem}[{lead}]"), "mean(x * x, axis = -1)"),
            (format!("i32[{lead}]"), "argmax(x, axis = -1)"),
        ]);
        let source = format!("model M {{\n    pub fn f(x: {elem}[{shape}]) -> {result} {{ {body} }}\n}}\n");
        let values: Vec<f64> = (0..rows * cols).map(|_| 4.0 * random.unit() - 2.0).collect();
        let kind = if elem == "f32" { Elem::F32 } else { Elem::BF16 };
        let x = Tensor::from_floats(kind, vec![rows, cols], &values).expect("as many numbers");
        let sizes = Sizes { lead: Vec::new(), symbols: BTreeMap::new() };
        compare(seed, &source, true, &[GivenCall { entry: "f", sizes, args: vec![x] }])
            .unwrap_or_else(|e| panic!("{source}: {e}"));
    });
}

/// Not where rows are many or short, or each is one tile; nor where a kernel writes what it reads.
#[test]
fn rows_are_divided_where_that_pays() {
    for (ty, body, wanted) in [
        ("f32[1000000]", "sum(x)", vec![123]),
        ("f32[10000]", "sum(x)", vec![]),
        ("f32[4096]", "sum(x)", vec![]),
        ("f32[N, 768]", "sum(max(x, axis = -1))", vec![128]),
        ("f32[N, M]", "sum(max(x, axis = -1))", vec![128, 128]),
        ("f32[N, 3*N]", "sum(max(x, axis = -1))", vec![128]),
        ("f32[200, 50000]", "sum(max(x, axis = -1))", vec![]),
        ("bf16[N, 128256]", "sum(max(x, axis = -1))", vec![32, 128]),
    ] {
        let result = if ty.starts_with('b') { "bf16[]" } else { "f32[]" };
        assert_eq!(parts(&scheduled(&format!("x: {ty}"), result, body, GpuArch::Sm90a)), wanted, "{ty}");
    }
    // A call chooses once for each kernel that has both ways.
    let tiles = scheduled("x: bf16[N, 128256]", "bf16[]", "sum(max(x, axis = -1))", GpuArch::Sm80);
    let compares = tiles.plans.iter().flat_map(|p| p.body.insts()).filter(|(_, _, d)| matches!(d.op, Op::Compare(_)));
    assert_eq!(compares.count(), 2);
}

/// Kernels that were written otherwise: sums that begin with something would have it in each part; what is stored beside the last loop, each block
/// would store; and blocks would read what others have written, if a result lies where they read.
#[test]
fn other_kernels_stay_as_they_are() {
    let lowered = |result: &str, body: &str| {
        let source = format!("model Test {{ pub fn forward(x: f32[50000]) -> {result} {{ {body} }} }}");
        let module = front::module("test.attn", &source, &front::options(&[])).unwrap_or_else(|e| panic!("{e}"));
        let graph = ir::verify(&module).unwrap_or_else(|e| panic!("{e}"));
        tile::text::print(&attnc::lowering::tile::lower(graph).unwrap_or_else(|e| panic!("{e}")))
    };
    let sum = lowered("f32[]", "sum(x)");
    let softmax = lowered("f32[50000]", "softmax(x * 2.0)");
    let launch = softmax.lines().find(|line| line.contains("launch @rows.0(")).expect("a launch");
    let operands = launch.split(['(', ')']).nth(1).expect("operands");
    let (from, _) = operands.split_once(", ").expect("two of them");
    for (text, old, new) in [(&sum, "= const 0.0 ", "= const 1.0 "), (&softmax, operands, &*format!("{from}, {from}"))]
    {
        for (text, divided) in [(text.clone(), true), (text.replace(old, new), false)] {
            let file = SourceMap::new().add("test.tir", text.as_str());
            let parsed = tile::text::parse(&text, file).unwrap_or_else(|d| panic!("{:?}", d.sorted()));
            let tiles = VerifiedModule::new(parsed.module).unwrap_or_else(|e| panic!("{e}"));
            let scheduled = tile::schedule_for_gpu(&tiles, GpuArch::Sm80).unwrap_or_else(|e| panic!("{e}"));
            assert_eq!(!parts(&scheduled).is_empty(), divided, "{new}");
        }
    }
}

#[test]
fn kernels_of_parts_are_assembled_without_spills() {
    ptxas::with("kernels of parts of rows", |ptxas| {
        for (arguments, result, body) in [
            ("x: f32[N]", "i32[]", "argmax(x, axis = 0)"),
            ("x: bf16[2, 50257]", "bf16[2, 50257]", "softmax(x)"),
            ("x: f32[10000, 9]", "f32[9]", "mean(x, axis = 0)"),
            ("x: bool[N]", "bool[]", "any(x, axis = 0)"),
        ] {
            for (arch, processor) in [(GpuArch::Sm80, "sm_80"), (GpuArch::Sm80, "sm_100"), (GpuArch::Sm90a, "sm_90a")] {
                let (module, _) = compile(&scheduled(arguments, result, body, arch), arch).expect("PTX");
                fragments::assembles(ptxas, &module, processor).unwrap_or_else(|e| panic!("{body}: {e}"));
            }
        }
    });
}
