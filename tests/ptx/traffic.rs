//! What generic kernels move: norms, softmax, elementwise work and searches read each element of memory once, 16 bytes a thread, whole
//! sectors a warp, without bank conflicts; and give what the formula says in double precision.

use std::collections::BTreeMap;

use attnc::codegen::ptx;
use attnc::ir::{self, interp};
use attnc::passes;
use attnc::ptx::sim::{Mode, Stats};
use attnc::ptx::text::print;
use attnc::shape::Elem;
use attnc::simulated::Simulated;
use attnc::source::SourceMap;
use attnc::tensor::Tensor;
use attnc::tile::{self, GpuArch, PlanVariant};

use crate::centred::{self, Meaning, check};
use crate::front;

/// A program with one entry point, `f`, called on the simulator: its results, what the launches did, and the PTX.
pub(crate) fn call(source: &str, args: &[Tensor]) -> (Vec<Tensor>, Stats, String) {
    let source = &format!("model Traffic {{ pub {source} }}");
    let mut module = front::module("traffic.attn", source, &front::options(&[])).unwrap_or_else(|e| panic!("{e}"));
    passes::optimise(&mut module, &passes::Options::default(), &mut passes::Collected::default())
        .unwrap_or_else(|e| panic!("{e}"));
    let graph = ir::verify(&module).unwrap_or_else(|e| panic!("{e}"));
    let tiles = attnc::lowering::tile::lower(graph).unwrap_or_else(|e| panic!("{e}"));
    let tiles = tile::schedule_for_gpu(&tiles, GpuArch::Sm80).unwrap_or_else(|e| panic!("{e}"));
    let (kernels, infos) = ptx::compile(&tiles, GpuArch::Sm80).unwrap_or_else(|e| panic!("{e}"));
    let text = print(&kernels);
    let tiles = tile::verify::verify(&tiles).unwrap_or_else(|e| panic!("{e}"));
    let entered = interp::admit(graph, "f", args).unwrap_or_else(|e| panic!("{e}"));
    let mut found: Option<(Vec<Tensor>, Stats)> = None;
    for mode in [Mode::EAGER, Mode::LATEST.seeded(7)] {
        let simulated = Simulated::new(&text, infos.clone(), &[mode]).unwrap_or_else(|e| panic!("{e}"));
        let call = tile::interp::Call {
            plan: "f",
            variant: PlanVariant::Plain,
            symbols: &entered.symbols,
            args: &entered.args,
            params: &BTreeMap::new(),
            limits: tile::interp::Limits::default(),
        };
        let done = tile::interp::run_on(tiles, &call, &mut Default::default(), &simulated);
        let results = entered.leave(done.unwrap_or_else(|e| panic!("{e}\n{text}")).results);
        let stats = simulated.stats();
        if let Some((first, before)) = &found {
            assert!(first.iter().zip(&results).all(|(a, b)| a.bytes() == b.bytes()), "the orders differ");
            assert_eq!(before.global_sectors, stats.global_sectors);
        }
        found = Some((results, stats));
    }
    let (results, stats) = found.expect("two calls");
    (results, stats, text)
}

/// Numbers between -2 and 2 that differ, in an order that says nothing.
fn numbers(n: usize) -> Vec<f64> {
    (0..n).map(|i| f64::from((i * 7919 % 4001) as f32 / 1000.0 - 2.0)).collect()
}

fn tensor(elem: Elem, shape: &[usize]) -> Tensor {
    Tensor::from_floats(elem, shape.to_vec(), &numbers(shape.iter().product())).expect("floats")
}

/// The rows of numbers.
fn rows(x: &Tensor, cols: usize) -> Vec<Vec<f64>> {
    x.to_f64().chunks(cols).map(<[f64]>::to_vec).collect()
}

fn softmax(row: &[f64]) -> Vec<f64> {
    let most = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let sum: f64 = row.iter().map(|x| (x - most).exp()).sum();
    row.iter().map(|x| (x - most).exp() / sum).collect()
}

fn near(found: &Tensor, expected: &[f64], tolerance: f64) {
    let found = found.to_f64();
    assert_eq!(found.len(), expected.len());
    for (n, (x, y)) in found.iter().zip(expected).enumerate() {
        assert!((x - y).abs() <= tolerance * (1.0 + y.abs()), "element {n}: expected {y}, found {x}");
    }
}

/// The sectors of so many elements, read or written once.
pub(crate) fn sectors(elements: usize, elem: Elem) -> u64 {
    (elements as u64 * elem.size()).div_ceil(32)
}

