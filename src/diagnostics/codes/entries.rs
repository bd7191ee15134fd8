//! Codes E06xx: entry points, their arguments, and what is bound on the command line.

use super::codes;

codes! {
    /// `pub` on a function that cannot be an entry point.
    PUB_OUTSIDE = "E0601", "`pub fn` stands outside of a model";
    rule: "The entry points of a compiled program are the `pub fn`s of its model. Functions of layers, and functions\n\
           outside of a model, can be called wherever they are known, without `pub`.";
    - failing: "pub fn f(x: f32[S]) -> f32[S] { x }\n";
    - mended: "fn f(x: f32[S]) -> f32[S] { x }\n";

    /// A model without entry points.
    NO_ENTRY = "E0602", "a model has no entry point";
    rule: "A model is called through its `pub fn`s; without one nothing could be compiled.";
    - failing: "model M<D = 4> {\n    fn forward(x: f32[D]) -> f32[D] { x }\n}\n";
    - mended: "model M<D = 4> {\n    pub fn forward(x: f32[D]) -> f32[D] { x }\n}\n";

    /// An entry point without a result.
    NO_RESULT = "E0603", "an entry point gives no result";
    rule: "An entry point declares what it gives back, a tensor or a tuple of tensors.";
    - failing: "model M<D = 4> {\n    pub fn forward(x: f32[D]) { let _y = x }\n}\n";
    - mended: "model M<D = 4> {\n    pub fn forward(x: f32[D]) -> f32[D] { x }\n}\n";

    /// A function whose argument is no tensor.
    ARGUMENT_TYPE = "E0604", "an argument cannot have this type";
    rule: "The arguments of functions are tensors. Layers are reached by their fields, and several tensors are\n\
           several arguments.";
    - failing: "fn f(x: (f32[S], f32[S])) -> f32[S] { x }\n";
    - mended: "fn f(x: f32[S], y: f32[S]) -> f32[S] { x + y }\n";

    /// There is no model to compile.
    NO_MODEL = "E0605", "the file has no model";
    rule: "A program is compiled from a `model`; a file of layers alone can be checked, not compiled.";

    /// There are several models, and none was chosen.
    WHICH_MODEL = "E0606", "the file has several models";
    rule: "`--entry NAME` chooses the model that is compiled.";

    /// A dimension is bound on the command line that the model does not have.
    UNKNOWN_BINDING = "E0607", "a bound dimension is not known";
    rule: "`--dim NAME=VALUE` binds a generic of the model, or a dimension of its entry points.";

    /// A generic has no value.
    UNBOUND_GENERIC = "E0608", "a generic has no value";
    rule: "The generics of a model size its parameters, so they must be known when it is compiled: by a default or\n\
           by `--dim NAME=VALUE`.";

    /// A bound dimension is not a whole number, too large, or negative.
    BOUND_VALUE = "E0609", "a dimension has no possible value";
    rule: "With the values that are bound, every dimension must be a whole number from 0 to 2^63 - 1.";

    /// A tensor is too large for any machine.
    TENSOR_SIZE = "E0610", "a tensor is too large";
    rule: "With the values that are bound, the part of a tensor's size that is known may be at most 2^40 elements: what its\n\
           numbers multiply to, with 1 for each dimension of the call. What a slice, a padding or a tap reaches counts too.";

    /// Inlining makes too much code.
    PROGRAM_SIZE = "E0611", "the program is too large";
    rule: "Layers and functions are inlined into each entry point. A program that becomes too long or too deep by it\n\
           is refused; a loop over an array of layers is inlined only once. A model may have 2^20 tensors as parameters,\n\
           the layers of arrays counted one by one.";

    /// A tap in a loop without a known number of turns.
    TAP_LENGTH = "E0612", "a tap stands in a loop of unknown length";
    rule: "A tap in a loop over numbers is stacked along the loop. Its shape must be known when the call begins, so\n\
           the loop's ends must be dimensions.";
}
