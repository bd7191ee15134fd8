//! Codes E05xx: fields of layers: parameters, sub-layers, arrays of layers, state.

use super::codes;

codes! {
    /// A field of a type that fields cannot have.
    FIELD_TYPE = "E0501", "a field cannot have this type";
    rule: "A field is a tensor (a parameter), a layer, or an array of layers. Several tensors of the same\n\
           shape are one tensor with one more axis.";
    - failing: "layer L<D> {\n    weights: [f32[D]; 3]\n}\n";
    - fixed: "layer L<D> {\n    weights: f32[3, D]\n}\n";

    /// A layer that holds itself.
    LAYER_CYCLE = "E0502", "a layer contains itself";
    rule: "A layer whose fields contain the layer itself would be infinite. Use an array of layers to repeat one.";
    - failing: "layer L<D> {\n    weight: f32[D]\n    next: L<D>\n}\n";
    - fixed: "layer L<D> {\n    weight: f32[D]\n}\nlayer Stack<D> {\n    layers: [L<D>; 2]\n}\n";

    /// `#[name]` without a name.
    NAME_VALUE = "E0503", "`#[name]` needs a string";
    rule: "`#[name = \"LayerNorm.gamma\"]` is the name of a field in the weights file; it must not be empty.";
    - failing: "layer L<D> {\n    #[name = 3]\n    weight: f32[D]\n}\n";
    - fixed: "layer L<D> {\n    #[name = \"w.3\"]\n    weight: f32[D]\n}\n";

    /// Two fields with one name in the weights file.
    SAME_NAME = "E0504", "two fields have the same name in the weights file";
    rule: "Each parameter is one tensor in the weights file. A tensor that is used twice (tied weights) is declared as one\n\
           field.";
    - failing: "layer L<D> {\n    #[name = \"w\"]\n    a: f32[D]\n    #[name = \"w\"]\n    b: f32[D]\n}\n";
    - fixed: "layer L<D> {\n    #[name = \"w\"]\n    a: f32[D]\n    #[name = \"v\"]\n    b: f32[D]\n}\n";

    /// A call of a layer that has no `forward`.
    NO_FORWARD = "E0505", "the layer has no `forward`";
    rule: "Calling a layer calls its function `forward`; other functions are called by name: `bias.both_sides(iota(S))`.";
    - failing: "layer Scale<D> {\n    weight: f32[D]\n    fn scaled(x: f32[D]) -> f32[D] { x * weight }\n}\nlayer L<D> {\n    s: Scale<D>\n    fn forward(x: f32[D]) -> f32[D] { s(x) }\n}\n";
    - fixed: "layer Scale<D> {\n    weight: f32[D]\n    fn scaled(x: f32[D]) -> f32[D] { x * weight }\n}\nlayer L<D> {\n    s: Scale<D>\n    fn forward(x: f32[D]) -> f32[D] { s.scaled(x) }\n}\n";

    /// An array of layers used as one layer.
    LAYER_ARRAY = "E0506", "an array of layers is not a layer";
    rule: "Iterate over the layers of an array with `for block in blocks`, or index it: `blocks[0]`.";
    - failing: "use std.nn\nlayer L<D> {\n    norms: [LayerNorm<D>; 3]\n    fn forward(x: f32[D]) -> f32[D] { norms(x) }\n}\n";
    - fixed: "use std.nn\nlayer L<D> {\n    norms: [LayerNorm<D>; 3]\n    fn forward(x: f32[D]) -> f32[D] {\n        var y = x\n        for norm in norms { y = norm(y) }\n        y\n    }\n}\n";

    /// A parameter with a value in the program.
    PARAMETER_INIT = "E0507", "a parameter has no value in the program";
    rule: "The values of parameters come from the weights file. Only state has an initial value in the program.";
    - failing: "layer L<D> {\n    weight: f32[D] = 0\n}\n";
    - fixed: "layer L<D> {\n    weight: f32[D]\n}\n";

    /// A rule that `train` cannot apply.
    RULE_FORM = "E0508", "a rule has one function `step`";
    rule: "A rule has states, one for each parameter, and the function `step`. Its first arguments are a parameter and the\n\
           gradient, both of one type, which is also that of the result: of `..`, of the rule's generics, or of `..` and then\n\
           these. All others are scalars, given in the arms of `train`. The generics are the axes of the parameter.";
    - failing: "rule Descent { fn step(p: f32[..]) -> f32[..] { p } }\n";
    - fixed: "rule Descent { fn step(p: f32[..], g: f32[..]) -> f32[..] { p - g } }\n";

    /// A pattern of a `train` that fits no parameter.
    PATTERN = "E0509", "a pattern fits no parameter";
    rule: "A pattern in an arm of a `train` is a path in the weights file in which `*` stands for any text: \"h.*.weight\". The\n\
           layers of an array are trained alike, so their number is `*` in the path. `where rank == 2` leaves the parameters\n\
           with two axes.";
    - failing: "rule Descent { fn step(p: f32[..], g: f32[..]) -> f32[..] { p - g } }\nmodel M {\n    w: f32[3]\n    pub fn learn(x: f32[3]) -> f32 { train sum(w * x) { \"v\": Descent; \"*\": Descent } }\n}\n";
    - fixed: "rule Descent { fn step(p: f32[..], g: f32[..]) -> f32[..] { p - g } }\nmodel M {\n    w: f32[3]\n    pub fn learn(x: f32[3]) -> f32 { train sum(w * x) { \"w\": Descent } }\n}\n";

    /// A parameter without a rule in a `train`.
    NO_RULE = "E0510", "a parameter has no rule";
    rule: "Each parameter of floats goes to the first arm of a `train` whose pattern fits; `\"*\": Fixed` keeps the rest as\n\
           they are.";
    - failing: "rule Descent { fn step(p: f32[..], g: f32[..]) -> f32[..] { p - g } }\nmodel M {\n    w: f32[3]\n    b: f32\n    pub fn learn(x: f32[3]) -> f32 { train sum(w * x) { \"w\": Descent } }\n}\n";
    - fixed: "rule Descent { fn step(p: f32[..], g: f32[..]) -> f32[..] { p - g } }\nmodel M {\n    w: f32[3]\n    b: f32\n    pub fn learn(x: f32[3]) -> f32 { train sum(w * x) { \"w\": Descent; \"*\": Fixed } }\n}\n";

    /// A parameter that does not fit its rule.
    RULE_MISFIT = "E0511", "a parameter does not fit its rule";
    rule: "A rule is for parameters of the type of the first argument of its `step`: `f32[.., M, N]` takes at least two axes.\n\
           `where rank >= 2` after a pattern leaves these.";
    - failing: "rule Square<N> { fn step(p: f32[N, N], g: f32[N, N]) -> f32[N, N] { p - g } }\nmodel M {\n    w: f32[3]\n    pub fn learn(x: f32[3]) -> f32 { train sum(w * x) { \"*\": Square } }\n}\n";
    - fixed: "rule Descent { fn step(p: f32[..], g: f32[..]) -> f32[..] { p - g } }\nmodel M {\n    w: f32[3]\n    pub fn learn(x: f32[3]) -> f32 { train sum(w * x) { \"*\": Descent } }\n}\n";
}
