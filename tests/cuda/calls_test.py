"""Calls of the small model on the stand-in's GPU: arrays of NumPy, tensors in the GPU's memory, streams."""

import copy
import ctypes
import gc
import pickle
import sys
import weakref

import numpy as np

import small

WEIGHTS, DRIVER, GRAPHS = sys.argv[1], sys.argv[2], sys.argv[3] == "graphs"
driver = ctypes.CDLL(DRIVER)
for name in ("live", "launches", "together", "made", "graphs", "updates", "waits", "left", "queued"):
    getattr(driver, "attnc_standin_" + name).restype = ctypes.c_uint64
TABLE = np.arange(20, dtype=np.float32).reshape(5, 4)


def check(code):
    assert code == 0, code


class Gpu:
    """What another library does on the same GPU: it has the context, memory, and streams of its own."""

    def __init__(self):
        check(driver.cuInit(0))
        context = ctypes.c_uint64()
        check(driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0))
        check(driver.cuCtxPushCurrent_v2(context))

    def close(self):
        check(driver.cuCtxPopCurrent_v2(ctypes.byref(ctypes.c_uint64())))
        check(driver.cuDevicePrimaryCtxRelease_v2(0))

    def stream(self):
        stream = ctypes.c_uint64()
        check(driver.cuStreamCreate(ctypes.byref(stream), 1))
        return stream


class Tensor:
    """A tensor in the GPU's memory, as PyTorch would give it."""

    def __init__(self, array, stream=None, strides=None, device=(2, 0), offset=0):
        self.array, self.device, self.streams = np.ascontiguousarray(array), device, []
        self.memory = ctypes.c_uint64()
        check(driver.cuMemAlloc_v2(ctypes.byref(self.memory), ctypes.c_size_t(self.array.nbytes + offset + 1)))
        self.address = ctypes.c_uint64(self.memory.value + offset)
        data = ctypes.c_void_p(self.array.ctypes.data)
        stream = stream or ctypes.c_uint64(0)
        check(driver.cuMemcpyHtoDAsync_v2(self.address, data, ctypes.c_size_t(self.array.nbytes), stream))
        if stream.value == 0:
            check(driver.cuStreamSynchronize(stream))
        self.shape = array.shape
        self.strides = strides

    def free(self):
        check(driver.cuMemFree_v2(self.memory))

    def __dlpack_device__(self):
        return self.device

    def __dlpack__(self, *, stream=None, max_version=None):
        self.streams.append(stream)
        numbers = ctypes.c_int64 * max(len(self.shape), 1)
        self.keep = shape, strides = numbers(*self.shape), numbers(*(self.strides or ()))
        code = {"f": 2, "i": 0, "b": 6, "u": 1}[self.array.dtype.kind]
        managed = small._Managed()
        managed.tensor = small._DLTensor(
            self.address.value, *self.device, len(self.shape), code, self.array.dtype.itemsize * 8, 1, shape,
            strides if self.strides else None, 0,
        )
        self.managed = managed
        new = ctypes.pythonapi.PyCapsule_New
        new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        return new(ctypes.addressof(managed), b"dltensor", None)


def softmax(x):
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def of_turn(x, given):
    """What `turn` gives."""
    y = softmax(softmax(x) * 2)
    for more, factor, is_given in zip((1, 2, 3, 4, 5), (3, 5, 7, 11, 13), given):
        y = softmax(y + more) * factor if is_given else y
    return softmax(y) + x


def fails(kind, words, call):
    try:
        call()
    except kind as error:
        assert words in str(error), error
        return
    raise AssertionError("no error: %s" % words)


assert driver.attnc_standin_live() == 0
model = small.Model(weights=WEIGHTS, device="cuda")
assert model.device == "cuda:0" and model.device_note == "" and model.unused_weights == []

# Arrays of the host.
x = np.linspace(-2, 2, 24, dtype=np.float32).reshape(2, 3, 4)
want = np.exp(x / 2) + 1
for _ in range(2):
    np.testing.assert_allclose(model.affine(x), want, rtol=1e-6)
