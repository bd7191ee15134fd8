//! The elementary functions against `f64`, to the bounds that they state, for every kind of
//! machine; their text form; and which operation is which of them.

use std::collections::BTreeSet;

use super::expand::{expand, expanded};
use super::{Features, Function, Op, Type, interp, library, text, verify};
use crate::random::Random;
use crate::scalar::{BinaryOp, UnaryOp};

/// Every kind of machine that a function can be for.
const MACHINES: [Features; 4] =
    [Features::PLAIN, Features { fma: true, round: false, scale: false }, Features::AVX2, Features::AVX512];

/// Special cases: zeros, ones, infinities, NaN, integers and their neighbours, and limits of
/// ranges.
const EDGES: [f32; 30] = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.999_999_94,
    1.000_000_1,
    -0.999_999_94,
    -1.000_000_1,
    0.5,
    -0.5,
    1.5,
    -1.5,
    2.0,
    -2.0,
    3.0,
    -3.0,
    f32::INFINITY,
    f32::NEG_INFINITY,
    f32::NAN,
    1e-45,
    -1e-45,
    1e-40,
    f32::MIN_POSITIVE,
    f32::MAX,
    f32::MIN,
    8_388_609.0,
    -8_388_609.0,
    16_777_216.0,
    -16_777_217.0,
    1e10,
];

/// Every this many floats, so that all exponents and both signs are met, a dense range, and the
/// special ones.
fn samples() -> Vec<f32> {
    let mut xs: Vec<f32> = (0..=u32::MAX).step_by(40_009).map(f32::from_bits).collect();
    xs.extend((0..50_000).map(|i| (i as f32 - 25_000.0) * 4e-4));
    xs.extend(EDGES);
    xs
}

/// Pairs: all of the edges, floats of any bits, near ones, subnormal ones, and such that `x^y` is
/// neither 0 nor infinite.
fn pairs() -> (Vec<f32>, Vec<f32>) {
    let mut all: Vec<(f32, f32)> = EDGES.iter().flat_map(|x| EDGES.map(|y| (*x, y))).collect();
    let mut r = Random::new(7);
    for _ in 0..6_000 {
        let [a, b] = [(); 2].map(|()| u32::try_from(r.word() >> 32).expect("32 bits"));
        let x = f32::from_bits(a);
        all.push((x, f32::from_bits(b)));
        all.push((x, f32::from_bits(a.wrapping_sub(b % (1 << 26)))));
        all.push((x, f32::from_bits(b & 0x80ff_ffff)));
        let exponent = f64::from(b) / f64::from(u32::MAX) * 276.0 - 149.0;
        let near_one = 1.0 + ((a % 1_900_001) as f32 - 950_000.0) * 1e-6 * 0.5f32.powi((a >> 27).cast_signed());
        for base in [x.abs(), near_one] {
            all.push((base, (exponent / f64::from(base).log2()) as f32));
        }
        all.push((x, (b % 17) as f32 * 0.5 - 4.0));
    }
    all.into_iter().unzip()
}

/// The functions of floats.
pub(crate) fn of_floats() -> impl Iterator<Item = &'static str> {
    let is_float = |f: &Function| f.result_type == Type::F32;
    library::names().filter(move |name| library::version(name, Features::PLAIN).is_ok_and(is_float))
}

/// Arguments for a function of floats: many for each of its parameters.
pub(crate) fn arguments(f: &Function) -> Vec<Vec<f32>> {
    match f.params.len() {
        // The longest functions are computed less often.
        1 if matches!(f.name.as_str(), "sin" | "cos") => vec![samples().into_iter().step_by(3).collect()],
        1 => vec![samples()],
        _ => {
            let (xs, ys) = pairs();
            vec![xs, ys]
        }
    }
}

/// The `f64` reference of a library function.
pub(crate) fn exactly(name: &str, args: &[f32]) -> f64 {
    match (UnaryOp::from_name(name), BinaryOp::from_name(name), args) {
        (Some(op), _, [x]) => op.eval_f64(f64::from(*x)),
        (_, Some(op), [x, y]) => op.eval_f64(f64::from(*x), f64::from(*y)),
        _ => panic!("@{name} is not named after an operation on {} numbers", args.len()),
    }
}

