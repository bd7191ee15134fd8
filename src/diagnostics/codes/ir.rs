//! Codes E07xx: texts of the graph IR and of the tile IR.

use super::codes;

codes! {
    /// The text does not fit the grammar.
    SYNTAX = "E0701", "an IR text must fit the grammar";
    rule: "An IR text is made of lines: a head, phrases between commas, `: type` and a place. Brackets are closed on the\n\
           same nesting, strings on the same line. The message names the first thing that does not fit.";

    /// A phrase does not have the form that belongs there.
    FORM = "E0702", "a phrase of an IR text must have the form that its place asks for";
    rule: "An operand is a value (`%3`) or a literal; bare integers are indices, bare floats are f32, others show their\n\
           type: `i32(3)`. A result is written `%3 = operation operands, attribute=value : type`.";

    /// A name that nothing defines.
    UNKNOWN_NAME = "E0703", "names in an IR text must be known";
    rule: "Operations and kinds are those of the table of operations; values and blocks are those of the function;\n\
           files are those that the module lists.";

    /// A name is defined twice.
    DEFINED_TWICE = "E0704", "a name in an IR text is defined once";
    rule: "A value, a block or an attribute has one definition in its function.";

    /// A literal does not fit its type.
    LITERAL = "E0705", "a literal must fit its element type";
    rule: "Integers must be in the range of their type, `true` and `false` are bool, floats belong to float types.";

    /// An attribute is missing or unknown.
    ATTRIBUTE = "E0706", "an operation has exactly its attributes";
    rule: "Each operation has the attributes of its row in the table of operations, each given once.";

    /// Lines stand where they may not.
    STRUCTURE = "E0707", "an IR text is made of functions, these of blocks, and these end in a jump or return";
    rule: "`func` holds blocks, each with a label; the last line of a block, and only that, is `br`, `br_if` or\n\
           `return`. A fused region is one block without a label that ends in `yield`, and holds no other region.";

    /// The verifier's complaints.
    INVALID = "E0710", "an IR module must keep the invariants of its level";
    rule: "The verifier checks types, dominance, the arguments of blocks, parameters and fused regions. The list of\n\
           invariants is the documentation of the verifier's module.";

    /// A text that is no CLIF.
    CLIF = "E0720", "a text of CLIF must be what Cranelift takes";
    rule: "A `.clif` file has functions in the language of the code generator, as `--emit clif` writes them. Its reader\n\
           stops at the first line that it does not understand; its verifier tells what breaks an invariant.";
}
