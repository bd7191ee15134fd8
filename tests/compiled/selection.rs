//! Do sorting, running sums, and gathers and scatters along an axis give what plain loops give, wherever a program runs, along every
//! axis, for elements that are equal or NaN, for empty axes and those of one element; and is what is out of range an error of the call?

use crate::{compiled, everywhere, front};

use attnc::random::Random;
use attnc::shape::Elem;
use attnc::tensor::Tensor;
use everywhere::Everywhere;

fn program(body: &str) -> Everywhere {
    Everywhere::of(&format!("model M {{\n    pub fn f{body}\n}}\n"), &[])
}

fn floats(shape: &[usize], values: &[f64]) -> Tensor {
    Tensor::from_floats(Elem::F32, shape.to_vec(), values).unwrap()
}

fn ints(elem: Elem, shape: &[usize], values: &[i64]) -> Tensor {
    Tensor::from_ints(elem, shape.to_vec(), values).unwrap()
}

/// Numbers of which many are equal, with zeros of both signs, infinities, and now and then a NaN.
fn few_values(random: &mut Random, count: usize) -> Vec<f64> {
    let values = [0.0, -0.0, 1.0, -1.0, 2.5, f64::INFINITY, f64::NEG_INFINITY, f64::NAN, 3.0, -7.25];
    (0..count).map(|_| values[random.below(values.len())]).collect()
}

/// Each line along an axis of a shape, as places of its elements in row-major order.
fn lines(shape: &[usize], axis: usize) -> Vec<Vec<usize>> {
    let inner: usize = shape[axis + 1..].iter().product();
    let outer: usize = shape[..axis].iter().product();
    let n = shape[axis];
    let line = |o: usize, i: usize| (0..n).map(|k| (o * n + k) * inner + i).collect();
    (0..outer).flat_map(|o| (0..inner).map(move |i| (o, i))).map(|(o, i)| line(o, i)).collect()
}

/// The places of a line in order, by insertion: NaN is the greatest, equal ones stay as they are.
fn order(values: &[f64], descending: bool) -> Vec<usize> {
    let less = |a: f64, b: f64| if a.is_nan() || b.is_nan() { !a.is_nan() && b.is_nan() } else { a < b };
    let mut out: Vec<usize> = Vec::new();
    for i in 0..values.len() {
        let before = |j: &usize| {
            let (new, old) = (values[i], values[*j]);
            if descending { less(old, new) } else { less(new, old) }
        };
        let at = out.iter().position(before).unwrap_or(out.len());
        out.insert(at, i);
    }
    out
}

fn same(a: &[f64], b: &[f64]) {
    assert_eq!(a.len(), b.len());
    for (i, (x, y)) in a.iter().zip(b).enumerate() {
        assert!(x == y || (x.is_nan() && y.is_nan()), "{i}: {x} is not {y}: {a:?} {b:?}");
    }
}

const SHAPES: [[usize; 3]; 6] = [[2, 3, 5], [1, 1, 1], [3, 0, 2], [1, 7, 1], [2, 1, 70], [0, 4, 3]];

#[test]
fn sorting_along_each_axis() {
    let mut random = Random::new(11);
    for axis in 0..3 {
        for descending in [false, true] {
            let program = program(&format!(
                "(x: f32[A, B, C]) -> (f32[A, B, C], i32[A, B, C]) {{\n        \
                 (sort(x, axis = {axis}, descending = {descending}), argsort(x, {axis}, {descending}))\n    }}"
            ));
            for shape in SHAPES {
                let values = few_values(&mut random, shape.iter().product());
                let got = program.call("f", &[floats(&shape, &values)]).unwrap();
                let (mut sorted, mut places) = (vec![0.0; values.len()], vec![0.0; values.len()]);
                for line in lines(&shape, axis) {
                    let own: Vec<f64> = line.iter().map(|i| values[*i]).collect();
                    for (to, from) in order(&own, descending).into_iter().enumerate() {
                        (sorted[line[to]], places[line[to]]) = (own[from], from as f64);
                    }
                }
                same(&got[0].to_f64(), &sorted);
                same(&got[1].to_f64(), &places);
            }
        }
    }
}

