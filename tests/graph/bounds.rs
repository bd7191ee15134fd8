//! Bounds on what a computation may give: they hold, and they are not vacuous.

use attnc::ir::interp::{Call, Data, Limits, NoParams, Outcome, Real, run};
use attnc::ir::{text, verify};
use attnc::scalar::{BinaryOp, CmpOp, UnaryOp};
use attnc::shape::Elem;
use attnc::tensor::Tensor;

use crate::bounded::{Bounded, U32};

const INF: f64 = f64::INFINITY;

fn product_sum(terms: &[(f64, f64)]) -> Bounded {
    let mut sum = Bounded::zero();
    for (x, y) in terms {
        Bounded::add_product(&mut sum, Bounded::exact(*x), Bounded::exact(*y));
    }
    Bounded::total(sum, terms.len(), Elem::F32)
}

fn sum(terms: &[Bounded]) -> Bounded {
    let mut sum = Bounded::zero();
    terms.iter().for_each(|x| Bounded::add(&mut sum, *x));
    Bounded::total(sum, terms.len(), Elem::F32)
}

fn exact_sum(terms: &[f64]) -> Bounded {
    sum(&terms.iter().map(|x| Bounded::exact(*x)).collect::<Vec<_>>())
}

/// What `f32` gives for a sum in each order of its terms.
fn in_every_order(terms: &[f64]) -> Vec<f64> {
    let mut sums = Vec::new();
    for (i, x) in terms.iter().enumerate() {
        let rest = [&terms[..i], &terms[i + 1..]].concat();
        // The last term of the order is chosen first here.
        sums.extend(in_every_order(&rest).into_iter().map(|s| f64::from(s as f32 + *x as f32)));
    }
    if terms.is_empty() { vec![0.0] } else { sums }
}

#[test]
fn a_subnormal_factor_may_count_as_0() {
    let least = f64::from(f32::MIN_POSITIVE);
    for (x, y) in [(1e-39, 3e38), (-3e38, 1e-39), (0.99 * least, 2.0), (1e-40, 1e-40)] {
        let bound = product_sum(&[(x, y), (1.0, 0.0)]);
        assert!(bound.admits(0.0, 1.0) && bound.admits(x * y, 1.0), "{x:e} * {y:e}: {bound:?}");
        assert!(!bound.admits(-x * y, 1.0) || (x * y).abs() < 4.0 * least, "{x:e} * {y:e}: {bound:?}");
    }
    // Normal ones are exact, and 0 cannot be flushed.
    assert!(!product_sum(&[(least, 3e38)]).admits(0.0, 1.0));
    assert!(product_sum(&[(0.0, 3e38)]).error < 1e-36);
    // Infinity times what may be 0 is anything; a NaN stays one.
    assert_eq!(product_sum(&[(1e-39, INF)]).error, INF);
    assert!(!product_sum(&[(1e-39, f64::NAN)]).admits(0.0, 1.0));
    // A value that an earlier error may have made subnormal.
    let mut sum = Bounded::zero();
    Bounded::add_product(&mut sum, Bounded { value: 1.5 * least, error: least }, Bounded::exact(3e38));
    assert!(Bounded::total(sum, 1, Elem::F32).admits(0.0, 1.0));
}

/// Numbers of `f32`, and NaN.
const VALUES: [f64; 17] = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    -2.5,
    3.0,
    1.0 - U32,
    1.0 + 2.0 * U32,
    f32::MIN_POSITIVE as f64,
    65504.0,
    (1u64 << 40) as f64,
    1e30f32 as f64,
    -1e30f32 as f64,
    INF,
    -INF,
    f64::NAN,
];

/// Numbers with bounds, with those of `VALUES` that may be there in place of each.
fn bounded_values() -> Vec<(Bounded, Vec<f64>)> {
    let of = |value: f64, error: f64| {
        // What is exact has its sign, even where it is 0.
        let is_there = |x: &f64| error == INF || error > 0.0 && (x - value).abs() <= error;
        let others = VALUES.into_iter().filter(is_there);
        (Bounded { value, error }, std::iter::once(value).chain(others).collect())
    };
    VALUES.into_iter().flat_map(|value| [0.0, 1e-6, 0.75, INF].map(|error| of(value, error))).collect()
}

