//! Does the outlining of regions do what each pass's file says, and say why where it does not?

use attnc::passes::Float;

const CONTRACT: Float = Float::Contract;

#[test]
fn a_reduction_keeps_its_axis() {
    pass_snapshot!(
        "canonicalise_reduce_more",
        "canonicalise-reduce",
        CONTRACT,
        "
func @put_back(%0 \"x\": f32[S, 768]) -> (f32[S, 768]) {
^bb0:
  %1 = reduce_sum %0, axes=[1] : f32[S] loc(2:4)
  %2 = reshape %1 : f32[S, 1] loc(2:8)
  %3 = div %0, %2 : f32[S, 768] loc(2:1)
  return %3
}
func @dropped(%0 \"x\": f32[B, S, 768]) -> (f32[B, S], f32[B, 768]) {
^bb0:
  %1 = reduce_mean %0, axes=[2] : f32[B, S] loc(6:4)
  %2 = reduce_mean %0, axes=[1] : f32[B, 768] loc(7:4)
  return %1, %2
}
"
    );
}

#[test]
fn what_follows_a_matmul_is_done_in_its_kernel() {
    pass_snapshot!("fuse_epilogue_more", "fuse-epilogue", CONTRACT, "
func @bias_and_gelu(%0 \"x\": f32[S, 768], %1 \"w\": f32[768, 3072], %2 \"b\": f32[3072]) -> (f32[S, 3072]) {
^bb0:
  %3 = matmul %0, %1 : f32[S, 3072] loc(2:4)
  %4 = add %3, %2 : f32[S, 3072] loc(2:8)
  %5 = gelu %4 : f32[S, 3072] loc(2:1)
  return %5
}
func @residual(%0 \"x\": f32[S, 768], %1 \"w\": f32[768, 768], %2 \"b\": f32[768]) -> (f32[S, 768], f32[S, 768]) {
^bb0:
  %3 = matmul %0, %1 : f32[S, 768] loc(6:4)
  %4 = add %3, %2 : f32[S, 768] loc(6:8)
  %5 = add %0, %4 : f32[S, 768] loc(6:1)
  %6 = exp %5 : f32[S, 768] loc(7:1)
  return %5, %6
}
func @uses_meet_again(%0 \"x\": f32[S, 768], %1 \"w\": f32[768, 768]) -> (f32[S, 768]) {
^bb0:
  %3 = matmul %0, %1 : f32[S, 768] loc(11:4)
  %4 = sigmoid %3 : f32[S, 768] loc(11:8)
  %5 = mul %3, %4 : f32[S, 768] loc(11:1)
  return %5
}
func @two_matmuls(%0 \"x\": f32[S, 768], %1 \"g\": f32[768, 768], %2 \"u\": f32[768, 768]) -> (f32[S, 768]) {
^bb0:
  %3 = matmul %0, %1 : f32[S, 768] loc(15:4)
  %4 = silu %3 : f32[S, 768] loc(15:2)
  %5 = matmul %0, %2 : f32[S, 768] loc(15:10)
  %6 = mul %4, %5 : f32[S, 768] loc(15:8)
  return %6
}
func @masked_scores(%0 \"q\": f32[12, S, 64], %1 \"k\": f32[12, 64, T]) -> (f32[12, S, T]) {
^bb0:
  %2 = matmul %0, %1 : f32[12, S, T] loc(19:4)
  %3 = mul %2, 0.125 : f32[12, S, T] loc(19:8)
  %4 = causal : bool[S, T] loc(20:1)
  %5 = where %4, %3, -inf : f32[12, S, T] loc(20:2)
  return %5
}
func @attention(%0 \"q\": f32[S, 64], %1 \"k\": f32[T, 64], %2 \"v\": f32[T, 64], %3 \"x\": f32[S, 64]) -> (bf16[S, 64]) {
^bb0:
  %4 = attention %0, %1, %2, scale=0.125, mask=[causal] : f32[S, 64] loc(24:1)
  %5 = add %4, %3 : f32[S, 64] loc(24:8)
  %6 = cast %5 : bf16[S, 64] loc(24:20)
  return %6
}
");
}

#[test]
fn an_epilogue_ends_where_it_must() {
    pass_snapshot!(
        "fuse_epilogue_missed",
        "fuse-epilogue",
        CONTRACT,
        "
func @used_twice(%0 \"x\": f32[S, 768], %1 \"w\": f32[768, 768]) -> (f32[S, 768], f32[S, 768]) {
^bb0:
  %2 = matmul %0, %1 : f32[S, 768] loc(2:4)
  %3 = relu %2 : f32[S, 768] loc(2:8)
  return %3, %2
}
func @tapped(%0 \"x\": f32[S, 768], %1 \"w\": f32[768, 768]) -> (f32[S, 768]) {
^bb0:
  %2 = matmul %0, %1 : f32[S, 768] loc(6:4)
  tap %2, \"hidden\" loc(7:1)
  %3 = relu %2 : f32[S, 768] loc(8:8)
  return %3
}
func @broadcast(%0 \"x\": f32[S, 768], %1 \"w\": f32[768, 768], %2 \"y\": f32[B, S, 768]) -> (f32[B, S, 768]) {
^bb0:
  %3 = matmul %0, %1 : f32[S, 768] loc(12:4)
  %4 = add %3, %2 : f32[B, S, 768] loc(12:8)
  return %4
}
func @moved(%0 \"x\": f32[S, 768], %1 \"w\": f32[768, 768]) -> (f32[768, S]) {
^bb0:
  %3 = matmul %0, %1 : f32[S, 768] loc(16:4)
  %4 = transpose %3, perm=[1, 0] : f32[768, S] loc(16:8)
  %5 = relu %4 : f32[768, S] loc(16:12)
  return %5
}
"
    );
}

#[test]
fn norms_and_softmaxes_become_rows() {
    pass_snapshot!(
        "fuse_rows_more",
        "canonicalise-reduce,fuse-rows",
        CONTRACT,
        "
func @layer_norm(%0 \"x\": f32[S, 768], %1 \"weight\": f32[768], %2 \"bias\": f32[768]) -> (f32[S, 768]) {
^bb0:
  %3 = reduce_mean %0, axes=[1], keep=true : f32[S, 1] loc(2:4)
  %4 = sub %0, %3 : f32[S, 768] loc(2:2)
  %5 = mul %4, %4 : f32[S, 768] loc(3:8)
  %6 = reduce_mean %5, axes=[1], keep=true : f32[S, 1] loc(3:4)
  %7 = add %6, 1e-5 : f32[S, 1] loc(4:8)
  %8 = rsqrt %7 : f32[S, 1] loc(4:4)
  %9 = mul %4, %8 : f32[S, 768] loc(4:1)
  %10 = mul %9, %1 : f32[S, 768] loc(4:20)
  %11 = add %10, %2 : f32[S, 768] loc(4:30)
  return %11
}
func @rms_norm(%0 \"x\": f32[B, S, 768], %1 \"weight\": f32[768]) -> (f32[B, S, 768]) {
^bb0:
  %2 = mul %0, %0 : f32[B, S, 768] loc(8:4)
  %3 = reduce_mean %2, axes=[2] : f32[B, S] loc(8:2)
  %4 = reshape %3 : f32[B, S, 1] loc(8:3)
  %5 = add %4, 1e-6 : f32[B, S, 1] loc(8:8)
  %6 = rsqrt %5 : f32[B, S, 1] loc(8:10)
  %7 = mul %0, %6 : f32[B, S, 768] loc(8:12)
  %8 = mul %7, %1 : f32[B, S, 768] loc(8:20)
  return %8
}
func @masked_softmax(%0 \"x\": f32[12, S, T], %1 \"keep\": bool[1, T]) -> (f32[12, S, T]) {
^bb0:
  %2 = mul %0, 0.125 : f32[12, S, T] loc(12:4)
  %3 = causal : bool[S, T] loc(12:6)
  %4 = where %3, %2, -inf : f32[12, S, T] loc(12:8)
  %5 = where %1, %4, -inf : f32[12, S, T] loc(12:10)
  %6 = softmax %5, axis=2 : f32[12, S, T] loc(12:12)
  return %6
}
func @length_of_rows(%0 \"x\": f32[B, 384]) -> (f32[B, 384]) {
^bb0:
  %1 = mul %0, %0 : f32[B, 384] loc(16:4)
  %2 = reduce_sum %1, axes=[1], keep=true : f32[B, 1] loc(16:8)
  %3 = sqrt %2 : f32[B, 1] loc(16:1)
  %4 = gt %3, 0.0 : bool[B, 1] loc(17:4)
  %5 = where %4, %3, 1.0 : f32[B, 1] loc(17:8)
  %6 = div %0, %5 : f32[B, 384] loc(17:1)
  return %6
}
func @one_number_for_each_row(%0 \"x\": f32[B, 384]) -> (f32[B]) {
^bb0:
  %1 = exp %0 : f32[B, 384] loc(20:4)
  %2 = reduce_sum %1, axes=[1] : f32[B] loc(20:8)
  return %2
}
"
    );
}

#[test]
fn rows_stay_apart_where_they_must() {
    pass_snapshot!(
        "fuse_rows_missed",
        "canonicalise-reduce,fuse-rows",
        CONTRACT,
        "
func @other_axis(%0 \"x\": f32[B, S, 384]) -> (f32[B, S, 384]) {
^bb0:
  %1 = softmax %0, axis=1 : f32[B, S, 384] loc(2:4)
  %2 = mul %1, 2.0 : f32[B, S, 384] loc(2:8)
  return %2
}
func @rows_of_two_lengths(%0 \"x\": f32[S, 8], %1 \"y\": f32[S, 16]) -> (f32[S, 8]) {
^bb0:
  %2 = reduce_sum %0, axes=[1], keep=true : f32[S, 1] loc(6:4)
  %3 = exp %1 : f32[S, 16] loc(6:6)
  %4 = reduce_sum %3, axes=[1], keep=true : f32[S, 1] loc(6:8)
  %5 = add %2, %4 : f32[S, 1] loc(6:10)
  %6 = mul %0, %5 : f32[S, 8] loc(6:12)
  return %6
}
func @used_elsewhere(%0 \"x\": f32[S, 8]) -> (f32[S, 8], f32[S, 8]) {
^bb0:
  %1 = exp %0 : f32[S, 8] loc(10:4)
  %2 = reduce_sum %1, axes=[1], keep=true : f32[S, 1] loc(10:6)
  %3 = div %1, %2 : f32[S, 8] loc(10:8)
  return %3, %1
}
func @small_things_stay_outside(%0 \"x\": f32[S, 8], %1 \"a\": f32[8], %2 \"b\": f32[8]) -> (f32[S, 8]) {
^bb0:
  %3 = softmax %0, axis=1 : f32[S, 8] loc(14:4)
  %4 = mul %1, %2 : f32[8] loc(14:6)
  %5 = mul %3, %4 : f32[S, 8] loc(14:8)
  return %5
}
"
    );
}

#[test]
fn runs_of_elementwise_work_become_maps() {
    pass_snapshot!(
        "fuse_map_more",
        "fuse-map",
        CONTRACT,
        "
func @swish_gate(%0 \"x\": f32[S, 512], %1 \"y\": f32[S, 512]) -> (f32[S, 512]) {
^bb0:
  %2 = sigmoid %0 : f32[S, 512] loc(2:4)
  %3 = mul %0, %2 : f32[S, 512] loc(2:8)
  %4 = mul %3, %1 : f32[S, 512] loc(2:12)
  return %4
}
func @counted(%0 \"x\": f32[12, S, T]) -> (f32[12, S, T]) {
^bb0:
  %1 = causal : bool[S, T] loc(6:4)
  %2 = where %1, %0, -inf : f32[12, S, T] loc(6:8)
  return %2
}
func @one_alone(%0 \"x\": f32[S, 512]) -> (f32[S, 512]) {
^bb0:
  %1 = mul %0, 2.0 : f32[S, 512] loc(10:4)
  return %1
}
func @two_results(%0 \"x\": f32[S, 512]) -> (f32[S, 512], f32[S, 512]) {
^bb0:
  %1 = mul %0, 2.0 : f32[S, 512] loc(14:4)
  %2 = exp %1 : f32[S, 512] loc(14:6)
  %3 = neg %2 : f32[S, 512] loc(14:8)
  %4 = add %2, 1.0 : f32[S, 512] loc(14:10)
  %5 = log %4 : f32[S, 512] loc(14:12)
  return %3, %5
}
func @broadcast_from_small(%0 \"x\": f32[S, 512], %1 \"y\": f32[512]) -> (f32[S, 512]) {
^bb0:
  %2 = exp %1 : f32[512] loc(18:4)
  %3 = mul %0, %2 : f32[S, 512] loc(18:6)
  %4 = neg %3 : f32[S, 512] loc(18:8)
  return %4
}
func @in_a_loop(%0 \"x\": f32[S, 512]) -> (f32[S, 512]) {
^bb0:
  br ^bb1(0, %0)
^bb1(%i: index, %x: f32[S, 512]):
  %c = lt %i, 3 : bool[]
  br_if %c, ^bb2, ^bb3
^bb2:
  %y = exp %x : f32[S, 512] loc(22:4)
  %z = neg %y : f32[S, 512] loc(22:8)
  %j = add %i, 1 : index
  br ^bb1(%j, %z)
^bb3:
  return %x
}
"
    );
}

#[test]
fn products_of_one_tensor_by_parameters_become_one() {
    pass_snapshot!(
        "merge_matmuls_more",
        "merge-matmuls",
        CONTRACT,
        "
param \"a\" : f32[64, 32]
param \"b\" : f32[64, 32]
param \"c\" : f32[16, 64]
param \"i\" : f32[32]
param \"j\" : f32[32]
param \"h.*.a\"[3] : f32[64, 64]
param \"h.*.b\"[3] : f32[64, 64]
param \"g.*.a\"[2] : f32[64, 64]
param \"s\" : f32[64, 64]
func @three_widths(%0 \"x\": f32[B, S, 64]) -> (f32[B, S, 16], f32[B, 32, 32]) {
  tapped
^bb0:
  %1 = param \"a\" : f32[64, 32]
  %2 = matmul %0, %1 : f32[B, S, 32] loc(1:1)
  tap %2, \"q\"
  %3 = transpose %2, perm=[0, 2, 1] : f32[B, 32, S] loc(1:2)
  %4 = param \"b\" : f32[64, 32]
  %5 = matmul %0, %4 : f32[B, S, 32] loc(2:1)
  %7 = param \"c\" : f32[16, 64]
  %8 = transpose %7, perm=[1, 0] : f32[64, 16] loc(3:1)
  %9 = matmul %0, %8 : f32[B, S, 16] loc(3:2)
  %6 = matmul %3, %5 : f32[B, 32, 32] loc(2:2)
  %10 = matmul %5, %6 : f32[B, S, 32] loc(4:1)
  %11 = transpose %10, perm=[0, 2, 1] : f32[B, 32, S] loc(4:2)
  %12 = matmul %11, %9 : f32[B, 32, 16] loc(4:3)
  %13 = matmul %10, %12 : f32[B, S, 16] loc(4:4)
  return %13, %6
}
func @bias_or_none(%0 \"x\": f32[S, 64]) -> (f32[S, 32]) {
^bb0:
  %1 = param \"a\" : f32[64, 32]
  %2 = matmul %0, %1 : f32[S, 32] loc(5:1)
  %3 = param \"i\" : f32[32]
  %4 = add %3, %2 : f32[S, 32] loc(5:2)
  %5 = param \"b\" : f32[64, 32]
  %6 = matmul %0, %5 : f32[S, 32] loc(6:1)
  %7 = transpose %6, perm=[1, 0] : f32[32, S] loc(6:2)
  %8 = matmul %4, %7 : f32[S, S] loc(7:1)
  %9 = matmul %8, %4 : f32[S, 32] loc(7:2)
  return %9
}
func @gate_and_up(%0 \"x\": f32[S, 64]) -> (f32[S, 32]) {
^bb0:
  %1 = param \"a\" : f32[64, 32]
  %2 = matmul %0, %1 : f32[S, 32] loc(8:1)
  %3 = silu %2 : f32[S, 32] loc(8:2)
  %4 = param \"b\" : f32[64, 32]
  %5 = matmul %0, %4 : f32[S, 32] loc(9:1)
  %6 = mul %3, %5 : f32[S, 32] loc(9:2)
  return %6
}
func @one_has_an_epilogue(%0 \"x\": f32[S, 64]) -> (f32[S, 32], f32[8, 32], f32[S, 4, 8]) {
^bb0:
  %1 = param \"a\" : f32[64, 32]
  %2 = matmul %0, %1 : f32[S, 32] loc(10:1)
  %3 = gelu %2 : f32[S, 32] loc(10:2)
  %4 = param \"b\" : f32[64, 32]
  %5 = matmul %0, %4 : f32[S, 32] loc(11:1)
  %6 = transpose %5, perm=[1, 0] : f32[32, S] loc(11:2)
  %8 = param \"c\" : f32[16, 64]
  %9 = slice %8, axis=0, start=0, stop=8 : f32[8, 64]
  %10 = transpose %9, perm=[1, 0] : f32[64, 8] loc(12:1)
  %11 = matmul %0, %10 : f32[S, 8] loc(12:2)
  %12 = transpose %11, perm=[1, 0] : f32[8, S] loc(12:3)
  %14 = param \"a\" : f32[64, 32]
  %15 = param \"j\" : f32[32]
  %16 = mul %0, %0 : f32[S, 64] loc(13:1)
  %17 = matmul %0, %14 : f32[S, 32] loc(13:2)
  %18 = reshape %17 : f32[S, 4, 8] loc(13:3)
  %7 = matmul %6, %5 : f32[32, 32] loc(11:3)
  %13 = matmul %12, %5 : f32[8, 32] loc(12:4)
  %19 = matmul %13, %7 : f32[8, 32] loc(13:4)
  return %3, %19, %18
}
func @layers(%0 \"x\": f32[S, 64]) -> (f32[S, 64]) {
^bb0:
  br ^bb1(0, %0)
^bb1(%i: index, %x: f32[S, 64]):
  %c = lt %i, 3 : bool[]
  br_if %c, ^bb2, ^bb3
^bb2:
  %1 = param \"h.*.a\"[%i] : f32[64, 64]
  %2 = matmul %x, %1 : f32[S, 64] loc(14:1)
  %3 = param \"h.*.b\"[%i] : f32[64, 64]
  %4 = matmul %x, %3 : f32[S, 64] loc(15:1)
  %5 = transpose %4, perm=[1, 0] : f32[64, S] loc(15:2)
  %6 = param \"s\" : f32[64, 64]
  %7 = matmul %x, %6 : f32[S, 64] loc(16:1)
  %8 = matmul %5, %7 : f32[64, 64] loc(16:2)
  %9 = matmul %2, %8 : f32[S, 64] loc(17:1)
  %j = add %i, 1 : index
  br ^bb1(%j, %9)
^bb3:
  return %x
}
"
    );
}

#[test]
fn products_stay_apart_where_one_would_cost() {
    pass_snapshot!(
        "merge_matmuls_missed",
        "merge-matmuls",
        CONTRACT,
        "
param \"a\" : f32[64, 32]
param \"b\" : f32[64, 32]
param \"c\" : f32[64, 32]
param \"d\" : f32[64, 32]
param \"e\" : f32[64, 32]
param \"n\" : f32[64, 16]
func @layers_of_one_memory(%x \"x\": f32[S, 32], %m \"m\": f32[T, 64]) -> (f32[S, 32]) {
^bb0:
  %1 = param \"a\" : f32[64, 32]
  %2 = matmul %m, %1 : f32[T, 32] loc(1:1)
  %3 = param \"b\" : f32[64, 32]
  %4 = matmul %m, %3 : f32[T, 32] loc(1:2)
  %5 = transpose %2, perm=[1, 0] : f32[32, T]
  %6 = matmul %x, %5 : f32[S, T] loc(1:3)
  %7 = softmax %6, axis=1 : f32[S, T]
  %8 = matmul %7, %4 : f32[S, 32] loc(1:4)
  %9 = param \"c\" : f32[64, 32]
  %10 = matmul %m, %9 : f32[T, 32] loc(2:1)
  %11 = param \"d\" : f32[64, 32]
  %12 = matmul %m, %11 : f32[T, 32] loc(2:2)
  %13 = transpose %10, perm=[1, 0] : f32[32, T]
  %14 = matmul %8, %13 : f32[S, T] loc(2:3)
  %15 = softmax %14, axis=1 : f32[S, T]
  %16 = matmul %15, %12 : f32[S, 32] loc(2:4)
  return %16
}
func @five(%x \"x\": f32[S, 64]) -> (f32[S, 32]) {
^bb0:
  %1 = param \"a\" : f32[64, 32]
  %2 = matmul %x, %1 : f32[S, 32] loc(3:1)
  %3 = param \"b\" : f32[64, 32]
  %4 = matmul %x, %3 : f32[S, 32] loc(3:2)
  %5 = param \"c\" : f32[64, 32]
  %6 = matmul %x, %5 : f32[S, 32] loc(3:3)
  %7 = param \"d\" : f32[64, 32]
  %8 = matmul %x, %7 : f32[S, 32] loc(3:4)
  %9 = param \"e\" : f32[64, 32]
  %10 = matmul %x, %9 : f32[S, 32] loc(3:5)
  %11 = concat %2, %4, %6, %8, %10, axis=0 : f32[S * 5, 32]
  %12 = slice %11, axis=0, start=0, stop=S : f32[S, 32]
  return %12
}
func @rows_and_columns(%x \"x\": f32[16, 64]) -> (f32[4, 4], f32[4, 16, 16]) {
^bb0:
  %1 = param \"a\" : f32[64, 32]
  %2 = matmul %x, %1 : f32[16, 32] loc(4:1)
  %3 = reshape %2 : f32[16, 4, 8] loc(4:2)
  %4 = transpose %3, perm=[1, 0, 2] : f32[4, 16, 8]
  %5 = param \"b\" : f32[64, 32]
  %6 = matmul %x, %5 : f32[16, 32] loc(5:1)
  %7 = reshape %6 : f32[16, 4, 8] loc(5:2)
  %8 = transpose %7, perm=[1, 2, 0] : f32[4, 8, 16]
  %9 = param \"c\" : f32[64, 32]
  %10 = matmul %x, %9 : f32[16, 32] loc(6:1)
  %11 = reshape %10 : f32[4, 128] loc(6:2)
  %12 = transpose %11, perm=[1, 0] : f32[128, 4]
  %13 = matmul %11, %12 : f32[4, 4] loc(6:3)
  %14 = matmul %4, %8 : f32[4, 16, 16] loc(7:1)
  return %13, %14
}
func @more_than_an_epilogue(%x \"x\": f32[S, 64]) -> (f32[S, S], f32[32], f32[S, S]) {
^bb0:
  %1 = param \"a\" : f32[64, 32]
  %2 = matmul %x, %1 : f32[S, 32] loc(8:1)
  %3 = softmax %2, axis=1 : f32[S, 32] loc(8:2)
  %4 = param \"b\" : f32[64, 32]
  %5 = matmul %x, %4 : f32[S, 32] loc(9:1)
  %6 = reduce_sum %5, axes=[0] : f32[32] loc(9:2)
  %7 = param \"c\" : f32[64, 32]
  %8 = matmul %x, %7 : f32[S, 32] loc(10:1)
  %9 = gelu %8 : f32[S, 32] loc(10:2)
  %10 = transpose %8, perm=[1, 0] : f32[32, S]
  %11 = matmul %3, %10 : f32[S, S] loc(11:1)
  %12 = matmul %9, %10 : f32[S, S] loc(11:2)
  return %11, %6, %12
}
func @half_a_panel(%x \"x\": f32[S, 64]) -> (f32[S, S], f32[S, S]) {
^bb0:
  %1 = param \"n\" : f32[64, 16]
  %2 = matmul %x, %1 : f32[S, 16] loc(12:1)
  %3 = transpose %2, perm=[1, 0] : f32[16, S]
  %4 = param \"b\" : f32[64, 32]
  %5 = matmul %x, %4 : f32[S, 32] loc(13:1)
  %6 = transpose %5, perm=[1, 0] : f32[32, S]
  %7 = matmul %2, %3 : f32[S, S] loc(14:1)
  %8 = matmul %5, %6 : f32[S, S] loc(14:2)
  return %7, %8
}
"
    );
}
