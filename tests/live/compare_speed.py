"""Times attnc beside PyTorch, ONNX Runtime and OpenVINO: all in one run, turn by turn, on the same inputs.

    tests/live/compare_speed.sh [--quick] [WORKLOAD ...]    installs what it needs into build/, and calls this
    tests/live/compare_speed.sh --llama tokens generation   one token after another beside llama.cpp too, built for it
    tests/live/compare_speed.sh --before PROGRAM --alone    this attnc beside an older one, without the others

Every contender gets the same numbers and the same number of threads, is warmed up, and then takes turns with the
others, so that what else the machine does meets all of them alike. A turn is some calls; the first of a turn does
not count where calls are short, since caches and threads are still another's. Medians are compared. attnc is called
through its Python wrapper, the others through theirs. Results must agree with NumPy's in float64.

All compute in float32, with two exceptions. In workloads of bf16 attnc's program multiplies bf16, in attention too, with
matrices rounded from the same numbers, and OpenVINO takes the float32 model with a hint to compute in bf16; this script
leaves the other peers out there. `tokens` packs weights in fewer bytes; llama.cpp stands beside it with random numbers of
its own (speed/tokens.py), in `generation` too (speed/generation.py). `translate` has peers of its own (speed/translate.py).

Beside them stands what the machine can do, as `attnc bench` measures it in the same run. Contenders that are not
installed are left out, and so is attnc's LLVM back end where attnc is built without it; --compile adds torch.compile,
which takes minutes, --numpy plain NumPy where all compute in float32. --before names an older build of attnc, which takes
turns with this one, its libraries, its compile time and the sizes of what it makes. --quick has tiny sizes: it shows that
everything works, and its times mean nothing. Exit code 1 where a result differs.
"""

import argparse
import functools
import gc
import importlib
import importlib.util
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path[:0] = [str(HERE / "speed"), str(ROOT / "tests" / "fixtures")]
OUT = ROOT / "build" / "speed"

# A contender that calls attention by its name; all others get the formula, written out.
BY_NAME = "PyTorch, its attention"

# An older build of attnc.
BEFORE = "attnc before"

# What a result may differ by, as a part of the largest number of the reference.
TOLERANCE = {"f32": 2e-4, "bf16": 3e-2}
# The same with weights packed in fewer bytes.
PACKED = {"bf16": 3e-2, "int8": 5e-2, "int4": 5e-1}


def found(name):
    """A module, or None where it is not installed."""
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


class Attnc:
    """The compiler, and the models that it made."""

    def __init__(self, program, prefix=""):
        self.program = program
        # Before the names of the files that it makes.
        self.prefix = prefix

    @functools.cache
    def has_llvm(self):
        """Is it built with its second back end?"""
        line = [self.program, HERE / "speed" / "matmul.attn", "--entry", "Product", "--backend", "llvm"]
        line += ["-o", OUT / "llvm.so"]
        return subprocess.run([str(part) for part in line], capture_output=True).returncode == 0

    def compile(self, workload, backend="cranelift", pack="f32"):
        """The wrapper in Python and the path of the library."""
        stem = f"{workload.program.stem}_{workload.model}_{'_'.join(map(str, workload.dims.values()))}"
        stem = OUT / (self.prefix + stem + "_llvm" * (backend == "llvm") + f"_{pack}" * (pack != "f32"))
        dims = [f"--dim={name}={n}" for name, n in workload.dims.items()]
        line = [self.program, workload.program, "--entry", workload.model, *dims, "-o", f"{stem}.so"]
        line += ["--emit", "so,header,python", "--backend", backend, "--pack", pack]
        start = time.perf_counter()
        subprocess.run([str(part) for part in line], check=True)
        self.seconds = time.perf_counter() - start
        spec = importlib.util.spec_from_file_location(stem.name, f"{stem}.py")
        wrapper = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(wrapper)
        return wrapper, f"{stem}.so"

    def ceilings(self, threads):
        """FLOPs and bytes a second that this machine reaches, as `attnc bench` measures them."""
        line = [self.program, "bench", HERE / "speed" / "matmul.attn", "--entry", "Product", "--size", "M=8,K=8,N=8"]
        line += ["--threads", threads, "--seconds", "0", "--json", "-"]
        done = subprocess.run([str(part) for part in line], check=True, capture_output=True, text=True)
        return json.loads(done.stdout)["ceilings"]


