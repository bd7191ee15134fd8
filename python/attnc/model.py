"""`compile`, and the model that it returns.

In: a program and options. Out: a `Model`, which loads the compiled library through the wrapper (`model.py`) that the command
wrote beside it. Nothing is compiled twice: a library is kept under a hash of the program, the options and the compiler.
"""

import collections
import functools
import hashlib
import html
import importlib.util
import json
import os

from . import cache
from .command import CompileError, build, run

Parameter = collections.namedtuple("Parameter", "name shape dtype")
Remark = collections.namedtuple("Remark", "pass_name at function missed message notes edit")
Remark.__doc__ = "What a pass did, or the condition (`missed`) that kept it from rewriting, and the `edit` of the program that would help, if one is known. `at` is (line, column)."


class Text(str):
    """A dump, which a notebook shows as text instead of as a string literal."""

    __slots__ = ()

    def _repr_pretty_(self, printer, _):
        printer.text(str(self))


class Report:
    """The report of a compilation, one page of HTML, which a notebook shows inline."""

    def __init__(self, page, height=720):
        self.html = page
        self.height = height

    def save(self, path):
        """Writes the page to a file."""
        with open(path, "w", encoding="utf-8") as file:
            file.write(self.html)

    def _repr_html_(self):
        # The page in an attribute: it needs no server, and its styles and scripts stay apart from the notebook's.
        style = "width:100%%;height:%dpx;border:1px solid #8884" % self.height
        return '<iframe title="Report of attnc" style="%s" srcdoc="%s"></iframe>' % (style, html.escape(self.html))

    def __repr__(self):
        return "<report of attnc, %.1f MB; save(path) writes it>" % (len(self.html) / 1e6)


def compile(program, dims=None, *, pack=None, target=None, cpu=None, entry=None, flags=(), weights=None, threads=None, device=None):
    """Compiles a program, and returns a `Model`.

    `program` is the text of a program, the path of a file (`.attn`, or a dump such as `.air`), or a result of `from_torch`.
    `dims` binds dimensions and element types: {"D": 64, "E": "bf16"}. `pack`, `target`, `cpu` and `entry` are the options of
    the command with the same names, `flags` any others: ["-O1", "--float", "strict"]. `weights` is a safetensors file (or
    the index of several), a folder of the Hugging Face hub, or a dict of arrays of NumPy or PyTorch by name; `threads` and
    `device` are those of the generated wrapper. Raises `CompileError`.
    """
    options = []
    for name, value in (dims or {}).items():
        options += ["--dim", "%s=%s" % (name, value)]
    for option, value in (("--pack", pack), ("--target", target), ("--cpu", cpu), ("--entry", entry)):
        if value is not None:
            options += [option, value if isinstance(value, str) else ",".join(value)]
    options += [str(flag) for flag in flags]
    if hasattr(program, "source") and hasattr(program, "weights"):
        weights = program.weights if weights is None else weights
        program = program.source
    return Model(_Program(program, options), weights, threads, device)


class _Program:
    """A program with its options, as the command takes them: a file, or a text for its stdin."""

    def __init__(self, given, options):
        self.options = options
        is_path = isinstance(given, os.PathLike) or (isinstance(given, str) and "{" not in given and "\n" not in given)
        if is_path:
            self.argument = os.fspath(given)
            try:
                with open(given, "rb") as file:
                    self.text = file.read().decode(errors="replace")
            except OSError as error:
                raise CompileError("cannot read %s: %s" % (given, error.strerror)) from None
        elif isinstance(given, str):
            self.argument, self.text = "-", given
        else:
            raise TypeError("expected the text or the path of a program, found %s" % type(given).__name__)

    def run(self, *arguments):
        # The text that was read, also of a file: all dumps are then of the same program, whatever is written meanwhile.
        if self.argument == "-" or not self.argument.endswith(".attn"):
            return run(self.argument, *self.options, *arguments, program=self.text if self.argument == "-" else None)
        with open(self.argument, "rb") as file:
            unchanged = file.read().decode(errors="replace") == self.text
        return run(self.argument if unchanged else "-", *self.options, *arguments, program=self.text)

    def key(self):
        """A hash of everything that the library depends on."""
        environment = sorted((name, value) for name, value in os.environ.items() if name.startswith("ATTNC_") and name != "ATTNC_CACHE")
        about = [build(), os.path.splitext(self.argument)[1], self.text, self.options, environment]
        return hashlib.sha256(json.dumps(about).encode()).hexdigest()[:32]


