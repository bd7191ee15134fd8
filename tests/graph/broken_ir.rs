//! Broken texts of the graph IR: each gives a diagnostic with a code and a place, and none a panic.

mod rules;

use attnc::diagnostics::render_all;
use attnc::ir::{text, verify};
use attnc::random::Random;
use attnc::source::SourceMap;

/// The diagnostics of a text; empty if there are none.
fn diagnose(source: &str) -> String {
    let mut sources = SourceMap::new();
    let file = sources.add("test.air", source);
    let diagnostics = match text::parse(source, file) {
        Err(d) => d,
        Ok(parsed) => match verify(&parsed.module) {
            Ok(_) => return String::new(),
            Err(e) => e.diagnostics(&parsed.places),
        },
    };
    assert!(diagnostics.iter().all(|d| d.primary.is_some()), "no place: {source}");
    render_all(&diagnostics, &sources, false)
}

/// Lines of a function over `%0: f32[S, 4]`, `%1: i32[S]`, `%2: bool[]` that returns `f32[S, 4]`.
fn function(lines: &str) -> String {
    format!(
        "module \"m\"\nparam \"w\" : f32[4]\nparam \"h.*.w\"[2] : f32[4]\n\n\
         func @f(%0 \"x\": f32[S, 4], %1 \"i\": i32[S], %2 \"c\": bool[]) -> (f32[S, 4]) {{\n{lines}\n}}\n"
    )
}

const WHOLE: &[(&str, &str)] = &[
    ("not a text", "\u{1}\u{2}"),
    ("a stray word", "module \"m\"\nhello \"m\"\n"),
    ("no name of the module", "module\n"),
    ("two modules", "module \"m\"\nmodule \"n\"\n"),
    ("an open string", "module \"m\n"),
    ("an open brace", "module \"m\"\nfunc @f() -> () {\n^bb0:\n  return\n"),
    ("a bad escape", "module \"\\q\"\n"),
    ("a block outside", "module \"m\"\n^bb0:\n"),
    ("no results", "module \"m\"\nfunc @f() {\n^bb0:\n  return\n}\n"),
    ("no body", "module \"m\"\nfunc @f() -> ()\n"),
    ("no block", "module \"m\"\nfunc @f() -> () {\n}\n"),
    ("no name of the function", "module \"m\"\nfunc f() -> () {\n^bb0:\n  return\n}\n"),
    (
        "two functions of one name",
        "module \"m\"\nfunc @f() -> () {\n^bb0:\n  return\n}\nfunc @f() -> () {\n^bb0:\n  return\n}\n",
    ),
    ("an argument without a type", "module \"m\"\nfunc @f(%0 \"x\") -> () {\n^bb0:\n  return\n}\n"),
    ("an argument without a name", "module \"m\"\nfunc @f(%0: f32[2]) -> () {\n^bb0:\n  return\n}\n"),
    ("an element type that is none", "module \"m\"\nparam \"w\" : f33[2]\n"),
    ("a parameter without a type", "module \"m\"\nparam \"w\"\n"),
    ("a parameter with too few extents", "module \"m\"\nparam \"h.*.w\" : f32[2]\n"),
    ("a parameter twice", "module \"m\"\nparam \"w\" : f32[2]\nparam \"w\" : f32[2]\n"),
    ("a dimension divided by zero", "module \"m\"\nparam \"w\" : f32[2/0]\n"),
    ("a number too large", "module \"m\"\nparam \"w\" : f32[99999999999999999999999]\n"),
    ("a batch without an axis", "module \"m\"\nfunc @f(%0 \"x\" batch: f32[]) -> () {\n^bb0:\n  return\n}\n"),
    ("a line before the first block", "module \"m\"\nfunc @f() -> () {\n  exp %0 : f32[]\n^bb0:\n  return\n}\n"),
    ("a check over unknown symbols", "module \"m\"\nfunc @f() -> () {\n  where S <= 4\n^bb0:\n  return\n}\n"),
];