class Built:
    """A workload's program, compiled, and a file of its weights; models are opened of both."""

    def __init__(self, attnc, workload, backend="cranelift"):
        import tensors

        self.wrapper, self.so = attnc.compile(workload, backend)
        self.weights = None
        if workload.weights:
            # A file of its own, since open models have theirs mapped.
            self.weights = Path(self.so).with_suffix(".safetensors")
            tensors.write(self.weights, workload.weights_for_attnc())

    def open(self, threads):
        return self.wrapper.Model(self.so, weights=self.weights and str(self.weights), threads=threads)


def token_rates(attnc, workload, options):
    """Every form of packed weights, beside llama.cpp where its benchmark is given."""
    import tokens

    built = Built(attnc, workload)

    def opened(pack):
        wrapper, so = attnc.compile(workload, pack=pack)
        return wrapper.Model(so, weights=str(built.weights), threads=options.threads)

    def bandwidth():
        return attnc.ceilings(options.threads)["bytes_per_second"]

    return tokens.compare(opened, workload, reference(workload), OUT, options, bandwidth)


def generation(attnc, workload, options):
    """A prompt, and tokens after it through the cache, beside llama.cpp where its benchmark is given."""
    import generation

    return generation.compare(attnc, workload, str(Built(attnc, workload).weights), options, OUT)


def translation(attnc, _, options):
    """An encoder-decoder that writes greedily, beside transformers and ONNX Runtime."""
    import translate

    return translate.compare(attnc, found, options, OUT)


def windows(attnc, _, options):
    """Attention of a sliding window, beside those that compute a part of a mask too."""
    import window

    return window.compare(attnc, found, options)


# Workloads that print rows of their own.
OWN_ROWS = {"tokens": token_rates, "generation": generation, "translate": translation, "window": windows}


def in_attnc(built, workload, threads):
    model = built.open(threads)
    return lambda: model.forward(**workload.inputs)


def in_torch(torch, workload, written_out, compiled):
    import graphs

    graph = graphs.InTorch(torch, written_out)
    inputs = {name: graph.take(array) for name, array in workload.inputs.items()}
    weights = {name: graph.weight(array) for name, array in workload.weights.items()}

    def compute(inputs):
        return workload.compute(graph, inputs, weights)

    if compiled:
        # What it knows of earlier workloads would count against this one: it gives up after some versions of a function.
        torch._dynamo.reset()
        compute = torch.compile(compute, dynamic=False)

    def call():
        with torch.inference_mode():
            return compute(inputs).numpy()

    return call


def in_onnx(onnx, workload):
    import graphs

    graph = graphs.InOnnx(onnx)
    inputs = {name: graph.take(array) for name, array in workload.inputs.items()}
    weights = {name: graph.weight(array) for name, array in workload.weights.items()}
    return graph.model(workload.compute(graph, inputs, weights))


def in_onnxruntime(ort, model, workload, threads):
    options = ort.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    feed = dict(zip((i.name for i in session.get_inputs()), workload.inputs.values()))
    return lambda: session.run(None, feed)[0]


def in_openvino(openvino, model, workload, threads):
    core = openvino.Core()
    settings = {"INFERENCE_PRECISION_HINT": workload.precision, "INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY"}
    compiled = core.compile_model(core.read_model(model), "CPU", settings)
    # The hint is a wish; what became of it can be asked for.
    taken = compiled.get_property("INFERENCE_PRECISION_HINT").to_string()
    if taken != workload.precision:
        print(f"  OpenVINO computes in {taken} here, not in {workload.precision}", flush=True)
    request, inputs = compiled.create_infer_request(), list(workload.inputs.values())
    return lambda: request.infer(inputs)[compiled.output(0)]


def in_numpy(workload):
    import graphs
    import numpy as np

    graph = graphs.InNumpy(np.float32)
    return lambda: workload.compute(graph, workload.inputs, workload.weights)


def reference(workload):
    import graphs
    import numpy as np

    graph = graphs.InNumpy(np.float64)
    inputs = {name: graph.take(array) for name, array in workload.inputs.items()}
    return workload.compute(graph, inputs, {name: graph.weight(array) for name, array in workload.weights.items()})


