//! Is each form of another language told apart by one message that shows how it is written here?
//!
//! For each: a program with that one form in it, what the help must show, and that what the advice makes of the program
//! checks without a word.

use attnc::diagnostics::{Diagnostics, Severity, apply_fixes, render_all};
use attnc::source::SourceMap;
use attnc::syntax;
use attnc::types;

pub(super) struct Told {
    pub(super) shown: String,
    pub(super) errors: usize,
    pub(super) changed: String,
}

pub(super) fn tell(text: &str) -> Told {
    let mut sources = SourceMap::new();
    let mut diagnostics = Diagnostics::new();
    let id = sources.add("habit.attn", text);
    let file = syntax::parse(id, text, &mut diagnostics);
    types::check(&file, &mut sources, &mut diagnostics);
    let errors = diagnostics.iter().filter(|d| d.severity == Severity::Error).count();
    let (changed, _) = apply_fixes(text, id, diagnostics.iter());
    Told { shown: render_all(&diagnostics, &sources, false), errors, changed }
}

/// The codes and the suggestions of a program's messages as JSON: level of certainty, and replacement.
fn suggestions(text: &str) -> Vec<(String, String)> {
    let mut sources = SourceMap::new();
    let mut diagnostics = Diagnostics::new();
    let id = sources.add("habit.attn", text);
    let file = syntax::parse(id, text, &mut diagnostics);
    types::check(&file, &mut sources, &mut diagnostics);
    let lines = attnc::diagnostics::json::render_all(&diagnostics, &sources);
    let values = lines.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let children = values.flat_map(|value| value["children"].as_array().unwrap().clone());
    let spans = children.flat_map(|child| child["spans"].as_array().unwrap().clone());
    let of = |span: serde_json::Value| {
        let word = |field: &str| span[field].as_str().unwrap_or_default().to_string();
        let at = |field: &str| span[field].as_u64().unwrap() as usize;
        let old = text.get(at("byte_start")..at("byte_end")).unwrap();
        (word("suggestion_applicability"), format!("{old} -> {}", word("suggested_replacement")))
    };
    spans.map(of).collect()
}

/// A function of these arguments and this result with a body that uses one expression.
fn function(head: &str, body: &str) -> String {
    format!("fn f{head} {{\n    {body}\n}}\n")
}

/// One error, with this advice; the program with the advice carried out has none.
fn one_error(why: &str, program: &str, advice: &str) {
    let told = tell(program);
    assert_eq!(told.errors, 1, "{why}:\n{program}\n{}", told.shown);
    assert!(told.shown.contains(advice), "{why}: `{advice}` is not in\n{}", told.shown);
    let again = tell(&told.changed);
    assert_eq!(again.errors, 0, "{why}:\n{}\n{}", told.changed, again.shown);
}

/// One error, with this advice in words.
fn one_error_in_words(why: &str, program: &str, advice: &str) {
    let told = tell(program);
    assert_eq!(told.errors, 1, "{why}:\n{program}\n{}", told.shown);
    assert!(told.shown.contains(advice), "{why}: `{advice}` is not in\n{}", told.shown);
}

fn free(why: &str, program: &str) {
    let told = tell(program);
    assert_eq!(told.shown, "", "{why}:\n{program}");
}

