//! What is checked and set up on entry, and put right after: where clauses with every comparison, expressions of dimensions,
//! several states, the floating-point mode, reports of kernels. Each of a model made for it.

use attnc::runtime::descriptor::{Check, Comparison, DimText, Entry, ModelDescriptor, PlanCode, Tensor};
use attnc::runtime::expr::Expr;
use attnc::runtime::link;
use attnc::runtime::load::CompiledModel;
use attnc::shape::{Dim, Elem};
use attnc::tensor::Tensor as Host;

use crate::toy;

/// A model of entry points, each with its plan, and of states.
fn model(name: &str, entries: Vec<(Entry, &str)>, states: Vec<Tensor>) -> ModelDescriptor {
    let mut model = toy::bare_descriptor();
    (model.name, model.states) = (name.to_owned(), states);
    for v in &mut model.variants {
        let code = |(_, function): &(Entry, &str)| toy::plan(function, Expr::constant(0));
        v.plans = entries.iter().map(code).collect::<Vec<PlanCode>>();
    }
    model.entries = entries.into_iter().map(|(entry, _)| entry).collect();
    model
}

fn open(model: &ModelDescriptor, threads: i32) -> CompiledModel {
    let so = toy::folder().join(format!("{}.so", model.name));
    link::link(&[&toy::descriptor_object(model), toy::kernels()], &so).expect("a linked model");
    // SAFETY: linked from our own objects.
    unsafe { CompiledModel::open(&so, None, threads) }.expect("a model that opens")
}

/// `same(x: f32[S]) -> f32[S]` with clauses.
fn same(name: &str, checks: Vec<Check>) -> (Entry, &'static str) {
    let x = || vec![toy::tensor("x", Elem::F32, false, &[toy::s()])];
    let mut entry = toy::entry(name, "(x: f32[S]) -> f32[S]", vec![toy::symbol("S", 0, 0)], x(), x());
    entry.checks = checks;
    (entry, "toy_same")
}

fn check(left: Expr, comparison: Comparison, right: Expr) -> Check {
    Check { left, comparison, right, text: "a clause".to_owned(), place: String::new() }
}

fn number(n: i64) -> Expr {
    Expr::constant(n)
}

fn s() -> Expr {
    Expr::symbol(0)
}

#[test]
fn where_clauses_with_every_comparison() {
    use Comparison::{Eq, Ge, Gt, Le, Lt, Ne};
    type Holds = fn(usize) -> bool;
    let all: [(Comparison, Holds); 6] =
        [(Eq, |s| s == 3), (Ne, |s| s != 3), (Lt, |s| s < 3), (Le, |s| s <= 3), (Gt, |s| s > 3), (Ge, |s| s >= 3)];
    let mut entries: Vec<_> = all.iter().map(|(c, _)| same("one", vec![check(s(), *c, number(3))])).collect();
    // The other way round, and as the second of two.
    entries.extend(all.iter().map(|(c, _)| same("turned", vec![check(number(3), *c, s())])));
    entries.extend(all.iter().map(|(c, _)| same("second", vec![check(s(), Ge, number(0)), check(s(), *c, number(3))])));
    for (i, (entry, _)) in entries.iter_mut().enumerate() {
        entry.name += &i.to_string();
    }
    let model = open(&model("Clauses", entries, Vec::new()), 1);
    let mut session = model.session().expect("a session");
    for extent in 0..7usize {
        let x = toy::counting(&[extent]);
        for (i, (comparison, holds)) in all.iter().enumerate() {
            let wanted = [holds(extent), holds_turned(*comparison, extent), holds(extent)];
            for (form, ok) in wanted.into_iter().enumerate() {
                let got = session.call((6 * form + i) as u64, std::slice::from_ref(&x));
                assert_eq!(got.is_ok(), ok, "{comparison:?}, S = {extent}, form {form}: {got:?}");
                assert!(got.is_err() || got.is_ok_and(|y| y[0] == x));
            }
        }
    }
}

/// `3 ? S`
fn holds_turned(comparison: Comparison, s: usize) -> bool {
    match comparison {
        Comparison::Eq => 3 == s,
        Comparison::Ne => 3 != s,
        Comparison::Lt => 3 < s,
        Comparison::Le => 3 <= s,
        Comparison::Gt => 3 > s,
        Comparison::Ge => 3 >= s,
    }
}

