//! The conditions of canonicalise-row, one by one: what of the work on a vector is done on the row that it was.

use attnc::passes::Float;

use crate::values::{becomes, function, stays};

const STRICT: Float = Float::Strict;
const PASS: &str = "canonicalise-row";
/// A row, weights, a vector, a matrix, a row of a row.
const ARGS: &str = "f32[1, 3] | f32[3, 4] | f32[4] | f32[S, 4] | f32[1, 1, 3]";
/// `%8` is a product as a vector, `%6` the row that it was.
const VECTOR: &str = "  %6 = matmul %0, %1 : f32[1, 4]\n  %8 = reshape %6 : f32[4]\n";

fn moves(lines: &str, left: &str) {
    becomes(PASS, STRICT, &function(ARGS, "f32[4]", &format!("{VECTOR}{lines}")), left);
}

#[test]
fn what_is_done_to_a_vector_is_done_to_the_row() {
    moves("  %9 = add %8, %2 : f32[4]", "matmul add reshape");
    moves("  %9 = sub %2, %8 : f32[4]", "matmul sub reshape");
    moves("  %10 = tanh %8 : f32[4]\n  %9 = mul %10, %2 : f32[4]", "matmul tanh mul reshape");
    moves("  %10 = sigmoid %8 : f32[4]\n  %9 = mul %8, %10 : f32[4]", "matmul sigmoid mul reshape");
    moves("  %10 = cast %8 : i32[4]\n  %9 = cast %10 : f32[4]", "matmul cast cast reshape");
    let select = "  %10 = lt %8, %2 : bool[4]\n  %9 = where %10, %8, 0.5 : f32[4]";
    moves(select, "matmul lt where reshape");
    // Two products, and one after the other.
    let two = "  %10 = matmul %0, %1 : f32[1, 4]\n  %11 = reshape %10 : f32[4]\n  %12 = exp %11 : f32[4]\n  %9 = add %8, %12 : f32[4]";
    moves(two, "matmul matmul exp add reshape");
}

#[test]
fn operands_of_other_shapes_stay_vectors() {
    // Two axes of 1 were dropped of the other one.
    let longer = "  %10 = matmul %4, %1 : f32[1, 1, 4]\n  %11 = reshape %10 : f32[4]\n  %9 = add %8, %11 : f32[4]";
    moves(longer, "matmul matmul reshape add reshape");
    // A row that is no product, beside one that is.
    let other = "  %10 = slice %3, axis=0, start=0, stop=1 : f32[1, 4]\n  %11 = reshape %10 : f32[4]\n  %9 = add %8, %11 : f32[4]";
    moves(other, "matmul slice add reshape");
    moves(
        "  %10 = slice %2, axis=0, start=1, stop=2 : f32[1]\n  %9 = mul %8, %10 : f32[4]",
        "matmul slice mul reshape",
    );
}

#[test]
fn what_stays_behind_the_reshape() {
    let keeps = |result: &str, lines: &str| stays(PASS, STRICT, &function(ARGS, result, lines));
    // To a larger shape; no product; a matrix by a vector, whose axis of 1 is behind; a reduction.
    keeps("f32[S, 4]", &format!("{VECTOR}  %9 = add %8, %3 : f32[S, 4]"));
    keeps("f32[3]", "  %8 = reshape %0 : f32[3]\n  %9 = exp %8 : f32[3]");
    let column = "  %6 = transpose %0, perm=[1, 0] : f32[3, 1]\n  %7 = transpose %1, perm=[1, 0] : f32[4, 3]\n  %8 = matmul %7, %6 : f32[4, 1]\n\
                  \n  %10 = reshape %8 : f32[4]\n  %9 = exp %10 : f32[4]";
    keeps("f32[4]", column);
}

/// `%8` is a product as a matrix, `%7` the rows that it was: one for each of H heads.
const HEADS: &str = "  %7 = matmul %0, %1 : f32[H, 1, 4]\n  %8 = reshape %7 : f32[H, 4]\n";
const HEAD_ARGS: &str = "f32[H, 1, 3] | f32[H, 3, 4] | f32[4] | f32[H, 4] | f32[H, 1] | f32[1, 1] | f32[]";

#[test]
fn an_axis_of_one_between_others_is_kept() {
    let moves = |result: &str, lines: &str, left: &str| {
        becomes(PASS, STRICT, &function(HEAD_ARGS, result, &format!("{HEADS}{lines}")), left);
    };
    // What is broadcast along the heads needs no axis; what has them, does.
    moves("f32[H, 4]", "  %9 = add %8, %2 : f32[H, 4]", "matmul add reshape");
    moves("f32[H, 4]", "  %9 = mul %8, %6 : f32[H, 4]", "matmul mul reshape");
    moves("f32[H, 4]", "  %9 = sub %3, %8 : f32[H, 4]", "matmul reshape sub reshape");
    moves("f32[H, 4]", "  %9 = sub %8, %4 : f32[H, 4]", "matmul reshape sub reshape");
    moves("f32[H, 4]", "  %9 = sub %8, %5 : f32[H, 4]", "matmul reshape sub reshape");
}

#[test]
fn a_softmax_is_one_of_the_row() {
    moves("  %9 = softmax %8, axis=0 : f32[4]", "matmul softmax reshape");
    let heads = |lines: &str, result: &str, left: &str| {
        becomes(PASS, STRICT, &function(HEAD_ARGS, result, &format!("{HEADS}{lines}")), left);
    };
    heads("  %9 = softmax %8, axis=1 : f32[H, 4]", "f32[H, 4]", "matmul softmax reshape");
    heads("  %9 = log_softmax %8, axis=1 : f32[H, 4]", "f32[H, 4]", "matmul log_softmax reshape");
    // Over the heads.
    heads("  %9 = softmax %8, axis=0 : f32[H, 4]", "f32[H, 4]", "matmul softmax reshape");
    // The row gets its axis back, twice.
    let back = "  %10 = softmax %8, axis=1 : f32[H, 4]\n  %11 = reshape %10 : f32[H, 1, 4]\n  %12 = reshape %11 : f32[H, 4]\n  \
                %13 = exp %12 : f32[H, 4]\n  %9 = reshape %13 : f32[H, 1, 4]";
    heads(back, "f32[H, 1, 4]", "matmul softmax exp");
}
