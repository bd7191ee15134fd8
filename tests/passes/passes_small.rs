//! What simplify, fold-constants, cse, licm and dce do case by case, and what looks like it and is left alone.

use attnc::passes::Float;

/// One function for each line: `NAME: TYPES -> TYPE: LINES`, over `%0`, `%1`, ... of the types; the last value is returned.
fn functions(cases: &[(&str, &str, &str, &str)]) -> String {
    let mut out = String::new();
    for (name, args, result, lines) in cases {
        let args: Vec<String> = args.split(" | ").enumerate().map(|(i, ty)| format!("%{i} \"a{i}\": {ty}")).collect();
        let last = lines.rsplit('\n').next().and_then(|l| l.split_once(" = ")).map_or("%0", |(v, _)| v.trim());
        out += &format!("\nfunc @{name}({}) -> ({result}) {{\n^bb0:\n{lines}\n  return {last}\n}}\n", args.join(", "));
    }
    out
}

const X: &str = "f32[S, 4]";
const N: &str = "i32[S]";
const B: &str = "bool[S]";

#[test]
fn identities() {
    let source = functions(&[
        ("mul_one", X, X, "  %9 = mul 1.0, %0 : f32[S, 4]"),
        ("add_minus_zero", X, X, "  %9 = add %0, -0.0 : f32[S, 4]"),
        ("sub_zero", X, X, "  %9 = sub %0, 0.0 : f32[S, 4]"),
        ("max_minus_inf", X, X, "  %9 = max %0, -inf : f32[S, 4]"),
        ("pow_one", X, X, "  %9 = pow %0, 1.0 : f32[S, 4]"),
        ("pow_two", X, X, "  %9 = pow %0, 2.0 : f32[S, 4]"),
        ("minus_one", X, X, "  %9 = mul %0, -1.0 : f32[S, 4]"),
        ("power_of_two", X, X, "  %9 = div %0, 64.0 : f32[S, 4]"),
        ("twice_negated", X, X, "  %8 = neg %0 : f32[S, 4]\n  %9 = neg %8 : f32[S, 4]"),
        ("abs_of_negated", X, X, "  %8 = neg %0 : f32[S, 4]\n  %9 = abs %8 : f32[S, 4]"),
        ("splat_of_a_shape", "f32[] | f32[S, 4]", X, "  %8 = const 1.0 : f32[S, 4]\n  %9 = mul %0, %8 : f32[S, 4]"),
        ("integers", N, N, "  %8 = sub %0, %0 : i32[S]\n  %9 = add %8, %0 : i32[S]"),
        ("itself", N, B, "  %9 = le %0, %0 : bool[S]"),
        ("truths", "bool[S] | bool[S]", B, "  %8 = and %0, true : bool[S]\n  %9 = or %8, %8 : bool[S]"),
        ("same_ways", "bool[S] | i32[S]", N, "  %9 = where %0, %1, %1 : i32[S]"),
        ("a_truth_itself", B, B, "  %9 = where %0, true, false : bool[S]"),
        ("there_and_back", "bf16[S]", "bf16[S]", "  %8 = cast %0 : f32[S]\n  %9 = cast %8 : bf16[S]"),
        (
            "slices",
            "f32[8]",
            "f32[2]",
            "  %8 = slice %0, axis=0, start=2, stop=7 : f32[5]\n  %9 = slice %8, axis=0, start=1, stop=3 : f32[2]",
        ),
        ("pad_nothing", X, X, "  %9 = pad %0, 1.0, axis=0, low=0, high=0 : f32[S, 4]"),
        ("one_part", X, X, "  %9 = concat %0, axis=0 : f32[S, 4]"),
        ("leading_ones", "f32[S, 4] | f32[4]", X, "  %8 = reshape %1 : f32[1, 4]\n  %9 = add %0, %8 : f32[S, 4]"),
    ]);
    pass_snapshot!("simplify_identities", "simplify,dce", Float::Strict, &source);
}

