// The grammar of attn for tree-sitter: that of the compiler, grammar/attn.lalrpop, over the same tokens.
//
// All tokens come from src/scanner.c, which is the compiler's lexer and layout: which newlines end something, which words are
// keywords, depends on the tokens around them.

const comma1 = (rule) => seq(rule, repeat(seq(",", rule)), optional(","));
const comma = (rule) => optional(comma1(rule));
const PREC = { or: 1, and: 2, not: 3, compare: 4, sum: 5, product: 6, prefix: 7, postfix: 8 };

module.exports = grammar({
  name: "attn",

  // In the order of `enum Token` in src/scanner.c.
  externals: ($) => [
    $._newline, $.comment, $._skip, $._invalid, $.documentation, $.identifier, $.integer, $.float, $.string,
    $.element_type, ";", "use", "layer", "model", "rule", "train", "state", "tap", "reset", "dim", "step", "fn", "pub", "let", "var", "for",
    "in", "while", "if", "else", "break", "where", "and", "or", "not", "true", "false", "inf", "(", ")", "[", "]", "{",
    $._members, $._arms, "}", "<", $._angle, ">", "<=", ">=", "==", "!=", "=", "+", "-", "*", "/", "%", "@", ",", ":", ".", "..",
    "->", "#",
  ],
  extras: ($) => [$.comment, $._skip, /\s/],
  supertypes: ($) => [$._expression, $._type],
  conflicts: ($) => [
    [$.target_index, $._primary],
    [$.use, $._meta],
    [$._postfix, $._effect_value],
    [$._primary, $._effect_value],
    [$.named_type, $._primary],
    [$.path, $._primary],
    [$.layer_argument, $._postfix],
    [$._postfix, $.target_index],
    [$._primary, $.target_tuple],
    [$._primary, $._target],
    [$._primary, $.generic_type],
  ],

  rules: {
    source_file: ($) => optional(seq($._item, repeat(seq($._line, $._item)), optional($._line))),
    _line: ($) => choice($._newline, ";"),

    _item: ($) => choice($.use, $.layer, $.function),
    use: ($) => seq(repeat($.documentation), "use", $.path),
    path: ($) => seq($.identifier, repeat(seq(".", $.identifier))),
    attribute: ($) => seq("#", "[", field("name", $.identifier), optional(seq("=", $._sum)), "]"),
    _meta: ($) => choice($.documentation, $.attribute),

    layer: ($) =>
      seq(
        repeat($._meta),
        choice("layer", "model", "rule"),
        field("name", $.identifier),
        optional($.generic_parameters),
        optional($.where_clause),
        alias($._members, "{"),
        optional(seq($._member, repeat(seq(choice($._line, ","), $._member)), optional(choice($._line, ",")))),
        "}",
      ),
    _member: ($) => choice($.field, $.function),
    field: ($) =>
      seq(repeat($._meta), optional("state"), field("name", $.identifier), ":", $._type, optional(seq("=", $._expression))),
    function: ($) =>
      seq(
        repeat($._meta),
        optional("pub"),
        "fn",
        field("name", $.identifier),
        optional($.generic_parameters),
        "(",
        comma($.parameter),
        ")",
        optional(seq("->", $._type)),
        optional($.where_clause),
        $.block,
      ),
    parameter: ($) =>
      seq(repeat($.documentation), field("name", $.identifier), ":", $._type, optional(seq("=", $._expression))),
    generic_parameters: ($) => seq("<", comma($.generic_parameter), ">"),
    generic_parameter: ($) =>
      seq(field("name", $.identifier), optional(seq(":", $._type)), optional(seq("=", choice($._sum, $.element_type)))),
    where_clause: ($) => seq("where", $._expression, repeat(seq(",", $._expression))),

    _type: ($) => choice($.tensor_type, $.generic_type, $.named_type, $.array_type, $.tuple_type),
    tensor_type: ($) => prec.right(seq($.element_type, optional($.shape))),
    generic_type: ($) => seq($.identifier, $.shape),
    named_type: ($) => prec.right(seq($.path, optional($.generic_arguments))),
    array_type: ($) => seq("[", $._type, ";", $._sum, "]"),
    tuple_type: ($) => seq("(", comma1($._type), ")"),
    shape: ($) => seq("[", comma(choice("..", $._sum)), "]"),
    generic_arguments: ($) => seq(choice("<", alias($._angle, "<")), comma($.generic_argument), ">"),
    generic_argument: ($) =>
      seq(optional(seq(field("name", $.identifier), "=")), choice($._sum, $.element_type, $.layer_argument)),
    layer_argument: ($) => seq($.path, $.generic_arguments),

    block: ($) => seq("{", optional(seq(repeat(seq($._effect, $._line)), choice($._effect, $._expression), optional($._line))), "}"),
    // A statement, or an expression whose value may be unused.
    _effect: ($) =>
      choice($.let, $.length, $.var, $.assignment, $.tap, $.reset, $.for, $.while, $.break,
        prec.dynamic(1, $._effect_value)),
    _effect_value: ($) => choice($.call, $.if, $.train, $.block, alias($._effect_in_parentheses, $.parenthesized)),
    _effect_in_parentheses: ($) => seq("(", $._effect_value, ")"),
    let: ($) => seq("let", $._pattern, optional(seq(":", $._type)), "=", $._expression),
    var: ($) => seq("var", $._pattern, optional(seq(":", $._type)), "=", $._expression),
    length: ($) => seq("let", "dim", field("name", $.identifier), "=", $._expression, optional($.where_clause)),
    assignment: ($) => seq($._target, "=", $._expression),
    _target: ($) => choice($.identifier, $.target_index, $.target_tuple),
    target_index: ($) => seq($.identifier, "[", comma($._index), "]"),
    target_tuple: ($) => choice(seq("(", $._target, ")"), seq("(", $._target, ",", comma($._target), ")")),
    tap: ($) => seq("tap", $.identifier),
    reset: ($) => seq("reset", $.identifier),
    for: ($) => seq("for", $._pattern, "in", choice($._expression, $.range), $.block),
    range: ($) => seq($._expression, "..", $._expression),
    while: ($) => seq("while", $._expression, $.block),
    break: (_) => "break",
    _pattern: ($) => choice($.identifier, $.tuple_pattern),
    tuple_pattern: ($) => seq("(", comma1($._pattern), ")"),

    _expression: ($) => choice($.logical, $.not, $.comparison, $._sum),
    logical: ($) =>
      choice(
        prec.left(PREC.or, seq($._expression, "or", $._expression)),
        prec.left(PREC.and, seq($._expression, "and", $._expression)),
      ),
    not: ($) => prec(PREC.not, seq("not", $._expression)),
    comparison: ($) =>
      prec.left(PREC.compare, seq($._sum, choice("==", "!=", "<", "<=", ">", ">="), $._sum)),
    _sum: ($) => choice($.binary, $.unary, $._postfix),
    binary: ($) =>
      choice(
        prec.left(PREC.sum, seq($._sum, choice("+", "-"), $._sum)),
        prec.left(PREC.product, seq($._sum, choice("*", "/", "%", "@"), $._sum)),
      ),
    unary: ($) => prec(PREC.prefix, seq(choice("-", "+"), $._sum)),
    _postfix: ($) => choice($.call, $.index, $.member, $._primary),
    call: ($) =>
      prec(PREC.postfix,
        seq(
          choice(
            field("function", $._postfix),
            seq(field("function", $.identifier), alias($._angle, "<"), comma($.generic_argument), ">"),
            field("function", alias("where", $.identifier)),
          ),
          "(",
          optional($._arguments),
          ")",
        )),
    // Positional arguments first.
    _arguments: ($) =>
      choice(
        seq($._expression, repeat(seq(",", $._expression)), repeat(seq(",", $.named_argument)), optional(",")),
        comma1($.named_argument),
      ),
    named_argument: ($) => seq(field("name", $.identifier), "=", $._expression),
    index: ($) => prec(PREC.postfix, seq($._postfix, "[", comma($._index), "]")),
    _index: ($) => choice("..", $._expression, $.slice),
    slice: ($) =>
      choice(
        seq($._expression, "..", optional($._expression), optional(seq("step", $._expression))),
        seq("..", $._expression, optional(seq("step", $._expression))),
      ),
    member: ($) => prec(PREC.postfix, seq($._postfix, ".", field("name", choice($.identifier, $.integer)))),
    _primary: ($) =>
      choice($.identifier, $.integer, $.float, $.string, $.boolean, "inf", $.parenthesized, $.tuple, $.list, $.block, $.if,
        $.train),
    train: ($) =>
      seq(
        "train",
        field("loss", $._expression),
        repeat(seq(",", $.named_argument)),
        alias($._arms, "{"),
        optional(seq($.arm, repeat(seq(choice($._line, ","), $.arm)), optional(choice($._line, ",")))),
        "}",
      ),
    arm: ($) =>
      seq(
        field("pattern", $.string),
        optional($.where_clause),
        ":",
        field("rule", $.path),
        optional(seq("(", optional($._arguments), ")")),
      ),
    boolean: (_) => choice("true", "false"),
    parenthesized: ($) => seq("(", $._expression, ")"),
    tuple: ($) => seq("(", $._expression, ",", comma($._expression), ")"),
    list: ($) => seq("[", comma($._expression), "]"),
    if: ($) =>
      prec.right(seq("if", $._expression, $.block, optional(seq("else", choice($.block, $.if))))),
  },
});