/// Symbols that are read off `c * S + k`: no axis may give a negative or a broken one.
#[test]
fn symbols_are_read_off_their_axes() {
    let linear = |scale: i64, offset: i64| {
        let extent = Dim::symbol("S").mul(&Dim::from(scale)).add(&Dim::from(offset));
        let (mut entry, plan) = same(&format!("f{scale}_{offset}"), Vec::new());
        entry.args = vec![toy::tensor("x", Elem::F32, false, &[DimText::canonical(extent)])];
        (entry.symbols[0].scale, entry.symbols[0].offset) = (scale, offset);
        (entry, plan)
    };
    let forms = [(1, 1), (1, -2), (3, 0), (2, 1), (2, -3)];
    let model = model("Axes", forms.iter().map(|(scale, offset)| linear(*scale, *offset)).collect(), Vec::new());
    let model = open(&model, 1);
    let mut session = model.session().expect("a session");
    for extent in 0..8usize {
        for (i, (scale, offset)) in forms.iter().enumerate() {
            let rest = extent as i64 - offset;
            let s = (rest >= 0 && rest % scale == 0).then_some(rest / scale);
            // The result has S elements, of which the argument has as many or the copy would read beyond it.
            if s.is_some_and(|s| s > extent as i64) {
                continue;
            }
            let y = session.call(i as u64, &[toy::counting(&[extent])]);
            let got = y.map(|y| y[0].shape().to_vec()).ok();
            assert_eq!(got, s.map(|s| vec![s as usize]), "{scale}*S + {offset} = {extent}");
        }
    }
    // Also where no result has the symbol.
    let (mut entry, _) = linear(1, 3);
    entry.results = vec![toy::tensor("result", Elem::F32, false, &[])];
    let model = self::model("Unused", vec![(entry, "toy_nothing")], Vec::new());
    let model = open(&model, 1);
    let mut session = model.session().expect("a session");
    let ok: Vec<bool> = (0..6).map(|n| session.call(0, &[toy::counting(&[n])]).is_ok()).collect();
    assert_eq!(ok, [false, false, false, true, true, true]);
    // Leading axes with as many elements, but not the same.
    let toy = toy::open();
    let add = toy.entry("add").expect("an entry point");
    let mut session = toy.session().expect("a session");
    for (a, b, ok) in [([2, 3, 4], [2, 3, 4], true), ([2, 3, 4], [3, 2, 4], false), ([1, 6, 4], [6, 1, 4], false)] {
        assert_eq!(session.call(add, &[toy::counting(&a), toy::counting(&b)]).is_ok(), ok, "{a:?} {b:?}");
    }
}

/// What an expression gives for S = 7; `None` is an error.
#[test]
fn expressions_of_dimensions() {
    let seven = s;
    let large = || number(i64::MAX);
    let cases: Vec<(Expr, Option<i64>)> = vec![
        (seven().plus(number(5)), Some(12)),
        (seven().minus(number(9)), Some(-2)),
        (number(9).minus(seven()), Some(2)),
        (seven().times(number(-3)), Some(-21)),
        (seven().div_exact(number(7)), Some(1)),
        (seven().div_exact(number(2)), None),
        (seven().div_exact(number(-7)), Some(-1)),
        (seven().div_floor(number(2)), Some(3)),
        (seven().div_floor(number(-2)), Some(-4)),
        (number(-7).div_floor(number(2)), Some(-4)),
        (number(-8).div_floor(number(2)), Some(-4)),
        (number(-7).div_floor(number(-2)), Some(3)),
        (seven().div_floor(number(0)), None),
        (seven().modulo(number(4)), Some(3)),
        (seven().modulo(number(-4)), Some(-1)),
        (number(-7).modulo(number(4)), Some(1)),
        (number(-8).modulo(number(4)), Some(0)),
        (seven().modulo(number(0)), None),
        (seven().min(number(3)), Some(3)),
        (seven().min(number(8)), Some(7)),
        (seven().max(number(3)), Some(7)),
        (seven().max(number(8)), Some(8)),
        (seven().round_up(64), Some(64)),
        (number(64).round_up(64), Some(64)),
        (number(65).round_up(64), Some(128)),
        (seven().plus(large()), None),
        (number(-2).minus(large()), None),
        (seven().times(large()), None),
        (large().plus(number(0)), Some(i64::MAX)),
        (seven().plus(number(1)).times(seven().minus(number(4))), Some(24)),
    ];
    let mut entries = Vec::new();
    for (i, (e, value)) in cases.iter().enumerate() {
        // An error has no other code.
        let other = if value.is_some() { Comparison::Eq } else { Comparison::Ne };
        let right = value.unwrap_or(0);
        let both = [(Comparison::Eq, right), (other, if value.is_some() { right.wrapping_sub(1) } else { 0 })];
        for (j, (comparison, right)) in both.into_iter().enumerate() {
            entries.push(same(&format!("e{i}_{j}"), vec![check(e.clone(), comparison, number(right))]));
        }
    }
    let model = open(&model("Expressions", entries, Vec::new()), 1);
    let mut session = model.session().expect("a session");
    let x = [toy::counting(&[7])];
    for (i, (e, value)) in cases.iter().enumerate() {
        let equal = session.call(2 * i as u64, &x).is_ok();
        let less = session.call(2 * i as u64 + 1, &x).is_ok();
        assert_eq!((equal, less), (value.is_some(), false), "{e:?}");
    }
}

