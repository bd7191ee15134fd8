"""The first ten minutes on a GPU: does attnc's code run there, are its numbers right, how fast is it? One file of figures comes out.

    tests/live/gpu.sh first                                 compiles attnc first, where cargo is; see there
    python3 tests/live/first_gpu.py --attnc PROGRAM         [--before PROGRAM: an older attnc, whose attention is timed in turn]
    python3 tests/live/first_gpu.py --attnc PROGRAM --quick      tiny sizes, no times; the stand-in for a driver will do

All libraries are compiled, and all weights made, before the clock starts; `attnc bench` compiles again. Then, by minutes: loading (0),
numbers against float64 (1), compute-sanitizer (3), attention beside PyTorch's (4), products beside cuBLAS (7), a step of a Llama (8), a
profile (9). A part that has no time left says what it left out. It stops at the first wrong number, with the arguments in a file and the commands to go on.

build/gpu/first/figures.json has everything, figures.md beside it the same to read; both are written after each part.
"""

import argparse
import functools
import json
import math
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

import compare_gpu
from compare_gpu import OUT, ROOT, TOLERANCE, Attnc, Torch, bits, calls, rounds, wide

PROGRAM = Path(__file__).resolve().parent / "speed" / "first.attn"
RECURRENT = ROOT / "examples" / "13_recurrent.attn"
# Masks that take the place of -inf, and what all scores of a row may be shifted by.
MASKS = (-1e4, -1e9, -1e30, -3.4028235e38)
SHIFTS = (0.0, 1e4, 1e11, 1e30)


# What NVIDIA's tools watch: parts by themselves.
UNDER_TOOLS = {"compute-sanitizer": ("--quick", "--only", "numbers"), "ncu": ("--only", "attention")}


class Wrong(Exception):
    """A number is not what it should be."""