#[test]
fn what_only_looks_like_an_identity() {
    let source = functions(
        &[
            ("add_zero", X, X, "  %9 = add %0, 0.0 : f32[S, 4]"),
            ("sub_minus_zero", X, X, "  %9 = sub %0, -0.0 : f32[S, 4]"),
            ("zero_minus", X, X, "  %9 = sub 0.0, %0 : f32[S, 4]"),
            ("mul_zero", X, X, "  %9 = mul %0, 0.0 : f32[S, 4]"),
            ("float_minus_itself", X, X, "  %9 = sub %0, %0 : f32[S, 4]"),
            ("float_equals_itself", X, "bool[S, 4]", "  %9 = eq %0, %0 : bool[S, 4]"),
            ("max_zero", X, X, "  %9 = max %0, 0.0 : f32[S, 4]"),
            ("third", X, X, "  %9 = div %0, 3.0 : f32[S, 4]"),
            ("tiny", X, X, "  %9 = div %0, 1.7014118e38 : f32[S, 4]"),
            ("square_root", X, X, "  %9 = pow %0, 0.5 : f32[S, 4]"),
            ("narrow_and_back", X, X, "  %8 = cast %0 : bf16[S, 4]\n  %9 = cast %8 : f32[S, 4]"),
            ("whole_floats", N, N, "  %8 = cast %0 : f32[S]\n  %9 = cast %8 : i32[S]"),
            (
                "checked_slices",
                "f32[S]",
                "f32[2]",
                "  %8 = slice %0, axis=0, start=0, stop=5 : f32[5]\n  %9 = slice %8, axis=0, start=0, stop=2 : f32[2]",
            ),
            (
                "broadcast_that_counts",
                "f32[4] | f32[4]",
                X,
                "  %8 = broadcast %0 : f32[S, 4]\n  %9 = add %8, %1 : f32[S, 4]",
            ),
        ]
        .map(|(name, args, result, lines)| {
            // The symbol must come from somewhere.
            let args = if args.contains('S') { args.to_string() } else { format!("{args} | f32[S]") };
            (name, Box::leak(args.into_boxed_str()) as &str, result, lines)
        }),
    );
    pass_snapshot!("simplify_not", "simplify,dce", Float::Strict, &source);
}

#[test]
fn literals() {
    let source = functions(&[
        ("half_precision", "f32[S]", "bf16[]", "  %9 = add bf16(1.0), bf16(0.001) : bf16[]"),
        ("saturating", "f32[S]", "i8[]", "  %9 = cast 300.0 : i8[]"),
        ("flooring", "f32[S]", "i32[]", "  %9 = div i32(-7), i32(2) : i32[]"),
        ("extents", "f32[S]", "f32[]", "  %8 = dim 4*4 : f32[]\n  %9 = sqrt %8 : f32[]"),
        ("run_time_extents", "f32[S]", "f32[]", "  %9 = dim S : f32[]"),
        ("shapes", "f32[S]", "f32[2, S]", "  %8 = const 0.5 : f32[S]\n  %9 = broadcast %8 : f32[2, S]"),
        (
            "a_slice_that_may_fail",
            "f32[S]",
            "f32[3]",
            "  %8 = const 0.5 : f32[S]\n  %9 = slice %8, axis=0, start=0, stop=3 : f32[3]",
        ),
        ("counters", "f32[S]", "i32[4]", "  %8 = iota axis=0 : i32[4]\n  %9 = add %8, i32(1) : i32[4]"),
    ]);
    pass_snapshot!("fold_constants_more", "fold-constants,dce", Float::Strict, &source);
}