const LINES: &[(&str, &str)] = &[
    ("an unknown operation", "^bb0:\n  %3 = sofmtax %0, axis=1 : f32[S, 4]\n  return %3"),
    ("an unknown value", "^bb0:\n  return %9"),
    ("an unknown block", "^bb0:\n  br ^bb7"),
    ("a value twice", "^bb0:\n  %3 = exp %0 : f32[S, 4]\n  %3 = exp %0 : f32[S, 4]\n  return %3"),
    ("a block twice", "^bb0:\n  br ^bb1\n^bb1:\n  br ^bb1\n^bb1:\n  return %0"),
    ("no terminator", "^bb0:\n  %3 = exp %0 : f32[S, 4]"),
    ("a line after the terminator", "^bb0:\n  return %0\n  %3 = exp %0 : f32[S, 4]"),
    ("a block with nothing", "^bb0:\n^bb1:\n  return %0"),
    ("arguments of the first block", "^bb0(%9: index):\n  return %0"),
    ("a jump to the entry", "^bb0:\n  br ^bb0"),
    ("a jump with too few values", "^bb0:\n  br ^bb1\n^bb1(%3: index):\n  return %0"),
    ("a jump with a value of another type", "^bb0:\n  br ^bb1(%0)\n^bb1(%3: index):\n  return %0"),
    ("a condition that is none", "^bb0:\n  br_if %0, ^bb1, ^bb1\n^bb1:\n  return %0"),
    ("a jump without a target", "^bb0:\n  br_if %2"),
    ("a result without a type", "^bb0:\n  %3 = exp %0\n  return %3"),
    ("a result without a name", "^bb0:\n  exp %0\n  return %0"),
    ("two results", "^bb0:\n  %3, %4 = exp %0 : f32[S, 4], f32[S, 4]\n  return %3"),
    ("a type without a result", "^bb0:\n  exp %0 : f32[S, 4]\n  return %0"),
    ("a wrong type", "^bb0:\n  %3 = exp %0 : f32[S, 5]\n  return %0"),
    ("an operation on the wrong type", "^bb0:\n  %3 = exp %1 : i32[S]\n  return %0"),
    ("inner dimensions that differ", "^bb0:\n  %3 = matmul %0, %0 : f32[S, 4]\n  return %3"),
    ("a missing attribute", "^bb0:\n  %3 = softmax %0 : f32[S, 4]\n  return %3"),
    ("an unknown attribute", "^bb0:\n  %3 = exp %0, axis=1 : f32[S, 4]\n  return %3"),
    ("an attribute twice", "^bb0:\n  %3 = softmax %0, axis=1, axis=1 : f32[S, 4]\n  return %3"),
    ("an axis out of range", "^bb0:\n  %3 = softmax %0, axis=2 : f32[S, 4]\n  return %3"),
    ("a negative axis", "^bb0:\n  %3 = softmax %0, axis=-1 : f32[S, 4]\n  return %3"),
    ("a list that is none", "^bb0:\n  %3 = transpose %0, perm=1 : f32[4, S]\n  return %0"),
    ("no permutation", "^bb0:\n  %3 = transpose %0, perm=[1, 1] : f32[4, 4]\n  return %0"),
    ("a flag that is none", "^bb0:\n  %3 = reduce_sum %0, axes=[1], keep=3 : f32[S, 1]\n  return %0"),
    ("a literal out of range", "^bb0:\n  %3 = const 300 : i8[S]\n  return %0"),
    ("a literal of another type", "^bb0:\n  %3 = const true : f32[S]\n  return %0"),
    ("a typed literal out of range", "^bb0:\n  %3 = index %0, i32(9999999999), axis=0 : f32[4]\n  return %0"),
    ("an index where a tensor is needed", "^bb0:\n  %3 = add %0, 1 : f32[S, 4]\n  return %3"),
    ("an unknown parameter", "^bb0:\n  %3 = param \"v\" : f32[4]\n  return %0"),
    ("a parameter of another type", "^bb0:\n  %3 = param \"w\" : f32[5]\n  return %0"),
    ("a parameter without its index", "^bb0:\n  %3 = param \"h.*.w\" : f32[4]\n  return %0"),
    ("a symbol of no argument", "^bb0:\n  %3 = const 0.0 : f32[T]\n  return %0"),
    ("a slice out of range", "^bb0:\n  %3 = slice %0, axis=1, start=2, stop=5 : f32[S, 3]\n  return %0"),
    (
        "a value from a block that does not dominate",
        "^bb0:\n  br_if %2, ^bb1, ^bb2\n^bb1:\n  %3 = exp %0 : f32[S, 4]\n  br ^bb2\n^bb2:\n  return %3",
    ),
    ("a value before its definition", "^bb0:\n  %3 = exp %4 : f32[S, 4]\n  %4 = exp %0 : f32[S, 4]\n  return %3"),
    ("too few results", "^bb0:\n  return"),
    ("a result of another type", "^bb0:\n  return %1"),
    ("an unlisted file", "^bb0:\n  %3 = exp %0 : f32[S, 4] loc(\"other.attn\":1:2)\n  return %3"),
    ("a tap without its extent", "^bb0:\n  tap %0, \"a.*\"[1]\n  return %0"),
    ("a tap whose path ends in a plan's mark", "^bb0:\n  tap %0, \"a?\"\n  return %0"),
    ("a mask that is none", "^bb0:\n  %3 = attention %0, %0, %0, scale=0.5, mask=[casual] : f32[S, 4]\n  return %3"),
    (
        "a place of what is no part",
        "^bb0:\n  %3 = attention %0, %0, %0, scale=0.5 : f32[S, 4] loc(1:2, scores 1:3, causal 1:4)\n  return %3",
    ),
    (
        "places of parts in another order",
        "^bb0:\n  %3 = attention %0, %0, %0, scale=0.5 : f32[S, 4] loc(1:2, softmax 1:3, scores 1:4)\n  return %3",
    ),
    ("a part of one operation", "^bb0:\n  %3 = mul %0, 0.5 : f32[S, 4] loc(1:2, scores 1:3)\n  return %3"),
    ("an attention without a scale", "^bb0:\n  %3 = attention %0, %0, %0 : f32[S, 4]\n  return %3"),
    ("an unknown kind of region", "^bb0:\n  %3 = fused maps(%4 = %0) : f32[S, 4] {\n    yield %4\n  }\n  return %3"),
    (
        "a region without its yield",
        "^bb0:\n  %3 = fused map(%4 = %0) : f32[S, 4] {\n    %5 = exp %4 : f32[S, 4]\n  }\n  return %3",
    ),
    (
        "a region that uses what is outside",
        "^bb0:\n  %3 = fused map(%4 = %0) : f32[S, 4] {\n    %5 = exp %0 : f32[S, 4]\n    yield %5\n  }\n  return %3",
    ),
    (
        "a region in a region",
        "^bb0:\n  %3 = fused map(%4 = %0) : f32[S, 4] {\n    %5 = fused map(%6 = %4) : f32[S, 4] {\n      yield %6\n    }\n    yield %5\n  }\n  return %3",
    ),
    (
        "movement in a region",
        "^bb0:\n  %3 = fused map(%4 = %0) : f32[4, S] {\n    %5 = transpose %4, perm=[1, 0] : f32[4, S]\n    yield %5\n  }\n  return %0",
    ),
    ("a return in a region", "^bb0:\n  %3 = fused map(%4 = %0) : f32[S, 4] {\n    return %4\n  }\n  return %3"),
    ("a yield in a function", "^bb0:\n  yield %0"),
    ("a body where there is none", "^bb0:\n  %3 = exp %0 : f32[S, 4] {\n  }\n  return %3"),
];

