"""Trains examples/36_train_translate.attn on a toy language until it translates new sentences without a mistake.

    ATTNC=target/release/attnc PYTHONPATH=python python3 tests/live/learn_to_translate.py

It needs NumPy. A translation has the words of the sentence in reverse order, each replaced by another one. After every 200
steps, 128 sentences that training leaves out are translated word by word, and compared by BLEU (examples/27_bleu.attn).
The exit code is 1 if that has not become 1 after 4000 steps.
"""

import sys
import time
from pathlib import Path

import attnc
import numpy as np

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
WORDS, LONGEST, BATCH, DROPOUT = 8, 7, 16, 0.1
random = np.random.default_rng(0)


def pairs(count, held_out):
    """Sentences and their translations, which end with 1, then 0. One in ten of all sentences is held out."""
    source, target = np.zeros((count, LONGEST), np.int32), np.zeros((count, LONGEST + 1), np.int32)
    n = 0
    while n < count:
        words = random.integers(0, WORDS, random.integers(4, LONGEST + 1))
        if (words @ WORDS ** np.arange(len(words)) % 10 == 0) == held_out:
            source[n, : len(words)] = words + 2
            target[n, : len(words) + 1] = [*((3 * words[::-1] + 1) % WORDS + 2), 1]
            n += 1
    return source, target


def initial(parameter):
    """Norms begin as the identity, and biases at 0."""
    if len(parameter.shape) == 2:
        return random.standard_normal(parameter.shape, np.float32) / np.sqrt(parameter.shape[-1], dtype=np.float32)
    return np.full(parameter.shape, parameter.name.endswith("weight"), np.float32)


def main():
    dims = {"L": 1, "D": 32, "H": 2, "F": 64, "V": WORDS + 2, "W": 200}
    model = attnc.compile(EXAMPLES / "36_train_translate.attn", dims=dims)
    model.load({p.name: initial(p) for p in model.parameters})
    bleu = attnc.compile(EXAMPLES / "27_bleu.attn")
    asked, answers = pairs(128, held_out=True)
    starts = np.ones((len(asked), LONGEST + 2), np.int32)
    begun = time.time()
    for step in range(1, 4001):
        source, target = pairs(BATCH, held_out=False)
        before = np.pad(target[:, :-1], ((0, 0), (1, 0)), constant_values=1)
        loss = model.learn(source, before, target, DROPOUT, 7)
        if step % 200:
            continue
        scores = []
        for given, right in zip(model.translate(asked, starts)[:, 1:], answers):
            given, right = (row[: list(row).index(1)] if 1 in row else row for row in (given, right))
            scores.append(bleu(given, right) if len(given) >= 4 else 0.0)
        print(f"step {step}: loss {loss:.3f}, BLEU {np.mean(scores):.3f}, {time.time() - begun:.1f} s", flush=True)
        if min(scores) > 0.9999:
            return 0
    return 1


if __name__ == "__main__":
    sys.exit(main())
