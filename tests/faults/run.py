#!/usr/bin/env python3
"""Do the tests see small faults? Plants all faults of the lists beside this file in a copy of the tree, each behind a
switch, builds the copy once, runs for each fault the tests that fit it, and prints who caught what.

    tests/faults/run.py                     all faults; hours of one core
    tests/faults/run.py --only '^cse-'      those whose names match
    tests/faults/run.py --list              only what they are
    tests/faults/run.py --build             plant and build, run nothing
    tests/faults/run.py --kept ...          try the copy as it was built last, whatever has changed since

The copy lies in build/faults/ and is built with what `target/` has of other crates; a fault that was caught is not tried
again until its entry changes (`--again` tries all). For each fault, the tests that take least time, and that caught faults of
the same file before, come first; the first that fails ends it. Exit status: 0 if at least 95 in 100 faults are caught.

A list is text. A line `file PATH` and a line `runs TARGET, TARGET, ...` hold for the faults that follow (`TARGET::WORD`
runs the tests whose names have that word; `lib` are the unit tests). A fault is

    NAME   what it means
      find  text of the file «what is replaced» more text
      plant what is there instead

What `find` says must stand in the file exactly once, any white space for any other. What is replaced is an expression, or
a statement that ends with `;`, and becomes `if SWITCH { PLANT } else { OLD }`. A plant with the word ON is put there as it
is, with the switch for ON. `runs` in a fault holds for it alone. `equal WHY` marks a fault that changes nothing that can
be seen; it is planted, and must not be caught.
"""

import argparse
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
TIMES = COPY / "times.json"
PROGRAMS = COPY / "programs.json"
SHARE = 95

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


class Fault:
    def __init__(self, name, means, file, runs):
        self.name, self.means, self.file, self.runs = name, means, file, runs
        self.find = self.plant = self.equal = None
        self.number = 0

    def key(self):
        text = "\n".join([self.file, self.find, self.plant or "", self.equal or ""])
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def switch(self):
        if self.file.endswith(".py"):
            return f'(__import__("os").environ.get("ATTNC_FAULT") == "{self.number}")'
        return f"crate::faults::on({self.number})"

    def span(self, text):
        """Where what is replaced lies in the text of the file; None where the fault does not fit."""
        before, rest = self.find.split("«")
        old, after = rest.split("»")

        def pattern(part):
            return r"\s+".join(re.escape(word) for word in re.split(r"\s+", part))

        found = list(re.finditer(f"({pattern(before)})({pattern(old)})({pattern(after)})", text))
        return found[0].span(2) if len(found) == 1 else None


def read_lists():
    faults, names = [], set()
    for path in sorted(HERE.glob("*.txt")):
        file, runs, fault = None, [], None
        for at, line in enumerate(path.read_text().splitlines(), 1):
            if not line.strip() or line.startswith("#"):
                continue
            word, _, rest = line.strip().partition(" ")
            rest = rest.strip()
            if not line.startswith(" "):
                if word == "file":
                    file = rest
                elif word == "runs":
                    runs = [r.strip() for r in rest.split(",")]
                else:
                    fault = Fault(word, rest, file, runs)
                    if word in names:
                        sys.exit(f"{path}:{at}: {word} twice")
                    names.add(word)
                    faults.append(fault)
            elif word == "runs":
                fault.runs = [r.strip() for r in rest.split(",")]
            elif word in ("find", "plant", "equal"):
                setattr(fault, word, rest)
            else:
                sys.exit(f"{path}:{at}: what is `{word}`?")
    # A number stays the same when other faults come and go, so that little is built again.
    for fault in faults:
        fault.number = zlib.crc32(fault.name.encode()) >> 1 or 1
    if len({fault.number for fault in faults}) != len(faults):
        sys.exit("two faults have one number; rename one")
    return faults


