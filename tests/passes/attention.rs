//! The conditions of the passes around attention, one by one: where the rewrite is legal it is made, where a condition does
//! not hold nothing changes, and the interpreter finds the same numbers.

use attnc::ir::{Op, Scalar};
use attnc::passes::{Float, Options};

use crate::values::{becomes, function, keeps, stays};

const STRICT: Float = Float::Strict;
const CONTRACT: Float = Float::Contract;

/// Queries, keys (transposed) and values; then more arguments, `%3` and on.
const QKV: &str = "f32[S, 4] | f32[4, T] | f32[T, 3]";

/// `softmax(steps(q @ k)) @ v`, the steps from `%10` to `%19`, both of a type; more arguments.
fn attention(more: &str, steps: &str) -> String {
    let args = if more.is_empty() { QKV.to_string() } else { format!("{QKV} | {more}") };
    let lines = format!(
        "  %10 = matmul %0, %1 : f32[S, T]\n{steps}\n  %20 = softmax %19, axis=1 : f32[S, T]\n  %21 = matmul %20, %2 : f32[S, 3]"
    );
    function(&args, "f32[S, 3]", &lines)
}

const ALL: &str = "canonicalise-heads,canonicalise-transpose,canonicalise-softmax,canonicalise-mask,canonicalise-scale,\
                   fuse-attention";

/// What a fused attention says of its masks.
fn masks(float: Float, source: &str) -> String {
    let list = attnc::passes::parse_pass_list(ALL).expect("names of passes");
    let options = attnc::passes::Options { float, ..Default::default() };
    let (text, _) = crate::passes::run(&crate::passes::canonical(source), Some(&list), &options);
    keeps(ALL, float, source);
    text.split_once("mask=[").and_then(|(_, rest)| rest.split_once(']')).map_or("", |(m, _)| m).to_string()
}

const CAUSAL: &str = "  %11 = causal : bool[S, T]\n";

/// `where(s > 0, s, 0.01 * s)` is a function of the scores; a remark does not call it a mask.
#[test]
fn a_leaky_relu_of_scores_is_no_mask() {
    let steps =
        "  %11 = gt %10, 0.0 : bool[S, T]\n  %12 = mul %10, 0.01 : f32[S, T]\n  %19 = where %11, %10, %12 : f32[S, T]";
    let list = attnc::passes::parse_pass_list(ALL).expect("names of passes");
    let source = crate::passes::canonical(&attention("", steps));
    let options = Options { remarks: true, ..Options::default() };
    let (_, said) = crate::passes::run(&source, Some(&list), &options);
    assert!(said.contains("a function of them, not a mask") && !said.contains("hidden scores"), "{said}");
    let other = attention("f32[S, T]", &format!("{CAUSAL}  %19 = where %11, %10, %3 : f32[S, T]"));
    let (_, said) = crate::passes::run(&crate::passes::canonical(&other), Some(&list), &options);
    assert!(said.contains("hidden scores are replaced by a tensor"), "{said}");
}

#[test]
fn a_mask_with_any_fill() {
    let filled = |fill: &str| attention("", &format!("{CAUSAL}  %19 = where %11, %10, {fill} : f32[S, T]"));
    assert!(masks(CONTRACT, &filled("-inf")).starts_with("causal"));
    // Masked by a finite number, which may exceed all of a row's scores.
    for fill in ["-1.0", "0.0", "-1e4", "-1e30", "3.0", "inf"] {
        assert!(masks(CONTRACT, &filled(fill)).starts_with("keep"), "{fill}");
        becomes("fuse-attention", CONTRACT, &filled(fill), "causal transpose attention");
    }
    // One number, over the scores' shape.
    for (ty, from) in [("f32[S, T]", "const -1.0"), ("f32[1, T]", "const -inf"), ("f32[S, T]", "broadcast -2.0")] {
        let steps = format!("{CAUSAL}  %12 = {from} : {ty}\n  %19 = where %11, %10, %12 : f32[S, T]");
        keeps(ALL, CONTRACT, &attention("", &steps));
        assert!(!masks(CONTRACT, &attention("", &steps)).is_empty(), "{steps}");
        let kept = format!("  %12 = {from} : {ty}\n  %19 = where %3, %10, %12 : f32[S, T]");
        assert!(masks(CONTRACT, &attention("bool[S, T]", &kept)).starts_with("keep"), "{kept}");
    }
    let given = attention("f32[]", &format!("{CAUSAL}  %19 = where %11, %10, %3 : f32[S, T]"));
    assert!(masks(CONTRACT, &given).starts_with("keep"));
    // Not one number.
    let tensor = attention("f32[S, T]", &format!("{CAUSAL}  %19 = where %11, %10, %3 : f32[S, T]"));
    stays(ALL, CONTRACT, &tensor);
    stays(ALL, CONTRACT, &attention("f32[S, 1]", &format!("{CAUSAL}  %19 = where %11, %10, %3 : f32[S, T]")));
}

