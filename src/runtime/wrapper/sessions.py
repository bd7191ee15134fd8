class Taps(dict):
    """The taps of a call by name.

    `written` counts for each the iterations that wrote it: 0 if the call did not reach it (a branch that was not
    taken), at most 1 outside of loops over time. Elements that were not written are zeros.
    """

    def __init__(self):
        super().__init__()
        self.written = {}


def _list(tensors):
    return (ctypes.POINTER(_DLTensor) * max(len(tensors), 1))(*(ctypes.pointer(t) for t in tensors))


def _type_of(tensor):
    """The language's name for the element type of a tensor."""
    name = {(4, 16): "bf16", (6, 8): "bool"}.get((tensor.code, tensor.bits))
    return name or "%s%d" % ({0: "i", 2: "f"}[tensor.code], tensor.bits)


def _copy_tensor(tensor):
    """Copies a contiguous tensor to a NumPy array."""
    array = np.empty(tensor.shape[: tensor.ndim], _dtype(_type_of(tensor)))
    if array.nbytes:
        ctypes.memmove(array.ctypes.data, tensor.data, array.nbytes)
    return array


_NESTED = "a signal handler cannot use what it interrupted: this thread is in a call of this %s"
_FORKED = "the process was forked while another thread was in a call of this %s: open a new one"


class _Handle:
    """An object of the library: one thread at a time uses it, and none after it is freed."""

    _kind = "session"

    def __init__(self, library):
        self._library = library
        self._handle = None
        self._lock = threading.RLock()
        self._used = False
        self._forked = False
        _handles.add(self)

    def _open(self):
        """The handle, for the thread that holds the lock; it must clear `_used` before it releases the lock."""
        if self._used:
            raise AttncError(_NESTED % self._kind)
        if self._forked:
            raise AttncError(_FORKED % self._kind)
        if self._handle is None:
            raise self._closed()
        self._used = True
        return self._handle

    def _closed(self):
        return AttncError("it is closed")

    def _with(self, use):
        """Calls `use` with the handle; other threads wait meanwhile."""
        with self._lock:
            used = self._used
            try:
                return use(self._open())
            finally:
                self._used = used

    def _give_up(self, free):
        """Frees the handle with `free`, unless that was done before."""
        with self._lock:
            if self._used:
                raise AttncError(_NESTED % self._kind)
            handle, self._handle = self._handle, None
            if handle is not None:
                free(handle)

    def __reduce_ex__(self, _):
        raise TypeError("a %s cannot be copied or pickled: it is memory of this process" % self._kind)


_handles = weakref.WeakSet()


def _after_fork():
    """In a forked process, the threads that held locks do not exist: replaces these locks."""
    for handle in list(_handles):
        if handle._lock.acquire(blocking=False):
            handle._lock.release()
        else:
            handle._lock, handle._used, handle._forked = threading.RLock(), False, True


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


class DeviceArray(_Handle):
    """A result in the memory of a GPU.

    `torch.from_dlpack(array)` or `cupy.from_dlpack(array)` imports it without a copy, once. `numpy()` copies it.
    """

    _kind = "result"

    def __init__(self, session, managed):
        super().__init__(session._library)
        self._session = session
        self._handle = managed
        tensor = managed.contents.tensor
        self.shape = tuple(tensor.shape[: tensor.ndim])
        self.dtype = _type_of(tensor)
        self._device = (tensor.device_type, tensor.device_id)

    def _closed(self):
        return BufferError("the result was taken by another library")

    def __dlpack_device__(self):
        return self._device

    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        # The call waited for the result, so it is complete for every stream.
        if copy or dl_device not in (None, self._device):
            raise BufferError("a result on a GPU is exported without a copy; numpy() copies it")

        def take(managed):
            capsule = self._library.python_capsule(managed)
            self._handle = None
            return capsule

        return self._with(take)

    def numpy(self):
        """The result as a NumPy array."""
        array = np.empty(self.shape, _dtype(self.dtype))
        self._with(lambda managed: self._session._copy_to_host(managed, array))
        return array

    def __repr__(self):
        return "<%s%s on cuda:%d>" % (self.dtype, list(self.shape), self._device[1])

    def __del__(self):
        if getattr(self, "_handle", None) is not None:
            self._give_up(lambda managed: ctypes.CFUNCTYPE(None, ctypes.POINTER(_Managed))(managed.contents.deleter)(managed))


