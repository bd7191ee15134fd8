"""Draws the pictures of the documents as SVG.

    python3 docs/pictures/make.py ATTNC            writes them beside this file, and those of the course to docs/book
    python3 docs/pictures/make.py ATTNC FOLDER     writes them all there

ATTNC is the compiler, which draws a kernel's timeline; the others need only Python's standard library. A test compares
the committed files with what this writes.
"""

import math
import pathlib
import subprocess
import sys
from xml.sax.saxutils import escape

STYLE = """
    .ground { fill: #ffffff } .ink { fill: #1c1c1c } .faint { fill: #6a6a6a }
    .box { fill: #eef3fb; stroke: #5b7db1 } .data { fill: #f6f1e4; stroke: #b09555 }
    .hot { fill: #f3d9b8; stroke: #b5762a } .off { fill: none; stroke: #b8b8b8; stroke-dasharray: 4 3 }
    .line { stroke: #6a6a6a; fill: none; marker-end: url(#tip) } .tip { fill: #6a6a6a }
    text { font: 13px system-ui, sans-serif } .title { font-weight: 600 } .code { font: 12px ui-monospace, monospace }
    @media (prefers-color-scheme: dark) {
      .ground { fill: #14161a } .ink { fill: #ececec } .faint { fill: #a0a0a0 }
      .box { fill: #1d2a3d; stroke: #7f9fce } .data { fill: #2d281b; stroke: #b9a066 }
      .hot { fill: #4a3417; stroke: #d29a50 } .off { stroke: #565656 }
      .line { stroke: #a0a0a0 } .tip { fill: #a0a0a0 }
    }"""


class Picture:
    def __init__(self, width, height, title):
        self.parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">',
            f"  <style>{STYLE}\n  </style>",
            f"  <title>{escape(title)}</title>",
            '  <defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
            'orient="auto"><path class="tip" d="M0 0 8 4 0 8z"/></marker></defs>',
            f'  <rect class="ground" width="{width}" height="{height}"/>',
        ]

    def box(self, x, y, width, height, kind="box"):
        self.parts.append(f'  <rect class="{kind}" x="{x}" y="{y}" width="{width}" height="{height}" rx="4"/>')

    def text(self, x, y, words, kind="ink", anchor="start"):
        self.parts.append(f'  <text class="{kind}" x="{x}" y="{y}" text-anchor="{anchor}">{escape(words)}</text>')

    def arrow(self, *points):
        path = "M" + " L".join(f"{x} {y}" for x, y in points)
        self.parts.append(f'  <path class="line" d="{path}"/>')

    def svg(self):
        return "\n".join([*self.parts, "</svg>", ""])


def pipeline():
    """The stages, each with what it does, and the folders of src/ that it lives in."""
    p = Picture(860, 420, "From source text to a shared library")
    stages = [
        ("source", "model.attn", "tokens, AST, typed AST", "names resolved, shapes checked with symbolic dimensions", "syntax/, types/, shape/"),
        ("graph IR", ".air", "SSA over tensors", "passes: simplify, CSE, DCE, LICM, find attention, fuse", "lowering/graph/, ir/, passes/"),
        ("tile IR", ".tir", "kernels, and plans that launch them", "schedule: variants, panels, tiles, loop nests, memory", "lowering/tile/, tile/"),
        ("vector IR", ".vir", "loops over vectors, with masks", "written once for all widths; exp, sin, pow as text", "lowering/vector/, vector/"),
        ("machine code", ".o", "Cranelift, own leaf functions, PTX, LLVM", "one variant for each instruction set or GPU", "codegen/, ptx/"),
    ]
    for i, (name, file, what, how, where) in enumerate(stages):
        y = 14 + 68 * i
        p.box(20, y, 150, 52)
        p.text(95, y + 23, name, "ink title", "middle")
        p.text(95, y + 41, file, "faint code", "middle")
        p.text(190, y + 22, what)
        p.text(190, y + 41, how, "faint")
        p.text(620, y + 32, where, "faint code")
        p.arrow((95, y + 52), (95, y + 68))
    y = 14 + 68 * len(stages)
    for x, name in [(20, "model.so"), (180, "model.h"), (340, "model.py")]:
        p.box(x, y, 140, 44, "data")
        p.text(x + 70, y + 27, name, "ink title", "middle")
    p.text(620, y + 27, "runtime/", "faint code")
    p.text(500, y + 27, "needs only libc", "faint")
    return p.svg()


