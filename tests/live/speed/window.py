"""A sliding window of 256 keys: attnc beside PyTorch's FlexAttention, compiled for the CPU, and OpenVINO; and whether time and memory
are linear in the length.

FlexAttention gets the mask as a function and as blocks, as its users write it; OpenVINO has no such thing and gets the mask as a
tensor. attnc is given the formula.
"""

import ctypes
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import turns

HERE = Path(__file__).resolve().parent
WANTED = 2.5
# How far time for each query may be from that at another length.
LINEAR = 0.15
TOLERANCE = 2e-4
HEADS, WIDTH = 4, 64


@dataclass
class Sizes:
    """`program` and `dims` are what attnc compiles."""

    dims: dict
    program: Path = HERE / "window.attn"
    model: str = "Window"
    weights: dict = field(default_factory=dict)


def keep_memory():
    """Lets results from 32 MiB on reuse memory, as smaller ones do. By default the C library maps each anew, and the system clears its
    pages: at S 32768 that is time of the system, up to a third of the whole with pages of 4 KiB, and of no kernel's."""
    allocator = ctypes.CDLL(None)
    if hasattr(allocator, "mallopt"):
        trim_threshold, mmap_threshold = -1, -3
        allocator.mallopt(mmap_threshold, 1 << 30)
        allocator.mallopt(trim_threshold, 1 << 30)


def arguments(rows):
    rng = np.random.default_rng(9)
    return [rng.standard_normal((HEADS, rows, WIDTH), np.float32) for _ in range(3)]


def reference(q, k, v, window):
    """In float64, a block of queries at a time."""
    out, step = np.empty(q.shape), 128
    for begin in range(0, q.shape[1], step):
        end, first = min(begin + step, q.shape[1]), max(0, begin - window + 1)
        i, j = np.arange(begin, end)[:, None], np.arange(first, end)
        scores = q[:, begin:end].astype(np.float64) @ k[:, first:end].astype(np.float64).transpose(0, 2, 1) / WIDTH**0.5
        scores = np.where((j <= i) & (i - j < window), scores, -np.inf)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        out[:, begin:end] = weights / weights.sum(-1, keepdims=True) @ v[:, first:end]
    return out


def in_flex(torch, inputs, window):
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    def seen(batch, head, i, j):
        return (j <= i) & (i - j < window)

    q, k, v = (torch.from_numpy(x)[None] for x in inputs)
    rows = q.shape[2]
    mask = create_block_mask(seen, None, None, rows, rows, device="cpu")
    compiled = torch.compile(flex_attention)

    def call():
        with torch.inference_mode():
            return compiled(q, k, v, block_mask=mask)[0].numpy()

    return call


def in_openvino(openvino, inputs, window, threads):
    from openvino import opset13 as ops

    rows = inputs[0].shape[1]
    shape = [1, *inputs[0].shape]
    q, k, v = (ops.parameter(shape, np.float32) for _ in range(3))
    i, j = np.arange(rows)[:, None], np.arange(rows)
    mask = np.where((j <= i) & (i - j < window), np.float32(0), np.float32(-np.inf))
    node = ops.scaled_dot_product_attention(q, k, v, ops.constant(mask))
    settings = {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY"}
    compiled = openvino.Core().compile_model(openvino.Model([node], [q, k, v]), "CPU", settings)
    request, given = compiled.create_infer_request(), [x[None] for x in inputs]
    return lambda: request.infer(given)[compiled.output(0)][0]


def peak(so, wrapper, rows, threads):
    """Bytes that a call takes beyond its arguments and its result, in a process of its own."""
    line = [sys.executable, str(Path(__file__).resolve()), str(so), str(wrapper), str(rows), str(threads)]
    return int(subprocess.run(line, check=True, capture_output=True, text=True).stdout)


def compare(attnc, found, options):
    """Times everybody at one length, and attnc at several."""
    window, rows = (8, 50) if options.quick else (256, 16384)
    lengths = (20, 40) if options.quick else (1024, 2048, 4096, 8192, 16384, 32768)
    print(f"\na sliding window of {window}, {HEADS} heads of {WIDTH}, S {rows}", flush=True)
    keep_memory()
    wrapper, so = attnc.compile(Sizes({"W": window}))
    model = wrapper.Model(so, threads=options.threads)
    inputs = arguments(rows)
    expected = reference(*inputs, window)
    makers = {"attnc": lambda: lambda: model.forward(*inputs)}
    if not options.without_peers:
        if (torch := found("torch")) and not options.quick:
            torch.set_num_threads(options.threads)
            makers["FlexAttention"] = lambda: in_flex(torch, inputs, window)
        if openvino := found("openvino"):
            makers["OpenVINO"] = lambda: in_openvino(openvino, inputs, window, options.threads)
    calls, wrong = {}, []
    for name, make in makers.items():
        try:
            call = make()
            off = np.abs(call() - expected).max()
        except Exception as error:  # a peer that cannot do it is no reason to stop; attnc is
            if name == "attnc":
                raise
            print(f"  {name}: {type(error).__name__}: {str(error).splitlines()[0][:100]}", flush=True)
            continue
        wrong += [name] if not off <= TOLERANCE else []
        calls[name] = call
    medians, _ = turns.medians(calls, options)
    for name, median in medians.items():
        print(f"  {name:24} {median * 1e3:10.3f} ms" + "  WRONG" * (name in wrong), flush=True)
    row = {"seconds": medians, "wrong": wrong, "wanted": WANTED}
    if len(medians) > 1:
        row["best"] = min((name for name in medians if name != "attnc"), key=medians.get)
        row["ratio"] = medians[row["best"]] / medians["attnc"]
        print(f"  ratio {row['ratio']:.2f} to the best peer, {row['best']}; wanted {WANTED:.2f}", flush=True)
    each = {n: (lambda given=arguments(n): model.forward(*given)) for n in lengths}
    per_query = {n: median / n for n, median in turns.medians(each, options)[0].items()}
    memory = {n: peak(so, Path(so).with_suffix(".py"), n, options.threads) for n in lengths}
    for n in lengths:
        print(f"  attnc, S {n:6} {per_query[n] * 1e9:8.1f} ns a query, {memory[n] / 2**10:10.0f} KiB", flush=True)
    spread = max(per_query.values()) / min(per_query.values()) - 1
    print(f"  time a query differs by {spread * 100:.0f} %; wanted {LINEAR * 100:.0f} %", flush=True)
    return row | {"per_query": per_query, "memory": memory, "spread": spread}


def main():
    so, wrapper, rows, threads = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
    sys.path.insert(0, str(wrapper.parent))
    import importlib.util

    spec = importlib.util.spec_from_file_location(wrapper.stem, wrapper)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    model, inputs = module.Model(so, threads=threads), arguments(rows)
    small = arguments(8)
    model.forward(*small)
    before = turns.kib("VmRSS")
    # The peak counts from here.
    Path("/proc/self/clear_refs").write_text("5")
    result = model.forward(*inputs)
    print(max(0, turns.kib("VmHWM") - before - result.nbytes // 1024) * 1024)


if __name__ == "__main__":
    main()
