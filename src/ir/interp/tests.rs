//! The semantics of the language, operation by operation.

use std::collections::BTreeMap;

use super::*;
use crate::ir::{text, verify};
use crate::shape::Elem;

fn call<F: Real>(source: &str, args: &[Tensor], params: &BTreeMap<String, Tensor>) -> Result<Outcome<F>, EvalError> {
    let module = text::parse(&format!("module \"m\"\n{source}"), Default::default());
    let module = module.unwrap_or_else(|d| panic!("{:?}", d.sorted())).module;
    let limits = Limits { elements: 1 << 20, work: 1 << 24 };
    let verified = verify(&module).unwrap_or_else(|e| panic!("{e}"));
    run(verified, &Call { function: "f", args, params, limits })
}

/// Runs `%r = LINE` over `x` (and `y`); returns its elements.
fn line(line: &str, ty: &str, args: &[(&str, Tensor)]) -> Result<Vec<f64>, EvalError> {
    let decls: Vec<String> = args.iter().enumerate().map(|(i, (ty, _))| format!("%{i} \"a{i}\": {ty}")).collect();
    let decls = decls.join(", ");
    let source = format!("func @f({decls}) -> ({ty}) {{\n^bb0:\n  %r = {line} : {ty}\n  return %r\n}}");
    let tensors: Vec<Tensor> = args.iter().map(|(_, t)| t.clone()).collect();
    let out = call::<f32>(&source, &tensors, &BTreeMap::new())?;
    Ok(out.results[0].to_tensor().unwrap().to_f64())
}

fn floats(shape: &[usize], values: &[f32]) -> Tensor {
    Tensor::from_f32(shape.to_vec(), values).unwrap()
}

fn ints(shape: &[usize], values: &[i64]) -> Tensor {
    Tensor::from_ints(Elem::I32, shape.to_vec(), values).unwrap()
}

const INF: f32 = f32::INFINITY;
const NAN: f32 = f32::NAN;

#[test]
fn a_row_of_minus_infinities_is_zeros() {
    let x = floats(&[2, 3], &[-INF, -INF, -INF, 0.0, -INF, 0.0]);
    let y = line("softmax %0, axis=1", "f32[2, 3]", &[("f32[2, 3]", x.clone())]).unwrap();
    assert_eq!(y, [0.0, 0.0, 0.0, 0.5, 0.0, 0.5]);
    // Over the first axis.
    let y = line("softmax %0, axis=0", "f32[2, 3]", &[("f32[2, 3]", x)]).unwrap();
    assert_eq!(y, [0.0, 0.0, 0.0, 1.0, 0.0, 1.0]);
}

#[test]
fn nan_passes_through() {
    let x = || [("f32[3]", floats(&[3], &[1.0, NAN, 2.0]))];
    assert!(line("reduce_max %0, axes=[0]", "f32[]", &x()).unwrap()[0].is_nan());
    assert!(line("reduce_min %0, axes=[0]", "f32[]", &x()).unwrap()[0].is_nan());
    assert!(line("softmax %0, axis=0", "f32[3]", &x()).unwrap().iter().all(|v| v.is_nan()));
    assert_eq!(line("argmax %0, axes=[0]", "i32[]", &x()).unwrap(), [1.0]);
}

#[test]
fn reductions_of_an_empty_axis() {
    let x = || [("f32[2, S]", floats(&[2, 0], &[]))];
    assert_eq!(line("reduce_sum %0, axes=[1]", "f32[2]", &x()).unwrap(), [0.0, 0.0]);
    assert_eq!(line("reduce_max %0, axes=[1]", "f32[2]", &x()).unwrap(), [f64::NEG_INFINITY; 2]);
    assert_eq!(line("reduce_min %0, axes=[1], keep=true", "f32[2, 1]", &x()).unwrap(), [f64::INFINITY; 2]);
    assert!(line("reduce_mean %0, axes=[1]", "f32[2]", &x()).unwrap()[0].is_nan());
    assert!(line("argmax %0, axes=[1]", "i32[2]", &x()).unwrap_err().message.contains("empty axis"));
    let b = || [("bool[S]", Tensor::from_ints(Elem::Bool, vec![0], &[]).unwrap())];
    assert_eq!(line("reduce_all %0, axes=[0]", "bool[]", &b()).unwrap(), [1.0]);
    assert_eq!(line("reduce_any %0, axes=[0]", "bool[]", &b()).unwrap(), [0.0]);
}

