//! Does each construct of the language compute what the language reference says?
//!
//! Programs are lowered and run in the interpreter; what they must give is computed here by plain loops.

use crate::front;

mod calls;
mod dimensions;
mod scalars;

use std::collections::BTreeMap;

use attnc::ir::{interp, verify};
use attnc::lowering::graph::Options;
use attnc::shape::Elem;
use attnc::tensor::Tensor;

/// An f32 tensor whose elements are computed from their places.
fn t(shape: &[usize], f: impl Fn(&[usize]) -> f64) -> Tensor {
    let count: usize = shape.iter().product();
    let values: Vec<f32> = (0..count).map(|n| f(&place(shape, n)) as f32).collect();
    Tensor::from_f32(shape.to_vec(), &values).unwrap()
}

fn place(shape: &[usize], mut n: usize) -> Vec<usize> {
    let mut at = vec![0; shape.len()];
    for (i, extent) in shape.iter().enumerate().rev() {
        at[i] = n % extent;
        n /= extent;
    }
    at
}

fn ints(elem: Elem, shape: &[usize], values: &[i64]) -> Tensor {
    Tensor::from_ints(elem, shape.to_vec(), values).unwrap()
}

/// Some numbers that are all different and exact in f32.
fn numbers(shape: &[usize]) -> Tensor {
    let shape = shape.to_vec();
    t(&shape.clone(), move |at| at.iter().zip(&shape).fold(0.0, |n, (i, extent)| n * *extent as f64 + *i as f64) - 3.0)
}

fn at(x: &Tensor, place: &[usize]) -> f64 {
    let n = place.iter().zip(x.shape()).fold(0, |n, (i, extent)| n * extent + i);
    x.to_f64()[n]
}

pub(super) struct Run {
    pub(super) results: Vec<Tensor>,
    taps: BTreeMap<String, Tensor>,
}

/// Lowers a program and calls its entry point.
pub(super) fn call(source: &str, entry: &str, args: &[Tensor], params: &[(&str, Tensor)]) -> Result<Run, String> {
    let module = front::module("m.attn", source, &Options::default())?;
    let verified = verify(&module).map_err(|errors| errors.to_string())?;
    let params: BTreeMap<String, Tensor> = params.iter().map(|(name, x)| ((*name).to_string(), x.clone())).collect();
    let call = interp::Call { function: entry, args, params: &params, limits: Default::default() };
    let out = interp::run_tapped::<f32>(verified, &call).map_err(|failure| failure.to_string())?;
    let results = out.results.iter().map(|x| x.to_tensor().unwrap()).collect();
    let taps = out.taps.iter().map(|(name, x)| (name.clone(), x.to_tensor().unwrap())).collect();
    Ok(Run { results, taps })
}

/// The results of a body in a model without parameters.
fn body(signature: &str, body: &str, args: &[Tensor]) -> Vec<Tensor> {
    let source = format!(
        "use std.nn\nmodel M<D = 4, H = 2, W = 3> where D % H == 0 {{\n    pub fn f{signature} {{\n        {body}\n    }}\n}}\n"
    );
    call(&source, "f", args, &[]).unwrap_or_else(|message| panic!("{source}\n{message}")).results
}

/// The only result of a body.
fn one(signature: &str, text: &str, args: &[Tensor]) -> Tensor {
    body(signature, text, args).remove(0)
}

fn close(a: &Tensor, b: &Tensor) {
    assert_eq!((a.elem(), a.shape()), (b.elem(), b.shape()));
    for (x, y) in a.to_f64().iter().zip(b.to_f64()) {
        assert!((x - y).abs() <= 1e-5 * (1.0 + y.abs()) || x == &y || (x.is_nan() && y.is_nan()), "{x} is not {y}");
    }
}

