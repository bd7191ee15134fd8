#!/bin/sh
# Fuzzes attnc with libFuzzer, target after target. Needs a C++ compiler for libFuzzer, and no nightly toolchain.
#
#   fuzz/run.sh                     every target for 60 seconds
#   fuzz/run.sh 600                 for 600 seconds each
#   fuzz/run.sh 600 air tokenizer   these targets (fuzz/targets/mod.rs lists them)
#   fuzz/run.sh FILE                one input again: the target is the name of its folder
#
# What it learns is kept in build/fuzz/corpus/NAME/; inputs that fail are written to build/fuzz/found/NAME/. CI runs the same
# targets on mutated seeds without coverage, inside of the tests: `cargo test --profile tests --test random -- fuzz::`.
set -eu
cd "$(dirname "$0")/.."
folder=build/fuzz
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-target}" CARGO_INCREMENTAL=1

RUSTC_WORKSPACE_WRAPPER="$PWD/fuzz/rustc.sh" cargo build --quiet --profile tests -p attnc-fuzz
program=$CARGO_TARGET_DIR/tests/fuzz

if [ -f "${1:-}" ]; then
    ATTNC_FUZZ=$(basename "$(dirname "$1")") exec "$program" "$1"
fi
seconds=${1:-60}
[ $# = 0 ] || shift
[ $# != 0 ] || set -- $(sed -n 's/^ *Target { name: "\([a-z]*\)".*/\1/p' fuzz/targets/mod.rs)

failed=
for name; do
    export ATTNC_FUZZ="$name"
    mkdir -p $folder/corpus/"$name" $folder/found/"$name"
    ATTNC_FUZZ_SEEDS=$folder/seeds "$program"
    log=$folder/"$name".log
    "$program" -max_total_time="$seconds" -max_len=20000 -timeout=20 -rss_limit_mb=4096 -dict=$folder/seeds/"$name".dict \
        -artifact_prefix=$folder/found/"$name"/ -print_final_stats=1 $folder/corpus/"$name" $folder/seeds/"$name" \
        >"$log" 2>&1 || failed="$failed $name"
    runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
    coverage=$(sed -n 's/.* cov: \([0-9]*\) .*/\1/p' "$log" | tail -1)
    echo "$name: ${runs:-?} executions, ${coverage:-?} edges covered"
done
[ -z "$failed" ] || { echo "fuzz/run.sh: see $folder/found and the logs in $folder of:$failed" >&2; exit 1; }
