import ctypes
import operator
import os
import re
import sys
import threading

import numpy as np

__all__ = ["Model", "Session", "Taps", "DeviceArray", "AttncError", "AttncValueError", "AttncIndexError"]


class AttncError(RuntimeError):
    """An error of the compiled model: in a call, or in its weights."""

    def __init__(self, text, status=-1):
        super().__init__(text)
        self.status = status


class AttncValueError(AttncError, ValueError):
    """An argument that does not match."""


class AttncIndexError(AttncError, IndexError):
    """An index out of range at run time."""


_ERRORS = {1: AttncValueError, 2: AttncValueError, 6: AttncIndexError}


class _DLTensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class _Versioned(ctypes.Structure):
    """DLManagedTensorVersioned; the older DLManagedTensor begins with its tensor."""

    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("manager_ctx", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _DLTensor),
    ]


class _Managed(ctypes.Structure):
    """DLManagedTensor."""

    _fields_ = [("tensor", _DLTensor), ("manager_ctx", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]


_CPU = 1
_CUDA = 2
_CODES = {"i": 0, "u": 1, "f": 2, "c": 5, "b": 6}
_BFLOAT = 4
_TYPES = {"f32": "float32", "f16": "float16", "i8": "int8", "i32": "int32", "i64": "int64", "bool": "bool"}
_MAX_RANK = 64


def _dtype(name):
    """The NumPy type for an element type; bf16 is ml_dtypes.bfloat16 if that is installed, else its bits as uint16."""
    if name != "bf16":
        return np.dtype(_TYPES[name])
    try:
        import ml_dtypes

        return np.dtype(ml_dtypes.bfloat16)
    except ImportError:
        return np.dtype(np.uint16)


def _of_array(array, declared, name):
    """A DLTensor over a NumPy array, and what must be kept alive with it; `name` is for messages."""
    dtype = array.dtype
    if not dtype.isnative:
        array = array.astype(dtype.newbyteorder("="))
        dtype = array.dtype
    size = dtype.itemsize
    if size == 0 or any(stride % size for stride in array.strides):
        array = np.ascontiguousarray(array)
    if dtype.name == "bfloat16" or (declared == "bf16" and dtype == np.uint16):
        code = _BFLOAT
    elif dtype.kind in _CODES:
        code = _CODES[dtype.kind]
    else:
        raise AttncValueError("%s: expected %s, found an array of NumPy type %s" % (name, declared, dtype))
    numbers = ctypes.c_int64 * max(array.ndim, 1)
    shape = numbers(*array.shape)
    strides = numbers(*(stride // max(size, 1) for stride in array.strides))
    tensor = _DLTensor(array.ctypes.data, _CPU, 0, array.ndim, code, size * 8, 1, shape, strides, 0)
    return tensor, (array, shape, strides)


# Bytes of a cache line, and of a result that is worth the microsecond that aligning it takes.
_LINE = 64
_LARGE = 1 << 16


def _empty(shape, dtype):
    """An array for a result. A large one begins a cache line: vectors that lie across two take twice as long to be stored,
    and NumPy's own arrays begin anywhere."""
    size = dtype.itemsize
    for extent in shape:
        size *= extent
    if size < _LARGE:
        return np.empty(shape, dtype)
    room = np.empty(size + _LINE, np.uint8)
    start = -room.__array_interface__["data"][0] % _LINE
    return room[start : start + size].view(dtype).reshape(shape)


def _is_on_gpu(value):
    """Is it in the memory of an NVIDIA GPU?"""
    device = getattr(value, "__dlpack_device__", None)
    return device is not None and device()[0] in (_CUDA, 13)


def _of_dlpack(value, name, stream):
    """A DLTensor of an object that speaks DLPack; its capsule is not consumed, and frees the tensor when it goes.

    What is on a GPU is complete on `stream`, whatever stream it was made on: its owner sees to that.
    """
    order = {"stream": stream} if stream is not None and _is_on_gpu(value) else {}
    try:
        capsule = value.__dlpack__(max_version=(1, 1), **order)
    except TypeError:
        capsule = value.__dlpack__(**order)
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    is_valid = ctypes.pythonapi.PyCapsule_IsValid
    is_valid.restype, is_valid.argtypes = ctypes.c_int, [ctypes.py_object, ctypes.c_char_p]
    if is_valid(capsule, b"dltensor_versioned"):
        managed = _Versioned.from_address(get(capsule, b"dltensor_versioned"))
        if managed.major != 1:
            raise AttncValueError("%s: DLPack %d.%d is not supported" % (name, managed.major, managed.minor))
        return managed.tensor, capsule
    if is_valid(capsule, b"dltensor"):
        return _DLTensor.from_address(get(capsule, b"dltensor")), capsule
    raise AttncValueError("%s: __dlpack__ of a %s returned no DLPack capsule" % (name, type(value).__name__))


def _of_value(value, declared, name, stream=None):
    if value is None:
        raise AttncValueError("%s: expected %s, found None" % (name, declared))
    if not isinstance(value, (np.ndarray, np.generic)):
        if hasattr(value, "__dlpack__"):
            return _of_dlpack(value, name, stream)
        bare = isinstance(value, (int, float, list, tuple))
        try:
            value = np.asarray(value)
        except (TypeError, ValueError) as error:
            raise AttncValueError("%s: %s" % (name, error)) from None
        # Python numbers have no width: they take the type of the program. Integers keep theirs and are checked.
        if bare and declared in ("f32", "f16") and value.dtype.kind in "if":
            value = value.astype(_dtype(declared))
    return _of_array(np.asarray(value), declared, name)


_POINTER = ctypes.c_void_p
_LIST = ctypes.POINTER(ctypes.POINTER(_DLTensor))
_TEXT = ctypes.c_char_p
_U64 = ctypes.c_uint64
_I32 = ctypes.c_int32
_CALL = (
    _I32,
    [_POINTER, _U64, _U64, _LIST, _U64, _LIST, _U64, ctypes.POINTER(_TEXT), ctypes.POINTER(_POINTER)],
)
_FUNCTIONS = {
    "info": (_TEXT, []),
    "entry_count": (_U64, []),
    "entry_signature": (_TEXT, [_U64]),
    "model_open_on": (_I32, [_TEXT, _TEXT, _I32, ctypes.POINTER(_POINTER)]),
    "model_device": (_TEXT, [_POINTER]),
    "model_device_note": (_TEXT, [_POINTER]),
    "model_close": (None, [_POINTER]),
    "model_copy_error": (_U64, [_POINTER, ctypes.c_char_p, _U64]),
    "unused_weight_count": (_U64, [_POINTER]),
    "unused_weight": (_TEXT, [_POINTER, _U64]),
    "converted_weight_count": (_U64, [_POINTER]),
    "converted_weight": (_TEXT, [_POINTER, _U64]),
    "session_open": (_I32, [_POINTER, ctypes.POINTER(_POINTER)]),
    "session_close": (None, [_POINTER]),
    "session_reset": (_I32, [_POINTER]),
    "session_copy_error": (_U64, [_POINTER, ctypes.c_char_p, _U64]),
    "result_shape": (
        _I32,
        [_POINTER, _U64, _U64, _LIST, _U64, ctypes.POINTER(ctypes.c_int64), _U64, ctypes.POINTER(_I32)],
    ),
    "call_taps": _CALL,
    "python_call": _CALL,
    "session_stream": (_POINTER, [_POINTER]),
    "session_use_stream": (_I32, [_POINTER, _POINTER, _I32]),
    "call_on_device": (_I32, [_POINTER, _U64, _U64, _LIST, _U64, ctypes.POINTER(ctypes.POINTER(_Managed))]),
    "copy_to_host": (_I32, [_POINTER, ctypes.POINTER(_DLTensor), _POINTER]),
    "python_capsule": (ctypes.py_object, [ctypes.POINTER(_Managed)]),
    "taps_count": (_U64, [_POINTER]),
    "taps_name": (_TEXT, [_POINTER, _U64]),
    "taps_tensor": (ctypes.POINTER(_DLTensor), [_POINTER, _U64]),
    "taps_written": (ctypes.c_int64, [_POINTER, _U64]),
    "taps_close": (None, [_POINTER]),
}


class _Library:
    """The functions of the library at `path`, checked to be the one that this file describes.

    Libraries export none of them by name, because all have the same: they are found in the table of this library.
    """

    def __init__(self, path):
        try:
            self._library = ctypes.CDLL(path)
        except OSError as error:
            raise AttncError("cannot load %s: %s" % (path, error)) from None
        try:
            self._library.attnc_library.restype = ctypes.c_void_p
            table = self._library.attnc_library()
        except AttributeError:
            raise AttncError("%s is not a model compiled by attnc" % path) from None
        version = _U64.from_address(table).value
        if version != _ABI_VERSION:
            raise AttncError("%s has ABI %d, but this file is for ABI %d" % (path, version, _ABI_VERSION))
        addresses = (ctypes.c_void_p * len(_TABLE)).from_address(table + ctypes.sizeof(_U64))
        for name, (result, arguments) in _FUNCTIONS.items():
            # Those for Python want its lock, and may end with an exception; a call gives the lock up itself.
            kind = ctypes.PYFUNCTYPE if name.startswith("python_") else ctypes.CFUNCTYPE
            setattr(self, name, kind(result, *arguments)(addresses[_TABLE.index(name)]))
        self.call = self.python_call if sys.implementation.name == "cpython" else self.call_taps
        signatures = [self.entry_signature(i).decode() for i in range(self.entry_count())]
        if signatures != [entry[0] for entry in _ENTRIES]:
            raise AttncError("%s and this file are from different programs: its entry points are %s" % (path, signatures))


def _error(copy, handle, status):
    size = copy(handle, None, 0)
    buffer = ctypes.create_string_buffer(size + 1)
    copy(handle, buffer, size + 1)
    text = buffer.value.decode(errors="replace")
    types = re.search("expected (\\w+), found \\w+$", text)
    if types:
        name = _TYPES.get(types.group(1))
        text += " (`.astype(%s)` converts)" % ("numpy.%s" % name if name else "ml_dtypes.bfloat16")
    return _ERRORS.get(status, AttncError)(text, status)


def _threads(threads):
    """The number of threads as the library takes it."""
    try:
        number = 0 if threads is None else operator.index(threads)
    except TypeError:
        raise AttncValueError("threads must be an integer or None, found %r" % (threads,)) from None
    if not 0 <= number < 1 << 31:
        raise AttncValueError("threads cannot be %d: expected 1 or more, or 0 for one per core" % number)
    return number


class Taps(dict):
    """The taps of a call by name.

    `written` has for each in how many steps it was written: 0 where the call did not come to it (a branch that was not
    taken), at most 1 outside of loops over time. What was not written is zeros.
    """

    def __init__(self):
        super().__init__()
        self.written = {}


def _list(tensors):
    return (ctypes.POINTER(_DLTensor) * max(len(tensors), 1))(*(ctypes.pointer(t) for t in tensors))


def _type_of(tensor):
    """The element type of a tensor of the library's, as programs call it."""
    name = {(4, 16): "bf16", (6, 8): "bool"}.get((tensor.code, tensor.bits))
    return name or "%s%d" % ({0: "i", 2: "f"}[tensor.code], tensor.bits)


def _copy_tensor(tensor):
    """A NumPy array with the contents of a contiguous tensor of the library's."""
    array = np.empty(tensor.shape[: tensor.ndim], _dtype(_type_of(tensor)))
    if array.nbytes:
        ctypes.memmove(array.ctypes.data, tensor.data, array.nbytes)
    return array


class DeviceArray:
    """A result in the memory of a GPU.

    `torch.from_dlpack(array)` or `cupy.from_dlpack(array)` takes it without a copy; it can be taken once. `numpy()` copies it.
    """

    def __init__(self, session, managed):
        self._session = session
        self._managed = managed
        tensor = managed.contents.tensor
        self.shape = tuple(tensor.shape[: tensor.ndim])
        self.dtype = _type_of(tensor)
        self._device = (tensor.device_type, tensor.device_id)

    def _own(self):
        if self._managed is None:
            raise BufferError("the result was taken by another library")
        return self._managed

    def __dlpack_device__(self):
        return self._device

    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        # The call has waited for the result: it is complete on any stream.
        if copy or dl_device not in (None, self._device):
            raise BufferError("a result on a GPU is given as it is; numpy() copies it")
        capsule = self._session._library.python_capsule(self._own())
        self._managed = None
        return capsule

    def numpy(self):
        """The result as a NumPy array."""
        array = np.empty(self.shape, _dtype(self.dtype))
        self._session._copy_to_host(self._own(), array)
        return array

    def __repr__(self):
        return "<%s%s on cuda:%d>" % (self.dtype, list(self.shape), self._device[1])

    def __del__(self):
        managed, self._managed = getattr(self, "_managed", None), None
        if managed is not None:
            ctypes.CFUNCTYPE(None, ctypes.POINTER(_Managed))(managed.contents.deleter)(managed)


class _Prepared:
    """A call without taps for arrays of certain types and shapes: all that the library is given but their addresses.

    A call may have taken what Python works with out of the caches, so what is done for each call is little.
    """

    MOST = 64

    def __init__(self, session, handle, entry, values):
        _, arguments, results, _ = _ENTRIES[entry]
        self.inputs = [_of_array(value, *declared)[0] for value, declared in zip(values, arguments)]
        args = _list(self.inputs)
        made = [session._result(handle, entry, i, name, len(self.inputs), args) for i, name in enumerate(results)]
        self.outputs = [_of_array(array, name, "a result")[0] for array, name in zip(made, results)]
        self.results = [(array.shape, array.dtype) for array in made]
        self.given = (entry, len(self.inputs), args, len(made), _list(self.outputs), 0, (_TEXT * 1)(), ctypes.byref(_POINTER()))

    @staticmethod
    def key(entry, values):
        """What calls must have in common; None where arrays are not simply rows in memory."""
        key = [entry]
        for value in values:
            if type(value) is not np.ndarray or not value.flags.c_contiguous or not value.dtype.isnative:
                return None
            key += (value.dtype, value.shape)
        return tuple(key)

    def call(self, function, handle, values):
        """The status, and the results."""
        made = [_empty(shape, dtype) for shape, dtype in self.results]
        for tensor, array in zip(self.inputs, values):
            tensor.data = array.__array_interface__["data"][0]
        for tensor, array in zip(self.outputs, made):
            tensor.data = array.__array_interface__["data"][0]
        return function(handle, *self.given), made


# Arguments that choose the next token, and what they are where a caller of stream() leaves them out: all is as the model says.
_CHOICES = {"temperature": 1.0, "top_k": 0x7FFFFFFF, "top_p": 1.0, "penalty": 1.0, "seed": 0}


def _stream(calls, name, prompt, stop, max_tokens, choices):
    """The generator of stream(), which `calls` has."""
    names = [entry[0].split("(")[0] for entry in _ENTRIES]
    if name not in names:
        raise AttncValueError("no entry point %r; the entry points are %s" % (name, ", ".join(names)))
    entry = names.index(name)
    _, arguments, results, sets_states = _ENTRIES[entry]
    known = [declared[1].rsplit("`", 2)[1] for declared in arguments]
    for unknown in choices:
        if unknown not in known[1:]:
            raise AttncValueError("%s has no argument %r after the tokens; it has %s" % (name, unknown, ", ".join(known)))
    missing = [one for one in known[1:] if one not in choices and one not in _CHOICES]
    if missing or not known or len(results) != 1:
        raise AttncValueError("%s cannot be called as %s(tokens, ..) -> token: %s" % (name, name, ", ".join(missing or known)))
    kinds = [_dtype(kind) for kind, _ in arguments]
    rest = [np.asarray(choices.get(one, _CHOICES.get(one)), kind) for one, kind in zip(known[1:], kinds[1:])]
    try:
        stop = {operator.index(stop)}
    except TypeError:
        stop = set(stop)
    tokens = np.asarray(prompt, kinds[0])
    count = 0
    while max_tokens is None or count < max_tokens:
        token = int(calls._call(entry, (tokens, *rest), None))
        if token == -1:
            raise AttncError("%s gave %d instead of token %d: a score is NaN" % (name, token, count + 1))
        if token < 0:
            raise AttncError("%s gave %d as token %d, and tokens are not negative" % (name, token, count + 1))
        if token in stop:
            return
        yield token
        count += 1
        new = np.asarray([token], kinds[0])
        tokens = new if sets_states else np.concatenate([tokens, new])


class _Streams:
    """What sessions and models have for text."""

    def stream(self, name, prompt, *, stop=(), max_tokens=None, **choices):
        """A generator of the tokens that the entry point `name` gives after `prompt`, one call for each.

        The entry point takes tokens first and gives the next one: `next(tokens: i32[S], ..) -> i32`. `choices` are its other
        arguments by name; temperature, top_k, top_p, penalty and seed may be left out. It ends before a token of `stop`, or after
        `max_tokens`. One that sets states gets the prompt, then each token that it gave, and goes on from what the session has
        read; `reset()` begins anew. Any other gets all tokens each time.
        """
        return _stream(self, name, prompt, stop, max_tokens, choices)


class _Session(_Streams):
    """What calls need: a handle of the library, and one call at a time."""

    def __init__(self, library, model):
        self._library = library
        self._lock = threading.Lock()
        self._prepared = {}
        self._callers_stream = None
        self._handle = None
        handle = _POINTER()
        status = library.session_open(model, ctypes.byref(handle))
        if status != 0:
            raise _error(library.model_copy_error, model, status)
        self._handle = handle

    def reset(self):
        """Sets all states of this session to zero. After a call that failed they are as far as it came."""
        with self._lock:
            self._check(self._library.session_reset(self._open()))

    @property
    def cuda_stream(self):
        """The stream of the calls as a number; None where the model runs on the CPU."""
        with self._lock:
            stream = self._library.session_stream(self._open())
        return (stream or 0) if self._library.model_is_on_gpu else None

    def use_cuda_stream(self, stream):
        """Lets calls use a stream of the caller's: a number, or a stream of PyTorch or CuPy. None: again one of the session's own.

        Calls then begin when what is queued on the stream is done. They return when their results are complete, in any case. A stream
        that is given as an object is kept until calls use another one; it must not be one that is being captured.
        """
        number = stream
        for name in ("cuda_stream", "ptr"):
            number = getattr(number, name, number)
        with self._lock:
            self._check(self._library.session_use_stream(self._open(), number or 0, stream is None))
            self._callers_stream = stream

    def _stream(self):
        """The session's stream as DLPack counts them, in which 1 is the default one."""
        if self._library.model_is_on_gpu:
            return self._library.session_stream(self._open()) or 1
        return None

    def _copy_to_host(self, managed, array):
        with self._lock:
            tensor = ctypes.byref(managed.contents.tensor)
            self._check(self._library.copy_to_host(self._open(), tensor, array.ctypes.data))

    def close(self):
        """Frees the session's memory."""
        with self._lock:
            handle, self._handle = self._handle, None
            if handle is not None:
                self._library.session_close(handle)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def __del__(self):
        if getattr(self, "_handle", None) is not None:
            self.close()

    def _open(self):
        if self._handle is None:
            raise AttncError("it is closed")
        return self._handle

    def _check(self, status):
        if status != 0:
            raise _error(self._library.session_copy_error, self._handle, status)

    def _call(self, entry, values, taps):
        key = _Prepared.key(entry, values) if taps is None else None
        if key is not None:
            with self._lock:
                handle = self._open()
                prepared = self._prepared.get(key)
                if prepared is None:
                    prepared = _Prepared(self, handle, entry, values)
                    if len(self._prepared) >= _Prepared.MOST:
                        self._prepared.clear()
                    self._prepared[key] = prepared
                status, made = prepared.call(self._library.call, handle, values)
                self._check(status)
            return made[0] if len(made) == 1 else tuple(made)
        _, arguments, results, _ = _ENTRIES[entry]
        with self._lock:
            stream = self._stream()
        inputs = [_of_value(value, *declared, stream=stream) for value, declared in zip(values, arguments)]
        args = _list([tensor for tensor, _ in inputs])
        if taps is None and stream is not None and any(map(_is_on_gpu, values)):
            return self._call_on_gpu(entry, len(inputs), args, len(results))
        with self._lock:
            handle = self._open()
            made = [self._result(handle, entry, i, name, len(inputs), args) for i, name in enumerate(results)]
            outputs = [_of_array(array, name, "a result") for array, name in zip(made, results)]
            outs = _list([tensor for tensor, _ in outputs])
            globs = [taps] if isinstance(taps, str) else list(taps or [])
            names = (_TEXT * max(len(globs), 1))(*(glob.encode() for glob in globs))
            found = _POINTER()
            self._check(
                self._library.call(
                    handle, entry, len(inputs), args, len(outputs), outs, len(globs), names, ctypes.byref(found)
                )
            )
        result = made[0] if len(made) == 1 else tuple(made)
        return result if taps is None else (result, self._taps(found))

    def _call_on_gpu(self, entry, count, args, result_count):
        made = (ctypes.POINTER(_Managed) * max(result_count, 1))()
        with self._lock:
            self._check(self._library.call_on_device(self._open(), entry, count, args, result_count, made))
        arrays = [DeviceArray(self, made[i]) for i in range(result_count)]
        return arrays[0] if len(arrays) == 1 else tuple(arrays)

    def _result(self, handle, entry, index, name, count, args):
        shape = (ctypes.c_int64 * _MAX_RANK)()
        rank = _I32()
        self._check(
            self._library.result_shape(
                handle, entry, count, args, index, shape, _MAX_RANK, ctypes.byref(rank)
            )
        )
        return _empty(shape[: rank.value], _dtype(name))

    def _taps(self, found):
        library = self._library
        taps = Taps()
        try:
            for i in range(library.taps_count(found)):
                name = library.taps_name(found, i).decode()
                taps[name] = _copy_tensor(library.taps_tensor(found, i).contents)
                taps.written[name] = library.taps_written(found, i)
            return taps
        finally:
            library.taps_close(found)


class _Model(_Streams):
    """An open model with its own session."""

    def __init__(self, path=None, weights=None, threads=None, device=None):
        if path is None:
            path = os.path.splitext(os.path.abspath(__file__))[0] + ".so"
        self._library = _Library(os.path.abspath(os.fspath(path)))
        self._own = None
        self._handle = None
        threads = _threads(threads)
        weights = None if weights is None else os.fsencode(os.fspath(weights))
        if weights is not None and b"\0" in weights:
            raise AttncValueError("the path of the weights has a NUL")
        handle = _POINTER()
        device = None if device is None else str(device).encode()
        status = self._library.model_open_on(device, weights, threads, ctypes.byref(handle))
        if not handle:
            raise AttncError("out of memory", status)
        self._handle = handle
        if status != 0:
            error = _error(self._library.model_copy_error, handle, status)
            self.close()
            raise error
        self._library.model_is_on_gpu = self.device != "cpu"
        self._own = self.session()

    def session(self):
        """A new session with its own memory and states and the same weights, for several threads or several states."""
        if self._handle is None:
            raise AttncError("it is closed")
        return Session(self._library, self._handle)

    def reset(self):
        """Sets all states to zero. After a call that failed they are as far as it came."""
        self._session().reset()

    @property
    def device(self):
        """Where the model runs: "cpu" or "cuda:0"."""
        return (self._library.model_device(self._handle) or b"").decode()

    @property
    def device_note(self):
        """Why a model that was opened on "auto" runs on the CPU though the library has code for GPUs; else empty."""
        return (self._library.model_device_note(self._handle) or b"").decode(errors="replace")

    @property
    def cuda_stream(self):
        """The stream of the calls as a number; None where the model runs on the CPU."""
        return self._session().cuda_stream

    def use_cuda_stream(self, stream):
        """Lets calls use a stream of the caller's, see Session.use_cuda_stream."""
        self._session().use_cuda_stream(stream)

    @property
    def info(self):
        """A description of the library: entry points, parameters, variants."""
        return self._library.info().decode()

    @property
    def unused_weights(self):
        """Tensors in the weights file that the model does not use."""
        self._session()
        count = self._library.unused_weight_count(self._handle)
        return [self._library.unused_weight(self._handle, i).decode(errors="replace") for i in range(count)]

    @property
    def converted_weights(self):
        """Tensors that are bf16 or f16 in the weights file and f32 in the model: converted, which is exact but takes memory."""
        self._session()
        count = self._library.converted_weight_count(self._handle)
        return [self._library.converted_weight(self._handle, i).decode(errors="replace") for i in range(count)]

    def close(self):
        """Frees the weights once all other sessions are closed too."""
        own, self._own = self._own, None
        if own is not None:
            own.close()
        handle, self._handle = self._handle, None
        if handle is not None:
            self._library.model_close(handle)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def __del__(self):
        if getattr(self, "_handle", None) is not None:
            self.close()

    def _session(self):
        if self._own is None:
            raise AttncError("it is closed")
        return self._own

    def _call(self, entry, values, taps):
        return self._session()._call(entry, values, taps)