/// Results whose extents follow from the arguments': negative, in halves, too large.
#[test]
fn extents_of_results() {
    let symbol = || Dim::symbol("S");
    let two = Dim::from(2);
    let results = [
        symbol().sub(&two),
        symbol().div(&two).expect("no zero"),
        symbol().mul(&two).sub(&symbol()),
        symbol().mul(&Dim::from(1 << 60)).mul(&symbol()),
    ];
    let entries = results.iter().enumerate().map(|(i, d)| {
        let (mut entry, plan) = same(&format!("r{i}"), Vec::new());
        entry.results = vec![toy::tensor("result", Elem::F32, false, &[DimText::canonical(d.clone())])];
        (entry, if i == 2 { plan } else { "toy_nothing" })
    });
    let model = open(&model("Extents", entries.collect(), Vec::new()), 1);
    let mut session = model.session().expect("a session");
    let mut shape = |entry: u64, s: usize| {
        session.call(entry, &[toy::counting(&[s])]).map(|y| y[0].shape().to_vec()).map_err(|_| ())
    };
    assert_eq!([shape(0, 1), shape(0, 2), shape(0, 5)], [Err(()), Ok(vec![0]), Ok(vec![3])]);
    let negative = model.session().expect("a session").call(0, &[toy::counting(&[1])]).expect_err("a negative extent");
    assert!(negative.text.contains("-1"), "{negative}");
    assert_eq!([shape(1, 3), shape(1, 4), shape(1, 0)], [Err(()), Ok(vec![2]), Ok(vec![0])]);
    assert_eq!([shape(2, 3), shape(2, 0)], [Ok(vec![3]), Ok(vec![0])]);
    assert_eq!([shape(3, 3), shape(3, 4), shape(3, 0)], [Err(()), Err(()), Ok(vec![0])]);
}

/// Sizes that wrap in 64 bits are too large, not small.
#[test]
fn sizes_of_results() {
    let shapes = [vec![Dim::from(1 << 62)], vec![Dim::from(1 << 61)], vec![Dim::from(1 << 40), Dim::from(1 << 40)]];
    let entries = shapes.iter().enumerate().map(|(i, more)| {
        let (mut entry, _) = same(&format!("z{i}"), Vec::new());
        let dims: Vec<DimText> =
            std::iter::once(Dim::symbol("S")).chain(more.clone()).map(DimText::canonical).collect();
        entry.results = vec![toy::tensor("result", Elem::F32, false, &dims)];
        (entry, "toy_nothing")
    });
    let model = open(&model("Sizes", entries.collect(), Vec::new()), 1);
    let mut session = model.session().expect("a session");
    for entry in 0..3 {
        for rows in [1usize, 2, 4, 8] {
            let e = session.call(entry, &[toy::counting(&[rows])]).expect_err("too large").text;
            assert!(e.contains("too large") || (rows == 1 && entry == 1), "{entry} {rows}: {e}");
        }
        assert!(session.call(entry, &[toy::counting(&[0])]).is_ok());
    }
}

