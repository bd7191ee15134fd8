//! Do operations on bits, divisions of integers and random numbers give what Rust's own integers and the known answers of the generator
//! say, wherever a program runs?

use crate::{compiled, everywhere, front};

use attnc::shape::Elem;
use attnc::tensor::Tensor;
use everywhere::Everywhere;

fn program(body: &str) -> Everywhere {
    Everywhere::of(&format!("use std.random\nmodel M {{\n    pub fn f{body}\n}}\n"), &[])
}

fn ints(elem: Elem, values: &[i64]) -> Tensor {
    Tensor::from_ints(elem, vec![values.len()], values).unwrap()
}

/// `x * 2^y` and `x / 2^y` rounded down, for any `y`, as numbers of so many bits.
fn shifted(x: i64, y: i64, bits: u32) -> [i64; 2] {
    let wide = i128::from(x);
    let far = !(0..i64::from(bits)).contains(&y);
    let left = if far { 0 } else { wide << y };
    let right = if far { if x < 0 { -1 } else { 0 } } else { wide >> y };
    let wrap = |n: i128| match bits {
        8 => i64::from(n as i8),
        32 => i64::from(n as i32),
        _ => n as i64,
    };
    [wrap(left), wrap(right)]
}

#[test]
fn bits_of_integers() {
    for (elem, bits) in [(Elem::I8, 8), (Elem::I32, 32), (Elem::I64, 64)] {
        let (low, high) = if bits == 64 { (i64::MIN, i64::MAX) } else { (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) };
        let numbers = [0, 1, -1, 2, 5, -6, 77, -100, low, high, low + 1, high - 1];
        let counts = [0, 1, 2, 7, 8, 9, 31, 32, 33, 63, 64, 100, -1, -5, low, high];
        let pairs: Vec<(i64, i64)> = numbers.iter().flat_map(|x| numbers.iter().map(move |y| (*x, *y))).collect();
        let shifts: Vec<(i64, i64)> = numbers.iter().flat_map(|x| counts.iter().map(move |y| (*x, *y))).collect();
        let program = program(&format!(
            "(x: {elem}[N], y: {elem}[N], u: {elem}[K], v: {elem}[K]) -> ({elem}[N], {elem}[N], {elem}[N], {elem}[K], {elem}[K], {elem}[N], {elem}[N], {elem}[K]) {{\n        \
             (bitwise_and(x, y), bitwise_or(x, y), bitwise_xor(x, y), left_shift(u, v), right_shift(u, v), x / y, x % y, right_shift(u, 3) + left_shift(u, 1))\n    }}"
        ));
        let column = |pairs: &[(i64, i64)], second: bool| {
            ints(elem, &pairs.iter().map(|(x, y)| if second { *y } else { *x }).collect::<Vec<i64>>())
        };
        let args = [column(&pairs, false), column(&pairs, true), column(&shifts, false), column(&shifts, true)];
        let got: Vec<Vec<i64>> = program.call("f", &args).unwrap().iter().map(Tensor::to_i64).collect();
        let each = |f: &dyn Fn(i64, i64) -> i64| pairs.iter().map(|(x, y)| f(*x, *y)).collect::<Vec<i64>>();
        assert_eq!(got[0], each(&|x, y| x & y));
        assert_eq!(got[1], each(&|x, y| x | y));
        assert_eq!(got[2], each(&|x, y| x ^ y));
        for side in [0, 1] {
            let want: Vec<i64> = shifts.iter().map(|(x, y)| shifted(*x, *y, bits)[side]).collect();
            assert_eq!(got[3 + side], want, "{elem} {side}");
        }
        // Rounded down, the remainder with the divisor's sign; by zero both are 0, and the least by -1 wraps.
        let wrap = |n: i128| shifted(n as i64, 0, bits)[0];
        let floor = |x: i64, y: i64| {
            let (x, y) = (i128::from(x), i128::from(y));
            x.div_euclid(y) - i128::from(y < 0 && x.rem_euclid(y) != 0)
        };
        let quotient = |x: i64, y: i64| if y == 0 { 0 } else { wrap(floor(x, y)) };
        assert_eq!(got[5], each(&quotient));
        let rest = |x: i64, y: i64| if y == 0 { 0 } else { (i128::from(x) - floor(x, y) * i128::from(y)) as i64 };
        assert_eq!(got[6], each(&rest));
        let both = |x: i64| shifted(shifted(x, 3, bits)[1].wrapping_add(shifted(x, 1, bits)[0]), 0, bits)[0];
        assert_eq!(got[7], shifts.iter().map(|(x, _)| both(*x)).collect::<Vec<i64>>());
    }
}