/// Interprets a function on one lane.
pub(crate) fn said(f: &Function, args: &[f32]) -> f32 {
    let bits: Vec<u32> = args.iter().map(|x| x.to_bits()).collect();
    f32::from_bits(interp::eval(f, &bits).expect("a function that is expanded"))
}

#[test]
fn errors_are_within_their_bounds() {
    for name in of_floats() {
        let given = arguments(library::version(name, Features::PLAIN).unwrap_or_else(|e| panic!("{e}")));
        let lanes: Vec<Vec<f32>> = (0..given[0].len()).map(|i| given.iter().map(|xs| xs[i]).collect()).collect();
        let want: Vec<f64> = lanes.iter().map(|args| exactly(name, args)).collect();
        for features in MACHINES {
            let f = &expand(name, features).unwrap_or_else(|e| panic!("{e}")).function;
            let bound = f.bound.unwrap_or_else(|| panic!("@{name} states no error"));
            let errors = lanes.iter().zip(&want).map(|(args, want)| (bound.excess(said(f, args), *want), args));
            let worst = errors.reduce(|a, b| if b.0 > a.0 || b.0.is_nan() { b } else { a });
            let (worst, at) = worst.expect("an argument");
            println!("{name} ({}): {worst:.2} of its bound, at {at:?}", features.names().join(", "));
            assert!(worst <= 1.0, "{name} ({}): {worst} times its bound at {at:?}", features.names().join(", "));
        }
    }
}

/// Quotients and remainders of integers are exact, at the ends of their range, by 0, and where
/// floats say too much or too little.
#[test]
fn integers_are_divided_exactly() {
    let mut xs = vec![0, 1, 2, 3, 7, 10, 4095, 4096, 4097, 65_535, 65_536, 16_777_215, 16_777_216, 16_777_217];
    xs.extend([1 << 30, (1 << 30) + 1, i32::MAX - 129, i32::MAX - 63, i32::MAX - 1, i32::MAX]);
    xs.extend(xs.clone().into_iter().map(|x: i32| x.wrapping_neg()));
    xs.extend([i32::MIN, i32::MIN + 1, i32::MIN + 64]);
    let mut pairs: Vec<(i32, i32)> = xs.iter().flat_map(|x| xs.iter().map(|y| (*x, *y))).collect();
    let mut r = Random::new(3);
    for _ in 0..30_000 {
        let word = r.word();
        let [x, y] = [word >> 32, word & 0xffff_ffff].map(|n| (n as u32).cast_signed());
        let small = y >> r.below(31);
        // Just below, at and above a multiple.
        let multiple = small.wrapping_mul((x >> 8) / small.checked_abs().unwrap_or(1).max(1));
        pairs.extend([(x, y), (x, small), (multiple, small), (multiple.wrapping_sub(1), small), (multiple + 1, small)]);
    }
    for (name, op) in [("idiv", BinaryOp::Div), ("irem", BinaryOp::Rem)] {
        for features in [Features::PLAIN, Features::AVX512] {
            let f = &expand(name, features).unwrap_or_else(|e| panic!("{e}")).function;
            for (x, y) in &pairs {
                let got = interp::eval(f, &[x.cast_unsigned(), y.cast_unsigned()]).expect("a function");
                let want = op.eval_int(i64::from(*x), i64::from(*y)) as i32;
                assert_eq!(got.cast_signed(), want, "{name} of {x} and {y}");
            }
        }
    }
}

/// Every file is the function of an operation on numbers.
#[test]
fn every_operation_is_an_instruction_or_a_function() {
    let mut files: Vec<&str> = UnaryOp::ALL.iter().filter_map(|op| library::unary(*op)).collect();
    for ty in [Type::F32, Type::I32] {
        files.extend(BinaryOp::ALL.iter().filter_map(|op| library::binary(*op, ty)));
    }
    files.sort_unstable();
    assert_eq!(files, library::names().collect::<Vec<_>>());
}