def attention():
    """One tile of queries of a causal attention, on its way through blocks of keys."""
    p = Picture(860, 410, "A fused attention")
    left, top, cell, own, at = 250, 90, 48, 3, 1
    p.text(20, 24, "softmax(q @ k.T / sqrt(D)) @ v, one tile of queries at a time", "ink title")
    p.text(20, 44, "The scores of a block live in registers and scratch; the whole matrix never exists.", "faint")
    p.text(left, top - 12, "blocks of keys and values, read one after another", "faint")
    for row in range(5):
        y = top + row * cell + 2
        p.box(left - 120, y, 106, cell - 4, "hot" if row == own else "data")
        p.text(left - 67, y + 27, f"queries {row}", "ink", "middle")
        for col in range(5):
            x = left + col * cell + 2
            kind = "off" if col > row else "data" if row != own else "hot" if col == at else "box"
            p.box(x, y, cell - 4, cell - 4, kind)
            if col == row:
                p.text(x + cell / 2 - 2, y + 27, "mask", "ink", "middle")
    p.text(20, top + own * cell + 29, "in registers", "faint")
    x = left + 5 * cell + 24
    p.text(x, top + 28, "dashed: hidden by the mask, not visited", "faint")
    for i, (name, what) in enumerate([("m", "running maximum"), ("l", "running sum"), ("o", "result, not yet divided")]):
        y = top + cell + i * 38
        p.box(x, y, 36, 30, "hot")
        p.text(x + 18, y + 20, name, "ink code", "middle")
        p.text(x + 46, y + 20, what, "faint")
    p.text(x, top + cell + 138, "at the end: o / l", "faint")
    x, y = left + at * cell + cell / 2, top + 5 * cell
    p.arrow((x, top + own * cell + cell - 8), (x, y + 22))
    p.text(left - 120, y + 42, "for each block:  s = q k^T * scale;  m' = max(m, max s);  p = exp(s - m');", "ink code")
    p.text(left - 5, y + 61, "l = l * exp(m - m') + sum p;  o = o * exp(m - m') + p v;  m = m'", "ink code")
    return p.svg()


def matmul():
    """The innermost part of a matmul with AVX-512: a register tile, and the packed panel that it reads."""
    p = Picture(860, 330, "A matmul in registers")
    p.text(20, 24, "x @ w: a register tile of 14 rows by 32 columns, and what it reads (AVX-512)", "ink title")
    p.text(20, 44, "w is packed when the model is opened: the columns of a panel lie together, k step by k step.", "faint")
    # w, its panels of 32 columns; the tile reads one.
    left, top, width, depth = 250, 80, 88, 96
    p.text(left, top - 10, "w, packed in panels of 32 columns", "faint")
    for i in range(3):
        p.box(left + i * width, top, width - 6, depth, "box" if i == 1 else "data")
    p.box(left + width, top + 36, width - 6, 12, "hot")
    p.text(left - 10, top + depth / 2 + 4, "K steps", "faint", "end")
    p.text(left + 3 * width + 10, top + 40, "each step: 2 vectors of w are loaded,", "faint")
    p.text(left + 3 * width + 10, top + 58, "14 elements of x are broadcast,", "faint")
    p.text(left + 3 * width + 10, top + 76, "28 FMAs add to the tile", "faint")
    # x, 14 rows at a time; the result below w.
    below = top + depth + 34
    p.text(left - 106, below - 10, "x", "faint")
    p.text(left, below - 10, "result", "faint")
    for i in range(3):
        y = below + i * 32
        p.box(left - 106, y, 96, 26, "box" if i == 1 else "data")
        for j in range(3):
            p.box(left + j * width, y, width - 6, 26, "hot" if i == j == 1 else "off")
    p.box(left - 106 + 36, below + 32, 12, 26, "hot")
    p.text(left - 116, below + 50, "14 rows", "faint", "end")
    p.arrow((left + width + 41, top + depth + 2), (left + width + 41, below + 28))
    p.text(left + 3 * width + 10, below + 32, "28 registers: the tile", "faint")
    p.text(left + 3 * width + 10, below + 50, "2 of w, 1 of x", "faint")
    p.text(left + 3 * width + 10, below + 68, "epilogue: bias, activation, residual", "faint")
    return p.svg()


# The README's attention, in bf16.
HALF = """
model Attention<D = 64> {
    pub fn forward(q: bf16[S, D], k: bf16[T, D], v: bf16[T, D]) -> bf16[S, D] {
        softmax(q @ k.T / sqrt(D)) @ v
    }
}
"""


def timeline(attnc, path):
    """What a block of the attention kernel for Hopper does over time, as the simulator sees it."""
    options = ["--random", "--size", "S=128,T=512", "--backend", "ptx-sim", "--gpu", "sm_90a", "--schedule", str(path)]
    subprocess.run([attnc, "run", "-", *options], input=HALF, text=True, check=True, stdout=subprocess.DEVNULL)


