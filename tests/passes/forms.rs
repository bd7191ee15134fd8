//! The conditions of the canonical forms (heads, transposition, softmax by hand, reductions) and of the regions, one by one.

use attnc::passes::Float;

use crate::values::{becomes, function, keeps, leaves, stays};

const STRICT: Float = Float::Strict;
const CONTRACT: Float = Float::Contract;

/// Scores of two groups that a `reshape` regroups: `%10` is the product, `%13` what comes of the softmax.
fn heads(args: &str, product: &str, split: &str, after: &str, result: &str) -> String {
    let axis = split.matches(',').count();
    let lines = format!(
        "  %10 = matmul %0, %1 : {product}\n  %11 = reshape %10 : {split}\n  %12 = softmax %11, axis={axis} : {split}\n{after}"
    );
    function(args, result, &lines)
}

#[test]
fn scores_that_are_regrouped() {
    let pass = "canonicalise-heads";
    let back = "  %13 = reshape %12 : f32[2, 4*S, T]\n  %14 = matmul %13, %2 : f32[2, 4*S, 3]";
    let args = "f32[2, 4*S, 5] | f32[2, 5, T] | f32[2, T, 3]";
    let rows = heads(args, "f32[2, 4*S, T]", "f32[2, 4, S, T]", back, "f32[2, 4*S, 3]");
    becomes(pass, STRICT, &rows, "reshape reshape matmul softmax reshape matmul reshape");
    // Two axes more, and one operand without leading axes.
    let back = "  %13 = reshape %12 : f32[2, 6*S, T]\n  %14 = matmul %13, %2 : f32[2, 6*S, 3]";
    let deep = heads(
        "f32[2, 6*S, 5] | f32[2, 5, T] | f32[2, T, 3]",
        "f32[2, 6*S, T]",
        "f32[2, 3, 2, S, T]",
        back,
        "f32[2, 6*S, 3]",
    );
    becomes(pass, STRICT, &deep, "reshape reshape matmul softmax reshape matmul reshape");
    // The batch.
    let back = "  %13 = reshape %12 : f32[6, S, T]\n  %14 = matmul %13, %2 : f32[6, S, 3]";
    let batch =
        heads("f32[6, S, 5] | f32[6, 5, T] | f32[6, T, 3]", "f32[6, S, T]", "f32[2, 3, S, T]", back, "f32[6, S, 3]");
    becomes(pass, STRICT, &batch, "reshape reshape matmul softmax reshape matmul reshape");
    // Nothing is regrouped: keys that are shared by the batch, columns that move, rows that go to the front, and no softmax.
    let plain = "  %13 = exp %12 : f32[2, 3, S, T]";
    let shared =
        heads("f32[6, S, 5] | f32[5, T] | f32[T, 3]", "f32[6, S, T]", "f32[2, 3, S, T]", plain, "f32[2, 3, S, T]");
    keeps(pass, STRICT, &shared.replace("f32[5, T]", "f32[1, 5, T]"));
    stays(pass, STRICT, &shared.replace("f32[5, T]", "f32[1, 5, T]"));
    let columns = heads(
        "f32[2, S, 5] | f32[2, 5, 4*S] | f32[S]",
        "f32[2, S, 4*S]",
        "f32[2, S, 4, S]",
        "  %13 = exp %12 : f32[2, S, 4, S]",
        "f32[2, S, 4, S]",
    );
    stays(pass, STRICT, &columns);
    let square = heads(
        "f32[4, S, 5] | f32[4, 5, S] | f32[S]",
        "f32[4, S, S]",
        "f32[S, 4, S]",
        "  %13 = exp %12 : f32[S, 4, S]",
        "f32[S, 4, S]",
    );
    stays(pass, STRICT, &square);
    let none = rows.replace("%12 = softmax %11, axis=3", "%12 = exp %11");
    stays(pass, STRICT, &none);
    // The product, or its other shape, is used elsewhere.
    let used = "  %13 = exp %12 : f32[2, 3, S, T]\n  %14 = reshape %10 : f32[2, 3, S, T]\n  %15 = add %13, %14 : f32[2, 3, S, T]";
    stays(
        pass,
        STRICT,
        &heads("f32[6, S, 5] | f32[6, 5, T]", "f32[6, S, T]", "f32[2, 3, S, T]", used, "f32[2, 3, S, T]"),
    );
}

