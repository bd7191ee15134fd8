//! What each operation gives in each type, where that is exact: every operation of a program rounds to its type whatever it is
//! fused with, integers wrap and divide as the reference says. One model with an entry point for each formula, at every
//! level of processors that runs here.

use std::collections::BTreeMap;

use attnc::shape::Elem;
use attnc::tensor::Tensor;

use super::{compiled, interpreted, module, optimised};

const NAN: f64 = f64::NAN;
const INF: f64 = f64::INFINITY;

/// A type, a formula of `x` in it, a row of elements, and the row that is to come out.
type Case = (&'static str, &'static str, Vec<f64>, Vec<f64>);

fn cases() -> Vec<Case> {
    let min = f64::from(i32::MIN);
    let mut cases: Vec<Case> = vec![
        // Sums, products, literals and results round, though what follows would not show it.
        ("bf16", "(x + 1) - x", vec![256.0, 258.0, 1.0], vec![0.0, 2.0, 1.0]),
        ("bf16", "x - 257", vec![256.0, 258.0], vec![0.0, 2.0]),
        ("bf16", "x * 1.001", vec![256.0, 1.0], vec![256.0, 1.0]),
        ("bf16", "(x / 3) * 4 - x", vec![1.0, 3.0], vec![0.335_937_5, 1.0]),
        ("bf16", "where(x > 0, x, 257) - 256", vec![-1.0, 256.0], vec![0.0, 0.0]),
        ("bf16", "sum(x, axis = -1, keep = true) - x", vec![256.0, 1.0], vec![0.0, 255.0]),
        ("bf16", "mean(x, axis = -1, keep = true) - x", vec![257.0 * 2.0, 0.0], vec![-256.0, 256.0]),
        ("f16", "(x + 1) - x", vec![2048.0, 2050.0, 1.0], vec![0.0, 2.0, 1.0]),
        ("f16", "x - 2049", vec![2048.0, 2050.0], vec![0.0, 2.0]),
        ("f16", "(x * 2) / 2", vec![40_000.0, 30_000.0, -40_000.0], vec![INF, 30_000.0, -INF]),
        ("f16", "x / 1024", vec![0.0625, 6e-5 * 1.01, 0.0], vec![2f64.powi(-14), 2f64.powi(-24), 0.0]),
        ("f16", "sum(x, axis = -1, keep = true) - x", vec![2048.0, 1.0], vec![0.0, 2047.0]),
        // Casts, of numbers between two others, next to the last one and beyond it.
        (
            "f32",
            "cast<f32>(cast<bf16>(x))",
            vec![1.0 + 1.0 / 256.0, 1.0 + 3.0 / 256.0, -1.0 - 1.01 / 256.0, 3.4e38, NAN, -INF, 1e-40],
            vec![1.0, 1.015625, -1.0 - 2.0 / 256.0, INF, NAN, -INF, f64::from(f32::from_bits(0x0001_0000))],
        ),
        (
            "f32",
            "cast<f32>(cast<f16>(x))",
            vec![1.0 + 1.0 / 2048.0, 1.0 + 3.0 / 2048.0, 65519.0, 65520.0, -1e9, NAN, INF, 6e-8, 2e-8, 3e-5, -6.1e-5],
            vec![
                1.0,
                1.0 + 4.0 / 2048.0,
                65504.0,
                INF,
                -INF,
                NAN,
                INF,
                2f64.powi(-24),
                0.0,
                503.0 * 2f64.powi(-24),
                -1023.0 * 2f64.powi(-24),
            ],
        ),
        (
            "f32",
            "cast<f32>(cast<i8>(x))",
            vec![300.0, -300.0, NAN, INF, -INF, 3.7, -3.7, 127.5, -128.9],
            vec![127.0, -128.0, 0.0, 127.0, -128.0, 3.0, -3.0, 127.0, -128.0],
        ),
        (
            "f32",
            "cast<f32>(cast<i32>(x))",
            vec![3e9, -3e9, NAN, INF, -INF, 3.7, -3.7],
            vec![2f64.powi(31), min, 0.0, 2f64.powi(31), min, 3.0, -3.0],
        ),
        ("f32", "cast<f32>(cast<bool>(x))", vec![0.0, -0.0, NAN, 1e-40, -2.0], vec![0.0, 0.0, 1.0, 1.0, 1.0]),
        // Comparisons, with NaN and of equals.
        ("f32", "cast<f32>(x != 1)", vec![NAN, 1.0, 2.0, -INF], vec![1.0, 0.0, 1.0, 1.0]),
        ("f32", "cast<f32>(x == 1)", vec![NAN, 1.0, 2.0], vec![0.0, 1.0, 0.0]),
        ("f32", "cast<f32>(x < 1)", vec![NAN, 1.0, 0.5, -INF], vec![0.0, 0.0, 1.0, 1.0]),
        ("f32", "cast<f32>(x <= 1)", vec![NAN, 1.0, 0.5, 2.0], vec![0.0, 1.0, 1.0, 0.0]),
        ("f32", "cast<f32>(x > 1)", vec![NAN, 1.0, 1.5], vec![0.0, 0.0, 1.0]),
        ("f32", "cast<f32>(x >= 1)", vec![NAN, 1.0, 0.5], vec![0.0, 1.0, 0.0]),
        ("f32", "cast<f32>(not (x < 1))", vec![NAN, 1.0, 0.5], vec![1.0, 1.0, 0.0]),
        ("i32", "cast<i32>((x > 0) == (x > 1))", vec![0.0, 1.0, 2.0], vec![1.0, 0.0, 1.0]),
        ("i32", "cast<i32>((x > 0) != (x > 1))", vec![0.0, 1.0, 2.0], vec![0.0, 1.0, 0.0]),
        // Maxima and minima lose no NaN on either side.
        ("f32", "maximum(x, 1)", vec![NAN, 0.0, 2.0], vec![NAN, 1.0, 2.0]),
        ("f32", "maximum(1, x)", vec![NAN, 0.0, 2.0], vec![NAN, 1.0, 2.0]),
        ("f32", "minimum(x, 1)", vec![NAN, 0.0, 2.0], vec![NAN, 0.0, 1.0]),
        ("f32", "minimum(1, x)", vec![NAN, 0.0, 2.0], vec![NAN, 0.0, 1.0]),
        ("f32", "relu(x)", vec![NAN, -1.0, 2.0, -INF], vec![NAN, 0.0, 2.0, 0.0]),
        ("f32", "max(x, axis = -1, keep = true) + x * 0", vec![1.0, 3.0, 2.0], vec![3.0, 3.0, 3.0]),
        ("f32", "min(x, axis = -1, keep = true) + x * 0", vec![-1.0, -3.0, -2.0], vec![-3.0, -3.0, -3.0]),
        ("f32", "max(x, axis = -1, keep = true) + x * 0", vec![-1.0, -3.0, -2.0], vec![-1.0, -1.0, -1.0]),
        ("f32", "max(x, axis = -1, keep = true)", vec![1.0, NAN, 2.0], vec![NAN]),
        ("f32", "min(x, axis = -1, keep = true)", vec![1.0, 2.0, NAN], vec![NAN]),
        ("f32", "cast<f32>(argmax(x, axis = -1, keep = true))", vec![1.0, 3.0, 3.0, 2.0, 3.0], vec![1.0]),
        // Integers.
        ("i8", "x + x", vec![100.0, -100.0, 3.0], vec![-56.0, 56.0, 6.0]),
        ("i8", "x * x", vec![16.0, 12.0, -11.0], vec![0.0, -112.0, 121.0]),
        ("i8", "-x", vec![-128.0, 127.0], vec![-128.0, -127.0]),
        ("i8", "abs(x) / 2", vec![-128.0, -7.0], vec![-64.0, 3.0]),
        ("i8", "(x + x) / 2", vec![100.0, 50.0], vec![-28.0, 50.0]),
        ("i32", "x / 2", vec![-7.0, 7.0, -8.0], vec![-4.0, 3.0, -4.0]),
        ("i32", "x / -2", vec![-7.0, 7.0, -8.0], vec![3.0, -4.0, 4.0]),
        ("i32", "x / -1", vec![-7.0, 7.0, 0.0], vec![7.0, -7.0, 0.0]),
        ("i32", "x / (x - x)", vec![-7.0, 7.0], vec![0.0, 0.0]),
        ("i32", "x % 3", vec![-7.0, 7.0, -6.0], vec![2.0, 1.0, 0.0]),
        ("i32", "x % -3", vec![-7.0, 7.0, 6.0], vec![-1.0, -2.0, 0.0]),
        ("i32", "x % (x - x)", vec![-7.0, 7.0], vec![0.0, 0.0]),
        ("i32", "pow(x, 5)", vec![3.0, -2.0, 0.0], vec![243.0, -32.0, 0.0]),
        ("i32", "pow(2, x)", vec![10.0, 0.0, -1.0], vec![1024.0, 1.0, 1.0]),
        ("i32", "x * x", vec![65_536.0, -3.0], vec![0.0, 9.0]),
        ("i32", "sum(x, axis = -1, keep = true)", vec![1.0, -5.0, 7.0], vec![3.0]),
        ("i32", "max(x, axis = -1, keep = true)", vec![-9.0, -5.0, -7.0], vec![-5.0]),
        ("i32", "min(x, axis = -1, keep = true)", vec![9.0, 5.0, 7.0], vec![5.0]),
    ];
    let functions: [Case; 11] = [
        ("f32", "floor(x)", vec![-1.5, 1.5, -0.0, INF], vec![-2.0, 1.0, -0.0, INF]),
        ("f32", "abs(x)", vec![-1.5, NAN, -INF], vec![1.5, NAN, INF]),
        ("f32", "rsqrt(x)", vec![4.0, 0.0, -1.0], vec![0.5, INF, NAN]),
        ("f32", "sqrt(x)", vec![4.0, 0.0, -1.0], vec![2.0, 0.0, NAN]),
        ("f32", "exp(x)", vec![0.0, -INF, INF], vec![1.0, 0.0, INF]),
        ("f32", "log(x)", vec![1.0, 0.0, -1.0, INF], vec![0.0, -INF, NAN, INF]),
        ("f32", "silu(x)", vec![0.0, -INF, INF], vec![0.0, 0.0, INF]),
        ("f32", "gelu(x)", vec![0.0, -INF, INF], vec![0.0, 0.0, INF]),
        ("f32", "tanh(x)", vec![0.0, -INF, INF], vec![0.0, -1.0, 1.0]),
        ("f32", "sigmoid(x)", vec![0.0, -INF, INF], vec![0.5, 0.0, 1.0]),
        ("f32", "erf(x)", vec![0.0, -INF, INF], vec![0.0, -1.0, 1.0]),
    ];
    cases.extend(functions);
    cases
}

