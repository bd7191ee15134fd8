#!/bin/sh
# Random programs of all three generators: sources (compiled code beside the interpreter's bounds), graph IR (its passes, tile IR, vector
# IR and compiled code), tile IR (kernels and plans, scheduled and compiled).
#
#   tests/live/random.sh 100000          so many of each
#   tests/live/random.sh 1000 250000     from this seed on
#
# CI runs 1000 of each, and on the simulator of GPUs 100 sources more (`ATTNC_SEEDS=500 cargo test --profile tests --test ptx -- oracle` runs
# 1000). attnc is built optimised for this, in target/long/. It goes in steps of 1000, so that a fault is told when it is found; it ends
# after the step that found one, and says how many were right.
set -eu
cd "$(dirname "$0")/../.."

count=${1:?"usage: tests/live/random.sh COUNT [FIRST]"}
first=${2:-0}
step=1000

done=0
while [ "$done" -lt "$count" ]; do
    [ $((count - done)) -lt $step ] && step=$((count - done))
    export ATTNC_FIRST_SEED=$((first + done)) ATTNC_SEEDS=$step
    cargo test --profile long --quiet --test random || break
    done=$((done + step))
    echo "$(date +%T) $done programs of each kind, from seed $first on, are right"
done
[ "$done" -eq "$count" ]