#[test]
fn a_second_argument_without_a_name_shows_both_readings() {
    let head = "(x: f32[S, D], w1: f32[D, D], w2: f32[D, D]) -> f32[S, D]";
    let program = function(head, "x + max(x @ w1, 0) @ w2");
    one_error("both readings", &program, "the elementwise maximum: `maximum(x @ w1, 0)`");
    one_error("both readings", &program, "along an axis: `max(x @ w1, axis = 0)`");
    let program = function("(x: f32[S, D]) -> f32[S, D]", "max(0, x)");
    one_error("a number and a tensor have one reading", &program, "write `maximum(0, x)`");
    let program = function("(x: f32[S], y: f32[S]) -> f32[S]", "min(x, y)");
    one_error("two tensors have one reading", &program, "write `minimum(x, y)`");
    let program = function("(x: f32[S, 4]) -> f32[S, 2]", "let (a, _) = split(x, 2)\n    a");
    one_error("split", &program, "`split(x, parts = 2)`");
    for (what, ty) in [("sum", "f32[S]"), ("mean", "f32[S]"), ("softmax", "f32[S, D]"), ("log_softmax", "f32[S, D]")] {
        let program = function(&format!("(x: f32[S, D]) -> {ty}"), &format!("{what}(x, 1)"));
        one_error(what, &program, &format!("write `{what}(x, axis = 1)`"));
    }
    let program = function("(x: bool[S, D]) -> bool[S]", "any(x, -1)");
    one_error("any", &program, "write `any(x, axis = -1)`");
    let program = function("(x: f32[2, D]) -> f32[D]", "let (a, b) = unbind(x, 0)\n    a + b");
    one_error("unbind", &program, "write `unbind(x, axis = 0)`");
    free("names are right", &function("(x: f32[S, D]) -> f32[D]", "max(x, axis = 0) + sum(x, axis = S, keep = false)"));
    free("two operands", &function("(x: f32[S, D]) -> f32[S, D]", "minimum(maximum(x, 0), 6)"));
}

#[test]
fn a_division_is_told_from_a_comment() {
    let dims = |line: &str| {
        format!(
            "fn f<H>(x: f32[S, D]) -> f32[S, D] where D % 2 == 0, D % H == 0, S % 2 == 0, S >= 2 {{\n    {line}\n}}\n"
        )
    };
    for (line, advice) in [
        ("let half = D // 2\n    x * half", "to divide, write `D / 2`"),
        ("let half = D //2 // of them\n    x * half", "to divide, write `D / 2`"),
        ("let half = D // H\n    x * half", "to divide, write `D / H`"),
        ("let half = 2 * D // (2 * H - H)\n    x * half", "to divide, write `D / b`"),
        ("let y = x[0..S // 2]\n    sum(y) + x", "to divide, write `S / 2`"),
        ("x + full<f32>(0, [S // 2 * 2, D])", "to divide, write `S / 2`"),
        ("x / (D // H)", "to divide, write `D / H`"),
        ("var y = x\n    for i in 0..S // 2 {\n        y = y + 1\n    }\n    y", "to divide, write `S / 2`"),
        ("x * 3 // 4", "to divide, write `3 / 4`"),
    ] {
        let program = dims(line);
        let told = tell(&program);
        assert_eq!(told.errors, 1, "{program}\n{}", told.shown);
        assert!(told.shown.contains("E0126") && told.shown.contains(advice), "{program}\n{}", told.shown);
    }
    for (line, what) in [
        ("let y = x + 1  // add one\n    y", "words"),
        ("let y = x  // 2 heads\n    y", "a number and words"),
        ("let y = x  // (S, D)\n    y", "a shape in parentheses"),
        ("let y = x  // (optional)\n    y", "a word in parentheses"),
        ("let y = x  // f32[S, D]\n    y", "a type"),
        ("let y = x  // 2-D\n    y", "a compound"),
        ("let y = x  // 1-based\n    y", "a compound"),
        ("let y = x @ x.T  // q @ k\n    y @ x", "a formula of tensors"),
        ("let y = x  // S\n    y", "the name of a dimension behind a tensor"),
        ("let y = x  // y = 2\n    y", "an assignment"),
        ("let n = D  // heads\n    x * n", "a word behind a dimension"),
        ("let y = x  // 1. first\n    y", "an item of a list"),
        ("let y = x  //\n    y", "nothing"),
        ("let y = x + // 2\n        1\n    y", "an expression that is not complete"),
        ("// 2\n    x", "a line of its own"),
        (
            "let y = concat(\n        x,  // 1\n        x,  // 2\n        axis = 0,\n    )\n    y[0..S]",
            "behind a comma",
        ),
    ] {
        let told = tell(&dims(line));
        assert!(!told.shown.contains("E0126"), "{what}: {line}\n{}", told.shown);
    }
    free(
        "the type of a field",
        "layer L<D> {\n    w: f32[D, 4*D]  // 4 * D\n    fn f(x: f32[D]) -> f32[4*D] { x @ w }\n}\n",
    );
}

