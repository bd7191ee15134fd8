//! Missed rewrites whose remark proposes an edit: the edited program has no such remark, and computes the same where the edit
//! does not say otherwise.

use serde_json::Value;
use std::path::Path;
use std::process::Command;

/// Name, program, the pass of the remark, its condition, the first words of the edit, and what to compare both programs with.
const PROGRAMS: [(&str, &str, &str, &str, &str, &str); 14] = [
    (
        "mask",
        "pub fn f(q: f32[S, 64], k: f32[T, 64], v: f32[T, 64], keep: bool[S, T]) -> f32[S, 64] {
        let s = q @ k.T * 0.125
        let mask = where(keep, 0.0, -inf)
        softmax(mask + s) @ v
    }",
        "canonicalise-mask",
        "mask",
        "write `where(keep, s, -inf)` instead of `mask + s`",
        "S=5,T=7",
    ),
    (
        "hidden",
        "pub fn f(q: f32[S, 64], k: f32[S, 64], v: f32[S, 64], hide: bool[S, S]) -> f32[S, 64] {
        softmax(q @ k.T * 0.125 + where(hide, -inf, 0.0)) @ v
    }",
        "canonicalise-mask",
        "mask",
        "write `where(hide, -inf, q @ k.T * 0.125)`",
        "S=5",
    ),
    (
        "by_hand",
        "pub fn f(x: f32[S, T]) -> f32[S, T] {
        let e = exp(x - max(x, axis = -1, keep = true))
        e / sum(e, axis = -1, keep = true)
    }",
        "canonicalise-softmax",
        "rows",
        "write `softmax(x)` instead of",
        "S=5,T=7",
    ),
    (
        "columns",
        "pub fn f(x: f32[S, T]) -> f32[S, T] {
        let e = exp(2 * x - max(2 * x, axis = 0, keep = true))
        2.0 * (e / sum(e, axis = 0, keep = true))
    }",
        "canonicalise-softmax",
        "rows",
        "write `softmax(2 * x, axis = -2)` instead of",
        "S=5,T=7",
    ),
    (
        "axis",
        "pub fn f(q: f32[S, 64], k: f32[S, 64], v: f32[S, 64]) -> f32[S, 64] {
        softmax(q @ k.T * 0.125, axis = 0) @ v
    }",
        "fuse-attention",
        "axis",
        "write `softmax(q @ k.T * 0.125)` instead of",
        "",
    ),
    (
        "scaled_weights",
        "pub fn f(q: f32[S, 64], k: f32[T, 64], v: f32[T, 64]) -> f32[S, 64] {
        let w = softmax(q @ k.T * 0.125)
        (0.5 * w) @ v
    }",
        "fuse-attention",
        "chain",
        "write `(w @ v) * 0.5` instead of",
        "S=5,T=7",
    ),
    (
        "divided_weights",
        "pub fn f(q: f32[S, 64], k: f32[T, 64], v: f32[T, 64], c: f32) -> f32[S, 64] {
        let w = softmax(q @ k.T * 0.125)
        w / (c * c + 1.0) @ (v + 1.0) - 2.0
    }",
        "fuse-attention",
        "chain",
        "write `((w @ (v + 1.0)) / (c * c + 1.0))` instead of",
        "S=5,T=7",
    ),
    (
        "narrow",
        "pub fn f(q: f32[S, 64], k: f32[T, 64], v: f16[T, 64]) -> f16[S, 64] {
        softmax(cast<f16>(q @ k.T * 0.125)) @ v
    }",
        "fuse-attention",
        "types",
        "write `cast<f16>(softmax(q @ k.T * 0.125))` instead of",
        "",
    ),
    (
        "through_f16",
        "pub fn f(q: f32[S, 64], k: f32[T, 64], v: f32[T, 64]) -> f32[S, 64] {
        let s = cast<f16>(q @ k.T) * 0.125
        softmax(cast<f32>(s)) @ v
    }",
        "fuse-attention",
        "types",
        "write `(q @ k.T)` instead of `cast<f16>(q @ k.T)`",
        "",
    ),
    (
        "heads",
        "pub fn f(q: f32[8, S, 64], k: f32[8, T, 64], v: f32[8, T, 64], c: f32[8, 1, 1]) -> f32[8, S, 64] {
        softmax(q @ k.T * (c * 0.1)) @ v
    }",
        "fuse-attention",
        "scale",
        "write `(q * (c * 0.1)) @ k.T` instead of",
        "S=5,T=7",
    ),
    (
        "queries",
        "pub fn f(q: f32[8, S, 64], k: f32[8, T, 64], v: f32[8, T, 64], d: f32[S, 1]) -> f32[8, S, 64] {
        let s = q @ k.T
        let t = s / (d * d + 1.0)
        softmax(t) @ v
    }",
        "fuse-attention",
        "scale",
        "write `(q / (d * d + 1.0)) @ k.T` instead of `s / (d * d + 1.0)`",
        "S=5,T=7",
    ),
    (
        "tapped_sink",
        "sink: f32
    pub fn f(q: f32[S, 64], k: f32[T, 64], v: f32[T, 64]) -> f32[S, 64] {
        let w = softmax(pad(q @ k.T, axis = -1, low = 0, high = 1, value = sink))
        tap w // all of them
        w[.., 0..T] @ v
    }",
        "fuse-attention",
        "uses",
        "remove `tap w`",
        "",
    ),
    (
        "panels",
        "a: f32[64, 16]
    b: f32[64, 64]
    pub fn f(x: f32[S, 64]) -> (f32[S, 16], f32[S, 64]) {
        let n = x * 2.0
        let p = n @ a // narrow
        let q = n @ b
        (softmax(p), softmax(q))
    }",
        "merge-matmuls",
        "shape",
        "move `let q = n @ b` before `let p = n @ a`",
        "S=5",
    ),
    (
        "rows",
        "w: f32[8, 8]
    u: f32[8, 8]
    pub fn f(xs: f32[S, 8], n: f32[B]) -> f32[8] where B <= S {
        var h = full<f32>(0, [8])
        for i in 0..B {
            h = tanh(xs[i] @ w + h @ u)
        }
        h
    }",
        "hoist-products",
        "steps",
        "write `xs[0..B][i]` instead of `xs[i]`",
        "S=5,B=3",
    ),
];