np.testing.assert_allclose(model.affine(x[:, ::2, ::-1]), want[:, ::2, ::-1].copy() * 0 + np.exp(x[:, ::2, ::-1] / 2) + 1, rtol=1e-6)
assert np.array_equal(model.lookup(np.array([3, 3, 0])), TABLE[[3, 3, 0]])
assert model.lookup(np.zeros(0, np.int32)).shape == (0, 4)
a, b = np.arange(5, dtype=np.int32), -np.arange(5, dtype=np.int32)
assert model.choose(a, b, a % 2 == 0).tolist() == [0, -1, 2, -3, 4]
# The plan reads the truth values, not what lies behind the first argument.
line = np.zeros(1024, np.float32)
line[:4] = np.linspace(-1, 1, 4)
for given in [(True, False, True, True, False), (False, True, True, False, True)]:
    np.testing.assert_allclose(model.turn(line[:4], *given), of_turn(line[:4], given), rtol=1e-5)
doubled, count = model.double(np.full(4, 3, np.float32), 40.0)
assert doubled.tolist() == [48.0] * 4 and count == 4
result, taps = model.affine(x, taps="y")
np.testing.assert_allclose(taps["y"], x / 2, rtol=1e-6)
assert taps.written["y"] == 1
np.testing.assert_allclose(result, want, rtol=1e-6)
fails(small.AttncIndexError, "index 5 is out of range for an axis of 5", lambda: model.lookup([5]))
assert np.array_equal(model.lookup([4]), TABLE[[4]])
# What the plan would read after an error decides nothing any more: the row that was not taken would be doubled until it is large enough.
launches = driver.attnc_standin_launches
before = launches()
assert model.climb(np.array([1], np.int32), 4.0)[1] == 0
least = launches() - before
climbed, count = model.climb(np.array([1], np.int32), 40.0)
assert climbed.tolist() == [64.0, 80.0, 96.0, 112.0] and count == 4
before, index = launches(), "index 9 is out of range for an axis of 5"
fails(small.AttncIndexError, index, lambda: model.climb(np.array([9], np.int32), 40.0))
assert launches() - before <= least

# Tensors of the GPU: no copy, and results there. Their owner is told the stream that must see them complete.
gpu = Gpu()
before = driver.attnc_standin_live()
given = Tensor(x)
result = model.affine(given)
assert given.streams == [model.cuda_stream] and model.cuda_stream > 2
assert isinstance(result, small.DeviceArray) and result.shape == (2, 3, 4) and result.dtype == "f32"
assert result.__dlpack_device__() == (2, 0) and repr(result) == "<f32[2, 3, 4] on cuda:0>"
np.testing.assert_allclose(result.numpy(), want, rtol=1e-6)
# Results are arguments as they are.
again = model.affine(result)
np.testing.assert_allclose(again.numpy(), np.exp(want / 2) + 1, rtol=1e-6)
fails(BufferError, "taken", result.numpy)
capsule = again.__dlpack__(max_version=(1, 0), stream=1)
get = ctypes.pythonapi.PyCapsule_GetPointer
get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
taken = small._Managed.from_address(get(capsule, b"dltensor")).tensor
assert (taken.device_type, taken.shape[:3]) == (2, [2, 3, 4])
fails(BufferError, "taken", again.__dlpack__)
# The memory of a released result is kept for the next one of its size.
live = driver.attnc_standin_live()
del capsule
assert driver.attnc_standin_live() == live
third = model.affine(given)
assert driver.attnc_standin_live() == live
del third
gc.collect()
assert driver.attnc_standin_live() == live
# At most four are kept, the latest ones.
several = [model.affine(given) for _ in range(7)]
np.testing.assert_allclose(several[6].numpy(), several[0].numpy())
assert driver.attnc_standin_live() == live + 6
del several
gc.collect()
assert driver.attnc_standin_live() == live + 3



def waits(call):
    before = driver.attnc_standin_waits()
    result = call()
    return result, driver.attnc_standin_waits() - before