def grid(p, x, y, rows, kind="data", width=52):
    """A small matrix with its numbers."""
    for i, row in enumerate(rows):
        for j, value in enumerate(row):
            p.box(x + j * width, y + i * 30, width - 4, 26, kind)
            p.text(x + j * width + (width - 4) / 2, y + i * 30 + 18, value, "ink code", "middle")


def mixing():
    """The attention of chapter 1: three words of two numbers."""
    p = Picture(860, 200, "Three words: scores, weights, and the average")
    x = [[1, 0], [0, 1], [1, 1]]
    scores = [[sum(a * b for a, b in zip(r, s)) for s in x] for r in x]
    powers = [[math.exp(s) for s in row] for row in scores]
    weights = [[e / sum(row) for e in row] for row in powers]
    mixed = [[sum(w * r[j] for w, r in zip(row, x)) for j in range(2)] for row in weights]
    for i, word in enumerate(["hot", "cold", "warm"]):
        p.text(20, 78 + i * 30, word, "faint")
    shown = lambda rows, digits: [[f"{v:.{digits}f}" for v in row] for row in rows]
    for left, name, rows, kind in [
        (66, "x", shown(x, 0), "data"),
        (210, "scores = x @ x.T", shown(scores, 0), "box"),
        (406, "weights = softmax(scores)", shown(weights, 3), "hot"),
        (646, "weights @ x", shown(mixed, 3), "data"),
    ]:
        p.text(left, 44, name, "ink code")
        grid(p, left, 60, rows, kind)
    for left in (170, 366, 600):
        p.arrow((left, 103), (left + 34, 103))
    p.text(406, 170, "each row sums to 1", "faint")
    p.text(646, 170, "a mixture of the rows of x", "faint")
    return p.svg()


def cache():
    """Decoding: what a step computes, and what it finds in the cache."""
    p = Picture(860, 210, "A step of decoding, with and without a cache")
    for left, name, seen in [(40, "without a cache: all rows again", False), (460, "with a cache: one row", True)]:
        p.text(left, 30, name, "ink title")
        for i in range(6):
            for j in range(6):
                kind = "off" if j > i else "hot" if i == 5 or not seen else "data"
                p.box(left + j * 30, 46 + i * 24, 26, 20, kind)
        p.text(left + 194, 64, "columns: keys", "faint")
        p.text(left + 194, 84, "rows: queries", "faint")
        p.text(left + 194, 170, "21 scores" if not seen else "6 scores", "ink")
        p.text(left + 194, 124, "computed in this step" if not seen else "earlier steps: only their", "faint")
        p.text(left + 194, 142, "" if not seen else "keys and values are kept", "faint")
    return p.svg()


def roofline():
    """The speed that a kernel can reach, by its arithmetic intensity."""
    p = Picture(860, 300, "A roofline")
    left, bottom = 90, 250
    p.arrow((left, bottom), (left, 30))
    p.arrow((left, bottom), (820, bottom))
    p.text(left - 8, 24, "operations per second", "faint")
    p.text(820, bottom + 20, "operations per byte", "faint", "end")
    p.arrow((left, bottom), (420, 84))
    p.arrow((420, 84), (800, 84))
    p.text(176, 132, "memory bound:", "ink", "middle")
    p.text(176, 150, "bandwidth * intensity", "faint", "middle")
    p.text(610, 72, "compute bound: the peak of the units", "ink", "middle")
    for x, y, name in [(140, 225, "x * 2 + y"), (200, 195, "one token, a matrix"), (560, 84, "matmul of 256 rows"), (700, 84, "attention, S = 1024")]:
        p.box(x - 5, y - 5, 10, 10, "hot")
        p.text(x + 12, y + 18, name, "faint")
    return p.svg()


# Other pictures that the course shows: an HTML book needs them among its own files.
SHARED = ("pipeline", "attention", "matmul", "timeline")


def main():
    attnc = sys.argv[1]
    here = pathlib.Path(__file__).parent
    folder = pathlib.Path(sys.argv[2]) if len(sys.argv) > 2 else here
    for draw in (pipeline, attention, matmul):
        (folder / f"{draw.__name__}.svg").write_text(draw())
    timeline(attnc, folder / "timeline.svg")
    book = folder if len(sys.argv) > 2 else here.parent / "book/src/pictures"
    for draw in (mixing, cache, roofline):
        (book / f"{draw.__name__}.svg").write_text(draw())
    for name in SHARED:
        if book != folder:
            (book / f"{name}.svg").write_text((folder / f"{name}.svg").read_text())


if __name__ == "__main__":
    main()