#[test]
fn weights_that_are_joined() {
    let pass = "canonicalise-heads";
    let source = |maker: &str, joined: &str, values: &str, result: &str, more: &str| {
        let lines = format!(
            "  %5 = {maker} : f32[2, 3, S, T]\n  %6 = reshape %5 : {joined}\n{more}  %7 = matmul %6, %1 : {result}"
        );
        function(&format!("f32[2, 3, S, T] | {values}"), result, &lines)
    };
    let softmax = "softmax %0, axis=3";
    let (rows, batch) = ("f32[2, 3*S, T]", "f32[6, S, T]");
    becomes(
        pass,
        STRICT,
        &source(softmax, rows, "f32[2, T, 4]", "f32[2, 3*S, 4]", ""),
        "softmax reshape matmul reshape",
    );
    becomes(
        pass,
        STRICT,
        &source(softmax, batch, "f32[6, T, 4]", "f32[6, S, 4]", ""),
        "softmax reshape matmul reshape",
    );
    stays(pass, STRICT, &source("exp %0", rows, "f32[2, T, 4]", "f32[2, 3*S, 4]", ""));
    stays(pass, STRICT, &source("log_softmax %0, axis=3", rows, "f32[2, T, 4]", "f32[2, 3*S, 4]", ""));
    // Values with more leading axes than the weights have, or with none.
    stays(pass, STRICT, &source(softmax, rows, "f32[5, 2, T, 4]", "f32[5, 2, 3*S, 4]", ""));
    keeps(pass, STRICT, &source(softmax, rows, "f32[T, 4]", "f32[2, 3*S, 4]", ""));
    // Joined rows and columns, and weights with a second use.
    let all =
        "  %5 = softmax %0, axis=2 : f32[2, S, T]\n  %6 = reshape %5 : f32[2, S*T]\n  %7 = matmul %6, %1 : f32[2, 4]";
    stays(pass, STRICT, &function("f32[2, S, T] | f32[S*T, 4]", "f32[2, 4]", all));
    for twice in ["%5", "%6"] {
        let ty = if twice == "%5" { "f32[2, 3, S, T]" } else { rows };
        let more = format!("  tap {twice}, \"t\"\n  %8 = exp {twice} : {ty}\n");
        stays(pass, STRICT, &source(softmax, rows, "f32[2, T, 4]", "f32[2, 3*S, 4]", &more));
    }
}

#[test]
fn heads_that_are_repeated() {
    let pass = "canonicalise-heads";
    let source = |keys: &str, to: &str, then: &str| {
        let lines = format!(
            "  %5 = broadcast %1 : {to}\n{then}  %7 = matmul %0, %6 : f32[2, S, T]\n  %8 = softmax %7, axis=2 : f32[2, S, T]"
        );
        function(&format!("f32[2, S, 4] | {keys}"), "f32[2, S, T]", &lines)
    };
    let turned = "  %6 = transpose %5, perm=[0, 2, 1] : f32[2, 4, T]\n";
    becomes(pass, STRICT, &source("f32[1, T, 4]", "f32[2, T, 4]", turned), "transpose matmul softmax");
    // Keys themselves are repeated, not heads.
    stays(pass, STRICT, &source("f32[1, 1, 4] | f32[T]", "f32[2, T, 4]", turned));
    stays(pass, STRICT, &source("f32[1, T, 1]", "f32[2, T, 4]", turned));
    let other = "  %6 = transpose %5, perm=[1, 2, 0] : f32[2, 4, T]\n";
    stays(pass, STRICT, &source("f32[1, 2, 4] | f32[T]", "f32[T, 2, 4]", other));
    // The product has its heads from the keys alone, so they are needed; nothing is left of the attempt.
    let alone = source("f32[1, T, 4]", "f32[2, T, 4]", turned).replace("f32[2, S, 4]", "f32[S, 4]");
    stays(pass, STRICT, &alone);
    // No attention.
    let plain = source("f32[1, T, 4]", "f32[2, T, 4]", turned).replace("softmax %7, axis=2", "exp %7");
    stays(pass, STRICT, &plain);
}