#[test]
fn syntax_of_python_gives_one_error_each() {
    let x = "(x: f32[S, 4]) -> f32[S]";
    one_error("a column", &function(x, "x[:, 0]"), "write `x[0.., 0]`");
    one_error("an ellipsis", &function(x, "x[..., 0]"), "write `x[.., 0]`");
    let rows = "(x: f32[S, D]) -> f32[S, D] where S >= 3";
    one_error(
        "from",
        &function(rows, "concat(x[:1], x[1:], axis = 0)").replacen("x[:1]", "x[..1]", 1),
        "write `x[1..]`",
    );
    one_error("to", &function(rows, "concat(x[:1], x[1..], axis = 0)"), "write `x[..1]`");
    let reversed = "use an index that counts down: `x[S - 1 - iota(S)]`";
    one_error_in_words("backwards", &function(rows, "x[::-1]"), reversed);
    one_error_in_words("backwards, another entry", &function("(x: f32[S, 4]) -> f32[S]", "x[::-1, 0]"), reversed);
    one_error_in_words("backwards by a step", &function(rows, "x[0..S step -1]"), "`S-1 - iota(S)`");
    one_error(
        "a comment",
        &function(x, "# one column\n    x[.., 0] # the first"),
        "begins with `//` and ends at the end of the line",
    );
    let both = "(x: f32[S], c: bool) -> f32[S]";
    one_error(
        "a choice",
        &function(both, "let y = x + 1 if c else exp(x)\n    y"),
        "write `if c { x + 1 } else { exp(x) }`",
    );
    one_error("a choice in a call", &function(both, "exp(x if c else -x)"), "write `if c { x } else { -x }`");
    one_error(
        "a choice of choices",
        &function(both, "let y = (x if c else x + 1)\n    y"),
        "write `if c { x } else { x + 1 }`",
    );
    one_error(
        "several names",
        &function("(x: f32[2, S]) -> f32[S]", "let a, b = unbind(x)\n    a + b"),
        "write `let (a, b)`",
    );
    one_error(
        "several names without let",
        &function("(x: f32[2, S]) -> f32[S]", "a, b = unbind(x)\n    a + b"),
        "write `let (a, b)`",
    );
    one_error("several results", &function("(x: f32[S]) -> f32[S], f32[S]", "(x, x + 1)"), "write `(f32[S], f32[S])`");
    one_error("several values", &function("(x: f32[S]) -> (f32[S], f32[S])", "x, x + 1"), "write `(x, x + 1)`");
    one_error("a power", &function("(x: f32[S]) -> f32[S]", "2 * x ** 2"), "write `pow(x, 2)`");
    one_error(
        "a power of a call",
        &function("(x: f32[S]) -> f32[S]", "exp(x)[0..] ** (1 + 1)"),
        "write `pow(exp(x)[0..], (1 + 1))`",
    );
    one_error("a root", &function("(x: f32[S, D]) -> f32[S, D]", "x / D ** 0.5"), "write `sqrt(D)`");
    one_error("a transpose", &function("(x: f32[S, D]) -> f32[S, S]", "x @ x^T"), "write `x.T`");
    one_error("an update", &function("(x: f32[S]) -> f32[S]", "var y = x\n    y += 1\n    y"), "write `y = y + 1`");
    one_error(
        "an update by a sum",
        &function("(x: f32[S]) -> f32[S]", "var y = x\n    y *= x + 1\n    y"),
        "write `y = y * (x + 1)`",
    );
    one_error("a type", "fn f(n: int[S]) -> i32[S] { n + 1 }\n", "write `i32[S]`");
    one_error("a float type", "fn f(x: float) -> f32 { x + 1 }\n", "write `f32`");
    one_error_in_words("a type without a shape", "fn f(x: Tensor) -> f32 { sum(x) }\n", "`f32[S, D]`");
    one_error("def", "def f(x: f32[S]) -> f32[S] { x }\n", "functions are declared with `fn`");
    one_error(
        "self",
        "layer L<D> {\n    w: f32[D]\n    fn f(self, x: f32[D]) -> f32[D] { x * self.w + self.w }\n}\n",
        "by name alone",
    );
    one_error("a block", &function(both, "var y = x\n    if c:\n        y = y + 1\n    y"), "write `{` instead of `:`");
    one_error(
        "blocks in blocks",
        "fn f(x: f32[S], c: bool) -> f32[S]:\n    var y = x\n    for i in 0..3:\n        if c:\n            y = y + 1\n        else:\n            y = y - 1\n    y\n",
        "write `{` instead of `:`",
    );
    one_error("return", &function("(x: f32[S]) -> f32[S]", "return x + 1"), "the last expression");
    one_error_in_words("an early return", &function(both, "if c { return x }\n    -x"), "`if c { a } else { b }`");
    one_error("elif", &function(both, "if c { x } elif not c { -x } else { x + 1 }"), "write `else if`");
    one_error("import", "import math\nfn f(x: f32[S]) -> f32[S] { x }\n", "operations need no import");
    one_error(
        "a text as a comment",
        "fn f(x: f32[S]) -> f32[S] {\n    \"\"\"Nothing.\"\"\"\n    x\n}\n",
        "a comment begins with `//`",
    );
    one_error(
        "a variable called var",
        &function("(x: f32[S]) -> f32[S]", "let var = x * x\n    x / sqrt(var + 1)"),
        "such as `variance`",
    );
    let field =
        "use std.nn\nlayer L<D> {\n    proj: nn.Linear(D, D)\n    fn forward(x: f32[D]) -> f32[D] { proj(x) }\n}\n";
    one_error("generics in parentheses", field, "write `Linear<D, D>`");
    one_error("a field with a value", &field.replace("proj: ", "proj = "), "write `proj: Linear<D, D>`");
}

