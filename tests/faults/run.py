#!/usr/bin/env python3
"""Do the tests see small faults? Plants all faults of the lists beside this file in a copy of the tree, each behind a
switch, builds the copy once, runs for each fault the tests that should see it, and prints which test failed.

    tests/faults/run.py                     all faults; hours of one core
    tests/faults/run.py --only '^cse-'      those whose names match
    tests/faults/run.py --list              where each is planted; fails if one does not fit the source
    tests/faults/run.py --build             plants and builds, runs nothing

The copy is build/faults/tree. Dependencies that `target/` has are not built again. A fault that was caught is remembered
in build/faults/results.json and not tried again until its entry changes. Exit status: 0 if at least 95 in 100 are caught.

A fault breaks an invariant: with it, numbers are wrong, memory is unsafe, results differ from run to run, or a valid
program is refused. A list is text. A line `in PATH` (a folder, or the beginning of a file's path: `src/tile` is also
src/tile.rs) and a line `runs TARGET, TARGET, ...` hold for the faults that follow. The targets run in this order until a
test fails: `TARGET::WORD` is the tests whose names contain WORD, `lib` the unit tests. A fault is two lines:

    NAME   what goes wrong
      find  before «old → new» after
      fn FUNCTION  before «old → new» after

Both say that `old`, between the texts before and after it, becomes `new`; `fn` searches only in functions of that name.
The text must occur exactly once in the files of PATH that are not tests. White space, comments, and commas before a
closing bracket are ignored; `…` matches up to the first occurrence of the token after it, brackets in pairs. `old` is an
expression, or a statement that ends with `;`, and becomes `if SWITCH { new } else { old }`. In `new`, OLD stands for
`old`; a `new` with the word ON replaces `old` as it is, with the switch for ON. A line `runs` in a fault holds for it
alone. Write as little text as is unique, without names of local variables and types where an operator, a field or a
method is enough.
"""

import argparse
import functools
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import threading
import time
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
COPY = ROOT / "build" / "faults"
TREE = COPY / "tree"
RESULTS = COPY / "results.json"
SHARE = 95
# A test that takes longer hangs.
MAX_SECONDS = 300

# Tests about the source's form, which the copy does not have.
FORM = ["style::"]

# The crates that get a switch: their roots, and where the code of the switch is.
CRATES = ["src/lib.rs", "src/runtime/support/lib.rs", "tests/runtime/main.rs", "tests/cuda/main.rs"]
SWITCH = """
/// The fault that is switched on.
pub(crate) mod faults {{
    use core::ffi::{{c_char, c_int}};
    use core::sync::atomic::{{AtomicI32, Ordering}};

    unsafe extern "C" {{
        fn getenv(name: *const c_char) -> *const c_char;
        fn atoi(text: *const c_char) -> c_int;
    }}

    static FAULT: AtomicI32 = AtomicI32::new(-1);

    #[allow(missing_docs)]
    #[inline(never)]
    pub{0} fn on(number: i32) -> bool {{
        let mut fault = FAULT.load(Ordering::Relaxed);
        if fault < 0 {{
            // SAFETY: C strings.
            fault = unsafe {{
                let text = getenv(c"ATTNC_FAULT".as_ptr());
                if text.is_null() {{ 0 }} else {{ atoi(text) }}
            }};
            FAULT.store(fault, Ordering::Relaxed);
        }}
        fault == number
    }}
}}
"""

SKIPPED = {".rs": r"//[^\n]*|/\*.*?\*/", ".py": r"#[^\n]*"}
TOKEN = r"""(?P<skipped>\s+|%s)|r(?P<hashes>#*)".*?"(?P=hashes)|"(?:\\.|[^"\\])*"|'(?:\\(?:u\{\w+\}|x\w\w|.)|[^\\'\n])'|\w+|."""
PAIRS = {"(": ")", "[": "]", "{": "}"}