#[test]
fn scores_that_are_transposed() {
    let pass = "canonicalise-transpose";
    let source = |args: &str, lines: &str| function(args, "f32[S, 3]", lines);
    let qkv = "f32[4, S] | f32[T, 4] | f32[T, 3]";
    let end = "  %12 = transpose %11, perm=[1, 0] : f32[S, T]\n  %13 = matmul %12, %2 : f32[S, 3]";
    let plain = format!("  %10 = matmul %1, %0 : f32[T, S]\n  %11 = softmax %10, axis=0 : f32[T, S]\n{end}");
    becomes(pass, STRICT, &source(qkv, &plain), "transpose transpose matmul softmax matmul");
    // Elementwise steps between, with numbers, with a mask of the same rank, with one that would have to be broadcast.
    let steps = format!(
        "  %9 = matmul %1, %0 : f32[T, S]\n  %8 = mul %9, 0.5 : f32[T, S]\n  %7 = sigmoid %8 : f32[T, S]\n  %10 = where %3, %7, -inf : f32[T, S]\n\
         \n  %11 = softmax %10, axis=0 : f32[T, S]\n{end}"
    );
    for mask in ["bool[T, S]", "bool[1, S]", "bool[T, 1]", "bool[]", "bool[S]"] {
        keeps(pass, STRICT, &source(&format!("{qkv} | {mask}"), &steps));
    }
    // A unary function is between them.
    let masked = format!("{qkv} | bool[T, S]");
    becomes(pass, STRICT, &source(&masked, &steps), "matmul mul transpose transpose sigmoid where softmax matmul");
    let steps = steps.replace("%7 = sigmoid %8", "%7 = add %8, %8");
    keeps(pass, STRICT, &source(&masked, &steps));
    let once = steps.replace("%7 = add %8, %8", "%7 = add %8, 0.25");
    let left = "transpose transpose transpose matmul mul add where softmax matmul";
    becomes(pass, STRICT, &source(&masked, &once), left);
    // The added tensor has fewer axes.
    let bias = format!(
        "  %9 = matmul %1, %0 : f32[T, S]\n  %10 = add %9, %3 : f32[T, S]\n  %11 = softmax %10, axis=0 : f32[T, S]\n{end}"
    );
    becomes(pass, STRICT, &source(&format!("{qkv} | f32[S]"), &bias), "matmul add transpose softmax matmul");
    becomes(pass, STRICT, &source(&format!("{qkv} | f32[]"), &bias), "transpose transpose matmul add softmax matmul");
    // The weights on the right.
    let right = "  %10 = matmul %0, %1 : f32[S, T]\n  %11 = softmax %10, axis=1 : f32[S, T]\n  %12 = transpose %11, perm=[1, 0] : f32[T, S]\n\
                 \n  %13 = matmul %2, %12 : f32[3, S]";
    becomes(
        pass,
        STRICT,
        &function("f32[S, 4] | f32[4, T] | f32[3, T]", "f32[3, S]", right),
        "matmul softmax transpose matmul transpose",
    );
    let down = "  %10 = matmul %0, %1 : f32[T, S]\n  %11 = softmax %10, axis=0 : f32[T, S]\n  %13 = matmul %2, %11 : f32[3, S]";
    keeps(pass, STRICT, &function("f32[T, 4] | f32[4, S] | f32[3, T]", "f32[3, S]", down));
    let square = "  %11 = softmax %0, axis=1 : f32[S, S]\n  %13 = matmul %1, %11 : f32[S, S]";
    stays(pass, STRICT, &function("f32[S, S] | f32[S, S]", "f32[S, S]", square));
    let square = "  %11 = exp %0 : f32[S, S]\n  %12 = transpose %11, perm=[1, 0] : f32[S, S]\n  %13 = matmul %1, %12 : f32[S, S]";
    stays(pass, STRICT, &function("f32[S, S] | f32[S, S]", "f32[S, S]", square));
    // A second use, and no softmax.
    let twice = format!(
        "{plain}\n  %14 = reduce_sum %11, axes=[0] : f32[S]\n  %15 = reshape %14 : f32[S, 1]\n  %16 = add %13, %15 : f32[S, 3]"
    );
    stays(pass, STRICT, &source(qkv, &twice));
    stays(pass, STRICT, &source(qkv, &plain.replace("softmax %10, axis=0", "exp %10")));
}

#[test]
fn permutations_are_composed_in_their_order() {
    let pass = "canonicalise-transpose";
    let lines =
        "  %8 = transpose %0, perm=[1, 2, 0] : f32[T, 4, S]\n  %9 = transpose %8, perm=[0, 2, 1] : f32[T, S, 4]";
    becomes(pass, STRICT, &function("f32[S, T, 4]", "f32[T, S, 4]", lines), "transpose");
    let lines =
        "  %8 = transpose %0, perm=[1, 2, 0] : f32[T, 4, S]\n  %9 = transpose %8, perm=[2, 0, 1] : f32[S, T, 4]";
    becomes(
        pass,
        STRICT,
        &function("f32[S, T, 4]", "f32[S, T, 4]", &format!("{lines}\n  %7 = exp %9 : f32[S, T, 4]")),
        "exp",
    );
    // Not the last two axes: the batch is not the rows.
    for perm in ["1, 0, 2", "2, 1, 0"] {
        let lines = format!(
            "  %10 = matmul %0, %1 : f32[S, S, S]\n  %11 = transpose %10, perm=[{perm}] : f32[S, S, S]\n  %12 = softmax %11, axis=2 : f32[S, S, S]\n\
             \n  %13 = matmul %12, %0 : f32[S, S, S]"
        );
        stays(pass, STRICT, &function("f32[S, S, S] | f32[S, S, S]", "f32[S, S, S]", &lines));
    }
    let last = "  %10 = matmul %0, %1 : f32[S, S, S]\n  %11 = transpose %10, perm=[0, 2, 1] : f32[S, S, S]\n\
                \n  %12 = softmax %11, axis=2 : f32[S, S, S]\n  %13 = matmul %12, %0 : f32[S, S, S]";
    becomes(
        pass,
        STRICT,
        &function("f32[S, S, S] | f32[S, S, S]", "f32[S, S, S]", last),
        "transpose transpose matmul softmax matmul",
    );
}

