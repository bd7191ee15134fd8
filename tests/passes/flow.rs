//! The conditions of cse, dce, licm and simplify-cfg, one by one: what may move, merge or go, and what may not.

use attnc::passes::Float;

use crate::values::{becomes, function, stays};

const STRICT: Float = Float::Strict;

fn cse(args: &str, result: &str, lines: &str, left: &str) {
    becomes("cse", STRICT, &function(args, result, lines), left);
}

#[test]
fn the_same_operation_on_the_same_operands() {
    let two = "f32[S] | f32[S]";
    let twice = |op: &str, other: &str, ty: &str| {
        format!(
            "  %5 = {op} : {ty}\n  %6 = {other} : {ty}\n  %7 = cast %5 : f32[S]\n  %8 = cast %6 : f32[S]\n  %9 = div %7, %8 : f32[S]"
        )
    };
    for op in ["add", "sub", "mul", "div", "rem", "pow", "max", "min"] {
        let args = "f32[S] | f32[S]".to_string();
        cse(
            &args,
            "f32[S]",
            &twice(&format!("{op} %0, %1"), &format!("{op} %0, %1"), "f32[S]"),
            &format!("{op} cast div"),
        );
        // `max(-0, 0)` depends on the order, as do all others but sums and products.
        let other = format!("{op} %1, %0");
        let left =
            if matches!(op, "add" | "mul") { format!("{op} cast div") } else { format!("{op} {op} cast cast div") };
        cse(&args, "f32[S]", &twice(&format!("{op} %0, %1"), &other, "f32[S]"), &left);
    }
    for op in ["and", "or"] {
        let lines = twice(&format!("{op} %0, %1"), &format!("{op} %1, %0"), "bool[S]");
        cse("bool[S] | bool[S]", "f32[S]", &lines, &format!("{op} cast div"));
    }
    for op in ["lt", "eq"] {
        let lines = twice(&format!("{op} %0, %1"), &format!("{op} %1, %0"), "bool[S]");
        cse(two, "f32[S]", &lines, &format!("{op} {op} cast cast div"));
    }
    cse(two, "f32[S]", &twice("lt %0, %1", "le %0, %1", "bool[S]"), "lt le cast cast div");
    cse(two, "f32[S]", &twice("exp %0", "exp %1", "f32[S]"), "exp exp cast cast div");
}

#[test]
fn attributes_and_types_count() {
    // A difference of sums over two axes, of two permutations, of two windows.
    let square = "f32[4, 4]";
    for (a, b, ty) in [
        ("reduce_sum %0, axes=[0]", "reduce_sum %0, axes=[1]", "f32[4]"),
        ("reduce_max %0, axes=[0]", "reduce_min %0, axes=[0]", "f32[4]"),
        ("softmax %0, axis=0", "softmax %0, axis=1", "f32[4, 4]"),
        ("softmax %0, axis=1", "log_softmax %0, axis=1", "f32[4, 4]"),
        ("slice %0, axis=0, start=0, stop=2", "slice %0, axis=0, start=2, stop=4", "f32[2, 4]"),
        ("pad %0, 1.0, axis=0, low=1, high=0", "pad %0, 1.0, axis=0, low=0, high=1", "f32[5, 4]"),
        ("iota axis=0", "iota axis=1", "f32[4, 4]"),
        ("transpose %0, perm=[0, 1]", "transpose %0, perm=[1, 0]", "f32[4, 4]"),
    ] {
        let lines = format!("  %7 = {a} : {ty}\n  %8 = {b} : {ty}\n  %9 = sub %7, %8 : {ty}");
        stays("cse", STRICT, &function(&format!("{square} | f32[S]"), ty, &lines));
    }
    let lines = "  %6 = reshape %0 : f32[2, 8]\n  %7 = reshape %0 : f32[8, 2]\n  %8 = matmul %6, %7 : f32[2, 2]\n\
                 \n  %9 = reduce_sum %8, axes=[0] : f32[2]";
    stays("cse", STRICT, &function("f32[4, 4] | f32[S]", "f32[2]", lines));
    let lines = "  %7 = cast %0 : bf16[4, 4]\n  %8 = cast %0 : f16[4, 4]\n  %5 = cast %7 : f32[4, 4]\n  %6 = cast %8 : f32[4, 4]\n\
                 \n  %9 = sub %5, %6 : f32[4, 4]";
    stays("cse", STRICT, &function("f32[4, 4] | f32[S]", "f32[4, 4]", lines));
}