class Source:
    """A text as tokens: `words`, and where each begins and ends."""

    def __init__(self, text, suffix):
        self.text, self.suffix = text, suffix
        self.words, self.spans = [], []
        for found in re.finditer(TOKEN % SKIPPED[suffix], text, re.DOTALL):
            if found.lastgroup == "skipped":
                continue
            if found.group() in (")", "]", "}") and self.words[-1:] == [","]:
                self.words.pop()
                self.spans.pop()
            self.words.append(found.group())
            self.spans.append(found.span())
        self.places = {}
        for at, word in enumerate(self.words):
            self.places.setdefault(word, []).append(at)

    def match(self, at, words):
        """Where each of these words begins and ends if they stand here, by number of token."""
        found = []
        for i, word in enumerate(words):
            begin, open_brackets = at, []
            if word == "…":
                after = words[i + 1]
                while at < len(self.words) and (open_brackets or self.words[at] != after):
                    if self.words[at] in PAIRS:
                        open_brackets.append(PAIRS[self.words[at]])
                    elif self.words[at] in PAIRS.values() and (not open_brackets or open_brackets.pop() != self.words[at]):
                        return None
                    at += 1
            elif at < len(self.words) and self.words[at] == word:
                at += 1
            else:
                return None
            found.append((begin, at))
        return found

    def functions(self, name):
        """Where functions of this name begin and end, by number of token."""
        keyword = "fn" if self.suffix == ".rs" else "def"
        for begin in self.places.get(name, []):
            if begin == 0 or self.words[begin - 1] != keyword:
                continue
            end = begin
            if self.suffix == ".rs":
                while self.words[end] not in "{;":
                    end = self.closing(end) + 1
                yield begin, self.closing(end)
            else:
                column = self.column(begin - 1)
                while end < len(self.words) and (self.column(end) > column or self.words[end] in ")]}"):
                    end += 1
                yield begin, end

    def closing(self, at):
        """The bracket that closes this one; what is no bracket is its own."""
        ends = [PAIRS.get(self.words[at])]
        while ends[-1] and at + 1 < len(self.words):
            at += 1
            if self.words[at] in PAIRS:
                ends.append(PAIRS[self.words[at]])
            elif self.words[at] == ends[-1]:
                ends.pop()
                if not ends:
                    break
        return at

    def column(self, at):
        """The indentation of a token that is the first of its line; of others, much."""
        before = self.text[self.text.rfind("\n", 0, self.spans[at][0]) + 1 : self.spans[at][0]]
        return len(before) if not before.strip() else 1000


@functools.cache
def source(path):
    text = path.read_text().partition("#[cfg(test)]\nmod tests {")[0]
    return Source(text, path.suffix)


@functools.cache
def files(scope):
    """The files of a folder, or whose paths begin so, without tests."""
    paths = [*ROOT.glob(scope + ".*"), *(ROOT / scope).rglob("*")]
    return sorted(p for p in paths if p.suffix in SKIPPED and "tests" not in p.relative_to(ROOT).with_suffix("").parts[1:])


class Fault:
    def __init__(self, name, means, scope, runs):
        self.name, self.means, self.scope, self.runs = name, means, scope, runs
        self.function = self.find = self.plant = self.file = self.span = None
        # A number stays the same when other faults come and go, so that little is built again.
        self.number = zlib.crc32(name.encode()) >> 1 or 1

    def set_find(self, text):
        parts = re.fullmatch(r"(.*)«(.+) → (.+)»(.*)", text)
        if not parts:
            sys.exit(f"{self.name}: `{text}` is not of the form `before «old → new» after`")
        before, old, self.plant, after = parts.groups()
        self.find = [Source(part, ".rs").words for part in (before, old, after)]
        self.key = hashlib.sha256(f"{self.scope} {self.function} {text}".encode()).hexdigest()[:16]

    def locate(self):
        """Finds the file, and in it what is replaced. How often the text is there."""
        words = [word for part in self.find for word in part]
        first, last = len(self.find[0]), len(self.find[0]) + len(self.find[1]) - 1
        found = 0
        for path in files(self.scope):
            s = source(path)
            ranges = list(s.functions(self.function)) if self.function else [(0, len(s.words))]
            if not ranges or any(word not in s.places for word in words if word != "…"):
                continue
            for at in s.places[words[0]]:
                if any(begin <= at < end for begin, end in ranges) and (match := s.match(at, words)):
                    found += 1
                    self.file = path.relative_to(ROOT).as_posix()
                    self.span = s.spans[match[first][0]][0], s.spans[match[last][1] - 1][1]
        return found

    def switch(self):
        if self.file.endswith(".py"):
            return f'(__import__("os").environ.get("ATTNC_FAULT") == "{self.number}")'
        return f"crate::faults::on({self.number})"


