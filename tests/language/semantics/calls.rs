//! What a call may be given, and what it gives back: extents that must agree, leading axes, integers of the other width; and
//! axes that are counted from either end, in functions that are called with more axes than they name.

use super::{Elem, at, body, call, ints, numbers, one, t};

fn program(signature: &str, text: &str) -> String {
    format!("model M<D = 4, W = 3> {{\n    pub fn f{signature} {{\n        {text}\n    }}\n}}\n")
}

#[test]
fn extents_agree_wherever_a_symbol_stands() {
    for (signature, text, shapes, ok) in [
        ("(x: f32[S, S]) -> f32[S, S]", "x", vec![vec![2, 2]], true),
        ("(x: f32[S, S]) -> f32[S, S]", "x", vec![vec![2, 3]], false),
        ("(x: f32[S], y: f32[S]) -> f32[S]", "x + y", vec![vec![2], vec![2]], true),
        ("(x: f32[S], y: f32[S]) -> f32[S]", "x + y", vec![vec![2], vec![3]], false),
        ("(x: f32[S], y: f32[S]) -> f32[S]", "x + y", vec![vec![2], vec![1]], false),
        ("(x: f32[S], y: f32[S + 1]) -> f32[S]", "x + y[1..]", vec![vec![2], vec![3]], true),
        ("(x: f32[S], y: f32[S + 1]) -> f32[S]", "x + y[1..]", vec![vec![2], vec![2]], false),
        ("(x: f32[S, D]) -> f32[S, D]", "x", vec![vec![2, 4]], true),
        ("(x: f32[S, D]) -> f32[S, D]", "x", vec![vec![2, 5]], false),
        ("(x: f32[S]) -> f32[S] where S != 2", "x", vec![vec![2]], false),
        ("(x: f32[S]) -> f32[S] where S < 3", "x", vec![vec![3]], false),
        ("(x: f32[S]) -> f32[S] where S < 3", "x", vec![vec![2]], true),
    ] {
        let args: Vec<_> = shapes.iter().map(|shape| numbers(shape)).collect();
        assert_eq!(call(&program(signature, text), "f", &args, &[]).is_ok(), ok, "{signature} {shapes:?}");
    }
    let y = one("(y: f32[S + 1]) -> f32[S]", "y[1..]", &[numbers(&[4])]);
    assert_eq!(y, t(&[3], |p| at(&numbers(&[4]), &[p[0] + 1])));
}

#[test]
fn leading_axes_come_back() {
    for shape in [&[4][..], &[2, 4], &[2, 3, 4], &[2, 1, 3, 4], &[0, 3, 4]] {
        let x = numbers(shape);
        let y = one("(x: f32[.., D]) -> f32[.., D]", "x + 1.0", std::slice::from_ref(&x));
        assert_eq!((y.shape(), y.to_f64()), (shape, x.to_f64().iter().map(|v| v + 1.0).collect()), "{shape:?}");
    }
}

#[test]
fn integers_of_the_other_width_fit_or_not() {
    let source = program("(i: i32[S]) -> i32[S]", "i");
    for (value, ok) in
        [(7, true), (i64::from(i32::MAX), true), (i64::from(i32::MIN), true), (1 << 31, false), (-1 << 40, false)]
    {
        let got = call(&source, "f", &[ints(Elem::I64, &[1], &[value])], &[]);
        assert_eq!(got.map(|run| run.results[0].to_i64()).ok(), ok.then(|| vec![value]), "{value}");
    }
}

#[test]
fn functions_called_with_more_axes_than_they_name() {
    // A function of `[.., D]`, called with one, two and three axes.
    let source = "model M<D = 4> {\n    fn centred(x: f32[.., D]) -> f32[.., D] {\n        x - mean(x, axis = -1, keep = true)\n    }\n\
        \n    pub fn f(x: f32[A, B, D]) -> f32[A, B, D] {\n        centred(x)\n    }\n    pub fn g(x: f32[.., A, D]) -> f32[.., A, D] {\n        centred(x)\n    }\n}\n";
    let y = numbers(&[2, 3, 4]);
    let mean = |p: &[usize]| (0..4).map(|k| at(&y, &[p[0], p[1], k])).sum::<f64>() / 4.0;
    let expected = t(&[2, 3, 4], |p| at(&y, p) - mean(p));
    for entry in ["f", "g"] {
        let got = call(source, entry, std::slice::from_ref(&y), &[]).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(got.results[0], expected, "{entry}");
    }
}

#[test]
fn what_a_later_factor_needs_is_kept() {
    let (a, b, c) = (numbers(&[2, 3]), numbers(&[3, 4]), numbers(&[3, 5]));
    let got = body(
        "(a: f32[I, J], b: f32[J, K], c: f32[J, L]) -> f32[I, K, L]",
        "einsum(\"i j, j k, j l -> i k l\", a, b, c)",
        &[a.clone(), b.clone(), c.clone()],
    );
    let sum = |p: &[usize]| (0..3).map(|j| at(&a, &[p[0], j]) * at(&b, &[j, p[1]]) * at(&c, &[j, p[2]])).sum::<f64>();
    assert_eq!(got[0], t(&[2, 4, 5], sum));
}

