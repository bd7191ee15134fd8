"""Calls the toy model through its wrapper: python wrapper_test.py FOLDER, where toy.py, toy.so and the weights are."""

import _ctypes
import os
import signal
import sys
import threading
import time

import numpy as np

folder = sys.argv[1]
sys.path.insert(0, folder)
weights = os.path.join(folder, "toy.safetensors")

# The library lies beside the wrapper, and Python would rather import that.
from toy import AttncError, AttncIndexError, AttncValueError, Model  # noqa: E402


def scaled(x):
    partial = [x * np.arange(4, dtype=np.float32) + 100 + np.arange(4, dtype=np.float32)]
    for h in (200, 300):
        partial.append(partial[-1] + h + np.arange(4, dtype=np.float32))
    return partial[-1], partial


def refused(kind, text, call):
    try:
        call()
    except kind as error:
        assert text in str(error), "%r is not in %r" % (text, str(error))
        return error
    raise AssertionError("no error; expected " + text)


class Dlpack:
    """An object that speaks DLPack and is no array."""

    def __init__(self, array, versioned):
        self.array, self.versioned = array, versioned

    def __dlpack__(self, **options):
        if options and not self.versioned:
            raise TypeError("no such option")
        return self.array.__dlpack__(**options)


def numbers(*shape):
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape)


