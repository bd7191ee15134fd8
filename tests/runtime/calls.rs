//! Calls through the Rust loader: results, taps, states, and the errors of tensors that do not fit.

use std::sync::atomic::AtomicBool;

use attnc::shape::Elem;
use attnc::tensor::Tensor;

use crate::toy;

fn call(entry: &str, args: &[Tensor]) -> Result<Vec<Tensor>, String> {
    let model = toy::open();
    let index = model.entry(entry).expect("an entry point");
    model.session().expect("a session").call(index, args).map_err(|e| e.text)
}

fn f32s(t: &Tensor) -> Vec<f32> {
    assert_eq!(t.elem(), Elem::F32);
    t.to_f32()
}

#[test]
fn leading_axes_of_any_number_come_back() {
    for shape in [&[3, 4][..], &[2, 3, 4], &[2, 1, 3, 4], &[0, 3, 4], &[2, 0, 4], &[1, 1, 1, 1, 1, 4]] {
        let x = toy::counting(shape);
        let y = call("scale", std::slice::from_ref(&x)).expect("a result");
        assert_eq!(y[0].shape(), shape);
        assert_eq!(f32s(&y[0]), toy::scaled(&f32s(&x)).0, "{shape:?}");
    }
}

#[test]
fn leading_axes_are_the_same_in_all_arguments() {
    for shape in [&[4][..], &[2, 4], &[3, 2, 4], &[3, 0, 4]] {
        let x = toy::counting(shape);
        let y = call("add", &[x.clone(), x.clone()]).expect("a sum");
        assert_eq!(y[0].shape(), shape);
        assert_eq!(f32s(&y[0]), f32s(&x).iter().map(|v| v * 2.0).collect::<Vec<_>>());
    }
    // As many rows, but not the same.
    let e = call("add", &[toy::counting(&[2, 3, 4]), toy::counting(&[6, 4])]).expect_err("an error");
    assert_eq!(e, "add: `..` is [2, 3] in `x` and [6] in `y`: the leading axes must be the same");
    let e = call("add", &[toy::counting(&[3, 4]), toy::counting(&[4])]).expect_err("an error");
    assert_eq!(e, "add: `..` is [3] in `x` and [] in `y`: the leading axes must be the same");
}

#[test]
fn a_model_without_parameters_needs_no_weights() {
    let so = toy::folder().join("bare.so");
    attnc::runtime::link::link(&[&toy::descriptor_object(&toy::bare_descriptor()), toy::kernels()], &so).unwrap();
    for (weights, unused) in [(None, 0), (Some(toy::weights()), 5)] {
        // SAFETY: linked from our own objects.
        let model = unsafe { attnc::runtime::load::CompiledModel::open(&so, weights, 1) }.unwrap();
        assert_eq!(model.unused_weights().len(), unused);
        let x = toy::counting(&[4]);
        assert_eq!(f32s(&model.session().unwrap().call(0, &[x.clone(), x]).unwrap()[0]), [0.0, 2.0, 4.0, 6.0]);
    }
}

#[test]
fn taps_come_under_their_own_paths() {
    let model = toy::open();
    let mut session = model.session().expect("a session");
    let x = toy::counting(&[2, 3, 4]);
    let (want, partial) = toy::scaled(&f32s(&x));
    for (globs, members) in [
        (&["h.*.partial"][..], &[0, 1, 2][..]),
        (&["*"], &[0, 1, 2]),
        (&["h.1.*"], &[1]),
        (&["h.2.partial", "h.0.partial", "h.?.partial"], &[0, 1, 2]),
        (&["h.2.partial"], &[2]),
        (&[], &[]),
    ] {
        let (y, taps) = session.call_with_taps(0, std::slice::from_ref(&x), globs).expect("a result");
        assert_eq!(f32s(&y[0]), want);
        let names: Vec<&str> = taps.iter().map(|(n, _)| n.as_str()).collect();
        assert_eq!(names, members.iter().map(|i| format!("h.{i}.partial")).collect::<Vec<_>>());
        assert_eq!(session.written(), names.iter().map(|n| ((*n).to_owned(), 1)).collect::<Vec<_>>());
        for ((_, t), i) in taps.iter().zip(members) {
            assert_eq!(t.shape(), [2, 3, 4]);
            assert_eq!(f32s(t), partial[*i]);
        }
    }
    let e = session.call_with_taps(0, &[x], &["h.9.partial"]).expect_err("no such tap");
    assert_eq!(e.text, "scale has no tap `h.9.partial`; its taps are h.*.partial");
    let e =
        session.call_with_taps(1, &[Tensor::from_ints(Elem::I32, vec![0], &[]).unwrap()], &["x"]).expect_err("no taps");
    assert_eq!(e.text, "gather has no taps, but `x` was requested");
}

