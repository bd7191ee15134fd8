"""From calls of modules to the text of a program: a layer for each class of modules, a field for each parameter and submodule.

In: a `Trace` and names of sizes. Out: the text. `Body` writes one function. A value gets a variable
if the module's source names it or if it is used twice; others are written inside a formula.
"""

import copy
import inspect
import keyword
import operator
import re

import torch

from . import operations
from .dims import sympy_of
from .operations import ADD, MULTIPLY, OR, POSTFIX, UNARY, is_tensor, shape, type_name
from .trace import Scope, Unsupported
from .views import View

VIEWS = {"view", "reshape", "_unsafe_view", "permute", "transpose", "t", "unsqueeze", "squeeze", "flatten", "unflatten", "clone", "contiguous", "expand"}
FUNCTIONS = {"ReLU": "ReLU", "SiLU": "SiLU", "Sigmoid": "Sigmoid", "Tanh": "Tanh", "Identity": "Identity", "Dropout": "Identity"}
WORDS = {
    "let", "var", "fn", "for", "in", "while", "if", "else", "break", "where", "pub", "use", "layer", "model", "tap", "state", "reset",
    "dim", "step", "and", "or", "not", "true", "false", "inf", "decode", "random", "nn", "causal", "iota", "full", "concat", "split",
    "unbind", "pad", "cast", "rearrange", "einsum", "softmax", "log_softmax", "mean", "sum", "max", "min", "argmax", "argmin", "all",
    "any", "take_along", "one_hot", "pow", "maximum", "minimum", "sort", "argsort", "top_k", "gelu", "gelu_tanh", "every", "windows",
    "abs", "exp", "expm1", "log", "log1p", "sqrt", "rsqrt", "sin", "cos", "tanh", "erf", "sigmoid", "softplus", "relu", "silu",
    "floor", "ceil", "trunc", "round", "sign", "isnan", "isinf", "isfinite", "cumsum", "scatter", "scatter_add", "floor_div",
    "ceil_div", "bitwise_and", "bitwise_or", "bitwise_xor", "left_shift", "right_shift",
}  # fmt: skip
LONG = 64


class Dissolve(Exception):
    """A module that is not a layer of its own: its operations become part of the caller."""


def identifier(name):
    name = re.sub(r"\W", "_", name).lower().strip("_") or "x"
    return "_" + name if name[0].isdigit() else name + "_" if name in WORDS or keyword.iskeyword(name) else name