/// Programs whose remark has no edit: variables that mean something else where the edit would be, names of another function,
/// and conditions that nothing in the text can change.
const WITHOUT: [(&str, &str); 4] = [
    (
        "chain",
        "fn mask<S, T>(keep: bool[S, T]) -> f32[S, T] { where(keep, 0.0, -inf) }
model M {
    pub fn f(q: f32[S, 64], k: f32[T, 64], v: f32[T, 64], keep: bool[S, T]) -> f32[S, 64] {
        softmax(q @ k.T + mask(keep)) @ v
    }
}",
    ),
    (
        "scale",
        "model M {
    pub fn f(q: f32[8, S, 64], k: f32[8, T, 64], v: f32[8, T, 64], d: f32[S, 1]) -> f32[8, S, 64] {
        let s = q @ k.T
        let q = q + 1
        softmax(s / d) @ v + q
    }
}",
    ),
    (
        "scale",
        "model M {
    pub fn f(q: f32[8, S, 64], k: f32[8, T, 64], v: f32[8, T, 64], d: f32[S, T]) -> f32[8, S, 64] {
        softmax(q @ k.T * d) @ v
    }
}",
    ),
    (
        "uses",
        "model M {
    pub fn f(q: f32[S, 64], k: f32[T, 64], v: f32[T, 64]) -> (f32[S, 64], f32[S, T]) {
        let w = softmax(q @ k.T)
        (w @ v, w)
    }
}",
    ),
];

