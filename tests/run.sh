#!/bin/sh
# Installs what the tests need and runs all of them. It needs a Rust toolchain, a linker and Python 3.
#
#   tests/run.sh                           all tests: some minutes
#   tests/run.sh --test project documents::   only the tests that these arguments of `cargo test` choose
#   tests/run.sh --install                 only installs
#
# Everything that is fetched goes into .venv/ and build/. Where there is no network, the tests that need Python
# packages or trained weights say that they were left out; all others need nothing.
#
# Without arguments two test programs run at a time, the longest first, and beside them what needs the network: many a program ends
# with one test for which one processor waits. `comments` are the examples in the comments of the source. For each a line says how long it took; what a program printed is shown where it failed.
#
# Whether the tests see small faults in the source, tests/faults/run.py finds out; it takes long, and is not run here.
set -eu
cd "$(dirname "$0")/.."

# What needs the network beside the tests: each a job of its own, below.
case "${1:-}" in
live=minilm)
    # The trained model, against the vectors of the transformers library.
    if examples/run_minilm.sh >/dev/null; then
        exec build/venv/bin/python tests/live/check_minilm.py
    fi
    echo "tests/run.sh: MiniLM could not be fetched; its vectors are not compared"
    exit 0
    ;;
live=voice)
    # The trained detector of voices, against NumPy.
    .venv/bin/python tests/live/check_voice.py "$ATTNC" || status=$?
    [ "${status:-0}" = 3 ] || exit "${status:-0}"
    echo "tests/run.sh: silero-vad could not be fetched; its probabilities are not compared"
    exit 0
    ;;
live=report)
    # Reports in a browser: a click marks the lines that the record relates.
    python3 tests/report/check.py "$ATTNC" >/dev/null || status=$?
    [ "${status:-0}" = 3 ] || exit "${status:-0}"
    echo "tests/run.sh: there is no Chromium; reports are not opened"
    exit 0
    ;;
live=play)
    # The page of attnc play in a browser: type, fix, run, look.
    python3 tests/report/play.py "$ATTNC" >/dev/null || status=$?
    [ "${status:-0}" = 3 ] || exit "${status:-0}"
    echo "tests/run.sh: there is no Chromium; the page of attnc play is not used"
    exit 0
    ;;
live=editors)
    # The extension for VS Code, packaged, and what it starts; the grammar for tree-sitter, if its comparison has been compiled.
    mutants=0
    [ ! -d build/editors/target ] || mutants=1000
    tests/live/check_editors.sh "$ATTNC" "$mutants" || status=$?
    [ "${status:-0}" = 3 ] || exit "${status:-0}"
    echo "tests/run.sh: packages could not be fetched; the grammar and the extension for editors are not all tested"
    exit 0
    ;;
live=python)
    # What from_torch makes of PyTorch modules, with the PyTorch that tests/live/compare_torch.py uses, or any other that is there.
    export ATTNC="${ATTNC:-${CARGO_TARGET_DIR:-target}/tests/attnc}"
    status=3
    for python in build/torch/bin/python .venv/bin/python python3; do
        "$python" -c 'import torch' 2>/dev/null || continue
        status=0
        "$python" tests/python/check.py --torch || status=$?
        break
    done
    [ "$status" = 3 ] || exit "$status"
    echo "tests/run.sh: there is no PyTorch; from_torch is not compared with it"
    exit 0
    ;;
live=book)
    # The course as HTML, where mdBook is installed.
    command -v mdbook >/dev/null || { echo "tests/run.sh: there is no mdbook; the course is not built"; exit 0; }
    docs/book/build.sh >/dev/null
    exit 0
    ;;
live=speed)
    # Others compute the same; how fast, is shown by tests/live/compare_speed.sh at full size.
    tests/live/compare_speed.sh --quick >/dev/null || status=$?
    [ "${status:-0}" = 3 ] || exit "${status:-0}"
    echo "tests/run.sh: ONNX Runtime and OpenVINO could not be fetched; attnc is not compared with them"
    exit 0
    ;;
esac

# NumPy, for the tests of the Python wrapper.
if ! [ -e .venv/complete ]; then
    rm -rf .venv
    if python3 -m venv .venv && .venv/bin/python -m pip install --quiet --disable-pip-version-check numpy; then
        touch .venv/complete
    else
        echo "tests/run.sh: NumPy could not be installed; the Python wrapper is not tested" >&2
    fi
fi

# NVIDIA's assembler, for the tests of PTX; its licence lets it be used as a tool.
if [ -e .venv/complete ] && ! [ -e .venv/ptxas ]; then
    if .venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps nvidia-cuda-nvcc==13.0.88; then
        touch .venv/ptxas
    else
        echo "tests/run.sh: ptxas could not be installed; PTX is not assembled" >&2
    fi
fi

# valgrind, for the test of the C program; only where the system's packages are ours to install.
if ! command -v valgrind >/dev/null && command -v apt-get >/dev/null && [ "$(id -u)" = 0 ]; then
    { apt-get update -qq && apt-get install -y -qq valgrind; } >/dev/null 2>&1 || true
fi
command -v valgrind >/dev/null || echo "tests/run.sh: no valgrind; the C program's use of memory is not checked" >&2

[ "${1:-}" != --install ] || exit 0

# With LLVM there, attnc is built with both of its back ends: tests/llvm.sh then needs no build of its own.
features=
command -v llvm-config-19 >/dev/null && features="--features llvm"
if [ $# != 0 ]; then
    # shellcheck disable=SC2086
    exec cargo test --profile tests --quiet $features "$@"
fi

# All programs are built at once, and their paths told.
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
# shellcheck disable=SC2086
cargo test --profile tests --quiet $features --no-run --message-format=json-render-diagnostics >"$out/built"
sed -n '/"profile":{[^}]*"test":true/s/.*"executable":"\([^"]*\)".*/\1/p' "$out/built" >"$out/programs"
export ATTNC="${CARGO_TARGET_DIR:-target}/tests/attnc" features

# The longest first; the others follow.
for name in compiled ptx commands compile_scaling random cuda; do
    grep "/$name-[^/]*$" "$out/programs" || echo "tests/run.sh: no program $name" >&2
done >"$out/jobs"
[ -z "$features" ] || echo tests/llvm.sh >>"$out/jobs"
printf '%s\n' live=speed live=report live=play live=minilm live=voice live=editors live=python live=book comments >>"$out/jobs"
grep -vxFf "$out/jobs" "$out/programs" >>"$out/jobs"

# shellcheck disable=SC2016
xargs -P 2 -I JOB sh -c '
    before=$(date +%s) said=$1/said.$$ name=${2##*/}
    case $2 in
    live=*) set -- "$1" tests/run.sh "$2" ;;
    comments) set -- "$1" cargo test --profile tests --quiet $features --doc ;;
    */deps/*) name=${name%-*} ;;
    esac
    shift
    "$@" >"$said" 2>&1 || { cat "$said"; echo "tests/run.sh: FAILED: $name"; exit 1; }
    grep "^tests/.*: " "$said" || true
    passed=$(sed -n "s/^test result: ok. \([0-9]* passed\).*/, \1/p" "$said" | tr -d "\n")
    echo "tests/run.sh: $(($(date +%s) - before)) s: $name$passed"
' job "$out" JOB <"$out/jobs"