/// Few of many, by one pass; more than that, and a number that only the call tells, by sorting.
#[test]
fn the_first_k() {
    let mut random = Random::new(12);
    for (k, symbol) in [("1", 1), ("3", 3), ("0", 0), ("130", 130), ("K", 4)] {
        let signature = "(x: f32[A, N], y: i32[N, B], u: f32[K])";
        let results = format!("(f32[A, {k}], i32[A, {k}], i32[{k}, B], i32[{k}, B])");
        let program = program(&format!(
            "{signature} -> {results} where 130 <= N, K <= N {{\n        let (a, b) = top_k(x, {k})\n        \
             let (c, d) = top_k(y, {k}, axis = 0)\n        (a, b, c, d)\n    }}"
        ));
        for (a, n, b) in [(2, 130, 3), (1, 201, 1), (0, 150, 2)] {
            let values: Vec<f64> = (0..a * n).map(|_| f64::from(random.below(90) as u32) * 0.5 - 20.0).collect();
            let numbers: Vec<i64> = (0..n * b).map(|_| random.below(50) as i64 - 25).collect();
            let unused = floats(&[4], &[0.0; 4]);
            let got =
                program.call("f", &[floats(&[a, n], &values), ints(Elem::I32, &[n, b], &numbers), unused]).unwrap();
            let mut want = [Vec::new(), Vec::new()];
            for row in values.chunks(n) {
                for i in order(row, true).into_iter().take(symbol) {
                    want[0].push(row[i]);
                    want[1].push(i as f64);
                }
            }
            let columns: Vec<Vec<f64>> =
                (0..b).map(|j| numbers.iter().skip(j).step_by(b).map(|n| *n as f64).collect()).collect();
            let orders: Vec<Vec<usize>> = columns.iter().map(|column| order(column, true)).collect();
            let at = |i: usize, j: usize| orders[j][i];
            let pairs = || (0..symbol).flat_map(|i| (0..b).map(move |j| (i, j)));
            same(&got[0].to_f64(), &want[0]);
            same(&got[1].to_f64(), &want[1]);
            same(&got[2].to_f64(), &pairs().map(|(i, j)| columns[j][at(i, j)]).collect::<Vec<f64>>());
            same(&got[3].to_f64(), &pairs().map(|(i, j)| at(i, j) as f64).collect::<Vec<f64>>());
        }
    }
}

/// Rows that are ascending, descending, all equal and all NaN are the hardest for a pass that keeps the best.
#[test]
fn the_first_k_of_orderly_rows() {
    let program = program("(x: f32[A, N]) -> (f32[A, 5], i32[A, 5]) where 5 <= N {\n        top_k(x, 5)\n    }");
    let n = 193;
    let rows: [&dyn Fn(usize) -> f64; 5] =
        [&|i| i as f64, &|i| -(i as f64), &|_| 1.0, &|_| f64::NAN, &|i| if i % 3 == 0 { f64::NAN } else { i as f64 }];
    let values: Vec<f64> = rows.iter().flat_map(|row| (0..n).map(row)).collect();
    let got = program.call("f", &[floats(&[rows.len(), n], &values)]).unwrap();
    let places: Vec<f64> =
        values.chunks(n).flat_map(|row| order(row, true).into_iter().take(5)).map(|i| i as f64).collect();
    same(&got[1].to_f64(), &places);
    let first: Vec<f64> = places.iter().enumerate().map(|(i, p)| values[i / 5 * n + *p as usize]).collect();
    same(&got[0].to_f64(), &first);
}

#[test]
fn more_than_there_are_is_an_error_of_the_call() {
    let program = program(
        "(x: f32[N], u: f32[K]) -> (f32[5], f32[K]) {\n        let (a, _) = top_k(x, 5)\n        let (b, _) = top_k(x, K)\n        (a, b)\n    }",
    );
    for (n, k, fine) in [(5, 5, true), (4, 2, false), (6, 7, false)] {
        let got = program.call("f", &[floats(&[n], &vec![1.0; n]), floats(&[k], &vec![1.0; k])]);
        assert_eq!(got.is_ok(), fine, "{n} {k}: {got:?}");
    }
}

