//! Does `std.decode` choose the tokens that plain loops in f64 choose, wherever a program runs; do they come as often as their
//! probabilities say; and is there a token whatever the scores are?

use crate::bits::first_word;
use crate::{compiled, everywhere, front};

use std::collections::BTreeSet;
use std::sync::OnceLock;

use attnc::random::Random;
use attnc::shape::Elem;
use attnc::tensor::Tensor;
use everywhere::Everywhere;

const INF: f64 = f64::INFINITY;

/// Each function by itself. Only `std.decode` is used: what it uses itself comes with it.
const PROGRAM: &str = "use std.decode

model M {
    pub fn penalised(x: f32[B, V], tokens: i32[S], penalty: f32) -> f32[B, V] {
        decode.repetition_penalty(x, scatter(full(false, [V]), tokens, true), penalty)
    }
    pub fn tempered(x: f32[B, V], t: f32) -> f32[B, V] { decode.temperature(x, t) }
    pub fn best(x: f32[B, V], k: i32) -> f32[B, V] where V >= 1 { decode.keep_top_k(x, k) }
    pub fn nucleus(x: f32[B, V], p: f32) -> f32[B, V] where V >= 1 { decode.keep_top_p(x, p) }
    pub fn drawn(x: f32[B, V], seed: i64, at: i64[B]) -> i32[B] where V >= 1 { decode.sample(x, seed, at) }
    pub fn draws(x: f32[V], seed: i64, at: i64[N]) -> i32[N] where V >= 1 { decode.sample(x, seed, at) }
    pub fn chosen(x: f32[B, V], t: f32, p: f32, seed: i64, at: i64[B]) -> i32[B] where V >= 1 { decode.choose(x, t, p, seed, at) }
    pub fn kept(x: f32[B, V], k: i32, p: f32) -> f32[B, V] where V >= 1 { decode.keep_top(x, k, p) }
    pub fn next(x: f32[B, V], t: f32, k: i32, p: f32, seed: i64, at: i64[B]) -> i32[B] where V >= 1 {
        decode.next(x, t, k, p, seed, at)
    }
    pub fn one(x: f32[V], t: f32, p: f32, seed: i64, at: i64) -> i32 where V >= 1 { decode.choose(x, t, p, seed, at) }
}
";

fn rows(width: usize, values: &[f64]) -> Tensor {
    Tensor::from_floats(Elem::F32, vec![values.len() / width.max(1), width], values).unwrap()
}

fn float(x: f64) -> Tensor {
    Tensor::from_floats(Elem::F32, Vec::new(), &[x]).unwrap()
}

fn int(elem: Elem, n: i64) -> Tensor {
    Tensor::from_ints(elem, Vec::new(), &[n]).unwrap()
}

fn ints(elem: Elem, values: &[i64]) -> Tensor {
    Tensor::from_ints(elem, vec![values.len()], values).unwrap()
}

/// The program, compiled once for all tests.
fn program() -> &'static Everywhere {
    static PROGRAM_MADE: OnceLock<Everywhere> = OnceLock::new();
    PROGRAM_MADE.get_or_init(|| Everywhere::of(PROGRAM, &[]))
}

/// The first results of some calls.
fn results(calls: &[(&str, Vec<Tensor>)]) -> Vec<Vec<f64>> {
    let given = program().calls(calls);
    given.into_iter().map(|given| given.unwrap()[0].to_f64()).collect()
}

/// Rows of scores: many equal, some -inf, all -inf but one, all equal, one that is far above, and any numbers.
fn scores(random: &mut Random, width: usize) -> Vec<f64> {
    let few = [0.0, -0.0, 1.0, -1.0, 2.5, -INF, 3.0, -7.25];
    let mut out: Vec<f64> = (0..width).map(|_| few[random.below(few.len())]).collect();
    out[width / 2] = 0.5;
    out.extend((0..width).map(|i| if i == width / 3 { -4.0 } else { -INF }));
    out.extend((0..width).map(|_| 1.5));
    out.extend((0..width).map(|i| if i + 1 == width { 60.0 } else { 0.0 }));
    out.extend((0..width).map(|_| f64::from(random.below(100_000) as f32 * 1e-4 - 5.0)));
    out
}

