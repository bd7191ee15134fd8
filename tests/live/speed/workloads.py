"""What is timed: programs of attnc, and the same computation for everybody else.

A workload has the program with its dimensions, inputs and weights, and `compute`, which says the same in the
operations of graphs.py. FLOPs are those of the formula (half of the square for a causal mask), so that they are
the same for all; `least_bytes` is what must be read for each call, given where that is the limit.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Callable

import numpy as np

ROOT = Path(__file__).resolve().parent.parent.parent.parent
HERE = Path(__file__).resolve().parent


@dataclass
class Workload:
    name: str
    program: Path
    model: str
    compute: Callable
    inputs: dict
    weights: dict = field(default_factory=dict)
    dims: dict = field(default_factory=dict)
    flops: float = 0
    least_bytes: float = 0
    wanted: float = 1.0
    rename: Callable = lambda name, array: (name, array)
    precision: str = "f32"

    def weights_for_attnc(self):
        return dict(self.rename(name, array) for name, array in self.weights.items())


class Random:
    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)

    def normal(self, *shape, scale=1.0):
        return self.rng.standard_normal(shape, np.float32) * np.float32(scale)


def product(rows, steps, columns, wanted):
    r = Random(0)
    return Workload(
        f"matmul {rows} x {steps} x {columns}, both arguments",
        HERE / "matmul.attn",
        "Product",
        lambda g, x, w: g.matmul(x["x"], x["y"]),
        {"x": r.normal(rows, steps), "y": r.normal(steps, columns)},
        flops=2 * rows * steps * columns,
        wanted=wanted,
    )


def weight(rows, steps, columns, wanted):
    r = Random(1)
    return Workload(
        f"matmul {rows} x {steps} x {columns}, one a weight",
        HERE / "matmul.attn",
        "Weight",
        lambda g, x, w: g.linear(x["x"], w["weight"]),
        {"x": r.normal(rows, steps)},
        {"weight": r.normal(columns, steps)},
        {"I": steps, "O": columns},
        flops=2 * rows * steps * columns,
        wanted=wanted,
    )


def attention(heads, rows, width, wanted):
    r = Random(2)
    return Workload(
        f"attention written out, causal, {heads} x {rows} x {width}",
        HERE / "attention.attn",
        "Attention",
        lambda g, x, w: g.attention(x["q"], x["k"], x["v"], True),
        {name: r.normal(heads, rows, width) for name in "qkv"},
        dims={"D": width},
        flops=2 * heads * rows * rows * width,
        wanted=wanted,
    )


def block_weights(r, layers, d, f):
    weights = {}
    for i in range(layers):
        for norm in ("norm1", "norm2"):
            weights[f"blocks.{i}.{norm}.weight"] = 1 + r.normal(d, scale=0.1)
            weights[f"blocks.{i}.{norm}.bias"] = r.normal(d, scale=0.1)
        for name, rows, columns in (
            ("attn.qkv", 3 * d, d),
            ("attn.out", d, d),
            ("ff.up", f, d),
            ("ff.down", d, f),
        ):
            weights[f"blocks.{i}.{name}.weight"] = r.normal(rows, columns, scale=columns**-0.5)
            weights[f"blocks.{i}.{name}.bias"] = r.normal(rows, scale=0.1)
    return weights


def block(g, x, w, i, heads, causal):
    def part(name):
        return w[f"blocks.{i}.{name}.weight"], w[f"blocks.{i}.{name}.bias"]

    q, k, v = g.heads(g.linear(g.norm(x, *part("norm1")), *part("attn.qkv")), heads)
    x = g.add(x, g.linear(g.merged(g.attention(q, k, v, causal)), *part("attn.out")))
    y = g.gelu(g.linear(g.norm(x, *part("norm2")), *part("ff.up")))
    return g.add(x, g.linear(y, *part("ff.down")))


def stack_flops(layers, d, f, rows, causal):
    scores = 4 * rows * rows * d * (0.5 if causal and rows > 1 else 1)
    return layers * (2 * rows * (4 * d * d + 2 * d * f) + scores)


def stack(layers, d, heads, f, rows, causal, wanted):
    r = Random(3)
    weights = block_weights(r, layers, d, f)

    def compute(g, x, w):
        y = x["x"]
        for i in range(layers):
            y = block(g, y, w, i, heads, causal)
        return y

    what = f"{layers} layers" if layers > 1 else "a layer"
    return Workload(
        f"{what}, d {d}, h {heads}, {'causal, ' if causal else ''}S {rows}",
        HERE / "blocks.attn",
        "Decoder" if causal else "Encoder",
        compute,
        {"x": r.normal(rows, d)},
        weights,
        {"L": layers, "D": d, "H": heads, "F": f},
        stack_flops(layers, d, f, rows, causal),
        sum(array.nbytes for array in weights.values()) if rows == 1 else 0,
        wanted,
    )


def bf16_bits(array):
    """The nearest bf16, ties to even, as its bits."""
    bits = array.view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)


def bf16_stack(layers, d, heads, f, rows, wanted):
    """The same with matrices in bf16; activations are rounded to it before each product, those of attention among them."""
    workload = stack(layers, d, heads, f, rows, False, wanted)
    workload.name += ", bf16"
    workload.program = HERE / "blocks_bf16.attn"
    workload.precision = "bf16"
    workload.rename = lambda name, array: (name, bf16_bits(array) if array.ndim > 1 else array)
    return workload


GPT2 = {"norm1": "ln_1", "norm2": "ln_2", "attn.qkv": "attn.c_attn", "attn.out": "attn.c_proj"}
GPT2 |= {"ff.up": "mlp.c_fc", "ff.down": "mlp.c_proj"}


def gpt2_name(name, array):
    """Names and layouts as GPT-2's checkpoint has them: its matrices are [in, out]."""
    if not name.startswith("blocks."):
        return name, array
    _, layer, rest = name.split(".", 2)
    part, kind = rest.rsplit(".", 1)
    return f"h.{layer}.{GPT2[part]}.{kind}", np.ascontiguousarray(array.T)


