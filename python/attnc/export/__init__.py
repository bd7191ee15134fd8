"""From a PyTorch module to a program of the language.

`from_torch(module, example_inputs)` exports a module with `torch.export`, and writes its computation as layers with the names of
its attributes. An operation that the language lacks is refused by its name (`Unsupported`).
"""

from ..command import CompileError, run
from ..model import Text, compile
from .dims import Dims
from .layers import Writer
from .trace import Unsupported, trace

__all__ = ["Program", "Unsupported", "from_torch"]


class Program:
    """The text of a program (`source`), and the weights of the module that it was made from, by the names of its parameters."""

    def __init__(self, source, weights):
        self.source = Text(source)
        self.weights = weights

    def compile(self, **options):
        """Compiles the program with its weights: `attnc.compile(program, ..)`."""
        return compile(self, **options)

    def save(self, path):
        """Writes the text to a file."""
        with open(path, "w", encoding="utf-8") as file:
            file.write(self.source)

    def __str__(self):
        return str(self.source)

    def __repr__(self):
        return str(self.source)


def from_torch(module, example_inputs, *, keywords=None, dynamic=True, name=None):
    """The program of a PyTorch module, in inference mode.

    `example_inputs` is a tensor or a tuple of tensors, `keywords` a dict of further ones. Axes of inputs that may have any
    length for the module have one for each call; with `dynamic = False` all have that of the example. An axis of length 1
    in the example always has length 1.
    """
    traced = trace(module, example_inputs, dict(keywords or {}), dynamic)
    name = name or type(module).__name__
    doc = "`%s`, exported from PyTorch." % type(module).__name__
    refused = None
    # Sizes that are equal are taken for the same dimension. Where that is not so, the program has numbers.
    for named in (True, False):
        source = Writer(traced, Dims(traced, named)).program(name, doc)
        try:
            source, _ = run("fmt", "-", program=source)
            run("check", "-", program=source)
        except CompileError as error:
            refused = refused or Unsupported("the program of this module is refused; this is a fault of from_torch:\n%s\n%s" % (error, source))
            continue
        return Program(source, {key: value.contiguous() for key, value in traced.weights.items()})
    raise refused
