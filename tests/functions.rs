//! Are the elementary functions of compiled code within their error bounds, at every level of processors that runs here?
//! Each is called on floats of every exponent, lengths that are no multiple of any vector, and compared with `f64`.

#[path = "common/compiled.rs"]
mod compiled;
#[path = "common/front.rs"]
mod front;

use std::collections::BTreeMap;
use std::fmt::Write as _;

use attnc::lowering::graph::Options;
use attnc::passes;
use attnc::scalar::UnaryOp;
use attnc::shape::Elem;
use attnc::tensor::Tensor;

/// A function, its bound in units of the last place, and an absolute error that is allowed in any case.
const FUNCTIONS: [(UnaryOp, f64, f64); 13] = [
    (UnaryOp::Exp, 2.0, 0.0),
    (UnaryOp::Tanh, 3.0, 0.0),
    (UnaryOp::Erf, 3.0, 0.0),
    (UnaryOp::Sigmoid, 4.0, 0.0),
    (UnaryOp::Rsqrt, 1.5, 0.0),
    (UnaryOp::Sqrt, 0.5, 0.0),
    (UnaryOp::Floor, 0.0, 0.0),
    (UnaryOp::Log, 1.0, 0.0),
    (UnaryOp::Sin, 1.0, 0.0),
    (UnaryOp::Cos, 1.0, 0.0),
    (UnaryOp::Silu, 4.0, 1e-42),
    // 1e-6 of the value are 16 units at most.
    (UnaryOp::Gelu, 16.0, 2e-7),
    (UnaryOp::GeluTanh, 16.0, 2e-7),
];

fn samples() -> Vec<f32> {
    let mut xs: Vec<f32> = (0..=u32::MAX).step_by(80_021).map(f32::from_bits).collect();
    xs.extend((0..20_000).map(|i| (i as f32 - 10_000.0) * 1e-3));
    xs.extend([0.0, -0.0, 1.0, -1.0, f32::INFINITY, f32::NEG_INFINITY, f32::NAN, f32::MIN_POSITIVE]);
    xs.extend([0.5; 3].iter().take((3 + 16 - xs.len() % 16) % 16));
    xs
}

/// Distance in units of the last place of the correctly rounded result.
fn ulps(got: f32, want: f64) -> f64 {
    let rounded = want as f32;
    if got == rounded || (got.is_nan() && want.is_nan()) {
        return 0.0;
    }
    let exponent = rounded.abs().max(f32::MIN_POSITIVE).to_bits() >> 23;
    (f64::from(got) - want).abs() / 2f64.powi(exponent.cast_signed() - 127 - 23)
}

#[test]
fn functions_are_within_their_bounds() {
    let mut program = "model Functions {\n".to_string();
    for (op, _, _) in FUNCTIONS {
        let _ = writeln!(program, "    pub fn {op}_of(x: f32[S]) -> f32[S] {{ {op}(x) }}");
    }
    program += "}\n";
    let module = front::module("functions.attn", &program, &Options::default()).unwrap_or_else(|e| panic!("{e}"));
    let module = compiled::optimised(module, &passes::Options::default());
    let xs = samples();
    assert!(!xs.len().is_multiple_of(4));
    let given: Vec<f64> = xs.iter().map(|x| f64::from(*x)).collect();
    let x = Tensor::from_floats(Elem::F32, vec![xs.len()], &given).unwrap();
    let folder = tempfile::tempdir().unwrap();
    for level in compiled::levels() {
        let model = compiled::load_at(level, &module, &BTreeMap::new(), folder.path());
        let mut session = model.session().unwrap();
        for (op, bound, slack) in FUNCTIONS {
            let entry = model.entry(&format!("{op}_of")).unwrap();
            let got = session.call(entry, std::slice::from_ref(&x)).unwrap_or_else(|e| panic!("{e}"));
            for (y, x) in got[0].to_f32().iter().zip(&given) {
                let want = op.eval_f64(*x);
                let is_right = ulps(*y, want) <= bound || (f64::from(*y) - want).abs() <= slack;
                assert!(is_right, "{op} of {x:e} is {y:e}, not {want:e}, at {}", level.name());
            }
        }
    }
}
