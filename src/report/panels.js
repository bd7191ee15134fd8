// What is below the columns: the history of the selected value, remarks, memory, costs, keys.
let panel = 'value';
const PANELS = { value: ['Selected', valuePanel], ...(R.values ? { numbers: ['Numbers', numbersPanel] } : {}), remarks: ['Remarks', remarksPanel], memory: ['Memory', memoryPanel], costs: ['Costs', costsPanel], about: ['Keys and sizes', aboutPanel] };
const count = (n, word) => `${n.toLocaleString('en')} ${word}${n === 1 ? '' : 's'}`;
const bytes = (n) => n == null ? '?' : n < 10240 ? n + ' B' : n < 1 << 23 ? (n / 1024).toFixed(0) + ' KiB' : n < 2 ** 33 ? (n / 2 ** 20).toFixed(0) + ' MiB' : (n / 2 ** 30).toFixed(1) + ' GiB';
const where = (p) => `${R.files[p[0]].name.split('/').pop()}:${p[1]}:${p[2]}`;

function showPanel(name) {
  panel = name;
  [...byId('panels').children].forEach((b) => {
    const own = b.id === 'panel-' + name;
    b.setAttribute('aria-selected', own);
    b.tabIndex = own ? 0 : -1;
  });
  byId('panel').setAttribute('aria-labelledby', 'panel-' + name);
  const content = PANELS[name][1]();
  byId('panel').replaceChildren(...[content].flat());
}

// The stations of the selected value, in the order of the pipeline.
function stations(s) {
  const out = [];
  for (const p of s.places) {
    const [f, l, c] = p.split(':').map(Number), e = (expressions.get(p) || [])[0];
    const row = columns[0].rows.findIndex((r) => r.line === f + ':' + l);
    if (row < 0 || out.length >= 4) continue;
    const chars = [...columns[0].rows[row].text].slice(c - 1, e && e[3] === l ? e[4] - 1 : undefined).join('');
    out.push({ title: `Written at ${where([f, l, c])}`, text: chars + (e ? ` : ${e[6]}` : ''), go: [columns[0], row] });
  }
  for (const column of columns.slice(1)) {
    let before = null;
    column.level.steps.forEach((step, i) => { if (step.changed) before = station(out, column, i, s, before); });
  }
  return out;
}

// Adds a station if the lines of the selection differ from those before; returns these lines.
function station(out, column, i, s, before) {
  const level = column.level, step = level.steps[i];
  const rows = column.textRows(step), own = matching(column, rows, s);
  const text = own.map((r) => lineKey(column.key, rows[r])).join();
  const ops = own.filter((r) => rows[r].kind !== 'head' && rows[r].kind !== 'label');
  // A level may begin with the text that the one before ends with.
  const known = columns.some((c) => c.level && c !== column && c.level.steps.at(-1).text === step.text);
  if (known || before === text || (!own.length && before == null)) return text;
  const remark = step.remarks.map((r) => R.remarks[r]).find((r) => r.at && s.places.has(placeKey(r.at)));
  const kernels = unique(own.map((r) => rows[r].part)).filter((p) => p.startsWith('kernel')).map((p) => p.slice(7));
  const title = level.steps.length > 1 ? (before == null ? column.title : 'after ' + step.name) : `${column.title}: ${count(ops.length, column.key === 'asm' || column.key === 'ptx' || column.key === 'mir' || column.key === 'vector' ? 'instruction' : 'line')}`;
  const line = remark ? remark.message : kernels.length ? 'kernel ' + kernels.slice(0, 3).join(', ') + (kernels.length > 3 ? `, and ${kernels.length - 3} more` : '') : own.length ? rows[own[0]].text.trim() : 'removed';
  out.push({ title, text: line, go: own.length ? [column, own[0], i] : null });
  return text;
}

function valuePanel() {
  const s = selections.at(-1);
  if (!s) return make('p', {}, 'Click a value or a line: everything that was made from it, and what it was made from, lights up in every column. Shift-click adds a selection in another colour; Escape clears them.');
  const list = make('ol', { 'aria-label': 'History of the selection' });
  for (const { title, text, go } of stations(s)) {
    const b = make('button'), item = list.appendChild(make('li'));
    b.append(make('b', {}, title), make('span', { title: text }, text));
    if (go) b.addEventListener('click', () => goTo(...go)); else b.disabled = true;
    item.append(b);
  }
  return [make('p', {}, s.name ? `${s.name} of ${s.part}` : s.row.text.trim()), ...numbersOf(s), list];
}

function table(heads, rows, classes = []) {
  const t = make('table'), tr = t.appendChild(make('thead')).appendChild(make('tr')), body = t.appendChild(make('tbody'));
  heads.forEach((h, i) => tr.append(h ? make('th', { scope: 'col', class: classes[i] || '' }, h) : make('td')));
  for (const row of rows) {
    const tr = body.appendChild(make('tr'));
    row.forEach((cell, i) => {
      const td = tr.appendChild(make('td', { class: classes[i] || '' }));
      td.append(cell);
    });
  }
  return t;
}

