//! The rules of the graph IR's operations, one by one: a line that is legal, and lines next to it that are not.

use super::diagnose;

/// Arguments that the lines use.
const ARGUMENTS: &str = "%x \"x\": f32[S, 4], %y \"y\": f32[4, 5], %i \"i\": i32[3], %b \"b\": bool[S, 4], %h \"h\": bf16[S, 4], \
                         %k \"k\": f32[T, 4], %v \"v\": f32[T, 3], %n \"n\": i8[4, 4], %c \"c\": bool[], \
                         %m \"m\": f32[S, T], %m2 \"m2\": f32[2, S, T], %p \"p\": bool[T]";

/// Is a line with this result legal?
fn is_legal(line: &str) -> bool {
    let ty = line.rsplit_once(" : ").map_or("", |(_, ty)| ty);
    let source = format!("module \"m\"\nfunc @f({ARGUMENTS}) -> ({ty}) {{\n^bb0:\n  %r = {line}\n  return %r\n}}\n");
    diagnose(&source).is_empty()
}

#[test]
fn each_rule_has_both_sides() {
    for (legal, illegal) in [
        (
            "matmul %x, %y : f32[S, 5]",
            &[
                "matmul %y, %x : f32[4, 4]",
                "matmul %x, %x : f32[S, 4]",
                "matmul %x, %y : f32[S, 4]",
                "matmul %b, %y : f32[S, 5]",
            ][..],
        ),
        (
            "matmul %n, %n : i32[4, 4]",
            &["matmul %n, %n : i8[4, 4]", "matmul %n, %n : f32[4, 4]", "matmul %n, %y : f32[4, 5]"],
        ),
        (
            "reshape %y : f32[2, 10]",
            &["reshape %y : f32[2, 9]", "reshape %y : f32[4, 6]", "reshape %x : f32[S, 5]", "reshape %y : i32[2, 10]"],
        ),
        (
            "slice %y, axis=0, start=1, stop=4 : f32[3, 5]",
            &[
                "slice %y, axis=0, start=1, stop=5 : f32[4, 5]",
                "slice %y, axis=0, start=-1, stop=4 : f32[5, 5]",
                "slice %y, axis=0, start=3, stop=2 : f32[-1, 5]",
                "slice %y, axis=2, start=0, stop=1 : f32[4, 5]",
                "slice %y, axis=0, start=1, stop=4 : f32[4, 5]",
            ],
        ),
        (
            "transpose %y, perm=[1, 0] : f32[5, 4]",
            &[
                "transpose %y, perm=[0, 0] : f32[4, 4]",
                "transpose %y, perm=[1, 1] : f32[5, 5]",
                "transpose %y, perm=[0] : f32[4]",
                "transpose %y, perm=[0, 2] : f32[4, 5]",
                "transpose %y, perm=[1, 0] : f32[4, 5]",
            ],
        ),
        (
            "concat %x, %k, axis=0 : f32[S+T, 4]",
            &[
                "concat %x, %v, axis=0 : f32[S+T, 4]",
                "concat %x, %k, axis=1 : f32[S, 8]",
                "concat %x, %h, axis=0 : f32[2*S, 4]",
                "concat %x, %i, axis=0 : f32[S+3, 4]",
                "concat %x, %k, axis=2 : f32[S, 4]",
            ],
        ),
        (
            "pad %y, 1.0, axis=1, low=1, high=2 : f32[4, 8]",
            &[
                "pad %y, 1.0, axis=1, low=-1, high=2 : f32[4, 6]",
                "pad %y, 1.0, axis=1, low=1, high=-2 : f32[4, 4]",
                "pad %y, i32(1), axis=1, low=1, high=2 : f32[4, 8]",
                "pad %y, %x, axis=1, low=1, high=2 : f32[4, 8]",
                "pad %y, 1.0, axis=2, low=1, high=2 : f32[4, 8]",
            ],
        ),
        (
            "where %b, %x, 0.5 : f32[S, 4]",
            &[
                "where %b, %x, %h : f32[S, 4]",
                "where %b, %h, %x : bf16[S, 4]",
                "where %x, %x, %x : f32[S, 4]",
                "where %b, %x, %v : f32[S, 4]",
            ],
        ),
        (
            "gather %y, %i, axis=0 : f32[3, 5]",
            &[
                "gather %y, %n, axis=0 : f32[4, 4, 5]",
                "gather %y, %x, axis=0 : f32[S, 4, 5]",
                "gather %y, %i, axis=2 : f32[3, 5]",
                "gather %y, %i, axis=1 : f32[3, 5]",
            ],
        ),
        (
            "index %y, i32(1), axis=0 : f32[5]",
            &["index %y, %i, axis=0 : f32[5]", "index %y, 1.0, axis=0 : f32[5]", "index %y, i32(1), axis=2 : f32[5]"],
        ),
        (
            "reduce_sum %y, axes=[0, 1] : f32[]",
            &[
                "reduce_sum %y, axes=[] : f32[4, 5]",
                "reduce_sum %y, axes=[1, 0] : f32[]",
                "reduce_sum %y, axes=[0, 0] : f32[5]",
                "reduce_sum %y, axes=[2] : f32[4]",
                "reduce_sum %b, axes=[1] : bool[S]",
                "reduce_mean %n, axes=[1] : i8[4]",
                "argmax %y, axes=[0, 1] : i32[]",
                "argmax %y, axes=[1] : f32[4]",
                "reduce_sum %y, axes=[1], keep=true : f32[4]",
                "reduce_sum %y, axes=[1] : f32[4, 1]",
            ],
        ),
        ("reduce_sum %y, axes=[1], keep=true : f32[4, 1]", &["reduce_sum %y, axes=[0], keep=true : f32[4, 1]"]),
        (
            "softmax %x, axis=1 : f32[S, 4]",
            &["softmax %n, axis=1 : i8[4, 4]", "softmax %x, axis=2 : f32[S, 4]", "softmax %x, axis=1 : bf16[S, 4]"],
        ),
        (
            "attention %x, %k, %v, scale=0.5, mask=[causal] : f32[S, 3]",
            &[
                "attention %x, %k, %x, scale=0.5, mask=[causal] : f32[S, 4]",
                "attention %x, %v, %v, scale=0.5, mask=[causal] : f32[S, 3]",
                "attention %h, %k, %v, scale=0.5, mask=[causal] : bf16[S, 3]",
                "attention %n, %k, %v, scale=0.5, mask=[causal] : f32[4, 3]",
                "attention %x, %k, %v, scale=0.5, mask=[causal] : f32[T, 3]",
                "attention %x, %k, %i, scale=0.5, mask=[causal] : f32[S, 3]",
            ],
        ),
        // Masks are broadcast to the scores, never the scores to them; `keep` takes truth values, `add` numbers.
        (
            "attention %x, %k, %v, scale=0.5, mask=[add(%m)] : f32[S, 3]",
            &[
                "attention %x, %k, %v, scale=0.5, mask=[add(%x)] : f32[S, 3]",
                "attention %x, %k, %v, scale=0.5, mask=[add(%m2)] : f32[S, 3]",
                "attention %x, %k, %v, scale=0.5, mask=[add(%m2)] : f32[2, S, 3]",
                "attention %x, %k, %v, scale=0.5, mask=[add(%p)] : f32[S, 3]",
                "attention %x, %k, %v, scale=0.5, mask=[add(%p), causal] : f32[S, 3]",
            ],
        ),
        (
            "attention %x, %k, %v, scale=0.5, mask=[causal, keep(%p, -inf), add(%m)] : f32[S, 3]",
            &[
                "attention %x, %k, %v, scale=0.5, mask=[causal, keep(%p, -inf), add(%x)] : f32[S, 3]",
                "attention %x, %k, %v, scale=0.5, mask=[keep(%b, -inf)] : f32[S, 3]",
                "attention %x, %k, %v, scale=0.5, mask=[keep(%m, -inf)] : f32[S, 3]",
                "attention %x, %k, %v, scale=0.5, mask=[keep(%p, %m)] : f32[S, 3]",
                "attention %x, %k, %v, scale=0.5, mask=[keep(%p, %c)] : f32[S, 3]",
            ],
        ),
        (
            "attention %x, %k, %v, scale=0.5, mask=[cap(30.0), causal, sink(1.0)] : f32[S, 3]",
            &[
                "attention %x, %k, %v, scale=0.5, mask=[cap(bf16(30.0)), causal, sink(1.0)] : f32[S, 3]",
                "attention %x, %k, %v, scale=0.5, mask=[cap(%x), causal, sink(1.0)] : f32[S, 3]",
                "attention %x, %k, %v, scale=0.5, mask=[cap(30.0), sink(1.0), causal] : f32[S, 3]",
                "attention %x, %k, %v, scale=0.5, mask=[cap(30.0), sink(1.0), sink(1.0)] : f32[S, 3]",
                "attention %x, %k, %v, scale=0.5, mask=[cap(30.0), causal, sink(%x)] : f32[S, 3]",
                "attention %x, %k, %v, scale=0.5, mask=[cap(30.0), causal, sink(i32(1))] : f32[S, 3]",
            ],
        ),
        (
            "broadcast %x : f32[2, S, 4]",
            &[
                "broadcast %x : f32[2, 4]",
                "broadcast %y : f32[4, 10]",
                "broadcast %x : i32[2, S, 4]",
                "broadcast %x : f32[S, 8]",
            ],
        ),
        (
            "add %x, %x : f32[S, 4]",
            &[
                "add %x, %h : f32[S, 4]",
                "add %x, %y : f32[S, 4]",
                "add %b, %b : bool[S, 4]",
                "and %x, %x : f32[S, 4]",
                "add %x, %x : f32[4, S]",
            ],
        ),
        ("lt %x, 0.5 : bool[S, 4]", &["lt %x, 0.5 : f32[S, 4]", "lt %x, %h : bool[S, 4]", "lt %x, %y : bool[S, 4]"]),
        (
            "exp %x : f32[S, 4]",
            &[
                "exp %n : i8[4, 4]",
                "exp %b : bool[S, 4]",
                "not %x : f32[S, 4]",
                "neg %b : bool[S, 4]",
                "exp %x : f32[4, S]",
            ],
        ),
        ("iota axis=1 : i32[S, 4]", &["iota axis=2 : i32[S, 4]", "iota axis=1 : bool[S, 4]"]),
        (
            "causal : bool[S, T]",
            &["causal : bool[S]", "causal : f32[S, T]", "causal : bool[S, T, 4]", "causal : bool[S, U]"],
        ),
        ("const 127 : i8[4]", &["const 128 : i8[4]", "const -129 : i8[4]", "const 0.5 : i8[4]", "const true : i8[4]"]),
        ("const -128 : i8[4]", &["const 1 : bool[4]"]),
        ("const 2147483647 : i32[4]", &["const 2147483648 : i32[4]", "const -2147483649 : i32[4]"]),
        (
            "const -9223372036854775808 : i64[4]",
            &["const 9223372036854775808 : i64[4]", "const -9223372036854775809 : i64[4]"],
        ),
    ] {
        assert!(is_legal(legal), "{legal}");
        for line in illegal {
            assert!(!is_legal(line), "{line}");
        }
    }
}
