//! Codes E01xx: texts that cannot be read as tokens or as a program.

use super::codes;

codes! {
    /// A token that does not fit.
    UNEXPECTED = "E0101", "something does not fit here";
    rule: "A program is a list of items (`use`, `layer`, `model`, `fn`); layers hold fields and functions, functions hold\n\
           statements. The message says what could stand at the marked place. Where nothing is at the place, the\n\
           end of the line or of the file came too early.";
    - failing: "fn scale(x: f32[S]) -> f32[S] {\n    x *\n}\n";
    - mended: "fn scale(x: f32[S]) -> f32[S] {\n    x * 2\n}\n";

    /// A character that no token has.
    UNKNOWN_CHARACTER = "E0102", "a character that is no part of the language";
    rule: "Outside strings and comments, programs are written in ASCII: names are made of letters, digits and `_`, and\n\
           operators are those of Python. Text copied from a paper often holds look-alikes such as the minus sign\n\
           U+2212; the message says which operator is meant.";
    - failing: "fn scale(x: f32[S]) -> f32[S] {\n    x × 2\n}\n";
    - mended: "fn scale(x: f32[S]) -> f32[S] {\n    x * 2\n}\n";

    /// A string without its closing quote.
    OPEN_STRING = "E0103", "a string is not closed on its line";
    rule: "A string begins and ends with `\"` on one line.";
    - failing: "fn swap(x: f32[S, D]) -> f32[D, S] {\n    rearrange(x, \"s d -> d s)\n}\n";
    - mended: "fn swap(x: f32[S, D]) -> f32[D, S] {\n    rearrange(x, \"s d -> d s\")\n}\n";

    /// A number that cannot be read.
    BAD_NUMBER = "E0104", "a number cannot be read";
    rule: "Integers are `12`, `1_000` or `0x1f`, and fit 64 bits; floats have digits on both sides of their point, and may\n\
           have an exponent: `0.5`, `1e-5`. A product is written with `*`.";
    - failing: "fn widen(x: f32[D]) -> f32[2D] {\n    concat(x, x, axis = 0)\n}\n";
    - mended: "fn widen(x: f32[D]) -> f32[2*D] {\n    concat(x, x, axis = 0)\n}\n";

    /// A bracket without its closing one.
    UNCLOSED = "E0105", "a bracket is never closed";
    rule: "Every `(`, `[` and `{` needs its closing bracket. The mark shows where the bracket was opened; it was still\n\
           open where the next statement or item began, or where the file ended.";
    - failing: "fn scale(x: f32[S]) -> f32[S] {\n    let y = exp(x * (x + 1)\n    y\n}\n";
    - mended: "fn scale(x: f32[S]) -> f32[S] {\n    let y = exp(x * (x + 1))\n    y\n}\n";

    /// A closing bracket without its opening one.
    UNOPENED = "E0106", "a closing bracket closes nothing";
    rule: "Every `)`, `]` and `}` closes the nearest open bracket of its kind. Here there is none.";
    - failing: "fn scale(x: f32[S]) -> f32[S] {\n    exp(x + 1))\n}\n";
    - mended: "fn scale(x: f32[S]) -> f32[S] {\n    exp(x + 1)\n}\n";

    /// Nesting beyond the limit.
    TOO_DEEP = "E0107", "nesting is limited";
    rule: "Expressions, types and blocks may be nested 256 levels deep; brackets and operators before an operand count, and\n\
           so does each operator of a long sum. Longer formulas become readable, too, when their parts get names.";

    /// `a < b < c`.
    CHAINED_COMPARISON = "E0108", "comparisons do not chain";
    rule: "In `a < b < c` the second comparison would compare a bool with a number, or mean two comparisons at once, as in\n\
           Python. To say the latter, write both.";
    - failing: "fn inside(x: f32[S]) -> bool[S] {\n    0.0 < x < 1.0\n}\n";
    - mended: "fn inside(x: f32[S]) -> bool[S] {\n    0.0 < x and x < 1.0\n}\n";

    /// An operator of another language.
    FOREIGN_OPERATOR = "E0109", "an operator that other languages have";
    rule: "Logic is written `and`, `or`, `not`; a power is `pow(x, y)`; a matrix product is `@`; strings stand in double\n\
           quotes; there is no `+=`: write `x = x + ..`.";
    - failing: "fn both(a: bool[S], b: bool[S]) -> bool[S] {\n    a && b\n}\n";
    - mended: "fn both(a: bool[S], b: bool[S]) -> bool[S] {\n    a and b\n}\n";

    /// `=` for `==` or the other way round.
    ASSIGN_OR_COMPARE = "E0110", "`=` gives a value, `==` compares";
    rule: "`=` stands in `let`, `var`, assignments, named arguments and defaults. Conditions compare with `==`.";
    - failing: "fn first(x: f32[S], i: i32) -> f32[S] {\n    if i = 0 { x } else { -x }\n}\n";
    - mended: "fn first(x: f32[S], i: i32) -> f32[S] {\n    if i == 0 { x } else { -x }\n}\n";

    /// A function without `fn`.
    MISSING_FN = "E0111", "functions begin with `fn`";
    rule: "Among the members of a layer, `name: type` is a field and `fn name(..)` a function.";
    - failing: "layer Double {\n    forward(x: f32[S]) -> f32[S] {\n        x + x\n    }\n}\n";
    - mended: "layer Double {\n    fn forward(x: f32[S]) -> f32[S] {\n        x + x\n    }\n}\n";

    /// A line that begins with an operator.
    LEADING_OPERATOR = "E0112", "a line cannot begin with an operator";
    rule: "A statement ends with its line, unless the line ends with an operator or a bracket is open. So an operator that\n\
           joins two lines stands at the end of the first.";
    - failing: "fn scale(x: f32[S]) -> f32[S] {\n    let y = x\n        * 2\n    y\n}\n";
    - mended: "fn scale(x: f32[S]) -> f32[S] {\n    let y = x *\n        2\n    y\n}\n";

    /// A word of another language.
    FOREIGN_WORD = "E0113", "a word that other languages have";
    rule: "The words of attn are `use layer model fn pub let var for in if else tap where and or not true false inf`. The\n\
           message says how to write what was likely meant.";
    - failing: "fn scale(x: f32[S]) -> f32[S] {\n    return x * 2\n}\n";
    - mended: "fn scale(x: f32[S]) -> f32[S] {\n    x * 2\n}\n";

    /// A keyword in the place of a name.
    RESERVED_WORD = "E0114", "a reserved word cannot be a name";
    rule: "Reserved are `fn pub let var for in while if else break where and or not true false inf` and the names of the\n\
           element types. `use layer model tap state reset` are names like others, except where they begin an item,\n\
           field or statement.";
    - failing: "fn scale(in: f32[S]) -> f32[S] {\n    exp(x)\n}\n";
    - mended: "fn scale(x: f32[S]) -> f32[S] {\n    exp(x)\n}\n";

    /// Two entries of a list without a comma between.
    MISSING_COMMA = "E0115", "a comma is missing";
    rule: "The entries of a list (arguments, dimensions, generics) are separated by commas; one may stand after the last.";
    - failing: "fn mask(q: f32[S, D]) -> bool[S, S] {\n    causal(S S)\n}\n";
    - mended: "fn mask(q: f32[S, D]) -> bool[S, S] {\n    causal(S, S)\n}\n";

    /// A field or parameter without a type.
    MISSING_TYPE = "E0116", "fields and parameters need a type";
    rule: "The types of parameters and fields are what shapes are inferred from, so they are never left out. A variable's\n\
           type (`let x = ..`) may be.";
    - failing: "fn scale(x) -> f32[S] {\n    exp(x)\n}\n";
    - mended: "fn scale(x: f32[S]) -> f32[S] {\n    exp(x)\n}\n";

    /// An unknown escape in a string.
    BAD_ESCAPE = "E0117", "an escape in a string is not known";
    rule: "Inside strings, a backslash begins one of `\\n`, `\\t`, `\\\\` and `\\\"`.";
    - failing: "fn swap(x: f32[S, D]) -> f32[D, S] {\n    rearrange(x, \"s d \\> d s\")\n}\n";
    - mended: "fn swap(x: f32[S, D]) -> f32[D, S] {\n    rearrange(x, \"s d -> d s\")\n}\n";

    /// Something that cannot be assigned to.
    BAD_TARGET = "E0118", "this cannot be assigned to";
    rule: "Left of `=` stands the name of a `var`, or a tuple of such names.";
    - failing: "fn scale(x: f32[S]) -> f32[S] {\n    var y = x\n    y + 1 = x\n    y\n}\n";
    - mended: "fn scale(x: f32[S]) -> f32[S] {\n    var y = x\n    y = x - 1\n    y\n}\n";

    /// An argument without a name after one with a name.
    ARGUMENT_ORDER = "E0119", "arguments without a name come first";
    rule: "Arguments are matched to parameters by their order until the first one with a name; from there on by name.";
    - failing: "fn weights(x: f32[S, D]) -> f32[S, D] {\n    softmax(axis = -1, x)\n}\n";
    - mended: "fn weights(x: f32[S, D]) -> f32[S, D] {\n    softmax(x, axis = -1)\n}\n";

    /// A line whose value nobody uses.
    UNUSED_VALUE = "E0120", "the value of a line is not used";
    rule: "The last expression of a block is its value; an expression before it does nothing, and is most often the second\n\
           half of a statement that was meant to go on.";
    - failing: "fn shift(x: f32[S]) -> f32[S] {\n    let y = x\n    - 1\n    y\n}\n";
    - mended: "fn shift(x: f32[S]) -> f32[S] {\n    let y = x -\n        1\n    y\n}\n";

    /// An element type where a value stands.
    TYPE_AS_VALUE = "E0121", "an element type is not a value";
    rule: "The names of element types are reserved. Conversion is a function with the type in `<..>`.";
    - failing: "fn narrow(x: f32[S]) -> bf16[S] {\n    bf16(x)\n}\n";
    - mended: "fn narrow(x: f32[S]) -> bf16[S] {\n    cast<bf16>(x)\n}\n";

    /// A doc comment that describes nothing.
    LOST_DOC = "E0122", "a doc comment describes nothing";
    rule: "A comment with three slashes describes the item, field, function or parameter behind it, and reaches the header\n\
           and the Python wrapper. Elsewhere it is a comment like others, and two slashes say so.";

    /// `/* .. */`.
    BLOCK_COMMENT = "E0123", "comments go to the end of the line";
    rule: "A comment begins with `//` and ends with its line.";
    - failing: "/* doubles */\nfn twice(x: f32[S]) -> f32[S] {\n    x + x\n}\n";
    - mended: "// doubles\nfn twice(x: f32[S]) -> f32[S] {\n    x + x\n}\n";

    /// Two statements on a line.
    TWO_ON_A_LINE = "E0124", "statements are separated by a newline or `;`";
    rule: "An item, field or statement ends with its line. Two on one line are separated by `;` (fields also by `,`).";
    - failing: "fn scale(x: f32[S]) -> f32[S] {\n    let y = exp(x) let z = y\n    z\n}\n";
    - mended: "fn scale(x: f32[S]) -> f32[S] {\n    let y = exp(x); let z = y\n    z\n}\n";

    /// A variable without a value.
    MISSING_VALUE = "E0125", "a variable needs a value from the start";
    rule: "`let` and `var` give a variable its value where it is made, so that it always has one.";
    - failing: "fn scale(x: f32[S]) -> f32[S] {\n    var y\n    y = exp(x)\n    y\n}\n";
    - mended: "fn scale(x: f32[S]) -> f32[S] {\n    var y = x\n    y = exp(x)\n    y\n}\n";

    /// `D // 2`.
    COMMENT_OR_DIVISION = "E0126", "`//` begins a comment";
    rule: "In Python `//` divides; here it begins a comment, to the end of the line. So that a division does not\n\
           disappear, a comment right behind an operand may not read, to its end, like the rest of the expression: it\n\
           may not be a formula that begins with a number, a parenthesis or, behind a dimension or a number, a\n\
           dimension. Any comment with other words in it is free. Dimensions are divided with `/`, which asks for a\n\
           fact (`where D % 2 == 0`); of floats, `floor(a / b)` rounds down.";
    - failing: "fn first<D>(x: f32[S, D]) -> f32[S, D] where D % 2 == 0 {\n    let half = D // 2\n    x * half\n}\n";
    - mended: "fn first<D>(x: f32[S, D]) -> f32[S, D] where D % 2 == 0 {\n    let half = D / 2   // half of them\n    x * half\n}\n";

    /// A block by indentation.
    INDENTED_BLOCK = "E0127", "blocks stand in braces";
    rule: "The body of a function, of `if`, `else`, `for` and `while` stands in braces; how far a line is indented means\n\
           nothing.";
    - failing: "fn scale(x: f32[S], up: bool) -> f32[S] {\n    var y = x\n    if up:\n        y = y * 2\n    y\n}\n";
    - mended: "fn scale(x: f32[S], up: bool) -> f32[S] {\n    var y = x\n    if up {\n        y = y * 2\n    }\n    y\n}\n";

    /// `x[:, 0]`.
    SLICE = "E0128", "slices are written with `..`";
    rule: "`x[a..b]` is the part of `x` from `a` to before `b`; `x[..b]` and `x[a..]` leave one end out, and `0..` is a whole\n\
           axis. `..` alone stands for all axes that are not named, as `...` does in Python.";
    - failing: "fn column(x: f32[S, 4]) -> f32[S] {\n    x[:, 0]\n}\n";
    - mended: "fn column(x: f32[S, 4]) -> f32[S] {\n    x[0.., 0]\n}\n";

    /// `a if c else b`.
    CHOICE = "E0129", "the condition of a choice comes first";
    rule: "`if c { a } else { b }` is a value, of one condition. Element by element, `where(c, a, b)` chooses.";
    - failing: "fn scale(x: f32[S], up: bool) -> f32[S] {\n    let y = x * 2 if up else x\n    y\n}\n";
    - mended: "fn scale(x: f32[S], up: bool) -> f32[S] {\n    let y = if up { x * 2 } else { x }\n    y\n}\n";

    /// `let a, b = ..`, `-> A, B`.
    PARENTHESES = "E0130", "several values stand in parentheses";
    rule: "A tuple has parentheses wherever it stands: `let (a, b) = ..`, `-> (f32[S], f32[S])`, `(a, b)`.";
    - failing: "fn both(x: f32[S]) -> (f32[S], f32[S]) {\n    let a, b = (x + 1, x + 2)\n    (a, b)\n}\n";
    - mended: "fn both(x: f32[S]) -> (f32[S], f32[S]) {\n    let (a, b) = (x + 1, x + 2)\n    (a, b)\n}\n";
}