#[test]
fn what_was_computed_must_be_there() {
    // Computed on one path, on both, and before the branch.
    let source = |before: &str, then: &str, after: &str| {
        format!(
            "func @f(%0 \"x\": f32[S], %1 \"c\": bool[]) -> (f32[S]) {{\n^bb0:\n{before}  br_if %1, ^bb1, ^bb2\n^bb1:\n{then}  br ^bb3(%3)\n\
             ^bb2:\n  %4 = neg %0 : f32[S]\n  br ^bb3(%4)\n^bb3(%5: f32[S]):\n{after}  return %7\n}}\n"
        )
    };
    let exp = "  %3 = exp %0 : f32[S]\n";
    let again = "  %6 = exp %0 : f32[S]\n  %7 = add %5, %6 : f32[S]\n";
    stays("cse", STRICT, &source("", exp, again));
    becomes("cse", STRICT, &source("  %2 = exp %0 : f32[S]\n  %8 = neg %2 : f32[S]\n", exp, again), "exp neg neg add");
    // In a loop, of what the loop carries.
    let turns = "func @f(%0 \"x\": f32[S]) -> (f32[S]) {\n^bb0:\n  %1 = exp %0 : f32[S]\n  br ^bb1(0, %1)\n\
        ^bb1(%2: index, %3: f32[S]):\n  %4 = lt %2, 3 : bool[]\n  br_if %4, ^bb2, ^bb3\n^bb2:\n  %5 = exp %3 : f32[S]\n\
        \n  %6 = exp %0 : f32[S]\n  %7 = div %5, %6 : f32[S]\n  %8 = add %2, 1 : index\n  br ^bb1(%8, %7)\n^bb3:\n  return %3\n}\n";
    becomes("cse", STRICT, turns, "exp lt exp div add");
}

#[test]
fn what_is_needed_stays() {
    let source = "func @f(%0 \"x\": f32[S], %1 \"y\": f32[S], %2 \"c\": bool[]) -> (f32[S], f32[S]) {\n^bb0:\n  %3 = exp %0 : f32[S]\n\
        \n  %4 = tanh %1 : f32[S]\n  %5 = sin %0 : f32[S]\n  %12 = cos %0 : f32[S]\n  tap %12, \"t\"\n  %6 = reduce_sum %1, axes=[0] : f32[]\n\
        \n  %7 = lt %6, 0.5 : bool[]\n  br_if %7, ^bb1(%3, %5), ^bb2\n^bb1(%8: f32[S], %9: f32[S]):\n  br ^bb3(%8, %9)\n\
        ^bb2:\n  %10 = neg %1 : f32[S]\n  br ^bb3(%10, %1)\n^bb3(%11: f32[S], %13: f32[S]):\n  return %11, %4\n}\n";
    becomes("dce", STRICT, source, "exp tanh cos reduce_sum lt neg");
    // A value that only feeds itself around a loop, and one that a returned value needs through two arguments.
    let turns = "func @f(%0 \"x\": f32[S]) -> (f32[S]) {\n^bb0:\n  %1 = exp %0 : f32[S]\n  br ^bb1(0, %0, %1, %1)\n\
        ^bb1(%2: index, %3: f32[S], %4: f32[S], %5: f32[S]):\n  %6 = lt %2, 3 : bool[]\n  br_if %6, ^bb2, ^bb3\n^bb2:\n\
        \n  %7 = tanh %5 : f32[S]\n  %8 = neg %4 : f32[S]\n  %9 = add %2, 1 : index\n  br ^bb1(%9, %4, %8, %7)\n^bb3:\n  return %3\n}\n";
    becomes("dce", STRICT, turns, "exp lt neg add");
}

