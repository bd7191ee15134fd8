(comment) @comment
(documentation) @comment.documentation
(string) @string
[(integer) (float)] @number
[(boolean) "inf"] @constant.builtin
(element_type) @type.builtin

["fn" "layer" "model" "rule" "train" "let" "var" "dim" "pub" "state" "tap" "reset" "use" "step"] @keyword
["for" "in" "while" "break"] @keyword.repeat
["if" "else"] @keyword.conditional
["where" "and" "or" "not"] @keyword.operator
["=" "==" "!=" "<" "<=" ">" ">=" "+" "-" "*" "/" "%" "@" ".." "->"] @operator
["(" ")" "[" "]" "{" "}"] @punctuation.bracket
["," ":" ";" "."] @punctuation.delimiter

(function name: (identifier) @function)
(call function: (identifier) @function.call)
(call function: (member name: (identifier) @function.method.call))
(layer name: (identifier) @type)
(named_type (path (identifier) @type))
(layer_argument (path (identifier) @type))
(arm (path (identifier) @type))
(use (path (identifier) @module))
(attribute name: (identifier) @attribute)
(field name: (identifier) @property)
(member name: (identifier) @property)
(parameter name: (identifier) @variable.parameter)
(named_argument name: (identifier) @variable.parameter)
(generic_parameter name: (identifier) @constant)
