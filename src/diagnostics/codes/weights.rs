//! Codes E08xx: weights files, and calls of a compiled model.

use super::codes;

codes! {
    /// Weights that cannot be taken.
    WEIGHTS = "E0801", "the weights do not fit the program";
    rule: "A weights file is a safetensors file. It must hold a tensor for each parameter of the model, under the name of\n\
           its path, with the shape and element type of the program. The message lists all that are missing or wrong.\n\
           Tensors of `bf16` or `f16` also fit parameters of `f32`: they are converted when the weights are loaded, which is\n\
           exact, and a note says so. The other way would round, so it is an error: convert the file, or declare the\n\
           parameter as it is stored.";

    /// Weights that nobody reads.
    UNUSED = "E0802", "tensors of the weights file are not used";
    rule: "The file holds tensors that are no parameter of the model. That is a warning, for checkpoints often hold more\n\
           than one model needs; but it may also show that a parameter has another name in the file.";

    /// A call that fails.
    CALL = "E0803", "a call fails";
    rule: "The arguments do not fit the entry point (their number, element types or shapes), a `where` clause does not\n\
           hold with them, or an index is out of range while the program runs. The message says which.";

    /// A tap that a call did not come to.
    SILENT_TAP = "E0804", "a call did not come to a tap";
    rule: "A tap in a branch that is not taken, or in a loop without iterations, is never written. Its value is zeros then, in\n\
           the interpreter and in compiled code. `attnc_taps_written` tells of each tap in how many steps it was written, and\n\
           so does `written` of the taps in Python.";
}
