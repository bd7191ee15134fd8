//! Codes E02xx: names that are unknown, declared twice, or of the wrong kind.

use super::codes;

codes! {
    /// A name in an expression that nothing declares.
    UNKNOWN_NAME = "E0201", "unknown name";
    rule: "A name in an expression is, in this order: a variable or argument of the function, a field of its layer,\n\
           a function of its layer, a dimension or constant of the signature, a function of the file, a function of\n\
           a module that the file uses, or one of the operations of the language. Scoping is lexical: a variable of a\n\
           block is not visible after the block.";
    - failing: "fn f(x: f32[S, D]) -> f32[S, D] {\n    softmax(scores)\n}\n";
    - fixed: "fn f(scores: f32[S, D]) -> f32[S, D] {\n    softmax(scores)\n}\n";

    /// A name in a shape that is not a dimension.
    UNKNOWN_DIMENSION = "E0202", "unknown dimension";
    rule: "A dimension is introduced by the generics of its layer or function, or by the shapes of the\n\
           arguments. Results, fields, `where` clauses and shapes inside a function can only use dimensions that\n\
           were introduced.";
    - failing: "layer Linear<I, O> {\n    weight: f32[O, I]\n    bias: f32[Q]\n}\n";
    - fixed: "layer Linear<I, O> {\n    weight: f32[O, I]\n    bias: f32[O]\n}\n";

    /// A layer that nothing declares.
    UNKNOWN_LAYER = "E0203", "unknown layer";
    rule: "The type of a field is a tensor type or the name of a layer: one of the same file, in any order, or one\n\
           of a module that the file uses (`use std.nn`).";
    - failing: "model M<D = 4> {\n    norm: LayerNorm<D>\n    pub fn forward(x: f32[D]) -> f32[D] { norm(x) }\n}\n";
    - fixed: "use std.nn\nmodel M<D = 4> {\n    norm: LayerNorm<D>\n    pub fn forward(x: f32[D]) -> f32[D] { norm(x) }\n}\n";

    /// A module that does not exist.
    UNKNOWN_MODULE = "E0204", "unknown module";
    rule: "Modules are part of the compiler; `attnc std` lists them. `std.nn` contains the usual layers.";
    - failing: "use std.nm\n";
    - fixed: "use std.nn\n";

    /// Two declarations of one name in the same scope.
    DUPLICATE = "E0205", "a name is declared twice";
    rule: "The layers and functions of a file must have distinct names, and so must the fields and functions of a layer, the\n\
           generics in `<..>`, and the arguments in `(..)`. A `let` may reuse (shadow) a name.";
    - failing: "layer L<D> {\n    weight: f32[D]\n    weight: f32[D, D]\n}\n";
    - fixed: "layer L<D> {\n    weight: f32[D]\n    weight2: f32[D, D]\n}\n";

    /// A layer, a function or a module used as a value.
    NOT_A_VALUE = "E0206", "this is not a tensor";
    rule: "Layers, arrays of layers and functions can be called, and layers have fields; they cannot be added,\n\
           passed to a function or stored in a variable.";
    - failing: "use std.nn\nlayer L<D> {\n    norm: LayerNorm<D>\n    fn forward(x: f32[D]) -> f32[D] { x + norm }\n}\n";
    - fixed: "use std.nn\nlayer L<D> {\n    norm: LayerNorm<D>\n    fn forward(x: f32[D]) -> f32[D] { x + norm(x) }\n}\n";

    /// A call of something that is not a function.
    NOT_CALLABLE = "E0207", "this cannot be called";
    rule: "Functions and layers can be called; calling a layer calls its `forward`. A tensor is indexed with\n\
           brackets, `x[i]`, and `for` iterates over an array of layers.";
    - failing: "fn f(x: f32[S], i: i32) -> f32 { x(i) }\n";
    - fixed: "fn f(x: f32[S], i: i32) -> f32 { x[i] }\n";

    /// A named argument that the function does not have.
    UNKNOWN_ARGUMENT = "E0208", "unknown argument";
    rule: "In `f(x, name = value)` the name must be one of the function's arguments.";
    - failing: "fn f(x: f32[S, D]) -> f32[S] { sum(x, axes = 1) }\n";
    - fixed: "fn f(x: f32[S, D]) -> f32[S] { sum(x, axis = 1) }\n";

    /// A name after a dot that does not exist.
    UNKNOWN_MEMBER = "E0209", "unknown field";
    rule: "A dot is followed by a field or function of a layer, `T` for the transpose of a tensor, or a name in a module.";
    - failing: "fn f(x: f32[S, D]) -> f32[D, S] { x.transpose }\n";
    - fixed: "fn f(x: f32[S, D]) -> f32[D, S] { x.T }\n";

    /// A function that calls itself, directly or through others.
    RECURSION = "E0210", "a function calls itself";
    rule: "Every call is inlined, so recursion, direct or through other functions, would never end. Use a `for` loop.";
    - failing: "fn f(x: f32[S]) -> f32[S] { f(x) * 2 }\n";
    - fixed: "fn f(x: f32[S]) -> f32[S] { x * 2 }\n";

    /// An assignment to something that cannot change.
    NOT_ASSIGNABLE = "E0211", "this cannot be assigned to";
    rule: "Only variables declared with `var` may be assigned to. `let` bindings, arguments, parameters of a model and loop\n\
           variables are constant.";
    - failing: "fn f(x: f32[S]) -> f32[S] {\n    let y = x\n    y = y + 1\n    y\n}\n";
    - fixed: "fn f(x: f32[S]) -> f32[S] {\n    var y = x\n    y = y + 1\n    y\n}\n";

    /// An attribute that does not exist.
    UNKNOWN_ATTRIBUTE = "E0212", "unknown attribute";
    rule: "The only attribute of a field is `#[name = \"..\"]`, its name in the weights file.";
    - failing: "layer L<D> {\n    #[rename = \"w\"]\n    weight: f32[D]\n}\n";
    - fixed: "layer L<D> {\n    #[name = \"w\"]\n    weight: f32[D]\n}\n";

    /// A variable that is never used (a warning).
    UNUSED = "E0213", "a variable is never used";
    rule: "The value has no effect on the result, so this is likely a mistake. If it is intended, begin the name with `_`.";
    - failing: "fn f(x: f32[S]) -> f32[S] {\n    let y = exp(x)\n    x\n}\n";
    - fixed: "fn f(x: f32[S]) -> f32[S] {\n    let y = exp(x)\n    y\n}\n";

    /// Part of the language, not of this version.
    NOT_AVAILABLE = "E0214", "not available in this version";
    rule: "This is part of the language, but this version of the compiler cannot compile it yet.";
    - failing: "fn f(x: f32[S, D], i: i32[K]) -> f32[K] { x[i, i] }\n";
    - fixed: "fn f(x: f32[S, D], i: i32[K]) -> f32[K, D] { x[i] }\n";

    /// A tap of something that cannot be observed.
    TAP = "E0215", "only a tensor in a variable can be tapped";
    rule: "`tap name` makes the tensor variable of that name observable under the name. Bind the value with `let` first.";
    - failing: "use std.nn\nlayer L<D> {\n    norm: LayerNorm<D>\n    fn forward(x: f32[D]) -> f32[D] {\n        tap norm\n        norm(x)\n    }\n}\n";
    - fixed: "use std.nn\nlayer L<D> {\n    norm: LayerNorm<D>\n    fn forward(x: f32[D]) -> f32[D] {\n        let y = norm(x)\n        tap y\n        y\n    }\n}\n";

    /// A name that is not an element type.
    UNKNOWN_ELEM = "E0216", "unknown element type";
    rule: "The element types are `f32`, `bf16`, `f16`, `i8`, `i32`, `i64`, `bool`, and those generics of a layer whose\n\
           default is one: `layer Linear<I, O, E = f32>`. A field chooses it, `Linear<D, D, bf16>`, and the layer is\n\
           checked for each choice.";
    - failing: "layer Scale<D> {\n    weight: E[D]\n    fn forward(x: E[.., D]) -> E[.., D] { x * weight }\n}\n";
    - fixed: "layer Scale<D, E = f32> {\n    weight: E[D]\n    fn forward(x: E[.., D]) -> E[.., D] { x * weight }\n}\n";

    /// A gradient with respect to a new value.
    VARIABLE = "E0217", "not a variable";
    rule: "A gradient is taken with respect to variables of the function and parameters, `grad(loss, x)` or `grad(loss, (x, w))`,\n\
           from which the loss is computed. No loss depends on a value that the call of `grad` makes.";
    - failing: "fn f(x: f32[S]) -> f32[S] { grad(sum(exp(x * 2)), x * 2) }\n";
    - fixed: "fn f(x: f32[S]) -> f32[S] {\n    let y = x * 2\n    grad(sum(exp(y)), y)\n}\n";

    /// A rule of a `train` that does not exist.
    UNKNOWN_RULE = "E0218", "unknown rule";
    rule: "Each arm of a `train` names a rule, declared by `rule` in the file or in a module that it uses, such as `std.optim`, or\n\
           `Fixed`, by which parameters stay as they are.";
    - failing: "model M<D = 4> {\n    w: f32[D]\n    pub fn learn(x: f32[D]) -> f32 {\n        let loss = sum(w * x)\n        train loss { \"*\": Adam(1, rate = 0.1) }\n    }\n}\n";
    - fixed: "use std.optim\nmodel M<D = 4> {\n    w: f32[D]\n    pub fn learn(x: f32[D]) -> f32 {\n        let loss = sum(w * x)\n        train loss { \"*\": Adam(1, rate = 0.1) }\n    }\n}\n";

    /// A `train` outside of a model.
    TRAIN_PLACE = "E0219", "`train` outside of a model";
    rule: "`train` assigns parameters by their paths from the model, so it stands in a function of the model.";
    - failing: "rule Descent { fn step(p: f32[..], g: f32[..]) -> f32[..] { p - g } }\nfn f(x: f32) -> f32 { train x { \"*\": Descent } }\n";
    - fixed: "rule Descent { fn step(p: f32[..], g: f32[..]) -> f32[..] { p - g } }\nmodel M<D = 4> {\n    w: f32[D]\n    pub fn learn(x: f32[D]) -> f32 {\n        let loss = sum(w * x)\n        train loss { \"*\": Descent }\n    }\n}\n";
}