/// The places of a row from the greatest score to the least, equal ones as they are.
fn order(row: &[f64]) -> Vec<usize> {
    let mut places: Vec<usize> = (0..row.len()).collect();
    places.sort_by(|i, j| row[*j].partial_cmp(&row[*i]).unwrap());
    places
}

fn softmax(row: &[f64]) -> Vec<f64> {
    let greatest = row.iter().copied().fold(-INF, f64::max);
    let weights: Vec<f64> = row.iter().map(|x| (x - greatest).exp()).collect();
    let sum: f64 = weights.iter().sum();
    weights.iter().map(|w| w / sum).collect()
}

/// The scores at these places, and -inf elsewhere.
fn only(row: &[f64], places: &[usize]) -> Vec<f64> {
    let mut out = vec![-INF; row.len()];
    places.iter().for_each(|i| out[*i] = row[*i]);
    out
}

/// What `keep_top_p` leaves, and how far p is from where it would leave something else.
pub(crate) fn nucleus(row: &[f64], p: f64) -> (Vec<f64>, f64) {
    let (order, probabilities) = (order(row), softmax(row));
    let (mut sum, mut count, mut margin) = (0.0, 0, INF);
    for place in &order {
        if count == 0 || sum < p || p >= 1.0 {
            count += 1;
        }
        sum += probabilities[*place];
        if probabilities[*place] > 0.0 {
            margin = (sum - p).abs().min(margin);
        }
    }
    (only(row, &order[..count]), if p >= 1.0 { INF } else { margin })
}

/// The token that a random number draws, and how far that number is from where it would draw another one.
pub(crate) fn drawn(row: &[f64], seed: i64, counter: i64) -> (usize, f64) {
    let number = f64::from(first_word(seed, counter) >> 8) / 16_777_216.0;
    let (mut sum, mut token, mut margin) = (0.0, None, INF);
    let last = row.iter().rposition(|x| *x > -INF).unwrap();
    for (i, probability) in softmax(row).into_iter().enumerate() {
        sum += probability;
        if token.is_none() && probability > 0.0 && (number < sum || i == last) {
            token = Some(i);
        }
        if i < last && sum > 0.0 {
            margin = (sum - number).abs().min(margin);
        }
    }
    (token.unwrap(), margin)
}

#[test]
fn penalties_and_temperatures() {
    let x = [2.0, -2.0, 0.0, -INF, 0.75, 1.0, -3.0, 8.0, -0.0, -0.5];
    let seen = [0, 1, 3, 1];
    let calls = [
        ("penalised", vec![rows(5, &x), ints(Elem::I32, &seen), float(1.25)]),
        ("penalised", vec![rows(5, &x), ints(Elem::I32, &[]), float(1.25)]),
        ("penalised", vec![rows(1, &x), ints(Elem::I32, &[0]), float(1.0)]),
        ("tempered", vec![rows(5, &x), float(0.5)]),
        ("tempered", vec![rows(1, &x), float(3.0)]),
        ("tempered", vec![rows(0, &[]), float(3.0)]),
    ];
    let got = results(&calls);
    let worse = |(i, x): (usize, &f64)| match (seen.contains(&((i % 5) as i64)), *x > 0.0) {
        (true, true) => x / 1.25,
        (true, false) => x * 1.25,
        (false, _) => *x,
    };
    let near = |got: &[f64], want: &[f64]| everywhere::near("scores", &rows(want.len(), want), &rows(got.len(), got));
    near(&got[0], &x.iter().enumerate().map(worse).collect::<Vec<f64>>());
    near(&got[1], &x);
    near(&got[2], &x);
    near(&got[3], &x.map(|x| x / 0.5));
    near(&got[4], &x.map(|x| x / 3.0));
    near(&got[5], &[]);
}