#[test]
fn indices_are_checked_where_they_are_used() {
    let tokens = |t: &[i64]| Tensor::from_ints(Elem::I32, vec![t.len()], t).unwrap();
    let y = call("gather", &[tokens(&[4, 0])]).expect("rows");
    assert_eq!(f32s(&y[0]), [416.0, 417.0, 418.0, 419.0, 400.0, 401.0, 402.0, 403.0]);
    for (bad, at, value) in
        [(&[0, 5][..], 1, 5), (&[-1], 0, -1), (&[1, 2, i64::from(i32::MIN)], 2, i64::from(i32::MIN))]
    {
        let e = call("gather", &[tokens(bad)]).expect_err("out of range");
        assert_eq!(e, format!("gather: index out of range: tokens holds {value} at {at}, and table has 5 rows (V)"));
    }
}

#[test]
fn integers_come_as_either_width() {
    let y = call("gather", &[Tensor::from_ints(Elem::I64, vec![2], &[1, 2]).unwrap()]).expect("rows");
    assert_eq!(f32s(&y[0])[..2], [404.0, 405.0]);
    let e = call("gather", &[Tensor::from_ints(Elem::I64, vec![2], &[1, 1 << 32]).unwrap()]).expect_err("too large");
    assert_eq!(e, "gather: argument `tokens`: element 1 is 4294967296, which is not an i32");
}

#[test]
fn several_results_and_conditions() {
    let y = call("pair", &[toy::counting(&[3]), toy::counting(&[7])]).expect("three results");
    assert_eq!(f32s(&y[0]), [0.0, 2.0, 4.0]);
    assert_eq!((y[1].shape(), y[1].to_i64()), (&[4][..], vec![0, 1, 2, 3]));
    assert_eq!((y[2].shape(), y[2].bytes()), (&[][..], &[0][..]));
    let y = call("pair", &[toy::counting(&[0]), toy::counting(&[1])]).expect("empty axes");
    assert_eq!((y[0].bytes().len(), y[2].bytes()[0]), (0, 1));
    let errors = [
        call("pair", &[toy::counting(&[3]), toy::counting(&[6])]),
        call("pair", &[toy::counting(&[2]), toy::counting(&[7])]),
        call("pair", &[toy::counting(&[101]), toy::counting(&[203])]),
        call("pair", &[toy::counting(&[3])]),
        call("pair", &[toy::counting(&[3, 1]), toy::counting(&[7])]),
        call("pair", &[Tensor::from_ints(Elem::I32, vec![1], &[1]).unwrap(), toy::counting(&[3])]),
        call("scale", &[toy::counting(&[2, 3])]),
        call("scale", &[toy::counting(&[4])]),
    ];
    let texts: Vec<String> = errors.into_iter().map(|e| e.expect_err("an error")).collect();
    assert_eq!(
        texts,
        [
            "pair: axis 0 of `y` (2*S + 1) is 6, which is not `2*S + 1` for any S",
            "pair: axis 0 of `x` is 2, expected S, which is 3; S was bound by axis 0 of `y` \
             (found shape [2], expected f32[S])",
            "pair: the arguments must satisfy S <= 100 (toy.attn:3:9); here the sides are 101 and 100",
            "pair has 2 arguments, found 1",
            "pair: argument `x` has 2 axes (shape [3, 1]), expected f32[S]",
            "pair: argument `x`: expected f32, found i32",
            "scale: axis 1 of `x` is 3, expected D, which is 4 (found shape [2, 3], expected f32[.., S, D])",
            "scale: argument `x` has 1 axes (shape [4]), expected f32[.., S, D]",
        ]
    );
}

