//! Does somebody who thinks in Python get from a first guess to a program that compiles?
//!
//! Twelve programs, each written the Python way. What the messages advise is carried out, the program is compiled again,
//! and after two rounds at most there is nothing left to say. The snapshots hold every round, with its messages.

use crate::front;

use attnc::diagnostics::{Diagnostics, Severity, apply_fixes, render_all};
use attnc::lowering::graph::Options;
use attnc::source::SourceMap;
use attnc::syntax;
use attnc::types;

/// The messages about a program, how many of them are errors, and the program as they advise.
fn round(text: &str) -> (String, usize, String) {
    let mut sources = SourceMap::new();
    let mut diagnostics = Diagnostics::new();
    let id = sources.add("guess.attn", text);
    let file = syntax::parse(id, text, &mut diagnostics);
    types::check(&file, &mut sources, &mut diagnostics);
    let errors = diagnostics.iter().filter(|d| d.severity == Severity::Error).count();
    let (changed, _) = apply_fixes(text, id, diagnostics.iter());
    (render_all(&diagnostics, &sources, false), errors, changed)
}

/// Follows the advice until nothing is wrong. `by_hand` are changes that an advice asks for in words, made after the first
/// round, each of a text that must be there.
fn guess(name: &str, program: &str, by_hand: &[(&str, &str)]) {
    let mut text = program.to_string();
    let mut shown = String::new();
    for turn in 0.. {
        let (messages, errors, changed) = round(&text);
        shown += &format!("{}\n\n", text.trim_end());
        if errors == 0 {
            break;
        }
        assert!(turn < 2, "{name}: not right after two rounds:\n{text}\n{messages}");
        shown += &format!("────\n{}\n\n────\n", messages.trim_end());
        text = changed;
        for (from, to) in by_hand.iter().filter(|_| turn == 0) {
            assert!(text.contains(from), "{name}: `{from}` is not in\n{text}\n{messages}");
            text = text.replacen(from, to, 1);
        }
    }
    front::module("guess.attn", &text, &Options::default()).unwrap_or_else(|e| panic!("{name}: {e}\n{text}"));
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path(concat!(env!("CARGO_MANIFEST_DIR"), "/snapshots/newcomer"));
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.bind(|| insta::assert_snapshot!(name, shown.trim_end()));
}

#[test]
fn attention() {
    guess(
        "attention",
        "\
model Attention<D = 64> {
    wq: f32[D, D]
    wk: f32[D, D]
    wv: f32[D, D]

    pub fn forward(x: f32[S, D]) -> f32[S, D] {
        # scaled dot product
        q = x @ wq
        k = x @ wk
        v = x @ wv
        scores = q @ k.transpose(-2, -1) / D ** 0.5
        return softmax(scores, dim=-1) @ v
    }
}
",
        &[],
    );
}

#[test]
fn feed_forward() {
    guess(
        "feed_forward",
        "\
model FeedForward<D = 16, F = 64> {
    w1: f32[D, F]
    w2: f32[F, D]

    pub fn forward(self, x: f32[S, D]) -> f32[S, D] {
        h = max(0, x @ self.w1)
        return x + h @ self.w2
    }
}
",
        &[],
    );
}

#[test]
fn layer_norm() {
    guess(
        "layer_norm",
        "\
model Norm<D = 16> {
    gamma: f32[D]
    beta: f32[D]

    pub fn forward(x: f32[S, D]) -> f32[S, D] {
        mean_ = x.mean(-1, keepdim=True)
        var = x.var(-1, keepdim=True)
        y = (x - mean_) / torch.sqrt(var + 1e-5)
        return y * gamma + beta
    }
}
",
        &[],
    );
}

#[test]
fn positional_encoding() {
    guess(
        "positional_encoding",
        "\
model Positions<D = 16> where D % 2 == 0 {
    pub fn forward(x: f32[S, D]) -> f32[S, D] {
        half = D // 2
        pos = arange(S).float()
        i = arange(half).float()
        freq = 1 / 10000 ** (2 * i / D)
        angle = pos.unsqueeze(1) * freq
        return x + cat([sin(angle), cos(angle)], dim=-1)
    }
}
",
        &[],
    );
}

