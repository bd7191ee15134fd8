#!/bin/sh
# Judges the exercises about attnc itself as a learner does: in a copy of the committed tree, each must fail with its start, and
# pass with its solution. Takes three builds.
#
#   tests/live/check_exercises.sh
set -eu
cd "$(dirname "$0")/../.."
root=$PWD copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
# Dependencies are shared, and built once.
CARGO_TARGET_DIR=$(realpath "${CARGO_TARGET_DIR:-target}")
export CARGO_TARGET_DIR
cargo build --quiet --profile quick
cp "$CARGO_TARGET_DIR/quick/attnc" "$copy/attnc"
git archive HEAD | tar x -C "$copy"
"$copy/attnc" learn --start "$copy/learn"
names=$(cd docs/book/exercises && ls -d -- */start.patch | sed 's:/.*::')
for name in $names; do
    (cd "$copy" && git apply "$root/docs/book/exercises/$name/start.patch")
done
for name in $names; do
    if "$copy/attnc" learn "$name" --folder "$copy/learn" --source "$copy"; then
        echo "check_exercises.sh: $name passes as it starts"
        exit 1
    fi
done
for name in $names; do
    (cd "$copy" && git apply "$root/docs/book/solutions/$name.patch")
done
for name in $names; do
    "$copy/attnc" learn "$name" --folder "$copy/learn" --source "$copy"
done
