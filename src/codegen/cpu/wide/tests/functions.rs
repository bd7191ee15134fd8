//! The elementary functions at both widths: to the bit what their texts say, and within their bounds of `f64`.

use std::collections::BTreeMap;

use super::{floats, kernel, run_leaves};
use crate::scalar::UnaryOp;
use crate::tile::Cpu;
use crate::tile::interp::Argument;
use crate::vector::expand::expand;
use crate::vector::tests::{excess, samples};
use crate::vector::{Features, interp, library};

/// Evaluates a function on many floats; `None` where this machine cannot.
fn compiled(level: Cpu, op: UnaryOp, xs: &[f32]) -> Option<Vec<f32>> {
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

#[test]
fn errors_are_within_their_bounds() {
    let xs = samples();
    for name in library::names() {
        let op = UnaryOp::from_name(name).expect("an operation");
        for (level, features) in [(Cpu::AVX512, Features::AVX512), (Cpu::AVX2, Features::AVX2)] {
            let Some(ys) = compiled(level, op, &xs) else { continue };
            let f = expand(name, features).expect("a function of the library");
            for (x, y) in xs.iter().zip(&ys) {
                // To the bit what the text says; that this is within its bound, the library's own tests show.
                let said = f32::from_bits(interp::eval(&f, &[x.to_bits()]).expect("a function that is expanded"));
                let same = y.to_bits() == said.to_bits() || y.is_nan() && said.is_nan();
                assert!(same, "{}: {op} of {x:e} is {y:e}, and its text says {said:e}", level.name());
                let excess = excess(f.bound.expect("an error"), *y, op.eval_f64(f64::from(*x)));
                assert!(excess <= 1.0, "{}: {op} is off by {excess} times its bound at {x:e}", level.name());
            }
        }
    }
}

/// What a softmax relies on.
#[test]
fn the_exponential_of_zero_is_one() {
    for level in [Cpu::AVX512, Cpu::AVX2] {
        for op in [UnaryOp::Exp, UnaryOp::Exp2] {
            let Some(ys) = compiled(level, op, &[0.0, -0.0, f32::NEG_INFINITY, -1e30, -3e38]) else { continue };
            assert_eq!(ys, [1.0, 1.0, 0.0, 0.0, 0.0]);
        }
    }
}
