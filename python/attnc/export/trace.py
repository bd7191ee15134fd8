"""From a PyTorch module to a tree of calls of its modules.

In: a module and example inputs. Out: a `Trace`: the operations of `torch.export`, decomposed to core ATen except where the
language says an operation directly, as a tree of the modules that called them; the inputs, parameters and results.
It knows nothing of the language.
"""

import contextlib
import re

import torch

# Not decomposed, because the language has them.
KEPT = {
    "embedding", "gelu", "layer_norm", "linear", "log_softmax", "matmul", "rms_norm", "scaled_dot_product_attention", "silu",
    "softmax", "split", "chunk", "unbind", "unflatten", "flatten", "mean", "sum", "one_hot", "softplus", "conv2d",
}  # fmt: skip


class Unsupported(NotImplementedError):
    """The module uses an operation that the language lacks, or has in another form only."""


class Scope:
    """A call of a module: `items` are operations and calls of modules below it, in order."""

    def __init__(self, key, fqn, kind):
        self.key, self.fqn, self.kind = key, fqn, kind
        self.items = []

    def nodes(self):
        """All operations of the call."""
        for item in self.items:
            yield from item.nodes() if isinstance(item, Scope) else [item]


class Trace:
    def __init__(self, module, program):
        self.module = module
        self.program = program
        graph = program.graph_module.graph
        graph.eliminate_dead_code()
        self.weights, self.names, self.inputs = {}, {}, []
        tensors = {**program.constants, **program.state_dict}
        for node, spec in zip([n for n in graph.nodes if n.op == "placeholder"], program.graph_signature.input_specs):
            kind = spec.kind.name
            if kind in ("PARAMETER", "BUFFER", "CONSTANT_TENSOR"):
                if node.users:
                    self.names[node] = spec.target
                    self.weights[spec.target] = tensors[spec.target].detach()
            elif kind == "USER_INPUT" and isinstance(node.meta.get("val"), torch.Tensor):
                self.inputs.append(node)
            elif node.users and kind != "TOKEN":
                raise Unsupported("the input `%s` is not a tensor" % node.name)
        for spec in program.graph_signature.output_specs:
            if spec.kind.name not in ("USER_OUTPUT", "TOKEN"):
                raise Unsupported("a call changes `%s`, and a program can only change its states" % spec.target)
        output = next(n for n in graph.nodes if n.op == "output")
        self.results = [one for one in output.args[0] if isinstance(one, torch.fx.Node) and isinstance(one.meta.get("val"), torch.Tensor)]
        self.nodes = [n for n in graph.nodes if n.op == "call_function" and isinstance(_first(n.meta.get("val")), torch.Tensor)]
        self.symbols = program.range_constraints

    def tree(self, dissolved):
        """The tree of calls; those of modules in `dissolved` are part of the call around them."""
        root = Scope("", "", type(self.module).__name__)
        dissolved = set(map(pattern, dissolved))
        stack, runs = [root], {}
        for node in self.nodes:
            path = [one for one in _path(node) if pattern(one[1]) not in dissolved]
            common = 0
            while common < len(path) and common + 1 < len(stack) and stack[common + 1].key == path[common][0]:
                common += 1
            del stack[common + 1 :]
            for key, fqn, kind in path[common:]:
                runs[key, fqn] = runs.get((key, fqn), 0) + 1
                scope = Scope(key, fqn, kind)
                stack[-1].items.append(scope)
                stack.append(scope)
            stack[-1].items.append(node)
        # The operations of these modules are not contiguous, so they have no body of their own.
        torn = {fqn for (_, fqn), count in runs.items() if count > 1}
        return self.tree(dissolved | torn) if torn else root


def pattern(fqn):
    """The path of a module, the same for all elements of a list that it is in."""
    return re.sub(r"(?<=\.)\d+(?=\.)", "*", fqn)


def _first(value):
    return value[0] if isinstance(value, (list, tuple)) and value else value


def _path(node):
    """(key, path, class) of the modules around an operation, from the outside, without the whole."""
    for key, (fqn, kind) in (node.meta.get("nn_module_stack") or {}).items():
        fqn = re.sub(r"@\d+$", "", fqn)
        if fqn and not key.startswith("_empty"):
            yield key, fqn, kind if isinstance(kind, str) else "%s.%s" % (kind.__module__, kind.__qualname__)


def place(node):
    """The line of the module's source that an operation comes from: (file, line, text), or None."""
    frames = re.findall(r'File "([^"]+)", line (\d+), in \S+\n\s*(.*)', node.meta.get("stack_trace") or "")
    return frames[-1] if frames else None


@contextlib.contextmanager
def _inference(module):
    """Dropout off, and no fast paths: these are operations of their own, which say less."""
    training = {one: one.training for one in module.modules()}
    fast = torch.backends.mha.get_fastpath_enabled()
    module.eval()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with torch.no_grad():
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)
        for one, was in training.items():
            one.training = was


def trace(module, inputs, keywords, dynamic):
    """Exports a module."""
    from torch.export import Dim, default_decompositions, export

    inputs = tuple(inputs) if isinstance(inputs, (list, tuple)) else (inputs,)

    def axes(value):
        # Of images only the number: their size determines the model's.
        if not isinstance(value, torch.Tensor):
            return type(value)(map(axes, value)) if isinstance(value, (list, tuple)) else None
        return {axis: Dim.AUTO for axis in range(value.dim() if value.dim() < 4 else 1)}

    shapes = (tuple(map(axes, inputs)), {name: axes(value) for name, value in keywords.items()}) if dynamic else None
    with _inference(module):
        if shapes is not None:
            # Keywords follow in the order of `forward`; the shapes of both are given by name.
            import inspect

            names = list(inspect.signature(module.forward).parameters)
            shapes = {**dict(zip(names, shapes[0])), **shapes[1]} if len(names) >= len(inputs) and not _variadic(module) else None
        program = export(module, inputs, keywords, dynamic_shapes=shapes, strict=False)
        table = default_decompositions()
        for operation in list(table):
            if operation.name().split("::")[1].split(".")[0] in KEPT:
                table.pop(operation)
        return Trace(module, program.run_decompositions(table))


def _variadic(module):
    import inspect

    kinds = [one.kind for one in inspect.signature(module.forward).parameters.values()]
    return inspect.Parameter.VAR_POSITIONAL in kinds