#[test]
fn running_sums_along_each_axis() {
    let mut random = Random::new(13);
    for axis in 0..3 {
        let program = program(&format!(
            "(x: f32[A, B, C], y: i32[A, B, C]) -> (f32[A, B, C], i32[A, B, C]) {{\n        (cumsum(x, axis = {axis}), cumsum(y, axis = {axis}))\n    }}"
        ));
        for shape in SHAPES {
            let count = shape.iter().product();
            let values: Vec<f64> = (0..count).map(|_| f64::from(random.below(64) as u32) * 0.25 - 4.0).collect();
            let numbers: Vec<i64> = (0..count).map(|_| random.below(1 << 30) as i64 * 3 - (1 << 30)).collect();
            let numbers: Vec<i64> = numbers.iter().map(|n| i64::from(*n as i32)).collect();
            let got = program.call("f", &[floats(&shape, &values), ints(Elem::I32, &shape, &numbers)]).unwrap();
            let (mut sums, mut wrapped) = (values.clone(), numbers.clone());
            for line in lines(&shape, axis) {
                for pair in line.windows(2) {
                    sums[pair[1]] += sums[pair[0]];
                    wrapped[pair[1]] = i64::from((wrapped[pair[1]] + wrapped[pair[0]]) as i32);
                }
            }
            same(&got[0].to_f64(), &sums);
            assert_eq!(got[1].to_i64(), wrapped);
        }
    }
}

/// What roundings lose is kept, and an infinite sum stays infinite.
#[test]
fn a_long_running_sum_is_exact_to_an_ulp() {
    let folder = tempfile::tempdir().unwrap();
    let source = "model M {\n    pub fn f(x: f32[N]) -> f32[N] { cumsum(x) }\n}\n";
    let module = front::module("m.attn", source, &Default::default()).unwrap();
    let module = compiled::optimised(module, &Default::default());
    let model = compiled::load_at(compiled::levels()[0], &module, &Default::default(), folder.path());
    let mut session = model.session().unwrap();
    let mut call = |values: &[f32]| {
        let x = Tensor::from_f32(vec![values.len()], values).unwrap();
        session.call(model.entry("f").unwrap(), &[x]).unwrap()[0].to_f64()
    };
    let mut random = Random::new(14);
    let values: Vec<f32> = (0..50_257).map(|_| random.below(1_000_000) as f32 * 1e-6).collect();
    let mut sum = 0.0;
    for (x, got) in values.iter().zip(call(&values)) {
        sum += f64::from(*x);
        assert!((got - sum).abs() <= sum * 1.2e-7, "{got} is not {sum}");
    }
    let inf = f32::INFINITY;
    same(&call(&[1.0, inf, 2.0, -3.0]), &[1.0, f64::INFINITY, f64::INFINITY, f64::INFINITY]);
    same(&call(&[inf, -inf, 2.0]), &[f64::INFINITY, f64::NAN, f64::NAN]);
}

#[test]
fn the_least_element() {
    let program = program(
        "(x: f32[A, B], y: i32[A, B], z: bf16[A, B]) -> (i32[A], i32[1, B], i32[A]) where 1 <= A, 1 <= B {\n        \
         (argmin(x), argmin(y, axis = 0, keep = true), argmin(z))\n    }",
    );
    let x = [3.0, -1.0, -1.0, 2.0, f64::NAN, f64::NEG_INFINITY, 0.0, -0.0, 5.0];
    let y = [i64::from(i32::MIN), 4, 4, 7, i64::from(i32::MAX), 3, i64::from(i32::MIN), 4, 3];
    let z = Tensor::from_floats(Elem::BF16, vec![3, 3], &[1.0, 0.5, 2.0, 4.0, 4.0, 4.0, 3.0, 2.0, 1.0]).unwrap();
    let got = program.call("f", &[floats(&[3, 3], &x), ints(Elem::I32, &[3, 3], &y), z]).unwrap();
    assert_eq!(got[0].to_i64(), [1, 1, 0]);
    assert_eq!(got[1].to_i64(), [0, 0, 1]);
    assert_eq!(got[2].to_i64(), [1, 0, 2]);
}