#[test]
fn ties_go_to_the_lowest_index() {
    let x = [("f32[2, 3]", floats(&[2, 3], &[1.0, 2.0, 2.0, 3.0, 3.0, 0.0]))];
    assert_eq!(line("argmax %0, axes=[1]", "i32[2]", &x).unwrap(), [1.0, 0.0]);
    assert_eq!(line("argmax %0, axes=[0], keep=true", "i32[1, 3]", &x).unwrap(), [1.0, 1.0, 0.0]);
}

#[test]
fn causal_aligns_the_ends() {
    let x = [("f32[S]", floats(&[2], &[0.0; 2])), ("f32[T]", floats(&[3], &[0.0; 3]))];
    assert_eq!(line("causal", "bool[S, T]", &x).unwrap(), [1.0, 1.0, 0.0, 1.0, 1.0, 1.0]);
    // With more queries than keys, the first queries see nothing.
    assert_eq!(line("causal", "bool[T, S]", &x).unwrap(), [0.0, 0.0, 1.0, 0.0, 1.0, 1.0]);
}

#[test]
fn an_index_out_of_range_is_an_error() {
    let gather = |i: i64| {
        line(
            "gather %0, %1, axis=0",
            "f32[1, 2]",
            &[("f32[3, 2]", floats(&[3, 2], &[0.0, 1.0, 2.0, 3.0, 4.0, 5.0])), ("i32[1]", ints(&[1], &[i]))],
        )
    };
    assert_eq!(gather(2).unwrap(), [4.0, 5.0]);
    for i in [-1, 3] {
        assert!(gather(i).unwrap_err().message.contains("out of range"));
    }
    let x = [("f32[S]", floats(&[2], &[1.0, 2.0]))];
    let message = line("slice %0, axis=0, start=1, stop=4", "f32[3]", &x).unwrap_err().message;
    assert!(message.contains("`4 <= S` does not hold"), "{message}");
    assert_eq!(line("slice %0, axis=0, start=S-1, stop=S", "f32[1]", &x).unwrap(), [2.0]);
}

#[test]
fn movement() {
    let x = || [("f32[2, 3]", floats(&[2, 3], &[0.0, 1.0, 2.0, 3.0, 4.0, 5.0]))];
    assert_eq!(line("transpose %0, perm=[1, 0]", "f32[3, 2]", &x()).unwrap(), [0.0, 3.0, 1.0, 4.0, 2.0, 5.0]);
    assert_eq!(line("concat %0, %0, axis=1", "f32[2, 6]", &x()).unwrap()[..6], [0.0, 1.0, 2.0, 0.0, 1.0, 2.0]);
    assert_eq!(line("pad %0, 9.0, axis=1, low=1, high=0", "f32[2, 4]", &x()).unwrap()[4..], [9.0, 3.0, 4.0, 5.0]);
    assert_eq!(line("index %0, 1, axis=0", "f32[3]", &x()).unwrap(), [3.0, 4.0, 5.0]);
    assert_eq!(line("broadcast %0", "f32[2, 2, 3]", &x()).unwrap()[6..9], [0.0, 1.0, 2.0]);
    assert_eq!(line("iota axis=0", "i32[2, 3]", &x()).unwrap(), [0.0, 0.0, 0.0, 1.0, 1.0, 1.0]);
}

#[test]
fn casts_truncate_saturate_and_wrap() {
    let x = [("f32[5]", floats(&[5], &[-1.9, 300.0, NAN, -INF, 0.5]))];
    assert_eq!(line("cast %0", "i8[5]", &x).unwrap(), [-1.0, 127.0, 0.0, -128.0, 0.0]);
    assert_eq!(line("cast %0", "bool[5]", &x).unwrap(), [1.0; 5]);
    assert_eq!(line("cast %0", "i8[1]", &[("i32[1]", ints(&[1], &[300]))]).unwrap(), [44.0]);
    let y = line("cast %0", "bf16[1]", &[("f32[1]", floats(&[1], &[1.004]))]).unwrap();
    assert_eq!(y, [1.007_812_5]);
}

#[test]
fn bytes_multiply_into_i32() {
    let x = Tensor::from_ints(Elem::I8, vec![1, 2], &[127, 127]).unwrap();
    let y = Tensor::from_ints(Elem::I8, vec![2, 1], &[127, -128]).unwrap();
    assert_eq!(line("matmul %0, %1", "i32[1, 1]", &[("i8[1, 2]", x), ("i8[2, 1]", y)]).unwrap(), [-127.0]);
}

