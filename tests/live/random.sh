#!/bin/sh
# Random programs of all three generators: sources (compiled code beside the interpreter's bounds), graph IR (its passes, tile IR, vector
# IR and compiled code), tile IR (kernels and plans, scheduled and compiled).
#
#   tests/live/random.sh 100000          so many of each
#   tests/live/random.sh 1000 250000     from this seed on
#
# CI runs 1000 of each, and on the simulator of GPUs 100 sources more (`ATTNC_SEEDS=500 cargo test --profile tests --test ptx -- oracle` runs
# 1000). attnc is built optimised for this, in target/long/. It goes in steps of 1000, so that a fault is told when it is found, and goes on
# to the end: it fails, and names the steps, where not all were right.
set -eu
cd "$(dirname "$0")/../.."

count=${1:?"usage: tests/live/random.sh COUNT [FIRST]"}
first=${2:-0}
step=1000

cargo test --profile long --quiet --no-run --test random

done=0
faulty=
while [ "$done" -lt "$count" ]; do
    [ $((count - done)) -lt $step ] && step=$((count - done))
    export ATTNC_FIRST_SEED=$((first + done)) ATTNC_SEEDS=$step
    if cargo test --profile long --quiet --test random; then
        echo "$(date +%T) right: $step programs of each kind, from seed $ATTNC_FIRST_SEED on"
    else
        echo "$(date +%T) FAULTY: among $step programs of each kind, from seed $ATTNC_FIRST_SEED on"
        faulty="$faulty $ATTNC_FIRST_SEED"
    fi
    done=$((done + step))
done
[ -z "$faulty" ] || { echo "faults in the steps from seeds$faulty on"; exit 1; }
echo "$count programs of each kind, from seed $first on, are right"