def planted(text, faults):
    """The text with these faults in it; those that do not fit. Several may share one place, no two may overlap."""
    places, misfits = {}, []
    for f in faults:
        span = f.span(text)
        overlaps = span and any(span != s and span[0] < s[1] and s[0] < span[1] for s in places)
        if span is None or overlaps or (span in places and re.search(r"\bON\b", f.plant + places[span][0].plant)):
            misfits.append(f)
        else:
            places.setdefault(span, []).append(f)
    for (start, end), here in sorted(places.items(), reverse=True):
        old = text[start:end]
        if re.search(r"\bON\b", here[0].plant):
            new = re.sub(r"\bON\b", here[0].switch(), here[0].plant)
        elif here[0].file.endswith(".py"):
            new = f"({here[0].plant} if {here[0].switch()} else {old})"
        else:
            new = "".join(f"if {f.switch()} {{ {f.plant} }} else " for f in here) + f"{{ {old} }}"
            if not old.rstrip().endswith(";"):
                new = f"({new})"
        text = text[:start] + new + text[end:]
    return text, misfits


def copy_tree(faults):
    """Brings the copy up to date: what did not change keeps its time, so that little is built again."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, check=True, capture_output=True, text=True,
    ).stdout.split("\0")
    files = [p for p in listed if p and (ROOT / p).is_file()]
    by_file, misfits = {}, []
    for f in faults:
        by_file.setdefault(f.file, []).append(f)
    for path in files:
        data = (ROOT / path).read_bytes()
        if path in by_file:
            text, bad = planted(data.decode(), by_file.pop(path))
            misfits += bad
            data = text.encode()
        if path in CRATES:
            data += SWITCH.format("" if path == "src/lib.rs" else "(crate)").encode()
        if path == "src/lib.rs":
            data = b"#![allow(warnings)]\n" + data
        to = TREE / path
        if not to.is_file() or to.read_bytes() != data:
            to.parent.mkdir(parents=True, exist_ok=True)
            to.write_bytes(data)
            shutil.copymode(ROOT / path, to)
    known = set(files)
    for to in TREE.rglob("*"):
        path = to.relative_to(TREE)
        if to.is_file() and path.as_posix() not in known:
            to.unlink()
    for missing in by_file.values():
        misfits += missing
    return misfits


def target_of(run):
    return run.partition("::")[0]


def build(targets):
    target = COPY / "target"
    if not target.exists():
        built = ROOT / "target" / "tests"
        for part in ("deps", "build", ".fingerprint"):
            if (built / part).exists():
                shutil.copytree(built / part, target / "tests" / part, symlinks=True)
    # Other crates stay as they were built.
    command = ["cargo", "test", "--profile", "tests"]
    command += ["--no-run", "--message-format=json-render-diagnostics"]
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
    known = json.loads(PROGRAMS.read_text()) if PROGRAMS.exists() else {}
    PROGRAMS.write_text(json.dumps(known | programs, indent=1))
    return programs


class Runner:
    def __init__(self, programs, limit):
        self.programs, self.limit = programs, limit
        # What each run takes without a fault, and whether it fails then, by the program's time.
        self.times = json.loads(TIMES.read_text()) if TIMES.exists() else {}

    def stamp(self, run):
        return os.stat(self.programs[target_of(run)]).st_mtime_ns

    def without_fault(self, run):
        """What fails without any fault, or None."""
        known = self.times.get(run)
        if not known or known["stamp"] != self.stamp(run):
            begin = time.time()
            failed = self.run(run, 0, self.limit)
            known = {"stamp": self.stamp(run), "seconds": time.time() - begin, "failed": failed}
            self.times[run] = known
            TIMES.write_text(json.dumps(self.times, indent=1))
        return known["failed"]

    def seconds(self, run):
        return self.times[run]["seconds"]

    def order(self, fault, results):
        """The fault's runs, the cheapest chance first."""
        caught = [r["by"].partition(" ")[0] for r in results.values() if r["by"] and r.get("file") == fault.file]

        def cost(run):
            return (self.seconds(run) + 0.2) * (len(caught) + 3) / (caught.count(target_of(run)) + 1)

        return sorted(fault.runs, key=cost)

    def try_run(self, run, number):
        # What takes ten times as long as without a fault hangs.
        return self.run(run, number, min(self.limit, int(10 * self.seconds(run)) + 30))

    def run(self, run, number, limit):
        """Runs tests until the first fails: its name, or None if all pass."""
        target, _, word = run.partition("::")
        python = ROOT / ".venv" / "bin" / "python"
        env = dict({"ATTNC_TEST_PYTHON": str(python)} if python.is_file() else {})
        env |= dict(os.environ, ATTNC_FAULT=str(number), INSTA_UPDATE="no", INSTA_WORKSPACE_ROOT=str(TREE),
                   CARGO_MANIFEST_DIR=str(TREE), RUST_BACKTRACE="0")
        command = [self.programs[target]] + ([word] if word else [])
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
    parser.add_argument("--only", metavar="PATTERN", help="faults whose names match this regular expression")
    parser.add_argument("--runs", metavar="TARGETS", help="run these tests instead of the faults' own")
    parser.add_argument("--list", action="store_true", help="print the faults")
    parser.add_argument("--build", action="store_true", help="build the copy and stop")
    parser.add_argument("--kept", action="store_true", help="do not bring the copy up to date")
    parser.add_argument("--again", action="store_true", help="try also what was caught before")
    parser.add_argument("--jobs", type=int, default=max(1, (os.cpu_count() or 1)), help="faults tried at once")
    parser.add_argument("--limit", type=int, default=300, metavar="SECONDS", help="a test that takes longer hangs")
    args = parser.parse_args()
    everything = read_lists()
    faults = [f for f in everything if re.search(args.only or "", f.name)]
    if args.runs:
        for f in faults:
            f.runs = [r.strip() for r in args.runs.split(",")]
    if args.list:
        for f in faults:
            print(f"{f.name:32} {f.file}: {f.means}")
        return 0

    TREE.mkdir(parents=True, exist_ok=True)
    misfits = [] if args.kept else copy_tree(everything)
    for f in misfits:
        print(f"{f.name}: its text does not stand once in {f.file}, or overlaps another fault's", file=sys.stderr)
    faults = [f for f in faults if f not in misfits]
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    if args.again:
        for f in faults:
            results.pop(f.key(), None)
    todo = [f for f in faults if not results.get(f.key(), {}).get("by")]
    targets = {target_of(r) for f in everything for r in f.runs}
    if args.only or args.runs:
        targets = {target_of(r) for f in (faults if args.build else todo) for r in f.runs}
    programs = json.loads(PROGRAMS.read_text()) if args.kept else build(targets) if targets else {}
    runner = Runner(programs, args.limit)
    if args.build:
        return 1 if misfits else 0

    # What fails without any fault says nothing.
    broken = set()
    pool = ThreadPoolExecutor(args.jobs)
    for run, failed in pool.map(lambda r: (r, runner.without_fault(r)), sorted({r for f in todo for r in f.runs})):
        if failed:
            print(f"{run} fails without a fault: {failed}", file=sys.stderr)
            broken.add(run)

    lock = threading.Lock()

    def try_one(f):
        begin, by = time.time(), None
        with lock:
            runs = runner.order(f, results)
        for run in runs:
            if run in broken:
                continue
            failed = runner.try_run(run, f.number)
            if failed:
                by = f"{run.partition('::')[0]} {failed}"
                break
        with lock:
            results[f.key()] = {"name": f.name, "file": f.file, "by": by}
            RESULTS.write_text(json.dumps(results, indent=1))
            said = by or ("(equal)" if f.equal else "NOT CAUGHT")
            print(f"{f.name:34} {said}   {time.time() - begin:.0f} s", flush=True)

    list(pool.map(try_one, todo))

    print("\nfault                              caught by")
    caught = missed = equal = 0
    wrong = []
    for f in faults:
        by = results[f.key()]["by"]
        if f.equal:
            equal += 1
            if by:
                wrong.append(f.name)
        elif by:
            caught += 1
        else:
            missed += 1
        print(f"{f.name:34} {by or ('equal: ' + f.equal if f.equal else 'NOT CAUGHT')}")
    share = 100 * caught / max(1, caught + missed)
    print(f"\n{caught} of {caught + missed} caught, {share:.1f} in 100; {equal} without effect")
    for name in wrong:
        print(f"{name} is said to have no effect, and was caught", file=sys.stderr)
    return 0 if share >= SHARE and not misfits and not broken and not wrong else 1


if __name__ == "__main__":
    sys.exit(main())