class Writer:
    def __init__(self, trace, dims):
        self.trace, self.dims = trace, dims
        self.layers = {}
        self.std = False

    def program(self, name, doc):
        """The text of the whole program."""
        dissolved = set()
        while True:
            self.layers, self.std = {}, False
            root = self.trace.tree(dissolved)
            self.results = set(self.trace.results)
            try:
                text = self._layer(root, self.trace.inputs, self.trace.results, "model", name, doc)
                break
            except Dissolve as module:
                dissolved.add(str(module))
        made = "\n\n".join(text for text in self.layers.values())
        return "\n\n".join(part for part in ("use std.nn" if self.std else "", made, text) if part) + "\n"

    def module(self, fqn):
        return self.trace.module.get_submodule(fqn)

    def edges(self, scope):
        """Values that a call takes, and its values that are used outside of it."""
        inside = list(scope.nodes())
        own, prefix = set(inside), scope.fqn + "."
        inputs, outputs = {}, []
        for node in inside:
            for value in node.all_input_nodes:
                if value in own or not is_tensor(value):
                    continue
                if value in self.trace.names:
                    if not self.trace.names[value].startswith(prefix):
                        raise Dissolve(scope.fqn)
                else:
                    inputs[value] = None
            if is_tensor(node) and (node in self.results or any(user not in own for user in node.users)):
                outputs.append(node)
        return list(inputs), outputs

    # ---- types of fields

    def type_of(self, scope, in_sequence=False):
        """The type of a field for a module."""
        module, kind = self.module(scope.fqn), scope.kind.rsplit(".", 1)[-1]
        inputs, outputs = self.edges(scope)
        if scope.kind.startswith("torch.nn.modules"):
            if kind == "Sequential":
                return self._sequence(scope)
            made = None
            if kind in ("MultiheadAttention", "TransformerEncoderLayer"):
                made = self._attention(scope, module, kind, inputs, outputs)
            made = made or self._standard(scope, module, kind, inputs, in_sequence)
            if made is not None:
                self.std = True
                return made
        if len(list(scope.nodes())) < 2 or not inputs or not outputs:
            raise Dissolve(scope.fqn)
        return self._own_layer(scope, kind, inputs, outputs)

    def _standard(self, scope, module, kind, inputs, in_sequence):
        size = self.dims.text
        if len(inputs) != 1 or any(isinstance(item, Scope) for item in scope.items):
            return None
        parameters = dict(module.named_parameters(recurse=False))
        if any(one.dtype != torch.float32 for one in parameters.values()):
            raise Dissolve(scope.fqn)
        if kind == "Linear":
            return "%s<%s, %s>" % ("Linear" if module.bias is not None else "LinearNoBias", size(module.in_features), size(module.out_features))
        if kind == "LayerNorm" and len(module.normalized_shape) == 1 and module.weight is not None and module.bias is not None:
            return "LayerNorm<%s%s>" % (size(module.normalized_shape[0]), "" if module.eps == 1e-5 else ", eps = %r" % module.eps)
        if kind == "RMSNorm" and len(module.normalized_shape) == 1 and module.weight is not None:
            eps = torch.finfo(torch.float32).eps if module.eps is None else module.eps
            return "RMSNorm<%s%s>" % (size(module.normalized_shape[0]), "" if eps == 1e-6 else ", eps = %r" % eps)
        if kind == "Embedding" and inputs[0].meta["val"].dtype == torch.int32:
            return "Embedding<%s, %s>" % (size(module.num_embeddings), size(module.embedding_dim))
        if in_sequence and kind == "GELU":
            return "GELUTanh" if module.approximate == "tanh" else "GELU"
        if in_sequence and kind in FUNCTIONS:
            return FUNCTIONS[kind]
        if kind in ("MultiheadAttention", "TransformerEncoderLayer"):
            return None
        raise Dissolve(scope.fqn)

    def _attention(self, scope, module, kind, inputs, outputs):
        """The layers of std.nn for PyTorch's own, without masks."""
        attention = module if kind == "MultiheadAttention" else getattr(module, "self_attn", None)
        if len(outputs) != 1 or attention is None or not attention.batch_first:
            return None
        width = attention.embed_dim
        if any(len(shape(one)) != 3 or sympy_of(shape(one)[-1]) != width for one in inputs):
            return None
        if attention.in_proj_weight is None or attention.in_proj_bias is None or attention.bias_k is not None or attention.add_zero_attn:
            return None
        sizes = "%s, %s" % (self.dims.text(attention.embed_dim), self.dims.text(attention.num_heads))
        if kind == "MultiheadAttention" and len(inputs) > 1:
            # PyTorch moves the axes of each argument once, in their order; keys that are also the values only once.
            inside = set(scope.nodes())
            once = all(sum(user in inside for user in one.users) == 1 for one in inputs)
            return "MultiHeadAttention<%s>" % sizes if once and len(inputs) <= 3 else None
        if len(inputs) != 1:
            return None
        if kind == "MultiheadAttention":
            return "SelfAttention<%s>" % sizes
        norms = [module.norm1, module.norm2]
        plain = all(one.eps == 1e-5 and one.bias is not None for one in norms) and module.linear1.bias is not None
        if not plain or not (module.activation_relu_or_gelu == 1):
            return None
        name = "PreNormEncoderLayer" if module.norm_first else "TransformerEncoderLayer"
        return "%s<%s, %s>" % (name, sizes, self.dims.text(module.linear1.out_features))

    def _sequence(self, scope):
        """`Sequential<..>`, for modules that are called one after another."""
        types, value = {}, None
        for item in scope.items:
            if not isinstance(item, Scope) or "." in item.fqn[len(scope.fqn) + 1 :]:
                raise Dissolve(scope.fqn)
            inputs, outputs = self.edges(item)
            if len(inputs) != 1 or len(outputs) != 1 or (value is not None and inputs[0] is not value):
                raise Dissolve(scope.fqn)
            value = outputs[0]
            try:
                types[int(item.fqn.rsplit(".", 1)[-1])] = self.type_of(item, in_sequence=True)
            except (Dissolve, ValueError):
                raise Dissolve(scope.fqn) from None
        count = len(self.module(scope.fqn))
        listed = [types.get(i, "Identity") for i in range(count)]
        while listed and listed[-1] == "Identity":
            listed.pop()
        if len(types) < 2 or len(set(listed)) == 1:
            raise Dissolve(scope.fqn)
        self.std = True
        return "Sequential<%s>" % ", ".join(listed)

    def _own_layer(self, scope, kind, inputs, outputs):
        for number in range(1, 100):
            name = kind if number == 1 else "%s%d" % (kind, number)
            text = self._layer(scope, inputs, outputs, "layer", name, None)
            if self.layers.setdefault(name, text) == text:
                head = re.match(r"(?:///.*\n)*layer \w+(<[^>]*>)?", text)
                return name + (head.group(1) or "")
        raise Dissolve(scope.fqn)

    def _layer(self, scope, inputs, outputs, word, name, doc):
        body = Body(self, scope, inputs, outputs)
        lines = body.write()
        fields = body.field_lines()
        said = "\n".join([*fields, *lines, body.signature])
        if word == "layer":
            bound = set(re.findall(r"\w+", body.arguments))
            if any(re.search(r"\b%s\b" % one, said) and one not in bound for one in self.dims.runtime.values()):
                raise Dissolve(scope.fqn)
        names = self.dims.names_in(said)
        value = self.dims.values()
        listed = ", ".join(one if word == "layer" else "%s = %d" % (one, value[one]) for one in names)
        head = "%s %s%s%s {" % (word, name, "<%s>" % listed if listed else "", self.dims.where(names))
        text = "/// %s\n" % doc if doc else ""
        text += "\n".join([head, *("    " + one for one in fields), *([""] if fields else [])])
        text += "\n    %sfn forward%s {\n" % ("pub " if word == "model" else "", body.signature)
        return text + "\n".join("        " + line for line in lines) + "\n    }\n}"


