//! Operations on single elements, at the places where they are easily mistaken: NaN, infinities, zeros of either sign, integers
//! of either sign, what lies between two numbers of a small type.

use super::{call, ints, one};
use attnc::scalar::{BinaryOp, CmpOp, ReduceKind, UnaryOp, round_to};
use attnc::shape::Elem;
use attnc::tensor::Tensor;

#[test]
fn special_floats() {
    let (nan, inf) = (f64::NAN, f64::INFINITY);
    for (x, y) in [(nan, 1.0), (1.0, nan), (nan, nan), (nan, inf), (-inf, nan)] {
        assert!(BinaryOp::Max.eval_f64(x, y).is_nan() && BinaryOp::Min.eval_f64(x, y).is_nan(), "{x} {y}");
        for op in [CmpOp::Eq, CmpOp::Lt, CmpOp::Le, CmpOp::Gt, CmpOp::Ge] {
            assert!(!op.eval(x, y), "{x} {op} {y}");
        }
        assert!(CmpOp::Ne.eval(x, y), "{x} {y}");
    }
    assert_eq!((BinaryOp::Max.eval_f64(-1.0, 2.0), BinaryOp::Max.eval_f64(2.0, -1.0)), (2.0, 2.0));
    assert_eq!((BinaryOp::Min.eval_f64(-1.0, 2.0), BinaryOp::Min.eval_f64(2.0, -1.0)), (-1.0, -1.0));
    assert!(UnaryOp::Relu.eval_f64(nan).is_nan());
    assert_eq!([UnaryOp::Relu.eval_f64(-2.0), UnaryOp::Relu.eval_f64(3.0)], [0.0, 3.0]);
    for op in [UnaryOp::Gelu, UnaryOp::GeluTanh, UnaryOp::Silu] {
        assert_eq!(op.eval_f64(-inf), 0.0, "{op}");
        assert_eq!(op.eval_f64(inf), inf, "{op}");
        assert!(op.eval_f64(nan).is_nan(), "{op}");
    }
    // NaN fails every comparison except `!=`, and no float is greater than infinity.
    let x = Tensor::from_f32(vec![4], &[f32::NAN, f32::NEG_INFINITY, f32::MAX, -0.0]).unwrap();
    for (name, want) in [("isnan", [1, 0, 0, 0]), ("isinf", [0, 1, 0, 0]), ("isfinite", [0, 0, 1, 1])] {
        let source = format!("model M {{ pub fn f(x: f32[4]) -> bool[4] {{ {name}(x) }} }}");
        let run = super::call(&source, "f", std::slice::from_ref(&x), &[]).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(run.results[0].to_i64(), want, "{name}");
    }
    let rounded = |x: f64| [UnaryOp::Ceil, UnaryOp::Trunc, UnaryOp::Round, UnaryOp::Sign].map(|op| op.eval_f64(x));
    assert_eq!([2.5, -2.5, 3.5].map(rounded), [[3.0, 2.0, 2.0, 1.0], [-2.0, -2.0, -2.0, -1.0], [4.0, 3.0, 4.0, 1.0]]);
    assert_eq!(UnaryOp::Sigmoid.eval_f64(-inf), 0.0);
    assert_eq!(UnaryOp::Rsqrt.eval_f64(4.0), 0.5);
    assert_eq!((UnaryOp::Exp2.eval_f64(3.0), UnaryOp::Floor.eval_f64(-0.5)), (8.0, -1.0));
    // 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) at 2, with 17 digits from another program.
    assert!((UnaryOp::GeluTanh.eval_f64(2.0) - 1.954_597_694_087_775).abs() < 1e-12);
    assert!((UnaryOp::Gelu.eval_f64(2.0) - 1.954_499_736_103_642).abs() < 1e-12);
}