#[test]
fn rearrange_moves_splits_and_joins() {
    let x = numbers(&[2, 3, 4]);
    let y = one("(x: f32[A, B, D]) -> f32[D, A, B]", "rearrange(x, \"a b c -> c a b\")", std::slice::from_ref(&x));
    assert_eq!(y, t(&[4, 2, 3], |p| at(&x, &[p[1], p[2], p[0]])));
    let signature = "(x: f32[A, B, D]) -> f32[H, B*A, D/H, 1]";
    let y = one(signature, "rearrange(x, \"a b (h c) -> h (b a) c 1\", h = H)", std::slice::from_ref(&x));
    assert_eq!(y, t(&[2, 6, 2, 1], |p| at(&x, &[p[1] % 2, p[1] / 2, p[0] * 2 + p[2]])));
    // `..` keeps its axes together, wherever it stands.
    let signature = "(x: f32[.., S, D]) -> f32[.., D/H, S*H]";
    let y = one(signature, "rearrange(x, \".. s (h d) -> .. d (s h)\", h = H)", std::slice::from_ref(&x));
    assert_eq!(y, t(&[2, 2, 6], |p| at(&x, &[p[0], p[2] / 2, (p[2] % 2) * 2 + p[1]])));
    // Names that other libraries give to arguments are names of axes like others.
    for (axis, other) in [("a", "b"), ("input", "dim"), ("dim", "keepdim")] {
        let split = format!("rearrange(x, \"s t ({axis} {other}) -> s t {axis} {other}\", {axis} = H)");
        let y = one("(x: f32[A, B, D]) -> f32[A, B, H, D/H]", &split, std::slice::from_ref(&x));
        assert_eq!(y, t(&[2, 3, 2, 2], |p| at(&x, &[p[0], p[1], p[2] * 2 + p[3]])), "{split}");
    }
    let y = one("(x: f32[1, A, D]) -> f32[A, D]", "rearrange(x, \"1 a d -> a d\")", &[numbers(&[1, 3, 4])]);
    assert_eq!(y, numbers(&[3, 4]));
}

#[test]
fn parts_of_tensors() {
    let x = numbers(&[3, 4]);
    let x1 = std::slice::from_ref(&x);
    let parts = body("(x: f32[3, D]) -> (f32[D], f32[D], f32[D])", "unbind(x)", x1);
    assert_eq!(parts[2], t(&[4], |p| at(&x, &[2, p[0]])));
    let parts = body("(x: f32[S, 2]) -> (f32[S], f32[S])", "unbind(x, axis = -1)", &[numbers(&[5, 2])]);
    assert_eq!(parts[1], t(&[5], |p| at(&numbers(&[5, 2]), &[p[0], 1])));
    let parts = body("(x: f32[S, D]) -> (f32[S, D/2], f32[S, D/2]) where D % 2 == 0", "split(x)", x1);
    assert_eq!(parts[1], t(&[3, 2], |p| at(&x, &[p[0], p[1] + 2])));
    assert_eq!(one("(x: f32[S, D]) -> f32[S, 2]", "x[.., 1..3]", x1), t(&[3, 2], |p| at(&x, &[p[0], p[1] + 1])));
    assert_eq!(one("(x: f32[S, D]) -> f32[S]", "x[.., D - 1]", x1), t(&[3], |p| at(&x, &[p[0], 3])));
    assert_eq!(one("(x: f32[S, D]) -> f32[D] where S >= 1", "x[S - 1]", x1), t(&[4], |p| at(&x, &[2, p[0]])));
    assert_eq!(one("(x: f32[S, D]) -> f32[S - 1, D]", "x[1..]", x1), t(&[2, 4], |p| at(&x, &[p[0] + 1, p[1]])));
    assert_eq!(one("(x: f32[W, D]) -> f32[]", "x[1, 2]", x1), t(&[], |_| at(&x, &[1, 2])));
    let i = ints(Elem::I32, &[], &[1]);
    assert_eq!(one("(x: f32[S, D], i: i32) -> f32[D]", "x[i]", &[x.clone(), i]), t(&[4], |p| at(&x, &[1, p[0]])));
    let tokens = ints(Elem::I64, &[2, 2], &[2, 0, 1, 2]);
    let rows = [2, 0, 1, 2];
    let gathered = one("(x: f32[S, D], i: i64[A, B]) -> f32[A, B, D]", "x[i]", &[x.clone(), tokens.clone()]);
    assert_eq!(gathered, t(&[2, 2, 4], |p| at(&x, &[rows[p[0] * 2 + p[1]], p[2]])));
    let gathered = one("(x: f32[S, D], i: i64[A, B]) -> f32[S, A, B]", "x[.., i]", &[x.clone(), tokens]);
    assert_eq!(gathered, t(&[3, 2, 2], |p| at(&x, &[p[0], rows[p[1] * 2 + p[2]]])));
    let joined = one("(x: f32[S, D], y: f32[T, D]) -> f32[S + T, D]", "concat(x, y)", &[x.clone(), numbers(&[1, 4])]);
    assert_eq!(joined, t(&[4, 4], |p| if p[0] < 3 { at(&x, p) } else { p[1] as f64 - 3.0 }));
    let padded = one("(x: f32[S, D]) -> f32[S, D + 3]", "pad(x, axis = -1, low = 1, high = 2, value = 9)", x1);
    assert_eq!(padded, t(&[3, 7], |p| if (1..5).contains(&p[1]) { at(&x, &[p[0], p[1] - 1]) } else { 9.0 }));
}