#[test]
fn a_broken_entry_point_is_no_missing_one() {
    let model = |line: &str| {
        format!("model M<D = 4> {{\n    pub fn forward(x: f32[S, D]) -> f32[S] {{\n        {line}\n    }}\n}}\n")
    };
    one_error("a column", &model("x[:, 0]"), "write `x[0.., 0]`");
    let told = tell("model M<D = 4> {\n    pub fn forward(x: f32[S, D] -> f32[S] {\n        x[.., 0]\n    }\n}\n");
    assert!(!told.shown.contains("E0602"), "{}", told.shown);
    let told = tell(&model("let y = x $ 2 ^^ 3\n        y + y + y"));
    assert!(!told.shown.contains("there is no `y`"), "{}", told.shown);
}

#[test]
fn functions_of_other_libraries_show_how_they_are_written() {
    let x = "(x: f32[S, D]) -> f32[S, D]";
    for (line, advice) in [
        ("x + ones(S, D)", "write `full<f32>(1, [S, D])`"),
        ("x + zeros((S, D))", "write `full<f32>(0, [S, D])`"),
        ("x + ones_like(x)", "write `full<f32>(1, [S, D])`"),
        ("x + cast<f32>(arange(D))", "write `iota(D)`"),
        ("concat(x, x, axis = 1)[0.., 0..D] + cat([x, x], dim=0)[0..S]", "write `concat(x, x, axis = 0)`"),
        ("softmax(x, dim=-1)", "write `softmax(x, axis = -1)`"),
        ("x - mean(x, dim=-1, keepdim=True)", "write `mean(x, axis = -1, keep = true)`"),
        ("x - mean(x, axis=-1, keep=True)", "write `mean(x, axis = -1, keep = true)`"),
        ("x - x.mean(-1, keepdim=True)", "write `mean(x, axis = -1, keep = true)`"),
        ("x.softmax(-1)", "write `softmax(x, axis = -1)`"),
        ("torch.exp(x)", "write `exp(x)`"),
        ("x - sum(x, axis = (0, 1))", "write `sum(x, axis = [0, 1])`"),
        ("x / len(x)", "write `S`"),
        ("x / x.shape[1]", "write `D`"),
        ("x / shape(x)[0]", "write `S`"),
        ("x / x.size(-1)", "write `D`"),
        ("dropout(x, 0.1)", "write `x`"),
        ("linear(x, full<f32>(1, [D, D]))", "write `x @ full<f32>(1, [D, D]).T`"),
        ("matmul(x, x.T) @ x", "write `x @ x.T`"),
        ("x.transpose(0, 1).T", "write `x.T`"),
        ("unsqueeze(x, 1)[0.., 0]", "write `rearrange(x, \"a b -> a 1 b\")`"),
        ("clamp(x, min=0, max=6)", "write `minimum(maximum(x, 0), 6)`"),
        ("masked_fill(x, x > 0, 0)", "write `where(x > 0, 0, x)`"),
        ("where(causal(S, S) == 0, 0, x @ x.T) @ x", "write `not causal(S, S)`"),
        ("where(tril(full<f32>(1, [S, S])), x @ x.T, 0) @ x", "write `causal(S, S)`"),
        ("repeat_interleave(x, 2, dim=0)[0..S]", "* full<f32>(1, [1, 2, 1]), \"a n b -> (a n) b\")`"),
        ("where(x > 0, x, float(\"-inf\"))", "write `-inf`"),
        ("x[-1] + x", "write `S-1` to count from the end"),
        ("x + sum(x[..-1], axis = 0)", "write `S-1`"),
        ("einsum(\"sd,td->st\", x, x) @ x", "write `\"s d, t d -> s t\"`"),
        ("rearrange(x, \"sd->ds\").T", "write `\"s d -> d s\"`"),
        ("var y = x\n    for t in range(S) { y = y + x[t] }\n    y", "write `0..S`"),
        ("let y = x + 1\n    print(y)\n    y", "write `tap y`"),
        ("q = x + 1\n    q * q", "declare it: `let q = ..`"),
        ("q = x + 1\n    q = q + 1\n    q", "declare it: `var q = ..`"),
        ("h = x\n    for t in 0..S { h = h + x[t] }\n    h", "declare it: `var h = ..`"),
        ("let y = x\n    y = y + 1\n    y", "declare it with `var`"),
        ("let y: f32[S, D] = x\n    if True { y } else { -y }", "write `true`"),
    ] {
        one_error(line, &function("(x: f32[S, D]) -> f32[S, D] where S >= 1", line), advice);
    }
    for (line, advice) in [
        ("tile(x, 2)", "axes of length 1 are broadcast"),
        ("repeat(x, 2)", "axes of length 1 are broadcast"),
        ("layer_norm(x)", "make it a field, `norm: LayerNorm<D>`"),
        ("nn.Linear(x)", "make it a field, `proj: Linear<I, O>`"),
        ("reshape(x, 3)", "with a pattern"),
        ("print(x + 1)\n    x", "name the value first"),
    ] {
        one_error_in_words(line, &function(x, line), advice);
    }
}

