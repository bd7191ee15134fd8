//! Are the elementary functions of compiled code within their error bounds, at every level of processors that runs here?
//! Each is called on floats of every exponent, lengths that are no multiple of any vector, and compared with `f64`. Rounding,
//! `sign` and `isnan` are exact for every type: their values are written here.

use crate::{compiled, front};

use std::collections::BTreeMap;
use std::fmt::Write as _;

use attnc::lowering::graph::Options;
use attnc::passes;
use attnc::scalar::{BinaryOp, UnaryOp};
use attnc::shape::Elem;
use attnc::tensor::Tensor;
use attnc::vector::{Bound, Features, Type, library};

/// What a function states; an instruction is rounded correctly.
fn bound(name: Option<&str>) -> Bound {
    let f = name.map(|name| library::version(name, Features::PLAIN).unwrap_or_else(|e| panic!("{e}")));
    f.map_or(Bound::Ulp(0.5), |f| f.bound.unwrap_or_else(|| panic!("@{} states no error", f.name)))
}

fn samples() -> Vec<f32> {
    let mut xs: Vec<f32> = (0..=u32::MAX).step_by(80_021).map(f32::from_bits).collect();
    xs.extend((0..20_000).map(|i| (i as f32 - 10_000.0) * 1e-3));
    xs.extend([0.0, -0.0, 1.0, -1.0, f32::INFINITY, f32::NEG_INFINITY, f32::NAN, f32::MIN_POSITIVE]);
    xs.extend([0.5; 3].iter().take((3 + 16 - xs.len() % 16) % 16));
    xs
}

#[test]
fn functions_are_within_their_bounds() {
    let unary: Vec<UnaryOp> =
        UnaryOp::ALL.iter().copied().filter(|op| *op != UnaryOp::Not && *op != UnaryOp::Exp2).collect();
    let binary: Vec<BinaryOp> =
        BinaryOp::ALL.iter().copied().filter(|op| library::binary(*op, Type::F32).is_some()).collect();
    let mut program = "model Functions {\n".to_string();
    for op in &unary {
        let x = if *op == UnaryOp::Neg { "-x".to_string() } else { format!("{op}(x)") };
        let _ = writeln!(program, "    pub fn {op}_of(x: f32[S]) -> f32[S] {{ {x} }}");
    }
    for op in &binary {
        let formula = if *op == BinaryOp::Rem { "x % y".to_string() } else { format!("{op}(x, y)") };
        let _ = writeln!(program, "    pub fn {op}_of(x: f32[S], y: f32[S]) -> f32[S] {{ {formula} }}");
    }
    program += "}\n";
    let module = front::module("functions.attn", &program, &Options::default()).unwrap_or_else(|e| panic!("{e}"));
    let module = compiled::optimised(module, &passes::Options::default());
    let xs = samples();
    assert!(!xs.len().is_multiple_of(4));
    // Each with a distant one, and every third with its neighbour.
    let n = xs.len();
    let ys: Vec<f32> = (0..n).map(|i| if i % 3 == 0 { xs[(i + 1) % n] } else { xs[i * 7919 % n] }).collect();
    let floats = |xs: &[f32]| {
        let xs: Vec<f64> = xs.iter().map(|x| f64::from(*x)).collect();
        Tensor::from_floats(Elem::F32, vec![xs.len()], &xs).unwrap()
    };
    let (x, y) = (floats(&xs), floats(&ys));
    let folder = tempfile::tempdir().unwrap();
    for level in compiled::levels() {
        let model = compiled::load_at(level, &module, &BTreeMap::new(), folder.path());
        let mut session = model.session().unwrap();
        let mut check = |name: &str, bound: Bound, args: &[Tensor], want: &dyn Fn(usize) -> f64| {
            let entry = model.entry(&format!("{name}_of")).unwrap();
            let got = session.call(entry, args).unwrap_or_else(|e| panic!("{e}"));
            for (i, z) in got[0].to_f32().into_iter().enumerate() {
                let excess = bound.excess(z, want(i));
                let (x, y) = (xs[i], ys[i]);
                assert!(excess <= 1.0, "{name} of {x:e} ({y:e}) is {z:e}, not {:e}, at {}", want(i), level.name());
            }
        };
        for op in &unary {
            let args = std::slice::from_ref(&x);
            check(op.name(), bound(library::unary(*op)), args, &|i| op.eval_f64(f64::from(xs[i])));
        }
        for op in &binary {
            let bound = bound(library::binary(*op, Type::F32));
            check(op.name(), bound, &[x.clone(), y.clone()], &|i| op.eval_f64(f64::from(xs[i]), f64::from(ys[i])));
        }
    }
}

/// A function whose error is absolute near 0 says so where the language is described.
#[test]
fn absolute_errors_are_in_the_reference() {
    let text = include_str!("../../src/reference/language.txt");
    for op in UnaryOp::ALL.iter().filter(|op| library::unary(**op).is_some()) {
        let (Bound::UlpOr(_, absolute) | Bound::RelativeOr(_, absolute)) = bound(library::unary(*op)) else { continue };
        let entry = text.split("\n## ").find(|entry| entry.lines().next() == Some(op.name())).unwrap();
        assert!(entry.contains("absolute") && entry.contains(&format!("{absolute:e}")), "{op}: {absolute:e}\n{entry}");
    }
}