#[test]
fn masks_are_padded() {
    let x = t(&[3], |p| [1.0, -1.0, 1.0][p[0]]);
    let mask = |value: &str| format!("where(pad(x > 0, {value}), 1.0, 2.0)");
    let shifted = one("(x: f32[W]) -> f32[W + 1]", &mask("low = 1"), std::slice::from_ref(&x));
    assert_eq!(shifted, t(&[4], |p| [2.0, 1.0, 2.0, 1.0][p[0]]));
    let longer = one("(x: f32[W]) -> f32[W + 2]", &mask("high = 2, value = true"), &[x]);
    assert_eq!(longer, t(&[5], |p| [1.0, 2.0, 1.0, 1.0, 1.0][p[0]]));
}

/// What messages advise to write for functions of other libraries computes what these compute.
#[test]
fn advised_formulas_compute_what_they_stand_for() {
    let x = numbers(&[3, 4]);
    let x1 = std::slice::from_ref(&x);
    let variance = "mean(pow(x - mean(x, axis = -1, keep = true), 2), axis = -1)";
    let mean = |i: usize| (0..4).map(|j| at(&x, &[i, j])).sum::<f64>() / 4.0;
    let expected = t(&[3], |p| (0..4).map(|j| (at(&x, &[p[0], j]) - mean(p[0])).powi(2)).sum::<f64>() / 4.0);
    close(&one("(x: f32[S, D]) -> f32[S]", variance, x1), &expected);
    let each = "rearrange(rearrange(x, \"a b -> a 1 b\") * full<f32>(1, [1, 2, 1]), \"a n b -> (a n) b\")";
    assert_eq!(one("(x: f32[S, D]) -> f32[2*S, D]", each, x1), t(&[6, 4], |p| at(&x, &[p[0] / 2, p[1]])));
    let over = "rearrange(rearrange(x, \"a b -> 1 a b\") * full<f32>(1, [2, 1, 1]), \"n a b -> (n a) b\")";
    assert_eq!(one("(x: f32[S, D]) -> f32[2*S, D]", over, x1), t(&[6, 4], |p| at(&x, &[p[0] % 3, p[1]])));
    let upper = "where(causal(D, D).T, full<f32>(1, [D, D]), 0)";
    assert_eq!(one("(x: f32[S, D]) -> f32[D, D]", upper, x1), t(&[4, 4], |p| f64::from(u8::from(p[1] >= p[0]))));
    let column = one("(x: f32[S, D]) -> f32[S]", "x[0.., 0]", x1);
    assert_eq!(column, t(&[3], |p| at(&x, &[p[0], 0])));
}

