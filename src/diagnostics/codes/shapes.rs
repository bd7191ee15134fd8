//! Codes E03xx: shapes and element types that do not match.

use super::codes;

codes! {
    /// `@` of two tensors whose inner dimensions differ.
    MATMUL_INNER = "E0301", "`@` needs equal inner dimensions";
    rule: "`a @ b` contracts the last axis of `a` with the second to last of `b`. The two must be the same\n\
           dimension, not merely the same number: D and S differ even if both happen to be 768.";
    - failing: "fn f(q: f32[S, D], k: f32[S, D]) -> f32[S, S] { q @ k }\n";
    - fixed: "fn f(q: f32[S, D], k: f32[S, D]) -> f32[S, S] { q @ k.T }\n";

    /// Two shapes that do not broadcast.
    BROADCAST = "E0302", "the shapes do not broadcast";
    rule: "Shapes are aligned at their last axis. Two dimensions are compatible if they are equal or one of them is\n\
           1; a missing leading dimension counts as 1.";
    - failing: "fn f(x: f32[S, D], y: f32[S]) -> f32[S, D] { x * y }\n";
    - fixed: "fn f(x: f32[S, D], y: f32[S]) -> f32[S, D] { x * rearrange(y, \"s -> s 1\") }\n";

    /// Two operands of different element types.
    ELEM_MISMATCH = "E0303", "the element types differ";
    rule: "There are no implicit conversions: `cast<f32>(x)` converts. Literals and dimensions take the type of the other\n\
           operand.";
    - failing: "fn f(x: f32[S], n: i32[S]) -> f32[S] { x / n }\n";
    - fixed: "fn f(x: f32[S], n: i32[S]) -> f32[S] { x / cast<f32>(n) }\n";

    /// An operation on an element type that it does not support.
    ELEM_KIND = "E0304", "the operation does not support this element type";
    rule: "`exp`, `softmax`, `mean` and the like take floats; arithmetic takes numbers; `and`, `or`, `not`, `any` and `all`\n\
           take `bool`.";
    - failing: "fn f(n: i32[S]) -> f32[S] { exp(n) }\n";
    - fixed: "fn f(n: i32[S]) -> f32[S] { exp(cast<f32>(n)) }\n";

    /// Too many or too few arguments.
    ARGUMENT_COUNT = "E0305", "wrong number of arguments";
    rule: "Every argument without a default must be given exactly once, by position or by name.";
    - failing: "fn f(c: bool[S], x: f32[S]) -> f32[S] { where(c, x) }\n";
    - fixed: "fn f(c: bool[S], x: f32[S]) -> f32[S] { where(c, x, 0) }\n";

    /// An argument whose shape does not match the signature.
    ARGUMENT_SHAPE = "E0306", "an argument has the wrong shape";
    rule: "The shape of an argument must be the one that the signature declares. Dimensions in the signature that are not\n\
           generics are bound by the first argument that has them; the other arguments must agree.";
    - failing: "use std.nn\nlayer L<D, F> {\n    up: Linear<D, F>\n    fn forward(x: f32[S, F]) -> f32[S, F] { up(x) }\n}\n";
    - fixed: "use std.nn\nlayer L<D, F> {\n    up: Linear<D, F>\n    fn forward(x: f32[S, D]) -> f32[S, F] { up(x) }\n}\n";

    /// A tensor with too few axes.
    RANK = "E0307", "the tensor has too few axes";
    rule: "`.T` needs two axes, `x[i]` one for each index, a reduction at least one. `..` does not count, because it may\n\
           stand for no axis at all.";
    - failing: "fn f(x: f32[D]) -> f32[D] { x.T }\n";
    - fixed: "fn f(x: f32[S, D]) -> f32[D, S] { x.T }\n";

    /// An axis that the tensor does not have.
    AXIS = "E0308", "no such axis";
    rule: "Axes are numbered from 0, or from the end: -1 is the last. The number of axes in `..` is not known, so axes after\n\
           it need negative numbers.";
    - failing: "fn f(x: f32[S, D]) -> f32[S] { sum(x, axis = 2) }\n";
    - fixed: "fn f(x: f32[S, D]) -> f32[S] { sum(x, axis = 1) }\n";

    /// A pattern that cannot be read.
    PATTERN = "E0309", "invalid pattern";
    rule: "A pattern of `rearrange` names every axis before and after: `\"s (n h d) -> n h s d\"`. Parentheses merge several\n\
           axes into one, `1` is an axis of length 1, `..` stands for all axes that are not named. Each name occurs\n\
           once on each side. `einsum` has a list of names for each operand: `\"s d, t d -> s t\"`.";
    - failing: "fn f(x: f32[S, D]) -> f32[D] { rearrange(x, \"s d -> d\") }\n";
    - fixed: "fn f(x: f32[S, D]) -> f32[D, S] { rearrange(x, \"s d -> d s\") }\n";

    /// A pattern for another number of axes.
    PATTERN_RANK = "E0310", "the pattern does not match the number of axes";
    rule: "The left side of a pattern has one entry for each axis of the tensor, or `..` for the remaining\n\
           axes.";
    - failing: "fn f(x: f32[B, S, D]) -> f32[S, B, D] { rearrange(x, \"b s -> s b\") }\n";
    - fixed: "fn f(x: f32[B, S, D]) -> f32[S, B, D] { rearrange(x, \"b s d -> s b d\") }\n";

    /// Lengths in a pattern that do not match or are not known.
    PATTERN_SIZE = "E0311", "the lengths in the pattern do not match";
    rule: "All names in parentheses but one need a length: `rearrange(x, \"s (h d) -> h s d\", h = H)`. The remaining one is\n\
           the quotient, and a `where` clause must state that the division is exact.";
    - failing: "fn f<H>(x: f32[S, D]) -> f32[S, D] where D % H == 0 {\n    rearrange(rearrange(x, \"s (h d) -> h s d\"), \"h s d -> s (h d)\")\n}\n";
    - fixed: "fn f<H>(x: f32[S, D]) -> f32[S, D] where D % H == 0 {\n    rearrange(rearrange(x, \"s (h d) -> h s d\", h = H), \"h s d -> s (h d)\")\n}\n";

    /// Operands of `einsum` that do not match its pattern.
    EINSUM = "E0312", "the operands do not match the pattern";
    rule: "`einsum` takes one tensor for each list in its pattern, with one axis for each name, and a name is the same\n\
           dimension everywhere.";
    - failing: "fn f(q: f32[S, D], k: f32[T, E]) -> f32[S, T] { einsum(\"s d, t d -> s t\", q, k) }\n";
    - fixed: "fn f(q: f32[S, D], k: f32[T, D]) -> f32[S, T] { einsum(\"s d, t d -> s t\", q, k) }\n";

    /// A function whose body does not have the declared type.
    RESULT = "E0313", "the result does not have the declared type";
    rule: "The value of the body, its last expression, must have the type after `->`, dimension by dimension.";
    - failing: "fn f(x: f32[S, D]) -> f32[S, D] { x.T }\n";
    - fixed: "fn f(x: f32[S, D]) -> f32[D, S] { x.T }\n";

    /// A value that is not of the type of the variable.
    VALUE_TYPE = "E0314", "the value does not have the type of the variable";
    rule: "A variable keeps the type (element type and shape) of its first value, or the one declared after `:`. So every\n\
           iteration of a loop computes with the same shapes.";
    - failing: "fn f(x: f32[S]) -> f32[S] {\n    var y = x\n    y = sum(x)\n    y\n}\n";
    - fixed: "fn f(x: f32[S]) -> f32[S] {\n    var y = x\n    y = x / sum(x)\n    y\n}\n";

    /// More indices than axes.
    INDEX_COUNT = "E0315", "more indices than axes";
    rule: "`x[a, b]` has at most one entry for each axis of `x`; `..`, at most once, stands for the remaining axes. Where there is\n\
           an entry for each axis, any of them may be `..`: `x[.., 0..4, ..]`. Axes after the `..` of a signature can only be\n\
           indexed from the end: `x[.., 0]`.";
    - failing: "fn f(x: f32[S]) -> f32 { x[0, 1] }\n";
    - fixed: "fn f(x: f32[S, D]) -> f32 { x[0, 1] }\n";

    /// A slice or index that is certainly out of range.
    OUT_OF_RANGE = "E0316", "the index is out of range";
    rule: "In `x[a..b]`, `0 <= a <= b <= n` must hold, where n is the length of the axis, and in `x[i]`, `0 <= i < n`. It is\n\
           an error if the dimensions contradict that; if they do not decide it, the call checks it.\n\
           Negative indices do not count from the end.";
    - failing: "fn f(x: f32[3, D]) -> f32[D] { x[3] }\n";
    - fixed: "fn f(x: f32[3, D]) -> f32[D] { x[2] }\n";

    /// An index that is not an integer.
    INDEX_TYPE = "E0317", "an index must be an integer";
    rule: "A tensor is indexed with dimensions and integers, or with a tensor of i32 or i64, which gathers one slice for each\n\
           element.";
    - failing: "fn f(table: f32[V, D], x: f32[S]) -> f32[S, D] { table[x] }\n";
    - fixed: "fn f(table: f32[V, D], x: i32[S]) -> f32[S, D] { table[x] }\n";

    /// A condition that is not `bool`.
    CONDITION = "E0318", "a condition must be `bool`";
    rule: "`where`, `if` and `while` take `bool`. Compare numbers first: `mask != 0`.";
    - failing: "fn f(mask: i32[S], x: f32[S]) -> f32[S] { where(mask, x, 0) }\n";
    - fixed: "fn f(mask: i32[S], x: f32[S]) -> f32[S] { where(mask != 0, x, 0) }\n";

    /// A tuple pattern whose length differs from that of the value.
    PARTS = "E0319", "wrong number of parts";
    rule: "`let (a, b) = value` needs a tuple with as many parts. `unbind` returns one part for each index of its axis,\n\
           `split` as many as `parts`.";
    - failing: "fn f(x: f32[3, S]) -> f32[S] {\n    let (a, b) = unbind(x)\n    a + b\n}\n";
    - fixed: "fn f(x: f32[3, S]) -> f32[S] {\n    let (a, b, c) = unbind(x)\n    a + b + c\n}\n";

    /// `unbind` along an axis of unknown length.
    UNBIND_LENGTH = "E0320", "the number of parts must be known";
    rule: "`unbind` and `split` return a tuple, whose length must be known at compile time: the length of the axis of\n\
           `unbind`, and `parts`, must be literal numbers.";
    - failing: "fn f(x: f32[N, S]) -> f32[S] {\n    let (a, b) = unbind(x)\n    a + b\n}\n";
    - fixed: "fn f(x: f32[2, S]) -> f32[S] {\n    let (a, b) = unbind(x)\n    a + b\n}\n";

    /// Something other than a tensor where a tensor is required.
    NOT_A_TENSOR = "E0321", "expected a tensor";
    rule: "Operations take tensors and numbers, not tuples, strings or lists.";
    - failing: "fn f(x: f32[2, S]) -> f32[2, S] { exp(unbind(x)) }\n";
    - fixed: "fn f(x: f32[2, S]) -> f32[2, S] { exp(x) }\n";

    /// A literal that the element type cannot hold.
    LITERAL = "E0322", "the literal does not fit the element type";
    rule: "A literal takes the type of the other operand. An integer type takes integers in its range only, and\n\
           `bool` takes `true` and `false`.";
    - failing: "fn f(n: i32[S]) -> i32[S] { n + 0.5 }\n";
    - fixed: "fn f(n: i32[S]) -> i32[S] { n + 1 }\n";

    /// Tensors that cannot be concatenated.
    CONCAT = "E0323", "the tensors cannot be concatenated";
    rule: "`concat(a, b, axis = 0)` needs tensors of one element type whose dimensions are equal except along the axis.";
    - failing: "fn f(x: f32[S, D], y: f32[S, E]) -> f32[2*S, D] { concat(x, y, axis = 0) }\n";
    - fixed: "fn f(x: f32[S, D], y: f32[S, E]) -> f32[S, D+E] { concat(x, y, axis = 1) }\n";

    /// An argument that must be known when the program is compiled.
    CONSTANT_ARGUMENT = "E0324", "the argument must be a constant";
    rule: "`axis`, `keep`, `parts` and patterns determine the shape of the result, so they must be literals.";
    - failing: "fn f(x: f32[S, D], n: i32) -> f32[D] { sum(x, axis = n) }\n";
    - fixed: "fn f(x: f32[S, D], n: i32) -> f32[D] { sum(x, axis = 0) * cast<f32>(n) }\n";

    /// A block without a value where a value is required.
    NO_VALUE = "E0325", "a value is missing";
    rule: "The last expression of a block is its value; `let`, assignments and loops have none. Neither does a call\n\
           of a function without `->`, nor an `if` without `else`.";
    - failing: "fn f(x: f32[S]) -> f32[S] {\n    let y = exp(x)\n}\n";
    - fixed: "fn f(x: f32[S]) -> f32[S] {\n    let y = exp(x)\n    y\n}\n";

    /// Leading dimensions that cannot be aligned with `..`.
    REST = "E0326", "the axes do not line up with `..`";
    rule: "`..` stands for any number of leading dimensions, the same ones in all arguments of a function. Another\n\
           dimension cannot be aligned with it, because it is not known which axes correspond. Give both\n\
           operands the same number of axes after `..`, with `rearrange(x, \".. s t -> .. 1 s t\")`.";
    - failing: "fn f(x: f32[.., H, S, T], m: bool[.., S, T]) -> f32[.., H, S, T] { where(m, x, 0) }\n";
    - fixed: "fn f(x: f32[.., H, S, T], m: bool[.., S, T]) -> f32[.., H, S, T] {\n    where(rearrange(m, \".. s t -> .. 1 s t\"), x, 0)\n}\n";

    /// The element type of a call's argument or of `cast` is missing or wrong.
    CALL_GENERICS = "E0327", "wrong types in `<..>`";
    rule: "`cast<bf16>(x)` and `full<f32>(0, [S, D])` take one element type in `<..>`; the other operations take\n\
           none.";
    - failing: "fn f(n: i32[S]) -> f32[S] { cast(n) }\n";
    - fixed: "fn f(n: i32[S]) -> f32[S] { cast<f32>(n) }\n";

    /// An argument with the wrong element type.
    ARGUMENT_ELEM = "E0328", "an argument has the wrong element type";
    rule: "An argument must have the element type that the signature declares. There are no implicit conversions.";
    - failing: "use std.nn\nlayer L<D> {\n    norm: LayerNorm<D>\n    fn forward(x: bf16[D]) -> f32[D] { norm(x) }\n}\n";
    - fixed: "use std.nn\nlayer L<D> {\n    norm: LayerNorm<D>\n    fn forward(x: bf16[D]) -> f32[D] { norm(cast<f32>(x)) }\n}\n";

    /// Branches of different types.
    BRANCHES = "E0329", "the branches have different types";
    rule: "If an `if` is used as a value, both branches must have values of the same type.";
    - failing: "fn f(x: f32[S, D], c: bool) -> f32[S, D] { if c { x } else { sum(x) } }\n";
    - fixed: "fn f(x: f32[S, D], c: bool) -> f32[S, D] { if c { x } else { softmax(x) } }\n";

    /// A loop over something that is not iterable.
    NOT_ITERABLE = "E0330", "`for` cannot iterate over this";
    rule: "`for` iterates over a range of integers, `0..S`, or over an array of layers.";
    - failing: "use std.nn\nlayer L<D> {\n    norm: LayerNorm<D>\n    fn forward(x: f32[D]) -> f32[D] {\n        var y = x\n        for b in norm { y = b(y) }\n        y\n    }\n}\n";
    - fixed: "use std.nn\nlayer L<D> {\n    norm: [LayerNorm<D>; 2]\n    fn forward(x: f32[D]) -> f32[D] {\n        var y = x\n        for b in norm { y = b(y) }\n        y\n    }\n}\n";

    /// A statement whose value is lost.
    LOST_VALUE = "E0331", "a value is computed but not used";
    rule: "An expression used as a statement has no effect, unless it is the last one in its block, which is the value of\n\
           the block. A newline ends a statement, except inside brackets and after an operator.";
    - failing: "fn f(x: f32[S]) -> f32[S] {\n    exp(x)\n    x + 1\n}\n";
    - fixed: "fn f(x: f32[S]) -> f32[S] {\n    let y = exp(x)\n    y + 1\n}\n";

    /// A second argument without a name where it would be an axis.
    UNNAMED_ARGUMENT = "E0332", "an argument must be named";
    rule: "All arguments of reductions, `softmax`, `split`, `unbind` and `pad` except the tensor must be named: `max(x, axis =\n\
           0)`, `split(x, parts = 2)`. The elementwise maximum, `max(x, 0)` in other languages, is `maximum(x, 0)`.";
    - failing: "fn f(x: f32[S, D]) -> f32[S, D] { max(x, 0) }\n";
    - fixed: "fn f(x: f32[S, D]) -> f32[S, D] { maximum(x, 0) }\n";

    /// A `break` outside of a loop.
    BREAK_OUTSIDE = "E0340", "`break` outside of a loop";
    rule: "`break` ends the innermost `for` or `while` around it, in the same function.";
    - failing: "fn f(x: f32[S]) -> f32[S] {\n    var y = x\n    if any(y > 8) { break }\n    y\n}\n";
    - fixed: "fn f(x: f32[S]) -> f32[S] {\n    var y = x\n    for i in 0..4 {\n        if any(y > 8) { break }\n        y = y * 2\n    }\n    y\n}\n";

    /// Statements after a `break`.
    UNREACHED = "E0341", "nothing reaches this statement";
    rule: "Statements after a `break` in its block are never executed, and neither are statements after an `if` whose branches both\n\
           break.";
    - failing: "fn f(x: f32[S]) -> f32[S] {\n    var y = x\n    for i in 0..4 {\n        break\n        y = y * 2\n    }\n    y\n}\n";
    - fixed: "fn f(x: f32[S]) -> f32[S] {\n    var y = x\n    for i in 0..4 {\n        y = y * 2\n        break\n    }\n    y\n}\n";

    /// A `while` whose condition never changes.
    ENDLESS = "E0342", "a loop that never ends";
    rule: "The condition of a `while` depends on a variable that the body assigns, or the body leaves the loop with `break`. Else\n\
           the loop would run for ever once its condition holds.";
    - failing: "fn f(x: f32[S]) -> f32[S] {\n    var y = x\n    while any(x < 8) { y = y * 2 }\n    y\n}\n";
    - fixed: "fn f(x: f32[S]) -> f32[S] {\n    var y = x\n    while any(y < 8) { y = y * 2 }\n    y\n}\n";

    /// A slice with computed ends and unknown length.
    SLICE_LENGTH = "E0343", "a slice of unknown length";
    rule: "The ends of a slice may be computed, `x[i..i+P]`, if they differ by a dimension: every tensor has a shape that is known\n\
           in terms of dimensions. That the slice lies in the axis is checked when the program runs.";
    - failing: "fn f(x: f32[S], i: i32, j: i32) -> f32 { sum(x[i..j]) }\n";
    - fixed: "fn f(x: f32[S], i: i32) -> f32 { sum(x[i..i+4]) }\n";

    /// The first argument of `grad` is not one float.
    LOSS = "E0344", "a loss must be one float";
    rule: "`grad(loss, x)` is the gradient of one number, a float, with respect to `x`: a sum or a mean over all axes makes one\n\
           of a tensor.";
    - failing: "fn f(x: f32[S]) -> f32[S] { grad(x * x, x) }\n";
    - fixed: "fn f(x: f32[S]) -> f32[S] { grad(sum(x * x), x) }\n";

    /// A gradient that does not exist.
    NO_GRADIENT = "E0345", "no gradient reaches a variable";
    rule: "The loss of `grad(loss, x)` must depend on `x` by a path that gradients take: of floats, through operations that are\n\
           not constant in steps, not through `stop`, states of the call before, `while`, or a loop with `break` or with computed\n\
           ends. So must the loss of a `train` on each parameter that has a rule: `Fixed` keeps the others as they are.";
    - failing: "model M {\n    pub fn f(x: f32[S]) -> f32[S] { grad(sum(floor(x)), x) }\n}\n";
    - fixed: "model M {\n    pub fn f(x: f32[S]) -> f32[S] { grad(sum(floor(x) * x), x) }\n}\n";
}
