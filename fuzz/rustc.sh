#!/bin/sh
# Cargo's RUSTC_WORKSPACE_WRAPPER: compiles attnc's own crates with the coverage counters that libFuzzer reads. Dependencies are
# compiled as always, so that the tests and the fuzzer share them. Build scripts are not linked with libFuzzer.
rustc=$1
shift
case " $* " in
*" --crate-name build_script_build "*) exec "$rustc" "$@" ;;
esac
exec "$rustc" "$@" -Cpasses=sancov-module \
    -Cllvm-args=-sanitizer-coverage-level=3 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
    -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares
