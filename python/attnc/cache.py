"""Where compiled libraries are kept.

In: a key, the hash of everything that a library depends on, and a function that writes the library into a folder. Out: that folder,
whole. A folder is written under another name and renamed, and is never changed after that, so no process reads half of one,
and a library that is loaded is never overwritten.
"""

import os
import shutil
import tempfile

# The oldest libraries are removed above this.
MOST_BYTES = 2 << 30


def root():
    """The folder of all libraries: `ATTNC_CACHE`, or `attnc` in the user's cache folder."""
    given = os.environ.get("ATTNC_CACHE")
    if given:
        return os.path.abspath(given)
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.join(os.path.abspath(base), "attnc")


def folder(key, write):
    """The folder of this key; if there is none, `write(folder)` fills it."""
    top = root()
    path = os.path.join(top, key)
    if os.path.isdir(path):
        os.utime(path)
        return path
    os.makedirs(top, mode=0o700, exist_ok=True)
    new = tempfile.mkdtemp(prefix=".new-", dir=top)
    try:
        write(new)
        _remove_old(top)
        try:
            os.rename(new, path)
        except OSError:
            # Another process was faster, and wrote the same.
            if not os.path.isdir(path):
                raise
    finally:
        shutil.rmtree(new, ignore_errors=True)
    return path


def _remove_old(top):
    """Removes what was used longest ago, until the rest is small enough. Loaded libraries stay in memory."""
    found = []
    for entry in os.scandir(top):
        try:
            if entry.is_dir(follow_symlinks=False) and not entry.name.startswith("."):
                bytes_of = sum(file.stat().st_size for file in os.scandir(entry.path))
                found.append((entry.stat().st_mtime, bytes_of, entry.path))
        except OSError:
            continue
    total = sum(one[1] for one in found)
    for _, size, path in sorted(found):
        if total <= MOST_BYTES:
            break
        shutil.rmtree(path, ignore_errors=True)
        total -= size