#[test]
fn softmax_reads_each_row_once_without_barriers() {
    for (elem, name, tolerance) in [(Elem::F32, "f32", 1e-6), (Elem::BF16, "bf16", 4e-3)] {
        let x = tensor(elem, &[9, 768]);
        let source = format!("fn f(x: {name}[S, 768]) -> {name}[S, 768] {{ softmax(x) }}");
        let (results, stats, text) = call(&source, std::slice::from_ref(&x));
        let expected: Vec<f64> = rows(&x, 768).iter().flat_map(|row| softmax(row)).collect();
        near(&results[0], &expected, tolerance);
        assert_eq!(stats.global_sectors, 2 * sectors(9 * 768, elem));
        // Four elements a lane.
        assert_eq!(stats.global_accesses, 2 * 9 * 768 / 128);
        assert_eq!(stats.bank_conflicts, 0);
        assert!(!text.contains("bar.sync"), "a warp waits for another:\n{text}");
    }
}

#[test]
fn layer_norm_reads_each_row_once() {
    let (x, w, b) = (tensor(Elem::F32, &[5, 768]), tensor(Elem::F32, &[768]), tensor(Elem::F32, &[768]));
    let source = "fn f(x: f32[S, 768], w: f32[768], b: f32[768]) -> f32[S, 768] {
        let c = x - mean(x, axis = -1, keep = true)
        c / sqrt(mean(c * c, axis = -1, keep = true) + 1e-5) * w + b
    }";
    let (results, stats, text) = call(source, &[x.clone(), w.clone(), b.clone()]);
    let (w, b) = (w.to_f64(), b.to_f64());
    let norm = |row: &Vec<f64>| {
        let mean = row.iter().sum::<f64>() / 768.0;
        let variance = row.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / 768.0;
        row.iter().enumerate().map(|(i, x)| (x - mean) / (variance + 1e-5).sqrt() * w[i] + b[i]).collect::<Vec<f64>>()
    };
    let expected: Vec<f64> = rows(&x, 768).iter().flat_map(norm).collect();
    near(&results[0], &expected, 1e-5);
    // Scale and shift once for each row.
    assert_eq!(stats.global_sectors, 4 * sectors(5 * 768, Elem::F32));
    assert_eq!(stats.global_accesses, 4 * 5 * 768 / 128);
    assert_eq!(stats.bank_conflicts, 0);
    assert!(!text.contains("bar.sync"));
}

#[test]
fn elementwise_work_moves_whole_sectors_and_has_a_rest() {
    // The rows of the second and third have no alignment; as one axis, only the last elements have none.
    for shape in [[8, 768], [7, 33], [1, 3]] {
        let x = tensor(Elem::F32, &shape);
        let (results, stats, _) = call("fn f(x: f32[S, T]) -> f32[S, T] { relu(x * 2) }", std::slice::from_ref(&x));
        let expected: Vec<f64> = x.to_f64().iter().map(|x| (2.0 * x).max(0.0)).collect();
        near(&results[0], &expected, 0.0);
        let n = shape[0] * shape[1];
        // A rest of up to three elements, each on its own.
        let rest = 2 * (n % 4) as u64;
        let together = (n / 4 * 4) as u64;
        assert_eq!(stats.global_accesses, 2 * together.div_ceil(128) + rest, "{shape:?}");
        assert!(stats.global_sectors <= 2 * sectors(n, Elem::F32) + rest, "{shape:?}: {stats:?}");
    }
}

#[test]
fn a_long_row_is_searched_by_several_blocks_in_large_chunks() {
    const V: usize = 50_257;
    let mut values = numbers(V);
    values[31_007] = 9.0;
    values[40_000] = 9.0;
    let x = Tensor::from_floats(Elem::F32, vec![V], &values).expect("floats");
    let (results, stats, _) = call("fn f(x: f32[50257]) -> i32 { argmax(x) }", std::slice::from_ref(&x));
    assert_eq!(results[0].to_i64(), [31_007]);
    // One element is a sector of its own behind the last group of four, and the result another. Each of 13 parts stores a maximum and its place,
    // which are read again.
    let combined = 4 * 13;
    assert!(stats.global_sectors <= sectors(V - 1, Elem::F32) + 2 + combined, "{stats:?}");
    assert!(stats.global_accesses <= (V as u64 - 1).div_ceil(128) + 2 + combined, "{stats:?}");
    let row = call("fn f(x: f32[50257]) -> f32[50257] { softmax(x) }", std::slice::from_ref(&x)).0;
    near(&row[0], &softmax(&values), 1e-7);
}