#[test]
fn causal_over_other_dimensions_hides_other_pairs() {
    for (ty, ok) in [("bool[S, T]", true), ("bool[1, T]", false)] {
        let steps = format!("  %11 = causal : {ty}\n  %19 = where %11, %10, -inf : f32[S, T]");
        assert_eq!(masks(CONTRACT, &attention("", &steps)).starts_with("causal"), ok, "{ty}");
    }
    let rows = "  %11 = causal : bool[S, 1]\n  %19 = where %11, %10, -inf : f32[S, T]";
    assert!(masks(CONTRACT, &attention("", rows)).starts_with("keep"));
}

/// A condition counted from rows and columns, for scores `[S, T]`.
fn counted(rows: &str, columns: &str, compare: &str) -> String {
    attention("", &format!("{rows}{columns}  %11 = {compare} : bool[S, T]\n  %19 = where %11, %10, -inf : f32[S, T]"))
}

#[test]
fn counters_are_causal_where_they_are_aligned_with_the_last_keys() {
    let rows = "  %30 = iota axis=0 : i32[S]\n  %31 = reshape %30 : i32[S, 1]\n  %32 = dim -S+T : i32[]\n  %33 = add %31, %32 : i32[S, 1]\n";
    let columns = "  %34 = iota axis=0 : i32[T]\n";
    let direct = "  %33 = iota axis=0 : i32[S, T]\n";
    for (compare, ok) in [
        ("ge %33, %34", true),
        ("le %34, %33", true),
        ("gt %33, %34", false),
        ("lt %34, %33", false),
        ("le %33, %34", false),
        ("ge %34, %33", false),
        ("eq %33, %34", false),
        ("ne %33, %34", false),
    ] {
        assert_eq!(masks(CONTRACT, &counted(rows, columns, compare)).starts_with("causal"), ok, "{compare}");
        // Not shifted: aligned with the first keys.
        let found = masks(CONTRACT, &counted(direct, columns, compare));
        assert!(found.starts_with("keep"), "{compare}: {found}");
    }
    // i - j >= 0 by other sums; strictly with 1 more.
    for (lines, compare, ok) in [
        ("  %35 = sub %33, %34 : i32[S, T]\n", "ge %35, i32(0)", true),
        ("  %35 = sub %33, %34 : i32[S, T]\n", "gt %35, i32(-1)", true),
        ("  %35 = sub %33, %34 : i32[S, T]\n", "gt %35, i32(0)", false),
        ("  %35 = sub %34, %33 : i32[S, T]\n", "le %35, i32(0)", true),
        ("  %35 = sub %34, %33 : i32[S, T]\n", "lt %35, i32(1)", true),
        ("  %35 = sub %34, %33 : i32[S, T]\n", "ge %35, i32(0)", false),
        ("  %35 = add %33, %34 : i32[S, T]\n", "ge %35, i32(0)", false),
        ("  %35 = add %33, i32(1) : i32[S, 1]\n", "gt %35, %34", true),
        ("  %35 = sub %33, i32(1) : i32[S, 1]\n", "ge %35, %34", false),
        ("  %35 = add %33, %33 : i32[S, 1]\n", "ge %35, %34", false),
        ("  %35 = mul %33, i32(2) : i32[S, 1]\n", "ge %35, %34", false),
    ] {
        let columns = format!("{columns}{lines}");
        let found = masks(CONTRACT, &counted(rows, &columns, compare));
        assert_eq!(found.starts_with("causal"), ok, "{lines} {compare}: {found}");
    }
    // Positions of rows only or of columns only, and repeated ones.
    let one = "  %36 = iota axis=0 : i32[1, T]\n  %33 = broadcast %36 : i32[S, T]\n";
    assert!(!masks(CONTRACT, &counted(one, columns, "ge %33, %34")).starts_with("causal"));
    let constant = "  %33 = const 2 : i32[S, 1]\n";
    assert!(!masks(CONTRACT, &counted(constant, columns, "ge %33, %34")).starts_with("causal"));
    let floats = "  %30 = iota axis=0 : f32[S]\n  %31 = reshape %30 : f32[S, 1]\n  %32 = dim -S+T : f32[]\n  %33 = add %31, %32 : f32[S, 1]\n";
    let float_columns = "  %34 = iota axis=0 : f32[T]\n";
    assert!(!masks(CONTRACT, &counted(floats, float_columns, "ge %33, %34")).starts_with("causal"));
    let i8s = "  %30 = iota axis=0 : i8[S]\n  %31 = reshape %30 : i8[S, 1]\n  %32 = dim -S+T : i8[]\n  %33 = add %31, %32 : i8[S, 1]\n";
    assert!(!masks(CONTRACT, &counted(i8s, "  %34 = iota axis=0 : i8[T]\n", "ge %33, %34")).starts_with("causal"));
}

