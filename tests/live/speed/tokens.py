"""One token after another: attnc with every form of packed weights beside llama.cpp with its own, in tokens a second.

Both have GPT-2 small with its head and random weights of the same shapes: attnc its program and a safetensors file,
llama.cpp gguf files, all of whose matrices are of one type. They take turns: attnc here, llama.cpp by its `llama-bench`,
which generates tokens from an empty context. attnc's error is beside it, as a part of NumPy's result in float64 (root mean
square), and has a limit for each form; llama.cpp works on other numbers and has none here.
"""

import json
import statistics
import subprocess
import time

# What attnc packs weights as, and the type of llama.cpp that is most like it.
FORMATS = {"f32": "F32", "bf16": "BF16", "int8": "Q8_0", "int4": "Q4_0"}
# The least that attnc wants to be faster by; with bytes as they are, memory decides.
WANTED = {"f32": 1.0, "bf16": 1.0, "int8": 1.4, "int4": 1.6}
# What a result may be off by, root mean square, some times what these random weights give: wrong code is off by 1 and more.
LIMITS = {"f32": 1e-5, "bf16": 2e-2, "int8": 6e-2, "int4": 0.6}


def write_gguf(path, kind, layers, d, heads, vocabulary, context=1024):
    """A model of GPT-2's kind with random weights, its matrices of type `kind`; there in whole, or not at all."""
    import gguf
    import numpy as np

    quantised = gguf.GGMLQuantizationType[kind]
    file_type = gguf.LlamaFileType[("ALL_" if kind == "F32" else "MOSTLY_") + kind]
    rng = np.random.default_rng(0)
    part = path.with_suffix(".part")
    out = gguf.GGUFWriter(part, "gpt2")
    out.add_block_count(layers)
    out.add_context_length(context)
    out.add_embedding_length(d)
    out.add_feed_forward_length(4 * d)
    out.add_head_count(heads)
    out.add_layer_norm_eps(1e-5)
    out.add_file_type(file_type)
    out.add_tokenizer_model("gpt2")
    out.add_tokenizer_pre("gpt-2")
    out.add_token_list([f"<{i}>".encode() for i in range(vocabulary)])
    out.add_token_types([1] * vocabulary)
    out.add_token_merges(["< 1"])
    out.add_bos_token_id(vocabulary - 1)
    out.add_eos_token_id(vocabulary - 1)

    def matrix(name, rows, columns):
        values = rng.standard_normal((rows, columns), np.float32) * np.float32(columns**-0.5)
        out.add_tensor(name, gguf.quants.quantize(values, quantised), raw_dtype=quantised)

    def vector(name, n, centre):
        out.add_tensor(name, (centre + rng.standard_normal(n, np.float32) * 0.1).astype(np.float32))

    def norm(name):
        vector(f"{name}.weight", d, 1)
        vector(f"{name}.bias", d, 0)

    matrix("token_embd.weight", vocabulary, d)
    out.add_tensor("position_embd.weight", rng.standard_normal((context, d), np.float32) * np.float32(0.1))
    norm("output_norm")
    for i in range(layers):
        norm(f"blk.{i}.attn_norm")
        norm(f"blk.{i}.ffn_norm")
        sizes = {"attn_qkv": (3 * d, d), "attn_output": (d, d), "ffn_up": (4 * d, d), "ffn_down": (d, 4 * d)}
        for name, (rows, columns) in sizes.items():
            matrix(f"blk.{i}.{name}.weight", rows, columns)
            vector(f"blk.{i}.{name}.bias", rows, 0)
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()
    part.replace(path)


def llama_turn(program, path, threads, tokens):
    """Tokens a second of one run, in which the model is opened anew."""
    line = [program, "-m", path, "-t", threads, "-p", 0, "-n", tokens, "-r", 1, "-o", "json"]
    done = subprocess.run([str(part) for part in line], check=True, capture_output=True, text=True)
    return json.loads(done.stdout)[0]["avg_ts"]


def attnc_turn(call, seconds):
    """Tokens a second of some calls, after one that finds its caches and threads again."""
    call()
    times, begin = [], time.perf_counter()
    while not times or time.perf_counter() - begin < seconds:
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return 1 / statistics.median(times)