#[test]
fn a_name_that_is_not_known_is_told_once() {
    let told = tell(&function("(x: f32[S]) -> f32[S]", "let y = x + scale\n    y * scale + scale"));
    assert_eq!(told.errors, 1, "{}", told.shown);
}

#[test]
fn clauses_of_one_where_see_each_other() {
    let body = "{ rearrange(rearrange(x, \"s (h e) -> s h e\", h = H), \"s h e -> s (h e)\") }\n";
    for clauses in [
        "D % H == 0, D / H % 2 == 0",
        "D / H % 2 == 0, D % H == 0",
        "D / H % 2 == 0 and D % H == 0",
        "D / H >= 2, D % H == 0",
    ] {
        free(clauses, &format!("fn f<H>(x: f32[S, D]) -> f32[S, D] where {clauses} {body}"));
    }
    let half =
        "fn f<H>(x: f32[H, D / H]) -> f32[H, D / H / 2] where D % H == 0, D / H % 2 == 0 { x[0.., 0..D / H / 2] }\n";
    free("what a later clause states of an earlier one's quotient", half);
    // A condition that is not stated is still requested, once.
    one_error_in_words(
        "nothing states it",
        "fn f<H>(x: f32[S, D]) -> f32[S, D] where D / H % 2 == 0 { x }\n",
        "state it: `where D % H == 0`",
    );
}