# What is on the GPU and not as kernels want it is copied there, and the host waits no more often than otherwise: strides, wider integers,
# bytes for truth values.
_, usual = waits(lambda: model.affine(given))
assert usual == 1
turned = Tensor(np.arange(12, dtype=np.float32).reshape(3, 4))
turned.shape, turned.strides = (2, 4), (4, 1)
np.testing.assert_allclose(model.affine(turned).numpy(), np.exp(turned.array[:2] / 2) + 1, rtol=1e-6)
turned.shape, turned.strides = (2, 4), (8, 1)
result, times = waits(lambda: model.affine(turned))
np.testing.assert_allclose(result.numpy(), np.exp(turned.array[::2] / 2) + 1, rtol=1e-6)
assert times == 1
many = np.arange(3 * 5 * 7 * 4, dtype=np.float32).reshape(3, 5, 7, 4) / 100
for shape, strides, view in [
    ((7, 5, 3, 4), (4, 28, 140, 1), many.transpose(2, 1, 0, 3)),
    ((3, 4, 4), (140, 1, 4), many[:, 0, :4].transpose(0, 2, 1)),
    ((2, 4), (0, 0), np.broadcast_to(many[0, 0, 0, 0], (2, 4))),
    ((1, 5, 1, 4), (9, 28, 9, 7), np.lib.stride_tricks.as_strided(many, (1, 5, 1, 4), (0, 112, 0, 28))),
]:
    strided = Tensor(many)
    strided.shape, strided.strides = shape, strides
    result, times = waits(lambda: model.affine(strided))
    np.testing.assert_allclose(result.numpy(), np.exp(view / 2) + 1, rtol=1e-6)
    assert times == 1
# More elements than a block copies, and a rest.
sparse = Tensor(np.arange(75 * 8, dtype=np.float32) / 100)
sparse.shape, sparse.strides = (75, 4), (8, 2)
np.testing.assert_allclose(model.affine(sparse).numpy(), np.exp(sparse.array[::2].reshape(75, 4) / 2) + 1, rtol=1e-6)
for offset in (1, 2, 4, 8):
    result, times = waits(lambda: model.affine(Tensor(x, offset=offset)))
    assert times == 2, "the copy of the tensor itself, and the call"
    np.testing.assert_allclose(result.numpy(), want, rtol=1e-6)
for offset in (0, 3, 8):
    tokens = Tensor(np.array([4, 2], np.int64), offset=offset)
    result, times = waits(lambda: model.lookup(tokens))
    assert np.array_equal(result.numpy(), TABLE[[4, 2]]) and times == 1
fails(
    small.AttncIndexError, "lookup: argument `tokens`: element 2 is 4294967297, which is not an i32",
    lambda: model.lookup(Tensor(np.array([4, 2, 2**32 + 1], np.int64))),
)
fails(small.AttncIndexError, "index -2 is out of range", lambda: model.lookup(Tensor(np.array([-2], np.int64))))
assert np.array_equal(model.lookup(tokens).numpy(), TABLE[[4, 2]])
every = Tensor(np.array([4, 9, 1, 9, 0, 9], np.int64))
every.shape, every.strides = (3,), (2,)
assert np.array_equal(model.lookup(every).numpy(), TABLE[[4, 1, 0]])
numbers = Tensor(np.arange(3, dtype=np.int32))
for offset in (0, 1):
    chosen = model.choose(numbers, -numbers.array, Tensor(np.array([0, 7, 0], np.uint8), offset=offset))
    assert chosen.numpy().tolist() == [0, 1, -2]
fails(small.AttncValueError, "expected f32, found i32", lambda: model.affine(numbers))
fails(small.AttncValueError, "is on cuda:1, but the model runs on cuda:0", lambda: model.affine(Tensor(x, device=(2, 1))))
fails(small.AttncValueError, "DLPack device type 10", lambda: model.affine(Tensor(x, device=(10, 0))))

# Tensor cores are given 16 bytes at a time: what does not begin at a multiple of that is copied, and so is the result.
left = (np.arange(64 * 64) % 5 - 2).astype(np.float16).reshape(64, 64)
right = (np.arange(64 * 32) % 7 - 3).astype(np.float16).reshape(64, 32)
for offsets in [(0, 0), (2, 0), (0, 2), (8, 14)]:
    operands = [Tensor(array, offset=offset) for array, offset in zip((left, right), offsets)]
    assert np.array_equal(model.product(*operands).numpy(), left @ right), offsets


