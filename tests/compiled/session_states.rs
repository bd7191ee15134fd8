//! Are the states of a session, read and set by name, all that a session remembers? A session that gets those of another one
//! goes on with the same bits.

use std::collections::BTreeMap;

use crate::{compiled, front};

use attnc::lowering::graph::Options;
use attnc::passes;
use attnc::shape::Elem;
use attnc::tensor::Tensor;

const SOURCE: &str = "use std.optim
layer Cell<D> {
    w: f32[D, D]
    fn forward(x: f32[S, D]) -> f32[S, D] { x + tanh(x @ w) }
}
model M<D = 3, L = 2> {
    h: [Cell<D>; L]
    b: f32[D]
    state at: i64
    state odd: bool[2]
    pub fn learn(x: f32[S, D]) -> f32 {
        at = at + 1
        odd = full(at % 2 == 1, [2])
        var y = x + b
        for cell in h { y = cell(y) }
        let loss = mean(y * y, axis = [0, 1])
        train loss { \"*\": AdamW(at, rate = 0.05) }
        loss
    }
    pub fn pick(i: i32[S]) -> f32[S] {
        at = at + 1
        b[i]
    }
}
";

#[test]
fn a_session_goes_on_where_another_one_was() {
    let number = |shape: &[usize], seed: usize| {
        let count = shape.iter().product::<usize>();
        let values: Vec<f64> = (0..count).map(|i| ((i * 37 + seed * 11) % 17) as f64 / 17.0 - 0.4).collect();
        Tensor::from_floats(Elem::F32, shape.to_vec(), &values).expect("a tensor")
    };
    let params: BTreeMap<String, Tensor> =
        [("h.0.w", number(&[3, 3], 1)), ("h.1.w", number(&[3, 3], 2)), ("b", number(&[3], 3))]
            .map(|(name, tensor)| (name.to_string(), tensor))
            .into();
    let written = front::module("m.attn", SOURCE, &Options::default()).expect("a module");
    let folder = tempfile::tempdir().expect("a folder");
    let model = compiled::load(&compiled::optimised(written, &passes::Options::default()), &params, folder.path());
    let states = model.states();
    let mut names: Vec<(&str, Elem, &[usize])> =
        states.iter().map(|s| (s.name.as_str(), s.elem, s.shape.as_slice())).collect();
    names.sort_by_key(|(name, ..)| *name);
    let moments = |name: &'static str, shape: &'static [usize]| (name, Elem::F32, shape);
    let want = [
        ("at", Elem::I64, &[][..]),
        moments("b", &[3]),
        moments("b.AdamW.m", &[3]),
        moments("b.AdamW.v", &[3]),
        moments("h.*.w", &[2, 3, 3]),
        moments("h.*.w.AdamW.m", &[2, 3, 3]),
        moments("h.*.w.AdamW.v", &[2, 3, 3]),
        ("odd", Elem::Bool, &[2][..]),
    ];
    assert_eq!(names, want);

    let (learn, pick) = (model.entry("learn").expect("an entry"), model.entry("pick").expect("an entry"));
    let x = number(&[5, 3], 4);
    let mut first = model.session().expect("a session");
    assert_eq!(first.state("b").expect("a state").to_f64(), params["b"].to_f64());
    for _ in 0..3 {
        first.call(learn, std::slice::from_ref(&x)).expect("a step");
    }
    let kept: Vec<(String, Tensor)> =
        states.iter().map(|s| (s.name.clone(), first.state(&s.name).expect("a state"))).collect();
    let mut second = model.session().expect("a session");
    kept.iter().for_each(|(name, tensor)| second.set_state(name, tensor).expect("a state"));
    for _ in 0..3 {
        let both =
            [&mut first, &mut second].map(|session| session.call(learn, std::slice::from_ref(&x)).expect("a step"));
        assert_eq!(both[0][0].bytes(), both[1][0].bytes());
    }
    for s in &states {
        assert_eq!(first.state(&s.name).expect("a state"), second.state(&s.name).expect("a state"), "{}", s.name);
    }
    assert_eq!(second.state("at").expect("a state").to_i64(), [6]);

    // What does not fit is refused, and changes nothing.
    let told = |e: Result<(), attnc::runtime::load::LoadError>| e.expect_err("an error").text;
    assert_eq!(told(second.set_state("c", &number(&[3], 0))), "there is no state `c`");
    assert_eq!(told(second.set_state("h.0.w", &number(&[3, 3], 0))), "there is no state `h.0.w`");
    assert_eq!(told(second.set_state("b", &number(&[4], 0))), "state `b`: expected f32[3], found f32[4]");
    let ints = Tensor::from_ints(Elem::I32, vec![3], &[0; 3]).expect("a tensor");
    assert_eq!(told(second.set_state("b", &ints)), "state `b`: expected f32[3], found i32[3]");
    assert_eq!(first.state("b").expect("a state"), second.state("b").expect("a state"));

    // A call that fails loses the states, until they are reset.
    let far = Tensor::from_ints(Elem::I32, vec![1], &[3]).expect("a tensor");
    second.call(pick, &[far]).expect_err("an index out of range");
    let lost = "the states of this session were lost when a call of `pick` failed: reset the session";
    assert_eq!(told(second.state("b").map(drop)), format!("reading a state: {lost}"));
    assert_eq!(told(second.set_state("b", &number(&[3], 0))), format!("setting a state: {lost}"));
    second.reset().expect("a session");
    kept.iter().for_each(|(name, tensor)| second.set_state(name, tensor).expect("a state"));
    assert_eq!(second.state("at").expect("a state").to_i64(), [3]);
}
