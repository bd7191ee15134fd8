#!/bin/sh
# Runs the tests of compiled code with kernels made by LLVM (cargo feature `llvm`).
#
#   tests/llvm.sh                 what .ci/run runs: what LLVM prints of its own, and few random programs
#   tests/llvm.sh --all           all tests of compiled code, some minutes more: what plans do is the same for both back ends
#   tests/llvm.sh --test compiled packing::  only the tests that these arguments of `cargo test` choose
#   tests/llvm.sh --install       only installs LLVM
#
# Installs LLVM 19 where the system's packages are ours to install. Where it is not there, it says that nothing was run.
set -eu
cd "$(dirname "$0")/.."

if ! command -v llvm-config-19 >/dev/null && command -v apt-get >/dev/null && [ "$(id -u)" = 0 ]; then
    { apt-get update -qq && apt-get install -y -qq --no-install-recommends llvm-19-dev libpolly-19-dev libzstd-dev; } \
        >/dev/null 2>&1 || true
fi
if ! command -v llvm-config-19 >/dev/null; then
    echo "tests/llvm.sh: LLVM 19 is not installed; the kernels are not compiled with it" >&2
    exit 0
fi
[ "${1:-}" != --install ] || exit 0

cargo clippy --profile tests --quiet --features llvm -- -D warnings
case "${1:-}" in
"" | --all)
    export ATTNC_SEEDS="${ATTNC_SEEDS:-40}"
    part="functions:: rows_compiled:: bits:: backends:: oracle_compiled:: sources:: tile_ir:: recurrent:: caps_and_sinks"
    # Of the instruction sets the best and the least.
    export ATTNC_TEST_LEVELS=ends
    if [ "${1:-}" = --all ]; then
        part=
        unset ATTNC_TEST_LEVELS
    fi
    # shellcheck disable=SC2086
    set -- --test compiled --test random -- $part
    ;;
esac
ATTNC_TEST_BACKEND=llvm cargo test --profile tests --quiet --features llvm "$@"
