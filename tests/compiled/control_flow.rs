//! Do `while`, `break`, and `if` as statement and as value compute what plain loops do, in every interpreter and compiled?

use crate::{compiled, everywhere};

use std::sync::atomic::{AtomicBool, Ordering};

use attnc::ir::interp;
use attnc::shape::Elem;
use attnc::tensor::Tensor;
use everywhere::Everywhere;

fn floats(values: &[f32]) -> Tensor {
    Tensor::from_f32(vec![values.len()], values).unwrap()
}

fn int(n: i64) -> Tensor {
    Tensor::from_ints(Elem::I32, Vec::new(), &[n]).unwrap()
}

fn values(given: &everywhere::Given) -> Vec<Vec<f64>> {
    given.as_ref().expect("a result").iter().map(Tensor::to_f64).collect()
}

/// A `while` with a `break` of its own, around a `for` with one of its own.
#[test]
fn loops_end_where_they_say() {
    let program = Everywhere::of(
        "model M {\n    pub fn f(x: f32[S], n: i32) -> (f32[S], i32) {\n        var y = x\n        var i = 0\n        \
         while i < n {\n            i = i + 1\n            if i == 7 { break }\n            y = y * 2\n            \
         for j in 0..3 {\n                if j == 2 { break }\n                y = y + 1\n            }\n        }\n        (y, i)\n    }\n}\n",
        &[],
    );
    for n in [-3, 0, 1, 2, 6, 7, 9] {
        for x in [&[][..], &[1.0], &[1.0, -2.0, 0.5]] {
            let (mut y, mut i) = (x.iter().map(|x| f64::from(*x)).collect::<Vec<f64>>(), 0);
            while i < n {
                i += 1;
                if i == 7 {
                    break;
                }
                for y in &mut y {
                    *y = *y * 2.0 + 2.0;
                }
            }
            assert_eq!(values(&program.call("f", &[floats(x), int(n)])), [y, vec![i as f64]], "{n} {x:?}");
        }
    }
}

/// The greatest common divisor by subtraction: the trip count is known to nobody beforehand. `else if` as a statement and as a
/// value; a way out of the middle of a loop whose condition always holds.
#[test]
fn the_trip_count_may_depend_on_the_data() {
    let program = Everywhere::of(
        "model M {\n    pub fn f(p: i32, q: i32) -> (i32, i32, i32) {\n        var a = p\n        var b = q\n        var steps = 0\n        \
         while true {\n            if a == 0 or b == 0 { break } else if a == b { break } else {\n                \
         if a > b { a = a - b } else { b = b - a }\n                steps = steps + 1\n            }\n        }\n        \
         let size = if a > 10 { 2 } else if a > 2 { 1 } else { 0 }\n        (a, steps, size)\n    }\n}\n",
        &[],
    );
    for (p, q) in [(0, 5), (12, 18), (7, 7), (1, 40), (33, 22)] {
        let (mut a, mut b, mut steps) = (p, q, 0);
        while a != 0 && b != 0 && a != b {
            if a > b {
                a -= b;
            } else {
                b -= a;
            }
            steps += 1;
        }
        let size = if a > 10 { 2.0 } else { f64::from(i32::from(a > 2)) };
        let got = values(&program.call("f", &[int(p), int(q)]));
        assert_eq!(got, [[a as f64], [f64::from(steps)], [size]], "{p} {q}");
    }
}

/// Variables that a condition assigns are seen in the body and after the loop; `break` leaves a loop over layers.
#[test]
fn conditions_may_assign_and_layers_may_be_left() {
    let program = Everywhere::of(
        "layer Scale {\n    w: f32\n    fn forward(x: f32[S]) -> f32[S] { x * w }\n}\n\
         model M {\n    s: [Scale; 3]\n    pub fn f(x: f32[S]) -> (f32[S], i32) {\n        var i = 0\n        var y = x\n        \
         while { i = i + 1\n i < 4 } { y = y + cast<f32>(i) }\n        for one in s {\n            y = one(y)\n            \
         if any(y > 100) { break }\n        }\n        (y, i)\n    }\n}\n",
        &[("s.0.w", scalar(10.0)), ("s.1.w", scalar(3.0)), ("s.2.w", scalar(1000.0))],
    );
    // 1 + 1 + 2 + 3 = 7; 70; 210; there it ends.
    assert_eq!(values(&program.call("f", &[floats(&[1.0])])), [[210.0], [4.0]]);
    assert_eq!(values(&program.call("f", &[floats(&[-5.0])])), [[30_000.0], [4.0]]);
    // Without elements, none is above 100.
    assert_eq!(values(&program.call("f", &[floats(&[])])), [vec![], vec![4.0]]);
}

fn scalar(x: f32) -> Tensor {
    Tensor::from_f32(Vec::new(), &[x]).unwrap()
}

/// A loop that never ends uses the interpreters' budget up, and compiled code asks whether to continue, even where it launches
/// nothing.
#[test]
fn a_loop_without_end_can_be_ended() {
    static STOP: AtomicBool = AtomicBool::new(false);
    for body in ["while i >= 0 or true { i = i + 1 }", "while i < 10 { i = i * 1 }", "while i < 10 { i = i * n }"] {
        let source = format!(
            "model M {{\n    pub fn f(n: i32) -> i32 {{\n        var i = 0\n        {body}\n        i\n    }}\n}}\n"
        );
        let program = Everywhere::of(&source, &[]);
        for module in [&program.written, &program.optimised] {
            let verified = attnc::ir::verify(module).unwrap();
            let limits = interp::Limits { elements: 1 << 10, work: 1 << 16 };
            let call = interp::Call { function: "f", args: &[int(1)], params: &interp::NoParams, limits };
            let failure = interp::run::<f32>(verified, &call).unwrap_err();
            assert!(failure.message.contains("limit"), "{body}: {failure}");
        }
        let folder = tempfile::tempdir().unwrap();
        let model = compiled::load(&program.optimised, &Default::default(), folder.path());
        let mut session = model.session().unwrap();
        STOP.store(false, Ordering::Relaxed);
        session.end_when(&STOP).unwrap();
        let failure = std::thread::scope(|s| {
            s.spawn(|| {
                std::thread::sleep(std::time::Duration::from_millis(100));
                STOP.store(true, Ordering::Relaxed);
            });
            session.call(model.entry("f").unwrap(), &[int(1)]).unwrap_err()
        });
        assert_eq!(failure.status, 9, "{body}: {failure}");
    }
}
