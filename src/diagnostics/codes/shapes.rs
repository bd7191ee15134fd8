//! Codes E03xx: shapes and element types that do not fit.

use super::codes;

codes! {
    /// `@` of two tensors whose inner dimensions differ.
    MATMUL_INNER = "E0301", "`@` needs equal inner dimensions";
    rule: "`a @ b` contracts the last axis of `a` with the second to last of `b`. The two must be the same\n\
           dimension, not merely the same number: D and S differ, though both may be 768 today.";
    - failing: "fn f(q: f32[S, D], k: f32[S, D]) -> f32[S, S] { q @ k }\n";
    - mended: "fn f(q: f32[S, D], k: f32[S, D]) -> f32[S, S] { q @ k.T }\n";

    /// Two shapes that do not broadcast.
    BROADCAST = "E0302", "the shapes do not broadcast";
    rule: "Shapes are aligned at their last axis. Two dimensions go together if they are the same, or one of them is\n\
           1; a missing leading dimension counts as 1.";
    - failing: "fn f(x: f32[S, D], y: f32[S]) -> f32[S, D] { x * y }\n";
    - mended: "fn f(x: f32[S, D], y: f32[S]) -> f32[S, D] { x * rearrange(y, \"s -> s 1\") }\n";

    /// Two operands of different element types.
    ELEM_MISMATCH = "E0303", "the element types differ";
    rule: "Nothing is converted silently: `cast<f32>(x)` says where precision changes. Literals and dimensions take\n\
           the type of the other operand.";
    - failing: "fn f(x: f32[S], n: i32[S]) -> f32[S] { x / n }\n";
    - mended: "fn f(x: f32[S], n: i32[S]) -> f32[S] { x / cast<f32>(n) }\n";

    /// An operation on an element type that it is not for.
    ELEM_KIND = "E0304", "the operation is not for this element type";
    rule: "`exp`, `softmax`, `mean` and the like are for floats; arithmetic is for numbers; `and`, `or`, `not`,\n\
           `any` and `all` are for `bool`.";
    - failing: "fn f(n: i32[S]) -> f32[S] { exp(n) }\n";
    - mended: "fn f(n: i32[S]) -> f32[S] { exp(cast<f32>(n)) }\n";

    /// Too many or too few arguments.
    ARGUMENT_COUNT = "E0305", "the number of arguments is wrong";
    rule: "Every argument without a default must be given, by its place or by its name, and none twice.";
    - failing: "fn f(c: bool[S], x: f32[S]) -> f32[S] { where(c, x) }\n";
    - mended: "fn f(c: bool[S], x: f32[S]) -> f32[S] { where(c, x, 0) }\n";

    /// An argument whose shape does not fit the signature.
    ARGUMENT_SHAPE = "E0306", "an argument has another shape";
    rule: "The shape of an argument must be the one that the signature declares. Dimensions that the signature names\n\
           and that are not generics are bound by the first argument that has them; all others must agree.";
    - failing: "use std.nn\nlayer L<D, F> {\n    up: Linear<D, F>\n    fn forward(x: f32[S, F]) -> f32[S, F] { up(x) }\n}\n";
    - mended: "use std.nn\nlayer L<D, F> {\n    up: Linear<D, F>\n    fn forward(x: f32[S, D]) -> f32[S, F] { up(x) }\n}\n";

    /// A tensor with too few axes.
    RANK = "E0307", "the tensor has too few axes";
    rule: "`.T` needs two axes, `x[i]` one for each index, a reduction at least one. How many axes `..` stands for\n\
           is not known, so it does not count.";
    - failing: "fn f(x: f32[D]) -> f32[D] { x.T }\n";
    - mended: "fn f(x: f32[S, D]) -> f32[D, S] { x.T }\n";

    /// An axis that the tensor does not have.
    AXIS = "E0308", "there is no such axis";
    rule: "Axes are numbered from 0, or from the end: -1 is the last. Which axes stand behind `..` is known from the\n\
           end only, so they need negative numbers.";
    - failing: "fn f(x: f32[S, D]) -> f32[S] { sum(x, axis = 2) }\n";
    - mended: "fn f(x: f32[S, D]) -> f32[S] { sum(x, axis = 1) }\n";

    /// A pattern that cannot be read.
    PATTERN = "E0309", "the pattern cannot be read";
    rule: "A pattern of `rearrange` names every axis before and after: `\"s (n h d) -> n h s d\"`. Parentheses stand\n\
           for one axis made of several, `1` for an axis of length 1, `..` for all axes that are not named. Each\n\
           name stands once on each side. `einsum` has a list of names for each operand: `\"s d, t d -> s t\"`.";
    - failing: "fn f(x: f32[S, D]) -> f32[D] { rearrange(x, \"s d -> d\") }\n";
    - mended: "fn f(x: f32[S, D]) -> f32[D, S] { rearrange(x, \"s d -> d s\") }\n";

    /// A pattern for another number of axes.
    PATTERN_RANK = "E0310", "the pattern does not fit the tensor's axes";
    rule: "The left side of a pattern has one entry for each axis of the tensor, or `..` for those that are not\n\
           named.";
    - failing: "fn f(x: f32[B, S, D]) -> f32[S, B, D] { rearrange(x, \"b s -> s b\") }\n";
    - mended: "fn f(x: f32[B, S, D]) -> f32[S, B, D] { rearrange(x, \"b s d -> s b d\") }\n";

    /// Lengths in a pattern that do not fit or are not known.
    PATTERN_SIZE = "E0311", "the lengths in the pattern do not fit";
    rule: "All names in parentheses but one need a length: `rearrange(x, \"s (h d) -> h s d\", h = H)`. The one that\n\
           is left is the quotient, which must be whole by a `where` clause.";
    - failing: "fn f<H>(x: f32[S, D]) -> f32[S, D] where D % H == 0 {\n    rearrange(rearrange(x, \"s (h d) -> h s d\"), \"h s d -> s (h d)\")\n}\n";
    - mended: "fn f<H>(x: f32[S, D]) -> f32[S, D] where D % H == 0 {\n    rearrange(rearrange(x, \"s (h d) -> h s d\", h = H), \"h s d -> s (h d)\")\n}\n";

    /// Operands of `einsum` that do not fit its pattern.
    EINSUM = "E0312", "the operands do not fit the pattern";
    rule: "`einsum` takes as many tensors as its pattern has lists, each with one axis for each name, and a name is\n\
           the same dimension wherever it stands.";
    - failing: "fn f(q: f32[S, D], k: f32[T, E]) -> f32[S, T] { einsum(\"s d, t d -> s t\", q, k) }\n";
    - mended: "fn f(q: f32[S, D], k: f32[T, D]) -> f32[S, T] { einsum(\"s d, t d -> s t\", q, k) }\n";

    /// A function whose body has another type than it declares.
    RESULT = "E0313", "the result is not what the function declares";
    rule: "The value of the body, its last expression, must have the type after `->`, dimension by dimension.";
    - failing: "fn f(x: f32[S, D]) -> f32[S, D] { x.T }\n";
    - mended: "fn f(x: f32[S, D]) -> f32[D, S] { x.T }\n";

    /// A value that is not of the type of the variable.
    VALUE_TYPE = "E0314", "the value is not of the variable's type";
    rule: "A variable keeps the type of its first value, or the one written behind `:`, element type and shape. In a\n\
           loop this is what makes every turn compute with the same shapes.";
    - failing: "fn f(x: f32[S]) -> f32[S] {\n    var y = x\n    y = sum(x)\n    y\n}\n";
    - mended: "fn f(x: f32[S]) -> f32[S] {\n    var y = x\n    y = x / sum(x)\n    y\n}\n";

    /// More indices than axes.
    INDEX_COUNT = "E0315", "there are more indices than axes";
    rule: "`x[a, b]` has at most one entry for each axis of `x`; `..` stands for those that are not named and stands\n\
           once. Behind the `..` of a signature, axes are reached from the end only: `x[.., 0]`.";
    - failing: "fn f(x: f32[S]) -> f32 { x[0, 1] }\n";
    - mended: "fn f(x: f32[S, D]) -> f32 { x[0, 1] }\n";

    /// A slice or index that is certainly outside.
    OUT_OF_RANGE = "E0316", "the index is out of range";
    rule: "In `x[a..b]`, `0 <= a <= b <= n`, n being the length of the axis, and in `x[i]`, `0 <= i < n`. Where the\n\
           dimensions do not decide it, it is checked at the door of the call; where they refute it, it is an error.\n\
           Negative indices do not count from the end.";
    - failing: "fn f(x: f32[3, D]) -> f32[D] { x[3] }\n";
    - mended: "fn f(x: f32[3, D]) -> f32[D] { x[2] }\n";

    /// An index that is no integer.
    INDEX_TYPE = "E0317", "an index must be an integer";
    rule: "A tensor is indexed with dimensions and integers, or with a tensor of i32 or i64, which takes one slice\n\
           for each.";
    - failing: "fn f(table: f32[V, D], x: f32[S]) -> f32[S, D] { table[x] }\n";
    - mended: "fn f(table: f32[V, D], x: i32[S]) -> f32[S, D] { table[x] }\n";

    /// A condition that is not `bool`.
    CONDITION = "E0318", "a condition must be `bool`";
    rule: "`where`, `if` and `while` take `bool`. Numbers are compared first: `mask != 0`.";
    - failing: "fn f(mask: i32[S], x: f32[S]) -> f32[S] { where(mask, x, 0) }\n";
    - mended: "fn f(mask: i32[S], x: f32[S]) -> f32[S] { where(mask != 0, x, 0) }\n";

    /// A pattern with another number of names than the value has parts.
    PARTS = "E0319", "the number of parts differs";
    rule: "`let (a, b) = value` needs a value of as many parts. `unbind` gives as many parts as its axis is long,\n\
           `split` as many as `parts` says.";
    - failing: "fn f(x: f32[3, S]) -> f32[S] {\n    let (a, b) = unbind(x)\n    a + b\n}\n";
    - mended: "fn f(x: f32[3, S]) -> f32[S] {\n    let (a, b, c) = unbind(x)\n    a + b + c\n}\n";

    /// `unbind` along an axis of unknown length.
    UNBIND_LENGTH = "E0320", "the number of parts must be known";
    rule: "`unbind` and `split` give a tuple, whose number of parts the text must show: the axis of `unbind` has a\n\
           length that is a number, and `parts` is a number.";
    - failing: "fn f(x: f32[N, S]) -> f32[S] {\n    let (a, b) = unbind(x)\n    a + b\n}\n";
    - mended: "fn f(x: f32[2, S]) -> f32[S] {\n    let (a, b) = unbind(x)\n    a + b\n}\n";

    /// Something else where a tensor is needed.
    NOT_A_TENSOR = "E0321", "a tensor is needed";
    rule: "Operations take tensors and numbers, not tuples, strings or lists.";
    - failing: "fn f(x: f32[2, S]) -> f32[2, S] { exp(unbind(x)) }\n";
    - mended: "fn f(x: f32[2, S]) -> f32[2, S] { exp(x) }\n";

    /// A literal that the element type cannot hold.
    LITERAL = "E0322", "the literal does not fit the element type";
    rule: "A literal takes the type of the other operand. An integer type holds whole numbers of its range only, and\n\
           `bool` holds `true` and `false`.";
    - failing: "fn f(n: i32[S]) -> i32[S] { n + 0.5 }\n";
    - mended: "fn f(n: i32[S]) -> i32[S] { n + 1 }\n";

    /// Tensors that cannot stand one after another.
    CONCAT = "E0323", "the tensors cannot be concatenated";
    rule: "`concat(a, b, axis = 0)` needs tensors of one element type whose dimensions are the same but for the\n\
           axis.";
    - failing: "fn f(x: f32[S, D], y: f32[S, E]) -> f32[2*S, D] { concat(x, y, axis = 0) }\n";
    - mended: "fn f(x: f32[S, D], y: f32[S, E]) -> f32[S, D+E] { concat(x, y, axis = 1) }\n";

    /// An argument that must be known when the program is compiled.
    CONSTANT_ARGUMENT = "E0324", "the argument must be a constant";
    rule: "`axis`, `keep`, `parts` and patterns decide the shape of the result, so the text must show them.";
    - failing: "fn f(x: f32[S, D], n: i32) -> f32[D] { sum(x, axis = n) }\n";
    - mended: "fn f(x: f32[S, D], n: i32) -> f32[D] { sum(x, axis = 0) * cast<f32>(n) }\n";

    /// A block without a value where one is needed.
    NO_VALUE = "E0325", "there is no value here";
    rule: "The last expression of a block is its value; `let`, assignments and loops have none. A function without\n\
           `->` gives no value, nor does an `if` without `else`.";
    - failing: "fn f(x: f32[S]) -> f32[S] {\n    let y = exp(x)\n}\n";
    - mended: "fn f(x: f32[S]) -> f32[S] {\n    let y = exp(x)\n    y\n}\n";

    /// Leading dimensions that do not fit `..`.
    REST = "E0326", "the axes do not line up with `..`";
    rule: "`..` stands for any number of leading dimensions, the same ones in all arguments of a function. Another\n\
           dimension cannot be aligned with it, because it is not known which axes would belong together. Give both\n\
           operands the same number of axes behind `..`, with `rearrange(x, \".. s t -> .. 1 s t\")`.";
    - failing: "fn f(x: f32[.., H, S, T], m: bool[.., S, T]) -> f32[.., H, S, T] { where(m, x, 0) }\n";
    - mended: "fn f(x: f32[.., H, S, T], m: bool[.., S, T]) -> f32[.., H, S, T] {\n    where(rearrange(m, \".. s t -> .. 1 s t\"), x, 0)\n}\n";

    /// The element type of a call's argument or of `cast` is missing or wrong.
    CALL_GENERICS = "E0327", "the types in `<..>` do not fit";
    rule: "`cast<bf16>(x)` and `full<f32>(0, [S, D])` take one element type in `<..>`; the other operations take\n\
           none.";
    - failing: "fn f(n: i32[S]) -> f32[S] { cast(n) }\n";
    - mended: "fn f(n: i32[S]) -> f32[S] { cast<f32>(n) }\n";

    /// An argument of another element type than the signature declares.
    ARGUMENT_ELEM = "E0328", "an argument has another element type";
    rule: "An argument has the element type that the signature declares. Nothing is converted silently.";
    - failing: "use std.nn\nlayer L<D> {\n    norm: LayerNorm<D>\n    fn forward(x: bf16[D]) -> f32[D] { norm(x) }\n}\n";
    - mended: "use std.nn\nlayer L<D> {\n    norm: LayerNorm<D>\n    fn forward(x: bf16[D]) -> f32[D] { norm(cast<f32>(x)) }\n}\n";

    /// Branches of different types.
    BRANCHES = "E0329", "the branches have different types";
    rule: "Where an `if` is used as a value, both branches give a value of the same type.";
    - failing: "fn f(x: f32[S, D], c: bool) -> f32[S, D] { if c { x } else { sum(x) } }\n";
    - mended: "fn f(x: f32[S, D], c: bool) -> f32[S, D] { if c { x } else { softmax(x) } }\n";

    /// A loop over something that has no elements.
    NOT_ITERABLE = "E0330", "`for` cannot go through this";
    rule: "`for` goes through a range of integers, `0..S`, or through an array of layers.";
    - failing: "use std.nn\nlayer L<D> {\n    norm: LayerNorm<D>\n    fn forward(x: f32[D]) -> f32[D] {\n        var y = x\n        for b in norm { y = b(y) }\n        y\n    }\n}\n";
    - mended: "use std.nn\nlayer L<D> {\n    norm: [LayerNorm<D>; 2]\n    fn forward(x: f32[D]) -> f32[D] {\n        var y = x\n        for b in norm { y = b(y) }\n        y\n    }\n}\n";

    /// A statement whose value is lost.
    LOST_VALUE = "E0331", "a value is computed and not used";
    rule: "An expression that stands as a statement has no effect, unless it is the last one of its block, which is\n\
           the block's value. A newline ends a statement, except inside brackets and after an operator.";
    - failing: "fn f(x: f32[S]) -> f32[S] {\n    exp(x)\n    x + 1\n}\n";
    - mended: "fn f(x: f32[S]) -> f32[S] {\n    let y = exp(x)\n    y + 1\n}\n";

    /// A second argument without a name where it would be an axis.
    UNNAMED_ARGUMENT = "E0332", "an argument needs its name";
    rule: "Of reductions, `softmax`, `split`, `unbind` and `pad` only the tensor stands without a name: `max(x, axis = 0)`,\n\
           `split(x, parts = 2)`. In other languages `max(x, 0)` is the larger of the two, which is `maximum(x, 0)`\n\
           here.";
    - failing: "fn f(x: f32[S, D]) -> f32[S, D] { max(x, 0) }\n";
    - mended: "fn f(x: f32[S, D]) -> f32[S, D] { maximum(x, 0) }\n";
}
