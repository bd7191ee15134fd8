//! The greatest few of many on a GPU: the greatest of each chunk are found first, then the greatest of these, ties by index, NaN first.

use std::collections::{BTreeMap, BTreeSet};

use attnc::codegen::ptx::compile;
use attnc::ptx::text::print;
use attnc::shape::Elem;
use attnc::tensor::Tensor;
use attnc::threads;
use attnc::tile::GpuArch;
use attnc::tile::verify::VerifiedModule;

use crate::tensor_cores::{for_gpu, forms, on_simulator};
use crate::{fragments, ptxas};

/// The indices of the `k` greatest elements of each row.
fn program(ty: &str, lead: &str, k: usize) -> String {
    let bound = if ty.contains('N') { format!("where {k} <= N") } else { String::new() };
    format!(
        "model Test {{\n    pub fn forward(x: {ty}) -> i32[{lead}{k}] {bound} {{\n        let (_, places) = top_k(x, {k})\n        places\n    }}\n}}\n"
    )
}

fn scheduled(ty: &str, lead: &str, k: usize, arch: GpuArch) -> VerifiedModule {
    for_gpu(&program(ty, lead, k), arch).unwrap_or_else(|e| panic!("{ty}: {e}"))
}

/// A row's first `k` indices: greater elements first, NaN before all, equal ones as they come. A stable sort keeps their order.
fn first(row: &[f64], k: usize) -> Vec<f64> {
    let mut all: Vec<usize> = (0..row.len()).collect();
    let key = |i: usize| if row[i].is_nan() { (1, 0.0) } else { (0, row[i]) };
    all.sort_by(|a, b| key(*b).partial_cmp(&key(*a)).expect("no NaN is left"));
    all.into_iter().take(k).map(|i| i as f64).collect()
}

/// Does a program give the indices that a sort gives?
fn finds(ty: &str, lead: &str, k: usize, shape: &[usize], x: &[f64]) {
    let tiles = scheduled(ty, lead, k, GpuArch::Sm80);
    assert!(tiles.kernels.iter().any(|kernel| kernel.name == "candidates.0"), "{ty} has no candidates");
    let (module, infos) = compile(&tiles, GpuArch::Sm80).unwrap_or_else(|e| panic!("{ty}: {e}"));
    let n = *shape.last().expect("an axis");
    let symbols = BTreeMap::from([("N".to_string(), n as i64)]);
    let tensor = match ty.starts_with("i32") {
        true => Tensor::from_ints(Elem::I32, shape.to_vec(), &x.iter().map(|x| *x as i64).collect::<Vec<_>>()),
        false => Tensor::from_floats(Elem::F32, shape.to_vec(), x),
    };
    let given = on_simulator(&tiles, (&print(&module), &infos), &symbols, &[tensor.expect("a tensor")]);
    let wanted: Vec<f64> = x.chunks(n).flat_map(|row| first(row, k)).collect();
    assert_eq!(given.unwrap_or_else(|e| panic!("{ty}, {n}: {e}")).0.to_f64(), wanted, "{ty}, {n}");
}

/// Numbers of which many are equal.
fn numbers(count: usize) -> Vec<f64> {
    (0..count).map(|i| ((i * i * 7 + i) % 97) as f64 - 50.0).collect()
}

#[test]
fn the_greatest_few_are_those_of_a_sort() {
    // One chunk and several, whole ones and not; a last chunk with fewer elements than are wanted.
    let sizes = [20, 512, 513, 515, 1100];
    threads::each(sizes.to_vec(), threads::all(), |n| finds("f32[N]", "", 20, &[n], &numbers(n)));
    finds("f32[2, N]", "2, ", 7, &[2, 700], &numbers(1400));
    finds("i32[N]", "", 9, &[600], &numbers(600));
    finds("f32[4096]", "", 5, &[4096], &numbers(4096));
}

/// The least numbers that there are come before what is no candidate, and NaN before everything.
#[test]
fn special_numbers_have_their_places() {
    let mut x = vec![f64::NEG_INFINITY; 520];
    finds("f32[N]", "", 20, &[520], &x);
    (x[3], x[515], x[7], x[519]) = (f64::NAN, f64::NAN, f64::INFINITY, -1.0);
    finds("f32[N]", "", 20, &[520], &x);
    let least = vec![f64::from(i32::MIN); 516];
    finds("i32[N]", "", 20, &[516], &least);
    finds("f32[N]", "", 20, &[1030], &vec![f64::NAN; 1030]);
}

/// Of few elements, and where the least come first, all are compared with each other.
#[test]
fn other_orders_have_ranks_among_all() {
    let ascending = "model Test { pub fn forward(x: f32[5000]) -> i32[9] { argsort(x)[0..9] } }";
    let all = for_gpu(ascending, GpuArch::Sm80).unwrap_or_else(|e| panic!("{e}"));
    let greatest = |ty: &str| scheduled(ty, "", 9, GpuArch::Sm80);
    for (tiles, wanted) in [(all, false), (greatest("f32[4095]"), false), (greatest("f32[4096]"), true)] {
        let kernels: BTreeSet<&str> = tiles.kernels.iter().map(|k| k.name.as_str()).collect();
        assert!(kernels.contains("ranks.0"), "{kernels:?}");
        assert_eq!(kernels.contains("candidates.0"), wanted, "{kernels:?}");
    }
}

#[test]
fn remarks_tell_how_elements_are_ordered_and_why() {
    let form = |source: &str| forms(source).join("\n");
    let few = form(&program("f32[N]", "", 20));
    assert_eq!(few, "the greatest of each 512 are candidates, whose ranks are counted, in 4 launches");
    let counted = "for each element the elements that come before it are counted, in 2 launches; without candidates: ";
    assert_eq!(form(&program("f32[4095]", "", 20)), format!("{counted}an axis of less than 4096"));
    let all = "model Test { pub fn forward(x: f32[N]) -> i32[N] { argsort(x) } }";
    assert_eq!(form(all), format!("{counted}more than a few are wanted"));
}

#[test]
fn kernels_of_candidates_are_assembled_without_spills() {
    ptxas::with("kernels of the greatest few", |ptxas| {
        for (ty, lead) in [("f32[N]", ""), ("bf16[2, 50257]", "2, ")] {
            for (arch, processor) in [(GpuArch::Sm80, "sm_80"), (GpuArch::Sm80, "sm_100"), (GpuArch::Sm90a, "sm_90a")] {
                let (module, _) = compile(&scheduled(ty, lead, 50, arch), arch).expect("PTX");
                fragments::assembles(ptxas, &module, processor).unwrap_or_else(|e| panic!("{ty}: {e}"));
            }
        }
    });
}
