//! The conditions of merge-matmuls, one by one: which products become one, whose columns go where, and which stay apart.

use attnc::passes::Float;

use crate::values::{becomes, keeps, stays};

const STRICT: Float = Float::Strict;
const PASS: &str = "merge-matmuls";

/// Products of `x` by parameters of so many columns, each with a use of its own, with or without biases.
fn products(columns: &[i64], biases: &[bool]) -> String {
    let (mut params, mut lines, mut results) = (String::new(), String::new(), Vec::new());
    for (i, n) in columns.iter().enumerate() {
        let (w, p) = (10 * (i + 1), 10 * (i + 1) + 1);
        params += &format!("param \"w{i}\" : f32[3, {n}]\n");
        lines += &format!("  %{w} = param \"w{i}\" : f32[3, {n}]\n  %{p} = matmul %0, %{w} : f32[S, {n}]\n");
        let mut last = p;
        if biases.get(i) == Some(&true) {
            params += &format!("param \"b{i}\" : f32[{n}]\n");
            lines += &format!(
                "  %{} = param \"b{i}\" : f32[{n}]\n  %{} = add %{p}, %{} : f32[S, {n}]\n",
                p + 1,
                p + 2,
                p + 1
            );
            last = p + 2;
        }
        results.push((last, *n));
    }
    // A result that is returned is written in its place: so each is summed, weighted by its place.
    for (i, (v, n)) in results.iter().enumerate() {
        let to = 100 + 10 * i;
        lines += &format!(
            "  %{} = iota axis=1 : f32[1, {n}]\n  %{} = cast %{} : f32[1, {n}]\n  %{} = softmax %{v}, axis=1 : f32[S, {n}]\n  %{} = mul %{}, %{} : f32[S, {n}]\n",
            to,
            to + 1,
            to,
            to + 2,
            to + 3,
            to + 2,
            to + 1
        );
    }
    let returned: Vec<String> = (0..results.len()).map(|i| format!("%{}", 103 + 10 * i)).collect();
    let types: Vec<String> = results.iter().map(|(_, n)| format!("f32[S, {n}]")).collect();
    format!(
        "{params}\nfunc @f(%0 \"x\": f32[S, 3]) -> ({}) {{\n^bb0:\n{lines}  return {}\n}}\n",
        types.join(", "),
        returned.join(", ")
    )
}

fn after(source: &str) -> String {
    let list = attnc::passes::parse_pass_list(PASS).expect("a pass");
    crate::passes::run(&crate::passes::canonical(source), Some(&list), &Default::default()).0
}

/// The extents at which the results are cut out, and how many products are left.
fn cut(source: &str) -> (Vec<(i64, i64)>, usize) {
    keeps(PASS, STRICT, source);
    let text = after(source);
    let number = |line: &str, name: &str| -> i64 {
        let rest = line.split_once(name).map_or("", |(_, rest)| rest);
        rest.split([',', ' ']).next().and_then(|n| n.parse().ok()).expect("a number")
    };
    let slices = text.lines().filter(|l| l.contains("= slice"));
    (slices.map(|l| (number(l, "start="), number(l, "stop="))).collect(), text.matches("= matmul").count())
}

#[test]
fn each_product_gets_its_own_columns() {
    assert_eq!(cut(&products(&[32, 64], &[])), (vec![(0, 32), (32, 96)], 1));
    assert_eq!(cut(&products(&[32, 64, 96], &[])), (vec![(0, 32), (32, 96), (96, 192)], 1));
    assert_eq!(cut(&products(&[64, 32, 32, 7], &[])), (vec![(0, 64), (64, 96), (96, 128), (128, 135)], 1));
    assert_eq!(cut(&products(&[32, 64, 32], &[true; 3])), (vec![(0, 32), (32, 96), (96, 128)], 1));
    // At most four.
    assert_eq!(cut(&products(&[32; 5], &[])), (vec![(0, 32), (32, 64), (64, 96), (96, 128)], 2));
    assert_eq!(cut(&products(&[32; 6], &[])).1, 2);
}

