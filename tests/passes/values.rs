//! Cases of passes: what must become of a function, or that it stays, and that it computes the same.
//!
//! In: functions as text, passes by name. A case says which operations must be left, in order; and the interpreter runs the
//! function before and after, for several sizes and data, NaN, infinities, `-0.0` and subnormal numbers among them. After
//! exact passes every bit is the same.

use std::collections::BTreeMap;

use attnc::ir::interp::{Array, Call, Data, Limits, run_tapped};
use attnc::ir::{Module, text, verify};
use attnc::passes::{Float, find_pass};
use attnc::random::Random;
use attnc::shape::{Dim, Elem, TensorType};
use attnc::tensor::Tensor;

use crate::passes::{canonical, run};

/// Values of up to three symbols, in the order of their names.
const SIZES: [[i64; 3]; 6] = [[3, 5, 2], [5, 3, 1], [4, 4, 4], [1, 2, 3], [2, 1, 5], [6, 6, 1]];

/// A function of arguments `%0`, `%1`, ... of these types (apart by ` | `) that returns the last line's value.
pub(crate) fn function(args: &str, result: &str, lines: &str) -> String {
    let args: Vec<String> = args.split(" | ").enumerate().map(|(i, ty)| format!("%{i} \"a{i}\": {ty}")).collect();
    let last = lines.trim_end().rsplit('\n').next().and_then(|l| l.split_once(" = ")).map_or("%0", |(v, _)| v.trim());
    format!("func @f({}) -> ({result}) {{\n^bb0:\n{lines}\n  return {last}\n}}\n", args.join(", "))
}

fn module(text: &str) -> Module {
    match text::parse(text, Default::default()) {
        Ok(parsed) => parsed.module,
        Err(d) => panic!("{text}\n{:?}", d.sorted()),
    }
}

/// A number for an argument or parameter. Wild ones are what arithmetic treats in its own way.
fn number(random: &mut Random, wild: bool) -> f64 {
    if wild && random.chance(35) {
        let all =
            [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 0.0, -0.0, 1e-40, -1e30, 1e38, 1.0, 65504.0, 2f64.powi(-25)];
        return random.pick(&all);
    }
    (random.below(4001) as f64 - 2000.0) / 1000.0
}

fn tensor(random: &mut Random, ty: &TensorType, sizes: &BTreeMap<String, i64>, wild: bool) -> Option<Tensor> {
    let extent = |d: &Dim| d.eval(&|s| sizes.get(s).copied()).ok().and_then(|n| usize::try_from(n).ok());
    let shape = ty.shape.iter().map(extent).collect::<Option<Vec<usize>>>()?;
    let count: usize = shape.iter().product();
    if ty.elem.is_float() {
        let values: Vec<f64> = (0..count).map(|_| number(random, wild)).collect();
        return Tensor::from_floats(ty.elem, shape, &values);
    }
    let values: Vec<i64> = (0..count)
        .map(|_| match ty.elem {
            Elem::Bool => random.below(2) as i64,
            Elem::I8 => random.below(256) as i64 - 128,
            _ if wild && random.chance(30) => random.pick(&[i64::from(i32::MAX), i64::from(i32::MIN), 16_777_217, -1]),
            _ => random.below(4) as i64,
        })
        .collect();
    Tensor::from_ints(ty.elem, shape, &values)
}

type Outcome = Result<Vec<(String, Array<f32>)>, String>;

fn outcome(m: &Module, args: &[Tensor], params: &BTreeMap<String, Tensor>) -> Outcome {
    let verified = verify(m).unwrap_or_else(|e| panic!("{e}"));
    let function = m.functions.first().map_or("", |f| f.name.as_str());
    match run_tapped::<f32>(verified, &Call { function, args, params, limits: Limits::default() }) {
        Err(failure) if failure.internal => panic!("{failure}"),
        Err(failure) => Err(failure.message),
        Ok(out) => {
            let results = out.results.into_iter().enumerate().map(|(i, a)| (format!("result {i}"), a));
            Ok(results.chain(out.taps).collect())
        }
    }
}

