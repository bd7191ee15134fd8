#!/bin/sh
# Everything that needs a GPU, on the one of this machine: are the results right, does NVIDIA's compute-sanitizer find nothing, how fast is it?
#
#   tests/live/gpu.sh                     all of it, an hour
#   tests/live/gpu.sh first               ten minutes: does it run, are the numbers right, how fast? It stops at the first wrong number;
#                                         build/gpu/first/figures.md has what was found (ATTNC_BEFORE: an older attnc, to be timed in turn)
#   tests/live/gpu.sh check               the examples, sessions of a decoder, 1000 random programs; examples at full size beside PyTorch
#   tests/live/gpu.sh sanitize            the examples under memcheck, racecheck, synccheck and initcheck
#   tests/live/gpu.sh speed [WORKLOAD ..] beside PyTorch, see compare_gpu.py: build/gpu/figures.md has the figures
#
# Needs an NVIDIA GPU of compute capability 8.0 at least and its driver; PyTorch for the comparisons (PYTHON names a Python that has it),
# compute-sanitizer for its step. Where attnc and its tests cannot be built, ATTNC and ATTNC_GPU_TESTS name those that were built elsewhere:
# target/tests/attnc, target/tests/deps/cuda-*. Each step is taken even where one before it failed; it ends with what failed.
set -u
cd "$(dirname "$0")/../.."
python=${PYTHON:-python3}
export ATTNC_TEST_GPU=1 ATTNC_TEST_PYTHON="$python"

steps=${1:-check sanitize speed}
[ $# = 0 ] || shift
failed=

step() {
    echo "gpu.sh: $*" >&2
    "$@" || failed="$failed
    $*"
}

if [ -z "${ATTNC:-}" ]; then
    cargo build --release --quiet || exit
    ATTNC=${CARGO_TARGET_DIR:-target}/release/attnc
fi
tests=${ATTNC_GPU_TESTS:-}
case " $steps " in
*" check "* | *" sanitize "*)
    if [ -z "$tests" ]; then
        cargo test --profile tests --quiet --no-run --test cuda || exit
        tests=$(ls -t "${CARGO_TARGET_DIR:-target}"/tests/deps/cuda-* | grep -v '\.d$' | head -1)
    fi
    ;;
esac

for word in $steps; do
    case $word in
    check)
        step "$tests" examples:: states::
        # In groups of 20, so that a fault ends one group alone.
        export ATTNC_SEEDS="${ATTNC_SEEDS:-500}"
        step "$tests" random::
        unset ATTNC_SEEDS
        if "$python" -c 'import torch' 2>/dev/null; then
            step "$python" tests/live/compare_torch.py --attnc "$ATTNC" --device cuda --no-times
        else
            echo "gpu.sh: $python has no PyTorch; the examples are not compared with it (PYTHON names another Python)" >&2
        fi
        ;;
    sanitize)
        if command -v compute-sanitizer >/dev/null; then
            for tool in memcheck racecheck synccheck initcheck; do
                step compute-sanitizer --tool "$tool" --target-processes all --error-exitcode 1 "$tests" --test-threads 2 examples:: states::
            done
        else
            echo "gpu.sh: no compute-sanitizer; its checks are left out" >&2
        fi
        ;;
    first) step "$python" tests/live/first_gpu.py --attnc "$ATTNC" ${ATTNC_BEFORE:+--before "$ATTNC_BEFORE"} "$@" ;;
    speed) step "$python" tests/live/compare_gpu.py --attnc "$ATTNC" "$@" ;;
    *)
        echo "gpu.sh: no such step: $word; there are first, check, sanitize and speed" >&2
        exit 2
        ;;
    esac
done
[ -z "$failed" ] || { echo "gpu.sh: these failed:$failed" >&2; exit 1; }