#[test]
fn every_element_type_goes_through() {
    let t = |elem, bytes: &[u8]| Tensor::new(elem, vec![2], bytes.to_vec()).unwrap();
    let args = [
        t(Elem::BF16, &[1, 2, 3, 4]),
        t(Elem::F16, &[5, 6, 7, 8]),
        t(Elem::I8, &[9, 255]),
        t(Elem::I64, &[1, 0, 0, 0, 0, 0, 0, 0, 255, 255, 255, 255, 255, 255, 255, 255]),
        t(Elem::Bool, &[1, 0]),
    ];
    assert_eq!(call("copy", &args).expect("copies"), args);
    // An i32 becomes an i64.
    let mut odd = args.clone();
    odd[3] = Tensor::from_ints(Elem::I32, vec![2], &[-1, i64::from(i32::MAX)]).unwrap();
    let y = call("copy", &odd).expect("copies");
    assert_eq!(y[3].to_i64(), [-1, i64::from(i32::MAX)]);
}

#[test]
fn states_belong_to_sessions() {
    let model = toy::open();
    let count = model.entry("count").unwrap();
    let (mut a, mut b) = (model.session().unwrap(), model.session().unwrap());
    let next = |s: &mut attnc::runtime::load::Session<'_>| s.call(count, &[]).unwrap()[0].to_i64()[0];
    assert_eq!((next(&mut a), next(&mut a), next(&mut b), next(&mut a)), (1, 2, 1, 3));
    a.reset().unwrap();
    assert_eq!((next(&mut a), next(&mut b)), (1, 2));
}

/// A call that its arguments refuse changes nothing. One that fails later loses the states that it sets, whatever failed: the
/// session says so until it is reset.
#[test]
fn states_are_lost_where_a_call_fails_that_sets_them() {
    static STOP: AtomicBool = AtomicBool::new(true);
    let model = toy::open();
    let (mut session, mut other) = (model.session().unwrap(), model.session().unwrap());
    let mut call = |name: &str, args: &[Tensor]| {
        let result = session.call(model.entry(name).unwrap(), args);
        result.map(|y| y[0].to_f64().first().copied().unwrap_or_default()).map_err(|e| (e.status, e.text))
    };
    let tokens = |n: i64| Tensor::from_ints(Elem::I32, vec![1], &[n]).unwrap();
    let one = Tensor::from_ints(Elem::I64, vec![], &[1]).unwrap();
    assert_eq!(call("count", &[]), Ok(1.0));
    assert_eq!(call("remember", std::slice::from_ref(&one)).unwrap_err().0, 2);
    assert_eq!(call("gather", &[tokens(9)]).unwrap_err().0, 6);
    assert_eq!(call("count", &[]), Ok(2.0));
    assert_eq!(call("remember", &[tokens(9)]).unwrap_err().0, 6);
    for (name, args) in [("count", vec![]), ("remember", vec![tokens(1)]), ("gather", vec![tokens(1)])] {
        let why = "the states of this session were lost when a call of `remember` failed: reset the session";
        assert_eq!(call(name, &args), Err((12, format!("{name}: {why}"))));
    }
    // What is no call of the entry point brings nothing back.
    assert_eq!(call("remember", std::slice::from_ref(&one)).unwrap_err().0, 2);
    assert_eq!(call("count", &[]).unwrap_err().0, 12);
    assert_eq!(other.call(model.entry("count").unwrap(), &[]).unwrap()[0].to_i64(), [1]);
    session.reset().unwrap();
    let count = model.entry("count").unwrap();
    assert_eq!(session.call(count, &[]).unwrap()[0].to_i64(), [1]);
    session.end_when(&STOP).unwrap();
    let many = Tensor::from_ints(Elem::I64, vec![], &[300]).unwrap();
    assert_eq!(session.call(model.entry("wait").unwrap(), std::slice::from_ref(&many)).unwrap_err().status, 9);
    assert_eq!(session.call(count, &[]).unwrap()[0].to_i64(), [2]);
    assert_eq!(session.call(model.entry("linger").unwrap(), &[many]).unwrap_err().status, 9);
    assert_eq!(session.call(count, &[]).unwrap_err().status, 12);
}

#[test]
fn weights_are_packed_once() {
    let y = call("packed", &[]).expect("the packed value");
    assert_eq!(f32s(&y[0]), [(400..420).sum::<i32>() as f32]);
}

