#!/bin/sh
# Builds llama.cpp's benchmark for this machine, from the sources inside the package llama-cpp-python, some ten
# minutes:
#
#   tests/live/speed/llama.sh PYTHON FOLDER      FOLDER/llama-bench is there afterwards; PYTHON has pip and cmake
set -eu
python=$1
mkdir -p "$2"
cd "$2"
[ -e llama-bench ] && exit 0
if [ ! -d sources ]; then
    # What a run left that came to no end.
    rm -rf unpacked llama_cpp_python-*.tar.gz
    "$python" -m pip download --quiet --disable-pip-version-check --no-deps --no-binary llama-cpp-python llama-cpp-python
    mkdir unpacked
    tar xzf llama_cpp_python-*.tar.gz -C unpacked
    mv unpacked/*/vendor/llama.cpp sources
    rm -r unpacked llama_cpp_python-*.tar.gz
fi
cmake=$(dirname "$python")/cmake
logged() {
    log=$1
    shift
    "$@" >"$log" 2>&1 && return
    tail -n 5 "$log" >&2
    echo "llama.sh: all of it is in $PWD/$log" >&2
    exit 1
}
logged configure.log "$cmake" -S sources -B build -DCMAKE_BUILD_TYPE=Release -DGGML_NATIVE=ON -DBUILD_SHARED_LIBS=OFF \
    -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_SERVER=OFF -DLLAMA_CURL=OFF -DLLAMA_OPENSSL=OFF
logged build.log "$cmake" --build build --target llama-bench -j "${JOBS:-2}"
ln -sf build/bin/llama-bench llama-bench
