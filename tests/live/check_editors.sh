#!/bin/sh
# Compares the tree-sitter grammar with attnc (the first argument) on mutated programs, 1,000 or the second argument (0: not at all; the
# first time it compiles for two minutes); packages the extension for VS Code, and runs it, its protocol and its grammar against attnc.
#
# What is fetched goes into build/editors/; exit status 3 where there is no Node, or no network and nothing from before.
set -eu
attnc=$(realpath "$1")
mutants=${2:-1000}
cd "$(dirname "$0")/../.."
command -v node >/dev/null && command -v npm >/dev/null || exit 3
root=$PWD
mkdir -p build/editors
programs="$(realpath examples/*.attn src/types/std/*.attn editors/vscode/test/words.attn)"

# shellcheck disable=SC2086
[ "$mutants" = 0 ] || (
    cd editors/tree-sitter-attn/check
    export CARGO_TARGET_DIR="$root/build/editors/target"
    cargo fetch --locked --quiet 2>/dev/null || exit 3
    cargo build --locked --quiet
    cd "$root"
    build/editors/target/debug/check "$attnc" build/editors/tree-sitter "$mutants" \
        editors/tree-sitter-attn/check/lines.attn tests/fixtures/syntax/*.attn $programs
)

mkdir -p build/editors/vscode
cp -R editors/vscode/. build/editors/vscode
cd build/editors/vscode
if ! cmp -s package.json node_modules/complete; then
    npm install --silent --ignore-scripts >/dev/null 2>&1 || exit 3
    cp package.json node_modules/complete
fi
npm run --silent package >package.log 2>&1 || { cat package.log; exit 1; }
node test/client.js "$attnc"
node test/extension.js "$attnc" 2>/dev/null
# shellcheck disable=SC2086
node test/grammar.js "$attnc" $programs
