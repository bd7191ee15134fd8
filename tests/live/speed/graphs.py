"""One way to write a model down, three that take it: NumPy, PyTorch, ONNX.

Each class has the same few operations. A workload is a function of such a class, its inputs and its weights;
NumPy's result in float64 is what every contender must give. ONNX Runtime and OpenVINO both read the ONNX model.
"""

import math

import numpy as np


class InNumpy:
    """Arrays of one type; attention goes head by head, so that long ones fit into memory."""

    def __init__(self, dtype):
        self.dtype = dtype

    def take(self, array):
        return array if array.dtype.kind in "iu" else array.astype(self.dtype)

    weight = take

    def matmul(self, x, y):
        return x @ y

    def linear(self, x, weight, bias=None):
        y = x @ weight.T
        return y if bias is None else y + bias

    def norm(self, x, weight, bias):
        centred = x - x.mean(-1, keepdims=True)
        variance = (centred * centred).mean(-1, keepdims=True)
        return centred / np.sqrt(variance + 1e-5) * weight + bias

    def gelu(self, x):
        return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)))

    def add(self, x, y):
        return x + y

    def rows(self, table, tokens):
        return table[tokens]

    def first_rows(self, table, count):
        return table[:count]

    def heads(self, x, count):
        rows, columns = x.shape
        return tuple(x.reshape(rows, 3, count, columns // 3 // count).transpose(1, 2, 0, 3))

    def merged(self, x):
        heads, rows, columns = x.shape
        return x.transpose(1, 0, 2).reshape(rows, heads * columns)

    def attention(self, q, k, v, causal):
        out = np.empty_like(q)
        for head in range(len(q)):
            for start in range(0, q.shape[1], 1024):
                part = q[head, start : start + 1024]
                seen = start + len(part) if causal else k.shape[1]
                scores = part @ k[head, :seen].T / math.sqrt(q.shape[-1])
                if causal:
                    hidden = np.arange(seen) > np.arange(start, start + len(part))[:, None]
                    scores[hidden] = -np.inf
                weights = np.exp(scores - scores.max(-1, keepdims=True))
                out[head, start : start + 1024] = weights @ v[head, :seen] / weights.sum(-1, keepdims=True)
        return out

    def recurrent(self, kind, x, layers):
        """The states of the last layer: `layers` are PyTorch's four tensors of each, gates in PyTorch's order."""
        for weight_ih, weight_hh, bias_ih, bias_hh in layers:
            h = c = np.zeros((x.shape[1], weight_hh.shape[1]), x.dtype)
            out = np.empty(x.shape[:2] + h.shape[1:], x.dtype)
            inputs = x @ weight_ih.T + bias_ih
            for t, step in enumerate(inputs):
                state = h @ weight_hh.T + bias_hh
                if kind == "lstm":
                    into, keep, draft, shown = np.split(step + state, 4, -1)
                    c = self.sigmoid(keep) * c + self.sigmoid(into) * np.tanh(draft)
                    h = self.sigmoid(shown) * np.tanh(c)
                else:
                    (r, z, n), (hr, hz, hn) = np.split(step, 3, -1), np.split(state, 3, -1)
                    stay = self.sigmoid(z + hz)
                    h = (1 - stay) * np.tanh(n + self.sigmoid(r + hr) * hn) + stay * h
                out[t] = h
            x = out
        return x

    def sigmoid(self, x):
        return 1 / (1 + np.exp(-x))


class InTorch:
    """Tensors; attention by PyTorch's own function, or written out as the programs have it."""

    def __init__(self, torch, written_out):
        self.torch, self.written_out, self.masks, self.modules = torch, written_out, {}, {}

    def take(self, array):
        return self.torch.from_numpy(array)

    weight = take

    def matmul(self, x, y):
        return x @ y

    def linear(self, x, weight, bias=None):
        return self.torch.nn.functional.linear(x, weight, bias)

    def norm(self, x, weight, bias):
        return self.torch.nn.functional.layer_norm(x, x.shape[-1:], weight, bias)

    def gelu(self, x):
        return self.torch.nn.functional.gelu(x, approximate="tanh")

    def add(self, x, y):
        return x + y

    def rows(self, table, tokens):
        return self.torch.nn.functional.embedding(tokens, table)

    def first_rows(self, table, count):
        return table[:count]

    def heads(self, x, count):
        rows, columns = x.shape
        return self.torch.unbind(x.view(rows, 3, count, columns // 3 // count).permute(1, 2, 0, 3))

    def merged(self, x):
        heads, rows, columns = x.shape
        return x.transpose(0, 1).reshape(rows, heads * columns)

    def attention(self, q, k, v, causal):
        if not self.written_out:
            attend = self.torch.nn.functional.scaled_dot_product_attention
            return attend(q[None], k[None], v[None], is_causal=causal)[0]
        scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
        if causal:
            scores = scores + self.mask(q.shape[1])
        return self.torch.softmax(scores, -1) @ v

    def recurrent(self, kind, x, layers):
        """PyTorch's own module, made once."""
        if kind not in self.modules:
            make = {"lstm": self.torch.nn.LSTM, "gru": self.torch.nn.GRU}[kind]
            module = make(x.shape[-1], layers[0][1].shape[1], len(layers)).eval()
            with self.torch.no_grad():
                for i, tensors in enumerate(layers):
                    for name, tensor in zip(("weight_ih", "weight_hh", "bias_ih", "bias_hh"), tensors):
                        getattr(module, f"{name}_l{i}").copy_(tensor)
            self.modules[kind] = module
        return self.modules[kind](x)[0]

    def mask(self, rows):
        if rows not in self.masks:
            self.masks[rows] = self.torch.full((rows, rows), float("-inf")).triu(1)
        return self.masks[rows]


class InOnnx:
    """Names of values in an ONNX model that grows; shapes are those of the inputs, as compilers like them best."""

    def __init__(self, onnx):
        self.onnx = onnx
        self.nodes, self.initializers, self.inputs, self.shapes, self.known = [], [], [], {}, {}

    def node(self, kind, inputs, shape, outputs=1, **attributes):
        names = [f"v{len(self.nodes)}.{i}" for i in range(outputs)]
        self.nodes.append(self.onnx.helper.make_node(kind, list(inputs), names, **attributes))
        for name in names:
            self.shapes[name] = tuple(shape)
        return names[0] if outputs == 1 else names

    def take(self, array):
        name = f"x{len(self.inputs)}"
        kind = self.onnx.helper.np_dtype_to_tensor_dtype(array.dtype)
        self.inputs.append(self.onnx.helper.make_tensor_value_info(name, kind, array.shape))
        self.shapes[name] = array.shape
        return name

    def weight(self, array):
        return array

    def constant(self, array, key=None):
        """`key`: what makes it the same as an earlier one."""
        key = key or ("array", array.ctypes.data, array.shape, array.strides)
        if key not in self.known:
            name = f"w{len(self.initializers)}"
            self.initializers.append(self.onnx.numpy_helper.from_array(np.ascontiguousarray(array), name))
            self.shapes[name] = array.shape
            # The array stays, so that its address does.
            self.known[key] = (name, array)
        return self.known[key][0]

    def matmul(self, x, y):
        return self.node("MatMul", [x, y], self.shapes[x][:-1] + self.shapes[y][-1:])

    def linear(self, x, weight, bias=None):
        y = self.matmul(x, self.constant(weight.T))
        return y if bias is None else self.add(y, self.constant(bias))

    def norm(self, x, weight, bias):
        inputs = [x, self.constant(weight), self.constant(bias)]
        return self.node("LayerNormalization", inputs, self.shapes[x], axis=-1, epsilon=1e-5)

    def gelu(self, x):
        return self.node("Gelu", [x], self.shapes[x], approximate="tanh")

    def add(self, x, y):
        y = self.constant(y) if isinstance(y, np.ndarray) else y
        return self.node("Add", [x, y], self.shapes[x])

    def rows(self, table, tokens):
        return self.node("Gather", [self.constant(table), tokens], self.shapes[tokens] + table.shape[1:])

    def first_rows(self, table, count):
        return table[:count]

    def reshape(self, x, shape):
        shape_of = self.constant(np.array(shape, np.int64), ("shape", tuple(shape)))
        return self.node("Reshape", [x, shape_of], shape)

    def transpose(self, x, perm):
        return self.node("Transpose", [x], [self.shapes[x][i] for i in perm], perm=perm)

    def heads(self, x, count):
        rows, columns = self.shapes[x]
        width = columns // 3 // count
        parts = self.transpose(self.reshape(x, (rows, 3, count, width)), [1, 2, 0, 3])
        shape = (1, count, rows, width)
        return tuple(
            self.reshape(part, shape[1:]) for part in self.node("Split", [parts], shape, 3, axis=0, num_outputs=3)
        )

    def merged(self, x):
        heads, rows, columns = self.shapes[x]
        return self.reshape(self.transpose(x, [1, 0, 2]), (rows, heads * columns))

    def attention(self, q, k, v, causal):
        rows, keys, width = self.shapes[q][1], self.shapes[k][1], self.shapes[q][2]
        scores = self.matmul(q, self.transpose(k, [0, 2, 1]))
        scale = self.constant(np.array(1 / math.sqrt(width), np.float32), ("scale", width))
        scores = self.node("Mul", [scores, scale], self.shapes[scores])
        if causal:
            mask = np.triu(np.full((rows, keys), -np.inf, np.float32), 1)
            scores = self.add(scores, self.constant(mask, ("mask", rows, keys)))
        return self.matmul(self.node("Softmax", [scores], self.shapes[scores], axis=-1), v)

    # The gates as ONNX has them, among PyTorch's, and its operator.
    GATES = {"lstm": ("LSTM", (0, 3, 1, 2), {}), "gru": ("GRU", (1, 0, 2), {"linear_before_reset": 1})}

    def recurrent(self, kind, x, layers):
        operator, order, attributes = self.GATES[kind]
        for tensors in layers:
            steps, batch, _ = self.shapes[x]
            hidden = tensors[1].shape[1]
            parts = [np.split(tensor, len(order)) for tensor in tensors]
            weight_ih, weight_hh, bias_ih, bias_hh = (np.concatenate([p[i] for i in order]) for p in parts)
            rest = [self.constant(array[None]) for array in (weight_ih, weight_hh, np.concatenate([bias_ih, bias_hh]))]
            y = self.node(operator, [x, *rest], (steps, 1, batch, hidden), hidden_size=hidden, **attributes)
            x = self.reshape(y, (steps, batch, hidden))
        return x

    def model(self, result):
        helper = self.onnx.helper
        out = helper.make_tensor_value_info(result, self.onnx.TensorProto.FLOAT, self.shapes[result])
        graph = helper.make_graph(self.nodes, "workload", self.inputs, [out], self.initializers)
        opset = [helper.make_opsetid("", 20)]
        return helper.make_model(graph, opset_imports=opset, ir_version=10).SerializeToString()