def gguf_of(workload, packing, folder):
    """The file of llama.cpp's model, made unless it is there."""
    dims = [workload.dims[name] for name in "LDHV"]
    path = folder / ("gpt2_" + "_".join(map(str, dims)) + f"_{FORMATS[packing]}.gguf")
    if not path.exists():
        write_gguf(path, FORMATS[packing], *dims)
    return path


def in_llama(workload, packing, folder, options):
    """What gives the tokens a second of one turn of llama.cpp."""
    path = gguf_of(workload, packing, folder)
    return lambda: llama_turn(options.llama, path, options.threads, 4 if options.quick else 32)


def tried(kind, make):
    """What `make` gives; None, and why, if it fails: a peer that cannot do it is no reason to stop."""
    try:
        return make()
    except Exception as error:
        lines = (getattr(error, "stderr", None) or str(error)).strip().splitlines()
        why = lines[-1][-100:] if lines else ""
        print(f"  llama.cpp {kind}, left out: {type(error).__name__}: {why}", flush=True)
        return None


def difference(result, expected):
    """Root mean square of the error, as a part of that of the reference."""
    import numpy as np

    result = np.asarray(result, np.float64)
    if result.shape != expected.shape:
        return float("inf")
    return float(np.sqrt(((result - expected) ** 2).mean() / (expected**2).mean()))


def compare(opened, workload, expected, folder, options, bandwidth):
    """Times everybody. `opened` gives the model of a packing; `expected` is the result in float64; `bandwidth` measures the
    bytes that this machine reads in a second, which takes its turn too: where others share the memory, it changes.
    """
    print(f"\n{workload.name}, one after another, packed", flush=True)
    calls, errors, peers = {}, {}, {}
    for packing, kind in FORMATS.items():
        model = opened(packing)
        errors[packing] = difference(model.forward(**workload.inputs), expected)
        calls[packing] = lambda model=model: model.forward(**workload.inputs)
        if options.llama:
            peers[packing] = tried(kind, lambda: in_llama(workload, packing, folder, options))
    del expected
    rates = {(packing, who): [] for packing in FORMATS for who in ("attnc", "llama.cpp")}
    ceilings, begin, rounds = [], time.perf_counter(), 0
    while rounds < options.rounds or time.perf_counter() - begin < options.seconds:
        ceilings.append(bandwidth())
        order = list(FORMATS.items())
        # Who goes first changes from round to round: the next turn is after the ceiling's, another program that wrote much.
        for packing, kind in order[rounds % len(order) :] + order[: rounds % len(order)]:
            rates[packing, "attnc"].append(attnc_turn(calls[packing], 0.005 if options.quick else 0.3))
            if peers.get(packing):
                rate = tried(kind, peers[packing])
                if rate is None:
                    peers[packing] = None
                else:
                    rates[packing, "llama.cpp"].append(rate)
        rounds += 1
    # Bytes that a number takes with its scale.
    sizes, rows = {"f32": 4, "bf16": 2, "int8": 1 + 4 / 32, "int4": 0.5 + 4 / 32}, {}
    numbers, ceiling = workload.least_bytes / 4, statistics.median(ceilings)
    print(f"  reading memory: {ceiling / 1e9:.1f} GB/s, between {min(ceilings) / 1e9:.1f} and {max(ceilings) / 1e9:.1f}")
    for packing, kind in FORMATS.items():
        own = statistics.median(rates[packing, "attnc"])
        # NaN is wrong too.
        wrong = not errors[packing] <= LIMITS[packing]
        row = {"tokens_per_second": own, "error": errors[packing], "wrong": wrong, "wanted": WANTED[packing]}
        # Of the ceiling of its round: both change together.
        shares = [rate / limit for rate, limit in zip(rates[packing, "attnc"], ceilings)]
        row["of_ceiling"] = statistics.median(shares) * numbers * sizes[packing]
        line = f"  attnc {packing:5} {own:8.1f} tokens/s {row['of_ceiling'] * 100:6.1f} % of the bandwidth"
        line += f"  differs by {errors[packing]:.0e}" + "  WRONG" * wrong
        if peers.get(packing):
            row["llama"] = statistics.median(rates[packing, "llama.cpp"])
            row["ratio"] = own / row["llama"]
            line += f"   llama.cpp {kind:5} {row['llama']:8.1f}  ratio {row['ratio']:.2f}, wanted {WANTED[packing]:.2f}"
        print(line, flush=True)
        rows[packing] = row
    return rows
