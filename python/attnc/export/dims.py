"""Sizes as the program writes them.

In: sizes of tensors, integers or formulas of SymPy over the lengths that a call brings. Out: dimensions of the language. A
size of the module, such as 768, gets a name from where it occurs (`D` of a LayerNorm, `V` of an Embedding), and then
every 768 is `D`; what divides it or is a multiple of it is a formula: `D / H`, `3*D`.
"""

import sympy

from .trace import Unsupported

# Attributes of modules that tell what a size is for; the first that is found counts.
ROLES = {
    "V": ("vocab_size", "n_vocab", "num_embeddings"),
    "D": ("d_model", "embed_dim", "n_embd", "hidden_size", "dim", "normalized_shape", "embedding_dim", "width", "input_size"),
    "H": ("num_heads", "n_head", "n_heads", "nhead", "heads", "num_attention_heads", "h"),
    "G": ("num_key_value_heads", "n_kv_heads", "num_kv_heads", "kv_heads", "n_kv_head", "groups_kv"),
    "T": ("block_size", "max_len", "max_position_embeddings", "n_positions", "context"),
    "F": ("intermediate_size", "d_ff", "ffn_dim", "hidden_features", "mlp_dim", "dim_feedforward"),
}
SPARE = "FEKNMRQWUYZ"


