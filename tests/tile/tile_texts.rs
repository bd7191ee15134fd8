//! Is a broken tile IR text answered with a diagnostic, never with a panic? Fifty texts broken by hand, each in its own way,
//! must be refused with a place or a line; thousands of texts broken at random must be refused or accepted, and what is
//! accepted must print and read back.

use attnc::diagnostics::render_all;
use attnc::random::Random;
use attnc::source::SourceMap;
use attnc::tile::{encode, text, verify};

const WHOLE: &str = r#"module "test.attn"
file "nn.attn"
param "h.*.w"[3]                            : f32[8, 8]
site "index {0} is out of range of {1}"

kernel @rows.0(%x: in f32[S, 8], %w: in f32[8, 8], %y: out f32[S, 8], %n: index) symbols(S) grid(%i: ceil(S, 4)) {
^bb0:
  %four = const 4                           : index
  %at = mul %i, %four                       : index
  %all = dim S                              : index
  %rest = sub %all, %at                     : index
  %m = min %rest, %four                     : index
  %zero = const 0                           : index
  %t = load %x[%at, %zero], rows=0, cols=1  : tile f32[%m<=4, 8]        loc("nn.attn":3:4)
  %high = reduce_max %t, axis=1             : tile f32[%m<=4, 1]
  %d = sub %t, %high                        : tile f32[%m<=4, 8]
  %none = const 0.0                         : f32
  %acc0 = full %none                        : tile f32[%m<=4, 8]
  br ^steps(%zero, %acc0)
^steps(%k: index, %acc: tile f32[%m<=4, 8]):
  %more = lt %k, %n                         : bool
  br_if %more, ^step, ^done
^step:
  %b = load %w[%zero, %zero], rows=0, cols=1 : tile f32[8, 8]
  %acc1 = dot %d, %b, %acc                  : tile f32[%m<=4, 8]
  %one = const 1                            : index
  %k1 = add %k, %one                        : index
  br ^steps(%k1, %acc1)
^done:
  store %y[%at, %zero], %acc, rows=0, cols=1
  return
}

plan @forward symbols(S) taps("a.*") slots(32*S) {
^bb0:
  %0 = arg 0                                : buf f32[S, 8]
  %1 = out 0                                : buf f32[S, 8]
  %2 = slot 0                               : buf f32[S, 8]
  %3 = const 1                              : index
  %4 = param "h.*.w"[%3]                    : buf f32[8, 8]
  %5 = view %4, offset=0                    : buf f32[8, 8] strides[1, 8]
  launch @rows.0(%0, %4, %2, %3)
  launch @rows.0(%2, %4, %1, %3)
  return
}
"#;

/// What a text says that the reader or the verifier refuses; `None` if it is accepted.
fn refusal(source: &str) -> Option<String> {
    let mut sources = SourceMap::new();
    let file = sources.add("test.tir", source);
    match text::parse(source, file) {
        Err(d) => {
            assert!(d.iter().all(|d| d.primary.is_some()), "a diagnostic without a place: {d:?}");
            Some(render_all(&d, &sources, false))
        }
        Ok(p) => match verify::verify(&p.module) {
            Err(e) => {
                assert!(e.to_string().contains("error: "));
                // The errors are shown in the text that was read, too.
                Some(render_all(&e.diagnostics(&p.places), &sources, false))
            }
            Ok(_) => {
                let printed = text::print(&p.module);
                let again = text::parse(&printed, file).expect("what is printed reads back");
                assert_eq!(text::print(&again.module), printed);
                assert_eq!(encode::module(&again.module), encode::module(&p.module), "{printed}");
                None
            }
        },
    }
}

