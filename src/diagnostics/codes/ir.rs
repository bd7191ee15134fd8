//! Codes E07xx: the text form of graph IR and tile IR.

use super::codes;

codes! {
    /// The text does not fit the grammar.
    SYNTAX = "E0701", "a syntax error in IR text";
    rule: "IR text consists of lines: a head, phrases separated by commas, `: type` and a location. Brackets must match, and\n\
           strings end on their line. The message names the first token that does not fit the grammar.";

    /// A phrase that is well formed, but not allowed there.
    FORM = "E0702", "a phrase in IR text has the wrong form";
    rule: "An operand is a value (`%3`) or a literal; bare integers are indices, bare floats are f32, others show their\n\
           type: `i32(3)`. A result is written `%3 = operation operands, attribute=value : type`.";

    /// An undefined name.
    UNKNOWN_NAME = "E0703", "an unknown name in IR text";
    rule: "Operations and kinds are listed in the table of operations; values and blocks are defined in the function; files\n\
           are listed by the module.";

    /// A name is defined twice.
    DEFINED_TWICE = "E0704", "a name in IR text is defined twice";
    rule: "A value, a block or an attribute is defined once in its function.";

    /// A literal does not fit its type.
    LITERAL = "E0705", "a literal must fit its element type";
    rule: "Integers must be in the range of their type, `true` and `false` are bool, and floats need a float type.";

    /// An attribute is missing or unknown.
    ATTRIBUTE = "E0706", "a missing or unknown attribute in IR text";
    rule: "Each operation has the attributes that the table of operations lists (`attnc ops`), each given at most once; only\n\
           those in brackets may be omitted.";

    /// Lines in an invalid order.
    STRUCTURE = "E0707", "invalid structure of IR text";
    rule: "`func` holds blocks, each with a label; the last line of a block, and only that, is `br`, `br_if` or\n\
           `return`. A fused region is one block without a label that ends in `yield`, and contains no other region.";

    /// Errors of the verifier.
    INVALID = "E0710", "an IR module must satisfy the verifier";
    rule: "The verifier checks types, dominance, the arguments of blocks, parameters and fused regions. The\n\
           documentation of the verifier's module lists the invariants.";

    /// Text that is not valid CLIF.
    CLIF = "E0720", "invalid CLIF";
    rule: "A `.clif` file contains functions in Cranelift IR, as `--emit clif` writes them. Cranelift's parser stops at the\n\
           first line that it does not understand; its verifier reports violated invariants.";
}