#[test]
fn causal_mask() {
    guess(
        "causal_mask",
        "\
model Masked<D = 16> {
    pub fn forward(q: f32[S, D], k: f32[S, D], v: f32[S, D]) -> f32[S, D] {
        mask = torch.tril(torch.ones(S, S))
        scores = q @ k^T / sqrt(D)
        scores = scores.masked_fill(mask == 0, float('-inf'))
        return F.softmax(scores, dim=-1) @ v
    }
}
",
        &[],
    );
}

#[test]
fn rnn_over_time() {
    guess(
        "rnn_over_time",
        "\
model Rnn<D = 8, H = 16> {
    w: f32[D, H]
    u: f32[H, H]

    def forward(self, x: f32[S, D]) -> f32[H]:
        h = zeros(H)
        for t in range(len(x)):
            h = tanh(x[t] @ self.w + h @ self.u)
        return h
}
",
        &[],
    );
}

#[test]
fn two_results() {
    guess(
        "two_results",
        "\
model Two<D = 8> {
    w: f32[D, 2*D]

    pub fn forward(x: f32[S, D], swap: bool) -> f32[S, D], f32[S, D] {
        a, b = split(x @ w, 2)
        first = b if swap else a
        return first, a + b
    }
}
",
        &[],
    );
}

#[test]
fn embedding() {
    guess(
        "embedding",
        "\
model Embed<V = 100, D = 16, T = 32> {
    tok = nn.Embedding(V, D)
    pos = nn.Embedding(T, D)

    pub fn forward(ids: int[S]) -> f32[S, D] where S <= T {
        n = ids.shape[0]
        return tok(ids) + pos(torch.arange(n))
    }
}
",
        &[],
    );
}

#[test]
fn sliding_window() {
    guess(
        "sliding_window",
        "\
model Window<D = 16, W = 4> {
    pub fn forward(q: f32[S, D], k: f32[S, D], v: f32[S, D]) -> f32[S, D] {
        i = range(S).unsqueeze(1)
        j = range(S)
        near = abs(i - j) <= W && j <= i
        scores = where(near, q @ k.T / sqrt(D), -inf)
        return scores.softmax(-1) @ v
    }
}
",
        &[],
    );
}

#[test]
fn grouped_queries() {
    guess(
        "grouped_queries",
        "\
model Grouped<H = 8, G = 2, E = 16> where H % G == 0 {
    pub fn forward(q: f32[H, S, E], k: f32[G, S, E], v: f32[G, S, E]) -> f32[H, S, E] {
        let k = k.repeat_interleave(H // G, dim=0)
        let v = v.repeat_interleave(H // G, dim=0)
        let a = softmax(einsum(\"hse,hte->hst\", q, k) / E ** 0.5, -1)
        return a @ v
    }
}
",
        &[],
    );
}

#[test]
fn dropout() {
    guess(
        "dropout",
        "\
model Drop<D = 16> {
    w: f32[D, D]

    pub fn forward(x: Tensor, training: bool) -> Tensor:
        y = nn.functional.dropout(x @ w, p=0.1)
        y += x
        return y[:, 0]
}
",
        &[("x: Tensor, training: bool", "x: f32[S, D]"), ("-> Tensor", "-> f32[S]")],
    );
}

#[test]
fn print() {
    guess(
        "print",
        "\
import torch.nn as nn

model Shown<D = 16> {
    norm: nn.LayerNorm(D)

    pub fn forward(x: f32[S, D]) -> f32[S, D] {
        \"\"\"Normalises, and shows what came of it.\"\"\"
        y = norm(x)
        print(y)
        total = sum(y, axis=(0, 1))
        return y - total / len(y)
    }
}
",
        &[],
    );
}