#[test]
fn taking_along_each_axis() {
    let mut random = Random::new(15);
    for axis in 0..3 {
        let mut names = ["A", "B", "C"];
        names[axis] = "K";
        let of = names.join(", ");
        let program = program(&format!(
            "(x: f32[A, B, C], at: i64[{of}]) -> f32[{of}] {{\n        take_along(x, at, axis = {axis})\n    }}"
        ));
        for (shape, count) in [([2, 3, 4], 5), ([3, 1, 2], 1), ([2, 2, 2], 0), ([1, 300, 1], 290), ([0, 2, 3], 2)] {
            let mut taken = shape;
            taken[axis] = count;
            let values: Vec<f64> = (0..shape.iter().product::<usize>()).map(|i| i as f64).collect();
            let at: Vec<i64> = (0..taken.iter().product()).map(|_| random.below(shape[axis].max(1)) as i64).collect();
            if shape[axis] == 0 && count > 0 {
                continue;
            }
            let (from, to) = (lines(&shape, axis), lines(&taken, axis));
            let mut want = vec![0.0; at.len()];
            for (from, to) in from.iter().zip(&to) {
                to.iter().for_each(|i| want[*i] = values[from[at[*i] as usize]]);
            }
            let args = [floats(&shape, &values), ints(Elem::I64, &taken, &at)];
            same(&program.call("f", &args).unwrap()[0].to_f64(), &want);
            if !want.is_empty() {
                for wrong in [-1, shape[axis] as i64] {
                    let mut at = at.clone();
                    let last = at.len() - 1;
                    at[last] = wrong;
                    let e = program.call("f", &[args[0].clone(), ints(Elem::I64, &taken, &at)]).unwrap_err();
                    assert!(e.contains("out of range"), "{e}");
                }
            }
        }
    }
}

#[test]
fn scattering_along_each_axis() {
    let mut random = Random::new(16);
    for axis in 0..3 {
        for (name, add) in [("scatter", false), ("scatter_add", true)] {
            let mut names = ["A", "B", "C"];
            names[axis] = "K";
            let of = names.join(", ");
            let program = program(&format!(
                "(x: f32[A, B, C], at: i32[K], v: f32[{of}]) -> (f32[A, B, C], f32[A, B, C]) {{\n        \
                 ({name}(x, at, v, axis = {axis}), {name}(x * 2, at, 1.5, axis = {axis}))\n    }}"
            ));
            for (shape, count) in [([2, 3, 4], 7), ([3, 1, 2], 2), ([2, 2, 2], 0), ([0, 2, 3], 2), ([1, 5, 1030], 3)] {
                let mut taken = shape;
                taken[axis] = count;
                let number = |i: usize| (i % 17) as f64 * 0.1;
                let values: Vec<f64> =
                    (0..shape.iter().product::<usize>()).map(|i| f64::from(number(i) as f32)).collect();
                let given: Vec<f64> =
                    (0..taken.iter().product::<usize>()).map(|i| f64::from(number(i * 3 + 1) as f32)).collect();
                if shape[axis] == 0 {
                    continue;
                }
                let at: Vec<i64> = (0..count).map(|_| random.below(shape[axis]) as i64).collect();
                let mut want = [values.clone(), values.iter().map(|x| x * 2.0).collect()];
                for (from, to) in lines(&taken, axis).iter().zip(lines(&shape, axis)) {
                    for (k, i) in at.iter().enumerate() {
                        let to = to[*i as usize];
                        // Added in the order of the indices, each sum rounded.
                        let sum = |a: f64, b: f64| if add { f64::from(a as f32 + b as f32) } else { b };
                        want[0][to] = sum(want[0][to], given[from[k]]);
                        want[1][to] = sum(want[1][to], 1.5);
                    }
                }
                let args = [floats(&shape, &values), ints(Elem::I32, &[count], &at), floats(&taken, &given)];
                let got = program.call("f", &args).unwrap();
                same(&got[0].to_f64(), &want[0]);
                same(&got[1].to_f64(), &want[1]);
                if count > 0 && !values.is_empty() {
                    let mut at = at.clone();
                    at[0] = shape[axis] as i64;
                    let e = program.call("f", &[args[0].clone(), ints(Elem::I32, &[count], &at), args[2].clone()]);
                    assert!(e.as_ref().is_err_and(|e| e.contains("out of range")), "{e:?}");
                }
            }
        }
    }
}

