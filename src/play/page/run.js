'use strict';
// The call of an entry point: sizes and arguments in, results and attention weights out.
const CELLS = 256;
const chosen = { model: null, dims: {}, entry: null, sizes: {}, fills: {}, seed: 1 };
let known = null;

// A random number generator with a seed (mulberry32): the same numbers for the same seed.
function random(seed) {
  let a = seed >>> 0;
  return () => {
    a = (a + 0x6d2b79f5) >>> 0;
    let t = Math.imul(a ^ (a >>> 15), a | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
}

const count = (shape) => shape.reduce((n, d) => n * d, 1);
const isFloat = (elem) => /^b?f/.test(elem);
const entryNow = () => known && (known.entries.find((e) => e.name === chosen.entry) || known.entries[0]);

// The fields of a request that say which program is meant.
function program() {
  const dims = Object.fromEntries(Object.entries(chosen.dims).filter(([, v]) => v !== ''));
  const own = known && known.models.some((m) => m.name === chosen.model) ? chosen.model : undefined;
  return { text: state.text, file: state.file, dims, model: own };
}

// The elements of an argument that the page makes; null where attnc makes them.
function elements(arg) {
  const fill = chosen.fills[arg.name] || { mode: 'random' }, n = arg.shape ? count(arg.shape) : 0;
  if (!arg.shape || n > CELLS) return null;
  if (fill.mode === 'edit' && fill.values.length === n) return fill.values;
  if (fill.mode === 'ones') return Array(n).fill(arg.elem === 'bool' ? 'true' : '1');
  if (fill.mode === 'iota') return Array.from({ length: n }, (_, i) => (arg.elem === 'bool' ? String(i % 2 === 1) : String(i)));
  if (!isFloat(arg.elem)) return null;
  const draw = random(chosen.seed * 7919 + [...arg.name].reduce((h, c) => h * 31 + c.charCodeAt(0), 7));
  return Array.from({ length: n }, () => ((draw() + draw() + draw()) * 2 - 3).toFixed(2));
}

// Flat elements as a literal with nested brackets.
function literal(values, shape) {
  if (!shape.length) return values[0] ?? '0';
  const [n, ...rest] = shape, size = count(rest);
  return '[' + Array.from({ length: n }, (_, i) => literal(values.slice(i * size, (i + 1) * size), rest)).join(', ') + ']';
}

const isNumber = (text, elem) => (elem === 'bool' ? /^(true|false|0|1)$/ : isFloat(elem) ? /^[+-]?(\d+\.?\d*(e[+-]?\d+)?|\.\d+|inf|nan)$/i : /^-?\d+$/).test(text.trim());

// The interface of the program, for the form; the form stays as it is while the program has errors.
async function refresh() {
  try {
    const answer = await call('interface', { ...program(), sizes: chosen.sizes });
    if (!answer) return;
    if (answer.interface) {
      known = answer.interface;
      chosen.model = known.model;
      const entry = entryNow(), missing = entry ? entry.symbols.filter((s) => !(s in chosen.sizes)) : [];
      missing.forEach((s, i) => { chosen.sizes[s] = s === 'batch' ? 1 : [3, 4, 5, 2][i % 4]; });
      if (missing.length) return refresh();
    }
    form(answer.interface ? '' : 'The program has errors.', answer.interface && !known.entries.length ? answer.messages : '');
  } catch (error) {
    form(error.message);
  }
}

const changed = (set) => (e) => { set(e.target.value); refresh(); };

function select(label, options, value, set) {
  const box = make('select', { onchange: changed(set) }, ...options.map((o) => make('option', { value: o, selected: o === value }, o)));
  return make('label', {}, label, box);
}

// Rows of a matrix with row and column numbers; `cell` makes each.
function grid(rows, columns, kind, cell) {
  const head = make('tr', {}, make('td'), ...Array.from({ length: columns }, (_, j) => make('th', { scope: 'col' }, String(j))));
  const table = make('table', { class: kind }, columns > 1 && columns <= 16 ? head : '');
  for (let i = 0; i < rows; i++) {
    const tr = table.appendChild(make('tr', {}, rows > 1 || columns > 1 ? make('th', { scope: 'row' }, rows > 1 ? String(i) : '') : ''));
    for (let j = 0; j < columns; j++) tr.append(cell(i, j));
  }
  return make('div', { class: 'scroll', tabindex: kind === 'cells' ? false : 0 }, table);
}

// The matrices of a tensor: [title, rows, columns, offset] for each.
function slices(shape) {
  const columns = shape.length ? shape.at(-1) : 1, rows = shape.length > 1 ? shape.at(-2) : 1, lead = shape.slice(0, -2);
  return Array.from({ length: count(lead) }, (_, n) => {
    let at = n;
    const index = lead.map(() => 0);
    for (let k = lead.length - 1; k >= 0; k--) { index[k] = at % lead[k]; at = Math.floor(at / lead[k]); }
    return [lead.length ? `[${index.join(', ')}]` : '', rows, columns, n * rows * columns];
  });
}

function argument(arg) {
  const fill = chosen.fills[arg.name] || { mode: 'random' }, values = elements(arg), n = arg.shape ? count(arg.shape) : null;
  const small = n != null && n <= CELLS, modes = small ? ['random', 'ones', 'iota', 'edit'] : ['random'];
  const set = (mode) => { chosen.fills[arg.name] = { mode, values: values || Array(n).fill(arg.elem === 'bool' ? 'false' : '0') }; };
  const box = make('div', { class: 'argument' }, make('div', {}, make('b', {}, arg.name), make('span', { class: 'type-of' }, `${arg.elem}[${arg.dims.join(', ')}]` + (arg.shape ? ` = [${arg.shape.join(', ')}]` : '')), select('', modes, small ? fill.mode : 'random', set)));
  box.querySelector('select').setAttribute('aria-label', `Values of ${arg.name}`);
  if (values && n) {
    for (const [title, rows, columns, from] of slices(arg.shape)) {
      if (title) box.append(make('h4', {}, arg.name + title));
      box.append(grid(rows, columns, 'cells', (i, j) => {
        const at = from + i * columns + j;
        const edit = (e) => {
          if ((chosen.fills[arg.name] || {}).mode !== 'edit') {
            set('edit');
            box.querySelector('select').value = 'edit';
          }
          chosen.fills[arg.name].values = chosen.fills[arg.name].values.map((v, k) => (k === at ? e.target.value : v));
          e.target.setAttribute('aria-invalid', String(!isNumber(e.target.value, arg.elem)));
        };
        return make('td', {}, make('input', { value: values[at], 'aria-label': `${arg.name} ${title} ${i}, ${j}`, oninput: edit, spellcheck: 'false' }));
      }));
    }
  } else if (n === 0) box.append(make('span', { class: 'soft' }, 'It has no elements.'));
  else box.append(make('span', { class: 'soft' }, small ? 'attnc chooses values that the program accepts.' : n ? `${n.toLocaleString('en')} elements, chosen by attnc.` : ''));
  return box;
}

function form(trouble, messages = '') {
  const parts = [], entry = entryNow();
  if (trouble) parts.push(make('p', { class: 'soft' }, trouble));
  if (known && !trouble) {
    const dims = (known.models.find((m) => m.name === known.model) || { dims: [] }).dims;
    const field = make('fieldset');
    if (known.models.length > 1) field.append(select('Model', known.models.map((m) => m.name), known.model, (v) => { chosen.model = v; chosen.entry = null; }));
    for (const d of dims) {
      const input = make('input', { type: /^\d*$/.test(d.default ?? '') ? 'number' : 'text', min: 0, size: 8, value: chosen.dims[d.name] ?? '', placeholder: d.default ?? 'any', onchange: changed((v) => { chosen.dims[d.name] = v; }) });
      field.append(make('label', {}, d.name, input));
    }
    if (known.entries.length > 1) field.append(select('Function', known.entries.map((e) => e.name), entry.name, (v) => { chosen.entry = v; }));
    if (entry) {
      for (const s of entry.symbols) field.append(make('label', {}, s, make('input', { type: 'number', min: 0, value: chosen.sizes[s], onchange: changed((v) => { chosen.sizes[s] = Math.max(0, Math.round(Number(v)) || 0); }) })));
      field.append(make('label', {}, 'Seed', make('input', { type: 'number', min: 0, value: chosen.seed, onchange: changed((v) => { chosen.seed = Math.max(0, Math.round(Number(v)) || 0); }) })));
    }
    parts.push(field);
    if (entry) parts.push(make('div', { class: 'arguments' }, ...entry.args.map(argument)));
    if (known.parameters) parts.push(make('p', { class: 'soft' }, 'The weights are random.'));
    if (messages) parts.push(make('pre', { class: 'messages', tabindex: 0 }, messages));
  }
  // The form keeps the focus, by the position of the field that had it.
  const fields = () => [...byId('inputs').querySelectorAll('input, select')], at = fields().indexOf(document.activeElement);
  byId('inputs').replaceChildren(...parts);
  if (at >= 0 && fields()[at]) fields()[at].focus();
}

const short = (x) => (typeof x === 'string' ? x : Number.isInteger(x) ? String(x) : Math.abs(x) >= 1e5 || Math.abs(x) < 1e-4 ? x.toExponential(3) : x.toFixed(4));

// A value as tables; heat maps shade each element by its share of the largest magnitude.
function tables(value, heat) {
  const found = value.elements, most = Math.max(...found.filter((x) => typeof x === 'number').map(Math.abs), 1e-30), out = make('div', { class: 'maps' });
  const all = slices(value.shape), shown = all.slice(0, 16);
  for (const [title, rows, columns, from] of shown) {
    const small = heat && columns > 16, [r, c] = [Math.min(rows, heat ? 64 : 24), Math.min(columns, heat ? 64 : 12)];
    const table = grid(r, c, heat ? `heat${small ? ' small' : ''}` : 'numbers', (i, j) => {
      const x = found[from + i * columns + j];
      if (x === undefined) return make('td');
      const share = typeof x === 'number' ? Math.abs(x) / most : 0;
      const td = make('td', { title: `row ${i}, column ${j}: ${x}` }, typeof x === 'boolean' ? String(x) : heat ? (typeof x === 'number' ? x.toFixed(2) : x) : short(x));
      if (heat) td.style.background = `rgba(var(--heat), ${(share * 0.45).toFixed(3)})`;
      if (typeof x === 'string') td.className = 'error';
      return td;
    });
    const cut = r < rows || c < columns ? make('p', { class: 'soft' }, `${r} of ${rows} rows, ${c} of ${columns} columns`) : '';
    out.append(make('div', {}, title ? make('h4', {}, title) : '', table, cut));
  }
  if (all.length > shown.length) out.append(make('p', { class: 'soft' }, `${all.length - shown.length} more`));
  return count(value.shape) ? out : make('p', { class: 'soft' }, 'It has no elements.');
}

function shownValue(title, value, heat) {
  return make('div', { class: 'value' }, make('h3', {}, title, ' ', make('span', { class: 'type-of' }, `${value.elem}[${value.shape.join(', ')}]`)), tables(value, heat));
}

// Whether all numbers are within their bounds, in a sentence.
function verdict(levels) {
  const all = levels.flatMap((level) => level.values.map((v) => ({ ...v, level })));
  const wrong = all.find((v) => v.outside);
  if (wrong) return make('p', { class: 'error' }, `${wrong.name} (${wrong.op}) is the first value outside of its error bound: ${wrong.level.label}.`);
  return all.length ? make('p', { class: 'good' }, `All ${all.length} values are within their error bounds.`) : '';
}

async function start() {
  const button = byId('start'), box = byId('results');
  showTab('call');
  await refresh();
  const entry = entryNow();
  if (!entry) { box.replaceChildren(make('p', { class: 'soft' }, 'There is no function to call.')); return; }
  const inputs = {};
  for (const arg of entry.args) {
    const values = elements(arg);
    if (!values) continue;
    const bad = values.find((v) => !isNumber(v, arg.elem));
    if (bad !== undefined) { box.replaceChildren(make('p', { class: 'error' }, `${arg.name}: “${bad}” is not a value of type ${arg.elem}.`)); return; }
    inputs[arg.name] = literal(values.map((v) => v.trim()), arg.shape);
  }
  const sizes = Object.fromEntries(entry.symbols.map((s) => [s, chosen.sizes[s]]));
  button.disabled = true;
  box.replaceChildren(make('p', { class: 'soft' }, 'Running'));
  try {
    const answer = await call('run', { ...program(), function: entry.name, sizes, inputs, seed: chosen.seed, options: [byId('level').value] });
    if (!answer) return;
    const levels = (answer.inner || {}).levels || [], parts = [];
    if (answer.messages) parts.push(make('pre', { tabindex: 0, class: 'messages' + (answer.ok ? '' : ' error') }, answer.messages));
    for (const value of answer.values) parts.push(shownValue(value.name, value, false));
    const written = levels.find((level) => level.name === 'written');
    const weights = written ? written.values.filter((v) => v.op === 'softmax' && v.shape.length > 1 && v.elements.length === count(v.shape)) : [];
    for (const value of weights) parts.push(shownValue(`Attention weights: softmax ${value.name}`, value, true));
    parts.push(verdict(levels));
    box.replaceChildren(...parts);
    box.scrollIntoView({ block: 'start' });
    if (answer.report) showReport(answer.report, 'with the numbers of the last run');
    tell(answer.ok ? 'It ran.' : 'It failed.');
  } catch (error) {
    box.replaceChildren(make('p', { class: 'error' }, error.message));
  } finally {
    button.disabled = false;
  }
}