/// Are they the same, bit for bit or nearly? All NaN are the same.
fn alike(a: &Array<f32>, b: &Array<f32>, exact: bool) -> bool {
    let near = |x: f32, y: f32| {
        x.to_bits() == y.to_bits()
            || (x.is_nan() && y.is_nan())
            || (!exact && (f64::from(x) - f64::from(y)).abs() <= 2e-5 * (1.0 + f64::from(y).abs()))
    };
    a.shape == b.shape
        && a.elem == b.elem
        && match (&a.data, &b.data) {
            (Data::Float(x), Data::Float(y)) => x.len() == y.len() && x.iter().zip(y).all(|(x, y)| near(*x, *y)),
            (x, y) => x == y,
        }
}

/// The first function of both computes the same.
fn same_values(before: &str, after: &str, exact: bool) {
    let (was, is) = (module(before), module(after));
    let f = was.functions.first().expect("a function");
    let symbols: std::collections::BTreeSet<String> =
        f.args.iter().flat_map(|a| &a.ty.shape).flat_map(Dim::symbols).map(|s| s.to_string()).collect();
    let mut ran = 0;
    for (n, sizes) in SIZES.iter().enumerate() {
        let sizes: BTreeMap<String, i64> = symbols.iter().cloned().zip(sizes.iter().copied()).collect();
        for wild in [false, true].into_iter().filter(|wild| exact || !wild) {
            let mut random = Random::new(n as u64 * 2 + u64::from(wild));
            let args: Option<Vec<Tensor>> = f.args.iter().map(|a| tensor(&mut random, &a.ty, &sizes, wild)).collect();
            let Some(args) = args else { continue };
            let mut params = BTreeMap::new();
            for p in &was.params {
                for i in 0..p.counts.first().copied().unwrap_or(1) {
                    let name = p.name.replace('*', &i.to_string());
                    params.insert(name, tensor(&mut random, &p.ty, &sizes, wild).expect("a parameter"));
                }
            }
            match (outcome(&was, &args, &params), outcome(&is, &args, &params)) {
                (Ok(then), Ok(now)) => {
                    ran += 1;
                    assert_eq!(then.len(), now.len(), "{before}\n{after}");
                    for ((name, a), (other, b)) in then.iter().zip(&now) {
                        let same = name == other && alike(b, a, exact);
                        assert!(same, "{sizes:?} {name}: {b:?}\nwas {a:?}\n{before}\n{after}");
                    }
                }
                (then, now) => assert_eq!(then.err(), now.err(), "{sizes:?}\n{before}\n{after}"),
            }
        }
    }
    assert!(ran > 0, "it runs for no sizes:\n{before}");
}

/// The names of the operations, in order, those of regions in their places.
fn operations(text: &str) -> Vec<&str> {
    let made = text.lines().filter_map(|l| l.trim().strip_prefix('%')?.split_once(" = ").map(|(_, op)| op));
    made.map(|op| op.split([' ', '(']).next().unwrap_or(op)).collect()
}

fn after(list: &str, float: Float, source: &str) -> (String, String, bool) {
    let passes = attnc::passes::parse_pass_list(list).expect("names of passes");
    let exact = float == Float::Strict || list.split(',').all(|name| find_pass(name).is_ok_and(|p| p.exact));
    let before = canonical(source);
    let options = attnc::passes::Options { float, ..Default::default() };
    let (text, _) = run(&before, Some(&passes), &options);
    (before, text, exact)
}

/// The passes leave just these operations, and the function computes the same.
pub(crate) fn becomes(list: &str, float: Float, source: &str, left: &str) {
    let (before, text, exact) = after(list, float, source);
    assert_eq!(operations(&text).join(" "), left, "{list} of\n{before}\nleaves\n{text}");
    same_values(&before, &text, exact);
}

/// The passes leave just these operations; what they compute is another matter.
pub(crate) fn leaves(list: &str, float: Float, source: &str, left: &str) {
    let (before, text, _) = after(list, float, source);
    assert_eq!(operations(&text).join(" "), left, "{list} of\n{before}\nleaves\n{text}");
}

/// The passes leave the function as it is.
pub(crate) fn stays(list: &str, float: Float, source: &str) {
    let (before, text, exact) = after(list, float, source);
    same_values(&before, &text, exact);
    assert_eq!(text, before, "{list}");
}

/// Whatever the passes make of it, the function computes the same.
pub(crate) fn keeps(list: &str, float: Float, source: &str) {
    let (before, text, exact) = after(list, float, source);
    same_values(&before, &text, exact);
}