#[test]
fn products() {
    let (a, b) = (numbers(&[2, 3, 4]), numbers(&[4, 5]));
    let dot = |n: usize, f: &dyn Fn(usize) -> f64| (0..n).map(f).sum::<f64>();
    let product = t(&[2, 3, 5], |p| dot(4, &|k| at(&a, &[p[0], p[1], k]) * at(&b, &[k, p[2]])));
    assert_eq!(one("(a: f32[.., S, D], b: f32[D, N]) -> f32[.., S, N]", "a @ b", &[a.clone(), b.clone()]), product);
    let (v, m) = (numbers(&[4]), numbers(&[4, 3]));
    let row = t(&[3], |p| dot(4, &|k| at(&v, &[k]) * at(&m, &[k, p[0]])));
    assert_eq!(one("(v: f32[D], m: f32[D, N]) -> f32[N]", "v @ m", &[v.clone(), m.clone()]), row);
    assert_eq!(one("(v: f32[D], m: f32[D, N]) -> f32[N]", "m.T @ v", &[v.clone(), m.clone()]), row);
    assert_eq!(one("(v: f32[D]) -> f32[]", "v @ v", std::slice::from_ref(&v)), t(&[], |_| 14.0));
    // A row through a layer that takes `..`.
    let wide = one("(a: f32[.., I], w: f32[O, I]) -> f32[.., O]", "a @ w.T", &[v.clone(), numbers(&[2, 4])]);
    assert_eq!(wide, t(&[2], |p| dot(4, &|k| at(&v, &[k]) * at(&numbers(&[2, 4]), &[p[0], k]))));
    let bytes = ints(Elem::I8, &[1, 3], &[100, 100, 100]);
    let sum = one("(a: i8[S, K]) -> i32[S, S]", "a @ a.T", &[bytes]);
    assert_eq!(sum, ints(Elem::I32, &[1, 1], &[30_000]));
}

#[test]
fn einsum_in_its_forms() {
    let (a, b) = (numbers(&[2, 3, 4]), numbers(&[2, 5, 4]));
    let dot = |n: usize, f: &dyn Fn(usize) -> f64| (0..n).map(f).sum::<f64>();
    let scores = one(
        "(a: f32[H, S, D], b: f32[H, T, D]) -> f32[H, S, T]",
        "einsum(\"h s d, h t d -> h s t\", a, b)",
        &[a.clone(), b.clone()],
    );
    assert_eq!(scores, t(&[2, 3, 5], |p| dot(4, &|k| at(&a, &[p[0], p[1], k]) * at(&b, &[p[0], p[2], k]))));
    let scores = one(
        "(a: f32[.., S, D], b: f32[.., T, D]) -> f32[.., T, S]",
        "einsum(\".. s d, .. t d -> .. t s\", a, b)",
        &[a.clone(), b.clone()],
    );
    assert_eq!(scores, t(&[2, 5, 3], |p| dot(4, &|k| at(&a, &[p[0], p[2], k]) * at(&b, &[p[0], p[1], k]))));
    let (u, v) = (numbers(&[3]), numbers(&[2]));
    let outer = one("(u: f32[I], v: f32[J]) -> f32[J, I]", "einsum(\"i, j -> j i\", u, v)", &[u.clone(), v.clone()]);
    assert_eq!(outer, t(&[2, 3], |p| at(&u, &[p[1]]) * at(&v, &[p[0]])));
    let x = numbers(&[2, 3]);
    let sums = one("(x: f32[I, J]) -> f32[J]", "einsum(\"i j -> j\", x)", std::slice::from_ref(&x));
    assert_eq!(sums, t(&[3], |p| dot(2, &|i| at(&x, &[i, p[0]]))));
    let all = one("(x: f32[I, J], v: f32[I]) -> f32[]", "einsum(\"i j, i -> \", x, v)", &[x.clone(), v.clone()]);
    assert_eq!(all, t(&[], |_| dot(6, &|n| at(&x, &[n / 3, n % 3]) * at(&v, &[n / 3]))));
    let three = one(
        "(x: f32[I, J], u: f32[J], v: f32[I]) -> f32[I]",
        "einsum(\"i j, j, i -> i\", x, u, v)",
        &[x.clone(), u.clone(), v.clone()],
    );
    assert_eq!(three, t(&[2], |p| dot(3, &|j| at(&x, &[p[0], j]) * at(&u, &[j])) * at(&v, &[p[0]])));
}