#[test]
fn many_sessions_at_once() {
    let model = toy::open();
    std::thread::scope(|scope| {
        for t in 0..8 {
            let model = &model;
            scope.spawn(move || {
                let mut session = model.session().expect("a session");
                for i in 0..200 {
                    let x = toy::counting(&[t + 1, i % 5, 4]);
                    let y = session.call(0, std::slice::from_ref(&x)).expect("a result");
                    assert_eq!(f32s(&y[0]), toy::scaled(&f32s(&x)).0);
                    let bad = session.call(0, &[toy::counting(&[t + 1])]).expect_err("an error");
                    assert!(bad.text.contains(&format!("shape [{}]", t + 1)), "{}", bad.text);
                }
            });
        }
    });
}

#[test]
fn the_number_of_threads_changes_nothing() {
    let x = toy::counting(&[300, 100, 4]);
    let expected = toy::scaled(&f32s(&x)).0;
    let mut tokens: Vec<i64> = (0..50_000).map(|i| i % 5).collect();
    for i in [49_999, 31_000, 12_345, 20_000] {
        tokens[i] = 5 + i as i64;
    }
    let tokens = Tensor::from_ints(Elem::I32, vec![tokens.len()], &tokens).unwrap();
    for threads in [1, 2, 3, 8, 0] {
        let model = toy::open_with(threads);
        std::thread::scope(|scope| {
            // Two sessions: the pool is for one launch at a time.
            for _ in 0..2 {
                scope.spawn(|| {
                    let mut session = model.session().unwrap();
                    for _ in 0..20 {
                        assert!(f32s(&session.call(0, std::slice::from_ref(&x)).unwrap()[0]) == expected, "{threads}");
                        let e = session.call(1, std::slice::from_ref(&tokens)).unwrap_err();
                        assert!(e.text.contains("tokens holds 12350 at 12345"), "{threads}: {e}");
                    }
                });
            }
        });
    }
}

#[test]
fn threads_end_with_the_model() {
    let count = || std::fs::read_dir("/proc/self/task").map_or(0, |d| d.count());
    let before = count();
    for _ in 0..20 {
        drop(toy::open_with(8));
    }
    // Other tests run at the same time, and have threads of their own.
    assert!(count() < before + 100);
}

/// Launches are timed where somebody asks, in the order of the call.
#[test]
fn launches_are_timed_for_those_who_ask() {
    let model = toy::open_with(2);
    let mut session = model.session().unwrap();
    let x = toy::counting(&[30, 5, 4]);
    session.call(0, std::slice::from_ref(&x)).unwrap();
    assert_eq!(session.launches(), []);
    session.profile(true).unwrap();
    let args = [x];
    let mut repeated = session.repeat(0, &args).unwrap();
    for _ in 0..3 {
        repeated.call().unwrap();
        let launches = repeated.launches();
        assert_eq!(launches.iter().map(|l| l.0).collect::<Vec<_>>(), [150]);
        assert!(launches.iter().all(|l| l.1 > 0), "{launches:?}");
    }
    drop(repeated);
    session.profile(false).unwrap();
    session.call(0, &args).unwrap();
    assert_eq!(session.launches(), []);
}

#[test]
fn the_so_tells_what_it_is() {
    let model = toy::open();
    insta::with_settings!({
        snapshot_path => concat!(env!("CARGO_MANIFEST_DIR"), "/snapshots/runtime"),
        prepend_module_to_snapshot => false,
    }, {
        insta::assert_snapshot!("info", model.info());
    });
    assert_eq!(
        model.entries(),
        ["scale", "gather", "pair", "copy", "count", "packed", "add", "wait", "remember", "linger"]
    );
    assert_eq!(model.variant(), "portable");
    assert_eq!(model.arguments(2), ["x", "y"]);
    assert_eq!(model.signature(1), "gather(tokens: i32[S]) -> f32[S, D]");
    assert!(model.unused_weights().is_empty());
    assert_eq!(
        model.entry("forward").unwrap_err().text,
        "no entry point `forward`; the entry points are scale, gather, pair, copy, count, packed, add, wait, remember, linger"
    );
    // It can be read without loading the library.
    let bytes = std::fs::read(toy::so()).unwrap();
    let text = model.info();
    assert!(bytes.windows(text.len()).any(|w| w == text.as_bytes()));
}
