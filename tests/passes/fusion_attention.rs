//! Does each pass around attention do what its file says, and say why where it does not?

use attnc::passes::Float;

const CONTRACT: Float = Float::Contract;

#[test]
fn leaves_what_it_cannot_prove_and_says_why() {
    pass_snapshot!("fuse_attention_missed", "fuse-attention", CONTRACT, "
func @other_axis(%0 \"q\": f32[S, 64], %1 \"k\": f32[S, 64], %2 \"v\": f32[S, 64]) -> (f32[S, 64]) {
^bb0:
  %3 = transpose %1, perm=[1, 0] : f32[64, S] loc(2:10)
  %4 = matmul %0, %3 : f32[S, S] loc(2:8)
  %5 = softmax %4, axis=0 : f32[S, S] loc(2:4)
  %6 = matmul %5, %2 : f32[S, 64] loc(2:20)
  return %6
}
func @tapped(%0 \"q\": f32[S, 64], %1 \"k\": f32[T, 64], %2 \"v\": f32[T, 64]) -> (f32[S, 64]) {
^bb0:
  %3 = transpose %1, perm=[1, 0] : f32[64, T] loc(5:10)
  %4 = matmul %0, %3 : f32[S, T] loc(5:8)
  %5 = softmax %4, axis=1 : f32[S, T] loc(6:4)
  tap %5, \"weights\" loc(7:5)
  %6 = matmul %5, %2 : f32[S, 64] loc(8:20)
  return %6
}
func @scores_used_twice(%0 \"q\": f32[S, 64], %1 \"k\": f32[T, 64], %2 \"v\": f32[T, 64]) -> (f32[S, 64], f32[S, T]) {
^bb0:
  %3 = transpose %1, perm=[1, 0] : f32[64, T] loc(11:10)
  %4 = matmul %0, %3 : f32[S, T] loc(11:8)
  %5 = softmax %4, axis=1 : f32[S, T] loc(12:4)
  %6 = matmul %5, %2 : f32[S, 64] loc(13:20)
  return %6, %4
}
func @scale_for_each_head(%0 \"q\": f32[8, S, 64], %1 \"k\": f32[8, T, 64], %2 \"v\": f32[8, T, 64], %t \"t\": f32[8, 1, 1]) -> (f32[8, S, 64]) {
^bb0:
  %3 = transpose %1, perm=[0, 2, 1] : f32[8, 64, T] loc(16:10)
  %4 = matmul %0, %3 : f32[8, S, T] loc(16:8)
  %5 = mul %4, %t : f32[8, S, T] loc(16:14)
  %6 = softmax %5, axis=2 : f32[8, S, T] loc(17:4)
  %7 = matmul %6, %2 : f32[8, S, 64] loc(18:20)
  return %7
}
func @mask_makes_a_batch(%0 \"q\": f32[S, 64], %1 \"k\": f32[T, 64], %2 \"v\": f32[T, 64], %m \"m\": bool[B, S, T]) -> (f32[B, S, 64]) {
^bb0:
  %3 = transpose %1, perm=[1, 0] : f32[64, T] loc(21:10)
  %4 = matmul %0, %3 : f32[S, T] loc(21:8)
  %5 = where %m, %4, -inf : f32[B, S, T] loc(22:14)
  %6 = softmax %5, axis=2 : f32[B, S, T] loc(22:4)
  %7 = matmul %6, %2 : f32[B, S, 64] loc(23:20)
  return %7
}
func @squashed(%0 \"q\": f32[S, 64], %1 \"k\": f32[T, 64], %2 \"v\": f32[T, 64]) -> (f32[S, 64]) {
^bb0:
  %3 = transpose %1, perm=[1, 0] : f32[64, T] loc(26:10)
  %4 = matmul %0, %3 : f32[S, T] loc(26:8)
  %5 = sigmoid %4 : f32[S, T] loc(26:14)
  %6 = softmax %5, axis=1 : f32[S, T] loc(27:4)
  %7 = matmul %6, %2 : f32[S, 64] loc(28:20)
  return %7
}
func @dropped_weights(%0 \"q\": f32[S, 64], %1 \"k\": f32[T, 64], %2 \"v\": f32[T, 64], %d \"d\": f32[S, T]) -> (f32[S, 64]) {
^bb0:
  %3 = transpose %1, perm=[1, 0] : f32[64, T] loc(31:10)
  %4 = matmul %0, %3 : f32[S, T] loc(31:8)
  %5 = softmax %4, axis=1 : f32[S, T] loc(32:4)
  %6 = mul %5, %d : f32[S, T] loc(32:14)
  %7 = matmul %6, %2 : f32[S, 64] loc(33:20)
  return %7
}
func @mixed_types(%0 \"q\": bf16[S, 64], %1 \"k\": bf16[T, 64], %2 \"v\": f32[T, 64]) -> (f32[S, 64]) {
^bb0:
  %3 = transpose %1, perm=[1, 0] : bf16[64, T] loc(36:10)
  %4 = matmul %0, %3 : bf16[S, T] loc(36:8)
  %5 = cast %4 : f32[S, T] loc(36:14)
  %6 = softmax %5, axis=1 : f32[S, T] loc(37:4)
  %7 = matmul %6, %2 : f32[S, 64] loc(38:20)
  return %7
}
func @no_matmul(%0 \"s\": f32[S, T], %2 \"v\": f32[T, 64]) -> (f32[S, 64]) {
^bb0:
  %6 = softmax %0, axis=1 : f32[S, T] loc(42:4)
  %7 = matmul %6, %2 : f32[S, 64] loc(43:20)
  return %7
}
func @in_a_loop(%0 \"q\": f32[S, 64], %1 \"k\": f32[S, 64], %2 \"v\": f32[S, 64]) -> (f32[S, 64]) {
^bb0:
  %3 = transpose %1, perm=[1, 0] : f32[64, S] loc(46:10)
  %4 = matmul %0, %3 : f32[S, S] loc(46:8)
  %5 = softmax %4, axis=1 : f32[S, S] loc(46:4)
  br ^bb1(0, %2)
^bb1(%i: index, %x: f32[S, 64]):
  %c = lt %i, 3 : bool[]
  br_if %c, ^bb2, ^bb3
^bb2:
  %y = matmul %5, %x : f32[S, 64] loc(48:20)
  %j = add %i, 1 : index
  br ^bb1(%j, %y)
^bb3:
  return %x
}
");
}

#[test]
fn strict_floats_fuse_no_attention() {
    pass_snapshot!(
        "fuse_attention_strict",
        "canonicalise-scale,fuse-attention",
        Float::Strict,
        "
func @forward(%0 \"q\": f32[S, 64], %1 \"k\": f32[T, 64], %2 \"v\": f32[T, 64]) -> (f32[S, 64]) {
^bb0:
  %3 = transpose %1, perm=[1, 0] : f32[64, T] loc(2:10)
  %4 = matmul %0, %3 : f32[S, T] loc(2:8)
  %5 = div %4, 8.0 : f32[S, T] loc(2:12)
  %6 = div %5, 3.0 : f32[S, T] loc(2:16)
  %7 = softmax %6, axis=1 : f32[S, T] loc(2:4)
  %8 = matmul %7, %2 : f32[S, 64] loc(2:20)
  return %8
}
"
    );
}

#[test]
fn brings_scales_next_to_the_matmul() {
    pass_snapshot!("canonicalise_scale_more", "canonicalise-scale", CONTRACT, "
func @on_queries_and_after_the_mask(%0 \"q\": f32[12, S, 64], %1 \"k\": f32[12, S, 64], %2 \"v\": f32[12, S, 64]) -> (f32[12, S, 64]) {
^bb0:
  %3 = transpose %1, perm=[0, 2, 1] : f32[12, 64, S] loc(2:10)
  %4 = mul %0, 0.5 : f32[12, S, 64] loc(2:3)
  %5 = matmul %4, %3 : f32[12, S, S] loc(2:8)
  %6 = causal : bool[S, S] loc(3:7)
  %7 = where %6, %5, -inf : f32[12, S, S] loc(3:1)
  %8 = div %7, 4.0 : f32[12, S, S] loc(4:5)
  %9 = softmax %8, axis=2 : f32[12, S, S] loc(4:4)
  %10 = matmul %9, %2 : f32[12, S, 64] loc(4:20)
  return %10
}
func @on_both_sides_and_keys_transposed(%0 \"q\": f32[S, 64], %1 \"k\": f32[T, 64], %2 \"v\": f32[T, 64], %s \"s\": f32[]) -> (f32[S, 64]) {
^bb0:
  %3 = div 0.3, %s : f32[] loc(7:1)
  %4 = mul %s, %0 : f32[S, 64] loc(7:3)
  %5 = div %1, 3.0 : f32[T, 64] loc(7:5)
  %6 = transpose %5, perm=[1, 0] : f32[64, T] loc(7:10)
  %7 = matmul %4, %6 : f32[S, T] loc(7:8)
  %8 = softmax %7, axis=1 : f32[S, T] loc(7:4)
  %9 = matmul %8, %2 : f32[S, 64] loc(7:20)
  return %9
}
func @after_an_additive_mask(%0 \"q\": f32[S, 64], %1 \"k\": f32[T, 64], %2 \"v\": f32[T, 64], %m \"m\": f32[S, T]) -> (f32[S, 64]) {
^bb0:
  %3 = transpose %1, perm=[1, 0] : f32[64, T] loc(12:10)
  %4 = matmul %0, %3 : f32[S, T] loc(12:8)
  %5 = add %4, %m : f32[S, T] loc(12:9)
  %6 = mul %5, 0.125 : f32[S, T] loc(12:12)
  %7 = softmax %6, axis=1 : f32[S, T] loc(12:4)
  %8 = matmul %7, %2 : f32[S, 64] loc(12:20)
  return %8
}
func @no_attention(%0 \"q\": f32[S, 64], %1 \"k\": f32[T, 64]) -> (f32[S, T]) {
^bb0:
  %3 = transpose %1, perm=[1, 0] : f32[64, T] loc(16:10)
  %4 = mul %0, 0.5 : f32[S, 64] loc(16:3)
  %5 = matmul %4, %3 : f32[S, T] loc(16:8)
  %6 = softmax %5, axis=1 : f32[S, T] loc(16:4)
  return %6
}
");
}

#[test]
fn turns_masks_into_what_is_kept() {
    pass_snapshot!("canonicalise_mask_more", "canonicalise-mask", CONTRACT, "
func @hidden_by_or(%0 \"q\": f32[12, S, 64], %1 \"k\": f32[12, 64, S], %2 \"v\": f32[12, S, 64], %p \"padding\": bool[1, S]) -> (f32[12, S, 64]) {
^bb0:
  %3 = matmul %0, %1 : f32[12, S, S] loc(2:8)
  %4 = causal : bool[S, S] loc(3:7)
  %5 = not %4 : bool[S, S] loc(3:5)
  %6 = or %5, %p : bool[S, S] loc(3:9)
  %7 = where %6, -inf, %3 : f32[12, S, S] loc(3:1)
  %8 = softmax %7, axis=2 : f32[12, S, S] loc(4:4)
  %9 = matmul %8, %2 : f32[12, S, 64] loc(4:20)
  return %9
}
func @counted_by_hand(%0 \"q\": f32[12, S, 64], %1 \"k\": f32[12, 64, T], %2 \"v\": f32[12, T, 64]) -> (f32[12, S, 64]) {
^bb0:
  %3 = matmul %0, %1 : f32[12, S, T] loc(7:8)
  %4 = iota axis=0 : i32[S] loc(8:3)
  %5 = reshape %4 : i32[S, 1] loc(8:4)
  %6 = dim T-S : i32[] loc(8:6)
  %7 = add %5, %6 : i32[S, 1] loc(8:8)
  %8 = iota axis=0 : i32[T] loc(8:9)
  %9 = lt %7, %8 : bool[S, T] loc(8:12)
  %10 = reshape %9 : bool[1, S, T] loc(8:13)
  %11 = where %10, -inf, %3 : f32[12, S, T] loc(9:1)
  %12 = softmax %11, axis=2 : f32[12, S, T] loc(9:4)
  %13 = matmul %12, %2 : f32[12, S, 64] loc(9:20)
  return %13
}
func @counted_otherwise(%0 \"q\": f32[12, S, 64], %1 \"k\": f32[12, 64, T], %2 \"v\": f32[12, T, 64]) -> (f32[12, S, 64]) {
^bb0:
  %3 = matmul %0, %1 : f32[12, S, T] loc(12:8)
  %4 = iota axis=0 : i32[S, 1] loc(13:3)
  %5 = iota axis=1 : i32[1, T] loc(13:4)
  %6 = ge %4, %5 : bool[S, T] loc(13:12)
  %7 = where %6, %3, -inf : f32[12, S, T] loc(14:1)
  %8 = softmax %7, axis=2 : f32[12, S, T] loc(14:4)
  %9 = matmul %8, %2 : f32[12, S, 64] loc(14:20)
  return %9
}
func @added_and_subtracted(%0 \"q\": f32[12, S, 64], %1 \"k\": f32[12, 64, T], %2 \"v\": f32[12, T, 64], %m \"m\": f32[S, T], %c \"c\": bool[S, T]) -> (f32[12, S, 64]) {
^bb0:
  %3 = matmul %0, %1 : f32[12, S, T] loc(17:8)
  %4 = sub %3, %m : f32[12, S, T] loc(17:9)
  %5 = where %c, 0.0, -inf : f32[S, T] loc(18:3)
  %6 = add %5, %4 : f32[12, S, T] loc(18:9)
  %7 = softmax %6, axis=2 : f32[12, S, T] loc(19:4)
  %8 = matmul %7, %2 : f32[12, S, 64] loc(19:20)
  return %8
}
");
}

#[test]
fn takes_an_added_minus_infinity_for_a_mask_only_when_fast() {
    pass_snapshot!(
        "canonicalise_mask_fast",
        "canonicalise-mask",
        Float::Fast,
        "
func @forward(%0 \"q\": f32[12, S, 64], %1 \"k\": f32[12, 64, T], %2 \"v\": f32[12, T, 64]) -> (f32[12, S, 64]) {
^bb0:
  %3 = matmul %0, %1 : f32[12, S, T] loc(2:8)
  %4 = causal : bool[S, T] loc(3:1)
  %5 = where %4, 0.0, -inf : f32[S, T] loc(3:3)
  %6 = add %3, %5 : f32[12, S, T] loc(3:9)
  %7 = softmax %6, axis=2 : f32[12, S, T] loc(4:4)
  %8 = matmul %7, %2 : f32[12, S, 64] loc(4:20)
  return %8
}
"
    );
}

#[test]
fn turns_transposed_scores_round() {
    pass_snapshot!("canonicalise_transpose_more", "canonicalise-transpose", CONTRACT, "
func @keys_times_queries(%0 \"q\": f32[12, S, 64], %1 \"k\": f32[12, T, 64], %2 \"v\": f32[12, T, 64]) -> (f32[12, S, 64]) {
^bb0:
  %3 = transpose %0, perm=[0, 2, 1] : f32[12, 64, S] loc(2:10)
  %4 = matmul %1, %3 : f32[12, T, S] loc(2:8)
  %5 = mul %4, 0.125 : f32[12, T, S] loc(2:12)
  %6 = softmax %5, axis=1 : f32[12, T, S] loc(3:4)
  %7 = transpose %6, perm=[0, 2, 1] : f32[12, S, T] loc(4:10)
  %8 = matmul %7, %2 : f32[12, S, 64] loc(4:20)
  return %8
}
func @values_times_weights(%0 \"q\": f32[S, 64], %1 \"k\": f32[64, T], %2 \"v\": f32[64, T]) -> (f32[64, S]) {
^bb0:
  %3 = matmul %0, %1 : f32[S, T] loc(7:8)
  %4 = softmax %3, axis=1 : f32[S, T] loc(7:4)
  %5 = transpose %4, perm=[1, 0] : f32[T, S] loc(8:10)
  %6 = matmul %2, %5 : f32[64, S] loc(8:20)
  return %6
}
func @no_scores(%0 \"x\": f32[S, 64], %1 \"w\": f32[64, T]) -> (f32[T, S]) {
^bb0:
  %2 = matmul %0, %1 : f32[S, T] loc(11:8)
  %3 = transpose %2, perm=[1, 0] : f32[T, S] loc(11:10)
  return %3
}
");
}

#[test]
fn finds_a_softmax_by_hand() {
    pass_snapshot!(
        "canonicalise_softmax_more",
        "canonicalise-softmax",
        CONTRACT,
        "
func @proved(%0 \"x\": f32[S, T]) -> (f32[S, T]) {
^bb0:
  %1 = sigmoid %0 : f32[S, T] loc(2:4)
  %2 = reduce_max %1, axes=[1], keep=true : f32[S, 1] loc(3:4)
  %3 = sub %1, %2 : f32[S, T] loc(3:2)
  %4 = exp %3 : f32[S, T] loc(3:1)
  %5 = reduce_sum %4, axes=[1] : f32[S] loc(4:4)
  %6 = reshape %5 : f32[S, 1] loc(4:8)
  %7 = div %4, %6 : f32[S, T] loc(4:1)
  return %7
}
func @a_row_may_be_minus_infinity(%0 \"x\": f32[S, T]) -> (f32[S, T]) {
^bb0:
  %2 = reduce_max %0, axes=[1], keep=true : f32[S, 1] loc(8:4)
  %3 = sub %0, %2 : f32[S, T] loc(8:2)
  %4 = exp %3 : f32[S, T] loc(8:1)
  %5 = reduce_sum %4, axes=[1], keep=true : f32[S, 1] loc(9:4)
  %7 = div %4, %5 : f32[S, T] loc(9:1)
  return %7
}
func @used_elsewhere(%0 \"x\": f32[S, T]) -> (f32[S, T], f32[S, 1]) {
^bb0:
  %1 = tanh %0 : f32[S, T] loc(12:4)
  %2 = reduce_max %1, axes=[1], keep=true : f32[S, 1] loc(13:4)
  %3 = sub %1, %2 : f32[S, T] loc(13:2)
  %4 = exp %3 : f32[S, T] loc(13:1)
  %5 = reduce_sum %4, axes=[1], keep=true : f32[S, 1] loc(14:4)
  %7 = div %4, %5 : f32[S, T] loc(14:1)
  return %7, %5
}
func @other_axes(%0 \"x\": f32[S, S]) -> (f32[S, S]) {
^bb0:
  %1 = tanh %0 : f32[S, S] loc(17:4)
  %2 = reduce_max %1, axes=[0], keep=true : f32[1, S] loc(18:4)
  %3 = sub %1, %2 : f32[S, S] loc(18:2)
  %4 = exp %3 : f32[S, S] loc(18:1)
  %5 = reduce_sum %4, axes=[1], keep=true : f32[S, 1] loc(19:4)
  %7 = div %4, %5 : f32[S, S] loc(19:1)
  return %7
}
"
    );
}

#[test]
fn computes_regrouped_scores_in_their_groups() {
    pass_snapshot!(
        "canonicalise_heads_more",
        "canonicalise-heads",
        CONTRACT,
        "
func @four_query_heads_for_each_key_head(%0 \"q\": f32[2, 4, S, 64], %1 \"k\": f32[2, 64, T], %2 \"v\": f32[2, T, 64]) -> (f32[2, 4, S, 64]) {
^bb0:
  %3 = reshape %0 : f32[2, 4*S, 64] loc(2:3)
  %4 = matmul %3, %1 : f32[2, 4*S, T] loc(2:8)
  %5 = reshape %4 : f32[2, 4, S, T] loc(2:8)
  %6 = softmax %5, axis=3 : f32[2, 4, S, T] loc(3:4)
  %7 = reshape %6 : f32[2, 4*S, T] loc(3:4)
  %8 = matmul %7, %2 : f32[2, 4*S, 64] loc(4:8)
  %9 = reshape %8 : f32[2, 4, S, 64] loc(4:8)
  return %9
}
func @heads_in_the_batch(%0 \"q\": f32[12*B, S, 64], %1 \"k\": f32[12*B, 64, T], %2 \"v\": f32[12*B, T, 64], %3 \"keep\": bool[B, 1, 1, T]) -> (f32[12*B, S, 64]) {
^bb0:
  %4 = matmul %0, %1 : f32[12*B, S, T] loc(8:8)
  %5 = reshape %4 : f32[B, 12, S, T] loc(8:10)
  %6 = where %3, %5, -inf : f32[B, 12, S, T] loc(8:12)
  %7 = softmax %6, axis=3 : f32[B, 12, S, T] loc(9:4)
  %8 = reshape %7 : f32[12*B, S, T] loc(9:4)
  %9 = matmul %8, %2 : f32[12*B, S, 64] loc(9:8)
  return %9
}
func @keys_repeated(%0 \"q\": f32[12, S, 64], %1 \"k\": f32[1, T, 64], %2 \"v\": f32[1, T, 64]) -> (f32[12, S, 64]) {
^bb0:
  %3 = broadcast %1 : f32[12, T, 64] loc(13:3)
  %4 = transpose %3, perm=[0, 2, 1] : f32[12, 64, T] loc(13:5)
  %5 = matmul %0, %4 : f32[12, S, T] loc(13:8)
  %6 = softmax %5, axis=2 : f32[12, S, T] loc(13:10)
  %7 = broadcast %2 : f32[12, T, 64] loc(13:12)
  %8 = matmul %6, %7 : f32[12, S, 64] loc(13:14)
  return %8
}
"
    );
}

const ATTENTION: &str = "canonicalise-cast,canonicalise-scale,fuse-attention";

#[test]
fn fuses_soft_caps() {
    pass_snapshot!("fuse_attention_caps", ATTENTION, CONTRACT, "
func @before_the_mask(%0 \"q\": f32[8, S, 64], %1 \"k\": f32[8, 64, T], %2 \"v\": f32[8, T, 64]) -> (f32[8, S, 64]) {
^bb0:
  %3 = matmul %0, %1 : f32[8, S, T] loc(2:8)
  %4 = mul %3, 0.125 : f32[8, S, T] loc(3:12)
  %5 = div %4, 50.0 : f32[8, S, T] loc(4:20)
  %6 = tanh %5 : f32[8, S, T] loc(4:14)
  %7 = mul 50.0, %6 : f32[8, S, T] loc(4:7)
  %8 = causal : bool[S, T] loc(5:9)
  %9 = where %8, %7, -inf : f32[8, S, T] loc(5:3)
  %10 = softmax %9, axis=2 : f32[8, S, T] loc(6:4)
  %11 = matmul %10, %2 : f32[8, S, 64] loc(6:20)
  return %11
}
func @behind_a_mask_and_computed(%0 \"q\": f32[S, 64], %1 \"k\": f32[64, T], %2 \"v\": f32[T, 64], %m \"m\": f32[S, T], %c \"c\": f32[]) -> (f32[S, 64]) {
^bb0:
  %3 = matmul %0, %1 : f32[S, T] loc(10:8)
  %4 = add %3, %m : f32[S, T] loc(11:9)
  %5 = div %4, %c : f32[S, T] loc(11:20)
  %6 = tanh %5 : f32[S, T] loc(11:14)
  %7 = mul %6, %c : f32[S, T] loc(11:7)
  %8 = softmax %7, axis=1 : f32[S, T] loc(12:4)
  %9 = matmul %8, %2 : f32[S, 64] loc(12:20)
  return %9
}
func @a_cap_for_each_row(%0 \"q\": f32[S, 64], %1 \"k\": f32[64, T], %2 \"v\": f32[T, 64], %c \"c\": f32[S, 1]) -> (f32[S, 64]) {
^bb0:
  %3 = matmul %0, %1 : f32[S, T] loc(16:8)
  %6 = tanh %3 : f32[S, T] loc(17:14)
  %7 = mul %6, %c : f32[S, T] loc(17:7)
  %8 = softmax %7, axis=1 : f32[S, T] loc(18:4)
  %9 = matmul %8, %2 : f32[S, 64] loc(18:20)
  return %9
}
");
}

#[test]
fn fuses_sinks() {
    pass_snapshot!("fuse_attention_sinks", ATTENTION, CONTRACT, "
func @behind(%0 \"q\": f32[8, S, 64], %1 \"k\": f32[8, 64, T], %2 \"v\": f32[8, T, 64], %s \"s\": f32[8]) -> (f32[8, S, 64]) {
^bb0:
  %3 = matmul %0, %1 : f32[8, S, T] loc(2:8)
  %4 = mul %3, 0.125 : f32[8, S, T] loc(2:12)
  %5 = reshape %s : f32[8, 1, 1] loc(3:3)
  %6 = broadcast %5 : f32[8, S, 1] loc(3:9)
  %7 = concat %4, %6, axis=2 : f32[8, S, T+1] loc(4:3)
  %8 = softmax %7, axis=2 : f32[8, S, T+1] loc(5:4)
  %9 = slice %8, axis=2, start=0, stop=T : f32[8, S, T] loc(6:4)
  %10 = matmul %9, %2 : f32[8, S, 64] loc(6:20)
  return %10
}
func @a_number_before(%0 \"q\": f32[S, 64], %1 \"k\": f32[64, T], %2 \"v\": f32[T, 64]) -> (f32[S, 64]) {
^bb0:
  %3 = matmul %0, %1 : f32[S, T] loc(10:8)
  %4 = pad %3, 0.0, axis=1, low=1, high=0 : f32[S, T+1] loc(11:3)
  %5 = softmax %4, axis=1 : f32[S, T+1] loc(12:4)
  %6 = slice %5, axis=1, start=1, stop=T+1 : f32[S, T] loc(12:14)
  %7 = matmul %6, %2 : f32[S, 64] loc(13:20)
  return %7
}
func @small_floats(%0 \"q\": bf16[S, 64], %1 \"k\": bf16[64, T], %2 \"v\": bf16[T, 64], %s \"s\": bf16[]) -> (bf16[S, 64]) {
^bb0:
  %3 = matmul %0, %1 : bf16[S, T] loc(17:8)
  %4 = broadcast %s : bf16[S, 1] loc(18:3)
  %5 = concat %4, %3, axis=1 : bf16[S, T+1] loc(18:9)
  %6 = cast %5 : f32[S, T+1] loc(19:3)
  %7 = softmax %6, axis=1 : f32[S, T+1] loc(19:9)
  %8 = cast %7 : bf16[S, T+1] loc(20:3)
  %9 = slice %8, axis=1, start=1, stop=T+1 : bf16[S, T] loc(20:9)
  %10 = matmul %9, %2 : bf16[S, 64] loc(20:20)
  return %10
}
func @the_last_key_is_dropped(%0 \"q\": f32[S, 64], %1 \"k\": f32[64, T], %2 \"v\": f32[T, 64], %s \"s\": f32[S, 1]) -> (f32[S, 64]) {
^bb0:
  %3 = matmul %0, %1 : f32[S, T] loc(24:8)
  %4 = concat %s, %3, axis=1 : f32[S, T+1] loc(25:3)
  %5 = softmax %4, axis=1 : f32[S, T+1] loc(25:9)
  %6 = slice %5, axis=1, start=0, stop=T : f32[S, T] loc(25:14)
  %7 = matmul %6, %2 : f32[S, 64] loc(26:20)
  return %7
}
func @two_columns(%0 \"q\": f32[S, 64], %1 \"k\": f32[64, T], %2 \"v\": f32[T, 64], %s \"s\": f32[S, 2]) -> (f32[S, 64]) {
^bb0:
  %3 = matmul %0, %1 : f32[S, T] loc(30:8)
  %4 = concat %3, %s, axis=1 : f32[S, T+2] loc(31:3)
  %5 = softmax %4, axis=1 : f32[S, T+2] loc(31:9)
  %6 = slice %5, axis=1, start=0, stop=T : f32[S, T] loc(31:14)
  %7 = matmul %6, %2 : f32[S, 64] loc(32:20)
  return %7
}
func @not_dropped(%0 \"q\": f32[S, 64], %1 \"k\": f32[64, T], %2 \"v\": f32[T+1, 64], %s \"s\": f32[S, 1]) -> (f32[S, 64]) {
^bb0:
  %3 = matmul %0, %1 : f32[S, T] loc(36:8)
  %4 = concat %3, %s, axis=1 : f32[S, T+1] loc(37:3)
  %5 = softmax %4, axis=1 : f32[S, T+1] loc(37:9)
  %6 = matmul %5, %2 : f32[S, 64] loc(38:20)
  return %6
}
");
}

#[test]
fn fuses_weights_of_another_type_than_their_scores() {
    pass_snapshot!("fuse_attention_types", ATTENTION, CONTRACT, "
func @cast_after_the_mask(%0 \"q\": bf16[S, 64], %1 \"k\": bf16[64, T], %2 \"v\": bf16[T, 64], %m \"m\": bf16[S, T]) -> (bf16[S, 64]) {
^bb0:
  %3 = matmul %0, %1 : bf16[S, T] loc(2:8)
  %4 = div %3, bf16(8.0) : bf16[S, T] loc(2:12)
  %5 = add %4, %m : bf16[S, T] loc(3:9)
  %6 = cast %5 : f32[S, T] loc(4:3)
  %7 = softmax %6, axis=1 : f32[S, T] loc(4:9)
  %8 = cast %7 : bf16[S, T] loc(5:3)
  %9 = matmul %8, %2 : bf16[S, 64] loc(5:20)
  return %9
}
func @values_of_their_own(%0 \"q\": f16[S, 64], %1 \"k\": f16[64, T], %2 \"v\": f32[T, 64]) -> (f32[S, 64]) {
^bb0:
  %3 = cast %0 : f32[S, 64] loc(9:3)
  %4 = mul %3, 0.125 : f32[S, 64] loc(9:6)
  %5 = cast %1 : f32[64, T] loc(9:9)
  %6 = matmul %4, %5 : f32[S, T] loc(10:8)
  %7 = softmax %6, axis=1 : f32[S, T] loc(10:4)
  %8 = matmul %7, %2 : f32[S, 64] loc(10:20)
  return %8
}
func @rounded_scores(%0 \"q\": f32[S, 64], %1 \"k\": f32[64, T], %2 \"v\": f16[T, 64], %c \"c\": bool[S, T]) -> (f16[S, 64]) {
^bb0:
  %3 = matmul %0, %1 : f32[S, T] loc(14:8)
  %4 = where %c, %3, -1e9 : f32[S, T] loc(14:8)
  %5 = cast %4 : f16[S, T] loc(15:3)
  %6 = softmax %5, axis=1 : f16[S, T] loc(15:9)
  %7 = matmul %6, %2 : f16[S, 64] loc(16:20)
  return %7
}
func @whole_numbers(%0 \"q\": f32[S, 64], %1 \"k\": f32[64, T], %2 \"v\": i8[T, 64]) -> (i32[S, 64]) {
^bb0:
  %3 = matmul %0, %1 : f32[S, T] loc(20:8)
  %4 = softmax %3, axis=1 : f32[S, T] loc(20:4)
  %5 = cast %4 : i8[S, T] loc(21:3)
  %6 = matmul %5, %2 : i32[S, 64] loc(21:20)
  return %6
}
");
}