#[test]
fn reductions_and_empty_axes() {
    let x = numbers(&[2, 3]);
    let x1 = std::slice::from_ref(&x);
    assert_eq!(one("(x: f32[S, T]) -> f32[S]", "sum(x)", x1), t(&[2], |p| [-6.0, 3.0][p[0]]));
    assert_eq!(one("(x: f32[S, T]) -> f32[1, T]", "max(x, axis = 0, keep = true)", x1), t(&[1, 3], |p| p[1] as f64));
    assert_eq!(one("(x: f32[S, T]) -> f32[]", "mean(x, axis = [0, 1])", x1), t(&[], |_| -0.5));
    assert_eq!(one("(x: f32[S, T]) -> f32[T]", "min(x, axis = S)", x1), t(&[3], |p| p[0] as f64 - 3.0));
    assert_eq!(one("(x: f32[S, T]) -> i32[S]", "argmax(x)", x1), ints(Elem::I32, &[2], &[2, 2]));
    assert_eq!(one("(x: f32[S, T]) -> bool[S]", "any(x > 1)", x1), ints(Elem::Bool, &[2], &[0, 1]));
    assert_eq!(one("(x: f32[S, T]) -> bool[S]", "all(x <= -1)", x1), ints(Elem::Bool, &[2], &[1, 0]));
    let none = numbers(&[2, 0]);
    let n1 = std::slice::from_ref(&none);
    for (name, value) in [("sum", 0.0), ("max", f64::NEG_INFINITY), ("min", f64::INFINITY), ("mean", f64::NAN)] {
        close(&one("(x: f32[S, T]) -> f32[S]", &format!("{name}(x)"), n1), &t(&[2], |_| value));
    }
    assert_eq!(one("(x: f32[S, T]) -> bool[S]", "all(x > 0)", n1), ints(Elem::Bool, &[2], &[1, 1]));
    assert_eq!(one("(x: f32[S, T]) -> bool[S]", "any(x > 0)", n1), ints(Elem::Bool, &[2], &[0, 0]));
}

#[test]
fn softmax_of_a_hidden_row_is_zero() {
    let x = t(&[2, 3], |p| p[1] as f64);
    let text = "softmax(where(iota(T) < 0, x, -inf))";
    assert_eq!(one("(x: f32[S, T]) -> f32[S, T]", text, std::slice::from_ref(&x)), t(&[2, 3], |_| 0.0));
    let total: f64 = (0..3).map(|i| f64::from(i).exp()).sum();
    let soft = one("(x: f32[S, T]) -> f32[S, T]", "softmax(x)", std::slice::from_ref(&x));
    close(&soft, &t(&[2, 3], |p| (p[1] as f64).exp() / total));
    let logs = one("(x: f32[S, T]) -> f32[S, T]", "log_softmax(x, axis = 1)", std::slice::from_ref(&x));
    close(&logs, &t(&[2, 3], |p| p[1] as f64 - total.ln()));
    // The logarithms of those zeros, never NaN, also where only one row is hidden.
    let hidden = "log_softmax(where(iota(T) < 0, x, -inf), axis = 1)";
    let logs = one("(x: f32[S, T]) -> f32[S, T]", hidden, std::slice::from_ref(&x));
    assert_eq!(logs, t(&[2, 3], |_| f64::NEG_INFINITY));
    let half = one(
        "(x: f32[T, S]) -> f32[T, S]",
        "log_softmax(where(iota(S) < 1, x, -inf), axis = 0)",
        std::slice::from_ref(&x),
    );
    close(&half, &t(&[2, 3], |p| if p[1] == 0 { 0.5_f64.ln() } else { f64::NEG_INFINITY }));
    let columns = one("(x: f32[S, T]) -> f32[S, T]", "softmax(x, axis = 0)", &[x]);
    close(&columns, &t(&[2, 3], |_| 0.5));
}