/// A softmax by hand of `%4`, which these lines make.
fn by_hand(ty: &str, first: &str, axis: usize, kept: &str) -> String {
    let rank = ty.matches(',').count() + 1;
    assert!(axis < rank);
    let lines = format!(
        "{first}  %5 = reduce_max %4, axes=[{axis}], keep=true : {kept}\n  %6 = sub %4, %5 : {ty}\n  %7 = exp %6 : {ty}\n\
         \n  %8 = reduce_sum %7, axes=[{axis}], keep=true : {kept}\n  %9 = div %7, %8 : {ty}"
    );
    function(&format!("{ty} | {ty} | bool[S, T] | i32[S, T]"), ty, &lines)
}

#[test]
fn softmaxes_by_hand() {
    let pass = "canonicalise-softmax";
    let st = "f32[S, T]";
    let with = |first: &str| by_hand(st, &format!("{first}\n"), 1, "f32[S, 1]");
    for op in
        ["sigmoid", "tanh", "exp", "exp2", "abs", "relu", "gelu", "gelu_tanh", "silu", "erf", "sqrt", "sin", "cos"]
    {
        becomes(pass, STRICT, &with(&format!("  %4 = {op} %0 : {st}")), &format!("{op} softmax"));
    }
    for (first, left) in [
        ("  %4 = softmax %0, axis=0 : f32[S, T]", "softmax softmax"),
        ("  %4 = cast %3 : f32[S, T]", "cast softmax"),
        ("  %4 = cast %2 : f32[S, T]", "cast softmax"),
        ("  %4 = max %0, -1e30 : f32[S, T]", "max softmax"),
        ("  %3a = tanh %1 : f32[S, T]\n  %4 = max %0, %3a : f32[S, T]", "tanh max softmax"),
        (
            "  %3a = tanh %0 : f32[S, T]\n  %3b = tanh %1 : f32[S, T]\n  %4 = min %3a, %3b : f32[S, T]",
            "tanh tanh min softmax",
        ),
        ("  %3a = tanh %0 : f32[S, T]\n  %4 = where %2, %3a, -1e30 : f32[S, T]", "tanh where softmax"),
        (
            "  %3a = tanh %0 : f32[S, T]\n  %3b = reshape %3a : f32[S*T]\n  %4 = reshape %3b : f32[S, T]",
            "tanh reshape reshape softmax",
        ),
    ] {
        becomes(pass, STRICT, &with(&first.replace("%3a", "%30").replace("%3b", "%31")), left);
    }
    // Scores that may be -inf: for a row of these the formula gives NaN, and `softmax` zeros.
    for first in [
        "  %4 = log %0 : f32[S, T]",
        "  %4 = neg %0 : f32[S, T]",
        "  %4 = add %0, %1 : f32[S, T]",
        "  %30 = tanh %0 : f32[S, T]\n  %4 = where %2, %30, -inf : f32[S, T]",
        "  %30 = tanh %0 : f32[S, T]\n  %4 = where %2, %30, -1e39 : f32[S, T]",
        "  %30 = tanh %0 : f32[S, T]\n  %4 = where %2, %30, %1 : f32[S, T]",
        "  %30 = tanh %0 : f32[S, T]\n  %4 = where %2, %1, %30 : f32[S, T]",
        "  %30 = tanh %0 : f32[S, T]\n  %4 = min %30, %1 : f32[S, T]",
        "  %4 = max %0, %1 : f32[S, T]",
        "  %4 = log_softmax %0, axis=1 : f32[S, T]",
        "  %30 = cast %0 : bf16[S, T]\n  %4 = cast %30 : f32[S, T]",
        "  %30 = reshape %0 : f32[S*T]\n  %4 = reshape %30 : f32[S, T]",
    ] {
        stays(pass, STRICT, &with(first));
        leaves(pass, Float::Fast, &with(first), &format!("{} softmax", operations_of(first)));
    }
    // Other types round at each step.
    for elem in ["bf16", "f16"] {
        let (ty, kept) = (format!("{elem}[S, T]"), format!("{elem}[S, 1]"));
        stays(pass, STRICT, &by_hand(&ty, &format!("  %4 = sigmoid %0 : {ty}\n"), 1, &kept));
    }
    // Over the other axis of a square, with the axis dropped and restored.
    becomes(
        pass,
        STRICT,
        &by_hand("f32[S, S]", "  %4 = tanh %0 : f32[S, S]\n", 0, "f32[1, S]")
            .replace("bool[S, T] | i32[S, T]", "f32[T]"),
        "tanh softmax",
    );
    let dropped = "  %4 = tanh %0 : f32[S, S]\n  %5 = reduce_max %4, axes=[1] : f32[S]\n  %15 = reshape %5 : f32[S, 1]\n  %6 = sub %4, %15 : f32[S, S]\n\
                   \n  %7 = exp %6 : f32[S, S]\n  %8 = reduce_sum %7, axes=[1] : f32[S]\n  %18 = reshape %8 : f32[S, 1]\n  %9 = div %7, %18 : f32[S, S]";
    becomes(pass, STRICT, &function("f32[S, S]", "f32[S, S]", dropped), "tanh softmax");
    // Not restored: it broadcasts along the other axis.
    for broken in [
        dropped.replace("%15 = reshape %5 : f32[S, 1]", "%15 = reshape %5 : f32[1, S]"),
        dropped.replace("%18 = reshape %8 : f32[S, 1]", "%18 = reshape %8 : f32[1, S]"),
        dropped
            .replace("reduce_max %4, axes=[1]", "reduce_max %4, axes=[0]")
            .replace("%15 = reshape %5 : f32[S, 1]", "%15 = reshape %5 : f32[1, S]"),
        dropped.replace("reduce_max", "reduce_min"),
        dropped.replace("reduce_max", "reduce_sum"),
        dropped.replace("reduce_sum", "reduce_mean"),
        dropped.replace("reduce_sum", "reduce_max"),
        dropped.replace("reduce_max %4", "reduce_max %0"),
        dropped.replace("reduce_sum %7", "reduce_sum %6"),
        dropped.replace("%9 = div %7, %18", "%9 = div %18, %7"),
        dropped.replace("%6 = sub %4, %15", "%6 = sub %15, %4"),
        dropped.replace("%7 = exp %6", "%7 = exp2 %6"),
        dropped.replace("%9 = div %7", "%9 = sub %7"),
        dropped.replace("%9 = div %7", "%9 = mul %7"),
    ] {
        stays(pass, STRICT, &function("f32[S, S]", "f32[S, S]", &broken));
    }
    // The sum is that of another exponential, which is used as often.
    let other =
        dropped.replace("  %8 = reduce_sum %7", "  tap %7, \"t\"\n  %40 = exp %0 : f32[S, S]\n  %8 = reduce_sum %40");
    stays(pass, STRICT, &function("f32[S, S]", "f32[S, S]", &other));
    let other = dropped.replace("  %5 = reduce_max %4", "  %40 = tanh %0 : f32[S, S]\n  %5 = reduce_max %40");
    stays(pass, STRICT, &function("f32[S, S]", "f32[S, S]", &other));
    // The logarithm of a softmax is written with another formula: `x - max - log(sum)`.
    let log = "  %4 = tanh %0 : f32[S, S]\n  %5 = reduce_max %4, axes=[1], keep=true : f32[S, 1]\n  %6 = sub %4, %5 : f32[S, S]\n\
               \n  %7 = exp %6 : f32[S, S]\n  %8 = reduce_sum %7, axes=[1], keep=true : f32[S, 1]\n  %10 = log %8 : f32[S, 1]\n  %9 = sub %6, %10 : f32[S, S]";
    stays(pass, STRICT, &function("f32[S, S]", "f32[S, S]", log));
    // Parts that are used elsewhere.
    for part in ["%5", "%6", "%7", "%8"] {
        let ty = if part == "%5" || part == "%8" { "f32[S, 1]" } else { st };
        let used = with("  %4 = tanh %0 : f32[S, T]")
            .replace("\n  return", &format!("\n  %40 = neg {part} : {ty}\n  %41 = add %9, %40 : {st}\n  return"));
        stays(pass, STRICT, &used.replace("return %9", "return %41"));
        let tapped =
            with("  %4 = tanh %0 : f32[S, T]").replace("\n  return", &format!("\n  tap {part}, \"t\"\n  return"));
        stays(pass, STRICT, &tapped);
    }
}