def contenders(attnc, workload, options):
    """Name and a function that calls, attnc first."""
    threads, built = options.threads, Built(attnc, workload)
    yield "attnc", lambda: in_attnc(built, workload, threads)
    if threads > 1:
        yield "attnc, 1 thread", lambda: in_attnc(built, workload, 1)
    if options.before:
        yield BEFORE, lambda: in_attnc(Built(options.before, workload), workload, threads)
        if threads > 1:
            yield BEFORE + ", 1 thread", lambda: in_attnc(Built(options.before, workload), workload, 1)
    if options.without_peers:
        return
    if attnc.has_llvm():
        yield "attnc, LLVM", lambda: in_attnc(Built(attnc, workload, "llvm"), workload, threads)
    # In bf16 only OpenVINO is put beside attnc: it takes the same graph, with a hint.
    only_openvino = workload.precision != "f32"
    if (torch := found("torch")) and not only_openvino:
        torch.set_num_threads(threads)
        is_attention = workload.model == "Attention"
        yield "PyTorch", lambda: in_torch(torch, workload, is_attention, False)
        if is_attention:
            yield BY_NAME, lambda: in_torch(torch, workload, False, False)
        if options.compile:
            yield "torch.compile", lambda: in_torch(torch, workload, is_attention, True)
    if onnx := found("onnx"):
        model = None

        def onnx_model():
            nonlocal model
            model = model or in_onnx(onnx, workload)
            return model

        if (ort := found("onnxruntime")) and not only_openvino:
            yield "ONNX Runtime", lambda: in_onnxruntime(ort, onnx_model(), workload, threads)
        if openvino := found("openvino"):
            yield "OpenVINO", lambda: in_openvino(openvino, onnx_model(), workload, threads)
    if options.numpy and not only_openvino:
        yield "NumPy", lambda: in_numpy(workload)


def difference(result, expected):
    import numpy as np

    result = np.asarray(result, np.float64)
    if result.shape != expected.shape:
        return float("inf")
    return float(np.abs(result - expected).max(initial=0) / max(np.abs(expected).max(initial=0), 1e-30))


def turn(call, times, seconds):
    """Some calls of one contender; others' threads have come to rest before."""
    import turns

    turns.settle()
    calls, begin = [], time.perf_counter()
    while not calls or time.perf_counter() - begin < seconds:
        start = time.perf_counter()
        call()
        calls.append(time.perf_counter() - start)
    times.extend(calls[1:] if len(calls) > 2 else calls)


def compare(attnc, key, workload, options, ceilings):
    """Times one workload; what was found, for the table and JSON."""
    print(f"\n{workload.name}", flush=True)
    expected = reference(workload)
    ready, times, differs, wrong = {}, {}, {}, []
    for name, make in contenders(attnc, workload, options):
        try:
            call = make()
            differs[name] = difference(call(), expected)
        except Exception as error:  # a peer that cannot do it is no reason to stop, nor is an older build; attnc is
            if name.startswith("attnc") and not name.startswith(BEFORE):
                raise
            print(f"  {name}: {type(error).__name__}: {str(error).splitlines()[0][:100]}", flush=True)
            continue
        if not differs[name] <= TOLERANCE[workload.precision]:
            wrong.append(name)
        call()
        ready[name], times[name] = call, []
    del expected
    begin = time.perf_counter()
    rounds = 0
    while rounds < options.rounds or time.perf_counter() - begin < options.seconds:
        order = list(ready)
        # Who goes first changes from round to round.
        for name in order[rounds % len(order) :] + order[: rounds % len(order)]:
            turn(ready[name], times[name], 0.005 if options.quick else 0.05)
        rounds += 1
    medians = {name: statistics.median(calls) for name, calls in times.items()}
    peers = {name: median for name, median in medians.items() if not name.startswith("attnc") and name != BY_NAME}
    best = min(peers, key=peers.get) if peers else None
    rows = {}
    for name, median in medians.items():
        row = {"seconds": median, "calls": len(times[name]), "difference": differs[name], "ratio": median / medians["attnc"]}
        line = f"  {name:24} {median * 1e3:10.3f} ms"
        if workload.least_bytes:
            row["bytes_per_second"] = workload.least_bytes / median
            row["of_ceiling"] = row["bytes_per_second"] / ceilings["bytes_per_second"]
            line += f" {row['bytes_per_second'] / 1e9:8.1f} GB/s "
        else:
            row["flops_per_second"] = workload.flops / median
            row["of_ceiling"] = row["flops_per_second"] / ceilings["flops_per_second"]
            line += f" {row['flops_per_second'] / 1e9:8.1f} GFLOP/s"
        share = f"{row['of_ceiling'] * 100:6.1f} %" if not name.endswith(", 1 thread") else " " * 8
        line += f" {share}  differs by {row['difference']:.0e}"
        print(line + ("  WRONG" if name in wrong else ""), flush=True)
        rows[name] = row
    found = {"name": workload.name, "ceilings": ceilings, "contenders": rows, "rounds": rounds, "wrong": wrong, "wanted": workload.wanted}
    if best:
        found["best"], found["ratio"] = best, peers[best] / medians["attnc"]
        print(f"  ratio {found['ratio']:.2f} to the best peer, {best}; wanted {workload.wanted:.2f}", flush=True)
    if BY_NAME in medians:
        print(f"  ratio {rows[BY_NAME]['ratio']:.2f} to {BY_NAME}, which is not given the formula", flush=True)
    if BEFORE in medians:
        found["before"] = {who: medians[BEFORE + who] / medians["attnc" + who] for who in ("", ", 1 thread") if BEFORE + who in medians}
        print("  ratio " + ", ".join(f"{n:.3f}{who}" for who, n in found["before"].items()) + " to attnc before", flush=True)
    if "attnc, 1 thread" in medians:
        found["threads_ratio"] = medians["attnc, 1 thread"] / medians["attnc"]
        print(f"  ratio {found['threads_ratio']:.2f} from 1 thread to {options.threads}", flush=True)
    return found


