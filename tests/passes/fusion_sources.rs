//! Is attention found however an author writes it? Each way is a line of the language, with what must become of it.

use crate::front;

use attnc::ir::{Function, MaskKind, Module, Op};
use attnc::passes::{Collected, Condition, Float, Options, Outcome, optimise};

/// What must become of a program.
#[derive(Debug, PartialEq, Eq)]
enum Fate {
    /// One attention with these masks.
    Fused(Vec<MaskKind>),
    /// None, for this condition.
    Missed(Condition),
    /// None, and nobody would expect one.
    NoAttention,
}

const CAUSAL: MaskKind = MaskKind::Causal;
const ADD: MaskKind = MaskKind::Add;
const KEEP: MaskKind = MaskKind::Keep;
const CAP: MaskKind = MaskKind::Cap;
const SINK: MaskKind = MaskKind::Sink;

fn compiled(body: &str) -> Module {
    let source = format!(
        "model M<H = 4, G = 2, D = 64> where H % G == 0 {{\n    pub fn forward(q: f32[H, S, D], k: f32[H, T, D], v: f32[H, T, D], \
         x: f32[S, D], y: f32[T, D], g: f32[G, T, D], qs: f32[S, H, D], ks: f32[T, H, D], vs: f32[T, H, D], \
         keep: bool[S, T], some: bool[T], bias: f32[S, T], heads: f32[H, 1, 1], t: f32, q2: bf16[H, S, D], k2: bf16[H, T, D], \
         v2: bf16[H, T, D], bias2: bf16[S, T], sinks: f32[H], row: f32[H, S, 1], two: f32[H, S, 2], one: f32[H, D], far: f32[H, T]) -> f32[..] {{\n{body}\n    }}\n}}\n"
    );
    // The result's type is that of the last line.
    let result = match body {
        _ if body.contains("// [S, D]") => "f32[S, D]",
        _ if body.contains("// [H, D]") => "f32[H, D]",
        _ if body.contains("// bf16") => "bf16[H, S, D]",
        _ => "f32[H, S, D]",
    };
    front::module("m.attn", &source.replace("f32[..]", result), &Default::default())
        .unwrap_or_else(|e| panic!("{body}\n{e}"))
}

fn masks(op: &Op) -> Vec<Vec<MaskKind>> {
    let inside = |f: &Function| f.insts().flat_map(|(_, _, d)| masks(&d.op)).collect();
    match op {
        Op::Attention { masks } => vec![masks.clone()],
        Op::Fused { body, .. } => inside(body),
        _ => Vec::new(),
    }
}

fn fate(body: &str, float: Float) -> Fate {
    let mut module = compiled(body);
    let options = Options { float, ..Options::default() };
    let remarks = optimise(&mut module, &options, &mut Collected::default()).unwrap_or_else(|e| panic!("{body}\n{e}"));
    let f = &module.functions[0];
    let found: Vec<Vec<MaskKind>> = f.insts().flat_map(|(_, _, d)| masks(&d.op)).collect();
    let missed = remarks.iter().find_map(|r| match r.outcome {
        Outcome::Missed(condition) if r.pass == "fuse-attention" && !r.tapped => Some(condition),
        Outcome::Missed(_) | Outcome::Done => None,
    });
    match (found.as_slice(), missed) {
        ([one], None) => Fate::Fused(one.clone()),
        ([], Some(condition)) => Fate::Missed(condition),
        ([], None) => Fate::NoAttention,
        more => panic!("{body}\n{more:?}"),
    }
}