#[test]
fn the_k_greatest_scores_stay() {
    let mut random = Random::new(31);
    let (mut calls, mut want) = (Vec::new(), Vec::new());
    for width in [1, 2, 7, 150] {
        let x = scores(&mut random, width);
        for k in [i64::from(i32::MIN), 0, 1, 2, 5, width as i64, width as i64 + 1, i64::from(i32::MAX)] {
            calls.push(("best", vec![rows(width, &x), int(Elem::I32, k)]));
            let count = k.clamp(1, width as i64) as usize;
            let kept: Vec<f64> = x.chunks(width).flat_map(|row| only(row, &order(row)[..count])).collect();
            want.push(kept);
        }
    }
    calls.push(("best", vec![Tensor::from_f32(vec![0, 4], &[]).unwrap(), int(Elem::I32, 2)]));
    want.push(Vec::new());
    assert_eq!(results(&calls), want);
}

#[test]
fn the_fewest_scores_that_reach_p_stay() {
    let mut random = Random::new(32);
    let (mut calls, mut want) = (Vec::new(), Vec::new());
    for width in [1, 2, 7, 150] {
        let x = scores(&mut random, width);
        for p in [-1.0, 0.0, 1e-9, 0.1, 0.5, 0.9, 0.99, 1.0, 7.0] {
            let mut p = p;
            let all = |p: f64| x.chunks(width).map(|row| nucleus(row, p)).collect::<Vec<_>>();
            // Not where a rounding decides.
            while p > 0.01 && all(p).iter().any(|(_, margin)| *margin < 1e-5) {
                p += 3e-5;
            }
            let p = f64::from(p as f32);
            calls.push(("nucleus", vec![rows(width, &x), float(p)]));
            want.push(all(p).into_iter().flat_map(|(kept, _)| kept).collect());
        }
    }
    // The sum of the first few is 1 after rounding, and the others are there all the same.
    let steep: Vec<f64> = (0..40).map(|i| -f64::from(i)).collect();
    calls.push(("nucleus", vec![rows(40, &steep), float(1.0)]));
    want.push(steep);
    assert_eq!(results(&calls), want);
    // A p that is no number leaves the best.
    let got = results(&[("nucleus", vec![rows(3, &[1.0, 2.0, 2.0]), float(f64::NAN)])]);
    assert_eq!(got[0], [-INF, 2.0, -INF]);
}

/// With 100 rows, each by a counter of its own; and with one row for all counters.
#[test]
fn tokens_are_drawn_by_running_sums() {
    let mut random = Random::new(33);
    let (mut calls, mut want) = (Vec::new(), Vec::new());
    for (width, seed) in [(1, 0), (2, 5), (7, -1), (150, 0x0123_4567_89ab_cdef)] {
        let kinds = scores(&mut random, width);
        let mut next = 0;
        let mut counters = |row: &[f64], count: usize| {
            let mut out = Vec::new();
            while out.len() < count {
                next += 1;
                // Not where a rounding decides.
                let (token, margin) = drawn(row, seed, next);
                if margin > 1e-6 {
                    out.push((next, token as f64));
                }
            }
            out
        };
        let (mut x, mut at, mut tokens) = (Vec::new(), Vec::new(), Vec::new());
        for row in kinds.chunks(width) {
            for (counter, token) in counters(row, 20) {
                x.extend(row);
                at.push(counter);
                tokens.push(token);
            }
            let (one, several): (Vec<i64>, Vec<f64>) = counters(row, 10).into_iter().unzip();
            let row = Tensor::from_floats(Elem::F32, vec![width], row).unwrap();
            calls.push(("draws", vec![row, int(Elem::I64, seed), ints(Elem::I64, &one)]));
            want.push(several);
        }
        calls.push(("drawn", vec![rows(width, &x), int(Elem::I64, seed), ints(Elem::I64, &at)]));
        want.push(tokens);
    }
    assert_eq!(results(&calls), want);
}