/// A loop of so many turns around lines; `%3` is what it carries, `%2` counts.
fn turns(args: &str, ty: &str, limit: &str, lines: &str, next: &str) -> String {
    let args: Vec<String> =
        args.split(" | ").enumerate().map(|(i, ty)| format!("%{} \"a{i}\": {ty}", ["0", "1", "20", "21"][i])).collect();
    format!(
        "param \"h.*.w\"[3] : f32[S]\nfunc @f({}) -> ({ty}) {{\n^bb0:\n  br ^bb1(0, %0)\n^bb1(%2: index, %3: {ty}):\n  %4 = dim {limit} : index\n\
         \n  %5 = lt %2, %4 : bool[]\n  br_if %5, ^bb2, ^bb3\n^bb2:\n{lines}\n  %18 = add %2, 1 : index\n  br ^bb1(%18, {next})\n^bb3:\n  return %3\n}}\n",
        args.join(", ")
    )
    .replace("param \"h.*.w\"[3] : f32[S]\n", if lines.contains("h.*.w") { "param \"h.*.w\"[3] : f32[4]\n" } else { "" })
}

/// So many operations stand in the entry block after licm.
fn leaves(source: &str, hoisted: usize) {
    let (text, _) = crate::passes::run(
        &crate::passes::canonical(source),
        Some(&attnc::passes::parse_pass_list("licm").expect("a pass")),
        &Default::default(),
    );
    let entry = text.split("^bb0:").nth(1).and_then(|rest| rest.split("^bb1").next()).unwrap_or_default();
    assert_eq!(entry.matches("\n  %").count(), hoisted, "{text}");
    crate::values::keeps("licm", STRICT, source);
}

#[test]
fn what_a_loop_does_not_change_leaves_it() {
    let x = "f32[S]";
    // `dim` of the header leaves each of these loops.
    leaves(&turns(x, x, "S", "  %6 = exp %0 : f32[S]\n  %7 = tanh %6 : f32[S]\n  %8 = add %3, %7 : f32[S]", "%8"), 3);
    leaves(&turns(x, x, "S", "  %6 = exp %3 : f32[S]\n  %7 = tanh %6 : f32[S]", "%7"), 1);
    leaves(&turns(x, x, "S-S", "  %6 = exp %0 : f32[S]\n  %7 = add %6, %3 : f32[S]", "%7"), 2);
    leaves(&turns(x, x, "S", "  %6 = exp %0 : f32[S]\n  tap %6, \"t\"[%2 < S]\n  %7 = add %6, %3 : f32[S]", "%7"), 2);
    let lines = "  %6 = fused map(%30 = %0, %31 = %0) : f32[S] {\n    %32 = exp %30 : f32[S]\n    %33 = add %32, %31 : f32[S]\n    yield %33\n  }\n\
                 \n  %7 = add %6, %3 : f32[S]";
    leaves(&turns(x, x, "S", lines, "%7"), 2);
}