#[test]
fn square_scores_counted_by_hand() {
    let square = |lines: &str| {
        function(
            "f32[S, 4] | f32[4, S] | f32[S, 3]",
            "f32[S, 3]",
            &format!(
                "  %10 = matmul %0, %1 : f32[S, S]\n{lines}  %19 = where %11, %10, -inf : f32[S, S]\n\
                 \n  %20 = softmax %19, axis=1 : f32[S, S]\n  %21 = matmul %20, %2 : f32[S, 3]"
            ),
        )
    };
    let counters = "  %30 = iota axis=0 : i32[S]\n  %31 = reshape %30 : i32[S, 1]\n";
    for (compare, ok) in [
        ("ge %31, %30", true),
        ("gt %31, %30", false),
        ("le %31, %30", false),
        ("lt %30, %31", false),
        ("le %30, %31", true),
        ("ge %30, %31", false),
    ] {
        let found = masks(CONTRACT, &square(&format!("{counters}  %11 = {compare} : bool[S, S]\n")));
        assert_eq!(found.starts_with("causal"), ok, "{compare}: {found}");
    }
    let twice = format!("{counters}  %32 = add %31, %31 : i32[S, 1]\n  %11 = ge %32, %30 : bool[S, S]\n");
    assert!(!masks(CONTRACT, &square(&twice)).starts_with("causal"));
    let half = format!("{counters}  %32 = add %30, %30 : i32[S]\n  %11 = ge %31, %32 : bool[S, S]\n");
    assert!(!masks(CONTRACT, &square(&half)).starts_with("causal"));
    let both = format!("{counters}  %32 = add %30, %31 : i32[S, S]\n  %11 = ge %32, %30 : bool[S, S]\n");
    assert!(!masks(CONTRACT, &square(&both)).starts_with("causal"));
    // A row of one that is repeated counts nothing.
    let repeated =
        "  %30 = iota axis=0 : i32[1, S]\n  %31 = broadcast %30 : i32[S, S]\n  %32 = iota axis=1 : i32[S, S]\n";
    for compare in ["ge %31, %32", "le %32, %31"] {
        let found = masks(CONTRACT, &square(&format!("{repeated}  %11 = {compare} : bool[S, S]\n")));
        assert!(!found.starts_with("causal"), "{compare}");
    }
    // Columns as rows and rows as columns.
    let turned = "  %30 = iota axis=1 : i32[S, S]\n  %31 = iota axis=0 : i32[S, S]\n";
    assert!(!masks(CONTRACT, &square(&format!("{turned}  %11 = ge %30, %31 : bool[S, S]\n"))).starts_with("causal"));
    assert!(masks(CONTRACT, &square(&format!("{turned}  %11 = ge %31, %30 : bool[S, S]\n"))).starts_with("causal"));
}

#[test]
fn masks_that_hide() {
    let bools = "bool[S, T] | bool[1, T] | bool[S, 1]";
    for (lines, left) in [
        ("  %19 = where %3, -inf, %10 : f32[S, T]", "keep"),
        ("  %11 = not %3 : bool[S, T]\n  %19 = where %11, -inf, %10 : f32[S, T]", "keep"),
        ("  %11 = not %3 : bool[S, T]\n  %19 = where %11, %10, -inf : f32[S, T]", "keep"),
        ("  %11 = or %3, %4 : bool[S, T]\n  %19 = where %11, -inf, %10 : f32[S, T]", "keep, keep"),
        ("  %11 = or %4, %5 : bool[S, T]\n  %19 = where %11, -2.0, %10 : f32[S, T]", "keep, keep"),
        ("  %11 = and %4, %5 : bool[S, T]\n  %19 = where %11, -inf, %10 : f32[S, T]", "keep"),
        ("  %11 = and %4, %5 : bool[S, T]\n  %19 = where %11, %10, -inf : f32[S, T]", "keep, keep"),
        (
            "  %11 = and %4, %5 : bool[S, T]\n  %12 = and %11, %3 : bool[S, T]\n  %19 = where %12, %10, -2.0 : f32[S, T]",
            "keep, keep, keep",
        ),
        ("  %11 = or %4, %5 : bool[S, T]\n  %19 = where %11, %10, -inf : f32[S, T]", "keep"),
        ("  %11 = where %3, %10, -1.0 : f32[S, T]\n  %19 = where %4, -inf, %11 : f32[S, T]", "keep, keep"),
        ("  %11 = where %3, %10, -inf : f32[S, T]\n  %19 = where %4, %11, -1.0 : f32[S, T]", "keep, keep"),
    ] {
        let found = masks(CONTRACT, &attention(bools, lines));
        let kinds: Vec<&str> = found.split(", ").map(|m| m.split([' ', '(', '=']).next().unwrap_or(m)).collect();
        assert_eq!(kinds.iter().filter(|k| **k == "keep").count(), left.matches("keep").count(), "{lines}: {found}");
    }
    // Comparisons: those of integers can be negated, those of floats cannot, since a NaN is neither less nor greater.
    for (elem, args) in [("i32", "i32[S, T] | i32[1, T]"), ("f32", "f32[S, T] | f32[1, T]")] {
        for op in ["lt", "le", "gt", "ge", "eq", "ne"] {
            let steps = format!("  %11 = {op} %3, %4 : bool[S, T]\n  %19 = where %11, -inf, %10 : f32[S, T]");
            let opposite = if elem == "i32" { "" } else { "not " };
            let left =
                format!("matmul {} {opposite}where softmax matmul", if elem == "i32" { opposite_of(op) } else { op });
            becomes("canonicalise-mask", STRICT, &attention(args, &steps), &left);
            let steps = format!(
                "  %11 = {op} %3, %4 : bool[S, T]\n  %12 = not %11 : bool[S, T]\n  %19 = where %12, %10, -inf : f32[S, T]"
            );
            keeps("canonicalise-mask", STRICT, &attention(args, &steps));
        }
    }
}

