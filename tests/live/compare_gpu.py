"""Times attnc on the GPU of this machine beside PyTorch: attention, products, GPT-2's prefill, a Llama that writes token by token.

    tests/live/gpu.sh speed             compiles attnc first, where cargo is; see there
    python3 tests/live/compare_gpu.py --attnc PROGRAM [attention | product | gpt2 | llama ...]
    python3 tests/live/compare_gpu.py --attnc PROGRAM --quick      tiny sizes, no times: does it work? A stand-in for a GPU will do

Kernels are timed by events of the GPU: those of attnc by `attnc bench`, those of PyTorch around many calls that are queued one after
another. Whole models are timed from the call to its result. All take turns, round by round, and medians are compared; inputs are random
numbers. FLOPs of attention are 4 B H S^2 D, half of that where a query sees the past only (Dao 2023, FlashAttention-2, section 4.1).
PyTorch's attention is the fastest of its own ways (cuDNN, FlashAttention); FlashAttention-2 and -3 stand beside it where they are
installed. Beside all stand what the GPU can do, as `attnc bench` measures it.

Results are compared with NumPy's in float64, some rows of them; those of models with attnc's on the processor or with PyTorch's. Exit
code 1 where one differs. Everything that was measured is written to build/gpu/figures.json and figures.md.
"""

import argparse
import importlib
import importlib.util
import json
import math
import re
import statistics
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path[:0] = [str(ROOT / "tests" / "fixtures")]
import tensors  # noqa: E402

OUT = ROOT / "build" / "gpu"
PROGRAMS = HERE / "speed" / "gpu.attn"
LLAMA = ROOT / "examples" / "19_llama.attn"
# What an element of a bf16 result may differ by, as a part of the largest: it has 8 significant bits, and so have what it is made of.
TOLERANCE = 2.0**-6


def found(name):
    """A module, or None where it is not installed."""
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


class Attnc:
    """The compiler, its bench, and the models that it made."""

    def __init__(self, program, seconds, folder=OUT):
        self.program, self.seconds, self.folder, self.made = program, seconds, folder, 0
        # Are libraries taken that an earlier run of the same parts made?
        self.is_ready = False

    def run(self, *words):
        done = subprocess.run([str(self.program), *map(str, words)], capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"{' '.join(done.args)}\n{done.stdout}{done.stderr}")
        return done.stdout

    def bench(self, program, entry, function, sizes, options=()):
        """What `attnc bench` measures of one entry point."""
        size = ",".join(f"{name}={n}" for name, n in sizes.items())
        line = ["bench", program, "--entry", entry, "--function", function, "--target", "cuda", "--size", size]
        return json.loads(self.run(*line, "--seconds", self.seconds, "--json", "-", *options))

    def library(self, program, entry, options=(), target="cuda"):
        """A program, compiled: what its files are called, and for what they are."""
        # A library that is open stays as it is: the next has another name.
        self.made += 1
        stem = self.folder / f"{Path(program).stem}_{entry}_{target}_{self.made}"
        if not self.is_ready:
            self.run(program, "--entry", entry, "--target", target, *options, "-o", f"{stem}.so", "--emit", "so,header,python")
        return stem, target

    def opened(self, library, weights=None):
        stem, target = library
        spec = importlib.util.spec_from_file_location(stem.name, f"{stem}.py")
        wrapper = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(wrapper)
        return wrapper.Model(f"{stem}.so", weights=weights and str(weights), device=target)

    def model(self, program, entry, options=(), weights=None, target="cuda"):
        """An opened model of a program."""
        return self.opened(self.library(program, entry, options, target), weights)


