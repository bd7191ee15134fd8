//! The elementary functions against `f64`, to the bounds that they state, for every kind of machine; their text form; and that
//! every operation on floats is either an instruction or a function of the library.

use super::expand::{expand, needs};
use super::{Bound, Features, Function, Op, Type, interp, library, text, verify};
use crate::scalar::UnaryOp;

/// Every kind of machine that a function can be for.
const MACHINES: [Features; 4] =
    [Features::PLAIN, Features { fma: true, round: false, scale: false }, Features::AVX2, Features::AVX512];

/// Every so many floats, so that all exponents and both signs are met, a dense range, and the special ones.
pub(crate) fn samples() -> Vec<f32> {
    let mut xs: Vec<f32> = (0..=u32::MAX).step_by(40_009).map(f32::from_bits).collect();
    xs.extend((0..50_000).map(|i| (i as f32 - 25_000.0) * 4e-4));
    xs.extend([0.0, -0.0, 1.0, -1.0, f32::INFINITY, f32::NEG_INFINITY, f32::NAN, f32::MIN_POSITIVE]);
    xs
}

/// Distance in units of the last place of the correctly rounded result.
fn ulps(got: f32, want: f64) -> f64 {
    let rounded = want as f32;
    if got.to_bits() == rounded.to_bits() || (got.is_nan() && want.is_nan()) {
        return 0.0;
    }
    let exponent = rounded.abs().max(f32::MIN_POSITIVE).to_bits() >> 23;
    let ulp = 2f64.powi(exponent.cast_signed() - 127 - 23);
    (f64::from(got) - want).abs() / ulp
}

/// By how much a result is beyond its bound: at most 1 if it is not. NaN where one is NaN and the other is not.
pub(crate) fn excess(bound: Bound, got: f32, want: f64) -> f64 {
    let rounded = want as f32;
    if got.is_nan() && want.is_nan() || got.to_bits() == rounded.to_bits() {
        return 0.0;
    }
    // A zero has its sign.
    if got == 0.0 && want == 0.0 {
        return f64::INFINITY;
    }
    let off = (f64::from(got) - want).abs();
    match bound {
        Bound::Ulp(0.0) => f64::INFINITY,
        Bound::Ulp(n) => ulps(got, want) / n,
        Bound::UlpOr(n, absolute) => (ulps(got, want) / n).min(off / absolute),
        Bound::RelativeOr(part, absolute) => (off / want.abs() / part).min(off / absolute),
    }
}

fn lane(f: &Function, x: f32) -> f32 {
    f32::from_bits(interp::eval(f, &[x.to_bits()]).expect("a function that is expanded"))
}

#[test]
fn errors_are_within_their_bounds() {
    let xs = samples();
    for name in library::names() {
        let op = UnaryOp::from_name(name).expect("a function is named after an operation");
        let want: Vec<f64> = xs.iter().map(|x| op.eval_f64(f64::from(*x))).collect();
        for features in MACHINES {
            let f = expand(name, features).unwrap_or_else(|e| panic!("{e}"));
            let bound = f.bound.unwrap_or_else(|| panic!("@{name} states no error"));
            let errors = xs.iter().zip(&want).map(|(x, want)| (excess(bound, lane(&f, *x), *want), *x));
            let (worst, at) = errors.fold((0.0, 0.0), |a, b| if b.0 > a.0 || b.0.is_nan() { b } else { a });
            println!("{name} ({}): {worst:.2} of its bound, at {at:e}", features.names().join(", "));
            assert!(worst <= 1.0, "{name} ({}): {worst} times its bound at {at:e}", features.names().join(", "));
        }
    }
}

#[test]
fn every_operation_is_an_instruction_or_a_function() {
    for op in UnaryOp::ALL {
        let is_instruction = match op {
            UnaryOp::Neg | UnaryOp::Abs | UnaryOp::Sqrt | UnaryOp::Not => true,
            // Calls of libm, lane by lane.
            UnaryOp::Sin | UnaryOp::Cos => true,
            _ => false,
        };
        assert_eq!(is_instruction, library::source(op.name()).is_none(), "{op}");
    }
}

#[test]
fn what_is_printed_reads_back() {
    for name in library::names() {
        for f in library::file(name).expect("a text that is right") {
            let again = text::parse(&text::print(f)).expect("what was printed");
            assert_eq!(again.as_slice(), std::slice::from_ref(f));
        }
        for features in MACHINES {
            let f = expand(name, features).expect("a function");
            assert!(f.insts.iter().all(|i| !matches!(i.op, Op::Call(_) | Op::Polynomial(_))));
            assert!(features.fma || f.insts.iter().all(|i| !matches!(i.op, Op::Fma | Op::Fnma)));
            let again = text::parse(&text::print(&f)).expect("what was printed");
            assert_eq!(again.as_slice(), std::slice::from_ref(&f));
            assert_eq!(needs(&f).len(), f.insts.len());
            verify(&f).expect("a function that is right");
        }
    }
}

