#!/bin/sh
# Makes codemirror.js, the editor of `attnc play`, from CodeMirror's packages: src/play/page/codemirror/build.sh
#
# Needs npm. The versions are those of package.json and package-lock.json; LICENSE has the packages' licences.
set -eu
cd "$(dirname "$0")"
npm ci --no-audit --no-fund --silent
npx esbuild bundle.js --bundle --minify --format=iife --global-name=CM --legal-comments=none --outfile=codemirror.js
rm -rf node_modules