#[test]
fn rows_of_any_length_and_of_few_elements_are_reduced() {
    for (s, t) in [(1, 1), (3, 7), (5, 260), (2, 1030), (6, 4100), (4, 0), (0, 5)] {
        let x = tensor(Elem::F32, &[s, t]);
        let (results, _, _) = call("fn f(x: f32[S, T]) -> f32[S] { sum(x, axis = 1) }", std::slice::from_ref(&x));
        let expected: Vec<f64> = (0..s).map(|i| x.to_f64()[i * t..(i + 1) * t].iter().sum()).collect();
        near(&results[0], &expected, 1e-4);
        let (results, _, _) = call("fn f(x: f32[S, T]) -> f32[T] { sum(x, axis = 0) }", std::slice::from_ref(&x));
        let expected: Vec<f64> = (0..t).map(|j| (0..s).map(|i| x.to_f64()[i * t + j]).sum()).collect();
        near(&results[0], &expected, 1e-4);
    }
}

#[test]
fn strict_products_read_windows_together_without_bank_conflicts() {
    // Weights as a layer has them (steps side by side), and as they are multiplied (columns side by side); tiles of 64 and of 128.
    for (rows, steps, cols, transposed) in
        [(70, 48, 128, true), (65, 24, 192, false), (130, 16, 2048, true), (5, 40, 2176, false)]
    {
        let x = tensor(Elem::F32, &[rows, steps]);
        let shape = if transposed { [cols, steps] } else { [steps, cols] };
        let w = tensor(Elem::F32, &shape);
        let right = if transposed { "w.T" } else { "w" };
        let source =
            format!("fn f(x: f32[S, {steps}], w: f32[{}, {}]) -> f32[S, {cols}] {{ x @ {right} }}", shape[0], shape[1]);
        let (results, stats, text) = call(&source, &[x.clone(), w.clone()]);
        let (a, b) = (x.to_f64(), w.to_f64());
        let at = |k: usize, n: usize| if transposed { b[n * steps + k] } else { b[k * cols + n] };
        let sum = |m: usize, n: usize| (0..steps).map(|k| a[m * steps + k] * at(k, n)).sum::<f64>();
        let expected: Vec<f64> = (0..rows * cols).map(|i| sum(i / cols, i % cols)).collect();
        near(&results[0], &expected, 1e-5);
        assert_eq!(stats.bank_conflicts, 0, "{rows} {steps} {cols} {transposed}");
        // Four elements a lane of both operands and the result, each operand once for each tile across.
        let tile = if cols >= 2048 { 128 } else { 64 };
        let (down, across) = (rows.div_ceil(tile), cols.div_ceil(tile));
        let moved = rows * steps * across + steps * cols * down + rows * cols;
        assert!(stats.global_accesses <= (moved / 128 + 8 * down * across * (1 + steps / 8)) as u64, "{stats:?}");
        assert!(!text.contains("ld.global.nc.f32"), "one element at a time");
    }
}

#[test]
fn rows_are_sorted_by_counting() {
    // Equal elements keep the order of their indices, NaN is greater than every number; a row of one element, and one of several chunks.
    for (s, n) in [(3, 37), (1, 1), (1, 1030)] {
        let mut values: Vec<f64> = (0..s * n).map(|i| (i * 7919 % 41) as f64 - 20.0).collect();
        values.iter_mut().step_by(11).for_each(|x| *x = f64::NAN);
        values.iter_mut().skip(3).step_by(13).for_each(|x| *x = f64::NEG_INFINITY);
        let x = Tensor::from_floats(Elem::F32, vec![s, n], &values).expect("floats");
        // Each comparison is one of n^2: of the long row one order is enough.
        let orders = if n > 1000 { &[(false, n)][..] } else { &[(false, n), (true, n), (true, n.min(5))] };
        for (descending, kept) in orders.iter().copied() {
            let by = |row: &[f64], a: usize, b: usize| {
                let (x, y) = (row[a], row[b]);
                let order = x.partial_cmp(&y).unwrap_or_else(|| x.is_nan().cmp(&y.is_nan()));
                if descending { order.reverse() } else { order }
            };
            let sorted = values.chunks(n).flat_map(|row| {
                let mut places: Vec<usize> = (0..n).collect();
                places.sort_by(|a, b| by(row, *a, *b));
                places.truncate(kept);
                places.into_iter().map(|i| i as i64)
            });
            let body = match (descending, kept == n) {
                (_, true) => format!("i32[S, {n}] {{ argsort(x, descending = {descending}) }}"),
                _ => format!("i32[S, {kept}] {{ let (best, at) = top_k(x, {kept})\n at }}"),
            };
            let source = format!("fn f(x: f32[S, {n}]) -> {body}");
            let (results, _, text) = call(&source, std::slice::from_ref(&x));
            assert_eq!(results[0].to_i64(), sorted.collect::<Vec<i64>>(), "{s} {n} {descending} {kept}");
            assert!(text.contains("order_0"), "it goes from element to element");
        }
    }
}

