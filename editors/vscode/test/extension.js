// Starts and stops the packaged extension (`dist/extension.js`) outside of VS Code, whose interface is a stand-in here: it has
// one open program, and keeps the diagnostics that the client shows. The first argument is the compiler.

const assert = require("node:assert");
const Module = require("node:module");

/** Stands for everything of VS Code that is not named below. */
const anything = new Proxy(function () {}, {
  get: (target, name) => (name === "then" || name === Symbol.iterator ? undefined : (target[name] ?? anything)),
  apply: () => anything,
  construct: () => ({}),
});
const disposable = { dispose() {} };
const event = () => disposable;
class Uri {
  static parse = (text) => ({ toString: () => text, scheme: "file", fsPath: "/m.attn", path: "/m.attn" });
}
const document = {
  uri: Uri.parse("file:///m.attn"),
  languageId: "attn",
  version: 1,
  isClosed: false,
  getText: () => "fn f(x: f32[S]) -> f32[S] { y }\n",
};
let shown;
const arrived = new Promise((resolve) => (shown = resolve));
const withEvents = (members) =>
  new Proxy(members, {
    get: (target, name) =>
      name in target ? target[name] : /^on(Did|Will)/.test(String(name)) ? event : anything,
  });
const vscode = withEvents({
  Uri,
  Disposable: class { static from = () => disposable; dispose() {} },
  EventEmitter: class { event = event; fire() {} dispose() {} },
  CancellationTokenSource: class { token = { isCancellationRequested: false, onCancellationRequested: event }; dispose() {} },
  workspace: withEvents({
    getConfiguration: () => ({ get: (name) => (name === "command" ? process.argv[2] : undefined) }),
    textDocuments: [document],
    workspaceFolders: undefined,
    rootPath: undefined,
    notebookDocuments: [],
    createFileSystemWatcher: () => withEvents({ dispose() {} }),
  }),
  window: withEvents({
    createOutputChannel: () => ({ appendLine() {}, append() {}, show() {}, dispose() {} }),
    showErrorMessage: (text) => { throw new Error(text); },
    visibleTextEditors: [],
    tabGroups: withEvents({ all: [] }),
  }),
  languages: withEvents({
    createDiagnosticCollection: () => ({ set: (uri, list) => list?.length && shown([String(uri), list]), delete() {}, clear() {}, dispose() {} }),
    match: (selector, one) => Number([selector].flat().some((filter) => filter.language === one.languageId)),
  }),
  commands: withEvents({ registerCommand: () => disposable }),
  env: withEvents({ appName: "test", language: "en" }),
  version: "1.91.0",
});

const load = Module._load;
Module._load = (name, ...rest) => (name === "vscode" ? vscode : load(name, ...rest));
const extension = require("../dist/extension.js");

async function main() {
  await extension.activate({ subscriptions: [] });
  const [uri, list] = await arrived;
  assert.equal(uri, "file:///m.attn");
  assert.equal(list.length, 1);
  await extension.deactivate();
  console.log("extension: ok");
}

const late = setTimeout(() => { console.error("extension: no diagnostics"); process.exit(1); }, 30_000);
main().then(() => clearTimeout(late), (error) => { console.error(error); process.exit(1); });
