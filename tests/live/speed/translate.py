"""An encoder-decoder that writes greedily, one token after another: attnc beside transformers' `generate` and ONNX Runtime.

All have the Transformer of "Attention is all you need" with the same random weights, under the names of transformers' Marian, and
keep the keys and values of both attentions. attnc's loop is inside its library; transformers' and ONNX Runtime's are in Python,
ONNX Runtime's over values that stay its own. Tokens must be those of transformers in float64, where it is installed.

attnc with packed weights has rows of its own. Once a rounded weight has changed a token, all later ones may differ, so there it is
shown how many tokens are right before the first that is not; the first must be right.
"""

import math
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import turns

PROGRAM = Path(__file__).resolve().parents[3] / "examples" / "33_translate.attn"
# How many times as fast as the best of the others attnc wants to be.
WANTED = 3.0
START = 0
# What attnc packs weights as, besides f32.
PACKED = ("bf16", "int8")
# No token: nothing stops it before all are written.
NEVER = -1


@dataclass
class Sizes:
    """`program` and `dims` are what attnc compiles."""

    layers: int
    d: int
    heads: int
    f: int
    vocabulary: int
    read: int
    written: int
    program: Path = PROGRAM
    model: str = "Translate"
    dims: dict = field(default_factory=dict)

    def __post_init__(self):
        names = {"L": self.layers, "D": self.d, "H": self.heads, "F": self.f, "V": self.vocabulary, "N": self.written}
        self.dims = names | {"C": max(self.read, self.written)}


FULL = Sizes(6, 512, 8, 2048, 32000, 64, 64)
QUICK = Sizes(2, 64, 4, 128, 97, 7, 5)


def random_weights(sizes):
    """Named as in Marian's state dict, without `model.`."""
    rng, weights = np.random.default_rng(6), {}
    d, f = sizes.d, sizes.f

    def linear(name, outputs, inputs):
        weights[f"{name}.weight"] = rng.standard_normal((outputs, inputs), np.float32) * np.float32(inputs**-0.5)
        weights[f"{name}.bias"] = rng.standard_normal(outputs, np.float32) * np.float32(0.1)

    def norm(name):
        weights[f"{name}.weight"] = (1 + rng.standard_normal(d, np.float32) * 0.1).astype(np.float32)
        weights[f"{name}.bias"] = rng.standard_normal(d, np.float32) * np.float32(0.1)

    weights["shared.weight"] = rng.standard_normal((sizes.vocabulary, d), np.float32) * np.float32(d**-0.5)
    for side in ("encoder", "decoder"):
        for i in range(sizes.layers):
            layer = f"{side}.layers.{i}"
            for attention in ("self_attn", "encoder_attn")[: 2 if side == "decoder" else 1]:
                for part in ("q_proj", "k_proj", "v_proj", "out_proj"):
                    linear(f"{layer}.{attention}.{part}", d, d)
                norm(f"{layer}.{attention}_layer_norm")
            linear(f"{layer}.fc1", f, d)
            linear(f"{layer}.fc2", d, f)
            norm(f"{layer}.final_layer_norm")
    return weights


def in_attnc(attnc, sizes, path, source, threads, pack="f32"):
    wrapper, so = attnc.compile(sizes, pack=pack)
    model = wrapper.Model(so, weights=str(path), threads=threads)
    return lambda: model.translate(source, START, NEVER)[0]


def right_tokens(result, expected):
    """How many there are before the first wrong one."""
    wrong = np.flatnonzero(result != expected) if result.shape == expected.shape else [0]
    return int(wrong[0]) if len(wrong) else len(result)


def in_transformers(torch, transformers, sizes, weights, source, dtype):
    """The model, as `generate` runs it."""
    config = transformers.MarianConfig(
        vocab_size=sizes.vocabulary, d_model=sizes.d, encoder_layers=sizes.layers, decoder_layers=sizes.layers,
        encoder_attention_heads=sizes.heads, decoder_attention_heads=sizes.heads, encoder_ffn_dim=sizes.f,
        decoder_ffn_dim=sizes.f, activation_function="relu", scale_embedding=True, max_position_embeddings=256,
        pad_token_id=sizes.vocabulary - 1, decoder_start_token_id=START, eos_token_id=None, forced_eos_token_id=None,
        share_encoder_decoder_embeddings=True,
    )  # fmt: skip
    model = transformers.MarianMTModel(config).eval()
    state = {f"model.{name}": torch.from_numpy(array) for name, array in weights.items()}
    lost = model.load_state_dict(state, strict=False)
    if lost.unexpected_keys:
        raise ValueError(f"transformers does not know {lost.unexpected_keys[:3]}")
    with torch.no_grad():
        model.final_logits_bias.zero_()
    model.tie_weights()
    model.to(dtype)
    tokens = torch.from_numpy(source).long()[None]
    n = sizes.written
    settings = {"max_new_tokens": n, "min_new_tokens": n, "num_beams": 1, "do_sample": False, "use_cache": True}

    def call():
        with torch.inference_mode():
            return model.generate(tokens, attention_mask=torch.ones_like(tokens), **settings)[0, 1:].numpy()

    return call


