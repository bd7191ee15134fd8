"""Does the Python package do what docs/guide/python.md says?

    ATTNC=target/tests/attnc python tests/python/check.py [--torch]

With `--torch` it compares programs of `from_torch` with PyTorch, or exits with 3 if PyTorch is not installed. Without, it tests
the rest, which needs NumPy alone.
"""

import os
import pathlib
import struct
import json
import sys
import tempfile
import types

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "tests" / "python")]

import attnc  # noqa: E402

ATTENTION = """
model Attention<D = 64> {
    pub fn forward(q: f32[S, D], k: f32[T, D], v: f32[T, D]) -> f32[S, D] {
        softmax(q @ k.T / sqrt(D)) @ v
    }
    pub fn scores(q: f32[S, D], k: f32[T, D]) -> f32[S, T] { q @ k.T }
}
"""
AFFINE = "model Affine<D = 3> {\n    w: f32[D]\n    b: f32[D]\n    pub fn forward(x: f32[S, D]) -> f32[S, D] { x * w + b }\n}\n"
RNG = np.random.default_rng(1)


def floats(*shape):
    return RNG.random(shape, np.float32)


def close(a, b, bound=1e-5):
    assert np.shape(a) == np.shape(b), (np.shape(a), np.shape(b))
    assert np.allclose(a, b, rtol=bound, atol=bound), np.abs(np.asarray(a) - np.asarray(b)).max()


def calls():
    """Entry points, dimensions, dumps, remarks and the report."""
    q, k, v = floats(3, 8), floats(5, 8), floats(5, 8)
    model = attnc.compile(ATTENTION, {"D": 8}, flags=["--cpu", "avx2"])
    scores = np.exp(q @ k.T / np.sqrt(8))
    expected = scores / scores.sum(1, keepdims=True) @ v
    close(model(q, k, v), expected)
    close(model.forward(q, k, v), expected)
    close(model.scores(q, k), q @ k.T)
    assert model.entry_points == ["forward", "scores"] and "scores" in dir(model)
    assert model.source == ATTENTION
    assert "= attention %0" in model.ir
    assert "= softmax" in model.dump("ir", after="cse") and "attention %0" not in model.dump("ir", after="cse")
    assert "vector" in model.dump("tile") or "kernel" in model.dump("tile")
    remark = next(one for one in model.remarks if one.pass_name == "fuse-attention")
    assert remark.missed is None and remark.at == (4, 9) and remark.function == "forward", remark
    page = model.report()._repr_html_()
    assert page.startswith("<iframe") and "srcdoc=" in page and "fuse-attention" in page
    assert page.count("<") == 2, "the page is escaped"
    try:
        model.nothing
    except AttributeError as error:
        assert "forward, scores" in str(error)
    else:
        raise AssertionError("an entry point that does not exist")


def errors():
    """A refused program is an exception with the rendered message, and with the message as data."""
    try:
        attnc.compile(ATTENTION.replace("k.T / sqrt", "k / sqrt"))
    except attnc.CompileError as error:
        assert str(error).startswith("error[E0301]: `@` needs equal inner dimensions") and "transpose the right side" in str(error)
        assert [one.code for one in error.diagnostics] == ["E0301"] and error.diagnostics[0].data["spans"]
    else:
        raise AssertionError("compiled")
    for wrong, said in ((dict(flags=["--nothing"]), "unexpected argument '--nothing'"), (dict(pack="int3"), "int3"), (dict(dims={"E": 4}), "E")):
        try:
            attnc.compile(ATTENTION, **wrong)
        except attnc.CompileError as error:
            assert said in str(error), error
        else:
            raise AssertionError("compiled")


def again(folder):
    """A program that is changed and compiled again gives the new numbers, in one process and from one file."""
    path = folder / "again.attn"
    x = floats(4, 3)
    made = []
    for factor in (2, 3, 2):
        path.write_text("model M { pub fn forward(x: f32[S, 3]) -> f32[S, 3] { x * %d } }" % factor)
        made.append(attnc.compile(path))
        close(made[-1](x), x * factor)
    close(made[0](x), x * 2)
    close(made[1](x), x * 3)
    assert made[0].library == made[2].library != made[1].library
    assert "* 2" in made[0].source and "3.0" in made[1].ir, "dumps are of the program that was compiled"
    # Options, and the compiler itself, are part of what a library is.
    other = attnc.compile(path, flags=["-O0"])
    assert other.library != made[0].library
    assert not [one for one in os.listdir(os.path.dirname(os.path.dirname(other.library))) if one.startswith(".new-")]


