#!/bin/sh
# Installs what the tests need and runs all of them. It needs a Rust toolchain, a linker and Python 3.
#
#   tests/run.sh                           all tests: some minutes
#   tests/run.sh --test project readme::   only the tests that these arguments of `cargo test` choose
#
# Everything that is fetched goes into .venv/ and build/. Where there is no network, the tests that need Python
# packages or trained weights say that they were left out; all others need nothing.
#
# Whether the tests see small faults in the source, tests/faults/run.py finds out; it takes long, and is not run here.
set -eu
cd "$(dirname "$0")/.."

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

# With LLVM there, attnc is built with both of its back ends: tests/llvm.sh then needs no build of its own.
features=
command -v llvm-config-19 >/dev/null && features="--features llvm"
cargo test --profile tests --quiet $features "$@"

# The trained model, against the vectors of the transformers library.
if [ $# = 0 ]; then
    export ATTNC="${CARGO_TARGET_DIR:-target}/tests/attnc"
    if examples/run_minilm.sh >/dev/null; then
        build/venv/bin/python tests/live/check_minilm.py
    else
        echo "tests/run.sh: MiniLM could not be fetched; its vectors are not compared" >&2
    fi

    # The trained detector of voices, against NumPy.
    status=0
    .venv/bin/python tests/live/check_voice.py "$ATTNC" || status=$?
    if [ $status = 3 ]; then
        echo "tests/run.sh: silero-vad could not be fetched; its probabilities are not compared" >&2
    elif [ $status != 0 ]; then
        exit $status
    fi

    # Others compute the same; how fast, is shown by tests/live/compare_speed.sh at full size.
    status=0
    tests/live/compare_speed.sh --quick >/dev/null || status=$?
    if [ $status = 3 ]; then
        echo "tests/run.sh: ONNX Runtime and OpenVINO could not be fetched; attnc is not compared with them" >&2
    elif [ $status != 0 ]; then
        exit $status
    fi
fi
