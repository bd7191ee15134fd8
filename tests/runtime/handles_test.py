"""Handles of the toy model in Python: threads, copies, handlers of signals, forked processes, weights from memory.

python handles_test.py FOLDER, where toy.py, toy.so and the weights are.
"""

import copy
import os
import pickle
import signal
import sys
import threading
import time

import numpy as np

folder = sys.argv[1]
sys.path.insert(0, folder)
weights = os.path.join(folder, "toy.safetensors")

from toy import AttncError, AttncIndexError, AttncValueError, Model, Parameter  # noqa: E402


def refused(kind, text, call):
    try:
        call()
    except kind as error:
        assert text in str(error), "%r is not in %r" % (text, str(error))
        return error
    raise AssertionError("no error; expected " + text)


# Whoever uses a model while another thread closes it gets what it asked for, or that it is closed.
def names(m):
    assert m.unused_weights == m.converted_weights == []


def sessions(m):
    with m.session() as session:
        assert int(session.count()) == 1


uses = [names, sessions, lambda m: (m.device, m.device_note), lambda m: m.count()]
failures = []


def until_closed(m, use, begun):
    try:
        while True:
            use(m)
            begun.set()
    except AttncError as error:
        if str(error) != "it is closed":
            failures.append(error)
    except BaseException as error:
        failures.append(error)
    begun.set()


for turn in range(100):
    m = Model(weights=weights, threads=1)
    begun = [threading.Event() for _ in uses]
    threads = [threading.Thread(target=until_closed, args=(m, use, one)) for use, one in zip(uses, begun)]
    for thread in threads:
        thread.start()
    begun[turn % len(begun)].wait()
    m.close()
    for thread in threads:
        thread.join()
assert not failures, failures

m = Model(weights=weights, threads=2)
own = m.session()

# A copy would close what is somebody else's.
for handle in (m, own):
    for make in (copy.copy, copy.deepcopy, pickle.dumps):
        refused(TypeError, "cannot be copied or pickled", lambda: make(handle))
assert int(m.count()) == int(own.count()) == 1

# A call that fails while it changes states loses them.
refused(AttncIndexError, "tokens holds 7 at 0", lambda: m.remember([7]))
error = refused(AttncError, "the states of this session were lost when a call of `remember` failed: reset the session", m.count)
assert error.status == 12
m.reset()
assert int(m.count()) == 1


# A handler of a signal cannot use the session whose call it interrupted; another it can.
def handler(*_):
    text = "a signal handler cannot use what it interrupted: this thread is in a call of this session"
    for use in (m.count, m.reset, lambda: m.scale(np.zeros((1, 4), np.float32)), m._session().close):
        told.append(refused(AttncError, text, use))
    assert int(own.count()) > 0 and m.unused_weights == []


told = []
signal.signal(signal.SIGALRM, handler)
signal.setitimer(signal.ITIMER_REAL, 0.1)
assert int(m.wait(40)) == 40
assert len(told) == 4, told
assert int(m.count()) == 2


# Nor can C: what the library is asked on the thread of a call is an error too.
def nested(*_):
    library, handle = m._library, m._session()._handle
    told.append(library.session_reset(handle))
    told.append(_text(library, handle))
    library.session_close(handle)


def _text(library, handle):
    import ctypes

    buffer = ctypes.create_string_buffer(200)
    library.session_copy_error(handle, buffer, 200)
    return buffer.value


told = []
signal.signal(signal.SIGALRM, nested)
signal.setitimer(signal.ITIMER_REAL, 0.1)
assert int(m.wait(40)) == 40
assert told[0] == 1 and told[1].startswith(b"this thread is in a call of this session"), told
assert int(m.count()) == 3


# In a process that is forked during a call of another thread, that session is lost and says so; a new one, and one without a
# call, work.
def in_child(checks):
    """Runs `checks` in a forked process."""
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(60)
        code = 1
        try:
            checks()
            code = 0
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    assert status == 0, "the forked process ended with %d" % status