/// Arguments, and what each function gives for them.
const ROUNDED: [(&str, [f64; 17]); 6] = {
    const I: f64 = f64::INFINITY;
    const N: f64 = f64::NAN;
    [
        ("x", [0.0, -0.0, 0.5, -0.5, 1.5, -1.5, 2.5, -2.5, 0.25, -0.75, 3.0, -3.0, 127.5, -126.5, I, -I, N]),
        ("floor", [0.0, -0.0, 0.0, -1.0, 1.0, -2.0, 2.0, -3.0, 0.0, -1.0, 3.0, -3.0, 127.0, -127.0, I, -I, N]),
        ("ceil", [0.0, -0.0, 1.0, -0.0, 2.0, -1.0, 3.0, -2.0, 1.0, -0.0, 3.0, -3.0, 128.0, -126.0, I, -I, N]),
        ("trunc", [0.0, -0.0, 0.0, -0.0, 1.0, -1.0, 2.0, -2.0, 0.0, -0.0, 3.0, -3.0, 127.0, -126.0, I, -I, N]),
        ("round", [0.0, -0.0, 0.0, -0.0, 2.0, -2.0, 2.0, -2.0, 0.0, -1.0, 3.0, -3.0, 128.0, -126.0, I, -I, N]),
        ("sign", [0.0, -0.0, 1.0, -1.0, 1.0, -1.0, 1.0, -1.0, 1.0, -1.0, 1.0, -1.0, 1.0, -1.0, 1.0, -1.0, N]),
    ]
};

/// What `isnan` and the like ask of a float.
type Question = fn(f64) -> bool;

#[test]
fn rounding_signs_and_nan_are_exact_for_every_type() {
    let floats = [Elem::F32, Elem::BF16, Elem::F16];
    let integers = [Elem::I32, Elem::I64];
    let mut program = "model Functions {\n".to_string();
    for elem in floats.iter().chain(&integers) {
        let mut functions: Vec<&str> = ROUNDED[1..].iter().map(|(name, _)| *name).collect();
        if elem.is_float() {
            functions.extend(["isnan", "isinf", "isfinite"]);
        }
        for name in functions {
            let result = if name.starts_with("is") { Elem::Bool } else { *elem };
            let _ = writeln!(program, "    pub fn {name}_{elem}(x: {elem}[S]) -> {result}[S] {{ {name}(x) }}");
        }
    }
    program += "}\n";
    let module = front::module("rounding.attn", &program, &Options::default()).unwrap_or_else(|e| panic!("{e}"));
    // Twice and a few more: a length that is no multiple of any vector.
    let long = |values: &[f64]| -> Vec<f64> { values.iter().cycle().take(2 * values.len() + 5).copied().collect() };
    let xs = long(&ROUNDED[0].1);
    let ints = [-7, -1, 0, 1, 9, i64::from(i32::MIN), i64::from(i32::MAX), 2, -3];
    let folder = tempfile::tempdir().unwrap();
    for passes in [passes::Options { level: passes::Level::O0, ..Default::default() }, passes::Options::default()] {
        let module = compiled::optimised(module.clone(), &passes);
        for level in compiled::levels() {
            let model = compiled::load_at(level, &module, &BTreeMap::new(), folder.path());
            let mut session = model.session().unwrap();
            let mut call = |name: &str, x: &Tensor| {
                let entry = model.entry(&format!("{name}_{}", x.elem())).unwrap();
                session.call(entry, std::slice::from_ref(x)).unwrap_or_else(|e| panic!("{e}")).remove(0)
            };
            for elem in floats {
                let x = Tensor::from_floats(elem, vec![xs.len()], &xs).unwrap();
                for (name, values) in &ROUNDED[1..] {
                    for ((x, got), want) in xs.iter().zip(call(name, &x).to_f64()).zip(long(values)) {
                        let same = got.to_bits() == want.to_bits() || got.is_nan() && want.is_nan();
                        assert!(same, "{name} of {x} ({elem}) is {got}, not {want}, at {}", level.name());
                    }
                }
                let is: [(&str, Question); 3] =
                    [("isnan", f64::is_nan), ("isinf", f64::is_infinite), ("isfinite", f64::is_finite)];
                for (name, want) in is {
                    let want: Vec<i64> = xs.iter().map(|x| i64::from(want(*x))).collect();
                    assert_eq!(call(name, &x).to_i64(), want, "{name} of {elem} at {}", level.name());
                }
            }
            for elem in integers {
                let x = Tensor::from_ints(elem, vec![ints.len()], &ints).unwrap();
                for name in ["floor", "ceil", "trunc", "round"] {
                    assert_eq!(call(name, &x).to_i64(), ints, "{name} of {elem} at {}", level.name());
                }
                let signs = [-1, -1, 0, 1, 1, -1, 1, 1, -1];
                assert_eq!(call("sign", &x).to_i64(), signs, "sign of {elem} at {}", level.name());
            }
        }
    }
}