fn opposite_of(op: &str) -> &'static str {
    match op {
        "lt" => "ge",
        "le" => "gt",
        "gt" => "le",
        "ge" => "lt",
        "eq" => "ne",
        _ => "eq",
    }
}

#[test]
fn masks_that_are_added() {
    let more = "f32[S, T] | bool[S, T] | f32[1, T]";
    for (lines, float, left) in [
        ("  %19 = add %10, %3 : f32[S, T]", CONTRACT, "transpose attention"),
        ("  %19 = add %3, %10 : f32[S, T]", CONTRACT, "transpose attention"),
        ("  %19 = add %5, %10 : f32[S, T]", CONTRACT, "transpose attention"),
        ("  %19 = add %10, %5 : f32[S, T]", CONTRACT, "transpose attention"),
        ("  %19 = sub %10, %3 : f32[S, T]", CONTRACT, "neg transpose attention"),
        ("  %11 = sub %10, %5 : f32[S, T]\n  %19 = add %3, %11 : f32[S, T]", CONTRACT, "neg transpose attention"),
        (
            "  %11 = where %4, 0.0, -inf : f32[S, T]\n  %19 = add %10, %11 : f32[S, T]",
            CONTRACT,
            "where transpose attention",
        ),
        (
            "  %11 = where %4, 0.0, -1e4 : f32[S, T]\n  %19 = add %10, %11 : f32[S, T]",
            Float::Fast,
            "where transpose attention",
        ),
        (
            "  %11 = where %4, 0.0, -inf : f32[S, T]\n  %19 = add %10, %11 : f32[S, T]",
            Float::Fast,
            "transpose attention",
        ),
        (
            "  %11 = where %4, -inf, 0.0 : f32[S, T]\n  %19 = add %10, %11 : f32[S, T]",
            Float::Fast,
            "not transpose attention",
        ),
        (
            "  %11 = where %4, 1.0, -inf : f32[S, T]\n  %19 = add %10, %11 : f32[S, T]",
            Float::Fast,
            "where transpose attention",
        ),
        (
            "  %11 = where %4, 0.0, inf : f32[S, T]\n  %19 = add %10, %11 : f32[S, T]",
            Float::Fast,
            "where transpose attention",
        ),
    ] {
        becomes(ALL, float, &attention(more, lines), left);
    }
    // Subtracted from another value: not a mask.
    stays(ALL, CONTRACT, &attention(more, "  %19 = sub %3, %10 : f32[S, T]"));
    // Two sums of products: the scores are the one at the end of the chain.
    let both = "  %11 = matmul %0, %1 : f32[S, T]\n  %12 = sigmoid %11 : f32[S, T]\n  %19 = add %12, %10 : f32[S, T]";
    keeps(ALL, CONTRACT, &attention(more, both));
    becomes(ALL, CONTRACT, &attention(more, both), "matmul sigmoid transpose attention");
    let larger = "  %11 = reshape %5 : f32[1, T]\n  %19 = add %11, %10 : f32[S, T]";
    keeps(ALL, CONTRACT, &attention(more, larger));
}

#[test]
fn views_of_masks() {
    let heads = |more: &str, lines: &str| {
        function(
            &format!("f32[2, S, 4] | f32[2, 4, T] | f32[2, T, 3] | {more}"),
            "f32[2, S, 3]",
            &format!(
                "  %10 = matmul %0, %1 : f32[2, S, T]\n{lines}\n  %20 = softmax %19, axis=2 : f32[2, S, T]\n  %21 = matmul %20, %2 : f32[2, S, 3]"
            ),
        )
    };
    let masked = "  %19 = where %11, %10, -inf : f32[2, S, T]";
    let mask = "canonicalise-mask";
    becomes(
        mask,
        STRICT,
        &heads("bool[S, T]", &format!("  %11 = reshape %3 : bool[1, S, T]\n{masked}")),
        "matmul where softmax matmul",
    );
    becomes(
        mask,
        STRICT,
        &heads("bool[S, T]", &format!("  %11 = broadcast %3 : bool[2, S, T]\n{masked}")),
        "matmul where softmax matmul",
    );
    stays(mask, STRICT, &heads("bool[2, T]", &format!("  %11 = reshape %3 : bool[2, 1, T]\n{masked}")));
    stays(mask, STRICT, &heads("bool[2*S, T]", &format!("  %11 = reshape %3 : bool[2, S, T]\n{masked}")));
    stays(mask, STRICT, &heads("bool[2*S*T]", &format!("  %11 = reshape %3 : bool[2, S, T]\n{masked}")));
    let added = "  %19 = add %10, %11 : f32[2, S, T]";
    becomes(
        mask,
        STRICT,
        &heads("f32[S, T]", &format!("  %11 = reshape %3 : f32[1, S, T]\n{added}")),
        "matmul add softmax matmul",
    );
    stays(mask, STRICT, &heads("f32[2, T]", &format!("  %11 = reshape %3 : f32[2, 1, T]\n{added}")));
    // A mask that gives the scores more axes.
    stays(ALL, CONTRACT, &{
        let lines = "  %10 = matmul %0, %1 : f32[S, T]\n  %19 = where %3, %10, -inf : f32[2, S, T]\n\
                     \n  %20 = softmax %19, axis=2 : f32[2, S, T]\n  %21 = matmul %20, %2 : f32[2, S, 3]";
        function(&format!("{QKV} | bool[2, S, T]"), "f32[2, S, 3]", lines)
    });
}