/// Chi-square of tokens against their probabilities, between two bounds; what has no probability is never there.
fn as_often(tokens: &[i64], probabilities: &[f64], (least, most): (f64, f64)) {
    let mut seen = vec![0_u32; probabilities.len()];
    tokens.iter().for_each(|token| seen[*token as usize] += 1);
    let mut chi = 0.0;
    for (seen, probability) in seen.iter().zip(probabilities) {
        let expected = probability * tokens.len() as f64;
        if expected < 1e-9 {
            assert_eq!(*seen, 0);
        } else {
            chi += (f64::from(*seen) - expected).powi(2) / expected;
        }
    }
    assert!((least..most).contains(&chi), "{chi}: {seen:?}");
}

/// Over 20,000 draws, for two seeds: of all scores, and of those that `next` leaves at a temperature. Of 9 tokens, 8 degrees of freedom:
/// 99.9 % of such sums are below 26.1, and 99.9 % above 0.86; of 5 tokens 18.5 and 0.09.
#[test]
fn tokens_come_as_often_as_their_probabilities_say() {
    let module = front::module("m.attn", PROGRAM, &Default::default()).unwrap();
    let module = compiled::optimised(module, &Default::default());
    let folder = tempfile::tempdir().unwrap();
    let model = compiled::load_at(compiled::levels()[0], &module, &Default::default(), folder.path());
    let mut session = model.session().unwrap();
    let row = [-INF, 0.0, 1.0, -1.5, 2.0, -INF, 0.5, 0.5, -200.0, -0.25, 3.0, -1.0, -INF];
    let x = Tensor::from_floats(Elem::F32, vec![row.len()], &row).unwrap();
    let count = 20_000;
    let at = ints(Elem::I64, &(0..count).collect::<Vec<i64>>());
    for seed in [1, 2] {
        let args = [x.clone(), int(Elem::I64, seed), at.clone()];
        let tokens = session.call(model.entry("draws").unwrap(), &args).unwrap()[0].to_i64();
        as_often(&tokens, &softmax(&row), (0.86, 26.1));
        let (t, k, p) = (1.5, 6, 0.875);
        let tempered: Vec<f64> = row.iter().map(|x| x / t).collect();
        let (kept, _) = nucleus(&only(&tempered, &order(&tempered)[..k]), p);
        assert_eq!(kept.iter().filter(|x| **x > -INF).count(), 5);
        let all: Vec<f64> = (0..count).flat_map(|_| row).collect();
        let args = [rows(13, &all), float(t), int(Elem::I32, 6), float(p), int(Elem::I64, seed), at.clone()];
        let tokens = session.call(model.entry("next").unwrap(), &args).unwrap()[0].to_i64();
        as_often(&tokens, &softmax(&kept), (0.09, 18.5));
    }
}

#[test]
fn the_greatest_score_at_temperature_zero_and_draws_above() {
    let mut random = Random::new(34);
    let (mut calls, mut want) = (Vec::new(), Vec::new());
    let seed = 9;
    for width in [1, 7, 150] {
        let x = scores(&mut random, width);
        let best: Vec<f64> = x.chunks(width).map(|row| order(row)[0] as f64).collect();
        let at: Vec<i64> = (100..100 + best.len() as i64).collect();
        let mut call = |t: f64, p: f64, at: &[i64], tokens: Vec<f64>| {
            let args = [rows(width, &x), float(t), float(p), int(Elem::I64, seed), ints(Elem::I64, at)];
            calls.push(("chosen", args.to_vec()));
            want.push(tokens);
        };
        // Greedy; so near to zero that only the best is left, the first of equals by p; and a p of one token.
        for (t, p) in [(0.0, 1.0), (0.0, 0.0), (-1.0, 0.5), (f64::NAN, 0.5), (1e-38, 1e-6), (1.0, 0.0), (0.7, 1e-9)] {
            call(t, p, &at, best.clone());
        }
        for (t, p) in [(1.0, 1.0), (0.5, 0.937), (1.75, 0.613)] {
            let (t, p) = (f64::from(t as f32), f64::from(p as f32));
            let (mut at, mut tokens) = (Vec::new(), Vec::new());
            for row in x.chunks(width) {
                let tempered: Vec<f64> = row.iter().map(|x| x / t).collect();
                let (kept, margin) = nucleus(&tempered, p);
                assert!(margin > 1e-5, "{margin}");
                let sure = |counter: &i64| drawn(&kept, seed, *counter).1 > 1e-6;
                let counter = (at.len() as i64 * 50..).find(sure).unwrap();
                at.push(counter);
                tokens.push(drawn(&kept, seed, counter).0 as f64);
            }
            call(t, p, &at, tokens);
        }
    }
    let single = Tensor::from_f32(vec![3], &[0.0, 1.0, -1.0]).unwrap();
    calls.push(("one", vec![single, float(0.0), float(1.0), int(Elem::I64, 0), int(Elem::I64, 0)]));
    want.push(vec![1.0]);
    assert_eq!(results(&calls), want);
}