def into(name, tensors, result):
    for tensor in [*tensors, result]:
        tensor.__dlpack__()
    args, outs = small._list([t.managed.tensor for t in tensors]), small._list([result.managed.tensor])
    entry = [signature.split("(")[0] for signature, *_ in small._ENTRIES].index(name)
    session, names = model._session(), (ctypes.c_char_p * 1)()
    found = ctypes.byref(small._POINTER())
    call = session._library.call
    session._with(lambda handle: session._check(call(handle, entry, len(tensors), args, 1, outs, 0, names, found)))
    got = np.empty(result.array.shape, result.array.dtype)
    to, size = ctypes.c_void_p(got.ctypes.data), ctypes.c_size_t(got.nbytes)
    check(driver.cuMemcpyDtoHAsync_v2(to, result.address, size, ctypes.c_uint64(0)))
    check(driver.cuStreamSynchronize(ctypes.c_uint64(0)))
    return got


def product_into(result, left=left, right=right):
    return into("product", [left if isinstance(left, Tensor) else Tensor(left), Tensor(right)], result)


assert np.array_equal(product_into(Tensor(np.zeros((64, 32), np.float16), offset=16)), left @ right)
for offset in (1, 2, 8):
    shifted = Tensor(np.zeros((64, 32), np.float16), offset=offset)
    assert np.array_equal(product_into(shifted), left @ right)
# Rows with a gap between them, which stays as it is; columns.
gaps = Tensor(np.full((64, 40), 9, np.float16))
gaps.shape, gaps.strides = (64, 32), (40, 1)
wide = product_into(gaps)
assert np.array_equal(wide[:, :32], left @ right) and (wide[:, 32:] == 9).all()
columns = Tensor(np.zeros((32, 64), np.float16))
columns.shape, columns.strides = (64, 32), (1, 64)
assert np.array_equal(product_into(columns).T, left @ right)
# A result where an argument lies.
both = Tensor(left)
whole = Tensor(np.zeros((64, 32), np.float16))
whole.array, whole.address = both.array[:, :32], both.address
assert np.array_equal(product_into(whole, left=both), left @ right)
# Partly: what a block writes, another reads.
counted = np.arange(2048, dtype=np.int32)
line, moved = Tensor(np.arange(2052, dtype=np.int32)), Tensor(np.zeros(2048, np.int32))
line.shape, moved.address = (2048,), ctypes.c_uint64(line.address.value + 16)
assert np.array_equal(into("choose", [line, Tensor(-counted), Tensor(np.ones(2048, np.uint8))], moved), counted)

# Launches that come again are one graph, of which only what is different is told to the driver.
def graphs(call):
    count = lambda: [driver.attnc_standin_graphs(), driver.attnc_standin_updates(), driver.attnc_standin_launches()]
    before = count()
    result = call()
    launched, updates, launches = (now - was for now, was in zip(count(), before))
    if not GRAPHS:
        assert (launched, updates) == (0, 0)
    return result, launched, updates, launches


class Steps:
    total = np.zeros(4, np.float32)

    def of(self, tokens, shift):
        seen = softmax(TABLE[tokens] / 2) / 2
        self.total = self.total + seen.sum(axis=0)
        return softmax(seen * 1.5) + self.total + shift


def same_as(wanted, got):
    np.testing.assert_allclose(got if isinstance(got, np.ndarray) else got.numpy(), wanted, rtol=1e-5)


steps, session, shift = Steps(), model.session(), np.linspace(0, 3, 4, dtype=np.float32)
for n in range(2):
    result, launched, updates, launches = graphs(lambda: session.step([1, 3], shift))
    same_as(steps.of([1, 3], shift), result)
    assert (launched, updates) == (n * GRAPHS, 0) and launches >= 3, (n, launched, updates, launches)
