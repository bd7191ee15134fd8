//! Does each rewrite that is not exact stay within the bound that its pass states?
//!
//! The score before the softmax is made a result, before and after `canonicalise-scale`; the exact score comes from
//! `f64` (whose own error is far below the bounds). The bound of the essay is computed beside it. So is that of attention, as
//! written and fused, in every type of floats.

#[path = "common/passes.rs"]
mod passes;

use attnc::ir::interp::{Array, Call, Data, NoParams, Real, run};
use attnc::ir::{Module, Op, ResultDecl, Terminator, text, verify};
use attnc::passes::{Collected, Options, find_pass, run_passes};
use attnc::random::Random;
use attnc::shape::Elem;
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

/// A program whose scores are `steps` of the named operands; `%s` is the last of them. `queries` makes `%q` of `%q0`, or is empty
/// where the argument is `%q` itself.
fn program(queries: &str, steps: &str) -> String {
    let argument = if queries.is_empty() { "%q" } else { "%q0" };
    canonical(&format!(
        "func @forward({argument} \"q\": f32[{ROWS}, {WIDTH}], %k \"k\": f32[{WIDTH}, {COLUMNS}], \
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

/// Number of columns of the values.
const VALUES: usize = 3;

/// What the essay of `fuse-attention` needs of one result.
struct Weighted {
    /// The exact result.
    exact: f64,
    /// The sum of the exact weights' products with the values' sizes.
    products: f64,
    /// The sum of the values' sizes.
    values: f64,
    /// The largest sum of sizes that a score of the row is made of.
    scores: f64,
}

/// The exact weights of each row, from the definition, and what follows from them.
fn weighted(args: &[Tensor], scale: f64) -> Vec<Weighted> {
    let [q, k, v, m] = [0, 1, 2, 3].map(|i| args[i].to_f64());
    let mut out = Vec::new();
    for i in 0..ROWS {
        let products = |j: usize| {
            let (q, k) = (&q, &k);
            (0..WIDTH).map(move |d| q[i * WIDTH + d] * k[d * COLUMNS + j])
        };
        let score = |j: usize| scale * products(j).sum::<f64>() + m[i * COLUMNS + j];
        let size = |j: usize| scale.abs() * products(j).map(f64::abs).sum::<f64>() + m[i * COLUMNS + j].abs();
        let scores = (0..COLUMNS).map(size).fold(0.0, f64::max);
        let highest = (0..COLUMNS).map(score).fold(f64::NEG_INFINITY, f64::max);
        let powers: Vec<f64> = (0..COLUMNS).map(|j| (score(j) - highest).exp()).collect();
        let sum: f64 = powers.iter().sum();
        for e in 0..VALUES {
            let column = || (0..COLUMNS).map(|j| v[j * VALUES + e]);
            let terms = || powers.iter().zip(column()).map(|(p, v)| p / sum * v);
            out.push(Weighted {
                exact: terms().sum(),
                products: terms().map(f64::abs).sum(),
                values: column().map(f64::abs).sum(),
                scores,
            });
        }
    }
    out
}

/// The bound of the essay of `fuse-attention`, with one tile of keys; `rounded` is the unit by which scores are rounded.
fn attention_bound(x: &Weighted, [unit, tiny]: [f64; 2], rounded: f64, scale: f64, fused: bool) -> f64 {
    let (t, d, operations) = (COLUMNS as f64, WIDTH as f64, 3.0);
    let score = ((1.0 + rounded).powf(operations) * (1.0 + U).powf(d + 8.0) - 1.0) * x.scores
        + 2.0 * (operations + d) * tiny * scale.abs().max(1.0);
    let steps = 2.0 * t + 10.0 + if fused { 10.0 } else { 0.0 };
    let factor = (1.0 + U).powf(steps) * (2.0 * score).exp();
    let inside = ((1.0 + unit) * factor - 1.0) * x.products + factor * tiny * (x.values + 2.0 * t);
    (1.0 + unit) * inside + unit * x.exact.abs() + tiny
}

/// Attention of random inputs, as written and fused, stays within the bound of the essay; without the rounding of its scores
/// small floats as written would not.
#[test]
fn attention_stays_within_its_bounds() {
    let units = [
        (Elem::F32, [U, 2f64.powi(-126)]),
        (Elem::BF16, [2f64.powi(-8), 2f64.powi(-126)]),
        (Elem::F16, [2f64.powi(-11), 2f64.powi(-25)]),
    ];
    let scale = 0.375;
    for (elem, unit) in units {
        let steps = "  %t = mul %x, %c : f32[5, 6]\n  %s = add %t, %m : f32[5, 6]";
        let source = program("", steps).replace("f32[", &format!("{elem}["));
        let before = text::parse(&source, Default::default()).expect("a program").module;
        let mut after = before.clone();
        let pass = find_pass("fuse-attention").expect("a pass");
        run_passes(&mut after, &[pass], &Options::default(), &mut Collected::default()).expect("a run");
        assert!(after.functions[0].insts().any(|(_, _, d)| matches!(d.op, Op::Attention { .. })), "{elem}: not fused");
        let mut random = Random::new(2);
        let (mut moved, mut needed) = (false, false);
        for _ in 0..400 {
            // Scores from small ones to some that leave most weights below what `f16` has as normal numbers.
            let size = random.pick(&[0.1, 1.0, 3.0, 8.0]);
            let mut tensor = |shape: &[usize], size: f64| {
                let n = shape.iter().product();
                let values: Vec<f64> = (0..n).map(|_| (2.0 * random.unit() - 1.0) * size).collect();
                Tensor::from_floats(elem, shape.to_vec(), &values).expect("a tensor")
            };
            let args = [
                tensor(&[ROWS, WIDTH], size),
                tensor(&[WIDTH, COLUMNS], size),
                tensor(&[COLUMNS, VALUES], 100.0),
                tensor(&[ROWS, COLUMNS], 2.0),
                Tensor::from_floats(elem, Vec::new(), &[scale]).expect("a number"),
            ];
            let exact = weighted(&args, scale);
            let strict = evaluate::<f32>(&before, &args);
            let fused = evaluate::<f32>(&after, &args);
            moved |= strict != fused;
            for (x, (strict, fused)) in exact.iter().zip(strict.iter().zip(&fused)) {
                let allowed = attention_bound(x, unit, unit[0], scale, false);
                assert!(
                    (strict - x.exact).abs() <= allowed,
                    "{elem}: {strict}, exact {}, allowed {allowed:e}",
                    x.exact
                );
                let allowed = attention_bound(x, unit, U, scale, true);
                assert!((fused - x.exact).abs() <= allowed, "{elem}, fused: {fused}, exact {}, {allowed:e}", x.exact);
                needed |= (strict - x.exact).abs() > attention_bound(x, unit, U, scale, false);
            }
        }
        assert!(moved || elem == Elem::F32, "{elem}: fusing it changes no bit");
        assert_eq!(needed, elem != Elem::F32, "{elem}: is the rounding of scores part of the bound?");
    }
}

/// Rounded as written, the scores of one query are as if equal; fused they are not. Its result is 0.5 then, and e^0.25 / (1 +
/// e^0.25) rounded to `bf16` otherwise.
#[test]
fn scores_of_fused_attention_are_not_rounded() {
    let source = canonical(
        "func @forward(%q \"q\": bf16[1, 2], %k \"k\": bf16[2, 2], %v \"v\": bf16[2, 1]) -> (bf16[1, 1]) {\n^bb0:\n\
         %x = matmul %q, %k : bf16[1, 2]\n  %w = softmax %x, axis=1 : bf16[1, 2]\n\
         %y = matmul %w, %v : bf16[1, 1]\n  return %y\n}\n",
    );
    let before = text::parse(&source, Default::default()).expect("a program").module;
    let mut after = before.clone();
    let pass = find_pass("fuse-attention").expect("a pass");
    run_passes(&mut after, &[pass], &Options::default(), &mut Collected::default()).expect("a run");
    let tensor =
        |shape: &[usize], values: &[f64]| Tensor::from_floats(Elem::BF16, shape.to_vec(), values).expect("numbers");
    let args =
        [tensor(&[1, 2], &[1.0, 1.0]), tensor(&[2, 2], &[100.0, 100.0, 0.25, 0.0]), tensor(&[2, 1], &[1.0, 0.0])];
    assert_eq!(evaluate::<f32>(&before, &args), [0.5]);
    assert_eq!(evaluate::<f32>(&after, &args), [0.5625]);
}