#[test]
fn sources_and_dimensions_as_numbers() {
    let x = numbers(&[2, 4]);
    let x1 = std::slice::from_ref(&x);
    let mask = |q: usize, k: usize| -> Vec<i64> { (0..q * k).map(|n| i64::from(n % k + q <= n / k + k)).collect() };
    assert_eq!(one("(x: f32[S, T]) -> bool[S, T]", "causal(S, T)", x1), ints(Elem::Bool, &[2, 4], &mask(2, 4)));
    assert_eq!(one("(x: f32[S, T]) -> bool[T, S]", "causal(T, S)", x1), ints(Elem::Bool, &[4, 2], &mask(4, 2)));
    assert_eq!(one("(x: f32[S, T]) -> i32[T]", "iota(T)", x1), ints(Elem::I32, &[4], &[0, 1, 2, 3]));
    assert_eq!(one("(x: f32[S, T]) -> f32[S, 3]", "full<f32>(0.5, [S, 3])", x1), t(&[2, 3], |_| 0.5));
    let i = ints(Elem::I32, &[3], &[1, 3, 0]);
    let rows = one("(i: i32[S]) -> f32[S, W]", "one_hot(i, W)", &[i]);
    assert_eq!(rows, t(&[3, 3], |p| f64::from(u8::from([1, 3, 0][p[0]] == p[1]))));
    assert_eq!(one("(x: f32[S, D]) -> f32[S, D]", "x / sqrt(D / H) * S", x1).shape(), [2, 4]);
    close(&one("(x: f32[S, D]) -> f32[S, D]", "x / sqrt(D) * S", x1), &x);
    close(&one("(x: f32[S, D]) -> f32[S, D]", "where(S < D, x, 0)", x1), &x);
}

#[test]
fn element_types() {
    let x = t(&[6], |p| [1.9, -1.9, 3e9, -3e9, f64::NAN, 0.0][p[0]]);
    let x1 = std::slice::from_ref(&x);
    let whole = [1, -1, i64::from(i32::MAX), i64::from(i32::MIN), 0, 0];
    assert_eq!(one("(x: f32[S]) -> i32[S]", "cast<i32>(x)", x1), ints(Elem::I32, &[6], &whole));
    assert_eq!(one("(x: f32[S]) -> bool[S]", "cast<bool>(x)", x1), ints(Elem::Bool, &[6], &[1, 1, 1, 1, 1, 0]));
    let i = ints(Elem::I32, &[4], &[7, -7, 7, -7]);
    assert_eq!(one("(i: i32[S]) -> i32[S]", "i / 2", std::slice::from_ref(&i)), ints(Elem::I32, &[4], &[3, -4, 3, -4]));
    assert_eq!(one("(i: i32[S]) -> i32[S]", "i % 3", std::slice::from_ref(&i)), ints(Elem::I32, &[4], &[1, 2, 1, 2]));
    // 256 + 1 is not a bf16; sums are made in f32 and rounded once.
    let halves = Tensor::from_floats(Elem::BF16, vec![3], &[256.0, 1.0, 1.0]).unwrap();
    let sum = one("(x: bf16[S]) -> bf16[]", "sum(x)", &[halves]);
    assert_eq!(sum, Tensor::from_floats(Elem::BF16, vec![], &[258.0]).unwrap());
}

#[test]
fn loops_carry_variables() {
    let x = numbers(&[4, 3]);
    let x1 = std::slice::from_ref(&x);
    let sum = "var h = full<f32>(0, [W])\nfor i in 0..S { h = h * 0.5 + x[i] }\nh";
    let mut h = [0.0; 3];
    for i in 0..4 {
        for (k, h) in h.iter_mut().enumerate() {
            *h = *h * 0.5 + at(&x, &[i, k]);
        }
    }
    close(&one("(x: f32[S, W]) -> f32[W]", sum, x1), &t(&[3], |p| h[p[0]]));
    close(&one("(x: f32[S, W]) -> f32[W]", sum, &[numbers(&[0, 3])]), &t(&[3], |_| 0.0));
    let nested = "var n = full<i32>(0, [])\nfor i in 1..4 { for j in 0..2 { n = n * 3 + i + j } }\nn";
    let mut n = 0;
    for i in 1..4 {
        for j in 0..2 {
            n = n * 3 + i + j;
        }
    }
    assert_eq!(one("(x: f32[S]) -> i32[]", nested, &[numbers(&[1])]), ints(Elem::I32, &[], &[n]));
    let never = "var y = x\nfor i in 3..2 { y = y + 1 }\ny";
    assert_eq!(one("(x: f32[S]) -> f32[S]", never, &[numbers(&[2])]), numbers(&[2]));
    let swapped = "var a = x\nvar b = x * 2\nfor i in 0..3 { (a, b) = (b, a) }\n(a, b)";
    let both = body("(x: f32[S]) -> (f32[S], f32[S])", swapped, &[numbers(&[2])]);
    assert_eq!(both[1], numbers(&[2]));
    let computed = "var y = x\nfor i in 0..n { y = y + 1 }\ny";
    let n = ints(Elem::I32, &[], &[5]);
    assert_eq!(one("(x: f32[S], n: i32) -> f32[S]", computed, &[numbers(&[2]), n]), t(&[2], |p| p[0] as f64 + 2.0));
    // Ends of two types, of which one fits no `i32`.
    let far = 1_i64 << 32;
    let ends = "var n = full<i32>(0, [])\nfor i in a..b { n = n * 10 + i + 1 }\nn";
    for ([a, b], [from, to], want) in [
        (["i64", "i32"], [far + 1, 3], 0),
        (["i64", "i32"], [1, 3], 23),
        (["i32", "i64"], [1, 3], 23),
        (["i32", "i64"], [1, 3 - far], 0),
        (["i64", "i64"], [far, far], 0),
    ] {
        let given =
            [(a, from), (b, to)].map(|(ty, n)| ints(if ty == "i32" { Elem::I32 } else { Elem::I64 }, &[], &[n]));
        let got = one(&format!("(a: {a}, b: {b}) -> i32"), ends, &given);
        assert_eq!(got, ints(Elem::I32, &[], &[want]), "{from}..{to} of {a} and {b}");
    }
}