#[test]
fn products_that_stay_apart() {
    // Nothing may follow one that ends inside a panel; a product of one column uses no panels.
    for columns in [&[31, 64][..], &[48, 32], &[33, 32], &[32, 1], &[1, 32]] {
        stays(PASS, STRICT, &products(columns, &[]));
    }
    // With a bias and without.
    stays(PASS, STRICT, &products(&[32, 32], &[true, false]));
    stays(PASS, STRICT, &products(&[32, 32], &[false, true]));
    assert_eq!(cut(&products(&[32, 64, 32, 64], &[true, false, true, false])).1, 2);
}

/// Two products, by `%2` and `%3`, of lines that make these; `%4` and `%5` are the products.
fn two(head: &str, args: &str, left: (&str, &str), weights: &str, between: &str) -> String {
    format!(
        "{head}\nfunc @f({args}) -> (f32[S, 32], f32[S, 32]) {{\n^bb0:\n{weights}  %4 = matmul {}, %2 : f32[S, 32]\n{between}  %5 = matmul {}, %3 : f32[S, 32]\n\
         \n  %6 = softmax %4, axis=1 : f32[S, 32]\n  %7 = softmax %5, axis=1 : f32[S, 32]\n  return %6, %7\n}}\n",
        left.0, left.1
    )
}

const W: &str = "param \"a\" : f32[3, 32]\nparam \"b\" : f32[3, 32]\n";
const X: &str = "%0 \"x\": f32[S, 3]";
const AB: &str = "  %2 = param \"a\" : f32[3, 32]\n  %3 = param \"b\" : f32[3, 32]\n";

#[test]
fn the_left_operand_is_one_value() {
    let merged = "param param concat matmul slice slice softmax softmax";
    becomes(PASS, STRICT, &two(W, X, ("%0", "%0"), AB, ""), merged);
    stays(PASS, STRICT, &two(W, "%0 \"x\": f32[S, 3], %1 \"y\": f32[S, 3]", ("%0", "%1"), AB, ""));
    stays(PASS, STRICT, &two(W, X, ("%0", "%8"), AB, "  %8 = neg %0 : f32[S, 3]\n"));
    // A parameter on the left, and a right operand that is no parameter.
    let left = "param \"a\" : f32[3, 32]\nparam \"b\" : f32[3, 32]\nparam \"l\" : f32[4, 3]\n";
    let source = two(left, "%0 \"x\": f32[S, 3]", ("%1", "%1"), &format!("  %1 = param \"l\" : f32[4, 3]\n{AB}"), "")
        .replace("f32[S, 32]", "f32[4, 32]");
    stays(PASS, STRICT, &source);
    stays(
        PASS,
        STRICT,
        &two(
            "param \"a\" : f32[3, 32]\n",
            "%0 \"x\": f32[S, 3], %3 \"w\": f32[3, 32]",
            ("%0", "%0"),
            "  %2 = param \"a\" : f32[3, 32]\n",
            "",
        ),
    );
}

