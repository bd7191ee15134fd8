"""attnc: an ahead-of-time compiler for attention graphs, from Python.

    import attnc
    model = attnc.compile("attention.attn", dims={"D": 64})
    model(q, k, v)

`compile` calls the command `attnc` and loads the library that it writes through the wrapper that it writes beside it;
`from_torch` turns a PyTorch module into a program. `%load_ext attnc` adds the cell magic `%%attnc`.
"""

from .command import CompileError, Diagnostic, command, run
from .model import Model, Parameter, Remark, Report, Text, compile

__all__ = [
    "CompileError",
    "Diagnostic",
    "Model",
    "Parameter",
    "Remark",
    "Report",
    "Text",
    "command",
    "compile",
    "from_torch",
    "run",
]


def from_torch(module, example_inputs, **options):
    """The program of a PyTorch module, with its weights: see `attnc.export.from_torch`. Needs PyTorch."""
    from .export import from_torch

    return from_torch(module, example_inputs, **options)


def load_ipython_extension(shell):
    """`%load_ext attnc`."""
    from .magic import register

    register(shell)