for tokens, at_least, at_most in [([0, 4], 0, 0), ([2] * 100, 2, launches), ([4], 2, launches), ([3], 0, 0), ([], 0, launches)]:
    result, launched, updates, _ = graphs(lambda: session.step(np.array(tokens, np.int32), shift))
    same_as(steps.of(tokens, shift), result)
    assert not GRAPHS or launched <= 1 and at_least <= updates <= at_most, (tokens, launched, updates)
# Tensors of the GPU are elsewhere in each call: the launches that read and write them change.
for n in range(3):
    here = Tensor(shift + n)
    result, launched, updates, launches = graphs(lambda: session.step([3, n, 1], here))
    same_as(steps.of([3, n, 1], shift + n), result)
    assert not GRAPHS or launched == 1 and (updates < launches if n else updates > 0), (n, launched, updates)
# A fault within a graph is told, and the graph is used again.
wrong, launched, _, _ = graphs(lambda: fails(small.AttncIndexError, "index 7 is out of range", lambda: session.step([1, 7, 1], shift)))
assert launched == GRAPHS
session.reset()
steps = Steps()
result, launched, _, _ = graphs(lambda: session.step([1, 2, 1], shift))
same_as(steps.of([1, 2, 1], shift), result)
assert launched == GRAPHS
# Another entry point in between, and another session, whose first call is its first.
assert model.lookup([1]).tolist() == [[4, 5, 6, 7]]
same_as(steps.of([1, 2, 1], shift), session.step([1, 2, 1], shift))
other = model.session()
result, launched, _, _ = graphs(lambda: other.step([1, 3], shift))
same_as(Steps().of([1, 3], shift), result)
assert launched == 0
other.close()
session.close()

# A loop is one launch, whose blocks meet between its steps, however many these are; within a graph too.
def recur(tokens, h):
    for token in tokens:
        h = np.tanh(h @ (np.eye(4, dtype=np.float32) / 2) + TABLE[token])
    return h


session, start, counts = model.session(), np.linspace(-1, 1, 8, dtype=np.float32).reshape(2, 4), set()
for tokens in ([2], [1, 3, 0, 4, 2], [], [2] * 9, [0, 1]):
    before = driver.attnc_standin_together()
    result, launched, _, launches = graphs(lambda: session.recur(np.array(tokens, np.int32), start))
    same_as(recur(tokens, start), result)
    assert driver.attnc_standin_together() == before + 1, tokens
    counts.add((launches, launched) if counts else (launches, GRAPHS))
assert len(counts) == 1, counts
fails(small.AttncIndexError, "index 9 is out of range for an axis of 5", lambda: session.recur([1, 9, 1], start))
same_as(recur([1, 2], start), session.recur([1, 2], start))
session.close()

# More orders of kernels than graphs are kept come in turns: those that have one keep it, and none is made again and again.
session, seed = model.session(), np.linspace(-1, 1, 4, dtype=np.float32)


def turn(n):
    given = [bool(n >> i & 1) for i in range(5)]
    made = driver.attnc_standin_made()
    result, launched, _, _ = graphs(lambda: session.turn(seed, *given))
    same_as(of_turn(seed, given), result)
    return launched, driver.attnc_standin_made() - made


for wanted in [(0, 0), (16, 16), (16, 0), (16, 0)]:
    launched, made = (sum(n) for n in zip(*(turn(n) for n in range(19))))
    assert (launched, made) == (wanted if GRAPHS else (0, 0)), (launched, made, wanted)
# An order that comes alone from then on gets the place of one that does not come any more.
assert [turn(30) for _ in range(4)] == ([(0, 0), (1, 1), (1, 0), (1, 0)] if GRAPHS else [(0, 0)] * 4)
session.close()

# Copies that the driver refuses, one after another: those of the arguments, of what the plan reads, of the results. Each time it is said, and
# when a call goes on after what it could not read, nothing is on its way to where that was to go.
def climb():
    return model.climb(np.array([1], np.int32), 40.0)


