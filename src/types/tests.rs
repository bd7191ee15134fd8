//! Whole programs through the type checker.

use super::check;
use super::typed::Program;
use crate::diagnostics::{Diagnostics, render_all};
use crate::source::SourceMap;
use crate::syntax;

/// Checks a text; returns its program, its diagnostics, and these as text.
fn checked(name: &str, text: &str) -> (Program, Diagnostics, String) {
    let mut sources = SourceMap::new();
    let mut diagnostics = Diagnostics::new();
    let id = sources.add(name, text);
    let file = syntax::parse(id, text, &mut diagnostics);
    let program = check(&file, &mut sources, &mut diagnostics);
    let shown = render_all(&diagnostics, &sources, false);
    (program, diagnostics, shown)
}

#[test]
fn the_standard_library_and_the_examples_check() {
    for module in super::modules::MODULES {
        let (_, _, shown) = checked(module.file, module.text);
        assert_eq!(shown, "", "{}", module.path);
    }
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/examples");
    let mut paths: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "attn"));
    paths.sort();
    for path in paths {
        let text = std::fs::read_to_string(&path).unwrap();
        let (program, _, shown) = checked("example.attn", &text);
        assert_eq!(shown, "", "{}", path.display());
        assert!(program.models().count() > 0);
    }
}

/// The modules that a module uses are in scope only in that module.
#[test]
fn modules_that_modules_use() {
    let program = |uses: &str, body: &str| {
        let text = format!("{uses}\nfn f(x: f32[V], n: i64) -> i32 where V >= 1 {{ {body} }}\n");
        let (_, diagnostics, shown) = checked("example.attn", &text);
        (diagnostics.is_empty(), shown)
    };
    let (chosen, drawn) = ("decode.sample(x, n, n)", "random.bits(n, n)");
    assert_eq!(program("use std.decode", chosen), (true, String::new()));
    assert_eq!(program("use std.random\nuse std.decode", chosen), (true, String::new()));
    assert_eq!(program("use std.decode\nuse std.random", drawn), (true, String::new()));
    let (_, shown) = program("use std.decode", drawn);
    assert!(shown.contains("the module `random` is not used here"), "{shown}");
}

/// Settings for snapshots that hold an input and an output.
fn snapshot(name: &str, input: &str, output: &str) {
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path(concat!(env!("CARGO_MANIFEST_DIR"), "/snapshots/types"));
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.bind(|| insta::assert_snapshot!(name, format!("{}\n---\n{}", input.trim_end(), output.trim_end())));
}

#[test]
fn typed_programs_as_text() {
    for name in ["02_self_attention", "08_gpt2"] {
        let path = format!("{}/examples/{name}.attn", env!("CARGO_MANIFEST_DIR"));
        let text = std::fs::read_to_string(path).unwrap();
        let (program, _, _) = checked("example.attn", &text);
        let shown = super::dump::dump(&program, crate::source::FileId(0));
        snapshot(&format!("dump_{name}"), &text, &shown);
    }
}

/// Programs that must type-check, each for a rule that is easily broken.
#[test]
fn right_programs_check() {
    for (why, text) in [
        ("the program of the language's description", include_str!("tests/language.attn")),
        ("an equality makes two names one", "fn f(x: f32[S, D], y: f32[T, D]) -> f32[S, D] where S == T { x + y }"),
        (
            "an equality with a formula",
            "fn f<H, K>(x: f32[S, D], w: f32[H*K, F]) -> f32[S, F] where D == H * K { x @ w }",
        ),
        (
            "a generic and an argument",
            "layer L<D> { w: f32[D]\nfn forward(x: f32[S]) -> f32[S] where S == D { x * w } }",
        ),
        (
            "facts make quotients whole",
            "fn f<H>(x: f32[H, D/H]) -> f32[D] where D % H == 0 { rearrange(x, \"h d -> (h d)\") }",
        ),
        ("dimensions are compared in canonical form", "fn f(x: f32[S], y: f32[2*S]) -> f32[2*S] { concat(x, x) + y }"),
        (
            "a literal takes the other's type",
            "fn f(x: bf16[S], n: i8[S]) -> bf16[S] { where(n > 3, x * 0.5, 1) / sqrt(S) }",
        ),
        (
            "a let may be a dimension",
            "fn f(x: f32[S, 2*D]) -> f32[S, D] { let half = D\nx[.., 0..half] + x[.., half..] }",
        ),
        ("slices without facts become conditions", "fn f(x: f32[S, D]) -> f32[4, D] { x[2..6] }"),
        ("a vector is a row or a column", "fn f(w: f32[D], x: f32[.., S, D]) -> f32[.., S] { x @ w + (w @ x.T) }"),
        (
            "`..` may be in the middle",
            "fn f(x: f32[.., S, 3*D]) -> f32[.., S, D] { let (a, b, _c) = unbind(rearrange(x, \".. s (n d) -> n .. s d\", n = 3))\na * b }",
        ),
        ("several axes", "fn f(x: f32[B, S, D]) -> f32[B] { sum(x, axis = [S, 2]) }"),
        (
            "loops carry",
            "fn f(x: f32[S, D]) -> f32[D] { var acc = full<f32>(0, [D])\nfor i in 0..S { acc = acc + x[i] }\nacc }",
        ),
        (
            "branches have values",
            "fn f(x: f32[S], c: bool) -> f32[S] { var y = x\nif c { y = exp(y) } else if sum(x) > 0 { y = -y }\nif c { y } else { x } }",
        ),
        (
            "callees' dimensions are solved for",
            "fn g(x: f32[2*N+1]) -> f32[N] { x[0..N] }\nfn f(x: f32[4*S+1]) -> f32[2*S] { g(x) }",
        ),
        (
            "generics of functions",
            "fn g<N = 4, k: f32 = 2.0>(x: f32[S]) -> f32[N] { sum(x) * k * cast<f32>(iota(N)) }\nfn f(x: f32[S]) -> f32[4] { g(x) }",
        ),
        ("gather keeps `..`", "fn f(t: f32[V, D], i: i64[..]) -> f32[.., D] { t[i] }"),
        (
            "tuples",
            "fn g(x: f32[S]) -> (f32[S], f32) { (exp(x), 1) }\nfn f(x: f32[S]) -> f32[S] { let (a, b) = g(x)\na * b }",
        ),
    ] {
        let (_, _, shown) = checked("example.attn", text);
        assert_eq!(shown, "", "{why}");
    }
}

#[test]
fn deep_programs_do_not_end_the_stack() {
    for (open, close) in [("(", ")"), ("-", ""), ("exp(", ")"), ("{ ", " }"), ("1 + (", ")"), ("x[", "]")] {
        for depth in [200, 255, 300, 10_000] {
            let text = format!("fn f(x: f32[S]) -> f32[S] {{ {}x{} }}", open.repeat(depth), close.repeat(depth));
            checked("example.attn", &text);
        }
    }
    let pairs: String = (0..100).map(|i| format!("let a{} = (a{i}, a{i})\n", i + 1)).collect();
    let (_, diagnostics, _) = checked("example.attn", &format!("fn f(a0: f32[S]) -> f32[S] {{ {pairs}\na0 }}"));
    assert!(diagnostics.has_errors());
    let chain: String = (0..3_000).map(|i| format!("fn g{i}(x: f32[S]) -> f32[S] {{ g{}(x) }}\n", i + 1)).collect();
    let (_, diagnostics, _) = checked("example.attn", &format!("{chain}fn g3000(x: f32[S]) -> f32[S] {{ x }}\n"));
    assert_eq!(diagnostics.iter().map(|d| d.message.clone()).next(), None);
}