#[test]
fn every_state_begins_and_is_set_to_zero() {
    let sizes = [(Elem::I32, 2), (Elem::I64, 3), (Elem::I32, 5)];
    let states = sizes.iter().enumerate().map(|(i, (elem, n))| {
        let extent = toy::dim(&n.to_string(), Dim::from(*n));
        toy::tensor(&format!("state{i}"), *elem, false, &[extent])
    });
    let result = vec![toy::tensor("result", Elem::I64, false, &[toy::dim("3", Dim::from(3))])];
    let entry = toy::entry("count", "() -> i64[3]", vec![], vec![], result);
    let model = open(&model("States", vec![(entry, "toy_states")], states.collect()), 1);
    // The next session's states may be in memory that was used and freed before.
    for _ in 0..4 {
        let (mut a, mut b) = (model.session().expect("a session"), model.session().expect("a session"));
        let next = |s: &mut attnc::runtime::load::Session<'_>| s.call(0, &[]).expect("sums")[0].to_i64();
        assert_eq!(next(&mut a), [2, 3, 5]);
        assert_eq!(next(&mut a), [4, 6, 10]);
        assert_eq!(next(&mut b), [2, 3, 5]);
        a.reset().expect("a reset");
        assert_eq!(next(&mut a), [2, 3, 5]);
        assert_eq!(next(&mut b), [4, 6, 10]);
        a.reset().expect("a reset");
        a.reset().expect("a reset");
        assert_eq!(next(&mut a), [2, 3, 5]);
    }
}

/// Which patterns mean which taps: the whole name, a star for any run of characters, a question mark for one.
#[test]
fn patterns_of_taps() {
    let model = toy::open();
    let mut session = model.session().expect("a session");
    let x = [toy::counting(&[1, 4])];
    let all = &["h.0.partial", "h.1.partial", "h.2.partial"][..];
    for (pattern, names) in [
        ("*partial", all),
        ("*.partial", all),
        ("h*l", all),
        ("h.*rt*l", all),
        ("*a*a*", all),
        ("*.1.*", &all[1..2]),
        ("?.2.partial", &all[2..]),
        ("h.?.p?rt??l", all),
        ("**", all),
        ("h.0.partial*", &all[..1]),
        ("h", &[]),
        ("h.0", &[]),
        ("h.0.partia", &[]),
        ("h.0.partial?", &[]),
        ("*partia", &[]),
        ("partial", &[]),
        (".*", &[]),
        ("h.??.partial", &[]),
        ("", &[]),
    ] {
        let got = session.call_with_taps(0, &x, &[pattern]);
        let found: Vec<String> =
            got.map(|(_, taps)| taps.into_iter().map(|(name, _)| name).collect()).unwrap_or_default();
        assert_eq!(found, names, "{pattern}");
    }
}

/// A call with taps has the memory that its own plan asks for, which may be more or less than without.
#[test]
fn memory_of_calls_with_taps() {
    let (mut entry, _) = same("tapped", Vec::new());
    entry.taps.push(attnc::runtime::descriptor::Tap {
        pattern: "t".to_owned(),
        extents: vec![],
        elem: Elem::F32,
        batch: false,
        dims: vec![toy::s()],
        stacked: 0,
        cost: String::new(),
    });
    let mut model = model("Arena", vec![(entry, "toy_same")], Vec::new());
    for v in &mut model.variants {
        v.plans[0].tapped = Some("toy_arena".to_owned());
        v.plans[0].tapped_arena = s().times(number(1 << 20));
    }
    let model = open(&model, 1);
    for rows in [64, 3] {
        let mut session = model.session().expect("a session");
        let x = [toy::counting(&[rows])];
        assert_eq!(session.call(0, &x).expect("a copy")[0], x[0]);
        let (y, taps) = session.call_with_taps(0, &x, &["t"]).expect("a tap");
        assert_eq!((&y[0], &taps[0].1), (&x[0], &x[0]));
    }
}

#[cfg(target_arch = "x86_64")]
fn mode() -> u32 {
    let mut word = 0u32;
    // SAFETY: the word is writable.
    unsafe { std::arch::asm!("stmxcsr [{0}]", in(reg) &mut word, options(nostack)) };
    word
}

#[cfg(target_arch = "x86_64")]
fn set_mode(word: u32) {
    // SAFETY: a readable word, of which no bit is reserved.
    unsafe { std::arch::asm!("ldmxcsr [{0}]", in(reg) &word, options(nostack)) };
}

