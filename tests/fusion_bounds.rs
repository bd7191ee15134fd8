//! Does each rewrite that is not exact stay within the bound that its pass states?
//!
//! The score before the softmax is made a result, before and after `canonicalise-scale`; the exact score comes from
//! `f64` (whose own error is far below the bounds). The bound of the essay is computed beside it.

#[path = "common/passes.rs"]
mod passes;

use attnc::ir::interp::{Array, Call, Data, NoParams, Real, run};
use attnc::ir::{Module, Op, ResultDecl, Terminator, text, verify};
use attnc::passes::{Collected, Options, find_pass, run_passes};
use attnc::random::Random;
use attnc::tensor::Tensor;
use passes::canonical;

/// Unit roundoff of `f32`.
const U: f64 = 1.0 / 16_777_216.0;

fn gamma(n: f64) -> f64 {
    n * U / (1.0 - n * U)
}

/// What an element's inputs are, for the formula of a bound: the exact scores of one pair.
struct Pair {
    /// The sum over d of `abs(q_d k_d)`.
    magnitude: f64,
    /// The exact `q @ k.T`.
    score: f64,
    mask: f64,
}

const WIDTH: usize = 7;
const ROWS: usize = 5;
const COLUMNS: usize = 6;

/// A program whose scores are `steps` of the named operands; `%s` is the last of them.
fn program(queries: &str, steps: &str) -> String {
    canonical(&format!(
        "func @forward(%q0 \"q\": f32[{ROWS}, {WIDTH}], %k \"k\": f32[{WIDTH}, {COLUMNS}], \
         %v \"v\": f32[{COLUMNS}, 3], %m \"m\": f32[{ROWS}, {COLUMNS}], %c \"c\": f32[]) -> (f32[{ROWS}, 3]) {{\n^bb0:\n\
         {queries}\n  %x = matmul %q, %k : f32[{ROWS}, {COLUMNS}]\n{steps}\n\
         \n  %w = softmax %s, axis=1 : f32[{ROWS}, {COLUMNS}]\n  %y = matmul %w, %v : f32[{ROWS}, 3]\n  return %y\n}}\n"
    ))
}

/// The module that returns the scores.
fn scores(mut module: Module) -> Module {
    let f = &mut module.functions[0];
    let softmax = f.insts().find(|(_, _, d)| matches!(d.op, Op::Softmax { .. })).map(|(_, _, d)| d.operands[0]);
    let value = softmax.expect("a softmax");
    let ty = f.tensor(value).expect("a tensor").clone();
    f.results = vec![ResultDecl { ty, batch: false }];
    let entry = f.entry();
    f.terminate(entry, Terminator::Return(vec![value]));
    module
}

fn evaluate<F: Real>(module: &Module, args: &[Tensor]) -> Vec<f64> {
    let call = Call { function: "forward", args, params: &NoParams, limits: Default::default() };
    let out = run::<F>(verify(module).expect("a module"), &call).expect("a run");
    let Array { data: Data::Float(values), .. } = &out.results[0] else { panic!("floats") };
    values.iter().map(|x| x.value()).collect()
}

/// A float of either sign over some binades.
fn float(random: &mut Random) -> f32 {
    let scale = random.pick(&[0.01, 0.3, 1.0, 9.0]);
    (2.0 * random.unit() - 1.0) as f32 * scale
}

