//! Running sums on a GPU: sums of chunks, their offsets, and the sums within chunks give what adding one element after another gives.

use std::collections::BTreeMap;

use attnc::codegen::ptx::compile;
use attnc::ir;
use attnc::ptx::text::print;
use attnc::shape::Elem;
use attnc::source::SourceMap;
use attnc::tensor::Tensor;
use attnc::threads;
use attnc::tile::verify::VerifiedModule;
use attnc::tile::{self, GpuArch};

use crate::tensor_cores::{for_gpu, forms, on_simulator};
use crate::{fragments, front, ptxas};

/// A program that sums along an axis of its argument.
fn program(ty: &str, axis: usize) -> String {
    format!("model Test {{\n    pub fn forward(x: {ty}) -> {ty} {{\n        cumsum(x, axis = {axis})\n    }}\n}}\n")
}

fn scheduled(ty: &str, axis: usize, arch: GpuArch) -> VerifiedModule {
    for_gpu(&program(ty, axis), arch).unwrap_or_else(|e| panic!("{ty}: {e}"))
}

/// What a program gives for a number `N` of elements along its axis.
fn sums(ty: &str, axis: usize, n: i64, x: Tensor) -> Tensor {
    let tiles = scheduled(ty, axis, GpuArch::Sm80);
    let (module, infos) = compile(&tiles, GpuArch::Sm80).unwrap_or_else(|e| panic!("{ty}: {e}"));
    let symbols = BTreeMap::from([("N".to_string(), n)]);
    let given = on_simulator(&tiles, (&print(&module), &infos), &symbols, &[x]);
    given.unwrap_or_else(|e| panic!("{ty}, {n}: {e}")).0
}

/// Numbers from -50 to 50 that follow no pattern of chunks.
fn numbers(count: i64) -> Vec<i64> {
    (0..count).map(|i| i * i * 7 % 101 - 50).collect()
}

/// Rows of running sums, of elements whose neighbours along the axis are `apart`.
fn added<T: Copy>(x: &[T], apart: usize, add: impl Fn(T, T) -> T) -> Vec<T> {
    let mut all = x.to_vec();
    (apart..x.len()).for_each(|i| all[i] = add(all[i - apart], all[i]));
    all
}

#[test]
fn sums_of_integers_are_exact_and_wrap() {
    let sizes = [0, 1, 127, 128, 129, 1000];
    threads::each(sizes.to_vec(), threads::all(), |n| {
        let x = numbers(n);
        let shape = vec![usize::try_from(n).expect("a size")];
        let given = sums("i32[N]", 0, n, Tensor::from_ints(Elem::I32, shape, &x).expect("a tensor"));
        let wanted: Vec<f64> = added(&x, 1, |a, b| a + b).into_iter().map(|n| n as f64).collect();
        assert_eq!(given.to_f64(), wanted, "{n}");
    });
    let x: Vec<i64> = (0..300).map(|i| i64::from(i32::MAX) - i).collect();
    let given = sums("i32[N]", 0, 300, Tensor::from_ints(Elem::I32, vec![300], &x).expect("a tensor"));
    let narrow: Vec<i32> = x.iter().map(|n| i32::try_from(*n).expect("a number")).collect();
    let wanted: Vec<f64> = added(&narrow, 1, i32::wrapping_add).into_iter().map(f64::from).collect();
    assert_eq!(given.to_f64(), wanted);
}

/// Of floats that are small integers, sums are exact too: whatever their order, each is the same.
#[test]
fn sums_go_along_any_axis_of_any_type() {
    for (ty, elem, axis, shape) in [
        ("f32[N]", Elem::F32, 0, vec![17_000]),
        ("f32[3, N]", Elem::F32, 1, vec![3, 400]),
        ("f32[N, 3]", Elem::F32, 0, vec![200, 3]),
        ("i64[2, N]", Elem::I64, 1, vec![2, 300]),
        ("f32[200]", Elem::F32, 0, vec![200]),
    ] {
        let (count, n) = (shape.iter().product::<usize>() as i64, shape[axis]);
        let x = numbers(count);
        let tensor = match elem {
            Elem::I64 => Tensor::from_ints(elem, shape.clone(), &x),
            _ => Tensor::from_floats(elem, shape.clone(), &x.iter().map(|n| *n as f64).collect::<Vec<_>>()),
        };
        let given = sums(ty, axis, n as i64, tensor.expect("a tensor"));
        let wanted: Vec<i64> = match axis {
            0 => added(&x, shape[1..].iter().product(), |a, b| a + b),
            _ => x.chunks(n).flat_map(|row| added(row, 1, |a, b| a + b)).collect(),
        };
        assert_eq!(given.to_f64(), wanted.into_iter().map(|n| n as f64).collect::<Vec<_>>(), "{ty}");
    }
}