#[test]
fn literals_that_overflow_are_errors() {
    let x = |ty: &str, line: &str| format!("fn f(x: {ty}[S]) -> {ty}[S] {{ {line} }}\n");
    for (program, advice) in [
        (x("f32", "x * 1e39"), "1e39 is too large for `f32`"),
        (x("f32", "x * -1e300"), "infinity is written `inf`"),
        (x("f16", "x + 1e5"), "1e5 is too large for `f16`, whose largest number is 65504"),
        (x("f16", "x + 70000"), "70000 is out of the range of `f16`"),
        (x("f16", "x * -65520.0"), "65504"),
        (x("f32", "let y = 4e38\nx * y"), "is too large for `f32`"),
        (
            "layer L<D, eps = 1e39> {\n    fn f(x: f32[D]) -> f32[D] { x + eps }\n}\n".to_string(),
            "is too large for `f32`",
        ),
    ] {
        let told = tell(&program);
        assert!(told.errors >= 1 && told.shown.contains("E0322"), "{program}\n{}", told.shown);
        let advice = advice.replace("1e5", "100000.0");
        assert!(told.shown.contains(&advice), "`{advice}` is not in\n{}", told.shown);
    }
    for program in [
        x("f32", "x * inf"),
        x("f32", "where(x > 0, x, -inf)"),
        x("f32", "x * 3.4028234e38"),
        x("f16", "x + 65504"),
        x("f16", "x * 65519.0"),
        x("bf16", "x * 3e38"),
        x("f16", "x + cast<f16>(1e5)"),
    ] {
        free("what fits, and what is written `inf`", &program);
    }
}

#[test]
fn what_differs_is_not_told_as_equal() {
    let model = "model M<H = 3> {\n    w: f32[H]\n    pub fn forward(x: f32[3]) -> f32[H] { g(x) + w }\n}\nfn g<H>(x: f32[H]) -> f32[H] { x }\n";
    let told = tell(model);
    assert!(!told.shown.contains("(3) is not 3"), "{}", told.shown);
    for line in ["x @ w", "einsum(\"s h, h -> s\", x, w)", "sum(x + w, axis = 1)"] {
        let model =
            format!("model M<H = 3> {{\n    w: f32[H]\n    pub fn forward(x: f32[S, 3]) -> f32[S] {{ {line} }}\n}}\n");
        one_error_in_words(line, &model, "H is 3 only by default, and may be bound to another number");
    }
    let told = tell("model M<H = 3> {\n    pub fn forward(x: f32[3]) -> f32[H] { x }\n}\n");
    assert!(told.shown.contains("H is 3 only by default"), "{}", told.shown);
}

#[test]
fn names_of_patterns_may_be_those_of_arguments() {
    free("`x` in a pattern", "fn f(a: f32[S, 4]) -> f32[S, 2, 2] { rearrange(a, \"s (y x) -> s y x\", x = 2) }\n");
    free(
        "`pattern` in a pattern",
        "fn f(a: f32[S, 4]) -> f32[S, 2, 2] { rearrange(a, \"s (pattern x) -> s pattern x\", pattern = 2) }\n",
    );
    let told = tell("fn f(a: f32[S, 4]) -> f32[S, 2, 2] { rearrange(a, \"s (y x) -> s y x\", x = 2, x = 2) }\n");
    assert!(told.shown.contains("the length of `x` is given twice"), "{}", told.shown);
}

#[test]
fn a_mask_is_padded_with_false() {
    free("without a value", "fn f(m: bool[S]) -> bool[S + 1] { pad(m, low = 1) }\n");
    free("with one", "fn f(m: bool[S]) -> bool[S + 2] { pad(m, high = 2, value = true) }\n");
}

#[test]
fn an_argument_that_would_broadcast_is_told_how() {
    let callee = "fn g(x: f32[B, S, S], mask: bool[B, S, S]) -> f32[B, S, S] { where(mask, x, 0) }\n";
    let program = format!("{callee}fn f(x: f32[B, S, S], mask: bool[B, 1, S]) -> f32[B, S, S] {{ g(x, mask) }}\n");
    one_error("a mask", &program, "`mask and full<bool>(true, [B, S, S])`");
    let program = program.replace("bool", "f32").replace("where(mask, x, 0)", "mask * x");
    one_error("numbers", &program, "`mask + full<f32>(0, [B, S, S])`");
    let callee = "fn g(x: f32[.., S, S], mask: bool[.., S, S]) -> f32[.., S, S] { where(mask, x, 0) }\n";
    let program = format!("{callee}fn f(x: f32[B, S, S], mask: bool[B, 1, S]) -> f32[B, S, S] {{ g(x, mask) }}\n");
    one_error("behind `..`", &program, "`mask and full<bool>(true, [S, S])`");
}

