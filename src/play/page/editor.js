'use strict';
// The editor: CodeMirror, with diagnostics, fixes, completion and hover from attnc's language server.
let view = null;
let checked = 0;
const MARKS = { 1: 'error', 2: 'warning', 3: 'info' };

const language = CM.StreamLanguage.define({
  name: 'attn',
  token(stream) {
    TOKEN.lastIndex = stream.pos;
    const found = TOKEN.exec(stream.string);
    if (!found || !found[0]) { stream.next(); return null; }
    stream.pos += found[0].length;
    return { comment: 'comment', meta: 'meta', number: 'number', type: 'typeName', keyword: 'keyword', name: 'variableName' }[kindOf(found[0])] || null;
  },
  languageData: { commentTokens: { line: '//' } },
});

const colours = CM.HighlightStyle.define([
  { tag: CM.tags.comment, color: 'var(--comment)' }, { tag: CM.tags.keyword, color: 'var(--keyword)' },
  { tag: CM.tags.typeName, color: 'var(--type)' }, { tag: CM.tags.number, color: 'var(--number)' },
  { tag: CM.tags.variableName, color: 'var(--name)' }, { tag: CM.tags.meta, color: 'var(--comment)' },
]);

const look = CM.EditorView.theme({
  '&': { color: 'var(--ink)', backgroundColor: 'var(--card)' },
  '.cm-content': { caretColor: 'var(--ink)', fontFamily: 'var(--mono)' },
  '.cm-cursor': { borderLeftColor: 'var(--ink)' },
  '.cm-gutters': { backgroundColor: 'var(--card)', color: 'var(--soft)', border: 'none' },
  '.cm-activeLine, .cm-activeLineGutter': { backgroundColor: 'color-mix(in srgb, var(--hover) 60%, transparent)' },
  '&.cm-focused .cm-selectionBackground, .cm-selectionBackground': { backgroundColor: 'rgba(var(--heat), .22) !important' },
  '.cm-tooltip': { backgroundColor: 'var(--card)', color: 'var(--ink)', border: '1px solid var(--line)', borderRadius: '6px', maxWidth: '560px' },
  '.cm-tooltip pre': { margin: '0', padding: '6px 10px', font: '12.5px/1.5 var(--mono)', whiteSpace: 'pre-wrap' },
  '.cm-diagnostic': { whiteSpace: 'pre-wrap', fontFamily: 'var(--mono)', fontSize: '12.5px' },
  '.cm-tooltip-autocomplete ul li[aria-selected]': { background: 'var(--accent)', color: 'var(--on)' },
  '.cm-scroller': { fontFamily: 'var(--mono)', lineHeight: '1.5' },
});

// A position of the protocol, line and UTF-16 column, as an offset, and back.
function offset(doc, position) {
  const line = doc.line(Math.min(position.line + 1, doc.lines));
  return Math.min(line.from + position.character, line.to);
}

function position(doc, at) {
  const line = doc.lineAt(at);
  return { line: line.number - 1, character: at - line.from };
}

async function ask(method, at) {
  if (!isModel()) return null;
  const params = at == null ? { options: {} } : { position: position(view.state.doc, at) };
  const answer = await call('language', { text: state.text, requests: [{ method, params }] }, method);
  return answer && answer.results[0];
}