#[test]
fn weights_behind_and_moved() {
    let merged = "param param concat matmul slice slice softmax softmax";
    let late = two(W, X, ("%0", "%0"), "  %2 = param \"a\" : f32[3, 32]\n", "  %3 = param \"b\" : f32[3, 32]\n");
    becomes(PASS, STRICT, &late, merged);
    // Transposed, cut at known places, transposed behind the first product.
    let head = "param \"a\" : f32[32, 3]\nparam \"b\" : f32[5, 40]\n";
    let first = "  %1 = param \"a\" : f32[32, 3]\n  %2 = transpose %1, perm=[1, 0] : f32[3, 32]\n";
    let second = "  %9 = param \"b\" : f32[5, 40]\n  %8 = slice %9, axis=0, start=1, stop=4 : f32[3, 40]\n  %3 = slice %8, axis=1, start=8, stop=40 : f32[3, 32]\n";
    let left = "param transpose param slice slice concat matmul slice slice softmax softmax";
    becomes(PASS, STRICT, &two(head, X, ("%0", "%0"), first, second), left);
    // Cut at a place that is not known before the call.
    let head = "param \"a\" : f32[3, 32]\nparam \"b\" : f32[3, 64]\n";
    let unknown = "  %8 = param \"b\" : f32[3, 64]\n  %3 = slice %8, axis=1, start=S, stop=S+32 : f32[3, 32]\n";
    stays(PASS, STRICT, &two(head, X, ("%0", "%0"), "  %2 = param \"a\" : f32[3, 32]\n", unknown));
    // An operation that computes with the elements is not data movement.
    let computed = "  %8 = param \"b\" : f32[3, 32]\n  %3 = exp %8 : f32[3, 32]\n";
    stays(PASS, STRICT, &two(W, X, ("%0", "%0"), "  %2 = param \"a\" : f32[3, 32]\n", computed));
}

#[test]
fn other_types_and_numbers_of_steps() {
    for (elem, ok) in [("f32", true), ("bf16", true), ("f16", false)] {
        let source = two(W, X, ("%0", "%0"), AB, "").replace("f32[", &format!("{elem}["));
        assert_eq!(after(&source).contains("concat"), ok, "{elem}");
        keeps(PASS, STRICT, &source);
    }
    // The same parameter by two left operands of other widths.
    let head = "param \"a\" : f32[3, 32]\nparam \"b\" : f32[4, 32]\n";
    let weights = "  %2 = param \"a\" : f32[3, 32]\n  %3 = param \"b\" : f32[4, 32]\n";
    stays(PASS, STRICT, &two(head, "%0 \"x\": f32[S, 3], %1 \"y\": f32[S, 4]", ("%0", "%1"), weights, ""));
}

/// Layers whose weights differ, in a loop and outside of one.
#[test]
fn weights_of_one_layer_only() {
    let layers = |first: &str, second: &str, arrays: (&str, &str)| {
        format!(
            "param \"g.*.w\"[3] : f32[3, 32]\nparam \"h.*.v\"[3] : f32[3, 32]\nparam \"h.*.w\"[3] : f32[3, 32]\n\
             func @f(%0 \"x\": f32[S, 3], %20 \"y\": f32[S, 32]) -> (f32[S, 32]) {{\n^bb0:\n  br ^bb1(0, %20)\n^bb1(%1: index, %10: f32[S, 32]):\n\
             \n  %11 = lt %1, 2 : bool[]\n  br_if %11, ^bb2, ^bb3\n^bb2:\n  %12 = add %1, 1 : index\n  %2 = param \"{}\"[{first}] : f32[3, 32]\n\
             \n  %3 = param \"{}\"[{second}] : f32[3, 32]\n  %4 = matmul %0, %2 : f32[S, 32]\n  %5 = matmul %0, %3 : f32[S, 32]\n\
             \n  %6 = softmax %4, axis=1 : f32[S, 32]\n  %7 = softmax %5, axis=1 : f32[S, 32]\n  %8 = sub %6, %7 : f32[S, 32]\n\
             \n  %9 = add %10, %8 : f32[S, 32]\n  br ^bb1(%12, %9)\n^bb3:\n  return %10\n}}\n",
            arrays.0, arrays.1
        )
    };
    let merged = "lt add param param concat matmul slice slice softmax softmax sub add";
    becomes(PASS, STRICT, &layers("%1", "%1", ("h.*.w", "h.*.v")), merged);
    stays(PASS, STRICT, &layers("%1", "%12", ("h.*.w", "h.*.w")));
    stays(PASS, STRICT, &layers("%1", "%12", ("h.*.w", "h.*.v")));
    stays(PASS, STRICT, &layers("0", "1", ("h.*.w", "h.*.w")));
    stays(PASS, STRICT, &layers("%1", "0", ("h.*.w", "h.*.w")));
    stays(PASS, STRICT, &layers("%1", "%1", ("h.*.w", "g.*.w")));
}

