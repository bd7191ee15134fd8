_NUMBERS = {(0, 8): "I8", (0, 16): "I16", (0, 32): "I32", (0, 64): "I64", (1, 8): "U8", (1, 16): "U16", (1, 32): "U32", (1, 64): "U64"}
_FLOATS = {(2, 16): "F16", (2, 32): "F32", (2, 64): "F64", (_BFLOAT, 16): "BF16", (5, 64): "C64", (6, 8): "BOOL"}


class _Strided:
    """Exposes the memory of a DLTensor to NumPy."""

    def __init__(self, tensor):
        size = tensor.bits // 8
        shape = tuple(tensor.shape[: tensor.ndim])
        strides = tuple(step * size for step in tensor.strides[: tensor.ndim]) if tensor.strides and tensor.ndim else None
        address = (tensor.data or 0) + tensor.byte_offset
        # As bytes, because NumPy does not support bfloat16.
        self.__array_interface__ = {
            "version": 3, "typestr": "|V%d" % size, "shape": shape, "strides": strides, "data": (address, True),
        }  # fmt: skip


def _stored(name, value, types):
    """The safetensors type of a weight, its shape, its contents in row-major order, and the width of an element in bits."""
    what = "weight `%s`" % name
    tensor, kept = _of_value(value.detach() if hasattr(value, "detach") else value, types.get(name, "a number"), what)
    if tensor.device_type != _CPU:
        raise AttncValueError("%s is not in the memory of the CPU: copy it there first" % what)
    kind = {**_NUMBERS, **_FLOATS}.get((tensor.code, tensor.bits)) if tensor.lanes == 1 else None
    if kind is None:
        raise AttncValueError("%s: its elements are of a type that no model has" % what)
    shape = list(tensor.shape[: tensor.ndim])
    array = np.ascontiguousarray(np.asarray(_Strided(tensor))) if 0 not in shape else np.empty(0, np.uint8)
    del kept
    return kind, shape, array.reshape(-1).view(np.uint8), tensor.bits


def _weights_file(weights):
    """Writes weights to a safetensors file in memory, so that the library checks them like any other file."""
    types = {name: kind for name, _, kind in _parameters()}
    header, at = {}, 0
    for name in weights:
        if not isinstance(name, str):
            raise AttncValueError("weights: expected names of tensors, found %r" % (name,))
    stored = [(name, _stored(name, value, types)) for name, value in weights.items()]
    # The widest elements come first, so that all are aligned, and the library need not copy them
    # again.
    stored.sort(key=lambda one: -one[1][3])
    for name, (kind, shape, data, _) in stored:
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [at, at + data.nbytes]}
        at += data.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-(8 + len(text)) % 64)
    file = os.memfd_create("weights")
    with open(file, "wb", closefd=False) as out:
        out.write(len(text).to_bytes(8, "little") + text)
        for _, (_, _, data, _) in stored:
            out.write(memoryview(data))
    return file


Parameter = collections.namedtuple("Parameter", "name shape dtype")


def _parameters():
    """All parameters of the model, one per layer."""
    made = []
    for pattern, counts, shape, kind in _PARAMETERS:
        parts = pattern.split("*")
        for indices in itertools.product(*map(range, counts)):
            name = parts[0] + "".join("%d%s" % pair for pair in zip(indices, parts[1:]))
            made.append(Parameter(name, shape, kind))
    return made