def compile_times(attnc, workload, options):
    """Seconds from the source to the library, the median of several; torch.compile's with its caches filled."""
    rows = {}
    for name, backend in [("attnc", "cranelift")] + [("attnc, LLVM", "llvm")] * attnc.has_llvm():
        seconds = []
        for _ in range(3 if options.quick else 7):
            attnc.compile(workload, backend)
            seconds.append(attnc.seconds)
        rows[name] = statistics.median(seconds)
    if options.compile and found("torch"):
        # The first process fills the caches, the second finds them.
        line = [sys.executable, __file__, "--part", "compile", *(["--quick"] if options.quick else [])]
        done = [subprocess.run(line, check=True, capture_output=True, text=True) for _ in range(2)]
        rows["torch.compile, warm"] = float(done[-1].stdout.split()[-1])
    print(f"\nfrom the source to code, {workload.name}")
    for name, value in rows.items():
        print(f"  {name:24} {value * 1e3:10.1f} ms", flush=True)
    return rows


def packed(attnc, options):
    """Medians of this attnc and an older one with packed weights, turn by turn: one row and many."""
    import workloads

    d, heads, layers = (64, 4, 2) if options.quick else (768, 12, 12)
    rows, wrong = {}, []
    print("\npacked weights")
    for count in (1, 33 if options.quick else 128):
        workload = workloads.stack(layers, d, heads, 4 * d, count, True, 1.0)
        expected = reference(workload)
        built = Built(attnc, workload)
        for pack in ("bf16", "int8", "int4"):
            calls, times = {}, {}
            for name, compiler in (("attnc", attnc), (BEFORE, options.before)):
                try:
                    wrapper, so = compiler.compile(workload, pack=pack)
                except subprocess.CalledProcessError:
                    if compiler is attnc:
                        raise
                    print(f"  {workload.name}, {pack}: {name} cannot compile it", flush=True)
                    break
                calls[name], times[name] = wrapper.Model(so, weights=str(built.weights), threads=options.threads), []
            if BEFORE not in calls:
                continue
            differs = {name: difference(model.forward(**workload.inputs), expected) for name, model in calls.items()}
            wrong += [f"{workload.name}, {pack}: {name}" for name, off in differs.items() if not off <= PACKED[pack]]
            begin, rounds = time.perf_counter(), 0
            while rounds < options.rounds or time.perf_counter() - begin < options.seconds / 2:
                for name in sorted(calls, reverse=rounds % 2 == 1):
                    turn(lambda: calls[name].forward(**workload.inputs), times[name], 0.005 if options.quick else 0.05)
                rounds += 1
            medians = {name: statistics.median(own) for name, own in times.items()}
            rows[f"{workload.name}, {pack}"] = medians[BEFORE] / medians["attnc"]
            print(
                f"  {workload.name}, {pack:5} {medians['attnc'] * 1e3:9.3f} ms, before {medians[BEFORE] * 1e3:9.3f} ms,"
                f" ratio {medians[BEFORE] / medians['attnc']:.3f}; differs by {differs['attnc']:.1e}, before {differs[BEFORE]:.1e}",
                flush=True,
            )
    return rows, wrong


