//! Are SAM and the losses of `std.loss`, with their gradients, those of PyTorch in `f64`? `tests/fixtures/make_training.py` made the
//! numbers.

use crate::everywhere::Everywhere;

use attnc::shape::Elem;
use attnc::tensor::Tensor;

/// Sums in `f32`, over ten steps.
const NEAR: f64 = 1e-4;

fn numbers(part: &str, name: &str) -> Vec<f64> {
    let all: serde_json::Value =
        serde_json::from_str(include_str!("../fixtures/training.json")).expect("the file is JSON");
    let list = all[part][name].as_array().unwrap_or_else(|| panic!("{part} {name}"));
    list.iter().map(|x| x.as_f64().unwrap_or(f64::NEG_INFINITY)).collect()
}

fn tensor(part: &str, name: &str, shape: &[usize]) -> Tensor {
    Tensor::from_floats(Elem::F32, shape.to_vec(), &numbers(part, name)).expect("a tensor")
}

fn near(what: &str, want: &[f64], got: &[f64]) {
    assert_eq!(want.len(), got.len(), "{what}");
    let greatest = want.iter().fold(1e-3f64, |m, x| m.max(x.abs()));
    for (x, y) in want.iter().zip(got) {
        assert!((x - y).abs() <= NEAR * greatest, "{what}: {want:?}, {got:?}");
    }
}

#[test]
fn ten_steps_of_sam() {
    let source = "use std.optim
model Line<I = 6, O = 4> {
    w: f32[I, O]
    b: f32[O]
    fn loss(x: f32[S, I], y: f32[S, O]) -> f32 {
        let d = tanh(x @ w + b) - y
        mean(d * d, axis = [0, 1])
    }
    pub fn learn(x: f32[S, I], y: f32[S, O]) -> (f32, f32) {
        let value = loss(x, y)
        let steep = 1e6 * value
        train steep, clip = 0.05 { \"*\": SAM(true, 0.05) }
        let there = loss(x, y)
        let norm = train there { \"*\": SAM(false, 0.05, momentum = 0.9, decay = 0.01) }
        (value, norm)
    }
    pub fn now() -> (f32[I, O], f32[O]) { (w, b) }
}
";
    let of = |name: &str, shape: &[usize]| tensor("sam", name, shape);
    let program = Everywhere::of(source, &[("w", of("w", &[6, 4])), ("b", of("b", &[4]))]).within(NEAR);
    let mut calls = vec![("learn", vec![of("x", &[5, 6]), of("y", &[5, 4])]); 10];
    calls.push(("now", Vec::new()));
    let given = program.calls(&calls);
    let (losses, norms) = (numbers("sam", "losses"), numbers("sam", "norms"));
    for (step, given) in given[..10].iter().enumerate() {
        let given = given.as_ref().expect("a step");
        let got = [given[0].to_f64()[0], given[1].to_f64()[0]];
        near(&format!("step {step}"), &[losses[step], norms[step]], &got);
    }
    let now = given[10].as_ref().expect("the parameters");
    near("w", &numbers("sam", "w_after"), &now[0].to_f64());
    near("b", &numbers("sam", "b_after"), &now[1].to_f64());
}

#[test]
fn losses_and_their_gradients() {
    let source = "use std.loss
model M<V = 7> {
    pub fn f(x: f32[B, V], classes: i32[B], teacher: f32[B, V]) -> (f32[B], f32[B, V], f32[B], f32[B, V], f32[B], f32[B, V]) {
        let plain = loss.cross_entropy(x, classes)
        let smooth = loss.cross_entropy(x, classes, smoothing = 0.1)
        let distilled = loss.distillation(x, teacher, 2.5)
        (
            plain, grad(sum(plain), x),
            smooth, grad(sum(smooth), x),
            distilled, grad(sum(distilled), x),
        )
    }
}
";
    let classes: Vec<i64> = numbers("losses", "classes").iter().map(|n| *n as i64).collect();
    let classes = Tensor::from_ints(Elem::I32, vec![3], &classes).expect("a tensor");
    let args = [tensor("losses", "logits", &[3, 7]), classes, tensor("losses", "teacher", &[3, 7])];
    let given = Everywhere::of(source, &[]).within(NEAR).call("f", &args).expect("a call");
    let names = ["plain", "plain_gradient", "smooth", "smooth_gradient", "distilled", "distilled_gradient"];
    for (name, got) in names.iter().zip(given) {
        near(name, &numbers("losses", name), &got.to_f64());
    }
}

/// No class is right where it is out of range, and a score of -inf hides a class where nothing is smoothed.
#[test]
fn losses_at_the_edges() {
    let source = "use std.loss
model M {
    pub fn f(x: f32[B, 3], classes: i32[B]) -> (f32[B], f32[B, 3]) {
        let out = loss.cross_entropy(x, classes)
        (out, grad(sum(out), x))
    }
}
";
    let x = [0.0, f64::NEG_INFINITY, 0.0, 1.0, 2.0, 3.0];
    let x = Tensor::from_floats(Elem::F32, vec![2, 3], &x).expect("a tensor");
    let classes = Tensor::from_ints(Elem::I32, vec![2], &[2, -1]).expect("a tensor");
    let given = Everywhere::of(source, &[]).call("f", &[x, classes]).expect("a call");
    near("loss", &[2f64.ln(), 0.0], &given[0].to_f64());
    near("gradient", &[0.5, 0.0, -0.5, 0.0, 0.0, 0.0], &given[1].to_f64());
}
