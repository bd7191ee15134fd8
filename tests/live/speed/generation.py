"""A prompt of 512 tokens, then 256 more through the cache: attnc with every form of packed weights beside llama.cpp, prompt and
generation apart, in tokens a second.

Models and peers are those of tokens.py. attnc runs `prefill` and `step` of examples/29_generate.attn, each token the most probable
one; llama.cpp's `llama-bench` generates at a depth of 512. Both keep keys and values in f16, llama.cpp's default: after a few hundred
tokens, reading them takes as long as reading the smallest weights.
"""

import json
import statistics
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

import tokens

PROGRAM = Path(__file__).resolve().parent.parent.parent.parent / "examples" / "29_generate.attn"
# What a result may be off by, as a part of it: another order of sums rounds some of what is kept to the neighbouring number.
KEPT = 2e-3
# How many times as fast as llama.cpp attnc wants to be.
WANTED_PROMPT = 1.2
WANTED = {"f32": 1.15, "bf16": 1.15, "int8": 1.4, "int4": 1.6}


@dataclass
class Sizes:
    """`program` and `dims` are what attnc compiles."""

    dims: dict
    program: Path = PROGRAM
    model: str = "Gpt2"
    weights: dict = field(default_factory=dict)


def llama_turn(program, path, threads, prompt, written):
    """Tokens a second of a prompt, and of generation after it."""
    line = [program, "-m", path, "-t", threads, "-r", 1, "-o", "json"]

    def rate(*what):
        done = subprocess.run([str(part) for part in (*line, *what)], check=True, capture_output=True, text=True)
        return json.loads(done.stdout)[0]["avg_ts"]

    return rate("-p", prompt, "-n", 0), rate("-p", 0, "-n", written, "-d", prompt)


def attnc_turn(model, prompt, written):
    """The same of attnc; the tokens that it wrote, and the scores after them."""
    model.forget()
    begin = time.perf_counter()
    scores = model.prefill(prompt)
    read = time.perf_counter() - begin
    begin = time.perf_counter()
    text = []
    for _ in range(written):
        text.append(scores.argmax())
        scores = model.step(text[-1])
    return (len(prompt) / read, written / (time.perf_counter() - begin)), text, scores


def compare(attnc, workload, weights, options, out):
    """Times everybody. `workload` is GPT-2's, `weights` the file with its numbers."""
    import numpy as np

    prompt, written = (9, 6) if options.quick else (512, 256)
    sizes = Sizes(workload.dims | {"Kept": "f16"})
    print(f"\n{workload.name}: a prompt of {prompt} tokens, then {written} more", flush=True)
    source = np.random.default_rng(8).integers(0, workload.dims["V"], prompt).astype(np.int32)
    models, peers, errors = {}, {}, {}
    for packing, kind in tokens.FORMATS.items():
        wrapper, so = attnc.compile(sizes, pack=packing)
        models[packing] = wrapper.Model(so, weights=weights, threads=options.threads)
        if options.llama:
            peers[packing] = tokens.tried(kind, lambda: tokens.gguf_of(workload, packing, out))
    rates = {(packing, who): [] for packing in models for who in ("attnc", "llama.cpp")}
    begin, rounds = time.perf_counter(), 0
    while rounds < min(options.rounds, 3) or time.perf_counter() - begin < options.seconds:
        for packing, model in models.items():
            rate, text, scores = attnc_turn(model, source, written)
            rates[packing, "attnc"].append(rate)
            if rounds == 0:
                # All tokens at once give the same.
                at_once = model.forward(np.concatenate([source, text]).astype(np.int32))[-1]
                errors[packing] = tokens.difference(scores, at_once.astype(np.float64))
            if path := peers.get(packing):
                turn = lambda: llama_turn(options.llama, path, options.threads, prompt, written)
                rate = tokens.tried(tokens.FORMATS[packing], turn)
                if rate is None:
                    peers[packing] = None
                else:
                    rates[packing, "llama.cpp"].append(rate)
        rounds += 1
    rows = {}
    for packing in models:
        own = [statistics.median(turns) for turns in zip(*rates[packing, "attnc"])]
        wrong = not errors[packing] <= max(tokens.LIMITS[packing], KEPT)
        rows[packing] = {"prompt": own[0], "generation": own[1], "error": errors[packing], "wrong": wrong}
        line = f"  attnc {packing:5} prompt {own[0]:8.1f} tokens/s, then {own[1]:8.1f}, differs by {errors[packing]:.0e}" + "  WRONG" * wrong
        if peers.get(packing):
            other = [statistics.median(turns) for turns in zip(*rates[packing, "llama.cpp"])]
            ratios = [a / b for a, b in zip(own, other)]
            rows[packing] |= {"llama": other, "ratios": ratios}
            line += f"   llama.cpp {tokens.FORMATS[packing]:5} {other[0]:8.1f}, {other[1]:8.1f}"
            line += f"   ratios {ratios[0]:.2f} (wanted {WANTED_PROMPT:.2f}), {ratios[1]:.2f} (wanted {WANTED[packing]:.2f})"
        print(line, flush=True)
    return rows
