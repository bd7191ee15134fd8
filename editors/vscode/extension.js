// Starts `attnc lsp` for programs in attn; everything else is done by the language server.

const { commands, window, workspace } = require("vscode");
const { LanguageClient } = require("vscode-languageclient/node");

let client;

async function start() {
  const command = workspace.getConfiguration("attn").get("command");
  const server = { command, args: ["lsp"] };
  client = new LanguageClient("attn", "attn", server, { documentSelector: [{ language: "attn" }] });
  try {
    await client.start();
  } catch (error) {
    client = undefined;
    window.showErrorMessage(`\`${command} lsp\` does not start (setting attn.command): ${error.message}`);
  }
}

async function stop() {
  await client?.stop();
  client = undefined;
}

async function restart() {
  await stop();
  await start();
}

async function activate(context) {
  context.subscriptions.push(commands.registerCommand("attn.restart", restart));
  await start();
}

module.exports = { activate, deactivate: stop };