/// Whatever the caller's mode is, a model computes in its own, on every thread, and the caller has its own again after.
#[cfg(target_arch = "x86_64")]
#[test]
fn the_floating_point_mode_is_the_models_own_and_then_the_callers() {
    const DEFAULT: u32 = 0x1f80;
    let names = ["x", "y"];
    let args = names.iter().map(|n| toy::tensor(n, Elem::F32, false, &[toy::s()])).collect();
    let result = vec![toy::tensor("result", Elem::F32, false, &[toy::s()])];
    let product = toy::entry("product", "(x: f32[S], y: f32[S]) -> f32[S]", vec![toy::symbol("S", 0, 0)], args, result);
    let failing = same("fails", vec![check(s(), Comparison::Lt, number(0))]);
    let model = model("Modes", vec![(product, "toy_product"), failing], Vec::new());
    // A subnormal product, a subnormal operand, and products between two floats.
    let some =
        [(1e-20f32, 1e-20f32), (1e-40, 2.0), (1.000_000_1, 1.000_000_1), (-1.000_000_1, 1.000_000_1), (0.1, 0.3)];
    let count = 4000;
    let pick = |first: bool| {
        let values: Vec<f32> = some.iter().cycle().take(count).map(|(a, b)| if first { *a } else { *b }).collect();
        Host::from_f32(vec![count], &values).expect("a tensor")
    };
    let args = [pick(true), pick(false)];
    let expected: Vec<u32> = some.iter().cycle().take(count).map(|(a, b)| (a * b).to_bits()).collect();
    for threads in [1, 3] {
        let model = open(&model, threads);
        let mut session = model.session().expect("a session");
        // Flush to zero, subnormals are zero, both, rounding down, up, towards zero.
        for bits in [0u32, 0x8000, 0x0040, 0x8040, 0x2000, 0x4000, 0x6000] {
            set_mode(DEFAULT | bits);
            let got = session.call(0, &args);
            let after = mode();
            let failed = session.call(1, &args[..1]);
            let after_failure = mode();
            set_mode(DEFAULT);
            let control = |word: u32| word & !0x3f;
            assert_eq!((control(after), control(after_failure)), (DEFAULT | bits, DEFAULT | bits), "{bits:#x}");
            assert!(failed.is_err());
            let got: Vec<u32> = got.expect("products")[0].to_f32().iter().map(|x| x.to_bits()).collect();
            assert!(got == expected, "{bits:#x}, {threads} threads");
        }
    }
}

/// The report of the lowest point is the call's error, and no kernel runs after it.
#[test]
fn the_first_report_ends_the_call() {
    let (mut entry, _) = same("fails", Vec::new());
    entry.results = vec![toy::tensor("result", Elem::I32, false, &[])];
    let states = vec![toy::tensor("count", Elem::I32, false, &[])];
    let mut model = model("Reports", vec![(entry, "toy_failing")], states);
    model.sites = vec!["at {0}, then {1} and {2}".to_owned()];
    for threads in [1, 2, 4] {
        let model = open(&model, threads);
        let mut session = model.session().expect("a session");
        for _ in 0..20 {
            let e = session.call(0, &[toy::counting(&[50_000])]).expect_err("a report");
            assert!(e.text.ends_with("at 7, then 20 and 30"), "{e}");
        }
        // Without a report the second kernel counts.
        assert_eq!(session.call(0, &[toy::counting(&[5])]).expect("no report")[0].to_i64(), [0]);
        assert_eq!(session.call(0, &[toy::counting(&[3])]).expect("no report")[0].to_i64(), [5]);
    }
}

/// Truth values of a weights file are 0 or 1 inside, wherever they lie.
#[test]
fn truth_values_of_weights() {
    let four = || toy::dim("4", Dim::from(4));
    let result = vec![toy::tensor("result", Elem::I32, false, &[four()])];
    let mut model =
        model("Truths", vec![(toy::entry("truths", "() -> i32[4]", vec![], vec![], result), "toy_truths")], Vec::new());
    let mut p = toy::param("p", &[], &[four()]);
    p.elem = Elem::Bool;
    model.params = vec![p];
    let so = toy::folder().join("truths.so");
    link::link(&[&toy::descriptor_object(&model), toy::kernels()], &so).expect("a linked model");
    let header = "{\"p\":{\"dtype\":\"BOOL\",\"shape\":[4],\"data_offsets\":[0,4]}}";
    for (bytes, truths) in [([0, 1, 1, 0], [0, 1, 1, 0]), ([0, 2, 255, 1], [0, 1, 1, 1])] {
        let path = toy::folder().join("truths.safetensors");
        std::fs::write(&path, toy::safetensors(header, &bytes)).expect("a file");
        // SAFETY: linked from our own objects.
        let model = unsafe { CompiledModel::open(&so, Some(&path), 1) }.expect("a model that opens");
        assert_eq!(model.session().expect("a session").call(0, &[]).expect("bytes")[0].to_i64(), truths);
    }
}
