//! Is every part of the language read as it should be, and every mistake in it explained?

use attnc::diagnostics::{Diagnostics, render_all};
use attnc::source::SourceMap;
use attnc::syntax::{dump, parse, tokens};

/// What is made of a program.
struct Read {
    tokens: String,
    tree: String,
    messages: String,
}

fn read(text: &str) -> Read {
    let mut sources = SourceMap::new();
    let file = sources.add("test.attn", text);
    let mut diagnostics = Diagnostics::new();
    let tree = parse(file, text, &mut diagnostics);
    let messages = render_all(&diagnostics, &sources, false);
    let source = sources.get(file).expect("it was added");
    let lexemes = tokens(file, text, &mut Diagnostics::new());
    Read { tokens: dump::tokens(&lexemes, source), tree: dump::ast(&tree, source), messages }
}

/// A snapshot of a program and what came of it.
fn snapshot(name: &str, program: &str, output: &str) {
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path(concat!(env!("CARGO_MANIFEST_DIR"), "/snapshots/syntax"));
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.bind(|| insta::assert_snapshot!(name, format!("{program}\n────\n{output}")));
}

/// The tree of a program without mistakes.
fn tree(name: &str, program: &str) {
    let read = read(program);
    assert_eq!(read.messages, "", "{name}");
    snapshot(&format!("tree_{name}"), program, &read.tree);
}

/// The messages about a program, and the tree of what could be read all the same.
fn errors(name: &str, codes: &[&str], program: &str) {
    let read = read(program);
    let found: Vec<&str> =
        read.messages.lines().filter_map(|line| Some(line.split_once('[')?.1.split_once("]:")?.0)).collect();
    assert_eq!(found, codes, "{name}:\n{}", read.messages);
    snapshot(&format!("error_{name}"), program, &format!("{}{}", read.messages, read.tree));
}

/// The tree of an expression, for precedence.
fn expr(text: &str) -> String {
    let program = format!("fn f() {{ {text} }}");
    let read = read(&program);
    assert_eq!(read.messages, "", "{text}");
    let line = read.tree.lines().last().unwrap_or_default();
    line.split_once("value ").map_or(line, |(_, value)| value).to_string()
}

#[test]
fn precedence_is_pythons() {
    for (text, expected) in [
        ("a + b * c", "(+ a (* b c))"),
        ("a - b - c", "(- (- a b) c)"),
        ("a @ b / c", "(/ (@ a b) c)"),
        ("a / b @ c", "(@ (/ a b) c)"),
        ("a * b @ c % d", "(% (@ (* a b) c) d)"),
        ("-a * b", "(* (- a) b)"),
        ("-a.T", "(- a.T)"),
        ("- - +a", "(- (- (+ a)))"),
        ("a * -b", "(* a (- b))"),
        ("-x[0]", "(- x[0])"),
        ("not a == b", "(not (== a b))"),
        ("not not a", "(not (not a))"),
        ("a and b or c and d", "(or (and a b) (and c d))"),
        ("a or not b and c", "(or a (and (not b) c))"),
        ("a + 1 < b * 2", "(< (+ a 1) (* b 2))"),
        ("(a < b) == c", "(== (< a b) c)"),
        ("a < -1", "(< a (- 1))"),
        ("(a + b) * c", "(* (+ a b) c)"),
        ("f(x)(y)[0].T", "f(x)(y)[0].T"),
        ("f(x, axis = -1,)", "f(x, axis = (- 1))"),
        ("where(c, a, b) + 1", "(+ where(c, a, b) 1)"),
        ("cast<bf16>(x) @ w", "(@ cast<bf16>(x) w)"),
        ("full<f32>(0, [S, 2*D])", "full<f32>(0, [S, (* 2 D)])"),
        ("random.uniform(seed, i)", "random.uniform(seed, i)"),
        ("x[.., 0]", "x[.., 0]"),
        ("x[1..S, .., ..n, n.., i + 1]", "x[1..S, .., ..n, n.., (+ i 1)]"),
        ("1 + if c { a } else { b }", "(+ 1 (if c {a} else {b}))"),
        ("{ let y = 1; y + 1 } * 2", "(* {let y = 1; (+ y 1)} 2)"),
        ("(a, b)", "(tuple a, b)"),
        ("(a,)", "(tuple a)"),
        ("1e-5 + 0.5 + 0x1f + 1_000 + inf", "(+ (+ (+ (+ 1e-5 0.5) 31) 1000) inf)"),
        ("\"s d \\\"q\\\" -> d\"", "\"s d \\\"q\\\" -> d\""),
    ] {
        let found = expr(text);
        assert_eq!(found, expected, "{text}");
    }
}