def read_lists():
    """The faults, located, and what is wrong with them."""
    faults, wrong = [], []
    for path in sorted(HERE.glob("*.txt")):
        scope, runs, fault = None, [], None
        for at, line in enumerate(path.read_text().splitlines(), 1):
            if not line.strip() or line.startswith("#"):
                continue
            word, _, rest = line.strip().partition(" ")
            rest = rest.strip()
            targets = [r.strip() for r in rest.split(",")]
            if not line.startswith(" ") and word == "in":
                scope = rest
            elif not line.startswith(" ") and word == "runs":
                runs = targets
            elif not line.startswith(" "):
                fault = Fault(word, rest, scope, runs)
                faults.append(fault)
            elif word == "runs":
                fault.runs = targets
            elif word == "fn":
                fault.function, _, rest = rest.partition(" ")
                fault.set_find(rest.strip())
            elif word == "find":
                fault.set_find(rest)
            else:
                sys.exit(f"{path}:{at}: what is `{word}`?")
    for f in faults:
        found = f.locate()
        if found != 1:
            wrong.append(f"{f.name}: its text stands {found} times in {f.scope}" + (f", fn {f.function}" if f.function else ""))
        if not f.means or not f.runs:
            wrong.append(f"{f.name} does not say what it means, or which tests see it")
        for target in map(target_of, f.runs):
            if target != "lib" and not any((ROOT / "tests" / p).is_file() for p in (f"{target}.rs", f"{target}/main.rs")):
                wrong.append(f"{f.name} is to be seen by `{target}`, which is no test")
    for first, second in overlaps([f for f in faults if f.span]):
        wrong.append(f"{first.name} overlaps {second.name}")
    if len({f.number for f in faults}) != len(faults):
        wrong.append("two faults have one name")
    return faults, wrong


def overlaps(faults):
    """Pairs that cannot be planted together: several may replace the same text, unless they say ON."""
    faults = sorted(faults, key=lambda f: (f.file, f.span))
    for first, second in zip(faults, faults[1:]):
        if first.file == second.file and second.span[0] < first.span[1]:
            if first.span != second.span or says_on(first) or says_on(second):
                yield first, second


def says_on(fault):
    return re.search(r"\bON\b", fault.plant)


def planted(text, faults):
    """The text with these faults in it."""
    places = {}
    for f in faults:
        places.setdefault(f.span, []).append(f)
    for (start, end), here in sorted(places.items(), reverse=True):
        old = text[start:end]
        plants = [re.sub(r"\bOLD\b", lambda _: old, f.plant) for f in here]
        if says_on(here[0]):
            new = re.sub(r"\bON\b", here[0].switch(), plants[0])
        elif here[0].file.endswith(".py"):
            new = f"({plants[0]} if {here[0].switch()} else {old})"
        else:
            new = "".join(f"if {f.switch()} {{ {plant} }} else " for f, plant in zip(here, plants)) + f"{{ {old} }}"
            if not old.endswith(";"):
                new = f"({new})"
        text = text[:start] + new + text[end:]
    return text


