//! Does each rewrite that is not exact stay within the bound that its pass states?
//!
//! The score before the softmax is made a result, before and after `canonicalise-scale`; the exact score comes from
//! `f64` (whose own error is far below the bounds). The bound of the essay is computed beside it. So is that of attention, as
//! written and fused, in every type of floats.

use crate::passes;

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

/// The exact `q @ k.T` of a pair and the sum of its products' sizes.
fn pair(args: &[Tensor], i: usize, j: usize) -> [f64; 2] {
    let (q, k) = (args[0].to_f64(), args[1].to_f64());
    let products: Vec<f64> = (0..WIDTH).map(|d| q[i * WIDTH + d] * k[d * COLUMNS + j]).collect();
    [products.iter().sum(), products.iter().map(|x| x.abs()).sum()]
}

/// The exact weights of each row, from the definition, and what follows from them: of the score of a pair, what sizes it is
/// made of, and a row's sink.
fn weighted(
    args: &[Tensor],
    score: impl Fn(usize, usize) -> f64,
    size: impl Fn(usize, usize) -> f64,
    sink: impl Fn(usize) -> f64,
) -> Vec<Weighted> {
    let v = args[2].to_f64();
    let mut out = Vec::new();
    for i in 0..ROWS {
        let row: Vec<f64> = (0..COLUMNS).map(|j| score(i, j)).collect();
        let scores = (0..COLUMNS).map(|j| size(i, j)).fold(0.0, f64::max);
        let highest = row.iter().copied().fold(sink(i), f64::max);
        let powers: Vec<f64> = row.iter().map(|x| (x - highest).exp()).collect();
        let sum: f64 = powers.iter().sum::<f64>() + (sink(i) - highest).exp();
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
    let score = score_bound(x.scores, 3.0, tiny, rounded, scale);
    result_bound(x, [unit, tiny], score, COLUMNS as f64, fused)
}

/// What a score of so many operations may be off that is made of these sizes.
fn score_bound(sizes: f64, operations: f64, tiny: f64, rounded: f64, scale: f64) -> f64 {
    let d = WIDTH as f64;
    ((1.0 + rounded).powf(operations) * (1.0 + U).powf(d + 8.0) - 1.0) * sizes
        + 2.0 * (operations + d) * tiny * scale.abs().max(1.0)
}

/// What a result may be off whose scores are off by this much, of so many keys.
fn result_bound(x: &Weighted, [unit, tiny]: [f64; 2], score: f64, t: f64, fused: bool) -> f64 {
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
            let m = args[3].to_f64();
            let score = |i, j| scale * pair(&args, i, j)[0] + m[i * COLUMNS + j];
            let size = |i, j| scale.abs() * pair(&args, i, j)[1] + m[i * COLUMNS + j].abs();
            let exact = weighted(&args, score, size, |_| f64::NEG_INFINITY);
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

/// So does attention with a soft cap, a mask that is added to it and a sink, whose scores are of one type and its softmax of
/// another.
#[test]
fn attention_with_a_cap_and_a_sink_stays_within_its_bounds() {
    let units = [
        (Elem::F32, [U, 2f64.powi(-126)]),
        (Elem::BF16, [2f64.powi(-8), 2f64.powi(-126)]),
        (Elem::F16, [2f64.powi(-11), 2f64.powi(-25)]),
    ];
    let (scale, cap) = (0.375, 2.5);
    for (elem, unit) in units {
        let source = canonical(&format!(
            "func @forward(%q \"q\": {elem}[5, 7], %k \"k\": {elem}[7, 6], %v \"v\": {elem}[6, 3], %m \"m\": {elem}[5, 6], \
             %c \"c\": {elem}[], %s \"s\": {elem}[5, 1]) -> ({elem}[5, 3]) {{\n^bb0:\n  %x = matmul %q, %k : {elem}[5, 6]\n\
             %t = mul %x, %c : {elem}[5, 6]\n  %u = tanh %t : {elem}[5, 6]\n  %h = mul %u, {elem}({cap}) : {elem}[5, 6]\n\
             %a = add %h, %m : {elem}[5, 6]\n  %j = concat %a, %s, axis=1 : {elem}[5, 7]\n  %z = cast %j : f32[5, 7]\n\
             %p = softmax %z, axis=1 : f32[5, 7]\n  %w = cast %p : {elem}[5, 7]\n\
             %r = slice %w, axis=1, start=0, stop=6 : {elem}[5, 6]\n  %y = matmul %r, %v : {elem}[5, 3]\n  return %y\n}}\n"
        ));
        let before = text::parse(&source, Default::default()).expect("a program").module;
        let mut after = before.clone();
        let list = ["simplify", "canonicalise-cast", "canonicalise-scale", "fuse-attention"];
        let list = list.map(|name| find_pass(name).expect("a pass"));
        run_passes(&mut after, &list, &Options::default(), &mut Collected::default()).expect("a run");
        assert!(after.functions[0].insts().any(|(_, _, d)| matches!(d.op, Op::Attention { .. })), "{elem}: not fused");
        let mut random = Random::new(3);
        let mut needed = false;
        for _ in 0..400 {
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
                tensor(&[ROWS, 1], 4.0),
            ];
            let (m, sinks) = (args[3].to_f64(), args[5].to_f64());
            let score = |i, j| cap * (scale * pair(&args, i, j)[0]).tanh() + m[i * COLUMNS + j];
            let exact = weighted(&args, score, |i, j| scale * pair(&args, i, j)[1], |i| sinks[i]);
            let strict = evaluate::<f32>(&before, &args);
            let fused = evaluate::<f32>(&after, &args);
            for (n, (x, (strict, fused))) in exact.iter().zip(strict.iter().zip(&fused)).enumerate() {
                let row = n / VALUES;
                let more = (0..COLUMNS).map(|j| m[row * COLUMNS + j].abs()).fold(sinks[row].abs(), f64::max);
                let allowed = |rounded: f64, fused| {
                    let inner = score_bound(x.scores, 2.0, unit[1], rounded, scale);
                    let capped = cap * (inner + (1.0 + rounded).powi(2) * (1.0 + 6.0 * U));
                    let all = (1.0 + rounded) * (1.0 + U).powi(8) * (capped + more + 6.0 * unit[1] * cap);
                    result_bound(x, unit, all - cap - more, COLUMNS as f64 + 1.0, fused)
                };
                let (written, better) = (allowed(unit[0], false), allowed(U, true));
                assert!((strict - x.exact).abs() <= written, "{elem}: {strict}, exact {}, {written:e}", x.exact);
                assert!((fused - x.exact).abs() <= better, "{elem}, fused: {fused}, exact {}, {better:e}", x.exact);
                needed |= (strict - x.exact).abs() > allowed(U, false);
            }
        }
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