#[test]
fn scales_of_every_kind() {
    let scale = "canonicalise-scale";
    for (c, strict, contract) in [
        ("8.0", "matmul mul softmax matmul", "matmul mul softmax matmul"),
        ("0.25", "matmul mul softmax matmul", "matmul mul softmax matmul"),
        ("3.0", "matmul div softmax matmul", "matmul mul softmax matmul"),
        ("1.7014118e38", "matmul div softmax matmul", "matmul div softmax matmul"),
        ("0.0", "matmul div softmax matmul", "matmul div softmax matmul"),
        ("inf", "matmul div softmax matmul", "matmul div softmax matmul"),
        ("6e-39", "matmul div softmax matmul", "matmul div softmax matmul"),
    ] {
        let source = attention("", &format!("  %19 = div %10, {c} : f32[S, T]"));
        becomes(scale, STRICT, &source, strict);
        if c != "0.0" && c != "inf" && c != "6e-39" && c != "1.7014118e38" {
            becomes(scale, CONTRACT, &source, contract);
        } else {
            stays(scale, CONTRACT, &source);
        }
    }
    for elem in ["f16", "bf16"] {
        let typed = |c: &str| {
            function(
                &format!("{elem}[S, 4] | {elem}[4, T] | {elem}[T, 3]"),
                &format!("{elem}[S, 3]"),
                &format!(
                    "  %10 = matmul %0, %1 : {elem}[S, T]\n  %19 = div %10, {elem}({c}) : {elem}[S, T]\n\
                     \n  %20 = softmax %19, axis=1 : {elem}[S, T]\n  %21 = matmul %20, %2 : {elem}[S, 3]"
                ),
            )
        };
        becomes(scale, STRICT, &typed("8.0"), "matmul mul softmax matmul");
        stays(scale, STRICT, &typed("3.0"));
        if elem == "f16" {
            stays(scale, STRICT, &typed("32768.0"));
        }
    }
    // Two scales, a scale over a mask, over a sum, over a difference.
    let two = attention("", "  %11 = mul %10, 0.3 : f32[S, T]\n  %19 = mul %11, 0.7 : f32[S, T]");
    stays(scale, STRICT, &two);
    becomes(scale, CONTRACT, &two, "matmul mul softmax matmul");
    let tiny = attention("", "  %11 = mul %10, 1e-30 : f32[S, T]\n  %19 = mul %11, 1e-30 : f32[S, T]");
    stays(scale, CONTRACT, &tiny);
    for fill in ["-inf", "-3.0", "2.5", "0.0"] {
        for c in ["0.3", "-2.0", "0.5"] {
            let lines = format!("{CAUSAL}  %12 = where %11, %10, {fill} : f32[S, T]\n  %19 = mul %12, {c} : f32[S, T]");
            becomes(scale, STRICT, &attention("", &lines), "matmul causal mul where softmax matmul");
            let lines = format!("{CAUSAL}  %12 = where %11, {fill}, %10 : f32[S, T]\n  %19 = mul %12, {c} : f32[S, T]");
            becomes(scale, STRICT, &attention("", &lines), "matmul causal mul where softmax matmul");
            let given = format!("{CAUSAL}  %12 = where %11, %10, {fill} : f32[S, T]\n  %19 = mul %12, %3 : f32[S, T]");
            becomes(scale, STRICT, &attention("f32[]", &given), "matmul causal mul mul where softmax matmul");
        }
    }
    let computed = format!("{CAUSAL}  %12 = where %11, %10, %3 : f32[S, T]\n  %19 = mul %12, 0.3 : f32[S, T]");
    becomes(scale, STRICT, &attention("f32[]", &computed), "matmul causal mul mul where softmax matmul");
    for op in ["add", "sub"] {
        let lines = format!("  %12 = {op} %10, %3 : f32[S, T]\n  %19 = mul %12, 0.3 : f32[S, T]");
        stays(scale, STRICT, &attention("f32[S, T]", &lines));
        becomes(scale, CONTRACT, &attention("f32[S, T]", &lines), &format!("matmul mul mul {op} softmax matmul"));
    }
    // A scale of each row is a tensor.
    for op in ["mul", "div"] {
        stays(ALL, CONTRACT, &attention("f32[S, 1]", &format!("  %19 = {op} %10, %3 : f32[S, T]")));
        stays(ALL, CONTRACT, &attention("f32[S, T]", &format!("  %19 = {op} %10, %3 : f32[S, T]")));
        stays(ALL, CONTRACT, &attention("f32[1]", &format!("  %19 = {op} %10, %3 : f32[S, T]")));
    }
}

