"""Two models in one process through their wrappers: python several_test.py FOLDER."""

import ctypes
import os
import sys

import numpy as np

folder = sys.argv[1]
sys.path.insert(0, folder)
# Whoever opens a library so that others may see its symbols does not change what they call.
for name in ("other", "minus", "plus"):
    ctypes.CDLL(os.path.join(folder, name + ".so"), mode=ctypes.RTLD_GLOBAL)

import minus  # noqa: E402
import other  # noqa: E402
import plus  # noqa: E402

x, y = np.arange(4, dtype=np.float32), np.full(4, 10, np.float32)
with plus.Model() as a, minus.Model() as b, other.Model() as c:
    for _ in range(2):
        np.testing.assert_array_equal(a.combine(x, y), x + y)
        np.testing.assert_array_equal(b.combine(x, y), x - y)
        np.testing.assert_array_equal(c.combine(x, y), x - y)
    assert a.info != b.info
print("ok")