/// A text that is wrong makes the test fail, not the code slower: every file reads, and every
/// function of it is there for every machine, made once.
#[test]
fn every_function_is_there_for_every_machine() {
    for name in library::names() {
        let all = library::file(name).unwrap_or_else(|e| panic!("{e}"));
        assert!(all.iter().all(|f| f.name == name || f.name.starts_with(&format!("{name}."))), "{name}.vec");
        for features in MACHINES {
            let once = expanded(name, features).unwrap_or_else(|e| panic!("{e}"));
            assert!(std::ptr::eq(once, expanded(name, features).expect("the same")));
            assert_eq!(once.function.requires, features);
            for f in all {
                library::version(&f.name, features).unwrap_or_else(|e| panic!("{e}"));
            }
        }
    }
    let numbers: Vec<usize> = MACHINES.iter().map(|f| f.number()).collect();
    assert_eq!(numbers, [0, 1, 3, 7]);
}

#[test]
fn what_is_printed_reads_back() {
    for name in library::names() {
        for f in library::file(name).expect("a text that is right") {
            let again = text::parse(&text::print(f)).expect("what was printed");
            assert_eq!(again.as_slice(), std::slice::from_ref(f));
        }
        for features in MACHINES {
            let made = expand(name, features).expect("a function");
            let f = made.function;
            assert!(f.insts.iter().all(|i| !matches!(i.op, Op::Call(_) | Op::Polynomial(_))));
            assert!(features.fma || f.insts.iter().all(|i| !matches!(i.op, Op::Fma | Op::Fnma)));
            let again = text::parse(&text::print(&f)).expect("what was printed");
            assert_eq!(again.as_slice(), std::slice::from_ref(&f));
            assert_eq!(made.needs.len(), f.insts.len());
            verify(&f).expect("a function that is right");
        }
    }
}

/// Every operation and every kind of clause, in canonical form.
const ALL: &str = include_str!("all.vec");

#[test]
fn every_operation_is_shown_and_reads_back() {
    let functions = text::parse(ALL).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(functions.iter().map(text::print).collect::<Vec<_>>().join("\n"), ALL);
    let words: BTreeSet<&str> = ALL.split_whitespace().collect();
    for row in Op::table() {
        assert!(words.contains(row.name), "`{}` is not in src/vector/all.vec", row.name);
    }
}

/// The rules allow exactly one choice of types for every operation, except those with a declared
/// type.
#[test]
fn operations_have_a_signature() {
    for (name, wanted) in [
        ("fma", Some((vec![Type::F32; 3], Type::F32))),
        ("nearest", Some((vec![Type::F32], Type::I32))),
        ("ilt", Some((vec![Type::I32; 2], Type::Mask))),
        ("iselect", Some((vec![Type::Mask, Type::I32, Type::I32], Type::I32))),
    ] {
        assert_eq!(Op::plain(name).and_then(|op| op.signature()), wanted, "{name}");
    }
    assert_eq!(Op::Polynomial(vec![1.0]).signature(), Some((vec![Type::F32], Type::F32)));
    assert_eq!((Op::Const(0).signature(), Op::Call("f".into()).signature()), (None, None));
    for row in Op::table() {
        assert!(Op::plain(row.name).is_none_or(|op| op.signature().is_some()), "{}", row.name);
    }
}