fn source(cases: &[Case]) -> String {
    let mut source = String::from("model M {\n");
    for (n, (ty, text, x, y)) in cases.iter().enumerate() {
        let (w, v) = (x.len(), y.len());
        source += &format!("    pub fn case{n}(x: f32[S, {w}]) -> f32[S, {v}] {{\n");
        if *ty != "f32" {
            source += &format!("        let x = cast<{ty}>(x)\n");
        }
        source += &format!("        cast<f32>({text})\n    }}\n");
    }
    source + "}\n"
}

/// So many rows, all the same: full vectors, and some left over.
const ROWS: usize = 19;

#[test]
fn every_operation_rounds_to_its_type() {
    let cases = cases();
    let source = source(&cases);
    let written = module(&source);
    let none = BTreeMap::new();
    let mut wrong = Vec::new();
    let mut check = |who: &str, n: usize, got: &Tensor| {
        let (ty, text, x, want) = &cases[n];
        assert_eq!(got.shape(), [ROWS, want.len()], "{text}");
        for (i, g) in got.to_f64().iter().enumerate() {
            let want = want[i % want.len()];
            if *g != want && !(g.is_nan() && want.is_nan()) {
                wrong.push(format!("{who}: {text} of {x:?} in {ty}: element {i} is {g}, not {want}"));
                break;
            }
        }
    };
    let given = |n: usize| {
        let row = &cases[n].2;
        let values: Vec<f64> = (0..ROWS).flat_map(|_| row.iter().copied()).collect();
        Tensor::from_floats(Elem::F32, vec![ROWS, row.len()], &values).unwrap()
    };
    for n in 0..cases.len() {
        check("interpreter", n, &interpreted(&written, &format!("case{n}"), &[given(n)], &none));
    }
    let module = optimised(&source);
    let folder = tempfile::tempdir().unwrap();
    for level in compiled::levels() {
        let model = compiled::load_at(level, &module, &none, folder.path());
        let mut session = model.session().unwrap();
        for n in 0..cases.len() {
            let got = session.call(model.entry(&format!("case{n}")).unwrap(), &[given(n)]).unwrap();
            check(&level.name(), n, &got[0]);
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Products round to their type before anything is done with them; so do weights and biases.
#[test]
fn products_round_to_their_type() {
    let source = "model M {
    w: bf16[2, 33]
    h: f16[2, 33]
    n: i8[2, 33]
    pub fn packed(x: f32[S, 2]) -> f32[S, 33] { cast<f32>(cast<bf16>(x) @ w - 256) }
    pub fn given(x: f32[S, 2], y: f32[2, T]) -> f32[S, T] { cast<f32>(cast<bf16>(x) @ cast<bf16>(y) - 256) }
    pub fn half(x: f32[S, 2]) -> f32[S, 33] { cast<f32>(cast<f16>(x) @ h - 2048) }
    pub fn bytes(x: f32[S, 2]) -> f32[S, 33] { cast<f32>(cast<i8>(x) @ n) }
}
";
    let ones = |elem| Tensor::from_floats(elem, vec![2, 33], &[1.0; 66]).unwrap();
    let params = BTreeMap::from([
        ("w".to_string(), ones(Elem::BF16)),
        ("h".to_string(), ones(Elem::F16)),
        ("n".to_string(), Tensor::from_ints(Elem::I8, vec![2, 33], &[100; 66]).unwrap()),
    ]);
    let (written, module) = (module(source), optimised(source));
    let f32s = |shape: Vec<usize>, x: &[f64]| Tensor::from_floats(Elem::F32, shape, x).unwrap();
    let row = |x: [f64; 2], rows: usize| f32s(vec![rows, 2], &x.repeat(rows));
    let folder = tempfile::tempdir().unwrap();
    for rows in [1, 9] {
        for (entry, x, second, want) in [
            ("packed", [256.0, 1.0], false, 0.0),
            ("packed", [256.0, 2.0], false, 2.0),
            ("given", [256.0, 1.0], true, 0.0),
            ("given", [256.0, 3.0], true, 4.0),
            ("half", [2048.0, 1.0], false, 0.0),
            ("half", [65504.0, 65504.0], false, INF),
            ("bytes", [127.0, 127.0], false, 25_400.0),
        ] {
            let mut args = vec![row(x, rows)];
            if second {
                args.push(f32s(vec![2, 5], &[1.0; 10]));
            }
            let check = |who: &str, got: &Tensor| {
                assert!(got.to_f64().iter().all(|g| *g == want), "{who}: {entry} of {x:?}: {:?}", got.to_f64());
            };
            check("interpreter", &interpreted(&written, entry, &args, &params));
            for level in compiled::levels() {
                let model = compiled::load_at(level, &module, &params, folder.path());
                let got = model.session().unwrap().call(model.entry(entry).unwrap(), &args).unwrap();
                check(&level.name(), &got[0]);
            }
        }
    }
}

/// The place of a maximum counts from the row's beginning, whatever the chunks; of equals the first counts.
#[test]
fn maxima_of_long_rows_have_their_places() {
    let source = "model M {
    pub fn of(x: f32[S, T]) -> i32[S] { argmax(x) }
    pub fn known(x: f32[S, 5000]) -> i32[S] { argmax(x) }
}
";
    let module = optimised(source);
    let folder = tempfile::tempdir().unwrap();
    for level in compiled::levels() {
        let model = compiled::load_at(level, &module, &BTreeMap::new(), folder.path());
        let mut session = model.session().unwrap();
        for (highest, place) in
            [(vec![0], 0), (vec![4999], 4999), (vec![700, 3000], 700), (vec![511, 512], 511), (vec![4097, 4100], 4097)]
        {
            let values: Vec<f64> =
                (0..3 * 5000).map(|i| if highest.contains(&(i % 5000)) { -1.0 } else { -2.0 }).collect();
            let x = Tensor::from_floats(Elem::F32, vec![3, 5000], &values).unwrap();
            for entry in ["of", "known"] {
                let got = session.call(model.entry(entry).unwrap(), std::slice::from_ref(&x)).unwrap();
                assert_eq!(got[0].to_i64(), [place; 3], "{entry} at {}", level.name());
            }
        }
    }
}

/// Reductions round to their type too where the length of rows is known when they are called.
#[test]
fn reductions_of_any_length_round_to_their_type() {
    let source = "model M {
    pub fn sum16(x: f32[S, T]) -> f32[S, T] {
        let x = cast<bf16>(x)
        cast<f32>(sum(x, axis = -1, keep = true) - x)
    }
    pub fn mean16(x: f32[S, T]) -> f32[S, T] {
        let x = cast<f16>(x)
        cast<f32>(mean(x, axis = -1, keep = true) - x)
    }
    pub fn columns(x: f32[S, T]) -> f32[T] {
        cast<f32>(sum(cast<bf16>(x), axis = 0) - 256)
    }
    pub fn centred(x: f32[S, T]) -> f32[S, 1] {
        let x = cast<bf16>(x)
        let d = x - mean(x, axis = -1, keep = true)
        cast<f32>(sum(d * d, axis = -1, keep = true))
    }
}
";
    let (written, module) = (module(source), optimised(source));
    let folder = tempfile::tempdir().unwrap();
    for (entry, shape, x, want) in [
        ("sum16", [1, 2], vec![256.0, 1.0], vec![0.0, 255.0]),
        ("sum16", [2, 2], vec![256.0, 2.0, 1.0, 2.0], vec![2.0, 256.0, 2.0, 1.0]),
        // 2049 and 1 add up to 2050; the mean of 2048 and 2050 is 2049, which is not in f16.
        ("mean16", [1, 2], vec![2048.0, 2050.0], vec![0.0, -2.0]),
        ("columns", [2, 3], vec![256.0, 256.0, 1.0, 1.0, 3.0, 2.0], vec![0.0, 4.0, -253.0]),
        // The mean is 257.0, which rounds to 256; the differences are 0 and 2.
        ("centred", [1, 2], vec![256.0, 258.0], vec![4.0]),
    ] {
        let x = [Tensor::from_floats(Elem::F32, shape.to_vec(), &x).unwrap()];
        assert_eq!(interpreted(&written, entry, &x, &BTreeMap::new()).to_f64(), want, "{entry} in the interpreter");
        for level in compiled::levels() {
            let model = compiled::load_at(level, &module, &BTreeMap::new(), folder.path());
            let got = model.session().unwrap().call(model.entry(entry).unwrap(), &x).unwrap();
            assert_eq!(got[0].to_f64(), want, "{entry} at {}", level.name());
        }
    }
}