fn operations_of(lines: &str) -> String {
    let made = lines.lines().filter_map(|l| l.split_once(" = "));
    made.map(|(_, op)| op.split(' ').next().unwrap_or_default()).collect::<Vec<_>>().join(" ")
}

#[test]
fn log_softmax_is_no_softmax() {
    let log = "  %10 = matmul %0, %1 : f32[S, T]\n  %11 = log_softmax %10, axis=1 : f32[S, T]\n  %12 = matmul %11, %2 : f32[S, 3]";
    let args = "f32[S, 4] | f32[4, T] | f32[T, 3]";
    for pass in [
        "canonicalise-mask",
        "canonicalise-scale",
        "canonicalise-heads",
        "canonicalise-transpose",
        "canonicalise-softmax",
        "fuse-attention",
    ] {
        stays(pass, CONTRACT, &function(args, "f32[S, 3]", log));
        let steps = log.replace("log_softmax %10", "log_softmax %15").replace(
            "  %11 =",
            "  %13 = causal : bool[S, T]\n  %14 = where %13, -inf, %10 : f32[S, T]\n  %15 = div %14, 8.0 : f32[S, T]\n  %11 =",
        );
        stays(pass, CONTRACT, &function(args, "f32[S, 3]", &steps));
    }
    let turned = "  %10 = matmul %1, %0 : f32[T, S]\n  %11 = log_softmax %10, axis=0 : f32[T, S]\n  %12 = transpose %11, perm=[1, 0] : f32[S, T]\n\
                  \n  %13 = matmul %12, %2 : f32[S, 3]";
    stays("canonicalise-transpose", STRICT, &function("f32[4, S] | f32[T, 4] | f32[T, 3]", "f32[S, 3]", turned));
}