/// Indices of several axes, as one list; other element types; a target that is read again.
#[test]
fn scattering_at_a_matrix_of_indices() {
    let program = program(
        "(x: i64[N, D], at: i64[A, B], v: i64[A, B, D], b: bf16[N, D], w: bf16[A, B, D]) -> (i64[N, D], i64[N, D], bf16[N, D]) {\n        \
         (scatter(x, at, v), x, scatter_add(b, at, w))\n    }",
    );
    let x: Vec<i64> = (0..8).collect();
    let at = [3, 0, 3, 1, 1, 1];
    let v: Vec<i64> = (100..112).collect();
    let bf16 = |shape: &[usize], values: &[f64]| Tensor::from_floats(Elem::BF16, shape.to_vec(), values).unwrap();
    let b = bf16(&[4, 2], &[256.0; 8]);
    let w = bf16(&[2, 3, 2], &[1.0; 12]);
    let args = [ints(Elem::I64, &[4, 2], &x), ints(Elem::I64, &[2, 3], &at), ints(Elem::I64, &[2, 3, 2], &v), b, w];
    let got = program.call("f", &args).unwrap();
    assert_eq!(got[0].to_i64(), [102, 103, 110, 111, 4, 5, 104, 105]);
    assert_eq!(got[1].to_i64(), x);
    // 256 + 1 is 256 in bf16, however often.
    assert_eq!(got[2].to_f64(), [256.0; 8]);
}

/// Windows overlap, touch or leave gaps, along each axis; what is computed of them, stored, or multiplied reads the same elements.
#[test]
fn windows_of_each_axis() {
    for (size, stride) in [(1, 1), (3, 1), (2, 2), (2, 3), (4, 2)] {
        let program = program(&format!(
            "(x: f32[A, B, C], w: f32[{size}, 2]) -> (f32[A, B, (floor_div(C - {size}, {stride}) + 1), {size}], \
             f32[A, (floor_div(B - {size}, {stride}) + 1), {size}, C], f32[A, B, (floor_div(C - {size}, {stride}) + 1), 2]) \
             where {size} <= B, {size} <= C {{\n        \
             (windows(x, {size}, {stride}) * 1, windows(x, {size}, {stride}, axis = B), windows(x, {size}, stride = {stride}) @ w)\n    }}"
        ));
        for [a, b, c] in [[2, 4, 7], [1, 5, 4], [0, 6, 5], [3, 4, 33]] {
            let values: Vec<f64> = (0..a * b * c).map(|i| (i % 23) as f64 - 9.0).collect();
            let weights: Vec<f64> = (0..size * 2).map(|i| i as f64 - 2.0).collect();
            let got = program.call("f", &[floats(&[a, b, c], &values), floats(&[size, 2], &weights)]).unwrap();
            let (columns, rows) = ((c - size) / stride + 1, (b - size) / stride + 1);
            let x = |i: usize, j: usize, k: usize| values[(i * b + j) * c + k];
            let (mut along, mut down, mut product) = (Vec::new(), Vec::new(), Vec::new());
            for i in 0..a {
                for j in 0..b {
                    for n in 0..columns {
                        along.extend((0..size).map(|k| x(i, j, n * stride + k)));
                        product.extend(
                            (0..2)
                                .map(|o| (0..size).map(|k| x(i, j, n * stride + k) * weights[k * 2 + o]).sum::<f64>()),
                        );
                    }
                }
                for n in 0..rows {
                    for k in 0..size {
                        down.extend((0..c).map(|l| x(i, n * stride + k, l)));
                    }
                }
            }
            same(&got[0].to_f64(), &along);
            same(&got[1].to_f64(), &down);
            same(&got[2].to_f64(), &product);
        }
    }
}