with Model(weights=weights) as m:
    for shape in [(3, 4), (2, 3, 4), (2, 1, 3, 4), (0, 4), (0, 3, 4), (1, 4)]:
        x = numbers(*shape)
        y = m.scale(x)
        assert isinstance(y, np.ndarray) and y.dtype == np.float32
        np.testing.assert_array_equal(y, scaled(x)[0])

    # Large results begin a cache line, whatever else is in memory, and are arrays like others.
    large = [m.scale(numbers(5000 + n, 4)) for n in range(9) for _ in range(2)]
    for n, y in enumerate(large):
        assert y.ctypes.data % 64 == 0 and y.flags.c_contiguous and y.flags.writeable
        np.testing.assert_array_equal(y, scaled(numbers(5000 + n // 2, 4))[0])

    # More shapes than calls are prepared for, some again; no result lies where another does.
    made = []
    for turn in range(2):
        for rows in [3, *range(80), 3, 3]:
            x = numbers(rows, 4) + turn
            made.append((x, m.scale(x)))
    for x, y in made:
        np.testing.assert_array_equal(y, scaled(x)[0])
    for _ in range(2):
        refused(AttncValueError, "axis 1 of `x` is 5, expected D, which is 4", lambda: m.scale(np.zeros((3, 5), np.float32)))
        refused(AttncValueError, "argument `x`: expected f32, found f64 (`.astype(numpy.float32)` converts)", lambda: m.scale(np.zeros((3, 4))))

    # Arrays as they come.
    x = numbers(6, 8)
    for view in [x[:, ::2], x[::-1, :4], x[::3, 7:3:-1], x.T[:4].T, np.broadcast_to(x[0, :4], (5, 4))]:
        np.testing.assert_array_equal(m.scale(view), scaled(view)[0])
    locked = numbers(3, 4)
    locked.flags.writeable = False
    np.testing.assert_array_equal(m.scale(locked), scaled(locked)[0])
    np.testing.assert_array_equal(m.scale(numbers(3, 4).astype(">f4")), scaled(numbers(3, 4))[0])
    record = np.zeros(3, dtype=[("a", "i1"), ("x", "f4", 4)])
    record["x"] = numbers(3, 4)
    np.testing.assert_array_equal(m.scale(record["x"]), scaled(numbers(3, 4))[0])
    unaligned = np.frombuffer(b"\0" + numbers(3, 4).tobytes(), dtype=np.uint8)[1:].view(np.float32).reshape(3, 4)
    np.testing.assert_array_equal(m.scale(unaligned), scaled(numbers(3, 4))[0])
    np.testing.assert_array_equal(m.scale([[1, 2, 3, 4]]), scaled(np.float32([[1, 2, 3, 4]]))[0])
    np.testing.assert_array_equal(m.scale(Dlpack(numbers(3, 4), False)), scaled(numbers(3, 4))[0])
    np.testing.assert_array_equal(m.scale(Dlpack(numbers(3, 8)[:, ::2], False)), scaled(numbers(3, 8)[:, ::2])[0])
    if np.lib.NumpyVersion(np.__version__) >= "2.1.0":
        np.testing.assert_array_equal(m.scale(Dlpack(numbers(3, 4), True)), scaled(numbers(3, 4))[0])

    # Integers of either width; names of arguments are the program's.
    table = np.arange(20, dtype=np.float32).reshape(5, 4) + 400
    for tokens in [[4, 0, 0], np.array([4, 0, 0], np.int32), np.array([4, 0, 0], np.int64)]:
        np.testing.assert_array_equal(m.gather(tokens=tokens), table[[4, 0, 0]])
    a, b, c = m.pair(x=numbers(3), y=numbers(7))
    assert a.tolist() == [0, 2, 4] and b.tolist() == [0, 1, 2, 3] and b.dtype == np.int64
    assert c.shape == () and c.dtype == np.bool_ and not c

    # Every type goes through.
    values = [
        np.array([1, 2], np.uint16),
        np.array([1.5, -2], np.float16),
        np.array([-3, 4], np.int8),
        np.array([5, -6], np.int64),
        np.array([True, False]),
    ]
    for got, given in zip(m.copy(*values), values):
        np.testing.assert_array_equal(got, given)
        assert got.dtype == given.dtype

    # Taps.
    x = numbers(2, 3, 4)
    y, taps = m.scale(x, taps=["h.*.partial"])
    assert list(taps) == ["h.0.partial", "h.1.partial", "h.2.partial"]
    for value, expected in zip(taps.values(), scaled(x)[1]):
        np.testing.assert_array_equal(value, expected)
    y, taps = m.scale(x, taps="h.1.partial")
    assert list(taps) == ["h.1.partial"] and taps["h.1.partial"].shape == (2, 3, 4)
    assert taps.written == {"h.1.partial": 1}
    y, taps = m.scale(x, taps=[])
    assert taps == {} and taps.written == {}

    # Errors have the runtime's text, and change nothing.
    refused(AttncValueError, "axis 1 of `x` is 3, expected D, which is 4", lambda: m.scale(numbers(2, 3)))
    refused(ValueError, "argument `x`: expected f32, found f64 (`.astype(numpy.float32)` converts)", lambda: m.scale(np.zeros((2, 4))))
    refused(AttncValueError, "scale: argument `x`: expected f32, found an array of NumPy type", lambda: m.scale(np.array(["a"])))
    refused(AttncIndexError, "tokens holds 7 at 1, and table has 5 rows (V)", lambda: m.gather([1, 7]))
    refused(AttncError, "element 0 is 4294967296, which is not an i32", lambda: m.gather([1 << 32]))
    refused(AttncValueError, "scale has no tap `nothing`; its taps are h.*.partial", lambda: m.scale(x, taps=["nothing"]))
    refused(TypeError, "", lambda: m.scale())
    np.testing.assert_array_equal(m.scale(x), scaled(x)[0])

    refused(AttncValueError, "scale: argument `x`: expected f32, found None", lambda: m.scale(None))
    refused(AttncValueError, "add: argument `y`: expected f32, found None", lambda: m.add(x, None))
    refused(AttncValueError, "scale: argument `x`: ", lambda: m.scale([[1, 2], [3]]))
    # What follows the arguments is no tap.
    refused(TypeError, "positional argument", lambda: m.scale(x, ["h.1.partial"]))
    refused(TypeError, "positional argument", lambda: m.count(x))

    # Signals are handled during a call, between launches; a handler that raises ends it.
    # (A process that is started in the background may have been told to ignore this one.)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    def interrupted_after(seconds):
        timer = threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGINT))
        timer.start()
        return timer

    assert int(m.wait(3)) == 3
    timer = interrupted_after(0.3)
    start = time.monotonic()
    refused(KeyboardInterrupt, "", lambda: m.wait(3000))
    assert time.monotonic() - start < 15, "waited for the end of the call"
    timer.join()
    seen = []
    before = signal.signal(signal.SIGINT, lambda *_: seen.append(time.monotonic()))
    timer = interrupted_after(0.2)
    assert int(m.wait(100)) == 100
    end = time.monotonic()
    timer.join()
    assert len(seen) == 1 and seen[0] < end - 0.3, (seen, end)
    signal.signal(signal.SIGINT, before)
    np.testing.assert_array_equal(m.scale(x), scaled(x)[0])

    # States belong to sessions.
    with m.session() as other:
        assert [int(m.count()), int(m.count()), int(other.count()), int(m.count())] == [1, 2, 1, 3]
        m.reset()
        assert [int(m.count()), int(other.count())] == [1, 2]
    refused(AttncError, "closed", other.count)

    # They can be kept and set.
    with m.session() as other:
        other.set_states(m.states)
        assert other.states == {"calls": 1} and other.states["calls"].dtype == np.int32
        other.set_states({"calls": 41})
        assert [int(other.count()), int(m.count())] == [42, 2]
        refused(AttncValueError, "there is no state 'call'; the states are calls", lambda: other.set_states({"call": 1}))
        refused(AttncValueError, "expected the shape [], found [2]", lambda: other.set_states({"calls": [1, 2]}))
        refused(AttncValueError, "expected i32, found float64", lambda: other.set_states({"calls": 1.5}))
        assert other.states["calls"] == 42
    m.reset()
    m.count()

    # Threads.
    failures = []

    def work(session):
        try:
            for i in range(100):
                x = numbers(i % 7, 4)
                np.testing.assert_array_equal(session.scale(x), scaled(x)[0])
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=work, args=(session,)) for session in [m, m, m.session(), m.session()]]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failures, failures

    assert "entry scale(x: f32[.., S, D])" in m.info and m.unused_weights == [] == m.converted_weights
    help_text = Model.scale.__doc__
    assert "scale(x: f32[.., S, D]) -> f32[.., S, D]" in help_text and "h.*.partial" in help_text
    late = m.session()

np.testing.assert_array_equal(late.scale(numbers(3, 4)), scaled(numbers(3, 4))[0])
refused(AttncError, "closed", lambda: m.scale(numbers(3, 4)))
refused(AttncError, "closed", m.session)
m.close()
late.close()

refused(AttncError, "Toy needs a weights file", lambda: Model())
refused(AttncError, "cannot read weights file", lambda: Model(weights=os.path.join(folder, "none")))
refused(AttncError, "it is a directory", lambda: Model(weights=folder))
refused(AttncError, "cannot load", lambda: Model(os.path.join(folder, "none.so"), weights))
refused(AttncError, "cannot load", lambda: Model(weights, weights))
refused(AttncError, "is not a model", lambda: Model(_ctypes.__file__, weights))
for threads in (-1, 2**31, 2**32 + 3, 2**40, -(2**40)):
    refused(AttncValueError, "threads cannot be %d" % threads, lambda: Model(weights=weights, threads=threads))
for threads in (1.5, "2", [1]):
    refused(AttncValueError, "threads must be an integer or None, found %r" % (threads,), lambda: Model(weights=weights, threads=threads))
Model(weights=weights, threads=np.int64(2)).close()
print("ok", np.__version__)