refused, number, left = 0, 1, []
while True:
    driver.attnc_standin_refuse_copy(ctypes.c_uint64(number))
    before = driver.attnc_standin_left()
    try:
        climb()
        break
    except small.AttncError as error:
        assert "CUDA_ERROR_INVALID_VALUE" in str(error), error
        if "a number that the plan reads" in str(error) or "the error report" in str(error) and number < 11:
            left.append(driver.attnc_standin_left() - before)
    number += 1
driver.attnc_standin_refuse_copy(ctypes.c_uint64(0))
# Two arguments; five times a number with the error report; two results, and the report.
assert number == 16 and len(left) >= 8 and not any(left), (number, left)
assert climb()[1] == 4

# A stream of the caller's: what waits on it is done before the call.
stream = gpu.stream()
model.use_cuda_stream(stream.value)
assert model.cuda_stream == stream.value
late = Tensor(x + 1, stream=stream)
np.testing.assert_allclose(model.affine(late).numpy(), np.exp((x + 1) / 2) + 1, rtol=1e-6)
assert late.streams == [stream.value]
# After a call, one that fails too, nothing is queued there, so its owner may destroy it.
fails(small.AttncIndexError, "index 5 is out of range", lambda: model.lookup([5]))
assert driver.attnc_standin_queued(stream) == 0
check(driver.cuStreamDestroy_v2(stream))
model.use_cuda_stream(None)
assert model.cuda_stream != stream.value
assert np.array_equal(model.lookup([4]), TABLE[[4]])


class Stream:
    """A stream as CuPy has it, which destroys it when nobody needs it any more."""

    def __init__(self):
        self.ptr = gpu.stream().value

    def __del__(self):
        check(driver.cuStreamDestroy_v2(ctypes.c_uint64(self.ptr)))


live = driver.attnc_standin_live()
model.use_cuda_stream(Stream())
gc.collect()
assert np.array_equal(model.lookup([4]), TABLE[[4]])
kept = weakref.ref(model._session()._callers_stream)
model.use_cuda_stream(None)
gc.collect()
assert kept() is None and driver.attnc_standin_live() == live
assert np.array_equal(model.lookup([3]), TABLE[[3]])

# No queries, and no keys: of the host, and of the GPU, where an empty tensor is nowhere.
for rows, keys in [(3, 0), (0, 3), (0, 0), (200, 0), (200, 130)]:
    arrays = [np.ones((2, n, 64), np.float16) * (i - 1) for i, n in enumerate((rows, keys, keys))]
    wanted = np.ones((2, rows, 64), np.float16) * (keys > 0)
    assert np.array_equal(model.attend(*arrays), wanted), (rows, keys)
    there = [Tensor(array) for array in arrays]
    for tensor in there:
        if tensor.array.size == 0:
            tensor.address = ctypes.c_uint64(0)
    assert np.array_equal(model.attend(*there).numpy(), wanted), (rows, keys)

# Sessions have states of their own.
one = np.ones(4, np.float32)
other = model.session()
model.add(one)
assert model.add(one).tolist() == [2.0] * 4 and other.add(one).tolist() == [1.0] * 4
model.reset()
assert model.add(one).tolist() == [1.0] * 4
# Where a call fails that sets some, they are lost: kernels behind the one that failed have run.
# (A call before it has written all memory that those read: the driver's stand-in reports reads of memory that nobody has written.)
model.step([1], one)
fails(small.AttncIndexError, "index 5 is out of range", lambda: model.step([5], one))
for call in (lambda: model.add(one), lambda: model.lookup([1]), lambda: model.add(Tensor(one))):
    fails(small.AttncError, "the states of this session were lost when a call of `step` failed: reset the session", call)
assert other.add(one).tolist() == [2.0] * 4
model.reset()
assert model.add(one).tolist() == [1.0] * 4

# Results outlive model and session; after them nothing of the model is left.
kept = model.affine(given)
for make in (copy.copy, copy.deepcopy, pickle.dumps):
    fails(TypeError, "a result cannot be copied or pickled", lambda: make(kept))
other.close()
model.close()
fails(small.AttncError, "closed", lambda: model.lookup([1]))
live = driver.attnc_standin_live()
del kept, result, again, chosen
gc.collect()
assert driver.attnc_standin_live() < live
gpu.close()
print("ok")