class Dims:
    """Names of sizes. With `named` false every size of the module is a number."""

    def __init__(self, trace, named):
        self.constants, self.runtime, self.batches = {}, {}, {}
        self.named, self.heads, self.multiples = named, None, {}
        for node in trace.inputs:
            self._name_lengths(node.meta["val"])
        if named:
            self._name_sizes(trace)

    # ---- names

    def _taken(self):
        return {*self.constants.values(), *self.runtime.values()}

    def _name_lengths(self, tensor):
        """The lengths of an input: B S D for floats, B S for tokens, B C Y X for images."""
        rank = tensor.dim()
        hints = {1: "S", 2: "BS" if not tensor.dtype.is_floating_point else "BD", 3: "BSD", 4: "BCYX"}.get(rank, "BNMYXZ"[:rank])
        for size, hint in zip(tensor.shape, hints):
            for symbol in sorted(sympy_of(size).free_symbols, key=str):
                if symbol not in self.runtime and hint == "B" and size.node.hint in self.batches:
                    # Inputs of the same length are taken for one batch.
                    self.runtime[symbol] = self.batches[size.node.hint]
                if symbol not in self.runtime:
                    free = [name for name in hint + "STNMLJKQRUWXYZ" if name not in self._taken()]
                    self.runtime[symbol] = free[0]
                    if hint == "B":
                        self.batches[size.node.hint] = free[0]

    def _name(self, name, size):
        if isinstance(size, int) and size > 3 and size not in self.constants:
            spare = [one for one in (name, *SPARE) if one not in self._taken()]
            if spare:
                self.constants[size] = spare[0]

    def _name_sizes(self, trace):
        modules = list(trace.module.modules())
        for name, attributes in ROLES.items():
            found = [getattr(module, attribute, None) for module in modules for attribute in attributes]
            found = [one[-1] if isinstance(one, tuple) and one else one for one in found]
            found = [one for one in found if isinstance(one, int) and not isinstance(one, bool)]
            if name == "H" and found:
                self.heads = found[0]
            for size in found:
                if name not in self.constants.values():
                    self._name(name, size)
            if name == "V":
                for size in found[1:]:
                    self._name("T", size)
        for node in trace.inputs:
            tensor = node.meta["val"]
            if tensor.is_floating_point() and 2 <= tensor.dim() <= 3 and "D" not in self.constants.values():
                self._name("D", tensor.shape[-1])
        width = self.values().get("D")
        for node in trace.nodes if width and self.heads is None else []:
            # The heads of a view that splits the width.
            shape = [int(one) if sympy_of(one).is_Integer else 0 for one in getattr(node.meta["val"], "shape", ())]
            for heads, size in zip(shape, shape[1:]):
                if heads * size == width and heads > 1 and size > 1 and self.heads is None:
                    self.heads = heads
                    self._name("H", heads)
        for node in trace.nodes:
            # What is split into parts is a multiple of one.
            is_split = getattr(node.target, "__name__", "").split(".")[0] in ("split", "chunk", "split_with_sizes")
            parts = node.meta["val"] if is_split else []
            if len(parts) > 1 and all(one.shape == parts[0].shape for one in parts):
                axis = node.args[2] if len(node.args) > 2 else 0
                total, part = node.args[0].meta["val"].shape[axis], parts[0].shape[axis]
                if isinstance(total, int) and self._derived(total) is None:
                    if self._derived(part) is None:
                        self._name("F", part)
                    self.multiples[total] = len(parts), part
        for key in sorted(trace.weights):
            tensor = trace.weights[key]
            # Not the windows of convolutions, whose sizes divide those of images, nor lengths of sequences.
            if tensor.is_floating_point() and tensor.dim() < 3:
                for size in reversed(tensor.shape):
                    if self._derived(size) is None:
                        self._name("D" if "D" not in self.constants.values() else "F", size)

    def _derived(self, size):
        """3*D, or D / H for the size of a head."""
        if size in self.constants or not self.named:
            return self.constants.get(size)
        by_name = {name: value for value, name in self.constants.items()}
        width, heads = by_name.get("D"), by_name.get("H")
        if size in self.multiples:
            count, part = self.multiples[size]
            return "%d*%s" % (count, self.constants[part]) if part in self.constants else None
        if width and self.heads and width % self.heads == 0 and width // self.heads == size:
            return "D / %s" % ("H" if heads else self.heads)
        for base in ("D", "H"):
            if by_name.get(base) and size in (3 * by_name[base], 2 * by_name[base]):
                return "%d*%s" % (size // by_name[base], base)
        groups = by_name.get("G")
        if width and heads and groups and width % heads == 0 and size == groups * (width // heads):
            return "G * (D / H)"
        if heads and groups and heads % groups == 0 and size == heads // groups and size > 1:
            return "H / G"
        return None

    # ---- text

    def text(self, size, spaced=True):
        """A size as a dimension."""
        expression = sympy_of(size)
        if expression.is_Integer:
            text = self._derived(int(expression)) or str(int(expression))
        else:
            text = self._formula(expression)
        return text if spaced else text.replace(" / ", "/")

    def _formula(self, e, inner=False):
        if e.is_Symbol:
            if e not in self.runtime:
                raise Unsupported("a length is computed from the data (%s)" % e)
            return self.runtime[e]
        if e.is_Integer:
            value = int(e)
            return str(value) if value < 4 else self.text(value)
        name = type(e).__name__
        if e.is_Add:
            positive = sorted(e.args, key=lambda one: (one.is_Integer, str(one)))
            out = self._formula(positive[0])
            for term in positive[1:]:
                negative = term.could_extract_minus_sign()
                out += " - %s" % self._formula(-term, True) if negative else " + %s" % self._formula(term)
            return "(%s)" % out if inner else out
        if e.is_Mul:
            numerator, denominator = e.as_numer_denom()
            if denominator != 1:
                return "%s / %s" % (self._formula(numerator, True), self._formula(denominator, True))
            return " * ".join(self._formula(one, True) for one in sorted(e.args, key=lambda one: (not one.is_Integer, str(one))))
        if e.is_Pow and e.exp.is_Integer and int(e.exp) > 0:
            return " * ".join([self._formula(e.base, True)] * int(e.exp))
        functions = {"FloorDiv": "floor_div", "CleanDiv": "floor_div", "Max": "max", "Min": "min"}
        if name in functions:
            return "%s(%s)" % (functions[name], ", ".join(self._formula(one) for one in e.args))
        if name in ("Mod", "PythonMod"):
            return "(%s %% %s)" % tuple(self._formula(one, True) for one in e.args)
        raise Unsupported("the length %s has no formula in the language" % e)

    def names_in(self, text):
        """The names of sizes of the module that occur in a text, in the order of `constants`."""
        import re

        words = set(re.findall(r"\b[A-Z]\w*\b", text))
        return [name for name in self._order() if name in words]

    def _order(self):
        order = "VTDHGFP"
        return sorted(self.constants.values(), key=lambda name: (order.find(name) if name in order else 99, name))

    def values(self):
        """Values by name."""
        return {name: value for value, name in self.constants.items()}

    def where(self, names):
        """The facts that make quotients of these names exact, which formulas of them may need."""
        value = self.values()
        pairs = [("D", "H"), ("H", "G")]
        facts = [
            "%s %% %s == 0" % (a, b)
            for a, b in pairs
            if a in names and b in names and value[a] % value[b] == 0
        ]
        if "D" in names and self.heads and self.heads not in self.constants and value["D"] % self.heads == 0 and self.heads > 1:
            facts.append("D %% %d == 0" % self.heads)
        return " where " + ", ".join(facts) if facts else ""


def sympy_of(size):
    """A size as a formula of SymPy."""
    if isinstance(size, int):
        return sympy.Integer(size)
    if hasattr(size, "node"):
        return sympy.sympify(size.node.expr)
    return sympy.sympify(size)
