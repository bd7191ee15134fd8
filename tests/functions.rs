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
    // Each with one far away, and every third with its neighbour.
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