#[test]
fn scales_of_the_operands() {
    let scaled = |lines: &str, q: &str, k: &str, more: &str| {
        let lines = format!(
            "{lines}  %10 = matmul {q}, {k} : f32[S, T]\n  %20 = softmax %10, axis=1 : f32[S, T]\n  %21 = matmul %20, %2 : f32[S, 3]"
        );
        function(&format!("f32[S, 4] | f32[T, 4] | f32[T, 3]{more}"), "f32[S, 3]", &lines)
    };
    let scale = "canonicalise-scale";
    let turn = "  %8 = transpose %1, perm=[1, 0] : f32[4, T]\n";
    for (line, left) in [
        ("mul %0, 0.3", "transpose matmul mul softmax matmul"),
        ("mul 0.3, %0", "transpose matmul mul softmax matmul"),
        ("div %0, 0.3", "transpose matmul mul softmax matmul"),
    ] {
        let source = scaled(&format!("{turn}  %7 = {line} : f32[S, 4]\n"), "%7", "%8", "");
        becomes(scale, CONTRACT, &source, left);
        stays(scale, STRICT, &source);
    }
    for op in ["mul", "div"] {
        let keys = format!("  %7 = {op} %1, 0.3 : f32[T, 4]\n  %8 = transpose %7, perm=[1, 0] : f32[4, T]\n");
        becomes(scale, CONTRACT, &scaled(&keys, "%0", "%8", ""), "transpose matmul mul softmax matmul");
        let given = format!("  %7 = {op} %1, %3 : f32[T, 4]\n  %8 = transpose %7, perm=[1, 0] : f32[4, T]\n");
        keeps(scale, CONTRACT, &scaled(&given, "%0", "%8", " | f32[]"));
    }
    for c in ["0.0", "inf", "1e-42"] {
        stays(scale, CONTRACT, &scaled(&format!("{turn}  %7 = mul %0, {c} : f32[S, 4]\n"), "%7", "%8", ""));
    }
    // The scaled tensor is smaller than the product: `1 * [S, 4]`, broadcast by its scale.
    let row = function(
        "f32[1, 4] | f32[4, T] | f32[T, 3] | f32[S, 4]",
        "f32[S, 3]",
        "  %6 = const 0.3 : f32[S, 4]\n  %7 = mul %0, %6 : f32[S, 4]\n  %10 = matmul %7, %1 : f32[S, T]\n\
         \n  %20 = softmax %10, axis=1 : f32[S, T]\n  %21 = matmul %20, %2 : f32[S, 3]",
    );
    stays(scale, CONTRACT, &row);
}

#[test]
fn a_scale_must_stand_next_to_the_product() {
    let fuse = "fuse-attention";
    let masked = "  %12 = where %11, %10, -inf : f32[S, T]\n";
    for steps in [
        format!("{CAUSAL}{masked}  %19 = mul %12, 0.5 : f32[S, T]"),
        "  %11 = mul %10, 0.5 : f32[S, T]\n  %19 = mul %11, 0.3 : f32[S, T]".to_string(),
        "  %19 = div %10, 2.0 : f32[S, T]".to_string(),
        format!("{CAUSAL}  %19 = where %11, -inf, %10 : f32[S, T]"),
        "  %11 = add %10, %3 : f32[S, T]\n  %19 = mul %11, 0.3 : f32[S, T]".to_string(),
        "  %19 = sub %10, %3 : f32[S, T]".to_string(),
    ] {
        let more = if steps.contains("%3") { "f32[S, T]" } else { "" };
        stays(fuse, CONTRACT, &attention(more, &steps));
    }
    becomes(
        fuse,
        CONTRACT,
        &attention("", &format!("  %12 = mul %10, 0.5 : f32[S, T]\n{CAUSAL}  %19 = where %11, %12, -inf : f32[S, T]")),
        "transpose attention",
    );
    // Several masks, in the order in which they stand.
    let three = format!(
        "{CAUSAL}{masked}  %13 = where %3, %12, -1.0 : f32[S, T]\n  %14 = add %13, %4 : f32[S, T]\n  %19 = where %5, %14, 2.0 : f32[S, T]"
    );
    let source = attention("bool[S, T] | f32[S, T] | bool[1, T]", &three);
    becomes(fuse, CONTRACT, &source, "transpose attention");
    let turned = "  %12 = add %10, %4 : f32[S, T]\n  %13 = where %3, %12, -1.0 : f32[S, T]\n  %19 = where %5, %13, -inf : f32[S, T]";
    becomes(fuse, CONTRACT, &attention("bool[S, T] | f32[S, T] | bool[1, T]", turned), "transpose attention");
    stays(fuse, STRICT, &source);
}