#[test]
fn what_is_wrong_is_refused() {
    let wrong = [
        ("func @f(%x: f32) -> f32 {\n  return %y\n}\n", "%y is not defined before this line"),
        ("func @f(%x: f32) -> i32 {\n  return %x\n}\n", "%x is f32, and @f gives i32"),
        ("func @f(%x: f32) -> f32 {\n  %y = add %x : f32\n  return %y\n}\n", "add takes 2 operands, has 1"),
        ("func @f(%x: f32) -> f32 {\n  %y = add %x, %x : i32\n  return %x\n}\n", "add gives f32, not i32"),
        ("func @f(%x: f32) -> f32 {\n  %x = add %x, %x : f32\n  return %x\n}\n", "%x is already defined"),
        ("func @f(%x: i32) -> i32 {\n  %y = shl %x, %x : i32\n  return %y\n}\n", "a constant from 0 to 31"),
        ("func @f(%x: i32) -> i32 {\n  %c = const 32 : i32\n  %y = shl %x, %c : i32\n  return %y\n}\n", "0 to 31"),
        ("func @f(%x: f32) -> f32 {\n  %y = frob %x : f32\n  return %y\n}\n", "there is no operation `frob`"),
        ("func @f(%x: f32) -> f32 {\n  %y = polynomial %x, [] : f32\n  return %y\n}\n", "has at least one coefficient"),
        ("func @f(%x: f32) -> f32 requires(speed) {\n  return %x\n}\n", "a feature is"),
        ("func @f(%x: f32) -> f32 {\n}\n", "a function ends with `return`"),
        ("func @f(%x: f64) -> f32 {\n  return %x\n}\n", "a type is"),
        ("^bb0:\n", "a function has no blocks"),
        ("func @f(%x: f32) -> f32 {\n  %y = floor %x : f32\n  return %y\n}\n", "floor needs `requires(round)`"),
        ("func @f(%0: f32) -> f32 {\n  return %0\n}\n", "a parameter's name must not be a number"),
        ("func @f(%x: f32) -> f32 error(-1.0, ulp) {\n  return %x\n}\n", "is not negative"),
        ("func @f(%x: f32) -> f32 error(1.0, ulp) error(2.0, ulp) {\n  return %x\n}\n", "stated twice"),
        ("func @f(%x: f32) -> f32 {\n  %c = const 1e39 : f32\n  return %c\n}\n", "beyond f32"),
    ];
    for (source, message) in wrong {
        let e = text::parse(source).expect_err(source);
        assert!(e.message.contains(message), "{source}: {e}");
    }
    assert!(expand("frob", Features::PLAIN).expect_err("no such function").contains("there is no function @frob"));
}

#[test]
fn scaling_and_fractions_follow_the_instructions() {
    let inf = f32::INFINITY;
    let eval = |op: Op, types: &[Type], args: &[f32]| {
        let params = types.iter().enumerate().map(|(i, ty)| (i.to_string(), *ty)).collect();
        let mut f = Function {
            name: "f".into(),
            params,
            result_type: Type::F32,
            bound: None,
            requires: Features::AVX512,
            insts: Vec::new(),
            result: super::Value::from_index(types.len()),
        };
        f.push(op, (0..types.len()).map(super::Value::from_index).collect(), Type::F32, "y".into());
        let bits: Vec<u32> = args.iter().map(|x| x.to_bits()).collect();
        f32::from_bits(interp::eval(&f, &bits).expect("a function that is right"))
    };
    let scale = |a: f32, b: f32| eval(Op::Scale, &[Type::F32; 2], &[a, b]);
    assert_eq!((scale(1.5, 3.7), scale(1.0, -1.5), scale(1.0, -149.0)), (12.0, 0.25, f32::from_bits(1)));
    assert_eq!((scale(1.0, 128.0), scale(3.0, -inf), scale(-2.0, inf)), (inf, 0.0, -inf));
    assert!(scale(0.0, inf).is_nan() && scale(inf, -inf).is_nan() && scale(f32::NAN, 0.0).is_nan());
    assert_eq!((scale(f32::NAN, inf), scale(f32::NAN, -inf)), (inf, 0.0));
    for a in [0.0, -0.0, 3.0, -3.0] {
        assert_eq!(eval(Op::Fraction, &[Type::F32], &[a]).to_bits(), (-0.0f32).to_bits());
    }
    let fraction = |a: f32| eval(Op::Fraction, &[Type::F32], &[a]);
    assert_eq!(
        (fraction(1.75), fraction(-0.25), fraction(inf), fraction(-1e-40)),
        (0.75, 0.75, 0.0, 1.0 - f32::EPSILON / 2.0)
    );
}
