#!/bin/sh
# Packages the extension for VS Code, and runs it, its protocol and its grammar against attnc (the argument).
#
# The packages of npm go into build/editors/; exit status 3 where there is no Node, or no network and no packages from before.
set -eu
attnc=$(realpath "$1")
cd "$(dirname "$0")/../.."
command -v node >/dev/null && command -v npm >/dev/null || exit 3
programs="$(realpath examples/*.attn src/types/std/*.attn)"

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