/// What would fail where the program makes no turn: none of these may be computed before the loop. Some of the sizes make the
/// loop turn, so that it is an error, and some do not.
#[test]
fn what_may_fail_stays_in_its_loop() {
    let x = "f32[S]";
    let add = |line: &str, small: &str| {
        format!("{line}\n  %8 = reduce_sum {small}\n  %9 = cast %8 : f32[]\n  %10 = add %3, %9 : f32[S]")
    };
    for (line, sum) in [
        ("  %6 = slice %0, axis=0, start=0, stop=4 : f32[4]", "%6, axes=[0] : f32[]"),
        ("  %6 = slice %0, axis=0, start=S-3, stop=S : f32[3]", "%6, axes=[0] : f32[]"),
        ("  %6 = const 0.5 : f32[S-3]", "%6, axes=[0] : f32[]"),
        ("  %6 = const 0.5 : f32[S/2]", "%6, axes=[0] : f32[]"),
        ("  %6 = pad %0, 1.0, axis=0, low=S-3, high=0 : f32[2*S-3]", "%6, axes=[0] : f32[]"),
        ("  %6 = pad %0, 1.0, axis=0, low=0, high=S-3 : f32[2*S-3]", "%6, axes=[0] : f32[]"),
        ("  %6 = pad %0, 1.0, axis=0, low=S-3, high=-S+3 : f32[S]", "%6, axes=[0] : f32[]"),
        ("  %6 = pad %0, 1.0, axis=0, low=-S+3, high=S-3 : f32[S]", "%6, axes=[0] : f32[]"),
        (
            "  %6 = fused map(%30 = %0) : f32[S] {\n    %31 = dim S/2 : f32[]\n    %32 = mul %30, %31 : f32[S]\n    yield %32\n  }",
            "%6, axes=[0] : f32[]",
        ),
        ("  %6 = broadcast 1.0 : f32[S-3]", "%6, axes=[0] : f32[]"),
    ] {
        leaves(&turns(x, x, "S-3", &add(line, sum), "%10"), 1);
    }
    for (args, line, sum) in [
        ("f32[S] | i32[2]", "  %6 = gather %0, %1, axis=0 : f32[2]", "%6, axes=[0] : f32[]"),
        ("f32[S] | i32[]", "  %7 = index %0, %1, axis=0 : f32[]\n  %6 = reshape %7 : f32[1]", "%6, axes=[0] : f32[]"),
        ("f32[S] | f32[0, 2]", "  %7 = argmax %1, axes=[0] : i32[2]\n  %6 = cast %7 : f32[2]", "%6, axes=[0] : f32[]"),
        (
            "f32[S] | f32[0, 2]",
            "  %7 = fused rows(%30 = %1) : i32[2] {\n    %31 = argmax %30, axes=[0] : i32[2]\n    yield %31\n  }\n  %6 = cast %7 : f32[2]",
            "%6, axes=[0] : f32[]",
        ),
    ] {
        if !line.contains("fused") {
            leaves(&turns(args, x, "S-3", &add(line, sum), "%10"), 1);
        }
    }
    // A parameter of an array of three: one of them, and one that may be none.
    let of = |index: &str| {
        add(&format!("  %7 = dim {index} : index\n  %6 = param \"h.*.w\"[%7] : f32[4]"), "%6, axes=[0] : f32[]")
    };
    leaves(&turns(x, x, "S-3", &of("2"), "%10"), 5);
    leaves(&turns(x, x, "S-3", &of("2*S"), "%10"), 2);
    leaves(&turns(x, x, "S-3", "  %6 = dim S/2 : index\n  %7 = exp %3 : f32[S]", "%7"), 1);
}

#[test]
fn loops_that_are_entered_otherwise_keep_what_they_have() {
    // Conditionally, and from two places.
    let conditional = "func @f(%0 \"x\": f32[S], %1 \"c\": bool[]) -> (f32[S]) {\n^bb0:\n  br_if %1, ^bb1(0, %0), ^bb3(%0)\n\
        ^bb1(%2: index, %3: f32[S]):\n  %4 = exp %0 : f32[S]\n  %5 = lt %2, 3 : bool[]\n  br_if %5, ^bb2, ^bb3(%3)\n^bb2:\n\
        \n  %6 = add %3, %4 : f32[S]\n  %7 = add %2, 1 : index\n  br ^bb1(%7, %6)\n^bb3(%8: f32[S]):\n  return %8\n}\n";
    stays("licm", STRICT, conditional);
    let twice = "func @f(%0 \"x\": f32[S], %1 \"c\": bool[]) -> (f32[S]) {\n^bb0:\n  br_if %1, ^bb4, ^bb5\n^bb4:\n  br ^bb1(0, %0)\n^bb5:\n\
        \n  %9 = neg %0 : f32[S]\n  br ^bb1(1, %9)\n^bb1(%2: index, %3: f32[S]):\n  %5 = lt %2, 3 : bool[]\n  br_if %5, ^bb2, ^bb3\n^bb2:\n\
        \n  %4 = exp %0 : f32[S]\n  %6 = add %3, %4 : f32[S]\n  %7 = add %2, 1 : index\n  br ^bb1(%7, %6)\n^bb3:\n  return %3\n}\n";
    stays("licm", STRICT, twice);
}

/// A tap stays where it is, also in a header, which is executed in any case.
#[test]
fn taps_stay_in_their_loop() {
    let source = "func @f(%0 \"x\": f32[S]) -> (f32[S]) {\n  tapped\n^bb0:\n  br ^bb1(0, %0)\n^bb1(%1: index, %2: f32[S]):\n  tap %0, \"t\"\n\
        \n  %3 = lt %1, 3 : bool[]\n  br_if %3, ^bb2, ^bb3\n^bb2:\n  %4 = sin %2 : f32[S]\n  %5 = add %1, 1 : index\n  br ^bb1(%5, %4)\n\
        ^bb3:\n  return %2\n}\n";
    stays("licm", STRICT, source);
}