/// A NaN stays one whatever its bits are: those that rounding would carry into infinity, or into the sign.
#[test]
fn every_nan_is_one_in_smaller_types() {
    let source = "model M {
    pub fn b(x: f32[S]) -> f32[S] { cast<f32>(cast<bf16>(x)) }
    pub fn h(x: f32[S]) -> f32[S] { cast<f32>(cast<f16>(x)) }
    pub fn sum(x: f32[S]) -> f32[S] { cast<f32>(cast<bf16>(x) + 1) }
}
";
    let module = optimised(source);
    let bits = [0x7fff_ffffu32, 0x7f80_0001, 0xffff_ffff, 0xff80_0001, 0x7fc0_0000, 0x7f80_1000];
    let values: Vec<f32> = (0..ROWS).map(|i| f32::from_bits(bits[i % bits.len()])).collect();
    let x = [Tensor::from_f32(vec![ROWS], &values).unwrap()];
    let folder = tempfile::tempdir().unwrap();
    for level in compiled::levels() {
        let model = compiled::load_at(level, &module, &BTreeMap::new(), folder.path());
        let mut session = model.session().unwrap();
        for entry in ["b", "h", "sum"] {
            let got = session.call(model.entry(entry).unwrap(), &x).unwrap();
            assert!(got[0].to_f32().iter().all(|v| v.is_nan()), "{entry} at {}: {:?}", level.name(), got[0].to_f32());
        }
    }
}