@functools.lru_cache(maxsize=None)
def _wrapper(folder):
    """The module that the command wrote with a library; a folder never changes, so it is loaded once."""
    name = "attnc_model_" + os.path.basename(folder)
    spec = importlib.util.spec_from_file_location(name, os.path.join(folder, "model.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _weights(given):
    """Weights as the wrapper takes them: a file, a dict, or None."""
    if hasattr(given, "state_dict"):
        given = given.state_dict()
    if given is None or hasattr(given, "items") or not os.path.isdir(given):
        return given
    for name in ("model.safetensors", "model.safetensors.index.json"):
        path = os.path.join(given, name)
        if os.path.exists(path):
            return path
    raise FileNotFoundError("%s has no model.safetensors and no model.safetensors.index.json" % given)


class Model:
    """A compiled program. `model(x)` calls `forward`; every entry point is a method.

    The library is opened, and its weights are mapped, at the first call. `load(weights)` opens it with others.
    """

    def __init__(self, program, weights=None, threads=None, device=None):
        self._program = program
        self._given = (weights, threads, device)
        self._open = None

        def write(folder):
            _, self.diagnostics = program.run("-o", os.path.join(folder, "model.so"), "--emit", "so,header,python")

        self.diagnostics = []
        folder = cache.folder(program.key(), write)
        self.library = os.path.join(folder, "model.so")
        self._module = _wrapper(folder)

    # ---- calls

    def load(self, weights):
        """Opens the model with these weights from now on; its states begin anew. Returns the model."""
        self.close()
        self._given = (weights, *self._given[1:])
        self._opened()
        return self

    def _opened(self):
        if self._open is None:
            weights, threads, device = self._given
            self._open = self._module.Model(self.library, _weights(weights), threads, device)
        return self._open

    def __call__(self, *values, **options):
        return self._opened()(*values, **options)

    def __getattr__(self, name):
        # Entry points and the other methods of the wrapper: session, reset, stream, device ...
        if name.startswith("_") or not hasattr(self._module.Model, name):
            raise AttributeError("the model has no entry point or attribute %r; entry points: %s" % (name, ", ".join(self.entry_points)))
        return getattr(self._opened(), name)

    def __dir__(self):
        return sorted({*super().__dir__(), *(name for name in dir(self._module.Model) if not name.startswith("_"))})

    @property
    def entry_points(self):
        """The names of the functions that can be called."""
        return [name for name in vars(self._module._Entries) if not name.startswith("_")]

    @property
    def parameters(self):
        """Name, shape and element type of every parameter: [Parameter("h.0.bias", (4,), "f32"), ..]."""
        return [Parameter(*one) for one in self._module._parameters()]

    def close(self):
        """Frees the weights and states. The next call opens the model again."""
        if self._open is not None:
            self._open.close()
            self._open = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    # ---- what the compiler made

    @property
    def source(self):
        """The text of the program."""
        return Text(self._program.text)

    def dump(self, kind="ir", *, after=None, flags=()):
        """The text of a stage: "types", "ir", "tile", "vector", "mir", "asm", "ptx" (the kinds of `--emit`).

        `after` is a pass or a step of the schedule after which to stop: dump("ir", after="cse"). `flags` are further options:
        dump("asm", flags=["--cpu", "avx512", "--kernel", "attention.0"]).
        """
        flags = [*flags, *([] if after is None else ["--stop-after", after])]
        return Text(self._program.run("--emit", kind + "=-", *flags)[0])

    @property
    def ir(self):
        """The graph IR after all passes; `dump("ir", after="cse")` is the one after a pass."""
        return self.dump("ir")

    @functools.cached_property
    def record(self):
        """The record of the compilation, all stages as data (docs/guide/record.md)."""
        return json.loads(self._program.run("--emit", "record=-")[0])

    @property
    def remarks(self):
        """What the passes did, and why they did not do more: a list of `Remark`."""
        return [Remark(r["pass"], tuple(r["at"][1:]), r["function"], r["missed"], r["message"], r["notes"], r["edit"]) for r in self.record["remarks"]]

    def report(self, height=720):
        """The report, a page that shows every stage side by side; a notebook shows it inline."""
        return Report(self._program.run("--emit", "html=-")[0], height)

    def __repr__(self):
        signatures = "; ".join(entry[0] for entry in self._module._ENTRIES)
        return "<attnc model: %s>" % signatures