/// A part of the text, and what it becomes.
const BROKEN: &[(&str, &str)] = &[
    ("module \"test.attn\"\n", ""),
    ("module \"test.attn\"", "module test"),
    ("module \"test.attn\"", "module \"test.attn"),
    ("file \"nn.attn\"", "files \"nn.attn\""),
    ("param \"h.*.w\"[3]", "param \"h.w\"[3]"),
    ("param \"h.*.w\"[3]", "param \"h.*.w\"[-3]"),
    (": f32[8, 8]\nsite", ": f33[8, 8]\nsite"),
    (": f32[8, 8]\nsite", ": f32[8, 8\nsite"),
    ("kernel @rows.0(", "kernel rows("),
    ("kernel @rows.0(", "kernel @rows.1("),
    ("%x: in f32[S, 8]", "%x: at f32[S, 8]"),
    ("%x: in f32[S, 8]", "%x: out f32[S, 8]"),
    ("%x: in f32[S, 8]", "%x: in f32[T, 8]"),
    ("%x: in f32[S, 8]", "%x: in f32[S, 8] strides[8]"),
    ("%y: out f32[S, 8]", "%y: in f32[S, 8]"),
    ("%n: index", "%x: index"),
    ("%n: index", "%n: f32"),
    ("symbols(S) grid", "grid"),
    ("ceil(S, 4)", "ceil(S, 0)"),
    ("ceil(S, 4)", "floor(S, 4)"),
    ("ceil(S, 4)", "ceil(S/0, 4)"),
    ("^bb0:\n  %four", "  %four"),
    ("%four = const 4 ", "%four = const 4.5 "),
    ("%four = const 4 ", "%four = const %i "),
    ("%four = const 4 ", "%four = const 99999999999999999999 "),
    ("%at = mul %i, %four", "%at = mul %i, %five"),
    ("%at = mul %i, %four", "%at = mul %i"),
    ("%at = mul %i, %four", "%at = mull %i, %four"),
    ("%at = mul %i, %four ", "%at = mul %i, %four, axis=1 "),
    ("%all = dim S ", "%all = dim T "),
    ("%all = dim S", "%four = dim S"),
    ("rows=0, cols=1  : tile", "rows=0, cols=0  : tile"),
    ("rows=0, cols=1  : tile", "rows=0, cols=2  : tile"),
    ("rows=0, cols=1  : tile", "rows=0, rows=1  : tile"),
    ("rows=0, cols=1  : tile", "rows=0  : tile"),
    ("%x[%at, %zero]", "%x[%at]"),
    ("%x[%at, %zero]", "%x[%at, %none]"),
    ("tile f32[%m<=4, 8]        loc", "tile f32[%m<=4]        loc"),
    ("tile f32[%m<=4, 8]        loc", "tile bf16[%m<=4, 8]        loc"),
    ("tile f32[%m<=4, 8]        loc", "tile f32[%m<=4, 8] @l1(0)        loc"),
    ("loc(\"nn.attn\":3:4)", "loc(\"xx.attn\":3:4)"),
    ("loc(\"nn.attn\":3:4)", "loc(3)"),
    ("reduce_max %t, axis=1 ", "reduce_max %t, axis=2 "),
    ("reduce_max %t, axis=1 ", "reduce_mean %t, axis=1 "),
    ("%d = sub %t, %high ", "%d = sub %t, %b "),
    ("br ^steps(%zero, %acc0)", "br ^steps(%zero)"),
    ("br ^steps(%zero, %acc0)", "br ^steps(%zero, %t, %acc0)"),
    ("br ^steps(%zero, %acc0)", "br ^nowhere(%zero, %acc0)"),
    ("br ^steps(%zero, %acc0)", "br ^bb0"),
    ("br ^steps(%zero, %acc0)\n", ""),
    ("br_if %more, ^step, ^done", "br_if %k, ^step, ^done"),
    ("br_if %more, ^step, ^done", "br_if %more, ^step"),
    ("dot %d, %b, %acc ", "dot %b, %d, %acc "),
    ("dot %d, %b, %acc ", "dot %d, %b, %acc1 "),
    ("  return\n}\n\nplan", "  return\n  return\n}\n\nplan"),
    ("  return\n}\n\nplan", "  return\n\nplan"),
    ("plan @forward symbols(S)", "plan @forward symbols(T)"),
    ("taps(\"a.*\") slots(32*S)", "taps(a) slots(32*S)"),
    ("%2 = slot 0 ", "%2 = slot 1 "),
    ("%4 = param \"h.*.w\"[%3] ", "%4 = param \"h.*.w\" "),
    ("%4 = param \"h.*.w\"[%3] ", "%4 = param \"x.*.w\"[%3] "),
    ("launch @rows.0(%0, %4, %2, %3)", "launch @rows.0(%0, %5, %2, %3)"),
    ("launch @rows.0(%0, %4, %2, %3)", "launch @cols.0(%0, %4, %2, %3)"),
    ("launch @rows.0(%0, %4, %2, %3)", "launch @rows.0(%0, %4, %2)"),
    ("launch @rows.0(%0, %4, %2, %3)", "store %0[%3, %3], %2"),
    ("strides[1, 8]", "strides[1, T]"),
];

#[test]
fn the_whole_text_is_accepted() {
    assert_eq!(refusal(WHOLE), None);
    let mut sources = SourceMap::new();
    let file = sources.add("test.tir", WHOLE);
    let module = text::parse(WHOLE, file).unwrap().module;
    let canonical = text::print(&module);
    assert_eq!(text::print(&text::parse(&canonical, file).unwrap().module), canonical);
}

