#!/bin/sh
# Random programs of all three generators: sources (compiled code, and PTX on the simulator, beside the interpreter's bounds), graph IR
# (its passes, tile IR, vector IR and compiled code), tile IR (kernels and plans, scheduled and compiled).
#
#   tests/live/random.sh 100000          so many of each
#   tests/live/random.sh 1000 250000     from this seed on
#
# CI runs 1000 of each, 100 of them on the simulator. This goes in steps of 2000, so that a fault is told when it is found; it ends after the step that found one, and
# says how many were right.
set -eu
cd "$(dirname "$0")/../.."

count=${1:?"usage: tests/live/random.sh COUNT [FIRST]"}
first=${2:-0}
step=2000

run() {
    cargo test --profile tests --quiet "$@"
}

done=0
while [ "$done" -lt "$count" ]; do
    [ $((count - done)) -lt $step ] && step=$((count - done))
    from=$((first + done))
    # Four tests share the sources.
    export ATTNC_FIRST_SEED=$from ATTNC_SEEDS=$(((step + 3) / 4)) ATTNC_ORACLE_FIRST=$from ATTNC_ORACLE=$step
    run --test compiled -- oracle_compiled::random tile_random || break
    # On the simulator two do.
    (export ATTNC_SEEDS=$(((step + 1) / 2)) && run --test ptx -- oracle) || break
    run --test graph -- oracle_ir || break
    run --test passes -- oracle_passes || break
    done=$((done + step))
    echo "$done programs of each kind, from seed $first on, are right"
done
[ "$done" -eq "$count" ]