/// What `f32` computes of values within the bounds is within the bound of the result.
#[test]
fn operations_admit_what_they_are_of_values_within_the_bounds() {
    let mut wrong = Vec::new();
    let (mut bounds, mut tight) = (0, 0);
    let mut see = |what: String, made: Bounded, computed: f32| {
        bounds += 1;
        tight += usize::from(made.error <= 1.0);
        if !made.admits(f64::from(computed), 1.0) {
            wrong.push(format!("{what} = {computed}, not {made:?}"));
        }
    };
    for (x, near_x) in bounded_values() {
        for op in UnaryOp::ALL.iter().filter(|op| **op != UnaryOp::Not) {
            let made = Bounded::unary(*op, x, Elem::F32);
            near_x.iter().for_each(|a| see(format!("{op:?} {a} of {x:?}"), made, op.eval_f32(*a as f32)));
        }
        let (to, certain) = x.to_int();
        for a in near_x.iter().filter(|_| certain) {
            see(format!("{a} of {x:?} as an integer"), Bounded::exact(to as f64), *a as f32 as i64 as f32);
        }
        for (y, near_y) in bounded_values() {
            let pairs = || near_x.iter().flat_map(|a| near_y.iter().map(move |b| (*a, *b)));
            for op in BinaryOp::ALL.iter().filter(|op| !matches!(op, BinaryOp::And | BinaryOp::Or)) {
                let made = Bounded::binary(*op, x, y, Elem::F32);
                for (a, b) in pairs().filter(|_| made.error < INF) {
                    let computed = f32::binary(*op, a as f32, b as f32, Elem::F32);
                    see(format!("{op:?} {a} {b} of {x:?} {y:?}"), made, computed);
                }
            }
            for op in CmpOp::ALL {
                let (outcome, certain) = Bounded::compare(*op, x, y);
                for (a, b) in pairs().filter(|_| certain) {
                    let computed = f32::from(u8::from(op.eval(a, b)));
                    see(
                        format!("{op:?} {a} {b} of {x:?} {y:?}"),
                        Bounded::exact(f64::from(u8::from(outcome))),
                        computed,
                    );
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {bounds} are wrong, such as {}", wrong.len(), wrong[0]);
    assert!(tight * 2 > bounds, "{tight} of {bounds} have tight bounds");
}

/// Each power of 1 is 1, even that to a NaN: another precision may compute it where `f64` has a NaN.
#[test]
fn a_power_to_a_nan_is_certain_if_the_base_is() {
    let pow = |x: f64, error: f64| {
        Bounded::binary(BinaryOp::Pow, Bounded { value: x, error }, Bounded::exact(f64::NAN), Elem::F32)
    };
    assert!(pow(1.0, 0.0).admits(1.0, 1.0) && !pow(1.0, 0.0).admits(f64::NAN, 1.0));
    assert!(pow(2.0, 0.0).admits(f64::NAN, 1.0) && !pow(2.0, 0.0).admits(1.0, 1.0));
    let near = pow(1.0 - 1e-9, 1e-6);
    assert!(near.admits(f64::NAN, 1.0) && near.admits(1.0, 1.0));
}

/// A NaN that has no bound need not be one, and is then another integer than 0.
#[test]
fn what_may_be_anything_is_no_certain_integer() {
    let of = |value: f64, error: f64| Bounded { value, error }.to_int();
    assert_eq!(of(f64::NAN, 0.0), (0, true));
    assert_eq!(of(f64::NAN, INF), (0, false));
    assert_eq!(
        [of(INF, INF).1, of(-INF, INF).1, of(0.5, INF).1, of(0.9, 0.2).1, of(0.5, 0.2).1],
        [false, false, false, false, true]
    );
}

#[test]
fn a_cast_to_bf16_may_take_subnormals_as_0() {
    let small = f32::literal(1e-39, Elem::BF16).value();
    assert!(Bounded::exact(small).cast(Elem::BF16).admits(0.0, 1.0));
    assert!(!Bounded::exact(small).cast(Elem::F32).admits(0.0, 1.0));
    // 1 is an element, but what is computed for it may be nearly half an element's distance above, and be rounded to the next.
    let off = Bounded { value: 1.0, error: 0.6 / 128.0 }.cast(Elem::BF16);
    assert!(off.admits(1.0 + 1.0 / 128.0, 1.0) && !off.admits(1.0 + 2.0 / 128.0, 1.0), "{off:?}");
}

/// Sums at the edge of the range: whatever order gives is admitted.
#[test]
fn a_sum_admits_what_every_order_gives() {
    let values = [1.0, -1.0, 2e38, -2e38, 3e38, -3e38, 1e30, -1e30, INF, -INF, f64::NAN];
    let f32s = values.map(|x| f64::from(x as f32));
    let mut uncertain = 0;
    for a in f32s {
        for b in f32s {
            for c in f32s {
                for d in f32s {
                    let terms = [a, b, c, d];
                    let bound = exact_sum(&terms);
                    uncertain += usize::from(bound.error == INF);
                    for s in in_every_order(&terms) {
                        assert!(bound.admits(s, 1.0), "{terms:?}: {s}, not {bound:?}");
                    }
                }
            }
        }
    }
    // Of 11^4, those that have a NaN (11^4 - 10^4) or infinities of both signs and no NaN (10^4 - 2 * 9^4 + 8^4) are
    // certain, so there are fewer than the rest.
    assert!(uncertain > 0 && uncertain < 10_000 - 974, "{uncertain}");
}

#[test]
fn partial_sums_beyond_the_range_make_a_sum_uncertain() {
    for terms in [&[3e38, 3e38, -3e38, -3e38][..], &[-3e38, -3e38, 3e38], &[3e38, 3e38, -6e38]] {
        assert_eq!(exact_sum(terms).error, INF, "{terms:?}");
    }
    // In this order none of the partial sums is beyond it, in others some are.
    assert_eq!(exact_sum(&[3e38, -3e38, 3e38, -3e38]).error, INF);
    // None in any order.
    let inside = exact_sum(&[3e38, -3e38, 3e37]);
    assert!(inside.error < 1e33, "{inside:?}");
    // An error may carry one beyond.
    let near = |error| sum(&[Bounded { value: 3.4e38, error }, Bounded::exact(-3.4e38)]).error;
    assert!(near(1e34) < 1e35);
    assert_eq!(near(1e36), INF);
}

#[test]
fn an_infinite_term_decides_unless_finite_ones_overflow_against_it() {
    for sign in [1.0, -1.0] {
        let certain = Bounded { value: sign * INF, error: 0.0 };
        assert_eq!(exact_sum(&[sign * INF, 1.0, sign * -3e38]), certain);
        // Terms of its own sign may overflow.
        assert_eq!(exact_sum(&[sign * INF, sign * 3e38, sign * 3e38, sign * -3e38]), certain);
        assert_eq!(exact_sum(&[sign * INF, sign * -3e38, sign * -3e38]).error, INF);
        // Products overflow each on its own.
        assert_eq!(product_sum(&[(sign, INF), (1e30, sign * -1e30)]).error, INF);
        assert_eq!(product_sum(&[(sign, INF), (1e30, sign * 1e30)]), certain);
    }
    let both = exact_sum(&[INF, -INF, 3e38, 3e38, -3e38]);
    assert!(both.value.is_nan() && both.error == 0.0);
}

fn call<F: Real>(source: &str, args: &[Tensor]) -> Outcome<F> {
    let module = text::parse(&format!("module \"m\"\n{source}"), Default::default());
    let module = module.unwrap_or_else(|d| panic!("{:?}", d.sorted())).module;
    let limits = Limits { elements: 1 << 20, work: 1 << 24 };
    let verified = verify(&module).unwrap_or_else(|e| panic!("{e}"));
    run(verified, &Call { function: "f", args, params: &NoParams, limits }).unwrap()
}

fn floats(shape: &[usize], values: &[f32]) -> Tensor {
    Tensor::from_f32(shape.to_vec(), values).unwrap()
}

#[test]
fn bounds_hold_and_are_not_vacuous() {
    let source = "func @f(%0 \"x\": f32[S, 64], %1 \"w\": f32[64, 16]) -> (f32[S, 16], bf16[S, 16]) {\n^bb0:\n\
        %2 = matmul %0, %1 : f32[S, 16]\n  %3 = gelu %2 : f32[S, 16]\n  %4 = softmax %3, axis=1 : f32[S, 16]\n\
        %5 = reduce_mean %4, axes=[1], keep=true : f32[S, 1]\n  %6 = sub %4, %5 : f32[S, 16]\n\
        %7 = cast %3 : bf16[S, 16]\n  %8 = tanh %7 : bf16[S, 16]\n  return %6, %8\n}";
    let numbers = |n: usize, k: usize| (0..n).map(|i| ((i * k) % 101) as f32 / 50.0 - 1.0).collect::<Vec<f32>>();
    let args = [floats(&[3, 64], &numbers(192, 37)), floats(&[64, 16], &numbers(1024, 29))];
    let exact = call::<f32>(source, &args);
    let bounds = call::<Bounded>(source, &args);
    assert!(bounds.certain);
    for (result, tolerance) in [(0, 1e-3), (1, 0.05)] {
        let (Data::Float(x), Data::Float(b)) = (&exact.results[result].data, &bounds.results[result].data) else {
            panic!()
        };
        for (x, b) in x.iter().zip(b) {
            assert!(b.admits(f64::from(*x), 1.0), "{x} {b:?}");
            assert!(b.error > 0.0 && b.error < tolerance, "{b:?}");
        }
    }
}

/// A NaN that was read is one in every precision, and comes before or after all numbers; what has no bound may be a number.
#[test]
fn an_order_of_what_has_no_bound_is_uncertain() {
    for op in ["argmax %3, axes=[0] : i32[]", "argsort %3, axis=0, descending=true, first=2 : i32[2]"] {
        let ty = op.split(" : ").nth(1).unwrap();
        let source = format!(
            "func @f(%0 \"x\": f32[2]) -> ({ty}) {{\n^bb0:\n  %1 = exp %0 : f32[2]\n  %2 = exp %1 : f32[2]\n\
             %3 = sub %2, %2 : f32[2]\n  %4 = {op}\n  return %4\n}}"
        );
        for (x, certain) in [(f32::NAN, true), (100.0, false)] {
            for x in [[x, 0.0], [0.0, x]] {
                let bounds = call::<Bounded>(&source, &[floats(&[2], &x)]);
                assert_eq!(bounds.certain, certain, "{op} of {x:?}");
            }
        }
    }
}

/// A key that a mask hides contributes nothing, for certain. One that is seen with a score of `-inf` has a weight of 0, and whether an infinite
/// value counts then is open.
#[test]
fn only_keys_that_masks_hide_certainly_contribute_nothing() {
    let inf = f32::INFINITY;
    let of = |mask: &str, keys: [f32; 3]| {
        let source = format!(
            "func @f(%0 \"q\": f32[1, 1], %1 \"k\": f32[3, 1], %2 \"v\": f32[3, 1], %3 \"m\": f32[3], %4 \"c\": bool[3], %5 \"e\": f32[]) \
            -> (f32[1, 1]) {{\n^bb0:\n  %6 = attention %0, %1, %2, scale=0.5, mask=[{mask}] : f32[1, 1]\n  return %6\n}}"
        );
        let args = [
            floats(&[1, 1], &[-1.0]),
            floats(&[3, 1], &keys),
            floats(&[3, 1], &[5.0, inf, 5.0]),
            floats(&[3], &[0.0, -inf, 0.0]),
            Tensor::from_ints(Elem::Bool, vec![3], &[1, 0, 1]).unwrap(),
            floats(&[], &[2.0]),
        ];
        let out = call::<Bounded>(&source, &args);
        let Data::Float(y) = &out.results[0].data else { panic!() };
        assert!(out.certain && y.len() == 1);
        y[0]
    };
    for keys in [[1.0, inf, 2.0], [1.0, 3.0, 2.0], [inf, inf, 2.0]] {
        for mask in ["add(%3)", "keep(%4, -inf)", "causal, add(%3)", "cap(%5), keep(%4, -inf)"] {
            let y = of(mask, keys);
            assert!(y.admits(5.0, 1.0) && !y.admits(f64::NAN, 1.0) && !y.admits(inf.into(), 1.0), "{mask}: {y:?}");
        }
    }
    let seen = of("causal", [1.0, inf, 2.0]);
    assert!(seen.admits(f64::NAN, 1.0) && seen.admits(5.0, 1.0), "{seen:?}");
    // By a finite key the infinite value counts.
    assert!(of("causal", [1.0, 3.0, 2.0]).admits(inf.into(), 1.0));
}