#[test]
fn matmul_broadcasts_leading_axes() {
    let a = floats(&[2, 1, 1, 2], &[1.0, 2.0, 3.0, 4.0]);
    let b = floats(&[3, 2, 1], &[1.0, 1.0, 1.0, 0.0, 0.0, 1.0]);
    let y = line("matmul %0, %1", "f32[2, 3, 1, 1]", &[("f32[2, 1, 1, 2]", a), ("f32[3, 2, 1]", b)]).unwrap();
    assert_eq!(y, [3.0, 1.0, 2.0, 7.0, 3.0, 4.0]);
}

#[test]
fn attention_is_its_formula() {
    let source = "func @f(%0 \"q\": f32[2, S, 3], %1 \"k\": f32[T, 3], %2 \"v\": f32[2, T, 2], %3 \"c\": bool[S, T], %4 \"m\": f32[T]) \
        -> (f32[2, S, 2], f32[2, S, 2]) {\n^bb0:\n\
        %5 = attention %0, %1, %2, scale=0.5, mask=[causal, add(%4), keep(%3, -inf)] : f32[2, S, 2]\n\
        %6 = transpose %1, perm=[1, 0] : f32[3, T]\n  %7 = matmul %0, %6 : f32[2, S, T]\n\
        %8 = mul %7, 0.5 : f32[2, S, T]\n  %9 = causal : bool[S, T]\n  %10 = where %9, %8, -inf : f32[2, S, T]\n\
        %11 = add %10, %4 : f32[2, S, T]\n  %12 = where %3, %11, -inf : f32[2, S, T]\n\
        %13 = softmax %12, axis=2 : f32[2, S, T]\n  %14 = matmul %13, %2 : f32[2, S, 2]\n  return %5, %14\n}";
    for (s, t) in [(3, 4), (4, 3), (1, 1), (0, 2), (2, 0)] {
        let numbers = |n: usize, k: usize| (0..n).map(|i| ((i * k) % 11) as f32 / 5.0 - 1.0).collect::<Vec<f32>>();
        let keep: Vec<i64> = (0..s * t).map(|i| i64::from(i % 3 != 1)).collect();
        let args = [
            floats(&[2, s, 3], &numbers(2 * s * 3, 7)),
            floats(&[t, 3], &numbers(t * 3, 5)),
            floats(&[2, t, 2], &numbers(2 * t * 2, 3)),
            Tensor::from_ints(Elem::Bool, vec![s, t], &keep).unwrap(),
            floats(&[t], &numbers(t, 2)),
        ];
        let out = call::<f32>(source, &args, &BTreeMap::new()).unwrap();
        assert_eq!(out.results[0], out.results[1]);
        assert_eq!(out.results[0].shape, [2, s, 2]);
    }
}

/// A cap bounds the scores, and a sink takes a part of each row's weight, even in a row that sees
/// no key, whose result is zeros.
#[test]
fn attention_with_a_cap_and_a_sink_is_its_formula() {
    let source = "func @f(%0 \"q\": f32[2, S, 3], %1 \"k\": f32[T, 3], %2 \"v\": f32[2, T, 2], %3 \"s\": f32[2, 1, 1]) \
        -> (f32[2, S, 2], f32[2, S, 2]) {\n^bb0:\n\
        %4 = attention %0, %1, %2, scale=0.5, mask=[cap(1.5), causal, sink(%3)] : f32[2, S, 2]\n\
        %5 = transpose %1, perm=[1, 0] : f32[3, T]\n  %6 = matmul %0, %5 : f32[2, S, T]\n\
        %7 = mul %6, 0.5 : f32[2, S, T]\n  %8 = tanh %7 : f32[2, S, T]\n  %9 = mul %8, 1.5 : f32[2, S, T]\n\
        %10 = causal : bool[S, T]\n  %11 = where %10, %9, -inf : f32[2, S, T]\n  %12 = broadcast %3 : f32[2, S, 1]\n\
        %13 = concat %11, %12, axis=2 : f32[2, S, T+1]\n  %14 = softmax %13, axis=2 : f32[2, S, T+1]\n\
        %15 = slice %14, axis=2, start=0, stop=T : f32[2, S, T]\n  %16 = matmul %15, %2 : f32[2, S, 2]\n  return %4, %16\n}";
    for sinks in [[0.25, -1.0], [f32::NEG_INFINITY, 40.0], [-200.0, 0.0]] {
        for (s, t) in [(3, 4), (4, 3), (1, 1), (0, 2), (2, 0)] {
            let numbers = |n: usize, k: usize| (0..n).map(|i| ((i * k) % 11) as f32 / 5.0 - 1.0).collect::<Vec<f32>>();
            let args = [
                floats(&[2, s, 3], &numbers(2 * s * 3, 7)),
                floats(&[t, 3], &numbers(t * 3, 5)),
                floats(&[2, t, 2], &numbers(2 * t * 2, 3)),
                floats(&[2, 1, 1], &sinks),
            ];
            let out = call::<f32>(source, &args, &BTreeMap::new()).unwrap();
            let [Data::Float(fused), Data::Float(plain)] = [&out.results[0].data, &out.results[1].data] else {
                panic!()
            };
            assert_eq!(fused.len(), 2 * s * 2);
            for (x, y) in fused.iter().zip(plain) {
                assert!((x - y).abs() <= 1e-6, "{sinks:?} {s} x {t}: {x} is not {y}");
            }
        }
    }
}