#[test]
fn biases_that_go_along() {
    let head = "param \"a\" : f32[3, 32]\nparam \"b\" : f32[3, 32]\nparam \"c\" : f32[32]\nparam \"d\" : f32[32]\nparam \"e\" : f32[1, 32]\nparam \"n\" : f32[1]\n";
    let source = |op: &str, bias: &str, ty: &str, swap: bool, more: &str| {
        let sum = |to: u32, p: &str, b: &str| {
            if swap {
                format!("  %{to} = {op} {b}, {p} : f32[S, 32]\n")
            } else {
                format!("  %{to} = {op} {p}, {b} : f32[S, 32]\n")
            }
        };
        format!(
            "{head}\nfunc @f({X}) -> (f32[S, 32], f32[S, 32]) {{\n^bb0:\n{AB}  %4 = matmul %0, %2 : f32[S, 32]\n  %8 = param \"{bias}\" : {ty}\n{}\
             \n  %5 = matmul %0, %3 : f32[S, 32]\n  %9 = param \"d\" : f32[32]\n{}{more}\
             \n  %6 = softmax %14, axis=1 : f32[S, 32]\n  %7 = softmax %15, axis=1 : f32[S, 32]\n  return %6, %7\n}}\n",
            sum(14, "%4", "%8"),
            sum(15, "%5", "%9")
        )
    };
    let merged = "param param concat matmul param param concat add slice slice softmax softmax";
    becomes(PASS, STRICT, &source("add", "c", "f32[32]", false, ""), merged);
    becomes(PASS, STRICT, &source("add", "c", "f32[32]", true, ""), merged);
    // A subtraction or multiplication cannot become an epilogue; a bias of one number or of two axes is not a bias for each column.
    for op in ["sub", "mul", "max"] {
        for swap in [false, true] {
            stays(PASS, STRICT, &source(op, "c", "f32[32]", swap, ""));
        }
    }
    stays(PASS, STRICT, &source("add", "n", "f32[1]", false, ""));
    stays(PASS, STRICT, &source("add", "e", "f32[1, 32]", false, ""));
    // A bias at an index that is computed behind the product.
    let behind = |index: &str| {
        format!(
            "param \"h.*.a\"[3] : f32[3, 32]\nparam \"h.*.b\"[3] : f32[32]\nparam \"h.*.c\"[3] : f32[3, 32]\nparam \"h.*.d\"[3] : f32[32]\n\
             func @f(%0 \"x\": f32[S, 3], %20 \"y\": f32[S, 32]) -> (f32[S, 32]) {{\n^bb0:\n  br ^bb1(0, %20)\n^bb1(%1: index, %10: f32[S, 32]):\n\
             \n  %11 = lt %1, 2 : bool[]\n  br_if %11, ^bb2, ^bb3\n^bb2:\n  %2 = param \"h.*.a\"[%1] : f32[3, 32]\n  %4 = matmul %0, %2 : f32[S, 32]\n\
             \n  %12 = add %1, 1 : index\n  %13 = param \"h.*.b\"[{index}] : f32[32]\n  %14 = add %4, %13 : f32[S, 32]\n\
             \n  %3 = param \"h.*.c\"[%1] : f32[3, 32]\n  %5 = matmul %0, %3 : f32[S, 32]\n  %15 = param \"h.*.d\"[{index}] : f32[32]\n\
             \n  %16 = add %5, %15 : f32[S, 32]\n  %6 = softmax %14, axis=1 : f32[S, 32]\n  %7 = softmax %16, axis=1 : f32[S, 32]\n\
             \n  %8 = sub %6, %7 : f32[S, 32]\n  %9 = add %10, %8 : f32[S, 32]\n  br ^bb1(%12, %9)\n^bb3:\n  return %10\n}}\n"
        )
    };
    assert!(after(&behind("%1")).contains("axis=0"));
    keeps(PASS, STRICT, &behind("%1"));
    stays(PASS, STRICT, &behind("%12"));
    // The sum is not all that uses the product.
    keeps(PASS, STRICT, &source("add", "c", "f32[32]", false, "  tap %4, \"t\"\n"));
    assert!(!after(&source("add", "c", "f32[32]", false, "  tap %4, \"t\"\n")).contains("concat %8"));
}