#[test]
fn an_inner_loop_gives_to_the_outer_one() {
    let source = "func @f(%0 \"x\": f32[S]) -> (f32[S]) {\n^bb0:\n  br ^bb1(0, %0)\n^bb1(%1: index, %2: f32[S]):\n  %3 = lt %1, 2 : bool[]\n\
        \n  br_if %3, ^bb2, ^bb6\n^bb2:\n  br ^bb3(0, %2)\n^bb3(%4: index, %5: f32[S]):\n  %6 = lt %4, 2 : bool[]\n  br_if %6, ^bb4, ^bb5\n\
        ^bb4:\n  %7 = exp %0 : f32[S]\n  %8 = tanh %2 : f32[S]\n  %9 = sin %5 : f32[S]\n  %10 = add %7, %8 : f32[S]\n  %11 = add %9, %10 : f32[S]\n\
        \n  %12 = add %4, 1 : index\n  br ^bb3(%12, %11)\n^bb5:\n  %13 = add %1, 1 : index\n  br ^bb1(%13, %5)\n^bb6:\n  return %2\n}\n";
    leaves(source, 1);
}

fn diamond(condition: &str, then: &str, otherwise: &str, join: &str) -> String {
    format!(
        "func @f(%0 \"x\": f32[S], %1 \"y\": f32[S], %2 \"c\": bool[]) -> (f32[S]) {{\n^bb0:\n  br_if {condition}, {then}, {otherwise}\n{join}}}\n"
    )
}

#[test]
fn ways_that_are_decided() {
    let join = "^bb1(%3: f32[S]):\n  return %3\n";
    becomes("simplify-cfg", STRICT, &diamond("true", "^bb1(%0)", "^bb1(%1)", join), "");
    becomes("simplify-cfg", STRICT, &diamond("false", "^bb1(%0)", "^bb1(%1)", join), "");
    becomes("simplify-cfg", STRICT, &diamond("%2", "^bb1(%0)", "^bb1(%0)", join), "");
    // One block on both paths, with different arguments.
    stays("simplify-cfg", STRICT, &diamond("%2", "^bb1(%0)", "^bb1(%1)", join));
    let two = "^bb1(%3: f32[S], %4: f32[S]):\n  %5 = sub %3, %4 : f32[S]\n  return %5\n";
    stays("simplify-cfg", STRICT, &diamond("%2", "^bb1(%0, %1)", "^bb1(%1, %0)", two));
    let (second, third) = (
        "^bb1(%3: f32[S]):\n  %4 = exp %3 : f32[S]\n  return %4\n",
        "^bb2(%5: f32[S]):\n  %6 = neg %5 : f32[S]\n  return %6\n",
    );
    let both = format!("{second}{third}");
    becomes("simplify-cfg", STRICT, &diamond("%2", "^bb1(%0)", "^bb2(%1)", &both), "exp neg");
    becomes("simplify-cfg", STRICT, &diamond("true", "^bb1(%0)", "^bb2(%1)", &both), "exp");
    becomes("simplify-cfg", STRICT, &diamond("false", "^bb1(%0)", "^bb2(%1)", &both), "neg");
}