#[test]
fn reductions_over_the_last_axis() {
    let pass = "canonicalise-reduce";
    for kind in ["reduce_sum", "reduce_mean", "reduce_max", "reduce_min", "argmax"] {
        let elem = if kind == "argmax" { "i32" } else { "f32" };
        let over =
            |axes: &str, ty: &str| function("f32[S, S, 4]", ty, &format!("  %9 = {kind} %0, axes=[{axes}] : {ty}"));
        becomes(pass, STRICT, &over("2", &format!("{elem}[S, S]")), &format!("{kind} reshape"));
        stays(pass, STRICT, &over("1", &format!("{elem}[S, 4]")));
        stays(pass, STRICT, &over("0", &format!("{elem}[S, 4]")));
        if kind != "argmax" {
            stays(pass, STRICT, &over("1, 2", &format!("{elem}[S]")));
            stays(pass, STRICT, &over("0, 2", &format!("{elem}[S]")));
        }
    }
    let reshapes = "  %8 = reshape %0 : f32[4*S]\n  %9 = reshape %8 : f32[4, S]";
    becomes(pass, STRICT, &function("f32[S, 4]", "f32[4, S]", reshapes), "reshape");
    let back = "  %7 = exp %0 : f32[S, 4]\n  %8 = reshape %7 : f32[4*S]\n  %9 = reshape %8 : f32[S, 4]\n  %10 = tanh %9 : f32[S, 4]";
    becomes(pass, STRICT, &function("f32[S, 4]", "f32[S, 4]", back), "exp tanh");
    let other = "  %7 = exp %0 : f32[S, 4]\n  %8 = reshape %7 : f32[4*S]\n  %9 = reshape %8 : f32[2*S, 2]\n  %10 = tanh %9 : f32[2*S, 2]";
    becomes(pass, STRICT, &function("f32[S, 4]", "f32[2*S, 2]", other), "exp reshape tanh");
}