class Body:
    """The function of one layer."""

    def __init__(self, writer, scope, inputs, outputs):
        self.writer, self.scope, self.outputs = writer, scope, outputs
        self.dims, self.trace = writer.dims, writer.trace
        self.done, self.views, self.slices, self.lines = {}, {}, {}, []
        self.fields, self.access = {}, {}
        self.calls = {item: writer.edges(item) for item in scope.items if isinstance(item, Scope)}
        self.at = -1
        self.last, self.uses = {}, {}
        for i, item in enumerate(scope.items):
            for value in self.calls[item][0] if isinstance(item, Scope) else _inputs(item):
                self.last[value] = i
                self.uses[value] = self.uses.get(value, 0) + 1
        for value in outputs:
            self.last[value] = len(scope.items)
            self.uses[value] = self.uses.get(value, 0) + 1
        self._make_fields()
        self._arguments(inputs)

    # ---- fields

    def _relative(self, fqn):
        return fqn[len(self.scope.fqn) + 1 :] if self.scope.fqn else fqn

    def _put_field(self, wanted, kind, name):
        ident = identifier(wanted)
        while ident in self.fields:
            ident += "_"
        self.fields[ident] = (kind, name)
        return ident

    def _make_fields(self):
        """Fields in the order of the module's own attributes."""
        self.kinds = kinds = {}
        for item in self.calls:
            kind = self.writer.type_of(item)
            path = self._relative(item.fqn)
            if kinds.setdefault(path, kind) != kind:
                raise Dissolve(item.fqn)
        lists = {}
        for path in kinds:
            if re.fullmatch(r"[^.]+(\.[^.]+)*\.\d+", path):
                lists.setdefault(path.rsplit(".", 1)[0], []).append(int(path.rsplit(".", 1)[1]))
        for prefix, present in list(lists.items()):
            full = "%s.%s" % (self.scope.fqn, prefix) if self.scope.fqn else prefix
            count = len(self.writer.module(full))
            elements = ["%s.%d" % (prefix, i) for i in range(count)]
            known = [kinds.get(one) for one in elements]
            if re.search(r"\d", prefix.split(".")[-1][:1]) or count < 2 or (None in known and len(present) < 2):
                del lists[prefix]
                continue
            same = None not in known and len(set(known)) == 1
            kind = "[%s; %s]" % (known[0], self.dims.text(count)) if same else "(%s)" % ", ".join(one or "Identity" for one in known)
            ident = self._put_field(prefix.split(".")[-1], kind, prefix)
            self.writer.std |= None in known
            for i, one in enumerate(elements):
                self.access[one] = ("%s[%d]" if same else "%s.%d") % (ident, i)
        for path, kind in kinds.items():
            if path not in self.access:
                words = path.split(".")
                wanted = words[-1] if not words[-1].isdigit() else "_".join(words) if len(words) > 1 else "%s_%s" % (kind.split("<")[0], path)
                self.access[path] = self._put_field(wanted, kind, path)
        for item in self.scope.items:
            for value in [] if isinstance(item, Scope) else _inputs(item):
                if value in self.trace.names and value not in self.done:
                    path = self._relative(self.trace.names[value])
                    owner, _, last = path.rpartition(".")
                    if owner in self.access:
                        self.done[value] = ("%s.%s" % (self.access[owner], last), POSTFIX)
                        continue
                    wanted = re.sub(r"_weight$", "", "_".join(path.split(".")[-2:]) if "." in path else path)
                    tensor = value.meta["val"]
                    dims = ", ".join(self.dims.text(size, spaced=False) for size in tensor.shape)
                    kind = type_name(tensor) + ("[%s]" % dims if dims else "")
                    self.done[value] = (self._put_field(wanted, kind, path), POSTFIX)

    def field_lines(self):
        lines = []
        for ident, (kind, name) in self.fields.items():
            if ident != name:
                lines.append('#[name = "%s"]' % name)
            lines.append("%s: %s" % (ident, kind))
        return lines

    # ---- the signature

    def _arguments(self, inputs):
        names = []
        if self.scope.fqn:
            forward = inspect.signature(self.writer.module(self.scope.fqn).forward).parameters
            names = [one for one, kind in forward.items() if kind.kind in (kind.POSITIONAL_ONLY, kind.POSITIONAL_OR_KEYWORD)]
        else:
            names = [node.name for node in inputs]
        self.taken = set(self.fields)
        listed = []
        for i, node in enumerate(inputs):
            ident = identifier(names[i] if i < len(names) else "x%d" % i)
            while ident in self.taken:
                ident += "_"
            self.taken.add(ident)
            self.done[node] = (ident, POSTFIX)
            listed.append("%s: %s" % (ident, self.type(node)))
        results = [self.type(node) for node in self.outputs]
        self.arguments = ", ".join(listed)
        self.signature = "(%s) -> %s" % (self.arguments, results[0] if len(results) == 1 else "(%s)" % ", ".join(results))

    def type(self, node):
        tensor = node.meta["val"]
        dims = ", ".join(self.dims.text(size, spaced=False) for size in tensor.shape)
        return type_name(tensor) + ("[%s]" % dims if dims else "")

    # ---- operands, for `operations`

    def text(self, value, least, scalar=None):
        """The text of an operand, in parentheses if it binds less than `least`."""
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, (int, float)):
            text = "inf" if value == float("inf") else "-inf" if value == float("-inf") else repr(value)
            return "(%s)" % text if text.startswith("-") and least > UNARY else text
        if not isinstance(value, torch.fx.Node):
            raise Unsupported("an operand is %r" % (value,))
        if not is_tensor(value):
            text = self.dims.text(self.size(value))
            return "(%s)" % text if " " in text and least > OR else text
        text, precedence = self._resolved(value)
        return "(%s)" % text if precedence < least else text

    def size(self, value):
        return sympy_of(value.meta["val"] if isinstance(value, torch.fx.Node) else value)

    def precedence(self, value):
        return self._resolved(value)[1]

    def _resolved(self, value):
        if value in self.views:
            base, precedence, view = self.views.pop(value)
            self.done[value] = _viewed(base, precedence, view, self.dims)
        if value not in self.done:
            raise Unsupported("`%s` is used before it is computed" % value.name)
        return self.done[value]

    def is_name(self, value):
        return is_tensor(value) and re.fullmatch(r"\w+", self._resolved(value)[0]) is not None

    def negated(self, node):
        """The text whose `not` this mask is, if it is written as one."""
        text, _ = self._resolved(node)
        match = re.fullmatch(r"not (\w+|\w+\([^()]*\)|\w+\[[^\[\]]*\])", text)
        return match.group(1) if match else None

    def named(self, value, wanted):
        """The name of an operand, which gets one if it has none."""
        text, _ = self._resolved(value)
        if not re.fullmatch(r"\w+", text):
            self.done[value] = (self.let(wanted, text), POSTFIX)
        return self.done[value][0]

    def let(self, wanted, text):
        """A variable within the operation that is being written."""
        name = self._fresh(wanted, self.at)
        self.lines.append("let %s = %s" % (name, text))
        self.taken.add(name)
        return name

    # ---- names

    def _fresh(self, wanted, after):
        """A name that hides nothing that is used after this item."""
        wanted = identifier(wanted)
        held = set(self.fields)
        for value, last in self.last.items():
            if last >= after and (value in self.done or value in self.views):
                text = self.done[value][0] if value in self.done else self.views[value][0]
                held |= set(re.findall(r"[A-Za-z_]\w*", text))
        name, number = wanted, 2
        while name in held:
            name, number = "%s%d" % (wanted, number), number + 1
        return name

    def _assigned(self, i):
        """The names that the module's source gives to the value of an item, if it is the last of its line."""
        here = self._line(self.scope.items[i])
        if here is None or (i + 1 < len(self.scope.items) and self._line(self.scope.items[i + 1]) == here):
            return []
        match = re.match(r"([A-Za-z_]\w*(?:\s*,\s*[A-Za-z_]\w*)*)\s*(?::\s*[\w.\[\], ]+)?=(?!=)", here[2])
        return [one.strip() for one in match.group(1).split(",")] if match else []

    def _line(self, item):
        """The line of this module's source that an item was called from."""
        node = next(item.nodes()) if isinstance(item, Scope) else item
        frames = re.findall(r'File "([^"]+)", line (\d+), in (\S+)\n\s*(.*)', node.meta.get("stack_trace") or "")
        if not frames:
            return None
        forward = getattr(type(self.writer.module(self.scope.fqn)), "forward", None)
        try:
            lines, first = inspect.getsourcelines(forward)
            name = inspect.getsourcefile(forward)
        except (OSError, TypeError):
            return None
        own = [f for f in frames if _same_file(f[0], name) and first <= int(f[1]) < first + len(lines)]
        inner = not isinstance(item, Scope) and own and own[-1] is not frames[-1] and "/torch/nn/functional.py" in frames[-1][0]
        frame = frames[-1] if inner or not own else own[-1]
        return frame[0], frame[1], frame[3]

    # ---- items

    def write(self):
        """The lines of the function."""
        items = self.scope.items
        i = 0
        while i < len(items):
            self.at = i
            if isinstance(items[i], Scope):
                i += self._loop(i) or self._call(i)
            else:
                self._node(i)
                i += 1
        self.at = len(items)
        results = [self.text(node, OR) for node in self.outputs]
        self.lines.append(results[0] if len(results) == 1 else "(%s)" % ", ".join(results))
        return self.lines

    def _call(self, i):
        item = self.scope.items[i]
        inputs, outputs = self.calls[item]
        if self.kinds[self._relative(item.fqn)].startswith("MultiHeadAttention<"):
            inputs = [*inputs, *inputs[-1:] * (3 - len(inputs))]
        text = "%s(%s)" % (self.access[self._relative(item.fqn)], ", ".join(self.text(one, OR) for one in inputs))
        if len(outputs) == 1:
            self._keep(i, outputs[0], text, POSTFIX)
        else:
            self._tuple(i, outputs, text)
        return 1

    def _loop(self, i):
        """`for block in h`, where all layers of an array are called in turn; the number of items, or 0."""
        items = self.scope.items
        match = re.fullmatch(r"(\w+)\[0\]", self.access[self._relative(items[i].fqn)])
        if match is None:
            return 0
        count = sum(one.startswith(match.group(1) + "[") for one in self.access.values())
        calls = items[i : i + count]
        for k, one in enumerate(calls):
            if not isinstance(one, Scope) or self.access[self._relative(one.fqn)] != "%s[%d]" % (match.group(1), k):
                return 0
        edges = [self.calls[one] for one in calls]
        if len(calls) != count or count < 2 or any(len(outputs) != 1 for _, outputs in edges):
            return 0
        first = edges[0][0]
        carried = [k for k, value in enumerate(first) if edges[1][0][k : k + 1] == [edges[0][1][0]]]
        if len(carried) != 1:
            return 0
        at = carried[0]
        for k in range(1, count):
            expected = [edges[k - 1][1][0] if j == at else value for j, value in enumerate(first)]
            if edges[k][0] != expected or self.uses.get(edges[k - 1][1][0]) != 1:
                return 0
        others = [self.named(value, "input") if j != at else None for j, value in enumerate(first)]
        start = self.text(first[at], OR)
        last = edges[-1][1][0]
        wanted = (self._assigned(i + count - 1) or ["x"])[0]
        self.at = i + count - 1
        name = self._fresh(wanted, i + count)
        element = self._fresh("block", i)
        passed = ", ".join(name if j == at else one for j, one in enumerate(others))
        self.lines += ["var %s = %s" % (name, start), "for %s in %s { %s = %s(%s) }" % (element, match.group(1), name, element, passed)]
        self.done[last] = (name, POSTFIX)
        return count

    def _node(self, i):
        node = self.scope.items[i]
        try:
            if node.target is operator.getitem:
                return
            if isinstance(node.meta["val"], (list, tuple)):
                parts = {user.args[1]: user for user in node.users if user.target is operator.getitem}
                if self._slices(node, parts):
                    return
                text, _ = operations.write(self, node)
                self._tuple(i, [parts.get(k) for k in range(len(node.meta["val"]))], text)
                return
            type_name(node.meta["val"])
            word = operations._name(node)
            if word in VIEWS and self._view(i, node, word):
                return
            if word == "conv2d":
                self._patches(i, node)
                return
            self._keep(i, node, *operations.write(self, node))
        except Unsupported as refused:
            if getattr(refused, "placed", False):
                raise
            line = re.findall(r'File "([^"]+)", line (\d+)', node.meta.get("stack_trace") or "")
            where = " (`%s`, a %s)" % (self.scope.fqn, self.scope.kind) if self.scope.fqn else ""
            where += "\n --> %s:%s" % line[-1] if line else ""
            refused = Unsupported("%s%s" % (refused, where))
            refused.placed = True
            raise refused from None

    def _slices(self, node, parts):
        """A split into parts of different lengths."""
        axis = node.args[2] if len(node.args) > 2 else node.kwargs.get("dim", 0)
        is_split = operations._name(node).startswith("split")
        sizes = [sympy_of(one.shape[axis]) for one in node.meta["val"]] if is_split else []
        if len(set(sizes)) < 2:
            return False
        base, start = self.named(node.args[0], "x"), sympy_of(0)
        for k, size in enumerate(sizes):
            ends = [self.dims.text(one, spaced=False) for one in (start, start + size)]
            if k in parts:
                self.done[parts[k]] = operations.indexed(base, len(shape(node.args[0])), axis, "%s..%s" % tuple(ends))
            start += size
        return True

    def _tuple(self, i, values, text):
        names = self._assigned(i)
        listed = []
        for k, value in enumerate(values):
            if value is None or not (value in self.last):
                listed.append("_")
                continue
            wanted = names[k] if len(names) == len(values) else "qkv"[k] if len(values) == 3 else "part%d" % k
            name = self._fresh(wanted, i + 1)
            while name in listed:
                name += "_"
            listed.append(name)
            self.done[value] = (name, POSTFIX)
            self.taken.add(name)
        self.lines.append("let (%s) = %s" % (", ".join(listed), text))

    def _keep(self, i, node, text, precedence):
        """Gives a value a name, or keeps its text for the formula that uses it."""
        names = self._assigned(i)
        once = self.uses.get(node, 0) <= 1
        is_last = node in self.outputs and self.last[node] == len(self.scope.items) and once and i == len(self.scope.items) - 1
        simple = re.fullmatch(r"\w+", text) is not None
        if simple or is_last or (once and not names and len(text) <= LONG):
            self.done[node] = (text, precedence)
            return
        name = self._fresh(names[0] if len(names) == 1 else _wanted(node), i + 1)
        self.lines.append("let %s = %s" % (name, text))
        self.taken.add(name)
        self.done[node] = (name, POSTFIX)

    # ---- views

    def _view(self, i, node, word):
        """A view, as a further step of the view that it is of, or a `rearrange` of its own. False: written as an operation."""
        source = node.args[0]
        if word == "expand":
            return self._expand(i, node, source)
        if source in self.views and self.uses.get(source) == 1:
            base, precedence, before = self.views.pop(source)
            view = copy.deepcopy(before)
            if not _step(view, node, word):
                self.done[source] = _viewed(base, precedence, before, self.dims)
                view = None
        else:
            view = None
        if view is None:
            base, precedence = self._resolved(source)
            view = View(shape(source))
            if not _step(view, node, word):
                return self._regroup(i, node, base, precedence)
        users = list(node.users)
        more = self.uses.get(node) == 1 and len(users) == 1 and operations._name(users[0]) in VIEWS - {"expand"} and users[0] in self.scope.items
        if more:
            self.views[node] = (base, precedence, view)
        else:
            self._keep(i, node, *_viewed(base, precedence, view, self.dims))
        return True

    def _regroup(self, i, node, base, precedence):
        """A view that joins axes and splits them elsewhere: through one axis."""
        axes = [chr(97 + k) for k in range(len(shape(node)))]
        flat = 'rearrange(%s, "%s -> (%s)")' % (base, *[" ".join(chr(97 + k) for k in range(len(shape(node.args[0]))))] * 2)
        given = ", ".join("%s = %s" % (a, self.dims.text(size)) for a, size in list(zip(axes, shape(node)))[:-1])
        self._keep(i, node, 'rearrange(%s, "(%s) -> %s", %s)' % (flat, " ".join(axes), " ".join(axes), given), POSTFIX)
        return True

    def _expand(self, i, node, source):
        """Nothing, where all that use it broadcast by themselves."""
        text, precedence = self._resolved(source)
        made = [sympy_of(one) for one in shape(node)]
        if made == [sympy_of(one) for one in shape(source)]:
            self._keep(i, node, text, precedence)
            return True

        def broadcasts(user):
            if operations._name(user) not in ("add", "sub", "mul", "div", "where", "masked_fill", "logical_and", "bitwise_and", "matmul", "eq", "lt", "gt", "le", "ge", "ne"):
                return False
            others = [[sympy_of(size) for size in shape(one)] for one in user.args if is_tensor(one) and one is not node]
            matrix = 2 if operations._name(user) == "matmul" else 0
            for axis in range(1, len(made) + 1):
                grown = axis > len(shape(source)) or made[-axis] != sympy_of(shape(source)[-axis])
                if grown and (axis <= matrix or not any(axis <= len(one) and one[-axis] == made[-axis] for one in others)):
                    return False
            return node not in self.outputs

        if not all(map(broadcasts, node.users)) or any(user not in self.scope.items for user in node.users):
            tensor = node.meta["val"]
            if tensor.dtype == torch.bool:
                raise Unsupported("`expand` of booleans is not in the language")
            dims = ", ".join(self.dims.text(size) for size in made)
            text, precedence = "%s + full<%s>(0, [%s])" % (self.text(source, ADD), type_name(tensor), dims), ADD
        self._keep(i, node, text, precedence)
        return True

    def _patches(self, i, node):
        """A convolution whose windows do not overlap: patches times a matrix."""
        x, weight, bias, stride, padding, dilation, groups = (list(node.args) + [None, [1, 1], [0, 0], [1, 1], 1][len(node.args) - 2 :])[:7]
        size = list(shape(weight)[2:])
        stride = list(stride) * 2 if len(stride) == 1 else list(stride)
        if stride != size or any(padding) or any(one != 1 for one in dilation) or groups != 1:
            raise Unsupported("a convolution with windows that overlap (`%s`)" % node.target)
        b, y, x_size = shape(node)[0], shape(node)[2], shape(node)[3]
        p, q = map(self.dims.text, size)
        patches = 'rearrange(%s, "b c (y p) (x q) -> b y x (c p q)", p = %s, q = %s)' % (self.text(x, OR), p, q)
        name = self.let("patches", patches)
        text = '%s @ rearrange(%s, "d c p q -> d (c p q)").T' % (name, self.text(weight, OR))
        text += "" if bias is None else " + " + self.text(bias, ADD + 1)
        view = View([b, y, x_size, shape(node)[1]])
        view.permute([0, 3, 1, 2])
        users = list(node.users)
        if len(users) == 1 and operations._name(users[0]) in VIEWS and users[0] in self.scope.items:
            self.views[node] = (text, ADD if bias is not None else MULTIPLY, view)
        else:
            self._keep(i, node, *_viewed(text, ADD, view, self.dims))


