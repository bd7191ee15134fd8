// Compares the colours of the grammar with the tokens of the compiler (the first argument) in programs: `words.attn` and the
// other arguments.

const { execFileSync } = require("node:child_process");
const fs = require("node:fs");
const path = require("node:path");
const oniguruma = require("vscode-oniguruma");
const textmate = require("vscode-textmate");

const [command, ...others] = process.argv.slice(2);
const programs = [path.join(__dirname, "words.attn"), ...others];

/** The scope that a token of the compiler must have; none for names and brackets. */
function expected(kind) {
  const word = kind.split(" ")[0];
  if (kind === "end of line" || /^[()[\]{},:.;]/.test(word)) return undefined;
  if (["true", "false", "inf"].includes(word)) return "constant.language";
  if (word === "type") return "storage.type";
  if (["integer", "float"].includes(word)) return "constant.numeric";
  if (word === "string") return "string.quoted";
  if (word === "doc") return "comment.line.documentation";
  if (word === "name") return undefined;
  return /^[a-z]/.test(word) ? "keyword" : "keyword.operator";
}

async function main() {
  const wasm = fs.readFileSync(path.join(path.dirname(require.resolve("vscode-oniguruma")), "onig.wasm"));
  await oniguruma.loadWASM(wasm.buffer.slice(wasm.byteOffset, wasm.byteOffset + wasm.byteLength));
  const file = path.join(__dirname, "../syntaxes/attn.tmLanguage.json");
  const registry = new textmate.Registry({
    onigLib: Promise.resolve({
      createOnigScanner: (patterns) => new oniguruma.OnigScanner(patterns),
      createOnigString: (text) => new oniguruma.OnigString(text),
    }),
    loadGrammar: async () => textmate.parseRawGrammar(fs.readFileSync(file, "utf8"), file),
  });
  const grammar = await registry.loadGrammar("source.attn");
  let compared = 0;
  const wrong = [];
  for (const program of programs) {
    const lines = fs.readFileSync(program, "utf8").split("\n");
    let state = textmate.INITIAL;
    const coloured = lines.map((line) => {
      const result = grammar.tokenizeLine(line, state);
      state = result.ruleStack;
      return result.tokens;
    });
    const tokens = execFileSync(command, [program, "--emit", "tokens=-"], { encoding: "utf8" }).split("\n");
    for (const token of tokens) {
      const [, line, column, kind] = /^(\d+):(\d+)\s+(.*)$/.exec(token) ?? [];
      if (!kind) continue;
      // Columns of the compiler count characters, those of the grammar UTF-16 units.
      const at = [...lines[line - 1]].slice(0, column - 1).join("").length;
      const found = coloured[line - 1].find((one) => one.startIndex <= at && at < one.endIndex);
      const scope = (found?.scopes.at(-1) ?? "").replace("constant.character.escape", "string.quoted");
      const want = expected(kind);
      const isName = kind.startsWith("name ") && /^(keyword|constant|storage|string|comment)/.test(scope);
      if ((want && !scope.startsWith(want)) || isName) wrong.push(`${program}:${line}:${column}: ${kind}: ${scope}`);
      compared += 1;
    }
  }
  console.log(wrong.slice(0, 20).join("\n"));
  console.log(`grammar: ${compared} tokens, ${wrong.length} wrong`);
  process.exit(wrong.length || !compared ? 1 : 0);
}

main();