#[test]
fn arguments_that_are_always_the_same() {
    let ways = |a: &str, b: &str, ty: &str, end: &str| {
        format!(
            "func @f(%0 \"x\": f32[S], %1 \"y\": f32[S], %2 \"c\": bool[]) -> (f32[S]) {{\n^bb0:\n  br_if %2, ^bb1, ^bb2\n\
             ^bb1:\n  %3 = exp %0 : f32[S]\n  br ^bb3({a}, %3)\n^bb2:\n  %4 = neg %0 : f32[S]\n  br ^bb3({b}, %4)\n\
             ^bb3(%5: {ty}, %6: f32[S]):\n{end}  return %7\n}}\n"
        )
    };
    let sum = "  %7 = sub %5, %6 : f32[S]\n";
    becomes("simplify-cfg", STRICT, &ways("%1", "%1", "f32[S]", sum), "exp neg sub");
    stays("simplify-cfg", STRICT, &ways("%1", "%0", "f32[S]", sum));
    becomes("simplify-cfg", STRICT, &ways("0.5", "0.5", "f32[]", sum), "exp neg sub");
    stays("simplify-cfg", STRICT, &ways("0.5", "0.25", "f32[]", sum));
    stays("simplify-cfg", STRICT, &ways("0.0", "-0.0", "f32[]", "  %7 = div %6, %5 : f32[S]\n"));
    let count = |ways: String| ways.matches("%5").count();
    assert_eq!(count(ways("%1", "%1", "f32[S]", sum)), 2);
    // Around a loop: an argument that is passed unchanged, and two that are exchanged.
    let around = |first: &str, second: &str| {
        format!(
            "func @f(%0 \"x\": f32[S], %1 \"y\": f32[S]) -> (f32[S]) {{\n^bb0:\n  br ^bb1(0, %0, %1)\n^bb1(%2: index, %3: f32[S], %4: f32[S]):\n\
             \n  %5 = lt %2, 3 : bool[]\n  br_if %5, ^bb2, ^bb3\n^bb2:\n  %6 = add %2, 1 : index\n  br ^bb1(%6, {first}, {second})\n\
             ^bb3:\n  %7 = sub %3, %4 : f32[S]\n  return %7\n}}\n"
        )
    };
    stays("simplify-cfg", STRICT, &around("%4", "%3"));
    becomes("simplify-cfg", STRICT, &around("%3", "%4"), "lt add sub");
    assert!(text_after(&around("%3", "%4")).contains("sub %0, %1"), "{}", text_after(&around("%3", "%4")));
    assert!(!text_after(&around("%0", "%3")).contains("sub %0, %1"));
    crate::values::keeps("simplify-cfg", STRICT, &around("%0", "%3"));
}

fn text_after(source: &str) -> String {
    let list = attnc::passes::parse_pass_list("simplify-cfg").expect("a pass");
    crate::passes::run(&crate::passes::canonical(source), Some(&list), &Default::default()).0
}

#[test]
fn blocks_that_are_merged() {
    let chain = "func @f(%0 \"x\": f32[S]) -> (f32[S]) {\n^bb0:\n  %1 = exp %0 : f32[S]\n  br ^bb1(%1, %0)\n^bb1(%2: f32[S], %3: f32[S]):\n\
        \n  %4 = sub %2, %3 : f32[S]\n  br ^bb2(%4)\n^bb2(%5: f32[S]):\n  %6 = div %5, %2 : f32[S]\n  return %6\n}\n";
    becomes("simplify-cfg", STRICT, chain, "exp sub div");
    assert!(!text_after(chain).contains("^bb1"));
    // A block with two predecessors stays.
    let shared = "func @f(%0 \"x\": f32[S], %1 \"c\": bool[]) -> (f32[S]) {\n^bb0:\n  br_if %1, ^bb1, ^bb2\n^bb1:\n  %2 = exp %0 : f32[S]\n  br ^bb3(%2)\n\
        ^bb2:\n  %3 = neg %0 : f32[S]\n  br ^bb3(%3)\n^bb3(%4: f32[S]):\n  %5 = tanh %4 : f32[S]\n  return %5\n}\n";
    stays("simplify-cfg", STRICT, shared);
}

