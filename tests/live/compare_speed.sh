#!/bin/sh
# Times attnc beside PyTorch, ONNX Runtime and OpenVINO in one run; see compare_speed.py for what and how.
#
#   tests/live/compare_speed.sh                  everything, an hour and a half
#   tests/live/compare_speed.sh layer gpt2       some of it
#   tests/live/compare_speed.sh product weight   matrices alone; product-32-2048-512 are 32 rows by 2048 x 512
#   tests/live/compare_speed.sh lstm gru         recurrent networks, an hour; lstm-2-512 are those of two layers of 512
#   tests/live/compare_speed.sh --llama tokens generation
#                                                one token after another, from nothing and after a prompt, beside llama.cpp
#                                                (LLAMA_BENCH names its llama-bench; else it is built, see speed/llama.sh)
#   tests/live/compare_speed.sh window           attention of a sliding window, beside FlexAttention and OpenVINO
#   tests/live/compare_speed.sh translate        an encoder-decoder that writes, beside transformers and ONNX Runtime
#   tests/live/compare_speed.sh --before PROGRAM --alone
#                                                this attnc beside an older build of it, without the others
#   tests/live/compare_speed.sh --quick          tiny sizes without PyTorch, in less than a minute: does it work?
#
# Builds attnc (ATTNC names another one), and installs what is needed into build/speed-venv.
set -eu
cd "$(dirname "$0")/../.."
venv=build/speed-venv
attnc=${ATTNC:-${CARGO_TARGET_DIR:-target}/release/attnc}

case " $* " in
*" --llama "*)
    if [ -n "${LLAMA_BENCH:-}" ] && { [ ! -f "$LLAMA_BENCH" ] || [ ! -x "$LLAMA_BENCH" ]; }; then
        echo "compare_speed.sh: LLAMA_BENCH is $LLAMA_BENCH, which is no program" >&2
        exit 2
    fi
    ;;
esac
if [ -z "${ATTNC:-}" ]; then
    cargo build --release --quiet
fi
install() {
    [ -e $venv/complete-"$1" ] && return
    [ -e $venv/bin/python ] || python3 -m venv $venv
    name=$1
    shift
    echo "fetching the Python packages $*" >&2
    $venv/bin/python -m pip install --quiet --disable-pip-version-check "$@" && touch $venv/complete-"$name"
}
mkdir -p build
case " $* " in
*" --alone "*) install numpy numpy || { echo "compare_speed.sh: pip could not fetch NumPy" >&2; exit 3; } ;;
*) install small numpy onnx onnxruntime openvino || { echo "compare_speed.sh: pip could not fetch them" >&2; exit 3; } ;;
esac
case " $* " in
*" --quick "* | *" --alone "*) ;;
*) install torch torch transformers || echo "compare_speed.sh: without PyTorch and transformers, which pip could not fetch" >&2 ;;
esac
case " $* " in
*" --llama "*)
    # The word is this script's: the program behind it takes a path.
    for word; do
        shift
        [ "$word" = --llama ] || set -- "$@" "$word"
    done
    llama=${LLAMA_BENCH:-build/llama/llama-bench}
    if install gguf gguf cmake && { [ -e "$llama" ] || tests/live/speed/llama.sh "$PWD/$venv/bin/python" build/llama; }; then
        set -- --llama "$llama" "$@"
    else
        echo "compare_speed.sh: without llama.cpp, which could not be built, as told above" >&2
    fi
    ;;
esac
exec $venv/bin/python tests/live/compare_speed.py --attnc "$attnc" "$@"