function jump(place) {
  const b = make('button', { class: 'v' }, where(place));
  b.addEventListener('click', () => showLine(place));
  return b;
}

// Selects a line of the source.
function showLine(place) {
  const i = columns[0].rows.findIndex((r) => r.line === place[0] + ':' + place[1]);
  if (i < 0) return;
  goTo(columns[0], i);
  columns[0].choose('', false);
  columns[0].draw();
}

// A message with the edit that it proposes: the changed lines as they are, and as they would be.
function withEdit(r) {
  const out = make('div', {}, r.message), file = R.files[r.edit.changes[0][0]].text.split('\n'), changes = [...r.edit.changes].sort((a, b) => a[1] - b[1] || a[2] - b[2]);
  const from = changes[0][1], to = Math.max(...changes.map((c) => c[3])), old = file.slice(from - 1, to);
  const cut = (line, a, b) => [...file[line - 1] ?? ''].slice(a, b).join('');
  let text = '', at = [from, 1];
  for (const [, line, column, endLine, endColumn, now] of [...changes, [0, to, Infinity, to, Infinity, '']]) {
    for (; at[0] < line; at = [at[0] + 1, 1]) text += cut(at[0], at[1] - 1) + '\n';
    text += cut(line, at[1] - 1, column - 1) + now;
    at = [endLine, endColumn];
  }
  const pre = make('pre', { class: 'edit' });
  const lines = (list, kind, sign) => list.forEach((l) => pre.append(make('span', { class: kind }, sign + l)));
  lines(old.filter((l, i) => i + 1 < old.length || l), 'del', '- ');
  lines(text.split('\n').filter((l) => l.trim()), 'add', '+ ');
  out.append(make('div', {}, 'To get it, ' + r.edit.title + ':'), pre);
  return out;
}

function remarksPanel() {
  const rows = R.diagnostics.map((d) => {
    const s = d.spans.find((s) => s.is_primary), f = s ? R.files.findIndex((f) => f.name === s.file_name) : -1;
    return [f < 0 ? '' : jump([f, s.line_start, s.column_start]), d.level, d.code ? d.code.code : '', d.message];
  });
  for (const r of R.remarks) rows.push([r.at ? jump(r.at) : '', r.missed ? `not done (${r.missed})` : 'done', r.pass, r.edit ? withEdit(r) : r.message]);
  return rows.length ? table(['where', 'what', 'pass', 'message'], rows, ['code', 'code', 'code', 'text']) : make('p', {}, 'There are no remarks and no diagnostics.');
}

const planName = (p) => `${p.name.replace('plan ', '')}${Object.keys(p.sizes).length ? ' for ' + Object.entries(p.sizes).map(([k, v]) => `${k} = ${v}`).join(', ') : ''}`;

function memoryPanel() {
  const out = [];
  for (const plan of R.plans.filter((p) => p.slots.length)) {
    const ends = plan.slots.map((s) => s.bytes == null || s.offset == null ? null : s.offset + s.bytes);
    const total = ends.at(-1), last = Math.max(1, ...plan.buffers.map((b) => b.last + 1));
    const figure = make('figure'), name = planName(plan);
    figure.append(make('figcaption', {}, `Working memory of ${name}: ${total == null ? 'unknown' : bytes(total)} over ${count(last, 'launch').replace('launchs', 'launches')}`));
    if (total) {
      const W = 1100, H = 150, x = (l) => 4 + l / last * (W - 8), y = (b) => 4 + b / total * (H - 8);
      const rects = plan.buffers.map((b) => {
        const s = plan.slots[b.slot], h = Math.max(1.5, y(s.offset + s.bytes) - y(s.offset)), w = x(b.last + 1) - x(b.first);
        const label = `${b.value} ${b.type.replace('buf ', '')}`;
        return `<rect x="${x(b.first)}" y="${y(s.offset)}" width="${w}" height="${h}" rx="2"><title>${esc(label)}, launches ${b.first} to ${b.last}</title></rect>` + (w > label.length * 6.8 && h > 12 ? `<text x="${x(b.first) + 5}" y="${y(s.offset) + h / 2 + 4}">${esc(label)}</text>` : '');
      });
      figure.insertAdjacentHTML('beforeend', `<svg viewBox="0 0 ${W} ${H}" role="img" aria-label="Buffers over launches; the table below has the same content">${rects.join('')}</svg>`);
    }
    const details = make('details');
    details.append(make('summary', {}, 'As a table'), table(['buffer', 'type', 'slot', 'offset', 'size', 'first launch', 'last launch'], plan.buffers.map((b) => {
      const s = plan.slots[b.slot];
      return [b.value, b.type.replace('buf ', ''), b.slot, s.offset ?? '?', s.bytes ?? s.formula, b.first, b.last];
    }), ['code', 'code']));
    figure.append(details);
    out.push(figure);
  }
  return out.length ? out : make('p', {}, 'No plan needs working memory.');
}