def against_before(attnc, report, options):
    """The whole comparison with an older attnc: packed weights, compile time, sizes, and the ratios of all rows."""
    import workloads

    ratios = {}
    for row in report["workloads"].values():
        # Of a row that the older build cannot compile there is none.
        ratios |= {row["name"] + who: ratio for who, ratio in row.get("before", {}).items()}
    of_packed, wrong = packed(attnc, options)
    ratios |= of_packed
    workload = (workloads.QUICK if options.quick else workloads.FULL)["gpt2"]()
    seconds, sizes = {attnc: [], options.before: []}, {}
    for _ in range(3 if options.quick else 15):
        for compiler in seconds:
            _, so = compiler.compile(workload)
            seconds[compiler].append(compiler.seconds)
            sizes[compiler] = os.path.getsize(so)
    now, before = (statistics.median(seconds[c]) for c in (attnc, options.before))
    print(f"\n{'times as fast as before':60} {'ratio':>6}")
    for name, ratio in ratios.items():
        print(f"{name:60} {ratio:6.3f}")
    mean = statistics.geometric_mean(ratios.values()) if ratios else float("nan")
    print(f"{'geometric mean':60} {mean:6.3f}")
    print(f"{workload.name}: source to library {now * 1e3:.1f} ms, before {before * 1e3:.1f} ms ({now / before:.3f} x)")
    print(f"{'':20} library of {sizes[attnc]} bytes, before {sizes[options.before]} ({sizes[attnc] / sizes[options.before]:.3f} x)")
    return {"wrong": wrong, "ratios": ratios, "geometric_mean": mean, "compile": now / before, "size": sizes[attnc] / sizes[options.before]}


def in_own_process(what, options):
    """In a process of its own: the memory of one contender, or the time of torch.compile."""
    import turns
    import workloads

    if what == "compile":
        import torch

        torch.set_num_threads(options.threads)
        workload = (workloads.QUICK if options.quick else workloads.FULL)["gpt2"]()
        call = in_torch(torch, workload, False, True)
        start = time.perf_counter()
        call()
        print(time.perf_counter() - start)
        return
    name, rows = what.rsplit(":", 1)
    attnc = Attnc(options.attnc)
    d, heads = (64, 4) if options.quick else (768, 12)
    large = workloads.stack(1, d, heads, 4 * d, int(rows), True, 1.0)
    small = workloads.stack(1, d, heads, 4 * d, 16, True, 1.0)
    # What a small call sets up is there for the large one.
    if name == "attnc":
        model = Built(attnc, small).open(options.threads)
        model.forward(**small.inputs)

        def run():
            return model.forward(**large.inputs)

    else:
        import torch

        torch.set_num_threads(options.threads)
        in_torch(torch, small, False, False)()
        run = in_torch(torch, large, False, False)
    gc.collect()
    before = turns.kib("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")
    result = run()
    print(max(0, turns.kib("VmHWM") - before) * 1024 - result.nbytes)


def memory(options):
    """Bytes that a call needs beyond weights, arguments and result, in processes of their own."""
    sizes = (512, 1024) if options.quick else (4096, 8192, 16384)
    found_rows = {}
    print("\nworking memory of a causal block, MiB" + "".join(f"{f'S {n}':>12}" for n in sizes))
    for name in ["attnc"] + (["PyTorch"] if found("torch") else []):
        found_rows[name] = {}
        for rows in sizes:
            line = [sys.executable, __file__, "--attnc", options.attnc, "--threads", str(options.threads)]
            line += ["--part", f"{name}:{rows}"] + (["--quick"] if options.quick else [])
            done = subprocess.run(line, check=True, capture_output=True, text=True)
            found_rows[name][rows] = int(done.stdout.split()[-1])
        print(f"  {name:35}" + "".join(f"{found_rows[name][n] / 2**20:12.1f}" for n in sizes), flush=True)
    return found_rows