#[test]
fn branches_have_values_and_effects() {
    let text = "if c { x + 1 } else { x * 2 }";
    let yes = ints(Elem::Bool, &[], &[1]);
    let no = ints(Elem::Bool, &[], &[0]);
    let signature = "(x: f32[S], c: bool) -> f32[S]";
    assert_eq!(one(signature, text, &[numbers(&[2]), yes.clone()]), t(&[2], |p| p[0] as f64 - 2.0));
    assert_eq!(one(signature, text, &[numbers(&[2]), no.clone()]), t(&[2], |p| (p[0] as f64 - 3.0) * 2.0));
    let text = "var y = x\nfor i in 0..4 {\n    if i % 2 == 0 { y = y * 2 } else if c { y = y + 1 }\n}\ny";
    assert_eq!(one(signature, text, &[numbers(&[2]), yes]), t(&[2], |p| ((p[0] as f64 - 3.0) * 2.0 + 1.0) * 2.0 + 1.0));
    assert_eq!(one(signature, text, &[numbers(&[2]), no]), t(&[2], |p| (p[0] as f64 - 3.0) * 4.0));
}

const ARRAYS: &str = "
layer Inner<D> {
    w: f32[D]
    fn forward(x: f32[.., D]) -> f32[.., D] {
        let y = x * w
        tap y
        y
    }
}
layer Outer<D, N> {
    inner: [Inner<D>; N]
    #[name = \"extra.bias\"]
    b: f32[D]
    fn forward(x: f32[S, D]) -> f32[S, D] {
        var y = x + b
        for l in inner { y = l(y) }
        y
    }
}
model M<L = 2, N = 2, D = 1> {
    outer: [Outer<D, N>; L]
    last: [Inner<D>; 1]
    pub fn f(x: f32[S, D]) -> f32[S, D] {
        var y = x
        for o in outer { y = o(y) }
        last[0](outer[1](y))
    }
    pub fn steps(x: f32[S, D]) -> f32[S, D] {
        var y = x
        for i in 2..5 {
            y = y + 1
            tap y
        }
        y
    }
}
";