/// Runs one rewrite on random inputs; `bound` is that of the essay for one pair and the scale `c`.
fn check(name: &str, queries: &str, steps: &str, bound: impl Fn(&Pair, f64) -> f64) {
    let before = text::parse(&program(queries, steps), Default::default()).expect("a program").module;
    let mut after = before.clone();
    let pass = find_pass("canonicalise-scale").expect("a pass");
    let options = Options { stats: true, ..Options::default() };
    let mut sink = Collected::default();
    run_passes(&mut after, &[pass], &options, &mut sink).expect("a run");
    assert!(sink.text.contains(&format!("canonicalise-scale: {name}\n")), "{name} is not made:\n{}", sink.text);
    let (before, after) = (scores(before), scores(after));
    let mut random = Random::new(1);
    let mut moved = false;
    for _ in 0..300 {
        let mut tensor = |shape: &[usize]| {
            let values: Vec<f32> = (0..shape.iter().product()).map(|_| float(&mut random)).collect();
            Tensor::from_f32(shape.to_vec(), &values).expect("a tensor")
        };
        let args = [
            tensor(&[ROWS, WIDTH]),
            tensor(&[WIDTH, COLUMNS]),
            tensor(&[COLUMNS, 3]),
            tensor(&[ROWS, COLUMNS]),
            tensor(&[]),
        ];
        let exact = evaluate::<f64>(&before, &args);
        let (q, k, m) = (args[0].to_f64(), args[1].to_f64(), args[3].to_f64());
        let c = args[4].to_f64()[0];
        let computed = evaluate::<f32>(&after, &args);
        moved |= computed != evaluate::<f32>(&before, &args);
        for (n, (x, y)) in computed.iter().zip(&exact).enumerate() {
            let (i, j) = (n / COLUMNS, n % COLUMNS);
            let products = (0..WIDTH).map(|d| q[i * WIDTH + d] * k[d * COLUMNS + j]);
            let pair = Pair { magnitude: products.clone().map(f64::abs).sum(), score: products.sum(), mask: m[n] };
            let allowed = bound(&pair, c) + 1e-30;
            assert!((x - y).abs() <= allowed, "{name}: {x}, exact {y}, off by {:e} > {allowed:e}", (x - y).abs());
        }
    }
    assert!(moved, "{name} changes no bit; then it should be called exact");
}

/// What the matmul itself may be off, by which every bound is larger here.
fn product(pair: &Pair) -> f64 {
    gamma(WIDTH as f64 + 1.0) * pair.magnitude
}

const PLAIN: &str = "  %q = mul %q0, 1.0 : f32[5, 7]";

#[test]
fn a_reciprocal_stays_within_its_bound() {
    let steps = "  %s = div %x, 3.0 : f32[5, 6]";
    check("reciprocal", PLAIN, steps, |p, _| gamma(2.0) * (p.score / 3.0).abs() + 1.01 * product(p) / 3.0);
    let steps = "  %s = div %x, %c : f32[5, 6]";
    check("reciprocal", PLAIN, steps, |p, c| gamma(2.0) * (p.score / c).abs() + 1.01 * product(p) / c.abs());
}

#[test]
fn a_scale_over_a_sum_stays_within_its_bound() {
    let steps = "  %t = add %x, %m : f32[5, 6]\n  %s = mul %t, %c : f32[5, 6]";
    check("scale-into-sum", PLAIN, steps, |p, c| {
        gamma(2.0) * ((p.score * c).abs() + (p.mask * c).abs()) + 1.01 * product(p) * c.abs()
    });
}

#[test]
fn merged_scales_stay_within_their_bound() {
    let steps = "  %t = mul %x, 0.3 : f32[5, 6]\n  %s = mul %t, %c : f32[5, 6]";
    // The constant 0.3 is that of the program, rounded to f32 in both.
    let third = f64::from(0.3f32);
    check("merge-scales", PLAIN, steps, |p, c| {
        gamma(2.0) * (p.score * third * c).abs() + 1.01 * product(p) * (third * c).abs()
    });
}

#[test]
fn a_scale_over_a_matmul_stays_within_its_bound() {
    let queries = "  %q = mul %q0, %c : f32[5, 7]";
    let steps = "  %s = add %x, %m : f32[5, 6]";
    let width = WIDTH as f64;
    check("scale-over-matmul", queries, steps, |p, c| {
        gamma(width + 2.0) * c.abs() * p.magnitude + U * ((p.score * c).abs() + p.mask.abs()) * 1.01
    });
}