def main():
    parser = argparse.ArgumentParser(description="Times attnc beside others, in one run.")
    parser.add_argument("workloads", nargs="*", metavar="WORKLOAD", help="some of the names in speed/workloads.py, or their beginnings; all without")
    parser.add_argument("--attnc", default=str(ROOT / "target" / "release" / "attnc"), help="the compiler")
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="of everybody; all processors without")
    parser.add_argument("--seconds", type=float, default=20.0, help="for each workload, at least")
    parser.add_argument("--rounds", type=int, default=5, help="of turns for each workload, at least")
    parser.add_argument("--compile", action="store_true", help="torch.compile too, which takes minutes")
    parser.add_argument("--numpy", action="store_true", help="plain NumPy too")
    parser.add_argument("--llama", metavar="PROGRAM", help="llama.cpp's llama-bench, for the workload `tokens`")
    parser.add_argument("--quick", action="store_true", help="tiny sizes and few calls: does it work?")
    parser.add_argument("--no-memory", dest="memory", action="store_false", help="without working memory")
    parser.add_argument("--json", type=Path, default=OUT / "speed.json", help="where the figures go")
    parser.add_argument("--before", metavar="PROGRAM", type=Path, help="an older build of attnc, to compare with")
    parser.add_argument("--alone", dest="without_peers", action="store_true", help="without the others")
    parser.add_argument("--part", help=argparse.SUPPRESS)
    options = parser.parse_args()
    OUT.mkdir(parents=True, exist_ok=True)
    if options.part:
        in_own_process(options.part, options)
        return
    if options.before and not shutil.which(options.before):
        parser.error(f"--before: no program {options.before}")
    options.before = options.before and Attnc(options.before.resolve(), "before_")
    import workloads

    known = workloads.QUICK if options.quick else workloads.FULL
    # `lstm` is all rows of LSTMs, `lstm-2-512` those of two layers of 512.
    rows = {name: [key for key in known if key == name or key.startswith(name + "-")] for name in options.workloads}
    if unknown := {name for name, keys in rows.items() if not keys} - set(OWN_ROWS):
        parser.error(f"no such workload: {' '.join(sorted(unknown))}; there is {' '.join([*known, *OWN_ROWS])}")
    if options.llama and not shutil.which(options.llama):
        parser.error(f"--llama: no program {options.llama}")
    if options.quick:
        options.seconds, options.rounds, options.numpy = 0.0, 2, True
    load = os.getloadavg()[0]
    attnc = Attnc(options.attnc)
    ceilings = attnc.ceilings(options.threads)
    flops, read = ceilings["flops_per_second"] / 1e9, ceilings["bytes_per_second"] / 1e9
    print(f"{options.threads} threads; this machine reaches {flops:.1f} GFLOP/s ({ceilings['vectors']})")
    print(f"and reads {read:.1f} GB/s from memory; the percentages are of these, measured anew for each workload", flush=True)
    if load > 0.3:
        print(f"the machine is not at rest: its load was {load:.1f} when this began", flush=True)
    report = {"threads": options.threads, "load": load, "ceilings": ceilings, "quick": options.quick, "workloads": {}}
    for key in dict.fromkeys(key for keys in rows.values() for key in keys) if rows else known:
        # The clock moves in the course of minutes, so each workload has the ceilings of its time.
        if report["workloads"] and not options.quick:
            ceilings = attnc.ceilings(options.threads)
        report["workloads"][key] = compare(attnc, key, known[key](), options, ceilings)
        gc.collect()
    if options.before:
        report["before"] = against_before(attnc, report, options)
    for name, compared in OWN_ROWS.items():
        if name in options.workloads or not (options.workloads or options.without_peers):
            report[name] = compared(attnc, known["gpt2"](), options)
    if not options.workloads and not options.without_peers:
        report["compile_seconds"] = compile_times(attnc, known["gpt2"](), options)
        if options.memory:
            report["working_bytes"] = memory(options)
    # The machine may have become slower meanwhile; then the percentages are too low.
    report["ceilings_after"] = attnc.ceilings(options.threads)
    options.json.write_text(json.dumps(report, indent=2) + "\n")
    if any("ratio" in row for row in report["workloads"].values()):
        print(f"\n{'ratio to the best peer':50} {'ratio':>6} {'wanted':>7}")
    for row in report["workloads"].values():
        if "ratio" in row:
            print(f"{row['name']:50} {row['ratio']:6.2f} {row['wanted']:7.2f}  {row['best']}")
    wrong = [f"{row['name']}: {name}" for row in report["workloads"].values() for name in row["wrong"]]
    wrong += report.get("before", {}).get("wrong", [])
    for name in ("tokens", "generation"):
        wrong += [f"{name}: attnc {packing}" for packing, row in report.get(name, {}).items() if row["wrong"]]
    wrong += [f"{key}: {name}" for key in ("translate", "window") for name in report.get(key, {}).get("wrong", [])]
    if wrong:
        sys.exit("results that differ from NumPy's in float64: " + "; ".join(wrong))


if __name__ == "__main__":
    main()