def _inputs(node):
    """Tensors that a node uses, each as often as it does."""
    found = []
    torch.fx.map_arg((node.args, node.kwargs), found.append)
    return [one for one in found if is_tensor(one)]


def _wanted(node):
    word = operations._name(node)
    return {"softmax": "weights", "matmul": "product", "layer_norm": "normal", "mean": "mean_", "embedding": "embedded", "linear": "y"}.get(word, "y")


def _same_file(a, b):
    return b is not None and (a == b or b.endswith("/" + a.lstrip("/")) or a.endswith("/" + b.lstrip("/")))


def _viewed(base, precedence, view, dims):
    if view.is_nothing():
        return base, precedence
    if view.is_transpose():
        return "%s.T" % (base if precedence >= POSTFIX else "(%s)" % base), POSTFIX
    return view.call(base, dims), POSTFIX


def _step(view, node, word):
    """Applies a view; False if it is not one of whole axes."""
    args, rank = node.args[1:], len(shape(node.args[0]))
    if word == "permute":
        view.permute([axis % rank for axis in args[0]])
    elif word in ("transpose", "t"):
        a, b = (axis % rank for axis in args) if args else (0, rank - 1)
        order = list(range(rank))
        order[a], order[b] = order[b], order[a]
        view.permute(order)
    elif word == "unsqueeze":
        view.unsqueeze(args[0])
    elif word == "squeeze":
        axes = None if not args else [args[0]] if isinstance(args[0], int) else list(args[0])
        view.squeeze(axes)
    elif word not in ("clone", "contiguous"):
        return view.view(shape(node))
    return True