class Graph:
    """An ONNX graph that grows; lengths are names where they change from call to call."""

    def __init__(self, onnx):
        self.onnx, self.nodes, self.constants, self.inputs = onnx, [], {}, []

    def node(self, kind, *inputs, outputs=1, **attributes):
        names = [f"v{len(self.nodes)}.{i}" for i in range(outputs)]
        self.nodes.append(self.onnx.helper.make_node(kind, list(inputs), names, **attributes))
        return names[0] if outputs == 1 else names

    def constant(self, key, array):
        if key not in self.constants:
            self.constants[key] = self.onnx.numpy_helper.from_array(np.ascontiguousarray(array), key)
        return key

    def input(self, name, dtype, shape):
        kind = self.onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        self.inputs.append(self.onnx.helper.make_tensor_value_info(name, kind, shape))
        return name

    def model(self, results):
        helper, kinds = self.onnx.helper, self.onnx.TensorProto
        nodes = self.nodes + [helper.make_node("Identity", [value], [name]) for name, (value, _, _) in results.items()]
        outs = [
            helper.make_tensor_value_info(name, kinds.INT64 if dtype == np.int64 else kinds.FLOAT, shape)
            for name, (_, dtype, shape) in results.items()
        ]
        graph = helper.make_graph(nodes, "translate", self.inputs, outs, list(self.constants.values()))
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10).SerializeToString()