def gpt2(layers, d, heads, vocabulary, rows, wanted):
    r = Random(4)
    weights = block_weights(r, layers, d, 4 * d)
    weights["wte.weight"] = r.normal(vocabulary, d, scale=0.1)
    weights["wpe.weight"] = r.normal(1024, d, scale=0.1)
    weights["ln_f.weight"] = 1 + r.normal(d, scale=0.1)
    weights["ln_f.bias"] = r.normal(d, scale=0.1)

    def compute(g, x, w):
        y = g.add(g.rows(w["wte.weight"], x["tokens"]), g.first_rows(w["wpe.weight"], rows))
        for i in range(layers):
            y = block(g, y, w, i, heads, True)
        return g.linear(g.norm(y, w["ln_f.weight"], w["ln_f.bias"]), w["wte.weight"])

    read = sum(array.nbytes for name, array in weights.items() if name != "wpe.weight")
    return Workload(
        f"GPT-2, {layers} layers, d {d}, with its head, {rows} token{'s' if rows > 1 else ''}",
        ROOT / "examples" / "08_gpt2.attn",
        "Gpt2",
        compute,
        {"tokens": r.rng.integers(0, vocabulary, rows).astype(np.int32)},
        weights,
        {"L": layers, "D": d, "H": heads, "V": vocabulary},
        stack_flops(layers, d, 4 * d, rows, True) + 2 * rows * d * vocabulary,
        read if rows == 1 else 0,
        wanted,
        gpt2_name,
    )


def recurrent(kind, layers, hidden, steps, batch, wanted):
    """torch.nn.LSTM or torch.nn.GRU; attnc's program has an array of cells."""
    r = Random(5)
    gates = {"lstm": 4, "gru": 3}[kind]
    weights = {}
    for i in range(layers):
        for name in ("ih", "hh"):
            weights[f"layers.{i}.weight_{name}"] = r.normal(gates * hidden, hidden, scale=(3 * hidden) ** -0.5)
        for name in ("ih", "hh"):
            weights[f"layers.{i}.bias_{name}"] = r.normal(gates * hidden, scale=(3 * hidden) ** -0.5)

    def compute(g, x, w):
        names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        return g.recurrent(kind, x["x"], [tuple(w[f"layers.{i}.{name}"] for name in names) for i in range(layers)])

    return Workload(
        f"{kind.upper()}, {layers} layer{'s' if layers > 1 else ''}, hidden {hidden}, {steps} steps, batch {batch}",
        HERE / "recurrent.attn",
        kind.capitalize(),
        compute,
        {"x": r.normal(steps, batch, hidden)},
        weights,
        {"L": layers, "H": hidden},
        layers * steps * batch * 2 * gates * hidden * 2 * hidden,
        wanted=wanted,
    )


def products(kind, make, sizes):
    """A row for each, `product-32-2048-512`: rows, steps, columns."""
    return {"-".join(map(str, (kind, *size))): lambda size=size: make(*size, 1.05) for size in sizes}


def all_recurrent(kind, sizes):
    """A row for each, `lstm-1-256-128-32`: layers, hidden, steps, batch."""
    return {"-".join(map(str, (kind, *size))): lambda size=size: recurrent(kind, *size, 1.5) for size in sizes}


PRODUCTS = [(512, 512, 512), (1024, 1024, 1024), (2048, 2048, 2048), (4096, 768, 3072), (32, 2048, 512)]
RECURRENT = [(n, h, s, b) for n in (1, 2) for h in (256, 512, 1024) for s in (128, 1024) for b in (1, 32)]

FULL = {
    **products("product", product, PRODUCTS),
    **products("weight", weight, PRODUCTS),
    "layer": lambda: stack(1, 512, 8, 2048, 512, False, 1.05),
    "layers128": lambda: stack(12, 768, 12, 3072, 128, False, 1.05),
    "layers512": lambda: stack(12, 768, 12, 3072, 512, False, 1.05),
    "layers512bf16": lambda: bf16_stack(12, 768, 12, 3072, 512, 1.05),
    "causal1024": lambda: stack(12, 768, 12, 3072, 1024, True, 1.2),
    "attention2048": lambda: attention(12, 2048, 64, 2.5),
    "attention8192": lambda: attention(4, 8192, 64, 2.5),
    "token": lambda: stack(12, 768, 12, 3072, 1, True, 1.0),
    "gpt2": lambda: gpt2(12, 768, 12, 50257, 1, 1.0),
    **all_recurrent("lstm", RECURRENT),
    **all_recurrent("gru", RECURRENT),
}

QUICK = {
    **products("product", product, [(96, 96, 96), (33, 65, 40)]),
    **products("weight", weight, [(64, 64, 64), (33, 65, 40)]),
    "layer": lambda: stack(1, 64, 4, 128, 33, False, 1.05),
    "bf16": lambda: bf16_stack(2, 64, 4, 128, 33, 1.05),
    "causal": lambda: stack(2, 64, 4, 128, 40, True, 1.2),
    "attention": lambda: attention(3, 130, 16, 2.5),
    "token": lambda: stack(2, 64, 4, 128, 1, True, 1.0),
    "gpt2": lambda: gpt2(2, 64, 4, 500, 1, 1.0),
    **all_recurrent("lstm", [(1, 48, 7, 1), (2, 33, 6, 3)]),
    **all_recurrent("gru", [(1, 48, 7, 1), (2, 33, 6, 3)]),
}
