//! Codes E06xx: entry points, their arguments, and bindings on the command line.

use super::codes;

codes! {
    /// `pub` on a function that cannot be an entry point.
    PUB_OUTSIDE = "E0601", "`pub fn` outside of a model";
    rule: "The entry points of a compiled program are the `pub fn`s of its model. Functions of layers, and functions\n\
           outside of a model, can be called without `pub` wherever they are in scope.";
    - failing: "pub fn f(x: f32[S]) -> f32[S] { x }\n";
    - fixed: "fn f(x: f32[S]) -> f32[S] { x }\n";

    /// A model without entry points.
    NO_ENTRY = "E0602", "a model has no entry point";
    rule: "A model is called through its `pub fn`s; without one there is nothing to compile.";
    - failing: "model M<D = 4> {\n    fn forward(x: f32[D]) -> f32[D] { x }\n}\n";
    - fixed: "model M<D = 4> {\n    pub fn forward(x: f32[D]) -> f32[D] { x }\n}\n";

    /// An entry point without a result.
    NO_RESULT = "E0603", "an entry point without a result";
    rule: "An entry point must declare its result, a tensor or a tuple of tensors.";
    - failing: "model M<D = 4> {\n    pub fn forward(x: f32[D]) { let _y = x }\n}\n";
    - fixed: "model M<D = 4> {\n    pub fn forward(x: f32[D]) -> f32[D] { x }\n}\n";

    /// A function with an argument that is not a tensor.
    ARGUMENT_TYPE = "E0604", "arguments must be tensors";
    rule: "The arguments of functions are tensors. Layers are accessed as fields; several tensors are several arguments.";
    - failing: "fn f(x: (f32[S], f32[S])) -> f32[S] { x }\n";
    - fixed: "fn f(x: f32[S], y: f32[S]) -> f32[S] { x + y }\n";

    /// There is no model to compile.
    NO_MODEL = "E0605", "the file has no model";
    rule: "A program is compiled from a `model`; a file with only layers can be checked but not compiled.";

    /// There are several models, and `--entry` selects none.
    WHICH_MODEL = "E0606", "the file has several models";
    rule: "`--entry NAME` selects the model to compile.";

    /// A dimension bound on the command line that the model does not have.
    UNKNOWN_BINDING = "E0607", "unknown dimension on the command line";
    rule: "`--dim NAME=VALUE` binds a generic of the model, to a number or to an element type, or a dimension of its entry points.";

    /// A generic has no value.
    UNBOUND_GENERIC = "E0608", "a generic has no value";
    rule: "The generics of a model determine the sizes of its parameters, so they must be known at compile time: from a\n\
           default or from `--dim NAME=VALUE`.";

    /// A bound dimension is not an integer, too large, or negative.
    BOUND_VALUE = "E0609", "a dimension has no valid value";
    rule: "With the bound values, every dimension must be an integer from 0 to 2^63 - 1.";

    /// A tensor is too large for any machine.
    TENSOR_SIZE = "E0610", "a tensor is too large";
    rule: "With the bound values, a tensor may have at most 2^40 elements, where each run-time dimension counts as 1. The ends\n\
           of slices, paddings and taps count too.";

    /// Inlining generates too much code.
    PROGRAM_SIZE = "E0611", "the program is too large";
    rule: "Layers and functions are inlined into each entry point, which may make a program too long or too deeply nested. The\n\
           body of a loop over an array of layers is inlined only once. A model may have at most 2^20 parameter tensors,\n\
           counting each layer of an array.";

    /// A tap in a loop without a known number of iterations.
    TAP_LENGTH = "E0612", "a tap in a loop of unknown length";
    rule: "A tap in a loop over a range is stacked along the loop. Its shape must be known when the call begins, so the ends\n\
           of the range must be dimensions.";

    /// A default of an argument that is not allowed.
    DEFAULT = "E0613", "an invalid default of an argument";
    rule: "An argument with a default may be omitted in a call; all its elements are then the default: a literal, or a formula\n\
           of dimensions. Such arguments come last. Dimensions that only they have cannot be inferred. An entry point is\n\
           called from outside, with all its arguments; another entry point can omit them.";
    - failing: "fn scaled(k: f32 = 2, x: f32[S]) -> f32[S] { x * k }\n";
    - fixed: "fn scaled(x: f32[S], k: f32 = 2) -> f32[S] { x * k }\n";
}