#[test]
fn arrays_of_layers_in_arrays() {
    let one = |v: f64| t(&[1], |_| v);
    let params = [
        ("outer.0.inner.0.w", one(2.0)),
        ("outer.0.inner.1.w", one(3.0)),
        ("outer.1.inner.0.w", one(5.0)),
        ("outer.1.inner.1.w", one(7.0)),
        ("outer.0.extra.bias", one(1.0)),
        ("outer.1.extra.bias", one(-1.0)),
        ("last.0.w", one(0.5)),
    ];
    let run = call(ARRAYS, "f", &[t(&[1, 1], |_| 1.0)], &params).unwrap();
    // ((1 + 1) * 2 * 3 - 1) * 5 * 7 = 385; once more through the second: (385 - 1) * 35 = 13440; half of it.
    assert_eq!(run.results[0], t(&[1, 1], |_| 6720.0));
    let taps: Vec<(&str, f64)> = run.taps.iter().map(|(name, x)| (name.as_str(), x.to_f64()[0])).collect();
    let expected = [
        ("last.0.y", 6720.0),
        ("outer.0.inner.0.y", 4.0),
        ("outer.0.inner.1.y", 12.0),
        ("outer.1.inner.0.y", 55.0),
        ("outer.1.inner.0.y.2", 1920.0),
        ("outer.1.inner.1.y", 385.0),
        ("outer.1.inner.1.y.2", 13440.0),
    ];
    assert_eq!(taps, expected);
    let run = call(ARRAYS, "steps", &[t(&[1, 1], |_| 1.0)], &params).unwrap();
    assert_eq!(run.taps["y"], t(&[3, 1, 1], |p| p[0] as f64 + 2.0));
}

#[test]
fn leading_axes_broadcast_between_arguments_of_a_call() {
    let source = "
fn scores(q: f32[.., S, D], k: f32[.., T, D]) -> f32[.., S, T] { q @ k.T }
fn scaled<K>(x: f32[.., K], by: f32[K]) -> f32[.., K] { x * by / K }
model M<D = 2> {
    w: f32[D]
    pub fn f(q: f32[B, S, D], k: f32[T, D]) -> f32[B, S, T] { scores(scaled(q, w), k) }
}
";
    let (q, k, w) = (numbers(&[2, 2, 2]), numbers(&[3, 2]), t(&[2], |p| [2.0, 4.0][p[0]]));
    let run = call(source, "f", &[q.clone(), k.clone()], &[("w", w.clone())]).unwrap();
    let expected =
        t(&[2, 2, 3], |p| (0..2).map(|d| at(&q, &[p[0], p[1], d]) * at(&w, &[d]) / 2.0 * at(&k, &[p[2], d])).sum());
    assert_eq!(run.results[0], expected);
}

#[test]
fn arguments_are_checked_on_entry() {
    let source = "model M<T = 4> {\n    p: f32[T]\n    pub fn f(x: f32[S]) -> f32[S] where S <= T { x + p[0..S] }\n}\n";
    let params = [("p", numbers(&[4]))];
    assert!(call(source, "f", &[numbers(&[4])], &params).is_ok());
    let Err(message) = call(source, "f", &[numbers(&[5])], &params) else { panic!("5 <= 4") };
    assert!(message.contains("S <= 4"), "{message}");
    let gather = "model M<T = 4> {\n    p: f32[T]\n    pub fn f(i: i32[S]) -> f32[S] { p[i] }\n}\n";
    for wrong in [-1, 4] {
        let Err(message) = call(gather, "f", &[ints(Elem::I32, &[1], &[wrong])], &params) else { panic!("{wrong}") };
        assert!(message.contains(&wrong.to_string()), "{message}");
    }
}

#[test]
fn equal_dimensions_are_one() {
    let add = "(x: f32[S], y: f32[N]) -> f32[S] where N == S";
    assert_eq!(one(add, "x + y", &[numbers(&[2]), numbers(&[2])]), t(&[2], |p| 2.0 * p[0] as f64 - 6.0));
    let twice = "(x: f32[S], y: f32[N]) -> f32[N] where N == 2*S";
    assert_eq!(one(twice, "concat(x, x) + y", &[numbers(&[1]), numbers(&[2])]).shape(), [2]);
    let source = "
fn add(x: f32[A], y: f32[B]) -> f32[B] where A == B { x + y }
layer L<I, O> where I == O {
    w: f32[I]
    fn forward(x: f32[S, O]) -> f32[S, I] { x * w }
}
model M<D = 2, E = 2> where D == E {
    l: L<D, E>
    pub fn f(x: f32[S, D], y: f32[E]) -> f32[S, E] { l(x) + add(y, y) }
}
";
    let run = call(source, "f", &[numbers(&[1, 2]), numbers(&[2])], &[("l.w", numbers(&[2]))]).unwrap();
    assert_eq!(run.results[0], t(&[1, 2], |p| [9.0 - 6.0, 4.0 - 4.0][p[1]]));
}