#[test]
fn each_gives_a_diagnostic() {
    assert!(diagnose(&function("^bb0:\n  return %0")).is_empty());
    let lines = LINES.iter().map(|(name, lines)| (*name, function(lines)));
    let all: Vec<(&str, String)> = WHOLE.iter().map(|(name, text)| (*name, text.to_string())).chain(lines).collect();
    assert!(all.len() >= 50);
    let mut shown = String::new();
    for (name, text) in all {
        let found = diagnose(&text);
        assert!(found.contains("error[E07"), "{name}: {found:?}");
        shown += &format!("# {name}\n\n{found}\n");
    }
    insta::with_settings!({
        snapshot_path => concat!(env!("CARGO_MANIFEST_DIR"), "/snapshots/ir"),
        prepend_module_to_snapshot => false,
        omit_expression => true,
    }, {
        insta::assert_snapshot!("broken_texts", shown);
    });
}

/// Cuts, doubles and swaps pieces of a text with every operation in it: whatever comes out, there is no panic, and what
/// reads is printed and reads back.
#[test]
fn mutations_never_panic() {
    let source = include_str!("../../src/ir/text/all.air");
    let mut random = Random::new(1);
    let mut below = |n: usize| random.below(n);
    let words: Vec<&str> = source.split_inclusive([' ', '\n', ',', '(', ')', '[', ']']).collect();
    let (mut read, mut right) = (0, 0);
    for _ in 0..3000 {
        let mut mutated = words.clone();
        for _ in 0..1 + below(3) {
            let (a, b) = (below(mutated.len()), below(mutated.len()));
            match below(4) {
                0 => drop(mutated.remove(a)),
                1 => mutated.insert(a, words[b % words.len()]),
                2 => mutated.swap(a, b),
                _ => mutated[a] = words[b % words.len()],
            }
        }
        let mut text = mutated.concat();
        if below(10) == 0 {
            let mut at = below(text.len());
            while !text.is_char_boundary(at) {
                at -= 1;
            }
            text.truncate(at);
        }
        if let Ok(parsed) = text::parse(&text, Default::default()) {
            read += 1;
            right += usize::from(verify(&parsed.module).map_err(|e| e.to_string()).is_ok());
            let canonical = text::print(&parsed.module);
            let again = text::parse(&canonical, Default::default()).expect("what was printed reads");
            assert_eq!(text::print(&again.module), canonical);
        }
    }
    assert!(read > 100 && right > 10, "{read} read, {right} right");
}