#[test]
fn keys_in_every_order() {
    let fuse = "fuse-attention";
    let with = |ty: &str, perm: &str| {
        let lines = format!(
            "  %8 = transpose %1, perm=[{perm}] : f32[2, 4, T]\n  %10 = matmul %0, %8 : f32[2, S, T]\n\
             \n  %20 = softmax %10, axis=2 : f32[2, S, T]\n  %21 = matmul %20, %2 : f32[2, S, 3]"
        );
        function(&format!("f32[2, S, 4] | {ty} | f32[2, T, 3]"), "f32[2, S, 3]", &lines)
    };
    becomes(fuse, CONTRACT, &with("f32[2, T, 4]", "0, 2, 1"), "attention");
    becomes(fuse, CONTRACT, &with("f32[T, 4, 2]", "2, 1, 0"), "transpose attention");
    becomes(fuse, CONTRACT, &with("f32[4, T, 2]", "2, 0, 1"), "transpose attention");
    becomes(fuse, CONTRACT, &with("f32[4, 2, T]", "1, 0, 2"), "transpose attention");
    becomes(fuse, CONTRACT, &attention("", "  %19 = mul %10, 0.5 : f32[S, T]"), "transpose attention");
    // A scale of bf16 is rounded to its type.
    let typed = "  %10 = matmul %0, %1 : bf16[S, T]\n  %19 = mul %10, bf16(0.3) : bf16[S, T]\n  %20 = softmax %19, axis=1 : bf16[S, T]\n\
                 \n  %21 = matmul %20, %2 : bf16[S, 3]";
    let source = function("bf16[S, 4] | bf16[4, T] | bf16[T, 3]", "bf16[S, 3]", typed);
    let list = attnc::passes::parse_pass_list(fuse).expect("a pass");
    let options = attnc::passes::Options { float: CONTRACT, ..Default::default() };
    let (text, _) = crate::passes::run(&crate::passes::canonical(&source), Some(&list), &options);
    assert!(text.contains("scale=0.30078125"), "{text}");
}

/// A function with other literals than text can hold: a program's are not rounded to their type before they are used.
fn with_literal(source: &str, from: f64, to: f64) -> attnc::ir::Function {
    let text = crate::passes::canonical(source);
    let parsed = attnc::ir::text::parse(&text, Default::default());
    let module = parsed.map_err(|d| format!("{:?}", d.sorted())).expect("a module").module;
    let mut f = module.functions.into_iter().next().expect("a function");
    let found: Vec<_> =
        f.insts().filter(|(_, _, d)| d.op == Op::Const(Scalar::Float(from))).map(|(_, i, _)| i).collect();
    assert_eq!(found.len(), 1);
    f.inst_mut(found[0]).op = Op::Const(Scalar::Float(to));
    f
}

#[test]
fn literals_are_taken_as_numbers_of_their_type() {
    let typed = "  %10 = matmul %0, %1 : bf16[S, T]\n  %19 = mul %10, bf16(0.5) : bf16[S, T]\n  %20 = softmax %19, axis=1 : bf16[S, T]\n\
                 \n  %21 = matmul %20, %2 : bf16[S, 3]";
    let source = function("bf16[S, 4] | bf16[4, T] | bf16[T, 3]", "bf16[S, 3]", typed);
    let mut f = with_literal(&source, 0.5, 0.3);
    let mut ctx = attnc::passes::Context::new(CONTRACT);
    let pass = attnc::passes::find_pass("fuse-attention").expect("a pass");
    assert_eq!((pass.run)(&mut f, &mut ctx), attnc::passes::Changed::Yes);
    let scales: Vec<&Op> = f.insts().map(|(_, _, d)| &d.op).filter(|op| matches!(op, Op::Const(_))).collect();
    assert_eq!(scales, [&Op::Const(Scalar::Float(0.300_781_25))]);
    // A number that is -inf in f32: for rows of it the formula gives NaN, and softmax zeros.
    let by_hand = "  %4 = tanh %0 : f32[S, T]\n  %3 = where %1, %4, -2.0 : f32[S, T]\n  %5 = reduce_max %3, axes=[1], keep=true : f32[S, 1]\n\
                   \n  %6 = sub %3, %5 : f32[S, T]\n  %7 = exp %6 : f32[S, T]\n  %8 = reduce_sum %7, axes=[1], keep=true : f32[S, 1]\n  %9 = div %7, %8 : f32[S, T]";
    let source = function("f32[S, T] | bool[S, T]", "f32[S, T]", by_hand);
    let pass = attnc::passes::find_pass("canonicalise-softmax").expect("a pass");
    for (fill, changed) in [(-2.5, true), (-3e38, true), (-1e39, false), (f64::NEG_INFINITY, false)] {
        let mut f = with_literal(&source, -2.0, fill);
        let mut ctx = attnc::passes::Context::new(STRICT);
        assert_eq!((pass.run)(&mut f, &mut ctx), attnc::passes::Changed::from(changed), "{fill}");
    }
}