def safetensors(path, tensors):
    header, at, data = {}, 0, b""
    for name, array in tensors.items():
        header[name] = {"dtype": "F32", "shape": list(array.shape), "data_offsets": [at, at + array.nbytes]}
        data += array.tobytes()
        at += array.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def weights(folder):
    """Weights from a dict, a file and a folder; parameters without any."""
    tensors = {"w": floats(3), "b": floats(3)}
    x = floats(4, 3)
    model = attnc.compile(AFFINE)
    assert sorted(model.parameters) == [attnc.Parameter("b", (3,), "f32"), attnc.Parameter("w", (3,), "f32")]
    try:
        model(x)
    except RuntimeError as error:
        assert "weights" in str(error), error
    else:
        raise AssertionError("a call without weights")
    close(model.load(tensors)(x), x * tensors["w"] + tensors["b"])
    file = folder / "model.safetensors"
    safetensors(file, tensors)
    for given in (file, str(folder), tensors):
        close(attnc.compile(AFFINE, weights=given)(x), x * tensors["w"] + tensors["b"])
    other = {"w": tensors["w"] + 1, "b": tensors["b"]}
    close(model.load(other)(x), x * other["w"] + other["b"])


def magic():
    """`%%attnc` compiles its cell."""
    found = {}
    shell = types.SimpleNamespace(
        user_ns={"given": {"w": np.ones(3, np.float32), "b": np.zeros(3, np.float32)}},
        push=found.update,
        register_magic_function=lambda function, magic_kind, magic_name: found.update({magic_kind + magic_name: function}),
    )
    attnc.load_ipython_extension(shell)
    x = floats(2, 3)
    model = found["cellattnc"]("affine weights=given --cpu avx2", AFFINE)
    close(found["affine"](x), x)
    assert model is found["affine"] and model.source == AFFINE
    found["cellattnc"]("", AFFINE)
    assert found["model"].parameters


def flat(values):
    return [one for value in values for one in (flat(value) if isinstance(value, (list, tuple)) else [value])]


def modules():
    """`from_torch` equals PyTorch, at the example's lengths and at others; the text has names for sizes."""
    import torch

    torch.manual_seed(1)
    from modules import MODULES

    for name, (make, inputs, others) in MODULES.items():
        module = make().eval()
        program = attnc.from_torch(module, inputs)
        model = program.compile(flags=["--cpu", "avx2"])
        # Rotary positions halve the width of a head, which no fact of the program says: there all sizes are numbers.
        assert ("<D = " in program.source or ", D = " in program.source) == (name != "grouped"), "%s: sizes have no names\n%s" % (name, program)
        for given in (inputs, others):
            with torch.no_grad():
                expected = module(*given)
            expected = expected if isinstance(expected, tuple) else (expected,)
            results = model(*flat(given))
            results = results if isinstance(results, tuple) else (results,)
            assert len(results) == len(expected), name
            for made, wanted in zip(results, expected):
                close(made, wanted.numpy())
    # Blocks that are alike are one layer in a loop.
    gpt = attnc.from_torch(MODULES["gpt"][0](), MODULES["gpt"][1]).source
    for said in ("layer Block<", "h:       [Block<T, D, H, F>; 2]", "for block in h { x = block(x) }", "mlp:  Sequential<Linear<D, F>, GELU, Linear<F, D>>"):
        assert said in gpt, gpt
    refused(torch)


def refused(torch):
    """What the language cannot say is refused by the name of the operation, with its place."""
    from attnc.export import Unsupported

    class Inverse(torch.nn.Module):
        def forward(self, x):
            return torch.linalg.inv(x @ x.T)

    class Counting(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("calls", torch.zeros(()))

        def forward(self, x):
            self.calls += 1
            return x * self.calls

    example = (torch.rand(4, 4),)
    for module, said in ((Inverse(), "linalg"), (Counting(), "calls"), (torch.nn.Conv2d(3, 4, 3), "conv2d")):
        given = (torch.rand(1, 3, 9, 9),) if isinstance(module, torch.nn.Conv2d) else example
        try:
            attnc.from_torch(module, given)
        except Unsupported as error:
            assert said in str(error), error
        else:
            raise AssertionError("%s was not refused" % type(module).__name__)
    module = torch.nn.Dropout(0.5).train()
    assert module.training and "x" in str(attnc.from_torch(torch.nn.Sequential(torch.nn.Linear(4, 4), module).train(), example)) and module.training


def main():
    with tempfile.TemporaryDirectory() as folder:
        os.environ["ATTNC_CACHE"] = os.path.join(folder, "cache")
        if "--torch" in sys.argv[1:]:
            try:
                import torch  # noqa: F401
            except ImportError:
                sys.exit(3)
            modules()
            return
        calls()
        errors()
        again(pathlib.Path(folder))
        weights(pathlib.Path(folder))
        magic()


if __name__ == "__main__":
    main()