#[test]
fn soft_keywords_are_names_elsewhere() {
    let read = read(
        "fn f(state: f32[S], model: f32[S], tap: f32[S]) -> f32[S] {\n    let layer = state + model\n    var reset = tap\n    \
         reset = layer\n    tap reset\n    reset\n}\n",
    );
    assert_eq!(read.messages, "");
}

/// A comment after the `>` that closes the generics of a field does not join it to the next line.
#[test]
fn fields_with_generics_end_before_comments() {
    for comment in ["// Of x.", "/// Of x."] {
        let read = read(&format!("layer A<D> {{\n    a: B<D>  {comment}\n    b: f32[D]\n}}\n"));
        assert!(!read.messages.contains("error"), "{}", read.messages);
    }
}

#[test]
fn windows_line_ends_and_byte_order_marks_are_read() {
    let read = read("\u{feff}fn f(x: f32[S]) -> f32[S] {\r\n    let y = x\r\n    y\r\n}\r\n");
    assert_eq!(read.messages, "");
}

#[test]
fn an_empty_text_is_a_program_without_items() {
    for text in ["", "\n\n", "// nothing\n"] {
        let read = read(text);
        assert_eq!((read.messages.as_str(), read.tree.as_str()), ("", ""), "{text:?}");
    }
}

#[test]
fn tokens_are_shown_as_the_grammar_reads_them() {
    let program = "/// Twice.\nfn twice(x: f32[.., D]) -> f32[.., D] {\n    let y = x +\n        x   // joined\n    tap y; y\n}\n";
    snapshot("tokens", program, &read(program).tokens);
}

#[test]
fn trees_of_items_and_members() {
    tree(
        "items",
        "\
use std.nn

/// A norm.
/// Of two lines.
#[name = \"ln\"]
layer Norm<D, eps = 1e-5, scale: f32 = 1.0>
    where D % 2 == 0, D > 0
{
    /// The gain.
    #[name = \"gamma\"]
    weight: f32[D], bias: f32[D]
    inner: nn.Linear<D, 4*D, bias = false>
    state k: f32[4, D] = 0.0; state v: f32[4, D]

    fn forward(
        /// What is normed.
        x: f32[.., D],
        keep: bool = false,
    ) -> f32[.., D] where D <= 1024 {
        x
    }
}

model Many<
    L = 12,
    D = 768
> {
    h: [Norm<D, eps = 1e-6>; L]
    grid: [[Norm<D>; 2]; L],
    pub fn encode(tokens: i32[S]) -> (f32[S, D], f32) { (h[0](tokens), 1.0) }
    pub fn step() { }
}

fn helper<N>(x: f32[N]) -> f32[N] { x }
",
    );
}

#[test]
fn trees_of_statements() {
    tree(
        "statements",
        "\
model Rnn<H = 4> {
    state h: f32[H]

    pub fn run(x: f32[T, H], n: i32) -> f32[H] {
        let (a, (b, _)) = f(x)
        var sum: f32[H] = full<f32>(0, [H])
        for t in 0..T {
            sum = sum + x[t]
            if any(sum > 10) { break }
        }
        for block in h { sum = block(sum) }
        while n < 3 and not done {
            n = n + 1
        }
        h[.., 0..2] = sum
        (a, b) = f(a)
        let y = if n == 0 {
            a
        } else if n == 1 { b }
        else {
            let z = a @
                b
            z
        }
        tap y
        reset h
        let long = (a
            + b)
        let w = where(y > 0, y, -inf)
        w
    }
}
",
    );
}