#[test]
fn every_second_and_third_element() {
    let program = program(
        "(x: f32[A, B]) -> (f32[A, ceil_div(B, 2)], f32[ceil_div(A, 3), B], f32[A, ceil_div(B, 2)]) {\n        \
         (every(x, 2), every(x, 3, axis = 0), exp(every(x, 2)))\n    }",
    );
    for [a, b] in [[3, 5], [1, 1], [0, 4], [4, 0], [7, 2]] {
        let values: Vec<f64> = (0..a * b).map(|i| i as f64 * 0.25).collect();
        let got = program.call("f", &[floats(&[a, b], &values)]).unwrap();
        let second: Vec<f64> = (0..a * b).filter(|i| i % b % 2 == 0).map(|i| values[i]).collect();
        let third: Vec<f64> = (0..a * b).filter(|i| i / b % 3 == 0).map(|i| values[i]).collect();
        same(&got[0].to_f64(), &second);
        same(&got[1].to_f64(), &third);
        everywhere::near(
            "exp",
            &floats(&[a, b.div_ceil(2)], &second.iter().map(|x| x.exp()).collect::<Vec<f64>>()),
            &got[2],
        );
    }
}

/// A convolution over time is a product by windows, and so is one over the patches of an image.
#[test]
fn convolutions_are_products_by_windows() {
    let program = program(
        "(x: f32[T, C], w: f32[O, C, 3], image: f32[3, 6, 9], p: f32[3, 2, 3, E]) -> (f32[ceil_div(T, 2), O], f32[9, E]) {\n        \
         let padded = pad(x, axis = 0, low = 1, high = 1)\n        \
         let over_time = einsum(\"t k c, o c k -> t o\", windows(padded, 3, 2, axis = 0), w)\n        \
         let patches = windows(windows(image, 2, 2, axis = 1), 3, 3)\n        \
         let cut = rearrange(patches, \"c h p w q -> (h w) (c p q)\")\n        \
         (over_time, cut @ rearrange(p, \"c p q e -> (c p q) e\"))\n    }",
    );
    for (t, c, o, e) in [(5, 2, 3, 4), (1, 1, 1, 1), (8, 3, 2, 2)] {
        let numbers = |n: usize| (0..n).map(|i| (i % 7) as f64 - 3.0).collect::<Vec<f64>>();
        let (x, w, image, p) = (numbers(t * c), numbers(o * c * 3), numbers(3 * 6 * 9), numbers(18 * e));
        let args = [floats(&[t, c], &x), floats(&[o, c, 3], &w), floats(&[3, 6, 9], &image), floats(&[3, 2, 3, e], &p)];
        let got = program.call("f", &args).unwrap();
        let mut over_time = Vec::new();
        for n in 0..t.div_ceil(2) {
            for out in 0..o {
                let mut sum = 0.0;
                for k in 0..3 {
                    let at = (n * 2 + k).checked_sub(1).filter(|at| *at < t);
                    sum += at.map_or(0.0, |at| (0..c).map(|i| x[at * c + i] * w[(out * c + i) * 3 + k]).sum());
                }
                over_time.push(sum);
            }
        }
        same(&got[0].to_f64(), &over_time);
        let mut embedded = Vec::new();
        for (row, column) in (0..9).map(|n| (n / 3, n % 3)) {
            for out in 0..e {
                let part = |c: usize, i: usize, j: usize| {
                    image[(c * 6 + row * 2 + i) * 9 + column * 3 + j] * p[((c * 2 + i) * 3 + j) * e + out]
                };
                let places = (0..3).flat_map(|c| (0..2).flat_map(move |i| (0..3).map(move |j| (c, i, j))));
                embedded.push(places.map(|(c, i, j)| part(c, i, j)).sum());
            }
        }
        same(&got[1].to_f64(), &embedded);
    }
}