class _Prepared:
    """A prepared call without taps, for arrays of given types and shapes: all arguments of the library but the addresses.

    After a call, Python's own data may no longer be cached, so there should be little Python work per call.
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
        """Calls with the same key can share a prepared call; None if an array is not contiguous or native."""
        key = [entry]
        for value in values:
            if type(value) is not np.ndarray or not value.flags.c_contiguous or not value.dtype.isnative:
                return None
            key += (value.dtype, value.shape)
        return tuple(key)

    def call(self, function, handle, values):
        """Returns the status and the results."""
        made = [_empty(shape, dtype) for shape, dtype in self.results]
        for tensor, array in zip(self.inputs, values):
            tensor.data = array.__array_interface__["data"][0]
        for tensor, array in zip(self.outputs, made):
            tensor.data = array.__array_interface__["data"][0]
        return function(handle, *self.given), made


# Sampling arguments with their defaults in stream(), which leave the model's distribution
# unchanged.
_CHOICES = {"temperature": 1.0, "top_k": 0x7FFFFFFF, "top_p": 1.0, "penalty": 1.0, "seed": 0}


def _stream(calls, name, prompt, stop, max_tokens, choices):
    """The generator behind stream() of `calls`."""
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
    if isinstance(prompt, (str, bytes)):
        how = "a tokenizer makes them of text" if isinstance(prompt, str) else "list(prompt) makes each byte a token"
        raise AttncValueError("%s: expected the numbers of tokens, found %s: %s" % (name, type(prompt).__name__, how))
    try:
        stop = {operator.index(stop)}
    except TypeError:
        stop = set(stop)
    given = np.asarray(prompt)
    tokens = given.astype(kinds[0]) if given.size == 0 or given.dtype.kind in "iu" else None
    if tokens is None or (tokens != given).any():
        raise AttncValueError("%s: expected the numbers of tokens (%s), found %s" % (name, kinds[0], given.dtype if tokens is None else "larger ones"))
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
    """Methods that sessions and models share, besides the entry points."""

    def __call__(self, *values, **options):
        """Calls the entry point `forward`."""
        forward = getattr(self, "forward", None)
        if forward is None:
            raise AttncError("there is no entry point `forward`: call one of %s" % ", ".join(e[0].split("(")[0] for e in _ENTRIES))
        return forward(*values, **options)

    def stream(self, name, prompt, *, stop=(), max_tokens=None, **choices):
        """Generates the tokens that the entry point `name` returns after `prompt`, one call per token.

        The first parameter of the entry point is the tokens, and its result is the next token: `next(tokens: i32[S], ..) -> i32`.
        `choices` are its other arguments by name; temperature, top_k, top_p, penalty and seed may be omitted. Generation stops
        before a token of `stop`, or after `max_tokens`. If the entry point sets states, it receives the prompt, then each new
        token, and continues from the session's states; `reset()` starts over. Otherwise it receives all tokens each time.
        """
        return _stream(self, name, prompt, stop, max_tokens, choices)


class _Session(_Streams, _Handle):
    """A session of the library, which runs one call at a time."""

    def __init__(self, library, model):
        super().__init__(library)
        self._prepared = {}
        self._callers_stream = None
        handle = _POINTER()
        status = library.session_open(model, ctypes.byref(handle))
        if status != 0:
            raise _error(library.model_copy_error, model, status)
        self._handle = handle

    def reset(self):
        """Zeroes all states of this session.

        A call that is rejected because of its arguments changes nothing. If a call fails later and its entry point sets states,
        they are lost: all further calls are errors until reset() is called.
        """
        self._with(lambda handle: self._check(self._library.session_reset(handle)))

    @property
    def states(self):
        """All states by name, as NumPy arrays: copies, to be kept and given to set_states().

        A parameter that is trained is a state, stacked along its arrays of layers: states["h.*.weight"].
        """
        return self._with(lambda handle: {name: self._state(handle, name) for name in self._library.states})

    def set_states(self, values):
        """Sets states to arrays, a dict by name; each has the shape of its state, and a type that NumPy converts safely."""

        def use(handle):
            for name, value in values.items():
                if name not in self._library.states:
                    raise AttncValueError("there is no state %r; the states are %s" % (name, ", ".join(self._library.states) or "none"))
                state, kind, shape = self._library.states[name]
                array = np.asarray(value)
                if array.shape != shape:
                    raise AttncValueError("state %s: expected the shape %s, found %s" % (name, list(shape), list(array.shape)))
                if not np.can_cast(array.dtype, _dtype(kind), "same_kind"):
                    raise AttncValueError("state %s: expected %s, found %s" % (name, kind, array.dtype))
                array = np.ascontiguousarray(array, _dtype(kind)).reshape(shape)
                self._check(self._library.session_set_state(handle, state, array.ctypes.data, array.nbytes))

        self._with(use)

    def _state(self, handle, name):
        state, kind, shape = self._library.states[name]
        array = np.empty(shape, _dtype(kind))
        self._check(self._library.session_state(handle, state, array.ctypes.data, array.nbytes))
        return array

    @property
    def cuda_stream(self):
        """The stream used by calls, as a number; None if the model runs on the CPU."""
        stream = self._with(self._library.session_stream)
        return (stream or 0) if self._library.model_is_on_gpu else None

    def use_cuda_stream(self, stream):
        """Makes calls use the caller's stream: a number, or a stream of PyTorch or CuPy. None: the session's own stream.

        Calls then start after the work queued on the stream. They return when their results are complete, in any case. A stream
        object is kept alive until another stream is set; it must not be capturing.
        """
        number = stream
        for name in ("cuda_stream", "ptr"):
            number = getattr(number, name, number)

        def use(handle):
            self._check(self._library.session_use_stream(handle, number or 0, stream is None))
            self._callers_stream = stream

        self._with(use)

    def _stream(self):
        """The session's stream in DLPack's numbering, where 1 is the legacy default stream."""
        if self._library.model_is_on_gpu:
            return self._with(self._library.session_stream) or 1
        return None

    def _copy_to_host(self, managed, array):
        tensor = ctypes.byref(managed.contents.tensor)
        self._with(lambda handle: self._check(self._library.copy_to_host(handle, tensor, array.ctypes.data)))

    def close(self):
        """Frees the session's memory."""
        self._give_up(self._library.session_close)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def __del__(self):
        if getattr(self, "_handle", None) is not None:
            self.close()

    def _check(self, status):
        if status != 0:
            raise _error(self._library.session_copy_error, self._handle, status)

    def _call(self, entry, values, taps):
        key = _Prepared.key(entry, values) if taps is None else None
        if key is None:
            return self._call_any(entry, values, taps)
        with self._lock:
            used = self._used
            try:
                handle = self._open()
                prepared = self._prepared.get(key)
                if prepared is None:
                    prepared = _Prepared(self, handle, entry, values)
                    if len(self._prepared) >= _Prepared.MOST:
                        self._prepared.clear()
                    self._prepared[key] = prepared
                status, made = prepared.call(self._library.call, handle, values)
                self._check(status)
            finally:
                self._used = used
        return made[0] if len(made) == 1 else tuple(made)

    def _call_any(self, entry, values, taps):
        _, arguments, results, _ = _ENTRIES[entry]
        stream = self._stream()
        inputs = [_of_value(value, *declared, stream=stream) for value, declared in zip(values, arguments)]
        args = _list([tensor for tensor, _ in inputs])
        if taps is None and stream is not None and any(map(_is_on_gpu, values)):
            return self._call_on_gpu(entry, len(inputs), args, len(results))

        def call(handle):
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
            return made, found

        made, found = self._with(call)
        result = made[0] if len(made) == 1 else tuple(made)
        return result if taps is None else (result, self._taps(found))

    def _call_on_gpu(self, entry, count, args, result_count):
        made = (ctypes.POINTER(_Managed) * max(result_count, 1))()
        self._with(
            lambda handle: self._check(self._library.call_on_device(handle, entry, count, args, result_count, made))
        )
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