#[test]
fn lexical_mistakes() {
    errors(
        "unknown_character",
        &["E0102", "E0102", "E0102"],
        "fn f(x: f32[S]) -> f32[S] {\n    let y = x × 2 $ 1\n    let größe = y\n    y\n}\n",
    );
    errors(
        "open_string",
        &["E0103"],
        "fn f(x: f32[S, D]) -> f32[D, S] {\n    let y = rearrange(x, \"s d -> d s)\n    y\n}\n",
    );
    errors(
        "numbers",
        &["E0104", "E0104", "E0104", "E0104", "E0104"],
        "fn f(x: f32[2D]) -> f32[D] {\n    let a = 99999999999999999999 + 0x + 0xfg\n    let b = 1e-\n    x\n}\n",
    );
    errors(
        "foreign_operators",
        &["E0109", "E0109", "E0109", "E0109", "E0109"],
        "fn f(a: bool, b: bool, x: f32) -> f32 {\n    let c = a && !b || a\n    x += 1\n    x ** 2\n}\n",
    );
    errors("single_quotes", &["E0109"], "fn f(x: f32[S, D]) -> f32[D, S] {\n    rearrange(x, 's d -> d s')\n}\n");
    errors("escape", &["E0117"], "fn f(x: f32[S, D]) -> f32[D, S] {\n    rearrange(x, \"s d \\> d s\")\n}\n");
    errors("block_comment", &["E0123"], "/* all of\n it */\nfn f(x: f32[S]) -> f32[S] { x }\n");
}

#[test]
fn brackets_that_do_not_match() {
    errors(
        "unclosed_call",
        &["E0105"],
        "fn f(x: f32[S]) -> f32[S] {\n    let y = exp(x * (x + 1)\n    let z = y\n    z\n}\n\nfn g(x: f32[S]) -> f32[S] { x }\n",
    );
    errors(
        "unclosed_function",
        &["E0105"],
        "layer A {\n    fn f(x: f32[S]) -> f32[S] {\n        for i in 0..3 {\n            x = x\n        x\n    }\n\n    fn g(x: f32[S]) -> f32[S] { x }\n}\n",
    );
    errors("unclosed_layer", &["E0105"], "layer A {\n    w: f32[D]\n\nlayer B {\n    w: f32[D]\n}\n");
    errors("unclosed_at_the_end", &["E0105", "E0105"], "layer A {\n    w: f32[D\n");
    errors("wrong_closing", &["E0105"], "fn f(x: f32[S]) -> f32[S] {\n    f(x, [1, 2)\n}\n");
    errors("unopened", &["E0106", "E0106"], "fn f(x: f32[S]) -> f32[S] {\n    exp(x))\n}\n}\n");
}

#[test]
fn mistakes_in_statements() {
    errors("chained_comparison", &["E0108"], "fn f(x: f32[S]) -> bool[S] {\n    0 < x <= 1\n}\n");
    errors(
        "assign_in_condition",
        &["E0110"],
        "fn f(x: f32[S], i: i32) -> f32[S] {\n    if i = 0 { x } else { -x }\n}\n",
    );
    errors("compare_in_let", &["E0110"], "fn f(x: f32[S]) -> f32[S] {\n    let y == x\n    y\n}\n");
    errors(
        "leading_operator",
        &["E0112", "E0112"],
        "fn f(x: f32[S]) -> f32[S] {\n    let y = x\n        * 2\n        @ x\n    y\n}\n",
    );
    errors("leading_minus", &["E0120"], "fn f(x: f32[S]) -> f32[S] {\n    let y = x\n        - 2\n    y\n}\n");
    errors("return", &["E0113"], "fn f(x: f32[S]) -> f32[S] {\n    let y = x\n    return y\n}\n");
    errors("assign_to_a_sum", &["E0118"], "fn f(x: f32[S]) -> f32[S] {\n    x + 1 = 2\n    x\n}\n");
    errors("assign_to_a_call", &["E0118"], "fn f(x: f32[S]) -> f32[S] {\n    g(x)[0] = 2\n    x\n}\n");
    errors("unused_value", &["E0120"], "fn f(x: f32[S]) -> f32[S] {\n    x + 1\n    x\n}\n");
    errors("two_on_a_line", &["E0124"], "fn f(x: f32[S]) -> f32[S] {\n    let y = x let z = y\n    z\n}\n");
    errors("two_values_on_a_line", &["E0124"], "fn f(x: f32[S]) -> f32[S] {\n    exp x\n}\n");
    errors(
        "no_value",
        &["E0125", "E0125"],
        "fn f(x: f32[S]) -> f32[S] {\n    var y\n    let (a, b): f32[S]\n    y\n}\n",
    );
    errors(
        "half_a_let",
        &["E0101", "E0101"],
        "fn f(x: f32[S]) -> f32[S] {\n    let a =\n    let b = a +\n    let c = 1\n    c\n}\n",
    );
    errors(
        "for_without_in",
        &["E0101", "E0101"],
        "fn f(x: f32[S]) -> f32[S] {\n    for i 0..3 {\n        x = = x\n    }\n    x\n}\n",
    );
    errors("if_without_block", &["E0101"], "fn f(x: f32[S], c: bool) -> f32[S] {\n    if c x else { y }\n}\n");
    errors("lost_doc", &["E0122", "E0122"], "fn f(x: f32[S]) -> f32[S] {\n    /// nothing\n    x\n}\n/// nor this\n");
}

