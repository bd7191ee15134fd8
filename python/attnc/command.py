"""Calls the command `attnc`.

In: arguments, and the text of a program. Out: its output and diagnostics, or `CompileError`. It knows nothing of models.
"""

import collections
import functools
import hashlib
import json
import os
import shutil
import subprocess
import sys
import sysconfig

Diagnostic = collections.namedtuple("Diagnostic", "code level message rendered data")
Diagnostic.__doc__ = """A message of the compiler: `code` ("E0301", or None), `level` ("error", "warning", "note"), `message`,
`rendered` as the command prints it, and `data`, the message in rustc's JSON format with its places and suggestions."""


class CompileError(Exception):
    """The command refused a program, or could not run. The text is the rendered message; `diagnostics` has it as data."""

    def __init__(self, text, diagnostics=()):
        super().__init__(text)
        self.diagnostics = list(diagnostics)

    def _render_traceback_(self):
        # In a notebook, a message about a program is shown without the frames of this package.
        return str(self).splitlines()


@functools.lru_cache(maxsize=None)
def _installed():
    name = "attnc.exe" if os.name == "nt" else "attnc"
    folders = [sysconfig.get_path("scripts"), os.path.dirname(sys.executable)]
    folders.append(sysconfig.get_path("scripts", os.name + "_user"))
    for folder in folders:
        path = os.path.join(folder, name)
        if os.access(path, os.X_OK):
            return path
    return shutil.which(name)


def command():
    """The path of the command: `ATTNC` from the environment, or the one that was installed with this package."""
    path = os.environ.get("ATTNC") or _installed()
    if path is None:
        raise CompileError("the command `attnc` was not found: install this package with pip, or set ATTNC to its path")
    return os.path.abspath(path)


@functools.lru_cache(maxsize=None)
def _hash(path, size, changed):
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest() if hasattr(hashlib, "file_digest") else hashlib.sha256(file.read()).hexdigest()


def build():
    """A hash of the command's binary: another build may compile the same program to another library."""
    path = command()
    about = os.stat(path)
    return _hash(path, about.st_size, about.st_mtime_ns)


def run(*arguments, program=None, folder=None):
    """Runs `attnc` with these arguments, and returns its stdout and its diagnostics.

    `program` is the text that it reads as `-`. Raises `CompileError` if it fails.
    """
    line = [command(), *map(os.fspath, arguments), "--error-format", "json"]
    try:
        done = subprocess.run(line, input=None if program is None else program.encode(), capture_output=True, cwd=folder)
    except OSError as error:
        raise CompileError("cannot run %s: %s" % (line[0], error)) from None
    diagnostics, rest = [], []
    for text in done.stderr.decode(errors="replace").splitlines():
        data = _message(text)
        if data is None:
            rest.append(text)
        else:
            code = (data.get("code") or {}).get("code")
            diagnostics.append(Diagnostic(code, data.get("level"), data.get("message"), (data.get("rendered") or "").rstrip(), data))
    if done.returncode != 0:
        shown = [one.rendered or one.message for one in diagnostics] + ["\n".join(rest).strip()]
        text = "\n\n".join(one for one in shown if one)
        raise CompileError(text or "attnc ended with status %d" % done.returncode, diagnostics)
    return done.stdout.decode(errors="replace"), diagnostics


def _message(text):
    """A line of JSON that is a diagnostic, or None."""
    if not text.startswith("{"):
        return None
    try:
        data = json.loads(text)
    except ValueError:
        return None
    return data if data.get("$message_type") == "diagnostic" else None
