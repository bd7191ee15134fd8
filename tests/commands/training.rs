//! What `attnc check` says about a `train`: which parameter goes to which rule is known where the model is bound.

use crate::command_line::{file, outcome};

/// A model with a step, and a rule of its own.
fn program(arms: &str) -> String {
    format!(
        "use std.optim
rule Descent {{ fn step(p: f32[..], g: f32[..], rate: f32) -> f32[..] {{ p - rate * g }} }}
rule Square<N> {{ fn step(p: f32[N, N], g: f32[N, N]) -> f32[N, N] {{ p - g }} }}
layer Cell<D> {{
    weight: f32[D, D]
    bias: f32[D]
    fn forward(x: f32[S, D]) -> f32[S, D] {{ x @ weight + bias }}
}}
model M<D = 4, L = 2> {{
    h: [Cell<D>; L]
    head: f32[D, 3]
    scale: f32
    half: bf16[D]
    count: i32[D]
    pub fn learn(x: f32[S, D]) -> f32 {{
        var y = x
        for cell in h {{ y = cell(y) }}
        let loss = sum(y @ head, axis = [0, 1]) + floor(scale) + sum(cast<f32>(half * cast<bf16>(count)))
        train loss {{
            {arms}
        }}
    }}
}}
"
    )
}

#[test]
fn each_parameter_needs_a_rule_that_fits() {
    for (arms, said) in [
        ("\"scale\": Fixed; \"half\": Fixed; \"*\": Descent(0.1)", &[][..]),
        ("\"scale\": Fixed; \"half\": Fixed; \"*\": optim.Descent(0.1)", &["E0218", "no rule `optim.Descent`"]),
        ("\"*.weihgt\": Descent(0.1); \"*\": Fixed", &["E0509", "did you mean `*.weight`?"]),
        ("\"h.1.*\": Descent(0.1); \"*\": Fixed", &["E0509", "`h.*.bias`"]),
        ("\"head\" where rank == 1: Descent(0.1); \"*\": Fixed", &["E0509", "with this number of axes"]),
        ("\"head\" where size == 1: Descent(0.1); \"*\": Fixed", &["E0509", "`rank == 2`"]),
        ("\"h.*\": Descent(0.1)", &["E0510", "no rule for `half`, `head`, `scale`", "Fixed"]),
        ("\"h.*\": Muon(0.1); \"*\": Fixed", &["E0511", "`h.*.bias` is f32[4]", "`where rank == 2`"]),
        ("\"head\": Square; \"*\": Fixed", &["E0511", "`head` is f32[4, 3]", "axes are equal"]),
        ("\"half\": Descent(0.1); \"*\": Fixed", &["E0511", "`half` is bf16[4]"]),
        ("\"half\": Fixed; \"*\": Descent(0.1)", &["E0345", "no gradient reaches `scale`", "it stops at `floor`"]),
        ("\"*\": Descent", &["E0305", "missing `rate`"]),
        ("\"*\": Descent(x)", &["E0306", "`rate` of `Descent`"]),
        ("\"*\": Descent(rat = 0.1)", &["E0208", "did you mean `rate`?"]),
        ("\"*\": Cell", &["E0218", "`Cell` is a layer"]),
        ("\"*\": Fixed(1)", &["E0305"]),
    ] {
        let (_folder, path) = file("m.attn", program(arms).as_bytes());
        let (exit, _, err) = outcome(&["check", &path]);
        assert_eq!(exit, i32::from(!said.is_empty()), "{arms}: {err}");
        assert!(said.iter().all(|part| err.contains(part)), "{arms}: {err}");
    }
}

#[test]
fn rules_have_one_form() {
    for (rule, said) in [
        ("rule R { fn step(p: f32[..], g: f32[..]) -> f32[..] { p }; fn g(x: f32) -> f32 { x } }", "2 functions"),
        ("rule R { state m: f32[..] }", "0 functions"),
        ("rule R { fn next(p: f32[..], g: f32[..]) -> f32[..] { p } }", "called `next`"),
        ("rule R { fn step(p: f32[..], g: f32) -> f32[..] { p } }", "one type"),
        ("rule R { fn step(p: i32[..], g: i32[..]) -> i32[..] { p } }", "floats"),
        ("rule R { m: f32\n fn step(p: f32[..], g: f32[..]) -> f32[..] { p } }", "only states"),
        ("rule R<M> { fn step(p: f32[..], g: f32[..]) -> f32[..] { p } }", "the axes after `..`"),
        ("rule R { fn step(p: f32[M], g: f32[M]) -> f32[M] { p } }", "the axes after `..`"),
        ("rule R<M> { state m: f32[..]\n fn step(p: f32[M], g: f32[M]) -> f32[M] { p } }", "there is no `..`"),
        ("rule R { fn step(p: f32[..], g: f32[..], x: f32[3]) -> f32[..] { p } }", "scalars"),
    ] {
        let (_folder, path) = file("m.attn", rule.as_bytes());
        let (exit, _, err) = outcome(&["check", &path]);
        assert!(exit == 1 && err.contains("E0508") && err.contains(said), "{rule}: {err}");
    }
    let (_folder, path) =
        file("m.attn", b"rule R { fn step(p: f32[..], g: f32[..]) -> f32[..] { p } }\nlayer L { r: R }\n");
    let (exit, _, err) = outcome(&["check", &path]);
    assert!(exit == 1 && err.contains("E0203") && err.contains("rule of `train`"), "{err}");
}

/// The words are names where they begin nothing.
#[test]
fn words_are_names_elsewhere() {
    let text = b"fn f(rule: f32[S]) -> f32[S] {\n    var train = rule\n    train = train + rule\n    train\n}\n";
    let (_folder, path) = file("m.attn", text);
    assert_eq!(outcome(&["check", &path]), (0, String::new(), String::new()));
    let (exit, out, err) = outcome(&["fmt", "--check", &path]);
    assert_eq!(exit, 0, "{out}{err}");
}