class Report:
    """The rows of the tables, and what is wrong."""

    def __init__(self):
        self.rows, self.wrong, self.ceilings, self.gpu = [], [], None, None

    def check(self, what, got, want, tolerance=TOLERANCE):
        got, want = np.asarray(got, np.float64), np.asarray(want, np.float64)
        scale = max(1e-30, np.abs(want).max(initial=0.0))
        differs = np.abs(got - want).max(initial=0.0) / scale if got.shape == want.shape else math.inf
        if not differs <= tolerance:
            self.wrong.append(f"{what} differs by {differs:.1e}, may by {tolerance:.0e}")
        print(f"{'ok  ' if differs <= tolerance else 'FAIL'}  {what:60} differs by {differs:.1e}", flush=True)

    def saw(self, measured):
        self.gpu, self.ceilings = measured["gpu"], measured["ceilings"] or self.ceilings

    def add(self, what, unit, work, times, aim):
        """`work` is what a second's worth of is shown as `unit`: a rate is `work` by the median of a contender's times."""
        seconds = {name: statistics.median(own) for name, own in times.items() if own}
        if "attnc" not in seconds:
            return
        peers = [s for name, s in seconds.items() if name != "attnc"]
        ratio = min(peers) / seconds["attnc"] if peers else None
        self.rows.append({"what": what, "unit": unit, "work": work, "seconds": seconds, "ratio": ratio, "aim": aim})
        rates = ", ".join(f"{name} {work / s:.1f}" for name, s in seconds.items())
        print(f"      {what}: {unit}: {rates}" + (f"; {ratio:.2f} x the fastest other" if ratio else ""), flush=True)

    def write(self, command):
        packages = {name: m.__version__ for name in ("torch", "transformers", "flash_attn", "numpy") if (m := found(name))}
        commit = subprocess.run(["git", "-C", ROOT, "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
        head = {"gpu": self.gpu, "ceilings": self.ceilings, "packages": packages, "driver": driver(), "commit": commit, "command": command}
        (OUT / "figures.json").write_text(json.dumps({**head, "rows": self.rows}, indent=1) + "\n")
        names = sorted({name for row in self.rows for name in row["seconds"]}, key=lambda name: (name != "attnc", name))
        lines = [f"{(self.gpu or {}).get('name')}, driver {driver()}, attnc {commit}, {packages}", f"`{command}`", ""]
        if self.ceilings:
            rates = [f"{name} {rate / 1e12:.0f} TFLOP/s" for name, rate in self.ceilings["products"].items()]
            rates += [f"{name} {rate / 1e9:.0f} GB/s" for name, rate in self.ceilings["memories"].items()]
            lines += ["Measured ceilings: " + ", ".join(rates), ""]
        lines += ["| | unit | " + " | ".join(names) + " | ratio | aim |", "|---" * (len(names) + 4) + "|"]
        for row in self.rows:
            cells = [f"{row['work'] / row['seconds'][name]:.1f}" if name in row["seconds"] else "" for name in names]
            ratio = f"{row['ratio']:.2f}" if row["ratio"] else ""
            lines.append(f"| {row['what']} | {row['unit']} | " + " | ".join(cells) + f" | {ratio} | {row['aim']} |")
        (OUT / "figures.md").write_text("\n".join(lines) + "\n")


def driver():
    line = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        return subprocess.run(line, capture_output=True, text=True).stdout.strip() or None
    except OSError:
        return None


def bits(x):
    """float32 as the nearest bf16, in the bits that NumPy has no type for."""
    raw = np.ascontiguousarray(x, np.float32).view(np.uint32)
    return ((raw + 0x7FFF + ((raw >> 16) & 1)) >> 16).astype(np.uint16)


def wide(x):
    """bf16 as float64; NumPy has a type for it where ml_dtypes is installed."""
    return (np.asarray(x).view(np.uint16).astype(np.uint32) << 16).view(np.float32).astype(np.float64)


class Torch:
    """PyTorch on the GPU, where it is."""

    def __init__(self, options):
        torch = found("torch")
        self.module = torch if torch and torch.cuda.is_available() and not options.quick else None

    def bf16(self, raw):
        torch = self.module
        return torch.from_numpy(raw.view(np.int16)).cuda().view(torch.bfloat16)

    def seconds(self, call, seconds):
        """The time of a call by the GPU's own clock: the mean of many, queued one after another."""
        torch = self.module
        with torch.inference_mode():
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            call()
            begin.record()
            call()
            end.record()
            end.synchronize()
            count = max(3, min(2000, int(seconds / max(1e-6, begin.elapsed_time(end) / 1e3))))
            begin.record()
            for _ in range(count):
                call()
            end.record()
            end.synchronize()
        return begin.elapsed_time(end) / 1e3 / count


def rounds(options, contenders):
    """The times of each in turn; who fails is left out, attnc apart, with a note."""
    times = {name: [] for name in contenders}
    for n in range(options.rounds):
        order = list(contenders)
        for name in order[n % len(order) :] + order[: n % len(order)]:
            if times[name] is None:
                continue
            try:
                times[name].append(contenders[name]())
            except (Exception, SystemExit) as error:
                if name == "attnc":
                    raise
                print(f"      without {name}: {type(error).__name__}: {str(error).splitlines()[0][:120]}", flush=True)
                times[name] = None
    return {name: own for name, own in times.items() if own}


def in_kernels(report, attnc, *words):
    """The seconds that attnc's kernels take; None where no GPU takes part."""
    measured = attnc.bench(*words)
    report.saw(measured)
    return measured["all"]["seconds"]


# ------------------------------------------------------------------ attention


def attention(attnc, torch, report, options):
    tokens, width = (256, 128) if options.quick else (16384, 2048)
    lengths = [64] if options.quick else [1024, 2048, 4096, 8192, 16384]
    rng = np.random.default_rng(1)
    for dim in (64, 128):
        model = attnc.model(PROGRAMS, "Attention", ["--dim", f"D={dim}"])
        for s in lengths:
            b, h = tokens // s, width // dim
            q, k, v = (bits(rng.standard_normal((b, h, s, dim))) for _ in range(3))
            for past in (False, True):
                what = f"attention, d {dim}, S {s}" + (", causal" if past else "")
                entry = model.past if past else model.full
                report.check(what, some_rows(wide(entry(q=q, k=k, v=v))), attention_in_numpy(q, k, v, past))
                if options.quick:
                    continue
                flops = 4 * b * h * s * s * dim / (2 if past else 1)
                sizes = {"B": b, "H": h, "S": s}
                name = "past" if past else "full"

                def ours(name=name, sizes=sizes, dim=dim):
                    return in_kernels(report, attnc, PROGRAMS, "Attention", name, sizes, ["--dim", f"D={dim}"])

                contenders = {"attnc": ours, **attention_of_others(torch, q, k, v, past, options)}
                is_aim = past and dim == 128 and s == 16384
                report.add(what, "TFLOP/s", flops / 1e12, rounds(options, contenders), "600 TFLOP/s" if is_aim else "")
        model.close()


ROWS = 17


def some_rows(x):
    """Some queries of the first and of the last head."""
    step = max(1, x.shape[2] // ROWS)
    return np.stack([x[0, 0, ::step], x[-1, -1, ::step]])


def attention_in_numpy(q, k, v, past):
    out = []
    for b, h in ((0, 0), (-1, -1)):
        queries, keys, values = wide(q[b, h]), wide(k[b, h]), wide(v[b, h])
        places = np.arange(0, len(queries), max(1, len(queries) // ROWS))
        scores = queries[places] @ keys.T / math.sqrt(keys.shape[1])
        if past:
            scores[places[:, None] < np.arange(len(keys))] = -np.inf
        weights = np.exp(scores - scores.max(1, keepdims=True))
        out.append(weights @ values / weights.sum(1, keepdims=True))
    return np.stack(out)


def attention_of_others(torch, q, k, v, past, options):
    if not torch.module:
        return {}
    from torch.nn.attention import SDPBackend, sdpa_kernel

    q, k, v = (torch.bf16(x) for x in (q, k, v))
    sdpa = torch.module.nn.functional.scaled_dot_product_attention

    def own(backend):
        def call():
            with sdpa_kernel(backend):
                return torch.seconds(lambda: sdpa(q, k, v, is_causal=past), options.seconds)

        return call

    named = {"cuDNN": SDPBackend.CUDNN_ATTENTION, "FlashAttention in PyTorch": SDPBackend.FLASH_ATTENTION}
    others = {name: own(backend) for name, backend in named.items()}
    # Those want [B, S, H, D].
    turned = [x.transpose(1, 2).contiguous() for x in (q, k, v)]
    for name, module in (("FlashAttention-2", "flash_attn"), ("FlashAttention-3", "flash_attn_interface")):
        if package := found(module):
            others[name] = lambda f=package.flash_attn_func: torch.seconds(lambda: f(*turned, causal=past), options.seconds)
    return others


# ------------------------------------------------------------------- products


def product(attnc, torch, report, options):
    rng = np.random.default_rng(2)
    for n in [64, 104] if options.quick else [1024, 2048, 4096, 8192]:
        dims = ["--dim", f"N={n},K={n}"]
        model = attnc.model(PROGRAMS, "Product", dims)
        x, y, bias = (bits(rng.standard_normal(shape)) for shape in ((n, n), (n, n), (n,)))
        rows = np.arange(0, n, max(1, n // ROWS))
        want = wide(x[rows]) @ wide(y)
        report.check(f"product, {n}^3", wide(model.plain(x=x, y=y))[rows], want)
        inner = wide(x[rows]) @ wide(y).T + wide(bias)
        want = 0.5 * inner * (1 + np.tanh(math.sqrt(2 / math.pi) * (inner + 0.044715 * inner**3)))
        report.check(f"product, bias and GELU, {n}^3", wide(model.epilogue(x=x, y=y, bias=bias))[rows], want)
        if options.quick:
            model.close()
            continue
        contenders = {"plain": {}, "epilogue": {}}
        if torch.module:
            nn = torch.module.nn.functional
            a, b, c = (torch.bf16(array) for array in (x, y, bias))

            def layer():
                return nn.gelu(nn.linear(a, b, c), approximate="tanh")

            compiled = torch.module.compile(layer, mode="max-autotune-no-cudagraphs")
            contenders["plain"]["cuBLAS"] = lambda: torch.seconds(lambda: a @ b, options.seconds)
            contenders["epilogue"]["cuBLAS, then GELU"] = lambda: torch.seconds(layer, options.seconds)
            contenders["epilogue"]["torch.compile"] = lambda: torch.seconds(compiled, options.seconds)
        for entry, others in contenders.items():

            def ours(entry=entry, n=n, dims=dims):
                return in_kernels(report, attnc, PROGRAMS, "Product", entry, {"M": n}, dims)

            what = f"product, {n}^3" + (", bias and GELU" if entry == "epilogue" else "")
            aim = "1.0 x" if n >= 4096 else ""
            report.add(what, "TFLOP/s", 2 * n**3 / 1e12, rounds(options, {"attnc": ours, **others}), aim)
        model.close()


# ---------------------------------------------------------------- whole models


def calls(call, options):
    """The median time from a call to its result."""
    call()
    times, end = [], time.perf_counter() + options.seconds
    while len(times) < 5 or time.perf_counter() < end:
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def in_bf16(path):
    """GPT-2's program with elements of bf16."""
    text = re.sub(r"((Conv1D|LayerNorm)<[^>]*)>", r"\1, E = bf16>", path.read_text().replace("f32", "bf16"))
    out = OUT / f"{path.stem}_bf16.attn"
    out.write_text(text)
    return out


def gpt2(attnc, torch, report, options):
    program = ROOT / "examples" / "08_gpt2.attn"
    dims = {"L": 2, "D": 64, "H": 2, "V": 97, "T": 64} if options.quick else {"L": 12, "D": 768, "H": 12, "V": 50257, "T": 1024}
    s, chosen = dims["T"], ["--dim", ",".join(f"{name}={n}" for name, n in dims.items())]
    rng = np.random.default_rng(3)
    tokens = rng.integers(0, dims["V"], s).astype(np.int32)
    weights = {name: (0.02 * rng.standard_normal(shape)).astype(np.float32) for name, shape in gpt2_shapes(dims).items()}
    files = [OUT / "gpt2_f32.safetensors", OUT / "gpt2_bf16.safetensors"]
    tensors.write(files[0], weights)
    tensors.write(files[1], {name: bits(value) for name, value in weights.items()})
    want = None
    for kind, path, file, more in (
        ("f32", program, files[0], []),
        ("tf32", program, files[0], ["--matmul-precision", "tf32"]),
        ("bf16", in_bf16(program), files[1], []),
    ):
        model = attnc.model(path, "Gpt2", [*chosen, *more], file)
        got = model.forward(tokens=tokens)
        if want is None:
            with attnc.model(path, "Gpt2", chosen, file, target="cpu") as cpu:
                want = np.asarray(cpu.forward(tokens=tokens), np.float64)
        got = wide(got) if kind == "bf16" else got
        report.check(f"GPT-2, {s} tokens, {kind}", got, want, 5e-2 if kind == "bf16" else 5e-3 if kind == "tf32" else 1e-4)
        if not options.quick:
            # The scores stay on the GPU, as those of PyTorch do.
            given = torch.module.from_numpy(tokens).cuda() if torch.module else tokens
            contenders = {"attnc": lambda model=model, given=given: calls(lambda: model.forward(tokens=given), options)}
            if torch.module and found("transformers"):
                contenders["torch.compile"] = gpt2_of_torch(torch, weights, dims, given, kind, options)
            report.add(f"GPT-2, prefill of {s}, {kind}", "1000 tokens/s", s / 1e3, rounds(options, contenders), "1.3 x")
        model.close()


def gpt2_shapes(dims):
    d = dims["D"]
    shapes = {"wte.weight": (dims["V"], d), "wpe.weight": (dims["T"], d), "ln_f.weight": (d,), "ln_f.bias": (d,)}
    for i in range(dims["L"]):
        for name in ("ln_1", "ln_2"):
            shapes[f"h.{i}.{name}.weight"] = shapes[f"h.{i}.{name}.bias"] = (d,)
        for name, a, b in (("attn.c_attn", d, 3 * d), ("attn.c_proj", d, d), ("mlp.c_fc", d, 4 * d), ("mlp.c_proj", 4 * d, d)):
            shapes[f"h.{i}.{name}.weight"], shapes[f"h.{i}.{name}.bias"] = (a, b), (b,)
    return shapes


def gpt2_of_torch(torch, weights, dims, tokens, kind, options):
    import transformers

    module = torch.module
    module.set_float32_matmul_precision("high" if kind == "tf32" else "highest")
    config = transformers.GPT2Config(
        n_layer=dims["L"], n_embd=dims["D"], n_head=dims["H"], vocab_size=dims["V"], n_positions=dims["T"]
    )
    own = transformers.GPT2LMHeadModel(config).eval()
    own.transformer.load_state_dict({name: module.from_numpy(value) for name, value in weights.items()}, strict=False)
    own = own.cuda().to(module.bfloat16 if kind == "bf16" else module.float32)
    compiled = module.compile(own, mode="max-autotune")
    ids = tokens.long()[None]

    def call():
        with module.inference_mode():
            compiled(ids, use_cache=False)
        module.cuda.synchronize()

    return lambda: calls(call, options)


class Llama:
    """Llama 3.2 1B's shape, weights packed as bf16, a cache of bf16: its weights, in a file, and a prompt."""

    def __init__(self, options, folder=OUT):
        dims = {"L": 16, "D": 2048, "H": 32, "K": 8, "F": 8192, "V": 128256, "T": 2048}
        prompt, self.count = 512, 256
        if options.quick:
            dims, prompt, self.count = {"L": 2, "D": 64, "H": 4, "K": 2, "F": 96, "V": 97, "T": 40}, 20, 4
        d, kv = dims["D"], dims["D"] // dims["H"] * dims["K"]
        rng = np.random.default_rng(4)
        self.chosen = ["--dim", ",".join(f"{name}={n}" for name, n in dims.items()) + ",Kept=bf16", "--pack", "bf16"]

        def random(rows, cols):
            # Uniform numbers are drawn fast, and there are 1.5e9 of them.
            return bits((rng.random((rows, cols), np.float32) - 0.5) * np.float32(2 * (3 / cols) ** 0.5))

        ones = bits(np.ones(d, np.float32))
        weights = {"model.embed_tokens.weight": random(dims["V"], d), "lm_head.weight": random(dims["V"], d), "model.norm.weight": ones}
        for i in range(dims["L"]):
            at = f"model.layers.{i}."
            weights |= {at + "input_layernorm.weight": ones, at + "post_attention_layernorm.weight": ones}
            for name, a, b in (("q_proj", d, d), ("k_proj", kv, d), ("v_proj", kv, d), ("o_proj", d, d)):
                weights[f"{at}self_attn.{name}.weight"] = random(a, b)
            for name, a, b in (("gate_proj", dims["F"], d), ("up_proj", dims["F"], d), ("down_proj", d, dims["F"])):
                weights[f"{at}mlp.{name}.weight"] = random(a, b)
        self.file = folder / "llama.safetensors"
        tensors.write(self.file, weights)
        # Each token reads all weights but the table, and the keys and values of the tokens before it.
        self.read = sum(2 * w.size for name, w in weights.items() if "embed_tokens" not in name)
        self.read += 2 * 2 * dims["L"] * kv * (prompt + self.count // 2)
        self.tokens = rng.integers(0, dims["V"], prompt).astype(np.int32)


def llama(attnc, torch, report, options):
    """How many tokens a second, and how much of the bandwidth that is."""
    own = Llama(options)
    program, chosen, tokens = LLAMA, own.chosen, own.tokens
    model = attnc.model(program, "Llama", chosen, own.file)
    greedy = {"temperature": 0.0, "top_k": 0, "top_p": 1.0, "penalty": 1.0, "seed": 0}

    def write():
        model.reset()
        last = model.next(tokens=tokens, **greedy)
        start, out = time.perf_counter(), [int(last)]
        for _ in range(own.count):
            out.append(int(model.next(tokens=np.array([out[-1]], np.int32), **greedy)))
        return (time.perf_counter() - start) / own.count, out

    if options.quick:
        model.reset()
        got = model.prefill(tokens=tokens)
        with attnc.model(program, "Llama", chosen, own.file, target="cpu") as cpu:
            report.check("Llama, scores after a prompt", got, cpu.prefill(tokens=tokens), 5e-2)
            report.check("Llama, scores of a step", model.step(token=3), cpu.step(token=3), 5e-2)
        write()
    else:
        times = rounds(options, {"attnc": lambda: write()[0]})
        report.add(f"Llama 1B, bf16, token after {len(tokens)}", "GB/s", own.read / 1e9, times, "85 % of the bandwidth")
        report.add(f"Llama 1B, bf16, token after {len(tokens)}", "tokens/s", 1, times, "")
    model.close()


WORKLOADS = {"attention": attention, "product": product, "gpt2": gpt2, "llama": llama}


def main():
    parser = argparse.ArgumentParser(description="Times attnc on a GPU beside PyTorch.")
    parser.add_argument("workloads", nargs="*", metavar="WORKLOAD", help=f"some of {' '.join(WORKLOADS)}; all without")
    parser.add_argument("--attnc", type=Path, default=ROOT / "target" / "release" / "attnc", help="the compiler")
    parser.add_argument("--seconds", type=float, default=0.3, help="of a turn")
    parser.add_argument("--rounds", type=int, default=3, help="turns of each")
    parser.add_argument("--quick", action="store_true", help="tiny sizes, no times")
    options = parser.parse_args()
    unknown = set(options.workloads) - set(WORKLOADS)
    if unknown:
        parser.error(f"no such workload: {' '.join(sorted(unknown))}")
    OUT.mkdir(parents=True, exist_ok=True)
    attnc, torch, report = Attnc(options.attnc, options.seconds), Torch(options), Report()
    if not torch.module and not options.quick:
        print("without PyTorch on a GPU: attnc alone", file=sys.stderr)
    for name in options.workloads or WORKLOADS:
        WORKLOADS[name](attnc, torch, report, options)
    if not options.quick:
        report.write(" ".join(["tests/live/compare_gpu.py", *sys.argv[1:]]))
        print((OUT / "figures.md").read_text())
    if report.wrong:
        sys.exit("\n".join(report.wrong))


if __name__ == "__main__":
    main()