class Layers:
    """The layers of Marian in a graph."""

    def __init__(self, graph, sizes, weights):
        self.g, self.sizes, self.weights = graph, sizes, weights

    def weight(self, name, transposed=False):
        array = self.weights[name]
        return self.g.constant(name, array.T if transposed else array)

    def linear(self, x, name):
        product = self.g.node("MatMul", x, self.weight(f"{name}.weight", True))
        return self.g.node("Add", product, self.weight(f"{name}.bias"))

    def norm(self, x, name):
        parts = self.weight(f"{name}.weight"), self.weight(f"{name}.bias")
        return self.g.node("LayerNormalization", x, *parts, axis=-1, epsilon=1e-5)

    def heads(self, x):
        shape = self.g.constant("heads", np.array([0, self.sizes.heads, self.sizes.d // self.sizes.heads], np.int64))
        return self.g.node("Transpose", self.g.node("Reshape", x, shape), perm=[1, 0, 2])

    def attention(self, x, name, keys, values):
        q, keys = self.heads(self.linear(x, f"{name}.q_proj")), self.g.node("Transpose", keys, perm=[0, 2, 1])
        scale = self.g.constant("scale", np.array((self.sizes.d // self.sizes.heads) ** -0.5, np.float32))
        scores = self.g.node("Mul", self.g.node("MatMul", q, keys), scale)
        seen = self.g.node("MatMul", self.g.node("Softmax", scores, axis=-1), values)
        width = self.g.constant("width", np.array([0, self.sizes.d], np.int64))
        merged = self.g.node("Reshape", self.g.node("Transpose", seen, perm=[1, 0, 2]), width)
        return self.norm(self.g.node("Add", x, self.linear(merged, f"{name}.out_proj")), f"{name}_layer_norm")

    def feed_forward(self, x, name):
        inner = self.g.node("Relu", self.linear(x, f"{name}.fc1"))
        return self.norm(self.g.node("Add", x, self.linear(inner, f"{name}.fc2")), f"{name}.final_layer_norm")

    def embedded(self, tokens, positions):
        """Rows of the table times sqrt(D), and of the positions."""
        d, n = self.sizes.d, max(self.sizes.read, self.sizes.written)
        angles = np.arange(n)[:, None] * 10000.0 ** (-2 * np.arange(d // 2) / d)
        table = self.g.constant("positions", np.concatenate([np.sin(angles), np.cos(angles)], 1).astype(np.float32))
        scale = self.g.constant("sqrt", np.array(math.sqrt(d), np.float32))
        rows = self.g.node("Mul", self.g.node("Gather", self.weight("shared.weight"), tokens), scale)
        return self.g.node("Add", rows, self.g.node("Gather", table, positions))

    def keys_and_values(self, x, name):
        return [self.heads(self.linear(x, f"{name}.{part}_proj")) for part in "kv"]


def onnx_models(onnx, sizes, weights):
    """What is read, to the keys and values of each layer; and one step, which gives a token and the longer caches."""
    heads, width = sizes.heads, sizes.d // sizes.heads

    def shape(length):
        return [heads, length, width]

    reading = Graph(onnx)
    layers = Layers(reading, sizes, weights)
    tokens = reading.input("tokens", np.int64, [sizes.read])
    x = layers.embedded(tokens, reading.constant("every", np.arange(sizes.read)))
    for i in range(sizes.layers):
        name = f"encoder.layers.{i}"
        x = layers.attention(x, f"{name}.self_attn", *layers.keys_and_values(x, f"{name}.self_attn"))
        x = layers.feed_forward(x, name)
    results = {}
    for i in range(sizes.layers):
        for part, value in zip("kv", layers.keys_and_values(x, f"decoder.layers.{i}.encoder_attn")):
            results[f"source_{part}{i}"] = (value, np.float32, shape(sizes.read))
    reader = reading.model(results)

    step = Graph(onnx)
    layers, results = Layers(step, sizes, weights), {}
    x = layers.embedded(step.input("token", np.int64, [1]), step.input("position", np.int64, [1]))
    for i in range(sizes.layers):
        name, kept = f"decoder.layers.{i}", []
        for part, value in zip("kv", layers.keys_and_values(x, f"{name}.self_attn")):
            past = step.input(f"past_{part}{i}", np.float32, shape("past"))
            kept.append(step.node("Concat", past, value, axis=1))
            results[f"past_{part}{i}"] = (kept[-1], np.float32, shape("now"))
        x = layers.attention(x, f"{name}.self_attn", *kept)
        read = [step.input(f"source_{part}{i}", np.float32, shape(sizes.read)) for part in "kv"]
        x = layers.attention(x, f"{name}.encoder_attn", *read)
        x = layers.feed_forward(x, name)
    logits = step.node("MatMul", x, step.constant("out", weights["shared.weight"].T))
    token = step.node("ArgMax", logits, axis=-1, keepdims=0)
    results = {"next": (token, np.int64, [1])} | {f"new_{name}": value for name, value in results.items()}
    return reader, step.model(results)


def in_onnxruntime(ort, models, sizes, source, threads):
    options = ort.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    reader, step = (ort.InferenceSession(model, options, providers=["CPUExecutionProvider"]) for model in models)
    value = ort.OrtValue.ortvalue_from_numpy
    read_names, step_names = ([out.name for out in session.get_outputs()] for session in (reader, step))
    empty = value(np.zeros((sizes.heads, 0, sizes.d // sizes.heads), np.float32))
    positions = [value(np.array([i])) for i in range(sizes.written)]

    def call():
        feed = dict(zip(read_names, reader.run_with_ort_values(read_names, {"tokens": value(source.astype(np.int64))})))
        feed |= {name.removeprefix("new_"): empty for name in step_names[1:]}
        token, out = value(np.array([START])), []
        for position in positions:
            results = step.run_with_ort_values(step_names, feed | {"token": token, "position": position})
            token = results[0]
            out.append(int(token.numpy()[0]))
            feed |= {name.removeprefix("new_"): result for name, result in zip(step_names[1:], results[1:])}
        return np.array(out)

    return call


def compare(attnc, found, options, out):
    """Times everybody, turn by turn."""
    import tensors

    sizes = QUICK if options.quick else FULL
    print(f"\ntranslate: {sizes.layers} + {sizes.layers} layers, D {sizes.d}, reads {sizes.read} tokens and writes {sizes.written}", flush=True)
    weights = random_weights(sizes)
    source = np.random.default_rng(7).integers(1, sizes.vocabulary - 1, sizes.read).astype(np.int32)
    path = out / f"translate_{sizes.d}.safetensors"
    tensors.write(path, weights)
    calls = {"attnc": in_attnc(attnc, sizes, path, source, options.threads)}
    packed = {f"attnc, {pack}": in_attnc(attnc, sizes, path, source, options.threads, pack) for pack in PACKED}
    expected = None
    if not options.without_peers:
        torch, transformers = found("torch"), found("transformers")
        if torch and transformers:
            torch.set_num_threads(options.threads)
            make = lambda dtype: in_transformers(torch, transformers, sizes, weights, source, dtype)
            expected = make(torch.float64)()
            calls["transformers"] = make(torch.float32)
        onnx, ort = found("onnx"), found("onnxruntime")
        if onnx and ort:
            calls["ONNX Runtime"] = in_onnxruntime(ort, onnx_models(onnx, sizes, weights), sizes, source, options.threads)
    results = {name: np.asarray(call()) for name, call in calls.items()}
    expected = next(reversed(results.values())) if expected is None else expected
    wrong = [name for name, result in results.items() if not np.array_equal(result, expected)]
    right = {name: right_tokens(np.asarray(call()), expected) for name, call in packed.items()}
    wrong += [name for name, count in right.items() if count == 0]
    medians, rounds = turns.medians(calls | packed, options)
    for name, median in medians.items():
        line = f"  {name:24} {median * 1e3:10.3f} ms {sizes.written / median:8.1f} tokens/s"
        if name in right:
            line += f", the first {right[name]} right"
        print(line + "  WRONG" * (name in wrong), flush=True)
    row = {"seconds": medians, "rounds": rounds, "wrong": wrong, "right": right, "wanted": WANTED}
    if peers := [name for name in medians if name not in packed and name != "attnc"]:
        row["best"] = min(peers, key=medians.get)
        row["ratio"] = medians[row["best"]] / medians["attnc"]
        print(f"  ratio {row['ratio']:.2f} to the best peer, {row['best']}; wanted {WANTED:.2f}", flush=True)
        row["packed_ratios"] = {name: medians[row["best"]] / medians[name] for name in packed}
        print("  ratio " + ", ".join(f"{ratio:.2f} ({name})" for name, ratio in row["packed_ratios"].items()), flush=True)
    return row