/// `keep_top` leaves what `keep_top_p` leaves of what `keep_top_k` leaves; of all scores where both keep all.
#[test]
fn the_best_of_the_best_stay() {
    let mut random = Random::new(35);
    let mut calls: Vec<(&str, Vec<Tensor>)> = Vec::new();
    let mut want: Vec<Vec<f64>> = Vec::new();
    for width in [1, 7, 60] {
        let x = scores(&mut random, width);
        for k in [-3, 2, 5, i64::from(i32::MAX)] {
            for p in [0.0, 0.52, 0.91, 1.0] {
                let mut p = p;
                let best = |row: &[f64]| only(row, &order(row)[..k.clamp(1, width as i64) as usize]);
                let all = |p: f64| x.chunks(width).map(|row| nucleus(&best(row), p)).collect::<Vec<_>>();
                // Not where a rounding decides.
                while p > 0.01 && p < 1.0 && all(p).iter().any(|(_, margin)| *margin < 1e-5) {
                    p += 3e-5;
                }
                let p = f64::from(p as f32);
                calls.push(("kept", vec![rows(width, &x), int(Elem::I32, k), float(p)]));
                want.push(all(p).into_iter().flat_map(|(kept, _)| kept).collect());
            }
        }
    }
    assert_eq!(results(&calls), want);
}

/// At temperature 0 the best; above it one that the filtered probabilities draw; of one that is kept, that one.
#[test]
fn the_next_token_is_drawn_from_what_is_kept() {
    let mut random = Random::new(36);
    let mut calls: Vec<(&str, Vec<Tensor>)> = Vec::new();
    let mut want: Vec<Vec<f64>> = Vec::new();
    let seed = -5;
    for width in [1, 7, 150] {
        let x = scores(&mut random, width);
        let best: Vec<f64> = x.chunks(width).map(|row| order(row)[0] as f64).collect();
        let mut call = |t: f64, k: i64, p: f64, at: &[i64], tokens: Vec<f64>| {
            let args =
                [rows(width, &x), float(t), int(Elem::I32, k), float(p), int(Elem::I64, seed), ints(Elem::I64, at)];
            calls.push(("next", args.to_vec()));
            want.push(tokens);
        };
        let any: Vec<i64> = (7..7 + best.len() as i64).collect();
        for (t, k, p) in
            [(0.0, 9, 1.0), (-1.0, 9, 0.5), (f64::NAN, 9, 0.5), (1.0, 1, 1.0), (2.0, 0, 1.0), (1.0, 9, 0.0)]
        {
            call(t, k, p, &any, best.clone());
        }
        for (t, k, p) in [(1.0, 1000, 1.0), (0.5, 3, 1.0), (1.75, 5, 0.613), (0.9, 1000, 0.871)] {
            let (t, p) = (f64::from(t as f32), f64::from(p as f32));
            let (mut at, mut tokens) = (Vec::new(), Vec::new());
            for row in x.chunks(width) {
                let tempered: Vec<f64> = row.iter().map(|x| x / t).collect();
                let (kept, margin) = nucleus(&only(&tempered, &order(&tempered)[..k.min(width as i64) as usize]), p);
                assert!(margin > 1e-5, "{margin}");
                let sure = |counter: &i64| drawn(&kept, seed, *counter).1 > 1e-6;
                let counter = (at.len() as i64 * 50..).find(sure).unwrap();
                at.push(counter);
                tokens.push(drawn(&kept, seed, counter).0 as f64);
            }
            call(t, k, p, &at, tokens);
        }
    }
    // No token where a score is no number; the other rows have theirs.
    let odd = [1.0, f64::NAN, 0.0, 2.0];
    for t in [0.0, 1.0] {
        let args =
            [rows(2, &odd), float(t), int(Elem::I32, 1), float(1.0), int(Elem::I64, 0), ints(Elem::I64, &[0, 1])];
        calls.push(("next", args.to_vec()));
        want.push(vec![-1.0, 1.0]);
    }
    assert_eq!(results(&calls), want);
}