/// Each warp has a row, but tiles of a row's sums lie where tiles of whole rows were: the warps meet where one takes the other's bytes, and
/// only there. The simulator reports a race if they do not.
#[test]
fn warps_with_rows_of_their_own_meet_where_rows_lie_otherwise() {
    let (s, d) = (11, 256);
    let (x, y) = (tensor(Elem::F32, &[s, d]), tensor(Elem::F32, &[s, d]));
    let source = "fn f(x: f32[S, 256], y: f32[S, 256]) -> f32[S, 256] {
        let m = max(x, axis = -1, keep = true)
        let s = sum(exp(x - m), axis = -1, keep = true)
        let t = log(s) * 2.0 + m
        let u = y * t + m * s
        let w = max(u, axis = -1, keep = true)
        u - w * t * s * m
    }";
    let (results, _, text) = call(source, &[x.clone(), y.clone()]);
    assert!(text.contains("bar.warp.sync") && text.contains("bar.sync"), "{text}");
    let most = |row: &[f64]| row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let expected = rows(&x, d).into_iter().zip(rows(&y, d)).flat_map(|(x, y)| {
        let m = most(&x);
        let s: f64 = x.iter().map(|x| (x - m).exp()).sum();
        let t = s.ln() * 2.0 + m;
        let u: Vec<f64> = y.iter().map(|y| y * t + m * s).collect();
        let w = most(&u);
        u.into_iter().map(|u| u - w * t * s * m).collect::<Vec<f64>>()
    });
    near(&results[0], &expected.collect::<Vec<f64>>(), 1e-5);
}

/// A sort leaves both halves of its room behind, ranks fill one: where another launch has the room too, it is not sorted by counting.
#[test]
fn a_room_that_others_read_is_no_room_for_ranks() {
    let source = "model T { pub fn f(x: f32[S, 200]) -> i32[S, 200] { argsort(x) } }";
    let module = front::module("rooms.attn", source, &front::options(&[])).unwrap_or_else(|e| panic!("{e}"));
    let graph = ir::verify(&module).unwrap_or_else(|e| panic!("{e}"));
    let tiles = attnc::lowering::tile::lower(graph).unwrap_or_else(|e| panic!("{e}"));
    let text = tile::text::print(&tiles);
    let launch = text.lines().find(|line| line.trim_start().starts_with("launch")).expect("a launch");
    assert!(text.contains("= slot 0"), "a room");
    for (launches, by_ranks) in [(1, true), (2, false)] {
        let text = text.replace(launch, &[launch].repeat(launches).join("\n"));
        let file = SourceMap::new().add("rooms.tir", text.as_str());
        let parsed = tile::text::parse(&text, file).unwrap_or_else(|d| panic!("{:?}", d.sorted()));
        let tiles = tile::verify::VerifiedModule::new(parsed.module).unwrap_or_else(|e| panic!("{e}"));
        let scheduled = tile::schedule_for_gpu(&tiles, GpuArch::Sm80).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(scheduled.kernels.iter().any(|k| k.name.starts_with("order")), by_ranks, "{launches}");
    }
}

/// Rows of equal and almost equal elements, and of elements whose sums overflow, in kernels for GPUs.
#[test]
fn centred_rows_are_what_they_mean_wherever_their_mean_is() {
    let centred = "let c = x - mean(x, axis = -1, keep = true)";
    let norm = format!("{{\n{centred}\nc * rsqrt(mean(c * c, axis = -1, keep = true) + 1e-5)\n}}");
    let root = "{ x * rsqrt(mean(x * x, axis = -1, keep = true) + 1e-6) }";
    for (ty, width, meaning, body) in [
        ("f32[S, 3]", 3, Meaning::Norm, norm.as_str()),
        ("f32[S, 768]", 768, Meaning::Norm, &norm),
        ("f32[S, T]", 1030, Meaning::Norm, &norm),
        ("f32[S, 768]", 768, Meaning::Root, root),
    ] {
        let all = centred::rows(width, Elem::F32);
        let x = Tensor::from_floats(Elem::F32, vec![all.len(), width], &all.concat()).unwrap();
        let (got, _, _) = call(&format!("fn f(x: {ty}) -> {ty} {body}"), &[x]);
        for (row, got) in all.iter().zip(got[0].to_f64().chunks(width)) {
            check(ty, meaning, row, got, Elem::F32, false);
        }
    }
}