/// Did a command succeed; its stdout, and its stderr.
fn attnc(args: &[&str]) -> (bool, String, String) {
    let made = Command::new(env!("CARGO_BIN_EXE_attnc")).args(args).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (made.status.success(), text(made.stdout), text(made.stderr))
}

/// The missed rewrites of a program: pass, condition, edit.
fn missed(path: &str) -> Vec<(String, String, Value)> {
    let (ok, text, messages) = attnc(&[path, "--emit", "record=-"]);
    assert!(ok, "{path}: {messages}");
    let record: Value = serde_json::from_str(&text).unwrap();
    let remarks = record["remarks"].as_array().unwrap().iter().filter(|remark| !remark["missed"].is_null());
    let text = |value: &Value| value.as_str().unwrap().to_string();
    remarks.map(|remark| (text(&remark["pass"]), text(&remark["missed"]), remark["edit"].clone())).collect()
}

/// A text with changes by line and column.
fn changed(text: &str, changes: &Value) -> String {
    let offset = |line: &Value, column: &Value| {
        let (line, column) = (line.as_u64().unwrap() as usize, column.as_u64().unwrap() as usize);
        text.split_inclusive('\n').take(line - 1).map(str::len).sum::<usize>() + column - 1
    };
    let mut changes: Vec<(usize, usize, &str)> = changes
        .as_array()
        .unwrap()
        .iter()
        .map(|c| (offset(&c[1], &c[2]), offset(&c[3], &c[4]), c[5].as_str().unwrap()))
        .collect();
    changes.sort_by_key(|change| std::cmp::Reverse(change.0));
    changes.into_iter().fold(text.to_string(), |mut text, (start, end, new)| {
        text.replace_range(start..end, new);
        text
    })
}

fn written(folder: &Path, name: &str, text: &str) -> String {
    let path = folder.join(format!("{name}.attn"));
    std::fs::write(&path, text).unwrap();
    path.display().to_string()
}

#[test]
fn edited_programs_have_no_such_remark() {
    let folder = tempfile::tempdir().unwrap();
    for (name, body, pass, condition, title, sizes) in PROGRAMS {
        let text = format!("model M {{\n    {body}\n}}\n");
        let old = written(folder.path(), name, &text);
        let is_it = |(p, c, _): &&(String, String, Value)| (p.as_str(), c.as_str()) == (pass, condition);
        let found = missed(&old);
        let edit = &found.iter().find(is_it).unwrap_or_else(|| panic!("{name}: {found:?}")).2;
        assert!(edit["title"].as_str().is_some_and(|own| own.starts_with(title)), "{name}: {edit}");
        let text = changed(&text, &edit["changes"]);
        let new = written(folder.path(), &format!("{name}_edited"), &text);
        assert!(!missed(&new).iter().any(|one| is_it(&one)), "{text}");
        if !sizes.is_empty() {
            let (same, report, _) = attnc(&["compare", &old, &new, "--size", sizes]);
            assert!(same, "{report}{text}");
        }
    }
}

#[test]
fn no_edit_is_proposed_that_does_not_help() {
    let folder = tempfile::tempdir().unwrap();
    for (n, (condition, text)) in WITHOUT.iter().enumerate() {
        let found = missed(&written(folder.path(), &format!("p{n}"), text));
        let is_it = |(_, own, _): &(String, String, Value)| own == condition || *condition == "chain";
        assert!(found.iter().any(is_it) && found.iter().all(|(_, _, edit)| edit.is_null()), "{text}: {found:?}");
    }
}

#[test]
fn remarks_end_with_the_edits() {
    let folder = tempfile::tempdir().unwrap();
    let path = written(folder.path(), "m", &format!("model M {{ {} }}\n", PROGRAMS[4].1));
    let (_, _, text) = attnc(&[&path, "--emit", "ir=-", "--remarks"]);
    assert!(text.contains("\nhelp: m.attn:2:9: fuse-attention: write `softmax(q @ k.T * 0.125)` instead of"), "{text}");
}