/// All scores -inf, NaN, or infinite: some token of those that there are, at any temperature.
#[test]
fn there_is_a_token_whatever_the_scores_are() {
    let odd = [-INF, -INF, -INF, f64::NAN, 1.0, f64::NAN, INF, 0.0, INF, f64::NAN, f64::NAN, f64::NAN];
    let mut calls = Vec::new();
    for t in [0.0, 1.0, 1e-40, INF, f64::NAN] {
        for p in [0.0, 0.5, 1.0, f64::NAN] {
            let at = ints(Elem::I64, &[i64::MIN, -1, 0, i64::MAX]);
            calls.push(("chosen", vec![rows(3, &odd), float(t), float(p), int(Elem::I64, -7), at]));
        }
    }
    for tokens in results(&calls) {
        assert!(tokens.iter().all(|token| (0.0..3.0).contains(token)), "{tokens:?}");
        assert_eq!(tokens[0], 0.0);
    }
}

/// An infinite score is certain, and several are equally so; at an infinite temperature all are that are not -inf.
#[test]
fn infinite_scores_and_temperatures() {
    let rows_of = [vec![1.0, INF, 0.0, -INF], vec![INF, 0.0, INF, -1.0], vec![-INF, 3.0, -INF, 900.0]];
    let all: Vec<f64> = rows_of.concat();
    let counters: Vec<i64> = (0..3).collect();
    let drawn = |t: f64, round: i64| {
        let at: Vec<i64> = counters.iter().map(|c| c + 3 * round).collect();
        let args =
            vec![rows(4, &all), float(t), int(Elem::I32, 4), float(1.0), int(Elem::I64, 5), ints(Elem::I64, &at)];
        ("next", args)
    };
    let mut calls: Vec<(&str, Vec<Tensor>)> = (0..40).map(|round| drawn(1.0, round)).collect();
    calls.extend((0..40).map(|round| drawn(INF, round)));
    let tokens = results(&calls);
    let of = |calls: std::ops::Range<usize>, row: usize| -> BTreeSet<i64> {
        tokens[calls].iter().map(|tokens| tokens[row] as i64).collect()
    };
    assert_eq!([of(0..40, 0), of(0..40, 1), of(0..40, 2)], [[1].into(), [0, 2].into(), [3].into()]);
    assert_eq!([of(40..80, 0), of(40..80, 1), of(40..80, 2)], [[1].into(), [0, 2].into(), [1, 3].into()]);
}

/// No tokens to choose from is an error of the call.
#[test]
fn no_scores_are_an_error_of_the_call() {
    let none = Tensor::from_f32(vec![0], &[]).unwrap();
    let args = [none, float(1.0), float(1.0), int(Elem::I64, 0), int(Elem::I64, 0)];
    let e = program().call("one", &args).unwrap_err();
    assert!(e.contains("1 <= V"), "{e}");
}