#[test]
fn what_leaves_a_loop_and_what_stays() {
    let source = "param \"h.*.w\"[3] : f32[4]\n\
        func @stays(%0 \"x\": f32[S, 4], %1 \"i\": i32[2]) -> (f32[S, 4]) {\n^bb0:\n  br ^bb1(0, %0)\n\
        ^bb1(%2: index, %3: f32[S, 4]):\n  %4 = dim S : index\n  %5 = lt %2, %4 : bool[]\n  br_if %5, ^bb2, ^bb3\n\
        ^bb2:\n  %6 = gather %0, %1, axis=0 : f32[2, 4]\n  %7 = slice %0, axis=0, start=0, stop=2 : f32[2, 4]\n\
        \n  %8 = argmax %0, axes=[0] : i32[4]\n  %9 = param \"h.*.w\"[2] : f32[4]\n  %10 = add %6, %7 : f32[2, 4]\n\
        \n  %11 = cast %8 : f32[4]\n  %12 = add %11, %9 : f32[4]\n  tap %10, \"t\"[%2 < S]\n  %13 = const 0.5 : f32[S-1]\n\
        \n  tap %13, \"u\"[%2 < S]\n  %14 = mul %3, %12 : f32[S, 4]\n  %15 = add %2, 1 : index\n  br ^bb1(%15, %14)\n\
        ^bb3:\n  return %3\n}\n\
        func @two_loops(%0 \"x\": f32[S, 4]) -> (f32[S, 4]) {\n^bb0:\n  br ^bb1(0, %0)\n\
        ^bb1(%1: index, %2: f32[S, 4]):\n  %3 = lt %1, 3 : bool[]\n  br_if %3, ^bb2, ^bb6\n\
        ^bb2:\n  br ^bb3(0, %2)\n^bb3(%4: index, %5: f32[S, 4]):\n  %6 = lt %4, 2 : bool[]\n  br_if %6, ^bb4, ^bb5\n\
        ^bb4:\n  %7 = param \"h.*.w\"[%1] : f32[4]\n  %8 = exp %0 : f32[S, 4]\n  %9 = mul %2, 0.5 : f32[S, 4]\n\
        \n  %10 = add %8, %7 : f32[S, 4]\n  %11 = add %10, %9 : f32[S, 4]\n  %12 = add %5, %11 : f32[S, 4]\n\
        \n  %13 = add %4, 1 : index\n  br ^bb3(%13, %12)\n^bb5:\n  %14 = add %1, 1 : index\n  br ^bb1(%14, %5)\n\
        ^bb6:\n  return %2\n}\n";
    pass_snapshot!("licm_more", "licm", Float::Strict, source);
}

#[test]
fn what_is_the_same_and_what_is_not() {
    let source = "func @f(%0 \"x\": f32[S], %1 \"y\": f32[S], %2 \"c\": bool[]) -> (f32[S], f32[S], f32[S], f32[S], f32[1, S]) {\n\
        ^bb0:\n  %3 = sub %0, %1 : f32[S]\n  %4 = sub %1, %0 : f32[S]\n  %5 = max %0, %1 : f32[S]\n\
        \n  %6 = max %1, %0 : f32[S]\n  %7 = reshape %0 : f32[1, S]\n  %8 = reshape %0 : f32[S, 1]\n  tap %3, \"a\"\n  tap %3, \"b\"\n\
        \n  br_if %2, ^bb1, ^bb2\n^bb1:\n  %9 = exp %0 : f32[S]\n  br ^bb3(%9)\n^bb2:\n  %10 = exp %0 : f32[S]\n  br ^bb3(%10)\n\
        ^bb3(%11: f32[S]):\n  %12 = exp %0 : f32[S]\n  %13 = add %11, %12 : f32[S]\n  %14 = matmul %8, %7 : f32[S, S]\n\
        \n  %15 = reduce_sum %14, axes=[1] : f32[S]\n  %16 = add %13, %15 : f32[S]\n  %17 = add %15, %13 : f32[S]\n\
        \n  %18 = mul %16, %17 : f32[S]\n  %19 = add %5, %6 : f32[S]\n  return %3, %4, %18, %19, %7\n}\n";
    pass_snapshot!("cse_more", "cse", Float::Strict, source);
}

#[test]
fn what_is_needed() {
    let source = "func @f(%0 \"x\": f32[S], %1 \"i\": i32[]) -> (f32[S]) {\n  tapped\n^bb0:\n  %2 = index %0, %1, axis=0 : f32[]\n\
        \n  %3 = exp %0 : f32[S]\n  tap %3, \"t\"\n  br ^bb1(%0, %0)\n^bb1(%4: f32[S], %5: f32[S]):\n\
        \n  %6 = reduce_sum %5, axes=[0] : f32[]\n  %7 = lt %6, 1.0 : bool[]\n  br_if %7, ^bb1(%5, %4), ^bb2\n^bb2:\n  return %0\n}\n";
    pass_snapshot!("dce_more", "dce", Float::Strict, source);
}