#[test]
fn mistakes_in_expressions() {
    errors("missing_comma", &["E0115", "E0115"], "fn f(x: f32[S D]) -> f32[S, D] {\n    softmax(x axis = -1)\n}\n");
    errors("type_as_value", &["E0121"], "fn f(x: f32[S]) -> bf16[S] {\n    bf16(x)\n}\n");
    errors("argument_order", &["E0119"], "fn f(x: f32[S]) -> f32[S] {\n    softmax(axis = -1, x)\n}\n");
    errors(
        "operator_without_operand",
        &["E0101", "E0101", "E0101"],
        "fn f(x: f32[S]) -> f32[S] {\n    let a = x * / 2\n    let b = x + \n    let c = f(x, , x)\n    c\n}\n",
    );
    errors("index", &["E0101"], "fn f(x: f32[S]) -> f32[S] {\n    x[1..2..3]\n}\n");
    errors("empty_parentheses", &["E0101"], "fn f(x: f32[S]) -> f32[S] {\n    x + ()\n}\n");
}

#[test]
fn mistakes_in_items_and_members() {
    errors(
        "missing_fn",
        &["E0111"],
        "layer A {\n    w: f32[D]\n    forward(x: f32[S]) -> f32[S] {\n        x + w\n    }\n    fn g(x: f32[S]) -> f32[S] { x }\n}\n",
    );
    errors("missing_types", &["E0116", "E0116"], "layer A {\n    w\n    fn forward(x) -> f32[S] { x }\n}\n");
    errors(
        "reserved_names",
        &["E0114", "E0114", "E0114"],
        "layer for {\n    w: f32[D]\n}\n\nfn f(in: f32[S]) -> f32[S] {\n    let while = 1\n    x\n}\n",
    );
    errors(
        "words_of_others",
        &["E0113", "E0113", "E0127", "E0113", "E0113", "E0116", "E0113"],
        "import torch\n\nclass Block:\n    pass\n\nfn f(x: f32[S]) -> f32[S] { x }\n\ndef forward(x):\n    return x\n",
    );
    errors("statement_outside", &["E0101"], "let x = 1\nx + 2\n\nfn f(x: f32[S]) -> f32[S] { x }\n");
    errors(
        "broken_header",
        &["E0115", "E0109", "E0101"],
        "layer A<D H> {\n    w: f32[D]\n}\n\nfn f(x: f32[S]) => f32[S] { x }\n\nfn g(x f32[S]) -> f32[S] { x }\n",
    );
    errors(
        "several_at_once",
        &["E0104", "E0101", "E0116", "E0110"],
        "layer A {\n    w: f32[3D]\n    b f32[D]\n    fn f(x) -> f32[S] {\n        let y == x\n        y\n    }\n}\n",
    );
    errors("empty_generics", &["E0101"], "layer A< {\n    w: f32[D]\n}\n");
    errors("use_of_a_string", &["E0101"], "use \"std/nn\"\nfn f(x: f32[S]) -> f32[S] { x }\n");
}

#[test]
fn nesting_is_limited() {
    let program = format!("fn f(x: f32) -> f32 {{\n    {}x{}\n}}\n", "(".repeat(300), ")".repeat(300));
    let shown = read(&program);
    assert_eq!(shown.messages.matches("E0107").count(), 1, "{}", shown.messages);
    assert_eq!(shown.messages.matches("error[").count(), 1, "{}", shown.messages);
    let sum = format!("fn f(x: f32) -> f32 {{\n    x{}\n}}\n", " + x".repeat(300));
    assert!(read(&sum).messages.contains("E0107"));
    let fits = format!("fn f(x: f32) -> f32 {{\n    {}x{}\n}}\n", "f(".repeat(250), ")".repeat(250));
    assert_eq!(read(&fits).messages, "");
}