// What `attnc bench` measured: each kernel under the ceilings of the machine, and the same as a table.
function measuredTable() {
  const m = R.measured, figure = make('figure'), sizes = Object.entries(m.sizes || {}).map(([k, v]) => `${k} = ${v}`).join(', ');
  figure.append(make('figcaption', {}, `${m.entry}${sizes ? ' for ' + sizes : ''}: ${(m.seconds * 1e3).toFixed(3)} ms per call, the median of ${m.calls}`));
  // The picture has a style of its own.
  figure.appendChild(make('div', { role: 'img', 'aria-label': 'Roofline; the table below has the same content' })).attachShadow({ mode: 'open' }).innerHTML = m.picture;
  const share = (x) => x == null ? '' : (x * 100).toFixed(1) + ' %';
  figure.append(table(['kernel', 'written at', 'launches', 'time', 'share', 'GFLOP/s', 'GB/s', 'of the ceiling', 'limit'], m.kernels.map((k) => [
    k.kernel, k.source, k.launches, (k.seconds * 1e6).toFixed(2) + ' µs', share(k.share), (k.flops_per_second / 1e9).toFixed(1), (k.bytes_per_second / 1e9).toFixed(1),
    share(k.bound === 'compute' ? k.of_flops_ceiling : k.of_bandwidth_ceiling), k.bound === 'compute' ? k.products : k.memory]), ['code', 'code', '', '', '', '', '', '', 'code']));
  return figure;
}

function costsPanel() {
  const out = R.measured ? [measuredTable()] : [];
  for (const plan of R.plans) {
    out.push(make('p', {}, planName(plan) + (plan.note ? `: not counted, ${plan.note}` : '')));
    if (!plan.costs.length) continue;
    const all = plan.costs.reduce((sum, c) => sum + c.flops, 0) || 1;
    out.push(table(['kernel', 'launches', 'MFLOP', 'share', '', 'read', 'of it weights', 'written', 'FLOP/byte', ''], plan.costs.map((c) => {
      const bar = make('span', { class: 'bar', style: `width:${(c.flops / all * 90).toFixed(1)}px` }), moved = c.read + c.written;
      return [c.kernel, c.launches, (c.flops / 1e6).toFixed(2), (c.flops / all * 100).toFixed(1) + ' %', bar, bytes(c.read), bytes(c.weights), bytes(c.written), moved ? (c.flops / moved).toFixed(2) : '', c.exact ? '' : 'upper bound'];
    }), ['code']));
  }
  return out.length ? out : make('p', {}, 'The compilation did not reach plans.');
}

function aboutPanel() {
  const keys = [['Tab', 'next column or control'], ['↑ ↓ PgUp PgDn Home End', 'move in a column'], ['← →', 'choose a value in the line'], ['Enter', 'select; with Shift add a selection'], ['Escape', 'clear the selections'], ['/', 'search the active column; Enter finds the next'], ['[ ]', 'previous and next step that changed something'], ['d', 'show a step as a diff']];
  const rows = keys.map(([k, t]) => [make('kbd', {}, k), t]);
  const steps = R.levels.flatMap((l) => l.steps.map((s) => [l.title, s.name, s.changed ? count(idsOf(s.text).length, 'line') : 'unchanged']));
  const details = make('details');
  details.append(make('summary', {}, 'Steps'), table(['level', 'step', 'text'], steps, ['', 'code']));
  return [table(['key', 'does'], rows, ['', 'text']), make('p', {}, `Record version ${R.version}; ${count(R.lines.length, 'different line')}. Columns mark lines by name in their own column, by origin between scheduled tile IR and code, kernels by the operations that they are launched for, and by source location elsewhere.`), details];
}

function start() {
  const file = (R.files[0] || { name: '' }).name.split('/').pop();
  document.title = `${file} · attnc report`;
  byId('title').textContent = file;
  byId('command').textContent = R.command + (R.target ? ` · ${R.target}` : '');
  byId('command').title = R.command;
  startView();
  for (const [name, [title]] of Object.entries(PANELS)) {
    const n = name === 'remarks' ? R.remarks.length + R.diagnostics.length : 0;
    const b = byId('panels').appendChild(make('button', { role: 'tab', id: 'panel-' + name, 'aria-controls': 'panel' }, title + (n ? ` ${n}` : '')));
    b.addEventListener('click', () => showPanel(name));
  }
  byId('panels').addEventListener('keydown', (e) => {
    const all = Object.keys(PANELS), i = all.indexOf(panel), way = { ArrowRight: 1, ArrowLeft: -1 }[e.key];
    if (!way) return;
    showPanel(all[(i + way + all.length) % all.length]);
    byId('panel-' + panel).focus();
  });
  const line = Number(document.documentElement.dataset.line);
  if (line) showLine([0, line]);
  showPanel(R.diagnostics.some((d) => d.level === 'error') ? 'remarks' : firstWrong() ? 'numbers' : 'value');
}
start();
// For tests: what is marked, by column.
window.report = { marked: () => Object.fromEntries(columns.map((c) => [c.key, matching_rows(c)])) };
function matching_rows(c) {
  return unique(selections.flatMap((s) => matching(c, c.rows, s))).sort((a, b) => a - b).map((i) => ({ row: i, text: c.rows[i].text, part: c.rows[i].part }));
}
