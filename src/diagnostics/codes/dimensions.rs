//! Codes E04xx: dimension expressions, generics and `where` clauses.

use super::codes;

codes! {
    /// A division that may leave a remainder.
    NOT_DIVISIBLE = "E0401", "the division of dimensions may leave a remainder";
    rule: "A dimension is an integer, so `D / H` is one only if `H` divides `D`. State that with `where D % H == 0`: it is\n\
           checked when the dimensions are bound, and then `H * (D / H)` equals `D`.";
    - failing: "layer Heads<D, H> {\n    weight: f32[H, D / H]\n}\n";
    - fixed: "layer Heads<D, H> where D % H == 0 {\n    weight: f32[H, D / H]\n}\n";

    /// A division of a dimension by zero.
    DIVISION_BY_ZERO = "E0402", "division of a dimension by zero";
    rule: "A dimension expression must not divide by zero, neither as written nor with the bound values.";
    - failing: "layer L<D> {\n    weight: f32[D / 0]\n}\n";
    - fixed: "layer L<D> {\n    weight: f32[D]\n}\n";

    /// A dimension that no argument determines.
    NOT_INFERRED = "E0403", "a dimension cannot be inferred from the arguments";
    rule: "Each dimension of a signature that is not a generic is inferred from the shapes of the arguments: some axis\n\
           must be that dimension alone, or a formula that can be solved for it (`2*N`, `S+1`).";
    - failing: "fn f(x: f32[A*B]) -> f32[A] { sum(rearrange(x, \"(a b) -> a b\", b = B), axis = 1) }\n";
    - fixed: "fn f(x: f32[A*B], y: f32[B]) -> f32[A] { rearrange(x, \"(a b) -> a b\", b = B) @ y }\n";

    /// Too many or too few generics.
    GENERIC_COUNT = "E0404", "wrong number of generics";
    rule: "Generics without a default must be given, in order or by name: `LayerNorm<D, eps = 1e-12>`.";
    - failing: "use std.nn\nlayer L<D> {\n    up: Linear<D>\n    fn forward(x: f32[D]) -> f32[D] { up(x) }\n}\n";
    - fixed: "use std.nn\nlayer L<D> {\n    up: Linear<D, D>\n    fn forward(x: f32[D]) -> f32[D] { up(x) }\n}\n";

    /// A generic that does not exist.
    UNKNOWN_GENERIC = "E0405", "unknown generic";
    rule: "In `Layer<name = value>` the name must be one of the layer's generics.";
    - failing: "use std.nn\nlayer L<D> {\n    norm: LayerNorm<D, epsilon = 1e-12>\n}\n";
    - fixed: "use std.nn\nlayer L<D> {\n    norm: LayerNorm<D, eps = 1e-12>\n}\n";

    /// A generic of the wrong kind.
    GENERIC_KIND = "E0406", "a generic of the wrong kind";
    rule: "A generic is a dimension, or a constant with a type (`eps: f32`) or a default that shows it (`eps =\n\
           1e-5`). A dimension takes a dimension, a constant a number of its type.";
    - failing: "use std.nn\nlayer L<D> {\n    norm: LayerNorm<0.5>\n}\n";
    - fixed: "use std.nn\nlayer L<D> {\n    norm: LayerNorm<D, eps = 0.5>\n}\n";

    /// A `where` clause that is not a comparison of dimensions.
    WHERE_FORM = "E0407", "a `where` clause must compare dimensions";
    rule: "A `where` clause compares two dimension expressions, or states that one divides another: `D % H == 0`.\n\
           Several are separated by commas, or joined by `and`.";
    - failing: "fn f(x: f32[S]) -> f32[S] where S { x }\n";
    - fixed: "fn f(x: f32[S]) -> f32[S] where S >= 1 { x }\n";

    /// A `where` clause that cannot hold.
    WHERE_VIOLATED = "E0408", "a `where` clause does not hold";
    rule: "A `where` clause must hold wherever its layer or function is used. It is checked as soon as its dimensions are\n\
           known: by the type checker, when they are bound, or when the function is called.";
    - failing: "use std.nn\nmodel M {\n    attn: SelfAttention<10, 3>\n    pub fn forward(x: f32[S, 10]) -> f32[S, 10] { attn(x) }\n}\n";
    - fixed: "use std.nn\nmodel M {\n    attn: SelfAttention<10, 2>\n    pub fn forward(x: f32[S, 10]) -> f32[S, 10] { attn(x) }\n}\n";

    /// Something other than a dimension where a dimension is required.
    NOT_A_DIMENSION = "E0409", "expected a dimension";
    rule: "Shapes, slices and the generics of layers are made of dimensions: names, integers, and formulas of\n\
           these with `+ - * / %`, `floor_div(a, b)`, `ceil_div(a, b)`, `min(a, b)` and `max(a, b)`.";
    - failing: "layer L<D> {\n    weight: f32[D * 1.5]\n}\n";
    - fixed: "layer L<D> {\n    weight: f32[D * 2]\n}\n";

    /// `..` where it is not allowed.
    REST_PLACE = "E0410", "`..` is not allowed here";
    rule: "`..` is allowed in the shapes of a function's arguments and result, once in each and before the other\n\
           dimensions. The shape of a parameter must be fully known.";
    - failing: "layer L<D> {\n    weight: f32[.., D]\n}\n";
    - fixed: "layer L<D> {\n    weight: f32[D, D]\n}\n";

    /// A dimension that is negative.
    NEGATIVE = "E0411", "a dimension is negative";
    rule: "A dimension is a number of elements, 0 or more.";
    - failing: "layer L<D> {\n    weight: f32[2 - 3]\n}\n";
    - fixed: "layer L<D> {\n    weight: f32[3 - 2]\n}\n";

    /// A generic's default that is not a number.
    GENERIC_DEFAULT = "E0412", "a default must be a constant";
    rule: "The default of a generic is a literal, or for a dimension a formula of the generics before it.";
    - failing: "model M<D = sqrt(4)> {\n    weight: f32[D]\n    pub fn forward(x: f32[D]) -> f32[D] { x * weight }\n}\n";
    - fixed: "model M<D = 2> {\n    weight: f32[D]\n    pub fn forward(x: f32[D]) -> f32[D] { x * weight }\n}\n";

    /// A dimension whose formula is too long.
    TOO_LONG = "E0413", "a dimension formula is too long";
    rule: "Dimensions are kept in canonical form, multiplied out, so that equal formulas compare equal. A formula may have at\n\
           most 512 numbers and names, and no power above 64.";
    - failing: "fn f(x: f32[(A+B)*(C+D)*(E+F)*(G+H)*(I+J)*(K+L)*(M+N)], y: f32[A, B, C, D, E, F, G, H, I, J, K, L, M, N]) -> f32 { 0 }\n";
    - fixed: "fn f(x: f32[(A+B)*(C+D)], y: f32[A, B, C, D]) -> f32 { 0 }\n";

    /// Two `where` clauses that cannot both hold.
    WHERE_CONFLICT = "E0414", "`where` clauses contradict each other";
    rule: "The `where` clauses of a layer or function hold together, whatever their order. Clauses that no dimensions satisfy\n\
           are an error where they stand: nothing could ever use the layer or function.";
    - failing: "fn f(x: f32[D]) -> f32[D] where D % 2 == 0, D % 4 == 1 { x }\n";
    - fixed: "fn f(x: f32[D]) -> f32[D] where D % 2 == 1, D % 4 == 1 { x }\n";

    /// A dimension with a computed value whose bound is unknown on entry.
    LENGTH_BOUND = "E0415", "a computed length has no bound";
    rule: "`let dim N = value where N <= C` names a computed length. Memory is allocated for its maximum,\n\
           so a clause must bound it by dimensions that are known when the function is called. Other clauses may state\n\
           more (`S <= N`, `N % 2 == 0`). Each is checked where `N` is set, and is a fact after it. An equality is not\n\
           allowed: a dimension that equals a formula needs no name.";
    - failing: "model M<C = 8> {\n    state k: f32[C]\n    pub fn f(n: i64) -> f32 {\n        let dim N = n\n        sum(k[0..N])\n    }\n}\n";
    - fixed: "model M<C = 8> {\n    state k: f32[C]\n    pub fn f(n: i64) -> f32 {\n        let dim N = n where N <= C\n        sum(k[0..N])\n    }\n}\n";

    /// A length that is not an integer.
    LENGTH_VALUE = "E0416", "a length must be an integer";
    rule: "The value of `let dim N = value` is an `i32` or `i64` scalar. A value below 0, or above the bound, is an error of the\n\
           call.";
    - failing: "model M<C = 8> {\n    state k: f32[C]\n    pub fn f(n: f32) -> f32 {\n        let dim N = n where N <= C\n        sum(k[0..N])\n    }\n}\n";
    - fixed: "model M<C = 8> {\n    state k: f32[C]\n    pub fn f(n: f32) -> f32 {\n        let dim N = cast<i64>(n) where N <= C\n        sum(k[0..N])\n    }\n}\n";

    /// Two dimensions with the same name in a function.
    LENGTH_NAME = "E0417", "a dimension has a name of its own";
    rule: "The name in `let dim N = value` must differ from all dimensions and constants of the function and its layer,\n\
           and from every other `let dim` of the function, even in another block.";
    - failing: "model M<C = 8> {\n    state k: f32[C]\n    pub fn f(n: i64) -> f32 {\n        var y = 0.0\n        if n > 2 {\n            let dim N = n where N <= C\n            y = sum(k[0..N])\n        } else {\n            let dim N = n + 1 where N <= C\n            y = max(k[0..N])\n        }\n        y\n    }\n}\n";
    - fixed: "model M<C = 8> {\n    state k: f32[C]\n    pub fn f(n: i64) -> f32 {\n        var y = 0.0\n        if n > 2 {\n            let dim N = n where N <= C\n            y = sum(k[0..N])\n        } else {\n            let dim P = n + 1 where P <= C\n            y = max(k[0..P])\n        }\n        y\n    }\n}\n";

    /// A value that leaves the block of a length which its type mentions.
    LENGTH_LEAVES = "E0418", "a length is not known outside of its block";
    rule: "A dimension that `let dim` makes is known from there to the end of its block. A value whose shape names it does not\n\
           leave the block: neither as the block's value, nor as the function's result, whose shape the caller must know.";
    - failing: "model M<C = 8> {\n    state k: f32[C]\n    pub fn f(n: i64, last: bool) -> f32 {\n        let part = if last {\n            let dim N = n where N <= C\n            k[0..N]\n        } else { k[0..2] }\n        sum(part)\n    }\n}\n";
    - fixed: "model M<C = 8> {\n    state k: f32[C]\n    pub fn f(n: i64, last: bool) -> f32 {\n        let total = if last {\n            let dim N = n where N <= C\n            sum(k[0..N])\n        } else { sum(k[0..2]) }\n        total\n    }\n}\n";
}