/// In `bf16`, scores stay `f32` up to the weights, which are rounded before the second matmul; then
/// the result is rounded.
#[test]
fn attention_of_small_floats_rounds_weights_and_the_result() {
    for elem in [Elem::BF16, Elem::F16] {
        let source = format!(
            "func @f(%0 \"q\": {elem}[2, S, 3], %1 \"k\": {elem}[T, 3], %2 \"v\": {elem}[2, T, 2], %3 \"m\": {elem}[T]) \
            -> ({elem}[2, S, 2], {elem}[2, S, 2], {elem}[2, S, 2]) {{\n^bb0:\n\
            %4 = attention %0, %1, %2, scale=0.5, mask=[causal, add(%3)] : {elem}[2, S, 2]\n\
            %5 = cast %0 : f32[2, S, 3]\n  %6 = cast %1 : f32[T, 3]\n  %7 = cast %2 : f32[2, T, 2]\n  %8 = cast %3 : f32[T]\n\
            %9 = transpose %6, perm=[1, 0] : f32[3, T]\n  %10 = matmul %5, %9 : f32[2, S, T]\n\
            %11 = mul %10, 0.5 : f32[2, S, T]\n  %12 = causal : bool[S, T]\n  %13 = where %12, %11, -inf : f32[2, S, T]\n\
            %14 = add %13, %8 : f32[2, S, T]\n  %15 = softmax %14, axis=2 : f32[2, S, T]\n\
            %16 = cast %15 : {elem}[2, S, T]\n  %17 = cast %16 : f32[2, S, T]\n  %18 = matmul %17, %7 : f32[2, S, 2]\n\
            %19 = cast %18 : {elem}[2, S, 2]\n  %20 = matmul %15, %7 : f32[2, S, 2]\n  %21 = cast %20 : {elem}[2, S, 2]\n\
            return %4, %19, %21\n}}"
        );
        let mut rounded = false;
        for (s, t) in [(3, 4), (4, 3), (1, 1), (9, 21), (0, 2), (2, 0)] {
            let numbers = |shape: &[usize], k: usize| {
                let values: Vec<f64> = (0..shape.iter().product()).map(|i| ((i * k) % 11) as f64 / 5.0 - 1.0).collect();
                Tensor::from_floats(elem, shape.to_vec(), &values).unwrap()
            };
            let args = [numbers(&[2, s, 3], 7), numbers(&[t, 3], 5), numbers(&[2, t, 2], 3), numbers(&[t], 2)];
            let out = call::<f32>(&source, &args, &BTreeMap::new()).unwrap();
            assert_eq!(out.results[0], out.results[1], "{elem}, {s} x {t}");
            rounded |= out.results[0] != out.results[2];
        }
        assert!(rounded, "{elem}: weights that are not rounded would be the same");
    }
}

const LOOP: &str = "param \"h.*.w\"[3] : f32[2]\n\
    func @f(%0 \"x\" batch: f32[B, 2]) -> (batch f32[B, 2]) {\n  where B <= 8\n  tapped\n^bb0:\n  br ^bb1(0, %0)\n\
    ^bb1(%1: index, %2: f32[B, 2]):\n  %3 = lt %1, 3 : bool[]\n  br_if %3, ^bb2, ^bb3\n\
    ^bb2:\n  %4 = param \"h.*.w\"[%1] : f32[2]\n  %5 = mul %2, %4 : f32[B, 2]\n  tap %5, \"h.*.out\"[%1 < 3]\n\
    \n  %6 = index %5, 0, axis=0 : f32[2]\n  tap %6, \"steps\"[%1 < 3]\n  %7 = add %1, 1 : index\n\
    \n  br ^bb1(%7, %5)\n^bb3:\n  return %2\n}";