def copy_tree(faults):
    """Brings the copy up to date: what did not change keeps its time, so that little is built again."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, check=True, capture_output=True, text=True,
    ).stdout.split("\0")
    known = {p for p in listed if p and (ROOT / p).is_file()}
    for path in known:
        data = (ROOT / path).read_bytes()
        here = [f for f in faults if f.file == path]
        if here:
            data = planted(data.decode(), here).encode()
        if path in CRATES:
            data += SWITCH.format("" if path == "src/lib.rs" else "(crate)").encode()
        if path == "src/lib.rs":
            data = b"#![allow(warnings)]\n" + data
        to = TREE / path
        if not to.is_file() or to.read_bytes() != data:
            to.parent.mkdir(parents=True, exist_ok=True)
            to.write_bytes(data)
            shutil.copymode(ROOT / path, to)
    for to in TREE.rglob("*"):
        if to.is_file() and to.relative_to(TREE).as_posix() not in known:
            to.unlink()


def target_of(run):
    return run.partition("::")[0]


def build(targets):
    """The test programs of the copy."""
    target = COPY / "target"
    if not target.exists():
        built = ROOT / "target" / "tests"
        for part in ("deps", "build", ".fingerprint"):
            if (built / part).exists():
                shutil.copytree(built / part, target / "tests" / part, symlinks=True)
    # Other crates stay as they were built.
    command = ["cargo", "test", "--profile", "tests", "--no-run", "--message-format=json-render-diagnostics"]
    for t in sorted(targets):
        command += ["--lib"] if t == "lib" else ["--test", t]
    env = dict(os.environ, CARGO_TARGET_DIR=str(target), CARGO_INCREMENTAL="1")
    done = subprocess.run(command, cwd=TREE, env=env, stdout=subprocess.PIPE, text=True)
    # As a test it would be a program, and what a model loads is a library.
    driver = ["cargo", "build", "--profile", "tests", "--example", "standin"]
    if done.returncode == 0 and "cuda" in targets:
        done.returncode = subprocess.run(driver, cwd=TREE, env=env).returncode
    if done.returncode != 0:
        sys.exit("the copy with the faults does not build")
    programs = {}
    for line in done.stdout.splitlines():
        message = json.loads(line)
        if message.get("executable") and message.get("profile", {}).get("test"):
            kind = message["target"]["kind"][0]
            programs["lib" if kind == "lib" else message["target"]["name"]] = message["executable"]
    return programs


def run_tests(programs, run, number, limit):
    """Runs tests until the first fails: its name, or None if all pass."""
    target, _, word = run.partition("::")
    python = ROOT / ".venv" / "bin" / "python"
    env = dict({"ATTNC_TEST_PYTHON": str(python)} if python.is_file() else {})
    env |= dict(os.environ, ATTNC_FAULT=str(number), INSTA_UPDATE="no", INSTA_WORKSPACE_ROOT=str(TREE),
                CARGO_MANIFEST_DIR=str(TREE), RUST_BACKTRACE="0")
    command = [programs[target]] + ([word] if word else [])
    command += [part for skipped in FORM for part in ("--skip", skipped)]
    process = subprocess.Popen(command, cwd=TREE, env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                               text=True, errors="replace", start_new_session=True)
    late = threading.Event()

    def stop():
        late.set()
        os.killpg(process.pid, 9)

    timer = threading.Timer(limit, stop)
    timer.start()
    failed = None
    try:
        for line in process.stdout:
            found = re.match(r"test (\S+).* \.\.\. FAILED", line)
            if found:
                failed = found.group(1)
                os.killpg(process.pid, 9)
                break
    finally:
        status = process.wait()
        timer.cancel()
    if late.is_set():
        return f"({limit} s are over)"
    if failed is None and status != 0:
        return f"(status {status})"
    return failed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", metavar="PATTERN", default="", help="faults whose names match this regular expression")
    parser.add_argument("--list", action="store_true", help="print the faults")
    parser.add_argument("--build", action="store_true", help="build the copy and stop")
    args = parser.parse_args()
    everything, wrong = read_lists()
    if wrong:
        sys.exit("\n".join(wrong))
    faults = [f for f in everything if re.search(args.only, f.name)]
    if args.list:
        for f in faults:
            print(f"{f.name:32} {f.file}: {f.means}")
        return 0

    TREE.mkdir(parents=True, exist_ok=True)
    copy_tree(everything)
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    todo = [f for f in faults if not results.get(f.key)]
    programs = build({target_of(r) for f in (faults if args.build else todo) for r in f.runs})
    if args.build:
        return 0

    # How long each run takes without a fault, and what fails then; measured when a fault first needs it.
    baseline, locks, lock = {}, {r: threading.Lock() for f in todo for r in f.runs}, threading.Lock()

    def without_fault(run):
        with locks[run]:
            if run not in baseline:
                begin = time.time()
                failed = run_tests(programs, run, 0, MAX_SECONDS)
                baseline[run] = time.time() - begin, failed
                if failed:
                    print(f"{run} fails without a fault, and is left out: {failed}", file=sys.stderr)
        return baseline[run]

    def try_fault(f):
        begin, by = time.time(), None
        for run in f.runs:
            seconds, broken = without_fault(run)
            if broken:
                continue
            # What takes ten times as long as without a fault hangs.
            failed = run_tests(programs, run, f.number, min(MAX_SECONDS, int(10 * seconds) + 30))
            if failed:
                by = f"{target_of(run)} {failed}"
                break
        with lock:
            results[f.key] = by
            RESULTS.write_text(json.dumps(results, indent=1))
            print(f"{f.name:34} {by or 'NOT CAUGHT'}   {time.time() - begin:.0f} s", flush=True)

    pool = ThreadPoolExecutor(len(os.sched_getaffinity(0)))
    list(pool.map(try_fault, todo))

    print("\nfault                              caught by")
    for f in faults:
        print(f"{f.name:34} {results[f.key] or 'NOT CAUGHT'}")
    caught = sum(bool(results[f.key]) for f in faults)
    share = 100 * caught / max(1, len(faults))
    print(f"\n{caught} of {len(faults)} caught, {share:.1f} in 100")
    return 0 if share >= SHARE and not any(failed for _, failed in baseline.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