const plain = (markdown) => markdown.replace(/```\w*\n?/g, '').replace(/\n---\n/g, '\n').trim();

async function hover(v, at) {
  const found = await ask('textDocument/hover', at).catch(() => null);
  if (!found) return null;
  const word = v.state.wordAt(at);
  return { pos: word ? word.from : at, end: word ? word.to : at, create: () => ({ dom: make('pre', {}, plain(found.contents.value)) }) };
}

async function complete(context) {
  const word = context.matchBefore(/\w+/);
  if (!word && !context.explicit) return null;
  const list = await ask('textDocument/completion', context.pos).catch(() => null);
  if (!list) return null;
  return { from: word ? word.from : context.pos, options: list.map((o) => ({ label: o.label, type: o.kind === 3 ? 'function' : 'variable' })), validFor: /^\w*$/ };
}

async function format() {
  const edits = await ask('textDocument/formatting').catch((error) => tell(error.message));
  if (edits) apply(edits);
  tell(edits ? 'formatted' : 'A program with syntax errors is not formatted.');
}

function apply(edits) {
  const doc = view.state.doc;
  view.dispatch({ changes: edits.map((e) => ({ from: offset(doc, e.range.start), to: offset(doc, e.range.end), insert: e.newText })) });
  view.focus();
}

// Checks the program, and shows what is wrong with it.
async function check() {
  const own = ++checked, text = state.text;
  try {
    const doc = view.state.doc, end = position(doc, doc.length);
    const params = { range: { start: { line: 0, character: 0 }, end }, context: { diagnostics: [] } };
    // Programs in an IR have no language server.
    const answer = isModel() ? await call('language', { text, requests: [{ method: 'textDocument/codeAction', params }] })
      : await call('check', { text, file: state.file });
    // A program that was changed since has another answer.
    if (!answer || own !== checked) return;
    if (!answer.diagnostics) throw new Error(answer.messages || 'The program could not be checked.');
    const actions = answer.results && answer.results[0] || [];
    const same = (a, b) => JSON.stringify(a.range) === JSON.stringify(b.range) && a.message === b.message;
    showProblems(answer.diagnostics.map((d) => ({ ...d, fixes: actions.filter((a) => (a.diagnostics || []).some((o) => same(o, d))) })));
  } catch (error) {
    byId('problems').replaceChildren(make('div', { class: 'problem error' }, error.message));
  }
}

// A message as the command line shows it: the head in colour, then the marked lines without their path.
function showProblems(list) {
  const doc = view.state.doc;
  const marks = list.map((d) => {
    const from = offset(doc, d.range.start), to = Math.max(offset(doc, d.range.end), Math.min(from + 1, doc.length));
    const actions = d.fixes.map((f) => ({ name: f.title, apply: () => apply(Object.values(f.edit.changes).flat()) }));
    return { from, to, severity: MARKS[d.severity], message: d.message, source: d.code, actions };
  });
  view.dispatch(CM.setDiagnostics(view.state, marks));
  byId('problems').replaceChildren(...list.map((d, i) => {
    const at = make('button', { class: 'at', type: 'button', onclick: () => { view.dispatch({ selection: { anchor: marks[i].from }, scrollIntoView: true }); view.focus(); } }, `${d.range.start.line + 1}:${d.range.start.character + 1}`);
    const fixes = marks[i].actions.map((f) => make('button', { class: 'fix', type: 'button', onclick: f.apply }, 'Fix: ' + f.name.split('\n')[0]));
    const [head, ...block] = d.data.rendered.trimEnd().split('\n');
    const body = block.filter((line) => !/^ *--> /.test(line)).map((line) => '\n' + line).join('');
    return make('div', { class: 'problem' }, make('pre', {}, at, ' ', make('span', { class: MARKS[d.severity] }, head), body), ...fixes);
  }));
  tell(list.length ? `${list.length} problems` : 'no problems');
}

function soon(work, delay) {
  let timer = 0;
  return () => { clearTimeout(timer); timer = setTimeout(work, delay); };
}

function startEditor(changed) {
  const later = [soon(check, 60), soon(changed, 350)];
  const update = CM.EditorView.updateListener.of((u) => {
    if (!u.docChanged) return;
    state.text = u.state.doc.toString();
    later.forEach((f) => f());
  });
  view = new CM.EditorView({
    parent: byId('editor'),
    state: CM.EditorState.create({
      doc: '',
      extensions: [
        CM.lineNumbers(), CM.history(), CM.drawSelection(), CM.highlightActiveLine(), CM.highlightActiveLineGutter(),
        CM.bracketMatching(), CM.indentUnit.of('    '), language, CM.syntaxHighlighting(colours), look, CM.lintGutter(),
        CM.autocompletion({ override: [complete] }), CM.hoverTooltip(hover), CM.EditorView.contentAttributes.of({ 'aria-label': 'Program' }),
        CM.keymap.of([
          { key: 'Mod-Enter', run: () => { byId('start').click(); return true; } },
          { key: 'Mod-Shift-f', run: () => { format(); return true; } },
          ...CM.completionKeymap, ...CM.defaultKeymap, ...CM.historyKeymap, ...CM.lintKeymap,
          // Tab indents; Escape before it leaves the editor, as the editor's own documentation says.
          CM.indentWithTab,
        ]),
        update,
      ],
    }),
  });
}

// Shows another program.
function open(text, file) {
  [state.text, state.file] = [text, file];
  byId('file').textContent = file;
  byId('format').disabled = !isModel();
  view.dispatch({ changes: { from: 0, to: view.state.doc.length, insert: text }, selection: { anchor: 0 }, scrollIntoView: true });
}