#[test]
fn what_is_wrong_is_refused() {
    let wrong = [
        ("func @f(%x: f32) -> f32 {\n  return %y\n}\n", "%y is not defined before this line"),
        ("func @f(%x: f32) -> i32 {\n  return %x\n}\n", "%x is f32, and @f gives i32"),
        ("func @f(%x: f32) -> f32 {\n  %y = add %x : f32\n  return %y\n}\n", "add takes (f32, f32)"),
        ("func @f(%x: f32) -> f32 {\n  %y = add %x, %x : i32\n  return %x\n}\n", "add gives f32, not i32"),
        ("func @f(%x: f32) -> f32 {\n  %x = add %x, %x : f32\n  return %x\n}\n", "%x is already defined"),
        ("func @f(%x: i32) -> i32 {\n  %y = shl %x, %x : i32\n  return %y\n}\n", "a constant from 0 to 31"),
        ("func @f(%x: i32) -> i32 {\n  %c = const 32 : i32\n  %y = shl %x, %c : i32\n  return %y\n}\n", "0 to 31"),
        ("func @f(%x: f32) -> f32 {\n  %y = frob %x : f32\n  return %y\n}\n", "there is no operation `frob`"),
        ("func @f(%x: f32) -> f32 {\n  %y = polynomial %x, [] : f32\n  return %y\n}\n", "has a coefficient"),
        ("func @f(%x: f32) -> f32 requires(speed) {\n  return %x\n}\n", "a feature is"),
        ("func @f(%x: f32) -> f32 {\n}\n", "a function ends with `return`"),
        ("func @f(%x: f64) -> f32 {\n  return %x\n}\n", "a type is"),
        ("^bb0:\n", "a function has no blocks"),
        ("func @f(%x: f32) -> f32 {\n  %y = floor %x : f32\n  return %y\n}\n", "floor needs `requires(round)`"),
        ("func @f(%0: f32) -> f32 {\n  return %0\n}\n", "a parameter's name is no number"),
        ("func @f(%x: f32) -> f32 error(-1.0, ulp) {\n  return %x\n}\n", "is not negative"),
        ("func @f(%x: f32) -> f32 error(1.0, ulp) error(2.0, ulp) {\n  return %x\n}\n", "stated twice"),
        ("func @f(%x: f32) -> f32 {\n  %c = const 1e39 : f32\n  return %c\n}\n", "beyond f32"),
    ];
    for (source, message) in wrong {
        let e = text::parse(source).expect_err(source);
        assert!(e.message.contains(message), "{source}: {e}");
    }
    assert!(expand("frob", Features::PLAIN).expect_err("no such function").contains("there is no function @frob"));
}

#[test]
fn scaling_and_fractions_follow_the_instructions() {
    let inf = f32::INFINITY;
    let eval = |op: Op, types: &[Type], args: &[f32]| {
        let params = types.iter().enumerate().map(|(i, ty)| (i.to_string(), *ty)).collect();
        let mut f = Function {
            name: "f".into(),
            params,
            result_type: Type::F32,
            bound: None,
            requires: Features::AVX512,
            insts: Vec::new(),
            result: super::Value::from_index(types.len()),
        };
        f.push(op, (0..types.len()).map(super::Value::from_index).collect(), Type::F32, "y".into());
        let bits: Vec<u32> = args.iter().map(|x| x.to_bits()).collect();
        f32::from_bits(interp::eval(&f, &bits).expect("a function that is right"))
    };
    let scale = |a: f32, b: f32| eval(Op::Scale, &[Type::F32; 2], &[a, b]);
    assert_eq!((scale(1.5, 3.7), scale(1.0, -1.5), scale(1.0, -149.0)), (12.0, 0.25, f32::from_bits(1)));
    assert_eq!((scale(1.0, 128.0), scale(3.0, -inf), scale(-2.0, inf)), (inf, 0.0, -inf));
    assert!(scale(0.0, inf).is_nan() && scale(inf, -inf).is_nan() && scale(f32::NAN, 0.0).is_nan());
    assert_eq!((scale(f32::NAN, inf), scale(f32::NAN, -inf)), (inf, 0.0));
    for a in [0.0, -0.0, 3.0, -3.0] {
        assert_eq!(eval(Op::Fraction, &[Type::F32], &[a]).to_bits(), (-0.0f32).to_bits());
    }
    let fraction = |a: f32| eval(Op::Fraction, &[Type::F32], &[a]);
    assert_eq!(
        (fraction(1.75), fraction(-0.25), fraction(inf), fraction(-1e-40)),
        (0.75, 0.75, 0.0, 1.0 - f32::EPSILON / 2.0)
    );
}
