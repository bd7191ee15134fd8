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
    "state_count": (_U64, []),
    "state_name": (_TEXT, [_U64]),
    "state_type": (_TEXT, [_U64]),
    "state_shape": (_I32, [_U64, ctypes.POINTER(ctypes.c_int64), _U64, ctypes.POINTER(_I32)]),
    "session_state": (_I32, [_POINTER, _U64, _POINTER, _U64]),
    "session_set_state": (_I32, [_POINTER, _U64, _POINTER, _U64]),
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
    """The functions of the library at `path`, which must be from the same build as this file.

    Libraries do not export them by name, because the names are the same in all: they are read from this library's table.
    """

    def __init__(self, path):
        self._library = _load(path)
        function = getattr(self._library, _BUILD)
        function.restype = ctypes.c_void_p
        table = function()
        version = _U64.from_address(table).value
        if version != _ABI_VERSION:
            raise AttncError("%s has ABI %d, but this file is for ABI %d" % (path, version, _ABI_VERSION))
        addresses = (ctypes.c_void_p * len(_TABLE)).from_address(table + ctypes.sizeof(_U64))
        for name, (result, arguments) in _FUNCTIONS.items():
            # Functions for Python need the GIL, and may set an exception; python_call itself
            # releases the GIL.
            kind = ctypes.PYFUNCTYPE if name.startswith("python_") else ctypes.CFUNCTYPE
            setattr(self, name, kind(result, *arguments)(addresses[_TABLE.index(name)]))
        self.states = {self.state_name(i).decode(): (i, *self._state(i)) for i in range(self.state_count())}
        self.call = self.python_call if sys.implementation.name == "cpython" else self.call_taps

    def _state(self, index):
        """Element type and shape of a state."""
        rank = _I32()
        self.state_shape(index, None, 0, ctypes.byref(rank))
        shape = (ctypes.c_int64 * rank.value)()
        self.state_shape(index, shape, rank.value, None)
        return self.state_type(index).decode(), tuple(shape)


def _load(path):
    """The library at `path`.

    The system identifies libraries by path: it returns the one that was loaded from a path before, even if the file has been
    replaced since. Then the path is spelled differently. The file is checked before that, to be from this build.
    """
    folder, name = os.path.split(path)
    while True:
        try:
            library = ctypes.CDLL(os.path.join(folder, name))
        except OSError as error:
            raise AttncError("cannot load %s: %s" % (path, error)) from None
        if not hasattr(library, "attnc_library"):
            raise AttncError("%s is not a model compiled by attnc" % path)
        with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as contents:
            if contents.find(_BUILD.encode() + b"\0") < 0:
                raise AttncError(
                    "%s is of another build than this module, %s: compile both together (`--emit so,python`), and reload the module"
                    % (path, os.path.abspath(__file__))
                )
        if hasattr(library, _BUILD):
            return library
        name = "./" + name


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
    """The number of threads in the form that the library expects."""
    try:
        number = 0 if threads is None else operator.index(threads)
    except TypeError:
        raise AttncValueError("threads must be an integer or None, found %r" % (threads,)) from None
    if not 0 <= number < 1 << 31:
        raise AttncValueError("threads cannot be %d: expected 1 or more, or 0 for one per core" % number)
    return number