#[test]
fn what_is_no_attention() {
    let fuse = "fuse-attention";
    let source = |args: &str, result: &str, lines: &str| function(args, result, lines);
    // The softmax over the queries, where all extents are the same.
    let square = "f32[S, S] | f32[S, S] | f32[S, S]";
    let over = |axis: usize| {
        format!(
            "  %10 = matmul %0, %1 : f32[S, S]\n  %20 = softmax %10, axis={axis} : f32[S, S]\n  %21 = matmul %20, %2 : f32[S, S]"
        )
    };
    stays(fuse, CONTRACT, &source(square, "f32[S, S]", &over(0)));
    becomes(fuse, CONTRACT, &source(square, "f32[S, S]", &over(1)), "transpose attention");
    let log = over(1).replace("softmax", "log_softmax");
    stays(ALL, CONTRACT, &source(square, "f32[S, S]", &log));
    // Weights on the right, weights used twice, scores used twice or tapped.
    let right = "  %10 = matmul %0, %1 : f32[S, S]\n  %20 = softmax %10, axis=1 : f32[S, S]\n  %21 = matmul %2, %20 : f32[S, S]";
    stays(fuse, CONTRACT, &source(square, "f32[S, S]", right));
    for (a, b) in [("%20", "%20"), ("%10", "%10")] {
        let used = format!("{}\n  %22 = add %21, {a} : f32[S, S]\n  %23 = sub %22, {b} : f32[S, S]", over(1));
        stays(fuse, CONTRACT, &source(square, "f32[S, S]", &used));
        let tapped = format!("{}\n  tap {a}, \"t\"\n  %22 = tanh %21 : f32[S, S]", over(1));
        stays(fuse, CONTRACT, &source(square, "f32[S, S]", &tapped));
    }
    let itself = "  %10 = matmul %0, %1 : f32[S, S]\n  %20 = softmax %10, axis=1 : f32[S, S]\n  %21 = matmul %20, %20 : f32[S, S]";
    stays(fuse, CONTRACT, &source(square, "f32[S, S]", itself));
    // Queries and keys of another type than the values.
    let mixed = "  %10 = matmul %0, %1 : bf16[S, S]\n  %11 = cast %10 : f32[S, S]\n  %20 = softmax %11, axis=1 : f32[S, S]\n\
                 \n  %21 = matmul %20, %2 : f32[S, S]";
    stays(fuse, CONTRACT, &source("bf16[S, S] | bf16[S, S] | f32[S, S]", "f32[S, S]", mixed));
}

/// What a tap shows besides is computed from copies, so that attention stays one operation in the variant with taps too.
#[test]
fn what_only_a_tap_needs_is_no_use() {
    let source = |shown: &str, lines: &str| {
        let source = function(
            "f32[S, 4] | f32[4, T] | f32[T, 4]",
            "f32[S, 4]",
            &format!(
                "  %10 = matmul %0, %1 : f32[S, T]\n  %20 = softmax %10, axis=1 : f32[S, T]\n{lines}  tap {shown}, \"t\"\n  %21 = matmul %20, %2 : f32[S, 4]"
            ),
        );
        source.replace("{\n^bb0", "{\n  tapped\n^bb0")
    };
    let twice = "  %30 = mul %10, 2.0 : f32[S, T]\n";
    let sum = "  %30 = mul %10, 2.0 : f32[S, T]\n  %31 = reduce_sum %30, axes=[1] : f32[S]\n  %32 = exp %31 : f32[S]\n";
    for (shown, lines, left) in [
        ("%30", twice, "matmul mul"),
        ("%32", sum, "matmul mul reduce_sum exp"),
        ("%33", &format!("{twice}  %33 = add %30, %20 : f32[S, T]\n"), "matmul softmax mul add"),
    ] {
        let left = format!("{left} transpose attention");
        becomes("separate-taps,fuse-attention", CONTRACT, &source(shown, lines), &left);
    }
}

#[test]
fn attention_in_another_block() {
    let blocks = |scores: &str, softmax: &str, output: &str| {
        format!(
            "func @f(%0 \"q\": f32[S, 4], %1 \"k\": f32[4, T], %2 \"v\": f32[T, 4], %3 \"c\": bool[]) -> (f32[S, 4]) {{\n^bb0:\n{scores}\
             \n  br ^bb1(0, %0)\n^bb1(%4: index, %5: f32[S, 4]):\n{softmax}  %6 = lt %4, 3 : bool[]\n  br_if %6, ^bb2, ^bb3\n^bb2:\n{output}\
             \n  %8 = add %4, 1 : index\n  br ^bb1(%8, %21)\n^bb3:\n  return %5\n}}\n"
        )
    };
    let scores = "  %10 = matmul %0, %1 : f32[S, T]\n";
    let softmax = "  %20 = softmax %10, axis=1 : f32[S, T]\n";
    let output = "  %21 = matmul %20, %2 : f32[S, 4]";
    stays("fuse-attention", CONTRACT, &blocks(&format!("{scores}{softmax}"), "", output));
    stays("fuse-attention", CONTRACT, &blocks(scores, "", &format!("{softmax}{output}")));
    stays("fuse-attention", CONTRACT, &blocks(scores, softmax, output));
    becomes(
        "fuse-attention",
        CONTRACT,
        &blocks("", "", &format!("{scores}{softmax}{output}")),
        "lt transpose attention add",
    );
}