#[test]
fn what_would_be_lost() {
    // An epilogue, a result that is returned, and one whose reshape joins rows and columns.
    let source = |first: &str, second: &str, ty: &str| {
        format!(
            "{W}\nfunc @f({X}) -> ({ty}, f32[S, 32]) {{\n^bb0:\n{AB}  %4 = matmul %0, %2 : f32[S, 32]\n  %5 = matmul %0, %3 : f32[S, 32]\n{first}{second}  return %6, %7\n}}\n"
        )
    };
    let plain = "  %7 = softmax %5, axis=1 : f32[S, 32]\n";
    becomes(
        PASS,
        STRICT,
        &source("  %6 = softmax %4, axis=1 : f32[S, 32]\n", plain, "f32[S, 32]"),
        "param param concat matmul slice slice softmax softmax",
    );
    stays(PASS, STRICT, &source("  %6 = silu %4 : f32[S, 32]\n", plain, "f32[S, 32]"));
    stays(PASS, STRICT, &source("  %6 = transpose %4, perm=[1, 0] : f32[32, S]\n", plain, "f32[32, S]"));
    stays(
        PASS,
        STRICT,
        &source("  %9 = reshape %4 : f32[32*S]\n  %6 = softmax %9, axis=0 : f32[32*S]\n", plain, "f32[32*S]"),
    );
    let joined = "  %9 = reshape %4 : f32[S, 4, 8]\n  %10 = transpose %9, perm=[1, 0, 2] : f32[4, S, 8]\n  %11 = reshape %10 : f32[4*S, 8]\n\
                  \n  %6 = softmax %11, axis=1 : f32[4*S, 8]\n";
    stays(PASS, STRICT, &source(joined, plain, "f32[4*S, 8]"));
    let cut = "  %9 = reshape %4 : f32[S, 4, 8]\n  %10 = transpose %9, perm=[1, 0, 2] : f32[4, S, 8]\n  %6 = softmax %10, axis=2 : f32[4, S, 8]\n";
    becomes(
        PASS,
        STRICT,
        &source(cut, plain, "f32[4, S, 8]"),
        "param param concat matmul slice slice reshape transpose softmax softmax",
    );
}

#[test]
fn products_behind_a_contraction_of_another() {
    let source = |between: &str, x: &str| {
        format!(
            "{W}\nfunc @f({X}) -> (f32[S, 32], f32[S, 32]) {{\n^bb0:\n{AB}  %4 = matmul %0, %2 : f32[S, 32]\n{between}  %5 = matmul %0, %3 : f32[S, 32]\n\
             \n  %6 = softmax {x}, axis=1 : f32[S, 32]\n  %7 = softmax %5, axis=1 : f32[S, 32]\n  return %6, %7\n}}\n"
        )
    };
    let contracted = "  %8 = transpose %4, perm=[1, 0] : f32[32, S]\n  %9 = matmul %4, %8 : f32[S, S]\n  %10 = matmul %9, %4 : f32[S, 32]\n";
    stays(PASS, STRICT, &source(contracted, "%10"));
    let softmax = "  %10 = softmax %4, axis=1 : f32[S, 32]\n";
    becomes(PASS, STRICT, &source(softmax, "%10"), "param param concat matmul slice slice softmax softmax softmax");
}
