//! Codes E01xx: syntax errors, in tokens and in the grammar.

use super::codes;

codes! {
    /// A token that the grammar does not allow here.
    UNEXPECTED = "E0101", "unexpected token";
    rule: "A program is a list of items (`use`, `layer`, `model`, `fn`); layers hold fields and functions, functions hold\n\
           statements. The message names the tokens expected at the mark. If the mark is on nothing, the line or the\n\
           file ended too early.";
    - failing: "fn scale(x: f32[S]) -> f32[S] {\n    x *\n}\n";
    - fixed: "fn scale(x: f32[S]) -> f32[S] {\n    x * 2\n}\n";

    /// A character that is not part of any token.
    UNKNOWN_CHARACTER = "E0102", "a character that is not part of the language";
    rule: "Outside strings and comments, programs are written in ASCII: names consist of letters, digits and `_`, and\n\
           operators are as in Python. Text copied from a paper often contains look-alikes such as the minus sign\n\
           U+2212; the message suggests the operator.";
    - failing: "fn scale(x: f32[S]) -> f32[S] {\n    x × 2\n}\n";
    - fixed: "fn scale(x: f32[S]) -> f32[S] {\n    x * 2\n}\n";

    /// A string without its closing quote.
    OPEN_STRING = "E0103", "unterminated string";
    rule: "A string begins and ends with `\"` on one line.";
    - failing: "fn swap(x: f32[S, D]) -> f32[D, S] {\n    rearrange(x, \"s d -> d s)\n}\n";
    - fixed: "fn swap(x: f32[S, D]) -> f32[D, S] {\n    rearrange(x, \"s d -> d s\")\n}\n";

    /// A number that cannot be read.
    BAD_NUMBER = "E0104", "invalid number";
    rule: "Integers are `12`, `1_000` or `0x1f`, and fit in 64 bits; floats have digits on both sides of the point and may\n\
           have an exponent: `0.5`, `1e-5`. Write products with `*`.";
    - failing: "fn widen(x: f32[D]) -> f32[2D] {\n    concat(x, x, axis = 0)\n}\n";
    - fixed: "fn widen(x: f32[D]) -> f32[2*D] {\n    concat(x, x, axis = 0)\n}\n";

    /// A bracket without its closing one.
    UNCLOSED = "E0105", "unclosed bracket";
    rule: "Every `(`, `[` and `{` needs its closing bracket. The mark shows where the bracket was opened; it was still\n\
           open at the next statement or item, or at the end of the file.";
    - failing: "fn scale(x: f32[S]) -> f32[S] {\n    let y = exp(x * (x + 1)\n    y\n}\n";
    - fixed: "fn scale(x: f32[S]) -> f32[S] {\n    let y = exp(x * (x + 1))\n    y\n}\n";

    /// A closing bracket without its opening one.
    UNOPENED = "E0106", "unmatched closing bracket";
    rule: "Every `)`, `]` and `}` closes the nearest open bracket of its kind. Here no bracket is open.";
    - failing: "fn scale(x: f32[S]) -> f32[S] {\n    exp(x + 1))\n}\n";
    - fixed: "fn scale(x: f32[S]) -> f32[S] {\n    exp(x + 1)\n}\n";

    /// Nesting beyond the limit.
    TOO_DEEP = "E0107", "nested too deeply";
    rule: "Expressions, types and blocks may be nested 256 levels deep; brackets and prefix operators count, and so does each\n\
           operator of a long sum. Give parts of longer formulas names with `let`.";

    /// `a < b < c`.
    CHAINED_COMPARISON = "E0108", "comparisons cannot be chained";
    rule: "In `a < b < c` the second comparison would compare a bool with a number, or mean two comparisons at once, as in\n\
           Python. For the latter, join two comparisons with `and`.";
    - failing: "fn inside(x: f32[S]) -> bool[S] {\n    0.0 < x < 1.0\n}\n";
    - fixed: "fn inside(x: f32[S]) -> bool[S] {\n    0.0 < x and x < 1.0\n}\n";

    /// An operator of another language.
    FOREIGN_OPERATOR = "E0109", "an operator of another language";
    rule: "Logic is written `and`, `or`, `not`; a power is `pow(x, y)`; matmul is `@`; strings are in double\n\
           quotes; there is no `+=`: write `x = x + ..`.";
    - failing: "fn both(a: bool[S], b: bool[S]) -> bool[S] {\n    a && b\n}\n";
    - fixed: "fn both(a: bool[S], b: bool[S]) -> bool[S] {\n    a and b\n}\n";

    /// `=` for `==` or the other way round.
    ASSIGN_OR_COMPARE = "E0110", "`=` assigns, `==` compares";
    rule: "`=` is used in `let`, `var`, assignments, named arguments and defaults. Conditions compare with `==`.";
    - failing: "fn first(x: f32[S], i: i32) -> f32[S] {\n    if i = 0 { x } else { -x }\n}\n";
    - fixed: "fn first(x: f32[S], i: i32) -> f32[S] {\n    if i == 0 { x } else { -x }\n}\n";

    /// A function without `fn`.
    MISSING_FN = "E0111", "functions begin with `fn`";
    rule: "Among the members of a layer, `name: type` is a field and `fn name(..)` a function.";
    - failing: "layer Double {\n    forward(x: f32[S]) -> f32[S] {\n        x + x\n    }\n}\n";
    - fixed: "layer Double {\n    fn forward(x: f32[S]) -> f32[S] {\n        x + x\n    }\n}\n";

    /// A line that begins with an operator.
    LEADING_OPERATOR = "E0112", "a line cannot begin with an operator";
    rule: "A statement ends with its line, unless the line ends with an operator or a bracket is open. To continue an\n\
           expression on the next line, put the operator at the end of the first.";
    - failing: "fn scale(x: f32[S]) -> f32[S] {\n    let y = x\n        * 2\n    y\n}\n";
    - fixed: "fn scale(x: f32[S]) -> f32[S] {\n    let y = x *\n        2\n    y\n}\n";

    /// A keyword of another language.
    FOREIGN_WORD = "E0113", "a keyword of another language";
    rule: "The keywords of attn are `fn pub let var for in while if else break where and or not true false inf`, and, where an\n\
           item, a field or a statement begins, `use layer model tap`. The message suggests what to write instead.";
    - failing: "fn scale(x: f32[S]) -> f32[S] {\n    return x * 2\n}\n";
    - fixed: "fn scale(x: f32[S]) -> f32[S] {\n    x * 2\n}\n";

    /// A keyword where a name is expected.
    RESERVED_WORD = "E0114", "a reserved word cannot be a name";
    rule: "Reserved are `fn pub let var for in while if else break where and or not true false inf` and the names of the\n\
           element types. `use layer model tap state reset` are ordinary names, except at the beginning of an\n\
           item, field or statement.";
    - failing: "fn scale(in: f32[S]) -> f32[S] {\n    exp(x)\n}\n";
    - fixed: "fn scale(x: f32[S]) -> f32[S] {\n    exp(x)\n}\n";

    /// Two entries of a list without a comma between them.
    MISSING_COMMA = "E0115", "a comma is missing";
    rule: "The entries of a list (arguments, dimensions, generics) are separated by commas; a trailing comma is allowed.";
    - failing: "fn mask(q: f32[S, D]) -> bool[S, S] {\n    causal(S S)\n}\n";
    - fixed: "fn mask(q: f32[S, D]) -> bool[S, S] {\n    causal(S, S)\n}\n";

    /// A field or parameter without a type.
    MISSING_TYPE = "E0116", "fields and parameters need a type";
    rule: "Shapes are inferred from the types of parameters and fields, so those must be declared. The type of a variable\n\
           (`let x = ..`) may be omitted.";
    - failing: "fn scale(x) -> f32[S] {\n    exp(x)\n}\n";
    - fixed: "fn scale(x: f32[S]) -> f32[S] {\n    exp(x)\n}\n";

    /// An unknown escape in a string.
    BAD_ESCAPE = "E0117", "unknown escape in a string";
    rule: "Inside strings, a backslash begins one of `\\n`, `\\t`, `\\\\` and `\\\"`.";
    - failing: "fn swap(x: f32[S, D]) -> f32[D, S] {\n    rearrange(x, \"s d \\> d s\")\n}\n";
    - fixed: "fn swap(x: f32[S, D]) -> f32[D, S] {\n    rearrange(x, \"s d -> d s\")\n}\n";

    /// Something that cannot be assigned to.
    BAD_TARGET = "E0118", "this cannot be assigned to";
    rule: "The left side of `=` must be the name of a `var`, or a tuple of such names.";
    - failing: "fn scale(x: f32[S]) -> f32[S] {\n    var y = x\n    y + 1 = x\n    y\n}\n";
    - fixed: "fn scale(x: f32[S]) -> f32[S] {\n    var y = x\n    y = x - 1\n    y\n}\n";

    /// An argument without a name after one with a name.
    ARGUMENT_ORDER = "E0119", "positional arguments come first";
    rule: "Positional arguments are matched in order; after the first named argument all must be named.";
    - failing: "fn weights(x: f32[S, D]) -> f32[S, D] {\n    softmax(axis = -1, x)\n}\n";
    - fixed: "fn weights(x: f32[S, D]) -> f32[S, D] {\n    softmax(x, axis = -1)\n}\n";

    /// A line whose value is unused.
    UNUSED_VALUE = "E0120", "unused value";
    rule: "The last expression of a block is its value; an expression before it has no effect, and is usually the second\n\
           half of a statement that was meant to continue.";
    - failing: "fn shift(x: f32[S]) -> f32[S] {\n    let y = x\n    - 1\n    y\n}\n";
    - fixed: "fn shift(x: f32[S]) -> f32[S] {\n    let y = x -\n        1\n    y\n}\n";

    /// An element type where a value is expected.
    TYPE_AS_VALUE = "E0121", "an element type is not a value";
    rule: "The names of element types are reserved. To convert, call `cast` with the type in `<..>`.";
    - failing: "fn narrow(x: f32[S]) -> bf16[S] {\n    bf16(x)\n}\n";
    - fixed: "fn narrow(x: f32[S]) -> bf16[S] {\n    cast<bf16>(x)\n}\n";

    /// A doc comment that documents nothing.
    LOST_DOC = "E0122", "a doc comment that documents nothing";
    rule: "A comment with three slashes documents the item, field, function or parameter after it, and is copied into the\n\
           header and the Python wrapper. Use two slashes for other comments.";

    /// `/* .. */`.
    BLOCK_COMMENT = "E0123", "block comments are not supported";
    rule: "A comment begins with `//` and ends at the end of the line.";
    - failing: "/* doubles */\nfn twice(x: f32[S]) -> f32[S] {\n    x + x\n}\n";
    - fixed: "// doubles\nfn twice(x: f32[S]) -> f32[S] {\n    x + x\n}\n";

    /// Two statements on a line.
    TWO_ON_A_LINE = "E0124", "statements are separated by a newline or `;`";
    rule: "An item, field or statement ends at the end of the line. Separate two on one line with `;` (fields also with `,`).";
    - failing: "fn scale(x: f32[S]) -> f32[S] {\n    let y = exp(x) let z = y\n    z\n}\n";
    - fixed: "fn scale(x: f32[S]) -> f32[S] {\n    let y = exp(x); let z = y\n    z\n}\n";

    /// A variable without a value.
    MISSING_VALUE = "E0125", "a variable needs an initial value";
    rule: "`let` and `var` initialise a variable where it is declared, so that it always has a value.";
    - failing: "fn scale(x: f32[S]) -> f32[S] {\n    var y\n    y = exp(x)\n    y\n}\n";
    - fixed: "fn scale(x: f32[S]) -> f32[S] {\n    var y = x\n    y = exp(x)\n    y\n}\n";

    /// `D // 2`.
    COMMENT_OR_DIVISION = "E0126", "`//` begins a comment";
    rule: "In Python `//` divides; here it begins a comment that ends at the end of the line. To catch lost divisions, a\n\
           comment directly after an operand must not look like the rest of the expression: it must not be a formula that\n\
           begins with a number, a parenthesis or, after a dimension or a number, a dimension. A comment with any other\n\
           words is fine. Divide dimensions with `/`, which requires a fact (`where D % 2 == 0`); for floats,\n\
           `floor(a / b)` rounds down.";
    - failing: "fn first<D>(x: f32[S, D]) -> f32[S, D] where D % 2 == 0 {\n    let half = D // 2\n    x * half\n}\n";
    - fixed: "fn first<D>(x: f32[S, D]) -> f32[S, D] where D % 2 == 0 {\n    let half = D / 2   // half of them\n    x * half\n}\n";

    /// A block by indentation.
    INDENTED_BLOCK = "E0127", "blocks need braces";
    rule: "The body of a function, of `if`, `else`, `for` and `while` is written in braces; indentation has no meaning.";
    - failing: "fn scale(x: f32[S], up: bool) -> f32[S] {\n    var y = x\n    if up:\n        y = y * 2\n    y\n}\n";
    - fixed: "fn scale(x: f32[S], up: bool) -> f32[S] {\n    var y = x\n    if up {\n        y = y * 2\n    }\n    y\n}\n";

    /// `x[:, 0]`.
    SLICE = "E0128", "slices are written with `..`";
    rule: "`x[a..b]` is the part of `x` from `a` up to but not including `b`; `x[..b]` and `x[a..]` omit one end, and `0..` is\n\
           a whole axis. `..` alone stands for all remaining axes, like `...` in Python.";
    - failing: "fn column(x: f32[S, 4]) -> f32[S] {\n    x[:, 0]\n}\n";
    - fixed: "fn column(x: f32[S, 4]) -> f32[S] {\n    x[0.., 0]\n}\n";

    /// `a if c else b`.
    CHOICE = "E0129", "the condition comes first";
    rule: "`if c { a } else { b }` is an expression with a single condition. `where(c, a, b)` selects element by element.";
    - failing: "fn scale(x: f32[S], up: bool) -> f32[S] {\n    let y = x * 2 if up else x\n    y\n}\n";
    - fixed: "fn scale(x: f32[S], up: bool) -> f32[S] {\n    let y = if up { x * 2 } else { x }\n    y\n}\n";

    /// `let a, b = ..`, `-> A, B`.
    PARENTHESES = "E0130", "tuples need parentheses";
    rule: "Tuples are always written in parentheses: `let (a, b) = ..`, `-> (f32[S], f32[S])`, `(a, b)`.";
    - failing: "fn both(x: f32[S]) -> (f32[S], f32[S]) {\n    let a, b = (x + 1, x + 2)\n    (a, b)\n}\n";
    - fixed: "fn both(x: f32[S]) -> (f32[S], f32[S]) {\n    let (a, b) = (x + 1, x + 2)\n    (a, b)\n}\n";
}