#[test]
fn rows_of_one_region() {
    let pass = "fuse-rows";
    let norm = "  %2 = reduce_mean %0, axes=[1], keep=true : f32[S, 1]\n  %3 = sub %0, %2 : f32[S, 4]\n";
    becomes(pass, STRICT, &function("f32[S, 4]", "f32[S, 4]", norm), "fused reduce_mean sub");
    for (lines, result) in [
        // Over the other axis, over both, of rows of another length, of other rows.
        ("  %2 = reduce_mean %0, axes=[0], keep=true : f32[1, S]\n  %3 = sub %0, %2 : f32[S, S]", "f32[S, S]"),
        ("  %2 = reduce_mean %0, axes=[0, 1], keep=true : f32[1, 1]\n  %3 = sub %0, %2 : f32[S, S]", "f32[S, S]"),
        ("  %2 = softmax %0, axis=0 : f32[S, S]\n  %3 = exp %2 : f32[S, S]", "f32[S, S]"),
        ("  %2 = log_softmax %0, axis=0 : f32[S, S]\n  %3 = exp %2 : f32[S, S]", "f32[S, S]"),
        ("  %2 = argmax %0, axes=[1], keep=true : i32[S, 1]\n  %3 = cast %2 : f32[S, 1]", "f32[S, 1]"),
        ("  %2 = reduce_max %0, axes=[1], keep=true : f32[S, 1]\n  %3 = add %2, %1 : f32[S, T]", "f32[S, T]"),
        (
            "  %2 = reduce_max %0, axes=[1], keep=true : f32[S, 1]\n  tap %2, \"t\"\n  %3 = sub %0, %2 : f32[S, S]",
            "f32[S, S]",
        ),
    ] {
        keeps(pass, STRICT, &function("f32[S, S] | f32[T]", result, lines));
    }
    for lines in [
        "  %2 = reduce_mean %0, axes=[0], keep=true : f32[1, S]\n  %3 = sub %0, %2 : f32[S, S]",
        "  %2 = softmax %0, axis=0 : f32[S, S]\n  %3 = exp %2 : f32[S, S]",
        "  %2 = log_softmax %0, axis=0 : f32[S, S]\n  %3 = exp %2 : f32[S, S]",
    ] {
        stays(pass, STRICT, &function("f32[S, S]", "f32[S, S]", lines));
    }
    becomes(
        pass,
        STRICT,
        &function("f32[S, S]", "f32[S, S]", "  %2 = softmax %0, axis=1 : f32[S, S]\n  %3 = exp %2 : f32[S, S]"),
        "fused softmax exp",
    );
    // Two lengths: the sum of each is its own region.
    let two = "  %2 = reduce_max %0, axes=[1], keep=true : f32[S, 1]\n  %3 = reduce_max %1, axes=[1], keep=true : f32[S, 1]\n  %4 = add %2, %3 : f32[S, 1]";
    becomes(pass, STRICT, &function("f32[S, 4] | f32[S, 5]", "f32[S, 1]", two), "reduce_max fused reduce_max add");
    becomes(pass, STRICT, &function("f32[S, 4] | f32[S, 4]", "f32[S, 1]", two), "fused reduce_max reduce_max add");
    // Other rows than those of the result.
    let lead = "  %2 = reduce_max %0, axes=[1], keep=true : f32[4, 1]\n  %3 = add %2, %1 : f32[S, 4, 1]\n  %4 = exp %3 : f32[S, 4, 1]";
    keeps(pass, STRICT, &function("f32[4, 5] | f32[S, 1, 1]", "f32[S, 4, 1]", lead));
    stays(pass, STRICT, &function("f32[4, 5] | f32[S, 1, 1]", "f32[S, 4, 1]", lead));
    // Values that are the same for all rows stay outside.
    let shared = "  %2 = reduce_max %0, axes=[1], keep=true : f32[S, 1]\n  %3 = exp %1 : f32[1, 4]\n  %4 = sub %0, %2 : f32[S, 4]\n\
                  \n  %5 = mul %4, %3 : f32[S, 4]";
    becomes(pass, STRICT, &function("f32[S, 4] | f32[1, 4]", "f32[S, 4]", shared), "exp fused reduce_max sub mul");
    let other = "  %2 = reduce_max %1, axes=[1], keep=true : f32[1, 1]\n  %3 = sub %0, %2 : f32[S, 4]\n  %4 = exp %3 : f32[S, 4]";
    stays(pass, STRICT, &function("f32[S, 4] | f32[1, 4]", "f32[S, 4]", other));
    let argmax =
        "  %2 = argmax %0, axes=[1], keep=true : i32[S, 1]\n  %3 = cast %2 : f32[S, 1]\n  %4 = add %0, %3 : f32[S, 4]";
    stays(pass, STRICT, &function("f32[S, 4]", "f32[S, 4]", argmax));
}