class Run:
    """What is compiled, what was found, and the clock."""

    def __init__(self, options):
        self.options, self.figures, self.notes, self.start = options, {}, [], None
        # A part by itself may run beside all of them, which have their libraries open.
        self.folder = OUT / "first" / (options.only or "")
        self.folder.mkdir(parents=True, exist_ok=True)
        self.attnc, self.torch, self.models = Attnc(options.attnc, 0.1, self.folder), Torch(options), {}
        self.attnc.is_ready = options.prepared
        self.dims = (64,) if options.quick else (64, 128, 256)
        self.lengths = () if options.quick else (1024, 4096, 16384)
        self.products = () if options.quick else ((4096, 4096, 4096), (8192, 8192, 8192), (1024, 768, 768))

    def minutes(self):
        return (time.monotonic() - self.start) / 60

    def note(self, text):
        self.notes.append(text)
        print(f"      {text}", flush=True)

    def check(self, what, got, want, stem=None, entry=None, arguments=None, tolerance=TOLERANCE):
        got, want = np.asarray(got, np.float64), np.asarray(want, np.float64)
        differs = math.inf
        if got.shape == want.shape:
            differs = np.abs(got - want).max(initial=0.0) / max(1e-30, np.abs(want).max(initial=0.0))
        # NaN is not at most anything.
        if differs <= tolerance:
            print(f"ok    {what:60} differs by {differs:.1e}", flush=True)
            return
        print(f"FAIL  {what:60} differs by {differs:.1e}, may by {tolerance:.0e}", flush=True)
        lines = [f"{what} differs by {differs:.1e}, may by {tolerance:.0e}"]
        if arguments:
            folder = self.folder / "wrong"
            folder.mkdir(exist_ok=True)
            for name, value in arguments.items():
                np.save(folder / f"{name}.npy", value.view("V2") if value.dtype == np.uint16 else value)
            np.save(folder / "got.npy", got)
            np.save(folder / "want.npy", want)
            program, model, dims = stem
            given = " ".join(f"--input {name}={folder / name}.npy" for name in arguments)
            same = f"{self.options.attnc} run {program} --entry {model} --function {entry} --dim {dims}"
            lines += [
                f"the arguments, the result and what it should be are in {folder} (bf16 as `V2`); where to look:",
                f"  places:     python3 -c \"import numpy as n; g, w = (n.load('{folder}/%s.npy' % x) for x in ('got', 'want')); print(n.argwhere(~(abs(g - w) < .02))[:40])\"",
                f"  simulator:  {same} --backend ptx-sim --gpu sm_90a {given}",
                f"  launches:   ATTNC_SYNC=1 ATTNC_CUDA_GRAPHS=0 {self.options.command}",
                f"  races:      compute-sanitizer --tool racecheck {self.options.command} --only numbers",
                f"  mma.sync:   {same} --backend ptx-sim --gpu sm_80 {given}",
            ]
        raise Wrong("\n".join(lines))

    def write(self):
        taken = round(self.minutes(), 2) if self.start else 0
        whole = {"command": self.options.command, "driver": compare_gpu.driver(), "minutes": taken, "figures": self.figures, "notes": self.notes}
        (self.folder / "figures.json").write_text(json.dumps(whole, indent=1) + "\n")
        lines = [f"`{self.options.command}`, driver {whole['driver']}, {taken} minutes", ""]
        for part, rows in self.figures.items():
            lines += [f"## {part}", "", *(f"- {name}: {value}" for name, value in rows.items()), ""]
        lines += ["## Notes", "", *(f"- {note}" for note in self.notes)]
        (self.folder / "figures.md").write_text("\n".join(lines) + "\n")

    def time(self, part, what, unit, work, contenders):
        """Times by turns; `work` in a second is one `unit`."""
        times = rounds(self.options, contenders)
        rates = {name: round(work / sorted(own)[len(own) // 2], 2) for name, own in times.items()}
        self.figures.setdefault(part, {})[f"{what}, {unit}"] = rates
        print(f"      {what}: {unit}: {rates}", flush=True)


def prepare(run):
    """Everything that needs no GPU."""
    attnc, options = run.attnc, run.options
    run.loads = {}
    for how in () if options.only not in (None, "loading") else ("auto", "never"):
        began = time.perf_counter()
        run.loads[how] = attnc.library(PROGRAM, "Attention", ["--dim", "D=64", "--cubins", how])
        print(f"      compiled in {time.perf_counter() - began:.1f} s", flush=True)
    for dim in run.dims:
        run.models["Attention", dim] = attnc.library(PROGRAM, "Attention", ["--dim", f"D={dim}"])
    sizes = [(72, 160), (64, 96), *((n, k) for _, n, k in run.products)]
    for n, k in sizes:
        run.models["Product", n, k] = attnc.library(PROGRAM, "Product", ["--dim", f"N={n},K={k}"])
    for target in ("cuda", "cpu"):
        run.models["Recurrent", target] = attnc.library(RECURRENT, "Recurrent", ["--dim", "I=16,H=32,C=5"], target)
    if options.only in (None, "llama"):
        run.llama = compare_gpu.Llama(options, run.folder)
        run.models["Llama"] = attnc.library(compare_gpu.LLAMA, "Llama", run.llama.chosen)
    if options.only:
        return
    for tool, words in UNDER_TOOLS.items():
        if shutil.which(tool):
            subprocess.run([*run.options.command.split(), *words, "--prepare"], check=True)
    for kind, arch in (("HGMMA", "sm_90a"), ("HMMA", "sm_80")):
        line = [str(options.attnc), str(PROGRAM), "--entry", "Attention", "--dim", "D=64", "--target", "cuda", "--gpu", arch, "--emit", "sass=-"]
        done = subprocess.run(line, capture_output=True, text=True)
        if done.returncode:
            run.note(f"no SASS for {arch}: {(done.stderr.strip().splitlines() or ['?'])[0]}")
            continue
        counts = {word: done.stdout.count(word) for word in (kind, "UTMALDG", "MUFU.EX2", "STL", "LDL")}
        run.figures.setdefault("SASS", {})[arch] = counts
        if not counts[kind] or counts["STL"] + counts["LDL"]:
            raise Wrong(f"SASS for {arch}: {counts}: tensor cores and no spills were expected")


def loading(run):
    for how, what in (("auto", "machine code, if ptxas was found"), ("never", "PTX, by the driver's compiler")):
        began = time.perf_counter()
        with run.attnc.opened(run.loads[how]) as model:
            q, k, v = attention_arguments(1, 2, 40, 70, 64)
            got = model.full(q=q, k=k, v=v)
            run.figures.setdefault("Loading", {})[what] = f"{time.perf_counter() - began:.2f} s to the first result"
            run.check(f"attention of a library loaded as {what}", wide(got), attended(q, k, v), ("Attention", how))


def attention_arguments(seed, h, s, t, dim, groups=None):
    rng = np.random.default_rng(seed)
    lead = lambda own: (h, own) if groups else (h,)  # noqa: E731
    shapes = [(*lead(groups), s, dim), (*lead(1), t, dim), (*lead(1), t, dim)]
    return [bits(rng.standard_normal(shape)) for shape in shapes]


def attended(q, k, v, seen=None, fill=-np.inf, added=None):
    """The formula in float64; scores are rounded to float32 where the program adds to them."""
    scores = wide(q) @ np.swapaxes(wide(k), -1, -2) / math.sqrt(q.shape[-1])
    if added is not None:
        scores = (scores.astype(np.float32) + added).astype(np.float64)
    if seen is not None:
        scores = np.where(seen, scores, fill)
    highest = scores.max(-1, keepdims=True)
    weights = np.exp(scores - np.where(np.isinf(highest), 0.0, highest))
    sums = weights.sum(-1, keepdims=True)
    return np.where(sums == 0.0, 0.0, weights @ wide(v) / np.where(sums == 0.0, 1.0, sums))


def poisoned(call, arguments):
    """A result behind one that was NaN everywhere: what is not written stays so."""
    nan = {name: np.full_like(x, 0x7FC0) if x.dtype == np.uint16 else x for name, x in arguments.items()}
    call(**nan)
    return np.asarray(call(**arguments))


def numbers(run):
    sizes = [(40, 70), (5, 130)] if run.options.quick else [(64, 64), (129, 257), (1, 1), (77, 1000), (9, 513), (1000, 77)]
    for dim in run.dims:
        with run.attnc.opened(run.models["Attention", dim]) as model:
            for n, (s, t) in enumerate(sizes):
                q, k, v = attention_arguments(n, 2, s, t, dim)
                i, j = np.arange(s)[:, None], np.arange(t)
                seen = (i % 3 > 0) & ((i + j * j) % 5 > 0)
                added = np.where(i % 8 < 4, np.where(seen, 0.0, np.take(MASKS, i % 4)), np.take(SHIFTS, i % 4)).astype(np.float32)
                for entry, more, want in (
                    ("full", {}, {}),
                    ("past", {}, {"seen": j <= i + t - s}),
                    ("filled", {"m": seen}, {"seen": seen, "fill": -1e30}),
                    ("added", {"m": added}, {"added": added}),
                ):
                    arguments = {"q": q, "k": k, "v": v, **more}
                    got = wide(poisoned(getattr(model, entry), arguments))
                    what = f"attention, d {dim}, {entry}, S {s}, T {t}"
                    run.check(what, got, attended(q, k, v, **want), (PROGRAM, "Attention", f"D={dim}"), entry, arguments)
            q, k, v = attention_arguments(50, 2, 1, 70 if run.options.quick else 3001, dim, groups=4)
            got = wide(poisoned(model.grouped, {"q": q, "k": k, "v": v}))
            run.check(f"grouped decode, d {dim}", got, attended(q, k, v), (PROGRAM, "Attention", f"D={dim}"), "grouped", {"q": q, "k": k, "v": v})
    rng = np.random.default_rng(9)
    for n, k in ((72, 160), (64, 96)):
        with run.attnc.opened(run.models["Product", n, k]) as model:
            for m in (66, 1) if run.options.quick else (1, 66, 700, 4097):
                x, y = bits(rng.standard_normal((m, k))), bits(rng.standard_normal((k, n)))
                for entry, right in (("nn", y), ("nt", np.ascontiguousarray(y.T))):
                    arguments = {"x": x, "y": right}
                    got = wide(poisoned(getattr(model, entry), arguments))
                    run.check(f"product {entry}, {m} x {k} x {n}", got, wide(x) @ wide(y), (PROGRAM, "Product", f"N={n},K={k}"), entry, arguments)
    loop(run, rng)


def loop(run, rng):
    """A loop whose blocks wait for each other, in a graph and without: as on the processor, and the same bits."""
    file, results = run.folder / "recurrent.safetensors", {}
    x = rng.standard_normal((7, 2, 16)).astype(np.float32)
    h, i = 32, 16
    shapes = {}
    for name, gates, inputs in (("rnn_cell", 1, i), ("gru_cell", 3, i), ("lower", 4, i), ("upper", 4, h), ("forwards", 4, i), ("backwards", 4, i)):
        shapes |= {f"{name}.weight_ih": (gates * h, inputs), f"{name}.weight_hh": (gates * h, h), f"{name}.bias_ih": (gates * h,), f"{name}.bias_hh": (gates * h,)}
    shapes |= {"classes.weight": (5, 2 * h), "classes.bias": (5,)}
    compare_gpu.tensors.write(file, {name: (0.2 * rng.standard_normal(shape)).astype(np.float32) for name, shape in shapes.items()})
    for graphs in ("1", "0"):
        os.environ["ATTNC_CUDA_GRAPHS"] = graphs
        with run.attnc.opened(run.models["Recurrent", "cuda"], file) as model:
            # The launches of a call become a graph when they come again.
            results[graphs] = [np.asarray(model.lstm(x=x)) for _ in range(2 if run.options.quick else 4)]
    del os.environ["ATTNC_CUDA_GRAPHS"]
    with run.attnc.opened(run.models["Recurrent", "cpu"], file) as cpu:
        run.check("a loop of an LSTM", results["0"][0], cpu.lstm(x=x), tolerance=1e-4)
    for n, (a, b) in enumerate(zip(results["1"], results["0"])):
        run.check(f"the same in a graph, call {n}", a, b, tolerance=0.0)


def sanitizer(run):
    if not shutil.which("compute-sanitizer"):
        return run.note("no compute-sanitizer: left out")
    command = [*run.options.command.split(), *UNDER_TOOLS["compute-sanitizer"], "--prepared"]
    for tool in ("memcheck", "racecheck", "synccheck"):
        try:
            done = subprocess.run(["compute-sanitizer", "--tool", tool, "--error-exitcode", "9", *command], capture_output=True, text=True, timeout=40)
        except subprocess.TimeoutExpired:
            run.note(f"{tool}: not done in 40 s")
            continue
        run.figures.setdefault("compute-sanitizer", {})[tool] = f"exit code {done.returncode}"
        if done.returncode:
            raise Wrong(f"compute-sanitizer {tool}:\n{done.stdout[-3000:]}{done.stderr[-1000:]}")


def kernels(attnc, model, entry, dims, sizes):
    """A contender: GPU time of its kernels by `attnc bench`, once for all rounds, since that compiles. (A call would wait for its result.)"""
    return functools.cache(lambda: attnc.bench(PROGRAM, model, entry, sizes, ["--dim", dims])["all"]["seconds"])


def call(run, what, model, **arguments):
    """What a call from Python takes, from its tensors on the GPU to its result there."""
    given = {name: run.torch.bf16(x) for name, x in arguments.items()}
    seconds = calls(lambda: model(**given), run.options)
    run.figures.setdefault("Calls", {})[what] = f"{seconds * 1e6:.0f} us"


def attention(run):
    if not run.torch.module:
        return run.note("no PyTorch on a GPU: attention and products are not timed (attnc bench does that alone)")
    rng = np.random.default_rng(1)
    before = {"attnc before": Attnc(run.options.before, 0.1, run.folder)} if run.options.before else {}
    for s in run.lengths:
        b, h = 16384 // s, 16
        q, k, v = (bits(rng.standard_normal((b * h, s, 128))) for _ in range(3))
        for entry in ("full", "past"):
            flops = 4 * b * h * s * s * 128 / (2 if entry == "past" else 1)
            sizes = {"H": b * h, "S": s, "T": s}
            contenders = {name: kernels(a, "Attention", entry, "D=128", sizes) for name, a in {"attnc": run.attnc, **before}.items()}
            contenders |= compare_gpu.attention_of_others(run.torch, *(x[None] for x in (q, k, v)), entry == "past", run.options)
            run.time("Attention, d 128", f"S {s}, {entry}", "TFLOP/s", flops / 1e12, contenders)
        with run.attnc.opened(run.models["Attention", 128]) as model:
            call(run, f"attention, S {s}", model.full, q=q, k=k, v=v)


def products(run):
    if not run.torch.module:
        return
    rng = np.random.default_rng(2)
    for m, n, k in run.products:
        raw = [bits(rng.standard_normal(shape)) for shape in ((m, k), (k, n))]
        x, y = (run.torch.bf16(array) for array in raw)
        own = kernels(run.attnc, "Product", "nn", f"N={n},K={k}", {"M": m})
        contenders = {"attnc": own, "cuBLAS": lambda: run.torch.seconds(lambda: x @ y, run.options.seconds)}
        run.time("Products", f"{m} x {k} x {n}", "TFLOP/s", 2 * m * n * k / 1e12, contenders)
        with run.attnc.opened(run.models["Product", n, k]) as model:
            call(run, f"product, {m} x {k} x {n}", model.nn, x=raw[0], y=raw[1])


def llama(run):
    own = run.llama
    for graphs in ("1", "0"):
        os.environ["ATTNC_CUDA_GRAPHS"] = graphs
        with run.attnc.opened(run.models["Llama"], own.file) as model:
            model.prefill(tokens=own.tokens)
            got = model.step(token=3)
            if run.options.quick and graphs == "1":
                with run.attnc.model(compare_gpu.LLAMA, "Llama", own.chosen, own.file, target="cpu") as cpu:
                    cpu.prefill(tokens=own.tokens)
                    run.check("a step of a Llama", got, cpu.step(token=3), tolerance=5e-2)
            elif not run.options.quick:
                seconds = calls(lambda: model.step(token=3), run.options)
                what = "a step, with graphs" if graphs == "1" else "a step, without"
                run.figures.setdefault("Llama", {})[what] = f"{own.read / seconds / 1e9:.0f} GB/s, {seconds * 1e6:.0f} us"
    del os.environ["ATTNC_CUDA_GRAPHS"]


def profile(run):
    if not shutil.which("ncu"):
        return run.note("no ncu: no profile")
    watch = ["ncu", "--set", "full", "--kernel-name", "regex:attention", "--launch-count", "2", "-f", "-o", str(run.folder / "profile")]
    command = [*watch, *run.options.command.split(), *UNDER_TOOLS["ncu"], "--prepared"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        run.note(f"ncu: exit code {done.returncode}; {run.folder / 'profile.ncu-rep'}")
    except subprocess.TimeoutExpired:
        run.note("ncu: not done in 60 s")


# When each begins at the latest, in minutes, lest those behind it get no time.
PARTS = ((0, loading), (1, numbers), (3, sanitizer), (4, attention), (7, products), (8, llama), (9, profile))


def main():
    parser = argparse.ArgumentParser(description="The first ten minutes on a GPU.")
    parser.add_argument("--attnc", type=Path, default=ROOT / "target" / "release" / "attnc", help="the compiler")
    parser.add_argument("--before", type=Path, help="an older compiler, whose attention is timed in turn")
    parser.add_argument("--quick", action="store_true", help="tiny sizes, no times")
    parser.add_argument("--only", choices=[part.__name__ for _, part in PARTS], help="one part alone")
    parser.add_argument("--prepare", action="store_true", help="compile, and no more")
    parser.add_argument("--prepared", action="store_true", help="take what that compiled")
    options = parser.parse_args()
    options.seconds, options.rounds = 0.2, 3
    options.command = " ".join([sys.executable, *sys.argv])
    run = Run(options)
    try:
        prepare(run)
        if options.prepare:
            return
        run.start = time.monotonic()
        for begins, part in PARTS:
            if options.only not in (None, part.__name__):
                continue
            print(f"{run.minutes():.1f} min: {part.__name__}", flush=True)
            if run.minutes() > begins + 1.5:
                run.note(f"{part.__name__} is left out: {run.minutes():.1f} minutes are over")
            else:
                part(run)
            run.write()
    except Wrong as wrong:
        run.notes.append(str(wrong))
        run.write()
        sys.exit(f"stopped at the first wrong number:\n{wrong}")
    except Exception as error:
        run.note(f"stopped: {type(error).__name__}: {error}")
        run.write()
        raise
    print((run.folder / "figures.md").read_text())


if __name__ == "__main__":
    main()