#[test]
fn broken_texts_are_refused() {
    for (from, to) in BROKEN {
        assert!(WHOLE.contains(from), "the text has no {from:?}");
        let text = WHOLE.replacen(from, to, 1);
        assert!(refusal(&text).is_some(), "accepted: {from:?} -> {to:?}");
    }
    for (from, to) in [("@l1(0)", "@l1(0, wide)"), ("@l1(0)", "@l1(0, 64)"), ("@l1(0)", "@l1(padded)")] {
        let text = "module \"m\"\nkernel @k(%x: in f32[4]) gpu(sm_80, 1) scratch(64) {\n^bb0:\n  %o = const 0 : index\n  run (1, 4) {\n    \
                    %t = load %x[%o], cols=0 : tile f32[1, 4] @l1(0)\n  }\n  return\n}\n";
        assert_eq!(refusal(text), None);
        assert!(refusal(&text.replacen(from, to, 1)).is_some(), "accepted: {to}");
    }
    for text in ["", "\u{0}", "module", "kernel", "{", "module \"m\"\nkernel @k() {", "^bb0:", "module \"m\"\n}"] {
        assert!(refusal(text).is_some(), "accepted: {text:?}");
    }
    assert!(refusal(&format!("module \"m\"\nkernel @k{}", "(".repeat(10_000))).is_some());
    assert!(refusal(&format!("module \"m\"\nkernel @k() {{\n^bb0:\n{}", "run (1, 1) {\n".repeat(10_000))).is_some());
}

#[test]
fn texts_broken_at_random_do_no_harm() {
    let witnesses =
        [WHOLE, include_str!("../witnesses/attention_sm80.tir"), include_str!("../witnesses/attention_sm90a.tir")];
    let mut words_of = Random::new(1);
    let mut random = |n: usize| words_of.below(n);
    for round in 0..1000 {
        let source = witnesses[round % witnesses.len()];
        let mut words: Vec<&str> = source.split_inclusive(|c: char| !c.is_alphanumeric() && c != '_').collect();
        for _ in 0..1 + random(3) {
            let at = random(words.len());
            match random(4) {
                0 => drop(words.splice(at..=at, [])),
                1 => words.insert(at, words[random(words.len())]),
                2 => words[at] = words[random(words.len())],
                _ => {
                    let other = random(words.len());
                    words.swap(at, other);
                }
            }
        }
        refusal(&words.concat());
    }
}

/// The bytes that stand for a module tell what its text tells, but for the names of values and blocks.
#[test]
fn bytes_differ_where_texts_do() {
    let bytes = |source: &str| {
        let file = SourceMap::new().add("test.tir", source);
        encode::module(&text::parse(source, file).unwrap_or_else(|d| panic!("{d:?}")).module)
    };
    let whole = bytes(WHOLE);
    for (from, to) in
        [("%four", "%vier"), ("^steps", "^schritte"), ("%acc1", "%a"), ("%m", "%0"), ("  return", " return")]
    {
        assert!(WHOLE.contains(from), "the text has no {from:?}");
        assert_eq!(bytes(&WHOLE.replace(from, to)), whole, "{from} -> {to}");
    }
    for (from, to) in [
        ("test.attn", "toast.attn"),
        ("nn.attn", "mm.attn"),
        ("[3]", "[4]"),
        ("f32[8, 8]\nsite", "f32[8, 9]\nsite"),
        ("{0} is", "{0} was"),
        ("rows.0", "rows.1"),
        ("%w: in f32[8, 8]", "%w: in bf16[8, 8]"),
        ("%w: in f32[8, 8]", "%w: inout f32[8, 8]"),
        ("%w: in f32[8, 8]", "%w: in f32[8, 8] strides[1, 8]"),
        ("ceil(S, 4)", "ceil(S, 8)"),
        ("ceil(S, 4)", "ceil(2*S, 4)"),
        ("%four = const 4 ", "%four = const 2 "),
        ("mul %i, %four", "mul %four, %i"),
        ("mul %i, %four", "add %i, %four"),
        ("%all = dim S", "%all = dim 2*S"),
        ("%none = const 0.0", "%none = const -0.0"),
        ("%none = const 0.0", "%none = const nan"),
        ("reduce_max", "reduce_min"),
        ("rows=0, cols=1  :", "rows=1, cols=0  :"),
        ("3:4)", "3:5)"),
        ("3:4)", "4:4)"),
        ("%m<=4, 8]        loc", "%m<=5, 8]        loc"),
        ("br_if %more, ^step, ^done", "br_if %more, ^done, ^step"),
        ("br ^steps(%zero,", "br ^steps(%all,"),
        ("plan @forward", "plan @backward"),
        ("plan @forward", "plan @forward tapped"),
        ("taps(\"a.*\")", "taps(\"b.*\")"),
        ("slots(32*S)", "slots(64*S)"),
        ("arg 0", "arg 1"),
        ("h.*.w\"[%3]", "g.*.w\"[%3]"),
        ("offset=0", "offset=8"),
        ("launch @rows.0(%0,", "launch @rows.0(%1,"),
    ] {
        assert!(WHOLE.contains(from), "the text has no {from:?}");
        assert_ne!(bytes(&WHOLE.replace(from, to)), whole, "{from} -> {to}");
    }
}