class _Model(_Streams, _Handle):
    """An open model with its own session."""

    _kind = "model"

    def __init__(self, path=None, weights=None, threads=None, device=None):
        if path is None:
            path = os.path.splitext(os.path.abspath(__file__))[0] + ".so"
        super().__init__(_Library(os.path.abspath(os.fspath(path))))
        self._own = None
        threads = _threads(threads)
        device = None if device is None else str(device).encode()
        if hasattr(weights, "items"):
            self._open_with(weights, threads, device)
        else:
            weights = None if weights is None else os.fsencode(os.fspath(weights))
            if weights is not None and b"\0" in weights:
                raise AttncValueError("the path of the weights has a NUL")
            self._open_model(device, weights, threads)
        self._library.model_is_on_gpu = self.device != "cpu"
        self._own = self.session()

    def _open_with(self, weights, threads, device):
        """Opens the model with a dict of weights."""
        file = _weights_file(weights)
        path = "/proc/self/fd/%d" % file
        try:
            self._open_model(device, path.encode(), threads)
        except AttncError as error:
            text = str(error).replace("weights file `%s`" % path, "weights").replace(" in the file", " given")
            raise type(error)(text, error.status) from None
        finally:
            os.close(file)

    def _open_model(self, device, weights, threads):
        handle = _POINTER()
        status = self._library.model_open_on(device, weights, threads, ctypes.byref(handle))
        if not handle:
            raise AttncError("out of memory", status)
        self._handle = handle
        if status != 0:
            error = _error(self._library.model_copy_error, handle, status)
            self.close()
            raise error

    def session(self):
        """A new session, which shares the weights but has its own memory and states: for use in another thread, or with other states."""
        return self._with(lambda handle: Session(self._library, handle))

    def reset(self):
        """Zeroes all states, see Session.reset."""
        self._session().reset()

    @property
    def states(self):
        """All states by name, see Session.states."""
        return self._session().states

    def set_states(self, values):
        """Sets states to arrays, see Session.set_states."""
        self._session().set_states(values)

    @property
    def device(self):
        """Where the model runs: "cpu" or "cuda:0"."""
        return (self._with(self._library.model_device) or b"").decode()

    @property
    def device_note(self):
        """Why a model opened on "auto" runs on the CPU although the library has code for GPUs; otherwise empty."""
        return (self._with(self._library.model_device_note) or b"").decode(errors="replace")

    @property
    def parameters(self):
        """All parameters with name, shape and element type, one per layer: Parameter("h.0.bias", (4,), "f32")."""
        return _parameters()

    @property
    def cuda_stream(self):
        """The stream used by calls, as a number; None if the model runs on the CPU."""
        return self._session().cuda_stream

    def use_cuda_stream(self, stream):
        """Makes calls use the caller's stream, see Session.use_cuda_stream."""
        self._session().use_cuda_stream(stream)

    @property
    def info(self):
        """A description of the library: entry points, parameters, variants."""
        return self._library.info().decode()

    @property
    def unused_weights(self):
        """Names of the weights that the model does not use."""
        return self._names(self._library.unused_weight_count, self._library.unused_weight)

    @property
    def converted_weights(self):
        """Names of the weights that were converted from bf16 or f16 to the model's f32, which is exact but takes memory."""
        return self._names(self._library.converted_weight_count, self._library.converted_weight)

    def _names(self, count, name):
        return self._with(lambda handle: [name(handle, i).decode(errors="replace") for i in range(count(handle))])

    def close(self):
        """Closes the model; the weights are freed when all other sessions are closed too."""
        own = self._own
        if own is not None:
            own.close()
        self._own = None
        self._give_up(self._library.model_close)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def __del__(self):
        if getattr(self, "_handle", None) is not None:
            self.close()

    def _session(self):
        own = self._own
        if own is None:
            raise self._closed()
        return own

    def _call(self, entry, values, taps):
        return self._session()._call(entry, values, taps)