#[test]
fn a_name_is_suggested_only_if_it_is_known_and_the_call_checks() {
    // Neither is known: the one that was reported first is no suggestion for the other.
    let told = tell(&function("(x: f32[S, D]) -> f32[S, D]", "x @ wqa + x @ wka"));
    assert!(told.errors == 2 && !told.shown.contains("did you mean"), "{}", told.shown);
    let x = "(x: f32[S, D], y: f32[S, D]) -> f32[S, D]";
    for (line, near) in [("sofmtax(x, axis = 0)", "sofmtax -> softmax"), ("maximun(x, y)", "maximun -> maximum")] {
        let found = suggestions(&function(x, line));
        assert_eq!(found, [("MaybeIncorrect".to_string(), near.to_string())], "{line}");
    }
    // `maximum` of one operand would not check.
    let told = tell(&function(x, "maximun(x)"));
    assert!(told.errors == 1 && !told.shown.contains("did you mean"), "{}", told.shown);
    // Functions of other libraries, of which none means the one that is spelt like it.
    for name in [
        "elu", "selu", "celu", "glu", "log2", "log10", "exp2", "tan", "asin", "acos", "erfc", "relu6", "cosh", "sinh",
        "sinc", "conj", "norm", "mode", "cross", "pinv", "square", "scale", "expit", "logit", "atan", "sgn", "mish",
        "i0", "pool", "prod", "trace", "diff", "flip", "roll", "histc", "kron", "polar", "std", "diag", "map",
    ] {
        let told = tell(&function(x, &format!("{name}(x)")));
        assert!(told.errors >= 1 && !told.shown.contains("did you mean"), "{name}:\n{}", told.shown);
    }
}

#[test]
fn a_variable_of_another_type_is_another_variable() {
    let x = "(x: f32[S, D]) -> f32[D, D]";
    one_error(
        "by let",
        &function(x, "let q = x\n    q = q.T @ q\n    q"),
        "declare another one with its name: `let q = ..`",
    );
    one_error("an argument", &function(x, "x = x.T @ x\n    x"), "declare another one with its name: `let x = ..`");
    let both = "(x: f32[S, D], c: bool) -> f32[S, D]";
    let inside = function(both, "let q = x\n    if c {\n        q = q.T\n    }\n    q");
    one_error_in_words("in a block", &inside, "give this value another name");
}

#[test]
fn a_fact_that_is_missing_is_told_once() {
    let layer = "layer Heads<D, H> {
    w: f32[H, D/H]
    b: f32[D/H]
    fn split(x: f32[S, D]) -> f32[H, S, D/H] { rearrange(x, \"s (h d) -> h s d\", h = H) }
    fn forward(x: f32[S, D]) -> f32[S, D] {
        let s = split(x) @ split(x).T / sqrt(D / H)
        rearrange(s @ rearrange(x, \"s (h d) -> h s d\", h = H), \"h s d -> s (h d)\") + rearrange(w, \"h d -> (h d)\")
    }
}
";
    one_error_in_words("one clause", layer, "state it: `where D % H == 0`");
    let found = suggestions(layer);
    assert_eq!(found, [("MaybeIncorrect".to_string(), " ->  where D % H == 0".to_string())]);
    free("with it", &layer.replace("H> {", "H> where D % H == 0 {"));
    let other = layer.replace("Heads<D, H> {", "Heads<D, H> where D >= 2 {");
    assert_eq!(suggestions(&other), [("MaybeIncorrect".to_string(), " -> , D % H == 0".to_string())]);
    let told = tell(&format!("{layer}{}", layer.replace("Heads", "Others")));
    assert_eq!(told.errors, 2, "each layer states its own: {}", told.shown);
}

#[test]
fn both_readings_are_changes() {
    let found = suggestions(&function("(x: f32[S, 4]) -> f32[S, 4]", "max(x, 0)"));
    let wanted =
        [("MachineApplicable", "max(x, 0) -> maximum(x, 0)"), ("MaybeIncorrect", "max(x, 0) -> max(x, axis = 0)")];
    assert_eq!(found, wanted.map(|(level, change)| (level.to_string(), change.to_string())));
}