/// What is no number, or not finite, is in all sums from there on, and in none before; others are near what `f64` gives.
#[test]
fn sums_of_floats_are_near_and_keep_what_is_no_number() {
    let mut x: Vec<f64> = (0..700).map(|i| f64::from((i * 37 % 1000) as f32 * 0.1)).collect();
    let tensor = |x: &[f64]| Tensor::from_floats(Elem::F32, vec![x.len()], x).expect("a tensor");
    let near = |x: &[f64]| {
        let (given, wanted) = (sums("f32[N]", 0, 700, tensor(x)).to_f64(), added(x, 1, |a, b| a + b));
        let magnitudes = added(&x.iter().map(|x| x.abs()).collect::<Vec<_>>(), 1, |a, b| a + b);
        for (i, (given, wanted)) in given.iter().zip(&wanted).enumerate() {
            let bound = 384.0 * 2f64.powi(-24) * magnitudes[i];
            let is_same = given == wanted || given.is_nan() && wanted.is_nan();
            assert!(is_same || (given - wanted).abs() <= bound, "{i}: {given}, not {wanted}");
        }
    };
    near(&x);
    x[300] = f64::INFINITY;
    near(&x);
    x[400] = f64::NEG_INFINITY;
    near(&x);
    x[400] = f64::NAN;
    near(&x);
}

/// Sums of few elements, and of many rows, are added one after another.
#[test]
fn long_sums_of_few_rows_are_divided() {
    for (ty, axis, divided) in
        [("f32[N]", 0, true), ("f32[128]", 0, false), ("f32[129]", 0, true), ("f32[N, 50000]", 0, false)]
    {
        let tiles = scheduled(ty, axis, GpuArch::Sm80);
        let names: Vec<&str> = tiles.kernels.iter().map(|k| k.name.as_str()).collect();
        let wanted: &[&str] = if divided { &["totals.0", "offsets.0", "sums.0"] } else { &["cumsum.0"] };
        assert_eq!(names, wanted, "{ty}");
    }
    let form = |ty: &str, axis: usize| forms(&program(ty, axis)).join("\n");
    let serial = "elements are added one after another, each row by a thread: ";
    assert_eq!(form("f32[N]", 0), "sums of chunks of 128, of those before each, and within each, in 3 launches");
    assert_eq!(form("f32[128]", 0), format!("{serial}an axis of at most 128"));
    assert_eq!(form("f32[N, 50000]", 0), format!("{serial}50000 rows leave no thread idle"));
}

/// Threads read elements of a chunk that others have written, if the result lies where they do.
#[test]
fn sums_that_are_written_over_their_elements_are_not_divided() {
    let source = program("f32[N]", 0).replace("(x, ", "(x * 2, ");
    let module = front::module("over.attn", &source, &front::options(&[])).unwrap_or_else(|e| panic!("{e}"));
    let graph = ir::verify(&module).unwrap_or_else(|e| panic!("{e}"));
    let text = tile::text::print(&attnc::lowering::tile::lower(graph).unwrap_or_else(|e| panic!("{e}")));
    let launch = text.lines().find(|line| line.contains("launch @cumsum.0(")).expect("a launch");
    let operands = launch.split(['(', ')']).nth(1).expect("operands");
    let (from, to) = operands.split_once(", ").expect("two of them");
    for (by, divided) in [(operands.to_string(), true), (format!("{from}, {from}"), false)] {
        // What the result has then does not matter here: it is written first, and read by nobody.
        let other = format!("launch @cumsum.0({operands})\n  launch @cumsum.0({by})");
        let text = text.replace(&format!("launch @cumsum.0({operands})"), &other);
        let file = SourceMap::new().add("over.tir", text.as_str());
        let parsed = tile::text::parse(&text, file).unwrap_or_else(|d| panic!("{:?}", d.sorted()));
        let tiles = VerifiedModule::new(parsed.module).unwrap_or_else(|e| panic!("{to}: {e}"));
        let scheduled = tile::schedule_for_gpu(&tiles, GpuArch::Sm80).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(scheduled.kernels.iter().any(|k| k.name == "sums.0"), divided, "{by}");
    }
}

#[test]
fn kernels_of_sums_are_assembled_without_spills() {
    ptxas::with("kernels of running sums", |ptxas| {
        for (ty, axis) in [("f32[N]", 0), ("i64[2, N]", 1), ("bf16[N, 3]", 0)] {
            for (arch, processor) in [(GpuArch::Sm80, "sm_80"), (GpuArch::Sm80, "sm_100"), (GpuArch::Sm90a, "sm_90a")] {
                let (module, _) = compile(&scheduled(ty, axis, arch), arch).expect("PTX");
                fragments::assembles(ptxas, &module, processor).unwrap_or_else(|e| panic!("{ty}: {e}"));
            }
        }
    });
}
