"""Compares the compiled MiniLM with the committed vectors of `transformers`: no PyTorch needed.

    examples/run_minilm.sh
    build/venv/bin/python tests/live/check_minilm.py

Tokenises the 50 lines of tests/fixtures/sentences.txt with the wheel's tokenizer, embeds them
one at a time and in one padded batch, and compares with minilm_sentences.safetensors: each
number to 1e-5, each vector to a cosine of 0.999999. Exit code 1 where anything differs.
"""

import sys
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

ROOT = Path(__file__).resolve().parent.parent.parent
FIXTURES = ROOT / "tests" / "fixtures"
BUILD = ROOT / "build"
sys.path[:0] = [str(FIXTURES), str(BUILD), str(ROOT / "examples")]
try:
    from minilm import Model
except ImportError:
    sys.exit("build/minilm.py is not there; examples/run_minilm.sh makes it")
import tensors  # noqa: E402
from similar_sentences import pad, tokenize  # noqa: E402


def check(what, vectors, expected):
    """True where the vectors are those expected."""
    vectors = vectors.astype(np.float64)
    difference = np.abs(vectors - expected).max()
    lengths = np.linalg.norm(vectors, axis=1) * np.linalg.norm(expected, axis=1)
    cosine = ((vectors * expected).sum(axis=1) / lengths).min()
    good = difference <= 1e-5 and cosine >= 0.999999
    print(f"{'ok  ' if good else 'FAIL'}  {what}: differs by {difference:.1e}, least cosine {cosine:.9f}")
    return good


def main():
    committed, _ = tensors.read(FIXTURES / "minilm_sentences.safetensors")
    rows = np.split(committed["tokens"], np.cumsum(committed["lengths"])[:-1])
    expected = committed["vectors"].astype(np.float64)

    tokenizer = Tokenizer.from_file(str(BUILD / "minilm" / "tokenizer.json"))
    ours = tokenize(tokenizer, (FIXTURES / "sentences.txt").read_text(encoding="utf-8").splitlines())
    ours[0] = ours[0][1:2]  # the first line stands for a text of one token, without the marks around it
    if [list(row) for row in ours] != [row.tolist() for row in rows]:
        sys.exit("FAIL  the tokens of sentences.txt are not those committed")

    with Model(str(BUILD / "minilm.so"), weights=str(BUILD / "minilm" / "model.safetensors")) as model:
        alone = np.concatenate([model.forward(*pad([row])) for row in rows])
        together = model.forward(*pad(rows))
    good = [check("one at a time", alone, expected), check("in one padded batch", together, expected)]
    sys.exit(0 if all(good) else 1)


if __name__ == "__main__":
    main()