def checks():
    refused(AttncError, "the process was forked while another thread was in a call of this session: open a new one", m.count)
    refused(AttncError, "open a new one", m.reset)
    library, handle = m._library, m._session()._handle
    assert library.session_reset(handle) == 1
    assert _text(library, handle).startswith(b"another thread was in a call of this session when this process was forked")
    with m.session() as new:
        assert int(new.count()) == 1
    before = int(own.count())
    assert int(own.count()) == before + 1
    m.close()


calls = threading.Thread(target=lambda: m.wait(100))
calls.start()
time.sleep(0.2)
in_child(checks)
calls.join()
assert int(m.count()) == 4
in_child(lambda: [m.count(), own.count(), m.close(), own.close()])
m.close()
own.close()

# Weights from memory.
layers = [Parameter("scale", (4,), "f32")] + [Parameter("h.%d.bias" % i, (4,), "f32") for i in range(3)]
layers.append(Parameter("table", (5, 4), "f32"))
x = np.arange(8, dtype=np.float32).reshape(2, 4)
given = {one.name: np.random.rand(*one.shape).astype(np.float32) for one in layers}
expected = x * given["scale"] + sum(given["h.%d.bias" % i] for i in range(3))


class Dlpack:
    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)


strided = np.zeros((4, 10), np.float32)
strided.T[::2] = given["table"]
others = {**given, "scale": Dlpack(given["scale"]), "table": Dlpack(strided.T[::2]), "h.0.bias": given["h.0.bias"].tolist()}
half = {**given, "h.1.bias": np.float16([1, 2, 3, 4])}
for arrays in (given, others):
    with Model(weights=arrays) as m:
        assert m.parameters == layers
        # They are copied.
        given["scale"] += 1
        np.testing.assert_allclose(m.scale(x), expected, rtol=1e-6)
        given["scale"] -= 1
        np.testing.assert_array_equal(m.gather([4, 1]), given["table"][[4, 1]])
        assert m.unused_weights == []
with Model(weights={**half, "more": np.zeros((0, 3), np.int8)}) as m:
    assert m.converted_weights == ["h.1.bias"] and m.unused_weights == ["more"]
    want = x * half["scale"] + half["h.0.bias"] + half["h.1.bias"].astype(np.float32) + half["h.2.bias"]
    np.testing.assert_allclose(m.scale(x), want, rtol=1e-6)
    refused(AttncError, "there is no entry point `forward`: call one of scale, gather, pair", lambda: m(x))
    for text in ("text", b"bytes"):
        refused(AttncValueError, "wait: expected the numbers of tokens, found ", lambda: next(m.stream("wait", text)))
    refused(AttncValueError, "a tokenizer makes them of text", lambda: next(m.stream("wait", "text")))
    for prompt in ([0.5], ["a"], [1 << 70]):
        refused(AttncValueError, "wait: expected the numbers of tokens", lambda: next(m.stream("wait", prompt)))
for arrays, text in [
    ({**given, "table": np.zeros((5, 3), np.float32)}, "shape: table: [5, 3] given, [5, 4] (f32[V, D]) in the program"),
    ({**given, "scale": np.zeros(4)}, "type: scale: f64 given, f32 in the program"),
    ({name: given[name] for name in ("scale", "table")}, "weights: it does not fit Toy (missing: 3, of another shape or type: 0, unused: 0)"),
    ({**given, "scale": np.array(["a"])}, "weight `scale`: expected f32, found an array of NumPy type <U1"),
    ({**given, "scale": None}, "weight `scale`: expected f32, found None"),
    ({**given, 3: given["scale"]}, "weights: expected names of tensors, found 3"),
    ({**given, "x\0y": np.complex64([1])}, ""),
]:  # fmt: skip
    if text:
        refused(AttncError, text, lambda: Model(weights=arrays))
    else:
        with Model(weights=arrays) as m:
            assert m.unused_weights == ["x?y"]
assert not [link for link in os.listdir("/proc/self/fd") if "memfd" in os.path.realpath("/proc/self/fd/" + link)]
print("ok")