#[test]
fn loops_that_run_once() {
    // A loop whose counter begins at `from`; `used` is what the exit returns.
    let counted = |from: &str, limit: &str, next: &str, used: &str| {
        format!(
            "func @f(%0 \"x\": f32[S]) -> (f32[S]) {{\n^bb0:\n  br ^bb1({from}, %0, %0)\n^bb1(%1: index, %2: f32[S], %3: f32[S]):\n\
             \n  %4 = lt %1, {limit} : bool[]\n  br_if %4, ^bb2, ^bb3\n^bb2:\n  %5 = exp %2 : f32[S]\n  %6 = add %1, {next} : index\n  br ^bb1(%6, %5, %2)\n\
             ^bb3:\n  %7 = sub %2, {used} : f32[S]\n  return %7\n}}\n"
        )
    };
    let once = |source: &str, left: &str| {
        becomes("simplify-cfg,dce", STRICT, source, left);
        assert!(!text_after(source).contains("^bb1"), "{}", text_after(source));
    };
    // Behind the exit, the header's arguments are what the body gave.
    once(&counted("0", "1", "1", "%3"), "exp sub");
    assert!(
        text_after(&counted("0", "1", "1", "%3")).contains(", %0 "),
        "{}",
        text_after(&counted("0", "1", "1", "%3"))
    );
    once(&counted("3", "4", "1", "%3"), "exp sub");
    once(&counted("0", "4", "4", "%0"), "exp sub");
    for (from, limit, next) in [("0", "2", "1"), ("0", "0", "1"), ("1", "1", "1"), ("0", "1", "0"), ("0", "4", "3")] {
        let source = counted(from, limit, next, "%3");
        // A step of 0 never comes to an end, which nobody may execute.
        if next == "0" {
            assert!(text_after(&source).contains("br_if"));
        } else {
            crate::values::keeps("simplify-cfg", STRICT, &source);
            assert!(text_after(&source).contains("br_if"), "{source}");
        }
    }
    // What the header computes from its arguments would be another value behind the exit.
    let computed = counted("0", "1", "1", "%3")
        .replace("  %7 = sub %2, %3", "  %8 = dim 0 : index\n  %9 = eq %8, %1 : bool[]\n  %7 = where %9, %2, %3");
    once(&computed, "exp add dim eq where");
    let of_header = counted("0", "1", "1", "%3").replace("  %7 = sub %2, %3", "  %7 = where %4, %2, %3");
    stays("simplify-cfg", STRICT, &of_header);
    // So would what the header gives to the exit: 1 + 1.
    let given = counted("0", "1", "1", "%3")
        .replace("  %4 = lt", "  %8 = add %1, 1 : index\n  %4 = lt")
        .replace("^bb3\n", "^bb3(%8)\n")
        .replace(
            "^bb3:\n  %7 = sub %2, %3",
            "^bb3(%9: index):\n  %10 = dim 2 : index\n  %11 = eq %9, %10 : bool[]\n  %7 = where %11, %2, %3",
        );
    crate::values::keeps("simplify-cfg", STRICT, &given);
    assert!(text_after(&given).contains("br_if"), "{}", text_after(&given));
    // A loop in a loop: the inner one once, the outer one three times.
    let nested = "func @f(%0 \"x\": f32[S]) -> (f32[S]) {\n^bb0:\n  br ^bb1(0, %0)\n^bb1(%1: index, %2: f32[S]):\n  %3 = lt %1, 3 : bool[]\n  br_if %3, ^bb2, ^bb6\n\
        ^bb2:\n  br ^bb3(0, %2)\n^bb3(%4: index, %5: f32[S]):\n  %6 = lt %4, 1 : bool[]\n  br_if %6, ^bb4, ^bb5\n^bb4:\n  %7 = tanh %5 : f32[S]\n  %8 = add %4, 1 : index\n  br ^bb3(%8, %7)\n\
        ^bb5:\n  %9 = add %1, 1 : index\n  br ^bb1(%9, %5)\n^bb6:\n  %10 = sub %2, %0 : f32[S]\n  return %10\n}\n";
    becomes("simplify-cfg,dce", STRICT, nested, "lt tanh add sub");
    // A way out of the middle meets the exit: behind it, an argument is one or the other iteration's.
    let left = |end: &str| {
        format!(
            "func @f(%0 \"x\": f32[S], %1 \"c\": bool[]) -> (f32[S]) {{\n^bb0:\n  br ^bb1(0, %0)\n^bb1(%2: index, %3: f32[S]):\n  %4 = lt %2, 1 : bool[]\n  br_if %4, ^bb2, ^bb4(%3)\n\
             ^bb2:\n  %5 = exp %3 : f32[S]\n  %6 = add %2, 1 : index\n  br_if %1, ^bb3, ^bb4(%3)\n^bb3:\n  br ^bb1(%6, %5)\n^bb4(%7: f32[S]):\n  {end} : f32[S]\n  return %8\n}}\n"
        )
    };
    becomes("simplify-cfg,dce", STRICT, &left("%8 = neg %7"), "exp neg");
    let both = left("%8 = sub %7, %3");
    crate::values::keeps("simplify-cfg", STRICT, &both);
    assert!(text_after(&both).contains("lt "), "{}", text_after(&both));
}