#[test]
fn integers_of_either_sign() {
    for (x, y, q, r) in [(7, 2, 3, 1), (-7, 2, -4, 1), (7, -2, -4, -1), (-7, -2, 3, -1), (6, -2, -3, 0), (-6, 2, -3, 0)]
    {
        assert_eq!((BinaryOp::Div.eval_int(x, y), BinaryOp::Rem.eval_int(x, y)), (q, r), "{x} {y}");
    }
    for x in [7, -7, 0, i64::MIN] {
        assert_eq!((BinaryOp::Div.eval_int(x, 0), BinaryOp::Rem.eval_int(x, 0)), (0, 0), "{x}");
    }
    assert_eq!((BinaryOp::Div.eval_int(i64::MIN, -1), BinaryOp::Rem.eval_int(i64::MIN, -1)), (i64::MIN, 0));
    let powers = [(2, 10, 1024), (-3, 3, -27), (5, 0, 1), (0, 0, 1), (2, -3, 1), (7, -1, 1), (-1, -2, 1)];
    for (x, y, z) in powers {
        assert_eq!(BinaryOp::Pow.eval_int(x, y), z, "{x} {y}");
    }
    assert_eq!([-5, 0, 5].map(|x| UnaryOp::Relu.eval_int(x)), [Some(0), Some(0), Some(5)]);
    assert_eq!([-5, 0, 2].map(|x| UnaryOp::Not.eval_int(x)), [Some(0), Some(1), Some(0)]);
    assert_eq!((UnaryOp::Abs.eval_int(-5), UnaryOp::Neg.eval_int(5)), (Some(5), Some(-5)));
    for (op, holds) in [
        (CmpOp::Eq, [false, true, false]),
        (CmpOp::Ne, [true, false, true]),
        (CmpOp::Lt, [true, false, false]),
        (CmpOp::Le, [true, true, false]),
        (CmpOp::Gt, [false, false, true]),
        (CmpOp::Ge, [false, true, true]),
    ] {
        assert_eq!([1, 2, 3].map(|x| op.eval(x, 2)), holds, "{op}");
    }
}

#[test]
fn small_floats_are_rounded_to_nearest_even() {
    for (x, y) in [
        (1.0 + 1.0 / 256.0, 1.0),
        (1.0 + 3.0 / 256.0, 1.015625),
        (1.0 + 1.01 / 256.0, 1.007_812_5),
        (3.4e38, f64::INFINITY),
    ] {
        assert_eq!((round_to(Elem::BF16, x), round_to(Elem::BF16, -x)), (y, -y), "{x}");
    }
    for (x, y) in [
        (1.0 + 1.0 / 2048.0, 1.0),
        (1.0 + 3.0 / 2048.0, 1.001_953_125),
        (65519.0, 65504.0),
        (65520.0, f64::INFINITY),
        (2f64.powi(-25), 0.0),
    ] {
        assert_eq!((round_to(Elem::F16, x), round_to(Elem::F16, -x)), (y, -y), "{x}");
    }
}

#[test]
fn which_operations_may_change_sides() {
    for op in BinaryOp::ALL {
        let bits = matches!(op, BinaryOp::BitAnd | BinaryOp::BitOr | BinaryOp::BitXor);
        let may = bits || matches!(op, BinaryOp::Add | BinaryOp::Mul | BinaryOp::And | BinaryOp::Or);
        assert_eq!(op.is_commutative(), may, "{op}");
    }
    let combined = ReduceKind::ALL.iter().map(|kind| kind.combination()).collect::<Vec<_>>();
    let (add, max, min) = (Some(BinaryOp::Add), Some(BinaryOp::Max), Some(BinaryOp::Min));
    assert_eq!(combined, [add, add, max, min, Some(BinaryOp::And), Some(BinaryOp::Or), None, None]);
}

#[test]
fn integers_that_i32_does_not_have() {
    let n = ints(Elem::I64, &[1], &[1]);
    let large = |text: &str| one("(x: i64[S]) -> i64[S]", text, std::slice::from_ref(&n));
    assert_eq!(large("x + cast<i64>(3000000000)"), ints(Elem::I64, &[1], &[3_000_000_001]));
    assert_eq!(large("x - 3000000000"), ints(Elem::I64, &[1], &[-2_999_999_999]));
    assert_eq!(large("let a = 3000000000\n x + cast<i64>(cast<f32>(a))"), ints(Elem::I64, &[1], &[3_000_000_001]));
    let model =
        |body: &str| format!("model M<K = 3000000000> {{ pub fn f(x: i64[S], n: i32) -> i64[S] {{\n {body} }} }}\n");
    let run = |body: &str| call(&model(body), "f", &[n.clone(), ints(Elem::I32, &[], &[1])], &[]);
    let sum = run("x + cast<i64>(K) + K").unwrap_or_else(|message| panic!("{message}"));
    assert_eq!(sum.results, [ints(Elem::I64, &[1], &[6_000_000_001])]);
    for body in [
        "var t = 3000000000\n t = t + 1\n x + cast<i64>(t)",
        "let (a, b) = (3000000000, n)\n x + cast<i64>(a + b)",
        "x + cast<i64>(n + 3000000000)",
        "x + cast<i64>(n + K)",
        "x + cast<i64>(full(K, [2])[0])",
        "x[iota(S) % K]",
        "x + cast<i64>(cast<i32>(3000000000))",
    ] {
        let message = run(body).map(|_| ()).expect_err(body);
        assert!(message.contains("3000000000 is out of the range of `i32`"), "{body}: {message}");
    }
}