#[test]
fn what_goes_into_a_kernel() {
    let product = "  %3 = matmul %0, %1 : f32[S, 4]\n";
    let args = "f32[S, 5] | f32[5, 4] | f32[4]";
    let with = |lines: &str, result: &str| function(args, result, &format!("{product}{lines}"));
    let pass = "fuse-epilogue";
    becomes(
        pass,
        STRICT,
        &with("  %4 = add %3, %2 : f32[S, 4]\n  %5 = gelu %4 : f32[S, 4]", "f32[S, 4]"),
        "fused matmul add gelu",
    );
    becomes(
        pass,
        STRICT,
        &with("  %4 = sigmoid %3 : f32[S, 4]\n  %5 = mul %3, %4 : f32[S, 4]", "f32[S, 4]"),
        "fused matmul sigmoid mul",
    );
    becomes(
        pass,
        STRICT,
        &with("  %4 = exp %2 : f32[4]\n  %5 = mul %3, %4 : f32[S, 4]", "f32[S, 4]"),
        "exp fused matmul mul",
    );
    for (lines, result) in [
        ("  %4 = softmax %3, axis=1 : f32[S, 4]", "f32[S, 4]"),
        ("  %4 = transpose %3, perm=[1, 0] : f32[4, S]\n  %5 = exp %4 : f32[4, S]", "f32[4, S]"),
        ("  %4 = reduce_sum %3, axes=[1], keep=true : f32[S, 1]\n  %5 = sub %3, %4 : f32[S, 4]", "f32[S, 4]"),
        ("  %4 = reshape %3 : f32[S, 1, 4]\n  %5 = exp %4 : f32[S, 1, 4]", "f32[S, 1, 4]"),
    ] {
        stays(pass, STRICT, &with(lines, result));
    }
    let larger = "  %4 = add %3, %2 : f32[T, S, 4]";
    stays(
        pass,
        STRICT,
        &function("f32[S, 5] | f32[5, 4] | f32[T, 1, 4]", "f32[T, S, 4]", &format!("{product}{larger}")),
    );
    // Used elsewhere, before the uses meet.
    let used = "  %4 = relu %3 : f32[S, 4]\n  tap %3, \"t\"\n  %5 = exp %4 : f32[S, 4]";
    stays(pass, STRICT, &with(used, "f32[S, 4]"));
    let half = "  %4 = relu %3 : f32[S, 4]\n  tap %4, \"t\"\n  %5 = exp %4 : f32[S, 4]";
    becomes(pass, STRICT, &with(half, "f32[S, 4]"), "fused matmul relu exp");
    let map = "fuse-map";
    let x = "f32[S, 4] | f32[4] | f32[S, 4]";
    let elementwise = |lines: &str| function(x, "f32[S, 4]", lines);
    becomes(map, STRICT, &elementwise("  %3 = exp %0 : f32[S, 4]\n  %4 = add %3, %1 : f32[S, 4]"), "fused exp add");
    becomes(map, STRICT, &elementwise("  %3 = exp %1 : f32[4]\n  %4 = add %3, %0 : f32[S, 4]"), "exp add");
    becomes(
        map,
        STRICT,
        &elementwise("  %3 = softmax %0, axis=0 : f32[S, 4]\n  %4 = add %3, %2 : f32[S, 4]"),
        "softmax add",
    );
    becomes(
        map,
        STRICT,
        &elementwise("  %3 = exp %0 : f32[S, 4]\n  tap %3, \"t\"\n  %4 = add %3, %2 : f32[S, 4]"),
        "exp add",
    );
    becomes(
        map,
        STRICT,
        &elementwise("  %3 = exp %0 : f32[S, 4]\n  %4 = mul %3, %3 : f32[S, 4]\n  %5 = add %4, %3 : f32[S, 4]"),
        "fused exp mul add",
    );
    let counter = "  %3 = iota axis=1 : f32[S, 4]\n  %4 = add %0, %3 : f32[S, 4]";
    becomes(map, STRICT, &elementwise(counter), "fused iota add");
}

/// Work on the counters of loops is no work on tensors, though a comparison gives a truth value.
#[test]
fn counters_of_loops_stay_outside() {
    let source = "func @f(%0 \"x\": f32[S]) -> (f32[S]) {\n^bb0:\n  br ^bb1(0, %0)\n^bb1(%1: index, %2: f32[S]):\n  %3 = ge %1, 3 : bool[]\n\
        \n  %4 = not %3 : bool[]\n  br_if %4, ^bb2, ^bb3\n^bb2:\n  %5 = sin %2 : f32[S]\n  %6 = add %1, 1 : index\n  br ^bb1(%6, %5)\n\
        ^bb3:\n  return %2\n}\n";
    stays("fuse-map", STRICT, source);
}

/// At most 48 operations, and 16 operands.
#[test]
fn kernels_have_a_size() {
    let long = |n: usize| -> String {
        (0..n).map(|i| format!("  %{} = {} %{} : f32[S]\n", i + 1, ["sin", "cos"][i % 2], i)).collect()
    };
    let fused = |n: usize| {
        let list = attnc::passes::parse_pass_list("fuse-map").expect("a pass");
        let source = crate::passes::canonical(&function("f32[S]", "f32[S]", &long(n)));
        keeps("fuse-map", STRICT, &function("f32[S]", "f32[S]", &long(n)));
        crate::passes::run(&source, Some(&list), &Default::default()).0.matches("fused map").count()
    };
    assert_eq!((fused(48), fused(49), fused(50), fused(96)), (1, 1, 2, 2));
    let wide = |n: usize| {
        let args = vec!["f32[S]"; n].join(" | ");
        let lines: String = (1..n)
            .map(|i| format!("  %{} = sub %{}, %{i} : f32[S]\n", 100 + i, if i == 1 { 0 } else { 99 + i }))
            .collect();
        let list = attnc::passes::parse_pass_list("fuse-map").expect("a pass");
        let source = function(&args, "f32[S]", &lines);
        keeps("fuse-map", STRICT, &source);
        crate::passes::run(&crate::passes::canonical(&source), Some(&list), &Default::default())
            .0
            .matches("fused map")
            .count()
    };
    assert_eq!((wide(16), wide(18)), (1, 2));
}