#[test]
fn each_way_of_writing_attention_is_found() {
    for (body, masks) in [
        ("softmax(q @ k.T / sqrt(D)) @ v", vec![]),
        ("softmax((q / sqrt(D)) @ k.T) @ v", vec![]),
        ("softmax(q @ (k * 0.125).T) @ v", vec![]),
        ("softmax((q * 0.3) @ (k / 3.0).T * t) @ v", vec![]),
        ("softmax(t * (q @ k.T)) @ v", vec![]),
        ("einsum(\"h s t, h t d -> h s d\", softmax(einsum(\"h s d, h t d -> h s t\", q, k) / sqrt(D)), v)", vec![]),
        // One query of each head.
        (
            "einsum(\"h t, h t d -> h d\", softmax(einsum(\"h d, h t d -> h t\", one, k) / sqrt(D)), v) // [H, D]",
            vec![],
        ),
        ("einsum(\"h t, t h d -> h d\", softmax(einsum(\"h d, t h d -> h t\", one, ks) * t), vs) // [H, D]", vec![]),
        (
            "let scores = einsum(\"h d, h t d -> h t\", one, k) / sqrt(D)\n\
             einsum(\"h t, h t d -> h d\", softmax(where(some, scores, -inf)), v) // [H, D]",
            vec![KEEP],
        ),
        (
            "let scores = einsum(\"h d, h t d -> h t\", one, k) / sqrt(D)\n\
             einsum(\"h t, h t d -> h d\", softmax(scores + far), v) // [H, D]",
            vec![ADD],
        ),
        (
            "rearrange(einsum(\"h s t, t h d -> s h d\", softmax(einsum(\"s h d, t h d -> h s t\", qs, ks)), vs), \
             \"s h d -> h s d\")",
            vec![],
        ),
        ("softmax((k @ q.T).T) @ v", vec![]),
        ("softmax(k @ q.T, axis = 1).T @ v", vec![]),
        ("(v.T @ softmax(q @ k.T).T).T", vec![]),
        // Masks.
        ("softmax(where(causal(S, T), q @ k.T / sqrt(D), -inf)) @ v", vec![CAUSAL]),
        ("softmax(where(causal(S, T), q @ k.T, -inf) / sqrt(D)) @ v", vec![CAUSAL]),
        ("softmax(where(not causal(S, T), -inf, q @ k.T)) @ v", vec![CAUSAL]),
        ("softmax(where(causal(S, T) and keep, q @ k.T, -inf)) @ v", vec![KEEP, CAUSAL]),
        ("softmax(where(causal(S, T) and rearrange(some, \"t -> 1 t\"), q @ k.T, -inf)) @ v", vec![KEEP, CAUSAL]),
        ("softmax(where(not causal(S, T) or not keep, -inf, q @ k.T)) @ v", vec![KEEP, CAUSAL]),
        ("softmax(where(keep, where(causal(S, T), q @ k.T, -inf), -1e9)) @ v", vec![CAUSAL, KEEP]),
        ("softmax(where(keep or causal(S, T), q @ k.T, -inf)) @ v", vec![KEEP]),
        ("softmax(q @ k.T / sqrt(D) + bias) @ v", vec![ADD]),
        ("softmax(bias + q @ k.T) @ v", vec![ADD]),
        ("softmax((q @ k.T - bias) / sqrt(D)) @ v", vec![ADD]),
        ("softmax(q @ k.T + where(causal(S, T), 0.0, -inf)) @ v", vec![ADD]),
        ("softmax(where(rearrange(iota(S), \"s -> s 1\") + (T - S) >= iota(T), q @ k.T, -inf)) @ v", vec![CAUSAL]),
        // A window of the last 16 keys.
        (
            "softmax(where(causal(S, T) and rearrange(iota(S), \"s -> s 1\") - iota(T) < 16, q @ k.T, -inf)) @ v",
            vec![KEEP, CAUSAL],
        ),
        // Relative positions: a slope for each head.
        ("softmax(q @ k.T + heads * cast<f32>(iota(T) - rearrange(iota(S), \"s -> s 1\"))) @ v", vec![ADD]),
        // Heads in groups.
        (
            "rearrange(softmax(rearrange(q, \"(g r) s d -> g r s d\", g = G) @ rearrange(g, \"g t d -> g 1 t d\").T) @ \
             rearrange(g, \"g t d -> g 1 t d\"), \"g r s d -> (g r) s d\")",
            vec![],
        ),
        (
            "let p = softmax(einsum(\"g r s d, g t d -> g r s t\", rearrange(q, \"(g r) s d -> g r s d\", g = G), g))\n\
             rearrange(einsum(\"g r s t, g t d -> g r s d\", p, g), \"g r s d -> (g r) s d\")",
            vec![],
        ),
        // One head, and keys without heads.
        ("softmax(x @ y.T) @ y // [S, D]", vec![]),
        ("softmax(q @ y.T) @ y", vec![]),
        // Soft caps.
        ("softmax(50.0 * tanh(q @ k.T / 50.0)) @ v", vec![CAP]),
        ("softmax(tanh(q @ k.T / sqrt(D) / 50.0) * 50.0) @ v", vec![CAP]),
        ("softmax(50.0 * tanh(q @ k.T * (1 / 50.0))) @ v", vec![CAP]),
        ("softmax(t * tanh(q @ k.T / t)) @ v", vec![CAP]),
        ("softmax(50.0 * tanh((q / sqrt(D)) @ k.T / 50.0)) @ v", vec![CAP]),
        ("softmax((50.0 * tanh(k @ q.T / 50.0)).T) @ v", vec![CAP]),
        // Other numbers on both sides are a soft cap too, with another scale; and so is no number.
        ("softmax(30.0 * tanh(q @ k.T / 50.0)) @ v", vec![CAP]),
        ("softmax(tanh(q @ k.T)) @ v", vec![CAP]),
        ("softmax(where(causal(S, T), 50.0 * tanh(q @ k.T / sqrt(D) / 50.0), -inf)) @ v", vec![CAP, CAUSAL]),
        ("softmax(50.0 * tanh(q @ k.T / 50.0) + bias) @ v", vec![CAP, ADD]),
        ("softmax(where(keep, 50.0 * tanh(q @ k.T / 50.0), -inf) * 2.0) @ v", vec![CAP, KEEP]),
        // Before the cap a mask is another one: what it hides has the score -50.
        ("softmax(50.0 * tanh(where(causal(S, T), q @ k.T, -inf) / 50.0)) @ v", vec![CAUSAL, CAP]),
        ("softmax(20.0 * tanh((30.0 * tanh(q @ k.T / 30.0) + bias) / 20.0)) @ v", vec![CAP, ADD, CAP]),
        (
            "let s = einsum(\"g r s d, g t d -> g r s t\", rearrange(q, \"(g r) s d -> g r s d\", g = G), g)\n\
             let p = softmax(where(causal(S, T), 50.0 * tanh(s / 50.0), -inf))\n\
             rearrange(einsum(\"g r s t, g t d -> g r s d\", p, g), \"g r s d -> (g r) s d\")",
            vec![CAP, CAUSAL],
        ),
        // Weights and scores in other types.
        ("cast<bf16>(softmax(cast<f32>(q2 @ k2.T) / sqrt(D))) @ v2 // bf16", vec![]),
        ("cast<bf16>(softmax(cast<f32>(q2 @ k2.T / sqrt(D)))) @ v2 // bf16", vec![]),
        ("cast<bf16>(softmax(cast<f32>(q2) @ cast<f32>(k2).T / sqrt(D))) @ v2 // bf16", vec![]),
        ("cast<bf16>(softmax(cast<f32>(q2 * 0.125) @ cast<f32>(k2 * 0.5).T)) @ v2 // bf16", vec![]),
        ("cast<bf16>(softmax(where(causal(S, T), cast<f32>(q2 @ k2.T), -inf))) @ v2 // bf16", vec![CAUSAL]),
        (
            "cast<bf16>(softmax(cast<f32>(where(keep, q2 @ k2.T / sqrt(D) + bias2, -inf)))) @ v2 // bf16",
            vec![ADD, KEEP],
        ),
        ("cast<bf16>(softmax(cast<f32>(50 * tanh(q2 @ k2.T / 50)) + bias)) @ v2 // bf16", vec![CAP, ADD]),
        ("softmax(cast<f32>(q2 @ k2.T)) @ v", vec![]),
        ("cast<bf16>(softmax(q @ k.T)) @ v2 // bf16", vec![]),
        ("cast<f32>(softmax(q2 @ k2.T)) @ v", vec![]),
        ("cast<f32>(cast<bf16>(softmax(q @ k.T))) @ v", vec![]),
        // Sinks: a column more.
        ("softmax(concat(q @ k.T, row, axis = -1))[.., 0..T] @ v", vec![SINK]),
        ("softmax(concat(row, q @ k.T, axis = -1))[.., 1..T + 1] @ v", vec![SINK]),
        (
            "let sink = full<f32>(0, [H, S, 1]) + rearrange(sinks, \"h -> h 1 1\")\n\
             softmax(concat(where(causal(S, T), q @ k.T / sqrt(D), -inf), sink, axis = -1))[.., 0..T] @ v",
            vec![CAUSAL, SINK],
        ),
        (
            "let sink = rearrange(sinks, \"h -> h 1 1\") * full<f32>(1, [H, S, 1])\n\
             softmax(concat(30 * tanh(q @ k.T / 30) + bias, sink, axis = -1))[.., 0..T] @ v",
            vec![CAP, ADD, SINK],
        ),
        ("softmax(concat(q @ k.T, full<f32>(0, [H, S, 1]), axis = -1))[.., 0..T] @ v", vec![SINK]),
        ("softmax(pad(q @ k.T, axis = -1, low = 0, high = 1, value = t))[.., 0..T] @ v", vec![SINK]),
        ("softmax(pad(q @ k.T, axis = -1, low = 1, high = 0))[.., 1..T + 1] @ v", vec![SINK]),
        (
            "let s = cast<f32>(concat(q2 @ k2.T, cast<bf16>(row), axis = -1))\n\
             cast<bf16>(softmax(s))[.., 0..T] @ v2 // bf16",
            vec![SINK],
        ),
        ("cast<bf16>(softmax(concat(cast<f32>(q2 @ k2.T), row, axis = -1))[.., 0..T]) @ v2 // bf16", vec![SINK]),
        // A tap costs nothing here: the variant without taps has none.
        ("let w = softmax(q @ k.T)\ntap w\nw @ v", vec![]),
    ] {
        assert_eq!(fate(body, Float::Contract), Fate::Fused(masks), "{body}");
    }
}

