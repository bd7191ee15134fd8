// Drives `attnc lsp` (the argument, or `attnc`) as an editor does, with the protocol library of VS Code's client.

const assert = require("node:assert");
const { spawn } = require("node:child_process");
const rpc = require("vscode-languageserver-protocol/node");

const PROGRAM = `use std.nn

/// é𝄞 Scales.
fn scaled(x: f32[S, D]) -> f32[S, D] { 2 * x }

model M<D> {
    lin: Linear<D, D>
    pub fn forward(x: f32[S, D]) -> f32[S, D] {
        let y = lin(x)
        scaled(y)
    }
}
`;

async function main() {
  const server = spawn(process.argv[2] ?? "attnc", ["lsp"], { stdio: ["pipe", "pipe", "inherit"] });
  const ended = new Promise((resolve) => server.on("exit", resolve));
  const connection = rpc.createProtocolConnection(
    new rpc.StreamMessageReader(server.stdout),
    new rpc.StreamMessageWriter(server.stdin),
  );
  const published = [];
  let arrived = () => {};
  connection.onNotification(rpc.PublishDiagnosticsNotification.type, (params) => {
    published.push(params);
    arrived();
  });
  const diagnostics = async (version) => {
    for (;;) {
      const found = published.find((one) => one.version === version);
      if (found) return found.diagnostics;
      await new Promise((resolve) => (arrived = resolve));
    }
  };
  connection.listen();

  const uri = "file:///m.attn";
  const about = { textDocument: { uri } };
  const at = (text, within = PROGRAM) => {
    const before = within.slice(0, within.indexOf(text)).split("\n");
    return { ...about, position: { line: before.length - 1, character: before.at(-1).length } };
  };
  const applied = (text, edits) => {
    const lines = text.split("\n");
    for (const edit of [...edits].reverse()) {
      const { start, end } = edit.range;
      lines[start.line] = lines[start.line].slice(0, start.character) + edit.newText + lines[start.line].slice(end.character);
    }
    return lines.join("\n");
  };

  const { capabilities } = await connection.sendRequest(rpc.InitializeRequest.type, {
    processId: process.pid,
    rootUri: null,
    capabilities: {},
  });
  assert.equal(capabilities.positionEncoding, "utf-16");
  await connection.sendNotification(rpc.InitializedNotification.type, {});
  const document = { uri, languageId: "attn", version: 1, text: PROGRAM };
  await connection.sendNotification(rpc.DidOpenTextDocumentNotification.type, { textDocument: document });
  assert.deepEqual(await diagnostics(1), []);

  const definition = await connection.sendRequest(rpc.DefinitionRequest.type, at("scaled(y)"));
  assert.deepEqual(definition.range.start, at("scaled(x").position);
  const uses = { ...at("S, D]"), context: { includeDeclaration: true } };
  assert.equal((await connection.sendRequest(rpc.ReferencesRequest.type, uses)).length, 2);
  assert.equal((await connection.sendRequest(rpc.DocumentHighlightRequest.type, at("y = lin"))).length, 2);
  assert.match((await connection.sendRequest(rpc.HoverRequest.type, at("y = lin"))).contents.value, /y: f32\[S, D\]/);
  const range = { start: { line: 0, character: 0 }, end: { line: 99, character: 0 } };
  const hints = await connection.sendRequest(rpc.InlayHintRequest.type, { ...about, range });
  assert.deepEqual(hints.map((hint) => hint.label), [": f32[S, D]"]);
  const help = await connection.sendRequest(rpc.SignatureHelpRequest.type, at("y)"));
  assert.equal(help.signatures[0].label, "scaled(x: f32[S, D]) -> f32[S, D]");
  const tokens = await connection.sendRequest(rpc.SemanticTokensRequest.type, about);
  assert.equal(tokens.data.length % 5, 0);
  assert.equal(capabilities.semanticTokensProvider.legend.tokenTypes[tokens.data[3]], "function");
  assert.equal((await connection.sendRequest(rpc.DocumentSymbolRequest.type, about)).length, 2);
  assert.ok((await connection.sendRequest(rpc.CompletionRequest.type, at("y)"))).some((one) => one.label === "softmax"));
  assert.deepEqual(await connection.sendRequest(rpc.DocumentFormattingRequest.type, { ...about, options: {} }), []);

  assert.ok(await connection.sendRequest(rpc.PrepareRenameRequest.type, at("scaled(y)")));
  const edits = await connection.sendRequest(rpc.RenameRequest.type, { ...at("scaled(y)"), newName: "twice" });
  const renamed = applied(PROGRAM, edits.changes[uri]);
  assert.equal(renamed, PROGRAM.replaceAll("scaled", "twice"));
  const clash = connection.sendRequest(rpc.RenameRequest.type, { ...at("y = lin"), newName: "let" });
  await assert.rejects(clash, /is not a name/);

  const wrong = PROGRAM.replace("scaled(y)", "scald(y)");
  const change = { textDocument: { uri, version: 2 }, contentChanges: [{ text: wrong }] };
  await connection.sendNotification(rpc.DidChangeTextDocumentNotification.type, change);
  const [found, ...others] = await diagnostics(2);
  assert.deepEqual(others, []);
  const asked = { ...about, range: found.range, context: { diagnostics: [found] } };
  const actions = await connection.sendRequest(rpc.CodeActionRequest.type, asked);
  assert.equal(applied(wrong, actions[0].edit.changes[uri]), PROGRAM);

  await connection.sendRequest(rpc.ShutdownRequest.type);
  await connection.sendNotification(rpc.ExitNotification.type);
  assert.equal(await ended, 0);
  console.log("client: ok");
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
