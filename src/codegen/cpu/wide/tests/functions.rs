//! The elementary functions at both widths: bit for bit equal to the interpreter, and within their
//! error bounds of `f64`.

use std::collections::BTreeMap;

use super::{floats, kernel, run_leaves};
use crate::codegen::cpu::math::features;
use crate::tile::Cpu;
use crate::tile::interp::Argument;
use crate::vector::expand;
use crate::vector::tests::{arguments, exactly, of_floats, said};

/// Evaluates a function on arrays of floats, one per parameter; `None` if this machine cannot.
fn compiled(level: Cpu, name: &str, args: &[Vec<f32>]) -> Option<Vec<f32>> {
    let n = args[0].len();
    let (params, loads, operands) = match args.len() {
        1 => (String::new(), String::new(), "%t"),
        _ => (
            format!("%w: in f32[{n}], "),
            format!("    %s = load %w[%zero], cols=0 : tile f32[1, {n}] @reg\n"),
            "%t, %s",
        ),
    };
    let source = format!(
        r#"module "m"

kernel @k(%x: in f32[{n}], {params}%y: out f32[{n}], %zero: index) cpu(avx512) scratch(0) {{
^bb0:
  run (1, {n}) {{
    %t = load %x[%zero], cols=0 : tile f32[1, {n}] @reg
{loads}    %u = {name} {operands} : tile f32[1, {n}] @reg
    store %y[%zero], %u, cols=0
  }}
  return
}}
"#
    );
    let mut given: Vec<Argument> = args.iter().map(|xs| floats(xs.iter().copied())).collect();
    given.extend([floats(vec![0.0; n]), Argument::Index(0)]);
    let out = run_leaves(&kernel(&source), level, &BTreeMap::new(), &given, &mut |_| {})?;
    let Some(Argument::Buffer(bytes)) = out.get(args.len()) else { panic!("a buffer") };
    Some(bytes.chunks(4).map(|b| f32::from_le_bytes(b.try_into().expect("4 bytes"))).collect())
}

#[test]
fn errors_are_within_their_bounds() {
    for name in of_floats() {
        for level in [Cpu::AVX512, Cpu::AVX2] {
            let f = &expand::expanded(name, features(level.width())).expect("a function of the library").function;
            let args = arguments(f);
            let Some(ys) = compiled(level, name, &args) else { continue };
            for (i, y) in ys.into_iter().enumerate() {
                // Bit for bit equal to the interpreter; the library's own tests show that this is
                // within the bound.
                let x: Vec<f32> = args.iter().map(|xs| xs[i]).collect();
                let said = said(f, &x);
                let same = y.to_bits() == said.to_bits() || y.is_nan() && said.is_nan();
                assert!(same, "{}: {name} of {x:?} is {y:e}, and its text says {said:e}", level.name());
                let excess = f.bound.expect("an error").excess(y, exactly(name, &x));
                assert!(excess <= 1.0, "{}: {name} is off by {excess} times its bound at {x:?}", level.name());
            }
        }
    }
}

/// Softmax relies on this.
#[test]
fn the_exponential_of_zero_is_one() {
    for level in [Cpu::AVX512, Cpu::AVX2] {
        for name in ["exp", "exp2"] {
            let xs = vec![0.0, -0.0, f32::NEG_INFINITY, -1e30, -3e38];
            let Some(ys) = compiled(level, name, &[xs]) else { continue };
            assert_eq!(ys, [1.0, 1.0, 0.0, 0.0, 0.0]);
        }
    }
}