#[test]
fn what_is_no_attention_or_cannot_be_proved_is_left() {
    for (body, fate_of_it) in [
        ("softmax(q @ k.T, axis = 0) @ v", Fate::Missed(Condition::Axis)),
        ("softmax(x @ x.T, axis = 0) @ x // [S, D]", Fate::Missed(Condition::Axis)),
        ("softmax(q @ k.T * heads) @ v", Fate::Missed(Condition::Scale)),
        ("softmax(q @ k.T * cast<f32>(keep)) @ v", Fate::Missed(Condition::Scale)),
        ("softmax(sigmoid(q @ k.T)) @ v", Fate::Missed(Condition::Chain)),
        ("softmax(heads * tanh(q @ k.T / 50)) @ v", Fate::Missed(Condition::Scale)),
        ("softmax(50 * tanh(q @ k.T / heads)) @ v", Fate::Missed(Condition::Scale)),
        // The steps stay in their order, and scores of a narrower type are rounded.
        ("cast<f32>(cast<i8>(softmax(q @ k.T))) @ v", Fate::Missed(Condition::Types)),
        ("softmax(cast<f32>(cast<bf16>(q @ k.T))) @ v", Fate::Missed(Condition::Types)),
        ("softmax(cast<bf16>(where(keep, q @ k.T, -1e38))) @ v2 // bf16", Fate::Missed(Condition::Types)),
        ("softmax(cast<f32>(cast<i32>(q @ k.T))) @ v", Fate::Missed(Condition::Types)),
        // Columns that are not a sink: two of them, one that is kept, another one dropped, and none joined.
        ("softmax(concat(q @ k.T, two, axis = -1))[.., 0..T] @ v", Fate::Missed(Condition::Shape)),
        ("softmax(concat(q @ k.T, row, axis = -1))[.., 1..T + 1] @ v", Fate::Missed(Condition::Shape)),
        ("softmax(concat(row, q @ k.T, axis = -1))[.., 0..T] @ v", Fate::Missed(Condition::Shape)),
        ("softmax(pad(q @ k.T, axis = -1, low = 1, high = 1))[.., 1..T + 1] @ v", Fate::Missed(Condition::Shape)),
        (
            "softmax(concat(q @ k.T, row, axis = -1)) @ concat(v, full<f32>(0, [H, 1, D]), axis = 1)",
            Fate::Missed(Condition::Shape),
        ),
        ("softmax(concat(row, q @ k.T, row, axis = -1))[.., 1..T + 1] @ v", Fate::Missed(Condition::Shape)),
        ("softmax(concat(q @ k.T, row, axis = -1) * 0.125)[.., 0..T] @ v", Fate::Missed(Condition::Chain)),
        ("softmax(q @ k.T)[.., 0..1] @ v[.., 0..1, 0..D]", Fate::Missed(Condition::Chain)),
        (
            "let p = softmax(concat(q @ k.T, row, axis = -1))\np[.., 0..T] @ v * p[.., T..T + 1]",
            Fate::Missed(Condition::Uses),
        ),
        ("softmax(where(keep, q @ k.T, bias)) @ v", Fate::Missed(Condition::Mask)),
        ("where(keep, softmax(q @ k.T), 0) @ v", Fate::Missed(Condition::Chain)),
        ("let s = q @ k.T\nsoftmax(s) @ v * sum(s, keep = true)", Fate::Missed(Condition::Uses)),
        ("softmax(q + 1.0)", Fate::NoAttention),
        ("softmax(bias) @ y // [S, D]", Fate::Missed(Condition::Chain)),
    ] {
        assert_eq!(fate(body, Float::Contract), fate_of_it, "{body}");
    }
    for body in [
        "softmax(q @ k.T) @ v",
        "softmax(50.0 * tanh(q @ k.T * 0.125)) @ v",
        "cast<bf16>(softmax(cast<f32>(q2) @ cast<f32>(k2).T)) @ v2 // bf16",
        "softmax(concat(q @ k.T, row, axis = -1))[.., 0..T] @ v",
    ] {
        assert_eq!(fate(body, Float::Strict), Fate::Missed(Condition::Float), "{body}");
    }
}

#[test]
fn an_added_minus_infinity_is_a_mask_under_fast_alone() {
    let body = "softmax(q @ k.T + where(causal(S, T), 0.0, -inf)) @ v";
    assert_eq!(fate(body, Float::Fast), Fate::Fused(vec![CAUSAL]));
}