fn weights() -> BTreeMap<String, Tensor> {
    (0..3).map(|i| (format!("h.{i}.w"), floats(&[2], &[2.0, i as f32]))).collect()
}

#[test]
fn loops_read_parameters_and_fill_taps() {
    let x = floats(&[2, 2, 2], &[1.0; 8]);
    let out = call::<f32>(LOOP, &[x], &weights()).unwrap();
    // The leading axes are restored.
    assert_eq!(out.results[0].shape, [2, 2, 2]);
    assert_eq!(out.results[0].to_tensor().unwrap().to_f32(), [8.0, 0.0].repeat(4));
    assert_eq!(out.taps.keys().collect::<Vec<_>>(), ["h.0.out", "h.1.out", "h.2.out", "steps"]);
    assert_eq!(out.taps["steps"].shape, [3, 2]);
    assert_eq!(out.taps["steps"].to_tensor().unwrap().to_f32(), [2.0, 0.0, 4.0, 0.0, 8.0, 0.0]);
}

#[test]
fn arguments_that_do_not_fit_are_refused() {
    let fails =
        |args: &[Tensor], params: &BTreeMap<String, Tensor>| call::<f32>(LOOP, args, params).unwrap_err().message;
    assert!(fails(&[], &weights()).contains("takes 1 arguments"));
    assert!(fails(&[floats(&[3, 3], &[0.0; 9])], &weights()).contains("extent 3 along axis 1"));
    assert!(fails(&[ints(&[1, 2], &[0; 2])], &weights()).contains("elements of type i32"));
    assert!(fails(&[floats(&[9, 2], &[0.0; 18])], &weights()).contains("`B <= 8` does not hold"));
    assert!(fails(&[floats(&[], &[0.0])], &weights()).contains("has 0 axes"));
    assert!(fails(&[floats(&[1, 2], &[0.0; 2])], &BTreeMap::new()).contains("\"h.0.w\" is missing"));
}

#[test]
fn limits_hold() {
    let forever = "func @f() -> () {\n^bb0:\n  br ^bb1\n^bb1:\n  br ^bb1\n}";
    assert!(call::<f32>(forever, &[], &BTreeMap::new()).unwrap_err().message.contains("limit"));
    let x = floats(&[2000], &[0.0; 2000]);
    let big = "func @f(%0 \"x\": f32[S]) -> (f32[S, S]) {\n^bb0:\n  %1 = broadcast %0 : f32[S, S]\n  return %1\n}";
    let message = call::<f32>(big, &[x], &BTreeMap::new()).unwrap_err().message;
    assert!(message.contains("larger than the interpreter allows"), "{message}");
}

#[test]
fn integers_come_as_i32_or_i64() {
    let source = "func @f(%0 \"t\": i32[S]) -> (i32[S]) {\n^bb0:\n  return %0\n}";
    let at = |n: i64| Tensor::from_ints(Elem::I64, vec![1], &[n]).unwrap();
    assert!(call::<f32>(source, &[at(7)], &BTreeMap::new()).is_ok());
    assert!(call::<f32>(source, &[at(1 << 40)], &BTreeMap::new()).unwrap_err().message.contains("is not an i32"));
}

/// Sums of many small numbers lose digits in `f32`, but not in `f64`.
#[test]
fn f64_rounds_nothing() {
    let source = "func @f(%0 \"x\": f32[S]) -> (f32[]) {\n^bb0:\n  %1 = reduce_sum %0, axes=[0] : f32[]\n\
        \n  %2 = cast %1 : bf16[]\n  %3 = cast %2 : f32[]\n  return %3\n}";
    let x = floats(&[1000], &[0.1; 1000]);
    let value = |o: &Data<f64>| if let Data::Float(v) = o { v[0] } else { f64::NAN };
    let precise = call::<f64>(source, std::slice::from_ref(&x), &BTreeMap::new()).unwrap();
    assert_eq!(value(&precise.results[0].data), (0..1000).fold(0.0, |s, _| s + f64::from(0.1f32)));
    let rounded = call::<f32>(source, &[x], &BTreeMap::new()).unwrap();
    assert_eq!(rounded.results[0].to_tensor().unwrap().to_f32(), [100.0]);
}