/// The known answers of Random123 for ten rounds: counter, key, block.
const KNOWN: [([i64; 4], [i64; 2], [i64; 4]); 3] = [
    ([0; 4], [0; 2], [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]),
    ([0xffff_ffff; 4], [0xffff_ffff; 2], [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]),
    (
        [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344],
        [0xa409_3822, 0x299f_31d0],
        [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1],
    ),
];

#[test]
fn philox_gives_its_known_answers() {
    let i64s = "i64[N]";
    let program = program(&format!(
        "(a: {i64s}, b: {i64s}, c: {i64s}, d: {i64s}, j: {i64s}, k: {i64s}) -> ({i64s}, {i64s}, {i64s}, {i64s}) {{\n        \
         random.philox(a, b, c, d, j, k)\n    }}"
    ));
    let word = |i: usize| KNOWN.iter().map(move |(counter, key, _)| if i < 4 { counter[i] } else { key[i - 4] });
    let args: Vec<Tensor> = (0..6).map(|i| ints(Elem::I64, &word(i).collect::<Vec<i64>>())).collect();
    let got = program.call("f", &args).unwrap();
    for (i, words) in got.iter().enumerate() {
        assert_eq!(words.to_i64(), KNOWN.map(|(_, _, block)| block[i]), "word {i}");
    }
}

/// The first word of the block of a counter, as the paper has it.
pub(crate) fn first_word(seed: i64, counter: i64) -> u32 {
    let halves = |n: i64| [n as u32, (n >> 32) as u32];
    let ([a, b], mut key) = (halves(counter), halves(seed));
    let mut block = [a, b, 0, 0];
    for _ in 0..10 {
        let p = u64::from(block[0]) * 0xd251_1f53;
        let q = u64::from(block[2]) * 0xcd9e_8d57;
        let high = |n: u64| (n >> 32) as u32;
        block = [high(q) ^ block[1] ^ key[0], q as u32, high(p) ^ block[3] ^ key[1], p as u32];
        key = [key[0].wrapping_add(0x9e37_79b9), key[1].wrapping_add(0xbb67_ae85)];
    }
    block[0]
}

#[test]
fn random_numbers_of_a_seed_and_a_counter() {
    let program = program(
        "(seed: i64, at: i64[N]) -> (i32[N], f32[N], f32[], f32[2, 3]) {\n        let grid = rearrange(cast<i64>(iota(2)), \"i -> i 1\") * 3 + cast<i64>(iota(3))\n        \
         (random.bits(seed, at), random.uniform(seed, at), random.uniform(seed, 7), random.uniform(seed, grid))\n    }",
    );
    let unit = |word: u32| f64::from(word >> 8) / 16_777_216.0;
    let at = [0, 1, 2, 1 << 32, -1, i64::MIN, i64::MAX, 123_456_789_012];
    for seed in [0, 1, -1, 0x0123_4567_89ab_cdef] {
        let scalar = Tensor::from_ints(Elem::I64, Vec::new(), &[seed]).unwrap();
        let got = program.call("f", &[scalar, ints(Elem::I64, &at)]).unwrap();
        assert_eq!(got[0].to_i64(), at.map(|n| i64::from(first_word(seed, n).cast_signed())));
        assert_eq!(got[1].to_f64(), at.map(|n| unit(first_word(seed, n))));
        assert_eq!(got[2].to_f64(), [unit(first_word(seed, 7))]);
        assert_eq!(got[3].to_f64(), [0, 1, 2, 3, 4, 5].map(|n| unit(first_word(seed, n))));
    }
}

/// Numbers of many counters fill the unit interval evenly: chi-square over 64 parts, with 63 degrees of freedom.
#[test]
fn uniform_numbers_are_uniform() {
    let source = "use std.random\nmodel M {\n    pub fn f(seed: i64, n: f32[N]) -> f32[N] { random.uniform(seed, cast<i64>(iota(N))) + n }\n}\n";
    let module = front::module("m.attn", source, &Default::default()).unwrap();
    let module = compiled::optimised(module, &Default::default());
    let folder = tempfile::tempdir().unwrap();
    let model = compiled::load_at(compiled::levels()[0], &module, &Default::default(), folder.path());
    let mut session = model.session().unwrap();
    let n = 64_000;
    for seed in [3, 4] {
        let args = [
            Tensor::from_ints(Elem::I64, Vec::new(), &[seed]).unwrap(),
            Tensor::from_f32(vec![n], &vec![0.0; n]).unwrap(),
        ];
        let got = session.call(model.entry("f").unwrap(), &args).unwrap()[0].to_f64();
        let mut parts = [0_u32; 64];
        got.iter().for_each(|x| parts[(x * 64.0) as usize] += 1);
        let expected = n as f64 / 64.0;
        let chi: f64 = parts.iter().map(|k| (f64::from(*k) - expected).powi(2) / expected).sum();
        // 99.9 % of such sums are below 103.4, and 99.9 % above 33.
        assert!((33.0..103.4).contains(&chi), "{chi}");
    }
}
