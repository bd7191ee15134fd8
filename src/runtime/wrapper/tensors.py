import collections
import ctypes
import itertools
import json
import mmap
import operator
import os
import re
import sys
import threading
import weakref

import numpy as np

__all__ = ["Model", "Session", "Taps", "DeviceArray", "AttncError", "AttncValueError", "AttncIndexError", "Parameter"]


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
    """A DLTensor for a NumPy array, and the objects to keep alive with it; `name` is for messages."""
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


# Bytes of a cache line; and the smallest result that is worth aligning, which takes a microsecond.
_LINE = 64
_LARGE = 1 << 16


def _empty(shape, dtype):
    """An array for a result. Large ones are aligned to cache lines, which NumPy's own arrays are not: storing a vector across
    two lines takes twice as long."""
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
    """A DLTensor of an object that supports DLPack; its capsule is not consumed, and frees the tensor when it is collected.

    The owner of a tensor on a GPU makes sure that it is complete for `stream`, whatever stream it was made on.
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
        # Python numbers have no width: floats take the declared type. Integers keep theirs and are
        # checked.
        if bare and declared in ("f32", "f16") and value.dtype.kind in "if":
            value = value.astype(_dtype(declared))
    return _of_array(np.asarray(value), declared, name)