#[test]
fn operations_count_axes_behind_the_leading_ones() {
    // Each in a function of `[.., D]` that is called with two leading axes, and in one that names all axes.
    let x = numbers(&[2, 3, 4]);
    for (elem, own, text) in [
        ("f32", ", D", "softmax(x)"),
        ("f32", ", D", "log_softmax(x, axis = -1)"),
        ("f32", "", "max(x)"),
        ("f32", ", 1", "sum(x, axis = -1, keep = true)"),
        ("i32", "", "argmax(-x)"),
        ("f32", ", 2*D", "concat(x, x * 2, axis = -1)"),
        ("f32", ", 2", "x[.., 1..3]"),
        ("f32", "", "x[.., 2]"),
        ("f32", ", D/2", "split(x, axis = -1, parts = 2).1"),
        ("f32", ", D", "x * cast<f32>(iota(D))"),
    ] {
        let text = match text.strip_suffix(".1") {
            Some(pair) => format!("let (a, b) = {pair}\n        b"),
            None => text.to_string(),
        };
        let source = format!(
            "model M<D = 4> where D % 2 == 0 {{\n    fn g(x: f32[.., D]) -> {elem}[..{own}] {{\n        {text}\n    }}\n\
             \n    pub fn f(x: f32[A, B, D]) -> {elem}[A, B{own}] {{ g(x) }}\n\
             \n    pub fn h(x: f32[A, B, D]) -> {elem}[A, B{own}] {{\n        {}\n    }}\n}}\n",
            text.replace("x[..", "x[0..A, 0..B")
        );
        let run = |entry: &str| {
            let run = call(&source, entry, std::slice::from_ref(&x), &[]);
            run.unwrap_or_else(|message| panic!("{source}\n{message}")).results.remove(0)
        };
        assert_eq!(run("f"), run("h"), "{text}");
    }
}

#[test]
fn what_is_cut_lies_in_its_axis() {
    // With values that are bound, when it is compiled; else when it is called.
    for (text, result, good, bad) in [
        ("x[0..K]", "K", 3, 4),
        ("x[K - 2..3]", "5 - K", 2, 1),
        ("x[K..2]", "2 - K", 2, 3),
        ("x[K]", "1", 2, 3),
        ("x[K..K + 1]", "1", 2, 3),
    ] {
        let result = if text == "x[K]" { String::new() } else { format!("[{result}]") };
        let bound = |k: i64| format!("model M<K = {k}> {{\n    pub fn f(x: f32[3]) -> f32{result} {{ {text} }}\n}}\n");
        let x = numbers(&[3]);
        let got = call(&bound(good), "f", std::slice::from_ref(&x), &[]);
        assert!(got.is_ok(), "{text}, K = {good}: {}", got.err().unwrap_or_default());
        let refused = call(&bound(bad), "f", std::slice::from_ref(&x), &[]).err().unwrap_or_default();
        assert!(refused.contains("error[E0"), "{text}, K = {bad}: {refused}");

        let called = |k: i64| format!("model M<K = {k}> {{\n    pub fn f(x: f32[S]) -> f32{result} {{ {text} }}\n}}\n");
        let called = |k: i64| call(&called(k).replace("..3]", "..S]"), "f", std::slice::from_ref(&x), &[]);
        if !text.contains("..2") && !text.contains("..3") {
            assert!(called(good).is_ok(), "{text}, K = {good}: {}", called(good).err().unwrap_or_default());
            let refused = called(bad).err().unwrap_or_default();
            assert!(refused.contains("does not hold"), "{text}, K = {bad}: {refused}");
        }
    }
}

#[test]
fn names_of_signatures_are_solved_for() {
    let source = |of: &str, given: &str, with: &str| {
        format!("model M {{\n    fn g{of}\n    pub fn f{given} -> f32[S] {{ g({with}) }}\n}}\n")
    };
    // In two rounds: C is known, so B is, so A is.
    let rounds = source(
        "(x: f32[A + B], y: f32[B + C], z: f32[C]) -> f32[A] { x[0..A] }",
        "(x: f32[S], y: f32[T], z: f32[U])",
        "concat(x, y, axis = 0), concat(y, z, axis = 0), z",
    );
    let args = [numbers(&[3]), numbers(&[2]), numbers(&[4])];
    let y = call(&rounds, "f", &args, &[]).unwrap_or_else(|e| panic!("{e}")).results.remove(0);
    assert_eq!(y, args[0]);
    // No dimension is negative.
    let more = source("(x: f32[N + 1]) -> f32[N + 1] { x + 1.0 }", "(x: f32[S])", "x");
    for (size, ok) in [(0, false), (1, true), (3, true)] {
        assert_eq!(call(&more, "f", &[numbers(&[size])], &[]).is_ok(), ok, "{size}");
    }
    // A square cannot be solved for a name.
    let square = source("(x: f32[N * N]) -> f32[N * N] { x }", "(x: f32[S])", "x");
    let refused = call(&square, "f", &[numbers(&[4])], &[]).err().unwrap_or_default();
    assert!(refused.contains("error[E"), "{refused}");
}
