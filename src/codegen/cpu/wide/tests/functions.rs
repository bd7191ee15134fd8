//! Errors of the elementary functions against `f64`, at both widths, to the bounds in `codegen::cpu::math`.

use std::collections::BTreeMap;

use super::{floats, kernel, run_leaves};
use crate::scalar::UnaryOp;
use crate::tile::CpuLevel;
use crate::tile::interp::Argument;

/// Evaluates a function on many floats; `None` where this machine cannot.
fn compiled(level: CpuLevel, op: UnaryOp, xs: &[f32]) -> Option<Vec<f32>> {
    let n = xs.len();
    let source = format!(
        r#"module "m"

kernel @k(%x: in f32[{n}], %y: out f32[{n}], %zero: index) cpu(avx512) scratch(0) {{
^bb0:
  run (1, {n}) {{
    %t = load %x[%zero], cols=0 : tile f32[1, {n}] @reg
    %u = {op} %t : tile f32[1, {n}] @reg
    store %y[%zero], %u, cols=0
  }}
  return
}}
"#
    );
    let args = [floats(xs.iter().copied()), floats(vec![0.0; n]), Argument::Index(0)];
    let out = run_leaves(&kernel(&source), level, &BTreeMap::new(), &args, &mut |_| {})?;
    let Some(Argument::Buffer(bytes)) = out.get(1) else { panic!("a buffer") };
    Some(bytes.chunks(4).map(|b| f32::from_le_bytes(b.try_into().expect("4 bytes"))).collect())
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

fn silu_error(got: f32, want: f64) -> f64 {
    if (f64::from(got) - want).abs() < 1e-42 { 0.0 } else { ulps(got, want) }
}

/// In units of the bound.
fn gelu_error(got: f32, want: f64) -> f64 {
    if got.is_nan() && want.is_nan() || f64::from(got) == want || got == want as f32 {
        return 0.0;
    }
    ((f64::from(got) - want).abs() / 2e-7).min((f64::from(got) - want).abs() / want.abs() / 1e-6)
}

/// Every so many floats, so that all exponents and both signs are met, a dense range, and the special ones.
fn samples() -> Vec<f32> {
    let mut xs: Vec<f32> = (0..=u32::MAX).step_by(20_011).map(f32::from_bits).collect();
    xs.extend((0..100_000).map(|i| (i as f32 - 50_000.0) * 2e-4));
    xs.extend([0.0, -0.0, 1.0, -1.0, f32::INFINITY, f32::NEG_INFINITY, f32::NAN, f32::MIN_POSITIVE]);
    xs
}

#[test]
fn errors_are_within_their_bounds() {
    let xs = samples();
    type Error = fn(f32, f64) -> f64;
    let table: [(UnaryOp, f64, Error); 12] = [
        (UnaryOp::Exp, 2.0, ulps),
        (UnaryOp::Exp2, 2.0, ulps),
        (UnaryOp::Tanh, 3.0, ulps),
        (UnaryOp::Erf, 3.0, ulps),
        (UnaryOp::Sigmoid, 4.0, ulps),
        (UnaryOp::Rsqrt, 1.5, ulps),
        (UnaryOp::Sqrt, 0.5, ulps),
        (UnaryOp::Floor, 0.0, ulps),
        (UnaryOp::Relu, 0.0, ulps),
        (UnaryOp::Silu, 4.0, silu_error),
        (UnaryOp::Gelu, 1.0, gelu_error),
        (UnaryOp::GeluTanh, 1.0, gelu_error),
    ];
    for (op, bound, error) in table {
        let want: Vec<f64> = xs.iter().map(|x| op.eval_f64(f64::from(*x))).collect();
        for level in [CpuLevel::Avx512, CpuLevel::Avx2] {
            let Some(ys) = compiled(level, op, &xs) else { continue };
            let errors = xs.iter().zip(ys.iter().zip(&want)).map(|(x, (y, want))| (error(*y, *want), *x));
            let (worst, at) = errors.fold((0.0, 0.0), |a, b| if b.0 > a.0 || b.0.is_nan() { b } else { a });
            println!("{}: {op} is off by at most {worst:.2}", level.name());
            assert!(worst <= bound, "{}: {op} is off by {worst} at {at:e}", level.name());
        }
    }
}

/// What a softmax relies on.
#[test]
fn the_exponential_of_zero_is_one() {
    for level in [CpuLevel::Avx512, CpuLevel::Avx2] {
        for op in [UnaryOp::Exp, UnaryOp::Exp2] {
            let Some(ys) = compiled(level, op, &[0.0, -0.0, f32::NEG_INFINITY, -1e30, -3e38]) else { continue };
            assert_eq!(ys, [1.0, 1.0, 0.0, 0.0, 0.0]);
        }
    }
}
